//! Facts about the host that can be read without trying.

use std::fs;

use super::check::{Check, State};
use crate::confine::cgroup::Delegated;

pub(super) fn kernel() -> Check {
    let name = rustix::system::uname();
    let found = format!("Linux {} {}", name.release().to_string_lossy(), name.machine().to_string_lossy());
    Check::new("kernel", State::Ok, found)
}

/// A right of Landlock's: since which ABI and kernel, and what holds where it is missing.
struct LandlockRight {
    abi: u8,
    kernel: &'static str,
    name: &'static str,
    what: &'static str,
    instead: Instead,
}

enum Instead {
    /// Something as strong, in either strength.
    Always(&'static str),
    /// Something as strong, with namespaces; nothing without.
    WithNamespaces(&'static str),
}

/// landlock(7). What takes a right's place is in the base filter, in the broker, or in how mounts are made.
const RIGHTS: &[LandlockRight] = &[
    LandlockRight {
        abi: 2,
        kernel: "5.19",
        name: "landlock: refer",
        what: "moving files between directories",
        instead: Instead::Always("before ABI 2 the kernel refuses it altogether (EXDEV): stricter, and programs copy"),
    },
    LandlockRight {
        abi: 3,
        kernel: "6.2",
        name: "landlock: truncate",
        what: "truncate(2) of a file by its name",
        instead: Instead::WithNamespaces("what may not be written is mounted read-only"),
    },
    LandlockRight {
        abi: 4,
        kernel: "6.7",
        name: "landlock: tcp",
        what: "TCP connect and bind",
        instead: Instead::Always("the broker makes every socket and judges where it leads"),
    },
    LandlockRight {
        abi: 5,
        kernel: "6.10",
        name: "landlock: ioctl",
        what: "ioctl(2) on devices",
        instead: Instead::Always("seccomp judges ioctl requests, and devices are granted one by one"),
    },
    LandlockRight {
        abi: 6,
        kernel: "6.12",
        name: "landlock: scopes",
        what: "signals and abstract sockets of others",
        instead: Instead::Always("the broker judges whom a signal or a connection is for, or the namespaces hide them"),
    },
];

pub(super) fn landlock(abi: u8) -> Check {
    let lacking = RIGHTS.iter().filter(|right| right.abi > abi).count();
    let found = match lacking {
        0 => format!("ABI {abi}, every right that this build uses"),
        n => format!("ABI {abi}, {n} of {} later rights missing, see below", RIGHTS.len()),
    };
    Check::new("landlock", State::Ok, found)
}

pub(super) fn missing_rights(abi: u8, namespaces: bool) -> Vec<Check> {
    let lacking = RIGHTS.iter().filter(|right| right.abi > abi);
    lacking
        .map(|right| {
            let found = format!("{}: needs ABI {} (Linux {})", right.what, right.abi, right.kernel);
            let (state, instead) = match right.instead {
                Instead::Always(instead) => (State::Note, instead),
                Instead::WithNamespaces(instead) if namespaces => (State::Note, instead),
                Instead::WithNamespaces(_) => (State::Missing, "nothing in sessions without namespaces"),
            };
            let check = Check::new(right.name, state, found).instead(instead);
            if state == State::Missing { check.remedy([format!("use Linux {} or newer", right.kernel)]) } else { check }
        })
        .collect()
}

/// Checks that do not depend on any session.
pub(super) fn always() -> Vec<Check> {
    vec![cgroup(), children(), bash()]
}

/// Check of the cgroups that programs get of their own.
fn cgroup() -> Check {
    let name = "cgroup v2";
    match Delegated::look() {
        Ok(path) => Check::new(name, State::Ok, format!("{} is ours to divide: each program gets one", path.display())),
        Err(reason) => Check::new(name, State::Note, reason.to_string())
            .instead(
                "the init of each program counts the memory and processes of all that it starts, and ends it: bounded, but \
                 passed by what is used between two looks; results say by how much",
            )
            .remedy(["systemd-run --user --scope -p Delegate=yes callgate … (for a service: Delegate=yes in its unit)"
                .to_owned()]),
    }
}

fn children() -> Check {
    let name = "proc children";
    // CONFIG_PROC_CHILDREN, proc_tid_children(5).
    if rustix::fs::stat("/proc/thread-self/children").is_ok() {
        Check::new(name, State::Ok, "the kernel lists a process's children (CONFIG_PROC_CHILDREN)")
    } else {
        Check::new(name, State::Note, "the kernel has no CONFIG_PROC_CHILDREN")
            .instead("leftovers of a call are found by asking every process for its parent: slower, as thorough")
    }
}

fn bash() -> Check {
    let found = ["/bin/bash", "/usr/bin/bash"].into_iter().find(|path| rustix::fs::stat(*path).is_ok());
    match found {
        Some(path) => Check::new("bash", State::Ok, path),
        None => Check::new("bash", State::Missing, "there is no /bin/bash")
            .instead("the `bash` tool fails; `run` and the other tools work")
            .remedy(["install bash".to_owned()]),
    }
}

/// Yama's strictness; none without Yama.
pub(super) fn ptrace_scope() -> Option<u32> {
    sysctl("kernel/yama/ptrace_scope")
}

fn sysctl(name: &str) -> Option<u32> {
    fs::read_to_string(format!("/proc/sys/{name}")).ok()?.trim().parse().ok()
}

/// Check whether calls see the command lines of other processes. They do not: not in either strength.
pub(super) fn other_processes(namespaces: bool) -> Check {
    let hidden = match namespaces {
        true => "of other processes are out of sight, in the calls' PID namespace",
        false => {
            "of other processes cannot be read: Landlock closes /proc but for a program's own. That they exist shows"
        }
    };
    Check::new("command lines", State::Ok, hidden)
}

/// Commands to type so that this host allows user namespaces: those settings that stand against them here.
pub(super) fn namespace_remedies() -> Vec<String> {
    let mut remedies = Vec::new();
    if sysctl("kernel/apparmor_restrict_unprivileged_userns") == Some(1) {
        remedies.push("sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0".to_owned());
    }
    if sysctl("kernel/unprivileged_userns_clone") == Some(0) {
        remedies.push("sudo sysctl -w kernel.unprivileged_userns_clone=1".to_owned());
    }
    if sysctl("user/max_user_namespaces") == Some(0) {
        remedies.push("sudo sysctl -w user.max_user_namespaces=10000".to_owned());
    }
    if in_container() || filtered() {
        remedies.push(
            "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt \
             systempaths=unconfined … (or a profile that allows clone with CLONE_NEWUSER, mount and pivot_root)"
                .to_owned(),
        );
    }
    if remedies.is_empty() {
        remedies.push(
            "nothing here says why: look for a Landlock domain, an SELinux rule or a chroot around callgate, and for \
             CONFIG_USER_NS in the kernel's configuration"
                .to_owned(),
        );
    }
    remedies
}

#[allow(clippy::disallowed_methods, reason = "words of a remedy depend on it, and nothing else")]
fn in_container() -> bool {
    ["/.dockerenv", "/run/.containerenv"].iter().any(|path| rustix::fs::stat(*path).is_ok())
        || std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

/// True if whoever started us put a seccomp filter on us (proc_pid_status(5)).
fn filtered() -> bool {
    fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| status.lines().any(|line| line.split_ascii_whitespace().eq(["Seccomp:", "2"])))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use super::*;

    /// Every right up to the newest ABI is either there or listed with what takes its place.
    #[test]
    fn each_abi_lists_the_rights_that_it_lacks() {
        assert_eq!(missing_rights(7, false).len(), 0);
        assert_eq!(missing_rights(6, false).len(), 0);
        assert_eq!(missing_rights(1, false).len(), 5);
        assert!(missing_rights(1, false).iter().all(|check| check.instead.is_some()));
    }

    /// truncate(2) before ABI 3 is held by mounts alone, and doctor must not say otherwise.
    #[test]
    fn a_right_that_nothing_replaces_is_missing_with_a_remedy() {
        let truncate =
            |namespaces| missing_rights(2, namespaces).into_iter().find(|c| c.name.contains("truncate")).unwrap();
        assert_eq!(truncate(true).state, State::Note);
        assert_eq!(truncate(false).state, State::Missing);
        assert!(!truncate(false).remedy.is_empty());
    }
}
