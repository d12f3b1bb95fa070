//! Commands whose arguments are a language of their own.

use super::arguments::Args;
use super::variables::is_own;
use crate::shell::{Piece, Word};

type ScriptJudgement = Result<(), String>;

/// The predicates of find(1) that only look.
const FIND: &[&str] = &[
    "-name",
    "-iname",
    "-path",
    "-ipath",
    "-wholename",
    "-iwholename",
    "-regex",
    "-iregex",
    "-regextype",
    "-type",
    "-xtype",
    "-maxdepth",
    "-mindepth",
    "-size",
    "-mtime",
    "-mmin",
    "-atime",
    "-amin",
    "-ctime",
    "-cmin",
    "-newer",
    "-anewer",
    "-cnewer",
    "-newermt",
    "-newerct",
    "-perm",
    "-user",
    "-group",
    "-uid",
    "-gid",
    "-nouser",
    "-nogroup",
    "-empty",
    "-not",
    "-a",
    "-and",
    "-o",
    "-or",
    "-print",
    "-print0",
    "-printf",
    "-ls",
    "-prune",
    "-quit",
    "-follow",
    "-L",
    "-H",
    "-P",
    "-xdev",
    "-mount",
    "-depth",
    "-readable",
    "-writable",
    "-executable",
    "-links",
    "-inum",
    "-samefile",
    "-true",
    "-false",
    "-daystart",
    "-lname",
    "-ilname",
    "-fstype",
    "-used",
];

pub(super) fn find(args: &[Word]) -> ScriptJudgement {
    args.iter().try_for_each(|word| match word.text() {
        Some(text)
            if !text.starts_with('-') || FIND.contains(&text) || text[1..].bytes().all(|b| b.is_ascii_digit()) =>
        {
            Ok(())
        }
        Some(text) => Err(format!("{text} may do more than look")),
        None if word.may_be_option() => Err(format!("`{}` may turn out to be an action", word.shown())),
        None => Ok(()),
    })
}

/// sed's script must be known, and hold none of `e`, `w`, `W`, `r` with a computed name.
pub(super) fn sed(args: &Args<'_>) -> ScriptJudgement {
    let mut scripts: Vec<&Word> = args
        .options
        .iter()
        .filter(|(name, _)| matches!(name.as_str(), "e" | "expression"))
        .filter_map(|(_, value)| value.as_ref())
        .collect();
    if scripts.is_empty() {
        scripts.extend(args.operands.first().copied());
    }
    scripts.into_iter().try_for_each(|script| {
        let text = script.text().ok_or("its script will only be known when it runs")?;
        sed_script(text.as_bytes())
            .ok_or_else(|| "its script may write or run something, or is not understood".to_owned())
    })
}

/// Addresses and commands; `None` for whatever is not one that only prints and changes what is printed.
fn sed_script(mut rest: &[u8]) -> Option<()> {
    loop {
        rest = skip(rest, b" \t\n;{}!");
        let Some((&first, behind)) = rest.split_first() else { return Some(()) };
        rest = match first {
            b'0'..=b'9' | b'$' | b',' | b'~' | b'+' => behind,
            b'/' => delimited(behind, b'/')?,
            b'\\' => {
                let (&delimiter, behind) = behind.split_first()?;
                delimited(behind, delimiter)?
            }
            // After a regular expression's address.
            b'I' | b'M' => behind,
            b'p' | b'd' | b'D' | b'P' | b'n' | b'N' | b'h' | b'H' | b'g' | b'G' | b'x' | b'=' | b'l' | b'z' => behind,
            b'q' | b'Q' => skip(behind, b" 0123456789"),
            b's' => {
                let (&delimiter, behind) = behind.split_first()?;
                if delimiter == b'\n' || delimiter == b'\\' {
                    return None;
                }
                let flags = delimited(delimited(behind, delimiter)?, delimiter)?;
                // `e` runs the result and `w` writes it.
                skip(flags, b"gpiIm0123456789")
            }
            b'y' => {
                let (&delimiter, behind) = behind.split_first()?;
                delimited(delimited(behind, delimiter)?, delimiter)?
            }
            b'#' => return if behind.contains(&b'\n') { None } else { Some(()) },
            _ => return None,
        };
        // What follows a command, if it does not go on with an address, is an end.
        if !rest.is_empty() && matches!(first, b's' | b'y' | b'p' | b'd' | b'q') && !b" \t\n;}".contains(&rest[0]) {
            return None;
        }
    }
}

fn skip<'a>(text: &'a [u8], what: &[u8]) -> &'a [u8] {
    &text[text.iter().take_while(|byte| what.contains(byte)).count()..]
}

/// Text behind the next delimiter that has no backslash before it. In brackets the delimiter is text for some seds and
/// not for others: not understood.
fn delimited(text: &[u8], delimiter: u8) -> Option<&[u8]> {
    let mut at = 0;
    let mut bracket = false;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'\\' => at += 1,
            b'\n' => return None,
            _ if byte == delimiter => return if bracket { None } else { Some(&text[at + 1..]) },
            b'[' if !bracket => {
                bracket = true;
                // A bracket that comes first is one of the characters.
                let negated = usize::from(text.get(at + 1) == Some(&b'^'));
                at += negated + usize::from(text.get(at + 1 + negated) == Some(&b']'));
            }
            b']' => bracket = false,
            _ => {}
        }
        at += 1;
    }
    None
}

pub(super) fn awk(args: &[Word]) -> ScriptJudgement {
    let mut rest = args.iter();
    let mut program = None;
    while let Some(word) = rest.next() {
        match word.text() {
            Some("--") => {
                program = rest.next();
                break;
            }
            Some("-F" | "-v") => {
                if rest.next().is_some_and(Word::may_split) {
                    return Err("the value of an option may become several words; put it in double quotes".to_owned());
                }
            }
            _ if word.known_start().starts_with("-F") || word.known_start().starts_with("-v") => {
                if word.may_split() {
                    return Err("the value of an option may become several words; put it in double quotes".to_owned());
                }
            }
            Some(text) if text.starts_with('-') => return Err(format!("its option {text} may do more than read")),
            _ => {
                program = Some(word);
                break;
            }
        }
    }
    let text = program.and_then(Word::text).ok_or("its program will only be known when it runs")?;
    // POSIX stops at the first operand; an awk that does not would take these for options.
    if rest.any(Word::may_be_option) {
        return Err("an option behind its program".to_owned());
    }
    awk_program(text)
}

/// Result of one reading of a program.
enum ScriptReading {
    /// It only prints.
    Prints,
    /// No awk reads it so: a string or a regular expression has no end.
    Broken,
    /// The program does harm, and why.
    Harms(String),
}

/// A program must do no harm however its slashes are read: what one awk takes for a division begins a regular expression for
/// another, and in that a quote is no quote.
fn awk_program(text: &str) -> ScriptJudgement {
    let mut reader = AwkReader { text, bytes: text.as_bytes(), left: SLASHES };
    match reader.read(0, Slash::Regex) {
        ScriptReading::Prints => Ok(()),
        ScriptReading::Broken => Err("its program is not understood".to_owned()),
        ScriptReading::Harms(why) => Err(why),
    }
}

/// Most slashes of two meanings that are followed both ways, all readings together.
const SLASHES: u32 = 64;

struct AwkReader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    left: u32,
}

/// Meaning of a slash behind what was read last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slash {
    Regex,
    Division,
    Either,
}

impl AwkReader<'_> {
    fn end_of(&self, mut at: usize, quote: u8) -> Option<usize> {
        loop {
            match self.bytes.get(at)? {
                b'\n' => return None,
                b'\\' => at += 2,
                byte if *byte == quote => return Some(at + 1),
                _ => at += 1,
            }
        }
    }

    /// From here on, where a slash would be this.
    fn read(&mut self, mut at: usize, mut slash: Slash) -> ScriptReading {
        let harms = |why: &str| ScriptReading::Harms(why.to_owned());
        while let Some(&byte) = self.bytes.get(at) {
            match byte {
                b'"' => {
                    let Some(end) = self.end_of(at + 1, b'"') else { return ScriptReading::Broken };
                    (at, slash) = (end, Slash::Division);
                    continue;
                }
                b'/' if slash == Slash::Either => {
                    let Some(left) = self.left.checked_sub(1) else { return harms("its program is not understood") };
                    self.left = left;
                    // As a division here, as a regular expression below.
                    let divided = self.read(at + 1, Slash::Regex);
                    if let ScriptReading::Harms(why) = divided {
                        return ScriptReading::Harms(why);
                    }
                    let broken = matches!(divided, ScriptReading::Broken);
                    return match self.read_regex(at) {
                        ScriptReading::Broken if !broken => ScriptReading::Prints,
                        read @ (ScriptReading::Broken | ScriptReading::Prints | ScriptReading::Harms(_)) => read,
                    };
                }
                b'/' if slash == Slash::Regex => return self.read_regex(at),
                b'#' => {
                    at += self.bytes[at..].iter().take_while(|byte| **byte != b'\n').count();
                    continue;
                }
                b'|' if self.bytes.get(at + 1) == Some(&b'|') => at += 1,
                b'|' => return harms("its program starts commands with `|`"),
                b'>' if self.bytes.get(at + 1) != Some(&b'=') => return harms("its program may write with `>`"),
                b'@' => return harms("its program loads or calls what is not in it"),
                b'\\' => return harms("its program is not understood"),
                b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                    let length =
                        self.bytes[at..].iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
                    slash = match &self.text[at..at + length] {
                        "system" => return harms("its program starts commands with system()"),
                        "getline" => return harms("its program reads from elsewhere with getline"),
                        "print" | "printf" | "return" | "in" | "case" | "else" | "do" | "delete" | "exit" => {
                            Slash::Regex
                        }
                        "length" => Slash::Either,
                        _ => Slash::Division,
                    };
                    at += length;
                    continue;
                }
                _ => {}
            }
            slash = match byte {
                b'\n' => Slash::Regex,
                _ if byte.is_ascii_whitespace() => slash,
                b']' => Slash::Division,
                _ if byte.is_ascii_digit() || byte == b'.' => Slash::Division,
                // `(1) / 2` and `if (1) /x/`, `n++ / 2` and `n + /x/`.
                b')' | b'$' | b'+' | b'-' => Slash::Either,
                _ => Slash::Regex,
            };
            at += 1;
        }
        ScriptReading::Prints
    }

    fn read_regex(&mut self, at: usize) -> ScriptReading {
        let Some(end) = self.end_of(at + 1, b'/') else { return ScriptReading::Broken };
        // awks differ on a slash in brackets.
        let inner = &self.text[at..end];
        if inner.matches('[').count() != inner.matches(']').count() {
            return ScriptReading::Harms("its program is not understood".to_owned());
        }
        self.read(end, Slash::Division)
    }
}

/// git's commands that look, and whether they take operands only with one of these options.
const GIT: &[(&str, &[&str])] = &[
    ("log", &[]),
    ("diff", &[]),
    ("show", &[]),
    ("status", &[]),
    ("blame", &[]),
    ("annotate", &[]),
    ("shortlog", &[]),
    ("describe", &[]),
    ("rev-parse", &[]),
    ("rev-list", &[]),
    ("ls-files", &[]),
    ("ls-tree", &[]),
    ("cat-file", &[]),
    ("grep", &[]),
    ("name-rev", &[]),
    ("merge-base", &[]),
    ("diff-tree", &[]),
    ("for-each-ref", &[]),
    ("show-ref", &[]),
    ("count-objects", &[]),
    ("check-ignore", &[]),
    ("whatchanged", &[]),
    ("version", &[]),
    ("cherry", &[]),
    ("range-diff", &[]),
    ("branch", &["--list", "-l", "--contains", "--no-contains", "--merged", "--no-merged", "--points-at"]),
    ("tag", &["--list", "-l", "-n", "--contains", "--points-at"]),
    ("config", &["--get", "--list", "-l", "--get-all", "--get-regexp"]),
];

/// Two words, the second of which makes it one that looks.
const GIT_SECOND: &[(&str, &[&str])] = &[
    ("stash", &["list", "show"]),
    ("remote", &["-v", "get-url"]),
    ("worktree", &["list"]),
    ("reflog", &["show"]),
    ("notes", &["list", "show"]),
];

/// Options that write, or start what the configuration or the line names. As git takes the beginnings of names too.
const GIT_DENIED: &[&str] = &[
    "output",
    "output-directory",
    "ext-diff",
    "textconv",
    "filters",
    "open-files-in-pager",
    "show-signature",
    "upload-pack",
    "exec",
    "exec-path",
    "paginate",
    "config-env",
    "delete",
    "move",
    "copy",
    "force",
    "edit-description",
    "set-upstream-to",
    "unset-upstream",
    "track",
    "create-reflog",
    "add",
    "unset",
    "unset-all",
    "replace-all",
    "edit",
    "rename-section",
    "remove-section",
    "sign",
    "local-user",
    "annotate",
    "file",
    "blob",
    "message",
    "verify",
    "signoff",
    "stdin-paths",
];

pub(super) fn git(args: &[Word]) -> ScriptJudgement {
    let mut rest = args;
    let dynamic = |word: &Word| format!("`{}` may turn out to be an option", word.shown());
    let name = loop {
        let Some((first, behind)) = rest.split_first() else { return Ok(()) };
        let text = first.text().ok_or_else(|| dynamic(first))?;
        rest = behind;
        match text {
            "--no-pager" | "-P" | "--no-optional-locks" | "--literal-pathspecs" => {}
            "--version" => return Ok(()),
            "-C" => {
                let (directory, behind) = rest.split_first().ok_or("a directory is missing")?;
                if directory.may_split() {
                    return Err(dynamic(directory));
                }
                rest = behind;
            }
            _ if text.starts_with('-') => return Err(format!("its option {text} may start something else")),
            _ => break text,
        }
    };
    if let Some((_, seconds)) = GIT_SECOND.iter().find(|(known, _)| *known == name) {
        let second = rest.first().map(|word| word.text().unwrap_or("?"));
        let plain = second.is_none() && matches!(name, "remote" | "reflog");
        // `git remote -v update` fetches.
        if second == Some("-v") && rest.len() > 1 {
            return Err("git remote may change something".to_owned());
        }
        if !plain && !second.is_some_and(|second| seconds.contains(&second)) {
            return Err(format!("git {name} may change something"));
        }
    } else {
        let Some((_, needed)) = GIT.iter().find(|(known, _)| *known == name) else {
            return Err(format!("git {name} may change something"));
        };
        let looks = needed.is_empty() || begins_by_looking(rest, needed);
        // Where a name that stands alone would make something, and options alone show it.
        let shows = name != "config" && rest.iter().all(|word| word.text().is_some_and(|text| text.starts_with('-')));
        if !looks && !shows {
            return Err(format!("git {name} may change something"));
        }
    }
    let mut paths = false;
    for word in rest {
        match word.text() {
            _ if paths => {}
            Some("--") => paths = true,
            Some(text) => git_option(name, text)?,
            None if word.known_start().starts_with("--") && word.known_start().contains('=') && !word.may_split() => {
                git_option(name, word.known_start())?;
            }
            None if word.may_be_option() => return Err(dynamic(word)),
            None => {}
        }
    }
    Ok(())
}

/// Options that may stand before the one that makes a command look. Each is a word of its own: one with a value would take the
/// next for it.
const GIT_BEFORE: &[&str] = &[
    "-a",
    "-r",
    "-v",
    "-vv",
    "-i",
    "-z",
    "--all",
    "--remotes",
    "--verbose",
    "--ignore-case",
    "--null",
    "--global",
    "--local",
    "--system",
    "--worktree",
    "--show-origin",
    "--show-scope",
    "--name-only",
    "--includes",
    "--no-includes",
    "--no-color",
    "--no-column",
];

/// True if one of the needed options is there, and is no other's value.
fn begins_by_looking(words: &[Word], needed: &[&str]) -> bool {
    for text in words.iter().map(Word::text) {
        let Some(text) = text else { return false };
        let name = text.split('=').next().unwrap_or(text);
        if needed.contains(&name) {
            return true;
        }
        let is_whole = GIT_BEFORE.contains(&text) || text.starts_with("--") && text.contains('=');
        if !is_whole {
            return false;
        }
    }
    false
}

fn git_option(command: &str, text: &str) -> ScriptJudgement {
    let denied = match text.strip_prefix("--") {
        Some(long) => {
            let name = long.split('=').next().unwrap_or(long);
            let diff = matches!(command, "log" | "diff" | "show" | "whatchanged" | "diff-tree" | "range-diff");
            // `--stat` and `--follow` are no beginnings of these; `--no-…` switches off.
            // Revisions' options are not shortened, and `--all` and `--date` begin like none.
            !name.is_empty()
                && GIT_DENIED
                    .iter()
                    .any(|denied| *denied == name || (!diff || name.len() > 3) && denied.starts_with(name))
        }
        None => match text.strip_prefix('-') {
            Some(short) => match command {
                // Several in one word.
                "grep" => short.contains('O'),
                "branch" => short.contains(['d', 'D', 'm', 'M', 'c', 'C', 'f', 'u', 't']),
                "tag" => short.contains(['d', 'f', 'a', 's', 'u', 'm', 'F', 'e']),
                "config" => short.contains(['e', 'f']),
                _ => short.starts_with('O'),
            },
            None => false,
        },
    };
    if denied { Err(format!("its option {text} may do more than read")) } else { Ok(()) }
}

pub(super) fn curl(args: &Args<'_>) -> ScriptJudgement {
    for (name, value) in &args.options {
        let text = value.as_ref().and_then(Word::text);
        match name.as_str() {
            "o" | "output" if !matches!(text, Some("/dev/null" | "-")) => return Err("it writes to a file".to_owned()),
            "X" | "request" if !matches!(text, Some("GET" | "HEAD" | "OPTIONS")) => return Err("it sends".to_owned()),
            "R" => return Err("its option -R may do more than read".to_owned()),
            // `@file` sends or follows the file, `%output{…}` writes one.
            "H" | "header" | "w" | "write-out" => {
                let start = value.as_ref().map(Word::known_start).unwrap_or_default();
                let whole = name.starts_with('w').then_some(text.unwrap_or("%output"));
                if start.is_empty() || start.starts_with('@') || whole.is_some_and(|text| text.contains("%output")) {
                    return Err(format!("the value of {name} may name a file"));
                }
            }
            _ => {}
        }
    }
    args.operands.iter().try_for_each(|url| {
        let start = url.known_start();
        let (scheme, host) = start.split_once("://").unwrap_or(("", start));
        let guessed = ["ftp.", "dict.", "ldap.", "imap.", "smtp.", "pop3."]
            .iter()
            .any(|name| host.to_ascii_lowercase().starts_with(name));
        match scheme.to_ascii_lowercase().as_str() {
            "http" | "https" => Ok(()),
            "" if url.text().is_some() && !guessed => Ok(()),
            _ => Err("it does not certainly fetch from http:// or https://".to_owned()),
        }
    })
}

pub(super) fn tar(args: &[Word]) -> ScriptJudgement {
    let mut lists = false;
    let mut rest = args.iter().enumerate();
    let mut archive = None;
    while let Some((at, word)) = rest.next() {
        let Some(text) = word.text() else {
            if word.may_be_option() {
                return Err(format!("`{}` may turn out to be an option", word.shown()));
            }
            continue;
        };
        if let Some(long) = text.strip_prefix("--") {
            match long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value))) {
                ("list", None) => lists = true,
                ("file", Some(value)) => archive = Some(value),
                ("verbose" | "gzip" | "bzip2" | "xz" | "zstd" | "wildcards" | "force-local", None) => {}
                _ => return Err(format!("its option {text} may do more than list")),
            }
        } else if text.starts_with('-') || at == 0 {
            let flags = text.strip_prefix('-').unwrap_or(text);
            for flag in flags.chars() {
                match flag {
                    't' => lists = true,
                    'v' | 'z' | 'j' | 'J' => {}
                    'f' if flags.ends_with('f') => {
                        archive = rest.next().and_then(|(_, word)| word.text()).or(Some(":"))
                    }
                    _ => return Err(format!("its option -{flag} may do more than list")),
                }
            }
        }
    }
    // `host:file` is fetched by another program.
    match archive {
        _ if !lists => Err("it packs or unpacks".to_owned()),
        Some(name) if name.contains(':') => Err("its archive may be another host's".to_owned()),
        _ => Ok(()),
    }
}

/// Judgement on the mode of a packer. Of several modes the last counts, or the first, or each: only one that writes to
/// standard output makes all of them harmless.
pub(super) fn packed(args: &Args<'_>) -> ScriptJudgement {
    let prints = args.has(&["c", "stdout", "to-stdout"]);
    let looks = args.has(&["l", "t", "list", "test"]) && !args.has(&["d", "decompress"]);
    if prints || looks { Ok(()) } else { Err("it writes beside the file".to_owned()) }
}

/// xxd reads its options in its own way: `-ps` is one, and `-p` takes no value.
pub(super) fn xxd(args: &[Word]) -> ScriptJudgement {
    let mut operands = 0;
    let mut rest = args.iter();
    while let Some(word) = rest.next() {
        match word.text() {
            Some("-a" | "-b" | "-e" | "-E" | "-i" | "-p" | "-ps" | "-plain" | "-postscript" | "-u" | "-v" | "-h") => {}
            Some("-c" | "-cols" | "-g" | "-l" | "-len" | "-s" | "-seek" | "-o") => {
                rest.next().and_then(Word::text).ok_or("the value of an option is not plain")?;
            }
            Some(text) if text.starts_with('-') && text != "-" => {
                let number =
                    text.get(2..).is_some_and(|value| value.bytes().all(|b| b.is_ascii_hexdigit() || b == b'x'));
                if !(matches!(text.as_bytes()[1], b'c' | b'g' | b'l' | b's' | b'o') && number) {
                    return Err(format!("its option {text} may do more than read"));
                }
            }
            Some(_) => operands += 1,
            None if word.may_be_option() || word.may_be_several() => {
                return Err(format!("`{}` may turn out to be an option, or several files", word.shown()));
            }
            None => operands += 1,
        }
    }
    if operands > 1 { Err("it writes to the file that is named last".to_owned()) } else { Ok(()) }
}

pub(super) fn env(args: &[Word]) -> ScriptJudgement {
    match args.iter().find(|word| !matches!(word.text(), Some("-0" | "--null" | "--version"))) {
        None => Ok(()),
        Some(word) => Err(format!("`{}` may be a command that it starts", word.shown())),
    }
}

/// `test` evaluates what -v names, commands in an index too, and takes any text that splits for operators.
pub(super) fn test(args: &[Word]) -> ScriptJudgement {
    if args.iter().any(|word| matches!(word.text(), Some("-v" | "-R"))) {
        return Err("-v evaluates what it is given".to_owned());
    }
    let in_brackets = args.last().and_then(Word::text) == Some("]]");
    if in_brackets {
        return Ok(());
    }
    if let Some(word) = args.iter().find(|word| word.may_split()) {
        return Err(format!("`{}` may become several words", word.shown()));
    }
    let args = match args.split_last() {
        Some((last, rest)) if last.text() == Some("]") => rest,
        _ => args,
    };
    // What stands between these is one test each; with several of them, a value may turn out to be one.
    let joins = |word: &Word| matches!(word.text(), Some("-a" | "-o" | "(" | ")" | "\\(" | "\\)"));
    let unknown = |word: &&Word| word.text().is_none() && word.may_be_option();
    let odd =
        |word: &Word| Err(format!("`{}` may turn out to be an operator; write each test by itself", word.shown()));
    if args.iter().any(joins) {
        return args.iter().find(unknown).map_or(Ok(()), odd);
    }
    let plain = |word: &Word, is: fn(&str) -> bool| word.text().is_some_and(is);
    let mut rest = args;
    // Of `! = x`, which compares, no more is asked than of `= x`.
    while let Some((_, behind)) = rest.split_first().filter(|(first, _)| first.text() == Some("!")) {
        rest = behind;
    }
    match rest {
        [] | [_] => Ok(()),
        [operator, _] if plain(operator, |text| text.starts_with('-')) => Ok(()),
        [_, operator, _] if plain(operator, is_comparison) => Ok(()),
        other => other.iter().find(unknown).map_or(Ok(()), odd),
    }
}

/// Operators of test(1) with two sides.
fn is_comparison(text: &str) -> bool {
    matches!(
        text,
        "=" | "==" | "!=" | "<" | ">" | "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge" | "-nt" | "-ot" | "-ef"
    )
}

pub(super) fn read(args: &[Word]) -> ScriptJudgement {
    let own = |word: &Word| word.text().is_some_and(|text| matches!(text, "-r" | "-s") || is_own(text));
    if args.iter().all(own) { Ok(()) } else { Err("it may set a variable that programs or the shell read".to_owned()) }
}

/// `command -v NAME` looks; `command NAME` starts it, whatever aliases and functions say.
pub(super) fn command(args: &[Word]) -> Result<Vec<Word>, String> {
    match args.split_first() {
        Some((first, names)) if matches!(first.text(), Some("-v" | "-V")) => {
            match names.iter().find(|word| word.may_split()) {
                None => Ok(vec![Word::Static("true".to_owned())]),
                Some(word) => Err(format!("`{}` may become several words; put it in double quotes", word.shown())),
            }
        }
        _ => plain_start(args),
    }
}

pub(super) fn timed(args: &[Word]) -> Result<Vec<Word>, String> {
    let args = if args.first().and_then(Word::text) == Some("-p") { &args[1..] } else { args };
    plain_start(args)
}

/// Words behind the value of a wrapper's option, which must be one word: where it becomes several, they are the command.
fn after_value(words: &[Word]) -> Result<&[Word], String> {
    match words.split_first() {
        Some((value, rest)) if !value.may_be_several() => Ok(rest),
        Some((value, _)) => Err(format!("`{}` may become several words, and so another command", value.shown())),
        None => Err("the value of an option is missing".to_owned()),
    }
}

/// A command, not an option of its wrapper.
fn plain_start(args: &[Word]) -> Result<Vec<Word>, String> {
    match args.first() {
        Some(first) if first.text().is_some_and(|text| !text.starts_with('-')) => Ok(args.to_vec()),
        _ => Err("which command it starts is not plain".to_owned()),
    }
}

pub(super) fn timeout(args: &[Word]) -> Result<Vec<Word>, String> {
    let mut rest = args;
    while let Some((flag, behind)) = rest.split_first().filter(|(word, _)| word.known_start().starts_with('-')) {
        rest = match flag.text() {
            Some("-k" | "-s") => after_value(behind)?,
            Some("--foreground" | "--preserve-status" | "-v") => behind,
            _ => return Err("an option that is not known".to_owned()),
        };
    }
    match rest.split_first() {
        Some((duration, behind))
            if duration.text().is_some_and(|text| text.starts_with(|c: char| c.is_ascii_digit())) =>
        {
            plain_start(behind)
        }
        _ => Err("its duration is not plain".to_owned()),
    }
}

pub(super) fn nice(args: &[Word]) -> Result<Vec<Word>, String> {
    match args.first().and_then(Word::text) {
        Some("-n") => plain_start(after_value(&args[1..])?),
        _ => plain_start(args),
    }
}

/// The command that xargs starts, with words behind it of which nothing is known.
pub(super) fn xargs(args: &[Word]) -> Result<Vec<Word>, String> {
    let mut rest = args;
    let mut replaced = None;
    let mut grouped = false;
    while let Some((flag, behind)) = rest.split_first().filter(|(word, _)| word.known_start().starts_with('-')) {
        let text = flag.text().ok_or("an option that is not known")?;
        rest = match text {
            "-0" | "-r" | "-t" | "-x" | "--null" | "--no-run-if-empty" => behind,
            "-I" => {
                replaced = Some(behind.first().and_then(Word::text).ok_or("what it replaces is not known")?.to_owned());
                behind.get(1..).unwrap_or_default()
            }
            "-n" | "-P" | "-L" | "-d" => {
                grouped |= matches!(text, "-n" | "-L");
                after_value(behind)?
            }
            "-0r" | "-r0" => behind,
            _ => match text.strip_prefix("-I") {
                Some(mark) => {
                    replaced = Some(mark.to_owned());
                    behind
                }
                None if ["-n", "-P", "-L", "-d"].iter().any(|flag| text.starts_with(flag)) => {
                    grouped |= text.starts_with("-n") || text.starts_with("-L");
                    behind
                }
                None => return Err(format!("its option {text} may do more than read")),
            },
        };
    }
    if rest.is_empty() {
        return Ok(vec![Word::Static("echo".to_owned())]);
    }
    let anything = || Word::Dynamic(vec![Piece::Output { quoted: false }]);
    match replaced {
        None => Ok(rest.iter().cloned().chain([anything()]).collect()),
        Some(mark) if mark.is_empty() => Err("what it replaces is not known".to_owned()),
        // The later of the two counts, for some xargs; then the names are added behind all that is there.
        Some(_) if grouped => Err("-I and -n or -L undo each other".to_owned()),
        // A word that begins before the mark keeps its beginning. In one that is not known as a whole the mark may be anywhere.
        Some(mark) => Ok(rest
            .iter()
            .map(|word| match word.text().map(|text| text.split_once(mark.as_str())) {
                None => Word::Dynamic(vec![Piece::Output { quoted: true }]),
                Some(None) => word.clone(),
                Some(Some((before, _))) => {
                    let pieces = [Piece::Text(before.to_owned()), Piece::Output { quoted: true }];
                    Word::Dynamic(pieces.into_iter().filter(|piece| *piece != Piece::Text(String::new())).collect())
                }
            })
            .collect()),
    }
}
