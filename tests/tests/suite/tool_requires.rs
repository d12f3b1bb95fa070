//! Requirements of tools (S0-5, S0-7, S0-8, C-1): what a tool needs comes with it from its configuration, for its own calls alone, and
//! what bounds the session bounds that too.

use std::fs;

use callgate_tests::{Binaries, Host, ProgramOutcome, ProgramRunner, TestEnv, matrix};
use serde_json::{Value, json};

use super::network::{Internet, on_an_internet_with, on_the_internet};

fn binary() -> String {
    Binaries::of_this_build().callgate().display().to_string()
}

fn answered(ended: &ProgramOutcome) -> (i32, Value) {
    let envelope = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    (ended.status.code().unwrap(), envelope)
}

/// One call under a manifest, where these variables are set.
fn call(
    internet: &Internet,
    manifest: &str,
    variables: &[(&str, &str)],
    tool: &str,
    arguments: &Value,
) -> (i32, Value) {
    let manifest = internet.env.file("m.toml", &format!("mode = \"yolo\"\n{manifest}")).text().to_owned();
    let state = internet.env.outside().join("state").display().to_string();
    let run = internet.env.weakened().variable("XDG_STATE_HOME", &state);
    let run = variables.iter().fold(run, |run: ProgramRunner, (name, value)| run.variable(name, value));
    answered(&internet.on(run).run(&[&binary(), "call", "--manifest", &manifest, tool, &arguments.to_string()]))
}

/// A provider of searches, and nothing that grants its host.
const SEARCH: &str = "[net.search]\nproviders = [{ kind = \"searxng\", url = \"http://good.example\" }]\n";

fn search(internet: &Internet, manifest: &str) -> (i32, Value) {
    call(internet, manifest, &[], "web_search", &json!({ "query": "what is it" }))
}

fn curl(internet: &Internet, manifest: &str, host: &str) -> Value {
    let command = format!("curl -sS -m 60 http://{host}/by-bash; getent hosts {host}; true");
    let (status, envelope) = call(internet, manifest, &[], "bash", &json!({ "command": command }));
    assert_eq!(status, 0, "{envelope}");
    envelope
}

/// S0-8, C-1: a provider that is named is reached, without a line of its own in `[requires.net]`. Programs of the session do not reach
/// it, unless their own host is granted, and reach that as they did.
#[test]
fn s0_8_c_1_a_search_provider_is_reached_by_its_tool_alone() {
    on_the_internet(|internet| {
        let (status, envelope) = search(internet, SEARCH);
        assert_eq!((status, &envelope["data"]["provider"]), (0, &json!("searxng")), "{envelope}");
        assert!(internet.seen().contains("q=what+is+it"), "{envelope}");

        let by_bash = curl(internet, SEARCH, "good.example");
        assert_eq!(internet.seen(), "", "{by_bash}");
        // By its name where there are namespaces, and as a name that was looked up where there are none.
        let refused = &by_bash["metadata"]["changes"];
        assert!(!refused["not_reached"].is_null() || !refused["blocked"].is_null(), "{by_bash}");
        // Another host of the session's own is reached, and the provider still is not.
        let with_other = format!("[requires.net]\nhosts = [\"sub.good.example\"]\n{SEARCH}");
        curl(internet, &with_other, "good.example");
        assert_eq!(internet.seen(), "");
        curl(internet, &with_other, "sub.good.example");
        assert!(internet.seen().contains("/by-bash"), "the control");
        // A manifest that grants it to the session grants it to programs.
        curl(internet, &format!("[requires.net]\nhosts = [\"good.example\"]\n{SEARCH}"), "good.example");
        assert!(internet.seen().contains("/by-bash"), "the control");
        // Nor does another tool reach it.
        let fetch = json!({ "url": "http://good.example/by-fetch" });
        assert_eq!(call(internet, SEARCH, &[], "web_fetch", &fetch).0, 77);
        assert_eq!(internet.seen(), "");
    });
}

/// C-1: a ceiling bounds what tools require, and the denial names its line. A tool that is not offered adds nothing.
#[test]
fn c_1_a_ceiling_bounds_what_a_tool_requires_and_is_named() {
    on_the_internet(|internet| {
        let denied = |manifest: &str, line: &str| {
            let (status, envelope) = search(internet, manifest);
            let denial = &envelope["metadata"]["denial"];
            assert_eq!((status, &denial["asked"]), (77, &json!("net.hosts good.example:80")), "{envelope}");
            let reason = denial["reason"].as_str().unwrap();
            assert!(reason.contains("was asked for, but is bounded to nothing by `[ceiling.net]`"), "{reason}");
            assert!(reason.ends_with(line), "{reason}");
            let remedy = denial["remedy"].as_str().unwrap();
            assert_eq!(remedy, "add \"good.example\" to `hosts` in [ceiling.net]");
            assert_eq!(internet.seen(), "", "nobody was asked");
        };
        denied(&format!("[ceiling.net]\nhosts = []\n{SEARCH}"), "m.toml line 2");
        denied(&format!("{SEARCH}[ceiling.net]\nhosts = [\"evil.example\"]\n"), "m.toml line 4");
        // The control: a ceiling that leaves it.
        assert_eq!(search(internet, &format!("[ceiling.net]\nhosts = [\"good.example\"]\n{SEARCH}")).0, 0);
        assert!(!internet.seen().is_empty());
        // Where it is not offered, nothing of it counts: there is no network at all.
        let without = curl(internet, &format!("tools = [\"bash\", \"read\"]\n{SEARCH}"), "good.example");
        assert_eq!(internet.seen(), "", "{without}");
    });
}

/// S0-8: the host of a model, and that of an organization, come from where they are configured, for their tool alone.
#[test]
fn s0_8_services_are_reached_where_they_are_configured() {
    on_the_internet(|internet| {
        let rlm = "extra = [\"rlm_query\"]\n[net.rlm]\nurl = \"http://good.example\"\n";
        let question = json!({ "prompt": "what is it" });
        let (_, envelope) = call(internet, rlm, &[], "rlm_query", &question);
        assert!(
            envelope["data"]["answers"][0]["error"].as_str().unwrap().contains("status 401"),
            "it was asked: {envelope}"
        );
        internet.seen();
        let (status, envelope) =
            call(internet, &format!("{rlm}[ceiling.net]\nhosts = []\n"), &[], "rlm_query", &question);
        assert_eq!((status, internet.seen().as_str()), (77, ""), "{envelope}");
        curl(internet, rlm, "good.example");
        assert_eq!(internet.seen(), "");

        let variables = [
            ("AZURE_DEVOPS_ORG", "acme"),
            ("AZURE_DEVOPS_URL", "https://good.example"),
            ("AZURE_DEVOPS_PAT", "azure-token-8842cc"),
        ];
        let azure = "extra = [\"azure_devops\"]\n";
        let get = json!({ "operation": "search", "project": "Web Shop", "wiql": "SELECT [System.Id] FROM WorkItems" });
        let (status, envelope) = call(internet, azure, &variables, "azure_devops", &get);
        assert_eq!(status, 0, "{envelope}");
        let bounded = format!("{azure}[ceiling.net]\nhosts = []\n");
        assert_eq!(call(internet, &bounded, &variables, "azure_devops", &get).0, 77);
    });
}

/// S0-8: a database server is reached where it is configured, by its tool alone.
#[test]
fn s0_8_a_database_server_is_reached_by_its_tool_alone() {
    on_an_internet_with("postgres", |internet| {
        let variables = [
            ("POSTGRES_HOST", "good.example"),
            ("POSTGRES_DATABASE", "shop"),
            ("POSTGRES_USER", "user"),
            ("POSTGRES_PASSWORD", "database-secret-77af01"),
        ];
        let manifest = "extra = [\"postgres\"]\n";
        let query = json!({ "operation": "query", "sql": "SELECT 1" });
        let (status, envelope) = call(internet, manifest, &variables, "postgres", &query);
        // Whatever the server thinks of the user, it was reached.
        assert!(status != 77 && envelope["metadata"]["denial"].is_null(), "{envelope}");
        let bounded = format!("{manifest}[ceiling.net]\nhosts = [\"evil.example\"]\n");
        let (status, envelope) = call(internet, &bounded, &variables, "postgres", &query);
        assert_eq!((status, &envelope["metadata"]["denial"]["layer"]), (77, &json!("capability")), "{envelope}");
    });
}

/// A database outside of everything that is granted.
fn shop(env: &TestEnv) -> (String, ProgramRunner) {
    let directory = env.outside().join("databases");
    fs::create_dir(&directory).unwrap();
    env.give(&directory);
    let path = directory.join("shop.db").display().to_string();
    let items = "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT); INSERT INTO item VALUES (1, 'tea')";
    let made = env.bare().run(&["sqlite3", &path, items]);
    assert!(made.status.success(), "{made:?}");
    env.give(std::path::Path::new(&path));
    let home = env.outside().display().to_string();
    let run = env.weakened().variable("HOME", &home).variable("XDG_STATE_HOME", &format!("{home}/state"));
    (path.clone(), run.variable("SQLITE_DB", &path))
}

/// S0-8: a database file outside the workspace is read by its tool, and written only where the profile has it; programs of the session
/// do neither. A ceiling bounds it.
#[test]
fn s0_8_a_database_file_is_opened_by_its_tool_alone() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (path, run) = shop(&env);
        let call = |manifest: &str, tool: &str, arguments: &Value| {
            let text = format!("mode = \"yolo\"\nextra = [\"sqlite\"]\n{manifest}");
            let manifest = env.file("m.toml", &text).text().to_owned();
            answered(&run.run(&[&binary(), "call", "--manifest", &manifest, tool, &arguments.to_string()]))
        };
        // It says what it requires (S0-5).
        let listed = run.run(&[&binary(), "tools", "--extra", "sqlite", "--json"]);
        let listed: Value = serde_json::from_str(&listed.stdout).unwrap_or_else(|error| panic!("{error}: {listed:?}"));
        let tool = listed.as_array().unwrap().iter().find(|tool| tool["id"] == "sqlite").unwrap();
        let wanted = ["", "-journal", "-wal", "-shm"].map(|suffix| format!("{path}{suffix}"));
        assert_eq!((&tool["requires"]["fs"]["read"], &tool["requires"]["fs"]["write"]), (&json!(wanted), &json!([])));

        let query = |sql: &str| json!({ "operation": "query", "sql": sql });
        let rows = query("SELECT name FROM item ORDER BY id");
        let (status, envelope) = call("", "sqlite", &rows);
        assert_eq!((status, &envelope["data"]["rows"]), (0, &json!([["tea"]])), "{envelope}");
        let (status, _) = call("", "sqlite", &query("INSERT INTO item VALUES (2, 'jam')"));
        assert_ne!(status, 0, "the profile has no changes");

        let mutations = env.workspace_file(
            "mine.yaml",
            "profile: mine\nshell:\n  mode: unrestricted\nfile_write:\n  mode: full\ndatabase:\n  mode: mutations\n",
        );
        let changing = format!("profile = \"{}\"\n", mutations.text());
        let (status, envelope) = call(&changing, "sqlite", &query("INSERT INTO item VALUES (2, 'jam')"));
        assert_eq!(status, 0, "{envelope}");
        let (_, envelope) = call("", "sqlite", &rows);
        assert_eq!(envelope["data"]["rows"], json!([["tea"], ["jam"]]), "{envelope}");

        // Programs do not find it, whatever the tool may.
        for manifest in ["", &changing] {
            let script = format!("cat {path} >/dev/null && echo read; echo x >> {path} && echo written; true");
            let (_, envelope) = call(manifest, "bash", &json!({ "command": script }));
            let said = envelope["data"].to_string();
            assert!(!said.contains("\"read") && !said.contains("written\\n"), "{said}");
        }
        let granted = format!("[requires.fs]\nread = [\"{path}\"]\n");
        let (_, envelope) =
            call(&granted, "bash", &json!({ "command": format!("cat {path} >/dev/null && echo read") }));
        assert!(envelope["data"].to_string().contains("read"), "the control: {envelope}");

        let bounded = "[ceiling.fs]\nread = [\"{workspace}/**\"]\n";
        let (status, envelope) = call(bounded, "sqlite", &rows);
        let reason = envelope["metadata"]["denial"]["reason"].as_str().unwrap_or_default();
        assert!(status == 77 && reason.contains("`[ceiling.fs]`") && reason.ends_with("m.toml line 3"), "{envelope}");
    });
}
