//! A program that is an agent: its prompt is what it reads, its answer what it prints.

use std::sync::Arc;

use callgate_policy::effect::ProgramRun;
use callgate_policy::envelope::Changes;
use callgate_policy::remarks::remarks;
use callgate_worker::protocol::ProgramEnd;

use crate::bounds::FOREVER;
use crate::call::error::error_text;
use crate::call::spawn::OfAgent;
use crate::causes::with_causes;
use crate::confine::Endpoint;
use crate::registry::started;
use crate::run::{ANSWER_MAX, Orders, PrintedAnswer, ProgramEnded, Running, Streams};
use crate::session::{AgentService, Served, Session};

/// Most bytes of what a program says on standard error when it fails.
const COMPLAINT_MAX: usize = 4 * 1024;

/// Answer of a subagent or what went wrong, in words; and what is known of its program however it ended.
pub(super) struct Answered {
    pub(super) output: Result<String, String>,
    pub(super) changes: Option<Changes>,
}

/// Runs a program as the agent: the prompt on its standard input, its answer on standard output.
pub(super) async fn run_program(
    child: Arc<Session>,
    argv: Vec<String>,
    prompt: String,
    service: Option<Arc<AgentService>>,
) -> Result<Answered, String> {
    if let Some(ProgramRun::Program { argv, .. }) =
        argv.first().map(|program| started(&[program.as_str().into()], &child.root()))
        && let Some(why) = argv.first().and_then(|program| child.chosen_by_calls(program))
    {
        return Err(format!("{why}; a runner is a program that no call can change"));
    }
    let failed = |what: &str, error: &dyn std::error::Error| format!("{}: {what}: {}", argv[0], with_causes(error));
    let (streams, input) = Streams::piped().map_err(|error| failed("make its pipes", &error))?;
    let (stdio, outputs) = streams.into_parts();
    // It is a part of the child, and ends with it.
    let turn = child.family.agents_program.take(crate::turn::Concurrency::SideBySide).await;
    let (mut served, endpoint) = match service {
        Some(service) => {
            let (ours, brokers) = Endpoint::pair().map_err(|error| failed("make its endpoint", &error))?;
            (Some(Served::new(ours, service)), Some(brokers))
        }
        None => (None, None),
    };
    let agents = OfAgent { turn, endpoint };
    let program = child.spawn_agent(&argv, stdio, agents).await.map_err(|error| error_text(&error))?;
    let program = Running::of(program, outputs, (child.sandbox.bounds, FOREVER));
    let mut unheard = |_: &[u8]| {};
    let mut heard = PrintedAnswer::new(COMPLAINT_MAX, &mut unheard);
    // It is served for as long as it runs, and its calls end with it.
    let ended = {
        let serve = async {
            if let Some(served) = &mut served {
                served.serve(&child).await;
            }
        };
        let feed = async {
            tokio::join!(input.feed(prompt.as_bytes()), serve);
        };
        program.follow(&mut heard, feed, Orders::None).await
    };
    if let Some(served) = served {
        served.end().await;
    }
    let ProgramEnded { program, end, took, .. } = ended.map_err(|error| failed("wait for its end", &error))?;
    let changes = child.report(&program, &end, took).metadata.changes;
    let output = if heard.is_too_long() {
        Err(format!("{} answered with more than {ANSWER_MAX} bytes", argv[0]))
    } else if end.code == Some(0) {
        Ok(String::from_utf8_lossy(&heard.answer).into_owned())
    } else {
        let failure = format!("{}: {}", argv[0], failure(&child, &end, &heard.last_words()));
        let notes = changes.iter().flat_map(|changes| remarks(changes, true));
        Err(std::iter::once(failure).chain(notes).collect::<Vec<_>>().join("; "))
    };
    Ok(Answered { output, changes })
}

/// Reason why an agent's program gave no answer, with the last that it wrote.
fn failure(child: &Session, end: &ProgramEnd, words: &str) -> String {
    let ended = match (end.code, end.signal) {
        (Some(code), _) => format!("it ended with status {code}"),
        (None, Some(signal)) => format!("it was ended by signal {signal}"),
        (None, None) => "it was ended".to_owned(),
    };
    let limit = child.ended_for(end).map(|denial| format!(" ({}: {})", denial.asked, denial.reason));
    format!("{ended}{}; it had written: {words}", limit.unwrap_or_default())
}
