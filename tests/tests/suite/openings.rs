//! Refusals of an opening, before anything of it is made: each stage of `session/opening` says what it owes. Others of these have
//! files of their own (`homes`, `planted_links`, `policy_files`, `debug`, `grants`, `web_search`).

use callgate_tests::mcp::callgate;
use callgate_tests::{Host, TestEnv, matrix};

/// A program that leaves a mark, so that a refusal can be seen to have run nothing.
const MARKS: [&str; 3] = ["sh", "-c", "echo ran > mark"];

#[track_caller]
fn assert_refused(env: &TestEnv, words: &[&str], (status, why): (i32, &str)) {
    let ended = callgate(env, words);
    assert_eq!(ended.status.code(), Some(status), "{ended:?}");
    assert!(ended.stderr.contains(why), "{why}: {ended:?}");
    assert!(!env.workspace().join("mark").exists(), "nothing has run");
}

#[track_caller]
fn assert_runs(env: &TestEnv, words: &[&str]) {
    let ended = callgate(env, words);
    assert!(ended.status.success(), "{ended:?}");
    std::fs::remove_file(env.workspace().join("mark")).expect("it ran");
}

/// Programs that are judged one by one do not load what somebody typed.
#[test]
fn a_variable_that_was_typed_steers_no_judged_program() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let with = |variable: &'static str, only: &[&'static str]| {
            [&["run", "--env", variable][..], only, &["--"], &MARKS].concat()
        };
        let judged = ["--exec", "sh"];
        for variable in ["LD_PRELOAD=/nowhere.so", "BASH_ENV=/nowhere", "PYTHONPATH=/nowhere"] {
            let name = variable.split('=').next().expect("a name");
            assert_refused(&env, &with(variable, &judged), (65, name));
        }
        assert_runs(&env, &with("API_TOKEN=x", &judged));
        assert_runs(&env, &with("PYTHONPATH=/nowhere", &[]));
    });
}

/// A manifest that says more than this build enforces is not opened with less.
#[test]
fn what_is_not_in_force_yet_is_refused() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let manifest = |capability: &str| {
            let text = format!(
                "id = \"x\"\n[requires]\ncapabilities = [{capability}]\n[[requires.shell]]\ncmd = \"*\"\n[requires.fs]\n\
                 write = [\"{{workspace}}/**\"]\n"
            );
            env.workspace_file("m.toml", &text);
        };
        let run = [&["run", "--manifest", "m.toml", "--"][..], &MARKS].concat();
        manifest("\"stream.send\"");
        assert_refused(&env, &run, (69, "the capability `stream.send`"));
        manifest("");
        assert_runs(&env, &run);
    });
}

/// Approvals could be kept by whoever may change a manifest that nobody trusts.
#[test]
fn s1_18_approvals_are_not_kept_for_a_manifest_that_nobody_trusts() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let manifest = |approvals: &str| {
            let text = format!(
                "id = \"x\"\n{approvals}\n[[requires.shell]]\ncmd = \"*\"\n[requires.fs]\nwrite = [\"{{workspace}}/**\"]\n"
            );
            env.workspace_file("m.toml", &text);
        };
        let run = [&["run", "--manifest", "m.toml", "--"][..], &MARKS].concat();
        manifest("approvals = \"project\"");
        assert_refused(&env, &run, (65, "approvals are kept only for a project whose own manifest is trusted"));
        manifest("approvals = \"session\"");
        assert_runs(&env, &run);
    });
}
