//! `git_status`, `git_diff` and `repo_overview` in the sandbox: they read what is granted, start nothing, and change nothing.
//! That they say what git says is tested beside their code. `diagnostics` tells of the sandbox what the kernel confirmed, and `repo_clone`
//! clones from granted hosts.

use std::fs;

use callgate_tests::{Binaries, Host, ProgramRunner, TestEnv, matrix, skip};
use serde_json::{Value, json};

use crate::network::{data, on_an_internet_with};

/// `callgate call` of a tool outside the lock.
fn call(run: &ProgramRunner, flags: &[&str], tool: &str, arguments: &Value) -> (i32, Value) {
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

/// A18, F5, S0-61: where `.git` leads out of the workspace, what is there is not read, granted to others or not: a call needs the
/// workspace, and gets that. Within the workspace it is read.
#[test]
fn a18_f5_a_repository_elsewhere_is_not_read() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let make = |directory: &str| {
            let script =
                "set -e; rm -rf .git; git init -q -b main --separate-git-dir \"$0\" .; echo one >file; git add file";
            let made = env.bare().run(&["/bin/sh", "-c", script, directory]);
            assert!(made.status.success(), "{made:?}");
        };
        make(&env.workspace().join("inside").display().to_string());
        for tool in ["git_status", "git_diff"] {
            let (status, envelope) = call(&env.weakened(), &[], tool, &json!({}));
            assert_eq!(status, 0, "the control: {envelope}");
        }
        let elsewhere = env.outside().join("elsewhere").display().to_string();
        make(&elsewhere);
        for tool in ["git_status", "git_diff", "diagnostics"] {
            for flags in [&[][..], &["--read", &elsewhere]] {
                let (_, envelope) = call(&env.weakened(), flags, tool, &json!({}));
                let text = envelope["error_text"].as_str().or(envelope["data"]["git"]["error"].as_str());
                let text = text.unwrap_or_else(|| panic!("{tool}: {envelope}"));
                assert!(text.contains(&format!("open {elsewhere}")), "{tool}: {text}");
            }
        }
        let (status, envelope) = call(&env.weakened(), &[], "git_status", &json!({ "path": env.outside() }));
        assert_eq!((status, &envelope["metadata"]["denial"]["layer"]), (77, &json!("capability")), "{envelope}");
    });
}

/// S2-16: the sandbox of the very call, and the programs that it may start; where it may start none, that is said.
#[test]
fn s2_16_diagnostics_tell_what_the_kernel_confirmed() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        hostile(&env);
        let (status, envelope) = call(&env.weakened(), &[], "diagnostics", &json!({}));
        assert_eq!(status, 0, "{envelope}");
        let data = &envelope["data"];
        let enforced = &envelope["metadata"]["enforced"];
        assert!(enforced.as_array().is_some_and(|all| !all.is_empty()), "{envelope}");
        assert_eq!(&data["sandbox"]["enforced"], enforced, "{envelope}");
        let strength = target.by_strength("namespaces", "landlock");
        assert_eq!((&data["sandbox"]["strength"], &data["sandbox"]["network"]), (&json!(strength), &json!([])));
        assert_eq!((&data["git"]["changed"], &data["git"]["untracked"]), (&json!(1), &json!(1)), "{envelope}");
        assert_eq!(data["workspace"]["path"].as_str().unwrap(), env.workspace().display().to_string());
        let git = |data: &Value| data["toolchain"].as_array().unwrap()[0].clone();
        let version = env.bare().run(&["git", "--version"]).stdout;
        assert_eq!(git(data), json!({ "program": "git", "version": version.trim() }), "{envelope}");
        // A ceiling leaves one program.
        env.workspace_file("ceiling.toml", "id = \"x\"\n[[ceiling.shell]]\ncmd = \"make\"\n");
        let manifest = env.workspace().join("ceiling.toml").display().to_string();
        let (status, envelope) = call(&env.weakened(), &["--manifest", &manifest], "diagnostics", &json!({}));
        assert_eq!(status, 0, "{envelope}");
        let why = git(&envelope["data"])["unknown"].as_str().unwrap_or_default().to_owned();
        assert!(why.contains("shell git --version is denied"), "{envelope}");
        assert!(!env.workspace().join("ran").exists(), "nothing of the repository's ran");
    });
}

/// S0-25: a repository of a granted host is cloned, and nothing else: not from another host, not by another protocol, not onto
/// anything; what fails leaves nothing.
#[test]
fn s0_25_a_repository_is_cloned_from_a_granted_host() {
    if !std::path::Path::new("/usr/lib/git-core/git-http-backend").exists() {
        return skip("git-http-backend", "it is missing");
    }
    on_an_internet_with("git", |internet| {
        let workspace = internet.env.workspace();
        // With these a clone would ask another host.
        let elsewhere = "[url \"https://other.example/\"]\n\tinsteadOf = https://good.example/\n";
        internet.env.workspace_file("settings", elsewhere);
        let run = internet
            .on(internet.env.weakened())
            .variable("GIT_SSL_CAINFO", &format!("{}/certificate.pem", data()))
            .variable("GIT_CONFIG_GLOBAL", &workspace.join("settings").display().to_string());
        let data = data();
        let clone = |granted: &str, arguments: &Value| {
            let flags = ["--net", granted, "--read", &data, "--env", "GIT_SSL_CAINFO", "--env", "GIT_CONFIG_GLOBAL"];
            call(&run, &flags, "repo_clone", arguments)
        };
        let names = || {
            let mut names: Vec<_> = fs::read_dir(&workspace).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let url = "https://good.example/git/repository";
        let (status, envelope) = clone("good.example", &json!({ "url": url, "depth": 1 }));
        assert_eq!((status, &envelope["data"]["exit_code"]), (0, &json!(0)), "{envelope}");
        assert_eq!(names(), ["repository", "settings"]);
        let cloned = workspace.join("repository");
        assert!(cloned.join(".git/HEAD").is_file() && !cloned.join(".git/hooks").exists(), "no template");
        let settings = fs::read_to_string(cloned.join(".git/config")).unwrap();
        assert!(settings.contains(url) && !settings.contains("hooksPath"), "{settings}");

        let before = fs::metadata(cloned.join(".git/HEAD")).unwrap().modified().unwrap();
        let (_, envelope) = clone("good.example", &json!({ "url": url }));
        assert_ne!(envelope["data"]["exit_code"], 0, "onto what is there: {envelope}");
        assert_eq!(fs::metadata(cloned.join(".git/HEAD")).unwrap().modified().unwrap(), before);
        let (_, envelope) = clone("good.example", &json!({ "url": "https://good.example/git/none" }));
        assert_ne!(envelope["data"]["exit_code"], 0, "{envelope}");
        internet.seen();
        let (status, envelope) = clone("other.example", &json!({ "url": url, "directory": "new" }));
        assert_eq!((status, &envelope["metadata"]["denial"]["asked"]), (77, &json!("net.hosts good.example:443")));
        for url in [
            "http://good.example/git/repository",
            "file:///etc",
            "ext::sh -c true",
            "git@good.example:git/repository",
            "/etc",
            "https://a:b@good.example/git/repository",
            "https://other.example\\@good.example/git/repository",
        ] {
            let (status, envelope) = clone("good.example", &json!({ "url": url, "directory": "new" }));
            assert_ne!(status, 0, "{url}: {envelope}");
            assert!(envelope["error_text"].as_str().unwrap().contains("argument `url`"), "{url}: {envelope}");
        }
        let option = json!({ "url": url, "directory": "new", "branch": "--upload-pack=touch x" });
        assert_ne!(clone("good.example", &option).0, 0, "an option is no branch");
        let (status, envelope) = clone("good.example", &json!({ "url": url, "directory": "../new" }));
        assert_eq!((status, &envelope["metadata"]["denial"]["layer"]), (77, &json!("capability")), "{envelope}");
        assert_eq!(
            (names(), internet.seen().as_str()),
            (vec!["repository".into(), "settings".into()], ""),
            "nothing was made, nobody was asked"
        );
    });
}
