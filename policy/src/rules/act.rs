//! Effects as rules compare them: each with its parts.

use std::borrow::Cow;

use serde_json::Value;

use crate::delegated::DelegatedWork;
use crate::effect::{Effect, EffectKind, FileScope, ProgramRun, ServedRequest};
use crate::path::HostPath;
use crate::pattern::escaped_pattern;
use crate::shell::input::{InputUse, SIGNALS};
use crate::shell::starts::{HOLE, KnownWord};

use super::commands::{CommandPart, OpenedFile};

/// How an effect belongs to its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EffectStanding {
    /// The call does it: it must be allowed.
    Own,
    /// The call does something else by it: rules that deny or ask apply.
    Implied,
    /// A program of the call could do it: rules about the capability that deny or ask apply.
    Reach,
}

/// A rule that there is not: one that allows exactly what no rule has decided about.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LackingRule {
    /// Its permission.
    pub permission: String,
    /// Its pattern, if its calls have an object that one can name.
    pub pattern: Option<String>,
}

/// One part of delegated work: rules judge each by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentPart<'a> {
    /// The agent's name.
    pub agent: &'a str,
    /// The prompt or the setting.
    pub what: AgentMatter<'a>,
}

/// A prompt, or what else a call says of an agent's work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentMatter<'a> {
    /// A prompt, with a hole for what is not known of it.
    Prompt(Cow<'a, str>),
    /// Another argument, by its name.
    Setting(&'a str, &'a Value),
}

impl<'a> AgentPart<'a> {
    /// All parts of delegated work.
    #[must_use]
    pub fn all(work: &'a DelegatedWork) -> Vec<Self> {
        let agent = &*work.agent;
        let prompts = work.prompts.iter().map(|prompt| AgentMatter::Prompt(prompt.known()));
        let settings = work.settings.iter().map(|(name, value)| AgentMatter::Setting(name, value));
        prompts.chain(settings).map(|what| Self { agent, what }).collect()
    }
}

/// A part of an effect that rules are compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act<'a> {
    /// The effect has no object.
    Nothing,
    /// One file.
    File(&'a HostPath),
    /// A directory and everything in it.
    Tree(&'a HostPath),
    /// A file of which no more is known than this, where `*` stands for any text.
    FileLike(&'a str),
    /// A directory and everything in it that is not denied: whoever goes through it leaves the rest out.
    Search(&'a HostPath),
    /// One command of a command line, or a statement.
    Command(CommandPart),
    /// A command line that could not be taken apart.
    UnknownCommand,
    /// A command line that no rule looks into.
    WholeLine,
    /// Text that a program is given to read at its start, or typed: [`Act::input`].
    Input {
        /// The text.
        text: Cow<'a, str>,
        /// Commands that it may have executed.
        commands: Vec<CommandPart>,
    },
    /// A host and its port.
    Host(&'a str, u16),
    /// A part of a subagent's work.
    Agent(AgentPart<'a>),
    /// A request that somebody else carries out.
    Request(&'a ServedRequest),
    /// Whatever a program could do.
    Anything,
}

impl Act<'_> {
    /// Files that shells open by it.
    pub(super) fn opens(&self) -> Vec<OpenedFile> {
        match self {
            Self::Command(command) => command.opens(),
            Self::Input { commands, .. } => commands.iter().flat_map(CommandPart::opens).collect(),
            Self::UnknownCommand => OpenedFile::any(),
            Self::Nothing
            | Self::File(_)
            | Self::Tree(_)
            | Self::FileLike(_)
            | Self::Search(_)
            | Self::WholeLine
            | Self::Host(..)
            | Self::Agent(_)
            | Self::Request(_)
            | Self::Anything => Vec::new(),
        }
    }

    /// True if it may do what none of its parts says.
    pub(super) fn hides(&self) -> bool {
        match self {
            Self::Command(command) => command.hides(),
            Self::Input { commands, .. } => commands.iter().any(CommandPart::hides),
            Self::Nothing
            | Self::File(_)
            | Self::Tree(_)
            | Self::FileLike(_)
            | Self::Search(_)
            | Self::UnknownCommand
            | Self::WholeLine
            | Self::Host(..)
            | Self::Agent(_)
            | Self::Request(_)
            | Self::Anything => false,
        }
    }
}

impl<'a> Act<'a> {
    /// A text for a program that uses its input like that. Of what a shell reads the commands are known as far as every shell reads
    /// it alike, and the rest may be any; of other programs each line of the text may be one.
    #[must_use]
    pub fn input(text: impl Into<Cow<'a, str>>, used: InputUse) -> Self {
        let text = text.into();
        let commands = match used {
            InputUse::Line => CommandPart::of_argv(&["sh", "-c", &text]).map_or_else(
                || vec![CommandPart::of_words(vec![KnownWord::anything()])],
                // The first is the shell itself.
                |parts| parts.into_iter().skip(1).collect(),
            ),
            InputUse::Code | InputUse::Data => text.lines().map(|line| CommandPart::of_text(line.trim())).collect(),
        };
        Self::Input { text, commands }
    }

    /// A text that is typed to a program, behind another. On a terminal some characters do something else than stand in a line, and an
    /// interactive shell puts earlier lines in the place of `!x` and `^x`: what such a text says is not known. Characters that interrupt,
    /// end or stop a program say nothing alone.
    fn typed((before, text): (&str, &str), on_terminal: bool) -> Self {
        if !text.is_empty() && text.chars().all(|c| SIGNALS.contains(&c)) {
            return Self::Input { text: text.to_owned().into(), commands: Vec::new() };
        }
        let whole = format!("{before}{text}").replace('\r', "\n");
        let is_key = |c: char| c.is_control() && c != '\n' && (on_terminal || c != '\t');
        // bash leaves these alone behind `!`.
        let recalls = |line: &str| {
            let behind = |rest: &str| rest.starts_with(|c: char| !matches!(c, ' ' | '\t' | '=' | '(' | '"'));
            line.starts_with('^') || line.match_indices('!').any(|(at, _)| behind(&line[at + 1..]))
        };
        if whole.contains(is_key) || whole.lines().any(recalls) {
            return Self::Input {
                text: whole.into(),
                commands: vec![CommandPart::of_words(vec![KnownWord::anything()])],
            };
        }
        Self::input(whole, InputUse::Line)
    }
}

impl Act<'_> {
    /// The act in words; `None` where there is nothing to name.
    pub(super) fn told(&self) -> Option<String> {
        match self {
            Self::Nothing | Self::WholeLine => None,
            Self::File(path) => Some(path.to_string()),
            Self::Tree(path) | Self::Search(path) => Some(format!("{path} and all beneath it")),
            Self::FileLike(like) => Some(format!("a file like {like}")),
            Self::Command(command) => {
                let at = command.directory().told().map(|directory| format!(" in {directory}")).unwrap_or_default();
                Some(format!("`{}`{at}", command.text().replace(HOLE, "…")))
            }
            Self::Input { .. } => Some("what it is given to read".to_owned()),
            Self::UnknownCommand => Some("a command line that cannot be taken apart before it runs".to_owned()),
            Self::Host(host, port) => Some(format!("{host}:{port}")),
            Self::Agent(part) => Some(format!("the agent {}", part.agent)),
            Self::Request(ServedRequest { words: Some(words), .. }) => Some(format!("`{words}`")),
            Self::Request(ServedRequest { arguments, .. }) => Some(format!("the arguments {arguments}")),
            Self::Anything => Some("what a program could do".to_owned()),
        }
    }
}

impl Act<'_> {
    /// The rule that allows just this act of an effect of this kind, of a call of `tool`.
    pub(super) fn rule(&self, kind: EffectKind, tool: &str) -> LackingRule {
        let permission = match kind {
            EffectKind::Shows => "read",
            EffectKind::Lists => "glob",
            EffectKind::Writes => "write",
            EffectKind::Runs => "bash",
            EffectKind::Connects => "web_fetch",
            EffectKind::Searches => "web_search",
            EffectKind::Delegates => "task",
            EffectKind::UsesSecrets => "secrets.has",
            EffectKind::Sends => "stream.send",
            EffectKind::Queries | EffectKind::Asks | EffectKind::Notes | EffectKind::Serves => tool,
        };
        // A text with a wildcard or a hole in it would be a pattern for others.
        let plain = |text: String| (!text.is_empty() && !text.contains(['*', HOLE, '\n'])).then_some(text);
        let path = |path: &HostPath| path.as_path().to_str().map(escaped_pattern);
        let pattern = match self {
            Self::File(file) => path(file),
            Self::Tree(tree) | Self::Search(tree) => {
                path(tree).map(|tree| format!("{}/**", tree.trim_end_matches('/')))
            }
            Self::Command(command) => match command.directory().told() {
                None => plain(command.text().to_owned()),
                Some(directory) => plain(command.text().to_owned())
                    .filter(|_| !directory.contains([' ', '\'', '"', '$', '~', '*', '\\', '`']))
                    .map(|text| format!("cd {directory} && {text}")),
            },
            Self::Host(host, port) => plain(format!("{host}:{port}")),
            Self::Agent(part) => plain(part.agent.to_owned()),
            Self::Request(ServedRequest { words: Some(words), .. }) => plain(words.clone()),
            Self::Request(_)
            | Self::Nothing
            | Self::FileLike(_)
            | Self::UnknownCommand
            | Self::WholeLine
            | Self::Input { .. }
            | Self::Anything => None,
        };
        LackingRule { permission: permission.to_owned(), pattern }
    }
}

/// An effect of a call, with its parts.
#[derive(Debug, Clone)]
pub struct JudgedEffect<'a> {
    /// The effect.
    pub effect: &'a Effect,
    /// How it belongs to the call.
    pub standing: EffectStanding,
    /// Its parts: each must be allowed.
    pub acts: Vec<Act<'a>>,
}

impl<'a> JudgedEffect<'a> {
    /// An effect whose parts are plain. Commands of a program are for whoever takes its line apart: it has none here that are known.
    #[must_use]
    pub fn new(effect: &'a Effect, standing: EffectStanding) -> Self {
        let act = match effect {
            Effect::Shows(FileScope::File(path))
            | Effect::Lists(FileScope::File(path))
            | Effect::Writes { path, .. } => Act::File(path),
            Effect::Shows(FileScope::Tree(path)) | Effect::Lists(FileScope::Tree(path)) => Act::Tree(path),
            Effect::Runs(ProgramRun::Typed { before, text, on_terminal, .. }) => {
                Act::typed((before, text), *on_terminal)
            }
            Effect::Runs(_) => Act::UnknownCommand,
            Effect::Connects(connection) => Act::Host(&connection.host, connection.port),
            Effect::Queries(query) => Act::Command(CommandPart::of_statement(&query.statement.text)),
            Effect::Delegates(work) => {
                let acts = AgentPart::all(work).into_iter().map(Act::Agent).collect();
                return Self { effect, standing, acts };
            }
            Effect::Serves(request) => Act::Request(request),
            Effect::Asks | Effect::Notes(_) | Effect::Uses(_) => Act::Nothing,
        };
        Self { effect, standing, acts: vec![act] }
    }

    /// The effect of a tool that leaves out what rules deny of a tree.
    #[must_use]
    pub fn leaving_out(mut self) -> Self {
        for act in &mut self.acts {
            if let Act::Tree(path) = act {
                *act = Act::Search(path);
            }
        }
        self
    }

    /// Replaces its parts.
    #[must_use]
    pub fn with(self, acts: Vec<Act<'a>>) -> Self {
        Self { acts, ..self }
    }
}
