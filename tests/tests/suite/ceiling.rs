//! Rights in force are what the manifest and the offered tools require together, within the ceiling (S0-7, S0-8, C-1,
//! X0-1).

use std::fs;

use callgate_tests::{Binaries, Host, ProgramOutcome, TestEnv, matrix};
use serde_json::{Value, json};

/// A manifest that names one directory and one program.
const NAMES: &str = "[requires.fs]\nread = [\"**\"]\nwrite = [\"out/**\"]\n[[requires.shell]]\ncmd = \"cat\"\n";

/// These rights as a bound, from line 8 on when it stands behind [`NAMES`] and one line.
const BOUNDS: &str = "[ceiling.fs]\nwrite = [\"out/**\"]\n[[ceiling.shell]]\ncmd = \"cat\"\n";

struct CeilingProject {
    env: TestEnv,
}

impl CeilingProject {
    fn new(target: callgate_tests::Target) -> Self {
        let env = TestEnv::new(target);
        let out = env.workspace().join("out");
        fs::create_dir(&out).unwrap();
        env.give(&out);
        env.workspace_file("theirs", "old");
        Self { env }
    }

    fn callgate(&self, words: &[&str]) -> ProgramOutcome {
        let binary = Binaries::of_this_build().callgate().display().to_string();
        self.env.weakened().run(&[&[binary.as_str()], words].concat())
    }

    fn call(&self, flags: &[&str], tool: &str, arguments: &Value) -> (ProgramOutcome, Value) {
        let ended = self.callgate(&[&["call"], flags, &[tool, &arguments.to_string()]].concat());
        let envelope = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
        (ended, envelope)
    }

    /// A call under this manifest.
    fn under(&self, manifest: &str, tool: &str, arguments: &Value) -> (ProgramOutcome, Value) {
        self.env.workspace_file("m.toml", manifest);
        self.call(&["--manifest", "m.toml"], tool, arguments)
    }

    fn writes(&self, manifest: &str, path: &str) -> (ProgramOutcome, Value) {
        self.under(manifest, "write", &json!({ "path": path, "content": "new" }))
    }

    /// True if a command line could make a file here.
    fn makes(&self, manifest: &str, line: &str, file: &str) -> bool {
        let (ended, _) = self.under(manifest, "bash", &json!({ "command": line }));
        assert!([Some(0), Some(77)].contains(&ended.status.code()), "{ended:?}");
        fs::remove_file(self.env.workspace().join(file)).is_ok()
    }
}

#[track_caller]
fn assert_denied((ended, envelope): &(ProgramOutcome, Value), reason: &str) {
    assert_eq!(ended.status.code(), Some(77), "{ended:?}");
    assert_eq!(envelope["metadata"]["denial"]["layer"], "capability", "{envelope}");
    let said = envelope["metadata"]["denial"]["reason"].as_str().unwrap();
    assert!(said.contains(reason), "{said:?} does not say {reason:?}");
}

/// S0-7, C-1: what every offered tool requires counts, also beside a manifest that names paths and programs itself; who may have
/// meant something else is told.
#[test]
fn s0_7_c_1_the_manifest_and_every_offered_tool_count_together() {
    matrix(Host::STRENGTHS, |target| {
        let place = CeilingProject::new(target);
        let yolo = format!("mode = \"yolo\"\n{NAMES}");
        let (written, _) = place.writes(&yolo, "theirs");
        assert_eq!(written.status.code(), Some(0), "{written:?}");
        assert_eq!(fs::read_to_string(place.env.workspace().join("theirs")).unwrap(), "new");
        assert!(place.makes(&yolo, "touch made", "made"), "`bash` requires any program");
        for said in [
            "m.toml names what may be written, and `edit` and `write` require all of {workspace}/**: both count. To bound \
             it, say so in [ceiling.fs]\n",
            "m.toml names what may be started, and `bash` requires any program: both count. To bound it, say so in \
             [[ceiling.shell]]\n",
        ] {
            assert_eq!(written.stderr.matches(said).count(), 1, "{said}: {written:?}");
        }
        assert_eq!(written.stderr.lines().count(), 2, "{written:?}");
        // Without a word about paths or programs there is nothing to be mistaken about.
        let (plain, _) = place.writes("mode = \"yolo\"\n", "out/x");
        assert!(plain.status.success() && plain.stderr.is_empty(), "{plain:?}");
    });
}

/// S0-8, C-1: a tool that is offered extends the sandbox without another edit, and one that is not adds nothing.
#[test]
fn s0_8_c_1_offering_a_tool_extends_what_its_session_may_do() {
    matrix(Host::STRENGTHS, |target| {
        let place = CeilingProject::new(target);
        let offering = |tools: &str| format!("mode = \"yolo\"\ntools = [{tools}]\n{NAMES}");
        let line = "echo x > made";
        assert!(!place.makes(&offering("\"read\", \"bash\""), line, "made"), "nothing that writes here is offered");
        assert!(place.makes(&offering("\"read\", \"bash\""), "echo x > out/made", "out/made"), "the control");
        assert!(place.makes(&offering("\"read\", \"bash\", \"write\""), line, "made"));
        // The same of programs: without `bash` there is only what the manifest names.
        let absent = place.under(&offering("\"read\", \"write\""), "bash", &json!({ "command": "true" }));
        assert_eq!(absent.0.status.code(), Some(64), "{absent:?}");
        let told = place.under(&offering("\"read\", \"write\""), "read", &json!({ "path": "theirs" })).0.stderr;
        assert!(told.contains("`write` requires") && !told.contains("bash") && !told.contains("edit"), "{told}");
        let tools: Value = serde_json::from_str(&place.callgate(&["tools", "--json"]).stdout).unwrap();
        let bash = tools.as_array().unwrap().iter().find(|tool| tool["id"] == "bash").unwrap();
        assert_eq!(bash["requires"]["shell"], json!([{ "cmd": "*" }]), "S0-5");
    });
}

/// C-1, X0-1: a ceiling bounds what tools require too: before anything runs, and in the kernel. The denial names the table and its
/// line, and nothing is told that needs no telling.
#[test]
fn c_1_x0_1_a_ceiling_bounds_manifest_and_tools() {
    matrix(Host::STRENGTHS, |target| {
        let place = CeilingProject::new(target);
        let bounded = format!("mode = \"yolo\"\n{NAMES}{BOUNDS}");
        let denied = place.writes(&bounded, "theirs");
        assert_denied(&denied, "/out/** by `[ceiling.fs]`, m.toml line 7");
        let remedy = denied.1["metadata"]["denial"]["remedy"].as_str().unwrap();
        assert!(remedy.contains("to `write` in [ceiling.fs]"), "{remedy}");
        assert!(denied.0.stderr.is_empty(), "{denied:?}");
        assert!(!place.makes(&bounded, "echo x > made", "made"), "the kernel holds it");
        assert!(!place.makes(&bounded, "touch out/made", "out/made"), "another program");
        assert!(place.makes(&bounded, "cat theirs > out/made", "out/made"), "the control");
        assert_eq!(place.writes(&bounded, "out/x").0.status.code(), Some(0), "the control");
        // An empty list bounds to nothing.
        let none = format!("mode = \"yolo\"\n{NAMES}[ceiling]\nshell = []\n[ceiling.fs]\nread = []\n");
        assert_denied(
            &place.under(&none, "bash", &json!({ "command": "cat theirs" })),
            "bounded to nothing by `[[ceiling.shell]]`, m.toml line 8",
        );
        assert_denied(
            &place.under(&none, "read", &json!({ "path": "theirs" })),
            "bounded to nothing by `[ceiling.fs]`, m.toml line 9",
        );
        assert_denied(&place.writes(&none, "out/x"), "bounded to nothing by `[ceiling.fs]`");
        // A ceiling grants nothing: outside it names a directory that nobody asks for.
        let outside = place.env.file("outside", "old");
        let wide = format!(
            "mode = \"yolo\"\n{NAMES}[ceiling.fs]\nwrite = [\"{}/**\", \"**\"]\n",
            place.env.outside().display()
        );
        assert_denied(&place.writes(&wide, outside.text()), "fs.write grants only");
        outside.assert_contents("old");
        // In JSON it is the same.
        let json = json!({ "mode": "yolo", "ceiling": { "fs": { "write": ["out/**"] } } }).to_string();
        place.env.workspace_file("m.json", &json);
        let denied = place.call(&["--manifest", "m.json"], "write", &json!({ "path": "theirs", "content": "new" }));
        assert_denied(&denied, "by `[ceiling.fs]`, m.json line 1");
        assert_eq!(fs::read_to_string(place.env.workspace().join("theirs")).unwrap(), "old");
    });
}

/// `run` calls no tool: it gets what its manifest asks for, within the ceiling, and says nothing.
#[test]
fn run_gets_what_is_asked_for_and_no_more() {
    matrix(Host::STRENGTHS, |target| {
        let place = CeilingProject::new(target);
        let run = |manifest: &str, line: &str| {
            place.env.workspace_file("m.toml", manifest);
            let ended = place.callgate(&["run", "--manifest", "m.toml", "--", "/bin/bash", "-c", line]);
            assert!(!ended.stderr.contains("ceiling"), "{ended:?}");
            ended.status.success()
        };
        let asked = "[requires.fs]\nread = [\"**\"]\nwrite = [\"out/**\"]\n[[requires.shell]]\ncmd = \"*\"\n";
        assert!(!run(asked, "echo new > theirs"));
        assert!(run(asked, "echo new > out/x"), "the control");
        assert!(!run(&format!("{asked}[ceiling.fs]\nwrite = [\"out/y\"]\n"), "echo new > out/x"));
        assert!(run("[[requires.shell]]\ncmd = \"*\"\n", "echo new > made"), "no path is named: the workspace");
        assert!(!run("tools = [\"read\"]\n[[requires.shell]]\ncmd = \"*\"\n", "echo new > made"), "as its tools would");
        assert_eq!(fs::read_to_string(place.env.workspace().join("theirs")).unwrap(), "old");
    });
}

/// The flags of `call`: paths add to what there is; programs are all that may be started.
#[test]
fn c_1_typed_programs_are_a_ceiling_and_typed_paths_are_not() {
    matrix(Host::STRENGTHS, |target| {
        let place = CeilingProject::new(target);
        let bash = |flags: &[&str], line: &str| place.call(flags, "bash", &json!({ "command": line }));
        let exit = |(_, envelope): (ProgramOutcome, Value)| envelope["data"]["exit_code"].as_i64();
        let outside = place.env.file("outside", "old");
        let line = format!("cat theirs {} > made", outside.text());
        assert_eq!(exit(bash(&["--read", outside.text()], &line)), Some(0), "the workspace stays");
        assert_eq!(exit(bash(&[], &line)), Some(1), "the control: not granted");
        assert_eq!(exit(bash(&["--exec", "cat"], "cat theirs")), Some(0));
        assert_eq!(exit(bash(&["--exec", "cat"], "mkdir dir")), Some(126));
        assert_eq!(exit(bash(&[], "mkdir dir")), Some(0), "the control: any program");
        place.env.workspace_file("m.toml", &format!("mode = \"yolo\"\n{NAMES}"));
        let with = ["--manifest", "m.toml", "--exec", "ls"];
        assert_eq!(exit(bash(&with, "cat theirs && ls")), Some(0), "with those of the manifest");
        assert_eq!(exit(bash(&with, "mkdir other")), Some(126));
        assert!(!place.env.workspace().join("other").exists());
    });
}

/// C-1: what is typed and a ceiling takes away is said once, by the ceiling's line; and no remark proposes the flag that was typed.
#[test]
fn c_1_a_flag_that_a_ceiling_takes_away_is_said() {
    matrix(Host::STRENGTHS, |target| {
        let place = CeilingProject::new(target);
        let bounded = "id = \"x\"\n[ceiling.net]\nhosts = [\"a.example\"]\n";
        place.env.workspace_file("m.toml", bounded);
        let curl = "curl -sS -m 9 http://b.example/ || exit 9";
        let run = |flags: &[&str]| {
            let start = ["run", "--manifest", "m.toml"];
            place.callgate(&[&start[..], flags, &["--", "sh", "-c", curl]].concat())
        };
        let (typed, control) = (run(&["--net", "b.example"]), run(&["--net", "a.example"]));
        let said = "callgate: --net b.example grants nothing; it is bounded by `[ceiling.net]`, m.toml line 2\n";
        assert_eq!(typed.stderr.matches(said).count(), 1, "{typed:?}");
        assert!(!control.stderr.contains("grants nothing"), "the control: {control:?}");
        for ended in [&typed, &control] {
            assert!(
                ended.stderr.contains("No flag grants it, for the hosts are bounded by `[ceiling.net]`"),
                "{ended:?}"
            );
            assert!(!ended.stderr.contains("To grant"), "{ended:?}");
        }
        place.env.workspace_file("m.toml", "id = \"x\"\n");
        assert!(
            run(&[]).stderr.contains(" --net b.example (or"),
            "the control: without a ceiling the flag is what is missing"
        );

        place.env.workspace_file("m.toml", "id = \"x\"\n[ceiling.fs]\nread = [\"{workspace}/**\"]\n");
        let outside = place.env.outside().display().to_string();
        let (_, envelope) =
            place.call(&["--manifest", "m.toml", "--read", &outside], "read", &json!({ "path": "theirs" }));
        assert_eq!(envelope["type"], "output", "{envelope}");
        let (ended, _) =
            place.call(&["--manifest", "m.toml", "--read", &outside], "read", &json!({ "path": "theirs" }));
        assert!(
            ended.stderr.contains(&format!("--read {outside}/** grants nothing; it is bounded by `[ceiling.fs]`")),
            "{ended:?}"
        );
    });
}

/// A manifest that names no files or no programs leaves `run` those of the tools, whatever is typed besides: rules alone do not turn it
/// off.
#[test]
fn run_works_under_a_manifest_that_names_no_files_or_programs() {
    matrix(Host::STRENGTHS, |target| {
        let place = CeilingProject::new(target);
        let far = place.env.file("far", "far");
        let run = |manifest: &str, flags: &[&str], words: &[&str]| {
            place.env.workspace_file("m.toml", manifest);
            place.callgate(&[&["run", "--manifest", "m.toml"], flags, &["--"], words].concat())
        };
        let programs = "[[requires.shell]]\ncmd = \"*\"\n";
        let both = ["sh", "-c", &format!("cat {} && echo new > theirs && cat theirs", far.text())];
        let ended = run(programs, &["--read", far.text()], &both);
        assert_eq!((ended.status.code(), &*ended.stdout), (Some(0), "farnew\n"), "{ended:?}");
        assert_ne!(run(programs, &[], &both).status.code(), Some(0), "the control: it was not granted");
        let named = "[requires.fs]\nread = [\"{workspace}/**\"]\n[[requires.shell]]\ncmd = \"*\"\n";
        assert_ne!(run(named, &["--read", far.text()], &both).status.code(), Some(0), "the control: files are named");

        let rules = "[[rules]]\npermission = \"shell.run\"\npattern = \"git push *\"\naction = \"deny\"\n";
        let ended = run(rules, &[], &["sh", "-c", "echo ran > theirs"]);
        assert!(ended.status.success(), "{ended:?}");
        assert_eq!(run(rules, &[], &["git", "push", "origin"]).status.code(), Some(77), "the rule holds");
        // Who names programs means those.
        assert_eq!(run(rules, &["--exec", "cat"], &["sh", "-c", "true"]).status.code(), Some(77));
        let cat = format!("{rules}[[requires.shell]]\ncmd = \"cat\"\n");
        assert_eq!(run(&cat, &[], &["sh", "-c", "true"]).status.code(), Some(77));
        // And without `bash` there is no shell whose programs could count.
        let without = format!("tools = [\"read\", \"write\"]\n{rules}");
        assert_eq!(run(&without, &[], &["sh", "-c", "true"]).status.code(), Some(77));
    });
}
