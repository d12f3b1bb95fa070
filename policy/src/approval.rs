//! Approvals: effects that people have said "always" to (S1-13 to S1-19).

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::effect::{Effect, FileAct};
use crate::path::HostPath;
use crate::rules::{EffectStanding, Specificity};

/// The longest key, bytes (X1-4).
const LONGEST: usize = 1024;
/// Characters of an effect that a key shows beside its digest.
const SHOWN: usize = 160;

/// The key of one effect: equal for equal effects, in any session and at any time, and for no others (S1-19).
///
/// Not empty, at most 1,024 bytes, without control characters (X1-4).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EffectKey(String);

impl EffectKey {
    /// The key of an effect: its canonical text; of a long one the beginning and the digest, in hexadecimal (S1-33).
    #[must_use]
    pub fn of(effect: &Effect, digest: impl Fn(&str) -> String) -> Self {
        let canonical = effect.canonical();
        let is_plain = canonical.len() <= LONGEST && !canonical.chars().any(char::is_control);
        if is_plain {
            return Self(canonical);
        }
        let head: String = canonical.chars().take(SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
        // No canonical text begins so.
        Self(format!("sha256:{} {head}…", digest(&canonical)))
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The effect in words; of one whose key is a digest, the beginning.
impl fmt::Display for EffectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match serde_json::from_str::<Effect>(&self.0) {
            Ok(effect) => f.write_str(&effect.to_string().replace('\n', " ")),
            Err(_) => f.write_str(&self.0),
        }
    }
}

/// More than exactly one call: what a person may choose to allow instead, in words that they have seen.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Wider {
    /// Any file of a directory, with everything in it (X1-6).
    Directory {
        /// The directory.
        path: HostPath,
        /// Kinds of change or look that the files get.
        acts: Vec<FileAct>,
    },
    /// Every statement that reads from a database.
    Reads {
        /// The database, with its kind.
        database: String,
    },
    /// Every request to a host.
    Host {
        /// The host.
        host: String,
        /// The port.
        port: u16,
    },
    /// Every request with this key, which its tool derives from the arguments (S1-13).
    Key {
        /// The key.
        text: String,
    },
}

impl Wider {
    /// How much it says, if it covers an effect.
    fn covers(&self, effect: &Effect, key: Option<&str>) -> Option<Specificity> {
        match (self, effect) {
            (Self::Directory { path, acts }, effect) => {
                let (act, file) = effect.on_file()?;
                let is_in = acts.iter().any(|one| one.covers(act)) && file.as_path().starts_with(path.as_path());
                is_in.then(|| Specificity::prefix(path.as_bytes().len()))
            }
            (Self::Reads { database }, Effect::Queries(query)) => {
                let is_one = !query.changes() && *database == format!("{} {}", query.dialect.tool(), query.database);
                is_one.then(Specificity::any)
            }
            (Self::Host { host, port }, Effect::Connects(to)) => {
                (*host == to.host && *port == to.port).then(|| Specificity::prefix(host.len()))
            }
            (Self::Key { text }, Effect::Serves(_) | Effect::Delegates(_)) => {
                (key == Some(text.as_str())).then(Specificity::any)
            }
            (Self::Reads { .. } | Self::Host { .. } | Self::Key { .. }, _) => None,
        }
    }
}

impl fmt::Display for Wider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory { path, acts } => {
                let acts: Vec<String> = acts.iter().map(ToString::to_string).collect();
                write!(f, "{} any file in {path}, at any depth", acts.join(" and "))
            }
            Self::Reads { database } => write!(f, "whatever reads from {database}"),
            Self::Host { host, port } => write!(f, "every request to {host}:{port}"),
            Self::Key { text } => write!(f, "every call like it: {text}"),
        }
    }
}
/// Who said yes (X1-5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GrantedBy {
    /// A person.
    User,
    /// The list of what is allowed.
    Allowlist,
}

/// For how long an answer is kept (X1-5, S1-18).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalScope {
    /// As long as the session lasts.
    #[default]
    Session,
    /// For later sessions of the project as well, as long as its manifest is trusted and stays what it is.
    Project,
}

impl ApprovalScope {
    /// The names in a manifest.
    pub const NAMES: [&str; 2] = ["session", "project"];

    /// Reads a name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "session" => Some(Self::Session),
            "project" => Some(Self::Project),
            _ => None,
        }
    }

    /// The name in a manifest.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Project => "project",
        }
    }
}

/// An answer that is kept (X1-5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Approval {
    /// The tool.
    pub tool: String,
    /// Keys of the effects that were shown: exactly these are allowed.
    pub effects: Vec<EffectKey>,
    /// Keys of the effects by which the call does that: they are allowed for what a call implies, and for no call of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub implied: Vec<EffectKey>,
    /// Effects that are allowed besides, if the person chose more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wider: Option<Wider>,
    /// When, ISO 8601.
    pub granted_at: String,
    /// Who said yes.
    pub granted_by: GrantedBy,
    /// For how long.
    pub scope: ApprovalScope,
}

impl fmt::Display for Approval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.wider {
            Some(wider) => wider.fmt(f),
            None => f.write_str(&self.effects.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
        }
    }
}

/// The answers that are kept, of a session or a project.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Approvals(Vec<Approval>);

/// An answer in a form that this version does not know is left out: a person is asked once more.
impl<'de> Deserialize<'de> for Approvals {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = Vec::<serde_json::Value>::deserialize(deserializer)?;
        Ok(Self(all.into_iter().filter_map(|one| serde_json::from_value(one).ok()).collect()))
    }
}

impl Approvals {
    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In the order in which they were given.
    pub fn iter(&self) -> impl Iterator<Item = &Approval> {
        self.0.iter()
    }

    /// Keeps an answer (S1-14). A no is never kept (X1-5).
    pub fn keep(&mut self, approval: Approval) {
        let is_one = |kept: &Approval| {
            (&kept.tool, &kept.effects, &kept.implied, &kept.wider, kept.scope)
                == (&approval.tool, &approval.effects, &approval.implied, &approval.wider, approval.scope)
        };
        if !self.0.iter().any(is_one) {
            self.0.push(approval);
        }
    }

    /// The answer that covers an effect of a tool's call (S1-17), and how much it says. `own` is the key that the tool derives from the
    /// call's arguments.
    pub(crate) fn find(
        &self,
        (effect, key, standing): (&Effect, &EffectKey, EffectStanding),
        (tool, own): (&str, Option<&str>),
    ) -> Option<(&Approval, Specificity)> {
        let is_own = standing == EffectStanding::Own;
        let covers = |approval: &Approval| {
            if approval.effects.contains(key) || (!is_own && approval.implied.contains(key)) {
                return Some(Specificity::exact());
            }
            let wider = approval.wider.as_ref().filter(|wider| match wider {
                Wider::Key { .. } => approval.tool == tool,
                Wider::Directory { .. } | Wider::Reads { .. } | Wider::Host { .. } => true,
            });
            wider?.covers(effect, own)
        };
        let all = self.0.iter().filter_map(|approval| Some((approval, covers(approval)?)));
        all.reduce(|one, other| if one.1.is_below(other.1) { other } else { one })
    }

    /// The scope of the answers that cover each of these effects of a call's own; `None` if one is not covered, or there are none.
    #[must_use]
    pub fn cover<'a>(
        &self,
        effects: impl IntoIterator<Item = (&'a Effect, EffectKey)>,
        call: (&str, Option<&str>),
    ) -> Option<ApprovalScope> {
        let mut scope = None;
        for (effect, key) in effects {
            let (approval, _) = self.find((effect, &key, EffectStanding::Own), call)?;
            // The shorter of two.
            scope = match scope {
                Some(ApprovalScope::Session) => scope,
                Some(ApprovalScope::Project) | None => Some(approval.scope),
            };
        }
        scope
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use proptest::prelude::*;

    use super::*;
    use crate::delegated::DelegatedWork;
    use crate::effect::{ProgramRun, WriteKind};

    fn key(effect: &Effect) -> EffectKey {
        EffectKey::of(effect, |text| format!("{:x}", text.len()))
    }

    fn run(line: &str, directory: &str) -> Effect {
        Effect::Runs(ProgramRun::shell(line, directory.into()))
    }

    fn writes(path: &str) -> Effect {
        Effect::Writes { path: path.into(), how: WriteKind::Write }
    }

    fn approvals(effects: &[Effect], wider: Option<Wider>) -> Approvals {
        let mut all = Approvals::default();
        all.keep(Approval {
            tool: "t".to_owned(),
            effects: effects.iter().map(key).collect(),
            implied: vec![key(&run("as it does that", "/w"))],
            wider,
            granted_at: String::new(),
            granted_by: GrantedBy::User,
            scope: ApprovalScope::Session,
        });
        all
    }

    fn covers(all: &Approvals, effect: &Effect) -> bool {
        all.find((effect, &key(effect), EffectStanding::Own), ("t", Some("k"))).is_some()
    }

    /// X1-6, X1-7: an answer covers exactly what was shown, with directory and input.
    #[test]
    fn x1_7_an_answer_covers_what_was_shown() {
        let all = approvals(&[run("git x", "/w"), writes("/w/docs/a")], None);
        assert!(covers(&all, &run("git x", "/w")) && covers(&all, &writes("/w/docs/a")));
        let fed =
            Effect::Runs(ProgramRun::Line { line: "git x".into(), directory: "/w".into(), input: Some("y".into()) });
        for other in [run("git x; rm y", "/w"), run("git x", "/w/sub"), run("git x ", "/w"), writes("/w/docs/b"), fed] {
            assert!(!covers(&all, &other), "{other:?}");
        }
        for kind in [WriteKind::Create, WriteKind::Replace] {
            assert!(!covers(&all, &Effect::Writes { path: "/w/docs/a".into(), how: kind }));
        }
    }

    /// X1-7: how a call did something is allowed as that, and not as what another call does.
    #[test]
    fn x1_7_what_was_implied_is_not_allowed_by_itself() {
        let all = approvals(&[run("git x", "/w")], None);
        let implied = run("as it does that", "/w");
        let find = |standing| all.find((&implied, &key(&implied), standing), ("t", None)).is_some();
        assert!(find(EffectStanding::Implied) && !find(EffectStanding::Own));
    }

    /// X1-6: a directory covers what lies in it, and nothing beside it; a key the calls of its tool.
    #[test]
    fn x1_6_a_wider_answer_covers_what_it_says() {
        let directory = Wider::Directory { path: "/w/src".into(), acts: vec![FileAct::Writes] };
        assert_eq!(directory.to_string(), "write any file in /w/src, at any depth");
        let all = approvals(&[], Some(directory));
        assert!(covers(&all, &writes("/w/src/a")) && covers(&all, &writes("/w/src/deep/a")));
        for path in ["/w/src2/a", "/w/a", "/etc/src/a"] {
            assert!(!covers(&all, &writes(path)), "{path}");
        }
        assert!(!covers(&all, &Effect::Shows(crate::effect::FileScope::File("/w/src/a".into()))), "another kind");
        let changes = |how| covers(&all, &Effect::Writes { path: "/w/src/a".into(), how });
        assert!(changes(WriteKind::Create) && !changes(WriteKind::Replace), "who may write it may not remove it");
        let delegates = Effect::Delegates(DelegatedWork::new("a", "x"));
        let all = approvals(&[], Some(Wider::Key { text: "k".to_owned() }));
        assert!(covers(&all, &delegates) && !covers(&all, &writes("/w/a")));
        let find = |call| all.find((&delegates, &key(&delegates), EffectStanding::Own), call);
        assert!(find(("other", Some("k"))).is_none(), "of another tool");
        assert!(find(("t", Some("l"))).is_none(), "another key");
    }

    /// S1-15: an answer for every call says less than a pattern of a rule that asks, however much of that is open.
    #[test]
    fn s1_15_an_answer_for_all_says_less_than_a_pattern() {
        let all = approvals(&[], Some(Wider::Key { text: "k".to_owned() }));
        let delegates = Effect::Delegates(DelegatedWork::new("a", "x"));
        let (_, said) = all.find((&delegates, &key(&delegates), EffectStanding::Own), ("t", Some("k"))).unwrap();
        assert!(said.is_below(Specificity::prefix(0)), "`*x*` says more");
    }

    /// Every effect of a call must be covered, and a call without one is not.
    #[test]
    fn every_effect_must_be_covered() {
        let all = approvals(&[run("a", "/w")], None);
        let cover = |effects: &[Effect]| all.cover(effects.iter().map(|effect| (effect, key(effect))), ("t", None));
        assert_eq!(cover(&[run("a", "/w")]), Some(ApprovalScope::Session));
        assert_eq!(cover(&[run("a", "/w"), writes("/w/a")]), None);
        assert_eq!(cover(&[]), None);
    }

    /// S1-33: a key says what it is about.
    #[test]
    fn s1_33_a_key_says_what_it_is_about() {
        assert_eq!(key(&run("git x", "/w")).to_string(), "runs in /w: git x");
        let long = key(&run(&"x".repeat(2000), "/w")).to_string();
        assert!(long.starts_with("sha256:") && long.contains("xxx"), "{long}");
    }

    /// An answer that was kept in another form is asked for anew, and the others are kept.
    #[test]
    fn an_unknown_form_is_left_out() {
        let one = approvals(&[run("a", "/w")], None);
        let mut stored = serde_json::to_value(&one).unwrap();
        let older = serde_json::json!({ "tool": "bash", "key": { "text": "x", "scope": "exact" } });
        stored.as_array_mut().unwrap().insert(0, older);
        assert_eq!(serde_json::from_value::<Approvals>(stored).unwrap(), one);
    }

    proptest! {
        /// X1-4, S1-19: well-formed, the same for the same effect and for no other, whatever the bytes.
        #[test]
        fn x1_4_keys_are_well_formed(one in any::<String>(), other in any::<String>(), dirs in prop::collection::vec("(/[^/\0]{1,9}){1,4}", 2)) {
            let (first, second) = (run(&one, &dirs[0]), run(&other, &dirs[1]));
            for key in [key(&first), key(&second)] {
                prop_assert!(!key.0.is_empty() && key.0.len() <= LONGEST && !key.0.chars().any(char::is_control));
            }
            prop_assert_eq!(key(&first), key(&first.clone()));
            let is_short = first.canonical().len() <= LONGEST && second.canonical().len() <= LONGEST;
            prop_assume!(is_short);
            let plain = |effect: &Effect| !effect.canonical().chars().any(char::is_control);
            if plain(&first) && plain(&second) {
                prop_assert_eq!(key(&first) == key(&second), first == second);
            }
        }
    }
}
