//! S4's tools by the names that its models know, on real files.

use std::fs;
use std::path::{Path, PathBuf};

use callgate::policy::mode::Mode;
use callgate::policy::profile::Profile;
use callgate::policy::tool::Surface;
use callgate::{Coercion, HandlerCall, Launcher, Session, SessionSpec, Supervisor, Tool};
use serde_json::{Value, json};

use super::surfaces::{data, error, in_surface, spec};
use super::{STRENGTHS, callgate};

/// Runs the test under a profile, which is written as S4's are.
fn under(profile: &str, test: impl AsyncFn(&Session, &Path)) {
    let profile = Profile::built_in(profile).unwrap_or_else(|| Profile::parse(profile, "p.yaml").unwrap());
    with(|spec| spec.profile(profile.clone()), test);
}

fn with(more: impl Fn(SessionSpec) -> SessionSpec, test: impl AsyncFn(&Session, &Path)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in STRENGTHS {
        let workspace = tempfile::tempdir().unwrap();
        runtime.block_on(async {
            let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
            let spec = more(spec(workspace.path(), Surface::Rho)).strength(strength).mode(Mode::Yolo);
            let session = supervisor.open(spec).await.unwrap();
            test(&session, workspace.path()).await;
        });
    }
}

fn written(mode: &str) -> String {
    format!("profile: mine\nshell: unrestricted\nfile_write:\n  mode: {mode}\napproval: none\n")
}

fn edit(old: &str, new: &str) -> Value {
    json!({ "path": "f", "old_string": old, "new_string": new })
}

/// S4-15, X4-12: the text is looked for in three stages, the result names the one that found it, and what is there twice is an error
/// after which the file is as it was.
#[test]
fn s4_15_x4_12_edit_looks_in_three_stages() {
    in_surface(Surface::Rho, async |session, workspace| {
        let file = workspace.join("f");
        let stages = [
            ("a\nb\n", "b", "c", "a\nc\n", "exact"),
            ("if x:  \n    y\t\n", "if x:\n    y\n", "if z:\n    y\n", "if z:\n    y\n", "trailing-space"),
            (
                "def f():\n        if x:\n            y()\n",
                "if x:\n    y()\n",
                "if x:\n    z()\n    y()\n",
                "def f():\n        if x:\n            z()\n            y()\n",
                "indentation",
            ),
            // What was found is changed, and not what looks like it before.
            (
                "x  a = 1;\n  b = 2;\n  a = 1;\n  b = 2;\n",
                "a = 1;\nb = 2;\n",
                "c\n",
                "x  a = 1;\n  b = 2;\n  c\n",
                "indentation",
            ),
        ];
        for (before, old, new, after, stage) in stages {
            fs::write(&file, before).unwrap();
            assert_eq!(data(session, "edit", edit(old, new)).await["stage"], stage, "{before:?}");
            assert_eq!(fs::read_to_string(&file).unwrap(), after, "{before:?}");
        }
        // The later stages, at which there are more, are not tried.
        for (before, old, said) in
            [("a\na\n  b\n", "a\n", "2 times"), ("x \ny\n\nx\t\ny\n\n x\n y\n", "x\ny\n", "2 times")]
        {
            fs::write(&file, before).unwrap();
            let twice = error(session, "edit", edit(old, "z\n")).await;
            assert!(twice.contains(said), "{twice}");
            assert_eq!(fs::read_to_string(&file).unwrap(), before);
        }
        error(session, "edit", edit("nowhere", "z")).await;
        let missing = error(session, "edit", json!({ "path": "f", "old_string": "a" })).await;
        assert!(missing.contains("new_string"), "{missing}");
    });
}

/// S4-7, X4-11: sheets by name and by index, what is hidden, and which sheets there are.
#[test]
fn s4_7_x4_11_read_excel_reads_sheets() {
    in_surface(Surface::Rho, async |session, workspace| {
        let documents = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/documents");
        for file in ["hidden.xlsx", "hidden.xls", "tall.xlsx"] {
            fs::copy(documents.join(file), workspace.join(file)).unwrap();
        }
        for file in ["hidden.xlsx", "hidden.xls"] {
            let listed = data(session, "read_excel", json!({ "path": file, "action": "list_sheets" })).await;
            assert_eq!(listed["content"], "0\tdata\n1\tsecret [H]\n2\tvery [H]\n", "{file}");
            let sheet = data(session, "read_excel", json!({ "path": file })).await;
            assert_eq!(sheet["content"].as_str().unwrap().lines().nth(1), Some("1\tA1\tC1\tF1"), "{file}");
            let all = data(session, "read_excel", json!({ "path": file, "sheet": 0, "show_hidden": true })).await;
            assert!(all["content"].as_str().unwrap().starts_with("row\tA\tB[H]\tC"), "{file}: {all}");
            assert!(all["content"].as_str().unwrap().contains("\n2[H]\tA2\tB2"), "{file}: {all}");
            let secret = data(session, "read_excel", json!({ "path": file, "sheet": "secret" })).await;
            assert_eq!(secret["content"], "row\tA\n1\ts\n", "{file}");
            let none = error(session, "read_excel", json!({ "path": file, "sheet": "nowhere" })).await;
            assert!(none.contains("its sheets are: \"data\", \"secret\", \"very\""), "{file}: {none}");
        }
        let tall = data(session, "read_excel", json!({ "path": "tall.xlsx" })).await;
        assert_eq!((&tall["end_row"], &tall["next_row"]), (&json!(500), &json!(501)), "500 rows");
    });
}

/// S4-6, X4-11: flat with what `ls -l` says, directories first and 200 entries at most; or a tree, three levels deep.
#[test]
fn s4_6_x4_11_list_is_flat_or_a_tree() {
    in_surface(Surface::Rho, async |session, workspace| {
        fs::create_dir_all(workspace.join("z/upper/middle/lowest")).unwrap();
        fs::write(workspace.join("a"), "12345").unwrap();
        fs::write(workspace.join(".hidden"), "").unwrap();
        let flat = data(session, "list", json!({ "path": "." })).await;
        let names: Vec<&Value> = flat["entries"].as_array().unwrap().iter().map(|entry| &entry["name"]).collect();
        assert_eq!(names, ["z", "a"], "directories come first");
        let file = &flat["entries"][1];
        assert!(file["permissions"].as_str().is_some_and(|text| text.starts_with("-rw")), "{file}");
        assert!(file["size"] == 5 && file["mtime"].is_string(), "{file}");
        let shown = data(session, "list", json!({ "path": ".", "show_hidden": true })).await;
        assert!(shown["content"].as_str().unwrap().contains(".hidden"), "{shown}");
        let text = |listed: Value| listed["content"].as_str().unwrap().to_owned();
        let tree = text(data(session, "list", json!({ "path": ".", "recursive": true })).await);
        assert!(tree.contains("middle/") && !tree.contains("lowest"), "{tree}");
        let deep = text(data(session, "list", json!({ "path": ".", "recursive": true, "max_depth": 4 })).await);
        assert!(deep.contains("lowest/"), "{deep}");
        for number in 0..250 {
            fs::write(workspace.join(format!("f{number}")), "").unwrap();
        }
        let many = data(session, "list", json!({ "path": "." })).await;
        assert_eq!((many["head"].as_array().map(Vec::len), &many["total"]), (Some(200), &json!(252)), "{many}");
    });
}

/// S4-8 to S4-12, X4-9: the profile says what `bash` runs, and its text keeps its head and its end.
#[test]
fn s4_8_s4_9_s4_10_s4_11_s4_12_x4_9_bash_runs_what_its_profile_lets_it() {
    let run = |command: &str| json!({ "command": command });
    under("readonly", async |session, workspace| {
        fs::write(workspace.join("kept"), "old\n").unwrap();
        let read = data(session, "bash", run("cat kept | wc -l")).await;
        assert_eq!((&read["output"], &read["exit_code"]), (&json!("1\n"), &json!(0)));
        assert!(read["duration_seconds"].is_number(), "{read}");
        for command in [
            "rm kept",
            "echo new > kept",
            "echo new >> kept",
            "mv kept gone",
            "chmod 0 kept",
            "sudo ls",
            "python3 -c 1",
        ] {
            let refused = error(session, "bash", run(command)).await;
            assert!(refused.contains("restricted") || refused.contains("readonly"), "{command}: {refused}");
            assert_eq!(fs::read_to_string(workspace.join("kept")).unwrap(), "old\n", "{command}");
        }
    });
    under("developer", async |session, workspace| {
        fs::write(workspace.join("kept"), "old\n").unwrap();
        data(session, "bash", run("echo new > kept; mv kept moved; chmod 600 moved")).await;
        assert_eq!(fs::read_to_string(workspace.join("moved")).unwrap(), "new\n");
        let long = data(session, "bash", run("seq 1 20000")).await;
        let text = long["output"].as_str().unwrap();
        assert!(text.starts_with("[20000 lines in all; ") && text.len() < 20_200, "{}", text.len());
        assert!(text.contains("]\n1\n2\n3\n") && text.ends_with("\n19999\n20000\n"), "{text}");
    });
}

/// S4-2, S4-13, S4-14, X4-13: which tools that change files there are, and what `write` does, as the profile says.
#[test]
fn s4_2_s4_13_s4_14_x4_13_write_makes_what_its_profile_lets_it() {
    let write = |path: &str| json!({ "path": path, "content": "new\n" });
    under("readonly", async |session, workspace| {
        fs::write(workspace.join("f"), "old\n").unwrap();
        for (tool, args) in [("write", write("made")), ("edit", edit("old", "new"))] {
            assert!(error(session, tool, args).await.contains(&format!("there is no tool `{tool}`")));
        }
        assert_eq!(fs::read_to_string(workspace.join("f")).unwrap(), "old\n");
        assert!(!workspace.join("made").exists());
        assert!(data(session, "read", json!({ "path": "f" })).await["content"].is_string(), "the control");
    });
    under(&written("create-only"), async |session, workspace| {
        fs::write(workspace.join("f"), "old\n").unwrap();
        let made = data(session, "write", write("deep/er/made")).await;
        assert_eq!((&made["bytes"], &made["created"]), (&json!(4), &json!(true)));
        assert_eq!(fs::read_to_string(workspace.join("deep/er/made")).unwrap(), "new\n");
        error(session, "write", write("f")).await;
        assert_eq!(fs::read_to_string(workspace.join("f")).unwrap(), "old\n");
        assert!(error(session, "edit", edit("old", "new")).await.contains("there is no tool `edit`"));
        for path in [".bashrc", ".zshrc", ".profile", ".bash_profile", ".ssh/x", ".aws/x", ".gnupg/x", ".config/x"] {
            let refused = error(session, "write", write(path)).await;
            assert!(refused.contains("sensitive place"), "{path}: {refused}");
            assert!(!workspace.join(path).exists(), "{path}");
        }
    });
    under(&written("full"), async |session, workspace| {
        fs::write(workspace.join("f"), "old\n").unwrap();
        assert_eq!(data(session, "write", write("f")).await["created"], false);
        data(session, "edit", edit("new", "newer")).await;
        assert_eq!(fs::read_to_string(workspace.join("f")).unwrap(), "newer\n");
        data(session, "write", write(".config/x")).await;
        assert!(workspace.join(".config/x").exists(), "the control");
    });
}

/// X4-18, C-21: a host that wants it has arguments taken that are spelt as another type; a tool that is not there, and one that fails, give a
/// result that says so, and the session goes on.
#[test]
fn x4_18_c_21_what_goes_wrong_is_a_result() {
    let fails = || Tool::host("fails", |_: HandlerCall| async { Err("it is broken".to_owned()) }).description("Fails");
    with(
        |spec| spec.tool(fails()),
        async |session, workspace| {
            fs::write(workspace.join("f"), "1\n2\n3\n").unwrap();
            let unknown = error(session, "nonexistent", json!({})).await;
            assert!(unknown.contains("there is no tool `nonexistent`"), "{unknown}");
            assert!(error(session, "fails", json!({})).await.contains("it is broken"));
            let strict = error(session, "read", json!({ "path": "f", "start_line": "2" })).await;
            assert!(strict.contains("start_line"), "{strict}");
            assert!(data(session, "read", json!({ "path": "f" })).await["content"].is_string());
        },
    );
    let lossless = |mut spec: SessionSpec| {
        spec.coercion = Coercion::Lossless;
        spec
    };
    with(lossless, async |session, workspace| {
        fs::create_dir_all(workspace.join("d/e")).unwrap();
        fs::write(workspace.join("f"), "1\n2\n3\n").unwrap();
        let read = data(session, "read", json!({ "path": "f", "start_line": "2", "end_line": "2" })).await;
        assert_eq!(read["content"], "     2\t2\nShowing lines 2–2 of 3");
        let tree = data(session, "list", json!({ "path": ".", "recursive": "true" })).await;
        assert!(tree["content"].as_str().unwrap().contains('e'), "{tree}");
    });
}
