//! A command line as bash would understand it, as plain data (C-23, C2, C3).
//!
//! The grammar is C code and reads what a model wrote, so it runs in a confined worker (`worker/tools/src/shell.rs`); this
//! is what the worker says of the line. It is a list of simple commands, wherever they stand: in lists, pipelines, groups,
//! functions, loops and substitutions. It is flat, and each command says what it lies in.
//!
//! **Fail closed.** A line that is not understood as a whole has a reason in [`Line::unknown`]. Whoever decides by a line
//! asks [`Line::understood`] first, which gives the commands only if there are no others.

pub mod input;
mod known;
pub(crate) mod options;
pub mod plain;
pub(crate) mod programs;
pub mod reading;
pub mod restricted;
mod starters;
pub mod starts;
pub(crate) mod variables;
mod wrappers;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The longest command line that the grammar is given, bytes.
pub const LINE_MAX: usize = 64 * 1024;

/// A command line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Every simple command, an outer one before those of its substitutions; what was met before the reason in `unknown`,
    /// if there is one.
    pub commands: Vec<Simple>,
    /// Reason why it was not understood as a whole.
    pub unknown: Option<Unknown>,
    /// Lines that its commands hand to shells, by their texts, at every depth (`bash -c LINE`, `eval LINE`, a shell's
    /// here-document), as the same grammar reads them. The lines themselves have none. A text that is missing was not read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inner: BTreeMap<String, Line>,
}

/// Text that was not understood.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unknown {
    /// Reason, in words for model and person.
    pub why: String,
    /// Where, in bytes from the start.
    pub at: usize,
}

/// A simple command: words, and the assignments and redirections that go with them. One without words only assigns
/// (`x=1`, or a loop's variable) or only redirects (`>file`, or what is behind a group).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Simple {
    /// The command's name and its arguments, quotes removed.
    pub words: Vec<Word>,
    /// Assignments before them.
    pub assignments: Vec<Assignment>,
    /// Its redirections, in their order.
    pub redirects: Vec<Redirect>,
    /// Nests that it lies in, the outermost first.
    pub within: Vec<Nest>,
}

/// A word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// Always this text.
    Static(String),
    /// Text that is made when it runs, and what is known of it.
    Dynamic(Vec<Piece>),
}

/// A part of a word that is made when it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Piece {
    /// This text.
    Text(String),
    /// A variable's value, or a part of it.
    Variable {
        /// Its name.
        name: String,
        /// In double quotes, so that it stays in one word.
        quoted: bool,
        /// It may be changed on the way, or another text stands for it (`${x%.*}`, `${x:-y}`).
        changed: bool,
    },
    /// The output of commands, which are in the line.
    Output {
        /// In double quotes, so that it stays in one word.
        quoted: bool,
    },
    /// The name of a pipe from or to commands, which are in the line: `<(…)`.
    Pipe,
    /// The home directory, as `~`.
    Home,
    /// Another user's home directory, or one of `~+` and `~-`.
    Tilde,
    /// A number.
    Number,
    /// `*`, `?` or `[`: file names.
    Glob(char),
    /// `{a,b}`: several words.
    Braces,
}

/// A variable that is given a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    /// The variable.
    pub name: String,
    /// Its value; several for an array, or for a loop's variable.
    pub values: Vec<Word>,
}

/// A redirection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redirect {
    /// `<`, `>`, `>>`, `>|`, `&>`, `&>>`, `>&`, `<&`, `>&-`, `<&-`, `<<`, `<<-`, `<<<`.
    pub operator: String,
    /// The descriptor, if it is named.
    pub fd: Option<u32>,
    /// Where it leads, or the text itself for `<<` and `<<<`. `None` for what is closed.
    pub target: Option<Word>,
}

/// Construct that a command lies in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nest {
    /// A pipeline, and the place in it.
    Pipeline {
        /// Which, counted in the line.
        id: u32,
        /// 0 reads what the line reads.
        stage: u32,
    },
    /// `( … )`.
    Subshell,
    /// `{ …; }`.
    Group,
    /// A function's body.
    Function {
        /// Its name.
        name: String,
    },
    /// The body or the condition of a loop.
    Loop,
    /// A part of `if` or `case`.
    Branch,
    /// `$(…)`, backquotes, `<(…)` or `>(…)`.
    Substitution {
        /// The command whose word or text it is, as an index in the line.
        of: usize,
        /// It is fed by that command: `>(…)`.
        fed: bool,
    },
}

impl Line {
    /// A line of which nothing is known but that.
    #[must_use]
    pub fn unknown(why: impl Into<String>, at: usize) -> Self {
        Self { unknown: Some(Unknown { why: why.into(), at }), ..Self::default() }
    }

    /// All its commands.
    ///
    /// # Errors
    /// Why there may be others.
    pub fn understood(&self) -> Result<&[Simple], &Unknown> {
        match &self.unknown {
            None => Ok(&self.commands),
            Some(unknown) => Err(unknown),
        }
    }

    /// The commands whose output the command `at` reads by a pipe, nearest pipeline first.
    pub fn feeders(&self, at: usize) -> impl Iterator<Item = &Simple> {
        let within = self.commands.get(at).map(|command| command.within.as_slice()).unwrap_or_default();
        within.iter().rev().flat_map(move |nest| {
            let mut before = None;
            let mut fed_by = None;
            if let Nest::Pipeline { id, stage: stage @ 1.. } = nest {
                before = Some(Nest::Pipeline { id: *id, stage: *stage - 1 });
            } else if let Nest::Substitution { of, fed: true } = nest {
                fed_by = self.commands.get(*of);
            }
            let from = before
                .into_iter()
                .flat_map(|before| self.commands.iter().filter(move |command| command.within.contains(&before)));
            from.chain(fed_by)
        })
    }
}

impl Simple {
    /// The command's name, if it is always the same.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.words.first().and_then(Word::text)
    }

    /// True if it reads from a pipe.
    #[must_use]
    pub fn piped(&self) -> bool {
        self.within
            .iter()
            .any(|nest| matches!(nest, Nest::Pipeline { stage: 1.., .. } | Nest::Substitution { fed: true, .. }))
    }
}

impl Word {
    /// Its text, if it is always the same.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Static(text) => Some(text),
            Self::Dynamic(_) => None,
        }
    }

    /// Text that it certainly begins with.
    #[must_use]
    pub fn known_start(&self) -> &str {
        match self {
            Self::Static(text) => text,
            Self::Dynamic(pieces) => match pieces.first() {
                Some(Piece::Text(text)) => text,
                _ => "",
            },
        }
    }

    /// True if it may be none, or several, in any way: file names and braces too.
    #[must_use]
    pub fn may_be_several(&self) -> bool {
        let files = |piece: &Piece| matches!(piece, Piece::Glob(_) | Piece::Braces);
        self.may_split() || matches!(self, Self::Dynamic(pieces) if pieces.iter().any(files))
    }

    /// True if it may be none, or several, of which only the first begins as this one does.
    #[must_use]
    pub fn may_split(&self) -> bool {
        match self {
            Self::Static(_) => false,
            Self::Dynamic(pieces) => pieces.iter().any(|piece| match piece {
                // Numbers, which are there.
                Piece::Variable { name, changed: false, .. } if matches!(name.as_str(), "?" | "#" | "$") => false,
                Piece::Variable { name, quoted, .. } => !quoted || name == "@",
                Piece::Output { quoted } => !quoted,
                Piece::Text(_)
                | Piece::Pipe
                | Piece::Home
                | Piece::Tilde
                | Piece::Number
                | Piece::Glob(_)
                | Piece::Braces => false,
            }),
        }
    }

    /// True if one of the words that it becomes may begin with `-`. `$HOME` and `$PWD` begin with a slash unless the
    /// line sets them.
    #[must_use]
    pub fn may_be_option(&self) -> bool {
        let Self::Dynamic(pieces) = self else { return self.known_start().starts_with('-') };
        let first = match pieces.first() {
            Some(Piece::Text(text)) => text.starts_with('-') || text.is_empty(),
            // A pipe's name and a home directory begin with a slash.
            Some(Piece::Variable { name, changed: false, .. }) if matches!(name.as_str(), "HOME" | "PWD") => false,
            Some(Piece::Pipe | Piece::Home | Piece::Tilde) => false,
            Some(Piece::Variable { .. } | Piece::Output { .. } | Piece::Number | Piece::Glob(_) | Piece::Braces)
            | None => true,
        };
        first || self.may_split()
    }

    /// As a person would write it; what is not known is `…`.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Self::Static(text) => text.clone(),
            Self::Dynamic(pieces) => pieces
                .iter()
                .map(|piece| match piece {
                    Piece::Text(text) => text.clone(),
                    Piece::Variable { name, .. } => format!("${name}"),
                    Piece::Glob(c) => c.to_string(),
                    Piece::Home => "~".to_owned(),
                    Piece::Output { .. } | Piece::Pipe | Piece::Tilde | Piece::Number | Piece::Braces => "…".to_owned(),
                })
                .collect(),
        }
    }
}
