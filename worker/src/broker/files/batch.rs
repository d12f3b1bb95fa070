//! Several names that are taken in one step (S0-25). A worker that changes many files may be killed at any moment, and
//! between two of its own renames some files would be new and others old. So it has the broker take them all: everything is
//! judged first, as a renaming or removal of its own would be, and then carried out without waiting for anybody. Once it is
//! begun it ends, whether the worker is still there or not.
//!
//! It is asked for as a renameat2(2) with a flag that the kernel does not know, so that a kernel which is asked in the
//! broker's place says EINVAL. It gives nobody a right: a call could do each of these acts one by one.

use rustix::fs::RenameFlags;

use super::{Answer, At, Broker, Caller, Judged, Removing, Renaming};
use crate::sys::names::{ALL, JUDGE, MOST, NUMBERS};

/// Whether a renaming is a batch.
pub(super) fn is_asked_for(flags: u32) -> bool {
    flags == ALL || flags == JUDGE
}

enum Act {
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
) -> Result<Answer, i32> {
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
        return Ok(Answer::Return(0));
    }
    caller.confirm()?;
    let mut taken = 0;
    for act in &acts {
        let done = match act {
            Act::Rename(renaming) => renaming.carry_out(broker, caller),
            Act::Remove(removing) => removing.carry_out(broker, caller),
        };
        if done.is_err() {
            break;
        }
        taken += 1;
    }
    Ok(Answer::Return(taken))
}

/// Whether one of them may be carried out. What is not the broker's to do is as in another file system.
fn judged(broker: &mut Broker, caller: &Caller<'_>, [directory, from, to, flags]: [u64; NUMBERS]) -> Result<Act, i32> {
    let directory = i32::try_from(directory).map_err(|_| libc::EBADF)?;
    let from: At = (directory, from);
    if to == 0 {
        return Removing::judge(broker, caller, from, false)?.map(Act::Remove).ok_or(libc::EXDEV);
    }
    let flags = u32::try_from(flags).map_err(|_| libc::EINVAL)?;
    match Renaming::judge(broker, caller, (from, (directory, to)), RenameFlags::from_bits_retain(flags))? {
        Judged::May(renaming) => Ok(Act::Rename(Box::new(renaming))),
        Judged::Elsewhere | Judged::Same | Judged::Settings(_) => Err(libc::EXDEV),
    }
}
