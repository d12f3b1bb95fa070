//! The restricted shell: command lines that only read (S4-9, S4-10, C-23).
//!
//! Everything that is not listed is refused: a command, an option of a command that has harmful ones, a redirection but to
//! `/dev/null`, an assignment that programs would see. Every command of every list, pipeline and substitution is looked at, and
//! a line that was not understood as a whole is refused as a whole. What is only known at run time passes where it can be
//! nothing but data.
//!
//! It reads a [`Line`], never text, so `grep rm file` and `grep '>' file` are what they are (X4-7). It is a rule of layer 2:
//! what such a line can reach is what was granted, and a repository's own git configuration is layer 3's to keep.

mod commands;
mod scripts;

use crate::path::HostPath;

use super::{Assignment, Line, Nest, Piece, Redirect, Simple, Word, reading};

pub use commands::{RULES, Rule};

/// Refusal of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The command, as far as it is known.
    pub command: String,
    /// Reason.
    pub why: String,
    /// Advice what to do instead.
    pub remedy: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { command, why, remedy } = self;
        write!(f, "the restricted shell refuses `{command}`: {why}; {remedy}")
    }
}

/// Most characters of a command that a refusal repeats.
const SHOWN: usize = 120;

fn refuse<T>(command: impl Into<String>, why: impl Into<String>, remedy: impl Into<String>) -> Result<T, Refusal> {
    let command: String = command.into();
    let command = command.chars().take(SHOWN).collect();
    Err(Refusal { command, why: why.into(), remedy: remedy.into() })
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
pub fn judge(line: &Line) -> Result<(), Refusal> {
    let commands = match line.understood() {
        Ok(commands) => commands,
        Err(unknown) => {
            let why = format!("it is not understood at byte {}: {}", unknown.at, unknown.why);
            return refuse("the line", why, "write it as plain commands");
        }
    };
    commands.iter().try_for_each(simple)
}

fn simple(command: &Simple) -> Result<(), Refusal> {
    if let Some(Nest::Function { name }) = command.within.iter().find(|nest| matches!(nest, Nest::Function { .. })) {
        return refuse(format!("{name}()"), "it defines a function", "write its commands where they are needed");
    }
    let alone = command.words.is_empty();
    command.assignments.iter().try_for_each(|assignment| assigns(assignment, alone))?;
    command.redirects.iter().try_for_each(redirects)?;
    if alone { Ok(()) } else { program(&command.words) }
}

/// Variables that change how text is shown, and nothing else.
const HARMLESS: &[&str] = &["LANGUAGE", "TZ", "NO_COLOR", "COLUMNS", "LINES", "CLICOLOR"];

/// A variable of the line's own, in small letters: bash gives none of them a meaning, but for proxies, which curl reads.
fn is_own(name: &str) -> bool {
    let small = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    small
        && name.bytes().any(|byte| byte.is_ascii_lowercase())
        && !name.ends_with("_proxy")
        && name != "auto_resume"
        && name != "histchars"
}

fn assigns(Assignment { name, values }: &Assignment, alone: bool) -> Result<(), Refusal> {
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

fn redirects(redirect: &Redirect) -> Result<(), Refusal> {
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
fn program(words: &[Word]) -> Result<(), Refusal> {
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
        How::Any => Ok(()),
        How::Except { flags, valued, long } => Args::parse(args, &Except { flags, valued, long }).map(drop),
        How::Few { most, flags, valued, long } => {
            Args::parse(args, &Except { flags, valued, long }).and_then(|args| args.at_most(most))
        }
        How::Only { flags, valued, long, check } => {
            Args::parse(args, &Only { flags, valued, long }).and_then(|args| check(&args))
        }
        How::Own(check) => check(args),
        How::Starts(command) => match command(args) {
            Ok(inner) => return program(&inner),
            Err(why) => Err(why),
        },
    };
    judged.or_else(|why| refuse(shown(), why, rule.remedy))
}

/// How a command's arguments are judged.
#[derive(Clone, Copy)]
pub(crate) enum How {
    /// None of them does harm.
    Any,
    /// All but these options. `valued` are short ones with a value.
    Except { flags: &'static str, valued: &'static str, long: &'static [&'static str] },
    /// All but these options, and so many operands: the next one would be written to.
    Few { most: usize, flags: &'static str, valued: &'static str, long: &'static [&'static str] },
    /// These options and no others; those of `long` that end in `=` have a value. And a look at the rest.
    Only {
        flags: &'static str,
        valued: &'static str,
        long: &'static [&'static str],
        check: fn(&Args<'_>) -> Result<(), String>,
    },
    /// By a function.
    Own(fn(&[Word]) -> Result<(), String>),
    /// It starts a command, which is judged in its place.
    Starts(fn(&[Word]) -> Result<Vec<Word>, String>),
}

/// Which options there may be.
trait Allows {
    fn short(&self, flag: char) -> Result<Takes, ()>;
    fn long(&self, name: &str) -> Result<Takes, ()>;
}

#[derive(PartialEq, Eq)]
enum Takes {
    Nothing,
    Value,
}

struct Except {
    flags: &'static str,
    valued: &'static str,
    long: &'static [&'static str],
}

impl Allows for Except {
    fn short(&self, flag: char) -> Result<Takes, ()> {
        if self.flags.contains(flag) {
            return Err(());
        }
        Ok(if self.valued.contains(flag) { Takes::Value } else { Takes::Nothing })
    }

    /// getopt_long takes the beginning of a name for the name (C1).
    fn long(&self, name: &str) -> Result<Takes, ()> {
        if self.long.iter().any(|denied| denied.starts_with(name)) { Err(()) } else { Ok(Takes::Nothing) }
    }
}

struct Only {
    flags: &'static str,
    valued: &'static str,
    long: &'static [&'static str],
}

impl Allows for Only {
    fn short(&self, flag: char) -> Result<Takes, ()> {
        match (self.flags.contains(flag), self.valued.contains(flag)) {
            (true, _) => Ok(Takes::Nothing),
            (_, true) => Ok(Takes::Value),
            _ => Err(()),
        }
    }

    fn long(&self, name: &str) -> Result<Takes, ()> {
        let listed = self.long.iter().find(|listed| listed.strip_suffix('=').unwrap_or(listed) == name);
        listed.map(|listed| if listed.ends_with('=') { Takes::Value } else { Takes::Nothing }).ok_or(())
    }
}

/// Arguments, told apart as getopt does.
pub(crate) struct Args<'a> {
    /// Names, without dashes, and values.
    options: Vec<(String, Option<Word>)>,
    operands: Vec<&'a Word>,
}

impl<'a> Args<'a> {
    fn parse(args: &'a [Word], allows: &dyn Allows) -> Result<Self, String> {
        let (mut options, mut operands) = (Vec::new(), Vec::new());
        let mut rest = args.iter();
        let mut only_operands = false;
        while let Some(word) = rest.next() {
            let start = word.known_start();
            if only_operands || (!word.may_be_option()) || start == "-" && word.text().is_some() {
                operands.push(word);
            } else if start == "--" && word.text().is_some() {
                only_operands = true;
            } else if word.may_split() || !start.starts_with('-') {
                return Err(format!("`{}` may turn out to be an option", word.shown()));
            } else if let Some(long) = start.strip_prefix("--") {
                let (name, value) = match long.split_once('=') {
                    Some((name, value)) => (
                        name,
                        Some(word.text().map(|_| Word::Static(value.to_owned())).unwrap_or_else(|| word.clone())),
                    ),
                    None if word.text().is_some() => (long, None),
                    None => return Err(format!("which option `{}` is will only be known when it runs", word.shown())),
                };
                let takes = allows.long(name).map_err(|()| format!("its option --{name} may do more than read"))?;
                let value = if takes == Takes::Value && value.is_none() { rest.next().cloned() } else { value };
                options.push((name.to_owned(), value));
            } else {
                let text = word
                    .text()
                    .ok_or_else(|| format!("which options `{}` are will only be known when it runs", word.shown()))?;
                for (at, flag) in text[1..].char_indices() {
                    let takes = allows.short(flag).map_err(|()| format!("its option -{flag} may do more than read"))?;
                    if takes == Takes::Value {
                        let attached = &text[1 + at + flag.len_utf8()..];
                        let value = if attached.is_empty() {
                            rest.next().cloned()
                        } else {
                            Some(Word::Static(attached.to_owned()))
                        };
                        if value.as_ref().is_some_and(Word::may_split) {
                            return Err(format!(
                                "the value of -{flag} may become several words; put it in double quotes"
                            ));
                        }
                        options.push((flag.to_string(), value));
                        break;
                    }
                    options.push((flag.to_string(), None));
                }
            }
        }
        Ok(Self { options, operands })
    }

    fn at_most(&self, most: usize) -> Result<(), String> {
        if self.operands.len() > most || (most > 0 && self.operands.iter().any(|word| word.may_be_several())) {
            return Err(match most {
                0 => "what it is given may change something, or start a command".to_owned(),
                _ => "it writes to the file that is named last".to_owned(),
            });
        }
        Ok(())
    }

    fn has(&self, names: &[&str]) -> bool {
        self.options.iter().any(|(option, _)| names.contains(&option.as_str()))
    }
}
