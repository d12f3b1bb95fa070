//! A subagent by command: its program tries in its sandbox what its parent may and it may not (F11, X0-24, X0-25).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use callgate_tests::{Binaries, Host, ProgramOutcome, TestEnv, matrix};
use libc::{EACCES, ENOENT, EROFS};
use serde_json::{Value, json};

fn call(env: &TestEnv, tool: &str, arguments: &Value) -> (ProgramOutcome, Value) {
    let callgate = Binaries::of_this_build().callgate().display().to_string();
    let words = [callgate.as_str(), "call", "--manifest", "m.toml", tool, &arguments.to_string()];
    let ended = env.weakened().run(&words);
    let envelope = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    (ended, envelope)
}

/// F11, X0-24, X0-25, S0-17: the child has what its parent has and it has declared, within its ceiling, read back from the kernel:
/// each act that is denied to one of them is one that the other may do. Nothing that was denied has changed.
#[test]
fn f11_x0_24_x0_25_s0_17_a_child_has_what_its_parent_has_and_it_has_declared() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for name in ["workspace/a", "workspace/b", "workspace/c", "workspace/d", "outside/secret"] {
            let directory = env.workspace().parent().unwrap().join(name);
            fs::create_dir(&directory).unwrap();
            env.give(&directory);
        }
        let file = |name: &str| env.workspace_file(name, name);
        let (a, b, c, d) = (file("a/file"), file("b/file"), file("c/file"), file("d/file"));
        let secret = env.file("secret/file", "secret");
        let probe = Binaries::of_this_build().probe().display().to_string();
        let outside = env.outside().display().to_string();
        let manifest = format!(
            "mode = \"yolo\"
            tools = [\"bash\", \"task\"]
            [requires.fs]
            read = [\"{{workspace}}/**\", {probe:?}]
            write = [\"{{workspace}}/a/**\", \"{{workspace}}/b/**\"]
            [[requires.shell]]
            cmd = \"*\"
            [agents.child]
            description = \"tries\"
            tools = []
            runner = [\"/bin/sh\", \"-c\", \"while read -r act; do {probe} $act; done; true\"]
            [[agents.child.requires.shell]]
            cmd = {probe:?}
            [agents.child.requires.fs]
            read = [\"{{workspace}}/a/**\", \"{{workspace}}/d/**\", \"{outside}/**\", {probe:?}]
            write = [\"{{workspace}}/b/**\", \"{{workspace}}/c/**\"]
            [agents.child.ceiling.fs]
            read = [\"{{workspace}}/a/**\", \"{{workspace}}/b/**\", \"{{workspace}}/c/**\", \"{outside}/**\", {probe:?}]
            write = [\"{{workspace}}/b/**\", \"{{workspace}}/c/**\"]"
        );
        env.workspace_file("m.toml", &manifest);
        let (hidden, kept) = (target.by_strength(ENOENT, EACCES), target.by_strength(EROFS, EACCES));
        // Each act: what the parent gets, and what the child gets.
        let acts = [
            (format!("read {}", a.text()), None, None),
            (format!("write {} x", b.text()), None, None),
            // The parent may.
            (format!("write {} x", a.text()), None, Some(kept)),
            (format!("read {}", d.text()), None, Some(hidden)),
            // The child has declared it, and the parent may not.
            (format!("read {}", secret.text()), Some(hidden), Some(hidden)),
            (format!("write {} x", c.text()), Some(kept), Some(kept)),
        ];
        let lines: String = acts.iter().map(|(act, ..)| format!("{act}\n")).collect();
        let reports = |text: &str| -> Vec<Option<i32>> {
            let report = |line: &str| -> Value { serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")) };
            let errno = |line: &str| match report(line) {
                report if report["ok"] == true => None,
                report => Some(i32::try_from(report["errno"].as_i64().unwrap_or(-1)).unwrap()),
            };
            text.lines().filter(|line| line.starts_with('{')).map(errno).collect()
        };
        let (ended, child) = call(&env, "task", &json!({ "subagent_type": "child", "prompt": lines }));
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        let expected: Vec<_> = acts.iter().map(|(_, _, child)| *child).collect();
        assert_eq!(reports(child["data"]["output"].as_str().unwrap()), expected, "{child}");
        a.assert_contents("a/file");
        b.assert_contents("x/file");
        c.assert_contents("c/file");

        let command = format!("while read -r act; do {probe} $act; done <<'END'\n{lines}END\ntrue");
        let (_, parent) = call(&env, "bash", &json!({ "command": command }));
        let expected: Vec<_> = acts.iter().map(|(_, parent, _)| *parent).collect();
        assert_eq!(reports(parent["data"]["output"].as_str().unwrap()), expected, "the control: {parent}");
        a.assert_contents("x/file");
        c.assert_contents("c/file");
        secret.assert_contents("secret");
    });
}

/// C12: what calls of the parent may put into a directory of PATH is not started as the program of an agent that may not write
/// there, nor is it what the agent's own programs find by a name.
#[test]
fn c12_calls_of_the_parent_choose_no_program_of_an_agent() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let bin = env.outside().join("bin");
        fs::create_dir(&bin).unwrap();
        env.give(&bin);
        let tool = env.file("bin/of-path", "#!/bin/sh\necho planted\n");
        fs::set_permissions(bin.join("of-path"), fs::Permissions::from_mode(0o755)).unwrap();
        let outside = env.outside().display().to_string();
        let path = format!("{}:/usr/bin:/bin", bin.display());
        let ask = |write: &str, agent: &str| {
            let (write, ceiling) = write.split_once('|').unwrap_or((write, ""));
            let manifest = format!(
                "mode = \"yolo\"
                tools = [\"bash\", \"task\"]
                {ceiling}
                [requires.fs]
                read = [\"{{workspace}}/**\", \"{outside}/**\"]
                write = [{write}]
                [[requires.shell]]
                cmd = \"*\"
                [agents.by-name]
                description = \"x\"
                tools = []
                runner = [\"of-path\"]
                [agents.by-name.requires.fs]
                read = [\"{{workspace}}/**\", \"{outside}/**\"]
                [agents.by-path]
                description = \"x\"
                tools = []
                runner = [\"{outside}/bin/of-path\"]
                [agents.by-path.requires.fs]
                read = [\"{{workspace}}/**\", \"{outside}/**\"]
                [agents.by-shell]
                description = \"x\"
                tools = []
                runner = [\"/bin/sh\", \"-c\", \"of-path || echo not found\"]
                [[agents.by-shell.requires.shell]]
                cmd = \"*\"
                [agents.by-shell.requires.fs]
                read = [\"{{workspace}}/**\", \"{outside}/**\"]"
            );
            env.workspace_file("m.toml", &manifest);
            let callgate = Binaries::of_this_build().callgate().display().to_string();
            let arguments = json!({ "subagent_type": agent, "prompt": "x" }).to_string();
            let words = [callgate.as_str(), "call", "--manifest", "m.toml", "task", &arguments];
            let ended = env.weakened().variable("PATH", &path).run(&words);
            serde_json::from_str::<Value>(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
        };
        let all = format!("\"{outside}/bin/**\"");
        assert_eq!(ask("", "by-name")["data"]["output"], "planted\n", "the control: nobody can write it");
        assert_eq!(ask("", "by-shell")["data"]["output"], "planted\n", "the control");
        let refused = ask(&all, "by-name");
        assert!(refused["error_text"].is_string() && !refused.to_string().contains("planted"), "{refused}");
        assert_eq!(ask(&all, "by-shell")["data"]["output"], "not found\n");
        // An earlier session could, that was asked for the same and bounded less; by its path as by its name.
        let bounded =
            format!("{all}|ceiling.fs.read = [\"{{workspace}}/**\", \"{outside}/**\"]\nceiling.fs.write = []");
        let none = String::new();
        for (agent, write, is_planted) in [
            ("by-name", &bounded, false),
            ("by-path", &all, false),
            ("by-path", &bounded, false),
            ("by-path", &none, true),
        ] {
            let result = ask(write, agent);
            assert_eq!(result.to_string().contains("planted"), is_planted, "{agent} {write}: {result}");
            assert_eq!(result["error_text"].is_string(), !is_planted, "{agent} {write}: {result}");
        }
        tool.assert_contents("#!/bin/sh\necho planted\n");
    });
}

/// X1-22: `call --batch` makes the calls that standard input has, one a line, and prints a result for each in their order. What
/// fails fails nothing else, and the exit status is that of the first that failed.
#[test]
fn x1_22_a_batch_by_command() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.workspace_file("m.toml", "mode = \"yolo\"\n");
        let callgate = Binaries::of_this_build().callgate().display().to_string();
        let batch = |lines: &str| {
            env.workspace_file("calls", lines);
            let line = format!("exec {callgate} call --manifest m.toml --batch < calls");
            env.weakened().run(&["/bin/sh", "-c", &line])
        };
        let ended = batch(
            "{\"tool\": \"write\", \"arguments\": {\"path\": \"a\", \"content\": \"one\"}}\n\
             {\"tool\": \"read\", \"arguments\": {\"path\": \"absent\"}}\n\n\
             {\"tool\": \"no-such\"}\n\
             {\"tool\": \"read\", \"arguments\": {\"path\": \"a\"}}\n",
        );
        let results: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let kinds: Vec<_> = results.iter().map(|result| result["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["output", "error", "error", "output"], "{ended:?}");
        assert_eq!(results[3]["data"]["content"], "one");
        assert_eq!(ended.status.code(), Some(1), "the first that failed: {ended:?}");
        assert_eq!(batch("{\"tool\": \"read\", \"arguments\": {\"path\": \"a\"}}\n").status.code(), Some(0));
        for (lines, problem) in [
            ("", "no call"),
            ("{\"tool\": \"write\", \"arguments\": {\"path\": \"b\", \"content\": \"\"}}\n{\"name\": 1}\n", "line 2"),
        ] {
            let ended = batch(lines);
            assert_eq!(ended.status.code(), Some(65), "{ended:?}");
            assert!(ended.stderr.contains(problem) && ended.stdout.is_empty(), "{ended:?}");
        }
        assert!(!env.workspace().join("b").exists(), "nothing was called");
    });
}
