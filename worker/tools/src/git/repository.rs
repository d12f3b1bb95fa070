//! Opening a repository that somebody else configured.
//!
//! Invariant: no setting counts that names a program, another working tree or a file elsewhere. `gix` opens the repository with
//! reduced trust, so it ignores such settings of the repository's own. The settings of the user and of the system, variables of
//! the environment and includes are not read at all. What counts are facts: the format of objects, whether modes and links matter,
//! how lines end, and which branch follows which.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use callgate_policy::path::HostPath;
use gix::bstr::{BString, ByteSlice as _};

use super::super::{FileKind, LinkTreatment, ToolContext, ToolError};
use super::{GitError, failed};
use crate::FileAct;

/// The largest file of settings or patterns that is read, bytes.
const SETTINGS_MAX: u64 = 16 * 1024 * 1024;
/// The largest index, and list of references, that is read, bytes.
const INDEX_MAX: u64 = 1024 * 1024 * 1024;
/// The longest list of other directories with objects, bytes.
const ALTERNATES_SIZE_MAX: u64 = 64 * 1024;
/// How many directories with objects a repository may have besides its own.
const ALTERNATES_MAX: usize = 64;
/// How many of its directories may be links to others.
const LINKS_MAX: usize = 64;
/// How many names are looked at before anything is read.
const NAMES_MAX: usize = 4_000_000;

/// A repository, and the part of it that a call is about.
pub(super) struct Repository {
    pub(super) gix: gix::Repository,
    /// The top of its working tree.
    pub(super) top: PathBuf,
    /// Part that the call is about, relative to the top; empty for all of it.
    pub(super) part: PathBuf,
}

impl Repository {
    /// Opens the repository that the call's path lies in. It is looked for upwards, as far as the second path of the call.
    ///
    /// # Errors
    /// If there is none, or it is not one that can be read.
    pub(super) fn of(ctx: &ToolContext) -> Result<Self, ToolError> {
        let (top, part) = found(ctx)?;
        require_patterns(&top)?;
        let gix = opened(ctx, &top.join(".git"))?;
        match gix.workdir() {
            Some(worktree) if worktree == top => Ok(Self { gix, top, part }),
            Some(_) | None => Err(failed("open the repository", "it says that its working tree is elsewhere")),
        }
    }

    /// The pattern that stands for the part of the tree that the call is about.
    pub(super) fn patterns(&self) -> Vec<BString> {
        if self.part.as_os_str().is_empty() {
            return Vec::new();
        }
        // Neither relative to where a worker happens to be, nor a pattern.
        let mut pattern = BString::from(":(top,literal)");
        pattern.extend_from_slice(self.part.as_os_str().as_encoded_bytes());
        vec![pattern]
    }

    /// A path of the repository as one of the host.
    pub(super) fn place(&self, path: &[u8]) -> PathBuf {
        self.top.join(OsStr::from_bytes(path))
    }
}

/// Opens what `.git` is or names, if all of it may be read.
fn opened(ctx: &ToolContext, at: &Path) -> Result<gix::Repository, ToolError> {
    let directory = git_directory(at)?;
    let common = common_directory(&directory)?;
    require_granted(ctx, at, &directory)?;
    require_readable(ctx, &directory)?;
    if common != directory {
        require_granted(ctx, at, &common)?;
        require_readable(ctx, &common)?;
    }
    // The library reads these as soon as it opens the repository.
    require_alternates(ctx, &common.join("objects"))?;
    // Whoever owns the files: ownership says nothing of who wrote them.
    let options = gix::open::Options::isolated().with(gix::sec::Trust::Reduced).open_path_as_is(true);
    let gix = options.open(at).map_err(|e| failed("open the repository", e))?.to_thread_local();
    let real = |path: &Path| fs::canonicalize(path).map_err(|e| failed("open the repository", e));
    if real(gix.common_dir())? != real(&common)? || real(gix.git_dir())? != real(&directory)? {
        return Err(failed("open the repository", "it says in two ways where it is"));
    }
    Ok(gix)
}

/// The top of the working tree, and where the call's path lies in it.
fn found(ctx: &ToolContext) -> Result<(PathBuf, PathBuf), ToolError> {
    let path = ctx.path.as_path();
    let most = ctx.paths.get(1).unwrap_or(&ctx.path).as_path();
    for directory in path.ancestors().take_while(|directory| directory.starts_with(most)) {
        let at = directory.join(".git");
        match rustix::fs::lstat(&at) {
            Ok(_) => {
                let part = path.strip_prefix(directory).unwrap_or(Path::new(""));
                return Ok((directory.to_owned(), part.to_owned()));
            }
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => {}
            Err(e) => return Err(ToolError::File { act: FileAct::Open, path: at.into(), source: e.into() }),
        }
    }
    Err(GitError::NoRepository { path: ctx.path.clone() }.into())
}

/// The directory that `.git` is, or that it names as a file.
fn git_directory(at: &Path) -> Result<PathBuf, ToolError> {
    match kind_of(at)? {
        PathKind::Directory => Ok(at.to_owned()),
        PathKind::File(size) if size <= 4096 => {
            let text =
                fs::read(at).map_err(|source| ToolError::File { act: FileAct::Open, path: at.into(), source })?;
            let named = text.strip_prefix(b"gitdir:").map(|rest| rest.trim());
            let named =
                named.ok_or_else(|| failed("open the repository", "`.git` is a file that names no directory"))?;
            let above = at.parent().unwrap_or(Path::new("/"));
            Ok(above.join(OsStr::from_bytes(named)))
        }
        PathKind::File(_) => Err(failed("open the repository", "`.git` is a long file")),
        PathKind::Other(what) => Err(ToolError::NotRegular { path: at.into(), what }),
    }
}

/// The directory with the objects and references, which another working tree shares (gitrepository-layout(5)).
fn common_directory(directory: &Path) -> Result<PathBuf, ToolError> {
    let at = directory.join("commondir");
    match kind_of(&at) {
        Ok(PathKind::File(size)) if size <= 4096 => {
            let text =
                fs::read(&at).map_err(|source| ToolError::File { act: FileAct::Open, path: at.into(), source })?;
            Ok(directory.join(OsStr::from_bytes(text.trim_end())))
        }
        Ok(PathKind::File(_)) => Err(failed("open the repository", "`commondir` is a long file")),
        Ok(PathKind::Directory) => Err(failed("open the repository", "`commondir` is a directory")),
        Ok(PathKind::Other(what)) => Err(ToolError::NotRegular { path: at.into(), what }),
        Err(ToolError::File { act: FileAct::Open, source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Ok(directory.to_owned())
        }
        Err(error) => Err(error),
    }
}

/// Repositories take objects from other directories, which those name in turn: each of them has to be granted as its own are.
fn require_alternates(ctx: &ToolContext, objects: &Path) -> Result<(), ToolError> {
    let mut seen = Vec::new();
    let mut left = vec![objects.to_owned()];
    while let Some(at) = left.pop() {
        let list = at.join("info/alternates");
        match kind_of(&list) {
            Ok(PathKind::File(size)) if size <= ALTERNATES_SIZE_MAX => {}
            Ok(PathKind::File(_)) => return Err(failed("open the repository", "`info/alternates` is a long file")),
            Ok(PathKind::Directory) => continue,
            Ok(PathKind::Other(what)) => return Err(ToolError::NotRegular { path: list.into(), what }),
            // What is not there, or not visible, names nothing to the library either.
            Err(_unreadable) => continue,
        }
        let text =
            fs::read(&list).map_err(|source| ToolError::File { act: FileAct::Open, path: list.into(), source })?;
        let named = gix::odb::alternate::parse(&text).map_err(|e| failed("open the repository", e))?;
        // As the library has them: relative to the objects of the repository, whoever names them.
        for other in named.into_iter().map(|other| objects.join(other)) {
            let real = match fs::canonicalize(&other) {
                Ok(real) => real,
                // It has nothing, then. Whoever sees no such directory is not told which one is there.
                Err(_unreadable) => continue,
            };
            if seen.contains(&real) {
                continue;
            }
            if seen.len() == ALTERNATES_MAX {
                return Err(failed("open the repository", format!("it has more than {ALTERNATES_MAX} alternates")));
            }
            if !ctx.may_tell_of(&real.join("pack/one")) {
                return Err(not_granted(real));
            }
            require_readable(ctx, &real)?;
            seen.push(real);
            left.push(other);
        }
    }
    Ok(())
}

/// The error of what the kernel may show, and nobody has granted.
fn not_granted(path: PathBuf) -> ToolError {
    ToolError::File {
        act: FileAct::Open,
        path: HostPath::from(path),
        source: std::io::Error::from_raw_os_error(libc::EACCES),
    }
}

/// Rules that have judged names hold for the directory with the objects as well: who may not read that sees nothing of them.
fn require_granted(ctx: &ToolContext, at: &Path, directory: &Path) -> Result<(), ToolError> {
    let real = fs::canonicalize(directory).map_err(|source| ToolError::File {
        act: FileAct::Open,
        path: directory.to_owned().into(),
        source,
    })?;
    if ctx.links == LinkTreatment::Refused && at == directory && real != at {
        return Err(ToolError::ByLink { path: at.into(), real: real.into() });
    }
    if ctx.may_tell_of(&real.join("HEAD")) && ctx.may_tell_of(&real.join("objects/pack/one")) {
        return Ok(());
    }
    Err(not_granted(real))
}

/// Refuses what would hold the reader. What the library opens as it is must not keep it waiting, and not be without
/// end: it opens files as git does. Nor may a link in it lead to what is not granted.
fn require_readable(ctx: &ToolContext, directory: &Path) -> Result<(), ToolError> {
    // Of other working trees and of submodules, and what nobody here reads.
    let skipped = ["modules", "worktrees", "hooks", "lfs", "logs"];
    let mut seen = 0;
    let mut linked = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(at) = left.pop() {
        let entries = fs::read_dir(&at).map_err(|source| ToolError::File {
            act: FileAct::Open,
            path: at.clone().into(),
            source,
        })?;
        for entry in entries.filter_map(Result::ok) {
            seen += 1;
            let Ok(kind) = entry.file_type() else { continue };
            let path = entry.path();
            let is_top = at == directory;
            if is_top && skipped.iter().any(|name| entry.file_name() == *name) {
                continue;
            }
            if kind.is_symlink()
                && let Ok(real) = fs::canonicalize(&path)
            {
                let is_directory = real.is_dir();
                // Of a directory, what is in it.
                if !ctx.may_tell_of(&if is_directory { real.join("one") } else { real.clone() }) {
                    return Err(not_granted(path));
                }
                if is_directory && !linked.contains(&real) {
                    if linked.len() == LINKS_MAX {
                        let why = format!("it has more than {LINKS_MAX} links to directories");
                        return Err(failed("open the repository", why));
                    }
                    linked.push(real.clone());
                    left.push(real);
                }
            }
            if kind.is_dir() && seen < NAMES_MAX {
                left.push(path);
            } else if !kind.is_file() || is_top {
                require_bounded(&path, if is_setting(&path) { SETTINGS_MAX } else { INDEX_MAX })?;
            }
        }
    }
    Ok(())
}

fn is_setting(path: &Path) -> bool {
    let name = path.file_name().map(OsStr::as_encoded_bytes).unwrap_or_default();
    !matches!(name, b"index" | b"packed-refs") && !name.starts_with(b"sharedindex.")
}

/// Refuses what would hold the reader in what the working tree says of patterns and attributes.
fn require_patterns(top: &Path) -> Result<(), ToolError> {
    let mut seen = 0;
    let mut left = vec![top.to_owned()];
    while let Some(at) = left.pop() {
        // What cannot be read has no patterns.
        let Ok(entries) = fs::read_dir(&at) else { continue };
        for entry in entries.filter_map(Result::ok) {
            seen += 1;
            let name = entry.file_name();
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_directory && name != ".git" && seen < NAMES_MAX {
                left.push(entry.path());
            } else if name == ".gitignore" || name == ".gitattributes" || name == ".gitmodules" {
                require_bounded(&entry.path(), SETTINGS_MAX)?;
            }
        }
    }
    Ok(())
}

/// Kind of what a path leads to.
enum PathKind {
    Directory,
    File(u64),
    Other(FileKind),
}

fn kind_of(path: &Path) -> Result<PathKind, ToolError> {
    let about =
        fs::metadata(path).map_err(|source| ToolError::File { act: FileAct::Open, path: path.into(), source })?;
    Ok(match FileKind::of_other(about.mode()) {
        None => PathKind::File(about.len()),
        Some(FileKind::Directory) => PathKind::Directory,
        Some(what) => PathKind::Other(what),
    })
}

fn require_bounded(path: &Path, most: u64) -> Result<(), ToolError> {
    match kind_of(path) {
        // An opening of a socket fails at once, and git's own monitor has one here.
        Ok(PathKind::Directory | PathKind::Other(FileKind::Socket)) => Ok(()),
        Ok(PathKind::File(size)) if size <= most => Ok(()),
        Ok(PathKind::File(size)) => {
            let name = HostPath::from(path);
            Err(failed("open the repository", format!("{name} has {size} bytes, more than the {most} that are read")))
        }
        Ok(PathKind::Other(what)) => Err(ToolError::NotRegular { path: path.into(), what }),
        // A link that leads nowhere, or where nothing was granted: opening it fails too.
        Err(_unreadable) => Ok(()),
    }
}

/// The commit that a submodule is at, if it is there and can be read.
pub(super) fn head_of(ctx: &ToolContext, top: &Path) -> Option<gix::ObjectId> {
    opened(ctx, &top.join(".git")).ok()?.head_id().ok().map(gix::Id::detach)
}
