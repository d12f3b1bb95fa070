//! `git_status`, `git_diff` and `repo_overview` in the sandbox: they read what is granted, start nothing, and change nothing.
//! That they say what git says is tested beside their code.

use std::fs;

use callgate_tests::{Binaries, Host, Run, TestEnv, matrix};
use serde_json::{Value, json};

/// `callgate call` of a tool outside the lock.
fn call(run: &Run, flags: &[&str], tool: &str, arguments: &Value) -> (i32, Value) {
    let binary = Binaries::of_this_build().callgate().display().to_string();
    let arguments = arguments.to_string();
    let mut words = vec![binary.as_str(), "call", "--extra", tool];
    words.extend(flags);
    words.extend([tool, arguments.as_str()]);
    let ended = run.run(&words);
    let envelope = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    (ended.status.code().unwrap(), envelope)
}

/// A repository in the workspace, of whoever calls, that runs a program whenever git looks at it; and what that leaves.
fn hostile(env: &TestEnv) -> std::path::PathBuf {
    let script = "set -e; git init -q -b main .; git config user.name a; git config user.email a@b.c
        echo one >file; echo 'file filter=evil diff=evil' >.gitattributes; git add .; git commit -qm one; echo two >file
        printf '#!/bin/sh\\ntouch \"%s/ran\"\\ncat\\n' \"$PWD\" >program; chmod 755 program
        for key in core.fsmonitor filter.evil.clean diff.evil.textconv diff.external; do git config $key \"$PWD/program\"; done";
    let made = env.bare().run(&["/bin/sh", "-c", script]);
    assert!(made.status.success(), "{made:?}");
    let ran = env.workspace().join("ran");
    let control = env.bare().run(&["/bin/sh", "-c", "git status >/dev/null; git --no-pager diff"]);
    assert!(ran.exists(), "git runs what is configured: {control:?}");
    fs::remove_file(&ran).unwrap();
    ran
}

/// S2-14, S2-15, S0-25, F4, F10: in both strengths, with no grant of programs, also where the profile only reads.
#[test]
fn f4_f10_s2_14_s2_15_a_repository_is_looked_at_and_nothing_runs() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let ran = hostile(&env);
        let index = env.workspace().join(".git/index");
        let before = (fs::read(&index).unwrap(), fs::metadata(&index).unwrap().modified().unwrap());
        for flags in [&[][..], &["--profile", "readonly"]] {
            let (status, envelope) = call(&env.weakened(), flags, "git_status", &json!({}));
            assert_eq!(status, 0, "{envelope}");
            assert_eq!(envelope["data"]["content"], "## main\n M file\n?? program\n", "{envelope}");
            let (status, envelope) = call(&env.weakened(), flags, "git_diff", &json!({ "path": "file", "context": 0 }));
            assert_eq!(status, 0, "{envelope}");
            let diff = "diff --git a/file b/file\nindex 5626abf..f719efd 100644\n--- a/file\n+++ b/file\n@@ -1 +1 @@\n-one\n+two\n";
            assert_eq!(envelope["data"]["content"], diff, "{envelope}");
            let (status, envelope) = call(&env.weakened(), flags, "repo_overview", &json!({}));
            assert_eq!((status, &envelope["data"]["files"]), (0, &json!(2)), "{envelope}");
        }
        assert!(!ran.exists(), "nothing ran");
        let after = (fs::read(&index).unwrap(), fs::metadata(&index).unwrap().modified().unwrap());
        assert!(before == after, "the index is as it was");
    });
}

/// A18, F5, S0-61: where `.git` leads to a repository that is not granted, nothing of that is read; granted, it is.
#[test]
fn a18_f5_a_repository_elsewhere_is_read_only_if_it_is_granted() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let elsewhere = env.outside().join("elsewhere").display().to_string();
        let script =
            format!("set -e; git init -q -b main --separate-git-dir '{elsewhere}' .; echo one >file; git add file");
        let made = env.bare().run(&["/bin/sh", "-c", &script]);
        assert!(made.status.success(), "{made:?}");
        for tool in ["git_status", "git_diff"] {
            let (status, envelope) = call(&env.weakened(), &["--read", &elsewhere], tool, &json!({}));
            assert_eq!(status, 0, "the control: {envelope}");
            let (status, envelope) = call(&env.weakened(), &[], tool, &json!({}));
            assert_ne!(status, 0, "{tool}: {envelope}");
            let text = envelope["error_text"].as_str().unwrap();
            assert!(text.contains("elsewhere"), "{text}");
            assert!(envelope.get("data").is_none(), "{envelope}");
        }
        let (status, envelope) = call(&env.weakened(), &[], "git_status", &json!({ "path": env.outside() }));
        assert_eq!((status, &envelope["metadata"]["denial"]["layer"]), (77, &json!("capability")), "{envelope}");
    });
}
