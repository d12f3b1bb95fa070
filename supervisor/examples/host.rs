//! A whole host: runs an agent's calls in one directory, with a tool and an approver of its own.
//!
//! It lists its tools, reads calls from standard input, one JSON object a line, and prints the result envelope of each:
//!
//! ```text
//! $ echo '{"tool": "words", "args": {"text": "so it goes"}}' | cargo run --example host -- /home/me/project
//! ```

use std::error::Error;
use std::io::{BufRead as _, Write as _};
use std::sync::Arc;

use callgate::{Answer, Approver, Asked, HandlerCall, Launcher, Question, SessionSpec, Stdio, StrengthChoice};
use callgate::{Subject, Supervisor, Tool, with_causes};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

/// Lets the agent edit files, and refuses everything else that must be asked about. A real host shows the question to a person.
#[derive(Debug)]
struct EditsOnly;

impl Approver for EditsOnly {
    fn name(&self) -> &str {
        "edits-only"
    }

    fn ask(&self, question: Arc<Question>) -> Asked {
        let answer = if question.kind == "edit" { Answer::Once } else { Answer::Reject };
        eprintln!("asked: {} ({}): {answer:?}", question.tool, question.why.join("; "));
        Box::pin(std::future::ready(Some(answer)))
    }
}

/// A tool that this process answers itself. It only reads, so nobody is asked about it.
fn words() -> Tool {
    let count = async |call: HandlerCall| match call.args["text"].as_str() {
        Some(text) => Ok(json!({ "words": text.split_whitespace().count() })),
        None => Err("`text` must be a string".to_owned()),
    };
    let parameters = json!({ "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] });
    Tool::host("words", count).description("Counts words.").parameters(parameters).subject(Subject::Read).ungated()
}

async fn serve(supervisor: Supervisor, directory: String, strength: StrengthChoice) -> Result<(), Box<dyn Error>> {
    let spec = SessionSpec::developer(directory).strength(strength).tool(words()).approver(Arc::new(EditsOnly));
    let session = supervisor.open(spec).await?;
    eprintln!("tools: {}", session.registry().names().join(", "));
    for line in std::io::stdin().lock().lines() {
        let call: Value = serde_json::from_str(&line?)?;
        let tool = call["tool"].as_str().ok_or("a call needs a `tool`")?;
        let result = session.call(tool, call["args"].clone()).await;
        if let Some(denial) = &result.metadata.denial {
            eprintln!("denied: {}: {}", denial.asked, denial.reason);
        }
        println!("{}", serde_json::to_string(&result)?);
    }
    // The host's own programs run in the same sandbox. Their output is shown as it comes.
    let (stdio, pipes) = Stdio::piped()?;
    let program = session.spawn(["ls"], stdio).await?;
    let (_stdin, mut stdout, _stderr) = pipes.into_async()?;
    let mut chunk = [0; 4096];
    while let read @ 1.. = stdout.read(&mut chunk).await? {
        std::io::stderr().write_all(&chunk[..read])?;
    }
    program.wait().await?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    // First: it forks, which only a process with one thread may do.
    let supervisor = Supervisor::builder().launcher(Launcher::fork()?).build().map_err(|error| with_causes(&error))?;
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("usage: host DIRECTORY [landlock] <CALLS")?;
    let strength = arguments.next().map_or(StrengthChoice::Namespaces, |_| StrengthChoice::Landlock);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(supervisor, directory, strength))
}
