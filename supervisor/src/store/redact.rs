//! Redaction of what is not written down: secrets, and more of a text than anybody reads (X1-31).

use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

use callgate_policy::manifest::Env;
use callgate_policy::plan::env::is_secret_name;
use regex::Regex;
use serde_json::Value;

use super::forms::Forms;
use crate::credentials::SHORTEST;
use crate::host;

/// In place of a secret.
const REDACTED: &str = "[REDACTED]";
/// Most bytes of a text that are kept.
const LONGEST: usize = 65_536;
/// Most bytes that the arguments or the result of one call may take altogether.
const WHOLE: usize = 4 * 1024 * 1024;

/// Tokens that are known by how they begin: of OpenAI, Anthropic and others (`sk-`), GitHub, Google, Slack, AWS, GitLab, npm.
static TOKENS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let begins = "sk-|gh[pousr]_|github_pat_|AIza|xox[abpr]-|AKIA|ASIA|glpat-|npm_";
    Regex::new(&format!(r"\b(?:{begins})[A-Za-z0-9_\-]{{8,}}")).ok()
});

/// Secrets that a session knows.
#[derive(Default)]
pub(crate) struct Redaction {
    /// The values, longest first: one may be a part of another.
    secrets: Vec<String>,
    /// Credentials. They are few, so that they are looked for in other forms as well.
    credentials: Vec<Forms>,
}

impl fmt::Debug for Redaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (secrets, credentials) = (self.secrets.len(), self.credentials.len());
        f.debug_struct("Redaction").field("secrets", &secrets).field("credentials", &credentials).finish()
    }
}

impl Redaction {
    /// The values of variables that are called as secrets are: of this process, and of the session.
    pub(crate) fn of(env: &Env) -> Self {
        let own = host::variables().filter(|(name, _)| is_secret_name(name));
        let set =
            env.set.iter().filter(|(name, _)| is_secret_name(name)).map(|(name, value)| (name.clone(), value.clone()));
        // A path names a secret, and is none (SSH_AUTH_SOCK).
        let is_secret = |value: &String| value.len() >= SHORTEST && !value.starts_with('/');
        Self::default().with(own.chain(set).map(|(_, value)| value).filter(is_secret))
    }

    /// These secrets, and these values of credentials, none of which is shorter than [`SHORTEST`], in whichever form
    /// they stand.
    pub(crate) fn and<'a>(mut self, values: impl Iterator<Item = &'a str>) -> Self {
        let mut values: Vec<_> = values.map(str::to_owned).collect();
        values.sort();
        values.dedup();
        self.credentials.extend(values.iter().map(|value| Forms::of(value)));
        self.with(values.into_iter())
    }

    fn with(mut self, secrets: impl Iterator<Item = String>) -> Self {
        self.secrets.extend(secrets);
        self.secrets.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        self.secrets.dedup();
        self
    }

    /// A text without secrets, cut to what is kept.
    pub(crate) fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut clean = Cow::Borrowed(text);
        for secret in &self.secrets {
            if clean.contains(secret.as_str()) {
                clean = Cow::Owned(clean.replace(secret.as_str(), REDACTED));
            }
        }
        for credential in &self.credentials {
            if let Some(without) = credential.replaced(&clean, REDACTED) {
                clean = Cow::Owned(without);
            }
        }
        if let Some(tokens) = &*TOKENS
            && tokens.is_match(&clean)
        {
            clean = Cow::Owned(tokens.replace_all(&clean, REDACTED).into_owned());
        }
        if clean.len() > LONGEST {
            let kept = &clean[..clean.floor_char_boundary(LONGEST)];
            clean = Cow::Owned(format!("{kept}[{} more bytes]", clean.len() - kept.len()));
        }
        clean
    }

    /// True if a text holds a secret.
    pub(crate) fn finds_in(&self, text: &str) -> bool {
        self.secrets.iter().any(|secret| text.contains(secret.as_str()))
            || self.credentials.iter().any(|credential| credential.are_in(text))
            || TOKENS.as_ref().is_some_and(|tokens| tokens.is_match(text))
    }

    /// Redacts each text in a value, and each name.
    pub(crate) fn value(&self, value: &Value) -> Value {
        let clean = self.each(value);
        let bytes = clean.to_string().len();
        if bytes > WHOLE { Value::String(format!("[{bytes} bytes]")) } else { clean }
    }

    fn each(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text).into_owned()),
            Value::Array(items) => items.iter().map(|item| self.each(item)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| (self.text(name).into_owned(), self.each(value))).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
    use serde_json::json;

    use super::*;

    #[test]
    fn x1_31_secrets_are_not_written_down() {
        let mut env = Env::default();
        env.set.insert("API_TOKEN".to_owned(), "hunter2hunter2".to_owned());
        env.set.insert("GREETING".to_owned(), "good morning to you".to_owned());
        env.set.insert("MY_AUTH_SOCK".to_owned(), "/run/agent/socket".to_owned());
        let redaction = Redaction::of(&env);
        for (text, kept) in [
            ("curl -H 'x: hunter2hunter2'", "curl -H 'x: [REDACTED]'"),
            ("sk-abcdefghijklmnop1234", "[REDACTED]"),
            ("key=sk-ant-api03-abcdefgh_-1;", "key=[REDACTED];"),
            ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "[REDACTED]"),
            ("AIzaSyabcdefghijklmnop", "[REDACTED]"),
            // Nothing of these is a secret.
            ("task-force-management-plan", "task-force-management-plan"),
            ("good morning to you, sk-1", "good morning to you, sk-1"),
            ("/run/agent/socket", "/run/agent/socket"),
        ] {
            assert_eq!(redaction.text(text), kept);
            assert_eq!(redaction.finds_in(text), text != kept, "{text}");
        }
        let value = json!({ "a": ["hunter2hunter2", 5], "hunter2hunter2": null });
        assert_eq!(redaction.value(&value), json!({ "a": ["[REDACTED]", 5], "[REDACTED]": null }));
    }

    #[test]
    fn x1_31_long_texts_are_cut_and_say_by_how_much() {
        let redaction = Redaction::default();
        assert_eq!(redaction.text(&"x".repeat(LONGEST)).len(), LONGEST);
        let cut = redaction.text(&"ü".repeat(LONGEST)).into_owned();
        assert!(cut.ends_with(&format!("ü[{LONGEST} more bytes]")), "{}", &cut[LONGEST - 4..]);
        let many: Vec<Value> = (0..100).map(|_| json!("y".repeat(LONGEST))).collect();
        let whole = redaction.value(&json!(many));
        assert!(whole.as_str().unwrap().ends_with(" bytes]"), "a value of many texts is bounded too");
    }
}
