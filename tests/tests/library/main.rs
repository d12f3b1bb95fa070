//! The library as an agent host embeds it: one session, many calls.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed unwrap fails the test")]

mod ablated;
mod agents;
mod approvals;
mod background;
mod batch;
mod bench;
mod declared;
mod endpoint;
mod everyday;
mod hidden;
mod host;
mod hosted;
mod model;
mod one_session;
mod pdfs;
mod programs;
mod recorded;
mod rho;
mod rules_page;
mod scopes;
mod servers;
mod shell;
mod soak;
mod surfaces;
mod task;
mod task_holds;
mod terminals;
mod tools;
mod watchdog;
mod watched;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use callgate::{Launcher, Outcome, Session, SessionSpec, Stdio, StrengthChoice, Supervisor};
use serde_json::{Value, json};

const STRENGTHS: [StrengthChoice; 2] = [StrengthChoice::Namespaces, StrengthChoice::Landlock];

fn callgate() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let binary = exe.ancestors().nth(2).unwrap().join("callgate");
    assert!(binary.is_file(), "{} is not built: cargo build -p callgate-cli", binary.display());
    binary
}

/// Runs `test` in a session of each strength with a workspace of its own.
fn in_sessions(test: impl AsyncFn(&Session, &Path)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in STRENGTHS {
        let workspace = tempfile::tempdir().unwrap();
        runtime.block_on(async {
            let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
            let spec =
                SessionSpec::developer(workspace.path()).strength(strength).mode(callgate::policy::mode::Mode::Yolo);
            let session = supervisor.open(spec).await.unwrap();
            test(&session, workspace.path()).await;
        });
    }
}

/// A host may let go of its supervisor: the launcher ends with the last session, and not a while before.
#[test]
fn a_session_outlives_its_supervisor() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let workspace = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
        let spec = SessionSpec::developer(workspace.path()).mode(callgate::policy::mode::Mode::Yolo);
        let session = supervisor.open(spec).await.unwrap();
        drop(supervisor);
        // It gave what was left ten seconds.
        assert_eq!(output(&session, "sleep 11; echo fine").await, "fine\n");
        assert_eq!(output(&session, "echo again").await, "again\n");
    });
}

/// X0-58: sessions that are opened one after the other have ids that sort in that order, and share nothing but their time.
#[test]
fn x0_58_the_ids_of_sessions_sort_by_time() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let workspace = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(supervisor.open(SessionSpec::developer(workspace.path())).await.unwrap().id().to_owned());
        }
        assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
        assert!(ids.iter().all(|id| id.len() == 30 && id.starts_with("ses_")), "{ids:?}");
        let random: std::collections::BTreeSet<_> = ids.iter().map(|id| &id[16..]).collect();
        assert_eq!(random.len(), ids.len(), "{ids:?}");
        let time = |id: &str| u128::from_str_radix(&id[4..16], 16).unwrap();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
        assert!(now.abs_diff(time(&ids[0])) < 600_000, "{ids:?} begin with another time than {now}");
    });
}

async fn output(session: &Session, command: &str) -> Value {
    let result = session.call("bash", json!({ "command": command })).await;
    assert_eq!(result.kind, Outcome::Output, "{result:?}");
    result.data.unwrap()["output"].clone()
}

/// S0-15, S0-23: each call of `bash` is a new shell: directory, variables, functions and options do not carry over.
#[test]
fn s0_15_s0_23_nothing_of_a_shell_carries_over() {
    in_sessions(async |session, workspace| {
        fs::create_dir(workspace.join("sub")).unwrap();
        let set = "cd sub; export X=1; f() { :; }; set -f; pwd; echo $X";
        let real = workspace.canonicalize().unwrap();
        assert_eq!(output(session, set).await, format!("{}\n1\n", real.join("sub").display()));
        let look = "pwd; echo \"$X\"; type -t f; case $- in *f*) echo noglob;; esac";
        assert_eq!(output(session, look).await, format!("{}\n\n", real.display()));
    });
}

/// A2: what the base system holds is for programs. A tool that follows a link of the workspace into it is refused, and its
/// error says by what.
#[test]
fn a2_a_tool_follows_no_link_into_the_base_system() {
    in_sessions(async |session, workspace| {
        fs::write(workspace.join("file"), "mine").unwrap();
        for (name, target) in [("inner", "file"), ("outer", "/usr/lib/os-release")] {
            std::os::unix::fs::symlink(target, workspace.join(name)).unwrap();
        }
        let program = output(session, "cat outer").await;
        assert!(program.as_str().unwrap().contains("NAME="), "the control: a program may, {program}");
        let inner = session.call("read", json!({ "path": "inner" })).await;
        assert_eq!(inner.data.as_ref().map(|data| &data["content"]), Some(&json!("mine")), "the control: {inner:?}");
        let outer = session.call("read", json!({ "path": "outer" })).await;
        assert!(outer.data.is_none(), "{outer:?}");
        let denial = outer.metadata.denial.unwrap();
        assert_eq!(denial.layer, callgate::Layer::Sandbox);
        assert!(denial.reason.contains("os error 13"), "{denial:?}");
        let text = outer.error_text.unwrap();
        assert_eq!(text.matches("os error 13").count(), 1, "said once: {text}");
    });
}

/// True if a process runs that has `mark` among its words.
fn runs(mark: &str) -> bool {
    fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == mark.as_bytes())
    })
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// S0-69: that end needs nothing of the host's runtime, which may have other work, or never run again.
#[test]
fn s0_69_a_dropped_call_ends_though_the_runtime_is_blocked() {
    in_sessions(async |session, workspace| {
        let beats = workspace.join("beats");
        let beat = "trap '' TERM INT HUP; while :; do echo >> beats; sleep 0.02; done";
        let length = || fs::metadata(&beats).map_or(0, |about| about.len());
        {
            let arguments = json!({ "command": format!("setsid bash -c \"{beat}\" & {beat}"), "timeout_ms": 60_000 });
            let mut call = std::pin::pin!(session.call("bash", arguments));
            tokio::select! {
                result = &mut call => panic!("it ends too soon: {result:?}"),
                () = until("it runs", || length() > 5) => {}
            }
            // The control: the runtime is blocked, and the call is not dropped.
            let (before, start) = (length(), Instant::now());
            while length() == before {
                assert!(start.elapsed() < Duration::from_secs(60), "it runs meanwhile");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        // Dropped; and nothing is polled from here on.
        let start = Instant::now();
        loop {
            let then = length();
            std::thread::sleep(Duration::from_millis(1000));
            if length() == then {
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "it runs still");
        }
        fs::remove_file(&beats).unwrap();
        assert_eq!(output(session, "echo next").await, "next\n", "its place was given up");
    });
}

/// S0-69: dropping the future of a call ends the command and its children, also one that ignores signals and has left its
/// process group; the session goes on.
#[test]
fn s0_69_dropping_a_call_ends_all_of_it_and_not_the_session() {
    in_sessions(async |session, workspace| {
        // A duration that no other process sleeps for.
        let mark = format!(
            "61.{}",
            workspace.file_name().unwrap().as_encoded_bytes().iter().map(|b| b.to_string()).collect::<String>()
        );
        let line = format!("trap '' TERM INT HUP; setsid sleep {mark} & touch ready; sleep {mark}");
        let ready = workspace.join("ready");
        let call = session.call("bash", json!({ "command": line }));
        tokio::select! {
            result = call => panic!("it ended by itself: {result:?}"),
            () = until("the command runs", || ready.exists() && runs(&mark)) => {}
        }
        until("all of it is gone", || !runs(&mark)).await;
        assert_eq!(output(session, "echo fine").await, "fine\n");
    });
}

/// S0-69: whoever waits for a program may stop waiting, and somebody else wait: its end, and what it has changed, is told then.
#[test]
fn s0_69_an_end_is_heard_however_often_a_wait_was_dropped() {
    in_sessions(async |session, workspace| {
        for round in 0_u64..40 {
            let file = workspace.join(round.to_string());
            let script = format!("echo > {}; exit 7", file.display());
            let program = session.spawn(["/bin/sh", "-c", &script], Stdio::null().unwrap()).await.unwrap();
            let mut dropped = 0;
            let end = loop {
                // From no time at all to what one poll of everything takes, wherever it then stands.
                let patience = Duration::from_micros((round * 37 + dropped * 13) % 300);
                match tokio::time::timeout(patience, program.wait()).await {
                    Ok(end) => break end.unwrap(),
                    Err(_elapsed) => dropped += 1,
                }
            };
            assert_eq!(end.code, Some(7));
            let created = &program.changes().unwrap().created;
            assert_eq!(created, &[file.display().to_string()], "after {dropped} waits that were dropped");
        }
    });
}

/// Changes by a call are in its own result, also beside others that change something else or nothing.
#[test]
fn each_of_many_programs_at_once_has_its_own_changes() {
    in_sessions(async |session, workspace| {
        for round in 0..5 {
            let one = async |n: u32| {
                let file = workspace.join(format!("{round}-{n}")).display().to_string();
                let script = if n.is_multiple_of(2) { format!("echo > {file}") } else { "true".to_owned() };
                let program = session.spawn(["/bin/sh", "-c", &script], Stdio::null().unwrap()).await.unwrap();
                assert_eq!(program.wait().await.unwrap().code, Some(0));
                let created = if n.is_multiple_of(2) { vec![file] } else { Vec::new() };
                assert_eq!(program.changes().unwrap().created, created);
            };
            tokio::join!(one(0), one(1), one(2), one(3), one(4), one(5), one(6), one(7));
        }
    });
}

/// S0-2: a tool has the same id, parameters and description in every session.
#[test]
fn s0_2_tools_are_the_same_in_every_session() {
    let seen = std::cell::RefCell::new(Vec::new());
    in_sessions(async |session, _workspace| {
        let registry = session.registry();
        let tools: Vec<_> = registry
            .tools()
            .map(|tool| (tool.name.clone(), tool.description.clone(), tool.parameters.clone()))
            .collect();
        seen.borrow_mut().push(tools);
    });
    let seen = seen.into_inner();
    assert!(seen.len() == 2 && !seen[0].is_empty());
    assert_eq!(seen[0], seen[1]);
}

/// S0-2, S0-3, S0-9: another agent, with another profile, has fewer tools, and each of them by the same id and with the same
/// words; a call by that id reaches it. (Of `write` the profile `create-only` is told, which makes new files alone.)
#[test]
fn s0_2_s0_3_s0_9_an_agent_s_profile_renames_nothing() {
    use callgate::policy::profile::Profile;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let workspace = tempfile::tempdir().unwrap();
    fs::write(workspace.path().join("there"), "word").unwrap();
    for strength in STRENGTHS {
        runtime.block_on(async {
            let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
            let open = async |profile: Profile| {
                let spec = SessionSpec::developer(workspace.path()).strength(strength).profile(profile);
                supervisor.open(spec).await.unwrap()
            };
            let tools = |session: &Session| -> Vec<(String, String, String)> {
                let registry = session.registry();
                let each = registry.tools();
                each.map(|tool| (tool.name.clone(), tool.description.clone(), tool.parameters.to_string())).collect()
            };
            let all = tools(&open(Profile::default()).await);
            let names: Vec<&str> = all.iter().map(|(name, ..)| name.as_str()).collect();
            let hosted = ["todo", "question", "skill", "tool_search"];
            assert_eq!(names, [&["read", "write", "edit", "glob", "grep", "bash", "web_fetch"][..], &hosted].concat());
            for (profile, wanted) in [
                ("readonly", &[&["read", "glob", "grep", "bash"][..], &hosted].concat()[..]),
                ("plan", &[&["read", "glob", "grep"][..], &hosted].concat()),
                ("developer-bash-only", &["bash"]),
                ("eval", &names),
            ] {
                let session = open(Profile::built_in(profile).unwrap()).await;
                let kept: Vec<_> = all.iter().filter(|(name, ..)| wanted.contains(&name.as_str())).cloned().collect();
                assert_eq!(tools(&session), kept, "{profile}");
                if wanted.contains(&"grep") {
                    let found = session.call("grep", json!({ "pattern": "word" })).await;
                    assert_eq!(found.kind, Outcome::Output, "{profile}: {found:?}");
                }
            }
            let create = Profile::parse("shell: unrestricted\nfile_write: create-only\n", "p.yaml").unwrap();
            let create = tools(&open(create).await);
            let names: Vec<&str> = create.iter().map(|(name, ..)| name.as_str()).collect();
            assert_eq!(names, [&["read", "write", "glob", "grep", "bash"][..], &hosted].concat());
        });
    }
}

/// D11: a call that meets a limit ends, and nothing else does: its siblings in the session go on, and so does the session.
#[test]
fn d11_a_bomb_ends_and_its_siblings_go_on() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in STRENGTHS {
        let workspace = tempfile::tempdir().unwrap();
        runtime.block_on(async {
            let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
            let mut spec = SessionSpec::developer(workspace.path()).strength(strength).mode(callgate::policy::mode::Mode::Yolo);
            for limit in ["memory=128MiB", "processes=48", "disk=32MiB"] {
                spec.limits.set(limit).unwrap();
            }
            let session = supervisor.open(spec).await.unwrap();
            for (limit, bomb) in [
                ("memory", "perl -e 'push @x, q(x) x 1_000_000 while 1'"),
                ("memory", "python3 -c 'import os\nx = []\nwhile True: x.append(os.memfd_create(\"x\")); os.write(x[-1], b\"x\" * 1_000_000)'"),
                ("processes", "perl -e 'fork while 1'"),
                ("processes", "perl -e 'use POSIX; while (1) { fork; POSIX::setsid() }'"),
                // Of the session's own directory, which is memory with namespaces.
                ("disk", "while :; do i=$((i+1)); head -c 1000000 /dev/zero > $TMPDIR/f$i; done"),
            ] {
                // It holds a memfd itself, and a file in the same tmpfs.
                let quiet = "echo mine > $TMPDIR/mine; sleep 3; cat $TMPDIR/mine";
                let (quiet, ended) = tokio::join!(output(&session, quiet), session.call("bash", json!({ "command": bomb })));
                assert_eq!(quiet, "mine\n", "{strength:?}: {bomb}");
                assert_eq!(ended.kind, Outcome::Error, "{strength:?}: {bomb}: {ended:?}");
                assert_eq!(ended.metadata.denial.map(|denial| denial.asked).as_deref(), Some(limit), "{bomb}");
                assert_eq!(output(&session, "rm -f $TMPDIR/f*; echo fine").await, "fine\n", "{strength:?}: after {bomb}");
            }
        });
    }
}
