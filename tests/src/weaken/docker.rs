//! Docker's default profile (moby, `profiles/seccomp/default.json`) for a kernel of 4.8 or newer, as a container without
//! extra capabilities gets it: an allow list, EPERM for the rest.

use syscalls::Sysno;

use crate::bpf::{ArgumentCondition, BpfRule, KernelAnswer};
use crate::modes::NAMESPACES;

/// The calls that need no capability and no particular argument.
const ALLOWED: &str = "
accept accept4 access adjtimex alarm bind brk cachestat capget capset chdir chmod chown clock_adjtime
clock_getres clock_gettime clock_nanosleep close close_range connect copy_file_range creat dup dup2 dup3 epoll_create
epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 execve
execveat exit exit_group faccessat faccessat2 fadvise64 fallocate fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown
fchownat fcntl fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat fstatfs fsync ftruncate futex
futex_requeue futex_wait futex_waitv futex_wake futimesat getcpu getcwd getdents getdents64 getegid geteuid getgid
getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid getresuid getrlimit
get_robust_list getrusage getsid getsockname getsockopt get_thread_area gettid gettimeofday getuid getxattr getxattrat
inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel ioctl io_destroy io_getevents io_pgetevents
ioprio_get ioprio_set io_setup io_submit kill landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown
lgetxattr link linkat listen listmount listxattr listxattrat llistxattr lremovexattr lseek lsetxattr lstat madvise
map_shadow_stack membarrier memfd_create memfd_secret mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap
mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink mremap mseal msgctl msgget msgrcv
msgsnd msync munlock munlockall munmap name_to_handle_at nanosleep newfstatat open openat openat2 pause pidfd_open
pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll prctl pread64 preadv preadv2 prlimit64
process_mrelease pselect6 pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg recvmsg
remap_file_pages removexattr removexattrat rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction
rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo
sched_getaffinity sched_getattr sched_getparam sched_get_priority_max sched_get_priority_min sched_getscheduler
sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp select
semctl semget semop semtimedop sendfile sendmmsg sendmsg sendto setfsgid setfsuid setgid setgroups setitimer setpgid
setpriority setregid setresgid setresuid setreuid setrlimit set_robust_list setsid setsockopt set_thread_area
set_tid_address setuid setxattr setxattrat shmat shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 socketpair
splice stat statfs statmount statx symlink symlinkat sync sync_file_range syncfs sysinfo tee tgkill time timer_create
timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime times tkill
truncate umask uname unlink unlinkat uretprobe utime utimensat utimes vfork vmsplice wait4 waitid write writev
arch_prctl modify_ldt
process_vm_readv process_vm_writev ptrace
";

/// CAP_CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE, NET_RAW, SYS_CHROOT, MKNOD,
/// AUDIT_WRITE and SETFCAP: what root has in a container of Docker's default.
pub(crate) const CAPABILITIES: &[u32] = &[0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31];

/// The values of personality(2) that the profile knows.
const PERSONALITIES: [u64; 5] = [0, 8, 0x2_0000, 0x2_0008, 0xffff_ffff];

pub(crate) fn rules() -> Vec<BpfRule> {
    let mut rules: Vec<BpfRule> = ALLOWED
        .split_whitespace()
        // Names that this build's table of calls does not know are newer than it, or of another architecture.
        .filter_map(|name| name.parse::<Sysno>().ok())
        .map(|call| BpfRule::new(i64::from(call.id()), KernelAnswer::Allow))
        .collect();
    rules.push(BpfRule::new(libc::SYS_clone, KernelAnswer::Allow).when(ArgumentCondition::equals(0, NAMESPACES, 0)));
    rules.push(BpfRule::new(libc::SYS_clone3, KernelAnswer::Errno(libc::ENOSYS)));
    rules.push(BpfRule::new(libc::SYS_socket, KernelAnswer::Allow).when(ArgumentCondition::differs(
        0,
        u64::MAX,
        u64::from(libc::AF_VSOCK.cast_unsigned()),
    )));
    rules.extend(PERSONALITIES.map(|value| {
        BpfRule::new(libc::SYS_personality, KernelAnswer::Allow).when(ArgumentCondition::equals(0, u64::MAX, value))
    }));
    // CAP_SYS_CHROOT is among Docker's default capabilities, and the profile opens chroot with it.
    rules.push(BpfRule::new(libc::SYS_chroot, KernelAnswer::Allow));
    rules
}
