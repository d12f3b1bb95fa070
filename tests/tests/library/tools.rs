//! The file tools in a session: what their results have no room for, who may run beside whom, and that what they find is what
//! ripgrep finds.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use callgate::policy::ceiling::Ceiling;
use callgate::policy::effective::Source;
use callgate::policy::requirement::RequirementSet;
use callgate::{Launcher, Outcome, ResultEnvelope, Session, SessionSpec, StrengthChoice, Supervisor};
use serde_json::{Value, json};

use super::{STRENGTHS, callgate, in_sessions, output, until};

async fn data(session: &Session, tool: &str, arguments: Value) -> Value {
    let result = session.call(tool, arguments.clone()).await;
    assert_eq!(result.kind, Outcome::Output, "{tool} {arguments}: {result:?}");
    result.data.unwrap()
}

async fn error(session: &Session, tool: &str, arguments: Value) -> ResultEnvelope {
    let result = session.call(tool, arguments.clone()).await;
    assert_eq!(result.kind, Outcome::Error, "{tool} {arguments}: {result:?}");
    result
}

async fn open(supervisor: &Supervisor, strength: StrengthChoice, workspace: &Path) -> Session {
    supervisor
        .open(SessionSpec::developer(workspace).strength(strength).mode(callgate::policy::mode::Mode::Yolo))
        .await
        .unwrap()
}

fn supervisor() -> Supervisor {
    Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap()
}

/// Makes the workspace an ordinary user's, if this is root: then that user's workers do the work.
fn give_away(workspace: &Path) {
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        let mut all = vec![workspace.to_owned()];
        while let Some(path) = all.pop() {
            std::os::unix::fs::lchown(&path, Some(4242), Some(4242)).unwrap();
            if fs::symlink_metadata(&path).unwrap().is_dir() {
                all.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
    }
}

// ---- what results have no room for -------------------------------------------------------------------------------------

/// S0-44, S0-46, S0-48, C-15, C-27: at n entries a result is whole; at n + 1 its first part is the list `head` and the rest in a
/// file that `read` and programs of the session can read.
#[test]
fn s0_44_s0_46_s0_48_c_15_c_27_lists_are_cut_at_their_limit() {
    in_sessions(async |session, workspace| {
        for (tool, list, most, arguments) in [
            ("grep", "matches", 200, json!({ "pattern": "^needle" })),
            ("glob", "paths", 1000, json!({ "pattern": "n*", "path": "many" })),
        ] {
            fs::create_dir_all(workspace.join("many")).unwrap();
            let name = |n: usize| workspace.join(format!("many/n{n:04}"));
            (0..most).for_each(|n| fs::write(name(n), "needle\n").unwrap());
            let whole = session.call(tool, arguments.clone()).await;
            assert_eq!(whole.data.unwrap()[list].as_array().unwrap().len(), most);
            assert_eq!((whole.metadata.truncated, whole.metadata.output_path), (None, None));

            fs::write(name(most), "needle\n").unwrap();
            let cut = session.call(tool, arguments.clone()).await;
            let (data, metadata) = (cut.data.unwrap(), cut.metadata);
            assert_eq!(data["head"].as_array().unwrap().len(), most, "C-27: the same list, cut short");
            assert!(data.get("rest_lost").is_none() && data.get(list).is_none(), "{tool}");
            assert_eq!(metadata.truncated, Some(true));
            let path = metadata.output_path.unwrap();
            let read = data_of_read(session, &path).await;
            let rest: Vec<Value> = read.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let last = name(most).canonicalize().unwrap();
            let expected = match tool {
                "glob" => json!(last),
                _ => json!({ "path": last, "line": 1, "text": "needle", "before": [], "after": [] }),
            };
            assert_eq!(rest, [expected], "{tool}: an entry to a line");
            assert_eq!(output(session, &format!("cat '{path}'")).await, read, "a program of the session reads it too");
            fs::remove_dir_all(workspace.join("many")).unwrap();
        }
    });
}

async fn data_of_read(session: &Session, path: &str) -> String {
    data(session, "read", json!({ "path": path })).await["content"].as_str().unwrap().to_owned()
}

/// S0-44, S0-48: `bash` shows 200 KB; the rest is in the file, to the byte, and ranges of it can be read. A character that the
/// limit would cut is all in the rest.
#[test]
fn s0_44_s0_48_the_output_of_bash_is_cut_at_its_limit() {
    const MOST: usize = 200 * 1024;
    in_sessions(async |session, _workspace| {
        let whole = session.call("bash", json!({ "command": format!("yes x | tr -d '\\n' | head -c {MOST}") })).await;
        assert_eq!(whole.data.unwrap()["output"], "x".repeat(MOST));
        assert_eq!((whole.metadata.truncated, whole.metadata.output_path), (None, None));
        let less = MOST - 1;
        let command = format!("yes x | tr -d '\\n' | head -c {less}; printf 'ü'; printf 'end\\n' >&2; exit 3");
        let cut = session.call("bash", json!({ "command": command })).await;
        let (data_, metadata) = (cut.data.unwrap(), cut.metadata);
        assert_eq!(data_["head"], "x".repeat(less));
        assert_eq!(data_["exit_code"], 3, "the rest of the shape is there");
        let path = metadata.output_path.unwrap();
        assert_eq!(data_of_read(session, &path).await, "üend\n");
        let part = data(session, "read", json!({ "path": path, "byte_offset": 2, "byte_length": 3 })).await;
        assert_eq!(part["content"], "end");
        // One byte more than the limit, and nothing else.
        let more = MOST + 1;
        let cut = session.call("bash", json!({ "command": format!("yes x | tr -d '\\n' | head -c {more}") })).await;
        assert_eq!(cut.data.unwrap()["head"], "x".repeat(MOST));
        assert_eq!(data_of_read(session, &cut.metadata.output_path.unwrap()).await, "x");
    });
}

/// A session's files may together take so much; what is beyond is told to be lost, and the program ends by itself.
#[test]
fn a_flood_of_output_ends_at_the_quota_and_is_told() {
    in_sessions(async |session, _workspace| {
        let flood = session
            .call("bash", json!({ "command": "head -c 70000000 /dev/zero | tr '\\0' x; echo; echo done" }))
            .await;
        let data_ = flood.data.unwrap();
        assert_eq!((&data_["rest_lost"], &data_["exit_code"]), (&json!(true), &json!(0)));
        let path = flood.metadata.output_path.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 64 * 1024 * 1024);
        let next = session.call("bash", json!({ "command": "head -c 300000 /dev/zero | tr '\\0' x" })).await;
        assert_eq!(next.data.unwrap()["rest_lost"], true, "nothing is left");
        assert_eq!(output(session, "echo fine").await, "fine\n");
    });
}

/// Makes a result that has a file, and names it.
async fn sidecar(session: &Session) -> String {
    let cut = session.call("bash", json!({ "command": "head -c 205000 /dev/zero | tr '\\0' x; echo secret" })).await;
    cut.metadata.output_path.clone().unwrap_or_else(|| panic!("{cut:?}"))
}

/// C-26, S0-47: the file is its own session's to read and nobody's to change; other sessions of the same user do not see it;
/// it goes with the session.
#[test]
fn c_26_s0_47_what_is_kept_is_read_only_private_and_goes_with_its_session() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (strength, given) in STRENGTHS.into_iter().flat_map(|strength| [(strength, false), (strength, true)]) {
        let (mine, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        if given {
            [&mine, &theirs].into_iter().for_each(|dir| give_away(dir.path()));
        }
        runtime.block_on(async {
            let supervisor = supervisor();
            let session = open(&supervisor, strength, mine.path()).await;
            let other = open(&supervisor, strength, theirs.path()).await;
            let path = sidecar(&session).await;
            let dir = Path::new(&path).parent().unwrap().to_owned();
            assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o7777, 0o700);
            let owner = fs::metadata(mine.path()).unwrap().uid();
            assert_eq!((fs::metadata(&dir).unwrap().uid(), fs::metadata(&path).unwrap().uid()), (owner, owner));
            let before = (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().mode());
            let quoted = format!("'{path}'");
            assert!(output(&session, &format!("tail -n1 {quoted}")).await.as_str().unwrap().ends_with("secret\n"));
            let found = data(&session, "grep", json!({ "pattern": "secret", "path": path })).await;
            assert_eq!(found["matches"].as_array().unwrap().len(), 1, "its own session searches it: {found}");

            for change in [
                "echo x > P",
                "echo x >> P",
                "rm -f P",
                "mv P P.old",
                "chmod 777 P",
                "touch P",
                "truncate -s0 P",
                "touch $(dirname P)/new",
                "mkdir $(dirname P)/new",
                "ln P here",
                "chmod 755 $(dirname P)",
                "rm -rf $(dirname P)",
            ] {
                let line = format!("{{ {} && echo changed; }} 2>/dev/null", change.replace('P', &quoted));
                assert_eq!(output(&session, &line).await, "", "{change}");
            }
            let write = error(&session, "write", json!({ "path": path, "content": "x" })).await;
            assert_eq!(write.metadata.denial.unwrap().layer, callgate::Layer::Capability);
            error(&session, "edit", json!({ "path": path, "old_string": "secret", "new_string": "x" })).await;
            assert_eq!((fs::read(&path).unwrap(), fs::metadata(&path).unwrap().mode()), before);
            assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);

            let read = error(&other, "read", json!({ "path": path })).await;
            assert_eq!(read.metadata.denial.unwrap().layer, callgate::Layer::Capability);
            symlink(&path, theirs.path().join("link")).unwrap();
            let linked = error(&other, "read", json!({ "path": "link" })).await;
            assert!(!linked.error_text.unwrap().contains("secret"));
            assert_eq!(
                output(&other, &format!("cat {quoted} 2>/dev/null; ls {} 2>/dev/null", dir.display())).await,
                ""
            );

            drop(session);
            until("the directory is gone", || fs::metadata(&dir).is_err()).await;
            assert_eq!(output(&other, "echo fine").await, "fine\n");
        });
    }
}

const CHILD: &str = "CALLGATE_TEST_SUPERVISOR";

/// S0-47: also when the supervisor is killed, what it kept goes.
#[test]
#[allow(clippy::disallowed_methods, reason = "a test starts itself, and is told where")]
fn s0_47_what_a_killed_supervisor_kept_is_removed() {
    if let Some(workspace) = std::env::var_os(CHILD) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let strength = STRENGTHS[usize::from(Path::new(&workspace).join("landlock").exists())];
        runtime.block_on(async {
            let session = open(&supervisor(), strength, Path::new(&workspace)).await;
            let path = sidecar(&session).await;
            fs::write(Path::new(&workspace).join("made"), &path).unwrap();
            fs::rename(Path::new(&workspace).join("made"), Path::new(&workspace).join("path")).unwrap();
            std::future::pending::<()>().await;
        });
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for landlock in [false, true] {
        let workspace = tempfile::tempdir().unwrap();
        if landlock {
            fs::write(workspace.path().join("landlock"), "").unwrap();
        }
        let name = "tools::s0_47_what_a_killed_supervisor_kept_is_removed";
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name])
            .env(CHILD, workspace.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        runtime.block_on(async {
            until("the file is made", || workspace.path().join("path").exists()).await;
            let path = fs::read_to_string(workspace.path().join("path")).unwrap();
            assert!(fs::metadata(&path).is_ok(), "the control");
            child.kill().unwrap();
            child.wait().unwrap();
            until("it is removed", || fs::metadata(Path::new(&path).parent().unwrap()).is_err()).await;
        });
    }
}

/// Where the session may write in the temporary directory, what is kept lies elsewhere.
#[test]
fn what_is_kept_lies_outside_every_write_grant() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in STRENGTHS {
        // Not below what is granted: with a mount namespace, all of `/tmp` is the session's own.
        let workspace = tempfile::tempdir_in("/var/tmp").unwrap();
        runtime.block_on(async {
            let supervisor = supervisor();
            let temp = std::env::temp_dir().canonicalize().unwrap();
            let mut spec =
                SessionSpec::developer(workspace.path()).strength(strength).mode(callgate::policy::mode::Mode::Yolo);
            let manifest = json!({ "fs": { "write": [format!("{}/**", temp.display())] } });
            let set: RequirementSet = serde_json::from_value(manifest).unwrap();
            spec.requires.push((Source::Default, set));
            let wide = supervisor.open(spec).await.unwrap();
            let path = sidecar(&wide).await;
            assert!(!Path::new(&path).starts_with(&temp), "{path}");
            assert_eq!(output(&wide, &format!("{{ echo x > '{path}' || echo no; }} 2>/dev/null")).await, "no\n");
            let narrow = open(&supervisor, strength, workspace.path()).await;
            assert!(Path::new(&sidecar(&narrow).await).starts_with(&temp), "the control");
        });
    }
}

// ---- who runs beside whom ----------------------------------------------------------------------------------------------

/// S3-7, C-17: what changes something runs one at a time, in the order of the calls; what reads and comes later sees it.
#[test]
fn s3_7_c_17_changes_run_one_at_a_time_in_the_order_of_their_calls() {
    in_sessions(async |session, workspace| {
        let bash = |n: usize| {
            let command = format!("echo b{n} >> log; for i in $(seq 200); do :; done; sleep 0.02; echo e{n} >> log");
            session.call("bash", json!({ "command": command }))
        };
        fs::write(workspace.join("f"), "0").unwrap();
        let edit =
            |from: &str, to: &str| session.call("edit", json!({ "path": "f", "old_string": from, "new_string": to }));
        let read = || session.call("read", json!({ "path": "f" }));
        let content = |result: ResultEnvelope| result.data.unwrap()["content"].as_str().unwrap().to_owned();
        let (first, e1, r1, second, e2, third, r2, r3) =
            tokio::join!(bash(1), edit("0", "1"), read(), bash(2), edit("1", "2"), bash(3), read(), read());
        for result in [&first, &e1, &second, &e2, &third] {
            assert_eq!(result.kind, Outcome::Output, "{result:?}");
        }
        assert_eq!([r1, r2, r3].map(content), ["1", "2", "2"]);
        assert_eq!(fs::read_to_string(workspace.join("log")).unwrap(), "b1\ne1\nb2\ne2\nb3\ne3\n");
        // The host's own programs wait for nobody, and nobody for them.
        let server = session.spawn(["sleep", "100"], callgate::Stdio::null().unwrap()).await.unwrap();
        assert_eq!(output(session, "echo beside it").await, "beside it\n");
        server.abort().await.unwrap();
        server.wait().await.unwrap();
    });
}

/// C-17, S0-69: a call that is dropped keeps its turn until nothing of it runs any more.
#[test]
fn c_17_s0_69_the_next_change_waits_until_a_dropped_call_is_gone() {
    in_sessions(async |session, workspace| {
        let log = workspace.join("log");
        let noise = "trap '' TERM INT HUP; while :; do echo old >> log; done";
        let call = session.call("bash", json!({ "command": noise }));
        tokio::select! {
            result = call => panic!("it ended by itself: {result:?}"),
            () = until("the command writes", || log.exists()) => {}
        }
        let next = "n=$(wc -l < log); for i in 1 2 3 4 5; do sleep 0.02; done; test $n = $(wc -l < log) && echo alone";
        assert_eq!(output(session, next).await, "alone\n");
    });
}

/// S3-6: calls that read run side by side, more of them than workers stand ready, each with its own result.
#[test]
fn s3_6_many_searches_run_at_once() {
    in_sessions(async |session, workspace| {
        for n in 0..12 {
            fs::write(workspace.join(format!("f{n}")), format!("word{n}\n")).unwrap();
        }
        let (mut results, workspace) = (Vec::new(), workspace.canonicalize().unwrap());
        for _round in 0..3 {
            let calls = (0..12).map(|n| session.call("grep", json!({ "pattern": format!("^word{n}$") })));
            results.extend(futures_join(calls.collect()).await);
        }
        for (at, result) in results.into_iter().enumerate() {
            let path = workspace.join(format!("f{}", at % 12));
            assert_eq!(result.data.unwrap()["matches"][0]["path"], json!(path));
        }
        // A search that is dropped is no hindrance to the next.
        for _ in 0..20 {
            let call = session.call("grep", json!({ "pattern": "word" }));
            tokio::select! { biased; () = std::future::ready(()) => {}, _ = call => {} }
            let mut call = Box::pin(session.call("grep", json!({ "pattern": "word" })));
            drop(tokio::time::timeout(std::time::Duration::from_micros(300), call.as_mut()).await);
        }
        assert_eq!(data(session, "grep", json!({ "pattern": "word3" })).await["matches"].as_array().unwrap().len(), 1);
    });
}

/// S3-6, S3-7: while a search is under way, `read`, `glob` and `grep` come and go; what changes something waits for its end.
#[test]
fn s3_6_calls_that_read_do_not_wait_for_one_another() {
    in_sessions(async |session, workspace| {
        // Seconds of work for the one, nothing for the others.
        fs::write(workspace.join("large"), format!("{}\n", "word \u{e9}t\u{e9} ".repeat(12)).repeat(200_000)).unwrap();
        fs::write(workspace.join("small"), "word\n").unwrap();
        let slow = json!({ "pattern": "(?:[\\w ]{1,40} ){1,12}q", "path": "large" });
        let mut slow = std::pin::pin!(session.call("grep", slow));
        for (tool, arguments) in [
            ("read", json!({ "path": "small" })),
            ("glob", json!({ "pattern": "small" })),
            ("grep", json!({ "pattern": "word", "path": "small" })),
        ] {
            tokio::select! {
                biased;
                done = &mut slow => panic!("`{tool}` was not answered before the search was over: {done:?}"),
                quick = session.call(tool, arguments) => assert_eq!(quick.kind, Outcome::Output, "{tool}: {quick:?}"),
            }
        }
        // The control: the search is still under way.
        let mut change = std::pin::pin!(session.call("write", json!({ "path": "small", "content": "new" })));
        tokio::select! {
            biased;
            done = &mut slow => assert_eq!(done.kind, Outcome::Output, "{done:?}"),
            written = &mut change => panic!("it was written while a search was under way: {written:?}"),
        }
        assert_eq!(fs::read_to_string(workspace.join("small")).unwrap(), "word\n");
        assert_eq!(change.await.kind, Outcome::Output);
    });
}

/// All of them, in one task, polled in their order.
async fn futures_join<F: Future<Output = ResultEnvelope>>(calls: Vec<F>) -> Vec<ResultEnvelope> {
    let mut calls: Vec<_> = calls.into_iter().map(Box::pin).collect();
    let mut results: Vec<Option<ResultEnvelope>> = calls.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (call, result) in calls.iter_mut().zip(&mut results) {
            if result.is_none()
                && let std::task::Poll::Ready(done) = call.as_mut().poll(context)
            {
                *result = Some(done);
            }
        }
        if results.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    results.into_iter().flatten().collect()
}

// ---- what is found ------------------------------------------------------------------------------------------------------

/// A tree with everything that a search may stumble over. (But no line of more than 64 KiB: after one, ripgrep reads with a larger
/// buffer, and how much of a binary file it searches hangs on that. And no repository in the tree whose files an ignore file above it
/// names: there versions of ripgrep differ when they need no repository.)
fn odd_tree(top: &Path) {
    let put = |name: &str, content: &[u8]| {
        let path = top.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    put("plain.txt", b"needle one\nother\nneedle two\nNeedle three\n");
    put("no-newline.txt", b"first\nneedle at the end");
    put("crlf.txt", b"a\r\nneedle crlf\r\nb\r\n");
    put("bom.txt", b"\xef\xbb\xbfneedle after a mark\nneedle\n");
    let utf16 = |mark: &[u8], bytes: fn(u16) -> [u8; 2]| {
        let text: Vec<u8> = "needle in UTF-16 ü\r\nnext\nneedle\n".encode_utf16().flat_map(bytes).collect();
        [mark, &text].concat()
    };
    put("utf16le.txt", &utf16(b"\xff\xfe", u16::to_le_bytes));
    put("utf16be.txt", &utf16(b"\xfe\xff", u16::to_be_bytes));
    put("latin1.txt", b"needle caf\xe9\nnext\n");
    put("binary-late.bin", &[b"needle before\n".repeat(5000), b"\0\n".to_vec(), b"needle after\n".to_vec()].concat());
    put("binary-early.bin", b"\0\nneedle\n");
    put("empty", b"");
    put("newlines", b"\n\n\n");
    put("long.txt", &[vec![b'x'; 20_000], b"needle".to_vec(), vec![b'y'; 20_000], b"\nneedle\n".to_vec()].concat());
    put("ctx/a.rs", b"1\n2\nneedle 3\n4\nneedle 5\n6\n7\n8\n9\nneedle 10\n");
    put(".hidden", b"needle\n");
    put(".hiddendir/f.rs", b"needle\n");
    put(".gitignore", b"*.log\n/build/\n!keep.log\nnested/deep/skip*\n# a comment\n\\#odd\n");
    put("a.log", b"needle\n");
    put("keep.log", b"needle\n");
    put("build/out.rs", b"needle\n");
    put("src/build/out.rs", b"needle\n");
    put("#odd", b"needle\n");
    put("nested/.gitignore", b"*.tmp\n!a.log\n");
    put("nested/a.log", b"needle\n");
    put("nested/b.log", b"needle\n");
    put("nested/x.tmp", b"needle\n");
    put("nested/deep/skip-me.rs", b"needle\n");
    put("nested/deep/keep.rs", b"needle\n");
    put("nested/deep/.ignore", b"ignored.rs\n!x.tmp\n");
    put("nested/deep/ignored.rs", b"needle\n");
    put("nested/deep/x.tmp", b"needle\n");
    put("nested/.rgignore", b"only-rg.txt\n");
    put("nested/only-rg.txt", b"needle\n");
    put("a-b/f.rs", b"needle\n");
    put("a/f.rs", b"needle\n");
    put("a b/[x].rs", b"needle\n");
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9.txt");
    fs::write(top.join(name), "needle\n").unwrap();
    put("repo/.git/HEAD", b"needle\n");
    put("repo/.git/info/exclude", b"excluded.rs\n");
    put("repo/excluded.rs", b"needle\n");
    put("repo/seen.rs", b"needle\n");
    symlink("plain.txt", top.join("link.txt")).unwrap();
    symlink("src", top.join("linked-dir")).unwrap();
    symlink("nowhere", top.join("dangling")).unwrap();
    symlink(".", top.join("src/loop")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, top.join("fifo"), rustix::fs::FileType::Fifo, 0o644.into(), 0).unwrap();
}

#[allow(clippy::disallowed_methods, reason = "the other side of the comparison")]
fn ripgrep(directory: &Path, words: &[&str]) -> Vec<u8> {
    let output = Command::new("rg")
        .args(["--no-config", "--no-require-git", "--no-ignore-global"])
        .args(words)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .expect("ripgrep is installed: .ci/test does it");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The files that ripgrep lists.
fn rg_files(directory: &Path, words: &[&str]) -> BTreeSet<PathBuf> {
    let listed = ripgrep(directory, &[&["--files", "-0"], words, &["./"]].concat());
    let names = listed.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| directory.join(std::ffi::OsStr::from_bytes(name)).components().collect()).collect()
}

/// Patterns that spell out what is hidden or ignored: those find what `rg --glob` does. Others find no more of that than `rg`
/// without a pattern.
const SPELT_OUT: [&str; 3] = [".hidden", ".hidden*", "#odd"];

/// A path in a result: by its bytes, where it has them.
fn path_of(entry: &Value) -> PathBuf {
    match entry["path_b64"].as_str() {
        Some(bytes) => {
            let bytes = base64::engine::general_purpose::STANDARD.decode(bytes).unwrap();
            std::ffi::OsStr::from_bytes(&bytes).into()
        }
        None => entry["path"].as_str().unwrap().into(),
    }
}

/// Every entry of a list, those that the result has no room for included.
async fn all_entries(session: &Session, tool: &str, list: &str, arguments: Value) -> (Vec<Value>, Value) {
    let result = session.call(tool, arguments).await;
    let data_ = result.data.unwrap_or_else(|| panic!("{:?}", result.error_text));
    assert!(data_.get("rest_lost").is_none());
    let shown = if result.metadata.truncated == Some(true) { "head" } else { list };
    let mut entries = data_[shown].as_array().unwrap().clone();
    if let Some(path) = result.metadata.output_path {
        let text = fs::read_to_string(path).unwrap();
        entries.extend(text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
    }
    (entries, data_)
}

/// `text` or `bytes` of ripgrep's JSON.
fn rg_bytes(value: &Value) -> Vec<u8> {
    match value["text"].as_str() {
        Some(text) => text.as_bytes().to_vec(),
        None => base64::engine::general_purpose::STANDARD.decode(value["bytes"].as_str().unwrap()).unwrap(),
    }
}

type FileLines = BTreeMap<PathBuf, Vec<(u64, Vec<u8>)>>;

fn rg_matches(directory: &Path, words: &[&str]) -> FileLines {
    let mut found = FileLines::new();
    for line in ripgrep(directory, &[&["--json"], words, &["./"]].concat()).split(|byte| *byte == b'\n') {
        let Ok(message) = serde_json::from_slice::<Value>(line) else { continue };
        if message["type"] != "match" {
            continue;
        }
        let path = directory.join(Path::new(std::ffi::OsStr::from_bytes(&rg_bytes(&message["data"]["path"]))));
        let text = rg_bytes(&message["data"]["lines"]);
        let text = text.strip_suffix(b"\n").unwrap_or(&text).to_vec();
        let path = path.components().collect();
        found.entry(path).or_default().push((message["data"]["line_number"].as_u64().unwrap(), text));
    }
    found
}

fn text_of(entry: &Value) -> Vec<u8> {
    match entry["text_b64"].as_str() {
        Some(bytes) => base64::engine::general_purpose::STANDARD.decode(bytes).unwrap(),
        None => entry["text"].as_str().unwrap().as_bytes().to_vec(),
    }
}

/// S0-14, C-27: `grep` finds what ripgrep finds, in every session the same, in one order.
#[test]
fn s0_14_c_27_grep_finds_what_ripgrep_finds() {
    in_sessions(async |session, workspace| {
        let workspace = workspace.canonicalize().unwrap();
        odd_tree(&workspace);
        for (arguments, words, below) in [
            (json!({ "pattern": "needle" }), &["-e", "needle"][..], ""),
            (json!({ "pattern": "needle", "ignore_case": true }), &["-i", "-e", "needle"], ""),
            (json!({ "pattern": "^needle$" }), &["-e", "^needle$"], ""),
            (json!({ "pattern": r"needle\s\w+" }), &["-e", r"needle\s\w+"], ""),
            (json!({ "pattern": "ü|caf" }), &["-e", "ü|caf"], ""),
            (json!({ "pattern": "q*" }), &["-e", "q*"], ""),
            (json!({ "pattern": "crlf\r$" }), &["-e", "crlf\r$"], ""),
            (json!({ "pattern": "needle", "glob": "*.rs" }), &["-g", "*.rs", "-e", "needle"], ""),
            (json!({ "pattern": "needle", "glob": "!*.rs" }), &["-g", "!*.rs", "-e", "needle"], ""),
            (json!({ "pattern": "needle", "glob": "nested/**" }), &["-g", "nested/**", "-e", "needle"], ""),
            (json!({ "pattern": "needle", "glob": ".hidden" }), &["-g", ".hidden", "-e", "needle"], ""),
            (json!({ "pattern": "needle", "path": "nested" }), &["-e", "needle"], "nested"),
            (json!({ "pattern": "needle", "path": "nested/deep" }), &["-e", "needle"], "nested/deep"),
            (json!({ "pattern": "needle", "path": "repo" }), &["-e", "needle"], "repo"),
            (json!({ "pattern": "needle", "path": ".hiddendir" }), &["-e", "needle"], ".hiddendir"),
        ] {
            let mut theirs = rg_matches(&workspace.join(below), words);
            theirs.retain(|path, _| !is_forgotten(&workspace, below, path));
            if let Some(glob) = arguments["glob"].as_str().filter(|glob| !SPELT_OUT.contains(glob)) {
                let listed = rg_files(&workspace.join(below), &[]);
                theirs.retain(|path, _| listed.contains(path));
                assert!(!theirs.is_empty(), "the control: {glob}");
            }
            let (entries, _) = all_entries(session, "grep", "matches", arguments.clone()).await;
            let mut order = Vec::new();
            let mut ours = FileLines::new();
            for entry in &entries {
                let path = path_of(entry);
                order.push((path.clone(), entry["line"].as_u64().unwrap()));
                ours.entry(path).or_default().push((entry["line"].as_u64().unwrap(), text_of(entry)));
            }
            assert!(order.is_sorted(), "{arguments}");
            let names = |lines: &FileLines| lines.keys().cloned().collect::<Vec<_>>();
            assert_eq!(names(&ours), names(&theirs), "{arguments}");
            for (path, lines) in &theirs {
                let found = &ours[path];
                assert_eq!(found.len(), lines.len(), "{arguments}: {}", path.display());
                for (mine, rg) in found.iter().zip(lines) {
                    // Of a long line we show a part.
                    let same = if rg.1.len() > 2048 {
                        rg.1.windows(mine.1.len()).any(|part| part == mine.1)
                    } else {
                        mine.1 == rg.1
                    };
                    assert!(mine.0 == rg.0 && same, "{arguments}: {} line {}", path.display(), rg.0);
                }
            }
            if words.len() == 2 && words[1] == "needle" && below.is_empty() {
                assert!(theirs.len() > 15 && entries.len() > 200, "the control: the tree has much to find");
            }
        }
    });
}

/// C-27: the lines around a match, and files that are named, searched whatever ignores them.
#[test]
fn c_27_context_long_lines_and_named_files() {
    in_sessions(async |session, workspace| {
        odd_tree(workspace);
        let search = |path: &'static str, context: u64| async move {
            let arguments = json!({ "pattern": "needle", "path": path, "context_lines": context });
            all_entries(session, "grep", "matches", arguments).await
        };
        let (entries, shown) = search("ctx/a.rs", 2).await;
        let near = |entry: &Value| (entry["line"].clone(), entry["before"].clone(), entry["after"].clone());
        assert_eq!(
            entries.iter().map(near).collect::<Vec<_>>(),
            [
                (json!(3), json!(["1", "2"]), json!(["4", "needle 5"])),
                (json!(5), json!(["needle 3", "4"]), json!(["6", "7"])),
                (json!(10), json!(["8", "9"]), json!([])),
            ]
        );
        assert_eq!(shown["files_searched"], 1);
        let (entries, _) = search("crlf.txt", 1).await;
        assert_eq!((&entries[0]["text"], &entries[0]["before"]), (&json!("needle crlf\r"), &json!(["a\r"])));
        let (entries, _) = search("long.txt", 0).await;
        assert_eq!((&entries[0]["line_bytes"], entries.len()), (&json!(40_006), 2));
        let start = entries[0]["text_start"].as_u64().unwrap();
        assert!(start < 20_000 && entries[0]["text"].as_str().unwrap().contains("needle"), "{start}");
        for named in [".hidden", "a.log", "link.txt", "src/build/out.rs"] {
            assert!(!search(named, 0).await.0.is_empty(), "{named}");
        }
        let (entries, shown) = search("binary-early.bin", 0).await;
        assert!(entries.is_empty() && shown["binary_files"][0]["path"].is_string(), "{shown}");
        let (_, shown) = search("binary-late.bin", 0).await;
        assert!(shown["binary_files"][0]["path"].is_string(), "{shown}");
    });
}

/// True if ripgrep lists a file in a directory that it leaves out from above: ripgrep 14 forgets there what the
/// `.gitignore` of a directory above says of a whole path.
fn is_forgotten(workspace: &Path, below: &str, path: &Path) -> bool {
    below.starts_with("nested") && !rg_files(workspace, &[]).contains(path)
}

/// S0-13, C-27: `glob` lists what ripgrep lists.
#[test]
fn s0_13_c_27_glob_lists_what_ripgrep_lists() {
    in_sessions(async |session, workspace| {
        let workspace = workspace.canonicalize().unwrap();
        odd_tree(&workspace);
        for (pattern, below) in [
            ("*", ""),
            ("**/*", ""),
            ("*.rs", ""),
            ("**/*.rs", ""),
            ("src/**/*.rs", ""),
            ("/*.txt", ""),
            ("!*.rs", ""),
            ("*.{log,tmp}", ""),
            ("[a-c]*", ""),
            (".hidden*", ""),
            ("nested/*", ""),
            ("nested/**", ""),
            ("a b/\\[x\\].rs", ""),
            ("*.RS", ""),
            ("no-such", ""),
            ("caf*", ""),
            ("*.rs", "nested"),
            ("deep/*", "nested"),
            ("!*.log", "nested/deep"),
            ("*", ".hiddendir"),
            ("link*", ""),
            ("fifo", ""),
        ] {
            let mut theirs = rg_files(&workspace.join(below), &["-g", pattern]);
            theirs.retain(|path| !is_forgotten(&workspace, below, path));
            if !SPELT_OUT.contains(&pattern) {
                let listed = rg_files(&workspace.join(below), &[]);
                theirs.retain(|path| listed.contains(path));
            }
            let mut arguments = json!({ "pattern": pattern });
            if !below.is_empty() {
                arguments["path"] = below.into();
            }
            let data_ = data(session, "glob", arguments).await;
            let texts = data_["paths"].as_array().unwrap();
            let bytes = data_["path_b64"].as_array();
            let ours: Vec<PathBuf> = (0..texts.len())
                .map(|at| path_of(&json!({ "path": texts[at], "path_b64": bytes.map(|bytes| &bytes[at]) })))
                .collect();
            assert_eq!(ours, theirs.into_iter().collect::<Vec<_>>(), "{pattern} below {below:?}");
        }
    });
}

/// S0-13, S0-14: in a repository with a build in it, wildcards find what is worked on, and not what git and the build keep
/// there. What the pattern spells out is found, by `glob` and by `grep` alike.
#[test]
fn s0_13_s0_14_ignored_files_are_found_only_if_the_pattern_spells_them_out() {
    in_sessions(async |session, workspace| {
        let workspace = workspace.canonicalize().unwrap();
        let put = |name: &str| {
            fs::create_dir_all(workspace.join(name).parent().unwrap()).unwrap();
            fs::write(workspace.join(name), "needle\n").unwrap();
        };
        (0..50).for_each(|n| put(&format!(".git/objects/{n:02}/object")));
        for name in [
            ".git/config",
            "target/debug/a.d",
            "target/debug/a.o",
            "target/debug/.fingerprint/x.d",
            "target/b.d",
            "src/main.rs",
            "src/deep/lib.rs",
            "src/debug.log",
            "src/x.d",
            ".env",
            ".env.local",
            ".github/ci.yml",
            "crates/one/target/c.d",
            "#note#",
        ] {
            put(name);
        }
        fs::write(workspace.join(".gitignore"), "target/\n*.log\n.env.local\n").unwrap();
        symlink("target", workspace.join("linked")).unwrap();
        symlink("../target", workspace.join("src/linked")).unwrap();
        for (pattern, wanted) in [
            ("*", &["#note#", "src/deep/lib.rs", "src/main.rs", "src/x.d"][..]),
            ("**/*", &["#note#", "src/deep/lib.rs", "src/main.rs", "src/x.d"]),
            ("**", &["#note#", "src/deep/lib.rs", "src/main.rs", "src/x.d"]),
            ("*.d", &["src/x.d"]),
            ("**/*.d", &["src/x.d"]),
            ("*.log", &[]),
            ("src/*.log", &[]),
            ("!*.rs", &["#note#", "src/x.d"]),
            ("#*", &["#note#"]),
            // Their directory is spelt out.
            ("target/**/*.d", &["target/b.d", "target/debug/a.d"]),
            ("/target/**/*.o", &["target/debug/a.o"]),
            ("target/debug/*", &["target/debug/a.d", "target/debug/a.o"]),
            ("target/debug/.fingerprint/*", &["target/debug/.fingerprint/x.d"]),
            ("crates/one/target/*", &["crates/one/target/c.d"]),
            (".git/*", &[".git/config"]),
            (".git/objects/0[12]/*", &[".git/objects/01/object", ".git/objects/02/object"]),
            (".github/**", &[".github/ci.yml"]),
            // Their name is.
            ("debug.log", &["src/debug.log"]),
            ("src/debug.log", &["src/debug.log"]),
            ("target/debug/a.d", &["target/debug/a.d"]),
            (".env", &[".env"]),
            (".env*", &[".env", ".env.local"]),
            (".*", &[".env", ".env.local", ".gitignore"]),
            ("**/.env", &[".env"]),
            // Links are not followed, and nothing leads out.
            ("linked/**", &[]),
            ("src/linked/*.d", &[]),
            ("../*", &[]),
            ("src/../target/*", &[]),
            ("*/", &[]),
        ] {
            let paths = wanted.iter().map(|name| json!(workspace.join(name))).collect::<Value>();
            let listed = data(session, "glob", json!({ "pattern": pattern })).await;
            assert_eq!(listed["paths"], paths, "{pattern}");
            if pattern == ".*" {
                continue; // .gitignore has no needle.
            }
            let found = data(session, "grep", json!({ "pattern": "needle", "glob": pattern })).await;
            let found: Value = found["matches"].as_array().unwrap().iter().map(|entry| entry["path"].clone()).collect();
            assert_eq!(found, paths, "grep: {pattern}");
        }
        // The control: all of it is there, and named as the directory to search it is found.
        let listed = data(session, "glob", json!({ "pattern": "*", "path": ".git" })).await;
        assert_eq!(listed["paths"].as_array().unwrap().len(), 51);
        let found = data(session, "grep", json!({ "pattern": "needle", "path": "target" })).await;
        assert_eq!(found["matches"].as_array().unwrap().len(), 3);
    });
}

// ---- what is not found --------------------------------------------------------------------------------------------------

/// S0-61, A2: a search tells of nothing that was not granted: neither beside the grants, nor through links, nor, of a pattern
/// that the kernel was told in a wider form, of what the pattern does not match.
#[test]
fn s0_61_a2_a_search_sees_what_was_granted_and_nothing_else() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (strength, given) in STRENGTHS.into_iter().flat_map(|strength| [(strength, false), (strength, true)]) {
        let (top, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let workspace = top.path().canonicalize().unwrap();
        fs::write(outside.path().join("theirs.rs"), "needle\n").unwrap();
        fs::set_permissions(outside.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for name in
            ["open/a.rs", "open/b.md", "closed/c.rs", "src/d.py", "src/e.rs", "src/deep/f.py", "single.rs", "other.rs"]
        {
            fs::create_dir_all(workspace.join(name).parent().unwrap()).unwrap();
            fs::write(workspace.join(name), "needle\n").unwrap();
        }
        for (name, target) in [
            ("open/dir-link", outside.path().to_owned()),
            ("open/file-link", outside.path().join("theirs.rs")),
            ("open/in-link", "../closed".into()),
        ] {
            symlink(target, workspace.join(name)).unwrap();
        }
        if given {
            give_away(&workspace);
        }
        runtime.block_on(async {
            let supervisor = supervisor();
            let read =
                ["open/**", "src/**/*.py", "single.rs", "no-such/**"].map(|path| format!("{{workspace}}/{path}"));
            let set: RequirementSet = serde_json::from_value(json!({ "fs": { "read": read } })).unwrap();
            // The tools require all of the workspace, to write as well.
            let mut ceiling = Ceiling::of_named(&set);
            ceiling.fs.write = Some(Vec::new());
            let spec = SessionSpec::new(&workspace)
                .strength(strength)
                .requires(Source::Default, set)
                .at_most(Source::Ceiling, ceiling)
                .mode(callgate::policy::mode::Mode::Yolo);
            let session = supervisor.open(spec).await.unwrap();
            let granted = ["open/a.rs", "open/b.md", "single.rs", "src/d.py", "src/deep/f.py"]
                .map(|name| json!(workspace.join(name)));
            let listed = data(&session, "glob", json!({ "pattern": "*" })).await;
            assert_eq!(listed["paths"], json!(granted), "{listed}");
            let found = data(&session, "grep", json!({ "pattern": "needle" })).await;
            let paths: Vec<Value> =
                found["matches"].as_array().unwrap().iter().map(|entry| entry["path"].clone()).collect();
            assert_eq!(json!(paths), json!(granted), "{found}");
            for (pattern, wanted) in [("*.md", "open/b.md"), ("single.*", "single.rs"), ("src/*.py", "src/d.py")] {
                let listed = data(&session, "glob", json!({ "pattern": pattern })).await;
                assert_eq!(listed["paths"], json!([workspace.join(wanted)]));
                let found = data(&session, "grep", json!({ "pattern": "needle", "glob": pattern })).await;
                assert_eq!(
                    (&found["files_searched"], &found["matches"][0]["path"]),
                    (&json!(1), &json!(workspace.join(wanted)))
                );
            }
            let below = data(&session, "grep", json!({ "pattern": "needle", "path": "src" })).await;
            assert_eq!(below["matches"].as_array().unwrap().len(), 2, "{below}");
            for path in ["closed", "other.rs", "../", "/", outside.path().to_str().unwrap(), "src/e.rs"] {
                for tool in ["grep", "glob"] {
                    let result = session.call(tool, json!({ "pattern": "needle", "path": path })).await;
                    let text = serde_json::to_string(&result).unwrap();
                    // What lies above the grants is a way to them, and to nothing else.
                    assert!(
                        !text.contains("closed/") && !text.contains("theirs") && !text.contains("e.rs\",\"line"),
                        "{text}"
                    );
                    let layer = result.metadata.denial.map(|denial| denial.layer);
                    match path {
                        "../" | "/" => {}
                        // The pattern that was granted might have matched something below it.
                        "src/e.rs" if tool == "grep" => assert_eq!(layer, Some(callgate::Layer::Sandbox)),
                        "src/e.rs" => assert!(result.data.is_none()),
                        _ => assert_eq!(layer, Some(callgate::Layer::Capability), "{path}"),
                    }
                }
            }
            // A link that the call itself names leads nowhere either.
            for path in ["open/dir-link", "open/file-link", "open/in-link"] {
                let linked = session.call("grep", json!({ "pattern": "needle", "path": path })).await;
                let found = linked.data.map_or(0, |data| data["matches"].as_array().map_or(0, Vec::len));
                assert_eq!(found, 0, "{path}");
            }
            // The control: with all of it granted, and outside too, the same calls find it.
            let all: RequirementSet = serde_json::from_value(
                json!({ "fs": { "read": ["{workspace}/**", format!("{}/**", outside.path().display())] } }),
            )
            .unwrap();
            let spec = SessionSpec::new(&workspace)
                .strength(strength)
                .requires(Source::Default, all)
                .mode(callgate::policy::mode::Mode::Yolo);
            let session = supervisor.open(spec).await.unwrap();
            assert_eq!(data(&session, "glob", json!({ "pattern": "*" })).await["paths"].as_array().unwrap().len(), 8);
            let linked = data(&session, "grep", json!({ "pattern": "needle", "path": "open/file-link" })).await;
            assert_eq!(linked["matches"].as_array().unwrap().len(), 1, "{linked}");
        });
    }
}

/// A2, A8, S0-61: a single name that may be written opens nothing that lies beside it, or below its directory, to the tools that
/// read; the name itself they read, whatever file has it by then.
#[test]
fn a2_a8_s0_61_a_single_name_shows_nothing_beside_it() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (strength, given) in STRENGTHS.into_iter().flat_map(|strength| [(strength, false), (strength, true)]) {
        // Not below /tmp, which is the session's own: there a program may read it (decision 0021).
        let top = tempfile::tempdir_in("/var/tmp").unwrap();
        let workspace = top.path().canonicalize().unwrap();
        for name in ["open/a.rs", "closed/c.rs", "there.rs", "beside.rs", ".vscode/tasks.json", ".vscode/id"] {
            fs::create_dir_all(workspace.join(name).parent().unwrap()).unwrap();
            fs::write(workspace.join(name), "needle\n").unwrap();
        }
        for (name, target) in [("in-link", "../closed"), ("file-link", "../beside.rs"), ("kept-link", "../.vscode")] {
            symlink(target, workspace.join("open").join(name)).unwrap();
        }
        if given {
            give_away(&workspace);
        }
        runtime.block_on(async {
            let write = ["there.rs", "to-come.rs", ".vscode/tasks.json"].map(|name| format!("{{workspace}}/{name}"));
            let names = json!({ "fs": { "read": ["{workspace}/open/**"], "write": write }, "shell": [{ "cmd": "*" }] });
            let all = json!({ "fs": { "read": ["{workspace}/**"] } });
            let session = async |set: &Value| {
                let spec = SessionSpec::new(&workspace)
                    .without_tools()
                    .strength(strength)
                    .requires(Source::Default, serde_json::from_value(set.clone()).unwrap())
                    .mode(callgate::policy::mode::Mode::Yolo);
                supervisor().open(spec).await.unwrap()
            };
            let (confined, control) = (session(&names).await, session(&all).await);
            // The names are followed by reading, from file to file.
            for name in ["there.rs", "to-come.rs", ".vscode/tasks.json"] {
                for text in ["one needle", "two needles"] {
                    data(&confined, "write", json!({ "path": name, "content": text })).await;
                    assert_eq!(data(&confined, "read", json!({ "path": name })).await["content"], json!(text));
                    let found = data(&confined, "grep", json!({ "pattern": text, "path": name })).await;
                    assert_eq!(found["matches"].as_array().unwrap().len(), 1, "{name}: {found}");
                }
            }
            let found = data(&confined, "grep", json!({ "pattern": "needle" })).await;
            let paths: Vec<&Value> = found["matches"].as_array().unwrap().iter().map(|entry| &entry["path"]).collect();
            let granted =
                [".vscode/tasks.json", "open/a.rs", "there.rs", "to-come.rs"].map(|name| json!(workspace.join(name)));
            assert_eq!(paths, granted.iter().collect::<Vec<_>>(), "{found}");
            // By a link in what is granted, which the policy cannot see through.
            for path in ["open/in-link/c.rs", "open/file-link", "open/kept-link/id"] {
                let denied = error(&confined, "read", json!({ "path": path })).await;
                let denial = denied.metadata.denial.unwrap_or_else(|| panic!("{path}: {:?}", denied.error_text));
                let errno = denied.error_text.unwrap();
                assert!(denial.layer == callgate::Layer::Sandbox && errno.contains("(os error 13)"), "{errno}");
                let content = data(&control, "read", json!({ "path": path })).await["content"].clone();
                assert_eq!(content, json!("needle\n"), "{path}");
            }
            for path in ["open/in-link", "open/file-link", "open/kept-link"] {
                for (tool, list) in [("grep", "matches"), ("glob", "paths")] {
                    let entries = |result: &ResultEnvelope| {
                        result.data.as_ref().map_or(0, |data| data[list].as_array().map_or(0, Vec::len))
                    };
                    let arguments = json!({ "pattern": if tool == "grep" { "needle" } else { "**" }, "path": path });
                    let result = confined.call(tool, arguments.clone()).await;
                    assert_eq!(entries(&result), 0, "{tool} {path}: {result:?}");
                    if path != "open/file-link" || tool == "grep" {
                        assert!(entries(&control.call(tool, arguments).await) > 0, "{tool} {path}");
                    }
                }
            }
            // By its own path, and by a program.
            for path in ["beside.rs", "closed/c.rs", ".vscode/id"] {
                let denied = error(&confined, "read", json!({ "path": path })).await;
                assert_eq!(denied.metadata.denial.unwrap().layer, callgate::Layer::Capability, "{path}");
                let line = json!({ "command": format!("cat ../{path}"), "working_dir": "open" });
                let shown = data(&confined, "bash", line).await["output"].to_string();
                assert!(shown.contains("Permission denied") && !shown.contains("needle"), "{path}: {shown}");
            }
        });
    }
}

/// S0-3, C-27: what the locked tools return has the shape that their contracts promise, also where something is cut, odd or left out.
#[test]
fn s0_3_c_27_results_have_the_shape_that_is_promised() {
    in_sessions(async |session, workspace| {
        fs::write(workspace.join("text"), "one\ntwo\nthree\n").unwrap();
        fs::write(workspace.join("bytes"), [0, 159, 146, 150]).unwrap();
        fs::write(workspace.join(OsStr::from_bytes(b"odd-\xff")), "two\n").unwrap();
        fs::write(workspace.join("long"), "two\n".repeat(400_000)).unwrap();
        for (tool, arguments) in [
            ("read", json!({ "path": "text" })),
            ("read", json!({ "path": "text", "start_line": 2, "end_line": 2 })),
            ("read", json!({ "path": "bytes" })),
            ("read", json!({ "path": "long" })),
            ("write", json!({ "path": "new/file", "content": "x" })),
            ("write", json!({ "path": "new/file", "content": "y" })),
            ("edit", json!({ "path": "text", "old_string": "two", "new_string": "2" })),
            ("glob", json!({ "pattern": "**" })),
            ("glob", json!({ "pattern": "nothing" })),
            ("grep", json!({ "pattern": "two" })),
            ("grep", json!({ "pattern": "two", "context_lines": 1, "glob": "odd-*" })),
            ("grep", json!({ "pattern": "nothing" })),
            ("bash", json!({ "command": "echo out; echo err >&2; exit 3" })),
            ("bash", json!({ "command": "seq 100000" })),
            ("bash", json!({ "command": "sleep 9", "timeout_ms": 100 })),
            ("bash", json!({ "command": "kill -9 $$" })),
        ] {
            let result = session.call(tool, arguments.clone()).await;
            let Some(data) = result.data else { panic!("{tool} {arguments}: {:?}", result.error_text) };
            let promised = session.registry().find(tool).unwrap().output_schema.clone().unwrap();
            let shape = jsonschema::validator_for(&promised).unwrap();
            let wrong: Vec<String> = shape.iter_errors(&data).map(|error| error.to_string()).collect();
            assert!(wrong.is_empty(), "{tool} {arguments}: {wrong:?} in {data}");
            // A promise that anything keeps is none.
            assert!(!shape.is_valid(&json!({})), "{tool}");
        }
    });
}

/// A6, C7: a file that takes the place of another while it is searched, a pipe, a device without end, a hole of a terabyte, a
/// line of 100 MB: nothing hangs, and what is not searched is told.
#[test]
fn a6_c7_nothing_that_a_tree_holds_stops_a_search() {
    in_sessions(async |session, workspace| {
        odd_tree(workspace);
        let hole = fs::File::create(workspace.join("hole")).unwrap();
        hole.set_len(1 << 40).unwrap();
        let line = fs::File::create(workspace.join("line")).unwrap();
        let mut writer = std::io::BufWriter::new(line);
        for _ in 0..100 {
            std::io::Write::write_all(&mut writer, &[b'x'; 1 << 20]).unwrap();
        }
        std::io::Write::write_all(&mut writer, b"needle\n").unwrap();
        drop(writer);
        let (entries, shown) = all_entries(session, "grep", "matches", json!({ "pattern": "needle" })).await;
        assert!(entries.iter().any(|entry| entry["path"].as_str().unwrap().ends_with("/plain.txt")));
        let told: Vec<&str> =
            shown["unreadable"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap()).collect();
        assert!(told.len() == 1 && told[0].ends_with("/line"), "{told:?}");
        for (path, what) in [("fifo", "named pipe"), ("missing", "No such file"), ("plain.txt/x", "Not a directory")] {
            let failed = error(session, "grep", json!({ "pattern": "needle", "path": path })).await.error_text.unwrap();
            assert!(failed.contains(what) && failed.contains(path), "{failed}");
        }
        let failed = error(session, "glob", json!({ "pattern": "*", "path": "plain.txt" })).await.error_text.unwrap();
        assert!(failed.contains("is not a directory"), "{failed}");
        for (pattern, what) in
            [("a(", "unclosed group"), ("a\\nb", "\\n"), ("(?=a)", "look-around"), ("\\1", "backreferences")]
        {
            let failed = error(session, "grep", json!({ "pattern": pattern })).await.error_text.unwrap();
            assert!(failed.contains(what), "{failed}");
        }
        let failed = error(session, "glob", json!({ "pattern": "a[" })).await.error_text.unwrap();
        assert!(failed.contains("a["), "{failed}");
        // Linear time, whatever the expression.
        fs::write(workspace.join("as"), "a".repeat(100_000)).unwrap();
        data(session, "grep", json!({ "pattern": "(a*)*b", "path": "as" })).await;
    });
}

/// A2, C-14: an edit of a link that leads outside changes nothing there, and the link stays one; a link inside is followed.
#[test]
fn a2_c_14_an_edit_follows_no_link_out() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (strength, given) in STRENGTHS.into_iter().flat_map(|strength| [(strength, false), (strength, true)]) {
        let (workspace, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let theirs = outside.path().join("theirs");
        fs::write(&theirs, "old").unwrap();
        fs::write(workspace.path().join("mine"), "old").unwrap();
        symlink(&theirs, workspace.path().join("out")).unwrap();
        symlink("mine", workspace.path().join("in")).unwrap();
        symlink(outside.path(), workspace.path().join("dir")).unwrap();
        if given {
            give_away(workspace.path());
            fs::set_permissions(outside.path(), fs::Permissions::from_mode(0o777)).unwrap();
            chown(&theirs, Some(4242), Some(4242)).unwrap();
        }
        runtime.block_on(async {
            let session = open(&supervisor(), strength, workspace.path()).await;
            for path in ["out", "dir/theirs", theirs.to_str().unwrap()] {
                let failed =
                    error(&session, "edit", json!({ "path": path, "old_string": "old", "new_string": "new" })).await;
                assert!(
                    failed.metadata.denial.is_some() || failed.error_text.unwrap().contains("No such file"),
                    "{path}"
                );
                assert_eq!(fs::read_to_string(&theirs).unwrap(), "old");
                assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
            }
            assert!(fs::symlink_metadata(workspace.path().join("out")).unwrap().is_symlink());
            data(&session, "edit", json!({ "path": "in", "old_string": "old", "new_string": "new" })).await;
            assert_eq!(fs::read_to_string(workspace.path().join("mine")).unwrap(), "new");
            assert!(fs::symlink_metadata(workspace.path().join("in")).unwrap().is_symlink());
        });
    }
}
