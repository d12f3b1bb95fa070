//! Patterns of rules: what each matches (S0-51), and how specific it is (C-3).
//!
//! An allowing rule must cover all that a part of a call may mean; a rule that asks or denies need only touch it. So what is
//! not known of a command line (a variable's value) is never allowed by a pattern, and never slips past one.

use crate::effect::{EffectKind, EffectKinds};
use crate::path::HostPath;
use crate::pattern::{HostPattern, PathPattern, PathTemplate, PatternError};
use crate::variable::{PatternVariable, Variables};

use super::act::Act;
use super::agent::AgentPattern;
use super::mistake::{CommandMistake, mistake};
use super::request::{RequestPattern, plain_path};
use super::rule::Action;
use super::wildcard::{Pairs, Specificity, Wildcard, meet};

/// Mistake in a rule's `pattern`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RulePatternError {
    /// Rules about files have path patterns, rules about hosts host patterns.
    #[error("the pattern {text:?} cannot be read")]
    Malformed {
        /// As it is written.
        text: String,
        /// Cause.
        source: PatternError,
    },
    /// A directory in which no command runs.
    #[error(
        "the pattern {text:?} can never match: the directory between `cd` and `&&` is one path without blanks, quotes, `$` and `~`, \
         and without `..` behind `*`"
    )]
    Directory {
        /// As it is written.
        text: String,
    },
    /// An empty pattern.
    #[error("the pattern is empty, and no call has an empty object; leave `pattern` out to mean every call")]
    Empty,
    /// A pattern that no command is like.
    #[error("the pattern {text:?} can never match: {mistake}")]
    NoCommand {
        /// As it is written.
        text: String,
        /// Mistake in it.
        mistake: CommandMistake,
    },
    /// The permission is about calls without an object.
    #[error(
        "{permission:?} takes no pattern: its calls have no path, command, host or argument that one could be compared with"
    )]
    NoObject {
        /// The rule's permission.
        permission: String,
    },
    /// A variable whose directory would be read as a pattern.
    #[error("the pattern {text:?} cannot be used: a directory that it is about has a `*` in its name")]
    Star {
        /// As it is written.
        text: String,
    },
}

/// A pattern, ready to match.
#[derive(Debug, Clone)]
pub(super) enum Matcher {
    /// Everything.
    All,
    Command(Wildcard),
    /// A text that a command holds, in small letters.
    Phrase(Wildcard),
    /// With the bytes that everything it matches begins with: most rules are about another place.
    Path(Box<PathPattern>, Box<[u8]>),
    Host(Box<HostPattern>, String),
    /// A subagent's work, by its name, a prompt or another argument.
    Agent(Box<AgentPattern>),
    /// A request, by its arguments.
    Request(Box<RequestPattern>),
}

/// Meanings of a pattern, by what the permission is about.
#[derive(Debug, Clone, Copy)]
struct Meanings {
    commands: bool,
    paths: bool,
    hosts: bool,
    agents: bool,
    requests: bool,
}

impl Meanings {
    fn of(kinds: EffectKinds) -> Self {
        use EffectKind::{Connects, Delegates, Lists, Queries, Runs, Searches, Serves, Shows, Writes};
        let has = |kinds_of: &[EffectKind]| kinds.meets(EffectKinds::of(kinds_of));
        let commands = has(&[Runs, Queries]);
        // Where a command or a statement is the object, the rest is how it is carried out.
        let others = !commands || kinds == EffectKinds::ALL;
        Self {
            commands,
            paths: others && has(&[Shows, Lists, Writes]),
            hosts: others && has(&[Connects, Searches]),
            agents: has(&[Delegates]),
            requests: has(&[Serves]),
        }
    }

    fn are_none(self) -> bool {
        !(self.commands || self.paths || self.hosts || self.agents || self.requests)
    }
}

impl Matcher {
    /// One for each meaning that a pattern may have: a rule about everything has a command's, a path's and a host's.
    pub(super) fn compile(
        (permission, kinds): (&str, EffectKinds),
        (pattern, action): (Option<&str>, Action),
        variables: &Variables,
    ) -> Result<Vec<Self>, RulePatternError> {
        let Some(text) = pattern.filter(|text| !matches!(*text, "*" | "**")) else { return Ok(vec![Self::All]) };
        if text.is_empty() {
            return Err(RulePatternError::Empty);
        }
        let meanings = Meanings::of(kinds);
        if meanings.are_none() {
            return Err(RulePatternError::NoObject { permission: permission.to_owned() });
        }
        let is_about_all = kinds == EffectKinds::ALL;
        let mut all = Vec::new();
        if meanings.commands {
            match Self::commands(text, (kinds, action), variables) {
                Ok(commands) => all.extend(commands),
                // It is a path with blanks.
                Err(RulePatternError::NoCommand { .. }) if is_about_all && is_path(text) => {}
                Err(error) => return Err(error),
            }
        }
        let malformed = |source| RulePatternError::Malformed { text: text.to_owned(), source };
        let paths = Self::paths(text, action, variables).map_err(malformed);
        let parse_host = if action == Action::Allow { HostPattern::parse } else { HostPattern::parse_denied };
        let host = || parse_host(text).map(|host| Self::Host(Box::new(host), text.to_owned())).map_err(malformed);
        if meanings.paths && (!is_about_all || is_path(text)) {
            match paths {
                Ok(paths) => all.extend(paths),
                Err(error) if !is_about_all && !meanings.hosts => return Err(error),
                Err(_) => {}
            }
        }
        if meanings.hosts {
            match host() {
                Ok(host) => all.push(host),
                Err(error) if all.is_empty() && !meanings.requests => return Err(error),
                Err(_) => {}
            }
        }
        if meanings.agents {
            all.push(Self::Agent(Box::new(AgentPattern::new(text))));
        }
        if meanings.requests {
            all.push(Self::Request(Box::new(RequestPattern::new(text, variables))));
        }
        Ok(all)
    }

    /// A rule that denies or asks about a path is about all that lies below it too, as another pattern: the path itself is more exact.
    fn paths(text: &str, action: Action, variables: &Variables) -> Result<Vec<Self>, PatternError> {
        let path = |pattern: PathPattern| {
            let prefix = pattern.literal_prefix();
            Self::Path(Box::new(pattern), prefix.as_bytes().into())
        };
        let below = |pattern: &PathPattern| {
            (action != Action::Allow && pattern.is_literal()).then(|| pattern.clone().with_below())
        };
        // A path that a person has allowed may end in one.
        if action != Action::Allow && text.trim() != text {
            return Err(PatternError::Blank);
        }
        // Whether `docs/` allows what lies in it, its author has to say.
        let plain = plain_path(text);
        let is_open = plain.is_empty() || (action == Action::Allow && text.ends_with('/'));
        let template = PathTemplate::parse(if is_open { text } else { &plain })?;
        let each = |pattern: PathPattern| below(&pattern).into_iter().chain([pattern]);
        Ok(template.expand(variables).into_iter().flat_map(each).map(path).collect())
    }

    fn commands(
        text: &str,
        (kinds, action): (EffectKinds, Action),
        variables: &Variables,
    ) -> Result<Vec<Self>, RulePatternError> {
        let named = |dirs: &[HostPath]| dirs.iter().any(|dir| dir.as_bytes().contains(&b'*'));
        let mut used =
            PatternVariable::ALL.iter().filter(|(name, _)| text.contains(name)).map(|(_, variable)| variable);
        // A directory's own star would allow others.
        if action == Action::Allow && used.any(|variable| named(variables.dirs(*variable))) {
            return Err(RulePatternError::Star { text: text.to_owned() });
        }
        let pattern = Wildcard::new(text);
        if pattern.runs_nowhere() {
            return Err(RulePatternError::Directory { text: text.to_owned() });
        }
        let command = pattern.command();
        if command.trim().is_empty() {
            return Err(RulePatternError::Empty);
        }
        // A statement is a text.
        if kinds.has(EffectKind::Runs)
            && let Some(mistake) = mistake(command)
        {
            return Err(RulePatternError::NoCommand { text: text.to_owned(), mistake });
        }
        let in_place = |text: String| Self::Command(Wildcard::new(&text).within(variables.workspace()));
        Ok(with_directories(text, variables).into_iter().map(in_place).collect())
    }

    /// Commands that hold a text, in capitals or not.
    pub(super) fn phrase(text: &str) -> Self {
        Self::Phrase(Wildcard::new(&format!("*{}*", text.to_ascii_lowercase())))
    }

    /// Pairs that a value must have for the pattern to be about it.
    pub(super) fn pairs(&self) -> Pairs {
        match self {
            Self::Command(pattern) => pattern.pairs(),
            Self::Path(_, prefix) => Pairs::of_bytes(prefix),
            Self::All | Self::Phrase(_) | Self::Host(..) | Self::Agent(_) | Self::Request(_) => Pairs::NONE,
        }
    }

    /// True if it is about some commands.
    pub(super) fn is_command(&self) -> bool {
        matches!(self, Self::Command(_))
    }

    /// True if it is one command and no other.
    pub(super) fn is_exact(&self) -> bool {
        matches!(self, Self::Command(pattern) if pattern.specificity().is_exact)
    }

    pub(super) fn looks_at_commands(&self) -> bool {
        matches!(self, Self::Command(_) | Self::Phrase(_))
    }

    /// True for a pattern about files that commands read: `< *key`.
    pub(super) fn names_read_files(&self) -> bool {
        matches!(self, Self::Command(pattern) if pattern.text().starts_with('<'))
    }

    /// True if a rule with this action is about an act.
    pub(super) fn applies(&self, action: Action, act: &Act<'_>) -> bool {
        let tightens = action != Action::Allow;
        match (self, act) {
            (Self::All, _) => true,
            (Self::Command(pattern), Act::Command(command)) => match tightens {
                true => pattern.is_about(command),
                false => pattern.covers(command),
            },
            (Self::Command(pattern), Act::Input { text, commands }) => {
                tightens && (pattern.matches(text) || commands.iter().any(|command| pattern.is_about(command)))
            }
            (Self::Phrase(text), Act::Command(command)) => text.touches(&command.text().to_ascii_lowercase()),
            (Self::Phrase(phrase), Act::Input { text, .. }) => phrase.matches(&text.to_ascii_lowercase()),
            (Self::Path(pattern, prefix), Act::File(path)) => {
                path.as_bytes().starts_with(prefix) && pattern.matches(path)
            }
            (Self::Path(pattern, _), Act::FileLike(like)) => {
                tightens && meet(spread(&pattern.to_string()).as_bytes(), like.as_bytes())
            }
            (Self::Path(pattern, _), Act::Tree(path)) => PathPattern::subtree(path)
                .is_none_or(|tree| if tightens { !tree.disjoint(pattern) } else { tree.within(pattern) }),
            // What is denied within it is left out.
            (Self::Path(pattern, _), Act::Search(path)) if action == Action::Deny => {
                pattern.matches(path) || PathPattern::subtree(path).is_none_or(|tree| tree.within(pattern))
            }
            (Self::Path(..), Act::Search(path)) => self.applies(action, &Act::Tree(path)),
            (Self::Host(pattern, _), Act::Host(host, port)) => pattern.matches(host, *port),
            (Self::Agent(pattern), Act::Agent(part)) => match tightens {
                true => pattern.touches(part),
                false => pattern.covers(part),
            },
            (Self::Request(pattern), Act::Request(request)) => match tightens {
                true => pattern.touches(request),
                false => pattern.covers(request),
            },
            (Self::Command(_) | Self::Phrase(_), Act::UnknownCommand | Act::WholeLine)
            | (Self::Path(..) | Self::Host(..), Act::Anything) => tightens,
            (
                Self::Command(_)
                | Self::Phrase(_)
                | Self::Path(..)
                | Self::Host(..)
                | Self::Agent(_)
                | Self::Request(_),
                _,
            ) => false,
        }
    }

    pub(super) fn specificity(&self) -> Specificity {
        let of = |text: &str, is_exact: bool| {
            let wild = |c: char| "*?[{".contains(c);
            let (prefix, wildcards) = match is_exact {
                true => (text.len(), 0),
                false => (text.find(wild).unwrap_or(text.len()), text.matches(wild).count()),
            };
            Specificity { is_exact, prefix, wildcards }
        };
        match self {
            Self::All => Specificity::any(),
            Self::Command(pattern) | Self::Phrase(pattern) => pattern.specificity(),
            Self::Agent(pattern) => pattern.specificity(),
            Self::Request(pattern) => of(pattern.text(), !pattern.text().contains('*')),
            Self::Path(pattern, _) => of(&pattern.to_string(), pattern.is_literal()),
            Self::Host(_, text) => of(text, !text.contains('*')),
        }
    }
}

/// A pattern for each of the directories that its variables stand for.
fn with_directories(text: &str, variables: &Variables) -> Vec<String> {
    let expand = |texts: Vec<String>, (name, variable): &(&str, PatternVariable)| {
        let each = |text: String| match text.contains(name) {
            true => variables.dirs(*variable).iter().map(|dir| text.replace(name, &dir.to_string())).collect(),
            false => vec![text],
        };
        texts.into_iter().flat_map(each).collect()
    };
    PatternVariable::ALL.iter().fold(vec![text.to_owned()], expand)
}

/// A pattern for paths in which `*` stands for any text, and that matches all that this one does.
fn spread(pattern: &str) -> String {
    let mut spread = String::with_capacity(pattern.len());
    let mut chars = pattern.strip_suffix("/**").unwrap_or(pattern).chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => spread.extend(chars.next()),
            '*' => {
                let is_deep = chars.next_if_eq(&'*').is_some();
                // `**/` stands for no directory as well.
                if is_deep {
                    chars.next_if_eq(&'/');
                }
                spread.push('*');
            }
            '?' => spread.push('*'),
            // One of several texts, and what is behind them.
            '[' | '{' => return spread + "*",
            c => spread.push(c),
        }
    }
    if pattern.ends_with("/**") { spread + "*" } else { spread }
}

/// True if a pattern of a rule about everything may name files: one with a blank is a command, unless it begins as a path does.
fn is_path(text: &str) -> bool {
    !text.contains(' ') || text.starts_with(['/', '{']) || text.starts_with("./")
}
