//! Files about itself that a program reads in procfs, where that is the host's (A7): the first program of a call reads
//! what tells of itself, and nothing that tells of the host or of others. With namespaces `/proc` is the session's own,
//! and readable.

use std::fs;

use callgate_tests::{Host, Target, TestEnv, matrix};
use libc::{EACCES, ENOENT};

/// Below `/proc/self`: what may be read.
const OWN: &[&str] = &["auxv", "cmdline", "comm", "environ", "limits", "maps", "smaps", "stat", "statm", "status"];

const WITHOUT: &[Host] = &[Host::NoNamespaces];

#[test]
fn a7_the_first_program_reads_of_itself() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for file in OWN {
            env.sandbox().probe(&["read", &format!("/proc/self/{file}")]).assert_ok();
        }
        let status = env.sandbox().run(&["/bin/cat", "/proc/self/comm", "/proc/self/fdinfo/0"]);
        assert!(status.stdout.starts_with("cat\npos:"), "{status:?}");
        let listed = env.sandbox().run(&["/bin/ls", "/proc/self/fd"]);
        assert_eq!(listed.stdout, "0\n1\n2\n3\n", "{listed:?}");
        // A program that another has made of itself is the same process; the last command of a shell is.
        let replaced = env.sandbox().run(&["/bin/sh", "-c", "exec /bin/cat /proc/self/comm"]);
        assert_eq!(replaced.stdout, "cat\n", "{replaced:?}");
    });
}

/// Nothing there leads further, and nothing is written. Each is readable bare, to those whom modes allow it.
#[test]
fn a7_what_tells_of_the_host_is_not_readable() {
    matrix(WITHOUT, |target| {
        let env = TestEnv::new(target);
        for host in [
            "net/tcp",
            "net/unix",
            "net/route",
            "mountinfo",
            "mounts",
            "mountstats",
            "cgroup",
            "mem",
            "uid_map",
            "attr/current",
            "root/etc/shadow",
        ] {
            let path = format!("/proc/self/{host}");
            if env.bare().probe(&["read", &path]).is_ok() {
                env.sandbox().probe(&["read", &path]).assert_errno(EACCES);
            }
        }
        env.bare().probe(&["read", "/proc/self/mountinfo"]).assert_ok();
        env.bare().probe(&["read", "/proc/self/net/tcp"]).assert_ok();
        for directory in ["", "task", "net", "map_files", "ns", "root"] {
            let path = format!("/proc/self/{directory}");
            assert!(env.bare().run(&["/bin/ls", &path]).status.success(), "{path}");
            let ended = env.sandbox().run(&["/bin/ls", &path]);
            assert!(!ended.status.success() && ended.stdout.is_empty(), "{path}: {ended:?}");
        }
        let thread =
            env.sandbox().run(&["/bin/sh", "-c", "exec /bin/cat /proc/self/task/$$/net/tcp /proc/thread-self/stat"]);
        assert!(!thread.status.success() && thread.stdout.is_empty(), "{thread:?}");
    });
}

#[test]
fn a7_nothing_of_oneself_is_written() {
    matrix(WITHOUT, |target| {
        let env = TestEnv::new(target);
        for file in ["comm", "mem", "oom_score_adj", "clear_refs", "timerslack_ns", "attr/current", "status"] {
            env.sandbox().probe(&["write", &format!("/proc/self/{file}"), "0"]).assert_errno(EACCES);
        }
        env.bare().probe(&["write", "/proc/self/comm", "0"]).assert_ok();
    });
}

/// Files outside stay so by whatever link of procfs.
#[test]
fn a7_links_of_oneself_lead_nowhere_else() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (theirs, mine) = (env.file("theirs", "secret"), env.workspace_file("mine", "mine"));
        for link in ["root", "cwd/../../../../../../../.."] {
            let by = |path: &str| format!("/proc/self/{link}{path}");
            let (theirs, mine) = (by(theirs.text()), by(mine.text()));
            env.bare().probe(&["read", &theirs]).assert_ok();
            env.sandbox().probe(&["read", &theirs]).assert_errno(denied(target));
            env.sandbox().probe(&["read", &mine]).assert_ok();
        }
        theirs.assert_contents("secret");
    });
}

fn denied(target: Target) -> i32 {
    target.by_strength(ENOENT, EACCES)
}

/// Other processes, the program's children among them, are not shown; nor are calls of the same session to each other.
#[test]
fn a7_others_are_not_read() {
    matrix(WITHOUT, |target| {
        let env = TestEnv::new(target);
        let bystander = env.bystander();
        for file in ["cmdline", "status", "stat", "maps", "environ"] {
            let path = format!("/proc/{}/{file}", bystander.pid());
            env.sandbox().probe(&["read", &path]).assert_errno(EACCES);
            assert!(fs::metadata(&path).is_ok(), "it is there");
        }
        // The control is in the same call: a shell reads of itself, and what it starts does not.
        let script = "read -r _ < /proc/self/stat && echo own; cat /proc/self/stat; : ";
        let ended = env.sandbox().run(&["/bin/bash", "-c", script]);
        assert_eq!(ended.stdout, "own\n", "{ended:?}");
        assert!(ended.stderr.contains("Permission denied"), "{ended:?}");
    });
}

/// The word of `doctor` about command lines is true in both strengths.
#[test]
fn a7_doctor_says_what_is_true_of_command_lines() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let callgate = callgate_tests::Binaries::of_this_build().callgate().display().to_string();
        let ended = env.weakened().run(&[&callgate, "doctor"]);
        let line = ended.stdout.lines().find(|line| line.starts_with("command lines")).unwrap_or_default();
        let wanted = target.by_strength("out of sight", "cannot be read");
        assert!(line.contains("ok") && line.contains(wanted), "{ended:?}");
    });
}
