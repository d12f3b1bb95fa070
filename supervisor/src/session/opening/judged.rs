//! Third stage: what is in force, judged as a whole, before anything of it is made.
//!
//! Owes: variables that steer programs; a directory, or a path that was typed, that a link of a call decides; a home directory as the
//! workspace; a grant of a home directory, of what sessions keep or of where tools are declared, by the name that it has; what a manifest
//! says that is not in force yet; approvals for a project that is not trusted; rules and modes that make no sense; credentials that cannot
//! be read.

use std::sync::Arc;

use callgate_policy::approval::ApprovalScope;
use callgate_policy::effective::{DEBUG, EffectiveSet};
use callgate_policy::limit::{Bounds, Limits};
use callgate_policy::manifest::{Env, Manifest};
use callgate_policy::plan::compile;
use callgate_policy::plan::{Watched, env};
use callgate_policy::rules::RuleSet;
use callgate_policy::watchdog::{CallFacts, ExecFacts, Verdict, Wants, Watchdog};

use super::super::family::Ancestry;
use super::super::rules::rules;
use super::super::{Lineage, SessionSpec, Warning, WatchdogObject};
use super::barred::Barred;
use super::believed::BelievedTools;
use super::roots::HeldRoots;
use crate::credentials::Credentials;
use crate::gate::Watchdogs;
use crate::host;
use crate::open_error::OpenError;
use crate::place::Changeable;
use crate::registry::Databases;
use crate::supervisor::Supervisor;
use crate::trust::Project;

/// Rights in force that may be, and what holds beside them.
pub(super) struct JudgedRights {
    pub(super) held: HeldRoots,
    pub(super) tools: BelievedTools,
    pub(super) ancestry: Ancestry,
    /// Places where calls may have put links.
    pub(super) changeable: Changeable,
    pub(super) rules: RuleSet,
    /// Where approvals are kept beyond the session.
    pub(super) project: Option<Project>,
    pub(super) limits: Limits,
    pub(super) bounds: Bounds,
    pub(super) env: Env,
    pub(super) credentials: Arc<Credentials>,
    /// As they are configured, also in a file that calls could read.
    pub(super) databases: Databases,
    pub(super) watchdogs: Arc<Watchdogs>,
    /// Who judges every program that is about to run, if anybody does.
    pub(super) watched: Option<Watched>,
    pub(super) warnings: Vec<Warning>,
    /// Only the constructor below makes one.
    _made: (),
}

impl JudgedRights {
    /// Judges them.
    pub(super) fn of(
        supervisor: &Supervisor,
        (held, tools): (HeldRoots, BelievedTools),
        spec: &mut SessionSpec,
        lineage: Option<&Lineage>,
    ) -> Result<Self, OpenError> {
        let effective = tools.effective();
        env::refuse_steering(&spec.env, &compile::exec(effective))?;
        let mut ancestry = lineage.map(|lineage| lineage.ancestry.clone()).unwrap_or_default();
        if lineage.is_none() {
            ancestry.written = compile::written(effective);
            ancestry.asked = effective.asked_for();
            ancestry.most = Some(Arc::new(effective.clone()));
        }
        let changeable = Changeable::of(held.host(), held.held(), &ancestry.written, &ancestry.asked);
        refuse_planted_links(&held, spec, &changeable)?;
        if !spec.allow_home {
            refuse_home_as_workspace(&held)?;
        }
        barred(supervisor, spec, &held).refuse(effective)?;
        let mut warnings = Vec::new();
        warnings.extend(
            held.roots()
                .first()
                .and_then(|root| Warning::part_of_repository(root.path(), effective, held.host().homes())),
        );
        if let Some(manifest) = &spec.manifest {
            refuse_what_is_not_yet_in_force(manifest)?;
        }
        let project = project(spec)?;
        let (limits, env) = match &spec.manifest {
            Some(manifest) => (spec.limits.or(manifest.limits), joined(&manifest.env, &spec.env)),
            None => (spec.limits, spec.env.clone()),
        };
        let watchdogs = match lineage {
            Some(lineage) => Arc::clone(&lineage.watchdogs),
            None => Arc::new(watchdogs(supervisor, std::mem::take(&mut spec.watchdogs))),
        };
        let in_manifest = spec.manifest.as_ref().is_some_and(|manifest| manifest.watch_execs);
        let watched = watchdogs.watched(spec.watch_execs || in_manifest);
        let inherited = lineage.map(|lineage| lineage.rules.clone());
        let rules = rules(spec, inherited, held.profile(), tools.registry(), held.variables())?;
        let credentials = Arc::new(credentials(spec, &tools, lineage, &changeable)?);
        if lineage.is_none() {
            ancestry.env = env.clone();
            ancestry.credentials = Arc::clone(&credentials);
        }
        let databases = match tools.databases() {
            Some(databases) => databases.clone(),
            None => Databases::of_session(tools.registry().dialects(), &changeable),
        };
        let bounds = Bounds::of(&limits, host::memory());
        Ok(Self {
            held,
            tools,
            ancestry,
            changeable,
            rules,
            project,
            limits,
            bounds,
            env,
            credentials,
            databases,
            watchdogs,
            watched,
            warnings,
            _made: (),
        })
    }

    /// Rights in force.
    pub(super) fn effective(&self) -> &EffectiveSet {
        self.tools.effective()
    }
}

/// Places that no session reaches which is opened like this.
pub(super) fn barred<'a>(supervisor: &'a Supervisor, spec: &'a SessionSpec, held: &'a HeldRoots) -> Barred<'a> {
    Barred {
        allow_home: spec.allow_home,
        host: held.host(),
        user_tools: spec.user_tools.as_deref(),
        store: supervisor.store.as_ref(),
    }
}

/// Refuses a home directory as the workspace, whatever is granted of it.
fn refuse_home_as_workspace(held: &HeldRoots) -> Result<(), OpenError> {
    let found = held.roots().iter().find_map(|root| Some((root, held.host().homes().found_in(&root.link())?)));
    match found {
        None => Ok(()),
        Some((root, why)) => {
            Err(OpenError::Home { act: format!("use {} as the workspace", root.path()), why: why.to_string() })
        }
    }
}

/// Refuses directories and paths that a link decides which a call may have made.
fn refuse_planted_links(held: &HeldRoots, spec: &SessionSpec, changeable: &Changeable) -> Result<(), OpenError> {
    let directories = held.held().map(|place| (place.path().as_path(), place.planted_link(changeable)));
    let typed = spec.typed.iter().map(|path| (path.typed(), path.planted_link(changeable)));
    match directories.chain(typed).find_map(|(path, link)| Some((path, link?))) {
        Some((path, link)) => Err(OpenError::Linked { act: format!("use {}", path.display()), link }),
        None => Ok(()),
    }
}

/// Credentials of the manifest and of tools. A subagent has those that its agent names, and nobody can name a tool's.
fn credentials(
    spec: &SessionSpec,
    tools: &BelievedTools,
    lineage: Option<&Lineage>,
    changeable: &Changeable,
) -> Result<Credentials, OpenError> {
    let mut declared = spec.manifest.as_ref().map(|manifest| manifest.net.credentials.clone()).unwrap_or_default();
    let of_tools = tools.registry().tools().filter(|_| lineage.is_none()).filter_map(|tool| tool.executor.credential());
    declared.extend(of_tools);
    Ok(Credentials::read(&declared, tools.effective(), changeable)?)
}

/// The watchdogs of a session that a host opens.
fn watchdogs(supervisor: &Supervisor, of_host: Vec<Arc<dyn WatchdogObject>>) -> Watchdogs {
    let mut watchdogs = Watchdogs::default();
    for watchdog in of_host {
        watchdogs.add(Box::new(HeldWatchdog(watchdog)));
    }
    for program in &supervisor.watchdogs {
        watchdogs.add_program(program.clone());
    }
    watchdogs
}

/// A watchdog of the host's, as the gate holds it.
struct HeldWatchdog(Arc<dyn WatchdogObject>);

impl Watchdog for HeldWatchdog {
    fn judge(&self, call: &CallFacts<'_>) -> Verdict {
        self.0.judge(call)
    }

    fn wants(&self) -> Wants {
        self.0.wants()
    }

    fn judge_exec(&self, exec: &ExecFacts<'_>) -> Verdict {
        self.0.judge_exec(exec)
    }
}

/// The manifest's variables and those that were typed, which win.
fn joined(manifest: &Env, typed: &Env) -> Env {
    let mut all = manifest.clone();
    all.pass.retain(|name| !typed.set.contains_key(name));
    all.set.retain(|name, _| !typed.pass.contains(name));
    all.pass.extend(typed.pass.iter().cloned());
    all.set.extend(typed.set.clone());
    all
}

/// A manifest may say what later versions act on. Acting as if it had not been said would be a silent downgrade.
fn refuse_what_is_not_yet_in_force(manifest: &Manifest) -> Result<(), OpenError> {
    let refuse = |what: &str, remedy| Err(OpenError::NotYet { what: format!("{what} of {}", manifest.file), remedy });
    match manifest.requires.capabilities.iter().find(|name| *name != DEBUG) {
        Some(name) => refuse(&format!("the capability `{name}`"), "it has no point that enforces it yet; leave it out"),
        None => Ok(()),
    }
}

/// Where approvals are kept beyond the session, if the manifest wants that: its own project, and no other, since whoever may
/// change a manifest that nobody trusts could have them kept.
fn project(spec: &mut SessionSpec) -> Result<Option<Project>, OpenError> {
    let Some(manifest) = spec.manifest.as_ref().filter(|manifest| manifest.approvals == ApprovalScope::Project) else {
        return Ok(None);
    };
    match spec.project.take() {
        Some(project) if project.manifest == *manifest => Ok(Some(project)),
        _ => Err(OpenError::NotTrusted { file: manifest.file.clone() }),
    }
}
