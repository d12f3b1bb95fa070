//! Recorded sessions as a host has them: a store, events, approvals and rules that last (X0-55 to X0-58, S0-43, S1-17).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use callgate::policy::manifest::{Format, Manifest};
use callgate::policy::mode::Mode;
use callgate::policy::rules::{Action, Rule};
use callgate::{
    Answer, Approver, Asked, EventKind, Launcher, OpenError, Outcome, Question, Session, SessionSpec, SessionState,
    Store, Supervisor,
};
use serde_json::json;

use super::{STRENGTHS, callgate, until};

/// Gives one answer, or none ever.
#[derive(Debug, Default)]
struct RecordedPerson {
    answer: Option<Answer>,
    asked: AtomicU32,
}

impl Approver for RecordedPerson {
    fn name(&self) -> &'static str {
        "person"
    }

    fn ask(&self, _question: Arc<Question>) -> Asked {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let answer = self.answer;
        Box::pin(async move {
            match answer {
                None => std::future::pending().await,
                answer => answer,
            }
        })
    }
}

/// Runs `test` with a supervisor that has a store, for each strength.
fn with_stores(test: impl AsyncFn(&Supervisor, &Store, &dyn Fn() -> SessionSpec)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in STRENGTHS {
        let (workspace, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        runtime.block_on(async {
            let store = Store::at(&state.path().canonicalize().unwrap().join("store")).unwrap();
            let launcher = Launcher::spawn(&callgate()).unwrap();
            let supervisor = Supervisor::builder().launcher(launcher).store(store.clone()).build().unwrap();
            let spec = || SessionSpec::developer(workspace.path()).strength(strength);
            test(&supervisor, &store, &spec).await;
        });
    }
}

async fn output(session: &Session, command: &str) -> String {
    let envelope = session.call("bash", json!({ "command": command })).await;
    assert_eq!(envelope.kind, Outcome::Output, "{envelope:?}");
    envelope.data.unwrap()["output"].as_str().unwrap().to_owned()
}

/// The store as it would be found if this process were killed now.
fn after_a_crash(store: &Store, place: &Path) -> Store {
    fs::create_dir(place).unwrap();
    fs::set_permissions(place, fs::Permissions::from_mode(0o700)).unwrap();
    for name in ["sessions.db", "sessions.db-wal"] {
        fs::copy(store.path().with_file_name(name), place.join(name)).unwrap();
    }
    Store::at(&place.canonicalize().unwrap()).unwrap()
}

/// S0-43: what a host heard while it happened is what a replay tells, to the byte.
#[test]
fn s0_43_s1_6_events_are_replayed_as_they_were_heard() {
    with_stores(async |supervisor, store, spec| {
        let session = supervisor.open(spec().mode(Mode::Yolo)).await.unwrap();
        let mut events = session.events();
        output(&session, "echo sk-abcdefghijklmnop; printf '\\xff\\t\"'").await;
        session.call("read", json!({ "path": "/etc/shadow" })).await;
        session.call("no-such-tool", json!({ "x": [1, null] })).await;
        session.call("read", json!({})).await;
        let glob = |name: &str| json!({ "pattern": name });
        tokio::join!(session.call("glob", glob("a")), session.call("glob", glob("b")), session.call("glob", glob("c")));
        // Nobody waits for it: it is ended, and the record says so.
        tokio::select! {
            biased;
            _ = session.call("bash", json!({ "command": "touch started; sleep 600" })) => panic!("it sleeps"),
            () = until("it runs", || spec().workspace[0].join("started").exists()) => {}
        }
        let id = session.id().to_owned();
        let record = store.session(&id).unwrap();
        assert!(record.is_open);
        drop(session);
        let mut heard = Vec::new();
        while let Some(event) = events.next().await {
            heard.push(event.unwrap());
        }
        let mut told = Vec::new();
        let replayed = store.replay(&record, |event| {
            told.push(event);
            Ok::<_, callgate::StoreError>(())
        });
        replayed.unwrap();
        assert_eq!(
            told.iter().map(ToString::to_string).collect::<Vec<_>>(),
            heard.iter().map(ToString::to_string).collect::<Vec<_>>()
        );
        assert!(
            heard.iter().map(|event| event.place).eq(1..=u64::try_from(heard.len()).unwrap()),
            "in their order, each once"
        );
        let count = |kind| heard.iter().filter(|event| event.kind == kind).count();
        let counts =
            [EventKind::Proposed, EventKind::Started, EventKind::Succeeded, EventKind::Failed, EventKind::Cancelled];
        assert_eq!(counts.map(count), [8, 5, 4, 3, 1]);
        assert_eq!((heard[0].origin.as_str(), heard[0].tool.as_str()), ("bundled", "bash"));
        assert!(!heard[0].to_string().contains("abcdefghijklmnop") && heard[0].arguments().is_some(), "X1-31");
        assert_eq!(heard[2].envelope().unwrap().kind, Outcome::Output);
        let cancelled = store.calls(&record).unwrap().pop().unwrap();
        let ended = (cancelled.state.as_str(), cancelled.outcome.as_deref());
        assert_eq!(ended, ("input-available", Some("cancelled")), "X0-56: it stays as it was");
        assert_eq!(store.session(&id).unwrap().state, SessionState::Idle);
    });
}

/// S1-17, X0-55: approvals and added rules are the session's, over many openings. To a fork come those rules that deny or ask.
#[test]
fn s1_17_x0_55_approvals_and_rules_last_as_long_as_the_session() {
    with_stores(async |supervisor, store, spec| {
        let always = Arc::new(RecordedPerson { answer: Some(Answer::Always), ..RecordedPerson::default() });
        let asked = |times| assert_eq!(always.asked.load(Ordering::Relaxed), times);
        let open = async |id: Option<&str>| {
            let mut spec = spec().mode(Mode::Ask).approver(always.clone());
            spec.resume = id.map(str::to_owned);
            supervisor.open(spec).await
        };
        let session = open(None).await.unwrap();
        output(&session, "echo 1").await;
        asked(1);
        session.add_rule(&Rule::new("bash", Action::Deny).pattern("id *")).unwrap();
        session.add_rule(&Rule::new("bash", Action::Allow).pattern("pwd")).unwrap();
        output(&session, "pwd").await;
        asked(1);
        let id = session.id().to_owned();
        let twice = open(Some(&id)).await.unwrap_err().to_string();
        assert!(twice.contains("a second time"), "{twice}");
        drop(session);
        let again = open(Some(&id)).await.unwrap();
        assert_eq!(again.id(), id);
        output(&again, "echo 1").await;
        asked(1);
        let denied = again.call("bash", json!({ "command": "id -u" })).await;
        assert!(denied.error_text.as_deref().is_some_and(|text| text.contains("denied")), "{denied:?}");
        drop(again);
        let record = store.session(&id).unwrap();
        let fork = store.fork(&record).unwrap();
        assert_eq!((fork.calls, fork.parent.as_deref()), (4, Some(&*id)));
        let forked = open(Some(&fork.id)).await.unwrap();
        output(&forked, "echo 1").await;
        asked(2);
        output(&forked, "pwd").await;
        asked(3);
        let denied = forked.call("bash", json!({ "command": "id -u" })).await;
        assert!(denied.error_text.as_deref().is_some_and(|text| text.contains("the rule deny bash")), "{denied:?}");
        asked(3);
        drop(forked);
        let again = store.fork(&store.session(&fork.id).unwrap()).unwrap();
        let denied = open(Some(&again.id)).await.unwrap().call("bash", json!({ "command": "id -u" })).await;
        assert!(denied.error_text.is_some_and(|text| text.contains("the rule deny bash")), "a fork of a fork");
        let elsewhere = tempfile::tempdir().unwrap();
        let other = SessionSpec::developer(elsewhere.path()).resume(id.clone());
        let refused = supervisor.open(other).await.unwrap_err().to_string();
        assert!(refused.contains("works in"), "{refused}");
        let unstored = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
        let refused = unstored.open(spec().resume(id)).await.unwrap_err().to_string();
        assert!(refused.contains("without the store"), "{refused}");
    });
}

/// C-6: the fork of a session that is halted is halted.
#[test]
fn c_6_a_fork_of_a_halted_session_is_halted() {
    with_stores(async |supervisor, store, spec| {
        let open = async |id: Option<&str>| {
            let mut spec = spec().mode(Mode::Ask);
            spec.manifest = Some(Manifest::parse("headless = \"halt\"", Format::Toml, "m.toml").unwrap());
            spec.resume = id.map(str::to_owned);
            supervisor.open(spec).await.unwrap()
        };
        let session = open(None).await;
        let id = session.id().to_owned();
        let fork = store.fork(&store.session(&id).unwrap()).unwrap();
        assert_eq!(fork.state, SessionState::Idle, "the control");
        let halted = session.call("bash", json!({ "command": "echo" })).await;
        assert!(halted.error_text.as_deref().is_some_and(|text| text.contains("the session is halted")), "{halted:?}");
        drop(session);
        let fork = store.fork(&store.session(&id).unwrap()).unwrap();
        assert_eq!(fork.state, SessionState::Error);
        let forked = open(Some(&fork.id)).await;
        assert!(forked.is_halted());
        let refused = forked.call("read", json!({ "path": "." })).await;
        assert!(refused.error_text.as_deref().is_some_and(|text| text.contains("halted")), "{refused:?}");
    });
}

/// X1-31, S1-17: an "always" for a call with a secret in it lasts while the session is open, and is not written down.
#[test]
fn x1_31_an_approval_with_a_secret_is_not_written_down() {
    with_stores(async |supervisor, store, spec| {
        let always = Arc::new(RecordedPerson { answer: Some(Answer::Always), ..RecordedPerson::default() });
        let asked = |times| assert_eq!(always.asked.load(Ordering::Relaxed), times);
        let session = supervisor.open(spec().mode(Mode::Ask).approver(always.clone())).await.unwrap();
        let secret = "echo sk-abcdefghijklmnop";
        output(&session, secret).await;
        output(&session, secret).await;
        asked(1);
        output(&session, "echo harmless").await;
        asked(2);
        let id = session.id().to_owned();
        drop(session);
        let files = fs::read_dir(store.path().parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
        let written: Vec<u8> = files.filter(|path| path.is_file()).flat_map(|path| fs::read(path).unwrap()).collect();
        let holds = |text: &str| written.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(holds("echo harmless") && !holds("abcdefghijklmnop"));
        let again = supervisor.open(spec().mode(Mode::Ask).approver(always.clone()).resume(id)).await.unwrap();
        output(&again, "echo harmless").await;
        asked(2);
        output(&again, secret).await;
        asked(3);
    });
}

/// F11, X0-11: a rule that was added is in force again when its session goes on, and in no other session.
#[test]
fn f11_x0_11_an_added_rule_holds_when_the_session_goes_on() {
    with_stores(async |supervisor, _store, spec| {
        let workspace = spec().workspace[0].clone();
        let touch = async |session: &Session, name: &str| {
            let made = session.call("bash", json!({ "command": format!("touch {name}") })).await;
            (made.metadata.denial, fs::remove_file(workspace.join(name)).is_ok())
        };
        let open = || spec().mode(Mode::Yolo);
        let session = supervisor.open(open()).await.unwrap();
        assert_eq!(touch(&session, "kept").await, (None, true), "the control");
        session.add_rule(&Rule::new("bash", Action::Deny).pattern("touch kept")).unwrap();
        let id = session.id().to_owned();
        drop(session);
        let again = supervisor.open(open().resume(&id)).await.unwrap();
        let (denial, is_made) = touch(&again, "kept").await;
        let denial = denial.unwrap();
        assert!(denial.layer == callgate::Layer::Rule && denial.reason.contains("(this session)"), "{denial:?}");
        assert!(!is_made);
        assert_eq!(touch(&again, "other").await, (None, true), "the control");
        let other = supervisor.open(open()).await.unwrap();
        assert_eq!(touch(&other, "kept").await, (None, true), "the control: it was that session's");
    });
}

/// F11, S0-39: a session does not go on with a rule that would now mean something else than it said.
#[test]
fn f11_s0_39_a_kept_rule_that_cannot_be_used_any_more_is_refused() {
    with_stores(async |supervisor, store, spec| {
        let beside = tempfile::tempdir().unwrap();
        let directory = |name: &str| {
            let directory = beside.path().join(name);
            fs::create_dir(&directory).unwrap();
            directory
        };
        let (plain, star) = (directory("plain"), directory("a*b"));
        let session = supervisor.open(spec().ad_hoc(&plain)).await.unwrap();
        session.add_rule(&Rule::new("bash", Action::Allow).pattern("cat {ad-hoc}/file")).unwrap();
        let id = session.id().to_owned();
        drop(session);
        let refused = supervisor.open(spec().ad_hoc(&star).resume(&id)).await.unwrap_err();
        assert!(matches!(refused, OpenError::Rule(_)), "{refused:?}");
        let text = callgate::with_causes(&refused);
        assert!(text.contains("this session") && text.contains("has a `*` in its name"), "{text}");
        assert!(!store.session(&id).unwrap().is_open, "it is nobody's");
        supervisor.open(spec().ad_hoc(&star)).await.map(drop).expect("the control: without that rule");
        supervisor.open(spec().ad_hoc(&plain).resume(&id)).await.map(drop).expect("the control: as it was");
    });
}

/// X0-56, X0-57: after a crash, a call that ran has ended with an error, and one that waits for a person still waits; when the
/// session is closed it ends without an answer.
#[test]
fn x0_56_x0_57_a_question_outlives_a_crash() {
    with_stores(async |supervisor, store, spec| {
        let silent = Arc::new(RecordedPerson::default());
        let session = supervisor.open(spec().mode(Mode::Ask).approver(silent.clone())).await.unwrap();
        let (id, place) = (session.id().to_owned(), tempfile::tempdir().unwrap());
        let call = session.call("bash", json!({ "command": "touch ran" }));
        let asked = async {
            until("a person is asked", || silent.asked.load(Ordering::Relaxed) == 1).await;
            after_a_crash(store, &place.path().join("waiting"))
        };
        let found = tokio::select! {
            biased;
            _ = call => panic!("nobody answers"),
            found = asked => found,
        };
        let record = found.session(&id).unwrap();
        assert_eq!((record.state, record.is_open), (SessionState::WaitingOnApproval, false));
        let calls = found.calls(&record).unwrap();
        assert_eq!((calls[0].waiting.as_deref(), calls[0].ended.as_deref()), (Some("approval"), None), "{calls:?}");
        let closed = found.close(&record).unwrap();
        assert_eq!(closed.state, SessionState::Closed);
        let calls = found.calls(&record).unwrap();
        assert!(calls[0].result.as_ref().unwrap().error_text.as_deref().unwrap().contains("before anybody answered"));
        drop(session);
        let session = supervisor.open(spec().mode(Mode::Yolo)).await.unwrap();
        let id = session.id().to_owned();
        let call = session.call("bash", json!({ "command": "touch started; sleep 600" }));
        let running = async {
            until("it runs", || spec().workspace[0].join("started").exists()).await;
            after_a_crash(store, &place.path().join("running"))
        };
        let found = tokio::select! {
            biased;
            _ = call => panic!("it sleeps"),
            found = running => found,
        };
        let calls = found.calls(&found.session(&id).unwrap()).unwrap();
        assert_eq!((calls[0].state.as_str(), calls[0].outcome.as_deref()), ("output-error", Some("failed")));
        assert!(!spec().workspace[0].join("ran").exists());
    });
}

/// A call that cannot be recorded while the session is open does not run; when it can be again, the session goes on.
#[test]
fn s0_43_an_open_session_runs_nothing_that_it_cannot_record() {
    with_stores(async |supervisor, store, spec| {
        let session = supervisor.open(spec().mode(Mode::Yolo)).await.unwrap();
        output(&session, "echo before >> ran").await;
        let script = "import sqlite3, sys\n\
                      held = sqlite3.connect(sys.argv[1], isolation_level=None)\n\
                      held.execute('BEGIN IMMEDIATE')\nprint('held', flush=True)\nsys.stdin.read()";
        let mut command = std::process::Command::new("python3");
        command.args(["-c", script]).arg(store.path());
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        #[allow(clippy::disallowed_methods, reason = "a program of the test's, outside")]
        let mut holder = command.spawn().unwrap();
        let mut said = [0; 5];
        std::io::Read::read_exact(&mut holder.stdout.take().unwrap(), &mut said).unwrap();
        let refused = session.call("bash", json!({ "command": "echo locked >> ran" })).await;
        let text = refused.error_text.unwrap();
        assert!(text.contains("was not made") && text.contains("database is locked"), "{text}");
        assert_eq!(refused.metadata.denial.unwrap().layer, callgate::Layer::Host);
        drop(holder.stdin.take());
        holder.wait().unwrap();
        assert_eq!(output(&session, "cat ran").await, "before\n");
        let record = store.session(session.id()).unwrap();
        let calls = store.calls(&record).unwrap();
        assert!(calls.iter().all(|call| call.outcome.as_deref() == Some("succeeded")), "{calls:?}");
    });
}
