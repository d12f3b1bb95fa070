//! An effect that a tool does not declare fails in its sandbox, and the world is as it was.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use callgate::policy::effect::{EffectKind, EffectKinds};
use callgate::policy::manifest::{Format, Manifest};
use callgate::policy::tool::Surface;
use callgate::{Launcher, Outcome, ResultEnvelope, Session, SessionSpec, StrengthChoice, Supervisor};
use serde_json::{Value, json};

use super::callgate;

const READS: EffectKinds = EffectKinds::of(&[EffectKind::Shows, EffectKind::Lists]);
const WRITES: EffectKinds = EffectKinds::of(&[EffectKind::Writes]);
const RUNS: EffectKinds = EffectKinds::of(&[EffectKind::Runs]);
const CONNECTS: EffectKinds = EffectKinds::of(&[EffectKind::Connects]);

/// A call, and the kinds of effects without which it cannot do its work.
type EffectCall = (&'static str, Value, &'static [EffectKinds]);

/// A call of each tool that has a sandbox, by the names of a surface.
fn calls(surface: Surface, port: u16) -> Vec<EffectCall> {
    let url = format!("http://127.0.0.1:{port}/");
    let patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n";
    match surface {
        Surface::Deepseek => vec![
            ("read_file", json!({ "path": "a.txt" }), &[READS]),
            ("list_dir", json!({ "path": "." }), &[READS]),
            ("write_file", json!({ "path": "new", "content": "x" }), &[WRITES]),
            ("edit_file", json!({ "path": "a.txt", "search": "one", "replace": "two" }), &[WRITES]),
            ("apply_patch", json!({ "patch": patch }), &[WRITES]),
            ("grep_files", json!({ "pattern": "one" }), &[READS]),
            ("exec_shell", json!({ "command": "echo x > new" }), &[RUNS]),
            ("run_tests", json!({ "runner": "make" }), &[RUNS]),
            ("note", json!({ "content": "x" }), &[WRITES]),
            ("fetch_url", json!({ "url": url }), &[CONNECTS]),
        ],
        Surface::Engine => vec![
            ("Read", json!({ "file_path": "a.txt" }), &[READS]),
            ("Write", json!({ "file_path": "new", "content": "x" }), &[WRITES]),
            ("Edit", json!({ "file_path": "a.txt", "old_string": "one", "new_string": "two" }), &[WRITES]),
            ("Bash", json!({ "command": "echo x > new" }), &[RUNS]),
            ("Grep", json!({ "pattern": "one" }), &[READS]),
            ("Glob", json!({ "pattern": "*" }), &[READS]),
        ],
        Surface::Rho => vec![
            ("read", json!({ "path": "a.txt" }), &[READS]),
            ("list", json!({ "path": "." }), &[READS]),
            ("write", json!({ "path": "new", "content": "x" }), &[WRITES]),
            ("edit", json!({ "path": "a.txt", "old_string": "one", "new_string": "two" }), &[WRITES]),
            ("grep", json!({ "pattern": "one" }), &[READS]),
            ("glob", json!({ "pattern": "*" }), &[READS]),
            ("bash", json!({ "command": "echo x > new" }), &[RUNS]),
        ],
        Surface::Locked | _ => vec![
            ("read", json!({ "path": "a.txt" }), &[READS]),
            ("write", json!({ "path": "new", "content": "x" }), &[WRITES]),
            ("edit", json!({ "path": "a.txt", "old_string": "one", "new_string": "two" }), &[WRITES]),
            ("grep", json!({ "pattern": "one" }), &[READS]),
            ("glob", json!({ "pattern": "*" }), &[READS]),
            ("bash", json!({ "command": "echo x > new" }), &[RUNS]),
            ("read_csv", json!({ "path": "t.csv" }), &[READS]),
            ("web_fetch", json!({ "url": url }), &[CONNECTS]),
        ],
    }
}

/// Answers every request until the test ends; its port.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            drop(stream.read(&mut [0; 4096]));
            drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi"));
        }
    });
    port
}

fn fill(workspace: &Path) {
    fs::write(workspace.join("a.txt"), "one\n").unwrap();
    fs::write(workspace.join("t.csv"), "a,b\n1,2\n").unwrap();
    fs::write(workspace.join("Makefile"), "test:\n\techo x > made\n").unwrap();
    let made = Command::new("git").args(["init", "-q"]).current_dir(workspace).status().unwrap();
    assert!(made.success());
}

/// Every file of a workspace with its content, but for what git keeps.
fn world(workspace: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(workspace).unwrap().map(|entry| entry.unwrap());
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    files.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

/// True if a call did its work: a program that could not start, or failed, did not, nor did what shows nothing of the workspace.
fn has_worked(envelope: &ResultEnvelope, kinds: &[EffectKinds]) -> bool {
    let Some(data) = envelope.data.as_ref().filter(|_| envelope.kind == Outcome::Output) else { return false };
    let exit = data["exit_code"].as_i64().unwrap_or(0);
    let text = data.to_string();
    let shows = ["one", "a.txt", "\"1\""].iter().any(|evidence| text.contains(evidence));
    exit == 0 && (shows || !kinds.contains(&READS))
}

async fn open(workspace: &Path, surface: Surface, strength: StrengthChoice, port: u16) -> Session {
    let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
    let text = format!(
        "mode = \"yolo\"\nextra = [\"read_csv\"]\n[requires.fs]\nwrite = [\"{{workspace}}/**\"]\n[requires.net]\n\
         hosts = [\"127.0.0.1:{port}\"]\n[[requires.shell]]\ncmd = \"*\"\n"
    );
    let text = if surface == Surface::Locked { text } else { text.replace("extra = [\"read_csv\"]\n", "") };
    let manifest = Manifest::parse(&text, Format::Toml, "test").unwrap();
    supervisor.open(SessionSpec::with_manifest(workspace, manifest).strength(strength).surface(surface)).await.unwrap()
}

/// S0-63: each tool of each surface, with the effects taken away that it lives by: the sandbox refuses it, and nothing has changed.
#[test]
fn s0_63_an_effect_that_is_not_declared_fails_in_the_sandbox() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let port = server();
    let mut tried = 0;
    for strength in [StrengthChoice::Namespaces, StrengthChoice::Landlock] {
        for surface in [Surface::Locked, Surface::Deepseek, Surface::Engine, Surface::Rho] {
            for (tool, args, kinds) in calls(surface, port) {
                let workspace = tempfile::tempdir().unwrap();
                fill(workspace.path());
                runtime.block_on(async {
                    for kinds in kinds {
                        let before = world(workspace.path());
                        let session = open(workspace.path(), surface, strength, port).await.forgetting(*kinds);
                        let refused = session.call(tool, args.clone()).await;
                        assert!(!has_worked(&refused, &[*kinds]), "{strength:?} {surface:?} {tool}: {refused:?}");
                        assert_eq!(world(workspace.path()), before, "{tool}");
                        tried += 1;
                    }
                    let session = open(workspace.path(), surface, strength, port).await;
                    let done = session.call(tool, args.clone()).await;
                    assert!(has_worked(&done, kinds), "the control: {strength:?} {surface:?} {tool}: {done:?}");
                });
            }
        }
    }
    assert!(tried >= 60, "{tried}");
}
