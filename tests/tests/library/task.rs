//! Subagents: what they may, how many there are, and how they end (X0-20 to X0-30, S0-56, C-12, F11).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::{Arc, Mutex};

use callgate::policy::manifest::{Format, Manifest};
use callgate::policy::path::HostPath;
use callgate::policy::rules::{Action, Rule};
use callgate::{
    AgentRun, AgentRunner, AgentTask, Answer, Approver, Asked, EventKind, Launcher, Outcome, Question, ResultEnvelope,
    Session, SessionSpec, SessionState, Stdio, Store, StrengthChoice, Supervisor,
};
use callgate_tests::{Dice, repetitions};
use serde_json::json;

use super::one_session::children;
use super::{STRENGTHS, callgate, output, runs, until};

/// Runs every agent by one closure.
struct ClosureRunner<F>(F);

impl<F> std::fmt::Debug for ClosureRunner<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("By")
    }
}

impl<F, A> AgentRunner for ClosureRunner<F>
where
    F: Fn(AgentTask) -> A + Send + Sync,
    A: Future<Output = Result<String, String>> + Send + 'static,
{
    fn run(&self, task: AgentTask) -> AgentRun {
        Box::pin(self.0(task))
    }
}

pub(super) fn by<F, A>(run: F) -> Arc<dyn AgentRunner>
where
    F: Fn(AgentTask) -> A + Send + Sync + 'static,
    A: Future<Output = Result<String, String>> + Send + 'static,
{
    Arc::new(ClosureRunner(run))
}

pub(super) fn manifest(text: &str) -> Manifest {
    Manifest::parse(text, Format::Toml, "m.toml").unwrap_or_else(|error| panic!("{error}"))
}

/// Everything in the workspace and every program, and an agent `any` with the same.
pub(super) const ALL: &str = r#"
mode = "yolo"
[requires.fs]
write = ["{workspace}/**"]
[[requires.shell]]
cmd = "*"
[agents.any]
description = "does anything"
[agents.any.requires.fs]
write = ["{workspace}/**"]
"#;

pub(super) fn supervisor(store: Option<&Store>) -> Supervisor {
    let builder = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap());
    match store {
        Some(store) => builder.store(store.clone()).build().unwrap(),
        None => builder.build().unwrap(),
    }
}

pub(super) fn spec(workspace: &Path, strength: StrengthChoice, text: &str) -> SessionSpec {
    SessionSpec::with_manifest(workspace, manifest(text)).strength(strength)
}

pub(super) fn in_each_strength(test: impl AsyncFn(&Path, StrengthChoice)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in STRENGTHS {
        let workspace = tempfile::tempdir().unwrap();
        runtime.block_on(test(&workspace.path().canonicalize().unwrap(), strength));
    }
}

pub(super) async fn task(session: &Session, agent: &str, prompt: &str) -> ResultEnvelope {
    session.call("task", json!({ "subagent_type": agent, "prompt": prompt })).await
}

#[track_caller]
pub(super) fn error_of(envelope: &ResultEnvelope) -> &str {
    envelope.error_text.as_deref().unwrap_or_else(|| panic!("it is no error: {envelope:?}"))
}

#[track_caller]
pub(super) fn answer(envelope: &ResultEnvelope) -> &str {
    envelope.data.as_ref().and_then(|data| data["output"].as_str()).unwrap_or_else(|| panic!("no answer: {envelope:?}"))
}

/// S0-31: a subagent has the skills that its parent's session found, with the files beside them, and no others that came since; one
/// whose `tools` leave `skill` out has none.
#[test]
fn s0_31_a_subagent_has_the_skills_of_its_parent() {
    let home = tempfile::tempdir().unwrap();
    let skill = |name: &str| {
        let directory = home.path().join(".agents/skills").join(name);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("SKILL.md"), format!("---\nname: {name}\ndescription: x\n---\ntext of {name}\n"))
            .unwrap();
        fs::write(directory.join("beside"), "beside\n").unwrap();
    };
    skill("early");
    // Tests run in a process each.
    #[allow(unsafe_code, clippy::disallowed_methods, reason = "no other thread is there yet")]
    // SAFETY: as said.
    unsafe {
        std::env::set_var("HOME", home.path());
    }
    let beside = home.path().canonicalize().unwrap().join(".agents/skills/early/beside");
    let text = format!("{ALL}\n[agents.without]\ndescription = \"x\"\ntools = [\"read\"]\n");
    in_each_strength(async |workspace, strength| {
        let beside = beside.clone();
        let runner = by(move |task: AgentTask| {
            let beside = beside.clone();
            async move {
                let early = task.session.call("skill", json!({ "name": "early" })).await;
                let late = task.session.call("skill", json!({ "name": "late" })).await;
                let read = task.session.call("read", json!({ "path": beside })).await;
                let told = [early, late, read].map(|result| result.data.unwrap_or_default().to_string());
                Ok(told.join("|"))
            }
        });
        let session = supervisor(None).open(spec(workspace, strength, &text).agent_runner(runner)).await.unwrap();
        session.skills().await.unwrap();
        skill("late");
        let told = task(&session, "any", "x").await;
        let told: Vec<&str> = answer(&told).split('|').collect();
        assert!(told[0].contains("text of early") && told[2].contains("beside\\n"), "{told:?}");
        assert_eq!(told[1], "null", "it came since");
        let without = task(&session, "without", "x").await;
        assert!(answer(&without).starts_with("null|null|"), "{without:?}");
        fs::remove_dir_all(home.path().join(".agents/skills/late")).unwrap();
    });
}

/// X0-20, X0-22, S0-17, S0-30: a program gets the prompt and gives the answer; it works in the child's sandbox. Whoever is no subagent, and a
/// name that nobody has, is an error that lists those there are. X0-30: only an agent that is to know its caller is told.
#[test]
fn x0_20_x0_22_s0_17_s0_30_a_program_is_a_subagent() {
    let more = r#"
[agents.cat]
description = "repeats"
runner = ["/bin/cat"]
[agents.knows]
description = "repeats"
mode = "all"
knows_caller = true
runner = ["/bin/cat"]
[agents.edits]
description = "edits"
runner = ["/bin/sh", "-c", "cat > made; echo >&2 sorry; exit 3"]
[agents.edits.requires.fs]
write = ["{workspace}/made"]
[agents.missing]
description = "is not there"
runner = ["/nowhere/agent"]
[agents.picked]
description = "is a person's to pick"
mode = "primary"
"#;
    in_each_strength(async |workspace, strength| {
        let session = supervisor(None).open(spec(workspace, strength, &format!("{ALL}{more}"))).await.unwrap();
        let long = "x".repeat(150_000);
        assert_eq!(answer(&task(&session, "cat", &long).await), long, "more than a pipe holds, both ways");
        let told = task(&session, "knows", "hello").await;
        assert_eq!(answer(&told), "Another agent has started you, and reads your answer.\nhello");
        let failed = task(&session, "edits", "words").await;
        assert_eq!(error_of(&failed), "/bin/sh: it ended with status 3; it had written: sorry");
        assert_eq!(fs::read_to_string(workspace.join("made")).unwrap(), "words");
        for name in ["picked", "nobody"] {
            let expected = format!("there is no subagent `{name}`; there are: any, cat, edits, knows, missing");
            assert_eq!(error_of(&task(&session, name, "x").await), expected);
        }
        assert!(error_of(&task(&session, "any", "x").await).starts_with("nobody runs the subagent `any` here"));
        assert_eq!(task(&session, "missing", "x").await.kind, Outcome::Error);
        let registry = session.registry();
        let tool = registry.find("task").unwrap();
        assert!(tool.description.contains("\n- cat: repeats\n") && !tool.description.contains("picked"));
        let none = supervisor(None).open(SessionSpec::developer(workspace).strength(strength)).await.unwrap();
        assert!(none.registry().find("task").is_none(), "without agents it is not there");
    });
}

/// X0-28, C-12: the sixth level and the sixth in flight are errors of the tool that name the number, as its description does; in
/// the background too.
#[test]
fn x0_28_c_12_depth_and_number_are_bounded() {
    in_each_strength(async |workspace, strength| {
        let deepest = Arc::new(Mutex::new((0, String::new())));
        let seen = Arc::clone(&deepest);
        let runner = by(move |work: AgentTask| {
            let seen = Arc::clone(&seen);
            async move {
                if work.prompt == "wait" {
                    return std::future::pending().await;
                }
                let below = task(&work.session, "any", "deeper").await;
                let mut seen = seen.lock().unwrap();
                if let Some(text) = &below.error_text {
                    *seen = (work.depth, text.clone());
                }
                Ok(format!("{}", work.depth))
            }
        });
        let session = supervisor(None).open(spec(workspace, strength, ALL).agent_runner(runner)).await.unwrap();
        let description = session.registry().find("task").unwrap().description.clone();
        assert!(description.contains("At most 5 subagents") && description.contains("at most 5 deep"), "{description}");
        assert_eq!(answer(&task(&session, "any", "go").await), "1");
        let refused = "subagents are nested at most 5 deep, and this session is at that depth; do the work here";
        assert_eq!(*deepest.lock().unwrap(), (5, refused.to_owned()));

        let mut events = session.events();
        let background = json!({ "subagent_type": "any", "prompt": "wait", "background": true });
        for _ in 0..5 {
            let started = session.call("task", background.clone()).await;
            assert_eq!(started.kind, Outcome::Output, "{started:?}");
        }
        for arguments in [background, json!({ "subagent_type": "any", "prompt": "go" })] {
            let sixth = session.call("task", arguments).await;
            let expected =
                "5 subagents of this session are in flight, and there are at most 5; wait until one of them has ended";
            assert_eq!(error_of(&sixth), expected);
        }
        session.abort().await;
        assert_eq!(answer(&task(&session, "any", "go").await), "1", "their places are free");
        drop(session);
        let mut ends = Vec::new();
        while let Some(event) = events.next().await {
            let event = event.unwrap();
            if event.tool == "task-completion" && event.kind != EventKind::Proposed && event.kind != EventKind::Started
            {
                ends.push(event.kind);
            }
        }
        assert_eq!(ends, [EventKind::Cancelled; 5], "X0-23: an abort of the parent reaches those in the background");
    });
}

/// Says yes for always.
#[derive(Debug, Default)]
struct AlwaysPerson(Mutex<Vec<String>>);

impl Approver for AlwaysPerson {
    fn name(&self) -> &'static str {
        "person"
    }

    fn ask(&self, question: Arc<Question>) -> Asked {
        let asked = question.arguments["command"].as_str().unwrap_or(&question.tool).to_owned();
        let by = question.agent.as_deref().unwrap_or("the session");
        self.0.lock().unwrap().push(format!("{asked} by {by} in {}", question.session));
        Box::pin(async { Some(Answer::Always) })
    }
}

/// S0-56, X0-25, X0-26: what was denied to the parent, by whomever, is denied to the child, whatever its own rules allow; what the
/// child's own rules deny is its own matter. X0-27: a person's yes, and secrets in the environment, stay with the parent.
#[test]
fn s0_56_x0_25_x0_26_x0_27_a_child_inherits_denials_and_no_credentials() {
    const TEXT: &str = r#"
mode = "ask"
[requires.fs]
write = ["{workspace}/**"]
[[requires.shell]]
cmd = "*"
[[rules]]
permission = "task"
action = "allow"
[[rules]]
permission = "bash"
pattern = "touch denied*"
action = "deny"
[env.set]
MY_TOKEN = "secret-value"
DATABASE_URL = "secret-url"
PLAIN = "plain"
[agents.any]
description = "does anything"
env = ["PLAIN"]
[[agents.any.rules]]
permission = "bash"
pattern = "touch *"
action = "allow"
[[agents.any.rules]]
permission = "bash"
pattern = "touch later"
action = "allow"
[[agents.any.rules]]
permission = "bash"
pattern = "touch own"
action = "deny"
"#;
    in_each_strength(async |workspace, strength| {
        let runner = by(async |work: AgentTask| {
            let call = async |command: &str| {
                let result = work.session.call("bash", json!({ "command": command })).await;
                let data = result.data.unwrap_or_default()["output"].as_str().unwrap_or_default().to_owned();
                format!("{command}: {}{data}\n", if result.kind == Outcome::Output { "yes " } else { "no " })
            };
            let mut all = String::new();
            for command in
                ["touch denied-1", "touch later", "touch own", "touch free", "printenv MY_TOKEN DATABASE_URL PLAIN"]
            {
                all += &call(command).await;
            }
            Ok(all)
        });
        let person = Arc::new(AlwaysPerson::default());
        let spec = spec(workspace, strength, TEXT).agent_runner(runner).approver(person.clone());
        let session = supervisor(None).open(spec).await.unwrap();
        session.add_rule(&Rule::new("bash", Action::Deny).pattern("touch la*")).unwrap();
        let printed = output(&session, "printenv MY_TOKEN DATABASE_URL PLAIN").await;
        assert_eq!(printed, "secret-value\nsecret-url\nplain\n", "the control");
        let expected = "touch denied-1: no \ntouch later: no \ntouch own: no \ntouch free: yes \n\
                        printenv MY_TOKEN DATABASE_URL PLAIN: yes plain\n\n";
        assert_eq!(answer(&task(&session, "any", "x").await), expected);
        let asked: Vec<String> = person.0.lock().unwrap().clone();
        assert_eq!(asked.len(), 2, "once in each session: {asked:?}");
        assert!(asked[0].ends_with(session.id()) && !asked[1].ends_with(session.id()), "{asked:?}");
        assert!(
            asked[0].contains(" by the session ") && asked[1].contains(" by any "),
            "F17: whose call it is: {asked:?}"
        );
        assert_eq!(session.call("bash", json!({ "command": "touch own" })).await.kind, Outcome::Output, "X0-26");
        assert!(!workspace.join("denied-1").exists() && !workspace.join("later").exists());
    });
}

/// The brokers of this process's launcher.
fn brokers() -> usize {
    let called =
        |pid: &u32, name: &str| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
    let launchers = children(std::process::id()).into_iter().filter(|pid| called(pid, "cg-launcher"));
    launchers.flat_map(children).filter(|pid| called(pid, "cg-broker")).count()
}

/// X0-23: an abort of the parent ends a tree of depth 3, in which a call and a program run whose processes ignore signals and have
/// left their group. When it returns, none of them runs. A child that its host has kept does nothing any more.
#[test]
fn x0_23_an_abort_ends_the_whole_tree() {
    in_each_strength(async |workspace, strength| {
        let digits: String = workspace.file_name().unwrap().as_encoded_bytes().iter().map(u8::to_string).collect();
        let mark = format!("63.{digits}");
        let line = format!("trap '' TERM INT HUP; setsid sleep {mark} & touch $0; sleep {mark}");
        let text = format!(
            "{ALL}[agents.program]\ndescription = \"sleeps\"\nrunner = [\"/bin/sh\", \"-c\", \"{line}\", \"program\"]\n"
        );
        let text = format!("{text}[agents.program.requires.fs]\nwrite = [\"{{workspace}}/**\"]\n");
        let kept = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&kept);
        let command = line.replace("$0", "call");
        let runner = by(move |work: AgentTask| {
            let (keep, command) = (Arc::clone(&keep), command.clone());
            async move {
                keep.lock().unwrap().push(Arc::clone(&work.session));
                if work.depth < 2 {
                    let below = json!({ "subagent_type": "any", "prompt": "x" });
                    return Ok(format!("{:?}", work.session.batch([("task", below)]).await));
                }
                let program = json!({ "subagent_type": "program", "prompt": "x", "background": true });
                let both = tokio::join!(
                    work.session.call("task", program),
                    // By the host's own task, which nobody drops.
                    tokio::spawn({
                        let session = Arc::clone(&work.session);
                        async move { session.spawn(["/bin/true"], Stdio::null().unwrap()).await.map(drop).unwrap() }
                    }),
                    task_deeper(&work.session, &command),
                );
                Ok(format!("{both:?}"))
            }
        });
        let state = tempfile::tempdir().unwrap();
        let store = Store::at(&state.path().canonicalize().unwrap().join("store")).unwrap();
        let session =
            supervisor(Some(&store)).open(spec(workspace, strength, &text).agent_runner(runner)).await.unwrap();
        let (result, ()) = tokio::join!(task(&session, "any", "x"), async {
            let there = |name: &str| workspace.join(name).exists();
            until("all of it runs", || there("call") && there("program") && runs(&mark)).await;
            session.abort().await;
            assert!(!runs(&mark), "nothing runs when it returns");
        });
        assert_eq!(text_of(&result), "the call was aborted");
        let children = std::mem::take(&mut *kept.lock().unwrap());
        for child in children {
            let late = child.call("bash", json!({ "command": "touch late" })).await;
            assert_eq!(text_of(&late), "the call was aborted by the parent of its session, which has ended");
            let late = child.spawn(["/bin/touch", "late"], Stdio::null().unwrap()).await;
            assert!(late.is_err(), "nor a program");
        }
        assert!(!workspace.join("late").exists());
        until("only the parent's processes are left", || brokers() == 1).await;
        assert_eq!(output(&session, "echo fine").await, "fine\n", "the parent goes on");
        // All of it is recorded: each child with its parent and the call that started it, and closed.
        let mut above = store.session(session.id()).unwrap();
        for agent in ["any", "any", "program"] {
            let below: Vec<_> =
                store.children(&above).unwrap().into_iter().filter(|c| c.agent.as_deref() == Some(agent)).collect();
            let [child] = &below[..] else { panic!("one of {agent}: {below:?}") };
            let calls = store.calls(&above).unwrap();
            let call = calls.iter().find(|call| Some(&call.id) == child.call.as_ref()).unwrap();
            let outcome = if agent == "program" { "succeeded" } else { "cancelled" };
            assert_eq!((call.tool.as_str(), call.outcome.as_deref()), ("task", Some(outcome)));
            assert_eq!((child.state, child.parent.as_deref()), (SessionState::Closed, Some(above.id.as_str())));
            above = child.clone();
        }
        assert_eq!(store.sessions().unwrap().len(), 1, "X0-29: those that nobody is to inspect are not listed");
    });
}

async fn task_deeper(session: &Session, command: &str) -> ResultEnvelope {
    session.call("bash", json!({ "command": command })).await
}

fn text_of(envelope: &ResultEnvelope) -> String {
    error_of(envelope).to_owned()
}

/// X0-20, X0-23, X0-29: in the background a call returns the child's id, and the answer is an event and a part of the parent's own.
/// After a crash that part is an error. A child that may be inspected is listed with its parent.
#[test]
fn x0_20_x0_23_x0_29_a_background_answer_is_recorded_with_its_parent() {
    const MORE: &str = "[agents.seen]\ndescription = \"is listed\"\ninspectable = true\n";
    in_each_strength(async |workspace, strength| {
        let go = Arc::new(tokio::sync::Semaphore::new(0));
        let gate = Arc::clone(&go);
        let runner = by(move |work: AgentTask| {
            let gate = Arc::clone(&gate);
            async move {
                gate.acquire().await.unwrap().forget();
                Ok(format!("{} of {}", work.prompt, work.agent))
            }
        });
        let state = tempfile::tempdir().unwrap();
        let state = state.path().canonicalize().unwrap();
        let store = Store::at(&state.join("store")).unwrap();
        let text = format!("{ALL}{MORE}");
        let session =
            supervisor(Some(&store)).open(spec(workspace, strength, &text).agent_runner(runner)).await.unwrap();
        let mut events = session.events();
        let arguments = json!({ "subagent_type": "seen", "prompt": "answer", "background": true });
        let started = session.call("task", arguments).await;
        let id = started.data.as_ref().unwrap()["session_id"].as_str().unwrap().to_owned();
        // As it would be found if this process were killed now.
        let crashed = state.join("crashed");
        fs::create_dir(&crashed).unwrap();
        fs::set_permissions(&crashed, fs::Permissions::from_mode(0o700)).unwrap();
        for name in ["sessions.db", "sessions.db-wal"] {
            fs::copy(store.path().with_file_name(name), crashed.join(name)).unwrap();
        }
        let crashed = Store::at(&crashed).unwrap();
        let completion = |store: &Store| {
            let calls = store.calls(&store.session(session.id()).unwrap()).unwrap();
            calls.into_iter().find(|call| call.tool == "task-completion").unwrap()
        };
        let failed = completion(&crashed);
        assert_eq!(failed.arguments, json!({ "subagent_type": "seen", "session_id": id }));
        assert!(error_of(&failed.result.unwrap()).contains("callgate ended before this call did"));
        go.add_permits(1);
        let told = loop {
            let event = events.next().await.unwrap().unwrap();
            if event.tool == "task-completion" && event.kind == EventKind::Succeeded {
                break event.envelope().unwrap();
            }
        };
        assert_eq!(told.data, Some(json!({ "output": "answer of seen", "session_id": id })));
        assert_eq!(completion(&store).result.unwrap().data, told.data);
        go.add_permits(1);
        let seen = task(&session, "seen", "more").await;
        assert_eq!(answer(&seen), "more of seen");
        let listed: Vec<_> = store.sessions().unwrap().into_iter().filter_map(|record| record.agent).collect();
        assert_eq!(listed, ["seen", "seen"]);
        assert_eq!(seen.data.unwrap()["session_id"], store.sessions().unwrap().pop().unwrap().id);
    });
}

/// F11: a link that a call of the parent has put in the place of what the child is granted leads it nowhere, also outside the
/// workspace; nor is a directory the workspace that has taken its name.
#[test]
fn f11_a_parent_s_links_lead_a_child_nowhere() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in STRENGTHS {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        for name in ["ws/docs", "shared/docs", "secret"] {
            fs::create_dir_all(top.join(name)).unwrap();
        }
        fs::write(top.join("secret/file"), "secret").unwrap();
        fs::write(top.join("shared/docs/file"), "shared").unwrap();
        let (shared, docs) = (top.join("shared").display().to_string(), top.join("ws/docs").display().to_string());
        let text = format!(
            "mode = \"yolo\"\ntools = [\"bash\", \"task\"]\n[requires.fs]\nwrite = [\"{{workspace}}/**\", \"{shared}/**\"]\n\
             [agents.inside]\ndescription = \"reads\"\ntools = []\nrunner = [\"/bin/cat\", \"{docs}/file\"]\n\
             [agents.inside.requires.fs]\nread = [\"{{workspace}}/docs/**\"]\n\
             [agents.beside]\ndescription = \"reads\"\ntools = []\nrunner = [\"/bin/cat\", \"{shared}/docs/file\"]\n\
             [agents.beside.requires.fs]\nread = [\"{shared}/docs/**\"]\n"
        );
        runtime.block_on(async {
            let session = supervisor(None).open(spec(&top.join("ws"), strength, &text)).await.unwrap();
            output(&session, "echo inside > docs/file").await;
            assert_eq!(answer(&task(&session, "inside", "x").await), "inside\n", "the control");
            assert_eq!(answer(&task(&session, "beside", "x").await), "shared", "the control");
            for (place, agent) in [("ws", "inside"), ("shared", "beside")] {
                let (docs, aside) = (top.join(place).join("docs"), top.join(place).join("aside"));
                fs::rename(&docs, &aside).unwrap();
                // Out of what the parent has, and to what it has and the child has not.
                for (target, why) in [(top.join("secret"), "it leads to"), (aside.clone(), "link")] {
                    output(&session, &format!("ln -s {} {}", target.display(), docs.display())).await;
                    let led = task(&session, agent, "x").await;
                    assert!(error_of(&led).contains("could not be started") && error_of(&led).contains(why), "{led:?}");
                    fs::remove_file(&docs).unwrap();
                }
                fs::rename(&aside, &docs).unwrap();
            }
            assert_eq!(answer(&task(&session, "inside", "x").await), "inside\n", "the control");
            fs::rename(top.join("ws"), top.join("old")).unwrap();
            symlink("secret", top.join("ws")).unwrap();
            assert_eq!(task(&session, "inside", "x").await.kind, Outcome::Error);
            fs::remove_file(top.join("ws")).unwrap();
            fs::rename(top.join("secret"), top.join("ws")).unwrap();
            let replaced = task(&session, "inside", "x").await;
            assert!(error_of(&replaced).contains("replaced"), "{replaced:?}");
        });
    }
}

const PLACES: [&str; 5] = ["top", "a/f", "a/b/f", "b/f", "d/f"];
const PATTERNS: [&str; 5] = ["DATA/**", "DATA/a/**", "DATA/a/b/**", "DATA/b/**", "DATA/d/**"];

/// Acts that a program of the session can do, by trying it: the answer of the kernel itself.
async fn tried(session: &Session) -> BTreeSet<String> {
    let mut script = String::new();
    for place in PLACES {
        // Where the file is not to be seen, a new one is in a mount of the session's own.
        writeln!(
            script,
            "test -f $0/{place} && cat $0/{place} > /dev/null && echo r {place} && : 3>> $0/{place} && echo w {place};"
        )
        .unwrap();
    }
    let (file, null) = (tempfile::tempfile().unwrap(), Stdio::null().unwrap());
    let stdio = null.with_output(file.try_clone().unwrap().into());
    let root = data(session).to_string();
    let program = session.spawn(["/bin/bash", "-c", &script, &root], stdio).await.unwrap();
    program.wait().await.unwrap();
    let mut text = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut text, 0).unwrap();
    String::from_utf8(text).unwrap().lines().map(str::to_owned).collect()
}

/// X0-24, X0-25, X0-26, F11: parents, children and grandchildren of random manifests try everything. What a child can do, its
/// parent can, and it is what it has declared and its parent has. (The laws of the policy have 1,000 such manifests; here each is
/// tried in the kernel.) `CALLGATE_FAMILIES` is how many: 15 if it is
/// not set, in a full run 50.
#[test]
fn f11_x0_24_x0_25_x0_26_what_a_child_can_do_its_parent_can() {
    let families =
        std::env::var("CALLGATE_FAMILIES").ok().and_then(|text| text.parse().ok()).unwrap_or(repetitions(15, 50_u64));
    in_each_strength(async |workspace, strength| {
        for place in PLACES {
            let data = workspace.join("data");
            fs::create_dir_all(data.join(place).parent().unwrap()).unwrap();
            fs::write(data.join(place), place).unwrap();
        }
        fs::create_dir(workspace.join("ws")).unwrap();
        let supervisor = supervisor(None);
        let (mut denied, mut allowed, mut less) = (0, 0, 0);
        for seed in 0..families {
            let mut dice = Dice::new((seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let mut some = |most: usize| -> Vec<&str> { (0..=dice.below(most)).map(|_| dice.one(&PATTERNS)).collect() };
            let mut text = "mode = \"yolo\"\ntools = [\"bash\", \"task\"]\n".to_owned();
            for table in ["", "agents.child.", "agents.grandchild."] {
                if !table.is_empty() {
                    write!(
                        text,
                        "[{}]\ndescription = \"x\"\ntools = [\"bash\", \"task\"]\n",
                        table.trim_end_matches('.')
                    )
                    .unwrap();
                }
                let (mut read, write) = (some(3), some(2));
                read.push("{workspace}/**");
                write!(text, "[{table}requires.fs]\nread = {}\nwrite = {}\n", json!(read), json!(write)).unwrap();
            }
            let found = Arc::new(Mutex::new(Vec::new()));
            let keep = Arc::clone(&found);
            let runner = by(move |work: AgentTask| {
                let keep = Arc::clone(&keep);
                async move {
                    let (can, may) = (tried(&work.session).await, allowed_by(&work.session));
                    keep.lock().unwrap().push((can, may));
                    if work.depth == 2 {
                        return Ok(String::new());
                    }
                    let below = task(&work.session, "grandchild", "x").await;
                    below.error_text.map_or(Ok(String::new()), Err)
                }
            });
            let text = text.replace("DATA", &workspace.join("data").display().to_string());
            let spec = spec(&workspace.join("ws"), strength, &text).agent_runner(runner);
            let session = supervisor.open(spec).await.unwrap_or_else(|error| panic!("{error}\n{text}"));
            let mut generations = vec![(tried(&session).await, allowed_by(&session))];
            let done = task(&session, "child", "x").await;
            assert_eq!(done.kind, Outcome::Output, "{done:?}\n{text}");
            generations.extend(found.lock().unwrap().drain(..));
            assert_eq!(generations.len(), 3);
            for (can, may) in &generations {
                assert_eq!(can, may, "the kernel and the policy agree\n{text}");
                allowed += can.len();
                denied += PLACES.len() * 2 - can.len();
            }
            for pair in generations.windows(2) {
                assert!(pair[1].0.is_subset(&pair[0].0), "{pair:?}\n{text}");
                less += usize::from(pair[1].0.len() < pair[0].0.len());
            }
        }
        assert!(denied > 0 && allowed > 0 && less > 0, "the control: {denied} {allowed} {less}");
    });
}

/// Beside the workspace, which everybody may enter.
fn data(session: &Session) -> HostPath {
    session.plan().workspace.first().unwrap().as_path().parent().unwrap().join("data").into()
}

/// Acts that the policy allows.
fn allowed_by(session: &Session) -> BTreeSet<String> {
    let effective = session.effective();
    let root = data(session);
    let mut allowed = BTreeSet::new();
    for place in PLACES {
        let path = HostPath::from(root.as_path().join(place));
        allowed.extend(effective.allows_read(&path).then(|| format!("r {place}")));
        allowed.extend(effective.allows_write(&path).then(|| format!("w {place}")));
    }
    allowed
}

/// A misspelt tool of an agent is an error when the session is opened, and not when the agent is at work.
#[test]
fn a_misspelt_tool_of_an_agent_is_found_at_once() {
    in_each_strength(async |workspace, strength| {
        let text = format!("{ALL}[agents.typo]\ndescription = \"x\"\ntools = [\"raed\"]\n");
        let error = supervisor(None).open(spec(workspace, strength, &text)).await.err().unwrap();
        assert!(error.to_string().contains("raed"), "{error}");
    });
}
