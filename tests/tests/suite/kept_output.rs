//! Output that a result of `callgate call` has no room for: kept where the caller says, and otherwise not promised
//! (S0-44, C-27).

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use callgate_tests::{Binaries, Host, ProgramOutcome, TestEnv, User, matrix};
use serde_json::{Value, json};

/// A rule makes `callgate call` open a session for many calls; without one it is for one call.
const RULES: &str = "[[requires.shell]]\ncmd = \"*\"\n[requires.fs]\nwrite = [\"{workspace}/**\"]\n\
                     [[rules]]\npermission = \"bash\"\npattern = \"rm *\"\naction = \"deny\"\n";

const MOST: usize = 200 * 1024;

fn call(env: &TestEnv, flags: &[&str], tool: &str, arguments: &Value) -> ProgramOutcome {
    let callgate = Binaries::of_this_build().callgate().display().to_string();
    let arguments = arguments.to_string();
    env.weakened().run(&[&[callgate.as_str(), "call"], flags, &[tool, &arguments]].concat())
}

#[track_caller]
fn envelope(ended: &ProgramOutcome) -> Value {
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    serde_json::from_str(&ended.stdout).unwrap()
}

/// Prints `MOST` bytes and a last line.
fn long() -> Value {
    json!({ "command": format!("head -c {MOST} /dev/zero | tr '\\0' x; echo rest") })
}

/// A directory of the user's that no grant mentions.
fn directory(env: &TestEnv) -> PathBuf {
    let directory = env.outside().join("kept");
    fs::create_dir(&directory).unwrap();
    env.give(&directory);
    directory
}

/// The flags of a session for one call, and of one for many.
fn sessions(env: &TestEnv) -> [Vec<&'static str>; 2] {
    env.workspace_file("rules.toml", RULES);
    [vec![], vec!["--manifest", "rules.toml"]]
}

/// Without a directory no file is named, since it would be gone with the session; the result says so, and how to keep the rest.
#[test]
fn s0_44_without_a_directory_no_file_is_promised() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for flags in sessions(&env) {
            let cut = envelope(&call(&env, &flags, "bash", &long()));
            let metadata = &cut["metadata"];
            assert_eq!((&metadata["truncated"], metadata.get("output_path")), (&json!(true), None), "{metadata}");
            assert_eq!(cut["data"]["rest_lost"], true);
            assert_eq!(cut["data"]["head"], "x".repeat(MOST), "C-27: the first part is text");
            let said = metadata["rest_lost"].as_str().unwrap();
            assert!(said.contains("not kept") && said.contains("--output-dir DIR"), "{said}");
            let whole = envelope(&call(&env, &flags, "bash", &json!({ "command": "echo short" })));
            assert_eq!(whole["metadata"].get("rest_lost"), None, "the control");
        }
    });
}

/// With one the rest is there when `callgate` has exited: in a new file of the caller's for each result, for nobody else.
#[test]
fn s0_44_c_27_with_a_directory_the_rest_is_there_afterwards() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let kept = directory(&env);
        fs::create_dir(env.workspace().join("many")).unwrap();
        env.give(&env.workspace().join("many"));
        (0..1003).for_each(|n| drop(env.workspace_file(&format!("many/{n:04}"), "")));
        let mut paths = Vec::new();
        for flags in sessions(&env) {
            let flags = [&flags[..], &["--output-dir", kept.to_str().unwrap()]].concat();
            for (tool, arguments, rest) in [
                ("bash", long(), 5),
                (
                    "glob",
                    json!({ "pattern": "many/*" }),
                    3 * (env.workspace().canonicalize().unwrap().as_os_str().len() + 13),
                ),
            ] {
                let cut = envelope(&call(&env, &flags, tool, &arguments));
                assert!(cut["data"].get("rest_lost").is_none() && cut["metadata"].get("rest_lost").is_none(), "{tool}");
                let path = PathBuf::from(cut["metadata"]["output_path"].as_str().unwrap());
                let about = fs::symlink_metadata(&path).unwrap();
                assert_eq!((about.mode() & 0o7777, about.len()), (0o600, rest as u64), "{tool}");
                assert_eq!(path.parent(), Some(&*kept.canonicalize().unwrap()));
                match tool {
                    "bash" => assert_eq!(fs::read_to_string(&path).unwrap(), "rest\n"),
                    _ => assert_eq!(cut["data"]["head"].as_array().unwrap().len(), 1000),
                }
                paths.push(path);
            }
            let whole = envelope(&call(&env, &flags, "bash", &json!({ "command": "echo short" })));
            assert_eq!(whole["metadata"].get("output_path"), None, "nothing to keep");
        }
        let there = fs::read_dir(&kept).unwrap().count();
        paths.sort();
        paths.dedup();
        assert_eq!((paths.len(), there), (4, 4), "a file for each result, and none besides");
    });
}

/// A directory in which the call could change what is kept is refused, and so is one that cannot be written; nothing runs.
#[test]
fn s0_44_a_directory_that_a_call_can_write_is_refused() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let inside = env.workspace().join("inside");
        let (granted, below) = (env.outside().join("granted"), env.outside().join("granted/below"));
        for made in [&inside, &granted, &below] {
            fs::create_dir(made).unwrap();
            env.give(made);
        }
        let (link, file, closed) = (env.outside().join("link"), env.file("file", ""), env.outside().join("closed"));
        symlink(&inside, &link).unwrap();
        fs::create_dir(&closed).unwrap();
        env.give(&closed);
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
        let arguments = json!({ "command": "touch ran" });
        let refused = |path: &Path, said: &str| {
            let flags = ["--write", granted.to_str().unwrap(), "--output-dir", path.to_str().unwrap()];
            let ended = call(&env, &flags, "bash", &arguments);
            assert_eq!(ended.status.code(), Some(64), "{path:?}: {ended:?}");
            assert!(ended.stderr.contains(said), "{path:?}: {ended:?}");
            assert!(!env.workspace().join("ran").is_file());
        };
        for path in [&inside, &env.workspace(), &granted, &below, &link] {
            refused(path, "it lies in what calls may write");
        }
        refused(&env.outside().join("missing"), "No such file");
        refused(&file, "not a directory");
        if target.user == User::Ordinary {
            refused(&closed, "Permission denied");
        }
        let kept = directory(&env);
        let flags = ["--write", granted.to_str().unwrap(), "--output-dir", kept.to_str().unwrap()];
        envelope(&call(&env, &flags, "bash", &arguments));
        assert!(env.workspace().join("ran").is_file(), "the control");
    });
}
