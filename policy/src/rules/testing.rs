//! Calls for tests of rules.

use super::{Act, Decision, EffectStanding, JudgedCall, JudgedEffect, RuleSet};
use crate::approval::{Approvals, EffectKey};
use crate::delegated::DelegatedWork;
use crate::effect::{
    DatabaseQuery, Effect, EffectKind, FileScope, HostConnection, ProgramRun, ServedRequest, WriteKind,
};
use crate::sql::{Dialect, SqlKind, Statement};

/// Some effect of a kind.
pub(crate) fn effect(kind: EffectKind) -> &'static Effect {
    let text = String::new;
    Box::leak(Box::new(match kind {
        EffectKind::Shows => Effect::Shows(FileScope::File("/w/x".into())),
        EffectKind::Lists => Effect::Lists(FileScope::Tree("/w".into())),
        EffectKind::Writes => Effect::Writes { path: "/w/x".into(), how: WriteKind::Write },
        EffectKind::Runs => Effect::Runs(ProgramRun::shell("x", "/w".into())),
        EffectKind::Connects => Effect::Connects(HostConnection::new("x", 1)),
        EffectKind::Searches => Effect::Connects(HostConnection { searches: true, ..HostConnection::new("x", 1) }),
        EffectKind::Queries => {
            let statement = Statement { kind: SqlKind::Reads, verb: text(), text: text() };
            Effect::Queries(DatabaseQuery { dialect: Dialect::Sqlite, database: text(), statement })
        }
        EffectKind::Delegates => Effect::Delegates(DelegatedWork::new("", "")),
        EffectKind::Asks => Effect::Asks,
        EffectKind::Notes => Effect::Notes(text()),
        EffectKind::Serves => {
            Effect::Serves(ServedRequest { tool: text(), arguments: serde_json::Value::Null, key: None, words: None })
        }
        EffectKind::UsesSecrets => Effect::Uses("secrets.has".to_owned()),
        EffectKind::Sends => Effect::Uses("stream.send".to_owned()),
    }))
}

/// A call with one effect of these parts.
pub(crate) fn call<'a>(tool: &'a str, kind: EffectKind, acts: Vec<Act<'a>>) -> JudgedCall<'a> {
    let effects = vec![JudgedEffect { effect: effect(kind), standing: EffectStanding::Own, acts }];
    JudgedCall { tool, effects, ..JudgedCall::default() }
}

/// A call that runs these commands.
pub(crate) fn runs<'a>(tool: &'a str, acts: Vec<Act<'a>>) -> JudgedCall<'a> {
    call(tool, EffectKind::Runs, acts)
}

/// Decision on a call to which nobody has said anything.
pub(crate) fn judge(set: &RuleSet, call: &JudgedCall<'_>) -> Decision {
    set.judge(call, &Approvals::default(), &|effect| EffectKey::of(effect, str::to_owned)).decision
}
