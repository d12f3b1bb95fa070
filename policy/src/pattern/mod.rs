//! Patterns of a manifest, matched against what a call asks for: paths, hosts, arguments (S0-36 to S0-39).

mod arg;
mod glob;
mod host;
mod path;
mod program;

pub(crate) use glob::Glob;

pub use arg::{ArgPattern, ArgPatterns};
pub(crate) use host::in_network;
pub use host::{Host, HostPattern, Ports};
pub use path::{PathPattern, PathTemplate};
pub use program::ProgramPattern;

/// Mistake in a pattern. Each is found when the manifest is compiled, never when a call is checked (S0-41).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// Nothing was written.
    #[error("the pattern is empty")]
    Empty,
    /// A NUL, a line break or another control character.
    #[error("the pattern holds the control character {0:?}")]
    Control(char),
    /// `.` or `..`: a pattern is compared with resolved paths, so it could only mislead.
    #[error("the component {0:?} is not allowed in a pattern; write the path it stands for")]
    Dots(String),
    /// `a//b`, or a slash at the end.
    #[error("the pattern has an empty component; to grant a directory and all beneath it write `dir/**`")]
    EmptyComponent,
    /// `~` is the shell's, and workers have a home of their own.
    #[error("`~` is not expanded; write the absolute path")]
    Home,
    /// A variable of the shell's.
    #[error(
        "`{0}` is a variable of the shell's and is not expanded; write the absolute path, or a path from the workspace"
    )]
    ShellVariable(String),
    /// Blanks before or behind it.
    #[error("no blanks may stand before or behind a path; for a name that ends in one write `?`")]
    Blank,
    /// A name in braces that is no variable (S0-41).
    #[error("the variable {{{0}}} is not defined; there are {{workspace}}, {{ad-hoc}} and {{user-data}}")]
    UndefinedVariable(String),
    /// A variable in the middle.
    #[error("the variable {{{0}}} may stand only at the start of a pattern, before a `/`")]
    VariablePosition(String),
    /// A variable that stands for directories, in a host pattern.
    #[error("the variable {{{0}}} stands for directories; no host is named so")]
    VariableInHost(String),
    /// Braces within braces, or one without its other.
    #[error("braces must be closed and cannot be nested")]
    Braces,
    /// Another mistake in a glob.
    #[error("not a glob: {0}")]
    Glob(String),
    /// A host name with something in it that no host name has.
    #[error("{0:?} cannot be in a host pattern")]
    HostCharacter(char),
    /// Not ASCII, and no name by IDNA.
    #[error("no internationalised host name is written so (IDNA 2008)")]
    NotPunycode,
    /// An internationalised name that programs read differently, or that is not what it looks like.
    #[error("{name:?} can be read as more than one host; write it as {ascii}")]
    UnclearName {
        /// As it is written.
        name: String,
        /// As IDNA reads it.
        ascii: String,
    },
    /// An empty, long or misspelt label.
    #[error("{0:?} is not a label of a host name")]
    Label(String),
    /// More than 253 characters.
    #[error("a host name has at most 253 characters")]
    HostLength,
    /// `0x7f.1`, `0177.0.0.1`, `2130706433`: read differently by different programs.
    #[error("{0:?} looks like an IP address in an unusual form; write four decimal numbers")]
    OddAddress(String),
    /// An IPv4 address inside IPv6.
    #[error("{0} holds an IPv4 address; write that address itself")]
    EmbeddedV4(std::net::Ipv6Addr),
    /// `*` elsewhere than as the first label.
    #[error("`*` may stand only as the whole first label: `*.example.com`")]
    HostWildcard,
    /// Not 1 to 65535, not a range of these, not a word for ports.
    #[error(
        "{0:?} is not a port; write `:8080`, a list (`:80,443`), a range (`:8000-8099`), `:http`, `:https`, or `:*` for all"
    )]
    Port(String),
    /// The length of a network's prefix, or host bits that are not zero.
    #[error("{0:?} is not a network; write it as `10.0.0.0/8`")]
    Network(String),
    /// `{rest = true}` before the last place.
    #[error("`rest` matches all remaining arguments and so may only be the last pattern")]
    RestNotLast,
    /// A program that is neither a name, nor an absolute path, nor `*`.
    #[error("{0:?} is not a program: write its name, its absolute path, or `*`")]
    Program(String),
    /// Programs by a pattern of another form than `DIR/**`.
    #[error(
        "{0:?} is no pattern for programs: write each by its path (`{{workspace}}/target/x.sh`), all below a directory \
         (`{{workspace}}/target/**`), or `*` for any"
    )]
    Programs(String),
}

/// The pattern that matches this path and no other.
pub(crate) fn escaped_pattern(path: &str) -> String {
    let special = |c: char| matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '\\');
    path.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}
