//! Outcome of an act: facts it saw, or the one call that failed.

use crate::probe::errno;
use serde_json::{Map, Value, json};

/// Facts that an act saw, as members of its JSON line.
pub type ActOutcome = Result<Value, ActFailure>;

/// Reason why an act did not succeed.
pub enum ActFailure {
    /// The kernel said no, to this call.
    Errno { at: String, number: i32 },
    /// The kernel killed the process that tried.
    Signal { at: String, number: i32 },
    /// The act was never tried: its arguments or its surroundings do not allow it.
    Unready(String),
}

impl ActFailure {
    pub fn errno(at: &str, number: i32) -> Self {
        Self::Errno { at: at.to_owned(), number }
    }

    pub fn signal(at: &str, number: i32) -> Self {
        Self::Signal { at: at.to_owned(), number }
    }

    pub fn unready(why: impl Into<String>) -> Self {
        Self::Unready(why.into())
    }

    /// A failure of the standard library, by its errno.
    pub fn io(at: &str, error: &std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(number) => Self::errno(at, number),
            None => Self::unready(format!("{at}: {error}")),
        }
    }

    pub fn is_errno(&self, wanted: i32) -> bool {
        self.errno_number() == wanted
    }

    pub fn errno_number(&self) -> i32 {
        match self {
            Self::Errno { number, .. } => *number,
            Self::Signal { .. } | Self::Unready(_) => 0,
        }
    }
}

/// The line for the act `name`, or why there is none.
pub fn line(name: &str, outcome: ActOutcome) -> Result<Value, String> {
    let mut line = Map::new();
    line.insert("act".to_owned(), json!(name));
    match outcome {
        Ok(facts) => {
            line.insert("ok".to_owned(), json!(true));
            if let Value::Object(facts) = facts {
                line.extend(facts);
            }
        }
        Err(ActFailure::Errno { at, number }) => {
            line.insert("ok".to_owned(), json!(false));
            line.insert("errno".to_owned(), json!(number));
            line.insert("name".to_owned(), json!(errno::name(number)));
            line.insert("at".to_owned(), json!(at));
        }
        Err(ActFailure::Signal { at, number }) => {
            line.insert("ok".to_owned(), json!(false));
            line.insert("signal".to_owned(), json!(number));
            line.insert("at".to_owned(), json!(at));
        }
        Err(ActFailure::Unready(why)) => return Err(why),
    }
    Ok(Value::Object(line))
}

/// The words after the act's name.
pub struct ActArgs<'a>(pub &'a [String]);

impl ActArgs<'_> {
    pub fn word(&self, index: usize) -> Result<&str, ActFailure> {
        self.0
            .get(index)
            .map(String::as_str)
            .ok_or_else(|| ActFailure::unready(format!("argument {} is missing", index + 1)))
    }

    pub fn word_or<'a>(&'a self, index: usize, default: &'a str) -> &'a str {
        self.0.get(index).map_or(default, String::as_str)
    }

    pub fn path(&self, index: usize) -> Result<std::ffi::CString, ActFailure> {
        self.word(index).map(crate::sys::probe::c)
    }

    /// A number: decimal, 0x hexadecimal or 0 octal.
    pub fn number(&self, index: usize) -> Result<i64, ActFailure> {
        let word = self.word(index)?;
        number(word).ok_or_else(|| ActFailure::unready(format!("{word} is no number")))
    }

    pub fn number_or(&self, index: usize, default: i64) -> Result<i64, ActFailure> {
        if self.0.len() <= index {
            return Ok(default);
        }
        self.number(index)
    }

    pub fn pid(&self, index: usize) -> Result<i32, ActFailure> {
        i32::try_from(self.number(index)?).map_err(|_too_large| ActFailure::unready("no process number".to_owned()))
    }

    pub fn rest(&self, from: usize) -> &[String] {
        self.0.get(from..).unwrap_or_default()
    }
}

/// A number: decimal, 0x hexadecimal or 0 octal.
pub fn number(word: &str) -> Option<i64> {
    if let Some(hexadecimal) = word.strip_prefix("0x") {
        return u64::from_str_radix(hexadecimal, 16).ok().map(u64::cast_signed);
    }
    match word.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => i64::from_str_radix(octal, 8).ok(),
        Some(_) | None => word.parse().ok(),
    }
}
