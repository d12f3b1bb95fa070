//! The password of a call's connection, and its absence from what a model is shown: a server that was given it may say it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::Value;

use crate::{ToolError, ToolResult};

/// In place of it.
const REDACTED: &str = "[REDACTED]";
/// A shorter one would be found everywhere.
const SHORTEST: usize = 8;

/// A password, in the forms in which it is looked for.
pub(super) struct Secret(Vec<String>);

impl Secret {
    /// Secret of a password that is long enough to be looked for.
    pub(super) fn of(password: &str) -> Option<Self> {
        let bytes = password.as_bytes();
        let hexadecimal = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        // What stands before it in a longer text moves its digits; those at its edges have bits of its neighbours.
        let encoded = (0..3_usize).map(|before| {
            let digits = STANDARD_NO_PAD.encode([&[0; 2][..before], bytes].concat());
            let ends = digits.len() - usize::from(!(before + bytes.len()).is_multiple_of(3));
            digits[(before * 4).div_ceil(3)..ends].to_owned()
        });
        let forms = [password.to_owned(), hexadecimal].into_iter().chain(encoded).collect();
        (bytes.len() >= SHORTEST).then_some(Self(forms))
    }

    fn text(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, form| text.replace(form, REDACTED))
    }

    fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => self.text(&text).into(),
            Value::Array(all) => all.into_iter().map(|one| self.value(one)).collect(),
            Value::Object(all) => all.into_iter().map(|(name, one)| (self.text(&name), self.value(one))).collect(),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other,
        }
    }

    /// Result without it.
    pub(super) fn kept_out_of(&self, done: Result<ToolResult, ToolError>) -> Result<ToolResult, ToolError> {
        match done {
            Ok(output) => Ok(ToolResult { data: self.value(output.data), ..output }),
            Err(ToolError::Remote { what, why, code }) => Err(ToolError::Remote { what, why: self.text(&why), code }),
            Err(other) => Err(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use callgate_policy::failure::ErrorCode;
    use serde_json::json;

    use super::*;

    /// S4-19: in no form does a server's answer bring it to a model.
    #[test]
    fn s4_19_a_password_that_a_server_says_is_not_shown() {
        let password = "admin-secret-pw-91";
        let secret = Secret::of(password).expect("it is long enough");
        for before in ["", "a", "ab", "abc"] {
            for behind in ["", "y", "yz"] {
                let digits = STANDARD_NO_PAD.encode(format!("{before}{password}{behind}"));
                let why = format!("no: {password}; {digits}");
                let what = "postgres x".to_owned();
                let error = ToolError::Remote { what, why, code: ErrorCode::Forbidden };
                let text = secret.kept_out_of(Err(error)).expect_err("it failed").text();
                let left: String = text.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
                assert!(
                    text.starts_with("postgres x: no: [REDACTED]; ") && left.len() < 55,
                    "{before} {behind}: {text}"
                );
            }
        }
        let data = json!({ "rows": [[format!("x{password}"), 5, null]], "content": password });
        let output = secret.kept_out_of(Ok(ToolResult::of(data, false))).expect("rows");
        assert_eq!(output.data, json!({ "rows": [["x[REDACTED]", 5, null]], "content": "[REDACTED]" }));
        assert!(Secret::of("tea").is_none());
    }
}
