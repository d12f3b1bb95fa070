//! Parts of a table of system calls, how it is printed, and the shorthand that the tables are written in.

use std::fmt;

use serde::Serialize;

use crate::plan::{Starter, Strength, Writer};

/// The architectures that filters are made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arch {
    /// `AUDIT_ARCH_X86_64`.
    X86_64,
    /// `AUDIT_ARCH_AARCH64`.
    Aarch64,
}

/// Variant of the base filter: what it depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Variant {
    /// Without namespaces, more is shared with the host and more has to be judged.
    pub strength: Strength,
    /// The Landlock ABI in use, 1 to 7: below 6 there is no signal scope, and signals have to be judged.
    pub landlock_abi: u8,
    /// Writer of files: where names are kept, the broker is asked about all that changes files.
    pub writer: Writer,
    /// Starter of programs: whether the broker is asked about each that is started.
    pub starter: Starter,
    /// True if a call's processes may trace one another. Never together with [`Starter::Broker`], who traces them itself.
    pub debug: bool,
}

/// The errors that filters return. Their numbers are the same on all architectures of [`Arch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Errno {
    /// No error: the call returns 0 and does nothing.
    Success,
    /// Operation not permitted.
    Eperm,
    /// Permission denied.
    Eacces,
    /// Invalid argument: no such command.
    Einval,
    /// Not for this descriptor: no such control.
    Enotty,
    /// No such system call.
    Enosys,
    /// Not supported on this socket, or by this file system.
    Eopnotsupp,
    /// No such option of a socket.
    Enoprotoopt,
    /// No such address family.
    Eafnosupport,
}

impl Errno {
    /// The number, as in `errno`.
    pub fn number(self) -> u16 {
        match self {
            Self::Success => 0,
            Self::Eperm => 1,
            Self::Eacces => 13,
            Self::Einval => 22,
            Self::Enotty => 25,
            Self::Enosys => 38,
            Self::Enoprotoopt => 92,
            Self::Eopnotsupp => 95,
            Self::Eafnosupport => 97,
        }
    }

    /// The name, as in errno(3).
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "success, doing nothing",
            Self::Eperm => "EPERM",
            Self::Eacces => "EACCES",
            Self::Einval => "EINVAL",
            Self::Enotty => "ENOTTY",
            Self::Enosys => "ENOSYS",
            Self::Enoprotoopt => "ENOPROTOOPT",
            Self::Eopnotsupp => "EOPNOTSUPP",
            Self::Eafnosupport => "EAFNOSUPPORT",
        }
    }
}

/// Verdict on a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallVerdict {
    /// The kernel carries it out.
    Allow,
    /// The broker is asked, and carries it out itself where that is granted.
    Notify,
    /// It fails.
    Errno(Errno),
}

/// A number that a call's argument is compared with, and its name in the kernel's headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Operand {
    /// How it is printed.
    pub name: &'static str,
    x86_64: u64,
    aarch64: u64,
}

impl Operand {
    /// One value on every architecture.
    pub const fn new(name: &'static str, value: u64) -> Self {
        Self { name, x86_64: value, aarch64: value }
    }

    /// A value that the architectures do not agree on, such as `O_NOFOLLOW`.
    pub const fn by_arch(name: &'static str, x86_64: u64, aarch64: u64) -> Self {
        Self { name, x86_64, aarch64 }
    }

    /// The value on one architecture.
    pub fn value(self, arch: Arch) -> u64 {
        match arch {
            Arch::X86_64 => self.x86_64,
            Arch::Aarch64 => self.aarch64,
        }
    }
}

/// How much of an argument counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Width {
    /// The low 32 bits: the kernel's type is `int` or `unsigned int`, or it drops the upper half itself.
    Low32,
    /// All 64 bits: the kernel's type is `long` and it looks at all of it.
    Full64,
}

/// One comparison of one argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Condition {
    /// Which argument, 0 to 5.
    pub arg: u8,
    /// How much of it.
    pub width: Width,
    /// If given, the bits that count.
    pub mask: Option<Operand>,
    /// Value that they must equal.
    pub value: Operand,
}

/// A verdict for calls whose arguments meet every condition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ArgRule {
    /// Never empty.
    pub when: Vec<Condition>,
    /// Verdict that follows.
    pub then: CallVerdict,
}

/// Action on a call by its name, or by its name and arguments.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallAction {
    /// Whatever its arguments.
    Always(CallVerdict),
    /// The first rule that matches decides.
    Args {
        /// In order.
        rules: Vec<ArgRule>,
        /// When none matches.
        otherwise: CallVerdict,
    },
}

/// Calls that have one reason in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallGroup {
    /// Title of its calls.
    pub title: &'static str,
    /// Reason why they are treated so.
    pub why: &'static str,
    /// The ids of the attacks that this closes, as in the threat model.
    pub attacks: &'static [&'static str],
    /// Names, with spaces between, and what happens to each of them.
    pub calls: Vec<(&'static str, CallAction)>,
}

/// A table of system calls.
///
/// Invariant: no name appears twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Filter {
    /// Purpose of the filter.
    pub title: String,
    /// Verdict on every number that no group names.
    pub default: CallVerdict,
    /// The table.
    pub groups: Vec<CallGroup>,
}

impl Filter {
    /// Every name with its action, in the table's order.
    pub fn calls(&self) -> impl Iterator<Item = (&'static str, &CallAction)> {
        self.groups
            .iter()
            .flat_map(|group| &group.calls)
            .flat_map(|(names, action)| names.split_whitespace().map(move |name| (name, action)))
    }
}

/// One line per verdict and rule, for `policy explain`.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        writeln!(f, "  another architecture, or x32: kill the process")?;
        writeln!(f, "  a call that is not named: {}", self.default)?;
        for group in &self.groups {
            write!(f, "\n{}", group.title)?;
            if !group.attacks.is_empty() {
                write!(f, " [{}]", group.attacks.join(" "))?;
            }
            writeln!(f, "\n  # {}", group.why)?;
            for (names, action) in &group.calls {
                match action {
                    CallAction::Always(verdict) => writeln!(f, "  {verdict}: {names}")?,
                    CallAction::Args { rules, otherwise } => {
                        writeln!(f, "  by arguments: {names}")?;
                        for rule in rules {
                            writeln!(f, "    {rule}")?;
                        }
                        writeln!(f, "    otherwise: {otherwise}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for CallVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allow => f.write_str("allow"),
            Self::Notify => f.write_str("ask the broker"),
            Self::Errno(errno) => f.write_str(errno.name()),
        }
    }
}

impl fmt::Display for ArgRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, condition) in self.when.iter().enumerate() {
            let joint = if index == 0 { "" } else { " and " };
            write!(f, "{joint}{condition}")?;
        }
        write!(f, ": {}", self.then)
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "arg{}", self.arg)?;
        if self.width == Width::Full64 {
            write!(f, " (64 bits)")?;
        }
        match self.mask {
            Some(mask) => write!(f, " & {} == {}", mask.name, self.value.name),
            None => write!(f, " == {}", self.value.name),
        }
    }
}

pub(super) const ALLOW: CallAction = CallAction::Always(CallVerdict::Allow);
pub(super) const NOTIFY: CallAction = CallAction::Always(CallVerdict::Notify);
pub(super) const DENY: CallAction = CallAction::Always(EPERM);
pub(super) const ABSENT: CallAction = CallAction::Always(CallVerdict::Errno(Errno::Enosys));
pub(super) const EPERM: CallVerdict = CallVerdict::Errno(Errno::Eperm);
pub(super) const EACCES: CallVerdict = CallVerdict::Errno(Errno::Eacces);

pub(super) fn equal(arg: u8, value: Operand) -> Condition {
    Condition { arg, width: Width::Low32, mask: None, value }
}

pub(super) fn equal_64(arg: u8, value: Operand) -> Condition {
    Condition { arg, width: Width::Full64, mask: None, value }
}

pub(super) fn masked(arg: u8, mask: Operand, value: Operand) -> Condition {
    Condition { arg, width: Width::Low32, mask: Some(mask), value }
}

pub(super) fn has_all(arg: u8, bits: Operand) -> Condition {
    masked(arg, bits, bits)
}

/// A verdict for each number of a list.
pub(super) fn by_command(arg: u8, lists: &[(&[Operand], CallVerdict)]) -> Vec<ArgRule> {
    let each = lists.iter().flat_map(|(list, then)| list.iter().map(|command| (*command, *then)));
    each.map(|(command, then)| ArgRule { when: vec![equal(arg, command)], then }).collect()
}
