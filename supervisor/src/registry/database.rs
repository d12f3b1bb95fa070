//! The tools that query databases. They run in a worker; here is which databases there are, and what a call of theirs needs.
//!
//! Which databases there are is for whoever starts the session to say: in their environment (S4-19), or in a file of theirs
//! (X4-15). Nothing in a workspace counts, and neither does a file that calls could write or read.

use std::ffi::OsString;
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use callgate_policy::databases::{self, At, Database, Server, Tls, usual_port};
use callgate_policy::effective::EffectiveSet;
use callgate_policy::limit::Limits;
use callgate_policy::need::{CallNeeds, HostNeed};
use callgate_policy::path::{HostPath, normalize};
use callgate_policy::plan::Work;
use callgate_policy::profile;
use callgate_policy::sql::{Dialect, SqlKind, SqlNeed, Statement};
use callgate_policy::tool::Subject;
use callgate_policy::unit::ByteSize;
use callgate_tools::database::{self as tools, CONNECTION, Connection, ServerConnection};
use callgate_worker::way::Way;
use rustix::fs::FileType;
use serde_json::{Map, Value};

use super::executor::{Context, Executor, InvalidArgument, Prepare, Prepared};
use super::{Registry, RegistryError, Tool};
use crate::credentials;
use crate::credentials::SHORTEST;
use crate::host;
use crate::place::Changeable;

/// How long a call may take.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Memory that a call may hold: a server decides how long its rows and messages are.
const MEMORY: ByteSize = ByteSize(1 << 30);
/// How long a statement may take at a server, which ends it itself.
const STATEMENT: Duration = Duration::from_secs(100);

/// Where the file is, if somebody says.
const FILE: &str = "RHO_AGENT_DB_CONFIG";
/// Where it is otherwise, in the home directory.
const USUAL: &str = ".config/rho-agent/databases.yaml";

/// `sqlite` (S4-16).
pub(super) fn sqlite() -> Result<Tool, RegistryError> {
    tool(&tools::SQLITE, Dialect::Sqlite)
}

/// `postgres` (S4-16).
pub(super) fn postgres() -> Result<Tool, RegistryError> {
    tool(&tools::POSTGRES, Dialect::Postgres)
}

/// `mysql` (S4-16).
pub(super) fn mysql() -> Result<Tool, RegistryError> {
    tool(&tools::MYSQL, Dialect::Mysql)
}

fn tool(contract: &'static callgate_tools::Contract, dialect: Dialect) -> Result<Tool, RegistryError> {
    let texts = (contract.description, contract.schema, contract.output);
    let tool = Tool::bundled(contract.name, texts, Executor::Worker(Arc::new(Query(dialect))))?;
    let limits = Limits { memory: Some(MEMORY), ..Limits::default() };
    Ok(tool.subject(Subject::Query).limits(limits))
}

/// The databases of a session.
#[derive(Debug, Default)]
pub(crate) struct Databases {
    all: Vec<Database>,
    /// Reason why the file does not count.
    wrong: Option<String>,
}

impl Databases {
    /// Those of a session with these tools: where none queries databases, nothing is read.
    pub(crate) fn of_session(registry: &Registry, effective: &EffectiveSet, changeable: &Changeable) -> Self {
        let queries = registry.tools().any(|tool| tool.executor.dialect().is_some());
        if queries { Self::read(effective, changeable) } else { Self::default() }
    }

    /// Those that whoever starts the session has configured.
    fn read(effective: &EffectiveSet, changeable: &Changeable) -> Self {
        let mut all = of_environment();
        let named = host::variable(FILE).map(PathBuf::from);
        let path = named.clone().or_else(|| Some(host::home()?.join(USUAL)));
        let wrong = path.and_then(|path| match in_file(&path, effective, changeable) {
            Ok(Some(further)) => {
                all.extend(further);
                None
            }
            Ok(None) if named.is_none() => None,
            Ok(None) => Some(format!("{}: there is no such file", path.display())),
            Err(why) => Some(format!("{}: {why}", path.display())),
        });
        for database in &mut all {
            if let At::File(file) = &mut database.at {
                *file = settled(file, changeable);
            }
        }
        let databases = Self { all, wrong };
        if databases.secrets().next().is_some() {
            credentials::are_read();
        }
        databases
    }

    /// Passwords, for whoever keeps them out of what is written down. A shorter one would be found in every text.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        let secrets = self.all.iter().filter_map(|database| match &database.at {
            At::Server(server) => server.password.as_deref(),
            At::File(_) => None,
        });
        secrets.filter(|secret| secret.len() >= SHORTEST)
    }

    /// The one of this kind and alias; without an alias, the only one.
    fn find(&self, dialect: Dialect, alias: Option<&str>) -> Result<&Database, String> {
        let of_kind: Vec<&Database> = self.all.iter().filter(|database| database.dialect == dialect).collect();
        let listed = || of_kind.iter().map(|database| database.alias.as_str()).collect::<Vec<_>>().join(", ");
        let also = self.wrong.as_ref().map(|wrong| format!(" ({wrong})")).unwrap_or_default();
        match (alias, of_kind.as_slice()) {
            (_, []) => Err(format!("no database of this kind is configured{also}; {}", how(dialect))),
            (None, [only]) => Ok(only),
            (None, _) => Err(format!("there are several, name one: {}", listed())),
            (Some(alias), all) => {
                let found = all.iter().find(|database| database.alias == alias).copied();
                found.ok_or_else(|| format!("there is no database {alias:?}; there are: {}{also}", listed()))
            }
        }
    }
}

fn how(dialect: Dialect) -> String {
    let variables = match dialect {
        Dialect::Sqlite => "SQLITE_DB",
        Dialect::Postgres => "POSTGRES_HOST, POSTGRES_DATABASE, POSTGRES_USER and POSTGRES_PASSWORD",
        Dialect::Mysql => "MYSQL_HOST, MYSQL_DATABASE, MYSQL_USER and MYSQL_PASSWORD",
    };
    format!("whoever starts the session sets {variables}, or writes ~/{USUAL}")
}

/// S4-19.
fn of_environment() -> Vec<Database> {
    let files = host::variable("SQLITE_DB").unwrap_or_default();
    let files = files.split(',').map(str::trim).filter(|file| !file.is_empty());
    let mut all: Vec<Database> = Vec::new();
    for file in files {
        let stem = Path::new(file).file_stem().map_or(file.into(), |stem| stem.to_string_lossy());
        // Two of one name are told apart by their paths.
        let alias = if all.iter().any(|other| other.alias == stem) { file.to_owned() } else { stem.into_owned() };
        all.push(Database { alias, dialect: Dialect::Sqlite, at: At::File(file.to_owned()) });
    }
    all.extend(server("POSTGRES", Dialect::Postgres));
    all.extend(server("MYSQL", Dialect::Mysql));
    all
}

fn server(prefix: &str, dialect: Dialect) -> Option<Database> {
    let variable = |name: &str| host::variable(&format!("{prefix}_{name}")).filter(|value| !value.is_empty());
    let database = variable("DATABASE")?;
    let port = variable("PORT").and_then(|port| port.parse().ok()).unwrap_or(usual_port(dialect));
    let at = Server {
        host: variable("HOST")?,
        port,
        database: database.clone(),
        user: variable("USER")?,
        password: variable("PASSWORD"),
        // What makes no sense is no leave to be careless.
        tls: variable("TLS").map_or(Tls::Prefer, |name| Tls::of_name(&name).unwrap_or(Tls::Verify)),
    };
    Some(Database { alias: database, dialect, at: At::Server(at) })
}

/// Those of a file; `None` if there is none. It belongs to the user, as credentials do, and nobody else writes it.
fn in_file(path: &Path, effective: &EffectiveSet, changeable: &Changeable) -> Result<Option<Vec<Database>>, String> {
    let way = match Way::follow(path) {
        Err(errno) if errno == rustix::io::Errno::NOENT => return Ok(None),
        way => way.map_err(|errno| std::io::Error::from(errno).to_string())?,
    };
    if let Some(link) = changeable.planted(&way.links) {
        return Err(format!("{} on the way is a link that a call may have made", link.display()));
    }
    let stat = *way.stat();
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err("it is no regular file".to_owned());
    }
    let me = rustix::process::geteuid().as_raw();
    if stat.st_uid != me || stat.st_mode & 0o077 != 0 {
        return Err("others can read it, or it is not yours; it must belong to you, with mode 0600".to_owned());
    }
    if stat.st_nlink != 1 {
        return Err("it has a second name (a hard link), by which calls could write it".to_owned());
    }
    let real = HostPath::from(way.real_path().map_err(|error| error.to_string())?);
    if effective.allows_read(&real) || effective.rights().allows_write(&real) {
        return Err("calls may read or write it; keep it where nothing is granted".to_owned());
    }
    let fd = way.into_fd();
    let opened = std::fs::File::open(format!("/proc/self/fd/{}", fd.as_raw_fd())).map_err(|error| error.to_string())?;
    let mut text = String::new();
    let most = u64::try_from(databases::MAX_BYTES + 1).unwrap_or(u64::MAX);
    opened.take(most).read_to_string(&mut text).map_err(|error| error.to_string())?;
    databases::parse(&text, host::variable).map(Some).map_err(|error| error.to_string())
}

/// One statement, by one kind of database.
struct Query(Dialect);

impl Prepare for Query {
    fn dialect(&self) -> Option<Dialect> {
        Some(self.0)
    }

    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        let bad = |name: &str, reason: String| InvalidArgument { name: name.to_owned(), reason };
        tools::check(args).map_err(|(name, reason)| bad(name, reason))?;
        let found = context.databases.find(self.0, args["database"].as_str());
        let database = found.map_err(|reason| bad("database", reason))?;
        let statement = match &context.read.statement {
            Some(statement) => statement.clone(),
            None => asked(args).ok_or_else(|| bad("sql", "it was not read".to_owned()))?,
        };
        // What the profile refuses needs nothing.
        let changes = statement.kind == SqlKind::Changes && context.profile.database == profile::Database::Mutations;
        let output = args.get("output_path").map(|_| context.path_argument(args, "output_path")).transpose()?;
        let mut needs = CallNeeds { write: output.iter().cloned().collect(), ..CallNeeds::default() };
        let (mut paths, mut told_of, mut log) = (Vec::new(), None, false);
        match &database.at {
            At::File(file) => {
                let file = normalize(context.root, &HostPath::from(PathBuf::from(file)));
                let file = file.map_err(|error| bad("database", error.to_string()))?;
                need_file(&mut needs, &file, changes);
                log = changes || context.effective.allows_read(&beside(&file, "-wal"));
                paths.push(file);
            }
            At::Server(server) => {
                needs.hosts.push(HostNeed { host: server.host.clone(), port: server.port });
                told_of = Some(connection_to(server));
            }
        }
        paths.extend(output.clone());
        let (dialect, alias) = (self.0, database.alias.clone());
        let connection = Connection { dialect, database: alias.clone(), changes, server: told_of, log };
        let connection = serde_json::to_value(connection).map_err(|error| bad("database", error.to_string()))?;
        needs.sql = Some(SqlNeed { dialect, database: alias, statement, output: output.clone() });
        let work = Work::Tool { name: self.0.tool().to_owned(), paths, limit: context.limit };
        let told = Map::from_iter([(CONNECTION.to_owned(), connection)]);
        let subject = Some(if changes { Subject::Mutate } else { Subject::Query });
        Ok(Prepared { told, subject, ..Prepared::new(needs, Some(work), Some(TIMEOUT)) })
    }
}

fn connection_to(server: &Server) -> ServerConnection {
    let Server { host, port, database, user, password, tls } = server.clone();
    let timeout_ms = u64::try_from(STATEMENT.as_millis()).unwrap_or(u64::MAX);
    ServerConnection { host, port, database, user, password, tls, timeout_ms }
}

/// Statement that asks about the schema, as rules and people see it: the tool has a statement of its own for that.
fn asked(args: &Value) -> Option<Statement> {
    let (verb, about) = match args["operation"].as_str()? {
        "list_tables" => ("LIST TABLES", args["table_pattern"].as_str()),
        "describe" => ("DESCRIBE", args["table_name"].as_str()),
        _ => return None,
    };
    let text = about.map_or(verb.to_owned(), |about| format!("{verb} {about}"));
    Some(Statement { kind: SqlKind::Reads, verb: verb.to_owned(), text })
}

/// Where a file is, once and for all: a path in the environment is relative to where the session was started, and links that
/// whoever started it has made are followed now. What a call makes of the place later says nothing about other places, and
/// leads to none.
fn settled(file: &str, changeable: &Changeable) -> String {
    let Ok(path) = std::path::absolute(file) else { return file.to_owned() };
    let followed = Way::follow(&path).ok().filter(|way| changeable.planted(&way.links).is_none());
    let real = followed.and_then(|way| way.real_path().ok()).unwrap_or(path);
    real.into_os_string().into_string().unwrap_or_else(|_odd| file.to_owned())
}

/// The file, and what SQLite keeps beside it.
fn need_file(needs: &mut CallNeeds, file: &HostPath, changes: bool) {
    let beside = ["-journal", "-wal", "-shm"].map(|suffix| beside(file, suffix));
    if changes {
        needs.write.push(file.clone());
        needs.write.extend(beside);
    } else {
        needs.read.push(file.clone());
        needs.read_if_granted.extend(beside);
    }
}

fn beside(file: &HostPath, suffix: &str) -> HostPath {
    let name = [file.as_bytes(), suffix.as_bytes()].concat();
    HostPath::from(PathBuf::from(OsString::from_vec(name)))
}
