//! Halt of a session: whether anything else runs in it (X1-15).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::store::Recorder;

/// A session that is halted runs nothing any more: a person would have had to be asked, and there was none. A subagent halts its
/// parents, and with them all that they have started.
#[derive(Debug)]
pub(crate) struct Halt {
    is_halted: AtomicBool,
    recorder: Arc<Recorder>,
    parents: Option<Arc<Self>>,
}

impl Halt {
    pub(crate) fn new(is_halted: bool, recorder: &Arc<Recorder>, parents: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self { is_halted: AtomicBool::new(is_halted), recorder: Arc::clone(recorder), parents })
    }

    pub(crate) fn halt(&self) {
        self.is_halted.store(true, Ordering::Relaxed);
        self.recorder.keep_halt();
        self.parents.iter().for_each(|parents| parents.halt());
    }

    pub(crate) fn is_halted(&self) -> bool {
        self.is_halted.load(Ordering::Relaxed) || self.parents.as_ref().is_some_and(|parents| parents.is_halted())
    }
}
