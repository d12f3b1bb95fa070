//! A grant holds for what its path leads to, and for nothing that its spelling has beside it: by a link into another part of the tree, and
//! of parts of the system whose names a call exchanges while a session is opened.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use callgate_tests::{Binaries, Host, ProgramRunner, TestEnv, User, eventually, matrix, matrix_as};
use libc::{EACCES, ENOENT, EROFS};

use crate::led_astray::exchange;

/// A tree in the directory for temporary files; a link of a person's to it, and the workspace, in another directory of the root.
struct Linked {
    env: TestEnv,
    elsewhere: tempfile::TempDir,
}

impl Linked {
    fn new(env: TestEnv) -> Self {
        let real = env.outside().to_owned();
        Self::to(env, &real)
    }

    /// The link leads to this tree.
    fn to(env: TestEnv, real: &Path) -> Self {
        let elsewhere = tempfile::tempdir_in("/var/tmp").expect("a directory in another directory of the root");
        fs::set_permissions(elsewhere.path(), fs::Permissions::from_mode(0o755)).unwrap();
        symlink(real, elsewhere.path().join("link")).unwrap();
        fs::create_dir(elsewhere.path().join("workspace")).unwrap();
        env.give(&elsewhere.path().join("workspace"));
        Self { env, elsewhere }
    }

    /// A session with these grants, in which `LINK` is the link and `REAL` is what it leads to.
    fn granting(&self, grants: &str) -> ProgramRunner {
        let (link, real) = (self.elsewhere.path().join("link"), self.env.outside());
        let grants = grants.replace("LINK", &link.display().to_string()).replace("REAL", &real.display().to_string());
        let probe = Binaries::of_this_build().probe().display().to_string();
        let text = format!("[requires.fs]\n{grants}\n[[requires.shell]]\ncmd = \"*\"\n").replace("PROBE", &probe);
        let manifest = self.env.file("manifest.toml", &text);
        let workspace = self.elsewhere.path().join("workspace");
        self.env.sandbox().flag(&["--manifest", manifest.text(), "-C", workspace.to_str().unwrap()])
    }
}

/// A8: one file of a directory is granted, by a link, and nothing beside it is read.
#[test]
fn a8_a_file_that_is_granted_by_a_link_shows_nothing_beside_it() {
    matrix(Host::STRENGTHS, |target| {
        let place = Linked::new(TestEnv::new(target));
        let (file, beside) = (place.env.file("state.json", "{}\n"), place.env.file("key", "precious\n"));
        for grants in ["write = [\"LINK/state.json\"]", "write = [\"REAL/state.json\"]"] {
            let run = place.granting(&format!("read = [\"PROBE\", \"{{workspace}}/**\"]\n{grants}"));
            run.probe(&["read", file.text()]).assert_ok();
            run.probe(&["read", beside.text()]).assert_errno_any(&[EACCES, ENOENT]);
            run.probe(&["write", beside.text()]).assert_errno_any(&[EACCES, ENOENT]);
            assert_eq!(fs::read_to_string(&*beside).unwrap(), "precious\n", "{grants}");
        }
        place.env.bare().probe(&["read", beside.text()]).assert_ok();
    });
}

/// A8, D4: a file of a directory in the host's `/dev/shm`, or that directory itself, is granted by a link, and no file beside it is read. Where the
/// whole tree is granted, that has its place in a `/dev/shm` of the session's own.
#[test]
fn a8_d4_what_is_granted_in_shared_memory_by_a_link_shows_nothing_beside_it() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let real = tempfile::tempdir_in("/dev/shm").unwrap();
        fs::set_permissions(real.path(), fs::Permissions::from_mode(0o755)).unwrap();
        env.give(real.path());
        let [file, beside] = [("state.json", "{}\n"), ("key", "precious\n")].map(|(name, text)| {
            fs::write(real.path().join(name), text).unwrap();
            env.give(&real.path().join(name));
            real.path().join(name).to_str().unwrap().to_owned()
        });
        let place = Linked::to(env, real.path());
        let granting = |grants: &str| place.granting(&format!("read = [\"PROBE\", \"{{workspace}}/**\", {grants}"));
        for grants in ["\"LINK/state.json\"]", "\"LINK\"]", "]\nwrite = [\"LINK/state.json\"]"] {
            let run = granting(grants);
            if grants.contains("state") {
                run.probe(&["read", &file]).assert_ok();
            }
            run.probe(&["read", &beside]).assert_errno_any(&[EACCES, ENOENT]);
            run.probe(&["write", &beside]).assert_errno_any(&[EACCES, ENOENT, EROFS]);
            assert_eq!(fs::read_to_string(&beside).unwrap(), "precious\n", "{grants}");
        }
        let whole = granting("\"LINK/**\"]");
        whole.probe(&["read", &beside]).assert_ok();
        whole.probe(&["shm-posix", "callgate-linked"]).assert_ok();
    });
}

/// A grant by a link of the system's own directories to another part of the host is mounted where it leads.
#[test]
fn a_link_in_the_system_leads_to_what_is_granted() {
    matrix_as(User::Root, Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (opt, app) = (env.outside().join("opt"), env.outside().join("app"));
        for directory in [&opt, &app] {
            fs::create_dir(directory).unwrap();
            fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::write(app.join("file"), "of the app\n").unwrap();
        fs::write(env.outside().join("beside"), "precious\n").unwrap();
        symlink(&app, opt.join("app")).unwrap();
        let manifest = env.file(
            "manifest.toml",
            "[requires.fs]\nread = [\"{workspace}/**\", \"/opt/app/**\"]\n[[requires.shell]]\ncmd = \"*\"\n",
        );
        let binary = Binaries::of_this_build().callgate().display().to_string();
        let read = |path: &str| {
            let words = [&binary, "--log", "off", "run", "--manifest", manifest.text(), "--", "cat", path];
            env.weakened().mounted(&opt, Path::new("/opt")).run(&words)
        };
        let granted = read("/opt/app/file");
        assert_eq!(granted.stdout, "of the app\n", "{granted:?}");
        assert_eq!(read("/opt/app/../beside").stdout, "");
    });
}

/// A6: of a tree that is granted by a link, or by two names, no protected name is left to the kernel. It is opened in a race with a name
/// that is the kernel's to judge.
#[test]
fn a6_a_grant_by_a_link_does_not_release_protected_names() {
    matrix(Host::STRENGTHS, |target| {
        let place = Linked::new(TestEnv::new(target));
        let kept = place.env.file(".env", "A=b\n");
        // As long as the other name, so that few are torn.
        let absent = format!("/proc/self/{}no", "/".repeat(kept.text().len() - "/proc/self/no".len()));
        let race = ["open-race", &absent, kept.text(), "20000"];
        for grants in [
            "read = [\"PROBE\"]\nwrite = [\"LINK/**\", \"{workspace}/**\"]",
            "read = [\"PROBE\", \"LINK/**\"]\nwrite = [\"REAL/**\", \"{workspace}/**\"]",
        ] {
            let raced = place.granting(grants).probe(&race);
            raced.assert_ok();
            assert!(raced.fact("refused").as_u64() > Some(0), "{grants}: {raced}");
            assert_eq!(fs::read_to_string(&*kept).unwrap(), "A=b\n", "{grants}: {raced}");
        }
        eventually("the control loses the race", || {
            place.env.bare().probe(&race).assert_ok();
            fs::read_to_string(&*kept).unwrap().is_empty()
        });
    });
}

/// A10: what the walk of the system found is granted, and not what has its name when the session is confined. A call of root's works in
/// `/opt/app`, and exchanges a directory for a link while other sessions are opened.
#[test]
fn a10_a_part_of_the_system_is_what_the_walk_found() {
    matrix_as(User::Root, Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let opt = env.outside().join("opt");
        let (app, private) = (opt.join("app"), opt.join("private"));
        for directory in [&opt, &app, &app.join("lib"), &private] {
            fs::create_dir_all(directory).unwrap();
            chown(directory, Some(0), Some(0)).unwrap();
            fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let file = |path: PathBuf, mode: u32| {
            fs::write(&path, "precious\n").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        file(app.join("lib/open"), 0o644);
        file(app.join("closed"), 0o600); // so that the parts are granted one by one
        file(private.join("key"), 0o600);
        symlink("/opt/private", app.join("link")).unwrap();
        let binary = Binaries::of_this_build().callgate().display().to_string();
        let opened = |path: &str| {
            let words = [&binary, "--log", "off", "run", "--", "cat", path];
            env.weakened().mounted(&opt, Path::new("/opt")).run(&words)
        };
        assert_eq!(opened("/opt/app/lib/open").stdout, "precious\n", "the control");
        let [lib, link] = ["lib", "link"].map(|name| CString::new(app.join(name).into_os_string().into_vec()).unwrap());
        let over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !over.load(Ordering::Relaxed) && exchange(&lib, &link) {
                    std::hint::spin_loop();
                }
            });
            let read: Vec<String> = (0..20).map(|_| opened("/opt/private/key").stdout).collect();
            over.store(true, Ordering::Relaxed);
            assert_eq!(read.concat(), "");
        });
    });
}
