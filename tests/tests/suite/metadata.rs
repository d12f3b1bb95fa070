//! Metadata of files that may be read but not written: Landlock does not cover it (A6, A12).

use std::fs;
use std::os::unix::fs::PermissionsExt;

use callgate_tests::{Host, Target, TestEnv, eventually, matrix, skip};
use libc::{EACCES, ENOENT, ENOSYS, ENOTTY, EOPNOTSUPP, EPERM, EROFS};

/// Each act and its arguments after the path.
const ACTS: &[(&str, &[&str])] = &[
    ("chmod", &["666"]),
    ("fchmodat", &["666"]),
    ("fchmodat2", &["666"]),
    ("fchmod", &["666"]),
    ("chown", &[]),
    ("lchown", &[]),
    ("fchownat", &[]),
    ("fchown", &[]),
    ("utimens", &[]),
    ("futimens", &[]),
    ("utime-legacy", &[]),
    ("setxattr", &[]),
    ("lsetxattr", &[]),
    ("fsetxattr", &[]),
    ("setxattrat", &[]),
    ("removexattr", &[]),
    ("fremovexattr", &[]),
    ("removexattrat", &[]),
    ("file-setattr", &[]),
    ("fs-ioctl", &[]),
];

/// Calls that a filter may not know, and on whose ENOSYS every libc falls back to an older one.
const RECENT: &[&str] = &["fchmodat2", "setxattrat", "removexattrat", "file-setattr"];

/// Errno of the broker for a path outside: EACCES, or that it does not exist or lies on a read-only mount. Calls that
/// open the file first fail there where it may not even be read.
fn denied(target: Target, act: &str, readable: bool) -> i32 {
    match act {
        act if RECENT.contains(&act) => ENOSYS,
        "fs-ioctl" if readable => EPERM,
        _ if readable => target.by_strength(EROFS, EACCES),
        _ => target.by_strength(ENOENT, EACCES),
    }
}

/// The attribute that the removing acts remove.
fn prepare(env: &TestEnv, act: &str, path: &str) {
    if act.contains("remove") {
        env.bare().probe(&["setxattr", path]).assert_ok();
    }
}

/// True if the kernel and the file system know the act at all.
fn is_known(errno: Option<i32>) -> bool {
    !matches!(errno, Some(ENOSYS | EOPNOTSUPP | ENOTTY))
}

/// A12: on a file that is granted for reading.
#[test]
fn a12_metadata_of_a_readable_file_cannot_be_written() {
    cannot_be_written(true, |env, path| env.sandbox().read(path));
}

/// A12: on a file that no grant mentions.
#[test]
fn a12_metadata_outside_cannot_be_written() {
    cannot_be_written(false, |env, _path| env.sandbox());
}

fn cannot_be_written(readable: bool, sandbox: impl Fn(&TestEnv, &std::path::Path) -> callgate_tests::ProgramRunner) {
    matrix(Host::STRENGTHS, |target| {
        for (act, rest) in ACTS {
            let env = TestEnv::new(target);
            let (control, theirs) = (env.file("control", "old"), env.file("theirs", "old"));
            prepare(&env, act, control.text());
            prepare(&env, act, theirs.text());
            let words = |path| [&[*act, path], *rest].concat();
            let bare = env.bare().probe(&words(control.text()));
            if !is_known(bare.errno()) {
                skip("unknown-call", format_args!("{act}: {bare}"));
                continue;
            }
            bare.assert_ok();
            let before = theirs.metadata();
            let answer = sandbox(&env, &theirs).probe(&words(theirs.text()));
            answer.assert_errno(denied(target, act, readable));
            assert_eq!(theirs.metadata(), before, "{act}");
        }
    });
}

/// These acts in the workspace: tools need them (tar, git, cargo), so they must work where writing is granted.
#[test]
fn metadata_in_the_workspace_can_be_written() {
    matrix(Host::STRENGTHS, |target| {
        for (act, rest) in ACTS {
            let env = TestEnv::new(target);
            let mine = env.workspace_file("mine", "old");
            prepare(&env, act, mine.text());
            let words = [&[*act, mine.text()], *rest].concat();
            let answer = env.sandbox().probe(&words);
            // Flags of inodes are no tool's need; the recent calls' absence sends every libc to the older ones.
            match *act {
                "fs-ioctl" => answer.assert_errno(EPERM),
                act if RECENT.contains(&act) => answer.assert_errno(ENOSYS),
                _ => answer.assert_ok(),
            };
        }
    });
}

/// A6: threads exchange the name while chmod runs. Whoever judges the name and then lets the kernel read it again loses.
#[test]
fn a6_swapping_the_name_during_chmod_never_reaches_outside() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        // A torn name is mostly no file at all, which the race counts and passes over.
        let good = env.workspace_file("x", "");
        let bad = env.file("f", "old");
        let words = ["metadata-race", good.text(), bad.text(), "3000"];
        let mode = || fs::metadata(&bad).unwrap().permissions().mode() & 0o777;
        let race = env.sandbox().probe(&words);
        race.assert_ok();
        assert!(race.fact("done").as_u64() > Some(0), "the name inside must work: {race}");
        assert_eq!(mode(), 0o644, "{race}");
        eventually("the control loses the race", || {
            env.bare().probe(&words).assert_ok();
            mode() == 0o666
        });
    });
}

/// A number that is no descriptor is said to be none, whichever it is, and so is one that only names a file (O_PATH), but where
/// an empty path stands for it; and the broker goes on answering.
#[test]
fn c16_no_descriptor_is_no_descriptor() {
    let script = r#"
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
own = [os.open("file", flags) for flags in (os.O_CREAT | os.O_WRONLY, os.O_RDONLY, os.O_PATH)]
for fd in (-1, -5, -100, -(2**31), 999, 2**31 - 1, *own):
    for call in (
        lambda: libc.fchmod(fd, 0o600), lambda: libc.fchown(fd, os.getuid(), -1), lambda: libc.futimens(fd, None),
        # Linux 6.13 takes -100 for the working directory here.
        lambda: fd == -100 or libc.fsetxattr(fd, b"user.x", b"x", 1, 0), lambda: libc.fremovexattr(fd, b"user.x"),
        lambda: libc.fchownat(fd, b"", os.getuid(), -1, 0x1000), lambda: libc.utimensat(fd, b"", None, 0x1000),
    ):
        ctypes.set_errno(0)
        print(call(), errno.errorcode.get(ctypes.get_errno(), ""), end=" ")
"#;
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let [bare, inside] = [env.bare(), env.sandbox()].map(|run| run.run(&["/usr/bin/python3", "-c", script]));
        assert!(bare.stdout.contains("-1 EBADF") && bare.stdout.contains("0  0 "), "the control: {bare:?}");
        assert_eq!(inside.stdout, bare.stdout, "{inside:?}");
    });
}
