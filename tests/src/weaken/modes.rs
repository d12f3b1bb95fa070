//! Each way in which a host can be weaker, as rules on system calls.

use callgate_tests::errno;
use syscalls::Sysno;

use crate::bpf::{ArgumentCondition, BpfRule, KernelAnswer};
use crate::docker;

/// One weakness of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Weakness {
    /// No namespace can be made or joined, as under AppArmor's restriction of user namespaces or a hardened service.
    NoUserns,
    /// Docker's default seccomp profile; for root also its default set of capabilities.
    Docker,
    /// A kernel without Landlock.
    NoLandlock,
    /// Yama's restriction of ptrace, as far as a filter can imitate it.
    ///
    /// Stricter than `ptrace_scope` 1, which lets an ancestor attach, and than 2, which lets CAP_SYS_PTRACE: here nobody
    /// attaches. Weaker in one point: opening `/proc/PID/mem` cannot be filtered by seccomp, which sees no paths.
    Yama,
    /// One call fails, perhaps only with certain arguments.
    Fail(BpfRule),
    /// An older Landlock: the version query answers this, and rights unknown to it are refused.
    Abi(i64),
    /// Another user, without supplementary groups.
    Uid(u32),
    /// The network and mount namespaces of this process.
    Enter(u32),
}

/// Every flag of clone(2) that makes a namespace: CGROUP, UTS, IPC, USER, PID, NET and NEWNS.
pub(crate) const NAMESPACES: u64 = 0x7e02_0000;
/// CLONE_NEWTIME, which only unshare and clone3 know; in clone it is part of the signal.
const TIME_NAMESPACE: u64 = 0x80;

const EPERM: KernelAnswer = KernelAnswer::Errno(libc::EPERM);
const ENOSYS: KernelAnswer = KernelAnswer::Errno(libc::ENOSYS);

impl Weakness {
    /// Takes one mode, with its arguments, off the front of `words`.
    pub(crate) fn parse(words: &[String]) -> Result<(Self, &[String]), String> {
        let (name, rest) = words.split_first().ok_or("no mode")?;
        let one = || rest.split_first().ok_or(format!("{name} wants an argument"));
        match name.as_str() {
            "no-userns" => Ok((Self::NoUserns, rest)),
            "docker" => Ok((Self::Docker, rest)),
            "no-landlock" => Ok((Self::NoLandlock, rest)),
            "yama" => Ok((Self::Yama, rest)),
            "abi" => {
                let (version, rest) = one()?;
                let version = version.parse().map_err(|_not_number| format!("{version} is no version"))?;
                Ok((Self::Abi(version), rest))
            }
            "uid" => {
                let (uid, rest) = one()?;
                let uid = uid.parse().map_err(|_not_number| format!("{uid} is no user"))?;
                Ok((Self::Uid(uid), rest))
            }
            "enter" => {
                let (pid, rest) = one()?;
                let pid = pid.parse().map_err(|_not_number| format!("{pid} is no process"))?;
                Ok((Self::Enter(pid), rest))
            }
            "fail" => fail(rest),
            _ => Err(format!("no mode is called {name}")),
        }
    }

    /// The rules, and what happens to calls that none of them matches.
    pub(crate) fn filter(&self) -> Option<(Vec<BpfRule>, KernelAnswer)> {
        let rules = match self {
            Self::NoUserns => vec![
                BpfRule::new(libc::SYS_clone, EPERM).when(ArgumentCondition::differs(0, NAMESPACES, 0)),
                BpfRule::new(libc::SYS_unshare, EPERM).when(ArgumentCondition::differs(
                    0,
                    NAMESPACES | TIME_NAMESPACE,
                    0,
                )),
                BpfRule::new(libc::SYS_setns, EPERM),
                // Its flags lie behind a pointer; ENOSYS sends every libc back to clone.
                BpfRule::new(libc::SYS_clone3, ENOSYS),
            ],
            Self::Docker => return Some((docker::rules(), EPERM)),
            Self::NoLandlock => (444..=446).map(|number| BpfRule::new(number, ENOSYS)).collect(),
            Self::Yama => {
                let attach = |request: u32| {
                    BpfRule::new(libc::SYS_ptrace, EPERM).when(ArgumentCondition::equals(
                        0,
                        u64::MAX,
                        u64::from(request),
                    ))
                };
                vec![
                    attach(libc::PTRACE_ATTACH),
                    attach(libc::PTRACE_SEIZE),
                    BpfRule::new(libc::SYS_process_vm_readv, EPERM),
                    BpfRule::new(libc::SYS_process_vm_writev, EPERM),
                    // It asks for the same right as attaching does.
                    BpfRule::new(libc::SYS_pidfd_getfd, EPERM),
                ]
            }
            Self::Fail(rule) => vec![rule.clone()],
            Self::Abi(version) => abi(*version),
            Self::Uid(_) | Self::Enter(_) => return None,
        };
        Some((rules, KernelAnswer::Allow))
    }
}

/// A version below 1 is no Landlock at all. The tracer answers the rest, since a filter can fail a call but not let it
/// succeed with a value, nor see the rights behind the pointer.
fn abi(version: i64) -> Vec<BpfRule> {
    if version < 1 {
        return (444..=446).map(|number| BpfRule::new(number, ENOSYS)).collect();
    }
    let mut rules = vec![BpfRule::new(444, KernelAnswer::Trace)];
    if version < 7 {
        // Flags of landlock_restrict_self(2) came with ABI 7.
        rules.push(BpfRule::new(446, KernelAnswer::Errno(libc::EINVAL)).when(ArgumentCondition::differs(
            1,
            u64::MAX,
            0,
        )));
    }
    rules
}

/// `fail SYSCALL ERRNO [ARGn=VALUE | ARGn&MASK=VALUE]…`
fn fail(words: &[String]) -> Result<(Weakness, &[String]), String> {
    let [name, error, rest @ ..] = words else {
        return Err("fail wants a call and an errno".to_owned());
    };
    let call: Sysno = name.parse().map_err(|_unknown| format!("{name} is no system call"))?;
    let number = errno::number(error).ok_or(format!("{error} is no errno"))?;
    let mut rule = BpfRule::new(i64::from(call.id()), KernelAnswer::Errno(number));
    let mut left = rest;
    while let Some((word, after)) = left.split_first() {
        let lower = word.to_ascii_lowercase();
        let Some(condition) = lower.strip_prefix("arg") else {
            break;
        };
        rule = rule.when(condition_of(condition).ok_or(format!("{word} is no condition"))?);
        left = after;
    }
    Ok((Weakness::Fail(rule), left))
}

fn condition_of(text: &str) -> Option<ArgumentCondition> {
    let (left, value) = text.split_once('=')?;
    let (argument, mask) = match left.split_once('&') {
        Some((argument, mask)) => (argument, number(mask)?),
        None => (left, u64::MAX),
    };
    let argument = argument.parse().ok().filter(|&index: &u8| index < 6)?;
    Some(ArgumentCondition::equals(argument, mask, number(value)?))
}

fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16).ok(),
        None => word.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::Weakness;
    use crate::bpf::{ArgumentCondition, BpfRule, KernelAnswer};

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn fail_takes_its_conditions_and_leaves_the_next_mode() {
        let line = words("fail prctl EINVAL arg0=38 arg1&0x0f=1 yama");
        let Ok((mode, rest)) = Weakness::parse(&line) else { unreachable!("the line is well formed") };
        let rule = BpfRule::new(libc::SYS_prctl, KernelAnswer::Errno(libc::EINVAL))
            .when(ArgumentCondition::equals(0, u64::MAX, 38))
            .when(ArgumentCondition::equals(1, 0x0f, 1));
        assert_eq!(mode, Weakness::Fail(rule));
        assert_eq!(rest, ["yama"]);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for line in ["fail nosuch EPERM", "fail prctl EWHAT", "fail prctl EPERM arg9=1", "abi x", "uid", "docker2"] {
            assert!(Weakness::parse(&words(line)).is_err(), "{line}");
        }
    }
}
