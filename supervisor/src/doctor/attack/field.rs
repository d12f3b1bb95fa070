//! Targets of attacks: made in a scratch directory, on loopback and as processes of our own, and looked at after every
//! attempt. What changed was reached, whatever errno was returned.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use callgate_policy::pattern::HostPattern;
use callgate_worker::probe;
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType};
use serde_json::Value;

use super::super::DoctorError;
use super::hosts::Hosts;

/// Descriptors that are left open for what is started get numbers from here on, so that one of the same number inside is
/// no coincidence.
const INHERITED: RawFd = 700;
/// A process number below this could also be somebody's in a PID namespace of a sandbox.
const PIDS_OF_SANDBOXES: u32 = 64;
/// How long the process that attacks are aimed at may take to start.
const PATIENCE: Duration = Duration::from_secs(10);
/// Files that attempts leave in the workspace, if they succeed.
const DEBRIS: [&str; 4] = ["taken", ".bashrc", ".vscode", ".mcp.json"];

/// Everything that attacks are aimed at. Dropping it ends its processes, and removes what is not in its directory.
pub struct Field {
    root: PathBuf,
    /// This program, where every sandbox that shows its workspace shows it.
    probe: PathBuf,
    /// In every file, command line and environment that is not to be read.
    token: String,
    files: OutsideFiles,
    servers: LoopbackServers,
    hosts: Hosts,
    objects: IpcObjects,
    bystander: BystanderProcess,
    /// Inherited by everything that is started: nothing is told to close them.
    inherited: [OwnedFd; 2],
    /// The other ends of the connection.
    _connection: (TcpListener, TcpStream),
    terminal: nix::pty::OpenptyResult,
    /// In which form files were when they were last whole.
    whole: BTreeMap<PathBuf, String>,
}

/// Targets that were reached, in words.
pub(super) type ReachedTargets = Vec<String>;

impl std::fmt::Debug for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the token.
        f.debug_struct("Field").field("root", &self.root).finish_non_exhaustive()
    }
}

impl Field {
    /// Makes everything in `directory`, which must be empty and this user's alone. `callgate` is the binary: it is copied
    /// there, and makes the attempts, started as [`attempt`](super::attempt) says. `token` is what no sandbox may let
    /// through; it must not be guessed, and this process must have been started with it in its environment.
    ///
    /// Make it before the launcher: what is left open here is for that to close. Remove the directory once this is dropped.
    ///
    /// # Errors
    /// [`DoctorError::Io`].
    pub fn make(directory: &Path, callgate: &Path, token: &str) -> Result<Self, DoctorError> {
        let failed = DoctorError::io(format!("make canaries in {}", directory.display()));
        Self::fill(directory, callgate, token).map_err(failed)
    }

    fn fill(root: &Path, callgate: &Path, token: &str) -> io::Result<Self> {
        let workspace = root.join("workspace");
        fs::create_dir(&workspace)?;
        let probe = workspace.join("callgate");
        fs::copy(callgate, &probe)?;
        fs::create_dir(workspace.join("mnt"))?;
        symlink("../outside/file", workspace.join("link"))?;
        symlink("../outside", workspace.join("linkdir"))?;
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let connected = TcpStream::connect(listener.local_addr()?)?;
        let (accepted, _) = listener.accept()?;
        let files = OutsideFiles::make(root, token)?;
        let secret = File::open(files.file())?;
        let inherited = [leave_open(secret.into(), INHERITED)?, leave_open(connected.into(), INHERITED)?];
        let mut field = Self {
            root: root.to_owned(),
            bystander: BystanderProcess::start(&probe, token)?,
            probe,
            token: token.to_owned(),
            files,
            servers: LoopbackServers::listen(token)?,
            hosts: Hosts::listen(token)?,
            objects: IpcObjects::make(token)?,
            inherited,
            _connection: (listener, accepted),
            terminal: nix::pty::openpty(None, None)?,
            whole: BTreeMap::new(),
        };
        field.tidy_workspace()?;
        field.whole = field.look_at_files();
        Ok(field)
    }

    /// The directory that a sandbox must grant for writing; the binary that makes the attempts is in it.
    #[must_use]
    pub fn workspace(&self) -> PathBuf {
        self.root.join("workspace")
    }

    /// Directory that may be read inside and not written.
    pub(super) fn readable(&self) -> PathBuf {
        self.root.join("readable")
    }

    pub(super) fn outside(&self) -> PathBuf {
        self.root.join("outside")
    }

    pub(super) fn probe(&self) -> &Path {
        &self.probe
    }

    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// The host, as `address:port`, that a sandbox must grant for the attacks on what a granted host may be used for.
    #[must_use]
    pub fn host(&self) -> String {
        self.hosts.at().to_string()
    }

    /// Has its servers answer. It takes threads.
    pub(super) fn start_hosts(&mut self) -> io::Result<()> {
        self.hosts.start()
    }

    /// All hosts that are granted to sessions for those attacks.
    pub(super) fn granted_hosts(&self) -> Vec<HostPattern> {
        self.hosts.granted()
    }

    pub(super) fn tcp_port(&self) -> u16 {
        self.servers.tcp.local_addr().map_or(0, |at| at.port())
    }

    /// A terminal's end for a program.
    pub(super) fn terminal(&self) -> io::Result<OwnedFd> {
        self.terminal.slave.try_clone()
    }

    /// A word of an act, with what it stands for, perhaps `inside` a session of callgate's; `None` if this host has no such thing.
    pub(super) fn fill_in(&self, word: &str, inside: bool) -> Option<String> {
        let path = |name: &str| self.root.join(name).display().to_string();
        let port = |listener: &Option<TcpListener>| {
            listener.as_ref().and_then(|listener| listener.local_addr().ok()).map(|at| at.port().to_string())
        };
        let (open, rest) = match word.split_once('}') {
            Some((open, rest)) if open.starts_with('{') => (open.trim_start_matches('{'), rest),
            Some(_) | None => return Some(word.to_owned()),
        };
        let stands_for = match open {
            "out" => path("outside"),
            "ws" => path("workspace"),
            "read" => path("readable"),
            "tcp" => self.tcp_port().to_string(),
            "tcp6" => port(&self.servers.tcp6)?,
            "mptcp" => port(&self.servers.mptcp)?,
            "udp" => self.servers.udp.local_addr().ok()?.port().to_string(),
            "abstract" => self.servers.name.clone(),
            "pid" => self.bystander.pid().to_string(),
            "fd" => self.inherited[0].as_raw_fd().to_string(),
            "connection" => self.inherited[1].as_raw_fd().to_string(),
            "other-uid" => rustix::process::geteuid().as_raw().wrapping_add(1).to_string(),
            "key" => self.objects.key.to_string(),
            "name" => self.objects.name.clone(),
            "shm" | "sem" | "msg" => self.objects.ids.get(open)?.to_string(),
            _ => self.hosts.fill_in(open, inside)?,
        };
        Some(format!("{stands_for}{rest}"))
    }

    /// Targets that were reached since the last look.
    pub(super) fn changes(&mut self) -> ReachedTargets {
        let mut changes = self.servers.changes();
        changes.extend(self.hosts.changes());
        changes.extend(self.files.changes());
        changes.extend(self.objects.changes());
        changes.extend(self.bystander.changes());
        let now = self.look_at_files();
        for (path, was) in &self.whole {
            if now.get(path) != Some(was) {
                changes.push(format!("{} changed", path.strip_prefix(&self.root).unwrap_or(path).display()));
            }
        }
        changes.extend(
            now.keys()
                .filter(|path| !self.whole.contains_key(*path))
                .map(|path| format!("{} appeared", path.strip_prefix(&self.root).unwrap_or(path).display())),
        );
        changes
    }

    /// Puts everything back as it was before the last attempt; the process is a new one if it may have been reached.
    pub(super) fn mend(&mut self, process_reached: bool) -> io::Result<()> {
        self.files = OutsideFiles::make(&self.root, &self.token)?;
        self.objects.mend()?;
        if process_reached || !self.bystander.changes().is_empty() {
            self.bystander = BystanderProcess::start(&self.probe, &self.token)?;
        }
        self.tidy_workspace()?;
        self.whole = self.look_at_files();
        Ok(())
    }

    /// The files of the workspace that attempts are about.
    pub(super) fn tidy_workspace(&self) -> io::Result<()> {
        let workspace = self.workspace();
        for name in DEBRIS {
            remove(&workspace.join(name))?;
        }
        fs::write(workspace.join("notes.txt"), "notes of the workspace\n")?;
        let hooks = workspace.join(".git/hooks");
        fs::create_dir_all(&hooks)?;
        remove(&hooks.join("post-checkout"))?;
        fs::write(workspace.join(".git/config"), "[core]\n")
    }

    /// Everything about files that an attempt could change. Only the time of the last reading is not among it.
    fn look_at_files(&self) -> BTreeMap<PathBuf, String> {
        let mut seen = BTreeMap::new();
        let mut pending = vec![self.outside(), self.readable()];
        while let Some(path) = pending.pop() {
            let Ok(about) = fs::symlink_metadata(&path) else { continue };
            if about.is_dir() {
                pending.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
            }
            let form = format!(
                "{} {:o} {}:{} {} {}.{} {}.{} {}",
                about.ino(),
                about.mode(),
                about.uid(),
                about.gid(),
                about.size(),
                about.mtime(),
                about.mtime_nsec(),
                about.ctime(),
                about.ctime_nsec(),
                about.nlink()
            );
            seen.insert(path, form);
        }
        seen
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        self.objects.remove();
    }
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(about) if about.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// A copy of a descriptor that programs inherit, with a number that they do not use themselves.
fn leave_open(fd: OwnedFd, from: RawFd) -> io::Result<OwnedFd> {
    let copy = rustix::io::fcntl_dupfd_cloexec(&fd, from)?;
    rustix::io::fcntl_setfd(&copy, rustix::io::FdFlags::empty())?;
    Ok(copy)
}

/// The files outside, and the sockets among them.
struct OutsideFiles {
    root: PathBuf,
    stream: UnixListener,
    datagram: UnixDatagram,
}

impl OutsideFiles {
    fn make(root: &Path, token: &str) -> io::Result<Self> {
        let (outside, readable) = (root.join("outside"), root.join("readable"));
        // The directories stay what they are: a session's rules and mounts are bound to those that were there when it opened.
        for directory in [&outside, &readable] {
            fs::create_dir_all(directory)?;
            for entry in fs::read_dir(directory)? {
                remove(&entry?.path())?;
            }
        }
        fs::create_dir(outside.join("empty"))?;
        fs::write(outside.join("file"), format!("{token}\n"))?;
        // A file system without such attributes makes their acts "not tested".
        drop(probe::perform(&["setxattr", &outside.join("file").display().to_string()]));
        fs::write(readable.join("policy.toml"), "id = \"policy\"\n")?;
        drop(probe::perform(&["setxattr", &readable.join("policy.toml").display().to_string()]));
        nix::unistd::mkfifo(&outside.join("fifo"), nix::sys::stat::Mode::from_bits_truncate(0o600))?;
        let stream = UnixListener::bind(outside.join("stream.sock"))?;
        stream.set_nonblocking(true)?;
        let datagram = UnixDatagram::bind(outside.join("dgram.sock"))?;
        datagram.set_nonblocking(true)?;
        Ok(Self { root: root.to_owned(), stream, datagram })
    }

    fn file(&self) -> PathBuf {
        self.root.join("outside/file")
    }

    fn changes(&self) -> ReachedTargets {
        let mut changes = ReachedTargets::new();
        while self.stream.accept().is_ok() {
            changes.push("a unix socket was connected to".to_owned());
        }
        while self.datagram.recv(&mut [0; 64]).is_ok() {
            changes.push("a unix datagram came".to_owned());
        }
        changes
    }
}

/// Servers on loopback, and under abstract names.
struct LoopbackServers {
    tcp: TcpListener,
    tcp6: Option<TcpListener>,
    mptcp: Option<TcpListener>,
    udp: UdpSocket,
    name: String,
    stream: UnixListener,
    datagram: UnixDatagram,
}

impl LoopbackServers {
    fn listen(token: &str) -> io::Result<Self> {
        let tcp = TcpListener::bind(("127.0.0.1", 0))?;
        let tcp6 = TcpListener::bind(("::1", 0)).ok();
        let mptcp = mptcp().ok();
        for listener in [Some(&tcp), tcp6.as_ref(), mptcp.as_ref()].into_iter().flatten() {
            listener.set_nonblocking(true)?;
        }
        let udp = UdpSocket::bind(("127.0.0.1", 0))?;
        udp.set_nonblocking(true)?;
        let name = format!("callgate-attack-{}", crate::host::random()?);
        debug_assert_ne!(name, token, "names can be listed by anybody");
        let stream = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        stream.set_nonblocking(true)?;
        let datagram = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(format!("{name}-dgram"))?)?;
        datagram.set_nonblocking(true)?;
        Ok(Self { tcp, tcp6, mptcp, udp, name, stream, datagram })
    }

    fn changes(&self) -> ReachedTargets {
        let mut changes = ReachedTargets::new();
        let listeners =
            [(Some(&self.tcp), "TCP"), (self.tcp6.as_ref(), "TCP over IPv6"), (self.mptcp.as_ref(), "MPTCP")];
        for (listener, name) in listeners {
            while listener.is_some_and(|listener| listener.accept().is_ok()) {
                changes.push(format!("a {name} server was connected to"));
            }
        }
        while self.udp.recv(&mut [0; 64]).is_ok() {
            changes.push("a UDP datagram came".to_owned());
        }
        while self.stream.accept().is_ok() {
            changes.push("an abstract unix socket was connected to".to_owned());
        }
        while self.datagram.recv(&mut [0; 64]).is_ok() {
            changes.push("an abstract unix datagram came".to_owned());
        }
        changes
    }
}

/// A server that speaks Multipath TCP, which Landlock's TCP rights do not cover (B1).
fn mptcp() -> io::Result<TcpListener> {
    let number = std::num::NonZeroU32::new(262).map(Protocol::from_raw);
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, number)?;
    rustix::net::bind(&socket, &std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 0))?;
    rustix::net::listen(&socket, 16)?;
    Ok(TcpListener::from(socket))
}

/// System V and POSIX objects. The probe's own acts make, find and remove them, here in this process.
struct IpcObjects {
    key: u32,
    name: String,
    ids: BTreeMap<&'static str, i64>,
    /// Targets as they were made: a host may lack some of it.
    queue: bool,
}

const KINDS: [&str; 3] = ["shm", "sem", "msg"];

impl IpcObjects {
    fn make(token: &str) -> io::Result<Self> {
        let random = crate::host::random()?;
        let key = u32::from_str_radix(&random[..7], 16).unwrap_or(0x0ca1_19a7) | 0x0400_0000;
        let name = format!("callgate-attack-{}", &random[7..]);
        debug_assert_ne!(name, token, "names can be listed by anybody");
        let mut objects = Self { key, name, ids: BTreeMap::new(), queue: false };
        objects.mend()?;
        Ok(objects)
    }

    fn shared(&self) -> PathBuf {
        Path::new("/dev/shm").join(&self.name)
    }

    /// Makes what is not there.
    fn mend(&mut self) -> io::Result<()> {
        for kind in KINDS {
            if self.find(kind).is_none() {
                let made = number(&format!("{kind}-sysv-create"), &self.key.to_string());
                self.ids.extend(made.map(|id| (kind, id)));
            }
        }
        if !fs::exists(self.shared())? && fs::exists("/dev/shm")? {
            fs::write(self.shared(), "shared\n")?;
        }
        if did(&["mq-open-existing", &self.name]).is_none() {
            self.queue = did(&["mq-create", &self.name]).is_some();
        }
        Ok(())
    }

    fn find(&self, kind: &str) -> Option<i64> {
        number(&format!("{kind}-sysv-get"), &self.key.to_string())
    }

    fn changes(&self) -> ReachedTargets {
        let mut changes: ReachedTargets = self
            .ids
            .iter()
            .filter(|(kind, id)| self.find(kind) != Some(**id))
            .map(|(kind, _)| format!("a System V object ({kind}) is gone"))
            .collect();
        if self.queue && did(&["mq-open-existing", &self.name]).is_none() {
            changes.push("a POSIX queue is gone".to_owned());
        }
        changes
    }

    fn remove(&self) {
        for kind in KINDS {
            if let Some(id) = self.find(kind) {
                did(&[&format!("{kind}-sysv-remove"), &id.to_string()]);
            }
        }
        did(&["mq-unlink", &self.name]);
        // There may have been none.
        drop(fs::remove_file(self.shared()));
    }
}

/// An act in this very process, if it succeeded.
fn did(words: &[&str]) -> Option<Value> {
    probe::perform(words).ok().filter(|line| line["ok"] == true)
}

fn number(act: &str, argument: &str) -> Option<i64> {
    did(&[act, argument]).and_then(|line| line["id"].as_i64())
}

/// A process that minds its own business.
struct BystanderProcess {
    child: Child,
    was: String,
}

impl BystanderProcess {
    #[allow(clippy::disallowed_methods, reason = "it is what those that are confined are not to reach")]
    fn start(probe: &Path, token: &str) -> io::Result<Self> {
        loop {
            let mut child = Command::new(probe)
                .args(["attempt", "wait", "600", token])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            if child.id() <= PIDS_OF_SANDBOXES {
                child.kill().and_then(|()| child.wait())?;
                continue;
            }
            let mut bystander = Self { child, was: String::new() };
            bystander.settle()?;
            return Ok(bystander);
        }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it is the probe, asleep, and no longer this program's image.
    fn settle(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let stat = format!("/proc/{}/stat", self.pid());
        let asleep = || {
            let stat = fs::read_to_string(&stat).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|state| state.trim_start().starts_with('S'))
        };
        while !asleep() {
            if Instant::now() > deadline || self.child.try_wait()?.is_some() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "a process to aim at does not start"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.was = self.condition();
        Ok(())
    }

    /// Condition that an attempt could have changed.
    fn condition(&self) -> String {
        let read = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", self.pid())).unwrap_or_default();
        let limits =
            read("limits").lines().find(|line| line.starts_with("Max open files")).unwrap_or_default().to_owned();
        let status = read("status");
        let allowed = status.lines().find(|line| line.starts_with("Cpus_allowed:")).unwrap_or_default();
        let stat = read("stat");
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace().collect();
        // Of proc_pid_stat(5): 19 is the priority that setpriority(2) sets; 3 comes first here.
        let limits = limits.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        format!("{limits}, {allowed}, nice {}", fields.get(16).unwrap_or(&"")).replace('\t', " ")
    }

    fn changes(&mut self) -> ReachedTargets {
        if let Ok(Some(status)) = self.child.try_wait() {
            return vec![format!("a process was ended by signal {}", status.signal().unwrap_or(0))];
        }
        let now = self.condition();
        if now == self.was { ReachedTargets::new() } else { vec![format!("a process has {now}; it had {}", self.was)] }
    }
}

impl Drop for BystanderProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill().and_then(|()| self.child.wait()));
    }
}
