//! The weakened hosts: each mode denies what it says, and the same act succeeds without it.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use callgate_tests::{Binaries, Host, ProgramOutcome, ProgramRunner, Target, TestEnv, User, eventually, matrix, skip};
use libc::{EACCES, EINVAL, ENOSYS, EPERM};

fn env() -> TestEnv {
    TestEnv::new(Target { host: Host::NoNamespaces, user: User::Ordinary })
}

/// `weaken MODES -- probe ACT`, as whoever runs the tests.
fn probe_line(modes: &str, act: &str) -> (Option<i32>, String) {
    let binaries = Binaries::of_this_build();
    let output = Command::new(binaries.weaken())
        .args(modes.split(' '))
        .arg("--")
        .arg(binaries.probe())
        .args(act.split(' '))
        .output()
        .unwrap();
    let line = String::from_utf8(output.stdout).unwrap();
    let line: serde_json::Value = serde_json::from_str(&line)
        .unwrap_or_else(|error| panic!("{modes} -- {act}: {error}: {line}{}", String::from_utf8_lossy(&output.stderr)));
    let errno = line["errno"].as_i64().map(|number| i32::try_from(number).unwrap());
    (errno, line.to_string())
}

#[track_caller]
fn check(modes: &str, act: &str, wanted: Option<i32>) {
    let (errno, line) = probe_line(modes, act);
    assert_eq!(errno, wanted, "{modes} -- {act}: {line}");
}

/// A mode that changes nothing that the acts below do.
const NOTHING: &str = "fail getpgid EPERM arg0=12345";

#[test]
fn no_userns_denies_every_way_to_a_namespace() {
    for (act, errno) in
        [("unshare-user", EPERM), ("unshare-all", EPERM), ("clone-newuser", EPERM), ("clone3-newuser", ENOSYS)]
    {
        check(NOTHING, act, None);
        check("no-userns", act, Some(errno));
    }
    check("no-userns", "fork-children 1 0", None);
    check("no-userns", "loopback-self", None);
}

#[test]
fn docker_denies_what_its_profile_leaves_out_and_nothing_else() {
    for act in ["unshare-user", "clone-newuser", "bpf", "perf", "keyctl", "add-key", "fsopen", "userfaultfd"] {
        check(NOTHING, act, None);
        check("docker", act, Some(EPERM));
    }
    check("docker", "clone3-newuser", Some(ENOSYS));
    check("docker", "io-uring-setup", Some(EPERM));
    check("docker", "socket 40 1 0", Some(EPERM));
    check("docker", "personality 0x40000", Some(EPERM));
    check("docker", "syscall 9999", Some(EPERM));
    for act in [
        "personality 0xffffffff",
        "loopback-self",
        "landlock-abi",
        "landlock-layer",
        "seccomp-listener",
        "memfd-exec",
        "fork-children 2 0",
        "mq-open callgate-docker",
    ] {
        check("docker", act, None);
    }
}

#[test]
fn docker_leaves_root_its_fourteen_capabilities() {
    let env = TestEnv::new(Target { host: Host::Docker, user: User::Root });
    if env.target().user.uid() != 0 || !env.bare().probe(&["capabilities"]).fact("uid").eq(&0) {
        return skip("root", "capabilities under Docker");
    }
    let seen = env.weakened().probe(&["capabilities"]);
    for set in ["effective", "permitted", "bounding"] {
        assert_eq!(seen.fact(set), "00000000a80425fb", "{set}");
    }
    assert_eq!(seen.fact("no_new_privs"), 0);
    assert_ne!(env.bare().probe(&["capabilities"]).fact("bounding"), "00000000a80425fb");
}

#[test]
fn no_landlock_is_enosys() {
    check(NOTHING, "landlock-abi", None);
    check("no-landlock", "landlock-abi", Some(ENOSYS));
    check("no-landlock", "landlock-layer", Some(ENOSYS));
}

#[test]
fn yama_denies_attaching_and_reading_memory() {
    let env = env();
    let target = env.bystander();
    for act in ["ptrace-attach", "ptrace-seize", "process-vm-readv"] {
        let act = [act, &target.text()];
        env.bare().probe(&act).assert_ok();
        let yama = TestEnv::new(Target { host: Host::Yama, user: User::Ordinary });
        yama.weakened().probe(&act).assert_errno(EPERM);
    }
}

#[test]
fn fail_fails_one_call_and_only_with_its_arguments() {
    check(NOTHING, "own-pid", None);
    check("fail getsid EACCES", "own-pid", Some(EACCES));
    check("fail prctl EINVAL arg0=4", "dumpable 1", Some(EINVAL));
    check("fail prctl EINVAL arg0=4 arg1=0", "dumpable 1", None);
    check("fail prctl EINVAL arg0=4 arg1=0", "dumpable 0", Some(EINVAL));
    check("fail prctl EINVAL arg1&0xfe=0", "dumpable 1", Some(EINVAL));
    check("fail getsid 5 fail getpgid EIO", "own-pid", Some(libc::EIO));
}

#[test]
fn an_older_landlock_answers_its_version_and_refuses_newer_rights() {
    let rights = |bits: u32| (1_u64 << bits) - 1;
    for (abi, fs_known, fs_unknown) in
        [(1, 13, Some(14)), (2, 14, Some(15)), (3, 15, Some(16)), (4, 15, Some(16)), (5, 16, None), (6, 16, None)]
    {
        let mode = format!("abi {abi}");
        let (errno, line) = probe_line(&mode, "landlock-abi");
        assert_eq!(errno, None, "{line}");
        assert!(line.contains(&format!("\"abi\":{abi},")), "{line}");
        check(&mode, &format!("landlock-layer {}", rights(fs_known)), None);
        if let Some(bits) = fs_unknown {
            check(NOTHING, &format!("landlock-layer {}", rights(bits)), None);
            check(&mode, &format!("landlock-layer {}", rights(bits)), Some(EINVAL));
        }
        check(&mode, "landlock-layer 1 3", (abi < 4).then_some(libc::E2BIG));
        check(&mode, "landlock-layer 1 0 3", (abi < 6).then_some(libc::E2BIG));
    }
    check("abi 0", "landlock-abi", Some(ENOSYS));
}

/// Runs a shell under the tracer.
fn traced(script: &str) -> ProgramOutcome {
    let env = TestEnv::new(Target { host: Host::Abi(3), user: User::Ordinary });
    env.weakened().run(&["/bin/sh", "-c", script])
}

#[test]
fn the_tracer_passes_exit_status_and_signals_through() {
    assert_eq!(traced("exit 7").status.code(), Some(7));
    assert_eq!(traced("kill -TERM $$").status.signal(), Some(libc::SIGTERM));
    assert_eq!(traced("trap 'exit 9' USR1; kill -USR1 $$; sleep 5").status.code(), Some(9));
    assert_eq!(traced("(exit 3) & wait $!").status.code(), Some(3));
}

#[test]
fn the_tracer_keeps_a_stopped_process_stopped_until_it_is_continued() {
    let script = "sleep 30 & kill -STOP $!; sleep 0.2; grep State /proc/$!/status; \
                  kill -CONT $!; sleep 0.2; grep State /proc/$!/status; kill $!; wait $!; echo $?";
    let seen = traced(script).stdout;
    let seen: Vec<&str> = seen.lines().collect();
    // A traced process that is stopped shows as `t`; without LISTEN it would be asleep again.
    assert!(seen[0].contains("t (tracing stop)"), "{seen:?}");
    assert!(seen[1].contains("S (sleeping)"), "{seen:?}");
    assert_eq!(seen[2], "143");
}

/// A supervisor that forgets a daemon must be seen to, so the tracer itself must not kill what outlives the command.
#[test]
fn the_tracer_lets_go_of_what_outlives_the_command() {
    let env = TestEnv::new(Target { host: Host::Abi(3), user: User::Ordinary });
    let file = env.workspace().join("pid");
    env.weakened().probe(&["double-fork-daemon", file.to_str().unwrap(), "30"]).assert_ok();
    let mut pid = String::new();
    eventually("the daemon tells its number", || {
        pid = std::fs::read_to_string(&file).unwrap_or_default().trim().to_owned();
        !pid.is_empty()
    });
    let alive = env.bare().probe(&["kill", &pid, "9"]);
    alive.assert_ok();
}

#[test]
fn uid_leaves_no_group_and_no_capability() {
    let env = env();
    let seen = env.bare().probe(&["capabilities"]);
    assert_eq!(seen.assert_ok().fact("uid"), env.target().user.uid());
    if seen.fact("uid") == 4242 {
        assert_eq!(seen.fact("groups"), serde_json::json!([]));
        assert_eq!(seen.fact("effective"), "0000000000000000");
        assert_eq!(seen.fact("permitted"), "0000000000000000");
        env.bare().probe(&["setuid", "0"]).assert_errno(EPERM);
    }
}

#[test]
fn what_cannot_be_weakened_is_not_run() {
    for line in ["nosuch -- true", "fail nosuch EPERM -- true", "docker", "-- true", "fail execve EPERM -- true"] {
        let status = Command::new(Binaries::of_this_build().weaken()).args(line.split(' ')).output().unwrap().status;
        assert_eq!(status.code(), Some(75), "{line}");
    }
}

/// The hosts that the matrix offers run a program at all, whoever runs it.
#[test]
fn every_host_runs_a_program() {
    matrix(Host::ALL, |target| {
        let env = TestEnv::new(target);
        let run: ProgramRunner = env.weakened();
        let uid = run.probe(&["capabilities"]);
        assert_eq!(uid.assert_ok().fact("uid"), target.user.uid());
    });
}
