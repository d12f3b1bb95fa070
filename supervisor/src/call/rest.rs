//! Where what a result has no room for goes.

use serde_json::Value;

use super::envelope::Done;
use crate::confine::{Output, Outputs};

/// Reason why a rest is nowhere, and what to do about it.
const NOT_KEPT: &str = "the rest was not kept, because this session keeps none; to keep it: callgate call --output-dir DIR \
                        (for hosts: SessionSpec::overflow)";
const NO_ROOM: &str = "not all of the rest was kept: there is more than a call or a session keeps, or it could not be written; \
                       ask for less at a time";

/// Where what a result has no room for goes (S0-44).
pub(super) struct Rest<'a> {
    pub(super) tool: &'a str,
    pub(super) outputs: Option<&'a Outputs>,
    /// Made when there is something to keep.
    pub(super) file: Option<Output<'a>>,
    /// Some of it is nowhere.
    pub(super) lost: bool,
}

impl Rest<'_> {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        if self.file.is_none() && !self.lost {
            self.file = self.outputs.and_then(|outputs| outputs.create(self.tool).ok());
        }
        match &mut self.file {
            Some(file) => {
                file.add(bytes);
                self.lost |= file.lost;
            }
            None => self.lost = true,
        }
    }

    /// The result. What is not to be had any more is told beside its head.
    pub(super) fn done(self, mut data: Value, truncated: bool) -> Done {
        if self.lost
            && let Some(data) = data.as_object_mut()
        {
            data.insert("rest_lost".to_owned(), true.into());
        }
        let rest_lost = self.lost.then(|| if self.outputs.is_some() { NO_ROOM } else { NOT_KEPT }.to_owned());
        let output_path = self.file.map(|file| file.path);
        Done { truncated, output_path, rest_lost, ..Done::of(data) }
    }
}
