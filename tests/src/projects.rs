//! Real programs and projects, run bare and under callgate (`tests/compat.toml`).

use std::fmt::{self, Write as _};

use serde::Deserialize;

use crate::{Host, ProgramRunner, Target, TestEnv, User};

/// One program or project.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompatProject {
    /// Name in the table.
    pub name: String,
    /// Description of what is tried, in a few words.
    pub what: String,
    /// Debian packages that it needs.
    #[serde(default)]
    pub debian: Vec<String>,
    /// A line of bash that makes the workspace, without callgate. May use the network.
    #[serde(default)]
    pub prepare: String,
    /// The line that is compared. It succeeds bare.
    pub run: String,
    /// Flags of `callgate run`.
    #[serde(default)]
    pub flags: Vec<String>,
    /// Reason why it fails under callgate on a host with namespaces.
    pub differs_with_namespaces: Option<String>,
    /// Reason why it fails on a host without.
    pub differs_without_namespaces: Option<String>,
    /// True if it needs no more than the suite's own packages and a few seconds: the suite runs it.
    #[serde(default)]
    pub quick: bool,
}

/// Result of a project on one host, as one user.
#[derive(Debug)]
pub struct Met {
    target: Target,
    outcome: ProjectOutcome,
}

#[derive(Debug, PartialEq, Eq)]
enum ProjectOutcome {
    /// The host lacks the program, or bare it fails as well.
    NotTried(String),
    Same,
    /// It fails; the last lines that it wrote.
    Different(String),
}

impl fmt::Display for Met {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            ProjectOutcome::NotTried(why) => write!(f, "not tried ({why})"),
            ProjectOutcome::Same => f.write_str("as bare"),
            ProjectOutcome::Different(said) => {
                write!(f, "DIFFERENT on {:?} as {:?}: {said}", self.target.host, self.target.user)
            }
        }
    }
}

impl Met {
    /// The reason, if it was not tried.
    pub fn not_tried(&self) -> Option<&str> {
        match &self.outcome {
            ProjectOutcome::NotTried(why) => Some(why),
            ProjectOutcome::Same | ProjectOutcome::Different(_) => None,
        }
    }

    /// True if it works, or the table says why not.
    pub fn is_as_said_of(&self, project: &CompatProject) -> bool {
        match &self.outcome {
            ProjectOutcome::NotTried(_) | ProjectOutcome::Same => true,
            ProjectOutcome::Different(_) => project.reason(self.target).is_some(),
        }
    }
}

impl CompatProject {
    fn reason(&self, target: Target) -> Option<&str> {
        let (with, without) = (&self.differs_with_namespaces, &self.differs_without_namespaces);
        target.by_strength(with, without).as_deref()
    }

    /// Runs it bare and, if that succeeds, under callgate, each in a workspace of its own.
    pub fn meet(&self, target: Target) -> Met {
        Met { target, outcome: self.outcome(target) }
    }

    fn outcome(&self, target: Target) -> ProjectOutcome {
        let env = TestEnv::new(target);
        let home = |env: &TestEnv, run: ProgramRunner| match target.user {
            User::Root => run,
            // Whose home directory root's is not.
            User::Ordinary => run.variable("HOME", &env.outside().display().to_string()),
        };
        let tried = |run: ProgramRunner| {
            let ended = run.run(&["bash", "-ec", &self.run]);
            let said = format!("{}{}", ended.stdout, ended.stderr);
            let last: Vec<&str> = said.lines().rev().take(3).collect();
            let last = last.into_iter().rev().collect::<Vec<_>>().join(" / ");
            if ended.status.success() { Ok(()) } else { Err(format!("{}: {last}", ended.status)) }
        };
        let prepare = |env: &TestEnv| {
            let made = home(env, env.bare()).run(&["bash", "-ec", &self.prepare]);
            if made.status.success() { Ok(()) } else { Err(format!("it cannot be made ready: {}", made.stderr.trim())) }
        };
        if let Err(why) = prepare(&env).and_then(|()| tried(home(&env, env.bare()))) {
            return ProjectOutcome::NotTried(why);
        }
        let env = TestEnv::new(target);
        if let Err(why) = prepare(&env) {
            return ProjectOutcome::NotTried(why);
        }
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        tried(home(&env, env.sandbox()).flag(&flags)).map_or_else(ProjectOutcome::Different, |()| ProjectOutcome::Same)
    }
}

/// All of them.
pub fn projects() -> Vec<CompatProject> {
    #[derive(Deserialize)]
    struct All {
        project: Vec<CompatProject>,
    }
    let all: All = toml::from_str(include_str!("../compat.toml")).expect("tests/compat.toml is well formed");
    all.project
}

/// The table as a page of the documentation.
pub fn page(rows: &[(&CompatProject, Vec<Met>)]) -> String {
    let mut page = String::from(
        "# What works under callgate\n\nReal programs, run bare and then under `callgate run` with its defaults, as root and as an \
         ordinary user. \"Yes\" means that the program succeeds as it does bare. The table is written by \
         `cargo run -p callgate-tests --bin compat -- --install --write`, from `tests/compat.toml`.\n\n\
         | program | what was tried | with namespaces | without namespaces |\n|---|---|---|---|\n",
    );
    for (project, met) in rows {
        let cell = |host: Host| -> String {
            let here = || met.iter().filter(|met| met.target.host == host);
            let of = |user: User| here().find(|met| met.target.user == user).map(|met| &met.outcome);
            match [User::Root, User::Ordinary].map(of) {
                [Some(ProjectOutcome::Same), Some(ProjectOutcome::Same)] => "yes".to_owned(),
                [root, ordinary] => {
                    let differs = here().find(|met| matches!(met.outcome, ProjectOutcome::Different(_)));
                    let reason = differs.and_then(|met| project.reason(met.target));
                    let who = match (root, ordinary) {
                        (Some(ProjectOutcome::Same), _) => "yes as root; as a user ",
                        (_, Some(ProjectOutcome::Same)) => "yes as a user; as root ",
                        _ => "",
                    };
                    let what = if differs.is_some() { "no" } else { "not tried" };
                    reason.map_or(format!("{who}{what}"), |reason| format!("{who}{what}: {reason}"))
                }
            }
        };
        let flags = if project.flags.is_empty() { String::new() } else { format!(" (`{}`)", project.flags.join(" ")) };
        let (with, without) = (cell(Host::Namespaces), cell(Host::NoNamespaces));
        let row = writeln!(page, "| {} | {}{flags} | {with} | {without} |", project.name, project.what);
        row.expect("a string takes everything");
    }
    page
}
