//! Requirements of a manifest or a tool, before anyone has granted it (S0-5, S0-36).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::pattern::{ArgPatterns, HostPattern, PathTemplate, PatternError};

/// Rights that are asked for; every part is optional, and what is left out asks for nothing (S0-36).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RequirementSet {
    /// Files.
    pub fs: FsRequirement,
    /// Hosts.
    pub net: NetRequirement,
    /// Programs that a command line may start. Without any, it can start nothing.
    pub shell: Vec<ShellRunRequirement>,
    /// Names of a closed set, for what the others do not cover.
    pub capabilities: Vec<String>,
}

/// `fs.read[]` and `fs.write[]` (S0-36).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FsRequirement {
    /// To read.
    pub read: Vec<PathTemplate>,
    /// To read, create, change and remove.
    pub write: Vec<PathTemplate>,
    /// Refuse to run with a pattern that the kernel can only be told in a wider form.
    pub exact: bool,
}

/// `net.hosts[]` (S0-36).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetRequirement {
    /// To connect to.
    pub hosts: Vec<HostPattern>,
}

/// One program, and with which arguments (S0-37).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShellRunRequirement {
    /// Its name, its path, or any program.
    pub cmd: Program,
    /// The patterns of `argv[1..]`; without them, any arguments.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub args: Option<ArgPatterns>,
}

impl fmt::Display for ShellRunRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from(self.cmd.clone()))?;
        match &self.args {
            Some(args) => write!(f, " [{args}]"),
            None => Ok(()),
        }
    }
}

/// Program that `cmd` names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Program {
    /// A bare name, looked up on the session's fixed `PATH`.
    Name(String),
    /// A literal path: for a program in a directory that the session can write.
    Path(PathTemplate),
    /// `DIR/**`: every program below a directory, now or later (S0-39).
    Tree(PathTemplate),
    /// `*`: any program the call can read (our extension).
    Any,
}

impl Program {
    /// Reads `cmd`.
    ///
    /// # Errors
    ///
    /// [`PatternError`] for an empty name, a relative path, or a glob other than `DIR/**`.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if let Some(c) = text.chars().find(|c| c.is_control()) {
            return Err(PatternError::Control(c));
        }
        match text {
            "" => Err(PatternError::Empty),
            "*" => Ok(Self::Any),
            _ if text.starts_with(['/', '{']) => {
                let path = PathTemplate::parse(text)?;
                match (path.is_literal(), path.is_subtree()) {
                    (true, _) => Ok(Self::Path(path)),
                    (_, true) => Ok(Self::Tree(path)),
                    (false, false) => Err(PatternError::Programs(text.to_owned())),
                }
            }
            _ if text.contains(['*', '?', '[', '{']) => Err(PatternError::Programs(text.to_owned())),
            "." | ".." => Err(PatternError::Program(text.to_owned())),
            _ if text.contains('/') => Err(PatternError::Program(text.to_owned())),
            _ => Ok(Self::Name(text.to_owned())),
        }
    }
}

impl TryFrom<String> for Program {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        Self::parse(&text)
    }
}

impl From<Program> for String {
    fn from(program: Program) -> Self {
        match program {
            Program::Name(name) => name,
            Program::Path(path) | Program::Tree(path) => path.into(),
            Program::Any => "*".to_owned(),
        }
    }
}

impl RequirementSet {
    /// True if it asks for nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Union of both (S0-7). Each item is kept once; `exact` holds if either says so, since it only tightens.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self {
            fs: FsRequirement {
                read: both(&self.fs.read, &other.fs.read),
                write: both(&self.fs.write, &other.fs.write),
                exact: self.fs.exact || other.fs.exact,
            },
            net: NetRequirement { hosts: both(&self.net.hosts, &other.net.hosts) },
            shell: both(&self.shell, &other.shell),
            capabilities: both(&self.capabilities, &other.capabilities),
        }
    }

    /// Rights that `callgate run` asks for without a manifest: the workspace to read and write, any program, no network.
    ///
    /// # Errors
    ///
    /// None in practice: the patterns are constants. The type keeps this crate free of panics.
    pub fn for_run() -> Result<Self, PatternError> {
        Ok(Self {
            fs: FsRequirement { write: vec![PathTemplate::parse("{workspace}/**")?], ..FsRequirement::default() },
            shell: vec![ShellRunRequirement { cmd: Program::Any, args: None }],
            ..Self::default()
        })
    }
}

fn both<T: Clone + PartialEq>(left: &[T], right: &[T]) -> Vec<T> {
    let mut all = left.to_vec();
    for item in right {
        if !all.contains(item) {
            all.push(item.clone());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use super::*;

    /// S0-36: all optional, nothing unknown.
    #[test]
    fn a_set_is_optional_in_every_part_and_closed() {
        assert!(serde_json::from_str::<RequirementSet>("{}").unwrap().is_empty());
        for json in [
            r#"{"fs": {"execute": []}}"#,
            r#"{"network": {}}"#,
            r#"{"fs": {"read": ["{nope}/**"]}}"#,
            r#"{"shell": [{"cmd": "bin/x"}]}"#,
            r#"{"shell": [{"cmd": "/bin/*"}]}"#,
            r#"{"shell": [{"cmd": "/**"}]}"#,
            r#"{"shell": [{"cmd": "target/**"}]}"#,
            r#"{"shell": [{}]}"#,
            r#"{"net": {"hosts": ["*"]}}"#,
        ] {
            assert!(serde_json::from_str::<RequirementSet>(json).is_err(), "{json}");
        }
    }

    /// S0-7: a union holds each item of both, once.
    #[test]
    fn union_holds_both() {
        let parse = |json| serde_json::from_str::<RequirementSet>(json).unwrap();
        let left = parse(r#"{"fs": {"read": ["a", "b"], "exact": true}, "shell": [{"cmd": "git"}]}"#);
        let right = parse(r#"{"fs": {"read": ["b", "c"]}, "net": {"hosts": ["x.com"]}}"#);
        let union = left.union(&right);
        assert_eq!(
            serde_json::to_value(&union).unwrap(),
            serde_json::json!({
                "fs": {"read": ["a", "b", "c"], "write": [], "exact": true},
                "net": {"hosts": ["x.com"]},
                "shell": [{"cmd": "git"}],
                "capabilities": [],
            })
        );
        assert_eq!(union.union(&right), union);
    }
}
