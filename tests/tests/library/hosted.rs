//! The tools that a session answers itself, as a host has them (S0-16, S0-18, S0-21, S0-22, X1-18 to X1-20, S3-8, S3-9).

use std::collections::VecDeque;
use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use callgate::policy::failure::ErrorCode;
use callgate::policy::mode::Mode;
use callgate::{
    Answer, Approver, Asked, Choice, Inquired, Inquiry, Launcher, Outcome, Query, Question, Reply, ResultEnvelope,
    Session, SessionSpec, Store, Supervisor, TodoStatus, Tool, Unanswered,
};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{STRENGTHS, callgate, until};

/// Answers of somebody who is asked, in order; then they say nothing.
#[derive(Debug, Default)]
struct ScriptedPerson {
    replies: Mutex<VecDeque<Option<Reply>>>,
    asked: Mutex<Vec<String>>,
    /// How many questions they have before them.
    before: Arc<AtomicU32>,
    most: AtomicU32,
}

/// A question that is before somebody until it is dropped.
struct PendingQuestion(Arc<AtomicU32>);

impl Drop for PendingQuestion {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ScriptedPerson {
    fn new(replies: impl IntoIterator<Item = Option<Reply>>) -> Arc<Self> {
        Arc::new(Self { replies: Mutex::new(replies.into_iter().collect()), ..Self::default() })
    }

    fn is_asked(&self, what: &str) -> PendingQuestion {
        self.asked.lock().unwrap().push(what.to_owned());
        self.most.fetch_max(self.before.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        PendingQuestion(Arc::clone(&self.before))
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Approver for ScriptedPerson {
    fn name(&self) -> &'static str {
        "person"
    }

    fn ask(&self, question: Arc<Question>) -> Asked {
        let before = self.is_asked(&format!("approve {}", question.arguments["command"].as_str().unwrap_or_default()));
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            drop(before);
            Some(Answer::Once)
        })
    }

    fn inquire(&self, inquiry: Arc<Inquiry>) -> Inquired {
        let before = self.is_asked(&inquiry.questions[0].question);
        assert!(inquiry.id.starts_with("ask_") && inquiry.session.starts_with("ses_"), "{inquiry:?}");
        let reply = self.replies.lock().unwrap().pop_front();
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            match reply {
                Some(reply) => reply,
                None => {
                    let _before = before;
                    std::future::pending().await
                }
            }
        })
    }
}

/// Who answers when the test says so.
#[derive(Debug, Default)]
struct Late(Arc<Notify>);

impl Approver for Late {
    fn name(&self) -> &'static str {
        "late"
    }

    fn ask(&self, _question: Arc<Question>) -> Asked {
        Box::pin(async { None })
    }

    fn inquire(&self, _inquiry: Arc<Inquiry>) -> Inquired {
        let now = Arc::clone(&self.0);
        Box::pin(async move {
            now.notified().await;
            answers(&["so"])
        })
    }
}

/// Who can approve, and has no way to be asked anything else.
#[derive(Debug)]
struct Approves;

impl Approver for Approves {
    fn name(&self) -> &'static str {
        "approves"
    }

    fn ask(&self, _question: Arc<Question>) -> Asked {
        Box::pin(async { Some(Answer::Once) })
    }
}

fn answers(all: &[&str]) -> Option<Reply> {
    Some(Reply::Answers(all.iter().map(|answer| vec![(*answer).to_owned()]).collect()))
}

/// Runs `test` in a session of each strength.
fn in_sessions(spec: impl Fn(SessionSpec) -> SessionSpec, test: impl AsyncFn(&Session)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in STRENGTHS {
        let workspace = tempfile::tempdir().unwrap();
        runtime.block_on(async {
            let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
            let spec = spec(SessionSpec::developer(workspace.path()).strength(strength));
            test(&supervisor.open(spec).await.unwrap()).await;
        });
    }
}

async fn asks(session: &Session, question: &str) -> ResultEnvelope {
    session.call("question", json!({ "questions": [{ "question": question }] })).await
}

#[track_caller]
fn data(envelope: ResultEnvelope) -> Value {
    assert_eq!(envelope.kind, Outcome::Output, "{envelope:?}");
    envelope.data.unwrap()
}

fn text(envelope: &ResultEnvelope) -> &str {
    envelope.error_text.as_deref().unwrap_or_default()
}

/// X1-18, X1-20, S0-28: of several who are asked the first answer counts, and the others' questions are withdrawn.
#[test]
fn x1_18_x1_20_the_first_answer_wins_and_the_others_are_dismissed() {
    let silent = ScriptedPerson::new([]);
    let spec = |spec: SessionSpec| {
        spec.approver(silent.clone()).approver(ScriptedPerson::new([answers(&["blue"])])).approver(Arc::new(Approves))
    };
    in_sessions(spec, async |session| {
        assert_eq!(data(asks(session, "Which?").await), json!({ "answers": [["blue"]] }));
        until("the other's question is withdrawn", || silent.before.load(Ordering::SeqCst) == 0).await;
        assert_eq!(silent.asked().last().unwrap(), "Which?", "it was asked too");
    });
}

/// X1-20: approvals and questions are in one queue: a person has one before them at a time, in the order of the calls.
#[test]
fn x1_20_a_person_has_one_question_at_a_time() {
    for _ in 0..3 {
        let person = ScriptedPerson::new((0..8).map(|_| answers(&["yes"])));
        let shared = Arc::clone(&person);
        in_sessions(
            move |spec| spec.approver(shared.clone()),
            async |session| {
                let bash = |n: u32| session.call("bash", json!({ "command": format!("echo {n}") }));
                let (a, b, c, d, host) = tokio::join!(
                    bash(1),
                    asks(session, "first"),
                    bash(2),
                    asks(session, "second"),
                    session.inquire(vec![Query::new("of the host", Vec::new())])
                );
                for envelope in [a, b, c, d] {
                    data(envelope);
                }
                assert_eq!(host, Ok(vec![vec!["yes".to_owned()]]));
            },
        );
        assert_eq!(person.most.load(Ordering::SeqCst), 1, "{:?}", person.asked());
        let asked = person.asked();
        for of_session in asked.chunks(5) {
            let place = |what: &str| of_session.iter().position(|asked| asked == what).unwrap();
            assert!(place("approve echo 1") < place("approve echo 2") && place("first") < place("second"), "{asked:?}");
        }
    }
}

/// X1-19: why there is no answer has a name each, and what answers something else is no answer.
#[test]
fn x1_19_what_is_no_answer_has_a_name() {
    let many = || Some(Reply::Answers(vec![vec!["a".to_owned()], vec!["b".to_owned()]]));
    let two = || Some(Reply::Answers(vec![vec!["a".to_owned(), "b".to_owned()]]));
    // Whoever answers has all the time there is; only who never does is not waited for.
    let (long, short) = (Duration::from_secs(600), Duration::from_millis(200));
    for (replies, wanted, code) in [
        (vec![Some(Reply::Dismissed)], Unanswered::Dismissed, ErrorCode::TurnCancelled),
        (vec![None], Unanswered::Nobody, ErrorCode::NoInteractorAttached),
        (vec![many()], Unanswered::Unfit { by: "person".to_owned() }, ErrorCode::InteractionPayloadMismatch),
        (vec![two()], Unanswered::Unfit { by: "person".to_owned() }, ErrorCode::InteractionPayloadMismatch),
        (vec![answers(&[" "])], Unanswered::Unfit { by: "person".to_owned() }, ErrorCode::InteractionPayloadMismatch),
        (vec![], Unanswered::TooLate(short), ErrorCode::InteractionTimeout),
    ] {
        let patience = if replies.is_empty() { short } else { long };
        let replies = move || ScriptedPerson::new(replies.clone());
        in_sessions(
            |spec| spec.approver(replies()).patience(patience),
            async |session| {
                let question = vec![Query::new("Which?", vec![Choice::new("a")])];
                let why = session.inquire(question).await.unwrap_err();
                assert_eq!((&why, why.code()), (&wanted, code));
            },
        );
        in_sessions(
            |spec| spec.approver(replies()).patience(patience),
            async |session| {
                let envelope = asks(session, "Which?").await;
                assert_eq!((envelope.kind, text(&envelope)), (Outcome::Error, wanted.to_string().as_str()));
                assert_eq!(envelope.metadata.error, Some(code.into()), "X1-25");
            },
        );
    }
    in_sessions(
        |spec| spec.approver(ScriptedPerson::new([answers(&["a"])])).patience(Duration::ZERO),
        async |session| {
            let why = session.inquire(vec![Query::new("Which?", Vec::new())]).await.unwrap_err();
            assert_eq!((&why, why.code()), (&Unanswered::NoTime, ErrorCode::TimeoutMsInvalid));
        },
    );
    // Another one's answer still counts; S0-29: who can only approve is nobody, and the words are the same.
    let both = |spec: SessionSpec| {
        spec.approver(ScriptedPerson::new([many()]))
            .approver(ScriptedPerson::new([None]))
            .approver(ScriptedPerson::new([answers(&["c"])]))
    };
    in_sessions(both, async |session| assert_eq!(data(asks(session, "Which?").await), json!({ "answers": [["c"]] })));
    let texts = Mutex::new(Vec::new());
    for approves in [true, false] {
        let spec = |spec: SessionSpec| if approves { spec.approver(Arc::new(Approves)) } else { spec };
        in_sessions(spec, async |session| {
            let answer = text(&asks(session, "Why?").await).to_owned();
            texts.lock().unwrap().push(answer);
        });
    }
    let texts = texts.into_inner().unwrap();
    assert!(
        texts.len() == 4 && texts.iter().all(|text| *text == texts[0] && text.starts_with("there is nobody")),
        "{texts:?}"
    );
}

/// S0-26: the rest of the session waits while a person is asked: what is called meanwhile begins when there is an answer.
#[test]
fn s0_26_the_session_waits_for_the_answer() {
    let person = Arc::new(Late::default());
    in_sessions(
        |spec| spec.mode(Mode::Yolo).approver(Arc::clone(&person) as Arc<dyn Approver>),
        async |session| {
            let mut events = session.events();
            let calls =
                async { tokio::join!(asks(session, "Why?"), session.call("bash", json!({ "command": "true" }))) };
            let watch = async {
                let (mut told, mut is_answered) = (Vec::new(), false);
                while told.len() < 6 {
                    let event = events.next().await.unwrap().unwrap();
                    told.push(format!("{} {}", event.tool, event.kind.name()));
                    let has = |what: &str| told.iter().any(|told| told == what);
                    if !is_answered && has("question ToolInvocationStarted") && has("bash ToolInvocationProposed") {
                        // Time for what does not wait to begin; what does has all the time there is.
                        tokio::time::sleep(Duration::from_millis(300)).await;
                        person.0.notify_one();
                        is_answered = true;
                    }
                }
                told
            };
            let ((question, bash), told) = tokio::join!(calls, watch);
            assert_eq!((data(question), &data(bash)["exit_code"]), (json!({ "answers": [["so"]] }), &json!(0)));
            let place = |what: &str| told.iter().position(|told| told == what).unwrap();
            let (answered, began) = ("question ToolInvocationSucceeded", "bash ToolInvocationStarted");
            assert!(place(answered) < place(began), "{told:?}");
        },
    );
}

/// S0-16: a host reads the list too, and it is the session's in its next opening.
#[test]
fn s0_16_a_host_sees_the_todo_list() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (workspace, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    runtime.block_on(async {
        let store = Store::at(&state.path().canonicalize().unwrap().join("store")).unwrap();
        let launcher = Launcher::spawn(&callgate()).unwrap();
        let supervisor = Supervisor::builder().launcher(launcher).store(store.clone()).build().unwrap();
        let session = supervisor.open(SessionSpec::developer(workspace.path())).await.unwrap();
        assert_eq!(session.todos(), []);
        let list = json!({ "todos": [{ "content": "mend", "status": "in_progress" }] });
        data(session.call("todo", list.clone()).await);
        let id = session.id().to_owned();
        drop(session);
        let session = supervisor.open(SessionSpec::developer(workspace.path()).resume(&id)).await.unwrap();
        let todos = session.todos();
        assert_eq!((todos.len(), todos[0].content.as_str(), todos[0].status), (1, "mend", TodoStatus::InProgress));
        assert_eq!(store.session(&id).unwrap().todos, todos);
        assert_eq!(data(session.call("todo", json!({})).await), list);
    });
}

fn deferred(name: &str, description: &str) -> Tool {
    let answer = |call: callgate::HandlerCall| async move { Ok(json!({ "called": call.tool })) };
    Tool::host(name, answer)
        .description(description)
        .parameters(
            json!({ "type": "object", "properties": { "n": { "type": "integer", "description": "A number." } } }),
        )
        .ungated()
        .deferred()
}

/// S0-22, S0-32, S3-8, S3-9, C-11, C-33: every deferred tool that fits is found, the best first; what is returned can be called
/// from then on, and nothing else of them.
#[test]
fn s0_22_s0_32_s3_8_s3_9_c_11_c_33_what_a_search_returns_can_be_called() {
    let spec = |spec: SessionSpec| {
        let spec = spec
            .mode(Mode::Yolo)
            .tool(deferred("make_issue", "Makes one."))
            .tool(deferred("issue", "One of them."))
            .tool(deferred("issue_list", "All."));
        let spec =
            spec.tool(deferred("comment", "Says something about an Issue.")).tool(deferred("other", "Something else."));
        (0..12).fold(spec, |spec, n| spec.tool(deferred(&format!("many_{n:02}"), "One of a dozen.")))
    };
    in_sessions(spec, async |session| {
        let call = async |name: &str| session.call(name, json!({})).await;
        assert_eq!(
            text(&call("issue").await),
            "`issue` is deferred; have tool_search return it, with its parameters, and call it then"
        );
        let error = call("issue").await.metadata.error;
        assert_eq!(error, Some(ErrorCode::SchemaNotLoaded.into()), "X1-25");
        let search = async |query: &str| data(session.call("tool_search", json!({ "query": query })).await);
        let ids = |found: &Value| -> Vec<String> {
            found["matches"].as_array().unwrap().iter().map(|tool| tool["id"].as_str().unwrap().to_owned()).collect()
        };
        let found = search("ISSUE").await;
        assert_eq!(
            (ids(&found), &found["omitted"]),
            (["issue", "issue_list", "make_issue", "comment"].map(str::to_owned).to_vec(), &json!(0))
        );
        assert_eq!(found["matches"][0]["parameters"]["properties"]["n"]["type"], "integer", "C-33: with its schema");
        for name in ["issue", "issue_list", "make_issue", "comment"] {
            assert_eq!(data(call(name).await), json!({ "called": name }));
        }
        for name in ["other", "many_00"] {
            assert!(text(&call(name).await).contains("is deferred"), "S3-9: those alone");
        }
        let found = search("dozen").await;
        assert_eq!((ids(&found).len(), &found["omitted"]), (10, &json!(2)), "C-11");
        assert_eq!(data(call("many_09").await), json!({ "called": "many_09" }));
        assert!(text(&call("many_10").await).contains("is deferred"), "what was omitted has not been returned");
        search("many_10").await;
        data(call("many_10").await);
        let miss = session.call("tool_search", json!({ "query": "nothing-like-it" })).await;
        assert!(text(&miss).contains("there are: comment, issue, issue_list, make_issue, many_00, "), "{miss:?}");
        assert_eq!(session.call("tool_search", json!({ "query": " " })).await.kind, Outcome::Error);
        assert!(
            session.call("tool_search", json!({ "query": "read" })).await.kind == Outcome::Error,
            "it is not deferred"
        );
    });
}

/// C-33: for the rest of the session, in whichever process it is.
#[test]
fn c_33_what_was_searched_for_stays_with_the_session() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (workspace, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    runtime.block_on(async {
        let store = Store::at(&state.path().canonicalize().unwrap().join("store")).unwrap();
        let launcher = Launcher::spawn(&callgate()).unwrap();
        let supervisor = Supervisor::builder().launcher(launcher).store(store).build().unwrap();
        let spec = || SessionSpec::developer(workspace.path()).mode(Mode::Yolo).tool(deferred("late", "Comes late."));
        let session = supervisor.open(spec()).await.unwrap();
        data(session.call("tool_search", json!({ "query": "late" })).await);
        let id = session.id().to_owned();
        drop(session);
        let session = supervisor.open(spec().resume(&id)).await.unwrap();
        data(session.call("late", json!({})).await);
        let other = supervisor.open(spec()).await.unwrap();
        assert!(text(&other.call("late", json!({})).await).contains("is deferred"), "the control");
    });
}

/// S0-31: a session's skills are what they were when it was opened, and a text what it was when it was first asked for.
#[test]
fn s0_31_a_session_s_skills_stay_what_they_are() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join(".claude/skills/one");
    fs::create_dir_all(&directory).unwrap();
    let write = |text: &str| {
        fs::write(directory.join("SKILL.md"), format!("---\nname: one\ndescription: {text}\n---\n{text}\n")).unwrap()
    };
    write("first");
    // Tests run in a process each.
    #[allow(unsafe_code, clippy::disallowed_methods, reason = "no other thread is there yet")]
    // SAFETY: as said.
    unsafe {
        std::env::set_var("HOME", home.path());
    }
    in_sessions(
        |spec| spec,
        async |session| {
            let told = async || session.skills().await.unwrap().skills[0].front.description.clone();
            assert_eq!(told().await, "first");
            let content = async || data(session.call("skill", json!({ "name": "one" })).await)["content"].to_string();
            let first = content().await;
            write("second");
            assert_eq!((told().await, content().await), ("first".to_owned(), first));
            // As the next session finds it.
            write("first");
        },
    );
}
