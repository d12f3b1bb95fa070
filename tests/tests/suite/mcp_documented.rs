//! `docs/hosts.md` is true: every command in it runs as it is written, and what a host is to be given starts a server.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use callgate_tests::{Binaries, Host, ProgramOutcome, ProgramRunner, Target, TestEnv, User};
use serde_json::{Value, json};

const HERE: Target = Target { host: Host::Namespaces, user: User::Ordinary };

/// Commands that are checked, and not run: each takes a network or root, or is a host's, or of another machine.
const NOT_RUN: [&str; 5] = ["cargo install --path ", "sudo apt install ", "claude ", "codex ", "ssh "];

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn document() -> String {
    fs::read_to_string(repository().join("docs/hosts.md")).unwrap()
}

/// Fenced blocks in this language.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        if let Some(found) = line.strip_prefix("```") {
            let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            if found == language {
                blocks.push(body.join("\n"));
            }
        }
    }
    blocks
}

/// Texts between backquotes outside of blocks.
fn spans(document: &str) -> Vec<&str> {
    let outside = document.split("```").step_by(2);
    outside.flat_map(|part| part.split('`').skip(1).step_by(2)).collect()
}

/// A newcomer with a home of their own.
struct Newcomer {
    env: TestEnv,
    home: PathBuf,
}

impl Newcomer {
    fn new() -> Self {
        let env = TestEnv::new(HERE);
        let home = env.outside().join("home");
        fs::create_dir(&home).unwrap();
        env.give(&home);
        Self { env, home }
    }

    fn run(&self) -> ProgramRunner {
        let binary = Binaries::of_this_build().callgate();
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", binary.parent().unwrap().display());
        let home = self.home.display().to_string();
        self.env
            .weakened()
            .variable("HOME", &home)
            .variable("XDG_STATE_HOME", &format!("{home}/state"))
            .variable("PATH", &path)
    }

    fn sh(&self, script: &str) -> ProgramOutcome {
        self.run().run(&["sh", "-eu", "-c", script])
    }

    /// Starts this command line as a host does, and is shown the tools.
    fn is_a_server(&self, line: &str) {
        let mut command = self.run().command(&["sh", "-euc", &format!("exec {line}")]);
        let mut server = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut to, mut from) = (server.stdin.take().unwrap(), BufReader::new(server.stdout.take().unwrap()));
        let about = json!({ "name": "test", "version": "1" });
        let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about });
        let mut hear = |message: Value| -> String {
            writeln!(to, "{message}").unwrap();
            let mut answer = String::new();
            if !message["id"].is_null() {
                from.read_line(&mut answer).unwrap();
            }
            answer
        };
        let begun = hear(json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }));
        assert!(begun.contains("\"serverInfo\":{\"name\":\"callgate\""), "{line}: {begun:?}");
        hear(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        let tools = hear(json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }));
        assert!(tools.contains("\"name\":\"bash\""), "{line}: {tools:?}");
        drop(to);
        assert!(server.wait().unwrap().success(), "{line}");
    }

    /// Starts this server over HTTP, on a port that is free, and ends it.
    fn is_a_server_over_http(&self, line: &str) {
        let (before, after) = line.split_once("127.0.0.1:8931").unwrap_or_else(|| panic!("no address in {line}"));
        let mut command = self.run().command(&["sh", "-euc", &format!("exec {before}127.0.0.1:0{after}")]);
        let mut server = command.stderr(Stdio::piped()).spawn().unwrap();
        let (mut said, mut errors) = (String::new(), BufReader::new(server.stderr.take().unwrap()));
        while !said.contains("the token is in ") {
            assert_ne!(errors.read_line(&mut said).unwrap(), 0, "{line}: {said}");
        }
        assert!(said.contains("serving http://127.0.0.1:"), "{line}: {said}");
        let pid = server.id().to_string();
        #[allow(clippy::disallowed_methods, reason = "whoever runs the tests may end it")]
        let told = std::process::Command::new("kill").arg(&pid).status();
        assert!(told.unwrap().success() && server.wait().unwrap().success(), "{line}");
    }
}

/// A line that is not run refers to what is there.
fn looks_right(line: &str) {
    let there = |path: &str| assert!(repository().join(path).exists(), "{line}: there is no {path}");
    if let Some(rest) = line.strip_prefix("cargo install --path ") {
        let (path, options) = rest.split_once(' ').unwrap_or((rest, ""));
        there(&format!("{path}/Cargo.toml"));
        assert_eq!(options, "--locked", "{line}");
    } else if line.starts_with("sudo apt install ") {
        assert_eq!(line, "sudo apt install \"$(.ci/package deb)\"");
        there(".ci/package");
    }
}

/// The commands in blocks, in their order: what one makes, the next one finds.
#[test]
fn every_command_of_the_hosts_manual_runs() {
    let newcomer = Newcomer::new();
    let mut run = 0;
    for block in blocks(&document(), "sh") {
        let mut script = String::new();
        for line in block.lines() {
            if NOT_RUN.iter().any(|not_run| line.starts_with(not_run)) {
                looks_right(line);
            } else if line.starts_with("callgate mcp --http ") {
                newcomer.is_a_server_over_http(line);
                run += 1;
            } else {
                script.push_str(&format!("{line}\n"));
                run += usize::from(line.starts_with("callgate "));
            }
        }
        let wanted = if block.contains("# exit status 77") { 77 } else { 0 };
        let ended = newcomer.sh(&script);
        assert_eq!(ended.status.code(), Some(wanted), "{script}\n{ended:?}");
    }
    assert!(run >= 9, "only {run} commands were found");
    // What follows is said of these: the one without effect, and the one with it.
    let list = newcomer.sh(r#"callgate call -C ~/project bash '{"command": "ls notes"}'"#);
    assert!(list.status.success() && list.stdout.contains("notes\\n"), "{list:?}");
    let changed = newcomer.sh(
        r#"echo >> ~/project/callgate.toml; callgate call -C ~/project glob '{"path": "/var/log", "pattern": "*"}'"#,
    );
    assert!(!changed.status.success() && changed.stderr.contains("callgate trust"), "{changed:?}");
    assert!(newcomer.sh("callgate trust ~/project; callgate session list --json").stdout.contains("\"id\""));
}

/// Cells of the table of hosts: the part of each command that is callgate's, each configuration, and what is printed
/// for each host.
#[test]
fn what_the_hosts_manual_gives_to_hosts_starts_a_server() {
    let newcomer = Newcomer::new();
    fs::create_dir(newcomer.home.join("project")).unwrap();
    newcomer.env.give(&newcomer.home.join("project"));
    let document = document();
    let (mut lines, mut configurations, mut printed) = (0, 0, 0);
    for span in spans(&document) {
        if let Some((host, line)) = span.split_once(" -- ").filter(|(_, line)| line.starts_with("callgate mcp")) {
            assert!(NOT_RUN.iter().any(|not_run| host.starts_with(not_run)), "{span}");
            newcomer.is_a_server(line);
            lines += 1;
        } else if span.starts_with("{\"mcpServers\"") {
            let config: Value = serde_json::from_str(span).unwrap_or_else(|error| panic!("{error}: {span}"));
            let server = &config["mcpServers"]["callgate"];
            let args = server["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
            let words: Vec<&str> = std::iter::once(server["command"].as_str().unwrap()).chain(args).collect();
            newcomer.is_a_server(&words.join(" ").replace("/home/you", "~"));
            configurations += 1;
        } else if let Some(line) = span.strip_suffix(" --print-config HOST") {
            let names = document.lines().find(|line| line.contains("--print-config HOST")).unwrap();
            let (_, names) = names.rsplit_once('(').unwrap();
            for host in names.split('`').skip(1).step_by(2) {
                let ended = newcomer.sh(&format!("{line} --print-config {host}"));
                let place = newcomer.home.join("project").display().to_string();
                assert!(ended.status.success() && ended.stdout.contains(&place), "{host}: {ended:?}");
                printed += 1;
            }
        }
    }
    assert_eq!((lines, configurations, printed), (2, 1, 7));
    for block in blocks(&document, "json") {
        let config: Value = serde_json::from_str(&block).unwrap_or_else(|error| panic!("{error}: {block}"));
        let servers = &config["mcpServers"];
        match servers["git"]["args"].as_array() {
            Some(words) => assert_eq!(words[..3], ["mcp", "--wrap", "--"], "{block}"),
            None => assert_eq!(servers["callgate"]["headers"]["Authorization"], "Bearer TOKEN", "{block}"),
        }
    }
}

/// Every option that the manual names is one of a command that it names.
#[test]
fn every_option_of_the_hosts_manual_is_there() {
    let newcomer = Newcomer::new();
    let helps: String = ["mcp", "call", "session list", "trust"]
        .map(|command| newcomer.sh(&format!("callgate {command} --help")).stdout)
        .concat();
    let document = document();
    let words = spans(&document).into_iter().flat_map(str::split_whitespace);
    let options: Vec<&str> = words.filter(|word| word.starts_with("--") && word.len() > 2).collect();
    assert!(options.len() >= 8, "{options:?}");
    for option in options {
        assert!(helps.contains(option), "{option} is no option of callgate's");
    }
    let subcommands = ["list", "show", "replay"];
    let help = newcomer.sh("callgate session --help").stdout;
    subcommands.iter().for_each(|name| assert!(help.contains(&format!("  {name}")), "{name}"));
}
