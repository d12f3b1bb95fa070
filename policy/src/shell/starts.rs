//! Commands that a simple command starts besides itself: the commands of wrappers (`env`, `time`, `xargs`, `find
//! -exec`), and the lines that shells are handed (`sh -c`, `eval`).
//!
//! It errs on the side of more: an option that is not known here may take a value or not, and then every word behind it may be
//! a command's name. Who denies finds it; who allows has one more command to allow.

use std::cell::Cell;
use std::sync::Arc;

use super::input::Input;
pub use super::known::{HOLE, KnownWord, base, is_assignment, is_shell};
pub(crate) use super::known::{assigned, is_name};
use super::wrappers::{self, Assignments, WrappedRest, Wrapper};
use super::{programs, starters};

/// Most words of a command whose wrapper is not understood, and most commands in each other: beyond it anything may start.
const WORDS_MAX: usize = 256;
const DEPTH_MAX: usize = 32;

/// One thing that a command starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandStart {
    /// A command, and at which word of the one that starts it its name stands.
    Command {
        /// Its words.
        words: Vec<KnownWord>,
        /// Where.
        at: usize,
    },
    /// A line for a shell, and at which word it begins.
    Line {
        /// Its text.
        text: KnownWord,
        /// Where.
        at: usize,
    },
    /// Beginning of a line, behind which the words of whoever uses it follow (`alias g=git`), and at which word it begins.
    Beginning {
        /// Its text.
        text: KnownWord,
        /// Where.
        at: usize,
    },
    /// A file that the shell writes, and at which word it stands.
    File {
        /// Its name.
        file: KnownWord,
        /// Where.
        at: usize,
    },
}

/// Programs that start one in the directory where they are, whatever their options are.
fn stays(name: &str) -> bool {
    matches!(name, "uclampset")
}

/// The row of a wrapper, and at which argument its own options begin: behind its subcommand, if it has one.
fn wrapper(name: &str, args: &[KnownWord]) -> Option<(Wrapper, usize)> {
    if is_loader(name) {
        return wrappers::row("ld.so", "").map(|row| (row, 0));
    }
    if !wrappers::has_subcommands(name) {
        return wrappers::row(name, "").map(|row| (row, 0));
    }
    programs::subcommands_of(name, args).into_iter().find_map(|(at, subcommand)| {
        // `uv tool run`
        let inner = args.get(at + 1).and_then(KnownWord::fixed).unwrap_or_default();
        let both = format!("{subcommand} {inner}");
        wrappers::row(name, &both)
            .map(|row| (row, at + 2))
            .or_else(|| wrappers::row(name, &subcommand).map(|row| (row, at + 1)))
    })
}

/// True if a program is the loader of others: `/lib64/ld-linux-x86-64.so.2 PROGRAM`.
fn is_loader(name: &str) -> bool {
    name == "ld.so" || (name.starts_with("ld-") && (name.contains(".so") || name.starts_with("ld-linux")))
}

/// True if each word of a command may be the name of what it starts.
fn starts_some_word(name: &str, args: &[KnownWord]) -> bool {
    let subcommand = args.first().and_then(KnownWord::fixed).unwrap_or_default();
    wrappers::starts_some_word(name, subcommand)
        || (wrappers::has_subcommands(name) && args.first().is_some_and(|first| first.fixed().is_none()))
}

/// True if what a command starts by its word `at` may run in another directory than itself. What is known not to is listed.
fn moves(words: &[KnownWord], at: usize) -> bool {
    let Some(name) = words.first().and_then(KnownWord::fixed).map(base) else { return true };
    let before = words.get(1..at).unwrap_or_default();
    match name {
        // A program that it looks for by its name.
        "make" | "gmake" if at == 0 => false,
        "find" => !matches!(before.last().and_then(KnownWord::fixed), Some("-exec" | "-ok")),
        "fd" | "fdfind" => true,
        "git" | "gdb" | "tmux" | "screen" | "make" | "gmake" | "lftp" | "expect" | "parallel" | "sem" => true,
        name if starts_some_word(name, &words[1..]) => !stays(name),
        name => wrapper(name, &words[1..]).is_some_and(|(wrapper, from)| {
            let own = before.get(from..).unwrap_or_default();
            wrapper.moves || from > 2 || !own.iter().all(|word| keeps_place(&wrapper, word))
        }),
    }
}

/// True if a word before a wrapper's command is known to choose no directory.
fn keeps_place(wrapper: &Wrapper, word: &KnownWord) -> bool {
    let Some(text) = word.fixed() else { return !word.several && assigned(&word.text).is_some() };
    let (letters, long) = wrapper.places;
    if matches!(wrapper.rest, WrappedRest::CommandOrLine | WrappedRest::LineBehindOption)
        && matches!(text, "-c" | "--command")
    {
        return true;
    }
    match text.strip_prefix('-') {
        None | Some("" | "-") => true,
        Some(given) => {
            let is_place = match given.strip_prefix('-') {
                Some(given) => long.contains(&wrapper.full_name(given.split('=').next().unwrap_or(given))),
                None => given.contains(|letter| letters.contains(letter)),
            };
            !is_place && !matches!(option(wrapper, text), Option_::Unknown)
        }
    }
}

/// True if a shell reads a plain line ([`super::plain`]) as bash does. Others have other words, or evaluate their arguments.
fn is_bournes(name: &str) -> bool {
    matches!(name, "sh" | "bash" | "rbash" | "dash" | "ash")
}

/// Starts of a command, one step deep.
pub(crate) fn starts(words: &[KnownWord]) -> Vec<CommandStart> {
    let Some((first, args)) = words.split_first() else { return Vec::new() };
    let Some(name) = first.fixed().map(base) else { return Vec::new() };
    if is_shell(name) {
        let lines = lines_of_shell(args);
        // They have other options for it.
        let has_options = || args.iter().any(|arg| arg.several || arg.text.starts_with(['-', '+', HOLE]));
        let unknown = !is_bournes(name) && has_options();
        let anything = unknown.then(|| CommandStart::Command { words: vec![KnownWord::anything()], at: 1 });
        return lines.into_iter().chain(anything).collect();
    }
    match name {
        "eval" => joined(&args[ends_options(args)..], 1 + ends_options(args)),
        // Its arguments may be the line, or name signals.
        "trap" => {
            let at = ends_options(args);
            args.get(at).map(|line| CommandStart::Line { text: line.clone(), at: at + 1 }).into_iter().collect()
        }
        "find" | "fd" | "fdfind" => of_find(args),
        "printf" | "test" | "[" | "read" | "let" | "unset" | "wait" | "getopts" | "declare" | "typeset" | "local"
        | "readonly" => substitutions(args),
        "mapfile" | "readarray" | "compgen" | "complete" | "compopt" => {
            value_of(args, 'C').into_iter().chain(substitutions(args)).collect()
        }
        "alias" => aliased(args),
        "bind" => {
            args.iter().enumerate().map(|(at, arg)| CommandStart::Line { text: arg.clone(), at: at + 1 }).collect()
        }
        "jobs" => behind_option(args, "-x"),
        "hash" => of_hash(args),
        "history" => of_history(args),
        "command" if looks_up(args) => Vec::new(),
        // It takes a word apart as a shell does not.
        "env" if args.iter().any(splits_words) => any_word(args)
            .into_iter()
            .chain([CommandStart::Command { words: vec![KnownWord::anything()], at: 1 }])
            .collect(),
        "ssh" => starters::by_options(name, args),
        "xargs" => of_xargs(args),
        // Their line may be in the same word as the option.
        "su" | "runuser" | "capsh" => any_word(args).into_iter().chain(value_of(args, 'c')).collect(),
        "git" => starters::git(args),
        "gdb" => starters::gdb(args),
        "tmux" => starters::tmux(args),
        "screen" => starters::screen(args),
        "make" | "gmake" => starters::make(args),
        "parallel" | "sem" => starters::parallel(args),
        "lftp" => starters::lftp(args),
        "expect" => starters::expect(args),
        name if starts_some_word(name, args) => any_word(args),
        name if wrapper(name, args).is_none() => starters::by_options(name, args),
        name => wrapper(name, args).map_or_else(Vec::new, |(wrapper, from)| {
            let started = of_wrapper(&wrapper, args.get(from..).unwrap_or_default());
            started.into_iter().map(|start| moved(start, from)).collect()
        }),
    }
}

/// Starts of a command by the variables that it sets, or by the one that it is (`EDITOR=x`).
fn starts_by_variables(words: &[KnownWord]) -> Vec<CommandStart> {
    let alone = match words {
        [word] => assigned(&word.text).map(|(name, value)| Set::of(name, value, 0)),
        _ => None,
    };
    // Most commands set none: what they set is not looked for word by word.
    let may_set = match words.first().and_then(KnownWord::fixed) {
        Some("unset") => false,
        Some("read" | "mapfile" | "readarray" | "getopts" | "printf" | "wait") => true,
        Some(_) | None => words.iter().any(|word| word.text.contains('=')),
    };
    let set = alone.into_iter().chain(if may_set { sets(words) } else { Vec::new() });
    set.flat_map(|set| set.name.map_or_else(Vec::new, |name| starters::by_variable(&name, &set.value, set.at)))
        .collect()
}

/// `command -v x` and `command -V x` only say what x is, also behind `-p`.
fn looks_up(args: &[KnownWord]) -> bool {
    says_what_it_is(args.iter().map_while(KnownWord::fixed))
}

/// True if `command` with these arguments starts nothing.
pub(crate) fn says_what_it_is<'a>(args: impl IntoIterator<Item = &'a str>) -> bool {
    args.into_iter().take_while(|arg| arg.starts_with('-') && *arg != "--").any(|arg| arg.contains(['v', 'V']))
}

/// A variable that a command sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// Its name; `None` if it is not known.
    pub name: Option<String>,
    /// Its value; a [`HOLE`] for what is not known.
    pub value: String,
    /// Which word of the command says its name.
    pub at: usize,
}

/// The variables that a command itself sets, for the shell or for what it starts: `export X=y`, `env X=y …`, `read X`. What is
/// set by its options in ways that are not known here is not told: a builtin in such a use counts as evaluating.
pub(crate) fn sets(words: &[KnownWord]) -> Vec<Set> {
    let Some((first, _)) = words.split_first() else { return Vec::new() };
    let Some(name) = first.fixed().map(base) else { return Vec::new() };
    let numbered = || words.iter().enumerate().skip(1);
    let with_value =
        || numbered().filter_map(|(at, word)| assigned(&word.text).map(|(name, value)| Set::of(name, value, at)));
    let unknown = || numbered().filter(|(_, word)| may_assign(word)).map(|(at, _)| Set::anything(at));
    let names = || {
        let known =
            |(at, word): (usize, &KnownWord)| Some(Set::of(word.fixed().filter(|word| is_name(word))?, "\0", at));
        numbered().filter_map(known)
    };
    match name {
        "export" | "readonly" | "local" | "declare" | "typeset" => with_value().chain(unknown()).collect(),
        name if wrapper(name, &words[1..]).is_some_and(|(wrapper, _)| wrapper.assigns != Assignments::Nothing) => {
            let unset = numbered().filter_map(|(at, word)| {
                let name = word.text.strip_prefix("-u").or_else(|| word.text.strip_prefix("--unset="))?;
                let (name, at) = if name.is_empty() { (words.get(at + 1)?.fixed()?, at + 1) } else { (name, at) };
                is_name(name).then(|| Set::of(name, "", at))
            });
            // What stands behind the command's name is its own.
            let commands = starts(words).into_iter().filter_map(CommandStart::place);
            let end = commands.reduce(|one, other| if one == other { one } else { words.len() }).unwrap_or(words.len());
            let all = with_value().chain(unknown()).chain(unset.filter(|_| name == "env"));
            all.filter(|set| set.at < end).collect()
        }
        name if starts_some_word(name, &words[1..])
            || matches!(name, "prlimit" | "unshare" | "strace" | "direnv" | "gdb" | "tmux") =>
        {
            let option = |word: &str| word.strip_prefix('-').map(|word| word.trim_start_matches('-').to_owned());
            let behind = |word: &str| option(word)?.split_once('=').map(|(_, value)| value.to_owned());
            let of = |(at, word): (usize, &KnownWord)| {
                behind(&word.text).as_deref().and_then(assigned).map(|(name, value)| Set::of(name, value, at))
            };
            numbered().filter_map(of).chain(with_value()).collect()
        }
        // Of some of these words it is not certain that they name a variable, but then they name nothing else that matters.
        "read" | "mapfile" | "readarray" | "getopts" | "unset" => names().collect(),
        "printf" | "wait" => {
            let option = if name == "printf" { "-v" } else { "-p" };
            let of = |(at, word): (usize, &KnownWord)| {
                let name = word.text.strip_prefix(option)?;
                let (name, at) = if name.is_empty() { (words.get(at + 1)?.fixed()?, at + 1) } else { (name, at) };
                is_name(name).then(|| Set::of(name, "\0", at))
            };
            numbered().filter_map(of).collect()
        }
        _ => Vec::new(),
    }
}

impl CommandStart {
    /// True if both are the same command.
    fn is_same_command(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Command { words, .. }, Self::Command { words: others, .. }) => words == others,
            _ => false,
        }
    }

    /// This start, at another word.
    pub(super) fn placed(self, place: impl FnOnce(usize) -> usize) -> Self {
        match self {
            Self::Command { words, at } => Self::Command { words, at: place(at) },
            Self::Line { text, at } => Self::Line { text, at: place(at) },
            Self::Beginning { text, at } => Self::Beginning { text, at: place(at) },
            Self::File { file, at } => Self::File { file, at: place(at) },
        }
    }

    /// The line, if it is one, and at which word it begins.
    pub(super) fn into_line(self) -> Option<(KnownWord, usize)> {
        match self {
            Self::Line { text, at } => Some((text, at)),
            Self::Command { .. } | Self::Beginning { .. } | Self::File { .. } => None,
        }
    }

    /// Where a command stands.
    fn place(self) -> Option<usize> {
        match self {
            Self::Command { at, .. } => Some(at),
            Self::Line { .. } | Self::Beginning { .. } | Self::File { .. } => None,
        }
    }
}

impl Set {
    fn of(name: &str, value: &str, at: usize) -> Self {
        Self { name: Some(name.to_owned()), value: value.to_owned(), at }
    }

    fn anything(at: usize) -> Self {
        Self { name: None, value: HOLE.to_string(), at }
    }
}

/// True if a word is an assignment whose name is not known.
fn may_assign(word: &KnownWord) -> bool {
    word.several || word.text.split('=').next().is_some_and(|name| name.contains(HOLE))
}

/// How many words in front say that no options follow.
fn ends_options(args: &[KnownWord]) -> usize {
    usize::from(args.first().is_some_and(|arg| arg.fixed() == Some("--")))
}

/// `-S`, also among other letters, and each beginning of `--split-string`.
fn splits_words(arg: &KnownWord) -> bool {
    let long = arg.text.split('=').next().unwrap_or_default();
    let letters = arg.text.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
    letters.is_some_and(|letters| letters.contains('S')) || (long.len() > 2 && "--split-string".starts_with(long))
}

/// Commands in words that a builtin evaluates: the index in `printf -v 'a[$(x)]'`.
fn substitutions(args: &[KnownWord]) -> Vec<CommandStart> {
    let evaluated = args.iter().enumerate().filter(|(_, arg)| arg.text.contains("$(") || arg.text.contains('`'));
    evaluated.map(|(at, arg)| CommandStart::Line { text: arg.clone(), at: at + 1 }).collect()
}

/// The line that an option of one letter takes, in the same word or the next.
pub(super) fn value_of(args: &[KnownWord], letter: char) -> Vec<CommandStart> {
    let option = |arg: &KnownWord| {
        let letters = arg.text.strip_prefix('-').filter(|letters| !letters.starts_with('-'))?;
        letters.find(letter).map(|at| at + 1 + letter.len_utf8())
    };
    let with_value = args.iter().enumerate().filter_map(|(at, arg)| Some((at, arg, option(arg)?)));
    let line = |(at, arg, from): (usize, &KnownWord, usize)| match arg.text.get(from..) {
        Some("") | None => args.get(at + 1).map(|next| CommandStart::Line { text: next.clone(), at: at + 2 }),
        Some(rest) => {
            Some(CommandStart::Line { text: KnownWord { text: rest.to_owned(), several: arg.several }, at: at + 1 })
        }
    };
    with_value.filter_map(line).collect()
}

/// `alias name=line`: the words behind the name are put behind the line.
fn aliased(args: &[KnownWord]) -> Vec<CommandStart> {
    let value = |arg: &KnownWord| {
        arg.text.split_once('=').map(|(_, value)| KnownWord { text: value.to_owned(), several: arg.several })
    };
    let values = args.iter().enumerate().filter_map(|(at, arg)| Some((at, value(arg)?)));
    values.map(|(at, text)| CommandStart::Beginning { text, at: at + 1 }).collect()
}

/// `hash -p FILE name` gives a program another name.
fn of_hash(args: &[KnownWord]) -> Vec<CommandStart> {
    let named = |(text, at)| CommandStart::Command { words: vec![text, KnownWord::anything()], at };
    value_of(args, 'p').into_iter().filter_map(CommandStart::into_line).map(named).collect()
}

/// A command behind an option of a builtin.
fn behind_option(args: &[KnownWord], option: &str) -> Vec<CommandStart> {
    let at = args.iter().position(|arg| arg.fixed() == Some(option));
    at.map_or_else(Vec::new, |at| behind(args, at + 1))
}

/// `history -w FILE` and `-a FILE` write the file, as `> FILE` does.
fn of_history(args: &[KnownWord]) -> Vec<CommandStart> {
    let writes = |arg: &KnownWord| arg.text.starts_with(['-', HOLE]) && arg.text.contains(['w', 'a', HOLE]);
    let Some(at) = args.iter().position(writes) else { return Vec::new() };
    // Without a name it is that of a variable.
    let file = args.get(at + 1).cloned().unwrap_or_else(KnownWord::anything);
    vec![CommandStart::File { file, at: at + 1 }]
}

pub(super) fn joined(args: &[KnownWord], at: usize) -> Vec<CommandStart> {
    if args.is_empty() {
        return Vec::new();
    }
    let text = args.iter().map(|arg| arg.text.as_str()).collect::<Vec<_>>().join(" ");
    vec![CommandStart::Line { text: KnownWord { text, several: false }, at }]
}

/// The words behind `-c` that may be the line: the first that is no option, and one more for each value that an option may take.
fn lines_of_shell(args: &[KnownWord]) -> Vec<CommandStart> {
    // `-` and `--` end the options, as `+` may: what is behind them is the line, whatever it begins with.
    let ends = |at: usize| matches!(args[at].text.as_str(), "-" | "--" | "+");
    let option = |at: usize| {
        let is = args[at].text.starts_with(['-', '+', HOLE]) || args[at].several;
        is && (ends(at) || at == 0 || !ends(at - 1))
    };
    let is_c = |arg: &KnownWord| {
        arg.text.contains(HOLE) || arg.text == "--command" || (!arg.text.starts_with("--") && arg.text.contains('c'))
    };
    // `-oo` takes two words, `-rcfile` one.
    let values = |arg: &KnownWord| match arg.text.as_str() {
        text if text.contains(HOLE) => args.len(),
        "--rcfile" | "--init-file" => 1,
        text if text.starts_with("--") => 0,
        text => text.matches(['o', 'O']).count() + usize::from(text.ends_with("file")),
    };
    let (mut takes_line, mut most) = (false, 1_usize);
    let mut lines = Vec::new();
    for (at, arg) in args.iter().enumerate() {
        if takes_line && (!option(at) || arg.text.contains(HOLE)) {
            lines.push(CommandStart::Line { text: arg.clone(), at: at + 1 });
        }
        if option(at) {
            takes_line |= is_c(arg);
            most = most.saturating_add(values(arg));
        } else if most > 1 {
            most -= 1;
        } else {
            break;
        }
    }
    lines
}

/// Most commands that one `find` is seen to start: of more, one may be any.
const FIND_MAX: usize = 64;

/// `-exec … ;` and its kin. What is found stands in place of `{}`.
fn of_find(args: &[KnownWord]) -> Vec<CommandStart> {
    let execs = ["-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"];
    let is_exec = |arg: &KnownWord| arg.fixed().is_none_or(|arg| execs.contains(&arg));
    let begins = args.iter().enumerate().filter(|(at, arg)| is_exec(arg) && at + 1 < args.len());
    let root = found_below(args);
    // Each may have all words that follow.
    if begins.clone().nth(FIND_MAX).is_some() {
        return vec![CommandStart::Command { words: vec![KnownWord::anything()], at: 1 }];
    }
    begins
        .map(|(at, _)| {
            let of = &args[at + 1..];
            // A `+` behind another word than `{}` is an argument.
            let ends = |at: usize| match of[at].fixed() {
                Some(";") => true,
                Some("+") => at > 0 && of[at - 1].fixed() == Some("{}"),
                _ => false,
            };
            let end = (0..of.len()).find(|at| ends(*at)).unwrap_or(of.len());
            let root = if args[at].fixed() == Some("-exec") { root } else { "" };
            CommandStart::Command { words: of[..end].iter().map(|word| filled(word, "{}", root)).collect(), at: at + 2 }
        })
        .filter(|start| !matches!(start, CommandStart::Command { words, .. } if words.is_empty()))
        .collect()
}

/// Beginning of all that `find` finds: the one directory in which it looks, so that no name is an option. Nothing if it is not
/// known, or not the only one.
fn found_below(args: &[KnownWord]) -> &str {
    let begins_tests = |arg: &KnownWord| arg.several || arg.text.starts_with(['-', '(', '!', ',', ')', HOLE]);
    match (args.first(), args.get(1)) {
        (Some(first), Some(second)) if !begins_tests(first) && begins_tests(second) => {
            first.fixed().unwrap_or_default()
        }
        (Some(first), _) if first.text.starts_with('-') && first.text.len() > 2 => ".",
        _ => "",
    }
}

/// A word into which something is put that begins in a known way.
fn filled(word: &KnownWord, place: &str, begins: &str) -> KnownWord {
    match word.text.contains(place) && !place.is_empty() {
        true => KnownWord { text: word.text.replace(place, &format!("{begins}{HOLE}")), several: word.several },
        false => word.clone(),
    }
}

/// Its command gets what is read, in place of a word or behind the others.
fn of_xargs(args: &[KnownWord]) -> Vec<CommandStart> {
    let replaced = args.iter().enumerate().find_map(|(at, arg)| {
        let text = arg.fixed()?;
        let given = text.strip_prefix("--replace").map(|given| given.strip_prefix('=').unwrap_or(given));
        match text.strip_prefix("-I").or_else(|| text.strip_prefix("-i")).or(given) {
            Some("") if text == "-I" => args.get(at + 1).map(|next| next.text.clone()),
            Some("") => Some("{}".to_owned()),
            Some(given) => Some(given.to_owned()),
            None => None,
        }
    });
    let Some((wrapper, _)) = wrapper("xargs", args) else { return Vec::new() };
    let mut found = of_wrapper(&wrapper, args);
    for start in &mut found {
        if let CommandStart::Command { words, .. } = start {
            match &replaced {
                Some(place) => words.iter_mut().for_each(|word| *word = filled(word, place, "")),
                None => words.push(KnownWord::anything()),
            }
        }
    }
    found
}

/// Each word may be the command's name.
pub(super) fn any_word(args: &[KnownWord]) -> Vec<CommandStart> {
    if args.len() > WORDS_MAX {
        return vec![CommandStart::Command { words: vec![KnownWord::anything()], at: 1 }];
    }
    let line = args.iter().enumerate().flat_map(|(at, arg)| {
        let line = move |text: KnownWord| CommandStart::Line { text, at: at + 1 };
        let value = attached(arg).map(|value| KnownWord { text: value.to_owned(), several: arg.several });
        let whole = (!is_one_word(&arg.text)).then(|| arg.clone());
        value.into_iter().chain(whole).map(line)
    });
    let lines: Vec<CommandStart> = line.collect();
    let is_name = |arg: &KnownWord| !arg.text.starts_with('-') && !arg.text.is_empty();
    let commands = args.iter().enumerate().filter(|(_, arg)| is_name(arg));
    commands.map(|(at, _)| CommandStart::Command { words: args[at..].to_vec(), at: at + 1 }).chain(lines).collect()
}

/// True if a shell that is handed this as its line reads one word, and that as it is.
pub(super) fn is_one_word(text: &str) -> bool {
    !text.contains(|c: char| c.is_whitespace() || "|&;<>()$`\\\"'{".contains(c)) || text == "{}"
}

/// A line or a program in the same word as its option: `--command=LINE`, shortened as one likes.
fn attached(arg: &KnownWord) -> Option<&str> {
    let (name, value) = arg.text.strip_prefix("--")?.split_once('=')?;
    let takes = ["command", "session-command", "exec", "startas", "run"].iter().any(|long| long.starts_with(name));
    takes.then_some(value)
}

fn of_wrapper(wrapper: &Wrapper, args: &[KnownWord]) -> Vec<CommandStart> {
    let (mut at, mut own, mut rest) = (0, wrapper.own, wrapper.rest);
    let mut lines = Vec::new();
    let mut starts_nothing = false;
    while let Some(arg) = args.get(at) {
        if wrapper.assigns.have(arg) {
            at += 1;
            continue;
        }
        let Some(text) = arg.fixed() else {
            // It may be options, and so may be what is behind it; or it is the command.
            let is_word = !arg.several && !arg.text.starts_with(['-', HOLE]);
            return match (is_word, own) {
                (true, 0) => lines.into_iter().chain(of_rest(rest, args, at)).collect(),
                (true, _) => of_wrapper_behind(wrapper, args, at, own - 1),
                (false, _) => any_word(args),
            };
        };
        if text == "--" {
            at += 1;
            rest = if rest == WrappedRest::BehindDashes { WrappedRest::Command } else { rest };
            break;
        }
        if own == 0 && matches!(rest, WrappedRest::CommandOrLine | WrappedRest::LineBehindOption) && at > 0 {
            break;
        }
        match option(wrapper, text) {
            // `env -`
            Option_::None if wrapper.assigns != Assignments::Nothing && text == "-" => at += 1,
            Option_::Takes(words) => {
                starts_nothing |= chooses(wrapper, wrapper.nothing, text);
                if wrapper.line_if.chars().any(|letter| has_letter(text, letter)) {
                    rest = WrappedRest::Line;
                } else if chooses(wrapper, wrapper.command_if, text) {
                    rest = WrappedRest::Command;
                }
                at += words;
            }
            Option_::Line(words) => {
                lines.extend(line_of_option(wrapper, args, at));
                rest = if matches!(rest, WrappedRest::BehindDashes | WrappedRest::Lines) {
                    rest
                } else {
                    WrappedRest::Nothing
                };
                at += words;
            }
            Option_::Unknown => return any_word(args),
            Option_::None if wrapper.assigns.may_have(arg) => return any_word(args),
            // The word of its own may be left out.
            Option_::None if own > 0 && !(wrapper.is_own)(text) => return any_word(args),
            Option_::None if own > 0 => (own, at) = (own - 1, at + 1),
            // What is no command may have options behind it.
            Option_::None if matches!(rest, WrappedRest::Nothing | WrappedRest::BehindDashes) => at += 1,
            Option_::None => break,
        }
    }
    if starts_nothing {
        return lines;
    }
    // `env -- A=1 make`
    at += args.iter().skip(at).take_while(|arg| wrapper.assigns.have(arg)).count();
    lines.into_iter().chain(of_rest(rest, args, at + own)).collect()
}

/// The line that an option of a wrapper takes, in the same word or the next.
fn line_of_option(wrapper: &Wrapper, args: &[KnownWord], at: usize) -> Option<CommandStart> {
    let text = args.get(at)?.fixed()?;
    let attached = match text.strip_prefix("--") {
        Some(long) => long.split_once('=').map(|(_, line)| line),
        None => {
            let letter = text.find(|letter| wrapper.lines.0.contains(letter))?;
            text.get(letter + 1..).filter(|line| !line.is_empty())
        }
    };
    match attached {
        Some(line) => Some(CommandStart::Line { text: KnownWord::known(line), at: at + 1 }),
        None => Some(CommandStart::Line { text: args.get(at + 1)?.clone(), at: at + 2 }),
    }
}

/// Commands that a wrapper starts by the words behind its own.
fn of_rest(rest: WrappedRest, args: &[KnownWord], at: usize) -> Vec<CommandStart> {
    let words = args.get(at..).unwrap_or_default();
    let is_c = words.first().and_then(KnownWord::fixed).is_some_and(|word| matches!(word, "-c" | "--command"));
    match rest {
        WrappedRest::Command => behind(args, at),
        WrappedRest::Package => packaged(args, at),
        WrappedRest::Line => joined(words, at + 1),
        WrappedRest::Lines => {
            let line =
                |(behind, word): (usize, &KnownWord)| CommandStart::Line { text: word.clone(), at: at + behind + 1 };
            words.iter().enumerate().map(line).collect()
        }
        WrappedRest::CommandOrLine | WrappedRest::LineBehindOption if is_c => {
            words.get(1).map(|line| CommandStart::Line { text: line.clone(), at: at + 2 }).into_iter().collect()
        }
        // `-cLINE`, and what else is not known.
        WrappedRest::CommandOrLine | WrappedRest::LineBehindOption
            if words.first().is_some_and(|word| word.text.starts_with(['-', HOLE])) =>
        {
            any_word(args).into_iter().chain(value_of(args, 'c')).collect()
        }
        WrappedRest::CommandOrLine => behind(args, at),
        WrappedRest::LineBehindOption => {
            words.first().map(|line| CommandStart::Line { text: line.clone(), at: at + 1 }).into_iter().collect()
        }
        WrappedRest::BehindDashes => {
            let dashes = args.iter().position(|arg| arg.fixed() == Some("--"));
            dashes.map_or_else(Vec::new, |dashes| behind(args, dashes + 1))
        }
        WrappedRest::Nothing => Vec::new(),
    }
}

/// The command of a package, which goes by its name: `@scope/tool@1.2 x` is `tool x`.
fn packaged(args: &[KnownWord], at: usize) -> Vec<CommandStart> {
    let mut started = behind(args, at);
    for start in &mut started {
        if let CommandStart::Command { words, .. } = start
            && let Some(first) = words.first_mut()
            && let Some(name) = first.fixed().map(base)
        {
            *first = KnownWord::known(
                name.split_once('@').filter(|(name, _)| !name.is_empty()).map_or(name, |(name, _)| name),
            );
        }
    }
    started
}

fn of_wrapper_behind(wrapper: &Wrapper, args: &[KnownWord], at: usize, own: usize) -> Vec<CommandStart> {
    let rest = Wrapper { own, ..*wrapper };
    of_wrapper(&rest, &args[at + 1..]).into_iter().map(|start| moved(start, at + 1)).collect()
}

pub(super) fn moved(start: CommandStart, by: usize) -> CommandStart {
    start.placed(|at| at + by)
}

pub(super) fn behind(args: &[KnownWord], at: usize) -> Vec<CommandStart> {
    match args.get(at..) {
        None | Some([]) => Vec::new(),
        Some(words) => vec![CommandStart::Command { words: words.to_vec(), at: at + 1 }],
    }
}

/// Kind of a word among a wrapper's options.
enum Option_ {
    /// One, with so many words.
    Takes(usize),
    /// One whose value is a line, with so many words.
    Line(usize),
    /// One that is not known.
    Unknown,
    /// None.
    None,
}

/// True if an option is one of these letters or names.
fn chooses(wrapper: &Wrapper, (letters, long): (&str, &[&str]), text: &str) -> bool {
    match text.strip_prefix("--") {
        Some(name) => long.contains(&wrapper.full_name(name.split('=').next().unwrap_or(name))),
        None => letters.chars().any(|letter| has_letter(text, letter)),
    }
}

fn has_letter(text: &str, letter: char) -> bool {
    text.strip_prefix('-').is_some_and(|letters| !letters.starts_with('-') && letters.contains(letter))
}

fn option(wrapper: &Wrapper, text: &str) -> Option_ {
    if let Some(long) = text.strip_prefix("--") {
        let name = wrapper.full_name(long.split('=').next().unwrap_or(long));
        let (has_value, named) = (long.contains('='), |names: &[&str]| names.contains(&name));
        return if named(wrapper.lines.1) {
            Option_::Line(if has_value { 1 } else { 2 })
        } else if named(wrapper.long)
            || named(wrapper.nothing.1)
            || named(wrapper.command_if.1)
            || wrapper.is_one_word
            || (has_value && named(wrapper.long_valued))
        {
            Option_::Takes(1)
        } else if named(wrapper.long_valued) {
            Option_::Takes(2)
        } else {
            Option_::Unknown
        };
    }
    let Some(letters) = text.strip_prefix('-').filter(|letters| !letters.is_empty()) else { return Option_::None };
    if wrapper.is_one_word {
        return Option_::Takes(1);
    }
    // `nice -5`
    if letters.bytes().all(|byte| byte.is_ascii_digit()) && wrapper.valued.contains('n') {
        return Option_::Takes(1);
    }
    for (at, letter) in letters.char_indices() {
        let is_last = at + letter.len_utf8() == letters.len();
        if wrapper.lines.0.contains(letter) {
            return Option_::Line(if is_last { 2 } else { 1 });
        }
        if wrapper.valued.contains(letter) {
            return Option_::Takes(if is_last { 2 } else { 1 });
        }
        if wrapper.attached.contains(letter) {
            return Option_::Takes(1);
        }
        let is_flag = [wrapper.flags, wrapper.nothing.0, wrapper.line_if, wrapper.command_if.0];
        if !is_flag.iter().any(|flags| flags.contains(letter)) {
            return Option_::Unknown;
        }
    }
    Option_::Takes(1)
}

/// A command that another one starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// The commands in which it stands, outermost first, and how many words of each say what its name is.
    pub within: Vec<(Arc<[KnownWord]>, usize)>,
    /// True if one of them may start it in another directory than its own.
    pub moved: bool,
    /// As the line within a line says it, with the texts that it gives.
    pub inner: InnerCommand,
}

/// Kind of a part of a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum PartKind {
    /// A command runs.
    #[default]
    Runs,
    /// A variable is given a value.
    Sets {
        /// Its name, if that is known.
        name: Option<String>,
        /// True if that is for the line, and not for one command.
        alone: bool,
    },
    /// The shell opens a file for reading.
    Reads {
        /// The command that is given it; without words if none is.
        by: Arc<[KnownWord]>,
    },
    /// The shell opens a file for writing.
    Writes,
}

/// A part of a line within a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InnerCommand {
    /// Its kind.
    pub kind: PartKind,
    /// Its words; `NAME=value`, `<` and a file, or `>` and a file for what the shell itself does.
    pub words: Vec<KnownWord>,
    /// Texts that its line gives it.
    pub input: Input,
}

impl InnerCommand {
    /// A command that its line gives no text.
    #[must_use]
    pub fn of(words: Vec<KnownWord>) -> Self {
        Self { words, ..Self::default() }
    }

    /// A file that the shell opens for a command to read.
    #[must_use]
    pub fn reads(file: KnownWord, by: Arc<[KnownWord]>) -> Self {
        Self { kind: PartKind::Reads { by }, ..Self::of(vec![KnownWord::known("<"), file]) }
    }

    /// A file that the shell opens for writing.
    #[must_use]
    pub fn writes(file: KnownWord) -> Self {
        Self { kind: PartKind::Writes, ..Self::of(vec![KnownWord::known(">"), file]) }
    }

    /// A variable that is given a value; `word` is both.
    #[must_use]
    pub fn sets(name: &str, word: KnownWord, alone: bool) -> Self {
        Self { kind: PartKind::Sets { name: Some(name.to_owned()), alone }, ..Self::of(vec![word]) }
    }
}

/// The shell that reads a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineReader {
    /// bash, as the grammar knows it.
    Bash,
    /// A shell that reads [portable](super::plain::is_portable) lines as bash does.
    Posix,
    /// One that reads [plain](super::plain::is_plain) lines as bash does.
    Other,
}

/// Most words of all commands that the commands of one line are seen to start.
const BUDGET: usize = 1 << 17;

/// Words of started commands that may still be looked at, for all commands of a line together.
#[derive(Debug)]
pub struct StartBudget(Cell<usize>);

impl Default for StartBudget {
    fn default() -> Self {
        Self(Cell::new(BUDGET))
    }
}

impl StartBudget {
    /// Takes the words of these from it; false if it does not have so many.
    fn pays(&self, starts: &[CommandStart]) -> bool {
        let words = |start: &CommandStart| match start {
            CommandStart::Command { words, .. } => words.len(),
            CommandStart::Line { .. } | CommandStart::Beginning { .. } | CommandStart::File { .. } => 1,
        };
        let left = self.0.get().checked_sub(starts.iter().map(words).sum());
        self.0.set(left.unwrap_or(0));
        left.is_some_and(|left| left > 0)
    }
}

/// All that a command starts, however deep, also by its input. Lines are taken apart by `cut`. Of more than `most` commands, and
/// of those for which the budget of their line does not do, one is anything at all.
pub fn all(
    (words, input): (&[KnownWord], &Input),
    (most, budget): (usize, &StartBudget),
    cut: &dyn Fn(&str, LineReader) -> Vec<InnerCommand>,
) -> Vec<Started> {
    let mut search = StartSearch { most, budget, cut, found: Vec::new() };
    search.below((words, input), &[], StartPlace { along: 0, moved: false, reader: LineReader::Bash, beside: &[] });
    search.found
}

struct StartSearch<'a> {
    most: usize,
    budget: &'a StartBudget,
    cut: &'a dyn Fn(&str, LineReader) -> Vec<InnerCommand>,
    found: Vec<Started>,
}

/// Facts about the command whose starts are looked for.
#[derive(Clone, Copy)]
struct StartPlace<'a> {
    /// How many of the commands that it stands in have it among their own words.
    along: usize,
    /// One of them may have chosen another directory.
    moved: bool,
    /// The shell that runs it.
    reader: LineReader,
    /// Commands that the same words have been seen to start already: where each word may be a name, all that wrappers among
    /// them start.
    beside: &'a [CommandStart],
}

impl StartSearch<'_> {
    /// Collects what `words` start, which stand in `within`.
    fn below(
        &mut self,
        (words, input): (&[KnownWord], &Input),
        within: &[(Arc<[KnownWord]>, usize)],
        place: StartPlace<'_>,
    ) {
        let StartPlace { along, moved, reader, beside } = place;
        if self.budget.0.get() == 0 {
            return self.give_up();
        }
        let mut direct = starts(words);
        if !self.budget.pays(&direct) {
            return self.give_up();
        }
        direct.retain(|start| !beside.iter().any(|other| other.is_same_command(start)));
        // A pattern about the command never names what is in its input.
        let read = input.lines(words).into_iter().map(|text| CommandStart::Line { text, at: words.len() });
        direct.extend(read);
        let shared: Arc<[KnownWord]> = words.into();
        let beside = if beside.is_empty() { direct.clone() } else { beside.to_vec() };
        // Programs hand such a line to `sh`, whichever shell has set the variable.
        let by_variables = starts_by_variables(words).into_iter().map(|start| (start, LineReader::Posix));
        let by_words = direct.into_iter().map(|start| (start, line_reader(words, reader)));
        for (start, line_reader) in by_words.chain(by_variables) {
            let same_words = matches!(start, CommandStart::Command { .. });
            let (inner, at, along_inner, reader) = match start {
                CommandStart::Command { words, at } => {
                    (vec![InnerCommand { input: input.clone(), ..InnerCommand::of(words) }], at, along + 1, reader)
                }
                CommandStart::File { file, at } => (vec![InnerCommand::writes(file)], at, along + 1, reader),
                CommandStart::Line { text, at } => (self.line(&text, line_reader), at, 0, line_reader),
                CommandStart::Beginning { text, at } => (self.beginning(&text, line_reader), at, 0, line_reader),
            };
            let moved = moved || moves(words, at);
            let mut around = within.to_vec();
            let linked = around.len().saturating_sub(along);
            around[linked..].iter_mut().for_each(|(_, known)| *known += at);
            around.push((Arc::clone(&shared), at + 1));
            for inner in inner {
                if self.found.len() >= self.most || around.len() > DEPTH_MAX {
                    return self.give_up();
                }
                self.found.push(Started { inner: inner.clone(), within: around.clone(), moved });
                let InnerCommand { kind, words, input } = inner;
                // A variable's value may start something too.
                if matches!(kind, PartKind::Reads { .. } | PartKind::Writes) {
                    continue;
                }
                let beside = if same_words { &beside[..] } else { &[] };
                self.below((&words, &input), &around, StartPlace { along: along_inner, moved, reader, beside });
            }
        }
    }

    /// From here on one command may be any.
    fn give_up(&mut self) {
        let inner = InnerCommand::of(vec![KnownWord::anything()]);
        self.found.push(Started { inner, within: Vec::new(), moved: true });
    }

    /// The commands of a line behind which other words follow.
    fn beginning(&self, text: &KnownWord, reader: LineReader) -> Vec<InnerCommand> {
        let mut commands = self.line(text, reader);
        // What follows may be a command of its own.
        let is_open = text.text.trim_end().ends_with([';', '|', '&', '(', '{', '!']);
        for command in commands.iter_mut().filter(|command| command.kind == PartKind::Runs) {
            command.words.push(KnownWord::anything());
        }
        let anything = (commands.is_empty() || is_open).then(|| InnerCommand::of(vec![KnownWord::anything()]));
        commands.into_iter().chain(anything).collect()
    }

    /// The commands of a line.
    fn line(&self, text: &KnownWord, reader: LineReader) -> Vec<InnerCommand> {
        if text.text.contains(HOLE) {
            // Anything may be put there.
            let mut commands = (self.cut)(&text.text.replace(HOLE, "$x"), LineReader::Other);
            commands.push(InnerCommand::of(vec![KnownWord::anything()]));
            return commands;
        }
        (self.cut)(&text.text, reader)
    }
}

/// The lines that a command hands to shells, with the shell that reads them, if it does nothing else: `bash -c LINE`, `eval LINE`.
/// `runs` is the shell that runs the command.
#[must_use]
pub fn handed_on(words: &[KnownWord], runs: LineReader) -> Option<(Vec<String>, LineReader)> {
    let (first, args) = words.split_first()?;
    let name = first.fixed()?;
    let program = ["/bin/", "/usr/bin/"].iter().find_map(|directory| name.strip_prefix(directory)).unwrap_or(name);
    let hands_on = match program {
        "bash" | "sh" | "dash" => {
            let flags = args.first().and_then(KnownWord::fixed).and_then(|flags| flags.strip_prefix('-'));
            flags.is_some_and(|flags| flags.contains('c') && flags.bytes().all(|flag| b"ceux".contains(&flag)))
        }
        "eval" => name == program,
        _ => false,
    };
    let text = |start: CommandStart| start.into_line().and_then(|(text, _)| text.fixed().map(str::to_owned));
    let texts: Option<Vec<String>> = starts(words).into_iter().map(text).collect();
    texts.filter(|texts| hands_on && !texts.is_empty()).map(|texts| (texts, line_reader(words, runs)))
}

/// The shell that reads a line which a command hands on. `runs` is the one that runs the command.
fn line_reader(words: &[KnownWord], runs: LineReader) -> LineReader {
    let Some((name, args)) = words.split_first() else { return LineReader::Other };
    match name.fixed().map(base) {
        Some("bash" | "rbash") if keeps_syntax(args) => LineReader::Bash,
        Some("bash" | "rbash") => LineReader::Other,
        Some(
            "eval" | "trap" | "." | "source" | "alias" | "printf" | "test" | "[" | "read" | "let" | "unset" | "wait"
            | "getopts" | "declare" | "typeset" | "local" | "readonly" | "mapfile" | "readarray" | "compgen"
            | "complete" | "compopt" | "bind",
        ) => runs,
        Some("sh" | "dash" | "ash") => LineReader::Posix,
        Some(name) if is_shell(name) => LineReader::Other,
        None => LineReader::Other,
        // They hand it to `sh`.
        Some(_) => LineReader::Posix,
    }
}

/// True if no option of bash makes it read a line in another way.
fn keeps_syntax(args: &[KnownWord]) -> bool {
    let plain = |text: &str| match text.strip_prefix("--") {
        Some(long) => matches!(long, "" | "login" | "norc" | "noprofile"),
        None => {
            text.strip_prefix('-').is_some_and(|letters| letters.bytes().all(|letter| b"ceilnrsuvxf".contains(&letter)))
        }
    };
    let mut args = args.iter().take_while(|arg| arg.text.starts_with(['-', '+', HOLE])).peekable();
    args.all(|arg| arg.fixed().is_some_and(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<KnownWord> {
        line.split(' ').map(|word| KnownWord::known(word.replace('_', " ").replace('$', "\0"))).collect()
    }

    fn found(line: &str) -> Vec<String> {
        let cut = |line: &str, _| line.split(';').map(|command| InnerCommand::of(words(command.trim()))).collect();
        let shown =
            |words: &[KnownWord]| words.iter().map(|word| word.text.replace(HOLE, "$")).collect::<Vec<_>>().join(" ");
        all((&words(line), &Input::default()), (100, &StartBudget::default()), &cut)
            .iter()
            .map(|started| shown(&started.inner.words))
            .collect()
    }

    #[test]
    fn what_wrappers_start_is_found() {
        for (line, wanted) in [
            ("touch x", &[][..]),
            ("time touch x", &["touch x"]),
            ("time -p touch x", &["touch x"]),
            ("env -u A B=1 /usr/bin/nice -n 5 touch x", &["/usr/bin/nice -n 5 touch x", "touch x"]),
            ("nice -5 touch x", &["touch x"]),
            ("timeout -k 5 10 touch x", &["touch x"]),
            ("timeout --signal=KILL 10 touch x", &["touch x"]),
            ("timeout $ touch x", &["$ touch x", "touch x", "x"]),
            ("exec -a other touch x", &["touch x"]),
            ("command -v touch", &[]),
            ("command touch", &["touch"]),
            ("xargs -n1 touch", &["touch $"]),
            ("xargs -I % touch a%", &["touch a$"]),
            ("xargs --replace touch a{}", &["touch a$"]),
            ("xargs --replace=% touch a%", &["touch a$"]),
            ("xargs --max-lines touch a", &["touch a $"]),
            ("find . -name x -exec touch {} ; -exec rm {} +", &["touch .$", "rm .$"]),
            ("find . -exec env -u + touch {} ;", &["env -u + touch .$", "touch .$"]),
            ("find -name x -exec touch {} ;", &["touch .$"]),
            ("find $ -exec touch {} ;", &["-exec touch $", "touch $"]),
            ("find a b -exec touch {} ;", &["touch $"]),
            ("find . -execdir touch {} ;", &["touch $"]),
            ("sh -ec touch_x;ls", &["touch x", "ls"]),
            ("sh -c - touch_x", &["touch x"]),
            ("sh -c + touch_x", &["touch x"]),
            ("sh -c -- -;touch_x", &["-", "touch x"]),
            ("bash -coO pipefail extglob touch_x", &["pipefail", "extglob", "touch x"]),
            ("bash --rcfile x -c touch_x", &["touch x"]),
            ("bash -rcfile x -c touch_x", &["x", "touch x"]),
            ("bash -posix -c touch_x", &["touch x"]),
            ("bash x -c touch_x", &[]),
            ("bash $ touch_x", &["touch x"]),
            ("fish --command=touch_x", &["$"]),
            ("watch touch>x", &["touch>x"]),
            ("bash -o pipefail -c touch_x", &["touch x"]),
            ("sudo -u me env touch x", &["env touch x", "touch x"]),
            ("env -Z touch x", &["touch x", "x"]),
            ("eval touch x", &["touch x"]),
            ("busybox touch x", &["touch x"]),
            ("setsid sh -c sh_-c_ls", &["sh -c sh_-c_ls", "sh -c ls", "ls"]),
            ("strace -f touch x", &["touch x"]),
            ("env A=$ touch x", &["touch x"]),
            ("env - touch x", &["touch x"]),
            ("env -i - touch x", &["touch x"]),
            ("env -Stouch_x", &["-Stouch x", "$"]),
            ("env -vS touch_x", &["touch x", "touch x", "$"]),
            ("env --split-string=touch_x", &["--split-string=touch x", "$"]),
            ("eval -- touch x", &["touch x"]),
            ("trap touch_x EXIT", &["touch x"]),
            ("trap -- touch_x EXIT", &["touch x"]),
            ("i386 touch x", &["touch x"]),
            ("script -qctouch_x out", &["touch x"]),
            ("script --command=touch_x out", &["touch x"]),
            ("flock lock -c touch_x", &["touch x"]),
            ("flock lock make", &["make"]),
            ("flock -w 5 lock make x", &["make x"]),
            ("flock 9", &[]),
            ("taskset 1 make", &["make"]),
            ("taskset -p 1 99", &[]),
            ("chrt -f 10 make", &["make"]),
            ("chrt -b make x", &["make x", "x"]),
            ("strace -o f -e trace=file make", &["make"]),
            ("perf stat -e x make", &["make"]),
            ("perf report", &[]),
            ("perf record -g -- make", &["make"]),
            ("logsave -a f make", &["make"]),
            ("setarch i686 -R make", &["make"]),
            ("setarch make x", &["make x", "x"]),
            ("sg g -c make_x", &["make x"]),
            ("sg g make_x", &["make x"]),
            ("script -c make_x f", &["make x"]),
            ("script f", &[]),
            ("script -q f -- make x", &["make x"]),
            ("watch -n 5 make x", &["make x"]),
            ("watch -x make x", &["make x"]),
            ("gdb p core", &[]),
            ("gdb -ex !touch_x p", &["touch x"]),
            ("gdb -batch -ex shell_touch_x", &["touch x"]),
            ("gdb -ex run touch", &["run touch", "touch"]),
            ("gdb -ex bt p", &[]),
            ("gdb -ex python_x p", &["$"]),
            ("gdb --args touch x", &["touch x"]),
            ("tmux ls", &[]),
            (
                "tmux send-keys touch_x Enter",
                &["touch x", "Enter", "touch x Enter", "touch_x Enter", "Enter", "touch x"],
            ),
            ("screen -ls", &[]),
            ("/lib64/ld-linux-x86-64.so.2 --library-path l /bin/touch x", &["/bin/touch x"]),
            ("ld-musl-x86_64.so.1 /bin/touch x", &["/bin/touch x"]),
            ("npx -y touch@1 x", &["touch x"]),
            ("npx @scope/touch x", &["touch x"]),
            ("npx -c touch_x", &["touch x"]),
            ("npm exec -c touch_x", &["touch x"]),
            ("npm --prefix p exe -- touch x", &["touch x"]),
            ("npm install touch", &[]),
            ("pnpm dlx touch x", &["touch x"]),
            ("uv run --with y touch x", &["touch x"]),
            ("uv tool run touch x", &["touch x"]),
            ("uv --directory d run touch", &["touch"]),
            ("poetry run touch x", &["touch x"]),
            ("bundle exec touch x", &["touch x"]),
            ("rustup run nightly touch x", &["touch x"]),
            ("direnv exec . touch x", &["touch x"]),
            ("mise exec node@20 -- touch x", &["touch x"]),
            ("nix-shell -p y --run touch_x", &["touch x"]),
            ("git -c alias.x=!touch_x x", &["touch x $"]),
            ("git -c alias.x=push x", &["git push $"]),
            ("git -c core.pager=touch_x log", &["touch x"]),
            ("git -c a.b=c log", &[]),
            ("git rebase -x touch_x main", &["touch x"]),
            ("git bisect run touch x", &["touch x"]),
            ("git submodule foreach --recursive touch x", &["touch x"]),
            ("git config alias.p push", &["git push $"]),
            ("git clone ext::touch_x", &["touch x"]),
            ("git fetch --upload-pack=touch_x", &["touch x"]),
            ("git log -x", &[]),
            ("expect -c touch_x", &["$"]),
            ("expect f", &[]),
            ("lftp -c open_x;!touch_x", &["touch x", "$"]),
            ("lftp -c mirror_x", &[]),
            ("nu -c touch_x", &["touch x", "$"]),
            ("cpulimit -l 50 -- touch x", &["touch x"]),
            ("setlock -n f touch x", &["touch x"]),
            ("envdir d touch x", &["touch x"]),
            ("dumb-init -v touch x", &["touch x"]),
            ("tini -g -- touch x", &["touch x"]),
            ("ionice -c 3 touch x", &["touch x"]),
            ("ionice -p 7", &[]),
            ("prlimit --nofile=5 touch x", &["touch x"]),
            ("prlimit -p 7 --nofile=5", &[]),
            ("unshare -rm --wd d touch x", &["touch x"]),
            ("nsenter -t 7 -a touch x", &["touch x"]),
            ("chroot r touch x", &["touch x"]),
            ("parallel touch ::: a b", &["touch $"]),
            ("parallel -j 4 touch {.} ::: a", &["touch $"]),
            ("parallel touch_{};_ls ::: a", &["touch $x", "ls", "$"]),
            ("parallel -j4", &["$"]),
            ("entr -r touch x", &["touch x"]),
            ("entr -s touch_x", &["touch x"]),
            ("make SHELL=/bin/touch x", &["/bin/touch"]),
            ("make x", &[]),
            ("valgrind --log-file=x touch y", &["touch y"]),
            ("printf %s a[$(touch_x)]", &[]),
            ("let i++", &[]),
            ("mapfile -C touch_x -c 1 a", &["touch x"]),
            ("mapfile -tCtouch_x a", &["touch x"]),
            ("compgen -C touch_x", &["touch x"]),
            ("complete -C touch_x y", &["touch x"]),
            ("alias ls=touch_x", &["touch x $"]),
            ("jobs -x touch x", &["touch x"]),
            ("hash -p ./touch ls", &["./touch $"]),
            ("timeout --pres 5 touch x", &["touch x"]),
            ("timeout --sig KILL 10 touch x", &["touch x"]),
            ("env -Z git -c alias.x=push x", &["git -c alias.x=push x", "git push $", "alias.x=push x", "x"]),
            ("history 5", &[]),
            ("history -w out", &["> out"]),
            ("history -a", &["> $"]),
            ("strace -f env -Stouch_x", &["env -Stouch x", "-Stouch x", "$"]),
        ] {
            let wanted: Vec<String> = wanted.iter().map(|text| text.replace('_', " ")).collect();
            assert_eq!(found(line), wanted, "{line}");
        }
    }

    /// An index that is evaluated holds commands.
    #[test]
    fn what_builtins_evaluate_is_found() {
        let started = |words: &[&str]| {
            let words: Vec<KnownWord> = words.iter().copied().map(KnownWord::known).collect();
            starts(&words)
        };
        let line = |text: &str, at| vec![CommandStart::Line { text: KnownWord::known(text), at }];
        for name in ["test", "[", "read", "let", "unset", "wait", "declare", "typeset", "local", "readonly"] {
            assert_eq!(started(&[name, "-v", "a[$(touch x)]"]), line("a[$(touch x)]", 2), "{name}");
        }
        assert_eq!(started(&["printf", "-v", "a[`touch x`]", "y"]), line("a[`touch x`]", 2));
        assert_eq!(started(&["compgen", "-W", "$(touch x)"]), line("$(touch x)", 2));
        assert!(matches!(&*started(&["x86_64", "touch"]), [CommandStart::Command { at: 1, .. }]));
        assert_eq!(started(&["bind", "-x", "\"x\": touch y"]).len(), 2);
    }

    /// A command may set variables for the shell, or for what it starts.
    #[test]
    fn what_commands_set_is_found() {
        let found = |line: &str| -> Vec<String> {
            let shown = |set: Set| format!("{}={}", set.name.as_deref().unwrap_or("?"), set.value.replace(HOLE, "$"));
            sets(&words(line)).into_iter().map(shown).collect()
        };
        for (line, wanted) in [
            ("export X=1 Y PATH+=:.", &["X=1", "PATH=:."][..]),
            ("export $", &["?=$"]),
            ("declare -x $=1", &["?=$"]),
            ("readonly X=$", &["X=$"]),
            ("typeset PATH=.", &["PATH=."]),
            ("local PATH=.", &["PATH=."]),
            ("env -i PATH=. -u IFS --unset=HOME ls Y=1", &["PATH=.", "IFS=", "HOME="]),
            ("/usr/bin/env PATH=. ls", &["PATH=."]),
            ("sudo -u me PATH=. ls", &["PATH=."]),
            ("systemd-run --setenv=PATH=. -EIFS=x ls", &["PATH=."]),
            ("read -r PATH line", &["PATH=$", "line=$"]),
            ("mapfile -t PATH", &["PATH=$"]),
            ("getopts ab PATH", &["ab=$", "PATH=$"]),
            ("unset PATH", &["PATH=$"]),
            ("printf -v PATH %s .", &["PATH=$"]),
            ("printf -vPATH .", &["PATH=$"]),
            ("wait -n -p PATH", &["PATH=$"]),
            ("printf %s PATH=.", &[]),
            ("make PATH=.", &[]),
        ] {
            assert_eq!(found(line), wanted, "{line}");
        }
    }

    /// A word that bash's grammar did not read is not taken as it is where bash may make another of it.
    #[test]
    fn globs_and_braces_are_not_known() {
        for (word, known) in [
            ("r[m]", "r"),
            ("/bin/r?", "/bin/r"),
            ("r{m,}", "r"),
            ("{a..b}", ""),
            ("*", ""),
            ("~/rm", ""),
            ("a$b", "a"),
            ("a`b`", "a"),
        ] {
            let text = KnownWord { text: format!("{known}{HOLE}"), several: true };
            assert_eq!(KnownWord::unparsed(word), text, "{word}");
        }
        for word in ["a-b]}~", "[", "[[", "{}", "a{b}", "-I{}"] {
            assert_eq!(KnownWord::unparsed(word).fixed(), Some(word));
        }
    }

    /// How much of an outer command tells the name of an inner one.
    #[test]
    fn a_name_is_known_by_what_stands_before_it() {
        let started =
            all((&words("time env A=1 touch x"), &Input::default()), (100, &StartBudget::default()), &|_, _| {
                Vec::new()
            });
        let known: Vec<Vec<usize>> =
            started.iter().map(|one| one.within.iter().map(|(_, known)| *known).collect()).collect();
        assert_eq!(known, [vec![2], vec![4, 3]]);
    }

    /// Whatever the nesting, it ends, and says that there may be more.
    #[test]
    fn it_is_bounded() {
        let deep = vec!["env"; 10_000].join(" ");
        assert!(found(&deep).len() < 100);
        assert_eq!(found(&deep).last().map(String::as_str), Some("$"));
        let odd = vec!["env -Z"; 150].join(" ");
        assert_eq!(found(&odd).last().map(String::as_str), Some("$"));
        let finds = |times: usize| found(&format!("find . {}", "-exec a ; ".repeat(times)));
        assert_eq!((finds(FIND_MAX).len(), finds(FIND_MAX + 1)), (FIND_MAX, vec!["$".to_owned()]));
    }
}
