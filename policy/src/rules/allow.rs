//! Calls that the mode `allowlist` allows (C-4).

use std::fmt;

use super::commands::CommandPart;
use super::pattern::Wildcard;

/// An entry of `allowlist`: a tool's name, or `name:keys` with a pattern for the key of an approval (C-4, X1-8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowEntry {
    tool: String,
    keys: Option<Wildcard>,
}

impl AllowEntry {
    /// Reads one. A server's tool has colons of its own: `mcp:server:tool:keys`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let colons = if text.starts_with("mcp:") { 2 } else { 0 };
        let mut at = text.match_indices(':').skip(colons).map(|(at, _)| at);
        match at.next() {
            Some(at) => Self { tool: text[..at].to_owned(), keys: Some(Wildcard::new(&text[at + 1..])) },
            None => Self { tool: text.to_owned(), keys: None },
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

    /// True if it allows a call.
    #[must_use]
    pub fn matches(&self, tool: &str, key: &str) -> bool {
        self.tool == tool && self.keys.as_ref().is_none_or(|keys| keys.matches(key))
    }

    /// True if it allows a command, as a rule would.
    #[doc(hidden)]
    #[must_use]
    pub fn covers(&self, tool: &str, command: &CommandPart) -> bool {
        self.tool == tool && self.keys.as_ref().is_none_or(|keys| keys.covers(command))
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

    /// C-4: both forms that the same page has.
    #[test]
    fn an_entry_is_a_name_or_a_name_with_keys() {
        assert!(AllowEntry::parse("read").matches("read", "any"));
        assert!(!AllowEntry::parse("read").matches("reader", "any"));
        let git = AllowEntry::parse("bash:git *");
        assert!(git.matches("bash", "git log") && !git.matches("bash", "rm x") && !git.matches("read", "git log"));
        let issue = AllowEntry::parse("mcp:hub:issue:42");
        assert!(issue.matches("mcp:hub:issue", "42") && !issue.matches("mcp:hub:issue", "43"));
        assert!(AllowEntry::parse("mcp:hub:issue").matches("mcp:hub:issue", "43"));
    }
}
