//! Hints on what a server was refused, for whoever has started it: the server has had an errno, and may say something
//! else of it.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use callgate::Session;
use callgate::policy::path::{HostPath, normalize};
use serde_json::Value;

/// Most lines of one server that are told.
const LINES_MAX: usize = 100;
/// Most paths of one call.
const PATHS_MAX: usize = 3;
/// Most bytes of a path (PATH_MAX of limits.h).
const PATH_MAX: usize = 4096;

/// Hints that were told already.
#[derive(Debug, Default)]
pub(super) struct Told(Mutex<BTreeSet<String>>);

impl Told {
    /// Tells what was not told before, on standard error.
    pub(super) fn tell(&self, server: &str, notes: Vec<String>) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for note in notes {
            if told.len() < LINES_MAX && told.insert(without_counts(&note)) {
                super::told::tell(&format!("callgate: {server}: {note}"));
            }
        }
    }
}

/// A note says how often; told once is enough.
fn without_counts(note: &str) -> String {
    note.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// Paths in the arguments of a call that failed that its session may not read, with what grants them. The kernel tells nobody which
/// file it refused, so this goes by what the call names. What a server's error names is the server's to choose, and is not told.
pub(super) fn paths(session: &Session, arguments: &Value) -> Vec<String> {
    let mut named = Vec::new();
    strings(arguments, &mut |text| named.extend(text.strip_prefix("file://").or(Some(text)).map(str::to_owned)));
    let refused: BTreeSet<HostPath> = named
        .iter()
        .filter(|text| text.starts_with('/') && !text.starts_with("//") && text.len() > 1 && text.len() < PATH_MAX)
        .filter_map(|text| normalize(&"/".into(), &HostPath::from(text.as_str())).ok())
        .filter(|path| !session.effective().allows_read(path))
        .collect();
    // It may be typed as it is told.
    let plain = |path: &str| path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+@".contains(c));
    let hint = |path: &HostPath| match path.to_string() {
        path if plain(&path) => {
            format!("a call that failed names {path}, which is not granted; to grant it: --read {path}")
        }
        path => format!("a call that failed names {path:?}, which is not granted; --read or --write grants a path"),
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
