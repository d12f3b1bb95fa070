//! Argument patterns: `argv[1..]`, one pattern per argument (S0-37, S0-38).

use std::fmt;

use serde::de::{self, MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::PatternError;

/// One argument (S0-38).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ArgPattern {
    /// This string.
    Exact(String),
    /// `{wildcard = true}`: any one argument that does not begin with `-`. Where a value is meant, an option could make the
    /// program do something else (F15).
    Wildcard,
    /// `{wildcard = true, dash = true}`: any one argument, an option too.
    AnyOne,
    /// `{prefix = "…"}`: an argument that starts so. If that names a directory, nothing that leads out of it again by `..`.
    Prefix(String),
    /// `{rest = true}`: all that remain, none included. Our extension, in the last place only.
    Rest,
}

impl ArgPattern {
    fn matches(&self, arg: &[u8]) -> bool {
        match self {
            Self::Exact(text) => arg == text.as_bytes(),
            Self::Prefix(prefix) => arg.starts_with(prefix.as_bytes()) && !leaves(prefix.as_bytes(), arg),
            Self::Wildcard => !arg.starts_with(b"-"),
            Self::AnyOne | Self::Rest => true,
        }
    }

    fn within(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::AnyOne) | (Self::Rest, Self::Rest) => true,
            (Self::Exact(text), Self::Wildcard) => !text.starts_with('-'),
            // An empty prefix is one of options too.
            (Self::Prefix(text), Self::Wildcard) => !text.is_empty() && !text.starts_with('-'),
            (Self::Wildcard | Self::AnyOne, Self::Prefix(prefix)) => prefix.is_empty(),
            (Self::Exact(text), Self::Prefix(_)) => other.matches(text.as_bytes()),
            (Self::Prefix(text), Self::Prefix(prefix)) => {
                let directory = text.rfind('/').map_or("", |at| &text[..at]);
                text.starts_with(prefix.as_str()) && !leaves(prefix.as_bytes(), directory.as_bytes())
            }
            (mine, other) => mine == other,
        }
    }
}

/// True if the part of an argument that comes after the last directory of a prefix has a `..`: it may lead elsewhere.
fn leaves(prefix: &[u8], arg: &[u8]) -> bool {
    let Some(last) = prefix.iter().rposition(|byte| *byte == b'/') else { return false };
    arg.get(last + 1..).is_some_and(|rest| rest.split(|byte| *byte == b'/').any(|name| name == b".."))
}

/// The patterns of one program's arguments. Without `Rest` they match exactly their own number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Vec<ArgPattern>", into = "Vec<ArgPattern>")]
pub struct ArgPatterns(Vec<ArgPattern>);

impl ArgPatterns {
    /// Takes the patterns of `argv[1..]`.
    ///
    /// # Errors
    ///
    /// [`PatternError::RestNotLast`].
    pub fn new(patterns: Vec<ArgPattern>) -> Result<Self, PatternError> {
        match patterns.iter().position(|pattern| *pattern == ArgPattern::Rest) {
            Some(at) if at + 1 < patterns.len() => Err(PatternError::RestNotLast),
            Some(_) | None => Ok(Self(patterns)),
        }
    }

    /// Any arguments: what a requirement without `args` means (S0-37).
    #[must_use]
    pub fn any() -> Self {
        Self(vec![ArgPattern::Rest])
    }

    /// True if these arguments (without the program's name) are meant.
    #[must_use]
    pub fn matches<A: AsRef<[u8]>>(&self, args: &[A]) -> bool {
        let (fixed, rest) = self.split();
        let enough = if rest { args.len() >= fixed.len() } else { args.len() == fixed.len() };
        enough && fixed.iter().zip(args).all(|(pattern, arg)| pattern.matches(arg.as_ref()))
    }

    /// True if it says nothing about the arguments.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.0 == [ArgPattern::Rest]
    }

    /// How many arguments decide: the fixed ones, and one more where it would be one too many.
    #[must_use]
    pub fn looks_at(&self) -> usize {
        let (fixed, rest) = self.split();
        fixed.len() + usize::from(!rest)
    }

    fn split(&self) -> (&[ArgPattern], bool) {
        match self.0.split_last() {
            Some((ArgPattern::Rest, fixed)) => (fixed, true),
            Some(_) | None => (&self.0, false),
        }
    }

    /// True if every argument list that this matches is matched by `other`.
    pub(crate) fn within(&self, other: &Self) -> bool {
        let ((mine, open), (theirs, their_open)) = (self.split(), other.split());
        let lengths = if their_open { mine.len() >= theirs.len() } else { !open && mine.len() == theirs.len() };
        lengths && mine.iter().zip(theirs).all(|(mine, theirs)| mine.within(theirs))
    }

    /// Intersection: one list of patterns or none.
    pub(crate) fn meet(&self, other: &Self) -> Option<Self> {
        let ((mine, open), (theirs, their_open)) = (self.split(), other.split());
        if (!open && mine.len() < theirs.len()) || (!their_open && theirs.len() < mine.len()) {
            return None;
        }
        let mut patterns = Vec::new();
        for place in 0..mine.len().max(theirs.len()) {
            patterns.push(match (mine.get(place), theirs.get(place)) {
                (Some(mine), Some(theirs)) if mine.within(theirs) => mine.clone(),
                (Some(mine), Some(theirs)) if theirs.within(mine) => theirs.clone(),
                (Some(_), Some(_)) | (None, None) => return None,
                (Some(only), None) | (None, Some(only)) => only.clone(),
            });
        }
        if open && their_open {
            patterns.push(ArgPattern::Rest);
        }
        Some(Self(patterns))
    }
}

impl TryFrom<Vec<ArgPattern>> for ArgPatterns {
    type Error = PatternError;

    fn try_from(patterns: Vec<ArgPattern>) -> Result<Self, PatternError> {
        Self::new(patterns)
    }
}

impl From<ArgPatterns> for Vec<ArgPattern> {
    fn from(patterns: ArgPatterns) -> Self {
        patterns.0
    }
}

impl fmt::Display for ArgPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(text) => write!(f, "{text:?}"),
            Self::Wildcard => f.write_str("<one>"),
            Self::AnyOne => f.write_str("<one or an option>"),
            Self::Prefix(prefix) => write!(f, "{prefix:?}…"),
            Self::Rest => f.write_str("<rest>"),
        }
    }
}

impl fmt::Display for ArgPatterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, pattern) in self.0.iter().enumerate() {
            write!(f, "{}{pattern}", if place == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

impl Serialize for ArgPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = match self {
            Self::Exact(text) => return serializer.serialize_str(text),
            Self::Wildcard | Self::Prefix(_) | Self::Rest => serializer.serialize_map(Some(1))?,
            Self::AnyOne => serializer.serialize_map(Some(2))?,
        };
        match self {
            Self::Prefix(prefix) => map.serialize_entry("prefix", prefix)?,
            Self::Wildcard => map.serialize_entry("wildcard", &true)?,
            Self::AnyOne => {
                map.serialize_entry("wildcard", &true)?;
                map.serialize_entry("dash", &true)?;
            }
            Self::Exact(_) | Self::Rest => map.serialize_entry("rest", &true)?,
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for ArgPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ArgVisitor)
    }
}

/// By hand, since an untagged enum would answer every mistake with "did not match any variant".
struct ArgVisitor;

impl<'de> Visitor<'de> for ArgVisitor {
    type Value = ArgPattern;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, {wildcard: true}, {wildcard: true, dash: true}, {prefix: \"…\"} or {rest: true}")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<ArgPattern, E> {
        Ok(ArgPattern::Exact(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ArgPattern, A::Error> {
        let pattern = match map.next_key::<String>()?.as_deref() {
            Some("prefix") => ArgPattern::Prefix(map.next_value()?),
            Some("wildcard") if map.next_value::<bool>()? => ArgPattern::Wildcard,
            Some("rest") if map.next_value::<bool>()? => ArgPattern::Rest,
            Some("dash") if map.next_value::<bool>()? => {
                // In JSON the order of keys says nothing.
                return match map.next_key::<String>()?.as_deref() {
                    Some("wildcard") if map.next_value::<bool>()? => match map.next_key::<String>()? {
                        None => Ok(ArgPattern::AnyOne),
                        Some(_) => Err(de::Error::custom("`dash` goes with `wildcard` alone")),
                    },
                    Some(_) | None => Err(de::Error::custom("`dash` goes with `wildcard` alone")),
                };
            }
            Some("wildcard" | "rest" | "dash") => {
                return Err(de::Error::custom("it can only be true; leave it out instead"));
            }
            Some(other) => return Err(de::Error::unknown_field(other, &["wildcard", "dash", "prefix", "rest"])),
            None => return Err(de::Error::custom("an argument pattern has one of wildcard, prefix and rest")),
        };
        match map.next_key::<String>()?.as_deref() {
            Some("dash") if pattern == ArgPattern::Wildcard && map.next_value::<bool>()? => {
                match map.next_key::<String>()? {
                    None => Ok(ArgPattern::AnyOne),
                    Some(_) => Err(de::Error::custom("`dash` goes with `wildcard` alone")),
                }
            }
            Some(_) => Err(de::Error::custom("an argument pattern has only one of wildcard, prefix and rest")),
            None => Ok(pattern),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use proptest::prelude::*;

    use super::*;

    fn patterns(json: &str) -> ArgPatterns {
        serde_json::from_str(json).unwrap()
    }

    /// S0-37, S0-38: exactly its length, unless `rest`.
    #[test]
    fn arguments_match_in_order_and_number() {
        let log = patterns(r#"["log", {"prefix": "--max-count="}, {"wildcard": true}]"#);
        assert!(log.matches(&["log", "--max-count=3", "x"]));
        assert!(!log.matches(&["log", "--max-count=3"]), "one missing");
        assert!(!log.matches(&["log", "--max-count=3", "x", "y"]), "one too many");
        assert!(!log.matches(&["log", "--all", "x"]), "not the prefix");
        let rest = patterns(r#"["log", {"rest": true}]"#);
        assert!(rest.matches(&["log"]) && rest.matches(&["log", "a", "b"]));
        assert!(!rest.matches::<&str>(&[]) && !rest.matches(&["push"]));
        assert!(ArgPatterns::any().matches::<&str>(&[]));
        assert!(patterns("[]").matches::<&str>(&[]) && !patterns("[]").matches(&["a"]));
    }

    /// F15: what begins with a directory stays in it.
    #[test]
    fn f15_a_prefix_that_is_a_directory_is_not_left() {
        let scripts = patterns(r#"[{"prefix": "scripts/"}]"#);
        for inside in ["scripts/x", "scripts/a/b", "scripts/", "scripts/..x", "scripts/./x"] {
            assert!(scripts.matches(&[inside]), "{inside}");
        }
        for outside in ["scripts/../x", "scripts/..", "scripts/a/../../x", "x"] {
            assert!(!scripts.matches(&[outside]), "{outside}");
        }
        assert!(patterns(r#"[{"prefix": "--range="}]"#).matches(&["--range=a..b"]), "it names no directory");
    }

    /// F15: where a value is meant, no option passes, unless the pattern says so.
    #[test]
    fn f15_a_wildcard_is_no_option() {
        let one = patterns(r#"["show", {"wildcard": true}]"#);
        for value in ["main", "", "a-b"] {
            assert!(one.matches(&["show", value]), "{value}");
        }
        for option in ["-", "--", "-x", "--output=x"] {
            assert!(!one.matches(&["show", option]), "{option}");
        }
        for json in [r#"[{"wildcard": true, "dash": true}]"#, r#"[{"dash": true, "wildcard": true}]"#] {
            let any = patterns(json);
            assert!(any.matches(&["--output=x"]) && any.matches(&["main"]) && !any.matches(&["a", "b"]));
            assert_eq!(serde_json::from_str::<ArgPatterns>(&serde_json::to_string(&any).unwrap()).unwrap(), any);
        }
        assert!(patterns(r#"[{"rest": true}]"#).matches(&["--output=x"]), "the rest is all there is");
    }

    #[test]
    fn mistakes_are_refused() {
        for json in [
            r#"[{"rest": true}, "a"]"#,
            r#"[{"wildcard": false}]"#,
            r#"[{"wildcard": true, "prefix": "a"}]"#,
            r#"[{}]"#,
            r#"[{"dash": true}]"#,
            r#"[{"wildcard": true, "dash": false}]"#,
            r#"[{"prefix": "a", "dash": true}]"#,
            r#"[{"dash": true, "rest": true}]"#,
            r#"[{"glob": "x"}]"#,
            "[1]",
        ] {
            assert!(serde_json::from_str::<ArgPatterns>(json).is_err(), "{json}");
        }
    }

    fn any_patterns() -> impl Strategy<Value = ArgPatterns> {
        let one = prop_oneof![
            "[-ab]{0,2}|a?(/|\\.\\.|b){0,4}".prop_map(ArgPattern::Exact),
            Just(ArgPattern::Wildcard),
            Just(ArgPattern::AnyOne),
            "[-ab]{0,2}|a?(/|\\.\\.|b){0,4}".prop_map(ArgPattern::Prefix),
        ];
        (proptest::collection::vec(one, 0..3), any::<bool>()).prop_map(|(mut patterns, rest)| {
            if rest {
                patterns.push(ArgPattern::Rest);
            }
            ArgPatterns(patterns)
        })
    }

    proptest! {
        /// The meet matches exactly what both match, and `within` means what it says.
        #[test]
        fn meet_is_the_intersection(
            left in any_patterns(),
            right in any_patterns(),
            args in proptest::collection::vec("[-ab]{0,3}|a?(/|\\.\\.|b){0,6}", 0..4),
        ) {
            let both = left.matches(&args) && right.matches(&args);
            let meet = left.meet(&right);
            prop_assert_eq!(meet.as_ref().is_some_and(|meet| meet.matches(&args)), both);
            if let Some(meet) = meet {
                prop_assert!(meet.within(&left) && meet.within(&right));
            }
            prop_assert!(!left.within(&right) || !left.matches(&args) || right.matches(&args));
        }
    }
}
