//! S2's names: dedicated tools beside a shell that can go on in the background.

use serde_json::{Map, Value};

use super::face::{Face, Param, Understood};
use super::shape::Shape;

pub(super) const FACES: &[Face] = &[
    Face::new(
        ("read_file", "read"),
        "Read a file of text as it is. A PDF is returned as text, if `pdftotext` is there and granted.",
        &[
            Param::text("path", "The file, absolute or relative to the workspace.").required(),
            Param::text("pages", "Of a PDF: the pages, such as `3` or `1-5`. Default: all.").told("pages"),
        ],
    )
    .telling(&[("pdf", 1)]),
    Face::new(
        ("list_dir", "list"),
        "List a directory: names, and which of them are directories. What git ignores is left out.",
        &[Param::text_or("path", ".", "The directory, absolute or relative to the workspace.")],
    )
    .telling(&[("gitignore", 1)]),
    Face::new(
        ("write_file", "write"),
        "Create a file, or overwrite it as a whole. Missing parent directories are made.",
        &[
            Param::text("path", "The file, absolute or relative to the workspace.").required(),
            Param::text("content", "All that the file is to hold.").required(),
        ],
    ),
    Face::new(
        ("edit_file", "edit"),
        "Replace a piece of text in a file, wherever it is in it, and return how often that was. For changes in several places use \
         apply_patch.",
        &[
            Param::text("path", "The file, absolute or relative to the workspace.").required(),
            Param::text("search", "The text to replace, exactly as the file has it.").required().to("old_string"),
            Param::text("replace", "The text to put in its place.").required().to("new_string"),
        ],
    )
    .telling(&[("all", 1)])
    .shaped(Shape::Replaced),
    Face::same("apply_patch"),
    Face::new(
        ("grep_files", "grep"),
        "Search the contents of files for a regular expression. Returns structured matches with the lines around them.",
        &[
            Param::text("pattern", "A regular expression in Rust's syntax.").required(),
            Param::text_or("path", ".", "The file or directory to search.").stated(),
            Param::texts("include", "Search only files that match one of these patterns, such as `*.rs`.").told("include"),
            Param::texts(
                "exclude",
                "Search no files that match one of these. Default: node_modules, .git, target, *.min.js, *.min.css, dist, build, \
                 __pycache__, .venv, venv.",
            )
            .nowhere(),
            Param::whole_or("context_lines", 2, (0, 50), "How many lines to return before and after each match."),
            Param::flag("case_insensitive", false, "Upper and lower case match each other.").to("ignore_case"),
            Param::whole_or("max_results", 100, (1, 10_000), "The most matches.").limit(),
        ],
    )
    .telling(&[("skip_over", 10 << 20)])
    .adapted(excluded)
    .shaped(Shape::GrepFiles),
    Face::same("file_search"),
    Face::new(
        ("web_search", "web_search"),
        "Search the web. Returns ranked results, each with a `ref_id` by which it can be cited.",
        &[
            Param::text_or_texts("query", "What to search the web for.").required().also(&["q", "search_query"]),
            Param::whole_or("max_results", 5, (1, 10), "The most results.").stated(),
        ],
    )
    .adapted(one_query)
    .shaped(Shape::Cited),
    Face::new(
        ("fetch_url", "web_fetch"),
        "Fetch a URL that is known, from a granted host. HTML is returned as Markdown unless `format` says otherwise.",
        &[
            Param::text("url", "What to fetch: an http or https URL.").required(),
            Param::choice("format", &["markdown", "text", "raw"], "markdown", "How a page is returned.").stated(),
            Param::whole_or("max_bytes", 1_000_000, (1, 10 << 20), "The most bytes of the body that are read.").stated(),
            Param::whole_or("timeout_ms", 15_000, (1, 60_000), "Milliseconds for each hop.").stated(),
        ],
    )
    .shaped(Shape::Fetched),
    Face::same("exec_shell"),
    Face::same("exec_shell_wait"),
    Face::same("exec_shell_interact"),
    Face::same("exec_shell_cancel"),
    Face::same("git_status"),
    Face::same("git_diff"),
    Face::same("diagnostics"),
    Face::same("run_tests"),
    Face::new(
        ("todo_write", "todo"),
        "Keep this session's list of what is to be done. The list that is given replaces the one before, and at most one item may be \
         `in_progress`.",
        &[Param::json("todos", TODOS, "The whole list, in order.").required()],
    ),
    Face::same("update_plan"),
    Face::same("note"),
    Face::same("rlm_query"),
    Face::same("agent_spawn"),
    Face::same("agent_swarm"),
    Face::same("spawn_agents_on_csv"),
    Face::same("agent_result"),
    Face::same("swarm_result"),
    Face::same("swarm_status"),
    Face::same("agent_wait").named("wait"),
    Face::same("agent_send_input"),
    Face::same("agent_assign"),
    Face::same("agent_cancel"),
    Face::same("resume_agent"),
    Face::same("agent_list"),
    Face::same("report_agent_job_result"),
];

const TODOS: &str = r#"{
  "type": "array",
  "maxItems": 200,
  "items": {
    "type": "object",
    "properties": {
      "content": { "type": "string", "minLength": 1, "maxLength": 1000 },
      "status": { "enum": ["pending", "in_progress", "completed"] }
    },
    "required": ["content", "status"],
    "additionalProperties": false
  }
}"#;

/// Left out of a search, if the call does not say (X2-15).
const EXCLUDED: [&str; 10] =
    ["node_modules", ".git", "target", "*.min.js", "*.min.css", "dist", "build", "__pycache__", ".venv", "venv"];

fn excluded(given: &Map<String, Value>, understood: &mut Understood) -> Result<(), String> {
    let exclude = given.get("exclude").cloned().unwrap_or_else(|| EXCLUDED.iter().copied().collect());
    understood.told.insert("exclude".to_owned(), exclude);
    Ok(())
}

/// Several are searched for together.
fn one_query(_: &Map<String, Value>, understood: &mut Understood) -> Result<(), String> {
    if let Value::Array(several) = understood.argument("query") {
        let words: Vec<&str> = several.iter().filter_map(Value::as_str).collect();
        understood.set("query", words.join(" "));
    }
    Ok(())
}
