//! `callgate mcp --wrap`.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use callgate::policy::rules::{Action, Rule, RuleScope};
use callgate::{Launcher, SessionSpec, Store};
use callgate_mcp::{Remote, RemoteError, RemoteSpec};

use crate::exit::CommandFailure;
use crate::show;
use crate::supervisor::supervise_with;

/// Programs that run another, which is what is meant.
const RUNNERS: [&str; 16] = [
    "npx", "bunx", "pnpm", "yarn", "uvx", "uv", "pipx", "node", "deno", "bun", "python", "python3", "sh", "bash",
    "env", "docker",
];
/// Words with which such a program is told to run one.
const RUNS: [&str; 6] = ["run", "exec", "dlx", "tool", "x", "start"];
/// First word of callgate's own lines.
const OURS: &str = "callgate";
/// Most characters of a server's name.
const NAME_MAX: usize = 64;

/// The server that is wrapped.
#[derive(Debug)]
pub(super) struct WrappedServer {
    pub(super) name: String,
    argv: Vec<OsString>,
}

impl WrappedServer {
    pub(super) fn of(name: Option<String>, argv: Vec<OsString>) -> Result<Self, CommandFailure> {
        let name = match name {
            Some(name) if is_name(&name) && name != OURS => name,
            Some(name) => {
                return Err(CommandFailure::Usage(format!(
                    "--name {name:?}: a name has 1 to {NAME_MAX} of a-z, A-Z, 0-9, `_` and `-`, and is not `{OURS}`"
                )));
            }
            None => name_of(&argv),
        };
        Ok(Self { name, argv })
    }

    /// How it is typed again.
    pub(super) fn words(self) -> Result<Vec<String>, CommandFailure> {
        let texts = self.argv.into_iter().map(|word| {
            word.into_string().map_err(|word| CommandFailure::Usage(format!("{} is not text", word.display())))
        });
        let texts: Vec<String> = texts.collect::<Result<_, _>>()?;
        Ok(["--wrap".to_owned(), "--name".to_owned(), self.name, "--".to_owned()].into_iter().chain(texts).collect())
    }
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    !name.is_empty() && name.len() <= NAME_MAX && name.chars().all(plain)
}

/// Name of a command: `@modelcontextprotocol/server-memory@1.0` is `memory`.
fn name_of(argv: &[OsString]) -> String {
    let words = argv.iter().map(|word| word.to_string_lossy());
    let mut meant = words.filter(|word| {
        let base = Path::new(word.as_ref()).file_name().and_then(OsStr::to_str).unwrap_or_default();
        !word.starts_with('-') && !RUNNERS.contains(&base) && !RUNS.contains(&word.as_ref())
    });
    let word = meant.next().unwrap_or_default().into_owned();
    let base = word.rsplit('/').next().unwrap_or_default();
    let base = base.split(['@', '=']).find(|part| !part.is_empty()).unwrap_or_default();
    let base = base.strip_suffix(".js").or(base.strip_suffix(".py")).unwrap_or(base);
    let base = ["mcp-server-", "mcp_server_", "server-", "mcp-"]
        .iter()
        .find_map(|begin| base.strip_prefix(begin))
        .unwrap_or(base);
    let base = ["-mcp-server", "-mcp", "-server"].iter().find_map(|end| base.strip_suffix(end)).unwrap_or(base);
    let name: String = base.chars().filter(|c| is_name(&c.to_string())).take(NAME_MAX).collect();
    if name.is_empty() || name == OURS { "server".to_owned() } else { name }
}

/// Serves a server's tools in a session for agents, until the client or the server closes its end.
pub(super) fn wrap(
    launcher: Launcher,
    mut spec: SessionSpec,
    server: WrappedServer,
) -> Result<ExitCode, CommandFailure> {
    // What callgate's own tools require is not granted to a server.
    spec.tools = false;
    spec.title.get_or_insert_with(|| format!("mcp --wrap {}", server.name));
    let WrappedServer { name, argv } = server;
    // Whoever types a server grants what it can do, unless a rule, a mode or a profile says otherwise.
    spec = spec.rule(RuleScope::Default, Rule::new(format!("mcp:{name}:*"), Action::Allow));
    let from = show::ManifestFrom::of(&spec);
    let ended = supervise_with(Some(Store::of_user()?), launcher, async |supervisor| {
        let session = Arc::new(supervisor.open(spec).await?);
        show::tell_warnings(&session, from);
        let remote = Remote::start(Arc::clone(&session), RemoteSpec::new(&name, argv)).await;
        let remote = remote.map_err(not_started)?;
        let served = callgate_mcp::wrap(session, remote, tokio::io::stdin(), tokio::io::stdout()).await;
        served.map_err(|error| CommandFailure::runtime(std::io::Error::other(error)))
    })?;
    if ended {
        return Err(CommandFailure::io("serve its tools")(std::io::Error::other(format!(
            "the server `{name}` has ended"
        ))));
    }
    Ok(ExitCode::SUCCESS)
}

/// Failure of a start. What was refused to the server is told already.
fn not_started(error: RemoteError) -> CommandFailure {
    match error {
        RemoteError::Start { source, .. } => source.into(),
        other @ (RemoteError::Begin { .. } | _) => CommandFailure::io("start the server")(std::io::Error::other(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_called_what_people_call_it() {
        let named = |line: &str| name_of(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(named("npx -y @modelcontextprotocol/server-memory"), "memory");
        assert_eq!(named("npx -y @modelcontextprotocol/server-filesystem@2025.1.1 /srv"), "filesystem");
        assert_eq!(named("uvx mcp-server-git --repository ."), "git");
        assert_eq!(named("uv tool run mcp-server-fetch"), "fetch");
        assert_eq!(named("python3 -m mcp_server_time"), "time");
        assert_eq!(named("/opt/bin/github-mcp-server stdio"), "github");
        assert_eq!(named("node node_modules/x/build/index.js"), "index");
        assert_eq!(named("npx"), "server");
        assert_eq!(named("npx callgate"), "server");
    }
}
