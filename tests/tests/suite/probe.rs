//! The probe itself: it tells success, denial and "not tried" apart.

use callgate_tests::{Host, Target, TestEnv, User};

fn env() -> TestEnv {
    TestEnv::new(Target { host: Host::NoNamespaces, user: User::Ordinary })
}

#[test]
fn an_act_that_succeeds_says_what_it_saw() {
    let env = env();
    let file = env.file("file", "contents");
    let seen = env.bare().probe(&["read", file.text()]);
    assert_eq!(seen.assert_ok().fact("data"), "contents");
    assert_eq!(seen.errno(), None);
}

#[test]
fn an_act_that_fails_names_the_errno_and_the_call() {
    let env = env();
    let missing = env.outside().join("missing");
    let seen = env.bare().probe(&["truncate", missing.to_str().unwrap()]);
    assert_eq!(seen.assert_errno(libc::ENOENT).at(), "truncate");
}

#[test]
fn an_act_that_could_not_be_tried_exits_75_and_fails_every_assertion() {
    let env = env();
    for act in [&["nosuch"][..], &["read"], &["kill", "x"], &["openat2", "/", "sideways"]] {
        let seen = env.bare().probe(act);
        assert_eq!(seen.ended().status.code(), Some(75), "{seen}");
        let passes = |assertion: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(assertion)).is_ok();
        assert!(!passes(&|| {
            seen.assert_ok();
        }));
        assert!(!passes(&|| {
            seen.assert_errno(libc::EACCES);
        }));
    }
}

#[test]
fn every_act_is_listed_once() {
    let env = env();
    let probe = callgate_tests::Binaries::of_this_build().probe();
    let list = env.bare().run(&[probe.to_str().unwrap(), "--list"]).stdout;
    let mut names: Vec<&str> =
        list.lines().filter_map(|line| line.strip_prefix("  ")).filter_map(|line| line.split(' ').next()).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "a name is used twice");
    assert!(count > 100, "{list}");
}

#[test]
fn what_tools_do_among_themselves_works_bare() {
    let env = env();
    let workspace = env.workspace();
    for act in [
        &["loopback-self"][..],
        &["unix-self", workspace.to_str().unwrap()],
        &["unix-self-abstract", "callgate-probe-bare"],
        &["socketpair-stream"],
        &["socketpair-seqpacket"],
        &["socketpair-dgram"],
        &["scm-rights-self"],
        &["memfd-seal"],
        &["memfd-exec"],
    ] {
        env.bare().probe(act).assert_ok();
    }
}

#[test]
fn a_child_killed_by_the_kernel_is_reported_by_its_signal() {
    let env = env();
    // Without a frame to return to, this call kills whoever makes it; by which of the two depends on its stack.
    let seen = env.bare().probe(&["syscall", "rt_sigreturn"]);
    let signal = seen.fact("signal").as_i64();
    assert!(signal == Some(libc::SIGSEGV.into()) || signal == Some(libc::SIGBUS.into()), "{seen}");
}
