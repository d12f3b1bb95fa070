//! Sessions that last: many commands, one record of what they did, which no crash, full disk or second process makes wrong, and
//! which no session reaches (S0-42 to S0-47, X0-55 to X0-58, X1-31).

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use callgate_tests::{
    Binaries, Host, ProgramOutcome, ProgramRunner, Target, TestEnv, User, matrix, matrix_as, repetitions, skip,
};
use serde_json::{Value, json};

/// Where the host's strength makes no difference.
const HERE: &[Host] = &[Host::Namespaces];

/// End of a call that had none.
const ORPHANED: &str = "callgate ended before this call did";

fn state(env: &TestEnv) -> PathBuf {
    env.outside().join("state")
}

fn user(env: &TestEnv) -> ProgramRunner {
    env.weakened().variable("XDG_STATE_HOME", &state(env).display().to_string())
}

fn line<'a>(binary: &'a str, words: &[&'a str]) -> Vec<&'a str> {
    [&[binary], words].concat()
}

fn binary() -> String {
    Binaries::of_this_build().callgate().display().to_string()
}

fn callgate(env: &TestEnv, words: &[&str]) -> ProgramOutcome {
    user(env).run(&line(&binary(), words))
}

#[track_caller]
fn succeeds(env: &TestEnv, words: &[&str]) -> String {
    let ended = callgate(env, words);
    assert_eq!(ended.status.code(), Some(0), "{words:?}: {ended:?}");
    ended.stdout
}

/// It ends with this status, says this, and has not written to the workspace.
#[track_caller]
fn refused(env: &TestEnv, words: &[&str], status: i32, says: &str) {
    let ran = env.workspace().join("ran");
    let before = fs::read(&ran).ok();
    let ended = callgate(env, words);
    assert_eq!(ended.status.code(), Some(status), "{words:?}: {ended:?}");
    assert!(format!("{}{}", ended.stdout, ended.stderr).contains(says), "{words:?} does not say {says:?}: {ended:?}");
    assert_eq!(fs::read(&ran).ok(), before, "{words:?} has run");
}

#[track_caller]
fn new(env: &TestEnv) -> String {
    succeeds(env, &["session", "new"]).trim().to_owned()
}

#[track_caller]
fn show(env: &TestEnv, id: &str) -> Value {
    serde_json::from_str(&succeeds(env, &["session", "show", id, "--json"])).unwrap()
}

#[track_caller]
fn bash(env: &TestEnv, id: &str, command: &str) -> Value {
    let arguments = json!({ "command": command }).to_string();
    serde_json::from_str(&succeeds(env, &["call", "--session", id, "bash", &arguments])).unwrap()
}

/// Where the supervisors that are killed make the directories of their sessions.
fn temporary(env: &TestEnv) -> PathBuf {
    let place = env.outside().join("tmp");
    if !place.is_dir() {
        fs::create_dir(&place).unwrap();
        env.give(&place);
    }
    place
}

/// A call that is not waited for.
fn start(env: &TestEnv, id: &str, command: &str) -> Child {
    let (binary, arguments) = (binary(), json!({ "command": command }).to_string());
    let run = user(env).variable("TMPDIR", temporary(env).to_str().unwrap());
    let mut command = run.command(&line(&binary, &["call", "--session", id, "bash", &arguments]));
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[track_caller]
fn within_a_minute(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Ends a supervisor as a crash does, and waits until nothing of its session is left.
fn kill(env: &TestEnv, id: &str, mut supervisor: Child) {
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    within_a_minute("the lock goes with its process", || show(env, id)["is_open"] == false);
}

/// The bytes of the store's own files.
fn written(env: &TestEnv) -> Vec<u8> {
    let files = fs::read_dir(state(env).join("callgate")).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.is_file()).flat_map(|path| fs::read(path).unwrap()).collect()
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// X0-29, X0-21: a subagent's session is in no list unless its agent says so, and the session that started it names it, with what
/// it did.
#[test]
fn x0_29_x0_21_a_session_names_its_subagents() {
    matrix(HERE, |target| {
        let env = TestEnv::new(target);
        let manifest = "mode = \"yolo\"\n[agents.quiet]\ndescription = \"x\"\nrunner = [\"/bin/cat\"]\n\
                        [agents.seen]\ndescription = \"x\"\nrunner = [\"/bin/cat\"]\ninspectable = true\n";
        env.workspace_file("m.toml", manifest);
        let id = succeeds(&env, &["session", "new", "--manifest", "m.toml"]).trim().to_owned();
        for agent in ["quiet", "seen"] {
            let arguments = json!({ "subagent_type": agent, "prompt": "said" }).to_string();
            let done = succeeds(&env, &["call", "--session", &id, "task", &arguments]);
            assert_eq!(serde_json::from_str::<Value>(&done).unwrap()["data"]["output"], "said");
        }
        let subagents = show(&env, &id)["subagents"].as_array().unwrap().clone();
        let agents: Vec<&str> = subagents.iter().map(|child| child["agent"].as_str().unwrap()).collect();
        assert_eq!(agents, ["quiet", "seen"]);
        let shown = succeeds(&env, &["session", "show", &id]);
        let listed = succeeds(&env, &["session", "list"]);
        for (child, is_listed) in subagents.iter().zip([false, true]) {
            let child_id = child["id"].as_str().unwrap();
            assert!(shown.contains(&format!("started    {child_id}")), "{shown}");
            assert_eq!(listed.contains(child_id), is_listed, "{listed}");
            let child = show(&env, child_id);
            assert_eq!((&child["parent"], &child["state"]), (&json!(id), &json!("closed")));
            assert_eq!(child["calls"][0]["arguments"]["argv"], json!(["/bin/cat"]));
        }
    });
}

/// Many commands share a session: what one had no room for, a later one reads, and no other session. It goes when the session is
/// closed, and the record stays.
#[test]
fn s0_42_s0_43_s0_46_s0_47_x0_58_many_commands_are_one_session() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (id, other) = (new(&env), new(&env));
        let long = bash(&env, &id, "head -c 204800 /dev/zero | tr '\\0' x; echo; echo the-rest; echo once >> ran");
        let rest = long["metadata"]["output_path"].as_str().unwrap().to_owned();
        assert!(fs::read_to_string(&rest).unwrap().ends_with("the-rest\n"), "it is there after the command");
        let read = json!({ "path": rest }).to_string();
        let of_session: Value =
            serde_json::from_str(&succeeds(&env, &["call", "--session", &id, "read", &read])).unwrap();
        assert!(of_session["data"].to_string().contains("the-rest"), "{of_session}");
        for words in [&["call", "read", &read][..], &["call", "--session", &other, "read", &read]] {
            refused(&env, words, 77, "is denied");
        }
        let write = json!({ "path": rest, "content": "changed" }).to_string();
        refused(&env, &["call", "--session", &id, "write", &write], 77, "is denied");
        let ended = callgate(&env, &["run", "--session", &id, "--", "sh", "-c", "echo twice >> ran; exit 3"]);
        assert_eq!(ended.status.code(), Some(3), "{ended:?}");
        assert_eq!(fs::read_to_string(env.workspace().join("ran")).unwrap(), "once\ntwice\n");
        let shown = show(&env, &id);
        let calls = shown["calls"].as_array().unwrap();
        let told: Vec<_> =
            calls.iter().map(|call| (call["tool"].as_str().unwrap(), call["state"].as_str().unwrap())).collect();
        let output = "output-available";
        assert_eq!(told, [("bash", output), ("read", output), ("write", "output-error"), ("run", output)]);
        assert_eq!(calls[3]["result"]["data"]["exit_code"], 3, "S0-43: the envelope is in the record");
        assert_eq!(shown["id"], json!(id));
        let ids = |of: &str| calls.iter().map(|call| call[of].as_str().unwrap().to_owned()).collect::<Vec<_>>();
        for (ids, kind) in [(ids("id"), "prt_"), (ids("message"), "msg_"), (vec![other.clone()], "ses_")] {
            assert!(ids.iter().all(|id| id.len() == 30 && id.starts_with(kind)) && ids.is_sorted(), "{ids:?}");
        }
        let listed: Value = serde_json::from_str(&succeeds(&env, &["session", "list", "--json"])).unwrap();
        assert_eq!(listed.as_array().unwrap().len(), 2);
        // What people see says the same.
        let seen = succeeds(&env, &["session", "show", &id]);
        assert!(seen.contains("4, 1 failed") && seen.contains("failed  "), "{seen}");
        succeeds(&env, &["session", "close", &id]);
        assert!(fs::metadata(&rest).is_err(), "S0-47: it goes with the session");
        assert!(fs::metadata(Path::new(&rest).parent().unwrap()).is_err());
        refused(&env, &["call", "--session", &id, "bash", r#"{"command":"echo >> ran"}"#], 64, "is closed");
        assert_eq!(show(&env, &id)["calls"].as_array().unwrap().len(), 4, "the record stays");
    });
}

/// After `kill -9` the next opening ends what has no end, with a text that is always the same. Nothing runs twice.
#[test]
fn x0_56_a_call_that_a_crash_ended_is_an_error_and_is_not_made_again() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (id, ran) = (new(&env), env.workspace().join("ran"));
        let supervisor = start(&env, &id, "echo once >> ran; sleep 600");
        within_a_minute("it runs", || fs::read_to_string(&ran).is_ok_and(|text| text == "once\n"));
        assert_eq!(show(&env, &id)["state"], "busy", "X0-57");
        kill(&env, &id, supervisor);
        let call = &show(&env, &id)["calls"][0];
        assert_eq!((&call["state"], &call["outcome"]), (&json!("output-error"), &json!("failed")));
        assert!(call["result"]["error_text"].as_str().unwrap().starts_with(ORPHANED), "{call}");
        let events: Vec<Value> = succeeds(&env, &["session", "replay", &id])
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let kinds: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["ToolInvocationProposed", "ToolInvocationStarted", "ToolInvocationFailed"]);
        bash(&env, &id, "echo twice >> ran");
        assert_eq!(fs::read_to_string(&ran).unwrap(), "once\ntwice\n", "and the session goes on");
        assert_eq!(show(&env, &id)["state"], "idle");
    });
}

/// One process has a session open, and the others are told so; another session is nobody's business.
#[test]
fn x0_57_two_processes_do_not_have_one_session() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (id, other) = (new(&env), new(&env));
        let mut first = start(&env, &id, "touch started; until test -e go; do sleep 0.1; done");
        within_a_minute("it runs", || env.workspace().join("started").exists());
        let second = r#"{"command":"echo second >> ran"}"#;
        refused(&env, &["call", "--session", &id, "bash", second], 69, "is open in another process");
        refused(
            &env,
            &["run", "--session", &id, "--", "sh", "-c", "echo second >> ran"],
            69,
            "is open in another process",
        );
        refused(&env, &["session", "close", &id], 69, "is open in another process");
        succeeds(&env, &["session", "prune", "--older-than", "0d"]);
        assert_eq!(show(&env, &id)["state"], "busy", "one that is open is not removed");
        refused(&env, &["session", "show", &other], 64, "there is no session");
        let other = new(&env);
        bash(&env, &other, "touch go");
        assert!(first.wait().unwrap().success());
        bash(&env, &id, "echo second >> ran");
        assert_eq!(fs::read_to_string(env.workspace().join("ran")).unwrap(), "second\n", "the control");
    });
}

/// A database that somebody else has locked, or that cannot be written: nothing runs, and it says why.
#[test]
fn s0_43_what_cannot_be_recorded_does_not_run() {
    matrix(HERE, |target| {
        let env = TestEnv::new(target);
        let id = new(&env);
        let database = state(&env).join("callgate/sessions.db");
        let script = "import sqlite3, sys\n\
                      held = sqlite3.connect(sys.argv[1], isolation_level=None)\n\
                      held.execute('BEGIN IMMEDIATE')\nprint('held', flush=True)\nsys.stdin.read()";
        let mut command = env.bare().command(&["python3", "-c", script, database.to_str().unwrap()]);
        let mut holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "held\n");
        let call = ["call", "--session", &id, "bash", r#"{"command":"echo >> ran"}"#];
        refused(&env, &call, 69, "database is locked");
        refused(&env, &["session", "new"], 69, "database is locked");
        assert_eq!(show(&env, &id)["calls"], json!([]), "reading needs no lock");
        drop(holder.stdin.take());
        holder.wait().unwrap();
        if target.user == User::Ordinary {
            let mode = |mode| fs::set_permissions(&database, fs::Permissions::from_mode(mode)).unwrap();
            mode(0o400);
            refused(&env, &call, 69, "Permission denied");
            mode(0o600);
        }
        succeeds(&env, &call);
        assert_eq!(fs::read_to_string(env.workspace().join("ran")).unwrap(), "\n", "the control");
    });
}

/// A full disk: nothing runs that cannot be recorded, what was recorded is whole, and with room the session goes on.
#[test]
fn s0_43_on_a_full_disk_nothing_runs() {
    matrix(HERE, |target| {
        let env = TestEnv::new(target);
        fs::create_dir(state(&env)).unwrap();
        env.give(&state(&env));
        if !env.weakened().run(&["unshare", "--mount", "true"]).status.success() {
            return skip("mount", format_args!("{target:?}: no mount namespace can be made"));
        }
        let script = r#"
mount -t tmpfs -o size=512k,mode=700 tmpfs "$1" || { echo unmounted; exit 0; }
id=$("$0" session new) || exit 1
call() { "$0" call --session "$id" bash "{\"command\":\"echo $1 >> ran\"}" >out 2>&1; echo "$1 $?"; }
call before
# The end of this call comes when the disk is full.
"$0" call --session "$id" bash '{"command":"echo during >> ran; touch started; until test -e go; do sleep 0.1; done"}' >during &
until test -e started; do sleep 0.1; done
cat /dev/zero >"$1/full" 2>/dev/null
touch go; wait; grep -q not_recorded during && echo 'not recorded'
cp ran ran.full
call full; cat out
cmp ran ran.full || echo 'it ran'
rm "$1/full"
call after
"$0" session show --json "$id" > shown
"$0" session export "$id" > exported && echo exported
"#;
        let state = state(&env).display().to_string();
        let words = ["unshare", "--mount", "sh", "-c", script, &binary(), &state];
        let ended = user(&env).run(&words);
        if ended.stdout.contains("unmounted") {
            return skip("mount", format_args!("{target:?}: no tmpfs can be mounted: {}", ended.stderr));
        }
        let says = |text| assert!(ended.stdout.contains(text), "{text}: {ended:?}");
        ["before 0", "not recorded", "full 69", "make room on the disk", "after 0", "exported"]
            .into_iter()
            .for_each(says);
        assert!(!ended.stdout.contains("it ran"), "{ended:?}");
        let shown: Value = serde_json::from_slice(&fs::read(env.workspace().join("shown")).unwrap()).unwrap();
        let calls = shown["calls"].as_array().unwrap();
        assert!(calls.iter().all(|call| call["ended"].is_string()), "none is half recorded: {shown}");
        let ran = fs::read_to_string(env.workspace().join("ran")).unwrap();
        assert_eq!(ran, "before\nduring\nafter\n");
        let outcomes: Vec<_> = calls.iter().map(|call| call["outcome"].as_str().unwrap()).collect();
        assert_eq!(outcomes, ["succeeded", "failed", "succeeded"], "one had no end that could be recorded: {shown}");
        assert!(calls[1]["result"]["error_text"].as_str().unwrap().starts_with(ORPHANED));
    });
}

/// Rounds of `kill -9`, with four calls in flight each: the database is whole, every call has an end, what ran is recorded, and
/// nothing is left.
fn rounds(count: u32, seed: u64) {
    matrix_once(|target| {
        let (env, mut random) = (TestEnv::new(target), seed);
        let ids: Vec<String> = (0..4).map(|_| new(&env)).collect();
        let database = state(&env).join("callgate/sessions.db");
        let database = database.to_str().unwrap();
        for round in 0..count {
            let ran = |at: usize| env.workspace().join(format!("ran{at}"));
            let calls: Vec<Child> = ids
                .iter()
                .enumerate()
                .map(|(at, id)| start(&env, id, &format!("echo {round} >> ran{at}; sleep 599.{round}")))
                .collect();
            // Some moment, and every fourth time one at which all four run: nothing else hangs on which it is.
            let has_begun =
                |at| fs::read_to_string(ran(at)).is_ok_and(|ran| ran.lines().any(|line| line == round.to_string()));
            if round % 4 == 0 {
                within_a_minute("all four run", || (0..ids.len()).all(has_begun));
            }
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            std::thread::sleep(Duration::from_millis(random >> 33 & 0xff));
            ids.iter().zip(calls).for_each(|(id, call)| kill(&env, id, call));
            for (at, id) in ids.iter().enumerate() {
                let shown = show(&env, id);
                let calls = shown["calls"].as_array().unwrap();
                for call in calls {
                    assert!(call["ended"].is_string(), "every call has an end: {shown}");
                    let text = call["result"]["error_text"].as_str().unwrap_or_default();
                    assert!(call["outcome"] == "failed" && text.starts_with(ORPHANED), "none is half recorded: {call}");
                }
                let started = calls.iter().filter(|call| call["started"].is_string()).count();
                let ran = fs::read_to_string(ran(at)).unwrap_or_default();
                let lines: BTreeSet<&str> = ran.lines().collect();
                assert_eq!(lines.len(), ran.lines().count(), "nothing runs twice");
                assert!(lines.len() <= started, "what ran is recorded: {ran:?}, {shown}");
            }
            let sleeps = format!("sleep 599.{round}");
            within_a_minute("nothing is left of the calls", || !processes().contains(&sleeps));
            within_a_minute("nor of the sessions' directories", || fs::read_dir(temporary(&env)).unwrap().count() == 0);
            let check = env.bare().run(&["sqlite3", database, "PRAGMA integrity_check"]);
            assert_eq!(check.stdout, "ok\n", "round {round}: {check:?}");
        }
        ids.iter().for_each(|id| drop(bash(&env, id, "true")));
    });
}

fn matrix_once(test: impl Fn(Target)) {
    matrix_as(User::Ordinary, Host::STRENGTHS, test);
}

/// The command lines of all processes.
fn processes() -> String {
    let all = fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok());
    all.map(|line| String::from_utf8_lossy(&line).replace('\0', " ") + "\n").collect()
}

/// As many as `CALLGATE_TEST_ROUNDS` says: 200 take ten minutes.
#[test]
fn x0_56_rounds_of_kill_9_leave_a_whole_record() {
    let count = std::env::var("CALLGATE_TEST_ROUNDS")
        .map_or(repetitions(8, 20), |count| count.parse().expect("a number of rounds"));
    rounds(count, u64::from(count));
}

/// X1-31: secrets are in the result, and nowhere in the record.
#[test]
fn x1_31_secrets_are_not_in_the_record() {
    matrix(HERE, |target| {
        let env = TestEnv::new(target);
        let (token, known) = ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "correct-horse-battery");
        let binary = binary();
        let title = format!("mend {token} with {known}");
        let made =
            user(&env).variable("DEPLOY_TOKEN", known).run(&line(&binary, &["session", "new", "--title", &title]));
        let id = made.stdout.trim().to_owned();
        assert_eq!(show(&env, &id)["title"], "mend [REDACTED] with [REDACTED]", "{made:?}");
        // With nobody to answer it: what was asked is recorded.
        let questions = json!({ "questions": [{ "question": format!("Is it {token}?"), "options": [{ "label": token }, { "label": "no" }] }] });
        let asked = callgate(&env, &["call", "--session", &id, "question", &questions.to_string()]);
        assert_eq!(asked.status.code(), Some(1), "{asked:?}");
        assert_eq!(show(&env, &id)["calls"][0]["arguments"]["questions"][0]["question"], "Is it [REDACTED]?");
        let arguments =
            json!({ "command": format!("echo {token} {known} harmless; echo {token} >&2; exit 1") }).to_string();
        let words = line(&binary, &["call", "--session", &id, "bash", &arguments]);
        let ended = user(&env).variable("DEPLOY_TOKEN", known).run(&words);
        assert!(ended.stdout.contains(token) && ended.stdout.contains(known), "whoever called sees it: {ended:?}");
        let words = line(&binary, &["run", "--session", &id, "--", "echo", token]);
        assert!(user(&env).run(&words).status.success());
        let written = written(&env);
        assert!(holds(&written, "harmless") && holds(&written, "[REDACTED] [REDACTED]"), "the control");
        assert!(!holds(&written, token) && !holds(&written, known));
        assert!(!succeeds(&env, &["session", "replay", &id]).contains(token));
        refused(&env, &["session", "new", "--env", "DEPLOY_TOKEN=correct-horse-battery"], 64, "looks like a secret's");
    });
}

/// A replay is the same each time, and needs neither workspace nor manifest; what it prints of results is what `call` printed.
#[test]
fn s0_43_a_replay_executes_nothing_and_is_the_same_each_time() {
    matrix(HERE, |target| {
        let env = TestEnv::new(target);
        let workspace = env.workspace().join("project");
        fs::create_dir(&workspace).unwrap();
        env.give(&workspace);
        let manifest = env.workspace_file("m.toml", "[[requires.shell]]\ncmd = \"*\"\n");
        let made = [
            "session",
            "new",
            "-C",
            workspace.to_str().unwrap(),
            "--manifest",
            manifest.text(),
            "--title",
            "a \u{1b}[31m",
        ];
        let id = succeeds(&env, &made).trim().to_owned();
        let call = |command: &str| {
            let arguments = json!({ "command": command }).to_string();
            callgate(&env, &["call", "--session", &id, "bash", &arguments]).stdout
        };
        let results = [call("echo one; echo >> ../ran"), call("exit 4"), call("printf '\\xff\"'")].concat();
        let first = succeeds(&env, &["session", "replay", &id]);
        assert_eq!(first.lines().count(), 9);
        fs::rename(&workspace, env.workspace().join("gone")).unwrap();
        fs::remove_file(env.workspace().join("m.toml")).unwrap();
        assert_eq!(succeeds(&env, &["session", "replay", &id[..20]]), first, "by a beginning of its id, too");
        assert_eq!(succeeds(&env, &["session", "replay", "--results", &id]), results);
        let exported: Value = serde_json::from_str(&succeeds(&env, &["session", "export", &id])).unwrap();
        let lines: Vec<Value> = first.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(exported["events"], json!(lines));
        assert!(!succeeds(&env, &["session", "list"]).contains('\u{1b}'), "a title cannot act on a terminal");
        // A fork has the history, and a life of its own.
        let fork = succeeds(&env, &["session", "fork", &id]).trim().to_owned();
        assert_eq!(succeeds(&env, &["session", "replay", "--results", &fork]), results);
        assert_eq!(show(&env, &fork)["parent"], json!(id));
        refused(&env, &["call", "--session", &id, "bash", r#"{"command":"true"}"#], 64, "m.toml");
    });
}

/// X0-55: the workspace is the session's, wherever the command is given, and a manifest that has changed is not its own.
#[test]
fn x0_55_a_session_is_what_it_was_made_as() {
    matrix(HERE, |target| {
        let env = TestEnv::new(target);
        let manifest = env.workspace_file("m.toml", "[[requires.shell]]\ncmd = \"*\"\n");
        let id = succeeds(&env, &["session", "new", "--manifest", "m.toml"]).trim().to_owned();
        let arguments = r#"{"command":"pwd -P"}"#;
        let binary = binary();
        let elsewhere =
            user(&env).started_in(env.outside()).run(&line(&binary, &["call", "--session", &id, "bash", arguments]));
        let envelope: Value = serde_json::from_str(&elsewhere.stdout).unwrap();
        let workspace = env.workspace().canonicalize().unwrap();
        assert_eq!(envelope["data"]["output"].as_str().unwrap().trim(), workspace.to_str().unwrap());
        refused(
            &env,
            &["call", "--session", &id, "--read", "/var", "bash", arguments],
            64,
            "none can be given with it",
        );
        fs::write(manifest.text(), "[[requires.shell]]\ncmd = \"*\"\n[requires.fs]\nread = [\"/var/**\"]\n").unwrap();
        refused(&env, &["call", "--session", &id, "bash", arguments], 65, "has changed since the session was made");
        let fork = succeeds(&env, &["session", "new", "--manifest", "m.toml"]).trim().to_owned();
        bash(&env, &fork, "true");
    });
}

/// A10: no session reaches what is recorded: not through a grant, nor a mount below one; nothing is kept where every session may
/// read; and before there is a store, its place cannot be made ready.
#[test]
fn a10_no_session_reaches_the_store() {
    matrix(HERE, |target| {
        let env = TestEnv::new(target);
        let place = state(&env).join("callgate");
        if target.user.uid() == 0 {
            for system in ["/usr/local/callgate-test-state", "/opt/callgate-test-state"] {
                let kept = env.weakened().variable("XDG_STATE_HOME", system).run(&line(&binary(), &["session", "new"]));
                assert_eq!(kept.status.code(), Some(69), "{kept:?}");
                assert!(kept.stderr.contains("every session may read there"), "{kept:?}");
                assert!(!Path::new(system).exists());
            }
        }
        let id = new(&env);
        let reached = |grant: &Path| {
            let ended = callgate(&env, &["run", "--read", grant.to_str().unwrap(), "--", "true"]);
            assert_eq!(ended.status.code(), Some(64), "{ended:?}");
            assert!(ended.stderr.contains("sessions"), "{ended:?}");
        };
        reached(&place);
        reached(place.parent().unwrap());
        let (outside, alias) = (env.outside().join("granted"), env.outside().join("granted/alias"));
        fs::create_dir_all(&alias).unwrap();
        env.give(&outside);
        // The control: as long as nothing is mounted there.
        succeeds(&env, &["run", "--read", outside.to_str().unwrap(), "--", "true"]);
        if target.user.uid() == 0 {
            let script = r#"mount --bind "$1" "$2" && shift 2 && exec "$@""#;
            let binary = binary();
            let words =
                ["unshare", "--mount", "sh", "-c", script, "sh", place.to_str().unwrap(), alias.to_str().unwrap()];
            let words =
                [&words[..], &[binary.as_str(), "run", "--read", outside.to_str().unwrap(), "--", "true"]].concat();
            let ended = user(&env).run(&words);
            assert_eq!(ended.status.code(), Some(64), "{ended:?}");
            assert!(ended.stderr.contains("sessions"), "{ended:?}");
            // The source of the mount by which it is known.
            let (disk, shown) = (env.outside().join("disk"), env.outside().join("shown"));
            fs::create_dir_all(disk.join("state")).unwrap();
            fs::create_dir(&shown).unwrap();
            let script = r#"mount --bind "$1/state" "$2" && export XDG_STATE_HOME="$2" && "$3" session new &&
                            "$3" run --read "$0" -- true && exec "$3" run --read "$1" -- true"#;
            let words = [&alias, &disk, &shown].map(|path| path.to_str().unwrap());
            let words = [&["unshare", "--mount", "sh", "-c", script], &words[..], &[binary.as_str()]].concat();
            let ended = user(&env).run(&words);
            assert!(disk.join("state/callgate/sessions.db").exists(), "the control: {ended:?}");
            assert_eq!(ended.status.code(), Some(64), "{ended:?}");
            assert!(ended.stderr.contains("sessions") && ended.stderr.contains("disk"), "{ended:?}");
        }
        bash(&env, &id, "true");
    });
}

/// A10: before there is a store, no session can make its place ready for what will be believed there.
#[test]
fn a10_no_session_makes_the_store() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let state = state(&env);
        fs::create_dir(&state).unwrap();
        env.give(&state);
        let write = |granted: &Path| ["run", "--write", granted.to_str().unwrap(), "--", "true"].map(str::to_owned);
        for granted in [&state, &env.outside()] {
            let words = write(granted);
            refused(&env, &words.iter().map(String::as_str).collect::<Vec<_>>(), 64, "where sessions are kept");
        }
        // Where it usually is, the name is protected.
        let home = env.outside().join("home");
        let usual = home.join(".local/state");
        fs::create_dir_all(&usual).unwrap();
        for made in [&home, &home.join(".local"), &usual] {
            env.give(made);
        }
        let script = r#"mkdir "$0/other" && ! mkdir "$0/callgate""#;
        let words = ["run", "--write", usual.to_str().unwrap(), "--", "sh", "-c", script, usual.to_str().unwrap()];
        let ended = env.weakened().variable("HOME", home.to_str().unwrap()).run(&line(&binary(), &words));
        assert!(ended.status.success(), "{ended:?}");
        assert!(usual.join("other").exists() && !usual.join("callgate").exists());
    });
}

/// Sessions are kept where nobody else decides what they are: no link leads there, and nobody else may read or write.
#[test]
fn a10_sessions_are_kept_where_no_link_leads() {
    matrix(HERE, |target| {
        let env = TestEnv::new(target);
        let (state, aside) = (state(&env), env.outside().join("aside"));
        let place = state.join("callgate");
        for made in [&state, &aside] {
            fs::create_dir(made).unwrap();
            env.give(made);
        }
        let canary = env.file("canary", "canary");
        let own_link = |from: &Path, to: &Path| {
            let made = env.bare().run(&["ln", "-s", from.to_str().unwrap(), to.to_str().unwrap()]);
            assert!(made.status.success(), "{made:?}");
        };
        let nothing_made =
            || assert_eq!(fs::read_dir(&aside).unwrap().count(), 0, "nothing was made where the link leads");
        // The directory itself, and one on the way to it; to what is there, and to what is not.
        own_link(&aside, &place);
        refused(&env, &["session", "new"], 69, "symbolic link");
        fs::remove_file(&place).unwrap();
        own_link(&aside.join("absent"), &place);
        refused(&env, &["session", "new"], 69, "");
        fs::remove_file(&place).unwrap();
        fs::remove_dir(&state).unwrap();
        own_link(&aside, &state);
        refused(&env, &["session", "new"], 69, "symbolic link");
        nothing_made();
        fs::remove_file(&state).unwrap();
        let id = new(&env);
        // Its files.
        for name in ["sessions.db", "sessions.lock"] {
            let (file, kept) = (place.join(name), place.join("kept"));
            fs::rename(&file, &kept).unwrap();
            own_link(Path::new(canary.text()), &file);
            refused(&env, &["session", "list"], 69, "symbolic link");
            fs::remove_file(&file).unwrap();
            fs::hard_link(&kept, &file).unwrap();
            refused(&env, &["session", "list"], 69, "another name");
            fs::remove_file(&file).unwrap();
            fs::rename(&kept, &file).unwrap();
        }
        own_link(Path::new(canary.text()), &place.join("sessions.db-journal"));
        refused(&env, &["session", "list"], 69, "not a regular file");
        fs::remove_file(place.join("sessions.db-journal")).unwrap();
        canary.assert_contents("canary");
        for path in [&place, &place.join("sessions.db")] {
            let mode = fs::metadata(path).unwrap().permissions();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
            refused(&env, &["session", "list"], 69, "lets others in");
            fs::set_permissions(path, mode).unwrap();
        }
        bash(&env, &id, "true");
        let modes = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!((modes(&place), modes(&place.join("sessions.db"))), (0o700, 0o600));
    });
}

/// No session reaches where sessions are kept: one whose grants would is refused, recorded or not.
#[test]
fn e4_no_session_reaches_where_sessions_are_kept() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let id = new(&env);
        let place = state(&env).join("callgate");
        let before = written(&env);
        let database = place.join("sessions.db");
        let outside = env.outside();
        let link = env.workspace().join("to-state");
        symlink(&place, &link).unwrap();
        for (flag, path) in [
            ("--read", &outside),
            ("--write", &outside),
            ("--read", &place),
            ("--read", &database),
            ("--write", &database),
            ("-C", &outside),
        ] {
            let path = path.to_str().unwrap();
            for words in [&["run", flag, path, "--", "sh", "-c", "echo >> ran"][..], &["session", "new", flag, path]] {
                refused(&env, words, 64, "where sessions are kept");
            }
        }
        // What was granted does not lead there.
        let beside = outside.join("beside");
        fs::create_dir(&beside).unwrap();
        env.give(&beside);
        let line = format!(
            "cat {0} || cat to-state/sessions.db || echo x > {0} || ls {1}",
            database.display(),
            place.display()
        );
        let tried = callgate(&env, &["run", "--write", beside.to_str().unwrap(), "--session", &id, "--", "true"]);
        assert_eq!(tried.status.code(), Some(64), "grants are the session's own: {tried:?}");
        let tried = callgate(&env, &["run", "--write", beside.to_str().unwrap(), "--", "sh", "-c", &line]);
        assert!(!tried.status.success() && tried.stdout.is_empty(), "{tried:?}");
        let told = bash(&env, &id, &line);
        assert!(!told["data"]["output"].as_str().unwrap().contains(&id), "{told}");
        let bare = env.bare().run(&["sh", "-c", &format!("cat {} | wc -c", database.display())]);
        assert_ne!(bare.stdout.trim(), "0", "the control: outside it can be read");
        assert!(holds(&before, &id), "the control");
        assert!(holds(&written(&env), &id));
    });
}

/// A session that is old or too much goes, with its files.
#[test]
fn s0_47_what_is_old_or_too_much_is_pruned() {
    matrix(HERE, |target| {
        let env = TestEnv::new(target);
        let (first, second) = (new(&env), new(&env));
        let long = bash(&env, &first, "head -c 300000 /dev/zero | tr '\\0' a");
        let rest = long["metadata"]["output_path"].as_str().unwrap().to_owned();
        for _ in 0..3 {
            bash(&env, &second, "head -c 300000 /dev/zero | tr '\\0' b");
        }
        assert_eq!(succeeds(&env, &["session", "prune", "--older-than", "1h"]), "");
        assert_eq!(succeeds(&env, &["session", "prune", "--keep-size", "1GiB"]), "", "the controls");
        let gone = succeeds(&env, &["session", "prune", "--keep-size", "300KiB"]);
        assert!(gone.contains(&first) && !gone.contains(&second), "the oldest goes first: {gone}");
        assert!(fs::metadata(rest).is_err());
        show(&env, &second);
        succeeds(&env, &["session", "prune", "--older-than", "0d"]);
        assert_eq!(succeeds(&env, &["session", "list", "--json"]).trim(), "[]");
        assert!(!holds(&written(&env), "bbbbbbbb"), "nothing of it is left in the files");
        refused(&env, &["session", "prune"], 64, "--older-than");
        let left = fs::read_dir(state(&env).join("callgate")).unwrap().map(|entry| entry.unwrap().file_name());
        let left: BTreeSet<String> = left.map(|name| name.into_string().unwrap()).collect();
        assert!(left.iter().all(|name| name.starts_with("sessions.")), "{left:?}");
    });
}
