//! `--debug` (`capabilities = ["debug"]`): the processes of a call trace one another, and nobody else. That broker, zygotes,
//! workers and other calls stay out of reach is in `siblings.rs` and in the library's `one_session.rs`, with this flag too.

use std::fs;

use callgate_tests::{Binaries, Host, ProgramRunner, TestEnv, matrix, skip};
use libc::{EACCES, EFAULT, EPERM, PTRACE_O_EXITKILL, PTRACE_O_TRACECLONE, PTRACE_O_TRACEEXIT, PTRACE_O_TRACESYSGOOD};
use serde_json::json;

/// Both strengths, and a container's profile. (Older Landlocks bound tracers as this one does; what imitates them here traces
/// callgate itself, so that nobody else can.)
const HOSTS: &[Host] = &[Host::Namespaces, Host::NoNamespaces, Host::Docker];

fn debug(env: &TestEnv) -> ProgramRunner {
    env.sandbox().flag(&["--debug"])
}

fn probe() -> String {
    Binaries::of_this_build().probe().display().to_string()
}

/// D1: a process seizes its child, with the options that gdb sets, and reads and writes its memory.
#[test]
fn d1_a_call_traces_its_own_processes_if_that_is_granted() {
    let options = (PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL).to_string();
    matrix(HOSTS, |target| {
        let env = TestEnv::new(target);
        let act = ["trace-child", options.as_str()];
        let seen = json!([0, 1, 2]);
        assert_eq!(env.bare().probe(&act).assert_ok().fact("seen"), seen, "the control");
        let refused = env.sandbox().probe(&act);
        assert_eq!(refused.assert_errno(EPERM).at(), "seize");
        assert_eq!(debug(&env).probe(&act).assert_ok().fact("seen"), seen);
        // By a manifest.
        let probe = probe();
        let manifest = format!(
            "id = \"x\"\n[requires]\ncapabilities = [\"debug\"]\n[[requires.shell]]\ncmd = \"*\"\n[requires.fs]\nread = [\"{probe}\", \"{{workspace}}/**\"]\n"
        );
        env.workspace_file("debug.toml", &manifest);
        let by_manifest = env.sandbox().flag(&["--manifest", "debug.toml"]).probe(&act);
        assert_eq!(by_manifest.assert_ok().fact("seen"), seen);
    });
}

/// D1: who asks to be traced is traced by the parent: a program of the call, and never callgate's own init.
#[test]
fn d1_the_init_is_nobody_s_tracer() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let by_shell = format!("{} trace-me; exit 7", probe());
        let shell = ["/bin/sh", "-c", &by_shell];
        for run in [env.bare(), debug(&env)] {
            let ended = run.run(&shell);
            assert!(ended.stdout.contains("\"ok\":true") && ended.status.code() == Some(7), "{ended:?}");
        }
        debug(&env).probe(&["trace-me"]).assert_errno(EPERM);
    });
}

/// D5: the filter judges what a tracer makes of another's system call.
#[test]
fn d5_a_call_that_a_tracer_has_changed_is_judged() {
    matrix(HOSTS, |target| {
        let env = TestEnv::new(target);
        // Without a filter the kernel misses a name; in a container its own filter refuses.
        env.bare().probe(&["trace-call"]).assert_errno(EFAULT);
        debug(&env).probe(&["trace-call"]).assert_errno(EPERM);
    });
}

/// D12: tracees stop at their end for one process of a call at most, for as long as it lives.
#[test]
fn d12_tracees_stop_at_their_end_for_one_tracer_alone() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let answers = |run: ProgramRunner| {
            // The second after the first has ended.
            let probe = probe();
            let ended = run.run(&["/bin/sh", "-c", &format!("{probe} trace-exits; {probe} trace-exits")]);
            let lines = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap());
            let lines: Vec<serde_json::Value> = lines.collect();
            assert_eq!(lines.len(), 2, "{ended:?}");
            let one = |line: &serde_json::Value| ["first", "again", "other", "plain"].map(|name| line[name].as_i64());
            [one(&lines[0]), one(&lines[1])]
        };
        assert_eq!(answers(env.bare()), [[Some(0); 4]; 2], "the control");
        let held = [Some(0), Some(0), Some(i64::from(EPERM)), Some(0)];
        assert_eq!(answers(debug(&env)), [held; 2]);
        // And to suspend the filter is nobody's, whatever the kernel would say.
        for options in [1 << 21, PTRACE_O_TRACEEXIT | 1 << 21, 1 << 8] {
            debug(&env).probe(&["trace-child", &options.to_string()]).assert_errno(EPERM);
        }
        let ptrace = libc::SYS_ptrace.to_string();
        for request in ["21", "16908", "16909", "16912", "16914", "4294967296"] {
            debug(&env).probe(&["syscall", &ptrace, request, "0", "0", "0"]).assert_errno(EPERM);
        }
    });
}

/// D1, A7: without namespaces `/proc` is the host's: of it, debuggers read what tells of their own call's processes.
#[test]
fn d1_a7_procfs_tells_of_the_call_s_own_processes() {
    matrix(&[Host::NoNamespaces, Host::Docker], |target| {
        let env = TestEnv::new(target);
        let mut bystander = env.bystander();
        let (probe, other) = (probe(), bystander.text());
        let script = format!(
            "sleep 60 & for pid in $! $PPID {other}; do for file in status maps stat cmdline task/$pid/status mem environ mountinfo; do \
             {probe} read /proc/$pid/$file; done; done; kill $!"
        );
        let words = ["/bin/bash", "-c", script.as_str()];
        let results = |run: ProgramRunner| {
            let ended = run.run(&words);
            let line = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok();
            let acts = ended.stdout.lines().filter_map(line).filter(|line| line["act"] == "read");
            let errnos: Vec<i64> =
                acts.map(|line| if line["ok"] == true { 0 } else { line["errno"].as_i64().unwrap() }).collect();
            assert_eq!(errnos.len(), 24, "{ended:?}");
            errnos
        };
        let no = i64::from(EACCES);
        let own = [0, 0, 0, 0, 0, no, no, no];
        assert_eq!(results(debug(&env)), [own, [no; 8], [no; 8]].concat());
        assert_eq!(results(env.sandbox()), [no; 24], "the control: without the flag");
        let bare = env.bare().probe(&["read", &format!("/proc/{other}/cmdline")]);
        bare.assert_ok();
        let listed = debug(&env).probe(&["ps"]);
        let listed = listed.assert_ok().fact("processes");
        assert!(listed.as_object().is_some_and(|all| all.len() == 1), "itself alone: {listed}");
        assert!(bystander.is_alive());
    });
}

/// D1: where callgate traces programs to judge them nobody else can, and where the host lets nobody trace, `debug` is refused.
#[test]
fn d1_debug_is_refused_where_it_cannot_be() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let true_ = ["true"];
        assert!(debug(&env).run(&true_).status.success(), "the control");
        assert!(env.sandbox().flag(&["--exec", "true"]).run(&true_).status.success(), "the control");
        let beside = debug(&env).flag(&["--exec", "true"]).run(&true_);
        assert_eq!(beside.status.code(), Some(65), "{beside:?}");
        assert!(beside.stderr.contains("one tracer"), "{beside:?}");
        let watched =
            "id = \"x\"\nwatch_execs = true\n[requires]\ncapabilities = [\"debug\"]\n[[requires.shell]]\ncmd = \"*\"\n";
        env.workspace_file("watched.toml", watched);
        let watched = env.sandbox().flag(&["--manifest", "watched.toml"]).run(&true_);
        assert_eq!(watched.status.code(), Some(65), "{watched:?}");
    });
    matrix(&[Host::Yama], |target| {
        let env = TestEnv::new(target);
        let barred = debug(&env).run(&["/bin/true"]);
        assert_eq!(barred.status.code(), Some(69), "{barred:?}");
        assert!(barred.stderr.contains("ptrace_scope"), "{barred:?}");
    });
}

/// Whoever needs the flag is told of it.
#[test]
fn without_debug_the_message_names_it() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let line = format!("{} trace-child; exit 3", probe());
        let words = ["/bin/sh", "-c", line.as_str()];
        let refused = env.sandbox().run(&words);
        assert!(refused.status.code() == Some(3) && refused.stderr.contains("--debug"), "{refused:?}");
        let granted = debug(&env).flag(&["--status", "status.json"]).run(&words);
        let status = fs::read_to_string(env.workspace().join("status.json")).unwrap();
        assert!(status.contains("debug: ptrace within the call"), "the result tells: {status}");
        assert!(granted.status.code() == Some(3) && !granted.stderr.contains("--debug"), "{granted:?}");
    });
}

/// LeakSanitizer traces its own process from a child that shares all of it.
#[test]
fn leak_sanitizer_finds_leaks() {
    matrix(HOSTS, |target| {
        let env = TestEnv::new(target);
        env.workspace_file(
            "leak.c",
            "#include <stdlib.h>\nint main(int n,char**v){void*volatile p=malloc(n);p=0;return 0;}\n",
        );
        let build = env.bare().run(&["gcc", "-g", "-fsanitize=address", "-o", "leak", "leak.c"]);
        let bare = env.bare().run(&["./leak"]);
        if !build.status.success() || !bare.stderr.contains("detected memory leaks") {
            return skip("leak-sanitizer", format_args!("{target:?}: {build:?} {bare:?}"));
        }
        env.give(&env.workspace().join("leak"));
        // By itself, and from a shell.
        for words in [&["./leak"][..], &["/bin/sh", "-c", "./leak; exit $?"]] {
            let inside = debug(&env).run(words);
            let found = inside.stderr.contains("detected memory leaks");
            assert!(found && inside.status.code() == bare.status.code(), "{inside:?}");
        }
        fs::remove_file(env.workspace().join("leak")).unwrap();
    });
}
