//! The examples of hosts, run as programs of their own, work as their own texts say.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use callgate::policy::plan::Strength;
use serde_json::{Value, json};

use crate::in_sessions;

fn example(name: &str) -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let binary = exe.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(binary.is_file(), "{} is not built: cargo build -p callgate --examples", binary.display());
    binary
}

/// Runs the example with these calls. Returns the results' envelopes, and what it told its person.
fn run(workspace: &Path, strength: &[&str], calls: &[(&str, Value)]) -> (Vec<Value>, String) {
    let mut host = Command::new(example("host"))
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

/// S0-43: a whole session through the public face alone. Output and events are there as they come: the command that this reads
/// them of ends when this says so.
#[test]
fn s0_43_the_example_of_a_whole_session_works_in_each_strength() {
    for strength in [&[][..], &["landlock"][..]] {
        let place = tempfile::tempdir().unwrap();
        let project = place.path().join("project");
        fs::create_dir(&project).unwrap();
        let build = "echo building\nuntil test -e go; do sleep 0.05; done\nseq 40000\n";
        fs::write(project.join("build.sh"), build).unwrap();
        let mut host = Command::new(example("whole_session"))
            .arg(place.path())
            .args(strength)
            // Where a program of this name is whole in itself.
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut events = BufReader::new(host.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut said = BufReader::new(host.stderr.take().unwrap()).lines().map(Result::unwrap);
        assert!(said.any(|line| line == "building"), "it ended before the command ran");
        let before: Vec<Value> = events.by_ref().take(8).map(|line| serde_json::from_str(&line).unwrap()).collect();
        let told = |event: &Value| (event["event"].to_string(), event["tool"].to_string());
        assert_eq!(before.last().map(told).unwrap(), ("\"ToolInvocationStarted\"".to_owned(), "\"bash\"".to_owned()));
        fs::write(project.join("go"), "").unwrap();
        // Both at once: a pipe that nobody reads would hold it up.
        let rest = std::thread::spawn(move || -> Vec<Value> {
            events.map(|line| serde_json::from_str(&line).unwrap()).collect()
        });
        let said: Vec<String> = said.collect();
        let rest = rest.join().unwrap();
        assert!(host.wait().unwrap().success(), "{:?}", said.iter().rev().take(5).collect::<Vec<_>>());

        let numbers = said.iter().filter(|line| line.parse::<u32>().is_ok());
        assert!(
            numbers.eq((1..=40_000).map(|number| number.to_string()).collect::<Vec<_>>().iter()),
            "all was streamed"
        );
        let says = |text: &str| assert!(said.iter().any(|line| line.starts_with(text)), "{text:?} was not said");
        [
            "denied: fs.read /etc/shadow: ",
            "asked: bash {\"command\":\"rm build.sh\"}: Once",
            "forked: 1 todos",
            "closed: Closed",
        ]
        .into_iter()
        .for_each(says);
        assert_eq!(fs::read_to_string(project.join("notes/next.txt")).unwrap(), "Version 2\nIt is fast.\n");
        assert!(!project.join("build.sh").exists());
        let ended = |kind: &str| -> Vec<String> {
            let all = before.iter().chain(&rest).filter(|event| event["event"] == format!("ToolInvocation{kind}"));
            all.map(|event| event["tool"].as_str().unwrap().to_owned()).collect()
        };
        let tools = ["read", "edit", "bash", "read", "bash", "todo", "question", "skill", "wordcount", "task"];
        assert_eq!((ended("Succeeded"), ended("Failed")), (tools.map(str::to_owned).to_vec(), vec!["read".to_owned()]));
        let left = fs::read_dir(place.path().join("sessions")).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = left.filter(|name| !name.to_string_lossy().starts_with("sessions.")).collect();
        assert!(left.is_empty(), "closed: {left:?}");
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
