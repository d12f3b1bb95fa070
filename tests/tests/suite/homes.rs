//! A home directory is not granted by the way (A16): as a workspace, or in a tree that is, it is refused as `/` is, whatever it
//! is called, unless somebody insists.

use std::fs;
use std::os::unix::fs::symlink;

use callgate_tests::{Binaries, Host, ProgramOutcome, TestEnv, matrix};
use serde_json::json;

/// A home with a key and a project, and a directory of its owner's elsewhere.
fn furnished(target: callgate_tests::Target) -> TestEnv {
    let env = TestEnv::new(target);
    for directory in ["h", "h/.ssh", "h/project"] {
        let directory = env.outside().join(directory);
        fs::create_dir(&directory).unwrap();
        env.give(&directory);
    }
    env.file("h/.ssh/id_rsa", "the key");
    env.file("h/project/file", "mine");
    env
}

fn callgate(env: &TestEnv, home: &str, words: &[&str]) -> ProgramOutcome {
    let binary = Binaries::of_this_build().callgate().display().to_string();
    env.weakened().variable("HOME", home).run(&[&[binary.as_str()], words].concat())
}

#[track_caller]
fn assert_refused(ended: &ProgramOutcome, why: &str) {
    assert_eq!(ended.status.code(), Some(64), "{ended:?}");
    assert!(!ended.stdout.contains("the key"), "{ended:?}");
    assert!(ended.stderr.contains(why) && ended.stderr.contains("--allow-home"), "{why}: {ended:?}");
}

#[test]
fn a16_a_home_directory_is_no_workspace() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target);
        let outside = env.outside().display().to_string();
        let home = format!("{outside}/h");
        let link = env.workspace().join("link");
        symlink(&home, &link).unwrap();
        let read = |dir: &str| callgate(&env, &home, &["call", "-C", dir, "read", "{\"path\": \".ssh/id_rsa\"}"]);
        let run = |dir: &str, file: &str| callgate(&env, &home, &["run", "-C", dir, "--", "cat", file]);
        for (dir, file, why) in [
            (home.as_str(), ".ssh/id_rsa", "it is a home directory"),
            (link.to_str().unwrap(), ".ssh/id_rsa", "it is a home directory"),
            (&outside, "h/.ssh/id_rsa", "lies in it"),
        ] {
            assert_refused(&run(dir, file), why);
            assert_refused(&read(dir), why);
        }
        // Whatever is granted of it: here nothing, and its tools can be looked at.
        let manifest = env.outside().join("elsewhere.toml");
        let granted = env.outside().join("granted");
        fs::create_dir(&granted).unwrap();
        let text = format!(
            "id = \"x\"\n[requires.fs]\nread = [\"{}/**\"]\n[[requires.shell]]\ncmd = \"*\"\n",
            granted.display()
        );
        fs::write(&manifest, text).unwrap();
        for kept in [&manifest, &granted] {
            env.give(kept);
        }
        let of_manifest = |dir: &str| {
            callgate(&env, &home, &["run", "--manifest", manifest.to_str().unwrap(), "-C", dir, "--", "true"])
        };
        assert_refused(&of_manifest(&home), "as the workspace");
        let control = of_manifest(granted.to_str().unwrap());
        assert!(control.status.success(), "{control:?}");
        assert!(callgate(&env, &home, &["tools", "-C", &home, "read"]).status.success());
        // Without a home of that name it is told by what it holds.
        let elsewhere = |words: &[&str]| callgate(&env, "/nonexistent", words);
        assert_refused(&elsewhere(&["run", "-C", &home, "--", "cat", ".ssh/id_rsa"]), "it holds keys (.ssh)");
        // The controls: a directory in it; and to insist.
        let ended = run(&format!("{home}/project"), "file");
        assert!(ended.status.success() && ended.stdout == "mine", "{ended:?}");
        let ended = callgate(&env, &home, &["run", "--allow-home", "-C", &home, "--", "cat", ".ssh/id_rsa"]);
        assert!(ended.status.success() && ended.stdout == "the key", "{ended:?}");
    });
}

#[test]
fn a16_a_home_directory_is_not_granted_with_what_holds_it() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target);
        let outside = env.outside().display().to_string();
        let home = format!("{outside}/h");
        let key = format!("{home}/.ssh/id_rsa");
        for flag in ["--read", "--write"] {
            for dir in [&home, &outside] {
                assert_refused(&callgate(&env, &home, &["run", flag, dir, "--", "cat", &key]), "grant all of");
            }
        }
        for pattern in ["h/**", "**", "h/*.txt", "*/.ssh/id_rsa"] {
            let manifest = format!(
                "id = \"x\"\n[requires.fs]\nread = [\"{{workspace}}/**\", \"{outside}/{pattern}\"]\n[[requires.shell]]\ncmd = \"*\"\n"
            );
            env.workspace_file("m.toml", &manifest);
            assert_refused(&callgate(&env, &home, &["run", "--manifest", "m.toml", "--", "cat", &key]), "grant all of");
        }
        // The source of a mount by which the home is known.
        if target.user.uid() == 0 && target.host == Host::Namespaces {
            let (disk, shown) = (env.outside().join("disk/u"), env.outside().join("shown"));
            fs::create_dir_all(&disk).unwrap();
            fs::create_dir(&shown).unwrap();
            let binary = Binaries::of_this_build().callgate().display().to_string();
            let script = r#"[ -z "$3" ] || mount --bind "$1/u" "$2"; HOME=$2 exec "$0" run --read "$1" -- true"#;
            let above = disk.parent().unwrap().display().to_string();
            let read = |mounted: &str| {
                let words = [binary.as_str(), &above, shown.to_str().unwrap(), mounted];
                env.weakened().run(&[&["unshare", "--mount", "sh", "-c", script], &words[..]].concat())
            };
            assert_refused(&read("mounted"), "lies in it");
            assert!(read("").status.success(), "the control");
        }
        // The controls: what is named, whatever it is.
        for (grant, file, wanted) in
            [(format!("{home}/project"), format!("{home}/project/file"), "mine"), (key.clone(), key.clone(), "the key")]
        {
            let ended = callgate(&env, &home, &["run", "--read", &grant, "--", "cat", &file]);
            assert!(ended.status.success() && ended.stdout == wanted, "{ended:?}");
        }
        let arguments = json!({ "path": key }).to_string();
        let ended = callgate(&env, &home, &["call", "--allow-home", "--read", &home, "read", &arguments]);
        assert!(ended.status.success() && ended.stdout.contains("the key"), "{ended:?}");
    });
}
