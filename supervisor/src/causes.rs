//! Errors in one line. `Display` of each says what failed, and only [`Error::source`] says why.

use std::error::Error;

/// An error and its causes in one line, from what failed to why: `start /bin/x as the launcher: No such file or directory`.
///
/// `Display` of each of callgate's errors says what failed, and leaves the cause to [`Error::source`]. A host that reports
/// errors without walking that chain itself prints this.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text.push_str(": ");
        text.push_str(&source.to_string());
        cause = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a failing test may stop")]
    use std::io;
    use std::time::Duration;

    use callgate_policy::document::Format;
    use callgate_policy::envelope::{Denial, Layer};
    use callgate_policy::limit::Limits;
    use callgate_policy::manifest::Manifest;
    use callgate_policy::profile::Profile;
    use callgate_policy::rules::{Rule, RuleScope, RuleSet, RuleSource};
    use callgate_policy::step::Step;
    use callgate_policy::variable::Variables;
    use callgate_worker::protocol::StepFailure;
    use serde_json::json;

    use super::*;
    use crate::doctor::DoctorError;
    use crate::profile::ProfileError;
    use crate::trust::TrustError;
    use crate::{
        CallError, ConfineError, HostError, LauncherError, OpenError, OutputsError, Registry, WatchdogProgramError,
    };

    fn refused() -> ConfineError {
        ConfineError::Refused(StepFailure::new(Step::Landlock, "restrict this thread").errno(Some(1)))
    }

    fn io_error() -> io::Error {
        io::Error::from_raw_os_error(13)
    }

    fn rule(permission: &str, pattern: Option<&str>) -> OpenError {
        let rule = json!({ "permission": permission, "pattern": pattern, "action": "deny" });
        let rule: Rule = serde_json::from_value(rule).unwrap();
        let source = RuleSource { scope: RuleScope::Session, place: "m.toml:3".to_owned() };
        let variables = Variables::new(vec![], vec![], vec![]).unwrap();
        OpenError::Rule(RuleSet::default().add(&rule, &source, &variables).unwrap_err())
    }

    /// One of each kind that a host meets, and what the cause must say in the end.
    fn errors() -> Vec<(Box<dyn Error>, &'static str)> {
        let path = || "/w".into();
        let manifest = || Manifest::parse("id = 3", Format::Toml, "m.toml").unwrap_err();
        let denial = || Denial::new(Layer::Capability, "/etc/shadow", "nothing grants it");
        let profile = || ProfileError::Read { path: path(), source: io_error() };
        vec![
            (Box::new(rule("fs.raed", None)), "there is no capability \"fs.raed\""),
            (Box::new(rule("read", Some("../x"))), "\"..\" is not allowed"),
            (Box::new(Limits::default().set("memory=2GB").unwrap_err()), "2GiB"),
            (Box::new(manifest()), "m.toml"),
            (Box::new(OpenError::Profile(profile())), "Permission denied"),
            (Box::new(OpenError::Profile(Profile::parse("§", "agent.yaml").unwrap_err().into())), "agent.yaml"),
            (Box::new(OpenError::Host(HostError::NoLandlock)), "does not offer Landlock"),
            (Box::new(OpenError::Launcher(LauncherError::Fork(io_error()))), "Permission denied"),
            (Box::new(OpenError::Launcher(LauncherError::Channel(io_error()))), "Permission denied"),
            (Box::new(LauncherError::Spawn { path: path(), source: io_error() }), "Permission denied"),
            (
                Box::new(OpenError::Workspace { role: "the workspace", path: path(), source: io_error() }),
                "Permission denied",
            ),
            (
                Box::new(OpenError::NotAWorkspace {
                    role: "the workspace",
                    path: path(),
                    reason: "it is the root".to_owned(),
                }),
                "it is the root",
            ),
            (Box::new(OpenError::Random(io_error())), "Permission denied"),
            (Box::new(OpenError::Private(io_error())), "Permission denied"),
            (Box::new(OpenError::NoTemporary { path: path(), source: io_error() }), "Permission denied"),
            (
                Box::new(OpenError::Outputs { path: path(), source: OutputsError::Open(io_error()) }),
                "Permission denied",
            ),
            (Box::new(OpenError::Variable(Variables::new(vec!["w".into()], vec![], vec![]).unwrap_err())), "absolute"),
            (Box::new(OpenError::Registry(registry())), "`read` already"),
            (Box::new(OpenError::Confine(refused())), "Operation not permitted"),
            (Box::new(ConfineError::Channel { what: "send the call", source: io_error() }), "Permission denied"),
            (Box::new(CallError::Confine(refused())), "Operation not permitted"),
            (Box::new(CallError::Output { what: "make a pipe", source: io_error() }), "Permission denied"),
            (Box::new(CallError::Denied(Box::new(denial()))), "nothing grants it"),
            (Box::new(CallError::TimedOut(Duration::from_secs(2))), "2s"),
            (Box::new(DoctorError::Open(OpenError::Confine(refused()))), "Operation not permitted"),
            (Box::new(DoctorError::Call(CallError::Confine(refused()))), "Operation not permitted"),
            (Box::new(DoctorError::Start { program: "x".to_owned(), source: io_error() }), "Permission denied"),
            (Box::new(TrustError::Project { path: path(), source: io_error() }), "Permission denied"),
            (Box::new(TrustError::Read { path: path(), source: io_error() }), "Permission denied"),
            (Box::new(TrustError::Manifest(manifest())), "m.toml"),
            (Box::new(TrustError::Profile(profile())), "Permission denied"),
            (Box::new(WatchdogProgramError::Relative(path())), "absolute"),
        ]
    }

    fn registry() -> crate::RegistryError {
        let mut registry = Registry::locked().unwrap();
        let read = registry.find("read").unwrap().clone();
        registry.add(read).unwrap_err()
    }

    /// The chain says the cause, once: no error repeats in its own text what its source says.
    #[test]
    fn the_chain_says_the_cause_once() {
        for (error, cause) in errors() {
            let mut texts = vec![error.to_string()];
            let mut next = error.source();
            while let Some(source) = next {
                texts.push(source.to_string());
                next = source.source();
            }
            assert!(texts.iter().all(|text| !text.trim().is_empty()), "{texts:?}");
            for pair in texts.windows(2) {
                assert!(!pair[0].contains(&pair[1]), "{:?} repeats its source {:?}", pair[0], pair[1]);
            }
            let whole = with_causes(&*error);
            assert_eq!(whole, texts.join(": "));
            assert_eq!(whole.matches(cause).count(), 1, "{cause:?} in {whole:?}");
        }
    }
}
