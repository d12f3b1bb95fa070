//! `databases.yaml`: which databases there are, by their aliases (X4-15).
//!
//! ```yaml
//! databases:
//!   shop:
//!     type: sqlite
//!     path: /srv/shop/shop.db
//!   orders:
//!     type: postgres
//!     host: db.example.org
//!     database: orders
//!     user: reader
//!     password: ${ORDERS_PASSWORD}
//! ```
//!
//! `${NAME}` stands for a variable of whoever starts the session. The values are secrets: no error shows one.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::document::error::Fault;
use crate::document::table::{Table, choice, name, text, wrong};
use crate::document::tree::{DocumentValue, Node, Whole};
use crate::document::yaml;
use crate::sql::Dialect;

/// The longest file, bytes.
pub const MAX_BYTES: usize = 64 * 1024;

/// A database that somebody has configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfiguredDatabase {
    /// By which calls name it.
    pub alias: String,
    /// Which kind of database it is.
    pub dialect: Dialect,
    /// Where it is.
    pub at: DatabasePlace,
}

/// Where a database is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatabasePlace {
    /// In a file.
    File(String),
    /// At a server.
    Server(DatabaseServer),
}

/// A server, and who connects to it.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseServer {
    /// A name or an address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The database there.
    pub database: String,
    /// Who connects.
    pub user: String,
    /// With which password.
    pub password: Option<String>,
    /// Protection that the connection must have.
    pub tls: TlsMode,
}

/// Protection of a connection to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TlsMode {
    /// TLS where the server offers it, with any certificate. But a password goes to no other host than this one without a
    /// certificate that this host's authorities vouch for.
    #[default]
    Prefer,
    /// TLS, with a certificate that this host's authorities vouch for.
    Verify,
    /// As `Prefer`, and a password goes to whoever answers.
    Insecure,
}

impl TlsMode {
    /// The names of all of them.
    pub const NAMES: [&str; 3] = ["prefer", "verify", "insecure"];

    /// The one of this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            "prefer" => Some(Self::Prefer),
            "verify" => Some(Self::Verify),
            "insecure" => Some(Self::Insecure),
            _ => None,
        }
    }
}

impl fmt::Debug for DatabaseServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, database, user, .. } = self;
        f.debug_struct("Server")
            .field("host", host)
            .field("port", port)
            .field("database", database)
            .field("user", user)
            .finish_non_exhaustive()
    }
}

/// The port that a server has if nobody says.
#[must_use]
pub fn usual_port(dialect: Dialect) -> u16 {
    match dialect {
        Dialect::Sqlite => 0,
        Dialect::Postgres => 5432,
        Dialect::Mysql => 3306,
    }
}

/// Reads a file. `variable` knows what `${NAME}` stands for.
///
/// # Errors
/// [`DatabasesError`], which shows nothing of the file.
pub fn parse(
    source: &str,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Vec<ConfiguredDatabase>, DatabasesError> {
    read(source, &variable).map_err(|fault: Fault| {
        let error = fault.into_error(source, "");
        DatabasesError { line: error.line(), why: error.message().to_owned() }
    })
}

/// A file that cannot be used. Its lines are not shown, because a password may stand there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct DatabasesError {
    line: usize,
    why: String,
}

type VariableLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

fn read(source: &str, variable: VariableLookup<'_>) -> Result<Vec<ConfiguredDatabase>, Fault> {
    let whole = Whole { what: "list of databases", most: MAX_BYTES, empty: "write `databases:` and an alias" };
    let mut top = Table::of(whole.parse(source, yaml::parse)?, "the list", &["databases"])?;
    let all = top.required("databases", |node| {
        let DocumentValue::Table(entries) = node.value else { return Err(wrong(&node, "a table of aliases")) };
        let one = |entry: crate::document::tree::Entry| database(entry.key, entry.node, variable);
        entries.into_iter().map(one).collect::<Result<Vec<_>, _>>()
    })?;
    Ok(all)
}

fn database(alias: String, node: Node, variable: VariableLookup<'_>) -> Result<ConfiguredDatabase, Fault> {
    let keys = ["type", "path", "host", "port", "database", "user", "password", "tls"];
    let span = node.span.clone();
    let mut table = Table::of(node, "a database", &keys)?;
    if alias.is_empty() || alias.chars().any(char::is_control) {
        return Err(Fault::new(span, "an alias has at least one character, and no control characters"));
    }
    let kinds = ["sqlite", "postgres", "mysql"];
    let kind = |text: &str| match text {
        "sqlite" => Some(Dialect::Sqlite),
        "postgres" | "postgresql" => Some(Dialect::Postgres),
        "mysql" | "mariadb" => Some(Dialect::Mysql),
        _ => None,
    };
    let dialect = table.required("type", |node| choice(node, kind, &kinds))?;
    let foreign: &[&str] = match dialect {
        Dialect::Sqlite => &["host", "port", "database", "user", "password", "tls"],
        Dialect::Postgres | Dialect::Mysql => &["path"],
    };
    if let Some(at) = foreign.iter().find_map(|key| table.place(key)) {
        let why = format!("a database of the type {} has no such key", dialect.tool());
        return Err(Fault::new(at..at, why));
    }
    let value = |node: Node| {
        let span = node.span.clone();
        filled(&name(node)?, variable).map_err(|why| Fault::new(span, why))
    };
    let at = match dialect {
        Dialect::Sqlite => DatabasePlace::File(table.required("path", value)?),
        Dialect::Postgres | Dialect::Mysql => DatabasePlace::Server(DatabaseServer {
            host: table.required("host", value)?,
            port: table.optional("port", |node| port(node, variable))?.unwrap_or(usual_port(dialect)),
            database: table.required("database", value)?,
            user: table.required("user", value)?,
            password: table.optional("password", |node| {
                let span = node.span.clone();
                filled(&text(node)?, variable).map_err(|why| Fault::new(span, why))
            })?,
            tls: table.optional("tls", |node| choice(node, TlsMode::of_name, &TlsMode::NAMES))?.unwrap_or_default(),
        }),
    };
    Ok(ConfiguredDatabase { alias, dialect, at })
}

fn port(node: Node, variable: VariableLookup<'_>) -> Result<u16, Fault> {
    let span = node.span.clone();
    let bad = || Fault::new(span.clone(), "a port is a number from 1 to 65535");
    let number = match &node.value {
        DocumentValue::Integer(number) => u16::try_from(*number).ok(),
        DocumentValue::Text(text) => filled(text, variable).map_err(|why| Fault::new(span.clone(), why))?.parse().ok(),
        DocumentValue::Table(_) | DocumentValue::Array(_) | DocumentValue::Bool(_) | DocumentValue::Other(_) => None,
    };
    number.filter(|port| *port > 0).ok_or_else(bad)
}

/// With the value of each `${NAME}`.
fn filled(text: &str, variable: VariableLookup<'_>) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, behind) = after.split_once('}').ok_or("a `${` has no `}`")?;
        filled.push_str(before);
        filled.push_str(&variable(name).ok_or_else(|| format!("callgate was started without the variable {name:?}"))?);
        rest = behind;
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<ConfiguredDatabase>, String> {
        let variable = |name: &str| (name == "SECRET").then(|| "hunter22".to_owned());
        parse(text, variable).map_err(|error| error.to_string())
    }

    #[test]
    fn x4_15_aliases_with_variables() {
        let text = "databases:\n  shop:\n    type: sqlite\n    path: /srv/shop.db\n  orders:\n    type: postgres\n    host: db\n    \
                    database: orders\n    user: reader\n    password: a${SECRET}b\n    tls: verify\n";
        let server = DatabaseServer {
            host: "db".to_owned(),
            port: 5432,
            database: "orders".to_owned(),
            user: "reader".to_owned(),
            password: Some("ahunter22b".to_owned()),
            tls: TlsMode::Verify,
        };
        let file = DatabasePlace::File("/srv/shop.db".to_owned());
        let found = parsed(text).expect("databases");
        assert!(!format!("{found:?}").contains("hunter22"));
        let expected = vec![
            ConfiguredDatabase { alias: "shop".to_owned(), dialect: Dialect::Sqlite, at: file },
            ConfiguredDatabase {
                alias: "orders".to_owned(),
                dialect: Dialect::Postgres,
                at: DatabasePlace::Server(server),
            },
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn x4_15_what_makes_no_sense_is_named_without_values() {
        for (text, says) in [
            ("", "is empty"),
            ("databases:\n  a:\n    type: dbase\n", "not one of sqlite, postgres, mysql"),
            ("databases:\n  a:\n    type: sqlite\n", "needs the key \"path\""),
            ("databases:\n  a:\n    type: sqlite\n    path: x\n    host: y\n", "of the type sqlite has no such key"),
            ("databases:\n  a:\n    type: sqlite\n    path: ${NONE}\n", "without the variable \"NONE\""),
            (
                "databases:\n  a:\n    type: mysql\n    host: ${SECRET}\n    port: ${SECRET}\n    database: d\n    user: u\n",
                "a port is",
            ),
        ] {
            let error = parsed(text).expect_err(text);
            assert!(error.contains(says) && !error.contains("hunter22"), "{text}: {error}");
        }
    }
}
