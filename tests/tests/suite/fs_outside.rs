//! Files that no grant mentions: not by any call, name or descriptor (A2, A5, A7, A13, A15, E4).

use std::fs;
use std::path::Path;

use callgate_tests::{Host, Target, TestEnv, matrix};
use libc::{EACCES, ENOENT, EROFS, EXDEV};

/// Landlock says EACCES; in a private mount tree the path does not exist.
fn denied(target: Target) -> i32 {
    target.by_strength(ENOENT, EACCES)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A5: every call that opens, on a file outside. The same call on a file of the workspace succeeds, bare and confined.
#[test]
fn a5_every_way_of_opening_is_denied_outside() {
    let acts: &[(&str, &[&str])] = &[
        ("read", &[]),
        ("write", &["stolen"]),
        ("open-legacy", &["read"]),
        ("open-legacy", &["write"]),
        ("open-legacy", &["read-trunc"]),
        ("open-trunc", &[]),
        ("creat", &[]),
        ("truncate", &[]),
        ("open-o-path-reopen", &["read"]),
        ("open-o-path-reopen", &["write"]),
        ("fallocate", &[]),
    ];
    matrix(Host::STRENGTHS, |target| {
        for (act, rest) in acts {
            let env = TestEnv::new(target);
            let (mine, theirs) = (env.workspace_file("mine", "old"), env.file("theirs", "old"));
            let control = env.file("control", "old");
            let words = |path| [&[*act, path], *rest].concat();
            env.bare().probe(&words(control.text())).assert_ok();
            env.sandbox().probe(&words(mine.text())).assert_ok();
            env.sandbox().probe(&words(theirs.text())).assert_errno(denied(target));
            theirs.assert_contents("old");
        }
    });
}

/// A5: openat2 hides its flags behind a pointer; Landlock judges the opening whatever they are.
#[test]
fn a5_openat2_is_denied_outside() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let theirs = env.file("theirs", "old");
        for flags in ["read", "write", "trunc"] {
            let words = ["openat2", theirs.text(), flags];
            // Its mode lies behind a pointer, where no filter can read it; programs fall back to openat.
            env.sandbox().probe(&words).assert_errno(libc::ENOSYS);
            theirs.assert_contents("old");
            env.bare().probe(&words).assert_ok();
            fs::write(&theirs, "old").unwrap();
        }
    });
}

/// A5: a file handle needs no path at all, only CAP_DAC_READ_SEARCH.
#[test]
fn a5_a_file_handle_opens_nothing() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let theirs = env.file("theirs", "old");
        if target.user.uid() == 0 {
            env.bare().probe(&["open-by-handle", theirs.text()]).assert_ok();
        }
        env.sandbox().probe(&["open-by-handle", theirs.text()]).assert_errno(denied(target));
    });
}

/// A7: the same file by way of /proc/self/root.
#[test]
fn a7_proc_self_root_leads_nowhere_else() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (mine, theirs) = (env.workspace_file("mine", "old"), env.file("theirs", "old"));
        env.bare().probe(&["proc-root", theirs.text()]).assert_ok();
        // In the workspace either answer is sound: what counts is that the detour opens no more than the path.
        let detour = env.sandbox().probe(&["proc-root", mine.text()]);
        assert!(detour.is_ok() || detour.errno().is_some());
        env.sandbox().probe(&["proc-root", theirs.text()]).assert_errno(denied(target));
    });
}

/// A2: a symlink in the workspace that points outside grants nothing.
#[test]
fn a2_a_symlink_in_the_workspace_does_not_lead_outside() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (mine, theirs) = (env.workspace_file("mine", "old"), env.file("theirs", "old"));
        let (inward, outward) = (env.workspace().join("inward"), env.workspace().join("outward"));
        env.sandbox().probe(&["symlink", mine.text(), text(&inward)]).assert_ok();
        env.sandbox().probe(&["symlink", theirs.text(), text(&outward)]).assert_ok();
        env.bare().probe(&["read", text(&outward)]).assert_ok();
        env.sandbox().probe(&["read", text(&inward)]).assert_ok();
        env.sandbox().probe(&["read", text(&outward)]).assert_errno(denied(target));
        env.sandbox().probe(&["write", text(&outward), "new"]).assert_errno(denied(target));
        theirs.assert_contents("old");
    });
}

/// Names outside can be neither made nor removed nor moved, in either direction.
#[test]
fn names_outside_stay_as_they_are() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let theirs = env.file("theirs", "old");
        let new = env.outside().join("new");
        let inside = env.workspace().join("inside");
        for act in [
            &["create", text(&new)][..],
            &["mkdir", text(&new)],
            &["mkfifo", text(&new)],
            &["symlink", "/", text(&new)],
            &["unlink", theirs.text()],
            &["rename", theirs.text(), text(&new)],
            &["rename", theirs.text(), text(&inside)],
            &["link", theirs.text(), text(&inside)],
        ] {
            // A link across the border is refused as one across file systems.
            let expected = if act[0] == "link" { target.by_strength(ENOENT, EXDEV) } else { denied(target) };
            env.sandbox().probe(act).assert_errno(expected);
            assert_eq!(
                env.bare().probe(&["readdir", text(&env.outside())]).fact("names"),
                serde_json::json!(["theirs"])
            );
            assert!(fs::symlink_metadata(&inside).is_err());
        }
        for act in [
            &["create", text(&new)][..],
            &["rename", text(&new), text(&inside)],
            &["link", theirs.text(), text(&new)],
            &["unlink", text(&new)],
        ] {
            env.bare().probe(act).assert_ok();
        }
    });
}

/// A2: what lies outside cannot be listed.
#[test]
fn directories_outside_are_not_listed() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.file("secret-name", "");
        let outside = env.outside();
        env.bare().probe(&["readdir", text(&outside)]).assert_ok();
        env.sandbox().probe(&["readdir", text(&env.workspace())]).assert_ok();
        env.sandbox().probe(&["readdir", text(&outside)]).assert_errno(denied(target));
    });
}

/// A13: a device node in the writable directory would be the raw disk; FIFOs and files are fine.
#[test]
fn a13_no_device_node_in_the_workspace() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (node, fifo) = (env.workspace().join("node"), env.workspace().join("fifo"));
        if target.user.uid() == 0 {
            env.bare().probe(&["mknod", text(&node), "c", "1", "3"]).assert_ok();
            fs::remove_file(&node).unwrap();
        }
        for kind in ["c", "b"] {
            env.sandbox().probe(&["mknod", text(&node), kind, "1", "3"]).assert_errno(EACCES);
            assert!(fs::symlink_metadata(&node).is_err());
        }
        env.sandbox().probe(&["mkfifo", text(&fifo)]).assert_ok();
        env.sandbox().probe(&["fifo-open", text(&fifo)]).assert_ok();
    });
}

/// A15: truncation is denied at every Landlock ABI, also where the kernel itself cannot refuse it.
#[test]
fn a15_truncation_is_denied_at_every_abi() {
    matrix(Host::ALL, |target| {
        let env = TestEnv::new(target);
        let (mine, theirs) = (env.workspace_file("mine", "old"), env.file("theirs", "old"));
        // Not granted, and granted for reading, where O_TRUNC needs no right to write of an old Landlock.
        for (act, rest) in [
            ("truncate", &[][..]),
            ("open-trunc", &[]),
            ("open-trunc", &["ioctl-trunc"]),
            ("open-legacy", &["ioctl-trunc"]),
            ("open-legacy", &["read-trunc"]),
            ("openat2", &["read-trunc"]),
        ] {
            let words = [&[act, theirs.text()], rest].concat();
            // What a filter cannot read is absent.
            let absent = act == "openat2";
            // Nor does the filter ask which file it is for the mode in which Landlock asks for no right.
            let expected = |errno| match rest {
                _ if absent => libc::ENOSYS,
                ["ioctl-trunc"] => EACCES,
                _ => errno,
            };
            env.sandbox().probe(&words).assert_errno(expected(denied(target)));
            let readable = target.by_strength(EROFS, EACCES);
            env.sandbox().read(&theirs).probe(&words).assert_errno(expected(readable));
            theirs.assert_contents("old");
        }
        env.sandbox().probe(&["truncate", mine.text()]).assert_ok();
        mine.assert_contents("");
        for words in [&["truncate", theirs.text()][..], &["open-trunc", theirs.text(), "ioctl-trunc"]] {
            fs::write(&theirs, "old").unwrap();
            env.bare().probe(words).assert_ok();
            theirs.assert_contents("");
        }
    });
}

/// E4: nothing that a call could write decides about later calls: state directories outside are closed, and a read-only
/// grant stays one.
#[test]
fn e4_a_read_grant_is_no_write_grant() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let state = env.file("policy.toml", "old");
        let sandbox = || env.sandbox().read(&state);
        sandbox().probe(&["read", state.text()]).assert_ok();
        sandbox().probe(&["write", state.text(), "new"]).assert_errno(target.by_strength(EROFS, EACCES));
        sandbox().probe(&["unlink", state.text()]).assert_errno(target.by_strength(libc::EBUSY, EACCES));
        state.assert_contents("old");
        env.sandbox().write(&state).probe(&["write", state.text(), "new"]).assert_ok();
        state.assert_contents("new");
    });
}
