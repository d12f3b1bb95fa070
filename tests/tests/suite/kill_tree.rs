//! A call dies with everything it started, however that tried to hide (D2, D12).

use std::path::Path;
use std::process::Stdio;

use callgate_tests::{Host, TestEnv, eventually, matrix};

/// The processes whose pids a probe left in `file` and that still run it: seen from the host, where a PID namespace's
/// numbers mean nothing, so they are found by the file's name in their command line.
fn survivors(file: &Path) -> Vec<String> {
    let file = file.to_str().unwrap();
    let listing = std::fs::read_dir("/proc").unwrap().flatten();
    listing
        .filter_map(|entry| {
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).into_owned();
            let words: Vec<&str> = line.split('\0').collect();
            let is_probe = words.first().is_some_and(|program| program.ends_with("/probe"));
            (is_probe && words.contains(&file)).then(|| entry.file_name().to_string_lossy().into_owned())
        })
        .collect()
}

fn kill(pids: &[String]) {
    for pid in pids {
        let killed = std::process::Command::new("kill").args(["-9", pid]).status();
        assert!(killed.is_ok());
    }
}

/// D2: a daemon that forked twice, left the session and closed every descriptor is gone when the call has ended.
#[test]
fn d2_a_double_forked_daemon_does_not_outlive_the_call() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for (run, survives) in [(env.bare(), true), (env.sandbox(), false)] {
            let file = env.workspace().join(format!("pid-{survives}"));
            run.probe(&["double-fork-daemon", file.to_str().unwrap(), "60"]).assert_ok();
            let left = survivors(&file);
            kill(&left);
            assert_eq!(!left.is_empty(), survives, "{left:?}");
        }
    });
}

/// D2: many children, none of which the parent waits for.
#[test]
fn d2_unwaited_children_do_not_outlive_the_call() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for (run, survives) in [(env.bare(), true), (env.sandbox(), false)] {
            let file = env.workspace().join(format!("pids-{survives}"));
            let words = ["fork-children", "20", "60", file.to_str().unwrap()];
            run.probe(&words).assert_ok();
            let left = survivors(&file);
            kill(&left);
            assert_eq!(!left.is_empty(), survives, "{left:?}");
        }
    });
}

/// D12: killing the supervisor, by the signal that it cannot catch, kills a tool that ignores all the others.
#[test]
fn d12_killing_the_supervisor_kills_the_call() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let file = env.workspace().join("pid");
        let mut command = env.sandbox().probe_command(&["sigterm-ignorer", "60", file.to_str().unwrap()]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut supervisor = command.spawn().unwrap();
        eventually("the tool runs", || {
            let ended = supervisor.try_wait().unwrap();
            assert!(ended.is_none(), "callgate ended: {ended:?}");
            std::fs::read_to_string(&file).is_ok_and(|pid| !pid.is_empty())
        });
        assert!(!survivors(&file).is_empty(), "the control: it runs");
        supervisor.kill().unwrap();
        supervisor.wait().unwrap();
        eventually("the tool is gone", || survivors(&file).is_empty());
    });
}

/// D2: a polite request to the supervisor ends a tool that ignores it.
#[test]
fn d2_terminating_the_supervisor_ends_a_tool_that_ignores_signals() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let file = env.workspace().join("pid");
        let mut command = env.sandbox().probe_command(&["sigterm-ignorer", "60", file.to_str().unwrap()]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut supervisor = command.spawn().unwrap();
        eventually("the tool runs", || std::fs::read_to_string(&file).is_ok_and(|pid| !pid.is_empty()));
        let asked = std::process::Command::new("kill").arg(supervisor.id().to_string()).status().unwrap();
        assert!(asked.success());
        eventually("callgate has ended", || supervisor.try_wait().unwrap().is_some());
        eventually("the tool is gone", || survivors(&file).is_empty());
    });
}
