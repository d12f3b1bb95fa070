//! Words of a command line as far as they are known before it runs.

use super::{Piece, Word};

/// Stands in a text for what is not known before it runs. No command line holds a NUL.
pub const HOLE: char = '\0';

/// A word as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownWord {
    /// With a [`HOLE`] for each part that is made when it runs.
    pub text: String,
    /// It may become none, or more words than this one.
    pub several: bool,
}

impl KnownWord {
    /// A word that is known.
    pub fn known(text: impl Into<String>) -> Self {
        Self { text: text.into(), several: false }
    }

    /// Anything at all.
    #[must_use]
    pub fn anything() -> Self {
        Self { text: HOLE.to_string(), several: true }
    }

    /// Its text, if all of it is known.
    #[must_use]
    pub fn fixed(&self) -> Option<&str> {
        (!self.several && !self.text.contains(HOLE)).then_some(self.text.as_str())
    }

    /// Text of a word that bash's grammar did not read: what expands in it is not known. Its quotes are gone, so that a
    /// glob or a brace may be one.
    #[must_use]
    pub fn unparsed(word: &str) -> Self {
        match first_expansion(word) {
            Some(at) => Self { text: format!("{}{HOLE}", &word[..at]), several: true },
            None => Self::known(word),
        }
    }
}

/// Where bash may begin to make something else of a word.
fn first_expansion(word: &str) -> Option<usize> {
    // These are names of commands.
    if matches!(word, "[" | "[[") {
        return None;
    }
    let tilde = word.starts_with('~').then_some(0);
    // `{}` and `{x}` stay as they are.
    let brace = word.find('{').filter(|at| word[*at..].contains(',') || word[*at..].contains(".."));
    tilde.into_iter().chain(brace).chain(word.find(['$', '`', '*', '?', '['])).min()
}

impl From<&Word> for KnownWord {
    fn from(word: &Word) -> Self {
        let pieces = match word {
            Word::Static(text) => return Self::known(text.replace(HOLE, "?")),
            Word::Dynamic(pieces) => pieces,
        };
        let text = |piece: &Piece| match piece {
            Piece::Text(text) => text.replace(HOLE, "?"),
            Piece::Variable { .. }
            | Piece::Output { .. }
            | Piece::Pipe
            | Piece::Home
            | Piece::Tilde
            | Piece::Number
            | Piece::Glob(_)
            | Piece::Braces => HOLE.to_string(),
        };
        let names = pieces.iter().any(|piece| matches!(piece, Piece::Glob(_) | Piece::Braces));
        Self { text: pieces.iter().map(text).collect(), several: names || word.may_split() }
    }
}

/// A path's last name.
#[must_use]
pub fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// True if a program reads a line as a shell does, behind `-c`.
#[must_use]
pub fn is_shell(name: &str) -> bool {
    matches!(
        name,
        "sh" | "bash"
            | "rbash"
            | "dash"
            | "ash"
            | "zsh"
            | "ksh"
            | "mksh"
            | "fish"
            | "csh"
            | "tcsh"
            | "yash"
            | "posh"
            | "oksh"
            | "loksh"
            | "lksh"
            | "hush"
            | "osh"
            | "ysh"
            | "nu"
            | "elvish"
            | "xonsh"
            | "pwsh"
            | "powershell"
    )
}

/// `NAME=value`, as a word before a command.
#[must_use]
pub fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(left, _)| is_name(left))
}

/// `NAME=value` and `NAME+=value`.
pub(crate) fn assigned(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let name = name.strip_suffix('+').unwrap_or(name);
    is_name(name).then_some((name, value))
}

/// A variable's name.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
