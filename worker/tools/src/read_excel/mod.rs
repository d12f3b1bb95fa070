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

#[cfg(test)]
mod tests;
mod xls;
mod xlsx;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Cursor, Read as _};
use std::ops::RangeInclusive;
use std::sync::Arc;

use calamine::{DataType, SheetType, SheetVisible};
use serde_json::{Map, Value, json};

use super::workbook::WorkbookError;
use super::{Context, Contract, HEAD, Kind, Output, ToolError, flag, integer, name_path, read, results, shorten, text};

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
    kind: Kind::Plain,
};

/// The most rows that a call returns (S4-7).
pub const ROWS: u32 = 500;
/// The longest file that is read, bytes.
const FILE_MAX: u64 = 128 * 1024 * 1024;
/// The most sheets of which something is told.
const SHEETS_MAX: usize = 500;
/// The most bytes of one cell that are shown: a few lines of text.
const CELL_MAX: usize = 4096;
/// Mark of what is hidden (X4-11).
const HIDDEN: &str = "[H]";

/// Reads `ctx.path`.
///
/// # Errors
/// An argument that makes no sense, a file that is no workbook or a broken one, or a sheet that is not in it.
pub fn run(args: &Value, ctx: &Context) -> Result<Output, ToolError> {
    let of = |why: WorkbookError| ToolError::Workbook { path: ctx.path.clone(), why };
    let action = Action::parse(args)?;
    let rows = rows(args)?;
    let show_hidden = flag(args, "show_hidden")?;
    let wanted = args.get("sheet").map(Wanted::parse).transpose()?;
    let mut book = Book::open(whole(ctx)?).map_err(of)?;
    let mut data = Map::new();
    name_path(&mut data, &ctx.path);
    match action {
        Action::List => {
            data.insert("format".to_owned(), book.format().into());
            book.list(&mut data);
            Ok(Output::of(Value::Object(data), false))
        }
        Action::Info => {
            data.insert("format".to_owned(), book.format().into());
            book.info(wanted.as_ref(), &mut data).map_err(of)?;
            Ok(Output::of(Value::Object(data), false))
        }
        Action::Read => {
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
            Ok(Output::of(shown.told(&table, &rows, data), shown.next_row.is_some()))
        }
    }
}

/// A workbook as it was at one moment, so that what is looked at before is what is read after.
type Bytes = Cursor<Arc<[u8]>>;

/// The file, if it is not too long.
fn whole(ctx: &Context) -> Result<Arc<[u8]>, ToolError> {
    let of = |why: WorkbookError| ToolError::Workbook { path: ctx.path.clone(), why };
    let (file, stat) = read::open(&ctx.path, ctx.links)?;
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let mut bytes = Vec::new();
    if size <= FILE_MAX {
        let read = file.take(FILE_MAX + 1).read_to_end(&mut bytes);
        read.map_err(|source| ToolError::Read { path: ctx.path.clone(), source })?;
    }
    match size.max(bytes.len() as u64) {
        size if size > FILE_MAX => Err(of(WorkbookError::TooLong { size, most: FILE_MAX })),
        _ => Ok(bytes.into()),
    }
}

/// Action of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    List,
    Read,
    Info,
}

impl Action {
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
enum Wanted {
    Name(String),
    Index(usize),
}

impl Wanted {
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

/// A sheet, as the workbook lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sheet {
    name: String,
    is_hidden: bool,
    /// It has cells: it is no chart and no dialog.
    has_cells: bool,
}

impl Sheet {
    fn of(sheet: &calamine::Sheet) -> Self {
        let is_hidden = match sheet.visible {
            SheetVisible::Visible => false,
            SheetVisible::Hidden | SheetVisible::VeryHidden => true,
        };
        let has_cells = match sheet.typ {
            SheetType::WorkSheet | SheetType::MacroSheet => true,
            SheetType::DialogSheet | SheetType::ChartSheet | SheetType::Vba => false,
        };
        Self { name: sheet.name.clone(), is_hidden, has_cells }
    }

    fn told(&self, index: usize) -> Map<String, Value> {
        let mut entry = Map::new();
        entry.insert("index".to_owned(), index.into());
        entry.insert("name".to_owned(), self.name.as_str().into());
        entry.insert("hidden".to_owned(), self.is_hidden.into());
        if !self.has_cells {
            entry.insert("kind".to_owned(), "chart".into());
        }
        entry
    }

    fn line(&self, index: usize) -> String {
        let mark = if self.is_hidden { " [H]" } else { "" };
        format!("{index}\t{}{mark}", plain(&self.name))
    }
}

/// An open workbook.
enum Book {
    Xlsx(Box<xlsx::Book>),
    Xls(Box<xls::Book>),
}

impl Book {
    /// Says by its first bytes what kind it is, whatever its name.
    fn open(bytes: Arc<[u8]>) -> Result<Self, WorkbookError> {
        match &bytes[..bytes.len().min(8)] {
            [b'P', b'K', ..] => Ok(Self::Xlsx(Box::new(xlsx::Book::open(bytes)?))),
            [0xd0, 0xcf, 0x11, 0xe0, ..] => Ok(Self::Xls(Box::new(xls::Book::open(bytes)?))),
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
    fn table(&mut self, index: usize, rows: RangeInclusive<u32>) -> Result<Table, WorkbookError> {
        match self {
            Self::Xlsx(book) => book.table(index, rows),
            Self::Xls(book) => book.table(index, rows),
        }
    }

    /// The index of the sheet that a call names. A name comes first: a sheet may be called `2`.
    fn find(&self, wanted: Option<&Wanted>) -> Result<usize, WorkbookError> {
        let sheets = self.sheets();
        let by_name = |name: &str| sheets.iter().position(|sheet| sheet.name == name);
        let found = match wanted {
            None => sheets.iter().position(|sheet| sheet.has_cells && !sheet.is_hidden).or(by_cells(sheets)),
            Some(Wanted::Index(index)) => Some(*index).filter(|index| *index < sheets.len()),
            Some(Wanted::Name(name)) => {
                let index = || name.trim().parse().ok().filter(|index: &usize| *index < sheets.len());
                by_name(name).or_else(index)
            }
        };
        let Some(index) = found else {
            let sheet = match wanted {
                None => "with cells".to_owned(),
                Some(Wanted::Index(index)) => index.to_string(),
                Some(Wanted::Name(name)) => format!("{name:?}"),
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
    fn info(&mut self, wanted: Option<&Wanted>, data: &mut Map<String, Value>) -> Result<(), WorkbookError> {
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

/// Numbers of rows or columns, counted from 1: spans in order, with others between them.
#[derive(Debug, Default)]
struct Numbers(Vec<(u32, u32)>);

impl Numbers {
    /// Those of spans that may come in any order and overlap.
    fn of(mut spans: Vec<(u32, u32)>) -> Self {
        spans.retain(|(from, to)| from <= to);
        spans.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::new();
        for (from, to) in spans {
            match merged.last_mut() {
                Some((_, last)) if from <= last.saturating_add(1) => *last = to.max(*last),
                Some(_) | None => merged.push((from, to)),
            }
        }
        Self(merged)
    }

    fn contains(&self, number: u32) -> bool {
        let after = self.0.partition_point(|(from, _)| *from <= number);
        after.checked_sub(1).is_some_and(|at| number <= self.0[at].1)
    }

    /// How many there are up to `last`.
    fn within(&self, last: u32) -> u32 {
        let in_span = |(from, to): &(u32, u32)| (*to).min(last).saturating_add(1).saturating_sub(*from);
        self.0.iter().map(in_span).fold(0, u32::saturating_add)
    }
}

/// Content of a sheet.
#[derive(Debug, Default)]
struct Table {
    /// The cells of the rows that were asked for, by row and column, counted from 1.
    cells: BTreeMap<u32, BTreeMap<u32, String>>,
    /// The bytes that they take.
    size: usize,
    /// The row that they end with, if there was no room for more.
    cut_in: Option<u32>,
    last_row: u32,
    last_column: u32,
    hidden_rows: Numbers,
    hidden_columns: Numbers,
}

impl Table {
    /// The most bytes of cells that are held.
    const SIZE_MAX: usize = 16 * 1024 * 1024;
    /// Each cell takes about this much besides its text.
    const CELL: usize = 64;

    /// Notes a cell that has content; row and column are counted from 0.
    fn add(&mut self, (row, column): (u32, u32), cell: &impl DataType, rows: &RangeInclusive<u32>) {
        if cell.is_empty() {
            return;
        }
        let (row, column) = (row.saturating_add(1), column.saturating_add(1));
        self.last_row = self.last_row.max(row);
        self.last_column = self.last_column.max(column);
        if !rows.contains(&row) || self.cut_in.is_some_and(|cut| row >= cut) {
            return;
        }
        let text = text_of(cell);
        self.size += text.len() + Self::CELL;
        self.cells.entry(row).or_default().insert(column, text);
        // The last rows go first: what is shown are the first ones.
        while self.size > Self::SIZE_MAX {
            let Some((row, cells)) = self.cells.pop_last() else { return };
            self.size -= cells.values().map(|text| text.len() + Self::CELL).sum::<usize>();
            self.cut_in = Some(row);
        }
    }

    /// The part of it that is shown: at most `limit` bytes, or one row.
    fn shown(&self, show_hidden: bool, limit: usize) -> Shown {
        let is_shown = |hidden: &Numbers, number: u32| show_hidden || !hidden.contains(number);
        let columns: BTreeSet<u32> = self.cells.values().flat_map(BTreeMap::keys).copied().collect();
        let columns: Vec<u32> = columns.into_iter().filter(|column| is_shown(&self.hidden_columns, *column)).collect();
        let mut shown = Shown { text: self.header(&columns), end_row: None, next_row: self.cut_in };
        for (&row, cells) in self.cells.iter().filter(|(row, _)| is_shown(&self.hidden_rows, **row)) {
            let mut line = self.line(row, cells, &columns);
            if line.len() > limit {
                line.truncate(line.floor_char_boundary(limit));
                line.push_str("…\n");
            }
            if shown.end_row.is_some() && shown.text.len() + line.len() > limit {
                shown.next_row = Some(row);
                return shown;
            }
            shown.text.push_str(&line);
            shown.end_row = Some(row);
        }
        shown
    }

    fn header(&self, columns: &[u32]) -> String {
        let mut line = "row".to_owned();
        for column in columns {
            line.push('\t');
            line.push_str(&letters(*column));
            if self.hidden_columns.contains(*column) {
                line.push_str(HIDDEN);
            }
        }
        line.push('\n');
        line
    }

    fn line(&self, row: u32, cells: &BTreeMap<u32, String>, columns: &[u32]) -> String {
        let mut line = row.to_string();
        if self.hidden_rows.contains(row) {
            line.push_str(HIDDEN);
        }
        for column in columns {
            line.push('\t');
            line.push_str(cells.get(column).map_or("", String::as_str));
        }
        line.push('\n');
        line
    }
}

/// The part of a sheet that a result shows.
struct Shown {
    text: String,
    /// The last row that is in it.
    end_row: Option<u32>,
    /// Where to go on, if it was cut.
    next_row: Option<u32>,
}

impl Shown {
    fn told(&self, table: &Table, rows: &RangeInclusive<u32>, mut data: Map<String, Value>) -> Value {
        let content = if self.next_row.is_some() { HEAD } else { "content" };
        data.insert(content.to_owned(), self.text.as_str().into());
        data.insert("start_row".to_owned(), (*rows.start()).into());
        let end = self.next_row.map_or((*rows.end()).min(table.last_row), |next| next - 1);
        data.insert("end_row".to_owned(), end.into());
        data.insert("total_rows".to_owned(), table.last_row.into());
        data.insert("total_columns".to_owned(), table.last_column.into());
        data.insert("hidden_rows".to_owned(), table.hidden_rows.within(table.last_row).into());
        data.insert("hidden_columns".to_owned(), table.hidden_columns.within(table.last_column).into());
        // Also of what was not asked for: the next 500 rows.
        let next = self.next_row.or_else(|| (end < table.last_row).then_some(end + 1));
        if let Some(next) = next {
            data.insert("next_row".to_owned(), json!(next));
        }
        Value::Object(data)
    }
}

/// The name of a column: A to Z, AA and so on.
fn letters(mut column: u32) -> String {
    let mut name = Vec::new();
    while column > 0 {
        column -= 1;
        name.push(char::from(b'A' + u8::try_from(column % 26).unwrap_or(0)));
        column /= 26;
    }
    name.into_iter().rev().collect()
}

/// A cell as it is shown.
fn text_of(cell: &impl DataType) -> String {
    if let Some(time) = cell.get_datetime() {
        return time_of(&time);
    }
    let text = cell.get_string().or(cell.get_datetime_iso()).or(cell.get_duration_iso());
    let number = || cell.get_float().map(number_of).or(cell.get_int().map(|number| number.to_string()));
    let other = || cell.get_bool().map(|yes| if yes { "TRUE" } else { "FALSE" }.to_owned());
    let error = || cell.get_error().map(ToString::to_string);
    text.map(plain).or_else(number).or_else(other).or_else(error).unwrap_or_default()
}

/// As a sheet would show it: without an exponent, unless that would be long.
fn number_of(number: f64) -> String {
    let size = number.abs();
    if size != 0.0 && !(1e-9..1e15).contains(&size) { format!("{number:e}") } else { number.to_string() }
}

/// A date, a time, or both.
fn time_of(time: &calamine::ExcelDateTime) -> String {
    let value = time.as_f64();
    if time.is_duration() {
        // Seconds of a duration that is none are shown as they are.
        let seconds = (value * 86400.0).round();
        if !(0.0..1e12).contains(&seconds) {
            return number_of(value);
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 10^12, and whole")]
        let seconds = seconds as u64;
        return format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    }
    let (year, month, day, hour, minute, second, _) = time.to_ymd_hms_milli();
    match (value < 1.0, value.fract() == 0.0) {
        (true, false) => format!("{hour:02}:{minute:02}:{second:02}"),
        (_, true) => format!("{year:04}-{month:02}-{day:02}"),
        (false, false) => format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}"),
    }
}

/// Text that stays in its cell: what would end it is escaped, and what is too long is cut.
fn plain(text: &str) -> String {
    let cut = text.len() > CELL_MAX;
    let text = &text[..text.floor_char_boundary(CELL_MAX)];
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => plain.push_str("\\t"),
            '\n' => plain.push_str("\\n"),
            '\r' => plain.push_str("\\r"),
            '\\' => plain.push_str("\\\\"),
            c if c.is_control() => plain.extend(c.escape_unicode()),
            c => plain.push(c),
        }
    }
    if cut {
        plain.push('…');
    }
    plain
}
