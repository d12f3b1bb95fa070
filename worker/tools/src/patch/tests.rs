#![allow(clippy::disallowed_methods, reason = "a test runs git, and itself with a limit")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;
use crate::LinkTreatment;

/// As the supervisor does it: the names are read, become paths, and the patch is applied to those.
fn patch_with(root: &Path, mut args: Value, links: LinkTreatment) -> Result<Value, ToolError> {
    let names: PatchNames = serde_json::from_value(read_names(&args)?.data).expect("names");
    let names: Vec<HostPath> = names.all().cloned().collect();
    let paths: Vec<HostPath> = names.iter().map(|name| HostPath::from(root.join(name.as_path()))).collect();
    args[CHECKED] = serde_json::to_value(&names).expect("names");
    let ctx = ToolContext { paths: paths.clone(), links, ..ToolContext::new(paths[0].clone(), 10) };
    run(&args, &ctx).map(|output| output.data)
}

fn patch(root: &Path, text: &str, fuzz: u64) -> Result<Value, ToolError> {
    patch_with(root, json!({ "patch": text, "fuzz": fuzz }), LinkTreatment::Followed)
}

fn scratch(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, content) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(path, content).expect("a file");
    }
    dir
}

/// All files below, with what they hold and whether they are executable.
fn tree(root: &Path) -> BTreeMap<PathBuf, (Vec<u8>, bool)> {
    let mut files = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("listed") {
            let path = entry.expect("an entry").path();
            let meta = fs::symlink_metadata(&path).expect("there");
            if meta.is_dir() {
                directories.push(path);
            } else {
                let content = if meta.is_symlink() {
                    fs::read_link(&path).expect("a link").into_os_string().into_encoded_bytes()
                } else if meta.is_file() {
                    fs::read(&path).expect("a file")
                } else {
                    Vec::new()
                };
                let name = path.strip_prefix(root).expect("below").to_owned();
                files.insert(name, (content, meta.mode() & 0o100 != 0));
            }
        }
    }
    files
}

/// Whatever is refused changes nothing; returns the message.
fn refused(root: &Path, text: &str, fuzz: u64) -> String {
    let before = tree(root);
    let error = patch(root, text, fuzz).expect_err(text);
    assert_eq!(tree(root), before, "{text}");
    error.text()
}

#[test]
fn s2_6_many_files_and_hunks_at_once() {
    let dir =
        scratch(&[("a.txt", "1\n2\n3\n4\n5\n6\n7\n8\n9\n"), ("old name", "x\n"), ("gone", "y\n"), ("src/c", "c\n")]);
    let text = "From a mail\n---\n a.txt | 2 ++\n\
        diff --git a/a.txt b/a.txt\nindex 1..2 100644\n--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n-1\n+one\n 2\n@@ -8,2 +8,3 @@ x\n 8\n 9\n+10\n\
        diff --git a/old name b/new/name\nsimilarity index 50%\nrename from old name\nrename to new/name\n\
        --- a/old name\t\n+++ b/new/name\t\n@@ -1 +1 @@\n-x\n+X\n\\ No newline at end of file\n\
        diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-y\n\
        diff --git a/run.sh b/run.sh\nnew file mode 100755\n--- /dev/null\n+++ b/run.sh\n@@ -0,0 +1 @@\n+#!/bin/sh\n\
        diff --git a/empty b/empty\nnew file mode 100644\n\
        diff --git a/src/c b/src/d\nsimilarity index 100%\ncopy from src/c\ncopy to src/d\n\
        diff --git a/src/c b/src/c\nold mode 100644\nnew mode 100755\n-- \n2.47\n";
    let data = patch(dir.path(), text, 0).expect("applied");
    let actions: Vec<&str> =
        data["files"].as_array().expect("files").iter().filter_map(|file| file["action"].as_str()).collect();
    assert_eq!(actions, ["modified", "renamed", "deleted", "created", "created", "copied", "modified"]);
    assert_eq!(data["files"][1]["from"], dir.path().join("old name").to_str().expect("text"));
    let expected = [
        ("a.txt", "one\n2\n3\n4\n5\n6\n7\n8\n9\n10\n", false),
        ("empty", "", false),
        ("new/name", "X", false),
        ("run.sh", "#!/bin/sh\n", true),
        ("src/c", "c\n", true),
        ("src/d", "c\n", false),
    ];
    let expected = expected.map(|(name, content, x)| (PathBuf::from(name), (content.as_bytes().to_vec(), x)));
    assert_eq!(tree(dir.path()), BTreeMap::from(expected));
}

#[test]
fn plain_diffs_with_and_without_prefixes() {
    for header in [
        "--- f\n+++ f\n",
        "--- a/f\n+++ b/f\n",
        "--- f\t2026-01-01 00:00:00\n+++ f\t2026-01-02 00:00:00\n",
        "--- f\r\n+++ f\r\n",
    ] {
        let dir = scratch(&[("f", "x\n")]);
        patch(dir.path(), &format!("{header}@@ -1 +1 @@\n-x\n+y\n"), 0).expect(header);
        assert_eq!(fs::read_to_string(dir.path().join("f")).expect("there"), "y\n");
    }
    // A directory may be called `a`.
    let dir = scratch(&[("a/f", "x\n")]);
    patch(dir.path(), "--- a/f\n+++ a/f\n@@ -1 +1 @@\n-x\n+y", 0).expect("applied");
    patch(dir.path(), "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+n\n--- a/a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-y\n", 0)
        .expect("applied");
    assert_eq!(tree(dir.path()).into_keys().collect::<Vec<_>>(), [Path::new("new")]);
}

/// A8, A10, A16: a name leads nowhere else.
#[test]
fn x2_18_names_that_leave_the_workspace_are_refused() {
    let dir = scratch(&[("f", "x\n")]);
    let modify = "@@ -1 +1 @@\n-x\n+y\n";
    for (text, why) in [
        (format!("--- a/../f\n+++ b/../f\n{modify}"), "`..` may lead out"),
        (format!("--- /etc/passwd\n+++ /etc/passwd\n{modify}"), "absolute"),
        (format!("--- a//etc/passwd\n+++ b//etc/passwd\n{modify}"), "absolute"),
        (format!("--- a/x/./f\n+++ b/x/./f\n{modify}"), "empty or `.`"),
        (format!("--- \"a/\\056\\056/f\"\n+++ \"b/\\056\\056/f\"\n{modify}"), "`..` may lead out"),
        (format!("--- \"a/f\\000\"\n+++ \"b/f\\000\"\n{modify}"), "NUL"),
        (format!("--- \"a/f\n+++ \"b/f\n{modify}"), "quoted name"),
        (format!("--- \"a/\\777f\"\n+++ \"b/\\777f\"\n{modify}"), "quoted name"),
        ("diff --git a/f b/f\nsimilarity index 100%\nrename from f\nrename to ../g\n".to_owned(), "`..` may lead out"),
        ("diff --git a/f b/f\nsimilarity index 100%\ncopy from /etc/passwd\ncopy to g\n".to_owned(), "absolute"),
        ("diff --git a/f b/f\nsimilarity index 100%\nrename from f\nrename to /dev/null\n".to_owned(), "absolute"),
        (format!("--- a/f\n+++ b/g\n{modify}"), "different files"),
        (format!("diff --git a/f b/f\n--- a/g\n+++ b/g\n{modify}"), "different files"),
        (format!("diff --git a/f b/f\nrename from f\nrename to g\n--- a/f\n+++ b/h\n{modify}"), "different files"),
        (format!("diff --git a/f b/f\nnew file mode 100644\n--- a/f\n+++ b/f\n{modify}"), "/dev/null"),
        ("--- /dev/null\n+++ /dev/null\n@@ -0,0 +1 @@\n+x\n".to_owned(), "both names"),
        ("diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc\n\\ No newline at end of file\n".to_owned(), "a symbolic link"),
        ("diff --git a/m b/m\nnew file mode 160000\n".to_owned(), "a submodule"),
        ("diff --git a/f b/f\nold mode 100644\nnew mode 104755\n".to_owned(), "neither 100644 nor 100755"),
        ("diff --git a/b b/b\nindex 1..2 100644\nGIT binary patch\nliteral 1\n".to_owned(), "a binary file"),
        ("Binary files a/f and b/f differ\n".to_owned(), "a binary file"),
        ("diff --git a/f b/f\nindex 1..1\n".to_owned(), "changes nothing"),
        (format!("--- a/f\n+++ b/f\n{modify}--- a/f\n+++ b/f\n@@ -1 +1 @@\n-y\n+z\n"), "changed twice"),
        ("*** Begin Patch\n*** Update File: f\n@@\n-x\n+y\n*** End Patch\n".to_owned(), "*** Begin Patch"),
        ("please change f".to_owned(), "no line starts"),
        (modify.to_owned(), "without the name"),
    ] {
        let told = refused(dir.path(), &text, 3);
        assert!(told.contains(why), "{text}: {told}");
        assert!(told.contains("nothing was changed"), "{told}");
    }
    patch(dir.path(), &format!("--- \"a/\\146\"\n+++ \"b/f\"\n{modify}"), 0).expect("the control");
    assert_eq!(fs::read_to_string(dir.path().join("f")).expect("there"), "y\n");
}

#[test]
fn hunks_that_are_counted_wrongly_are_refused() {
    let dir = scratch(&[("f", "1\n2\n3\n")]);
    for hunk in [
        "@@ -1,3 +1,2 @@\n 1\n-2\n+two\n 3\n",
        "@@ -1,2 +1,2 @@\n 1\n-2\n+two\n 3\n", // git drops the last line
        "@@ -1,2 +1,2 @@\n 1\n-2\n+two\n+more\n",
        "@@ -1,4 +1,4 @@\n 1\n-2\n+two\n 3\n",
        "@@ -1,3 +1,3 @@\n 1\n2\n 3\n",
        "@@ -1,99999999999 +1 @@\n 1\n",
        "@@ -1 +1\n-1\n+2\n",
        "@@ -1 +1 @@\n 1\n",
        "@@ -0,0 +1,1 @@\n",
    ] {
        let told = refused(dir.path(), &format!("--- a/f\n+++ b/f\n{hunk}"), 3);
        assert!(told.contains("line "), "{hunk}: {told}");
    }
    patch(dir.path(), "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3\n", 0).expect("the control");
}

#[test]
fn x2_18_fuzz_leaves_out_context_where_one_place_is_left() {
    let content = "fn one() {\n    a();\n}\n\nfn two() {\n    b();\n}\n\nfn three() {\n    a();\n}\n";
    let text = "--- a/f\n+++ b/f\n@@ -4,5 +4,5 @@\n // gone\n fn two() {\n-    b();\n+    c();\n }\n // gone\n";
    let dir = scratch(&[("f", content)]);
    let told = refused(dir.path(), text, 0);
    assert!(told.contains("hunk 1 of 1 (line 3 of the patch)"), "{told}");
    assert!(told.contains("it has `// gone\\n`, and line 4 of the file is `\\n`"), "{told}");
    let data = patch(dir.path(), text, 1).expect("one line may be left out");
    assert_eq!(data["files"][0]["fuzz"], 1);
    assert_eq!(fs::read_to_string(dir.path().join("f")).expect("there"), content.replace("b()", "c()"));
    // Here two places would be left, and the nearest need not be the right one.
    let told = refused(dir.path(), "--- a/f\n+++ b/f\n@@ -9,3 +9,3 @@\n // gone\n-    a();\n+    d();\n // gone\n", 3);
    assert!(told.contains("fits on lines 2 and 10"), "{told}");
    // Nothing would be left to be found.
    refused(dir.path(), "--- a/f\n+++ b/f\n@@ -9,2 +9,3 @@\n // gone\n+    d();\n // gone\n", 50);
    assert!(patch(dir.path(), text, 0).expect_err("refused").own::<PatchError>().is_some());
}

#[test]
fn hunks_that_moved_say_by_how_much() {
    let dir = scratch(&[("f", "0\n0\n1\n2\n3\n4\n5\n")]);
    let data = patch(dir.path(), "--- a/f\n+++ b/f\n@@ -2,3 +2,3 @@\n 1\n-2\n+two\n 3\n", 0).expect("applied");
    assert_eq!(data["files"][0]["moved"], json!([[1, 1]]));
    // Of the first line and without context before it: it is the beginning that is meant.
    refused(dir.path(), "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-1\n+one\n two\n", 0);
    patch(dir.path(), "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-1\n+one\n two\n", 1)
        .expect("with fuzz, the one place counts");
}

#[test]
fn line_ends_are_the_files() {
    let text = "--- a/f\n+++ b/f\n@@ -1,2 +1,3 @@\n 1\n-2\n+two\n+three\n";
    let dir = scratch(&[("f", "1\r\n2\r\n")]);
    refused(dir.path(), text, 0);
    patch(dir.path(), text, 3).expect("applied");
    assert_eq!(fs::read_to_string(dir.path().join("f")).expect("there"), "1\r\ntwo\r\nthree\r\n");
    // All of a patch with CRLF, for a file with LF.
    let dir = scratch(&[("f", "1\n2\n")]);
    patch(dir.path(), &text.replace('\n', "\r\n"), 3).expect("applied");
    assert_eq!(fs::read_to_string(dir.path().join("f")).expect("there"), "1\ntwo\nthree\n");
    // To the byte, where the patch has them.
    let dir = scratch(&[("f", "1\r\n2\n")]);
    patch(dir.path(), "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-1\r\n+one\r\n 2\n", 0).expect("applied");
    assert_eq!(fs::read_to_string(dir.path().join("f")).expect("there"), "one\r\n2\n");
}

#[test]
fn x2_18_a_missing_file_counts_as_empty_if_that_is_asked_for() {
    let dir = scratch(&[]);
    let text = "--- a/f\n+++ b/f\n@@ -1,1 +1,2 @@\n 1\n+2\n";
    assert!(refused(dir.path(), text, 0).contains("is not there"));
    let create = |text: &str| {
        patch_with(dir.path(), json!({ "patch": text, "fuzz": 0, "create_if_missing": true }), LinkTreatment::Followed)
    };
    assert!(create(text).is_err(), "its context is not there");
    let data = create("diff --git a/d/f b/d/f\n--- a/d/f\n+++ b/d/f\n@@ -0,0 +1 @@\n+1\n").expect("made");
    assert_eq!(data["files"][0]["action"], "created");
    let told = refused(dir.path(), "--- /dev/null\n+++ b/d/f\n@@ -0,0 +1 @@\n+1\n", 0);
    assert!(told.contains("there already"), "{told}");
    fs::write(dir.path().join("d/f"), "1\n2\n").expect("a file");
    refused(dir.path(), "--- a/d/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n", 0);
    assert!(refused(dir.path(), "diff --git a/d/f b/d/f\ndeleted file mode 100644\n", 0).contains("holds more"));
}

#[test]
fn x2_18_changes_are_whole_files() {
    let dir = scratch(&[("f", "x")]);
    let changes = json!([{ "path": "f", "content": "y" }, { "path": "d/new", "content": "n" }]);
    let paths: Vec<HostPath> = ["f", "d/new"].map(|name| HostPath::from(dir.path().join(name))).into();
    let ctx = ToolContext { paths: paths.clone(), ..ToolContext::new(paths[0].clone(), 10) };
    let data = run(&json!({ "changes": changes }), &ctx).expect("written").data;
    assert_eq!((&data["files"][0]["action"], &data["files"][1]["action"]), (&json!("modified"), &json!("created")));
    assert_eq!(fs::read_to_string(dir.path().join("d/new")).expect("there"), "n");
    let twice = ToolContext { paths: vec![paths[0].clone(), paths[0].clone()], ..ctx.clone() };
    let error = run(&json!({ "changes": changes }), &twice).expect_err("one file");
    assert!(matches!(error.own(), Some(PatchError::There { .. } | PatchError::Same { .. })), "{error}");
    for args in [json!({}), json!({ "patch": "x", "changes": [] })] {
        assert!(run(&args, &ctx).expect_err("refused").own() == Some(&PatchError::Either));
    }
    assert_eq!(fs::read_to_string(dir.path().join("f")).expect("there"), "y");
}

/// S0-25: one file of several cannot be changed.
#[test]
fn s0_25_one_file_that_cannot_be_written_stops_all() {
    let dir = scratch(&[("a", "1\n"), ("b", "1\n"), ("c", "1\n")]);
    let one = |name: &str| format!("--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-1\n+2\n");
    let text = format!("{}{}{}--- /dev/null\n+++ b/d/new\n@@ -0,0 +1 @@\n+n\n", one("a"), one("b"), one("c"));
    fs::write(dir.path().join("b"), "other\n").expect("a file");
    let told = refused(dir.path(), &text, 3);
    assert!(told.contains("/b: hunk 1 of 1"), "{told}");
    assert!(!dir.path().join("d").is_dir(), "nothing was made for it");

    fs::remove_file(dir.path().join("b")).expect("there");
    nix::unistd::mkfifo(&dir.path().join("b"), nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    assert!(refused(dir.path(), &text, 3).contains("a named pipe"));

    fs::remove_file(dir.path().join("b")).expect("there");
    symlink("a", dir.path().join("b")).expect("a link");
    assert!(refused(dir.path(), &text, 3).contains("are the same file"));
    let removed = format!("{}--- a/b\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n", one("c"));
    assert!(refused(dir.path(), &removed, 3).contains("a symbolic link"));

    fs::remove_file(dir.path().join("b")).expect("there");
    fs::write(dir.path().join("b"), "1\n").expect("a file");
    fs::set_permissions(dir.path().join("b"), fs::Permissions::from_mode(0o444)).expect("chmod");
    let before = tree(dir.path());
    let error = std::thread::scope(|scope| {
        let without_capabilities = || {
            caps::clear(None, caps::CapSet::Effective).expect("capabilities can be dropped");
            patch(dir.path(), &text, 3)
        };
        scope.spawn(without_capabilities).join().expect("the thread ends").expect_err("read-only")
    });
    assert_eq!(error.errno(), Some(libc::EACCES), "{error}");
    assert_eq!(tree(dir.path()), before);

    fs::set_permissions(dir.path().join("b"), fs::Permissions::from_mode(0o640)).expect("chmod");
    patch(dir.path(), &text, 0).expect("the control");
    assert_eq!(fs::metadata(dir.path().join("b")).expect("there").mode() & 0o7777, 0o640, "modes are kept");
    assert_eq!(tree(dir.path()).len(), 4);
}

/// A change is undone where a name cannot be taken after all.
#[test]
fn s0_25_what_was_done_is_undone() {
    let dir = scratch(&[("a", "1\n"), ("b", "1\n"), ("d/new", "")]);
    let paths: Vec<HostPath> = ["a", "b", "n"].map(|name| HostPath::from(dir.path().join(name))).into();
    let mut files = PatchFiles::new(LinkTreatment::Followed);
    for path in &paths[..2] {
        files.take(path).expect("there");
    }
    let content = || After::Content { content: b"2\n".to_vec(), mode: None, executable: None, is_new: false };
    files.leave(&paths[2], content()).expect("room");
    files.leave(&paths[0], content()).expect("room");
    files.leave(&paths[1], After::Nothing).expect("room");
    // Nobody is told that `b` is another by now: a directory has its name.
    let before = tree(dir.path());
    let failing = |files: PatchFiles<'_>| {
        let aside = dir.path().join("aside");
        fs::rename(dir.path().join("b"), &aside).expect("moved");
        fs::create_dir(dir.path().join("b")).expect("made");
        let error = files.commit_unlooked().expect_err("a directory cannot be unlinked");
        fs::remove_dir(dir.path().join("b")).expect("there");
        fs::rename(&aside, dir.path().join("b")).expect("moved");
        error
    };
    let error = failing(files);
    assert!(matches!(error, ToolError::File { act: FileAct::Remove, .. }), "{error}");
    assert_eq!(tree(dir.path()), before);
}

#[test]
fn a_link_is_written_through_or_refused_as_rules_want_it() {
    let dir = scratch(&[("real", "1\n")]);
    symlink("real", dir.path().join("link")).expect("a link");
    let text = "--- a/link\n+++ b/link\n@@ -1 +1 @@\n-1\n+2\n";
    let error =
        patch_with(dir.path(), json!({ "patch": text }), LinkTreatment::Refused).expect_err("rules judge names");
    assert!(matches!(error, ToolError::ByLink { .. }), "{error}");
    assert_eq!(fs::read_to_string(dir.path().join("real")).expect("there"), "1\n");
    patch(dir.path(), text, 0).expect("the control");
    assert!(fs::symlink_metadata(dir.path().join("link")).expect("there").is_symlink());
    assert_eq!(fs::read_to_string(dir.path().join("real")).expect("there"), "2\n");
}

/// The reader that runs before the check may lie: a name that was not checked is refused.
#[test]
fn a_name_that_was_not_checked_is_refused() {
    let dir = scratch(&[("f", "1\n"), ("g", "1\n")]);
    let text = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-1\n+2\n--- a/g\n+++ b/g\n@@ -1 +1 @@\n-1\n+2\n";
    let ctx = ToolContext::new(HostPath::from(dir.path().join("f")), 10);
    let before = tree(dir.path());
    for checked in [json!(["f"]), json!([]), json!("f"), json!(["g"])] {
        let error = run(&json!({ "patch": text, CHECKED: checked }), &ctx).expect_err("not all were checked");
        assert!(matches!(error.own(), Some(PatchError::NotChecked { .. })), "{error}");
        assert_eq!(tree(dir.path()), before);
    }
}

#[test]
fn names_are_read_before_anything_else() {
    let text = "diff --git a/f b/g\nsimilarity index 100%\ncopy from f\ncopy to g\n\
        diff --git a/h b/i\nsimilarity index 100%\nrename from h\nrename to i\n\
        diff --git \"a/\\377\" \"b/\\377\"\n--- \"a/\\377\"\n+++ \"b/\\377\"\n@@ -1 +1 @@\n-1\n+2\n";
    let data = read_names(&json!({ "patch": text })).expect("read").data;
    assert_eq!(
        data,
        json!({ "read": ["f"], "change": ["h", { "b64": "/w==" }], "write": ["g", "i"], "is_more_than_an_edit": true })
    );
    let edit = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-1\n+2\n";
    let more = |text: &str| read_names(&json!({ "patch": text })).expect("read").data["is_more_than_an_edit"].clone();
    assert_eq!(more(edit), false);
    assert_eq!(more(&format!("diff --git a/f b/f\nold mode 100644\nnew mode 100755\n{edit}")), true);
    assert_eq!(more("--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n"), true);
    // What is copied may be a program.
    let copy = |mode: &str| more(&format!("diff --git a/f b/g\n{mode}similarity index 100%\ncopy from f\ncopy to g\n"));
    assert_eq!(copy(""), true);
    assert_eq!(copy("old mode 100755\nnew mode 100644\n"), false);
    let told = read_names(&json!({ "patch": "nothing" })).expect_err("no patch").to_string();
    assert!(told.starts_with("line 1 of the patch"), "{told}");
}

const IN_CHILD: &str = "CALLGATE_TEST_PATCH";

/// A full disk, or a limit, in the middle.
#[test]
fn s0_25_a_limit_in_the_middle_changes_nothing() {
    let big: String = (0..3000).map(|line| format!("+{line:060}\n")).collect();
    let text = format!("--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+2\n--- /dev/null\n+++ b/n\n@@ -0,0 +1,3000 @@\n{big}");
    if let Some(dir) = std::env::var_os(IN_CHILD) {
        let told = refused(Path::new(&dir), &text, 0);
        assert!(told.contains("write "), "{told}");
        return;
    }
    let shells: [(&[&str], &str); 2] = [
        (&["sh"], "trap '' XFSZ && ulimit -f 64 && exec \"$0\" --exact \"$1\""),
        (
            &["unshare", "-Urm", "sh"],
            "mount -t tmpfs -o size=64k none $CALLGATE_TEST_PATCH && printf '1\\n' >$CALLGATE_TEST_PATCH/a && exec \"$0\" --exact \"$1\"",
        ),
    ];
    for (wrapper, shell) in shells {
        let able = Command::new(wrapper[0]).args(&wrapper[1..]).args(["-c", "true"]).output();
        if !able.is_ok_and(|output| output.status.success()) {
            eprintln!("SKIPPED: this host cannot run {wrapper:?}");
            continue;
        }
        let dir = scratch(&[("a", "1\n")]);
        let (_, module) = module_path!().split_once("::").expect("a module of a crate");
        let output = Command::new(wrapper[0])
            .args(&wrapper[1..])
            .args(["-c", shell])
            .arg(std::env::current_exe().expect("this program"))
            .arg(format!("{module}::s0_25_a_limit_in_the_middle_changes_nothing"))
            .env(IN_CHILD, dir.path())
            .output()
            .expect("it starts");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        patch(dir.path(), &text, 0).expect("the control: with room it is applied");
    }
}

/// Any text ends in a result or an error: no panic, no hang, nothing outside.
#[test]
fn any_text_is_a_patch_or_an_error() {
    let pieces = [
        "diff --git a/f b/f\n",
        "--- a/f\n",
        "+++ b/f\n",
        "--- /dev/null\n",
        "@@ -1 +1 @@\n",
        "@@ -0,0 +1,2 @@\n",
        "-1\n",
        "+2\n",
        " \n",
        "\\ No newline\n",
        "rename from f\n",
        "rename to g\n",
        "new file mode 100644\n",
        "deleted file mode 100644\n",
        "\"",
        "\r\n",
        "\n",
        "\u{fffd}",
        "@@ -999999999,999999999 +999999999,999999999 @@\n",
        "copy from f\n",
        "copy to h\n",
        "\\",
        "diff --git \"a/f\" \"b/f\"\n",
    ];
    let mut dice = PatchDice(7);
    for _ in 0..3000 {
        let dir = (dice.roll(50) == 0).then(|| scratch(&[("f", "1\n")]));
        let text: String = (0..dice.roll(12)).map(|_| pieces[dice.roll(pieces.len())]).collect();
        match dir {
            // Some of them are applied as well.
            Some(dir) => drop(patch(dir.path(), &text, 3)),
            None => drop(parse::parse(format!("{text}\n").as_bytes())),
        }
    }
}

/// xorshift, so that each run is the same.
struct PatchDice(u64);

impl PatchDice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides.max(1) as u64).expect("small")
    }

    fn lines(&mut self, most: usize) -> Vec<String> {
        let words = ["{", "}", "", "let a = 1;", "return;", "// x", "\tfoo()", "end\r"];
        (0..self.roll(most)).map(|_| words[self.roll(words.len())].to_owned()).collect()
    }

    /// Changes a few lines.
    fn change(&mut self, lines: &mut Vec<String>) {
        for _ in 0..=self.roll(3) {
            let (at, new) = (self.roll(lines.len() + 1), format!("new {}", self.roll(1000)));
            match self.roll(3) {
                0 => lines.insert(at, new),
                1 if at < lines.len() => lines[at] = new,
                _ if at < lines.len() => drop(lines.remove(at)),
                _ => lines.push(new),
            }
        }
    }
}

type FileTree = BTreeMap<String, (Vec<String>, bool, bool)>;

fn put(root: &Path, tree: &FileTree) {
    for (name, (lines, executable, ended)) in tree {
        let path = root.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        let mut content = lines.join("\n");
        if *ended && !lines.is_empty() {
            content.push('\n');
        }
        fs::write(&path, content).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(if *executable { 0o755 } else { 0o644 })).expect("chmod");
    }
}

fn git(root: &Path, args: &[&str]) -> (bool, Vec<u8>) {
    let git = Command::new("git")
        .args(["-c", "core.fileMode=true", "-c", "core.autocrlf=false", "-c", "core.safecrlf=false"])
        .args(args)
        .current_dir(root)
        .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_SYSTEM", "/dev/null"), ("LC_ALL", "C")])
        .env("GIT_CEILING_DIRECTORIES", root.parent().map_or(OsStr::new("/"), Path::as_os_str))
        .output()
        .expect("git runs");
    (git.status.success(), git.stdout)
}

/// 500 changes of a tree as git writes them, put into the tree that they were made for or one that has changed since: the same
/// files come of it as with git, or both refuse.
#[test]
fn s2_6_without_fuzz_it_does_what_git_does() {
    let names = ["a.rs", "b c.txt", "dir/d", "dir/\u{e4}.md", "e\"f", "dir/sub/g\th"];
    let mut dice = PatchDice(0x5eed);
    let repository = scratch(&[]);
    assert!(git(repository.path(), &["init", "-q"]).0);
    let (mut applied, mut refusals) = (0, 0);
    for case in 0..500 {
        let mut before = FileTree::new();
        for name in names {
            if dice.roll(4) > 0 {
                let lines = dice.lines(40);
                before.insert(name.to_owned(), (lines, dice.roll(4) == 0, dice.roll(4) > 0));
            }
        }
        let mut after = before.clone();
        for name in before.keys() {
            match dice.roll(9) {
                0 => drop(after.remove(name)),
                1 => {
                    let mut file = after.remove(name).expect("there");
                    if dice.roll(2) == 0 {
                        dice.change(&mut file.0);
                    }
                    after.insert(format!("moved/{name}"), file);
                }
                2 => drop(after.insert(format!("copy of {name}"), after[name].clone())),
                3 => after.get_mut(name).expect("there").1 ^= true,
                4 => {}
                _ => {
                    let file = after.get_mut(name).expect("there");
                    dice.change(&mut file.0);
                    file.2 = dice.roll(4) > 0;
                }
            }
        }
        if dice.roll(3) == 0 {
            after.insert("brand new".to_owned(), (dice.lines(5), false, dice.roll(2) == 0));
        }
        for entry in fs::read_dir(repository.path()).expect("listed") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.ends_with(".git") {
                fs::remove_dir_all(path).expect("removed");
            } else if path.is_file() {
                fs::remove_file(path).expect("removed");
            }
        }
        put(repository.path(), &before);
        assert!(git(repository.path(), &["add", "-A"]).0);
        let (_, id) = git(repository.path(), &["write-tree"]);
        let id = String::from_utf8(id).expect("an id").trim().to_owned();
        for name in before.keys() {
            fs::remove_file(repository.path().join(name)).expect("removed");
        }
        put(repository.path(), &after);
        assert!(git(repository.path(), &["add", "-A"]).0);
        let (_, diff) =
            git(repository.path(), &["diff-index", "--cached", "-p", "-M", "-C", "--find-copies-harder", &id]);
        let diff = String::from_utf8(diff).expect("git quotes what is not ASCII");
        if diff.is_empty() {
            continue;
        }
        // In half of the cases somebody else has been at work since.
        if dice.roll(2) == 0 {
            for (_, file) in before.iter_mut() {
                if dice.roll(3) == 0 {
                    dice.change(&mut file.0);
                }
            }
            if dice.roll(10) == 0 {
                before.insert("brand new".to_owned(), (vec!["mine".to_owned()], false, true));
            }
            if dice.roll(10) == 0 {
                before.pop_first();
            }
        }
        let (theirs, ours) = (scratch(&[]), scratch(&[]));
        put(theirs.path(), &before);
        put(ours.path(), &before);
        let unchanged = tree(ours.path());
        let file = repository.path().join(".git/the.patch");
        fs::write(&file, &diff).expect("a file");
        let (agrees, _) = git(theirs.path(), &["apply", "--whitespace=nowarn", file.to_str().expect("text")]);
        let result = patch(ours.path(), &diff, 0);
        assert_eq!(result.is_ok(), agrees, "case {case}: {result:?}\n{diff}");
        assert_eq!(tree(ours.path()), tree(theirs.path()), "case {case}\n{diff}");
        if agrees {
            applied += 1;
        } else {
            refusals += 1;
            assert_eq!(tree(ours.path()), unchanged, "case {case}");
        }
    }
    assert!(applied > 250 && refusals > 50, "{applied} applied, {refusals} refused");
}
