//! The restricted shell: command lines that only read (S4-9, S4-10, C-23).
//!
//! Everything that is not listed is refused: a command, an option of a command that has harmful ones, a redirection but to
//! `/dev/null`, an assignment that programs would see. Every command of every list, pipeline and substitution is looked at, and
//! a line that was not understood as a whole is refused as a whole. What is only known at run time passes where it can be
//! nothing but data.
//!
//! It reads a [`Line`], never text, so `grep rm file` and `grep '>' file` are what they are (X4-7). It is a rule of layer 2:
//! what such a line can reach is what was granted, and a repository's own git configuration is layer 3's to keep.

mod arguments;
mod commands;
mod scripts;
mod variables;

use crate::path::HostPath;

use super::{Assignment, Line, Nest, Piece, Redirect, Simple, Word, reading};

use arguments::{Args, ArgumentRule, Except, Only};
pub use commands::{CommandRule, RULES};
use variables::{HARMLESS, is_own};

/// Refusal of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineRefusal {
    /// The command, as far as it is known.
    pub command: String,
    /// Reason.
    pub why: String,
    /// Advice what to do instead.
    pub remedy: String,
}

impl std::fmt::Display for LineRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { command, why, remedy } = self;
        write!(f, "the restricted shell refuses `{command}`: {why}; {remedy}")
    }
}

/// Most characters of a command that a refusal repeats.
const SHOWN: usize = 120;

fn refuse<T>(command: impl Into<String>, why: impl Into<String>, remedy: impl Into<String>) -> Result<T, LineRefusal> {
    let command: String = command.into();
    let command = command.chars().take(SHOWN).collect();
    Err(LineRefusal { command, why: why.into(), remedy: remedy.into() })
}

/// Commands that only the shell itself has, and no file stands for.
const BUILTINS: &[&str] = &["[[", ":", "cd", "command", "exit", "read", "type"];

/// Where git finds itself when it starts itself.
const GIT_ITSELF: &[&str] = &[
    "/usr/lib/git-core/git",
    "/usr/libexec/git-core/git",
    "/usr/local/lib/git-core/git",
    "/usr/local/libexec/git-core/git",
];

/// Programs that a restricted shell may start, and that these may start, whatever a line says: the programs of
/// [`RULES`] and nothing else. The kernel is told so; [`judge`] explains it before.
#[must_use]
pub fn programs() -> Vec<HostPath> {
    let names = RULES.iter().flat_map(|rule| rule.names).filter(|name| !BUILTINS.contains(name));
    names.chain(GIT_ITSELF).map(|name| HostPath::from(*name)).collect()
}

/// Judges a whole line.
///
/// # Errors
/// The first thing in it that may do more than read.
pub fn judge(line: &Line) -> Result<(), LineRefusal> {
    let commands = match line.understood() {
        Ok(commands) => commands,
        Err(unknown) => {
            let why = format!("it is not understood at byte {}: {}", unknown.at, unknown.why);
            return refuse("the line", why, "write it as plain commands");
        }
    };
    commands.iter().try_for_each(simple)
}

fn simple(command: &Simple) -> Result<(), LineRefusal> {
    if let Some(Nest::Function { name }) = command.within.iter().find(|nest| matches!(nest, Nest::Function { .. })) {
        return refuse(format!("{name}()"), "it defines a function", "write its commands where they are needed");
    }
    let alone = command.words.is_empty();
    command.assignments.iter().try_for_each(|assignment| assigns(assignment, alone))?;
    command.redirects.iter().try_for_each(redirects)?;
    if alone { Ok(()) } else { program(&command.words) }
}

fn assigns(Assignment { name, values }: &Assignment, alone: bool) -> Result<(), LineRefusal> {
    let shown = HARMLESS.contains(&name.as_str()) || reading::is_locale(name);
    let plain = |value: &Word| {
        let is_plain = |text: &str| !text.starts_with(['/', ':', '.']) && !text.contains("..");
        value.text().is_some_and(|text| is_plain(text) && reading::keeps(name, text.as_bytes()))
    };
    if (alone && is_own(name)) || (shown && values.iter().all(plain)) {
        return Ok(());
    }
    refuse(
        format!("{name}=…"),
        "programs read variables such as PATH, LD_PRELOAD, GIT_* and PAGER, and run what they name",
        "leave it out, or use a variable in small letters on its own",
    )
}

fn redirects(redirect: &Redirect) -> Result<(), LineRefusal> {
    let target = redirect.target.as_ref();
    let text = target.and_then(Word::text);
    let shown = format!("{} {}", redirect.operator, target.map(Word::shown).unwrap_or_default());
    match redirect.operator.as_str() {
        "<<" | "<<-" | "<<<" | "<&-" | ">&-" => Ok(()),
        ">" | ">>" | ">|" | "&>" | "&>>" if text == Some("/dev/null") => Ok(()),
        ">&" | "<&" if text.is_some_and(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())) => {
            Ok(())
        }
        // bash itself makes connections of these names.
        "<" if target.is_some_and(reads_a_file) => Ok(()),
        "<" => refuse(shown, "it may make a connection", "name the file as an argument"),
        _ => refuse(shown, "it writes to a file", "let the result come as output; only /dev/null may be written"),
    }
}

fn reads_a_file(word: &Word) -> bool {
    let start = word.known_start();
    let device = start.starts_with("/dev/tcp") || start.starts_with("/dev/udp");
    match word {
        Word::Static(_) => !device && !start.contains("//dev"),
        Word::Dynamic(pieces) => match pieces.first() {
            Some(Piece::Pipe | Piece::Home) => true,
            _ => !start.is_empty() && !start.starts_with('/') && !word.may_split(),
        },
    }
}

/// Judges a command and its arguments; that of a wrapper too.
fn program(words: &[Word]) -> Result<(), LineRefusal> {
    let Some((name, args)) = words.split_first() else { return Ok(()) };
    let shown = || words.iter().map(Word::shown).collect::<Vec<_>>().join(" ");
    let Some(text) = name.text() else {
        return refuse(shown(), "which command it is will only be known when it runs", "write the command's name");
    };
    let bare = ["/usr/bin/", "/bin/", "/usr/local/bin/"].iter().find_map(|dir| text.strip_prefix(dir)).unwrap_or(text);
    let Some(rule) = RULES.iter().find(|rule| rule.names.contains(&bare)) else {
        let (why, remedy) = commands::instead(bare);
        return refuse(shown(), why, remedy);
    };
    let judged = match rule.how {
        ArgumentRule::Any => Ok(()),
        ArgumentRule::Except { flags, valued, long } => Args::parse(args, &Except { flags, valued, long }).map(drop),
        ArgumentRule::Few { most, flags, valued, long } => {
            Args::parse(args, &Except { flags, valued, long }).and_then(|args| args.at_most(most))
        }
        ArgumentRule::Only { flags, valued, long, check } => {
            Args::parse(args, &Only { flags, valued, long }).and_then(|args| check(&args))
        }
        ArgumentRule::Own(check) => check(args),
        ArgumentRule::Starts(command) => match command(args) {
            Ok(inner) => return program(&inner),
            Err(why) => Err(why),
        },
    };
    judged.or_else(|why| refuse(shown(), why, rule.remedy))
}
