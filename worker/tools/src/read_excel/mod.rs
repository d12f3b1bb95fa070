//! `read_excel`: the sheets of a workbook, and what is in one of them (S4-7, X4-11).
//!
//! calamine reads the cells. It believes what a file says of itself, and a file may say anything, so each is looked at before
//! (`xlsx.rs`, `xls.rs`): how much it unpacks to, how far its cells reach, whether its chains of sectors end. There too is
//! found which rows and columns are hidden, of which calamine tells nothing. What calamine then still does not expect ends
//! this worker alone, within its limits of memory and time.
//!
//! The shape: `{path, format, sheets}` for a list, with the size of each sheet for `get_info`; for a sheet
//! `{path, sheet, index, start_row, end_row, total_rows, total_columns, hidden_rows, hidden_columns, content}`. In `content`
//! the first line names the columns, and each other line is a row: its number, then its cells, with a tab between them. A
//! tab, a line end or a backslash in a cell is written as `\t`, `\n`, `\\`. Rows without content have no line. Where there
//! are more rows than a result has room for, `content` is `head`, and `next_row` says where to go on.

mod sheet;
#[cfg(test)]
mod tests;
mod xls;
mod xlsx;

use callgate_policy::tool::Subject;
use callgate_policy::unit::ByteSize;
use std::io::Read as _;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use self::sheet::{FILE_MAX, Sheet, SheetContent};
use super::arguments::{flag, integer, text};
use super::message::shorten;
use super::workbook::{WorkbookError, WorkbookFault};
use super::{Contract, FileNeed, Needs, SyscallNeed, ToolContext, ToolError, ToolResult, name_path, read, results};
use crate::FileAct;

/// The arguments of `read_excel`.
pub const READ_EXCEL_SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "path": {
      "type": ["string", "object"], "minLength": 1,
      "properties": { "b64": { "type": "string", "minLength": 1 } }, "required": ["b64"], "additionalProperties": false,
      "description": "The workbook to read (.xlsx or .xls), absolute or relative to the workspace. A path that is not UTF-8 is `{\"b64\": \"…\"}`."
    },
    "action": {
      "enum": ["list_sheets", "read_sheet", "get_info"],
      "description": "`list_sheets` names the sheets, `get_info` says how large they are too, `read_sheet` returns the rows of one. Default: read_sheet."
    },
    "sheet": {
      "type": ["string", "integer"], "minLength": 1, "minimum": 0,
      "description": "The sheet to read, by its name or its index, counted from 0. Default: the first one that is not hidden."
    },
    "start_row": {
      "type": "integer", "minimum": 1,
      "description": "First row to return, counted from 1 as in the sheet. Default: 1."
    },
    "end_row": {
      "type": "integer", "minimum": 1,
      "description": "Last row to return, included. Default, and at most: 500 rows in all."
    },
    "show_hidden": {
      "type": "boolean", "default": false,
      "description": "Return hidden rows and columns too, marked [H]. Default: false."
    }
  },
  "required": ["path"],
  "additionalProperties": false
}"#;

/// Memory that the largest workbook takes that is read, bytes.
const MEMORY: ByteSize = ByteSize(2 << 30);
/// Time that it takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Contract of `read_excel`.
pub const CONTRACT: Contract = Contract {
    name: "read_excel",
    requires: &["fs.read"],
    description: "Read a spreadsheet (.xlsx or .xls). `read_sheet` returns `content`: a line with the names of the columns, \
        then a line for each row with its number and its cells, separated by tabs; formulas as their values, dates as \
        YYYY-MM-DD. Rows without content are left out, and so are hidden rows and columns, unless show_hidden is true: then \
        they are marked [H]. At most 500 rows are returned; a result that is too long is cut after a row: its first part is \
        `head` instead of `content`, and `next_row` is the start_row to go on from. `list_sheets` and `get_info` say which \
        sheets there are.",
    schema: READ_EXCEL_SCHEMA,
    output: results::READ_EXCEL,
    kind: SyscallNeed::Plain,
    run,
    files: Some(FileNeed::outside(Needs::Read, Subject::Read).bounded(MEMORY, TIMEOUT)),
};

/// The most rows that a call returns (S4-7).
pub const ROWS: u32 = 500;
/// The most sheets of which something is told.
const SHEETS_MAX: usize = 500;

/// Reads `ctx.path`.
///
/// # Errors
/// An argument that makes no sense, a file that is no workbook or a broken one, or a sheet that is not in it.
pub fn run(args: &Value, ctx: &ToolContext) -> Result<ToolResult, ToolError> {
    let of = |why: WorkbookError| ToolError::from(WorkbookFault { path: ctx.path.clone(), why });
    let action = ExcelAction::parse(args)?;
    let rows = rows(args)?;
    let show_hidden = flag(args, "show_hidden")?;
    let wanted = args.get("sheet").map(WantedSheet::parse).transpose()?;
    let mut book = OpenWorkbook::open(whole(ctx)?).map_err(of)?;
    let mut data = Map::new();
    name_path(&mut data, &ctx.path);
    match action {
        ExcelAction::List => {
            data.insert("format".to_owned(), book.format().into());
            book.list(&mut data);
            Ok(ToolResult::of(Value::Object(data), false))
        }
        ExcelAction::Info => {
            data.insert("format".to_owned(), book.format().into());
            book.info(wanted.as_ref(), &mut data).map_err(of)?;
            Ok(ToolResult::of(Value::Object(data), false))
        }
        ExcelAction::Read => {
            let index = book.find(wanted.as_ref()).map_err(of)?;
            let table = book.table(index, rows.clone()).map_err(of)?;
            let sheet = &book.sheets()[index];
            if *rows.start() > table.last_row.max(1) {
                let why = WorkbookError::StartPastEnd {
                    sheet: sheet.name.clone(),
                    start_row: *rows.start(),
                    total_rows: table.last_row,
                };
                return Err(of(why));
            }
            data.insert("sheet".to_owned(), sheet.name.as_str().into());
            data.insert("index".to_owned(), index.into());
            let shown = table.shown(show_hidden, ctx.limit);
            Ok(ToolResult::of(shown.told(&table, &rows, data), shown.next_row.is_some()))
        }
    }
}

/// The file, if it is not too long.
fn whole(ctx: &ToolContext) -> Result<Arc<[u8]>, ToolError> {
    let of = |why: WorkbookError| ToolError::from(WorkbookFault { path: ctx.path.clone(), why });
    let (file, stat) = read::open(&ctx.path, ctx.links)?;
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let mut bytes = Vec::new();
    if size <= FILE_MAX {
        let read = file.take(FILE_MAX + 1).read_to_end(&mut bytes);
        read.map_err(|source| ToolError::File { act: FileAct::Read, path: ctx.path.clone(), source })?;
    }
    match size.max(bytes.len() as u64) {
        size if size > FILE_MAX => Err(of(WorkbookError::TooLong { size, most: FILE_MAX })),
        _ => Ok(bytes.into()),
    }
}

/// Action of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExcelAction {
    List,
    Read,
    Info,
}

impl ExcelAction {
    fn parse(args: &Value) -> Result<Self, ToolError> {
        let wants = "list_sheets, read_sheet or get_info";
        match text(args, "action", wants)? {
            None | Some("read_sheet") => Ok(Self::Read),
            Some("list_sheets") => Ok(Self::List),
            Some("get_info") => Ok(Self::Info),
            Some(other) => Err(ToolError::Argument { name: "action", wants, found: shorten(&other.into()) }),
        }
    }
}

/// Which sheet a call names.
enum WantedSheet {
    Name(String),
    Index(usize),
}

impl WantedSheet {
    fn parse(value: &Value) -> Result<Self, ToolError> {
        let index = value.as_u64().and_then(|index| usize::try_from(index).ok());
        let name = value.as_str().map(|name| Self::Name(name.to_owned()));
        let wants = "the name of a sheet or its index";
        let found = || ToolError::Argument { name: "sheet", wants, found: shorten(value) };
        name.or(index.map(Self::Index)).ok_or_else(found)
    }
}

/// The rows that a call asks for, at most as many as it can have.
fn rows(args: &Value) -> Result<RangeInclusive<u32>, ToolError> {
    let wants = "the number of a row: a whole number of at least 1";
    let start = integer(args, "start_row", 1, wants)?.unwrap_or(1);
    let end = integer(args, "end_row", 1, wants)?;
    if let Some(end) = end.filter(|end| *end < start) {
        let found = format!("{end}, before start_row {start}");
        return Err(ToolError::Argument { name: "end_row", wants: "a row after start_row", found });
    }
    let start = u32::try_from(start).unwrap_or(u32::MAX);
    let last = start.saturating_add(ROWS - 1);
    let end = end.map_or(last, |end| u32::try_from(end).unwrap_or(u32::MAX).min(last));
    Ok(start..=end)
}

/// An open workbook.
enum OpenWorkbook {
    Xlsx(Box<xlsx::XlsxBook>),
    Xls(Box<xls::XlsBook>),
}

impl OpenWorkbook {
    /// Says by its first bytes what kind it is, whatever its name.
    fn open(bytes: Arc<[u8]>) -> Result<Self, WorkbookError> {
        match &bytes[..bytes.len().min(8)] {
            [b'P', b'K', ..] => Ok(Self::Xlsx(Box::new(xlsx::XlsxBook::open(bytes)?))),
            [0xd0, 0xcf, 0x11, 0xe0, ..] => Ok(Self::Xls(Box::new(xls::XlsBook::open(bytes)?))),
            [] => Err(WorkbookError::NoWorkbook { what: "it is empty" }),
            [b'<', ..] => Err(WorkbookError::NoWorkbook { what: "it is XML or HTML; read reads it" }),
            other if std::str::from_utf8(other).is_ok() => {
                Err(WorkbookError::NoWorkbook { what: "it looks like text, such as CSV; read reads it" })
            }
            _ => Err(WorkbookError::NoWorkbook { what: "it begins neither as .xlsx nor as .xls files do" }),
        }
    }

    fn format(&self) -> &'static str {
        match self {
            Self::Xlsx(_) => "xlsx",
            Self::Xls(_) => "xls",
        }
    }

    fn sheets(&self) -> &[Sheet] {
        match self {
            Self::Xlsx(book) => &book.sheets,
            Self::Xls(book) => &book.sheets,
        }
    }

    /// Content of a sheet: of these rows all cells, of the others where the last one is.
    fn table(&mut self, index: usize, rows: RangeInclusive<u32>) -> Result<SheetContent, WorkbookError> {
        match self {
            Self::Xlsx(book) => book.table(index, rows),
            Self::Xls(book) => book.table(index, rows),
        }
    }

    /// The index of the sheet that a call names. A name comes first: a sheet may be called `2`.
    fn find(&self, wanted: Option<&WantedSheet>) -> Result<usize, WorkbookError> {
        let sheets = self.sheets();
        let by_name = |name: &str| sheets.iter().position(|sheet| sheet.name == name);
        let found = match wanted {
            None => sheets.iter().position(|sheet| sheet.has_cells && !sheet.is_hidden).or(by_cells(sheets)),
            Some(WantedSheet::Index(index)) => Some(*index).filter(|index| *index < sheets.len()),
            Some(WantedSheet::Name(name)) => {
                let index = || name.trim().parse().ok().filter(|index: &usize| *index < sheets.len());
                by_name(name).or_else(index)
            }
        };
        let Some(index) = found else {
            let sheet = match wanted {
                None => "with cells".to_owned(),
                Some(WantedSheet::Index(index)) => index.to_string(),
                Some(WantedSheet::Name(name)) => format!("{name:?}"),
            };
            return Err(WorkbookError::NoSheet { sheet, known: self.known() });
        };
        let sheet = &sheets[index];
        if !sheet.has_cells {
            return Err(WorkbookError::NoCells { sheet: sheet.name.clone() });
        }
        if by_name(&sheet.name) != Some(index) {
            return Err(WorkbookError::SameName { sheet: sheet.name.clone() });
        }
        Ok(index)
    }

    /// The names there are, as an error has room for them.
    fn known(&self) -> String {
        const MOST: usize = 50;
        let names: Vec<String> =
            self.sheets().iter().take(MOST).map(|sheet| shorten(&sheet.name.as_str().into())).collect();
        let more = if self.sheets().len() > MOST { ", …" } else { "" };
        format!("{}{more}", names.join(", "))
    }

    fn list(&self, data: &mut Map<String, Value>) {
        let (mut list, mut lines) = (Vec::new(), Vec::new());
        for (index, sheet) in self.sheets().iter().enumerate().take(SHEETS_MAX) {
            list.push(Value::Object(sheet.told(index)));
            lines.push(sheet.line(index));
        }
        self.tell(list, lines, data);
    }

    /// Adds the size of each sheet, or of one.
    fn info(&mut self, wanted: Option<&WantedSheet>, data: &mut Map<String, Value>) -> Result<(), WorkbookError> {
        let indices = match wanted {
            Some(_) => vec![self.find(wanted)?],
            None => (0..self.sheets().len().min(SHEETS_MAX)).collect(),
        };
        let (mut list, mut lines) = (Vec::new(), Vec::new());
        for index in indices {
            let sheet = self.sheets()[index].clone();
            let (mut entry, mut line) = (sheet.told(index), sheet.line(index));
            if sheet.has_cells {
                let nothing = RangeInclusive::new(1, 0);
                let table = self.table(index, nothing)?;
                let (rows, columns) = (table.last_row, table.last_column);
                let (hidden_rows, hidden_columns) =
                    (table.hidden_rows.within(rows), table.hidden_columns.within(columns));
                let numbers = [("rows", rows), ("columns", columns), ("hidden_rows", hidden_rows)];
                entry.extend(numbers.map(|(name, number)| (name.to_owned(), number.into())));
                entry.insert("hidden_columns".to_owned(), hidden_columns.into());
                line.push_str(&format!("\t{rows} rows\t{columns} columns"));
            }
            list.push(Value::Object(entry));
            lines.push(line);
        }
        self.tell(list, lines, data);
        Ok(())
    }

    fn tell(&self, list: Vec<Value>, lines: Vec<String>, data: &mut Map<String, Value>) {
        let mut content = lines.join("\n");
        content.push('\n');
        if self.sheets().len() > SHEETS_MAX {
            content.push_str(&format!("… {} sheets in all\n", self.sheets().len()));
        }
        data.insert("sheets".to_owned(), list.into());
        data.insert("total_sheets".to_owned(), self.sheets().len().into());
        data.insert("content".to_owned(), content.into());
    }
}

fn by_cells(sheets: &[Sheet]) -> Option<usize> {
    sheets.iter().position(|sheet| sheet.has_cells)
}
