//! A surface: the names under which one session sees the tools, and the limits it puts on their results (S2-1, C-22).

/// Names and limits over one implementation each. A session has one surface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surface {
    /// Its own name.
    pub name: &'static str,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    visible: &'static str,
    tool: &'static str,
    /// Bytes.
    output_limit: usize,
}

/// S0-48's limit for `read` and `bash`, bytes.
const OUTPUT: usize = 200 * 1024;

impl Surface {
    /// The locked names (S0-9), with S0-48's limits.
    #[must_use]
    pub fn locked() -> Self {
        let entry = |name| Entry { visible: name, tool: name, output_limit: OUTPUT };
        Self { name: "locked", entries: vec![entry("read"), entry("write"), entry("bash")] }
    }

    pub(super) fn resolve(&self, visible: &str) -> Option<&'static str> {
        self.entries.iter().find(|entry| entry.visible == visible).map(|entry| entry.tool)
    }

    pub(super) fn output_limit(&self, tool: &str) -> usize {
        self.entries.iter().find(|entry| entry.tool == tool).map_or(OUTPUT, |entry| entry.output_limit)
    }
}
