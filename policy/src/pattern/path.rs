//! Path patterns: a literal directory that Landlock can be told, and a glob beneath it that it cannot.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::PatternError;
use super::glob::Glob;
use crate::path::HostPath;
use crate::plan::Exactness;
use crate::variable::{PatternVariable, Variables};

/// A path pattern as a manifest writes it, before its variable is known (S0-36, S0-39).
///
/// It is relative to the workspace's roots unless it starts with `/` or with a variable. Everything that can be wrong
/// with it is found here, so that expanding cannot fail (S0-41).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PathTemplate {
    text: String,
    base: Base,
    root: PathBuf,
    rest: PatternRest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Base {
    Absolute,
    Variable(PatternVariable),
}

/// Part beneath a pattern's literal part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum PatternRest {
    /// Nothing: that one path.
    Literal,
    /// `**`: the directory and all beneath it.
    Subtree,
    /// Any other glob, relative to the literal part.
    Glob(Glob),
}

impl PathTemplate {
    /// Reads a pattern: a literal path, `dir/**`, or a glob with `*`, `?`, `[…]`, `{a,b}` and `**`.
    ///
    /// # Errors
    ///
    /// [`PatternError`], naming what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        if let Some(c) = text.chars().find(|c| c.is_control()) {
            return Err(PatternError::Control(c));
        }
        if text == "~" || text.starts_with("~/") {
            return Err(PatternError::Home);
        }
        if let Some(variable) = shell_variable(text) {
            return Err(PatternError::ShellVariable(variable.to_owned()));
        }
        let (base, relative) = split_base(text)?;
        check_braces(relative)?;
        let (root, rest) = split_literal(relative)?;
        Ok(Self { text: text.to_owned(), base, root, rest })
    }

    /// That one absolute path, whatever characters it is made of: what a person names on the command line is no glob.
    #[must_use]
    pub fn of_file(path: &HostPath) -> Self {
        Self {
            text: path.to_string(),
            base: Base::Absolute,
            root: path.as_path().to_owned(),
            rest: PatternRest::Literal,
        }
    }

    /// That absolute directory and all beneath it, whatever characters its path is made of.
    #[must_use]
    pub fn of_tree(path: &HostPath) -> Self {
        Self {
            text: format!("{path}/**"),
            base: Base::Absolute,
            root: path.as_path().to_owned(),
            rest: PatternRest::Subtree,
        }
    }

    /// Text as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// True if it names one path for each directory.
    #[must_use]
    pub fn is_literal(&self) -> bool {
        self.rest == PatternRest::Literal
    }

    /// True if it is a directory, other than the root, and all beneath it.
    pub(crate) fn is_subtree(&self) -> bool {
        let is_root = self.base == Base::Absolute && self.root.as_os_str().is_empty();
        self.rest == PatternRest::Subtree && !is_root
    }

    /// Puts the directories in the variable's place: one pattern for each, and none for none, so that a session
    /// without a workspace grants nothing (S0-40).
    #[must_use]
    pub fn expand(&self, variables: &Variables) -> Vec<PathPattern> {
        match self.base {
            Base::Absolute => vec![self.under(Path::new("/"))],
            Base::Variable(variable) => variables.dirs(variable).iter().map(|dir| self.under(dir.as_path())).collect(),
        }
    }

    fn under(&self, dir: &Path) -> PathPattern {
        // Joining an empty path would add a slash.
        let root = if self.root.as_os_str().is_empty() { dir.to_owned() } else { dir.join(&self.root) };
        PathPattern { root, rest: self.rest.clone() }
    }
}

impl TryFrom<String> for PathTemplate {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        Self::parse(&text)
    }
}

impl From<PathTemplate> for String {
    fn from(template: PathTemplate) -> Self {
        template.text
    }
}

impl fmt::Display for PathTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The variable of the shell's with which a text begins: `$HOME`, `${HOME}`.
fn shell_variable(text: &str) -> Option<&str> {
    let first = text.split('/').next()?;
    let name = first.strip_prefix('$')?;
    let name = name.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(name);
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then_some(first)
}

/// The part before the first `/` decides what the pattern is relative to.
fn split_base(text: &str) -> Result<(Base, &str), PatternError> {
    if let Some(relative) = text.strip_prefix('/') {
        return Ok((Base::Absolute, relative));
    }
    let Some(after) = text.strip_prefix('{') else {
        return Ok((Base::Variable(PatternVariable::Workspace), text));
    };
    let (name, relative) = after.split_once('}').ok_or(PatternError::Braces)?;
    if name.contains(',') {
        return Ok((Base::Variable(PatternVariable::Workspace), text));
    }
    let variable = PatternVariable::parse(name).ok_or_else(|| PatternError::UndefinedVariable(name.to_owned()))?;
    match relative.strip_prefix('/') {
        Some("") => Err(PatternError::EmptyComponent),
        Some(relative) => Ok((Base::Variable(variable), relative)),
        None if relative.is_empty() => Ok((Base::Variable(variable), "")),
        None => Err(PatternError::VariablePosition(name.to_owned())),
    }
}

/// Braces hold alternatives here; a single name in them would be a variable out of place.
fn check_braces(relative: &str) -> Result<(), PatternError> {
    let mut parts = relative.split('{');
    if parts.next().is_some_and(|before| before.contains('}')) {
        return Err(PatternError::Braces);
    }
    for part in parts {
        let (inner, after) = part.split_once('}').ok_or(PatternError::Braces)?;
        if after.contains('}') {
            return Err(PatternError::Braces);
        }
        if !inner.contains(',') {
            return Err(match PatternVariable::parse(inner) {
                Some(_) => PatternError::VariablePosition(inner.to_owned()),
                None => PatternError::UndefinedVariable(inner.to_owned()),
            });
        }
    }
    Ok(())
}

/// Splits into the leading literal components and the glob after them.
fn split_literal(relative: &str) -> Result<(PathBuf, PatternRest), PatternError> {
    if relative.is_empty() {
        return Ok((PathBuf::new(), PatternRest::Literal));
    }
    if let Some(dots) = relative.split(['/', '{', ',', '}']).find(|piece| matches!(*piece, "." | "..")) {
        return Err(PatternError::Dots(dots.to_owned()));
    }
    if relative.split('/').any(str::is_empty) {
        return Err(PatternError::EmptyComponent);
    }
    let components: Vec<&str> = relative.split('/').collect();
    let literal =
        components.iter().take_while(|component| !component.contains(['*', '?', '[', ']', '{', '\\'])).count();
    let (literal, globs) = components.split_at(literal);
    let rest = match globs {
        [] => PatternRest::Literal,
        ["**"] => PatternRest::Subtree,
        [..] => PatternRest::Glob(Glob::parse(&globs.join("/"))?),
    };
    Ok((literal.iter().collect(), rest))
}

/// A path pattern with its variable expanded: absolute and case sensitive.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "PatternWire", into = "PatternWire")]
pub struct PathPattern {
    /// Invariant: absolute and lexically normal.
    root: PathBuf,
    rest: PatternRest,
}

/// How it travels: a root that is not UTF-8 loses nothing.
#[derive(Serialize, Deserialize)]
struct PatternWire {
    root: HostPath,
    rest: PatternRest,
}

impl From<PatternWire> for PathPattern {
    fn from(PatternWire { root, rest }: PatternWire) -> Self {
        Self { root: root.as_path().to_owned(), rest }
    }
}

impl From<PathPattern> for PatternWire {
    fn from(PathPattern { root, rest }: PathPattern) -> Self {
        Self { root: root.into(), rest }
    }
}

impl PathPattern {
    /// That one path, whatever characters it has; `None` unless it is absolute and lexically normal.
    #[must_use]
    pub fn literal(path: &HostPath) -> Option<Self> {
        path.is_normal().then(|| Self { root: path.as_path().to_owned(), rest: PatternRest::Literal })
    }

    /// A directory and all beneath it; `None` unless it is absolute and lexically normal.
    #[must_use]
    pub fn subtree(path: &HostPath) -> Option<Self> {
        path.is_normal().then(|| Self { root: path.as_path().to_owned(), rest: PatternRest::Subtree })
    }

    /// This with all that lies below, if it is one path: a rule that denies or asks about a directory is about what is in it.
    pub(crate) fn with_below(self) -> Self {
        if self.is_literal() { Self { rest: PatternRest::Subtree, ..self } } else { self }
    }

    /// True if a path is meant. A path that is not absolute and lexically normal never is: `..` would step out of the
    /// literal part after it was compared.
    ///
    /// `dir/**` means `dir` too, since that is what Landlock grants and what listing it needs.
    #[must_use]
    pub fn matches(&self, path: &HostPath) -> bool {
        if !path.is_normal() {
            return false;
        }
        let Ok(beneath) = path.as_path().strip_prefix(&self.root) else { return false };
        match &self.rest {
            PatternRest::Literal => beneath.as_os_str().is_empty(),
            PatternRest::Subtree => true,
            PatternRest::Glob(glob) => !beneath.as_os_str().is_empty() && glob.matches(beneath),
        }
    }

    /// The longest directory (or the file itself) that everything matched lies in.
    #[must_use]
    pub fn literal_prefix(&self) -> HostPath {
        self.root.clone().into()
    }

    /// True if it is a directory and all beneath it.
    #[must_use]
    pub fn is_subtree(&self) -> bool {
        self.rest == PatternRest::Subtree
    }

    /// True if it is one path.
    #[must_use]
    pub fn is_literal(&self) -> bool {
        self.rest == PatternRest::Literal
    }

    /// Exactness with which the kernel can be told it.
    #[must_use]
    pub fn exactness(&self) -> Exactness {
        match self.rest {
            PatternRest::Literal | PatternRest::Subtree => Exactness::Exact,
            PatternRest::Glob(_) => Exactness::Widened,
        }
    }

    /// True if everything this matches is matched by `other`, as far as can be said without comparing globs. A partial
    /// order: `a.within(b)` and `b.within(a)` only if they are equal.
    pub(crate) fn within(&self, other: &Self) -> bool {
        match (&self.rest, &other.rest) {
            (_, PatternRest::Subtree) => self.root.starts_with(&other.root),
            (PatternRest::Literal, _) => other.matches(&self.literal_prefix()),
            (PatternRest::Subtree | PatternRest::Glob(_), PatternRest::Literal | PatternRest::Glob(_)) => self == other,
        }
    }

    /// True if certainly nothing matches both; if false, something may.
    pub(crate) fn disjoint(&self, other: &Self) -> bool {
        if self.is_literal() || other.is_literal() {
            let (one, pattern) = if self.is_literal() { (self, other) } else { (other, self) };
            return !pattern.matches(&one.literal_prefix());
        }
        !self.root.starts_with(&other.root) && !other.root.starts_with(&self.root)
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let root = self.literal_prefix();
        let slash = if self.root == Path::new("/") { "" } else { "/" };
        match &self.rest {
            PatternRest::Literal => write!(f, "{root}"),
            PatternRest::Subtree => write!(f, "{root}{slash}**"),
            PatternRest::Glob(glob) => write!(f, "{root}{slash}{}", glob.text()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn pattern(text: &str) -> PathPattern {
        let variables = Variables::new(vec!["/w".into()], vec![], vec![]).unwrap();
        PathTemplate::parse(text).unwrap().expand(&variables).remove(0)
    }

    /// S0-36: what each form of pattern matches, with its controls.
    #[test]
    fn patterns_match_what_they_say() {
        for (text, yes, no) in [
            ("/a/b", vec!["/a/b"], vec!["/a", "/a/b/c", "/a/bc", "/A/b"]),
            ("/a/**", vec!["/a", "/a/b", "/a/b/c", "/a/.env"], vec!["/ab", "/", "/b"]),
            ("/a/*", vec!["/a/b", "/a/.b"], vec!["/a", "/a/b/c"]),
            ("/a/**/*.py", vec!["/a/x.py", "/a/b/c/x.py"], vec!["/a/x.rs", "/b/x.py", "/a/x.pyc"]),
            ("/a/{b,c}/d", vec!["/a/b/d", "/a/c/d"], vec!["/a/d", "/a/b,c/d"]),
            ("/a/?", vec!["/a/b", "/a/é"], vec!["/a/", "/a/bb", "/a"]),
            ("/**", vec!["/", "/a"], vec![]),
            ("src/*.rs", vec!["/w/src/a.rs"], vec!["/src/a.rs", "/w/src/b/a.rs"]),
            ("{workspace}", vec!["/w"], vec!["/w/a"]),
            ("{workspace}/**", vec!["/w", "/w/a"], vec!["/wa"]),
            ("/a/[bc]", vec!["/a/b"], vec!["/a/d", "/a/[bc]"]),
            (r"/a/\*", vec!["/a/*"], vec!["/a/b"]),
        ] {
            let pattern = pattern(text);
            for path in yes {
                assert!(pattern.matches(&path.into()), "{text} should match {path}");
            }
            for path in no {
                assert!(!pattern.matches(&path.into()), "{text} should not match {path}");
            }
        }
    }

    /// `..` in a path must never be compared as if it were a name.
    #[test]
    fn a_path_that_is_not_normal_matches_nothing() {
        for path in ["/a/../b", "/a/./b", "/a//b", "a/b", "", "/a/b/", "/a/\0"] {
            assert!(!pattern("/**").matches(&path.into()), "{path:?}");
        }
    }

    /// S0-41: each mistake is found when compiling, and named.
    #[test]
    fn mistakes_are_named() {
        for (text, error) in [
            ("", PatternError::Empty),
            ("/a/../b", PatternError::Dots("..".into())),
            ("./a", PatternError::Dots(".".into())),
            ("/{a,..}/b", PatternError::Dots("..".into())),
            ("a//b", PatternError::EmptyComponent),
            ("src/", PatternError::EmptyComponent),
            ("{workspace}/", PatternError::EmptyComponent),
            ("~/x", PatternError::Home),
            ("$HOME/x", PatternError::ShellVariable("$HOME".into())),
            ("${HOME}/x", PatternError::ShellVariable("${HOME}".into())),
            ("$X", PatternError::ShellVariable("$X".into())),
            ("{home}/x", PatternError::UndefinedVariable("home".into())),
            ("/a/{home}", PatternError::UndefinedVariable("home".into())),
            ("/a/{workspace}", PatternError::VariablePosition("workspace".into())),
            ("{workspace}x", PatternError::VariablePosition("workspace".into())),
            ("/a/{b,{c,d}}", PatternError::Braces),
            ("/a/b}", PatternError::Braces),
            ("/a\0", PatternError::Control('\0')),
        ] {
            assert_eq!(PathTemplate::parse(text), Err(error), "{text:?}");
        }
        assert!(matches!(PathTemplate::parse("/a/[b"), Err(PatternError::Glob(_))));
    }

    /// A workspace whose own name looks like a glob is a name all the same.
    #[test]
    fn a_variable_is_never_read_as_a_glob() {
        let variables = Variables::new(vec!["/w/[x]*".into()], vec![], vec![]).unwrap();
        let pattern = PathTemplate::parse("{workspace}/**").unwrap().expand(&variables).remove(0);
        assert!(pattern.matches(&"/w/[x]*/a".into()));
        assert!(!pattern.matches(&"/w/xy/a".into()));
        assert_eq!(pattern.exactness(), Exactness::Exact);
    }

    /// C-27: names are bytes.
    #[test]
    fn names_that_are_not_utf8_match_by_bytes() {
        let odd = |bytes: &[u8]| HostPath::from(OsString::from_vec(bytes.to_vec()));
        assert!(pattern("/a/*.txt").matches(&odd(b"/a/\xff.txt")));
        assert!(pattern("/a/**").matches(&odd(b"/a/\xff")));
        assert!(!pattern("/a/*.txt").matches(&odd(b"/a/\xff/b.txt")));
    }

    #[test]
    fn a_glob_is_widened_to_its_literal_prefix() {
        assert_eq!(pattern("src/**/*.py").literal_prefix(), "/w/src".into());
        assert_eq!(pattern("src/**/*.py").exactness(), Exactness::Widened);
        assert_eq!(pattern("src/**").exactness(), Exactness::Exact);
    }
}
