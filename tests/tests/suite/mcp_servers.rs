//! Servers that others have made, behind `callgate mcp --wrap` and as `[mcp.NAME]`: they do their work. When somebody has taken
//! them over, they reach no more than was granted. Rules, approvals and the record hold for their calls.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use callgate_tests::{
    Binaries, Host, ProgramOutcome, ProgramRunner, Target, TestEnv, User, eventually, matrix, matrix_as,
};
use serde_json::{Value, json};

use crate::mcp::{PersonAnswer, StdioClient, callgate, text, user, wrong};
use crate::mcp_clients::{data, installed, npm_of};
use crate::network::Internet;

/// Where the host's strength makes no difference.
const HERE: Target = Target { host: Host::Namespaces, user: User::Ordinary };
const NODE: &str = "/usr/bin/node";
const PYTHON: &str = "/usr/bin/python3";

/// Where npm has put its servers.
fn npm() -> PathBuf {
    npm_of("mcp-servers-npm", ["servers/package.json", "servers/package-lock.json"])
}

/// Where pip has put its servers: those of the list `NAME.txt`.
fn pip(name: &str) -> PathBuf {
    // The list is whole, so nothing is left to choose.
    let install = [PYTHON, "-m", "pip", "install", "--no-deps", "--only-binary=:all:", "--target=."];
    let list = format!("--requirement={name}.txt");
    let quiet = ["--quiet", "--no-input", "--disable-pip-version-check", &list];
    installed(&format!("mcp-servers-{name}"), &[&format!("servers/{name}.txt")], &[&install[..], &quiet].concat())
}

/// Makes a call, and returns its text.
type ServerCaller<'a> = &'a mut dyn FnMut(&str, Value) -> String;

/// A server that people use.
struct Public {
    name: &'static str,
    /// The script of npm's package, or Python's module.
    program: &'static str,
    /// `$W` is the workspace.
    args: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
    /// Preparation of the workspace.
    finds: fn(&TestEnv),
    /// Does its work, and looks at what came of it.
    works: fn(&TestEnv, ServerCaller<'_>),
}

const MEMORY: Public = Public {
    name: "memory",
    program: "@modelcontextprotocol/server-memory/dist/index.js",
    args: &[],
    variables: &[("MEMORY_FILE_PATH", "$W/memory.json")],
    finds: |_| {},
    works: |env, call| {
        let entity = json!({ "name": "Ada", "entityType": "person", "observations": ["wrote the first program"] });
        call("create_entities", json!({ "entities": [entity] }));
        let kept = fs::read_to_string(env.workspace().join("memory.json")).unwrap();
        assert!(kept.contains("wrote the first program"), "{kept}");
    },
};

const FILESYSTEM: Public = Public {
    name: "filesystem",
    program: "@modelcontextprotocol/server-filesystem/dist/index.js",
    args: &["$W"],
    variables: &[],
    finds: |_| {},
    works: |env, call| {
        let path = env.workspace().join("written").display().to_string();
        call("write_file", json!({ "path": path, "content": "by the server\n" }));
        assert_eq!(fs::read_to_string(&path).unwrap(), "by the server\n");
        assert_eq!(call("read_text_file", json!({ "path": path })), "by the server\n");
    },
};

const EVERYTHING: Public = Public {
    name: "everything",
    program: "@modelcontextprotocol/server-everything/dist/index.js",
    args: &[],
    variables: &[],
    finds: |_| {},
    works: |_, call| assert_eq!(call("echo", json!({ "message": "hello" })), "Echo: hello"),
};

const HOLES: Public = Public {
    name: "holes",
    program: "filesystem-with-holes/dist/index.js",
    args: &["$W"],
    variables: &[],
    finds: |_| {},
    works: |env, call| {
        let path = env.workspace().join("old").display().to_string();
        call("write_file", json!({ "path": path, "content": "by the server\n" }));
        assert_eq!(call("read_file", json!({ "path": path })), "by the server\n");
    },
};

fn git(env: &TestEnv, words: &[&str]) -> ProgramOutcome {
    env.bare().variable("HOME", &env.workspace().display().to_string()).run(&[&["git"], words].concat())
}

const GIT: Public = Public {
    name: "git",
    program: "mcp_server_git",
    args: &["--repository", "$W"],
    variables: &[],
    finds: |env| {
        for words in [&["init", "-q"][..], &["config", "user.name", "a"], &["config", "user.email", "a@b.c"]] {
            assert!(git(env, words).status.success());
        }
        env.workspace_file("file", "hello\n");
    },
    works: |env, call| {
        let at = env.workspace().display().to_string();
        call("git_add", json!({ "repo_path": at, "files": ["file"] }));
        call("git_commit", json!({ "repo_path": at, "message": "by the server" }));
        assert_eq!(git(env, &["log", "--format=%s", "--", "file"]).stdout, "by the server\n");
    },
};

const TIME: Public = Public {
    name: "time",
    program: "mcp_server_time",
    args: &["--local-timezone", "UTC"],
    variables: &[],
    finds: |_| {},
    works: |_, call| {
        let asked = json!({ "source_timezone": "Asia/Tokyo", "time": "12:00", "target_timezone": "UTC" });
        let said = call("convert_time", asked);
        assert!(said.contains("T03:00:00+00:00"), "{said}");
    },
};

const FETCH: Public = Public {
    name: "fetch",
    program: "mcp_server_fetch",
    // With namespaces a granted host has an address of callgate's own.
    args: &["--allow-private-ips"],
    variables: &[],
    // That takes an Internet, which it has below.
    finds: |_| {},
    works: |_, _| {},
};

const SQLITE: Public = Public {
    name: "sqlite",
    program: "mcp_server_sqlite",
    args: &["--db-path", "$W/rows.db"],
    variables: &[],
    finds: |_| {},
    works: |env, call| {
        call("create_table", json!({ "query": "CREATE TABLE t (a TEXT)" }));
        call("write_query", json!({ "query": "INSERT INTO t VALUES ('a row of the server')" }));
        let said = call("read_query", json!({ "query": "SELECT a FROM t" }));
        assert!(said.contains("a row of the server"), "{said}");
        let kept = fs::read(env.workspace().join("rows.db")).unwrap();
        assert!(kept.windows(19).any(|bytes| bytes == b"a row of the server"));
    },
};

impl Public {
    fn is_of_npm(&self) -> bool {
        Path::new(self.program).extension().is_some_and(|end| end == "js")
    }

    fn packages(&self) -> PathBuf {
        match self.name {
            "sqlite" => pip("requirements-sqlite"),
            _ if self.is_of_npm() => npm(),
            _ => pip("requirements"),
        }
    }

    /// The words that start it, after it has made these attempts.
    fn words(&self, env: &TestEnv, attempts: &Attempts) -> Vec<String> {
        let (interpreter, over) = if self.is_of_npm() { (NODE, "taken_over.cjs") } else { (PYTHON, "taken_over.py") };
        let program = match self.is_of_npm() {
            true => self.packages().join("node_modules").join(self.program).display().to_string(),
            false => self.program.to_owned(),
        };
        let first =
            [interpreter.to_owned(), data("servers").join(over).display().to_string(), attempts.text(), program];
        first.into_iter().chain(self.args.iter().map(|word| in_workspace(env, word))).collect()
    }

    fn variables(&self, env: &TestEnv) -> Vec<(String, String)> {
        let own = self.variables.iter().map(|(name, value)| ((*name).to_owned(), in_workspace(env, value)));
        let python = ("PYTHONPATH".to_owned(), self.packages().display().to_string());
        own.chain((!self.is_of_npm()).then_some(python)).collect()
    }

    /// Paths that may be read besides the workspace.
    fn reads(&self) -> [String; 2] {
        [self.packages(), data("servers")].map(|path| path.display().to_string())
    }

    /// `[mcp.NAME]` of a manifest.
    fn table(&self, env: &TestEnv, attempts: &Attempts) -> String {
        let name = self.name;
        let set: toml::Table = self.variables(env).into_iter().map(|(name, value)| (name, value.into())).collect();
        let words = self.words(env, attempts);
        let workspace = env.workspace().display().to_string();
        let variables = self.variables(env).into_iter().map(|(_, value)| value);
        let data: Vec<String> =
            words.iter().cloned().chain(variables).filter(|word| word.contains(&workspace)).collect();
        format!(
            "[mcp.{name}]\ncommand = {words:?}\ndata = {data:?}\ntrusted = true\nstart_timeout = \"60s\"\n\
             [mcp.{name}.requires.fs]\nread = {:?}\nwrite = [\"{{workspace}}/**\"]\n[mcp.{name}.env.set]\n{set}",
            self.reads().map(|path| format!("{path}/**")),
        )
    }

    /// Behind `--wrap`, in which these are granted as well.
    fn wrapped(&self, run: &ProgramRunner, env: &TestEnv, (attempts, more): (&Attempts, &[&str])) -> StdioClient {
        let mut words: Vec<String> =
            [&Binaries::of_this_build().callgate().display().to_string(), "mcp", "--name", self.name]
                .map(str::to_owned)
                .to_vec();
        words.extend(more.iter().map(|&word| word.to_owned()));
        words.extend(self.reads().into_iter().flat_map(|path| ["--read".to_owned(), path]));
        let variables = self.variables(env).into_iter();
        words.extend(variables.flat_map(|(name, value)| ["--env".to_owned(), format!("{name}={value}")]));
        words.extend(["--wrap", "--"].map(str::to_owned));
        words.extend(self.words(env, attempts));
        client_of(run, env, &words)
    }
}

fn in_workspace(env: &TestEnv, word: &str) -> String {
    word.replace("$W", &env.workspace().display().to_string())
}

/// A client of what these words start. Its errors are kept.
pub(crate) fn client_of(run: &ProgramRunner, env: &TestEnv, words: &[impl AsRef<str>]) -> StdioClient {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    let mut command = run.command(&words);
    command.stderr(File::create(env.outside().join("errors")).unwrap());
    StdioClient::of(command)
}

/// Text that was written to standard error.
pub(crate) fn errors(env: &TestEnv) -> String {
    String::from_utf8_lossy(&fs::read(env.outside().join("errors")).unwrap()).into_owned()
}

/// How many processes have this in their command line.
pub(crate) fn running(text: &str) -> usize {
    pids(text).len()
}

/// Which.
pub(crate) fn pids(text: &str) -> Vec<u32> {
    let of = |entry: fs::DirEntry| {
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        // A zombie has none.
        String::from_utf8_lossy(&line).contains(text).then(|| entry.file_name().to_str()?.parse().ok())?
    };
    fs::read_dir("/proc").unwrap().flatten().filter_map(of).collect()
}

/// A directory that no grant mentions, and in which callgate has nothing either.
fn elsewhere(env: &TestEnv) -> PathBuf {
    let elsewhere = PathBuf::from(format!("{}-beside", env.workspace().display()));
    if !elsewhere.exists() {
        fs::create_dir(&elsewhere).unwrap();
        env.give(&elsewhere);
    }
    elsewhere
}

/// Attempts of a server that was taken over, and what must not come of it.
struct Attempts {
    secret: PathBuf,
    new: PathBuf,
    listener: TcpListener,
    value: String,
    stays: String,
}

impl Attempts {
    fn new(env: &TestEnv) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let elsewhere = elsewhere(env);
        Self {
            secret: env.file_at(elsewhere.join("secret"), "a secret").to_path_buf(),
            new: elsewhere.join("new"),
            listener,
            value: format!("a-secret-of-the-environment-{}-{count}", std::process::id()),
            stays: format!("7200.{}{count:03}", std::process::id()),
        }
    }

    fn text(&self) -> String {
        let port = self.listener.local_addr().unwrap().port();
        // It is not to be found in the words.
        let value = self.value.replace('-', "\\u002d");
        json!({ "read": self.secret, "write": self.new, "connect": port, "environment": "VALUE", "stay": self.stays })
            .to_string()
            .replace("VALUE", &value)
    }

    /// The variable that the server must not have.
    fn on(&self, run: ProgramRunner) -> ProgramRunner {
        run.variable("A_SECRET", &self.value)
    }

    fn has_come(&self) -> bool {
        self.listener.accept().is_ok()
    }

    /// All of them came off: the control.
    #[track_caller]
    fn assert_made(&self, came: &Value) {
        let done =
            json!({ "read": "a secret", "write": "done", "connect": "done", "environment": "done", "stay": "done" });
        assert_eq!(*came, done);
        assert_eq!(fs::read_to_string(&self.new).unwrap(), "taken over");
        assert!(self.has_come());
        let stayed = pids(&self.stays);
        assert_eq!(stayed.len(), 1);
        fs::remove_file(&self.new).unwrap();
        assert!(Command::new("kill").arg(stayed[0].to_string()).status().unwrap().success());
        eventually("it has ended", || running(&self.stays) == 0);
    }

    /// None did.
    #[track_caller]
    fn assert_failed(&self, target: Target, came: &Value) {
        let hidden = target.by_strength("ENOENT", "EACCES");
        let refused = json!({
            "read": hidden, "write": hidden, "connect": "ECONNREFUSED", "environment": "none", "stay": "done",
        });
        assert_eq!(*came, refused);
        assert!(!self.new.exists());
        assert!(!self.has_come());
        eventually("all has ended", || running(&self.stays) == 0);
    }
}

impl Drop for Attempts {
    fn drop(&mut self) {
        // Where a control failed before it was looked at.
        for pid in pids(&self.stays) {
            drop(Command::new("kill").arg(pid.to_string()).status());
        }
    }
}

/// Results of a server's attempts, as it said.
#[track_caller]
fn came(env: &TestEnv, start: &str) -> Value {
    let said = errors(env);
    let line = said.lines().find_map(|line| line.strip_prefix(start)?.strip_prefix("taken over: "));
    serde_json::from_str(line.unwrap_or_else(|| panic!("{said}"))).unwrap()
}

/// It works bare and wrapped; taken over, it reaches bare what it does not reach wrapped.
fn works_and_reaches_no_more(server: &Public) {
    let env = TestEnv::new(HERE);
    let attempts = Attempts::new(&env);
    let home = env.workspace().display().to_string();
    let bare = server
        .variables(&env)
        .iter()
        .fold(env.bare().variable("HOME", &home), |run, (name, value)| run.variable(name, value));
    (server.finds)(&env);
    let mut client = client_of(&attempts.on(bare), &env, &server.words(&env, &attempts));
    client.initialize(PersonAnswer::Nobody);
    client.close();
    attempts.assert_made(&came(&env, ""));
    let test = |target: Target| {
        let env = TestEnv::new(target);
        let attempts = Attempts::new(&env);
        (server.finds)(&env);
        let mut client = server.wrapped(&attempts.on(user(&env)), &env, (&attempts, &[]));
        client.initialize(PersonAnswer::Nobody);
        (server.works)(&env, &mut |tool, arguments| {
            text(&client.call(tool, arguments, PersonAnswer::Nobody)).to_owned()
        });
        client.close();
        attempts.assert_failed(target, &came(&env, &format!("{}: ", server.name)));
    };
    // Python takes a while.
    if server.is_of_npm() { matrix(Host::STRENGTHS, test) } else { matrix_as(User::Ordinary, Host::STRENGTHS, test) }
}

#[test]
fn npm_memory_works_and_reaches_no_more() {
    works_and_reaches_no_more(&MEMORY);
}

#[test]
fn npm_filesystem_works_and_reaches_no_more() {
    works_and_reaches_no_more(&FILESYSTEM);
}

#[test]
fn npm_everything_works_and_reaches_no_more() {
    works_and_reaches_no_more(&EVERYTHING);
}

#[test]
fn npm_an_old_filesystem_works_and_reaches_no_more() {
    works_and_reaches_no_more(&HOLES);
}

#[test]
fn pypi_git_works_and_reaches_no_more() {
    works_and_reaches_no_more(&GIT);
}

#[test]
fn pypi_time_works_and_reaches_no_more() {
    works_and_reaches_no_more(&TIME);
}

#[test]
fn pypi_fetch_works_and_reaches_no_more() {
    works_and_reaches_no_more(&FETCH);
}

#[test]
fn pypi_sqlite_works_and_reaches_no_more() {
    works_and_reaches_no_more(&SQLITE);
}

/// C-9: all of them are servers of one session, each with its own rights.
#[test]
fn c_9_all_of_them_serve_one_session() {
    matrix_as(User::Ordinary, Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        (GIT.finds)(&env);
        let servers = [MEMORY, FILESYSTEM, EVERYTHING, HOLES, GIT, TIME, FETCH, SQLITE];
        let attempts: Vec<Attempts> = servers.iter().map(|_| Attempts::new(&env)).collect();
        let tables = servers.iter().zip(&attempts).map(|(server, attempts)| server.table(&env, attempts));
        let reads: BTreeSet<String> =
            servers.iter().flat_map(|server| server.reads()).map(|path| format!("{path}/**")).collect();
        let reads: Vec<String> = reads.into_iter().collect();
        // A server has no more than the session.
        let manifest = format!(
            "id = \"all\"\ntools = [\"read\", \"tool_search\"]\n[requires.fs]\nread = {reads:?}\n\
             write = [\"{{workspace}}/**\"]\n[[requires.shell]]\ncmd = \"*\"\n"
        );
        env.workspace_file("m.toml", &(manifest + &tables.collect::<String>()));
        let words = [&Binaries::of_this_build().callgate().display().to_string(), "mcp", "--manifest", "m.toml"];
        let run = attempts.iter().fold(user(&env), |run, attempts| attempts.on(run));
        let mut client = client_of(&run, &env, &words);
        client.initialize(PersonAnswer::Nobody);
        for server in &servers {
            (server.works)(&env, &mut |tool, arguments| {
                let named = format!("mcp__{}__{tool}", server.name);
                // One that is listed already is not found.
                client.call("tool_search", json!({ "query": named }), PersonAnswer::Nobody);
                text(&client.call(&named, arguments, PersonAnswer::Nobody)).to_owned()
            });
        }
        client.close();
        for (server, attempts) in servers.iter().zip(&attempts) {
            attempts.assert_failed(target, &came(&env, &format!("{}: ", server.name)));
        }
    });
}

/// CVE-2025-53110 (a directory whose name begins like the granted one's) and CVE-2025-53109 (a symbolic link that leads out)
/// work against the server that has them, and lead nowhere behind callgate.
#[test]
fn holes_of_a_server_lead_nowhere() {
    let exploit = |env: &TestEnv, client: &mut StdioClient| -> Vec<Value> {
        let beside = elsewhere(env);
        env.file_at(beside.join("secret"), "a secret beside");
        for (link, to) in [("link", "secret"), ("new-link", "linked")] {
            std::os::unix::fs::symlink(beside.join(to), env.workspace().join(link)).unwrap();
        }
        client.initialize(PersonAnswer::Nobody);
        let read = |path: PathBuf| ("read_file", json!({ "path": path }));
        let write = |path: PathBuf| ("write_file", json!({ "path": path, "content": "taken over" }));
        let acts = [
            read(beside.join("secret")),
            write(beside.join("new")),
            read(env.workspace().join("link")),
            write(env.workspace().join("new-link")),
        ];
        acts.into_iter().map(|(tool, arguments)| client.call(tool, arguments, PersonAnswer::Nobody)).collect()
    };
    let env = TestEnv::new(HERE);
    let words = [NODE, &npm().join("node_modules").join(HOLES.program).display().to_string(), "$W"];
    let mut client = client_of(&env.bare(), &env, &words.map(|word| in_workspace(&env, word)));
    let came = exploit(&env, &mut client);
    client.close();
    let said = |answer: &Value| answer["result"]["content"][0]["text"].as_str().unwrap().to_owned();
    assert_eq!((&*said(&came[0]), &*said(&came[2])), ("a secret beside", "a secret beside"), "{came:#?}");
    for file in ["new", "linked"] {
        assert_eq!(fs::read_to_string(elsewhere(&env).join(file)).unwrap(), "taken over", "{came:#?}");
    }
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let words: Vec<String> = [
            &Binaries::of_this_build().callgate().display().to_string(),
            "mcp",
            "--read",
            &npm().display().to_string(),
            "--wrap",
            "--",
            NODE,
            &npm().join("node_modules").join(HOLES.program).display().to_string(),
            &env.workspace().display().to_string(),
        ]
        .map(str::to_owned)
        .to_vec();
        let mut client = client_of(&user(&env), &env, &words);
        let came = exploit(&env, &mut client);
        client.close();
        for answer in &came {
            assert!(wrong(answer).starts_with("Error"), "{answer}");
        }
        assert_eq!(fs::read_to_string(elsewhere(&env).join("secret")).unwrap(), "a secret beside");
        for file in ["new", "linked"] {
            assert!(!elsewhere(&env).join(file).exists(), "{file}");
        }
    });
}

/// A server that fetches pages gets those of granted hosts. What it was refused is said, with what grants it.
#[test]
fn a_server_reaches_granted_hosts_alone() {
    matrix_as(User::Ordinary, Host::STRENGTHS, |target| {
        let Some(internet) = Internet::new(target, "") else { return };
        let env = &internet.env;
        let attempts = Attempts::new(env);
        let run = internet.on(user(env));
        let mut client = FETCH.wrapped(&run, env, (&attempts, &["--net", "good.example"]));
        client.initialize(PersonAnswer::Nobody);
        let mut fetch = |url: &str| client.call("fetch", json!({ "url": url, "raw": true }), PersonAnswer::Nobody);
        let answer = fetch("http://good.example/page");
        assert!(text(&answer).contains("http of 93.184.216.34 for good.example"), "{answer}");
        internet.seen();
        for url in ["http://evil.example/page", "http://good.example:8080/", "http://10.0.0.1/"] {
            let answer = fetch(url);
            assert_eq!(answer["result"]["isError"], true, "{answer}");
            let seen = internet.seen();
            assert!(!seen.lines().any(|line| !line.starts_with("name good.example ")), "{url}: {seen}");
        }
        client.close();
        let said = errors(env);
        assert!(said.contains("callgate: fetch: ") && said.contains("--net evil.example"), "{said}");
    });
}

/// A manifest with a server that keeps what it is called for (`tests/data/mcp/hostile.py`, which is honest here).
fn manifest_of(env: &TestEnv, mode: &str, (table, rest): (&str, &str)) -> String {
    let script = data("hostile.py").display().to_string();
    let log = seen_at(env).display().to_string();
    let manifest = format!(
        "id = \"rules\"\ntools = [\"read\", \"tool_search\"]\n{rest}\n\
         [requires.fs]\nread = [{script:?}]\nwrite = [\"{{workspace}}/**\"]\n\
         [[requires.shell]]\ncmd = \"*\"\n[mcp.s]\ncommand = [{PYTHON:?}, {script:?}, {mode:?}, {log:?}]\n\
         data = [{log:?}]\n{table}\n\
         [mcp.s.requires.fs]\nread = [{script:?}]\nwrite = [\"{{workspace}}/**\"]\n"
    );
    env.workspace_file("m.toml", &manifest);
    "m.toml".to_owned()
}

fn seen_at(env: &TestEnv) -> PathBuf {
    env.workspace().join("seen")
}

/// How many calls the server has got.
fn seen(env: &TestEnv) -> usize {
    fs::read_to_string(seen_at(env)).map_or(0, |text| text.lines().count())
}

/// As `[mcp.s]`, or behind `--wrap --name s`.
fn serves(
    env: &TestEnv,
    mode: &str,
    (table, rest, is_wrapped): (&str, &str, bool),
    person: PersonAnswer,
) -> StdioClient {
    let mut words = vec![Binaries::of_this_build().callgate().display().to_string(), "mcp".to_owned()];
    words.extend(["--manifest".to_owned(), manifest_of(env, mode, (table, rest))]);
    if is_wrapped {
        let script = data("hostile.py").display().to_string();
        words.extend(["--name", "s", "--wrap", "--", PYTHON, &script, mode].map(str::to_owned));
        words.push(seen_at(env).display().to_string());
    }
    let mut client = client_of(&user(env), env, &words);
    client.initialize(person);
    client
}

fn rule(permission: &str, action: &str) -> String {
    format!("[[rules]]\npermission = \"{permission}\"\naction = \"{action}\"\n")
}

/// X0-10, X0-46, X1-39: the calls of a server that somebody typed behind `--wrap` are not asked about. Those of a server in a
/// manifest are, unless it is trusted. A rule that names the tool comes before both.
#[test]
fn x0_10_x0_46_x1_39_rules_and_trust_decide_about_calls() {
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum CallFate {
        Passes,
        Asks,
        Denies,
    }
    let trusted = "trusted = true";
    let echo = |action| rule("mcp:s:echo", action);
    let all = |action| rule("mcp:s:*", action);
    for (table, rest, is_wrapped, then) in [
        ("", String::new(), true, CallFate::Passes),
        ("", echo("deny"), true, CallFate::Denies),
        ("", echo("ask"), true, CallFate::Asks),
        ("", all("deny"), true, CallFate::Denies),
        ("", rule("mcp:s:other", "deny"), true, CallFate::Passes),
        ("", String::new(), false, CallFate::Asks),
        (trusted, String::new(), false, CallFate::Passes),
        (trusted, echo("ask"), false, CallFate::Asks),
        (trusted, all("deny"), false, CallFate::Denies),
        ("", all("allow"), false, CallFate::Passes),
        ("", rule("mcp:*:other", "allow"), false, CallFate::Asks),
    ] {
        let env = TestEnv::new(HERE);
        let mut client = serves(&env, "plain", (table, &rest, is_wrapped), PersonAnswer::Says("once"));
        let tool = if is_wrapped { "echo" } else { "mcp__s__echo" };
        let case = format!("{table:?}, {rest:?}, wrapped: {is_wrapped}");
        match then {
            CallFate::Passes => {
                assert_eq!(text(&client.call(tool, json!({ "a": 1 }), PersonAnswer::Nobody)), "{\"a\": 1}", "{case}");
                assert_eq!((seen(&env), client.asked.len()), (1, 0), "{case}");
            }
            CallFate::Denies => {
                let answer = client.call(tool, json!({ "a": 1 }), PersonAnswer::Nobody);
                assert!(wrong(&answer).contains("the rule deny mcp:s:"), "{case}: {answer}");
                assert_eq!(seen(&env), 0, "{case}");
            }
            CallFate::Asks => {
                let answer = client.call(tool, json!({ "a": 1 }), PersonAnswer::Says("no"));
                assert!(wrong(&answer).ends_with("is denied: a person said no"), "{case}: {answer}");
                assert_eq!((seen(&env), client.asked.len()), (0, 1), "{case}");
                assert!(client.asked[0].contains("echo"), "{case}: {:?}", client.asked);
                text(&client.call(tool, json!({ "a": 1 }), PersonAnswer::Says("once")));
                assert_eq!((seen(&env), client.asked.len()), (1, 2), "{case}");
            }
        }
        client.close();
    }
}

/// X0-10, S0-51: a rule that names tools of a server is not about that server's own session, which starts; it holds for the calls,
/// also as one about an argument in any spelling, and for those alone.
#[test]
fn a_server_starts_that_a_rule_is_about() {
    matrix(Host::STRENGTHS, |target| {
        for (permission, pattern) in [
            ("mcp:s:echo", "path=secret/**"),
            ("mcp:s:echo", "secret/**"),
            ("mcp:s:*", "/secret/**"),
            ("mcp:s:echo", "*secret*"),
        ] {
            let env = TestEnv::new(target);
            let pattern = if pattern.starts_with('/') { format!("{{workspace}}{pattern}") } else { pattern.to_owned() };
            let rule = format!("{}pattern = {pattern:?}\n", rule(permission, "deny"));
            let mut client = serves(&env, "plain", ("trusted = true", &rule, false), PersonAnswer::Nobody);
            let passes = json!({ "path": "docs/key" });
            assert_eq!(
                text(&client.call("mcp__s__echo", passes.clone(), PersonAnswer::Nobody)),
                "{\"path\": \"docs/key\"}"
            );
            for path in ["secret/key", "./secret//key", "docs/../secret/key"] {
                let denied = client.call("mcp__s__echo", json!({ "path": path }), PersonAnswer::Nobody);
                assert!(wrong(&denied).contains("the rule deny mcp:s:"), "{pattern} {path}: {denied}");
            }
            assert_eq!(seen(&env), 1, "{pattern}");
            text(&client.call("mcp__s__echo", passes, PersonAnswer::Nobody));
            client.close();
        }
    });
}

/// X0-10, X1-11: `--wrap` lets calls pass by a default, which comes after every rule, mode and profile that somebody has written.
#[test]
fn x1_11_what_is_written_comes_before_the_default_of_wrap() {
    matrix(Host::STRENGTHS, |target| {
        // The profile is read from the manifest's directory.
        let profile =
            |approval: &str| format!("profile: p\nshell: unrestricted\nfile_write: full\napproval: {approval}\n");
        let of_file = "profile = \"./p.yaml\"";
        for (rest, approval, asks) in [
            ("mode = \"ask\"", "none", true),
            ("mode = \"auto-edit\"", "none", true),
            (&rule("*", "ask"), "none", true),
            (&rule("mcp:*:*", "ask"), "none", true),
            (of_file, "all", true),
            (of_file, "{mode: granular, required_tools: [bash]}", false),
            (of_file, "none", false),
            ("", "none", false),
        ] {
            let env = TestEnv::new(target);
            env.workspace_file("p.yaml", &profile(approval));
            let mut client = serves(&env, "plain", ("", rest, true), PersonAnswer::Says("no"));
            let answer = client.call("echo", json!({ "a": 1 }), PersonAnswer::Says("no"));
            let case = format!("{rest:?}, {approval:?}: {answer}");
            if asks {
                assert!(wrong(&answer).ends_with("is denied: a person said no"), "{case}");
                assert_eq!((seen(&env), client.asked.len()), (0, 1), "{case}");
            } else {
                assert_eq!(text(&answer), "{\"a\": 1}", "{case}");
                assert_eq!((seen(&env), client.asked.len()), (1, 0), "{case}");
            }
            client.close();
        }
    });
}

/// The calls of a server are recorded, and what it was refused is said with what grants it.
#[test]
fn calls_of_a_server_are_recorded() {
    for is_wrapped in [true, false] {
        let env = TestEnv::new(HERE);
        let mut client = serves(&env, "error", ("trusted = true", "", is_wrapped), PersonAnswer::Nobody);
        let prefix = if is_wrapped { "" } else { "mcp__s__" };
        text(&client.call(&format!("{prefix}echo"), json!({ "a": "an argument" }), PersonAnswer::Nobody));
        let outside = elsewhere(&env).join("secret").display().to_string();
        wrong(&client.call(&format!("{prefix}act"), json!({ "path": outside }), PersonAnswer::Nobody));
        client.close();
        let said = errors(&env);
        assert!(
            said.contains(&format!(
                "callgate: s: a call that failed names {outside}, which is not granted; to grant it: --read {outside}"
            )),
            "{said}"
        );
        let sessions: Value = serde_json::from_str(&callgate(&env, &["session", "list", "--json"]).stdout).unwrap();
        let shown = sessions
            .as_array()
            .unwrap()
            .iter()
            .map(|session| callgate(&env, &["session", "show", session["id"].as_str().unwrap(), "--json"]).stdout);
        let calls = shown.filter(|shown| shown.contains("an argument")).collect::<Vec<_>>();
        assert_eq!(calls.len(), 1, "{calls:?}");
        assert!(calls[0].contains(&format!("\"{prefix}echo\"")), "{calls:?}");
    }
}

/// X0-45, X0-46: of a server with many tools a model sees those that it has searched for; texts are short.
#[test]
fn x0_45_x0_46_many_tools_are_searched_for_and_texts_are_short() {
    let env = TestEnv::new(HERE);
    let mut client = serves(&env, "thirty", ("trusted = true", "", false), PersonAnswer::Nobody);
    let tool = |client: &mut StdioClient, name: &str| -> Option<Value> {
        let listed = client.request("tools/list", json!({}), PersonAnswer::Nobody);
        let tools = listed["result"]["tools"].as_array().unwrap();
        tools.iter().find(|tool| tool["name"] == name).cloned()
    };
    assert_eq!(tool(&mut client, "mcp__s__t17"), None);
    let found = client.call("tool_search", json!({ "query": "t17" }), PersonAnswer::Nobody);
    assert!(text(&found).contains("mcp__s__t17"), "{found}");
    let after = tool(&mut client, "mcp__s__t17").unwrap();
    assert_eq!(after["description"], "Says it (t17).");
    text(&client.call("mcp__s__t17", json!({}), PersonAnswer::Nobody));
    client.close();

    let env = TestEnv::new(HERE);
    let mut client = serves(&env, "descriptions", ("trusted = true", "", false), PersonAnswer::Nobody);
    let long = tool(&mut client, "mcp__s__long").unwrap();
    let text = long["description"].as_str().unwrap();
    assert_eq!((text.chars().count(), text.chars().last()), (201, Some('…')), "{text}");
    assert!(text.starts_with("[2J]0;ownedevild"), "{text}");
    client.close();
}

/// X0-24: a server has no right that its session has not, and is not what calls of the session write.
#[test]
fn x0_24_a_server_is_within_its_session_and_is_not_what_calls_write() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let script = data("hostile.py").display().to_string();
        let _kept = env.file("secret", "what nobody granted");
        let secret = env.outside().join("secret").display().to_string();
        env.workspace_file("server.py", &fs::read_to_string(data("hostile.py")).unwrap());
        fs::create_dir(env.workspace().join("package")).unwrap();
        env.give(&env.workspace().join("package"));
        let workspace = env.workspace().display().to_string();
        let serves_with = |command: &[&str], of_session: &[&str], more: &str| {
            let read: Vec<&str> = [&[script.as_str()], of_session].concat();
            env.workspace_file(
                "m.toml",
                &format!(
                    "id = \"within\"\n[requires.fs]\nread = {read:?}\nwrite = [\"{{workspace}}/**\"]\n[[requires.shell]]\n\
                     cmd = \"*\"\n[mcp.s]\ncommand = {command:?}\ntrusted = true\n{more}\n[mcp.s.requires.fs]\n\
                     read = [{script:?}, {secret:?}]\nwrite = [\"{{workspace}}/**\"]\n"
                ),
            );
            let call = ["call", "--manifest", "m.toml", "mcp__s__echo", "{}"];
            callgate(&env, &call)
        };
        let serves = |command: &[&str], of_session: &[&str]| serves_with(command, of_session, "");
        let reads = format!("import sys\nprint(open({secret:?}).read(), file=sys.stderr, flush=True)\n");
        let reader = [PYTHON, "-c", &format!("{reads}exec(open({script:?}).read())"), "plain", "/dev/null"];
        let control = serves(&reader, &[&secret]);
        assert!(control.status.success() && control.stderr.contains("what nobody granted"), "{control:?}");
        let denied = serves(&reader, &[]);
        assert!(!denied.status.success() && !denied.stderr.contains("what nobody granted"), "{denied:?}");

        let plain = &[PYTHON, &script, "plain", "/dev/null"][..];
        let on_the_workspace = &[PYTHON, &script, "plain", "/dev/null", "{workspace}"][..];
        for (command, more) in [(plain, ""), (on_the_workspace, ""), (plain, "env.pass = [\"LANG\"]")] {
            let control = serves_with(command, &[], more);
            assert!(control.status.success(), "{control:?}");
        }
        let package = format!("env.set = {{ PYTHONPATH = \"{workspace}/package\" }}");
        for (command, more) in [(plain, package.as_str()), (on_the_workspace, "env.pass = [\"LANG\"]")] {
            let refused = serves_with(command, &[], more);
            assert!(
                !refused.status.success() && refused.stderr.contains("the agent could choose what it is"),
                "{refused:?}"
            );
        }
        for command in [
            &[PYTHON, "{workspace}/server.py", "plain", "/dev/null"][..],
            &[PYTHON, "{workspace}/package"],
            &[PYTHON, "{workspace}/not-there-yet"],
            &["sh", "-c", "cd {workspace} && exec python3 server.py plain /dev/null"],
            &["env", "PYTHONPATH={workspace}/package", PYTHON, &script, "plain", "/dev/null"],
            &["env", "--chdir={workspace}/package", PYTHON, &script, "plain", "/dev/null"],
        ] {
            let refused = serves(command, &[]);
            assert!(!refused.status.success(), "{command:?}: {refused:?}");
            let why = format!("names {workspace}");
            assert!(
                refused.stderr.contains("the agent could choose what it is") && refused.stderr.contains(&why),
                "{refused:?}"
            );
        }
    });
}
