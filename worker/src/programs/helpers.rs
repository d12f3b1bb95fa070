//! Programs of which a part lies in files of their own, and where those files are.
//!
//! git starts itself again by another path: `git commit` runs `/usr/lib/git-core/git maintenance`, which Debian has as a file
//! of its own, elsewhere a link to the same file. Whoever grants `git` means that as well. Nothing is asked of the program
//! for this, since what it says could be anything: the places are known, and count only where the session cannot write.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use callgate_policy::plan::SessionPlan;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};

/// A program, and where its helpers lie: beside the directory that it is in, as `/usr/lib/git-core` is for `/usr/bin/git`.
struct HelperProgram {
    program: &'static str,
    directories: &'static [&'static str],
}

/// `--exec-path` as distributions configure it: Debian, Arch and SUSE below `lib`, Fedora, Alpine and git's own default below
/// `libexec`.
const KNOWN: &[HelperProgram] = &[HelperProgram { program: "git", directories: &["lib/git-core", "libexec/git-core"] }];

/// Who owns what belongs to nobody in this user namespace (user_namespaces(7)): root's files too, and others that no process of
/// the session may change for being their owner.
const NOBODY: u32 = 65534;

impl HelperProgram {
    fn is_name_of(&self, path: &Path) -> bool {
        path.file_name() == Some(OsStr::new(self.program))
    }
}

/// The helpers of one program that are there.
#[derive(Default)]
pub(super) struct Helpers {
    /// The program itself by its other paths: it takes the same arguments.
    pub(super) itself: Vec<PathBuf>,
    /// Programs that it starts for its commands (`git-submodule` for `git submodule`), each file once.
    pub(super) others: Vec<PathBuf>,
}

/// Finds the helpers of the program at this path.
pub(super) fn of(program: &Path, plan: &SessionPlan) -> Helpers {
    let mut helpers = Helpers::default();
    let Some(known) = KNOWN.iter().find(|known| known.is_name_of(program)) else { return helpers };
    let program = real(program).filter(|program| known.is_name_of(program));
    let Some(prefix) = program.as_deref().and_then(Path::parent).and_then(Path::parent) else { return helpers };
    let places = known.directories.iter().map(|directory| prefix.join(directory));
    for place in places.filter(|place| real(place).as_ref() == Some(place) && !is_written(place, plan)) {
        list(&place, known.program, &mut helpers);
    }
    helpers
}

/// Adds what lies in a directory by one of the program's names.
fn list(directory: &Path, program: &str, helpers: &mut Helpers) {
    let Some(fd) = open(directory) else { return };
    let Ok(entries) = Dir::read_from(&fd) else { return };
    let mut seen = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name().to_bytes();
        let Some(rest) = name.strip_prefix(program.as_bytes()) else { continue };
        let stat = rustix::fs::statat(&fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
        let Some(file) = stat.ok().filter(is_program).map(|stat| stat.st_ino) else { continue };
        let path = directory.join(OsStr::from_bytes(name));
        if rest.is_empty() {
            helpers.itself.push(path);
        } else if rest.starts_with(b"-") && !seen.contains(&file) {
            // Where all commands are names of one file, it is listed once.
            seen.push(file);
            helpers.others.push(path);
        }
    }
}

/// Opens a directory of root's.
#[expect(
    clippy::disallowed_methods,
    reason = "a path without links, which leads through nothing that the session writes"
)]
fn open(directory: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::open(directory, flags, Mode::empty()).ok()?;
    rustix::fs::fstat(&fd).is_ok_and(|stat| is_roots(&stat)).then_some(fd)
}

/// True if it is root's, and nobody else may change it. Root sees its own files as they are.
fn is_roots(stat: &Stat) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let shown_as_nobodys = stat.st_uid == NOBODY && ![0, NOBODY].contains(&own);
    (stat.st_uid == 0 || shown_as_nobodys) && stat.st_mode & 0o022 == 0
}

fn is_program(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_mode & 0o111 != 0 && is_roots(stat)
}

/// True if the session may write at, below or above it.
fn is_written(directory: &Path, plan: &SessionPlan) -> bool {
    let mut written = plan.rules().filter(|rule| rule.access.changes()).map(|rule| rule.path.as_path());
    written.any(|path| {
        let path = real(path).unwrap_or_else(|| path.to_owned());
        directory.starts_with(&path) || path.starts_with(directory)
    })
}

/// Path that a path leads to, without links.
#[expect(clippy::disallowed_methods, reason = "only says where to look; what is granted is the file that is then held")]
fn real(path: &Path) -> Option<PathBuf> {
    std::fs::canonicalize(path).ok()
}
