//! Facts that procfs tells of processes (proc(5)).
#![expect(clippy::disallowed_methods, reason = "procfs is the kernel's: nobody puts a link in its files' place")]

use std::borrow::Cow;
use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

use crate::sys::landlock::{READ_DIR, READ_FILE};
use crate::sys::process::{OwnFile, Pid};

const fn file(path: &'static CStr) -> OwnFile {
    OwnFile { path, rights: READ_FILE }
}

/// Files that a program may read of its own directory in a procfs that shows the host's processes: what tells of the
/// process itself.
///
/// A list, for the directory as a whole tells of the host: `net` of its sockets and addresses, `mountinfo` and `cgroup` of its
/// mounts and its containers, and so do the same names below `task`. To its memory (`mem`) there are other ways; nothing is
/// written.
pub(crate) const OWN: &[OwnFile] = &[
    file(c"/proc/self/auxv"),
    file(c"/proc/self/cmdline"),
    file(c"/proc/self/comm"),
    file(c"/proc/self/environ"),
    file(c"/proc/self/io"),
    file(c"/proc/self/limits"),
    file(c"/proc/self/maps"),
    file(c"/proc/self/oom_score"),
    file(c"/proc/self/oom_score_adj"),
    file(c"/proc/self/schedstat"),
    file(c"/proc/self/smaps"),
    file(c"/proc/self/smaps_rollup"),
    file(c"/proc/self/stat"),
    file(c"/proc/self/statm"),
    file(c"/proc/self/status"),
    // Which descriptors there are. They are magic links: the kernel judges what they lead to.
    OwnFile { path: c"/proc/self/fd", rights: READ_DIR },
    OwnFile { path: c"/proc/self/fdinfo", rights: READ_DIR | READ_FILE },
];

/// Files that the broker opens of a process for the others of its call, where they may trace one another: what
/// debuggers, `ps` and `top` read. Not its memory and its environment: a program may have confined its own child
/// further, which the kernel knows and the broker does not.
pub(crate) const TOLD_OF_SIBLINGS: &[&str] = &[
    "auxv",
    "children",
    "cmdline",
    "comm",
    "io",
    "limits",
    "maps",
    "oom_score",
    "oom_score_adj",
    "schedstat",
    "smaps",
    "smaps_rollup",
    "stat",
    "statm",
    "status",
    "wchan",
];

/// Keeps what a program was shown of itself in the kernel's memory, for as long as these are open: procfs makes a file anew
/// when the old one was dropped for want of memory, and a rule is for the old one.
pub(crate) fn keep_own(own: &[OwnFile], pid: Pid) -> Vec<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    own.iter()
        .filter_map(|file| file.path.to_str().ok()?.strip_prefix("/proc/self/"))
        .filter_map(|name| rustix::fs::open(Procfs::USUAL.path(pid, name), flags, Mode::empty()).ok())
        .collect()
}

/// A procfs, by a path that leads to its root.
#[derive(Debug)]
pub(crate) struct Procfs(Cow<'static, str>);

impl Procfs {
    /// The one that is mounted where it belongs.
    pub(crate) const USUAL: Self = Self(Cow::Borrowed("/proc"));

    /// One that this process has as an open directory, for as long as it has.
    pub(crate) fn at(root: BorrowedFd<'_>) -> Self {
        Self(Cow::Owned(format!("/proc/self/fd/{}", root.as_raw_fd())))
    }

    /// The path of a file about a process or thread.
    pub(crate) fn path(&self, pid: Pid, file: &str) -> String {
        format!("{}/{pid}/{file}", self.0)
    }

    /// Text of a file about a process, whose name may be any bytes (PR_SET_NAME): it is no way not to be counted.
    pub(crate) fn text(&self, pid: Pid, file: &str) -> io::Result<String> {
        let text = fs::read(self.path(pid, file))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// The threads of a process, as they are listed.
    pub(crate) fn threads(&self, pid: Pid) -> impl Iterator<Item = Pid> + use<> {
        let listing = fs::read_dir(self.path(pid, "task")).into_iter().flatten().flatten();
        listing.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
    }

    /// The children of a process, of all its threads.
    pub(crate) fn children(&self, pid: Pid) -> Vec<Pid> {
        let mut found = Vec::new();
        for thread in self.threads(pid) {
            let directory = self.path(pid, &format!("task/{thread}"));
            match fs::read_to_string(format!("{directory}/children")) {
                Ok(list) => found.extend(list.split_ascii_whitespace().filter_map(|p| p.parse::<Pid>().ok())),
                // A kernel without CONFIG_PROC_CHILDREN: ask every process for its parent.
                Err(e) if e.kind() == io::ErrorKind::NotFound && rustix::fs::stat(directory).is_ok() => {
                    return self.by_parent(pid);
                }
                Err(_gone) => {}
            }
        }
        found
    }

    /// Children of a process with one thread: a third of the calls.
    pub(crate) fn children_of_one_thread(&self, pid: Pid) -> Vec<Pid> {
        match fs::read_to_string(self.path(pid, &format!("task/{pid}/children"))) {
            Ok(list) => list.split_ascii_whitespace().filter_map(|p| p.parse().ok()).collect(),
            Err(_gone_or_not_offered) => self.children(pid),
        }
    }

    fn by_parent(&self, parent: Pid) -> Vec<Pid> {
        let Ok(entries) = fs::read_dir(&*self.0) else { return Vec::new() };
        entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<Pid>().ok())
            .filter(|pid| self.parent_of(*pid) == Some(parent))
            .collect()
    }

    /// The parent of a process or thread.
    pub(crate) fn parent_of(&self, pid: Pid) -> Option<Pid> {
        self.stat_field(pid, 4)
    }

    /// True if a process or thread has ended and is only waited for.
    pub(crate) fn is_zombie(&self, pid: Pid) -> bool {
        self.stat_field(pid, 3).is_some_and(|state| matches!(state, 'Z' | 'X'))
    }

    /// A field of `/proc/PID/stat`, numbered as in proc_pid_stat(5), from 3. The name before may hold anything, `)` too.
    fn stat_field<T: std::str::FromStr>(&self, pid: Pid, number: usize) -> Option<T> {
        let file = self.path(pid, "stat");
        let file = rustix::fs::open(file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        // The kernel gives all of it at once to who has room for it: 52 numbers and a name.
        let mut room = [0; 2048];
        let length = rustix::io::read(file, &mut room).ok()?;
        let stat = room.get(..length)?;
        let close = stat.iter().rposition(|b| *b == b')')?;
        std::str::from_utf8(&stat[close + 1..]).ok()?.split_ascii_whitespace().nth(number - 3)?.parse().ok()
    }
}
