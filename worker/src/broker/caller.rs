//! Who asks, and what its pointers name: copies, never looked at twice.

use std::cell::{Cell, RefCell};
use std::ffi::{CString, OsStr};
use std::fs;
use std::io::Read as _;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use callgate_policy::plan::exec::{self, FileId, HEADER_BYTES, Header, Located, read_header};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::process::{Pid as KernelPid, PidfdFlags, PidfdGetfdFlags};

use crate::programs::{self, ProgramTree};
use crate::sys::memory;
use crate::sys::notify::{self, Notification};
use crate::sys::process::{self, Pid};

const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC);
const PAGE: usize = 4096;
/// `PIDFD_THREAD` (linux/pidfd.h, Linux 6.9).
const THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL as u32);
/// PATH_MAX, the NUL included (limits.h).
const PATH_MAX: usize = 4096;

/// A thread that has asked, pinned by its directory in `/proc`: nothing is found below that once the thread is gone, whoever
/// has its number by then.
pub(super) struct Thread {
    pub(super) tid: Pid,
    proc: OwnedFd,
    /// The worker that it descends from, once that is known.
    pub(super) worker: Cell<Option<Pid>>,
    /// Its file mode creation mask, while that is known.
    pub(super) umask: Cell<Option<u32>>,
}

impl Thread {
    #[expect(clippy::disallowed_methods, reason = "procfs is the kernel's: nobody puts a link in its files' place")]
    pub(super) fn open(tid: Pid) -> Result<Self, i32> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc =
            rustix::fs::open(format!("/proc/{tid}"), flags, Mode::empty()).map_err(rustix::io::Errno::raw_os_error)?;
        Ok(Self { tid, proc, worker: Cell::new(None), umask: Cell::new(None) })
    }

    /// True if it may be a worker, and not of what one has started.
    pub(super) fn may_be_worker(&self) -> bool {
        self.worker.get().is_none_or(|worker| worker == self.tid)
    }

    /// The file that its process runs.
    pub(super) fn image(&self) -> Result<ProcessImage, i32> {
        let stat = rustix::fs::statat(&self.proc, c"exe", AtFlags::empty()).map_err(rustix::io::Errno::raw_os_error)?;
        Ok(ProcessImage { file: file_of(&stat), has_name: stat.st_nlink != 0 })
    }

    /// Image of the caller, held.
    pub(super) fn pin_image(&self) -> Result<OwnedFd, i32> {
        rustix::fs::openat(&self.proc, c"exe", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(raw)
    }

    /// By the name that this process has for it.
    pub(super) fn image_path(&self) -> Result<Vec<u8>, i32> {
        let path = rustix::fs::readlinkat(&self.proc, c"exe", Vec::new()).map_err(rustix::io::Errno::raw_os_error)?;
        Ok(path.into_bytes())
    }

    /// The kernel's own copy of its arguments (proc_pid_cmdline(5)), to be read.
    pub(super) fn open_arguments(&self) -> std::io::Result<fs::File> {
        Ok(rustix::fs::openat(&self.proc, c"cmdline", READ, Mode::empty())?.into())
    }

    /// Opens its environment (proc_pid_environ(5)).
    pub(super) fn open_environment(&self) -> std::io::Result<fs::File> {
        Ok(rustix::fs::openat(&self.proc, c"environ", READ, Mode::empty())?.into())
    }

    /// True if a directory, by its absolute path, is one that the session cannot change, and neither is any that leads
    /// to it.
    pub(super) fn is_fixed(&self, directory: &[u8], writable: &[PathBuf]) -> bool {
        let ends = directory.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &directory[..=at]);
        directory.starts_with(b"/")
            && ends.chain([directory]).all(|path| {
                let opened = self.open_as_it_sees(path);
                opened.is_some_and(|target| !target.may_be_in(writable))
            })
    }

    /// Opens a name as this process would, but for magic links.
    fn open_as_it_sees(&self, path: &[u8]) -> Option<PinnedFile> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let cwd = rustix::fs::openat(&self.proc, c"cwd", flags, Mode::empty()).ok()?;
        let fd = rustix::fs::openat2(cwd, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS).ok()?;
        given(fd).ok()
    }

    /// True if a word is a name of a file, in the eyes of this process, and stays one: if the file lies where the
    /// session cannot write, so must every directory that leads to it, or a link could lead elsewhere by the time that
    /// it is followed. (What lies where the session can write, it can change as well.) A magic link would be followed
    /// with this process's own eyes.
    pub(super) fn names(&self, word: &[u8], file: FileId, writable: &[PathBuf]) -> bool {
        let open = |path: &[u8]| self.open_as_it_sees(path);
        let is_writable = |target: &PinnedFile| target.may_be_in(writable);
        let is_meant = |target: &PinnedFile| !target.is_stray() && identity(target.fd.as_fd()) == Ok(file);
        let Some(named) = open(word).filter(is_meant) else { return false };
        let ends = word.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &word[..=at]);
        let start: &[u8] = if word.starts_with(b"/") { b"/" } else { b"." };
        is_writable(&named)
            || ends.chain([start]).all(|directory| open(directory).is_some_and(|target| !is_writable(&target)))
    }

    /// Opens a file or directory below its own, by no link.
    pub(super) fn open_below(&self, rest: &str, flags: OFlags) -> Result<OwnedFd, i32> {
        let rest = if rest.is_empty() { "." } else { rest };
        let without = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&self.proc, rest, flags, Mode::empty(), without).map_err(rustix::io::Errno::raw_os_error)
    }

    /// True if it has its number still.
    pub(super) fn is_there(&self) -> bool {
        rustix::fs::statat(&self.proc, c"task", AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }
}

/// Image that a process runs.
pub(super) struct ProcessImage {
    pub(super) file: FileId,
    pub(super) has_name: bool,
}

/// Identity of an open file.
pub(super) fn identity(fd: BorrowedFd<'_>) -> Result<FileId, i32> {
    rustix::fs::fstat(fd).map(|stat| file_of(&stat)).map_err(rustix::io::Errno::raw_os_error)
}

#[allow(clippy::useless_conversion, reason = "the types differ by architecture")]
fn file_of(stat: &rustix::fs::Stat) -> FileId {
    FileId { device: u64::from(stat.st_dev), inode: u64::from(stat.st_ino) }
}

/// The thread that waits for an answer.
pub(super) struct Caller<'a> {
    listener: &'a OwnedFd,
    id: u64,
    pub(super) thread: Thread,
    /// Paths and addresses that were read in its memory, for the log. `None` where nothing is logged.
    about: Option<RefCell<Vec<String>>>,
}

/// Treatment of the last component of a name when it is a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastLink {
    Follow,
    Keep,
}

impl LastLink {
    fn flags(self) -> OFlags {
        if self == Self::Keep { OFlags::NOFOLLOW } else { OFlags::empty() }
    }
}

/// A file that a name or a descriptor stood for: the descriptor here pins it whatever the name becomes.
pub(super) struct PinnedFile {
    pub(super) fd: OwnedFd,
    /// Path that the kernel has for it, without links.
    path: PathBuf,
    standing: PathStanding,
}

/// Relation of the kernel's path of a file to that file: whether it leads there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathStanding {
    /// It did, in the broker's mount tree, a moment ago.
    Named,
    /// That name was removed (and another may be left), or it is one in another mount tree.
    Stray,
}

impl PinnedFile {
    /// A directory of the broker's own.
    pub(super) fn own(fd: OwnedFd, path: PathBuf) -> Self {
        Self { fd, path, standing: PathStanding::Named }
    }

    /// Where it is. A path that does not lead to the file says nothing of what may be done with it: EACCES.
    pub(super) fn path(&self) -> Result<&Path, i32> {
        match self.standing {
            PathStanding::Named => Ok(&self.path),
            PathStanding::Stray => Err(libc::EACCES),
        }
    }

    /// Where the kernel says it is or was. Enough to tell in whose tree it may lie, and for nothing else.
    pub(super) fn last_path(&self) -> &Path {
        &self.path
    }

    pub(super) fn is_stray(&self) -> bool {
        self.standing == PathStanding::Stray
    }

    /// True if it may lie in one of these trees: what lies in another mount tree may do so there.
    fn may_be_in(&self, trees: &[PathBuf]) -> bool {
        self.is_stray() || trees.iter().any(|tree| self.path.starts_with(tree))
    }
}

impl<'a> Caller<'a> {
    /// `None` if it is gone, and its number may be another's.
    pub(super) fn new(listener: &'a OwnedFd, notification: &Notification, thread: Thread) -> Option<Self> {
        let caller = Self::again(listener, notification, thread);
        caller.confirm().is_ok().then_some(caller)
    }

    /// Caller for a thread that asked before, and was there a moment ago.
    pub(super) fn again(listener: &'a OwnedFd, notification: &Notification, thread: Thread) -> Self {
        Self { listener, id: notification.id, thread, about: None }
    }

    /// This caller, with what its call is about kept for the log.
    pub(super) fn logged(self) -> Self {
        Self { about: Some(RefCell::default()), ..self }
    }

    /// Paths and addresses of its call, where they are logged. Taken.
    pub(super) fn about(&self) -> Vec<String> {
        self.about.as_ref().map(RefCell::take).unwrap_or_default()
    }

    /// Keeps something that the call is about for the log.
    pub(super) fn is_about(&self, text: impl FnOnce() -> Option<String>) {
        if let Some(about) = &self.about {
            about.borrow_mut().extend(text());
        }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn tid(&self) -> Pid {
        self.thread.tid
    }

    /// Confirms that what was just read by thread id was this thread's, not that of one that got its number.
    pub(super) fn confirm(&self) -> Result<(), i32> {
        if notify::is_valid(self.listener.as_fd(), self.id) { Ok(()) } else { Err(libc::ESRCH) }
    }

    /// Copies memory; all of it or `EFAULT`.
    pub(super) fn bytes(&self, address: u64, len: usize) -> Result<Vec<u8>, i32> {
        let mut buffer = vec![0; len];
        let got = self.read(address, &mut buffer)?;
        if got == len { Ok(buffer) } else { Err(libc::EFAULT) }
    }

    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<usize, i32> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let got = match memory::read(self.tid(), address, buffer) {
            // Some containers' filters refuse the call, and not the file.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) => self.read_file(address, buffer),
            read => read,
        };
        let got = got.map_err(|e| match e.raw_os_error() {
            Some(libc::EFAULT) => libc::EFAULT,
            // Yama, or a target that may not be looked at: what cannot be judged is refused.
            _ => libc::EPERM,
        });
        self.confirm()?;
        got
    }

    /// Reads by way of proc_pid_mem(5), up to what is not mapped.
    fn read_file(&self, address: u64, buffer: &mut [u8]) -> std::io::Result<usize> {
        use std::os::unix::fs::FileExt as _;
        let memory = fs::File::from(rustix::fs::openat(&self.thread.proc, c"mem", READ, Mode::empty())?);
        let mut done = 0;
        while done < buffer.len() {
            match memory.read_at(&mut buffer[done..], address.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(more) => done += more,
                Err(_unmapped) if done > 0 => break,
                Err(e) if e.raw_os_error() == Some(libc::EIO) => {
                    return Err(std::io::Error::from_raw_os_error(libc::EFAULT));
                }
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    /// Copies a C string of at most `max` bytes, its NUL included.
    pub(super) fn string(&self, address: u64, max: usize) -> Result<CString, i32> {
        let mut buffer = Vec::new();
        while buffer.len() < max {
            let got = buffer.len();
            // To the end of a page: most strings end before it, and to make room for the longest takes longer than to read them.
            let page = PAGE - (address.wrapping_add(got as u64) % PAGE as u64) as usize;
            let end = max.min(got + page);
            buffer.resize(end, 0);
            let more = self.read(address.wrapping_add(got as u64), &mut buffer[got..])?;
            if let Some(length) = buffer[got..got + more].iter().position(|b| *b == 0) {
                buffer.truncate(got + length);
                return CString::new(buffer).map_err(|_nul| libc::EINVAL);
            }
            if got + more < end {
                return Err(libc::EFAULT);
            }
        }
        Err(libc::ENAMETOOLONG)
    }

    /// Copies the pointers of a vector that ends with a null pointer; at most so many, without that one.
    pub(super) fn pointers(&self, address: u64, most: usize) -> Result<Vec<u64>, i32> {
        const AT_ONCE: usize = 16;
        let mut pointers = Vec::new();
        while pointers.len() < most {
            let at = address.wrapping_add(8 * pointers.len() as u64);
            let mut buffer = [0; 8 * AT_ONCE];
            let wanted = 8 * AT_ONCE.min(most - pointers.len());
            // What lies behind its end need not be there.
            let got = self.read(at, &mut buffer[..wanted])?;
            let (words, _) = buffer[..got].as_chunks();
            if words.is_empty() {
                return Err(libc::EFAULT);
            }
            for word in words {
                match u64::from_ne_bytes(*word) {
                    0 => return Ok(pointers),
                    pointer => pointers.push(pointer),
                }
            }
        }
        Ok(pointers)
    }

    pub(super) fn path(&self, address: u64) -> Result<CString, i32> {
        let path = self.string(address, PATH_MAX)?;
        self.is_about(|| Some(path.to_string_lossy().into_owned()));
        Ok(path)
    }

    /// Opens what a name stands for in the caller's eyes, without the right to read or write it.
    pub(super) fn open(&self, dirfd: i32, path: &CString, links: LastLink) -> Result<PinnedFile, i32> {
        let bytes = path.as_bytes();
        if bytes.is_empty() {
            return Err(libc::ENOENT);
        }
        if let Some(number) = self.own_descriptor(bytes) {
            // A link all the same, and the broker has none like it.
            return if links == LastLink::Follow { self.open_fd(number) } else { Err(libc::ELOOP) };
        }
        let base = self.base(dirfd, path)?;
        self.open_from(base.as_ref().map(|fd| fd.as_fd()), path, links.flags())
    }

    /// Identity of the file that a name stands for in the caller's eyes, or a descriptor if the name is empty.
    pub(super) fn identity(&self, dirfd: i32, path: &CString, links: LastLink) -> Result<FileId, i32> {
        let number = if path.is_empty() { Some(dirfd) } else { self.own_descriptor(path.as_bytes()) };
        let stat = match number {
            Some(number) => {
                rustix::fs::statat(&self.thread.proc, format!("fd/{number}"), AtFlags::empty()).map_err(not_open)?
            }
            None => {
                let base = self.base(dirfd, path)?;
                let fd = open_path(base.as_ref().map_or(CWD, |fd| fd.as_fd()), path, links.flags())?;
                rustix::fs::fstat(fd).map_err(rustix::io::Errno::raw_os_error)?
            }
        };
        Ok(file_of(&stat))
    }

    /// File that a name stands for, held.
    pub(super) fn pin(&self, dirfd: i32, path: &CString, links: LastLink) -> Result<OwnedFd, i32> {
        let number = if path.is_empty() { Some(dirfd) } else { self.own_descriptor(path.as_bytes()) };
        match number {
            Some(number) => self.pin_fd(number),
            None => {
                let base = self.base(dirfd, path)?;
                open_path(base.as_ref().map_or(CWD, |fd| fd.as_fd()), path, links.flags())
            }
        }
    }

    /// The directory that a path starts from; `None` for one that starts from the root.
    pub(super) fn base(&self, dirfd: i32, path: &CString) -> Result<Option<OwnedFd>, i32> {
        if path.as_bytes().starts_with(b"/") { Ok(None) } else { self.directory(dirfd).map(Some) }
    }

    /// Opens a name from the directory that [`Self::base`] says.
    pub(super) fn open_from(
        &self,
        base: Option<BorrowedFd<'_>>,
        path: &CString,
        flags: OFlags,
    ) -> Result<PinnedFile, i32> {
        let fd = open_path(base.unwrap_or(CWD), path, flags)?;
        match (where_is(fd.as_fd()), base) {
            // Found from this process's own root a moment ago.
            (Ok(path), None) => Ok(PinnedFile { fd, path, standing: PathStanding::Named }),
            (Ok(path), Some(_)) => find_again(fd, path),
            (Err(libc::ENAMETOOLONG), Some(base)) => step_by_step(fd, base, path),
            (Err(e), _) => Err(e),
        }
    }

    /// Opens the directory that a new name goes into, and the name.
    pub(super) fn open_parent(&self, dirfd: i32, path: &CString) -> Result<(PinnedFile, CString), i32> {
        let bytes = path.as_bytes();
        let trimmed = bytes.strip_suffix(b"/").unwrap_or(bytes);
        let (parent, name) = match trimmed.iter().rposition(|b| *b == b'/') {
            Some(0) => (&b"/"[..], &trimmed[1..]),
            Some(at) => (&trimmed[..at], &trimmed[at + 1..]),
            None => (&b"."[..], trimmed),
        };
        if name.is_empty() || name == b"." || name == b".." {
            return Err(libc::EADDRINUSE);
        }
        let parent = CString::new(parent).map_err(|_nul| libc::EINVAL)?;
        let name = CString::new(name).map_err(|_nul| libc::EINVAL)?;
        Ok((self.open(dirfd, &parent, LastLink::Follow)?, name))
    }

    /// Opens what an empty path stands for (AT_EMPTY_PATH).
    pub(super) fn open_start(&self, dirfd: i32) -> Result<PinnedFile, i32> {
        given(self.directory(dirfd)?)
    }

    /// Opens what a descriptor of the caller stands for.
    pub(super) fn open_fd(&self, number: i32) -> Result<PinnedFile, i32> {
        given(self.pin_fd(number)?)
    }

    /// The open file that a descriptor of the caller stands for, as a descriptor of this process (pidfd_getfd(2)).
    pub(super) fn fetch_fd(&self, number: i32) -> Result<OwnedFd, i32> {
        let open = |pid: Pid, flags| {
            let pid = KernelPid::from_raw(pid).ok_or(rustix::io::Errno::SRCH)?;
            rustix::process::pidfd_open(pid, flags)
        };
        // Of the thread, for its process's first may have ended. Before Linux 6.9 only processes have such descriptors.
        let process = match open(self.tid(), THREAD) {
            Err(rustix::io::Errno::INVAL) => open(process_of(self.tid()).ok_or(libc::ESRCH)?, PidfdFlags::empty()),
            opened => opened,
        };
        let process = process.map_err(raw)?;
        // What was opened by number is the caller: it has had that number all the while.
        self.confirm()?;
        rustix::process::pidfd_getfd(process, number, PidfdGetfdFlags::empty()).map_err(|e| match e {
            rustix::io::Errno::BADF => libc::EBADF,
            // Yama, or a target that may not be looked at.
            _ => libc::EPERM,
        })
    }

    fn pin_fd(&self, number: i32) -> Result<OwnedFd, i32> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        rustix::fs::openat(&self.thread.proc, format!("fd/{number}"), flags, Mode::empty()).map_err(not_open)
    }

    /// Description of a caller's descriptor by the kernel: a path, `socket:[7]`, `pipe:[8]`.
    pub(super) fn describe_fd(&self, number: i32) -> Result<Vec<u8>, i32> {
        let text = rustix::fs::readlinkat(&self.thread.proc, format!("fd/{number}"), Vec::new());
        Ok(text.map_err(not_open)?.into_bytes())
    }

    /// True if the caller may write through this descriptor. The mode of its link tells (proc_pid_fd(5)).
    pub(super) fn is_writable_fd(&self, number: i32) -> Result<bool, i32> {
        Ok(self.mode_of_fd(number)? & libc::S_IWUSR != 0)
    }

    /// True if it was opened with O_PATH: it neither reads nor writes.
    pub(super) fn is_path_fd(&self, number: i32) -> Result<bool, i32> {
        Ok(self.mode_of_fd(number)? & (libc::S_IRUSR | libc::S_IWUSR) == 0)
    }

    fn mode_of_fd(&self, number: i32) -> Result<u32, i32> {
        let stat = rustix::fs::statat(&self.thread.proc, format!("fd/{number}"), AtFlags::SYMLINK_NOFOLLOW);
        Ok(stat.map_err(not_open)?.st_mode)
    }

    /// The process that a pidfd of the caller stands for (`Pid:` in proc_pid_fdinfo(5)).
    pub(super) fn process_of_pidfd(&self, number: i32) -> Result<Pid, i32> {
        let text = self.proc_file(&format!("fdinfo/{number}"))?;
        let pid = text.lines().find_map(|line| line.strip_prefix("Pid:")).ok_or(libc::EBADF)?;
        // 0 is outside this PID namespace, -1 has ended.
        pid.trim().parse().ok().filter(|pid| *pid > 0).ok_or(libc::ESRCH)
    }

    /// Facts of the kernel about a descriptor of the caller (proc_pid_fdinfo(5)).
    pub(super) fn fdinfo(&self, number: i32) -> Result<String, i32> {
        self.proc_file(&format!("fdinfo/{number}"))
    }

    /// The caller's file mode creation mask.
    pub(super) fn umask(&self) -> Result<u32, i32> {
        let text = self.proc_file("status")?;
        let mask = text.lines().find_map(|line| line.strip_prefix("Umask:")).map(str::trim).unwrap_or("0077");
        u32::from_str_radix(mask, 8).map_err(|_not_octal| libc::EIO)
    }

    fn proc_file(&self, name: &str) -> Result<String, i32> {
        let file = rustix::fs::openat(&self.thread.proc, name, READ, Mode::empty()).map_err(not_open)?;
        let mut text = Vec::new();
        fs::File::from(file).read_to_end(&mut text).map_err(|e| e.raw_os_error().unwrap_or(libc::EIO))?;
        // The caller's name is in it, which may be any bytes.
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    fn directory(&self, dirfd: i32) -> Result<OwnedFd, i32> {
        if dirfd != libc::AT_FDCWD {
            return self.pin_fd(dirfd);
        }
        rustix::fs::openat(&self.thread.proc, c"cwd", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(rustix::io::Errno::raw_os_error)
    }

    /// The number in `/proc/self/fd/N` and its other spellings: for the caller they name its own descriptors.
    pub(super) fn own_descriptor(&self, path: &[u8]) -> Option<i32> {
        let rest = [&b"/proc/self/fd/"[..], b"/proc/thread-self/fd/", b"/dev/fd/"]
            .into_iter()
            .find_map(|prefix| path.strip_prefix(prefix))
            .map(<[u8]>::to_vec)
            .or_else(|| path.strip_prefix(format!("/proc/{}/fd/", self.tid()).as_bytes()).map(<[u8]>::to_vec));
        match path {
            b"/dev/stdin" => Some(0),
            b"/dev/stdout" => Some(1),
            b"/dev/stderr" => Some(2),
            _ => std::str::from_utf8(&rest?).ok()?.parse().ok(),
        }
    }
}

/// Opens without the right to read or write. Magic links would be followed with this process's eyes (A7).
fn open_path(base: BorrowedFd<'_>, path: &CString, flags: OFlags) -> Result<OwnedFd, i32> {
    let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
    rustix::fs::openat2(base, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS)
        .map_err(rustix::io::Errno::raw_os_error)
}

/// Errno for what is missing in a thread's directory: a descriptor that it does not have.
fn not_open(e: rustix::io::Errno) -> i32 {
    if e == rustix::io::Errno::NOENT { libc::EBADF } else { e.raw_os_error() }
}

/// This process's own descriptors, by their numbers.
static OWN: OnceLock<OwnedFd> = OnceLock::new();

/// Path of an open file as the kernel has it. With " (deleted)" behind it, perhaps; of a file in another mount tree,
/// the path in that one.
fn where_is(fd: BorrowedFd<'_>) -> Result<PathBuf, i32> {
    let path = rustix::fs::readlinkat(own_descriptors()?, fd.as_raw_fd().to_string(), Vec::new()).map_err(raw)?;
    Ok(PathBuf::from(OsStr::from_bytes(path.as_bytes())))
}

#[expect(clippy::disallowed_methods, reason = "procfs is the kernel's: nobody puts a link in its files' place")]
fn own_descriptors() -> Result<&'static OwnedFd, i32> {
    if OWN.get().is_none() {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // Whoever came first has set the same.
        drop(OWN.set(rustix::fs::open("/proc/self/fd", flags, Mode::empty()).map_err(raw)?));
    }
    OWN.get().ok_or(libc::EIO)
}

/// Where a file lies that is held, and what it is: of these trees, those that hold it.
pub(super) fn locate(trees: &[ProgramTree], fd: BorrowedFd<'_>) -> Result<(FileId, Located), i32> {
    let file = identity(fd)?;
    // What has no path that can be told lies in none.
    let mut located = where_is(fd).map(|path| programs::locate(trees, file, &path)).unwrap_or_default();
    located.is_program = !located.below.is_empty() && is_program(fd);
    Ok((file, located))
}

/// Header of a held file for execve(2), if it can be read.
pub(super) fn header_of(fd: BorrowedFd<'_>) -> Option<Header> {
    head_of(&to_read(fd)?).map(|bytes| read_header(&bytes))
}

/// True if a held file is a program by itself. One that cannot be read is not.
fn is_program(fd: BorrowedFd<'_>) -> bool {
    let Some(file) = to_read(fd) else { return false };
    head_of(&file).is_some_and(|bytes| exec::is_program(&bytes, |offset, most| read_at(&file, offset, most)))
}

/// A held file, if it is a regular one that can be read.
fn to_read(fd: BorrowedFd<'_>) -> Option<fs::File> {
    let stat = rustix::fs::fstat(fd).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let file = rustix::fs::openat(own_descriptors().ok()?, fd.as_raw_fd().to_string(), READ, Mode::empty());
    file.ok().map(fs::File::from)
}

fn head_of(file: &fs::File) -> Option<Vec<u8>> {
    read_at(file, 0, HEADER_BYTES)
}

/// Bytes of a file at an offset, up to its end.
fn read_at(file: &fs::File, offset: u64, most: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; most];
    let mut length = 0;
    while length < most {
        match file.read_at(&mut bytes[length..], offset.checked_add(length as u64)?) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    bytes.truncate(length);
    Some(bytes)
}

/// Target of what a caller has open, which may come from anywhere: from another mount tree, or from a name that was
/// removed.
fn given(fd: OwnedFd) -> Result<PinnedFile, i32> {
    let path = where_is(fd.as_fd())?;
    find_again(fd, path)
}

/// Names may change while a file is looked for, but not for ever.
const LOOKS: usize = 10;

/// Asks the kernel whether a file is where its path says. The descriptor is then the one that the path led to: what is done
/// with it meets the mounts of this tree.
fn find_again(fd: OwnedFd, mut path: PathBuf) -> Result<PinnedFile, i32> {
    for _ in 0..LOOKS {
        if let Some(found) = at(&path, fd.as_fd())? {
            return Ok(PinnedFile { fd: found, path, standing: PathStanding::Named });
        }
        let now = where_is(fd.as_fd())?;
        if now == path {
            break;
        }
        path = now;
    }
    Ok(PinnedFile { fd, path, standing: PathStanding::Stray })
}

/// File at a path, if it is this one. Both are held while they are compared.
fn at(path: &Path, file: BorrowedFd<'_>) -> Result<Option<OwnedFd>, i32> {
    // Pipes, sockets and their like have none.
    if !path.is_absolute() {
        return Ok(None);
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let without = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let Ok(found) = rustix::fs::openat2(CWD, path, flags, Mode::empty(), without) else { return Ok(None) };
    Ok((identity(found.as_fd())? == identity(file)?).then_some(found))
}

/// A file that lies deeper than the kernel can say (PATH_MAX): where its directory is, and the names from there, each of which
/// is looked up alone. They are the path's own, so a link among them is not followed.
fn step_by_step(fd: OwnedFd, base: BorrowedFd<'_>, names: &CString) -> Result<PinnedFile, i32> {
    let mut here = given(base.try_clone_to_owned().map_err(|e| e.raw_os_error().unwrap_or(libc::EMFILE))?)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for name in names.as_bytes().split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".") {
        here.fd =
            rustix::fs::openat(&here.fd, name, flags, Mode::empty()).map_err(|_a_link_or_gone| libc::ENAMETOOLONG)?;
        if name == b".." {
            here.path.pop();
        } else {
            here.path.push(OsStr::from_bytes(name));
        }
    }
    // A link on the way led elsewhere, or a name was changed meanwhile.
    if identity(here.fd.as_fd())? != identity(fd.as_fd())? {
        return Err(libc::ENAMETOOLONG);
    }
    Ok(PinnedFile { fd, ..here })
}

fn raw(e: rustix::io::Errno) -> i32 {
    e.raw_os_error()
}

/// The process that a thread belongs to. Of one with a single thread, and so of most that execute, it is that.
#[expect(clippy::disallowed_methods, reason = "procfs is the kernel's: nobody puts a link in its files' place")]
pub(super) fn process_of(tid: Pid) -> Option<Pid> {
    if process::is_leader(tid) {
        return Some(tid);
    }
    // The thread's name is in it, which may be any bytes.
    let status = fs::read(format!("/proc/{tid}/status")).ok()?;
    String::from_utf8_lossy(&status)
        .lines()
        .find_map(|line| line.strip_prefix("Tgid:"))
        .and_then(|number| number.trim().parse().ok())
}
