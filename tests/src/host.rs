//! The hosts and users that a claim must hold for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use crate::extent::{self, SuiteExtent};
use crate::run::ProgramRunner;
use crate::skips::skip;

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
        match self.host {
            Host::Namespaces => {
                let tried = ProgramRunner::bare(self, "/").probe(&["unshare-all"]);
                (!tried.is_ok()).then(|| format!("no namespaces here: {tried}"))
            }
            Host::Abi(version) | Host::BareAbi(version) => {
                let abi = ProgramRunner::bare(self, "/").probe(&["landlock-abi"]);
                let enough = abi.fact("abi").as_i64().is_some_and(|abi| abi >= i64::from(version));
                (!enough).then(|| format!("an older Landlock: {abi}"))
            }
            Host::NoNamespaces | Host::Docker | Host::Yama => None,
        }
    }
}

/// Runs `test` on `hosts`. What this machine cannot be is skipped by name; every target is tried before the failures are
/// reported.
///
/// In a full run each host is tried as root and as an ordinary user. Otherwise each strength is tried as one of them, the two
/// strengths as different users, and of other hosts (`OTHERS`) are tried; a hash of the test and the commit chooses, so that
/// another commit tries the others.
#[track_caller]
pub fn matrix(hosts: &[Host], test: impl Fn(Target)) {
    let users: &[User] = if own_uid() == 0 { &[User::Root, User::Ordinary] } else { &[User::Ordinary] };
    let targets = match SuiteExtent::of_this_run() {
        SuiteExtent::Full => every(hosts, users),
        SuiteExtent::Ordinary => some(hosts, users, extent::of_this_test()),
    };
    if own_uid() != 0 {
        skip("root", "the tests do not run as root");
    }
    each(&targets, test);
}

/// Runs `test` on `hosts` as this user, whom it is about.
#[track_caller]
pub fn matrix_as(user: User, hosts: &[Host], test: impl Fn(Target)) {
    let users = [user];
    let targets = match SuiteExtent::of_this_run() {
        SuiteExtent::Full => every(hosts, &users),
        SuiteExtent::Ordinary => some(hosts, &users, extent::of_this_test()),
    };
    if user == User::Root && own_uid() != 0 {
        return skip("root", "the tests do not run as root");
    }
    each(&targets, test);
}

/// How many hosts, of those that are no strength, an ordinary run tries.
const OTHERS: usize = 3;

fn every(hosts: &[Host], users: &[User]) -> Vec<Target> {
    let with = |&host: &Host| users.iter().map(move |&user| Target { host, user });
    hosts.iter().flat_map(with).collect()
}

/// Both strengths and [`OTHERS`] of the other hosts, each with one user, who takes turns. `chosen` decides where the turns and
/// the other hosts begin.
fn some(hosts: &[Host], users: &[User], chosen: u64) -> Vec<Target> {
    // Of different bits, so that every host meets every user.
    let begin = |bits: u32, of: usize| usize::try_from(chosen >> bits & 0xffff).unwrap_or(0) % of.max(1);
    let (mut tried, mut others): (Vec<Host>, Vec<Host>) = hosts.iter().partition(|host| Host::STRENGTHS.contains(host));
    let first = begin(16, others.len());
    others.rotate_left(first);
    tried.extend(others.into_iter().take(OTHERS));
    let turns = users.iter().copied().cycle().skip(begin(32, users.len()));
    tried.into_iter().zip(turns).map(|(host, user)| Target { host, user }).collect()
}

#[track_caller]
fn each(targets: &[Target], test: impl Fn(Target)) {
    let (mut run, mut failed) = (0, Vec::new());
    for &target in targets {
        if let Some(why) = target.lacking() {
            skip("host", format_args!("{:?} {:?}: {why}", target.host, target.user));
            continue;
        }
        run += 1;
        if catch_unwind(AssertUnwindSafe(|| test(target))).is_err() {
            eprintln!("FAILED on {:?} as {:?}", target.host, target.user);
            failed.push(target);
        }
    }
    assert!(failed.is_empty(), "failed on {failed:?}");
    assert!(run > 0, "this machine can be none of {targets:?}");
}

#[cfg(test)]
mod tests {
    use super::{Host, OTHERS, User, every, some};

    const USERS: [User; 2] = [User::Root, User::Ordinary];

    fn numbers() -> impl Iterator<Item = u64> {
        (0..256_u64).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    #[test]
    fn both_strengths_are_always_tried_as_different_users() {
        for chosen in numbers() {
            let targets = some(Host::ALL, &USERS, chosen);
            let of = |host| targets.iter().find(|target| target.host == host).unwrap().user;
            assert_ne!(of(Host::Namespaces), of(Host::NoNamespaces));
            assert_eq!(targets.len(), Host::STRENGTHS.len() + OTHERS);
            assert!(some(Host::STRENGTHS, &[User::Root], chosen).iter().all(|target| target.user == User::Root));
        }
    }

    #[test]
    fn what_one_run_leaves_out_another_tries() {
        let mut left = every(Host::ALL, &USERS);
        for chosen in numbers() {
            let tried = some(Host::ALL, &USERS, chosen);
            left.retain(|target| !tried.contains(target));
        }
        assert_eq!(left, []);
    }
}
