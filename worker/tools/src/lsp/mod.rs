//! `lsp` (S0-25): definitions, references, diagnostics and more, from a language server.
//!
//! The server runs beside this worker, in a sandbox as other programs do. This is its client: all that a server says is read here, by a
//! process that can read the workspace and do nothing else, and what becomes of it is bounded.

mod error;
mod frames;
mod place;
mod talk;

use std::collections::HashMap;
use std::io::Read as _;
use std::time::{Duration, Instant};

use callgate_policy::path::HostPath;
use serde_json::{Map, Value, json};

pub use self::error::{LspError, ServerFault};
use self::talk::Talk;
use super::arguments::{flag, integer, is_told, required_text, text};
use super::{Contract, HEAD, SyscallNeed, ToolContext, ToolError, ToolResult, name_path, read};
use crate::FileAct;

/// The name.
pub const NAME: &str = "lsp";

/// Contract of `lsp`.
pub const CONTRACT: Contract = Contract {
    name: NAME,
    requires: &["fs.read", "shell.run"],
    description: "Ask a language server about a file: where what stands at a place is defined (`definition`), where it is used \
        (`references`), what it is (`hover`), what the file defines (`symbols`), and what is wrong with the file (`diagnostics`). \
        Lines and columns count from 1, and a column is a character. The server is started for the call, runs in the sandbox, and \
        changes nothing. A long result is cut: the first part is then `head` instead of `found`, or of `content`.",
    schema: SCHEMA,
    output: OUTPUT,
    kind: SyscallNeed::Plain,
    run,
    files: None,
};

const SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "operation": {
      "enum": ["definition", "references", "hover", "symbols", "diagnostics"],
      "description": "What to ask."
    },
    "path": {
      "type": ["string", "object"], "minLength": 1,
      "properties": { "b64": { "type": "string", "minLength": 1 } }, "required": ["b64"], "additionalProperties": false,
      "description": "The file, absolute or relative to the workspace. A path that is not UTF-8 is `{\"b64\": \"…\"}`."
    },
    "line": { "type": "integer", "minimum": 1, "description": "The line, from 1. For definition, references and hover." },
    "column": {
      "type": "integer", "minimum": 1,
      "description": "The column, from 1, in characters. For definition, references and hover."
    },
    "include_declaration": {
      "type": "boolean", "default": true,
      "description": "With references: also where it is declared. Default true."
    },
    "timeout_ms": {
      "type": "integer", "minimum": 1000, "maximum": 600000,
      "description": "The server is ended after this many milliseconds. Default 120000: some read all of a project first."
    }
  },
  "required": ["operation", "path"],
  "additionalProperties": false
}"#;

const OUTPUT: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "operation": { "type": "string" },
    "server": { "type": "string", "description": "Which server was asked." },
    "path": { "type": "string" },
    "path_b64": { "type": "string" },
    "total": { "type": "integer", "minimum": 0, "description": "How much was found." },
    "found": {
      "type": "array",
      "items": {
        "type": "object",
        "properties": {
          "path": { "type": "string" },
          "path_b64": { "type": "string" },
          "uri": { "type": "string", "description": "Of what is no file." },
          "line": { "type": "integer", "minimum": 1 },
          "column": { "type": "integer", "minimum": 1 },
          "end_line": { "type": "integer", "minimum": 1 },
          "end_column": { "type": "integer", "minimum": 1 },
          "utf16": { "const": true, "description": "The file was not read: its columns count units of UTF-16." },
          "name": { "type": "string" },
          "kind": { "type": "string" },
          "container": { "type": "string" },
          "severity": { "enum": ["error", "warning", "information", "hint"] },
          "message": { "type": "string" },
          "source": { "type": "string" },
          "code": { "type": "string" }
        }
      }
    },
    "content": { "type": "string", "description": "What `hover` found." },
    "head": { "description": "The first part of a result that was too long." }
  },
  "required": ["operation", "server", "path"],
  "anyOf": [{ "required": ["head"] }, { "required": ["found"] }, { "required": ["content"] }]
}"#;

/// Word of the supervisor: the server's name.
pub const SERVER: &str = "server";
/// Word of the supervisor: the protocol's name of the file's language.
pub const LANGUAGE: &str = "language";
/// Word of the supervisor, as a server's own options.
pub const OPTIONS: &str = "options";
/// Word of the supervisor: 1 for a server that says when it has read the project.
pub const SAYS_WHEN_READY: &str = "says_when_ready";
/// Word of the supervisor: how long the server has, milliseconds.
pub const TIME: &str = "time_ms";

/// The largest file that a server is asked about, or that places are found in, bytes.
const FILE_MAX: u64 = 4 << 20;
/// Most files that are read for the places in them.
const FILES_MAX: usize = 64;
/// The most entries that are shown.
const MOST: usize = 200;
/// Most characters of a name, and of a message.
const NAME_MAX: usize = 200;
const MESSAGE_MAX: usize = 2000;

/// Asks the server about `ctx.path`, in the workspace `ctx.paths[1]`.
///
/// # Errors
/// An argument that makes no sense, a file that cannot be read, a server that does not answer.
pub fn run(args: &Value, ctx: &ToolContext) -> Result<ToolResult, ToolError> {
    let server = required_text(args, SERVER)?;
    let failed = |why, words| ToolError::from(ServerFault { server: server.to_owned(), why, words });
    let peer = ctx.peer.as_deref().ok_or_else(|| failed(LspError::Absent, String::new()))?;
    let source = source(ctx, &ctx.path)?;
    let question = LspQuestion::of(args, &source)?;
    let root = ctx.paths.get(1).unwrap_or(&ctx.path);
    let time = integer(args, TIME, 0, "milliseconds")?.unwrap_or_default();
    let mut talk = Talk::new(peer, (root, &ctx.path), Instant::now() + Duration::from_millis(time));
    let answer = question.ask(&mut talk, (args, &source), &ctx.path);
    let answer = answer.map_err(|why| failed(why, talk.last_words()))?;
    let mut places = NamedPlaces { ctx, root, read: HashMap::new() };
    places.read.insert(ctx.path.clone(), Some(source));
    let mut data = Map::new();
    data.insert("operation".to_owned(), required_text(args, "operation")?.into());
    data.insert(SERVER.to_owned(), server.into());
    name_path(&mut data, &ctx.path);
    let truncated = match question {
        LspQuestion::Hover(_) => content(&mut data, &hovered(&answer["contents"]), ctx.limit),
        LspQuestion::Definition(_) | LspQuestion::References(..) => {
            let mut found = places.locations(answer);
            found.dedup();
            entries(&mut data, found, ctx.limit)
        }
        LspQuestion::Symbols => entries(&mut data, places.symbols(answer), ctx.limit),
        LspQuestion::Diagnostics => entries(&mut data, places.diagnostics(answer), ctx.limit),
    };
    Ok(ToolResult::of(data.into(), truncated))
}

/// A file's text.
fn source(ctx: &ToolContext, path: &HostPath) -> Result<String, ToolError> {
    let (file, _) = read::open(path, ctx.links)?;
    let mut bytes = Vec::new();
    file.take(FILE_MAX + 1).read_to_end(&mut bytes).map_err(|source| ToolError::File {
        act: FileAct::Read,
        path: path.clone(),
        source,
    })?;
    let not_text = |why: &str| ToolError::NotText { path: path.clone(), why: why.to_owned() };
    if bytes.len() as u64 > FILE_MAX {
        return Err(not_text("it has more than 4 MiB, as no source has"));
    }
    String::from_utf8(bytes).map_err(|_e| not_text("it is not UTF-8"))
}

/// A place, as the protocol has it.
#[derive(Debug, Clone, Copy)]
struct Position {
    line: u64,
    character: u64,
}

/// Question to a server.
#[derive(Debug, Clone, Copy)]
enum LspQuestion {
    Definition(Position),
    References(Position, bool),
    Hover(Position),
    Symbols,
    Diagnostics,
}

impl LspQuestion {
    fn of(args: &Value, source: &str) -> Result<Self, ToolError> {
        let operation = required_text(args, "operation")?;
        Ok(match operation {
            "definition" => Self::Definition(position(args, source)?),
            "references" => {
                let declared = args.get("include_declaration").is_none() || flag(args, "include_declaration")?;
                Self::References(position(args, source)?, declared)
            }
            "hover" => Self::Hover(position(args, source)?),
            "symbols" => Self::Symbols,
            "diagnostics" => Self::Diagnostics,
            other => {
                let found = other.chars().take(NAME_MAX).collect();
                return Err(ToolError::Argument { name: "operation", wants: "an operation", found });
            }
        })
    }

    /// Opens the file at the server, and asks.
    fn ask(self, talk: &mut Talk<'_>, (args, source): (&Value, &str), path: &HostPath) -> Result<Value, LspError> {
        let capabilities = talk.begin(&args[OPTIONS])?;
        let uri = place::uri(path);
        let language = text(args, LANGUAGE, "a string").ok().flatten().unwrap_or_default();
        let document = json!({ "uri": uri, "languageId": language, "version": 1, "text": source });
        talk.tell("textDocument/didOpen", &json!({ "textDocument": document }))?;
        if is_told(args, SAYS_WHEN_READY) {
            talk.wait_until_quiescent()?;
        }
        let document = json!({ "uri": uri });
        let at = |Position { line, character }| json!({ "line": line, "character": character });
        match self {
            Self::Definition(place) => {
                talk.ask("textDocument/definition", &json!({ "textDocument": document, "position": at(place) }))
            }
            Self::References(place, declared) => {
                let context = json!({ "includeDeclaration": declared });
                let params = json!({ "textDocument": document, "position": at(place), "context": context });
                talk.ask("textDocument/references", &params)
            }
            Self::Hover(place) => {
                talk.ask("textDocument/hover", &json!({ "textDocument": document, "position": at(place) }))
            }
            Self::Symbols => talk.ask("textDocument/documentSymbol", &json!({ "textDocument": document })),
            // Those that wait to be asked say nothing by themselves.
            Self::Diagnostics if capabilities["diagnosticProvider"].is_object() => {
                let mut report = talk.ask("textDocument/diagnostic", &json!({ "textDocument": document }))?;
                Ok(report["items"].take())
            }
            Self::Diagnostics => talk.published().map(Value::Array),
        }
    }
}

/// The place that a call names.
fn position(args: &Value, source: &str) -> Result<Position, ToolError> {
    let of = |name: &'static str| {
        let missing = || ToolError::Argument { name, wants: "given for this operation", found: "missing".to_owned() };
        integer(args, name, 1, "a whole number of at least 1")?.ok_or_else(missing)
    };
    let (line, column) = (of("line")?, of("column")?);
    let before = usize::try_from(line - 1).unwrap_or(usize::MAX);
    let there = place::lines(source).nth(before).ok_or_else(|| ToolError::Argument {
        name: "line",
        wants: "a line of the file",
        found: format!("{line}: it has {} lines", place::lines(source).count()),
    })?;
    let character = place::to_utf16(there, column).map_err(|characters| ToolError::Argument {
        name: "column",
        wants: "a column of the line, or the one after its end",
        found: format!("{column}: it has {characters} characters"),
    })?;
    Ok(Position { line: line - 1, character })
}

/// The files in which a server has named places.
struct NamedPlaces<'a> {
    ctx: &'a ToolContext,
    root: &'a HostPath,
    /// Their texts; `None` for those that are not read.
    read: HashMap<HostPath, Option<String>>,
}

impl NamedPlaces<'_> {
    /// The text of a file of the workspace. What a server names elsewhere is not opened.
    fn text(&mut self, path: &HostPath) -> Option<&str> {
        if !self.read.contains_key(path) {
            let is_ours = path.as_path().starts_with(self.root) && self.ctx.may_tell_of(path.as_path());
            let may_be_read = is_ours && self.read.len() < FILES_MAX;
            let text = if may_be_read { source(self.ctx, path).ok() } else { None };
            self.read.insert(path.clone(), text);
        }
        self.read.get(path)?.as_deref()
    }

    /// Adds a range in a file.
    fn add(&mut self, entry: &mut Map<String, Value>, path: Option<&HostPath>, range: &Value) {
        let text = path.and_then(|path| self.text(path));
        let mut in_utf16 = false;
        for (end, line, column) in [("start", "line", "column"), ("end", "end_line", "end_column")] {
            let number = |name: &str| range[end][name].as_u64().unwrap_or(0).min(u64::from(u32::MAX));
            let (at, units) = (number("line"), number("character"));
            let there = text.and_then(|text| place::lines(text).nth(usize::try_from(at).unwrap_or(usize::MAX)));
            in_utf16 |= text.is_none();
            let at_column = there.map_or(units + 1, |there| place::of_utf16(there, units));
            entry.insert(line.to_owned(), (at + 1).into());
            entry.insert(column.to_owned(), at_column.into());
        }
        if in_utf16 {
            entry.insert("utf16".to_owned(), true.into());
        }
    }

    /// One location, or a link to one.
    fn location(&mut self, location: &Value) -> Option<Value> {
        let uri = location.get("uri").or_else(|| location.get("targetUri"))?.as_str()?;
        let range = location.get("range").or_else(|| location.get("targetSelectionRange"))?;
        let mut entry = Map::new();
        let path = place::path_of(uri);
        match &path {
            Some(path) => name_path(&mut entry, path),
            None => drop(entry.insert("uri".to_owned(), shortened(uri, NAME_MAX))),
        }
        self.add(&mut entry, path.as_ref(), range);
        Some(entry.into())
    }

    /// Where a definition is, or uses are: in the order of files and lines.
    fn locations(&mut self, answer: Value) -> Vec<Value> {
        let all = match answer {
            Value::Array(all) => all,
            Value::Object(_) => vec![answer],
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
        };
        let mut found: Vec<Value> = all.iter().filter_map(|location| self.location(location)).collect();
        let key = |entry: &Value| {
            let number = |name: &str| entry[name].as_u64().unwrap_or_default();
            (entry["path"].as_str().unwrap_or_default().to_owned(), number("line"), number("column"))
        };
        found.sort_by_cached_key(key);
        found
    }

    fn diagnostics(&mut self, answer: Value) -> Vec<Value> {
        let Value::Array(all) = answer else { return Vec::new() };
        let path = self.ctx.path.clone();
        let mut told = |diagnostic: &Value| {
            let mut entry = Map::new();
            self.add(&mut entry, Some(&path), &diagnostic["range"]);
            let severity = match diagnostic["severity"].as_u64() {
                Some(1) => "error",
                Some(2) => "warning",
                Some(4) => "hint",
                _ => "information",
            };
            entry.insert("severity".to_owned(), severity.into());
            entry.insert(
                "message".to_owned(),
                shortened(diagnostic["message"].as_str().unwrap_or_default(), MESSAGE_MAX),
            );
            for name in ["source", "code"] {
                let text = match &diagnostic[name] {
                    Value::String(text) => text.clone(),
                    Value::Number(number) => number.to_string(),
                    Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => continue,
                };
                entry.insert(name.to_owned(), shortened(&text, NAME_MAX));
            }
            Value::Object(entry)
        };
        let mut found: Vec<Value> = all.iter().map(&mut told).collect();
        found.sort_by_key(|entry| (entry["line"].as_u64(), entry["column"].as_u64()));
        found
    }

    /// Symbols that a file defines, what lies in something after it.
    fn symbols(&mut self, answer: Value) -> Vec<Value> {
        let Value::Array(all) = answer else { return Vec::new() };
        let path = self.ctx.path.clone();
        let mut found = Vec::new();
        let mut left: Vec<(&Value, Option<&str>)> = all.iter().rev().map(|symbol| (symbol, None)).collect();
        while let Some((symbol, within)) = left.pop() {
            let name = symbol["name"].as_str().unwrap_or_default();
            let mut entry = Map::new();
            entry.insert("name".to_owned(), shortened(name, NAME_MAX));
            entry.insert("kind".to_owned(), kind(symbol["kind"].as_u64()).into());
            if let Some(container) = within.or_else(|| symbol["containerName"].as_str()).filter(|name| !name.is_empty())
            {
                entry.insert("container".to_owned(), shortened(container, NAME_MAX));
            }
            let range = symbol.get("selectionRange").unwrap_or(&symbol["location"]["range"]);
            self.add(&mut entry, Some(&path), range);
            found.push(entry.into());
            let children = symbol["children"].as_array().into_iter().flatten();
            left.extend(children.rev().map(|child| (child, Some(name))));
        }
        found
    }
}

/// Text of a hover: a text, one with its language, or several.
fn hovered(contents: &Value) -> String {
    match contents {
        Value::String(text) => text.clone(),
        Value::Array(all) => {
            let texts: Vec<String> = all.iter().map(hovered).filter(|text| !text.is_empty()).collect();
            texts.join("\n\n")
        }
        Value::Object(one) => one.get("value").and_then(Value::as_str).unwrap_or_default().to_owned(),
        Value::Null | Value::Bool(_) | Value::Number(_) => String::new(),
    }
}

/// Name of a kind that the protocol numbers.
fn kind(number: Option<u64>) -> &'static str {
    const KINDS: [&str; 26] = [
        "file",
        "module",
        "namespace",
        "package",
        "class",
        "method",
        "property",
        "field",
        "constructor",
        "enum",
        "interface",
        "function",
        "variable",
        "constant",
        "string",
        "number",
        "boolean",
        "array",
        "object",
        "key",
        "null",
        "enum member",
        "struct",
        "event",
        "operator",
        "type parameter",
    ];
    let at = number.and_then(|number| usize::try_from(number).ok()?.checked_sub(1));
    at.and_then(|at| KINDS.get(at)).copied().unwrap_or("unknown")
}

fn shortened(text: &str, most: usize) -> Value {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]).into(),
        None => text.into(),
    }
}

/// Adds as many entries as there is room for. Says whether some were left out.
fn entries(data: &mut Map<String, Value>, found: Vec<Value>, limit: usize) -> bool {
    let total = found.len();
    let mut room = limit;
    let mut has_room = |entry: &Value| {
        let left = room.checked_sub(entry.to_string().len());
        room = left.unwrap_or_default();
        left.is_some()
    };
    let shown: Vec<Value> = found.into_iter().take(MOST).take_while(|entry| has_room(entry)).collect();
    let truncated = shown.len() < total;
    data.insert("total".to_owned(), total.into());
    data.insert(if truncated { HEAD } else { "found" }.to_owned(), shown.into());
    truncated
}

/// Adds a text, as far as there is room for it.
fn content(data: &mut Map<String, Value>, text: &str, limit: usize) -> bool {
    let end = text.floor_char_boundary(limit);
    data.insert(if end < text.len() { HEAD } else { "content" }.to_owned(), text[..end].into());
    end < text.len()
}
