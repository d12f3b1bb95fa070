//! The filter of egress, the process that holds a session's network.

use super::constants::{
    AF_INET, AF_INET6, F_DUPFD_CLOEXEC, F_GETFD, F_GETFL, F_SETFD, F_SETFL, FIONBIO, IPPROTO_IP, IPPROTO_TCP,
    MSG_FASTOPEN, NONE, PROT_EXEC, SO_KEEPALIVE, SO_LINGER, SOCK_DGRAM, SOCK_STREAM, SOCK_TYPE_MASK, SOL_SOCKET,
    SOL_TCP, TCP_KEEPIDLE, TCP_NODELAY,
};
use super::types::{
    ALLOW, ArgRule, CallAction, CallGroup, CallVerdict, Condition, EPERM, Errno, Filter, Operand, equal, has_all,
    masked,
};

/// Filter of egress once it is confined: connect by TCP, ask for names by UDP, serve the sockets that it was given, and
/// end. It opens nothing, starts nothing, and makes no other kind of socket.
pub fn egress() -> Filter {
    let any_of = |rules: Vec<Vec<Condition>>| CallAction::Args {
        rules: rules.into_iter().map(|when| ArgRule { when, then: CallVerdict::Allow }).collect(),
        otherwise: EPERM,
    };
    let one_of = |arg, values: &[Operand]| any_of(values.iter().map(|value| vec![equal(arg, *value)]).collect());
    let socket = |family, kind, protocol| vec![equal(0, family), masked(1, SOCK_TYPE_MASK, kind), equal(2, protocol)];
    let sockets = [AF_INET, AF_INET6].into_iter().flat_map(|family| {
        [
            socket(family, SOCK_STREAM, IPPROTO_IP),
            socket(family, SOCK_STREAM, IPPROTO_TCP),
            socket(family, SOCK_DGRAM, IPPROTO_IP),
        ]
    });
    let option = |level, name| vec![equal(1, level), equal(2, name)];
    let no_fast_open = |flags| any_of(vec![vec![masked(flags, MSG_FASTOPEN, NONE)]]);
    let own_memory = CallAction::Args {
        rules: vec![ArgRule { when: vec![has_all(2, PROT_EXEC)], then: EPERM }],
        otherwise: CallVerdict::Allow,
    };
    let group = |title, why, calls| CallGroup { title, why, attacks: &[], calls };
    Filter {
        title: "filter of egress".to_owned(),
        default: CallVerdict::Errno(Errno::Enosys),
        groups: vec![
            CallGroup {
                title: "making sockets",
                why: "TCP for connections, UDP to ask for names and to learn which addresses are this machine's. No \
                      listening: what egress listens on was given to it",
                attacks: &["B1", "B3", "B4", "B7", "B8"],
                calls: vec![("socket", any_of(sockets.collect())), ("connect bind accept4", ALLOW)],
            },
            CallGroup {
                title: "sending",
                why: "not with MSG_FASTOPEN, which connects: Landlock judges connect(2) alone",
                attacks: &["B2"],
                calls: vec![("sendto", no_fast_open(3)), ("sendmsg", no_fast_open(2))],
            },
            group(
                "using sockets",
                "those that it has made or was given; no other descriptor is open",
                vec![(
                    "recvfrom recvmsg read readv write writev shutdown close getsockname getpeername getsockopt",
                    ALLOW,
                )],
            ),
            group(
                "socket options",
                "those that make a connection quick, notice that it is dead, and end it",
                vec![
                    (
                        "setsockopt",
                        any_of(vec![
                            option(SOL_TCP, TCP_NODELAY),
                            option(SOL_TCP, TCP_KEEPIDLE),
                            option(SOL_SOCKET, SO_KEEPALIVE),
                            option(SOL_SOCKET, SO_LINGER),
                        ]),
                    ),
                    ("ioctl", one_of(1, &[FIONBIO])),
                    ("fcntl", one_of(1, &[F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC])),
                ],
            ),
            group("waiting", "for all of them at once", vec![("epoll_ctl epoll_wait epoll_pwait", ALLOW)]),
            group(
                "own memory",
                "without new machine code: a parser's bug then has only the code that is mapped already",
                vec![("mmap mprotect", own_memory), ("brk munmap mremap madvise", ALLOW)],
            ),
            group(
                "own process, clocks, chance",
                "they reach nothing",
                vec![(
                    "exit exit_group getpid gettid futex rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack \
                     clock_gettime clock_nanosleep nanosleep gettimeofday getrandom sched_yield restart_syscall rseq \
                     set_robust_list",
                    ALLOW,
                )],
            ),
        ],
    }
}
