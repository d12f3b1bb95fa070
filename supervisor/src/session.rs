//! Opening a supervisor and its sessions.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, RwLock};
use std::time::Duration;

use callgate_policy::approval::ApprovalScope;
use callgate_policy::effective::{Bound, Contribution, DeclareError, Declared, EffectiveSet, Source, narrow};
use callgate_policy::envelope::StepReport;
use callgate_policy::limit::{Bounds, Limits};
use callgate_policy::manifest::{Env, Manifest};
use callgate_policy::mode::{Headless, Mode};
use callgate_policy::path::HostPath;
use callgate_policy::plan::compile::{self, HostFacts, NotInPlan, PlanError};
use callgate_policy::plan::{Ablation, Calls, PrivateDir, PrivateKind, SessionPlan, Strength, Watched};
use callgate_policy::profile::{Clause, NOT_YET, Placed, Profile};
use callgate_policy::requirement::RequirementSet;
use callgate_policy::rules::{Action, Rule, RuleError, RuleScope, RuleSet, RuleSource};
use callgate_policy::shell::restricted;
use callgate_policy::variable::{VariableError, Variables};
use callgate_policy::watchdog::{CallFacts, ExecFacts, Verdict, Wants, Watchdog};
use callgate_worker::protocol::StepFailure;

use crate::approval::{Approver, PATIENCE, People};
use crate::confine::cgroup::Delegated;
use crate::confine::{
    ConfineError, Launcher, LauncherError, Opened, Outputs, Stdio, Terminal, TerminalError, WindowSize,
    private_directory,
};
use crate::gate::{Gate, WatchdogProgram};
use crate::home::{Home, Homes};
use crate::host::{self, HostError, HostSupport, Missing};
use crate::place::{self, Place, Stranger, Unusable};
use crate::profile::{self, ProfileError};
use crate::registry::{Registry, RegistryError};
use crate::trust::Project;
use crate::turn::Turns;
use crate::watch::{Watch, Watching};

/// The host's side of callgate: makes sessions.
#[derive(Debug, Clone)]
pub struct Supervisor {
    launcher: Launcher,
    support: HostSupport,
    /// Set once the host has refused namespaces: why, and what then takes their place.
    without_namespaces: Arc<OnceLock<Missing>>,
    /// For a cgroup for each program, if the host has delegated one.
    groups: Option<Arc<Delegated>>,
    /// Asked of every call of every session.
    watchdogs: Vec<WatchdogProgram>,
}

/// Makes a [`Supervisor`].
#[derive(Debug, Default)]
pub struct Builder {
    launcher: Option<Launcher>,
    watchdogs: Vec<WatchdogProgram>,
}

impl Builder {
    /// The launcher to use: [`Launcher::fork`] in programs that can call it first thing, [`Launcher::spawn`] in others.
    #[must_use]
    pub fn launcher(mut self, launcher: Launcher) -> Self {
        self.launcher = Some(launcher);
        self
    }

    /// Has a program of the host's judge every call of every session (S0-58). It can only tighten (S0-60).
    #[must_use]
    pub fn watchdog_program(mut self, program: WatchdogProgram) -> Self {
        self.watchdogs.push(program);
        self
    }

    /// Looks at the host, and makes the supervisor.
    ///
    /// # Errors
    /// [`OpenError::Host`] if the host cannot enforce anything (no Landlock, no seccomp); [`OpenError::Launcher`] if no
    /// launcher was given and none could be forked.
    pub fn build(self) -> Result<Supervisor, OpenError> {
        let launcher = match self.launcher {
            Some(launcher) => launcher,
            None => Launcher::fork()?,
        };
        let support = HostSupport::probe()?;
        let groups = match Delegated::take() {
            Ok(groups) => Some(Arc::new(groups)),
            Err(reason) => {
                // Not a downgrade: the init of each program holds the same limits, and every result says so.
                tracing::debug!(%reason, "no cgroups");
                None
            }
        };
        Ok(Supervisor { launcher, support, without_namespaces: Arc::default(), groups, watchdogs: self.watchdogs })
    }
}

/// Which strength a session must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StrengthChoice {
    /// Namespaces if the host has them. Both strengths hold what was granted and nothing else; the result says which.
    #[default]
    Best,
    /// Landlock and seccomp alone.
    Landlock,
    /// Namespaces, or the session is refused.
    Namespaces,
}

/// What a session is for.
#[derive(Debug)]
pub struct SessionSpec {
    /// The workspace's roots; the first is where calls start.
    pub workspace: Vec<PathBuf>,
    /// What is asked for, and by whom, besides what tools and manifest ask for.
    pub requires: Vec<(Source, RequirementSet)>,
    /// The manifest, if there is one.
    pub manifest: Option<Manifest>,
    /// The project whose trusted manifest that is: where approvals can be kept (S1-18).
    pub project: Option<Project>,
    /// Which tools there are, and what they may do; without one, what the manifest names.
    pub profile: Option<Profile>,
    /// What may be granted at most (X0-1); without one, what the host offers.
    pub ceiling: Vec<Bound>,
    /// Which strength.
    pub strength: StrengthChoice,
    /// How many calls the session is for.
    pub calls: Calls,
    /// Whether the tools' own requirements are asked for.
    pub tools: bool,
    /// Limits for each call, before the manifest's and the defaults.
    pub limits: Limits,
    /// Further watchdogs.
    pub watchdogs: Vec<Box<dyn WatchdogObject>>,
    /// Whether the built-in watchdog sees every program that is about to run, as with `watch_execs` in a manifest. It does
    /// too where another watchdog wants that.
    pub watch_execs: bool,
    /// What happens to calls that no rule decides; without it, what manifest and profile say (X1-11). Fixed from then on
    /// (X1-10).
    pub mode: Option<Mode>,
    /// Rules of this session, and of its project (S0-53).
    pub rules: Vec<(RuleScope, Rule)>,
    /// Who is asked, where somebody must be (S0-59). With nobody, no is the answer (S0-57).
    pub approvers: Vec<Arc<dyn Approver>>,
    /// How long a question waits for an answer.
    pub patience: Duration,
    /// Whose calls these are.
    pub asked_by: AskedBy,
    /// Whether a workspace, or a tree that is granted, may be or hold a home directory, with the keys in it. Without this
    /// such a session is refused.
    pub allow_home: bool,
}

/// Whose calls a session's are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AskedBy {
    /// An agent's: what no rule allows, a person is asked about (S0-52).
    #[default]
    Agent,
    /// A person's, who has typed them, and by that approved of what no rule decides. What a rule or a watchdog wants
    /// asked is asked all the same, and what is denied stays denied.
    Person,
}

/// A watchdog that can be held by a session.
pub trait WatchdogObject: Watchdog + Send + Sync + std::fmt::Debug {}

impl<T: Watchdog + Send + Sync + std::fmt::Debug> WatchdogObject for T {}

impl SessionSpec {
    /// A session that asks for nothing but a place.
    #[must_use]
    pub fn new(workspace: impl Into<PathBuf>) -> Self {
        Self {
            workspace: vec![workspace.into()],
            requires: Vec::new(),
            manifest: None,
            project: None,
            profile: None,
            ceiling: Vec::new(),
            strength: StrengthChoice::Best,
            calls: Calls::Many,
            tools: true,
            limits: Limits::default(),
            watchdogs: Vec::new(),
            watch_execs: false,
            mode: None,
            rules: Vec::new(),
            approvers: Vec::new(),
            patience: PATIENCE,
            asked_by: AskedBy::default(),
            allow_home: false,
        }
    }

    /// The workspace to read and write, any program, no network: what `callgate run` asks for without a manifest.
    #[must_use]
    pub fn developer(workspace: impl Into<PathBuf>) -> Self {
        let mut spec = Self::new(workspace);
        // The patterns are constants; a test compiles them.
        spec.requires.extend(RequirementSet::for_run().ok().map(|requires| (Source::Default, requires)));
        spec
    }

    /// Whether command lines may have to be taken apart before they run, which takes a session for many calls: for rules, for
    /// a restricted shell, or for a watchdog. A profile that is in a file, and has not been read, may be about them.
    #[must_use]
    pub fn looks_at_commands(&self) -> bool {
        let of_manifest = |manifest: &Manifest| !manifest.rules.is_empty() || !manifest.allowlist.is_empty();
        let named = || self.manifest.as_ref().map_or(Some(Profile::default()), |manifest| manifest.profile.built_in());
        let profile = self.profile.clone().or_else(named);
        !self.rules.is_empty()
            || self.manifest.as_ref().is_some_and(of_manifest)
            || profile.is_none_or(|profile| profile.looks_at_commands())
            || self.watchdogs.iter().any(|watchdog| watchdog.wants().lines)
    }

    fn chosen_profile(&self) -> Result<Profile, ProfileError> {
        match (&self.profile, &self.manifest) {
            (Some(profile), _) => Ok(profile.clone()),
            (None, Some(manifest)) => profile::of_manifest(manifest),
            (None, None) => Ok(Profile::default()),
        }
    }

    /// What a manifest asks for.
    #[must_use]
    pub fn with_manifest(workspace: impl Into<PathBuf>, manifest: Manifest) -> Self {
        Self { manifest: Some(manifest), ..Self::new(workspace) }
    }

    /// What the manifest of a project asks for, which its owner trusts.
    #[must_use]
    pub fn of_project(workspace: impl Into<PathBuf>, project: Project) -> Self {
        let (manifest, profile) = (Some(project.manifest.clone()), project.profile.clone());
        Self { manifest, profile, project: Some(project), ..Self::new(workspace) }
    }
}

/// Why a session was not opened. Nothing has run then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A rule makes no sense.
    #[error(transparent)]
    Rule(RuleError),
    /// A profile cannot be used.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A rule is about a tool that there is not.
    #[error("{place}: there is no tool `{tool}`; there are: {known}")]
    UnknownTool {
        /// Where the rule stands.
        place: String,
        /// The name.
        tool: String,
        /// What there is.
        known: String,
    },
    /// Approvals cannot be kept for a project whose manifest nobody trusts (S1-18).
    #[error("`approvals = \"project\"` of {file}: approvals are kept only for a project whose own manifest is trusted")]
    NotTrusted {
        /// The manifest.
        file: String,
    },
    /// The workspace is not the directory in which the trusted manifest was found.
    #[error("{path} is not the directory any more whose manifest is trusted")]
    OtherProject {
        /// Where it was.
        path: HostPath,
    },
    /// The host cannot enforce what every session needs.
    #[error(transparent)]
    Host(#[from] HostError),
    /// No launcher.
    #[error(transparent)]
    Launcher(#[from] LauncherError),
    /// The workspace cannot be used.
    #[error("use {path} as the workspace")]
    Workspace {
        /// Which root.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A root that is not a directory, or that holds the whole system.
    #[error("use {path} as the workspace: {reason}")]
    NotAWorkspace {
        /// Which root.
        path: PathBuf,
        /// Why.
        reason: &'static str,
    },
    /// Root would go where somebody else has a say.
    #[error(
        "{act}: {} on the way belongs to user {uid}, who can have it lead anywhere; now it leads to what belongs to user {owner}",
        on_the_way.display()
    )]
    Strangers {
        /// What was to be done with which path.
        act: String,
        /// The directory or link.
        on_the_way: PathBuf,
        /// Whose that is.
        uid: u32,
        /// Whose it is what it leads to.
        owner: u32,
    },
    /// What was granted was another thing when the session was confined than when it was looked at.
    #[error("{what}")]
    Replaced {
        /// Which, and what to do.
        what: String,
    },
    /// A home directory would be granted, and nobody has insisted.
    #[error("{act}: {why}")]
    Home {
        /// What was to be done with which directory.
        act: String,
        /// What is in it.
        why: String,
    },
    /// Variables cannot stand for what was given.
    #[error(transparent)]
    Variable(#[from] VariableError),
    /// What was asked for cannot be compiled.
    #[error(transparent)]
    Declare(#[from] DeclareError),
    /// What is in force cannot be told the kernel.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A right is in force that this build cannot enforce.
    #[error("this build cannot enforce {what}: {remedy}")]
    NotYet {
        /// What was granted.
        what: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The kernel gave no random bytes.
    #[error("get random bytes")]
    Random(#[source] std::io::Error),
    /// No name could be made up for the session's private directory.
    #[error("make up a name for the session's private directory")]
    Private(#[source] std::io::Error),
    /// There is no directory for temporary files.
    #[error("use {path} for temporary files, as TMPDIR says")]
    NoTemporary {
        /// What was named.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A contract of ours is broken.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The session's processes could not be confined, or could not be reached.
    #[error(transparent)]
    Confine(#[from] ConfineError),
}

impl Supervisor {
    /// Starts to make one.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// What this host can enforce.
    #[must_use]
    pub fn support(&self) -> &HostSupport {
        &self.support
    }

    /// Opens a session.
    ///
    /// # Errors
    /// [`OpenError`]; nothing has run, and nothing is left behind.
    pub async fn open(&self, spec: SessionSpec) -> Result<Session, OpenError> {
        self.open_with(spec, None).await
    }

    /// Opens a session that lacks a mechanism, and that nothing runs in but acts of the probe.
    pub(crate) async fn open_ablated(&self, spec: SessionSpec, ablation: Ablation) -> Result<Session, OpenError> {
        self.open_with(spec, Some(ablation)).await
    }

    async fn open_with(&self, mut spec: SessionSpec, ablation: Option<Ablation>) -> Result<Session, OpenError> {
        let mut registry = Registry::locked()?;
        let profile = spec.chosen_profile()?;
        registry.offer(&profile)?;
        if let Some(tools) = spec.manifest.as_ref().and_then(|manifest| manifest.tools.as_ref()) {
            registry.offer_only(tools)?;
        }
        let roots = roots(&spec.workspace)?;
        let workspace: Vec<HostPath> = roots.iter().map(|root| root.path().clone()).collect();
        let shell_dir = profile.working_dir(&workspace).map_err(ProfileError::from)?;
        let effective = effective(&spec, &profile, &registry, &workspace)?;
        if !spec.allow_home {
            refuse_homes(&roots, &effective)?;
        }
        refuse_what_is_not_enforced(&effective)?;
        if let Some(manifest) = &spec.manifest {
            refuse_what_is_not_yet_in_force(manifest)?;
        }
        let found_in = spec.project.clone();
        let project = project(&mut spec)?;
        let (limits, env) = match &spec.manifest {
            Some(manifest) => (spec.limits.or(manifest.limits), manifest.env.clone()),
            None => (spec.limits, Env::default()),
        };
        let bounds = Bounds::of(&limits, host::memory());
        let variables = Variables::new(workspace.clone(), Vec::new(), Vec::new())?;
        let mut gate = Gate::default();
        for watchdog in spec.watchdogs.drain(..) {
            gate.add(Box::new(Held(watchdog)));
        }
        for program in &self.watchdogs {
            gate.add_program(program.clone());
        }
        let in_manifest = spec.manifest.as_ref().is_some_and(|manifest| manifest.watch_execs);
        let rules = rules(&spec, &profile, &variables)?;
        let asked = Asked {
            roots: &roots,
            effective: &effective,
            env: &env,
            bounds: &bounds,
            ablation: ablation.as_ref(),
            watched: gate.watched(spec.watch_execs || in_manifest),
            reads: profile.restricts_the_shell(),
        };
        let first = match (spec.strength, self.without_namespaces.get()) {
            (StrengthChoice::Landlock, _) | (StrengthChoice::Best, Some(_)) => Strength::Landlock,
            (StrengthChoice::Best | StrengthChoice::Namespaces, _) => Strength::Namespaces,
        };
        let attempt = self.attempt(first, spec.calls, asked).await;
        let Attempt { effective, facts, plan, mut opened, outputs } = match attempt {
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
        let (id, gate) = (session_id()?, Arc::new(gate));
        let people = Arc::new(People::new(spec.approvers, spec.patience, project));
        let headless = spec.manifest.as_ref().map(|manifest| manifest.headless).unwrap_or_default();
        let manifest = spec.manifest.and_then(|manifest| manifest.id);
        let watching = opened.tracer().map(|tracer| {
            let (gate, people) = (Arc::clone(&gate), Arc::clone(&people));
            Watch { gate, people, manifest: manifest.clone(), session: id.clone() }.start(tracer)
        });
        // Now that the kernel is bound to it. What takes its place later is noticed by each call.
        if let Some(project) = found_in.filter(|project| !roots.first().is_some_and(|root| project.is_at(root))) {
            return Err(OpenError::OtherProject { path: project.root().clone() });
        }
        Ok(Session {
            id,
            headless,
            manifest,
            registry,
            effective,
            gate,
            rules: RwLock::new(rules),
            variables,
            people,
            _watching: watching,
            asked_by: spec.asked_by,
            profile,
            shell_dir,
            halted: AtomicBool::new(false),
            #[cfg(feature = "ablation")]
            ablated: None,
            roots,
            facts,
            plan,
            bounds,
            opened,
            outputs,
            turns: Turns::default(),
            questions: Turns::default(),
            _launcher: self.launcher.clone(),
        })
    }

    async fn attempt(
        &self,
        strength: Strength,
        calls: Calls,
        Asked { roots, effective, env, bounds, ablation, watched, reads }: Asked<'_>,
    ) -> Result<Attempt, OpenError> {
        let identity = host::owner(roots.first());
        let written = compile::written(effective);
        let private = match strength {
            Strength::Landlock => {
                let path = private_directory(identity, &written)?;
                PrivateDir { inside: path.into(), kind: PrivateKind::OnHost }
            }
            Strength::Namespaces => PrivateDir { inside: "/run/callgate".into(), kind: PrivateKind::InNamespace },
        };
        // Who makes one call and goes has nobody left to read what it had no room for.
        let mut outputs = match calls {
            Calls::Many => Outputs::make(identity, &written),
            Calls::One => None,
        };
        let effective = match &outputs {
            Some(outputs) => effective.clone().with_session_dir(outputs.path()),
            None => effective.clone(),
        };
        let facts = host::facts(
            (strength, calls),
            self.support.landlock_abi,
            identity,
            private,
            roots.iter().map(|root| root.path().clone()).collect(),
            &effective,
        );
        let plan = SessionPlan { ablation: ablation.cloned(), ..compile::session(&effective, &facts, env, bounds)? };
        let seen = place::look(roots, &plan.grants, identity)
            .map_err(|(path, stranger)| OpenError::strangers(format!("grant {path}"), stranger))?;
        let plan = SessionPlan { seen, ..plan };
        let plan = match watched {
            Some(by) => plan.watched(by),
            None => plan,
        };
        let plan = if reads { plan.with_reading_calls(restricted::programs()) } else { plan };
        let opened = Opened::open(&self.launcher, plan.clone(), outputs.as_ref(), self.groups.clone()).await;
        if let Err(ConfineError::Refused(failed)) = &opened
            && failed.step == StepFailure::REPLACED
        {
            return Err(OpenError::Replaced { what: failed.what.clone() });
        }
        let opened = opened?;
        outputs.iter_mut().for_each(Outputs::hand_over);
        Ok(Attempt { effective, facts, plan, opened, outputs })
    }
}

/// What a session is opened with, whichever strength it gets.
#[derive(Clone, Copy)]
struct Asked<'a> {
    roots: &'a [Place],
    effective: &'a EffectiveSet,
    env: &'a Env,
    bounds: &'a Bounds,
    ablation: Option<&'a Ablation>,
    /// Who judges every program that is about to run, if anybody does.
    watched: Option<Watched>,
    /// Whether its shells only read.
    reads: bool,
}

/// A session that could be confined.
struct Attempt {
    effective: EffectiveSet,
    facts: HostFacts,
    plan: SessionPlan,
    opened: Opened,
    outputs: Option<Outputs>,
}

/// A watchdog of the host's, as the gate holds it.
struct Held(Box<dyn WatchdogObject>);

impl Watchdog for Held {
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

/// Finds the workspace's roots, once: what they are now is the workspace for the whole session (X0-55, A10).
fn roots(given: &[PathBuf]) -> Result<Vec<Place>, OpenError> {
    given.iter().map(|path| root(path)).collect()
}

fn root(path: &Path) -> Result<Place, OpenError> {
    let refuse = |path: &Path, reason| OpenError::NotAWorkspace { path: path.to_owned(), reason };
    let place = Place::find(path).map_err(|why| match why {
        Unusable::Io(source) => OpenError::Workspace { path: path.to_owned(), source },
        Unusable::NotADirectory => refuse(path, "it is not a directory"),
        Unusable::Replaced => refuse(path, "it was moved or removed while the session was opened"),
        Unusable::Strangers(stranger) => {
            OpenError::strangers(format!("use {} as the workspace", path.display()), stranger)
        }
    })?;
    let too_much = ["/", "/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/proc", "/sys", "/dev", "/boot", "/run"];
    if too_much.iter().any(|system| place.path().as_path() == Path::new(system)) {
        let reason = "it is a part of the system; choose the directory that the work is in";
        return Err(refuse(place.path().as_path(), reason));
    }
    Ok(place)
}

impl OpenError {
    pub(crate) fn strangers(act: String, Stranger { on_the_way, uid, owner }: Stranger) -> Self {
        Self::Strangers { act, on_the_way, uid, owner }
    }
}

/// What is in force: ceiling ∩ (manifest ∪ tools ∪ what was asked for) (C-1).
///
/// A tool of ours asks for the whole workspace; where the manifest says itself what may be read or written, that is the
/// scope in which the tool works, or naming one directory in a manifest would mean nothing.
fn effective(
    spec: &SessionSpec,
    profile: &Profile,
    registry: &Registry,
    workspace: &[HostPath],
) -> Result<EffectiveSet, OpenError> {
    let variables = Variables::new(workspace.to_vec(), Vec::new(), Vec::new())?;
    let names_paths = |set: &RequirementSet| !set.fs.read.is_empty() || !set.fs.write.is_empty();
    let scoped = spec.manifest.as_ref().is_some_and(|manifest| names_paths(&manifest.requires))
        || spec.requires.iter().any(|(_, set)| names_paths(set));
    let mut asked: Vec<(Source, RequirementSet)> = Vec::new();
    for tool in registry.tools().filter(|_| spec.tools) {
        let mut requires = tool.requires.clone();
        if scoped {
            requires.fs.read.clear();
            requires.fs.write.clear();
        }
        asked.push((Source::Tool(tool.id.to_owned()), requires));
    }
    let mut contributions: Vec<Contribution<'_>> = Vec::new();
    contributions.extend(spec.manifest.as_ref().map(Contribution::manifest));
    contributions
        .extend(spec.requires.iter().chain(&asked).map(|(source, set)| Contribution::from_source(source, set)));
    let declared = Declared::union(&contributions, &variables, &[])?;
    let mut ceiling = spec.ceiling.clone();
    if !profile.may_write() {
        // Layer 3 holds it too, whatever a command line finds.
        ceiling.push(declared.without_writing(Source::Profile(profile.name.clone())));
    }
    Ok(narrow(&declared, &ceiling))
}

/// Keys are not granted by the way, with the directory that they lie in.
fn refuse_homes(roots: &[Place], effective: &EffectiveSet) -> Result<(), OpenError> {
    let homes = Homes::find();
    let home = |act: String, why: &Home| Err(OpenError::Home { act, why: why.to_string() });
    for root in roots {
        if let Some(why) = homes.found_in(&root.link()) {
            return home(format!("use {} as the workspace", root.path()), &why);
        }
    }
    match homes.granted(effective) {
        Some((tree, why)) => home(format!("grant all of {tree}"), &why),
        None => Ok(()),
    }
}

/// What this build grants it must also hold: a grant that nothing enforces is refused, with what to do.
fn refuse_what_is_not_enforced(effective: &EffectiveSet) -> Result<(), OpenError> {
    match compile::not_in_plan(effective).into_iter().next() {
        None => Ok(()),
        Some(NotInPlan::Hosts(hosts)) => Err(OpenError::NotYet {
            what: format!("net.hosts = {}", hosts.join(", ")),
            remedy: "hosts cannot be granted yet; leave net.hosts out",
        }),
        Some(_) => Err(OpenError::NotYet { what: "a right of the manifest".to_owned(), remedy: "update callgate" }),
    }
}

/// A manifest may say what later versions act on. Acting as if it had not been said would be a silent downgrade.
fn refuse_what_is_not_yet_in_force(manifest: &Manifest) -> Result<(), OpenError> {
    let refuse = |what: &str, remedy| Err(OpenError::NotYet { what: format!("{what} of {}", manifest.file), remedy });
    if !manifest.requires.capabilities.is_empty() {
        return refuse("`capabilities`", "no capability has a point that enforces it yet; leave them out");
    }
    Ok(())
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

/// The rules of all scopes, and what holds where none matches.
fn rules(spec: &SessionSpec, profile: &Profile, variables: &Variables) -> Result<RuleSet, OpenError> {
    let manifest = spec.manifest.as_ref();
    let mut rules = RuleSet::default();
    let mode = spec.mode.or(manifest.and_then(|manifest| manifest.mode));
    rules.mode = mode.unwrap_or(profile.mode);
    rules.allowlist = manifest.map(|manifest| manifest.allowlist.clone()).unwrap_or_default();
    rules.silent = profile.silent().iter().map(|tool| (*tool).to_owned()).collect();
    for (place, rule) in manifest.into_iter().flat_map(|manifest| manifest.rules.iter().enumerate()) {
        let place =
            manifest.map_or(String::new(), |manifest| format!("{}:{}", manifest.file, manifest.rule_line(place)));
        rules.add(rule, &RuleSource { scope: RuleScope::Manifest, place }, variables).map_err(OpenError::Rule)?;
    }
    for (scope, rule) in &spec.rules {
        let place = match scope {
            RuleScope::Session => "this session",
            RuleScope::Project => "this project",
            RuleScope::Manifest => "the host",
        };
        let source = RuleSource { scope: *scope, place: place.to_owned() };
        rules.add(rule, &source, variables).map_err(OpenError::Rule)?;
    }
    let known = Registry::locked()?;
    for clause in &profile.approval {
        add_clause(&mut rules, clause, mode, &known, variables)?;
    }
    // A misspelt name would be a rule that is never asked.
    let unknown = rules.tools().find(|(tool, _)| known.find(tool).is_none());
    match unknown {
        None => Ok(rules),
        Some((tool, source)) => Err(OpenError::UnknownTool {
            place: source.place.clone(),
            tool: tool.to_owned(),
            known: known.names().join(", "),
        }),
    }
}

/// What a profile says of approval. It is its author's, as a manifest is.
fn add_clause(
    rules: &mut RuleSet,
    Placed { value, place }: &Placed<Clause>,
    mode: Option<Mode>,
    known: &Registry,
    variables: &Variables,
) -> Result<(), OpenError> {
    let source = RuleSource { scope: RuleScope::Manifest, place: place.clone() };
    let rest = || Rule { permission: "*".to_owned(), pattern: None, action: Action::Allow };
    match value {
        Clause::Phrase(text) => rules.add_phrase(text, &source),
        Clause::Rest if mode.is_none() => rules.add(&rest(), &source, variables).map_err(OpenError::Rule)?,
        // Who names a mode says by that what the rest is.
        Clause::Rest => {}
        Clause::Rule(rule) => {
            let is_to_come = NOT_YET.contains(&rule.permission.as_str()) && known.find(&rule.permission).is_none();
            if !is_to_come {
                rules.add(rule, &source, variables).map_err(OpenError::Rule)?;
            }
        }
    }
    Ok(())
}

/// Unique among sessions, and not to be guessed.
fn session_id() -> Result<String, OpenError> {
    let random = host::random().map_err(OpenError::Random)?;
    Ok(format!("ses_{random}"))
}

/// A confined place for one agent's calls. Dropping it ends everything that runs in it.
pub struct Session {
    pub(crate) id: String,
    pub(crate) manifest: Option<String>,
    pub(crate) registry: Registry,
    pub(crate) effective: EffectiveSet,
    pub(crate) gate: Arc<Gate>,
    /// Added to while the session runs; read by every call.
    pub(crate) rules: RwLock<RuleSet>,
    pub(crate) variables: Variables,
    pub(crate) people: Arc<People>,
    /// Answers for every program that is about to run, where somebody wants to see those.
    _watching: Option<Watching>,
    pub(crate) headless: Headless,
    pub(crate) asked_by: AskedBy,
    pub(crate) profile: Profile,
    /// Where shells start that do not say, if not in the first root.
    pub(crate) shell_dir: Option<HostPath>,
    /// A person would have had to be asked, and there was none.
    pub(crate) halted: AtomicBool,
    pub(crate) facts: HostFacts,
    pub(crate) bounds: Bounds,
    pub(crate) opened: Opened,
    /// `None` if nothing is kept of what results have no room for.
    pub(crate) outputs: Option<Outputs>,
    pub(crate) turns: Turns,
    /// The order in which people are asked.
    pub(crate) questions: Turns,
    #[cfg(feature = "ablation")]
    pub(crate) ablated: Option<callgate_policy::envelope::Layer>,
    plan: SessionPlan,
    /// Held, to notice one that is replaced.
    roots: Vec<Place>,
    /// Held, because it kills what is left of its sessions a while after the last copy has gone.
    _launcher: Launcher,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", &self.id).field("strength", &self.facts.strength).finish_non_exhaustive()
    }
}

impl Session {
    /// The session's id, `ses_…`.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What is in force.
    #[must_use]
    pub fn effective(&self) -> &EffectiveSet {
        &self.effective
    }

    /// The limits of each call.
    #[must_use]
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// The plan that the session was confined by.
    #[must_use]
    pub fn plan(&self) -> &SessionPlan {
        &self.plan
    }

    /// The steps that confined the session, each confirmed.
    pub fn steps(&self) -> impl Iterator<Item = &StepReport> {
        self.opened.steps()
    }

    /// Makes a terminal for one program of this session: `spawn` it with the [`Stdio`]. It is the program's controlling
    /// terminal, with its own job control, and its name in the session.
    ///
    /// In a session for one call ([`Calls::One`]) the program can open it by that name, and so by `/dev/stderr`. In one for
    /// many calls it cannot, because they could open each other's: there is `/dev/tty`.
    ///
    /// # Errors
    /// [`TerminalError`] if the host gives no pseudo-terminal.
    pub fn terminal(&self, size: WindowSize) -> Result<(Terminal, Stdio), TerminalError> {
        self.opened.terminal(size, self.facts.identity)
    }

    /// The session's tools.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The roots that are no longer what they were when the session was opened. The kernel holds the session to the old
    /// ones, wherever they are now.
    pub(crate) fn replaced_root(&self) -> Option<&HostPath> {
        self.roots.iter().find(|root| !root.is_there()).map(Place::path)
    }
}

/// What holds each kind of right, put together from steps that the kernel confirmed and nothing else (C-18).
pub(crate) fn enforced(session: &Session, steps: &[StepReport]) -> Vec<callgate_policy::envelope::Enforced> {
    crate::enforced::summarize(session.facts.strength, steps)
}
