//! `read_pdf` (S2-2, X2-13): the text of a PDF, by `pdftotext` in the sandbox.
//!
//! A PDF is a stranger's, and what parses it is C++: it runs as a program of its own, which of all that was granted changes
//! nothing and reaches nobody ([`ProgramTool::Document`]). No supervisor and no worker parses one.

use std::sync::Arc;
use std::time::Duration;

use callgate_policy::effect::{Effect, EffectKind, Effects};
use callgate_policy::limit::Limits;
use callgate_policy::path::HostPath;
use callgate_policy::plan::CallWork;
use callgate_policy::requirement::{Program, RequirementSet, ShellRunRequirement};
use callgate_policy::tool::Subject;
use callgate_policy::unit::ByteSize;
use callgate_tools::{HEAD, read::PDF};
use serde_json::{Map, Value, json};

use super::executor::{Executor, ProgramTool};
use super::prepare::{Context, InvalidArgument, Prepare, Prepared, ReadsDocument, started};
use super::{RegistryError, Tool, Understood, files};

/// The program.
pub(crate) const PDFTOTEXT: &str = "pdftotext";
/// Time for a large PDF, which takes seconds.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Many times what a large PDF takes, bytes.
const MEMORY: ByteSize = ByteSize(2 << 30);
/// The most bytes of text that are made of one.
const TEXT: ByteSize = ByteSize(64 << 20);

const DESCRIPTION: &str = "Read the text of a PDF, or of some of its pages, as `pdftotext` lays it out. Returns `content`, in which \
each page ends with a form feed. A long result is cut: the first part is then `head` instead of `content`, and the rest is in the \
file `output_path` of the metadata. Where there is no `pdftotext`, the result says so (`binary_unavailable`).";

const SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "path": {
      "type": ["string", "object"], "minLength": 1,
      "properties": { "b64": { "type": "string", "minLength": 1 } }, "required": ["b64"], "additionalProperties": false,
      "description": "The PDF to read, absolute or relative to the workspace. A path that is not UTF-8 is `{\"b64\": \"…\"}`."
    },
    "pages": {
      "type": "string",
      "description": "Which pages, counted from 1: `3` or `1-5`. Default: all."
    }
  },
  "required": ["path"],
  "additionalProperties": false
}"#;

const OUTPUT: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "path": { "type": "string" },
    "path_b64": { "type": "string" },
    "kind": { "const": "pdf" },
    "content": { "type": "string", "description": "The text; each page ends with a form feed." },
    "pages": { "type": "integer", "minimum": 0, "description": "How many pages the text has, where all of it is shown." },
    "head": { "description": "The first part of a result that was too long." },
    "type": { "const": "binary_unavailable", "description": "There is no pdftotext." },
    "reason": { "type": "string" },
    "hint": { "type": "string" }
  },
  "required": ["path", "kind"],
  "anyOf": [{ "required": ["head"] }, { "required": ["content"] }, { "required": ["type", "reason", "hint"] }]
}"#;

/// `read_pdf`. It starts a program, and says so.
pub(crate) fn read_pdf() -> Result<Tool, RegistryError> {
    let cmd = Program::Name(PDFTOTEXT.to_owned());
    let shell = vec![ShellRunRequirement { cmd, args: None }];
    let requires = RequirementSet { fs: files::reads_everything("read_pdf")?, shell, ..RequirementSet::default() };
    let texts = (DESCRIPTION, SCHEMA, OUTPUT);
    let tool = Tool::bundled("read_pdf", texts, Executor::Program(ProgramTool::Document(Arc::new(ReadPdf))));
    let limits = Limits { memory: Some(MEMORY), output: Some(TEXT), ..Limits::default() };
    Ok(tool.requires(requires).subject(Subject::Execute).limits(limits).does(&[EffectKind::Shows]))
}

/// The arguments of `read_pdf` for a call of `read` that was told to look for PDFs.
pub(crate) fn instead_of_read(Understood { args, told, .. }: &Understood) -> Option<Understood> {
    told.get(PDF)?;
    let mut instead = json!({ "path": args["path"] });
    if let Some(pages) = told.get("pages") {
        instead["pages"] = pages.clone();
    }
    Some(Understood::of(instead))
}

/// True if a worker's result says that what it was to read is a PDF.
pub(crate) fn is_one(data: &Value) -> bool {
    *data == json!({ PDF: true })
}

struct ReadPdf;

impl Prepare for ReadPdf {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        let path = context.path_argument(args, "path")?;
        let mut argv: Vec<HostPath> = [PDFTOTEXT, "-q", "-enc", "UTF-8"].map(HostPath::from).to_vec();
        if let Some(pages) = args.get("pages").and_then(Value::as_str) {
            let bad = || InvalidArgument {
                name: "pages".to_owned(),
                reason: format!("{pages:?} is neither a page nor a range of pages; write for example `3` or `1-5`"),
            };
            let (first, last) = range(pages).ok_or_else(bad)?;
            argv.extend(["-f", &first.to_string(), "-l", &last.to_string()].map(HostPath::from));
        }
        // It is absolute, so that it is no option.
        argv.extend([path.clone(), HostPath::from("-")]);
        // The program can do nothing but read, and nobody else has chosen it.
        let effects = Effects::default().showing(path).by(Effect::Runs(started(&argv, context.root)));
        let work = CallWork::program(argv, context.shell_dir.clone());
        Ok(Prepared::new(effects, Some(work), Some(TIMEOUT)))
    }
}

impl ReadsDocument for ReadPdf {
    fn result_of(&self, argv: &[HostPath], ran: &Value) -> Result<Value, String> {
        text(argv, ran)
    }

    fn without_program(&self, argv: &[HostPath], reason: &str) -> Value {
        let mut data = about(argv);
        data.insert("type".to_owned(), "binary_unavailable".into());
        data.insert("reason".to_owned(), reason.into());
        let hint =
            "install pdftotext (Debian: poppler-utils), and grant it: cmd = \"pdftotext\" in [[requires.shell.run]]";
        data.insert("hint".to_owned(), hint.into());
        data.into()
    }
}

/// `N` or `N-M`.
fn range(pages: &str) -> Option<(u32, u32)> {
    let number = |text: &str| {
        let text = text.trim();
        let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        // Of a C int.
        text.parse().ok().filter(|number| is_number && (1..=i32::MAX.unsigned_abs()).contains(number))
    };
    let (first, last) = pages.split_once('-').unwrap_or((pages, pages));
    let (first, last) = (number(first)?, number(last)?);
    (first <= last).then_some((first, last))
}

fn about(argv: &[HostPath]) -> Map<String, Value> {
    let mut data = Map::new();
    if let Some(path) = argv.len().checked_sub(2).and_then(|at| argv.get(at)) {
        callgate_tools::name_path(&mut data, path);
    }
    data.insert("kind".to_owned(), "pdf".into());
    data
}

/// The result of what `pdftotext` has printed, or what its exit status says.
fn text(argv: &[HostPath], ran: &Value) -> Result<Value, String> {
    let mut data = about(argv);
    let path = data["path"].as_str().unwrap_or_default();
    match (ran["exit_code"].as_i64(), ran["signal"].as_i64()) {
        (Some(0), _) => {}
        _ if ran["timed_out"] == true => {
            return Err(format!("{path}: pdftotext took longer than {}s", TIMEOUT.as_secs()));
        }
        (Some(1), _) => {
            return Err(format!(
                "{path}: pdftotext cannot open it: it is missing, damaged, no PDF, or needs a password"
            ));
        }
        (Some(3), _) => return Err(format!("{path}: its author does not allow its text to be copied")),
        (Some(99), _) if argv.iter().any(|word| word.as_bytes() == b"-f") => {
            return Err(format!("{path}: it has no such pages"));
        }
        (Some(code), _) => return Err(format!("{path}: pdftotext exited with status {code}")),
        (None, Some(signal)) => {
            return Err(format!("{path}: pdftotext was ended by signal {signal}: it may be damaged"));
        }
        (None, None) => return Err(format!("{path}: pdftotext did not end by itself")),
    }
    match (ran.get("output"), ran.get(HEAD)) {
        (Some(output), _) => {
            let pages = output.as_str().unwrap_or_default().matches('\u{c}').count();
            data.insert("content".to_owned(), output.clone());
            data.insert("pages".to_owned(), pages.into());
        }
        (None, head) => drop(data.insert(HEAD.to_owned(), head.cloned().unwrap_or_default())),
    }
    Ok(data.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// X2-13: `N` or `N-M`, and nothing else.
    #[test]
    fn x2_13_pages_are_a_page_or_a_range() {
        for (pages, expected) in [
            ("1", (1, 1)),
            ("3-5", (3, 5)),
            (" 2 - 2 ", (2, 2)),
            ("2147483647", (i32::MAX.unsigned_abs(), i32::MAX.unsigned_abs())),
        ] {
            assert_eq!(range(pages), Some(expected), "{pages}");
        }
        for pages in ["", "0", "-", "1-", "-1", "5-3", "1-2-3", "a", "1,2", "+1", "2147483648", "٣", "1 -l 2"] {
            assert_eq!(range(pages), None, "{pages}");
        }
    }

    /// X2-13: what pdftotext's statuses mean, in words.
    #[test]
    fn x2_13_what_it_ends_with_is_said() {
        let argv = ["pdftotext", "-f", "1", "/w/a.pdf", "-"].map(HostPath::from);
        let of = |ran: Value| text(&argv, &ran);
        let read = of(json!({ "exit_code": 0, "output": "one\u{c}two\u{c}" })).expect("a text");
        assert_eq!(read, json!({ "path": "/w/a.pdf", "kind": "pdf", "content": "one\u{c}two\u{c}", "pages": 2 }));
        for (ran, why) in [
            (json!({ "exit_code": 1 }), "damaged"),
            (json!({ "exit_code": 99 }), "no such pages"),
            (json!({ "exit_code": null, "signal": 11 }), "signal 11"),
            (json!({ "exit_code": null, "timed_out": true }), "longer than"),
        ] {
            let error = of(ran).expect_err("no text");
            assert!(error.starts_with("/w/a.pdf: ") && error.contains(why), "{error}");
        }
    }
}
