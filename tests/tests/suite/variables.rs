//! The environment of programs: what is passed, what is set, and what is said of it (D8, C12, C14).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use callgate_tests::{Host, ProgramRunner, TestEnv, matrix};
use serde_json::Value;

fn value(run: &ProgramRunner, name: &str) -> Option<String> {
    let ended = run.run(&["printenv", name]);
    ended.status.success().then(|| ended.stdout.trim_end().to_owned())
}

/// `--env` passes a variable on or sets it; without it nothing of the caller's comes in.
#[test]
fn env_passes_and_sets() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let run = env.sandbox().variable("OF_THE_CALLER", "outside");
        assert_eq!(value(&run, "OF_THE_CALLER"), None);
        assert_eq!(value(&run.clone().flag(&["--env", "OF_THE_CALLER"]), "OF_THE_CALLER").as_deref(), Some("outside"));
        assert_eq!(value(&run.clone().flag(&["--env", "OF_THE_CALLER=a=b"]), "OF_THE_CALLER").as_deref(), Some("a=b"));
        assert_eq!(value(&run.clone().flag(&["--env", "IN_NEITHER"]), "IN_NEITHER"), None);
        for (typed, status) in [("=x", 64), ("PATH=/tmp", 65), ("HOME", 65)] {
            let ended = run.clone().flag(&["--env", typed]).run(&["true"]);
            assert_eq!(ended.status.code(), Some(status), "{typed}: {ended:?}");
        }
    });
}

/// A variable that decides which code a program runs is refused where single programs are granted; where any may start,
/// it is passed.
#[test]
fn c14_typed_loaders_are_refused_where_programs_are_granted() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for name in ["LD_PRELOAD", "BASH_ENV", "PYTHONPATH", "GIT_SSH_COMMAND"] {
            let typed = format!("{name}=/nowhere");
            let run = env.sandbox().flag(&["--env", &typed]);
            let granted = run.clone().flag(&["--exec", "printenv"]);
            let refused = granted.run(&["printenv", name]);
            assert_eq!((refused.status.code(), refused.stdout.as_str()), (Some(65), ""), "{refused:?}");
            assert!(refused.stderr.contains(&format!("--env {name}: the variable decides")), "{refused:?}");
            assert_eq!(value(&run, name).as_deref(), Some("/nowhere"), "the control");
        }
        let harmless = env.sandbox().flag(&["--env", "API_TOKEN=t", "--exec", "printenv"]);
        assert_eq!(value(&harmless, "API_TOKEN").as_deref(), Some("t"));
    });
}

/// Package managers are told that there is no network, unless the caller says something else of them.
#[test]
fn package_managers_are_told_to_be_offline() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let run = env.sandbox().variable("CARGO_NET_OFFLINE", "false");
        let offline = [("CARGO_NET_OFFLINE", "true"), ("npm_config_offline", "true"), ("PIP_RETRIES", "0")];
        for (name, wanted) in offline {
            assert_eq!(value(&run, name).as_deref(), Some(wanted), "{name}");
        }
        let passed = run.clone().flag(&["--env", "CARGO_NET_OFFLINE", "--env", "PIP_RETRIES=3"]);
        for (name, wanted) in [("CARGO_NET_OFFLINE", "false"), ("npm_config_offline", "true"), ("PIP_RETRIES", "3")] {
            assert_eq!(value(&passed, name).as_deref(), Some(wanted), "{name}");
        }
        env.workspace_file(
            "m.toml",
            "[requires.fs]\nwrite = [\"{workspace}/**\"]\n[[requires.shell]]\ncmd = \"*\"\n\
             [env]\nset = { PIP_RETRIES = \"7\" }\n",
        );
        let of_manifest = env.sandbox().flag(&["--manifest", "m.toml"]);
        assert_eq!(value(&of_manifest, "PIP_RETRIES").as_deref(), Some("7"));
        // What was typed wins.
        assert_eq!(value(&of_manifest.flag(&["--env", "PIP_RETRIES=3"]), "PIP_RETRIES").as_deref(), Some("3"));
    });
}

/// `--explain-env` lists what programs get, with the reason, and of the rest the names alone; and runs nothing.
#[test]
fn the_environment_is_explained() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let run = env.sandbox().variable("MY_TOKEN", "s3cret").variable("TZ", "UTC").variable("LD_AUDIT", "");
        let run = run.flag(&["--env", "X=1", "--explain-env"]);
        let ended = run.run(&["touch", "made"]);
        assert!(ended.status.success() && !env.workspace().join("made").exists(), "{ended:?}");
        for line in [
            "passed   TZ=UTC  # ",
            "set      X=1  # by",
            "set      UV_OFFLINE=1  # no network",
            "dropped  MY_TOKEN  # ",
        ] {
            assert_eq!(ended.stdout.lines().filter(|told| told.starts_with(line)).count(), 1, "{line}: {ended:?}");
        }
        assert!(!ended.stdout.contains("s3cret"), "{ended:?}");
        // What it lists as passed or set is what programs get.
        let callgate = callgate_tests::Binaries::of_this_build().callgate().display().to_string();
        let words = [&callgate, "--json", "run", "--env", "X=1", "--explain-env"];
        let ended = env.weakened().variable("TZ", "UTC").run(&words);
        let all: Vec<Value> = serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {ended:?}"));
        let mut listed: Vec<String> = all
            .iter()
            .filter_map(|one| {
                let value = one["value"].as_str()?;
                Some(format!("{}={value}", one["name"].as_str().unwrap()))
            })
            .filter(|one| !is_the_sessions(one))
            .collect();
        listed.sort();
        let given = env.sandbox().variable("TZ", "UTC").flag(&["--env", "X=1"]).run(&["env"]);
        let mut given: Vec<String> =
            given.stdout.lines().map(str::to_owned).filter(|one| !is_the_sessions(one)).collect();
        given.sort();
        assert_eq!(listed, given);
    });
}

/// Directories that another session names differently.
fn is_the_sessions(variable: &str) -> bool {
    let names = ["HOME", "TMPDIR", "SCREENDIR", "TMUX_TMPDIR", "GOCACHE", "XDG_CACHE_HOME", "npm_config_cache"];
    variable.split_once('=').is_some_and(|(name, _)| names.contains(&name))
}

/// An environment of Python's in the workspace, active outside.
fn activated(env: &TestEnv) -> (ProgramRunner, PathBuf) {
    let venv = env.workspace().join(".venv");
    fs::create_dir_all(venv.join("bin")).unwrap();
    let tool = venv.join("bin/of-the-venv");
    fs::write(&tool, "#!/bin/sh\necho here\n").unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    for path in [&venv, &venv.join("bin"), &tool] {
        env.give(path);
    }
    let path = format!("{}:/usr/bin:/bin", venv.join("bin").display());
    (env.sandbox().variable("VIRTUAL_ENV", venv.to_str().unwrap()).variable("PATH", &path), venv)
}

/// C12: an active environment works in a session for one call, though calls can write its programs. Where single programs are
/// granted it would put a planted one in the place of a granted one: there it is left out, and that is said once.
#[test]
fn c12_an_active_environment_works_or_is_said_to_be_left_out() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (run, venv) = activated(&env);
        let ended = run.run(&["of-the-venv"]);
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), "here\n"), "{ended:?}");
        assert!(!ended.stderr.contains("callgate:"), "{ended:?}");
        let judged = run.clone().flag(&["--exec", "printenv"]).run(&["printenv", "PATH"]);
        assert_eq!(judged.stdout.trim_end(), "/usr/bin:/bin", "{judged:?}");
        let said = format!("the active environment {} is not on the PATH inside", venv.display());
        assert_eq!(judged.stderr.matches(&said).count(), 1, "{judged:?}");
        // Any other directory that calls can write is left out as ever.
        let other = env.workspace().join("bin");
        fs::create_dir(&other).unwrap();
        let path = format!("{}:/usr/bin:/bin", other.display());
        assert_eq!(value(&run.variable("PATH", &path), "PATH").as_deref(), Some("/usr/bin:/bin"));
    });
}

/// C12: nor may an earlier session have planted a program that takes another's place: a directory of the workspace is not on the
/// `PATH` of a session that only reads there either.
#[test]
fn c12_no_program_of_the_workspace_takes_the_place_of_another() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (planted, beside) = (env.workspace().join("bin"), env.outside().join("bin"));
        for directory in [&planted, &beside] {
            fs::create_dir(directory).unwrap();
            let program = directory.join("printenv");
            fs::write(&program, "#!/bin/sh\necho planted\n").unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
            env.give(directory);
            env.give(&program);
        }
        let manifest = |more: &str| {
            let text = format!(
                "[requires.fs]\nread = [\"{{workspace}}/**\", \"{}/**\"]\n[[requires.shell]]\ncmd = \"printenv\"\n{more}",
                beside.display()
            );
            env.file("manifest.toml", &text)
        };
        let binary = callgate_tests::Binaries::of_this_build().callgate().display().to_string();
        let run = |first: &std::path::Path| {
            let manifest = manifest("");
            let path = format!("{}:/usr/bin:/bin", first.display());
            let words = [&binary, "run", "--manifest", manifest.text(), "--", "printenv", "PATH"];
            env.weakened().variable("PATH", &path).run(&words)
        };
        let ended = run(&planted);
        assert_eq!(ended.stdout.trim_end(), "/usr/bin:/bin", "{ended:?}");
        let ended = run(&beside);
        assert_eq!(ended.stdout, "planted\n", "the control: {ended:?}");
    });
}
