//! Directories, spreadsheets and PDFs: what is read of them, and what they and their readers cannot do.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use callgate_tests::{Binaries, Host, ProgramOutcome, TestEnv, matrix};
use serde_json::{Map, Value, json};

fn call(env: &TestEnv, before: &[&str], flags: &[&str], (tool, arguments): (&str, &Value)) -> ProgramOutcome {
    let callgate = Binaries::of_this_build().callgate().display().to_string();
    let arguments = arguments.to_string();
    env.weakened().run(&[before, &[callgate.as_str(), "call"], flags, &[tool, &arguments]].concat())
}

#[track_caller]
fn envelope(ended: &ProgramOutcome) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

/// Output of a further tool.
#[track_caller]
fn said(env: &TestEnv, tool: &str, arguments: &Value) -> Value {
    envelope(&call(env, &[], &["--extra", tool], (tool, arguments)))
}

fn documents() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/documents")
}

/// A document in the workspace.
fn placed(env: &TestEnv, name: &str) {
    let path = env.workspace().join(name);
    fs::copy(documents().join(name), &path).unwrap();
    env.give(&path);
}

/// S2-2, X2-13: the PDFs of two programs are read as they were written, by pages where that is asked for.
#[test]
fn s2_2_x2_13_pdfs_are_read_by_pages() {
    let cases: Map<String, Value> = serde_json::from_slice(&fs::read(documents().join("cases.json")).unwrap()).unwrap();
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for (file, cases) in cases.iter().filter(|(file, _)| file.ends_with(".pdf")) {
            placed(&env, file);
            for case in cases.as_array().unwrap() {
                let mut arguments = case["args"].clone();
                arguments["path"] = file.as_str().into();
                let said = said(&env, "read_pdf", &arguments);
                if let Some(error) = case["error"].as_str() {
                    assert!(said["error_text"].as_str().is_some_and(|text| text.contains(error)), "{file}: {said}");
                    continue;
                }
                let content = said["data"]["content"].as_str().unwrap_or_else(|| panic!("{file}: {said}"));
                let texts = |name: &str| case[name].as_array().cloned().unwrap_or_default();
                for text in texts("has") {
                    assert!(content.contains(text.as_str().unwrap()), "{file} {case}: {content}");
                }
                for text in texts("lacks") {
                    assert!(!content.contains(text.as_str().unwrap()), "{file} {case}: {content}");
                }
            }
        }
        for pages in ["0", "2-1", "x", "1-2-3"] {
            let said = said(&env, "read_pdf", &json!({ "path": "five.pdf", "pages": pages }));
            assert_eq!(said["metadata"]["denial"]["layer"], "schema", "{said}");
        }
    });
}

/// S2-2, X2-13: `read_file` knows a PDF by its name and by how it begins, and returns other files as they are. Without the program,
/// and where it is not granted, it says so.
#[test]
fn s2_2_x2_13_read_file_reads_pdfs_where_the_program_is_there() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        placed(&env, "five.pdf");
        let unnamed = env.workspace().join("unnamed");
        fs::copy(documents().join("five.pdf"), &unnamed).unwrap();
        env.give(&unnamed);
        env.workspace_file("text", "plain\n");
        // Without `exec_shell`, which requires every program.
        env.workspace_file(
            "other.toml",
            "tools = [\"read\"]\n[[requires.shell]]\ncmd = \"ls\"\n[requires.fs]\nread = [\"{workspace}/**\"]\n",
        );
        env.workspace_file(
            "granted.toml",
            "[[requires.shell]]\ncmd = \"pdftotext\"\n[requires.fs]\nread = [\"{workspace}/**\"]\n",
        );
        let read = |before: &[&str], flags: &[&str], path: &str| {
            let flags = [&["--surface", "deepseek"], flags].concat();
            envelope(&call(&env, before, &flags, ("read_file", &json!({ "path": path, "pages": "2" }))))
        };
        for path in ["five.pdf", "unnamed"] {
            for flags in [&[][..], &["--manifest", "granted.toml"]] {
                let data = &read(&[], flags, path)["data"];
                assert_eq!((&data["kind"], &data["pages"]), (&json!("pdf"), &json!(1)), "{data}");
                assert!(data["content"].as_str().unwrap().contains("This is page 2."), "{data}");
            }
            let refused = read(&[], &["--manifest", "other.toml"], path);
            assert_eq!(refused["metadata"]["denial"]["layer"], "capability", "{refused}");
            assert!(refused["metadata"]["denial"].to_string().contains("pdftotext"), "{refused}");
            let without = &read(&["env", "PATH=/usr/sbin:/sbin"], &[], path)["data"];
            assert_eq!(
                (&without["type"], &without["kind"]),
                (&json!("binary_unavailable"), &json!("pdf")),
                "{without}"
            );
            assert!(without["hint"].as_str().unwrap().contains("poppler-utils"), "{without}");
            assert!(without["reason"].is_string() && without["path"].as_str().unwrap().ends_with(path), "{without}");
        }
        assert_eq!(read(&[], &["--manifest", "other.toml"], "text")["data"]["content"], "plain\n");
    });
}

/// A reader of PDFs may be taken over by one: it changes nothing that its session may change.
#[test]
fn x2_13_what_reads_a_pdf_changes_nothing() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        placed(&env, "one.pdf");
        let kept = env.workspace_file("kept", "old");
        let programs = env.outside().join("bin");
        fs::create_dir(&programs).unwrap();
        let program = programs.join("pdftotext");
        let script =
            format!("#!/bin/sh\necho new > {0}/kept\necho new > {0}/made\necho tried\n", env.workspace().display());
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        env.give(&programs);
        let path = format!("PATH={}:/usr/bin:/bin", programs.display());
        let before = ["env", path.as_str()];
        let read_only = programs.display().to_string();
        let flags = ["--read", read_only.as_str()];
        let read = call(
            &env,
            &before,
            &[&flags[..], &["--extra", "read_pdf"]].concat(),
            ("read_pdf", &json!({ "path": "one.pdf" })),
        );
        let content = envelope(&read)["data"]["content"].clone();
        assert!(content.as_str().is_some_and(|content| content.contains("tried")), "{read:?}");
        kept.assert_contents("old");
        assert!(!env.workspace().join("made").exists());
        // The control: by a shell, the same program changes both.
        let by_shell = call(&env, &before, &flags, ("bash", &json!({ "command": "pdftotext" })));
        assert_eq!(envelope(&by_shell)["data"]["exit_code"], 0, "{by_shell:?}");
        kept.assert_contents("new\n");
        assert!(env.workspace().join("made").exists());
    });
}

/// S4-6, S2-8, S4-7, S0-25, A2: none of them looks behind a link that leads out of the grant.
#[test]
fn s4_6_s2_8_s4_7_a2_nothing_is_read_behind_a_link_that_leads_out() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let theirs = env.outside().join("theirs");
        fs::create_dir(&theirs).unwrap();
        fs::copy(documents().join("plain.xlsx"), theirs.join("secret.xlsx")).unwrap();
        env.give(&theirs);
        placed(&env, "plain.xlsx");
        symlink(&theirs, env.workspace().join("out")).unwrap();
        symlink(theirs.join("secret.xlsx"), env.workspace().join("link.xlsx")).unwrap();
        fs::write(theirs.join("secret.csv"), "name\nsecret\n").unwrap();
        env.give(&theirs);
        symlink(theirs.join("secret.csv"), env.workspace().join("link.csv")).unwrap();
        env.workspace_file("rows.csv", "name,number\na,1\n");
        for (tool, arguments) in [
            ("list", json!({ "path": "out" })),
            ("file_search", json!({ "path": "out", "query": "secret" })),
            ("read_excel", json!({ "path": "link.xlsx" })),
            ("read_excel", json!({ "path": theirs.join("secret.xlsx") })),
            ("read_csv", json!({ "path": "link.csv" })),
            ("read_csv", json!({ "path": theirs.join("secret.csv") })),
        ] {
            let said = said(&env, tool, &arguments);
            assert!(said["type"] == "error" || said["data"]["total_matches"] == 0, "{tool}: {said}");
        }
        // The controls.
        let listed = said(&env, "list", &json!({ "path": ".", "recursive": true }));
        let content = listed["data"]["content"].as_str().unwrap();
        assert!(
            content.contains("plain.xlsx") && content.contains("out -> ") && !content.contains("secret\n"),
            "{content}"
        );
        assert_eq!(said(&env, "file_search", &json!({ "query": "plain" }))["data"]["total_matches"], 1);
        let read = said(&env, "read_excel", &json!({ "path": "plain.xlsx" }));
        assert!(read["data"]["content"].as_str().unwrap().starts_with("row\tA\tB\n1\tname\tnumber\n"), "{read}");
        let read = said(&env, "read_csv", &json!({ "path": "rows.csv" }));
        assert_eq!(read["data"]["rows"], json!([["a", "1"]]), "{read}");
    });
}
