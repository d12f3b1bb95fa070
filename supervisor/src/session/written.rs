//! Files of tools and programs that calls of a session could rewrite, or whose names they could lead elsewhere.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callgate_policy::effective::{EffectiveSet, PathRegion};
use callgate_policy::path::HostPath;
use callgate_policy::pattern::ProgramPattern;
use callgate_policy::plan::exec::{Header, started_by_env};
use callgate_policy::plan::protect::{Match, names};
use callgate_worker::asked;
use callgate_worker::mountinfo::{self, Mount};
use callgate_worker::way::{self, FollowedPath};

use crate::host;
use crate::mounts::MountTable;
use crate::place;
use crate::registry::{Executor, ProgramTool, Tool};

/// Finds a tool's program, if it is named by its name, and has that started and nothing that takes its place later; and looks where
/// the other names lead that it requires. What calls may write must not be among them.
pub(super) fn settle(
    tool: &mut Tool,
    (effective, own): (&EffectiveSet, &EffectiveSet),
    path: &[HostPath],
    mounts: &MountTable,
) -> Result<(), String> {
    let required = own.rights().shell().iter().filter_map(|(region, _)| match region.programs() {
        ProgramPattern::One(program) => Some(program),
        ProgramPattern::OneBelow { path, .. } => Some(path),
        ProgramPattern::Any | ProgramPattern::Below(_) => None,
    });
    let Executor::Program(ProgramTool::Declared(declared)) = &mut tool.executor else { return Ok(()) };
    let writes = Writes::of(effective, mounts)?;
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
pub(super) fn rewritten(tool: &Tool, effective: &EffectiveSet, mounts: &MountTable) -> Option<String> {
    let declared = tool.executor.declared()?;
    let writes = match Writes::of(effective, mounts) {
        Ok(writes) => writes,
        Err(why) => return Some(why),
    };
    // The program may be a link. What it leads to must be there, or calls could put something there later.
    let program = declared.program().and_then(|program| writes.way(program));
    program.or_else(|| declared.paths().find_map(|file| writes.file(&file)))
}

/// Reason why calls of a session with these rights would choose what a program is: by its name, by what is at its path,
/// or by what it is run by.
pub(super) fn chosen_by_calls(
    program: &HostPath,
    effective: &EffectiveSet,
    path: &[HostPath],
    mounts: &MountTable,
) -> Option<String> {
    let judged = || {
        let writes = Writes::of(effective, mounts)?;
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
pub(super) fn replaced_by_calls(file: &HostPath, effective: &EffectiveSet, mounts: &MountTable) -> Option<String> {
    match Writes::of(effective, mounts) {
        Ok(writes) => writes.way(file),
        Err(why) => Some(why),
    }
}

/// Places that a session may write, and what an earlier one could that was asked for the same and bounded less.
pub(super) struct Writes<'a> {
    effective: &'a EffectiveSet,
    asked: Vec<PathRegion>,
    user: u32,
    mounts: &'a [Mount],
}

impl<'a> Writes<'a> {
    pub(super) fn of(effective: &'a EffectiveSet, mounts: &'a MountTable) -> Result<Self, String> {
        let mounts = mounts
            .known()
            .map_err(|error| format!("the mounts by which calls may reach its files cannot be read: {error}"))?;
        Ok(Self { effective, asked: effective.asked_regions(), user: place::owner(None).uid, mounts })
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
        let way = FollowedPath::follow(path.as_path());
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
    pub(super) fn region(&self, file: &HostPath) -> Option<&PathRegion> {
        // Where it lies, and not where it leads: a link can be replaced as well.
        let (parent, name) = (file.as_path().parent(), file.as_path().file_name());
        let real = parent.and_then(real_path).zip(name).map(|(parent, name)| parent.join(name));
        let others = real.iter().flat_map(|real| mountinfo::other_names(self.mounts, real));
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

/// Reason why a program is a file that could be written by another name of it: a hard link lies anywhere. What comes
/// with the system is root's, and nobody else writes it.
fn has_other_names(way: &FollowedPath, real: &Path) -> Option<&'static str> {
    let stat = way.stat();
    let is_the_systems = stat.st_uid == 0 && way::is_the_systems(real);
    let has_others = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() && stat.st_nlink > 1;
    (has_others && !is_the_systems)
        .then_some("has more than one name (hard links), by which calls could write it; give it a copy")
}

/// True if a name below a granted directory is protected there.
fn is_kept(root: &HostPath, below: &Path) -> bool {
    let found = names().find(names().root(root.as_bytes()), below.as_os_str().as_encoded_bytes());
    matches!(found, Match::Kept { .. })
}

/// Where a path leads now, without links.
pub(super) fn real_path(path: &Path) -> Option<PathBuf> {
    std::fs::canonicalize(path).ok()
}
