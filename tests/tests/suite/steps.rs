//! Each step of confinement, made to fail: nothing runs, and nothing claims to be enforced that is not (A14, B14, D9).

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};

use callgate_tests::{Host, ProgramOutcome, TestEnv, User, matrix, matrix_as};
use serde_json::Value;

/// Runs a command that leaves a mark, on a host that is weaker by `weakness`.
struct TriedStep {
    ended: ProgramOutcome,
    ran: bool,
    status: Value,
}

fn tried(env: &TestEnv, weakness: &[&str]) -> TriedStep {
    let (mark, status) = (env.workspace().join("mark"), env.outside().join("status.json"));
    let run = env.sandbox().weaken(weakness).flag(&["--status", status.to_str().unwrap()]);
    let ended = run.run(&["/bin/sh", "-c", "echo ran > mark"]);
    let text = fs::read_to_string(&status).unwrap_or_default();
    TriedStep { ended, ran: mark.exists(), status: serde_json::from_str(&text).unwrap_or_default() }
}

/// The steps that every session and every program needs, whichever the strength, and what a refusal names.
const NEEDED: &[(&str, &str)] = &[
    ("fail prctl EPERM arg0=38", "no_new_privs"),
    ("fail capset EPERM", "capabilities"),
    ("fail landlock_create_ruleset EINVAL arg2=0", "landlock"),
    ("fail landlock_add_rule EINVAL", "landlock"),
    ("fail landlock_restrict_self EPERM", "landlock"),
    ("fail seccomp EINVAL arg0=1", "seccomp"),
    // Of the launcher, or of the program where the launcher leads a session already; nobody may stay in the caller's (D6).
    ("fail setsid EPERM", "session: "),
    ("fail setsid EINVAL", "launcher: setsid"),
    // All processes, and the program alone (CLONE_VFORK).
    ("fail clone EAGAIN", "a limit of this process or host was met: namespaces: clone"),
    ("fail clone EAGAIN arg0&0x4000=0x4000", "fork: "),
];

/// D9, A14: a step that fails is a refusal with its name, never a command that runs with less.
#[test]
fn d9_a_step_that_fails_is_a_refusal() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let control = tried(&env, &["fail", "getsid", "EPERM", "arg0=12345"]);
        assert!(control.ran && control.ended.status.success(), "{:?}", control.ended);
        fs::remove_file(env.workspace().join("mark")).unwrap();
        refused(&env, NEEDED);
    });
}

/// D9: the same of a process that cannot become the one to whom orphans return, or hear of their end: a daemon would outlive
/// its call.
#[test]
fn d9_an_init_that_cannot_reap_is_a_refusal() {
    matrix(&[Host::Namespaces], |target| {
        refused(
            &TestEnv::new(target),
            &[("fail prctl EPERM arg0=36", "family: become a subreaper"), ("fail signalfd4 EINVAL", "family: hear")],
        )
    });
}

/// D9: the same of descriptors that cannot be closed (A20) and limits that cannot be set, which callgate and its launcher
/// find out for themselves first.
#[test]
fn d9_a_step_that_callgate_needs_for_itself_is_a_refusal() {
    matrix(Host::STRENGTHS, |target| {
        refused(&TestEnv::new(target), &[("fail close_range EPERM", "close"), ("fail prlimit64 EPERM arg3=0", "limit")])
    });
}

/// D7, D9: who may change its user and groups, and cannot, does not go on as who it is: in a workspace of its own, where only
/// groups would be kept, and in somebody else's. An ordinary user makes none of these calls.
#[test]
fn d7_d9_a_user_that_cannot_be_become_is_a_refusal() {
    matrix_as(User::Root, Host::STRENGTHS, |target| {
        let steps = ["setgroups", "setresgid", "setresuid"]
            .map(|call| (format!("fail {call} EPERM"), format!("identity: {call}")));
        let steps: Vec<(&str, &str)> =
            steps.iter().map(|(weakness, step)| (weakness.as_str(), step.as_str())).collect();
        for owner in [0, 4242] {
            let env = TestEnv::new(target);
            chown(env.workspace(), Some(owner), Some(owner)).unwrap();
            refused(&env, &steps);
            let control = tried(&env, &["fail", "getsid", "EPERM", "arg0=12345"]);
            assert!(control.ran && control.ended.status.success(), "{:?}", control.ended);
            assert_eq!(fs::metadata(env.workspace().join("mark")).unwrap().uid(), owner);
        }
    });
}

/// D9: namespaces come with the clone that makes the broker. Nothing is lost where unshare(2) and clone3(2), which callgate does
/// not use, are refused.
#[test]
fn d9_a_call_that_is_not_a_step_may_fail() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for weakness in [["fail", "unshare", "EPERM"], ["fail", "clone3", "ENOSYS"]] {
            let tried = tried(&env, &weakness);
            assert!(tried.ran && tried.ended.status.success(), "{weakness:?}: {:?}", tried.ended);
            let enforced = tried.status["metadata"]["enforced"].to_string();
            assert_eq!(enforced.contains("namespaces: "), target.has_namespaces(), "{weakness:?}: {enforced}");
            fs::remove_file(env.workspace().join("mark")).unwrap();
        }
    });
}

fn refused(env: &TestEnv, steps: &[(&str, &str)]) {
    for (weakness, step) in steps {
        let words: Vec<&str> = weakness.split(' ').collect();
        let tried = tried(env, &words);
        assert!(!tried.ran, "{weakness}: it ran: {:?}", tried.ended);
        assert_eq!(tried.ended.status.code(), Some(69), "{weakness}: {:?}", tried.ended);
        assert!(tried.ended.stderr.contains(step), "{weakness}: {:?}", tried.ended);
        assert!(tried.ended.stderr.contains("try: "), "{weakness} without a remedy: {:?}", tried.ended);
        assert_eq!(tried.status, Value::Null, "{weakness}");
    }
}

/// Steps that are only there with namespaces: without one the session is one without them, and says so.
const NAMESPACES: &[&str] = &[
    "fail clone EPERM arg0&0x10000000=0x10000000",
    "fail open_tree EPERM",
    "fail move_mount EPERM",
    "fail mount_setattr EPERM",
    "fail fsopen EPERM",
    "fail pivot_root EPERM",
];

/// D9: nothing of a namespace is claimed where one step towards them failed.
#[test]
fn d9_a_session_without_namespaces_claims_none() {
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        let names = |tried: &TriedStep| {
            let enforced = tried.status["metadata"]["enforced"].to_string();
            assert!(enforced.contains("landlock: "), "{enforced}");
            (enforced.contains("namespaces: "), enforced.contains("mounts: "))
        };
        assert_eq!(names(&tried(&env, &["fail", "getsid", "EPERM", "arg0=12345"])), (true, true));
        for weakness in NAMESPACES {
            let words: Vec<&str> = weakness.split(' ').collect();
            let tried = tried(&env, &words);
            assert!(tried.ran && tried.ended.status.success(), "{weakness}: {:?}", tried.ended);
            assert_eq!(names(&tried), (false, false), "{weakness}");
        }
    });
}

/// B14: a kernel without Landlock confines nothing, so nothing runs.
#[test]
fn b14_without_landlock_nothing_runs() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let tried = tried(&env, &["no-landlock"]);
        assert!(!tried.ran, "{:?}", tried.ended);
        assert_eq!(tried.ended.status.code(), Some(69), "{:?}", tried.ended);
        for word in ["Landlock", "try: ", "CONFIG_SECURITY_LANDLOCK"] {
            assert!(tried.ended.stderr.contains(word), "{:?}", tried.ended);
        }
    });
}
