//! The official conformance suites of the Model Context Protocol, of both eras: `callgate mcp --http` has what needs no tools of the
//! suite's own, and an example of a host has the rest (`supervisor/hosts/mcp/examples/conformance.rs`). What callgate does not offer is
//! in `tests/data/mcp/expected-*.yml`; the suites fail for anything else, and for what is expected to fail and passes.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use callgate_tests::{Host, Target, TestEnv, User};

use crate::mcp_clients::{ClientOutcome, data, node, npm, outcome};
use crate::mcp_http::ServerProcess;

/// Where the host's strength makes no difference. The host of the example runs as whoever runs the tests.
const HERE: Target = Target { host: Host::Namespaces, user: User::Ordinary };

/// A suite, and what is asked of it.
struct Suite {
    package: &'static str,
    words: &'static [&'static str],
    expected: &'static str,
    /// Scenarios that a server passes that has no tools of the suite's.
    of_any_server: &'static [&'static str],
}

const INITIALIZE: Suite = Suite {
    package: "@modelcontextprotocol/conformance",
    words: &[],
    expected: "expected-2025-11-25.yml",
    of_any_server: &[
        "server-initialize",
        "ping",
        "tools-list",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
    ],
};

const REQUESTS_ALONE: Suite = Suite {
    package: "conformance-of-2026",
    words: &["--spec-version", "2026-07-28"],
    expected: "expected-2026-07-28.yml",
    of_any_server: &[
        "tools-list",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
        "http-header-validation",
        "input-required-result-unsupported-methods",
    ],
};

impl Suite {
    /// All scenarios of its version, with the token that the suite knows nothing of.
    fn run(&self, address: &str, token_file: &Path, more: &[&str]) -> ClientOutcome {
        let packages = npm();
        let node = node(&packages);
        let suite = packages.join("node_modules").join(self.package).join("dist/index.js");
        let mut command = Command::new(&node);
        command.arg(data("with_token.mjs")).arg(address).arg(token_file).arg(&node).arg(suite);
        command.args(["server", "--url", "{url}", "--suite", "all"]).args(self.words).args(more);
        outcome(&mut command)
    }

    fn is_passed_by_the_example(&self) {
        let env = TestEnv::new(HERE);
        let example = Example::start(&env);
        let expected = data(self.expected).display().to_string();
        let ended = self.run(&example.address, &example.token_file, &["--expected-failures", &expected]);
        assert_eq!(ended.code, Some(0), "{}", ended.all());
        assert!(ended.stdout.contains("Baseline check passed"), "it was compared: {}", ended.all());
        for scenario in ["tools-list", "tools-call-simple-text", "tools-call-error", "tools-call-with-progress"] {
            assert!(ended.has_passed(scenario), "{scenario}: {}", ended.all());
        }
    }

    fn is_passed_by_callgate_as_far_as_it_needs_no_tools(&self) {
        let env = TestEnv::new(HERE);
        let server = ServerProcess::start(&env, &[]);
        let ended = self.run(server.address(), server.token_file(), &[]);
        for scenario in self.of_any_server {
            assert!(ended.has_passed(scenario), "{scenario}: {}", ended.all());
        }
        server.end();
    }
}

impl ClientOutcome {
    /// True if the summary says that checks of this scenario were made, and none failed.
    fn has_passed(&self, scenario: &str) -> bool {
        let passed = format!("✓ {scenario}: ");
        let count = self.stdout.lines().find_map(|line| line.strip_prefix(&passed));
        count.is_some_and(|count| !count.starts_with("0 passed"))
    }
}

/// The host with the suite's tools. It ends with this.
struct Example {
    process: Child,
    address: String,
    token_file: PathBuf,
}

impl Example {
    fn start(env: &TestEnv) -> Self {
        let this = std::env::current_exe().unwrap();
        let program = this.ancestors().nth(2).unwrap().join("examples/conformance");
        assert!(program.is_file(), "{} is not built: cargo build --workspace --examples", program.display());
        let token_file = env.outside().join("token");
        std::fs::write(&token_file, "a".repeat(40)).unwrap();
        std::fs::set_permissions(&token_file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let mut command = Command::new(program);
        command.arg(&token_file).arg(env.workspace()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut address = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut address).unwrap();
        assert!(!address.is_empty(), "it has ended: {:?}", process.wait());
        Self { process, address: address.trim().to_owned(), token_file }
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        // The end of its input is its end.
        drop(self.process.stdin.take());
        self.process.wait().unwrap();
    }
}

#[test]
fn the_conformance_suite_that_begins_with_initialize() {
    INITIALIZE.is_passed_by_the_example();
}

#[test]
fn the_conformance_suite_of_requests_alone() {
    REQUESTS_ALONE.is_passed_by_the_example();
}

#[test]
fn callgate_passes_what_the_conformance_suites_ask_of_any_server() {
    for suite in [INITIALIZE, REQUESTS_ALONE] {
        suite.is_passed_by_callgate_as_far_as_it_needs_no_tools();
    }
}
