//! The ports of a host pattern: single ones, lists and ranges.

use std::fmt;
use std::ops::RangeInclusive;

use crate::pattern::PatternError;

/// The port of HTTP in the clear.
const HTTP: u16 = 80;
/// The port of HTTP by TLS.
const HTTPS: u16 = 443;

/// The ports that a pattern covers.
///
/// A port that is named by its number is granted for whatever is said there. A pattern that grants and has no ports means
/// `http,https`: ports 80 and 443, for HTTP and TLS alone; one that denies means all. Where one grant says `:443` and a bound says `:https`, what both grant is `:https`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ports {
    /// In order, with a gap after each.
    any: Vec<(u16, u16)>,
    /// 80, for HTTP alone. Not if `any` holds it.
    http: bool,
    /// 443, for TLS alone. Not if `any` holds it.
    https: bool,
}

impl Ports {
    /// Every port.
    pub const ALL: RangeInclusive<u16> = 1..=u16::MAX;

    /// Ports of a pattern that denies and names none.
    pub(super) fn all() -> Self {
        Self { any: vec![(*Self::ALL.start(), *Self::ALL.end())], http: false, https: false }
    }

    /// Ports of a pattern that grants and names none.
    pub(super) fn web() -> Self {
        Self { any: Vec::new(), http: true, https: true }
    }

    /// One, whatever is said there.
    pub(super) fn one(port: u16) -> Self {
        Self { any: vec![(port, port)], http: false, https: false }
    }

    /// Reads what follows the colon: ports, ranges, `http`, `https` and `*`, with commas between.
    pub(super) fn parse(text: &str) -> Result<Self, PatternError> {
        let (mut any, mut http, mut https) = (Vec::new(), false, false);
        for item in text.split(',') {
            match item {
                "*" => any.extend(Self::all().any),
                "http" => http = true,
                "https" => https = true,
                _ => any.push(range(item)?),
            }
        }
        Ok(Self::of(any, http, https))
    }

    fn of(mut any: Vec<(u16, u16)>, http: bool, https: bool) -> Self {
        any.sort_unstable();
        let mut joined: Vec<(u16, u16)> = Vec::with_capacity(any.len());
        for (first, last) in any {
            match joined.last_mut() {
                Some((_, end)) if u32::from(first) <= u32::from(*end) + 1 => *end = last.max(*end),
                Some(_) | None => joined.push((first, last)),
            }
        }
        let named = |port| joined.iter().any(|(first, last)| (*first..=*last).contains(&port));
        let (http, https) = (http && !named(HTTP), https && !named(HTTPS));
        Self { any: joined, http, https }
    }

    /// True if a port is one of them.
    #[must_use]
    pub fn holds(&self, port: u16) -> bool {
        self.holds_for_all(port) || (self.http && port == HTTP) || (self.https && port == HTTPS)
    }

    /// True if a port is one of them, whatever is said there.
    #[must_use]
    pub fn holds_for_all(&self, port: u16) -> bool {
        self.any.iter().any(|(first, last)| (*first..=*last).contains(&port))
    }

    /// All of them.
    pub fn ranges(&self) -> impl Iterator<Item = RangeInclusive<u16>> + '_ {
        let web = [(HTTP, self.http), (HTTPS, self.https)].into_iter().filter(|(_, granted)| *granted);
        self.any.iter().map(|(first, last)| *first..=*last).chain(web.map(|(port, _)| port..=port))
    }

    pub(crate) fn is_web(&self) -> bool {
        *self == Self::web()
    }

    pub(super) fn within(&self, other: &Self) -> bool {
        let lies_in = |(first, last): &(u16, u16)| other.any.iter().any(|(low, high)| low <= first && last <= high);
        self.any.iter().all(lies_in) && (!self.http || other.holds(HTTP)) && (!self.https || other.holds(HTTPS))
    }

    /// Intersection; `None` for nothing.
    pub(super) fn meet(&self, other: &Self) -> Option<Self> {
        let pairs = self.any.iter().flat_map(|mine| other.any.iter().map(move |theirs| (mine, theirs)));
        let both = pairs.map(|(mine, theirs)| (mine.0.max(theirs.0), mine.1.min(theirs.1)));
        let any = both.filter(|(first, last)| first <= last).collect();
        let web = |port| self.holds(port) && other.holds(port);
        let ports = Self::of(any, web(HTTP), web(HTTPS));
        let is_empty = ports.any.is_empty() && !ports.http && !ports.https;
        (!is_empty).then_some(ports)
    }
}

/// Without the colon.
impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (name, granted) in [("http", self.http), ("https", self.https)] {
            if granted {
                write!(f, "{between}{name}")?;
                between = ",";
            }
        }
        for (first, last) in &self.any {
            f.write_str(between)?;
            between = ",";
            match (first, last) {
                _ if (*first..=*last) == Self::ALL => f.write_str("*")?,
                _ if first == last => write!(f, "{first}")?,
                _ => write!(f, "{first}-{last}")?,
            }
        }
        Ok(())
    }
}

fn range(text: &str) -> Result<(u16, u16), PatternError> {
    let refused = || PatternError::Port(text.to_owned());
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (port(first).ok_or_else(refused)?, port(last).ok_or_else(refused)?);
    if first <= last { Ok((first, last)) } else { Err(refused()) }
}

fn port(text: &str) -> Option<u16> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    if plain { text.parse().ok() } else { None }
}
