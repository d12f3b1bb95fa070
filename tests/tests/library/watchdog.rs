//! A host's own watchdog as a program, in a session.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use callgate::policy::manifest::{Format, Manifest};
use callgate::{Coercion, Launcher, Layer, Outcome, ResultEnvelope, Session, SessionSpec, Supervisor, WatchdogProgram};
use serde_json::{Value, json};

use super::callgate;

fn with_watchdog(script: &str, timeout: Duration, test: impl AsyncFn(&Session, &Path)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (workspace, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let program: PathBuf = place.path().join("watchdog");
    fs::write(&program, script.replace("LOG", &place.path().join("log").display().to_string())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    runtime.block_on(async {
        let watchdog = WatchdogProgram::new([program], timeout).unwrap();
        let builder = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap());
        let supervisor = builder.watchdog_program(watchdog).build().unwrap();
        let session = supervisor
            .open(SessionSpec::developer(workspace.path()).mode(callgate::policy::mode::Mode::Yolo))
            .await
            .unwrap();
        test(&session, &place.path().join("log")).await;
    });
}

fn denied_by_watchdog(result: &ResultEnvelope) -> String {
    assert_eq!(result.kind, Outcome::Error, "{result:?}");
    let denial = result.metadata.denial.as_ref().unwrap();
    assert_eq!(denial.layer, Layer::Watchdog);
    denial.reason.clone()
}

/// S0-58 to S0-62: every call is shown to it, once and before it runs; its no is the model's error, its yes grants nothing, and
/// what layer 1 refuses it is not asked about.
#[test]
fn s0_58_s0_59_s0_60_s0_61_a_program_judges_calls() {
    let script = "#!/bin/bash\nread -r -d '' q; echo \"$q\" >> LOG\n\
        case $q in *forbidden*) echo '{\"verdict\":\"deny\",\"reason\":\"not that\"}';; *sure*) echo '{\"verdict\":\"ask\",\"reason\":\"sure?\"}';;\n\
        *) echo '{\"verdict\":\"allow\"}';; esac\n";
    with_watchdog(script, Duration::from_secs(20), async |session, log| {
        let bash = async |command: &str| session.call("bash", json!({ "command": command })).await;
        assert_eq!(bash("echo fine").await.kind, Outcome::Output, "the control");
        let result = bash("echo forbidden").await;
        assert!(denied_by_watchdog(&result).contains("not that"));
        assert!(result.error_text.unwrap().contains("not that"));
        // S0-57: its question is for a person, and there is none; in `yolo` too.
        let denial = bash("echo sure").await.metadata.denial.unwrap();
        assert_eq!(denial.layer, Layer::Person);
        assert!(denial.reason.contains("sure?") && denial.reason.contains("there is nobody to ask"), "{denial:?}");
        assert_eq!(bash("echo x > f; cat f").await.kind, Outcome::Output);
        assert_eq!(session.call("read", json!({ "path": "f" })).await.kind, Outcome::Output);

        let asked = || fs::read_to_string(log).unwrap().lines().count();
        assert_eq!(asked(), 5);
        let result = session.call("read", json!({ "path": "/etc/shadow" })).await;
        assert_eq!(result.metadata.denial.unwrap().layer, Layer::Capability);
        assert!(denied_by_watchdog(&bash("rm -rf /").await).contains("remove-root-or-home"));
        assert_eq!(asked(), 5, "neither was for it to say");
    });
}

/// S0-58, S0-61: what it is shown of every call is the tool's id, the arguments as the tool gets them, the manifest and the
/// session; nothing of a call that is not valid, that names no tool or that was not granted.
#[test]
fn s0_58_s0_61_a_program_is_shown_each_call_whole() {
    const MANIFEST: &str = "id = \"of the author\"\nmode = \"yolo\"\n[[rules]]\npermission = \"bash\"\npattern = \"git push *\"\n\
        action = \"deny\"\n[requires.fs]\nwrite = [\"{workspace}/**\"]\n[[requires.shell]]\ncmd = \"*\"\n";
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in super::STRENGTHS {
        let (workspace, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (program, log) = (place.path().join("watchdog"), place.path().join("log"));
        let script = "#!/bin/bash\nread -r -d '' q; echo \"$q\" >> LOG; echo '{\"verdict\":\"allow\"}'\n";
        fs::write(&program, script.replace("LOG", log.to_str().unwrap())).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        runtime.block_on(async {
            let watchdog = WatchdogProgram::new([program], Duration::from_secs(20)).unwrap();
            let builder = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap());
            let supervisor = builder.watchdog_program(watchdog).build().unwrap();
            let manifest = Manifest::parse(MANIFEST, Format::Toml, "m.toml").unwrap();
            let mut spec = SessionSpec::with_manifest(workspace.path(), manifest).strength(strength);
            spec.coercion = Coercion::Lossless;
            let session = supervisor.open(spec).await.unwrap();
            let (echo, typed) = (json!({ "command": "echo a" }), json!({ "command": "echo a", "timeout_ms": "5000" }));
            let coerced = json!({ "command": "echo a", "timeout_ms": 5000 });
            let edit = json!({ "path": "f", "old_string": "x", "new_string": "y" });
            let calls = [
                ("write", json!({ "path": "f", "content": "x" }), None, "create"),
                ("read", json!({ "path": "f" }), None, "read"),
                ("edit", edit, None, "edit"),
                ("glob", json!({ "pattern": "*" }), None, "search"),
                ("grep", json!({ "pattern": "y" }), None, "search"),
                ("bash", echo.clone(), None, "execute"),
                ("bash", echo, None, "execute"),
                ("bash", typed, Some(coerced), "execute"),
            ];
            for (tool, args, _, _) in &calls {
                let result = session.call(tool, args.clone()).await;
                assert_eq!(result.kind, Outcome::Output, "{tool} {args}: {result:?}");
            }
            for (tool, args) in [
                ("read", json!({ "path": ["f"] , "more": 1 })),
                ("bash", json!({})),
                ("no-such-tool", json!({})),
                ("read", json!({ "path": "/etc/shadow" })),
                ("bash", json!({ "command": "git push" })),
            ] {
                let refused = session.call(tool, args.clone()).await;
                assert_eq!(refused.kind, Outcome::Error, "{tool} {args}: {refused:?}");
            }
            let shown = fs::read_to_string(&log).unwrap();
            let shown: Vec<Value> = shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!(shown.len(), calls.len(), "each of these calls once, and nothing else: {shown:?}");
            for (shown, (tool, args, coerced, subject)) in shown.iter().zip(&calls) {
                assert_eq!((&shown["tool"], &shown["subject"]), (&json!(tool), &json!(subject)), "{shown}");
                assert_eq!(&shown["args"], coerced.as_ref().unwrap_or(args), "{shown}");
                assert_eq!(shown["session"], session.id(), "{shown}");
                assert_eq!(shown["manifest"]["id"], "of the author", "{shown}");
                let rule = json!({ "permission": "bash", "pattern": "git push *", "action": "deny" });
                assert_eq!(shown["manifest"]["rules"], json!([rule]), "{shown}");
                assert_eq!(shown["manifest"]["requires"]["fs"]["write"], json!(["{workspace}/**"]), "{shown}");
            }
        });
    }
}

/// C15: a watchdog that does not answer stops the call, not the session.
#[test]
fn c15_a_watchdog_that_is_late_or_broken_denies() {
    with_watchdog("#!/bin/bash\nsleep 100\n", Duration::from_millis(300), async |session, _| {
        for _ in 0..2 {
            let result = session.call("bash", json!({ "command": "touch done" })).await;
            assert!(denied_by_watchdog(&result).contains("no answer within 0.3s"));
        }
    });
    with_watchdog("#!/nowhere\n", Duration::from_secs(20), async |session, _| {
        let result = session.call("bash", json!({ "command": "true" })).await;
        assert!(denied_by_watchdog(&result).contains("could not be asked"));
    });
}

/// X3-4, C-7: what a session that only reads does not offer is refused before a watchdog hears of it.
#[test]
fn x3_4_what_is_not_offered_is_refused_before_watchdogs() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (workspace, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (program, log) = (place.path().join("watchdog"), place.path().join("log"));
    let script = format!("#!/bin/bash\necho called >> {}\necho '{{\"verdict\":\"allow\"}}'\n", log.display());
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(workspace.path().join("there"), "there").unwrap();
    runtime.block_on(async {
        let watchdog = WatchdogProgram::new([program], Duration::from_secs(20)).unwrap();
        let builder = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap());
        let supervisor = builder.watchdog_program(watchdog).build().unwrap();
        let spec = SessionSpec::developer(workspace.path())
            .mode(callgate::policy::mode::Mode::Yolo)
            .profile(callgate::policy::profile::Profile::built_in("readonly").unwrap());
        let session = supervisor.open(spec).await.unwrap();
        let refused = session.call("write", json!({ "path": "made", "content": "x" })).await;
        assert!(refused.error_text.unwrap().starts_with("there is no tool `write`"));
        let restricted = session.call("bash", json!({ "command": "touch made" })).await;
        assert_eq!(restricted.metadata.denial.unwrap().layer, Layer::Rule);
        assert!(!log.is_file() && !workspace.path().join("made").is_file());
        assert_eq!(session.call("read", json!({ "path": "there" })).await.kind, Outcome::Output);
        assert_eq!(fs::read_to_string(&log).unwrap(), "called\n", "the control: of what is offered it hears");
    });
}

/// E4: a host's watchdog runs outside, and decides about the next call too. A script of its in the workspace is no call's to change.
#[test]
fn e4_calls_do_not_change_the_watchdog_that_judges_them() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in super::STRENGTHS {
        let workspace = tempfile::tempdir().unwrap();
        let script = workspace.path().join("watchdog.sh");
        let text = "cat > /dev/null; echo '{\"verdict\":\"allow\"}'\n";
        fs::write(&script, text).unwrap();
        runtime.block_on(async {
            let words = ["/bin/sh".into(), script.clone().into_os_string()];
            let watchdog = WatchdogProgram::new(words, Duration::from_secs(20)).unwrap();
            let builder = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap());
            let supervisor = builder.watchdog_program(watchdog).build().unwrap();
            let spec = SessionSpec::developer(workspace.path()).mode(callgate::policy::mode::Mode::Yolo);
            let session = supervisor.open(spec.strength(strength)).await.unwrap();
            for line in ["echo >> watchdog.sh", "rm watchdog.sh", "echo > other && mv other watchdog.sh"] {
                let result = session.call("bash", json!({ "command": line })).await;
                assert_ne!(result.data.unwrap()["exit_code"], 0, "{line}");
                assert_eq!(fs::read_to_string(&script).unwrap(), text, "{line}");
            }
            assert!(workspace.path().join("other").exists(), "the control: the rest of the last line has run");
        });
    }
}
