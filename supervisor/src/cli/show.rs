//! From what was typed to what a session is opened for.

use std::path::{Path, PathBuf};

use callgate_policy::effective::Source;
use callgate_policy::manifest::{Format, MAX_BYTES, Manifest};
use callgate_policy::path::normalize;
use callgate_policy::pattern::{HostPattern, PathTemplate};
use callgate_policy::requirement::{FsRequirement, NetRequirement, Program, RequirementSet, ShellRunRequirement};

use super::arguments::Grants;
use super::exit::Failure;
use crate::session::SessionSpec;

/// What the session is for, from the grants that were typed.
pub(super) fn spec(grants: &Grants) -> Result<SessionSpec, Failure> {
    let workspace = match &grants.workspace {
        Some(dir) => dir.clone(),
        None => std::env::current_dir().map_err(Failure::io("find the current directory"))?,
    };
    let mut spec = match &grants.manifest {
        Some(file) => SessionSpec::with_manifest(workspace, manifest(file)?),
        None => SessionSpec::developer(workspace),
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

fn manifest(file: &Path) -> Result<Manifest, Failure> {
    use std::io::Read as _;
    let name = file.display().to_string();
    let mut text = String::new();
    // One byte more than may be: the parser then says that it is too long, and an endless device ends.
    let limit = MAX_BYTES as u64 + 1;
    open_regular(file)?.take(limit).read_to_string(&mut text).map_err(|e| Failure::Data(format!("{name}: {e}")))?;
    let format =
        if file.extension().is_some_and(|extension| extension == "json") { Format::Json } else { Format::Toml };
    Manifest::parse(&text, format, &name).map_err(|e| Failure::Data(e.to_string()))
}

/// Opens without waiting: a FIFO that nobody writes would hold us for ever.
fn open_regular(file: &Path) -> Result<std::fs::File, Failure> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let opened = std::fs::File::options()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(file)
        .map_err(Failure::named(format!("open {}", file.display())))?;
    let metadata = opened.metadata().map_err(Failure::io(format!("look at {}", file.display())))?;
    if metadata.is_file() {
        Ok(opened)
    } else {
        Err(Failure::Data(format!("{} is not a regular file", file.display())))
    }
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
