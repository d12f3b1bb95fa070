//! Patterns about requests that somebody else carries out: a server's tool, the host's, a declared one.

use serde_json::Value;

use crate::effect::ServedRequest;
use crate::path::{HostPath, normalize};
use crate::pattern::{PathPattern, PathTemplate};
use crate::variable::Variables;

use super::commands::CommandPart;
use super::pattern::Wildcard;

/// A pattern for arguments: `NAME=PATTERN` is about the argument of that name, any other about all of them.
///
/// An argument is compared as a text, and as a path from the root of the workspace. A rule that denies or asks applies if one of them
/// may be meant, or if the arguments as JSON match. A rule that allows applies only if each of them is covered, or each of the one
/// that it names.
#[derive(Debug, Clone)]
pub(super) struct RequestPattern {
    written: String,
    argument: Option<String>,
    text: Wildcard,
    paths: Vec<PathPattern>,
    root: HostPath,
}

impl RequestPattern {
    pub(super) fn new(written: &str, variables: &Variables) -> Self {
        let is_name = |name: &str| {
            !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-' || c == '.')
        };
        let (argument, text) = match written.split_once('=').filter(|(name, _)| is_name(name)) {
            Some((name, text)) => (Some(name.to_owned()), text),
            None => (None, written),
        };
        let paths = PathTemplate::parse(text).map(|template| template.expand(variables)).unwrap_or_default();
        let root = variables.workspace().first().cloned().unwrap_or_else(|| HostPath::from("/"));
        Self { written: written.to_owned(), argument, text: Wildcard::new(text), paths, root }
    }

    /// As it is written.
    pub(super) fn text(&self) -> &str {
        &self.written
    }

    /// True if the request may be meant.
    pub(super) fn touches(&self, request: &ServedRequest) -> bool {
        let words = request.words.as_deref();
        words.is_some_and(|words| self.text.is_about(&CommandPart::of_text(words)))
            || self.leaves(request).is_none_or(|leaves| leaves.iter().any(|leaf| self.means(leaf)))
            || (self.argument.is_none() && self.text.matches(&request.arguments.to_string()))
    }

    /// True if everything that the request may mean is meant.
    pub(super) fn covers(&self, request: &ServedRequest) -> bool {
        if let Some(words) = &request.words {
            return self.text.covers(&CommandPart::of_text(words));
        }
        let leaves = self.leaves(request).unwrap_or_default();
        !leaves.is_empty() && leaves.iter().all(|leaf| self.covers_leaf(leaf))
    }

    /// The texts of the arguments that it is about; of one that is no text, its JSON. `None` if there are too many to look at.
    fn leaves(&self, request: &ServedRequest) -> Option<Vec<String>> {
        let mut leaves = Vec::new();
        match &self.argument {
            Some(name) => collect(&request.arguments[name], &mut leaves),
            None => collect(&request.arguments, &mut leaves),
        }
        (leaves.len() <= LEAVES_MAX).then_some(leaves)
    }

    fn means(&self, leaf: &str) -> bool {
        self.text.matches(leaf)
            || self.path_of(leaf).is_some_and(|path| self.paths.iter().any(|one| one.matches(&path)))
    }

    fn covers_leaf(&self, leaf: &str) -> bool {
        // A path is covered as what it leads to; another text only if nothing in it leads elsewhere.
        let leads_out = leaf.split('/').any(|component| component == "..");
        let as_path = || self.path_of(leaf).is_some_and(|path| self.paths.iter().any(|one| one.matches(&path)));
        (!leads_out && self.text.matches(leaf)) || as_path()
    }

    fn path_of(&self, leaf: &str) -> Option<HostPath> {
        let path = leaf.strip_prefix("file://").unwrap_or(leaf);
        normalize(&self.root, &HostPath::from(path)).ok()
    }
}

/// Most texts that are looked at: more of them may be anything.
const LEAVES_MAX: usize = 10_000;

fn collect(value: &Value, leaves: &mut Vec<String>) {
    if leaves.len() > LEAVES_MAX {
        return;
    }
    match value {
        Value::Null => {}
        Value::String(text) => leaves.push(text.clone()),
        Value::Bool(_) | Value::Number(_) => leaves.push(value.to_string()),
        Value::Array(values) => values.iter().for_each(|value| collect(value, leaves)),
        Value::Object(members) => members.values().for_each(|value| collect(value, leaves)),
    }
}
