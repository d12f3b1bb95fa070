//! Databases of a session: which there are is for whoever starts it to say, in their environment (S4-19) or in a file of theirs
//! (X4-15). Nothing in a workspace counts, and neither does a file that calls could write or read.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use callgate_policy::databases::{self, ConfiguredDatabase, DatabasePlace, DatabaseServer, TlsMode, usual_port};
use callgate_policy::effective::EffectiveSet;
use callgate_policy::plan::SessionPlan;
use callgate_policy::sql::Dialect;
use callgate_worker::way::FollowedPath;

use crate::credentials;
use crate::credentials::SHORTEST;
use crate::host;
use crate::place::{Changeable, PrivateFile};

/// Where the file is, if somebody says.
const FILE: &str = "RHO_AGENT_DB_CONFIG";
/// Where it is otherwise, in the home directory.
const USUAL: &str = ".config/rho-agent/databases.yaml";

/// The databases of a session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Databases {
    all: Vec<ConfiguredDatabase>,
    /// Number of them, the first, that the environment names.
    of_environment: usize,
    /// Their file, by its path without links.
    file: Option<PathBuf>,
    /// Reason why the file does not count.
    wrong: Option<String>,
}

impl Databases {
    /// Those of a session whose tools query databases of these kinds: where there is none, nothing is read.
    pub(crate) fn of_session(mut dialects: impl Iterator<Item = Dialect>, changeable: &Changeable) -> Self {
        if dialects.next().is_some() { Self::read(changeable) } else { Self::default() }
    }

    /// Those that whoever starts the session has configured.
    fn read(changeable: &Changeable) -> Self {
        let mut all = of_environment();
        let of_environment = all.len();
        let mut file = None;
        let named = host::variable(FILE).map(PathBuf::from);
        let path = named.clone().or_else(|| Some(host::home()?.join(USUAL)));
        let wrong = path.and_then(|path| match in_file(&path, changeable) {
            Ok(Some((further, real))) => {
                all.extend(further);
                file = Some(real);
                None
            }
            Ok(None) if named.is_none() => None,
            Ok(None) => Some(format!("{}: there is no such file", path.display())),
            Err(why) => Some(format!("{}: {why}", path.display())),
        });
        for database in &mut all {
            if let DatabasePlace::File(file) = &mut database.at {
                *file = settled(file, changeable);
            }
        }
        let databases = Self { all, of_environment, file, wrong };
        if databases.secrets().next().is_some() {
            credentials::are_read();
        }
        databases
    }

    /// These, without those of a file that calls could read or write. `led` are the session's rights by where their paths lead.
    pub(crate) fn out_of_reach(&self, led: &EffectiveSet, plan: &SessionPlan) -> Self {
        let Some(file) = self.file.as_ref().filter(|file| credentials::may_read(led, plan, file)) else {
            return self.clone();
        };
        let wrong = format!("{}: calls may read or write it; keep it where nothing is granted", file.display());
        let all = self.all.iter().take(self.of_environment).cloned().collect();
        Self { all, of_environment: self.of_environment, file: None, wrong: Some(wrong) }
    }

    /// Passwords, for whoever keeps them out of what is written down. A shorter one would be found in every text.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        let secrets = self.all.iter().filter_map(|database| match &database.at {
            DatabasePlace::Server(server) => server.password.as_deref(),
            DatabasePlace::File(_) => None,
        });
        secrets.filter(|secret| secret.len() >= SHORTEST)
    }

    /// Those of this kind.
    pub(crate) fn of_kind(&self, dialect: Dialect) -> impl Iterator<Item = &ConfiguredDatabase> {
        self.all.iter().filter(move |database| database.dialect == dialect)
    }

    /// The one of this kind and alias; without an alias, the only one.
    pub(crate) fn find(&self, dialect: Dialect, alias: Option<&str>) -> Result<&ConfiguredDatabase, String> {
        let of_kind: Vec<&ConfiguredDatabase> = self.of_kind(dialect).collect();
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
fn of_environment() -> Vec<ConfiguredDatabase> {
    let files = host::variable("SQLITE_DB").unwrap_or_default();
    let files = files.split(',').map(str::trim).filter(|file| !file.is_empty());
    let mut all: Vec<ConfiguredDatabase> = Vec::new();
    for file in files {
        let stem = Path::new(file).file_stem().map_or(file.into(), |stem| stem.to_string_lossy());
        // Two of one name are told apart by their paths.
        let alias = if all.iter().any(|other| other.alias == stem) { file.to_owned() } else { stem.into_owned() };
        all.push(ConfiguredDatabase { alias, dialect: Dialect::Sqlite, at: DatabasePlace::File(file.to_owned()) });
    }
    all.extend(server("POSTGRES", Dialect::Postgres));
    all.extend(server("MYSQL", Dialect::Mysql));
    all
}

fn server(prefix: &str, dialect: Dialect) -> Option<ConfiguredDatabase> {
    let variable = |name: &str| host::variable(&format!("{prefix}_{name}")).filter(|value| !value.is_empty());
    let database = variable("DATABASE")?;
    let port = variable("PORT").and_then(|port| port.parse().ok()).unwrap_or(usual_port(dialect));
    let at = DatabaseServer {
        host: variable("HOST")?,
        port,
        database: database.clone(),
        user: variable("USER")?,
        password: variable("PASSWORD"),
        // What makes no sense is no leave to be careless.
        tls: variable("TLS").map_or(TlsMode::Prefer, |name| TlsMode::of_name(&name).unwrap_or(TlsMode::Verify)),
    };
    Some(ConfiguredDatabase { alias: database, dialect, at: DatabasePlace::Server(at) })
}

/// Those of a file, and its path without links; `None` if there is none. It belongs to the user, as credentials do, and nobody else
/// writes it.
fn in_file(path: &Path, changeable: &Changeable) -> Result<Option<(Vec<ConfiguredDatabase>, PathBuf)>, String> {
    let way = match FollowedPath::follow(path) {
        Err(errno) if errno == rustix::io::Errno::NOENT => return Ok(None),
        way => way.map_err(|errno| std::io::Error::from(errno).to_string())?,
    };
    let file = PrivateFile::at(way, changeable, "write")?;
    let real = file.real_path()?;
    let opened = file.open()?;
    let mut text = String::new();
    let most = u64::try_from(databases::MAX_BYTES + 1).unwrap_or(u64::MAX);
    opened.take(most).read_to_string(&mut text).map_err(|error| error.to_string())?;
    let parsed = databases::parse(&text, host::variable).map_err(|error| error.to_string())?;
    Ok(Some((parsed, real)))
}

/// Where a file is, once and for all: a path in the environment is relative to where the session was started, and links that
/// whoever started it has made are followed now. What a call makes of the place later says nothing about other places, and
/// leads to none.
fn settled(file: &str, changeable: &Changeable) -> String {
    let Ok(path) = std::path::absolute(file) else { return file.to_owned() };
    let followed = FollowedPath::follow(&path).ok().filter(|way| changeable.planted(&way.links).is_none());
    let real = followed.and_then(|way| way.real_path().ok()).unwrap_or(path);
    real.into_os_string().into_string().unwrap_or_else(|_odd| file.to_owned())
}
