//! The tools of a session: found when it is opened, and found again between turns.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use callgate_policy::effective::{
    Bound, Contribution, DeclareError, Declared, EffectiveSet, PathRegion, Source, narrow,
};
use callgate_policy::manifest::{Agent, Credential, CredentialSource, Manifest};
use callgate_policy::path::HostPath;
use callgate_policy::pattern::ProgramPattern;
use callgate_policy::plan::compile;
use callgate_policy::plan::exec::{Header, started_by_env};
use callgate_policy::plan::protect::{Found, names};
use callgate_policy::profile::Profile;
use callgate_policy::tool::Surface;
use callgate_policy::variable::Variables;
use callgate_worker::asked;
use callgate_worker::mountinfo::{self, Mount};
use callgate_worker::way::{self, Way};

use super::open::{Barred, bounds, effective, further_directories, roots, variables};
use super::{Coercion, Session, SessionSpec, Warning};
use crate::causes::with_causes;
use crate::home::Homes;
use crate::host::{self, Search};
use crate::open_error::OpenError;
use crate::place::{Changeable, Place};
use crate::registry::hosted::{Hosted, skill};
use crate::registry::{
    Azure, Databases, Executor, Layer, LeftOut, Lifecycle, Registry, RegistryError, Rlm, Searches, TOKEN, Tool,
    ToolState, counts, of_surface,
};
use crate::store::{self, StoreError};
use crate::trust::{Found as FoundProject, Project, TrustError};

/// Where a session's tools come from.
#[derive(Debug)]
pub(crate) struct Sources {
    inherited: Option<Inherited>,
    /// Whom `web_search` asks. What it has asked counts for as long as there is the session.
    searches: Option<Arc<Searches>>,
    /// The organization that `azure_devops` is about.
    azure: Option<Arc<Azure>>,
    /// Whom `rlm_query` asks.
    rlm: Option<Arc<Rlm>>,
    /// The subagents that a tool starts.
    agents: BTreeMap<String, Agent>,
    /// The host's.
    further: Vec<Tool>,
    /// The names of those outside the lock.
    extra: Vec<String>,
    /// How they are seen.
    surface: Surface,
    /// Where the user declares some.
    user: Option<PathBuf>,
    /// Whose trusted project declares some.
    project: Option<Project>,
    /// The names that the manifest offers.
    offered: Option<Vec<String>>,
    /// The variables that credentials of the manifest are read from: no tool gets them.
    secret: Vec<String>,
    profile: Profile,
    bounds: Vec<Bound>,
}

/// Tools of a subagent: what its parent had when it was started. It has nothing else, whatever is declared by now.
#[derive(Debug, Clone)]
pub(crate) struct Inherited {
    pub(super) tools: Registry,
    pub(super) skills: Arc<skill::Found>,
}

/// Tools that a session is opened with.
pub(super) struct Believed {
    pub(super) registry: Registry,
    pub(super) skills: Arc<skill::Found>,
    /// The directories that are granted for them.
    pub(super) beside: Vec<HostPath>,
    /// Rights in force with them.
    pub(super) effective: EffectiveSet,
    pub(super) warnings: Vec<Warning>,
}

/// Reason why tools could not be read again. Those that were there still are.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// The project is not what it was.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// Its trust was for one session, or was taken back.
    #[error("the project's tools are not trusted any more")]
    NotTrusted,
    /// The manifest is another than the one that the session was opened with.
    #[error("the project's manifest is another than the one that this session was opened with; open a new session")]
    OtherManifest,
    /// A tool cannot be registered.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

impl Sources {
    pub(super) fn of(
        spec: &mut SessionSpec,
        profile: &Profile,
        bounds: Vec<Bound>,
        inherited: Option<Inherited>,
    ) -> Self {
        let of_manifest = spec.manifest.as_ref();
        let azure = spec.tools.then(Azure::of_caller).and_then(Result::ok).map(Arc::new);
        let mut secret = spec.manifest.as_ref().map(secret_variables).unwrap_or_default();
        secret.extend(azure.as_ref().map(|_| TOKEN.to_owned()));
        let surface = spec.surface.or(of_manifest.and_then(|manifest| manifest.surface)).unwrap_or_default();
        let search = spec.manifest.as_ref().and_then(|manifest| manifest.net.search.clone()).filter(|_| spec.tools);
        Self {
            inherited,
            searches: search.map(|search| Arc::new(Searches::new(search))),
            azure,
            rlm: of_manifest.and_then(|manifest| manifest.net.rlm.clone()).map(|rlm| Arc::new(Rlm::new(rlm))),
            agents: spec.manifest.as_ref().map(|manifest| manifest.agents.clone()).unwrap_or_default(),
            further: std::mem::take(&mut spec.further_tools),
            surface,
            extra: spec
                .extra_tools
                .iter()
                .chain(spec.manifest.iter().flat_map(|manifest| &manifest.extra))
                .cloned()
                .collect(),
            // What the host starts by itself is no tool's.
            user: spec.user_tools.clone().filter(|_| spec.tools),
            project: spec.project.clone().filter(|_| spec.tools),
            offered: spec.manifest.as_ref().and_then(|manifest| manifest.tools.clone()),
            secret,
            profile: profile.clone(),
            bounds,
        }
    }

    /// Reads them, and leaves out what cannot be offered.
    pub(super) fn read(&self, variables: &Variables) -> Result<Registry, RegistryError> {
        let mut registry = match &self.inherited {
            // A server does what it was granted, and not its caller: a subagent gets its tools by name alone.
            Some(inherited) => inherited.tools.only(|tool| !tool.is_a_servers() || self.offered.is_some()),
            None => self.declared(variables)?,
        };
        registry.leave_out(|tool| self.unfit(tool, variables));
        if self.inherited.is_none() {
            registry.know_tools_of(&self.agents)?;
            registry.add_task(&self.agents)?;
            registry.add_agents(&self.agents, |name| self.is_asked_for(name))?;
            registry.offer(&self.profile)?;
            registry = registry.seen_through(self.surface, &self.agents)?;
        }
        if let Some(offered) = &self.offered {
            registry.offer_only(offered)?;
        }
        Ok(registry)
    }

    /// True if a list of tools or the surface names it.
    fn is_named(&self, name: &str) -> bool {
        let is_offered = self.offered.iter().flatten().any(|offered| offered == name);
        is_offered || of_surface(self.surface).any(|tool| tool == name)
    }

    /// True if it is named so, or as one outside the lock.
    fn is_asked_for(&self, name: &str) -> bool {
        self.extra.iter().any(|extra| extra == name) || self.is_named(name)
    }

    /// Those that callgate, the host, the user and the project have.
    fn declared(&self, variables: &Variables) -> Result<Registry, RegistryError> {
        let mut registry = Registry::locked()?;
        if let Some(searches) = &self.searches {
            registry.add_search(Arc::clone(searches))?;
        }
        registry.add_further(self.extra.iter().map(String::as_str))?;
        // What a list of tools or a surface names is there as well, if it is.
        let is_asked_for = |name: &str| self.is_asked_for(name);
        if let Some(azure) = self.azure.as_ref().filter(|_| is_asked_for("azure_devops")) {
            registry.add_azure(Arc::clone(azure))?;
        }
        if let Some(rlm) = self.rlm.as_ref().filter(|_| is_asked_for("rlm_query")) {
            registry.add_rlm(Arc::clone(rlm))?;
        }
        for tool in &self.further {
            registry.add(tool.clone())?;
        }
        let user = self.user.as_deref().map(Layer::of_user);
        let project = self.project.as_ref().map(Project::layer);
        let layers: Vec<Layer> = user.into_iter().chain(project.cloned()).collect();
        registry.declare(&layers);
        // A name that others have is theirs.
        registry.add_further(Registry::further()?.iter().filter(|name| self.is_named(name)).map(String::as_str))?;
        // Before it is asked whether anybody could reach what they keep.
        registry.leave_out(|tool| without_state(tool, variables));
        Ok(registry)
    }

    /// Tools without those that calls of the session could rewrite; what is in force with them, and what is to be told
    /// of it.
    pub(super) fn believed<'a>(
        &self,
        spec: &mut SessionSpec,
        variables: &Variables,
        roots: &'a [Place],
        held: impl Iterator<Item = &'a Place> + Clone,
    ) -> Result<Believed, OpenError> {
        let mut registry = self.read(variables)?;
        let skills = match &self.inherited {
            _ if !has_skills(&registry) => Arc::default(),
            Some(inherited) => Arc::clone(&inherited.skills),
            None => Arc::new(skills(spec, roots)),
        };
        // Files beside a skill are for whoever reads it.
        let beside = skills.directories(host::owner(roots.first()).uid);
        if let Some(requires) = skill::requires(&beside) {
            spec.requires.push((Source::Tool("skill".to_owned()), requires));
        }
        loop {
            let (effective, warnings) = self::effective(spec, &self.bounds, &registry, variables)?;
            let all = registry.tools().count();
            if self.inherited.is_some() {
                // Whether calls could rewrite them, and where their programs are, was found with the rights of the first session,
                // which has the most.
                keep_what_leads_nowhere(&mut registry, &effective, variables);
            } else {
                let (written, asked) = (compile::written(&effective), effective.asked_for());
                let changeable = Changeable::of(held.clone(), &written, &asked);
                keep_what_is_their_own(&mut registry, &effective, (variables, &changeable));
            }
            // Without a tool less is in force, and something else may be found for another one.
            if registry.tools().count() == all {
                return Ok(Believed { registry, skills, beside, effective, warnings });
            }
        }
    }

    /// Reason why no session may have a tool: what it requires would be refused to the whole session.
    fn unfit(&self, tool: &Tool, variables: &Variables) -> Option<String> {
        let source = Source::Tool(tool.name.clone());
        let of_tool = [Contribution::from_source(&source, &tool.requires)];
        let declared = match Declared::union(&of_tool, variables, &[]) {
            Ok(declared) => declared,
            Err(error) => return Some(error.to_string()),
        };
        let part = narrow(&declared, &self.bounds);
        if let Executor::Declared(declared) = &tool.executor
            && let Some(file) = declared.files().find(|file| !part.allows_read(file))
        {
            return Some(format!(
                "a ceiling leaves {file} out, which belongs to it; grant that in `read` of [ceiling.fs]"
            ));
        }
        if let Executor::Declared(declared) = &tool.executor
            && let Some(variable) = declared.env.iter().find(|name| self.secret.contains(name))
        {
            return Some(format!(
                "its `env` has {variable}, which [[net.credentials]] of the manifest keeps from programs; take it out of one of them"
            ));
        }
        let barred = Barred { allow_home: false, user_tools: self.user.as_deref(), store: None };
        let refused = barred.refuse(&part);
        refused.err().map(|error| with_causes(&error)).or_else(|| rewritten(tool, &part))
    }
}

/// The variables that a manifest's credentials are read from.
fn secret_variables(manifest: &Manifest) -> Vec<String> {
    let variable = |credential: &Credential| match &credential.from {
        CredentialSource::Variable(name) => Some(name.clone()),
        CredentialSource::File(_) => None,
    };
    manifest.net.credentials.iter().filter_map(variable).collect()
}

/// True if the session itself answers for skills.
pub(super) fn has_skills(registry: &Registry) -> bool {
    registry.tools().any(|tool| matches!(tool.executor, Executor::Session(Hosted::Skill)))
}

/// Where they lie: those of a project only if it is trusted.
fn skills(spec: &SessionSpec, roots: &[Place]) -> skill::Found {
    if !spec.tools {
        return skill::Found::default();
    }
    let trusted = |root| spec.project.as_ref().filter(|project| project.is_at(root));
    skill::Found::look(roots.first().and_then(|root| Some((root, trusted(root)?.skills()))))
}

/// Reason why a tool has no place for its state. The place is made when the tool is loaded (S1-20), and stays.
fn without_state(tool: &Tool, variables: &Variables) -> Option<String> {
    let Executor::Declared(declared) = &tool.executor else { return None };
    let root = variables.workspace().first().filter(|_| declared.has_state)?;
    store::slot(&tool.name, &tool.origin, root).err().map(|error| with_causes(&error))
}

/// Leaves out the tools that calls of a session could rewrite, and finds the programs of the others.
fn keep_what_is_their_own(
    registry: &mut Registry,
    effective: &EffectiveSet,
    (variables, changeable): (&Variables, &Changeable),
) {
    if !registry.tools().any(|tool| matches!(tool.executor, Executor::Declared(_))) {
        return;
    }
    let search = Search::of_tools(effective, changeable);
    registry.leave_out(|tool| {
        rewritten(tool, effective).or_else(|| {
            let own = match part(tool, effective, variables) {
                Ok(own) => own,
                Err(error) => return Some(error.to_string()),
            };
            let settled = settle(tool, (effective, &own), &search.path(&own, None).0);
            settled.err().or_else(|| leads_out(&own, real_path, real_path).map(|error| with_causes(&error)))
        })
    });
}

/// Leaves out the tools whose part leads out of what bounds the session, by a link.
fn keep_what_leads_nowhere(registry: &mut Registry, effective: &EffectiveSet, variables: &Variables) {
    registry.leave_out(|tool| match part(tool, effective, variables) {
        Ok(own) => leads_out(&own, real_path, real_path).map(|error| with_causes(&error)),
        Err(error) => Some(error.to_string()),
    });
}

/// Rights in force for a tool: what it requires, as far as the session has it.
pub(super) fn part(tool: &Tool, effective: &EffectiveSet, variables: &Variables) -> Result<EffectiveSet, DeclareError> {
    let source = Source::Tool(tool.name.clone());
    let of_tool = [Contribution::from_source(&source, &tool.requires)];
    Ok(effective.part(&Declared::union(&of_tool, variables, &[])?))
}

/// Finds a tool's program, if it is named by its name, and has that started and nothing that takes its place later; and looks where
/// the other names lead that it requires. What calls may write must not be among them.
fn settle(tool: &mut Tool, (effective, own): (&EffectiveSet, &EffectiveSet), path: &[HostPath]) -> Result<(), String> {
    let required = own.rights().shell().iter().filter_map(|(region, _)| match region.programs() {
        ProgramPattern::One(program) => Some(program),
        ProgramPattern::OneBelow { path, .. } => Some(path),
        ProgramPattern::Any | ProgramPattern::Below(_) => None,
    });
    let Executor::Declared(declared) = &mut tool.executor else { return Ok(()) };
    let writes = Writes::of(effective)?;
    for program in required {
        let found = if program.as_path().is_absolute() {
            // What is not there is not started, unless calls could put it there.
            let is_there = std::fs::symlink_metadata(program.as_path()).is_ok();
            if let Some(why) = if is_there { writes.way(program) } else { writes.file(program) } {
                return Err(why);
            }
            is_there.then(|| program.clone())
        } else {
            find(program, &writes, path)?
        };
        if let Some(found) = found {
            writes.start(&found, path, DEPTH)?;
        }
    }
    let program = match declared.named().cloned() {
        Some(name) => {
            let found = find(&name, &writes, path)?;
            let found = found
                .ok_or_else(|| format!("its program {name} is in no directory of PATH that calls cannot write"))?;
            Arc::make_mut(declared).found = Some(found.clone());
            Some(found)
        }
        None => declared.program().cloned(),
    };
    program.map_or(Ok(()), |program| writes.start(&program, path, DEPTH))
}

/// Most programs that run one another: the kernel follows five interpreters that are scripts themselves (fs/exec.c).
const DEPTH: u8 = 6;

/// The first program of this name.
fn find(name: &HostPath, writes: &Writes<'_>, path: &[HostPath]) -> Result<Option<HostPath>, String> {
    // As the sandbox has it, where each directory is one path.
    let path = path.iter().filter(|dir| dir.is_normal());
    for file in path.map(|dir| HostPath::from(dir.as_path().join(name.as_path()))) {
        let Ok(about) = std::fs::symlink_metadata(file.as_path()) else { continue };
        let is_startable = host::is_startable(file.as_path());
        // What calls may put at a link's end would be started by this name.
        if (is_startable || about.is_symlink())
            && let Some(why) = writes.way(&file)
        {
            return Err(why);
        }
        if is_startable {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

/// File of a tool's that a session may write, with these rights: then it is not what its author wrote.
pub(super) fn rewritten(tool: &Tool, effective: &EffectiveSet) -> Option<String> {
    let Executor::Declared(declared) = &tool.executor else { return None };
    let writes = match Writes::of(effective) {
        Ok(writes) => writes,
        Err(why) => return Some(why),
    };
    // The program may be a link. What it leads to must be there, or calls could put something there later.
    let program = declared.program().and_then(|program| writes.way(program));
    program.or_else(|| declared.paths().find_map(|file| writes.file(&file)))
}

/// Reason why calls of a session with these rights would choose what a program is: by its name, by what is at its path,
/// or by what it is run by.
pub(super) fn chosen_by_calls(program: &HostPath, effective: &EffectiveSet, path: &[HostPath]) -> Option<String> {
    let judged = || {
        let writes = Writes::of(effective)?;
        let found = if program.as_bytes().contains(&b'/') {
            writes.way(program).map_or(Ok(Some(program.clone())), Err)?
        } else {
            find(program, &writes, path)?
        };
        found.map_or(Ok(()), |found| writes.start(&found, path, DEPTH))
    };
    judged().err()
}

/// Reason why calls of a session with these rights could replace a file, or lead its path elsewhere.
pub(super) fn replaced_by_calls(file: &HostPath, effective: &EffectiveSet) -> Option<String> {
    match Writes::of(effective) {
        Ok(writes) => writes.way(file),
        Err(why) => Some(why),
    }
}

/// Places that a session may write, and what an earlier one could that was asked for the same and bounded less.
struct Writes<'a> {
    effective: &'a EffectiveSet,
    asked: Vec<PathRegion>,
    user: u32,
    mounts: Vec<Mount>,
}

impl<'a> Writes<'a> {
    fn of(effective: &'a EffectiveSet) -> Result<Self, String> {
        let mounts = mountinfo::read()
            .map_err(|error| format!("the mounts by which calls may reach its files cannot be read: {error}"))?;
        Ok(Self { effective, asked: effective.asked_regions(), user: host::owner(None).uid, mounts })
    }

    /// Reason why a program does not run by what its author meant: its file names an interpreter or a loader, and calls
    /// could put another in that place.
    fn start(&self, program: &HostPath, path: &[HostPath], depth: u8) -> Result<(), String> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(format!("its program {program} is run by too many others"));
        };
        let header = host::header(program.as_path())
            .map_err(|error| format!("its program {program} cannot be looked at: {error}"))?;
        let (by, argument) = match header {
            Header::Script { interpreter, argument } => (interpreter, argument),
            Header::Dynamic { loader } => (loader, None),
            Header::Image | Header::Text => return Ok(()),
        };
        let by = HostPath::from(Path::new(OsStr::from_bytes(&by)));
        let told = |why: String| format!("{program} is run by {by}, and {why}");
        if !by.as_path().is_absolute() {
            return Err(format!("{program} is run by {by}, which is another file in every directory"));
        }
        if let Some(why) = self.way(&by) {
            return Err(told(why));
        }
        if by.as_path().file_name().is_some_and(|name| name == "env")
            && let Some(argument) = argument
        {
            let plain = started_by_env(&argument).map(|(name, _)| name).filter(|name| !name.as_bytes().contains(&b'/'));
            let name =
                plain.ok_or_else(|| format!("what {program} starts by env is no plain name; write its whole path"))?;
            if let Some(found) = find(&name, self, path).map_err(&told)? {
                self.start(&found, path, depth).map_err(&told)?;
            }
        }
        self.start(&by, path, depth)
    }

    /// Reason why a file is not what its author wrote.
    fn file(&self, file: &HostPath) -> Option<String> {
        let region = self.region(file)?;
        Some(format!("calls may write {file} ({region} was asked for), so it would not be what was declared"))
    }

    /// Judges a file and all that decides where its path leads: each link, and each directory that the way goes through
    /// and leaves by `..`.
    fn way(&self, path: &HostPath) -> Option<String> {
        let way = Way::follow(path.as_path());
        let way = way.map_err(io::Error::from).and_then(|way| Ok((way.real_path()?, way)));
        let (real, way) = match way {
            Ok(way) => way,
            // A link on the way may be one that calls have made or could make lead somewhere.
            Err(error) => {
                return self.file(path).or_else(|| Some(format!("its program {path} cannot be found: {error}")));
            }
        };
        if let Some(why) = has_other_names(&way, &real) {
            return Some(format!("its program {path} {why}"));
        }
        let ends: Vec<PathBuf> =
            [path.as_path().to_owned(), real].into_iter().chain(way.links.into_iter().map(|link| link.path)).collect();
        let left = way.owners.into_iter().map(|(directory, _)| directory);
        // A grant of all that lies below a directory replaces what is in it, and not the directory.
        let is_granted = |at: &PathBuf| {
            self.effective.rights().write().iter().any(|(region, _)| region.literal_prefix().as_path() == at)
        };
        let left = left.filter(|at| !ends.iter().any(|end| end.starts_with(at)) && !is_granted(at));
        let left: Vec<PathBuf> = left.collect();
        ends.into_iter().chain(left).find_map(|file| self.file(&HostPath::from(file)))
    }

    /// The grant by which a file may be written. A granted directory may lead to it by another name, too: as the place of another
    /// mount, or by a link.
    fn region(&self, file: &HostPath) -> Option<&PathRegion> {
        // Where it lies, and not where it leads: a link can be replaced as well.
        let (parent, name) = (file.as_path().parent(), file.as_path().file_name());
        let real = parent.and_then(real_path).zip(name).map(|(parent, name)| parent.join(name));
        let others = real.iter().flat_map(|real| mountinfo::other_names(&self.mounts, real));
        let names = std::iter::once(file.as_path().to_owned()).chain(real.clone()).chain(others);
        names.map(HostPath::from).find_map(|name| self.region_by(&name))
    }

    fn region_by(&self, file: &HostPath) -> Option<&PathRegion> {
        let above: Vec<(&Path, (u64, u64))> =
            file.as_path().ancestors().filter_map(|path| Some((path, host::identity_of(path)?))).collect();
        let may_write = |region: &&PathRegion| {
            let root = region.literal_prefix();
            let is_open = |below: &Path| !is_kept(&root, below);
            if file.as_path().strip_prefix(root.as_path()).is_ok_and(is_open) {
                return true;
            }
            let places = self.mounts.iter().map(|mount| mount.at.as_path()).filter(|at| at.starts_with(root.as_path()));
            std::iter::once(root.as_path()).chain(places).any(|place| {
                let Some(id) = host::identity_of(place) else { return false };
                let below = |(path, _): &(&Path, _)| file.as_path().strip_prefix(path).ok();
                let names = above.iter().filter(|(_, other)| *other == id).filter_map(below);
                let names = names.map(|below| place.join(below));
                names.into_iter().any(|name| name.strip_prefix(root.as_path()).is_ok_and(is_open))
            })
        };
        let directory = file.as_path().parent().unwrap_or(file.as_path());
        let counts = |region: &&PathRegion| {
            asked::counts_at((file.as_path(), directory), &[region.literal_prefix().as_path().to_owned()], self.user)
        };
        let granted = self.effective.rights().write().iter().map(|(region, _)| region).find(may_write);
        granted.or_else(|| self.asked.iter().filter(counts).find(may_write))
    }
}

/// Refuses a session that may write where somebody declares tools, or says whom they trust: that counts without being asked about.
/// In that directory or, where it is not protected by the name that the session has for it, in one above.
pub(super) fn refuse_to_declare(user: Option<&Path>, effective: &EffectiveSet) -> Result<(), OpenError> {
    let written = effective.rights().write().iter().map(|(region, _)| region.literal_prefix());
    // Whoever runs this may work in somebody else's home.
    for granted in written {
        if let Some(path) = host::named_in(granted.as_path(), &[".config", "callgate"]) {
            return Err(StoreError::Declares { granted: granted.as_path().to_owned(), path }.into());
        }
    }
    let homes = Homes::find();
    let usual = homes.iter().flat_map(|home| [home.join(".config/callgate"), home.join(".callgate")]);
    let own = host::home().map(|home| home.join(".callgate"));
    let places = [host::user_settings(), own, user.map(ToOwned::to_owned)].into_iter().flatten().chain(usual);
    let places: BTreeSet<PathBuf> = places.collect();
    for place in &places {
        if let Some(granted) = store::granted_within(place, effective) {
            return Err(StoreError::Declares { granted, path: place.clone() }.into());
        }
        // What is found there counts only where its path without links is a protected name.
        let Some(real) = std::fs::canonicalize(place).ok().filter(|real| counts(real)) else { continue };
        let failed = |why: String| StoreError::Place { path: real.clone(), source: io::Error::other(why) };
        let writes = Writes::of(effective).map_err(failed)?;
        if let Some(region) = writes.region(&HostPath::from(real.clone())) {
            let granted = region.literal_prefix().as_path().to_owned();
            return Err(StoreError::Declares { granted, path: real }.into());
        }
    }
    Ok(())
}

/// Reason why a program is a file that could be written by another name of it: a hard link lies anywhere. What comes
/// with the system is root's, and nobody else writes it.
fn has_other_names(way: &Way, real: &Path) -> Option<&'static str> {
    let stat = way.stat();
    let is_the_systems = stat.st_uid == 0 && way::is_the_systems(real);
    let has_others = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() && stat.st_nlink > 1;
    (has_others && !is_the_systems)
        .then_some("has more than one name (hard links), by which calls could write it; give it a copy")
}

/// Where a tool's part leads out of what bounds it, by a link.
pub(super) fn leads_out(
    effective: &EffectiveSet,
    seen: impl Fn(&Path) -> Option<PathBuf>,
    real: impl Fn(&Path) -> Option<PathBuf>,
) -> Option<OpenError> {
    let out = effective.leads_out(seen, real)?;
    let (granted, bound) = (out.granted.as_path().to_owned(), out.bound.in_a_sentence());
    Some(OpenError::LeadsOut { granted, to: out.to, bound })
}

/// Where a path leads now, without links.
pub(super) fn real_path(path: &Path) -> Option<PathBuf> {
    std::fs::canonicalize(path).ok()
}

/// True if a name below a granted directory is protected there.
fn is_kept(root: &HostPath, below: &Path) -> bool {
    let found = names().find(names().root(root.as_bytes()), below.as_os_str().as_encoded_bytes());
    matches!(found, Found::Kept { .. })
}

impl Registry {
    /// The tools that a session with this specification has, without opening it.
    ///
    /// # Errors
    /// [`OpenError`], where a session would not be opened for what is looked at here.
    pub fn offered(mut spec: SessionSpec) -> Result<Self, OpenError> {
        let profile = spec.chosen_profile()?;
        let roots = roots(&spec)?;
        let further = further_directories(&spec)?;
        let variables = variables(&roots, &further)?;
        let bounds = bounds(&spec, &profile, &variables)?;
        let held = roots.iter().chain(further.iter().map(|(_, place)| place));
        let sources = Sources::of(&mut spec, &profile, bounds, None);
        Ok(sources.believed(&mut spec, &variables, &roots, held)?.registry)
    }
}

/// Tools of a session, and where they come from.
pub(crate) struct Tools {
    pub(crate) lifecycle: Lifecycle,
    sources: Mutex<Sources>,
    /// Databases that are configured for the tools that query them.
    pub(crate) databases: Databases,
    pub(crate) coercion: Coercion,
}

impl Tools {
    pub(super) fn new(registry: Registry, sources: Sources, databases: Databases, coercion: Coercion) -> Self {
        Self { lifecycle: Lifecycle::new(registry), sources: Mutex::new(sources), databases, coercion }
    }
}

impl Session {
    /// Tools that are declared and not there, and why.
    #[must_use]
    pub fn left_out_tools(&self) -> Vec<LeftOut> {
        self.registry().left_out().to_vec()
    }

    /// State of a tool: whether its calls are carried out; `None` if there is no such tool.
    #[must_use]
    pub fn tool_state(&self, name: &str) -> Option<ToolState> {
        self.registry().find(name).map(|tool| self.tools.lifecycle.state(&tool.name))
    }

    /// Takes no more calls of a tool, and returns when those in flight have ended (S1-20). A second time it changes nothing.
    /// Dropping the future takes nothing back.
    pub async fn deactivate_tool(&self, name: &str) {
        if let Some(tool) = self.registry().find(name) {
            self.tools.lifecycle.deactivate(&tool.name).await;
        }
    }

    /// Takes calls of a tool again.
    pub fn activate_tool(&self, name: &str) {
        if let Some(tool) = self.registry().find(name) {
            self.tools.lifecycle.activate(&tool.name);
        }
    }

    /// Removes a tool from this session, once its calls in flight have ended (S1-20). Whether it was there: a second time it
    /// changes nothing.
    pub async fn dispose_tool(&self, name: &str) -> bool {
        let registry = self.registry();
        let Some(tool) = registry.find(name).map(|tool| tool.name.clone()) else { return false };
        self.tools.lifecycle.deactivate(&tool).await;
        let without = |now: &Registry| -> Result<_, std::convert::Infallible> {
            let was_there = now.find(&tool).is_some();
            Ok((now.without(&tool), was_there))
        };
        match self.tools.lifecycle.replace(without).await {
            Ok(was_there) => was_there,
            Err(never) => match never {},
        }
    }

    /// Reads again what the user and the project declare. It waits until no call is in flight, and calls that come meanwhile
    /// wait for it (S1-26); so do not call it from a tool. The session's own rights stay what they are: a tool that requires more
    /// does not get it.
    ///
    /// A project's tools must be trusted as they are now.
    ///
    /// # Errors
    /// [`ReloadError`]; then nothing has changed.
    pub async fn reload_tools(&self) -> Result<(), ReloadError> {
        let load = |_now: &Registry| -> Result<_, ReloadError> {
            let mut sources = self.tools.sources.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if let Some(project) = &sources.project {
                let found = match project.find_again()? {
                    FoundProject::Trusted(found) => *found,
                    FoundProject::Nothing | FoundProject::Untrusted { .. } => return Err(ReloadError::NotTrusted),
                };
                if found.manifest != project.manifest || found.profile != project.profile {
                    return Err(ReloadError::OtherManifest);
                }
                sources.project = Some(found);
            }
            let mut registry = sources.read(&self.variables)?;
            if sources.inherited.is_some() {
                keep_what_leads_nowhere(&mut registry, &self.effective, &self.variables);
            } else {
                keep_what_is_their_own(&mut registry, &self.effective, (&self.variables, &self.sandbox.changeable));
            }
            self.gate.rules_to_change().subjects = registry.subjects();
            Ok((registry, ()))
        };
        self.tools.lifecycle.replace(load).await
    }

    /// Offers these tools of a server ([`Tool::remote`]), in place of those that it had before: at first, when it has others, and
    /// none when it is gone. Calls in flight keep what they began with. Returns why some of them are not offered.
    pub fn offer_tools_of(&self, server: &str, tools: Vec<Tool>) -> Vec<RegistryError> {
        let swap = |now: &Registry| -> Result<_, std::convert::Infallible> {
            let tools = tools.into_iter().filter(|tool| tool.is_of(server)).collect();
            let (registry, refused) = now.with_tools_of(server, tools, &self.gate.profile);
            let mut sources = self.tools.sources.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            // Found there when tools are read again.
            sources.further.retain(|tool| !tool.is_of(server));
            sources.further.extend(registry.tools().filter(|tool| tool.is_of(server)).cloned());
            self.gate.rules_to_change().subjects = registry.subjects();
            Ok((registry, refused))
        };
        match self.tools.lifecycle.change(swap) {
            Ok(refused) => refused,
            Err(never) => match never {},
        }
    }

    /// The session's tools, as they are now.
    #[must_use]
    pub fn registry(&self) -> Arc<Registry> {
        self.tools.lifecycle.now()
    }
}
