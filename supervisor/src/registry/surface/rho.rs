//! S4's names: file tools with line numbers, spreadsheets, databases, and a shell that counts in seconds.

use serde_json::{Map, Value};

use super::face::{Face, Param, Understood};
use super::shape::Shape;

/// Lines that `read` returns, if the call does not say (S4-3).
const LINES: u64 = 500;
/// X4-9: 5,000 tokens of four bytes.
const TEXT: usize = 20_000;
/// S4-6.
const ENTRIES: u64 = 200;

pub(super) const FACES: &[Face] = &[
    Face::new(
        ("read", "read"),
        "Read a file of text. Returns its lines with their numbers: 500 of them unless `end_line` says otherwise, and at most 500 \
         characters of a line. Files that are not text are refused.",
        &[
            Param::text("path", "The file, absolute or relative to the workspace.").required(),
            Param::whole_or("start_line", 1, (1, u64::MAX), "The first line, counted from 1.").stated(),
            Param::whole("end_line", (1, u64::MAX), "The last line, included. Default: 499 lines after the first."),
        ],
    )
    .telling(&[("number_lines", 6), ("line_chars", 500), ("count_lines", 1), ("refuse_binary_names", 1)])
    .adapted(five_hundred_lines)
    .shaped(Shape::HeadAndTail(TEXT)),
    Face::new(
        ("grep", "grep"),
        "Search the contents of files for a regular expression, as ripgrep does. `.git`, `node_modules`, `__pycache__`, `.venv` and \
         `venv` are left out.",
        &[
            Param::text("pattern", "A regular expression in Rust's syntax.").required(),
            Param::text("path", "The file or directory to search. Default: the workspace."),
            Param::text("glob", "Search only files that match this pattern, such as `*.py`."),
            Param::flag("ignore_case", false, "Upper and lower case match each other."),
            Param::whole_or("context_lines", 0, (0, 50), "How many lines to return before and after each match.").stated(),
            Param::whole_or("max_matches", 100, (1, 10_000), "The most matches.").limit(),
        ],
    )
    .adapted(leave_out),
    Face::new(
        ("glob", "glob"),
        "Find files by name. `.git`, `node_modules`, `__pycache__`, `.venv` and `venv` are left out.",
        &[
            Param::text("pattern", "Which files, relative to `path`: `*.py`, `src/**/*.py`.").required(),
            Param::text("path", "The directory to search. Default: the workspace."),
            Param::whole_or("max_results", 100, (1, 10_000), "The most paths.").limit(),
        ],
    )
    .adapted(leave_out),
    Face::same("list").limit(ENTRIES),
    Face::same("read_excel"),
    Face::new(
        ("bash", "bash"),
        "Run a command line with bash, in the sandbox. Returns what it wrote, its exit code and how long it took. Each call is a new \
         shell. Nothing that the command starts outlives it.",
        &[
            Param::text("command", "The command line, as bash reads it.").required(),
            Param::text("working_dir", "Where it starts: absolute, or relative to the workspace. Default: the workspace."),
            Param::whole("timeout", (1, 600), "Seconds after which it is killed. Default: what the profile says.").nowhere(),
        ],
    )
    .adapted(seconds)
    .shaped(Shape::Ran(TEXT)),
    Face::new(
        ("write", "write"),
        "",
        &[
            Param::text("path", "The file, absolute or relative to the workspace.").required(),
            Param::text("content", "All that the file is to hold: something.").required(),
        ],
    )
    .adapted(something),
    Face::new(
        ("edit", "edit"),
        "Replace a piece of text in a file. It must be there once. It is looked for exactly; then without regard to white space at the \
         ends of lines; then without regard to indentation, which is kept. The result says which of them found it.",
        &[
            Param::text("path", "The file, absolute or relative to the workspace.").required(),
            Param::text("old_string", "The text to replace.").required(),
            Param::text("new_string", "The text to put in its place.").required(),
        ],
    )
    .telling(&[("flexible", 1)]),
    Face::same("sqlite"),
    Face::same("postgres"),
    Face::same("mysql"),
    Face::same("oracle"),
    Face::same("vertica"),
    Face::same("azure_devops"),
    Face::new(
        ("delegate", "task"),
        "",
        &[
            Param::text("instruction", "What the subagent is to do, with all that it needs to know.").required().to("prompt"),
            Param::flag("full_context", false, "Give it what was said so far.").nowhere(),
        ],
    )
    .adapted(with_context)
    .single_level(),
];

/// Directories that hold what others have written (S4-4, X4-11).
const LEFT_OUT: [&str; 5] = [".git", "node_modules", "__pycache__", ".venv", "venv"];

fn leave_out(_: &Map<String, Value>, understood: &mut Understood) -> Result<(), String> {
    understood.told.insert("exclude".to_owned(), LEFT_OUT.iter().copied().collect());
    Ok(())
}

fn five_hundred_lines(given: &Map<String, Value>, understood: &mut Understood) -> Result<(), String> {
    if !given.contains_key("end_line") {
        let start = understood.argument("start_line").as_u64().unwrap_or(1);
        understood.set("end_line", start.saturating_add(LINES - 1));
    }
    Ok(())
}

fn seconds(given: &Map<String, Value>, understood: &mut Understood) -> Result<(), String> {
    if let Some(seconds) = given.get("timeout").and_then(Value::as_f64) {
        let seconds = seconds.clamp(1.0, 600.0);
        understood.set("timeout_ms", milliseconds(seconds));
    }
    Ok(())
}

/// Milliseconds of seconds, at most ten minutes.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was clamped")]
fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1000.0) as u64
}

/// X4-13.
fn something(given: &Map<String, Value>, _: &mut Understood) -> Result<(), String> {
    match given.get("content").and_then(Value::as_str) {
        Some("") => Err("`content` is empty, and a file without content is not written".to_owned()),
        Some(_) | None => Ok(()),
    }
}

/// Whoever runs it knows what was said.
fn with_context(given: &Map<String, Value>, understood: &mut Understood) -> Result<(), String> {
    let full_context = given.get("full_context").cloned().unwrap_or(Value::Bool(false));
    understood.set("metadata", serde_json::json!({ "full_context": full_context }));
    Ok(())
}
