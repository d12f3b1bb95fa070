//! Opening a session: what is in force, and confining its processes to that.

use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use callgate_policy::approval::ApprovalScope;
use callgate_policy::effective::{Bound, Contribution, DEBUG, Declared, EffectiveSet, Kind, Source, beyond, narrow};
use callgate_policy::limit::Bounds;
use callgate_policy::manifest::{Env, Manifest};
use callgate_policy::path::{HostPath, normalize};
use callgate_policy::plan::compile::{self, HostFacts};
use callgate_policy::plan::env;
use callgate_policy::plan::{
    Ablation, AskedFor, Calls, PolicyFiles, PrivateDir, PrivateKind, SessionPlan, Strength, Watched,
};
use callgate_policy::profile::Profile;
use callgate_policy::requirement::RequirementSet;
use callgate_policy::rules::{RuleScope, RuleSource};
use callgate_policy::shell::restricted;
use callgate_policy::step::Step;
use callgate_policy::variable::Variables;
use callgate_policy::watchdog::{CallFacts, ExecFacts, Verdict, Wants, Watchdog};

use super::barred::Barred;
use super::believed::Believed;
use super::policy_files;
use super::rules::rules;
use super::sources::{Sources, leads_out};
use super::written::real_path;
use super::{
    Family, Lineage, Notebook, Overflow, Rearing, Sandbox, Session, SessionSpec, StrengthChoice, Tools, Warning,
    WatchdogObject,
};
use crate::aborts::Aborts;
use crate::background::kept::Background;
use crate::confine::{ConfineError, Opened, Outputs, private_directory};
use crate::credentials::Credentials;
use crate::facts;
use crate::gate::people::People;
use crate::gate::{Gate, Halt, Watchdogs};
use crate::home::Homes;
use crate::host::{self, Missing};
use crate::id::new_id;
use crate::open_error::OpenError;
use crate::place::{self, Changeable, Looked, Place, Unusable};
use crate::profile::ProfileError;
use crate::registry::{Databases, Registry};
use crate::store::{Kept, KnownOutputs, NewSession, PolicyDigests, Recorder, Redaction, StoreError, Stored};
use crate::supervisor::Supervisor;
use crate::trust::Project;
use crate::turn::Turns;

impl Supervisor {
    /// Opens a session.
    ///
    /// # Errors
    /// [`OpenError`]; nothing has run, and nothing is left behind.
    pub async fn open(&self, spec: SessionSpec) -> Result<Session, OpenError> {
        self.open_with(spec, None, None).await
    }

    /// Opens a session that lacks a mechanism, and that nothing runs in but acts of the probe.
    pub(crate) async fn open_ablated(&self, spec: SessionSpec, ablation: Ablation) -> Result<Session, OpenError> {
        self.open_with(spec, Some(ablation), None).await
    }

    pub(crate) async fn open_with(
        &self,
        mut spec: SessionSpec,
        ablation: Option<Ablation>,
        mut lineage: Option<Lineage>,
    ) -> Result<Session, OpenError> {
        if let Some(lineage) = &lineage {
            spec.ceiling.push(lineage.bound.clone());
        }
        let inherited = lineage.as_mut().and_then(|lineage| lineage.inherited.take());
        let profile = spec.chosen_profile()?;
        let roots = roots(&spec)?;
        if let Some(lineage) = lineage.as_ref().filter(|lineage| !roots.iter().map(Place::id).eq(lineage.roots.clone()))
        {
            let what =
                format!("the workspace of {} was replaced since it was opened; open a new session", lineage.parent);
            return Err(OpenError::Replaced { what });
        }
        let workspace: Vec<HostPath> = roots.iter().map(|root| root.path().clone()).collect();
        let shell_dir = profile.working_dir(&workspace).map_err(ProfileError::from)?;
        let further = further_directories(&spec)?;
        let variables = variables(&roots, &further)?;
        let bounds = bounds(&spec, &profile, &variables)?;
        let sources = Sources::of(&mut spec, &profile, bounds, inherited);
        let held = || roots.iter().chain(further.iter().map(|(_, place)| place));
        let believed = sources.believed(&mut spec, &variables, &roots, held())?;
        let Believed { registry, skills, beside, effective, mut warnings } = believed;
        env::refuse_steering(&spec.env, &compile::exec(&effective))?;
        let mut ancestry = lineage.as_ref().map(|lineage| lineage.ancestry.clone()).unwrap_or_default();
        if lineage.is_none() {
            ancestry.written = compile::written(&effective);
            ancestry.asked = effective.asked_for();
            ancestry.most = Some(Arc::new(effective.clone()));
        }
        let changeable = Changeable::of(held(), &ancestry.written, &ancestry.asked);
        let directories = held().map(|place| (place.path().as_path(), place.planted_link(&changeable)));
        let typed = spec.typed.iter().map(|path| (path.typed(), path.planted_link(&changeable)));
        if let Some((path, Some(link))) = directories.chain(typed).find(|(_, link)| link.is_some()) {
            return Err(OpenError::Linked { act: format!("use {}", path.display()), link });
        }
        if let Some(error) = leads_out(&effective, real_path, real_path) {
            return Err(error);
        }
        let (allow_home, user_tools) = (spec.allow_home, spec.user_tools.clone());
        let barred = Barred { allow_home, user_tools: user_tools.as_deref(), store: self.store.as_ref() };
        if !allow_home {
            refuse_home_as_workspace(&roots)?;
        }
        barred.refuse(&effective)?;
        warnings.extend(roots.first().and_then(|root| Warning::part_of_repository(root.path(), &effective)));
        if let Some(manifest) = &spec.manifest {
            refuse_what_is_not_yet_in_force(manifest)?;
        }
        let found_in = spec.project.clone();
        let project = project(&mut spec)?;
        let (limits, env) = match &spec.manifest {
            Some(manifest) => (spec.limits.or(manifest.limits), joined(&manifest.env, &spec.env)),
            None => (spec.limits, spec.env.clone()),
        };
        if lineage.is_none() {
            ancestry.env = env.clone();
        }
        let bounds = Bounds::of(&limits, host::memory());
        let watchdogs = match &lineage {
            Some(lineage) => Arc::clone(&lineage.watchdogs),
            None => Arc::new(self.watchdogs(std::mem::take(&mut spec.watchdogs))),
        };
        let in_manifest = spec.manifest.as_ref().is_some_and(|manifest| manifest.watch_execs);
        let inherited = lineage.as_ref().map(|lineage| lineage.rules.clone());
        let mut rules = rules(&spec, inherited, &profile, &registry, &variables)?;
        let mut declared = spec.manifest.as_ref().map(|manifest| manifest.net.credentials.clone()).unwrap_or_default();
        // A subagent has those that its agent names, and nobody can name these.
        let of_tools = registry.tools().filter(|_| lineage.is_none()).filter_map(|tool| tool.executor.credential());
        declared.extend(of_tools);
        let credentials = Credentials::read(&declared, &effective, &changeable)?;
        let credentials = Arc::new(credentials);
        if lineage.is_none() {
            ancestry.credentials = Arc::clone(&credentials);
        }
        let databases = Databases::of_session(registry.dialects(), &effective, &changeable);
        let values = ancestry.credentials.values().chain(credentials.values()).chain(databases.secrets());
        let redaction = Redaction::of(&ancestry.env).and(values);
        let title = spec.title.as_deref().map(|title| redaction.text(title));
        let (stored, kept) = self.recorded((&spec, &profile), title.as_deref(), &workspace, lineage.as_ref())?;
        for rule in &kept.rules {
            let source = RuleSource { scope: RuleScope::Session, place: "this session".to_owned() };
            rules.add(rule, &source, &variables).map_err(OpenError::Rule)?;
        }
        let id = kept.id.clone();
        // A subagent's count is its family's.
        if lineage.is_none() {
            registry.have_searched(kept.searches);
        }
        let lasting =
            self.store.as_ref().filter(|_| ablation.is_none()).map(|store| (store.outputs(), kept.outputs.as_ref()));
        let policy = policy_files::find(&spec, &profile, &self.watchdogs, &changeable);
        let asked = Asked {
            id: &id,
            policy: &policy,
            overflow: &spec.overflow,
            lasting,
            roots: &roots,
            changeable: &changeable,
            barred,
            written: &ancestry.written,
            of_family: ancestry.most.as_deref().filter(|_| lineage.is_some()),
            unlinked: &beside,
            effective: &effective,
            env: &env,
            bounds: &bounds,
            credentials: &credentials,
            ablation: ablation.as_ref(),
            watched: watchdogs.watched(spec.watch_execs || in_manifest),
            reads: profile.restricts_the_shell(),
        };
        let first = match (spec.strength, self.without_namespaces.get()) {
            (StrengthChoice::Landlock, _) | (StrengthChoice::Best, Some(_)) => Strength::Landlock,
            (StrengthChoice::Best | StrengthChoice::Namespaces, _) => Strength::Namespaces,
        };
        let attempt = self.attempt(first, spec.calls, asked).await;
        let Attempt { effective, facts, looked, plan, mut opened, outputs } = match attempt {
            Err(OpenError::Confine(ConfineError::Refused(failed)))
                if spec.strength == StrengthChoice::Best
                    && first == Strength::Namespaces
                    && host::refuses_namespaces(&failed) =>
            {
                // Not a downgrade: the first strength holds the same grants by other means, and every result says so.
                tracing::info!(%failed, "this host refuses namespaces; Landlock and seccomp hold alone");
                let missing = Missing::namespaces(&failed);
                self.without_namespaces.get_or_init(|| missing);
                self.attempt(Strength::Landlock, spec.calls, asked).await?
            }
            other => other?,
        };
        warnings.extend(not_active(&facts));
        let recorder = Recorder::new(id.clone(), redaction, stored, kept.last);
        let rearing = Rearing {
            supervisor: self.clone(),
            depth: lineage.as_ref().map_or(0, |lineage| lineage.depth),
            agent: lineage.as_ref().map(|lineage| lineage.agent.clone()),
            ancestry,
            ad_hoc: spec.ad_hoc,
            user_data: spec.user_data,
            limits,
            env: env.clone(),
            approvers: spec.approvers.clone(),
            patience: spec.patience,
            allow_home: spec.allow_home,
            watch_execs: spec.watch_execs,
            runner: spec.agent_runner,
            endpoint: spec.agent_endpoint,
        };
        let people = People::new(spec.approvers, spec.patience, project).remember(kept.approvals, &recorder);
        let people = Arc::new(people.in_turn_with(lineage.as_ref().map(Lineage::asking).unwrap_or_default()));
        let manifest = spec.manifest.map(Arc::new);
        let gate = Gate {
            session: id.clone(),
            agent: rearing.agent.clone(),
            manifest: manifest.clone(),
            rules: RwLock::new(rules),
            profile,
            watchdogs,
            people,
            questions: Turns::default(),
            asked_by: spec.asked_by,
            headless: manifest.as_ref().map(|manifest| manifest.headless).unwrap_or_default(),
            halt: Halt::new(kept.is_halted, &recorder, lineage.as_ref().map(Lineage::halt)),
            credentials: credentials.declared(),
            #[cfg(feature = "ablation")]
            ablated: None,
        };
        let watching = opened.tracer().map(|tracer| gate.watch(tracer));
        // Now that the kernel is bound to it. What takes its place later is noticed by each call.
        if let Some(project) = found_in.filter(|project| !roots.first().is_some_and(|root| project.is_at(root))) {
            return Err(OpenError::OtherProject { path: project.root().clone() });
        }
        recorder.stands(outputs.as_ref().and_then(Outputs::to_know))?;
        let sandbox = Sandbox {
            _watching: watching,
            facts,
            looked,
            bounds,
            opened,
            outputs,
            shell_dir,
            env,
            plan,
            roots,
            changeable,
            unlinked: beside,
        };
        Ok(Session {
            id,
            manifest,
            tools: Tools::new(registry, sources, databases, spec.coercion),
            effective,
            warnings,
            gate,
            variables,
            sandbox,
            recorder,
            notebook: Notebook::new(kept.notes, skills),
            turns: Turns::default(),
            aborts: Aborts::default(),
            background: Background::default(),
            family: Family::new(rearing, lineage.and_then(|lineage| lineage.kept)),
            launcher: self.launcher.clone(),
        })
    }

    /// The watchdogs of a session that a host opens.
    fn watchdogs(&self, of_host: Vec<Arc<dyn WatchdogObject>>) -> Watchdogs {
        let mut watchdogs = Watchdogs::default();
        for watchdog in of_host {
            watchdogs.add(Box::new(HeldWatchdog(watchdog)));
        }
        for program in &self.watchdogs {
            watchdogs.add_program(program.clone());
        }
        watchdogs
    }

    /// Makes the session in the store, or takes up the one that it continues; without a store, its id alone.
    fn recorded(
        &self,
        (spec, profile): (&SessionSpec, &Profile),
        title: Option<&str>,
        workspace: &[HostPath],
        lineage: Option<&Lineage>,
    ) -> Result<(Option<Stored>, Kept), OpenError> {
        let role = spec.asked_by.role();
        let policy = PolicyDigests::of(spec.manifest.as_ref(), profile);
        let new = || -> Result<Kept, OpenError> {
            Ok(Kept { id: new_id("ses_").map_err(OpenError::Random)?, ..Kept::default() })
        };
        match (&self.store, &spec.resume) {
            (None, None) => Ok((None, new()?)),
            (None, Some(id)) => Err(StoreError::NoStore { id: id.clone() }.into()),
            (Some(store), Some(id)) => {
                let (stored, kept) = store.resume(id, workspace, &policy, role)?;
                Ok((Some(stored), kept))
            }
            (Some(store), None) => {
                let kept = new()?;
                let (id, settings) = (&kept.id, &spec.settings);
                let parent = lineage.map(Lineage::parent);
                let stored = store.begin(&NewSession { id, title, workspace, policy, settings, role, parent })?;
                Ok((Some(stored), kept))
            }
        }
    }

    async fn attempt(
        &self,
        strength: Strength,
        calls: Calls,
        Asked {
            id,
            policy,
            roots,
            changeable,
            barred,
            written,
            of_family,
            unlinked,
            effective,
            env,
            bounds,
            credentials,
            ablation,
            watched,
            reads,
            overflow,
            lasting,
        }: Asked<'_>,
    ) -> Result<Attempt, OpenError> {
        let identity = place::owner(roots.first());
        // Where calls of another session of the workspace may write is no better.
        let asked: Vec<HostPath> = effective.asked_for().iter().map(AskedFor::directory).collect();
        let all: Vec<HostPath> = written.iter().chain(&asked).cloned().collect();
        let reached: Vec<HostPath> = all.iter().chain(roots.iter().map(Place::path)).cloned().collect();
        let private = match strength {
            Strength::Landlock => {
                let path = private_directory(identity, &reached)?;
                PrivateDir { inside: path.into(), kind: PrivateKind::OnHost }
            }
            Strength::Namespaces => PrivateDir { inside: "/run/callgate".into(), kind: PrivateKind::InNamespace },
        };
        let mut outputs = match (overflow, calls) {
            (Overflow::Session, _) if lasting.is_some() => {
                lasting.and_then(|(beside, known)| Outputs::keep(known, beside, identity, &all))
            }
            (Overflow::Session, Calls::Many) => Outputs::make(identity, &reached),
            (Overflow::Directory(path), _) => {
                let outputs = Outputs::in_directory(path, id, &all, changeable);
                Some(outputs.map_err(|source| OpenError::Outputs { path: path.clone(), source })?)
            }
            // Who makes one call and goes has nobody left to read what it had no room for.
            (Overflow::Session, Calls::One) | (Overflow::Nowhere, _) => None,
        };
        let effective = match outputs.as_ref().and_then(Outputs::of_session) {
            Some(path) => effective.clone().with_session_dir(path),
            None => effective.clone(),
        };
        let facts = facts::collect(
            (strength, calls),
            self.support.landlock_abi,
            identity,
            private,
            roots.iter().map(|root| root.path().clone()).collect(),
            (&effective, of_family),
            changeable,
        );
        let plan = SessionPlan { ablation: ablation.cloned(), ..compile::session(&effective, &facts, env, bounds)? };
        // A directory that stays is a grant like others. Nobody removes it when the session ends.
        let is_removed = outputs.as_ref().is_some_and(|outputs| outputs.descriptors().is_some());
        let plan = SessionPlan { outputs: plan.outputs.filter(|_| is_removed), ..plan };
        let toolchains = plan.surroundings.iter().filter(|rule| facts.toolchains.contains(&rule.path));
        let trees = plan.program_trees();
        let looked =
            place::look((roots, unlinked), changeable, plan.grants.iter().chain(toolchains).chain(&trees), identity)
                .map_err(|(path, misled)| OpenError::misled(format!("grant {path}"), misled))?;
        // A link may have been turned since these were asked first; now it is known what the session will be bound to.
        if let Some(error) = leads_out(&effective, |path| looked.real(path), real_path) {
            return Err(error);
        }
        let led = effective.led_to(|path| looked.real(path));
        barred.refuse(&led)?;
        credentials.refuse_reach(&effective, &plan)?;
        credentials.refuse_reach(&led, &plan)?;
        let plan = plan.keeping(policy).bound_to(looked.seen.clone(), &facts.toolchains);
        let plan = match watched {
            Some(by) => plan.watched(by),
            None => plan,
        };
        let plan = if reads { plan.with_reading_calls(restricted::programs()) } else { plan };
        if plan.debug && plan.exec.is_judged() {
            return Err(OpenError::DebugJudged);
        }
        let sealed = credentials.sealed().map_err(OpenError::Sealed)?;
        let opened = Opened::open(&self.launcher, plan.clone(), (outputs.as_ref(), sealed), self.groups.clone()).await;
        if let Err(ConfineError::Refused(failed)) = &opened {
            let what = failed.what.clone();
            if failed.step == Step::Replaced {
                return Err(OpenError::Replaced { what });
            }
            if failed.step == Step::Policy {
                return Err(OpenError::Policy { what });
            }
        }
        let opened = opened?;
        outputs.iter_mut().for_each(Outputs::hand_over);
        Ok(Attempt { effective, facts, looked, plan, opened, outputs })
    }
}

/// Request that a session is opened with, whichever strength it gets.
#[derive(Clone, Copy)]
struct Asked<'a> {
    id: &'a str,
    /// Where its policy came from.
    policy: &'a PolicyFiles,
    overflow: &'a Overflow,
    /// Where outputs go that stay after the session: beside the store, or where they were before.
    lasting: Option<(&'a Path, Option<&'a KnownOutputs>)>,
    roots: &'a [Place],
    changeable: &'a Changeable,
    barred: Barred<'a>,
    /// Where calls of this session or its ancestors may write.
    written: &'a [HostPath],
    /// Rights of the first of its ancestors, for a subagent.
    of_family: Option<&'a EffectiveSet>,
    /// Places that are granted because they were looked at, which was by no link.
    unlinked: &'a [HostPath],
    effective: &'a EffectiveSet,
    env: &'a Env,
    bounds: &'a Bounds,
    credentials: &'a Credentials,
    ablation: Option<&'a Ablation>,
    /// Who judges every program that is about to run, if anybody does.
    watched: Option<Watched>,
    /// True if its shells only read.
    reads: bool,
}

/// A session that could be confined.
struct Attempt {
    effective: EffectiveSet,
    facts: HostFacts,
    looked: Looked,
    plan: SessionPlan,
    opened: Opened,
    outputs: Option<Outputs>,
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

/// An environment that is active outside and not inside.
fn not_active(facts: &HostFacts) -> Option<Warning> {
    let directory = facts.env.get("VIRTUAL_ENV")?;
    let bin = HostPath::from(directory.as_path().join("bin"));
    let (_, why) = facts.path_left_out.iter().find(|(left_out, _)| *left_out == bin)?;
    Some(Warning::EnvironmentNotActive { directory: directory.clone(), why: *why })
}

/// Finds the workspace's roots, once: what they are now is the workspace for the whole session (X0-55, A10).
pub(super) fn roots(spec: &SessionSpec) -> Result<Vec<Place>, OpenError> {
    let mut roots = spec.workspace.iter().map(|path| directory(WORKSPACE, path)).collect::<Result<Vec<_>, _>>()?;
    let Some(first) = roots.first().map(|root| root.path().clone()) else { return Ok(roots) };
    for further in spec.manifest.iter().flat_map(|manifest| &manifest.roots) {
        roots.push(further_root(&first, further)?);
    }
    Ok(roots)
}

/// A root that a manifest names. It is that directory and no other: a call of an earlier session could have put a link in its
/// place, and the manifest is trusted for what it says.
fn further_root(first: &HostPath, further: &HostPath) -> Result<Place, OpenError> {
    let refuse = |path: PathBuf, reason| OpenError::NotAWorkspace { role: WORKSPACE, path, reason };
    let path = normalize(first, further).map_err(|error| refuse(further.as_path().to_owned(), error.to_string()))?;
    let place = directory(WORKSPACE, path.as_path())?;
    if *place.path() != path {
        let reason = format!("`roots` leads there by a link; name the directory itself, {}", place.path());
        return Err(refuse(path.as_path().to_owned(), reason));
    }
    Ok(place)
}

const WORKSPACE: &str = "the workspace";

/// The directories that further variables of patterns stand for, and which.
pub(super) fn further_directories(spec: &SessionSpec) -> Result<Vec<(&'static str, Place)>, OpenError> {
    let ad_hoc = spec.ad_hoc.iter().map(|path| (AD_HOC, path));
    let user_data = spec.user_data.iter().map(|path| (USER_DATA, path));
    ad_hoc.chain(user_data).map(|(role, path)| Ok((role, directory(role, path)?))).collect()
}

const AD_HOC: &str = "{ad-hoc}";
const USER_DATA: &str = "{user-data}";

/// Values of the variables of patterns (S0-39).
pub(super) fn variables(roots: &[Place], further: &[(&'static str, Place)]) -> Result<Variables, OpenError> {
    let held =
        |role| further.iter().filter(move |(of, _)| *of == role).map(|(_, place)| place.path().clone()).collect();
    let workspace = roots.iter().map(|root| root.path().clone()).collect();
    Ok(Variables::new(workspace, held(AD_HOC), held(USER_DATA))?)
}

fn directory(role: &'static str, path: &Path) -> Result<Place, OpenError> {
    let refuse = |path: &Path, reason: &str| {
        Err(OpenError::NotAWorkspace { role, path: path.to_owned(), reason: reason.to_owned() })
    };
    let place = match Place::find(path) {
        Ok(place) => place,
        Err(Unusable::Io(source)) => return Err(OpenError::Workspace { role, path: path.to_owned(), source }),
        Err(Unusable::NotADirectory) => return refuse(path, "it is not a directory"),
        Err(Unusable::Replaced) => return refuse(path, "it was moved or removed while the session was opened"),
        Err(Unusable::Strangers(stranger)) => {
            return Err(OpenError::strangers(format!("use {} as {role}", path.display()), stranger));
        }
    };
    let too_much = ["/", "/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/proc", "/sys", "/dev", "/boot", "/run"];
    if too_much.iter().any(|system| place.path().as_path() == Path::new(system)) {
        return refuse(place.path().as_path(), "it is a part of the system; choose the directory that the work is in");
    }
    Ok(place)
}

/// Rights in force: ceiling ∩ parent ∩ (manifest ∪ tools ∪ what was asked for), literally (S0-7, S0-8, C-1); and where
/// a tool's part of it is more than a manifest that names paths or programs itself may have meant.
pub(super) fn effective(
    spec: &SessionSpec,
    bounds: &[Bound],
    registry: &Registry,
    variables: &Variables,
) -> Result<(EffectiveSet, Vec<Warning>), OpenError> {
    let asked: Vec<(Source, RequirementSet)> = registry
        .tools()
        .filter_map(|tool| Some((Source::Tool(tool.name.clone()), what_counts(spec, &tool.requires)?)))
        .collect();
    let mut contributions: Vec<Contribution<'_>> = Vec::new();
    contributions.extend(spec.manifest.as_ref().map(Contribution::manifest));
    contributions.extend(spec.requires.iter().map(|(source, set)| Contribution::from_source(source, set)));
    let named = contributions.len();
    contributions.extend(asked.iter().map(|(source, set)| Contribution::from_source(source, set)));
    let declared = Declared::union(&contributions, variables, &[])?;
    let effective = narrow(&declared, bounds);
    let warnings = match &spec.manifest {
        Some(manifest) if spec.tools && !manifest.requires.is_empty() => {
            warnings(spec, manifest, &effective, &Declared::union(&contributions[..named], variables, &[])?)
        }
        Some(_) | None => Vec::new(),
    };
    Ok((effective, warnings))
}

/// Bounds on a session, whatever is asked for.
pub(super) fn bounds(spec: &SessionSpec, profile: &Profile, variables: &Variables) -> Result<Vec<Bound>, OpenError> {
    let mut bounds = spec.ceiling.clone();
    for (source, ceiling) in &spec.ceilings {
        bounds.extend(Bound::of_ceiling(ceiling, |_| source.clone(), variables, &[])?);
    }
    if let Some(manifest) = &spec.manifest {
        bounds.extend(manifest.ceiling_bounds(variables)?);
    }
    if !profile.may_write() {
        // Layer 3 holds it too, whatever a command line finds.
        bounds.push(Bound::without_writing(Source::Profile(profile.name.clone())));
    }
    Ok(bounds)
}

/// Part of a tool's requirements that counts. Without tools a manifest that names no path still means the place that
/// its tools would work in: for a program that the host starts there is no other.
fn what_counts(spec: &SessionSpec, requires: &RequirementSet) -> Option<RequirementSet> {
    let names_paths = |set: &RequirementSet| !set.fs.read.is_empty() || !set.fs.write.is_empty();
    if spec.tools {
        return Some(requires.clone());
    }
    let manifest = spec.manifest.as_ref()?;
    let named = names_paths(&manifest.requires) || spec.requires.iter().any(|(_, set)| names_paths(set));
    (!named).then(|| RequirementSet { fs: requires.fs.clone(), ..RequirementSet::default() })
}

/// A manifest that names paths or programs may have been written when that left the tools' own requirements out.
fn warnings(spec: &SessionSpec, manifest: &Manifest, effective: &EffectiveSet, named: &Declared) -> Vec<Warning> {
    let is_said = |kind| manifest.ceiling.bounds(kind) || spec.ceilings.iter().any(|(_, ceiling)| ceiling.bounds(kind));
    beyond(effective, named)
        .into_iter()
        .filter(|beyond| !is_said(beyond.kind))
        .map(|beyond| Warning::ToolsRequireMore {
            file: manifest.file.clone(),
            names_any: names_any(&manifest.requires, beyond.kind),
            beyond,
        })
        .collect()
}

fn names_any(requires: &RequirementSet, kind: Kind) -> bool {
    !match kind {
        Kind::Read => requires.fs.read.is_empty() && requires.fs.write.is_empty(),
        Kind::Write => requires.fs.write.is_empty(),
        Kind::Hosts => requires.net.hosts.is_empty(),
        Kind::Shell => requires.shell.is_empty(),
        Kind::Capabilities => requires.capabilities.is_empty(),
    }
}

fn refuse_home_as_workspace(roots: &[Place]) -> Result<(), OpenError> {
    let homes = Homes::find();
    let found = roots.iter().find_map(|root| Some((root, homes.found_in(&root.link())?)));
    match found {
        None => Ok(()),
        Some((root, why)) => {
            Err(OpenError::Home { act: format!("use {} as the workspace", root.path()), why: why.to_string() })
        }
    }
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
