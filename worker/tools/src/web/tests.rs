#![allow(clippy::unwrap_used, clippy::panic, reason = "a failing test may stop")]
//! Pages shaped like real ones, and what is made of them.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;

fn from() -> Url {
    Url::parse("https://docs.example.com/guide/page.html?x=1#top").unwrap()
}

fn read(body: &[u8], content_type: Option<&str>, format: ResultFormat) -> Result<ResponseText, NotText> {
    to_text(body, content_type, (&from(), format), None)
}

/// Header of a server for a page in tests/data/pages: by its name's end, with a charset where that has one more part
/// (`korean.euc-kr.html`).
fn header(name: &str) -> String {
    let mut parts = name.rsplit('.');
    let kind = match parts.next().unwrap() {
        "html" => "text/html",
        "json" => "application/json",
        "xml" => "application/rss+xml",
        "txt" => "text/plain",
        other => panic!("{other}: what type is that?"),
    };
    match parts.next().filter(|_| parts.next().is_some()) {
        Some(charset) => format!("{kind}; charset={charset}"),
        None => kind.to_owned(),
    }
}

/// S0-20: each page in tests/data/pages as Markdown and as text, as a person would call right: the snapshots beside them pin it.
#[test]
fn s0_20_pages_are_read_as_their_snapshots_say() {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/pages");
    let mut paths: Vec<PathBuf> = fs::read_dir(&pages).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| !extension.to_string_lossy().starts_with("snap")));
    paths.sort();
    assert!(paths.len() >= 30, "{paths:?}");
    for path in paths {
        let body = fs::read(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let page = read(&body, Some(&header(&name)), ResultFormat::Markdown).unwrap();
        let plain = read(&body, Some(&header(&name)), ResultFormat::Text).unwrap();
        let title = page.title.as_deref().unwrap_or("(none)");
        let note = page.note.map(|note| format!("\nnote: {note}")).unwrap_or_default();
        let head = format!("title: {title}\ncharset: {}{note}", page.charset);
        let shown = format!("{head}\n\n{}\n\n=== as text ===\n\n{}", page.text, plain.text);
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
        assert_eq!(read(body, *content_type, ResultFormat::Markdown).is_ok(), *is_text, "{content_type:?} {body:?}");
    }
    let page = b"\n<!DOCTYPE html><title>T</title><p>Words <b>here</b>";
    assert_eq!(read(page, None, ResultFormat::Markdown).unwrap().text, "Words **here**");
    assert_eq!(read(page, None, ResultFormat::Text).unwrap().text, "Words here");
    assert_eq!(read(page, None, ResultFormat::Raw).unwrap().text.as_bytes(), page);
    assert_eq!(read(page, Some("text/plain"), ResultFormat::Markdown).unwrap().text.as_bytes(), page);
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
        for format in [ResultFormat::Markdown, ResultFormat::Text] {
            let read = read(page.as_bytes(), Some("text/html"), format).unwrap();
            assert!(read.text.contains("before") && read.text.contains("deep"), "{open}");
        }
    }
}

/// S0-20, X2-17: a page that is made to take time ends as what was read of it.
#[test]
fn s0_20_x2_17_a_page_made_to_take_time_is_bounded() {
    let many = 120_000;
    let filled = |part: &str| part.repeat(many / part.len());
    let numbered = |part: &dyn Fn(usize) -> String| (0..many / part(many).len()).map(part).collect::<String>();
    let attributes = numbered(&|n| format!(" a{n}=1"));
    let quoted = numbered(&|n| format!("a{n}=\"\""));
    let slashes = numbered(&|n| format!("/a{n}"));
    let bold = (0..200).map(|n| format!("<b a={n}>")).collect::<String>();
    let pages = [
        // Depth, with and without what goes on in each paragraph. What lies deep is still read.
        ("div", filled("<div>"), false),
        ("lists", filled("<ul><li>"), false),
        ("formatting", filled("<a><b><i><p>"), true),
        ("tables", filled("<table><tr><td>"), false),
        ("foreign", format!("<svg>{}", filled("<style>")), true),
        ("attributes", format!("<div{attributes}>"), true),
        ("quoted attributes", format!("<div {quoted}>"), true),
        ("attributes without values", format!("<div{slashes}>"), true),
        ("many values", format!("<div a=\"<\"{attributes}>"), true),
        // Each paragraph begins with all the bold that was not closed.
        ("bold", format!("<p>{bold}{}", filled("<p>x")), true),
        ("quotations", format!("{}{}", "<blockquote>".repeat(400), filled("x<br>")), false),
        // As long, and harmless.
        ("paragraphs", filled("<p>x"), false),
        ("a comment", format!("<!-- <p {}-->", filled("a b ")), false),
        ("an image", format!("<img src=\"data:,{}\">", filled("abc/ ='<")), false),
    ];
    for (what, page, is_cut) in pages {
        let page = format!("<p>before</p>{page}<p>after");
        for format in [ResultFormat::Markdown, ResultFormat::Text] {
            let read = read(page.as_bytes(), Some("text/html"), format).unwrap();
            assert_eq!((read.note, read.text.contains("after")), (is_cut.then_some(CUT), !is_cut), "{what}");
            assert!(read.text.starts_with("before"), "{what}");
        }
    }
}

/// At the deadline what was read is told, with a note.
#[test]
fn a_page_is_read_until_the_deadline() {
    let page = format!("<p>{}", "word ".repeat(100_000));
    let read =
        to_text(page.as_bytes(), Some("text/html"), (&from(), ResultFormat::Markdown), Some(Instant::now())).unwrap();
    assert_eq!((read.text.as_str(), read.note), ("", Some(CUT)));
}
