//! `write`: create or overwrite a file (S0-11, C-27), all of it or nothing.
//!
//! The content goes to a temporary file in the same directory, which then takes the name. Whoever opens the file sees
//! the old content or the new, never a mixture, and a full disk leaves the old content in place (X0-3).
//!
//! What follows from replacing the file rather than writing into it:
//! - A file with several hard links loses this one: the other names keep the old content. Writing in place would keep
//!   the link and give up atomicity; editors and package managers choose the same.
//! - The mode is kept, without set-user-ID and set-group-ID, which write(2) would clear too. The owner is the caller, and
//!   ACLs and extended attributes are not carried over.
//! - Protection of the *file* still counts: the kernel is asked to open it for writing first, so that a read-only mode,
//!   Landlock or an immutable flag refuse here as they would refuse writing in place.
//! - A symbolic link stays a link; the file that it leads to is replaced, or made where the link dangles.
//! - The directory must allow making, renaming and removing files. A file that is itself a mount point fails with EBUSY.
//!
//! Nothing is synced. The promise is towards other processes, `kill` and a full disk, not towards a power cut. For 4 KiB
//! on ext4, fdatasync(2) before the rename took a median of 0.56 ms in place of 0.21 ms, on a virtual disk that
//! acknowledges a flush at once; one that has to reach its medium takes milliseconds. ext4 (`auto_da_alloc`) and btrfs
//! start writing a file by themselves when it replaces another, which is the usual case. close(2) is checked, because
//! NFS and quotas may fail only there.
//!
//! Invariant: each directory is opened once, and all that follows goes through that fd. Exchanging a parent for a
//! symbolic link meanwhile leads nowhere new.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use callgate_policy::failure::ErrorCode;
use callgate_policy::path::HostPath;
use callgate_worker::toolset::TEMPORARY_PREFIX;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use serde_json::{Map, Value};

use super::message::shorten;
use super::{
    Contract, FileKind, FileNeed, LinkTreatment, Needs, SyscallNeed, ToolContext, ToolError, ToolResult, name_path,
    results,
};
use crate::{FileAct, ToolReason};

/// The arguments of `write`.
pub const WRITE_SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "path": {
      "type": ["string", "object"], "minLength": 1,
      "properties": { "b64": { "type": "string", "minLength": 1 } }, "required": ["b64"], "additionalProperties": false,
      "description": "The file to create or overwrite, absolute or relative to the workspace. Missing parent directories are made. A path that is not UTF-8 is `{\"b64\": \"…\"}`, with the `path_b64` of a result."
    },
    "content": {
      "type": "string",
      "description": "The complete new content of the file, stored as UTF-8 exactly as given: end the last line with a newline yourself."
    }
  },
  "required": ["path", "content"],
  "additionalProperties": false
}"#;

/// Contract of `write`.
pub const CONTRACT: Contract = Contract {
    name: "write",
    requires: &["fs.write"],
    description: "Create a file, or overwrite it with `content` as a whole; to change a part of a file, use edit. \
        Missing parent directories are made. The file is replaced at once: it holds all of the new content or, if the \
        call fails, the old. Its mode is kept, and a symbolic link is written through. Returns the number of bytes and \
        whether the file was created.",
    schema: WRITE_SCHEMA,
    output: results::WRITE,
    kind: SyscallNeed::Plain,
    run,
    files: Some(FileNeed::locked(Needs::Write)),
};

/// The implementation of `write` where it makes new files alone (S4-14).
pub const CREATE: &str = "create";

/// Contract of `write` where it only creates. Its arguments are the same.
pub const CREATE_CONTRACT: Contract = Contract {
    name: CREATE,
    run: create,
    description: "Create a new file that holds `content`. Nothing is overwritten: a name that is taken already, by \
        whatever it is, is an error, and stays as it was. Missing parent directories are made; a path through a \
        symbolic link is an error. The file is there at once, with all of its content. Returns the number of bytes.",
    ..CONTRACT
};

/// As many as the kernel follows (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// Reason why a file is not written. It is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// Only new files may be made, and the name is taken.
    #[error("{path} is there already, and only new files may be made")]
    Exists {
        /// The file.
        path: HostPath,
    },
    /// Symbolic links led the kernel and this code to different files: somebody is changing them.
    #[error("the symbolic links of {path} changed while they were followed")]
    LinkChanged {
        /// The file.
        path: HostPath,
    },
    /// Somebody else wrote to the file meanwhile. It is as they left it.
    #[error("{path} was changed by somebody else meanwhile")]
    Changed {
        /// The file.
        path: HostPath,
    },
}

impl ToolReason for WriteError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Exists { .. } => ErrorCode::Forbidden,
            Self::LinkChanged { .. } | Self::Changed { .. } => ErrorCode::ResourceBusy,
        }
    }

    fn next_step(&self) -> Option<&'static str> {
        Some(match self {
            Self::Exists { .. } => "choose a name that is free",
            Self::LinkChanged { .. } => "try again, or name the file that the link leads to",
            Self::Changed { .. } => "read it again",
        })
    }
}

/// Writes `args["content"]` to `ctx.path`.
///
/// # Errors
///
/// The operation that failed; the file is as it was. Parent directories that were made stay.
pub fn run(args: &Value, ctx: &ToolContext) -> Result<ToolResult, ToolError> {
    let content = content(args)?;
    let target = WriteTarget::find(&ctx.path, MissingPath::Made, ctx.links)?;
    target.publish(&[content], None)?;
    Ok(written(&ctx.path, content, target.replaces.is_none()))
}

/// Makes `ctx.path`, a file that is not there, with `args["content"]` in it.
///
/// Which of several that make the same file at once is the first, the kernel decides: all the others fail, and what was
/// there is untouched. No symbolic link is followed: where one leads to, nobody has looked at.
///
/// # Errors
///
/// [`WriteError::Exists`] if the name is taken; else the operation that failed. Parent directories that were made stay.
pub fn create(args: &Value, ctx: &ToolContext) -> Result<ToolResult, ToolError> {
    let content = content(args)?;
    let target = WriteTarget::of_new(&ctx.path)?;
    target.publish(&[content], None)?;
    Ok(written(&ctx.path, content, true))
}

fn content(args: &Value) -> Result<&[u8], ToolError> {
    match args.get("content") {
        Some(Value::String(content)) => Ok(content.as_bytes()),
        other => {
            let found = other.map_or_else(|| "missing".to_owned(), shorten);
            Err(ToolError::Argument { name: "content", wants: "a string", found })
        }
    }
}

fn written(path: &HostPath, content: &[u8], created: bool) -> ToolResult {
    let mut data = Map::new();
    name_path(&mut data, path);
    data.insert("bytes".to_owned(), content.len().into());
    data.insert("created".to_owned(), created.into());
    ToolResult::of(Value::Object(data), false)
}

/// Treatment of a path where there is nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MissingPath {
    /// The file is made, and the directories above it.
    Made,
    /// It has to be there.
    IsAnError,
}

/// Where the content goes: a name in an open directory.
pub(super) struct WriteTarget<'a> {
    /// As the plan granted it, for messages.
    pub(super) path: &'a HostPath,
    pub(super) directory: OwnedFd,
    pub(super) name: OsString,
    /// The mode of the file that is there now; `None` when there is none.
    pub(super) replaces: Option<Mode>,
    /// Treatment of a file that is there by then.
    taken: TakenName,
}

/// Treatment of a file that has the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TakenName {
    /// It is replaced.
    Replaced,
    /// It stays.
    IsAnError,
}

impl<'a> WriteTarget<'a> {
    /// A name that is not taken, in a directory to which no symbolic link leads. That it is not, is said for good only when
    /// the file takes it.
    pub(super) fn of_new(path: &'a HostPath) -> Result<Self, ToolError> {
        let (parent, name) = split(path.as_bytes()).ok_or_else(|| ToolError::NoFileName { path: path.clone() })?;
        let directory = open_parent_without_links(parent, MissingPath::Made).map_err(|e| ToolError::File {
            act: FileAct::Parents,
            path: path.clone(),
            source: e.into(),
        })?;
        match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => return Err(WriteError::Exists { path: path.clone() }.into()),
            Err(Errno::NOENT) => {}
            Err(e) => return Err(ToolError::File { act: FileAct::Open, path: path.clone(), source: e.into() }),
        }
        Ok(Self { path, directory, name: name.to_owned(), replaces: None, taken: TakenName::IsAnError })
    }

    /// Follows the symbolic links of the last name to where the file is or will be.
    ///
    /// They are read one by one, because the directory of the file is needed and the kernel only gives the file. But the
    /// kernel decides whether each may be followed (it refuses a stranger's link in a sticky directory, proc(5)
    /// `protected_symlinks`), and where an existing file is.
    pub(super) fn find(path: &'a HostPath, missing: MissingPath, links: LinkTreatment) -> Result<Self, ToolError> {
        let open_failed = |e: Errno| ToolError::File { act: FileAct::Open, path: path.clone(), source: e.into() };
        let (parent, name) = split(path.as_bytes()).ok_or_else(|| ToolError::NoFileName { path: path.clone() })?;
        let parent_failed = |e: Errno| match missing {
            MissingPath::Made => ToolError::File { act: FileAct::Parents, path: path.clone(), source: e.into() },
            MissingPath::IsAnError => open_failed(e),
        };
        let opened = match links {
            LinkTreatment::Followed => open_parent(CWD, parent, missing),
            LinkTreatment::Refused => open_parent_without_links(parent, missing),
        };
        let mut directory = opened.map_err(parent_failed)?;
        let mut name = name.to_owned();
        let mut followed = None;

        for _ in 0..=MOST_LINKS {
            let there = match rustix::fs::statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => Some(stat),
                Err(Errno::NOENT) => None,
                Err(e) => return Err(open_failed(e)),
            };
            match there.map(|stat| (stat, FileKind::of_other(stat.st_mode))) {
                Some((_, Some(FileKind::Symlink))) if links == LinkTreatment::Followed => {
                    let end = match rustix::fs::statat(&directory, &name, AtFlags::empty()) {
                        Ok(stat) => Some(stat),
                        Err(Errno::NOENT) => None,
                        Err(e) => return Err(open_failed(e)),
                    };
                    if let Some(what) = end.and_then(|stat| FileKind::of_other(stat.st_mode)) {
                        return Err(ToolError::NotRegular { path: path.clone(), what });
                    }
                    followed = Some(end.as_ref().map(identity));
                    let link = rustix::fs::readlinkat(&directory, &name, Vec::new()).map_err(open_failed)?;
                    let (parent, next) =
                        split(link.as_bytes()).ok_or_else(|| ToolError::NoFileName { path: path.clone() })?;
                    directory = open_parent(directory.as_fd(), parent, missing).map_err(parent_failed)?;
                    name = next.to_owned();
                }
                Some((_, Some(what))) => return Err(ToolError::NotRegular { path: path.clone(), what }),
                end => {
                    let end = end.map(|(stat, _)| stat);
                    if followed.is_some_and(|followed| followed != end.as_ref().map(identity)) {
                        return Err(WriteError::LinkChanged { path: path.clone() }.into());
                    }
                    let replaces = match end {
                        None if missing == MissingPath::IsAnError => return Err(open_failed(Errno::NOENT)),
                        Some(_) => Some(mode_if_writable(directory.as_fd(), &name, path)?),
                        None => None,
                    };
                    return Ok(Self { path, directory, name, replaces, taken: TakenName::Replaced });
                }
            }
        }
        Err(open_failed(Errno::LOOP))
    }

    /// Puts `content`, these parts one after the other, in the file's place; if the file must still be what it `was`, only
    /// then.
    pub(super) fn publish(&self, content: &[&[u8]], was: Option<&Stat>) -> Result<(), ToolError> {
        let staged = self.stage(content, self.making())?;
        if let Some(was) = was {
            self.require_unchanged(was)?;
        }
        staged.publish()
    }

    /// Puts what `fill` writes in the file's place. If it fails, the file is as it was.
    pub(super) fn publish_by(&self, fill: impl FnOnce(&mut File) -> Result<(), ToolError>) -> Result<(), ToolError> {
        self.stage_by(fill, self.making())?.publish()
    }

    fn making(&self) -> Making {
        self.replaces.map_or(Making::NEW, Making::Exactly)
    }

    /// Stores `content` beside the file, to be put in its place.
    pub(super) fn stage(&self, content: &[&[u8]], making: Making) -> Result<StagedContent<'_>, ToolError> {
        let write = |file: &mut File| {
            let failed = |source| ToolError::File { act: FileAct::Write, path: self.path.clone(), source };
            content.iter().try_for_each(|part| file.write_all(part)).map_err(failed)
        };
        self.stage_by(write, making)
    }

    /// Stages what `fill` writes.
    ///
    /// Nobody may read the new content who could not read the old. A new file gets what open(2) gives one, so that
    /// the kernel applies the umask or the directory's default ACL. One that replaces another is made with its mode:
    /// the temporary name is not the granted one, so that the broker would refuse to change it afterwards.
    fn stage_by(
        &self,
        fill: impl FnOnce(&mut File) -> Result<(), ToolError>,
        making: Making,
    ) -> Result<StagedContent<'_>, ToolError> {
        let path = self.path;
        let (mode, exactly) = match making {
            Making::Exactly(mode) => (mode, Some(mode)),
            Making::Masked(mode) => (mode, None),
        };
        let before = exactly.map(|_| rustix::process::umask(Mode::empty()));
        let created = TemporaryFile::create(self.directory.as_fd(), mode);
        if let Some(before) = before {
            rustix::process::umask(before);
        }
        let (temporary, mut file) =
            created.map_err(|source| ToolError::File { act: FileAct::Temporary, path: path.clone(), source })?;
        fill(&mut file)?;
        let made = rustix::fs::fstat(&file).map_err(|e| ToolError::File {
            act: FileAct::Mode,
            path: path.clone(),
            source: e.into(),
        })?;
        let differs = |mode: &Mode| *mode != Mode::from_raw_mode(made.st_mode & 0o7777);
        // A default ACL of the directory may have taken bits away.
        if let Some(mode) = exactly.filter(differs) {
            rustix::fs::fchmod(&file, mode).map_err(|e| ToolError::File {
                act: FileAct::Mode,
                path: path.clone(),
                source: e.into(),
            })?;
        }
        nix::unistd::close(file).map_err(|e| ToolError::File {
            act: FileAct::Write,
            path: path.clone(),
            source: e.into(),
        })?;
        Ok(StagedContent { target: self, temporary })
    }

    /// No call can say "rename if it is this one still"; what other calls do is in turn, and this notices the rest.
    pub(super) fn require_unchanged(&self, was: &Stat) -> Result<(), ToolError> {
        let is = rustix::fs::statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        let unchanged = is.is_ok_and(|is| version(&is) == version(was));
        if unchanged { Ok(()) } else { Err(WriteError::Changed { path: self.path.clone() }.into()) }
    }

    fn refused(&self, e: Errno) -> ToolError {
        let path = self.path.clone();
        match (self.taken, e) {
            (TakenName::IsAnError, Errno::EXIST) => WriteError::Exists { path }.into(),
            (TakenName::IsAnError | TakenName::Replaced, _) => {
                ToolError::File { act: FileAct::Publish, path, source: e.into() }
            }
        }
    }

    /// Removes the file.
    pub(super) fn remove(&self) -> Result<(), ToolError> {
        rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty()).map_err(|e| ToolError::File {
            act: FileAct::Remove,
            path: self.path.clone(),
            source: e.into(),
        })
    }

    /// This file for a name that nothing may have by then.
    pub(super) fn of_a_new_file(self) -> Self {
        Self { taken: TakenName::IsAnError, ..self }
    }

    /// True if two names are one.
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        let directory = |target: &Self| rustix::fs::fstat(&target.directory).map(|stat| identity(&stat));
        self.name == other.name && directory(self).is_ok_and(|one| directory(other) == Ok(one))
    }
}

/// The mode of a file that is made.
#[derive(Debug, Clone, Copy)]
pub(super) enum Making {
    /// This one, which another file has.
    Exactly(Mode),
    /// Mode of which the kernel's mask leaves a part.
    Masked(Mode),
}

impl Making {
    pub(super) const NEW: Self = Self::Masked(Mode::from_raw_mode(0o666));
    pub(super) const NEW_PROGRAM: Self = Self::Masked(Mode::from_raw_mode(0o777));
}

/// Content that is stored beside its file. Dropped, it is removed.
pub(super) struct StagedContent<'t> {
    target: &'t WriteTarget<'t>,
    temporary: TemporaryFile<'t>,
}

impl StagedContent<'_> {
    /// Where it is until then.
    pub(super) fn name(&self) -> Option<&OsStr> {
        self.temporary.name.as_deref()
    }

    /// True if the file must not be there.
    pub(super) fn is_new(&self) -> bool {
        self.target.taken == TakenName::IsAnError
    }

    /// The broker has put it in the file's place.
    pub(super) fn was_published(mut self) {
        self.temporary.name = None;
    }

    /// Reason why it could not be put there.
    pub(super) fn refused(&self, e: Errno) -> ToolError {
        self.target.refused(e)
    }

    /// Puts it in the file's place.
    pub(super) fn publish(self) -> Result<(), ToolError> {
        let Self { target, temporary } = self;
        temporary.rename(&target.name, target.taken).map_err(|e| target.refused(e))
    }
}

/// The mode to keep, if the kernel lets this process write to the file as it stands.
fn mode_if_writable(directory: BorrowedFd<'_>, name: &OsStr, path: &HostPath) -> Result<Mode, ToolError> {
    let failed = |e: Errno| ToolError::File { act: FileAct::Open, path: path.clone(), source: e.into() };
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let stat = match rustix::io::retry_on_intr(|| rustix::fs::openat(directory, name, flags, Mode::empty())) {
        Ok(file) => rustix::fs::fstat(file),
        // A running program cannot be written to, and can be replaced.
        Err(Errno::TXTBSY) => rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW),
        Err(e) => Err(e),
    };
    let stat = stat.map_err(failed)?;
    match FileKind::of_other(stat.st_mode) {
        None => Ok(Mode::from_raw_mode(stat.st_mode) & Mode::from_raw_mode(0o1777)),
        Some(what) => Err(ToolError::NotRegular { path: path.clone(), what }),
    }
}

/// A file that is removed unless it was renamed.
struct TemporaryFile<'d> {
    directory: BorrowedFd<'d>,
    name: Option<OsString>,
}

impl<'d> TemporaryFile<'d> {
    /// Makes an empty file whose name nobody can guess, so that nobody can wait for it with a link or an open fd.
    ///
    /// The random number is the kernel's, afresh: a generator in this process would be a copy of the zygote's, the same
    /// in each worker.
    fn create(directory: BorrowedFd<'d>, mode: Mode) -> io::Result<(Self, File)> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut random = [0; 16];
        getrandom(&mut random, GetRandomFlags::empty())?; // up to 256 bytes are never short, getrandom(2)
        let name = OsString::from(format!("{TEMPORARY_PREFIX}{:032x}", u128::from_ne_bytes(random)));
        let file = rustix::io::retry_on_intr(|| rustix::fs::openat(directory, &name, flags, mode))?;
        Ok((Self { directory, name: Some(name) }, File::from(file)))
    }

    fn rename(mut self, to: &OsStr, taken: TakenName) -> Result<(), Errno> {
        if let Some(name) = &self.name {
            match taken {
                TakenName::Replaced => rustix::fs::renameat(self.directory, name, self.directory, to)?,
                // A file system that cannot say "if it is not there" says EINVAL, and then nothing is made (renameat2(2)).
                TakenName::IsAnError => {
                    let flags = RenameFlags::NOREPLACE;
                    rustix::fs::renameat_with(self.directory, name, self.directory, to, flags)?;
                }
            }
            self.name = None;
        }
        Ok(())
    }
}

impl Drop for TemporaryFile<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // The error that led here is the one to report; a second has nowhere to go.
            rustix::fs::unlinkat(self.directory, name, AtFlags::empty()).unwrap_or(());
        }
    }
}

/// The directory and the name in it, by bytes: `Path` would take `a/` and `a/.` for `a`.
pub(super) fn split(path: &[u8]) -> Option<(&Path, &OsStr)> {
    let at = path.iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
    let (parent, name) = path.split_at(at);
    let parent = if parent.is_empty() { b"." } else { parent };
    (!matches!(name, b"" | b"." | b"..")).then(|| (Path::new(OsStr::from_bytes(parent)), OsStr::from_bytes(name)))
}

/// Opens the directory `path`, relative to `base`, and makes what is missing of it, if it may be.
fn open_parent(base: BorrowedFd<'_>, path: &Path, if_missing: MissingPath) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut missing = Vec::new();
    let mut there = path;
    let mut directory = loop {
        match rustix::fs::openat(base, there, flags, Mode::empty()) {
            Err(Errno::NOENT) if if_missing == MissingPath::Made => {}
            opened => break opened?,
        }
        match (there.components().next_back(), there.parent()) {
            (Some(name @ (Component::Normal(_) | Component::ParentDir)), Some(parent)) => {
                missing.push(name);
                there = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            }
            _ => return Err(Errno::NOENT),
        }
    };
    for name in missing.into_iter().rev() {
        match rustix::fs::mkdirat(&directory, name.as_os_str(), Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {} // somebody else made it just now
            Err(e) => return Err(e),
        }
        // What is there now was not there a moment ago: no link that anybody meant to be followed.
        directory = rustix::fs::openat(&directory, name.as_os_str(), flags | OFlags::NOFOLLOW, Mode::empty())?;
    }
    Ok(directory)
}

/// Opens the parent name by name from the root, each of which has to be a directory itself.
pub(super) fn open_parent_without_links(path: &Path, if_missing: MissingPath) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut directory = rustix::fs::openat(CWD, "/", flags, Mode::empty())?;
    for name in path.components() {
        let name = match name {
            Component::RootDir => continue,
            Component::Normal(name) => name,
            Component::Prefix(_) | Component::CurDir | Component::ParentDir => return Err(Errno::INVAL),
        };
        let opened = match rustix::fs::openat(&directory, name, flags, Mode::empty()) {
            Err(Errno::NOENT) if if_missing == MissingPath::Made => {
                match rustix::fs::mkdirat(&directory, name, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => {} // somebody else made it just now
                    Err(e) => return Err(e),
                }
                rustix::fs::openat(&directory, name, flags, Mode::empty())
            }
            opened => opened,
        };
        directory = opened?;
    }
    Ok(directory)
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Which file it is, and what was last done to it.
fn version(stat: &Stat) -> impl PartialEq {
    (identity(stat), stat.st_size, (stat.st_mtime, stat.st_mtime_nsec), (stat.st_ctime, stat.st_ctime_nsec))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "a test starts programs, itself among them, and is told where")]
    use super::*;
    use serde_json::json;
    use std::fs;
    use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn write(path: impl Into<PathBuf>, content: &str) -> Result<Value, ToolError> {
        let ctx = ToolContext::new(HostPath::from(path), 10);
        // The argument is a decoy: the path of the plan counts.
        let output = run(&json!({ "path": "/decoy", "content": content }), &ctx)?;
        assert!(!output.truncated);
        Ok(output.data)
    }

    fn scratch() -> tempfile::TempDir {
        tempfile::tempdir().expect("a directory")
    }

    fn names(directory: &Path) -> Vec<OsString> {
        let mut names: Vec<_> =
            fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").file_name()).collect();
        names.sort();
        names
    }

    fn text(path: &Path) -> String {
        fs::read_to_string(path).expect("a file")
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("a file").mode() & 0o7777
    }

    /// Root passes over file modes by its capabilities, which belong to the thread.
    fn without_capabilities<T: Send>(act: impl FnOnce() -> T + Send) -> T {
        let act = || {
            caps::clear(None, caps::CapSet::Effective).expect("capabilities can be dropped");
            act()
        };
        std::thread::scope(|scope| scope.spawn(act).join().expect("the thread ends"))
    }

    #[test]
    fn creates_and_overwrites_and_says_which() {
        // C-27: {path, bytes, created}
        let dir = scratch();
        let path = dir.path().join("f");
        assert_eq!(write(&path, "größe\r\n").expect("made"), json!({ "path": path, "bytes": 9, "created": true }));
        assert_eq!(text(&path), "größe\r\n");
        assert_eq!(write(&path, "x").expect("overwritten"), json!({ "path": path, "bytes": 1, "created": false }));
        assert_eq!(text(&path), "x");
        assert_eq!(write(&path, "").expect("emptied"), json!({ "path": path, "bytes": 0, "created": false }));
        assert_eq!(text(&path), "");
        assert_eq!(names(dir.path()), ["f"]);
    }

    fn create(path: impl Into<PathBuf>, content: &str) -> Result<Value, ToolError> {
        super::create(&json!({ "content": content }), &ToolContext::new(HostPath::from(path), 10))
            .map(|output| output.data)
    }

    /// S4-14: whatever has the name keeps it, and stays as it was.
    #[test]
    fn s4_14_a_new_file_overwrites_nothing() {
        let dir = scratch();
        let place = dir.path().canonicalize().expect("a directory");
        let path = place.join("sub/new");
        assert_eq!(create(&path, "x").expect("made"), json!({ "path": path, "bytes": 1, "created": true }));
        symlink("nowhere", place.join("dangling")).expect("a link");
        symlink("sub/new", place.join("link")).expect("a link");
        symlink("sub", place.join("linked")).expect("a link");
        for taken in ["sub", "sub/new", "dangling", "link"] {
            let error = create(place.join(taken), "y").expect_err("it is there");
            assert!(matches!(error.own(), Some(WriteError::Exists { .. })), "{taken}: {error}");
        }
        for through in ["linked/other", "dangling/other", "sub/new/other"] {
            let error = create(place.join(through), "y").expect_err("no directory");
            assert!(matches!(error, ToolError::File { act: FileAct::Parents, .. }), "{through}: {error}");
        }
        assert_eq!((text(&path), names(&place.join("sub"))), ("x".to_owned(), vec!["new".into()]));
        assert_eq!(names(&place), ["dangling", "link", "linked", "sub"]);
        write(place.join("link"), "y").expect("the control: `write` overwrites");
        assert_eq!(text(&path), "y");
    }

    /// S4-14: what takes the name after it was looked at keeps it. The kernel decides, at the rename.
    #[test]
    fn s4_14_a_name_that_is_taken_meanwhile_is_not_replaced() {
        let dir = scratch();
        let path = HostPath::from(dir.path().canonicalize().expect("a directory").join("f"));
        let target = WriteTarget::of_new(&path).expect("nothing is there");
        fs::write(path.as_path(), "theirs").expect("a file");
        let error = target.publish(&[b"ours"], None).expect_err("it is there now");
        assert!(matches!(error.own(), Some(WriteError::Exists { .. })), "{error}");
        assert_eq!((text(path.as_path()), names(dir.path())), ("theirs".to_owned(), vec!["f".into()]));
    }

    #[test]
    fn the_content_must_be_a_string() {
        let dir = scratch();
        let path = dir.path().join("f");
        let ctx = ToolContext::new(HostPath::from(&path), 10);
        for args in
            [json!({}), json!({ "content": null }), json!({ "content": 1 }), json!({ "content": ["x"] }), json!(3)]
        {
            let error = run(&args, &ctx).expect_err("no content");
            assert!(matches!(error, ToolError::Argument { name: "content", .. }), "{args}: {error}");
        }
        assert_eq!(names(dir.path()), [""; 0]);
    }

    #[test]
    fn parents_are_made_and_new_modes_follow_the_umask() {
        let dir = scratch();
        let path = dir.path().join("a/b/c/f");
        assert_eq!(write(&path, "deep").expect("made")["created"], true);
        assert_eq!(text(&path), "deep");
        // The control: what the kernel itself gives under this umask.
        fs::create_dir(dir.path().join("control")).expect("mkdir");
        fs::write(dir.path().join("control/f"), "").expect("a file");
        assert_eq!(mode(&path), mode(&dir.path().join("control/f")));
        for made in ["a", "a/b", "a/b/c"] {
            assert_eq!(mode(&dir.path().join(made)), mode(&dir.path().join("control")), "{made}");
        }
    }

    #[test]
    fn a_parent_that_is_a_file_or_a_dangling_link_is_refused() {
        let dir = scratch();
        fs::write(dir.path().join("file"), "old").expect("a file");
        symlink("nowhere", dir.path().join("link")).expect("a link");
        for parent in ["file", "file/sub", "link", "link/sub"] {
            let error = write(dir.path().join(parent).join("f"), "new").expect_err("no directory");
            assert!(matches!(error, ToolError::File { act: FileAct::Parents, .. }), "{parent}: {error}");
            assert_eq!(error.errno(), Some(libc::ENOTDIR), "{parent}");
        }
        assert_eq!(names(dir.path()), ["file", "link"]);
        assert_eq!(text(&dir.path().join("file")), "old");
    }

    #[test]
    fn the_mode_is_kept_but_for_set_id_bits() {
        let dir = scratch();
        let path = dir.path().join("f");
        fs::write(&path, "old").expect("a file");
        for (before, after) in [(0o600, 0o600), (0o755, 0o755), (0o666, 0o666), (0o4755, 0o755), (0o2770, 0o770)] {
            set_mode(&path, before);
            write(&path, "new").expect("replaced");
            assert_eq!(mode(&path), after, "{before:o}");
        }
    }

    #[test]
    fn a_read_only_file_stays_as_it_is() {
        let dir = scratch();
        let path = dir.path().join("f");
        fs::write(&path, "old").expect("a file");
        without_capabilities(|| write(&path, "mine")).expect("control: a writable file in this directory is replaced");
        set_mode(&path, 0o444);
        let error = without_capabilities(|| write(&path, "new")).expect_err("it is read-only");
        assert!(matches!(error, ToolError::File { act: FileAct::Open, .. }), "{error}");
        assert_eq!(error.errno(), Some(libc::EACCES));
        assert_eq!(text(&path), "mine");
        assert_eq!(names(dir.path()), ["f"]);
    }

    #[test]
    fn a_directory_that_may_not_be_written_is_eacces() {
        let dir = scratch();
        set_mode(dir.path(), 0o555);
        for (name, parent) in [("f", false), ("sub/f", true)] {
            let error = without_capabilities(|| write(dir.path().join(name), "new")).expect_err("nothing can be made");
            assert_eq!(error.errno(), Some(libc::EACCES), "{error}");
            assert_eq!(matches!(error, ToolError::File { act: FileAct::Parents, .. }), parent, "{error}");
            assert_eq!(matches!(error, ToolError::File { act: FileAct::Temporary, .. }), !parent, "{error}");
        }
        set_mode(dir.path(), 0o755);
        assert_eq!(names(dir.path()), [""; 0]);
    }

    #[test]
    fn a_link_stays_a_link_and_its_file_is_replaced() {
        let dir = scratch();
        fs::create_dir_all(dir.path().join("x/y")).expect("directories");
        let file = dir.path().join("x/file");
        fs::write(&file, "old").expect("a file");
        symlink("../file", dir.path().join("x/y/relative")).expect("a link");
        symlink(&file, dir.path().join("absolute")).expect("a link");
        symlink("x/y/relative", dir.path().join("chain")).expect("a link");
        for link in ["x/y/relative", "absolute", "chain"] {
            let link = dir.path().join(link);
            let was = fs::read_link(&link).expect("a link");
            let inode = fs::metadata(&file).expect("a file").ino();
            let data = write(&link, link.to_str().expect("utf-8")).expect("written through");
            assert_eq!(data["created"], false);
            assert_eq!(data["path"], json!(link)); // the path that was asked for, not the resolved one
            assert_eq!(text(&file), link.to_str().expect("utf-8"));
            assert_eq!(fs::read_link(&link).expect("still a link"), was);
            assert_ne!(fs::metadata(&file).expect("a file").ino(), inode, "atomically: a new inode");
        }
        assert_eq!(names(dir.path()), ["absolute", "chain", "x"]);
        assert_eq!(names(&dir.path().join("x")), ["file", "y"]);
    }

    #[test]
    fn a_dangling_link_gets_its_file() {
        let dir = scratch();
        let link = dir.path().join("link");
        symlink("other", &link).expect("a link");
        assert_eq!(write(&link, "new").expect("made")["created"], true);
        assert_eq!(fs::read_link(&link).expect("still a link"), Path::new("other"));
        assert_eq!(text(&dir.path().join("other")), "new");
    }

    #[test]
    fn links_in_a_circle_are_eloop() {
        let dir = scratch();
        symlink("b", dir.path().join("a")).expect("a link");
        symlink("a", dir.path().join("b")).expect("a link");
        let error = write(dir.path().join("a"), "new").expect_err("a circle");
        assert_eq!(error.errno(), Some(libc::ELOOP), "{error}");
        assert_eq!(names(dir.path()), ["a", "b"]);
    }

    /// `/proc/self/fd/N` reads as a path and is none: the kernel's word for where it leads counts.
    #[test]
    fn a_magic_link_is_not_taken_at_its_word() {
        let dir = scratch();
        let path = dir.path().join("gone");
        let file = fs::File::create(&path).expect("a file");
        fs::remove_file(&path).expect("removed");
        let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        let error = write(&link, "new").expect_err("the file has no name");
        assert!(matches!(error.own(), Some(WriteError::LinkChanged { .. })), "{error}");
        assert_eq!(names(dir.path()), [""; 0]);
    }

    #[test]
    fn what_is_no_regular_file_is_refused_and_stays() {
        let dir = scratch();
        fs::create_dir(dir.path().join("dir")).expect("a directory");
        nix::unistd::mkfifo(&dir.path().join("fifo"), nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
        let _listener = UnixListener::bind(dir.path().join("socket")).expect("a socket");
        let kinds = [("dir", FileKind::Directory), ("fifo", FileKind::Fifo), ("socket", FileKind::Socket)];
        for (name, kind) in kinds {
            let path = dir.path().join(name);
            let link = dir.path().join("link");
            symlink(name, &link).expect("a link");
            for path in [&path, &link] {
                let error = write(path, "new").expect_err("no regular file");
                assert!(matches!(error, ToolError::NotRegular { what, .. } if what == kind), "{name}: {error}");
            }
            fs::remove_file(&link).expect("the link is there");
        }
        assert!(fs::metadata(dir.path().join("fifo")).expect("still there").file_type().is_fifo());
        assert_eq!(names(dir.path()), ["dir", "fifo", "socket"]);
        let error = write("/dev/zero", "new").expect_err("a device");
        assert!(matches!(error, ToolError::NotRegular { what: FileKind::CharacterDevice, .. }), "{error}");
    }

    #[test]
    fn a_path_without_a_file_name_is_refused() {
        let dir = scratch();
        for end in ["", "f/", "f/.", ".."] {
            let path = format!("{}/{end}", dir.path().display());
            let error = write(&path, "new").expect_err("no name");
            assert!(matches!(error, ToolError::NoFileName { .. }), "{path}: {error}");
        }
        assert_eq!(names(dir.path()), [""; 0]);
    }

    #[test]
    fn names_of_any_bytes_and_of_any_length_that_the_kernel_takes() {
        let dir = scratch();
        for name in [&b"new\nline"[..], b"inv\xffalid", b"\x1b[31m", b" ", b"-rf", &[b'n'; 255]] {
            let path = dir.path().join(OsStr::from_bytes(name));
            let data = write(&path, "content").expect("made");
            assert_eq!(text(&path), "content");
            assert_eq!(data.get("path_b64").is_some(), std::str::from_utf8(name).is_err());
        }
        let error = write(dir.path().join("n".repeat(256)), "x").expect_err("too long");
        assert_eq!(error.errno(), Some(libc::ENAMETOOLONG), "{error}");
        let error = write(dir.path().join("d/".repeat(3000)).join("f"), "x").expect_err("too long");
        assert_eq!(error.errno(), Some(libc::ENAMETOOLONG), "{error}");
        assert!(!dir.path().join("d").is_dir(), "nothing is made for a path that cannot be");
    }

    #[test]
    fn the_other_names_of_a_file_keep_the_old_content() {
        let dir = scratch();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        fs::write(&one, "old").expect("a file");
        fs::hard_link(&one, &two).expect("a link");
        write(&one, "new").expect("replaced");
        assert_eq!((text(&one).as_str(), text(&two).as_str()), ("new", "old"));
    }

    #[test]
    fn a_running_program_is_replaced() {
        let dir = scratch();
        let path = dir.path().join("program");
        fs::copy("/bin/sleep", &path).expect("a copy");
        // Another test's fork may hold the copy open for writing until it execs.
        let mut child = loop {
            match Command::new(&path).arg("60").spawn() {
                Err(e) if e.raw_os_error() == Some(libc::ETXTBSY) => std::thread::yield_now(),
                child => break child.expect("it starts"),
            }
        };
        let in_place = fs::OpenOptions::new().write(true).open(&path).map(drop);
        let replaced = write(&path, "new");
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        assert_eq!(in_place.expect_err("control").raw_os_error(), Some(libc::ETXTBSY));
        replaced.expect("replaced");
        assert_eq!((text(&path).as_str(), mode(&path) & 0o111), ("new", 0o111));
    }

    /// X0-3: nobody ever reads a part.
    #[test]
    fn a_reader_sees_the_old_content_or_the_new() {
        let dir = scratch();
        let path = dir.path().join("f");
        let (a, b) = ("a".repeat(300_000), "b".repeat(200_000));
        fs::write(&path, &a).expect("a file");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for _ in 0..50 {
                    write(&path, &b).expect("replaced");
                    write(&path, &a).expect("replaced");
                }
                done.store(true, Ordering::Relaxed);
            });
            while !done.load(Ordering::Relaxed) && !writer.is_finished() {
                let seen = text(&path);
                assert!(seen == a || seen == b, "{} bytes", seen.len());
            }
        });
    }

    #[test]
    fn a_parent_exchanged_for_a_link_leads_nowhere_new() {
        let dir = scratch();
        let (mine, moved, theirs) = (dir.path().join("mine"), dir.path().join("moved"), dir.path().join("theirs"));
        fs::create_dir(&mine).expect("a directory");
        fs::create_dir(&theirs).expect("a directory");
        let path = HostPath::from(mine.join("f"));
        let target = WriteTarget::find(&path, MissingPath::Made, LinkTreatment::Followed).expect("found");
        fs::rename(&mine, &moved).expect("moved");
        symlink(&theirs, &mine).expect("a link");
        target.publish(&[b"secret"], None).expect("written");
        assert_eq!(text(&moved.join("f")), "secret");
        assert_eq!(names(&theirs), [""; 0]);
    }

    #[test]
    fn a_failed_rename_leaves_no_temporary_file() {
        let dir = scratch();
        let path = HostPath::from(dir.path().join("f"));
        let target = WriteTarget::find(&path, MissingPath::Made, LinkTreatment::Followed).expect("found");
        fs::create_dir(dir.path().join("f")).expect("somebody is faster");
        let error = target.publish(&[b"new"], None).expect_err("a directory is there now");
        assert!(matches!(error, ToolError::File { act: FileAct::Publish, .. }), "{error}");
        assert_eq!(error.errno(), Some(libc::EISDIR));
        assert_eq!(names(dir.path()), ["f"]);
    }

    const IN_CHILD: &str = "CALLGATE_TEST_SCRATCH";

    /// Runs one test of this module again, in a process that `shell` prepares; `$0` is this program, `$1` the test.
    /// In that process it gives the directory to work in; here `None`, when the other has passed or cannot be.
    fn again(test: &str, wrapper: &[&str], shell: &str) -> Option<PathBuf> {
        if let Some(directory) = std::env::var_os(IN_CHILD) {
            return Some(directory.into());
        }
        let able = Command::new(wrapper[0]).args(&wrapper[1..]).args(["-c", "true"]).output();
        if !able.is_ok_and(|output| output.status.success()) {
            eprintln!("SKIPPED {test}: this host cannot run {wrapper:?}");
            return None;
        }
        let dir = scratch();
        let (_, module) = module_path!().split_once("::").expect("a module of a crate");
        let output = Command::new(wrapper[0])
            .args(&wrapper[1..])
            .args(["-c", shell])
            .arg(std::env::current_exe().expect("this program"))
            .arg(format!("{module}::{test}"))
            .env(IN_CHILD, dir.path())
            .output()
            .expect("it starts");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        None
    }

    #[test]
    fn a_full_disk_keeps_the_old_content() {
        let shell = "mount -t tmpfs -o size=64k none $CALLGATE_TEST_SCRATCH && exec \"$0\" --exact \"$1\"";
        let Some(dir) = again("a_full_disk_keeps_the_old_content", &["unshare", "-Urm", "sh"], shell) else { return };
        let path = dir.join("f");
        write(&path, &"o".repeat(20_000)).expect("control: there is room for this");
        let error = write(&path, &"n".repeat(100_000)).expect_err("there is no room for this");
        assert!(matches!(error, ToolError::File { act: FileAct::Write, .. }), "{error}");
        assert_eq!(error.errno(), Some(libc::ENOSPC));
        assert!(error.text().contains("full"), "{}", error.text());
        assert_eq!(text(&path), "o".repeat(20_000));
        assert_eq!(names(&dir), ["f"]);
        write(&path, &"n".repeat(20_000)).expect("the failure gave its room back");
    }

    #[test]
    fn a_file_size_limit_keeps_the_old_content() {
        // SIGXFSZ ends a process that does not ignore it.
        let shell = "trap '' XFSZ && ulimit -f 16 && exec \"$0\" --exact \"$1\"";
        let Some(dir) = again("a_file_size_limit_keeps_the_old_content", &["sh"], shell) else { return };
        let path = dir.join("f");
        write(&path, "old").expect("control: this is small enough");
        let error = write(&path, &"n".repeat(100_000)).expect_err("this is not");
        assert!(matches!(error, ToolError::File { act: FileAct::Write, .. }), "{error}");
        assert_eq!(error.errno(), Some(libc::EFBIG));
        assert_eq!(text(&path), "old");
        assert_eq!(names(&dir), ["f"]);
    }
}
