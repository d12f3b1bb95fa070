//! Programs with a way of their own to start others, which no row of a table says.

use super::known::{HOLE, KnownWord};
use super::programs;
use super::starts::{CommandStart, any_word, behind, joined, moved};

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
    ("trailer.", "command"),
    ("trailer.", "cmd"),
];

fn anything(at: usize) -> CommandStart {
    CommandStart::Command { words: vec![KnownWord::anything()], at }
}

fn line(text: &str, at: usize) -> CommandStart {
    CommandStart::Line { text: KnownWord::known(text), at }
}

/// Commands that git starts: by settings of the line, by options that take a line, by subcommands that run one.
pub(super) fn git(args: &[KnownWord]) -> Vec<CommandStart> {
    let mut found = Vec::new();
    let fixed = |at: usize| args.get(at).and_then(KnownWord::fixed);
    for (at, subcommand) in programs::subcommands_of("git", args) {
        for given in 0..at {
            let setting = match fixed(given) {
                Some("-c") => args.get(given + 1).map(|word| (word.text.as_str(), given + 2)),
                Some(word) => word.strip_prefix("-c").map(|setting| (setting, given + 1)),
                None => None,
            };
            found.extend(setting.and_then(|(setting, place)| set_line(setting.split_once('=')?, place)));
        }
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
            ("grep", _) => found.extend(values(args, from, &["--open-files-in-pager"])),
            _ => {}
        }
    }
    found.dedup();
    found
}

/// Program that a setting has git start. An alias is another command of git's, or a line.
fn set_line((key, value): (&str, &str), at: usize) -> Option<CommandStart> {
    let key = key.to_ascii_lowercase();
    if key.contains(HOLE) {
        return Some(anything(at));
    }
    if key.starts_with("alias.") {
        return Some(match value.strip_prefix('!') {
            Some(text) => line(text, at),
            None if value.contains(HOLE) => anything(at),
            None => {
                let words = std::iter::once("git").chain(value.split_whitespace()).map(KnownWord::known);
                CommandStart::Command { words: words.collect(), at }
            }
        });
    }
    let is_line = GIT_LINES.iter().any(|(start, end)| key.starts_with(start) && key.ends_with(end));
    let is_text = !matches!(value, "" | "true" | "false" | "cat" | "store" | "cache");
    (is_line && is_text).then(|| line(value.trim_start_matches('!'), at))
}

/// Lines that options take, in the same word or the next.
fn values(args: &[KnownWord], from: usize, options: &[&str]) -> Vec<CommandStart> {
    let mut found = Vec::new();
    for at in from..args.len() {
        let text = args[at].text.as_str();
        for option in options {
            if text == *option {
                found.extend(args.get(at + 1).map(|value| CommandStart::Line { text: value.clone(), at: at + 2 }));
            } else if let Some(value) = text.strip_prefix(option) {
                let value = value.strip_prefix('=').or_else(|| (option.len() == 2).then_some(value));
                found.extend(value.map(|value| CommandStart::Line {
                    text: KnownWord { text: value.to_owned(), several: args[at].several },
                    at: at + 1,
                }));
            }
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

/// `make SHELL=program` runs its lines with another program.
pub(super) fn make(args: &[KnownWord]) -> Vec<CommandStart> {
    let shell = |(at, arg): (usize, &KnownWord)| {
        let value = arg.text.strip_prefix("SHELL")?.trim_start_matches([':', '?', '+']).strip_prefix('=')?;
        let words =
            value.split_whitespace().map(|word| KnownWord { text: word.to_owned(), several: word.contains(HOLE) });
        Some(CommandStart::Command { words: words.collect(), at: at + 1 })
    };
    let evaluated =
        args.iter().enumerate().filter(|(_, arg)| arg.text.starts_with("--eval")).map(|(at, _)| anything(at + 1));
    args.iter().enumerate().filter_map(shell).chain(evaluated).collect()
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
    let given = values(args, 0, &["-c", "-e"]).into_iter().filter_map(|start| match start {
        CommandStart::Line { text, at } => Some((text.text, at)),
        CommandStart::Command { .. } | CommandStart::File { .. } => None,
    });
    let mut found = Vec::new();
    for (text, at) in given {
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
