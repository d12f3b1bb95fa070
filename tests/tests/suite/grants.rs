//! Grants mean what they say: neither their order, nor spellings of a name, nor links, nor what is missing changes them
//! (A8, A9, A10, A11, A14, A16, A21).

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use callgate_tests::{Binaries, Host, ProgramOutcome, TestEnv, User, eventually, matrix, skip};
use libc::{EACCES, ENOENT, EROFS};

fn callgate(env: &TestEnv, words: &[&str]) -> ProgramOutcome {
    let binary = Binaries::of_this_build().callgate().display().to_string();
    env.weakened().run(&[&[binary.as_str()], words].concat())
}

/// A8: a grant that comes later, or lies within another, neither widens nor takes: the union, in either order.
#[test]
fn a8_overlapping_grants_are_their_union_in_either_order() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let inner = env.outside().join("inner");
        fs::create_dir(&inner).unwrap();
        env.give(&inner);
        let (file, theirs) = (inner.join("file"), env.file("theirs", "old"));
        let denied = target.by_strength(EROFS, EACCES);
        for run in [env.sandbox().read(env.outside()).write(&inner), env.sandbox().write(&inner).read(env.outside())] {
            run.probe(&["create", file.to_str().unwrap()]).assert_ok();
            run.probe(&["read", theirs.text()]).assert_ok();
            run.probe(&["write", theirs.text(), "new"]).assert_errno(denied);
            theirs.assert_contents("old");
            fs::remove_file(&file).unwrap();
        }
        env.sandbox().write(env.outside()).probe(&["write", theirs.text(), "new"]).assert_ok();
    });
}

/// S0-39, S0-40: `{workspace}` is its root and the further roots of the manifest and of flags; `{ad-hoc}` and `{user-data}` are
/// the directories that a host names, and without one a pattern grants nothing.
#[test]
fn s0_39_s0_40_roots_and_variables_stand_for_the_directories_that_are_named() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for name in ["root", "typed", "loose", "data"] {
            let directory = env.outside().join(name);
            fs::create_dir(&directory).unwrap();
            env.give(&directory);
            env.file(&format!("{name}/file.txt"), name);
            env.file(&format!("{name}/other"), name);
        }
        let manifest = "roots = [\"../outside/root\"]
            [requires.fs]
            read = [\"{workspace}/**\", \"{ad-hoc}/*.txt\", \"{user-data}/**\"]
            [ceiling.fs]
            read = [\"{workspace}/**\", \"{ad-hoc}/*.txt\", \"{user-data}/**\"]
            write = []";
        let manifest = env.file("manifest.toml", manifest);
        env.workspace_file("file.txt", "workspace");
        let at = |name: &str| env.outside().join(name).display().to_string();
        let (typed, loose, data) = (at("typed"), at("loose"), at("data"));
        let read = |flags: &[&str], path: &str| {
            let arguments = serde_json::json!({ "path": path }).to_string();
            let words =
                [&["call", "--json", "--manifest", manifest.text()], flags, &["read", arguments.as_str()]].concat();
            let ended = callgate(&env, &words);
            (ended.status.code(), ended.stdout)
        };
        let flags = ["--root", typed.as_str(), "--ad-hoc", loose.as_str(), "--user-data", data.as_str()];
        for (path, needs_a_flag) in [
            ("file.txt", false),
            ("../outside/root/other", false),
            ("../outside/typed/other", true),
            ("../outside/loose/file.txt", true),
            ("../outside/data/other", true),
        ] {
            let (status, out) = read(&flags, path);
            assert_eq!(status, Some(0), "{path}: {out}");
            let (status, out) = read(&[], path);
            assert_eq!(status, Some(if needs_a_flag { 77 } else { 0 }), "{path}: {out}");
        }
        // What the pattern does not match is not granted with its directory.
        assert_eq!(read(&flags, "../outside/loose/other").0, Some(77));
        // A root is that directory: a link that a call could have left there is not followed.
        symlink("../outside/data", env.workspace().join("linked")).unwrap();
        let linked = env.file("linked.toml", "roots = [\"linked\"]");
        let ended = callgate(&env, &["call", "--manifest", linked.text(), "read", "{\"path\": \"linked/other\"}"]);
        assert!(ended.status.code() == Some(64) && ended.stderr.contains("`roots` leads there by a link"), "{ended:?}");
        let ended = callgate(&env, &["call", "--ad-hoc", &at("root/other"), "read", "{\"path\": \"file.txt\"}"]);
        assert!(ended.stderr.contains("as {ad-hoc}: it is not a directory"), "{ended:?}");
    });
}

/// A8: a pattern that names a directory grants that directory: its names, and no file in it.
#[test]
fn a8_a_directory_that_is_named_is_not_all_below_it() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        // Not below `/tmp`, which is the session's own with namespaces, and all of it readable.
        let top =
            tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir_in("/var/tmp").unwrap();
        let directory = top.path().join("named");
        fs::create_dir(&directory).unwrap();
        [top.path(), &directory].into_iter().for_each(|path| env.give(path));
        let inside = env.file_at(directory.join("file"), "inside");
        for (pattern, status, out) in [("named", Some(1), "file\n"), ("named/**", Some(0), "file\ninside")] {
            let manifest = format!(
                "[requires.fs]\nread = [\"**\", \"{}/{pattern}\"]\n[[requires.shell]]\ncmd = \"*\"\n",
                top.path().display()
            );
            let manifest = env.file("manifest.toml", &manifest);
            let run = env.sandbox().flag(&["--manifest", manifest.text()]);
            let ended = run.run(&["sh", "-c", "ls \"$1\"; cat \"$1/file\"", "sh", directory.to_str().unwrap()]);
            assert_eq!((ended.status.code(), ended.stdout.as_str()), (status, out), "{pattern}: {ended:?}");
            let reads = run.probe(&["read", inside.text()]);
            if pattern == "named" {
                reads.assert_errno(EACCES)
            } else {
                reads.assert_ok()
            };
        }
    });
}

/// A9: a name in other letters is another name.
#[test]
fn a9_case_and_unicode_variants_of_a_granted_name_are_denied() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let granted = env.file("caf\u{e9}", "mine");
        let run = env.sandbox().read(&granted);
        run.probe(&["read", granted.text()]).assert_ok();
        for variant in ["cafe\u{301}", "Caf\u{e9}", "CAF\u{c9}", "caf\u{e9} ", "caf\u{e9}\u{200b}"] {
            let theirs = env.file(variant, "theirs");
            env.bare().probe(&["read", theirs.text()]).assert_ok();
            run.probe(&["read", theirs.text()]).assert_errno(target.by_strength(ENOENT, EACCES));
        }
    });
}

/// A10: a workspace that is a link is where it leads; a `working_dir` that is outside is denied by name, and not
/// entered by link.
#[test]
fn a10_the_working_directory_is_where_it_really_is() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let theirs = env.file("theirs", "old");
        let link = env.outside().join("link");
        symlink(env.workspace(), &link).unwrap();
        let ran = callgate(&env, &["run", "-C", link.to_str().unwrap(), "--", "pwd", "-P"]);
        assert_eq!(ran.stdout.trim(), env.workspace().to_str().unwrap(), "{ran:?}");
        // Beside the link nothing was granted.
        let stolen = format!("echo new > {}", theirs.text());
        let ran = callgate(&env, &["run", "-C", link.to_str().unwrap(), "--", "sh", "-c", &stolen]);
        assert!(!ran.status.success(), "{ran:?}");
        theirs.assert_contents("old");
        symlink(env.outside(), env.workspace().join("out")).unwrap();
        fs::create_dir(env.workspace().join("sub")).unwrap();
        env.give(&env.workspace().join("sub"));
        for (directory, status) in
            [("sub", Some(0)), ("../outside", Some(77)), (env.outside().to_str().unwrap(), Some(77)), ("out", Some(1))]
        {
            let arguments =
                serde_json::json!({ "command": "pwd; cat theirs; ls; echo ran > ran", "working_dir": directory });
            let ended = callgate(&env, &["call", "bash", &arguments.to_string()]);
            assert_eq!(ended.status.code(), status, "{directory}: {ended:?}");
            assert!(env.workspace().join("sub/ran").exists(), "the control ran");
            assert!(!env.outside().join("ran").exists(), "{directory}");
        }
    });
}

/// A11: the private directory is nobody else's, and has another name each time.
#[test]
fn a11_the_private_directory_is_private_and_cannot_be_guessed() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let look = "cd \"$TMPDIR\" && pwd -P && stat -c %a . && touch mine";
        let seen: Vec<Vec<String>> = (0..2)
            .map(|_| env.sandbox().run(&["sh", "-c", look]).stdout.lines().map(str::to_owned).collect())
            .collect();
        for lines in &seen {
            assert_eq!(lines.len(), 2, "{lines:?}");
            assert_eq!(lines[1], "700");
            // With namespaces it is a file system of the session's own, of which the host has no name.
            assert_ne!(lines[0], "/tmp");
            // `run` ends with its command, and its broker a moment later.
            eventually("nothing is left", || !std::path::Path::new(&lines[0]).exists());
        }
        if !target.has_namespaces() {
            assert_ne!(seen[0][0], seen[1][0], "the name is the same twice");
        }
    });
}

/// A14: what is granted and not there refuses the session, instead of emptying the rules.
#[test]
fn a14_a_missing_granted_path_refuses_the_session() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let theirs = env.file("theirs", "old");
        let line = format!("echo ran > ran; echo new > {}", theirs.text());
        let missing = env.outside().join("missing");
        let manifest = |read: &str| {
            let text = format!(
                "id = \"x\"\n[requires.fs]\nread = [\"{read}/**\"]\nwrite = [\"{{workspace}}/**\"]\n[[requires.shell]]\ncmd = \"*\"\n"
            );
            env.workspace_file("m.toml", &text);
        };
        manifest(missing.to_str().unwrap());
        let ended = callgate(&env, &["run", "--manifest", "m.toml", "--", "sh", "-c", &line]);
        assert_eq!(ended.status.code(), Some(65), "{ended:?}");
        assert!(ended.stderr.contains("missing"), "{ended:?}");
        assert!(!env.workspace().join("ran").exists());
        fs::create_dir(&missing).unwrap();
        env.give(&missing);
        callgate(&env, &["run", "--manifest", "m.toml", "--", "sh", "-c", &line]);
        assert!(env.workspace().join("ran").exists(), "the control runs");
        theirs.assert_contents("old");
    });
}

/// Output of the confined command, or why it was not started.
struct CommandOutput {
    ended: ProgramOutcome,
    ran: bool,
}

/// Runs a command that reads what it was granted and writes what it was not.
fn show(env: &TestEnv, read: &[&Path], write: &[&Path], look: &[&Path]) -> CommandOutput {
    let list = |paths: &[&Path]| paths.iter().map(|path| format!(", \"{}\"", path.display())).collect::<String>();
    let (read, write) = (list(read), list(write));
    let text = format!(
        "id = \"x\"\n[requires.fs]\nread = [\"/usr/**\"{read}]\nwrite = [\"{{workspace}}/**\"{write}]\n[[requires.shell]]\ncmd = \"*\"\n"
    );
    env.workspace_file("m.toml", &text);
    let look: String = look.iter().map(|path| format!("cat {}; ", path.display())).collect();
    let line = format!("echo ran > ran; {look} echo new > {}; true", env.outside().join("theirs").display());
    let ended = callgate(env, &["run", "--manifest", "m.toml", "--", "sh", "-c", &line]);
    let ran = fs::remove_file(env.workspace().join("ran")).is_ok();
    CommandOutput { ended, ran }
}

/// A14: a granted directory that the worker's user cannot reach refuses the session by its name, for reading and for writing;
/// a single file there, which need not exist, is lost alone. The other rules hold in either case.
#[test]
fn a14_an_unreachable_granted_path_refuses_the_session() {
    matrix(Host::STRENGTHS, |target| {
        // As who it is; and, as root, for the workspace of a user who cannot go where root can.
        let owners = if target.user == User::Root { &[0, 4242][..] } else { &[target.user.uid()] };
        for &owner in owners {
            let env = TestEnv::new(target);
            chown(env.workspace(), Some(owner), Some(owner)).unwrap();
            let (theirs, closed, open) =
                (env.file("theirs", "old"), env.outside().join("closed"), env.outside().join("open"));
            let inner = closed.join("inner");
            for directory in [&closed, &inner, &open] {
                fs::create_dir(directory).unwrap();
            }
            let files = [closed.join("file"), inner.join("file"), open.join("file")];
            for (file, text) in files.iter().zip(["closed", "inner", "open"]) {
                env.file_at(file.clone(), text);
            }
            // Its own it could reach with namespaces: as their root it may pass where it might as well have changed the mode.
            let stranger = if owner == 0 { 4242 } else { 0 };
            // With all in it that is granted: another's directory leads root to nothing else (A10).
            for path in [&closed, &inner, &files[0]] {
                if let Err(error) = chown(path, Some(stranger), Some(stranger)) {
                    return skip("root", format_args!("{target:?}: {error}"));
                }
            }
            let looked: Vec<&Path> = files[1..].iter().map(PathBuf::as_path).collect();
            let inner_all = inner.join("**");
            let open_all = open.join("**");
            for (read, write) in
                [(&[inner_all.as_path(), &open_all][..], &[][..]), (&[open_all.as_path()], &[inner_all.as_path()])]
            {
                // Without capabilities uid 0 may not pass either.
                fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
                let refused = show(&env, read, write, &looked);
                assert!(!refused.ran, "{:?}", refused.ended);
                assert_eq!(refused.ended.status.code(), Some(69), "{:?}", refused.ended);
                let named = format!("open {} for its rule: Permission denied", inner.display());
                assert!(refused.ended.stderr.contains(&named), "{:?}", refused.ended);
                // The control: the same manifest, when it can be reached.
                fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
                let control = show(&env, read, write, &looked);
                assert!(control.ran, "{:?}", control.ended);
                assert_eq!(control.ended.stdout, "inneropen", "{:?}", control.ended);
                theirs.assert_contents("old");
            }
            // A single file: the same, but for what is lost.
            for (mode, wanted) in [(0o700, "open"), (0o755, "closedopen")] {
                fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).unwrap();
                let shown = show(&env, &[files[0].as_path(), &open_all], &[], &[&files[0], &files[2]]);
                assert!(shown.ran, "{:?}", shown.ended);
                assert_eq!(shown.ended.stdout, wanted, "{:?}", shown.ended);
                theirs.assert_contents("old");
            }
            assert!(env.bare().run(&["sh", "-c", &format!("echo new > {}", theirs.text())]).status.success());
            theirs.assert_contents("new\n");
        }
    });
}

/// A14: a missing directory refuses also where only writing is granted, and where another grant is in order.
#[test]
fn a14_a_missing_directory_among_others_refuses_the_session() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (theirs, open, missing) =
            (env.file("theirs", "old"), env.outside().join("open"), env.outside().join("missing"));
        fs::create_dir(&open).unwrap();
        env.give(&open);
        let file = open.join("file");
        env.file_at(file.clone(), "open");
        let (open, missing_all) = (open.join("**"), missing.join("**"));
        for (read, write) in
            [(&[open.as_path(), &missing_all][..], &[][..]), (&[open.as_path()], &[missing_all.as_path()])]
        {
            let refused = show(&env, read, write, &[&file]);
            assert!(!refused.ran, "{:?}", refused.ended);
            assert_eq!(refused.ended.status.code(), Some(65), "{:?}", refused.ended);
            assert!(refused.ended.stderr.contains(missing.to_str().unwrap()), "{:?}", refused.ended);
        }
        // The controls: without it, and with a single file that need not exist.
        for read in [&[open.as_path()][..], &[open.as_path(), &missing]] {
            let control = show(&env, read, &[], &[&file]);
            assert!(control.ran, "{:?}", control.ended);
            assert_eq!(control.ended.stdout, "open", "{:?}", control.ended);
            theirs.assert_contents("old");
        }
    });
}

/// A16: what is not granted is not granted from anywhere, also where callgate was started there.
#[test]
fn a16_protection_does_not_hang_on_the_current_directory() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let theirs = env.workspace_file(".bashrc", "old");
        let other = env.outside();
        let line = format!("echo ran > ran; echo new > {}", theirs.text());
        let ended = callgate(&env, &["run", "-C", other.to_str().unwrap(), "--", "sh", "-c", &line]);
        assert!(!ended.status.success(), "{ended:?}");
        assert!(other.join("ran").exists(), "the control ran there: {ended:?}");
        theirs.assert_contents("old");
    });
}

/// A21: the status file is not written through a link that an earlier call planted, nor is a file by `write`.
#[test]
fn a21_no_trusted_write_follows_a_planted_link() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let theirs = env.file("theirs", "old");
        env.sandbox().probe(&["symlink", theirs.text(), env.workspace().join("status").to_str().unwrap()]).assert_ok();
        let ended = callgate(&env, &["run", "--status", "status", "--", "touch", "ran"]);
        assert_eq!(ended.status.code(), Some(64), "{ended:?}");
        assert!(!env.workspace().join("ran").exists());
        let ended = callgate(&env, &["call", "write", r#"{"path": "status", "content": "new"}"#]);
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        theirs.assert_contents("old");
        let ended = callgate(&env, &["run", "--status", "status-2", "--", "touch", "ran"]);
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        assert!(fs::read_to_string(env.workspace().join("status-2")).unwrap().contains("enforced"));
    });
}

/// A2: the same rule for a session of one call, whose tool runs below the broker: a link leads a tool nowhere that was not
/// granted, though a program may go there.
#[test]
fn a2_a_tool_of_one_call_follows_no_link_into_the_base_system() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.workspace_file("file", "mine");
        for (name, to) in [("inner", "file"), ("outer", "/usr/lib/os-release")] {
            std::os::unix::fs::symlink(to, env.workspace().join(name)).unwrap();
        }
        let read = |path: &str| callgate(&env, &["call", "read", &serde_json::json!({ "path": path }).to_string()]);
        let inner = read("inner");
        assert!(inner.status.success() && inner.stdout.contains("mine"), "the control: {inner:?}");
        let program = callgate(&env, &["call", "bash", r#"{"command": "cat outer"}"#]);
        assert!(program.stdout.contains("NAME="), "the control: a program may, {program:?}");
        let outer = read("outer");
        assert_eq!(outer.status.code(), Some(1), "{outer:?}");
        assert!(outer.stdout.contains("os error 13") && !outer.stdout.contains("NAME="), "{outer:?}");
    });
}
