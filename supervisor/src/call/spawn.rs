//! Starting a program past the tools: what `callgate run` does.

use std::time::Duration;

use callgate_policy::need::CallNeeds;
use callgate_policy::path::HostPath;
use callgate_policy::plan::compile::{self, CallSpec};
use callgate_policy::plan::{CallPlan, Work};

use super::CallError;
use crate::confine::{Program, Stdio};
use crate::registry::started;
use crate::session::Session;

/// What a `spawn` may take: its host ends it when it wants to.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

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
        let argv: Vec<HostPath> =
            argv.into_iter().map(|arg| HostPath::from(std::path::PathBuf::from(arg.as_ref()))).collect();
        let working_dir = self.root();
        let needs = CallNeeds { shell: Some(started(&argv, &working_dir)), ..CallNeeds::default() };
        let grant = self.check(&needs)?;
        let work = Work::Program { argv, working_dir };
        let spec = CallSpec { work, bounds: self.bounds, timeout: FOREVER };
        let plan = CallPlan { serves_session: true, ..compile::call(&grant, &self.facts, spec)? };
        let plan = self.pass_of_host(&needs, plan)?;
        self.still_there()?;
        Ok(self.opened.program(plan, stdio, None).await?)
    }
}
