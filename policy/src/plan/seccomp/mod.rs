//! The system call filters, as data: which call does what, and why.
//!
//! [`base`] is an allow list that the zygote installs once and every worker inherits; [`tool_delta`] is a short second
//! filter for callgate's own in-process tools. Nothing here knows a system call number: the worker's assembler turns
//! names into numbers and the table into a program, and its tests hold the program against this table.
//!
//! Rules that hold throughout:
//! - What is not named fails with [`Errno::Enosys`], as on a kernel that does not have the call. So a call that a
//!   later kernel brings is closed until someone has thought about it, and C libraries fall back by themselves.
//! - A call of another architecture or of x32 kills the process (D5): its numbers mean other calls.
//! - `int` arguments are compared in their low 32 bits, because the kernel drops the upper half; a comparison of all
//!   64 bits is bypassed by setting one of those (D5; TIOCSTI in snapd).
//! - The filter judges integers. What depends on pointed-to memory goes to the broker ([`Verdict::Notify`]), which
//!   acts on its own copy, or is refused.

mod commands;

use std::fmt;

use serde::Serialize;

use self::commands::{
    FCNTLS, IOCTLS, OWNER_FCNTLS, OWNER_IOCTLS, PR_SET_MM, PRCTLS, REFUSED_FCNTLS, REFUSED_IOCTLS, TIOCGPTPEER,
};

use super::{Starter, Strength, Writer};

/// The architectures that filters are made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arch {
    /// `AUDIT_ARCH_X86_64`.
    X86_64,
    /// `AUDIT_ARCH_AARCH64`.
    Aarch64,
}

/// What the base filter depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Variant {
    /// Without namespaces, more is shared with the host and more has to be judged.
    pub strength: Strength,
    /// The Landlock ABI in use, 1 to 7: below 6 there is no signal scope, and signals have to be judged.
    pub landlock_abi: u8,
    /// Whether names are kept, so that the broker is asked about all that changes files.
    pub writer: Writer,
    /// Whether the broker is asked about every program that is started.
    pub starter: Starter,
}

/// The errors that filters return. Their numbers are the same on all architectures of [`Arch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Errno {
    /// No error: the call returns 0 and does nothing.
    Success,
    /// Operation not permitted.
    Eperm,
    /// Permission denied.
    Eacces,
    /// Invalid argument: no such command.
    Einval,
    /// Not for this descriptor: no such control.
    Enotty,
    /// No such system call.
    Enosys,
    /// Not supported on this socket, or by this file system.
    Eopnotsupp,
    /// No such option of a socket.
    Enoprotoopt,
    /// No such address family.
    Eafnosupport,
}

impl Errno {
    /// The number, as in `errno`.
    pub fn number(self) -> u16 {
        match self {
            Self::Success => 0,
            Self::Eperm => 1,
            Self::Eacces => 13,
            Self::Einval => 22,
            Self::Enotty => 25,
            Self::Enosys => 38,
            Self::Enoprotoopt => 92,
            Self::Eopnotsupp => 95,
            Self::Eafnosupport => 97,
        }
    }

    /// The name, as in errno(3).
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "success, doing nothing",
            Self::Eperm => "EPERM",
            Self::Eacces => "EACCES",
            Self::Einval => "EINVAL",
            Self::Enotty => "ENOTTY",
            Self::Enosys => "ENOSYS",
            Self::Enoprotoopt => "ENOPROTOOPT",
            Self::Eopnotsupp => "EOPNOTSUPP",
            Self::Eafnosupport => "EAFNOSUPPORT",
        }
    }
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The kernel carries it out.
    Allow,
    /// The broker is asked, and carries it out itself where that is granted.
    Notify,
    /// It fails.
    Errno(Errno),
}

/// A number that a call's argument is compared with, and its name in the kernel's headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Operand {
    /// How it is printed.
    pub name: &'static str,
    x86_64: u64,
    aarch64: u64,
}

impl Operand {
    /// One value on every architecture.
    pub const fn new(name: &'static str, value: u64) -> Self {
        Self { name, x86_64: value, aarch64: value }
    }

    /// A value that the architectures do not agree on, such as `O_NOFOLLOW`.
    pub const fn by_arch(name: &'static str, x86_64: u64, aarch64: u64) -> Self {
        Self { name, x86_64, aarch64 }
    }

    /// The value on one architecture.
    pub fn value(self, arch: Arch) -> u64 {
        match arch {
            Arch::X86_64 => self.x86_64,
            Arch::Aarch64 => self.aarch64,
        }
    }
}

/// How much of an argument counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Width {
    /// The low 32 bits: the kernel's type is `int` or `unsigned int`, or it drops the upper half itself.
    Low32,
    /// All 64 bits: the kernel's type is `long` and it looks at all of it.
    Full64,
}

/// One comparison of one argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Condition {
    /// Which argument, 0 to 5.
    pub arg: u8,
    /// How much of it.
    pub width: Width,
    /// If given, the bits that count.
    pub mask: Option<Operand>,
    /// What they must equal.
    pub value: Operand,
}

/// A verdict for calls whose arguments meet every condition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ArgRule {
    /// Never empty.
    pub when: Vec<Condition>,
    /// What then happens.
    pub then: Verdict,
}

/// What happens to a call by its name, or by its name and arguments.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Whatever its arguments.
    Always(Verdict),
    /// The first rule that matches decides.
    Args {
        /// In order.
        rules: Vec<ArgRule>,
        /// When none matches.
        otherwise: Verdict,
    },
}

/// Calls that have one reason in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Group {
    /// What they are.
    pub title: &'static str,
    /// Why they are treated so.
    pub why: &'static str,
    /// The ids of the attacks that this closes, as in the threat model.
    pub attacks: &'static [&'static str],
    /// Names, with spaces between, and what happens to each of them.
    pub calls: Vec<(&'static str, Action)>,
}

/// A table of system calls.
///
/// Invariant: no name appears twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Filter {
    /// What it is for.
    pub title: String,
    /// What happens to every number that no group names.
    pub default: Verdict,
    /// The table.
    pub groups: Vec<Group>,
}

impl Filter {
    /// Every name with its action, in the table's order.
    pub fn calls(&self) -> impl Iterator<Item = (&'static str, &Action)> {
        self.groups
            .iter()
            .flat_map(|group| &group.calls)
            .flat_map(|(names, action)| names.split_whitespace().map(move |name| (name, action)))
    }
}

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

/// The filter that holds for everything in a session.
pub fn base(variant: Variant) -> Filter {
    let Variant { strength, landlock_abi, writer, starter } = variant;
    let strength_name = match strength {
        Strength::Landlock => "without namespaces",
        Strength::Namespaces => "with namespaces",
    };
    let writer_name = match writer {
        Writer::Kernel => "",
        Writer::Broker => ", kept names",
        Writer::BrokerReadsToo => ", single files",
    };
    let starter_name = match starter {
        Starter::Kernel => "",
        Starter::Broker => ", judged programs",
    };
    let mut groups = ordinary();
    groups.push(starting(starter));
    groups.extend([
        metadata(),
        sockets(),
        addresses(),
        messages(),
        socket_options(),
        ioctls(landlock_abi),
        ipc(),
        names(variant),
        watching(strength),
    ]);
    groups.extend(other_processes(landlock_abi));
    groups.extend([
        memory_of_others(),
        reserved_space(),
        uncounted_memory(),
        namespaces(),
        mounts(),
        kernel_surface(),
        host_state(),
    ]);
    groups.extend([execution_domains(), clones(), process_controls(), unreadable(), native_aio(), newer(), obsolete()]);
    Filter {
        title: format!("base filter, {strength_name}, Landlock ABI {landlock_abi}{writer_name}{starter_name}"),
        default: Verdict::Errno(Errno::Enosys),
        groups,
    }
}

/// The second filter, for callgate's in-process tools: they work on files and start nothing, so that what a hostile
/// document makes of a parser cannot start anything either. It is stacked upon the base filter, and the kernel takes
/// the stricter answer of the two.
pub fn tool_delta() -> Filter {
    tool(Threads::Never)
}

/// The same for a tool that searches with several threads, where it runs below the broker.
pub fn search_delta() -> Filter {
    tool(Threads::OfItsOwn)
}

/// Whether a tool may make threads. A thread has the memory, the descriptors and the working directory of its maker, and
/// from the kernel its Landlock domain and filters too; it ends with the process. So it reaches nothing that its maker did
/// not, and leaves nothing behind. What it adds is concurrency, which a tool that needs none is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Threads {
    Never,
    OfItsOwn,
}

/// clone(2) exactly as the C libraries make a thread with it, and in no other way.
fn threads_alone() -> Action {
    let thread = Condition { arg: 0, width: Width::Full64, mask: Some(NOT_CLONE_DETACHED), value: CLONE_THREAD_FLAGS };
    Action::Args { rules: vec![ArgRule { when: vec![thread], then: Verdict::Allow }], otherwise: EPERM }
}

fn tool(threads: Threads) -> Filter {
    let executable = |arg| Action::Args {
        rules: vec![ArgRule { when: vec![has_all(arg, PROT_EXEC)], then: EPERM }],
        otherwise: Verdict::Allow,
    };
    let (title, starting) = match threads {
        Threads::Never => (
            "filter of in-process tools",
            Group {
                title: "starting anything",
                why: "a tool runs in the worker itself and needs neither programs nor threads",
                attacks: &["C7"],
                calls: vec![("execve execveat clone clone3 fork vfork memfd_create ptrace", DENY)],
            },
        ),
        Threads::OfItsOwn => (
            "filter of in-process tools that search",
            Group {
                title: "starting anything but threads",
                why: "a search has a thread for each processor. clone3(2) passes its flags by a pointer: without it, C \
                      libraries fall back to clone(2)",
                attacks: &["C7"],
                calls: vec![
                    ("execve execveat fork vfork memfd_create ptrace", DENY),
                    ("clone3", ABSENT),
                    ("clone", threads_alone()),
                ],
            },
        ),
    };
    Filter {
        title: title.to_owned(),
        default: Verdict::Allow,
        groups: vec![
            starting,
            Group {
                title: "reaching anyone",
                why: "a tool talks to the worker's own pipes alone. tgkill and tkill stay: abort(3) raises its signal \
                      with one of them, and to others the base filter's bounds on signals hold",
                attacks: &["B7", "D2"],
                calls: vec![(
                    "socket socketpair connect bind listen kill rt_sigqueueinfo rt_tgsigqueueinfo \
                     pidfd_send_signal",
                    Action::Always(EPERM),
                )],
            },
            Group {
                title: "new machine code",
                why: "a parser's bug then has only the code that is mapped already",
                attacks: &[],
                calls: vec![
                    ("mmap mprotect pkey_mprotect", executable(2)),
                    (
                        "shmat",
                        Action::Args {
                            rules: vec![ArgRule { when: vec![has_all(2, SHM_EXEC)], then: EPERM }],
                            otherwise: Verdict::Allow,
                        },
                    ),
                ],
            },
        ],
    }
}

/// The filter of tools that only read: their zygote installs it once, and nobody answers for it. What it allows is what
/// reading takes, and what the zygote needs to fork a worker and the worker to narrow itself.
pub fn readers() -> Filter {
    let only_if = |conditions: Vec<Condition>| Action::Args {
        rules: vec![ArgRule { when: conditions, then: Verdict::Allow }],
        otherwise: EPERM,
    };
    let opening = |flags| Action::Args {
        rules: vec![ArgRule { when: vec![masked(flags, O_CHANGING, NONE)], then: Verdict::Allow }],
        otherwise: EPERM,
    };
    let own_memory = Action::Args {
        rules: vec![ArgRule { when: vec![has_all(2, PROT_EXEC)], then: EPERM }],
        otherwise: Verdict::Allow,
    };
    let mut forks_and_threads = threads_alone();
    if let Action::Args { rules, .. } = &mut forks_and_threads {
        rules.insert(0, ArgRule { when: vec![equal_64(0, SIGCHLD)], then: Verdict::Allow });
    }
    let group = |title, why, calls| Group { title, why, attacks: &[], calls };
    Filter {
        title: "filter of reading tools".to_owned(),
        default: Verdict::Errno(Errno::Enosys),
        groups: vec![
            Group {
                title: "opening",
                why: "for reading alone: Landlock holds that, and knows neither truncation before ABI 3 nor what a \
                      descriptor can do to a file's attributes",
                attacks: &["A12"],
                calls: vec![("open", opening(1)), ("openat", opening(2))],
            },
            group(
                "reading",
                "Landlock judged the opening",
                vec![(
                    "read pread64 readv preadv lseek close close_range fstat newfstatat stat lstat statx access \
                     faccessat readlink readlinkat getdents64 getcwd fadvise64 statfs fstatfs",
                    ALLOW,
                )],
            ),
            group(
                "descriptor flags",
                "the commands that name a process to be signalled are not among them",
                vec![(
                    "fcntl",
                    Action::Args {
                        rules: [F_GETFD, F_SETFD, F_GETFL, F_GET_SEALS, F_DUPFD_CLOEXEC]
                            .map(|command| ArgRule { when: vec![equal(1, command)], then: Verdict::Allow })
                            .into(),
                        otherwise: EPERM,
                    },
                )],
            ),
            group(
                "own memory",
                "without new machine code: a parser's bug then has only the code that is mapped already",
                vec![("mmap mprotect", own_memory), ("brk munmap mremap madvise", ALLOW)],
            ),
            group(
                "the worker's own channel",
                "no address can be used: the zygote makes pairs, and nothing else makes sockets",
                vec![
                    ("recvfrom recvmsg sendmsg poll ppoll", ALLOW),
                    ("socketpair", only_if(vec![equal(0, AF_UNIX), masked(1, SOCK_TYPE_MASK, SOCK_SEQPACKET)])),
                ],
            ),
            group(
                "narrowing oneself",
                "each worker does so before it reads what a model wrote",
                vec![
                    (
                        "landlock_create_ruleset landlock_add_rule landlock_restrict_self seccomp getrlimit setrlimit",
                        ALLOW,
                    ),
                    ("prlimit64", only_if(vec![equal(0, SELF)])),
                    ("prctl", only_if(vec![equal(0, PR_SET_NAME)])),
                ],
            ),
            Group {
                title: "forking workers",
                why: "as the zygote does it, or as a thread of a search is made, and in no other way; a filter in each \
                      worker takes the first away, and the second from all that do not search",
                attacks: &["C7", "D3"],
                calls: vec![("clone", forks_and_threads), ("wait4", ALLOW)],
            },
            group(
                "its workers' ends",
                "the zygote kills a worker whose time is up. Landlock bounds signals from ABI 6 on; a worker may send none, so \
                 that nothing which reads what a model wrote is left with this",
                vec![("kill", only_if(vec![equal(1, SIGKILL)]))],
            ),
            group(
                "own process, clocks, chance",
                "they reach nothing",
                vec![(
                    "exit exit_group getpid gettid getppid getuid geteuid getgid getegid futex rt_sigaction \
                     rt_sigprocmask rt_sigreturn sigaltstack clock_gettime clock_nanosleep nanosleep gettimeofday \
                     getrandom sched_yield sched_getaffinity restart_syscall rseq set_robust_list",
                    ALLOW,
                )],
            ),
        ],
    }
}

/// What each reader adds upon [`readers`]: it forks nothing, and kills nobody.
pub fn reader_delta() -> Filter {
    Filter {
        title: "filter of one reading worker".to_owned(),
        default: Verdict::Allow,
        groups: vec![Group {
            title: "what only the zygote does",
            why: "a worker that could fork would leave something behind",
            attacks: &["C7", "D2"],
            calls: vec![("clone kill", Action::Always(EPERM))],
        }],
    }
}

/// What a reader that searches adds instead: it makes threads, and else nothing.
pub fn searcher_delta() -> Filter {
    Filter {
        title: "filter of one searching worker".to_owned(),
        default: Verdict::Allow,
        groups: vec![Group {
            title: "what only the zygote does",
            why: "a worker that could fork would leave something behind; a thread ends with it",
            attacks: &["C7", "D2"],
            calls: vec![("clone", threads_alone()), ("kill", DENY)],
        }],
    }
}

const ALLOW: Action = Action::Always(Verdict::Allow);
const NOTIFY: Action = Action::Always(Verdict::Notify);
const DENY: Action = Action::Always(EPERM);
const ABSENT: Action = Action::Always(Verdict::Errno(Errno::Enosys));
const EPERM: Verdict = Verdict::Errno(Errno::Eperm);
const EACCES: Verdict = Verdict::Errno(Errno::Eacces);

/// What programs use that reaches nothing but what Landlock, the limits and the process itself bound.
fn ordinary() -> Vec<Group> {
    let allow = |title, why, names| Group { title, why, attacks: &[], calls: vec![(names, ALLOW)] };
    vec![
        allow(
            "open descriptors",
            "Landlock judged the opening, and the session starts without inherited descriptors",
            "read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek close \
             dup dup2 dup3 pipe pipe2 flock fsync fdatasync sync syncfs sync_file_range fadvise64 \
             readahead ftruncate sendfile splice tee copy_file_range cachestat",
        ),
        allow(
            "waiting and events",
            "they reach only descriptors that the process has",
            "poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait \
             epoll_pwait epoll_pwait2 eventfd eventfd2 signalfd signalfd4 timerfd_create \
             timerfd_settime timerfd_gettime inotify_rm_watch",
        ),
        allow(
            "names of files",
            "Landlock judges every opening, creation, removal and renaming, in whichever spelling",
            "stat lstat fstat newfstatat statx access faccessat faccessat2 readlink \
             readlinkat getdents getdents64 getcwd chdir fchdir statfs fstatfs \
             getxattr lgetxattr fgetxattr getxattrat listxattr llistxattr flistxattr listxattrat \
             name_to_handle_at",
        ),
        allow(
            "own memory",
            "a process may do with its own memory what it likes; compilers of every kind need executable pages",
            "brk mmap munmap mprotect mremap msync mincore madvise mlock mlock2 munlock mlockall \
             munlockall remap_file_pages pkey_mprotect pkey_alloc pkey_free \
             membarrier mseal map_shadow_stack mbind set_mempolicy get_mempolicy \
             set_mempolicy_home_node",
        ),
        allow(
            "own process and children",
            "a process may make others, end itself, and wait for those that it started",
            "fork vfork exit exit_group wait4 waitid getpid getppid gettid \
             getpgid setpgid getpgrp getsid setsid set_tid_address set_robust_list \
             get_robust_list futex futex_waitv futex_wake futex_wait futex_requeue rseq \
             restart_syscall arch_prctl getrandom uname sysinfo times getrusage getrlimit getcpu",
        ),
        allow(
            "own identity",
            "all capabilities are gone for good, so these only read, or swap ids that the process has",
            "getuid geteuid getgid getegid getgroups getresuid getresgid setuid setgid setreuid \
             setregid setresuid setresgid setfsuid setfsgid setgroups capget capset",
        ),
        allow(
            "restricting oneself",
            "workers narrow themselves under this filter, and programs may sandbox their own children",
            "seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self \
             lsm_get_self_attr lsm_list_modules",
        ),
        allow(
            "own signals",
            "they handle, wait for or raise signals of the process itself",
            "rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend \
             sigaltstack pause alarm getitimer setitimer",
        ),
        allow(
            "reading clocks, timers",
            "setting a clock is another matter, see the host's state",
            "nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time timer_create \
             timer_settime timer_gettime timer_getoverrun timer_delete",
        ),
        allow(
            "reading the scheduler",
            "runtimes size their thread pools by it",
            "sched_yield getpriority sched_getparam sched_getscheduler sched_get_priority_max \
             sched_get_priority_min sched_rr_get_interval sched_getaffinity sched_getattr \
             ioprio_get",
        ),
        allow(
            "probes",
            "the kernel's own trampolines make these two when an administrator traces the program; anyone else's \
             call raises SIGILL (Linux 6.11 and 6.18)",
            "uretprobe uprobe",
        ),
    ]
}

fn starting(starter: Starter) -> Group {
    let (why, action) = match starter {
        Starter::Kernel => ("programs start programs; Landlock's execute right says which", ALLOW),
        Starter::Broker => (
            "programs start programs; Landlock's execute right says which files. The broker is asked as well: about arguments, \
             about the dynamic loader, which must be executable to be an interpreter, and about files in memory, which no \
             rule of Landlock's names: it makes those itself, so that they cannot be executed",
            NOTIFY,
        ),
    };
    Group {
        title: "starting programs",
        why,
        attacks: &["C2", "C6", "C7", "C8", "C9", "C14"],
        calls: vec![("execve execveat memfd_create", action)],
    }
}

fn metadata() -> Group {
    Group {
        title: "metadata of files",
        why: "Landlock has no right for these, so without the broker modes, owners, times and attributes could be \
              changed on paths that are granted for reading",
        attacks: &["A12"],
        calls: vec![(
            "chmod fchmod fchmodat chown fchown lchown fchownat utime utimes utimensat futimesat \
             setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr",
            NOTIFY,
        )],
    }
}

fn sockets() -> Group {
    let kind = |domain, kind, protocol| ArgRule {
        when: vec![equal(0, domain), masked(1, SOCK_TYPE_MASK, kind), protocol],
        then: Verdict::Notify,
    };
    let family = |domain| ArgRule { when: vec![equal(0, domain)], then: Verdict::Errno(Errno::Eacces) };
    let mut rules = Vec::new();
    for stream in [SOCK_STREAM, SOCK_SEQPACKET] {
        // unix(7) takes 0 and PF_UNIX (1) for the protocol, and both mean the same socket.
        rules.push(kind(AF_UNIX, stream, masked(2, NOT_PF_UNIX, NONE)));
    }
    for domain in [AF_INET, AF_INET6] {
        for protocol in [IPPROTO_IP, IPPROTO_TCP] {
            rules.push(kind(domain, SOCK_STREAM, equal(2, protocol)));
        }
    }
    rules.extend([AF_UNIX, AF_INET, AF_INET6].map(family));
    let pair = |kind| ArgRule { when: vec![equal(0, AF_UNIX), masked(1, SOCK_TYPE_MASK, kind)], then: Verdict::Allow };
    Group {
        title: "making sockets",
        why: "stream sockets are made by the broker, which keeps a duplicate, so that it can connect them later. \
              Landlock knows TCP alone: MPTCP, SCTP, UDP, raw and every other family would pass it by. A datagram \
              socket names its peer in each message, behind a pointer, so that even one of a pair reaches any \
              pathname socket",
        attacks: &["B1", "B3", "B4", "B7", "B8"],
        calls: vec![
            ("socket", Action::Args { rules, otherwise: Verdict::Errno(Errno::Eafnosupport) }),
            (
                "socketpair",
                Action::Args {
                    rules: vec![pair(SOCK_STREAM), pair(SOCK_SEQPACKET)],
                    otherwise: Verdict::Errno(Errno::Eacces),
                },
            ),
        ],
    }
}

fn addresses() -> Group {
    Group {
        title: "addresses of sockets",
        why: "an address lies behind a pointer: the broker decides on its own copy and acts itself. listen without \
              bind takes a port of its own and is not covered by Landlock",
        attacks: &["B5", "B7", "B18"],
        calls: vec![
            ("connect bind listen", NOTIFY),
            (
                "accept accept4 getsockname getpeername shutdown getsockopt recvfrom recvmsg \
                 recvmmsg",
                ALLOW,
            ),
        ],
    }
}

fn messages() -> Group {
    let unless_fast_open = |arg| Action::Args {
        rules: vec![ArgRule { when: vec![has_all(arg, MSG_FASTOPEN)], then: Verdict::Errno(Errno::Eopnotsupp) }],
        otherwise: Verdict::Allow,
    };
    Group {
        title: "sending",
        why: "MSG_FASTOPEN connects without connect(2), and Landlock does not see it. Otherwise an address is \
              ignored or refused, since no datagram socket can exist",
        attacks: &["B2", "B18"],
        calls: vec![("sendto sendmmsg", unless_fast_open(3)), ("sendmsg", unless_fast_open(2))],
    }
}

fn socket_options() -> Group {
    let option = |level, option, then| ArgRule { when: vec![equal(1, level), equal(2, option)], then };
    let pretend_reuse = option(SOL_SOCKET, SO_REUSEPORT, Verdict::Errno(Errno::Success));
    let refused = [(SOL_TCP, TCP_FASTOPEN_CONNECT), (SOL_TCP, TCP_ULP), (SOL_SOCKET, SO_BINDTODEVICE)];
    let refused = refused.map(|(level, value)| option(level, value, Verdict::Errno(Errno::Eperm)));
    // Whole rows of numbers, of which the rest does nothing, or is the privileged's: a filter has no room for each.
    let row = |(level, but_low_bits, first)| ArgRule {
        when: vec![equal(1, level), masked(2, but_low_bits, first)],
        then: Verdict::Allow,
    };
    let each = OPTIONS.iter().flat_map(|(level, options)| options.iter().map(|value| (*level, *value)));
    let each = each.map(|(level, value)| option(level, value, Verdict::Allow));
    let rules = [pretend_reuse].into_iter().chain(refused).chain(OPTION_ROWS.map(row)).chain(each);
    Group {
        title: "options of sockets",
        why: "those that are named tune a connection. Others send it elsewhere than its address says: SO_BINDTODEVICE and \
              IPV6_RTHDR lead a connection to loopback out of the host, TCP_FASTOPEN_CONNECT turns a later write into a \
              connect, TCP_ULP replaces the protocol underneath; SO_ZEROCOPY pins memory that nobody counts. SO_REUSEPORT would let a call share the port of a \
              stranger's server of the same user, and take its connections: it is said to be set, and is not",
        attacks: &["B2", "B5"],
        calls: vec![(
            "setsockopt",
            Action::Args { rules: rules.collect(), otherwise: Verdict::Errno(Errno::Enoprotoopt) },
        )],
    }
}

fn ioctls(landlock_abi: u8) -> Group {
    let owners = if landlock_abi < 6 { EPERM } else { Verdict::Allow };
    Group {
        title: "device and file controls",
        why: "a descriptor that was opened for reading is enough for many of them, which neither Landlock nor a mode then \
              judges: those of btrfs make trees in a read-only directory, others set attributes or reserve space, TIOCSTI and \
              TIOCLINUX type into a terminal. So what is not listed is answered as by a file that has no such control. \
              TIOCGPTPEER opens the other end of a pseudo-terminal: no rule names those of a call, so the broker opens it for \
              who holds the master",
        attacks: &["A12", "D5", "D6", "D11"],
        calls: vec![(
            "ioctl",
            Action::Args {
                rules: by_command(
                    1,
                    &[
                        (IOCTLS, Verdict::Allow),
                        (OWNER_IOCTLS, owners),
                        (REFUSED_IOCTLS, EPERM),
                        (&[TIOCGPTPEER], Verdict::Notify),
                    ],
                ),
                otherwise: Verdict::Errno(Errno::Enotty),
            },
        )],
    }
}

/// A verdict for each number of a list.
fn by_command(arg: u8, lists: &[(&[Operand], Verdict)]) -> Vec<ArgRule> {
    let each = lists.iter().flat_map(|(list, then)| list.iter().map(|command| (*command, *then)));
    each.map(|(command, then)| ArgRule { when: vec![equal(arg, command)], then }).collect()
}

fn ipc() -> Group {
    Group {
        title: "System V and POSIX IPC",
        why: "keys and ids are shared by all that is in one IPC namespace, other calls of the session at least: the broker \
              keeps each call to its own. POSIX queues are refused: Landlock has no rule that could name one, so the \
              broker could make but not open it",
        attacks: &[],
        calls: vec![
            ("shmget shmat shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl", NOTIFY),
            ("mq_open mq_unlink", Action::Always(EACCES)),
            ("shmdt mq_timedsend mq_timedreceive mq_notify mq_getsetattr", ALLOW),
        ],
    }
}

/// Opening, linking and removing names.
///
/// Without a mount tree /dev/shm is the whole host's, so the broker stands a private directory for it. shm_open(3) opens
/// with O_NOFOLLOW and O_CLOEXEC, as glibc and musl have it; sem_open(3) with O_NOFOLLOW and O_RDWR, and it creates with
/// O_EXCL, then links and unlinks. What walks trees opens for reading with O_NOFOLLOW too, but with O_DIRECTORY or O_NOCTTY
/// (grep, tar) or without O_CLOEXEC (cp), and is not asked about.
///
/// Where names are kept, the broker is asked about every opening that could change something, told by its flags, and about
/// every other call that changes names: reading is not asked about, unless single files are granted in directories that may
/// not be read. It is told of umask(2) because it makes files as the caller would.
fn names(Variant { strength, landlock_abi, writer, .. }: Variant) -> Group {
    // A read-only mount stops truncation as well.
    let no_truncate_right = strength == Strength::Landlock && landlock_abi < 3;
    let opening = |flags: u8| {
        let mut rules = set_id(flags + 1, |bit| vec![has_all(flags, O_CREAT), bit]);
        rules.extend(set_id(flags + 1, |bit| vec![has_all(flags, O_TMPFILE), bit]));
        if no_truncate_right {
            // First: what the broker leaves to Landlock would be truncated.
            rules.push(ArgRule { when: vec![masked(flags, O_ACCMODE_O_TRUNC, O_TRUNC)], then: EACCES });
        }
        if writer.is_broker() {
            for bit in [O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_TMPFILE] {
                rules.push(ArgRule { when: vec![has_all(flags, bit)], then: Verdict::Notify });
            }
        }
        if strength == Strength::Landlock {
            for (mask, bits) in [(SHM_OPEN_MASK, O_NOFOLLOW_O_CLOEXEC), (SEM_OPEN_MASK, O_NOFOLLOW_O_RDWR)] {
                rules.push(ArgRule { when: vec![masked(flags, mask, bits)], then: Verdict::Notify });
            }
            rules.push(ArgRule { when: vec![has_all(flags, O_CREAT_O_EXCL)], then: Verdict::Notify });
        }
        let reading = if writer == Writer::BrokerReadsToo { Verdict::Notify } else { Verdict::Allow };
        Action::Args { rules, otherwise: reading }
    };
    let (changing, change) = if writer.is_broker() { (NOTIFY, Verdict::Notify) } else { (ALLOW, Verdict::Allow) };
    let making = |mode: u8| Action::Args { rules: set_id(mode, |bit| vec![bit]), otherwise: change };
    let linking = if strength == Strength::Landlock { NOTIFY } else { changing.clone() };
    let truncating = if no_truncate_right { NOTIFY } else { changing.clone() };
    Group {
        title: "making, opening, linking and removing names",
        why: "a set-user-ID program that a call makes would lend its owner's identity, perhaps root's, to whoever runs \
              it. Landlock before ABI 3 has no truncate right: the broker truncates by name, and O_TRUNC needs an \
              opening for writing. Without a mount tree, names in /dev/shm are the broker's. Where names are kept in a \
              tree that may be written, the broker is its one writer, because Landlock cannot take a name out of a tree",
        attacks: &["A1", "A3", "A4", "A12", "A15", "A18", "A19"],
        calls: vec![
            ("open", opening(1)),
            ("openat", opening(2)),
            ("creat mknod", making(1)),
            ("mknodat", making(2)),
            ("truncate", truncating),
            ("link linkat unlink unlinkat", linking),
            ("mkdir mkdirat rmdir rename renameat renameat2 symlink symlinkat umask", changing),
        ],
    }
}

fn watching(strength: Strength) -> Group {
    let (why, action) = match strength {
        Strength::Landlock => (
            "inotify tells every name that is made, opened or removed in a directory that file modes let be read; Landlock \
             has no right for it. The broker owns the descriptors, and watches only what the call may read",
            NOTIFY,
        ),
        Strength::Namespaces => ("what was not granted is not there to be watched", ALLOW),
    };
    Group {
        title: "watching files",
        why,
        attacks: &["D1"],
        calls: vec![("inotify_init inotify_init1 inotify_add_watch", action)],
    }
}

/// Refuses both set-id bits of a mode.
fn set_id(mode: u8, when: impl Fn(Condition) -> Vec<Condition>) -> Vec<ArgRule> {
    [S_ISUID, S_ISGID].map(|bit| ArgRule { when: when(has_all(mode, bit)), then: EPERM }).into()
}

/// A limit of 1 byte is how core(5) says that no program is to get a process's memory through a pipe; at 0 it gets all of it.
/// Nothing would be gained by another value, for no core fits into a byte, so that setting one is said to be done.
fn limits_of_processes() -> Group {
    let core = |mut conditions: Vec<Condition>, then| {
        conditions.push(equal(1, RLIMIT_CORE));
        ArgRule { when: conditions, then }
    };
    let reads = equal_64(2, NULL);
    let (pretended, own) = (Verdict::Errno(Errno::Success), equal(0, SELF));
    Group {
        title: "limits of processes",
        why: "a core dump is a copy of memory left behind, and what the limit for it must be to prevent one, programs set \
              otherwise: to 0, which a pipe's reader is not bound by. 0 is the caller's own number; other numbers are of any \
              process of the same user, and checked by the broker",
        attacks: &["D1", "D8"],
        calls: vec![
            (
                "setrlimit",
                Action::Args {
                    rules: vec![ArgRule { when: vec![equal(0, RLIMIT_CORE)], then: pretended }],
                    otherwise: Verdict::Allow,
                },
            ),
            (
                "prlimit64",
                Action::Args {
                    rules: vec![
                        ArgRule { when: vec![own, reads], then: Verdict::Allow },
                        ArgRule { when: vec![reads], then: Verdict::Notify },
                        core(vec![own, equal_64(3, NULL)], pretended),
                        core(vec![], EPERM),
                        ArgRule { when: vec![own], then: Verdict::Allow },
                    ],
                    otherwise: Verdict::Notify,
                },
            ),
        ],
    }
}

fn other_processes(landlock_abi: u8) -> [Group; 4] {
    let oneself = |conditions: Vec<Condition>| Action::Args {
        rules: vec![ArgRule { when: conditions, then: Verdict::Allow }],
        otherwise: Verdict::Notify,
    };
    let scheduling = Group {
        title: "scheduling of processes",
        why: "they take the id of any process of the same user that is in the PID namespace, other calls of the session at \
              least. 0 is the caller; other ids are checked by the broker",
        attacks: &["D1"],
        calls: vec![
            ("setpriority", oneself(vec![equal(0, PRIO_PROCESS), equal(1, SELF)])),
            ("ioprio_set", oneself(vec![equal(0, IOPRIO_WHO_PROCESS), equal(1, SELF)])),
            ("sched_setaffinity sched_setscheduler sched_setparam sched_setattr", oneself(vec![equal(0, SELF)])),
            ("pidfd_open", NOTIFY),
        ],
    };
    let unscoped = landlock_abi < 6;
    let (why, signal, owners) = if unscoped {
        ("Landlock before ABI 6 has no signal scope, so the broker checks whom a signal is for", NOTIFY, EPERM)
    } else {
        ("Landlock's signal scope bounds them", ALLOW, Verdict::Allow)
    };
    let rules = by_command(1, &[(FCNTLS, Verdict::Allow), (OWNER_FCNTLS, owners), (REFUSED_FCNTLS, EPERM)]);
    let fcntl = Action::Args { rules, otherwise: Verdict::Errno(Errno::Einval) };
    let signals = Group {
        title: "signals to processes",
        why,
        attacks: &["D2"],
        calls: vec![("kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal", signal)],
    };
    let owners = Group {
        title: "descriptor flags and locks",
        why: "F_SETOWN and F_SETSIG have the kernel send a signal of one's choice to anyone; the scope covers that \
              only where it exists. Who holds a lease makes everybody else who opens the file wait, up to 45 s each \
              time: the broker, and people outside. F_NOTIFY tells what others do in a directory, and a write hint is set \
              on a file that was opened for reading. What is not listed is answered as by a kernel without it",
        attacks: &["A12", "D1", "D2"],
        calls: vec![("fcntl", fcntl)],
    };
    [limits_of_processes(), scheduling, signals, owners]
}

fn memory_of_others() -> Group {
    Group {
        title: "memory and descriptors of other processes",
        why: "the broker, the zygote and sibling calls run as the same user. Whoever can write another's memory can \
              also change an argument vector after it was judged",
        attacks: &["D1", "C14"],
        calls: vec![(
            "ptrace process_vm_readv process_vm_writev process_madvise process_mrelease \
             pidfd_getfd",
            DENY,
        )],
    }
}

fn reserved_space() -> Group {
    let gives_back = |bit| ArgRule { when: vec![has_all(1, bit)], then: Verdict::Allow };
    Group {
        title: "space that is taken without writing",
        why: "what is reserved is in no process's count of bytes written. As on a file system that cannot, C libraries write \
              zeros instead (posix_fallocate), which are counted, and programs do without; giving space back is another matter",
        attacks: &["D11"],
        calls: vec![(
            "fallocate",
            Action::Args {
                rules: vec![gives_back(FALLOC_FL_PUNCH_HOLE), gives_back(FALLOC_FL_COLLAPSE_RANGE)],
                otherwise: Verdict::Errno(Errno::Eopnotsupp),
            },
        )],
    }
}

fn uncounted_memory() -> Group {
    Group {
        title: "memory that nobody's count has",
        why: "what the init counts is what processes map and what their descriptors hold. Pages that a pipe or a secret file keeps are \
              in neither, and a thread's own table of descriptors is told apart from its process's by nobody. The init has to \
              know which processes share their memory, and is under this filter: that alone may be asked",
        attacks: &["D11"],
        calls: vec![
            ("vmsplice memfd_secret", ABSENT),
            (
                "close_range",
                Action::Args {
                    rules: vec![ArgRule { when: vec![has_all(2, CLOSE_RANGE_UNSHARE)], then: EPERM }],
                    otherwise: Verdict::Allow,
                },
            ),
            (
                "kcmp",
                Action::Args {
                    rules: vec![ArgRule { when: vec![equal(2, KCMP_VM)], then: Verdict::Allow }],
                    otherwise: EPERM,
                },
            ),
        ],
    }
}

fn namespaces() -> Group {
    Group {
        title: "entering namespaces",
        why: "a new user namespace gives back every capability, and the kernel code behind them",
        attacks: &["D3"],
        calls: vec![("unshare setns", DENY)],
    }
}

fn mounts() -> Group {
    Group {
        title: "mounts and roots",
        why: "the tree that the rules were made for must stay what it is; handles open files without a name",
        attacks: &["A5", "D3"],
        calls: vec![(
            "mount umount2 pivot_root chroot move_mount open_tree fsopen fsconfig fsmount fspick \
             mount_setattr open_by_handle_at",
            DENY,
        )],
    }
}

fn kernel_surface() -> Group {
    Group {
        title: "kernel surface that tools do not need",
        why: "each has brought down kernels or sandboxes, or sees beyond the process: programs in the kernel, faults \
              held open for races, keyrings shared by the user's sessions, segments of the x86 descriptor table",
        attacks: &["D4"],
        calls: vec![(
            "bpf perf_event_open userfaultfd add_key request_key keyctl fanotify_init \
             fanotify_mark modify_ldt lookup_dcookie nfsservctl move_pages migrate_pages iopl \
             ioperm",
            DENY,
        )],
    }
}

fn host_state() -> Group {
    Group {
        title: "the host's state",
        why: "no tool call is about the machine itself; most of these need a capability too",
        attacks: &[],
        calls: vec![(
            "init_module finit_module delete_module create_module get_kernel_syms query_module \
             kexec_load kexec_file_load reboot swapon swapoff acct quotactl quotactl_fd syslog \
             settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname vhangup",
            DENY,
        )],
    }
}

fn execution_domains() -> Group {
    let known = [PER_LINUX, PER_QUERY, ADDR_NO_RANDOMIZE, PER_LINUX32, UNAME26, UNAME26_LINUX32];
    Group {
        title: "execution domains",
        why: "debuggers and builds switch off address randomization or ask for a 32-bit uname; the rest, such as \
              READ_IMPLIES_EXEC and MMAP_PAGE_ZERO, only weakens programs",
        attacks: &[],
        calls: vec![(
            "personality",
            Action::Args {
                rules: known.map(|persona| ArgRule { when: vec![equal(0, persona)], then: Verdict::Allow }).into(),
                otherwise: EPERM,
            },
        )],
    }
}

fn clones() -> Group {
    Group {
        title: "threads and children by clone",
        why: "no new namespaces; no child that shares its working directory with its parent, who could move it \
              after the child's exec was judged; no child that escapes tracing; no thread with descriptors of its own, which \
              nobody would count. The kernel takes the low 32 bits",
        attacks: &["D3", "C14", "D11"],
        calls: vec![(
            "clone",
            Action::Args {
                rules: vec![
                    ArgRule { when: vec![masked(0, CLONE_FS_CLONE_THREAD, CLONE_FS)], then: EPERM },
                    ArgRule { when: vec![masked(0, CLONE_FILES_CLONE_THREAD, CLONE_THREAD)], then: EPERM },
                    ArgRule { when: vec![masked(0, CLONE_REFUSED, NONE)], then: Verdict::Allow },
                ],
                otherwise: EPERM,
            },
        )],
    }
}

fn process_controls() -> Group {
    let mut rules = vec![ArgRule {
        when: vec![equal(0, PR_SET_DUMPABLE), equal_64(1, SUID_DUMP_DISABLE)],
        then: Verdict::Errno(Errno::Success),
    }];
    rules.extend(by_command(0, &[(PRCTLS, Verdict::Allow), (&[PR_SET_MM], EPERM)]));
    Group {
        title: "process controls",
        why: "the broker cannot look at a process that is not dumpable, so that asking for this is answered with \
              success and not done; PR_SET_MM rewrites what /proc shows of a command line. What is not listed is answered as by \
              a kernel without it: PR_SCHED_CORE keeps others off a processor, PR_SET_VMA and PR_FUTEX_HASH take memory that \
              nobody counts",
        attacks: &["C14", "D11"],
        calls: vec![("prctl", Action::Args { rules, otherwise: Verdict::Errno(Errno::Einval) })],
    }
}

fn unreadable() -> Group {
    Group {
        title: "calls that a filter cannot read",
        why: "clone3's flags and openat2's mode lie behind a pointer; io_uring makes sockets and opens files without a system call of \
              its own. As on a kernel without them, programs fall back",
        attacks: &["B9", "D3"],
        calls: vec![("clone3 openat2 io_uring_setup io_uring_enter io_uring_register", ABSENT)],
    }
}

fn native_aio() -> Group {
    Group {
        title: "the kernel's own asynchronous reading and writing",
        why: "the events that all processes of a host may have waiting are bounded together (fs.aio-max-nr, 65,536), and one \
              process can take them all. No filter counts across calls of io_setup, and what ends with a process nobody is \
              told of. As on a kernel without it, databases read and write in threads; aio(7) of C libraries always has",
        attacks: &["D11"],
        calls: vec![("io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents", ABSENT)],
    }
}

fn newer() -> Group {
    Group {
        title: "newer twins of calls above",
        why: "the broker knows the old ones, and C libraries fall back to them; the rest tells of mounts or changes \
              security attributes",
        attacks: &["A12", "D3"],
        calls: vec![(
            "fchmodat2 setxattrat removexattrat file_getattr file_setattr open_tree_attr \
             statmount listmount lsm_set_self_attr",
            ABSENT,
        )],
    }
}

fn obsolete() -> Group {
    Group {
        title: "obsolete calls",
        why: "kernels no longer have them, or only as a stub",
        attacks: &[],
        calls: vec![(
            "uselib ustat sysfs _sysctl getpmsg putpmsg afs_syscall tuxcall security \
             set_thread_area get_thread_area epoll_ctl_old epoll_wait_old vserver",
            ABSENT,
        )],
    }
}

fn equal(arg: u8, value: Operand) -> Condition {
    Condition { arg, width: Width::Low32, mask: None, value }
}

fn equal_64(arg: u8, value: Operand) -> Condition {
    Condition { arg, width: Width::Full64, mask: None, value }
}

fn masked(arg: u8, mask: Operand, value: Operand) -> Condition {
    Condition { arg, width: Width::Low32, mask: Some(mask), value }
}

fn has_all(arg: u8, bits: Operand) -> Condition {
    masked(arg, bits, bits)
}

const NONE: Operand = Operand::new("0", 0);
const SELF: Operand = Operand::new("0 (the caller)", 0);
const NULL: Operand = Operand::new("NULL", 0);
const RLIMIT_CORE: Operand = Operand::new("RLIMIT_CORE", 4);

const AF_UNIX: Operand = Operand::new("AF_UNIX", 1);
const AF_INET: Operand = Operand::new("AF_INET", 2);
const AF_INET6: Operand = Operand::new("AF_INET6", 10);
/// The rest of the `type` argument is SOCK_CLOEXEC and SOCK_NONBLOCK.
const SOCK_TYPE_MASK: Operand = Operand::new("SOCK_TYPE_MASK", 0xf);
const SOCK_STREAM: Operand = Operand::new("SOCK_STREAM", 1);
const SOCK_SEQPACKET: Operand = Operand::new("SOCK_SEQPACKET", 5);
const NOT_PF_UNIX: Operand = Operand::new("~PF_UNIX", 0xffff_fffe);
const IPPROTO_IP: Operand = Operand::new("0", 0);
const IPPROTO_TCP: Operand = Operand::new("IPPROTO_TCP", 6);
const MSG_FASTOPEN: Operand = Operand::new("MSG_FASTOPEN", 0x2000_0000);
const SOL_TCP: Operand = Operand::new("SOL_TCP", 6);
const TCP_FASTOPEN_CONNECT: Operand = Operand::new("TCP_FASTOPEN_CONNECT", 30);
const SOL_SOCKET: Operand = Operand::new("SOL_SOCKET", 1);
const SOL_IP: Operand = Operand::new("SOL_IP", 0);
const SOL_IPV6: Operand = Operand::new("SOL_IPV6", 41);
const SO_REUSEPORT: Operand = Operand::new("SO_REUSEPORT", 15);
const SO_BINDTODEVICE: Operand = Operand::new("SO_BINDTODEVICE", 25);
/// Options that change how a connection is made, kept alive and read, and nothing about where it leads.
const OPTIONS: &[(Operand, &[Operand])] = &[
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
/// The same, by level, all bits of a number but the lowest, and what these must equal.
const OPTION_ROWS: [(Operand, Operand, Operand); 6] = [
    // SO_DEBUG to SO_BSDCOMPAT: reuse of addresses, sizes of buffers, keep-alive, lingering, priority.
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
const TCP_ULP: Operand = Operand::new("TCP_ULP", 31);

// aarch64 kept the numbers of 32-bit ARM for O_NOFOLLOW and O_DIRECTORY.
const O_NOFOLLOW_O_CLOEXEC: Operand = Operand::by_arch("(O_NOFOLLOW|O_CLOEXEC)", 0xa_0000, 0x8_8000);
const SHM_OPEN_MASK: Operand = Operand::by_arch("(O_NOFOLLOW|O_CLOEXEC|O_DIRECTORY|O_NOCTTY)", 0xb_0100, 0x8_c100);
const O_NOFOLLOW_O_RDWR: Operand = Operand::by_arch("(O_NOFOLLOW|O_RDWR)", 0x2_0002, 0x8002);
const SEM_OPEN_MASK: Operand = Operand::by_arch("(O_NOFOLLOW|O_RDWR|O_DIRECTORY)", 0x3_0002, 0xc002);
const O_WRONLY: Operand = Operand::new("O_WRONLY", 1);
const O_RDWR: Operand = Operand::new("O_RDWR", 2);
const O_CREAT: Operand = Operand::new("O_CREAT", 0x40);
const O_TMPFILE: Operand = Operand::new("__O_TMPFILE", 0x40_0000);
const O_TRUNC: Operand = Operand::new("O_TRUNC", 0x200);
const O_ACCMODE_O_TRUNC: Operand = Operand::new("(O_ACCMODE|O_TRUNC)", 0x203);
const S_ISUID: Operand = Operand::new("S_ISUID", 0o4000);
const S_ISGID: Operand = Operand::new("S_ISGID", 0o2000);
const O_CREAT_O_EXCL: Operand = Operand::new("(O_CREAT|O_EXCL)", 0xc0);

const PRIO_PROCESS: Operand = Operand::new("PRIO_PROCESS", 0);
const IOPRIO_WHO_PROCESS: Operand = Operand::new("IOPRIO_WHO_PROCESS", 1);

const F_DUPFD_CLOEXEC: Operand = Operand::new("F_DUPFD_CLOEXEC", 1030);
const F_GETFD: Operand = Operand::new("F_GETFD", 1);
const F_SETFD: Operand = Operand::new("F_SETFD", 2);
const F_GETFL: Operand = Operand::new("F_GETFL", 3);
const F_GET_SEALS: Operand = Operand::new("F_GET_SEALS", 1034);
const SIGCHLD: Operand = Operand::new("SIGCHLD", 17);
const SIGKILL: Operand = Operand::new("SIGKILL", 9);
const PR_SET_NAME: Operand = Operand::new("PR_SET_NAME", 15);
/// Any access but reading, `O_CREAT`, `O_TRUNC` and `__O_TMPFILE`.
const O_CHANGING: Operand = Operand::new("(O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|__O_TMPFILE)", 0x40_0243);

const PER_LINUX: Operand = Operand::new("PER_LINUX", 0);
/// Changes nothing and returns the current one.
const PER_QUERY: Operand = Operand::new("0xffffffff", 0xffff_ffff);
const ADDR_NO_RANDOMIZE: Operand = Operand::new("ADDR_NO_RANDOMIZE", 0x4_0000);
const PER_LINUX32: Operand = Operand::new("PER_LINUX32", 8);
const UNAME26: Operand = Operand::new("UNAME26", 0x2_0000);
const UNAME26_LINUX32: Operand = Operand::new("(UNAME26|PER_LINUX32)", 0x2_0008);

/// What glibc and musl make a thread with: VM, FS, FILES, SIGHAND, THREAD, SYSVSEM, SETTLS, PARENT_SETTID, CHILD_CLEARTID.
const CLONE_THREAD_FLAGS: Operand = Operand::new("(a thread of this process)", 0x3d_0f00);
/// musl adds CLONE_DETACHED, which the kernel ignores.
const NOT_CLONE_DETACHED: Operand = Operand::new("~CLONE_DETACHED", !0x40_0000);
const CLONE_THREAD: Operand = Operand::new("CLONE_THREAD", 0x1_0000);
const CLONE_FILES_CLONE_THREAD: Operand = Operand::new("(CLONE_FILES|CLONE_THREAD)", 0x1_0400);
const FALLOC_FL_PUNCH_HOLE: Operand = Operand::new("FALLOC_FL_PUNCH_HOLE", 2);
const FALLOC_FL_COLLAPSE_RANGE: Operand = Operand::new("FALLOC_FL_COLLAPSE_RANGE", 8);
const CLOSE_RANGE_UNSHARE: Operand = Operand::new("CLOSE_RANGE_UNSHARE", 2);
const KCMP_VM: Operand = Operand::new("KCMP_VM", 1);
const CLONE_FS: Operand = Operand::new("CLONE_FS", 0x200);
const CLONE_FS_CLONE_THREAD: Operand = Operand::new("(CLONE_FS|CLONE_THREAD)", 0x1_0200);
/// NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET; CLONE_UNTRACED; and NEWTIME, whose bit clone(2) reads as
/// part of a signal number that does not exist.
const CLONE_REFUSED: Operand = Operand::new("(CLONE_NEW*|CLONE_UNTRACED)", 0x7e02_0000 | 0x80_0000 | 0x80);
const PR_SET_DUMPABLE: Operand = Operand::new("PR_SET_DUMPABLE", 4);
const SUID_DUMP_DISABLE: Operand = Operand::new("0", 0);
const PROT_EXEC: Operand = Operand::new("PROT_EXEC", 4);
const SHM_EXEC: Operand = Operand::new("SHM_EXEC", 0x8000);

/// One line per verdict and rule, for `policy explain`.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        writeln!(f, "  another architecture, or x32: kill the process")?;
        writeln!(f, "  a call that is not named: {}", self.default)?;
        for group in &self.groups {
            write!(f, "\n{}", group.title)?;
            if !group.attacks.is_empty() {
                write!(f, " [{}]", group.attacks.join(" "))?;
            }
            writeln!(f, "\n  # {}", group.why)?;
            for (names, action) in &group.calls {
                match action {
                    Action::Always(verdict) => writeln!(f, "  {verdict}: {names}")?,
                    Action::Args { rules, otherwise } => {
                        writeln!(f, "  by arguments: {names}")?;
                        for rule in rules {
                            writeln!(f, "    {rule}")?;
                        }
                        writeln!(f, "    otherwise: {otherwise}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allow => f.write_str("allow"),
            Self::Notify => f.write_str("ask the broker"),
            Self::Errno(errno) => f.write_str(errno.name()),
        }
    }
}

impl fmt::Display for ArgRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, condition) in self.when.iter().enumerate() {
            let joint = if index == 0 { "" } else { " and " };
            write!(f, "{joint}{condition}")?;
        }
        write!(f, ": {}", self.then)
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "arg{}", self.arg)?;
        if self.width == Width::Full64 {
            write!(f, " (64 bits)")?;
        }
        match self.mask {
            Some(mask) => write!(f, " & {} == {}", mask.name, self.value.name),
            None => write!(f, " == {}", self.value.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn variants() -> impl Iterator<Item = Variant> {
        [Strength::Landlock, Strength::Namespaces]
            .into_iter()
            .flat_map(|strength| {
                [Writer::Kernel, Writer::Broker, Writer::BrokerReadsToo].map(|writer| (strength, writer))
            })
            .flat_map(|(strength, writer)| {
                [Starter::Kernel, Starter::Broker].map(|starter| (strength, writer, starter))
            })
            .flat_map(|(strength, writer, starter)| {
                (1..=7).map(move |landlock_abi| Variant { strength, landlock_abi, writer, starter })
            })
    }

    fn every_filter() -> impl Iterator<Item = Filter> {
        variants().map(base).chain([tool_delta(), search_delta(), readers(), reader_delta(), searcher_delta()])
    }

    #[test]
    fn printed_base_filter_is_pinned() {
        let (writer, starter) = (Writer::Kernel, Starter::Kernel);
        let printed = |strength, landlock_abi| base(Variant { strength, landlock_abi, writer, starter }).to_string();
        let kept = Variant { strength: Strength::Landlock, landlock_abi: 7, writer: Writer::Broker, starter };
        insta::assert_snapshot!("base_kept", base(kept).to_string());
        insta::assert_snapshot!("base_landlock_abi_7", printed(Strength::Landlock, 7));
        insta::assert_snapshot!("base_landlock_abi_5", printed(Strength::Landlock, 5));
        insta::assert_snapshot!("base_namespaces_abi_7", printed(Strength::Namespaces, 7));
    }

    /// Only sessions that bound their programs are asked about them.
    #[test]
    fn programs_are_asked_about_where_they_are_bounded() {
        for variant in variants() {
            let wanted = if variant.starter == Starter::Broker { NOTIFY } else { ALLOW };
            let filter = base(variant);
            let of = |wanted| filter.calls().find(|(name, _)| *name == wanted).map(|(_, action)| action.clone());
            assert!(["execve", "execveat", "memfd_create"].iter().all(|name| of(*name) == Some(wanted.clone())));
        }
    }

    #[test]
    fn printed_tool_filters_are_pinned() {
        insta::assert_snapshot!("tool_delta", tool_delta().to_string());
        insta::assert_snapshot!("readers", readers().to_string());
        insta::assert_snapshot!("reader_delta", reader_delta().to_string());
        insta::assert_snapshot!("search_delta", search_delta().to_string());
        insta::assert_snapshot!("searcher_delta", searcher_delta().to_string());
    }

    #[test]
    fn no_name_appears_twice() {
        for filter in every_filter() {
            let mut seen = BTreeSet::new();
            for (name, _) in filter.calls() {
                assert!(seen.insert(name), "{name} twice in {}", filter.title);
            }
        }
    }

    #[test]
    fn conditions_are_within_what_they_compare() {
        for filter in every_filter() {
            for (name, action) in filter.calls() {
                let Action::Args { rules, .. } = action else {
                    continue;
                };
                for condition in rules.iter().flat_map(|rule| &rule.when) {
                    assert!(condition.arg < 6, "{name}: {condition}");
                    for arch in [Arch::X86_64, Arch::Aarch64] {
                        let value = condition.value.value(arch);
                        let mask = condition.mask.map_or(u64::MAX, |mask| mask.value(arch));
                        assert_eq!(value & !mask, 0, "{name}: {condition} can never hold");
                        if condition.width == Width::Low32 {
                            assert!(u32::try_from(value).is_ok(), "{name}: {condition} can never hold");
                        }
                    }
                }
                assert!(rules.iter().all(|rule| !rule.when.is_empty()), "{name} has a rule without a condition");
            }
        }
    }

    /// Less is open without namespaces than with them, and less at a lower ABI than at a higher one.
    #[test]
    fn weaker_hosts_open_no_more() {
        let always_allowed = |variant| {
            let filter = base(variant);
            filter.calls().filter(|(_, action)| **action == ALLOW).map(|(name, _)| name).collect::<BTreeSet<_>>()
        };
        for Variant { landlock_abi, writer, starter, .. } in variants() {
            let bare = always_allowed(Variant { strength: Strength::Landlock, landlock_abi, writer, starter });
            let spaces = always_allowed(Variant { strength: Strength::Namespaces, landlock_abi, writer, starter });
            assert!(bare.is_subset(&spaces));
            let higher = Variant { strength: Strength::Landlock, landlock_abi: landlock_abi + 1, writer, starter };
            let higher = always_allowed(higher);
            assert!(bare.is_subset(&higher));
        }
    }
}
