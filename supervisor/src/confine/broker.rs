//! The session's side of its broker.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;

use callgate_policy::envelope::Changes;
use callgate_worker::protocol::{Received, SessionReply, ToBroker, notice};

use super::channel::AsyncChannel;
use super::logged::{self, Questions};

/// Most reports that are kept for whoever may ask again.
const LATE: usize = 64;

/// The session's side of its broker.
pub(super) struct Broker {
    /// Closing its channel ends the session.
    asked: tokio::sync::Mutex<Asked>,
    /// Which calls have changed anything.
    notices: File,
    /// Its questions, where they are logged.
    questions: Option<Arc<Questions>>,
    /// It may have something to tell of which there is no notice: what egress said last.
    always: bool,
}

/// Questions to the broker.
struct Asked {
    channel: AsyncChannel,
    questions: u64,
    /// Questions without an answer, and what they are about: who asked may be gone.
    open: HashMap<u64, About>,
    /// Changes that came for those who were gone.
    late: HashMap<About, Changes>,
}

/// Subject of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct About {
    worker: u64,
    /// True if its call has ended.
    is_over: bool,
}

impl Broker {
    pub(super) fn new(channel: AsyncChannel, notices: File, questions: Option<Arc<Questions>>, always: bool) -> Self {
        let asked = Asked { channel, questions: 0, open: HashMap::new(), late: HashMap::new() };
        Self { asked: tokio::sync::Mutex::new(asked), notices, questions, always }
    }

    /// Changes by the call of a worker, once it has ended. `None` if the broker is gone.
    pub(super) async fn changes(&self, worker: u64) -> Option<Changes> {
        self.ask(About { worker, is_over: true }).await
    }

    /// Changes by a running call until now.
    pub(super) async fn changes_so_far(&self, worker: u64) -> Option<Changes> {
        self.ask(About { worker, is_over: false }).await
    }

    async fn ask(&self, about: About) -> Option<Changes> {
        let About { worker, is_over } = about;
        let mut asked = self.asked.lock().await;
        let asked = &mut *asked;
        let again = asked.open.values().any(|open| *open == about) || asked.late.contains_key(&about);
        if !again {
            // Where questions are logged it is asked each time: it alone knows how many were left out.
            let always = self.always || self.questions.is_some();
            if !notice::is_there(&self.notices, worker).ok()? && !always {
                return Some(Changes::default());
            }
            asked.questions += 1;
            asked.open.insert(asked.questions, about);
            let question = asked.questions;
            asked.channel.send(&ToBroker::Report { worker, question, is_over }, &[]).await.ok()?;
        }
        loop {
            if let Some(changes) = asked.late.remove(&about) {
                return Some(changes);
            }
            match asked.channel.receive::<SessionReply>().await.ok()? {
                Received::Message(SessionReply::Report { question, changes, lost }, _) => {
                    let about = asked.open.remove(&question)?;
                    // What the call asked is in the log by the time that it is over.
                    if let Some(questions) = &self.questions {
                        questions.log_queued().await;
                        logged::lost_questions(lost);
                    }
                    if asked.late.len() >= LATE {
                        asked.late.clear();
                    }
                    asked.late.insert(about, *changes);
                }
                Received::Message(..) | Received::Data(_) | Received::Closed => return None,
            }
        }
    }
}
