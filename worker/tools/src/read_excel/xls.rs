//! `.xls`: records of BIFF in a compound file.

use std::io::{Cursor, Read as _};
use std::ops::RangeInclusive;
use std::sync::Arc;

use calamine::{Reader as _, Xls};
use cfb::CompoundFile;

use super::sheet::{Bytes, FILE_MAX, Numbers, Sheet, SheetContent};
use crate::workbook::WorkbookError;

/// The most cells in all rectangles that sheets span: calamine holds each of them.
const CELLS_MAX: u64 = 20_000_000;

/// An open workbook.
pub(super) struct XlsBook {
    pub(super) sheets: Vec<Sheet>,
    hidden: Vec<HiddenCells>,
    cells: Xls<Bytes>,
}

/// Which rows and columns of a sheet are hidden.
#[derive(Debug, Default)]
struct HiddenCells {
    rows: Numbers,
    columns: Numbers,
}

impl XlsBook {
    pub(super) fn open(bytes: Arc<[u8]>) -> Result<Self, WorkbookError> {
        let hidden = surveyed(&stream(Arc::clone(&bytes))?)?;
        let cells = Xls::new(Cursor::new(bytes)).map_err(|e| WorkbookError::broken("workbook", e))?;
        let sheets: Vec<Sheet> = cells.sheets_metadata().iter().map(Sheet::of).collect();
        if sheets.len() != hidden.len() {
            return Err(WorkbookError::broken("workbook", "its list of sheets can be read in two ways"));
        }
        Ok(Self { sheets, hidden, cells })
    }

    pub(super) fn table(&mut self, index: usize, rows: RangeInclusive<u32>) -> Result<SheetContent, WorkbookError> {
        let name = &self.sheets[index].name;
        let range = self.cells.worksheet_range(name).map_err(|e| WorkbookError::broken(name, e))?;
        let hidden = std::mem::take(&mut self.hidden[index]);
        let mut table = SheetContent::hiding(hidden.rows, hidden.columns);
        let (first_row, first_column) = range.start().unwrap_or_default();
        for (row, column, cell) in range.used_cells() {
            let at = |first: u32, offset: usize| first.saturating_add(u32::try_from(offset).unwrap_or(u32::MAX));
            table.add((at(first_row, row), at(first_column, column)), cell, &rows);
        }
        Ok(table)
    }
}

/// The stream that is the workbook.
fn stream(bytes: Arc<[u8]>) -> Result<Vec<u8>, WorkbookError> {
    let broken = |error: std::io::Error| WorkbookError::broken("compound file", error);
    let mut compound = CompoundFile::open(Cursor::new(bytes)).map_err(broken)?;
    // Office keeps an .xlsx with a password in such a file.
    if compound.is_stream("/EncryptedPackage") {
        return Err(WorkbookError::Password);
    }
    let name = ["/Workbook", "/Book"].into_iter().find(|name| compound.is_stream(name));
    let name = name.ok_or(WorkbookError::NoWorkbook { what: "it is another kind of compound file, such as .doc" })?;
    let mut bytes = Vec::new();
    compound.open_stream(name).and_then(|stream| stream.take(FILE_MAX).read_to_end(&mut bytes)).map_err(broken)?;
    Ok(bytes)
}

/// Looks at all sheets of a workbook: which rows and columns are hidden, and whether their cells reach too far.
fn surveyed(stream: &[u8]) -> Result<Vec<HiddenCells>, WorkbookError> {
    let mut places = Vec::new();
    for record in Records(stream) {
        let (kind, data) = record?;
        match kind {
            FILE_PASS => return Err(WorkbookError::Password),
            BOUND_SHEET => places.push(usize::try_from(long(data, 0)?).unwrap_or(usize::MAX)),
            EOF => break,
            _ => {}
        }
    }
    let (mut sheets, mut area) = (Vec::new(), 0);
    for place in places {
        let of_sheet =
            stream.get(place..).ok_or_else(|| WorkbookError::broken("workbook", "a sheet is past its end"))?;
        let (hidden, cells) = sheet(of_sheet)?;
        area += cells;
        if area > CELLS_MAX {
            return Err(WorkbookError::TooLarge { what: format!("its sheets span more than {CELLS_MAX} cells") });
        }
        sheets.push(hidden);
    }
    Ok(sheets)
}

// Records of BIFF ([MS-XLS] 2.4).
const BOF: u16 = 0x0809;
const EOF: u16 = 0x000a;
const FILE_PASS: u16 = 0x002f;
const BOUND_SHEET: u16 = 0x0085;
const DIMENSIONS: u16 = 0x0200;
const ROW: u16 = 0x0208;
const COL_INFO: u16 = 0x007d;
const MUL_RK: u16 = 0x00bd;
/// Cells that calamine reads, each of which begins with its row and its column: formula, number, label, rich string, boolean
/// or error, RK, several of them, and a string of the workbook's table.
const CELLS: [u16; 8] = [0x0006, 0x0203, 0x0204, 0x00d6, 0x0205, 0x027e, MUL_RK, 0x00fd];

/// Hidden parts of a sheet, and how many cells the rectangle has that holds all of its cells.
fn sheet(stream: &[u8]) -> Result<(HiddenCells, u64), WorkbookError> {
    let (mut rows, mut columns) = (Vec::new(), Vec::new());
    let mut rectangle = Rectangle::default();
    let mut declared = 0;
    let mut depth = 0_usize;
    for record in Records(stream) {
        let (kind, data) = record?;
        match kind {
            BOF => depth += 1,
            EOF if depth <= 1 => break,
            EOF => depth -= 1,
            // A chart in it, which has records of its own.
            _ if depth > 1 => {}
            DIMENSIONS if data.len() >= 14 => {
                let span = |from: u64, to: u64| to.saturating_sub(from);
                let rows = span(long(data, 0)?.into(), long(data, 4)?.into());
                let columns = span(short(data, 8)?.into(), short(data, 10)?.into());
                declared = rows.saturating_mul(columns);
            }
            // fDyZero: its height is none.
            ROW if short(data, 12)? & 0x20 != 0 => {
                let row = u32::from(short(data, 0)?) + 1;
                rows.push((row, row));
            }
            COL_INFO if short(data, 8)? & 1 != 0 => {
                columns.push((u32::from(short(data, 0)?) + 1, u32::from(short(data, 2)?) + 1));
            }
            MUL_RK => {
                rectangle.take(short(data, 0)?, short(data, 2)?);
                rectangle.take(short(data, 0)?, short(data, data.len().saturating_sub(2))?);
            }
            _ if CELLS.contains(&kind) => rectangle.take(short(data, 0)?, short(data, 2)?),
            _ => {}
        }
    }
    let hidden = HiddenCells { rows: Numbers::of(rows), columns: Numbers::of(columns) };
    Ok((hidden, rectangle.area().max(declared)))
}

/// The least rectangle that holds some cells.
#[derive(Debug, Default)]
struct Rectangle(Option<[u16; 4]>);

impl Rectangle {
    fn take(&mut self, row: u16, column: u16) {
        let [top, bottom, left, right] = self.0.unwrap_or([row, row, column, column]);
        self.0 = Some([top.min(row), bottom.max(row), left.min(column), right.max(column)]);
    }

    fn area(&self) -> u64 {
        let side = |from: u16, to: u16| u64::from(to - from) + 1;
        self.0.map_or(0, |[top, bottom, left, right]| side(top, bottom) * side(left, right))
    }
}

/// The records of a stream: their kinds, and what is in them.
struct Records<'a>(&'a [u8]);

impl<'a> Iterator for Records<'a> {
    type Item = Result<(u16, &'a [u8]), WorkbookError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (head, rest) = self.0.split_at_checked(4)?;
        let kind = u16::from_le_bytes([head[0], head[1]]);
        let length = usize::from(u16::from_le_bytes([head[2], head[3]]));
        let Some((data, rest)) = rest.split_at_checked(length) else {
            self.0 = &[];
            return Some(Err(WorkbookError::broken("workbook", "it ends within a record")));
        };
        self.0 = rest;
        Some(Ok((kind, data)))
    }
}

fn short(data: &[u8], at: usize) -> Result<u16, WorkbookError> {
    let bytes = data.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map(|bytes| u16::from_le_bytes(*bytes)).ok_or_else(|| too_short(data))
}

fn long(data: &[u8], at: usize) -> Result<u32, WorkbookError> {
    let bytes = data.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map(|bytes| u32::from_le_bytes(*bytes)).ok_or_else(|| too_short(data))
}

fn too_short(data: &[u8]) -> WorkbookError {
    WorkbookError::broken("workbook", format!("a record of {} bytes is too short", data.len()))
}
