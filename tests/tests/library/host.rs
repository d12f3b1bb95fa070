//! The example of a host, run as a program of its own, works as its own text says.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use callgate::policy::plan::Strength;
use serde_json::{Value, json};

use crate::in_sessions;

fn example() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let binary = exe.ancestors().nth(2).unwrap().join("examples/host");
    assert!(binary.is_file(), "{} is not built: cargo build -p callgate --example host", binary.display());
    binary
}

/// Runs the example with these calls. Returns the results' envelopes, and what it told its person.
fn run(workspace: &Path, strength: &[&str], calls: &[(&str, Value)]) -> (Vec<Value>, String) {
    let mut host = Command::new(example())
        .arg(workspace)
        .args(strength)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = host.stdin.take().unwrap();
    for (tool, args) in calls {
        writeln!(stdin, "{}", json!({ "tool": tool, "args": args })).unwrap();
    }
    drop(stdin);
    let output = host.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8(output.stdout).unwrap();
    (text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), said)
}

/// Its own tool answers; reading needs nobody; its approver allows an edit and refuses a command; and it shows what its own
/// program in the same session prints.
#[test]
fn the_example_of_a_host_works_in_each_strength() {
    for strength in [&[][..], &["landlock"][..]] {
        let workspace = tempfile::tempdir().unwrap();
        fs::write(workspace.path().join("notes"), "old words\n").unwrap();
        let calls = [
            ("words", json!({ "text": "so it goes" })),
            ("read", json!({ "path": "notes" })),
            ("edit", json!({ "path": "notes", "old_string": "old", "new_string": "new" })),
            ("bash", json!({ "command": "touch not-made" })),
        ];
        let (results, said) = run(workspace.path(), strength, &calls);
        let [words, read, edit, bash] = &results[..] else { panic!("four results: {results:?}") };
        assert_eq!(words["data"], json!({ "words": 3 }));
        assert!(read["data"].to_string().contains("old words"), "{read}");
        assert_eq!(edit["metadata"]["approved_by"], "edits-only", "{edit}");
        assert_eq!(fs::read_to_string(workspace.path().join("notes")).unwrap(), "new words\n");
        assert_eq!(bash["metadata"]["denial"]["layer"], "person", "{bash}");
        assert!(!workspace.path().join("not-made").is_file());
        assert!(
            said.starts_with(
                "tools: read, write, edit, glob, grep, bash, web_fetch, todo, question, skill, tool_search, words\n"
            ),
            "{said}"
        );
        assert!(said.contains("\ndenied: ") && said.ends_with("\nnotes\n"), "{said}");
    }
}

/// A host can say what a session is confined by, and which strength it has.
#[test]
fn a_session_explains_itself() {
    in_sessions(async |session, workspace| {
        let explained = session.explain().to_string();
        let start = match session.strength() {
            Strength::Landlock => "Landlock and seccomp, ",
            Strength::Namespaces => "namespaces, Landlock and seccomp, ",
        };
        assert!(explained.starts_with(start), "{explained}");
        assert!(explained.contains(&workspace.display().to_string()), "{explained}");
    });
}
