//! A sandbox in a sandbox: whoever starts callgate inside gets no more than it has itself, and reaches nothing of the callgate
//! that it is confined by (E3).

use std::fs;
use std::process::Stdio;

use callgate_tests::{Binaries, Host, ProgramOutcome, TestEnv, eventually, matrix};
use serde_json::json;

fn callgate() -> String {
    Binaries::of_this_build().callgate().display().to_string()
}

/// E3: `callgate run` and `callgate call` inside read and write nothing outside, whatever they are told to grant.
#[test]
fn e3_callgate_inside_grants_nothing() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let secret = env.file("secret", "hunter2");
        let (outside, callgate) = (env.outside().display().to_string(), callgate());
        let manifest = format!(
            "id = \"x\"\nmode = \"yolo\"\n[[requires.shell]]\ncmd = \"*\"\n[requires.fs]\nwrite = [\"{outside}/**\", \"{{workspace}}/**\"]\n"
        );
        env.workspace_file("m.toml", &manifest);
        let new = env.outside().join("new").display().to_string();
        let run = ["run", "--read", &outside, "--write", &outside, "--"];
        let call = ["call", "--manifest", "m.toml"];
        let write = json!({ "path": new, "content": "new" }).to_string();
        let touch = json!({ "command": format!("touch {new}; cat {}", secret.text()) }).to_string();
        let read = json!({ "path": secret.text() }).to_string();
        let attempts: Vec<Vec<&str>> = vec![
            [&run[..], &["/usr/bin/touch", &new]].concat(),
            [&run[..], &["/bin/cat", secret.text()]].concat(),
            [&call[..], &["write", &write]].concat(),
            [&call[..], &["read", &read]].concat(),
            [&call[..], &["bash", &touch]].concat(),
        ];
        // Whether it has read the one or made the other.
        let got = |ended: &ProgramOutcome| {
            let made = fs::remove_file(&new).is_ok();
            made || ended.stdout.contains("hunter2")
        };
        for attempt in &attempts {
            let words = [&[callgate.as_str()][..], attempt].concat();
            let outside = env.weakened().run(&words);
            assert!(outside.status.success() && got(&outside), "the control: {attempt:?}: {outside:?}");
            // By hand, and by a tool of an agent's.
            let by_run = env.sandbox().read(&callgate).run(&words);
            assert!(!got(&by_run), "{attempt:?}: {by_run:?}");
            // The host cannot enforce it (one listener for a chain of filters); or what is to be granted is not there to see.
            let status = target.by_strength(if attempt[0] == "run" { 64 } else { 65 }, 69);
            assert_eq!(by_run.status.code(), Some(status), "{attempt:?}: {by_run:?}");
            let line = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
            let granted = format!(
                "id = \"x\"\n[[requires.shell]]\ncmd = \"*\"\n[requires.fs]\nread = [\"{callgate}\"]\nwrite = [\"{{workspace}}/**\"]\n"
            );
            env.workspace_file("outer.toml", &granted);
            let bash = json!({ "command": format!("{line}; echo status $?") }).to_string();
            let by_call = env.weakened().run(&[&callgate, "call", "--manifest", "outer.toml", "bash", &bash]);
            assert!(!got(&by_call), "{attempt:?}: {by_call:?}");
            assert!(
                by_call.stdout.contains("status ") && !by_call.stdout.contains("status 0"),
                "{attempt:?}: {by_call:?}"
            );
            secret.assert_contents("hunter2");
        }
        // Nor where nothing more is asked for than there is.
        let plain = env.sandbox().read(&callgate).run(&[&callgate, "run", "--", "/bin/true"]);
        assert_eq!(plain.status.code(), Some(69), "{plain:?}");
        assert!(plain.stderr.contains("try: run callgate outside"), "{plain:?}");
    });
}

/// E3: nothing inside takes a descriptor of the processes that confine it, or looks into them. They go on, and say how it ended.
#[test]
fn e3_who_confines_cannot_be_reached_from_inside() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let probe = Binaries::of_this_build().probe().display().to_string();
        let mut bystander = env.bystander();
        for act in [&["pidfd-getfd", bystander.text().as_str(), "0"][..], &["proc-pid", &bystander.text(), "fd"]] {
            env.bare().probe(act).assert_ok();
        }
        let script = format!(
            "until [ -s pids ]; do sleep 0.05; done; while read -r pid; do for fd in 0 1 2 3 4 5 6 7 8; do {probe} pidfd-getfd $pid $fd; done; \
             for what in fd mem environ; do {probe} proc-pid $pid $what; done; {probe} ptrace-seize $pid; done < pids; {probe} list-fds; exit 7"
        );
        let mut command = env.sandbox().command(&["/bin/bash", "-c", &script]);
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        let family = || {
            let mut all = vec![child.id()];
            let mut next = 0;
            while let Some(pid) = all.get(next).copied() {
                next += 1;
                all.extend(children(pid));
            }
            all
        };
        eventually("the sandbox stands", || family().iter().any(|pid| name_of(*pid) == "bash"));
        let confining: Vec<u32> =
            family().into_iter().filter(|pid| !["bash", "sleep"].contains(&name_of(*pid).as_str())).collect();
        assert!(confining.len() >= 3, "supervisor, broker and worker: {confining:?}");
        let pids: String = confining.iter().chain([&bystander.pid()]).map(|pid| format!("{pid}\n")).collect();
        env.workspace_file("pids", &pids);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<serde_json::Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let (fds, acts) = lines.split_last().unwrap();
        assert_eq!(acts.len(), (confining.len() + 1) * 13, "{said}");
        for act in acts {
            let errno = act["name"].as_str().unwrap_or("none");
            assert!(["EPERM", "ESRCH", "EACCES", "ENOENT"].contains(&errno), "{act}");
        }
        assert_eq!(fds["ok"], true, "{fds}");
        assert_eq!(output.status.code(), Some(7), "{said}");
        assert!(bystander.is_alive());
    });
}

fn name_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// The children of all of a process's threads.
fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}
