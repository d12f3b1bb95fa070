//! The forms in which a credential can stand in a text: as it is, escaped for JSON, encoded for a URL, in base64.
//!
//! Whoever repeats what it was sent often does so in another form: a header in a page of JSON, an URL in an error, `user:value` as
//! Basic authentication has it.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use crate::credentials::SHORTEST;

/// A credential in all of its forms.
pub(super) struct Forms {
    /// The value, and its base64 behind none, one or two other bytes of a group of three.
    needles: Vec<Needle>,
}

/// Text that is looked for, however each of its characters is written.
struct Needle {
    /// Without backslashes, which are passed over in texts: so it does not matter how often they were escaped.
    chars: Vec<u8>,
    /// It is a part of a word in base64, in which more may be secret.
    is_base64: bool,
}

impl Forms {
    pub(super) fn of(value: &str) -> Self {
        let chars: Vec<u8> = value.bytes().filter(|byte| *byte != b'\\').collect();
        let mut needles = Vec::new();
        if chars.len() >= SHORTEST {
            needles.push(Needle { chars, is_base64: false });
        }
        let mut base64: Vec<_> = [STANDARD_NO_PAD, URL_SAFE_NO_PAD].iter().flat_map(|how| inner(value, how)).collect();
        base64.sort();
        base64.dedup();
        needles.extend(base64.into_iter().map(|chars| Needle { chars, is_base64: true }));
        Self { needles }
    }

    /// True if any of them is in a text.
    pub(super) fn are_in(&self, text: &str) -> bool {
        self.needles.iter().any(|needle| needle.find(text.as_bytes(), 0).is_some())
    }

    /// The text with `instead` in place of each; `None` if there is none.
    pub(super) fn replaced(&self, text: &str, instead: &str) -> Option<String> {
        let mut clean = None;
        for needle in &self.needles {
            let replaced = needle.replaced(clean.as_deref().unwrap_or(text), instead);
            clean = replaced.or(clean);
        }
        clean
    }
}

/// The characters of a value's base64 that are the same whatever stands before and behind it, for each place that it can have in a
/// group of three bytes.
fn inner(value: &str, how: &GeneralPurpose) -> [Vec<u8>; 3] {
    [0, 1, 2].map(|before| {
        let whole = how.encode([&vec![0; before], value.as_bytes()].concat());
        let (from, to) = ((before * 8).div_ceil(6), (before + value.len()) * 8 / 6);
        whole.as_bytes().get(from..to).unwrap_or_default().to_vec()
    })
}

impl Needle {
    fn replaced(&self, text: &str, instead: &str) -> Option<String> {
        let mut found = self.find(text.as_bytes(), 0)?;
        let (mut clean, mut done) = (String::with_capacity(text.len()), 0);
        loop {
            // Both ends are beside ASCII.
            clean.push_str(text.get(done..found.start).unwrap_or_default());
            clean.push_str(instead);
            done = found.end;
            match self.find(text.as_bytes(), done) {
                Some(next) => found = next,
                None => break,
            }
        }
        clean.push_str(text.get(done..).unwrap_or_default());
        Some(clean)
    }

    /// Where it stands first, from there on.
    fn find(&self, text: &[u8], from: usize) -> Option<Range<usize>> {
        let first = *self.chars.first()?;
        let may_begin = |byte: u8| byte == first || matches!(byte, b'%' | b'\\') || (byte == b'+' && first == b' ');
        let in_run = |at: usize| at > from && text.get(at) == Some(&b'\\') && text.get(at - 1) == Some(&b'\\');
        let mut starts = (from..text.len()).filter(|at| text.get(*at).is_some_and(|byte| may_begin(*byte)));
        // Of many backslashes the first is enough: else they would be looked through for each.
        let found = starts.find_map(|at| if in_run(at) { None } else { Some(at..self.end(text, at)?) })?;
        if !self.is_base64 {
            return Some(found);
        }
        let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte);
        let before = text.get(from..found.start).unwrap_or_default().iter().rev().take_while(is_part).count();
        let behind = text.get(found.end..).unwrap_or_default().iter();
        let behind = behind.take_while(|byte| is_part(byte) || **byte == b'=').count();
        Some(found.start - before..found.end + behind)
    }

    /// Where it ends, if it begins here.
    fn end(&self, text: &[u8], mut at: usize) -> Option<usize> {
        for (number, wanted) in self.chars.iter().enumerate() {
            loop {
                let (byte, next) = written(text, at)?;
                at = next;
                match byte {
                    b'\\' if number > 0 => {}
                    b'+' if *wanted == b' ' => break,
                    byte if byte == *wanted => break,
                    _ => return None,
                }
            }
        }
        Some(at)
    }
}

/// The byte that is written from there on, as itself, as `%2B` or as `\u002b`, behind any number of backslashes; and where the next one
/// begins.
fn written(text: &[u8], at: usize) -> Option<(u8, usize)> {
    let escapes = text.get(at..)?.iter().take_while(|byte| **byte == b'\\').count();
    let at = at + escapes;
    let hex = |from: usize| {
        let two = std::str::from_utf8(text.get(from..from + 2)?).ok()?;
        two.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u8::from_str_radix(two, 16).ok())?
    };
    let byte = *text.get(at)?;
    let coded = match byte {
        b'%' => hex(at + 1).map(|byte| (byte, at + 3)),
        b'u' if escapes > 0 && text.get(at + 1..at + 3) == Some(b"00") => hex(at + 3).map(|byte| (byte, at + 5)),
        _ => None,
    };
    Some(coded.unwrap_or((byte, at + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &str = r#"k3y/with+"odd\ parts"#;

    fn clean(text: &str) -> String {
        let forms = Forms::of(VALUE);
        let replaced = forms.replaced(text, "[-]");
        assert_eq!(forms.are_in(text), replaced.is_some(), "{text}");
        replaced.unwrap_or_else(|| text.to_owned())
    }

    /// X1-31: in every form that a server, or the library that it is written with, may give it.
    #[test]
    fn x1_31_a_credential_is_found_in_each_of_its_forms() {
        let json = |text: &str| serde_json::Value::from(text).to_string();
        let once = json(VALUE);
        let inside = once.trim_matches('"').to_owned();
        for form in [
            VALUE.to_owned(),
            once.clone(),
            json(&once),
            json(&json(&once)),
            inside.replace('/', "\\/"),
            inside.replace('+', "\\u002b").replace("\\\"", "\\u0022"),
            // encodeURIComponent, a form, all of it, and in small letters.
            "k3y%2Fwith%2B%22odd%5C%20parts".to_owned(),
            "k3y%2fwith%2b%22odd%5c+parts".to_owned(),
            "k3y/with%2B%22odd%5c%20parts".to_owned(),
            VALUE.bytes().map(|byte| format!("%{byte:02X}")).collect(),
        ] {
            let shown = clean(&format!("before {form} ü{form}"));
            for part in ["k3y", "odd", "parts", "6B"] {
                assert!(!shown.contains(part), "{form}: {shown}");
            }
            assert!(shown.starts_with("before ") && shown.matches("[-]").count() == 2, "{form}: {shown}");
        }
        for how in [base64::engine::general_purpose::STANDARD, base64::engine::general_purpose::URL_SAFE] {
            for text in [VALUE.to_owned(), format!("me:{VALUE}"), format!("user:{VALUE}"), format!("u:{VALUE} more")] {
                let word = how.encode(text);
                assert_eq!(clean(&format!("Basic {word}; {word}, ü")), "Basic [-]; [-], ü");
                let shown = clean(&word.replace('/', "\\/").replace('+', "%2B"));
                assert!(shown.contains("[-]") && shown.len() < 20, "{shown}");
            }
        }
        for other in ["", "k3y/with+", "%", "\\", "\\u00", "%2", "before k3y%2", "\\\\\\\\", "dXNlcjpvdGhlcg=="] {
            assert_eq!(clean(other), other);
        }
    }

    /// A stranger's text does not take longer by being made for it.
    #[test]
    fn a_text_of_escapes_is_looked_through_once() {
        for part in ["\\", "%5C", "k\\", "k%5c", "k3y/with+\\", "%"] {
            let text = part.repeat(20_000);
            assert_eq!(clean(&text), text);
        }
    }
}
