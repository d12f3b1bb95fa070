//! Parts of the built-in rules: the rule, what it looks at, and questions about a command line that several ask.

use crate::watchdog::words::PipedCommand;

/// Subject of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pack {
    /// Loss that no undo brings back.
    Destruction,
    /// Sending away what should stay.
    Exfiltration,
    /// Keys, tokens and passwords.
    Credentials,
    /// Programs that run later, when nobody looks.
    Persistence,
    /// Becoming someone else.
    Privilege,
    /// Running what a stranger wrote, unseen or unproven.
    SupplyChain,
}

impl Pack {
    /// A rule over the commands of a command line.
    pub(super) const fn guard(
        self,
        name: &'static str,
        reason: &'static str,
        caught: &'static str,
        passed: &'static str,
        on: fn(&[PipedCommand]) -> bool,
    ) -> Guard {
        Guard { name, pack: self, reason, caught, passed, on: On::Commands(on), asks: false }
    }

    /// A rule that asks, about what a person may want: what only harms the workspace, or sends something away.
    pub(super) const fn asks(
        self,
        name: &'static str,
        reason: &'static str,
        caught: &'static str,
        passed: &'static str,
        on: fn(&[PipedCommand]) -> bool,
    ) -> Guard {
        Guard { asks: true, ..self.guard(name, reason, caught, passed, on) }
    }
}

/// One rule.
#[derive(Debug, Clone, Copy)]
pub struct Guard {
    /// Its name, as verdicts tell it.
    pub name: &'static str,
    /// Pack that it belongs to.
    pub pack: Pack,
    /// Reason for model and person.
    pub reason: &'static str,
    /// Example that it denies or asks about: a command line, or a path.
    pub caught: &'static str,
    /// Something similar that it lets pass.
    pub passed: &'static str,
    pub(super) on: On,
    /// A person is asked; else it is denied.
    pub(super) asks: bool,
}

/// Target of a rule.
#[derive(Debug, Clone, Copy)]
pub(super) enum On {
    /// The commands of a command line.
    Commands(fn(&[PipedCommand]) -> bool),
    /// The files that a tool touches so.
    Path(Touch, fn(&str) -> bool),
}

/// Act of a tool on a file.
#[derive(Debug, Clone, Copy)]
pub(super) enum Touch {
    Read,
    Change,
}

/// The texts that an interpreter is handed to run.
pub(super) fn text_of(command: &PipedCommand) -> Option<&str> {
    let (name, args) = command.program()?;
    let flags: &[&str] = match name {
        "python" | "python3" => &["-c"],
        "perl" | "ruby" | "node" | "deno" | "bun" => &["-e", "-E", "--eval"],
        "php" => &["-r"],
        _ => return None,
    };
    let at = args.iter().position(|arg| flags.contains(&arg.as_str()))?;
    args.get(at + 1).map(String::as_str)
}

/// True if an interpreter is handed such a text.
pub(super) fn runs_text(commands: &[PipedCommand], is: fn(&str) -> bool) -> bool {
    commands.iter().filter_map(text_of).any(is)
}

/// True if one of these programs reads such a text from the command before it, or from the line.
pub(super) fn fed_with(commands: &[PipedCommand], names: &[&str], is: fn(&str) -> bool) -> bool {
    commands.iter().enumerate().any(|(at, command)| {
        let printed = at.checked_sub(1).and_then(|at| commands.get(at)).filter(|_| command.piped);
        let printed = printed.filter(|before| named(before, &["echo", "printf"]));
        named(command, names) && printed.is_some_and(|before| is(&before.words[1..].join(" ")))
    })
}

pub(super) fn any(commands: &[PipedCommand], is: impl Fn(&str, &[String]) -> bool) -> bool {
    commands.iter().filter_map(PipedCommand::program).any(|(name, args)| is(name, args))
}

pub(super) fn named(command: &PipedCommand, names: &[&str]) -> bool {
    command.program().is_some_and(|(name, _)| names.contains(&name))
}

/// A short option, alone or among others.
pub(super) fn has_short(args: &[String], flag: char) -> bool {
    args.iter().any(|arg| arg.starts_with('-') && !arg.starts_with("--") && arg.contains(flag))
}

/// Where the output of a command goes.
pub(super) fn writes_to(commands: &[PipedCommand], is: fn(&str) -> bool) -> bool {
    commands.iter().any(|command| {
        let redirected = command.words.windows(2).any(|pair| pair[0] == ">" && is(&pair[1]));
        let teed = command.program().is_some_and(|(name, args)| name == "tee" && args.iter().any(|arg| is(arg)));
        redirected || teed
    })
}

/// Path below the home directory or a user's, without that.
pub(super) fn below_home(path: &str) -> Option<&str> {
    let rest = ["~/", "$HOME/", "${HOME}/", "/root/"].iter().find_map(|home| path.strip_prefix(home));
    rest.or_else(|| path.strip_prefix("/home/").and_then(|path| path.split_once('/')).map(|(_, rest)| rest))
}

pub(super) const NETWORK: &[&str] =
    &["curl", "wget", "nc", "ncat", "netcat", "socat", "telnet", "ssh", "sendmail", "mail", "ftp"];
pub(super) const FETCHES: &[&str] = &["curl", "wget", "fetch"];
pub(super) const SHELLS: &[&str] =
    &["sh", "bash", "zsh", "dash", "ksh", "fish", "python", "python3", "perl", "ruby", "node"];
