//! From what was typed to what a session is opened for.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use callgate_policy::effective::Source;
use callgate_policy::manifest::Manifest;
use callgate_policy::path::normalize;
use callgate_policy::pattern::{HostPattern, PathTemplate};
use callgate_policy::profile::{Profile, ProfileName};
use callgate_policy::requirement::{FsRequirement, NetRequirement, Program, RequirementSet, ShellRunRequirement};

use super::arguments::Grants;
use super::exit::Failure;
use crate::profile::{self, ProfileError};
use crate::session::{OpenError, SessionSpec};
use crate::trust::{self, Found, MANIFESTS, TrustError, TrustList, Untrusted};

/// What the session is for, from the grants that were typed.
pub(super) fn spec(grants: &Grants) -> Result<SessionSpec, Failure> {
    let workspace = match &grants.workspace {
        Some(dir) => dir.clone(),
        None => std::env::current_dir().map_err(Failure::io("find the current directory"))?,
    };
    let mut spec = match &grants.manifest {
        Some(file) => SessionSpec::with_manifest(workspace, manifest(file)?),
        None => of_directory(workspace)?,
    };
    for limit in &grants.limit {
        spec.limits.set(limit).map_err(|e| Failure::Usage(format!("--limit {limit}: {e}")))?;
    }
    let flags = RequirementSet {
        fs: FsRequirement {
            read: paths(&grants.read, "--read")?,
            write: paths(&grants.write, "--write")?,
            exact: false,
        },
        net: NetRequirement { hosts: hosts(&grants.net)? },
        shell: programs(&grants.exec)?,
        capabilities: Vec::new(),
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

/// The profile that was typed, or else the manifest's, if that is in a file.
pub(super) fn profile(typed: Option<&str>, manifest: Option<&Manifest>) -> Result<Option<Profile>, Failure> {
    let Some(typed) = typed else {
        return Ok(manifest.map(profile::of_manifest).transpose().map_err(OpenError::from)?);
    };
    match ProfileName::parse(typed) {
        Some(ProfileName::File(path)) => match profile::read(Path::new(&path)) {
            Err(ProfileError::Read { path, source }) if source.kind() == std::io::ErrorKind::NotFound => {
                Err(Failure::named(format!("read the profile {}", path.display()))(source))
            }
            read => Ok(Some(read.map_err(OpenError::from)?)),
        },
        Some(name) => Ok(name.built_in()),
        None => Err(Failure::Usage(format!(
            "there is no profile {typed:?}; there are {}, and files that end in .yaml",
            Profile::NAMES.join(", ")
        ))),
    }
}

fn manifest(file: &Path) -> Result<Manifest, Failure> {
    use std::io::ErrorKind::{InvalidData, Other};
    let failed = |e: std::io::Error| {
        let unfit = matches!(e.kind(), InvalidData | Other);
        let name = file.display();
        if unfit { Failure::Data(format!("{name}: {e}")) } else { Failure::named(format!("open {name}"))(e) }
    };
    let text = trust::read(file).map_err(failed)?;
    trust::parse(file, text).map_err(|e| Failure::Data(e.to_string()))
}

/// What the workspace's own manifest asks for if it is trusted; otherwise the defaults, and a word about it (X1-35).
fn of_directory(workspace: PathBuf) -> Result<SessionSpec, Failure> {
    // Where there is no home there is nothing trusted, which matters only where there is something to trust.
    let list = match TrustList::of_user() {
        Ok(list) => list,
        Err(_) if MANIFESTS.iter().all(|name| workspace.join(name).symlink_metadata().is_err()) => {
            return Ok(SessionSpec::developer(workspace));
        }
        Err(error) => return Err(error.into()),
    };
    let found = match list.find(&workspace) {
        // That there is no such workspace is told when it is opened.
        Err(TrustError::Project { .. }) => Found::Nothing,
        found => found?,
    };
    Ok(match found {
        Found::Trusted(project) => SessionSpec::of_project(workspace, *project),
        Found::Nothing => SessionSpec::developer(workspace),
        Found::Untrusted { file, why } => {
            let why = match why {
                Untrusted::Unknown => "is not trusted",
                Untrusted::Changed => "has changed since it was trusted",
            };
            let dir = workspace.to_str().and_then(|dir| shlex::try_quote(dir).ok());
            // A notice: what runs does not depend on somebody reading it.
            drop(writeln!(
                std::io::stderr(),
                "callgate: {} {why}, so the defaults are in force; read it, then: callgate trust {}",
                file.display().to_string().escape_debug(),
                dir.as_deref().unwrap_or("DIR"),
            ));
            SessionSpec::developer(workspace)
        }
    })
}

/// A path that is typed means itself, and all beneath it if it is a directory.
fn paths(given: &[PathBuf], flag: &str) -> Result<Vec<PathTemplate>, Failure> {
    given
        .iter()
        .map(|path| {
            let real = std::fs::canonicalize(path)
                .map_err(|e| Failure::Usage(format!("{flag} {}: {e}; grants name what exists", path.display())))?;
            let is_dir = real.is_dir();
            let real = real.into();
            Ok(if is_dir { PathTemplate::of_tree(&real) } else { PathTemplate::of_file(&real) })
        })
        .collect()
}

fn hosts(given: &[String]) -> Result<Vec<HostPattern>, Failure> {
    given
        .iter()
        .map(|host| HostPattern::parse(host).map_err(|e| Failure::Usage(format!("--net {host}: {e}"))))
        .collect()
}

fn programs(given: &[String]) -> Result<Vec<ShellRunRequirement>, Failure> {
    given
        .iter()
        .map(|name| {
            let cmd = program(name)?;
            Ok(ShellRunRequirement { cmd, args: None })
        })
        .collect()
}

/// A name, or a path that means itself.
fn program(name: &str) -> Result<Program, Failure> {
    if name.starts_with('{') || !name.contains('/') {
        return Program::parse(name).map_err(|e| Failure::Usage(format!("--exec {name}: {e}")));
    }
    let here = std::env::current_dir().map_err(Failure::io("find the current directory"))?;
    let path = normalize(&here.into(), &name.into()).map_err(|e| Failure::Usage(format!("--exec {name}: {e}")))?;
    Ok(Program::Path(PathTemplate::of_file(&path)))
}
