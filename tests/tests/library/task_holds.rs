//! Bounds on a subagent and its program: what its parent may not, its parent's calls, rules, people and end (X0-23 to
//! X0-29).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use callgate::policy::rules::{Action, Rule};
use callgate::{
    AgentRun, AgentRunner, AgentTask, Answer, Approver, Asked, EventKind, Outcome, Question, SessionState, Stdio, Store,
};
use serde_json::json;
use tokio::sync::Semaphore;

use super::task::{ALL, answer, by, error_of, in_each_strength, spec, supervisor, task};
use super::{runs, until};

/// X0-25: a name that is kept in the parent's trees is kept in the child's, though the child asks for it by its name; where the
/// parent has it by its name, the child that asks for it has it too, and the one that asks for the tree has not.
#[test]
fn x0_25_a_child_releases_no_name_that_its_parent_has_not() {
    const LINE: &str = "for f in .git/hooks/h .env free; do (echo x > $f) 2> /dev/null && echo $f; done; true";
    in_each_strength(async |workspace, strength| {
        fs::create_dir_all(workspace.join(".git/hooks")).unwrap();
        let named = r#"["{workspace}/**", "{workspace}/.git/hooks/**", "{workspace}/.env"]"#;
        let agent = |name: &str, write: &str| {
            format!(
                "[agents.{name}]\ndescription = \"x\"\nrunner = [\"/bin/sh\", \"-c\", {LINE:?}]\n\
                 [agents.{name}.requires.fs]\nwrite = {write}\n"
            )
        };
        let agents = format!("{}{}", agent("named", named), agent("tree", r#"["{workspace}/**"]"#));
        let session = supervisor(None).open(spec(workspace, strength, &format!("{ALL}{agents}"))).await.unwrap();
        let own = session.call("bash", json!({ "command": LINE })).await;
        assert_eq!(own.data.unwrap()["output"], "free\n", "its parent");
        assert_eq!(answer(&task(&session, "named", "x").await), "free\n");
        assert!(!workspace.join(".git/hooks/h").exists() && !workspace.join(".env").exists());
        let text = format!("{ALL}{agents}").replacen(r#"["{workspace}/**"]"#, named, 1);
        let session = supervisor(None).open(spec(workspace, strength, &text)).await.unwrap();
        assert_eq!(answer(&task(&session, "tree", "x").await), "free\n");
        assert_eq!(answer(&task(&session, "named", "x").await), ".git/hooks/h\n.env\nfree\n", "the control");
    });
}

/// X0-25: what a repository leads to is kept in the tree that a session was asked for. So it is for a child that asks for just that
/// place, though its parent was left no more, and for a child of one that asked for no more either.
#[test]
fn x0_25_what_leads_to_a_place_keeps_it_in_all_below() {
    in_each_strength(async |workspace, strength| {
        let line = format!("(echo x > {}/tools/hooks/h) 2> /dev/null && echo wrote; true", workspace.display());
        for name in [".git/objects", ".git/refs", "tools/hooks"] {
            fs::create_dir_all(workspace.join(name)).unwrap();
        }
        fs::write(workspace.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        let only = "[FS]\nwrite = [\"{workspace}/tools/hooks/**\"]\n";
        let text = format!(
            "{ALL}{}[agents.hooks]\ndescription = \"x\"\ntools = []\nrunner = [\"/bin/sh\", \"-c\", {line:?}]\n{}\
             [agents.between]\ndescription = \"x\"\ntools = [\"task\"]\n{}[[agents.between.requires.shell]]\ncmd = \"*\"\n",
            only.replace("FS", "ceiling.fs"),
            only.replace("FS", "agents.hooks.requires.fs"),
            only.replace("FS", "agents.between.requires.fs"),
        );
        for (config, expected) in [("\thooksPath = tools/hooks\n", ""), ("", "wrote\n")] {
            fs::write(workspace.join(".git/config"), format!("[core]\n\tbare = false\n{config}")).unwrap();
            let runner = by(async |work: AgentTask| Ok(answer(&task(&work.session, "hooks", "x").await).to_owned()));
            let session = supervisor(None).open(spec(workspace, strength, &text).agent_runner(runner)).await.unwrap();
            assert_eq!(super::output(&session, &line).await, expected, "the session");
            assert_eq!(answer(&task(&session, "hooks", "x").await), expected, "its child");
            assert_eq!(answer(&task(&session, "between", "x").await), expected, "and that of another");
            assert_eq!(workspace.join("tools/hooks/h").exists(), !expected.is_empty());
        }
    });
}

fn script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// C12, X0-25: what calls of the parent may write is not started as the program of its agent, though the agent may not write it.
#[test]
fn c12_calls_do_not_write_the_program_of_an_agent() {
    in_each_strength(async |workspace, strength| {
        let program = workspace.join("agent.sh");
        script(&program, "#!/bin/sh\necho honest\n");
        fs::create_dir(workspace.join("out")).unwrap();
        let agent = format!(
            "[agents.own]\ndescription = \"x\"\ntools = []\nrunner = [{program:?}]\n\
             [agents.own.requires.fs]\nread = [\"{{workspace}}/**\"]\n"
        );
        let session = supervisor(None).open(spec(workspace, strength, &format!("{ALL}{agent}"))).await.unwrap();
        super::output(&session, "printf '#!/bin/sh\\necho EVIL\\n' > agent.sh").await;
        let refused = task(&session, "own", "x").await;
        assert!(error_of(&refused).contains("calls may write"), "{refused:?}");
        script(&program, "#!/bin/sh\necho honest\n");
        let fixed = format!("{ALL}{agent}").replacen(
            r#"write = ["{workspace}/**"]"#,
            "read = [\"{workspace}/**\"]\nwrite = [\"{workspace}/out/**\"]",
            1,
        );
        let fixed = fixed.replacen("mode = \"yolo\"", "mode = \"yolo\"\ntools = [\"bash\", \"task\"]", 1);
        let session = supervisor(None).open(spec(workspace, strength, &fixed)).await.unwrap();
        assert_eq!(answer(&task(&session, "own", "x").await), "honest\n", "the control");
    });
}

/// Answers by what is asked, and keeps it.
#[derive(Debug)]
struct KeepingPerson {
    answer: Answer,
    asked: Mutex<Vec<Arc<Question>>>,
}

impl KeepingPerson {
    fn who_says(answer: Answer) -> Arc<Self> {
        Arc::new(Self { answer, asked: Mutex::default() })
    }
}

impl Approver for KeepingPerson {
    fn name(&self) -> &'static str {
        "person"
    }

    fn ask(&self, question: Arc<Question>) -> Asked {
        self.asked.lock().unwrap().push(question);
        let answer = self.answer;
        Box::pin(async move { Some(answer) })
    }
}

/// S0-15, S0-56, X0-25: a program that is an agent is started by a call. Rules that ask about programs, deny or narrow them hold
/// for it, and whoever is asked sees the program and what it may change.
#[test]
fn s0_15_s0_56_x0_25_rules_about_programs_hold_for_an_agent_s() {
    const LINE: &str = "touch target/in; touch outside; echo did";
    in_each_strength(async |workspace, strength| {
        fs::create_dir(workspace.join("target")).unwrap();
        let agent = format!(
            "[agents.sh]\ndescription = \"x\"\nrunner = [\"/bin/sh\", \"-c\", {LINE:?}]\n\
             [agents.sh.requires.fs]\nwrite = [\"{{workspace}}/**\"]\n"
        );
        let all = ALL.replacen("mode = \"yolo\"", "mode = \"ask\"", 1);
        let with = |rules: &str| all.replacen("[requires.fs]", &format!("{rules}[requires.fs]"), 1) + &agent;
        let (target, outside) = (workspace.join("target/in"), workspace.join("outside"));

        let narrows = with("[[rules]]\npermission = \"*\"\naction = \"allow\"\ngrant = { write = [\"target/**\"] }\n");
        let session = supervisor(None).open(spec(workspace, strength, &narrows)).await.unwrap();
        assert_eq!(answer(&task(&session, "sh", "x").await), "did\n");
        assert!(target.exists() && !outside.exists(), "it was narrowed");
        fs::remove_file(&target).unwrap();

        let allow = "[[rules]]\npermission = \"task\"\naction = \"allow\"\n";
        let denies = with(&format!(
            "{allow}[[rules]]\npermission = \"shell.run\"\npattern = \"/bin/sh *\"\naction = \"deny\"\n"
        ));
        let session = supervisor(None).open(spec(workspace, strength, &denies)).await.unwrap();
        assert_eq!(task(&session, "sh", "x").await.metadata.denial.unwrap().layer, callgate::Layer::Rule);
        assert!(!target.exists());

        // Also where a rule about `task` itself lets it pass: it is the more specific one, and says nothing of programs.
        let asks = with(&format!("{allow}[[rules]]\npermission = \"shell.run\"\naction = \"ask\"\n"));
        for (says, runs) in [(Answer::Reject, false), (Answer::Once, true)] {
            let person = KeepingPerson::who_says(says);
            let spec = spec(workspace, strength, &asks).approver(person.clone());
            let session = supervisor(None).open(spec).await.unwrap();
            let done = task(&session, "sh", "x").await;
            assert_eq!((done.kind == Outcome::Output, outside.exists()), (runs, runs), "{done:?}");
            let asked = person.asked.lock().unwrap();
            assert_eq!(asked.len(), 1);
            let runner = asked[0].effects.iter().find(|effect| effect.is_implied).expect("the program that runs it");
            assert!(runner.text.contains("/bin/sh -c ") && runner.text.contains(LINE), "{runner:?}");
            assert!(asked[0].effects[0].text.ends_with("has the agent sh work:\nx"), "{:?}", asked[0].effects);
            assert!(asked[0].reach.iter().any(|line| line.starts_with("change ")), "{:?}", asked[0].reach);
            assert_eq!(asked[0].arguments["prompt"], "x");
            let why = &asked[0].why;
            assert!(why.len() == 1 && why[0].starts_with("the rule ask shell.run"), "{why:?}");
            let wider = asked[0].wider.as_ref().expect("whatever the prompt");
            assert!(wider.contains(LINE), "an answer that is kept is about this program: {wider}");
        }
        fs::remove_file(&outside).unwrap();
        fs::remove_file(&target).unwrap();

        // The rules of the agent's own session count: what it has declared, and a grant about programs.
        let grant = "[[rules]]\npermission = \"shell.run\"\naction = \"allow\"\ngrant = { write = [\"target/**\"] }\n";
        let session =
            supervisor(None).open(spec(workspace, strength, &with(&format!("{allow}{grant}")))).await.unwrap();
        assert_eq!(answer(&task(&session, "sh", "x").await), "did\n");
        assert!(target.exists() && !outside.exists(), "it was narrowed");
        let own = with(allow)
            + "[[agents.sh.rules]]\npermission = \"shell.run\"\npattern = \"/bin/sh *\"\naction = \"ask\"\n";
        let session = supervisor(None).open(spec(workspace, strength, &own)).await.unwrap();
        let refused = task(&session, "sh", "x").await;
        assert_eq!(
            refused.metadata.denial.as_ref().map(|denial| denial.layer),
            Some(callgate::Layer::Person),
            "{refused:?}"
        );
        assert!(!outside.exists());
        let session = supervisor(None).open(spec(workspace, strength, &with(allow))).await.unwrap();
        assert_eq!(answer(&task(&session, "sh", "x").await), "did\n", "the control: no rule is about programs");
        assert!(outside.exists());
    });
}

/// X0-11, X0-25: a rule that is added to the parent while a subagent is at work denies to that, and to whom it has started.
#[test]
fn x0_25_a_rule_that_is_added_later_holds_in_all_below() {
    in_each_strength(async |workspace, strength| {
        let (up, go) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let said = Arc::new(Mutex::new(Vec::new()));
        let runner = {
            let (up, go, said) = (Arc::clone(&up), Arc::clone(&go), Arc::clone(&said));
            by(move |work: AgentTask| {
                let (up, go, said) = (Arc::clone(&up), Arc::clone(&go), Arc::clone(&said));
                async move {
                    if work.depth == 1 {
                        return Ok(format!("{:?}", task(&work.session, "any", "x").await.kind));
                    }
                    for command in ["touch later-before", "touch later-after"] {
                        let result = work.session.call("bash", json!({ "command": command })).await;
                        said.lock().unwrap().push(result.metadata.denial.map(|denial| denial.layer));
                        up.add_permits(1);
                        go.acquire().await.unwrap().forget();
                    }
                    Ok(String::new())
                }
            })
        };
        let session = supervisor(None).open(spec(workspace, strength, ALL).agent_runner(runner)).await.unwrap();
        let (done, ()) = tokio::join!(task(&session, "any", "x"), async {
            up.acquire().await.unwrap().forget();
            session.add_rule(&Rule::new("bash", Action::Deny).pattern("touch later*")).unwrap();
            go.add_permits(2);
        });
        assert_eq!(answer(&done), "Output");
        assert_eq!(*said.lock().unwrap(), [None, Some(callgate::Layer::Rule)]);
        assert!(workspace.join("later-before").exists() && !workspace.join("later-after").exists());
    });
}

/// X1-15, X1-41: a subagent that would have to ask where there is nobody halts its parent, too.
#[test]
fn x1_15_x1_41_a_subagent_halts_its_parent() {
    let text = ALL.replacen(
        "mode = \"yolo\"",
        "mode = \"ask\"\nheadless = \"halt\"\nrules = [{ permission = \"task\", action = \"allow\" }, { permission = \"write\", action = \"allow\" }]",
        1,
    );
    in_each_strength(async |workspace, strength| {
        let runner = by(async |work: AgentTask| {
            let asked = work.prompt == "asks";
            let call = if asked {
                ("bash", json!({ "command": "true" }))
            } else {
                ("write", json!({ "path": "child", "content": "x" }))
            };
            Ok(format!("{:?}", work.session.call(call.0, call.1).await.kind))
        });
        let session = supervisor(None).open(spec(workspace, strength, &text).agent_runner(runner)).await.unwrap();
        let write = async |path: &str| session.call("write", json!({ "path": path, "content": "x" })).await;
        assert_eq!(answer(&task(&session, "any", "writes").await), "Output", "the control");
        assert_eq!(write("before").await.kind, Outcome::Output, "the control");
        assert!(error_of(&task(&session, "any", "asks").await).contains("the session is halted"));
        assert!(session.is_halted());
        assert!(error_of(&write("after").await).contains("the session is halted"));
        assert!(
            workspace.join("before").exists() && workspace.join("child").exists() && !workspace.join("after").exists()
        );
    });
}

/// X0-23: a program that the host of an agent has started by its session ends with the agent, whoever still holds it.
#[test]
fn x0_23_what_an_agent_s_host_has_started_ends_with_it() {
    in_each_strength(async |workspace, strength| {
        let digits: String = workspace.file_name().unwrap().as_encoded_bytes().iter().map(u8::to_string).collect();
        let mark = format!("64.{digits}");
        let held = Arc::new(Mutex::new(Vec::new()));
        let runner = {
            let (held, mark, up) = (Arc::clone(&held), mark.clone(), workspace.join("up"));
            by(move |work: AgentTask| {
                let (held, mark, up) = (Arc::clone(&held), mark.clone(), up.clone());
                async move {
                    let line = format!("trap '' TERM INT HUP; setsid sleep {mark} & touch up; sleep {mark}");
                    let stdio = Stdio::null().unwrap();
                    let program = work.session.spawn(["/bin/sh", "-c", &line], stdio).await.unwrap();
                    until("it runs", || up.exists() && runs(&mark)).await;
                    held.lock().unwrap().push((program, Arc::clone(&work.session)));
                    Ok("done".to_owned())
                }
            })
        };
        let session = supervisor(None).open(spec(workspace, strength, ALL).agent_runner(runner)).await.unwrap();
        assert_eq!(answer(&task(&session, "any", "x").await), "done");
        assert!(!runs(&mark), "it has ended with the agent");
        assert_eq!(held.lock().unwrap().len(), 1);
    });
}

/// X0-29: whatever becomes of a subagent, its session is closed: no agent is started that nobody runs, and one whose host breaks is
/// an error like any other, after which there is room for the next.
#[test]
fn x0_29_no_subagent_s_session_stays_open() {
    #[derive(Debug)]
    struct Breaks(bool);
    impl AgentRunner for Breaks {
        fn run(&self, _task: AgentTask) -> AgentRun {
            assert!(!self.0, "breaks at once");
            Box::pin(async { panic!("breaks later") })
        }
    }
    in_each_strength(async |workspace, strength| {
        let state = tempfile::tempdir().unwrap();
        let store = Store::at(&state.path().canonicalize().unwrap().join("store")).unwrap();
        let session = supervisor(Some(&store)).open(spec(workspace, strength, ALL)).await.unwrap();
        assert!(error_of(&task(&session, "any", "x").await).starts_with("nobody runs"));
        let me = store.session(session.id()).unwrap();
        assert_eq!(store.children(&me).unwrap().len(), 0);
        for at_once in [true, false] {
            let spec = spec(workspace, strength, ALL).agent_runner(Arc::new(Breaks(at_once)));
            let session = supervisor(Some(&store)).open(spec).await.unwrap();
            for _ in 0..6 {
                assert!(error_of(&task(&session, "any", "x").await).contains("broke"));
            }
            let me = store.session(session.id()).unwrap();
            let states: Vec<_> = store.children(&me).unwrap().into_iter().map(|child| child.state).collect();
            assert_eq!(states, [SessionState::Closed; 6]);
            session.abort().await;
        }
    });
}

/// Says yes when the test lets it.
#[derive(Debug)]
struct Slow {
    let_it: Arc<Semaphore>,
    now: Arc<AtomicUsize>,
    most: AtomicUsize,
    asked: AtomicUsize,
}

impl Approver for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn ask(&self, _question: Arc<Question>) -> Asked {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let (let_it, now) = (Arc::clone(&self.let_it), Arc::clone(&self.now));
        Box::pin(async move {
            let_it.acquire().await.unwrap().forget();
            now.fetch_sub(1, Ordering::SeqCst);
            Some(Answer::Once)
        })
    }
}

/// C-17: a session and its subagents ask one question at a time.
#[test]
fn c_17_a_family_asks_one_question_at_a_time() {
    let text =
        ALL.replacen("mode = \"yolo\"", "mode = \"ask\"\nrules = [{ permission = \"task\", action = \"allow\" }]", 1);
    in_each_strength(async |workspace, strength| {
        let slow = Arc::new(Slow {
            let_it: Arc::new(Semaphore::new(0)),
            now: Arc::default(),
            most: AtomicUsize::new(0),
            asked: AtomicUsize::new(0),
        });
        let about = Arc::new(AtomicUsize::new(0));
        let runner = {
            let about = Arc::clone(&about);
            by(move |work: AgentTask| {
                let about = Arc::clone(&about);
                async move {
                    about.fetch_add(1, Ordering::SeqCst);
                    Ok(format!("{:?}", work.session.call("bash", json!({ "command": "true" })).await.kind))
                }
            })
        };
        let spec = spec(workspace, strength, &text).agent_runner(runner).approver(slow.clone());
        let session = supervisor(None).open(spec).await.unwrap();
        let own = async || session.call("bash", json!({ "command": "true" })).await.kind;
        let (first, second, third, ()) =
            tokio::join!(task(&session, "any", "x"), task(&session, "any", "x"), own(), async {
                until("all are about to ask", || {
                    about.load(Ordering::SeqCst) == 2 && slow.asked.load(Ordering::SeqCst) > 0
                })
                .await;
                for _ in 0..300 {
                    tokio::task::yield_now().await;
                }
                slow.let_it.add_permits(3);
            });
        assert_eq!((answer(&first), answer(&second), third), ("Output", "Output", Outcome::Output));
        assert_eq!((slow.asked.load(Ordering::SeqCst), slow.most.load(Ordering::SeqCst)), (3, 1));
    });
}

/// S0-44: what an agent's program has changed is told as what a shell's has; and an answer that is too long is cut, not lost.
#[test]
fn s0_44_what_an_agent_s_program_did_and_said_is_told() {
    const LINE: &str = "(echo x > .env) 2> /dev/null; echo x > Makefile";
    in_each_strength(async |workspace, strength| {
        let agents = "[agents.sh]\ndescription = \"x\"\nrunner = [\"/bin/sh\"]\n\
                      [agents.sh.requires.fs]\nwrite = [\"{workspace}/**\"]\n";
        let session = supervisor(None).open(spec(workspace, strength, &format!("{ALL}{agents}"))).await.unwrap();
        let own = session.call("bash", json!({ "command": LINE })).await;
        fs::remove_file(workspace.join("Makefile")).unwrap();
        let told = task(&session, "sh", LINE).await;
        assert_eq!(told.kind, Outcome::Output, "{told:?}");
        assert!(own.metadata.changes.is_some(), "the control: {own:?}");
        assert_eq!(told.metadata.changes, own.metadata.changes);
        assert!(!told.data.unwrap()["notes"].as_array().unwrap().is_empty());
        fs::remove_file(workspace.join("Makefile")).unwrap();
        let failed = task(&session, "sh", &format!("{LINE}; exit 3")).await;
        assert!(error_of(&failed).contains("it ended with status 3"), "{failed:?}");
        assert_eq!(failed.metadata.changes, own.metadata.changes, "also when it fails");
        let long = task(&session, "sh", "head -c 3900000 /dev/zero").await;
        assert_eq!((long.kind, long.metadata.truncated), (Outcome::Output, Some(true)));
        let kept = fs::metadata(long.metadata.output_path.unwrap()).unwrap().len();
        assert_eq!(kept as usize + answer_length(&long.data), 3_900_000);
        let mut events = session.events();
        let background = json!({ "subagent_type": "sh", "prompt": "echo y > Makefile", "background": true });
        session.call("task", background).await;
        loop {
            let event = events.next().await.unwrap().unwrap();
            if event.tool == "task-completion" && event.kind == EventKind::Succeeded {
                break;
            }
        }
    });
}

fn answer_length(data: &Option<serde_json::Value>) -> usize {
    data.as_ref().unwrap()["output"].as_str().unwrap().len()
}

/// C-12: 25 of a family are in flight together, however they are nested; one more is an error of the tool that names the number,
/// and there is room again when they have ended.
#[test]
fn c_12_a_family_is_bounded() {
    in_each_strength(async |workspace, strength| {
        let all_have_tried = Arc::new(tokio::sync::Barrier::new(5));
        let runner = {
            let all_have_tried = Arc::clone(&all_have_tried);
            by(move |work: AgentTask| {
                let all_have_tried = Arc::clone(&all_have_tried);
                async move {
                    match (work.depth, work.prompt.as_str()) {
                        (_, "go") => return Ok("went".to_owned()),
                        (1, _) => {}
                        _ => return std::future::pending().await,
                    }
                    let mut refused = Vec::new();
                    for _ in 0..5 {
                        let wait = json!({ "subagent_type": "any", "prompt": "wait", "background": true });
                        refused.extend(work.session.call("task", wait).await.error_text);
                    }
                    all_have_tried.wait().await;
                    Ok(refused.join("\n"))
                }
            })
        };
        let session = supervisor(None).open(spec(workspace, strength, ALL).agent_runner(runner)).await.unwrap();
        let one = || task(&session, "any", "start");
        let five = tokio::join!(one(), one(), one(), one(), one());
        let refused: Vec<String> = [&five.0, &five.1, &five.2, &five.3, &five.4]
            .iter()
            .flat_map(|done| answer(done).lines().map(str::to_owned).collect::<Vec<_>>())
            .collect();
        assert_eq!(refused.len(), 5, "{refused:?}");
        assert!(refused.iter().all(|text| text.starts_with("25 subagents are in flight together")), "{refused:?}");
        assert_eq!(answer(&task(&session, "any", "go").await), "went");
    });
}
