//! Several names that are taken in one step (S0-25). A worker that changes many files may be killed at any moment, and
//! between two of its own renames some files would be new and others old. So it has the broker take them all: everything is
//! judged first, as a renaming or removal of its own would be, and then carried out without waiting for anybody. Once it is
//! begun it ends, whether the worker is still there or not.
//!
//! It is asked for as a renameat2(2) with a flag that the kernel does not know, so that a kernel which is asked in the
//! broker's place says EINVAL. It gives nobody a right: a call could do each of these acts one by one.
//!
//! But what was judged must still hold when it is carried out, and the acts before it must not have changed that. So only
//! what changes no judgement is taken: a regular file takes a name beside its own, which says that it was made for that, or a
//! file is removed; no directory moves, no repository's pointer or settings come or go. And only a worker may ask, which runs
//! a tool of callgate's own, and nothing that it has started.

use rustix::fs::{FileType, RenameFlags};

use super::{Broker, CallReply, Caller, NameAt, Removing, RenameVerdict, Renaming, kind};
use crate::sys::names::{ALL, JUDGE, MOST, NUMBERS};
use crate::toolset::TEMPORARY_PREFIX;

/// True if a renaming is a batch.
pub(super) fn is_asked_for(flags: u32) -> bool {
    flags == ALL || flags == JUDGE
}

enum BatchAct {
    Rename(Box<Renaming>),
    Remove(Removing),
}

/// Takes the names. How many it took; fewer than there are if the kernel refused the next.
pub(super) fn take(
    broker: &mut Broker,
    caller: &Caller<'_>,
    count: u64,
    pointer: u64,
    flags: u32,
) -> Result<CallReply, i32> {
    if broker.calls.worker_of_caller(caller) != Some(caller.tid()) {
        return Err(libc::EINVAL);
    }
    let count = usize::try_from(count).ok().filter(|count| (1..=MOST).contains(count)).ok_or(libc::EINVAL)?;
    let bytes = caller.bytes(pointer, count * NUMBERS * size_of::<u64>())?;
    let (numbers, _) = bytes.as_chunks::<{ size_of::<u64>() }>();
    let numbers: Vec<u64> = numbers.iter().map(|number| u64::from_ne_bytes(*number)).collect();
    let (entries, _) = numbers.as_chunks::<NUMBERS>();
    let acts = entries.iter().map(|entry| judged(broker, caller, *entry)).collect::<Result<Vec<_>, _>>()?;
    if acts.len() != count {
        return Err(libc::EFAULT);
    }
    if flags == JUDGE {
        return Ok(CallReply::Return(0));
    }
    caller.confirm()?;
    let mut taken = 0;
    for act in &acts {
        let done = match act {
            BatchAct::Rename(renaming) => renaming.carry_out(broker, caller),
            BatchAct::Remove(removing) => removing.carry_out(broker, caller),
        };
        if done.is_err() {
            break;
        }
        taken += 1;
    }
    Ok(CallReply::Return(taken))
}

/// Judges whether one of them may be carried out. What is not the broker's to do is as in another file system.
fn judged(
    broker: &mut Broker,
    caller: &Caller<'_>,
    [directory, from, to, flags]: [u64; NUMBERS],
) -> Result<BatchAct, i32> {
    let directory = i32::try_from(directory).ok().ok_or(libc::EBADF)?;
    let from: NameAt = (directory, from);
    if to == 0 {
        let removing = Removing::judge(broker, caller, from, false)?;
        return removing.filter(Removing::changes_no_judgement).map(BatchAct::Remove).ok_or(libc::EXDEV);
    }
    let flags = match flags {
        0 => RenameFlags::empty(),
        flags if flags == u64::from(RenameFlags::NOREPLACE.bits()) => RenameFlags::NOREPLACE,
        _ => return Err(libc::EINVAL),
    };
    match Renaming::judge(broker, caller, (from, (directory, to)), flags)? {
        RenameVerdict::May(renaming) if renaming.changes_no_judgement() => Ok(BatchAct::Rename(Box::new(renaming))),
        RenameVerdict::May(_) | RenameVerdict::Elsewhere | RenameVerdict::Same | RenameVerdict::Settings(_) => {
            Err(libc::EXDEV)
        }
    }
}

impl Renaming {
    fn changes_no_judgement(&self) -> bool {
        let is_temporary = self.source.name.to_bytes().starts_with(TEMPORARY_PREFIX.as_bytes());
        let is_pointer = self.was.is_pointer() || self.will.is_pointer();
        is_temporary && !is_pointer && kind(&self.moved) == FileType::RegularFile
    }
}

impl Removing {
    fn changes_no_judgement(&self) -> bool {
        !self.is_directory && !self.is_pointer
    }
}
