//! Processes of the host: not signalled, traced, read, limited or even seen (A7, D1, D2).

use callgate_tests::{Host, Target, TestEnv, eventually, matrix};
use libc::{EACCES, ENOENT, EPERM, ESRCH};

/// Errno of a refusal. What the filter or the broker refuses is EPERM in both strengths; what the kernel looks up
/// first, a PID namespace does not have.
fn denied(target: Target, act: &str) -> i32 {
    match act {
        "pidfd-getfd" | "setns" | "kill" | "tkill" | "tgkill" | "sigqueue" | "pidfd-signal" => {
            target.by_strength(ESRCH, EPERM)
        }
        "proc-pid" => target.by_strength(ENOENT, EACCES),
        _ => EPERM,
    }
}

/// D1: acts that reach into another process. The bystander belongs to the same user, so bare they all succeed.
#[test]
fn d1_another_process_cannot_be_touched() {
    let acts: &[(&str, &[&str])] = &[
        ("ptrace-attach", &[]),
        ("ptrace-seize", &[]),
        ("process-vm-readv", &[]),
        ("pidfd-getfd", &["0"]),
        ("kcmp", &[]),
        ("prlimit", &[]),
        ("setpriority", &[]),
        ("sched-affinity", &[]),
    ];
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for (act, rest) in acts {
            let mut bystander = env.bystander();
            let pid = bystander.text();
            let words = [&[*act, pid.as_str()], *rest].concat();
            let before = bystander.condition();
            env.sandbox().probe(&words).assert_errno(denied(target, act));
            assert_eq!(bystander.condition(), before, "{act}");
            assert!(bystander.is_alive(), "{act}");
            env.bare().probe(&words).assert_ok();
        }
    });
}

/// D1: joining the namespaces of a process of the host, which bare only root may.
#[test]
fn d1_no_namespace_of_the_host_can_be_joined() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let bystander = env.bystander();
        let words = ["setns", &bystander.text()];
        if target.user.uid() == 0 {
            env.bare().probe(&words).assert_ok();
        }
        env.sandbox().probe(&words).assert_errno(denied(target, "setns"));
    });
}

/// D2: every call that sends a signal, with one that kills and with the one that only asks.
#[test]
fn d2_no_signal_reaches_the_host() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for act in ["kill", "tkill", "tgkill", "sigqueue", "pidfd-signal"] {
            let mut bystander = env.bystander();
            let pid = bystander.text();
            for signal in ["0", "15", "9", "19"] {
                env.sandbox().probe(&[act, &pid, signal]).assert_errno(denied(target, act));
                assert!(bystander.is_alive(), "{act} {signal}");
            }
            env.bare().probe(&[act, &pid, "9"]).assert_ok();
            eventually("the control kills it", || !bystander.is_alive());
        }
    });
}

/// D2: kill(-1) names nobody and reaches everybody. The signal is SIGCONT, so that a callgate that fails this test
/// wakes one process of the test's and does not kill the machine that it runs on.
#[test]
fn d2_kill_minus_one_reaches_nobody_outside() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let bystander = env.bystander();
        let pid = bystander.text();
        env.bare().probe(&["kill", &pid, "19"]).assert_ok();
        eventually("it is stopped", || bystander.is_stopped());
        let tried = env.sandbox().probe(&["kill", "-1", "18"]);
        assert!(tried.is_ok() || tried.errno().is_some(), "{tried}");
        assert!(bystander.is_stopped(), "{tried}");
        env.bare().probe(&["kill", &pid, "18"]).assert_ok();
        eventually("the control wakes it", || !bystander.is_stopped());
    });
}

/// A7, D1: what /proc tells of a process of the same user.
#[test]
fn a7_d1_proc_shows_nothing_of_another_process() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let bystander = env.bystander();
        let pid = bystander.text();
        for what in ["environ", "mem", "maps", "root", "cwd", "exe", "fd"] {
            let words = ["proc-pid", &pid, what];
            env.bare().probe(&words).assert_ok();
            env.sandbox().probe(&words).assert_errno(denied(target, "proc-pid"));
        }
    });
}

/// A7: the command lines of others may hold secrets. With namespaces they are not there; without, they cannot be read, as
/// `own_proc.rs` shows.
#[test]
fn a7_processes_of_the_host_are_not_seen_with_namespaces() {
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        let bystander = env.bystander();
        let seen = |probe: callgate_tests::Probe| !probe.fact("processes")[bystander.text()].is_null();
        assert!(seen(env.bare().probe(&["ps"])));
        assert!(!seen(env.sandbox().probe(&["ps"])));
    });
}
