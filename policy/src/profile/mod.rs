//! Which tools there are, what they may do, and about which of them somebody is asked (S4-1, X4-1, C-8, C-24).
//!
//! The built-in ones and those that people write in YAML are the same data.

mod decode;

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::document::ManifestError;
use crate::document::error::Fault;
use crate::effect::{Effect, EffectKind, EffectKinds, Effects, WriteKind};
use crate::mode::Mode;
use crate::path::{HostPath, normalize};
use crate::rules::Rule;
use crate::tool::Subject;

/// The largest profile that is read, bytes.
pub const MAX_BYTES: usize = 64 * 1024;

/// Tools that S4 asks about where `approval.mode` is `dangerous` (X4-3).
pub const DANGEROUS_TOOLS: [&str; 9] =
    ["bash", "write", "edit", "sqlite", "postgres", "mysql", "oracle", "vertica", "delegate"];

/// Patterns that S4 takes for dangerous in a command line (X4-3).
pub const DANGEROUS_PATTERNS: [&str; 10] = [
    "rm -rf",
    "rm -r",
    "DROP TABLE",
    "DROP DATABASE",
    "TRUNCATE",
    "DELETE FROM",
    "> /dev/",
    ":(){ :|:& };:",
    "mkfs",
    "dd if=",
];

/// Tools of S4's that a session need not have. A profile may name them: what is not there needs no asking.
pub const NOT_YET: [&str; 9] =
    ["list", "read_excel", "sqlite", "postgres", "mysql", "oracle", "vertica", "azure_devops", "delegate"];

/// Names that `create-only` makes no file of, nor one beneath (S4-14, X4-13).
const SENSITIVE_NAMES: [&str; 8] =
    [".bashrc", ".zshrc", ".profile", ".bash_profile", ".ssh", ".aws", ".gnupg", ".config"];

/// Places that `create-only` makes no file in.
const SENSITIVE_PLACES: [&str; 4] = ["/etc", "/usr", "/bin", "/sbin"];

/// A profile.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Profile {
    /// For messages.
    pub name: String,
    /// The file that it was read from, if it was.
    pub file: Option<ProfileFile>,
    /// For people.
    pub description: Option<String>,
    /// Purpose of a shell.
    pub shell: Shell,
    /// Files that `write` and `edit` may change.
    pub file_write: FileWrite,
    /// Statements that tools for databases may run (S4-16).
    pub database: Database,
    /// `bash` is the only tool.
    pub bash_only: bool,
    /// Mode for a call that no rule decides, where nobody names one.
    pub mode: Mode,
    /// S4's approval mode, as rules (C-7). The built-in profiles have none: their mode says it all.
    pub approval: Vec<Placed<Clause>>,
    /// How long a shell may take, if the call does not say.
    pub shell_timeout: Option<Duration>,
    /// Where a shell starts, if the call does not say: in the workspace.
    pub shell_working_dir: Option<Placed<String>>,
}

/// The file of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileFile {
    /// Its name, as the person gave it.
    pub path: String,
    /// The SHA-256 of what it says, in hexadecimal.
    pub digest: String,
}

/// Purpose of a shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shell {
    /// There is none.
    Absent,
    /// For commands that only read (S4-9, C-23).
    Restricted,
    /// For any command (S4-11).
    Unrestricted,
}

/// Files that `write` and `edit` may change (S4-13, S4-14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileWrite {
    /// They are not there.
    Off,
    /// `write` makes new files; `edit`, which overwrites, is not there (C-14).
    CreateOnly,
    /// All that is granted.
    Full,
}

/// Statements that a tool for databases may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Database {
    /// They are not there.
    Off,
    /// Look.
    Readonly,
    /// Change what is there.
    Mutations,
}

/// Something with its place, `profile.yaml:12`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed<T> {
    /// Value that stands there.
    pub value: T,
    /// The file and the line.
    pub place: String,
}

/// Clauses of a profile on approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clause {
    /// A rule.
    Rule(Rule),
    /// All that the others do not mention is allowed; a mode that somebody names takes the place of that.
    Rest,
    /// Ask about commands that hold this text, in capitals or not.
    Phrase(String),
}

/// A profile in a manifest: by name, or a file of one's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProfileName {
    /// One of [`Profile::NAMES`].
    BuiltIn(&'static str),
    /// A YAML file; a path that is relative to the manifest's directory.
    File(String),
}

impl Default for ProfileName {
    fn default() -> Self {
        Self::BuiltIn("developer")
    }
}

impl ProfileName {
    /// Reads one: what has a slash, or ends as YAML files do, is a file.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_file = text.contains('/') || text.ends_with(".yaml") || text.ends_with(".yml");
        if is_file {
            return Some(Self::File(text.to_owned()));
        }
        Profile::NAMES.into_iter().find(|name| *name == text).map(Self::BuiltIn)
    }

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::BuiltIn(name) => name,
            Self::File(path) => path,
        }
    }

    /// The profile, if its name alone says what it is.
    #[must_use]
    pub fn built_in(&self) -> Option<Profile> {
        match self {
            Self::BuiltIn(name) => Profile::built_in(name),
            Self::File(_) => None,
        }
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self::with("developer", Shell::Unrestricted, FileWrite::Full)
    }
}

impl Profile {
    /// The names of the built-in ones (X4-1, C-24).
    pub const NAMES: [&str; 6] = ["readonly", "developer", "eval", "unrestricted", "developer-bash-only", "plan"];

    /// A built-in one.
    #[must_use]
    pub fn built_in(name: &str) -> Option<Self> {
        let eval = |name| {
            let all = Self::with(name, Shell::Unrestricted, FileWrite::Full);
            Self { mode: Mode::Yolo, database: Database::Mutations, ..all }
        };
        match name {
            "readonly" => Some(Self::with("readonly", Shell::Restricted, FileWrite::Off)),
            "developer" => Some(Self::default()),
            "eval" => Some(eval("eval")),
            "unrestricted" => Some(eval("unrestricted")),
            "developer-bash-only" => {
                let bash = Self::with("developer-bash-only", Shell::Unrestricted, FileWrite::Off);
                Some(Self { bash_only: true, ..bash })
            }
            "plan" => {
                let plan = Self::with("plan", Shell::Absent, FileWrite::Off);
                Some(Self { database: Database::Off, ..plan })
            }
            _ => None,
        }
    }

    fn with(name: &str, shell: Shell, file_write: FileWrite) -> Self {
        Self {
            name: name.to_owned(),
            file: None,
            description: None,
            shell,
            file_write,
            database: Database::Readonly,
            bash_only: false,
            mode: Mode::Ask,
            approval: Vec::new(),
            shell_timeout: None,
            shell_working_dir: None,
        }
    }

    /// Reads one that is written as S4's are (X4-2). `file` is for messages, and for the places of its rules.
    ///
    /// # Errors
    /// [`ManifestError`] with the line shown: a mistake of syntax, an unknown key, a wrong value, an empty file, and what is
    /// too large, too deep or multiplies itself.
    pub fn parse(text: &str, file: &str) -> Result<Self, ManifestError> {
        // A mark that some editors write; no place is counted from it.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        decode::profile(text, file).map_err(|fault: Fault| fault.into_error(text, file))
    }

    /// True if a tool is there at all. One that is not is unavailable before anything else is looked at (C-7, X3-4).
    #[must_use]
    pub fn offers(&self, subject: Subject) -> bool {
        if subject == Subject::Execute {
            return self.shell != Shell::Absent;
        }
        if self.bash_only {
            return false;
        }
        if matches!(subject, Subject::Query | Subject::Mutate) {
            return self.database != Database::Off;
        }
        let creates = subject == Subject::Create && self.file_write != FileWrite::Off;
        creates || subject.changes_nothing() || self.file_write == FileWrite::Full
    }

    /// Kinds of effects that nobody is asked about unless a rule says so, because they change nothing (C-8).
    #[must_use]
    pub fn silent(&self) -> EffectKinds {
        let looks = [EffectKind::Shows, EffectKind::Lists, EffectKind::Asks, EffectKind::Notes];
        let shell = EffectKinds::of(if self.shell == Shell::Restricted { &[EffectKind::Runs] } else { &[] });
        EffectKinds::of(&looks).with(shell)
    }

    /// True if a shell is for commands that only read (S4-9, C-23).
    #[must_use]
    pub fn restricts_the_shell(&self) -> bool {
        self.shell == Shell::Restricted
    }

    /// True if anything may be changed at all, whatever is asked for.
    #[must_use]
    pub fn may_write(&self) -> bool {
        self.file_write != FileWrite::Off || self.shell == Shell::Unrestricted
    }

    /// True if somebody has to look at the commands of a command line.
    #[must_use]
    pub fn looks_at_commands(&self) -> bool {
        let phrase = |clause: &Placed<Clause>| matches!(clause.value, Clause::Phrase(_));
        self.restricts_the_shell() || self.approval.iter().any(phrase)
    }

    /// Reason why a call may not write what it writes itself, besides that only some tools are offered (X4-4).
    #[must_use]
    pub fn refuses(&self, effects: &Effects) -> Option<String> {
        let writes = || {
            effects
                .own
                .iter()
                .filter_map(|effect| if let Effect::Writes { path, how } = effect { Some((path, *how)) } else { None })
        };
        let (first, _) = writes().next()?;
        match self.file_write {
            FileWrite::Full => None,
            FileWrite::Off => Some(format!("the profile `{}` lets no tool write {first}", self.name)),
            FileWrite::CreateOnly if writes().any(|(_, how)| how != WriteKind::Create) => {
                Some(format!("the profile `{}` lets new files be made, and none be changed", self.name))
            }
            FileWrite::CreateOnly => writes().find(|(path, _)| is_sensitive(path)).map(|(path, _)| {
                format!("the profile `{}` lets no file be made in a sensitive place, such as {path}", self.name)
            }),
        }
    }

    /// Where a shell starts, if the call does not say.
    ///
    /// # Errors
    /// [`OutsideWorkspace`]: what a shell is to start in has to be a part of what the work is about.
    pub fn working_dir(&self, workspace: &[HostPath]) -> Result<Option<HostPath>, OutsideWorkspace> {
        let (Some(Placed { value, place }), Some(root)) = (&self.shell_working_dir, workspace.first()) else {
            return Ok(None);
        };
        let dir = normalize(root, &value.as_str().into());
        let inside = dir.ok().filter(|dir| workspace.iter().any(|root| dir.as_path().starts_with(root.as_path())));
        let outside = || OutsideWorkspace { place: place.clone(), dir: value.clone(), root: root.clone() };
        inside.map(Some).ok_or_else(outside)
    }
}

/// A shell is to start outside the workspace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: shell_working_dir {dir} is not in the workspace {root}")]
pub struct OutsideWorkspace {
    place: String,
    dir: String,
    root: HostPath,
}

fn is_sensitive(path: &HostPath) -> bool {
    let path = path.as_path();
    let named = path.iter().filter_map(|name| name.to_str()).any(|name| {
        // A file system that ignores case reads one for the other (A9).
        SENSITIVE_NAMES.iter().any(|sensitive| name.eq_ignore_ascii_case(sensitive))
    });
    named || SENSITIVE_PLACES.iter().any(|place| path.starts_with(place))
}
