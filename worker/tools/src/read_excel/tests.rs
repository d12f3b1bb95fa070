//! Tests of what is read in workbooks of several programs, and in broken ones.

use std::fs;
use std::io::{Cursor, Write as _};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use zip::write::SimpleFileOptions;

use super::*;
use crate::HEAD;

/// As the supervisor sets it.
const LIMIT: usize = 200 * 1024;

fn documents() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/documents")
}

fn excel(path: &Path, args: &Value) -> Result<ToolResult, ToolError> {
    run(args, &ToolContext::new(path.into(), LIMIT))
}

fn content(output: &ToolResult) -> &str {
    let key = if output.truncated { HEAD } else { "content" };
    output.data[key].as_str().expect("content")
}

/// A workbook of one sheet with this XML, and a table of strings with that.
fn xlsx(sheet: &str, strings: &str) -> Vec<u8> {
    let relationship = |kind: &str, id: &str, target: &str| {
        format!(
            r#"<Relationship Id="{id}" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/{kind}" Target="{target}"/>"#
        )
    };
    let relationships = |list: &str| format!(r#"<Relationships xmlns="r">{list}</Relationships>"#);
    let parts = [
        ("_rels/.rels", relationships(&relationship("officeDocument", "r1", "xl/workbook.xml"))),
        ("xl/_rels/workbook.xml.rels", relationships(&relationship("worksheet", "r1", "worksheets/sheet1.xml"))),
        (
            "xl/workbook.xml",
            r#"<workbook xmlns:r="r"><sheets><sheet name="s" sheetId="1" r:id="r1"/></sheets></workbook>"#.to_owned(),
        ),
        ("xl/worksheets/sheet1.xml", sheet.to_owned()),
        ("xl/sharedStrings.xml", strings.to_owned()),
    ];
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in parts {
        archive.start_file(name, SimpleFileOptions::default()).expect("a part");
        archive.write_all(content.as_bytes()).expect("its content");
    }
    archive.finish().expect("an archive").into_inner()
}

fn sheet(rows: &str) -> String {
    format!("<worksheet><sheetData>{rows}</sheetData></worksheet>")
}

/// Reads what is in a file of these bytes.
fn read(bytes: &[u8], args: &Value) -> Result<ToolResult, ToolError> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), bytes).expect("its content");
    excel(file.path(), args)
}

fn error(bytes: &[u8], args: &Value) -> String {
    read(bytes, args).expect_err("no result").text()
}

/// S4-7, X4-11: workbooks of openpyxl, xlwt and LibreOffice are read as they were written.
#[test]
fn s4_7_x4_11_workbooks_of_three_programs_are_read() {
    let cases = fs::read(documents().join("cases.json")).expect("the cases");
    let cases: Map<String, Value> = serde_json::from_slice(&cases).expect("JSON");
    let mut wrong = Vec::new();
    let mut files = 0;
    for (file, cases) in cases.iter().filter(|(file, _)| !file.ends_with(".pdf")) {
        files += 1;
        for case in cases.as_array().expect("cases") {
            let found = excel(&documents().join(file), &case["args"]);
            let right = match (&found, case["error"].as_str()) {
                (Ok(output), None) => case["content"] == output.data["content"],
                (Err(error), Some(expected)) => error.to_string().ends_with(expected),
                (Ok(_), Some(_)) | (Err(_), None) => false,
            };
            if !right {
                wrong.push(format!("{file} {case}\n   {found:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(files >= 35, "{files}");
}

/// C-15: all of 500 rows are returned, and of 501 the first 500, with where to go on.
#[test]
fn c_15_five_hundred_rows_are_returned() {
    let output = excel(&documents().join("tall.xlsx"), &json!({})).expect("rows");
    assert_eq!((content(&output).lines().count(), &output.data["next_row"]), (501, &json!(501)));
    let output = excel(&documents().join("tall.xlsx"), &json!({ "start_row": 2 })).expect("rows");
    assert_eq!((content(&output).lines().count(), &output.data["next_row"]), (501, &Value::Null));
    let output = excel(&documents().join("tall.xlsx"), &json!({ "start_row": 1, "end_row": 501 })).expect("rows");
    assert_eq!(output.data["end_row"], 500);
}

#[test]
fn a_result_that_is_too_long_is_cut_after_a_row() {
    let row =
        |number: u32| format!(r#"<row r="{number}"><c r="A{number}" t="str"><v>{}</v></c></row>"#, "x".repeat(90_000));
    let bytes = xlsx(&sheet(&(1..=6).map(row).collect::<String>()), "<sst/>");
    let output = read(&bytes, &json!({})).expect("rows");
    // A cell is cut too.
    assert_eq!((output.truncated, content(&output).lines().count()), (false, 7));
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), &bytes).expect("its content");
    let output = run(&json!({}), &ToolContext::new(file.path().into(), 10_000)).expect("rows");
    assert_eq!((output.truncated, content(&output).lines().count()), (true, 3));
    assert_eq!(output.data["next_row"], 3);
    // One row alone is cut at the limit.
    let output = run(&json!({}), &ToolContext::new(file.path().into(), 100)).expect("rows");
    assert!(content(&output).len() < 200 && content(&output).ends_with("…\n"), "{}", content(&output).len());
    assert_eq!(output.data["next_row"], 2);
}

#[test]
fn an_archive_that_unpacks_to_too_much_is_refused() {
    const MOST: u64 = 1 << 20;
    let unpacks = |bytes: &[u8]| {
        let mut archive = zip::ZipArchive::new(Cursor::new(Arc::from(bytes))).expect("an archive");
        xlsx::unpacks_to(&mut archive, MOST).map_err(|error| error.to_string())
    };
    let with = |size: u64| {
        let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
        archive.start_file("bomb.xml", SimpleFileOptions::default()).expect("a part");
        std::io::copy(&mut std::io::repeat(b' ').take(size), &mut archive).expect("its content");
        archive.finish().expect("an archive").into_inner()
    };
    let refused = Err("it is too large to be read: it unpacks to more than 1048576 bytes".to_owned());
    assert_eq!(unpacks(&with(MOST)), Ok(()));
    assert_eq!(unpacks(&with(MOST + 1)), refused);
    // One that says that it is small gives no more than that.
    let mut lies = with(2 * MOST);
    for (sign, size) in [(b"PK\x03\x04", 22), (b"PK\x01\x02", 24)] {
        let entry = lies.windows(4).rposition(|window| window == sign).expect("an entry");
        lies[entry + size..entry + size + 4].copy_from_slice(&10_u32.to_le_bytes());
    }
    let mut archive = zip::ZipArchive::new(Cursor::new(lies)).expect("an archive");
    let mut bytes = Vec::new();
    let read = archive.by_index(0).expect("a part").read_to_end(&mut bytes);
    assert!(read.is_err() && bytes.len() < 1 << 16, "{}", bytes.len());
    assert!(with(MOST).len() < 10_000);
}

#[test]
fn entities_and_tables_of_strings_that_lie_are_no_way_to_memory() {
    // Entities of its own are not expanded.
    let laughs = r#"<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>"#;
    let cell = sheet(r#"<row r="1"><c r="A1" t="str"><v>&b;</v></c></row>"#);
    assert!(error(&xlsx(&format!("{laughs}{cell}"), "<sst/>"), &json!({})).contains("it is broken"));
    for count in ["99999999999999", "18446744073709551615"] {
        let strings = format!(r#"<sst uniqueCount="{count}"><si><t>a</t></si></sst>"#);
        assert!(error(&xlsx(&sheet(""), &strings), &json!({})).contains("it has no"), "{count}");
    }
    let text = error(&xlsx(&sheet(r#"<row r="1"><c r="A1" t="s"><v>7</v></c></row>"#), "<sst/>"), &json!({}));
    assert!(text.contains("not found in shared strings table"), "{text}");
}

#[test]
fn what_is_no_workbook_says_what_it_is() {
    for (bytes, what) in [
        (&b""[..], "it is empty"),
        (b"a,b\n1,2\n", "CSV"),
        (b"<html></html>", "XML or HTML"),
        (b"\x00\x01\x02\xff", "it begins neither"),
        (b"PK\x03\x04", "archive"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "compound file"),
    ] {
        let text = error(bytes, &json!({}));
        assert!(text.contains(what), "{text}");
    }
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    archive.start_file("word/document.xml", SimpleFileOptions::default()).expect("a part");
    let bytes = archive.finish().expect("an archive").into_inner();
    assert!(error(&bytes, &json!({})).contains("_rels/.rels: it is missing"));
}

#[test]
fn arguments_that_make_no_sense_are_errors() {
    let path = documents().join("plain.xlsx");
    for args in [
        json!({ "action": "write" }),
        json!({ "sheet": [] }),
        json!({ "sheet": -1 }),
        json!({ "start_row": 0 }),
        json!({ "start_row": 5, "end_row": 4 }),
        json!({ "show_hidden": "yes" }),
    ] {
        let error = excel(&path, &args).expect_err("no sense");
        assert!(matches!(error, ToolError::Argument { .. }), "{args}: {error}");
    }
}

/// Broken workbooks, made of whole ones: each is read or is an error, and none ends the parser.
#[test]
fn broken_workbooks_are_read_or_refused() {
    let (mut read_right, mut refused) = (0, 0);
    let mut files: Vec<PathBuf> =
        fs::read_dir(documents()).expect("the documents").map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    for file in files.iter().filter(|file| file.extension().is_some_and(|kind| kind == "xlsx" || kind == "xls")) {
        let whole = fs::read(file).expect("a workbook");
        let mut chance = Chance(whole.len() as u64);
        for _ in 0..12 {
            let broken = chance.broken(&whole);
            for args in [json!({}), json!({ "action": "get_info" })] {
                match read(&broken, &args) {
                    Ok(_) => read_right += 1,
                    Err(_) => refused += 1,
                }
            }
        }
    }
    assert!(read_right > 50 && refused > 50, "{read_right} {refused}");
}

/// Tests whole archives, in which the XML is broken.
#[test]
fn broken_parts_of_workbooks_are_read_or_refused() {
    let (mut read_right, mut refused) = (0, 0);
    for name in ["plain", "hidden", "dates-lo", "merged", "chart"] {
        let whole = fs::read(documents().join(format!("{name}.xlsx"))).expect("a workbook");
        let mut chance = Chance(whole.len() as u64);
        for _ in 0..60 {
            let broken = chance.with_a_broken_part(&whole);
            for args in [json!({ "show_hidden": true }), json!({ "action": "get_info" })] {
                match read(&broken, &args) {
                    Ok(_) => read_right += 1,
                    Err(_) => refused += 1,
                }
            }
        }
    }
    assert!(read_right > 100 && refused > 50, "{read_right} {refused}");
}

/// Numbers that look like chance and are the same each time (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % most.max(1) as u64).unwrap_or(0)
    }

    /// The workbook with some bytes of its XML changed.
    fn with_a_broken_part(&mut self, whole: &[u8]) -> Vec<u8> {
        let mut archive = zip::ZipArchive::new(Cursor::new(whole)).expect("an archive");
        let wanted = ["xl/workbook.xml", "xl/worksheets/sheet1.xml", "xl/sharedStrings.xml", "xl/styles.xml"];
        let wanted = wanted[self.below(wanted.len())];
        let mut broken = zip::ZipWriter::new(Cursor::new(Vec::new()));
        for index in 0..archive.len() {
            let mut part = archive.by_index(index).expect("a part");
            let name = part.name().expect("a name").into_owned();
            let mut content = Vec::new();
            part.read_to_end(&mut content).expect("its content");
            if name == wanted {
                content = self.broken(&content);
            }
            broken.start_file(name, SimpleFileOptions::default()).expect("a part");
            broken.write_all(&content).expect("its content");
        }
        broken.finish().expect("an archive").into_inner()
    }

    /// The bytes with some changed, cut out, put in or left off.
    fn broken(&mut self, whole: &[u8]) -> Vec<u8> {
        let mut bytes = whole.to_vec();
        for _ in 0..=self.below(8) {
            let at = self.below(bytes.len());
            match self.below(8) {
                0 => bytes.truncate(at.max(1)),
                1 => drop(bytes.drain(at..(at + self.below(64)).min(bytes.len()))),
                2 => bytes.insert(at, 0xff),
                3 => bytes[at] = 0xff,
                4 => bytes[at] = 0,
                _ => bytes[at] ^= 1 << self.below(8),
            }
        }
        bytes
    }
}
