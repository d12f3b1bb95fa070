//! S3's names: eight tools, whatever else there is being looked for with `ToolSearch` (S3-2).

use serde_json::{Map, Value};

use super::face::{Face, Param, TASKS, Understood};

/// Lines that `Read` returns, if the call does not say (X3-8).
const LINES: u64 = 2000;
/// Bytes of a result (X3-8).
const BYTES: u64 = 50_000;

pub(super) const FACES: &[Face] = &[
    Face::new(
        ("Read", "read"),
        "Read a file of text. Returns its lines with their numbers, counted from 1: at most 2000 of them, and at most 2000 \
         characters of a line. A file that is not text is an error that says what it is.",
        &[
            Param::text("file_path", "The file, absolute or relative to the workspace.").required().to("path"),
            Param::whole("offset", (1, u64::MAX), "The first line, counted from 1. Default: 1.").to("start_line"),
            Param::whole_or("limit", LINES, (1, LINES), "How many lines.").nowhere(),
            Param::text("symbol", "Only the definition of this function, type or constant, with the lines that belong to it.")
                .told("symbol"),
        ],
    )
    .telling(&[("number_lines", 6), ("line_chars", 2000)])
    .limit(BYTES)
    .adapted(lines_from_limit),
    Face::new(
        ("Write", "write"),
        "Create a file, or overwrite it as a whole. Missing parent directories are made. The file is replaced at once: it holds all \
         of the new content or, if the call fails, the old.",
        &[
            Param::text("file_path", "The file, absolute or relative to the workspace.").required().to("path"),
            Param::text("content", "All that the file is to hold.").required(),
        ],
    ),
    Face::new(
        ("Edit", "edit"),
        "Replace a piece of text in a file. It must be in the file exactly once, to the byte, unless `replace_all` is given.",
        &[
            Param::text("file_path", "The file, absolute or relative to the workspace.").required().to("path"),
            Param::text("old_string", "The text to replace, exactly as the file has it.").required(),
            Param::text("new_string", "The text to put in its place. Empty to remove the old text.").required(),
            Param::flag("replace_all", false, "Replace it wherever it is.").told("all"),
        ],
    ),
    Face::new(
        ("Bash", "bash"),
        "Run a command line with bash, in the sandbox. Returns what it wrote and its exit status; a command that fails is a result. \
         Each call is a new shell. Nothing that the command starts outlives it.",
        &[
            Param::text("command", "The command line, as bash reads it.").required(),
            Param::whole_or("timeout", 120_000, (1, 600_000), "Milliseconds after which it is killed.").to("timeout_ms").stated(),
        ],
    )
    .limit(BYTES),
    Face::new(
        ("Grep", "grep"),
        "Search the contents of files for a regular expression, as ripgrep does. Returns at most 250 matches, each with its file and \
         line.",
        &[
            Param::text("pattern", "A regular expression in Rust's syntax, matched against one line at a time.").required(),
            Param::text("path", "The file or directory to search. Default: the workspace."),
            Param::text("glob", "Search only files that match this pattern, such as `*.rs`."),
            Param::flag("case_insensitive", false, "Upper and lower case match each other.").to("ignore_case"),
        ],
    )
    .limit(250),
    Face::new(
        ("Glob", "glob"),
        "Find files by name. Returns at most 100 paths, the one that changed last first.",
        &[
            Param::text("pattern", "Which files, relative to `path`: `*.rs`, `src/**/*.rs`.").required(),
            Param::text("path", "The directory to search. Default: the workspace."),
        ],
    )
    .telling(&[("newest_first", 1)])
    .limit(100),
    Face::new(
        ("Delegate", "task"),
        "",
        &[
            Param::text("goal", "What a subagent is to do.").nowhere(),
            Param::text("context", "What it needs to know for that, or what all of `tasks` need to know.").nowhere(),
            Param::json("tasks", DELEGATED, "In place of `goal`: what several subagents are to do side by side, at most 5.").nowhere(),
            Param::whole_or("max_iterations", 50, (1, 1000), "How often a subagent may call the model.").nowhere(),
        ],
    )
    .adapted(goal),
    Face::new(
        ("ToolSearch", "tool_search"),
        "Find tools that are listed by name alone: they cannot be called before this tool has returned their schemas. Returns every \
         one whose name or description contains `query`, whatever the case.",
        &[Param::text("query", "Text that the tool's name or description contains.").required()],
    )
    .telling(&[("unlimited", 1)]),
];

/// `limit` lines from `offset`.
fn lines_from_limit(given: &Map<String, Value>, understood: &mut Understood) -> Result<(), String> {
    let limit = given.get("limit").and_then(Value::as_u64).unwrap_or(LINES).clamp(1, LINES);
    let start = understood.argument("start_line").as_u64().unwrap_or(1);
    understood.set("end_line", start.saturating_add(limit - 1));
    Ok(())
}

const DELEGATED: &str =
    r#"{ "type": "array", "minItems": 1, "maxItems": 5, "items": { "type": "string", "minLength": 1 } }"#;

/// Goal in one text, or what each of several is to do.
fn goal(given: &Map<String, Value>, understood: &mut Understood) -> Result<(), String> {
    let text = |name: &str| given.get(name).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
    let with_context = |goal: &str| match text("context") {
        Some(context) => format!("{goal}\n\n{context}"),
        None => goal.to_owned(),
    };
    let tasks = given.get(TASKS).and_then(Value::as_array);
    let tasks: Option<Vec<String>> = tasks.map(|all| all.iter().filter_map(Value::as_str).map(with_context).collect());
    let prompt = match (text("goal"), &tasks) {
        (Some(_), Some(_)) => return Err("`goal` is one task, and `tasks` are several: give one of them".to_owned()),
        (Some(goal), None) => with_context(goal),
        (None, Some(tasks)) => tasks.join("\n\n"),
        (None, None) => return Err("`goal` is missing: say what the subagent is to do".to_owned()),
    };
    understood.set("prompt", prompt);
    let most = given.get("max_iterations").cloned().unwrap_or_else(|| 50.into());
    understood.set("metadata", serde_json::json!({ "max_iterations": most }));
    if let Some(tasks) = tasks {
        understood.told.insert(TASKS.to_owned(), tasks.into());
    }
    Ok(())
}
