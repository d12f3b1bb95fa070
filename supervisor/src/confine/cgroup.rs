//! A cgroup for each program, where the host has delegated a subtree (cgroups(7), version 2).
//!
//! The kernel then holds memory and processes for the call as a whole, and nothing is passed. Delegated means: the cgroup
//! that this process is in can be divided by it, has the controllers `memory` and `pids`, and holds no process but ours.
//! A service manager gives one away on request, and never by accident, so that nothing is taken here that was not meant.

use callgate_worker::protocol::CgroupFds;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use callgate_policy::limit::Bounds;

/// Controllers that have to be there.
const CONTROLLERS: [&str; 2] = ["memory", "pids"];

/// Reason why there is no cgroup to divide.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotDelegated {
    #[error("cgroup version 2 is not mounted")]
    NotMounted,
    #[error("{path} has no {missing} controller")]
    NoController { path: PathBuf, missing: &'static str },
    #[error("{path} is not delegated to us")]
    NotOurs { path: PathBuf },
    #[error("{path} holds other processes than ours")]
    Shared { path: PathBuf },
    #[error("divide {path}")]
    Divide { path: PathBuf, source: io::Error },
}

/// A cgroup of ours, with our own processes in a leaf of it and each call's beside that.
#[derive(Debug)]
pub(crate) struct Delegated {
    path: PathBuf,
    next: AtomicU64,
}

impl Delegated {
    /// Looks whether there is one, and changes nothing.
    pub(crate) fn look() -> Result<PathBuf, NotDelegated> {
        let path = own_path().ok_or(NotDelegated::NotMounted)?;
        let controllers = fs::read_to_string(path.join("cgroup.controllers")).unwrap_or_default();
        let has = |name: &str| controllers.split_ascii_whitespace().any(|each| each == name);
        if let Some(missing) = CONTROLLERS.into_iter().find(|name| !has(name)) {
            return Err(NotDelegated::NoController { path, missing });
        }
        let writable = |path: &Path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
        if !["", "cgroup.procs", "cgroup.subtree_control"].iter().all(|name| writable(&path.join(name))) {
            return Err(NotDelegated::NotOurs { path });
        }
        if processes_in(&path).iter().any(|pid| !is_ours(*pid)) {
            return Err(NotDelegated::Shared { path });
        }
        Ok(path)
    }

    /// Takes it: our own processes go into a leaf, since only a cgroup without processes may be divided.
    pub(crate) fn take() -> Result<Self, NotDelegated> {
        let path = Self::look()?;
        let divide = |source| NotDelegated::Divide { path: path.clone(), source };
        let leaf = path.join("callgate");
        make(&leaf).map_err(divide)?;
        for pid in processes_in(&path) {
            // One that has ended meanwhile is as well there as here.
            match fs::write(leaf.join("cgroup.procs"), pid.to_string()) {
                Err(e) if e.raw_os_error() != Some(ESRCH) => return Err(divide(e)),
                Ok(()) | Err(_) => {}
            }
        }
        fs::write(path.join("cgroup.subtree_control"), "+memory +pids").map_err(divide)?;
        Ok(Self { path, next: AtomicU64::new(0) })
    }

    /// A cgroup for one program, with its limits.
    pub(crate) fn group(&self, bounds: &Bounds) -> io::Result<Group> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.path.join(format!("call-{}-{number}", std::process::id()));
        fs::create_dir(&path)?;
        let group = Group { path };
        group.set("memory.max", bounds.memory)?;
        group.set("pids.max", bounds.processes)?;
        // What is swapped out is used as well. Absent where the kernel has no swap accounting.
        match group.set("memory.swap.max", 0) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            Ok(()) | Err(_) => {}
        }
        // All of the call, not the one that the kernel would choose.
        group.set("memory.oom.group", 1)?;
        Ok(group)
    }
}

/// The errno of a process that is gone.
const ESRCH: i32 = 3;

fn make(directory: &Path) -> io::Result<()> {
    match fs::create_dir(directory) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Where version 2 is mounted (proc_pid_mountinfo(5)), and where in it this process is.
fn own_path() -> Option<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mounted = mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let place = place.split(' ').nth(4)?;
        kind.starts_with("cgroup2 ").then_some(place)
    })?;
    Some(Path::new(mounted).join(own))
}

fn processes_in(path: &Path) -> Vec<u32> {
    let text = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// True if a process is this one or descends from it.
fn is_ours(mut pid: u32) -> bool {
    while pid > 1 && pid != std::process::id() {
        // The process's name is in it, which may be any bytes.
        let Ok(stat) = fs::read(format!("/proc/{pid}/stat")) else { return true };
        let parent = String::from_utf8_lossy(&stat)
            .rsplit(')')
            .next()
            .and_then(|rest| rest.split_ascii_whitespace().nth(1)?.parse().ok());
        pid = parent.unwrap_or(0);
    }
    pid == std::process::id()
}

/// The cgroup of one program. Dropping it ends whatever is still in it.
#[derive(Debug)]
pub(crate) struct Group {
    path: PathBuf,
}

impl Group {
    fn set(&self, file: &str, value: u64) -> io::Result<()> {
        // Opened without creating: a file that is not there is one that this kernel lacks.
        use std::io::Write as _;
        fs::File::options().write(true).open(self.path.join(file))?.write_all(value.to_string().as_bytes())
    }

    /// Descriptors that the program's init needs: to put the program in, and to see what came of its limits.
    pub(crate) fn descriptors(&self) -> io::Result<CgroupFds<OwnedFd>> {
        let open = |name| fs::File::open(self.path.join(name)).map(OwnedFd::from);
        let procs = fs::File::options().write(true).open(self.path.join("cgroup.procs"))?;
        Ok(CgroupFds {
            procs: procs.into(),
            pids_events: open("pids.events")?,
            memory_events: open("memory.events")?,
            memory_peak: open("memory.peak")?,
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Empty by now, but for one whose init was killed from outside. Whoever was killed takes a moment to leave.
        let path = std::mem::take(&mut self.path);
        let removed = fs::write(path.join("cgroup.kill"), "1").and_then(|()| fs::remove_dir(&path));
        if removed.is_err() {
            std::thread::spawn(move || {
                for _ in 0..100 {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                    if fs::remove_dir(&path).is_ok() {
                        return;
                    }
                }
                tracing::warn!(path = %path.display(), "a cgroup could not be removed");
            });
        }
    }
}
