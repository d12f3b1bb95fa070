//! Declared tools: definitions of the user's and of a trusted project's, whose programs run with what they require and nothing
//! else (S1).

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use callgate_tests::{Binaries, Host, ProgramOutcome, ProgramRunner, Target, TestEnv, User, eventually, matrix};
use serde_json::{Value, json};

/// Where the host's strength makes no difference.
const HERE: Target = Target { host: Host::Namespaces, user: User::Ordinary };

/// A project with tools, and a user with a home outside.
struct DeclaredProject {
    env: TestEnv,
}

impl DeclaredProject {
    fn new(target: Target) -> Self {
        let place = Self { env: TestEnv::new(target) };
        place.directory(&place.tools());
        place.directory(&place.user_tools());
        place.env.workspace_file("callgate.toml", "id = \"tools\"\n[requires.fs]\nwrite = [\"{workspace}/**\"]\n");
        place
    }

    fn directory(&self, path: &Path) {
        let mut made = PathBuf::new();
        for part in path.components() {
            made.push(part);
            if !made.exists() {
                fs::create_dir(&made).unwrap();
                fs::set_permissions(&made, fs::Permissions::from_mode(0o755)).unwrap();
                self.env.give(&made);
            }
        }
    }

    fn tools(&self) -> PathBuf {
        self.env.workspace().join(".callgate/tools")
    }

    fn user_tools(&self) -> PathBuf {
        self.env.outside().join(".config/callgate/tools")
    }

    /// A project's tool in Python, that takes a text.
    fn python(&self, name: &str, more: &str, script: &str) {
        self.file(&self.tools(), &format!("{name}.py"), script);
        self.file(&self.tools(), &format!("{name}.toml"), &definition(name, more));
    }

    fn file(&self, directory: &Path, name: &str, text: &str) {
        drop(self.env.file_at(directory.join(name), text));
    }

    fn user(&self) -> ProgramRunner {
        let run = self.env.weakened().variable("HOME", &self.env.outside().display().to_string());
        run.variable("XDG_CONFIG_HOME", "").variable("XDG_STATE_HOME", "")
    }

    fn callgate(&self, words: &[&str]) -> ProgramOutcome {
        let binary = Binaries::of_this_build().callgate().display().to_string();
        self.user().run(&[&[binary.as_str()], words].concat())
    }

    #[track_caller]
    fn trust(&self) {
        let ended = self.callgate(&["trust", "."]);
        assert!(ended.status.success(), "{ended:?}");
    }

    /// A call, its exit status, and that nothing of it is left.
    #[track_caller]
    fn call(&self, tool: &str, args: Value) -> (i32, Value) {
        let ended = self.callgate(&["call", tool, &args.to_string()]);
        let envelope = serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {ended:?}"));
        let script = self.tools().display().to_string();
        assert_eq!(running(&script), Vec::<String>::new(), "{tool}");
        (ended.status.code().unwrap(), envelope)
    }

    /// Data that the call gives, which must be a result.
    #[track_caller]
    fn result(&self, tool: &str, args: Value) -> Value {
        let (code, mut envelope) = self.call(tool, args);
        assert_eq!(code, 0, "{envelope}");
        envelope["data"].take()
    }

    /// Error of the call.
    #[track_caller]
    fn error(&self, tool: &str, args: Value, code: i32) -> String {
        let (got, envelope) = self.call(tool, args);
        assert_eq!(got, code, "{envelope}");
        assert_eq!(envelope["type"], "error", "{envelope}");
        envelope["error_text"].as_str().unwrap().to_owned()
    }

    fn listed(&self) -> Vec<Value> {
        let ended = self.callgate(&["tools", "--json"]);
        assert!(ended.status.success(), "{ended:?}");
        serde_json::from_str(&ended.stdout).unwrap()
    }

    /// A line of the list.
    #[track_caller]
    fn entry(&self, name: &str) -> Value {
        let all = self.listed();
        let mut found = all.iter().rev().filter(|entry| entry["id"] == name);
        found.next().unwrap_or_else(|| panic!("{name} is not in {all:?}")).clone()
    }

    /// Reason why a file is left out.
    #[track_caller]
    fn why(&self, file: &Path) -> String {
        let file = file.parent().unwrap().canonicalize().unwrap().join(file.file_name().unwrap());
        let all = self.listed();
        let found = all.iter().find(|entry| entry["state"] != "active" && entry["file"] == file.display().to_string());
        found.unwrap_or_else(|| panic!("{} is not in {all:?}", file.display()))["why"].as_str().unwrap().to_owned()
    }
}

/// The definition of a tool whose program lies beside it, with `more` before its tables.
fn definition(name: &str, more: &str) -> String {
    let (keys, tables) =
        more.split_once("\n[").map_or((more, String::new()), |(keys, rest)| (keys, format!("[{rest}")));
    format!(
        "name = \"{name}\"\ndescription = \"Does what {name} does.\"\ncommand = [\"python3\", \"./{name}.py\"]\n{keys}\n\
         [parameters]\ntype = \"object\"\nproperties.text.type = \"string\"\nadditionalProperties = false\n{tables}\n"
    )
}

/// The command lines of processes that have this text among their words.
fn running(text: &str) -> Vec<String> {
    let lines = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let line = String::from_utf8_lossy(&fs::read(entry.path().join("cmdline")).ok()?).into_owned();
        (line.contains(text) && line.starts_with("python3")).then_some(line)
    });
    lines.collect()
}

const ECHO: &str = "import json, sys, os\nargs = json.load(sys.stdin)\nprint(json.dumps({'text': args.get('text'), 'env': dict(os.environ)}))\n";

/// S1-2, S1-10, S1-24, S1-34, S1-8: a project's tool is there when the project is trusted, takes arguments that match its schema,
/// and gives what its program prints. It sees the variables that it declares and no others of the caller's (S1-27, S1-28).
#[test]
fn s1_24_s1_10_s1_34_s1_28_a_declared_tool_takes_json_and_gives_json() {
    matrix(Host::STRENGTHS, |target| {
        let place = DeclaredProject::new(target);
        let more = "env = [\"WANTED\"]\n[output_schema]\ntype = \"object\"\nrequired = [\"text\"]\n";
        place.python("echo", more, ECHO);
        let text = place.error("echo", json!({}), 64);
        assert!(text.contains("there is no tool `echo`"), "before anybody trusts it: {text}");
        place.trust();
        let binary = Binaries::of_this_build().callgate().display().to_string();
        let run = place.user().variable("WANTED", "yes").variable("LANG", "C").variable("UNWANTED", "no");
        let ended = run.run(&[&binary, "call", "echo", "{\"text\": \"hé\"}"]);
        let envelope: Value = serde_json::from_str(&ended.stdout).unwrap();
        let data = &envelope["data"];
        assert_eq!(data["text"], "hé", "{ended:?}");
        assert_eq!(data["env"]["WANTED"], "yes");
        assert!(data["env"].get("UNWANTED").is_none() && data["env"].get("USER").is_none(), "{data}");
        assert!(data["env"].get("LANG").is_none() && data["env"].get("CALLGATE_STATE").is_none(), "{data}");
        let enforced = envelope["metadata"]["enforced"].as_array().unwrap();
        assert!(enforced.iter().all(|one| one["by"].as_array().is_some_and(|by| !by.is_empty())), "{envelope}");
        let text = place.error("echo", json!({ "text": 5 }), 65);
        assert!(text.contains("/text"), "{text}");
        let text = place.error("echo", json!({ "other": "x" }), 65);
        assert!(text.contains("other"), "{text}");
        let entry = place.entry("echo");
        assert_eq!(entry["output_schema"]["required"], json!(["text"]), "{entry}");
        assert_eq!((&entry["origin"], &entry["state"]), (&json!("project"), &json!("active")), "{entry}");
        assert_eq!(entry["requires"]["shell"], json!([{ "cmd": "python3" }]), "{entry}");
        // The same in a shell.
        place.file(&place.tools(), "lines.sh", "read -r args; printf '{\"got\": %s}' \"$args\"\n");
        let shell = definition("lines", "").replace("\"python3\", \"./lines.py\"", "\"sh\", \"./lines.sh\"");
        place.file(&place.tools(), "lines.toml", &shell);
        place.trust();
        assert_eq!(place.result("lines", json!({ "text": "x" })), json!({ "got": { "text": "x" } }));
    });
}

/// S1-30, S1-31: whatever a tool does, the call ends with an error that says it, and nothing of it is left.
#[test]
fn s1_31_s1_30_a_tool_that_misbehaves_is_a_clear_error_and_leaves_nothing() {
    matrix(Host::STRENGTHS, |target| {
        let place = DeclaredProject::new(target);
        let secret = place.env.file("secret", "the secret of outside");
        let secret = secret.text().to_owned();
        let schema = "[output_schema]\ntype = \"object\"\nrequired = [\"n\"]\nproperties.n.type = \"integer\"\n";
        let flood = "import os\nwhile True: os.write(1, b'[' * 65536)\n";
        let made = place.env.workspace().join("made").display().to_string();
        let own = place.tools().join("own.toml").display().to_string();
        let cases = [
            ("hang", "timeout_ms = 400\n", "import time\ntime.sleep(10000)\n".to_owned(), 124, "within 0.4s"),
            ("flood", "", flood.to_owned(), 1, "printed more than 4194304 bytes"),
            ("broken", "", "print('{\"n\": 1')\n".to_owned(), 1, "no JSON"),
            ("two", "", "print('{} {}')\n".to_owned(), 1, "no JSON"),
            ("deep", "", "print('[' * 100000 + ']' * 100000)\n".to_owned(), 1, "no JSON"),
            ("nothing", "", "pass\n".to_owned(), 1, "printed no result"),
            (
                "three",
                "",
                "import sys\nsys.stderr.write('it broke')\nsys.exit(3)\n".to_owned(),
                1,
                "status 3. It had written on standard error:\nit broke",
            ),
            ("signal", "", "import os\nos.kill(os.getpid(), 11)\n".to_owned(), 1, "signal 11"),
            ("wrong", schema, "print('{\"n\": \"x\"}')\n".to_owned(), 1, "output schema at `/n`"),
            ("outside", "", format!("print(open('{secret}').read())\n"), 1, "status 1"),
            (
                "own",
                "\n[requires.fs]\nwrite = [\"{workspace}/**\"]\n",
                format!("open('{own}', 'a').write('#')\n"),
                1,
                "Permission denied",
            ),
            (
                "unlink",
                "\n[requires.fs]\nwrite = [\"{workspace}/**\"]\n",
                format!("import os\nos.rename('{own}', '{own}.old')\n"),
                1,
                "Permission denied",
            ),
            ("start", "", "import os\nos.execv('/bin/true', ['true'])\n".to_owned(), 1, "Permission denied"),
            ("maker", "", format!("open('{made}', 'w').write('x')\n"), 1, "`maker`"),
        ];
        for (name, more, script, ..) in &cases {
            place.python(name, more, script);
        }
        place.python("noise", "", "import os\nwhile True: os.write(2, b'x' * 65536)\n");
        place.trust();
        let before = fs::read_to_string(&own).unwrap();
        for (name, _, _, code, words) in &cases {
            let text = place.error(name, json!({}), *code);
            assert!(text.contains(words), "{name}: {text}");
            assert!(!text.contains("the secret of outside"), "{text}");
        }
        let ended = place.callgate(&["call", "--limit", "output=1MiB", "noise"]);
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        assert!(ended.stdout.contains("`output` limit"), "{ended:?}");
        assert_eq!(fs::read_to_string(&own).unwrap(), before);
        assert!(!place.env.workspace().join("made").exists());
        // The controls: the same acts where they are granted.
        let scripts = [
            (
                "outside",
                format!("\n[requires.fs]\nread = [\"{secret}\"]\n"),
                format!("import json\nprint(json.dumps(open('{secret}').read()))\n"),
            ),
            (
                "maker",
                "\n[requires.fs]\nwrite = [\"{workspace}/**\"]\n".to_owned(),
                format!("open('{made}', 'w').write('x')\nprint(1)\n"),
            ),
            (
                "start",
                "\n[[requires.shell]]\ncmd = \"/bin/echo\"\n".to_owned(),
                "import os\nos.execv('/bin/echo', ['echo', '1'])\n".to_owned(),
            ),
        ];
        for (name, more, script) in &scripts {
            place.python(name, more, script);
        }
        place.trust();
        assert_eq!(place.result("outside", json!({})), "the secret of outside");
        assert_eq!(place.result("maker", json!({})), 1);
        assert_eq!(place.result("start", json!({})), 1);
        assert!(place.env.workspace().join("made").exists());
    });
}

/// S1-20: what a tool starts ends with its call, also if it holds the call's pipes, or has left its group and session.
#[test]
fn s1_20_a_tool_that_forks_daemons_leaves_none() {
    matrix(Host::STRENGTHS, |target| {
        let place = DeclaredProject::new(target);
        let daemon = "import os, time, sys\nfor keep in (True, False):\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n            \
                      if not keep:\n                for fd in range(3): os.close(fd)\n            time.sleep(10000)\n        os._exit(0)\nprint('\"done\"')\n";
        place.python("daemon", "", daemon);
        place.trust();
        assert_eq!(place.result("daemon", json!({})), "done");
    });
}

/// S1-26, E1: a tool that is replaced while it runs ends as what it was. What it was replaced by is not run before somebody has
/// trusted it.
#[test]
fn s1_26_e1_a_tool_that_is_replaced_while_it_runs_ends_as_what_it_was() {
    matrix(Host::STRENGTHS, |target| {
        let place = DeclaredProject::new(target);
        let script = "import os, time\nopen('began', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('\"the first\"')\n";
        place.python("slow", "timeout_ms = 300000\n\n[requires.fs]\nwrite = [\"{workspace}/**\"]\n", script);
        place.trust();
        let binary = Binaries::of_this_build().callgate().display().to_string();
        let mut command = place.user().command(&[&binary, "call", "slow"]);
        let child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        eventually("it runs", || place.env.workspace().join("began").exists());
        place.python("slow", "", "print('\"the second\"')\n");
        place.env.workspace_file("go", "");
        let output = child.wait_with_output().unwrap();
        let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(envelope["data"], "the first");
        let refused = place.callgate(&["call", "slow"]);
        assert_eq!(refused.status.code(), Some(65), "{refused:?}");
        assert!(refused.stderr.contains("has changed since it was trusted"), "{refused:?}");
        place.trust();
        assert_eq!(place.result("slow", json!({})), "the second");
    });
}

/// E1, S1-7: trust is in the definitions and in the files that belong to them, whatever becomes of those.
#[test]
fn e1_s1_7_trust_is_in_all_that_a_tool_is() {
    let place = DeclaredProject::new(HERE);
    place.python("echo", "files = [\"data.txt\"]\n", "print(1)\n");
    place.file(&place.tools(), "data.txt", "one");
    let given = place.callgate(&["trust", "."]);
    let script = place.tools().join("echo.py");
    assert!(given.stdout.contains(&format!("echo: python3 {}", script.display())), "it says what it trusts: {given:?}");
    let (definition, was) = (place.tools().join("echo.toml"), "print(1)\n");
    let text = fs::read_to_string(&definition).unwrap();
    assert_eq!(place.result("echo", json!({})), 1);
    let refused = |what: &str| {
        for words in
            [&["call", "echo"][..], &["call", "bash", "{\"command\": \"touch ran\"}"], &["run", "touch", "ran"]]
        {
            let ended = place.callgate(words);
            assert_eq!(ended.status.code(), Some(65), "{what}: {ended:?}");
            assert!(ended.stderr.contains(what) && ended.stderr.contains("callgate trust"), "{what}: {ended:?}");
        }
        assert!(!place.env.workspace().join("ran").exists());
    };
    place.file(&place.tools(), "echo.py", "print(2)\n");
    refused("echo.py has changed");
    place.file(&place.tools(), "echo.py", was);
    place.file(&place.tools(), "data.txt", "two");
    refused("data.txt has changed");
    place.file(&place.tools(), "data.txt", "one");
    place.file(&place.tools(), "echo.toml", &format!("{text}#"));
    refused("echo.toml has changed");
    place.file(&place.tools(), "echo.toml", &text);
    place.python("further", "", was);
    refused("further.toml is new");
    fs::remove_file(place.tools().join("further.toml")).unwrap();
    assert_eq!(place.result("echo", json!({})), 1, "it is what was trusted again");
    fs::remove_file(&definition).unwrap();
    refused("has gone");
    symlink(place.tools().join("echo.py"), &definition).unwrap();
    refused("has gone, or cannot be read,");
}

/// S1-5, S1-6, S1-22, S1-25, C-10, X1-36: a later layer takes the place of an earlier one by name, or takes the name away; what is
/// locked is replaced only under the same parameters. The list says where each comes from, and what was left out and why.
#[test]
fn s1_5_s1_6_c_10_x1_36_later_layers_shadow_earlier_ones() {
    let place = DeclaredProject::new(HERE);
    let users = place.user_tools();
    let add = |directory: &Path, file: &str, name: &str, says: &str, more: &str| {
        let text = format!(
            "name = \"{name}\"\ndescription = \"Says {says}.\"\ncommand = [\"echo\", \"\\\"{says}\\\"\"]\n{more}\n"
        );
        place.file(directory, file, &text);
    };
    add(&users, "one.toml", "one", "user's", "");
    add(&users, "both.toml", "both", "user's", "");
    add(&users, "gone.toml", "gone", "user's", "");
    add(&users, "off.toml", "off", "user's", "enabled = false");
    add(&place.tools(), "anything.toml", "both", "project's", "");
    add(&place.tools(), "glob.toml", "glob", "project's", "");
    place.file(&place.tools(), "without.toml", "name = \"gone\"\ndisable = true\n");
    place.file(&place.tools(), "edit.toml", "name = \"edit\"\ndisable = true\n");
    let read: Value = serde_json::from_str(&place.callgate(&["tools", "read", "--json"]).stdout).unwrap();
    let mut same: toml::Table =
        toml::from_str("name = \"read\"\ndescription = \"Says it.\"\ncommand = [\"echo\", \"\\\"shadow\\\"\"]\n")
            .unwrap();
    same.insert("parameters".to_owned(), toml::Value::try_from(&read["parameters"]).unwrap());
    place.file(&place.tools(), "read.toml", &toml::to_string(&same).unwrap());
    assert_eq!(place.result("both", json!({})), "user's", "the project is not trusted");
    assert_eq!(place.entry("read")["origin"], "bundled");
    assert!(place.why(&place.tools()).contains("not trusted"));
    place.trust();
    assert_eq!(place.result("one", json!({})), "user's");
    assert_eq!(place.result("both", json!({})), "project's");
    assert_eq!(place.result("read", json!({ "path": "x" })), "shadow");
    for (name, origin) in [("one", "user"), ("both", "project"), ("read", "project"), ("glob", "bundled")] {
        let entry = place.entry(name);
        let found = if name == "glob" { place.listed().into_iter().find(|e| e["id"] == name).unwrap() } else { entry };
        assert_eq!((&found["origin"], &found["state"]), (&json!(origin), &json!("active")), "{found}");
    }
    assert!(place.why(&place.tools().join("glob.toml")).contains("same `parameters`"));
    for (name, file) in [
        ("gone", place.tools().join("without.toml")),
        ("off", users.join("off.toml")),
        ("edit", place.tools().join("edit.toml")),
    ] {
        assert_eq!(place.entry(name)["state"], "disabled", "{name}");
        assert!(place.why(&file).contains("disabled there"));
        assert!(place.error(name, json!({}), 64).contains("left out"));
    }
    // In every record of a call, and in the list for people.
    let session = place.callgate(&["session", "new"]).stdout.trim().to_owned();
    assert!(place.callgate(&["call", "--session", &session, "both"]).status.success());
    let record = place.callgate(&["session", "replay", &session]);
    assert!(record.stdout.contains("\"project\""), "{record:?}");
    let people = place.callgate(&["tools"]).stdout;
    assert!(people.lines().any(|line| line.starts_with("both") && line.contains("project")), "{people}");
    assert!(people.lines().any(|line| line.starts_with("gone") && line.contains("disabled")), "{people}");
}

/// S1-32, S1-3, S1-9, S1-19, F12: a definition that cannot be used is left out, with the file and the reason, and all else goes on.
/// One that was to replace another one does not leave that in force, nor do two of one layer that disagree.
#[test]
fn s1_32_s1_3_f12_what_is_broken_is_left_out_and_the_session_goes_on() {
    let place = DeclaredProject::new(HERE);
    let users = place.user_tools();
    place.file(&users, "good.toml", "name = \"good\"\ndescription = \"It is good.\"\ncommand = [\"echo\", \"1\"]\n");
    let with = |more: &str| format!("name = \"{{name}}\"\ndescription = \"D.\"\ncommand = [\"echo\", \"1\"]\n{more}\n");
    let long = format!("description = \"{}\"\n", "x".repeat(70_000));
    let cases: Vec<(&str, String, &str)> = vec![
        ("syntax", "name = ".to_owned(), "line 1"),
        ("unknown", with("commnad = 1"), "line 4: unknown field `commnad`"),
        ("nameless", "description = \"D.\"\ncommand = [\"echo\"]\n".to_owned(), "missing field `name`"),
        ("wordless", with("").replace("D.", " "), "no `description`"),
        ("idle", "name = \"idle\"\ndescription = \"D.\"\n".to_owned(), "no `command`"),
        ("empty", with("").replace("\"echo\", \"1\"", ""), "no `command`"),
        ("schema", with("[parameters]\ntype = \"object\"\nproperties.x.type = \"nonsense\""), "not a JSON Schema"),
        (
            "remote",
            with("[parameters]\ntype = \"object\"\nproperties.x.\"$ref\" = \"https://example.com/x\""),
            "not a JSON Schema",
        ),
        ("list", with("[parameters]\ntype = \"array\""), "schema of an object"),
        ("result", with("[output_schema]\ntype = 5"), "output schema"),
        ("timeout", with("timeout_ms = 0"), "line 4: `timeout_ms`"),
        ("forever", with("timeout_ms = 600001"), "`timeout_ms`"),
        ("key", with("approval_key = \"{a}{b}\""), "line 4: `approval_key`"),
        ("misnamed", with("approval_key = \"{nothing}\""), "line 4: `approval_key` names {nothing}"),
        ("fixed", with("env = [\"PATH\"]"), "line 4: callgate itself sets PATH"),
        ("state", with("env = [\"CALLGATE_STATE\"]"), "callgate itself sets CALLGATE_STATE"),
        ("variable", with("env = [\"A=B\"]"), "not the name of a variable"),
        ("brace", with("approval_key = \"{a\""), "without a `}`"),
        ("up", with("files = [\"../x\"]"), "no file beside"),
        ("absolute", with("files = [\"/etc/passwd\"]"), "no file beside"),
        ("missing", with("files = [\"nowhere\"]"), "its file nowhere"),
        ("debug", with("[requires]\ncapabilities = [\"debug\"]"), "capabilities"),
        ("home", with(&format!("[requires.fs]\nread = [\"{}/**\"]", place.env.outside().display())), "home directory"),
        ("pattern", with("[requires.fs]\nread = [\"{nope}/x\"]"), "{nope} is not defined"),
        ("a b", with(""), "cannot be called"),
        ("long", long, "longer than 64 KiB"),
        ("twin", with(""), "another file of the same layer"),
    ];
    for (name, text, _) in &cases {
        place.file(&users, &format!("{name}.toml"), &text.replace("{name}", name));
    }
    place.file(&users, "twin2.toml", &with("").replace("{name}", "twin"));
    place.file(&users, "linked.aside", &with("").replace("{name}", "linked"));
    symlink(users.join("linked.aside"), users.join("linked.toml")).unwrap();
    rustix_fifo(&users.join("fifo.toml"));
    place.env.give(&users.join("fifo.toml"));
    place.file(&users, "loose.toml", &with("").replace("{name}", "loose"));
    fs::set_permissions(users.join("loose.toml"), fs::Permissions::from_mode(0o666)).unwrap();
    for (name, _, words) in &cases {
        let why = place.why(&users.join(format!("{name}.toml")));
        assert!(why.contains(words), "{name}: {why}");
        assert!(!why.contains('\n'), "{why}");
    }
    for (file, words) in [("twin2", "another file"), ("fifo", "not a regular file"), ("loose", "chmod go-w")] {
        assert!(place.why(&users.join(format!("{file}.toml"))).contains(words), "{file}");
    }
    let linked =
        place.listed().into_iter().find(|e| e["file"].as_str().is_some_and(|f| f.ends_with("linked.toml"))).unwrap();
    assert!(linked["why"].as_str().unwrap().contains("symbolic link"), "{linked}");
    assert_eq!(place.result("good", json!({})), 1);
    assert_eq!(place.result("bash", json!({ "command": "echo fine" }))["output"], "fine\n");
    for (name, ..) in cases.iter().filter(|(name, ..)| !["syntax", "nameless", "long", "a b"].contains(name)) {
        let text = place.error(name, json!({}), 64);
        assert!(text.contains("left out"), "{name}: {text}");
    }
    // A broken one of a later layer.
    place.file(
        &place.tools(),
        "good.toml",
        "name = \"good\"\ndescription = \"It is not.\"\ncommand = [\"echo\", \"2\"]\nnone = 1\n",
    );
    place.trust();
    assert!(place.error("good", json!({}), 64).contains("unknown field"));
    // Its directory, too, is reached by no link.
    fs::rename(place.tools(), place.env.workspace().join("aside")).unwrap();
    symlink("../aside", place.tools()).unwrap();
    place.callgate(&["trust", "--revoke", "."]);
    place.trust();
    assert!(
        place.why(&place.env.workspace().canonicalize().unwrap().join(".callgate/tools")).contains("symbolic link")
    );
    assert_eq!(place.result("good", json!({})), 1, "the user's is there again");
}

fn rustix_fifo(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

/// S3-8: a deferred tool is not called until `tool_search` has returned it, and from then on in that session alone.
#[test]
fn s3_8_a_deferred_tool_is_called_once_it_was_found() {
    matrix(Host::STRENGTHS, |target| {
        let place = DeclaredProject::new(target);
        place.python("late", "deferred = true", ECHO);
        place.python("early", "deferred = false", ECHO);
        place.trust();
        assert_eq!(
            (&place.entry("late")["deferred"], &place.entry("early")["deferred"]),
            (&json!(true), &json!(false))
        );
        let new = || {
            let made = place.callgate(&["session", "new"]);
            assert!(made.status.success(), "{made:?}");
            made.stdout.trim().to_owned()
        };
        let call = |id: &str, tool: &str, args: Value| -> Value {
            let ended = place.callgate(&["call", "--session", id, tool, &args.to_string()]);
            serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
        };
        let (id, other) = (new(), new());
        assert_eq!(call(&id, "early", json!({ "text": "x" }))["data"]["text"], "x", "the control");
        let refused = |id: &str| {
            let refused = call(id, "late", json!({ "text": "x" }));
            assert!(refused["error_text"].as_str().is_some_and(|text| text.contains("is deferred")), "{refused}");
        };
        refused(&id);
        let found = call(&id, "tool_search", json!({ "query": "late" }));
        assert_eq!(found["data"]["matches"].as_array().unwrap().len(), 1, "{found}");
        assert_eq!(found["data"]["matches"][0]["parameters"]["properties"]["text"]["type"], "string", "{found}");
        assert_eq!(call(&id, "late", json!({ "text": "x" }))["data"]["text"], "x");
        refused(&other);
    });
}

/// S1-23, S1-28: each tool has its own state, which stays, and which no other tool and no other call reaches.
#[test]
fn s1_23_s1_28_each_tool_has_its_own_state() {
    matrix(Host::STRENGTHS, |target| {
        let place = DeclaredProject::new(target);
        let count = "import os, json\np = os.environ['CALLGATE_STATE'] + '/n'\nn = int(open(p).read()) + 1 if os.path.exists(p) else 1\n\
                     open(p, 'w').write(str(n))\nprint(json.dumps({'n': n, 'at': p}))\n";
        place.python("first", "state = true\n", count);
        place.python("second", "state = true\n", count);
        let look = "import sys, json\nprint(json.dumps(open(json.load(sys.stdin)['text']).read()))\n";
        place.python("other", "state = true\n\n[requires.fs]\nread = [\"{workspace}/**\"]\n", look);
        place.trust();
        let first = place.result("first", json!({}));
        assert_eq!(first["n"], 1);
        assert_eq!(place.result("first", json!({}))["n"], 2, "it stays");
        assert_eq!(place.result("second", json!({}))["n"], 1, "it is its own");
        let at = first["at"].as_str().unwrap();
        assert_eq!(fs::read_to_string(at).unwrap(), "2");
        let mode = fs::metadata(Path::new(at).parent().unwrap()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let text = place.error("other", json!({ "text": at }), 1);
        assert!(text.contains(target.by_strength("No such file", "Permission denied")), "{text}");
        place.env.workspace_file("in", "inside");
        assert_eq!(place.result("other", json!({ "text": "in" })), "inside", "the control");
        let shell = place.result("bash", json!({ "command": format!("cat {at}; echo 7 > {at}") }));
        assert_ne!(shell["exit_code"], 0, "{shell}");
        assert_eq!(fs::read_to_string(at).unwrap(), "2");
        // One that would read all of it makes no session reach it: it is left out.
        let all = Path::new(at).ancestors().nth(3).unwrap().display().to_string();
        place.python("greedy", &format!("\n[requires.fs]\nread = [\"{all}/**\"]\n"), look);
        place.trust();
        assert!(place.error("greedy", json!({ "text": at }), 64).contains("left out"));
        assert_eq!(place.result("first", json!({}))["n"], 3);
    });
}

/// S1-29, S0-8, C-1: what bounds the session bounds its tools, and the denial names it.
#[test]
fn c_1_a_ceiling_bounds_a_declared_tool() {
    matrix(Host::STRENGTHS, |target| {
        let place = DeclaredProject::new(target);
        let script = "open('src/made', 'w').close()\nopen('made', 'w').close()\nprint(1)\n";
        place.python("maker", "\n[requires.fs]\nwrite = [\"{workspace}/**\"]\n", script);
        place.directory(&place.env.workspace().join("src"));
        place.env.workspace_file("callgate.toml", "id = \"x\"\n[ceiling.fs]\nwrite = [\"{workspace}/src/**\"]\n");
        place.trust();
        let text = place.error("maker", json!({}), 1);
        assert!(text.contains("'made'"), "{text}");
        assert!(place.env.workspace().join("src/made").exists() && !place.env.workspace().join("made").exists());
        place.env.workspace_file("callgate.toml", "id = \"x\"\n[[ceiling.shell]]\ncmd = \"git\"\n");
        place.trust();
        let text = place.error("maker", json!({}), 77);
        assert!(text.contains("callgate.toml") && text.contains("python3"), "{text}");
        // One whose own files a ceiling leaves out says so, and one whose files lie within it is there.
        let users = place.user_tools();
        place.file(&users, "mine.toml", &definition("mine", ""));
        place.file(&users, "mine.py", "print(2)\n");
        place.env.workspace_file("callgate.toml", "id = \"x\"\n[ceiling.fs]\nread = [\"{workspace}/**\"]\n");
        place.trust();
        let text = place.error("mine", json!({}), 64);
        assert!(text.contains("mine.py") && text.contains("[ceiling.fs]"), "{text}");
        place.env.workspace_file("callgate.toml", "id = \"x\"\n");
        place.trust();
        assert_eq!(place.result("maker", json!({})), 1, "the control");
        assert_eq!(place.result("mine", json!({})), 2, "the control");
    });
}

/// E4, S1-28: a tool whose files the session's calls may write is not what its author wrote, and is not there.
#[test]
fn e4_no_call_may_write_a_definition() {
    matrix(Host::STRENGTHS, |target| {
        let place = DeclaredProject::new(target);
        place.python("echo", "", "print(1)\n");
        place.file(
            &place.user_tools(),
            "mine.toml",
            "name = \"mine\"\ndescription = \"Mine.\"\ncommand = [\"echo\", \"1\"]\n",
        );
        place.trust();
        let users = place.user_tools().join("mine.toml");
        for file in [place.tools().join("echo.toml"), place.tools().join("echo.py"), place.tools().join("new.toml")] {
            let before = fs::read(&file).ok();
            let (code, envelope) = place.call("write", json!({ "path": file, "content": "x" }));
            assert_ne!(code, 0, "{envelope}");
            let shell = place.result("bash", json!({ "command": format!("echo x > {}", file.display()) }));
            assert_ne!(shell["exit_code"], 0, "{shell}");
            assert_eq!(fs::read(&file).ok(), before);
        }
        let (binary, tools) =
            (Binaries::of_this_build().callgate().display().to_string(), place.tools().display().to_string());
        let granted = |grant: &str, tool: &str| {
            let ended = place.user().run(&[&binary, "call", "--write", grant, tool]);
            assert_eq!(ended.status.code(), Some(64), "{ended:?}");
            assert!(ended.stdout.contains("calls may write"), "{ended:?}");
        };
        granted(&tools, "echo");
        granted(&place.tools().join("echo.py").display().to_string(), "echo");
        granted(&place.env.workspace().join(".callgate").display().to_string(), "echo");
        for grant in [&users, &place.user_tools(), &place.env.outside().join(".config/callgate")] {
            let ended = place.user().run(&[&binary, "call", "--write", &grant.display().to_string(), "echo"]);
            assert_eq!(ended.status.code(), Some(64), "{ended:?}");
            assert!(ended.stderr.contains("nobody is asked"), "{ended:?}");
        }
        // What holds a definition may be granted: the name in it is kept.
        let config = place.env.outside().join(".config").display().to_string();
        let words = [
            "call",
            "--write",
            &config,
            "bash",
            &json!({ "command": format!("echo x >> {}", users.display()) }).to_string(),
        ]
        .map(str::to_owned);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ended = place.callgate(&words);
        assert!(ended.stdout.contains("Permission denied"), "{ended:?}");
        assert!(fs::read_to_string(&users).unwrap().ends_with("]\n"));
        assert_eq!(place.result("echo", json!({})), 1, "the control");
        assert_eq!(place.result("mine", json!({})), 1, "the control");
    });
}

/// X3-5, C-24, S4-9: where tools only read, a tool that runs what its author wrote is not offered.
#[test]
fn x3_5_a_profile_that_only_reads_has_no_declared_tools() {
    let place = DeclaredProject::new(HERE);
    place.python("echo", "", "print(1)\n");
    for profile in ["readonly", "plan"] {
        place.env.workspace_file("callgate.toml", &format!("profile = \"{profile}\"\n"));
        place.trust();
        assert!(place.error("echo", json!({}), 64).contains(profile));
        assert!(place.why(&place.tools().join("echo.toml")).contains(profile));
    }
    place.env.workspace_file("callgate.toml", "profile = \"developer\"\n");
    place.trust();
    assert_eq!(place.result("echo", json!({})), 1, "the control");
}

/// S0-44: of a result that is too long the first part is shown.
#[test]
fn s0_44_a_long_result_is_cut() {
    let place = DeclaredProject::new(HERE);
    place.python("long", "", "import json\nprint(json.dumps('x' * 300000))\n");
    place.trust();
    let (code, envelope) = place.call("long", json!({}));
    assert_eq!(code, 0, "{envelope}");
    assert_eq!(envelope["metadata"]["truncated"], true);
    assert_eq!(envelope["data"]["head"].as_str().unwrap().len(), 200 * 1024);
}

/// E4, E1: what the user declares counts without being trusted first. So it counts only where no call of any session can have
/// written it: not in a directory for settings that lies in a workspace, nor where a link leads to one.
#[test]
fn e4_e1_what_the_user_declares_counts_only_under_a_protected_name() {
    matrix(Host::STRENGTHS, |target| {
        let place = DeclaredProject::new(target);
        let binary = Binaries::of_this_build().callgate().display().to_string();
        let other = place.env.outside().join("other");
        place.directory(&other);
        let other = other.display().to_string();
        let definition = |name: &str| format!("name = \"{name}\"\ndescription = \"D.\"\ncommand = [\"echo\", \"1\"]\n");
        // In a workspace: a call declares one, and a session elsewhere has it not.
        let settings = place.env.workspace().join("settings");
        place.directory(&settings.join("callgate/tools"));
        let planted = settings.join("callgate/tools/planted.toml");
        let line = format!("cat > {} <<'E'\n{}E\n", planted.display(), definition("planted"));
        assert_eq!(
            place.result("bash", json!({ "command": line }))["exit_code"],
            0,
            "the control: calls can write there"
        );
        assert_eq!(fs::read_to_string(&planted).unwrap(), definition("planted"));
        let refused = |run: ProgramRunner, why: &str| {
            let ended = run.clone().run(&[&binary, "call", "-C", &other, "planted"]);
            assert_eq!(ended.status.code(), Some(64), "{ended:?}");
            assert!(ended.stdout.contains("there is no tool `planted`"), "{ended:?}");
            let listed = run.run(&[&binary, "tools", "-C", &other]);
            assert!(listed.stdout.contains(why), "{listed:?}");
        };
        let elsewhere = place.user().variable("XDG_CONFIG_HOME", &settings.display().to_string());
        refused(elsewhere, "move it to ~/.config/callgate/tools");
        // By a link from where it usually is.
        let usual = place.env.outside().join(".config/callgate");
        fs::remove_dir(usual.join("tools")).unwrap();
        fs::remove_dir(&usual).unwrap();
        symlink(settings.join("callgate"), &usual).unwrap();
        refused(place.user(), "let no link lead there");
        // The control: the same file where calls do not write.
        fs::remove_file(&usual).unwrap();
        place.directory(&place.user_tools());
        place.file(&place.user_tools(), "planted.toml", &definition("planted"));
        assert_eq!(place.result("planted", json!({})), 1);
    });
}

/// E4, E1: no session writes where the user's tools are declared, whatever it is called there. One that holds the protected name may.
#[test]
fn e4_e1_no_session_declares_the_user_s_tools() {
    matrix(Host::STRENGTHS, |target| {
        let place = DeclaredProject::new(target);
        let binary = Binaries::of_this_build().callgate().display().to_string();
        let home = place.env.outside();
        let settings = home.join(".config/callgate");
        let alias = home.join("alias");
        symlink(&settings, &alias).unwrap();
        let further = home.join("further");
        symlink(home.join(".config"), &further).unwrap();
        let line = "echo 'name = \"evil\"' > evil.toml; mkdir -p tools && echo 'name = \"evil\"' > tools/evil.toml";
        for at in [settings.join("tools"), settings.clone()] {
            let ended = place.user().run(&[&binary, "run", "-C", &at.display().to_string(), "--", "sh", "-c", line]);
            assert_eq!(ended.status.code(), Some(64), "{ended:?}");
            assert!(ended.stderr.contains("nobody is asked"), "{ended:?}");
            assert!(ended.stderr.contains(".callgate/tools"), "the remedy: {ended:?}");
        }
        place.directory(&home.join(".callgate"));
        let theirs = home.join("theirs/.config/callgate");
        place.directory(&theirs);
        let others = [home.join(".callgate"), home.join(".callgate/trust.json"), theirs.clone(), theirs.join("tools")];
        for granted in [alias.clone(), alias.join("tools"), settings.join("tools/new.toml")].into_iter().chain(others) {
            let ended = place.user().run(&[&binary, "run", "--write", &granted.display().to_string(), "--", "true"]);
            assert_eq!(ended.status.code(), Some(64), "{ended:?}");
            assert!(ended.stderr.contains("nobody is asked"), "{}: {ended:?}", granted.display());
        }
        assert_eq!(fs::read_dir(place.user_tools()).unwrap().count(), 0);
        assert_eq!(fs::read_dir(&settings).unwrap().count(), 1);
        // The controls: what holds the protected name, and what lies beside it.
        let config = home.join(".config").display().to_string();
        let line = format!("echo x > {config}/beside; echo x > {config}/callgate/tools/evil.toml");
        let ended = place.user().run(&[&binary, "run", "--write", &config, "--", "sh", "-c", &line]);
        assert_ne!(ended.status.code(), Some(64), "{ended:?}");
        assert!(ended.stderr.contains("Permission denied"), "{ended:?}");
        assert!(home.join(".config/beside").exists() && !settings.join("tools/evil.toml").exists());
        let workspace = home.display().to_string();
        let line = "touch made; echo x > .config/callgate/tools/evil.toml";
        let ended = place.user().run(&[&binary, "run", "--allow-home", "-C", &workspace, "--", "sh", "-c", line]);
        assert!(ended.stderr.contains("Permission denied"), "{ended:?}");
        assert!(home.join("made").exists() && !settings.join("tools/evil.toml").exists());
    });
}

/// S1-29, C-1, A10: a tool whose part leads out of what bounds it, by a link, is left out, and one whose link stays within is there.
#[test]
fn c_1_a10_a_link_leads_no_tool_out_of_its_bounds() {
    matrix(Host::STRENGTHS, |target| {
        let place = DeclaredProject::new(target);
        let (data, other) = (place.env.outside().join("data"), place.env.outside().join("other"));
        [&data, &other, &data.join("inner")].iter().for_each(|directory| place.directory(directory));
        place.file(&other, "secret", "the secret of outside");
        place.file(&data.join("inner"), "secret", "inside");
        symlink("../other", data.join("link")).unwrap();
        symlink("inner", data.join("near")).unwrap();
        let at = data.display();
        for name in ["link", "near"] {
            let script = format!("import json\nprint(json.dumps(open('{at}/{name}/secret').read()))\n");
            place.python(name, &format!("\n[requires.fs]\nread = [\"{at}/{name}/**\"]\n"), &script);
        }
        let manifest = format!(
            "id = \"tools\"\n[requires.fs]\nread = [\"{at}/**\"]\n[ceiling.fs]\nread = [\"{{workspace}}/**\", \"{at}/**\"]\n"
        );
        drop(place.env.workspace_file("callgate.toml", &manifest));
        place.trust();
        let text = place.error("link", json!({}), 64);
        let led = format!("it leads to {}", other.canonicalize().unwrap().display());
        assert!(text.contains(&led) && text.contains("left out"), "{text}");
        assert_eq!(place.result("near", json!({})), "inside", "the control");
        let further =
            manifest.replace("[\"{workspace}/**\", ", &format!("[\"{{workspace}}/**\", \"{}/**\", ", other.display()));
        drop(place.env.workspace_file(
            "callgate.toml",
            &further.replacen("read = [", &format!("read = [\"{}/**\", ", other.display()), 1),
        ));
        place.trust();
        assert_eq!(place.result("link", json!({})), "the secret of outside", "the control: the bounds grant it");
    });
}

/// E4: a granted directory that leads to a tool's files by another name grants them as much as their own.
#[test]
fn e4_another_name_of_a_tool_s_directory_leaves_the_tool_out() {
    matrix(Host::STRENGTHS, |target| {
        let place = DeclaredProject::new(target);
        place.python("echo", "", "print(1)\n");
        let alias = place.env.outside().join("alias");
        symlink(place.tools(), &alias).unwrap();
        let manifest = |path: &str| {
            let text = format!("id = \"tools\"\n[requires.fs]\nwrite = [\"{path}/**\"]\n");
            drop(place.env.workspace_file("callgate.toml", &text));
        };
        manifest(&alias.display().to_string());
        place.trust();
        let text = place.error("echo", json!({}), 64);
        assert!(text.contains("calls may write"), "{text}");
        let free = place.env.outside().join("free");
        place.directory(&free);
        manifest(&free.display().to_string());
        place.trust();
        assert_eq!(place.result("echo", json!({})), 1, "the control");
    });
}

/// E4, A3: a file of a tool that has another name may be written by that, in whatever session that is granted.
#[test]
fn e4_a3_a_tool_s_file_has_no_other_name() {
    let place = DeclaredProject::new(HERE);
    place.python("echo", "", "print(1)\n");
    place.trust();
    assert_eq!(place.result("echo", json!({})), 1, "the control");
    let other = place.env.outside().join("other.py");
    fs::hard_link(place.tools().join("echo.py"), &other).unwrap();
    let refused = place.callgate(&["call", "echo"]);
    assert_eq!(refused.status.code(), Some(65), "{refused:?}");
    assert!(refused.stderr.contains("has gone, or cannot be read,"), "{refused:?}");
    place.trust();
    let text = place.error("echo", json!({}), 64);
    assert!(text.contains("another name elsewhere (a hard link)"), "{text}");
    fs::remove_file(&other).unwrap();
    place.trust();
    assert_eq!(place.result("echo", json!({})), 1, "the control");
}

/// S1-32, E4: the program of a tool is found by its name, by a whole path or beside the definition, and never where calls write.
#[test]
fn s1_32_e4_a_tool_s_program_is_not_one_that_calls_write() {
    matrix(Host::STRENGTHS, |target| {
        let place = DeclaredProject::new(target);
        let program = place.env.workspace().join("program");
        let add = |name: &str, program: &str| {
            let text = format!("name = \"{name}\"\ndescription = \"D.\"\ncommand = [\"{program}\", \"1\"]\n");
            place.file(&place.tools(), &format!("{name}.toml"), &text);
        };
        let relative = ["bin/x", "*", ".", "..", "{workspace}/x", "/usr/../bin/echo"];
        for (number, program) in relative.iter().enumerate() {
            add(&format!("relative-{number}"), program);
        }
        add("writable", &program.display().to_string());
        let dangling = place.env.outside().join("dangling");
        symlink(place.env.workspace().join("later"), &dangling).unwrap();
        add("dangling", &dangling.display().to_string());
        let link = place.env.outside().join("link");
        symlink(&program, &link).unwrap();
        add("linked", &link.display().to_string());
        add("good", "/bin/echo");
        place.trust();
        let line = format!("printf '#!/bin/sh\\necho 2\\n' > {0} && chmod +x {0} && {0}", program.display());
        let written = place.result("bash", json!({ "command": line }));
        assert_eq!(written["output"], "2\n", "the control: calls write it, and it runs: {written}");
        for name in ["writable", "linked"] {
            let text = place.error(name, json!({}), 64);
            assert!(text.contains(&format!("calls may write {}", program.display())), "{name}: {text}");
        }
        let text = place.error("dangling", json!({}), 64);
        assert!(text.contains("cannot be found"), "{text}");
        for number in 0..relative.len() {
            let text = place.error(&format!("relative-{number}"), json!({}), 64);
            assert!(text.contains("line 3") && text.contains("beside the definition (./NAME)"), "{text}");
        }
        assert_eq!(place.result("good", json!({})), 1, "the control");
    });
}

/// E4, C12: a program that is named by its name is looked for where no call writes, whatever the tool itself may write, and by no
/// link that calls could turn. What was found when the session was opened is what is started.
#[test]
fn e4_c12_no_call_chooses_the_program_of_a_declared_tool() {
    matrix(Host::STRENGTHS, |target| {
        let place = DeclaredProject::new(target);
        let binary = Binaries::of_this_build().callgate().display().to_string();
        let (workspace, home) = (place.env.workspace(), place.env.outside());
        let reads = "env = [\"TOKEN\"]\n\n[requires.fs]\nread = [\"{workspace}/**\"]\n";
        place.python("deploy", reads, "print('\"the real one\"')\n");
        place.python("helped", &format!("{reads}[[requires.shell]]\ncmd = \"mine\"\n"), "print('\"helped\"')\n");
        for name in ["mine", "stale", "fixed"] {
            let text = format!("name = \"{name}\"\ndescription = \"D.\"\ncommand = [\"{name}\"]\n{reads}");
            place.file(&place.tools(), &format!("{name}.toml"), &text);
        }
        let (venv, theirs, users) = (workspace.join(".venv/bin"), workspace.join("bin"), home.join(".local/bin"));
        [&venv, &theirs, &users, &home.join("tools")].iter().for_each(|directory| place.directory(directory));
        let program = |path: &Path, says: &str| {
            let found = path.parent().unwrap();
            place.file(found, path.file_name().unwrap().to_str().unwrap(), &format!("#!/bin/sh\necho '\"{says}\"'\n"));
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        program(&theirs.join("mine"), "mine");
        program(&users.join("real"), "fixed");
        symlink(theirs.join("mine"), users.join("mine")).unwrap();
        symlink(theirs.join("stale"), users.join("stale")).unwrap();
        symlink("real", users.join("fixed")).unwrap();
        place.trust();
        let path = format!("{}:{}:/usr/bin:/bin", venv.display(), users.display());
        let call = |tool: &str, args: Value| {
            let run = place.user().variable("PATH", &path).variable("TOKEN", "s3cret");
            let ended = run.run(&[&binary, "call", tool, &args.to_string()]);
            let envelope: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {ended:?}"));
            (ended.status.code().unwrap(), envelope)
        };
        let says = |tool: &str, words: &str| {
            let (code, envelope) = call(tool, json!({}));
            assert_eq!((code, &envelope["data"]), (0, &json!(words)), "{tool}: {envelope}");
        };
        let left_out = |tool: &str, words: &str| {
            let (code, envelope) = call(tool, json!({}));
            let text = envelope["error_text"].as_str().unwrap_or_default();
            assert!(code == 64 && text.contains(words), "{tool}: {code} {envelope}");
        };
        says("deploy", "the real one");
        says("fixed", "fixed");
        let may_write = format!("calls may write {}", theirs.canonicalize().unwrap().join("mine").display());
        left_out("mine", &may_write);
        left_out("helped", &may_write);
        left_out("stale", "cannot be found");
        // The control: calls do write what PATH leads to first.
        let planted = "printf '#!/bin/sh\\necho \\\"planted $TOKEN\\\"\\n' > $f && chmod +x $f";
        let files = [venv.join("python3"), theirs.join("mine"), theirs.join("stale")];
        for file in &files {
            let line = format!("f={}; {planted}", file.display());
            let (code, envelope) = call("bash", json!({ "command": line }));
            assert_eq!((code, &envelope["data"]["exit_code"]), (0, &json!(0)), "{envelope}");
            assert!(fs::read_to_string(file).unwrap().contains("planted"));
        }
        says("deploy", "the real one");
        says("fixed", "fixed");
        left_out("mine", &may_write);
        left_out("stale", "calls may write");
        // Nor is it the author's again where a ceiling keeps calls from it: an earlier session without that may have written it.
        let manifest = "id = \"tools\"\n[ceiling.fs]\nwrite = [\"{workspace}/out/**\"]\n";
        drop(place.env.workspace_file("callgate.toml", manifest));
        place.trust();
        program(&theirs.join("mine"), "mine");
        left_out("mine", "was asked for");
        says("fixed", "fixed");
    });
}

/// E4, C12: what a program's file names counts as the program does: an interpreter, what `env` starts, a loader. So does another
/// name of the file, and another place of its directory.
#[test]
fn e4_c12_no_call_chooses_what_runs_the_program_of_a_declared_tool() {
    matrix(Host::STRENGTHS, |target| {
        let place = DeclaredProject::new(target);
        let (workspace, programs) = (place.env.workspace(), place.env.outside().join("programs"));
        let theirs = workspace.join("venv");
        [&programs, &theirs].iter().for_each(|directory| place.directory(directory));
        let executable = |path: &Path, bytes: &[u8]| {
            fs::write(path, bytes).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
            place.env.give(path);
        };
        executable(&theirs.join("interp"), &fs::read("/bin/sh").unwrap());
        symlink("/bin/sh", theirs.join("sh")).unwrap();
        let says = "echo 1\n";
        let (at, own) = (theirs.display(), programs.display());
        let mut elf = fs::read("/bin/true").unwrap();
        let loader = b"/lib64/ld-linux-x86-64.so.2\0";
        let found = elf.windows(loader.len()).position(|window| window == loader);
        let named: Vec<(&str, Vec<u8>, bool)> = vec![
            ("script", format!("#!{at}/interp\n{says}").into(), false),
            ("link", format!("#!{at}/sh\n{says}").into(), false),
            ("twice", format!("#!{own}/script\n{says}").into(), false),
            ("relative", format!("#!venv/interp\n{says}").into(), false),
            ("good", format!("#!/bin/sh\n{says}").into(), true),
            ("by-env", format!("#!/usr/bin/env sh\n{says}").into(), true),
        ];
        for (name, bytes, _) in &named {
            executable(&programs.join(name), bytes);
        }
        let tool = |name: &str| {
            let command = programs.join(name);
            let more = format!("[requires.fs]\nread = [\"{{workspace}}/**\", \"{own}/**\"]\n");
            let text =
                format!("name = \"{name}\"\ndescription = \"D.\"\ncommand = [\"{}\"]\n{more}", command.display());
            place.file(&place.tools(), &format!("{name}.toml"), &text);
        };
        named.iter().for_each(|(name, ..)| tool(name));
        if let Some(found) = found {
            // As short as the loader's own path: a link in the root of the workspace would not be.
            let other = format!("{}\0", workspace.join("l").display());
            if other.len() <= loader.len() {
                elf[found..found + other.len()].copy_from_slice(other.as_bytes());
                executable(&programs.join("loaded"), &elf);
                executable(&workspace.join("l"), &fs::read("/lib64/ld-linux-x86-64.so.2").unwrap());
                tool("loaded");
            }
        }
        // A helper that is required by its whole path, which is a link to where calls write.
        executable(&theirs.join("helper"), format!("#!/bin/sh\n{says}").as_bytes());
        symlink(theirs.join("helper"), programs.join("helper")).unwrap();
        for (name, helper) in [("helped", "helper"), ("helped-well", "good")] {
            let more = format!("\n[[requires.shell]]\ncmd = \"{}\"\n", programs.join(helper).display());
            place.file(&place.tools(), &format!("{name}.py"), "print(1)\n");
            place.file(&place.tools(), &format!("{name}.toml"), &definition(name, &more));
        }
        executable(&programs.join("linked"), format!("#!/bin/sh\n{says}").as_bytes());
        fs::hard_link(programs.join("linked"), theirs.join("linked")).unwrap();
        tool("linked");
        place.trust();
        for (name, _, is_good) in &named {
            if *is_good {
                assert_eq!(place.result(name, json!({})), 1, "the control");
                continue;
            }
            let text = place.error(name, json!({}), 64);
            assert!(text.contains("is run by"), "{name}: {text}");
        }
        let text = place.error("linked", json!({}), 64);
        assert!(text.contains("more than one name"), "{text}");
        let text = place.error("helped", json!({}), 64);
        assert!(text.contains("calls may write"), "{text}");
        assert_eq!(place.result("helped-well", json!({})), 1, "the control");
        // The control: calls do write there.
        let line = "cp /bin/cat venv/interp && ln -sfn /bin/cat venv/sh && echo '#!/bin/cat' > venv/linked";
        assert_eq!(place.result("bash", json!({ "command": line }))["exit_code"], 0);
        fs::remove_file(theirs.join("linked")).unwrap();
        executable(&programs.join("linked"), format!("#!/bin/sh\n{says}").as_bytes());
        assert_eq!(place.result("linked", json!({})), 1, "the control: with one name");
        // The directory of a program may be another place of one that calls write.
        if target.user.uid() == 0 && target.host == Host::Namespaces {
            let binary = Binaries::of_this_build().callgate().display().to_string();
            let (within, shown) = (workspace.join("within"), place.env.outside().join("shown"));
            [&within, &shown].iter().for_each(|directory| place.directory(directory));
            executable(&within.join("shown"), format!("#!/bin/sh\n{says}").as_bytes());
            let command = shown.join("shown");
            for (name, command) in [("shown", command.display().to_string()), ("found", "shown".to_owned())] {
                let text = format!("name = \"{name}\"\ndescription = \"D.\"\ncommand = [\"{command}\"]\n");
                let text = format!("{text}[requires.fs]\nread = [\"{}/**\"]\n", shown.display());
                place.file(&place.tools(), &format!("{name}.toml"), &text);
            }
            place.trust();
            for tool in ["shown", "found"] {
                let script = r#"mount --bind "$1" "$2" && shift 2 && exec "$@""#;
                let [within, shown] = [&within, &shown].map(|path| path.to_str().unwrap());
                let words = ["unshare", "--mount", "sh", "-c", script, "sh", within, shown, &binary, "call", tool];
                let path = format!("{shown}:/usr/bin:/bin");
                let ended = place.user().variable("PATH", &path).run(&words);
                let envelope: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {ended:?}"));
                let text = envelope["error_text"].as_str().unwrap_or_default();
                assert!(text.contains("calls may write") || text.contains("no directory of PATH"), "{tool}: {ended:?}");
            }
        }
    });
}

/// S1-31: a tool that fails has changed what it has changed, and its error says so as its result would.
#[test]
fn s1_31_a_tool_that_fails_tells_what_it_changed() {
    matrix(Host::STRENGTHS, |target| {
        let place = DeclaredProject::new(target);
        let made = "open('Makefile', 'w').close()\n";
        let writes = "\n[requires.fs]\nwrite = [\"{workspace}/**\"]\n";
        for (name, end) in [("well", "print(1)"), ("fails", "raise SystemExit(1)"), ("says", "print('no json')")] {
            place.python(name, writes, &format!("{made}{end}\n"));
        }
        place.trust();
        for name in ["well", "fails", "says"] {
            let (_, envelope) = place.call(name, json!({}));
            let changes = &envelope["metadata"]["changes"];
            assert!(changes["runs_later"].to_string().contains("Makefile"), "{name}: {envelope}");
            fs::remove_file(place.env.workspace().join("Makefile")).unwrap();
        }
    });
}

/// A1, A3, A18: a rule's grant leaves a tool less than it requires, and releases nothing that is protected where it has all.
#[test]
fn a1_a3_a18_a_grant_that_narrows_a_tool_releases_nothing() {
    matrix(Host::STRENGTHS, |target| {
        let place = DeclaredProject::new(target);
        crate::protect::led_to(&place.env);
        let script = "import json, sys\npath = json.load(sys.stdin)['text']\n\
                      try:\n open(path, 'w').write('evil')\n print(0)\nexcept OSError as error:\n print(error.errno)\n";
        place.python("put", "\n[requires.fs]\nwrite = [\"{workspace}/**\"]\n", script);
        for (granted, path) in crate::protect::LED_TO {
            let manifest = format!(
                "id = \"tools\"\n[requires.fs]\nwrite = [\"{{workspace}}/**\"]\n[[rules]]\npermission = \"*\"\naction = \"allow\"\n\
                 grant = {{ write = [\"{granted}\"] }}\n"
            );
            drop(place.env.workspace_file("callgate.toml", &manifest));
            place.trust();
            let before = fs::read(place.env.workspace().join(path)).ok();
            assert_eq!(place.result("put", json!({ "text": path })), libc::EACCES, "{granted}: {path}");
            assert_eq!(fs::read(place.env.workspace().join(path)).ok(), before);
            let Some(directory) = granted.strip_suffix("/**") else { continue };
            let own = format!("{directory}/other");
            let made = place.result("put", json!({ "text": own }));
            let all = ["tools/hooks", "bare/hooks", "gd/repo/hooks", "shared"].contains(&directory);
            assert_eq!(made, if all { libc::EACCES } else { 0 }, "the control: {own}");
        }
    });
}

/// A1, A3, A18: what a tool requires is judged from all that its session was asked for, with a root in a root too.
#[test]
fn a1_a3_a18_what_a_tool_requires_is_judged_from_all_that_was_asked_for() {
    matrix(Host::STRENGTHS, |target| {
        let place = DeclaredProject::new(target);
        let made = "mkdir -p nested src/hooks && git init -q sub && git -C sub config core.hooksPath ../src/hooks &&
                    echo ok > sub/.git/hooks/post-commit && ln sub/.git/hooks/post-commit src/hl";
        let ended = place.env.bare().run(&["/bin/sh", "-c", made]);
        assert!(ended.status.success(), "{ended:?}");
        let script = "import json, sys\npath = json.load(sys.stdin)['text']\n\
                      try:\n open(path, 'w').write('evil')\n print(0)\nexcept OSError as error:\n print(error.errno)\n";
        let requires = "\n[requires.fs]\nread = [\"{workspace}/**\"]\nwrite = [\"{workspace}/src/**\"]\n";
        place.python("put", requires, script);
        for roots in ["", "roots = [\"nested\"]\n"] {
            let manifest = format!("id = \"tools\"\n{roots}[requires.fs]\nwrite = [\"{{workspace}}/**\"]\n");
            drop(place.env.workspace_file("callgate.toml", &manifest));
            place.trust();
            for path in ["src/hooks/pre-commit", "src/hl"] {
                let before = fs::read(place.env.workspace().join(path)).ok();
                assert_eq!(place.result("put", json!({ "text": path })), libc::EACCES, "{roots}: {path}");
                assert_eq!(fs::read(place.env.workspace().join(path)).ok(), before, "{roots}: {path}");
            }
            assert_eq!(place.result("put", json!({ "text": "src/own" })), 0, "the control: {roots}");
            fs::remove_file(place.env.workspace().join("src/own")).unwrap();
        }
        // What a repository includes may lie where the tool does not read.
        let included = place.env.outside().join("included");
        place.directory(&included);
        let hooks = place.env.workspace().join("src/led");
        place.directory(&hooks);
        place.file(&included, "inc", &format!("[core]\n\thooksPath = {}\n", hooks.display()));
        let line = format!("git init -q inc && git -C inc config include.path {}/inc", included.display());
        let ended = place.env.bare().run(&["/bin/sh", "-c", &line]);
        assert!(ended.status.success(), "{ended:?}");
        let manifest = format!(
            "id = \"tools\"\n[requires.fs]\nread = [\"{}/**\"]\nwrite = [\"{{workspace}}/**\"]\n",
            included.display()
        );
        drop(place.env.workspace_file("callgate.toml", &manifest));
        place.python("all", "\n[requires.fs]\nwrite = [\"{workspace}/**\"]\n", script);
        place.trust();
        for tool in ["put", "all"] {
            assert_eq!(place.result(tool, json!({ "text": "src/led/pre-commit" })), libc::EACCES, "{tool}");
            assert!(!hooks.join("pre-commit").exists());
        }
    });
}

/// S1-23, A1: a link of a call's may lead into the state of a tool, and what is protected elsewhere is protected there too.
#[test]
fn s1_23_a1_names_are_protected_in_a_tool_s_state() {
    matrix(Host::STRENGTHS, |target| {
        let place = DeclaredProject::new(target);
        let script = "import os, json, sqlite3\n\
                      state = os.environ['CALLGATE_STATE']\n\
                      base = sqlite3.connect(state + '/db')\n\
                      base.execute('create table if not exists t(x)')\n\
                      base.execute('insert into t values (1)')\n\
                      base.commit()\n\
                      try:\n os.mkdir(state + '/.vscode')\n made = None\nexcept OSError as error:\n made = error.errno\n\
                      print(json.dumps([state, base.execute('select count(*) from t').fetchone()[0], made]))\n";
        place.python("keeps", "state = true\n", script);
        place.trust();
        let first = place.result("keeps", json!({}));
        let state = PathBuf::from(first[0].as_str().unwrap());
        assert_eq!((&first[1], &first[2]), (&json!(1), &json!(libc::EACCES)), "{first}");
        assert_eq!(place.result("keeps", json!({}))[1], 2, "the control");
        let above = state.ancestors().nth(3).unwrap();
        assert!(above.ends_with(".local/state/callgate"), "{above:?}");
        let line = format!("ln -s {} c; ln -s c/tools/x chain; ls -d chain", above.display());
        place.result("bash", json!({ "command": line }));
        assert!(!state.join(".vscode").exists());
    });
}

/// E4, A11: what a tool has of its own lies where no other call writes, however little the tool may write itself.
#[test]
fn e4_a11_no_call_writes_in_the_home_of_a_tool() {
    matrix(Host::STRENGTHS, |target| {
        let place = DeclaredProject::new(target);
        let script = "import os, json\nprint(json.dumps([os.environ['HOME'], os.environ['TMPDIR']]))\n";
        place.python("where", "\n[requires.fs]\nread = [\"{workspace}/**\"]\n", script);
        place.trust();
        let temporary = place.env.workspace().join("tmp");
        place.directory(&temporary);
        let binary = Binaries::of_this_build().callgate().display().to_string();
        let run = place.user().variable("TMPDIR", temporary.to_str().unwrap());
        let ended = run.run(&[&binary, "call", "where", "{}"]);
        let envelope: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {ended:?}"));
        let own: Vec<&str> = envelope["data"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert_eq!(own.len(), 2, "{envelope}");
        let workspace = place.env.workspace().canonicalize().unwrap();
        assert!(!own.iter().any(|path| Path::new(path).starts_with(&workspace)), "{own:?}");
        assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
    });
}

/// C-1, A10: what a session is bound to is what was asked about: a link that another session turns while this one opens leads it
/// nowhere that its ceiling does not grant.
#[test]
fn c_1_a10_a_link_that_is_turned_meanwhile_leads_out_of_no_ceiling() {
    let place = DeclaredProject::new(HERE);
    let (data, other) = (place.env.outside().join("data"), place.env.outside().join("other"));
    [&other, &data.join("in")].iter().for_each(|directory| place.directory(directory));
    place.file(&other, "file", "of outside");
    place.file(&data.join("in"), "file", "inside");
    let at = data.display();
    let manifest = format!(
        "id = \"tools\"\n[requires.fs]\nread = [\"{at}/link/**\"]\n[ceiling.fs]\nread = [\"{{workspace}}/**\", \"{at}/**\"]\n"
    );
    drop(place.env.workspace_file("callgate.toml", &manifest));
    place.trust();
    let turn = |to: &str| {
        symlink(to, data.join("next")).unwrap();
        fs::rename(data.join("next"), data.join("link")).unwrap();
    };
    let read = || {
        let path = data.join("link/file").display().to_string();
        place.callgate(&["call", "read", &json!({ "path": path }).to_string()])
    };
    turn("in");
    assert!(read().stdout.contains("inside"), "the control");
    turn("../other");
    assert!(read().stderr.contains("leads to"), "the control");
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for to in ["in", "../other"].iter().cycle() {
                if ended.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                turn(to);
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        });
        let shown: Vec<ProgramOutcome> = (0..40).map(|_| read()).collect();
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
        let led_out = shown.into_iter().find(|ended| ended.stdout.contains("of outside"));
        assert!(led_out.is_none(), "{led_out:?}");
    });
}

/// E4, C12: what an earlier session could write, that was asked for the same and bounded less, is no program of a tool, nor does it run
/// one; and nothing that a tool has of its own lies there.
#[test]
fn e4_c12_no_tool_is_made_of_what_was_asked_for_to_write() {
    matrix(Host::STRENGTHS, |target| {
        let place = DeclaredProject::new(target);
        let outside = place.env.outside().canonicalize().unwrap();
        let (programs, temporary) = (outside.join("programs"), outside.join("programs/tmp"));
        [&programs, &temporary].iter().for_each(|directory| place.directory(directory));
        let executable = |path: PathBuf, text: &str| {
            drop(place.env.file_at(path.clone(), text));
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        fs::copy("/bin/sh", programs.join("interp")).unwrap();
        executable(programs.join("agent"), "#!/bin/sh\necho 1\n");
        executable(place.tools().join("led.sh"), &format!("#!{}\necho 1\n", programs.join("interp").display()));
        let more = format!("\n[requires.fs]\nread = [\"{}/**\"]\n", programs.display());
        let agent = programs.join("agent").display().to_string();
        for (name, words) in [("by_path", format!("\"{agent}\"")), ("led", "\"./led.sh\"".to_owned())] {
            let command = format!("\"python3\", \"./{name}.py\"");
            place.file(&place.tools(), &format!("{name}.toml"), &definition(name, &more).replace(&command, &words));
        }
        place.python("own", &more, "import os, json\nprint(json.dumps(os.environ['TMPDIR']))\n");
        let own = |asked: &str| {
            let manifest = format!(
                "id = \"tools\"\n[requires.fs]\nread = [\"{{workspace}}/**\", \"{at}/**\"]\nwrite = [\"{{workspace}}/**\"{asked}]\n\
                 [ceiling.fs]\nread = [\"{{workspace}}/**\", \"{at}/**\"]\nwrite = [\"{{workspace}}/**\"]\n",
                at = programs.display()
            );
            drop(place.env.workspace_file("callgate.toml", &manifest));
            place.trust();
            let binary = Binaries::of_this_build().callgate().display().to_string();
            let run = place.user().variable("TMPDIR", &temporary.display().to_string());
            let ended = run.run(&[&binary, "call", "own", "{}"]);
            let envelope: Value = serde_json::from_str(&ended.stdout).unwrap();
            PathBuf::from(envelope["data"].as_str().unwrap_or_else(|| panic!("{envelope}")))
        };
        // With namespaces it is nobody else's.
        let (free, at) = (own(""), target.by_strength(Path::new("/run/callgate"), &temporary));
        assert!(free.starts_with(at), "the control: {}", free.display());
        for tool in ["by_path", "led"] {
            assert_eq!(place.result(tool, json!({})), 1, "the control: {tool}");
        }
        let is_asked_for = own(&format!(", \"{}/**\"", programs.display()));
        assert!(!is_asked_for.starts_with(&temporary), "{}", is_asked_for.display());
        for tool in ["by_path", "led"] {
            let why = place.why(&place.tools().join(format!("{tool}.toml")));
            assert!(why.contains("calls may write") && why.contains("was asked for"), "{tool}: {why}");
            assert!(place.error(tool, json!({}), 64).contains("left out"));
        }
    });
}

/// A1, A18: a part of a protected directory that a tool requires is that part, however much of it its session has.
#[test]
fn a1_a18_a_part_of_a_protected_directory_is_a_tool_s_alone() {
    matrix(Host::STRENGTHS, |target| {
        let place = DeclaredProject::new(target);
        let workspace = place.env.workspace();
        [workspace.join(".vscode/sub"), workspace.join(".idea")]
            .iter()
            .for_each(|directory| place.directory(directory));
        let all = "\"{workspace}/**\", \"{workspace}/.vscode/**\", \"{workspace}/.idea/**\"";
        place.env.workspace_file("callgate.toml", &format!("id = \"tools\"\n[requires.fs]\nwrite = [{all}]\n"));
        let write = "import sys, json\ntry:\n open(json.load(sys.stdin)['text'], 'w').write('new')\n print(0)\n\
                     except OSError as error:\n print(error.errno)\n";
        let part = "\"{workspace}/**\", \"{workspace}/.vscode/sub/**\", \"{workspace}/.idea/workspace.xml\"";
        for (name, requires) in [("part", part), ("whole", all)] {
            place.python(
                name,
                &format!("\n[requires.fs]\nread = [\"{{workspace}}/**\"]\nwrite = [{requires}]\n"),
                write,
            );
        }
        place.trust();
        for (file, is_part) in [
            (".vscode/tasks.json", false),
            (".idea/runs.xml", false),
            (".vscode/sub/x", true),
            (".idea/workspace.xml", true),
        ] {
            let path = workspace.join(file);
            let errno = place.result("part", json!({ "text": file }));
            assert_eq!(errno, if is_part { 0 } else { libc::EACCES }, "{file}");
            assert_eq!(path.exists(), is_part, "{file}");
            assert_eq!(place.result("whole", json!({ "text": file })), 0, "the control: {file}");
        }
    });
}

/// E4, A10: each link on the way to a program counts, and each directory that the way leaves again.
#[test]
fn e4_a10_no_link_on_the_way_to_a_program_is_one_that_calls_may_make() {
    matrix(Host::STRENGTHS, |target| {
        let place = DeclaredProject::new(target);
        let (workspace, outside) = (place.env.workspace(), place.env.outside());
        let beside = outside.join("programs");
        [&beside, &workspace.join("sub")].iter().for_each(|directory| place.directory(directory));
        symlink("/usr/bin/python3", workspace.join("cur")).unwrap();
        symlink(workspace.join("cur"), beside.join("middle")).unwrap();
        symlink(workspace.join("sub/../../../../../../../../../../usr/bin/python3"), beside.join("back")).unwrap();
        symlink("/usr/bin/python3", beside.join("first")).unwrap();
        symlink("first", beside.join("good")).unwrap();
        for name in ["middle", "back", "good"] {
            place.file(&place.tools(), &format!("{name}.py"), "print(1)\n");
            let more = format!("\n[requires.fs]\nread = [\"{}/**\"]\n", beside.display());
            let text = definition(name, &more).replace("\"python3\"", &format!("\"{}\"", beside.join(name).display()));
            place.file(&place.tools(), &format!("{name}.toml"), &text);
        }
        place.trust();
        for (name, at) in [("middle", "cur"), ("back", "sub")] {
            let text = place.error(name, json!({}), 64);
            let at = workspace.canonicalize().unwrap().join(at);
            assert!(text.contains(&format!("calls may write {}", at.display())), "{name}: {text}");
        }
        let turned = place.result("bash", json!({ "command": "ln -sfn /usr/bin/cat cur && readlink cur" }));
        assert_eq!(turned["output"], "/usr/bin/cat\n", "the control: {turned}");
        assert_eq!(place.error("middle", json!({}), 64).matches("calls may write").count(), 1);
        assert_eq!(place.result("good", json!({})), 1, "the control");
    });
}

/// S1-32, X2-1: however much lies in a directory of definitions, reading it is bounded, and the session goes on.
#[test]
fn s1_32_what_lies_among_definitions_is_bounded() {
    let place = DeclaredProject::new(HERE);
    let users = place.user_tools();
    let name = std::ffi::OsStr::from_bytes(b"a\xff.toml");
    fs::write(users.join(name), "name = \"odd\"").unwrap();
    place.env.give(&users.join(name));
    let define = |number: usize, more: &str| {
        let text = format!("name = \"t{number}\"\ndescription = \"D.\"\ncommand = [\"echo\", \"1\"]\n{more}");
        place.file(&users, &format!("t{number:03}.toml"), &text);
    };
    (0..130).for_each(|number| define(number, ""));
    let whys = || -> Vec<String> {
        let left = place.listed().into_iter().filter(|entry| entry["state"] == "left-out");
        left.map(|entry| entry["why"].as_str().unwrap_or_default().to_owned()).collect()
    };
    assert!(whys().iter().any(|why| why.contains("at most 128 definitions")), "{:?}", whys());
    assert!(whys().iter().any(|why| why.contains("not UTF-8")), "{:?}", whys());
    assert_eq!(place.result("t100", json!({})), 1);
    // One byte more than 64 MiB, with the definition.
    let files: Vec<String> = (0..64).map(|number| format!("\"f{number}\"")).collect();
    for number in 0..64 {
        let file = fs::File::create(users.join(format!("f{number}"))).unwrap();
        file.set_len(1024 * 1024).unwrap();
        place.env.give(&users.join(format!("f{number}")));
    }
    define(0, &format!("files = [{}]\n", files.join(", ")));
    assert!(place.error("t0", json!({}), 64).contains("longer than 64 MiB"));
    define(0, &format!("files = [{}]\n", files[..2].join(", ")));
    assert_eq!(place.result("t0", json!({})), 1, "the control");
    // Too many names: the layer is not there, and all else is.
    for number in 0..4096 {
        fs::write(users.join(format!("x{number}")), "").unwrap();
    }
    assert!(whys().iter().any(|why| why.contains("more than 4096 files")), "{:?}", whys());
    assert_eq!(place.result("bash", json!({ "command": "echo fine" }))["output"], "fine\n");
}

/// S1-7, S1-27, S1-29: whoever trusts a project is shown what its tools run and require, which variables they get, and which of
/// them nobody is asked about.
#[test]
fn s1_7_s1_29_trusting_a_project_shows_what_its_tools_get() {
    let place = DeclaredProject::new(HERE);
    let more = "env = [\"DEPLOY_TOKEN\"]\nstate = true\ngated = false\n\n[requires.fs]\nread = [\"/srv/data/**\"]\n";
    place.python("deploy", more, "print(1)\n");
    place.python("plain", "", "print(1)\n");
    place.python("always", "approval_key = \"always\"\n", "print(1)\n");
    place.file(&place.tools(), "grep.toml", "name = \"grep\"\ndisable = true\n");
    let given = place.callgate(&["trust", "."]).stdout;
    assert!(given.contains("an \"always\" is kept for: always") && given.contains("takes away: grep"), "{given}");
    let shown = place.callgate(&["tools", "deploy"]).stdout;
    for text in [&given, &shown] {
        for words in ["/srv/data/**", "DEPLOY_TOKEN", "keeps state", "runs without asking", "python3"] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
    assert_eq!(given.matches("runs without asking").count(), 1, "{given}");
    let plain = place.callgate(&["tools", "plain"]).stdout;
    assert!(!plain.contains("runs without asking") && !plain.contains("variables"), "{plain}");
}
