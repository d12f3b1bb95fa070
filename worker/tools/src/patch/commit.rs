//! Files as they were and as they are to be, and the step from one to the other.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::rc::Rc;

use callgate_policy::path::HostPath;
use rustix::fs::{Mode, RenameFlags, Stat};
use rustix::io::Errno;

use super::error::PatchError;
use super::hunks::LINES_MAX;
use crate::FileAct;
use crate::write::{Making, MissingPath, StagedContent, WriteTarget};
use crate::{FileKind, LinkTreatment, ToolError, edit};
use callgate_worker::sys::names::{self, NamedEntry};

/// Most bytes that are read and written for one patch, each.
const BYTES_MAX: usize = 64 << 20;

/// Former content of a file.
pub(super) struct FormerFile {
    pub(super) content: Vec<u8>,
    pub(super) mode: Mode,
}

/// State that a file is to have.
pub(super) enum After {
    Nothing,
    Content {
        content: Vec<u8>,
        /// The mode of the file that it was made from.
        mode: Option<Mode>,
        /// Mode in the patch: whether the file is executable.
        executable: Option<bool>,
        /// Nothing may be there.
        is_new: bool,
    },
}

/// A file that is changed, where it is.
struct Taken<'p> {
    target: WriteTarget<'p>,
    before: Rc<FormerFile>,
    stat: Stat,
}

/// All files of one patch.
pub(super) struct PatchFiles<'p> {
    links: LinkTreatment,
    taken: BTreeMap<&'p HostPath, Taken<'p>>,
    after: Vec<(&'p HostPath, After)>,
    bytes: (usize, usize),
}

impl<'p> PatchFiles<'p> {
    pub(super) fn new(links: LinkTreatment) -> Self {
        Self { links, taken: BTreeMap::new(), after: Vec::new(), bytes: (0, 0) }
    }

    /// Reads a file that stays as it is.
    pub(super) fn read(&mut self, path: &'p HostPath) -> Result<Rc<FormerFile>, ToolError> {
        if let Some(taken) = self.taken.get(path) {
            return Ok(Rc::clone(&taken.before));
        }
        let (content, stat) = edit::content_to_read(path, self.links)?;
        self.before(content, &stat)
    }

    /// Reads a file that is changed. It has to be one that may be written.
    pub(super) fn take(&mut self, path: &'p HostPath) -> Result<Rc<FormerFile>, ToolError> {
        if let Some(taken) = self.taken.get(path) {
            return Ok(Rc::clone(&taken.before));
        }
        let target = WriteTarget::find(path, MissingPath::IsAnError, self.links)?;
        let (content, stat) = edit::content(&target, path)?;
        let before = self.before(content, &stat)?;
        self.taken.insert(path, Taken { target, before: Rc::clone(&before), stat });
        Ok(before)
    }

    fn before(&mut self, content: Vec<u8>, stat: &Stat) -> Result<Rc<FormerFile>, ToolError> {
        self.bytes.0 += content.len();
        if self.bytes.0 > BYTES_MAX {
            return Err(PatchError::TooLarge { what: "what the files hold", most: "64 MiB" }.into());
        }
        if memchr::memchr_iter(b'\n', &content).count() > LINES_MAX {
            return Err(PatchError::TooLarge { what: "a file of so many lines", most: "2000000 lines" }.into());
        }
        let mode = Mode::from_raw_mode(stat.st_mode) & Mode::from_raw_mode(0o1777);
        Ok(Rc::new(FormerFile { content, mode }))
    }

    /// Says what a file is to be.
    pub(super) fn leave(&mut self, path: &'p HostPath, after: After) -> Result<(), ToolError> {
        if let After::Content { content, .. } = &after {
            self.bytes.1 += content.len();
        }
        if self.bytes.1 > BYTES_MAX {
            return Err(PatchError::TooLarge { what: "what the files are to hold", most: "64 MiB" }.into());
        }
        self.after.push((path, after));
        Ok(())
    }

    /// Makes all files what they are to be, or none.
    pub(super) fn commit(mut self) -> Result<(), ToolError> {
        for (path, after) in &self.after {
            self.look(path, after)?;
        }
        carry_out(&self.acts()?, CommitAct::require_unchanged)
    }

    /// Commits without a look at what is there by now, as if that changed at the last moment.
    #[cfg(test)]
    pub(super) fn commit_unlooked(mut self) -> Result<(), ToolError> {
        carry_out(&self.acts()?, |_| Ok(()))
    }

    /// Acts to carry out, in order.
    fn acts(&mut self) -> Result<Vec<CommitAct<'p>>, ToolError> {
        let mut acts = Vec::new();
        for (path, after) in std::mem::take(&mut self.after) {
            acts.push(self.act(path, after)?);
        }
        for (number, act) in acts.iter().enumerate() {
            if let Some(other) = acts[..number].iter().find(|other| other.target.is_same_as(&act.target)) {
                let (path, other) = (act.target.path.clone(), other.target.path.clone());
                return Err(PatchError::Same { path, other }.into());
            }
        }
        // Those whose undoing takes no space come first, and what would have to be made anew comes last.
        acts.sort_by_key(|act| match (&act.before, &act.after) {
            (None, _) => 0,
            (Some(_), Some(_)) => 1,
            (Some(_), None) => 2,
        });
        Ok(acts)
    }

    /// Checks that something is there that has to be, or is not there that must not be. Before anything is made,
    /// directories included.
    fn look(&self, path: &HostPath, after: &After) -> Result<(), ToolError> {
        let there = rustix::fs::lstat(path.as_path());
        match after {
            After::Content { is_new: true, .. } if there.is_ok() => {
                Err(PatchError::There { path: path.clone() }.into())
            }
            // What is removed is the name, and not what a link leads to.
            After::Nothing => match there.ok().and_then(|stat| FileKind::of_other(stat.st_mode)) {
                Some(what) => Err(ToolError::NotRegular { path: path.clone(), what }),
                None => Ok(()),
            },
            After::Content { .. } => Ok(()),
        }
    }

    fn act(&mut self, path: &'p HostPath, after: After) -> Result<CommitAct<'p>, ToolError> {
        let taken = self.taken.remove(path);
        let (target, before) = match taken {
            Some(Taken { target, before, stat }) => (target, Some((before, stat))),
            None => {
                let target = WriteTarget::find(path, MissingPath::Made, self.links)?;
                if target.replaces.is_some() {
                    return Err(PatchError::There { path: path.clone() }.into());
                }
                (target.of_a_new_file(), None)
            }
        };
        let after = match after {
            After::Nothing => None,
            After::Content { content, mode, executable, .. } => Some((content, making(mode, executable))),
        };
        Ok(CommitAct { target, before, after })
    }
}

fn making(mode: Option<Mode>, executable: Option<bool>) -> Making {
    match (mode, executable) {
        (None, Some(true)) => Making::NEW_PROGRAM,
        (None, Some(false) | None) => Making::NEW,
        (Some(mode), None) => Making::Exactly(mode),
        (Some(mode), Some(false)) => Making::Exactly(mode - Mode::from_raw_mode(0o111)),
        // Whoever may read it may execute it.
        (Some(mode), Some(true)) => Making::Exactly(mode | Mode::from_raw_mode((mode.as_raw_mode() & 0o444) >> 2)),
    }
}

/// Act on one name.
struct CommitAct<'p> {
    target: WriteTarget<'p>,
    before: Option<(Rc<FormerFile>, Stat)>,
    after: Option<(Vec<u8>, Making)>,
}

impl CommitAct<'_> {
    fn stage(&self) -> Result<Option<StagedContent<'_>>, ToolError> {
        self.after.as_ref().map(|(content, making)| self.target.stage(&[content], *making)).transpose()
    }

    fn require_unchanged(&self) -> Result<(), ToolError> {
        self.before.as_ref().map_or(Ok(()), |(_, stat)| self.target.require_unchanged(stat))
    }

    fn carry_out(&self, staged: Option<StagedContent<'_>>) -> Result<(), ToolError> {
        match staged {
            Some(staged) => staged.publish(),
            None => self.target.remove(),
        }
    }

    fn undo(&self) -> Result<(), ToolError> {
        match &self.before {
            Some((before, _)) => self.target.stage(&[&before.content], Making::Exactly(before.mode))?.publish(),
            None => self.target.remove(),
        }
    }
}

fn carry_out<'p>(
    acts: &[CommitAct<'p>],
    look: impl Fn(&CommitAct<'p>) -> Result<(), ToolError>,
) -> Result<(), ToolError> {
    let mut staged = acts.iter().map(CommitAct::stage).collect::<Result<Vec<_>, _>>()?;
    acts.iter().try_for_each(look)?;
    let taken = take_together(acts, &staged)?;
    staged.iter_mut().take(taken).filter_map(Option::take).for_each(StagedContent::was_published);
    for (number, act) in acts.iter().enumerate().skip(taken) {
        let Err(error) = act.carry_out(staged[number].take()) else { continue };
        // Their space is needed to put back what was there.
        staged.clear();
        let undone = acts[..number].iter().rev().filter(|act| act.undo().is_err());
        let changed: Vec<HostPath> = undone.map(|act| act.target.path.clone()).collect();
        if changed.is_empty() {
            return Err(error);
        }
        return Err(PatchError::HalfDone { why: error.text(), changed }.into());
    }
    Ok(())
}

/// Has the broker take all names in one step, so that a kill leaves all done or nothing. How many it took: none where it cannot,
/// and fewer than there are where the kernel refused the next.
fn take_together(acts: &[CommitAct<'_>], staged: &[Option<StagedContent<'_>>]) -> Result<usize, ToolError> {
    let name = |name: &OsStr| CString::new(name.as_bytes()).unwrap_or_default();
    let names: Vec<(CString, Option<CString>)> = acts
        .iter()
        .zip(staged)
        .map(|(act, staged)| match staged.as_ref().and_then(StagedContent::name) {
            Some(temporary) => (name(temporary), Some(name(&act.target.name))),
            None => (name(&act.target.name), None),
        })
        .collect();
    let flags = |staged: &Option<StagedContent<'_>>| match staged {
        Some(staged) if staged.is_new() => RenameFlags::NOREPLACE.bits(),
        Some(_) | None => 0,
    };
    let entries: Vec<NamedEntry<'_>> = acts
        .iter()
        .zip(staged)
        .zip(&names)
        .map(|((act, staged), (from, to))| NamedEntry {
            directory: act.target.directory.as_fd(),
            from,
            to: to.as_deref(),
            flags: flags(staged),
        })
        .collect();
    // One by one, so that an error says which it is.
    for ((entry, act), staged) in entries.chunks(1).zip(acts).zip(staged) {
        match names::take(entry, names::JUDGE) {
            Ok(_) => {}
            // There is no broker that does it, or these are not its own to change.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS | libc::EXDEV)) => return Ok(0),
            Err(source) => {
                let errno = Errno::from_io_error(&source).unwrap_or(Errno::IO);
                let removing = || ToolError::File { act: FileAct::Remove, path: act.target.path.clone(), source };
                return Err(staged.as_ref().map_or_else(removing, |staged| staged.refused(errno)));
            }
        }
    }
    names::take(&entries, names::ALL).map_err(|source| {
        let path = acts.first().map_or_else(|| HostPath::from("/"), |act| act.target.path.clone());
        ToolError::File { act: FileAct::Publish, path, source }
    })
}
