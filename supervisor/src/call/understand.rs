//! What a command line says, learnt where its text can do no harm (C-23).
//!
//! The supervisor parses nothing that a model wrote beyond JSON. bash's grammar is C code besides, so it runs as a tool
//! in a worker of the readers: it can open no file, write nothing, start nothing and reach nobody, it does one line and
//! ends, and its memory and time are bounded. What it answers is read as JSON of a known shape.
//!
//! **The answer is hostile too.** A line that breaks the parser could make it lie. So the answer only decides what layer 2
//! says; what the line can then do is bounded by layer 3 all the same.

use std::time::Duration;

use callgate_policy::need::CallNeeds;
use callgate_policy::plan::Work;
use callgate_policy::plan::compile::{self, CallSpec};
use callgate_policy::shell::Line;
use callgate_worker::tools::shell;
use serde_json::json;

use crate::call::CallError;
use crate::confine::ConfineError;
use crate::gate::ApprovedPlan;
use crate::session::Session;
use crate::turn::{Concurrency, Turns};

/// What the longest line takes is a fraction of a second.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The tree of the longest line, several times over, bytes.
const MEMORY: u64 = 512 << 20;

impl Session {
    /// What a command line says. One that bash's grammar does not know, or that may be something else for bash, is a
    /// [`Line`] that says so; so is one that the parser did not get done with in its time.
    ///
    /// # Errors
    /// [`CallError`] if there is no worker for it: in a session for one call there is none but that call's.
    pub async fn understand(&self, line: &str) -> Result<Line, CallError> {
        let lost = |source| CallError::Output { what: "understand the command line", source };
        if !self.opened.has_readers() {
            return Err(lost(std::io::Error::other("this session is for one call; open one for many")));
        }
        let grant =
            self.effective.check(&CallNeeds::default()).map_err(|denial| CallError::Denied(Box::new(denial)))?;
        let work = Work::Tool { name: shell::NAME.to_owned(), paths: Vec::new(), limit: 0 };
        let mut bounds = self.bounds;
        (bounds.memory, bounds.cpu) = (bounds.memory.min(MEMORY), bounds.cpu.min(TIMEOUT));
        let plan = compile::call(&grant, &self.facts, CallSpec { work, bounds, timeout: TIMEOUT })?;
        // It touches nothing that another call could change, and waits for none.
        let turn = Turns::default().take(Concurrency::SideBySide).await;
        match self.opened.tool(ApprovedPlan::of_the_grammar(plan), json!({ "command": line }), turn).await {
            Ok(run) => match run.end {
                Ok(output) => serde_json::from_value(output.data).map_err(|error| lost(error.into())),
                Err(failed) => Err(CallError::Tool(failed.text)),
            },
            // It met a limit, or broke: nothing is known of it.
            Err(ConfineError::TimedOut(_)) => Ok(Line::unknown("it took too long to read", 0)),
            Err(ConfineError::WorkerLost) => Ok(Line::unknown("it ended the parser", 0)),
            Err(error) => Err(error.into()),
        }
    }
}
