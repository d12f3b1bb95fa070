//! Names that are kept as they are inside a tree that is granted for writing.
//!
//! Landlock grants trees and cannot take a name out of one. So a tree with such names is granted to a call for reading
//! only, and the broker is its one writer: it looks at every name that is to change. Here is how names are compared; it
//! is done component by component, so that for a renamed directory it can be said what its new place makes of all that
//! lies in it.

pub mod gitconfig;
pub mod gitkeys;
pub mod later;
pub mod names;
pub mod personal;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;

pub use names::{FREE, NameGroup, NameGuard};

/// Reason why a file is kept that the session's policy came from. No grant lifts it.
pub const POLICY: &str =
    "it decides about this session (its manifest, its profile, or a watchdog), so no call changes it";

/// Where a name stands in the patterns, from its path alone.
///
/// Two directories with the same state keep the same names among what lies in them: only between such may a directory be
/// moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct State {
    /// A bit for each place in a pattern of several components that has been reached.
    reached: u128,
    /// Below a directory in which nothing is kept.
    free: bool,
}

impl State {
    /// Where nothing is kept: in a free directory, or below a name that was granted.
    pub const FREE: Self = Self { reached: 0, free: true };

    /// Below no beginning of a pattern, and not free.
    #[must_use]
    pub fn is_initial(self) -> bool {
        self == Self::default()
    }

    /// State of a directory that is a repository, whatever it is called: the names below it are kept that are below
    /// `.git`, and those that its place makes kept.
    #[must_use]
    pub fn in_repository(self) -> Self {
        match names().step(Self::default(), b".git") {
            NextName::Open(git) if !self.free => self.and(git),
            NextName::Open(_) | NextName::Kept(_) => self,
        }
    }

    /// Where a directory stands that has two names: what either keeps in it is kept.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { reached: self.reached | other.reached, free: self.free && other.free }
    }

    /// Nothing below is kept.
    #[must_use]
    pub fn is_free(self) -> bool {
        self.free
    }

    /// Below the beginning of a pattern, such as `.git`.
    #[must_use]
    pub fn is_begun(self) -> bool {
        self.reached != 0
    }
}

/// Result of one more component.
#[derive(Debug, Clone, Copy)]
pub enum NextName {
    /// To a kept name: it, and all beneath, is kept.
    Kept(&'static NameGroup),
    /// To a name that is not.
    Open(State),
}

/// Result of a path's components.
#[derive(Debug, Clone, Copy)]
pub enum Match {
    /// It is a kept name (`beneath` is false) or lies beneath one.
    Kept {
        /// Group that keeps it.
        group: &'static NameGroup,
        /// How many components it took.
        depth: usize,
        /// True if there are more.
        beneath: bool,
    },
    /// It is not.
    Open(State),
}

#[derive(Debug)]
enum NamePiece {
    Name(&'static [u8]),
    /// Text before `*`, and after.
    Star(&'static [u8], &'static [u8]),
    Deep,
}

impl NamePiece {
    fn parse(text: &'static str) -> Self {
        match text.split_once('*') {
            _ if text == "**" => Self::Deep,
            Some((before, after)) => Self::Star(before.as_bytes(), after.as_bytes()),
            None => Self::Name(text.as_bytes()),
        }
    }

    fn matches(&self, name: &[u8]) -> bool {
        match self {
            Self::Name(own) => *own == name,
            Self::Star(before, after) => {
                name.len() >= before.len() + after.len() && name.starts_with(before) && name.ends_with(after)
            }
            Self::Deep => !names::NEVER_DEEP.iter().any(|never| never.as_bytes() == name),
        }
    }
}

/// The table, ready to be compared with.
#[derive(Debug)]
pub struct ProtectedNames {
    /// Patterns of one component without a star.
    single: HashMap<&'static [u8], &'static NameGroup>,
    /// Patterns of one component with one.
    starred: Vec<(NamePiece, &'static NameGroup)>,
    /// Patterns of several components, and the bit of the first's end.
    paths: Vec<(Vec<NamePiece>, &'static NameGroup, u32)>,
}

/// The default names.
#[must_use]
pub fn names() -> &'static ProtectedNames {
    static DEFAULT: OnceLock<ProtectedNames> = OnceLock::new();
    DEFAULT.get_or_init(|| ProtectedNames::new(names::NAMES))
}

impl ProtectedNames {
    fn new(groups: &'static [NameGroup]) -> Self {
        let mut names = Self { single: HashMap::new(), starred: Vec::new(), paths: Vec::new() };
        let mut bits = 0;
        for group in groups {
            for pattern in group.patterns {
                let pieces: Vec<NamePiece> = pattern.split('/').map(NamePiece::parse).collect();
                match (<[NamePiece; 1]>::try_from(pieces), pattern.contains('*')) {
                    (Ok([piece]), true) => names.starred.push((piece, group)),
                    (Ok(_), false) => drop(names.single.insert(pattern.as_bytes(), group)),
                    (Err(pieces), _) => {
                        let first = bits;
                        bits += u32::try_from(pieces.len()).unwrap_or(u32::MAX) - 1;
                        names.paths.push((pieces, group, first));
                    }
                }
            }
        }
        debug_assert!(bits <= u128::BITS, "more places than bits");
        names
    }

    /// Takes one more component.
    #[must_use]
    pub fn step(&self, state: State, name: &[u8]) -> NextName {
        if state.free {
            return NextName::Open(state);
        }
        if !state.is_begun() && names::FREE.iter().any(|free| free.as_bytes() == name) {
            return NextName::Open(State::FREE);
        }
        let folded = fold(name);
        let name = folded.as_ref();
        if let Some(group) = self.single.get(name) {
            return NextName::Kept(group);
        }
        if let Some((_, group)) = self.starred.iter().find(|(piece, _)| piece.matches(name)) {
            return NextName::Kept(group);
        }
        let mut next = State::default();
        for (pieces, group, first) in &self.paths {
            for at in 0..pieces.len() {
                if at > 0 && state.reached & (1 << (first + (at as u32) - 1)) == 0 {
                    continue;
                }
                if self.advance(pieces, at, *first, name, &mut next) {
                    return NextName::Kept(group);
                }
            }
        }
        NextName::Open(next)
    }

    /// From the place `at` of a pattern. True if that is the pattern's end.
    fn advance(&self, pieces: &[NamePiece], at: usize, first: u32, name: &[u8], next: &mut State) -> bool {
        let Some(piece) = pieces.get(at) else { return false };
        let mark = |next: &mut State, to: usize| next.reached |= 1 << (first + (to as u32) - 1);
        match piece {
            NamePiece::Deep => {
                // Any number of names, none as well.
                if piece.matches(name) {
                    mark(next, at);
                }
                self.advance(pieces, at + 1, first, name, next)
            }
            NamePiece::Name(_) | NamePiece::Star(..) if !piece.matches(name) => false,
            NamePiece::Name(_) | NamePiece::Star(..) if at + 1 == pieces.len() => true,
            NamePiece::Name(_) | NamePiece::Star(..) => {
                mark(next, at + 1);
                false
            }
        }
    }

    /// Takes the components of a relative path.
    #[must_use]
    pub fn find(&self, mut state: State, relative: &[u8]) -> Match {
        let mut components = relative.split(|b| *b == b'/').filter(|name| !name.is_empty());
        let mut depth = 0;
        while let Some(name) = components.next() {
            depth += 1;
            match self.step(state, name) {
                NextName::Kept(group) => return Match::Kept { group, depth, beneath: components.next().is_some() },
                NextName::Open(next) => state = next,
            }
        }
        Match::Open(state)
    }

    /// Where a granted tree stands: `.config` granted alone still has `fish` kept in it (A16). That the tree is kept
    /// itself, or lies in a free directory, does not count: it was granted by name.
    #[must_use]
    pub fn root(&self, absolute: &[u8]) -> State {
        let mut state = State::default();
        for name in absolute.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
            state = match self.step(state, name) {
                NextName::Open(next) if !next.free => next,
                NextName::Open(_) | NextName::Kept(_) => State::default(),
            };
        }
        state
    }
}

/// True if a name is `.git`, in any spelling: where it is a file, it says where the repository is (A18).
#[must_use]
pub fn is_git(name: &[u8]) -> bool {
    name.len() >= 4 && fold(name).as_ref() == b".git"
}

/// A name as it is compared: without case, without the characters that some file systems leave out of comparisons
/// (CVE-2014-9390), and without the dots and blanks at the end that others drop. Most names are ASCII, and copied only if they
/// have a capital.
///
/// Composed letters may stay composed: the patterns are ASCII, and what decomposes to ASCII alone (`K`, the Kelvin sign) has
/// the same small letter.
fn fold(name: &[u8]) -> Cow<'_, [u8]> {
    let end = name.iter().rposition(|byte| !matches!(byte, b'.' | b' ')).map_or(name.len(), |last| last + 1);
    let name = &name[..end];
    if name.is_ascii() {
        return if name.iter().any(u8::is_ascii_uppercase) {
            Cow::Owned(name.to_ascii_lowercase())
        } else {
            Cow::Borrowed(name)
        };
    }
    let Ok(text) = std::str::from_utf8(name) else { return Cow::Owned(name.to_ascii_lowercase()) };
    // Full case folding: small first, because `ẞ` has no capital of its own; then great and small again, because some letters
    // share their capital with others (`ſ`), or have one of several letters (`ß`, `ﬁ`).
    let folded = text.chars().filter(|c| !is_ignored(*c)).flat_map(char::to_lowercase);
    let folded: String = folded.flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect();
    let end = folded.trim_end_matches(['.', ' ']).len();
    Cow::Owned(folded.as_bytes()[..end].to_vec())
}

/// `Default_Ignorable_Code_Point` of Unicode 17 (DerivedCoreProperties.txt), in which that property is stable but for code
/// points that have no character yet: what ext4 and F2FS leave out, and more than HFS+ does.
pub(crate) fn is_ignored(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "a failing test may stop")]
    use super::*;

    fn kept(path: &str) -> bool {
        matches!(names().find(State::default(), path.as_bytes()), Match::Kept { .. })
    }

    fn state(path: &str) -> State {
        match names().find(State::default(), path.as_bytes()) {
            Match::Open(state) => state,
            Match::Kept { .. } => panic!("{path} is kept"),
        }
    }

    /// A1, A16, A18, A19: at any depth, whether or not it exists.
    #[test]
    fn a1_names_are_kept_wherever_they_are() {
        for path in [
            ".bashrc",
            "a/b/.bashrc",
            ".vscode",
            ".vscode/tasks.json",
            "a/.codex/config.toml",
            ".claude/settings.json",
            ".git/hooks",
            ".git/hooks/pre-commit",
            "a/.git/config",
            ".git/modules/x/config",
            ".git/modules/x/y/hooks/z",
            ".git/modules/hooks",
            ".git/worktrees/w/commondir",
            ".config/fish/config.fish",
            "x.git/hooks/update",
            "x.git/worktrees/w/commondir",
            "x.git/modules/y/config",
            ".git/remotes/up",
            ".git/branches/up",
            "a.code-workspace",
            ".cargo/config.toml",
            ".zshrc.zwc",
            ".local/share/fish/vendor_conf.d/x.fish",
            ".local/share/systemd/user/x.service",
            ".emacs.el",
            ".gvimrc",
            ".config/emacs/init.el",
            ".dir-locals-2.el",
            ".helix/languages.toml",
            ".agent",
            ".antigravity",
            ".junie",
            ".github/hooks/x.json",
        ] {
            assert!(kept(path), "{path}");
        }
        for path in [
            "bashrc",
            ".bashrc2",
            "a.bashrc",
            ".git",
            ".git/index",
            ".git/hooks2",
            ".git/refs/heads/hooks/config",
            ".git/refs/heads/config",
            ".git/modules/x/refs/heads/config",
            ".git/objects/config",
            "hooks/pre-commit",
            "config",
            ".config",
            ".config/app",
            ".cargo/registry",
            ".github/workflows/ci.yml",
            ".gitignore",
            ".envrc",
        ] {
            assert!(!kept(path), "{path}");
        }
    }

    /// A9: other spellings are the name.
    #[test]
    fn a9_spellings_are_the_name() {
        for path in [
            ".VSCODE",
            ".cLaude",
            ".GIT/HOOKS/x",
            ".\u{17f}sh",
            ".g\u{200c}it/config",
            ".\u{212a}ube",
            ".git\u{feff}/hooks",
            ".vs\u{3164}code",
            ".\u{115f}git/hooks",
            ".git\u{17b4}/config",
            ".gi\u{ffa0}t/hooks",
            "\u{1d173}.env",
            ".\u{1e9e}h",
            ".\u{df}h",
            ".con\u{fb01}g/fish",
            ".a\u{ad}ws",
            ".vscode.",
            ".git. ./hooks",
            ".GIT\u{200b}./hooks",
        ] {
            assert!(kept(path), "{path:?}");
        }
        for path in [".vscodé", "vscode", ".git\u{e9}/hooks", "...", " ", ".e nv"] {
            assert!(!kept(path), "{path:?}");
        }
    }

    /// A9: what no character's folding leaves out is left alone, so that the tables here are not wider than they say.
    #[test]
    fn a9_only_what_is_ignored_is_left_out() {
        let folded = |c: char| fold(format!("a{c}b").as_bytes()).into_owned();
        // Planes 3 to 13 have no character but ideographs, 15 and 16 none at all.
        let characters = (char::MIN..='\u{1ffff}').chain('\u{e0000}'..='\u{e1fff}');
        let mut ignored = 0;
        for c in characters {
            let once = folded(c);
            ignored += u32::from(once == b"ab");
            assert_eq!(once == b"ab", is_ignored(c), "{c:?}");
            assert_eq!(once, fold(&once).into_owned(), "{c:?} is folded at once");
        }
        // The number of its code points, of which none is lacking and none is more.
        assert_eq!(ignored, 4174);
    }

    /// A4: a directory may be moved only where its new place keeps the same.
    #[test]
    fn a4_states_tell_places_apart() {
        assert_eq!(state("a"), state("b/c"));
        assert!(state("a/b").is_initial());
        for (one, other) in
            [(".git", "x"), (".git/modules", "x"), (".config", ".git"), ("target", "x"), (".git", ".GITx")]
        {
            assert_ne!(state(one), state(other), "{one} {other}");
        }
        assert_eq!(state(".git"), state("a/.GIT"));
    }

    /// A18: a repository of any name keeps what `.git` keeps, and moves only where that is so.
    #[test]
    fn a18_a_repository_has_any_name() {
        let bare = state("x").in_repository();
        let find = |path: &str| matches!(names().find(bare, path.as_bytes()), Match::Kept { .. });
        assert!(find("hooks/update") && find("config") && find("worktrees/w/commondir") && find("sub/.git/config"));
        assert!(!find("objects/config") && !find("HEAD"));
        assert_eq!(bare, state(".git"));
        assert_ne!(bare, state("x"));
        assert_eq!(State::FREE.in_repository(), State::FREE);
    }

    #[test]
    fn nothing_is_kept_in_a_free_directory() {
        assert!(!kept("node_modules/a/.vscode/settings.json") && !kept("target/.git/hooks/x"));
        assert!(kept("Node_Modules/.vscode") && kept(".git/hooks/target"));
        assert!(state("a/target/b").is_free());
        assert!(kept(".git/modules/target/hooks"), "a submodule of that name");
    }

    /// A16: the tree's own path counts, and what is kept or free about it is not held against what lies in it.
    #[test]
    fn a16_a_granted_tree_stands_where_it_is() {
        let find = |root: &str, path: &str| {
            matches!(names().find(names().root(root.as_bytes()), path.as_bytes()), Match::Kept { .. })
        };
        assert!(find("/home/u/.config", "fish/config.fish"));
        assert!(find("/home/u/r/.git", "hooks/x"));
        assert!(!find("/home/u/.claude/worktrees/x", "src/a") && find("/home/u/.claude/worktrees/x", ".env"));
        assert!(find("/x/target/w", ".bashrc"));
    }
}
