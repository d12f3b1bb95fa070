//! Several calls at once, and ending what is in flight (X1-22, C-17, S0-69).

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use callgate::policy::mode::Mode;
use callgate::policy::rules::{Action, Rule, RuleScope};
use callgate::{
    Answer, Approver, Asked, EventKind, Launcher, Outcome, Question, Session, SessionSpec, SessionState, Store,
    StoreError, Subject, Supervisor, Tool,
};
use serde_json::{Value, json};

use super::{STRENGTHS, callgate, in_sessions, output, runs, until};

/// Keeps what it is asked, and what of the batch is there at that moment.
#[derive(Debug)]
struct BatchPerson {
    workspace: PathBuf,
    asked: Mutex<Vec<(String, Vec<String>)>>,
}

impl Approver for BatchPerson {
    fn name(&self) -> &'static str {
        "person"
    }

    fn ask(&self, question: Arc<Question>) -> Asked {
        let there =
            fs::read_dir(&self.workspace).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let command = question.arguments["command"].as_str().unwrap().to_owned();
        let is_no = command.contains("no");
        self.asked.lock().unwrap().push((command, there.collect()));
        Box::pin(async move {
            // Whoever would run meanwhile can.
            tokio::time::sleep(Duration::from_millis(20)).await;
            Some(if is_no { Answer::Reject } else { Answer::Once })
        })
    }
}

fn supervisor() -> Supervisor {
    Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap()
}

fn bash(command: &str) -> (&'static str, Value) {
    ("bash", json!({ "command": command }))
}

/// X1-22, C-17: people are asked in the order of the calls and before any of them runs; what passes runs in order; the results
/// are in the order of the calls, and what is denied or fails fails nothing else.
#[test]
fn x1_22_c_17_all_are_asked_about_before_any_runs() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in STRENGTHS {
        let workspace = tempfile::tempdir().unwrap();
        let person = Arc::new(BatchPerson { workspace: workspace.path().to_owned(), asked: Mutex::default() });
        runtime.block_on(async {
            let spec = SessionSpec::developer(workspace.path()).strength(strength).mode(Mode::Ask);
            let allowed = Rule::new("bash", Action::Allow).pattern("touch free*");
            let spec = spec.rule(RuleScope::Session, allowed).approver(person.clone());
            let session = supervisor().open(spec).await.unwrap();
            let calls = [
                bash("touch free-1"),
                bash("ls > first"),
                ("read", json!({ "path": "first" })),
                bash("touch no"),
                ("no-such-tool", json!({})),
                ("read", json!({ "path": "absent" })),
                bash("ls > second"),
                bash("touch free-2"),
            ];
            let results = session.batch(calls).await;
            let kinds: Vec<bool> = results.iter().map(|result| result.kind == Outcome::Output).collect();
            assert_eq!(kinds, [true, true, true, false, false, false, true, true], "{results:#?}");
            assert_eq!(results[2].data.as_ref().unwrap()["content"], "first\nfree-1\n");
            let denial = results[3].metadata.denial.as_ref().unwrap();
            assert_eq!(denial.layer, callgate::Layer::Person);
            assert!(results[4].error_text.as_ref().unwrap().contains("there is no tool `no-such-tool`"));
        });
        let asked = person.asked.lock().unwrap();
        let nothing = Vec::<String>::new;
        let expected = ["ls > first", "touch no", "ls > second"].map(|command| (command.to_owned(), nothing()));
        assert_eq!(*asked, expected, "in order, and nothing of the batch was there");
        assert_eq!(fs::read_to_string(workspace.path().join("second")).unwrap(), "first\nfree-1\nsecond\n");
        assert!(workspace.path().join("free-2").exists() && !workspace.path().join("no").exists());
    }
}

/// C-17: the calls of a batch that only read meet one another; those that change something meet nobody, and keep their order.
#[test]
fn x1_22_c_17_readers_meet_and_others_run_alone_in_order() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let workspace = tempfile::tempdir().unwrap();
    let (meeting, log) = (Arc::new(tokio::sync::Barrier::new(3)), Arc::new(Mutex::new(Vec::new())));
    let meet = {
        let meeting = Arc::clone(&meeting);
        move |_call: callgate::HandlerCall| {
            let meeting = Arc::clone(&meeting);
            async move { Ok::<_, String>(json!(meeting.wait().await.is_leader())) }
        }
    };
    let change = {
        let log = Arc::clone(&log);
        move |call: callgate::HandlerCall| {
            let (log, name) = (Arc::clone(&log), call.args["name"].as_str().unwrap().to_owned());
            async move {
                log.lock().unwrap().push(format!("{name} begins"));
                for _ in 0..50 {
                    tokio::task::yield_now().await;
                }
                log.lock().unwrap().push(format!("{name} ends"));
                if name == "b" { Err("b fails".to_owned()) } else { Ok(json!(name)) }
            }
        }
    };
    let parameters = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    runtime.block_on(async {
        let spec = SessionSpec::developer(workspace.path())
            .mode(Mode::Yolo)
            .tool(Tool::host("meet", meet).subject(Subject::Read).side_by_side().timeout(Duration::from_secs(60)))
            .tool(Tool::host("change", change).parameters(parameters));
        let session = supervisor().open(spec).await.unwrap();
        let change = |name: &str| ("change", json!({ "name": name }));
        let (meet, read) = (("meet", json!({})), ("read", json!({ "path": "." })));
        let calls =
            [change("a"), meet.clone(), meet.clone(), meet, change("b"), change("c"), read.clone(), change("d"), read];
        let results = session.batch(calls).await;
        let kinds: Vec<bool> = results.iter().map(|result| result.kind == Outcome::Output).collect();
        assert_eq!(kinds[..6], [true, true, true, true, false, true], "{results:#?}");
        assert!(kinds[7]);
        assert_eq!(results[7].data, Some(json!("d")));
    });
    let expected: Vec<String> =
        ["a", "b", "c", "d"].iter().flat_map(|name| [format!("{name} begins"), format!("{name} ends")]).collect();
    assert_eq!(*log.lock().unwrap(), expected);
}

/// Never answers.
#[derive(Debug)]
struct SilentPerson(Arc<tokio::sync::Notify>);

impl Approver for SilentPerson {
    fn name(&self) -> &'static str {
        "silent"
    }

    fn ask(&self, _question: Arc<Question>) -> Asked {
        self.0.notify_one();
        Box::pin(std::future::pending())
    }
}

/// X1-22, S0-69: an abort ends what runs, with all that it started, what waits for its turn and what waits for a person. Each is
/// recorded as cancelled, and the session goes on. When it returns, nothing runs any more.
#[test]
fn x1_22_s0_69_an_abort_ends_all_that_is_in_flight() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in STRENGTHS {
        let (workspace, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let asked = Arc::new(tokio::sync::Notify::new());
        runtime.block_on(async {
            let store = Store::at(&state.path().canonicalize().unwrap().join("store")).unwrap();
            let launcher = Launcher::spawn(&callgate()).unwrap();
            let supervisor = Supervisor::builder().launcher(launcher).store(store.clone()).build().unwrap();
            let rule = Rule::new("bash", Action::Ask).pattern("rm *");
            let allow = Rule::new("bash", Action::Allow);
            let spec = SessionSpec::developer(workspace.path())
                .strength(strength)
                .rule(RuleScope::Session, rule)
                .rule(RuleScope::Session, allow)
                .approver(Arc::new(SilentPerson(Arc::clone(&asked))));
            let session = supervisor.open(spec).await.unwrap();
            let mut events = session.events();
            let digits: String =
                workspace.path().file_name().unwrap().as_encoded_bytes().iter().map(u8::to_string).collect();
            let mark = format!("62.{digits}");
            let ready = workspace.path().join("ready");
            let line = format!("trap '' TERM INT HUP; setsid sleep {mark} & touch ready; sleep {mark}");
            let call = async |command: &str| session.call("bash", json!({ "command": command })).await;
            let batch = session.batch([bash("touch late"), bash("touch later")]);
            let (running, waiting, unanswered, batch, ()) =
                tokio::join!(call(&line), call("touch never"), call("rm ready"), batch, async {
                    until("it runs", || ready.exists() && runs(&mark)).await;
                    asked.notified().await;
                    session.abort().await;
                    assert!(!runs(&mark), "it has ended when the abort returns");
                });
            for result in [&running, &waiting, &unanswered].into_iter().chain(&batch) {
                assert_eq!(result.error_text.as_deref(), Some("the call was aborted"), "{result:?}");
            }
            assert_eq!(output(&session, "ls").await, "ready\n", "the session goes on, and the others have not run");
            let record = store.session(session.id()).unwrap();
            let outcomes: Vec<_> = store.calls(&record).unwrap().into_iter().map(|call| call.outcome).collect();
            let expected: Vec<_> = [["cancelled"; 5].as_slice(), &["succeeded"]]
                .concat()
                .into_iter()
                .map(|o| Some(o.to_owned()))
                .collect();
            assert_eq!(outcomes, expected);
            drop(session);
            let mut told = Vec::new();
            while let Some(event) = events.next().await {
                told.push(event.unwrap());
            }
            let cancelled: BTreeSet<_> =
                told.iter().filter(|event| event.kind == EventKind::Cancelled).map(|event| &event.call).collect();
            assert_eq!(cancelled.len(), 5, "{told:?}");
        });
    }
}

/// An abort with nothing in flight is nothing, and what is called after it is not what it was about.
#[test]
fn an_abort_is_about_what_is_in_flight_alone() {
    in_sessions(async |session: &Session, _workspace| {
        session.abort().await;
        assert_eq!(output(session, "echo fine").await, "fine\n");
        let results = session.batch(Vec::<(String, Value)>::new()).await;
        assert!(results.is_empty());
    });
}

/// S0-69, X0-57: a session that is closed runs nothing, is not continued, and keeps its record.
#[test]
fn x0_57_a_closed_session_has_ended_and_is_not_continued() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in STRENGTHS {
        let (workspace, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        runtime.block_on(async {
            let store = Store::at(&state.path().canonicalize().unwrap().join("store")).unwrap();
            let launcher = Launcher::spawn(&callgate()).unwrap();
            let supervisor = Supervisor::builder().launcher(launcher).store(store.clone()).build().unwrap();
            let spec = || SessionSpec::developer(workspace.path()).strength(strength).mode(Mode::Yolo);
            let session = supervisor.open(spec()).await.unwrap();
            let id = session.id().to_owned();
            let long = session.call("bash", json!({ "command": "head -c 300000 /dev/zero | tr '\\0' x" })).await;
            let kept = PathBuf::from(long.metadata.output_path.unwrap());
            assert!(kept.is_file(), "the control");
            session.close().await.unwrap();
            assert!(!kept.exists());
            let record = store.session(&id).unwrap();
            assert_eq!((record.state, record.is_open, record.calls), (SessionState::Closed, false, 1));
            let again = supervisor.open(spec().resume(&id)).await;
            assert!(matches!(&again, Err(callgate::OpenError::Store(StoreError::Closed { .. }))), "{:?}", again.err());
        });
    }
}
