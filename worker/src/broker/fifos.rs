//! FIFOs are opened for writing when somebody reads them, which may be never: each by a thread that waits in the kernel, and
//! is called back when its caller is gone. To look again and again in its place took a whole processor of 64 FIFOs.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use crate::sys::notify::{self, CallReply};
use crate::sys::process::{self, Pid};

/// Most openings of one call that wait at once.
const MOST: usize = 64;
/// How often it is looked whether callers are still there.
const LOOK: Duration = Duration::from_millis(100);

/// A call's openings that wait.
#[derive(Default, Clone)]
pub(super) struct WaitingOpens(Arc<Mutex<WaitingThreads>>);

#[derive(Default)]
struct WaitingThreads {
    /// By the caller's question: the thread that waits, once it is known.
    threads: HashMap<u64, Option<Pid>>,
    /// A thread calls back those whose callers are gone.
    attended: bool,
}

impl WaitingOpens {
    fn all(&self) -> MutexGuard<'_, WaitingThreads> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has somebody look after them.
    fn attend(&self, listener: &Arc<OwnedFd>) -> Result<(), i32> {
        let mut all = self.all();
        if !all.attended {
            let (waiting, listener) = (self.clone(), Arc::clone(listener));
            start(move || call_back(&waiting, &listener))?;
            all.attended = true;
        }
        Ok(())
    }
}

/// One of them, for as long as this lives.
struct WaitingOpen {
    waiting: WaitingOpens,
    id: u64,
}

impl Drop for WaitingOpen {
    fn drop(&mut self) {
        self.waiting.all().threads.remove(&self.id);
    }
}

/// Opens what is pinned when its other side is there, and answers then.
#[expect(
    clippy::disallowed_methods,
    reason = "a link of procfs to a descriptor that was judged: the file itself, whatever its name leads to now"
)]
pub(super) fn open_later(
    waiting: &WaitingOpens,
    listener: &Arc<OwnedFd>,
    id: u64,
    pinned: OwnedFd,
    (flags, cloexec): (OFlags, bool),
) -> Result<CallReply, i32> {
    let mut all = waiting.all();
    if all.threads.len() >= MOST {
        return Err(libc::ENXIO);
    }
    all.threads.insert(id, None);
    drop(all);
    let one = WaitingOpen { waiting: waiting.clone(), id };
    process::let_waits_be_interrupted().map_err(|_no_handler| libc::EAGAIN)?;
    waiting.attend(listener)?;
    let listener = Arc::clone(listener);
    start(move || {
        one.waiting.all().threads.insert(id, Some(process::own_tid()));
        let link = format!("/proc/self/fd/{}", pinned.as_raw_fd());
        while notify::is_valid(listener.as_fd(), id) {
            match rustix::fs::open(&link, flags, Mode::empty()) {
                Err(rustix::io::Errno::INTR) => {}
                opened => {
                    drop(one);
                    let answer =
                        opened.map_or_else(|e| CallReply::Fail(e.raw_os_error()), |fd| CallReply::Fd { fd, cloexec });
                    // Whoever asked may be gone.
                    let _answered: std::io::Result<()> = notify::answer(listener.as_fd(), id, answer);
                    return;
                }
            }
        }
    })?;
    Ok(CallReply::Later)
}

fn start(work: impl FnOnce() + Send + 'static) -> Result<(), i32> {
    let thread = std::thread::Builder::new().stack_size(64 * 1024).spawn(work);
    thread.map(drop).map_err(|_no_thread| libc::EAGAIN)
}

/// Interrupts the threads whose callers are gone, for as long as any waits. Again and again: one that was about to wait has
/// not heard it.
fn call_back(waiting: &WaitingOpens, listener: &OwnedFd) {
    loop {
        std::thread::sleep(LOOK);
        // With the lock held: a thread that has ended is not in it any more, and its number not another's.
        let mut all = waiting.all();
        if all.threads.is_empty() {
            all.attended = false;
            return;
        }
        let gone = all.threads.iter().filter(|(id, _)| !notify::is_valid(listener.as_fd(), **id));
        gone.filter_map(|(_, tid)| *tid).for_each(process::interrupt);
    }
}
