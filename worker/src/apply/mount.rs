//! The private mount tree: only what was granted exists in it, and only what may be written is writable.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use callgate_policy::plan::{Extent, FsAccess, FsRule, Presence, SessionPlan};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags,
};

use super::kernel;
use crate::protocol::StepFailure;
use crate::sys::mount::{Attributes, restrict};

const STEP: &str = "mounts";

/// One tree that goes into the new root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// The host's, as it is or read-only.
    Bind { writable: bool, devices: bool },
    /// A new one of this type.
    New { kind: &'static str, options: &'static [(&'static str, &'static str)], writable: bool },
}

/// Builds the tree and makes it the root. Needs CAP_SYS_ADMIN in the mount namespace; comes before Landlock, whose
/// domains deny every mount call.
pub(crate) fn build_root(plan: &SessionPlan) -> Result<String, StepFailure> {
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|e| step("make every mount private", e))?;
    let entries = entries(plan);
    // Cloned before anything is covered, by their host paths.
    let mut trees = Vec::new();
    for (inside, (host, content)) in &entries {
        if let Some(tree) = make_tree(host, *content)? {
            trees.push((inside.as_path(), tree));
        }
    }
    let base = plan.private.host.as_path();
    let root = new_filesystem("tmpfs", &[("mode", "0755")], true)?;
    attach(&root, base)?;
    rustix::process::chdir(base).map_err(|e| step("enter the new root", e))?;
    for (inside, tree) in &trees {
        place(inside, tree)?;
    }
    links()?;
    restrict(root.as_fd(), Attributes { read_only: true, no_dev: true }, false)
        .map_err(|e| kernel(STEP, "make the new root read-only", e))?;
    rustix::process::pivot_root(".", ".").map_err(|e| step("pivot_root", e))?;
    rustix::mount::unmount(".", UnmountFlags::DETACH).map_err(|e| step("let the old root go", e))?;
    rustix::process::chdir("/").map_err(|e| step("enter /", e))?;
    Ok(format!("{} mounts in a root of their own", trees.len()))
}

fn step(what: &str, errno: rustix::io::Errno) -> StepFailure {
    kernel(STEP, what, io::Error::from(errno))
}

/// What goes where, parents before children. A tree within another that is at least as open needs no mount of its own.
fn entries(plan: &SessionPlan) -> BTreeMap<PathBuf, (PathBuf, Content)> {
    let read_only = Content::Bind { writable: false, devices: false };
    let mut entries: BTreeMap<PathBuf, (PathBuf, Content)> = BTreeMap::new();
    let mut add = |inside: &Path, host: &Path, content| {
        entries.insert(inside.to_owned(), (host.to_owned(), content));
    };
    for system in ["/usr", "/opt", "/etc", "/sys"] {
        add(Path::new(system), Path::new(system), read_only);
    }
    // Names are visible in it; which of them may be opened is Landlock's business.
    add(Path::new("/dev"), Path::new("/dev"), Content::Bind { writable: false, devices: true });
    add(
        Path::new("/proc"),
        Path::new("/proc"),
        // ptraceable: only processes of one's own Landlock domain are there to be seen (proc(5), Linux 5.8).
        Content::New { kind: "proc", options: &[("hidepid", "ptraceable")], writable: true },
    );
    let tmpfs = |options| Content::New { kind: "tmpfs", options, writable: true };
    add(Path::new("/dev/shm"), Path::new("/dev/shm"), tmpfs(&[("mode", "1777")]));
    add(
        Path::new("/dev/pts"),
        Path::new("/dev/pts"),
        Content::New { kind: "devpts", options: &[("ptmxmode", "0666"), ("mode", "0600")], writable: true },
    );
    let writable = Content::Bind { writable: true, devices: false };
    let private = (plan.private.inside.as_path(), plan.private.host.as_path());
    add(private.0, private.1, writable);
    // Not a bind of the private directory's `tmp`: mount points made in it for a workspace under /tmp would be on disk,
    // and could not be removed while this namespace lasts.
    add(Path::new("/tmp"), Path::new("/tmp"), tmpfs(&[("mode", "0700")]));
    for rule in granted(plan) {
        let path = rule.path.as_path();
        add(path, path, if rule.access == FsAccess::Write { writable } else { read_only });
    }
    entries
}

/// The rules that need a mount: what the fixed part of the tree does not hold already.
fn granted(plan: &SessionPlan) -> impl Iterator<Item = &FsRule> {
    let bound = || plan.rules.iter().filter(|rule| !is_fixed(plan, rule));
    bound().filter(move |rule| {
        // A tree within another that is at least as open comes with it.
        let covered = bound().any(|outer| {
            outer.extent == Extent::Subtree
                && outer.path != rule.path
                && rule.path.as_path().starts_with(&outer.path)
                && (outer.access == FsAccess::Write || rule.access != FsAccess::Write)
        });
        !covered && is_there(rule)
    })
}

/// Whether the fixed part of the tree has this.
fn is_fixed(plan: &SessionPlan, rule: &FsRule) -> bool {
    let path = rule.path.as_path();
    let below = |tops: &[&str]| tops.iter().any(|top| path.starts_with(top));
    let is = |names: &[&str]| names.iter().any(|name| path == Path::new(name));
    path.starts_with(&plan.private.inside)
        || is(&["/tmp", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"])
        || below(&["/dev", "/proc"])
        || (below(&["/usr", "/opt", "/etc", "/sys"]) && rule.access != FsAccess::Write)
}

/// An optional path that is absent has no mount; a required one that is absent fails, with its name.
fn is_there(rule: &FsRule) -> bool {
    rule.presence == Presence::Required || rustix::fs::stat(rule.path.as_path()).is_ok()
}

/// A detached tree with its final attributes. `None` for a part of the system that this host lacks.
fn make_tree(host: &Path, content: Content) -> Result<Option<OwnedFd>, StepFailure> {
    match content {
        Content::New { kind, options, writable } => new_filesystem(kind, options, writable).map(Some),
        Content::Bind { writable, devices } => {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
            let tree = match rustix::mount::open_tree(CWD, host, flags) {
                Ok(tree) => tree,
                Err(rustix::io::Errno::NOENT) => return Ok(None),
                Err(e) => return Err(step(&format!("clone {}", host.display()), e)),
            };
            restrict(tree.as_fd(), Attributes { read_only: !writable, no_dev: !devices }, true)
                .map_err(|e| kernel(STEP, format!("restrict {}", host.display()), e))?;
            Ok(Some(tree))
        }
    }
}

fn new_filesystem(kind: &str, options: &[(&str, &str)], writable: bool) -> Result<OwnedFd, StepFailure> {
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
    if !writable {
        flags |= MountAttrFlags::MOUNT_ATTR_RDONLY;
    }
    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags).map_err(|e| fail("mount", e))
}

fn attach(tree: &OwnedFd, target: &Path) -> Result<(), StepFailure> {
    rustix::mount::move_mount(tree.as_fd(), "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(|e| step(&format!("attach {}", target.display()), e))
}

/// Makes the mount point below the current directory and attaches the tree there.
fn place(inside: &Path, tree: &OwnedFd) -> Result<(), StepFailure> {
    let relative = inside.strip_prefix("/").unwrap_or(inside);
    let is_dir = rustix::fs::fstat(tree)
        .map(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
        .map_err(|e| step("look at a tree", e))?;
    let make = |path: &Path| match rustix::fs::mkdir(path, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        // The parent is a host tree, read-only by now, that has this entry already; if not, the attach says so.
        Err(rustix::io::Errno::ROFS | rustix::io::Errno::ACCESS) => Ok(()),
        Err(e) => Err(step(&format!("make the mount point {}", path.display()), e)),
    };
    let ancestors: Vec<&Path> = relative.ancestors().skip(1).collect();
    for ancestor in ancestors.iter().rev().filter(|a| !a.as_os_str().is_empty()) {
        make(ancestor)?;
    }
    if is_dir {
        make(relative)?;
    } else {
        match rustix::fs::open(relative, OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::from_raw_mode(0o644)) {
            Ok(_) | Err(rustix::io::Errno::ROFS | rustix::io::Errno::ACCESS) => {}
            Err(e) => return Err(step(&format!("make the mount point {}", inside.display()), e)),
        }
    }
    attach(tree, relative)
}

/// The base system's links, as the host has them.
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

