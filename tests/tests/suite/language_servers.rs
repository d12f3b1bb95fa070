//! `lsp` (S0-25): what language servers say of files, and what they cannot do.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;

use callgate_tests::{Binaries, Host, ProgramOutcome, TestEnv, TestFile, matrix};
use serde_json::{Value, json};

/// A line in which columns and units of UTF-16 differ: `n` is at column 5, after 5 units.
const LINE: &str = "aä𝄞 name\n";

/// A workspace with a language server of which this is asked.
struct Toy<'a> {
    env: &'a TestEnv,
    secret: TestFile,
}

impl<'a> Toy<'a> {
    fn new(env: &'a TestEnv) -> Self {
        env.workspace_file("a.toy", LINE);
        env.workspace_file("b.toy", &format!("first\n{LINE}"));
        let server = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/lsp/server.py");
        env.file("server.py", &fs::read_to_string(server).unwrap());
        let secret = env.file("secret.toy", "𝄞𝄞x\n");
        symlink(env.outside().join("secret.toy"), env.workspace().join("link.toy")).unwrap();
        Self { env, secret }
    }

    /// Writes a manifest by which the server behaves like this, with more in it.
    fn manifest(&self, mode: &str, beside: &str, more: &str) {
        let (outside, root) = (self.env.outside(), self.env.workspace());
        let (outside, root) = (outside.display(), root.display());
        let command = json!(["python3", format!("{outside}/server.py"), mode, root.to_string(), beside]);
        let text = format!(
            "extra = [\"lsp\"]\n{more}\n[requires.fs]\nread = [\"{outside}/server.py\"]\nwrite = [\"{{workspace}}/**\"]\n\
             [[requires.shell]]\ncmd = \"*\"\n[lsp.toy]\ncommand = {command}\nfiles = [\"*.toy\"]\n"
        );
        self.env.workspace_file("toy.toml", &text);
    }

    fn call(&self, tool: &str, arguments: &Value) -> Value {
        let flags = ["--manifest", "toy.toml"];
        envelope(&call(self.env, &flags, (tool, arguments)))
    }

    /// Asks the server that behaves like this.
    fn ask(&self, mode: &str, arguments: &Value) -> Value {
        self.manifest(mode, &self.env.outside().join("secret.toy").display().to_string(), "");
        self.call("lsp", arguments)
    }
}

fn call(env: &TestEnv, flags: &[&str], (tool, arguments): (&str, &Value)) -> ProgramOutcome {
    let callgate = Binaries::of_this_build().callgate().display().to_string();
    let arguments = arguments.to_string();
    env.weakened().run(&[&[callgate.as_str(), "call"], flags, &[tool, &arguments]].concat())
}

#[track_caller]
fn envelope(ended: &ProgramOutcome) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

/// A question about the name in `a.toy`.
fn about_the_name(operation: &str) -> Value {
    json!({ "operation": operation, "path": "a.toy", "line": 1, "column": 5, "timeout_ms": 60000 })
}

/// S0-25: each operation, with columns in characters. A server that has to read first is asked again; what it asks is answered.
#[test]
fn s0_25_a_server_is_asked_and_answers() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let toy = Toy::new(&env);
        let hover = toy.ask("good", &about_the_name("hover"));
        assert_eq!(hover["data"]["content"], format!("{LINE} at 0:5"), "{hover}");
        assert_eq!(
            (&hover["data"]["server"], &hover["data"]["operation"]),
            (&json!("toy"), &json!("hover")),
            "{hover}"
        );
        let definition = toy.ask("good", &about_the_name("definition"));
        let at =
            json!([{ "path": env.workspace().join("b.toy"), "line": 2, "column": 5, "end_line": 2, "end_column": 9 }]);
        assert_eq!(definition["data"]["found"], at, "{definition}");
        let symbols = toy.ask("good", &json!({ "operation": "symbols", "path": "a.toy" }));
        let named: Vec<_> = symbols["data"]["found"]
            .as_array()
            .unwrap()
            .iter()
            .map(|symbol| {
                (symbol["name"].as_str().unwrap(), symbol["kind"].as_str().unwrap(), symbol["column"].as_u64().unwrap())
            })
            .collect();
        assert_eq!(named, [("outer", "class", 1), ("inner", "method", 5)], "{symbols}");
        assert_eq!(symbols["data"]["found"][1]["container"], "outer", "{symbols}");
        for (mode, message, severity) in [("good", "pulled", "information"), ("push", "pushed", "warning")] {
            let said = toy.ask(mode, &json!({ "operation": "diagnostics", "path": "a.toy" }));
            let one = &said["data"]["found"][0];
            assert_eq!((&one["message"], &one["severity"]), (&json!(message), &json!(severity)), "{said}");
            assert_eq!((&one["column"], &one["end_column"]), (&json!(5), &json!(6)), "{said}");
        }
        let many = toy.ask("many", &with(about_the_name("references"), "include_declaration", false));
        assert_eq!((&many["data"]["total"], many["data"]["head"].as_array().map(Vec::len)), (&json!(5000), Some(200)));
    });
}

fn with(mut arguments: Value, name: &str, value: impl Into<Value>) -> Value {
    arguments[name] = value.into();
    arguments
}

/// S0-25: what a server names outside of the workspace is told as it is, and not opened: not by its name, a detour or a link.
#[test]
fn s0_25_what_a_server_names_elsewhere_is_not_opened() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let toy = Toy::new(&env);
        let said = toy.ask("good", &with(about_the_name("references"), "include_declaration", false));
        let found = said["data"]["found"].as_array().unwrap_or_else(|| panic!("{said}"));
        assert_eq!(found.len(), 4, "{said}");
        let named = |end: &str| {
            let is_it =
                |one: &&Value| one["path"].as_str().or(one["uri"].as_str()).is_some_and(|path| path.ends_with(end));
            found.iter().find(is_it).unwrap_or_else(|| panic!("{end}: {said}"))
        };
        for end in ["/secret.toy", "/link.toy"] {
            // By characters it would be column 3.
            assert_eq!((&named(end)["column"], &named(end)["utf16"]), (&json!(5), &json!(true)), "{said}");
        }
        assert!(named("/../b.toy")["uri"].is_string(), "{said}");
        let wrong = named("/a.toy");
        assert_eq!((&wrong["line"], &wrong["column"]), (&json!(9001), &json!(9001)), "{said}");
        toy.secret.assert_contents("𝄞𝄞x\n");
        let inside = toy.ask("good", &about_the_name("definition"));
        assert_eq!(inside["data"]["found"][0]["column"], 5, "the control: what lies in the workspace is read");
        // A file that the session may not read is not shown to a server either.
        let arguments = with(about_the_name("hover"), "path", env.outside().join("secret.toy").display().to_string());
        let refused = toy.ask("good", &arguments);
        assert_eq!(refused["metadata"]["denial"]["layer"], "capability", "{refused}");
    });
}

/// S0-25: a server that breaks the protocol, floods, hangs or ends is an error that says so.
#[test]
fn s0_25_a_server_that_misbehaves_is_ended() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let toy = Toy::new(&env);
        for (mode, code, text) in [
            (
                "crash",
                "ToolExecutionFailed",
                "it ended before it had answered; it had written on standard error:\nthe reason",
            ),
            ("garbage", "OutputMalformed", "it does not say how long it is"),
            ("endless-header", "OutputMalformed", "its headers do not end"),
            ("huge", "OutputMalformed", "it is too long"),
            ("no-json", "OutputMalformed", "it is not JSON"),
            ("bytes", "OutputMalformed", "it counts otherwise than in UTF-16"),
            ("flood", "LimitExceeded", "it sent more than 64 MiB"),
            ("complain", "LimitExceeded", "it sent more than 64 MiB"),
        ] {
            let said = toy.ask(mode, &about_the_name("hover"));
            assert_eq!(said["metadata"]["error"]["context"]["code"], code, "{mode}: {said}");
            assert!(said["error_text"].as_str().is_some_and(|told| told.contains(text)), "{mode}: {said}");
        }
        let said = toy.ask("ask-without-end", &about_the_name("hover"));
        let told = said["error_text"].as_str().unwrap_or_default();
        assert!(told.contains("more than 64 MiB") || told.contains("does not read"), "{said}");
        let said = toy.ask("hang", &with(about_the_name("hover"), "timeout_ms", 1000));
        assert_eq!(said["metadata"]["timed_out"], true, "{said}");
        let missing = toy.ask("good", &with(about_the_name("hover"), "column", 10));
        assert!(missing["error_text"].as_str().is_some_and(|text| text.contains("it has 8 characters")), "{missing}");
        let control = toy.ask("good", &about_the_name("hover"));
        assert_eq!(control["type"], "output", "{control}");
    });
}

/// S0-25: a server runs what its project says, so it changes nothing that was granted, and reaches no host.
#[test]
fn s0_25_a_server_changes_nothing_and_reaches_nobody() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let toy = Toy::new(&env);
        let kept = env.workspace_file("kept", "old");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        toy.manifest("attack", &port, &format!("[requires.net]\nhosts = [\"127.0.0.1:{port}\"]"));
        let said = toy.call("lsp", &about_the_name("hover"));
        let told = said["data"]["content"].as_str().unwrap_or_else(|| panic!("{said}"));
        for refused in ["overwrite", "make", "remove", "home", "connect"] {
            assert!(told.contains(&format!("{refused}: ")) && !told.contains(&format!("{refused}: done")), "{told}");
        }
        assert!(told.contains("temporary: done"), "{told}");
        kept.assert_contents("old");
        assert!(!env.workspace().join("made").exists(), "{told}");
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "{told}");
        // The control: in the same session a program may do all that.
        let command =
            format!("echo new > made; python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}))'");
        let control = toy.call("bash", &json!({ "command": command }));
        assert_eq!(control["data"]["exit_code"], 0, "{control}");
        assert_eq!(fs::read_to_string(env.workspace().join("made")).unwrap(), "new\n");
    });
}

/// S0-25: what a rule denies to `bash` or to `read` is denied to `lsp`, and a server that is not there is named.
#[test]
fn s0_25_rules_for_bash_hold_for_servers() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let toy = Toy::new(&env);
        let secret = env.outside().join("secret.toy").display().to_string();
        for tool in ["bash", "read", "lsp"] {
            let rule = format!("rules = [{{ permission = \"{tool}\", action = \"deny\" }}]");
            toy.manifest("good", &secret, &rule);
            let denied = toy.call("lsp", &about_the_name("hover"));
            assert_eq!(denied["metadata"]["denial"]["layer"], "rule", "{tool}: {denied}");
        }
        toy.manifest("good", &secret, "rules = [{ permission = \"write\", action = \"deny\" }]");
        assert_eq!(toy.call("lsp", &about_the_name("hover"))["type"], "output");
        env.workspace_file("a.rs", "fn main() {}\n");
        let callgate = Binaries::of_this_build().callgate().display().to_string();
        let arguments = json!({ "operation": "symbols", "path": "a.rs" }).to_string();
        let words = ["env", "PATH=/usr/sbin:/sbin", &callgate, "call", "--extra", "lsp", "lsp", &arguments];
        let absent = envelope(&env.weakened().run(&words));
        let text = absent["error_text"].as_str().unwrap_or_default();
        assert!(text.contains("rust-analyzer did not start") && text.contains("[lsp.NAME]"), "{absent}");
        let none =
            envelope(&call(&env, &["--extra", "lsp"], ("lsp", &json!({ "operation": "symbols", "path": "b.toy" }))));
        assert!(none["error_text"].as_str().is_some_and(|text| text.contains("no language server is known")), "{none}");
    });
}

/// S0-25: pylsp as Debian has it, about two modules.
#[test]
fn s0_25_pylsp_knows_where_things_are() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.workspace_file(
            "shapes.py",
            "\"\"\"𝄞\"\"\"\n\n\ndef area(side):\n    \"\"\"The area of a square.\"\"\"\n    return side * side\n",
        );
        env.workspace_file("main.py", "from shapes import area\n\nä = 'x'; print(area(2))\n");
        let ask = |operation: &str, place: Value| {
            let arguments = with(with(json!({ "path": "main.py" }), "operation", operation), "timeout_ms", 300_000);
            let (mut arguments, place) = (arguments, place);
            for (name, value) in place.as_object().unwrap() {
                arguments[name] = value.clone();
            }
            envelope(&call(&env, &["--extra", "lsp"], ("lsp", &arguments)))
        };
        let place = json!({ "line": 3, "column": 16 });
        let definition = ask("definition", place.clone());
        let at = &definition["data"]["found"][0];
        assert!(at["path"].as_str().is_some_and(|path| path.ends_with("/shapes.py")), "{definition}");
        assert_eq!((&at["line"], &at["column"]), (&json!(4), &json!(5)), "{definition}");
        let references = ask("references", place.clone());
        let found: Vec<_> = references["data"]["found"]
            .as_array()
            .unwrap_or_else(|| panic!("{references}"))
            .iter()
            .map(|one| {
                (
                    one["path"].as_str().unwrap().rsplit('/').next().unwrap(),
                    one["line"].as_u64(),
                    one["column"].as_u64(),
                )
            })
            .collect();
        let wanted = [("main.py", Some(1), Some(20)), ("main.py", Some(3), Some(16)), ("shapes.py", Some(4), Some(5))];
        assert_eq!(found, wanted, "{references}");
        let hover = ask("hover", place);
        assert!(
            hover["data"]["content"].as_str().is_some_and(|text| text.contains("The area of a square.")),
            "{hover}"
        );
        let symbols = ask("symbols", json!({ "path": "shapes.py" }));
        assert!(symbols["data"]["found"].to_string().contains("\"area\""), "{symbols}");
        env.workspace_file("wrong.py", "def f(:\n    pass\n");
        let wrong = ask("diagnostics", json!({ "path": "wrong.py" }));
        assert_eq!(wrong["data"]["found"][0]["line"], 1, "{wrong}");
    });
}
