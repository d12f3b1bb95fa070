//! The web, for tools: what came from a host, made into text.

use std::time::Instant;

use url::Url;

pub mod azure;
mod charset;
pub mod fetch;
mod html;
pub mod rlm;
pub mod search;

/// How a result is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResultFormat {
    /// Pages as Markdown, other text as it is.
    Markdown,
    /// Pages as their words, other text as it is.
    Text,
    /// Text as it is.
    Raw,
}

/// Response, as text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ResponseText {
    pub(super) title: Option<String>,
    pub(super) text: String,
    /// The encoding that it was in.
    pub(super) charset: &'static str,
    /// Note that a reader should have of it.
    pub(super) note: Option<&'static str>,
}

/// It is no text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotText;

const NEEDS_SCRIPTS: &str = "the page makes its text by scripts, which are not run";
const CUT: &str = "the page was not read to its end: there are too many elements or attributes in it";

/// Makes text of a body. `content_type` is the header's value; `from` is what links in it are relative to.
pub(super) fn to_text(
    body: &[u8],
    content_type: Option<&str>,
    (from, format): (&Url, ResultFormat),
    deadline: Option<Instant>,
) -> Result<ResponseText, NotText> {
    let (kind, charset) = media_type(content_type.unwrap_or_default());
    let kind = if kind.is_empty() || kind == "application/octet-stream" { sniffed(body) } else { kind };
    if !is_text(&kind) {
        return Err(NotText);
    }
    let (text, charset) = charset::decode(body, charset.as_deref());
    let is_page = matches!(kind.as_str(), "text/html" | "application/xhtml+xml");
    let into = match format {
        ResultFormat::Markdown if is_page => html::Into::Markdown,
        ResultFormat::Text if is_page => html::Into::Text,
        ResultFormat::Markdown | ResultFormat::Text | ResultFormat::Raw => {
            return Ok(ResponseText { title: None, text, charset, note: None });
        }
    };
    let page = html::convert(&text, from, into, deadline);
    let note = if page.cut { Some(CUT) } else { page.needs_scripts.then_some(NEEDS_SCRIPTS) };
    Ok(ResponseText { title: page.title, text: page.text, charset, note })
}

/// The type in small letters, and the charset.
fn media_type(header: &str) -> (String, Option<String>) {
    let mut parts = header.split(';');
    let kind = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
    let charset = parts.find_map(|part| {
        let (key, value) = part.split_once('=')?;
        key.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"').to_owned())
    });
    (kind, charset)
}

fn is_text(kind: &str) -> bool {
    let (top, sub) = kind.split_once('/').unwrap_or((kind, ""));
    let suffix = sub.rsplit('+').next().unwrap_or_default();
    let texts = [
        "json",
        "xml",
        "yaml",
        "x-yaml",
        "toml",
        "javascript",
        "ecmascript",
        "x-javascript",
        "x-sh",
        "x-www-form-urlencoded",
        "graphql",
        "sql",
        "x-ndjson",
        "jsonlines",
        "ld+json",
        "rtf",
        "x-tex",
    ];
    top == "text"
        || (matches!(top, "application" | "model" | "image" | "message")
            && (texts.contains(&sub) || texts.contains(&suffix)))
}

/// For a body without a type: a page, text, or neither.
fn sniffed(body: &[u8]) -> String {
    let start = &body[..body.len().min(1024)];
    let marked = start.starts_with(b"\xff\xfe") || start.starts_with(b"\xfe\xff");
    // A character that the end cuts in two is no sign.
    let is_utf8 = match std::str::from_utf8(start) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    };
    if !marked && (start.contains(&0) || !is_utf8) {
        return "application/octet-stream".to_owned();
    }
    let text = String::from_utf8_lossy(start).trim_start_matches('\u{feff}').trim_start().to_ascii_lowercase();
    let is_page = ["<!doctype html", "<html", "<head", "<body"].iter().any(|tag| text.starts_with(tag));
    if is_page { "text/html".to_owned() } else { "text/plain".to_owned() }
}

#[cfg(test)]
mod tests;
