//! Programs that may be started: single programs, and with which arguments (C2 to C12, C14, C17, C18).
//!
//! Every denied start has a control that succeeds: bare, or inside with what is granted. What is denied is `touch made`, told by
//! the file that is not there; what is granted in its place is `mkdir made`.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use callgate_tests::{
    Binaries, Host, ProgramOutcome, ProgramRunner, Target, TestEnv, User, matrix, matrix_as, repetitions, skip,
};
use libc::{EACCES, ENOENT, ENOEXEC};
use serde_json::{Value, json};

/// A manifest that lets the workspace be written, the outside and the probe be read, and these programs be started: TOML lines for
/// each after `cmd`. They are the ceiling too, because `bash` requires any program.
fn grant(env: &TestEnv, programs: &[&str]) {
    let lines: Vec<String> = programs.iter().map(|program| format!("cmd = {program}")).collect();
    let shell = only(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let text = format!(
        "id = \"x\"\n[requires.fs]\nread = [\"{}/**\"]\nwrite = [\"{{workspace}}/**\"]\n{shell}",
        env.outside().display()
    );
    env.workspace_file("m.toml", &text);
}

/// Asks for these programs, and bounds what may be started to them.
fn only(grants: &[&str]) -> String {
    let table = |name: &str| grants.iter().map(|grant| format!("[[{name}.shell]]\n{grant}\n")).collect::<String>();
    table("requires") + &table("ceiling")
}

/// Under callgate with that manifest.
fn judged(env: &TestEnv) -> ProgramRunner {
    env.sandbox().flag(&["--manifest", "m.toml"])
}

/// A run in which the probe may be started as well.
fn with_probe(env: &TestEnv, programs: &[&str]) -> ProgramRunner {
    let probe = format!("{:?}", Binaries::of_this_build().probe().display().to_string());
    let all: Vec<&str> = programs.iter().copied().chain([probe.as_str()]).collect();
    grant(env, &all);
    judged(env)
}

/// One call of a tool under that manifest.
fn call(env: &TestEnv, tool: &str, arguments: &Value) -> (Option<i32>, Value) {
    let binary = Binaries::of_this_build().callgate().display().to_string();
    let words = [&binary, "call", "--manifest", "m.toml", tool, &arguments.to_string()];
    let ended = env.weakened().run(&words);
    let envelope = serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {ended:?}"));
    (ended.status.code(), envelope)
}

fn made(env: &TestEnv) -> PathBuf {
    env.workspace().join("made")
}

/// Takes away what a program has made; whether there was something.
fn unmake(env: &TestEnv) -> bool {
    fs::remove_dir(made(env)).is_ok() || fs::remove_file(made(env)).is_ok()
}

/// A file that may be executed.
fn script(env: &TestEnv, path: &Path, text: &str) {
    env.file_at(path.to_owned(), text);
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Lines that start another program, in each of the ways in which a check of the command line can be led past: wrappers
/// (C2), lists and substitutions (C3), variables and builtins (C4), arguments of harmless programs (C5), interpreters
/// (C9).
const WAYS: &[&str] = &[
    "PROGRAM made",
    "/usr/bin/PROGRAM made",
    "env PROGRAM made",
    "env -i /usr/bin/PROGRAM made",
    "echo made | xargs PROGRAM",
    "find . -maxdepth 0 -exec PROGRAM made ';'",
    "timeout 5 PROGRAM made",
    "nice PROGRAM made",
    "setsid -w PROGRAM made",
    "nohup PROGRAM made",
    "timeout 5 nice env setsid -w PROGRAM made",
    "true && PROGRAM made",
    "false || PROGRAM made; true",
    "true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;\
     true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;true;\
     true;true;true;true;true;true;PROGRAM made",
    "true\nPROGRAM made",
    "$(PROGRAM made)",
    "`PROGRAM made`",
    "cat <(PROGRAM made)",
    "(PROGRAM made &) ; wait; until [ -e made ] || ((++n > 200)); do sleep 0.01; done",
    "f() { PROGRAM made; }; f",
    "shopt -s expand_aliases; alias x=PROGRAM\nx made",
    "x=PROGRAM; $x made",
    "$(printf PROG)$(printf RAM) made",
    "eval 'PROGRAM made'",
    "command PROGRAM made",
    "exec PROGRAM made",
    "exec -a true PROGRAM made",
    "trap 'PROGRAM made' EXIT",
    "coproc PROGRAM made; wait",
    "echo 'PROGRAM made' | base64 | base64 -d | bash",
    "bash <<'END'\nPROGRAM made\nEND",
    "bash -c 'PROGRAM made'",
    "echo 'PROGRAM made' > start; BASH_ENV=./start bash -c true",
    "echo 'PROGRAM made' > start; . ./start",
    "export PATH=/usr/bin; PROGRAM made",
    "typeset -x IFS=_; x=PROGRAM_made; $x",
    "awk 'BEGIN { system(\"PROGRAM made\") }'",
    "echo x | sed '1e PROGRAM made'",
    "tar cf t.tar m.toml; tar xf t.tar --to-command='PROGRAM made'",
    "tar cf /dev/null m.toml --checkpoint=1 --checkpoint-action=exec='PROGRAM made'",
    "git -c alias.x='!PROGRAM made' x",
    "git -c core.sshCommand='PROGRAM made;:' ls-remote ssh://host/path",
    "perl -e 'system(\"PROGRAM\", \"made\")'",
    "/usr/bin/python3 -c 'import os; os.execvp(\"PROGRAM\", [\"true\", \"made\"])'",
    "/usr/bin/python3 -c 'import subprocess as s; s.run([\"PROGRAM\", \"made\"])'",
    "ln -s /usr/bin/PROGRAM link; ./link made",
];

/// All that those use, and `mkdir`.
const WRAPPERS: &[&str] = &[
    "bash", "sh", "env", "xargs", "find", "timeout", "nice", "setsid", "nohup", "cat", "sleep", "base64", "awk", "sed",
    "tar", "git", "perl", "ln", "mkdir", "true",
];

/// C2, C3, C4, C5, C9: nothing that starts a program hides it, and what is granted may be started in all these ways.
#[test]
fn c2_c3_c4_c5_c9_nothing_hides_what_starts() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let quoted: Vec<String> = WRAPPERS.iter().map(|name| format!("{name:?}")).collect();
        let mut programs: Vec<&str> = quoted.iter().map(String::as_str).collect();
        programs.push("\"/usr/bin/python3\"");
        grant(&env, &programs);
        let clean = || {
            for name in ["start", "t.tar", "link", "nohup.out"] {
                drop(fs::remove_file(env.workspace().join(name)));
            }
        };
        for way in WAYS {
            let line = |program: &str| {
                let (front, back) = program.split_at(2);
                let split = way.replace("PROG)", &format!("{front})")).replace("printf RAM", &format!("printf {back}"));
                split.replace("PROGRAM", program)
            };
            let control = env.bare().run(&["/bin/bash", "-c", &line("touch")]);
            assert!(unmake(&env), "bare: {way}: {control:?}");
            clean();
            let granted = judged(&env).run(&["bash", "-c", &line("mkdir")]);
            assert!(unmake(&env), "granted: {way}: {granted:?}");
            clean();
            let denied = judged(&env).run(&["bash", "-c", &line("touch")]);
            assert!(!unmake(&env), "{way}: {denied:?}");
            clean();
        }
    });
}

/// C2: the errno, by the call itself; and the result names what was refused.
#[test]
fn c2_a_start_that_is_not_granted_is_eacces_and_told() {
    matrix(&[Host::Namespaces, Host::NoNamespaces, Host::Docker], |target| {
        let env = TestEnv::new(target);
        let run = with_probe(&env, &["\"mkdir\"", "\"expr\"\nargs = [\"1\"]"]).flag(&["--status", "status.json"]);
        let made = made(&env).display().to_string();
        env.bare().probe(&["exec", "/usr/bin/touch", &made]).assert_ok();
        assert!(unmake(&env));
        run.probe(&["exec", "/usr/bin/mkdir", &made]).assert_ok();
        assert!(unmake(&env));
        run.probe(&["exec", "/usr/bin/touch", &made]).assert_errno(EACCES);
        assert!(!unmake(&env));
        let status: Value = serde_json::from_slice(&fs::read(env.workspace().join("status.json")).unwrap()).unwrap();
        let told = &status["metadata"]["changes"]["not_started"];
        assert_eq!(told, &json!([{ "path": format!("/usr/bin/touch {made}"), "why": "it is not granted" }]));
        let enforced = status["metadata"]["enforced"].to_string();
        assert!(enforced.contains("programs: argv verified, 3 granted"), "{enforced}");
        // Arguments: these, and neither fewer nor more.
        run.probe(&["exec", "/usr/bin/expr", "1"]).assert_ok();
        for args in [&["0"][..], &[], &["1", "+", "1"], &["11"]] {
            run.probe(&[&["exec", "/usr/bin/expr"], args].concat()).assert_errno(EACCES);
        }
        // A name that leads nowhere is what it is bare.
        run.probe(&["exec", "/usr/bin/none-such"]).assert_errno(ENOENT);
        // Where programs are not bounded, nothing of this is claimed.
        let free = env.sandbox().flag(&["--status", "free.json"]);
        free.probe(&["exec", "/usr/bin/touch", &made]).assert_ok();
        assert!(unmake(&env));
        assert!(!fs::read_to_string(env.workspace().join("free.json")).unwrap().contains("programs: "));
    });
}

/// C6, C12: a copy, another name for a copy, and a copy planted on PATH in the place of what is granted, are other files.
#[test]
fn c6_c12_copied_renamed_and_planted_programs_are_not_granted() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        grant(&env, &["\"bash\"", "\"cp\"", "\"mv\"", "\"mkdir\"", "\"cat\"", "\"chmod\""]);
        let fresh = || {
            drop(fs::remove_dir_all(env.workspace().join("bin")));
            fs::create_dir(env.workspace().join("bin")).unwrap();
            env.give(&env.workspace().join("bin"));
        };
        for way in [
            "cp /usr/bin/touch bin/x && bin/x made",
            "cp /usr/bin/touch bin/y && mv bin/y bin/mkdir && bin/mkdir made",
            "cp /usr/bin/touch bin/mkdir && PATH=$PWD/bin:$PATH && mkdir made",
            "cat /usr/bin/touch > bin/x && chmod 755 bin/x && bin/x made",
            "cp /usr/bin/touch $TMPDIR/x && $TMPDIR/x made",
            "echo '#!/usr/bin/mkdir' > bin/x && chmod 755 bin/x && bin/x made",
        ] {
            fresh();
            let bare = way.replace("$TMPDIR", "bin").replace("#!/usr/bin/mkdir", "#!/usr/bin/touch");
            let control = env.bare().run(&["/bin/bash", "-c", &bare]);
            assert!(unmake(&env), "bare: {control:?}");
            fresh();
            let denied = judged(&env).run(&["bash", "-c", way]);
            assert!(!unmake(&env), "{way}: {denied:?}");
            assert_eq!(denied.status.code(), Some(126), "{way}: {denied:?}");
            assert!(denied.stderr.contains("Permission denied"), "{way}: {denied:?}");
        }
        // The control inside: the granted one, by a link.
        let linked = judged(&env).run(&["bash", "-c", "mkdir made"]);
        assert!(unmake(&env), "{linked:?}");
    });
}

/// C6, C8, C10: what a call starts first is held to the file that its path leads to, like everything that it starts itself. How
/// the path is spelt is all that is known before: `..` behind a link, and a link itself, lead elsewhere.
#[test]
fn c6_c8_c10_the_first_start_of_a_call_is_judged_by_its_file() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let refused = |run: &ProgramRunner, words: &[&str]| {
            let ended = run.run(words);
            assert_eq!(ended.status.code(), Some(126), "{words:?}: {ended:?}");
            assert!(ended.stderr.contains("Permission denied"), "{words:?}: {ended:?}");
            assert!(!unmake(&env), "{words:?}");
        };
        // What is spelt `/usr/bin/git` is a link to bash in the workspace.
        let above = env.workspace().components().count();
        let deep = format!("e/{}", vec!["x"; above].join("/"));
        let planted = format!("d/{}usr/bin/git", "../".repeat(above));
        fs::create_dir_all(env.workspace().join(&deep)).unwrap();
        fs::create_dir_all(env.workspace().join("e/usr/bin")).unwrap();
        symlink("/bin/bash", env.workspace().join("e/usr/bin/git")).unwrap();
        symlink(&deep, env.workspace().join("d")).unwrap();
        env.workspace_file("log", "echo > made\n");
        assert!(env.bare().run(&[&planted, "log"]).status.success() && unmake(&env), "the control: it is bash");
        grant(&env, &["\"/usr/bin/git\"\nargs = [\"log\"]"]);
        refused(&judged(&env), &[&planted, "log"]);
        let ended = judged(&env).run(&["/usr/bin/git", "log"]);
        assert!(ended.stderr.contains("not a git repository"), "the control: {ended:?}");
        // A loader, where any program may be started with such arguments.
        if let Some(loader) = loader() {
            grant(&env, &["\"*\"\nargs = [{ prefix = \"/usr/bin/\" }, { rest = true }]"]);
            refused(&judged(&env), &[loader, "/usr/bin/touch", "made"]);
            let ended = judged(&env).run(&["/usr/bin/stat", "/usr/bin/touch"]);
            assert!(ended.status.success(), "the control: {ended:?}");
        }
        // A path that leads out of the only directory from which something may be started.
        let tools = env.outside().join("tools");
        fs::create_dir(&tools).unwrap();
        env.give(&tools);
        symlink("/bin/bash", tools.join("sh")).unwrap();
        symlink("/usr/bin", tools.join("bin")).unwrap();
        fs::copy("/usr/bin/touch", tools.join("touch")).unwrap();
        fs::set_permissions(tools.join("touch"), fs::Permissions::from_mode(0o755)).unwrap();
        let tools = tools.display().to_string();
        let bounded = |asked: &str| {
            let text = format!(
                "id = \"x\"\n[requires.fs]\nread = [\"{tools}/**\"]\nwrite = [\"{{workspace}}/**\"]\n\
                 [[requires.shell]]\ncmd = \"{tools}/{asked}\"\n[[ceiling.shell]]\ncmd = \"{tools}/**\"\n"
            );
            env.workspace_file("m.toml", &text);
            judged(&env)
        };
        refused(&bounded("sh"), &[&format!("{tools}/sh"), "-c", "echo > made"]);
        let ended = bounded("touch").run(&[&format!("{tools}/touch"), "made"]);
        assert!(ended.status.success() && unmake(&env), "the control: {ended:?}");
        // All of a directory that a link there leads to; also where the ceiling holds that with arguments alone.
        for more in ["", "[[ceiling.shell]]\ncmd = \"*\"\nargs = [\"--version\"]\n"] {
            let run = bounded("bin/**");
            let text = fs::read_to_string(env.workspace().join("m.toml")).unwrap();
            env.workspace_file("m.toml", &(text + more));
            let ended = run.run(&[&format!("{tools}/bin/touch"), "made"]);
            assert_eq!(ended.status.code(), Some(65), "{ended:?}");
            assert!(ended.stderr.contains("leads to /usr/bin") && !unmake(&env), "{ended:?}");
        }
    });
}

/// S0-8, C-1: what is granted within a ceiling is so where its path leads as well.
#[test]
fn s0_8_a_link_leads_out_of_no_ceiling() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for directory in ["data", "data/sub", "other"] {
            let directory = env.outside().join(directory);
            fs::create_dir(&directory).unwrap();
            env.give(&directory);
        }
        symlink("../other", env.outside().join("data/link")).unwrap();
        symlink("sub", env.outside().join("data/inside")).unwrap();
        let secret = env.file("other/secret", "secret");
        env.file("data/sub/file", "plain");
        let data = env.outside().join("data").display().to_string();
        let reads = |right: &str, asked: &str, file: &str| {
            let text = format!(
                "id = \"x\"\n[requires.fs]\n{right} = [\"{{workspace}}/**\", \"{data}/{asked}/**\"]\n\
                 [ceiling.fs]\nread = [\"{{workspace}}/**\", \"{data}/**\"]\nwrite = [\"{{workspace}}/**\", \"{data}/**\"]\n\
                 [[requires.shell]]\ncmd = \"*\"\n"
            );
            env.workspace_file("m.toml", &text);
            judged(&env).run(&["cat", &format!("{data}/{asked}/{file}")])
        };
        for right in ["read", "write"] {
            let ended = reads(right, "link", "secret");
            assert_eq!(ended.status.code(), Some(65), "{ended:?}");
            assert!(ended.stderr.contains("which `[ceiling.fs]`, m.toml line") && ended.stdout.is_empty(), "{ended:?}");
            let ended = reads(right, "inside", "file");
            assert_eq!(ended.stdout, "plain", "the control: {ended:?}");
        }
        // What is not there yet, and a directory that the ceiling names alone.
        for (right, asked, ceiling) in
            [("write", "data/link/new", "data/**"), ("read", "data/link/**", "data/**\", \"{outside}")]
        {
            let outside = env.outside().display().to_string();
            let ceiling = ceiling.replace("{outside}", &outside);
            let ceiling = format!("[\"{{workspace}}/**\", \"{outside}/{ceiling}\"]");
            let text = format!(
                "id = \"x\"\n[requires.fs]\n{right} = [\"{{workspace}}/**\", \"{outside}/{asked}\"]\n\
                 [ceiling.fs]\nread = {ceiling}\nwrite = {ceiling}\n[[requires.shell]]\ncmd = \"*\"\n"
            );
            env.workspace_file("m.toml", &text);
            let ended = judged(&env).run(&[
                "sh",
                "-c",
                &format!("cat {outside}/data/link/secret; echo x > {outside}/data/link/new"),
            ]);
            assert!(!ended.stdout.contains("secret"), "{asked}: {ended:?}");
            assert!(!env.outside().join("other/new").exists(), "{asked}: {ended:?}");
        }
        secret.assert_contents("secret");
    });
}

/// C7: a file in memory is not executed, however it is made; nor is one without a name.
#[test]
fn c7_files_in_memory_are_not_executed() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let run = with_probe(&env, &["\"true\""]);
        for (act, at) in [("memfd-exec", "execveat"), ("exec-memfd", "memfd_create")] {
            env.bare().probe(&[act, "/usr/bin/true"]).assert_ok();
            env.sandbox().probe(&[act, "/usr/bin/true"]).assert_ok();
            let tried = run.probe(&[act, "/usr/bin/true"]);
            assert_eq!(tried.assert_errno(EACCES).at(), at);
        }
        // Nor where any program may be started, with some arguments.
        grant(&env, &["\"*\"\nargs = [\"1\"]", &format!("{:?}\nargs = [{{ rest = true }}]", probe_path())]);
        judged(&env).probe(&["exec", "/usr/bin/expr", "1"]).assert_ok();
        judged(&env).probe(&["exec", "/usr/bin/expr", "0"]).assert_errno(EACCES);
        judged(&env).probe(&["memfd-exec", "/usr/bin/true"]).assert_errno(EACCES);
        // For everything else such files are what they were.
        let python =
            "import os; f = os.memfd_create('x'); os.write(f, b'abc'); print(os.pread(f, 3, 0), os.get_inheritable(f))";
        grant(&env, &["\"/usr/bin/python3\""]);
        let used = judged(&env).run(&["/usr/bin/python3", "-c", python]);
        assert_eq!(used.stdout, "b'abc' False\n", "{used:?}");
    });
}

fn probe_path() -> String {
    Binaries::of_this_build().probe().display().to_string()
}

/// The dynamic loader of this machine's programs.
fn loader() -> Option<&'static str> {
    ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"].into_iter().find(|path| Path::new(path).exists())
}

/// C8: the loader, which must be executable to be an interpreter, starts nothing: neither what is not granted, nor what is, nor
/// a file that may not be executed.
#[test]
fn c8_the_loader_is_not_started_with_a_file() {
    let Some(loader) = loader() else { return skip("loader", "none by a known name") };
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let made = made(&env).display().to_string();
        let copy = env.workspace().join("copy");
        fs::copy("/usr/bin/touch", &copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o644)).unwrap();
        let copy = copy.display().to_string();
        for programs in [&["\"mkdir\""][..], &["\"*\"\nargs = [{ wildcard = true }, { wildcard = true }]"]] {
            let run = with_probe(&env, programs);
            for file in ["/usr/bin/touch", "/usr/bin/mkdir", &copy] {
                env.bare().probe(&["exec", loader, file, &made]).assert_ok();
                assert!(unmake(&env));
                run.probe(&["exec", loader, file, &made]).assert_errno(EACCES);
                assert!(!unmake(&env));
            }
        }
        // By descriptor and by other names.
        let linked = env.workspace().join("ld");
        symlink(loader, &linked).unwrap();
        with_probe(&env, &["\"mkdir\""])
            .probe(&["exec", linked.to_str().unwrap(), "/usr/bin/touch", &made])
            .assert_errno(EACCES);
        with_probe(&env, &["\"mkdir\""]).probe(&["exec", "/usr/bin/mkdir", &made]).assert_ok();
        assert!(unmake(&env));
    });
}

/// C10: by way of magic links nothing is started that is not granted; and a program may start itself again.
#[test]
fn c10_no_magic_link_leads_past() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let made = made(&env).display().to_string();
        let run = with_probe(&env, &["\"mkdir\""]);
        for path in ["/proc/self/root/usr/bin/touch", "/proc/self/cwd/../../usr/bin/touch"] {
            if path.contains("root") {
                env.bare().probe(&["exec", path, &made]).assert_ok();
                assert!(unmake(&env));
            }
            let errno = run.probe(&["exec", path, &made]).errno();
            assert!(errno.is_some(), "{path}");
            assert!(!unmake(&env));
        }
        run.probe(&["exec", "/proc/self/exe", "own-pid"]).assert_ok();
    });
}

/// Scripts are started as their interpreters run them, with nothing else granted: `#!`, with an argument, by env, by env -S. What
/// interprets them runs nothing else (C9).
#[test]
fn c9_granted_scripts_work_and_their_interpreters_run_nothing_else() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for (line, body, interpreter) in [
            ("#!/bin/sh", "echo \"$# $1\"", "/bin/sh"),
            ("#! /bin/sh -e", "echo \"$# $1\"", "/bin/sh"),
            ("#!/usr/bin/perl -w", "print scalar(@ARGV), \" $ARGV[0]\\n\"", "/usr/bin/perl"),
            ("#!/usr/bin/env perl", "print scalar(@ARGV), \" $ARGV[0]\\n\"", "/usr/bin/perl"),
            ("#!/usr/bin/env -S perl -w", "print scalar(@ARGV), \" $ARGV[0]\\n\"", "/usr/bin/perl"),
        ] {
            let (granted, other) = (env.outside().join("granted"), env.outside().join("other"));
            script(&env, &granted, &format!("{line}\n{body}\n"));
            script(&env, &other, &format!("{line}\n{body}\n"));
            let words = |path: &Path| [path.display().to_string(), "a b".to_owned()];
            let run = with_probe(&env, &["\"/bin/bash\"", &format!("{:?}", words(&granted)[0])]);
            let shell = |path: &Path| {
                run.run(&["/bin/bash", "-c", &format!("{:?} 'a b'; echo $?", path.display().to_string())])
            };
            for path in [&granted, &other] {
                let bare = env.bare().run(&[&words(path)[0], "a b"]);
                assert_eq!(bare.stdout, "1 a b\n", "{line}: {bare:?}");
            }
            let first = run.run(&[&words(&granted)[0], "a b"]);
            assert_eq!(first.stdout, "1 a b\n", "{line}: {first:?}");
            let ran = shell(&granted);
            assert_eq!(ran.stdout, "1 a b\n0\n", "{line}: {ran:?}");
            let denied = shell(&other);
            assert_eq!(denied.stdout, "126\n", "{line}: {denied:?}");
            for args in [&["-e", "1"][..], &[&words(&other)[0]], &[]] {
                run.probe(&[&["exec", interpreter], args].concat()).assert_errno(EACCES);
            }
        }
    });
}

/// C9: an interpreter is not started by a name of the script that could lead elsewhere before it is followed: through a link, or
/// from a directory, that the session can change. The script itself is.
#[test]
fn c9_a_script_is_not_named_by_way_of_what_can_be_changed() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        // Not in /tmp, which is the session's own with namespaces.
        let place = tempfile::Builder::new().prefix("callgate-test-").tempdir_in("/var/tmp").unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
        let path = place.path().join("script");
        script(&env, &path, "#!/usr/bin/perl\nprint 1;\n");
        let (link, directory) = (env.workspace().join("link"), env.workspace().join("directory"));
        symlink(&path, &link).unwrap();
        symlink(place.path(), &directory).unwrap();
        let run = with_probe(&env, &[&format!("{:?}", path.display().to_string())]).read(&place);
        let relative = format!("../../..{}", path.display());
        let through = directory.join("script");
        for word in [relative.as_str(), "link", link.to_str().unwrap(), through.to_str().unwrap()] {
            env.bare().probe(&["exec", "/usr/bin/perl", word]).assert_ok();
            run.probe(&["exec", "/usr/bin/perl", word]).assert_errno(EACCES);
        }
        run.probe(&["exec", "/usr/bin/perl", path.to_str().unwrap()]).assert_ok();
    });
}

/// C9, C12: whatever other names a granted script has, it is run by no interpreter that calls wrote.
#[test]
fn c9_c12_a_second_name_of_a_script_lets_no_call_choose_its_interpreter() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let interpreter = env.workspace().join("interpreter");
        fs::copy("/bin/sh", &interpreter).unwrap();
        env.give(&interpreter);
        let planted =
            env.sandbox().write(env.workspace()).run(&["sh", "-c", "cp /bin/echo other && mv other interpreter"]);
        assert!(planted.status.success(), "{planted:?}");
        let interpreter = interpreter.display().to_string();
        for (name, interpreter) in [("theirs", interpreter.as_str()), ("good", "/bin/sh")] {
            for has_two in [false, true] {
                let path = env.outside().join(format!("{name}-{has_two}"));
                script(&env, &path, &format!("#!{interpreter}\necho ran\n"));
                if has_two {
                    fs::hard_link(&path, env.outside().join(format!("{name}-other"))).unwrap();
                }
                let path = path.display().to_string();
                grant(&env, &[&format!("{path:?}")]);
                let ended = judged(&env).run(&[&path]);
                let ran = (ended.status.code(), ended.stdout.as_str());
                let wanted = if name == "good" { (Some(0), "ran\n") } else { (Some(126), "") };
                assert_eq!(ran, wanted, "{path}: {ended:?}");
            }
        }
    });
}

/// C9, C12: where people work is no part of the system: an interpreter there that has a second name in the workspace is a call's.
#[test]
fn c9_c12_an_interpreter_beside_a_workspace_is_no_part_of_the_system() {
    // Root alone can mount something for it.
    matrix_as(User::Root, Host::STRENGTHS, |target| {
        for top in ["/usr/local", "/usr/share"] {
            let env = TestEnv::new(target);
            let place = env.outside().join("place");
            for name in ["w", "shown", "own"] {
                fs::create_dir_all(place.join(name)).unwrap();
            }
            for name in ["two", "one"] {
                fs::copy("/bin/sh", place.join("shown").join(name)).unwrap();
                script(&env, &place.join("own").join(name), &format!("#!{top}/shown/{name}\necho ran\n"));
            }
            fs::hard_link(place.join("shown/two"), place.join("w/two")).unwrap();
            let binary = Binaries::of_this_build().callgate().display().to_string();
            let run = |more: &str, program: &[&str]| {
                let text = format!("[requires.fs]\nread = [\"{{workspace}}/**\", \"{top}/**\"]\n{more}");
                let (manifest, workspace) = (env.file("manifest.toml", &text), format!("{top}/w"));
                let words = [&binary, "run", "-C", &workspace, "--manifest", manifest.text(), "--"];
                env.weakened().mounted(&place, Path::new(top)).run(&[&words[..], program].concat())
            };
            let writes = format!("write = [\"{{workspace}}/**\"]\n{}", only(&["cmd = \"*\""]));
            let planted = run(&writes, &["/bin/sh", "-c", "cat /bin/echo > two"]);
            assert!(planted.status.success(), "{top}: {planted:?}");
            for (name, wanted) in [("two", (Some(126), "")), ("one", (Some(0), "ran\n"))] {
                let program = format!("{top}/own/{name}");
                let ended = run(&only(&[&format!("cmd = \"{program}\"")]), &[&program]);
                assert_eq!((ended.status.code(), ended.stdout.as_str()), wanted, "{program}: {ended:?}");
            }
        }
    });
}

/// A grant of arguments holds for a script as for a program.
#[test]
fn arguments_of_scripts_are_judged() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let path = env.outside().join("script");
        script(&env, &path, "#!/bin/sh\necho ran $1\n");
        let path = path.display().to_string();
        let run = with_probe(&env, &[&format!("{path:?}\nargs = [\"one\"]")]);
        run.probe(&["exec", &path, "one"]).assert_ok();
        run.probe(&["exec", "/bin/sh", &path, "one"]).assert_ok();
        run.probe(&["exec", &path, "two"]).assert_errno(EACCES);
        run.probe(&["exec", "/bin/sh", &path, "two"]).assert_errno(EACCES);
        env.bare().probe(&["exec", &path, "two"]).assert_ok();
    });
}

/// C18: a granted program in a tree that may be written is the file that was there: what takes its name is not granted.
#[test]
fn c18_a_replaced_program_is_not_granted() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let path = env.workspace().join("tool");
        let line = "./tool made; cp /usr/bin/touch new; mv new tool; ./tool made2";
        let fresh = || {
            drop(fs::remove_file(&path));
            fs::copy("/usr/bin/mkdir", &path).unwrap();
            env.give(&path);
            drop(fs::remove_file(env.workspace().join("made2")));
        };
        fresh();
        grant(&env, &["\"bash\"", "\"cp\"", "\"mv\"", "\"{workspace}/tool\""]);
        env.bare().run(&["/bin/bash", "-c", line]);
        assert!(unmake(&env) && env.workspace().join("made2").exists(), "bare, both run");
        fresh();
        let tried = judged(&env).run(&["bash", "-c", line]);
        assert!(unmake(&env), "the granted one runs: {tried:?}");
        assert!(!env.workspace().join("made2").exists(), "{tried:?}");
        assert_eq!(tried.status.code(), Some(126), "{tried:?}");
    });
}

/// `bash` of a call is callgate's own start. What it starts is judged, another bash too, and the result says so.
#[test]
fn the_shell_of_a_call_starts_and_no_other() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        grant(&env, &["\"mkdir\""]);
        let line = "echo up; mkdir made && echo made; bash -c 'echo inner'; touch other; echo over";
        let (code, envelope) = call(&env, "bash", &json!({ "command": line }));
        assert_eq!(code, Some(0), "{envelope}");
        let output = envelope["data"]["output"].as_str().unwrap();
        assert!(output.starts_with("up\nmade\n") && output.ends_with("over\n"), "{output}");
        assert!(!output.contains("inner") && !env.workspace().join("other").exists(), "{output}");
        assert!(unmake(&env));
        let told = envelope["metadata"]["changes"]["not_started"].to_string();
        assert!(told.contains("bash -c echo inner") && told.contains("touch other"), "{told}");
        let shell = envelope["metadata"]["enforced"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(shell["what"], "shell");
        assert!(shell["by"].to_string().contains("argv verified"), "{shell}");
        // Layer 1 keeps `run` from what is not granted, before anything starts.
        let refused = judged(&env).run(&["touch", "other"]);
        assert_eq!(refused.status.code(), Some(77), "{refused:?}");
    });
}

/// C14: in so many tries no argument vector runs that is not granted, whoever rewrites it meanwhile. The control: bare, some do.
fn races(target: Target, tries: u32) {
    let env = TestEnv::new(target);
    let run = with_probe(&env, &["\"expr\"\nargs = [\"1\"]"]);
    for how in ["string", "pointer", "shared"] {
        let act = |tries: u32| ["exec-race", how, &tries.to_string(), "/usr/bin/expr", "1", "0"].map(str::to_owned);
        let words = |tries| act(tries).to_vec();
        let probe =
            |run: &ProgramRunner, words: &[String]| run.probe(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let bare = probe(&env.bare(), &words(200));
        assert!(bare.assert_ok().fact("bad").as_u64() > Some(0), "the control: {bare}");
        // In parts: the harness gives up on one after a minute and a half.
        let mut left = tries;
        let (mut good, mut stopped) = (0, 0);
        while left > 0 {
            let now = left.min(2_500);
            left -= now;
            let raced = probe(&run, &words(now));
            assert_eq!(raced.assert_ok().fact("bad"), 0, "{how} on {target:?}: {raced}");
            assert_eq!(raced.fact("other"), 0, "{how} on {target:?}: {raced}");
            good += raced.fact("good").as_u64().unwrap();
            stopped += raced.fact("refused").as_u64().unwrap() + raced.fact("killed").as_u64().unwrap();
        }
        assert!(good > 0 && stopped > 0, "both were tried: {how}, {good} and {stopped}");
    }
}

/// C14: a short race in every run of the suite.
#[test]
fn c14_no_rewritten_argument_runs() {
    matrix(Host::STRENGTHS, |target| races(target, repetitions(100, 300)));
}

/// C14: a long one.
#[test]
#[ignore = "half an hour"]
fn c14_no_rewritten_argument_runs_in_100_000_tries() {
    // In all: as each user in each strength.
    matrix(Host::STRENGTHS, |target| races(target, 100_000 / 4));
}

/// Threads that execute at once, and programs that are killed, stopped or fork meanwhile: all of them end, and none is lost.
#[test]
fn c14_threads_and_storms_end() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let run = with_probe(&env, &["\"expr\"\nargs = [\"1\"]"]);
        for run in [env.bare(), run] {
            let threads = run.probe(&["exec-threads", "8", "40", "/usr/bin/expr", "1"]);
            assert_eq!(threads.assert_ok().fact("good"), 40, "{threads}");
            let storm = run.probe(&["exec-storm", "200", "/usr/bin/expr", "1"]);
            assert_eq!(storm.assert_ok().fact("left"), false, "{storm}");
            assert_eq!(storm.fact("bad"), 0, "{storm}");
            assert!(storm.fact("good").as_u64() > Some(50), "{storm}");
        }
    });
}

/// A granted program that the kernel does not run fails as it does bare, and who asked goes on.
#[test]
fn a_granted_start_that_fails_is_the_kernels_errno() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let text = "#!/no/such/interpreter\n";
        let files = [
            ("closed", "#!/bin/sh\n", 0o644, EACCES),
            ("text", "true\n", 0o755, ENOEXEC),
            ("lost", text, 0o755, ENOENT),
        ];
        let mut granted = Vec::new();
        for (name, text, mode, _) in files {
            let file = env.file(name, text);
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            granted.push(format!("{:?}", file.text()));
        }
        let run = with_probe(&env, &granted.iter().map(String::as_str).collect::<Vec<_>>());
        for (name, _, _, errno) in files {
            let path = env.outside().join(name).display().to_string();
            for run in [env.bare(), run.clone()] {
                run.probe(&["exec", &path]).assert_errno(errno);
            }
        }
        // A shell reads such a text itself, as it does bare: it starts nothing for it.
        let shell = with_probe(&env, &["\"bash\"", &granted[1]]);
        let read = shell.run(&["bash", "-c", &format!("{}; echo $?", env.outside().join("text").display())]);
        assert_eq!(read.stdout, "0\n", "{read:?}");
    });
}

/// Many at once, of many processes: none is lost, and none waits for another's.
#[test]
fn programs_start_side_by_side() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        grant(&env, &["\"bash\"", "\"xargs\"", "\"seq\"", "\"expr\"\nargs = [{ rest = true }]", "\"wc\""]);
        let line = "seq 400 | xargs -P8 -n1 expr 1 + | wc -l";
        let ran = judged(&env).run(&["bash", "-c", line]);
        assert_eq!(ran.stdout.trim(), "400", "{ran:?}");
        let long = "seq 20000 | xargs expr length x | wc -l; x=$(printf '%100000s'); expr length \"$x\"";
        let bare = env.bare().run(&["/bin/bash", "-c", long]);
        assert_eq!(judged(&env).run(&["bash", "-c", long]).stdout, bare.stdout, "{bare:?}");
        // Stopped and continued, waited for, and its status handed on, as without.
        let jobs = "set -m; (exec expr 7 + 1) & wait $!; echo $?; expr 0; echo $?; bash -c 'kill -STOP $$; exec expr 5' & sleep_() { read -t 0.2 <> <(:) || :; }; sleep_; kill -CONT %%; wait; echo $?";
        let ended = judged(&env).run(&["bash", "-c", jobs]);
        assert!(ended.stdout.starts_with("8\n0\n0\n1\n"), "{ended:?}");
        assert!(ended.stdout.ends_with("5\n0\n"), "{ended:?}");
    });
}

/// Where nobody may trace, arguments cannot be held to anything: such a grant is refused with the remedy. Programs are still
/// bounded, and the result says by what.
#[test]
fn without_tracing_arguments_are_refused_and_programs_are_held() {
    matrix(&[Host::Yama], |target| {
        for run in [|env: &TestEnv| judged(env), |env: &TestEnv| judged(env).weaken(&["no-userns"])] {
            let env = TestEnv::new(target);
            with_probe(&env, &["\"expr\"\nargs = [\"1\"]"]);
            let refused = run(&env).run(&[&probe_path(), "exec", "/usr/bin/expr", "1"]);
            assert_eq!(refused.status.code(), Some(69), "{refused:?}");
            assert!(
                refused.stderr.contains("ptrace_scope") && refused.stderr.contains("without `args`"),
                "{refused:?}"
            );
            with_probe(&env, &["\"mkdir\"", "\"expr\""]);
            let made = made(&env).display().to_string();
            let run = run(&env).flag(&["--status", "status.json"]);
            run.probe(&["exec", "/usr/bin/mkdir", &made]).assert_ok();
            assert!(unmake(&env));
            let status = fs::read_to_string(env.workspace().join("status.json")).unwrap();
            assert!(status.contains("programs: program only") && !status.contains("argv verified"), "{status}");
            run.probe(&["exec", "/usr/bin/touch", &made]).assert_errno(EACCES);
            assert!(!unmake(&env));
            run.probe(&["memfd-exec", "/usr/bin/true"]).assert_errno(EACCES);
            // A race over which file it is has Landlock as its judge: what is not granted does not run.
            let copy = env.workspace().join("copy");
            fs::copy("/usr/bin/touch", &copy).unwrap();
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
            run.probe(&["exec", copy.to_str().unwrap(), &made]).assert_errno(EACCES);
            assert!(!unmake(&env));
        }
    });
}

/// `watch_execs`: the watchdog's rules see what a command line hides from them. Where nobody may trace they cannot, and the
/// session is refused with the remedy.
#[test]
fn watched_programs_are_judged_by_the_watchdogs_rules() {
    let manifest = "watch_execs = true\n[requires.fs]\nwrite = [\"{workspace}/**\"]\n[[requires.shell]]\ncmd = \"*\"\n";
    let line = "touch made; $(printf d)d if=/dev/null of=/dev/sda count=0";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.workspace_file("m.toml", manifest);
        let ran = judged(&env).run(&["bash", "-c", line]);
        assert!(unmake(&env), "the control runs: {ran:?}");
        assert_eq!(ran.status.code(), Some(128 + 9), "{ran:?}");
        assert!(ran.stderr.contains("dd if=/dev/null of=/dev/sda count=0"), "{ran:?}");
        assert!(ran.stderr.contains("watchdog rule `write-to-device`"), "{ran:?}");
    });
    matrix(&[Host::Yama], |target| {
        let env = TestEnv::new(target);
        env.workspace_file("m.toml", manifest);
        let refused = judged(&env).run(&["bash", "-c", line]);
        assert_eq!(refused.status.code(), Some(69), "{refused:?}");
        assert!(refused.stderr.contains("ptrace_scope") && !made(&env).exists(), "{refused:?}");
    });
}

/// A granted program that is not there is lost alone, and told.
#[test]
fn a_program_that_is_not_there_is_told() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let run = with_probe(&env, &["\"none-such\"", "\"mkdir\""]).flag(&["--status", "status.json"]);
        run.probe(&["exec", "/usr/bin/mkdir", &made(&env).display().to_string()]).assert_ok();
        assert!(unmake(&env));
        let status = fs::read_to_string(env.workspace().join("status.json")).unwrap();
        assert!(status.contains("not found: none-such"), "{status}");
    });
}

/// `--exec` takes the place of "any program".
#[test]
fn the_flag_grants_single_programs() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let run = |words: &[&str]| -> ProgramOutcome {
            env.sandbox().flag(&["--exec", "bash", "--exec", "mkdir"]).run(words)
        };
        let ran = run(&["bash", "-c", "mkdir made; touch other; exit 7"]);
        assert_eq!(ran.status.code(), Some(7), "{ran:?}");
        assert!(ran.stderr.contains("callgate: not started: /usr/bin/touch other (it is not granted)"), "{ran:?}");
        assert!(ran.stderr.contains("--exec"), "{ran:?}");
        assert!(!run(&["bash", "-c", "true"]).stderr.contains("callgate"));
        assert!(unmake(&env) && !env.workspace().join("other").exists(), "{ran:?}");
        assert_eq!(run(&["touch", "other"]).status.code(), Some(77));
        // A path is taken from where it is typed.
        for name in ["tool", "other-tool"] {
            script(&env, &env.workspace().join(name), "#!/bin/sh\necho ran\n");
        }
        let by_path = |tool: &str| env.sandbox().flag(&["--exec", "./tool"]).run(&[tool]);
        assert_eq!(by_path("./tool").stdout, "ran\n", "{:?}", by_path("./tool"));
        assert_eq!(by_path(env.workspace().join("tool").to_str().unwrap()).stdout, "ran\n");
        assert_eq!(by_path("./other-tool").status.code(), Some(77));
    });
}

/// C11: where `rm` is not among what is granted, `ls` is none the worse, and no alias, link, copy or other name of `rm` starts it.
#[test]
fn c11_what_is_not_granted_has_no_other_name() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let others = ["\"bash\"", "\"ls\"", "\"ln\"", "\"cp\"", "\"env\"", "\"find\""];
        let kept = env.workspace().join("kept");
        let line = |way: &str| format!("{way}; status=$?; command ls kept; exit $status");
        let fresh = || {
            env.workspace_file("kept", "");
            drop(fs::remove_file(env.workspace().join("ls")));
        };
        for way in [
            "rm kept",
            "shopt -s expand_aliases; alias ls=rm\neval 'ls kept'",
            "ls() { command rm kept; }; ls",
            "(exec -a ls rm kept)",
            "env rm kept",
            "ln -s /usr/bin/rm ls; ./ls kept",
            "find kept -exec rm {} +",
        ] {
            fresh();
            grant(&env, &[&others[..], &["\"rm\""]].concat());
            let granted = judged(&env).run(&["bash", "-c", &line(way)]);
            assert!(!kept.exists() && granted.stdout.is_empty(), "granted: {way}: {granted:?}");
            fresh();
            grant(&env, &others);
            let denied = judged(&env).run(&["bash", "-c", &line(way)]);
            assert!(kept.exists(), "{way}: {denied:?}");
            assert_eq!(denied.stdout, "kept\n", "{way}: ls runs: {denied:?}");
            let status = if way.starts_with("find") { 1 } else { 126 };
            assert_eq!(denied.status.code(), Some(status), "{way}: {denied:?}");
        }
        // A copy is another file, whatever is granted.
        fresh();
        let copied = "cp /usr/bin/rm ls; ./ls kept";
        assert_eq!(env.bare().run(&["/bin/bash", "-c", copied]).status.code(), Some(0));
        assert!(!kept.exists());
        fresh();
        let denied = judged(&env).run(&["bash", "-c", copied]);
        assert!(kept.exists() && denied.status.code() == Some(126), "{denied:?}");
    });
}

/// A program of two names, by `argv[0]` or as a word of its own, as busybox is.
const BOX: &str = r#"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **words) {
    const char *name = strrchr(words[0], '/') ? strrchr(words[0], '/') + 1 : words[0];
    if (!strcmp(name, "box") && count > 1)
        name = *++words;
    if (!strcmp(name, "look"))
        return words[1] && !access(words[1], F_OK) ? (puts(words[1]), 0) : 1;
    if (!strcmp(name, "remove"))
        while (*++words)
            unlink(*words);
    return strcmp(name, "remove") != 0;
}
"#;

/// C11: one name of a program of many is granted by its arguments, and no name in `argv[0]` makes another of it. Granted without
/// arguments, one name is all of them: that is what the threat model says, and here it is seen.
#[test]
fn c11_a_program_of_many_names_is_held_to_one() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let source = env.file("box.c", BOX);
        let at = |name: &str| env.outside().join(name).display().to_string();
        let built = env.bare().run(&["cc", "-o", &at("box"), source.text()]);
        assert!(built.status.success(), "{built:?}");
        for name in ["look", "remove"] {
            symlink("box", at(name)).unwrap();
        }
        let kept = env.workspace().join("kept");
        let fresh = || {
            env.workspace_file("kept", "");
            drop(fs::remove_file(env.workspace().join("remove")));
        };
        let line = |way: &str| {
            ["box", "look", "remove"]
                .iter()
                .fold(way.to_owned(), |line, name| line.replace(&format!("@{name}"), &at(name)))
        };
        // Whether it is removed, and the exit status.
        let tried = |run: &ProgramRunner, way: &str| {
            fresh();
            let ended = run.run(&["bash", "-c", &line(way)]);
            (!kept.exists(), ended.status.code(), ended)
        };
        let looks = ["@box look kept", "@look kept"];
        let removes = [
            "@box remove kept",
            "@remove kept",
            "@remove look kept",
            "(exec -a remove @box look kept)",
            "(exec -a /bin/remove @look look kept)",
            "(exec -a remove @look kept)",
            "(exec -a box @look remove kept)",
            "ln -s @box remove; ./remove look kept",
            "shopt -s expand_aliases; alias look=@remove\neval 'look look kept'",
        ];
        for way in looks {
            let (removed, status, ended) = tried(&env.bare(), way);
            assert!(!removed && status == Some(0) && ended.stdout == "kept\n", "bare: {way}: {ended:?}");
        }
        for way in removes {
            let (removed, _, ended) = tried(&env.bare(), way);
            assert!(removed, "bare: {way}: {ended:?}");
        }
        let of_box = format!("{:?}\nargs = [\"look\", {{ rest = true }}]", at("box"));
        let of_look = format!("{:?}\nargs = [{{ wildcard = true }}]", at("look"));
        for (granted, works) in [(of_box, looks[0]), (of_look, looks[1])] {
            grant(&env, &["\"bash\"", "\"ln\"", &granted]);
            for way in looks.iter().chain(&removes) {
                let (removed, status, ended) = tried(&judged(&env), way);
                let wanted = if *way == works { 0 } else { 126 };
                assert_eq!((removed, status), (false, Some(wanted)), "{granted}: {way}: {ended:?}");
            }
        }
        grant(&env, &["\"bash\"", "\"ln\"", &format!("{:?}", at("look"))]);
        for way in removes {
            let (removed, _, ended) = tried(&judged(&env), way);
            assert!(removed, "without arguments: {way}: {ended:?}");
        }
    });
}

/// C11, C1: `git log` is not `git rm` by another `argv[0]`, nor by another link to the same file.
#[test]
fn c11_c1_git_does_not_become_another_command() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let kept = env.workspace_file("kept", "kept");
        let home = env.outside().display().to_string();
        let set_up = "git init -q . && git add kept && git -c user.name=a -c user.email=a@b.c commit -qm first && git --exec-path";
        let made = env.bare().variable("HOME", &home).run(&["/bin/bash", "-c", set_up]);
        assert!(made.status.success(), "{made:?}");
        let helper = format!("{}/git-rm log --ignore-unmatch -f kept", made.stdout.trim());
        grant(&env, &["\"bash\"", "\"git\"\nargs = [\"log\", { rest = true }]"]);
        for way in ["(exec -a git-rm git log --ignore-unmatch -f kept)", &helper] {
            let denied = judged(&env).run(&["bash", "-c", way]);
            assert_eq!(denied.status.code(), Some(126), "{way}: {denied:?}");
            kept.assert_contents("kept");
            let bare = env.bare().variable("HOME", &home).run(&["/bin/bash", "-c", way]);
            assert!(bare.status.success() && !kept.exists(), "bare: {way}: {bare:?}");
            let back = env.bare().variable("HOME", &home).run(&["git", "reset", "-q", "--hard"]);
            assert!(back.status.success(), "{back:?}");
        }
        let log = judged(&env).run(&["bash", "-c", "git log --format=%s"]);
        assert_eq!(log.stdout, "first\n", "{log:?}");
        let told = judged(&env).run(&["bash", "-c", "exec -a git-rm git log kept"]);
        assert!(told.stderr.contains("git (as git-rm) log kept (it is not granted)"), "{told:?}");
    });
}

/// C17: whatever becomes of its exit status, a start that was refused is in the result, by its file and arguments.
#[test]
fn c17_a_masked_exit_status_hides_no_refusal() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        grant(&env, &["\"mkdir\"", "\"cat\"", "\"/usr/bin/python3\""]);
        for way in [
            "PROGRAM made || true",
            "PROGRAM made; true",
            "PROGRAM made 2>/dev/null || :",
            "PROGRAM made &> /dev/null; exit 0",
            "if PROGRAM made; then :; fi",
            "PROGRAM made 2>&1 | cat",
            "x=$(PROGRAM made 2>&1); echo fine",
            "PROGRAM made & wait; echo fine",
            "(PROGRAM made); echo fine",
            "trap 'exit 0' EXIT; PROGRAM made",
            "f() { PROGRAM made; return 0; }; f",
            "/usr/bin/python3 -c '\ntry:\n  import os; os.waitpid(os.posix_spawn(\"/usr/bin/PROGRAM\", [\"x\", \"made\"], os.environ), 0)\nexcept OSError: pass'; true",
        ] {
            let tried = |program: &str| {
                let (code, envelope) = call(&env, "bash", &json!({ "command": way.replace("PROGRAM", program) }));
                assert_eq!((code, &envelope["type"]), (Some(0), &json!("output")), "{way}: {envelope}");
                assert_eq!(envelope["data"]["exit_code"], 0, "{way}: {envelope}");
                let told = envelope["metadata"]["changes"]["not_started"].clone();
                (told, unmake(&env))
            };
            assert_eq!(tried("mkdir"), (Value::Null, true), "{way}");
            let (told, made) = tried("touch");
            assert!(!made, "{way}");
            let paths: Vec<&str> = told.as_array().unwrap().iter().map(|note| note["path"].as_str().unwrap()).collect();
            let named = if way.contains("python") { "/usr/bin/touch (as x) made" } else { "/usr/bin/touch made" };
            assert_eq!(paths, [named], "{way}");
        }
        // Both of two, and `run` says it too.
        let two = "touch made || true; cp m.toml made || true";
        let (_, envelope) = call(&env, "bash", &json!({ "command": two }));
        let told = envelope["metadata"]["changes"]["not_started"].as_array().unwrap();
        assert_eq!(told.len(), 2, "{envelope}");
        grant(&env, &["\"bash\"", "\"mkdir\""]);
        let ran = judged(&env).run(&["bash", "-c", "touch made 2>/dev/null || true"]);
        assert_eq!(ran.status.code(), Some(0), "{ran:?}");
        assert!(ran.stderr.contains("callgate: not started: /usr/bin/touch made (it is not granted)"), "{ran:?}");
        assert!(!unmake(&env));
    });
}

/// Lines of which the arguments are granted, with a variable before them that has the program do something else: `made`, by itself,
/// since what it would start is judged.
const STEERED: &[(&str, &str, &str)] = &[
    ("cmd = \"make\"\nargs = [\"-s\", \"all\"]", "MAKEFILES=evil.mk", "make -s all"),
    ("cmd = \"make\"\nargs = [\"-s\", \"all\"]", "MAKEFLAGS='--eval=include\\ evil.mk'", "make -s all"),
    ("cmd = \"make\"\nargs = [\"-s\", \"all\"]", "LD_DEBUG=libs LD_DEBUG_OUTPUT=made", "make -s all"),
    ("cmd = \"/usr/bin/python3\"\nargs = [\"tool.py\"]", "PYTHONPATH=evil", "/usr/bin/python3 tool.py"),
    ("cmd = \"perl\"\nargs = [\"-e\", \"1\"]", "PERL5OPT='-Ievil -MTool'", "perl -e 1"),
    ("cmd = \"git\"\nargs = [\"--version\"]", "GIT_TRACE=\"$PWD/made\"", "git --version"),
    // A script without `args`: what interprets it was granted for nothing else.
    ("cmd = \"{workspace}/tool.sh\"", "BASH_ENV=./evil.sh", "./tool.sh"),
    ("cmd = \"{workspace}/tool.pl\"", "PERL5OPT='-Ievil -MTool'", "./tool.pl"),
];

/// C4, A17: where a grant bounds arguments, or an interpreter runs a granted script alone, no variable has it do something else: it
/// starts with the session's own environment, but for what is known to be harmless. Without bounds, variables are the caller's.
#[test]
fn c4_a17_the_environment_of_what_is_bounded_is_the_sessions() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for (name, text) in [
            ("Makefile", "all:\n\t@:\n"),
            ("evil.mk", "$(file >made,x)\n"),
            ("tool.py", "import json\n"),
            ("evil.sh", "echo x > made\n"),
        ] {
            env.workspace_file(name, text);
        }
        fs::create_dir(env.workspace().join("evil")).unwrap();
        env.give(&env.workspace().join("evil"));
        env.file_at(env.workspace().join("evil/json.py"), "open('made', 'w')\n");
        env.file_at(env.workspace().join("evil/Tool.pm"), "open(F, '>made'); 1;\n");
        script(&env, &env.workspace().join("tool.sh"), "#!/bin/bash\ntrue\n");
        script(&env, &env.workspace().join("tool.pl"), "#!/usr/bin/perl\n1;\n");
        let unmake = || {
            let names = fs::read_dir(env.workspace()).unwrap().map(|entry| entry.unwrap().path());
            let made: Vec<PathBuf> =
                names.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("made")).collect();
            made.iter().for_each(|path| fs::remove_file(path).unwrap());
            drop(fs::remove_dir_all(env.workspace().join("evil/__pycache__")));
            !made.is_empty()
        };
        let inside = |grants: &[&str], env_lines: &str, line: &str| {
            let text =
                format!("id = \"x\"\n{env_lines}[requires.fs]\nwrite = [\"{{workspace}}/**\"]\n{}", only(grants));
            env.workspace_file("m.toml", &text);
            let (code, envelope) = call(&env, "bash", &json!({ "command": line }));
            assert_eq!(code, Some(0), "{envelope}");
            envelope
        };
        for (grant, variables, line) in STEERED {
            let steered = format!("{variables} {line}");
            assert!(
                env.bare().run(&["/bin/bash", "-c", &steered]).status.success() && unmake(),
                "the control: {steered}"
            );
            let refused = inside(&[grant], "", &steered);
            assert!(!unmake() && refused["data"]["exit_code"] != 0, "{steered}: {refused}");
            let (told, name) =
                (refused["metadata"]["changes"]["not_started"].to_string(), variables.split('=').next().unwrap());
            assert!(told.contains(&format!("has not the session's {name}")), "{told}");
            // The same with what changes nothing.
            let plain = inside(&[grant], "", &format!("LANG=C LC_ALL=C COLUMNS=9 TERM=dumb TZ=Europe/Berlin {line}"));
            assert!(plain["data"]["exit_code"] == 0 && !unmake(), "{line}: {plain}");
            // What the session was given may not be taken away.
            let emptied = inside(&[grant, "cmd = \"env\""], "", &format!("env -i {line}"));
            assert!(emptied["data"]["exit_code"] != 0, "{line}: {emptied}");
        }
        // Where all that a program does is granted, so is what variables have it do.
        let free = inside(&["cmd = \"make\""], "", "MAKEFILES=evil.mk make -s all");
        assert!(free["data"]["exit_code"] == 0 && unmake(), "{free}");
        let free = inside(&["cmd = \"{workspace}/tool.sh\"", "cmd = \"bash\""], "", "BASH_ENV=./evil.sh ./tool.sh");
        assert!(free["data"]["exit_code"] == 0 && unmake(), "{free}");
        // And what the manifest gives the session is its own.
        let env_lines = "[env]\nset = { MAKEFILES = \"evil.mk\" }\n";
        let given = inside(&["cmd = \"make\"\nargs = [\"-s\", \"all\"]"], env_lines, "make -s all");
        assert!(given["data"]["exit_code"] == 0 && unmake(), "{given}");
    });
}

/// Script that a call tries to have python run before a script: its user's own start-up file, where `HOME` says.
const PLANTED: &str = "at=$HOME/.local/lib/python3.%s/site-packages; for minor in 9 10 11 12 13 14; do \
                       dir=$(printf \"$at\" $minor); mkdir -p $dir; echo \"open('made', 'w')\" > $dir/usercustomize.py; done; \
                       PATH=/usr/bin:/bin ./tool.py; echo ran $?";

/// A17: nothing that a call writes is in the `HOME` of programs that are bounded, where they look for start-up files. What they
/// can make again has a place elsewhere.
#[test]
fn a17_home_does_not_steer_what_is_bounded() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        script(&env, &env.workspace().join("tool.py"), "#!/usr/bin/python3\nprint('tool')\n");
        let inside = |grants: &[&str], line: &str| {
            let text = format!("id = \"x\"\n[requires.fs]\nwrite = [\"{{workspace}}/**\"]\n{}", only(grants));
            env.workspace_file("m.toml", &text);
            let (code, envelope) = call(&env, "bash", &json!({ "command": line }));
            assert_eq!(code, Some(0), "{envelope}");
            envelope
        };
        let tools = ["cmd = \"mkdir\"", "cmd = \"{workspace}/tool.py\""];
        // The control: where any program may be started, the home is the call's to write, and python runs the file.
        let free = inside(&["cmd = \"*\""], PLANTED);
        assert!(free.to_string().contains("ran 0") && unmake(&env), "{free}");
        for grants in [&tools[..], &["cmd = \"mkdir\"", "cmd = \"{workspace}/tool.py\"\nargs = []"]] {
            let bound = inside(grants, PLANTED);
            assert!(bound.to_string().contains("ran 0") && !unmake(&env), "{bound}");
        }
        let way = "mkdir -p $XDG_CACHE_HOME/x && echo y > $XDG_CACHE_HOME/x/y && ! echo z > $HOME/z && \
                   ! mkdir $HOME/d && ! mkdir -p $HOME/../home/e";
        let cache = inside(&tools, way);
        assert_eq!(cache["data"]["exit_code"], 0, "{cache}");
    });
}
