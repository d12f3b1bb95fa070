//! The base system: what every program may read, whatever a manifest says.
//!
//! Data with reasons. Every entry is [`Presence::Optional`]: hosts differ, and a missing entry only takes rights away.
//! `/etc` is never granted whole: a worker may run as uid 0, where file modes protect neither `shadow` nor ssh host
//! keys, `sudoers` or apt's credentials. What is named here every program needs, also where a container mounts it or a link
//! leads out of `/etc`; the rest of `/etc` is judged entry by entry ([`super::etc`]) and given in `HostFacts::etc`.

use super::{Binding, Exactness, Extent, FsAccess, FsRule, Presence, Strength};
use crate::path::HostPath;

/// Entries of one kind, and why they are there.
#[derive(Debug, Clone, Copy)]
pub struct EntryGroup {
    /// Reason why programs need them.
    pub reason: &'static str,
    /// Access that is granted.
    pub access: FsAccess,
    /// Trees or files.
    pub extent: Extent,
    /// Absolute paths.
    pub paths: &'static [&'static str],
}

const fn group(reason: &'static str, access: FsAccess, extent: Extent, paths: &'static [&'static str]) -> EntryGroup {
    EntryGroup { reason, access, extent, paths }
}

/// Reason why the trees of programs are granted.
pub(super) const PROGRAMS: &str = "programs and their libraries";

/// Groups in both strengths.
pub const BASE: &[EntryGroup] = &[
    group(
        PROGRAMS,
        FsAccess::ReadExecute,
        Extent::Subtree,
        // `/usr` and `/opt` are given in `HostFacts::shared`, as far as everybody may read them.
        &["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"],
    ),
    group(
        "the dynamic loader's cache and search path",
        FsAccess::Read,
        Extent::File,
        &["/etc/ld.so.cache", "/etc/ld.so.conf"],
    ),
    group("the dynamic loader's search path", FsAccess::Read, Extent::Subtree, &["/etc/ld.so.conf.d"]),
    group("which of several programs a name means", FsAccess::Read, Extent::Subtree, &["/etc/alternatives"]),
    group(
        "certificates that are trusted; never /etc/ssl whole, which holds private keys",
        FsAccess::Read,
        Extent::Subtree,
        &["/etc/ca-certificates", "/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust"],
    ),
    group("TLS defaults", FsAccess::Read, Extent::File, &["/etc/ssl/openssl.cnf", "/etc/ca-certificates.conf"]),
    group(
        "names of users and groups; no passwords, those are in shadow",
        FsAccess::Read,
        Extent::File,
        &["/etc/passwd", "/etc/group", "/etc/shells"],
    ),
    group(
        "names of hosts and services",
        FsAccess::Read,
        Extent::File,
        &[
            "/etc/hosts",
            "/etc/host.conf",
            "/etc/hostname",
            "/etc/resolv.conf",
            "/etc/nsswitch.conf",
            "/etc/gai.conf",
            "/etc/protocols",
            "/etc/services",
            "/etc/rpc",
            "/etc/networks",
            "/etc/ethertypes",
        ],
    ),
    group(
        "time, language and the system's name",
        FsAccess::Read,
        Extent::File,
        &[
            "/etc/localtime",
            "/etc/timezone",
            "/etc/locale.alias",
            "/etc/locale.gen",
            "/etc/locale.conf",
            "/etc/default/locale",
            "/etc/os-release",
            "/etc/debian_version",
            "/etc/lsb-release",
        ],
    ),
    group(
        "how many processors and how much memory there are: language runtimes size themselves by it",
        FsAccess::Read,
        Extent::Subtree,
        &[
            "/sys/devices/system/cpu",
            "/sys/devices/system/node",
            "/sys/fs/cgroup",
            "/sys/kernel/mm/transparent_hugepage",
        ],
    ),
    group(
        "the same, from /proc: only files that tell of no process",
        FsAccess::Read,
        Extent::File,
        &[
            "/proc/cpuinfo",
            "/proc/meminfo",
            "/proc/stat",
            "/proc/loadavg",
            "/proc/uptime",
            "/proc/version",
            "/proc/filesystems",
        ],
    ),
    group("the kernel's settings; reading only", FsAccess::Read, Extent::Subtree, &["/proc/sys"]),
    group(
        "devices that hold nothing; tty is the caller's own terminal",
        FsAccess::Device,
        Extent::File,
        &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"],
    ),
    group("makes pseudo-terminals; opens none that is there", FsAccess::Device, Extent::File, &["/dev/ptmx"]),
];

/// Groups where the session has namespaces of its own.
pub const NAMESPACES: &[EntryGroup] = &[
    group("only the session's own processes are in it", FsAccess::Read, Extent::Subtree, &["/proc"]),
    group("private to the session there", FsAccess::Write, Extent::Subtree, &["/tmp", "/dev/shm"]),
];

/// True if the base system's rules hold a part of `/etc`.
pub(super) fn names(path: &HostPath) -> bool {
    // By bytes: it is asked about every entry of /etc, and neither path has dots or doubled slashes.
    let holds = |group: &EntryGroup, rule: &&str| match path.as_bytes().strip_prefix(rule.as_bytes()) {
        Some(rest) => rest.is_empty() || (group.extent == Extent::Subtree && rest.starts_with(b"/")),
        None => false,
    };
    let of_etc = |rule: &&&str| rule.starts_with("/etc/");
    BASE.iter().any(|group| group.paths.iter().filter(of_etc).any(|rule| holds(group, rule)))
}

/// The rules of the base system. `execute` is taken away where the session may start nothing.
#[must_use]
pub fn rules(strength: Strength, execute: Execute) -> Vec<FsRule> {
    let more = match strength {
        Strength::Landlock => &[][..],
        Strength::Namespaces => NAMESPACES,
    };
    let rule = |group: &EntryGroup, path: &&str| FsRule {
        path: (*path).into(),
        access: match (group.access, execute) {
            (FsAccess::ReadExecute, Execute::Nothing) => FsAccess::Read,
            (access, _) => access,
        },
        extent: group.extent,
        binding: Binding::Name,
        presence: Presence::Optional,
        exactness: Exactness::Exact,
        source: format!("system: {}", group.reason),
    };
    // What lies in a tree that is granted whole for as much is not named again: each rule costs every call a little.
    let within = |path: &str, group: &EntryGroup| {
        let covers = |tree: &&str| path.strip_prefix(*tree).is_some_and(|rest| rest.starts_with('/'));
        more.iter().any(|outer| outer.access == group.access && outer.paths.iter().any(covers))
    };
    BASE.iter()
        .chain(more)
        .flat_map(|group| group.paths.iter().map(move |path| (group, path)))
        .filter(|(group, path)| !within(path, group))
        .map(|(group, path)| rule(group, path))
        .collect()
}

/// Permission to start programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Execute {
    /// Those of the base system.
    System,
    /// None.
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No secret of the system lies beneath a rule, at either strength.
    #[test]
    fn no_secret_is_readable() {
        for strength in [Strength::Landlock, Strength::Namespaces] {
            let rules = rules(strength, Execute::System);
            for secret in [
                "/etc/shadow",
                "/etc/gshadow",
                "/etc/sudoers",
                "/etc/ssh/ssh_host_ed25519_key",
                "/etc/ssl/private/key.pem",
                "/etc/apt/auth.conf",
                "/etc/machine-id",
                "/root/.ssh/id_ed25519",
                "/var/lib/dpkg/status",
                "/run/docker.sock",
                "/dev/sda",
                "/sys/class",
            ] {
                let path = HostPath::from(secret);
                assert!(!rules.iter().any(|rule| path.as_path().starts_with(&rule.path)), "{secret}");
            }
            assert!(rules.iter().all(|rule| rule.path.is_normal() && rule.presence == Presence::Optional));
        }
    }

    /// `/proc` tells of other processes unless the session has its own.
    #[test]
    fn processes_are_seen_only_with_namespaces() {
        let whole = |strength| rules(strength, Execute::System).iter().any(|rule| rule.path == "/proc".into());
        assert!(!whole(Strength::Landlock) && whole(Strength::Namespaces));
    }
}
