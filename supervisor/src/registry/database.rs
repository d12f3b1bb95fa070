//! The tools that query databases. They run in a worker; here is which databases there are, and what a call of theirs needs.
//!
//! Which databases there are is for whoever starts the session to say: in their environment (S4-19), or in a file of theirs
//! (X4-15). Nothing in a workspace counts, and neither does a file that calls could write or read.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::time::Duration;

use callgate_policy::databases::{ConfiguredDatabase, DatabasePlace, DatabaseServer};
use callgate_policy::effect::{self, Effect, EffectKind, Effects, WriteKind};
use callgate_policy::limit::Limits;
use callgate_policy::path::{HostPath, normalize};
use callgate_policy::pattern::{Host, HostPattern, PathTemplate};
use callgate_policy::plan::CallWork;
use callgate_policy::profile::{self, Profile};
use callgate_policy::requirement::RequirementSet;
use callgate_policy::sql::{Dialect, SqlKind, Statement};
use callgate_policy::tool::Subject;
use callgate_policy::unit::ByteSize;
use callgate_policy::variable::Variables;
use callgate_tools::database::{self as tools, CONNECTION, Connection, ServerConnection};
use serde_json::{Map, Value};

use super::executor::{Executor, First, WorkerTool};
use super::prepare::{Context, InvalidArgument, Prepare, Prepared};
use super::{Databases, Registry, RegistryError, Tool};

/// How long a call may take.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Memory that a call may hold: a server decides how long its rows and messages are.
const MEMORY: ByteSize = ByteSize(1 << 30);
/// Endings of the files that SQLite keeps beside a database.
const BESIDE: [&str; 3] = ["-journal", "-wal", "-shm"];
/// How long a statement may take at a server, which ends it itself.
const STATEMENT: Duration = Duration::from_secs(100);

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
    let worker = WorkerTool::new(Query(dialect)).first(First::Statement(dialect));
    let tool = Tool::bundled(contract.name, texts, Executor::Worker(worker));
    let limits = Limits { memory: Some(MEMORY), ..Limits::default() };
    let kinds = [EffectKind::Queries, EffectKind::Writes];
    Ok(tool.subject(Subject::Query).does(&kinds).limits(limits).requires_alone(RequirementSet::default()))
}

impl Registry {
    /// Has the tools that query databases require where these are: a server's host, or a file, to write only where the profile lets
    /// statements change something.
    pub(crate) fn require_databases(&mut self, databases: &Databases, profile: &Profile, variables: &Variables) {
        let changes = profile.database == profile::Database::Mutations;
        for tool in &mut self.tools {
            if let Some(dialect) = tool.executor.dialect() {
                tool.requires = required(databases.of_kind(dialect), changes, variables.workspace().first());
            }
        }
    }
}

/// Requirements of a tool that queries these. A place that makes no sense is required by nobody, and refused when it is named.
fn required<'a>(
    databases: impl Iterator<Item = &'a ConfiguredDatabase>,
    changes: bool,
    root: Option<&HostPath>,
) -> RequirementSet {
    let mut requires = RequirementSet::default();
    for database in databases {
        match &database.at {
            DatabasePlace::Server(server) => {
                let host = Host::parse(&server.host).ok().map(|host| HostPattern::of_host(&host, server.port));
                requires.net.hosts.extend(host);
            }
            DatabasePlace::File(file) => {
                let file = root.and_then(|root| normalize(root, &HostPath::from(PathBuf::from(file))).ok());
                let files = file.iter().flat_map(|file| BESIDE.map(|suffix| beside(file, suffix)));
                let files = file.iter().cloned().chain(files).map(|file| PathTemplate::of_file(&file));
                if changes { requires.fs.write.extend(files) } else { requires.fs.read.extend(files) }
            }
        }
    }
    requires
}

/// One statement, by one kind of database.
struct Query(Dialect);

impl Prepare for Query {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        let bad = |name: &str, reason: String| InvalidArgument { name: name.to_owned(), reason };
        tools::check(args).map_err(|(name, reason)| bad(name, reason))?;
        let found = context.databases.find(self.0, args["database"].as_str());
        let database = found.map_err(|reason| bad("database", reason))?;
        // What a worker says that has read a stranger's text is as hostile as the text.
        let statement = serde_json::from_value(context.read.clone()).ok().or_else(|| asked(args));
        let statement = statement.ok_or_else(|| bad("sql", "it was not read".to_owned()))?;
        // What the profile refuses needs nothing.
        let changes = statement.kind == SqlKind::Changes && context.profile.database == profile::Database::Mutations;
        let output = args.get("output_path").map(|_| context.path_argument(args, "output_path")).transpose()?;
        let (dialect, alias) = (self.0, database.alias.clone());
        let query = effect::DatabaseQuery { dialect, database: alias.clone(), statement };
        let mut effects = Effects::of(Effect::Queries(query));
        let made = output.iter().map(|path| Effect::Writes { path: path.clone(), how: WriteKind::Create });
        effects.own.extend(made);
        let (mut paths, mut told_of, mut log) = (Vec::new(), None, false);
        match &database.at {
            DatabasePlace::File(file) => {
                let file = normalize(context.root, &HostPath::from(PathBuf::from(file)));
                let file = file.map_err(|error| bad("database", error.to_string()))?;
                need_file(&mut effects, &file, changes);
                log = changes || context.effective.allows_read(&beside(&file, "-wal"));
                paths.push(file);
            }
            DatabasePlace::Server(server) => {
                effects = effects.by(Effect::Connects(effect::HostConnection::new(server.host.clone(), server.port)));
                told_of = Some(connection_to(server));
            }
        }
        paths.extend(output.clone());
        let connection = Connection { dialect, database: alias, changes, server: told_of, log };
        let connection = serde_json::to_value(connection).map_err(|error| bad("database", error.to_string()))?;
        let work = CallWork::Tool { name: self.0.tool().to_owned(), paths, limit: context.limit };
        let told = Map::from_iter([(CONNECTION.to_owned(), connection)]);
        Ok(Prepared { told, ..Prepared::new(effects, Some(work), Some(TIMEOUT)) })
    }
}

fn connection_to(server: &DatabaseServer) -> ServerConnection {
    let DatabaseServer { host, port, database, user, password, tls } = server.clone();
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

/// The file, and what SQLite keeps beside it.
fn need_file(effects: &mut Effects, file: &HostPath, changes: bool) {
    let beside = BESIDE.map(|suffix| beside(file, suffix));
    if changes {
        let all = std::iter::once(file.clone()).chain(beside);
        effects.implied.extend(all.map(|path| Effect::Writes { path, how: WriteKind::Write }));
    } else {
        effects.implied.push(Effect::Shows(effect::FileScope::File(file.clone())));
        effects.consulted.extend(beside);
    }
}

fn beside(file: &HostPath, suffix: &str) -> HostPath {
    let name = [file.as_bytes(), suffix.as_bytes()].concat();
    HostPath::from(PathBuf::from(OsString::from_vec(name)))
}
