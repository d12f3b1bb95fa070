//! `csv-tasks`: what agents are to do with the rows of a CSV file (X2-19). No tool of a model's: `spawn_agents_on_csv` has a worker
//! read the file and fill in the instruction, since the supervisor parses nothing that a stranger wrote.

use std::collections::BTreeSet;
use std::io::Read as _;

use callgate_policy::template::{self, TemplatePiece};
use serde_json::{Value, json};

use super::arguments::required_text;
use super::read::open;
use super::{ToolContext, ToolError, ToolResult};
use crate::FileAct;

/// The name by which the supervisor calls it.
pub const NAME: &str = "csv-tasks";
/// Most bytes of a file.
const FILE_MAX: u64 = 4 << 20;
/// Most bytes of all tasks together.
const TASKS_MAX: usize = 1 << 20;

/// Reads the file, and returns `tasks` with an `id` and a `prompt` for each row: at most `args["most"]`.
///
/// # Errors
/// A file that is no CSV, or has too many rows; an instruction that names a column that there is not.
pub(super) fn run(args: &Value, ctx: &ToolContext) -> Result<ToolResult, ToolError> {
    let most = args["most"].as_u64().and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    let (mut file, _) = open(&ctx.path, ctx.links)?;
    let mut bytes = Vec::new();
    let read = file.by_ref().take(FILE_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|source| ToolError::File { act: FileAct::Open, path: ctx.path.clone(), source })?;
    let of_file = |reason: String| bad("csv_path", &ctx.path.to_string(), reason);
    if bytes.len() as u64 > FILE_MAX {
        return Err(of_file(format!("it has more than {FILE_MAX} bytes")));
    }
    let tasks = tasks(&bytes, (required_text(args, "instruction")?, args["id_column"].as_str()), most, &of_file)?;
    Ok(ToolResult::of(json!({ "tasks": tasks }), false))
}

fn tasks(
    bytes: &[u8],
    (instruction, id_column): (&str, Option<&str>),
    most: usize,
    of_file: &dyn Fn(String) -> ToolError,
) -> Result<Vec<Value>, ToolError> {
    let mut reader = csv::ReaderBuilder::new().from_reader(bytes);
    let columns: Vec<String> = reader
        .headers()
        .map_err(|error| of_file(error.to_string()))?
        .iter()
        .map(|name| name.trim().to_owned())
        .collect();
    let of_instruction = |reason: String| bad("instruction", instruction, reason);
    let pieces = template::pieces(instruction).map_err(|error| of_instruction(error.to_string()))?;
    let pieces: Result<Vec<InstructionPiece<'_>>, String> =
        pieces.into_iter().map(|piece| filled(piece, &columns)).collect();
    let pieces = pieces.map_err(of_instruction)?;
    let id_column = id_column.map(|name| column(name, &columns).map_err(|reason| bad("id_column", name, reason)));
    let id_column = id_column.transpose()?;
    let (mut tasks, mut ids, mut size) = (Vec::new(), BTreeSet::new(), 0);
    for (row, record) in reader.records().enumerate() {
        let record = record.map_err(|error| of_file(error.to_string()))?;
        if tasks.len() == most {
            return Err(of_file(format!("it has more than {most} rows; take it in parts")));
        }
        let value = |at: usize| record.get(at).unwrap_or_default();
        let id = id_column.map_or_else(|| (row + 1).to_string(), |at| value(at).to_owned());
        if id.is_empty() || id.len() > 256 || !ids.insert(id.clone()) {
            let reason = format!("row {} has an id that is empty, too long or another row's", row + 1);
            return Err(bad("id_column", &id, reason));
        }
        let prompt: String = pieces
            .iter()
            .map(|piece| match piece {
                InstructionPiece::Text(text) => text,
                InstructionPiece::Column(at) => value(*at),
            })
            .collect();
        size += prompt.len();
        if size > TASKS_MAX {
            return Err(of_file(format!("its rows make more than {TASKS_MAX} bytes of tasks; take it in parts")));
        }
        tasks.push(json!({ "id": id, "prompt": prompt }));
    }
    if tasks.is_empty() { Err(of_file("it has no rows below its first line".to_owned())) } else { Ok(tasks) }
}

/// A piece of an instruction, with the place of its column.
enum InstructionPiece<'a> {
    Text(&'a str),
    Column(usize),
}

fn filled<'a>(piece: TemplatePiece<'a>, columns: &[String]) -> Result<InstructionPiece<'a>, String> {
    Ok(match piece {
        TemplatePiece::Text(text) => InstructionPiece::Text(text),
        TemplatePiece::Name(name) => InstructionPiece::Column(column(name, columns)?),
    })
}

fn column(name: &str, columns: &[String]) -> Result<usize, String> {
    columns.iter().position(|column| column == name.trim()).ok_or_else(|| {
        let (shown, known): (String, String) = (name.chars().take(64).collect(), columns.join(", "));
        let known: String = known.chars().take(500).collect();
        format!("there is no column `{shown}`; there are: {known}. For a brace, write it twice")
    })
}

fn bad(argument: &'static str, what: &str, reason: String) -> ToolError {
    ToolError::Pattern { argument, pattern: what.chars().take(80).collect(), reason }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use super::*;

    fn tasks_of(csv: &str, instruction: &str, id_column: Option<&str>) -> Result<Vec<(String, String)>, String> {
        let of_file = |reason: String| bad("csv_path", "f", reason);
        let tasks = tasks(csv.as_bytes(), (instruction, id_column), 3, &of_file).map_err(|error| error.to_string())?;
        let text = |task: &Value, name: &str| task[name].as_str().unwrap().to_owned();
        Ok(tasks.iter().map(|task| (text(task, "id"), text(task, "prompt"))).collect())
    }

    fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
        all.iter().map(|(id, prompt)| ((*id).to_owned(), (*prompt).to_owned())).collect()
    }

    /// X2-19: each row fills in its columns, quotes and line ends of the values as they are; braces are written twice.
    #[test]
    fn x2_19_a_row_fills_in_its_columns() {
        let csv = "\u{feff}name, city\r\n\"A, \"\"B\"\"\",\"x\ny\"\n{name},z\n";
        let expected = pairs(&[("1", "A, \"B\" in x\ny {1}"), ("2", "{name} in z {1}")]);
        assert_eq!(tasks_of(csv, "{name} in { city } {{1}}", None).unwrap(), expected, "a value is no template");
        assert_eq!(tasks_of("id,n\nq,1\nr,2\n", "{n}", Some("id")).unwrap(), pairs(&[("q", "1"), ("r", "2")]));
    }

    /// A file that makes no tasks is an error that says where.
    #[test]
    fn x2_19_what_makes_no_tasks_is_an_error() {
        for (csv, instruction, id, says) in [
            ("a\n1\n", "{b}", None, "there is no column `b`; there are: a"),
            ("a\n1\n", "{a", None, "a brace stands alone"),
            ("a\n1\n", "a}", None, "a brace stands alone"),
            ("a\n1\n", "{a}", Some("c"), "argument `id_column`, c: there is no column"),
            ("a\n1\n1\n", "{a}", Some("a"), "row 2 has an id"),
            ("a\n", "x", None, "it has no rows"),
            ("", "x", None, "it has no rows"),
            ("a,b\n1\n", "{a}", None, "found record with 1 field"),
            ("a\n1\n2\n3\n4\n", "{a}", None, "more than 3 rows"),
        ] {
            let error = tasks_of(csv, instruction, id).unwrap_err();
            assert!(error.contains(says), "{csv:?} {instruction}: {error}");
        }
        let of_file = |reason: String| bad("csv_path", "f", reason);
        assert!(tasks(b"a\n\xff\n", ("{a}", None), 3, &of_file).unwrap_err().to_string().contains("UTF-8"));
        let long = format!("a\n{}\n", "x".repeat(TASKS_MAX / 2));
        assert!(tasks_of(&long, "{a}{a}{a}", None).unwrap_err().contains("bytes of tasks"));
    }
}
