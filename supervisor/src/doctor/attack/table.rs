//! Attempts: each line once got through a sandbox that people relied on.

/// True if names inside a granted tree are denied already: until they are, to attack them tells nothing.
const PROTECTED_NAMES: bool = true;

/// Target of an attack, and so the meaning of a success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Area {
    /// Files outside the workspace.
    Files,
    /// Servers outside.
    Network,
    /// Servers outside, where one of them is granted: what leads past it, or from it to another.
    Host,
    /// Other processes.
    Processes,
    /// Things that the launcher left behind: descriptors, the environment, its terminal.
    Leaks,
    /// IPC objects of others.
    Ipc,
    /// Kernel surface: it reaches nobody yet, and is where kernels broke.
    Kernel,
    /// Open by design in one strength: told, and not counted.
    Visible,
}

impl Area {
    /// Every one, in the order of the table.
    pub const ALL: [Self; 8] =
        [Self::Files, Self::Network, Self::Host, Self::Processes, Self::Leaks, Self::Ipc, Self::Kernel, Self::Visible];

    /// Grants where its attacks are made.
    pub(super) fn grants(self) -> NetworkGrants {
        match self {
            Self::Host => NetworkGrants::Host,
            Self::Files | Self::Network | Self::Processes | Self::Leaks | Self::Ipc | Self::Kernel | Self::Visible => {
                NetworkGrants::NoHost
            }
        }
    }
}

/// Grants of the network to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NetworkGrants {
    NoHost,
    /// The one that the field has for it.
    Host,
}

/// Proof that an act got through, besides a canary that changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// It was not refused.
    Success,
    /// It saw the token, which is nowhere else.
    Token,
    /// It arrived: elsewhere there may be something of the same name or number.
    Canary,
}

/// One act of the probe. In its words `{…}` stands for what the field has.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableAct {
    pub(super) words: &'static [&'static str],
    pub(super) proof: Proof,
    /// With a terminal as its standard input.
    pub(super) terminal: bool,
}

/// One line of the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attack {
    pub(super) id: &'static str,
    pub(super) area: Area,
    pub(super) what: &'static str,
    pub(super) acts: &'static [TableAct],
}

const fn act(words: &'static [&'static str]) -> TableAct {
    TableAct { words, proof: Proof::Success, terminal: false }
}

pub(super) const fn sees(words: &'static [&'static str]) -> TableAct {
    TableAct { words, proof: Proof::Token, terminal: false }
}

const fn arrives(words: &'static [&'static str]) -> TableAct {
    TableAct { words, proof: Proof::Canary, terminal: false }
}

const fn typed(words: &'static [&'static str]) -> TableAct {
    TableAct { words, proof: Proof::Success, terminal: true }
}

const fn line(area: Area, id: &'static str, what: &'static str, acts: &'static [TableAct]) -> Attack {
    Attack { id, area, what, acts }
}

/// All that are to be tried.
pub(super) fn attacks() -> impl Iterator<Item = &'static Attack> {
    TABLE.iter().chain(PROTECTED.iter().filter(|_| PROTECTED_NAMES)).chain(HOST)
}

use Area::{Files, Host, Ipc, Kernel, Leaks, Network, Processes, Visible};

const TABLE: &[Attack] = &[
    line(Files, "A2", "read a file", &[sees(&["read", "{out}/file"]), act(&["flock", "{out}/file"])]),
    line(Files, "A2", "list a directory, watch a file", &[act(&["readdir", "{out}"]), act(&["inotify", "{out}/file"])]),
    line(
        Files,
        "A2",
        "read through a symbolic link",
        &[sees(&["read", "{ws}/link"]), sees(&["read", "{ws}/linkdir/file"])],
    ),
    line(
        Files,
        "A2",
        "write, directly and through a link",
        &[
            act(&["write", "{out}/file", "x"]),
            act(&["write", "{ws}/link", "x"]),
            act(&["create", "{ws}/linkdir/new", "x"]),
        ],
    ),
    line(
        Files,
        "A5",
        "open, creat, openat2, O_PATH reopened, by handle",
        &[
            act(&["open-legacy", "{out}/file", "write"]),
            act(&["creat", "{out}/new"]),
            act(&["openat2", "{out}/file", "write"]),
            act(&["open-o-path-reopen", "{out}/file", "write"]),
            act(&["open-by-handle", "{out}/file"]),
        ],
    ),
    line(Files, "A7", "read through /proc/self/root", &[sees(&["proc-root", "{out}/file"])]),
    line(
        Files,
        "A15",
        "cut a file short: truncate, O_TRUNC",
        &[
            act(&["truncate", "{out}/file"]),
            act(&["open-trunc", "{out}/file"]),
            act(&["open-legacy", "{out}/file", "read-trunc"]),
        ],
    ),
    line(Files, "A3", "take a file in by a hard link", &[act(&["link", "{out}/file", "{ws}/taken"])]),
    line(
        Files,
        "A4",
        "create, remove, rename, exchange",
        &[
            act(&["create", "{out}/new", "x"]),
            act(&["mkdir", "{out}/new"]),
            act(&["unlink", "{out}/file"]),
            act(&["rmdir", "{out}/empty"]),
            act(&["rename", "{out}/file", "{ws}/taken"]),
            act(&["rename-exchange", "{out}/file", "{ws}/notes.txt"]),
            act(&["symlink", "/", "{out}/new"]),
        ],
    ),
    line(
        Files,
        "A12",
        "change mode and owner",
        &[
            act(&["chmod", "{out}/file", "0777"]),
            act(&["fchmodat", "{out}/file", "0777"]),
            act(&["chown", "{out}/file"]),
            act(&["lchown", "{out}/file"]),
            act(&["fchownat", "{out}/file"]),
            act(&["chmod", "{ws}/link", "0777"]),
        ],
    ),
    line(
        Files,
        "A12",
        "change times and attributes",
        &[
            act(&["utimens", "{out}/file"]),
            act(&["utime-legacy", "{out}/file"]),
            act(&["setxattr", "{out}/file"]),
            act(&["lsetxattr", "{out}/file"]),
            act(&["removexattr", "{out}/file"]),
        ],
    ),
    line(
        Files,
        "A12",
        "the same by calls newer than most filters",
        &[
            act(&["fchmodat2", "{out}/file", "0777"]),
            act(&["setxattrat", "{out}/file"]),
            act(&["removexattrat", "{out}/file"]),
            act(&["file-setattr", "{out}/file"]),
        ],
    ),
    line(
        Files,
        "A12",
        "the same, of a file that may be read",
        &[
            act(&["chmod", "{read}/policy.toml", "0777"]),
            act(&["fchmod", "{read}/policy.toml", "0777"]),
            act(&["fchown", "{read}/policy.toml"]),
            act(&["futimens", "{read}/policy.toml"]),
            act(&["fsetxattr", "{read}/policy.toml"]),
            act(&["fremovexattr", "{read}/policy.toml"]),
            act(&["fs-ioctl", "{read}/policy.toml"]),
        ],
    ),
    line(
        Files,
        "E4",
        "write what may only be read: policy, state",
        &[
            act(&["write", "{read}/policy.toml", "x"]),
            act(&["create", "{read}/new", "x"]),
            act(&["rename", "{read}/policy.toml", "{read}/old"]),
            act(&["truncate", "{read}/policy.toml"]),
            act(&["link", "{read}/policy.toml", "{ws}/taken"]),
        ],
    ),
    line(
        Files,
        "A13",
        "make a device node in the workspace",
        &[act(&["mknod", "{ws}/taken", "c", "1", "3"]), act(&["mknod", "{ws}/taken", "b", "7", "0"])],
    ),
    line(Files, "B7", "open a FIFO", &[act(&["fifo-open", "{out}/fifo"])]),
    line(
        Network,
        "B5",
        "connect by TCP, IPv4 and IPv6",
        &[act(&["tcp-connect", "127.0.0.1", "{tcp}"]), act(&["tcp-connect", "::1", "{tcp6}"])],
    ),
    line(Network, "B10", "connect by an IPv4-mapped address", &[act(&["v4mapped-connect", "127.0.0.1", "{tcp}"])]),
    line(
        Network,
        "B1",
        "connect by MPTCP",
        &[act(&["mptcp-connect", "127.0.0.1", "{tcp}"]), act(&["mptcp-connect", "127.0.0.1", "{mptcp}"])],
    ),
    line(
        Network,
        "B2",
        "connect with the first data: TCP fast open",
        &[
            act(&["fastopen-sendto", "127.0.0.1", "{tcp}"]),
            act(&["fastopen-sendmsg", "127.0.0.1", "{tcp}"]),
            act(&["fastopen-sendmmsg", "127.0.0.1", "{tcp}"]),
            act(&["fastopen-connect", "127.0.0.1", "{tcp}"]),
        ],
    ),
    line(
        Network,
        "B4",
        "send UDP",
        &[arrives(&["udp-sendto", "127.0.0.1", "{udp}"]), arrives(&["udp-connect", "127.0.0.1", "{udp}"])],
    ),
    line(
        Network,
        "B7",
        "unix sockets by path: stream, datagram, pair",
        &[
            act(&["unix-connect", "{out}/stream.sock"]),
            act(&["unix-dgram", "{out}/dgram.sock"]),
            act(&["unix-dgram-sendmmsg", "{out}/dgram.sock"]),
            act(&["unix-dgram-pair-sendmsg", "{out}/dgram.sock"]),
            act(&["unix-dgram-pair-sendto", "{out}/dgram.sock"]),
        ],
    ),
    line(
        Network,
        "B7",
        "abstract unix sockets",
        &[act(&["unix-abstract", "{abstract}"]), act(&["unix-abstract-dgram", "{abstract}-dgram"])],
    ),
    line(
        Processes,
        "D1",
        "trace, read memory",
        &[
            act(&["ptrace-attach", "{pid}"]),
            act(&["ptrace-seize", "{pid}"]),
            act(&["process-vm-readv", "{pid}"]),
            act(&["proc-pid", "{pid}", "mem"]),
        ],
    ),
    line(
        Processes,
        "D1",
        "read environment, maps, files",
        &[
            sees(&["proc-pid", "{pid}", "environ"]),
            act(&["proc-pid", "{pid}", "maps"]),
            act(&["proc-pid", "{pid}", "fd"]),
            act(&["proc-pid", "{pid}", "root"]),
            act(&["proc-pid", "{pid}", "cwd"]),
        ],
    ),
    line(Processes, "A7", "read command lines", &[sees(&["proc-pid", "{pid}", "cmdline"]), sees(&["ps"])]),
    line(
        Processes,
        "D1",
        "take a descriptor, compare, join namespaces",
        &[act(&["pidfd-getfd", "{pid}", "0"]), act(&["kcmp", "{pid}"]), act(&["setns", "{pid}"])],
    ),
    line(
        Processes,
        "D2",
        "send a signal, by five calls",
        &[
            act(&["kill", "{pid}", "10"]),
            act(&["tkill", "{pid}", "10"]),
            act(&["tgkill", "{pid}", "10"]),
            act(&["sigqueue", "{pid}", "10"]),
            act(&["pidfd-signal", "{pid}", "10"]),
        ],
    ),
    line(
        Processes,
        "D1",
        "change limits, priority, processor",
        &[act(&["prlimit", "{pid}", "7", "64"]), act(&["setpriority", "{pid}"]), act(&["sched-affinity", "{pid}"])],
    ),
    line(Leaks, "A20", "use an inherited descriptor of a file", &[act(&["syscall", "fcntl", "{fd}", "1"])]),
    line(Leaks, "B17", "use an inherited connection", &[act(&["syscall", "fcntl", "{connection}", "1"])]),
    line(Leaks, "E5", "read a secret of the environment", &[sees(&["env"])]),
    line(
        Leaks,
        "D6",
        "type into the terminal: TIOCSTI, TIOCLINUX",
        &[typed(&["tty-sti", "0"]), typed(&["tty-sti", "0", "1"]), typed(&["tty-linux", "0"])],
    ),
    line(
        Ipc,
        "D4",
        "System V memory, semaphores, queues",
        &[
            act(&["shm-sysv-get", "{key}"]),
            act(&["shm-sysv-attach", "{shm}"]),
            act(&["shm-sysv-remove", "{shm}"]),
            act(&["sem-sysv-get", "{key}"]),
            act(&["sem-sysv-op", "{sem}"]),
            act(&["sem-sysv-remove", "{sem}"]),
            act(&["msg-sysv-get", "{key}"]),
            act(&["msg-sysv-send", "{msg}"]),
            act(&["msg-sysv-remove", "{msg}"]),
        ],
    ),
    line(
        Ipc,
        "D4",
        "POSIX shared memory, queues",
        &[act(&["shm-posix-open", "{name}"]), act(&["mq-open-existing", "{name}"])],
    ),
    line(
        Kernel,
        "D3",
        "make a user namespace: unshare, clone, clone3",
        &[act(&["unshare-user"]), act(&["unshare-all"]), act(&["clone-newuser"]), act(&["clone3-newuser"])],
    ),
    line(
        Kernel,
        "D3",
        "mount, fsopen, open_tree, chroot",
        &[
            act(&["mount-after-userns", "{ws}/mnt"]),
            act(&["fsopen"]),
            act(&["open-tree-clone", "{ws}/mnt"]),
            act(&["chroot", "{ws}/mnt"]),
        ],
    ),
    line(Kernel, "B9", "io_uring", &[act(&["io-uring-setup"])]),
    line(Kernel, "D4", "userfaultfd", &[act(&["userfaultfd"])]),
    line(Kernel, "D4", "bpf, perf", &[act(&["bpf"]), act(&["perf"])]),
    line(Kernel, "D4", "keyrings", &[act(&["keyctl"]), act(&["add-key"]), act(&["request-key"])]),
    line(Kernel, "D4", "the kernel's log", &[act(&["syslog"])]),
    line(Kernel, "D5", "calls of the 32-bit table", &[act(&["int80", "20"])]),
    line(Kernel, "D5", "calls of the x32 table", &[act(&["x32", "39"])]),
    line(Kernel, "D5", "a 16-bit code segment", &[act(&["ldt"])]),
    line(Kernel, "D7", "become another user", &[act(&["setuid", "{other-uid}"])]),
    line(
        Kernel,
        "B8",
        "vsock, netlink, packet, ALG, key",
        &[
            act(&["socket", "40", "1", "0"]),
            // Generic netlink. Route netlink tells a session with namespaces of its own network.
            act(&["socket", "16", "3", "16"]),
            act(&["packet"]),
            act(&["alg"]),
            act(&["key"]),
        ],
    ),
    line(Kernel, "B3", "SCTP, SMC", &[act(&["sctp"]), act(&["smc"])]),
    line(Kernel, "B4", "ICMP: ping, raw", &[act(&["ping-socket"]), act(&["raw"])]),
    line(Visible, "A2", "that a file exists, its size and times", &[act(&["stat", "{out}/file"])]),
    line(Visible, "D2", "that a process exists", &[act(&["syscall", "getpgid", "{pid}"])]),
];

/// Names that run something later, outside, in a repository that is granted for writing.
const PROTECTED: &[Attack] = &[
    line(
        Files,
        "A1",
        "create .bashrc, .vscode, .mcp.json, a git hook",
        &[
            act(&["create", "{ws}/.bashrc", "x"]),
            act(&["mkdir", "{ws}/.vscode"]),
            act(&["create", "{ws}/.git/hooks/post-checkout", "x"]),
            act(&["create", "{ws}/.mcp.json", "x"]),
        ],
    ),
    line(
        Files,
        "A18",
        "change a repository's config",
        &[
            act(&["write", "{ws}/.git/config", "x"]),
            act(&["truncate", "{ws}/.git/config"]),
            act(&["unlink", "{ws}/.git/config"]),
        ],
    ),
    line(Files, "A4", "move .git away", &[act(&["rename", "{ws}/.git", "{ws}/taken"])]),
    line(
        Files,
        "A3",
        "alias a protected name: hard and symbolic link",
        &[
            act(&["link", "{ws}/.git/config", "{ws}/taken"]),
            act(&["symlink", "../taken", "{ws}/.git/hooks/post-checkout"]),
        ],
    ),
    line(
        Files,
        "A19",
        "move a prepared file to a protected name",
        &[
            act(&["rename", "{ws}/notes.txt", "{ws}/.bashrc"]),
            act(&["rename", "{ws}/notes.txt", "{ws}/.git/hooks/post-checkout"]),
        ],
    ),
];

/// Where a host is granted. `{port}` is its port, at 127.0.0.1; `{host}` is its name.
const HOST: &[Attack] = &[
    line(
        Host,
        "B5",
        "another host, and another port",
        &[
            act(&["tcp-connect", "{another}", "{port}"]),
            act(&["tcp-connect", "127.0.0.1", "{tcp}"]),
            act(&["tcp-connect", "::1", "{tcp6}"]),
            sees(&["http", "{another}", "{port}"]),
        ],
    ),
    line(
        Host,
        "B10",
        "another host: IPv4 in IPv6, NAT64",
        &[act(&["v4mapped-connect", "{another}", "{port}"]), act(&["tcp-connect-soon", "64:ff9b::7f00:4d", "{port}"])],
    ),
    line(Host, "B12", "a cloud's metadata", &[act(&["tcp-connect-soon", "169.254.169.254", "80"])]),
    line(
        Host,
        "B1",
        "MPTCP, to it and to another",
        &[act(&["mptcp-connect", "127.0.0.1", "{port}"]), act(&["mptcp-connect", "{another}", "{port}"])],
    ),
    line(
        Host,
        "B2",
        "TCP fast open, to it and to another",
        &[
            act(&["fastopen-sendto", "127.0.0.1", "{port}"]),
            act(&["fastopen-sendto", "{another}", "{port}"]),
            act(&["fastopen-sendmsg", "{another}", "{port}"]),
            act(&["fastopen-sendmmsg", "{another}", "{port}"]),
            act(&["fastopen-connect", "{another}", "{port}"]),
        ],
    ),
    line(Host, "B3", "SCTP, SMC, to it", &[act(&["sctp", "127.0.0.1", "{port}"]), act(&["smc"])]),
    line(
        Host,
        "B4",
        "UDP to its port, ping, raw",
        &[
            arrives(&["udp-sendto", "127.0.0.1", "{port}"]),
            arrives(&["udp-connect", "127.0.0.1", "{port}"]),
            act(&["ping-socket"]),
            act(&["raw"]),
        ],
    ),
    line(
        Host,
        "B4",
        "a message in a name below its own",
        &[act(&["ask-name", "{names}", "{below}"]), act(&["ask-name", "{own-names}", "{below}"])],
    ),
    line(
        Host,
        "B6",
        "a proxy that is not granted",
        &[
            sees(&["by-proxy", "{own-proxy}", "connect", "{another}", "{port}"]),
            sees(&["by-proxy", "{own-proxy}", "socks", "127.0.0.1", "{port}"]),
        ],
    ),
    line(
        Host,
        "B8",
        "sockets of other families",
        &[
            act(&["socket", "40", "1", "0"]),
            act(&["socket", "16", "3", "16"]),
            act(&["packet"]),
            act(&["alg"]),
            act(&["key"]),
        ],
    ),
    line(Host, "B9", "connect by a ring of operations", &[act(&["io-uring-setup"])]),
    line(
        Host,
        "B10",
        "another host, by SOCKS and CONNECT",
        &[
            sees(&["by-proxy", "{proxy}", "socks", "{another}", "{port}"]),
            sees(&["by-proxy", "{proxy}", "connect", "{another}", "{port}"]),
            sees(&["by-proxy", "{proxy}", "request", "{another}", "{port}"]),
            sees(&["by-proxy", "{proxy}", "socks", "other.localhost", "{port}"]),
            sees(&["by-proxy", "{proxy}", "connect", "other.localhost", "{port}"]),
            sees(&["by-proxy", "{proxy}", "socks", "::ffff:127.0.0.77", "{port}"]),
            sees(&["by-proxy", "{proxy}", "connect", "0x7f00004d", "{port}"]),
            sees(&["by-proxy", "{proxy}", "connect", "0177.0.0.77", "{port}"]),
            sees(&["by-proxy", "{proxy}", "socks", "2130706509", "{port}"]),
            sees(&["by-proxy", "{proxy}", "socks", "{another}\\0.granted.localhost", "{port}"]),
            sees(&["by-proxy", "{proxy}", "connect", "{another}\\0.granted.localhost", "{port}"]),
        ],
    ),
    line(
        Host,
        "B13",
        "another host by what is said: Host, SNI",
        &[
            sees(&["by-proxy-as", "{proxy}", "{host}", "{port}", "http", "other.localhost"]),
            sees(&["by-proxy-as", "{proxy}", "{host}", "{port}", "http-later", "other.localhost"]),
            sees(&["by-proxy-as", "{proxy}", "{host}", "{port}", "tls", "other.localhost"]),
        ],
    ),
];
