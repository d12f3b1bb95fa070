//! A single file that may be written is that name and no other, in both strengths (A8): it can be changed, replaced and made
//! again, as editors and `sed -i` do it, and what lies beside it stays as it is.

use std::fs;
use std::path::{Path, PathBuf};

use callgate_tests::{Binaries, Host, ProgramOutcome, ProgramRunner, Target, TestEnv, TestFile, eventually, matrix};
use libc::{EACCES, ENOENT};

use crate::protect::picture;

/// A file that is granted, and its neighbours.
struct SingleFile {
    env: TestEnv,
    granted: TestFile,
}

impl SingleFile {
    fn new(target: Target) -> Self {
        let env = TestEnv::new(target);
        let granted = env.file("rep.html", "old\n");
        env.file("theirs", "theirs\n");
        let sub = env.outside().join("sub");
        fs::create_dir(&sub).unwrap();
        env.give(&sub);
        env.file_at(sub.join("file"), "old\n");
        Self { env, granted }
    }

    fn beside(&self, name: &str) -> String {
        self.env.outside().join(name).display().to_string()
    }

    fn single(&self) -> ProgramRunner {
        self.env.sandbox().write(&self.granted)
    }

    fn whole(&self) -> ProgramRunner {
        self.env.sandbox().write(self.env.outside())
    }

    /// A shell's work in the directory, which may not be listed.
    fn line(&self, run: &ProgramRunner, line: &str) -> ProgramOutcome {
        run.run(&["/bin/sh", "-c", &format!("cd {} && {line}", self.env.outside().display())])
    }
}

/// Every ordinary way to change, replace, remove and make a file; each again, for the file is another by then.
#[test]
fn a8_a_single_file_can_be_changed_replaced_and_made() {
    matrix(Host::STRENGTHS, |target| {
        let place = SingleFile::new(target);
        let run = place.single();
        let before = picture(&place.env.outside()).into_iter().filter(|line| !line.contains("rep.html"));
        let before: Vec<String> = before.collect();
        let inode = || {
            use std::os::unix::fs::MetadataExt as _;
            fs::metadata(&place.granted).unwrap().ino()
        };
        for (line, wanted, replaces) in [
            ("echo one > rep.html", "one\n", false),
            ("echo two >> rep.html && cat rep.html", "one\ntwo\n", false),
            ("truncate -s 4 rep.html", "one\n", false),
            ("sed -i s/one/three/ rep.html && sed -i s/three/four/ rep.html && cat rep.html", "four\n", true),
            ("perl -pi -e s/four/five/ rep.html", "five\n", true),
            ("echo six > rep.html.tmp && chmod 640 rep.html.tmp && mv rep.html.tmp rep.html", "six\n", true),
            ("set -C && cat rep.html > rep.html.lock && mv rep.html.lock rep.html && cat rep.html", "six\n", true),
            ("rm rep.html && echo seven > rep.html && cat rep.html", "seven\n", false),
            ("cp rep.html t && mv t rep.html && touch -d @1000 rep.html && chmod 600 rep.html", "seven\n", true),
            ("echo eight > t && rm rep.html && ln t rep.html && rm t", "eight\n", true),
            ("for n in $(seq 200); do echo $n > t && mv t rep.html || exit 1; done", "200\n", true),
        ] {
            let was = inode();
            let ended = place.line(&run, line);
            assert!(ended.status.success(), "{line}: {ended:?}");
            assert_eq!(fs::read_to_string(&place.granted).unwrap(), wanted, "{line}");
            assert!(!replaces || inode() != was, "{line}: it is the same file");
        }
        let after = picture(&place.env.outside()).into_iter().filter(|line| !line.contains("rep.html"));
        assert_eq!(after.collect::<Vec<_>>(), before);
    });
}

/// Nothing beside it is changed, by whichever call; the same act works where the directory is granted.
#[test]
fn a8_what_lies_beside_a_single_file_stays() {
    matrix(Host::STRENGTHS, |target| {
        let acts: &[&[&str]] = &[
            &["write", "theirs", "new"],
            &["open-trunc", "theirs"],
            &["truncate", "theirs"],
            &["unlink", "theirs"],
            &["chmod", "theirs", "600"],
            &["utimens", "theirs"],
            &["write", "sub/file", "new"],
            &["create", "sub/new"],
            &["mkdir", "new"],
            &["mkfifo", "new"],
            &["symlink", "theirs", "new"],
            &["link", "theirs", "new"],
            &["link", "rep.html", "new"],
            &["rename", "theirs", "rep.html"],
            &["rename", "theirs", "new"],
            &["rename", "rep.html", "new"],
            &["rename", "rep.html", "theirs"],
            &["rename", "sub", "new"],
            &["rename-exchange", "rep.html", "theirs"],
            &["rename-exchange", "theirs", "rep.html"],
        ];
        for act in acts {
            let place = SingleFile::new(target);
            let mut words: Vec<String> = act.iter().map(|word| place.beside(word)).collect();
            words[0] = act[0].to_owned();
            if act[0] == "chmod" {
                words[2] = "600".to_owned();
            }
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let before = picture(&place.env.outside());
            place.single().probe(&words).assert_errno(EACCES);
            assert_eq!(picture(&place.env.outside()), before, "{act:?}");
            place.whole().probe(&words).assert_ok();
            assert_ne!(picture(&place.env.outside()), before, "the control changed nothing: {act:?}");
        }
    });
}

/// A name that a call makes beside it is gone when the call has ended, however that came, and the result says so.
#[test]
fn a8_a_twin_does_not_outlive_its_call() {
    matrix(Host::STRENGTHS, |target| {
        let place = SingleFile::new(target);
        let before = picture(&place.env.outside());
        for line in ["echo left > new; cat new", "echo left > new; kill -9 $$", "echo left > new; sleep 1000 & true"] {
            let status = place.env.workspace().join("status");
            let run = place.single().flag(&["--status", status.to_str().unwrap()]);
            let ended = place.line(&run, line);
            assert!(!line.contains("cat") || ended.stdout == "left\n", "the control: it was there, {ended:?}");
            eventually("it is gone", || picture(&place.env.outside()) == before);
            let told = fs::read_to_string(&status).unwrap();
            assert!(told.contains("only the name that is granted may stay here"), "{line}: {told}");
            fs::remove_file(&status).unwrap();
        }
        // Of as many as it likes at once, or of one under a kept name, it makes none.
        let many = place.line(&place.single(), "for n in $(seq 80); do echo > new$n || exit 1; done");
        assert!(!many.status.success(), "{many:?}");
        assert!(!place.line(&place.single(), "echo x > .bashrc").status.success());
        eventually("they are gone", || picture(&place.env.outside()) == before);
        assert!(
            place.line(&place.whole(), "echo left > new").status.success() && Path::new(&place.beside("new")).exists()
        );
    });
}

/// A file that another program has put under a twin's name meanwhile is not the call's, neither to change nor to remove.
#[test]
fn a6_a_twin_s_name_that_another_program_took_is_left() {
    matrix(Host::STRENGTHS, |target| {
        let place = SingleFile::new(target);
        let script = "echo left > new && touch $W/made && until [ -e $W/swapped ]; do sleep 0.02; done; \
                      echo changed > new; mv new rep.html; rm new; touch $W/done; until [ -e $W/over ]; do sleep 0.02; done";
        let script = script.replace("$W", &place.env.workspace().display().to_string());
        let line = format!("cd {} && {script}", place.env.outside().display());
        let mut child = place.single().command(&["/bin/sh", "-c", &line]).spawn().unwrap();
        let workspace = |name: &str| place.env.workspace().join(name);
        eventually("it is made", || workspace("made").exists());
        let new = PathBuf::from(place.beside("new"));
        fs::rename(&new, place.env.workspace().join("moved")).unwrap();
        let strangers = place.env.file_at(new, "stranger\n");
        place.env.workspace_file("swapped", "");
        eventually("it has tried", || workspace("done").exists());
        strangers.assert_contents("stranger\n");
        place.granted.assert_contents("old\n");
        place.env.workspace_file("over", "");
        assert!(child.wait().unwrap().success());
        eventually("the session is over", || true);
        strangers.assert_contents("stranger\n");
    });
}

/// Reading is as exact: the file, whatever file that is by now, and none beside it. (Below `/tmp`, which with namespaces is the
/// session's own, the kernel lets what is mounted there be read.)
#[test]
fn a8_nothing_beside_a_single_file_can_be_read() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let elsewhere = tempfile::Builder::new().prefix("callgate-test-").tempdir_in("/var/tmp").unwrap();
        env.give(elsewhere.path());
        let granted = env.file_at(elsewhere.path().join("rep.html"), "old\n");
        let theirs = env.file_at(elsewhere.path().join("theirs"), "secret\n");
        let run = env.sandbox().write(&granted);
        run.probe(&["read", granted.text()]).assert_ok();
        run.probe(&["read", theirs.text()]).assert_errno(EACCES);
        // Nor what lies deeper; that names show is as with all metadata.
        let deeper = elsewhere.path().join("sub");
        fs::create_dir(&deeper).unwrap();
        env.give(&deeper);
        run.probe(&["readdir", deeper.to_str().unwrap()]).assert_errno(EACCES);
        let again = format!("sed -i s/old/new/ {0} && cat {0} && ! cat {1}", granted.text(), theirs.text());
        let ended = run.run(&["/bin/sh", "-c", &again]);
        assert!(ended.status.success() && ended.stdout == "new\n", "{ended:?}");
        env.sandbox().write(elsewhere.path()).probe(&["read", theirs.text()]).assert_ok();
    });
}

fn callgate(env: &TestEnv, words: &[&str]) -> ProgramOutcome {
    let binary = Binaries::of_this_build().callgate().display().to_string();
    env.weakened().run(&[&[binary.as_str()], words].concat())
}

/// The tools under a manifest that grants one file, which need not be there yet, nor its directory; and under one that grants a
/// tree that the kernel writes.
#[test]
fn a8_write_and_edit_work_on_a_single_file() {
    matrix(Host::STRENGTHS, |target| {
        for read in ["\"**\"", ""] {
            let env = TestEnv::new(target);
            let theirs = env.workspace_file("theirs", "old");
            let target_directory = env.workspace().join("target");
            fs::create_dir(&target_directory).unwrap();
            env.give(&target_directory);
            let manifest = |write: &str| {
                // `write` and `edit` require all of the workspace.
                let text = format!(
                    "id = \"x\"\n[requires.fs]\nread = [\"{{workspace}}/**\", {read}]\nwrite = [{write}]\n[ceiling.fs]\nwrite = [{write}]\n"
                );
                env.workspace_file("m.toml", &text);
            };
            let call = |tool: &str, arguments: serde_json::Value| {
                callgate(&env, &["call", "--manifest", "m.toml", tool, &arguments.to_string()])
            };
            for (write, file) in [
                ("\"notes.txt\"", "notes.txt"),
                ("\"new/dir/notes.txt\"", "new/dir/notes.txt"),
                ("\"target/**\"", "target/x"),
            ] {
                manifest(write);
                for content in ["one", "two"] {
                    let ended = call("write", serde_json::json!({ "path": file, "content": content }));
                    assert!(ended.status.success(), "{write}, {read}: {ended:?}");
                }
                let ended =
                    call("edit", serde_json::json!({ "path": file, "old_string": "two", "new_string": "three" }));
                assert!(ended.status.success(), "{write}, {read}: {ended:?}");
                assert_eq!(fs::read_to_string(env.workspace().join(file)).unwrap(), "three");
                for tool in ["write", "edit"] {
                    let arguments = match tool {
                        "write" => serde_json::json!({ "path": "theirs", "content": "new" }),
                        _ => serde_json::json!({ "path": "theirs", "old_string": "old", "new_string": "new" }),
                    };
                    let ended = call(tool, arguments);
                    assert_eq!(ended.status.code(), Some(77), "{ended:?}");
                }
            }
            theirs.assert_contents("old");
            let left = fs::read_dir(env.workspace()).unwrap().map(|entry| entry.unwrap().file_name());
            assert_eq!(left.count(), 5, "m.toml, notes.txt, new, target and theirs");
            manifest("\"**\"");
            assert!(call("write", serde_json::json!({ "path": "theirs", "content": "new" })).status.success());
        }
    });
}

/// In a workspace: what a program may do by a manifest's single name. A link under that name leads nowhere else, and a name
/// whose directories are missing opens nothing above them.
#[test]
fn a2_a8_a_single_name_is_not_followed_and_widens_nothing() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (mine, theirs) = (env.workspace_file("theirs", "old"), env.file("theirs", "old"));
        let manifest = |write: &str| {
            env.workspace_file(
                "m.toml",
                &format!(
                    "id = \"x\"\n[requires.fs]\nread = [\"**\"]\nwrite = [\"{write}\"]\n[[requires.shell]]\ncmd = \"*\"\n"
                ),
            );
        };
        let run = |line: &str| callgate(&env, &["run", "--manifest", "m.toml", "--", "/bin/sh", "-c", line]);
        manifest("notes.txt");
        for to in ["theirs", theirs.text()] {
            let link = env.workspace().join("notes.txt");
            std::os::unix::fs::symlink(to, &link).unwrap();
            assert!(!run("echo new > notes.txt").status.success(), "{to}");
            mine.assert_contents("old");
            theirs.assert_contents("old");
            assert!(run("echo new > t && mv t notes.txt").status.success(), "the control: the name can be taken");
            assert!(!link.is_symlink());
            fs::remove_file(&link).unwrap();
        }
        manifest("/nowhere-to-be-found/notes.txt");
        let refused = run("true");
        assert_eq!(refused.status.code(), Some(65), "{refused:?}");
        assert!(refused.stderr.contains("/nowhere-to-be-found/notes.txt"), "{refused:?}");
        // What is a directory is no file: nothing below it is granted.
        manifest("sub");
        let sub = env.workspace().join("sub");
        fs::create_dir(&sub).unwrap();
        env.give(&sub);
        assert!(!run("echo new > sub/new").status.success() && !sub.join("new").exists());
        manifest("sub/**");
        assert!(run("echo new > sub/new").status.success(), "the control");
        env.sandbox().probe(&["read", "/nowhere-to-be-found"]).assert_errno(ENOENT);
    });
}

/// In a directory that is kept, what lies beside the file stays kept: in a tree that is granted around it, and alone. Only
/// names that say whose replacement they are can be made there.
#[test]
fn a8_a18_a_single_file_does_not_open_the_kept_directory_that_it_lies_in() {
    for directory in [".vscode", ".git/hooks", ".ssh"] {
        matrix(Host::STRENGTHS, |target| {
            let env = TestEnv::new(target);
            let kept = env.outside().join(directory);
            fs::create_dir_all(kept.join("sub")).unwrap();
            let granted = kept.join("granted");
            for file in [granted.clone(), kept.join("theirs"), kept.join("sub/file")] {
                env.file_at(file, "old\n");
            }
            for above in kept.ancestors().take_while(|above| *above != env.outside()) {
                env.give(above);
            }
            env.give(&kept.join("sub"));
            // A directory that holds keys is not granted as a whole.
            let around = (directory != ".ssh").then(|| env.sandbox().write(env.outside()).write(&granted));
            for run in std::iter::once(env.sandbox().write(&granted)).chain(around) {
                let before = picture(&env.outside());
                for act in [
                    &["write", "theirs", "new"][..],
                    &["create", "new"],
                    &["create", "granted2"],
                    &["create", "sub/new"],
                    &["create", ".granted"],
                    &["mkdir", "new"],
                    &["chmod", "theirs", "600"],
                    &["rename", "theirs", "new"],
                    &["rename", "granted", "theirs"],
                    &["symlink", "theirs", "new"],
                ] {
                    let at = |word: &str| kept.join(word).display().to_string();
                    let last = if act[0] == "write" || act[0] == "chmod" { act[2].to_owned() } else { String::new() };
                    let mut words = vec![act[0].to_owned(), at(act[1])];
                    words.extend((act.len() > 2).then(|| if last.is_empty() { at(act[2]) } else { last }));
                    run.probe(&words.iter().map(String::as_str).collect::<Vec<_>>()).assert_errno(EACCES);
                    assert_eq!(picture(&env.outside()), before, "{directory}: {act:?}");
                }
                // The control: the file itself is changed and replaced.
                let line = "cd \"$0\" && echo one > granted && cat granted > granted.new && mv granted.new granted";
                let ended = run.run(&["/bin/sh", "-c", line, kept.to_str().unwrap()]);
                assert!(ended.status.success(), "{directory}: {ended:?}");
                assert_eq!(fs::read_to_string(&granted).unwrap(), "one\n");
                fs::write(&granted, "old\n").unwrap();
            }
        });
    }
}

/// A8, A2: in `/tmp` too, of which a session with namespaces has one of its own. What lies beside a single name there, or in a
/// directory that may be listed, is not granted; then programs have `TMPDIR` alone.
#[test]
fn a8_in_tmp_nothing_is_granted_beside_a_single_name() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let top = tempfile::Builder::new().prefix("callgate-test-").tempdir_in("/tmp").unwrap();
        env.give(top.path());
        for name in ["listed", "single"] {
            fs::create_dir(top.path().join(name)).unwrap();
            env.give(&top.path().join(name));
            env.file_at(top.path().join(name).join("theirs"), "theirs\n");
        }
        let at = top.path().display().to_string();
        let binary = Binaries::of_this_build().callgate().display().to_string();
        let run = |read: &str, write: &str, line: &str| {
            let text = format!(
                "[requires]\nshell = [{{ cmd = \"*\" }}]\n[requires.fs]\nread = [\"{{workspace}}/**\", {read}]\nwrite = [{write}]\n"
            );
            let manifest = env.file("manifest.toml", &text);
            env.weakened().run(&[&binary, "run", "--manifest", manifest.text(), "--", "/bin/sh", "-c", line])
        };
        let (listed, single) = (format!("\"{at}/listed\""), format!("\"{at}/single/name\""));
        for (read, write, theirs) in [(&*listed, "", "listed/theirs"), ("", &*single, "single/theirs")] {
            let ended = run(read, write, &format!("cat {at}/{theirs}"));
            assert_eq!((ended.stdout.as_str(), ended.status.code()), ("", Some(1)), "{ended:?}");
            assert!(ended.stderr.contains("Permission denied"), "{ended:?}");
            // The controls: what is granted, and `TMPDIR`.
            let line = format!(
                "ls {at}/listed; echo new > {at}/single/name && cat {at}/single/name; cd && pwd > $TMPDIR/f && echo t"
            );
            let ended = run(&listed, &single, &line);
            assert_eq!(ended.stdout, "theirs\nnew\nt\n", "{ended:?}");
            // A name that is a directory is no reason either, though all below it may be read.
            let inner = format!("\"{at}/single/inner\"");
            fs::create_dir_all(top.path().join("single/inner")).unwrap();
            env.give(&top.path().join("single/inner"));
            let ended = run(&inner.replace("inner\"", "inner/**\""), &inner, &format!("cat {at}/single/theirs"));
            assert_eq!((ended.stdout.as_str(), ended.status.code()), ("", Some(1)), "{ended:?}");
            // With the whole tree granted it may be read, and the session has its own /tmp where it has namespaces.
            let ended =
                run(&format!("\"{at}/**\""), write, &format!("cat {at}/{theirs}; echo own > /tmp/own && cat /tmp/own"));
            let own = target.by_strength("theirs\nown\n", "theirs\n");
            assert_eq!(ended.stdout, own, "{ended:?}");
        }
    });
}
