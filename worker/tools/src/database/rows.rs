//! Result of a query: structured rows with a table beside them (S4-18), or a CSV file.

use std::borrow::Cow;
use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use unicode_width::UnicodeWidthStr as _;

/// Rows of the table; the structured rows may be more.
const TABLE_ROWS: usize = 100;
/// Columns of the terminal that a cell of the table takes at most (X4-14).
const CELL_WIDTH: usize = 50;
/// Bytes of a cell in the structured rows.
const CELL_MAX: usize = 8 * 1024;

/// A column of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    /// As the database calls it. SQLite has none for what is worked out.
    pub(super) kind: Option<String>,
}

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    Null,
    Integer(i64),
    Real(f64),
    /// Text, and whatever a database writes as text so that nothing is lost: decimals, dates, JSON.
    Text(String),
    Bytes(Vec<u8>),
}

impl Cell {
    /// Text, or its bytes if it is not UTF-8.
    pub(super) fn of_text(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Bytes(bytes.to_owned()),
        }
    }

    fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Null => "NULL".into(),
            Self::Integer(number) => number.to_string().into(),
            Self::Real(number) => number.to_string().into(),
            Self::Text(text) => text.into(),
            Self::Bytes(bytes) => hexadecimal(bytes, CELL_WIDTH).into(),
        }
    }

    /// Its field in a CSV file: nothing for NULL, hexadecimal digits for bytes.
    fn field(&self) -> Cow<'_, str> {
        match self {
            Self::Null => "".into(),
            Self::Bytes(bytes) => hexadecimal(bytes, bytes.len()).into(),
            Self::Integer(_) | Self::Real(_) | Self::Text(_) => self.text(),
        }
    }

    /// Bytes that it takes in a result, at least.
    fn size(&self) -> usize {
        match self {
            Self::Null | Self::Integer(_) | Self::Real(_) => 8,
            Self::Text(text) => text.len().min(CELL_MAX),
            Self::Bytes(bytes) => bytes.len().min(CELL_MAX) * 4 / 3,
        }
    }

    /// These rows with no more than a result shows of it, and whether that is less.
    fn shortened(self) -> (Self, bool) {
        match self {
            Self::Text(mut text) if text.len() > CELL_MAX => {
                text.truncate(text.floor_char_boundary(CELL_MAX));
                text.shrink_to_fit();
                (Self::Text(text), true)
            }
            Self::Bytes(mut bytes) if bytes.len() > CELL_MAX => {
                bytes.truncate(CELL_MAX);
                bytes.shrink_to_fit();
                (Self::Bytes(bytes), true)
            }
            whole @ (Self::Null | Self::Integer(_) | Self::Real(_) | Self::Text(_) | Self::Bytes(_)) => (whole, false),
        }
    }

    fn into_json(self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Integer(number) => number.into(),
            // JSON has no infinity and no NaN.
            Self::Real(number) => {
                serde_json::Number::from_f64(number).map_or_else(|| number.to_string().into(), Value::from)
            }
            Self::Text(text) => text.into(),
            Self::Bytes(bytes) => json!({ "b64": STANDARD.encode(bytes) }),
        }
    }
}

fn hexadecimal(bytes: &[u8], most: usize) -> String {
    let digits: String = bytes.iter().take(most).map(|byte| format!("{byte:02x}")).collect();
    format!("0x{digits}")
}

/// Wish of whoever reads a result: another row, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowWish {
    Another,
    Enough,
}

/// Takes a result as it comes.
pub(super) trait Sink {
    /// Before the first row.
    fn columns(&mut self, columns: Vec<Column>) -> std::io::Result<()>;

    /// One row.
    fn row(&mut self, row: Vec<Cell>) -> std::io::Result<RowWish>;
}

/// The first rows of a result, in memory. One more is asked for than is kept: so it is known whether there are more.
#[derive(Debug)]
pub(super) struct ResultTable {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    most: usize,
    /// Bytes.
    room: usize,
    has_more: bool,
    is_cut: bool,
    cut_cells: u64,
}

impl ResultTable {
    /// Up to so many rows, and bytes.
    pub(super) fn new(most: usize, room: usize) -> Self {
        let (columns, rows) = (Vec::new(), Vec::new());
        Self { columns, rows, most, room, has_more: false, is_cut: false, cut_cells: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The result's fields, and whether it was cut for its size.
    pub(super) fn into_data(self, limit: usize) -> (Map<String, Value>, bool) {
        let mut content = self.drawn();
        let mut is_cut = self.is_cut;
        if content.len() > limit / 2 {
            content.truncate(content.floor_char_boundary(limit / 2));
            content.push_str("\n... (the table is cut)");
            is_cut = true;
        }
        let mut data = Map::new();
        let columns = self.columns.into_iter().map(|column| json!({ "name": column.name, "type": column.kind }));
        data.insert("columns".to_owned(), columns.collect());
        data.insert("row_count".to_owned(), self.rows.len().into());
        data.insert("has_more".to_owned(), self.has_more.into());
        if self.cut_cells > 0 {
            data.insert("cut_cells".to_owned(), self.cut_cells.into());
        }
        let rows = self.rows.into_iter().map(|row| row.into_iter().map(Cell::into_json).collect::<Value>());
        data.insert("rows".to_owned(), rows.collect());
        data.insert(if is_cut { crate::HEAD } else { "content" }.to_owned(), content.into());
        (data, is_cut)
    }

    /// The table in ASCII characters, but for what the cells hold.
    fn drawn(&self) -> String {
        if self.columns.is_empty() {
            return "(no columns)".to_owned();
        }
        let head = self.columns.iter().map(|column| fitted(&column.name)).collect();
        let shown = &self.rows[..self.rows.len().min(TABLE_ROWS)];
        let lines: Vec<Vec<String>> = std::iter::once(head)
            .chain(shown.iter().map(|row| row.iter().map(|cell| fitted(&cell.text())).collect()))
            .collect();
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|at| lines.iter().filter_map(|line| line.get(at)).map(|cell| cell.width()).max().unwrap_or_default())
            .collect();
        let rule: String = widths.iter().map(|width| format!("+{}", "-".repeat(width + 2))).collect::<String>() + "+\n";
        let line = |cells: &Vec<String>| {
            let padded = cells
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("| {cell}{} ", " ".repeat(width.saturating_sub(cell.width()))));
            padded.collect::<String>() + "|\n"
        };
        let mut drawn = rule.clone();
        for (at, cells) in lines.iter().enumerate() {
            drawn.push_str(&line(cells));
            if at == 0 {
                drawn.push_str(&rule);
            }
        }
        if !shown.is_empty() {
            drawn.push_str(&rule);
        }
        drawn.push_str(&self.counted(shown.len()));
        drawn
    }

    /// The last line (X4-14).
    fn counted(&self, shown: usize) -> String {
        let further = self.rows.len() - shown;
        match (further, self.has_more) {
            (0, false) if shown == 1 => "(1 row)".to_owned(),
            (0, false) => format!("({shown} rows)"),
            (0, true) => "... (more rows)".to_owned(),
            (further, false) => format!("... ({further} more rows)"),
            (further, true) => format!("... ({further} more rows, and more than those)"),
        }
    }
}

impl Sink for ResultTable {
    fn columns(&mut self, columns: Vec<Column>) -> std::io::Result<()> {
        self.columns = columns;
        Ok(())
    }

    fn row(&mut self, row: Vec<Cell>) -> std::io::Result<RowWish> {
        if self.rows.len() == self.most {
            self.has_more = true;
            return Ok(RowWish::Enough);
        }
        let size: usize = row.iter().map(|cell| cell.size() + 8).sum();
        if size > self.room {
            (self.has_more, self.is_cut) = (true, true);
            return Ok(RowWish::Enough);
        }
        self.room -= size;
        let cells = row.into_iter().map(|cell| {
            let (cell, is_cut) = cell.shortened();
            self.cut_cells += u64::from(is_cut);
            cell
        });
        self.rows.push(cells.collect());
        Ok(RowWish::Another)
    }
}

/// A cell of the table: in one line, and no wider than it may be.
fn fitted(text: &str) -> String {
    let mut fitted = String::new();
    let mut width = 0;
    for c in text.chars() {
        let piece: Cow<'_, str> = match c {
            '\n' => "\\n".into(),
            '\t' => "\\t".into(),
            '\r' => "\\r".into(),
            c if c.is_control() => c.escape_unicode().to_string().into(),
            c => c.to_string().into(),
        };
        if width + piece.width() > CELL_WIDTH {
            while fitted.width() > CELL_WIDTH - 3 {
                fitted.pop();
            }
            fitted.push_str("...");
            break;
        }
        width += piece.width();
        fitted.push_str(&piece);
    }
    fitted
}

/// A CSV file, as it is written (S4-17).
pub(super) struct Csv<W: Write> {
    writer: csv::Writer<W>,
    most: u64,
    pub(super) rows: u64,
    pub(super) has_more: bool,
}

impl<W: Write> Csv<W> {
    pub(super) fn new(file: W, most: u64) -> Self {
        Self {
            writer: csv::WriterBuilder::new().buffer_capacity(64 * 1024).from_writer(file),
            most,
            rows: 0,
            has_more: false,
        }
    }

    pub(super) fn finish(&mut self) -> std::io::Result<()> {
        self.writer.flush()
    }
}

impl<W: Write> Sink for Csv<W> {
    fn columns(&mut self, columns: Vec<Column>) -> std::io::Result<()> {
        let names = columns.iter().map(|column| column.name.as_str());
        self.writer.write_record(names).map_err(io_error)
    }

    fn row(&mut self, row: Vec<Cell>) -> std::io::Result<RowWish> {
        if self.rows == self.most {
            self.has_more = true;
            return Ok(RowWish::Enough);
        }
        self.writer.write_record(row.iter().map(|cell| cell.field().into_owned())).map_err(io_error)?;
        self.rows += 1;
        Ok(RowWish::Another)
    }
}

/// With the kernel's own number, if there is one.
fn io_error(error: csv::Error) -> std::io::Error {
    let kind = error.into_kind();
    let text = format!("{kind:?}");
    if let csv::ErrorKind::Io(error) = kind { error } else { std::io::Error::other(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(most: usize, rows: Vec<Vec<Cell>>) -> ResultTable {
        let mut table = ResultTable::new(most, 100_000);
        let columns = ["id", "name"].map(|name| Column { name: name.to_owned(), kind: None });
        table.columns(columns.into()).expect("memory");
        for row in rows {
            if table.row(row).expect("memory") == RowWish::Enough {
                break;
            }
        }
        table
    }

    fn row(id: i64, name: Cell) -> Vec<Cell> {
        vec![Cell::Integer(id), name]
    }

    #[test]
    fn s4_18_a_table_shows_null_and_cuts_cells() {
        let rows = vec![row(1, Cell::Null), row(20, Cell::Text("a\nb".to_owned())), row(3, Cell::Text("ü".repeat(60)))];
        let (data, is_cut) = table(100, rows).into_data(100_000);
        let expected = format!(
            "+----+{}+\n| id | name{} |\n+----+{}+\n| 1  | NULL{} |\n| 20 | a\\nb{} |\n| 3  | {}... |\n+----+{}+\n(3 rows)",
            "-".repeat(52),
            " ".repeat(46),
            "-".repeat(52),
            " ".repeat(46),
            " ".repeat(46),
            "ü".repeat(47),
            "-".repeat(52)
        );
        assert_eq!(data["content"], expected);
        assert_eq!(data["rows"], json!([[1, null], [20, "a\nb"], [3, "ü".repeat(60)]]));
        assert!(!is_cut);
    }

    #[test]
    fn x4_14_rows_that_are_not_shown_are_counted() {
        let many = |n| (0..n).map(|id| row(id, Cell::Null)).collect::<Vec<_>>();
        let last = |most, n| {
            let (data, _) = table(most, many(n)).into_data(100_000);
            let content = data["content"].as_str().expect("a table").to_owned();
            (content.lines().last().expect("a line").to_owned(), data["row_count"].clone(), data["has_more"].clone())
        };
        assert_eq!(last(100, 100), ("(100 rows)".to_owned(), json!(100), json!(false)));
        assert_eq!(last(100, 101), ("... (more rows)".to_owned(), json!(100), json!(true)));
        assert_eq!(last(500, 250), ("... (150 more rows)".to_owned(), json!(250), json!(false)));
        assert_eq!(last(150, 250), ("... (50 more rows, and more than those)".to_owned(), json!(150), json!(true)));
    }

    #[test]
    fn a_result_has_an_end_whatever_the_cells_hold() {
        let long = || row(1, Cell::Text("x".repeat(1 << 20)));
        let (data, is_cut) = table(1000, (0..1000).map(|_| long()).collect()).into_data(100_000);
        assert!(is_cut && data["has_more"] == true && data["cut_cells"] == 12, "{}", data["cut_cells"]);
        assert!(serde_json::to_string(&data).expect("JSON").len() < 200_000);
        assert!(data.contains_key("head") && !data.contains_key("content"));
    }

    #[test]
    fn a_csv_file_quotes_what_has_to_be() {
        let mut bytes = Vec::new();
        let mut csv = Csv::new(&mut bytes, 2);
        csv.columns(vec![Column { name: "a,b".to_owned(), kind: None }, Column { name: "c".to_owned(), kind: None }])
            .expect("memory");
        for cell in [Cell::Text("x\n\"y\"".to_owned()), Cell::Bytes(vec![0, 255]), Cell::Null] {
            csv.row(vec![Cell::Null, cell]).expect("memory");
        }
        csv.finish().expect("memory");
        assert!(csv.has_more);
        drop(csv);
        assert_eq!(String::from_utf8(bytes).expect("UTF-8"), "\"a,b\",c\n,\"x\n\"\"y\"\"\"\n,0x00ff\n");
    }
}
