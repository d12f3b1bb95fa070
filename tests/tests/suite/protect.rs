//! Names that are kept inside the workspace, which may be written (A1, A3, A4, A9, A16 to A19). No stub is left in it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use callgate_tests::{Binaries, Host, Target, TestEnv, User, eventually, matrix, matrix_as};
use libc::{EACCES, EBUSY, ENOENT, EXDEV};
use serde_json::{Value, json};

/// Everything below a directory but access times: names, kinds, contents, modes, link counts.
pub(crate) fn picture(top: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut pending = vec![top.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let about = fs::symlink_metadata(&path).unwrap();
            let held = if about.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
            let (mode, modified) = (about.mode(), if about.is_dir() { 0 } else { about.mtime_nsec() });
            all.push(format!("{} {mode:o} {modified} {} {held:?}", path.display(), about.nlink()));
            if about.is_dir() {
                pending.push(path);
            }
        }
    }
    all.sort();
    all
}

fn git(env: &TestEnv, line: &str) {
    let name = "git -c user.name=a -c user.email=a@b.c";
    let line = line.replace("git ", &format!("{name} "));
    let ended = env.bare().run(&["/bin/sh", "-c", &line]);
    assert!(ended.status.success(), "{line}: {ended:?}");
}

/// A workspace with a repository and some kept names.
fn furnished(target: Target) -> TestEnv {
    let env = TestEnv::new(target);
    git(&env, "git init -q -b main . && echo x > file && git add . && git commit -q -m one");
    env.workspace_file(".env", "old");
    for (directory, file) in [(".vscode", "settings.json"), ("sub", ".npmrc"), (".git/hooks", "pre-push")] {
        let directory = env.workspace().join(directory);
        fs::create_dir_all(&directory).unwrap();
        env.give(&directory);
        env.file_at(directory.join(file), "old");
    }
    env
}

fn text(env: &TestEnv, name: &str) -> String {
    env.workspace().join(name).display().to_string()
}

/// Acts on kept names, each with the same act on an ordinary name. `K` and `O` stand for the two.
fn refused(kept: &str, ordinary: &str, acts: &[&[&str]]) {
    matrix(Host::STRENGTHS, |target| {
        for act in acts {
            let env = furnished(target);
            let words = |name: &str| -> Vec<String> {
                act.iter()
                    .map(|word| match *word {
                        "K" => text(&env, name),
                        word if word.starts_with('/') => text(&env, &word[1..]),
                        word => word.to_owned(),
                    })
                    .collect()
            };
            let before = picture(&env.workspace());
            let words_of = words(kept);
            let denied = env.sandbox().probe(&words_of.iter().map(String::as_str).collect::<Vec<_>>());
            denied.assert_errno(EACCES);
            assert_eq!(picture(&env.workspace()), before, "{act:?}");
            let words_of = words(ordinary);
            env.sandbox().probe(&words_of.iter().map(String::as_str).collect::<Vec<_>>()).assert_ok();
            assert_ne!(picture(&env.workspace()), before, "the control changed nothing: {act:?}");
        }
    });
}

/// A1: a name that does not exist yet, in each way in which one can be made.
#[test]
fn a1_a_kept_name_cannot_be_made() {
    for (kept, ordinary) in [(".bashrc", "bashrc"), ("sub/.mcp.json", "sub/mcp.json")] {
        refused(
            kept,
            ordinary,
            &[
                &["create", "K"],
                &["creat", "K"],
                &["mkdir", "K"],
                &["mkfifo", "K"],
                &["rename", "/file", "K"],
                &["link", "/file", "K"],
                &["symlink", "file", "K"],
            ],
        );
    }
}

/// A1: what it could be made in cannot be made either, or moved there.
#[test]
fn a1_nor_can_what_it_lies_in() {
    refused(".codex", "codex", &[&["mkdir", "K"], &["rename", "/.git/refs", "K"]]);
}

/// A9: another spelling is the name.
#[test]
fn a9_in_any_spelling() {
    for kept in [".BashRC", ".cLaude", ".V\u{17f}code", ".vs\u{200c}code"] {
        refused(kept, "x", &[&["create", "K"], &["mkdir", "K"]]);
    }
}

/// The ordinary ways to change a file that is there.
#[test]
fn a19_a_kept_file_cannot_be_changed() {
    refused(
        ".env",
        "file",
        &[
            &["write", "K", "new"],
            &["open-trunc", "K"],
            &["open-legacy", "K", "read-trunc"],
            &["truncate", "K"],
            &["unlink", "K"],
            &["chmod", "K", "600"],
            &["fchmod", "K", "600"],
            &["utimens", "K"],
            &["futimens", "K"],
            &["rename", "K", "/elsewhere"],
        ],
    );
}

/// A15: the access mode in which Landlock asks for no right empties no kept file, nor any other.
#[test]
fn a15_a_kept_file_is_not_emptied_by_the_mode_for_ioctl_alone() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target);
        let before = picture(&env.workspace());
        for name in [".env", ".git/config", ".vscode/settings.json", "file"] {
            for act in ["open-legacy", "open-trunc"] {
                // The second is a path that the broker leaves to the kernel.
                for path in [text(&env, name), format!("/proc/self/root{}", text(&env, name))] {
                    env.sandbox().probe(&[act, &path, "ioctl-trunc"]).assert_errno(EACCES);
                }
            }
        }
        assert_eq!(picture(&env.workspace()), before);
        for act in ["open-legacy", "open-trunc"] {
            fs::write(text(&env, ".env"), "old").unwrap();
            env.bare().probe(&[act, &text(&env, ".env"), "ioctl-trunc"]).assert_ok();
            assert_eq!(fs::read_to_string(text(&env, ".env")).unwrap(), "", "the control: {act}");
        }
    });
}

/// A3: another name of the file is the file, whether it was there before or is to be made.
#[test]
fn a3_hard_links() {
    refused(".env", "file", &[&["link", "K", "/alias"]]);
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target);
        let (mine, theirs) = (text(&env, "mine"), text(&env, "alias"));
        fs::hard_link(text(&env, ".env"), &theirs).unwrap();
        fs::hard_link(text(&env, "file"), &mine).unwrap();
        let before = picture(&env.workspace());
        for act in [&["write", &theirs, "new"][..], &["truncate", &theirs], &["chmod", &theirs, "666"]] {
            env.sandbox().probe(act).assert_errno(EACCES);
        }
        assert_eq!(picture(&env.workspace()), before);
        env.sandbox().probe(&["write", &mine, "new"]).assert_ok();
        env.sandbox().probe(&["chmod", &mine, "600"]).assert_ok();
    });
}

/// A6: threads exchange the name while it is truncated, by openings of every kind and by truncate(2). Where the broker writes
/// both names, and where it leaves one of them to the kernel.
#[test]
fn a6_swapping_the_name_never_truncates_a_kept_file() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target);
        let kept = text(&env, ".env");
        let held = fs::read_to_string(&kept).unwrap();
        assert!(!held.is_empty());
        fs::create_dir(text(&env, "control")).unwrap();
        env.give(&env.workspace().join("control"));
        // Beside a workspace in /tmp, the broker is TMPDIR's writer too; a /dev/shm of the session's own is the kernel's.
        let shm = (target.host == Host::Namespaces).then(|| "/dev/shm".to_owned());
        for place in [text(&env, ""), "TMPDIR".to_owned()].into_iter().chain(shm) {
            let race = env.sandbox().probe(&["truncate-race", &place, &kept, "30000"]);
            race.assert_ok();
            assert!(race.fact("done").as_u64() > Some(0), "the other name must work: {race}");
            assert_eq!(fs::read_to_string(&kept).unwrap(), held, "{race}");
        }
        eventually("the control loses the race", || {
            env.bare().probe(&["truncate-race", &text(&env, "control"), &kept, "30000"]).assert_ok();
            fs::read_to_string(&kept).unwrap().is_empty()
        });
    });
}

/// A2, A4: a link to it, and a descriptor of it, lead to it.
#[test]
fn a2_links_and_descriptors_lead_to_the_name() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target);
        for (name, to) in [("link", ".env"), ("dangling", ".bashrc"), ("directory", ".vscode"), ("fine", "file")] {
            env.sandbox().probe(&["symlink", to, &text(&env, name)]).assert_ok();
        }
        let before = picture(&env.workspace());
        for name in ["link", "directory/settings.json"] {
            env.sandbox().probe(&["write", &text(&env, name), "new"]).assert_errno(EACCES);
        }
        env.sandbox().probe(&["open-legacy", &text(&env, "dangling"), "create"]).assert_errno(EACCES);
        env.sandbox().probe(&["create", &text(&env, "directory/x")]).assert_errno(EACCES);
        for flags in ["write", "read-trunc"] {
            env.sandbox().probe(&["open-o-path-reopen", &text(&env, ".env"), flags]).assert_errno(EACCES);
        }
        // What only reads is Landlock's to judge, and O_TRUNC with it the broker's alone, by whatever way.
        let by_root = format!("/proc/self/root{}", text(&env, ".env"));
        env.sandbox().probe(&["open-legacy", &by_root, "read-trunc"]).assert_errno(EACCES);
        assert_eq!(picture(&env.workspace()), before);
        env.sandbox().probe(&["open-o-path-reopen", &text(&env, "file"), "write"]).assert_ok();
        env.sandbox().probe(&["write", &text(&env, "fine"), "new"]).assert_ok();
        assert_eq!(fs::read_to_string(text(&env, "file")).unwrap(), "new");
        // A number that the broker has not.
        for by in ["/dev/fd", "/proc/self/fd", "/proc/thread-self/fd"] {
            let script = format!("exec 200>>file && echo {by} > {by}/200");
            let ran = env.sandbox().run(&["/bin/bash", "-c", &script]);
            assert_eq!(fs::read_to_string(text(&env, "file")).unwrap(), format!("{by}\n"), "{ran:?}");
        }
    });
}

/// A2: links that dangle, one after another, from where the broker is not the writer to where it is. A file is made where
/// they lead, if one may be made there.
#[test]
fn a2_a_link_from_elsewhere_leads_to_a_name_that_is_not_there() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target);
        // Beside a workspace in /tmp, the broker is TMPDIR's writer too; a /dev/shm of the session's own is the kernel's.
        let shm = (target.host == Host::Namespaces).then_some("/dev/shm");
        for place in ["$TMPDIR"].into_iter().chain(shm) {
            for (name, made) in [("new", true), (".bashrc", false)] {
                let lead = format!("d=$(mktemp -d -p {place}) && ln -s l $d/k && ln -s \"$1/{name}\" $d/l");
                let script = format!("{lead} && echo text > $d/k; cat \"$1/{name}\"; rm -f \"$1/new\"");
                let ran = env.sandbox().run(&["/bin/sh", "-c", &script, "sh", &text(&env, "")]);
                assert_eq!(ran.stdout == "text\n", made, "{place}, {name}: {ran:?}");
                assert!(made || ran.stderr.contains("/k: Permission denied"), "{ran:?}");
                assert!(!fs::exists(text(&env, name)).unwrap(), "{name}");
            }
        }
    });
}

/// A6, A7: what the broker leaves to the kernel (a path that means another thing to each process), Landlock refuses. The
/// control is the broker's own act on the same file.
#[test]
fn a7_what_the_broker_does_not_judge_the_kernel_refuses() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target);
        let before = picture(&env.workspace());
        let script = "for f in cwd root; do cd \"$1\"; p=/proc/self/$f; [ $f = root ] && p=$p$1; \
                      echo new > $p/.env; echo new > $p/.bashrc; echo new > $p/file; mkdir $p/.vscode/x; rm $p/.env; \
                      mv $p/.env $p/env; ln $p/.env $p/alias; done; true";
        env.sandbox().run(&["/bin/sh", "-c", script, "sh", &env.workspace().display().to_string()]);
        assert_eq!(picture(&env.workspace()), before);
        env.sandbox().probe(&["write", &text(&env, "file"), "new"]).assert_ok();
        let bare = format!("cd {}; echo new > /proc/self/cwd/.env", env.workspace().display());
        assert!(env.bare().run(&["/bin/sh", "-c", &bare]).status.success());
        assert_eq!(fs::read_to_string(text(&env, ".env")).unwrap(), "new\n");
    });
}

/// A4: neither the name nor what it lies in is moved, and nothing takes the place of either.
#[test]
fn a4_neither_the_name_nor_its_directories_are_moved() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target);
        for name in ["a", "b"] {
            fs::create_dir(env.workspace().join(name)).unwrap();
            env.give(&env.workspace().join(name));
        }
        let before = picture(&env.workspace());
        for (act, from, to) in [
            ("rename", ".env", "env"),
            ("rename", ".vscode", "vscode"),
            ("rename", ".git", "git"),
            ("rename", ".git", ".GIT"),
            ("rename", "sub", "sub2"),
            ("rename", ".git/hooks", ".git/hooks2"),
            ("rename", "a", ".git/hooks"),
            ("rename", "a", ".idea"),
            ("rename-exchange", "a", ".git"),
            ("rename-exchange", "sub", "a"),
            ("rename-exchange", "file", ".env"),
        ] {
            let answer = env.sandbox().probe(&[act, &text(&env, from), &text(&env, to)]);
            answer.assert_errno(EACCES);
            assert_eq!(picture(&env.workspace()), before, "{act} {from} {to}");
        }
        env.sandbox().probe(&["rename", &text(&env, "a"), &text(&env, "c")]).assert_ok();
        env.sandbox().probe(&["rename-exchange", &text(&env, "b"), &text(&env, "c")]).assert_ok();
        env.sandbox().probe(&["rename", &text(&env, "c"), &text(&env, "sub/c")]).assert_ok();
        env.sandbox().probe(&["rename", &text(&env, "gone"), &text(&env, ".env")]).assert_errno(ENOENT);
    });
}

/// A4: nothing moves to where other names are kept than in the place that it comes from, as if that were another file system:
/// another session might fill a directory meanwhile, or put one in a file's place. Programs copy then, name by name.
#[test]
fn a4_nothing_moves_to_where_other_names_are_kept() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target);
        for name in ["node_modules", "node_modules/d", "node_modules/e", "target", "plain", "deep", "deep/er"] {
            fs::create_dir_all(env.workspace().join(name)).unwrap();
            env.give(&env.workspace().join(name));
        }
        for name in ["node_modules/f", "node_modules/d/f", "plain/f"] {
            env.workspace_file(name, "old");
        }
        std::os::unix::fs::symlink("f", env.workspace().join("node_modules/l")).unwrap();
        let before = picture(&env.workspace());
        for (act, from, to) in [
            ("rename", "node_modules/f", "f"),
            ("rename", "node_modules/l", "l"),
            ("rename", "node_modules/d", "d"),
            ("rename", "node_modules", "modules"),
            ("rename", "plain", ".config"),
            ("rename", "plain", ".git/worktrees"),
            // In what has directories somebody outside may be making anything, while it is looked at.
            ("rename", "deep", "target/deep"),
            // So they may in what no call has made.
            ("rename", "plain", "target/plain"),
            ("rename", "plain", "sub/target"),
            ("rename", "deep", "node_modules/deep"),
            ("rename", "file", ".github"),
            ("rename", "file", "x.git"),
            ("rename-exchange", "node_modules/f", "file"),
            ("rename-exchange", "node_modules/d", "plain"),
            ("rename-exchange", "plain", "node_modules/f"),
        ] {
            let answer = env.sandbox().probe(&[act, &text(&env, from), &text(&env, to)]);
            answer.assert_errno(EXDEV);
            assert_eq!(picture(&env.workspace()), before, "{act} {from} {to}");
        }
        for (act, from, to) in [
            ("rename", "node_modules/d", "node_modules/e"),
            ("rename", "node_modules/e", "node_modules/target"),
            ("rename-exchange", "node_modules/target", "node_modules/f"),
            ("rename", "plain/f", "f"),
            ("rename", "plain", "sub/plain"),
            ("rename", "f", ".git/f"),
            ("rename", ".git/f", "target/f"),
        ] {
            env.sandbox().probe(&[act, &text(&env, from), &text(&env, to)]).assert_ok();
        }
        // Where nothing is kept, a directory that the session has made comes, if no others are in it: so cargo makes `target`.
        let script = r#"mkdir made && echo x > made/f && "$0" rename made target/made && cat target/made/f &&
                        mkdir other && rmdir other && "$0" rename sub/plain target/plain"#;
        let probe = Binaries::of_this_build().probe().display().to_string();
        let ended = env.sandbox().run(&["/bin/sh", "-c", script, &probe]);
        assert!(ended.stdout.contains("x\n") && ended.stdout.contains("EXDEV"), "{ended:?}");
        assert!(env.workspace().join("sub/plain").is_dir() && !env.workspace().join("target/plain").exists());
        // What programs make of it.
        let script = "mkdir -p node_modules/x/.vscode && echo x > node_modules/x/f && echo x > node_modules/x/.vscode/f; \
                      mv node_modules/x x; cat x/f; ls -A x; mv target/made p && ls target && mv sub/plain target/p && ls target";
        let ended = env.sandbox().run(&["/bin/sh", "-c", script]);
        assert_eq!(ended.stdout, "x\nf\nf\nf\np\n", "{ended:?}");
        // A file that is granted by its name is replaced as before.
        let script = "echo new > n && mv n .env && mv .env n && mv n .env && cat .env";
        let ended = env.sandbox().write(env.workspace()).write(text(&env, ".env")).run(&["/bin/sh", "-c", script]);
        assert_eq!(ended.stdout, "new\n", "{ended:?}");
    });
}

/// A1: no link leads into a directory in which nothing is protected by name: below such a link anything could be. One that has
/// such a name itself may lead anywhere.
#[test]
fn a1_no_link_leads_to_where_no_names_are_kept() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target);
        let script = |line: &str| env.sandbox().run(&["/bin/sh", "-c", line]);
        let made = script(
            "mkdir -p node_modules/app/.vscode target/x sub/d && ln -s app node_modules/l && cd node_modules && ln -s ../target/x y",
        );
        assert!(made.status.success(), "{made:?}");
        let before = picture(&env.workspace());
        for to in ["node_modules/app", "./sub/../node_modules/app", "target", "Target/x", "sub/../TARGET/x"] {
            for name in ["app", "sub/app"] {
                env.sandbox().probe(&["symlink", to, &text(&env, name)]).assert_errno(EACCES);
            }
        }
        let whole = text(&env, "node_modules/app");
        for root in ["", "/proc/self/root", "/usr/.."] {
            env.sandbox().probe(&["symlink", &format!("{root}{whole}"), &text(&env, "app")]).assert_errno(EACCES);
        }
        // Nor to where names are a call's own as long as that lives.
        for to in [
            "/proc/1/cwd",
            "/proc",
            "../r/proc/23/fd/4",
            "/proc/self/../1/cwd",
            "/proc/self/task",
            "/dev/fd/..",
            "/dev/fd/../../1/cwd",
            &format!("/tmp/callgate-{}/tmp", "0a".repeat(16)),
        ] {
            env.sandbox().probe(&["symlink", to, &text(&env, "app")]).assert_errno(EACCES);
        }
        // One of those that may be there is not moved or linked to here.
        env.sandbox().probe(&["rename", &text(&env, "node_modules/y"), &text(&env, "y")]).assert_errno(EXDEV);
        env.sandbox().probe(&["link", &text(&env, "node_modules/y"), &text(&env, "y")]).assert_errno(EACCES);
        assert_eq!(picture(&env.workspace()), before);
        let told = script("ln -s target/x app");
        assert!(told.stderr.contains("it leads to where names are not protected"), "{told:?}");
        // The controls: outside of what is granted, by such a name, and any other link.
        let fine = script(
            "ln -s /usr/lib/node_modules/npm a && ln -s ../node_modules sub/node_modules && ln -s d sub/e &&
                    ln -s /proc/self/fd/1 out && ln -s /proc/mounts m && ln -s proc p && ln -P sub/e sub/g",
        );
        assert!(fine.status.success(), "{fine:?}");
        // By a second name another session could have put another in its place: it is one of its own, that says the same.
        let inode = |name: &str| fs::symlink_metadata(env.workspace().join(name)).unwrap().ino();
        assert_eq!(fs::read_link(env.workspace().join("sub/g")).unwrap(), Path::new("d"));
        assert_ne!(inode("sub/g"), inode("sub/e"));
    });
}

/// A part of the workspace, and a protected name in it.
const APART: &str = r#"
id = "apart"
[requires.fs]
read = ["{workspace}/**"]
write = ["{workspace}/sub/**", "{workspace}/.vscode/**"]
[[requires.shell]]
cmd = "*"
"#;

/// A1: nor by way of what is granted by a protected name, in which nothing is kept.
#[test]
fn a1_no_link_leads_there_by_what_is_granted_by_name() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target);
        fs::create_dir_all(env.workspace().join("node_modules/e")).unwrap();
        let granted = || env.sandbox().write(env.workspace()).write(text(&env, ".vscode")).write(text(&env, ".env"));
        for (to, name) in [
            ("../node_modules/e", ".vscode/l"),
            (".vscode/e", "lib"),
            ("sub/../.VSCODE/e", "lib"),
            ("node_modules/e", ".env"),
            ("sub", ".env"),
        ] {
            fs::remove_file(text(&env, ".env")).ok();
            granted().probe(&["symlink", to, &text(&env, name)]).assert_errno(EACCES);
            assert!(fs::symlink_metadata(text(&env, name)).is_err(), "{name}");
        }
        // A file's name is no directory's.
        granted().probe(&["mkdir", &text(&env, ".env")]).assert_errno(EACCES);
        let moved = granted().run(&["/bin/sh", "-c", "mkdir d && ln -s d l && ! mv -T d .env; ! mv -T l .env"]);
        assert!(moved.status.success(), "{moved:?}");
        assert!(fs::symlink_metadata(text(&env, ".env")).is_err());
        // One that is not protected may be either; and what is kept in it is.
        let other = || env.sandbox().write(env.workspace()).write(text(&env, "other"));
        other().probe(&["mkdir", &text(&env, "other")]).assert_ok();
        other().probe(&["mkdir", &text(&env, "other/.vscode")]).assert_errno(EACCES);
        fs::remove_dir(text(&env, "other")).unwrap();
        fs::create_dir(text(&env, "node_modules/e/.vscode")).unwrap();
        env.give(&env.workspace().join("node_modules/e"));
        other().probe(&["rename", &text(&env, "node_modules/e"), &text(&env, "other")]).assert_errno(EXDEV);
        // Nor does one move there that was made where it may lead anywhere.
        env.give(&env.workspace().join("node_modules"));
        let made = env.sandbox().run(&["/bin/sh", "-c", "ln -s ../node_modules/e node_modules/c"]);
        assert!(made.status.success(), "{made:?}");
        granted().probe(&["rename", &text(&env, "node_modules/c"), &text(&env, ".vscode/c")]).assert_errno(EXDEV);
        assert!(fs::symlink_metadata(text(&env, ".vscode/c")).is_err());
        // Where Landlock alone bounds what was granted by name.
        env.workspace_file("m.toml", APART);
        let apart = || env.sandbox().flag(&["--manifest", "m.toml"]);
        apart().probe(&["mkdir", &text(&env, ".vscode/e")]).assert_ok();
        let inner = apart().probe(&["mkdir", &text(&env, ".vscode/e/.vscode")]);
        let link = apart().probe(&["symlink", "../.vscode/e", &text(&env, "sub/lib")]);
        // (With namespaces names are kept in it, for it lies below `/tmp`.)
        assert!([&inner, &link].iter().any(|act| act.errno() == Some(EACCES)), "{inner} {link}");
        apart().probe(&["symlink", "e", &text(&env, "sub/other")]).assert_ok();
        // The controls: in it, beside it, and the file itself.
        granted().probe(&["symlink", "settings.json", &text(&env, ".vscode/l")]).assert_ok();
        granted().probe(&["symlink", "sub", &text(&env, "lib")]).assert_ok();
        granted().probe(&["create", &text(&env, ".env")]).assert_ok();
    });
}

/// A1: a workspace may lie below a directory called `target`; a link to its own directories stays in it.
#[test]
fn a1_a_workspace_below_target_links_to_itself() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let work = env.outside().join("target/work");
        fs::create_dir_all(&work).unwrap();
        env.give(&work);
        let inner = |to: &str| {
            let (to, from) = (work.join(to).display().to_string(), work.join("l").display().to_string());
            env.sandbox().write(&work).probe(&["symlink", &to, &from])
        };
        inner("target/e").assert_errno(EACCES);
        inner("../e").assert_errno(EACCES);
        inner("d").assert_ok();
    });
}

/// A18: a repository that changes places with a directory is named by where it is then.
#[test]
fn a18_an_exchanged_repository_is_named() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target);
        fs::create_dir(env.workspace().join("src")).unwrap();
        env.give(&env.workspace().join("src"));
        env.workspace_file("src/main.c", "code");
        let script = r#"git init -q a && "$0" rename-exchange a src && mkdir a/.git && rmdir a/.git && rm -rf a"#;
        let probe = Binaries::of_this_build().probe().display().to_string();
        let ended = env.sandbox().flag(&["--status", "status.json"]).run(&["/bin/sh", "-c", script, &probe]);
        assert!(ended.status.success(), "{ended:?}");
        assert!(env.workspace().join("src/.git/HEAD").exists(), "the control");
        let status: Value = serde_json::from_slice(&fs::read(env.workspace().join("status.json")).unwrap()).unwrap();
        assert_eq!(status["metadata"]["changes"]["repositories"], json!([text(&env, "src/.git")]), "{status}");
    });
}

/// A3: a file that is granted alone gets no second name, by which a session that does not know of it could change it.
#[test]
fn a3_a_single_file_gets_no_second_name() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target);
        env.workspace_file(".vscode/settings.json", "{}");
        let (kept, other) = (text(&env, ".vscode/settings.json"), text(&env, "other"));
        let granted = || env.sandbox().write(env.workspace()).write(&kept);
        granted().probe(&["link", &kept, &other]).assert_errno(EXDEV);
        assert!(!env.workspace().join("other").exists());
        // Nor does another file come that has one, whichever comes first.
        let env_file = || env.sandbox().write(env.workspace()).write(text(&env, ".env"));
        let second = env_file().run(&["/bin/sh", "-c", "rm .env && echo x > a && ln a b"]);
        assert!(second.status.success(), "{second:?}");
        for act in ["link", "rename"] {
            env_file().probe(&[act, &text(&env, "a"), &text(&env, ".env")]).assert_errno(EXDEV);
            assert!(!env.workspace().join(".env").exists(), "{act}");
        }
        env.workspace_file(".env", "own");
        for (from, to) in [("a", ".env"), (".env", "a")] {
            env_file().probe(&["rename-exchange", &text(&env, from), &text(&env, to)]).assert_errno(EXDEV);
            assert_eq!(fs::read_to_string(text(&env, ".env")).unwrap(), "own");
        }
        let only = env_file().run(&["/bin/sh", "-c", "rm b && mv a .env && cat .env"]);
        assert_eq!(only.stdout, "x\n", "{only:?}");
        // The controls: it can be changed, and other files get names.
        assert!(granted().run(&["/bin/sh", "-c", "echo new > .vscode/settings.json"]).status.success());
        granted().probe(&["link", &text(&env, "file"), &other]).assert_ok();
    });
}

/// Places that a bound may leave of a workspace, and what is protected there because a repository or a protected name
/// leads to it.
pub(crate) const LED_TO: [(&str, &str); 12] = [
    ("tools/hooks/**", "tools/hooks/pre-commit"),
    ("tools/hooks/new", "tools/hooks/new"),
    ("conf/**", "conf/inc"),
    ("conf/inc", "conf/inc"),
    ("scripts/**", "scripts/pre-commit"),
    ("scripts/pre-commit", "scripts/pre-commit"),
    ("src/**", "src/hl"),
    ("src/hl", "src/hl"),
    ("node_modules/**", "node_modules/hl"),
    ("bare/hooks/**", "bare/hooks/post-update"),
    ("gd/repo/hooks/**", "gd/repo/hooks/post-update"),
    ("shared/**", "shared/pre-commit"),
];

/// Makes all that.
pub(crate) fn led_to(env: &TestEnv) {
    let made = "mkdir gd && git init -q . && git init -q --bare bare && git init -q --separate-git-dir gd/repo work && git init -q sub &&
        mkdir -p src scripts tools/hooks shared conf node_modules .git/hooks && echo ok > scripts/pre-commit &&
        ln -s ../../scripts/pre-commit .git/hooks/pre-commit && echo ok > .git/hooks/post-commit &&
        ln .git/hooks/post-commit src/hl && ln .git/hooks/post-commit node_modules/hl && git config core.hooksPath tools/hooks &&
        git -C sub config core.hooksPath ../shared && echo ok > conf/inc && git config include.path ../conf/inc";
    git(env, made);
}

/// A1, A3, A18: a ceiling takes rights away and gives none: what it leaves of a workspace is judged from the whole workspace.
#[test]
fn a1_a3_a18_what_a_ceiling_leaves_is_judged_from_the_whole() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        led_to(&env);
        let binary = Binaries::of_this_build().callgate().display().to_string();
        let run = |text: &str, path: &str| {
            let manifest = env.file("manifest.toml", text);
            let line = format!("echo evil > {path}");
            let words = [&binary, "run", "--manifest", manifest.text(), "--", "sh", "-c", &line];
            env.weakened().run(&words)
        };
        let all = "[requires]\nshell = [{ cmd = \"*\" }]\n[requires.fs]\nread = [\"{workspace}/**\"]\nwrite = [\"{workspace}/**\"]\n";
        for (left, path) in LED_TO {
            let before = fs::read(env.workspace().join(path)).ok();
            for text in [all.to_owned(), format!("{all}[ceiling.fs]\nwrite = [\"{{workspace}}/{left}\"]\n")] {
                let ended = run(&text, path);
                assert!(ended.stderr.contains("Permission denied"), "{left}: {ended:?}");
                assert_eq!(fs::read(env.workspace().join(path)).ok(), before, "{left}: {path}");
            }
        }
        // Also where the session may not read the rest.
        let parts = all.replace("read = [\"{workspace}/**\"]", "read = [\"{workspace}\", \"{workspace}/src/**\"]");
        for left in ["src/**", "src/hl"] {
            let ended = run(
                &format!(
                    "{parts}[ceiling.fs]\nread = [\"{{workspace}}\", \"{{workspace}}/src/**\"]\nwrite = [\"{{workspace}}/{left}\"]\n"
                ),
                "src/hl",
            );
            assert!(ended.stderr.contains("Permission denied"), "{left}: {ended:?}");
        }
        // The controls: what nothing leads to; and what was asked for by itself.
        for left in ["src/**", "src/new", "target/**"] {
            fs::create_dir_all(env.workspace().join("target")).unwrap();
            env.give(&env.workspace().join("target"));
            let path = left.replace("**", "new");
            let ended = run(&format!("{all}[ceiling.fs]\nwrite = [\"{{workspace}}/{left}\"]\n"), &path);
            assert!(ended.status.success(), "{left}: {ended:?}");
            assert_eq!(fs::read_to_string(env.workspace().join(&path)).unwrap(), "evil\n");
            fs::remove_file(env.workspace().join(&path)).unwrap();
        }
        // So is what bounds leave nothing of: another root, a directory that is named and not its tree.
        let further = env.outside().join("further");
        fs::create_dir(&further).unwrap();
        env.give(&further);
        git(
            &env,
            &format!("git init -q {0} && git -C {0} config core.hooksPath {1}", further.display(), text(&env, "led")),
        );
        fs::create_dir(env.workspace().join("led")).unwrap();
        env.give(&env.workspace().join("led"));
        let roots = format!("roots = [\"../outside/further\"]\n{all}");
        let own = text(&env, "led/**");
        for bound in ["", &format!("[ceiling.fs]\nwrite = [\"{own}\"]\n")] {
            let ended = run(&format!("{roots}{bound}"), "led/pre-commit");
            assert!(ended.stderr.contains("Permission denied"), "{bound}: {ended:?}");
        }
        let ended = run(
            &format!("{all}[ceiling.fs]\nwrite = [\"{{workspace}}/sub\", \"{{workspace}}/shared/**\"]\n"),
            "shared/pre-commit",
        );
        assert!(ended.stderr.contains("Permission denied"), "{ended:?}");
        // What was asked for by its own name stays writable, whatever else is left.
        for directory in [".vscode", ".claude", ".claude/agents"] {
            fs::create_dir(env.workspace().join(directory)).unwrap();
            env.give(&env.workspace().join(directory));
        }
        let named = "\"{workspace}/**\", \"{workspace}/.vscode/**\", \"{workspace}/.claude/**\"";
        let named = all.replace("write = [\"{workspace}/**\"]", &format!("write = [{named}]"));
        let left = "[ceiling.fs]\nwrite = [\"{workspace}/src/**\", \"{workspace}/.vscode/**\", \"{workspace}/.claude/agents/**\"]\n";
        for path in [".vscode/x", ".claude/agents/y", "src/z"] {
            let ended = run(&format!("{named}{left}"), path);
            assert!(ended.status.success(), "{path}: {ended:?}");
        }
        let named = all.replace("write = [\"{workspace}/**\"]", "write = [\"{workspace}/tools/hooks/**\"]");
        let ended = run(&named, "tools/hooks/pre-commit");
        assert!(ended.status.success(), "{ended:?}");
    });
}

/// A1: a workspace below `/opt` is no part of the system: no link leads into a tree of it in which names are not protected.
#[test]
fn a1_a_link_into_a_workspace_below_opt_is_no_link_into_the_system() {
    // Root alone can mount something for it.
    matrix_as(User::Root, &[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        let opt = env.outside().join("opt");
        fs::create_dir_all(opt.join("w/src")).unwrap();
        fs::create_dir_all(opt.join("w/.claude/p")).unwrap();
        let binary = Binaries::of_this_build().callgate().display().to_string();
        let script = r#"mount --bind "$1" /opt && cd /opt/w && shift && exec "$@""#;
        let line = "ln -s /opt/w/.claude/p src/abs; ln -s ../.claude/p src/rel; ln -s /opt/other/node_modules/p src/other; \
                    ln -s /usr/lib/node_modules/p src/system; ls src";
        let words = ["unshare", "--mount", "sh", "-c", script, "sh", opt.to_str().unwrap(), &binary, "run"];
        let grants = ["--write", "src", "--write", ".claude", "--", "sh", "-c", line];
        let manifest = env.file(
            "manifest.toml",
            "[requires.fs]\nread = [\"{workspace}/**\"]\n[requires]\nshell = [{ cmd = \"*\" }]\n",
        );
        let ended = env.weakened().run(&[&words[..], &["--manifest", manifest.text()], &grants].concat());
        assert_eq!(ended.stdout, "system\n", "the control is there, and nothing else: {ended:?}");
        assert_eq!(ended.stderr.matches("Permission denied").count(), 3, "{ended:?}");
        assert!(["abs", "rel", "other"].iter().all(|name| fs::symlink_metadata(opt.join("w/src").join(name)).is_err()));
    });
}

/// A16, A19: at any depth, in directories that are made now, and in a granted part of a tree.
#[test]
fn a16_a19_wherever_it_is() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target);
        let script = "mkdir -p n/e/w && echo x > n/e/w/.env; mkdir -p n/.config && mkdir n/.config/fish; \
                      echo x > n/e/w/env && mkdir n/.config/app && cat n/e/w/env";
        let ended = env.sandbox().run(&["/bin/sh", "-c", script]);
        assert_eq!(ended.stdout, "x\n", "{ended:?}");
        let n = env.workspace().join("n");
        assert!(!n.join("e/w/.env").exists() && !n.join(".config/fish").exists());
        assert!(n.join(".config/app").exists());
        // The same with that part alone granted.
        let part = env.sandbox().write(n.join(".config"));
        part.probe(&["mkdir", &text(&env, "n/.config/fish")]).assert_errno(EACCES);
        part.probe(&["mkdir", &text(&env, "n/.config/fishes")]).assert_ok();
    });
}

/// Granted by name, it may be changed (the control of all that is refused above).
#[test]
fn a_name_that_is_granted_by_name_is_not_kept() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target);
        let run = || env.sandbox().write(env.workspace()).write(text(&env, ".vscode")).write(text(&env, ".env"));
        run().probe(&["write", &text(&env, ".vscode/settings.json"), "new"]).assert_ok();
        run().probe(&["create", &text(&env, ".vscode/tasks.json")]).assert_ok();
        run().probe(&["write", &text(&env, ".env"), "new"]).assert_ok();
        run().probe(&["write", &text(&env, "sub/.npmrc"), "new"]).assert_errno(EACCES);
        assert_eq!(fs::read_to_string(text(&env, ".env")).unwrap(), "new");
    });
}

/// A kept name that does not exist yet is made if it is granted by name, and others beside it are not. What cannot be named so is
/// refused before anything runs.
#[test]
fn a_kept_name_that_is_granted_by_name_can_be_made() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let bashrc = env.workspace().join(".bashrc");
        let made = |flags: &[&str], line: &str| env.sandbox().flag(flags).run(&["/bin/sh", "-c", line]);
        for (name, line) in [
            (".bashrc", "echo x > .bashrc"),
            ("./.bashrc", "echo x > new && mv new .bashrc"),
            (bashrc.to_str().unwrap(), "touch .bashrc && echo y > .bashrc && rm .bashrc && echo x > .bashrc"),
        ] {
            let without = env.sandbox().run(&["/bin/sh", "-c", line]);
            assert_ne!(without.status.code(), Some(0), "the control: {line}");
            assert!(fs::symlink_metadata(&bashrc).is_err(), "the control: {line}");
            let ended = made(&["--write", name], line);
            assert_eq!(ended.status.code(), Some(0), "{name}: {ended:?}");
            assert_eq!(fs::read_to_string(&bashrc).unwrap(), "x\n");
            fs::remove_file(&bashrc).unwrap();
            let ended = made(&["--write", name], "echo x > .zshrc");
            assert_ne!(ended.status.code(), Some(0), "another kept name stays: {ended:?}");
        }
        // Outside of the workspace: that file, and nothing that is beside it.
        let outside = env.outside().join("made");
        let other = env.file("other", "old");
        let line = format!("echo x > {} && ! echo x > {}", outside.display(), other.display());
        let ended = made(&["--write", outside.to_str().unwrap()], &line);
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        assert_eq!(fs::read_to_string(&outside).unwrap(), "x\n");
        other.assert_contents("old");
        std::os::unix::fs::symlink("nowhere", env.workspace().join("dangling")).unwrap();
        for (name, said) in [
            ("missing/.bashrc", "needs the directory that it is to be in"),
            ("missing/", "does not end in a file name"),
            ("dangling", "grants name what exists"),
        ] {
            let ended = made(&["--write", name], "touch ran");
            assert_eq!(ended.status.code(), Some(64), "{name}: {ended:?}");
            assert!(ended.stderr.contains(said), "{name}: {ended:?}");
            assert!(fs::symlink_metadata(env.workspace().join("ran")).is_err());
        }
        let ended = made(&["--read", ".bashrc"], "true");
        assert_eq!(ended.status.code(), Some(64), "to read, it must exist: {ended:?}");
    });
}

/// A18: what git reads and runs stays, and what people do with git works.
#[test]
fn a18_what_git_runs_stays() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target);
        let (hooks, top) = (env.workspace().join("tools/hooks"), env.workspace());
        fs::create_dir_all(&hooks).unwrap();
        for directory in [top.join("tools"), hooks] {
            env.give(&directory);
        }
        env.workspace_file("included", "[user]\n\temail = a@b.c\n");
        git(
            &env,
            "git config core.hooksPath tools/hooks; git config include.path ../included; git config alias.st status",
        );
        git(&env, "git worktree add -q tree");
        let before = picture(&top);
        for script in [
            "git config core.fsmonitor ./x",
            "git config --unset core.hooksPath",
            "git config alias.st '!sh'",
            "git config include.path ../other",
            "git config credential.helper '!sh'",
            "printf '[alias]x=!y' > .git/config",
            "printf '[alias]x=!y' >> .git/config",
            "printf '[alias]x=!y' > .git/config.worktree",
            "printf '[alias]x=!y' > .git/c; mv .git/c .git/config; rm .git/c; false",
            "ln -s ../included .git/l; mv .git/l .git/config; rm .git/l; false",
            "echo x > .git/hooks/post-commit",
            "echo x > tools/hooks/pre-commit",
            "mv tools t",
            "echo '[core]editor=x' > included",
            "rm included",
            "rm tree/.git",
            "echo gitdir: /x > tree/.git",
            "mv tree/.git tree/x",
            "echo /x > .git/worktrees/tree/commondir",
            "echo /x > .git/commondir",
            "rm -f .git/config",
            "mv .git/config .git/x",
            "ln .git/config c",
        ] {
            let ended = env.sandbox().run(&["/bin/sh", "-c", script]);
            assert!(!ended.status.success(), "{script}: {ended:?}");
            assert_eq!(picture(&top), before, "{script}");
        }
        let script = "set -e; git config user.name x; git config user.email x@y; git remote add up https://x/y; \
                      echo 1 > one; git add one; git commit -qm two; git config user.name; git worktree add -q ../workspace/w2; \
                      git -C w2 status --short; git worktree remove w2; git init -q --bare b.git; git push -q ./b.git main; \
                      git clone -q b.git c; git -C c config core.hooksPath x; git -C c config alias.x '!y'; \
                      echo x > c/.git/hooks/pre-push; git checkout -q -b other; git rebase -q main; git gc -q; git log --oneline | wc -l";
        let ended = env.sandbox().run(&["/bin/sh", "-c", script]);
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), "x\n2\n"), "{ended:?}");
    });
}

/// A6, A18: what was judged is what is there: the caller's descriptor and other names lead to another file.
#[test]
fn a18_judged_settings_cannot_be_written_afterwards() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target);
        let script = "cp .git/config .git/config.lock; printf '[user]\\nname = x\\n' >> .git/config.lock; \
                      ln .git/config.lock alias; exec 3>>.git/config.lock; \
                      mv .git/config.lock .git/config && printf '[alias]x=!y\\n' >&3 && printf '[alias]x=!y\\n' >> alias; \
                      git config user.name; git config alias.x; tail -n1 alias";
        let ended = env.sandbox().run(&["/bin/sh", "-c", script]);
        assert_eq!(ended.stdout, "x\n[alias]x=!y\n", "{ended:?}");
    });
}

/// A file on its way to a kept name: the lock under which git writes settings, and callgate's own copies.
const TEMPORARY: &[&str] = &[
    ".git/config.lock",
    ".git/config.worktree.lock",
    ".git/CONFIG.LOCK",
    ".gitconfig.lock",
    "shared.inc.lock",
    ".callgate-0",
    "sub/.callgate-x",
];

/// A6, A18: whoever could write git's lock, or put a file there, would choose the settings that the person's own git puts in
/// place; so with a copy that another session has judged. Only the session that made such a file changes it.
#[test]
fn a18_what_somebody_else_has_on_its_way_to_a_kept_name_stays() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target);
        git(&env, "git config include.path ../shared.inc");
        for name in TEMPORARY {
            env.workspace_file(name, "theirs");
        }
        let before = picture(&env.workspace());
        for name in TEMPORARY {
            let it = text(&env, name);
            let other = text(&env, "other");
            let acts = [
                &["write", &it, "new"][..],
                &["unlink", &it],
                &["rename", &text(&env, "file"), &it],
                &["open-trunc", &it],
                &["open-legacy", &it, "create"],
                &["open-legacy", &it, "read-trunc"],
                &["open-o-path-reopen", &it, "write"],
                &["truncate", &it],
                &["chmod", &it, "666"],
                &["utimens", &it],
                &["link", &it, &other],
                &["rename", &it, &other],
                &["rename", &it, &text(&env, ".git/config")],
                &["rename-exchange", &text(&env, "file"), &it],
            ];
            // All of them for one name, and some for the others.
            for act in &acts[..if *name == TEMPORARY[0] { acts.len() } else { 3 }] {
                env.sandbox().probe(act).assert_errno(EACCES);
                assert_eq!(picture(&env.workspace()), before, "{act:?}");
            }
            env.sandbox().probe(&["read", &it]).assert_ok();
        }
        // While the lock is there, no settings come into place by another way.
        env.workspace_file(".git/new", &fs::read_to_string(text(&env, ".git/config")).unwrap());
        let new = [text(&env, ".git/new"), text(&env, ".git/config")];
        env.sandbox().probe(&["rename", &new[0], &new[1]]).assert_errno(EBUSY);
        for name in TEMPORARY {
            fs::remove_file(text(&env, name)).unwrap();
        }
        env.sandbox().probe(&["rename", &new[0], &new[1]]).assert_ok();
        // Nor is the name taken in another way than by opening it.
        let before = picture(&env.workspace());
        for name in [TEMPORARY[0], ".callgate-0"] {
            let it = text(&env, name);
            for act in [
                &["rename", &text(&env, "file"), &it][..],
                &["link", &text(&env, "file"), &it],
                &["symlink", "file", &it],
                &["mkdir", &it],
                &["mkfifo", &it],
            ] {
                env.sandbox().probe(act).assert_errno(EACCES);
                assert_eq!(picture(&env.workspace()), before, "{act:?}");
            }
        }
    });
}

/// A6: what another session is about to put in a kept directory is not changed by one that may write another file there.
#[test]
fn a6_a_file_on_its_way_to_a_granted_name_stays() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target);
        let theirs = env.file_at(env.workspace().join(".vscode/.callgate-0"), "theirs");
        let granted = env.file_at(env.workspace().join(".vscode/tasks.json"), "old");
        let run = env.sandbox().write(&granted);
        for act in [&["write", theirs.text(), "new"][..], &["open-trunc", theirs.text()], &["unlink", theirs.text()]] {
            run.probe(act).assert_errno(EACCES);
            assert_eq!(fs::read_to_string(&theirs).unwrap(), "theirs", "{act:?}");
        }
        run.probe(&["write", granted.text(), "new"]).assert_ok();
        let ours = text(&env, ".vscode/.callgate-1");
        let moved = run.run(&["/bin/sh", "-c", &format!("echo new > {ours} && mv {ours} {}", granted.text())]);
        assert!(moved.status.success(), "{moved:?}");
        assert_eq!(fs::read_to_string(&granted).unwrap(), "new\n");
    });
}

/// The control of the above: what a session has made by opening it is its own, through all of its calls; and a lock gives a
/// repository's settings no other mode.
#[test]
fn a18_a_lock_that_a_session_has_made_is_its_own() {
    use std::os::unix::fs::PermissionsExt;
    let script = r#"
set -e
for f in .git/config.lock .callgate-0; do
    echo 1 > $f; echo 2 >> $f; chmod 600 $f; truncate -s 2 $f; cat $f; touch $f; rm $f
    echo 3 > $f; mv $f moved; echo 4 >> moved; ! mv moved $f 2> /dev/null; cat moved; rm moved
    echo 5 > $f; ln $f other; echo 6 > other; cat $f; rm $f other
done
git config user.name one
cp .git/config .git/config.lock; chmod 777 .git/config.lock; echo '[user]
	name = two' >> .git/config.lock; mv .git/config.lock .git/config
git config user.name
ls .git/*.lock .git/.callgate* 2> /dev/null || echo none
"#;
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target);
        let config = env.workspace().join(".git/config");
        fs::set_permissions(&config, fs::Permissions::from_mode(0o640)).unwrap();
        let ended = env.sandbox().run(&["/bin/sh", "-c", script]);
        assert_eq!(ended.stdout, "1\n3\n4\n6\n1\n3\n4\n6\ntwo\nnone\n", "{ended:?}");
        assert_eq!(fs::metadata(&config).unwrap().permissions().mode() & 0o7777, 0o640);
    });
}

/// How many random sequences there are for each host, half of them for each user, and how many changes each makes. All of
/// them take minutes: the suite runs a part, and `--run-ignored all` the whole.
const SEQUENCES: usize = 10_000;
const SOME: usize = 500;
const STEPS: usize = 16;

/// Makes what each sequence finds. The ordinary part alone is touched by the second generator.
fn plant(top: &Path) {
    let make = |name: &str| fs::create_dir(top.join(name)).unwrap();
    let write = |name: &str, text: &str| fs::write(top.join(name), text).unwrap();
    for name in [".git", ".git/hooks", ".vscode", "d", "s"] {
        make(name);
    }
    for name in [".env", ".git/hooks/h", ".vscode/f", "s/.env", "d/f", "f", "g"] {
        write(name, name);
    }
    write(".git/config", "[core]\n\tbare = false\n");
    fs::hard_link(top.join(".env"), top.join("alias")).unwrap();
}

/// The kept things of a sequence's tree: what they are, which files they are, and where.
fn kept_things(top: &Path) -> Vec<(u64, u32, i64, Vec<u8>)> {
    let files = [".env", ".git/hooks/h", ".git/config", ".vscode/f", "s/.env"];
    let look = |name: &&str| {
        let about = fs::symlink_metadata(top.join(name)).unwrap_or_else(|e| panic!("{name} in {}: {e}", top.display()));
        (about.ino(), about.mode(), about.mtime_nsec(), fs::read(top.join(name)).unwrap())
    };
    let mut all: Vec<_> = files.iter().map(look).collect();
    // Nothing has come to them, and no other kept name has come to be.
    let mut names: Vec<String> = Vec::new();
    for directory in ["", ".git", ".git/hooks", ".vscode"] {
        let entries = fs::read_dir(top.join(directory)).unwrap();
        names.extend(entries.map(|entry| format!("{directory}/{}", entry.unwrap().file_name().display())));
    }
    let kept = [".git/hooks/", ".vscode/", "/.env", "/.codex", "/.VSCode", "/.bashrc", ".git/hooks", ".git/config"];
    names.retain(|name| kept.iter().any(|kept| name.starts_with(kept)));
    names.sort();
    all.push((0, 0, 0, names.join("\n").into_bytes()));
    all
}

/// Runs the generator in parts of this many sequences.
const PART: usize = 250;

fn give_all(env: &TestEnv, top: &Path) {
    env.give(top);
    for entry in fs::read_dir(top).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            give_all(env, &path);
        } else {
            env.give(&path);
        }
    }
}

/// A1, A3, A4, A9, A18, A19: whatever is tried, in whatever order, what is kept stays, and nothing comes in its place.
#[test]
fn a4_no_sequence_of_changes_reaches_a_kept_name() {
    no_sequence_reaches_a_kept_name(SOME);
}

/// None of all sequences reaches a kept name.
#[test]
#[ignore = "takes minutes"]
fn a4_none_of_ten_thousand_sequences_reaches_a_kept_name() {
    no_sequence_reaches_a_kept_name(SEQUENCES);
}

fn no_sequence_reaches_a_kept_name(sequences: usize) {
    const NAMES: &[&str] = &[
        ".env",
        ".ENV",
        ".git",
        ".git/hooks",
        ".git/hooks/h",
        ".git/config",
        ".vscode",
        ".vscode/f",
        ".VSCode",
        ".codex",
        ".bashrc",
        "s",
        "s/.env",
        "d",
        "f",
        "g",
        "alias",
        "x",
        "y",
        "target",
        "hooks",
        "h",
        "config",
    ];
    matrix(Host::STRENGTHS, |target| {
        // Half as root, half as the other user.
        let mut changed = 0;
        for part in 0..sequences / 2 / PART {
            let env = TestEnv::new(target);
            let (first, top) = (part * PART, env.workspace());
            for n in first..first + PART {
                let directory = top.join(n.to_string());
                fs::create_dir(&directory).unwrap();
                plant(&directory);
            }
            give_all(&env, &top);
            let look = |n: usize| kept_things(&top.join(n.to_string()));
            let before: Vec<_> = (first..first + PART).map(look).collect();
            let (top_text, first_text) = (top.display().to_string(), first.to_string());
            let (count, steps) = (PART.to_string(), STEPS.to_string());
            let words = [&["sequences", &top_text, &first_text, &count, &steps], NAMES].concat();
            let ran = env.sandbox().probe(&words);
            ran.assert_ok();
            for (n, before) in (first..).zip(&before) {
                assert_eq!(&look(n), before, "sequence {n}: {}", ran.fact("digests")[n - first]);
            }
            // The control: most of them changed something else.
            let digests = ran.fact("digests");
            let done = |one: &&serde_json::Value| one[1].as_array().unwrap().iter().any(|step| step[1] == 0);
            changed += digests.as_array().unwrap().iter().filter(done).count();
        }
        assert!(changed > sequences / 4, "{changed} changed anything");
    });
}

/// A sequence that touches no kept name goes as it goes outside: the same results, errnos and trees.
#[test]
fn a4_sequences_that_touch_no_kept_name_go_as_outside() {
    sequences_go_as_outside(SOME);
}

/// All sequences go as outside.
#[test]
#[ignore = "takes minutes"]
fn a4_ten_thousand_sequences_go_as_outside() {
    sequences_go_as_outside(SEQUENCES);
}

fn sequences_go_as_outside(sequences: usize) {
    // `target` and `node_modules` count as file systems of their own.
    const NAMES: &[&str] = &["f", "g", "d", "d/f", "x", "y", "z", "targets", "node_module", "d/targets", "."];
    matrix(Host::STRENGTHS, |target| {
        for part in 0..sequences / 2 / PART {
            let (inner, outer) = (TestEnv::new(target), TestEnv::new(target));
            let first = part * PART;
            let digests = |env: &TestEnv, run: callgate_tests::ProgramRunner| {
                let top = env.workspace();
                for n in first..first + PART {
                    let directory = top.join(n.to_string());
                    fs::create_dir(&directory).unwrap();
                    plant(&directory);
                }
                give_all(env, &top);
                let (top_text, first_text) = (top.display().to_string(), first.to_string());
                let (count, steps) = (PART.to_string(), STEPS.to_string());
                let ran = run.probe(&[&["sequences", &top_text, &first_text, &count, &steps], NAMES].concat());
                ran.assert_ok();
                ran.fact("digests")
            };
            let (inside, outside) = (digests(&inner, inner.sandbox()), digests(&outer, outer.bare()));
            for (n, (inside, outside)) in
                (first..).zip(inside.as_array().unwrap().iter().zip(outside.as_array().unwrap()))
            {
                assert_eq!(inside, outside, "sequence {n}");
            }
        }
    });
}

/// The result says what was changed, what of it runs later, which repositories are new, and what was refused; of a program
/// and of a tool.
#[test]
fn a19_the_result_names_what_changed() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target);
        env.workspace_file("gone", "old");
        let status = env.outside().join("status");
        let script =
            "echo all: > Makefile; echo new > file; rm gone; git init -q new; echo x > .env; echo t > t; rm t; true";
        let ended = env.sandbox().flag(&["--status", status.to_str().unwrap()]).run(&["/bin/sh", "-c", script]);
        assert!(ended.status.success(), "{ended:?}");
        let envelope: serde_json::Value = serde_json::from_slice(&fs::read(&status).unwrap()).unwrap();
        let changes = &envelope["metadata"]["changes"];
        let has = |list: &str, name: &str| {
            let paths = changes[list].as_array().into_iter().flatten();
            paths.map(|one| one.get("path").unwrap_or(one)).any(|path| *path == *text(&env, name))
        };
        assert!(has("created", "Makefile") && has("runs_later", "Makefile") && has("changed", "file"), "{changes}");
        assert!(has("removed", "gone") && has("repositories", "new/.git") && has("refused", ".env"), "{changes}");
        assert!(!has("created", "t") && !has("removed", "t"), "{changes}");
        let by = envelope["metadata"]["enforced"].to_string();
        assert!(by.contains("kept_names"), "{by}");
    });
}

/// A19: a socket that a call has bound is a file that it has made, and one that it has removed again is not.
#[test]
fn a19_the_result_names_sockets() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target);
        let status = env.outside().join("status");
        let script = "import os,socket\nfor name in ['Makefile','t','bound']:\n  socket.socket(socket.AF_UNIX).bind(name)\n\
            os.unlink('t')";
        let sandbox = env.sandbox().flag(&["--status", status.to_str().unwrap()]);
        let ended = sandbox.run(&["/usr/bin/python3", "-c", script]);
        assert!(ended.status.success(), "{ended:?}");
        let envelope: serde_json::Value = serde_json::from_slice(&fs::read(&status).unwrap()).unwrap();
        let changes = &envelope["metadata"]["changes"];
        assert_eq!(changes["created"], serde_json::json!([text(&env, "Makefile"), text(&env, "bound")]), "{changes}");
        assert_eq!(changes["runs_later"].as_array().map(Vec::len), Some(1), "{changes}");
        assert_eq!(changes["removed"].as_array().map_or(0, Vec::len), 0, "{changes}");
    });
}

/// A19: what exists only in a directory of the session's own is not there for anybody else to find.
#[test]
fn a19_the_result_names_nothing_that_goes_with_the_session() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target);
        let status = env.outside().join("status");
        let script = "for at in $TMPDIR $HOME /tmp $PWD; do echo all: > $at/Makefile; done; true";
        let sandbox = env.sandbox().flag(&["--status", status.to_str().unwrap()]);
        let ended = sandbox.variable("TMPDIR", env.workspace().to_str().unwrap()).run(&["/bin/sh", "-c", script]);
        assert!(ended.status.success(), "{ended:?}");
        let envelope: serde_json::Value = serde_json::from_slice(&fs::read(&status).unwrap()).unwrap();
        let changes = &envelope["metadata"]["changes"];
        assert_eq!(changes["created"], serde_json::json!([text(&env, "Makefile")]), "{changes}");
        assert_eq!(changes["runs_later"].as_array().map(Vec::len), Some(1), "{changes}");
    });
}

/// A4: a directory in which something was done a moment ago, and that was moved since, by the caller or by the host, is judged by
/// where it is now.
#[test]
fn a4_a_directory_that_has_moved_is_judged_by_where_it_is() {
    let script = r#"
import errno, os, time
def make(name):
    try: return os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
    except OSError as error: return errno.errorcode[error.errno]
os.mkdir("first")
os.chdir("first")
made = [make("a")]
os.rename("../first", "../second")
made.append(make("b"))
while not os.path.exists("../moved") and not os.path.exists("../../moved"): make("c")
time.sleep(0.02)
print(*made, make("d"), sorted(os.listdir()))
"#;
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for (to, says) in [("third", "None ['a', 'b', 'c', 'd']"), (".vscode/third", "EACCES ['a', 'b', 'c']")] {
            for old in ["third", ".vscode", "moved", "second"] {
                drop(fs::remove_dir_all(env.workspace().join(old)));
                drop(fs::remove_file(env.workspace().join(old)));
            }
            fs::create_dir(env.workspace().join(".vscode")).unwrap();
            env.give(&env.workspace());
            let status = env.outside().join("status");
            let sandbox = env.sandbox().flag(&["--status", status.to_str().unwrap()]);
            let ended = std::thread::scope(|scope| {
                let run = scope.spawn(|| sandbox.run(&["/usr/bin/python3", "-c", script]));
                eventually("it makes files", || env.workspace().join("second/c").exists());
                fs::rename(env.workspace().join("second"), env.workspace().join(to)).unwrap();
                fs::write(env.workspace().join("moved"), "").unwrap();
                run.join().unwrap()
            });
            assert_eq!(ended.stdout, format!("None None {says}\n"), "{to}: {ended:?}");
            let envelope: serde_json::Value = serde_json::from_slice(&fs::read(&status).unwrap()).unwrap();
            let created = envelope["metadata"]["changes"]["created"].as_array().unwrap();
            let made = |name: &str| created.iter().any(|path| *path == *text(&env, name));
            assert!(made("second/a") && made("second/b") && !made("first/a") && !made("first/b"), "{created:?}");
        }
    });
}

/// C16: where the broker performs an open and its descriptor cannot be put into the caller, the caller has an error, and the kernel
/// does not go on with the call in its stead.
#[test]
fn c16_a_descriptor_that_finds_no_room_is_an_error() {
    let script = "import errno, os, resource, socket\n\
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n\
        held = []\n\
        def full(what):\n\
        \x20   try:\n\
        \x20       what()\n\
        \x20       return 'done'\n\
        \x20   except OSError as error:\n\
        \x20       return errno.errorcode[error.errno]\n\
        print(full(lambda: [held.append(os.open('/dev/null', os.O_RDONLY)) for _ in range(100)]))\n\
        print(full(lambda: os.open('kept/.env', os.O_WRONLY | os.O_CREAT)), full(lambda: socket.socket(socket.AF_UNIX)))\n\
        print(full(lambda: os.open('made', os.O_WRONLY | os.O_CREAT)))\n\
        os.close(held.pop())\n\
        print(full(lambda: os.open('kept/.env', os.O_WRONLY | os.O_CREAT)))\n\
        print(full(lambda: os.write(os.open('free', os.O_WRONLY | os.O_CREAT), b'x')))\n";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        fs::create_dir(env.workspace().join("kept")).unwrap();
        env.give(&env.workspace().join("kept"));
        let ended = env.sandbox().run(&["python3", "-c", script]);
        let said: Vec<&str> = ended.stdout.split_whitespace().collect();
        let [filled, kept, socket, made, denied, free] = said[..] else { panic!("{ended:?}") };
        assert_eq!((filled, socket, made), ("EMFILE", "EMFILE", "EMFILE"), "{ended:?}");
        assert!(["EMFILE", "EACCES"].contains(&kept) && denied == "EACCES", "{ended:?}");
        assert_eq!(free, "done", "the control: {ended:?}");
        assert!(!env.workspace().join("kept/.env").exists() && env.workspace().join("free").exists());
    });
}

/// A18: the settings of a repository are the first of its content that is read, by the broker, which nothing bounds: they cannot
/// keep it busy, fill its memory or end it. What they lead to is kept all the same.
#[test]
fn a18_hostile_settings_take_nothing_from_the_broker() {
    let hostile = [
        "[include]\n\tpath = config\n".repeat(60),
        "[include]\n\tpath = /proc/self/pagemap\n\tpath = /dev/zero\n".to_owned(),
        format!("[core]\n\thooksPath = {}\n", "a/".repeat(400_000)),
        format!("[include]\n\tpath = {}\n", "../".repeat(300_000)),
    ];
    matrix(Host::STRENGTHS, |target| {
        for settings in &hostile {
            let env = TestEnv::new(target);
            for directory in [".git", "hooks"].map(|name| env.workspace().join(name)) {
                fs::create_dir(&directory).unwrap();
                env.give(&directory);
            }
            env.workspace_file(".git/config", &format!("[core]\n\thooksPath = hooks\n{settings}"));
            env.workspace_file("hooks/pre-commit", "kept");
            let script = "echo made > own; echo changed > hooks/pre-commit";
            let ended = env.sandbox().run(&["/bin/bash", "-c", script]);
            let read = |name: &str| fs::read_to_string(env.workspace().join(name)).unwrap_or_default();
            assert_eq!((read("own").as_str(), read("hooks/pre-commit").as_str()), ("made\n", "kept"), "{ended:?}");
            assert!(ended.stderr.contains("Permission denied"), "{ended:?}");
        }
    });
}

/// A1: where a kept name is a link, or lies in a directory that is one, what it leads to is kept as well.
#[test]
fn a1_what_kept_names_link_to_is_kept() {
    let script = "mkdir -p conf/vscode .cursor a dep conf/free .claude/worktrees/w/.git; \
                  ln -s conf/vscode .vscode; ln -s conf/env .env; ln -s gone.json .mcp.json; ln -s ../conf/rules .cursor/rules; \
                  ln -s ../../tasks conf/vscode/tasks.json; ln -s ../conf/agents a/.claude; ln -s conf/plain plain; \
                  ln -s ../../../dep .claude/worktrees/w/dep; echo x > conf/env; echo x > conf/plain; echo x > tasks";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        git(&env, script);
        let before = picture(&env.workspace());
        let sh = |script: &str| env.sandbox().run(&["/bin/sh", "-c", script]).status.success();
        for act in [
            "echo y > conf/vscode/settings.json",
            "mv conf/vscode v",
            "mv conf c",
            "echo y > conf/env",
            "rm conf/env",
            "echo y > .env",
            "echo y > gone.json",
            "mkdir conf/rules",
            "echo y > tasks",
            "mkdir conf/agents",
        ] {
            assert!(!sh(act), "{act}");
            assert_eq!(picture(&env.workspace()), before, "{act}");
        }
        // The controls: other names, and a working tree that lies below a kept name.
        assert!(sh("echo y > plain; echo y > conf/free/env; echo y > dep/x; mkdir conf/other"));
        assert_eq!(fs::read_to_string(env.workspace().join("conf/plain")).unwrap(), "y\n");
        assert!(env.workspace().join("dep/x").is_file());
    });
}
