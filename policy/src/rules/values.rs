//! Values of arguments that somebody else reads: what a text may mean to them.
//!
//! A server may trim it, decode it, take it for JSON, for a path or for a glob. A rule that denies or asks is about a text if one
//! reading of it is meant, a rule that allows if all of them are.

use std::cmp::Ordering;
use std::collections::{BTreeSet, VecDeque};

use serde_json::Value;

use crate::path::{HostPath, passes_kernel_links};
use crate::pattern::PathPattern;
use crate::plan::protect::is_ignored;
use crate::shell::starts::HOLE;

use super::wildcard::meet;

/// Most values that are looked at: more of them may be anything.
pub(super) const VALUES_MAX: usize = 10_000;
/// Most readings of one text.
const READINGS_MAX: usize = 16;
/// Most bytes of all readings of a request: what has more may mean anything.
const READINGS_BYTES_MAX: usize = 8 << 20;
/// Bytes that each reading counts besides its own.
const READING_COST: usize = 64;
/// How deep JSON within texts is looked into.
const JSON_DEPTH_MAX: usize = 8;
/// Most texts that the braces of one glob stand for.
const ALTERNATIVES_MAX: usize = 64;
/// Longest text that is taken for a glob, bytes: no path is longer.
const GLOB_MAX: usize = 4096;

/// A text at one place of the arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ArgumentText {
    pub(super) text: String,
    pub(super) place: TextPlace,
}

/// Where a text stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TextPlace {
    /// A value: a text, or the JSON of a number or a truth value.
    Value,
    /// `null`, which is no value to allow.
    Null,
    /// The key of an object, that somebody has written as they write values.
    Key,
}

/// The texts of all arguments. The name of an argument is none of them, unless it is no name (`secret/key`). `None` if there are too
/// many to look at.
pub(super) fn of_arguments(arguments: &Value) -> Option<Vec<ArgumentText>> {
    let mut all = Vec::new();
    match arguments {
        Value::Object(members) => members.iter().for_each(|(name, value)| {
            let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
            if !is_name {
                all.push(ArgumentText { text: name.clone(), place: TextPlace::Key });
            }
            collect(value, &mut all);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            collect(arguments, &mut all)
        }
    }
    (all.len() <= VALUES_MAX).then_some(all)
}

/// The texts of the arguments of this name; `a.b` is `b` within `a`, also in each element of a list and in a text that is JSON.
pub(super) fn of_argument(arguments: &Value, name: &str) -> Option<Vec<ArgumentText>> {
    let mut all = Vec::new();
    named(arguments, name, JSON_DEPTH_MAX, &mut |value| collect(value, &mut all));
    (all.len() <= VALUES_MAX).then_some(all)
}

fn named(value: &Value, name: &str, depth: usize, found: &mut dyn FnMut(&Value)) {
    match value {
        Value::Object(members) => members.iter().for_each(|(key, value)| match name.strip_prefix(key.as_str()) {
            Some("") => found(value),
            Some(rest) => rest.strip_prefix('.').into_iter().for_each(|rest| named(value, rest, depth, found)),
            None => {}
        }),
        Value::Array(values) => values.iter().for_each(|value| named(value, name, depth, found)),
        Value::String(text) if depth > 0 => {
            if let Json::Inner(value) = json(text) {
                named(&value, name, depth - 1, found);
            }
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn collect(value: &Value, all: &mut Vec<ArgumentText>) {
    if all.len() > VALUES_MAX {
        return;
    }
    let mut push = |text: String, place| all.push(ArgumentText { text, place });
    match value {
        Value::Null => push(value.to_string(), TextPlace::Null),
        Value::String(text) => push(text.clone(), TextPlace::Value),
        Value::Bool(_) | Value::Number(_) => push(value.to_string(), TextPlace::Value),
        Value::Array(values) => values.iter().for_each(|value| collect(value, all)),
        Value::Object(members) => members.iter().for_each(|(key, value)| {
            all.push(ArgumentText { text: key.clone(), place: TextPlace::Key });
            collect(value, all);
        }),
    }
}

/// A text as JSON.
enum Json {
    /// It is none, or says nothing else than the text does.
    Plain,
    Inner(Value),
    /// It is nested too deeply to be read here.
    TooDeep,
}

fn json(text: &str) -> Json {
    if !text.trim_start().starts_with(['{', '[', '"']) {
        return Json::Plain;
    }
    match serde_json::from_str(text) {
        Ok(value) => Json::Inner(value),
        Err(error) if error.to_string().starts_with("recursion limit") => Json::TooDeep,
        Err(_) => Json::Plain,
    }
}

/// All readings of a text, the text first. `None` if there are too many.
fn readings(text: &str) -> Option<Vec<String>> {
    let mut all = vec![text.to_owned()];
    let mut at = 0;
    while let Some(text) = all.get(at) {
        let more = [without(text, is_hidden), Some(text.trim().to_owned()), ended(text), decoded(text)];
        for reading in more.into_iter().flatten() {
            if !all.contains(&reading) {
                all.push(reading);
            }
        }
        if all.len() > READINGS_MAX {
            return None;
        }
        at += 1;
    }
    Some(all)
}

/// True for what nobody sees.
fn is_hidden(c: char) -> bool {
    c.is_control() || is_ignored(c)
}

/// Without these characters, if it has one.
fn without(text: &str, is_one: impl Fn(char) -> bool) -> Option<String> {
    text.contains(&is_one).then(|| text.chars().filter(|c| !is_one(*c)).collect())
}

/// A prompt as it is, and without what nobody sees; a [`HOLE`] stays.
pub(super) fn as_seen(prompt: &str) -> Vec<String> {
    let seen = without(prompt, |c| c != HOLE && is_hidden(c));
    std::iter::once(prompt.to_owned()).chain(seen).collect()
}

/// As far as a program in C reads it.
fn ended(text: &str) -> Option<String> {
    text.split_once('\0').map(|(before, _)| before.to_owned())
}

/// With `%41` as the letter that it stands for.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digit = |at: usize| after.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        match digit(0).zip(digit(1)).filter(|_| *first == b'%') {
            Some((high, low)) => {
                bytes.extend(u8::try_from(high * 16 + low));
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    (bytes != text.as_bytes()).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// Bytes of readings that a request may have besides those looked at.
struct ReadingsLeft(usize);

impl ReadingsLeft {
    fn new() -> Self {
        Self(READINGS_BYTES_MAX)
    }

    /// All readings of a text, if that are not too many.
    fn of(&mut self, text: &str) -> Option<Vec<String>> {
        let readings = readings(text)?;
        let cost: usize = readings.iter().map(|reading| reading.len() + READING_COST).sum();
        self.0 = self.0.checked_sub(cost)?;
        Some(readings)
    }
}

/// True if one reading of one of these texts is meant, or of a text of JSON within one, or if there are too many to look at. Each is
/// looked at once, however many texts it is a reading of.
pub(super) fn any_reading(texts: Vec<ArgumentText>, means: &mut dyn FnMut(&str, TextPlace) -> bool) -> bool {
    let mut left = ReadingsLeft::new();
    let mut seen: BTreeSet<(TextPlace, String)> = BTreeSet::new();
    // The outer first, so that a text is looked into from where it is nested least.
    let mut open: VecDeque<(ArgumentText, usize)> = texts.into_iter().map(|text| (text, 0)).collect();
    while let Some((ArgumentText { text, place }, depth)) = open.pop_front() {
        // A reading's own readings are among those of the text that it was made of.
        if seen.contains(&(place, text.clone())) {
            continue;
        }
        let Some(readings) = left.of(&text) else { return true };
        for reading in readings {
            let key = (place, reading);
            if seen.contains(&key) {
                continue;
            }
            if means(&key.1, place) {
                return true;
            }
            match json(&key.1) {
                Json::Plain => {}
                Json::TooDeep => return true,
                Json::Inner(_) if depth >= JSON_DEPTH_MAX => return true,
                Json::Inner(value) => {
                    let mut inner = Vec::new();
                    collect(&value, &mut inner);
                    if inner.len() > VALUES_MAX {
                        return true;
                    }
                    open.extend(inner.into_iter().map(|text| (text, depth + 1)));
                }
            }
            seen.insert(key);
        }
    }
    false
}

/// True if every reading of each of these texts is covered, and there are not too many to look at.
pub(super) fn all_readings(texts: &[ArgumentText], covers: &dyn Fn(&str) -> bool) -> bool {
    let mut left = ReadingsLeft::new();
    texts.iter().all(|text| left.of(&text.text).is_some_and(|readings| readings.iter().all(|reading| covers(reading))))
}

/// A pattern's exact value, where it is a number or a truth value, which have several spellings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum PlainValue {
    Number(f64),
    Truth(bool),
}

impl PlainValue {
    pub(super) fn of(text: &str) -> Option<Self> {
        let number = || text.trim().parse().ok().filter(|number: &f64| number.is_finite()).map(Self::Number);
        match text.trim() {
            text if text.eq_ignore_ascii_case("true") => Some(Self::Truth(true)),
            text if text.eq_ignore_ascii_case("false") => Some(Self::Truth(false)),
            _ => number(),
        }
    }

    /// True if a text may be this value, to whoever reads numbers and truth values of texts.
    pub(super) fn may_be(self, text: &str) -> bool {
        let is_one_of = |names: &[&str]| names.iter().any(|name| text.eq_ignore_ascii_case(name));
        match self {
            Self::Truth(true) => is_one_of(&["true", "t", "yes", "y", "on"]) || Self::Number(1.0).may_be(text),
            Self::Truth(false) => is_one_of(&["false", "f", "no", "n", "off"]) || Self::Number(0.0).may_be(text),
            Self::Number(number) => {
                text.parse::<f64>().is_ok_and(|text| text.partial_cmp(&number).is_some_and(Ordering::is_eq))
            }
        }
    }
}

/// A path pattern, in the parts that a path of a request is compared with.
#[derive(Debug, Clone)]
pub(super) struct PathTarget {
    pattern: PathPattern,
    /// The pattern of a rule that denies or asks: with all that lies below a path.
    tightening: PathPattern,
    /// Names of the directory, or file, that it begins with.
    names: Vec<String>,
    /// Glob below that, with `*` for all that stands for several texts.
    rest: String,
}

impl PathTarget {
    pub(super) fn new(pattern: PathPattern) -> Self {
        let beginning = pattern.literal_prefix();
        let names = names(&beginning.as_path().to_string_lossy());
        let shown = pattern.to_string();
        let rest = shown.strip_prefix(&beginning.to_string()).unwrap_or_default().trim_start_matches('/');
        let rest = alternatives(&one_letter(rest))
            .map_or_else(|| "*".to_owned(), |all| if let [one] = &all[..] { starred(one) } else { "*".to_owned() });
        let tightening = pattern.clone().with_below();
        Self { pattern, tightening, names, rest }
    }

    /// True if a path is certainly meant by a rule that allows.
    fn covers(&self, path: &str) -> bool {
        self.pattern.matches(&HostPath::from(path))
    }

    /// True if a path or a glob may be meant: itself, or as the directory in which all of this lies (`is_walked`).
    fn touches(&self, path: &str, is_walked: bool) -> bool {
        let path = names(path);
        let mut left = path.iter();
        for name in &self.names {
            match left.next() {
                None => return is_walked,
                Some(glob) if glob == "**" => return true,
                Some(glob) if is_one(glob.as_bytes(), name.as_bytes()) => {}
                Some(_) => return false,
            }
        }
        let left: Vec<&str> = left.map(String::as_str).collect();
        match &left[..] {
            _ if self.tightening.is_subtree() => true,
            [] => is_walked,
            all => meet(starred(&all.join("/")).as_bytes(), self.rest.as_bytes()),
        }
    }

    /// True if a reading of a value may mean it, from one of these directories. `None` if nobody can say.
    pub(super) fn is_meant(&self, reading: &str, roots: &[HostPath], is_walked: bool) -> bool {
        let is_plain = |path: &str| {
            let is_meant = |path: &str| self.tightening.matches(&HostPath::from(path));
            leads_anywhere(path, roots)
                || from_each(path, roots).any(|path| is_meant(&path) || (is_walked && self.lies_below(&path)))
        };
        if paths(reading).iter().any(|path| is_plain(path)) {
            return true;
        }
        if !is_glob(reading) {
            return false;
        }
        paths(reading).iter().map(|path| opened(path)).any(|path| match alternatives(&one_letter(&path)) {
            None => true,
            Some(all) => all.iter().any(|glob| {
                leads_anywhere(glob, roots) || from_each(glob, roots).any(|path| self.touches(&path, is_walked))
            }),
        })
    }

    fn lies_below(&self, path: &str) -> bool {
        self.names.starts_with(&names(path))
    }
}

/// True if every path that a reading may be is meant by one of the patterns.
pub(super) fn all_covered(targets: &[PathTarget], reading: &str, roots: &[HostPath]) -> bool {
    let is_meant = |path: String| targets.iter().any(|target| target.covers(&path));
    // Whoever takes that for a name has a directory `file:`.
    let of_url = reading.strip_prefix("file://").filter(|path| path.starts_with('/'));
    let paths = paths(of_url.unwrap_or(reading));
    let is_open = is_glob(reading) && leads_out(reading);
    !is_open && !paths.is_empty() && paths.iter().all(|path| from_each(path, roots).all(&is_meant))
}

/// True if `..` is one of the names in a path or a glob.
pub(super) fn leads_out(text: &str) -> bool {
    text.split(['/', '\\', '{', ',', '}']).any(|name| name == "..")
}

/// The paths that a text may be: itself, and what a `file:` URL leads to. An empty text is none.
fn paths(text: &str) -> Vec<String> {
    let mut all = vec![text];
    let scheme = text.split_once(':').filter(|(scheme, _)| {
        scheme.to_ascii_lowercase().contains("file")
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    });
    if let Some((_, url)) = scheme {
        for url in [url, url.split(['?', '#']).next().unwrap_or_default()] {
            let behind_host = url.strip_prefix("//");
            all.push(behind_host.unwrap_or(url));
            all.extend(behind_host.and_then(|rest| Some(&rest[rest.find('/')?..])));
        }
    }
    let slashes = all.iter().filter(|text| text.contains('\\')).map(|text| text.replace('\\', "/"));
    let mut all: Vec<String> = slashes.chain(all.iter().map(|text| (*text).to_owned())).collect();
    all.retain(|path| !path.is_empty());
    all
}

/// True if a reading may be a path or a glob from one of these directories that passes links of the kernel's own.
pub(super) fn passes_links(reading: &str, roots: &[HostPath]) -> bool {
    paths(reading).iter().any(|path| leads_anywhere(path, roots))
}

fn leads_anywhere(path: &str, roots: &[HostPath]) -> bool {
    let passes = |from: &str| passes_kernel_links(from, path, |glob, name| is_one(glob.as_bytes(), name.as_bytes()));
    let root = |root: &HostPath| passes(&root.as_path().to_string_lossy());
    if path.starts_with('/') || roots.is_empty() { passes("/") } else { roots.iter().any(root) }
}

/// The absolute paths of one that is relative to any of these directories, as the kernel has them: nothing lies above `/`.
fn from_each<'a>(path: &'a str, roots: &'a [HostPath]) -> impl Iterator<Item = String> + 'a {
    let none = [HostPath::from("/")];
    let roots: Vec<HostPath> = if roots.is_empty() { none.to_vec() } else { roots.to_vec() };
    roots.into_iter().map(move |root| {
        let root = root.as_path().to_string_lossy().into_owned();
        let mut kept: Vec<&str> = Vec::new();
        let from = if path.starts_with('/') { "" } else { &root };
        for name in from.split('/').chain(path.split('/')) {
            match name {
                "" | "." => {}
                // What any number of names stand for may be left by it or not.
                ".." if kept.last() != Some(&"**") => drop(kept.pop()),
                ".." => {}
                name => kept.push(name),
            }
        }
        format!("/{}", kept.join("/"))
    })
}

fn names(path: &str) -> Vec<String> {
    path.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// True if a text may stand for other paths than the one that it spells.
fn is_glob(text: &str) -> bool {
    let has_sign = text.contains(['*', '?', '[', '{', '$']) || text.starts_with('~');
    has_sign && text.len() <= GLOB_MAX && !text.trim().contains('\n') && matches!(json(text), Json::Plain)
}

/// A path with `**` for the home that it begins with, and `*` for variables.
fn opened(path: &str) -> String {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let home = path.strip_prefix('~').map(|rest| rest.trim_start_matches(is_of_name));
    let path = match home.filter(|rest| rest.is_empty() || rest.starts_with('/')) {
        Some(rest) => format!("/**{rest}"),
        None => path.to_owned(),
    };
    let mut opened = String::with_capacity(path.len());
    let mut rest = &*path;
    while let Some((before, behind)) = rest.split_once('$') {
        opened.push_str(before);
        let name_end = |text: &str| text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
        let is_name = |name: &str| name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let after = match behind.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some((name, after)) if is_name(name) => Some(after),
            _ => Some(&behind[name_end(behind)..]).filter(|_| is_name(behind)),
        };
        opened.push_str(match after {
            // It may be an absolute path.
            Some(_) if opened.is_empty() => "/**",
            Some(_) => "*",
            None => "$",
        });
        rest = after.unwrap_or(behind);
    }
    opened.push_str(rest);
    opened
}

/// A glob with `?` for `[…]`, which is one letter too.
fn one_letter(glob: &str) -> String {
    let mut kept = String::with_capacity(glob.len());
    let mut rest = glob;
    while let Some((before, behind)) = rest.split_once('[') {
        kept.push_str(before);
        // The first in it may be `]`.
        let end = behind.char_indices().skip(1).find(|(_, c)| *c == ']').map(|(at, _)| at);
        match end {
            Some(end) => {
                kept.push('?');
                rest = &behind[end + 1..];
            }
            None => {
                kept.push('[');
                rest = behind;
            }
        }
    }
    kept.push_str(rest);
    kept
}

/// The globs that one with braces stands for; `None` if there are too many.
fn alternatives(glob: &str) -> Option<Vec<String>> {
    let (mut done, mut open) = (Vec::new(), vec![glob.to_owned()]);
    while let Some(glob) = open.pop() {
        // The innermost first: nothing within it has braces.
        let braces = glob.find('}').and_then(|end| Some((glob[..end].rfind('{')?, end)));
        let Some((start, end)) = braces.filter(|(start, end)| glob[*start..*end].contains(',')) else {
            done.push(glob);
            continue;
        };
        for one in glob[start + 1..end].split(',') {
            open.push(format!("{}{one}{}", &glob[..start], &glob[end + 1..]));
        }
        if done.len() + open.len() > ALTERNATIVES_MAX {
            return None;
        }
    }
    Some(done)
}

/// A glob with `*` for whatever stands for several texts, `/` included.
fn starred(glob: &str) -> String {
    glob.replace("**/", "*").replace('?', "*")
}

/// True if a glob of one name matches a name.
fn is_one(glob: &[u8], name: &[u8]) -> bool {
    let (mut g, mut n) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while n < name.len() {
        match glob.get(g) {
            Some(b'*') => {
                back = Some((g, n));
                g += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[n] => (g, n) = (g + 1, n + 1),
            _ => match back {
                // `?` may stand for a letter of several bytes: any of them are taken.
                Some((star, from)) => {
                    back = Some((star, from + 1));
                    (g, n) = (star + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    glob[g..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text that is a reading of many is looked at once, so that nested JSON costs what it is long.
    #[test]
    fn each_reading_is_looked_at_once() {
        let nest = |text: String, _| format!(" \n[\"%2541\", {}]\t", Value::from(text));
        let looked_at = |depth: usize| {
            let text = (0..depth).fold("x".to_owned(), nest);
            let mut count = 0;
            let mut look = |_: &str, _| {
                count += 1;
                false
            };
            let is_meant = any_reading(vec![ArgumentText { text, place: TextPlace::Value }], &mut look);
            (is_meant, count)
        };
        let counts: Vec<(bool, usize)> = (1..=JSON_DEPTH_MAX).map(looked_at).collect();
        assert!(counts.iter().all(|(is_meant, count)| !is_meant && *count <= 400), "{counts:?}");
        assert!(looked_at(JSON_DEPTH_MAX + 1).0, "deeper than anybody looks");
    }

    /// The readings of a request are bounded: beyond that anything is meant, and nothing covered.
    #[test]
    fn the_readings_of_a_request_are_bounded() {
        let texts = |bytes: usize| -> Vec<ArgumentText> {
            let text = |at: usize| ArgumentText { text: format!("{at:0>32768}"), place: TextPlace::Value };
            (0..bytes >> 15).map(text).collect()
        };
        let mut looked_at = 0;
        let mut look = |reading: &str, _| {
            looked_at += reading.len();
            false
        };
        assert!(any_reading(texts(2 * READINGS_BYTES_MAX), &mut look) && looked_at <= READINGS_BYTES_MAX);
        assert!(!any_reading(texts(READINGS_BYTES_MAX / 2), &mut |_, _| false));
        assert!(!all_readings(&texts(2 * READINGS_BYTES_MAX), &|_| true));
        assert!(all_readings(&texts(READINGS_BYTES_MAX / 2), &|_| true));
    }
}
