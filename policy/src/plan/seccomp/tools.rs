//! The filters of callgate's own tools.

use super::constants::{
    AF_UNIX, CLONE_THREAD_FLAGS, F_DUPFD_CLOEXEC, F_GET_SEALS, F_GETFD, F_GETFL, F_GETLK, F_SETFD, F_SETLK, NONE,
    NOT_CLONE_DETACHED, O_CHANGING, PR_SET_NAME, PROT_EXEC, SELF, SHM_EXEC, SIGCHLD, SIGKILL, SOCK_SEQPACKET,
    SOCK_TYPE_MASK,
};
use super::types::{
    ABSENT, ALLOW, ArgRule, CallAction, CallGroup, CallVerdict, Condition, DENY, EPERM, Errno, Filter, Width, equal,
    equal_64, has_all, masked,
};

/// The second filter, for callgate's in-process tools: they work on files and start nothing, so that what a hostile
/// document makes of a parser cannot start anything either. It is stacked upon the base filter, and the kernel takes
/// the stricter answer of the two.
pub fn tool_delta() -> Filter {
    tool(ToolThreads::Never)
}

/// Filter for a tool that searches with several threads, where it runs below the broker.
pub fn search_delta() -> Filter {
    tool(ToolThreads::OfItsOwn)
}

/// Filter for a tool that fetches from hosts: the base filter's rules of sockets hold, so that the broker is asked, and
/// the broker asks egress.
pub fn fetch_delta() -> Filter {
    connecting(ToolThreads::Never, "filter of in-process tools that fetch")
}

/// Filter for tools that wait for several answers at once, each in a thread.
#[must_use]
pub fn ask_delta() -> Filter {
    connecting(ToolThreads::OfItsOwn, "filter of in-process tools that ask several questions")
}

fn connecting(threads: ToolThreads, title: &str) -> Filter {
    let mut filter = tool(threads);
    filter.title = title.to_owned();
    let reaching = CallGroup {
        title: "reaching anyone but hosts",
        why: "a tool that fetches makes sockets and connects them; it serves nobody, and knows nobody whom it could signal. A \
              pair of sockets is its own, and tokio wakes itself by one",
        attacks: &["B7", "D2"],
        calls: vec![(
            "bind listen accept accept4 kill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal",
            CallAction::Always(EPERM),
        )],
    };
    filter.groups =
        filter.groups.into_iter().map(|group| if group.title == REACHING { reaching.clone() } else { group }).collect();
    filter
}

/// The group of calls by which somebody else is reached.
const REACHING: &str = "reaching anyone";

/// Permission of a tool to make threads. A thread has the memory, the descriptors and the working directory of its
/// maker, and from the kernel its Landlock domain and filters too; it ends with the process. So it reaches nothing that
/// its maker did not, and leaves nothing behind. What it adds is concurrency, which a tool that needs none is not
/// given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ToolThreads {
    Never,
    OfItsOwn,
}

/// clone(2) exactly as the C libraries make a thread with it, and in no other way.
fn threads_alone() -> CallAction {
    let thread = Condition { arg: 0, width: Width::Full64, mask: Some(NOT_CLONE_DETACHED), value: CLONE_THREAD_FLAGS };
    CallAction::Args { rules: vec![ArgRule { when: vec![thread], then: CallVerdict::Allow }], otherwise: EPERM }
}

fn tool(threads: ToolThreads) -> Filter {
    let executable = |arg| CallAction::Args {
        rules: vec![ArgRule { when: vec![has_all(arg, PROT_EXEC)], then: EPERM }],
        otherwise: CallVerdict::Allow,
    };
    let (title, starting) = match threads {
        ToolThreads::Never => (
            "filter of in-process tools",
            CallGroup {
                title: "starting anything",
                why: "a tool runs in the worker itself and needs neither programs nor threads",
                attacks: &["C7"],
                calls: vec![(
                    "execve execveat clone clone3 fork vfork memfd_create ptrace process_vm_readv process_vm_writev",
                    DENY,
                )],
            },
        ),
        ToolThreads::OfItsOwn => (
            "filter of in-process tools that search",
            CallGroup {
                title: "starting anything but threads",
                why: "a search has a thread for each processor. clone3(2) passes its flags by a pointer: without it, C \
                      libraries fall back to clone(2)",
                attacks: &["C7"],
                calls: vec![
                    ("execve execveat fork vfork memfd_create ptrace process_vm_readv process_vm_writev", DENY),
                    ("clone3", ABSENT),
                    ("clone", threads_alone()),
                ],
            },
        ),
    };
    Filter {
        title: title.to_owned(),
        default: CallVerdict::Allow,
        groups: vec![
            starting,
            CallGroup {
                title: REACHING,
                why: "a tool talks to the worker's own pipes alone. tgkill and tkill stay: abort(3) raises its signal \
                      with one of them, and to others the base filter's bounds on signals hold",
                attacks: &["B7", "D2"],
                calls: vec![(
                    "socket socketpair connect bind listen kill rt_sigqueueinfo rt_tgsigqueueinfo \
                     pidfd_send_signal",
                    CallAction::Always(EPERM),
                )],
            },
            CallGroup {
                title: "new machine code",
                why: "a parser's bug then has only the code that is mapped already",
                attacks: &[],
                calls: vec![
                    ("mmap mprotect pkey_mprotect", executable(2)),
                    (
                        "shmat",
                        CallAction::Args {
                            rules: vec![ArgRule { when: vec![has_all(2, SHM_EXEC)], then: EPERM }],
                            otherwise: CallVerdict::Allow,
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
    let only_if = |conditions: Vec<Condition>| CallAction::Args {
        rules: vec![ArgRule { when: conditions, then: CallVerdict::Allow }],
        otherwise: EPERM,
    };
    let opening = |flags| CallAction::Args {
        rules: vec![ArgRule { when: vec![masked(flags, O_CHANGING, NONE)], then: CallVerdict::Allow }],
        otherwise: EPERM,
    };
    let own_memory = CallAction::Args {
        rules: vec![ArgRule { when: vec![has_all(2, PROT_EXEC)], then: EPERM }],
        otherwise: CallVerdict::Allow,
    };
    let mut forks_and_threads = threads_alone();
    if let CallAction::Args { rules, .. } = &mut forks_and_threads {
        rules.insert(0, ArgRule { when: vec![equal_64(0, SIGCHLD)], then: CallVerdict::Allow });
    }
    let group = |title, why, calls| CallGroup { title, why, attacks: &[], calls };
    Filter {
        title: "filter of reading tools".to_owned(),
        default: CallVerdict::Errno(Errno::Enosys),
        groups: vec![
            CallGroup {
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
                "the commands that name a process to be signalled are not among them. SQLite locks what it reads: with a \
                 descriptor that only reads, no lock can be had that keeps other readers out",
                vec![(
                    "fcntl",
                    CallAction::Args {
                        rules: [F_GETFD, F_SETFD, F_GETFL, F_GETLK, F_SETLK, F_GET_SEALS, F_DUPFD_CLOEXEC]
                            .map(|command| ArgRule { when: vec![equal(1, command)], then: CallVerdict::Allow })
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
            CallGroup {
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

/// Filter that each reader adds upon [`readers`]: it forks nothing, and kills nobody.
pub fn reader_delta() -> Filter {
    Filter {
        title: "filter of one reading worker".to_owned(),
        default: CallVerdict::Allow,
        groups: vec![CallGroup {
            title: "what only the zygote does",
            why: "a worker that could fork would leave something behind",
            attacks: &["C7", "D2"],
            calls: vec![("clone kill", CallAction::Always(EPERM))],
        }],
    }
}

/// Filter that a reader that searches adds instead: it makes threads, and else nothing.
pub fn searcher_delta() -> Filter {
    Filter {
        title: "filter of one searching worker".to_owned(),
        default: CallVerdict::Allow,
        groups: vec![CallGroup {
            title: "what only the zygote does",
            why: "a worker that could fork would leave something behind; a thread ends with it",
            attacks: &["C7", "D2"],
            calls: vec![("clone", threads_alone()), ("kill", DENY)],
        }],
    }
}
