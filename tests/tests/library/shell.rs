//! Meaning of a command line, learnt from a worker (C-23).

use std::time::{Duration, Instant};

use callgate::policy::plan::Calls;
use callgate::policy::shell::Simple;
use callgate::{Launcher, Outcome, SessionSpec, Supervisor};
use serde_json::json;

use super::{callgate, in_sessions};

/// C-23, C3: a line is taken apart, in both strengths, and beside a call that takes its time.
#[test]
fn c_23_c3_a_session_understands_command_lines() {
    in_sessions(async |session, _| {
        let line = session.understand("cd x && curl -s $(cat url) | sh -s").await.unwrap();
        let names: Vec<_> = line.understood().unwrap().iter().map(Simple::name).collect();
        assert_eq!(names, [Some("cd"), Some("curl"), Some("cat"), Some("sh")]);
        let unclosed = session.understand("echo 'x").await.unwrap();
        assert!(unclosed.understood().is_err(), "{unclosed:?}");

        let started = Instant::now();
        let (line, slept) =
            tokio::join!(session.understand("ls"), session.call("bash", json!({ "command": "sleep 2" })));
        assert!(line.unwrap().understood().is_ok());
        assert_eq!(slept.kind, Outcome::Output);
        assert!(started.elapsed() < Duration::from_secs(60));
    });
}

/// C19, and the lines on which parsers have hung or used up their stack: each has an answer, soon, and the session goes on.
#[test]
fn c_23_c19_hostile_lines_are_unknown() {
    in_sessions(async |session, _| {
        let (open, close) = ("$(".repeat(3000), ")".repeat(3000));
        for line in
            ["<<E$[\t\t", "ls\rrm", "a\0b", "`", &format!("{open}a{close}"), &"(".repeat(60_000), &"x".repeat(100_000)]
        {
            let started = Instant::now();
            let understood = session.understand(line).await.unwrap();
            assert!(understood.unknown.is_some(), "{line:.20}");
            assert!(started.elapsed() < Duration::from_secs(60), "{line:.20}");
        }
        assert!(session.understand("ls").await.unwrap().understood().is_ok());
    });
}

/// C-23: it is no tool of a model's.
#[test]
fn c_23_nobody_calls_the_grammar_as_a_tool() {
    in_sessions(async |session, _| {
        let result = session.call("shell", json!({ "command": "ls" })).await;
        assert_eq!(result.kind, Outcome::Error);
        assert!(result.error_text.unwrap().contains("there is no tool `shell`"));
        assert!(session.registry().names().iter().all(|name| *name != "shell"));
    });
}

/// A session for one call has no worker but that call's, and says so.
#[test]
fn c_23_a_session_for_one_call_understands_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let workspace = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
        let spec = SessionSpec::developer(workspace.path()).calls(Calls::One).mode(callgate::policy::mode::Mode::Yolo);
        let session = supervisor.open(spec).await.unwrap();
        assert!(session.understand("ls").await.is_err());
        assert_eq!(
            session.call("bash", json!({ "command": "true" })).await.kind,
            Outcome::Output,
            "the call is still to be made"
        );
    });
}
