//! Calls that the mode `allowlist` allows (C-4).

use std::fmt;
use std::path::Path;

use super::act::Act;
use super::wildcard::Wildcard;
use crate::effect::ServedRequest;
use crate::path::HostPath;

/// An entry of `allowlist`: a tool's name, or `name:keys` with a pattern for the key of an approval (C-4, X1-8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowEntry {
    tool: String,
    keys: Option<Wildcard>,
    root: Option<HostPath>,
}

impl AllowEntry {
    /// Reads one. A server's tool has colons of its own: `mcp:server:tool:keys`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let colons = if text.starts_with("mcp:") { 2 } else { 0 };
        let mut at = text.match_indices(':').skip(colons).map(|(at, _)| at);
        match at.next() {
            Some(at) => Self { tool: text[..at].to_owned(), keys: Some(Wildcard::new(&text[at + 1..])), root: None },
            None => Self { tool: text.to_owned(), keys: None, root: None },
        }
    }

    /// The tool that it is about.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// True if it allows some of the tool's calls alone.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        self.keys.is_some()
    }

    /// True if it allows an act of a tool's call. A command is compared as a rule compares it; of files the directory, of hosts the name,
    /// of anything else its text (X1-7).
    #[doc(hidden)]
    #[must_use]
    pub fn covers(&self, tool: &str, act: &Act<'_>) -> bool {
        let Some(keys) = self.keys.as_ref().filter(|_| self.tool == tool) else { return self.tool == tool };
        match act {
            Act::Command(command) => keys.covers(command),
            Act::File(path) => self.covers_directory(keys, path.as_path().parent()),
            Act::Tree(path) | Act::Search(path) => self.covers_directory(keys, Some(path.as_path())),
            Act::Host(host, _) => keys.matches(host),
            Act::Agent(part) => keys.matches(part.agent),
            Act::Request(ServedRequest { words: Some(words), .. }) => keys.matches(words),
            Act::Request(ServedRequest { arguments, .. }) => keys.matches(&arguments.to_string()),
            Act::Nothing
            | Act::FileLike(_)
            | Act::Input { .. }
            | Act::UnknownCommand
            | Act::WholeLine
            | Act::Anything => false,
        }
    }

    /// A directory is named from the root of the workspace, which is `.`, or by its absolute path.
    fn covers_directory(&self, keys: &Wildcard, directory: Option<&Path>) -> bool {
        let Some(directory) = directory else { return false };
        let below = self.root.as_ref().and_then(|root| directory.strip_prefix(root.as_path()).ok());
        match below.unwrap_or(directory).to_str() {
            Some("") => keys.matches("."),
            Some(directory) => keys.matches(directory),
            // A name that is not UTF-8 has no text that could not be another's.
            None => false,
        }
    }

    /// This entry, for a workspace with this root.
    #[must_use]
    pub fn within(self, root: HostPath) -> Self {
        Self { root: Some(root), ..self }
    }
}

impl fmt::Display for AllowEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.tool)?;
        self.keys.as_ref().map_or(Ok(()), |keys| write!(f, ":{}", keys.text()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::CommandPart;

    /// C-4: both forms that the same page has.
    #[test]
    fn an_entry_is_a_name_or_a_name_with_keys() {
        let covers =
            |entry: &str, tool: &str, act: &Act<'_>| AllowEntry::parse(entry).within("/w".into()).covers(tool, act);
        let command = |text: &str| Act::Command(CommandPart::of_text(text));
        let (file, below) = (HostPath::from("/w/x"), HostPath::from("/w/src/x"));
        assert!(covers("read", "read", &Act::File(&file)) && !covers("read", "reader", &Act::File(&file)));
        assert!(covers("bash:git *", "bash", &command("git log")) && !covers("bash:git *", "bash", &command("rm x")));
        assert!(!covers("bash:git *", "read", &command("git log")));
        assert!(covers("write:.", "write", &Act::File(&file)) && !covers("write:.", "write", &Act::File(&below)));
        assert!(covers("write:src*", "write", &Act::File(&below)) && !covers("write:src*", "write", &Act::File(&file)));
        assert!(covers("web_fetch:a.com", "web_fetch", &Act::Host("a.com", 443)));
        let request =
            |value: u32| ServedRequest { tool: String::new(), arguments: value.into(), key: None, words: None };
        let covers_issue = |entry: &str, number| covers(entry, "mcp:hub:issue", &Act::Request(&request(number)));
        assert!(covers_issue("mcp:hub:issue:42", 42) && !covers_issue("mcp:hub:issue:42", 43));
        assert!(covers_issue("mcp:hub:issue", 43));
    }
}
