//! From what was typed to what a session is opened for.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callgate::profile::{self, ProfileError};
use callgate::trust::{self, Found, MANIFESTS, TrustError, TrustList};
use callgate::{OpenError, Session, SessionSpec, TypedPath, Warning, refuse_strangers, with_causes};
use callgate_policy::ceiling::Ceiling;
use callgate_policy::effective::{DEBUG, Source};
use callgate_policy::manifest::Manifest;
use callgate_policy::path::normalize;
use callgate_policy::pattern::{HostPattern, PathTemplate};
use callgate_policy::profile::{Profile, ProfileName};
use callgate_policy::requirement::{FsRequirement, NetRequirement, Program, RequirementSet, ShellRunRequirement};

use super::arguments::{Grants, Offer};
use super::exit::CommandFailure;

/// The flag that can name a file to come.
const WRITE: &str = "--write";

/// Specification of the session, from the grants that were typed.
pub(super) fn spec(grants: &Grants) -> Result<SessionSpec, CommandFailure> {
    let workspace = match &grants.workspace {
        Some(dir) => dir.clone(),
        // Not by its name, which may lead elsewhere by the time that it is looked up.
        None => PathBuf::from("."),
    };
    let mut spec = match &grants.manifest {
        Some(file) => SessionSpec::with_manifest(workspace, manifest(file)?),
        None => of_directory(workspace, Trust::Used)?,
    };
    spec.workspace.extend(grants.root.iter().cloned());
    spec.ad_hoc.extend(grants.ad_hoc.iter().cloned());
    spec.user_data.clone_from(&grants.user_data);
    spec.allow_home = grants.allow_home;
    spec.user_tools = callgate::user_settings();
    spec.agent_endpoint = Some(Arc::new(callgate_mcp::Agents));
    for limit in &grants.limit {
        spec.limits.set(limit).map_err(|e| CommandFailure::Usage(format!("--limit {limit}: {}", with_causes(&e))))?;
    }
    for variable in &grants.env {
        match variable.split_once('=') {
            _ if variable.starts_with('=') || variable.is_empty() => {
                return Err(CommandFailure::Usage(format!("--env {variable:?}: a variable has a name")));
            }
            Some((name, value)) => drop(spec.env.set.insert(name.to_owned(), value.to_owned())),
            None => spec.env.pass.push(variable.clone()),
        }
    }
    let flags = RequirementSet {
        fs: FsRequirement {
            read: paths(&grants.read, "--read", &mut spec.typed)?,
            write: paths(&grants.write, WRITE, &mut spec.typed)?,
            exact: false,
        },
        net: NetRequirement { hosts: hosts(&grants.net)? },
        shell: programs(&grants.exec)?,
        capabilities: grants.debug.then(|| DEBUG.to_owned()).into_iter().collect(),
    };
    if !flags.shell.is_empty() {
        // Naming programs takes the default's "any" back.
        for (_, requires) in &mut spec.requires {
            requires.shell.clear();
        }
    }
    if !flags.is_empty() {
        spec.requires.push((Source::CommandLine, flags));
    }
    Ok(spec)
}

impl Offer {
    pub(super) fn apply(&self, spec: &mut SessionSpec) {
        spec.surface = self.surface;
        spec.extra_tools.clone_from(&self.extra);
    }
}

/// Where the whole repository is, once git has failed (with 128, as it does for what it calls fatal) in a part of it.
pub(super) fn tell_repository(session: &Session, names_git: bool, exit_code: Option<i64>) {
    if !names_git || exit_code != Some(128) {
        return;
    }
    for warning in session.warnings() {
        if let Warning::PartOfRepository { repository, .. } = warning {
            let (warning, repository) = (warning.to_string(), repository.to_string());
            let text = format!("callgate: {}\n  try: -C {}\n", warning.escape_debug(), repository.escape_debug());
            // A notice: what ran does not depend on somebody reading it.
            drop(std::io::stderr().write_all(text.as_bytes()));
        }
    }
}

/// True if a command line has the word `git`, by any path.
pub(super) fn names_git(line: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && !"-_.".contains(c)).any(|word| word == "git")
}

/// True if a warning is for whoever opens a session. That the workspace is a part of a repository matters to git alone.
pub(super) fn is_told(warning: &Warning) -> bool {
    !matches!(warning, Warning::PartOfRepository { .. })
}

/// Where a session's manifest comes from, and so who has been told what it leaves unbounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ManifestFrom {
    /// A project that somebody trusts: they were told by `callgate trust`.
    Trust,
    /// Somebody who named it now, or nobody.
    Elsewhere,
}

impl ManifestFrom {
    pub(super) fn of(spec: &SessionSpec) -> Self {
        if spec.project.is_some() { Self::Trust } else { Self::Elsewhere }
    }
}

/// Tells what the person may not have meant, and has not been told.
pub(super) fn tell_warnings(session: &Session, from: ManifestFrom) {
    let is_known =
        |warning: &Warning| matches!(warning, Warning::ToolsRequireMore { .. }) && from == ManifestFrom::Trust;
    for warning in session.warnings().iter().filter(|warning| is_told(warning) && !is_known(warning)) {
        // A notice: what runs does not depend on somebody reading it.
        drop(writeln!(std::io::stderr(), "callgate: {}", callgate::shown::escaped(&warning.to_string())));
    }
}

/// Where programs were typed, they and those that the manifest names are all that a call may start, whatever `bash` requires.
pub(super) fn only_programs(spec: &SessionSpec) -> Option<(Source, Ceiling)> {
    let typed = |(source, set): &&(Source, RequirementSet)| *source == Source::CommandLine && !set.shell.is_empty();
    let (_, typed) = spec.requires.iter().find(typed)?;
    let named = spec.manifest.iter().flat_map(|manifest| &manifest.requires.shell).chain(&typed.shell);
    Some((Source::CommandLine, Ceiling { shell: Some(named.cloned().collect()), ..Ceiling::default() }))
}

/// The profile that was typed, or else the manifest's. What was read when the project was found trusted is not read again: by
/// now it could be something else.
pub(super) fn profile(typed: Option<&str>, spec: &SessionSpec) -> Result<Option<Profile>, CommandFailure> {
    let Some(typed) = typed else {
        return match &spec.profile {
            Some(profile) => Ok(Some(profile.clone())),
            None => Ok(spec.manifest.as_ref().map(profile::of_manifest).transpose().map_err(OpenError::from)?),
        };
    };
    match ProfileName::parse(typed) {
        Some(ProfileName::File(path)) => match profile::read(Path::new(&path)) {
            Err(ProfileError::Read { path, source }) if source.kind() == std::io::ErrorKind::NotFound => {
                Err(CommandFailure::named(format!("read the profile {}", path.display()))(source))
            }
            read => Ok(Some(read.map_err(OpenError::from)?)),
        },
        Some(name) => Ok(name.built_in()),
        None => Err(CommandFailure::Usage(format!(
            "there is no profile {typed:?}; there are {}, and files that end in .yaml",
            Profile::NAMES.join(", ")
        ))),
    }
}

fn manifest(file: &Path) -> Result<Manifest, CommandFailure> {
    use std::io::ErrorKind::{InvalidData, Other};
    let failed = |e: std::io::Error| {
        let unfit = matches!(e.kind(), InvalidData | Other);
        let name = file.display();
        if unfit {
            CommandFailure::Data(format!("{name}: {e}"))
        } else {
            CommandFailure::named(format!("open {name}"))(e)
        }
    };
    trust::read_manifest(file).map_err(|e| {
        let text = e.to_string();
        if let TrustError::Read { source, .. } = e { failed(source) } else { CommandFailure::Data(text) }
    })
}

/// Fate of trust for once.
#[derive(Debug, Clone, Copy)]
pub(super) enum Trust {
    /// It is used up.
    Used,
    /// It stays: nothing runs.
    LookedAt,
}

/// Specification with what the workspace's own manifest asks for if it is trusted; otherwise the defaults, and a word
/// about it (X1-35).
pub(super) fn of_directory(workspace: PathBuf, trust: Trust) -> Result<SessionSpec, CommandFailure> {
    // Where there is no home there is nothing trusted, which matters only where there is something to trust.
    let list = match TrustList::of_user() {
        Ok(list) => list,
        Err(_) if MANIFESTS.iter().all(|name| workspace.join(name).symlink_metadata().is_err()) => {
            return Ok(SessionSpec::developer(workspace));
        }
        Err(error) => return Err(error.into()),
    };
    let found = match trust {
        Trust::Used => list.find(&workspace),
        Trust::LookedAt => list.look(&workspace),
    };
    let found = match found {
        // That there is no such workspace is told when it is opened.
        Err(TrustError::Project { .. }) => Found::Nothing,
        found => found?,
    };
    Ok(match found {
        // By the path that was typed: whether that leads to the same directory is seen when it is opened.
        Found::Trusted(project) => SessionSpec::of_project(workspace, *project),
        Found::Nothing => SessionSpec::developer(workspace),
        Found::Untrusted { file } => {
            let dir = file.parent().and_then(Path::to_str).and_then(|dir| shlex::try_quote(dir).ok());
            // A notice: what runs does not depend on somebody reading it.
            drop(writeln!(
                std::io::stderr(),
                "callgate: {} is not trusted, so the defaults are in force; read it, then: callgate trust {}",
                file.display().to_string().escape_debug(),
                dir.as_deref().unwrap_or("DIR"),
            ));
            SessionSpec::developer(workspace)
        }
    })
}

/// A path that is typed means itself, and all beneath it if it is a directory.
fn paths(given: &[PathBuf], flag: &str, typed: &mut Vec<TypedPath>) -> Result<Vec<PathTemplate>, CommandFailure> {
    given.iter().map(|path| self::path(path, flag, typed)).collect()
}

fn path(path: &Path, flag: &str, typed: &mut Vec<TypedPath>) -> Result<PathTemplate, CommandFailure> {
    let act = format!("{flag} {}", path.display());
    let named = |why: &str| CommandFailure::Usage(format!("{flag} {}: {why}", path.display()));
    refuse_strangers(&act, path)?;
    let mut real = |path: &Path| -> std::io::Result<PathBuf> {
        let followed = TypedPath::follow(path)?;
        let real = followed.real().to_owned();
        typed.push(followed);
        Ok(real)
    };
    match real(path) {
        Ok(real) if real.is_dir() => Ok(PathTemplate::of_tree(&real.into())),
        Ok(real) => Ok(PathTemplate::of_file(&real.into())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && flag == WRITE && path.symlink_metadata().is_err() => {
            let (directory, name) =
                to_come(path).ok_or_else(|| named("it does not exist, and does not end in a file name"))?;
            refuse_strangers(&act, directory)?;
            let real = real(directory).map_err(|e| {
                named(&format!("{e}: a file that does not exist yet needs the directory that it is to be in"))
            })?;
            Ok(PathTemplate::of_file(&real.join(name).into()))
        }
        Err(e) => {
            Err(named(&format!("{e}; grants name what exists, or with {WRITE} a new file in a directory that exists")))
        }
    }
}

/// The directory and the name of a file that is to be made.
fn to_come(path: &Path) -> Option<(&Path, &OsStr)> {
    // What ends in a slash is to be a directory.
    let name =
        path.file_name().filter(|name| path.as_os_str().as_encoded_bytes().ends_with(name.as_encoded_bytes()))?;
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    Some((directory.unwrap_or(Path::new(".")), name))
}

fn hosts(given: &[String]) -> Result<Vec<HostPattern>, CommandFailure> {
    given
        .iter()
        .map(|host| HostPattern::parse(host).map_err(|e| CommandFailure::Usage(format!("--net {host}: {e}"))))
        .collect()
}

fn programs(given: &[String]) -> Result<Vec<ShellRunRequirement>, CommandFailure> {
    given
        .iter()
        .map(|name| {
            let cmd = program(name)?;
            Ok(ShellRunRequirement { cmd, args: None })
        })
        .collect()
}

/// A name, a path that means itself, or with `/**` behind it all that lies below it.
fn program(name: &str) -> Result<Program, CommandFailure> {
    let named = |e: &dyn std::fmt::Display| CommandFailure::Usage(format!("--exec {name}: {e}"));
    let parse = |name: &str| Program::parse(name).map_err(|e| named(&e));
    if name.starts_with('{') || !name.contains('/') {
        return parse(name);
    }
    let (path, is_tree) = name.strip_suffix("/**").map_or((name, false), |directory| (directory, true));
    let here = std::env::current_dir().map_err(CommandFailure::io("find the current directory"))?;
    let path = normalize(&here.into(), &path.into()).map_err(|e| named(&e))?;
    match is_tree {
        // All programs, which has a spelling of its own.
        true if path.as_path() == Path::new("/") => parse("/**"),
        true => Ok(Program::Tree(PathTemplate::of_tree(&path))),
        false => Ok(Program::Path(PathTemplate::of_file(&path))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a failing test may stop")]
    use super::*;
    use callgate::trust::Decision;

    /// E1: what is in force is the profile that was trusted, also if its file is another by the time that the session is opened.
    #[test]
    fn e1_a_trusted_profile_is_not_read_again() {
        let place = tempfile::tempdir().unwrap();
        let (project, list) = (place.path().join("project"), TrustList::at(place.path().join("list")));
        std::fs::create_dir(&project).unwrap();
        let write = |name: &str, text: &str| std::fs::write(project.join(name), text).unwrap();
        write("callgate.toml", "profile = \"./mine.yaml\"");
        write("mine.yaml", "profile: trusted\nshell:\n  mode: restricted\n");
        list.trust(&project, Decision::Trusted).unwrap();
        let Found::Trusted(found) = list.find(&project).unwrap() else { panic!("it is trusted") };
        let spec = SessionSpec::of_project(&project, *found);
        write("mine.yaml", "profile: another\nshell:\n  mode: unrestricted\n");
        assert_eq!(profile(None, &spec).unwrap().unwrap().name, "trusted");
        let named = SessionSpec::with_manifest(&project, manifest(&project.join("callgate.toml")).unwrap());
        assert_eq!(profile(None, &named).unwrap().unwrap().name, "another", "the control: one that was named is read");
    }
}
