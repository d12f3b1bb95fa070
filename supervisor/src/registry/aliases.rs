//! Names that tools once had, and that models still call (S2-23, S2-24). They are listed nowhere, and go with one version (C-25).

/// The version from which they are unknown.
pub(crate) const REMOVED_IN: &str = "0.8.0";
/// Version of removal, to compare with.
const REMOVED: Version = (0, 8, 0);

/// Major, minor and patch.
pub(crate) type Version = (u64, u64, u64);

/// This build's.
pub(crate) const VERSION: Version = (
    number(env!("CARGO_PKG_VERSION_MAJOR")),
    number(env!("CARGO_PKG_VERSION_MINOR")),
    number(env!("CARGO_PKG_VERSION_PATCH")),
);

/// An old name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Alias {
    pub(crate) name: &'static str,
    /// The tool's own name.
    pub(crate) instead: &'static str,
}

const fn alias(name: &'static str, instead: &'static str) -> Alias {
    Alias { name, instead }
}

const ALIASES: &[Alias] = &[
    alias("spawn_agent", "agent_spawn"),
    alias("delegate_to_agent", "agent_spawn"),
    alias("close_agent", "agent_cancel"),
    alias("assign_agent", "agent_assign"),
    alias("send_input", "agent_send_input"),
];

/// The old name, if this version still takes it.
pub(crate) fn deprecated(name: &str, version: Version) -> Option<&'static Alias> {
    find(name).filter(|_| version < REMOVED)
}

/// Message to a call by an old name, in a version that takes it no more.
pub(crate) fn removed(name: &str, version: Version) -> Option<String> {
    let alias = find(name).filter(|_| version >= REMOVED)?;
    Some(format!("there is no tool `{name}`: it was removed in {REMOVED_IN}; call `{}`", alias.instead))
}

fn find(name: &str) -> Option<&'static Alias> {
    ALIASES.iter().find(|alias| alias.name == name)
}

/// A decimal number.
const fn number(text: &str) -> u64 {
    let (bytes, mut at, mut number) = (text.as_bytes(), 0, 0);
    while at < bytes.len() {
        number = number * 10 + (bytes[at] - b'0') as u64;
        at += 1;
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C-25, S2-23, S2-24: until 0.8.0 an old name stands for a tool; from then on it is unknown, and the error names the tool.
    #[test]
    fn c_25_s2_23_s2_24_old_names_go_with_their_version() {
        let all = [
            ("spawn_agent", "agent_spawn"),
            ("delegate_to_agent", "agent_spawn"),
            ("close_agent", "agent_cancel"),
            ("assign_agent", "agent_assign"),
            ("send_input", "agent_send_input"),
        ];
        for (name, instead) in all {
            for before in [(0, 0, 0), (0, 6, 2), (0, 7, 99), VERSION] {
                assert_eq!(deprecated(name, before).map(|alias| alias.instead), Some(instead), "{name} {before:?}");
                assert_eq!(removed(name, before), None, "{name} {before:?}");
            }
            for from in [(0, 8, 0), (0, 8, 1), (0, 10, 0), (1, 0, 0)] {
                assert_eq!(deprecated(name, from), None, "{name} {from:?}");
                let text = removed(name, from).unwrap_or_default();
                assert_eq!(text, format!("there is no tool `{name}`: it was removed in 0.8.0; call `{instead}`"));
            }
        }
        for other in ["agent_spawn", "agent_send_input", "wait", "", "spawn"] {
            assert_eq!((deprecated(other, (0, 1, 0)), removed(other, (0, 8, 0))), (None, None), "{other}");
        }
    }
}
