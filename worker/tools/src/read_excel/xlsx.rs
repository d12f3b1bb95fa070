//! `.xlsx`: XML in a ZIP archive.

use std::collections::HashMap;
use std::io::{BufReader, Cursor, Read};
use std::ops::RangeInclusive;
use std::sync::Arc;

use calamine::{Reader as _, Xlsx};
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use zip::ZipArchive;

use super::sheet::{Bytes, Numbers, Sheet, SheetContent};
use crate::workbook::WorkbookError;

/// The most bytes that an archive may unpack to.
const UNPACKED_MAX: u64 = 256 * 1024 * 1024;
/// The most files that it may hold.
const FILES_MAX: usize = 20_000;
/// The most bytes of one tag, one text or one comment.
const PIECE_MAX: usize = 16 * 1024 * 1024;
/// Room for so many strings is no harm.
const STRINGS: u64 = 1 << 20;
/// The most rows and columns of a sheet that can be hidden one by one.
const HIDDEN_MAX: usize = 1 << 20;

/// An open workbook.
pub(super) struct XlsxBook {
    pub(super) sheets: Vec<Sheet>,
    /// Where each sheet is in the archive.
    paths: Vec<String>,
    archive: ZipArchive<Bytes>,
    cells: Xlsx<Bytes>,
}

impl XlsxBook {
    pub(super) fn open(bytes: Arc<[u8]>) -> Result<Self, WorkbookError> {
        let archive = ZipArchive::new(Cursor::new(Arc::clone(&bytes)));
        let mut archive = archive.map_err(|e| WorkbookError::broken("archive", e))?;
        unpacks_to(&mut archive, UNPACKED_MAX)?;
        let paths = paths(&mut archive)?;
        let cells = Xlsx::new(Cursor::new(bytes)).map_err(|e| WorkbookError::broken("workbook", e))?;
        let sheets: Vec<Sheet> = cells.sheets_metadata().iter().map(Sheet::of).collect();
        if sheets.len() != paths.len() {
            return Err(WorkbookError::broken("workbook", "its list of sheets can be read in two ways"));
        }
        Ok(Self { sheets, paths, archive, cells })
    }

    pub(super) fn table(&mut self, index: usize, rows: RangeInclusive<u32>) -> Result<SheetContent, WorkbookError> {
        let (name, path) = (&self.sheets[index].name, &self.paths[index]);
        let broken = |error: calamine::XlsxError| WorkbookError::broken(path, error);
        let mut table = SheetContent::default();
        hidden(&mut self.archive, path, &mut table)?;
        let mut cells = self.cells.worksheet_cells_reader(name).map_err(broken)?;
        while let Some(cell) = cells.next_cell().map_err(broken)? {
            table.add(cell.get_position(), cell.get_value(), &rows);
        }
        Ok(table)
    }
}

/// Checks that an archive unpacks to so many bytes at most. The library gives of each file no more than the archive
/// says that it has.
pub(super) fn unpacks_to(archive: &mut ZipArchive<Bytes>, most: u64) -> Result<(), WorkbookError> {
    let too_large = |what: String| WorkbookError::TooLarge { what };
    if archive.len() > FILES_MAX {
        return Err(too_large(format!("it holds more than {FILES_MAX} files")));
    }
    let mut unpacked = 0_u64;
    for index in 0..archive.len() {
        let part = archive.by_index_raw(index).map_err(|e| WorkbookError::broken("archive", e))?;
        unpacked = unpacked.saturating_add(part.size());
    }
    if unpacked > most {
        return Err(too_large(format!("it unpacks to more than {most} bytes")));
    }
    Ok(())
}

/// Where the sheets are in the archive, in the order of the workbook.
fn paths(archive: &mut ZipArchive<Bytes>) -> Result<Vec<String>, WorkbookError> {
    let mut workbook = None;
    each(archive, "_rels/.rels", |tag| {
        if is(tag, "Relationship") && attribute(tag, "Type")?.is_some_and(|kind| kind.ends_with("/officeDocument")) {
            workbook = attribute(tag, "Target")?;
        }
        Ok(true)
    })?;
    let workbook = workbook.ok_or_else(|| WorkbookError::broken("_rels/.rels", "it names no workbook"))?;
    let workbook = workbook.trim_start_matches('/').to_owned();
    let (directory, name) = workbook.rsplit_once('/').map_or(("", workbook.as_str()), |(dir, name)| (dir, name));
    let directory = if directory.is_empty() { String::new() } else { format!("{directory}/") };
    let mut targets = HashMap::new();
    each(archive, &format!("{directory}_rels/{name}.rels"), |tag| {
        if is(tag, "Relationship")
            && let (Some(id), Some(target)) = (attribute(tag, "Id")?, attribute(tag, "Target")?)
        {
            let absolute = target.strip_prefix('/').map(str::to_owned);
            targets.insert(id, absolute.unwrap_or_else(|| format!("{directory}{target}")));
        }
        Ok(true)
    })?;
    let mut paths = Vec::new();
    each(archive, &workbook, |tag| {
        if is(tag, "sheet") {
            let id = attribute(tag, "id")?.unwrap_or_default();
            paths.push(targets.get(&id).cloned().unwrap_or_default());
        }
        Ok(true)
    })?;
    let strings = format!("{directory}sharedStrings.xml");
    if find(archive, &strings).is_some() {
        may_hold_its_strings(archive, &strings)?;
    }
    Ok(paths)
}

/// Checks that a table of strings can have as many as it says: calamine makes room for that many.
fn may_hold_its_strings(archive: &mut ZipArchive<Bytes>, path: &str) -> Result<(), WorkbookError> {
    let mut said = 0;
    let mut tags = 0_u64;
    each(archive, path, |tag| {
        tags += 1;
        if is(tag, "sst") {
            said = attribute(tag, "uniqueCount")?.and_then(|count| count.trim().parse().ok()).unwrap_or(0);
        }
        Ok(true)
    })?;
    // Some programs count wrong, and calamine reads on.
    if said > tags.max(STRINGS) {
        Err(WorkbookError::broken(path, format!("it has no {said} strings")))
    } else {
        Ok(())
    }
}

/// Notes which rows and columns of a sheet are hidden.
fn hidden(archive: &mut ZipArchive<Bytes>, path: &str, table: &mut SheetContent) -> Result<(), WorkbookError> {
    let number = |tag: &BytesStart<'_>, name| -> Result<Option<u32>, WorkbookError> {
        Ok(attribute(tag, name)?.and_then(|number| number.trim().parse().ok()))
    };
    let mut row = 0_u32;
    let mut room = HIDDEN_MAX;
    let (mut rows, mut columns) = (Vec::new(), Vec::new());
    each(archive, path, |tag| {
        let is_row = is(tag, "row");
        if is_row {
            row = number(tag, "r")?.unwrap_or_else(|| row.saturating_add(1));
        }
        if !(is_row || is(tag, "col")) || !is_true(attribute(tag, "hidden")?.as_deref()) {
            return Ok(true);
        }
        room = room.checked_sub(1).ok_or_else(|| {
            let what = format!("more than {HIDDEN_MAX} of its rows or columns are hidden one by one");
            WorkbookError::TooLarge { what }
        })?;
        if is_row {
            rows.push((row, row));
        } else if let (Some(min), Some(max)) = (number(tag, "min")?, number(tag, "max")?) {
            columns.push((min, max));
        }
        Ok(true)
    })?;
    (table.hidden_rows, table.hidden_columns) = (Numbers::of(rows), Numbers::of(columns));
    Ok(())
}

fn is_true(text: Option<&str>) -> bool {
    matches!(text, Some("1" | "true" | "on"))
}

fn is(tag: &BytesStart<'_>, name: &str) -> bool {
    tag.local_name().as_ref() == name
}

/// The attribute with this local name.
fn attribute(tag: &BytesStart<'_>, name: &str) -> Result<Option<String>, WorkbookError> {
    for attribute in tag.attributes().with_checks(false) {
        let attribute = attribute.map_err(|e| WorkbookError::broken("an attribute", e))?;
        if attribute.key.local_name().as_ref() == name {
            let value = quick_xml::escape::unescape(&attribute.value);
            let value = value.map_err(|e| WorkbookError::broken("an attribute", e))?;
            return Ok(Some(value.into_owned()));
        }
    }
    Ok(None)
}

/// Does something with each tag of a part that begins an element, until that says no more is wanted.
fn each(
    archive: &mut ZipArchive<Bytes>,
    path: &str,
    mut with: impl FnMut(&BytesStart<'_>) -> Result<bool, WorkbookError>,
) -> Result<(), WorkbookError> {
    let name = find(archive, path).ok_or_else(|| WorkbookError::broken(path, "it is missing"))?;
    let part = archive.by_name(&name).map_err(|e| WorkbookError::broken(path, e))?;
    let mut xml = Reader::from_reader(BufReader::new(part.take(UNPACKED_MAX)));
    xml.config_mut().check_end_names = false;
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        match xml.read_event_into(&mut buffer) {
            Ok(Event::Start(tag) | Event::Empty(tag)) => {
                if !with(&tag)? {
                    return Ok(());
                }
            }
            Ok(Event::Eof) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(WorkbookError::broken(path, error)),
        }
        if buffer.capacity() > PIECE_MAX {
            let what = format!("a piece of {path} has more than {PIECE_MAX} bytes");
            return Err(WorkbookError::TooLarge { what });
        }
    }
}

/// The name of a file in an archive as the archive has it.
fn find(archive: &ZipArchive<Bytes>, path: &str) -> Option<String> {
    let is_it = |name: &str| name.replace('\\', "/").eq_ignore_ascii_case(path);
    archive.file_names().flatten().find(|name| is_it(name)).map(|name| name.into_owned())
}
