//! Arguments of a call, each read as the type that its tool's schema gives it.

use serde_json::Value;

use super::error::ToolError;
use super::message::shorten;

/// The optional argument `name`, an integer of at least `least`.
///
/// `2.0` is an integer too: JSON Schema 2020-12 says so, and some models write it.
pub(super) fn integer(
    args: &Value,
    name: &'static str,
    least: u64,
    wants: &'static str,
) -> Result<Option<u64>, ToolError> {
    /// Up to here every integer has its own f64.
    const EXACT: f64 = 9_007_199_254_740_992.0;

    let Some(value) = args.get(name) else { return Ok(None) };
    let whole = |n: &f64| n.fract() == 0.0 && (0.0..=EXACT).contains(n);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`whole` holds: in range, no fraction")]
    let number = value.as_u64().or_else(|| value.as_f64().filter(whole).map(|n| n as u64));
    match number.filter(|&n| n >= least) {
        Some(number) => Ok(Some(number)),
        None => Err(ToolError::Argument { name, wants, found: shorten(value) }),
    }
}

/// The optional argument `name`, a string.
pub(super) fn text<'a>(args: &'a Value, name: &'static str, wants: &'static str) -> Result<Option<&'a str>, ToolError> {
    match args.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(ToolError::Argument { name, wants, found: shorten(other) }),
    }
}

/// The argument `name`, a string that must be there.
pub(super) fn required_text<'a>(args: &'a Value, name: &'static str) -> Result<&'a str, ToolError> {
    let missing = || ToolError::Argument { name, wants: "a string", found: "missing".to_owned() };
    text(args, name, "a string")?.ok_or_else(missing)
}

/// The optional argument `name`, a yes or no; no by default.
pub(super) fn flag(args: &Value, name: &'static str) -> Result<bool, ToolError> {
    match args.get(name) {
        None => Ok(false),
        Some(Value::Bool(yes)) => Ok(*yes),
        Some(other) => Err(ToolError::Argument { name, wants: "true or false", found: shorten(other) }),
    }
}

/// True if a surface has told this: it says so by 1.
pub(super) fn is_told(args: &Value, name: &str) -> bool {
    args[name].as_u64() == Some(1)
}

/// The optional argument `name`, a list of strings; empty by default.
pub(super) fn list_of_text<'a>(args: &'a Value, name: &'static str) -> Result<Vec<&'a str>, ToolError> {
    let wrong = |found: &Value| ToolError::Argument { name, wants: "a list of strings", found: shorten(found) };
    match args.get(name) {
        None => Ok(Vec::new()),
        Some(list) => {
            let texts = list.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
            texts.ok_or_else(|| wrong(list))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn integers_are_what_json_schema_calls_integers() {
        let wants = "a whole number of at least 1";
        for (value, expected) in [(json!(1), 1), (json!(2.0), 2), (json!(u64::MAX), u64::MAX)] {
            assert_eq!(integer(&json!({ "n": value }), "n", 1, wants).expect("an integer"), Some(expected));
        }
        assert_eq!(integer(&json!({}), "n", 1, wants).expect("absent"), None);
        for value in [json!(0), json!(-1), json!(1.5), json!("1"), json!(null), json!(1e300), json!([1])] {
            let error = integer(&json!({ "n": value }), "n", 1, wants).expect_err("no such line");
            assert!(matches!(error, ToolError::Argument { name: "n", .. }), "{value}: {error}");
        }
        let long = integer(&json!({ "n": "ü".repeat(500) }), "n", 1, wants).expect_err("a string");
        assert!(long.to_string().len() < 120, "{long}");
    }
}
