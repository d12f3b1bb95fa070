//! Real programs, well and badly behaved.

use std::time::Instant;

use callgate_policy::document::Format;
use callgate_policy::effect::Effects;
use callgate_policy::manifest::Manifest;
use callgate_policy::path::HostPath;
use callgate_policy::tool::Subject;
use serde_json::Value;

use super::*;

const MANIFEST: &str = r#"
id = "m"
[[requires.shell]]
cmd = "git"
[[rules]]
permission = "bash"
pattern = "git push *"
action = "deny"
"#;

fn ask(script: &str, timeout: Duration, args: &Value) -> Verdict {
    let program = WatchdogProgram::new(["/bin/bash", "-c", script], timeout).expect("a program");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let manifest = Manifest::parse(MANIFEST, Format::Toml, "callgate.toml").expect("a manifest");
    let (effects, root) = (Effects::default(), HostPath::from("/w"));
    let mut call = CallFacts::new("bash", args, &effects, &root);
    (call.subject, call.manifest, call.session) = (Subject::Execute, Some(&manifest), "ses_1");
    runtime.block_on(program.judge(&call))
}

fn denied(verdict: Verdict) -> String {
    match verdict {
        Verdict::Deny(reason) => reason.text,
        other @ (Verdict::Allow | Verdict::Ask(_)) => unreachable!("{other:?}"),
    }
}

const LONG: Duration = Duration::from_secs(20);

/// S0-58, S0-59: it is shown the call, and its answer counts.
#[test]
fn s0_58_s0_59_a_program_is_shown_the_call_and_answers() {
    let args = json!({ "command": "ls" });
    assert_eq!(ask("cat > /dev/null; echo '{\"verdict\":\"allow\"}'", LONG, &args), Verdict::Allow);
    let echo = "read -r -d '' q; printf '{\"verdict\":\"deny\",\"reason\":\"%s\"}' \"${q//\\\"/.}\"";
    let shown = denied(ask(echo, LONG, &args));
    for part in [".tool.:.bash.", ".command.:.ls.", ".id.:.m.", ".cmd.:.git.", ".action.:.deny.", ".session.:.ses_1."] {
        assert!(shown.contains(part), "{shown}");
    }
    let Verdict::Ask(reason) = ask("echo '{\"verdict\":\"ask\",\"reason\":\"sure?\"}'", LONG, &args) else {
        unreachable!("it asked")
    };
    assert_eq!(reason.text, "sure?");
    // One that does not read a long question.
    let long = json!({ "content": "x".repeat(4 << 20) });
    assert_eq!(ask("echo '{\"verdict\":\"allow\"}'", LONG, &long), Verdict::Allow);
    assert_eq!(ask("wc -c > /dev/null; echo '{\"verdict\":\"allow\"}'", LONG, &long), Verdict::Allow);
}

/// C15: whatever is not an answer is a no, and says why.
#[test]
fn c15_what_is_not_an_answer_is_a_no() {
    let args = json!({});
    for (script, why) in [
        ("exit 0", "not understood"),
        ("echo no", "not understood"),
        ("echo '{\"verdict\":\"maybe\"}'", "not understood"),
        ("echo '{\"verdict\":\"allow\",\"but\":1}'", "not understood"),
        ("echo '{\"verdict\":\"allow\"}{\"verdict\":\"deny\"}'", "not understood"),
        ("echo '{\"verdict\":\"deny\",\"verdict\":\"allow\"}'", "not understood"),
        ("echo '{\"verdict\":\"allow\"}'; exit 3", "failed"),
        ("echo '{\"verdict\":\"allow\"}'; kill -SEGV $$", "failed"),
        ("printf '\\xff\\xfe'", "not understood"),
        ("yes", "more than 65536 bytes"),
        ("echo '{\"verdict\":\"allow\"}'; head -c 100000 /dev/zero", "more than 65536 bytes"),
    ] {
        let text = denied(ask(script, LONG, &args));
        assert!(text.contains(why) && text.contains("counts as no"), "{script}: {text}");
    }
    let nowhere = WatchdogProgram::new(["/nowhere/watchdog"], LONG).expect("a path");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (effects, root) = (Effects::default(), HostPath::from("/w"));
    let call = CallFacts::new("read", &args, &effects, &root);
    assert!(denied(runtime.block_on(nowhere.judge(&call))).contains("could not be asked"));
}

/// C15: a late answer is a no, and nothing of the program is left: not what it started either.
#[test]
fn c15_a_late_answer_is_a_no_and_the_group_ends() {
    let directory = tempfile::tempdir().expect("a directory");
    let pids = directory.path().join("pids");
    let script =
        format!("sleep 1000 & echo $! $$ > {}; echo '{{\"verdict\":\"allow\"}}'; exec >&-; sleep 1000", pids.display());
    let started = Instant::now();
    let text = denied(ask(&script, Duration::from_secs(1), &json!({})));
    assert!(text.contains("no answer within 1s"), "{text}");
    assert!(started.elapsed() < Duration::from_secs(10));
    ended(&pids);
}

/// A child that keeps the output open does not keep the answer from counting, and is ended.
#[test]
fn c15_a_child_that_holds_the_output_open_is_ended() {
    let directory = tempfile::tempdir().expect("a directory");
    let pids = directory.path().join("pids");
    let script = format!("sleep 1000 & echo $! > {}; echo '{{\"verdict\":\"allow\"}}'", pids.display());
    let started = Instant::now();
    assert_eq!(ask(&script, LONG, &json!({})), Verdict::Allow);
    assert!(started.elapsed() < Duration::from_secs(10));
    ended(&pids);
}

/// None of these processes is there any more; one that nobody has reaped yet is no process.
fn ended(pids: &Path) {
    let text = std::fs::read_to_string(pids).expect("their numbers");
    for pid in text.split_whitespace() {
        let alive = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit(')')
                .next()
                .is_some_and(|rest| !rest.trim_start().is_empty() && !rest.trim_start().starts_with('Z'))
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while alive() {
            assert!(Instant::now() < deadline, "{pid} is still there");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// C12: which program it is does not hang on where it is looked for.
#[test]
fn c12_a_watchdog_is_named_by_its_path() {
    let new = |argv: &[&str], timeout| WatchdogProgram::new(argv.iter().copied(), timeout);
    assert_eq!(new(&[], LONG), Err(WatchdogProgramError::Empty));
    assert_eq!(new(&["watchdog"], LONG), Err(WatchdogProgramError::Relative("watchdog".into())));
    assert_eq!(new(&["/bin/true"], Duration::ZERO), Err(WatchdogProgramError::NoTime));
}
