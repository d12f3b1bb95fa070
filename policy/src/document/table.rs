//! Reading a tree of values: which keys there are, and of what kind their values must be.

use std::fmt::Display;
use std::ops::Range;

use super::error::Fault;
use super::tree::{DocumentValue, Entry, Node};

/// A table whose keys are all known.
pub(crate) struct Table {
    span: Range<usize>,
    what: &'static str,
    entries: Vec<Entry>,
}

impl Table {
    pub(crate) fn of(node: Node, what: &'static str, known: &[&str]) -> Result<Self, Fault> {
        let DocumentValue::Table(entries) = node.value else { return Err(wrong(&node, "a table")) };
        match entries.iter().find(|entry| !known.contains(&entry.key.as_str())) {
            Some(entry) => {
                let fault = Fault::new(entry.key_span.clone(), format!("{what} has no key {:?}", entry.key));
                Err(fault.with_help(format!("there are {}", known.join(", "))))
            }
            None => Ok(Self { span: node.span, what, entries }),
        }
    }

    /// A table that may have other keys as well.
    pub(crate) fn open(node: Node, what: &'static str) -> Result<Self, Fault> {
        let DocumentValue::Table(entries) = node.value else { return Err(wrong(&node, "a table")) };
        Ok(Self { span: node.span, what, entries })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Where a key stands that has not been read yet.
    pub(crate) fn place(&self, key: &str) -> Option<usize> {
        self.entries.iter().find(|entry| entry.key == key).map(|entry| entry.key_span.start)
    }

    pub(crate) fn optional<T>(
        &mut self,
        key: &str,
        read: impl FnOnce(Node) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        match self.entries.iter().position(|entry| entry.key == key) {
            Some(at) => read(self.entries.swap_remove(at).node).map(Some),
            None => Ok(None),
        }
    }

    pub(crate) fn required<T>(&mut self, key: &str, read: impl FnOnce(Node) -> Result<T, Fault>) -> Result<T, Fault> {
        let missing = || Fault::new(self.span.clone(), format!("{} needs the key {key:?}", self.what));
        let missing = missing();
        self.optional(key, read)?.ok_or(missing)
    }
}

pub(crate) fn wrong(node: &Node, wanted: &str) -> Fault {
    Fault::new(node.span.clone(), format!("{wanted} is needed here, not {}", node.value.kind()))
}

pub(crate) fn text(node: Node) -> Result<String, Fault> {
    match node.value {
        DocumentValue::Text(text) => Ok(text),
        DocumentValue::Table(_)
        | DocumentValue::Array(_)
        | DocumentValue::Integer(_)
        | DocumentValue::Bool(_)
        | DocumentValue::Other(_) => Err(wrong(&node, "a string")),
    }
}

/// A string with something in it.
pub(crate) fn name(node: Node) -> Result<String, Fault> {
    let span = node.span.clone();
    let text = text(node)?;
    match text.chars().find(|c| c.is_control()) {
        Some(c) => Err(Fault::new(span, format!("the string holds the control character {c:?}"))),
        None if text.is_empty() => Err(Fault::new(span, "the string is empty")),
        None => Ok(text),
    }
}

pub(crate) fn boolean(node: Node) -> Result<bool, Fault> {
    if let DocumentValue::Bool(truth) = node.value { Ok(truth) } else { Err(wrong(&node, "a boolean")) }
}

pub(crate) fn count(node: Node) -> Result<u64, Fault> {
    let DocumentValue::Integer(number) = node.value else { return Err(wrong(&node, "an integer")) };
    match u64::try_from(number) {
        Ok(number) if number > 0 => Ok(number),
        Ok(_) | Err(_) => Err(Fault::new(node.span, "the limit must be above zero")),
    }
}

pub(crate) fn parsed<T, E: Display>(node: Node, parse: impl FnOnce(&str) -> Result<T, E>) -> Result<T, Fault> {
    let span = node.span.clone();
    parse(&text(node)?).map_err(|error| Fault::new(span, error.to_string()))
}

pub(crate) fn choice<T>(node: Node, parse: impl FnOnce(&str) -> Option<T>, names: &[&str]) -> Result<T, Fault> {
    let span = node.span.clone();
    let name = text(node)?;
    parse(&name).ok_or_else(|| Fault::new(span, format!("{name:?} is not one of {}", names.join(", "))))
}

pub(crate) fn list<T>(node: Node, read: impl FnMut(Node) -> Result<T, Fault>) -> Result<Vec<T>, Fault> {
    match node.value {
        DocumentValue::Array(items) => items.into_iter().map(read).collect(),
        DocumentValue::Table(_)
        | DocumentValue::Text(_)
        | DocumentValue::Integer(_)
        | DocumentValue::Bool(_)
        | DocumentValue::Other(_) => Err(wrong(&node, "an array")),
    }
}
