//! Mistakes in a manifest or a profile, shown at their line.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

/// A mistake and where it stands; made while reading, when the text is not at hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) span: Range<usize>,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

impl Fault {
    pub(crate) fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Self { span, message: message.into(), help: None }
    }

    pub(crate) fn with_help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    pub(crate) fn into_error(self, text: &str, file: &str) -> ManifestError {
        let start = boundary(text, self.span.start);
        let (line, column) = position(text, start);
        let rendered = self.render(text, file, start);
        ManifestError { message: self.message, line, column, rendered }
    }

    fn render(&self, text: &str, file: &str, start: usize) -> String {
        let end = boundary(text, self.span.end).max(start);
        // Long spans, such as a whole table, are told by their first line.
        let end = text.get(start..end).and_then(|span| span.find('\n')).map_or(end, |line| start + line);
        // Only the lines around it: a manifest of one huge line, or of a mebibyte, must not make a message of its size.
        let from = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let to = text[end..].find('\n').map_or(text.len(), |newline| end + newline);
        let from = boundary(text, from.max(start.saturating_sub(400)));
        let to = boundary(text, to.min(end.saturating_add(400))).max(end);
        let end = boundary(text, end.min(start.saturating_add(400))).max(start);
        let source = &text[from..to.max(end)];
        let snippet = Snippet::source(source)
            .line_start(position(text, start).0)
            .path(file)
            .annotation(AnnotationKind::Primary.span(start - from..end - from));
        let mut group = Group::with_title(Level::ERROR.primary_title(self.message.as_str())).element(snippet);
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        Renderer::plain().render(&[group])
    }
}

/// A manifest, or a profile, that is refused. Printed, it shows the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestError {
    message: String,
    line: usize,
    column: usize,
    rendered: String,
}

impl ManifestError {
    /// Message without the place.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// From 1.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }

    /// In characters, from 1.
    #[must_use]
    pub fn column(&self) -> usize {
        self.column
    }
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.rendered)
    }
}

impl std::error::Error for ManifestError {}

/// Line and column of a byte, from 1.
pub(crate) fn position(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..boundary(text, at)];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// The nearest place at or before `at` where a character starts.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}
