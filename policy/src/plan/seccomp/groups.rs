//! The groups of the base filter: which calls each of them holds, what happens to them, and why.

use super::commands::{
    FCNTLS, IOCTLS, IOCTLS_OF_OWN_NETWORK, OWNER_FCNTLS, OWNER_IOCTLS, PR_SET_MM, PR_SET_PTRACER, PRCTLS, PTRACE_SEIZE,
    PTRACE_SETOPTIONS, PTRACES, REFUSED_FCNTLS, REFUSED_IOCTLS, TIOCGPTPEER,
};
use super::constants::{
    ADDR_NO_RANDOMIZE, AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, CLONE_FILES_CLONE_THREAD, CLONE_FS,
    CLONE_FS_CLONE_THREAD, CLONE_NEW, CLONE_REFUSED, CLONE_THREAD, CLOSE_RANGE_UNSHARE, FALLOC_FL_COLLAPSE_RANGE,
    FALLOC_FL_PUNCH_HOLE, IOPRIO_WHO_PROCESS, IPPROTO_IP, IPPROTO_TCP, KCMP_VM, MSG_FASTOPEN, NETLINK_ROUTE, NONE,
    NOT_PF_UNIX, NOT_TRACE_OPTIONS, NULL, O_ACCMODE, O_ACCMODE_O_TRUNC, O_CREAT, O_CREAT_O_EXCL, O_NOFOLLOW_O_CLOEXEC,
    O_NOFOLLOW_O_RDWR, O_RDWR, O_TMPFILE, O_TRUNC, O_WRONLY, OPTION_ROWS, OPTIONS, OPTIONS_OF_OWN_NETWORK, PER_LINUX,
    PER_LINUX32, PER_QUERY, PR_SET_DUMPABLE, PRIO_PROCESS, RLIMIT_CORE, S_ISGID, S_ISUID,
    SECCOMP_FILTER_FLAG_NEW_LISTENER, SECCOMP_SET_MODE_FILTER, SELF, SEM_OPEN_MASK, SHM_OPEN_MASK, SO_BINDTODEVICE,
    SO_LINGER, SO_REUSEPORT, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET, SOCK_STREAM, SOCK_TYPE_MASK, SOL_SOCKET, SOL_TCP,
    SUID_DUMP_DISABLE, TCP_FASTOPEN_CONNECT, TCP_ULP, UNAME26, UNAME26_LINUX32,
};
use super::types::{
    ABSENT, ALLOW, ArgRule, CallAction, CallGroup, CallVerdict, Condition, DENY, EACCES, EPERM, Errno, NOTIFY, Variant,
    Width, by_command, equal, equal_64, has_all, masked,
};
use crate::plan::{Starter, Strength, Writer};

/// Calls of programs that reach nothing but what Landlock, the limits and the process itself bound.
pub(super) fn ordinary() -> Vec<CallGroup> {
    let allow = |title, why, names| CallGroup { title, why, attacks: &[], calls: vec![(names, ALLOW)] };
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
            "getuid geteuid getgid getegid getgroups getresuid getresgid setfsuid setfsgid capget capset",
        ),
        allow(
            "restricting oneself",
            "workers narrow themselves under this filter, and programs may sandbox their own children",
            "landlock_create_ruleset landlock_add_rule landlock_restrict_self \
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

pub(super) fn filters() -> CallGroup {
    let listener = [equal(0, SECCOMP_SET_MODE_FILTER), has_all(1, SECCOMP_FILTER_FLAG_NEW_LISTENER)];
    CallGroup {
        title: "filters of one's own",
        why: "they only take away. One with a listener the kernel refuses too (EBUSY), because there is one already; the broker \
              refuses it and counts it, for the result",
        attacks: &[],
        calls: vec![(
            "seccomp",
            CallAction::Args {
                rules: vec![ArgRule { when: listener.into(), then: CallVerdict::Notify }],
                otherwise: CallVerdict::Allow,
            },
        )],
    }
}

pub(super) fn starting(starter: Starter) -> CallGroup {
    let (why, action) = match starter {
        Starter::Kernel => ("programs start programs; Landlock's execute right says which", ALLOW),
        Starter::Broker => (
            "programs start programs; Landlock's execute right says which files. The broker is asked as well: about arguments, \
             about the dynamic loader, which must be executable to be an interpreter, and about files in memory, which no \
             rule of Landlock's names: it makes those itself, so that they cannot be executed",
            NOTIFY,
        ),
    };
    CallGroup {
        title: "starting programs",
        why,
        attacks: &["C2", "C6", "C7", "C8", "C9", "C14"],
        calls: vec![("execve execveat memfd_create", action)],
    }
}

pub(super) fn metadata() -> CallGroup {
    CallGroup {
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

pub(super) fn sockets(strength: Strength) -> CallGroup {
    let kind = |domain, kind, protocol| ArgRule {
        when: vec![equal(0, domain), masked(1, SOCK_TYPE_MASK, kind), protocol],
        then: CallVerdict::Notify,
    };
    let family = |domain, then| ArgRule { when: vec![equal(0, domain)], then };
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
    let why = match strength {
        Strength::Landlock => {
            "stream sockets are made by the broker, which keeps a duplicate, so that it can connect them later. \
             Landlock knows TCP alone: MPTCP, SCTP, UDP, raw and every other family would pass it by. A datagram \
             socket names its peer in each message, behind a pointer, so that even one of a pair reaches any \
             pathname socket. The broker refuses other kinds for the network and counts them, for the result"
        }
        Strength::Namespaces => {
            for kind in [SOCK_RAW, SOCK_DGRAM] {
                rules.push(ArgRule {
                    when: vec![equal(0, AF_NETLINK), masked(1, SOCK_TYPE_MASK, kind), equal(2, NETLINK_ROUTE)],
                    then: CallVerdict::Notify,
                });
            }
            "stream sockets are made by the broker, which keeps a duplicate, so that it can connect them later. A datagram \
             socket names its peer in each message, behind a pointer: for the network that reaches what is in the session's \
             network namespace, where there is loopback alone, so the broker makes UDP sockets there, and those of route \
             netlink, which tell of that namespace; even one of a unix pair reaches any pathname socket. The broker refuses \
             other kinds for the network and counts them, for the result"
        }
    };
    rules.push(family(AF_UNIX, EACCES));
    // Refused as well, and counted: a resolver's socket is how a look-up of a name shows.
    rules.extend([AF_INET, AF_INET6].map(|domain| family(domain, CallVerdict::Notify)));
    let pair =
        |kind| ArgRule { when: vec![equal(0, AF_UNIX), masked(1, SOCK_TYPE_MASK, kind)], then: CallVerdict::Allow };
    CallGroup {
        title: "making sockets",
        why,
        attacks: &["B1", "B3", "B4", "B7", "B8"],
        calls: vec![
            ("socket", CallAction::Args { rules, otherwise: CallVerdict::Errno(Errno::Eafnosupport) }),
            (
                "socketpair",
                CallAction::Args {
                    rules: vec![pair(SOCK_STREAM), pair(SOCK_SEQPACKET)],
                    otherwise: CallVerdict::Errno(Errno::Eacces),
                },
            ),
        ],
    }
}

pub(super) fn addresses() -> CallGroup {
    CallGroup {
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

pub(super) fn messages(strength: Strength) -> CallGroup {
    let unless_fast_open = |arg| CallAction::Args {
        rules: vec![ArgRule { when: vec![has_all(arg, MSG_FASTOPEN)], then: CallVerdict::Errno(Errno::Eopnotsupp) }],
        otherwise: CallVerdict::Allow,
    };
    let why = match strength {
        Strength::Landlock => {
            "MSG_FASTOPEN connects without connect(2), and Landlock does not see it. Otherwise an address is \
             ignored or refused, since no datagram socket can exist"
        }
        Strength::Namespaces => {
            "MSG_FASTOPEN connects without connect(2), and Landlock does not see it. Otherwise an address is ignored or \
             refused, or leads to somewhere in the session's own network namespace"
        }
    };
    CallGroup {
        title: "sending",
        why,
        attacks: &["B2", "B18"],
        calls: vec![("sendto sendmmsg", unless_fast_open(3)), ("sendmsg", unless_fast_open(2))],
    }
}

pub(super) fn socket_options(strength: Strength) -> CallGroup {
    let option = |level, option, then| ArgRule { when: vec![equal(1, level), equal(2, option)], then };
    let pretended =
        [SO_REUSEPORT, SO_LINGER].map(|value| option(SOL_SOCKET, value, CallVerdict::Errno(Errno::Success)));
    let refused = [(SOL_TCP, TCP_FASTOPEN_CONNECT), (SOL_TCP, TCP_ULP), (SOL_SOCKET, SO_BINDTODEVICE)];
    let refused = refused.map(|(level, value)| option(level, value, CallVerdict::Errno(Errno::Eperm)));
    // Whole rows of numbers, of which the rest does nothing, or is the privileged's: a filter has no room for each.
    let row = |(level, but_low_bits, first)| ArgRule {
        when: vec![equal(1, level), masked(2, but_low_bits, first)],
        then: CallVerdict::Allow,
    };
    let each = OPTIONS.iter().flat_map(|(level, options)| options.iter().map(|value| (*level, *value)));
    let of_own_network: &[_] = match strength {
        Strength::Landlock => &[],
        Strength::Namespaces => OPTIONS_OF_OWN_NETWORK,
    };
    let own = of_own_network.iter().flat_map(|(level, options)| options.iter().map(|value| (*level, *value)));
    let each = each.chain(own).map(|(level, value)| option(level, value, CallVerdict::Allow));
    let rules = pretended.into_iter().chain(refused).chain(OPTION_ROWS.map(row)).chain(each);
    CallGroup {
        title: "options of sockets",
        why: "those that are named tune a connection. Others send it elsewhere than its address says: SO_BINDTODEVICE and \
              IPV6_RTHDR lead a connection to loopback out of the host, TCP_FASTOPEN_CONNECT turns a later write into a \
              connect, TCP_ULP replaces the protocol underneath; SO_ZEROCOPY pins memory that nobody counts. SO_REUSEPORT would let a call share the port of a \
              stranger's server of the same user, and take its connections: it is said to be set, and is not. Neither is SO_LINGER: \
              the last to close such a connection sleeps for as long as it says, and that may be a process that holds a descriptor \
              of a call's for a moment, or the kernel's own worker, which closes for the whole host. Where the network \
              is the session's own, the options of multicast and of netlink are there as well",
        attacks: &["B2", "B5", "D11", "D12"],
        calls: vec![(
            "setsockopt",
            CallAction::Args { rules: rules.collect(), otherwise: CallVerdict::Errno(Errno::Enoprotoopt) },
        )],
    }
}

pub(super) fn ioctls(strength: Strength, landlock_abi: u8) -> CallGroup {
    let of_own_network: &[_] = match strength {
        Strength::Landlock => &[],
        Strength::Namespaces => IOCTLS_OF_OWN_NETWORK,
    };
    let owners = if landlock_abi < 6 { EPERM } else { CallVerdict::Allow };
    CallGroup {
        title: "device and file controls",
        why: "a descriptor that was opened for reading is enough for many of them, which neither Landlock nor a mode then \
              judges: those of btrfs make trees in a read-only directory, others set attributes or reserve space, TIOCSTI and \
              TIOCLINUX type into a terminal. So what is not listed is answered as by a file that has no such control. \
              TIOCGPTPEER opens the other end of a pseudo-terminal: no rule names those of a call, so the broker opens it for \
              who holds the master",
        attacks: &["A12", "D5", "D6", "D11"],
        calls: vec![(
            "ioctl",
            CallAction::Args {
                rules: by_command(
                    1,
                    &[
                        (IOCTLS, CallVerdict::Allow),
                        (of_own_network, CallVerdict::Allow),
                        (OWNER_IOCTLS, owners),
                        (REFUSED_IOCTLS, EPERM),
                        (&[TIOCGPTPEER], CallVerdict::Notify),
                    ],
                ),
                otherwise: CallVerdict::Errno(Errno::Enotty),
            },
        )],
    }
}

pub(super) fn ipc() -> CallGroup {
    CallGroup {
        title: "System V and POSIX IPC",
        why: "keys and ids are shared by all that is in one IPC namespace, other calls of the session at least: the broker \
              keeps each call to its own. POSIX queues are refused: Landlock has no rule that could name one, so the \
              broker could make but not open it",
        attacks: &[],
        calls: vec![
            ("shmget shmat shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl", NOTIFY),
            ("mq_open mq_unlink", CallAction::Always(EACCES)),
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
pub(super) fn names(Variant { strength, landlock_abi, writer, debug, .. }: Variant) -> CallGroup {
    // A read-only mount stops truncation as well.
    let no_truncate_right = strength == Strength::Landlock && landlock_abi < 3;
    let opening = |flags: u8| {
        let mut rules = vec![ArgRule { when: vec![has_all(flags, O_ACCMODE)], then: EACCES }];
        rules.extend(set_id(flags + 1, |bit| vec![has_all(flags, O_CREAT), bit]));
        rules.extend(set_id(flags + 1, |bit| vec![has_all(flags, O_TMPFILE), bit]));
        if no_truncate_right {
            // First: what the broker leaves to Landlock would be truncated.
            rules.push(ArgRule { when: vec![masked(flags, O_ACCMODE_O_TRUNC, O_TRUNC)], then: EACCES });
        }
        if writer.is_broker() {
            for bit in [O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_TMPFILE] {
                rules.push(ArgRule { when: vec![has_all(flags, bit)], then: CallVerdict::Notify });
            }
        }
        if strength == Strength::Landlock {
            for (mask, bits) in [(SHM_OPEN_MASK, O_NOFOLLOW_O_CLOEXEC), (SEM_OPEN_MASK, O_NOFOLLOW_O_RDWR)] {
                rules.push(ArgRule { when: vec![masked(flags, mask, bits)], then: CallVerdict::Notify });
            }
            rules.push(ArgRule { when: vec![has_all(flags, O_CREAT_O_EXCL)], then: CallVerdict::Notify });
        }
        // Debuggers read what procfs tells of the call's processes, for whose directories there can be no rules beforehand.
        let shows_processes = debug && strength == Strength::Landlock;
        let asked = writer == Writer::BrokerReadsToo || shows_processes;
        let reading = if asked { CallVerdict::Notify } else { CallVerdict::Allow };
        CallAction::Args { rules, otherwise: reading }
    };
    let (changing, change) =
        if writer.is_broker() { (NOTIFY, CallVerdict::Notify) } else { (ALLOW, CallVerdict::Allow) };
    let making = |mode: u8| CallAction::Args { rules: set_id(mode, |bit| vec![bit]), otherwise: change };
    let linking = if strength == Strength::Landlock { NOTIFY } else { changing.clone() };
    let truncating = if no_truncate_right { NOTIFY } else { changing.clone() };
    CallGroup {
        title: "making, opening, linking and removing names",
        why: "a set-user-ID program that a call makes would lend its owner's identity, perhaps root's, to whoever runs \
              it. The fourth access mode of open(2) is for ioctl(2) alone, and Landlock asks for no right when a file is opened by it, \
              with O_TRUNC neither. Landlock before ABI 3 has no truncate right: the broker truncates by name, and O_TRUNC needs an \
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

pub(super) fn watching(strength: Strength) -> CallGroup {
    let (why, action) = match strength {
        Strength::Landlock => (
            "inotify tells every name that is made, opened or removed in a directory that file modes let be read; Landlock \
             has no right for it. The broker owns the descriptors, and watches only what the call may read",
            NOTIFY,
        ),
        Strength::Namespaces => ("what was not granted is not there to be watched", ALLOW),
    };
    CallGroup {
        title: "watching files",
        why,
        attacks: &["D1"],
        calls: vec![("inotify_init inotify_init1 inotify_add_watch", action)],
    }
}

/// Refuses both set-id bits of a mode.
pub(super) fn set_id(mode: u8, when: impl Fn(Condition) -> Vec<Condition>) -> Vec<ArgRule> {
    [S_ISUID, S_ISGID].map(|bit| ArgRule { when: when(has_all(mode, bit)), then: EPERM }).into()
}

/// A limit of 1 byte is how core(5) says that no program is to get a process's memory through a pipe; at 0 it gets all of it.
/// Nothing would be gained by another value, for no core fits into a byte, so that setting one is said to be done.
pub(super) fn limits_of_processes() -> CallGroup {
    let core = |mut conditions: Vec<Condition>, then| {
        conditions.push(equal(1, RLIMIT_CORE));
        ArgRule { when: conditions, then }
    };
    let reads = equal_64(2, NULL);
    let (pretended, own) = (CallVerdict::Errno(Errno::Success), equal(0, SELF));
    CallGroup {
        title: "limits of processes",
        why: "a core dump is a copy of memory left behind, and what the limit for it must be to prevent one, programs set \
              otherwise: to 0, which a pipe's reader is not bound by. 0 is the caller's own number; other numbers are of any \
              process of the same user, and checked by the broker",
        attacks: &["D1", "D8"],
        calls: vec![
            (
                "setrlimit",
                CallAction::Args {
                    rules: vec![ArgRule { when: vec![equal(0, RLIMIT_CORE)], then: pretended }],
                    otherwise: CallVerdict::Allow,
                },
            ),
            (
                "prlimit64",
                CallAction::Args {
                    rules: vec![
                        ArgRule { when: vec![own, reads], then: CallVerdict::Allow },
                        ArgRule { when: vec![reads], then: CallVerdict::Notify },
                        core(vec![own, equal_64(3, NULL)], pretended),
                        core(vec![], EPERM),
                        ArgRule { when: vec![own], then: CallVerdict::Allow },
                    ],
                    otherwise: CallVerdict::Notify,
                },
            ),
        ],
    }
}

pub(super) fn other_processes(landlock_abi: u8) -> [CallGroup; 4] {
    let oneself = |conditions: Vec<Condition>| CallAction::Args {
        rules: vec![ArgRule { when: conditions, then: CallVerdict::Allow }],
        otherwise: CallVerdict::Notify,
    };
    let scheduling = CallGroup {
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
        ("Landlock's signal scope bounds them", ALLOW, CallVerdict::Allow)
    };
    let rules = by_command(1, &[(FCNTLS, CallVerdict::Allow), (OWNER_FCNTLS, owners), (REFUSED_FCNTLS, EPERM)]);
    let fcntl = CallAction::Args { rules, otherwise: CallVerdict::Errno(Errno::Einval) };
    let signals = CallGroup {
        title: "signals to processes",
        why,
        attacks: &["D2"],
        calls: vec![("kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal", signal)],
    };
    let owners = CallGroup {
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

pub(super) fn memory_of_others(debug: bool) -> CallGroup {
    if debug {
        return tracing();
    }
    CallGroup {
        title: "memory and descriptors of other processes",
        why: "the broker, the zygote and sibling calls run as the same user. Whoever can write another's memory can \
              also change an argument vector after it was judged",
        attacks: &["D1", "C14"],
        calls: vec![
            // Refused by the broker, which counts for the result what programs do not tell.
            ("ptrace", NOTIFY),
            ("process_vm_readv process_vm_writev process_madvise process_mrelease pidfd_getfd", DENY),
        ],
    }
}

/// Group of calls for processes that may trace one another: whom they reach, Landlock bounds.
///
/// The request is a `long` and compared in its low half: with anything in the upper one it is none that the kernel knows.
fn tracing() -> CallGroup {
    let mut rules = by_command(0, &[(PTRACES, CallVerdict::Allow)]);
    for request in [PTRACE_SEIZE, PTRACE_SETOPTIONS] {
        let others = Condition { arg: 3, width: Width::Full64, mask: Some(NOT_TRACE_OPTIONS), value: NONE };
        rules.push(ArgRule { when: vec![equal(0, request), others], then: CallVerdict::Allow });
    }
    CallGroup {
        title: "tracing, memory and descriptors of other processes",
        why: "a Landlock domain may trace itself and what is below it (from ABI 1): the processes of one call, and neither the \
              broker, a zygote or the call's init, nor another call. What a tracer changes of a system call this filter judges \
              afterwards. The broker is asked about PTRACE_O_TRACEEXIT: two processes that set it on one another end by no \
              signal. Of a child that asks to be traced (PTRACE_TRACEME) the tracer would be its parent, who may be its call's init. \
              PTRACE_O_SUSPEND_SECCOMP and requests that are not listed are refused",
        attacks: &["D1", "D12"],
        calls: vec![
            ("ptrace", CallAction::Args { rules, otherwise: CallVerdict::Notify }),
            ("process_vm_readv process_vm_writev", ALLOW),
            ("process_madvise process_mrelease pidfd_getfd", DENY),
        ],
    }
}

pub(super) fn reserved_space() -> CallGroup {
    let gives_back = |bit| ArgRule { when: vec![has_all(1, bit)], then: CallVerdict::Allow };
    CallGroup {
        title: "space that is taken without writing",
        why: "what is reserved is in no process's count of bytes written. As on a file system that cannot, C libraries write \
              zeros instead (posix_fallocate), which are counted, and programs do without; giving space back is another matter",
        attacks: &["D11"],
        calls: vec![(
            "fallocate",
            CallAction::Args {
                rules: vec![gives_back(FALLOC_FL_PUNCH_HOLE), gives_back(FALLOC_FL_COLLAPSE_RANGE)],
                otherwise: CallVerdict::Errno(Errno::Eopnotsupp),
            },
        )],
    }
}

pub(super) fn uncounted_memory() -> CallGroup {
    CallGroup {
        title: "memory that nobody's count has",
        why: "what the init counts is what processes map and what their descriptors hold. Pages that a pipe or a secret file keeps are \
              in neither, and a thread's own table of descriptors is told apart from its process's by nobody. The init has to \
              know which processes share their memory, and is under this filter: that alone may be asked",
        attacks: &["D11"],
        calls: vec![
            ("vmsplice memfd_secret", ABSENT),
            (
                "close_range",
                CallAction::Args {
                    rules: vec![ArgRule { when: vec![has_all(2, CLOSE_RANGE_UNSHARE)], then: EPERM }],
                    otherwise: CallVerdict::Allow,
                },
            ),
            (
                "kcmp",
                CallAction::Args {
                    rules: vec![ArgRule { when: vec![equal(2, KCMP_VM)], then: CallVerdict::Allow }],
                    otherwise: EPERM,
                },
            ),
        ],
    }
}

pub(super) fn namespaces() -> CallGroup {
    CallGroup {
        title: "entering namespaces",
        why: "a new user namespace gives back every capability, and the kernel code behind them. The broker refuses and counts \
              them, for the result",
        attacks: &["D3"],
        calls: vec![("unshare setns", NOTIFY)],
    }
}

pub(super) fn identities() -> CallGroup {
    CallGroup {
        title: "becoming another user",
        why: "without capabilities the kernel refuses every id that the process does not have. The broker refuses those and counts \
              them, for the result, and lets the kernel judge the rest",
        attacks: &["D7"],
        calls: vec![("setuid setgid setreuid setregid setresuid setresgid setgroups", NOTIFY)],
    }
}

pub(super) fn mounts() -> CallGroup {
    CallGroup {
        title: "mounts and roots",
        why: "the tree that the rules were made for must stay what it is; handles open files without a name. The broker refuses \
              and counts what is about mounts, for the result",
        attacks: &["A5", "D3"],
        calls: vec![
            (
                "mount umount2 pivot_root chroot move_mount open_tree fsopen fsconfig fsmount fspick mount_setattr",
                NOTIFY,
            ),
            ("open_by_handle_at", DENY),
        ],
    }
}

pub(super) fn kernel_surface() -> CallGroup {
    CallGroup {
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

pub(super) fn host_state() -> CallGroup {
    CallGroup {
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

pub(super) fn execution_domains() -> CallGroup {
    let known = [PER_LINUX, PER_QUERY, ADDR_NO_RANDOMIZE, PER_LINUX32, UNAME26, UNAME26_LINUX32];
    CallGroup {
        title: "execution domains",
        why: "debuggers and builds switch off address randomization or ask for a 32-bit uname; the rest, such as \
              READ_IMPLIES_EXEC and MMAP_PAGE_ZERO, only weakens programs",
        attacks: &[],
        calls: vec![(
            "personality",
            CallAction::Args {
                rules: known.map(|persona| ArgRule { when: vec![equal(0, persona)], then: CallVerdict::Allow }).into(),
                otherwise: EPERM,
            },
        )],
    }
}

pub(super) fn clones(debug: bool) -> CallGroup {
    let own_table = ArgRule { when: vec![masked(0, CLONE_FILES_CLONE_THREAD, CLONE_THREAD)], then: EPERM };
    if debug {
        return CallGroup {
            title: "threads and children by clone",
            why: "no new namespaces; no thread with descriptors of its own, which nobody would count. Nobody of callgate's traces \
                  here, and no exec is judged, so that a child may share its working directory and stay untraced: \
                  LeakSanitizer makes such a one, to stop its own process. The kernel takes the low 32 bits",
            attacks: &["D3", "D11"],
            calls: vec![(
                "clone",
                CallAction::Args {
                    rules: vec![
                        own_table,
                        ArgRule { when: vec![masked(0, CLONE_NEW, NONE)], then: CallVerdict::Allow },
                    ],
                    // Refused there, and counted.
                    otherwise: CallVerdict::Notify,
                },
            )],
        };
    }
    CallGroup {
        title: "threads and children by clone",
        why: "no new namespaces; no child that shares its working directory with its parent, who could move it \
              after the child's exec was judged; no child that escapes tracing; no thread with descriptors of its own, which \
              nobody would count. The kernel takes the low 32 bits",
        attacks: &["D3", "C14", "D11"],
        calls: vec![(
            "clone",
            CallAction::Args {
                rules: vec![
                    ArgRule { when: vec![masked(0, CLONE_FS_CLONE_THREAD, CLONE_FS)], then: EPERM },
                    own_table,
                    ArgRule { when: vec![masked(0, CLONE_REFUSED, NONE)], then: CallVerdict::Allow },
                ],
                // Refused there, and counted.
                otherwise: CallVerdict::Notify,
            },
        )],
    }
}

pub(super) fn process_controls(debug: bool) -> CallGroup {
    let mut rules = vec![ArgRule {
        when: vec![equal(0, PR_SET_DUMPABLE), equal_64(1, SUID_DUMP_DISABLE)],
        then: CallVerdict::Errno(Errno::Success),
    }];
    rules.extend(by_command(0, &[(PRCTLS, CallVerdict::Allow), (&[PR_SET_MM], EPERM)]));
    if debug {
        // Whom Yama lets trace the caller besides its ancestors: Landlock bounds them all the same.
        rules.extend(by_command(0, &[(&[PR_SET_PTRACER], CallVerdict::Allow)]));
    }
    CallGroup {
        title: "process controls",
        why: "the broker cannot look at a process that is not dumpable, so that asking for this is answered with \
              success and not done; PR_SET_MM rewrites what /proc shows of a command line. What is not listed is answered as by \
              a kernel without it: PR_SCHED_CORE keeps others off a processor, PR_SET_VMA and PR_FUTEX_HASH take memory that \
              nobody counts",
        attacks: &["C14", "D11"],
        calls: vec![("prctl", CallAction::Args { rules, otherwise: CallVerdict::Errno(Errno::Einval) })],
    }
}

pub(super) fn unreadable() -> CallGroup {
    CallGroup {
        title: "calls that a filter cannot read",
        why: "clone3's flags and openat2's mode lie behind a pointer; io_uring makes sockets and opens files without a system call of \
              its own. As on a kernel without them, programs fall back",
        attacks: &["B9", "D3"],
        calls: vec![("clone3 openat2 io_uring_setup io_uring_enter io_uring_register", ABSENT)],
    }
}

pub(super) fn native_aio() -> CallGroup {
    CallGroup {
        title: "the kernel's own asynchronous reading and writing",
        why: "the events that all processes of a host may have waiting are bounded together (fs.aio-max-nr, 65,536), and one \
              process can take them all. No filter counts across calls of io_setup, and what ends with a process nobody is \
              told of. As on a kernel without it, databases read and write in threads; aio(7) of C libraries always has",
        attacks: &["D11"],
        calls: vec![("io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents", ABSENT)],
    }
}

pub(super) fn newer() -> CallGroup {
    CallGroup {
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

pub(super) fn obsolete() -> CallGroup {
    CallGroup {
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
