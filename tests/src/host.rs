//! The hosts and users that a claim must hold for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use crate::run::Run;

/// A kind of host, imitated by `weaken` on this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// As it is, with namespaces.
    Namespaces,
    /// No namespace can be made.
    NoNamespaces,
    /// Docker's default profile and capabilities.
    Docker,
    /// Yama at the strictness that a filter can imitate.
    Yama,
    /// A Landlock of this ABI.
    Abi(u8),
    /// A Landlock of this ABI, and no namespaces.
    BareAbi(u8),
}

impl Host {
    /// The two strengths of host that callgate promises to be complete on.
    pub const STRENGTHS: &[Self] = &[Self::Namespaces, Self::NoNamespaces];

    /// Every host that can be imitated.
    pub const ALL: &[Self] = &[
        Self::Namespaces,
        Self::NoNamespaces,
        Self::Docker,
        Self::Yama,
        Self::Abi(1),
        Self::Abi(2),
        Self::Abi(3),
        Self::Abi(4),
        Self::Abi(5),
        Self::Abi(6),
        Self::BareAbi(1),
        Self::BareAbi(2),
        Self::BareAbi(3),
        Self::BareAbi(4),
        Self::BareAbi(5),
        Self::BareAbi(6),
    ];

    fn modes(self) -> Vec<String> {
        match self {
            Self::Namespaces => vec![],
            Self::NoNamespaces => vec!["no-userns".to_owned()],
            Self::Docker => vec!["docker".to_owned()],
            Self::Yama => vec!["yama".to_owned()],
            Self::Abi(version) => vec!["abi".to_owned(), version.to_string()],
            Self::BareAbi(version) => vec!["abi".to_owned(), version.to_string(), "no-userns".to_owned()],
        }
    }
}

/// Who runs callgate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// uid 0.
    Root,
    /// Somebody without privilege: uid 4242, or whoever runs the tests if that is not root.
    Ordinary,
}

/// The user that root's tests become.
const ORDINARY_UID: u32 = 4242;

/// Who runs the tests.
pub(crate) fn own_uid() -> u32 {
    use std::os::unix::fs::MetadataExt;
    static UID: OnceLock<u32> = OnceLock::new();
    *UID.get_or_init(|| std::fs::metadata("/proc/self").expect("/proc is mounted").uid())
}

impl User {
    /// The uid of this user here.
    pub fn uid(self) -> u32 {
        match self {
            Self::Root => 0,
            Self::Ordinary if own_uid() == 0 => ORDINARY_UID,
            Self::Ordinary => own_uid(),
        }
    }
}

/// One host and one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The host.
    pub host: Host,
    /// The user.
    pub user: User,
}

impl Target {
    /// True if namespaces can be made there, which hide what would otherwise be refused: a table of expected answers is
    /// narrower where they cannot.
    pub fn has_namespaces(self) -> bool {
        match self.host {
            Host::Namespaces | Host::Yama | Host::Abi(_) => true,
            Host::NoNamespaces | Host::Docker | Host::BareAbi(_) => false,
        }
    }

    /// Answer of this target's strength, of two: what a namespace hides, a rule refuses.
    pub fn by_strength<T>(self, namespaces: T, rules: T) -> T {
        if self.has_namespaces() { namespaces } else { rules }
    }

    /// The words for `weaken` that make this target of the host and user that run the tests.
    pub(crate) fn modes(self) -> Vec<String> {
        let mut modes = self.host.modes();
        modes.extend(self.user_modes());
        modes
    }

    /// The words that change the user only, for controls.
    pub(crate) fn user_modes(self) -> Vec<String> {
        match self.user.uid() {
            uid if uid == own_uid() => vec![],
            uid => vec!["uid".to_owned(), uid.to_string()],
        }
    }

    /// Reason why this machine cannot be this target, if it cannot.
    fn lacking(self) -> Option<String> {
        if self.user == User::Root && own_uid() != 0 {
            return Some("the tests do not run as root".to_owned());
        }
        match self.host {
            Host::Namespaces => {
                let tried = Run::bare(self, "/").probe(&["unshare-all"]);
                (!tried.is_ok()).then(|| format!("no namespaces here: {tried}"))
            }
            Host::Abi(version) | Host::BareAbi(version) => {
                let abi = Run::bare(self, "/").probe(&["landlock-abi"]);
                let enough = abi.fact("abi").as_i64().is_some_and(|abi| abi >= i64::from(version));
                (!enough).then(|| format!("an older Landlock: {abi}"))
            }
            Host::NoNamespaces | Host::Docker | Host::Yama => None,
        }
    }
}

/// Runs `test` on each of `hosts`, as root and as an ordinary user. What this machine cannot be is skipped by name;
/// every target is tried before the failures are reported.
#[track_caller]
pub fn matrix(hosts: &[Host], test: impl Fn(Target)) {
    let (mut run, mut failed) = (0, Vec::new());
    for &host in hosts {
        for user in [User::Root, User::Ordinary] {
            let target = Target { host, user };
            if let Some(why) = target.lacking() {
                eprintln!("SKIP {host:?} {user:?}: {why}");
                continue;
            }
            run += 1;
            if catch_unwind(AssertUnwindSafe(|| test(target))).is_err() {
                eprintln!("FAILED on {host:?} as {user:?}");
                failed.push(target);
            }
        }
    }
    assert!(failed.is_empty(), "failed on {failed:?}");
    assert!(run > 0, "this machine can be none of {hosts:?}");
}
