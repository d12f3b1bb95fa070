use std::fs;

use serde_json::json;
use tempfile::TempDir;

use callgate_policy::failure::ErrorCode;
use callgate_policy::path::HostPath;

use super::rows::ResultTable;
use super::*;
use crate::{ToolContext, ToolError};

const ALIAS: &str = "shop";

struct Shop {
    directory: TempDir,
    may_change: bool,
    log: bool,
}

impl Shop {
    fn new() -> Self {
        let directory = TempDir::new().expect("a directory");
        let shop = Self { directory, may_change: false, log: true };
        let connection = rusqlite::Connection::open(shop.file()).expect("a database");
        connection
            .execute_batch(
                "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT NOT NULL DEFAULT 'x', price NUMERIC, pic BLOB);
                 INSERT INTO item VALUES (1, 'tea', 2.5, NULL), (2, CAST(x'ff41' AS TEXT), NULL, x'00ff');
                 CREATE INDEX by_name ON item (name);
                 CREATE VIEW cheap AS SELECT * FROM item WHERE price < 3;",
            )
            .expect("SQL");
        shop
    }

    fn file(&self) -> std::path::PathBuf {
        self.directory.path().join("shop.db")
    }

    fn call(&self, mut args: Value) -> Result<Value, ToolError> {
        let (dialect, database) = (Dialect::Sqlite, ALIAS.to_owned());
        let connection = Connection { dialect, database, changes: self.may_change, server: None, log: self.log };
        args[CONNECTION] = serde_json::to_value(connection).expect("JSON");
        let path = HostPath::from(self.file());
        let mut ctx = ToolContext::new(path.clone(), 200 * 1024);
        if let Some(output) = args["output_path"].as_str() {
            ctx.paths = vec![path, HostPath::from(self.directory.path().join(output))];
        }
        run(&args, &ctx).map(|output| output.data)
    }

    fn query(&self, sql: &str) -> Result<Value, ToolError> {
        self.call(json!({ "operation": "query", "sql": sql }))
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.file()).expect("the database")
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.directory.path()).expect("a directory");
        let mut names: Vec<String> =
            names.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

#[test]
fn contracts_are_closed_json_schemas() {
    for contract in CONTRACTS {
        let schema: Value = serde_json::from_str(contract.schema).expect("a schema is JSON");
        assert_eq!(schema["additionalProperties"], false, "{}", contract.name);
        for (name, property) in schema["properties"].as_object().expect("properties") {
            assert!(property["description"].is_string(), "{}: {name} has no description", contract.name);
        }
        assert!(schema["properties"].get(CONNECTION).is_none());
        let _: Value = serde_json::from_str(contract.output).expect("a schema is JSON");
    }
    let _: Value = serde_json::from_str(SERVER_SCHEMA).expect("a schema is JSON");
}

#[test]
fn s4_16_each_operation_answers() {
    let shop = Shop::new();
    let data = shop.query("SELECT id, name, price, pic, NULL FROM item ORDER BY id").expect("rows");
    let rows = json!([[1, "tea", 2.5, null, null], [2, { "b64": "/0E=" }, null, { "b64": "AP8=" }, null]]);
    assert_eq!(data["rows"], rows);
    assert_eq!(data["columns"][2], json!({ "name": "price", "type": "NUMERIC" }));
    assert!(
        data["content"].as_str().is_some_and(|table| table.contains("| 1  | tea") && table.ends_with("(2 rows)")),
        "{data}"
    );
    let data = shop.call(json!({ "operation": "list_tables" })).expect("tables");
    assert_eq!(data["rows"], json!([["cheap", "view"], ["item", "table"]]));
    let data = shop.call(json!({ "operation": "list_tables", "table_pattern": "it*" })).expect("tables");
    assert_eq!(data["rows"], json!([["item", "table"]]));
    let data = shop.call(json!({ "operation": "describe", "table_name": "item" })).expect("columns");
    assert_eq!(data["rows"][1], json!(["name", "TEXT", "NO", "'x'", 0]));
    let error = shop.call(json!({ "operation": "describe", "table_name": "items" })).expect_err("no table");
    assert_eq!(error.text(), "sqlite shop: there is no table `items`; list_tables lists them");
    let export = json!({ "operation": "export_query", "sql": "SELECT id, price FROM item", "output_path": "out.csv" });
    let data = shop.call(export.clone()).expect("a file");
    assert_eq!((&data["row_count"], &data["has_more"]), (&json!(2), &json!(false)));
    assert_eq!(fs::read_to_string(shop.directory.path().join("out.csv")).expect("a file"), "id,price\n1,2.5\n2,\n");
    let error = shop.call(export).expect_err("it is there");
    assert_eq!(error.code(), ErrorCode::Forbidden);
    assert_eq!(shop.names(), ["out.csv", "shop.db"]);
}

#[test]
fn x4_14_an_export_that_fails_leaves_no_file() {
    let shop = Shop::new();
    for sql in ["SELECT nothing", "SELECT abs(-9223372036854775808) FROM item", "DELETE FROM item"] {
        let args = json!({ "operation": "export_query", "sql": sql, "output_path": "out.csv" });
        shop.call(args).expect_err(sql);
        assert_eq!(shop.names(), ["shop.db"], "{sql}");
    }
}

#[test]
fn s4_23_a_parameter_of_another_operation_says_so() {
    let shop = Shop::new();
    let error = shop.call(json!({ "operation": "query", "sql": "SELECT 1", "table_name": "t" })).expect_err("not its");
    assert!(error.text().contains("it belongs to describe, and the operation is query"), "{}", error.text());
    let error = shop.call(json!({ "operation": "describe" })).expect_err("a name is missing");
    assert!(error.text().contains("the operation describe needs it"), "{}", error.text());
}

/// Statements that a query may not make, whatever they are dressed up as.
const WRITES: [&str; 34] = [
    "INSERT INTO item VALUES (3, 'x', 1, NULL)",
    "UPDATE item SET name = 'y'",
    "DELETE FROM item",
    "REPLACE INTO item VALUES (1, 'x', 1, NULL)",
    "DROP TABLE item",
    "CREATE TABLE t (a)",
    "CREATE TEMP TABLE t (a)",
    "CREATE TABLE t AS SELECT * FROM item",
    "CREATE INDEX i ON item (name)",
    "CREATE TRIGGER x AFTER INSERT ON item BEGIN DELETE FROM item; END",
    "CREATE VIRTUAL TABLE f USING fts5(a)",
    "ALTER TABLE item ADD COLUMN b",
    "WITH x AS (SELECT 1) DELETE FROM item",
    "WITH x AS (SELECT 1) INSERT INTO item (name) SELECT 'z' FROM x",
    "/* SELECT */ DELETE FROM item -- SELECT",
    "ATTACH 'other.db' AS other",
    "ATTACH ':memory:' AS other",
    "DETACH main",
    "VACUUM",
    "VACUUM INTO 'copy.db'",
    "REINDEX",
    "ANALYZE",
    "PRAGMA user_version = 7",
    "PRAGMA user_version(7)",
    "PRAGMA application_id(7)",
    "PRAGMA journal_mode = WAL",
    "PRAGMA query_only = OFF",
    "PRAGMA writable_schema = ON",
    "PRAGMA wal_checkpoint",
    "PRAGMA incremental_vacuum",
    "BEGIN IMMEDIATE",
    "SAVEPOINT x",
    "SELECT load_extension('x')",
    "SELECT 1; DELETE FROM item",
];

#[test]
fn s4_16_a_query_changes_nothing() {
    let shop = Shop::new();
    let before = shop.bytes();
    for sql in WRITES {
        shop.query(sql).expect_err(sql);
        assert!(shop.bytes() == before, "{sql} changed the file");
        assert_eq!(shop.names(), ["shop.db"], "{sql}");
    }
    // Controls: the same acts where they are allowed.
    let shop = Shop { may_change: true, ..shop };
    let data = shop.query("UPDATE item SET name = 'y'").expect("allowed");
    assert_eq!((&data["changed"], &data["content"]), (&json!(2), &json!("(2 rows changed)")));
    let data = shop.query("DELETE FROM item WHERE id = 1 RETURNING name").expect("allowed");
    assert_eq!((&data["changed"], &data["rows"]), (&json!(1), &json!([["y"]])));
    shop.query("CREATE TABLE t (a)").expect("allowed");
    assert!(shop.bytes() != before);
    // What reaches past the database is for no call.
    for sql in [
        "ATTACH 'other.db' AS other",
        "VACUUM INTO 'copy.db'",
        "PRAGMA journal_mode = WAL",
        "SELECT load_extension('x')",
    ] {
        shop.query(sql).expect_err(sql);
    }
    assert_eq!(shop.names(), ["shop.db"]);
}

/// S4-16: the connection holds that, also past the look at the words.
#[test]
fn s4_16_a_connection_for_reading_changes_nothing() {
    let shop = Shop::new();
    let before = shop.bytes();
    let path = HostPath::from(shop.file());
    let run = |purpose, sql: &str| {
        let connection = sqlite::open(&path, purpose).expect("a database");
        sqlite::query(&connection, sql, &[], &mut ResultTable::new(100, 100_000))
    };
    for sql in WRITES {
        run(sqlite::For::Reading, sql).expect_err(sql);
        assert!(shop.bytes() == before, "{sql} changed the file");
        assert_eq!(shop.names(), ["shop.db"], "{sql}");
    }
    run(sqlite::For::Reading, "SELECT * FROM item").expect("it reads");
    // What reaches past the file, no connection does.
    for sql in
        ["ATTACH 'other.db' AS other", "VACUUM INTO 'copy.db'", "PRAGMA journal_mode = WAL", "PRAGMA user_version = 7"]
    {
        run(sqlite::For::Changing, sql).expect_err(sql);
        assert!(shop.bytes() == before, "{sql} changed the file");
    }
    run(sqlite::For::Changing, "UPDATE item SET name = 'y'").expect("it changes");
    assert!(shop.bytes() != before);
}

#[test]
fn a_file_that_is_no_database_is_named() {
    let shop = Shop::new();
    fs::write(
        shop.file(),
        "no database at all, and long enough to have a header of one, which takes a hundred bytes or so....",
    )
    .expect("a file");
    let error = shop.query("SELECT 1").expect_err("no database");
    assert_eq!(error.text(), "sqlite shop: the file is not an SQLite database");
    fs::remove_file(shop.file()).expect("a file");
    assert_eq!(shop.query("SELECT 1").expect_err("nothing").errno(), Some(libc::ENOENT));
    rustix::fs::mknodat(rustix::fs::CWD, shop.file(), rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a FIFO");
    assert!(matches!(shop.query("SELECT 1"), Err(ToolError::NotRegular { .. })));
}

#[test]
fn a_million_rows_are_not_held() {
    let shop = Shop::new();
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n";
    let data = shop.query(endless).expect("the first rows");
    assert_eq!((&data["row_count"], &data["has_more"]), (&json!(100), &json!(true)));
    let args = json!({ "operation": "export_query", "sql": endless, "row_limit": 1_000_000, "output_path": "n.csv" });
    let data = shop.call(args).expect("a file");
    assert_eq!((&data["row_count"], &data["has_more"]), (&json!(1_000_000), &json!(true)));
}

/// S4-19: without a certificate that somebody vouches for, a password goes to this host alone, unless its owner says otherwise.
#[test]
fn s4_19_a_password_needs_a_verified_server() {
    let verifies = |host: &str, password: Option<&str>, tls| {
        let server = ServerConnection {
            host: host.to_owned(),
            port: 1,
            database: "d".to_owned(),
            user: "u".to_owned(),
            password: password.map(str::to_owned),
            tls,
            timeout_ms: 1,
        };
        server.verifies()
    };
    for host in ["db.example.org", "10.0.0.1", "localhost.example.org", "127.0.0.1.example.org"] {
        assert!(verifies(host, Some("secret"), TlsMode::Prefer), "{host}");
        assert!(!verifies(host, Some("secret"), TlsMode::Insecure), "{host}");
        assert!(!verifies(host, None, TlsMode::Prefer), "{host}");
    }
    for host in ["localhost", "127.0.0.1", "::1"] {
        assert!(!verifies(host, Some("secret"), TlsMode::Prefer), "{host}");
        assert!(verifies(host, None, TlsMode::Verify), "{host}");
    }
}

#[test]
fn a_log_that_was_left_is_read() {
    let shop = Shop::new();
    let connection = rusqlite::Connection::open(shop.file()).expect("a database");
    connection
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; INSERT INTO item (name) VALUES ('late')",
        )
        .expect("SQL");
    let read = |shop: &Shop| shop.query("SELECT count(*) FROM item").expect("a row")["rows"][0][0].clone();
    assert_eq!(read(&shop), 3, "beside a writer");
    let copied = Shop::new();
    for name in ["shop.db", "shop.db-wal"] {
        fs::copy(shop.directory.path().join(name), copied.directory.path().join(name)).expect("a copy");
    }
    assert_eq!(read(&copied), 3, "without the log's index");
    // Who may not see the log is not told of what was there before it.
    let blind = Shop { log: false, ..copied };
    let error = blind.query("SELECT count(*) FROM item").expect_err("the log is not granted");
    assert!(error.text().contains("the log is not granted"), "{}", error.text());
    let without = Shop { log: false, ..Shop::new() };
    assert_eq!(read(&without), 2, "without a log");
}
