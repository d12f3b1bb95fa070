//! Locks of egress, which are taken whatever became of another thread.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A panic ends the process, unless it was built for tests: nothing is kept half-changed under these locks.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
