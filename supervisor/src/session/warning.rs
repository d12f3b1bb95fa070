//! Warnings that a host should show its user about a session that was opened all the same.

use std::fmt;
use std::path::Path;

use callgate_policy::effective::{Beyond, EffectiveSet, Kind, Narrowing, Source};
use callgate_policy::path::HostPath;
use callgate_policy::plan::compile::LeftOut;

use crate::home::Homes;

/// Something about a session that its user may not have meant. Nothing is refused for it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// The manifest asks for paths or programs, its tools require more, and no ceiling bounds that. Both count (S0-7).
    ToolsRequireMore {
        /// The manifest.
        file: String,
        /// True if it names anything of this kind itself.
        names_any: bool,
        /// Requirements of the tools beyond it.
        beyond: Beyond,
    },
    /// Something that was typed is in force in part only, or not at all.
    FlagBounded(Narrowing),
    /// The workspace is a part of a git repository that the session cannot read, so that git finds none.
    PartOfRepository {
        /// The workspace's first root.
        workspace: HostPath,
        /// The top of the repository's working tree.
        repository: HostPath,
    },
    /// A Python environment is active outside, and its programs are not on the session's `PATH`.
    EnvironmentNotActive {
        /// `VIRTUAL_ENV`.
        directory: HostPath,
        /// Reason why its programs are left out.
        why: LeftOut,
    },
}

impl Warning {
    /// Warnings of what was typed and is not in force, once for each.
    pub(super) fn flags_bounded(effective: &EffectiveSet) -> impl Iterator<Item = Self> + '_ {
        let is_typed = |lost: &&Narrowing| {
            let mut origins = lost.origins.iter().filter(|origin| origin.kind == lost.kind);
            origins.any(|origin| origin.source == Source::CommandLine)
        };
        // One that a flag bounds was typed with that flag.
        let bounded = effective.narrowings().iter().filter(is_typed).filter(|lost| lost.bound != Source::CommandLine);
        bounded.cloned().map(Self::FlagBounded)
    }

    /// Warning that a workspace is a part of a repository that stays outside. A home directory is nothing to use in its
    /// place.
    pub(super) fn part_of_repository(workspace: &HostPath, effective: &EffectiveSet, homes: &Homes) -> Option<Self> {
        let is_top = |path: &&Path| {
            let git = path.join(".git");
            git.join("HEAD").symlink_metadata().is_ok() || git.metadata().is_ok_and(|about| about.is_file())
        };
        let top = workspace.as_path().ancestors().find(is_top).filter(|top| *top != workspace.as_path())?;
        let is_outside = !effective.allows_read(&HostPath::from(top.join(".git").as_path()));
        let is_project = || top != Path::new("/") && homes.found_in(top).is_none();
        (is_outside && is_project())
            .then(|| Self::PartOfRepository { workspace: workspace.clone(), repository: HostPath::from(top) })
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, names_any, Beyond { kind, tools, required }) = match self {
            Self::ToolsRequireMore { file, names_any, beyond } => (file, names_any, beyond),
            Self::FlagBounded(Narrowing { kind, asked, bound, left, .. }) => {
                let flag = match kind {
                    Kind::Read => "--read",
                    Kind::Write => "--write",
                    Kind::Hosts => "--net",
                    Kind::Shell => "--exec",
                    Kind::Capabilities => "--debug, which asks for",
                };
                let grants = if left.is_empty() { "nothing".to_owned() } else { format!("only {}", left.join(", ")) };
                return write!(f, "{flag} {asked} grants {grants}; it is bounded by {}", bound.in_a_sentence());
            }
            Self::PartOfRepository { workspace, repository } => {
                return write!(
                    f,
                    "{workspace} is a part of the git repository {repository}, which is not granted, so that git finds no \
                     repository; to give git the whole, make {repository} the workspace"
                );
            }
            Self::EnvironmentNotActive { directory, why } => {
                write!(f, "the active environment {directory} is not on the PATH inside ({why}); ")?;
                return if *why == LeftOut::NotReadable {
                    write!(f, "to use it, grant it: --read {directory}")
                } else {
                    write!(f, "start its programs by path: {directory}/bin/python")
                };
            }
        };
        let what = match kind {
            Kind::Read => "what may be read",
            Kind::Write => "what may be written",
            Kind::Hosts => "what may be connected to",
            Kind::Shell => "what may be started",
            Kind::Capabilities => "capabilities",
        };
        let names = if *names_any { "names" } else { "does not name" };
        let verb = if tools.len() == 1 { "requires" } else { "require" };
        let tools: Vec<String> = tools.iter().map(|tool| format!("`{tool}`")).collect();
        let required = required.join(", ");
        let required = match kind {
            Kind::Read | Kind::Write => format!("all of {required}"),
            Kind::Shell if required == "*" => "any program".to_owned(),
            Kind::Hosts | Kind::Shell | Kind::Capabilities => required,
        };
        let count = if *names_any { "both count" } else { "that counts" };
        write!(
            f,
            "{file} {names} {what}, and {} {verb} {required}: {count}. To bound it, say so in {}",
            listed(&tools),
            kind.ceiling_table()
        )
    }
}

fn listed(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
