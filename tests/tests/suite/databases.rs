//! The tools that query databases (S4-16 to S4-19, S4-23): real ones, which change only where somebody says so. SQLite's are files;
//! PostgreSQL and MariaDB are servers on the Internet of `network.rs`.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use callgate_tests::{Binaries, Host, ProgramOutcome, ProgramRunner, TestEnv, matrix, skip};
use serde_json::{Value, json};

use super::network::{Internet, on_an_internet_with};

/// Makes the table that every test has.
const ITEMS: &str =
    "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT); INSERT INTO item VALUES (1, 'tea'), (2, NULL);";
/// Query for what the table holds.
const ROWS: &str = "SELECT id, name FROM item ORDER BY id";
/// A password, which no other text is like.
const PASSWORD: &str = "database-secret-77af01";

fn binary() -> String {
    Binaries::of_this_build().callgate().display().to_string()
}

/// The user's own commands.
fn user(env: &TestEnv, run: ProgramRunner) -> ProgramRunner {
    let home = env.outside().display().to_string();
    run.variable("HOME", &home).variable("XDG_STATE_HOME", &format!("{home}/state"))
}

fn envelope(ended: &ProgramOutcome) -> (i32, Value) {
    let envelope = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    (ended.status.code().unwrap(), envelope)
}

/// One call of a tool.
fn call(run: &ProgramRunner, flags: &[&str], tool: &str, arguments: &Value) -> (i32, Value) {
    let arguments = arguments.to_string();
    let (binary, start) = (binary(), ["call", "--extra", tool]);
    envelope(&run.run(&[&[binary.as_str()], &start[..], flags, &[tool, arguments.as_str()]].concat()))
}

/// Several statements in one session: an envelope each.
fn all(env: &TestEnv, run: &ProgramRunner, flags: &str, tool: &str, statements: &[&str]) -> Vec<Value> {
    let one = |sql: &&str| json!({ "tool": tool, "arguments": { "operation": "query", "sql": sql } }).to_string();
    let lines = env.file("calls", &statements.iter().map(one).collect::<Vec<_>>().join("\n"));
    let script = format!("'{}' call --extra {tool} {flags} --batch < '{}'", binary(), lines.text());
    let ended = run.run(&["/bin/sh", "-c", &script]);
    let envelopes: Vec<Value> = ended
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {ended:?}")))
        .collect();
    assert_eq!(envelopes.len(), statements.len(), "{ended:?}");
    envelopes
}

fn query(sql: &str) -> Value {
    json!({ "operation": "query", "sql": sql })
}

/// A database in the workspace, and the user's commands with it.
fn shop(env: &TestEnv) -> (std::path::PathBuf, ProgramRunner) {
    let path = env.workspace().join("shop.db");
    let made = env.bare().run(&["sqlite3", path.to_str().unwrap(), ITEMS]);
    assert!(made.status.success(), "{made:?}");
    let run = user(env, env.weakened()).variable("SQLITE_DB", path.to_str().unwrap());
    (path, run)
}

fn names(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Annotations of a tool over MCP are those of what it may do under the session's profile.
#[test]
fn a_database_is_listed_as_what_it_may_do() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (path, run) = shop(&env);
        let profile = |name: &str, lines: &str| {
            env.workspace_file(name, &format!("profile: {name}\n{lines}"));
            name.to_owned()
        };
        let only_reads = profile("reads.yaml", "file_write:\n  mode: off\n");
        let exports = profile("exports.yaml", "file_write:\n  mode: create-only\n");
        let changes = profile("changes.yaml", "file_write:\n  mode: create-only\ndatabase:\n  mode: mutations\n");
        for (profile, reads, destroys) in [
            (only_reads, true, false),
            (exports, false, false),
            (changes, false, true),
            ("eval".to_owned(), false, true),
        ] {
            let requests = [
                json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
                    "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } }),
                json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
                json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {} }),
            ];
            let said = env.file("said", &requests.map(|request| format!("{request}\n")).concat());
            let script = format!(
                "(cat '{}'; sleep 2) | '{}' mcp --extra sqlite --extra postgres --extra mysql --profile {profile}",
                said.text(),
                binary()
            );
            let ended = run.run(&["/bin/sh", "-c", &script]);
            let answers: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let listed = answers.iter().find(|answer| answer["id"] == 2).unwrap_or_else(|| panic!("{ended:?}"));
            for name in ["sqlite", "postgres", "mysql"] {
                let tools = listed["result"]["tools"].as_array().unwrap();
                let hints = &tools.iter().find(|tool| tool["name"] == name).unwrap()["annotations"];
                let said = (&hints["readOnlyHint"], &hints["destructiveHint"], &hints["openWorldHint"]);
                assert_eq!(said, (&json!(reads), &json!(destroys), &json!(true)), "{name} under {profile}");
            }
            // And so it is.
            let flags = ["--profile", profile.as_str(), "--mode", "yolo"];
            let (status, envelope) = call(&run, &flags, "sqlite", &query("UPDATE item SET name = 'milk' WHERE id = 2"));
            assert_eq!(status == 0, destroys, "{profile}: {envelope}");
            let (status, _) = call(&run, &flags, "sqlite", &query(ROWS));
            assert_eq!(status, 0, "the control");
        }
        assert!(path.exists());
    });
}

/// S4-16 to S4-19: an alias of the environment, the operations, a table, and a CSV file that is new.
#[test]
fn s4_16_sqlite_answers() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (_, run) = shop(&env);
        let (status, envelope) = call(&run, &[], "sqlite", &query(ROWS));
        assert_eq!((status, &envelope["data"]["rows"]), (0, &json!([[1, "tea"], [2, null]])), "{envelope}");
        let table =
            "+----+------+\n| id | name |\n+----+------+\n| 1  | tea  |\n| 2  | NULL |\n+----+------+\n(2 rows)";
        assert_eq!((&envelope["data"]["content"], &envelope["data"]["database"]), (&json!(table), &json!("shop")));
        let (_, envelope) = call(&run, &[], "sqlite", &json!({ "operation": "list_tables" }));
        assert_eq!(envelope["data"]["rows"], json!([["item", "table"]]), "{envelope}");
        let (_, envelope) = call(&run, &[], "sqlite", &json!({ "operation": "describe", "table_name": "item" }));
        assert_eq!(envelope["data"]["row_count"], 2, "{envelope}");

        let export = |path: &str| json!({ "operation": "export_query", "sql": ROWS, "output_path": path });
        let (status, envelope) = call(&run, &[], "sqlite", &export("out.csv"));
        assert_eq!((status, &envelope["data"]["row_count"]), (0, &json!(2)), "{envelope}");
        let written = env.workspace().join("out.csv");
        assert_eq!(fs::read_to_string(&written).unwrap(), "id,name\n1,tea\n2,\n");
        fs::write(&written, "mine").unwrap();
        let (status, envelope) = call(&run, &[], "sqlite", &export("out.csv"));
        assert!(status != 0 && envelope["error_text"].as_str().unwrap().contains("is there already"), "{envelope}");
        assert_eq!(fs::read_to_string(&written).unwrap(), "mine");
        // A name that programs later trust.
        let (status, envelope) = call(&run, &[], "sqlite", &export(".bashrc"));
        assert_eq!((status, &envelope["metadata"]["denial"]["layer"]), (1, &json!("sandbox")), "{envelope}");
        assert_eq!(names(&env.workspace()), ["out.csv", "shop.db"]);

        let (status, envelope) =
            call(&run, &[], "sqlite", &json!({ "operation": "query", "sql": "SELECT 1", "table_name": "x" }));
        assert!(
            status != 0 && envelope["error_text"].as_str().unwrap().contains("it belongs to describe"),
            "{envelope}"
        );
    });
}

/// Statements that change something, or reach past the database, however they are dressed up.
const WRITES: [&str; 24] = [
    "INSERT INTO item VALUES (3, 'x')",
    "UPDATE item SET name = 'x'",
    "DELETE FROM item",
    "REPLACE INTO item VALUES (1, 'x')",
    "DROP TABLE item",
    "CREATE TABLE t (a)",
    "CREATE TEMP TABLE t (a)",
    "CREATE INDEX i ON item (name)",
    "ALTER TABLE item ADD COLUMN b",
    "WITH x AS (SELECT 1) DELETE FROM item",
    "/* SELECT */ DELETE FROM item",
    "-- SELECT\nDELETE FROM item",
    "SELECT 1; DELETE FROM item",
    "EXPLAIN DELETE FROM item",
    "ATTACH 'other.db' AS other",
    "VACUUM",
    "VACUUM INTO 'copy.db'",
    "REINDEX",
    "PRAGMA user_version = 7",
    "PRAGMA journal_mode = WAL",
    "PRAGMA query_only = OFF",
    "BEGIN IMMEDIATE",
    "SELECT load_extension('x')",
    "SELECT writefile('x', 'y')",
];

/// S4-16: nothing changes a database that is read, and no file beside it appears; a profile that has mutations changes it.
#[test]
fn s4_16_sqlite_is_read_only_unless_the_profile_says_so() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (path, run) = shop(&env);
        let before = fs::read(&path).unwrap();
        for (sql, envelope) in WRITES.iter().zip(all(&env, &run, "", "sqlite", &WRITES)) {
            assert_eq!(envelope["type"], "error", "{sql}: {envelope}");
        }
        assert!(fs::read(&path).unwrap() == before, "a byte changed");
        assert_eq!(names(&env.workspace()), ["shop.db"]);
        let (status, envelope) = call(&run, &[], "sqlite", &query("DELETE FROM item"));
        let denial = &envelope["metadata"]["denial"];
        assert_eq!((status, &denial["layer"], &denial["asked"]), (77, &json!("rule"), &json!("sqlite shop: DELETE")));

        let (status, envelope) = call(&run, &["--profile", "eval"], "sqlite", &query("UPDATE item SET name = 'x'"));
        assert_eq!((status, &envelope["data"]["changed"]), (0, &json!(2)), "{envelope}");
        assert!(fs::read(&path).unwrap() != before);
        for sql in ["ATTACH 'other.db' AS other", "VACUUM INTO 'copy.db'", "PRAGMA journal_mode = WAL"] {
            let (status, envelope) = call(&run, &["--profile", "eval"], "sqlite", &query(sql));
            assert_eq!(status, 77, "{sql}: {envelope}");
        }
        assert_eq!(names(&env.workspace()), ["shop.db"]);
    });
}

/// S4-16: a database is a file like others, so that its grant and rules about its statements decide.
#[test]
fn s4_16_grants_and_rules_decide() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (path, _) = shop(&env);
        let outside = env.outside().join("data");
        fs::create_dir(&outside).unwrap();
        let file = outside.join("far.db");
        fs::copy(&path, &file).unwrap();
        for given in [&outside, &file] {
            env.give(given);
        }
        let far = file.to_str().unwrap();
        let run = user(&env, env.weakened()).variable("SQLITE_DB", far);
        let bounded = env.file("bounded.toml", "[ceiling.fs]\nread = [\"{workspace}/**\"]\n").text().to_owned();
        let (status, envelope) = call(&run, &["--manifest", bounded.as_str()], "sqlite", &query(ROWS));
        let denial = &envelope["metadata"]["denial"];
        assert_eq!((status, &denial["layer"]), (77, &json!("capability")), "{envelope}");
        assert!(denial["asked"].as_str().unwrap().starts_with("fs.read "), "{envelope}");
        let (status, envelope) = call(&run, &["--read", far], "sqlite", &query(ROWS));
        assert_eq!((status, &envelope["data"]["row_count"]), (0, &json!(2)), "{envelope}");

        let manifest = "[[rules]]\npermission = \"sqlite\"\npattern = \"SELECT id, *\"\naction = \"deny\"\n";
        let manifest = env.file("m.toml", manifest).text().to_owned();
        let flags = ["--manifest", manifest.as_str(), "--read", far];
        let (status, envelope) = call(&run, &flags, "sqlite", &query("select id, name from item"));
        assert_eq!((status, &envelope["metadata"]["denial"]["layer"]), (77, &json!("rule")), "{envelope}");
        let (status, envelope) = call(&run, &flags, "sqlite", &query("SELECT name FROM item"));
        assert_eq!(status, 0, "{envelope}");
    });
}

/// S4-16, X4-3: what rules see is what runs, all of it, and an export is judged as a file that is written.
#[test]
fn s4_16_rules_see_what_runs() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (path, run) = shop(&env);
        let before = fs::read(&path).unwrap();
        let rule = |permission: &str, pattern: &str, action: &str| {
            format!("[[rules]]\npermission = \"{permission}\"\npattern = \"{pattern}\"\naction = \"{action}\"\n")
        };
        let denies = [rule("sqlite", "*DELETE FROM*", "deny"), rule("sqlite", "DROP TABLE*", "deny")].concat();
        let manifest = env.file("deny.toml", &denies).text().to_owned();
        let flags = ["--manifest", manifest.as_str(), "--profile", "eval"];
        for filling in ["x".to_owned(), "x".repeat(15_000), "x".repeat(16_400)] {
            let sql = format!("WITH x AS (SELECT '{filling}') DELETE FROM item WHERE id = 2");
            let (status, envelope) = call(&run, &flags, "sqlite", &query(&sql));
            assert!(status != 0, "{}: {envelope}", filling.len());
        }
        for sql in ["DROP TABLE item", "DROP \u{feff}TABLE item", "DROP/**/TABLE item", "drop\ntable item"] {
            let (status, envelope) = call(&run, &flags, "sqlite", &query(sql));
            assert!(status != 0, "{sql}: {envelope}");
        }
        assert!(fs::read(&path).unwrap() == before, "a byte changed");

        let allows = rule("sqlite", "SELECT *", "allow");
        let export = |path: &str| json!({ "operation": "export_query", "sql": ROWS, "output_path": path });
        let manifest = env.file("allow.toml", &allows).text().to_owned();
        let flags = ["--manifest", manifest.as_str(), "--asked-by", "agent", "--mode", "ask"];
        let (status, envelope) = call(&run, &flags, "sqlite", &query(ROWS));
        assert_eq!(status, 0, "{envelope}");
        let (status, envelope) = call(&run, &flags, "sqlite", &export("run.sh"));
        assert!(status != 0, "{envelope}");
        assert_eq!(names(&env.workspace()), ["shop.db"]);
        let allows = [allows, rule("fs.write", "**/*.csv", "allow")].concat();
        let manifest = env.file("both.toml", &allows).text().to_owned();
        let flags = ["--manifest", manifest.as_str(), "--asked-by", "agent", "--mode", "ask"];
        let (status, envelope) = call(&run, &flags, "sqlite", &export("out.csv"));
        assert_eq!(status, 0, "{envelope}");
        let (status, envelope) = call(&run, &flags, "sqlite", &export("run.sh"));
        assert!(status != 0, "{envelope}");
        assert_eq!(names(&env.workspace()), ["out.csv", "shop.db"]);
    });
}

/// X4-15: aliases of the user's own file, which has to be theirs alone.
#[test]
fn x4_15_a_file_has_aliases() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (path, _) = shop(&env);
        let text = format!("databases:\n  till:\n    type: sqlite\n    path: {}\n", path.display());
        let config = env.file("databases.yaml", &text);
        let mode = |mode: u32| fs::set_permissions(config.text(), fs::Permissions::from_mode(mode)).unwrap();
        let run = user(&env, env.weakened()).variable("RHO_AGENT_DB_CONFIG", config.text());
        mode(0o600);
        let (status, envelope) = call(&run, &[], "sqlite", &query(ROWS));
        assert_eq!((status, &envelope["data"]["database"]), (0, &json!("till")), "{envelope}");
        let (status, envelope) =
            call(&run, &[], "sqlite", &json!({ "operation": "query", "sql": ROWS, "database": "tills" }));
        assert!(status != 0 && envelope["error_text"].as_str().unwrap().contains("there are: till"), "{envelope}");
        mode(0o644);
        let (status, envelope) = call(&run, &[], "sqlite", &query(ROWS));
        assert!(status != 0 && envelope["error_text"].as_str().unwrap().contains("mode 0600"), "{envelope}");
        mode(0o600);
        let flags = ["--read", config.text()];
        let (status, envelope) = call(&run, &flags, "sqlite", &query(ROWS));
        assert!(
            status != 0 && envelope["error_text"].as_str().unwrap().contains("calls may read or write it"),
            "{envelope}"
        );
    });
}

/// X4-15, A10: the file does not count where a grant leads to its directory by a link, by which calls may read the passwords.
#[test]
fn x4_15_a10_a_file_that_a_link_leads_calls_to_does_not_count() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (path, _) = shop(&env);
        let text = format!("databases:\n  till:\n    type: sqlite\n    path: {}\n", path.display());
        ["keys", "plain"].iter().for_each(|name| fs::create_dir(env.outside().join(name)).unwrap());
        let config = env.file("keys/databases.yaml", &text);
        fs::set_permissions(config.text(), fs::Permissions::from_mode(0o600)).unwrap();
        let link = env.outside().join("link");
        let run = user(&env, env.weakened()).variable("RHO_AGENT_DB_CONFIG", config.text());
        for right in ["read", "write"] {
            let text = format!("[requires.fs]\n{right} = [\"{}/**\", \"{{workspace}}/**\"]\n", link.display());
            let manifest = env.file("manifest.toml", &text);
            let led = |to: &str| {
                fs::remove_file(&link).ok();
                symlink(env.outside().join(to), &link).unwrap();
                call(&run, &["--manifest", manifest.text()], "sqlite", &query(ROWS))
            };
            let (status, envelope) = led("plain");
            assert_eq!((status, &envelope["data"]["database"]), (0, &json!("till")), "the control: {envelope}");
            let (status, envelope) = led("keys");
            let why = envelope["error_text"].as_str().unwrap_or_default();
            assert!(status != 0 && why.contains("calls may read or write it"), "{right}: {envelope}");
        }
    });
}

/// A write-ahead log is read: beside its writer, and where a writer has left it.
#[test]
fn a_write_ahead_log_is_read() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (path, run) = shop(&env);
        let path = path.to_str().unwrap();
        // The copy is made while the log is there.
        let sql = format!(
            "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; INSERT INTO item VALUES (3, 'late');\n\
             .shell cp {path} {path}.copy; cp {path}-wal {path}.copy-wal\n"
        );
        let script = env.file("script", &sql);
        let made = env.bare().run(&["/bin/sh", "-c", &format!("sqlite3 {path} < {}", script.text())]);
        assert!(made.status.success(), "{made:?}");
        for database in [path.to_owned(), format!("{path}.copy")] {
            let run = run.clone().variable("SQLITE_DB", &database);
            let (status, envelope) = call(&run, &[], "sqlite", &query("SELECT count(*) FROM item"));
            assert_eq!((status, &envelope["data"]["rows"]), (0, &json!([[3]])), "{database}: {envelope}");
        }
        assert!(!names(&env.workspace()).iter().any(|name| name.ends_with("-shm")), "{:?}", names(&env.workspace()));
    });
}

/// Where there is a PostgreSQL to be asked.
fn on_postgres(test: impl Fn(&Internet, &ProgramRunner)) {
    if !fs::read_dir("/usr/lib/postgresql")
        .is_ok_and(|mut all| all.any(|one| one.unwrap().path().join("bin/initdb").exists()))
    {
        return skip("postgresql", "there is none");
    }
    on_an_internet_with("postgres", |internet| {
        let run = internet.on(user(&internet.env, internet.env.weakened()));
        let variables = [("HOST", "good.example"), ("DATABASE", "postgres"), ("USER", "git")];
        let run = variables.iter().fold(run, |run, (name, value)| run.variable(&format!("POSTGRES_{name}"), value));
        let made = psql(
            internet,
            "DROP TABLE IF EXISTS item; DROP SEQUENCE IF EXISTS number; CREATE TABLE item (id int PRIMARY KEY, name text); \
             INSERT INTO item VALUES (1, 'tea'), (2, NULL); CREATE SEQUENCE number; \
             DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN PASSWORD 'database-secret-77af01'; GRANT SELECT ON item TO reader",
        );
        assert!(made.status.success(), "{made:?}");
        test(internet, &run);
    });
}

/// Answer of the database's own client, without callgate.
fn psql(internet: &Internet, sql: &str) -> ProgramOutcome {
    internet.bare().run(&["psql", "-h", "good.example", "-U", "git", "-d", "postgres", "-XAtqc", sql])
}

/// A manifest that leaves no host.
fn nowhere(internet: &Internet) -> String {
    internet.env.file("nowhere.toml", "[ceiling.net]\nhosts = []\n").text().to_owned()
}

const GRANTED: [&str; 2] = ["--net", "good.example:5432"];

/// S4-16 to S4-19: PostgreSQL is asked at the one host and port of its alias, where a ceiling leaves it.
#[test]
fn s4_16_postgres_answers() {
    on_postgres(|internet, run| {
        let sql = "SELECT 1::int8 AS a, 1.50::numeric AS b, NULL::text AS c, '\\x00ff'::bytea AS d, '2024-02-29'::date AS e, \
                   '{\"x\": [1]}'::jsonb AS f, 'ü|' AS g, ARRAY[1, NULL] AS h, true AS i, 2.5::float8 AS j";
        let (status, envelope) = call(run, &GRANTED, "postgres", &query(sql));
        let rows =
            json!([[1, "1.50", null, { "b64": "AP8=" }, "2024-02-29", "{\"x\": [1]}", "ü|", "{1,NULL}", "t", 2.5]]);
        assert_eq!((status, &envelope["data"]["rows"]), (0, &rows), "{envelope}");
        let (_, envelope) = call(run, &GRANTED, "postgres", &json!({ "operation": "list_tables" }));
        assert_eq!(envelope["data"]["rows"], json!([["public", "item", "table"]]), "{envelope}");
        let (_, envelope) = call(run, &GRANTED, "postgres", &json!({ "operation": "describe", "table_name": "item" }));
        assert_eq!(envelope["data"]["rows"][0], json!(["id", "integer", "NO", null]), "{envelope}");
        // A million rows are not read for the first hundred, and written as they come.
        let many = "SELECT g FROM generate_series(1, 1000000) g";
        let (_, envelope) = call(run, &GRANTED, "postgres", &query(many));
        assert_eq!(
            (&envelope["data"]["row_count"], &envelope["data"]["has_more"]),
            (&json!(100), &json!(true)),
            "{envelope}"
        );
        let export = json!({ "operation": "export_query", "sql": many, "output_path": "many.csv" });
        let (status, envelope) = call(run, &GRANTED, "postgres", &export);
        assert_eq!((status, &envelope["data"]["row_count"]), (0, &json!(1_000_000)), "{envelope}");
        let (status, envelope) = call(run, &["--manifest", &nowhere(internet)], "postgres", &query("SELECT 1"));
        let denial = &envelope["metadata"]["denial"];
        assert_eq!((status, &denial["asked"]), (77, &json!("net.hosts good.example:5432")), "{envelope}");
    });
}

/// Statements that change something, or act beyond their transaction.
const ACTS: [&str; 43] = [
    "INSERT INTO item VALUES (3, 'x')",
    "UPDATE item SET name = 'x'",
    "DELETE FROM item",
    "WITH x AS (DELETE FROM item RETURNING *) SELECT * FROM x",
    "WITH x AS (SELECT 1) INSERT INTO item SELECT 3, 'x' FROM x",
    "DROP TABLE item",
    "TRUNCATE item",
    "CREATE TABLE t (a int)",
    "CREATE TEMP TABLE t (a int)",
    "SELECT * INTO t FROM item",
    "SELECT * FROM item FOR UPDATE",
    "SELECT * FROM item FOR NO KEY UPDATE",
    "EXPLAIN ANALYZE DELETE FROM item",
    "COPY item TO PROGRAM 'touch /tmp/callgate-copy'",
    "COPY (SELECT 1) TO '/tmp/callgate-copy'",
    "SET default_transaction_read_only = off",
    "SET TRANSACTION READ WRITE",
    "ALTER SYSTEM SET work_mem = '5MB'",
    "BEGIN",
    "COMMIT",
    "DO $$ BEGIN DELETE FROM item; END $$",
    "CALL p()",
    "LOCK TABLE item",
    "NOTIFY x",
    "SELECT 1; DELETE FROM item",
    "SELECT $$a$$; DELETE FROM item",
    "/* SELECT */ DELETE FROM item",
    "SELECT set_config('transaction_read_only', 'off', false)",
    "SELECT nextval('number')",
    "SELECT pg_advisory_lock(1)",
    "SELECT pg_read_file('PG_VERSION')",
    "SELECT \"pg_read_file\" ('PG_VERSION')",
    "SELECT lo_export(lo_from_bytea(0, 'x'), '/tmp/callgate-lo')",
    "SELECT pg_terminate_backend(pg_backend_pid())",
    "SELECT $€$/*$€$, pg_read_file('PG_VERSION'), $€$*/$€$",
    "SELECT 1 </*'*/ 2, pg_read_file('PG_VERSION') /*'*/",
    "SELECT E''\n'\\'' || pg_read_file('PG_VERSION') --'",
    "SELECT U&\"pg_read_fil\\0065\"('PG_VERSION')",
    "SELECT (t).pg_read_file FROM (SELECT 'PG_VERSION' AS x) t",
    "SELECT PG_Read_File('PG_VERSION')",
    "SELECT * FROM crosstab('SELECT 1, 2, pg_read_file(''PG_VERSION'')') AS t(a int)",
    "SELECT query_to_xml('SELECT pg_' || 'read_file(''PG_VERSION'')', true, true, '')",
    "EXPLAIN ANALYZE CREATE TABLE t AS SELECT 1",
];

/// S4-16: none of them changes a row, a sequence, a setting or a file.
#[test]
fn s4_16_postgres_is_read_only_unless_the_profile_says_so() {
    on_postgres(|internet, run| {
        let state = "SELECT count(*), min(name) FROM item; SELECT last_value, is_called FROM number; SHOW work_mem; \
                     SELECT count(*) FROM pg_class WHERE relname = 't'; SELECT count(*) FROM pg_largeobject_metadata";
        let before = psql(internet, state);
        assert!(before.status.success(), "{before:?}");
        for (sql, envelope) in ACTS.iter().zip(all(&internet.env, run, "--net good.example:5432", "postgres", &ACTS)) {
            assert_eq!(envelope["type"], "error", "{sql}: {envelope}");
        }
        assert_eq!(psql(internet, state).stdout, before.stdout);
        assert!(!Path::new("/tmp/callgate-copy").exists() && !Path::new("/tmp/callgate-lo").exists());
        let flags = [&GRANTED[..], &["--profile", "eval"]].concat();
        let (status, envelope) = call(run, &flags, "postgres", &query("UPDATE item SET name = 'x'"));
        assert_eq!((status, &envelope["data"]["changed"]), (0, &json!(2)), "{envelope}");
        assert!(psql(internet, state).stdout != before.stdout);
    });
}

/// S4-19: a password goes to the server and nowhere else; what is wrong with a connection is said.
#[test]
fn s4_19_passwords_and_servers_that_are_not_there() {
    on_postgres(|_, run| {
        let reader = run.clone().variable("POSTGRES_USER", "reader");
        let right = reader.clone().variable("POSTGRES_PASSWORD", PASSWORD);
        // It shows no certificate: nobody knows who would get the password.
        let (status, envelope) = call(&right, &GRANTED, "postgres", &query("SELECT current_user"));
        assert!(status != 0 && envelope["error_text"].as_str().unwrap().contains("tls: insecure"), "{envelope}");
        let (reader, right) = (reader.variable("POSTGRES_TLS", "insecure"), right.variable("POSTGRES_TLS", "insecure"));
        let (status, envelope) = call(&right, &GRANTED, "postgres", &query("SELECT current_user"));
        assert_eq!((status, &envelope["data"]["rows"]), (0, &json!([["reader"]])), "{envelope}");
        let (status, envelope) = call(&right, &GRANTED, "postgres", &query(&format!("SELECT nothing('{PASSWORD}')")));
        assert!(status != 0 && envelope["error_text"].as_str().unwrap().contains("nothing"), "{envelope}");
        let wrong = reader.clone().variable("POSTGRES_PASSWORD", "another-secret-11");
        let (status, envelope) = call(&wrong, &GRANTED, "postgres", &query("SELECT 1"));
        let text = envelope["error_text"].as_str().unwrap();
        assert!(status != 0 && text.contains("password authentication failed"), "{envelope}");
        assert!(!envelope.to_string().contains("another-secret-11"), "{envelope}");
        let nobody = run.clone().variable("POSTGRES_PORT", "5433");
        let (status, envelope) = call(&nobody, &["--net", "good.example:5433"], "postgres", &query("SELECT 1"));
        assert!(status != 0 && envelope["error_text"].as_str().unwrap().contains("was not reached"), "{envelope}");
    });
}

/// S4-19: what a session runs itself in the background is no server that a password is for, though it listens where one was
/// configured.
#[test]
fn s4_19_a_task_does_not_get_the_password() {
    const SERVER: &str = "
import socket
server = socket.create_server(('127.0.0.1', 21532))
while True:
    client, _ = server.accept()
    client.recv(64)
    client.sendall(b'N')
";
    const CLIENT: &str = "
import socket, time
while True:
    try:
        client = socket.create_connection(('127.0.0.1', 21532))
        break
    except OSError:
        time.sleep(0.01)
client.sendall(b'x')
print('answered', client.recv(1))
";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.workspace_file("server.py", SERVER);
        env.workspace_file("client.py", CLIENT);
        let run = user(&env, env.weakened());
        let variables =
            [("HOST", "127.0.0.1"), ("PORT", "21532"), ("DATABASE", "x"), ("USER", "x"), ("PASSWORD", PASSWORD)];
        let run = variables.iter().fold(run, |run, (name, value)| run.variable(&format!("POSTGRES_{name}"), value));
        let asks = json!({ "tool": "bash", "arguments": { "command": "python3 client.py" } });
        let calls = [
            json!({ "tool": "exec_shell", "arguments": { "command": "python3 server.py", "background": true } }),
            asks.clone(),
            json!({ "tool": "postgres", "arguments": query("SELECT 1") }),
            asks,
            json!({ "tool": "exec_shell_cancel", "arguments": { "all": true } }),
        ];
        let lines = env.file("calls", &calls.iter().map(Value::to_string).collect::<Vec<_>>().join("\n"));
        let extra = "--extra exec_shell --extra exec_shell_cancel --extra postgres --mode yolo --net 127.0.0.1:21532";
        let script = format!("'{}' call {extra} --batch < '{}'", binary(), lines.text());
        let ended = run.run(&["/bin/sh", "-c", &script]);
        assert_eq!(ended.stdout.matches("answered b'N'").count(), 2, "the controls: {ended:?}");
        assert!(ended.stdout.contains("127.0.0.1:21532 was not reached"), "{ended:?}");
    });
}

/// Where there is a MariaDB to be asked.
fn on_mariadb(test: impl Fn(&Internet, &ProgramRunner)) {
    if ["/usr/sbin/mariadbd", "/usr/bin/my_print_defaults"].iter().any(|program| !Path::new(program).exists()) {
        return skip("mariadb", "there is none");
    }
    on_an_internet_with("mariadb", |internet| {
        let run = internet.on(user(&internet.env, internet.env.weakened()));
        let variables = [
            ("HOST", "good.example"),
            ("DATABASE", "shop"),
            ("USER", "git"),
            ("PASSWORD", PASSWORD),
            ("TLS", "insecure"),
        ];
        let run = variables.iter().fold(run, |run, (name, value)| run.variable(&format!("MYSQL_{name}"), value));
        let made = [
            "DROP TABLE IF EXISTS item",
            "CREATE OR REPLACE SEQUENCE number",
            "DROP FUNCTION IF EXISTS acts",
            "CREATE FUNCTION acts() RETURNS INT RETURN 7",
            "CREATE OR REPLACE FUNCTION `éffacer`() RETURNS INT RETURN 7",
            "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20), price DECIMAL(9,2), at DATETIME, pic BLOB)",
            "INSERT INTO item VALUES (1, 'tea', 2.50, '2024-02-29 12:00:00', x'00ff'), (2, NULL, NULL, NULL, NULL)",
        ];
        let flags = "--net good.example:3306 --profile eval";
        for (sql, envelope) in made.iter().zip(all(&internet.env, &run, flags, "mysql", &made)) {
            assert_eq!(envelope["type"], "output", "{sql}: {envelope}");
        }
        test(internet, &run);
    });
}

const AT_MARIADB: [&str; 2] = ["--net", "good.example:3306"];

/// S4-16 to S4-19: MariaDB is asked at the one host and port of its alias, where a ceiling leaves it.
#[test]
fn s4_16_mysql_answers() {
    on_mariadb(|internet, run| {
        let (status, envelope) = call(run, &AT_MARIADB, "mysql", &query("SELECT * FROM item ORDER BY id"));
        let rows = json!([[1, "tea", "2.50", "2024-02-29 12:00:00", { "b64": "AP8=" }], [2, null, null, null, null]]);
        assert_eq!((status, &envelope["data"]["rows"]), (0, &rows), "{envelope}");
        let (_, envelope) =
            call(run, &AT_MARIADB, "mysql", &json!({ "operation": "list_tables", "table_pattern": "it*" }));
        assert_eq!(envelope["data"]["rows"], json!([["shop", "item", "base table"]]), "{envelope}");
        let (_, envelope) = call(run, &AT_MARIADB, "mysql", &json!({ "operation": "describe", "table_name": "item" }));
        assert_eq!(envelope["data"]["row_count"], 5, "{envelope}");
        let many =
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT a.i FROM n a, n b";
        let (_, envelope) = call(run, &AT_MARIADB, "mysql", &query(many));
        assert_eq!(
            (&envelope["data"]["row_count"], &envelope["data"]["has_more"]),
            (&json!(100), &json!(true)),
            "{envelope}"
        );
        let export = json!({ "operation": "export_query", "sql": many, "output_path": "many.csv" });
        let (status, envelope) = call(run, &AT_MARIADB, "mysql", &export);
        assert_eq!((status, &envelope["data"]["row_count"]), (0, &json!(1_000_000)), "{envelope}");
        let (status, envelope) = call(run, &["--manifest", &nowhere(internet)], "mysql", &query("SELECT 1"));
        let denial = &envelope["metadata"]["denial"];
        assert_eq!((status, &denial["asked"]), (77, &json!("net.hosts good.example:3306")), "{envelope}");
        let wrong = run.clone().variable("MYSQL_PASSWORD", "another-secret-11");
        let (status, envelope) = call(&wrong, &AT_MARIADB, "mysql", &query("SELECT 1"));
        assert!(status != 0 && envelope["error_text"].as_str().unwrap().contains("Access denied"), "{envelope}");
        assert!(!envelope.to_string().contains("another-secret-11"), "{envelope}");
    });
}

/// Statements that change something, or act beyond their transaction.
const ACTS_OF_MYSQL: [&str; 42] = [
    "INSERT INTO item (id) VALUES (3)",
    "UPDATE item SET name = 'x'",
    "DELETE FROM item",
    "REPLACE INTO item (id) VALUES (1)",
    "TRUNCATE item",
    "DROP TABLE item",
    "CREATE TABLE t (a INT)",
    "CREATE TEMPORARY TABLE t (a INT)",
    "ALTER TABLE item ADD b INT",
    "SELECT * FROM item INTO OUTFILE '/tmp/callgate-outfile'",
    "SELECT 1 INTO DUMPFILE '/tmp/callgate-outfile'",
    "SELECT 1 INTO @a",
    "SELECT 1 /*!50000 INTO OUTFILE '/tmp/callgate-outfile' */",
    "SELECT 1 /*M! INTO OUTFILE '/tmp/callgate-outfile' */",
    "SELECT * FROM item FOR UPDATE",
    "SELECT * FROM item LOCK IN SHARE MODE",
    "LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE item",
    "SELECT load_file('/etc/passwd')",
    "SELECT get_lock('a', 1)",
    "SELECT nextval(number)",
    "SELECT NEXT VALUE FOR number",
    "SET GLOBAL max_connections = 7",
    "SET STATEMENT max_statement_time = 1 FOR DELETE FROM item",
    "START TRANSACTION READ WRITE",
    "COMMIT",
    "SELECT 1; DELETE FROM item",
    "/* SELECT */ DELETE FROM item",
    "# SELECT\nDELETE FROM item",
    "DO sleep(0)",
    "CALL p()",
    "ANALYZE DELETE FROM item",
    "SELECT 5 --\u{a0}x AS v FROM (SELECT 2 AS `\u{a0}x`) t INTO OUTFILE '/tmp/callgate-outfile'",
    "SELECT 1 --\u{1}'\n INTO OUTFILE '/tmp/callgate-outfile' -- '",
    "SELECT '\\' INTO OUTFILE '/tmp/callgate-outfile' -- '",
    "SELECT `load_file` ('/etc/passwd')",
    "SELECT acts()",
    "SELECT shop.`Acts` ()",
    "SELECT `ÉFFACER`()",
    "SELECT `löad_file`('/etc/passwd')",
    "SELECT 1.e0INTO @x",
    "SHOW GRANTS",
    "show create user git@'%'",
];

/// S4-16: none of them changes a row, a sequence, a setting or a file.
#[test]
fn s4_16_mysql_is_read_only_unless_the_profile_says_so() {
    on_mariadb(|internet, run| {
        let state = ["SELECT * FROM item ORDER BY id", "SHOW TABLES", "SELECT @@max_connections"];
        let seen = || {
            let envelopes = all(&internet.env, run, "--net good.example:3306", "mysql", &state);
            envelopes.into_iter().map(|envelope| envelope["data"]["rows"].clone()).collect::<Vec<_>>()
        };
        let before = seen();
        assert!(before.iter().all(Value::is_array), "{before:?}");
        for (sql, envelope) in
            ACTS_OF_MYSQL.iter().zip(all(&internet.env, run, "--net good.example:3306", "mysql", &ACTS_OF_MYSQL))
        {
            assert_eq!(envelope["type"], "error", "{sql}: {envelope}");
        }
        assert_eq!(seen(), before);
        assert!(!Path::new("/tmp/callgate-outfile").exists());
        let flags = [&AT_MARIADB[..], &["--profile", "eval"]].concat();
        let (status, envelope) = call(run, &flags, "mysql", &query("UPDATE item SET name = 'x'"));
        assert_eq!((status, &envelope["data"]["changed"]), (0, &json!(2)), "{envelope}");
        assert!(seen() != before);
        // The sequence is where it was: a transaction that only reads cannot look at it in MariaDB.
        let (status, envelope) =
            call(run, &flags, "mysql", &query("INSERT INTO item (id) VALUES (10 + nextval(number))"));
        assert_eq!(status, 0, "{envelope}");
        let (_, envelope) = call(run, &AT_MARIADB, "mysql", &query("SELECT max(id) FROM item"));
        assert_eq!(envelope["data"]["rows"], json!([[11]]), "{envelope}");
    });
}
