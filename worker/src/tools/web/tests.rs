#![allow(clippy::unwrap_used, reason = "a failing test may stop")]
//! Pages shaped like real ones, and what is made of them.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;

fn from() -> Url {
    Url::parse("https://docs.example.com/guide/page.html?x=1#top").unwrap()
}

fn read(body: &[u8], content_type: Option<&str>, format: Format) -> Result<Text, NotText> {
    to_text(body, content_type, (&from(), format), None)
}

/// Each page in tests/data/pages as Markdown and as text, as a person would call right: the snapshots beside them pin it.
#[test]
fn pages_are_read_as_their_snapshots_say() {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/pages");
    let mut paths: Vec<PathBuf> = fs::read_dir(&pages).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "html"));
    paths.sort();
    assert!(paths.len() >= 15, "{paths:?}");
    for path in paths {
        let body = fs::read(&path).unwrap();
        let page = read(&body, Some("text/html"), Format::Markdown).unwrap();
        let plain = read(&body, Some("text/html"), Format::Text).unwrap();
        let title = page.title.as_deref().unwrap_or("(none)");
        let note = page.note.map(|note| format!("\nnote: {note}")).unwrap_or_default();
        let head = format!("title: {title}\ncharset: {}{note}", page.charset);
        let shown = format!("{head}\n\n{}\n\n=== as text ===\n\n{}", page.text, plain.text);
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        insta::with_settings!({ prepend_module_to_snapshot => false, snapshot_path => &pages, omit_expression => true }, {
            insta::assert_snapshot!(name, shown);
        });
    }
}

/// S0-20: what is text, by its type or by what it looks like, and what is not.
#[test]
fn s0_20_types_are_told_apart() {
    let kinds: &[(&[u8], Option<&str>, bool)] = &[
        (b"{}", Some("application/json"), true),
        (b"{}", Some("application/vnd.api+json; charset=utf-8"), true),
        (b"<svg/>", Some("image/svg+xml"), true),
        (b"a,b", Some("TEXT/CSV"), true),
        (b"%PDF-1.7\n%\xe2\xe3", Some("application/pdf"), false),
        (b"\x89PNG\r\n\x1a\n\0", Some("image/png"), false),
        (b"\x89PNG\r\n\x1a\n\0", None, false),
        (b"a\0b", Some("application/octet-stream"), false),
        (b"plain", None, true),
        (b"plain", Some("application/octet-stream"), true),
        (b"", None, true),
    ];
    for (body, content_type, is_text) in kinds {
        assert_eq!(read(body, *content_type, Format::Markdown).is_ok(), *is_text, "{content_type:?} {body:?}");
    }
    let page = b"\n<!DOCTYPE html><title>T</title><p>Words <b>here</b>";
    assert_eq!(read(page, None, Format::Markdown).unwrap().text, "Words **here**");
    assert_eq!(read(page, None, Format::Text).unwrap().text, "Words here");
    assert_eq!(read(page, None, Format::Raw).unwrap().text.as_bytes(), page);
    assert_eq!(read(page, Some("text/plain"), Format::Markdown).unwrap().text.as_bytes(), page);
}

/// Hostile nesting ends as text, on the stack that a thread has.
#[test]
fn nesting_without_end_is_read() {
    for (open, close) in [
        ("<div>", "</div>"),
        ("<b>", ""),
        ("<ul><li>", ""),
        ("<blockquote>", ""),
        ("<table><tr><td>", ""),
        ("<a href=x>", ""),
    ] {
        let page = format!("<p>before</p>{}deep{}<p>after", open.repeat(1000), close.repeat(1000));
        for format in [Format::Markdown, Format::Text] {
            let read = read(page.as_bytes(), Some("text/html"), format).unwrap();
            assert!(read.text.contains("before") && read.text.contains("deep"), "{open}");
        }
    }
}

/// At the deadline what was read is told, with a note.
#[test]
fn a_page_is_read_until_the_deadline() {
    let page = format!("<p>{}", "word ".repeat(100_000));
    let read = to_text(page.as_bytes(), Some("text/html"), (&from(), Format::Markdown), Some(Instant::now())).unwrap();
    assert_eq!((read.text.as_str(), read.note), ("", Some(CUT)));
}
