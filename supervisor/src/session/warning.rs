//! What a host should show its user about a session that was opened all the same.

use std::fmt;

use callgate_policy::effective::{Beyond, Kind};
use callgate_policy::path::HostPath;
use callgate_policy::plan::compile::LeftOut;

/// Something about a session that its user may not have meant. Nothing is refused for it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// The manifest asks for paths or programs, its tools require more, and no ceiling bounds that. Both count (S0-7).
    ToolsRequireMore {
        /// The manifest.
        file: String,
        /// Whether it names anything of this kind itself.
        names_any: bool,
        /// What the tools require beyond it.
        beyond: Beyond,
    },
    /// A Python environment is active outside, and its programs are not on the session's `PATH`.
    EnvironmentNotActive {
        /// `VIRTUAL_ENV`.
        directory: HostPath,
        /// Why its programs are left out.
        why: LeftOut,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, names_any, Beyond { kind, tools, required }) = match self {
            Self::ToolsRequireMore { file, names_any, beyond } => (file, names_any, beyond),
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
