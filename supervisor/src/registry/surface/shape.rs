//! Shapes of a result on its way to a surface (C-13): the names that its product has, over the same content.

use callgate_tools::HEAD;
use serde_json::{Map, Value, json};

/// Treatment of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::registry) enum Shape {
    /// Nothing.
    AsItIs,
    /// X2-15.
    GrepFiles,
    /// S2-9: each result has a `ref_id` by which it is cited.
    Cited,
    /// X2-17.
    Fetched,
    /// X2-14: what was written, by the path that was given.
    Replaced,
    /// X4-9: text is cut to this many bytes, its head and its end.
    HeadAndTail(usize),
    /// S4-12, X4-8: the same of a program's, with its seconds.
    Ran(usize),
}

impl Shape {
    /// The result as it is seen, and whether some of it was cut off.
    pub(super) fn apply(self, data: Value, truncated: bool) -> (Value, bool) {
        let Value::Object(mut data) = data else { return (data, truncated) };
        match self {
            Self::AsItIs => {}
            Self::GrepFiles => return (grep_files(data, truncated), truncated),
            Self::Cited => {
                let results = data.get_mut("results").and_then(Value::as_array_mut);
                for (number, result) in results.into_iter().flatten().enumerate() {
                    result["ref_id"] = format!("web_{}", number + 1).into();
                }
            }
            Self::Fetched => {
                if let Some(head) = data.remove(HEAD) {
                    data.insert("content".to_owned(), head);
                }
                let cut = truncated || data.get("body_cut") == Some(&Value::Bool(true));
                data.insert("truncated".to_owned(), cut.into());
            }
            Self::Replaced => {
                if let Some(count) = data.remove("count") {
                    data.insert("replacements".to_owned(), count);
                }
            }
            Self::HeadAndTail(most) => {
                let cut = head_and_tail(&mut data, "content", most);
                return (data.into(), truncated || cut);
            }
            Self::Ran(most) => {
                let cut = head_and_tail(&mut data, "output", most);
                return (ran(data), truncated || cut);
            }
        }
        (data.into(), truncated)
    }
}

fn grep_files(mut data: Map<String, Value>, truncated: bool) -> Value {
    let matches = data.remove("matches").or_else(|| data.remove(HEAD)).unwrap_or_else(|| json!([]));
    let of_one = |mut one: Value| {
        let mut take = |name: &str| one.get_mut(name).map(Value::take).unwrap_or_default();
        let (file, number, line) = (take("path"), take("line"), take("text"));
        let (before, after) = (take("before"), take("after"));
        let mut seen = Map::new();
        // What a name or a text that is not UTF-8 really is stays with it.
        if let Value::Object(rest) = one {
            seen.extend(rest.into_iter().filter(|(_, value)| !value.is_null()));
        }
        let fields = [
            ("file", file),
            ("line_number", number),
            ("line", line),
            ("context_before", before),
            ("context_after", after),
        ];
        seen.extend(fields.map(|(name, value)| (name.to_owned(), value)));
        Value::Object(seen)
    };
    let Value::Array(matches) = matches else { return data.into() };
    let matches: Vec<Value> = matches.into_iter().map(of_one).collect();
    data.insert("total_matches".to_owned(), matches.len().into());
    data.insert("matches".to_owned(), matches.into());
    data.insert("truncated".to_owned(), truncated.into());
    data.into()
}

/// S4's result of a shell.
fn ran(mut data: Map<String, Value>) -> Value {
    let timed_out = data.get("timed_out") == Some(&Value::Bool(true));
    if timed_out {
        data.insert("exit_code".to_owned(), (-1).into());
    }
    data.into()
}

/// Cuts the text of this name, or the first part of it, in its middle, and says how many lines it had.
fn head_and_tail(data: &mut Map<String, Value>, name: &str, most: usize) -> bool {
    if let Some(head) = data.remove(HEAD) {
        data.insert(name.to_owned(), head);
    }
    let Some(Value::String(text)) = data.get_mut(name) else { return false };
    if text.len() <= most {
        return false;
    }
    let lines = text.lines().count();
    let (head, tail) = (text.floor_char_boundary(most / 2), text.ceil_char_boundary(text.len() - most / 2));
    let cut = tail - head;
    *text = format!(
        "[{lines} lines in all; {cut} bytes in the middle are left out]\n{}\n[…]\n{}",
        &text[..head],
        &text[tail..]
    );
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// X4-9: head and end, each half of what there is room for, and how long it was; at the limit nothing is cut.
    #[test]
    fn x4_9_a_long_text_keeps_its_head_and_its_end() {
        let whole = json!({ "content": "ä".repeat(10) });
        assert_eq!(Shape::HeadAndTail(20).apply(whole.clone(), false), (whole, false));
        let (cut, is_cut) =
            Shape::HeadAndTail(20).apply(json!({ "content": format!("a{}\nz", "ä".repeat(10)) }), false);
        assert!(is_cut);
        assert_eq!(cut["content"], "[2 lines in all; 4 bytes in the middle are left out]\naääää\n[…]\nääää\nz");
    }

    /// X2-15: the names of S2, and what is not UTF-8 stays with its line.
    #[test]
    fn x2_15_matches_have_the_names_of_s2() {
        let found = json!({ "head": [{ "path": "/a", "path_b64": "YQ==", "line": 3, "text": "x", "before": ["b"], "after": [] }], "files_searched": 2 });
        let expected = json!({
            "matches": [{ "file": "/a", "path_b64": "YQ==", "line_number": 3, "line": "x", "context_before": ["b"], "context_after": [] }],
            "files_searched": 2, "total_matches": 1, "truncated": true,
        });
        assert_eq!(Shape::GrepFiles.apply(found, true), (expected, true));
    }
}
