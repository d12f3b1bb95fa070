//! The directories that a manifest names without knowing them (S0-39).

use crate::path::HostPath;

/// A name that patterns may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PatternVariable {
    /// `{workspace}`: its root and the further roots.
    Workspace,
    /// `{ad-hoc}`: the directories of files that are open without being in the workspace.
    AdHoc,
    /// `{user-data}`: the host's directory for this user's data.
    UserData,
}

impl PatternVariable {
    /// All of them, as they are written.
    pub(crate) const ALL: [(&str, Self); 3] =
        [("{workspace}", Self::Workspace), ("{ad-hoc}", Self::AdHoc), ("{user-data}", Self::UserData)];

    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name {
            "workspace" => Some(Self::Workspace),
            "ad-hoc" => Some(Self::AdHoc),
            "user-data" => Some(Self::UserData),
            _ => None,
        }
    }
}

/// Values of the variables in one session. A variable that stands for no directory makes its patterns grant nothing
/// (S0-40).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Variables {
    workspace: Vec<HostPath>,
    ad_hoc: Vec<HostPath>,
    user_data: Vec<HostPath>,
}

/// A directory that cannot stand for a variable: patterns beneath it would mean something else than they say.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the directory {0} is not an absolute path without `.` and `..`")]
pub struct VariableError(
    /// The directory.
    pub HostPath,
);

impl Variables {
    /// Takes the directories of `{workspace}`, `{ad-hoc}` and `{user-data}`, resolved by the supervisor.
    ///
    /// # Errors
    ///
    /// [`VariableError`] unless each is absolute and lexically normal.
    pub fn new(
        workspace: Vec<HostPath>,
        ad_hoc: Vec<HostPath>,
        user_data: Vec<HostPath>,
    ) -> Result<Self, VariableError> {
        match workspace.iter().chain(&ad_hoc).chain(&user_data).find(|dir| !dir.is_normal()) {
            Some(dir) => Err(VariableError(dir.clone())),
            None => Ok(Self { workspace, ad_hoc, user_data }),
        }
    }

    /// The workspace's roots.
    #[must_use]
    pub fn workspace(&self) -> &[HostPath] {
        &self.workspace
    }

    pub(crate) fn dirs(&self, variable: PatternVariable) -> &[HostPath] {
        match variable {
            PatternVariable::Workspace => &self.workspace,
            PatternVariable::AdHoc => &self.ad_hoc,
            PatternVariable::UserData => &self.user_data,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use super::*;
    use crate::pattern::PathTemplate;

    /// S0-39: several roots give several patterns, also for a relative pattern.
    #[test]
    fn each_root_gives_a_pattern() {
        let variables = Variables::new(vec!["/w".into(), "/x".into()], vec!["/y".into()], vec![]).unwrap();
        let expand = |text| {
            let patterns = PathTemplate::parse(text).unwrap().expand(&variables);
            patterns.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(expand("{workspace}/**"), ["/w/**", "/x/**"]);
        assert_eq!(expand("src/a"), ["/w/src/a", "/x/src/a"]);
        assert_eq!(expand("{ad-hoc}/*"), ["/y/*"]);
        assert_eq!(expand("{user-data}/**"), Vec::<String>::new(), "S0-40: nothing grants nothing");
    }

    #[test]
    fn a_directory_must_be_normal() {
        assert_eq!(Variables::new(vec!["/w/..".into()], vec![], vec![]), Err(VariableError("/w/..".into())));
        assert!(Variables::new(vec!["w".into()], vec![], vec![]).is_err());
    }
}
