//! State that a session keeps for the tools that it answers itself.

use std::sync::{Arc, Mutex, PoisonError};

use crate::registry::hosted::skill;
use crate::store::{Notes, Recorder, StoreError};

/// Notes of the session's agent, and the skills that the session knows.
#[derive(Debug)]
pub(crate) struct Notebook {
    notes: Mutex<Notes>,
    pub(crate) skills: skill::Known,
}

impl Notebook {
    pub(super) fn new(notes: Notes, found: Arc<skill::Found>) -> Self {
        Self { notes: Mutex::new(notes), skills: skill::Known::new(found) }
    }

    /// True if a deferred tool was returned by a search.
    pub(crate) fn has_loaded(&self, tool: &str) -> bool {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).loaded.contains(tool)
    }

    pub(crate) fn notes(&self) -> Notes {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the notes. What cannot be recorded is not changed.
    pub(crate) fn change(&self, recorder: &Recorder, change: impl FnOnce(&mut Notes)) -> Result<(), StoreError> {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = notes.clone();
        change(&mut changed);
        if changed != *notes {
            recorder.keep_notes(&changed)?;
            *notes = changed;
        }
        Ok(())
    }
}
