//! What a server was refused, for whoever has started it: the server has had an errno, and may say something else of it.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use callgate::Session;
use callgate::policy::path::{HostPath, normalize};
use serde_json::Value;

/// Most lines of one server that are told.
const LINES_MAX: usize = 100;
/// Most paths of one call.
const PATHS_MAX: usize = 3;
/// Most bytes of an error in which paths are looked for.
const TEXT_MAX: usize = 16 * 1024;

/// What was told already.
#[derive(Debug, Default)]
pub(super) struct Told(Mutex<BTreeSet<String>>);

impl Told {
    /// Tells what was not told before, on standard error.
    pub(super) fn tell(&self, server: &str, notes: Vec<String>) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for note in notes {
            if told.len() < LINES_MAX && told.insert(without_counts(&note)) {
                super::tell(&format!("callgate: {server}: {note}"));
            }
        }
    }
}

/// A note says how often; told once is enough.
fn without_counts(note: &str) -> String {
    note.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// Paths in a call that failed that its session may not read, with what grants them. The kernel tells nobody which file it refused,
/// so this goes by what the call and its error name.
pub(super) fn paths(session: &Session, arguments: &Value, error: &str) -> Vec<String> {
    let mut named = Vec::new();
    strings(arguments, &mut |text| named.extend(text.strip_prefix("file://").or(Some(text)).map(str::to_owned)));
    let at = error.floor_char_boundary(TEXT_MAX);
    named.extend(error[..at].split(['\'', '"', '`', ' ', '\n', ',', ':', '(', ')']).map(str::to_owned));
    let refused: BTreeSet<HostPath> = named
        .iter()
        .filter(|text| text.starts_with('/') && !text.starts_with("//") && text.len() > 1)
        .filter_map(|text| normalize(&"/".into(), &HostPath::from(text.as_str())).ok())
        .filter(|path| !session.effective().allows_read(path))
        .collect();
    let hint = |path: &HostPath| {
        format!("a call that failed names {path}, which is not granted; to grant it: --read {path}, or --write {path}")
    };
    refused.iter().take(PATHS_MAX).map(hint).collect()
}

fn strings(value: &Value, each: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => each(text),
        Value::Array(items) => items.iter().for_each(|item| strings(item, each)),
        Value::Object(fields) => fields.values().for_each(|field| strings(field, each)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
