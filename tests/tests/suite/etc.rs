//! Part of `/etc` that a session reads: what every user may, and no secret (decision 0023).

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use callgate_tests::{Host, ProgramRunner, TestEnv, matrix, skip};
use libc::EACCES;

/// Which of the files in `list` can be opened, by the shell itself.
const OPENABLE: &str =
    r#"while IFS= read -r f; do if { : < "$f"; } 2>/dev/null; then printf '%s\n' "$f"; fi; done < "$0""#;

fn openable(run: &ProgramRunner, list: &Path) -> BTreeSet<PathBuf> {
    let ended = run.run(&["/bin/bash", "-c", OPENABLE, list.to_str().unwrap()]);
    assert_eq!(ended.status.code(), Some(if ended.stdout.is_empty() { 1 } else { 0 }), "{ended:?}");
    ended.stdout.lines().map(PathBuf::from).collect()
}

/// All regular files below a directory, by no link.
fn files_below(directory: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.map(Result::unwrap) {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            files_below(&entry.path(), found);
        } else if kind.is_file() && !entry.path().to_str().unwrap().contains('\n') {
            found.push(entry.path());
        }
    }
}

/// Every file of this host's `/etc`: what can be read inside, everyone may read and root alone may change.
#[test]
fn what_is_read_of_etc_everyone_may_read() {
    let mut all = Vec::new();
    files_below(Path::new("/etc"), &mut all);
    let list: String = all.iter().map(|path| format!("{}\n", path.display())).collect();
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let file = env.workspace_file("list", &format!("{list}\n"));
        let bare = openable(&env.bare(), Path::new(file.text()));
        let inside = openable(&env.sandbox(), Path::new(file.text()));
        assert!(inside.is_subset(&bare) && inside.len() < bare.len(), "{} of {}", inside.len(), bare.len());
        for path in &inside {
            // Another test's files may be gone by now.
            let Ok(about) = fs::metadata(path) else { continue };
            assert_eq!((about.uid(), about.mode() & 0o006), (0, 0o004), "{}", path.display());
            for above in path.ancestors().skip(1).take_while(|above| *above != Path::new("/")) {
                let Ok(about) = fs::metadata(above) else { continue };
                assert_eq!(about.mode() & 0o007, 0o005, "{}", above.display());
            }
        }
        for wanted in ["/etc/passwd", "/etc/login.defs", "/etc/profile", "/etc/bash.bashrc", "/etc/dpkg/dpkg.cfg"] {
            let wanted = Path::new(wanted);
            assert!(!bare.contains(wanted) || inside.contains(wanted), "{}", wanted.display());
        }
        for secret in ["/etc/shadow", "/etc/gshadow", "/etc/passwd-", "/etc/group-", "/etc/machine-id", "/etc/fstab"] {
            assert!(!inside.contains(Path::new(secret)), "{secret}");
        }
    });
}

/// A directory of this test's own in `/etc`, which only root can have.
struct PlantedDirectory(PathBuf);

impl PlantedDirectory {
    fn plant(env: &TestEnv) -> Option<Self> {
        // The environment's own name: other tests do the same beside this one.
        let top = Path::new("/etc").join(env.outside().parent()?.file_name()?);
        fs::create_dir(&top).ok()?;
        let planted = Self(top);
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        mode(&planted.0, 0o755);
        for (directory, bits) in [("whole", 0o755), ("mixed", 0o755), ("closed", 0o700)] {
            fs::create_dir(planted.0.join(directory)).unwrap();
            mode(&planted.0.join(directory), bits);
        }
        for (file, bits) in [
            ("whole/f", 0o644),
            ("mixed/f", 0o644),
            ("mixed/closed", 0o600),
            ("mixed/theirs", 0o644),
            ("mixed/db-password", 0o644),
            ("mixed/server.key", 0o644),
            ("closed/f", 0o644),
        ] {
            fs::write(planted.0.join(file), file).unwrap();
            mode(&planted.0.join(file), bits);
        }
        std::os::unix::fs::chown(planted.0.join("mixed/theirs"), Some(4242), None).unwrap();
        std::os::unix::fs::symlink("/etc/shadow", planted.0.join("whole/link")).unwrap();
        Some(planted)
    }

    fn at(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for PlantedDirectory {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn secrets_of_etc_cannot_be_read() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let Some(planted) = PlantedDirectory::plant(&env) else {
            return skip("root", format_args!("{target:?}: nothing can be made in /etc"));
        };
        for open in ["whole/f", "mixed/f"] {
            env.sandbox().probe(&["read", &planted.at(open)]).assert_ok();
        }
        for secret in
            ["mixed/closed", "mixed/theirs", "mixed/db-password", "mixed/server.key", "closed/f", "whole/link"]
        {
            env.sandbox().probe(&["read", &planted.at(secret)]).assert_errno(EACCES);
            // The control: root reads it, and what everyone may read others do too.
            let is_everyones = ["mixed/theirs", "mixed/db-password", "mixed/server.key"].contains(&secret);
            if target.user.uid() == 0 || is_everyones {
                env.bare().probe(&["read", &planted.at(secret)]).assert_ok();
            }
        }
        // A directory is listed whose files alone are hidden, and not one that holds a hidden directory.
        let list = |name: &str| env.sandbox().run(&["/bin/ls", &planted.at(name)]);
        for (listed, wanted) in [("whole", "f\nlink\n"), ("mixed", "closed\ndb-password\nf\nserver.key\ntheirs\n")] {
            let ended = list(listed);
            assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), wanted), "{ended:?}");
        }
        for unlisted in ["", "closed"] {
            let ended = list(unlisted);
            assert!(!ended.status.success() && ended.stdout.is_empty(), "{ended:?}");
        }
        // Nor is any of it written.
        env.sandbox().probe(&["write", &planted.at("whole/f"), "x"]).assert_errno_any(&[EACCES, libc::EROFS]);
        assert_eq!(fs::read_to_string(planted.at("whole/f")).unwrap(), "whole/f");
    });
}

/// A2: what may be listed and not read is not shown by a program that names it as its interpreter; nor is it watched, where the
/// broker judges that.
#[test]
fn a2_what_is_hidden_in_etc_is_no_program_s_interpreter() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let Some(planted) = PlantedDirectory::plant(&env) else {
            return skip("root", format_args!("{target:?}: nothing can be made in /etc"));
        };
        for (name, is_shown) in [("mixed/f", true), ("mixed/db-password", false), ("mixed/server.key", false)] {
            let tool = env.workspace_file("tool", &format!("#!{}\n", planted.at(name)));
            fs::set_permissions(&*tool, fs::Permissions::from_mode(0o755)).unwrap();
            let run = env.sandbox().read(env.workspace()).flag(&["--exec", "./tool", "--exec", "cat"]);
            let ended = run.run(&["cat", &planted.at(name)]);
            assert_eq!(ended.stdout, if is_shown { name } else { "" }, "{ended:?}");
            assert_eq!(ended.status.success(), is_shown, "{ended:?}");
            // With namespaces a watch is the kernel's to judge, by the file's mode.
            let watched = env.sandbox().probe(&["inotify", &planted.at(name)]);
            if is_shown || target.has_namespaces() {
                watched.assert_ok()
            } else {
                watched.assert_errno(EACCES)
            };
        }
    });
}

/// Settings that a list of files left out, and programs need.
#[test]
fn programs_find_their_settings_in_etc() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for line in [
            "dpkg --print-architecture",
            "apt-config dump",
            "man -w ls",
            "mvn -v",
            "openssl version -d",
            "ssh -G localhost",
        ] {
            let words = ["/bin/bash", "-c", line];
            let bare = env.bare().run(&words);
            if !bare.status.success() || line.starts_with("ssh") && !Path::new("/etc/ssh/ssh_config").is_file() {
                skip("settings-of-etc", format_args!("{target:?}: {line} does not work bare"));
                continue;
            }
            let inside = env.sandbox().run(&words);
            assert!(inside.status.success() && !inside.stdout.is_empty(), "{line}: {inside:?}");
            assert!(!inside.stderr.contains("Permission denied"), "{line}: {inside:?}");
        }
    });
}

/// Directories of this test's own in `/opt` and `/usr/local/etc`, which only root can have: a toolchain of root's, what belongs to the
/// caller, and what root keeps for itself.
struct SharedDirectories(PathBuf, PathBuf);

impl SharedDirectories {
    fn plant(env: &TestEnv) -> Option<Self> {
        let name = env.workspace().parent()?.file_name()?.to_str()?.replace("callgate-test", "callgate-suite");
        let shared = Self(Path::new("/opt").join(&name), Path::new("/usr/local/etc").join(&name));
        fs::create_dir(&shared.0).ok()?;
        fs::create_dir(&shared.1).ok()?;
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        mode(&shared.0, 0o755);
        mode(&shared.1, 0o755);
        for directory in ["tool", "tool/bin", "tool/bin/deep", "mine", "mine/bin"] {
            fs::create_dir(shared.0.join(directory)).unwrap();
            mode(&shared.0.join(directory), 0o755);
        }
        for (path, text, bits) in [
            (shared.0.join("tool/bin/tool"), "#!/bin/sh\necho it works\n", 0o755),
            (shared.0.join("tool/bin/deep/open"), "open", 0o644),
            (shared.0.join("mine/bin/tool"), "#!/bin/sh\necho it works\n", 0o755),
            (shared.0.join("mine/.env"), "KEY=mine", 0o600),
            (shared.0.join("root-only"), "KEY=root", 0o600),
            (shared.1.join("secret"), "KEY=root", 0o600),
            (shared.1.join("open"), "open", 0o644),
        ] {
            fs::write(&path, text).unwrap();
            mode(&path, bits);
        }
        let uid = env.target().user.uid();
        for theirs in ["mine", "mine/bin", "mine/bin/tool", "mine/.env"] {
            std::os::unix::fs::chown(shared.0.join(theirs), Some(uid), Some(uid)).unwrap();
        }
        if uid == 0 {
            // What is root's own is told by its mode alone.
            mode(&shared.0.join("mine"), 0o700);
        }
        Some(shared)
    }

    fn at(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn setting(&self, name: &str) -> String {
        self.1.join(name).display().to_string()
    }
}

impl Drop for SharedDirectories {
    fn drop(&mut self) {
        let _gone = (fs::remove_dir_all(&self.0), fs::remove_dir_all(&self.1));
    }
}

/// A2: of `/usr` and `/opt` a session has what root owns and everybody may read. The rest is granted by name.
#[test]
fn a2_what_is_somebody_s_own_beside_the_system_s_programs_is_not_granted() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let Some(shared) = SharedDirectories::plant(&env) else {
            return skip("root", format_args!("{target:?}: nothing can be made in /opt"));
        };
        let own = shared.at("mine/.env");
        let roots = [shared.at("root-only"), shared.setting("secret")];
        let is_root = target.user.uid() == 0;
        for secret in std::iter::once(&own).chain(&roots) {
            env.sandbox().probe(&["read", secret]).assert_errno(EACCES);
            // The control: the caller may read it, and a grant by name says so.
            if is_root || *secret == own {
                env.bare().probe(&["read", secret]).assert_ok();
                env.sandbox().read(secret).probe(&["read", secret]).assert_ok();
            }
        }
        for open in [shared.at("tool/bin/tool"), shared.at("tool/bin/deep/open"), shared.setting("open")] {
            env.sandbox().probe(&["read", &open]).assert_ok();
        }
        // A toolchain of root's works, by its path and by PATH; a person's own works where it is granted.
        let path = |directory: &str| format!("{}:/usr/bin:/bin", shared.at(directory));
        let run = |directory: &str| env.sandbox().variable("PATH", &path(directory));
        for ended in [
            run("tool/bin").run(&[&shared.at("tool/bin/tool")]),
            run("tool/bin").run(&["tool"]),
            run("mine/bin").read(shared.at("mine")).run(&["tool"]),
        ] {
            assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), "it works\n"), "{ended:?}");
        }
        // What somebody else owns takes nothing else of its directory away, and neither does a mode that opens a toolchain to all.
        let others = shared.at("moved");
        fs::write(&others, "#!/bin/sh\n").unwrap();
        std::os::unix::fs::chown(&others, Some(4321), Some(4321)).unwrap();
        fs::copy(shared.at("tool/bin/tool"), shared.at("beside")).unwrap();
        for directory in [shared.0.display().to_string(), shared.at("")] {
            let ended = env.sandbox().variable("PATH", &format!("{directory}:/usr/bin:/bin")).run(&["beside"]);
            assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), "it works\n"), "{ended:?}");
        }
        env.sandbox().probe(&["read", &others]).assert_errno(EACCES);
        for open in [shared.at("tool"), shared.at("tool/bin"), shared.at("tool/bin/tool")] {
            fs::set_permissions(open, fs::Permissions::from_mode(0o777)).unwrap();
        }
        let ended = run("tool/bin").run(&["tool"]);
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), "it works\n"), "{ended:?}");
        let grant = format!("--read {}", shared.at("mine"));
        for words in [&shared.at("mine/bin/tool"), "tool"] {
            let ended = run("mine/bin").run(&[words]);
            assert!(!ended.status.success() && ended.stdout.is_empty(), "{ended:?}");
            assert!(ended.stderr.contains(&grant), "{words} does not say {grant}: {ended:?}");
        }
    });
}
