//! `read_csv`: rows of a CSV file, with the names of its columns.
//!
//! A file is read row by row, so that it may be of any length. What a row has is text; what a cell means is for whoever reads it.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};
use std::rc::Rc;
use std::time::Duration;

use callgate_policy::tool::Subject;
use callgate_policy::unit::ByteSize;
use serde_json::{Map, Value};

use super::arguments::integer;
use super::read::open;
use super::{Contract, FileNeed, HEAD, Needs, SyscallNeed, ToolContext, ToolError, ToolResult, name_path};

/// Contract of `read_csv`.
pub const CONTRACT: Contract = Contract {
    name: "read_csv",
    requires: &["fs.read"],
    description: "Read rows of a CSV file as data. Returns `columns`, the names of the first line, and `rows`, each a list of texts in \
        their order; `next_row` is where to go on if there are more. `start_row` is the first row below the names to return, \
        1 if none is given, and `max_rows` how many, at most 1000. `delimiter` is `,` unless it is given. If they are too long for a \
        result, the first of them are `head` in place of `rows`.",
    schema: SCHEMA,
    output: OUTPUT,
    kind: SyscallNeed::Plain,
    run,
    files: Some(FileNeed::outside(Needs::Read, Subject::Read).bounded(MEMORY, TIMEOUT)),
};

const SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "path": {
      "type": ["string", "object"], "minLength": 1,
      "properties": { "b64": { "type": "string", "minLength": 1 } }, "required": ["b64"], "additionalProperties": false,
      "description": "The file, absolute or relative to the workspace. A path that is not UTF-8 is `{\"b64\": \"…\"}`."
    },
    "start_row": { "type": "integer", "minimum": 1, "default": 1, "description": "The first row to return, from 1. Default: 1." },
    "max_rows": { "type": "integer", "minimum": 1, "maximum": 1000, "default": 100, "description": "How many rows to return. Default: 100." },
    "delimiter": { "enum": [",", ";", "\t", "|"], "default": ",", "description": "What stands between cells. Default: a comma." }
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
    "columns": { "type": "array", "items": { "type": "string" } },
    "rows": { "type": "array", "items": { "type": "array", "items": { "type": "string" } } },
    "start_row": { "type": "integer", "minimum": 1 },
    "next_row": { "type": "integer", "minimum": 1, "description": "Where to go on; absent if these are the last." },
    "head": { "description": "The first part of a result that was too long." }
  },
  "required": ["path", "columns", "start_row"],
  "anyOf": [{ "required": ["head"] }, { "required": ["rows"] }]
}"#;

/// Memory of a call, bytes: a row of empty cells takes some fifty times its length.
const MEMORY: ByteSize = ByteSize(512 << 20);
/// Time of a call: rows before the first that is wanted are read as well.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Longest row, bytes, with what is read ahead.
const ROW_MAX: u64 = 1 << 20;
/// Longest file that is read, bytes.
const FILE_MAX: u64 = 4 << 30;

/// Reads rows of `ctx.path`.
///
/// # Errors
/// A file that is no CSV, or that cannot be opened.
pub fn run(args: &Value, ctx: &ToolContext) -> Result<ToolResult, ToolError> {
    let wants = "a whole number of at least 1";
    let first = integer(args, "start_row", 1, wants)?.unwrap_or(1);
    let most = integer(args, "max_rows", 1, wants)?.unwrap_or(100);
    let delimiter = args["delimiter"].as_str().and_then(|text| text.bytes().next()).unwrap_or(b',');
    let wrong = |why: String| ToolError::NotText { path: ctx.path.clone(), why };
    let (file, stat) = open(&ctx.path, ctx.links)?;
    let size = u64::try_from(stat.st_size).unwrap_or_default();
    if size > FILE_MAX {
        return Err(ToolError::TooLong { path: ctx.path.clone(), size, most: FILE_MAX });
    }
    let row = Rc::new(Cell::new(ROW_MAX));
    let bounded = BoundedFile { inner: file, left: Rc::clone(&row) };
    // Rows of different lengths are shown as they are.
    let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).flexible(true).from_reader(bounded);
    let columns = reader.headers().map_err(|error| wrong(error.to_string()))?;
    let columns: Value = columns.iter().collect::<Vec<_>>().into();
    let Some(mut room) = ctx.limit.checked_sub(length_of(&columns)) else {
        return Err(wrong("its first line, which names the columns, is longer than a result may be".to_owned()));
    };
    let (mut rows, mut next, mut record) = (Vec::new(), None, csv::StringRecord::new());
    let (mut number, mut was_cut) = (0, false);
    loop {
        row.set(ROW_MAX);
        if !reader.read_record(&mut record).map_err(|error| wrong(error.to_string()))? {
            break;
        }
        number += 1;
        if number < first {
            continue;
        }
        if rows.len() as u64 == most {
            next = Some(number);
            break;
        }
        let cells: Value = record.iter().collect::<Vec<_>>().into();
        let length = length_of(&cells);
        if length > room {
            was_cut = true;
            // Alone it is shown in part, or nobody gets past it.
            next = Some(if rows.is_empty() { number + 1 } else { number });
            if rows.is_empty() {
                rows.push(cut(&record, room));
            }
            break;
        }
        rows.push(cells);
        room -= length;
    }
    let mut data = Map::new();
    name_path(&mut data, &ctx.path);
    data.insert("columns".to_owned(), columns);
    data.insert(if was_cut { HEAD } else { "rows" }.to_owned(), rows.into());
    data.insert("start_row".to_owned(), first.into());
    if let Some(next) = next {
        data.insert("next_row".to_owned(), next.into());
    }
    Ok(ToolResult::of(Value::Object(data), was_cut))
}

/// A file of which no more is read than is left.
struct BoundedFile {
    inner: File,
    /// Bytes that a row may still have.
    left: Rc<Cell<u64>>,
}

impl Read for BoundedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left.get()).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 && !buffer.is_empty() {
            return Err(io::Error::other(format!("one of its rows has more than {} KiB", ROW_MAX >> 10)));
        }
        let read = self.inner.read(&mut buffer[..most])?;
        self.left.set(self.left.get() - read as u64);
        Ok(read)
    }
}

/// Bytes that a value takes in a result.
fn length_of(value: &Value) -> usize {
    value.to_string().len() + 1
}

/// The first cells of a row, as far as there is room for them; the last may be a part.
fn cut(record: &csv::StringRecord, mut room: usize) -> Value {
    let mut cells: Vec<String> = Vec::new();
    for cell in record {
        let length = length_of(&cell.into());
        if length > room {
            // A character takes at most six bytes in JSON, and the quotes three with what stands behind them.
            cells.push(cell[..cell.floor_char_boundary(room.saturating_sub(3) / 6)].to_owned());
            break;
        }
        room -= length;
        cells.push(cell.to_owned());
    }
    cells.into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use serde_json::json;

    use super::*;

    fn read(text: &str, args: Value, limit: usize) -> Result<Value, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let ctx = ToolContext::new(file.path().into(), limit);
        run(&args, &ctx).map(|output| output.data).map_err(|error| error.text())
    }

    /// Rows are counted from the first below the names; quotes, line ends in cells and rows of other lengths are as they are.
    #[test]
    fn rows_are_read_from_where_it_is_asked() {
        let text = "name,note\na,\"x, \"\"y\"\"\nz\"\nb\nc,1,2\n";
        let all = read(text, json!({}), 10_000).unwrap();
        assert_eq!(all["columns"], json!(["name", "note"]));
        assert_eq!(all["rows"], json!([["a", "x, \"y\"\nz"], ["b"], ["c", "1", "2"]]));
        assert!(all.get("next_row").is_none(), "{all}");
        let some = read(text, json!({ "start_row": 2, "max_rows": 1 }), 10_000).unwrap();
        assert_eq!((&some["rows"], &some["next_row"]), (&json!([["b"]]), &json!(3)));
        let past = read(text, json!({ "start_row": 9 }), 10_000).unwrap();
        assert_eq!((&past["rows"], &past["start_row"]), (&json!([]), &json!(9)));
        assert_eq!(read("a;b\n1;2\n", json!({ "delimiter": ";" }), 100).unwrap()["rows"], json!([["1", "2"]]));
    }

    /// A result ends between two rows and says where to go on; a file that is no text is an error.
    #[test]
    fn what_is_too_long_is_cut_between_rows() {
        let text = format!("n\n{}", "abcdefgh\n".repeat(50));
        let cut = read(&text, json!({}), 60).unwrap();
        assert_eq!((cut["head"].as_array().unwrap().len(), &cut["next_row"]), (4, &json!(5)), "{cut}");
        assert!(cut.get("rows").is_none());
        assert!(read("n\n\u{0}", json!({}), 60).is_ok(), "the control");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"n\n\xff\xfe\n").unwrap();
        let error = run(&json!({}), &ToolContext::new(file.path().into(), 60)).unwrap_err();
        assert!(error.text().contains("is not text"), "{}", error.text());
    }

    /// D11: a row or a first line that is too long is shown in part, or is an error; neither makes a longer result.
    #[test]
    fn d11_a_result_is_bounded_whatever_a_row_is() {
        let long = read(&format!("n,m\n1,{}\n2,b\n", "é".repeat(5000)), json!({}), 1000).unwrap();
        assert!(long.to_string().len() < 1300 && long["head"][0][1].as_str().unwrap().starts_with("éé"), "{long}");
        assert_eq!(long["next_row"], 2, "what was cut is passed");
        let rest = read(&format!("n,m\n1,{}\n2,b\n", "é".repeat(5000)), json!({ "start_row": 2 }), 1000).unwrap();
        assert_eq!((&rest["rows"], rest.get("next_row")), (&json!([["2", "b"]]), None));
        let cells = read(&format!("n\n{}\n", ",".repeat(5000)), json!({}), 1000).unwrap();
        assert!(cells.to_string().len() < 1300 && cells.get("rows").is_none(), "{cells}");
        let header = read(&format!("{}\n1\n", "x".repeat(5000)), json!({}), 1000).unwrap_err();
        assert!(header.contains("its first line"), "{header}");
        for endless in [format!("n\n\"{}", "x".repeat(3 << 20)), ",".repeat(3 << 20)] {
            let error = read(&endless, json!({}), 1000).unwrap_err();
            assert!(error.contains("one of its rows has more than 1024 KiB"), "{error}");
        }
        let many =
            read(&format!("n\n{}", "0123456789\n".repeat(300_000)), json!({ "start_row": 300_000 }), 1000).unwrap();
        assert_eq!(many["rows"], json!([["0123456789"]]), "the bound is a row's, not a file's");
    }
}
