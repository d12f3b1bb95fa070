//! Keys of a person's answers, and what each covers (S1-13 to S1-19).

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::need::CallNeeds;
use crate::path::HostPath;

/// The longest key, bytes (X1-4).
const LONGEST: usize = 1024;
/// Characters of a call that a key shows beside its digest.
const SHOWN: usize = 160;

/// How far a key reaches (X1-6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyScope {
    /// Equal keys.
    Exact,
    /// A directory, and every key beneath it.
    Path,
    /// Equal arguments alone. A kind of its own, for a text may be somebody's command line too.
    Digest,
}

/// Derived from a call's arguments alone: the same arguments have the same key, in any session and at any time (S1-19).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ApprovalKey {
    /// Not empty, at most 1,024 bytes, without control characters (X1-4).
    pub text: String,
    /// How far an answer for it reaches.
    pub scope: KeyScope,
    /// Where a command runs, if that is not the root: relative to it, or absolute. A field, since a command line may say anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

impl ApprovalKey {
    /// The key of a command line: the line itself, byte for byte, since what looks like a blank may be a part of a word. Not its
    /// first word, as elsewhere: `git` would cover `git x; rm y` (X1-7). `None` for one that makes no well-formed key; then the
    /// digest of the arguments has to do.
    #[must_use]
    pub fn of_command(line: &str, working_dir: &HostPath, root: &HostPath) -> Option<Self> {
        Self::well_formed(line.to_owned(), KeyScope::Exact).map(|key| key.in_directory(working_dir, root))
    }

    /// The key of what runs in a directory.
    #[must_use]
    pub fn in_directory(self, working_dir: &HostPath, root: &HostPath) -> Self {
        Self { directory: relative(working_dir.as_path(), root), ..self }
    }

    /// The key of a call that names files: the directory that holds them all, relative to the root; `.` for the root. `None`
    /// if it names none, or no one directory of the root's holds them.
    #[must_use]
    pub fn of_files(needs: &CallNeeds, root: &HostPath) -> Option<Self> {
        let parent = |path: &HostPath| path.as_path().parent().map(Path::to_owned);
        let files = needs.read.iter().chain(&needs.write).filter_map(parent);
        let mut all = files.chain(needs.read_below.iter().map(|dir| dir.as_path().to_owned()));
        let first = all.next()?;
        if all.any(|dir| dir != first) {
            return None;
        }
        // A name that is not UTF-8 has no text that could not be another's.
        first.to_str()?;
        let text = relative(&first, root).unwrap_or_else(|| ".".to_owned());
        Self::well_formed(text, KeyScope::Path)
    }

    /// The key of any other call: the beginning of what it does, for people, and the digest of all of it, in hexadecimal
    /// (S1-33). `shown` is text that the digest is of, such as the canonical arguments.
    #[must_use]
    pub fn of_digest(shown: &str, digest: &str) -> Self {
        let shown: String = shown.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let head = shown.char_indices().nth(SHOWN).map_or(shown.as_str(), |(at, _)| &shown[..at]);
        let more = if head.len() < shown.len() { "…" } else { "" };
        Self { text: format!("{head}{more} sha256:{digest}"), scope: KeyScope::Digest, directory: None }
    }

    /// A key that a tool derives itself (S1-13). `None` for a text that is no well-formed key.
    #[must_use]
    pub fn of_text(text: &str) -> Option<Self> {
        Self::well_formed(text.to_owned(), KeyScope::Exact)
    }

    fn well_formed(text: String, scope: KeyScope) -> Option<Self> {
        let fits = !text.is_empty() && text.len() <= LONGEST && !text.chars().any(char::is_control);
        fits.then_some(Self { text, scope, directory: None })
    }

    /// True if an answer for this key is one for another.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        if self == other {
            return true;
        }
        let both = self.scope == KeyScope::Path && other.scope == KeyScope::Path;
        let (absolute, other_absolute) = (self.text.starts_with('/'), other.text.starts_with('/'));
        both && self.directory == other.directory
            && absolute == other_absolute
            && (self.text == "." || Path::new(&other.text).starts_with(&self.text))
    }
}

/// A path from a root; `None` for the root itself, and whole for what lies outside of it.
fn relative(path: &Path, root: &HostPath) -> Option<String> {
    match path.strip_prefix(root.as_path()) {
        Ok(beneath) if beneath.as_os_str().is_empty() => None,
        Ok(beneath) => Some(beneath.to_str().map_or_else(|| escaped(beneath), str::to_owned)),
        Err(_outside) => Some(path.to_str().map_or_else(|| escaped(path), str::to_owned)),
    }
}

/// A name that is not UTF-8, so that two names never have the same: no path has a NUL.
fn escaped(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    format!("\0{}", path.as_os_str().as_bytes().escape_ascii())
}

/// Who said yes (X1-5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GrantedBy {
    /// A person.
    User,
    /// The list of what is allowed.
    Allowlist,
}

/// For how long an answer is kept (X1-5, S1-18).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalScope {
    /// As long as the session lasts.
    #[default]
    Session,
    /// For later sessions of the project as well, as long as its manifest is trusted and stays what it is.
    Project,
}

impl ApprovalScope {
    /// The names in a manifest.
    pub const NAMES: [&str; 2] = ["session", "project"];

    /// Reads a name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "session" => Some(Self::Session),
            "project" => Some(Self::Project),
            _ => None,
        }
    }

    /// The name in a manifest.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Project => "project",
        }
    }
}

/// An answer that is kept (X1-5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Approval {
    /// The tool.
    pub tool: String,
    /// Key of the call that was asked about.
    pub key: ApprovalKey,
    /// When, ISO 8601.
    pub granted_at: String,
    /// Who said yes.
    pub granted_by: GrantedBy,
    /// For how long.
    pub scope: ApprovalScope,
}

/// The answers that are kept, of a session or a project.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Approvals(Vec<Approval>);

impl Approvals {
    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In the order in which they were given.
    pub fn iter(&self) -> impl Iterator<Item = &Approval> {
        self.0.iter()
    }

    /// Keeps an answer (S1-14). A no is never kept (X1-5).
    pub fn keep(&mut self, approval: Approval) {
        if self.find(&approval.tool, &approval.key).is_none() {
            self.0.push(approval);
        }
    }

    /// The answer that covers a call (S1-17).
    #[must_use]
    pub fn find(&self, tool: &str, key: &ApprovalKey) -> Option<&Approval> {
        self.0.iter().find(|approval| approval.tool == tool && approval.key.covers(key))
    }
}

impl fmt::Display for ApprovalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scope {
            KeyScope::Exact | KeyScope::Digest => match &self.directory {
                None => f.write_str(&self.text),
                Some(directory) => write!(f, "{} (in {})", self.text, directory.replace('\0', "")),
            },
            KeyScope::Path if self.text == "." => f.write_str("anything in the workspace"),
            KeyScope::Path => write!(f, "anything in {}", self.text),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use proptest::prelude::*;

    use super::*;

    fn files(read: &[&str]) -> Option<ApprovalKey> {
        let needs = CallNeeds { read: read.iter().map(|path| HostPath::from(*path)).collect(), ..CallNeeds::default() };
        ApprovalKey::of_files(&needs, &"/w".into())
    }

    /// X1-4, X1-7: the directory relative to the root; a file at the root has `.`, not an empty key.
    #[test]
    fn files_have_the_key_of_their_directory() {
        assert_eq!(files(&["/w/a.txt"]).unwrap().text, ".");
        assert_eq!(files(&["/w/src/a/b.rs"]).unwrap().text, "src/a");
        assert_eq!(files(&["/etc/hosts"]).unwrap().text, "/etc");
        assert_eq!(files(&["/w/a/x", "/w/b/x"]), None);
        assert_eq!(files(&["/w/a\n/x"]), None, "no control characters");
    }

    /// X1-6, X1-7: a directory covers what lies beneath it, and nothing beside; a line covers itself.
    #[test]
    fn keys_cover_what_they_name() {
        let key = |text: &str| ApprovalKey { text: text.to_owned(), scope: KeyScope::Path, directory: None };
        for (wide, narrow) in [(".", "src"), ("src", "src/a"), ("src", "src"), ("/etc", "/etc/ssl")] {
            assert!(key(wide).covers(&key(narrow)), "{wide} {narrow}");
        }
        for (one, other) in [("src", "src2"), ("src", "."), (".", "/etc"), ("/etc", "etc"), ("a/b", "a")] {
            assert!(!key(one).covers(&key(other)), "{one} {other}");
        }
        let line = |text: &str| ApprovalKey::of_command(text, &"/w".into(), &"/w".into());
        assert!(line("git x").unwrap().covers(&line("git x").unwrap()));
        for other in ["git x\u{a0}", "\u{2003}git x", "git x ", "git x\u{200b}", "git x # (in sub)"] {
            assert!(!line("git x").unwrap().covers(&line(other).unwrap()), "{other:?}");
        }
        assert!(!line("git x").unwrap().covers(&line("git x; rm y").unwrap()), "X1-7: no first word");
        assert_eq!(line("a\nb"), None);
        let sub = ApprovalKey::of_command("make", &"/w/sub".into(), &"/w".into()).unwrap();
        assert!(!line("make").unwrap().covers(&sub), "another directory is another call");
        assert!(!line("make (in sub)").unwrap().covers(&sub), "and a line that says so is not it");
        let digest = ApprovalKey::of_digest("{}", "ab");
        assert!(!line("sha256:ab").unwrap().covers(&digest) && !digest.covers(&line("sha256:ab").unwrap()));
    }

    proptest! {
        /// X1-4, S1-19: well-formed, and the same for the same arguments.
        #[test]
        fn keys_are_well_formed_and_deterministic(line in any::<String>(), path in "(/[^/\0]{1,9}){1,4}") {
            let command = || ApprovalKey::of_command(&line, &"/w".into(), &"/w".into());
            for key in [command(), files(&[&path])].into_iter().flatten() {
                prop_assert!(!key.text.is_empty() && key.text.len() <= 1024);
                prop_assert!(!key.text.chars().any(char::is_control));
            }
            prop_assert_eq!(command(), command());
        }

        /// Two calls that differ never have the same key: neither by odd blanks, quotes and comments, nor by where they run.
        #[test]
        fn no_two_commands_have_one_key(
            one in r#"( |\u{a0}|\u{2003}|\u{200b}|\u{3000}|x|'|"|\\|#|\(in a\)|sha256:){1,6}"#,
            other in r#"( |\u{a0}|\u{2003}|\u{200b}|\u{3000}|x|'|"|\\|#|\(in a\)|sha256:){1,6}"#,
            dirs in prop::collection::vec(prop::sample::select(&["/w", "/w/a", "/w/a)", "/a", "/w/a/b", "/w/ a", "/w/\u{a0}a"][..]), 2),
        ) {
            let key = |line: &str, dir: &str| ApprovalKey::of_command(line, &dir.into(), &"/w".into()).unwrap();
            let (first, second) = (key(&one, dirs[0]), key(&other, dirs[1]));
            prop_assert_eq!(first.covers(&second), one == other && dirs[0] == dirs[1]);
            prop_assert!(!ApprovalKey::of_digest("", one.trim_start_matches(" sha256:")).covers(&first));
        }

        /// Covering is a partial order: what covers what covers, covers.
        #[test]
        fn covering_is_a_partial_order(
            paths in prop::collection::vec(prop::sample::select(&["a", "a/b", "a/b/c", "ab", ".", "/a", "/a/b"][..]), 3),
        ) {
            let key = |text: &str| ApprovalKey { text: text.to_owned(), scope: KeyScope::Path, directory: None };
            let [a, b, c] = [key(paths[0]), key(paths[1]), key(paths[2])];
            prop_assert!(a.covers(&a));
            prop_assert!(!(a.covers(&b) && b.covers(&c)) || a.covers(&c));
            prop_assert!(!(a.covers(&b) && b.covers(&a)) || a == b);
        }
    }
}
