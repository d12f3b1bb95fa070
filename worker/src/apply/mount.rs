//! The private mount tree: only what was granted exists in it, and only what may be written is writable.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use callgate_policy::plan::{Extent, FsRule, Presence, PrivateDir, SessionPlan};
use callgate_policy::step::Step;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
};

use super::own::{is_own, would_cover};
use super::seen::{confirm, confirm_if_seen, replaced};
use super::{kernel, landlock};
use crate::protocol::StepFailure;
use crate::sys::mount::{MountAttributes, restrict};
use crate::way::FollowedPath;

const STEP: Step = Step::Mounts;

/// One tree that goes into the new root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MountContent {
    /// The host's, as it is or read-only.
    Bind { writable: bool, devices: bool, granted: bool },
    /// A new one of this type.
    New { kind: &'static str, options: &'static [(&'static str, &'static str)] },
    /// The session's own directory: a tmpfs of so many bytes.
    Private { size: u64 },
}

/// Trees of the host's that every session sees, to read.
const HOSTS: [&str; 4] = ["/usr", "/opt", "/etc", "/sys"];

/// Where the new root is put together. Every host has it, and nothing is left of it there: the mount is this
/// namespace's alone.
const BASE: &str = "/dev";

/// Builds the tree and makes it the root. Needs CAP_SYS_ADMIN in the mount namespace; comes before Landlock, whose
/// domains deny every mount call.
pub(crate) fn build_root(plan: &SessionPlan) -> Result<String, StepFailure> {
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|e| step("make every mount private", e))?;
    refuse_what_would_be_lost(plan)?;
    let MountEntries { entries, spelt, links: led_by } = entries(plan)?;
    // Cloned before anything is covered, by their host paths.
    let mut trees = Vec::new();
    for (path, content) in &entries {
        let as_spelt = spelt.get(path).unwrap_or(path);
        if let Some(tree) = make_tree(plan, (path, as_spelt), *content)? {
            trees.push((path.as_path(), tree, matches!(content, MountContent::Bind { granted: true, .. })));
        }
    }
    let root = new_filesystem("tmpfs", &[("mode", "0755")])?;
    attach(&root, Path::new(BASE))?;
    rustix::process::chdir(BASE).map_err(|e| step("enter the new root", e))?;
    let mut made = BTreeSet::new();
    for (path, tree, granted) in &trees {
        // What no call can exchange, a host without namespaces lacks.
        let missing = |failed| if *granted { failed } else { StepFailure { step: STEP, ..failed } };
        place(path, tree, &mut made).map_err(missing)?;
        if path == &plan.private.inside.as_path() {
            share_private(plan, &mut made)?;
        }
    }
    for (link, target) in &led_by {
        put_link(link, target, &mut made)?;
    }
    if plan.network.is_some() {
        resolve_by_egress(&mut made)?;
    }
    links()?;
    restrict(root.as_fd(), MountAttributes { read_only: true, no_dev: true }, false)
        .map_err(|e| kernel(STEP, "make the new root read-only", e))?;
    rustix::process::pivot_root(".", ".").map_err(|e| step("pivot_root", e))?;
    rustix::mount::unmount(".", UnmountFlags::DETACH).map_err(|e| step("let the old root go", e))?;
    rustix::process::chdir("/").map_err(|e| step("enter /", e))?;
    let lacks = [("/tmp", plan.has_tmp()), ("/dev/shm", plan.has_shm())].into_iter().filter(|(_, has)| !has);
    let lacks = lacks.map(|(own, _)| format!("; no {own} of its own, for single names in it are granted"));
    Ok(format!("{} mounts in a root of their own{}", trees.len(), lacks.collect::<String>()))
}

/// A procfs for who watches programs: mounted nowhere, so that it is reached by this descriptor alone, and hiding nobody.
/// What runs a program that it may execute and not read is not to be seen in the session's own, with all that it starts.
pub(crate) fn procfs() -> Result<OwnedFd, StepFailure> {
    new_filesystem("proc", &[])
}

/// Fills the session's own directory, and puts its `tmp` and `shm` where programs look for them. (In one that is not the
/// session's own there is what was granted, and nothing can be made.)
#[expect(clippy::disallowed_methods, reason = "below the root of a mount tree that nobody else is in yet")]
fn share_private(plan: &SessionPlan, made: &mut BTreeSet<PathBuf>) -> Result<(), StepFailure> {
    let inside = plan.private.inside.as_path();
    let relative = inside.strip_prefix("/").unwrap_or(inside);
    for name in PrivateDir::PARTS {
        rustix::fs::mkdir(relative.join(name), Mode::from_raw_mode(0o700))
            .map_err(|e| step("fill the session's own directory", e))?;
    }
    let tmp = plan.has_tmp().then_some(("tmp", "/tmp"));
    let shm = plan.has_shm().then_some(("shm", "/dev/shm"));
    for (name, target) in tmp.into_iter().chain(shm) {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = rustix::mount::open_tree(CWD, relative.join(name), flags)
            .map_err(|e| step("clone a part of the session's own directory", e))?;
        // Of these nothing is a call's; a host whose `/dev/shm` is a link cannot have them.
        place(Path::new(target), &tree, made).map_err(|failed| StepFailure { step: STEP, ..failed })?;
    }
    Ok(())
}

/// Where the files that say how names are found lie in the new root until they are in their places.
const NAMES: &str = "names";

/// Puts files of the session's own where programs look how to find the address of a name: egress knows, and nobody else. A
/// host has them as links at times, into directories that are not in the new root.
#[expect(
    clippy::disallowed_methods,
    reason = "files of the system's, read as the session's user, and a new root of its own"
)]
fn resolve_by_egress(made: &mut BTreeSet<PathBuf>) -> Result<(), StepFailure> {
    let fail = |what: &'static str| move |e: rustix::io::Errno| step(what, e);
    let host = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let files = [
        ("/etc/resolv.conf", "nameserver 127.0.0.1\noptions edns0\n".to_owned()),
        ("/etc/hosts", loopback_alone(&host("/etc/hosts"))),
        ("/etc/nsswitch.conf", files_then_dns(&host("/etc/nsswitch.conf"))),
    ];
    rustix::fs::mkdir(NAMES, Mode::from_raw_mode(0o755)).map_err(fail("make a directory for files about names"))?;
    let own = new_filesystem("tmpfs", &[("mode", "0755"), ("size", "1m")])?;
    attach(&own, Path::new(NAMES))?;
    for (path, text) in files {
        let path = Path::new(path);
        let Some(name) = path.file_name().map(|name| Path::new(NAMES).join(name)) else { continue };
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file =
            rustix::fs::open(&name, flags, Mode::from_raw_mode(0o644)).map_err(fail("make a file about names"))?;
        rustix::io::write(&file, text.as_bytes()).map_err(fail("write a file about names"))?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = rustix::mount::open_tree(CWD, &name, flags).map_err(fail("clone a file about names"))?;
        restrict(tree.as_fd(), MountAttributes { read_only: true, no_dev: true }, false)
            .map_err(|e| kernel(STEP, "restrict a file about names", e))?;
        // What the host lacks, nobody looks for there: without resolv.conf the server is 127.0.0.1 (resolv.conf(5)).
        if let Some(real) = led_to(path) {
            place(&real, &tree, made)?;
        }
    }
    rustix::mount::unmount(NAMES, UnmountFlags::DETACH).map_err(fail("let go of the files about names"))?;
    rustix::fs::rmdir(NAMES).map_err(fail("remove the directory of files about names"))
}

/// Where a file of the host's is, or would be if its link led somewhere.
#[expect(clippy::disallowed_methods, reason = "links of the system's, in /etc, which is root's")]
fn led_to(path: &Path) -> Option<PathBuf> {
    if let Ok(real) = std::fs::canonicalize(path) {
        return Some(real);
    }
    let to = path.parent()?.join(std::fs::read_link(path).ok()?);
    let mut plain = PathBuf::new();
    for part in to.components() {
        if part == std::path::Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    Some(plain)
}

/// Names of the machine itself in the host's own table: any other is egress's to know.
fn loopback_alone(hosts: &str) -> String {
    let is_loopback = |line: &&str| {
        let address = line.split_whitespace().next().and_then(|word| word.parse::<std::net::IpAddr>().ok());
        address.is_some_and(|address| address.is_loopback())
    };
    let kept = hosts.lines().filter(is_loopback).map(|line| format!("{line}\n"));
    std::iter::once("127.0.0.1\tlocalhost\n".to_owned()).chain(kept).collect()
}

/// The host's table of where names of every kind are looked up, with names of hosts by file and by DNS alone.
fn files_then_dns(nsswitch: &str) -> String {
    let others = nsswitch.lines().filter(|line| !line.trim_start().starts_with("hosts:"));
    others.map(|line| format!("{line}\n")).chain(["hosts: files dns\n".to_owned()]).collect()
}

fn step(what: &str, errno: rustix::io::Errno) -> StepFailure {
    kernel(STEP, what, io::Error::from(errno))
}

/// Entries of the new tree, by path.
struct MountEntries {
    /// Parents before children: `/dev` and the session's own directory come before what may lie in `/tmp`.
    entries: Vec<(PathBuf, MountContent)>,
    /// Spelling of grants that are spelt by links.
    spelt: BTreeMap<PathBuf, PathBuf>,
    /// The links that lead there, and where they lead.
    links: BTreeMap<PathBuf, PathBuf>,
}

/// Entries for a plan. What was granted is mounted where it is, and the links that lead there are made as well: so a
/// file has the same path in the session and outside, and what was found out about it there (A1, A18) is about it here.
fn entries(plan: &SessionPlan) -> Result<MountEntries, StepFailure> {
    let read_only = MountContent::Bind { writable: false, devices: false, granted: false };
    let mut fixed: Vec<(PathBuf, MountContent)> = HOSTS.into_iter().map(|path| (path.into(), read_only)).collect();
    // Names are visible in it; which of them may be opened is Landlock's business.
    fixed.push(("/dev".into(), MountContent::Bind { writable: false, devices: true, granted: false }));
    // ptraceable: only processes of one's own Landlock domain are there to be seen (proc(5), Linux 5.8).
    fixed.push(("/proc".into(), MountContent::New { kind: "proc", options: &[("hidepid", "ptraceable")] }));
    let devpts = MountContent::New { kind: "devpts", options: &[("ptmxmode", "0666"), ("mode", "0600")] };
    fixed.push(("/dev/pts".into(), devpts));
    let private = MountContent::Private { size: plan.shared_memory };
    fixed.push((plan.private.inside.as_path().to_owned(), private));
    let mut rest: BTreeMap<PathBuf, MountContent> = BTreeMap::new();
    let (mut spelt, mut links) = (BTreeMap::new(), BTreeMap::new());
    for bound in granted(plan, &mut links)? {
        if bound.spelt != bound.path {
            spelt.insert(bound.path.clone(), bound.spelt);
        }
        let (mut writable, mut granted) = (bound.writable, bound.granted);
        if let Some(MountContent::Bind { writable: also, granted: too, .. }) = rest.get(&bound.path) {
            (writable, granted) = (writable || *also, granted || *too);
        }
        rest.insert(bound.path, MountContent::Bind { writable, devices: false, granted });
    }
    Ok(MountEntries { entries: fixed.into_iter().chain(rest).collect(), spelt, links })
}

/// Part of the host's tree that a rule takes.
struct BoundTree {
    /// Where it is.
    path: PathBuf,
    /// As the plan names it.
    spelt: PathBuf,
    whole: bool,
    writable: bool,
    /// It is not a part of what every program needs.
    granted: bool,
}

impl BoundTree {
    fn of(plan: &SessionPlan, (rule, granted): (&FsRule, bool)) -> Self {
        let (path, writable) = (rule.path.as_path(), rule.access.changes());
        let directory = || landlock::reach(rule);
        match rule.extent {
            // A name is replaced in its directory; the broker holds that to the name.
            Extent::Entry if !would_cover(plan, &directory()) => {
                Self { path: directory(), spelt: directory(), whole: true, writable, granted }
            }
            Extent::Entry | Extent::File | Extent::Subtree => {
                let (path, spelt) = (path.to_owned(), path.to_owned());
                Self { path, spelt, whole: rule.extent == Extent::Subtree, writable, granted }
            }
        }
    }
}

impl BoundTree {
    /// Bound at the place where it really is. The links that lead there are added to `links`.
    fn followed(mut self, plan: &SessionPlan, links: &mut BTreeMap<PathBuf, PathBuf>) -> Result<Self, StepFailure> {
        let Ok(way) = FollowedPath::follow(&self.spelt) else { return Ok(self) };
        if !way.has_links() {
            return Ok(self);
        }
        let shown = self.spelt.display().to_string();
        if way.links.iter().any(|link| link.path.starts_with("/proc")) {
            let what = format!(
                "mount {shown}: it leads through /proc, which the session has of its own; name the place itself"
            );
            return Err(StepFailure::new(Step::PrivateDir, what));
        }
        let real = way.real_path().map_err(|_gone| replaced(&self.spelt))?;
        let is_own = is_own(plan, &real) && !is_own(plan, &self.spelt);
        if is_own && !self.granted {
            return Ok(self);
        }
        self.path = real;
        if is_own {
            let what = format!(
                "mount {shown}: it is a link to {}, and with namespaces that directory is the session's own, so name it by \
                 that path",
                self.path.display()
            );
            // Not the step of mounts: where that fails, a session without namespaces is opened.
            return Err(StepFailure::new(Step::PrivateDir, what));
        }
        for link in way.links {
            // Not its text, which may go by directories that are not there.
            let led = FollowedPath::follow(&link.path).map_err(io::Error::from).and_then(|way| way.real_path());
            let target = led.map_err(|_gone| replaced(&self.spelt))?;
            links.insert(link.path, target);
        }
        Ok(self)
    }
}

/// A file that is not there yet, in a directory that the session has one of its own for, would be made in that and go with it.
#[expect(clippy::disallowed_methods, reason = "only whether there will be a mount; the session is refused if not")]
fn refuse_what_would_be_lost(plan: &SessionPlan) -> Result<(), StepFailure> {
    let is_lost = |rule: &&FsRule| {
        let directory = rule.path.as_path().parent().unwrap_or(Path::new("/"));
        let single = rule.extent == Extent::Entry && !is_fixed(plan, rule) && would_cover(plan, directory);
        single && rustix::fs::stat(rule.path.as_path()).is_err()
    };
    match plan.grants.iter().find(is_lost) {
        Some(rule) => {
            let what = format!(
                "find {}: with namespaces that directory is the session's own, so make the file first",
                rule.path
            );
            // As in `BoundTree::followed`.
            Err(kernel(Step::PrivateDir, what, io::Error::from_raw_os_error(libc::ENOENT)))
        }
        None => Ok(()),
    }
}

/// Bounds that need a mount: what the fixed part of the tree does not hold already.
fn granted(plan: &SessionPlan, links: &mut BTreeMap<PathBuf, PathBuf>) -> Result<Vec<BoundTree>, StepFailure> {
    let surroundings = plan.surroundings.iter().map(|rule| (rule, false));
    let rules = surroundings.chain(plan.grants.iter().map(|rule| (rule, true)));
    let needed = rules.filter(|(rule, granted)| !is_fixed(plan, rule) || (*granted && leads_out_of_the_fixed(rule)));
    let rules = needed.map(|rule| (rule.0, BoundTree::of(plan, rule)));
    let there = rules.filter(|(rule, bound)| is_there(rule, bound));
    let mut bound: Vec<BoundTree> = there.map(|(_, bound)| bound.followed(plan, links)).collect::<Result<_, _>>()?;
    // What a link leads to may be a device: that is there as it is.
    bound.retain(|bound| {
        bound.path.starts_with("/dev/shm") || !["/dev", "/proc"].iter().any(|top| bound.path.starts_with(top))
    });
    let covered = |bound_here: &BoundTree| {
        // A tree within another that is at least as open comes with it.
        bound.iter().any(|outer| {
            outer.whole
                && outer.path != bound_here.path
                && bound_here.path.starts_with(&outer.path)
                && (outer.writable || !bound_here.writable)
        })
    };
    let needed: Vec<bool> = bound.iter().map(|bound| !covered(bound)).collect();
    Ok(bound.into_iter().zip(needed).filter_map(|(bound, needed)| needed.then_some(bound)).collect())
}

/// True if the fixed part of the tree has this.
fn is_fixed(plan: &SessionPlan, rule: &FsRule) -> bool {
    let path = rule.path.as_path();
    let below = |tops: &[&str]| tops.iter().any(|top| path.starts_with(top));
    let is = |names: &[&str]| names.iter().any(|name| path == Path::new(name));
    path.starts_with(&plan.private.inside)
        || is(&["/tmp", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"])
        || below(&["/dev", "/proc"])
        || (below(&HOSTS) && !rule.access.changes())
}

/// True if a rule names a link in the fixed part of the tree that leads out of it (`/opt/app`, to `/srv/app`).
fn leads_out_of_the_fixed(rule: &FsRule) -> bool {
    let below = |path: &Path, tops: &[&str]| tops.iter().any(|top| path.starts_with(top));
    let led = || FollowedPath::follow(rule.path.as_path()).ok().filter(FollowedPath::has_links)?.real_path().ok();
    below(rule.path.as_path(), &HOSTS)
        && led().is_some_and(|real| !below(&real, &HOSTS) && !below(&real, &["/dev", "/proc"]))
}

/// An optional path that is absent has no mount; a required one that is absent fails, with its name.
#[expect(
    clippy::disallowed_methods,
    reason = "only whether there will be a mount; what is mounted is opened once, as the session's user"
)]
fn is_there(rule: &FsRule, bound: &BoundTree) -> bool {
    rule.presence == Presence::Required || rustix::fs::stat(&bound.path).is_ok()
}

/// A detached tree with its final attributes. `None` for a part of the system that this host lacks.
fn make_tree(
    plan: &SessionPlan,
    (path, spelt): (&Path, &Path),
    content: MountContent,
) -> Result<Option<OwnedFd>, StepFailure> {
    match content {
        MountContent::New { kind, options } => new_filesystem(kind, options).map(Some),
        // Memory that belongs to no process: without a bound of its own it may take half of the host's (tmpfs(5)).
        MountContent::Private { size } => {
            new_filesystem("tmpfs", &[("mode", "0700"), ("size", size.to_string().as_str())]).map(Some)
        }
        MountContent::Bind { writable, devices, granted } => {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
            let tree = match rustix::mount::open_tree(CWD, path, flags) {
                Ok(tree) => tree,
                Err(rustix::io::Errno::NOENT) => return Ok(None),
                // As Landlock would say it, which cannot open it either.
                Err(e @ rustix::io::Errno::ACCESS) if granted => {
                    return Err(kernel(Step::Landlock, format!("open {} for its rule", path.display()), e.into()));
                }
                Err(e) if granted && e != rustix::io::Errno::INVAL => return Err(at("clone", path, e)),
                Err(e) => return Err(step(&format!("clone {}", path.display()), e)),
            };
            if granted {
                confirm(plan, spelt, &tree)?;
            } else {
                confirm_if_seen(plan, spelt, &tree)?;
            }
            restrict(tree.as_fd(), MountAttributes { read_only: !writable, no_dev: !devices }, true)
                .map_err(|e| kernel(STEP, format!("restrict {}", path.display()), e))?;
            Ok(Some(tree))
        }
    }
}

fn new_filesystem(kind: &str, options: &[(&str, &str)]) -> Result<OwnedFd, StepFailure> {
    let fail = |what: &str, e| step(&format!("{what} {kind}"), e);
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC).map_err(|e| fail("open", e))?;
    for (key, value) in options {
        rustix::mount::fsconfig_set_string(context.as_fd(), *key, *value).map_err(|e| fail("configure", e))?;
    }
    rustix::mount::fsconfig_create(context.as_fd()).map_err(|e| fail("create", e))?;
    let mut flags = MountAttrFlags::MOUNT_ATTR_NOSUID;
    if kind != "devpts" {
        flags |= MountAttrFlags::MOUNT_ATTR_NODEV;
    }
    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags).map_err(|e| fail("mount", e))
}

fn attach(tree: &OwnedFd, target: &Path) -> Result<(), StepFailure> {
    rustix::mount::move_mount(tree.as_fd(), "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(|e| step(&format!("attach {}", target.display()), e))
}

/// Failure at a place in the new root. What lies there is the host's, where calls of another session may exchange it:
/// that is no reason to do without namespaces. Only what a host says that refuses them is.
fn at(what: &str, place: &Path, errno: rustix::io::Errno) -> StepFailure {
    use rustix::io::Errno;
    let refused = [Errno::PERM, Errno::NOSYS, Errno::OPNOTSUPP, Errno::NOMEM, Errno::NOSPC, Errno::NFILE, Errno::MFILE];
    if !refused.contains(&errno) {
        return replaced(place);
    }
    step(&format!("{what} {}", place.display()), errno)
}

fn is_directory(opened: &OwnedFd) -> Result<bool, StepFailure> {
    let stat = rustix::fs::fstat(opened).map_err(|e| step("look at a tree", e))?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// File with a path below the current directory, which no link leads to: in a tree that is there already, a call may
/// have made one.
fn below(relative: &Path) -> rustix::io::Result<OwnedFd> {
    let here = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    rustix::fs::openat2(CWD, here, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)
}

/// The directory that a path below the current one lies in, and its name there.
fn parent_of(relative: &Path) -> rustix::io::Result<(OwnedFd, &OsStr)> {
    let directory = below(relative.parent().unwrap_or(Path::new("")))?;
    Ok((directory, relative.file_name().unwrap_or_default()))
}

/// Makes a directory below the current one, with those that it lies in.
fn make_directories(path: &Path, made: &mut BTreeSet<PathBuf>) -> Result<(), StepFailure> {
    let mut missing: Vec<&Path> = path.ancestors().collect();
    missing.retain(|ancestor| !ancestor.as_os_str().is_empty() && !made.contains(*ancestor));
    for directory in missing.into_iter().rev() {
        let whole = || Path::new("/").join(directory);
        let (above, name) = parent_of(directory).map_err(|e| at("find", &whole(), e))?;
        match rustix::fs::mkdirat(above, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            // In a host tree, read-only by now, that has this entry already; if it has not, the attach says so.
            Err(rustix::io::Errno::ROFS | rustix::io::Errno::ACCESS) => {}
            Err(e) => return Err(at("make the mount point", &whole(), e)),
        }
        made.insert(directory.to_owned());
    }
    Ok(())
}

/// Makes the mount point below the current directory and attaches the tree there. `made` are the directories that are
/// known to exist.
fn place(path: &Path, tree: &OwnedFd, made: &mut BTreeSet<PathBuf>) -> Result<(), StepFailure> {
    let relative = path.strip_prefix("/").unwrap_or(path);
    let is_dir = is_directory(tree)?;
    make_directories(if is_dir { relative } else { relative.parent().unwrap_or(relative) }, made)?;
    if !is_dir {
        // What is there is not opened: it may be a FIFO, a socket or a running program, of a call's making.
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let (directory, name) = parent_of(relative).map_err(|e| at("find", path, e))?;
        match rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o644)) {
            Ok(_) | Err(rustix::io::Errno::EXIST | rustix::io::Errno::ROFS | rustix::io::Errno::ACCESS) => {}
            Err(e) => return Err(at("make the mount point", path, e)),
        }
    }
    let point = below(relative).map_err(|e| at("find", path, e))?;
    if is_directory(&point)? != is_dir {
        return Err(replaced(path));
    }
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(tree.as_fd(), "", point.as_fd(), "", flags).map_err(|e| at("attach", path, e))
}

/// Makes a link below the current directory, unless a tree of the host's that is there has it already.
fn put_link(link: &Path, target: &Path, made: &mut BTreeSet<PathBuf>) -> Result<(), StepFailure> {
    let relative = link.strip_prefix("/").unwrap_or(link);
    make_directories(relative.parent().unwrap_or(Path::new("")), made)?;
    let (directory, name) = parent_of(relative).map_err(|e| at("find", link, e))?;
    match rustix::fs::symlinkat(target, directory, name) {
        Ok(()) | Err(rustix::io::Errno::EXIST | rustix::io::Errno::ROFS | rustix::io::Errno::ACCESS) => Ok(()),
        Err(e) => Err(at("link", link, e)),
    }
}

/// The base system's links, as the host has them.
#[expect(clippy::disallowed_methods, reason = "links of the system, in /, which is root's")]
fn links() -> Result<(), StepFailure> {
    for name in ["bin", "sbin", "lib", "lib32", "lib64", "libx32"] {
        let host = Path::new("/").join(name);
        let Ok(target) = rustix::fs::readlink(&host, Vec::new()) else { continue };
        match rustix::fs::symlinkat(target, CWD, name) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(e) => return Err(step(&format!("link /{name}"), e)),
        }
    }
    Ok(())
}
