//! What happens to a call that no rule decides.

/// `mode`. Parsed here; it gets its force where rules are judged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// Ask a person; without one, deny (S0-52, S0-57).
    #[default]
    Ask,
    /// Allow what is listed.
    Allowlist,
    /// Allow.
    Yolo,
}

impl Mode {
    /// The names in a manifest.
    pub const NAMES: [&str; 3] = ["ask", "allowlist", "yolo"];

    /// Reads a name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "ask" => Some(Self::Ask),
            "allowlist" => Some(Self::Allowlist),
            "yolo" => Some(Self::Yolo),
            _ => None,
        }
    }
}
