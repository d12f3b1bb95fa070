//! The place of a text in a file.

use std::borrow::Cow;
use std::ops::Range;

use callgate_policy::path::HostPath;
use memchr::memmem::Finder;

use super::error::EditError;
use super::mismatch::{MatchStage, Mismatch};

/// How many places an error names.
pub(super) const PLACES_MAX: usize = 5;

/// Text to put, and its place.
pub(super) struct Splice<'n> {
    pub(super) range: Range<usize>,
    pub(super) new: Cow<'n, [u8]>,
    pub(super) stage: MatchStage,
}

/// Where the text is, if it is there once.
pub(super) fn only_place(content: &[u8], old: &[u8], path: &HostPath) -> Result<usize, EditError> {
    let finder = Finder::new(old);
    let mut places = Vec::new();
    let mut times = 0;
    let mut from = 0;
    while let Some(found) = finder.find(&content[from..]) {
        let place = from + found;
        times += 1;
        if places.len() < PLACES_MAX {
            places.push(place);
        }
        from = place + 1;
    }
    match places.as_slice() {
        [] => Err(EditError::NotFound { path: path.clone(), why: Mismatch::find(content, old) }),
        [place] => Ok(*place),
        several => {
            let lines = several.iter().map(|place| line_of(content, *place)).collect();
            Err(EditError::NotUnique { path: path.clone(), times, lines, stage: MatchStage::Exact })
        }
    }
}

/// The number of the line that has this place.
pub(super) fn line_of(content: &[u8], place: usize) -> u64 {
    memchr::memchr_iter(b'\n', &content[..place]).count() as u64 + 1
}
