//! `[[net.credentials]]` and whoever shall not have them: processes of other sandboxes, subagents, declared tools (X0-18, X0-27).

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use callgate_tests::{Binaries, Host, ProgramRunner, Target, TestEnv, User, eventually, matrix, parent_of, skip};
use serde_json::{Value, json};

use super::network::on_the_internet;

/// Beginning of secrets, and of no other text.
const SECRET: &str = "memory-secret-8d41";

fn callgate() -> String {
    Binaries::of_this_build().callgate().display().to_string()
}

/// The file with a secret, which its user alone reads.
fn key(env: &TestEnv, secret: &str) -> PathBuf {
    let key = env.file("key", &format!("{secret}\n"));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    key.to_path_buf()
}

/// A tool that the user declares.
fn declare(env: &TestEnv, text: &str) {
    let mut directory = env.outside();
    for name in [".config", "callgate", "tools"] {
        directory.push(name);
        fs::create_dir_all(&directory).unwrap();
        env.give(&directory);
    }
    drop(env.file_at(directory.join("declared.toml"), text));
}

/// As a user whose home and settings are outside the workspace.
fn at_home(env: &TestEnv, run: ProgramRunner) -> ProgramRunner {
    let home = env.outside().display().to_string();
    run.variable("HOME", &home).variable("XDG_CONFIG_HOME", "").variable("XDG_STATE_HOME", "")
}

/// True if a process runs the binary.
fn is_callgates(pid: u32) -> bool {
    let same = |about: fs::Metadata, binary: fs::Metadata| (about.dev(), about.ino()) == (binary.dev(), binary.ino());
    fs::metadata(format!("/proc/{pid}/exe")).is_ok_and(|about| same(about, fs::metadata(callgate()).unwrap()))
}

fn processes() -> Vec<u32> {
    fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

fn name_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// All that a process has written into its memory (proc_pid_maps(5), proc_pid_mem(5)).
fn memory(pid: u32) -> Vec<u8> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let Ok(mut mem) = File::open(format!("/proc/{pid}/mem")) else { return Vec::new() };
    let mut all = Vec::new();
    for line in maps.lines() {
        let mut fields = line.split_whitespace();
        let (Some((from, to)), Some(rights)) = (fields.next().and_then(|range| range.split_once('-')), fields.next())
        else {
            continue;
        };
        if !rights.starts_with("rw") {
            continue;
        }
        let [from, to] = [from, to].map(|hex| u64::from_str_radix(hex, 16).unwrap());
        mem.seek(SeekFrom::Start(from)).unwrap();
        // What is mapped and cannot be read holds nothing.
        drop(mem.by_ref().take(to - from).read_to_end(&mut all));
    }
    all
}

fn holds(bytes: &[u8], text: &str) -> bool {
    let first = text.as_bytes()[0];
    bytes.iter().enumerate().any(|(at, byte)| *byte == first && bytes[at..].starts_with(text.as_bytes()))
}

static TIMES: AtomicU32 = AtomicU32::new(0);

/// Ends a session with its supervisor, also where a test fails.
struct SupervisorProcess(Child);

impl Drop for SupervisorProcess {
    fn drop(&mut self) {
        self.0.kill().expect("our own child can be killed");
        self.0.wait().expect("our own child can be waited for");
    }
}

/// X0-18: the value is in the memory of the supervisor and of the session's egress, and of no other process: also not where a
/// subagent, or a declared tool, has a sandbox without a network, which is made after the value was read.
#[test]
fn x0_18_no_launcher_and_no_worker_has_a_credential_in_its_memory() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        holds_alone(&env, &env.weakened(), "a session's own user");
        if target.user == User::Root && target.has_namespaces() {
            // What was made ready for another user than the workspace's is not used.
            let theirs = TestEnv::new(Target { user: User::Ordinary, ..target });
            holds_alone(&env, &env.weakened().started_in(theirs.workspace()), "root in a user's workspace");
        }
    });
}

fn holds_alone(env: &TestEnv, run: &ProgramRunner, what: &str) {
    // Memory of whoever is not dumpable is root's to read.
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return skip("root", what);
    }
    // Those of this test and no other: others run beside it.
    let number = TIMES.fetch_add(1, Ordering::Relaxed);
    let secret = format!("{SECRET}-{}-{number}", std::process::id());
    let (by_variable, by_file) = (format!("{secret}-of-a-variable"), format!("{secret}-of-a-file"));
    let key = key(env, &by_file);
    let seconds = format!("{}.{}", 7200 + number, std::process::id());
    let manifest = env.file(
        "m.toml",
        &format!(
            "mode = \"yolo\"\n[requires.net]\nhosts = [\"a.example\"]\n[[requires.shell]]\ncmd = \"*\"\n\
             [[net.credentials]]\nhost = \"a.example\"\nheader = \"X-Key\"\nenv = \"THE_KEY\"\n\
             [[net.credentials]]\nhost = \"a.example\"\nheader = \"X-Other\"\nfile = {key:?}\n\
             [agents.sleeper]\ndescription = \"sleeps\"\ntools = []\nrunner = [\"sleep\", \"{seconds}\"]\n"
        ),
    );
    declare(env, &format!("name = \"nap\"\ndescription = \"sleeps\"\ncommand = [\"sleep\", \"{seconds}\"]\n"));
    let run = at_home(env, run.clone()).variable("THE_KEY", &by_variable);
    let calls = [("task", json!({ "subagent_type": "sleeper", "prompt": "x" })), ("nap", json!({}))];
    for (tool, arguments) in calls {
        let words = [&callgate(), "call", "--manifest", manifest.text(), tool, &arguments.to_string()];
        let mut supervisor =
            SupervisorProcess(run.command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let own = supervisor.0.id();
        let sleeps = |pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            name_of(*pid) == "sleep" && line.ends_with(format!("sleep\0{seconds}\0").as_bytes())
        };
        let find = || processes().into_iter().find(sleeps);
        eventually("its program runs", || find().is_some() || supervisor.0.try_wait().unwrap().is_some());
        let sleeper = find().unwrap_or_else(|| panic!("{what}: {tool} has ended"));

        let all: Vec<(u32, String, Vec<u8>)> = processes()
            .into_iter()
            .filter(|pid| is_callgates(*pid))
            .map(|pid| (pid, name_of(pid), memory(pid)))
            .collect();
        let having: Vec<(u32, &str)> =
            all.iter().filter(|(.., bytes)| holds(bytes, &secret)).map(|(pid, name, _)| (*pid, &**name)).collect();
        // The controls: it would have been found, in both forms of source, and those were looked at who made the sandbox.
        let (.., held) = all.iter().find(|(pid, ..)| *pid == own).unwrap();
        assert!(holds(held, &by_variable) && holds(held, &by_file), "{what}");
        assert!(having.iter().any(|(_, name)| *name == "cg-egress"), "{what}: {tool}: {having:?}");
        let makers: Vec<u32> = std::iter::successors(parent_of(sleeper), |pid| parent_of(*pid))
            .take_while(|pid| is_callgates(*pid) && *pid != own)
            .collect();
        assert!(!makers.is_empty(), "{what}: {tool}: nobody has started {sleeper}");
        for maker in makers {
            let looked_at = all.iter().find(|(pid, ..)| *pid == maker).map(|(.., bytes)| bytes.len());
            assert!(looked_at.is_some_and(|bytes| bytes > 4096), "{what}: {tool}: {maker} was not looked at");
        }
        let others: Vec<_> = having.iter().filter(|(pid, name)| *pid != own && *name != "cg-egress").collect();
        assert!(others.is_empty(), "{what}: {tool}: {others:?}");

        drop(supervisor);
        eventually("what it has started is gone", || find().is_none());
    }
}

/// X0-27: an agent has the credentials that it names, of those that its parent has, and no others. One that it does not name, and one
/// that its own agent names and it has not, do not come along.
#[test]
fn x0_27_an_agent_has_the_credentials_that_it_names() {
    on_the_internet(|internet| {
        let key = key(&internet.env, SECRET);
        let agents = |name: &str, more: &str| {
            format!(
                "[agents.{name}]\ndescription = \"fetches\"\ntools = []\n{more}\
                 runner = [\"curl\", \"-sS\", \"-m\", \"60\", \"http://other.example/{name}\"]\n\
                 requires.net.hosts = [\"other.example\", \"good.example\"]\n"
            )
        };
        let credential = |host: &str| {
            format!("[[net.credentials]]\nhost = \"{host}\"\nover = \"http\"\nheader = \"X-Key\"\nfile = {key:?}\n")
        };
        let text = [
            "mode = \"yolo\"\n[requires.net]\nhosts = [\"other.example\", \"good.example\"]\n[[requires.shell]]\ncmd = \"*\"\n",
            &credential("other.example"),
            &credential("good.example"),
            &agents("names", "credentials = [\"other.example\"]\n"),
            &agents("another", "credentials = [\"good.example\"]\n"),
            &agents("nothing", ""),
        ]
        .concat();
        let manifest = internet.env.file("m.toml", &text);
        let call = |tool: &str, arguments: &Value| {
            let words = [&callgate(), "call", "--manifest", manifest.text(), tool, &arguments.to_string()];
            let ended = internet.on(internet.env.weakened()).run(&words);
            assert_eq!(ended.status.code(), Some(0), "{ended:?}");
            assert!(!ended.stdout.contains(SECRET), "{ended:?}");
            internet.seen()
        };
        let sent = format!("credential other.example X-Key: {SECRET}");
        let seen = call("bash", &json!({ "command": "curl -sS -m 60 http://other.example/parent" }));
        assert!(seen.contains("/parent") && seen.contains(&sent), "the control: {seen}");
        for (agent, has) in [("names", true), ("another", false), ("nothing", false)] {
            let seen = call("task", &json!({ "subagent_type": agent, "prompt": "x" }));
            assert!(seen.contains(&format!("/{agent}")), "{agent} has fetched: {seen}");
            assert_eq!(seen.contains(&sent), has, "{agent}: {seen}");
        }
    });
}

/// X0-18, S1-27: a declared tool that wants the variable of a credential is refused; others get theirs, and it gets it where it is no
/// credential's.
#[test]
fn x0_18_a_declared_tool_does_not_get_a_credential_as_a_variable() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let call = |wants: &str, manifest: &str| {
            declare(
                &env,
                &format!(
                    "name = \"show\"\ndescription = \"shows\"\nenv = [\"{wants}\"]\n\
                     command = [\"python3\", \"-c\", \"import json, os; print(json.dumps(dict(os.environ)))\"]\n"
                ),
            );
            let manifest = env.file("m.toml", &format!("mode = \"yolo\"\n{manifest}")).text().to_owned();
            let run = at_home(&env, env.weakened()).variable("THE_KEY", SECRET).variable("ANOTHER", "yes");
            let ended = run.run(&[&callgate(), "call", "--manifest", &manifest, "show", "{}"]);
            let envelope: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {ended:?}"));
            (ended.status.code().unwrap(), envelope)
        };
        let of_host = |host: &str| {
            format!(
                "[requires.net]\nhosts = [\"{host}\"]\n\
                 [[net.credentials]]\nhost = \"a.example\"\nheader = \"X-Key\"\nenv = \"THE_KEY\"\n"
            )
        };
        // Whether or not it is read for this session: what it is read for is for the manifest to say.
        for host in ["a.example", "b.example"] {
            let (status, envelope) = call("THE_KEY", &of_host(host));
            let text = envelope["error_text"].as_str().unwrap();
            assert!(status != 0 && text.contains("its `env` has THE_KEY"), "{host}: {envelope}");
            assert!(!envelope.to_string().contains(SECRET), "{envelope}");
            let (status, envelope) = call("ANOTHER", &of_host(host));
            assert_eq!((status, &envelope["data"]["ANOTHER"]), (0, &json!("yes")), "the control: {envelope}");
            assert!(!envelope.to_string().contains(SECRET), "{envelope}");
        }
        let (status, envelope) = call("THE_KEY", "id = \"none\"\n");
        assert_eq!((status, &envelope["data"]["THE_KEY"]), (0, &json!(SECRET)), "the control: {envelope}");
    });
}
