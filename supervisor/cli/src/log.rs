//! Log of what callgate does meanwhile, in lines on standard error (`--log`).
//!
//! Names and messages in such a line come from what is confined, too. Nothing of them reaches the terminal as a command, or
//! stands at the beginning of a line: the one line break of an event is the one that ends it.

use std::io::{self, Write};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

use super::exit::CommandFailure;
use callgate::shown::{escaped, escaped_json};

/// Without `--log`: what somebody should know, and nobody asked for. What is wrong with a message of a client is in its answer.
const DEFAULT: &str = "warn,rmcp=off";

/// Starts it, for as long as this process runs.
///
/// # Errors
/// What was typed is neither a level nor a filter.
pub(super) fn start(filter: Option<&str>, json: bool) -> Result<(), CommandFailure> {
    let filter = parse(filter.unwrap_or(DEFAULT))?;
    let events = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
    let started = if json {
        tracing::subscriber::set_global_default(events.with_writer(move || EventWriter { json }).json().finish())
    } else {
        let plain = events.with_writer(move || EventWriter { json }).without_time().with_target(false);
        tracing::subscriber::set_global_default(plain.finish())
    };
    started.map_err(|e| CommandFailure::runtime(io::Error::other(e)))
}

fn parse(filter: &str) -> Result<EnvFilter, CommandFailure> {
    let wrong = |reason: String| {
        CommandFailure::Usage(format!("--log {filter}: {reason}; levels are off, error, warn, info, debug and trace"))
    };
    // A word alone that is no level would be taken for a module of which everything is wanted.
    for part in filter.split(',') {
        if part.trim().is_empty() || !part.contains(['=', '[']) && part.trim().parse::<LevelFilter>().is_err() {
            return Err(wrong(format!("`{part}` is not a level")));
        }
    }
    EnvFilter::builder().parse(filter).map_err(|e| wrong(e.to_string()))
}

/// Writes one event at a time, as one line.
struct EventWriter {
    json: bool,
}

impl Write for EventWriter {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let line = if self.json {
            format!("{}\n", escaped_json(text))
        } else {
            format!("callgate: {}\n", escaped(text.trim_start()))
        };
        io::stderr().write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
    use super::*;
    use callgate::shown::stands_for_itself;

    #[test]
    fn a_filter_is_levels_by_module() {
        for good in
            ["off", "error", "warn", "info", "debug", "trace", "INFO", "callgate=debug", "warn,callgate::trust=info"]
        {
            assert!(parse(good).is_ok(), "{good}");
        }
        for bad in ["verbose", "warn,loud", "callgate=loud", ""] {
            let Err(CommandFailure::Usage(said)) = parse(bad) else { unreachable!("{bad} is taken") };
            assert!(said.contains("levels are off, error, warn"), "{said}");
        }
    }

    #[test]
    fn json_stays_json() {
        let odd = "a\u{1b}[2J\u{9b}\u{202e}ü\u{1f600}\u{e0001}\n\t";
        let text = serde_json::json!({ "field": odd }).to_string();
        let line = escaped_json(&text);
        assert!(line.chars().all(stands_for_itself), "{line:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap()["field"], odd);
    }
}
