//! Every act of the probe at every Landlock ABI, with namespaces and without: what a newer right would hold is held below it
//! by what `docs/threat-model.md` names ("Older Landlock") (A2, A5, A7, A12, A13, A15, B1 to B5, B7 to B9, D1 to D7, D10).
//!
//! All acts of one host are run by one script, so that a host costs three starts and not five hundred. First bare, against a
//! world made for it: the control. Then confined, against another such world, which is looked at before and after.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::PathBuf;

use callgate_tests::{Binaries, Bystander, Host, Probe, ProgramRunner, Target, TestEnv, TestFile, matrix, skip};
use libc::{EACCES, EAFNOSUPPORT, ECONNREFUSED, ENOENT, ENOSYS, EOPNOTSUPP, EPERM, EROFS, ESRCH, EXDEV};
use serde_json::Value;

/// Result of an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AbiAnswer {
    Ok,
    Errno(i32),
    /// Killed by SIGSYS.
    Killed,
}

/// Control: whether it must succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AbiControl {
    Succeeds,
    /// Only for root.
    Privileged,
    /// Where the kernel has it, and lets this user; that it does not is said.
    IfKnown,
    /// Not tried: it would harm the machine that the tests run on, or fails for everybody.
    None,
}

/// One act.
#[derive(Debug)]
struct AbiRow {
    words: Vec<String>,
    inside: AbiAnswer,
    control: AbiControl,
}

/// Something for each act to attack. Every file is one act's own, so that no act changes what the next one finds.
struct AbiWorld<'a> {
    env: &'a TestEnv,
    target: Target,
    role: &'static str,
    /// Beside the workspace; no grant mentions it.
    outside: PathBuf,
    /// Granted for reading.
    lent: PathBuf,
    count: Cell<u32>,
    files: RefCell<Vec<TestFile>>,
    bystanders: RefCell<Vec<Bystander>>,
    tcp: TcpListener,
    udp: UdpSocket,
    streams: Vec<UnixListener>,
    datagrams: Vec<UnixDatagram>,
    paths: [PathBuf; 4],
    name: String,
    ipc: [(String, String); 3],
}

const IPC: [&str; 3] = ["shm", "sem", "msg"];

/// How to open or change a file by its name, whatever it is granted for; and the arguments after the name.
const WRITES: &[(&str, &[&str])] = &[
    ("write", &["new"]),
    ("creat", &[]),
    ("open-legacy", &["write"]),
    ("open-legacy", &["read-trunc"]),
    ("open-trunc", &[]),
    ("open-o-path-reopen", &["write"]),
    ("open-o-path-reopen", &["trunc"]),
    ("truncate", &[]),
    ("fallocate", &[]),
];

/// The access mode for ioctl(2) alone, in which Landlock asks for no right: the filter refuses it, whatever the file.
const IN_NO_MODE: &[(&str, &[&str])] = &[("open-legacy", &["ioctl-trunc"]), ("open-trunc", &["ioctl-trunc"])];

const READS: &[(&str, &[&str])] = &[
    ("read", &[]),
    ("open-legacy", &["read"]),
    ("open-o-path-reopen", &["read"]),
    ("proc-root", &[]),
    ("flock", &[]),
    ("inotify", &[]),
];

const METADATA: &[(&str, &[&str])] = &[
    ("chmod", &["666"]),
    ("fchmodat", &["666"]),
    ("fchmod", &["666"]),
    ("chown", &[]),
    ("lchown", &[]),
    ("fchownat", &[]),
    ("fchown", &[]),
    ("utimens", &[]),
    ("futimens", &[]),
    ("utime-legacy", &[]),
    ("setxattr", &[]),
    ("lsetxattr", &[]),
    ("fsetxattr", &[]),
    ("removexattr", &[]),
    ("fremovexattr", &[]),
];

/// Calls that no filter can judge, or knows; every libc falls back on ENOSYS.
const ABSENT: &[(&str, &[&str])] = &[
    ("openat2", &["read"]),
    ("openat2", &["write"]),
    ("openat2", &["read-trunc"]),
    ("fchmodat2", &["666"]),
    ("setxattrat", &[]),
    ("removexattrat", &[]),
    ("file-setattr", &[]),
];

/// Acts that are not in the table: they attack nobody, or have a test of their own that needs more than a word of answer.
const ELSEWHERE: &[&str] = &[
    "sequences",
    "campaign",
    "truncate-race",
    "open-race",
    "under-terminal",
    "list-fds",
    "env",
    "besiege",
    "own-pid",
    "ps",
    "double-fork-daemon",
    "fork-children",
    "sigterm-ignorer",
    "wait",
    "shm-sysv-create",
    "sem-sysv-create",
    "msg-sysv-create",
    "mq-create",
    "mq-unlink",
    "capabilities",
    "landlock-abi",
    // With the filter of `debug`, which `debug.rs` tries.
    "trace-call",
    "trace-child",
    "trace-exits",
    "trace-me",
    // Random, and its control.
    "chaos",
    "connect-and-tell",
    "dumpable",
    "syscall",
    "bad-pointers",
    // Of the file on what may be started: where anything may be, there is nothing to refuse.
    "exec",
    "exec-memfd",
    "exec-race",
    "exec-threads",
    "exec-storm",
    // Where a host is granted: `granted_host.rs`, and `callgate doctor --attack`.
    "ask-name",
    "by-proxy",
    "by-proxy-as",
    "http",
    "tcp-connect-soon",
];

impl<'a> AbiWorld<'a> {
    fn new(env: &'a TestEnv, role: &'static str) -> Self {
        let target = env.target();
        let directory = |name: &str| {
            let path = env.workspace().parent().unwrap().join(format!("{name}-{role}"));
            fs::create_dir(&path).unwrap();
            env.give(&path);
            path
        };
        let (outside, lent) = (directory("outside"), directory("lent"));
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        tcp.set_nonblocking(true).unwrap();
        let udp = UdpSocket::bind(("127.0.0.1", tcp.local_addr().unwrap().port())).unwrap();
        udp.set_nonblocking(true).unwrap();
        let name =
            format!("callgate-abi-{role}-{}-{target:?}", std::process::id()).replace([' ', '{', '}', '(', ')'], "");
        let abstract_name = |name: &str| SocketAddr::from_abstract_name(name).unwrap();
        let paths = [
            outside.join("stream"),
            env.workspace().join(format!("stream-{role}")),
            outside.join("log"),
            env.workspace().join(format!("log-{role}")),
        ];
        let streams = vec![
            UnixListener::bind(&paths[0]).unwrap(),
            UnixListener::bind(&paths[1]).unwrap(),
            UnixListener::bind_addr(&abstract_name(&name)).unwrap(),
        ];
        let datagrams = vec![
            UnixDatagram::bind(&paths[2]).unwrap(),
            UnixDatagram::bind(&paths[3]).unwrap(),
            UnixDatagram::bind_addr(&abstract_name(&format!("{name}-d"))).unwrap(),
        ];
        streams.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
        datagrams.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
        for path in &paths {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        }
        let ipc = IPC.map(|kind| {
            let key =
                (u64::from(std::process::id()) << 4 | u64::from(target.user.uid() & 1) << 1 | u64::from(role == "b"))
                    .to_string();
            let made = env.bare().probe(&[&format!("{kind}-sysv-create"), &key]);
            (key, made.assert_ok().fact("id").to_string())
        });
        let shared = env.bare().probe(&["shm-posix", &name]);
        shared.assert_ok();
        Self {
            env,
            target,
            role,
            outside,
            lent,
            count: Cell::new(0),
            files: RefCell::default(),
            bystanders: RefCell::default(),
            tcp,
            udp,
            streams,
            datagrams,
            paths,
            name,
            ipc,
        }
    }

    /// A name that nothing in either world has yet.
    fn fresh(&self, kind: &str) -> String {
        self.count.set(self.count.get() + 1);
        format!("{kind}-{}-{}", self.role, self.count.get())
    }

    /// A file in a directory of this world.
    fn file_in(&self, directory: &std::path::Path) -> String {
        let path = directory.join(self.fresh("file"));
        let file = self.env.file_at(path, "old");
        let text = file.text().to_owned();
        self.files.borrow_mut().push(file);
        text
    }

    /// An act on a file, which gets the attribute that it is to remove or read.
    fn on_file(&self, act: &str, path: &str, rest: &[&str], errno: i32) -> AbiRow {
        let attribute = act.contains("xattr");
        if attribute && !act.contains("set") {
            let made = self.env.bare().probe(&["setxattr", path]);
            assert!(made.is_ok() || made.errno() == Some(EOPNOTSUPP), "{made}");
        }
        let control = if attribute { AbiControl::IfKnown } else { AbiControl::Succeeds };
        AbiRow { control, ..deny(&[&[act, path], rest].concat(), errno) }
    }

    fn bystander(&self) -> String {
        let bystander = self.env.bystander();
        let pid = bystander.text();
        self.bystanders.borrow_mut().push(bystander);
        pid
    }

    /// Conditions that an attack could have changed.
    fn look(&self) -> Vec<String> {
        let mut seen = Vec::new();
        for file in self.files.borrow().iter() {
            file.assert_contents("old");
            seen.push(format!("{}: {}", file.display(), file.metadata()));
        }
        for directory in [&self.outside, &self.lent] {
            let mut names: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            seen.push(format!("{}: {names:?}", directory.display()));
        }
        for bystander in self.bystanders.borrow_mut().iter_mut() {
            assert!(bystander.is_alive(), "a bystander was killed");
            seen.push(format!("{}: {}", bystander.pid(), bystander.condition()));
        }
        seen
    }

    /// How many have come to any of the listeners since the last look.
    fn visits(&self) -> usize {
        let mut data = [0; 64];
        let mut count = 0;
        while self.tcp.accept().is_ok() || self.udp.recv(&mut data).is_ok() {
            count += 1;
        }
        for socket in &self.streams {
            count += std::iter::from_fn(|| socket.accept().ok()).count();
        }
        for socket in &self.datagrams {
            count += std::iter::from_fn(|| socket.recv(&mut data).ok()).count();
        }
        count
    }

    /// Shows that what does not end with this process was still there, by removing it.
    fn clear(&self) {
        let removed = self.remove();
        fs::remove_file(format!("/dev/shm/{}", self.name)).expect("it was still there");
        for removed in removed {
            removed.assert_ok();
        }
    }

    /// The table.
    fn rows(&self) -> Vec<AbiRow> {
        let mut rows = Vec::new();
        self.files_outside(&mut rows);
        self.files_lent(&mut rows);
        self.names(&mut rows);
        self.network(&mut rows);
        self.unix_sockets(&mut rows);
        self.processes(&mut rows);
        self.ipc(&mut rows);
        self.kernel(&mut rows);
        self.works(&mut rows);
        rows
    }

    fn files_outside(&self, rows: &mut Vec<AbiRow>) {
        let denied = self.target.by_strength(ENOENT, EACCES);
        let file = || self.file_in(&self.outside);
        for (act, rest) in [READS, WRITES, METADATA].concat() {
            rows.push(self.on_file(act, &file(), rest, denied));
        }
        for (act, rest) in IN_NO_MODE {
            rows.push(self.on_file(act, &file(), rest, EACCES));
        }
        for (act, rest) in ABSENT {
            rows.push(AbiRow { control: AbiControl::IfKnown, ..self.on_file(act, &file(), rest, ENOSYS) });
        }
        rows.push(AbiRow { control: AbiControl::IfKnown, ..deny(&["fs-ioctl", &file()], denied) });
        rows.push(AbiRow { control: AbiControl::Privileged, ..deny(&["open-by-handle", &file()], denied) });
        // Names, times and sizes show where there is no mount namespace (`docs/threat-model.md`).
        let seen = self.target.by_strength(AbiAnswer::Errno(ENOENT), AbiAnswer::Ok);
        for act in ["stat", "getxattr"] {
            rows.push(AbiRow { inside: seen, ..self.on_file(act, &file(), &[], 0) });
        }
        rows.push(deny(&["readdir", self.outside.to_str().unwrap()], denied));
    }

    /// Files that may be read are read, and are not written.
    fn files_lent(&self, rows: &mut Vec<AbiRow>) {
        let denied = self.target.by_strength(EROFS, EACCES);
        let file = || self.file_in(&self.lent);
        for (act, rest) in READS {
            rows.push(allow(&[&[*act, &file()], *rest].concat()));
        }
        for (act, rest) in [WRITES, METADATA].concat() {
            rows.push(self.on_file(act, &file(), rest, denied));
        }
        for (act, rest) in IN_NO_MODE {
            rows.push(self.on_file(act, &file(), rest, EACCES));
        }
        for (act, rest) in ABSENT {
            rows.push(AbiRow { control: AbiControl::IfKnown, ..self.on_file(act, &file(), rest, ENOSYS) });
        }
        rows.push(AbiRow { control: AbiControl::IfKnown, ..deny(&["fs-ioctl", &file()], EPERM) });
        rows.push(deny(&["unlink", &file()], denied));
        rows.push(deny(&["create", &self.lent.join("new").display().to_string()], denied));
    }

    /// Names are neither made nor removed nor moved.
    fn names(&self, rows: &mut Vec<AbiRow>) {
        let denied = self.target.by_strength(ENOENT, EACCES);
        let workspace = self.env.workspace();
        let new = || self.outside.join(self.fresh("new")).display().to_string();
        let inside = || workspace.join(self.fresh("inside")).display().to_string();
        let mine = || self.file_in(&workspace);
        for act in ["create", "mkdir", "mkfifo"] {
            rows.push(deny(&[act, &new()], denied));
        }
        let (directory, fifo) = (new(), new());
        fs::create_dir(&directory).unwrap();
        self.env.bare().probe(&["mkfifo", &fifo]).assert_ok();
        rows.push(deny(&["rmdir", &directory], denied));
        rows.push(deny(&["fifo-open", &fifo], denied));
        rows.push(deny(&["symlink", "/", &new()], denied));
        rows.push(deny(&["unlink", &self.file_in(&self.outside)], denied));
        rows.push(deny(&["rename", &self.file_in(&self.outside), &new()], denied));
        rows.push(deny(&["rename", &self.file_in(&self.outside), &inside()], denied));
        rows.push(deny(&["rename", &mine(), &new()], denied));
        rows.push(deny(&["rename-exchange", &self.file_in(&self.outside), &mine()], denied));
        rows.push(deny(&["link", &self.file_in(&self.outside), &inside()], self.target.by_strength(ENOENT, EXDEV)));
        rows.push(deny(&["link", &self.file_in(&self.lent), &inside()], EXDEV));
        rows.push(deny(&["rename", &self.file_in(&self.lent), &inside()], self.target.by_strength(EXDEV, EACCES)));
        for kind in ["c", "b"] {
            rows.push(AbiRow {
                control: AbiControl::Privileged,
                ..deny(&["mknod", &inside(), kind, "1", "3"], EACCES)
            });
        }
    }

    fn network(&self, rows: &mut Vec<AbiRow>) {
        let port = self.tcp.local_addr().unwrap().port().to_string();
        for (act, errno) in [
            ("tcp-connect", ECONNREFUSED),
            ("v4mapped-connect", ECONNREFUSED),
            ("tcp6-connect", ECONNREFUSED),
            ("fastopen-sendto", EOPNOTSUPP),
            ("fastopen-sendmsg", EOPNOTSUPP),
            ("fastopen-sendmmsg", EOPNOTSUPP),
            ("fastopen-connect", EPERM),
        ] {
            rows.push(deny(&[act, "127.0.0.1", &port], errno));
        }
        // With a network of the session's own they are sent, to nobody.
        let datagrams = |words: &[&str]| self.target.by_strength(allow(words), deny(words, EACCES));
        for act in ["udp-sendto", "udp-connect", "sendmmsg-second"] {
            rows.push(datagrams(&[act, "127.0.0.1", &port]));
        }
        rows.push(deny(&["straddling-connect", "127.0.0.1", &port], ECONNREFUSED));
        rows.push(deny(&["straddling-sendmsg", "127.0.0.1", &port], EOPNOTSUPP));
        for kind in ["connect", "sendmsg"] {
            // It counts its answers, and who came is counted here.
            rows.push(allow(&["straddling-race", kind, "127.0.0.1", &port, "50"]));
        }
        let mut refuse =
            |words: &[&str], errno| rows.push(AbiRow { control: AbiControl::IfKnown, ..deny(words, errno) });
        refuse(&["mptcp-connect", "127.0.0.1", &port], EACCES);
        for act in ["sctp", "ping-socket", "raw"] {
            refuse(&[act], EACCES);
        }
        for act in ["smc", "packet", "vsock", "alg", "key"] {
            refuse(&[act], EAFNOSUPPORT);
        }
        refuse(&["socket", "16", "3", "16"], EAFNOSUPPORT);
        if !self.target.has_namespaces() {
            refuse(&["netlink"], EAFNOSUPPORT);
        }
        refuse(&["socket", "2", &(libc::SOCK_RAW | libc::SOCK_CLOEXEC).to_string(), "1"], EACCES);
        refuse(&["io-uring-setup"], ENOSYS);
        rows.push(AbiRow { control: AbiControl::None, ..deny(&["bind", "192.0.2.1", "0"], EACCES) });
    }

    fn unix_sockets(&self, rows: &mut Vec<AbiRow>) {
        let [outside, inside, log_outside, log_inside] = &self.paths;
        let hidden = self.target.by_strength(ENOENT, EACCES);
        rows.push(deny(&["unix-connect", outside.to_str().unwrap()], hidden));
        rows.push(deny(&["unix-connect", inside.to_str().unwrap()], EACCES));
        for log in [log_outside, log_inside] {
            let log = log.to_str().unwrap();
            for act in ["unix-dgram", "unix-dgram-sendmmsg", "unix-dgram-pair-sendmsg", "unix-dgram-pair-sendto"] {
                rows.push(deny(&[act, log], EACCES));
            }
            rows.push(deny(&["unix-sendmmsg-second", log], EACCES));
            rows.push(deny(&["unix-connect", log, "dgram"], EACCES));
        }
        rows.push(deny(&["unix-abstract", &self.name], ECONNREFUSED));
        rows.push(deny(&["unix-abstract-dgram", &format!("{}-d", self.name)], EACCES));
        rows.push(deny(&["unix-bind", &self.outside.join("bound").display().to_string()], hidden));
        rows.push(deny(&["socketpair-dgram"], EACCES));
    }

    fn processes(&self, rows: &mut Vec<AbiRow>) {
        let pid = self.bystander();
        let opened = self.target.by_strength(ESRCH, EPERM);
        // Without a signal scope the broker lets a thread's number be one of the caller's own process alone.
        let scoped = abi(self.target) >= 6;
        let signalled = |act: &str| if scoped || !act.starts_with('t') { opened } else { EPERM };
        for act in ["kill", "tkill", "tgkill", "sigqueue"] {
            for signal in ["0", "19", "18"] {
                rows.push(deny(&[act, &pid, signal], signalled(act)));
            }
        }
        for words in [&["pidfd-open", &pid][..], &["pidfd-signal", &pid, "18"], &["pidfd-getfd", &pid, "0"]] {
            rows.push(deny(words, opened));
        }
        for act in ["prlimit", "setpriority", "sched-affinity", "process-vm-readv", "kcmp"] {
            rows.push(deny(&[act, &pid], EPERM));
        }
        for act in ["ptrace-attach", "ptrace-seize"] {
            rows.push(deny(&[act, &pid], EPERM));
        }
        rows.push(AbiRow { control: AbiControl::Privileged, ..deny(&["setns", &pid], opened) });
        for what in ["environ", "cmdline", "maps", "mem", "root", "cwd", "fd", "exe"] {
            rows.push(deny(&["proc-pid", &pid, what], self.target.by_strength(ENOENT, EACCES)));
        }
        // Last, and each with a process of its own: bare, it is killed.
        for act in ["kill", "tkill", "tgkill", "sigqueue"] {
            rows.push(deny(&[act, &self.bystander(), "9"], signalled(act)));
        }
        rows.push(deny(&["pidfd-signal", &self.bystander(), "9"], opened));
    }

    fn ipc(&self, rows: &mut Vec<AbiRow>) {
        for (kind, (key, id)) in IPC.iter().zip(&self.ipc) {
            rows.push(deny(&[&format!("{kind}-sysv-get"), key], ENOENT));
            let using = match *kind {
                "shm" => "attach",
                "sem" => "op",
                _ => "send",
            };
            rows.push(deny(&[&format!("{kind}-sysv-{using}"), id], EACCES));
            rows.push(AbiRow { control: AbiControl::None, ..deny(&[&format!("{kind}-sysv-remove"), id], EACCES) });
        }
        rows.push(deny(&["shm-posix-open", &self.name], ENOENT));
        rows.push(deny(&["mq-open", &self.name], EACCES));
        rows.push(AbiRow { control: AbiControl::None, ..deny(&["mq-open-existing", &self.name], EACCES) });
    }

    fn kernel(&self, rows: &mut Vec<AbiRow>) {
        let directory = self.env.workspace().join(self.fresh("mount"));
        fs::create_dir(&directory).unwrap();
        self.env.give(&directory);
        let directory = directory.to_str().unwrap();
        let namespaces = format!("{:#x}", libc::CLONE_NEWUSER | libc::CLONE_NEWNET);
        for words in [
            &["unshare-user"][..],
            &["unshare-all"],
            &["unshare", &namespaces],
            &["clone-newuser"],
            &["clone-fs"],
            &["clone-untraced"],
            &["mount-after-userns", directory],
            &["personality", "0x0400000"],
            &["personality", "0x0100000"],
        ] {
            rows.push(deny(words, EPERM));
        }
        rows.push(deny(&["clone3-newuser"], ENOSYS));
        for words in [&["mount-tmpfs", directory][..], &["umount", directory], &["pivot-root", directory]] {
            rows.push(AbiRow { control: AbiControl::None, ..deny(words, EPERM) });
        }
        let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        for words in
            [&["chroot", directory][..], &["open-tree-clone", directory], &["fsopen"], &["sethostname", name.trim()]]
        {
            rows.push(AbiRow { control: AbiControl::Privileged, ..deny(words, EPERM) });
        }
        rows.push(AbiRow { control: AbiControl::Privileged, ..deny(&["setuid", "1"], EPERM) });
        let subsystems = ["bpf", "perf", "userfaultfd", "keyctl", "add-key", "request-key", "syslog", "ldt"];
        for act in subsystems {
            rows.push(AbiRow { control: AbiControl::IfKnown, ..deny(&[act], EPERM) });
        }
        if cfg!(target_arch = "x86_64") {
            for words in [&["int80", "20"][..], &["x32", "39"]] {
                rows.push(AbiRow { control: AbiControl::IfKnown, inside: AbiAnswer::Killed, ..deny(words, 0) });
            }
        }
        for act in ["tty-sti", "tty-linux"] {
            rows.push(AbiRow { control: AbiControl::None, ..deny(&[act, "0"], EPERM) });
        }
    }

    /// Acts that tools need, and that look like an attack above: the same acts on what is the call's own.
    fn works(&self, rows: &mut Vec<AbiRow>) {
        let workspace = self.env.workspace();
        let new = || workspace.join(self.fresh("mine")).display().to_string();
        let mine = || {
            let path = PathBuf::from(new());
            self.env.file_at(path.clone(), "old");
            path.display().to_string()
        };
        for (act, rest) in [READS, WRITES, METADATA].concat() {
            let path = mine();
            if act.contains("remove") {
                rows.push(allow(&["setxattr", &path]));
            }
            // What truncates without a right to write cannot be told from reading below ABI 3, where no mount stops it.
            let refused = rest.contains(&"read-trunc") && abi(self.target) < 3 && !self.target.has_namespaces();
            let inside = if refused { AbiAnswer::Errno(EACCES) } else { AbiAnswer::Ok };
            rows.push(AbiRow { inside, ..allow(&[&[act, &path], rest].concat()) });
        }
        for act in ["create", "mkdir", "mkfifo"] {
            rows.push(allow(&[act, &new()]));
        }
        rows.push(allow(&["symlink", "/", &new()]));
        rows.push(allow(&["unlink", &mine()]));
        rows.push(allow(&["rename", &mine(), &new()]));
        rows.push(allow(&["rename-exchange", &mine(), &mine()]));
        rows.push(allow(&["link", &mine(), &new()]));
        // Between two directories of the workspace: only the first ABI refuses that.
        let (below, directory) = (new(), new());
        fs::create_dir(&directory).unwrap();
        self.env.give(directory.as_ref());
        let between = if refers(self.target) { AbiAnswer::Ok } else { AbiAnswer::Errno(EXDEV) };
        rows.push(allow(&["mkdir", &below]));
        for act in ["rename", "link"] {
            rows.push(AbiRow { inside: between, ..allow(&[act, &mine(), &format!("{directory}/{act}")]) });
        }
        rows.push(allow(&["readdir", workspace.to_str().unwrap()]));
        // The second is not reached, or it changes: a race that is won is seen by looking at the world.
        rows.push(allow(&["metadata-race", &mine(), &self.file_in(&self.outside), "300"]));
        let own = format!("{}-own", self.name);
        for words in [
            &["loopback-self", "127.0.0.1"][..],
            &["tcp-listen", "127.0.0.1"],
            &["listen-without-bind"],
            &["unix-self", workspace.to_str().unwrap()],
            &["unix-self-abstract", &own],
            &["unix-abstract-bind", &own],
            &["unix-bind", &new()],
            &["socketpair-stream"],
            &["socketpair-seqpacket"],
            &["scm-rights-self"],
            &["straddling-own"],
            &["sem-posix", &own],
            &["memfd-seal"],
            &["memfd-exec"],
            &["landlock-layer"],
            &["personality", "0xffffffff"],
        ] {
            rows.push(allow(words));
        }
        // Who waits for a descriptor of its own filter is told apart from callgate's own listener, of which a task has one.
        rows.push(AbiRow { inside: AbiAnswer::Errno(libc::EBUSY), ..allow(&["seccomp-listener"]) });
    }
}

impl AbiWorld<'_> {
    fn remove(&self) -> Vec<Probe> {
        let remove =
            |(kind, (_, id)): (&&str, &(String, String))| self.env.bare().probe(&[&format!("{kind}-sysv-remove"), id]);
        IPC.iter().zip(&self.ipc).map(remove).collect()
    }
}

/// A test that fails leaves nothing behind either.
impl Drop for AbiWorld<'_> {
    fn drop(&mut self) {
        drop(self.remove());
        for left in [self.name.clone(), format!("sem.{}-own", self.name)] {
            drop(fs::remove_file(format!("/dev/shm/{left}")));
        }
    }
}

fn row(words: &[&str], inside: AbiAnswer) -> AbiRow {
    AbiRow { words: words.iter().map(|&word| word.to_owned()).collect(), inside, control: AbiControl::Succeeds }
}

fn deny(words: &[&str], errno: i32) -> AbiRow {
    row(words, AbiAnswer::Errno(errno))
}

fn allow(words: &[&str]) -> AbiRow {
    row(words, AbiAnswer::Ok)
}

/// The Landlock ABI of a target.
fn abi(target: Target) -> u8 {
    match target.host {
        Host::Abi(abi) | Host::BareAbi(abi) => abi,
        Host::Namespaces | Host::NoNamespaces | Host::Docker | Host::Yama => 7,
    }
}

/// True if Landlock lets names move between directories (ABI 2).
fn refers(target: Target) -> bool {
    abi(target) >= 2
}

/// Runs every act in turn; what each came to.
#[track_caller]
fn answers(run: &ProgramRunner, rows: &[AbiRow]) -> Vec<(AbiAnswer, String)> {
    let probe = Binaries::of_this_build().probe().display().to_string();
    let line = |row: &AbiRow| row.words.iter().map(|word| format!(" '{word}'")).collect::<String>();
    let script: String = rows.iter().map(|row| format!("{probe}{}\n", line(row))).collect();
    let ended = run.run(&["/bin/bash", "-c", &script]);
    let lines: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ran: Vec<&str> = lines.iter().map(|line| line["act"].as_str().unwrap()).collect();
    let asked: Vec<&str> = rows.iter().map(|row| row.words[0].as_str()).collect();
    assert_eq!(ran, asked, "every act was tried, in turn: {}", ended.stderr);
    let answer = |line: &Value| match (&line["ok"], line["errno"].as_i64(), line["signal"].as_i64()) {
        (Value::Bool(true), ..) => AbiAnswer::Ok,
        (_, Some(errno), _) => AbiAnswer::Errno(i32::try_from(errno).unwrap()),
        (_, _, Some(signal)) if signal == i64::from(libc::SIGSYS) => AbiAnswer::Killed,
        _ => panic!("{line}"),
    };
    lines.iter().map(|line| (answer(line), line.to_string())).collect()
}

fn every_act(target: Target) {
    let env = TestEnv::new(target);
    let control = AbiWorld::new(&env, "a");
    let mut rows = control.rows();
    rows.retain(|row| row.control != AbiControl::None);
    let bare = answers(&env.bare(), &rows);
    let came = control.visits();
    control.clear();
    let mut wrong = Vec::new();
    for (row, (answer, line)) in rows.iter().zip(&bare) {
        let must = match row.control {
            AbiControl::Succeeds => true,
            AbiControl::Privileged => target.user.uid() == 0,
            AbiControl::IfKnown | AbiControl::None => false,
        };
        if must && *answer != AbiAnswer::Ok {
            wrong.push(format!("control of {:?}: {line}", row.words));
        } else if row.control == AbiControl::IfKnown && *answer != AbiAnswer::Ok {
            skip("unknown-call", format_args!("control of {:?} as {:?}: {line}", row.words, target.user));
        }
    }
    // Each act on a listener arrived: nine on the network (a tenth where the kernel has MPTCP), two streams and ten datagrams
    // by path, one of each by name.
    assert!(came >= 23, "only {came} controls arrived");

    let world = AbiWorld::new(&env, "b");
    let rows = world.rows();
    let before = world.look();
    let status = env.outside().join("status.json");
    let run = env.sandbox().read(&world.lent).flag(&["--status", status.to_str().unwrap()]);
    let inside = answers(&run, &rows);
    let (after, came) = (world.look(), world.visits());
    world.clear();
    for (row, (answer, line)) in rows.iter().zip(&inside) {
        if *answer != row.inside {
            wrong.push(format!("{:?} should have been {:?}: {line}", row.words, row.inside));
        }
    }
    let held = fs::read_to_string(&status).unwrap();
    assert!(held.contains(&format!("call domain, abi {}", abi(target))), "{held}");
    assert_eq!(held.contains("\"namespaces: "), target.has_namespaces(), "{held}");
    assert!(wrong.is_empty(), "on {target:?}:\n{}", wrong.join("\n"));
    assert_eq!(before, after, "the world has changed");
    assert_eq!(came, 0, "somebody came");
}

const WITHOUT: [Host; 7] = [
    Host::BareAbi(1),
    Host::BareAbi(2),
    Host::BareAbi(3),
    Host::BareAbi(4),
    Host::BareAbi(5),
    Host::BareAbi(6),
    Host::BareAbi(7),
];

const WITH: [Host; 7] =
    [Host::Abi(1), Host::Abi(2), Host::Abi(3), Host::Abi(4), Host::Abi(5), Host::Abi(6), Host::Abi(7)];

/// A15, B14: by Landlock and seccomp alone.
#[test]
fn a15_b14_every_act_at_every_abi_by_landlock_alone() {
    matrix(&WITHOUT, every_act);
}

/// A15, B14: with namespaces.
#[test]
fn a15_b14_every_act_at_every_abi_with_namespaces() {
    matrix(&WITH, every_act);
}

/// A15, D3: where Docker's profile and capabilities hold as well, and no namespace can be made.
#[test]
fn a15_d3_every_act_under_docker() {
    matrix(&[Host::Docker], every_act);
}

/// An act that is added to the probe is tried at every ABI, or said not to be.
#[test]
fn every_act_of_the_probe_is_in_the_table() {
    let target = Target { host: Host::NoNamespaces, user: callgate_tests::User::Ordinary };
    let env = TestEnv::new(target);
    let world = AbiWorld::new(&env, "c");
    let mut tried: BTreeSet<String> = world.rows().into_iter().map(|row| row.words[0].clone()).collect();
    world.clear();
    tried.extend(ELSEWHERE.iter().map(|&act| act.to_owned()));
    // Made bare, to be attacked confined.
    tried.insert("shm-posix".to_owned());
    let probe = Binaries::of_this_build().probe();
    let list = env.bare().run(&[probe.to_str().unwrap(), "--list"]).stdout;
    let acts: BTreeSet<String> = list
        .lines()
        .filter_map(|line| line.strip_prefix("  "))
        .filter_map(|line| line.split(' ').next().map(str::to_owned))
        .collect();
    assert_eq!(acts, tried);
}
