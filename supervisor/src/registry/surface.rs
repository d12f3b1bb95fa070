//! A surface: the names under which one session sees the tools, and the limits it puts on their results (S2-1, C-22).

/// Names and limits over one implementation each. A session has one surface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Surface {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    visible: String,
    tool: String,
    /// In the tool's own unit.
    output_limit: u64,
}

impl Entry {
    fn plain(name: &str, output_limit: u64) -> Self {
        Self { visible: name.to_owned(), tool: name.to_owned(), output_limit }
    }
}

/// S0-48's limit for `read` and `bash`, bytes.
const OUTPUT: u64 = 200 * 1024;
/// S0-48's limit for `glob`, paths.
const PATHS: u64 = 1000;
/// S0-48's limit for `grep`, matches.
const MATCHES: u64 = 200;

impl Surface {
    /// The locked names (S0-9), with S0-48's limits.
    pub(super) fn locked() -> Self {
        let entry = |(name, output_limit): (&str, u64)| Entry::plain(name, output_limit);
        let (short, bytes) =
            (["write", "edit"].map(|name| (name, OUTPUT)), ["read", "bash", "web_fetch"].map(|name| (name, OUTPUT)));
        let hosted = ["todo", "question", "skill", "tool_search"].map(|name| (name, OUTPUT));
        let entries =
            [("glob", PATHS), ("grep", MATCHES)].into_iter().chain(bytes).chain(short).chain(hosted).map(entry);
        Self { entries: entries.collect() }
    }

    /// Shows one more tool, under its own name.
    pub(super) fn show(&mut self, tool: &str) {
        self.entries.push(Entry::plain(tool, OUTPUT));
    }

    /// Shows a tool that may be shown already.
    pub(super) fn show_once(&mut self, tool: &str) {
        if self.resolve(tool).is_none() {
            self.show(tool);
        }
    }

    pub(super) fn resolve(&self, visible: &str) -> Option<&str> {
        self.entries.iter().find(|entry| entry.visible == visible).map(|entry| entry.tool.as_str())
    }

    pub(super) fn output_limit(&self, tool: &str) -> u64 {
        self.entries.iter().find(|entry| entry.tool == tool).map_or(OUTPUT, |entry| entry.output_limit)
    }
}
