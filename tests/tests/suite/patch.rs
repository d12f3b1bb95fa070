//! `apply_patch`: all files of a patch or none, wherever it fails and whoever is killed (S0-25, S2-6, X2-18); and the files that
//! it names are judged by every layer, as if each were written by a call of its own.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

use callgate_tests::{Binaries, Host, ProgramOutcome, TestEnv, eventually, matrix, parent_of};
use callgate_worker::sys::process;
use serde_json::{Value, json};

/// The exit status and the envelope of a call with these flags.
#[track_caller]
fn call(env: &TestEnv, flags: &[&str], arguments: &Value) -> (i32, Value) {
    let callgate = Binaries::of_this_build().callgate().display().to_string();
    let arguments = arguments.to_string();
    let words = [&[callgate.as_str(), "call", "--extra", "apply_patch"], flags, &["apply_patch", &arguments]].concat();
    let ended: ProgramOutcome = env.weakened().run(&words);
    let envelope = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    (ended.status.code().unwrap(), envelope)
}

/// The patch of a file that holds `1`.
fn one(name: &str) -> String {
    format!("--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-1\n+2\n")
}

fn new(name: &str) -> String {
    format!("--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+2\n")
}

/// All files below, and what they hold.
fn tree(root: &Path) -> Vec<(String, String)> {
    let (mut files, mut directories) = (Vec::new(), vec![root.to_owned()]);
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_symlink() || path.is_file() {
                files.push((path.display().to_string(), fs::read_to_string(&path).unwrap_or_default()));
            } else {
                directories.push(path);
            }
        }
    }
    files.sort();
    files
}

/// A1, A10, A16: a file in the middle is protected, or leads out by a link. The others stay as they are.
#[test]
fn s0_25_a_file_that_may_not_be_written_stops_all() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let theirs = env.file("theirs", "1\n");
        let workspace = env.workspace();
        for directory in [".git/hooks", "sub"] {
            fs::create_dir_all(workspace.join(directory)).unwrap();
        }
        for directory in [".git", ".git/hooks", "sub"] {
            env.give(&workspace.join(directory));
        }
        env.workspace_file("a", "1\n");
        env.workspace_file("z", "1\n");
        env.workspace_file(".git/hooks/there", "1\n");
        symlink(env.outside(), workspace.join("out")).unwrap();
        symlink(&theirs, workspace.join("theirs")).unwrap();
        let before = (tree(&workspace), tree(&env.outside()));
        for (middle, asked) in [
            (new(".git/hooks/pre-commit"), ".git/hooks/pre-commit"),
            (one(".git/hooks/there"), ".git/hooks/there"),
            (
                "diff --git a/sub/b b/.git/hooks/sub\nsimilarity index 100%\ncopy from a\ncopy to .git/hooks/sub\n"
                    .to_owned(),
                ".git/hooks/sub",
            ),
            (one("theirs"), "theirs"),
            (one("out/theirs"), "out/theirs"),
            (new("out/more"), "out/more"),
        ] {
            let patch = format!("{}{middle}diff --git a/z b/z\n{}", one("a"), one("z"));
            let (status, envelope) = call(&env, &[], &json!({ "patch": patch }));
            assert_eq!(status, 1, "{envelope}");
            assert!(envelope["error_text"].as_str().is_some_and(|text| text.contains(asked)), "{envelope}");
            // With namespaces what was not granted is not there.
            let is_hidden = target.has_namespaces() && (asked == "theirs" || asked.starts_with("out/"));
            let layer = &envelope["metadata"]["denial"]["layer"];
            assert!(layer == "sandbox" || is_hidden && layer.is_null(), "{envelope}");
            assert_eq!((tree(&workspace), tree(&env.outside())), before, "{middle}");
        }
        // C-29: what the refusal says is done.
        let patch = format!("{}{}", one("a"), new(".git/hooks/pre-commit"));
        let hook = workspace.join(".git/hooks/pre-commit").display().to_string();
        let (status, envelope) = call(&env, &["--write", &hook], &json!({ "patch": patch }));
        assert_eq!(status, 0, "{envelope}");
        assert_eq!(fs::read_to_string(&hook).unwrap(), "2\n");
        assert_eq!(fs::read_to_string(workspace.join("a")).unwrap(), "2\n");
    });
}

/// S0-61: each file of a patch is compared with the grants, and with the rules, before anything is written.
#[test]
fn s0_25_each_file_is_judged() {
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        let workspace = env.workspace();
        for directory in ["src", "other"] {
            fs::create_dir(workspace.join(directory)).unwrap();
            env.give(&workspace.join(directory));
        }
        for file in ["src/a", "src/secret", "other/b"] {
            env.workspace_file(file, "1\n");
        }
        let grants = "[requires.fs]\nread = [\"**\"]\nwrite = [\"src/**\"]\n[ceiling.fs]\nread = [\"**\"]\nwrite = [\"src/**\"]\n";
        let rules = "[[rules]]\npermission = \"fs.write\"\npattern = \"src/secret\"\naction = \"deny\"\n\
            [[rules]]\npermission = \"fs.read\"\npattern = \"src/secret\"\naction = \"deny\"\n";
        let moved = |from: &str, to: &str, how: &str| {
            format!("diff --git a/{from} b/{to}\nsimilarity index 100%\n{how} from {from}\n{how} to {to}\n")
        };
        let before = |env: &TestEnv| tree(&env.workspace());
        for (manifest, second, layer) in [
            (grants.to_owned(), one("other/b"), "capability"),
            (grants.to_owned(), new("other/new"), "capability"),
            (grants.to_owned(), moved("other/b", "src/b", "rename"), "capability"),
            (grants.to_owned(), moved("src/secret", "other/c", "copy"), "capability"),
            (format!("{rules}{grants}"), one("src/secret"), "rule"),
            (format!("{rules}{grants}"), moved("src/secret", "src/open", "rename"), "rule"),
            (format!("{rules}{grants}"), moved("src/secret", "src/open", "copy"), "rule"),
        ] {
            env.workspace_file("m.toml", &manifest);
            let was = before(&env);
            let patch = json!({ "patch": format!("{}{second}", one("src/a")) });
            let (status, envelope) = call(&env, &["--manifest", "m.toml"], &patch);
            assert_eq!((status, &envelope["metadata"]["denial"]["layer"]), (77, &json!(layer)), "{second}: {envelope}");
            assert_eq!(before(&env), was, "{second}");
        }
        let patch = json!({ "patch": format!("{}{}", one("src/a"), new("src/new")) });
        let (status, envelope) = call(&env, &["--manifest", "m.toml"], &patch);
        assert_eq!(status, 0, "the control: {envelope}");
        // A copy only reads what it copies.
        let (status, envelope) =
            call(&env, &["--manifest", "m.toml"], &json!({ "patch": moved("other/b", "src/b", "copy") }));
        assert_eq!(status, 0, "the control: {envelope}");
    });
}

/// Which process is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KilledProcess {
    Supervisor,
    Worker,
}

/// Files of a patch that are changed, removed and made; each is large, so that storing them takes a while.
const FILES: [usize; 3] = [10, 3, 3];
const LINES: usize = 800;

fn many() -> String {
    let lines: String = (0..LINES).map(|line| format!("+{line:079}\n")).collect();
    let mut patch = String::new();
    for number in 0..FILES[0] {
        patch += &format!("--- a/c{number}\n+++ b/c{number}\n@@ -1 +1,{LINES} @@\n-1\n{lines}");
    }
    for number in 0..FILES[1] {
        patch += &format!("--- a/r{number}\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n");
    }
    for number in 0..FILES[2] {
        patch += &format!("--- /dev/null\n+++ b/n{number}\n@@ -0,0 +1,{LINES} @@\n{lines}");
    }
    patch
}

/// Processes below `top` with this name.
fn below(top: u32, name: &str) -> Vec<u32> {
    let listed = fs::read_dir("/proc").unwrap().flatten();
    let pids = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_named = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
    let descends = |pid: &u32| {
        std::iter::successors(Some(*pid), |pid| parent_of(*pid).filter(|pid| *pid > 1)).any(|pid| pid == top)
    };
    pids.filter(is_named).filter(descends).collect()
}

/// True if something runs that was started with this word.
fn runs(word: &str) -> bool {
    let listed = fs::read_dir("/proc").unwrap().flatten();
    let mut lines = listed.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.any(|line| line.split(|byte| *byte == 0).any(|other| other == word.as_bytes()))
}

fn staged(workspace: &Path) -> usize {
    let listed = fs::read_dir(workspace).unwrap().flatten();
    listed.filter(|entry| entry.file_name().to_string_lossy().starts_with(".callgate-")).count()
}

/// Kills somebody while a patch is applied. Whether the patch was applied.
fn round(env: &TestEnv, victim: KilledProcess, moment: usize) -> bool {
    let workspace = env.workspace();
    let files: Vec<String> = (0..FILES[0])
        .map(|number| format!("c{number}"))
        .chain((0..FILES[1]).map(|number| format!("r{number}")))
        .collect();
    for entry in fs::read_dir(&workspace).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    for file in &files {
        env.workspace_file(file, "1\n");
    }
    let arguments = env.file("arguments", &json!({ "patch": many() }).to_string());
    let callgate = Binaries::of_this_build().callgate().display().to_string();
    let words = [&callgate, "call", "--extra", "apply_patch", "--read", arguments.text(), "apply_patch", "-"];
    let mut command = env.weakened().command(&words);
    command.stdin(fs::File::open(&*arguments).unwrap()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut supervisor = command.spawn().unwrap();
    // From the first file that is stored to some time after the last: most of the moments are there.
    let wanted = [1, FILES[0], FILES[0] + FILES[2]][moment % 3];
    let mut over = || supervisor.try_wait().unwrap().is_some();
    while staged(&workspace) == 0 && !over() {}
    let victims =
        if victim == KilledProcess::Worker { below(supervisor.id(), "cg-worker") } else { vec![supervisor.id()] };
    let mut over = || supervisor.try_wait().unwrap().is_some();
    while (1..wanted).contains(&staged(&workspace)) && !over() {}
    for _ in 0..moment {
        std::hint::black_box(staged(&workspace));
    }
    for pid in victims {
        // It may have ended.
        drop(process::kill(i32::try_from(pid).unwrap(), libc::SIGKILL));
    }
    supervisor.wait().unwrap();
    eventually("nothing of the call runs", || !runs(arguments.text()));
    let is_new = |file: &String| match fs::read_to_string(workspace.join(file)) {
        Ok(content) if content == "1\n" => false,
        Ok(content) => {
            assert_eq!(content.lines().count(), LINES, "{file} is whole");
            true
        }
        Err(_) => true,
    };
    let changed: Vec<bool> = files.iter().map(is_new).collect();
    let made: Vec<bool> = (0..FILES[2]).map(|number| workspace.join(format!("n{number}")).is_file()).collect();
    let all: Vec<bool> = changed.into_iter().chain(made).collect();
    assert!(all.iter().all(|new| *new == all[0]), "some are new, others old: {all:?} ({victim:?}, {moment})");
    all[0]
}

/// S0-25: whoever is killed, and whenever, either all files are new, or none is. `CALLGATE_TEST_ROUNDS` says how many kills of
/// each kind, on each host; 3 if it is not set.
#[test]
fn s0_25_a_kill_leaves_all_files_new_or_none() {
    let rounds = std::env::var("CALLGATE_TEST_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(3);
    matrix(Host::STRENGTHS, |target| {
        for victim in [KilledProcess::Supervisor, KilledProcess::Worker] {
            let env = TestEnv::new(target);
            let applied = (0..rounds).filter(|moment| round(&env, victim, *moment)).count();
            eprintln!("{target:?}, {victim:?}: {applied} of {rounds} were applied");
        }
    });
}
