//! Programs with a way of their own to start others, which no row of a table says.

use super::known::{HOLE, KnownWord, assigned};
use super::programs;
use super::starts::{CommandStart, any_word, behind, is_one_word, joined, moved};
use super::variables::{self, VariableUse};

/// Settings of git's that are command lines, without what may stand between (`filter.NAME.clean`).
const GIT_LINES: &[(&str, &str)] = &[
    ("core.", "pager"),
    ("core.", "editor"),
    ("core.", "sshcommand"),
    ("core.", "fsmonitor"),
    ("core.", "askpass"),
    ("core.", "gitproxy"),
    ("core.", "alternaterefscommand"),
    ("sequence.", "editor"),
    ("diff.", "external"),
    ("diff.", "command"),
    ("diff.", "textconv"),
    ("difftool.", "cmd"),
    ("mergetool.", "cmd"),
    ("merge.", "driver"),
    ("filter.", "clean"),
    ("filter.", "smudge"),
    ("filter.", "process"),
    ("pager.", ""),
    ("gpg.", "program"),
    ("credential.", "helper"),
    ("remote.", "uploadpack"),
    ("remote.", "receivepack"),
    ("uploadpack.", "packobjectshook"),
    ("interactive.", "difffilter"),
    ("web.", "browser"),
    ("browser.", "cmd"),
    ("man.", "cmd"),
    ("sendemail.", "smtpserver"),
    ("sendemail.", "cmd"),
    ("trailer.", "command"),
    ("trailer.", "cmd"),
    ("submodule.", "update"),
    ("imap.", "tunnel"),
    ("hook.", "command"),
    ("difftool.", "path"),
    ("mergetool.", "path"),
    ("guitool.", "cmd"),
    ("tar.", "command"),
    ("gpg.", "defaultkeycommand"),
];

/// Settings of git's by which it reads others from a file, or finds programs in a directory.
const GIT_OPENS: &[(&str, &str)] =
    &[("include.", "path"), ("includeif.", "path"), ("core.", "hookspath"), ("init.", "templatedir")];

/// Subcommands that git knows, so that it takes them for no other. One that is missing is taken for any.
#[rustfmt::skip]
const GIT_SUBCOMMANDS: &[&str] = &[
    "add", "am", "apply", "archive", "bisect", "blame", "branch", "bundle", "cat-file", "checkout", "cherry", "cherry-pick", "clean",
    "clone", "commit", "config", "describe", "diff", "diff-tree", "fetch", "format-patch", "fsck", "gc", "grep", "help", "init", "log",
    "ls-files", "ls-remote", "ls-tree", "merge", "merge-base", "mv", "notes", "pull", "push", "range-diff", "rebase", "reflog",
    "remote", "reset", "restore", "rev-list", "rev-parse", "revert", "rm", "shortlog", "show", "show-ref", "sparse-checkout", "stash",
    "status", "submodule", "switch", "symbolic-ref", "tag", "update-index", "version", "worktree",
];

/// Options of a program whose value is a command line or a program.
struct StartingOptions {
    of: &'static str,
    options: &'static [&'static str],
    /// Beginning of the values that are.
    key: &'static str,
}

const STARTING_OPTIONS: &[StartingOptions] = &[
    StartingOptions { of: "rustc", options: &["-C", "--codegen"], key: "linker=" },
    StartingOptions { of: "go", options: &["-toolexec", "--toolexec", "-exec", "--exec"], key: "" },
    StartingOptions {
        of: "tar",
        options: &[
            "-I",
            "--use-compress-program",
            "--to-command",
            "--rsh-command",
            "-F",
            "--info-script",
            "--new-volume-script",
        ],
        key: "",
    },
    StartingOptions { of: "tar", options: &["--checkpoint-action"], key: "exec=" },
    StartingOptions { of: "rsync", options: &["-e", "--rsh", "--rsync-path"], key: "" },
    StartingOptions { of: "sort", options: &["--compress-program"], key: "" },
    StartingOptions { of: "split", options: &["--filter"], key: "" },
    StartingOptions { of: "rg", options: &["--pre", "--hostname-bin"], key: "" },
    StartingOptions { of: "man", options: &["-P", "--pager", "-H", "--html"], key: "" },
    StartingOptions { of: "ssh", options: &["-o"], key: "ProxyCommand=" },
    StartingOptions { of: "ssh", options: &["-o"], key: "LocalCommand=" },
    StartingOptions { of: "ssh", options: &["-o"], key: "KnownHostsCommand=" },
    StartingOptions { of: "fzf", options: &["--preview"], key: "" },
];

/// Options of a program whose value is a file of code, or a module. On a line they are as good as a script.
const CODE_OPTIONS: &[StartingOptions] = &[
    StartingOptions {
        of: "node",
        options: &["-r", "--require", "--import", "--loader", "--experimental-loader"],
        key: "",
    },
    StartingOptions { of: "ruby", options: &["-r"], key: "" },
];

/// Commands that a program starts by its options.
pub(super) fn by_options(name: &str, args: &[KnownWord]) -> Vec<CommandStart> {
    of_options(STARTING_OPTIONS, name, args)
}

/// Commands that a program starts by options that a variable has for it.
pub(super) fn by_options_of_variable(name: &str, args: &[KnownWord]) -> Vec<CommandStart> {
    let has = |odd: &[char]| args.iter().any(|arg| arg.text.contains(odd));
    match name {
        "make" => make(args),
        // `LESS='+!line'`, `perl -M'x;code'`, `java -XX:OnError=line`, `fzf --bind key:execute(line)`
        "less" if has(&['!', '|']) => vec![anything(0)],
        "perl" if has(&[';', '(', '{', '<', '|']) => vec![anything(0)],
        "java" if args.iter().any(|arg| ["agent", "-XX:On", "@"].iter().any(|odd| arg.text.contains(odd))) => {
            vec![anything(0)]
        }
        "fzf" if has(&['(', '!']) || args.iter().any(|arg| arg.text.contains("execute")) => vec![anything(0)],
        // `node --import data:…`
        "node" if args.iter().any(|arg| arg.text.contains("data:")) => vec![anything(0)],
        name => by_options(name, args).into_iter().chain(of_options(CODE_OPTIONS, name, args)).collect(),
    }
}

fn of_options(rows: &[StartingOptions], name: &str, args: &[KnownWord]) -> Vec<CommandStart> {
    let of_row = |row: &StartingOptions| {
        let key = row.key;
        let keyed = move |start: CommandStart| {
            let (text, at) = start.into_line()?;
            // A value that is not known may begin so.
            let begins = text.text.get(..key.len()).is_some_and(|start| start.eq_ignore_ascii_case(key));
            let value = if begins { text.text.get(key.len()..) } else { text.text.find(HOLE).map(|_| "\0") };
            value.map(|value| CommandStart::Line { text: KnownWord { text: value.to_owned(), ..text }, at })
        };
        values(args, 0, row.options).into_iter().filter_map(keyed).collect::<Vec<_>>()
    };
    rows.iter().filter(|row| row.of == name).flat_map(of_row).collect()
}

/// True if a word's beginning is a long option, or a beginning of it that stands for it.
fn is_long(text: &str, option: &str) -> bool {
    text == option || (text.len() > 2 && option.starts_with("--") && option.starts_with(text))
}

fn anything(at: usize) -> CommandStart {
    CommandStart::Command { words: vec![KnownWord::anything()], at }
}

fn line(text: &str, at: usize) -> CommandStart {
    CommandStart::Line { text: KnownWord::known(text), at }
}

/// Most words that may be the subcommand which are looked at: of more, one may start any program.
const SUBCOMMANDS_MAX: usize = 64;

/// Commands that git starts: by settings of the line, by options that take a line, by subcommands that run one.
pub(super) fn git(args: &[KnownWord]) -> Vec<CommandStart> {
    let mut found = Vec::new();
    let fixed = |at: usize| args.get(at).and_then(KnownWord::fixed);
    let subcommands = programs::subcommands_of("git", args);
    if subcommands.len() > SUBCOMMANDS_MAX {
        return vec![anything(1)];
    }
    // Settings stand before the subcommand, wherever that is.
    for given in 0..subcommands.iter().map(|(at, _)| *at).max().unwrap_or(0) {
        let setting = match fixed(given) {
            Some("-c") => args.get(given + 1).map(|word| (word.text.as_str(), given + 2)),
            Some(word) => word.strip_prefix("-c").map(|setting| (setting, given + 1)),
            None => None,
        };
        found.extend(setting.and_then(|(setting, place)| set_line(setting.split_once('=')?, place)));
        // The value is in a variable.
        let named = match args[given].text.strip_prefix("--config-env") {
            Some("") => args.get(given + 1).map(|word| (word.text.as_str(), given + 2)),
            Some(setting) => setting.strip_prefix('=').map(|setting| (setting, given + 1)),
            None => None,
        };
        let key = named.map(|(setting, place)| (setting.split('=').next().unwrap_or(setting), place));
        found.extend(key.and_then(|(key, place)| set_line((key, "\0"), place)));
    }
    for (at, subcommand) in subcommands {
        let from = at + 1;
        match (subcommand.as_str(), fixed(from)) {
            ("bisect", Some("run")) => found.extend(behind(args, from + 1)),
            ("submodule", Some("foreach")) => {
                let own = args[from + 1..].iter().take_while(|arg| arg.text.starts_with("--")).count();
                found.extend(joined(&args[from + 1 + own..], from + 2 + own));
            }
            ("config", _) => {
                for place in from..args.len().saturating_sub(1) {
                    found.extend(set_line((&args[place].text, &args[place + 1].text), place + 2));
                }
            }
            ("rebase" | "difftool", _) => found.extend(values(args, from, &["-x", "--exec", "--extcmd"])),
            (
                "fetch" | "pull" | "clone" | "push" | "ls-remote" | "fetch-pack" | "send-pack" | "archive" | "remote",
                _,
            ) => {
                found.extend(values(args, from, &["--upload-pack", "--receive-pack", "--exec"]));
                if subcommand == "clone" {
                    found.extend(values(args, from, &["-u"]));
                    found.extend(values(args, from, &["-c", "--config"]).into_iter().filter_map(setting_of));
                }
                let remote = args.iter().enumerate().skip(from);
                found.extend(
                    remote.filter_map(|(at, arg)| arg.text.strip_prefix("ext::").map(|text| line(text, at + 1))),
                );
            }
            ("filter-branch", _) => {
                let filter = |arg: &KnownWord| arg.text.starts_with("--") && arg.text.ends_with("-filter");
                let filters = (from..args.len()).filter(|at| filter(&args[*at]));
                found.extend(
                    filters.filter_map(|at| Some(CommandStart::Line { text: args.get(at + 1)?.clone(), at: at + 2 })),
                );
            }
            ("grep", _) => {
                found.extend(values(args, from, &["--open-files-in-pager"]));
                let pagers = args.iter().enumerate().skip(from);
                found.extend(pagers.filter_map(|(at, arg)| Some(line(pager_of_grep(&arg.text)?, at + 1))));
            }
            _ => {}
        }
    }
    let is_known = |name: &str| GIT_SUBCOMMANDS.contains(&name);
    if programs::subcommands_of("git", args).iter().all(|(_, name)| is_known(name)) {
        found.retain(|start| !is_any_of_git(start));
    }
    found.dedup();
    found
}

/// True if git may do anything.
fn is_any_of_git(start: &CommandStart) -> bool {
    matches!(start, CommandStart::Command { words, .. } if words.len() == 2 && words[1] == KnownWord::anything())
}

/// The setting that an option of `git clone` makes.
fn setting_of(option: CommandStart) -> Option<CommandStart> {
    match option {
        CommandStart::Line { text, at } => set_line(text.text.split_once('=')?, at),
        CommandStart::Command { .. } | CommandStart::Beginning { .. } | CommandStart::File { .. } => None,
    }
}

/// `git grep -Opager`, also behind letters without a value.
fn pager_of_grep(word: &str) -> Option<&str> {
    let (flags, pager) = word.strip_prefix('-')?.split_once('O')?;
    (flags.chars().all(|flag| "acEFGhHiIlLnopPqrvwWz".contains(flag)) && !pager.is_empty()).then_some(pager)
}

/// Program that a setting has git start. An alias is another command of git's, or a line.
fn set_line((key, value): (&str, &str), at: usize) -> Option<CommandStart> {
    let written = key;
    let key = key.to_ascii_lowercase();
    // A remote is a line, by its address or by what stands for its beginning.
    let is_address = key.starts_with("remote.") && key.ends_with("url");
    let remote = match key.starts_with("url.") {
        true => written.split_once("ext::").and_then(|(_, rest)| rest.rsplit_once('.')).map(|(text, _)| text),
        false => value.strip_prefix("ext::").filter(|_| is_address),
    };
    if let Some(text) = remote {
        return Some(line(text, at));
    }
    // It takes a subcommand that it does not know for one that it knows.
    if key == "help.autocorrect" && !matches!(value, "0" | "false" | "no" | "off" | "never" | "show" | "prompt") {
        return Some(CommandStart::Command { words: vec![KnownWord::known("git"), KnownWord::anything()], at });
    }
    if key.contains(HOLE) {
        return Some(anything(at));
    }
    if key.starts_with("alias.") {
        return alias(value, at);
    }
    if GIT_OPENS.iter().any(|(start, end)| key.starts_with(start) && key.ends_with(end)) && value != "/dev/null" {
        return Some(anything(at));
    }
    let is_line = GIT_LINES.iter().any(|(start, end)| key.starts_with(start) && key.ends_with(end));
    let is_text = !matches!(value, "" | "true" | "false" | "cat" | "store" | "cache");
    (is_line && is_text).then(|| line(value.trim_start_matches('!'), at))
}

/// The command of an alias: another one of git's, or a line. The words behind the alias are put behind it.
pub(super) fn alias(value: &str, at: usize) -> Option<CommandStart> {
    Some(match value.strip_prefix('!') {
        Some(text) => CommandStart::Beginning { text: KnownWord::known(text), at },
        None if value.contains(HOLE) => anything(at),
        None => {
            let words = std::iter::once("git").chain(value.split_whitespace()).map(KnownWord::known);
            CommandStart::Command { words: words.chain([KnownWord::anything()]).collect(), at }
        }
    })
}

/// Lines that options take, in the same word or the next. A letter may stand behind others.
fn values(args: &[KnownWord], from: usize, options: &[&str]) -> Vec<CommandStart> {
    let mut found = Vec::new();
    for at in from..args.len() {
        let text = args[at].text.as_str();
        let (name, given) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let takes_next = |option: &&str| match option.strip_prefix('-') {
            Some(letter) if letter.len() == 1 => {
                !text.starts_with("--") && text.starts_with('-') && text.ends_with(letter)
            }
            _ => given.is_none() && is_long(name, option),
        };
        let attached = |option: &&str| match option.len() {
            2 => text.strip_prefix(*option).map(|value| value.strip_prefix('=').unwrap_or(value)),
            _ => given.filter(|_| is_long(name, option)),
        };
        if options.iter().any(takes_next) {
            found.extend(args.get(at + 1).map(|value| CommandStart::Line { text: value.clone(), at: at + 2 }));
        } else if let Some(value) = options.iter().find_map(attached) {
            let text = KnownWord { text: value.to_owned(), several: args[at].several };
            found.push(CommandStart::Line { text, at: at + 1 });
        }
    }
    found
}

/// `gdb -ex '!line'`, `-ex 'shell line'`; `-ex run` starts the program. Alone it starts none: somebody types first.
pub(super) fn gdb(args: &[KnownWord]) -> Vec<CommandStart> {
    const HARMLESS: &[&str] = &[
        "bt",
        "backtrace",
        "where",
        "info",
        "thread",
        "frame",
        "up",
        "down",
        "list",
        "disassemble",
        "quit",
        "q",
        "kill",
        "detach",
    ];
    let mut found = Vec::new();
    let mut runs = false;
    let is_command =
        |text: &str| matches!(text.trim_start_matches('-'), "ex" | "eval-command" | "iex" | "init-eval-command");
    for (at, arg) in args.iter().enumerate() {
        let given = match arg.text.split_once('=') {
            Some((option, value)) if is_command(option) && option.starts_with('-') => Some((value.to_owned(), at + 1)),
            _ if arg.text.starts_with('-') && is_command(&arg.text) => {
                args.get(at + 1).map(|value| (value.text.clone(), at + 2))
            }
            _ => None,
        };
        let Some((text, place)) = given else { continue };
        let word = text.split_whitespace().next().unwrap_or_default();
        if let Some(shell) = text.strip_prefix('!').or_else(|| text.strip_prefix("shell ")) {
            found.push(line(shell, place));
        } else if matches!(word, "r" | "run" | "start" | "starti") {
            runs = true;
        } else if !HARMLESS.contains(&word) && !text.starts_with("set pagination ") && !text.starts_with("set confirm ")
        {
            found.push(anything(place));
        }
    }
    let scripted =
        args.iter().any(|arg| matches!(arg.text.trim_start_matches('-'), "x" | "command") && arg.text.starts_with('-'));
    let program = args.iter().position(|arg| arg.text.trim_start_matches('-') == "args" && arg.text.starts_with('-'));
    match program {
        Some(at) => found.extend(behind(args, at + 1)),
        None if runs || scripted => found.extend(any_word(args)),
        None => {}
    }
    found
}

/// tmux starts what windows and hooks run, and types keys into a shell.
pub(super) fn tmux(args: &[KnownWord]) -> Vec<CommandStart> {
    const STARTS_NONE: &[&str] = &[
        "ls",
        "list-sessions",
        "lsw",
        "list-windows",
        "lsp",
        "list-panes",
        "lsc",
        "list-clients",
        "lsk",
        "list-keys",
        "lscm",
        "list-commands",
        "has",
        "has-session",
        "kill-server",
        "kill-session",
        "kill-window",
        "killw",
        "kill-pane",
        "killp",
        "a",
        "attach",
        "attach-session",
        "detach",
        "detach-client",
        "rename",
        "rename-session",
        "rename-window",
        "renamew",
        "select-window",
        "selectw",
        "select-pane",
        "selectp",
        "show",
        "show-options",
        "showw",
        "capture-pane",
        "capturep",
        "switch-client",
        "switchc",
        "info",
        "wait-for",
        "wait",
        "resize-pane",
        "resizep",
        "last-window",
        "last-pane",
        "next-window",
        "previous-window",
        "save-buffer",
        "show-buffer",
    ];
    let is_plain = |arg: &KnownWord| arg.fixed().is_some_and(|arg| !arg.contains("#(") && !arg.ends_with(';'));
    let first = args.first().and_then(KnownWord::fixed);
    let starts_none = first.is_none_or(|first| STARTS_NONE.contains(&first) || first == "-V");
    if starts_none && args.iter().all(is_plain) {
        return Vec::new();
    }
    // Keys are a line, once they are typed.
    if first.is_some_and(|first| matches!(first, "send-keys" | "send")) {
        let keys = args.iter().enumerate().skip(1).filter(|(_, arg)| !arg.text.starts_with('-'));
        let mut typed: Vec<CommandStart> =
            keys.map(|(at, arg)| CommandStart::Line { text: arg.clone(), at: at + 1 }).collect();
        typed.extend(joined(&args[1..], 2));
        typed.extend(any_word(&args[1..]).into_iter().map(|start| moved(start, 1)));
        return typed;
    }
    any_word(args)
}

/// `screen -ls` starts none.
pub(super) fn screen(args: &[KnownWord]) -> Vec<CommandStart> {
    let lists = |arg: &KnownWord| matches!(arg.fixed(), Some("-ls" | "-list" | "-wipe" | "-v"));
    if args.iter().any(lists) { Vec::new() } else { any_word(args) }
}

/// `make SHELL=program` runs its lines with another program, `make CC=program` its rules.
pub(super) fn make(args: &[KnownWord]) -> Vec<CommandStart> {
    let shell = |(at, arg): (usize, &KnownWord)| {
        let value = arg.text.strip_prefix("SHELL")?.trim_start_matches([':', '?', '+']).strip_prefix('=')?;
        let words =
            value.split_whitespace().map(|word| KnownWord { text: word.to_owned(), several: word.contains(HOLE) });
        Some(CommandStart::Command { words: words.collect(), at: at + 1 })
    };
    let evaluates = |arg: &KnownWord| {
        let name = arg.text.split('=').next().unwrap_or_default();
        is_long(name, "--eval") || (arg.text.starts_with("-E") && !arg.text.starts_with("--"))
    };
    let evaluated = args.iter().enumerate().filter(|(_, arg)| evaluates(arg)).map(|(at, _)| anything(at + 1));
    let by_variables = args.iter().enumerate().flat_map(|(at, arg)| {
        let set = assigned(&arg.text).filter(|(name, _)| *name != "SHELL");
        set.map_or_else(Vec::new, |(name, value)| {
            // What makes use of a compiler is what whoever allows `make` means.
            let is_plain = is_one_word(value) && !value.contains(['/', HOLE]);
            let is_program = is_plain && !value.is_empty() && variables::use_of(name) == Some(VariableUse::Line);
            match is_program {
                true => vec![CommandStart::Command { words: vec![KnownWord::known(value)], at: 0 }],
                false => by_variable(name, value, at + 1),
            }
        })
    });
    args.iter().enumerate().filter_map(shell).chain(evaluated).chain(by_variables).collect()
}

/// Options of `parallel` without a value.
#[rustfmt::skip]
const PARALLEL_FLAGS: &[&str] = &[
    "-k", "--keep-order", "-X", "-q", "--quote", "-t", "--verbose", "-v", "-0", "--null", "-u", "--ungroup", "--bar",
    "--eta", "--progress", "--line-buffer", "--lb", "--will-cite", "--group", "-m", "--fg", "--bg", "--wait",
];

/// Options of `parallel` with one.
#[rustfmt::skip]
const PARALLEL_VALUED: &[&str] = &[
    "-j", "--jobs", "-P", "-n", "-N", "-L", "-a", "--arg-file", "--colsep", "-C", "--delay", "--timeout", "--joblog",
    "--results", "--retries", "--halt", "--load", "--tmpdir", "-d", "--delimiter", "-I", "--id",
];

/// A command of `parallel` is a line, into which its arguments are put; without one its input is lines.
pub(super) fn parallel(args: &[KnownWord]) -> Vec<CommandStart> {
    let mut at = 0;
    while let Some(option) = args.get(at).filter(|arg| arg.text.starts_with('-')) {
        let Some(text) = option.fixed() else { return any_word(args) };
        let is_attached = text.contains('=')
            || (!text.starts_with("--")
                && text.len() > 2
                && text.get(..2).is_some_and(|letter| PARALLEL_VALUED.contains(&letter)));
        at += match (PARALLEL_FLAGS.contains(&text) || is_attached, PARALLEL_VALUED.contains(&text)) {
            (true, _) => 1,
            (false, true) => 2,
            (false, false) => return any_word(args).into_iter().chain([anything(1)]).collect(),
        };
    }
    let words: Vec<KnownWord> =
        args.get(at..).unwrap_or_default().iter().take_while(|arg| !arg.text.starts_with(":::")).cloned().collect();
    if words.is_empty() {
        return vec![anything(at)];
    }
    let replaced = words.iter().any(|word| word.text.contains('{'));
    let mut text = words.iter().map(|word| placed(&word.text)).collect::<Vec<_>>().join(" ");
    if !replaced {
        text.push(' ');
        text.push(HOLE);
    }
    // As words it is known in full where the line is plain.
    let words: Vec<KnownWord> = words
        .iter()
        .map(|word| KnownWord { text: placed(&word.text), several: word.several })
        .chain((!replaced).then(KnownWord::anything))
        .collect();
    let is_plain = words
        .iter()
        .all(|word| !word.text.contains([' ', '\t', '\n', ';', '|', '&', '$', '`', '(', '<', '>', '"', '\'', '\\']));
    match is_plain {
        true => vec![CommandStart::Command { words, at: at + 1 }],
        false => vec![CommandStart::Line { text: KnownWord { text, several: false }, at: at + 1 }],
    }
}

/// A text in which arguments take the place of `{}`, `{.}`, `{/}`, `{1}`.
fn placed(text: &str) -> String {
    let mut placed = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        placed.push_str(before);
        match behind.split_once('}').filter(|(inner, _)| inner.len() < 4) {
            Some((_, behind)) => {
                placed.push(HOLE);
                rest = behind;
            }
            None => {
                placed.push('{');
                rest = behind;
            }
        }
    }
    placed + rest
}

/// `lftp -c '!line'`: its own commands start none.
pub(super) fn lftp(args: &[KnownWord]) -> Vec<CommandStart> {
    let mut found = Vec::new();
    for (KnownWord { text, .. }, at) in values(args, 0, &["-c", "-e"]).into_iter().filter_map(CommandStart::into_line) {
        let commands = text.split([';', '\n', '&']).map(str::trim);
        found.extend(
            commands
                .filter_map(|command| command.strip_prefix('!').or_else(|| command.strip_prefix("shell ")))
                .map(|shell| line(shell, at)),
        );
        if text.contains(['!', '`', HOLE])
            || ["shell", "local", "source", "alias", "edit"].iter().any(|word| text.contains(word))
        {
            found.push(anything(at));
        }
    }
    found
}

/// `expect -c` takes a program in Tcl, which starts what it likes.
pub(super) fn expect(args: &[KnownWord]) -> Vec<CommandStart> {
    let is_code = |arg: &KnownWord| arg.text.starts_with('-') && arg.text.contains(['c', HOLE]) || arg.several;
    args.iter().position(is_code).map(|at| anything(at + 1)).into_iter().collect()
}

/// Commands that programs start by the value of a variable, which stands at the word `at`.
pub(super) fn by_variable(name: &str, value: &str, at: usize) -> Vec<CommandStart> {
    use VariableUse::{Code, Evaluated, Expanded, ExpandedFile, Files, Line, Options, Setting};
    let Some(used) = variables::use_of(name) else { return Vec::new() };
    let command = |words: Vec<KnownWord>| CommandStart::Command { words, at };
    let unknown = || vec![anything(at)];
    let started = |text: &str| vec![line(text, at)];
    let file = |name: &str| command(vec![KnownWord::known(name)]);
    let is_expanded = value.contains(['$', '`']);
    match used {
        _ if matches!(value, "" | "/dev/null") => Vec::new(),
        // A pipe stands before a preprocessor of `less`.
        Line | Evaluated => started(value.trim_start_matches(['|', '-'])),
        Code => unknown(),
        _ if value.contains(HOLE) => unknown(),
        Files => value.split([' ', ':']).filter(|name| !name.is_empty()).map(file).collect(),
        // It may be another command of git's, or a line.
        Setting => alias(value, at).into_iter().chain(started(value.trim_start_matches('!'))).collect(),
        Expanded | ExpandedFile if is_expanded => started(value),
        Expanded => Vec::new(),
        ExpandedFile => vec![file(value)],
        // How each program reads quotes is not told.
        Options(_) if value.contains(['\'', '"', '\\', '`', '$']) => unknown(),
        Options(program) => {
            let words: Vec<KnownWord> = value.split_whitespace().map(KnownWord::known).collect();
            by_options_of_variable(program, &words).into_iter().map(|start| start.placed(|_| at)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_value_starts_is_known() {
        let found = |name: &str, value: &str| -> Vec<String> {
            let shown = |words: &[KnownWord]| {
                words.iter().map(|word| word.text.replace(HOLE, "$")).collect::<Vec<_>>().join(" ")
            };
            let shown = |start: CommandStart| match start {
                CommandStart::Command { words, .. } => shown(&words),
                CommandStart::Line { text, .. } => format!("line {}", text.text),
                CommandStart::Beginning { text, .. } => format!("beginning {}", text.text),
                CommandStart::File { file, .. } => format!("> {}", file.text),
            };
            by_variable(name, value, 1).into_iter().map(shown).collect()
        };
        for (name, value, wanted) in [
            ("EDITOR", "vim -u x", &["line vim -u x"][..]),
            ("EDITOR", "", &[]),
            ("LESSOPEN", "|x %s", &["line x %s"]),
            ("LD_PRELOAD", "a.so:b.so", &["a.so", "b.so"]),
            ("LD_PRELOAD", "\0", &["$"]),
            ("GIT_CONFIG_VALUE_0", "!x y", &["beginning x y", "line x y"]),
            ("GIT_CONFIG_VALUE_0", "push x", &["git push x $", "line push x"]),
            ("GIT_CONFIG_GLOBAL", "/dev/null", &[]),
            ("GIT_CONFIG_GLOBAL", "x", &["$"]),
            ("MAKEFLAGS", "-j8 SHELL=x", &["x"]),
            ("MAKEFLAGS", "-j\0", &["$"]),
            ("RUSTFLAGS", "-D warnings -C linker=x -Copt-level=3", &["line x"]),
            ("NODE_OPTIONS", "--max-old-space-size=4096 --requ x", &["line x"]),
            ("NODE_OPTIONS", "--import data:x", &["$"]),
            ("PERL5OPT", "-Mstrict -w", &[]),
            ("PERL5OPT", "-Mx;y", &["$"]),
            ("LESS", "-R", &[]),
            ("LESS", "-R +!x", &["$"]),
            ("PS4", "+ ", &[]),
            ("PS4", "$(x)", &["line $(x)"]),
            ("ENV", "x", &["x"]),
            ("x", "y", &[]),
        ] {
            assert_eq!(found(name, value), wanted, "{name}={value:?}");
        }
    }
}
