//! A link that a call may have put in the workspace decides nothing for a later session: neither what is granted, nor where
//! callgate looks for programs, nor what a program's file names (A2, A10, C12).

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use callgate_tests::{Binaries, Host, ProgramOutcome, TestEnv, TestFile, User, matrix, matrix_as};
use libc::{EACCES, ENOENT, EXDEV};

pub(crate) const PLANTED: &str = "is a symbolic link in a directory that calls may write in";

/// A tree beside the workspace with a secret, and a link to it that a confined call makes in the workspace: `out`.
fn planted(env: &TestEnv) -> (PathBuf, TestFile) {
    let tree = env.outside().join("theirs");
    fs::create_dir(&tree).unwrap();
    env.give(&tree);
    let secret = env.file("theirs/secret", "old");
    let made = env.sandbox().write(env.workspace()).run(&["ln", "-s", tree.to_str().unwrap(), "out"]);
    assert!(made.status.success() && env.workspace().join("out/secret").exists(), "{made:?}");
    (tree, secret)
}

fn refused(ended: &ProgramOutcome) {
    assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(64), ""), "{ended:?}");
    assert!(ended.stderr.contains(PLANTED), "{ended:?}");
}

fn callgate(env: &TestEnv, words: &[&str]) -> ProgramOutcome {
    let binary = Binaries::of_this_build().callgate().display().to_string();
    env.weakened().run(&[&[binary.as_str()], words].concat())
}

/// A2: no grant follows it, however its path is spelt; a link that no call can have made is followed.
#[test]
fn a2_a_grant_follows_no_link_that_a_call_may_have_made() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (tree, secret) = planted(&env);
        let link = env.workspace().join("out");
        symlink(env.workspace(), env.outside().join("alias")).unwrap();
        let steal =
            |run: &callgate_tests::ProgramRunner| run.run(&["sh", "-c", "cat out/secret; echo new > out/secret"]);
        let other_name = env.outside().join("alias/out");
        for path in [link.clone(), other_name, link.join("secret"), env.workspace().join("sub/../out")] {
            fs::create_dir_all(env.workspace().join("sub")).unwrap();
            for run in [env.sandbox().read(&path), env.sandbox().write(&path)] {
                refused(&steal(&run.read(env.workspace())));
            }
            secret.assert_contents("old");
        }
        let manifest = env.file("manifest.toml", "[requires.fs]\nread = [\"{workspace}/out/**\"]\n");
        refused(&steal(&env.sandbox().flag(&["--manifest", manifest.text()])));
        // The controls: the place itself, and a person's own link to it.
        let own = env.outside().join("own");
        symlink(&tree, &own).unwrap();
        for path in [&tree, &own] {
            env.sandbox().read(path).probe(&["read", secret.text()]).assert_ok();
        }
        env.sandbox().read(env.workspace()).probe(&["read", secret.text()]).assert_errno_any(&[ENOENT, EACCES]);
    });
}

/// A2, A10: nor where the workspace's directory is met as the place of a mount that shows it.
#[test]
fn a2_a10_a_link_that_a_call_made_is_known_by_another_mount() {
    // Root alone can mount something for it.
    matrix_as(User::Root, &[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        let (tree, secret) = planted(&env);
        let (place, own) = (env.outside().join("place"), env.outside().join("own"));
        [&place, &own].iter().for_each(|directory| fs::create_dir(directory).unwrap());
        symlink(&tree, own.join("out")).unwrap();
        // Not a root itself, which is known by what it is.
        let made = env.sandbox().write(env.workspace()).run(&["sh", "-c", "mkdir sub && mv out sub/out"]);
        assert!(made.status.success(), "{made:?}");
        let binary = Binaries::of_this_build().callgate().display().to_string();
        let read = |source: &Path, grant: &Path| {
            let script = r#"mount --bind "$1" "$2" && shift 2 && exec "$@""#;
            let [source, place, grant] = [source, &place, grant].map(|path| path.to_str().unwrap());
            let words =
                ["unshare", "--mount", "sh", "-c", script, "sh", source, place, &binary, "run", "--read", grant];
            env.weakened().run(&[&words[..], &["--", "cat", secret.text()]].concat())
        };
        refused(&read(&env.workspace().join("sub"), &place.join("out")));
        // The control: a person's own link in a directory that no call writes.
        let ended = read(&own, &place.join("out"));
        assert_eq!(ended.stdout, "old", "{ended:?}");
    });
}

/// A2: nor does a directory that is named by a flag, whichever comes first, and whatever may be written of it now.
#[test]
fn a2_no_directory_is_found_by_a_link_that_a_call_may_have_made() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (tree, _) = planted(&env);
        fs::create_dir(env.outside().join("first")).unwrap();
        env.give(&env.outside().join("first"));
        let at = |path: &Path| path.display().to_string();
        let (link, first, workspace) = (at(&env.workspace().join("out")), env.outside().join("first"), env.workspace());
        let glob = ["glob", "{\"pattern\": \"*\"}"];
        for flag in ["--root", "--ad-hoc", "--user-data"] {
            refused_call(&callgate(&env, &[&["call", flag, &link], &glob[..]].concat()));
            let flags = ["call", "-C", &at(&first), flag, &link, "--root", &at(&workspace)];
            refused_call(&callgate(&env, &[&flags[..], &glob[..]].concat()));
            let ended = callgate(&env, &[&["call", flag, &at(&tree)], &glob[..]].concat());
            assert!(ended.status.success(), "the control: {ended:?}");
        }
        let kept = ["call", "--output-dir", &link, "bash", "{\"command\": \"seq 100000\"}"];
        refused_call(&callgate(&env, &kept));
        assert_eq!(fs::read_dir(&tree).unwrap().count(), 1, "nothing was kept there");
        let kept = ["call", "--output-dir", &at(&tree), "bash", "{\"command\": \"seq 100000\"}"];
        let ended = callgate(&env, &kept);
        assert!(ended.status.success() && fs::read_dir(&tree).unwrap().count() == 2, "the control: {ended:?}");
    });
}

/// A2: a call of a session in any repository above may have put it there, and a `.git` in between as well.
#[test]
fn a2_every_repository_above_a_workspace_counts() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (tree, secret) = planted(&env);
        let outer = env.outside().join("outer");
        for name in ["", "inner", "inner/.git", "inner/ws", "inner/other"] {
            fs::create_dir_all(outer.join(name)).unwrap();
            env.give(&outer.join(name));
        }
        symlink(&tree, outer.join("out")).unwrap();
        symlink("inner/ws", outer.join("to-ws")).unwrap();
        symlink("../ws", outer.join("inner/other/to-ws")).unwrap();
        let at = |name: &str| outer.join(name).display().to_string();
        let reads = |workspace: &str| env.sandbox().flag(&["-C", &at(workspace)]).read(outer.join("out"));
        let goes = |workspace: &str| env.sandbox().flag(&["-C", &at(workspace)]).run(&["pwd"]);
        reads("inner/ws").probe(&["read", secret.text()]).assert_ok();
        assert_eq!(goes("to-ws").stdout.trim(), at("inner/ws"), "the control: a person's own link, in no repository");
        refused(&goes("inner/other/to-ws"));
        fs::create_dir(outer.join(".git")).unwrap();
        refused(&reads("inner/ws").run(&["cat", secret.text()]));
        refused(&goes("to-ws"));
        assert_eq!(goes("inner/ws").stdout.trim(), at("inner/ws"), "the control: no link is on the way");
        secret.assert_contents("old");
    });
}

/// C12: a directory of `PATH` in which a pattern lets programs write is left out, however the pattern is spelt.
#[test]
fn c12_no_directory_of_path_that_a_pattern_lets_write_is_searched() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let bin = env.outside().join("tools/bin");
        for directory in [env.outside().join("tools"), bin.clone(), bin.join("deep"), env.outside().join("src")] {
            fs::create_dir(&directory).unwrap();
            env.give(&directory);
        }
        let bin = bin.canonicalize().unwrap().display().to_string();
        let at = env.outside().canonicalize().unwrap().display().to_string();
        let path = format!("{bin}:{}", std::env::var("PATH").unwrap());
        let shown = |write: &str| {
            let text =
                format!("[requires.fs]\nread = [\"{{workspace}}/**\", \"{at}/**\"]\nwrite = [\"{at}/{write}\"]\n");
            let manifest = env.file("manifest.toml", &format!("{text}[[requires.shell]]\ncmd = \"*\"\n"));
            let run = env.sandbox().flag(&["--manifest", manifest.text()]).variable("PATH", &path);
            let ended = run.run(&["sh", "-c", "echo \"$PATH\""]);
            assert!(ended.status.success(), "{write}: {ended:?}");
            ended.stdout
        };
        for write in ["**/bin/**", "tools/*/x", "tools/**", "tools/bin/deep/**", "tools/bin/ls", "**"] {
            assert!(!shown(write).contains(&bin), "{write}");
        }
        for write in ["src/**", "src/*.rs", "tools/notes"] {
            assert!(shown(write).starts_with(&bin), "the control: {write}");
        }
    });
}

fn refused_call(ended: &ProgramOutcome) {
    assert_eq!(ended.status.code(), Some(64), "{ended:?}");
    assert!(ended.stderr.contains(PLANTED), "{ended:?}");
}

/// A2, C12: tools in the home directory and directories of `PATH` are not looked for by such a link.
#[test]
fn a2_c12_programs_are_not_looked_for_by_a_link_that_a_call_may_have_made() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let home = env.outside().join("home");
        for name in ["", "go", "precious", "tools", "proj"] {
            fs::create_dir_all(home.join(name)).unwrap();
            env.give(&home.join(name));
        }
        let (secret, tool) = (env.file("home/precious/key", "secret"), env.file("home/tools/version", "tool"));
        symlink(home.join("tools"), home.join(".pyenv")).unwrap();
        let (go, home) = (home.join("go").display().to_string(), home.display().to_string());
        let run = || env.sandbox().flag(&["-C", &go]).variable("HOME", &home).write(&go);
        let planted = run().run(&["sh", "-c", "ln -s ../precious bin && ln -s /usr/bin found"]);
        assert!(planted.status.success(), "{planted:?}");
        env.sandbox().read(secret.text()).probe(&["read", secret.text()]).assert_ok();
        run().probe(&["read", tool.text()]).assert_ok();
        run().probe(&["read", secret.text()]).assert_errno_any(&[ENOENT, EACCES]);
        // Nor by a session that knows nothing of that one, whatever the link leads to.
        let proj = format!("{home}/proj");
        let elsewhere = || env.sandbox().flag(&["-C", &proj]).variable("HOME", &home);
        elsewhere().probe(&["read", secret.text()]).assert_errno_any(&[ENOENT, EACCES]);
        let everything = run().run(&["sh", "-c", "rm bin && ln -s / bin"]);
        assert!(everything.status.success(), "{everything:?}");
        elsewhere().probe(&["read", secret.text()]).assert_errno_any(&[ENOENT, EACCES]);
        elsewhere().probe(&["read", tool.text()]).assert_ok();
        let path = std::env::var("PATH").unwrap();
        let (in_go, own) = (format!("{go}/found"), format!("{home}/bin"));
        symlink("/usr/bin", &own).unwrap();
        let ended = run().variable("PATH", &format!("{in_go}:{own}:{path}")).run(&["sh", "-c", "echo \"$PATH\""]);
        assert!(!ended.stdout.contains(&in_go) && ended.stdout.starts_with(&own), "{ended:?}");
    });
}

/// A2: what a program's file names, and what it is itself by a link, is opened only where the session may read anyway.
#[test]
fn a2_a_program_s_file_shows_nothing_that_may_not_be_read() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let secret = env.file("secret", "#!/bin/sh\necho secret\n");
        fs::set_permissions(&*secret, fs::Permissions::from_mode(0o755)).unwrap();
        let script = env.workspace_file("script", &format!("#!{}\n", secret.text()));
        fs::set_permissions(&*script, fs::Permissions::from_mode(0o755)).unwrap();
        let own = env.workspace_file("own", "#!/bin/sh\necho ran\n");
        fs::set_permissions(&*own, fs::Permissions::from_mode(0o755)).unwrap();
        symlink(secret.text(), env.workspace().join("link")).unwrap();
        symlink("own", env.workspace().join("to-own")).unwrap();
        let with = |programs: &[&str]| {
            let mut run = env.sandbox().read(env.workspace());
            for program in programs.iter().chain(&["cat", "sh"]) {
                run = run.flag(&["--exec", program]);
            }
            run
        };
        for program in ["./script", "./link"] {
            let ended = with(&[program]).run(&["cat", secret.text()]);
            assert!(!ended.status.success() && ended.stdout.is_empty(), "{program}: {ended:?}");
        }
        assert!(with(&[]).read(&secret).run(&["cat", secret.text()]).stdout.contains("echo secret"), "the control");
        for program in ["./own", "./to-own"] {
            assert_eq!(with(&[program]).run(&[program]).stdout, "ran\n", "the control: {program}");
        }
        // Where there is no mount tree, in which it is not, it is granted by being named itself.
        let named = with(&[secret.text()]).run(&[secret.text()]).stdout;
        assert_eq!(named, target.by_strength("", "secret\n"));
    });
}

/// A2: a link in a directory above which nobody may look counts as one that a call may have made.
#[test]
fn a2_a_link_of_which_nothing_is_known_is_not_followed() {
    // Root may look everywhere.
    matrix_as(User::Ordinary, Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let secret = env.file("secret", "old");
        let sub = env.workspace().join("mid/sub");
        fs::create_dir_all(&sub).unwrap();
        [&env.workspace().join("mid"), &sub].into_iter().for_each(|path| env.give(path));
        let workspace = env.workspace().display().to_string();
        let script = "cd mid/sub && ln -s \"$2\" link && chmod \"$3\" \"$1/mid\" && \
                      exec \"$0\" run -C \"$1\" --read link -- cat \"$2\"";
        let binary = Binaries::of_this_build().callgate().display().to_string();
        for mode in ["0", "755"] {
            let ended = env.weakened().run(&["sh", "-c", script, &binary, &workspace, secret.text(), mode]);
            fs::set_permissions(env.workspace().join("mid"), fs::Permissions::from_mode(0o755)).unwrap();
            refused(&ended);
            fs::remove_file(sub.join("link")).unwrap();
        }
        let control = env.sandbox().read(secret.text()).run(&["cat", secret.text()]);
        assert_eq!(control.stdout, "old", "{control:?}");
    });
}

/// A3: a hard link from one granted tree into another would outlast the grant; in both strengths they are file systems apart.
#[test]
fn a3_no_hard_link_joins_two_granted_trees() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let other = env.outside().join("other");
        fs::create_dir(&other).unwrap();
        env.give(&other);
        let file = env.file("other/file", "old");
        let (inside, moved) = (env.workspace().join("hard"), env.workspace().join("moved"));
        let run = env.sandbox().write(env.workspace()).write(&other);
        for act in ["link", "rename"] {
            run.probe(&[act, file.text(), inside.to_str().unwrap()]).assert_errno(EXDEV);
        }
        assert!(!inside.exists() && fs::metadata(&*file).unwrap().nlink() == 1);
        let ended = run.run(&["mv", file.text(), moved.to_str().unwrap()]);
        assert!(ended.status.success() && moved.exists() && !file.exists(), "the control, which copies: {ended:?}");
        let again = env.workspace().join("again");
        run.probe(&["link", moved.to_str().unwrap(), again.to_str().unwrap()]).assert_ok();
    });
}
