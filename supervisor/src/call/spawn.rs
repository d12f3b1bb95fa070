//! Starting a program past the tools: what `callgate run` does.

use callgate_policy::effect::{Effect, Effects};
use callgate_policy::envelope::{Metadata, ResultEnvelope};
use callgate_policy::path::HostPath;
use callgate_policy::plan::compile::{self, CallSpec};
use callgate_policy::plan::{CallPlan, CallWork};
use serde_json::json;

use super::error::{error_text, failure};
use crate::bounds::FOREVER;
use crate::confine::{EndpointOfBroker, Program, Stdio};
use crate::error::CallError;
use crate::registry::started;
use crate::run::line_of;
use crate::session::Session;
use crate::store::Recording;
use crate::turn::{Concurrency, Turn};

/// Name of a host's program in the record of its session, and its origin.
const RUN: &str = "run";
const HOST: &str = "host";

/// Possessions of the program that is the agent of its session, and of no other program of a host's.
pub(crate) struct OfAgent {
    pub(crate) turn: Turn,
    /// The way to the session's calls, if somebody serves them.
    pub(crate) endpoint: Option<EndpointOfBroker>,
}

impl Session {
    /// Starts a program in the sandbox, past the tools: what `callgate run` does. The capability check still holds.
    ///
    /// Nobody is asked about it, for it is not an agent's call; what a rule denies to programs is denied to it.
    ///
    /// It is the host's own program, such as a server that runs as long as the session, and waits for no call; nor does a
    /// call wait for it. What it changes meanwhile is for the host to know.
    ///
    /// The session's calls reach what it listens on, on loopback (TCP), and no other session's do: a development server for
    /// the agent's `curl`. Calls that only read (the restricted shell) do not reach it, for it may do more than they.
    ///
    /// # Errors
    /// [`CallError`] if it is denied or could not be started; nothing has run then.
    pub async fn spawn<S: AsRef<std::ffi::OsStr>>(
        &self,
        argv: impl IntoIterator<Item = S>,
        stdio: Stdio,
    ) -> Result<Program, CallError> {
        self.spawn_in(self.root(), words(argv), stdio, None).await
    }

    /// Starts a program in the session's private directory, where it finds nothing that a call has put there: for one
    /// with other rights than those of the calls.
    ///
    /// # Errors
    /// [`CallError`], as of [`Session::spawn`].
    pub async fn spawn_apart<S: AsRef<std::ffi::OsStr>>(
        &self,
        argv: impl IntoIterator<Item = S>,
        stdio: Stdio,
    ) -> Result<Program, CallError> {
        self.spawn_in(self.private_place(), words(argv), stdio, None).await
    }

    /// Starts the program that is the agent of this session. It holds its turn for as long as anything of it runs: that of agents'
    /// programs, so that the session's calls, which it makes itself, do not wait for it.
    pub(crate) async fn spawn_agent(
        &self,
        argv: &[String],
        stdio: Stdio,
        agents: OfAgent,
    ) -> Result<Program, CallError> {
        let root = self.root();
        // A subagent may have nothing of the workspace; its private directory is its own.
        let place = if self.effective.allows_read(&root) { root } else { self.private_place() };
        self.spawn_in(place, words(argv), stdio, Some(agents)).await
    }

    fn private_place(&self) -> HostPath {
        self.sandbox.facts.private.inside.as_path().join("tmp").into()
    }

    async fn spawn_in(
        &self,
        working_dir: HostPath,
        argv: Vec<HostPath>,
        stdio: Stdio,
        agents: Option<OfAgent>,
    ) -> Result<Program, CallError> {
        let mut recording = self.recorder.propose(RUN, HOST, &json!({ "argv": argv }));
        let command = line_of(&argv);
        match self.start((argv, working_dir), (stdio, agents), &mut recording).await {
            Ok(program) => Ok(program.record(recording).of_command(command)),
            Err(error) => {
                let mut metadata = Metadata::new(0);
                metadata.error = Some(failure(error.code(), true));
                if let CallError::Denied(denial) = &error {
                    metadata.denial = Some(*denial.clone());
                }
                let mut envelope = ResultEnvelope::error(error_text(&error), metadata);
                recording.end(&mut envelope).await;
                Err(error)
            }
        }
    }

    async fn start(
        &self,
        (argv, working_dir): (Vec<HostPath>, HostPath),
        (stdio, agents): (Stdio, Option<OfAgent>),
        recording: &mut Recording,
    ) -> Result<Program, CallError> {
        let needs = Effects::of(Effect::Runs(started(&argv, &working_dir)));
        let grant = self.check(&needs)?;
        let work = CallWork::program(argv, working_dir.clone());
        let spec = CallSpec { work, bounds: self.sandbox.bounds, timeout: FOREVER };
        let plan = CallPlan { serves_session: true, ..compile::call(&grant, &self.sandbox.facts, spec)? };
        let plan = self.pass_of_host((&needs, &working_dir), plan)?;
        self.still_there()?;
        // Whoever ends the session waits for those that start, and then ends what runs.
        let starting = match &agents {
            Some(_) => None,
            None => Some(self.family.agents_program.take(Concurrency::SideBySide).await),
        };
        if self.aborts.have_ended() {
            return Err(CallError::Ended);
        }
        // Nothing runs that is not recorded.
        recording.start().await?;
        let (turn, endpoint) = agents.map_or((Turn::Host, None), |OfAgent { turn, endpoint }| (turn, endpoint));
        let started = self.sandbox.opened.program(plan, (stdio, endpoint), turn).await;
        drop(starting);
        Ok(started?)
    }
}

fn words<S: AsRef<std::ffi::OsStr>>(argv: impl IntoIterator<Item = S>) -> Vec<HostPath> {
    argv.into_iter().map(|word| HostPath::from(std::path::PathBuf::from(word.as_ref()))).collect()
}
