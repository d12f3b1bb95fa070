//! One contract for every tool (S0-1), whoever carries its calls out: a worker, a program in the sandbox, the host, another
//! process. Each is registered here as a host registers its own.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use callgate::policy::mode::Mode;
use callgate::policy::requirement::{Program as Granted, RequirementSet, ShellRunRequirement};
use callgate::policy::rules::{Action, Rule, RuleScope};
use callgate::policy::watchdog::{CallFacts, Reason, Verdict, Watchdog};
use callgate::{
    HandlerCall, Launcher, Layer, OpenError, Outcome, Registry, RegistryError, Session, SessionSpec, Stdio, Subject,
    Supervisor, Tool,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::{Mutex, mpsc, oneshot};

use super::{STRENGTHS, callgate};

/// A schema of one text.
fn one(name: &str) -> Value {
    json!({
        "type": "object",
        "properties": { name: { "type": "string" } },
        "required": [name],
        "additionalProperties": false,
    })
}

/// A note-keeper that the host answers.
fn note() -> Tool {
    let kept = Arc::new(std::sync::Mutex::new(Vec::new()));
    let handler = move |call: HandlerCall| {
        let kept = Arc::clone(&kept);
        async move {
            let text = call.args["text"].as_str().unwrap_or_default().to_owned();
            match text.as_str() {
                "fail" => return Err("it cannot be noted".to_owned()),
                "wait" => tokio::time::sleep(Duration::from_secs(60)).await,
                _ => {}
            }
            let mut kept = kept.lock().unwrap();
            kept.push(text);
            Ok(json!({ "notes": *kept, "session": call.session }))
        }
    };
    Tool::host("note", handler)
        .description("Keeps a note.")
        .parameters(one("text"))
        .output_schema(json!({ "type": "object", "required": ["notes"] }))
        .subject(Subject::Note)
        .timeout(Duration::from_millis(300))
}

/// A program of the sandbox's.
fn count() -> Tool {
    let shell = vec![ShellRunRequirement { cmd: Granted::parse("wc").unwrap(), args: None }];
    Tool::program("count", |args| {
        let file = args["file"].as_str().ok_or("no file")?;
        Ok(vec!["wc".to_owned(), "-c".to_owned(), file.to_owned()])
    })
    .description("Counts the bytes of a file.")
    .parameters(one("file"))
    .requires(RequirementSet { shell, ..RequirementSet::default() })
}

/// Questions for a server, each with where its answer goes.
type ModelQuestion = (Value, oneshot::Sender<Result<Value, String>>);

/// A server's tool; the server starts when there is a session for it to be confined in.
fn upper(questions: mpsc::UnboundedSender<ModelQuestion>) -> Tool {
    let handler = move |call: HandlerCall| {
        let (answer, answered) = oneshot::channel();
        let sent = questions.send((call.args, answer));
        async move {
            sent.map_err(|_gone| "the server is gone".to_owned())?;
            answered.await.map_err(|_gone| "the server is gone".to_owned())?
        }
    };
    Tool::remote("texts", "upper", handler).description("Puts a text in capitals.").parameters(one("text"))
}

/// A server in the session's sandbox, a line of JSON for each question and answer.
async fn serve(session: &Session, mut questions: mpsc::UnboundedReceiver<ModelQuestion>) {
    const SERVER: &str =
        "import json, sys\nfor line in sys.stdin:\n    print(json.dumps(json.loads(line)['text'].upper()), flush=True)";
    let (input, to) = std::io::pipe().unwrap();
    let (from, output) = std::io::pipe().unwrap();
    let error = OwnedFd::from(std::fs::File::options().write(true).open("/dev/null").unwrap());
    let program =
        session.spawn(["python3", "-c", SERVER], Stdio::new(input.into(), output.into(), error)).await.unwrap();
    let (mut to, from) =
        (pipe::Sender::from_owned_fd(to.into()).unwrap(), pipe::Receiver::from_owned_fd(from.into()).unwrap());
    let mut lines = BufReader::new(from).lines();
    while let Some((args, answer)) = questions.recv().await {
        to.write_all(format!("{args}\n").as_bytes()).await.unwrap();
        let line = lines.next_line().await.unwrap().unwrap();
        answer.send(serde_json::from_str(&line).map_err(|e| e.to_string())).unwrap();
    }
    drop(to);
    assert_eq!(program.wait().await.unwrap().code, Some(0));
}

fn rule(permission: &str, pattern: Option<&str>, action: Action) -> (RuleScope, Rule) {
    let rule = Rule::new(permission, action);
    (RuleScope::Session, pattern.map_or(rule.clone(), |pattern| rule.pattern(pattern)))
}

/// Runs a test in a session of each strength with all three, and a server.
fn with_tools(change: impl Fn(&mut SessionSpec), test: impl AsyncFn(&Session)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in STRENGTHS {
        let workspace = tempfile::tempdir().unwrap();
        std::fs::write(workspace.path().join("four"), "four").unwrap();
        runtime.block_on(async {
            let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
            let (questions, asked) = mpsc::unbounded_channel();
            let mut spec = SessionSpec::developer(workspace.path()).strength(strength).mode(Mode::Yolo);
            spec.further_tools = vec![note(), count(), upper(questions)];
            change(&mut spec);
            let session = supervisor.open(spec).await.unwrap();
            tokio::select! {
                () = serve(&session, asked) => panic!("the server ended"),
                () = test(&session) => {}
            }
        });
    }
}

/// S0-1, S0-68: four kinds of executor, one contract and one kind of result.
#[test]
fn s0_1_every_kind_of_tool_has_one_contract() {
    with_tools(
        |_| (),
        async |session| {
            for (tool, args, data) in [
                ("read", json!({ "path": "four" }), json!("four")),
                ("count", json!({ "file": "four" }), json!("4 four\n")),
                ("upper", json!({ "text": "four" }), json!("FOUR")),
                ("note", json!({ "text": "four" }), json!(["four"])),
            ] {
                let result = session.call(tool, args).await;
                assert_eq!(result.kind, Outcome::Output, "{tool}: {result:?}");
                let seen = result.data.unwrap();
                let part = ["content", "output", "notes"].iter().find_map(|key| seen.get(*key)).unwrap_or(&seen);
                assert_eq!(*part, data, "{tool}");
                assert!(result.metadata.decision.is_some(), "{tool}: rules have seen it");
                // Only of what ran in the sandbox it is claimed.
                let confined = matches!(tool, "read" | "count");
                assert_eq!(!result.metadata.enforced.is_empty(), confined, "{tool}");
                // S0-66: what does not match the schema is an error of the call, and reaches nobody.
                let wrong = session.call(tool, json!({ "nothing": 1 })).await;
                assert_eq!(wrong.metadata.denial.map(|denial| denial.layer), Some(Layer::Schema), "{tool}");
            }
            let failed = session.call("note", json!({ "text": "fail" })).await;
            assert_eq!((failed.kind, failed.error_text.as_deref()), (Outcome::Error, Some("it cannot be noted")));
            let late = session.call("note", json!({ "text": "wait" })).await;
            assert_eq!((late.kind, late.metadata.timed_out), (Outcome::Error, Some(true)), "{late:?}");
            let after = session.call("note", json!({ "text": "more" })).await;
            assert_eq!(after.data.unwrap()["notes"], json!(["four", "more"]), "what failed was not kept");
        },
    );
}

/// S0-61: a program is checked by layer 1 like any other: what `requires` grants it may start, and nothing else.
#[test]
fn s0_61_a_program_starts_what_is_granted() {
    let only_wc = |spec: &mut SessionSpec| {
        for (_, requires) in &mut spec.requires {
            requires.shell.clear();
        }
        let other = Tool::program("list", |_| Ok(vec!["ls".to_owned()]));
        spec.further_tools = vec![count(), other];
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in STRENGTHS {
        let workspace = tempfile::tempdir().unwrap();
        std::fs::write(workspace.path().join("four"), "four").unwrap();
        runtime.block_on(async {
            let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
            let mut spec = SessionSpec::developer(workspace.path()).strength(strength).mode(Mode::Yolo);
            only_wc(&mut spec);
            spec.tools = true;
            // Without `bash`, which requires any program.
            spec.manifest = Some(
                callgate::policy::manifest::Manifest::parse(
                    "tools = [\"count\", \"list\"]",
                    callgate::policy::document::Format::Toml,
                    "callgate.toml",
                )
                .unwrap(),
            );
            let session = supervisor.open(spec).await.unwrap();
            let granted = session.call("count", json!({ "file": "four" })).await;
            assert_eq!(granted.data.unwrap()["output"], "4 four\n", "the control");
            let denied = session.call("list", json!({})).await;
            assert_eq!(denied.metadata.denial.map(|denial| denial.layer), Some(Layer::Capability));
        });
    }
}

/// S0-50, X0-10: rules name a server's tool by its server, and are about what a tool is about, whatever its name.
#[test]
fn s0_50_x0_10_rules_go_by_subject_and_server() {
    let rules = |spec: &mut SessionSpec| {
        spec.rules = vec![
            rule("mcp:texts:*", None, Action::Deny),
            rule("count", Some("wc * secret"), Action::Deny),
            rule("shell.run", Some("wc * other"), Action::Deny),
        ];
    };
    with_tools(rules, async |session| {
        let layer =
            async |tool: &str, args: Value| session.call(tool, args).await.metadata.denial.map(|denial| denial.layer);
        assert_eq!(layer("upper", json!({ "text": "x" })).await, Some(Layer::Rule));
        assert_eq!(layer("note", json!({ "text": "x" })).await, None, "the control");
        assert_eq!(layer("count", json!({ "file": "secret" })).await, Some(Layer::Rule));
        assert_eq!(layer("count", json!({ "file": "other" })).await, Some(Layer::Rule));
        assert_eq!(layer("count", json!({ "file": "four" })).await, None, "the control");
    });
}

/// S0-52, S0-57, S1-12: in mode `ask` a tool that changes things is asked about, and with nobody there denied; one that keeps
/// the session's notes is not, nor one that says that it needs no approval.
#[test]
fn s0_52_s1_12_what_is_asked_about_goes_by_the_contract() {
    let ask = |spec: &mut SessionSpec| {
        spec.mode = Some(Mode::Ask);
        let answer = |_call: HandlerCall| async { Ok(json!(1)) };
        spec.further_tools.push(Tool::host("plain", answer));
        spec.further_tools.push(Tool::host("free", answer).subject(Subject::Delegate).ungated());
        spec.further_tools.push(Tool::host("bound", answer).subject(Subject::Delegate));
    };
    with_tools(ask, async |session| {
        let layer = async |tool: &str| session.call(tool, json!({})).await.metadata.denial.map(|denial| denial.layer);
        assert_eq!(layer("plain").await, Some(Layer::Person), "who says nothing of itself is asked about");
        assert_eq!(layer("bound").await, Some(Layer::Person), "the control");
        assert_eq!(layer("free").await, None);
        let note = session.call("note", json!({ "text": "x" })).await;
        assert_eq!(note.kind, Outcome::Output, "{note:?}");
    });
}

#[derive(Debug)]
struct Denies(&'static str, Arc<AtomicU32>);

impl Watchdog for Denies {
    fn judge(&self, call: &CallFacts<'_>) -> Verdict {
        self.1.fetch_add(1, Ordering::Relaxed);
        let reason = Reason { rule: "no".to_owned(), text: "not this one".to_owned() };
        if call.tool == self.0 { Verdict::Deny(reason) } else { Verdict::Allow }
    }
}

/// S0-58, S0-60: the watchdogs see the calls of every kind, of tools that need no approval too, and what they deny is not carried
/// out.
#[test]
fn s0_58_watchdogs_see_every_kind_of_tool() {
    for tool in ["note", "count", "mcp:texts:upper", "read", "free"] {
        let (seen, ran) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let watch = |spec: &mut SessionSpec| {
            let ran = Arc::clone(&ran);
            let answer = move |_call: HandlerCall| {
                ran.fetch_add(1, Ordering::Relaxed);
                async { Ok(json!(1)) }
            };
            spec.further_tools.push(Tool::host("free", answer).parameters(one("text")).ungated());
            spec.watchdogs.push(Arc::new(Denies(tool, Arc::clone(&seen))));
        };
        with_tools(watch, async |session| {
            let name = tool.rsplit(':').next().unwrap();
            let args = |name: &str| match name {
                "note" | "upper" | "free" => json!({ "text": "x" }),
                "count" => json!({ "file": "four" }),
                _ => json!({ "path": "four" }),
            };
            for other in ["note", "count", "upper", "read", "free"] {
                let denied = session.call(other, args(other)).await.metadata.denial.map(|denial| denial.layer);
                assert_eq!(denied == Some(Layer::Watchdog), other == name, "{other} where {tool} is denied");
            }
        });
        assert_eq!(seen.load(Ordering::Relaxed), 10, "each call, in both strengths");
        assert_eq!(ran.load(Ordering::Relaxed), if tool == "free" { 0 } else { 2 }, "{tool}");
    }
}

/// C-17: calls of a tool that has not opted in run one at a time, in their order, beside nobody.
#[test]
fn c_17_a_tool_runs_alone_unless_it_opts_in() {
    let tool = |name: &str, running: &Arc<Mutex<(u32, u32)>>| {
        let running = Arc::clone(running);
        Tool::host(name, move |_call| {
            let running = Arc::clone(&running);
            async move {
                let now = {
                    let mut running = running.lock().await;
                    running.0 += 1;
                    running.1 = running.1.max(running.0);
                    running.0
                };
                tokio::time::sleep(Duration::from_millis(50)).await;
                running.lock().await.0 -= 1;
                Ok(json!(now))
            }
        })
        .subject(Subject::Search)
    };
    let (alone, beside) = (Arc::default(), Arc::default());
    let add = |spec: &mut SessionSpec| {
        spec.further_tools.push(tool("alone", &alone));
        spec.further_tools.push(tool("beside", &beside).side_by_side());
    };
    with_tools(add, async |session| {
        let call = |name: &'static str| session.call(name, json!({}));
        tokio::join!(call("alone"), call("alone"), call("alone"));
        tokio::join!(call("beside"), call("beside"), call("beside"));
    });
    let most = |running: &Arc<Mutex<(u32, u32)>>| running.try_lock().unwrap().1;
    assert_eq!((most(&alone), most(&beside)), (1, 3));
}

/// S0-44: what a host's tool has no room for is kept, as of any other.
#[test]
fn s0_44_a_long_answer_is_cut_and_kept() {
    let long = |spec: &mut SessionSpec| {
        spec.further_tools
            .push(Tool::host("long", |_call| async { Ok(json!("é".repeat(150_000))) }).subject(Subject::Think));
    };
    with_tools(long, async |session| {
        let result = session.call("long", json!({})).await;
        let head = result.data.unwrap()["head"].as_str().unwrap().to_owned();
        assert_eq!(result.metadata.truncated, Some(true));
        let rest = std::fs::read_to_string(result.metadata.output_path.unwrap()).unwrap();
        assert_eq!(head + &rest, "é".repeat(150_000));
    });
}

/// S0-9, S0-24, S1-4: names are flat; a locked one keeps its meaning, also where this build has no such tool.
#[test]
fn s0_9_s0_24_names_are_taken_once() {
    let tool = |name: &str| Tool::host(name, |_call| async { Ok(Value::Null) });
    let mut registry = Registry::locked().unwrap();
    registry.add(tool("mine")).unwrap();
    for taken in ["mine", "read", "web_fetch", "question"] {
        assert!(matches!(registry.add(tool(taken)), Err(RegistryError::Taken { .. })), "{taken}");
    }
    for no_name in ["", "a b", "mcp:x:y", "a.b", &"x".repeat(65)] {
        assert!(matches!(registry.add(tool(no_name)), Err(RegistryError::Name { .. })), "{no_name}");
    }
    let no_schema = tool("other").parameters(json!({ "type": 7 }));
    assert!(matches!(registry.add(no_schema), Err(RegistryError::Schema { .. })));
    // And a session with one is refused, with nothing left behind.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let workspace = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
        let mut spec = SessionSpec::developer(workspace.path());
        spec.further_tools.push(tool("bash"));
        assert!(matches!(supervisor.open(spec).await, Err(OpenError::Registry(RegistryError::Taken { .. }))));
    });
}
