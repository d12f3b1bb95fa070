//! A whole session of a host: what `docs/whole-session.sh` does from the shell, through the library alone.
//!
//! ```text
//! $ cargo run --example whole_session -- /tmp/new-directory
//! ```
//!
//! It makes a project in that directory (a file that is already there stays as it is), trusts it, and makes an agent's calls. Each
//! event of the session is printed as it comes, one JSON object a line; what a command prints goes to standard error as it comes.

use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callgate::trust::{Decision, Found, TrustList};
use callgate::{
    Answer, Approver, Asked, AskedBy, Inquired, Inquiry, Launcher, Question, Reply, ResultEnvelope, Session,
};
use callgate::{SessionSpec, Store, StrengthChoice, Supervisor, with_causes};
use serde_json::{Value, json};

/// The manifest, a declared tool, and a skill.
const PROJECT: [(&str, &str); 6] = [
    (
        "callgate.toml",
        r#"
id = "whole-session"
mode = "allowlist"
[requires.fs]
write = ["{workspace}/**"]
[[requires.shell]]
cmd = "*"
[[rules]]
permission = "*"
action = "allow"
[[rules]]
permission = "bash"
pattern = "rm *"
action = "ask"
[agents.editor]
description = "Edits notes/next.txt by the sed script that it is given."
runner = ["sed", "-i", "-f", "-", "{project}/notes/next.txt"]
tools = []
[agents.editor.requires.fs]
write = ["{workspace}/notes/**"]
[[agents.editor.requires.shell]]
cmd = "sed"
"#,
    ),
    (
        ".callgate/tools/wordcount.toml",
        r#"
name = "wordcount"
description = "Counts the words of a file."
command = ["python3", "./wordcount.py"]
[parameters]
type = "object"
required = ["path"]
properties.path.type = "string"
additionalProperties = false
[requires.fs]
read = ["{workspace}/**"]
"#,
    ),
    (
        ".callgate/tools/wordcount.py",
        "import json, sys\n\
         path = json.load(sys.stdin)['path']\n\
         print(json.dumps({'words': len(open(path).read().split())}))\n",
    ),
    (
        ".callgate/skills/release-notes/SKILL.md",
        "---\nname: release-notes\ndescription: Writes release notes.\n---\nOne line for each change, in the words of a user.\n",
    ),
    ("notes/next.txt", "Version 1\nIt is slow.\n"),
    ("build.sh", "echo building\nseq 40000\n"),
];

/// The person: lets files be removed, and takes the last of what there is to choose from. A real host asks somebody.
#[derive(Debug)]
struct Person;

impl Approver for Person {
    fn name(&self) -> &str {
        "person"
    }

    fn ask(&self, question: Arc<Question>) -> Asked {
        let is_removal = question.arguments["command"].as_str().is_some_and(|command| command.starts_with("rm "));
        let answer = if is_removal { Answer::Once } else { Answer::Reject };
        eprintln!("asked: {} {}: {answer:?}", question.tool, question.arguments);
        Box::pin(std::future::ready(Some(answer)))
    }

    fn inquire(&self, inquiry: Arc<Inquiry>) -> Inquired {
        let last =
            |choices: &[callgate::Choice]| choices.last().map(|choice| choice.label.clone()).into_iter().collect();
        let answers = inquiry.questions.iter().map(|query| last(&query.options)).collect();
        Box::pin(std::future::ready(Some(Reply::Answers(answers))))
    }
}

/// Makes the project, and trusts it.
fn project(directory: &Path) -> Result<(PathBuf, Found), Box<dyn Error>> {
    let project = directory.join("project");
    fs::create_dir_all(&project)?;
    let project = project.canonicalize()?;
    for (name, text) in PROJECT {
        let file = project.join(name);
        fs::create_dir_all(file.parent().ok_or("a file is in a directory")?)?;
        if !file.try_exists()? {
            fs::write(file, text.replace("{project}", &project.display().to_string()))?;
        }
    }
    let list = TrustList::at(directory.canonicalize()?.join("trusted"));
    list.trust(&project, Decision::Trusted)?;
    let found = list.find(&project)?;
    Ok((project, found))
}

/// The agent: every call that it makes, and what it wants to see of its result.
async fn calls(session: &Session) -> Result<(), Box<dyn Error>> {
    let call = async |tool: &str, arguments: Value| data(tool, session.call(tool, arguments).await);
    call("read", json!({ "path": "notes/next.txt" })).await?;
    call("edit", json!({ "path": "notes/next.txt", "old_string": "slow", "new_string": "fast" })).await?;

    let mut shown = std::io::stderr();
    let mut show = |bytes: &[u8]| shown.write_all(bytes).unwrap_or_default();
    let built = session.call_streaming("bash", json!({ "command": "sh build.sh" }), &mut show).await;
    let rest = built.metadata.output_path.clone().ok_or("there was more output than a result shows")?;
    let rest = call("read", json!({ "path": rest })).await?;
    expect(rest["content"].as_str().is_some_and(|text| text.ends_with("\n40000\n")), "the end of the output", &rest)?;

    let refused = session.call("read", json!({ "path": "/etc/shadow" })).await;
    let denial = refused.metadata.denial.ok_or("reading /etc/shadow is not denied")?;
    eprintln!("denied: {}: {}", denial.asked, denial.reason);
    call("bash", json!({ "command": "rm build.sh" })).await?;
    let todos = json!({ "todos": [{ "content": "edit the notes", "status": "in_progress" }] });
    call("todo", todos).await?;
    let options = json!([{ "label": "1.1" }, { "label": "2.0" }]);
    let question = json!({ "questions": [{ "question": "Which version comes next?", "options": options }] });
    let answers = call("question", question).await?;
    expect(answers == json!({ "answers": [["2.0"]] }), "an answer", &answers)?;
    let skill = call("skill", json!({ "name": "release-notes" })).await?;
    expect(skill.to_string().contains("in the words of a user"), "the text of the skill", &skill)?;
    let words = call("wordcount", json!({ "path": "notes/next.txt" })).await?;
    expect(words == json!({ "words": 5 }), "five words", &words)?;
    let prompt = "s/Version 1/Version 2/w /dev/stdout";
    let edited = call("task", json!({ "subagent_type": "editor", "prompt": prompt })).await?;
    expect(edited["output"] == "Version 2\n", "the subagent's answer", &edited)
}

fn data(tool: &str, result: ResultEnvelope) -> Result<Value, Box<dyn Error>> {
    result.data.ok_or_else(|| format!("{tool}: {}", result.error_text.unwrap_or_default()).into())
}

fn expect(holds: bool, what: &str, seen: &Value) -> Result<(), Box<dyn Error>> {
    if holds { Ok(()) } else { Err(format!("{what} is not there: {seen}").into()) }
}

async fn host(launcher: Launcher, directory: PathBuf, strength: StrengthChoice) -> Result<(), Box<dyn Error>> {
    let (project, found) = project(&directory)?;
    let Found::Trusted(found) = found else { return Err("the project is not trusted".into()) };
    // What is recorded lies where no session reaches.
    let store = Store::at(&directory.canonicalize()?.join("sessions"))?;
    let supervisor = Supervisor::builder().launcher(launcher).store(store.clone()).build()?;
    let spec = || SessionSpec::of_project(&project, (*found).clone()).strength(strength).approver(Arc::new(Person));
    let session = supervisor.open(spec().asked_by(AskedBy::Agent).title("whole session")).await?;
    for warning in session.warnings() {
        eprintln!("{warning}");
    }
    let mut events = session.events();
    let printed = tokio::spawn(async move {
        let mut printed = Vec::new();
        while let Some(Ok(event)) = events.next().await {
            println!("{event}");
            printed.push(event.to_string());
        }
        printed
    });
    calls(&session).await?;
    let id = session.id().to_owned();
    drop(session);
    let printed = printed.await?;

    // What was recorded is what was heard, each time it is asked for, and nothing runs for it.
    let record = store.session(&id)?;
    eprintln!("{}: {} calls, {} failed", record.id, record.calls, record.failed);
    for _ in 0..2 {
        let mut replayed = Vec::new();
        store.replay(&record, |event| -> Result<(), callgate::StoreError> {
            replayed.push(event.to_string());
            Ok(())
        })?;
        if replayed != printed {
            return Err("a replay is not what was heard".into());
        }
    }
    // A fork goes on where the session is, with a life of its own.
    let fork = supervisor.open(spec().resume(store.fork(&record)?.id)).await?;
    eprintln!("forked: {} todos", fork.todos().len());
    fork.close().await?;
    let closed = store.close(&record)?;
    eprintln!("closed: {:?}", closed.state);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    // First: it forks, which only a process with one thread may do.
    let launcher = Launcher::fork().map_err(|error| with_causes(&error))?;
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("usage: whole_session DIRECTORY [landlock]")?;
    let strength = arguments.next().map_or(StrengthChoice::Namespaces, |_| StrengthChoice::Landlock);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(host(launcher, directory.into(), strength))
}
