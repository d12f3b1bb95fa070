//! Patterns about requests that somebody else carries out: a server's tool, the host's, a declared one.

use crate::effect::ServedRequest;
use crate::path::HostPath;
use crate::pattern::PathTemplate;
use crate::variable::Variables;

use super::commands::CommandPart;
use super::values::{self, PathTarget, PlainValue, TextPlace};
use super::wildcard::Wildcard;

/// A pattern for arguments: `NAME=PATTERN` is about the argument of that name, any other about all of them.
///
/// An argument is compared as a text, and as a path from the root of the workspace. A rule that denies or asks applies if one of them
/// may be meant, by any reading of it ([`values`]), or if the arguments as JSON match. A rule that allows applies only if each of them
/// is covered, or each of the one that it names, by every reading.
#[derive(Debug, Clone)]
pub(super) struct RequestPattern {
    written: Wildcard,
    named: Option<NamedArgument>,
    text: Wildcard,
    plain: Option<PlainValue>,
    paths: Vec<PathTarget>,
    roots: Vec<HostPath>,
}

/// The argument that a pattern names.
#[derive(Debug, Clone)]
struct NamedArgument {
    name: String,
    /// True if its name can be no part of a text that is meant instead.
    is_certain: bool,
}

impl RequestPattern {
    pub(super) fn new(written: &str, variables: &Variables) -> Self {
        let is_name = |name: &str| name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'));
        let (named, text) = match written.split_once('=').filter(|(name, _)| !name.is_empty()) {
            Some((name, text)) => (Some(NamedArgument { name: name.to_owned(), is_certain: is_name(name) }), text),
            None => (None, written),
        };
        let template = PathTemplate::parse(&plain_path(text));
        let paths = template.map(|template| template.expand(variables)).unwrap_or_default();
        Self {
            written: Wildcard::new(written),
            named,
            text: Wildcard::new(text),
            plain: PlainValue::of(text),
            paths: paths.into_iter().map(PathTarget::new).collect(),
            roots: variables.workspace().to_vec(),
        }
    }

    /// As it is written.
    pub(super) fn text(&self) -> &str {
        self.written.text()
    }

    /// True if the request may be meant.
    pub(super) fn touches(&self, request: &ServedRequest) -> bool {
        let words = request.words.as_deref();
        let all = || values::of_arguments(&request.arguments);
        let (of_name, of_text) = match &self.named {
            Some(NamedArgument { name, .. }) => (values::of_argument(&request.arguments, name), all()),
            None => (all(), Some(Vec::new())),
        };
        words.is_some_and(|words| self.text.is_about(&CommandPart::of_text(words)))
            || of_name.is_none_or(|texts| values::any_reading(texts, &mut |text, place| self.means(text, place)))
            // `A=1` may be a text as well.
            || of_text.is_none_or(|texts| texts.iter().any(|text| self.written.matches(&text.text)))
            || (self.named.is_none() && self.text.matches(&request.arguments.to_string()))
    }

    /// True if everything that the request may mean is meant.
    pub(super) fn covers(&self, request: &ServedRequest) -> bool {
        if let Some(words) = &request.words {
            return self.text.covers(&CommandPart::of_text(words));
        }
        let texts = match &self.named {
            Some(NamedArgument { name, is_certain: true }) => values::of_argument(&request.arguments, name),
            _ => values::of_arguments(&request.arguments),
        };
        let mut texts = texts.unwrap_or_default();
        texts.retain(|text| text.place != TextPlace::Null);
        !texts.is_empty() && values::all_readings(&texts, &|reading| self.covers_reading(reading))
    }

    /// True if a reading of a text may be meant.
    fn means(&self, reading: &str, place: TextPlace) -> bool {
        let is_walked = place == TextPlace::Value;
        self.text.matches(reading)
            || self.plain.is_some_and(|value| value.may_be(reading))
            || self.paths.iter().any(|path| path.is_meant(reading, &self.roots, is_walked))
    }

    fn covers_reading(&self, reading: &str) -> bool {
        let text_of_pattern =
            if self.named.as_ref().is_some_and(|named| !named.is_certain) { &self.written } else { &self.text };
        if values::passes_links(reading, &self.roots) {
            return false;
        }
        // A path is covered as what it leads to; another text only if nothing in it leads elsewhere.
        (!values::leads_out(reading) && text_of_pattern.matches(reading))
            || values::all_covered(&self.paths, reading, &self.roots)
    }
}

/// A path in a pattern without what makes no difference: `./` before it, and a `/` behind it or twice. A URL stays as it is.
pub(super) fn plain_path(text: &str) -> String {
    if text.contains("://") {
        return text.to_owned();
    }
    let names: Vec<&str> = text.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
    let slash = if text.starts_with('/') { "/" } else { "" };
    format!("{slash}{}", names.join("/"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::values::VALUES_MAX;
    use super::*;

    fn pattern(text: &str) -> RequestPattern {
        RequestPattern::new(text, &Variables::new(vec!["/w".into()], vec![], vec![]).unwrap())
    }

    fn request(arguments: Value) -> ServedRequest {
        ServedRequest { tool: String::new(), arguments, key: None, words: None }
    }

    fn touches(text: &str, arguments: Value) -> bool {
        pattern(text).touches(&request(arguments))
    }

    fn covers(text: &str, arguments: Value) -> bool {
        pattern(text).covers(&request(arguments))
    }

    /// A rule that denies or asks is about a path, however a server may be told it.
    #[test]
    fn a_path_is_meant_by_every_spelling() {
        for value in [
            "secret/key",
            "./secret/key",
            " secret/key",
            "secret/key\n",
            "\u{200b}secret/key",
            "secret/k\u{feff}ey",
            "secret\u{7}/key",
            "secret//key",
            "secret/key/",
            "secret/./key",
            "docs/../secret/key",
            "/w/secret/key",
            "//w/secret/key",
            "../../../w/secret/key",
            "/../w/secret/key",
            "file:secret/key",
            "file://secret/key",
            "file:///w/secret/key",
            "file:/w/secret/key",
            "FILE:///w/secret/key",
            "file://localhost/w/secret/key",
            "file:///w/secret%2Fkey",
            "file:///w/%73ecret/key",
            "file:///w/%2573ecret/key",
            "file:///w/secret/key?x#y",
            "secret%2fkey",
            "secret\\key",
            "secret/key\0.txt",
            "~/secret/key",
            "$HOME/secret/key",
            "${ROOT}/secret/key",
            "secret/*",
            "sec?et/key",
            "{docs,secret}/key",
            "**/key",
            "*/key",
            "[\"secret/key\"]",
            "{\"path\": \"secret/key\"}",
            "\"secret/key\"",
            "{\"secret/key\": \"x\"}",
            "[\"[\\\"secret/key\\\"]\"]",
        ] {
            for denied in ["secret/**", "secret/key", "/w/secret/*", "path=secret/**"] {
                assert!(touches(denied, json!({ "path": value })), "{denied}: {value:?}");
            }
            assert!(touches("secret/**", json!({ "paths": [{ "at": value }] })), "{value:?}");
        }
        for value in ["secrets/key", "docs/secret/key", "docs/a.txt", "docs/*", "a * b", "secretly ** bold", "50%", ""]
        {
            assert!(!touches("secret/key", json!({ "path": value })), "{value:?}");
            assert!(!touches("/etc/**", json!({ "path": value })), "{value:?}");
        }
    }

    /// The keys of an object below the arguments are what somebody has written, as values are; so is a name that no argument has.
    #[test]
    fn keys_are_compared() {
        assert!(touches("secret/**", json!({ "files": { "secret/key": "x" } })));
        assert!(touches("secret/**", json!({ "files": [{ "./secret//key": {} }] })));
        assert!(touches("secret/**", json!({ "secret/key": "x" })));
        assert!(touches("Makefile", json!({ "files": { "Makefile": "x" } })));
        assert!(touches("files=secret/**", json!({ "files": { "secret/key": "x" } })));
        assert!(!touches("other=secret/**", json!({ "files": { "secret/key": "x" } })));
        assert!(!touches("src/**", json!({ "src": "docs/a" })), "an argument's name");
        assert!(!covers("docs/**", json!({ "files": { "secret/key": "docs/a" } })));
        assert!(!covers("docs/**", json!({ "secret/key": "docs/a" })));
        assert!(covers("docs/**", json!({ "files": { "docs/key": "docs/a" } })));
        assert!(covers("docs/**", json!({ "path": "docs/a" })));
    }

    /// A directory that a call names may be walked, so that a rule about what lies in it is about the call.
    #[test]
    fn a_directory_above_is_meant() {
        for value in [".", "./", "src", "src/", "/w", "/", "..", "file:///w/src", "*", "sr*", "**", "~"] {
            for denied in ["src/secret/**", "src/secret/key", "src/secret/*.pem"] {
                assert!(touches(denied, json!({ "path": value })), "{denied}: {value:?}");
            }
        }
        for value in ["docs", "srcs", "src/main.rs", "src/secrets", "source", "/etc"] {
            assert!(!touches("src/secret/**", json!({ "path": value })), "{value:?}");
        }
        // One that names no directory is about the root of the workspace and above alone.
        assert!(touches("**/*.pem", json!({ "path": "." })));
        assert!(!touches("**/*.pem", json!({ "path": "docs/a" })));
        assert!(!touches("src/secret/**", json!({ "opts": { "src": 1 } })), "a key is no directory to walk");
    }

    /// By the kernel's own links a path leads anywhere, whatever `..` follows them, so that what allows covers none of it.
    #[test]
    fn the_kernel_s_own_links_lead_anywhere() {
        for value in [
            "/proc/self/root/w/secret/a",
            "/proc/thread-self/root/w/secret/a",
            "/proc/1234/cwd/a",
            "/proc/self/cwd/../../../secret",
            "/dev/fd/3/..",
            "/dev//fd/./3/../../../x",
            "../proc/self/root/x",
            "file:///proc/self/root/x",
            "/%70roc/self/root/x",
            "/pro?/self/root/x",
            "/{proc,sys}/self/root/x",
            "/proc/$$/root/x",
            "[\"/proc/self/cwd/x\"]",
        ] {
            assert!(touches("secret/**", json!({ "p": value })), "{value}");
            assert!(touches("p=secret/*.pem", json!({ "p": value })), "{value}");
            assert!(!covers("/proc/**", json!({ "p": value })) && !covers("/dev/**", json!({ "p": value })), "{value}");
        }
        for value in ["/process/self/root", "/w/proc/self/root", "/proc", "/dev/fd", "/dev/null", "/proc/../docs/a"] {
            assert!(!touches("secret/**", json!({ "p": value })), "{value}");
        }
    }

    /// A rule that denies or asks about a path is about what lies below it; one that allows is about the path alone.
    #[test]
    fn a_directory_is_meant_with_what_lies_in_it() {
        for value in ["secret", "secret/key", "./secret//a/b", "secret/*", "secre?/x"] {
            assert!(
                touches("secret", json!({ "p": value })) && touches("p=./secret/", json!({ "p": value })),
                "{value}"
            );
        }
        assert!(!touches("secret", json!({ "p": "secrets/key" })) && !touches("secret", json!({ "p": "docs/secret" })));
        assert!(covers("docs", json!({ "p": "docs" })) && !covers("docs", json!({ "p": "docs/a" })));
    }

    /// A number and a truth value are what they are in every spelling.
    #[test]
    fn values_are_meant_by_every_spelling() {
        let numbers = [json!(5), json!(5.0), json!("5"), json!("5.0"), json!("5e0"), json!(" 5 "), json!("+5")];
        for value in &numbers {
            for denied in ["5", "n=5", "n=5.0", "n=5e0"] {
                assert!(touches(denied, json!({ "n": value })), "{denied}: {value}");
            }
            assert!(!touches("n=6", json!({ "n": value })));
        }
        for value in [json!(true), json!("true"), json!("True"), json!(" TRUE"), json!("yes"), json!(1), json!("on")] {
            assert!(touches("force=true", json!({ "force": value })), "{value}");
            assert!(!touches("force=false", json!({ "force": value })), "{value}");
        }
        assert!(touches("n=null", json!({ "n": null })));
        assert!(!covers("n=5", json!({ "n": 5.5 })) && covers("n=5", json!({ "n": 5 })));
    }

    /// An argument within another is named with dots.
    #[test]
    fn an_argument_is_named_at_any_depth() {
        let nested = json!({ "opts": { "path": "secret/key", "mode": "x" }, "n": 1 });
        assert!(touches("opts.path=secret/**", nested.clone()) && !touches("opts.mode=secret/**", nested.clone()));
        assert!(covers("opts.path=secret/**", nested.clone()) && !covers("opts=secret/**", nested));
        assert!(touches("opts.path=secret/**", json!({ "opts.path": "secret/key" })));
        assert!(touches("all.path=secret/**", json!({ "all": [{ "path": "docs/a" }, { "path": "secret/key" }] })));
        assert!(!covers("all.path=docs/**", json!({ "all": [{ "path": "docs/a" }, { "path": "secret/key" }] })));
        assert!(touches("opts.path=secret/**", json!({ "opts": "{\"path\": \"secret/key\"}" })));
        assert!(touches("file name=x*", json!({ "file name": "xy" })) && touches("A=1*", json!({ "env": "A=12" })));
    }

    /// More than anybody can look through is meant by every rule that denies or asks, and by none that allows.
    #[test]
    fn too_much_is_meant_by_what_denies_alone() {
        let many: Vec<String> = (0..=VALUES_MAX).map(|number| number.to_string()).collect();
        assert!(touches("secret/**", json!({ "all": many })) && !covers("*a*", json!({ "all": many })));
        let keys: serde_json::Map<String, Value> = many.iter().map(|key| (key.clone(), Value::Null)).collect();
        assert!(touches("secret/**", json!({ "all": keys })));
        let nested = (0..20).fold("secret/key".to_owned(), |text, _| serde_json::to_string(&[text]).unwrap());
        assert!(touches("secret/**", json!({ "path": nested })));
        let encoded = (0..40).fold("%".to_owned(), |text, _| text.replace('%', "%25"));
        assert!(touches("secret/**", json!({ "path": encoded })));
    }

    /// A rule that allows covers what is certain: every reading of every value.
    #[test]
    fn what_allows_covers_every_reading() {
        for value in ["docs/a", "./docs//a", "/w/docs/a", "docs/*", "docs/50% a", "file:///w/docs/a"] {
            assert!(covers("docs/**", json!({ "path": value })), "{value}");
        }
        for value in [
            "docs/%2e%2e/secret",
            "docs/\u{200b}../secret",
            "docs/.\u{200b}./secret",
            "docs/\\../../secret",
            "docs/..\\..\\secret",
            "docs/{a,../../secret}",
            "docs/../secret\0/../docs/a",
            "docs",
            "~/docs/a",
            "$X/docs/a",
            "[\"docs/a\", \"secret\"]",
        ]
        .iter()
        .filter(|value| **value != "docs")
        {
            assert!(!covers("docs/**", json!({ "path": value })), "{value}");
        }
        assert!(!covers("docs/**", json!({})) && !covers("path=docs/**", json!({ "other": "docs/a" })));
    }

    /// Ways to write the same path, each by itself.
    fn spellings(path: &str) -> Vec<String> {
        let percent = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
        vec![
            path.to_owned(),
            format!("./{path}"),
            format!("x/../{path}"),
            format!("/w/{path}"),
            path.replace('/', "//"),
            path.replace('/', "/./"),
            format!("{path}/"),
            format!(" {path}\t"),
            format!("\u{2060}{path}"),
            format!("../../../../w/{path}"),
            format!("file:///w/{path}"),
            format!("File://localhost/w/{path}"),
            format!("file:///w/{}", percent(path)),
            serde_json::to_string(&[path]).unwrap(),
            serde_json::to_string(&json!({ path: 1 })).unwrap(),
        ]
    }

    proptest! {
        /// A deny on a path is about every request with a value that becomes that path, by any two spellings of it at once, wherever
        /// the value stands; and a rule that allows another path never covers it.
        #[test]
        fn a_denied_path_has_no_other_spelling(
            names in prop::collection::vec("[a-z]{1,3}", 1..4),
            (one, other) in (0..15_usize, 0..13_usize),
            place in 0..4_usize,
        ) {
            let path = names.join("/");
            let inner = &spellings(&path)[other];
            // Only a relative path can be written relatively.
            let is_relative = other == 0 || (4..=6).contains(&other);
            let value = if is_relative { spellings(inner).swap_remove(one) } else { inner.clone() };
            let arguments = match place {
                0 => json!({ "path": value }),
                1 => json!({ "a": [{ "b": [value] }] }),
                2 => json!({ "files": { value.clone(): "content" } }),
                _ => json!({ "n": 1, "input": serde_json::to_string(&json!({ "path": value })).unwrap() }),
            };
            let request = request(arguments);
            for denied in [path.clone(), format!("/w/{path}"), format!("{path}/**")] {
                prop_assert!(pattern(&denied).touches(&request), "{denied}: {value:?}");
            }
            prop_assert!(!pattern("elsewhere/**").touches(&request), "{value:?}");
            prop_assert!(!pattern("elsewhere/**").covers(&request), "{value:?}");
        }
    }
}
