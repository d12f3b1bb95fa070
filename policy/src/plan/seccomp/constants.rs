//! The kernel's numbers that the tables compare arguments with. Those of ioctl(2), fcntl(2) and prctl(2) are in `commands`.

use super::types::Operand;

/// Calls that x86-64 has and aarch64 never had: each is a special case of a later one that both have. The assembler
/// may leave these out, and takes any other name that an architecture lacks for a mistake in the table.
#[rustfmt::skip]
pub const X86_64_ONLY: &[&str] = &[
    "_sysctl", "access", "afs_syscall", "alarm", "arch_prctl", "chmod", "chown", "creat", "create_module", "dup2",
    "epoll_create", "epoll_ctl_old", "epoll_wait", "epoll_wait_old", "eventfd", "fork", "futimesat",
    "get_kernel_syms", "get_thread_area", "getdents", "getpgrp", "getpmsg", "inotify_init", "ioperm", "iopl",
    "lchown", "link", "lstat", "mkdir", "mknod", "modify_ldt", "open", "pause", "pipe", "poll", "putpmsg",
    "query_module", "readlink", "rename", "rmdir", "security", "select", "set_thread_area", "signalfd", "stat",
    "symlink", "sysfs", "time", "tuxcall", "unlink", "uprobe", "uretprobe", "uselib", "ustat", "utime", "utimes",
    "vfork", "vserver",
];

pub(super) const NONE: Operand = Operand::new("0", 0);
pub(super) const SELF: Operand = Operand::new("0 (the caller)", 0);
pub(super) const NULL: Operand = Operand::new("NULL", 0);
pub(super) const RLIMIT_CORE: Operand = Operand::new("RLIMIT_CORE", 4);

pub(super) const AF_UNIX: Operand = Operand::new("AF_UNIX", 1);
pub(super) const AF_INET: Operand = Operand::new("AF_INET", 2);
pub(super) const AF_NETLINK: Operand = Operand::new("AF_NETLINK", 16);
pub(super) const AF_INET6: Operand = Operand::new("AF_INET6", 10);
/// The rest of the `type` argument is SOCK_CLOEXEC and SOCK_NONBLOCK.
pub(super) const SOCK_TYPE_MASK: Operand = Operand::new("SOCK_TYPE_MASK", 0xf);
pub(super) const SOCK_STREAM: Operand = Operand::new("SOCK_STREAM", 1);
pub(super) const SOCK_DGRAM: Operand = Operand::new("SOCK_DGRAM", 2);
pub(super) const SOCK_RAW: Operand = Operand::new("SOCK_RAW", 3);
pub(super) const SOCK_SEQPACKET: Operand = Operand::new("SOCK_SEQPACKET", 5);
pub(super) const NOT_PF_UNIX: Operand = Operand::new("~PF_UNIX", 0xffff_fffe);
pub(super) const IPPROTO_IP: Operand = Operand::new("0", 0);
pub(super) const IPPROTO_TCP: Operand = Operand::new("IPPROTO_TCP", 6);
pub(super) const NETLINK_ROUTE: Operand = Operand::new("NETLINK_ROUTE", 0);
pub(super) const MSG_FASTOPEN: Operand = Operand::new("MSG_FASTOPEN", 0x2000_0000);
pub(super) const SOL_TCP: Operand = Operand::new("SOL_TCP", 6);
pub(super) const TCP_FASTOPEN_CONNECT: Operand = Operand::new("TCP_FASTOPEN_CONNECT", 30);
pub(super) const TCP_NODELAY: Operand = Operand::new("TCP_NODELAY", 1);
pub(super) const TCP_KEEPIDLE: Operand = Operand::new("TCP_KEEPIDLE", 4);
pub(super) const SO_KEEPALIVE: Operand = Operand::new("SO_KEEPALIVE", 9);
pub(super) const SO_LINGER: Operand = Operand::new("SO_LINGER", 13);
pub(super) const FIONBIO: Operand = Operand::new("FIONBIO", 0x5421);
pub(super) const SOL_SOCKET: Operand = Operand::new("SOL_SOCKET", 1);
pub(super) const SOL_IP: Operand = Operand::new("SOL_IP", 0);
pub(super) const SOL_NETLINK: Operand = Operand::new("SOL_NETLINK", 270);
pub(super) const SOL_IPV6: Operand = Operand::new("SOL_IPV6", 41);
pub(super) const SO_REUSEPORT: Operand = Operand::new("SO_REUSEPORT", 15);
pub(super) const SO_BINDTODEVICE: Operand = Operand::new("SO_BINDTODEVICE", 25);
/// Options that change how a connection is made, kept alive and read, and nothing about where it leads.
pub(super) const OPTIONS: &[(Operand, &[Operand])] = &[
    (
        SOL_SOCKET,
        &[
            Operand::new("SO_PASSCRED", 16),
            Operand::new("SO_RCVLOWAT", 18),
            Operand::new("SO_RCVTIMEO_OLD", 20),
            Operand::new("SO_SNDTIMEO_OLD", 21),
            Operand::new("SO_TIMESTAMP_OLD", 29),
            Operand::new("SO_PASSSEC", 34),
            Operand::new("SO_TIMESTAMPNS_OLD", 35),
            Operand::new("SO_TIMESTAMPING_OLD", 37),
            Operand::new("SO_PEEK_OFF", 42),
            Operand::new("SO_TIMESTAMP_NEW", 63),
            Operand::new("SO_PASSPIDFD", 76),
        ],
    ),
    (
        SOL_TCP,
        &[
            Operand::new("TCP_QUICKACK", 12),
            Operand::new("TCP_CONGESTION", 13),
            Operand::new("TCP_USER_TIMEOUT", 18),
            Operand::new("TCP_FASTOPEN", 23),
            Operand::new("TCP_NOTSENT_LOWAT", 25),
            Operand::new("TCP_FASTOPEN_NO_COOKIE", 34),
        ],
    ),
    (SOL_IP, &[Operand::new("IP_BIND_ADDRESS_NO_PORT", 24), Operand::new("IP_LOCAL_PORT_RANGE", 51)]),
    (
        SOL_IPV6,
        &[
            Operand::new("IPV6_UNICAST_HOPS", 16),
            Operand::new("IPV6_MTU_DISCOVER", 23),
            Operand::new("IPV6_RECVERR", 25),
            Operand::new("IPV6_V6ONLY", 26),
            Operand::new("IPV6_RECVPKTINFO", 49),
            Operand::new("IPV6_RECVHOPLIMIT", 51),
            Operand::new("IPV6_RECVTCLASS", 66),
            Operand::new("IPV6_TCLASS", 67),
            Operand::new("IPV6_ADDR_PREFERENCES", 72),
        ],
    ),
];
/// In a network namespace of the session's own: where multicast goes there, what UDP sockets are told, and how route netlink
/// answers.
pub(super) const OPTIONS_OF_OWN_NETWORK: &[(Operand, &[Operand])] = &[
    (
        SOL_IP,
        &[
            Operand::new("IP_MULTICAST_IF", 32),
            Operand::new("IP_MULTICAST_TTL", 33),
            Operand::new("IP_MULTICAST_LOOP", 34),
            Operand::new("IP_ADD_MEMBERSHIP", 35),
            Operand::new("IP_DROP_MEMBERSHIP", 36),
            Operand::new("IP_MULTICAST_ALL", 49),
        ],
    ),
    (
        SOL_IPV6,
        &[
            Operand::new("IPV6_MULTICAST_IF", 17),
            Operand::new("IPV6_MULTICAST_HOPS", 18),
            Operand::new("IPV6_MULTICAST_LOOP", 19),
            Operand::new("IPV6_JOIN_GROUP", 20),
            Operand::new("IPV6_LEAVE_GROUP", 21),
            Operand::new("IPV6_MULTICAST_ALL", 29),
        ],
    ),
    (
        SOL_NETLINK,
        &[
            Operand::new("NETLINK_ADD_MEMBERSHIP", 1),
            Operand::new("NETLINK_DROP_MEMBERSHIP", 2),
            Operand::new("NETLINK_EXT_ACK", 11),
            Operand::new("NETLINK_GET_STRICT_CHK", 12),
        ],
    ),
];
/// Rows of options, by level: all bits of a number but the lowest, and what these must equal.
pub(super) const OPTION_ROWS: [(Operand, Operand, Operand); 6] = [
    // SO_DEBUG to SO_BSDCOMPAT: reuse of addresses, sizes of buffers, keep-alive, priority. (SO_LINGER is judged before.)
    (SOL_SOCKET, Operand::new("~15", !15 & 0xffff_ffff), NONE),
    // SO_TIMESTAMPNS_NEW, SO_TIMESTAMPING_NEW, SO_RCVTIMEO_NEW, SO_SNDTIMEO_NEW.
    (SOL_SOCKET, Operand::new("~3", !3 & 0xffff_ffff), Operand::new("64", 64)),
    // TCP_NODELAY to TCP_SYNCNT.
    (SOL_TCP, Operand::new("~7", !7 & 0xffff_ffff), NONE),
    // TCP_LINGER2, TCP_DEFER_ACCEPT, TCP_WINDOW_CLAMP, TCP_INFO.
    (SOL_TCP, Operand::new("~3", !3 & 0xffff_ffff), Operand::new("8", 8)),
    // IP_TOS, IP_TTL.
    (SOL_IP, Operand::new("~3", !3 & 0xffff_ffff), NONE),
    // IP_PKTINFO (to be told of it), IP_MTU_DISCOVER, IP_RECVERR, IP_RECVTTL, IP_RECVTOS, IP_FREEBIND.
    (SOL_IP, Operand::new("~7", !7 & 0xffff_ffff), Operand::new("8", 8)),
];
pub(super) const TCP_ULP: Operand = Operand::new("TCP_ULP", 31);

// aarch64 kept the numbers of 32-bit ARM for O_NOFOLLOW and O_DIRECTORY.
pub(super) const O_NOFOLLOW_O_CLOEXEC: Operand = Operand::by_arch("(O_NOFOLLOW|O_CLOEXEC)", 0xa_0000, 0x8_8000);
pub(super) const SHM_OPEN_MASK: Operand =
    Operand::by_arch("(O_NOFOLLOW|O_CLOEXEC|O_DIRECTORY|O_NOCTTY)", 0xb_0100, 0x8_c100);
pub(super) const O_NOFOLLOW_O_RDWR: Operand = Operand::by_arch("(O_NOFOLLOW|O_RDWR)", 0x2_0002, 0x8002);
pub(super) const SEM_OPEN_MASK: Operand = Operand::by_arch("(O_NOFOLLOW|O_RDWR|O_DIRECTORY)", 0x3_0002, 0xc002);
pub(super) const O_WRONLY: Operand = Operand::new("O_WRONLY", 1);
pub(super) const O_RDWR: Operand = Operand::new("O_RDWR", 2);
pub(super) const O_CREAT: Operand = Operand::new("O_CREAT", 0x40);
pub(super) const O_TMPFILE: Operand = Operand::new("__O_TMPFILE", 0x40_0000);
pub(super) const O_TRUNC: Operand = Operand::new("O_TRUNC", 0x200);
pub(super) const O_ACCMODE: Operand = Operand::new("O_ACCMODE", 3);
pub(super) const O_ACCMODE_O_TRUNC: Operand = Operand::new("(O_ACCMODE|O_TRUNC)", 0x203);
pub(super) const S_ISUID: Operand = Operand::new("S_ISUID", 0o4000);
pub(super) const S_ISGID: Operand = Operand::new("S_ISGID", 0o2000);
pub(super) const O_CREAT_O_EXCL: Operand = Operand::new("(O_CREAT|O_EXCL)", 0xc0);

pub(super) const PRIO_PROCESS: Operand = Operand::new("PRIO_PROCESS", 0);
pub(super) const IOPRIO_WHO_PROCESS: Operand = Operand::new("IOPRIO_WHO_PROCESS", 1);

pub(super) const F_DUPFD_CLOEXEC: Operand = Operand::new("F_DUPFD_CLOEXEC", 1030);
pub(super) const F_GETFD: Operand = Operand::new("F_GETFD", 1);
pub(super) const F_SETFD: Operand = Operand::new("F_SETFD", 2);
pub(super) const F_GETFL: Operand = Operand::new("F_GETFL", 3);
pub(super) const F_SETFL: Operand = Operand::new("F_SETFL", 4);
pub(super) const F_GETLK: Operand = Operand::new("F_GETLK", 5);
pub(super) const F_SETLK: Operand = Operand::new("F_SETLK", 6);
pub(super) const F_GET_SEALS: Operand = Operand::new("F_GET_SEALS", 1034);
pub(super) const SIGCHLD: Operand = Operand::new("SIGCHLD", 17);
pub(super) const SIGKILL: Operand = Operand::new("SIGKILL", 9);
pub(super) const PR_SET_NAME: Operand = Operand::new("PR_SET_NAME", 15);
/// Any access but reading, `O_CREAT`, `O_TRUNC` and `__O_TMPFILE`.
pub(super) const O_CHANGING: Operand = Operand::new("(O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|__O_TMPFILE)", 0x40_0243);

pub(super) const PER_LINUX: Operand = Operand::new("PER_LINUX", 0);
/// Changes nothing and returns the current one.
pub(super) const PER_QUERY: Operand = Operand::new("0xffffffff", 0xffff_ffff);
pub(super) const ADDR_NO_RANDOMIZE: Operand = Operand::new("ADDR_NO_RANDOMIZE", 0x4_0000);
pub(super) const PER_LINUX32: Operand = Operand::new("PER_LINUX32", 8);
pub(super) const UNAME26: Operand = Operand::new("UNAME26", 0x2_0000);
pub(super) const UNAME26_LINUX32: Operand = Operand::new("(UNAME26|PER_LINUX32)", 0x2_0008);

/// Flags with which glibc and musl make a thread: VM, FS, FILES, SIGHAND, THREAD, SYSVSEM, SETTLS, PARENT_SETTID,
/// CHILD_CLEARTID.
pub(super) const CLONE_THREAD_FLAGS: Operand = Operand::new("(a thread of this process)", 0x3d_0f00);
/// musl adds CLONE_DETACHED, which the kernel ignores.
pub(super) const NOT_CLONE_DETACHED: Operand = Operand::new("~CLONE_DETACHED", !0x40_0000);
pub(super) const CLONE_THREAD: Operand = Operand::new("CLONE_THREAD", 0x1_0000);
pub(super) const CLONE_FILES_CLONE_THREAD: Operand = Operand::new("(CLONE_FILES|CLONE_THREAD)", 0x1_0400);
pub(super) const FALLOC_FL_PUNCH_HOLE: Operand = Operand::new("FALLOC_FL_PUNCH_HOLE", 2);
pub(super) const FALLOC_FL_COLLAPSE_RANGE: Operand = Operand::new("FALLOC_FL_COLLAPSE_RANGE", 8);
pub(super) const CLOSE_RANGE_UNSHARE: Operand = Operand::new("CLOSE_RANGE_UNSHARE", 2);
pub(super) const KCMP_VM: Operand = Operand::new("KCMP_VM", 1);
pub(super) const CLONE_FS: Operand = Operand::new("CLONE_FS", 0x200);
pub(super) const CLONE_FS_CLONE_THREAD: Operand = Operand::new("(CLONE_FS|CLONE_THREAD)", 0x1_0200);
/// NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET; CLONE_UNTRACED; and NEWTIME, whose bit clone(2) reads as
/// part of a signal number that does not exist.
pub(super) const CLONE_REFUSED: Operand = Operand::new("(CLONE_NEW*|CLONE_UNTRACED)", 0x7e02_0000 | 0x80_0000 | 0x80);
/// Flags of new namespaces, without CLONE_UNTRACED.
pub(super) const CLONE_NEW: Operand = Operand::new("CLONE_NEW*", 0x7e02_0000 | 0x80);
/// All but PTRACE_O_TRACESYSGOOD, TRACEFORK, TRACEVFORK, TRACECLONE, TRACEEXEC, TRACEVFORKDONE, TRACESECCOMP and EXITKILL.
pub(super) const NOT_TRACE_OPTIONS: Operand = Operand::new("~(PTRACE_O_* but TRACEEXIT, SUSPEND_SECCOMP)", !0x10_00bf);
pub(super) const SECCOMP_SET_MODE_FILTER: Operand = Operand::new("SECCOMP_SET_MODE_FILTER", 1);
pub(super) const SECCOMP_FILTER_FLAG_NEW_LISTENER: Operand = Operand::new("SECCOMP_FILTER_FLAG_NEW_LISTENER", 8);
pub(super) const PR_SET_DUMPABLE: Operand = Operand::new("PR_SET_DUMPABLE", 4);
pub(super) const SUID_DUMP_DISABLE: Operand = Operand::new("0", 0);
pub(super) const PROT_EXEC: Operand = Operand::new("PROT_EXEC", 4);
pub(super) const SHM_EXEC: Operand = Operand::new("SHM_EXEC", 0x8000);
