//! The commands of ioctl(2), fcntl(2) and prctl(2) that programs may give, by number.
//!
//! Each of these calls is hundreds of calls, and every kernel brings more. What is listed here works on what the process
//! has or is; anything else is answered as by a kernel that does not know it, so that programs fall back. A few refusals
//! are listed as well, for their error alone: people meet these and should read "not permitted".

use super::types::Operand;

/// Terminals, readiness and copying: what programs ask of descriptors every day.
pub(super) const IOCTLS: &[Operand] = &[
    // A terminal's modes, and what waits in it (ioctl_tty(2)). The numbers are one on both architectures.
    Operand::new("TCGETS", 0x5401),
    Operand::new("TCSETS", 0x5402),
    Operand::new("TCSETSW", 0x5403),
    Operand::new("TCSETSF", 0x5404),
    Operand::new("TCGETA", 0x5405),
    Operand::new("TCSETA", 0x5406),
    Operand::new("TCSETAW", 0x5407),
    Operand::new("TCSETAF", 0x5408),
    Operand::new("TCSBRK", 0x5409),
    Operand::new("TCXONC", 0x540a),
    Operand::new("TCFLSH", 0x540b),
    Operand::new("TCSBRKP", 0x5425),
    Operand::new("TCGETS2", 0x802c_542a),
    Operand::new("TCSETS2", 0x402c_542b),
    Operand::new("TCSETSW2", 0x402c_542c),
    Operand::new("TCSETSF2", 0x402c_542d),
    Operand::new("TIOCEXCL", 0x540c),
    Operand::new("TIOCNXCL", 0x540d),
    Operand::new("TIOCOUTQ", 0x5411),
    // Its size.
    Operand::new("TIOCGWINSZ", 0x5413),
    Operand::new("TIOCSWINSZ", 0x5414),
    // Jobs: the kernel takes a group of the caller's own session alone.
    Operand::new("TIOCSCTTY", 0x540e),
    Operand::new("TIOCNOTTY", 0x5422),
    Operand::new("TIOCGPGRP", 0x540f),
    Operand::new("TIOCSPGRP", 0x5410),
    Operand::new("TIOCGSID", 0x5429),
    // A pseudo-terminal of one's own.
    Operand::new("TIOCGPTN", 0x8004_5430),
    Operand::new("TIOCSPTLCK", 0x4004_5431),
    Operand::new("TIOCPKT", 0x5420),
    // What a descriptor has to read, and how it is read.
    Operand::new("FIONREAD", 0x541b),
    Operand::new("FIONBIO", 0x5421),
    Operand::new("FIONCLEX", 0x5450),
    Operand::new("FIOCLEX", 0x5451),
    Operand::new("FIOASYNC", 0x5452),
    Operand::new("SIOCATMARK", 0x8905),
    // Interfaces, as getifaddrs(3) of old has them (netdevice(7)): what they are called, and their addresses.
    Operand::new("SIOCGIFNAME", 0x8910),
    Operand::new("SIOCGIFCONF", 0x8912),
    Operand::new("SIOCGIFFLAGS", 0x8913),
    Operand::new("SIOCGIFADDR", 0x8915),
    Operand::new("SIOCGIFBRDADDR", 0x8919),
    Operand::new("SIOCGIFNETMASK", 0x891b),
    Operand::new("SIOCGIFMTU", 0x8921),
    Operand::new("SIOCGIFINDEX", 0x8933),
    // Copying without copying, into a file that is open for writing (ioctl_ficlonerange(2)).
    Operand::new("FICLONE", 0x4004_9409),
    Operand::new("FICLONERANGE", 0x4020_940d),
    // Attributes of a file, to read.
    Operand::new("FIGETBSZ", 2),
    Operand::new("FS_IOC_GETFLAGS", 0x8008_6601),
    Operand::new("FS_IOC_GETVERSION", 0x8008_7601),
    Operand::new("FS_IOC_FSGETXATTR", 0x801c_581f),
];

/// More of the same, which tell of the interfaces that there are: those of the session's own network namespace.
pub(super) const IOCTLS_OF_OWN_NETWORK: &[Operand] = &[
    Operand::new("SIOCGIFDSTADDR", 0x8917),
    Operand::new("SIOCGIFHWADDR", 0x8927),
    Operand::new("SIOCGIFTXQLEN", 0x8942),
];

/// F_SETOWN by another name: with O_ASYNC the kernel sends a signal to whoever is named.
pub(super) const OWNER_IOCTLS: &[Operand] = &[Operand::new("FIOSETOWN", 0x8901), Operand::new("SIOCSPGRP", 0x8902)];

/// Commands that type into a terminal or change a file's attributes.
pub(super) const REFUSED_IOCTLS: &[Operand] = &[
    Operand::new("TIOCSTI", 0x5412),
    Operand::new("TIOCLINUX", 0x541c),
    Operand::new("FS_IOC_SETFLAGS", 0x4008_6602),
    Operand::new("FS_IOC_FSSETXATTR", 0x401c_5820),
];

/// `TIOCGPTPEER` is the broker's: it opens the other end of a pseudo-terminal.
pub(super) const TIOCGPTPEER: Operand = Operand::new("TIOCGPTPEER", 0x5441);

/// Descriptors, locks, pipes and seals.
pub(super) const FCNTLS: &[Operand] = &[
    Operand::new("F_DUPFD", 0),
    Operand::new("F_GETFD", 1),
    Operand::new("F_SETFD", 2),
    Operand::new("F_GETFL", 3),
    Operand::new("F_SETFL", 4),
    Operand::new("F_GETLK", 5),
    Operand::new("F_SETLK", 6),
    Operand::new("F_SETLKW", 7),
    Operand::new("F_GETOWN", 9),
    Operand::new("F_GETSIG", 11),
    Operand::new("F_GETOWN_EX", 16),
    Operand::new("F_OFD_GETLK", 36),
    Operand::new("F_OFD_SETLK", 37),
    Operand::new("F_OFD_SETLKW", 38),
    Operand::new("F_GETLEASE", 1025),
    Operand::new("F_DUPFD_QUERY", 1027),
    Operand::new("F_CREATED_QUERY", 1028),
    Operand::new("F_DUPFD_CLOEXEC", 1030),
    Operand::new("F_SETPIPE_SZ", 1031),
    Operand::new("F_GETPIPE_SZ", 1032),
    Operand::new("F_ADD_SEALS", 1033),
    Operand::new("F_GET_SEALS", 1034),
];

/// Whom the kernel signals about a descriptor, and how.
pub(super) const OWNER_FCNTLS: &[Operand] =
    &[Operand::new("F_SETOWN", 8), Operand::new("F_SETSIG", 10), Operand::new("F_SETOWN_EX", 15)];

/// Commands that make others wait or tell of them: leases, delegations (Linux 6.19), and the watching of directories
/// that came before inotify(7).
pub(super) const REFUSED_FCNTLS: &[Operand] =
    &[Operand::new("F_SETLEASE", 1024), Operand::new("F_NOTIFY", 1026), Operand::new("F_SETDELEG", 1040)];

/// Options that a process sets or reads of itself alone.
pub(super) const PRCTLS: &[Operand] = &[
    Operand::new("PR_SET_PDEATHSIG", 1),
    Operand::new("PR_GET_PDEATHSIG", 2),
    Operand::new("PR_GET_DUMPABLE", 3),
    Operand::new("PR_SET_DUMPABLE", 4),
    Operand::new("PR_GET_KEEPCAPS", 7),
    Operand::new("PR_SET_KEEPCAPS", 8),
    Operand::new("PR_SET_NAME", 15),
    Operand::new("PR_GET_NAME", 16),
    Operand::new("PR_GET_SECCOMP", 21),
    Operand::new("PR_SET_SECCOMP", 22),
    Operand::new("PR_CAPBSET_READ", 23),
    Operand::new("PR_CAPBSET_DROP", 24),
    Operand::new("PR_GET_SECUREBITS", 27),
    Operand::new("PR_SET_TIMERSLACK", 29),
    Operand::new("PR_GET_TIMERSLACK", 30),
    Operand::new("PR_SET_CHILD_SUBREAPER", 36),
    Operand::new("PR_GET_CHILD_SUBREAPER", 37),
    Operand::new("PR_SET_NO_NEW_PRIVS", 38),
    Operand::new("PR_GET_NO_NEW_PRIVS", 39),
    Operand::new("PR_SET_THP_DISABLE", 41),
    Operand::new("PR_GET_THP_DISABLE", 42),
    Operand::new("PR_CAP_AMBIENT", 47),
    Operand::new("PR_GET_SPECULATION_CTRL", 52),
    Operand::new("PR_SET_MDWE", 65),
    Operand::new("PR_GET_MDWE", 66),
    Operand::new("PR_GET_AUXV", 0x4155_5856),
    // Registers and pointers of aarch64, which C libraries set up.
    Operand::new("PR_SVE_SET_VL", 50),
    Operand::new("PR_SVE_GET_VL", 51),
    Operand::new("PR_PAC_RESET_KEYS", 54),
    Operand::new("PR_SET_TAGGED_ADDR_CTRL", 55),
    Operand::new("PR_GET_TAGGED_ADDR_CTRL", 56),
    Operand::new("PR_PAC_SET_ENABLED_KEYS", 60),
    Operand::new("PR_PAC_GET_ENABLED_KEYS", 61),
    Operand::new("PR_SME_SET_VL", 63),
    Operand::new("PR_SME_GET_VL", 64),
    Operand::new("PR_GET_SHADOW_STACK_STATUS", 74),
    Operand::new("PR_SET_SHADOW_STACK_STATUS", 75),
    Operand::new("PR_LOCK_SHADOW_STACK_STATUS", 76),
];

/// Rewrites what `/proc` shows of a command line.
pub(super) const PR_SET_MM: Operand = Operand::new("PR_SET_MM", 35);

/// Names who else may trace the caller, for Yama.
pub(super) const PR_SET_PTRACER: Operand = Operand::new("PR_SET_PTRACER", 0x5961_6d61);

/// Requests of debuggers to a process that they may trace, for which no answer of the broker's is needed. Not among
/// them: what reads or suspends filters, and what the kernel's checkpoints use.
pub(super) const PTRACES: &[Operand] = &[
    Operand::new("PTRACE_PEEKTEXT", 1),
    Operand::new("PTRACE_PEEKDATA", 2),
    Operand::new("PTRACE_PEEKUSER", 3),
    Operand::new("PTRACE_POKETEXT", 4),
    Operand::new("PTRACE_POKEDATA", 5),
    Operand::new("PTRACE_POKEUSER", 6),
    Operand::new("PTRACE_CONT", 7),
    Operand::new("PTRACE_KILL", 8),
    Operand::new("PTRACE_SINGLESTEP", 9),
    Operand::new("PTRACE_GETREGS", 12),
    Operand::new("PTRACE_SETREGS", 13),
    Operand::new("PTRACE_GETFPREGS", 14),
    Operand::new("PTRACE_SETFPREGS", 15),
    Operand::new("PTRACE_ATTACH", 16),
    Operand::new("PTRACE_DETACH", 17),
    Operand::new("PTRACE_GETFPXREGS", 18),
    Operand::new("PTRACE_SETFPXREGS", 19),
    Operand::new("PTRACE_SYSCALL", 24),
    Operand::new("PTRACE_GET_THREAD_AREA", 25),
    Operand::new("PTRACE_ARCH_PRCTL", 30),
    Operand::new("PTRACE_SYSEMU", 31),
    Operand::new("PTRACE_SYSEMU_SINGLESTEP", 32),
    Operand::new("PTRACE_SINGLEBLOCK", 33),
    Operand::new("PTRACE_GETEVENTMSG", 0x4201),
    Operand::new("PTRACE_GETSIGINFO", 0x4202),
    Operand::new("PTRACE_SETSIGINFO", 0x4203),
    Operand::new("PTRACE_GETREGSET", 0x4204),
    Operand::new("PTRACE_SETREGSET", 0x4205),
    Operand::new("PTRACE_INTERRUPT", 0x4207),
    Operand::new("PTRACE_LISTEN", 0x4208),
    Operand::new("PTRACE_PEEKSIGINFO", 0x4209),
    Operand::new("PTRACE_GETSIGMASK", 0x420a),
    Operand::new("PTRACE_SETSIGMASK", 0x420b),
    Operand::new("PTRACE_GET_SYSCALL_INFO", 0x420e),
];

/// These two take options (`PTRACE_O_*`).
pub(super) const PTRACE_SEIZE: Operand = Operand::new("PTRACE_SEIZE", 0x4206);
pub(super) const PTRACE_SETOPTIONS: Operand = Operand::new("PTRACE_SETOPTIONS", 0x4200);
