//! Specification of a session: everything that it is opened with.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callgate_policy::ceiling::Ceiling;
use callgate_policy::effective::{Bound, Source};
use callgate_policy::limit::Limits;
use callgate_policy::manifest::{Env, Manifest};
use callgate_policy::mode::Mode;
use callgate_policy::plan::{Calls, Strength};
use callgate_policy::profile::Profile;
use callgate_policy::requirement::RequirementSet;
use callgate_policy::rules::{Rule, RuleScope};
use callgate_policy::tool::Surface;
use callgate_policy::watchdog::Watchdog;

use super::family::{AgentEndpoint, AgentRunner};
use super::sources::Coercion;
use crate::gate::AskedBy;
use crate::gate::people::{Approver, PATIENCE};
use crate::open_error::OpenError;
use crate::place::TypedPath;
use crate::profile::{self, ProfileError};
use crate::registry::Tool;
use crate::trust::{Project, TrustError};

/// Specification of a session.
///
/// Start with [`SessionSpec::new`], [`SessionSpec::developer`], [`SessionSpec::with_manifest`] or [`SessionSpec::of_project`],
/// and add to it. The fields can be read and changed as well; there will be more of them.
///
/// ```
/// use callgate::policy::mode::Mode;
/// use callgate::{SessionSpec, StrengthChoice};
///
/// let spec = SessionSpec::developer("/home/me/project").strength(StrengthChoice::Namespaces).mode(Mode::Yolo);
/// assert_eq!(spec.mode, Some(Mode::Yolo));
/// ```
///
/// A host that opens a session for each of its clients clones it: they have the same rights, and nothing else in common.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SessionSpec {
    /// The workspace's roots; the first is where calls start.
    pub workspace: Vec<PathBuf>,
    /// The directories that `{ad-hoc}` stands for: of files that are open in the host without being in the workspace (S0-39).
    pub ad_hoc: Vec<PathBuf>,
    /// Paths that somebody typed and that `requires` grants, as they were followed.
    pub typed: Vec<TypedPath>,
    /// The directory that `{user-data}` stands for: the host's, for this user's data (S0-39).
    pub user_data: Option<PathBuf>,
    /// Rights that are asked for, and by whom, besides what tools and manifest ask for.
    pub requires: Vec<(Source, RequirementSet)>,
    /// The manifest, if there is one.
    pub manifest: Option<Manifest>,
    /// The project whose trusted manifest that is: where approvals can be kept (S1-18).
    pub project: Option<Project>,
    /// Which tools there are, and what they may do; without one, what the manifest names.
    pub profile: Option<Profile>,
    /// Bounds on what may be granted (X0-1); without one, what the host offers.
    pub ceiling: Vec<Bound>,
    /// Bounds as people write them, for single kinds and with variables, and whose it is. The manifest's own ceiling
    /// holds too.
    pub ceilings: Vec<(Source, Ceiling)>,
    /// Which strength.
    pub strength: StrengthChoice,
    /// How many calls the session is for.
    pub calls: Calls,
    /// True if the tools' own requirements are asked for. Without, the session is for programs that the host starts; a
    /// manifest that names no path then still grants the files that its tools would work on, and nothing else of
    /// theirs.
    pub tools: bool,
    /// Tools besides the locked ones.
    pub further_tools: Vec<Tool>,
    /// The names of callgate's own tools outside the lock that it has, besides those that the manifest names (S0-25).
    pub extra_tools: Vec<String>,
    /// Under which names its tools are seen; without it, what the manifest says (C-22).
    pub surface: Option<Surface>,
    /// The directory of the user's settings below which tools are declared (`tools/*.toml`), if they are wanted. Those of a
    /// project come with [`SessionSpec::project`].
    pub user_tools: Option<PathBuf>,
    /// Limits for each call, before the manifest's and the defaults.
    pub limits: Limits,
    /// Variables of programs, besides the manifest's: those that were typed. They win over the manifest's.
    pub env: Env,
    /// Further watchdogs.
    pub watchdogs: Vec<Arc<dyn WatchdogObject>>,
    /// True if the built-in watchdog sees every program that is about to run, as with `watch_execs` in a manifest. It
    /// does too where another watchdog wants that.
    pub watch_execs: bool,
    /// Treatment of calls that no rule decides; without it, what manifest and profile say (X1-11). Fixed from then on
    /// (X1-10).
    pub mode: Option<Mode>,
    /// Rules of this session, and of its project (S0-53); and defaults of the host's, which come after what anybody has written.
    pub rules: Vec<(RuleScope, Rule)>,
    /// Who is asked, where somebody must be (S0-59). With nobody, no is the answer (S0-57).
    pub approvers: Vec<Arc<dyn Approver>>,
    /// How long a question waits for an answer.
    pub patience: Duration,
    /// Whose calls these are.
    pub asked_by: AskedBy,
    /// Who runs the manifest's agents that name no program.
    pub agent_runner: Option<Arc<dyn AgentRunner>>,
    /// Who serves the manifest's agents that are programs.
    pub agent_endpoint: Option<Arc<dyn AgentEndpoint>>,
    /// Where what results have no room for is kept.
    pub overflow: Overflow,
    /// Treatment of arguments of another type than a tool's schema asks for.
    pub coercion: Coercion,
    /// Title of the session in the supervisor's store, if that has one.
    pub title: Option<String>,
    /// Settings that the host keeps with the session in the store, such as how to make this value again.
    pub settings: serde_json::Value,
    /// The recorded session that this one continues: its id, or a beginning of it that no other has.
    pub resume: Option<String>,
    /// True if a workspace, or a tree that is granted, may be or hold a home directory, with the keys in it. Without
    /// this such a session is refused.
    pub allow_home: bool,
}

/// Which strength a session must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum StrengthChoice {
    /// Namespaces if the host has them. Both strengths hold what was granted and nothing else; the result says which.
    #[default]
    Best,
    /// Landlock and seccomp alone.
    Landlock,
    /// Namespaces, or the session is refused.
    Namespaces,
}

impl From<Strength> for StrengthChoice {
    fn from(strength: Strength) -> Self {
        match strength {
            Strength::Landlock => Self::Landlock,
            Strength::Namespaces => Self::Namespaces,
        }
    }
}

/// Where what results have no room for is kept (S0-44), up to 64 MiB for each session. Where it is nowhere, the result says so
/// ([`callgate_policy::envelope::Metadata::rest_lost`]) and names no file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// In files that the session's calls can read, and that go with the session. In a session for one call nowhere: when its
    /// result is there, the session is over.
    #[default]
    Session,
    /// In new files in this directory, which stay. It must exist, this process must be able to write it, and the session must
    /// not. Calls read these files only if they are granted the directory.
    Directory(PathBuf),
    /// Nowhere.
    Nowhere,
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
            ad_hoc: Vec::new(),
            typed: Vec::new(),
            user_data: None,
            requires: Vec::new(),
            manifest: None,
            project: None,
            profile: None,
            ceiling: Vec::new(),
            ceilings: Vec::new(),
            strength: StrengthChoice::Best,
            calls: Calls::Many,
            tools: true,
            further_tools: Vec::new(),
            extra_tools: Vec::new(),
            surface: None,
            user_tools: None,
            limits: Limits::default(),
            env: Env::default(),
            watchdogs: Vec::new(),
            watch_execs: false,
            mode: None,
            rules: Vec::new(),
            approvers: Vec::new(),
            patience: PATIENCE,
            asked_by: AskedBy::default(),
            agent_runner: None,
            agent_endpoint: None,
            overflow: Overflow::default(),
            coercion: Coercion::default(),
            title: None,
            settings: serde_json::Value::Null,
            resume: None,
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

    /// Adds a root to the workspace. Calls start in the first.
    #[must_use]
    pub fn root(mut self, root: impl Into<PathBuf>) -> Self {
        self.workspace.push(root.into());
        self
    }

    /// Adds a directory to those that `{ad-hoc}` stands for in patterns. It is granted only where a pattern says so.
    #[must_use]
    pub fn ad_hoc(mut self, directory: impl Into<PathBuf>) -> Self {
        self.ad_hoc.push(directory.into());
        self
    }

    /// Sets the directory that `{user-data}` stands for in patterns. It is granted only where a pattern says so.
    #[must_use]
    pub fn user_data(self, directory: impl Into<PathBuf>) -> Self {
        Self { user_data: Some(directory.into()), ..self }
    }

    /// Asks for rights. `source` is named where people are shown where a right came from.
    #[must_use]
    pub fn requires(mut self, source: Source, set: RequirementSet) -> Self {
        self.requires.push((source, set));
        self
    }

    /// Sets the manifest: its requirements are asked for, and its rules, limits and environment are in force.
    #[must_use]
    pub fn manifest(self, manifest: Manifest) -> Self {
        Self { manifest: Some(manifest), ..self }
    }

    /// Sets the profile, in place of the one that the manifest names.
    #[must_use]
    pub fn profile(self, profile: Profile) -> Self {
        Self { profile: Some(profile), ..self }
    }

    /// Lowers the ceiling: nothing outside this bound is granted (X0-1). With several bounds, each of them holds.
    #[must_use]
    pub fn ceiling(mut self, bound: Bound) -> Self {
        self.ceiling.push(bound);
        self
    }

    /// Lowers the ceiling as `[ceiling]` in a manifest does: kinds that `ceiling` leaves out are not bounded. `source` is named
    /// in denials.
    #[must_use]
    pub fn at_most(mut self, source: Source, ceiling: Ceiling) -> Self {
        self.ceilings.push((source, ceiling));
        self
    }

    /// Chooses the strength.
    #[must_use]
    pub fn strength(self, strength: StrengthChoice) -> Self {
        Self { strength, ..self }
    }

    /// Says how many calls the session is for.
    #[must_use]
    pub fn calls(self, calls: Calls) -> Self {
        Self { calls, ..self }
    }

    /// Leaves out what the tools themselves require: the session has the rights that are asked for by name, and no others. Only
    /// a manifest that names no path still grants the files that its tools would work on ([`SessionSpec::tools`]).
    #[must_use]
    pub fn without_tools(self) -> Self {
        Self { tools: false, ..self }
    }

    /// Adds one of callgate's own tools outside the lock, such as `apply_patch` (S0-25).
    #[must_use]
    pub fn extra_tool(mut self, name: impl Into<String>) -> Self {
        self.extra_tools.push(name.into());
        self
    }

    /// With tools that are seen under these names.
    #[must_use]
    pub fn surface(self, surface: Surface) -> Self {
        Self { surface: Some(surface), ..self }
    }

    /// Adds a tool of the host's.
    #[must_use]
    pub fn tool(mut self, tool: Tool) -> Self {
        self.further_tools.push(tool);
        self
    }

    /// Adds the tools that the user declares below this directory for settings; the user's own is
    /// [`user_settings`](crate::user_settings).
    #[must_use]
    pub fn user_tools(self, settings: impl Into<PathBuf>) -> Self {
        Self { user_tools: Some(settings.into()), ..self }
    }

    /// Sets limits for each call. They come before those of the manifest; what they leave open is decided there.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Adds a variable of this process's environment to those that programs get, if this process has it. In a session that
    /// grants single programs, a variable that decides what programs load is refused
    /// ([`PlanError::Steering`](callgate_policy::plan::compile::PlanError::Steering)).
    #[must_use]
    pub fn pass_variable(mut self, name: impl Into<String>) -> Self {
        self.env.pass.push(name.into());
        self
    }

    /// Sets a variable for programs. What [`SessionSpec::pass_variable`] says of refusals goes for this too.
    #[must_use]
    pub fn variable(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.set.insert(name.into(), value.into());
        self
    }

    /// Adds a watchdog. It can only tighten: the strictest verdict counts (S0-60).
    #[must_use]
    pub fn watchdog(mut self, watchdog: impl WatchdogObject + 'static) -> Self {
        self.watchdogs.push(Arc::new(watchdog));
        self
    }

    /// Shows the built-in watchdog every program that is about to run, as with `watch_execs` in a manifest.
    #[must_use]
    pub fn watch_execs(self) -> Self {
        Self { watch_execs: true, ..self }
    }

    /// Sets what happens to calls that no rule decides, in place of what manifest and profile say (X1-11).
    #[must_use]
    pub fn mode(self, mode: Mode) -> Self {
        Self { mode: Some(mode), ..self }
    }

    /// Adds a rule (S0-53). With [`RuleScope::Default`] it is a default: every rule of manifest and profile comes before it, and a mode
    /// that somebody names takes its place.
    #[must_use]
    pub fn rule(mut self, scope: RuleScope, rule: Rule) -> Self {
        self.rules.push((scope, rule));
        self
    }

    /// Adds somebody to ask (S0-59). With several, the first answer counts.
    #[must_use]
    pub fn approver(mut self, approver: Arc<dyn Approver>) -> Self {
        self.approvers.push(approver);
        self
    }

    /// Sets how long a question waits for an answer; five minutes if nothing is set. Without an answer the call is denied.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Says whose calls these are.
    #[must_use]
    pub fn asked_by(self, asked_by: AskedBy) -> Self {
        Self { asked_by, ..self }
    }

    /// Sets who runs the manifest's agents that name no program.
    #[must_use]
    pub fn agent_runner(self, runner: Arc<dyn AgentRunner>) -> Self {
        Self { agent_runner: Some(runner), ..self }
    }

    /// Sets who serves the manifest's agents that are programs.
    #[must_use]
    pub fn agent_endpoint(self, endpoint: Arc<dyn AgentEndpoint>) -> Self {
        Self { agent_endpoint: Some(endpoint), ..self }
    }

    /// Says where what results have no room for is kept.
    #[must_use]
    pub fn overflow(self, overflow: Overflow) -> Self {
        Self { overflow, ..self }
    }

    /// Says what happens to arguments of another type than a tool's schema asks for.
    #[must_use]
    pub fn coercion(self, coercion: Coercion) -> Self {
        Self { coercion, ..self }
    }

    /// Sets what the session is called in the store.
    #[must_use]
    pub fn title(self, title: impl Into<String>) -> Self {
        Self { title: Some(title.into()), ..self }
    }

    /// Sets what the host keeps with the session in the store.
    #[must_use]
    pub fn settings(self, settings: serde_json::Value) -> Self {
        Self { settings, ..self }
    }

    /// Continues a recorded session: with the approvals that were given in it, the rules that were added to it and the files of
    /// its outputs. Its workspace and what its manifest asks for must be what they were (X0-55); all else is what this
    /// specification says.
    #[must_use]
    pub fn resume(self, id: impl Into<String>) -> Self {
        Self { resume: Some(id.into()), ..self }
    }

    /// Allows a workspace, or a granted tree, to be or hold a home directory, with the keys in it.
    #[must_use]
    pub fn allow_home(self) -> Self {
        Self { allow_home: true, ..self }
    }

    /// True if command lines may have to be taken apart before they run, which takes a session for many calls: for
    /// rules, for a restricted shell, or for a watchdog. A profile that is in a file, and has not been read, may be
    /// about them.
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

    pub(super) fn chosen_profile(&self) -> Result<Profile, ProfileError> {
        match (&self.profile, &self.manifest) {
            (Some(profile), _) => Ok(profile.clone()),
            (None, Some(manifest)) => profile::of_manifest(manifest),
            (None, None) => Ok(Profile::default()),
        }
    }

    /// Specification of what a manifest asks for.
    #[must_use]
    pub fn with_manifest(workspace: impl Into<PathBuf>, manifest: Manifest) -> Self {
        Self { manifest: Some(manifest), ..Self::new(workspace) }
    }

    /// For the next session of a host that opens several: with what people have approved of for the project by now, if its manifest is
    /// still trusted for what it said then.
    ///
    /// # Errors
    /// [`OpenError::NoLongerTrusted`]
    pub fn again(&self) -> Result<Self, OpenError> {
        let again = |project: &Project| {
            let refused = |source: Option<TrustError>| OpenError::NoLongerTrusted {
                path: project.root().clone(),
                source: source.map(Box::new),
            };
            project.again().map_err(refused)
        };
        let project = self.project.as_ref().map(again).transpose()?;
        Ok(Self { project, ..self.clone() })
    }

    /// Specification of what the manifest of a project asks for, which its owner trusts.
    #[must_use]
    pub fn of_project(workspace: impl Into<PathBuf>, project: Project) -> Self {
        let (manifest, profile) = (Some(project.manifest.clone()), project.profile.clone());
        Self { manifest, profile, project: Some(project), ..Self::new(workspace) }
    }
}
