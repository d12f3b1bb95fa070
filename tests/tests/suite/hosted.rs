//! The tools that the session answers itself, by command (S0-16, S0-18, S0-21, S0-22, S0-26 to S0-32).

use std::fs;
use std::path::PathBuf;

use callgate_tests::{Binaries, Ended, Host, Person, Run, Target, TestEnv, User, matrix};
use serde_json::{Value, json};

/// Where the host's strength makes no difference.
const HERE: Target = Target { host: Host::Namespaces, user: User::Ordinary };

/// The user's own commands: home and state are outside, in a directory that is theirs.
fn user(env: &TestEnv) -> Run {
    let run = env.weakened().variable("HOME", &env.outside().display().to_string());
    run.variable("XDG_STATE_HOME", &env.outside().join("state").display().to_string())
}

fn binary() -> String {
    Binaries::of_this_build().callgate().display().to_string()
}

fn callgate(env: &TestEnv, words: &[&str]) -> Ended {
    let binary = binary();
    user(env).run(&[&[binary.as_str()], words].concat())
}

#[track_caller]
fn succeeds(env: &TestEnv, words: &[&str]) -> String {
    let ended = callgate(env, words);
    assert_eq!(ended.status.code(), Some(0), "{words:?}: {ended:?}");
    ended.stdout
}

/// A call: its exit status and envelope.
#[track_caller]
fn call(env: &TestEnv, flags: &[&str], tool: &str, arguments: &Value) -> (i32, Value) {
    let arguments = arguments.to_string();
    let ended = callgate(env, &[&["call"], flags, &[tool, arguments.as_str()]].concat());
    let envelope = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    (ended.status.code().unwrap(), envelope)
}

/// The data of a call that succeeds.
#[track_caller]
fn data(env: &TestEnv, flags: &[&str], tool: &str, arguments: &Value) -> Value {
    let (code, envelope) = call(env, flags, tool, arguments);
    assert_eq!((code, &envelope["type"]), (0, &json!("output")), "{envelope}");
    envelope["data"].clone()
}

/// The text of a call that does not.
#[track_caller]
fn error(env: &TestEnv, flags: &[&str], tool: &str, arguments: &Value, status: i32) -> String {
    let (code, envelope) = call(env, flags, tool, arguments);
    assert_eq!((code, &envelope["type"]), (status, &json!("error")), "{envelope}");
    envelope["error_text"].as_str().unwrap().to_owned()
}

#[track_caller]
fn new(env: &TestEnv) -> String {
    succeeds(env, &["session", "new"]).trim().to_owned()
}

fn state(env: &TestEnv) -> PathBuf {
    env.outside().join("state")
}

/// S0-16: the list belongs to the session, in whichever process it is continued; it is replaced as a whole, or not at all.
#[test]
fn s0_16_a_todo_list_stays_with_its_session() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (id, other) = (new(&env), new(&env));
        let in_it = ["--session", id.as_str()];
        let todo = |content: &str, status: &str| json!({ "content": content, "status": status });
        let list =
            json!({ "todos": [todo("look", "completed"), todo("mend", "in_progress"), todo("test", "pending")] });
        assert_eq!(data(&env, &in_it, "todo", &list), list);
        assert_eq!(data(&env, &in_it, "todo", &json!({})), list, "the next process sees it");
        assert_eq!(
            data(&env, &["--session", &other], "todo", &json!({})),
            json!({ "todos": [] }),
            "S0-16: the session's"
        );
        assert_eq!(data(&env, &[], "todo", &json!({})), json!({ "todos": [] }));
        let two = json!({ "todos": [todo("a", "in_progress"), todo("b", "in_progress")] });
        let text = error(&env, &in_it, "todo", &two, 65);
        assert!(text.contains("2 items are in_progress, and at most one may be"), "{text}");
        for bad in
            [json!({ "todos": [todo("a", "begun")] }), json!({ "todos": [todo("", "pending")] }), json!({ "todo": [] })]
        {
            error(&env, &in_it, "todo", &bad, 65);
        }
        assert_eq!(data(&env, &in_it, "todo", &json!({})), list, "what was refused changed nothing");
        let shown: Value = serde_json::from_str(&succeeds(&env, &["session", "show", &id, "--json"])).unwrap();
        assert_eq!(shown["todos"], list["todos"]);
        assert!(succeeds(&env, &["session", "show", &id]).contains("  [>] mend\n"));
        let fork = succeeds(&env, &["session", "fork", &id]);
        let fork = ["--session", fork.trim()];
        assert_eq!(data(&env, &fork, "todo", &json!({})), list, "a fork goes on where it was");
        let less = json!({ "todos": [todo("rest", "pending")] });
        assert_eq!(data(&env, &fork, "todo", &less), less, "as a whole");
        assert_eq!(data(&env, &in_it, "todo", &json!({})), list, "and each has its own from then on");
        // X1-31: no secret is written down.
        let secret = json!({ "todos": [todo("use sk-abcdefghijklmnop", "pending")] });
        assert_eq!(data(&env, &in_it, "todo", &secret), secret, "the session itself knows it");
        let written = fs::read_dir(state(&env).join("callgate")).unwrap().map(|entry| entry.unwrap().path());
        let written: Vec<u8> = written.filter(|path| path.is_file()).flat_map(|path| fs::read(path).unwrap()).collect();
        assert!(!written.windows(16).any(|bytes| bytes == b"abcdefghijklmnop"));
    });
}

/// S0-29, S0-57: with nobody there it is an error, always with the same words; no answer is made up, whatever the mode.
#[test]
fn s0_29_s0_57_with_nobody_there_a_question_is_an_error() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let options =
            json!({ "questions": [{ "question": "Which?", "options": [{ "label": "a" }, { "label": "b" }] }] });
        let texts: Vec<String> =
            [&["--asked-by", "agent"][..], &["--mode", "yolo"], &["--asked-by", "agent", "--mode", "yolo"]]
                .into_iter()
                .flat_map(|flags| {
                    [json!({ "questions": [{ "question": "Why?" }] }), options.clone()]
                        .map(|arguments| error(&env, flags, "question", &arguments, 1))
                })
                .collect();
        let fixed = "there is nobody to answer questions in this session; go on with what is known, or end the work and say what is \
                     missing";
        assert_eq!(texts, vec![fixed; 6]);
        // S0-27: what is no question is no call.
        for bad in [json!({}), json!({ "questions": [] }), json!({ "questions": [{ "question": " " }] })] {
            error(&env, &[], "question", &bad, 65);
        }
    });
}

/// S0-26, S0-27, S0-28: a person at a terminal is asked each question, and what they choose or say is the answer.
#[test]
fn s0_26_s0_27_s0_28_a_person_answers_at_the_terminal() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let questions = json!({ "questions": [
            { "question": "Which one?\u{1b}[2J\ncallgate: the tool", "header": "Choice",
              "options": [{ "label": "red", "description": "like blood" }, { "label": "green" }] },
            { "question": "Which of these?", "multi_select": true,
              "options": [{ "label": "x" }, { "label": "y" }, { "label": "z" }] },
            { "question": "And why?" },
        ] });
        env.workspace_file("args", &questions.to_string());
        let person = Person::new(&env);
        person.starts(&format!("{} call question - < args > out; echo ended $?", binary()));
        let asks = "answer? a number, or your own words [none]:";
        person.waits_for(asks, |screen| screen.trim_end().ends_with(asks));
        let screen = person.screen();
        for line in [
            "callgate: the agent asks you; what you type is given to it",
            "  | Choice",
            "  | Which one?\\u{1b}[2J",
            "  | callgate: the tool",
            "1:",
            "  | red",
            "  | like blood",
            "2:",
            "  | green",
        ] {
            assert!(screen.lines().any(|each| each.trim_end() == line), "{line:?} is not on\n{screen}");
        }
        person.enters("3");
        person.shows("there is no such number; answer?");
        person.enters("2");
        let asks = "answer? numbers such as 1,2, or your own words [none]:";
        person.waits_for(asks, |screen| screen.trim_end().ends_with(asks));
        person.enters("3, 1");
        person.waits_for("the last", |screen| screen.trim_end().ends_with("answer? [none]:"));
        person.enters("because of 2 things");
        person.shows_line("ended 0");
        let out =
            || -> Value { serde_json::from_str(&fs::read_to_string(env.workspace().join("out")).unwrap()).unwrap() };
        assert_eq!(out()["data"], json!({ "answers": [["green"], ["x", "z"], ["because of 2 things"]] }));
        // X1-19: who does not want to answer has not answered, and nor has nobody in time.
        for (mark, flags, key, text) in [
            (1, "", "Enter", "the person did not want to answer; go on without, or ask something else"),
            (2, "", "C-d", "the person did not want to answer; go on without, or ask something else"),
            (3, "--approval-timeout 1s ", "", "nobody answered within 1s"),
        ] {
            person.starts(&format!("{} call {flags}question - < args > out; echo done-{mark} $?", binary()));
            if !key.is_empty() {
                person.waits_for("it asks", |screen| screen.trim_end().ends_with("or your own words [none]:"));
                person.presses(&[key]);
            }
            person.shows_line(&format!("done-{mark} 1"));
            assert_eq!(out()["error_text"], text, "{flags}");
        }
    });
}

/// X0-57, X0-56: while a person is asked, the session waits for them; after a crash the question is still there.
#[test]
fn x0_56_x0_57_a_session_waits_for_an_answer() {
    let env = TestEnv::new(HERE);
    let id = new(&env);
    env.workspace_file("args", &json!({ "questions": [{ "question": "Why?" }] }).to_string());
    let person = Person::new(&env);
    let exports = format!("export HOME={} XDG_STATE_HOME={}", env.outside().display(), state(&env).display());
    person.starts(&exports);
    let show = || -> Value { serde_json::from_str(&succeeds(&env, &["session", "show", &id, "--json"])).unwrap() };
    person.starts(&format!("{} call --session {id} question - < args > out; echo ended $?", binary()));
    person.waits_for("it asks", |screen| screen.trim_end().ends_with("answer? [none]:"));
    assert_eq!((&show()["state"], &show()["calls"][0]["waiting"]), (&json!("waiting_on_user_input"), &json!("answer")));
    assert!(succeeds(&env, &["session", "list"]).contains("waiting on an answer"));
    person.enters("so");
    person.shows_line("ended 0");
    assert_eq!((&show()["state"], &show()["calls"][0]["waiting"]), (&json!("idle"), &Value::Null));
    person.starts(&format!("{} call --session {id} question - < args > out; echo again $?", binary()));
    person.waits_for("it asks", |screen| screen.trim_end().ends_with("answer? [none]:"));
    let pid = person.callgate();
    let killed = env.bare().run(&["sh", "-c", &format!("kill -9 {pid}")]);
    assert_eq!(killed.status.code(), Some(0), "{killed:?}");
    person.waits_for("the shell tells it", |screen| screen.contains("again 137"));
    assert_eq!(show()["state"], "waiting_on_user_input", "the question is still there");
    succeeds(&env, &["session", "close", &id]);
    let text = show()["calls"][1]["result"]["error_text"].clone();
    assert_eq!(text, "the session was closed before anybody answered; the call was not made");
}
