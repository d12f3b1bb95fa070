//! Which tools there are, unless the manifest lists them.

/// `profile`. Parsed here; it gets its force where tools are registered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Profile {
    /// Tools that change nothing.
    Readonly,
    /// All tools.
    #[default]
    Developer,
    /// For evaluations: nothing that asks.
    Eval,
    /// For planning.
    Plan,
}

impl Profile {
    /// The names in a manifest.
    pub const NAMES: [&str; 4] = ["readonly", "developer", "eval", "plan"];

    /// Reads a name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "readonly" => Some(Self::Readonly),
            "developer" => Some(Self::Developer),
            "eval" => Some(Self::Eval),
            "plan" => Some(Self::Plan),
            _ => None,
        }
    }
}
