//! The servers that a manifest names (`[mcp.NAME]`): each in a session of its own, its tools in the session that serves a model.
//!
//! A server that does not start, dies or floods breaks no session: its tools are missing, or say so.

use std::ffi::OsString;
use std::sync::{Arc, Weak};
use std::time::Duration;

use callgate::policy::manifest::McpServer;
use callgate::{Session, SessionSpec, Subject, Supervisor, with_causes};
use sha2::{Digest as _, Sha256};
use tokio::task::JoinSet;

use crate::remote::told::tell;
use crate::remote::{Remote, RemoteSpec};

/// How long nothing is tried after a server has ended, from one time to the next, seconds (X0-44).
const BACK_OFF: [u64; 5] = [1, 2, 5, 15, 60];
/// A server that has run for so long has started well.
const SETTLED: Duration = Duration::from_secs(60);
/// How long a server's tools stay as they were listed, however often it says that they are others.
const AT_MOST_EVERY: Duration = Duration::from_secs(5);
/// With more tools than this, servers' tools are found by `tool_search` (X0-45).
const LISTED_MAX: usize = 20;
/// In a server's arguments: the workspace.
const WORKSPACE: &str = "{workspace}";
/// Most characters of a name that a model can say.
const NAME_MAX: usize = 64;

/// The servers of a session. Dropping this ends them.
#[derive(Debug, Default)]
pub struct Servers(#[expect(dead_code, reason = "what is in it ends with it")] JoinSet<()>);

impl Servers {
    /// Starts those that the manifest of `spec` names, and returns when each has its tools in the session, or has failed once. What
    /// went wrong is told on standard error.
    ///
    /// # Example
    /// ```no_run
    /// # async fn host(supervisor: callgate::Supervisor, spec: callgate::SessionSpec) -> Result<(), callgate::OpenError> {
    /// let session = std::sync::Arc::new(supervisor.open(spec.clone()).await?);
    /// let servers = callgate_mcp::Servers::start(&supervisor, &spec, &session).await;
    /// let result = session.call("mcp__git__git_status", serde_json::json!({ "repo_path": "." })).await;
    /// # drop((servers, result));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn start(supervisor: &Supervisor, spec: &SessionSpec, session: &Arc<Session>) -> Self {
        Self::start_those(supervisor, spec, session, (|_| true, Listing::WhatFits)).await
    }

    /// Starts them for a session in which these tools are called, and no others.
    pub async fn start_for(
        supervisor: &Supervisor,
        spec: &SessionSpec,
        session: &Arc<Session>,
        tools: &[String],
    ) -> Self {
        let is_called = |server: &str| tools.iter().any(|tool| Self::may_have(server, tool));
        Self::start_those(supervisor, spec, session, (is_called, Listing::All)).await
    }

    async fn start_those(
        supervisor: &Supervisor,
        spec: &SessionSpec,
        session: &Arc<Session>,
        (wanted, listing): (impl Fn(&str) -> bool, Listing),
    ) -> Self {
        let mut all = JoinSet::new();
        let mut begun = JoinSet::new();
        for (name, server) in spec.manifest.iter().flat_map(|manifest| &manifest.mcp) {
            let own = own_spec(spec, name, session).filter(|_| server.enabled && wanted(name));
            let Some(own) = own else { continue };
            let (first, has_begun) = tokio::sync::oneshot::channel();
            let run = Run {
                name: name.clone(),
                server: server.clone(),
                supervisor: supervisor.clone(),
                spec: own,
                session: Arc::downgrade(session),
                listing,
            };
            all.spawn(run.keep(first));
            begun.spawn(has_begun);
        }
        while begun.join_next().await.is_some() {}
        Self(all)
    }

    /// True if a tool of this name could be the server's.
    #[must_use]
    pub fn may_have(server: &str, tool: &str) -> bool {
        matches!(tool, "tool_search" | "ToolSearch") || tool.starts_with(&format!("mcp__{server}__"))
    }
}

/// Specification of a server's session: its own rights, within those of the session that has its tools. Calls of that
/// session can have a hand in what a server is and finds, and what one server writes another may read: so none has a
/// right that they have not.
fn own_spec(spec: &SessionSpec, name: &str, session: &Session) -> Option<SessionSpec> {
    let manifest = spec.manifest.as_ref()?.of_server(name)?;
    let mut own = SessionSpec::with_manifest(spec.workspace.first()?.clone(), manifest).without_tools();
    own.workspace.clone_from(&spec.workspace);
    own.ad_hoc.clone_from(&spec.ad_hoc);
    own.user_data.clone_from(&spec.user_data);
    own.ceiling.clone_from(&spec.ceiling);
    own.ceiling.push(session.effective().as_parent());
    own.ceilings.clone_from(&spec.ceilings);
    // One that takes writing away takes it from every program.
    own.profile.clone_from(&spec.profile);
    (own.strength, own.limits, own.allow_home) = (spec.strength, spec.limits, spec.allow_home);
    own.title = Some(format!("the MCP server {name}"));
    Some(own)
}

/// Dropped when a server has its tools in the session, or has failed once.
type Begun = tokio::sync::oneshot::Sender<()>;

struct Run {
    name: String,
    server: McpServer,
    supervisor: Supervisor,
    spec: SessionSpec,
    session: Weak<Session>,
    listing: Listing,
}

/// Which tools a model is shown at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listing {
    /// All of them.
    All,
    /// With too many, those of servers are found by `tool_search`.
    WhatFits,
}

impl Run {
    /// Keeps the server running for as long as there is the session.
    async fn keep(self, first: Begun) {
        let (mut first, mut own) = (Some(first), None);
        let (mut failures, mut said) = (0, String::new());
        loop {
            let started = std::time::Instant::now();
            let what = match self.once(&mut own, &mut first).await {
                Ok(how) => format!("the server `{}` has ended{how}", self.name),
                Err(why) => why,
            };
            // One that fails again and again does so for the same reason.
            if said != what {
                tell(&format!("callgate: {what}"));
                said = what;
            }
            drop(first.take());
            failures = if started.elapsed() >= SETTLED { 0 } else { failures + 1 };
            let wait = BACK_OFF[usize::min(failures.max(1), BACK_OFF.len()) - 1];
            tokio::time::sleep(Duration::from_secs(wait)).await;
            if self.session.strong_count() == 0 {
                return;
            }
        }
    }

    /// From its start to its end. Returns how it ended.
    async fn once(&self, own: &mut Option<Arc<Session>>, first: &mut Option<Begun>) -> Result<String, String> {
        let own = match own {
            Some(own) => Arc::clone(own),
            None => {
                let opened = self.supervisor.open(self.spec.clone()).await;
                let opened = opened
                    .map_err(|error| format!("the server `{}` was not started: {}", self.name, with_causes(&error)));
                Arc::clone(own.insert(Arc::new(opened?)))
            }
        };
        let (argv, mut data) = (self.expanded(&self.server.command)?, self.expanded(&self.server.data)?);
        let variables: Vec<OsString> = self.server.env.set.values().map(OsString::from).collect();
        // Whoever becomes a server has what it was given. One that was given nothing may work on the workspace.
        if self.server.env.pass.is_empty() && self.server.credentials.is_empty() {
            data.extend(self.expanded(&[WORKSPACE.to_owned()])?);
        }
        let session = self.session.upgrade().ok_or_else(|| "its session is over".to_owned())?;
        if let Some(why) = session.would_choose(&argv, &variables, &data, &own) {
            return Err(format!(
                "the server `{}` is not started, for the agent could choose what it is: {why}",
                self.name
            ));
        }
        drop(session);
        let mut spec = RemoteSpec::new(&self.name, argv);
        spec.apart = true;
        spec.start = self.server.start_timeout;
        spec.description_max = usize::try_from(self.server.max_description_length).unwrap_or(usize::MAX);
        let remote = Remote::start(own, spec).await.map_err(|error| with_causes(&error))?;
        let remote = Arc::new(remote);
        self.offer(&remote);
        drop(first.take());
        let mut changes = remote.changes();
        loop {
            tokio::select! {
                () = remote.over() => break,
                changed = changes.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    match remote.refresh().await {
                        Ok(true) => self.offer(&remote),
                        Ok(false) => {}
                        Err(error) => tell(&format!("callgate: {}", with_causes(&error))),
                    }
                    tokio::time::sleep(AT_MOST_EVERY).await;
                }
            }
        }
        Ok(remote.end().await)
    }

    /// Words with the workspace's path where `{workspace}` stands.
    fn expanded(&self, words: &[String]) -> Result<Vec<OsString>, String> {
        let root = self.spec.workspace.first().map(std::fs::canonicalize);
        let root = root.transpose().map_err(|error| format!("the workspace is not found: {error}"))?;
        let root = root.unwrap_or_default();
        let expanded = |word: &String| {
            let mut parts = word.split(WORKSPACE);
            let mut word = OsString::from(parts.next().unwrap_or_default());
            for part in parts {
                word.push(&root);
                word.push(part);
            }
            word
        };
        Ok(words.iter().map(expanded).collect())
    }

    /// Its tools become the session's.
    fn offer(&self, remote: &Arc<Remote>) {
        let Some(session) = self.session.upgrade() else { return };
        let offered = |tool: &callgate::Tool| {
            let name = tool.rule_name();
            let own = name.rsplit(':').next().unwrap_or_default();
            self.server.tools.as_ref().is_none_or(|tools| tools.iter().any(|tool| tool == own))
        };
        let tools: Vec<callgate::Tool> =
            remote.tools(|tool| shown_as(&self.name, tool)).into_iter().filter(offered).collect();
        let registry = session.registry();
        let others = registry.tools().filter(|tool| !tool.is_of(&self.name)).count();
        let is_searched = self.listing == Listing::WhatFits && others + tools.len() > LISTED_MAX;
        let made = tools.into_iter().map(|tool| {
            let tool = if is_searched { tool.deferred() } else { tool };
            let tool = tool.subject(Subject::Serve);
            let tool = if self.server.trusted { tool.ungated() } else { tool };
            self.server.timeout.into_iter().fold(tool, callgate::Tool::timeout)
        });
        for refused in session.offer_tools_of(&self.name, made.collect()) {
            remote.tell(&format!("a tool is left out: {refused}"));
        }
    }
}

/// `mcp__SERVER__TOOL` (C-9). One that would be too long for a model to say ends in a digest of it.
fn shown_as(server: &str, tool: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let name: String = format!("mcp__{server}__{tool}").chars().map(plain).collect();
    let is_as_it_was = tool.chars().all(|c| plain(c) == c);
    if name.len() <= NAME_MAX && is_as_it_was {
        return name;
    }
    // Two names that look the same now are not the same.
    let digest: String =
        Sha256::digest(format!("{server}\n{tool}")).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("{}_{digest}", &name[..name.len().min(NAME_MAX - 9)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C-9: one name for each tool of each server, which a model can say.
    #[test]
    fn c_9_names_are_injective_and_short() {
        assert_eq!(shown_as("git", "git_log"), "mcp__git__git_log");
        assert_ne!(shown_as("git", "a.b"), shown_as("git", "a_b"));
        assert_ne!(shown_as("git", "a.b"), shown_as("git", "a/b"));
        let long = "x".repeat(128);
        assert_eq!(shown_as("git", &long).len(), NAME_MAX);
        assert_ne!(shown_as("git", &long), shown_as("git", &format!("{}y", "x".repeat(127))));
    }
}
