//! Globs: `*`, `?`, `[…]`, `{a,b}` and `**`, compared character by character.
//!
//! A character is a Unicode scalar value in UTF-8; a byte that is part of none counts as one. Nothing is normalised: a name in NFD is
//! another name than the same in NFC, as it is to the kernel.

use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::PatternError;

/// A glob beneath a directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Glob {
    text: String,
    tokens: Vec<GlobToken>,
}

/// A part of a glob. None but the deep ones matches a `/` that is not written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum GlobToken {
    Character(char),
    /// `?`
    Any,
    /// `*`
    Star,
    /// `[…]`
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
    /// `{a,b}`
    Either(Vec<Vec<GlobToken>>),
    /// `**/` at the begin: nothing, or whole components.
    DeepBegin,
    /// `/**/`: a slash, with or without whole components behind it.
    Deep,
    /// `/**` at the end: a slash and all behind it.
    DeepEnd,
}

impl Glob {
    /// Reads a glob.
    ///
    /// # Errors
    /// [`PatternError::Glob`], naming what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, PatternError> {
        let mut parser = Parser { rest: text.chars().peekable(), before: None, now: None };
        let (mut branches, end) = parser.branches(false)?;
        match (end, branches.pop()) {
            (None, Some(tokens)) => Ok(Self { text: text.to_owned(), tokens }),
            _ => Err(wrong("a `}` without its `{`")),
        }
    }

    /// Returns what was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// True if all of a relative path matches.
    pub(crate) fn matches(&self, path: &Path) -> bool {
        if self.tokens == [GlobToken::DeepBegin] {
            return true;
        }
        let units = units(path);
        let mut from = vec![false; units.len() + 1];
        from[0] = true;
        ends(&self.tokens, &units, from).last() == Some(&true)
    }
}

/// Prints what was written.
impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Glob").field(&self.text).finish()
    }
}

impl TryFrom<String> for Glob {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        Self::parse(&text)
    }
}

impl From<Glob> for String {
    fn from(glob: Glob) -> Self {
        glob.text
    }
}

const SLASH: u32 = '/' as u32;

/// The characters of a path as numbers. A byte that is part of no character has one that no character has.
fn units(path: &Path) -> Vec<u32> {
    const BEYOND: u32 = char::MAX as u32 + 1;
    let chunks = path.as_os_str().as_bytes().utf8_chunks();
    let units = chunks.flat_map(|chunk| {
        let invalid = chunk.invalid().iter().map(|byte| BEYOND + u32::from(*byte));
        chunk.valid().chars().map(u32::from).chain(invalid)
    });
    units.collect()
}

/// The places in `units` where a match of `tokens` can end that begins at one of the places `from`. There is one place more than
/// there are units. This takes time in proportion to the product of both lengths, whatever the glob.
fn ends(tokens: &[GlobToken], units: &[u32], from: Vec<bool>) -> Vec<bool> {
    tokens.iter().fold(from, |from, token| after(token, units, &from))
}

fn after(token: &GlobToken, units: &[u32], from: &[bool]) -> Vec<bool> {
    let one = |is_meant: &dyn Fn(u32) -> bool| {
        let next = units.iter().zip(from).map(|(unit, from)| *from && is_meant(*unit));
        std::iter::once(false).chain(next).collect()
    };
    // A place is reached if `begin` says so there, or if one before was reached and `goes_on` over the unit between.
    let run = |begin: &dyn Fn(usize) -> bool, goes_on: &dyn Fn(u32) -> bool| {
        let mut reached = false;
        let place = |at: usize| {
            reached = begin(at) || (reached && at > 0 && goes_on(units[at - 1]));
            reached
        };
        (0..from.len()).map(place).collect::<Vec<bool>>()
    };
    let behind_slash = |at: usize| at > 0 && units[at - 1] == SLASH;
    match token {
        GlobToken::Character(c) => one(&|unit| unit == u32::from(*c)),
        GlobToken::Any => one(&|unit| unit != SLASH),
        GlobToken::Class { negated, ranges } => one(&|unit| {
            let is_in = ranges.iter().any(|(first, last)| (u32::from(*first)..=u32::from(*last)).contains(&unit));
            unit != SLASH && is_in != *negated
        }),
        GlobToken::Star => run(&|at| from[at], &|unit| unit != SLASH),
        GlobToken::Either(branches) => {
            let each = branches.iter().map(|branch| ends(branch, units, from.to_vec()));
            each.reduce(|one, other| one.iter().zip(other).map(|(one, other)| *one || other).collect())
                .unwrap_or_else(|| from.to_vec())
        }
        GlobToken::DeepBegin => {
            let within = run(&|at| from[at], &|_any| true);
            (0..from.len()).map(|at| from[at] || (within[at] && behind_slash(at))).collect()
        }
        GlobToken::Deep => {
            let within = run(&|at| behind_slash(at) && from[at - 1], &|_any| true);
            (0..from.len()).map(|at| within[at] && behind_slash(at)).collect()
        }
        GlobToken::DeepEnd => run(&|at| behind_slash(at) && from[at - 1], &|_any| true),
    }
}

fn wrong(what: &str) -> PatternError {
    PatternError::Glob(what.to_owned())
}

struct Parser<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    before: Option<char>,
    now: Option<char>,
}

impl Parser<'_> {
    fn next(&mut self) -> Option<char> {
        (self.before, self.now) = (self.now, self.rest.next());
        self.now
    }

    /// Reads alternatives up to a `}`, or the one of the whole glob up to its end. Returns which of them it was, too.
    fn branches(&mut self, is_inner: bool) -> Result<(Vec<Vec<GlobToken>>, Option<char>), PatternError> {
        let (mut done, mut tokens) = (Vec::new(), Vec::new());
        while let Some(c) = self.next() {
            match c {
                '?' => tokens.push(GlobToken::Any),
                '*' => self.star(&mut tokens, is_inner),
                '[' => tokens.push(self.class()?),
                '{' => {
                    let (mut branches, end) = self.branches(true)?;
                    if end.is_none() {
                        return Err(wrong("a `{` without its `}`"));
                    }
                    branches.retain(|branch| !branch.is_empty());
                    tokens.push(GlobToken::Either(branches));
                }
                '}' => {
                    done.push(tokens);
                    return Ok((done, Some(c)));
                }
                ',' if is_inner => done.push(std::mem::take(&mut tokens)),
                '\\' => tokens.push(GlobToken::Character(self.next().ok_or_else(|| wrong("a `\\` at the end"))?)),
                c => tokens.push(GlobToken::Character(c)),
            }
        }
        done.push(tokens);
        Ok((done, None))
    }

    /// `**` is deep only as a whole component.
    fn star(&mut self, tokens: &mut Vec<GlobToken>, is_inner: bool) {
        let before = self.before;
        if self.rest.peek() != Some(&'*') {
            tokens.push(GlobToken::Star);
            return;
        }
        self.next();
        let behind = self.rest.peek().copied();
        if tokens.is_empty() {
            tokens.push(if matches!(behind, None | Some('/')) { GlobToken::DeepBegin } else { GlobToken::Star });
            if behind == Some('/') {
                self.next();
            }
            return;
        }
        let is_end = behind.is_none() || (is_inner && matches!(behind, Some(',' | '}')));
        if before != Some('/') || !(is_end || behind == Some('/')) {
            tokens.push(GlobToken::Star);
            return;
        }
        if !is_end {
            self.next();
        }
        // It takes the slash before it, or goes on with what is deep already.
        let deep = match tokens.pop() {
            Some(deep @ (GlobToken::DeepBegin | GlobToken::DeepEnd)) => deep,
            _ if is_end => GlobToken::DeepEnd,
            _ => GlobToken::Deep,
        };
        tokens.push(deep);
    }

    fn class(&mut self) -> Result<GlobToken, PatternError> {
        let negated = matches!(self.rest.peek(), Some('!' | '^'));
        if negated {
            self.next();
        }
        let mut ranges: Vec<(char, char)> = Vec::new();
        let mut in_range = false;
        loop {
            let c = self.next().ok_or_else(|| wrong("a `[` without its `]`"))?;
            match (c, ranges.last_mut()) {
                (']', Some(_)) => break,
                ('-', Some(_)) if !in_range => in_range = true,
                (c, Some((first, last))) if in_range => {
                    if c < *first {
                        return Err(wrong(&format!("the range `{first}-{c}` is empty")));
                    }
                    (*last, in_range) = (c, false);
                }
                (c, _) => ranges.push((c, c)),
            }
        }
        if in_range {
            ranges.push(('-', '-'));
        }
        Ok(GlobToken::Class { negated, ranges })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use std::ffi::OsStr;

    use proptest::prelude::*;

    use super::*;

    fn matches(glob: &str, path: &[u8]) -> bool {
        Glob::parse(glob).unwrap().matches(Path::new(OsStr::from_bytes(path)))
    }

    /// A character counts as one, however many bytes it has; so does a byte that is part of none.
    #[test]
    fn a_character_is_one_whatever_it_takes() {
        for (glob, path) in [
            ("?.txt", "é.txt".as_bytes()),
            ("?.txt", "日.txt".as_bytes()),
            ("?.txt", "🦀.txt".as_bytes()),
            ("?.txt", b"\xe9.txt"),
            ("??.txt", "e\u{301}.txt".as_bytes()),
            ("??.txt", b"\xf0\x9f.txt"),
            ("[!a].txt", "é.txt".as_bytes()),
            ("[!a].txt", b"\xe9.txt"),
            ("[é].txt", "é.txt".as_bytes()),
            ("[à-ö].txt", "é.txt".as_bytes()),
            ("[^é].txt", "e.txt".as_bytes()),
            ("é*", "é.txt".as_bytes()),
        ] {
            assert!(matches(glob, path), "{glob} should match {path:?}");
        }
        for (glob, path) in [
            ("??.txt", "é.txt".as_bytes()),
            ("?.txt", "e\u{301}.txt".as_bytes()),
            ("[é].txt", b"\xc3.txt"),
            ("[!é].txt", "é.txt".as_bytes()),
            ("[\u{0}-\u{10ffff}].txt", b"\xe9.txt"),
            ("é.txt", "e\u{301}.txt".as_bytes()),
            ("É.txt", "é.txt".as_bytes()),
            ("a?b", b"a/b"),
            ("a[!x]b", b"a/b"),
            ("a[/]b", b"a/b"),
        ] {
            assert!(!matches(glob, path), "{glob} should not match {path:?}");
        }
    }

    #[test]
    fn what_is_not_closed_is_refused() {
        for glob in ["[a", "[]", "[b-a]", "{a,b", "a}", "a\\", "{a,{b,c}"] {
            assert!(matches!(Glob::parse(glob), Err(PatternError::Glob(_))), "{glob}");
        }
    }

    proptest! {
        /// For ASCII it agrees with `globset`, which read manifests before, except that no class matches a `/`.
        #[test]
        fn in_ascii_it_is_what_globset_is(
            glob in r"(a|b|/|\*|\*\*|\*\*/|/\*\*/|\?|\[!a\]|\[a-c\]|\[\]-\]|\{a,b\*\}|\{a/\*\*,\*\*/b\}|\{a,\}|\\\*|,){0,6}",
            path in "(a|b|c|/|,|-|\\*|\n){0,7}",
        ) {
            let theirs = globset::GlobBuilder::new(&glob).literal_separator(true).backslash_escape(true).build();
            let theirs = theirs.unwrap().compile_matcher();
            let ours = Glob::parse(&glob).unwrap().matches(Path::new(&path));
            if !glob.contains("[!") || !path.contains('/') {
                prop_assert_eq!(ours, theirs.is_match(&path), "{:?} {:?}", glob, path);
            }
        }
    }
}
