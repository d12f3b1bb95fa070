//! Sizes and times as people write them. Forty lines of our own rather than two crates: `humantime` reads `1month`,
//! `bytesize` takes `2GB` and `2GiB` for different sizes; a limit should have one reading.

use std::fmt;
use std::time::Duration;

/// A size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// Text that is no size or no time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnitError {
    /// Not a duration.
    #[error("{0:?} is not a duration above zero; write a whole number and `ms`, `s`, `m` or `h`: `120s`")]
    Duration(String),
    /// Not a size.
    #[error("{0:?} is not a size above zero; write a whole number and `B`, `KiB`, `MiB`, `GiB` or `TiB`: `2GiB`")]
    Size(String),
}

/// Reads `500ms`, `120s`, `5m` or `1h`.
///
/// # Errors
///
/// [`UnitError::Duration`], also for zero, which would stop every call.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let millis = |unit: &str| match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    scaled(text, millis).map(Duration::from_millis).ok_or_else(|| UnitError::Duration(text.to_owned()))
}

impl ByteSize {
    /// Reads `512B`, `64KiB`, `256MiB`, `2GiB` or `1TiB`.
    ///
    /// # Errors
    ///
    /// [`UnitError::Size`], also for zero and for units whose size is disputed (`MB`).
    pub fn parse(text: &str) -> Result<Self, UnitError> {
        let bytes = |unit: &str| match unit {
            "B" => Some(1),
            "KiB" => Some(1 << 10),
            "MiB" => Some(1 << 20),
            "GiB" => Some(1 << 30),
            "TiB" => Some(1 << 40),
            _ => None,
        };
        scaled(text, bytes).map(Self).ok_or_else(|| UnitError::Size(text.to_owned()))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match units.iter().find(|(size, _)| self.0 >= *size && self.0.is_multiple_of(*size)) {
            Some((size, unit)) => write!(f, "{}{unit}", self.0 / size),
            None => write!(f, "{}B", self.0),
        }
    }
}

fn scaled(text: &str, scale: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(scale(unit)?).filter(|scaled| *scaled > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_have_one_reading() {
        assert_eq!(parse_duration("120s"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_duration("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(ByteSize::parse("2GiB"), Ok(ByteSize(2 << 30)));
        assert_eq!(ByteSize(3 << 20).to_string(), "3MiB");
        for text in ["", "0s", "5", "s", "-1s", "1.5s", "1 s", "1d", "18446744073709551615h"] {
            assert!(parse_duration(text).is_err(), "{text:?}");
        }
        for text in ["2GB", "2g", "0B", "1K", "99999999TiB"] {
            assert!(ByteSize::parse(text).is_err(), "{text:?}");
        }
    }
}
