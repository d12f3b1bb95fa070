//! Meaning of a command line, learnt where its text can do no harm (C-23).
//!
//! The supervisor parses nothing that a model wrote beyond JSON. bash's grammar is C code besides, so it runs as a tool
//! in a worker of the readers: it can open no file, write nothing, start nothing and reach nobody, it does one line and
//! ends, and its memory and time are bounded. What it answers is read as JSON of a known shape.
//!
//! **The answer is hostile too.** A line that breaks the parser could make it lie. So the answer only decides what layer 2
//! says; what the line can then do is bounded by layer 3 all the same.

use std::time::Duration;

use callgate_policy::effect::Effects;
use callgate_policy::failure::ErrorCode;
use callgate_policy::plan::CallWork;
use callgate_policy::plan::compile::{self, CallSpec};
use callgate_policy::shell::Line;
use callgate_tools::shell;
use serde_json::{Value, json};

use crate::confine::ConfineError;
use crate::error::CallError;
use crate::gate::ApprovedPlan;
use crate::registry::{First, ReadFirst, Tool, Understood};
use crate::session::Session;
use crate::turn::{Concurrency, Turns};

/// Time for a line; the longest takes a fraction of a second.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The tree of the longest line, several times over, bytes.
const MEMORY: u64 = 512 << 20;
/// For errors.
const UNDERSTAND: &str = "understand the command line";

impl Session {
    /// Commands of a command line. One that bash's grammar does not know, or that may be something else for bash, is a
    /// [`Line`] that says so; so is one that the parser did not get done with in its time.
    ///
    /// # Errors
    /// [`CallError`] if there is no worker for it: in a session for one call there is none but that call's.
    pub async fn understand(&self, line: &str) -> Result<Line, CallError> {
        let lost = |source| CallError::Output { what: UNDERSTAND, source };
        match self.said_by_reader(UNDERSTAND, shell::NAME, json!({ "command": line })).await? {
            Ok(said) => serde_json::from_value(said).map_err(|error| lost(error.into())),
            // Nothing is known of it.
            Err(why) => Ok(Line::unknown(why, 0)),
        }
    }

    /// Finding of workers on a call that has to be made before it can be checked: a text is read, or the program that runs a workspace's
    /// tests becomes an argument.
    ///
    /// # Errors
    /// [`CallError::Told`] if an argument makes no sense to them; else as [`Session::understand`].
    pub(crate) async fn read_first(&self, tool: &Tool, call: &mut Understood) -> Result<Value, CallError> {
        let first = tool.executor.first();
        if let First::Runner = first {
            self.find_runner(&mut call.args).await?;
        }
        let Some(ReadFirst { argument, reader, args }) = first.text(&call.args) else { return Ok(Value::Null) };
        // No more than the schema lets pass.
        tool.validate(&call.args).map_err(CallError::Arguments)?;
        let told = |text, code| CallError::Told { text, code };
        match self.said_by_reader("read an argument", reader, args).await {
            Ok(Ok(said)) => Ok(said),
            Ok(Err(why)) => Err(told(format!("argument `{argument}`: {why}"), ErrorCode::LimitExceeded)),
            // The reader says itself what it is about.
            Err(CallError::Tool(text)) => Err(told(text, ErrorCode::InputInvalid)),
            Err(error) => Err(error),
        }
    }

    /// Answer of a worker of the readers about a text that a stranger wrote: it does this and ends. An error says why
    /// there is none, if it met a limit or broke.
    pub(crate) async fn said_by_reader(
        &self,
        what: &'static str,
        name: &'static str,
        args: Value,
    ) -> Result<Result<Value, &'static str>, CallError> {
        if !self.sandbox.opened.has_readers() {
            let source = std::io::Error::other("this session is for one call; open one for many");
            return Err(CallError::Output { what, source });
        }
        let grant = self.effective.check(&Effects::default()).map_err(|denial| CallError::Denied(Box::new(denial)))?;
        let work = CallWork::Tool { name: name.to_owned(), paths: Vec::new(), limit: 0 };
        let mut bounds = self.sandbox.bounds;
        (bounds.memory, bounds.cpu) = (bounds.memory.min(MEMORY), bounds.cpu.min(TIMEOUT));
        let plan = compile::call(&grant, &self.sandbox.facts, CallSpec { work, bounds, timeout: TIMEOUT })?;
        // It touches nothing that another call could change, and waits for none.
        let turn = Turns::default().take(Concurrency::SideBySide).await;
        match self.sandbox.opened.tool(ApprovedPlan::of_the_grammar(plan), args, turn).await {
            Ok(run) => match run.end {
                Ok(output) => Ok(Ok(output.data)),
                Err(failed) => Err(CallError::Tool(failed.text)),
            },
            Err(ConfineError::TimedOut(_)) => Ok(Err("it took too long to read")),
            Err(ConfineError::WorkerLost) => Ok(Err("it ended the parser")),
            Err(error) => Err(error.into()),
        }
    }
}
