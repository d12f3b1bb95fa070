//! Landlock rulesets from a plan's rules, at exactly the ABI that the plan names.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use callgate_policy::plan::{Binding, Extent, FileId, FsAccess, FsRule, Presence, SessionPlan};
use callgate_policy::step::Step;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, NetPort, PathBeneath, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, Scope,
};
use rustix::fs::{FileType, Mode, OFlags, Stat};

use super::seen::confirm_inside;
use super::{failure, kernel};
use crate::directory::OwnDirectory;
use crate::protocol::StepFailure as Failure;

/// Rights that a ruleset handles besides the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RulesetReach {
    /// Files only: the session's outer bound, in which the broker must still make the sockets of calls.
    Files,
    /// Files, TCP (ABI 4), signals and abstract sockets to the outside (ABI 6): a call's own domain.
    Everything,
}

/// Place that a rule names, opened: rules bind what stands at a path now, not its name (landlock(7)).
pub(crate) struct RulePath {
    fd: OwnedFd,
    is_dir: bool,
    right: Right,
    /// Where the kernel says it is, once it was asked.
    path: OnceCell<PathBuf>,
}

/// Right to act there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Right {
    /// Everything there is a right for.
    Everything,
    /// Right of a rule.
    Rule(FsAccess),
    /// A directory that is granted itself: to list it. (The kernel has no right to list it and none below it.)
    Listing,
    /// A program, an interpreter or a loader: to read and to execute.
    Program,
    /// A directory: to execute what lies below it, as far as that may be read.
    Programs,
    /// A directory in which single names are granted: the broker's alone, which holds them.
    Names,
}

/// Programs that may be executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Executing {
    /// Those that the rules for trees let be executed.
    Trees,
    /// Files and trees that are named, and nothing else that a call has written.
    Files,
}

/// Who is confined by a rule for a tree in which names are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConfinedSide {
    /// The broker, its one writer.
    Brokers,
    /// A call, which only reads there.
    Calls,
    /// A call that only reads anywhere.
    ReadingCalls,
}

/// Opens what the rules name, each bound to the thing that it holds for ([`Binding`]). An optional path that is not there is left out.
/// What lies in one of `own` is opened by its descriptor: something else may have been put in its place.
pub(crate) fn locate<'a>(
    rules: impl IntoIterator<Item = &'a FsRule>,
    own: &[OwnDirectory],
    plan: &SessionPlan,
) -> Result<Vec<RulePath>, Failure> {
    located(rules, own, Some(plan), OFlags::NOFOLLOW)
}

/// Places for a call, which may read a file that one of its names leads to. Its session's domain bounds where that is.
pub(crate) fn locate_for_call(rules: &[FsRule]) -> Result<Vec<RulePath>, Failure> {
    located(rules, &[], None, OFlags::empty())
}

/// Places that a narrowed call may change, each where its path says, by no link: a call that ran before, or runs beside
/// it, may have made one. What is not there so is left out, and so are single names, which the broker holds.
pub(crate) fn locate_to_change(rules: &[FsRule]) -> Result<Vec<RulePath>, Failure> {
    let mut places = Vec::new();
    for rule in rules.iter().filter(|rule| rule.extent != Extent::Entry) {
        let path = rule.path.as_path();
        let Ok(fd) = open_as_spelt(path) else { continue };
        let is_dir = is_directory(&fd, path)?;
        // A rule for a file is not one for all below a directory that has taken its name.
        if !is_dir || rule.extent != Extent::File {
            places.push(RulePath::new(fd, is_dir, Right::Rule(rule.access)));
        }
    }
    Ok(places)
}

fn open_as_spelt(path: &Path) -> rustix::io::Result<OwnedFd> {
    let way = crate::way::FollowedPath::follow(path)?;
    if way.has_links() { Err(rustix::io::Errno::LOOP) } else { Ok(way.into_fd()) }
}

fn located<'a>(
    rules: impl IntoIterator<Item = &'a FsRule>,
    own: &[OwnDirectory],
    session: Option<&SessionPlan>,
    links: OFlags,
) -> Result<Vec<RulePath>, Failure> {
    let mut places = Vec::new();
    for rule in rules {
        // One whose tree the kernel lets be written has no names to hold; any other is no reason to read what lies beside it.
        let single = rule.access != FsAccess::Write && rule.extent == Extent::Entry;
        let right = if single { Right::Names } else { Right::Rule(rule.access) };
        let Some((fd, path)) = open(rule, own)? else { continue };
        let is_own = own.iter().any(|held| path.starts_with(held.path()));
        match (rule.binding, session) {
            (Binding::Walked(id), _) if identity(&fd, path)? != id => continue,
            (Binding::Seen, Some(plan)) if !is_own => confirm_inside(plan, path, &fd)?,
            (Binding::Walked(_) | Binding::Seen | Binding::Name, _) => {}
        }
        // The file that has the name now; of another that takes it the kernel knows nothing.
        let file = if single { open_file(rule, (&fd, path), links) } else { None };
        places.extend(file.map(|fd| RulePath::new(fd, false, Right::Rule(rule.access))));
        let is_dir = is_directory(&fd, path)?;
        let right = if is_dir && rule.extent == Extent::File { Right::Listing } else { right };
        places.push(RulePath::new(fd, is_dir, right));
    }
    Ok(places)
}

/// The regular file that a name stands for, if it does: the name in this directory, if that is its own.
fn open_file(rule: &FsRule, (directory, path): (&OwnedFd, &Path), links: OFlags) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | links;
    let name = rule.path.as_path().file_name().filter(|_| rule.path.as_path().parent() == Some(path))?;
    let fd = rustix::fs::openat(directory, name, flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&fd).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then_some(fd)
}

/// A directory of the root with every right: for a domain below one that says what may be done in it. `None` for a file.
#[expect(clippy::disallowed_methods, reason = "in a mount tree of the session's own, in which nothing has run yet")]
pub(crate) fn whole(path: &Path) -> Result<Option<RulePath>, Failure> {
    let opened = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    let fd = opened.map_err(|e| kernel(Step::Landlock, format!("open {} for its rule", path.display()), e.into()))?;
    let is_dir = is_directory(&fd, path)?;
    Ok(is_dir.then(|| RulePath::new(fd, true, Right::Everything)))
}

/// The place of a directory that is open.
pub(crate) fn tree(fd: BorrowedFd<'_>) -> Result<RulePath, Failure> {
    let fd = fd.try_clone_to_owned().map_err(|e| kernel(Step::Landlock, "copy a directory's descriptor", e))?;
    Ok(RulePath::new(fd, true, Right::Everything))
}

/// A directory that may be read.
pub(crate) fn readable(fd: &OwnedFd) -> Result<RulePath, Failure> {
    let fd = fd.try_clone().map_err(|e| kernel(Step::Landlock, "copy a directory's descriptor", e))?;
    Ok(RulePath::new(fd, true, Right::Rule(FsAccess::Read)))
}

impl RulePath {
    fn new(fd: OwnedFd, is_dir: bool, right: Right) -> Self {
        Self { fd, is_dir, right, path: OnceCell::new() }
    }

    /// Where the kernel says it is, without links.
    pub(crate) fn path(&self) -> Result<&Path, Failure> {
        if let Some(path) = self.path.get() {
            return Ok(path);
        }
        let asked = crate::sys::fd::path_of(self.fd.as_fd());
        let path = asked.map_err(failure(Step::Landlock, "ask where a rule is bound to"))?;
        Ok(self.path.get_or_init(|| path))
    }

    /// True if the broker has more rights there than a call.
    pub(crate) fn is_more_for_the_broker(&self, abi: u8) -> bool {
        let of = |whose| known_abi(abi).map(|known| rights(known, self, (whose, Executing::Trees)));
        of(ConfinedSide::Brokers).ok() != of(ConfinedSide::Calls).ok()
    }

    /// Place with every right, if this is a directory.
    pub(crate) fn whole_directory(&self) -> Result<Option<Self>, Failure> {
        if !self.is_dir {
            return Ok(None);
        }
        tree(self.fd.as_fd()).map(Some)
    }

    /// Where the kernel says it is, if its files may be read.
    pub(crate) fn read_at(&self) -> Option<&Path> {
        match self.right {
            Right::Rule(access) if !access.reads_files() => None,
            Right::Everything | Right::Rule(_) => self.path().ok(),
            Right::Program | Right::Programs | Right::Names | Right::Listing => None,
        }
    }
}

/// A file that may be executed.
pub(crate) fn program(fd: OwnedFd) -> RulePath {
    RulePath::new(fd, false, Right::Program)
}

/// A directory below which every file may be executed that may be read.
pub(crate) fn programs_below(fd: BorrowedFd<'_>) -> Result<RulePath, Failure> {
    let fd = fd.try_clone_to_owned().map_err(|e| kernel(Step::Landlock, "copy a directory's descriptor", e))?;
    Ok(RulePath::new(fd, true, Right::Programs))
}

/// Builds a ruleset.
pub(crate) fn build<'a>(
    abi: u8,
    places: impl IntoIterator<Item = &'a RulePath>,
    reach: RulesetReach,
    (whose, executing): (ConfinedSide, Executing),
) -> Result<OwnedFd, Failure> {
    let known = known_abi(abi)?;
    let fail =
        |e: landlock::RulesetError| Failure::new(Step::Landlock, format!("create a ruleset for ABI {abi} ({e})"));
    // Hard: a right that this kernel lacks is an error here, never silently left out (A15, B14).
    let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    ruleset = ruleset.handle_access(AccessFs::from_all(known)).map_err(fail)?;
    if reach != RulesetReach::Files {
        if known >= ABI::V4 {
            ruleset = ruleset.handle_access(AccessNet::from_all(known)).map_err(fail)?;
        }
        if known >= ABI::V6 {
            ruleset = ruleset.scope(Scope::from_all(known)).map_err(fail)?;
        }
    }
    let mut created = ruleset.create().map_err(fail)?;
    for place in places {
        let rights = rights(known, place, (whose, executing));
        if rights.is_empty() {
            continue; // which the kernel takes for a mistake
        }
        created = created
            .add_rule(PathBeneath::new(&place.fd, rights))
            .map_err(|e| Failure::new(Step::Landlock, format!("add a rule ({e})")))?;
    }
    Option::<OwnedFd>::from(created).ok_or_else(|| Failure::new(Step::Landlock, "this kernel has no Landlock"))
}

/// A ruleset for changing alone: it lets these places be changed as their rules say, and nothing else, and whatever is only read
/// or executed pass.
pub(crate) fn changes_within(abi: u8, places: &[RulePath]) -> Result<OwnedFd, Failure> {
    let known = known_abi(abi)?;
    let fail = |e: landlock::RulesetError| {
        Failure::new(Step::Landlock, format!("create a ruleset for changes, ABI {abi} ({e})"))
    };
    let handled = changing(known);
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let mut created = ruleset.handle_access(handled).and_then(Ruleset::create).map_err(fail)?;
    for place in places {
        let rights = rights(known, place, (ConfinedSide::Calls, Executing::Trees)) & handled;
        if rights.is_empty() {
            continue; // which the kernel takes for a mistake
        }
        created = created.add_rule(PathBeneath::new(&place.fd, rights)).map_err(fail)?;
    }
    Option::<OwnedFd>::from(created).ok_or_else(|| Failure::new(Step::Landlock, "this kernel has no Landlock"))
}

/// All rights but those to read, to execute and to control devices.
fn changing(abi: ABI) -> BitFlags<AccessFs> {
    AccessFs::from_all(abi) & !(AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::Execute | AccessFs::IoctlDev)
}

/// A ruleset that leaves everything as it is but signals: they reach what is below its domain, and nobody else. `None`
/// before ABI 6, which has no such thing.
#[expect(clippy::disallowed_methods, reason = "/ has no part that could be another")]
pub(crate) fn signal_scope(abi: u8) -> Result<Option<OwnedFd>, Failure> {
    if known_abi(abi)? < ABI::V6 {
        return Ok(None);
    }
    let fail = |e: landlock::RulesetError| Failure::new(Step::Landlock, format!("create a ruleset for signals ({e})"));
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let ruleset = ruleset.scope(Scope::Signal).map_err(fail)?;
    // Moving files between directories is what every domain refuses that does not allow it (landlock(7)).
    let ruleset = ruleset.handle_access(AccessFs::Refer).map_err(fail)?;
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| kernel(Step::Landlock, "open / for its rule", e.into()))?;
    let created = ruleset.create().and_then(|made| made.add_rule(PathBeneath::new(root, AccessFs::Refer)));
    Ok(Option::<OwnedFd>::from(created.map_err(fail)?))
}

/// A ruleset that leaves everything as it is but the making of sockets: below a directory, and nowhere else.
pub(crate) fn sockets_below(directory: &OwnedFd) -> Result<OwnedFd, Failure> {
    let fail = |e: landlock::RulesetError| Failure::new(Step::Landlock, format!("create a ruleset for a socket ({e})"));
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let ruleset = ruleset.handle_access(AccessFs::MakeSock).map_err(fail)?;
    let rule = PathBeneath::new(directory, AccessFs::MakeSock);
    let created = ruleset.create().and_then(|made| made.add_rule(rule)).map_err(fail)?;
    Option::<OwnedFd>::from(created).ok_or_else(|| Failure::new(Step::Landlock, "this kernel has no Landlock"))
}

/// This process's signals reach what it started, and nobody else.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SignalsStayBelow(());

/// Enforces what [`signal_scope`] gave.
pub(crate) fn keep_signals_below(scope: &OwnedFd) -> Result<SignalsStayBelow, Failure> {
    restrict(scope).map(|()| SignalsStayBelow(()))
}

/// A ruleset that leaves nothing of files, of signals and of abstract sockets, and of TCP only connections to these ports; to all
/// where none are named, or before ABI 4, which does not know ports.
pub(crate) fn connecting_alone(abi: u8, ports: Option<&BTreeSet<u16>>) -> Result<OwnedFd, Failure> {
    let known = known_abi(abi)?;
    let fail =
        |e: landlock::RulesetError| Failure::new(Step::Landlock, format!("create a ruleset for ABI {abi} ({e})"));
    let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    ruleset = ruleset.handle_access(AccessFs::from_all(known)).map_err(fail)?;
    if known >= ABI::V4 {
        ruleset = ruleset.handle_access(AccessNet::BindTcp).map_err(fail)?;
        if ports.is_some() {
            ruleset = ruleset.handle_access(AccessNet::ConnectTcp).map_err(fail)?;
        }
    }
    if known >= ABI::V6 {
        ruleset = ruleset.scope(Scope::from_all(known)).map_err(fail)?;
    }
    let mut created = ruleset.create().map_err(fail)?;
    for port in ports.into_iter().flatten().filter(|_| known >= ABI::V4) {
        created = created.add_rule(NetPort::new(*port, AccessNet::ConnectTcp)).map_err(fail)?;
    }
    Option::<OwnedFd>::from(created).ok_or_else(|| Failure::new(Step::Landlock, "this kernel has no Landlock"))
}

/// Adds a program's own terminal to the ruleset that it will live in, so that `/dev/stderr` and the name that ttyname(3)
/// gives lead to it.
pub(crate) fn add_terminal(ruleset: BorrowedFd<'_>, terminal: BorrowedFd<'_>, abi: u8) -> Result<(), Failure> {
    let rights = of_rule(known_abi(abi)?, FsAccess::Device, ConfinedSide::Calls) & AccessFs::from_file(known_abi(abi)?);
    crate::sys::landlock::add_beneath(ruleset, terminal, rights.bits())
        .map_err(failure(Step::Landlock, "add a rule for the terminal"))
}

/// Adds the terminal to a ruleset of [`changes_within`].
pub(crate) fn add_terminal_to_change(ruleset: BorrowedFd<'_>, terminal: BorrowedFd<'_>) -> Result<(), Failure> {
    let right = BitFlags::from(AccessFs::WriteFile).bits();
    crate::sys::landlock::add_beneath(ruleset, terminal, right)
        .map_err(failure(Step::Landlock, "add a rule for the terminal"))
}

/// Enforces a ruleset on this thread.
pub(crate) fn restrict(ruleset: &OwnedFd) -> Result<(), Failure> {
    crate::sys::landlock::restrict_self(ruleset.as_fd()).map_err(failure(Step::Landlock, "restrict_self"))
}

/// The highest ABI that both this kernel and this build know; `None` without Landlock (`ENOSYS`, `EOPNOTSUPP`).
#[must_use]
pub fn host_abi() -> Option<u8> {
    let kernel = crate::sys::landlock::abi().ok()?;
    u8::try_from(kernel.min(7)).ok().filter(|abi| *abi >= 1)
}

fn known_abi(abi: u8) -> Result<ABI, Failure> {
    match abi {
        1 => Ok(ABI::V1),
        2 => Ok(ABI::V2),
        3 => Ok(ABI::V3),
        4 => Ok(ABI::V4),
        5 => Ok(ABI::V5),
        6 => Ok(ABI::V6),
        7 => Ok(ABI::V7),
        other => Err(Failure::new(Step::Landlock, format!("ABI {other} is not one this build knows (1 to 7)"))),
    }
}

/// Opens what a rule names, and tells by which path: for an entry, that of its directory. `None` for an optional path that is not there.
#[expect(
    clippy::disallowed_methods,
    reason = "a grant is a path: it is resolved here, once, as the session's user, and held from then on; what was granted is \
              compared with what the supervisor saw"
)]
fn open<'a>(rule: &'a FsRule, own: &[OwnDirectory]) -> Result<Option<(OwnedFd, &'a Path)>, Failure> {
    let mut path = rule.path.as_path();
    if rule.extent == Extent::Entry {
        // A name is replaced in its directory, so the right lies there.
        path = path.parent().unwrap_or(path);
    }
    loop {
        let held = own.iter().find_map(|held| Some((held, path.strip_prefix(held.path()).ok()?)));
        let opened = match held {
            Some((held, below)) => held.open_below(below),
            None => rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()),
        };
        let fd = match (opened, rule.extent, rule.presence) {
            (Ok(fd), ..) => fd,
            // The nearest directory that exists will hold the entry.
            (Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR), Extent::Entry, _) => {
                match path.parent() {
                    Some(parent) => path = parent,
                    None => return Ok(None),
                }
                continue;
            }
            (Err(_absent), _, Presence::Optional) => return Ok(None),
            (Err(errno), ..) => {
                return Err(kernel(Step::Landlock, format!("open {} for its rule", rule.path), errno.into()));
            }
        };
        if rule.extent == Extent::Entry && path == Path::new("/") {
            let what = format!("find the directories above {}, which is granted alone", rule.path);
            return Err(kernel(Step::Landlock, what, std::io::Error::from_raw_os_error(libc::ENOENT)));
        }
        return Ok(Some((fd, path)));
    }
}

/// The tree that a rule is bound to, by its path: for an entry, the nearest directory that is there.
#[expect(clippy::disallowed_methods, reason = "a look as the session's user; rights are bound by what `open` holds")]
pub(crate) fn reach(rule: &FsRule) -> PathBuf {
    let path = rule.path.as_path();
    let is_dir = |path: &&Path| {
        rustix::fs::stat(*path).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
    };
    match rule.extent {
        Extent::Subtree | Extent::File => path.to_owned(),
        Extent::Entry => path.ancestors().skip(1).find(is_dir).unwrap_or(path).to_owned(),
    }
}

fn identity(fd: &OwnedFd, path: &Path) -> Result<FileId, Failure> {
    let stat = look(fd, path)?;
    Ok(FileId { device: stat.st_dev, inode: stat.st_ino })
}

fn look(fd: &OwnedFd, path: &Path) -> Result<Stat, Failure> {
    rustix::fs::fstat(fd).map_err(|e| kernel(Step::Landlock, format!("look at {}", path.display()), e.into()))
}

fn is_directory(fd: &OwnedFd, path: &Path) -> Result<bool, Failure> {
    let stat = look(fd, path)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// The rights at a place, a directory or a file.
fn rights(abi: ABI, place: &RulePath, (whose, executing): (ConfinedSide, Executing)) -> BitFlags<AccessFs> {
    let rights = match (place.right, executing) {
        (Right::Everything, _) => AccessFs::from_all(abi),
        (Right::Program, _) => AccessFs::ReadFile | AccessFs::Execute,
        (Right::Programs, _) => AccessFs::Execute.into(),
        (Right::Names, _) => of_names(abi, whose),
        (Right::Listing, _) => AccessFs::ReadDir.into(),
        (Right::Rule(access), Executing::Trees) => of_rule(abi, access, whose),
        (Right::Rule(access), Executing::Files) => of_rule(abi, access, whose) & !AccessFs::Execute,
    };
    if place.is_dir { rights } else { rights & AccessFs::from_file(abi) }
}

/// Rights that holding single names in a directory takes. (Its own: the kernel has no lesser right than for all below.)
fn of_names(abi: ABI, whose: ConfinedSide) -> BitFlags<AccessFs> {
    let make = AccessFs::MakeReg | AccessFs::MakeDir | AccessFs::RemoveFile;
    let change = AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::WriteFile | AccessFs::Truncate;
    match whose {
        ConfinedSide::Brokers => (make | change) & AccessFs::from_all(abi),
        ConfinedSide::Calls | ConfinedSide::ReadingCalls => BitFlags::empty(),
    }
}

/// Rights that a rule grants.
fn of_rule(abi: ABI, access: FsAccess, whose: ConfinedSide) -> BitFlags<AccessFs> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    match access {
        FsAccess::List => AccessFs::ReadDir.into(),
        FsAccess::Read => read,
        FsAccess::Write | FsAccess::Kept if whose == ConfinedSide::ReadingCalls => read,
        FsAccess::ReadExecute => read | AccessFs::Execute,
        // To truncate as well, which needs a descriptor to write by, or one of two calls that the broker never leaves to the
        // kernel (truncate(2), and O_TRUNC with O_RDONLY). Without that right Landlock would climb from each file that is
        // opened to the root of the file system, to find out whether its descriptor may be truncated later.
        FsAccess::Kept if whose == ConfinedSide::Calls => {
            (read | AccessFs::Execute | AccessFs::Truncate) & AccessFs::from_all(abi)
        }
        // No device nodes: a disk made in a writable directory would be read raw (A13).
        FsAccess::Write | FsAccess::Kept => {
            AccessFs::from_all(abi) & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev)
        }
        FsAccess::Device => {
            (AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev | AccessFs::Truncate)
                & AccessFs::from_all(abi)
        }
    }
}
