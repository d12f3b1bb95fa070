//! Against git itself, byte for byte, and against repositories that mean harm.
#![allow(clippy::unwrap_used, reason = "a failing test may stop")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use callgate_policy::failure::ErrorCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::super::{FileKind, ToolContext, ToolError, ToolResult, run};
use super::GitError;

/// A repository in a directory of its own.
struct TestRepository {
    directory: TempDir,
}

impl TestRepository {
    fn new() -> Self {
        let place = Self { directory: TempDir::new().unwrap() };
        place.git(&["init", "-q", "-b", "main"]);
        place
    }

    fn top(&self) -> &Path {
        self.directory.path()
    }

    /// Runs git as nobody in particular.
    fn git_in(directory: &Path, args: &[&str]) -> String {
        let mut git = Command::new("git");
        let empty =
            [("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_SYSTEM", "/dev/null"), ("GIT_OPTIONAL_LOCKS", "0")];
        let who = ["AUTHOR", "COMMITTER"]
            .map(|who| [("NAME", "a"), ("EMAIL", "a@b.c")].map(|(key, value)| (who, key, value)));
        git.current_dir(directory).args(args).env_clear().env("PATH", "/usr/bin:/bin").envs(empty);
        for (who, key, value) in who.as_flattened() {
            git.env(format!("GIT_{who}_{key}"), value);
        }
        let ended = git.output().unwrap();
        assert!(ended.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&ended.stderr));
        String::from_utf8_lossy(&ended.stdout).into_owned()
    }

    fn git(&self, args: &[&str]) -> String {
        Self::git_in(self.top(), args)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.top().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn commit(&self) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", "one"]);
    }

    fn context(&self, path: &str) -> ToolContext {
        let path = self.top().join(path).into();
        let mut ctx = ToolContext::new(path, 200 * 1024);
        ctx.paths.push(self.top().into());
        ctx
    }

    fn status(&self) -> ToolResult {
        run("git_status", &json!({}), &self.context("")).unwrap()
    }

    fn diff(&self, args: &Value) -> ToolResult {
        run("git_diff", args, &self.context("")).unwrap()
    }

    /// Both say what git says.
    #[track_caller]
    fn is_as_git_says(&self) {
        let ours = self.status();
        assert_eq!(content(&ours), self.git(&["status", "--porcelain=v1", "-b"]));
        self.diffs_as_git();
    }

    #[track_caller]
    fn diffs_as_git(&self) {
        for (args, words) in [
            (json!({}), &["diff"][..]),
            (json!({ "staged": true }), &["diff", "--staged"]),
            (json!({ "context": 0 }), &["diff", "-U0"]),
            (json!({ "context": 50, "staged": true }), &["diff", "-U50", "--staged"]),
        ] {
            let mut words = words.to_vec();
            words.push("--no-ext-diff");
            assert_eq!(content(&self.diff(&args)), self.git(&words), "{words:?}");
        }
    }

    /// Everything in it: names, contents, times.
    fn all(&self) -> Vec<(PathBuf, Vec<u8>, std::time::SystemTime)> {
        let mut all = Vec::new();
        let mut left = vec![self.top().to_owned()];
        while let Some(at) = left.pop() {
            for entry in fs::read_dir(at).unwrap().map(Result::unwrap) {
                let about = entry.metadata().unwrap();
                let bytes = if about.is_file() { fs::read(entry.path()).unwrap() } else { Vec::new() };
                all.push((entry.path(), bytes, about.modified().unwrap()));
                if about.is_dir() {
                    left.push(entry.path());
                }
            }
        }
        all.sort();
        all
    }
}

fn content(output: &ToolResult) -> &str {
    output.data["content"].as_str().unwrap()
}

/// S2-14, S2-15, X2-18: what git prints, of all that can become of a file.
#[test]
fn s2_14_s2_15_what_git_prints() {
    let place = TestRepository::new();
    place.is_as_git_says();
    let lines: String = (1..=60).map(|n| format!("fn line{n}() {{\n    {n}\n}}\n")).collect();
    for name in
        ["plain", "deleted", "removed", "moved", "touched", "mode", "kind", "dir/deep/file", "with blank", "ümlaut\t"]
    {
        place.write(name, &format!("{name}\n{lines}"));
    }
    place.write(".gitignore", "ignored\n*.o\n");
    place.write("binary", "a\0b");
    place.write("no newline", "text");
    symlink("plain", place.top().join("link")).unwrap();
    place.is_as_git_says();
    place.commit();
    place.is_as_git_says();

    place.write(
        "plain",
        &format!("plain\n{}", lines.replace("    7\n", "    seven\n").replace("    40\n", "    41\n    42\n")),
    );
    fs::remove_file(place.top().join("deleted")).unwrap();
    place.git(&["rm", "-q", "removed"]);
    place.git(&["mv", "moved", "has moved"]);
    place.write("has moved", &format!("moved\n{lines}more\n"));
    place.git(&["add", "has moved"]);
    place.write("touched", &format!("touched\n{lines}"));
    fs::set_permissions(place.top().join("mode"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_file(place.top().join("kind")).unwrap();
    symlink("plain", place.top().join("kind")).unwrap();
    place.write("with blank", "other\n");
    place.write("ümlaut\t", "other\n");
    place.write("binary", "a\0c");
    place.write("no newline", "other");
    fs::remove_file(place.top().join("link")).unwrap();
    symlink("elsewhere", place.top().join("link")).unwrap();
    place.write("dir/deep/new", "new\n");
    place.write("other/deep/new", "new\n");
    place.write("staged", "staged\n");
    place.git(&["add", "staged"]);
    place.write("staged", "staged\nand more\n");
    place.write("to come", "to come\n");
    place.git(&["add", "-N", "to come"]);
    place.write("ignored", "");
    place.write("main.o", "");
    let name = place.top().join(OsStr::from_bytes(b"no text \xff"));
    fs::write(name, "").unwrap();
    place.is_as_git_says();
    place.git(&["add", "-A"]);
    place.is_as_git_says();

    let ours = place.status();
    let entries = ours.data["entries"].as_array().unwrap();
    let of = |name: &str| entries.iter().find(|entry| entry["path"] == name).unwrap().clone();
    assert_eq!(of("has moved"), json!({ "path": "has moved", "from": "moved", "index": "R", "worktree": " " }));
    assert_eq!(of("no text \u{fffd}")["path_b64"], "bm8gdGV4dCD/");
    assert_eq!((&ours.data["clean"], &ours.data["branch"]["name"]), (&json!(false), &json!("main")));
    assert_eq!(ours.data["branch"]["commit"].as_str().unwrap(), place.git(&["rev-parse", "HEAD"]).trim());
    let staged = place.diff(&json!({ "staged": true }));
    let files = staged.data["files"].as_array().unwrap();
    let plain = files.iter().find(|file| file["path"] == "plain").unwrap();
    assert_eq!(*plain, json!({ "path": "plain", "status": "modified", "added": 3, "removed": 2 }));
}

/// S2-14: branches that follow others, and heads on none.
#[test]
fn s2_14_branches() {
    let place = TestRepository::new();
    place.commit();
    place.git(&["config", "remote.origin.url", "https://example.com/x"]);
    place.git(&["config", "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*"]);
    place.git(&["config", "branch.main.remote", "origin"]);
    place.git(&["config", "branch.main.merge", "refs/heads/main"]);
    place.is_as_git_says();
    assert_eq!(place.status().data["branch"]["gone"], true);
    place.git(&["update-ref", "refs/remotes/origin/main", "HEAD"]);
    place.is_as_git_says();
    place.commit();
    place.is_as_git_says();
    place.git(&["branch", "ours"]);
    place.git(&["reset", "-q", "--hard", "HEAD~1"]);
    place.git(&["update-ref", "refs/remotes/origin/main", "ours"]);
    place.is_as_git_says();
    place.git(&["commit", "-q", "--allow-empty", "-m", "another"]);
    place.is_as_git_says();
    let branch = &place.status().data["branch"];
    assert_eq!(
        (&branch["ahead"], &branch["behind"], &branch["upstream"]),
        (&json!(1), &json!(1), &json!("origin/main"))
    );
    place.git(&["checkout", "-q", "-b", "local", "--track", "ours"]);
    place.is_as_git_says();
    place.git(&["checkout", "-q", "--detach"]);
    place.is_as_git_says();
    place.git(&["pack-refs", "--all"]);
    place.git(&["gc", "-q"]);
    place.is_as_git_says();
}

/// S2-14: files that two sides have changed.
#[test]
fn s2_14_conflicts() {
    let place = TestRepository::new();
    for name in ["both", "ours", "theirs"] {
        place.write(name, "one\n");
    }
    place.commit();
    place.git(&["checkout", "-q", "-b", "side"]);
    place.write("both", "side\n");
    place.write("ours", "side\n");
    place.write("new", "side\n");
    fs::remove_file(place.top().join("theirs")).unwrap();
    place.commit();
    place.git(&["checkout", "-q", "main"]);
    place.write("both", "main\n");
    place.write("theirs", "main\n");
    place.write("new", "main\n");
    fs::remove_file(place.top().join("ours")).unwrap();
    place.commit();
    let merged = Command::new("git").current_dir(place.top()).args(["merge", "-q", "side"]).output().unwrap();
    assert!(!merged.status.success());
    assert_eq!(content(&place.status()), place.git(&["status", "--porcelain=v1", "-b"]));
    let staged = place.diff(&json!({ "staged": true }));
    assert_eq!(content(&staged), place.git(&["diff", "--staged"]));
    assert!(content(&place.diff(&json!({}))).contains("* Unmerged path both\n"));
}

/// S2-14, S2-15: a part of the tree, found from below; another working tree; a submodule.
#[test]
fn s2_14_parts_and_other_working_trees() {
    let place = TestRepository::new();
    place.write("a/file", "one\n");
    place.write("b/[x]*", "one\n");
    place.write("b/xx", "one\n");
    place.commit();
    for name in ["a/file", "b/[x]*", "b/xx"] {
        place.write(name, "two\n");
    }
    for part in ["a", "b/[x]*", "b", "a/file"] {
        let status = run("git_status", &json!({}), &place.context(part)).unwrap();
        let literal = format!(":(literal){part}");
        assert_eq!(content(&status), place.git(&["status", "--porcelain=v1", "-b", "--", &literal]), "{part}");
        let diff = run("git_diff", &json!({}), &place.context(part)).unwrap();
        assert_eq!(content(&diff), place.git(&["diff", "--", &literal]), "{part}");
    }
    place.git(&["worktree", "add", "-q", "other"]);
    place.write("other/a/file", "three\n");
    let status = run("git_status", &json!({}), &place.context("other")).unwrap();
    assert_eq!(
        content(&status),
        TestRepository::git_in(&place.top().join("other"), &["status", "--porcelain=v1", "-b"])
    );
    assert!(content(&status).contains(" M a/file"), "{status:?}");

    let outer = TestRepository::new();
    let inner = place.top().display().to_string();
    outer.git(&["-c", "protocol.file.allow=always", "submodule", "add", "-q", &inner, "sub"]);
    outer.commit();
    outer.is_as_git_says();
    TestRepository::git_in(&outer.top().join("sub"), &["commit", "-q", "--allow-empty", "-m", "two"]);
    outer.is_as_git_says();
    assert!(content(&outer.status()).contains(" M sub\n"));
}

/// S2-14: lines that end as on other systems, as the repository's settings and attributes say.
#[test]
fn s2_14_ends_of_lines() {
    let place = TestRepository::new();
    place.write(".gitattributes", "*.txt text\n*.bin -text\n");
    place.write("a.txt", "one\ntwo\n");
    place.write("b.bin", "one\ntwo\n");
    place.commit();
    place.write("a.txt", "one\r\ntwo\r\n");
    place.write("b.bin", "one\r\ntwo\r\n");
    place.is_as_git_says();
    let diff = place.diff(&json!({}));
    assert!(content(&diff).contains("a/b.bin") && !content(&diff).contains("a/a.txt"), "{diff:?}");
}

/// F4, F10, A18, C5: whatever a repository configures, nothing is started, nothing is read elsewhere, nothing is written.
#[test]
fn f4_f10_nothing_that_a_repository_configures_is_run() {
    let place = TestRepository::new();
    let ran = place.top().join("ran");
    let program = place.write("program", &format!("#!/bin/sh\ntouch {}\ncat\n", ran.display()));
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let program = program.display().to_string();
    place.write("tracked", "one\n");
    place.write(".gitattributes", "tracked diff=evil filter=evil\n");
    place.commit();
    let elsewhere = TempDir::new().unwrap();
    fs::write(elsewhere.path().join("tracked"), "elsewhere\n").unwrap();
    fs::write(elsewhere.path().join("ignore"), "new\n").unwrap();
    fs::write(elsewhere.path().join("include"), format!("[core]\nfsmonitor = {program}\n")).unwrap();
    let at = |name: &str| elsewhere.path().join(name).display().to_string();
    for hook in ["post-index-change", "fsmonitor-watchman", "pre-auto-gc"] {
        let hook = place.write(&format!(".git/hooks/{hook}"), &format!("#!/bin/sh\ntouch {}\n", ran.display()));
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let settings = format!(
        "[core]\nfsmonitor = {program}\npager = {program}\nhooksPath = {hooks}\nsshCommand = {program}\neditor = {program}\n\
         excludesFile = {ignore}\nattributesFile = {ignore}\nuntrackedCache = true\n\
         [diff]\nexternal = {program}\n[diff \"evil\"]\ncommand = {program}\ntextconv = {program}\n\
         [filter \"evil\"]\nclean = {program}\nsmudge = {program}\nprocess = {program}\nrequired = true\n\
         [alias]\nstatus = !{program}\ndiff = !{program}\n[pager]\nstatus = {program}\ndiff = {program}\n\
         [credential]\nhelper = !{program}\n[gpg]\nprogram = {program}\n[interactive]\ndiffFilter = {program}\n\
         [include]\npath = {include}\n[status]\nsubmoduleSummary = true\n",
        hooks = at(""),
        ignore = at("ignore"),
        include = at("include"),
    );
    let config = fs::read_to_string(place.top().join(".git/config")).unwrap();
    place.write(".git/config", &format!("{config}{settings}"));
    place.write("tracked", "two\n");
    place.write("new", "");
    // The control: git runs some of it.
    let control = Command::new("git").current_dir(place.top()).args(["--no-pager", "diff"]).output().unwrap();
    assert!(ran.exists(), "git runs what is configured: {control:?}");
    fs::remove_file(&ran).unwrap();

    let before = place.all();
    let status = place.status();
    assert_eq!(content(&status), "## main\n M tracked\n?? new\n", "what excludesFile names is not read");
    let diff = place.diff(&json!({}));
    assert!(content(&diff).contains("-one\n+two\n"), "{diff:?}");
    place.diff(&json!({ "staged": true }));
    assert!(!ran.exists());
    assert!(place.all() == before, "nothing was changed, the index among it");

    // A working tree elsewhere.
    place.write(".git/config", &format!("{config}\tworktree = {}\n", at("")));
    assert_eq!(content(&place.status()), "## main\n M tracked\n?? new\n", "the working tree is where `.git` is");
}

/// S2-14: what is no repository, and where none is looked for.
#[test]
fn s2_14_a_repository_above_the_workspace_is_not_looked_for() {
    let place = TestRepository::new();
    place.write("inside/file", "");
    let mut ctx = place.context("inside");
    assert!(run("git_status", &json!({}), &ctx).is_ok(), "the control");
    ctx.paths = vec![ctx.path.clone(), ctx.path.clone()];
    let error = run("git_status", &json!({}), &ctx).unwrap_err();
    assert!(matches!(error.own(), Some(GitError::NoRepository { .. })), "{error}");
    assert_eq!(error.code(), ErrorCode::NotFound);
    // F1: one without a working tree under any name is none either.
    let bare = place.top().join("bare");
    place.git(&["init", "-q", "--bare", "bare"]);
    let ctx = ToolContext::new(bare.into(), 1000);
    assert!(matches!(run("git_diff", &json!({}), &ctx).expect_err("none").own(), Some(GitError::NoRepository { .. })));
}

/// A file that would keep a reader waiting is refused, wherever it is; what is too long is not read.
#[test]
fn what_would_block_is_refused() {
    for name in [
        ".git/HEAD",
        ".git/index",
        ".git/config",
        ".git/packed-refs",
        ".git/refs/heads/main",
        ".git/objects/ab/cd",
        ".git/info/exclude",
        ".gitignore",
        ".gitattributes",
        "deep/.gitignore",
        ".gitmodules",
    ] {
        let place = TestRepository::new();
        place.write("deep/file", "");
        place.commit();
        let path = place.top().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        drop(fs::remove_file(&path));
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for tool in ["git_status", "git_diff"] {
            let error = run(tool, &json!({}), &place.context("")).unwrap_err();
            assert!(matches!(error, ToolError::NotRegular { what: FileKind::Fifo, .. }), "{name}: {error}");
        }
    }
    // A file that was tracked is another thing now: that is said, and nothing is opened.
    let place = TestRepository::new();
    let path = place.write("file", "text\n");
    place.commit();
    fs::remove_file(&path).unwrap();
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(content(&place.status()), "## main\n T file\n");
    let diff = place.diff(&json!({}));
    assert_eq!(diff.data["files"][0]["unreadable"], "it is no regular file", "{diff:?}");
}

/// X2-18: of 40,000 characters the rest is kept; a long content is not compared.
#[test]
fn x2_18_bounds() {
    let place = TestRepository::new();
    let lines: String = (0..10_000).map(|n| format!("line {n}\n")).collect();
    place.write("long", "");
    place.write("huge", "");
    place.commit();
    place.write("long", &lines);
    let huge = fs::File::create(place.top().join("huge")).unwrap();
    huge.set_len(1 << 40).unwrap();
    let diff = place.diff(&json!({}));
    assert!(diff.truncated && !diff.lost);
    let head = diff.data["head"].as_str().unwrap();
    assert_eq!(head.len(), 40_000);
    let all = format!("{head}{}", String::from_utf8(diff.rest).unwrap());
    assert!(all.starts_with("diff --git a/huge b/huge\n"), "{head}");
    assert!(all.contains("Binary files a/huge and b/huge differ\n") && all.ends_with("+line 9999\n"));
    let error = run("git_diff", &json!({ "context": "3" }), &place.context("")).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InputInvalid);
}

/// Where only parts are granted, nothing is told of the others, nor of a repository whose objects are not granted.
#[test]
fn only_what_is_granted_is_told() {
    let place = TestRepository::new();
    for name in ["src/a", "secret/b"] {
        place.write(name, "one\n");
    }
    place.commit();
    for name in ["src/a", "secret/b", "secret/c", "src/new"] {
        place.write(name, "two\n");
    }
    let region = |directory: &str| {
        let directory = place.top().join(directory).into();
        callgate_policy::pattern::PathPattern::subtree(&directory).unwrap().into()
    };
    let mut ctx = place.context("");
    ctx.within = vec![region("src"), region(".git")];
    let status = run("git_status", &json!({}), &ctx).unwrap();
    assert_eq!(content(&status), "## main\n M src/a\n?? src/new\n");
    let diff = run("git_diff", &json!({}), &ctx).unwrap();
    assert!(content(&diff).contains("src/a") && !content(&diff).contains("secret"), "{diff:?}");
    ctx.within = vec![region("src")];
    let error = run("git_status", &json!({}), &ctx).unwrap_err();
    assert_eq!(error.errno(), Some(libc::EACCES), "{error}");
}

/// Objects come from granted directories alone, whatever names others: an alternate, an alternate's alternate, or a link.
#[test]
fn objects_elsewhere_are_granted_like_the_others() {
    let place = TestRepository::new();
    let [public, private] = ["pub", "private"].map(|name| place.top().join(name));
    for directory in [&public, &private] {
        fs::create_dir(directory).unwrap();
        TestRepository::git_in(directory, &["init", "-q", "-b", "main"]);
    }
    fs::write(private.join("key"), "TOP-SECRET\n").unwrap();
    TestRepository::git_in(&private, &["add", "key"]);
    let id = TestRepository::git_in(&private, &["rev-parse", ":key"]).trim().to_owned();
    TestRepository::git_in(&public, &["update-index", "--add", "--cacheinfo", &format!("100644,{id},key")]);
    let region =
        |directory: &Path| callgate_policy::pattern::PathPattern::subtree(&directory.to_owned().into()).unwrap().into();
    let diff = |granted: &[&Path]| {
        let mut ctx = place.context("pub");
        ctx.within = granted.iter().map(|directory| region(directory)).collect();
        run("git_diff", &json!({ "staged": true }), &ctx)
    };
    let is_refused = |what: &str| {
        let shown = diff(&[&public, &private]).unwrap();
        assert!(content(&shown).contains("+TOP-SECRET"), "the control, {what}: {shown:?}");
        let error = diff(&[&public]).unwrap_err();
        assert_eq!(error.errno(), Some(libc::EACCES), "{what}: {error}");
    };
    let without = diff(&[&public, &private]).unwrap();
    assert!(!content(&without).contains("SECRET"), "the object is not there: {without:?}");

    let list = public.join(".git/objects/info/alternates");
    let secret = private.join(".git/objects");
    for named in
        [secret.display().to_string(), "../../../private/.git/objects".to_owned(), format!("# a\n{secret:?}\n")]
    {
        fs::write(&list, &named).unwrap();
        is_refused(&named);
    }
    let between = public.join("between");
    fs::create_dir_all(between.join("info")).unwrap();
    fs::write(&list, between.display().to_string()).unwrap();
    fs::write(between.join("info/alternates"), secret.display().to_string()).unwrap();
    is_refused("an alternate's alternate");
    fs::write(between.join("info/alternates"), "").unwrap();
    symlink(secret.join(&id[..2]), between.join(&id[..2])).unwrap();
    is_refused("a link in an alternate");
    fs::remove_file(&list).unwrap();
    symlink(secret.join(&id[..2]), public.join(".git/objects").join(&id[..2])).unwrap();
    is_refused("a link to a directory");
    fs::remove_file(public.join(".git/objects").join(&id[..2])).unwrap();
    fs::create_dir(public.join(".git/objects").join(&id[..2])).unwrap();
    let object = format!("{}/{}", &id[..2], &id[2..]);
    symlink(secret.join(&object), public.join(".git/objects").join(&object)).unwrap();
    is_refused("a link to a file");
    fs::rename(public.join(".git/objects"), place.top().join("own")).unwrap();
    symlink(&secret, public.join(".git/objects")).unwrap();
    is_refused("a link in place of the objects");

    fs::remove_file(public.join(".git/objects")).unwrap();
    fs::rename(place.top().join("own"), public.join(".git/objects")).unwrap();
    fs::remove_dir_all(public.join(".git/objects").join(&id[..2])).unwrap();
    nix::unistd::mkfifo(&between.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::write(&list, between.display().to_string()).unwrap();
    for granted in [&[][..], &[public.as_path()]] {
        let error = diff(granted).unwrap_err();
        assert!(matches!(error, ToolError::NotRegular { what: FileKind::Fifo, .. }), "{error}");
    }
}

/// A rename across what is granted tells only the end that is granted: an addition, or a deletion.
#[test]
fn a_rename_tells_nothing_of_its_other_end() {
    let place = TestRepository::new();
    place.write("priv/key", &"a line that stays\n".repeat(30));
    place.commit();
    place.git(&["mv", "priv/key", "here"]);
    place.write("here", &format!("one more\n{}", "a line that stays\n".repeat(30)));
    place.git(&["add", "here"]);
    let look = |granted: &[&str]| {
        let mut ctx = place.context("");
        let region = |name: &&str| {
            callgate_policy::pattern::PathPattern::subtree(&place.top().join(name).into()).unwrap().into()
        };
        ctx.within = granted.iter().map(region).collect();
        let status = run("git_status", &json!({}), &ctx).unwrap();
        let diff = run("git_diff", &json!({ "staged": true }), &ctx).unwrap();
        (content(&status).to_owned(), content(&diff).to_owned(), status.data, diff.data)
    };
    let (status, diff, ..) = look(&[]);
    assert_eq!(status, "## main\nR  priv/key -> here\n", "the control");
    assert!(diff.contains("rename from priv/key") && diff.contains("+one more\n a line"), "the control: {diff}");
    let (status, diff, ..) = look(&[".git", "here", "priv"]);
    assert!(status.contains("R  priv/key") && diff.contains("rename from"), "{status}{diff}");

    let (status, diff, entries, files) = look(&[".git", "here"]);
    assert_eq!(status, "## main\nA  here\n");
    assert!(diff.contains("new file mode 100644\n") && diff.contains("+one more\n+a line that stays\n"), "{diff}");
    assert!(!diff.contains("priv") && !entries.to_string().contains("priv") && !files.to_string().contains("priv"));
    let (status, diff, entries, files) = look(&[".git", "priv"]);
    assert_eq!(status, "## main\nD  priv/key\n");
    assert!(diff.contains("deleted file mode 100644\n") && diff.contains("-a line that stays\n"), "{diff}");
    for told in [diff, entries.to_string(), files.to_string()] {
        assert!(!told.contains("here") && !told.contains("one more"), "{told}");
    }
}
