//! Nothing that the launcher holds reaches the tool: descriptors, environment, terminal (A17, A20, B17, D6, E5).

use callgate_tests::{Binaries, Host, TestEnv, matrix, skip};
use libc::{EACCES, EIO, ENOTTY, EPERM};

/// A20, B17: the launcher's descriptors, handed down without close-on-exec by a shell, as careless hosts do.
#[test]
fn a20_b17_only_three_descriptors_are_open() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let secret = env.file("secret", "old");
        let handing_down = |run: &callgate_tests::ProgramRunner| {
            let inner = run.probe_command(&["list-fds"]);
            let mut words = vec!["/bin/sh".to_owned(), "-c".to_owned(), "exec 7<\"$0\" 8<\"$0\" 9</ \"$@\"".to_owned()];
            words.push(secret.text().to_owned());
            words.extend(
                std::iter::once(inner.get_program())
                    .chain(inner.get_args())
                    .map(|word| word.to_str().expect("test command lines are text").to_owned()),
            );
            let output =
                std::process::Command::new(&words[0]).args(&words[1..]).current_dir(env.workspace()).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let line: serde_json::Value = serde_json::from_str(&text)
                .unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
            line["fds"].as_object().unwrap().keys().cloned().collect::<Vec<_>>()
        };
        let bare = handing_down(&env.bare());
        for handed in ["7", "8", "9"] {
            assert!(bare.iter().any(|fd| fd == handed), "{bare:?}");
        }
        let mut inside = handing_down(&env.sandbox());
        inside.sort();
        assert_eq!(inside, ["0", "1", "2"]);
    });
}

/// A17: secrets of the launcher's environment, and variables that load code.
#[test]
fn a17_the_environment_is_not_inherited() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let variables = [
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("GITHUB_TOKEN", "secret"),
            ("SSH_AUTH_SOCK", "/tmp/agent"),
            ("BASH_ENV", "/tmp/code"),
            ("PYTHONSTARTUP", "/tmp/code"),
            ("CALLGATE_TEST_CANARY", "secret"),
        ];
        let dress = |run: callgate_tests::ProgramRunner| {
            variables.iter().fold(run, |run, (key, value)| run.variable(key, value))
        };
        let bare = dress(env.bare()).probe(&["env"]);
        let inside = dress(env.sandbox()).probe(&["env"]);
        for (key, value) in variables {
            assert_eq!(bare.fact("env")[key], value);
            assert!(inside.assert_ok().fact("env")[key].is_null(), "{key}: {inside}");
        }
        assert!(!inside.fact("env")["PATH"].is_null(), "{inside}");
    });
}

/// E5: no variable switches protection off.
#[test]
fn e5_no_variable_switches_protection_off() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let theirs = env.file("theirs", "old");
        let words = ["write", theirs.text(), "new"];
        for key in ["CALLGATE_DISABLE", "CALLGATE_NO_SANDBOX", "CALLGATE_MODE", "NO_SANDBOX", "SANDBOX_DISABLED"] {
            for value in ["1", "off", "yolo", ""] {
                let tried = env.sandbox().variable(key, value).probe(&words);
                tried.assert_errno(target.by_strength(libc::ENOENT, EACCES));
            }
        }
        theirs.assert_contents("old");
        env.bare().probe(&words).assert_ok();
    });
}

/// D6: typing into the terminal that the launcher shares, also with bits that the kernel cuts off and a filter that
/// compares 64 bits would not recognise. ENOTTY: the tool has no terminal at all, which is as good.
#[test]
fn d6_nothing_can_be_typed_into_the_terminal() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        // Under a terminal of its own, as the launcher's shell would be.
        let type_into = |run: &callgate_tests::ProgramRunner, act: &[&str]| {
            let inner = run.probe_command(act);
            let words: Vec<&str> = std::iter::once(inner.get_program())
                .chain(inner.get_args())
                .map(|word| word.to_str().expect("test command lines are text"))
                .collect();
            let probe = Binaries::of_this_build().probe();
            let output = std::process::Command::new(probe)
                .arg("under-terminal")
                .args(words)
                .current_dir(env.workspace())
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            serde_json::from_str::<serde_json::Value>(&text)
                .unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)))
        };
        let typing = [&["tty-sti", "0"][..], &["tty-sti", "0", "1"], &["tty-sti", "0", "0x80000000"]];
        let legacy = std::fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti");
        if legacy.is_ok_and(|on| on.trim() == "1") {
            for act in typing {
                let seen = type_into(&env.bare(), act);
                assert_eq!(seen["ok"], true, "{seen}");
            }
        } else {
            skip("tiocsti", "this kernel refuses it to everyone");
        }
        for act in typing.into_iter().chain([&["tty-linux", "0"][..]]) {
            let seen = type_into(&env.sandbox(), act);
            assert_eq!(seen["ok"], false, "{seen}");
            let errno = seen["errno"].as_i64().and_then(|number| i32::try_from(number).ok()).unwrap();
            assert!([EPERM, EACCES, ENOTTY, EIO].contains(&errno), "{seen}");
        }
    });
}
