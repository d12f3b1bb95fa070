//! `callgate mcp`.

mod config;
mod tokens;
mod wrap;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use callgate::{AskedBy, Launcher, OpenError, Overflow, Session, SessionSpec, Store, Supervisor};
use callgate_mcp::{Client, HttpError, HttpServer, Opened, Opening, Servers};
use callgate_policy::plan::Calls;
use callgate_policy::unit::parse_duration;
use rustix::process::{Resource, Rlimit};
use tokio::signal::unix::{SignalKind, signal};

use super::arguments::{AgentHost, Grants, Mcp, SessionArguments};
use super::exit::CommandFailure;
use super::session::{KeptSettings, Recorded, absolute_profile, lasting, make};
use super::show;
use super::supervisor::{forked, supervise_with};
use tokens::Tokens;
use wrap::WrappedServer;

pub(super) fn mcp(mcp: Mcp) -> Result<ExitCode, CommandFailure> {
    let Mcp {
        new,
        session,
        approval_timeout,
        http,
        token_file,
        idle_timeout,
        max_sessions,
        print_config,
        wrap,
        name,
        server,
    } = mcp;
    let wrapped = wrap.then(|| WrappedServer::of(name, server)).transpose()?;
    if let Some(host) = print_config {
        return print(host, new, session, (approval_timeout, wrapped));
    }
    // Before a first event loop: egress cannot make one in a process that comes from one with another.
    let launcher = forked()?;
    let patience = approval_timeout.map(|time| duration("--approval-timeout", &time)).transpose()?;
    if let Some(server) = wrapped {
        let mut spec = KeptSettings::of(new)?.spec()?;
        for_agents(&mut spec, patience);
        return wrap::wrap(launcher, spec, server);
    }
    if let Some(address) = http {
        let idle = idle_timeout.map(|time| duration("--idle-timeout", &time)).transpose()?;
        let http = HttpServing { address: self::address(&address)?, token_file, idle, sessions: max_sessions };
        return serve_http(launcher, new, patience, &http);
    }
    let recorded = match session {
        Some(id) => Recorded::find(&id, &new.grants)?,
        None => Recorded::find(&make(new)?.id, &Grants::default())?,
    };
    let mut spec = recorded.spec()?;
    for_agents(&mut spec, patience);
    spec.resume = Some(recorded.id());
    supervise_with(Some(recorded.into_store()), launcher, async |supervisor| {
        let session = Arc::new(supervisor.open(spec.clone()).await?);
        show::tell_warnings(&session, show::ManifestFrom::of(&spec));
        let _servers = Servers::start(&supervisor, &spec, &session).await;
        let served = callgate_mcp::serve(session, tokio::io::stdin(), tokio::io::stdout()).await;
        served.map_err(|error| CommandFailure::io("serve the client")(std::io::Error::other(error)))
    })?;
    Ok(ExitCode::SUCCESS)
}

fn print(
    host: AgentHost,
    mut new: SessionArguments,
    session: Option<String>,
    (approval_timeout, wrapped): (Option<String>, Option<WrappedServer>),
) -> Result<ExitCode, CommandFailure> {
    let mut words = match session {
        // It has its grants.
        Some(id) if new.grants == Grants::default() => config::words(new, Some(id), approval_timeout),
        Some(id) => Recorded::find(&id, &new.grants).and_then(|_| config::words(new, Some(id), approval_timeout)),
        None => {
            new.grants = lasting(new.grants)?;
            new.profile = new.profile.map(absolute_profile).transpose()?;
            config::words(new, None, approval_timeout)
        }
    }?;
    let name = wrapped.as_ref().map_or("callgate", |server| &server.name).to_owned();
    if let Some(server) = wrapped {
        words.extend(server.words()?);
    }
    let (place, text) = config::config(host, &name, &words)?;
    // A notice, which is not a part of what is printed.
    drop(writeln!(std::io::stderr(), "callgate: for {place}"));
    std::io::stdout().write_all(text.as_bytes()).map_err(CommandFailure::print("print the configuration"))?;
    Ok(ExitCode::SUCCESS)
}

/// Settings that sessions that serve a client have in common.
fn for_agents(spec: &mut SessionSpec, patience: Option<Duration>) {
    spec.calls = Calls::Many;
    spec.asked_by = AskedBy::Agent;
    spec.approvers = vec![Arc::new(Client)];
    spec.overflow = Overflow::Session;
    if let Some(patience) = patience {
        spec.patience = patience;
    }
}

/// Where to listen.
#[derive(Debug, Clone, Copy)]
enum Address {
    Literal(SocketAddr),
    /// Both addresses of that name, at this port.
    Localhost(u16),
}

/// Where and for whom.
struct HttpServing {
    address: Address,
    token_file: Option<PathBuf>,
    idle: Option<Duration>,
    sessions: Option<u16>,
}

/// Serves until a signal comes.
fn serve_http(
    launcher: Launcher,
    new: SessionArguments,
    patience: Option<Duration>,
    http: &HttpServing,
) -> Result<ExitCode, CommandFailure> {
    let mut spec = KeptSettings::of(new)?.spec()?;
    for_agents(&mut spec, patience);
    let sessions = http.sessions.map_or(HttpServer::SESSIONS, usize::from);
    make_room(http.sessions.is_some(), sessions)?;
    let store = Store::of_user()?;
    supervise_with(Some(store.clone()), launcher, async |supervisor| {
        let server = match http.address {
            Address::Literal(address) => HttpServer::listen(address).await,
            Address::Localhost(port) => HttpServer::listen_on_localhost(port).await,
        };
        let server = server.map_err(cannot_listen)?.sessions(sessions);
        let server = match http.idle {
            Some(idle) => server.idle(idle),
            None => server,
        };
        // What is wrong with the grants is told now, and not to the first client, which gets this session.
        let first = supervisor.open(spec.clone()).await?;
        show::tell_warnings(&first, show::ManifestFrom::of(&spec));
        // From here on a signal is waited for: all that is open ends as it does when a client goes.
        let signalled = signalled()?;
        let tokens = Tokens::ready(http.token_file.as_deref(), server.address(), &store, &first)?;
        tell(&server.urls(), &tokens.file);
        let first = Mutex::new(Some(first));
        let open = move || -> Opening {
            let first = first.lock().unwrap_or_else(PoisonError::into_inner).take();
            let (supervisor, spec) = (supervisor.clone(), spec.clone());
            Box::pin(async move {
                let session = Arc::new(next(&supervisor, &spec, first).await?);
                // Each client has servers of its own, as it has a session of its own.
                let servers = Servers::start(&supervisor, &spec, &session).await;
                Ok(Opened { session, servers })
            })
        };
        server.serve(tokens.all(), open, signalled).await;
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Lets this process have the descriptors that so many sessions take: a server that runs out of them fails clients at random. If the
/// number was typed, too few are an error.
fn make_room(is_typed: bool, sessions: usize) -> Result<(), CommandFailure> {
    let needed = HttpServer::descriptors(sessions) as u64;
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(needed);
    if is_typed && most < needed {
        return Err(CommandFailure::Usage(format!(
            "--max-sessions {sessions}: that takes {needed} descriptors, and this process may have {most} (`ulimit -Hn`)"
        )));
    }
    if limit.current.is_none_or(|current| current >= needed.min(most)) {
        return Ok(());
    }
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(needed.min(most)), ..limit })
        .map_err(|errno| CommandFailure::runtime(errno.into()))
}

/// The session of the next client. Whether the project is trusted is looked up for each: a person may have taken back since what they
/// said when the server was started.
async fn next(supervisor: &Supervisor, spec: &SessionSpec, first: Option<Session>) -> Result<Session, OpenError> {
    let Some(project) = &spec.project else {
        return match first {
            Some(first) => Ok(first),
            None => supervisor.open(spec.clone()).await,
        };
    };
    match first {
        // The one session that the trust was for.
        Some(first) if project.is_for_once() => Ok(first),
        first => {
            let now = spec.again()?;
            let is_same = now.project.as_ref().is_some_and(|now| now.has_same_approvals(project));
            match first.filter(|_| is_same) {
                Some(first) => Ok(first),
                None => supervisor.open(now).await,
            }
        }
    }
}

/// Returns when this process is asked to end.
fn signalled() -> Result<impl Future<Output = ()>, CommandFailure> {
    let wait = |kind| signal(kind).map_err(CommandFailure::runtime);
    let (mut terminate, mut interrupt) = (wait(SignalKind::terminate())?, wait(SignalKind::interrupt())?);
    let mut hang_up = wait(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hang_up.recv() => {}
        }
    })
}

fn duration(option: &str, text: &str) -> Result<Duration, CommandFailure> {
    parse_duration(text).map_err(|error| CommandFailure::Usage(format!("{option} {text}: {error}")))
}

/// An address as it is typed: `localhost` is what it is on every machine, whatever a name server says.
fn address(typed: &str) -> Result<Address, CommandFailure> {
    if let Some(port) = typed.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
        return Ok(Address::Localhost(port));
    }
    match typed.parse() {
        Ok(address) => refuse_others(address).map(Address::Literal),
        Err(_) => Err(CommandFailure::Usage(format!(
            "--http {typed}: an address has a port, as in 127.0.0.1:8931 or [::1]:8931"
        ))),
    }
}

/// From elsewhere the way is ssh, which knows who comes, and encrypts.
fn refuse_others(address: SocketAddr) -> Result<SocketAddr, CommandFailure> {
    if address.ip().is_loopback() {
        return Ok(address);
    }
    let port = address.port();
    Err(CommandFailure::Usage(format!(
        "--http {address}: only addresses of this machine itself are served (127.0.0.0/8, ::1). To reach it from another machine, \
         serve 127.0.0.1:{port} here and forward the same port there: ssh -L {port}:127.0.0.1:{port} THIS-HOST"
    )))
}

fn cannot_listen(error: HttpError) -> CommandFailure {
    match error {
        HttpError::Listen { address, source } => CommandFailure::named(format!("listen on {address}"))(source),
        other @ (HttpError::NotLoopback(_) | _) => CommandFailure::Usage(other.to_string()),
    }
}

/// Where a client finds the server, and where its token is. What is told may end in a log, so the token itself is not told.
fn tell(urls: &[String], tokens: &Path) {
    let file = tokens.display().to_string();
    let serving: String = urls.iter().map(|url| format!("callgate: serving {url}\n")).collect();
    let text = format!(
        "{serving}callgate: clients send `Authorization: Bearer TOKEN`; the token is in {}\n",
        file.escape_debug()
    );
    // A notice: the server serves whether or not somebody reads it.
    drop(std::io::stderr().write_all(text.as_bytes()));
}
