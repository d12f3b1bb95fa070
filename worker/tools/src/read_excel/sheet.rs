//! The sheets of a workbook: their cells, and how a result shows them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::ops::RangeInclusive;
use std::sync::Arc;

use calamine::{DataType, SheetType, SheetVisible};
use serde_json::{Map, Value, json};

use crate::HEAD;

/// The longest file that is read, bytes.
pub(super) const FILE_MAX: u64 = 128 * 1024 * 1024;
/// The most bytes of one cell that are shown: a few lines of text.
const CELL_MAX: usize = 4096;
/// Mark of what is hidden (X4-11).
const HIDDEN: &str = "[H]";

/// A workbook as it was at one moment, so that what is looked at before is what is read after.
pub(super) type Bytes = Cursor<Arc<[u8]>>;

/// A sheet, as the workbook lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sheet {
    pub(super) name: String,
    pub(super) is_hidden: bool,
    /// It has cells: it is no chart and no dialog.
    pub(super) has_cells: bool,
}

impl Sheet {
    pub(super) fn of(sheet: &calamine::Sheet) -> Self {
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

    pub(super) fn told(&self, index: usize) -> Map<String, Value> {
        let mut entry = Map::new();
        entry.insert("index".to_owned(), index.into());
        entry.insert("name".to_owned(), self.name.as_str().into());
        entry.insert("hidden".to_owned(), self.is_hidden.into());
        if !self.has_cells {
            entry.insert("kind".to_owned(), "chart".into());
        }
        entry
    }

    pub(super) fn line(&self, index: usize) -> String {
        let mark = if self.is_hidden { " [H]" } else { "" };
        format!("{index}\t{}{mark}", plain(&self.name))
    }
}

/// Numbers of rows or columns, counted from 1: spans in order, with others between them.
#[derive(Debug, Default)]
pub(super) struct Numbers(Vec<(u32, u32)>);

impl Numbers {
    /// Those of spans that may come in any order and overlap.
    pub(super) fn of(mut spans: Vec<(u32, u32)>) -> Self {
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
    pub(super) fn within(&self, last: u32) -> u32 {
        let in_span = |(from, to): &(u32, u32)| (*to).min(last).saturating_add(1).saturating_sub(*from);
        self.0.iter().map(in_span).fold(0, u32::saturating_add)
    }
}

/// Content of a sheet.
#[derive(Debug, Default)]
pub(super) struct SheetContent {
    /// The cells of the rows that were asked for, by row and column, counted from 1.
    cells: BTreeMap<u32, BTreeMap<u32, String>>,
    /// The bytes that they take.
    size: usize,
    /// The row that they end with, if there was no room for more.
    cut_in: Option<u32>,
    pub(super) last_row: u32,
    pub(super) last_column: u32,
    pub(super) hidden_rows: Numbers,
    pub(super) hidden_columns: Numbers,
}

impl SheetContent {
    /// The most bytes of cells that are held.
    const SIZE_MAX: usize = 16 * 1024 * 1024;
    /// Each cell takes about this much besides its text.
    const CELL: usize = 64;

    /// Makes a table without cells, of which these rows and columns are hidden.
    pub(super) fn hiding(hidden_rows: Numbers, hidden_columns: Numbers) -> Self {
        Self { hidden_rows, hidden_columns, ..Self::default() }
    }

    /// Notes a cell that has content; row and column are counted from 0.
    pub(super) fn add(&mut self, (row, column): (u32, u32), cell: &impl DataType, rows: &RangeInclusive<u32>) {
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
    pub(super) fn shown(&self, show_hidden: bool, limit: usize) -> ShownCells {
        let is_shown = |hidden: &Numbers, number: u32| show_hidden || !hidden.contains(number);
        let columns: BTreeSet<u32> = self.cells.values().flat_map(BTreeMap::keys).copied().collect();
        let columns: Vec<u32> = columns.into_iter().filter(|column| is_shown(&self.hidden_columns, *column)).collect();
        let mut shown = ShownCells { text: self.header(&columns), end_row: None, next_row: self.cut_in };
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
pub(super) struct ShownCells {
    text: String,
    /// The last row that is in it.
    end_row: Option<u32>,
    /// Where to go on, if it was cut.
    pub(super) next_row: Option<u32>,
}

impl ShownCells {
    pub(super) fn told(&self, table: &SheetContent, rows: &RangeInclusive<u32>, mut data: Map<String, Value>) -> Value {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_their_letters() {
        let named = [(1, "A"), (26, "Z"), (27, "AA"), (52, "AZ"), (702, "ZZ"), (703, "AAA"), (16384, "XFD")];
        for (number, name) in named {
            assert_eq!(letters(number), name);
        }
    }

    #[test]
    fn spans_are_merged_and_counted() {
        let numbers = Numbers::of(vec![(5, 7), (1, 2), (2, 3), (9, 8), (6, 10), (20, u32::MAX)]);
        let held: Vec<u32> = (0..22).filter(|number| numbers.contains(*number)).collect();
        assert_eq!(held, [1, 2, 3, 5, 6, 7, 8, 9, 10, 20, 21]);
        assert_eq!((numbers.within(0), numbers.within(6), numbers.within(20)), (0, 5, 10));
    }
}
