//! Questions to a host's approvers, and what becomes of their answers (S0-59, S1-13 to S1-19, X0-11).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use callgate::policy::manifest::{Format, Manifest};
use callgate::policy::mode::Mode;
use callgate::policy::pattern::PathTemplate;
use callgate::policy::rules::{Action, Rule, RuleGrant};
use callgate::policy::tool::Surface;
use callgate::policy::watchdog::{CallFacts, Reason, Verdict, Watchdog};
use callgate::{
    Answer, Approver, Asked, Launcher, Layer, Outcome, Question, ResultEnvelope, Session, SessionSpec, Supervisor, Tool,
};
use serde_json::{Value, json};

use super::{STRENGTHS, callgate};
use callgate_tests::skip;

/// Says the same to everything, and remembers what it was asked.
#[derive(Debug)]
struct SteadyPerson {
    answer: Option<Answer>,
    after: Mutex<Duration>,
    /// Done once, while it is asked.
    first: Mutex<Option<DeferredAct>>,
    asked: Mutex<Vec<Arc<Question>>>,
}

struct DeferredAct(Box<dyn FnOnce() + Send>);

impl std::fmt::Debug for DeferredAct {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Act")
    }
}

impl SteadyPerson {
    fn new(answer: Option<Answer>) -> Arc<Self> {
        Arc::new(Self { answer, after: Mutex::default(), first: Mutex::default(), asked: Mutex::default() })
    }

    fn asked(&self) -> Vec<Arc<Question>> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

impl Approver for SteadyPerson {
    fn name(&self) -> &'static str {
        "host"
    }

    fn ask(&self, question: Arc<Question>) -> Asked {
        self.asked.lock().unwrap().push(question);
        let (answer, after) = (self.answer, *self.after.lock().unwrap());
        if let Some(DeferredAct(act)) = self.first.lock().unwrap().take() {
            act();
        }
        Box::pin(async move {
            tokio::time::sleep(after).await;
            match answer {
                Some(answer) => Some(answer),
                None => std::future::pending().await,
            }
        })
    }
}

fn with_sessions(answer: Option<Answer>, test: impl AsyncFn(&Session, &SteadyPerson, &std::path::Path)) {
    with_sessions_of(|spec| spec, answer, test);
}

fn with_sessions_of(
    of: impl Fn(SessionSpec) -> SessionSpec,
    answer: Option<Answer>,
    test: impl AsyncFn(&Session, &SteadyPerson, &std::path::Path),
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in STRENGTHS {
        let workspace = tempfile::tempdir().unwrap();
        let host = SteadyPerson::new(answer);
        runtime.block_on(async {
            let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
            let mut spec = of(SessionSpec::developer(workspace.path()).strength(strength));
            spec.approvers.push(Arc::clone(&host) as Arc<dyn Approver>);
            spec.patience = if answer.is_some() { Duration::from_secs(60) } else { Duration::from_millis(500) };
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

/// S1-14, S1-17, X1-7: "always" is kept for exactly what was shown: this file, this line.
#[test]
fn s1_17_always_is_kept_for_what_was_shown() {
    with_sessions(Some(Answer::Always), async |session, host, workspace| {
        assert_eq!(session.call("glob", json!({ "pattern": "*" })).await.kind, Outcome::Output);
        assert_eq!(host.asked().len(), 0, "C-8: nobody is asked about what changes nothing");
        let first = write(session, "src/a").await;
        assert_eq!((first.kind, first.metadata.approved_by.as_deref()), (Outcome::Output, Some("host")));
        let [question] = &host.asked()[..] else { panic!("asked once") };
        let path = workspace.join("src/a").display().to_string();
        let shown: Vec<_> = question.effects.iter().map(|effect| effect.text.clone()).collect();
        assert_eq!((question.tool.as_str(), shown), ("write", vec![format!("writes {path}")]));
        assert_eq!(write(session, "src/a").await.metadata.approved_by.as_deref(), Some("session"));
        assert_eq!(host.asked().len(), 0, "the same file");
        for path in ["src/b", "src/deep/c", "other/d", "e"] {
            write(session, path).await;
            assert_eq!(host.asked().len(), 1, "{path}");
        }
        bash(session, "echo a; echo b").await;
        let [question] = &host.asked()[..] else { panic!("asked once") };
        let commands = question.effects[0].parts.as_deref();
        assert_eq!(commands, Some(&["echo a".to_owned(), "echo b".to_owned()][..]));
        bash(session, "echo a; echo b").await;
        assert_eq!(host.asked().len(), 0);
        bash(session, "echo a; echo b; echo c").await;
        assert_eq!(host.asked().len(), 1, "X1-7: another line");
        let elsewhere = json!({ "command": "echo a; echo b", "working_dir": "src" });
        session.call("bash", elsewhere).await;
        assert_eq!(host.asked().len(), 1, "another directory");
    });
}

/// X1-6: a wider answer is kept for what it says, in words that were shown: a directory with everything in it.
#[test]
fn x1_6_a_wider_answer_is_kept_for_its_directory() {
    with_sessions(Some(Answer::Wider), async |session, host, workspace| {
        assert_eq!(write(session, "src/a").await.kind, Outcome::Output);
        let [question] = &host.asked()[..] else { panic!("asked once") };
        let directory = workspace.join("src").display().to_string();
        assert_eq!(question.wider, Some(format!("write any file in {directory}, at any depth")));
        for path in ["src/b", "src/deep/c"] {
            assert_eq!(write(session, path).await.metadata.approved_by.as_deref(), Some("session"), "{path}");
        }
        assert_eq!(host.asked().len(), 0);
        let edit = json!({ "path": "src/a", "old_string": "x", "new_string": "y" });
        assert_eq!(session.call("edit", edit).await.kind, Outcome::Output);
        assert_eq!(host.asked().len(), 0, "C-22: another tool with the same effect");
        write(session, "other/d").await;
        write(session, "e").await;
        assert_eq!(host.asked().len(), 2, "beside it, and above it");
    });
}

/// X1-6: who may write any file of a directory may not remove one.
#[test]
fn x1_6_a_wider_answer_to_writing_removes_nothing() {
    let of = |spec: SessionSpec| spec.surface(Surface::Deepseek);
    with_sessions_of(of, Some(Answer::Wider), async |session, host, workspace| {
        let call = async |tool: &str, args: Value| {
            let done = session.call(tool, args).await;
            assert_eq!(done.kind, Outcome::Output, "{done:?}");
            host.asked().len()
        };
        assert_eq!(call("write_file", json!({ "path": "src/a", "content": "x\n" })).await, 1);
        assert_eq!(call("write_file", json!({ "path": "src/b", "content": "x\n" })).await, 0);
        let edit = "--- a/src/a\n+++ b/src/a\n@@ -1 +1 @@\n-x\n+y\n";
        assert_eq!(call("apply_patch", json!({ "patch": edit })).await, 0, "the control");
        let removal = "--- a/src/b\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n";
        assert_eq!(call("apply_patch", json!({ "patch": removal })).await, 1);
        assert!(!workspace.join("src/b").exists());
    });
}

/// X1-6, A2: an answer is about a path as it is spelled: no link leads from there elsewhere, now or later.
#[test]
fn x1_6_a2_an_answer_that_is_kept_follows_no_link() {
    with_sessions(Some(Answer::Wider), async |session, host, workspace| {
        for directory in ["docs", "keep", "other"] {
            std::fs::create_dir(workspace.join(directory)).unwrap();
        }
        std::os::unix::fs::symlink("../other", workspace.join("docs/link")).unwrap();
        assert_eq!(write(session, "docs/a").await.kind, Outcome::Output);
        assert_eq!(write(session, "keep/a").await.kind, Outcome::Output);
        assert_eq!(host.asked().len(), 2);
        assert_eq!(write(session, "docs/link/b").await.kind, Outcome::Error);
        std::fs::remove_dir_all(workspace.join("keep")).unwrap();
        std::os::unix::fs::symlink("other", workspace.join("keep")).unwrap();
        assert_eq!(write(session, "keep/a").await.kind, Outcome::Error);
        assert_eq!(std::fs::read_dir(workspace.join("other")).unwrap().count(), 0, "nothing is there");
        // The control: a directory is no link.
        std::fs::create_dir(workspace.join("docs/deep")).unwrap();
        assert_eq!(write(session, "docs/deep/b").await.kind, Outcome::Output);
        assert_eq!(host.asked().len(), 0);
    });
}

/// S0-54, S0-59: a rule that asks and says more comes before what a person has said always to, and one that denies in any case.
#[test]
fn s0_59_a_more_specific_rule_comes_before_an_always() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let workspace = tempfile::tempdir().unwrap();
    let rules = "[[rules]]\npermission = \"write\"\npattern = \"docs/private/**\"\naction = \"ask\"\n\
        [[rules]]\npermission = \"write\"\npattern = \"docs/never/**\"\naction = \"deny\"";
    runtime.block_on(async {
        let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
        let host = SteadyPerson::new(Some(Answer::Wider));
        let mut spec = with_manifest(workspace.path(), rules);
        spec.approvers.push(Arc::clone(&host) as Arc<dyn Approver>);
        let session = supervisor.open(spec).await.unwrap();
        assert_eq!(write(&session, "docs/a.txt").await.kind, Outcome::Output);
        assert_eq!(write(&session, "docs/b.txt").await.kind, Outcome::Output);
        assert_eq!(host.asked().len(), 1, "the control: one question for the directory");
        assert_eq!(write(&session, "docs/private/key").await.kind, Outcome::Output);
        let [question] = &host.asked()[..] else { panic!("the manifest asks about it") };
        assert!(question.why[0].starts_with("the rule ask write \"docs/private/**\""), "{:?}", question.why);
        let denied = write(&session, "docs/never/x").await;
        assert_eq!(denied.metadata.denial.map(|denial| denial.layer), Some(Layer::Rule));
        assert!(host.asked().is_empty() && !workspace.path().join("docs/never").exists());
    });
}

/// A preview says what rules and watchdogs say of a call. Nobody is asked, and nothing runs.
#[test]
fn a_preview_asks_nobody_and_runs_nothing() {
    with_sessions(Some(Answer::Once), async |session, host, workspace| {
        let args = json!({ "path": "new", "content": "x" });
        let preview = session.preview("write", &args, None).await.unwrap();
        assert!(!preview.asks.is_empty(), "{preview:?}");
        assert!(session.preview("read", &json!({ "path": "new" }), None).await.unwrap().asks.is_empty());
        let denied = session.preview("read", &json!({ "path": "/etc/shadow" }), None).await;
        assert!(matches!(denied, Err(callgate::CallError::Denied(_))), "{denied:?}");
        assert!(host.asked().is_empty() && !workspace.join("new").exists());
        // The control: the call itself asks, and runs.
        write(session, "new").await;
        assert!(host.asked().len() == 1 && workspace.join("new").exists());
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

/// C-17, X1-22: whoever is asked about keeps its place, whatever the later calls are allowed; and nobody runs before the answer.
#[test]
fn c_17_x1_22_a_call_that_is_asked_about_is_not_passed() {
    with_sessions(Some(Answer::Once), async |session, host, workspace| {
        session.add_rule(&allow("write")).unwrap();
        std::fs::write(workspace.join("log"), "").unwrap();
        *host.after.lock().unwrap() = Duration::from_millis(300);
        let (asked, written, read, other) = tokio::join!(
            bash(session, "echo asked > log"),
            write(session, "log"),
            session.call("read", json!({ "path": "log" })),
            bash(session, "cat log; echo other >> log"),
        );
        for result in [&asked, &written, &read, &other] {
            assert_eq!(result.kind, Outcome::Output, "{result:?}");
        }
        assert_eq!(read.data.unwrap()["content"], "x", "after the second");
        assert_eq!(other.data.unwrap()["output"], "x");
        assert_eq!(std::fs::read_to_string(workspace.join("log")).unwrap(), "xother\n");
        let asked = host.asked();
        let lines: Vec<_> = asked.iter().map(|question| question.arguments["command"].as_str().unwrap()).collect();
        assert_eq!(lines, ["echo asked > log", "cat log; echo other >> log"], "in the order of the calls");
    });
}

/// X1-15, X1-17, C-6: where a call would have to be asked about and nobody is there, `headless = "halt"` skips the rest of the batch,
/// allowed or not; nothing of it runs.
#[test]
fn x1_15_a_halt_skips_the_rest_of_the_batch() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let workspace = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
        let spec = with_manifest(workspace.path(), "headless = \"halt\"");
        let session = supervisor.open(spec).await.unwrap();
        session.add_rule(&allow("write")).unwrap();
        assert_eq!(write(&session, "control").await.kind, Outcome::Output);
        let (first, asked, later, last) = tokio::join!(
            write(&session, "first"),
            bash(&session, "echo x > made"),
            write(&session, "later"),
            session.call("read", json!({ "path": "control" })),
        );
        assert_eq!(first.kind, Outcome::Output, "{first:?}");
        for result in [asked, later, last] {
            assert_eq!(result.kind, Outcome::Error, "{result:?}");
            assert!(result.error_text.as_ref().unwrap().contains("the session is halted"), "{result:?}");
        }
        assert!(session.is_halted());
        let mut names: Vec<_> =
            std::fs::read_dir(workspace.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["control", "first"]);
    });
}

/// S1-15, X1-8, C-5: in the mode `allowlist` what the list does not have is asked about. X1-16: in `yolo` nobody is, with nobody
/// there either. X1-10: a session's mode is the one that it was opened with, whatever others have.
#[test]
fn s1_15_a_miss_of_the_list_is_asked_about() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let workspace = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
        let host = SteadyPerson::new(Some(Answer::Once));
        let listed = "mode = \"allowlist\"\nallowlist = [\"write:src*\", \"bash:echo *\"]";
        let mut spec = with_manifest(workspace.path(), listed);
        spec.approvers.push(Arc::clone(&host) as Arc<dyn Approver>);
        let session = supervisor.open(spec).await.unwrap();
        for (call, asks) in [
            (write(&session, "src/a").await, false),
            (write(&session, "src/deep/a").await, false),
            (write(&session, "other/a").await, true),
            (bash(&session, "echo a").await, false),
            (bash(&session, "printf a").await, true),
        ] {
            assert_eq!(call.kind, Outcome::Output, "{call:?}");
            assert_eq!(call.metadata.approved_by.is_some(), asks, "{call:?}");
        }
        assert_eq!(host.asked().len(), 2);
        let other = supervisor.open(with_manifest(workspace.path(), "mode = \"yolo\"")).await.unwrap();
        assert_eq!(bash(&other, "printf a").await.kind, Outcome::Output);
        assert_eq!(bash(&session, "printf a").await.metadata.approved_by.as_deref(), Some("host"));
        assert_eq!(host.asked().len(), 1);
    });
}

/// X1-1 to X1-3, S1-12, C-7: what a rule denies no watchdog is asked about; what a watchdog denies no person is; and the denial says
/// whose it was and by which rule. What the profile lets pass without a question is shown to the watchdogs all the same.
#[test]
fn x1_2_x1_3_each_stage_is_asked_about_what_passed_the_one_before() {
    #[derive(Debug)]
    struct Counts(Arc<Mutex<Vec<String>>>);
    impl Watchdog for Counts {
        fn judge(&self, call: &CallFacts<'_>) -> Verdict {
            self.0.lock().unwrap().push(call.tool.to_owned());
            let reason = Reason { rule: "code-of-its-own".to_owned(), text: "no".to_owned() };
            if call.args["path"] == "guarded" { Verdict::Deny(reason) } else { Verdict::Allow }
        }
    }
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let workspace = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
        let host = SteadyPerson::new(Some(Answer::Reject));
        let denies = "[[rules]]\npermission = \"write\"\npattern = \"denied\"\naction = \"deny\"";
        let mut spec = with_manifest(workspace.path(), denies);
        spec.approvers.push(Arc::clone(&host) as Arc<dyn Approver>);
        spec.watchdogs.push(Arc::new(Counts(Arc::clone(&seen))));
        let session = supervisor.open(spec).await.unwrap();
        let asked = || (std::mem::take(&mut *seen.lock().unwrap()).len(), host.asked().len());
        let denial = |result: ResultEnvelope| {
            let denial = result.metadata.denial.unwrap();
            (denial.layer, denial.reason)
        };
        let (layer, reason) = denial(write(&session, "denied").await);
        assert!(layer == Layer::Rule && reason.contains("deny write \"denied\""), "{reason}");
        assert_eq!(asked(), (0, 0));
        let (layer, reason) = denial(write(&session, "guarded").await);
        assert!(layer == Layer::Watchdog && reason.contains("code-of-its-own"), "{reason}");
        assert_eq!(asked(), (1, 0));
        assert_eq!(denial(write(&session, "asked").await).0, Layer::Person);
        assert_eq!(asked(), (1, 1));
        let silent = session.call("glob", json!({ "pattern": "*" })).await;
        assert!(silent.kind == Outcome::Output && silent.metadata.approved_by.is_none());
        assert_eq!(asked(), (1, 0));
        assert!(std::fs::read_dir(workspace.path()).unwrap().next().is_none());
    });
}

/// A watchdog of the host's, which says of a path in the workspace what is set.
#[derive(Debug, Clone, Default)]
struct PathWatchdog(Arc<Mutex<(String, usize)>>);

impl PathWatchdog {
    /// Has it say this from now on, and returns how often it was asked so far.
    fn says(&self, verdict: &str) -> usize {
        let mut state = self.0.lock().unwrap();
        state.0 = verdict.to_owned();
        std::mem::take(&mut state.1)
    }
}

impl Watchdog for PathWatchdog {
    fn judge(&self, _call: &CallFacts<'_>) -> Verdict {
        let mut state = self.0.lock().unwrap();
        state.1 += 1;
        let reason = Reason { rule: "of-the-host".to_owned(), text: "look at this".to_owned() };
        match state.0.as_str() {
            "deny" => Verdict::Deny(reason),
            "ask" => Verdict::Ask(reason),
            _ => Verdict::Allow,
        }
    }
}

/// Runs `test` in a session of each strength in this mode, with such a watchdog and this person.
fn with_watchdog(
    mode: Mode,
    answer: Answer,
    test: impl AsyncFn(&Session, &PathWatchdog, &SteadyPerson, &std::path::Path),
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in STRENGTHS {
        let (workspace, says, host) =
            (tempfile::tempdir().unwrap(), PathWatchdog::default(), SteadyPerson::new(Some(answer)));
        runtime.block_on(async {
            let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
            let mut spec = SessionSpec::developer(workspace.path()).strength(strength).mode(mode);
            spec.approvers.push(Arc::clone(&host) as Arc<dyn Approver>);
            spec.watchdogs.push(Arc::new(says.clone()));
            let session = supervisor.open(spec).await.unwrap();
            test(&session, &says, &host, workspace.path()).await;
        });
    }
}

/// S1-12, S1-17: a key that was approved once is not asked about again, and that is all: each invocation goes through the rules
/// and the watchdogs, which may deny it by then.
#[test]
fn s1_12_every_invocation_runs_the_whole_chain() {
    with_watchdog(Mode::Ask, Answer::Wider, async |session, says, host, workspace| {
        assert_eq!(write(session, "src/a").await.kind, Outcome::Output);
        assert_eq!((says.says("allow"), host.asked().len()), (1, 1));
        let again = write(session, "src/b").await;
        assert_eq!(again.metadata.approved_by.as_deref(), Some("session"), "the control: {again:?}");
        assert_eq!((says.says("deny"), host.asked().len()), (1, 0));
        let denied = write(session, "src/c").await;
        assert_eq!(denied.metadata.denial.map(|denial| denial.layer), Some(Layer::Watchdog));
        assert_eq!((says.says("allow"), host.asked().len()), (1, 0));
        let deny = Rule::new("fs.write", Action::Deny).pattern("src/d");
        session.add_rule(&deny).unwrap();
        let denied = write(session, "src/d").await;
        assert_eq!(denied.metadata.denial.map(|denial| denial.layer), Some(Layer::Rule));
        assert_eq!((says.says("allow"), host.asked().len()), (0, 0));
        assert_eq!(write(session, "src/b").await.kind, Outcome::Output, "the control");
        assert!(!workspace.join("src/c").exists() && !workspace.join("src/d").exists());
    });
}

/// X0-11, S0-59: of what a watchdog says, only `ask` comes to the person, with its reason; "once" is for that call, "always" holds
/// for the session, and what a host records as always rejected is not asked about again.
#[test]
fn x0_11_only_a_watchdog_s_question_comes_to_the_person() {
    for answer in [Answer::Once, Answer::Always, Answer::Reject] {
        with_watchdog(Mode::Yolo, answer, async |session, says, host, workspace| {
            let made = |path: &str| std::fs::remove_file(workspace.join(path)).is_ok();
            says.says("allow");
            assert_eq!(write(session, "a").await.kind, Outcome::Output);
            says.says("deny");
            let denied = write(session, "a").await.metadata.denial.unwrap();
            assert!(denied.layer == Layer::Watchdog && denied.reason.contains("look at this"), "{denied:?}");
            assert_eq!(host.asked().len(), 0, "neither is a question");
            assert!(made("a"), "the first call's");
            says.says("ask");
            for asks in [true, answer != Answer::Always] {
                let result = write(session, "a").await;
                let questions = host.asked();
                assert_eq!(questions.len(), usize::from(asks), "{answer:?}");
                assert!(
                    questions.iter().all(|question| question.why == ["look at this (of-the-host)"]),
                    "{questions:?}"
                );
                assert_eq!(made("a"), answer != Answer::Reject, "{answer:?}");
                let by = if asks { "host" } else { "session" };
                let by = (answer != Answer::Reject).then_some(by);
                assert_eq!(result.metadata.approved_by.as_deref(), by, "{answer:?}");
                let layer = result.metadata.denial.map(|denial| denial.layer);
                assert_eq!(layer, (answer == Answer::Reject).then_some(Layer::Person), "{answer:?}");
            }
            let reject = Rule::new("write", Action::Deny).pattern("a");
            session.add_rule(&reject).unwrap();
            let denied = write(session, "a").await.metadata.denial.unwrap();
            assert!(denied.layer == Layer::Rule && denied.reason.contains("(this session)"), "{denied:?}");
            assert!(host.asked().is_empty() && !made("a"));
        });
    }
}

/// X3-3: an answer is for the program that was shown. If it is another one by the time that it comes, nothing runs, and "always"
/// was not said of the other.
#[test]
fn x3_3_an_answer_is_void_if_the_program_is_another_by_then() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (strength, answer) in
        STRENGTHS.into_iter().flat_map(|strength| [(strength, Answer::Once), (strength, Answer::Always)])
    {
        let workspace = tempfile::tempdir().unwrap();
        let (tool, other) = (workspace.path().join("tool.sh"), workspace.path().join("other.sh"));
        let script = |path: &std::path::Path, made: &str| {
            std::fs::write(path, format!("#!/bin/sh\ntouch {made}\n")).unwrap();
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        };
        script(&tool, "shown");
        script(&other, "swapped");
        let host = SteadyPerson::new(Some(answer));
        runtime.block_on(async {
            let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
            let argv = tool.display().to_string();
            let mut spec = SessionSpec::developer(workspace.path()).strength(strength);
            spec.approvers.push(Arc::clone(&host) as Arc<dyn Approver>);
            spec.further_tools.push(Tool::program("tool", move |_| Ok(vec![argv.clone()])));
            let session = supervisor.open(spec).await.unwrap();
            let made = |name: &str| std::fs::remove_file(workspace.path().join(name)).is_ok();
            let (from, to) = (other.clone(), tool.clone());
            *host.first.lock().unwrap() = Some(DeferredAct(Box::new(move || std::fs::rename(from, to).unwrap())));
            let denial = session.call("tool", json!({})).await.metadata.denial.unwrap();
            assert_eq!((denial.layer, denial.reason.as_str()), (Layer::Person, "what was approved has changed since"));
            assert!(!made("shown") && !made("swapped"), "nothing ran");
            assert_eq!(host.asked().len(), 1);
            // It is asked about anew, whatever was said of the one before.
            let result = session.call("tool", json!({})).await;
            assert_eq!(result.kind, Outcome::Output, "the control: {result:?}");
            assert_eq!(host.asked().len(), 1, "{strength:?} {answer:?}");
            assert!(made("swapped"));
        });
    }
}

/// An answer is for what was asked about: if the program that starts is another one by then, it is void (X3-3).
#[test]
fn x3_3_a_stale_answer_is_void() {
    with_sessions(Some(Answer::Always), async |session, host, workspace| {
        // Its time of change is another, and nothing else.
        let touch = || {
            let bash = std::path::Path::new("/bin/bash");
            let mode = bash.metadata().unwrap().permissions();
            std::fs::set_permissions(bash, mode)
        };
        if touch().is_err() {
            return skip("root", "only root may touch /bin/bash");
        }
        *host.first.lock().unwrap() = Some(DeferredAct(Box::new(move || touch().unwrap())));
        let refused = bash(session, "echo x > made").await;
        let denial = refused.metadata.denial.unwrap();
        assert_eq!((denial.layer, denial.reason.as_str()), (Layer::Person, "what was approved has changed since"));
        assert!(!workspace.join("made").exists());
        assert_eq!(bash(session, "echo y > made").await.kind, Outcome::Output, "the control");
        assert!(workspace.join("made").exists());
    });
}

fn allow(tool: &str) -> Rule {
    Rule::new(tool, Action::Allow)
}

/// The workspace to write, any program, and these lines first.
/// X0-18, X1-3: whoever is asked sees that a call goes with a credential: its header, to which host and how, and not its value.
#[test]
fn x0_18_whoever_is_asked_sees_that_a_credential_goes_along() {
    use std::os::unix::fs::PermissionsExt as _;
    let secret = "secret-of-a-question";
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in STRENGTHS {
        let (workspace, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let key = outside.path().join("key");
        std::fs::write(&key, secret).unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        let credential = |host: &str, over: &str, header: &str| {
            format!(
                "[[net.credentials]]\nhost = \"{host}\"\nover = \"{over}\"\nheader = \"{header}\"\nfile = {key:?}\n"
            )
        };
        let lines = [
            "[agents.one]\ndescription = \"x\"\ntools = []\nrunner = [\"/bin/true\"]\ncredentials = [\"a.example\"]\n",
            "requires.net.hosts = [\"a.example\"]\n[agents.none]\ndescription = \"x\"\ntools = []\nrunner = [\"/bin/true\"]\n",
            "requires.net.hosts = [\"a.example\"]\n[requires.net]\nhosts = [\"a.example\", \"b.example\", \"c.example\"]\n",
            "[[rules]]\npermission = \"*\"\naction = \"ask\"\n",
            &credential("a.example", "https", "X-Key"),
            &credential("b.example", "http", "Authorization"),
        ]
        .concat();
        let host = SteadyPerson::new(Some(Answer::Reject));
        runtime.block_on(async {
            let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
            let mut spec = with_manifest(workspace.path(), &lines).strength(strength);
            spec.approvers.push(Arc::clone(&host) as Arc<dyn Approver>);
            let session = supervisor.open(spec).await.unwrap();
            let fetch = |url: &str| ("web_fetch", json!({ "url": url }));
            let task = |agent: &str| ("task", json!({ "subagent_type": agent, "prompt": "x" }));
            let (key, of_b) = ("x-key for a.example over https", "authorization for b.example over http");
            for ((tool, args), wanted) in [
                (fetch("https://a.example/"), Some(key)),
                (fetch("http://a.example/"), None),
                (fetch("http://b.example/"), Some(of_b)),
                (fetch("https://b.example/"), None),
                (fetch("https://c.example/"), None),
                (("bash", json!({ "command": "true" })), Some(of_b)),
                (("write", json!({ "path": "x", "content": "x" })), None),
                (task("one"), Some(key)),
                (task("none"), None),
            ] {
                let envelope = session.call(tool, args.clone()).await;
                assert_eq!(envelope.kind, Outcome::Error, "{args}: {envelope:?}");
                let [question] = &host.asked()[..] else { panic!("{args}: asked once: {envelope:?}") };
                assert_eq!(question.credentials, wanted.as_slice(), "{args}");
                let shown = callgate::shown::question(question, 80);
                let line = wanted.map(|wanted| format!("callgate adds your credentials:\n  | {wanted}\n"));
                assert!(line.as_ref().is_none_or(|line| shown.contains(line)), "{args}: {shown}");
                assert_eq!(shown.contains("credentials"), wanted.is_some(), "{args}: {shown}");
                assert!(!shown.contains(secret) && !format!("{question:?}").contains(secret), "{shown}");
            }
        });
    }
}

fn with_manifest(workspace: &std::path::Path, lines: &str) -> SessionSpec {
    let grants = "[requires.fs]\nwrite = [\"{workspace}/**\"]\n[[requires.shell]]\ncmd = \"*\"";
    let manifest = Manifest::parse(&format!("{lines}\n{grants}"), Format::Toml, "m.toml").unwrap();
    SessionSpec::with_manifest(workspace, manifest)
}

/// S0-15: a link that is made where a rule grants writing, while a person is asked, leads the call nowhere.
#[test]
fn s0_15_a_link_that_comes_later_refuses_the_call() {
    with_sessions(Some(Answer::Once), async |session, host, workspace| {
        std::fs::create_dir(workspace.join("src")).unwrap();
        let grant = RuleGrant::default().write(vec![PathTemplate::parse("out/**").unwrap()]);
        session.add_rule(&Rule::new("bash", Action::Ask).pattern("cp *").grant(grant)).unwrap();
        std::fs::write(workspace.join("new"), "new").unwrap();
        let (link, made) = (workspace.join("out"), workspace.join("src/made"));
        let plant = {
            let link = link.clone();
            move || std::os::unix::fs::symlink("src", link).unwrap()
        };
        *host.first.lock().unwrap() = Some(DeferredAct(Box::new(plant)));
        let refused = bash(session, "cp new src/made").await;
        assert_eq!(host.asked().len(), 1, "{refused:?}");
        assert_eq!(refused.metadata.denial.as_ref().map(|denial| denial.layer), Some(Layer::Rule), "{refused:?}");
        assert!(refused.error_text.unwrap().contains("a symbolic link leads it elsewhere"));
        assert!(!made.exists());
        std::fs::remove_file(&link).unwrap();
        std::fs::create_dir(&link).unwrap();
        let done = bash(session, "cp new out/made").await;
        assert_eq!(done.metadata.approved_by.as_deref(), Some("host"), "the control: {done:?}");
        assert!(link.join("made").exists());
    });
}

/// S0-15, A2: a link that is there for moments leads no narrowed call elsewhere, whenever callgate looks.
#[test]
fn s0_15_a2_a_link_that_comes_and_goes_leads_nowhere() {
    with_sessions(None, async |session, _, workspace| {
        for directory in ["src", "out"] {
            std::fs::create_dir(workspace.join(directory)).unwrap();
        }
        std::fs::write(workspace.join("new"), "new").unwrap();
        std::os::unix::fs::symlink("src", workspace.join("link")).unwrap();
        let grant = RuleGrant::default().write(vec![PathTemplate::parse("out/**").unwrap()]);
        session.add_rule(&Rule::new("bash", Action::Allow).pattern("cp *").grant(grant)).unwrap();
        let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let flipping = {
            let (over, out, link) = (Arc::clone(&over), workspace.join("out"), workspace.join("link"));
            std::thread::spawn(move || {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    let (out, link) = (&out, &link);
                    let exchange = rustix::fs::RenameFlags::EXCHANGE;
                    rustix::fs::renameat_with(rustix::fs::CWD, out, rustix::fs::CWD, link, exchange).unwrap();
                    std::thread::sleep(Duration::from_micros(300));
                }
            })
        };
        let mut done = 0;
        for number in 0..60 {
            let called = bash(session, &format!("cp new out/{number}")).await;
            done += usize::from(called.kind == Outcome::Output);
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        flipping.join().unwrap();
        let made: Vec<_> = std::fs::read_dir(workspace.join("src")).unwrap().collect();
        assert!(made.is_empty(), "what the rule does not name was written: {made:?}");
        assert!(done > 0, "the control: some calls found the directory");
        let directory = if workspace.join("out").is_symlink() { "link" } else { "out" };
        assert!(std::fs::read_dir(workspace.join(directory)).unwrap().count() > 0);
    });
}

/// X0-11: a host can record "always" as a rule of the session; it decides from then on. One that makes no sense is refused.
#[test]
fn x0_11_a_host_adds_rules() {
    with_sessions(Some(Answer::Reject), async |session, host, _| {
        let rule = |pattern: &str, action| Rule::new("bash", action).pattern(pattern);
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
        let wrong = Rule::new("fs.raed", Action::Deny);
        assert!(callgate::with_causes(&session.add_rule(&wrong).unwrap_err()).contains("there is no capability"));
    });
}

/// E8: what a person was shown is what is changed, and not what a link leads to: one that was there, one that took the name
/// while they were asked, one on the way.
#[test]
fn e8_no_link_leads_elsewhere_what_a_person_approved() {
    with_sessions(Some(Answer::Once), async |session, host, workspace| {
        std::fs::create_dir_all(workspace.join("deep")).unwrap();
        for file in ["other", "deep/file", "swapped"] {
            std::fs::write(workspace.join(file), "old").unwrap();
        }
        std::os::unix::fs::symlink("other", workspace.join("link")).unwrap();
        std::os::unix::fs::symlink("deep", workspace.join("way")).unwrap();
        let (from, to) = (workspace.join("link"), workspace.join("swapped"));
        let swap = move || std::fs::rename(from, to).unwrap();
        for (path, act) in [("link", None), ("way/file", None), ("swapped", Some(DeferredAct(Box::new(swap))))] {
            *host.first.lock().unwrap() = act;
            let edit = json!({ "path": path, "old_string": "old", "new_string": "new" });
            for (tool, args) in [("edit", edit), ("write", json!({ "path": path, "content": "new" }))] {
                let denied = session.call(tool, args).await;
                let said = denied.error_text.unwrap_or_default();
                assert!(said.contains("goes by a symbolic link to"), "{tool} {path}: {said}");
                assert_eq!(host.asked().len(), 1, "{tool} {path}");
            }
        }
        for file in ["other", "deep/file"] {
            assert_eq!(std::fs::read_to_string(workspace.join(file)).unwrap(), "old");
        }
        // The control: by its own name.
        assert_eq!(write(session, "other").await.kind, Outcome::Output);
        assert_eq!(std::fs::read_to_string(workspace.join("other")).unwrap(), "x");
    });
}

/// S3-12, X3-2: in `auto-edit` the two tools that change files run without a word, and nothing else that changes something does.
#[test]
fn s3_12_x3_2_auto_edit_asks_about_all_but_edits() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in STRENGTHS {
        let workspace = tempfile::tempdir().unwrap();
        runtime.block_on(async {
            let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
            let open = async |mode| {
                let spec = SessionSpec::developer(workspace.path()).strength(strength).mode(mode);
                supervisor.open(spec).await.unwrap()
            };
            let session = open(Mode::AutoEdit).await;
            assert_eq!(write(&session, "a").await.kind, Outcome::Output);
            let edit = json!({ "path": "a", "old_string": "x", "new_string": "y" });
            assert_eq!(session.call("edit", edit.clone()).await.kind, Outcome::Output);
            assert_eq!(session.call("read", json!({ "path": "a" })).await.kind, Outcome::Output);
            let denial = bash(&session, "touch b").await.metadata.denial.unwrap();
            assert_eq!(denial.layer, Layer::Person);
            assert!(!workspace.path().join("b").is_file());
            // The controls: in `ask` an edit is asked about, in `yolo` a command is not.
            let session = open(Mode::Ask).await;
            assert_eq!(session.call("edit", edit).await.metadata.denial.unwrap().layer, Layer::Person);
            assert_eq!(std::fs::read_to_string(workspace.path().join("a")).unwrap(), "y");
            let session = open(Mode::Yolo).await;
            assert_eq!(bash(&session, "touch b").await.kind, Outcome::Output);
        });
    }
}
