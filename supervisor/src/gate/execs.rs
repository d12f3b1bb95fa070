//! Showing the watchdogs every program that a session starts, where one of them wants that.
//!
//! The program stands before its first instruction until it is answered. Whatever is not a yes is a no: a person who is not
//! there, a watchdog that does not answer, and the end of the session.

use std::sync::Arc;

use callgate_policy::approval::Approvals;
use callgate_policy::effect::{Effect, ProgramRun};
use callgate_policy::manifest::Manifest;
use callgate_policy::path::HostPath;
use callgate_policy::watchdog::{ExecFacts, Verdict};
use callgate_worker::protocol::{AboutToRun, MayRun, Received};
use serde_json::json;
use tokio::task::{JoinHandle, JoinSet};

use crate::confine::AsyncChannel;
use crate::gate::Watchdogs;
use crate::gate::decide::key_of;
use crate::gate::people::{Approvable, People, Question, ShownEffect, digest_of};

/// Who answers for a session.
pub(crate) struct Watch {
    pub(crate) watchdogs: Arc<Watchdogs>,
    pub(crate) people: Arc<People>,
    pub(crate) manifest: Option<Arc<Manifest>>,
    pub(crate) session: String,
    /// The subagent whose session it is.
    pub(crate) agent: Option<String>,
}

/// Answers until it is dropped; then nothing is started any more.
pub(crate) struct Watching(JoinHandle<()>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Watch {
    /// Answers what comes through the tracer's channel.
    pub(crate) fn start(self, tracer: AsyncChannel) -> Watching {
        let (this, tracer) = (Arc::new(self), Arc::new(tracer));
        Watching(tokio::spawn(async move {
            // They wait for nobody but their own answer.
            let mut asked = JoinSet::new();
            while let Ok(Received::Message(about, _)) = tracer.receive::<AboutToRun>().await {
                let (this, tracer) = (Arc::clone(&this), Arc::clone(&tracer));
                while asked.try_join_next().is_some() {}
                asked.spawn(async move {
                    let question = about.question;
                    let refused = this.refuses(about).await;
                    // With the channel the session is gone, and the program with it.
                    drop(tracer.send(&MayRun { question, refused }, &[]).await);
                });
            }
        }))
    }

    /// Reason why a program may not run.
    async fn refuses(&self, AboutToRun { program, argv, .. }: AboutToRun) -> Option<String> {
        let mut facts = ExecFacts::new(&program, &argv);
        (facts.manifest, facts.session) = (self.manifest.as_deref(), &self.session);
        match self.watchdogs.judge_exec(&facts).await {
            Verdict::Allow => None,
            Verdict::Deny(reason) => Some(reason.told()),
            Verdict::Ask(reason) => {
                let why = reason.told();
                let started = Effect::Runs(ProgramRun::Started { program: program.clone(), argv: argv.clone() });
                let key = key_of(&started);
                let about = Approvable { effects: vec![key.clone()], ..Approvable::default() };
                let answered = |kept: &Approvals| kept.cover([(&started, key.clone())], (EXEC, None));
                if answered(&self.people.approvals()).is_some() {
                    return None;
                }
                // It is stopped where it starts: what it is cannot change while a person looks at it.
                let question = self.question((&program, &argv), &started, why.clone());
                self.people.ask(question, about, answered, || true).await.err().map(|none| none.text(&why))
            }
        }
    }

    fn question(&self, (program, argv): (&HostPath, &[HostPath]), started: &Effect, why: String) -> Question {
        let arguments = json!({ "program": program, "argv": argv });
        // All that there is to be approved of: the file cannot be exchanged any more.
        let digest = digest_of(&arguments.to_string());
        Question {
            session: self.session.clone(),
            agent: self.agent.clone(),
            why: vec![why],
            effects: vec![ShownEffect::new(started)],
            kept_for: self.people.kept_for(),
            digest,
            ..Question::new(EXEC, "execute", arguments)
        }
    }
}

/// Name in place of a tool's, where a program starts.
const EXEC: &str = "exec";
