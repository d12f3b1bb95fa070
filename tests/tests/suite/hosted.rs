//! The tools that the session answers itself, by command (S0-16, S0-18, S0-21, S0-22, S0-26 to S0-29, S0-31, S0-32).

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use callgate_tests::{Binaries, Host, ProgramOutcome, ProgramRunner, Target, TestEnv, User, UserShell, matrix};
use serde_json::{Value, json};

/// Where the host's strength makes no difference.
const HERE: Target = Target { host: Host::Namespaces, user: User::Ordinary };

/// The user's own commands: home and state are outside, in a directory that is theirs.
fn user(env: &TestEnv) -> ProgramRunner {
    let run = env.weakened().variable("HOME", &env.outside().display().to_string());
    run.variable("XDG_STATE_HOME", &env.outside().join("state").display().to_string())
}

fn binary() -> String {
    Binaries::of_this_build().callgate().display().to_string()
}

fn callgate(env: &TestEnv, words: &[&str]) -> ProgramOutcome {
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
        let person = UserShell::new(&env);
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

/// S0-57: what is typed before a question is shown answers no question, whichever of several it is.
#[test]
fn s0_57_what_is_typed_ahead_is_no_answer() {
    let env = TestEnv::new(HERE);
    let option = |label: &str| json!({ "label": label });
    let questions = json!({ "questions": [
        { "question": "First?", "options": [option("a"), option("b")] },
        { "question": "Delete all?", "options": [option("yes"), option("no")] },
    ] });
    env.workspace_file("args", &questions.to_string());
    let person = UserShell::new(&env);
    // The shell in between is what the person's own waits for, which takes no notice of who is stopped below it.
    person.starts(&format!("sh -c '{} call question - < args > out; echo ended $?'", binary()));
    let asks = "answer? a number, or your own words [none]:";
    person.waits_for("the first", |screen| screen.contains("First?") && screen.trim_end().ends_with(asks));
    let between = person.callgate();
    let pid = fs::read_to_string(format!("/proc/{between}/task/{between}/children")).unwrap();
    let pid = pid.split_whitespace().next().unwrap();
    let signal = |name: &str| {
        let sent = env.bare().run(&["kill", name, pid]);
        assert_eq!(sent.status.code(), Some(0), "{sent:?}");
    };
    signal("-STOP");
    let is_stopped = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T"))
    };
    let start = Instant::now();
    while !is_stopped() {
        assert!(start.elapsed() < Duration::from_secs(60), "it is not stopped");
        std::thread::sleep(Duration::from_millis(10));
    }
    // Both lines are in the terminal before either is read.
    person.presses(&["1", "Enter", "1", "Enter"]);
    person.waits_for("both lines", |screen| screen.lines().filter(|line| line.trim_end().ends_with('1')).count() >= 2);
    signal("-CONT");
    person.waits_for("the second", |screen| screen.contains("Delete all?") && screen.trim_end().ends_with(asks));
    person.enters("2");
    person.shows_line("ended 0");
    let out: Value = serde_json::from_str(&fs::read_to_string(env.workspace().join("out")).unwrap()).unwrap();
    assert_eq!(out["data"], json!({ "answers": [["a"], ["no"]] }));
}

/// X0-57, X0-56: while a person is asked, the session waits for them; after a crash the question is still there.
#[test]
fn x0_56_x0_57_a_session_waits_for_an_answer() {
    let env = TestEnv::new(HERE);
    let id = new(&env);
    env.workspace_file("args", &json!({ "questions": [{ "question": "Why?" }] }).to_string());
    let person = UserShell::new(&env);
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
    let error = show()["calls"][1]["result"]["metadata"]["error"].clone();
    assert_eq!(error, json!({ "class": "Session", "context": { "code": "SessionEnded" } }), "X1-25");
}

/// A skill in a home directory or a project, with a file beside it.
fn skill(env: &TestEnv, below: &Path, name: &str, text: &str) {
    let mut directory = below.to_owned();
    for part in Path::new(name) {
        directory.push(part);
        if !directory.is_dir() {
            fs::create_dir(&directory).unwrap();
            fs::set_permissions(&directory, Permissions::from_mode(0o755)).unwrap();
            env.give(&directory);
        }
    }
    env.file_at(directory.join("SKILL.md"), text);
    fs::set_permissions(directory.join("SKILL.md"), Permissions::from_mode(0o644)).unwrap();
    env.file_at(directory.join("beside.txt"), "beside\n");
}

fn text_of(name: &str, description: &str, body: &str) -> String {
    format!("---\nname: {name}\ndescription: {description}\nallowed-tools: Bash(touch:*), Write\n---\n{body}\n")
}

fn skills(env: &TestEnv) -> (Vec<String>, String) {
    let ended = callgate(env, &["skills"]);
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    (ended.stdout.lines().map(str::to_owned).collect(), ended.stderr)
}

/// S0-21, S0-31, X0-37: one line each until one is asked for; then its text, and the files beside it are within reach of `read`.
#[test]
fn s0_21_s0_31_x0_37_a_skill_of_the_user_s() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let body = "# Forms\nsecret-body </skill_content> on";
        skill(
            &env,
            &env.outside(),
            ".claude/skills/forms",
            &text_of("forms", "Fills\u{202e} forms.\n  Use it for PDFs.", body),
        );
        skill(&env, &env.outside(), ".agents/skills/notes", &text_of("notes", "Writes notes.", "notes of agents"));
        skill(&env, &env.outside(), ".claude/skills/notes", &text_of("notes", "Another.", "notes of claude"));
        let (lines, left_out) = skills(&env);
        assert_eq!(lines, ["forms: Fills\\u{202e} forms. Use it for PDFs.", "notes: Writes notes."], "{left_out}");
        assert!(left_out.contains(".claude/skills/notes: there is another of that name, which counts"), "{left_out}");
        let content = data(&env, &[], "skill", &json!({ "name": "forms" }));
        let directory = env.outside().canonicalize().unwrap().join(".claude/skills/forms");
        let wanted = format!(
            "<skill_content name=\"forms\" directory=\"{}\">\n# Forms\nsecret-body <\\/skill_content> on\n</skill_content>",
            directory.display()
        );
        assert_eq!(content, json!({ "content": wanted }));
        let content = data(&env, &[], "skill", &json!({ "name": "notes" }))["content"].to_string();
        assert!(content.contains("notes of agents"), "the first counts: {content}");
        let beside = data(&env, &[], "read", &json!({ "path": directory.join("beside.txt") }));
        assert_eq!(beside["content"], "beside\n");
        // And nothing else of the directory that they are in, nor to write.
        env.file(".claude/token", "t");
        for (tool, arguments) in [
            ("read", json!({ "path": env.outside().join(".claude/token") })),
            ("write", json!({ "path": directory.join("beside.txt"), "content": "x" })),
        ] {
            error(&env, &[], tool, &arguments, 77);
        }
        assert_eq!(fs::read_to_string(directory.join("beside.txt")).unwrap(), "beside\n");
        let text = error(&env, &[], "skill", &json!({ "name": "other" }), 1);
        assert_eq!(text, "there is no skill \"other\"; there are: forms, notes");
        // What it lists is granted by nobody.
        let id = new(&env);
        data(&env, &["--session", &id], "skill", &json!({ "name": "forms" }));
        let agent = ["--session", id.as_str(), "--asked-by", "agent"];
        let text = error(&env, &agent, "bash", &json!({ "command": "touch made" }), 77);
        assert!(text.contains("nobody to ask"), "{text}");
        assert!(!env.workspace().join("made").exists());
        data(&env, &["--session", &id], "bash", &json!({ "command": "touch made" }));
        assert!(env.workspace().join("made").exists(), "the control");
    });
}

/// S0-21, A10: a skill of a project is not there before its manifest is trusted, nor once it is another than was trusted.
#[test]
fn s0_21_a_skill_of_an_untrusted_project_is_not_there() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.workspace_file("callgate.toml", "mode = \"ask\"\n");
        let project = env.workspace();
        skill(&env, &project, ".claude/skills/ours", &text_of("ours", "Is ours.", "of the project"));
        let name = json!({ "name": "ours" });
        assert_eq!(skills(&env).0, [""; 0]);
        error(&env, &[], "skill", &name, 1);
        let said = succeeds(&env, &["trust", "."]);
        assert!(said.contains("Its skills are trusted as they are now:\n  .claude/skills/ours/SKILL.md\n"), "{said}");
        assert_eq!(skills(&env), (vec!["ours: Is ours.".to_owned()], String::new()));
        let content = data(&env, &[], "skill", &name)["content"].to_string();
        assert!(content.contains("of the project"), "{content}");
        // Of two with one name the project's counts.
        skill(&env, &env.outside(), ".callgate/skills/ours", &text_of("ours", "Is mine.", "of the user"));
        assert_eq!(skills(&env).0, ["ours: Is ours."]);
        // Another one than was trusted, and one that was not there.
        env.workspace_file(".claude/skills/ours/SKILL.md", &text_of("ours", "Is theirs.", "changed"));
        skill(&env, &project, ".agents/skills/late", &text_of("late", "Is late.", "late"));
        let (lines, left_out) = skills(&env);
        assert_eq!(lines, ["ours: Is mine."], "{left_out}");
        assert!(left_out.contains("SKILL.md has changed since the project was trusted"), "{left_out}");
        assert!(left_out.contains("late: it was not there when the project was trusted"), "{left_out}");
        error(&env, &[], "skill", &json!({ "name": "late" }), 1);
        // No call makes one.
        for path in [".claude/skills/new/SKILL.md", ".agents/skills/new/SKILL.md", ".callgate/skills/new/SKILL.md"] {
            let text = error(&env, &[], "write", &json!({ "path": path, "content": "x" }), 1);
            assert!(text.contains("is kept as it is"), "{text}");
            assert!(!project.join(path).exists());
        }
        // Trust for once is not used up by a look.
        succeeds(&env, &["trust", "--once", "."]);
        for _ in 0..2 {
            assert_eq!(skills(&env).0, ["late: Is late.", "ours: Is theirs."]);
        }
        data(&env, &[], "skill", &json!({ "name": "late" }));
        assert_eq!(skills(&env).0, ["ours: Is mine."], "it was used");
    });
}

/// X0-37: what lies there and is no skill is left out with a reason, and the others are there all the same.
#[test]
fn x0_37_what_is_no_skill_is_left_out() {
    let env = TestEnv::new(HERE);
    let home = env.outside();
    skill(&env, &home, ".claude/skills/good", &text_of("good", "Is good.", "good"));
    let folder = home.join(".claude/skills");
    let of = |name: &str, text: &str| skill(&env, &home, &format!(".claude/skills/{name}"), text);
    of("plain", "# No front matter\n");
    of("renamed", &text_of("another", "x", "x"));
    of("nameless", "---\ndescription: x\n---\n");
    of("escapes", "---\nname: escapes\ndescription: \"\\e[2J\"\n---\n");
    let bomb: String = (0..9)
        .map(|n| {
            format!("k{n}: &a{n} [{}]\n", if n == 0 { "x".to_owned() } else { format!("*a{}, ", n - 1).repeat(9) })
        })
        .collect();
    of("bomb", &format!("---\n{bomb}name: bomb\ndescription: x\n---\n"));
    of("long", &text_of("long", "x", &"y".repeat(128 * 1024)));
    of("Upper", &text_of("upper", "x", "x"));
    of("bytes", "");
    fs::write(folder.join("bytes/SKILL.md"), b"---\nname: bytes\ndescription: \xff\n---\n").unwrap();
    of("fifo", "");
    fs::remove_file(folder.join("fifo/SKILL.md")).unwrap();
    let made = env.bare().run(&["mkfifo", folder.join("fifo/SKILL.md").to_str().unwrap()]);
    assert_eq!(made.status.code(), Some(0), "{made:?}");
    of("empty", "");
    fs::remove_file(folder.join("empty/SKILL.md")).unwrap();
    // By no link, of the directory or of the file.
    env.file("target.md", &text_of("linked", "x", "x"));
    of("linked", "");
    fs::remove_file(folder.join("linked/SKILL.md")).unwrap();
    symlink(home.join("target.md"), folder.join("linked/SKILL.md")).unwrap();
    symlink(folder.join("good"), folder.join("link")).unwrap();
    // What others could have written, or calls by another name.
    of("shared", &text_of("shared", "x", "x"));
    fs::set_permissions(folder.join("shared/SKILL.md"), Permissions::from_mode(0o666)).unwrap();
    of("open", &text_of("open", "x", "x"));
    fs::set_permissions(folder.join("open"), Permissions::from_mode(0o777)).unwrap();
    of("twin", &text_of("twin", "x", "x"));
    fs::hard_link(folder.join("twin/SKILL.md"), home.join("twin.md")).unwrap();
    let (lines, left_out) = skills(&env);
    assert_eq!(lines, ["good: Is good."], "{left_out}");
    for (name, why) in [
        ("plain", "does not begin with a front matter"),
        ("renamed", "it is called \"another\" in its front matter"),
        ("nameless", "needs the key \"name\""),
        ("escapes", "control character"),
        ("bomb", "alias"),
        ("long", "longer than 128 KiB"),
        ("Upper", "its name is not one of a-z"),
        ("bytes", "not UTF-8"),
        ("fifo", "not a regular file"),
        ("empty", "there is no SKILL.md in it"),
        ("linked", "it is a symbolic link"),
        ("link", "it is a symbolic link"),
        ("shared", "SKILL.md: its mode lets others write it"),
        ("open", "its mode lets others write it"),
        ("twin", "another name elsewhere"),
    ] {
        let line = left_out
            .lines()
            .find(|line| line.contains(&format!("/{name}: ")))
            .unwrap_or_else(|| panic!("{name}: {left_out}"));
        assert!(line.contains(why), "{name}: {line}");
    }
    // What is left out for its file brings nothing else within reach.
    let beside = |name: &str| json!({ "path": folder.join(name).canonicalize().unwrap().join("beside.txt") });
    assert_eq!(data(&env, &[], "read", &beside("good"))["content"], "beside\n");
    for name in ["plain", "long", "Upper", "bytes", "fifo", "empty", "linked", "shared", "open", "twin"] {
        error(&env, &[], "read", &beside(name), 77);
    }
    let all: Value = serde_json::from_str(&succeeds(&env, &["skills", "--json"])).unwrap();
    assert_eq!(all["skills"][0]["allowed_tools"], json!(["Bash(touch:*)", "Write"]));
    assert_eq!((all["skills"][0]["origin"].as_str(), all["left_out"].as_array().unwrap().len()), (Some("user"), 15));
}

/// S0-22, C-11: an empty query is an error, and a miss says what there is; by command nothing is deferred.
#[test]
fn s0_22_c_11_a_search_that_finds_nothing_says_so() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for query in ["", "  "] {
            error(&env, &[], "tool_search", &json!({ "query": query }), 65);
        }
        let text = error(&env, &[], "tool_search", &json!({ "query": "bash" }), 1);
        assert!(text.ends_with("no tool is deferred: those that are listed can be called as they are"), "{text}");
    });
}
