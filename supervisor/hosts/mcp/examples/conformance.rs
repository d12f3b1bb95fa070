//! A host that serves tools of its own over the Model Context Protocol: those that the protocol's conformance suite calls.
//!
//! ```text
//! $ cargo run -p callgate-mcp --example conformance -- TOKEN_FILE WORKSPACE
//! ```
//!
//! It prints the server's address, and serves until its standard input ends.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use callgate::policy::requirement::{Program, RequirementSet, ShellRunRequirement};
use callgate::{
    Approver as _, AskedBy, Choice, HandlerCall, Inquiry, Launcher, Query, Reply, SessionSpec, Subject, Supervisor,
    Tool, with_causes,
};
use callgate_mcp::{Client, HttpServer, Opened, Opening, Servers, Token};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

/// Prints ten lines, one after the other.
const LINES: &str = "for line in 1 2 3 4 5 6 7 8 9 10; do echo $line; sleep 0.05; done";

/// A tool that says something.
fn says(name: &str, text: &'static str) -> Tool {
    Tool::host(name, move |_: HandlerCall| async move { Ok(json!(text)) })
        .description("Says something.")
        .subject(Subject::Think)
        .side_by_side()
}

/// Answer of a person.
async fn ask(text: &str) -> Result<Value, String> {
    let query = Query::new(text, vec![Choice::new("blue"), Choice::new("red")]);
    match Client.inquire(Arc::new(Inquiry::new(vec![query]))).await {
        Some(Reply::Answers(answers)) => Ok(json!(answers)),
        Some(_) | None => Err("nobody has answered".to_owned()),
    }
}

/// A tool that asks its person. The suite leaves questions unanswered, so other calls run beside it.
fn asks(name: &str) -> Tool {
    let asks = async |_: HandlerCall| Ok(json!({ "answers": ask("Which colour?").await? }));
    Tool::host(name, asks).description("Asks for a colour.").subject(Subject::Think).side_by_side()
}

/// A tool that asks its person two things, one after the other.
fn asks_twice(name: &str) -> Tool {
    let asks = async |_: HandlerCall| Ok(json!([ask("Which colour?").await?, ask("And which else?").await?]));
    Tool::host(name, asks).description("Asks for two colours.").subject(Subject::Think).side_by_side()
}

/// A program in the sandbox, whose output is shown while it runs.
fn prints() -> Result<Tool, Box<dyn Error>> {
    let shell = vec![ShellRunRequirement { cmd: Program::parse("bash")?, args: None }];
    let line = ["bash", "-c", LINES].map(str::to_owned).to_vec();
    Ok(Tool::program("test_tool_with_progress", move |_| Ok(line.clone()))
        .description("Prints ten lines.")
        .requires(RequirementSet { shell, ..RequirementSet::default() })
        .ungated()
        .side_by_side())
}

/// A tool whose schema says all that a schema can say.
fn has_a_schema() -> Tool {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
            },
        },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    });
    says("json_schema_2020_12_tool", "the schema fits").parameters(schema)
}

/// A tool with an argument that clients repeat in a header.
fn has_a_header() -> Tool {
    let schema = json!({
        "type": "object",
        "properties": { "region": { "type": "string", "x-mcp-header": "Region" } },
        "required": ["region"],
    });
    says("test_header", "the header fits").parameters(schema)
}

fn tools() -> Result<Vec<Tool>, Box<dyn Error>> {
    let fails =
        async |_: HandlerCall| Err::<Value, _>("This tool intentionally returns an error for testing".to_owned());
    let mut tools = vec![
        says("test_simple_text", "This is a simple text response for testing."),
        says("test_logging_tool", "nothing was logged"),
        Tool::host("test_error_handling", fails).description("Fails.").subject(Subject::Think).side_by_side(),
        prints()?,
        asks_twice("test_input_required_result_multi_round"),
        has_a_schema(),
        has_a_header(),
    ];
    let message = json!({ "type": "object", "properties": { "message": { "type": "string" } } });
    tools.push(asks("test_elicitation").parameters(message));
    tools.extend(
        [
            "test_streaming_elicitation",
            "test_input_required_result_elicitation",
            "test_input_required_result_request_state",
            "test_input_required_result_tampered_state",
        ]
        .map(asks),
    );
    Ok(tools)
}

async fn serve(supervisor: Supervisor, spec: SessionSpec, token: Token) -> Result<(), Box<dyn Error>> {
    let server = HttpServer::listen(([127, 0, 0, 1], 0).into()).await?;
    // What is wrong with the grants is told now, and not to the first client.
    let first = Mutex::new(Some(supervisor.open(spec.clone()).await?));
    println!("{}", server.address());
    let open = move || -> Opening {
        let first = first.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (supervisor, spec) = (supervisor.clone(), spec.clone());
        Box::pin(async move {
            let session = match first {
                Some(first) => first,
                None => supervisor.open(spec).await?,
            };
            Ok(Opened { session: Arc::new(session), servers: Servers::default() })
        })
    };
    // Whoever has started this holds the other end.
    let ended = async {
        let mut rest = Vec::new();
        drop(tokio::io::stdin().read_to_end(&mut rest).await);
    };
    server.serve(vec![token], open, ended).await;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    // First: it forks, which only a process with one thread may do.
    let supervisor = Supervisor::builder().launcher(Launcher::fork()?).build().map_err(|error| with_causes(&error))?;
    let mut arguments = std::env::args().skip(1);
    let (Some(token_file), Some(workspace)) = (arguments.next(), arguments.next()) else {
        return Err("usage: conformance TOKEN_FILE WORKSPACE".into());
    };
    let token = Token::parse(std::fs::read_to_string(token_file)?.trim())?;
    let mut spec = SessionSpec::developer(workspace).asked_by(AskedBy::Agent).approver(Arc::new(Client));
    for tool in tools()? {
        spec = spec.tool(tool);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(supervisor, spec, token))
}
