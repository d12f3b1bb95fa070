//! Programs in a tree, granted by pattern (S0-39): what lies there when it is started, and nothing that a link, a move or a script
//! leads to from there.
//!
//! What is denied is a copy of `touch` that makes `made`, told by the file that is not there. Every denied start has a control.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use callgate_tests::{Binaries, Host, ProgramOutcome, ProgramRunner, TestEnv, matrix, skip};
use libc::EACCES;
use serde_json::Value;

const TREE: &str = "{workspace}/target/**";
/// Programs that lines here need besides.
const USUAL: &[&str] = &["bash", "cp", "mv", "mkdir", "rm", "ln", "cat", "chmod"];

/// A workspace with a `target` that has a copy of `touch` in it, as `target/tool`, and another copy beside.
fn workspace(env: &TestEnv) {
    directory(env, "target");
    for name in ["target/tool", "tool"] {
        program(env, "/usr/bin/touch", name);
    }
}

fn directory(env: &TestEnv, name: &str) {
    fs::create_dir(at(env, name)).unwrap();
    env.give(&at(env, name));
}

fn at(env: &TestEnv, name: &str) -> PathBuf {
    env.workspace().join(name)
}

/// A copy of a program in the workspace.
fn program(env: &TestEnv, from: impl AsRef<Path>, name: &str) {
    fs::copy(from, at(env, name)).unwrap();
    fs::set_permissions(at(env, name), fs::Permissions::from_mode(0o755)).unwrap();
    env.give(&at(env, name));
}

fn script(env: &TestEnv, name: &str, text: &str) {
    env.workspace_file(name, text);
    fs::set_permissions(at(env, name), fs::Permissions::from_mode(0o755)).unwrap();
}

/// A manifest that grants the workspace, these programs and, as a TOML value with more lines if need be, this one.
fn granting(env: &TestEnv, programs: &[&str], tree: &str) -> ProgramRunner {
    let probe = Binaries::of_this_build().probe().display().to_string();
    let all = programs.iter().copied().chain([probe.as_str()]).map(|name| format!("{name:?}"));
    let shell: String = all.chain([tree.to_owned()]).map(|cmd| format!("[[requires.shell]]\ncmd = {cmd}\n")).collect();
    let text = format!(
        "id = \"x\"\n[requires.fs]\nread = [\"{probe}\", \"{}/**\"]\nwrite = [\"{{workspace}}/**\"]\n{shell}",
        env.outside().display()
    );
    env.workspace_file("m.toml", &text);
    env.sandbox().flag(&["--manifest", "m.toml"])
}

/// A run with the tree granted.
fn granted(env: &TestEnv) -> ProgramRunner {
    granting(env, USUAL, &format!("{TREE:?}"))
}

/// Takes away what a program has made; whether there was something.
fn unmake(env: &TestEnv) -> bool {
    fs::remove_file(at(env, "made")).is_ok()
}

/// Runs a line in a workspace that is made anew: whether `made` was made, and how it ended.
fn line(run: impl Fn(&TestEnv) -> ProgramRunner, env: &TestEnv, line: &str) -> (bool, ProgramOutcome) {
    for entry in fs::read_dir(env.workspace()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
    }
    workspace(env);
    let ended = run(env).run(&["bash", "-c", line]);
    (unmake(env), ended)
}

/// S0-39: what is in the tree starts, and so does what a call puts there; the same program elsewhere is EACCES, and told.
#[test]
fn s0_39_programs_of_a_tree_start_and_no_others() {
    matrix(&[Host::Namespaces, Host::NoNamespaces, Host::Docker], |target| {
        let env = TestEnv::new(target);
        workspace(&env);
        let run = granted(&env).flag(&["--status", "status.json"]);
        let made = at(&env, "made").display().to_string();
        for name in ["target/tool", "tool"] {
            env.bare().probe(&["exec", name, &made]).assert_ok();
            assert!(unmake(&env), "bare: {name}");
        }
        run.probe(&["exec", "target/tool", &made]).assert_ok();
        assert!(unmake(&env));
        run.probe(&["exec", "tool", &made]).assert_errno(EACCES);
        assert!(!unmake(&env));
        let status: Value = serde_json::from_slice(&fs::read(at(&env, "status.json")).unwrap()).unwrap();
        let told = &status["metadata"]["changes"]["not_started"][0];
        assert_eq!(told["path"], format!("tool {made}"), "{status}");
        assert_eq!(told["why"], "it is not granted", "{status}");
        assert!(status["metadata"]["enforced"].to_string().contains("argv verified, 10 granted"), "{status}");
        for way in [
            "cp tool target/new && target/new made",
            "mkdir target/d && cp tool target/d/new && cd target/d && ./new ../../made",
            "mv target/tool target/other && target/other made",
            "cat tool > target/new && chmod 755 target/new && target/new made",
        ] {
            let (made, ended) = line(granted, &env, way);
            assert!(made && ended.status.success(), "{way}: {ended:?}");
        }
    });
}

/// S0-39: the tree is the directory that was there, and what lies in it is asked when it starts: not what takes its name, nor
/// what has left it.
#[test]
fn s0_39_what_left_a_tree_or_takes_its_name_is_not_granted() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        // Each with a line that shows the same start to be granted, one thing changed.
        for (denied, control) in [
            ("mv target/tool out && ./out made", "mv target/tool target/out && target/out made"),
            ("ln target/tool out && ./out made", "ln target/tool target/out && target/out made"),
            (
                "mkdir target/d; mv target/tool target/d; mv target/d d; d/tool made",
                "mkdir target/d; mv target/tool target/d; target/d/tool made",
            ),
            (
                "mv target old && mkdir target && cp tool target/new && target/new made",
                "mkdir target/old && cp tool target/old/new && target/old/new made",
            ),
            (
                "rm -r target && mkdir target && cp tool target/new && target/new made",
                "rm -r target/* && cp tool target/new && target/new made",
            ),
            ("cp tool target.tool && ./target.tool made", "cp tool target/.tool && target/.tool made"),
        ] {
            for way in [denied, control] {
                let (made, ended) = line(|env| env.bare(), &env, way);
                assert!(made, "bare: {way}: {ended:?}");
            }
            let (made, ended) = line(granted, &env, control);
            assert!(made && ended.status.success(), "{control}: {ended:?}");
            let (made, ended) = line(granted, &env, denied);
            assert!(!made, "{denied}: {ended:?}");
            assert!(
                ended.status.code() == Some(126) && ended.stderr.contains("Permission denied"),
                "{denied}: {ended:?}"
            );
        }
    });
}

/// S0-39: what runs is asked of the kernel again: a program of the tree that has lost its name, or left, does not start itself
/// anew by its descriptor.
#[test]
fn s0_39_a_deleted_program_is_not_started_again() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let way = |act: &str| {
            format!("cp /bin/bash target/sh; exec target/sh -c '{act}; exec /proc/self/exe -c \"echo > made\"'")
        };
        for (act, starts) in [
            (":", true),
            ("mv target/sh target/other", true),
            ("rm target/sh", false),
            ("mv target/sh .", false),
            // Another file has its name, or the one that the kernel has for it then.
            ("cp tool target/new; mv target/new target/sh", false),
            ("ln target/sh target/new; mv target/new out; rm target/sh; cp tool \"target/sh (deleted)\"", false),
        ] {
            let (made, ended) = line(|env| env.bare(), &env, &way(act));
            assert!(made, "bare: {act}: {ended:?}");
            let (made, ended) = line(granted, &env, &way(act));
            assert_eq!(made, starts, "{act}: {ended:?}");
            assert_eq!(ended.status.code(), Some(if starts { 0 } else { 126 }), "{act}: {ended:?}");
        }
    });
}

/// S0-39, A2: a link is what it leads to, whoever follows it: what callgate starts itself too, for which the kernel would let
/// bash and loaders pass.
#[test]
fn s0_39_a2_a_link_in_a_tree_is_what_it_leads_to() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        workspace(&env);
        let loader = loader();
        for (name, to) in [("touch", "/usr/bin/touch"), ("sh", "/bin/bash"), ("ld", loader.unwrap_or("/usr/bin/true"))]
        {
            symlink(to, at(&env, &format!("target/{name}"))).unwrap();
        }
        symlink("target/tool", at(&env, "out")).unwrap();
        let made = at(&env, "made").display().to_string();
        let denied = [
            vec!["target/touch", &made],
            vec!["target/sh", "-c", "echo > made"],
            vec!["target/ld", "/usr/bin/touch", &made],
        ];
        let run = granting(&env, &[], &format!("{TREE:?}"));
        for words in denied.iter().filter(|words| words[0] != "target/ld" || loader.is_some()) {
            let control = env.bare().run(words);
            assert!(unmake(&env), "bare: {words:?}: {control:?}");
            run.probe(&[&["exec"], words.as_slice()].concat()).assert_errno(EACCES);
            let own = run.run(words);
            assert!(!unmake(&env) && !own.status.success(), "{words:?}: {own:?}");
            assert!(own.stderr.contains("Permission denied"), "{words:?}: {own:?}");
        }
        run.probe(&["exec", "out", &made]).assert_ok();
        assert!(unmake(&env), "by a link from outside it is the tree's");
        let own = run.run(&["target/tool", &made]);
        assert!(unmake(&env) && own.status.success(), "{own:?}");
        // By its spelling what is not in the tree does not get so far.
        let refused = run.run(&["./tool", &made]);
        assert_eq!((refused.status.code(), unmake(&env)), (Some(77), false), "{refused:?}");
    });
}

/// S0-39, C9: a script of a tree brings no interpreter with it, however many are in between; one that is granted runs it.
#[test]
fn s0_39_c9_scripts_of_a_tree_need_their_interpreter() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        workspace(&env);
        let between = at(&env, "target/between").display().to_string();
        script(&env, "target/between", "#!/usr/bin/perl\n");
        // bash may be executed as far as Landlock knows, and is not granted.
        for (name, text) in [
            ("perl", "#!/usr/bin/perl\nopen F, '>', 'made';\n".to_owned()),
            ("bash", "#!/bin/bash\necho > made\n".to_owned()),
            ("env", "#!/usr/bin/env perl\nopen F, '>', 'made';\n".to_owned()),
            ("nested", format!("#!{between}\nopen F, '>', 'made';\n")),
        ] {
            let path = format!("target/{name}");
            script(&env, &path, &text);
            if name != "nested" {
                env.bare().probe(&["exec", &path]).assert_ok();
                assert!(unmake(&env), "bare: {name}");
            }
            let run = granting(&env, &[], &format!("{TREE:?}")).flag(&["--status", "status.json"]);
            run.probe(&["exec", &path]).assert_errno(EACCES);
            assert!(!unmake(&env), "{name}");
            let status = fs::read_to_string(at(&env, "status.json")).unwrap();
            assert!(status.contains("which interprets it, is not granted so"), "{name}: {status}");
        }
        for (name, programs) in [("perl", &["perl"][..]), ("bash", &["bash"]), ("env", &["env", "perl"])] {
            let run = granting(&env, programs, &format!("{TREE:?}"));
            run.probe(&["exec", &format!("target/{name}")]).assert_ok();
            assert!(unmake(&env), "{name}");
        }
        // Its arguments are judged with what the kernel puts before the script's.
        let run =
            granting(&env, &[], &format!("\"perl\"\nargs = [\"target/perl\"]\n[[requires.shell]]\ncmd = {TREE:?}"));
        run.probe(&["exec", "target/perl"]).assert_ok();
        assert!(unmake(&env));
        fs::copy(at(&env, "target/perl"), at(&env, "target/more")).unwrap();
        env.give(&at(&env, "target/more"));
        for words in [&["exec", "target/more"][..], &["exec", "target/perl", "1"], &["exec", "target/nested"]] {
            run.probe(words).assert_errno(EACCES);
            assert!(!unmake(&env), "{words:?}");
        }
        // What env starts is an exec of its own.
        let run = granting(&env, &["env"], &format!("{TREE:?}"));
        drop(run.probe(&["exec", "target/env"]));
        assert!(!unmake(&env));
        // A granted script runs by what interprets it, and another in the tree does not for that.
        script(&env, "own", "#!/usr/bin/perl\nopen F, '>', 'made';\n");
        let run = granting(&env, &[at(&env, "own").to_str().unwrap()], &format!("{TREE:?}"));
        run.probe(&["exec", "own"]).assert_ok();
        assert!(unmake(&env));
        run.probe(&["exec", "target/perl"]).assert_errno(EACCES);
        assert!(!unmake(&env));
    });
}

/// The dynamic loader of this machine's programs.
fn loader() -> Option<&'static str> {
    ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"].into_iter().find(|path| Path::new(path).exists())
}

/// A directory that calls may read and not write, with a copy of a loader in it as `ld.so`, and the pattern of its programs.
fn tools(env: &TestEnv, loader: &str) -> (PathBuf, String) {
    let tools = env.outside().join("tools");
    fs::create_dir(&tools).unwrap();
    env.give(&tools);
    fs::copy(loader, tools.join("ld.so")).unwrap();
    fs::set_permissions(tools.join("ld.so"), fs::Permissions::from_mode(0o755)).unwrap();
    let pattern = format!("\"{}/**\"", tools.display());
    (tools, pattern)
}

/// Makes the file that its argument names.
const MAKES: &str = "#include <fcntl.h>\n\
    int main(int argc, char **argv) { return argc < 2 || open(argv[1], O_CREAT | O_WRONLY, 0600) < 0; }\n";

/// S0-39, C8: of a directory whose programs are granted a loader is none of them, whoever starts it: it would start what its
/// arguments name. However a program is linked, it starts.
#[test]
fn s0_39_c8_a_loader_of_a_tree_is_not_started() {
    let Some(loader) = loader() else { return skip("loader", "none by a known name") };
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        workspace(&env);
        let (tools, pattern) = tools(&env, loader);
        let tool = |name: &str| tools.join(name).display().to_string();
        env.file_at(tools.join("run"), &format!("#!{} /usr/bin/touch\n", tool("ld.so")));
        env.file_at(tools.join("script"), "#!/bin/bash\necho > $1\n");
        for name in ["run", "script"] {
            fs::set_permissions(tools.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        symlink(tools.join("ld.so"), at(&env, "link")).unwrap();
        let run = granting(&env, &["bash"], &pattern).flag(&["--status", "status.json"]);
        let (made, ld) = (at(&env, "made").display().to_string(), tool("ld.so"));
        for words in [
            &[ld.as_str(), "./tool", &made][..],
            &[&ld, "/usr/bin/touch", &made],
            &["link", "/usr/bin/touch", &made],
            &[&tool("run"), &made],
        ] {
            env.bare().probe(&[&["exec"], words].concat()).assert_ok();
            assert!(unmake(&env), "bare: {words:?}");
            run.probe(&[&["exec"], words].concat()).assert_errno(EACCES);
            assert!(!unmake(&env), "{words:?}");
            let status = fs::read_to_string(at(&env, "status.json")).unwrap();
            assert!(status.contains("is no program by itself"), "{words:?}: {status}");
            let shell =
                run.run(&["bash", "-c", "\"$@\"", "bash"].into_iter().chain(words.iter().copied()).collect::<Vec<_>>());
            assert_eq!((unmake(&env), shell.status.code()), (false, Some(126)), "{words:?}: {shell:?}");
        }
        // As the command of the call itself.
        let own = run.run(&[&ld, "/usr/bin/touch", &made]);
        assert!(!unmake(&env) && !own.status.success(), "{own:?}");
        assert!(own.stderr.contains("Permission denied"), "{own:?}");
        let source = env.file("makes.c", MAKES);
        let kinds = [
            ("pie", &["-fPIE", "-pie"][..]),
            ("fixed", &["-no-pie"]),
            ("static", &["-static"]),
            ("static-pie", &["-static-pie"]),
        ];
        for (name, flags) in kinds {
            let built = env.bare().run(&[&["cc"], flags, &["-o", &tool(name), source.text()]].concat());
            if !built.status.success() {
                skip("kind-of-binary", format_args!("{name}: {built:?}"));
                continue;
            }
            run.probe(&["exec", &tool(name), &made]).assert_ok();
            assert!(unmake(&env), "{name}");
        }
        run.probe(&["exec", &tool("script"), &made]).assert_ok();
        assert!(unmake(&env));
    });
}

/// S0-39, C8, C14: nor by a name that leads to a program of the tree when it is looked at, and to the loader then.
#[test]
fn s0_39_c8_c14_no_race_starts_a_loader_of_a_tree() {
    let Some(loader) = loader() else { return skip("loader", "none by a known name") };
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (tools, pattern) = tools(&env, loader);
        fs::copy("/usr/bin/true", tools.join("tool")).unwrap();
        // What the loader would start.
        program(&env, "/usr/bin/false", "1");
        let run = granting(&env, &[], &pattern);
        // Until each of these has happened, whatever else the machine does meanwhile.
        let race = |run: &ProgramRunner, wanted: [&str; 2]| {
            let over = AtomicBool::new(false);
            let exchange = |name: &&str| {
                symlink(tools.join(name), at(&env, "next")).unwrap();
                fs::rename(at(&env, "next"), at(&env, "x")).unwrap();
            };
            exchange(&"tool");
            std::thread::scope(|threads| {
                let names = ["ld.so", "tool"].iter().cycle();
                threads.spawn(|| names.take_while(|_| !over.load(Ordering::Relaxed)).for_each(exchange));
                let mut counts = ["good", "bad", "refused"].map(|name| (name, 0));
                let has_all =
                    |counts: &[(&str, u64)]| counts.iter().all(|(name, count)| *count > 0 || !wanted.contains(name));
                let mut raced = Ok(());
                for _ in 0..50 {
                    let probe = run.probe(&["exec-race", "shared", "200", "./x", "./1", "./1"]);
                    counts.iter_mut().for_each(|(name, count)| *count += probe.fact(name).as_u64().unwrap_or(0));
                    raced = if probe.is_ok() { Ok(()) } else { Err(probe.to_string()) };
                    if raced.is_err() || has_all(&counts) {
                        break;
                    }
                }
                over.store(true, Ordering::Relaxed);
                assert_eq!(raced, Ok(()));
                assert!(has_all(&counts), "{counts:?}");
                counts
            })
        };
        race(&env.bare(), ["good", "bad"]);
        let counts = race(&run, ["good", "refused"]);
        assert!(counts.contains(&("bad", 0)), "{counts:?}");
    });
}

/// S0-39, C11, C14: arguments are granted to each program of a tree by its own name, in the session's environment, and no race
/// changes them.
#[test]
fn s0_39_c11_c14_arguments_of_a_tree_are_judged() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        workspace(&env);
        program(&env, "/usr/bin/expr", "target/expr");
        symlink("expr", at(&env, "target/link")).unwrap();
        let run = granting(&env, USUAL, &format!("{TREE:?}\nargs = [\"1\"]"));
        run.probe(&["exec", "target/expr", "1"]).assert_ok();
        for args in [&["0"][..], &[], &["1", "+", "1"]] {
            run.probe(&[&["exec", "target/expr"], args].concat()).assert_errno(EACCES);
        }
        env.bare().probe(&["exec", "target/expr", "1", "+", "1"]).assert_ok();
        let shell = |line: &str| run.run(&["bash", "-c", line]);
        for (line, code) in [
            ("target/expr 1", 0),
            ("LANG=C target/expr 1", 0),
            ("LD_DEBUG=libs target/expr 1", 126),
            ("(exec -a expr target/link 1)", 0),
            ("target/link 1", 126),
            ("(exec -a tool target/expr 1)", 126),
        ] {
            let ended = shell(line);
            assert_eq!(ended.status.code(), Some(code), "{line}: {ended:?}");
            let bare = env.bare().run(&["/bin/bash", "-c", line]);
            assert_eq!(bare.status.code(), Some(0), "bare: {line}: {bare:?}");
        }
        // A name that begins as the tree's does lies beside it, though the file has a name in it too.
        program(&env, "/usr/bin/expr", "target.x");
        fs::hard_link(at(&env, "target.x"), at(&env, "target/.x")).unwrap();
        let beside = at(&env, "target.x").display().to_string();
        let both = granting(&env, &[], &format!("{TREE:?}\n[[requires.shell]]\ncmd = {beside:?}\nargs = [\"1\"]"));
        both.probe(&["exec", "target/.x", "0"]).assert_ok();
        both.probe(&["exec", "./target.x", "1"]).assert_ok();
        both.probe(&["exec", "./target.x", "0"]).assert_errno(EACCES);
        let run = granting(&env, USUAL, &format!("{TREE:?}\nargs = [\"1\"]"));
        // What callgate starts itself, by layer 1 and by the kernel's copy.
        assert_eq!(run.run(&["target/expr", "1"]).stdout, "1\n");
        assert_eq!(run.run(&["target/expr", "0"]).status.code(), Some(77));
        let race = |run: &ProgramRunner| run.probe(&["exec-race", "shared", "200", "target/expr", "1", "0"]);
        assert!(race(&env.bare()).assert_ok().fact("bad").as_u64() > Some(0), "the control");
        let raced = race(&run);
        assert_eq!((raced.assert_ok().fact("bad"), raced.fact("other")), (0.into(), 0.into()), "{raced}");
        assert!(raced.fact("good").as_u64() > Some(0), "{raced}");
    });
}

/// Where nobody may trace, the kernel knows the tree, and the first look refuses what is not there.
#[test]
fn s0_39_a_tree_holds_without_tracing() {
    matrix(&[Host::Yama], |target| {
        for no_namespaces in [false, true] {
            let env = TestEnv::new(target);
            workspace(&env);
            let on = |run: ProgramRunner| if no_namespaces { run.weaken(&["no-userns"]) } else { run };
            let run = on(granted(&env)).flag(&["--status", "status.json"]);
            let made = at(&env, "made").display().to_string();
            run.probe(&["exec", "target/tool", &made]).assert_ok();
            assert!(unmake(&env));
            let status = fs::read_to_string(at(&env, "status.json")).unwrap();
            assert!(status.contains("program only"), "{status}");
            run.probe(&["exec", "tool", &made]).assert_errno(EACCES);
            if let Some(loader) = loader() {
                program(&env, loader, "target/ld.so");
                run.probe(&["exec", "target/ld.so", "./tool", &made]).assert_errno(EACCES);
                assert!(!unmake(&env));
            }
            symlink("/bin/bash", at(&env, "target/sh")).unwrap();
            let bounded = on(granting(&env, &[], &format!("{TREE:?}")));
            let own = bounded.run(&["target/sh", "-c", "echo > made"]);
            assert!(!unmake(&env) && !own.status.success(), "{own:?}");
            let refused = on(granting(&env, USUAL, &format!("{TREE:?}\nargs = [\"1\"]"))).run(&["target/tool", "1"]);
            assert_eq!(refused.status.code(), Some(69), "{refused:?}");
        }
    });
}

/// A tree that is not there when the session opens is not granted in it, nor one that may not be read, and the result says so. A
/// link that a call may have put in its place ends the session there (A2).
#[test]
fn s0_39_a2_a_tree_is_what_is_there_when_the_session_opens() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        program(&env, "/usr/bin/touch", "tool");
        let run = granted(&env).flag(&["--status", "status.json"]);
        let way = "mkdir -p target && cp tool target/tool && target/tool made";
        let early = run.run(&["bash", "-c", way]);
        assert_eq!((unmake(&env), early.status.code()), (false, Some(126)), "{early:?}");
        let status = fs::read_to_string(at(&env, "status.json")).unwrap();
        assert!(status.contains(&format!("not found: {}/**", at(&env, "target").display())), "{status}");
        let next = run.run(&["bash", "-c", way]);
        assert!(unmake(&env), "{next:?}");
        // Outside, where nothing may be read.
        let apart = tempfile::Builder::new().prefix("callgate-test-").tempdir_in("/var/tmp").unwrap();
        let tree = format!("\"{}/**\"", apart.path().display());
        let unread = granting(&env, &["mkdir"], &tree).flag(&["--status", "status.json"]).run(&["mkdir", "made"]);
        assert!(unread.status.success() && fs::remove_dir(at(&env, "made")).is_ok(), "{unread:?}");
        let status = fs::read_to_string(at(&env, "status.json")).unwrap();
        let what = target.by_strength("not found", "not readable");
        assert!(status.contains(&format!("{what}: {}/**", apart.path().display())), "{status}");
        // The link of a call.
        fs::rename(at(&env, "target"), at(&env, "elsewhere")).unwrap();
        symlink("elsewhere", at(&env, "target")).unwrap();
        let led = granted(&env).run(&["bash", "-c", "target/tool made"]);
        assert_eq!((unmake(&env), led.status.code()), (false, Some(64)), "{led:?}");
        assert!(led.stderr.contains("target"), "{led:?}");
    });
}

/// S0-39, X0-1: of a tree and a path in it what is left is the path, as long as it leads to a file in the tree; and `--exec` has
/// the same pattern.
#[test]
fn s0_39_a_ceiling_bounds_a_path_to_its_tree() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        workspace(&env);
        symlink("/usr/bin/touch", at(&env, "target/link")).unwrap();
        let tables = |name: &str| {
            let name = name.trim_start_matches("./");
            format!(
                "id = \"x\"\n[requires.fs]\nwrite = [\"{{workspace}}/**\"]\n[[requires.shell]]\ncmd = \"{{workspace}}/{name}\"\n\
                 [[ceiling.shell]]\ncmd = {TREE:?}\n"
            )
        };
        for (name, code) in [("target/tool", Some(0)), ("./tool", Some(77)), ("target/link", None)] {
            env.workspace_file("m.toml", &tables(name));
            let ended = env.sandbox().flag(&["--manifest", "m.toml"]).run(&[name, "made"]);
            assert_eq!(unmake(&env), code == Some(0), "{name}: {ended:?}");
            assert!(code.is_none_or(|code| ended.status.code() == Some(code)), "{name}: {ended:?}");
            // The control: without the ceiling each is granted.
            let free = tables(name).split("[[ceiling").next().unwrap().to_owned();
            env.workspace_file("m.toml", &free);
            let ended = env.sandbox().flag(&["--manifest", "m.toml"]).run(&[name, "made"]);
            assert!(unmake(&env), "{name}: {ended:?}");
        }
        let typed = |pattern: &str, name: &str| {
            let ended = env.sandbox().flag(&["--exec", pattern]).run(&[name, "made"]);
            (unmake(&env), ended.status.code())
        };
        assert_eq!(typed("target/**", "target/tool"), (true, Some(0)));
        assert_eq!(typed("target/**", "./tool"), (false, Some(77)));
        assert_eq!(typed(TREE, "target/tool"), (true, Some(0)));
        assert_eq!(typed("/**", "target/tool"), (false, Some(64)));
        assert_eq!(typed("//**", "target/tool"), (false, Some(64)));
        // Nor is it what a process of callgate's has open.
        let open = (3..16).flat_map(|number| ["--exec".to_owned(), format!("/dev/fd/{number}/**")]);
        let flags: Vec<String> = open.chain(["--exec", "bash"].map(str::to_owned)).collect();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let ended = env.sandbox().flag(&flags).run(&["bash", "-c", "/usr/bin/touch made"]);
        assert!(!unmake(&env) && ended.stderr.contains("/usr/bin/touch made (it is not granted)"), "{ended:?}");
    });
}

/// S0-39: `cargo test` of a crate without dependencies, with the toolchain, the linker's parts and the tree that it builds in.
#[test]
fn s0_39_cargo_test_runs_what_it_builds() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let bare = env.bare().variable("RUSTUP_AUTO_INSTALL", "0").run(&["/bin/sh", "-c", "rustc --print sysroot"]);
        let sysroot = bare.stdout.trim().to_owned();
        if !bare.status.success() || !Path::new(&sysroot).join("bin/cargo").exists() {
            return skip("toolchain-of-root", format_args!("no cargo that {:?} can start", target.user));
        }
        env.workspace_file(
            "Cargo.toml",
            "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n",
        );
        directory(&env, "src");
        env.workspace_file("src/lib.rs", "#[test]\nfn it_runs() {\n    std::fs::write(\"made\", \"\").unwrap();\n}\n");
        let trees = [
            format!("{sysroot}/bin/**"),
            format!("{sysroot}/lib/rustlib/**"),
            "/usr/lib/gcc/**".to_owned(),
            "/usr/libexec/gcc/**".to_owned(),
        ];
        let shell = |more: &[&str]| -> String {
            let all = trees.iter().map(String::as_str).chain(["cc", "ld"]).chain(more.iter().copied());
            all.map(|cmd| format!("[[requires.shell]]\ncmd = {cmd:?}\n")).collect()
        };
        let cargo = format!("{sysroot}/bin/cargo");
        let test = |more: &[&str]| {
            drop(fs::remove_dir_all(at(&env, "target")));
            directory(&env, "target");
            let text = format!(
                "id = \"x\"\n[requires.fs]\nread = [\"{sysroot}/**\"]\nwrite = [\"{{workspace}}/**\"]\n{}\
                 [env]\nset = {{ RUSTC = \"{sysroot}/bin/rustc\", CARGO_HOME = \"{}\" }}\n",
                shell(more),
                at(&env, ".cargo-home").display(),
            );
            env.workspace_file("m.toml", &text);
            let ended =
                env.sandbox().flag(&["--manifest", "m.toml"]).run(&[&cargo, "test", "--offline", "--lib", "--quiet"]);
            (unmake(&env), ended)
        };
        let (made, ended) = test(&[TREE]);
        assert!(made && ended.status.success(), "{ended:?}");
        let (made, ended) = test(&[]);
        assert!(!made && !ended.status.success(), "{ended:?}");
        assert!(
            ended.stderr.contains("callgate: not started: ") && ended.stderr.contains("/target/debug/deps/small-"),
            "{ended:?}"
        );
    });
}
