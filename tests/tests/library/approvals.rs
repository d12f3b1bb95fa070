//! What a host's approvers are asked, and what becomes of their answers (S0-59, S1-13 to S1-19, X0-11).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use callgate::policy::rules::{Action, Rule};
use callgate::{
    Answer, Approver, Asked, Launcher, Layer, Outcome, Question, ResultEnvelope, Session, SessionSpec, Supervisor,
};
use serde_json::json;

use super::{STRENGTHS, callgate};

/// Says the same to everything, and remembers what it was asked.
#[derive(Debug)]
struct Host {
    answer: Option<Answer>,
    asked: Mutex<Vec<Arc<Question>>>,
}

impl Host {
    fn new(answer: Option<Answer>) -> Arc<Self> {
        Arc::new(Self { answer, asked: Mutex::default() })
    }

    fn asked(&self) -> Vec<Arc<Question>> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

impl Approver for Host {
    fn name(&self) -> &'static str {
        "host"
    }

    fn ask(&self, question: Arc<Question>) -> Asked {
        self.asked.lock().unwrap().push(question);
        let answer = self.answer;
        Box::pin(async move {
            match answer {
                Some(answer) => Some(answer),
                None => std::future::pending().await,
            }
        })
    }
}

fn with_sessions(answer: Option<Answer>, test: impl AsyncFn(&Session, &Host, &std::path::Path)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in STRENGTHS {
        let workspace = tempfile::tempdir().unwrap();
        let host = Host::new(answer);
        runtime.block_on(async {
            let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
            let mut spec = SessionSpec { strength, ..SessionSpec::developer(workspace.path()) };
            spec.approvers.push(Arc::clone(&host) as Arc<dyn Approver>);
            spec.patience = Duration::from_millis(500);
            let session = supervisor.open(spec).await.unwrap();
            test(&session, &host, workspace.path()).await;
        });
    }
}

async fn write(session: &Session, path: &str) -> ResultEnvelope {
    session.call("write", json!({ "path": path, "content": "x" })).await
}

async fn bash(session: &Session, command: &str) -> ResultEnvelope {
    session.call("bash", json!({ "command": command })).await
}

/// S1-14, S1-17, X1-6: "always" is kept for its key: a directory with what lies beneath it; a line, and no longer one.
#[test]
fn s1_17_always_is_kept_for_its_key() {
    with_sessions(Some(Answer::Always), async |session, host, workspace| {
        assert_eq!(session.call("glob", json!({ "pattern": "*" })).await.kind, Outcome::Output);
        assert_eq!(host.asked().len(), 0, "C-8: nobody is asked about what changes nothing");
        let first = write(session, "src/a").await;
        assert_eq!((first.kind, first.metadata.approved_by.as_deref()), (Outcome::Output, Some("host")));
        let [question] = &host.asked()[..] else { panic!("asked once") };
        assert_eq!((question.tool.as_str(), question.key.text.as_str()), ("write", "src"));
        assert_eq!(question.writes, [workspace.join("src/a").display().to_string()]);
        for path in ["src/b", "src/deep/c"] {
            assert_eq!(write(session, path).await.metadata.approved_by.as_deref(), Some("session"));
        }
        assert_eq!(host.asked().len(), 0);
        write(session, "other/d").await;
        write(session, "e").await;
        assert_eq!(host.asked().len(), 2, "beside it, and above it");
        bash(session, "echo a; echo b").await;
        let [question] = &host.asked()[..] else { panic!("asked once") };
        assert_eq!(question.commands.as_deref(), Some(&["echo a".to_owned(), "echo b".to_owned()][..]));
        bash(session, "echo a; echo b").await;
        assert_eq!(host.asked().len(), 0);
        bash(session, "echo a; echo b; echo c").await;
        assert_eq!(host.asked().len(), 1, "X1-7: another line");
    });
}

/// S0-59, X1-5: a no is a no, for this time; nothing runs, and the next call is asked about again.
#[test]
fn s0_59_a_rejected_call_does_not_run() {
    with_sessions(Some(Answer::Reject), async |session, host, workspace| {
        for _ in 0..2 {
            let refused = write(session, "a").await;
            assert_eq!(refused.metadata.denial.unwrap().layer, Layer::Person);
        }
        assert_eq!(host.asked().len(), 2);
        assert!(std::fs::read_dir(workspace).unwrap().next().is_none());
    });
}

/// A timeout denies; and a call that is dropped withdraws its question and holds up no other.
#[test]
fn who_does_not_answer_says_no() {
    with_sessions(None, async |session, host, workspace| {
        let refused = bash(session, "echo x > made").await;
        let reason = refused.metadata.denial.unwrap().reason;
        assert!(reason.ends_with("nobody answered within 500ms"), "{reason}");
        let dropped = tokio::time::timeout(Duration::from_millis(100), write(session, "a")).await;
        assert!(dropped.is_err());
        let (one, other) = tokio::join!(write(session, "b"), write(session, "c"));
        assert!(one.metadata.denial.is_some() && other.metadata.denial.is_some());
        assert_eq!(host.asked().len(), 4, "one after the other");
        assert!(std::fs::read_dir(workspace).unwrap().next().is_none());
    });
}

/// X0-11: a host records "always" as a rule of the session; it decides from then on. One that makes no sense is refused.
#[test]
fn x0_11_a_host_adds_rules() {
    with_sessions(Some(Answer::Reject), async |session, host, _| {
        let rule =
            |pattern: &str, action| Rule { permission: "bash".to_owned(), pattern: Some(pattern.to_owned()), action };
        session.add_rule(&rule("echo *", Action::Allow)).unwrap();
        let allowed = bash(session, "echo a | echo b").await;
        assert_eq!(allowed.kind, Outcome::Output, "{allowed:?}");
        let decision = serde_json::to_value(allowed.metadata.decision).unwrap();
        assert_eq!((&decision["pattern"], &decision["place"]), (&json!("echo *"), &json!("this session")));
        assert_eq!(host.asked().len(), 0);
        assert_eq!(bash(session, "echo a | cat").await.kind, Outcome::Error);
        assert_eq!(host.asked().len(), 1);
        session.add_rule(&rule("echo b", Action::Deny)).unwrap();
        let denied = bash(session, "echo a | echo b").await;
        assert_eq!(denied.metadata.denial.unwrap().layer, Layer::Rule);
        let wrong = Rule { permission: "fs.raed".to_owned(), pattern: None, action: Action::Deny };
        assert!(session.add_rule(&wrong).unwrap_err().to_string().contains("there is no capability"));
    });
}
