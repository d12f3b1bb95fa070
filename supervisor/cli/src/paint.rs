//! Words in colour, on a terminal and where NO_COLOR does not ask for none: `anstream` takes the colours out elsewhere.

use std::fmt;

use anstyle::{AnsiColor, Style};

/// Standard output for people.
pub(super) fn stdout() -> anstream::AutoStream<std::io::StdoutLock<'static>> {
    anstream::AutoStream::auto(std::io::stdout().lock())
}

/// A word that says how something stands.
#[derive(Debug, Clone, Copy)]
pub(super) enum PaintedWord {
    Good(&'static str),
    Bad(&'static str),
    Warn(&'static str),
    Dim(&'static str),
}

impl PaintedWord {
    fn style(self) -> Style {
        match self {
            Self::Good(_) => AnsiColor::Green.on_default(),
            Self::Bad(_) => AnsiColor::Red.on_default(),
            Self::Warn(_) => AnsiColor::Yellow.on_default(),
            Self::Dim(_) => Style::new().dimmed(),
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Good(text) | Self::Bad(text) | Self::Warn(text) | Self::Dim(text) => text,
        }
    }
}

impl fmt::Display for PaintedWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let style = self.style();
        // The width is the text's: escapes take no room on a terminal.
        write!(f, "{style}")?;
        f.pad(self.text())?;
        write!(f, "{style:#}")
    }
}
