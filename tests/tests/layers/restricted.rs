//! The restricted shell without its look at the line (S4-9): what the kernel alone makes of lines that get past a grammar.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::sync::{Arc, Mutex};

use callgate::policy::effective::Source;
use callgate::policy::profile::Profile;
use callgate::policy::requirement::RequirementSet;
use callgate::policy::rules::{Action, Rule, RuleScope};
use callgate::{
    Answer, Approver, Asked, Launcher, Layer, Outcome, Question, Session, SessionSpec, StrengthChoice, Supervisor,
};
use callgate_tests::{Binaries, Host, TestEnv, matrix};
use serde_json::json;

/// A shell that only reads, in a session in which tools write.
const PROFILE: &str = "shell: restricted\nfile_write: full\napproval: none\n";

/// Lines that a grammar was led past, or could be: each makes or changes something in the workspace where nothing holds it, or
/// says RAN. All programs in them are on every host of the suite.
const LINES: &[&str] = &[
    // By what is read twice, or split, or said later.
    "command bash <<< 'touch made'",
    "bash version",
    "/usr/bin/python3 version.py",
    "make version",
    "awk 'BEGIN{print /\"/;system(\"touch made\");/\"/}'",
    "op=-v; test ! \"$op\" 'a[$(touch made)]'",
    "x='5 rm kept'; nice -n $x ls",
    "x='1 5 rm kept'; timeout -k $x",
    "x='1 rm'; echo kept | xargs -n $x",
    "x=m; echo kept | xargs -I% r$x %",
    "echo kept | xargs -I% -n9 rm",
    "echo kept | xargs -I% -L1 rm",
    "xxd -ps kept made",
    "xz -td packed.xz",
    "bzip2 -td packed.bz2",
    "zstd -qtd packed.zst",
    "git config set --comment -l user.name x; git config user.name x",
    "git tag --format -l new",
    // What the shell does itself.
    "echo x > made",
    "echo x >> kept",
    "exec 3<>kept && echo x >&3",
    "printf -v 'a[$(touch made)]' y",
    "enable -f ./none.so none; touch made",
    // What is in the list, used otherwise.
    "sed -i s/k/l/ kept",
    "sed -n 'w made' kept",
    "sed '1e touch made' kept",
    "awk 'BEGIN{print \"x\" > \"made\"}'",
    "awk 'BEGIN{\"touch made\" | getline}'",
    "find . -name kept -delete",
    "find . -name kept -exec touch made ';'",
    "sort -o kept version",
    "sort --compress-program=./tool -S 1b version kept | cat; ./tool",
    "tar cf made kept",
    "tar tf packed.tar --checkpoint=1 --checkpoint-action=exec='touch made'",
    "gzip kept",
    "env touch made",
    "date -r kept && env -S 'touch made'",
    "rg --pre ./tool k",
    "git -c alias.x='!touch made' x",
    "git -c core.fsmonitor=./tool status",
    "git -c core.sshCommand='touch made;:' ls-remote ssh://host/path",
    "GIT_EXTERNAL_DIFF=./tool git diff HEAD~1",
    "git stash list; git checkout -q HEAD~1 -- kept",
    "git clean -fdqx; git reset -q --hard HEAD~1",
    "git init -q made",
    // Others, by any way.
    "touch made",
    "rm kept",
    "chmod 600 kept",
    "touch -d 2001-01-01 kept",
    "ln -s kept made",
    "mkdir made",
    "mkfifo made",
    "cp kept made",
    "perl -e 'open F, \">made\"'",
    "/usr/bin/python3 -c 'open(\"made\", \"w\")'",
    "sh -c 'echo RAN'",
    "bash -c 'echo RAN'",
    "/proc/self/exe -c 'echo RAN'",
    "exec -a ls bash -c 'echo RAN'",
    "exec -a zgrep sh -c 'echo RAN'",
    "exec -a ls perl -e 'print \"RAN\\n\"'",
    "BASH_ENV=./tool bash -c 'echo RAN'",
    "./tool; echo x",
    "LOADER /usr/bin/touch made",
    "LOADER /bin/bash -c 'echo RAN'",
    "/usr/bin/python3 -c 'import os; f = os.memfd_create(\"x\"); os.write(f, open(\"/bin/echo\", \"rb\").read()); \
     os.execve(f, [\"echo\", \"RAN\"], {})'",
    // Elsewhere than in the workspace.
    "echo x > \"$TMPDIR/x\" && echo RAN",
    "echo x > ~/x && echo RAN",
    "echo x > /dev/shm/callgate-x && echo RAN; rm -f /dev/shm/callgate-x",
    "echo x > /tmp/callgate-x && echo RAN; rm -f /tmp/callgate-x",
    "cat <<< $(head -c 100000 /dev/zero | tr '\\0' x) | grep -q x && echo RAN",
];

/// Lines that such a shell is for, and what they say.
const READING: &[(&str, &str)] = &[
    ("cat kept | head -1", "kept\n"),
    ("echo x > /dev/null && echo done", "done\n"),
    ("grep -c k kept | sed s/1/one/", "one\n"),
    ("awk '{print $1}' kept", "kept\n"),
    ("ls k* | xargs -n 1 wc -c", "5 kept\n"),
    ("find . -maxdepth 1 -name kept -exec cat {} +", "kept\n"),
    ("timeout 5 nice env cat kept", "kept\n"),
    ("git log --format=%s", "two\none\n"),
    ("git diff --stat HEAD~1 HEAD -- kept | wc -l", "2\n"),
    ("tar tf packed.tar", "kept\n"),
    // Scripts, whose interpreters start nothing else.
    ("zgrep k packed.gz", "kept\n"),
    ("zcat packed.gz", "kept\n"),
    ("basename $(which cat)", "cat\n"),
    ("cat <<E\nhere\nE", "here\n"),
];

fn loader() -> &'static str {
    let known = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];
    known.into_iter().find(|path| std::path::Path::new(path).exists()).unwrap()
}

/// Fills the workspace with what the lines are about, as a user's work would be.
fn fill(env: &TestEnv) {
    for (name, text) in [
        ("kept", "old\n"),
        ("version", "touch made\n"),
        ("version.py", "open(\"made\", \"w\")\n"),
        ("Makefile", ".PHONY: version\nversion:\n\ttouch made\n"),
        ("tool", "#!/bin/sh\ntouch made\n"),
    ] {
        env.workspace_file(name, text);
    }
    fs::set_permissions(env.workspace().join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
    let make = "export HOME=$PWD GIT_CONFIG_NOSYSTEM=1; git init -q -b main . && git config user.email a@b && git config \
        user.name n && git add kept && git commit -qm one && echo kept > kept && git commit -qam two && gzip -k kept && mv \
        kept.gz packed.gz && cp kept packed && xz packed && cp kept packed && bzip2 packed && zstd -q kept -o packed.zst && \
        tar cf packed.tar kept";
    let made = env.bare().run(&["/bin/bash", "-c", make]);
    assert!(made.status.success(), "{made:?}");
}

/// By name: mode, time of change and content of all but git's caches.
type RestrictedTree = BTreeMap<String, (u32, i64, Vec<u8>)>;

fn tree(env: &TestEnv) -> RestrictedTree {
    let (top, mut found) = (env.workspace(), BTreeMap::new());
    let mut directories = vec![top.clone()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let about = fs::symlink_metadata(&path).unwrap();
            let content = if about.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
            let when = if about.is_dir() { 0 } else { about.mtime() };
            let name = path.strip_prefix(&top).unwrap().display().to_string();
            found.insert(name, (about.mode(), when, content));
            if about.is_dir() {
                directories.push(path);
            }
        }
    }
    found
}

/// Says yes, and remembers what such a call was said to be able to do.
#[derive(Debug, Default)]
struct Remembers(Mutex<Vec<Vec<String>>>);

impl Approver for Remembers {
    fn name(&self) -> &'static str {
        "test"
    }

    fn ask(&self, question: Arc<Question>) -> Asked {
        self.0.lock().unwrap().push(question.reach.clone());
        Box::pin(async { Some(Answer::Once) })
    }
}

async fn open(env: &TestEnv, profile: &str, asked: &Arc<Remembers>) -> Session {
    let launcher = Launcher::spawn(&Binaries::of_this_build().callgate()).unwrap();
    let supervisor = Supervisor::builder().launcher(launcher).build().unwrap();
    let requires = json!({ "fs": { "write": ["{workspace}/**"] }, "shell": [{ "cmd": "*" }] });
    let requires: RequirementSet = serde_json::from_value(requires).unwrap();
    let ask = Rule::new("bash", Action::Ask).pattern("tac *");
    let spec = SessionSpec::new(env.workspace())
        .strength(env.target().by_strength(StrengthChoice::Namespaces, StrengthChoice::Landlock))
        .profile(Profile::parse(profile, "p.yaml").unwrap())
        .requires(Source::CommandLine, requires)
        .rule(RuleScope::Session, ask)
        .approver(Arc::clone(asked) as Arc<dyn Approver>);
    supervisor.open(spec).await.unwrap()
}

/// Output of a line, whatever became of it.
async fn output(session: &Session, line: &str) -> String {
    let result = session.call("bash", json!({ "command": line })).await;
    assert_eq!(result.kind, Outcome::Output, "{line}: {result:?}");
    let steps = format!("{:?}", result.metadata.enforced);
    assert!(steps.contains("landlock") || steps.contains("Landlock"), "{steps}");
    result.data.unwrap()["output"].as_str().unwrap().to_owned()
}

/// S4-9, S4-10: a restricted shell writes nothing and starts nothing that is not listed, by the kernel and not by what is made of
/// its line: the look at the line is left out here. Each line does its harm bare; what the shell is for works; and the session
/// itself may write.
#[test]
fn s4_9_the_kernel_holds_the_restricted_shell() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let line = |line: &&str| line.replace("LOADER", loader());
    let lines: Vec<String> = LINES.iter().map(line).collect();
    let mut idle = Vec::new();
    for line in &lines {
        let env = TestEnv::new(callgate_tests::Target { host: Host::Namespaces, user: callgate_tests::User::Ordinary });
        fill(&env);
        let before = tree(&env);
        let home = env.outside().display().to_string();
        let bare = env.bare().variable("HOME", &home).variable("TMPDIR", &home);
        let ended = bare.run(&["/bin/bash", "-c", line]);
        if tree(&env) == before && !ended.stdout.contains("RAN") {
            idle.push(format!("{line}: {ended:?}"));
        }
    }
    assert!(idle.is_empty(), "the control: lines that do nothing bare\n{}", idle.join("\n"));
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        fill(&env);
        let before = tree(&env);
        let asked = Arc::new(Remembers::default());
        runtime.block_on(async {
            let session = open(&env, PROFILE, &asked).await.without(Layer::Rule);
            let mut wrong = Vec::new();
            for line in &lines {
                let said = output(&session, line).await;
                if said.lines().any(|word| word == "RAN") || tree(&env) != before {
                    wrong.push(format!("{line}: {said}"));
                }
            }
            for (line, wanted) in READING {
                let said = output(&session, line).await;
                if said != *wanted || tree(&env) != before {
                    wrong.push(format!("{line}: {said:?}, not {wanted:?}"));
                }
            }
            assert!(wrong.is_empty(), "{}", wrong.join("\n"));
            // Asked about, it is not said to change anything.
            assert_eq!(output(&session, "tac kept").await, "kept\n");
            let reaches = asked.0.lock().unwrap().clone();
            assert!(!reaches.is_empty() && reaches.iter().flatten().all(|reach| !reach.starts_with("change")));
            assert!(reaches.iter().flatten().any(|reach| reach.starts_with("read")), "{reaches:?}");
            // The control: it is the call that may not write.
            let written = session.call("write", json!({ "path": "made", "content": "x" })).await;
            assert_eq!(written.kind, Outcome::Output, "{written:?}");
            assert!(env.workspace().join("made").is_file());
            fs::remove_file(env.workspace().join("made")).unwrap();
            // And it is said what was not started.
            let refused = session.call("bash", json!({ "command": "/usr/bin/touch made" })).await;
            let told = format!("{:?}", refused.metadata.changes);
            assert!(told.contains("starts only programs that read"), "{told}");
        });
    });
}

/// Waits for a file with something in it; gives that.
async fn said(path: &std::path::Path) -> String {
    let start = std::time::Instant::now();
    loop {
        match fs::read_to_string(path) {
            Ok(text) if !text.is_empty() => return text,
            _ => assert!(start.elapsed() < std::time::Duration::from_secs(120), "{} does not come", path.display()),
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// B5, S4-9: a call that only reads does not reach a server that the host runs in its session: what it may not do, a server that
/// may could do for it. The look at the line is left out; the control is another program of the host's, at the same server.
#[test]
fn b5_s4_9_a_call_that_only_reads_reaches_no_server() {
    let server = "import os, socket\ns = socket.create_server(('127.0.0.1', 0))\n\
                  open('port.new', 'w').write(str(s.getsockname()[1])); os.rename('port.new', 'port')\n\
                  while True:\n  peer, _ = s.accept(); peer.sendall(b'served'); peer.close()";
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        runtime.block_on(async {
            let session = open(&env, PROFILE, &Arc::new(Remembers::default())).await.without(Layer::Rule);
            let null = || callgate::Stdio::null().unwrap();
            let server = session.spawn(["/usr/bin/python3", "-c", server], null()).await.unwrap();
            let port = said(&env.workspace().join("port")).await;
            // Written so that the watchdog does not know it.
            let ask = format!("d=/dev; cat < \"$d/tcp/127.0.0.1/{port}\"");
            let line = format!("{{ {ask}; }} > control.new; mv control.new control");
            let control = session.spawn(["/bin/bash", "-c", &line], null()).await.unwrap();
            assert_eq!(said(&env.workspace().join("control")).await, "served");
            control.wait().await.unwrap();
            let refused = output(&session, &ask).await;
            assert!(refused.contains("Connection refused") && !refused.contains("served"), "{refused}");
            server.abort().await.unwrap();
            server.wait().await.unwrap();
        });
    });
}
