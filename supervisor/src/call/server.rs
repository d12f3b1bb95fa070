//! Running a language server and the worker that talks to it.
//!
//! The two are joined by streams that the supervisor makes and hands on. It reads none of them: what a server says is parsed in the
//! worker, which can read what the call may and do nothing else.

use callgate_policy::effect::{Effect, Effects, FileScope};
use callgate_policy::failure::ErrorCode;
use callgate_policy::path::HostPath;
use callgate_policy::plan::CallWork;
use callgate_policy::plan::compile::{self, CallSpec};
use callgate_policy::step::Step;
use callgate_tools::lsp::{NAME, TIME};
use serde_json::{Map, Value};

use super::envelope::Done;
use super::error::not_started;
use super::lost;
use crate::confine::{ConfineError, Stdio};
use crate::error::CallError;
use crate::gate::ApprovedPlan;
use crate::gate::Known;
use crate::registry::Tool;
use crate::run::limits::ms;
use crate::run::{GRACE, Orders, ProgramEnded, Running, Stop, Streams};
use crate::session::Session;
use crate::turn::{Concurrency, Turn, Turns};

/// The most memory of the worker that talks to a server, bytes.
const MEMORY: u64 = 512 << 20;

impl Session {
    /// Starts the server, has it asked, and ends it.
    pub(super) async fn run_server(
        &self,
        tool: &Tool,
        (plan, args, told): (ApprovedPlan, Value, Map<String, Value>),
        turn: Turn,
        known: &mut Known,
    ) -> Result<Done, CallError> {
        let failed = |source| CallError::Output { what: "make streams for the server", source };
        let client = self.client_of(&plan, &args, self.tools.lifecycle.now().output_limit(&tool.name))?;
        let mut args = args;
        let (timeout, bounds) = (plan.timeout, plan.bounds);
        if let Value::Object(args) = &mut args {
            args.extend(told);
            args.insert(TIME.to_owned(), ms(timeout).into());
        }
        let argv = plan.work.argv().to_vec();
        let (stdio, streams) = Stdio::joined().map_err(failed)?;
        let started = Running::start(&self.sandbox.opened, plan, Streams::elsewhere(stdio), turn).await;
        let program = started.map_err(|error| did_not_start(&argv, error))?;
        known.steps = program.steps().to_vec();
        // It touches nothing that another call could change, and the program has the call's turn.
        let beside = Turns::default().take(Concurrency::SideBySide).await;
        let asked = self.sandbox.opened.tool_beside(client, args, streams, beside).await;
        // Nothing of it is left when its call has its answer. One that has ended already is asked in vain.
        let ended = program.follow(&mut (), std::future::ready(()), Orders::Given(Stop::Kill)).await?;
        let ProgramEnded { end, limits, ended_for, changes, .. } = ended;
        known.changes.clone_from(&changes);
        let asked = asked.map_err(|error| lost(tool, &bounds, error))?;
        let answered = asked.end.is_ok();
        if !answered && ended_for.is_some() {
            return Ok(Done { limits, ended_for, changes, ..Done::of(Value::Null) });
        }
        if !answered && end.timed_out {
            return Err(CallError::TimedOut(timeout));
        }
        let done = self.shape_tool(tool.own_name(), asked, (&bounds, ms(timeout)))?;
        Ok(Done { limits, changes, ..done })
    }

    /// The plan of the worker that talks to the server of an approved call: it reads what the call has been checked for.
    fn client_of(&self, server: &ApprovedPlan, args: &Value, limit: u64) -> Result<ApprovedPlan, CallError> {
        let root = self.root();
        let path: HostPath = serde_json::from_value(args["path"].clone())
            .ok()
            .and_then(|path| callgate_policy::path::normalize(&root, &path).ok())
            .ok_or_else(|| CallError::Arguments("argument `path` names no file".to_owned()))?;
        let needs = Effects::default().showing(path.clone()).and(Effect::Shows(FileScope::Tree(root.clone())));
        let grant = self.check(&needs)?;
        let work = CallWork::Tool { name: NAME.to_owned(), paths: vec![path, root], limit };
        let mut bounds = self.sandbox.bounds;
        bounds.memory = bounds.memory.min(MEMORY);
        // It gives up with the server, and says why.
        let timeout = server.timeout.saturating_add(GRACE);
        let plan = compile::call(&grant, &self.sandbox.facts, CallSpec { work, bounds, timeout })?;
        let client = server.its_client(plan);
        if self.sandbox.opened.reads(&client) {
            return Ok(client);
        }
        let text = "no worker of this session can talk to a language server: it is for one call, or it may read the file only as long \
                    as there is none of that name";
        Err(CallError::Told { text: text.to_owned(), code: ErrorCode::SandboxFailed })
    }
}

/// A server that is not there, or may not start.
fn did_not_start(argv: &[HostPath], error: ConfineError) -> CallError {
    let ConfineError::Refused(failed) = &error else { return not_started(error) };
    if failed.step != Step::Exec {
        return not_started(error);
    }
    let program = argv.first().map(ToString::to_string).unwrap_or_default();
    let hint = match program.as_str() {
        "pylsp" => "install it (Debian: python3-pylsp; PyPI: python-lsp-server), ",
        "rust-analyzer" => "install it (rustup component add rust-analyzer), ",
        _ => "",
    };
    let what = failed.what_failed();
    let text = format!(
        "the language server {program} did not start: {what}; {hint}grant it in [[requires.shell]], or name another in [lsp.NAME] of \
         the manifest"
    );
    CallError::Told { text, code: ErrorCode::NotFound }
}
