//! Watchdogs that see every program that is about to run: with the arguments that it will have, whoever starts it and however,
//! and before its first instruction (C2, C6, C9, C14, C15).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use callgate::policy::effective::Source;
use callgate::policy::mode::Mode;
use callgate::policy::watchdog::{CallFacts, ExecFacts, Reason, Verdict, Wants, Watchdog};
use callgate::{
    Answer, Approver, Asked, Launcher, Outcome, Question, ResultEnvelope, Session, SessionSpec, Stdio, Supervisor,
    WatchdogProgram,
};
use callgate_tests::Binaries;
use serde_json::json;

use super::{STRENGTHS, callgate};

/// Has nothing against anything but one word among the arguments of these programs, and remembers what it was shown.
#[derive(Debug, Clone)]
struct Sees {
    of: [&'static str; 2],
    word: &'static str,
    asks: bool,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Sees {
    fn new(word: &'static str) -> Self {
        Self { of: ["touch", "harmless"], word, asks: false, seen: Arc::default() }
    }

    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

impl Watchdog for Sees {
    fn judge(&self, call: &CallFacts<'_>) -> Verdict {
        let commands = call.line.and_then(callgate_policy::rules::commands::parts);
        self.seen.lock().unwrap().push(format!("call {}: {commands:?}", call.tool));
        Verdict::Allow
    }

    fn wants(&self) -> Wants {
        Wants { lines: true, execs: true }
    }

    fn judge_exec(&self, exec: &ExecFacts<'_>) -> Verdict {
        let argv: Vec<String> = exec.argv.iter().map(ToString::to_string).collect();
        self.seen.lock().unwrap().push(format!("{}: {}", exec.program, argv.join(" ")));
        let reason = || Reason { rule: "word".to_owned(), text: "that word is not to be said".to_owned() };
        let name = exec.program.as_path().file_name().unwrap().to_str().unwrap();
        match self.of.contains(&name) && argv.iter().skip(1).any(|word| word == self.word) {
            true if self.asks => Verdict::Ask(reason()),
            true => Verdict::Deny(reason()),
            false => Verdict::Allow,
        }
    }
}

fn with_sessions(change: impl Fn(&mut SessionSpec), test: impl AsyncFn(&Session, &Path)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in STRENGTHS {
        let workspace = tempfile::tempdir().unwrap();
        let mut spec = SessionSpec::developer(workspace.path()).strength(strength).mode(Mode::Yolo);
        change(&mut spec);
        runtime.block_on(async {
            let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
            let session = supervisor.open(spec).await.unwrap();
            test(&session, workspace.path()).await;
        });
    }
}

async fn bash(session: &Session, command: &str) -> ResultEnvelope {
    let result = session.call("bash", json!({ "command": command })).await;
    assert_eq!(result.kind, Outcome::Output, "{result:?}");
    result
}

fn executable(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Ways of starting `touch WORD`. The last word of each is made up when it runs, or handed on by another program.
const WAYS: &[&str] = &[
    "touch WORD",
    "/usr/bin/touch WORD",
    "eval 'to'\"uch\" WO''RD",
    "$(printf touch) $(printf 'WO%s' RD)",
    "env -S 'touch WORD'",
    "nice timeout 5 setsid touch WORD",
    "echo WORD | xargs touch",
    "find . -maxdepth 0 -exec touch WORD ';'",
    "echo dG91Y2ggV09SRA== | base64 -d > line; sh line",
    "sh <<< 'touch WORD'",
    "f() { touch \"$@\"; }; f WORD",
    "exec touch WORD",
    "(touch WORD &) ; sleep 0.2",
    "python3 -c 'import os; os.execv(\"/usr/bin/touch\", [\"harmless\", \"WORD\"])'",
    "perl -e 'exec {\"/usr/bin/touch\"} \"harmless\", \"WORD\"'",
    "awk 'BEGIN { system(\"touch WORD\") }'",
    "cp /usr/bin/touch ./harmless && ./harmless WORD",
    "./script WORD",
    "BASH_ENV=env bash -c :",
    "git -c alias.x='!touch WORD' x",
    "tar cf a.tar script && tar xf a.tar --to-command 'touch WORD'",
];

/// C2, C3, C5, C6, C9: whatever starts it, it is seen as the kernel has it, and does not run. What runs beside it does.
#[test]
fn c2_c3_c5_c6_c9_every_program_is_seen_and_a_denied_one_does_not_run() {
    let watchdog = Sees::new("WORD");
    with_sessions(
        |spec| spec.watchdogs.push(Arc::new(watchdog.clone())),
        async |session, workspace| {
            executable(
                &workspace.join("script"),
                "#!/usr/bin/env bash\n[ \"$1\" = WORD ] && touch WORD OTHER || touch \"$1\"\n",
            );
            fs::write(workspace.join("env"), "touch WORD").unwrap();
            for way in WAYS {
                let control = way.replace("WORD", "word").replace("WO%s", "wo%s").replace("' RD", "' rd");
                let control = control.replace("WO''RD", "word").replace("dG91Y2ggV09SRA==", "dG91Y2ggd29yZA==");
                if !way.contains("BASH_ENV") {
                    bash(session, &control).await;
                    assert!(fs::remove_file(workspace.join("word")).is_ok(), "the control: {control}");
                }
                watchdog.seen();
                let result = bash(session, way).await;
                assert!(!workspace.join("WORD").exists() && !workspace.join("OTHER").exists(), "{way}: {result:?}");
                let seen = watchdog.seen();
                assert!(seen[0].starts_with("call bash: Some("), "{way}: {seen:?}");
                assert!(seen.iter().any(|seen| seen.contains(" WORD") && !seen.starts_with("call")), "{way}: {seen:?}");
                let told = &result.metadata.changes.as_ref().unwrap().not_started;
                assert!(
                    told.iter().any(|note| note.path.contains("WORD") && note.why.contains("not to be said")),
                    "{way}: {told:?}"
                );
            }
            let ended = bash(session, "touch WORD; echo $?; touch word; echo $?").await;
            let output = ended.data.unwrap()["output"].as_str().unwrap().to_owned();
            assert!(output.contains("Killed") && output.ends_with("137\n0\n"), "the shell goes on: {output}");
            // Started past the tools, and what that starts.
            let program = session.spawn(["sh", "-c", "touch WORD; touch other"], Stdio::null().unwrap()).await.unwrap();
            assert_eq!(program.wait().await.unwrap().code, Some(0));
            assert!(workspace.join("other").exists() && !workspace.join("WORD").exists());
            assert!(session.steps().any(|step| step.detail.contains("each shown to the watchdogs")));
        },
    );
}

/// C14: arguments that are rewritten by another thread while they are looked at: what is judged is what runs.
#[test]
fn c14_what_the_watchdog_saw_is_what_runs() {
    let probe = Binaries::of_this_build().probe();
    with_sessions(
        |spec| {
            spec.watchdogs.push(Arc::new(Sees { of: ["expr"; 2], ..Sees::new("0") }));
            let read = serde_json::from_value(json!({ "fs": { "read": [probe] } })).unwrap();
            spec.requires.push((Source::CommandLine, read));
        },
        async |session, _| {
            for how in ["string", "pointer", "shared"] {
                let line = format!("{} exec-race {how} 200 /usr/bin/expr 1 0", probe.display());
                let result = bash(session, &line).await;
                let output = result.data.unwrap()["output"].as_str().unwrap().to_owned();
                let told: serde_json::Value = serde_json::from_str(output.trim_end().lines().last().unwrap()).unwrap();
                assert_eq!(told["bad"], 0, "{how}: {output}");
                assert!(told["good"].as_u64() > Some(0) && told["killed"].as_u64() > Some(0), "{how}: {output}");
            }
        },
    );
}

/// S0-57, S0-59: what the watchdog wants asked is for a person, of whom the program waits for the answer; nobody is a no.
#[test]
fn s0_57_s0_59_a_person_is_asked_about_a_program() {
    #[derive(Debug)]
    struct WatchedPerson(Option<Answer>, Arc<Mutex<Vec<Arc<Question>>>>);
    impl Approver for WatchedPerson {
        fn name(&self) -> &'static str {
            "person"
        }
        fn ask(&self, question: Arc<Question>) -> Asked {
            self.1.lock().unwrap().push(question);
            let answer = self.0;
            Box::pin(async move { answer })
        }
    }
    for (answer, runs) in [(Some(Answer::Once), true), (Some(Answer::Reject), false), (None, false)] {
        let questions: Arc<Mutex<Vec<Arc<Question>>>> = Arc::default();
        with_sessions(
            |spec| {
                spec.watchdogs.push(Arc::new(Sees { asks: true, ..Sees::new("WORD") }));
                spec.approvers.push(Arc::new(WatchedPerson(answer, Arc::clone(&questions))));
            },
            async |session, workspace| {
                let result = bash(session, "for n in 1 2; do sh -c 'touch WORD'; done").await;
                assert_eq!(workspace.join("WORD").exists(), runs, "{answer:?}: {result:?}");
                let asked = std::mem::take(&mut *questions.lock().unwrap());
                assert_eq!(asked.len(), 2, "{asked:?}");
                assert_eq!(asked[0].arguments, json!({ "program": "/usr/bin/touch", "argv": ["touch", "WORD"] }));
                assert!(asked[0].why[0].contains("not to be said"), "{asked:?}");
            },
        );
    }
}

/// C15: a host's program sees what starts too; one that is late, or says what nobody understands, stops it.
#[test]
fn c15_a_host_s_program_judges_what_starts() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let place = tempfile::tempdir().unwrap();
    let (program, log) = (place.path().join("watchdog"), place.path().join("log"));
    let script = "#!/bin/bash\nread -r -d '' q; echo \"$q\" >> LOG\ncase $q in *'\"exec\"'*late*) sleep 100;; \
                  *'\"exec\"'*garbage*) echo maybe;; *'\"exec\"'*no*) echo '{\"verdict\":\"deny\",\"reason\":\"not that\"}';; \
                  *) echo '{\"verdict\":\"allow\"}';; esac\n";
    executable(&program, &script.replace("LOG", &log.display().to_string()));
    let workspace = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        let watchdog = WatchdogProgram::new([program], Duration::from_secs(6)).unwrap().sees_execs().sees_lines();
        let builder = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap());
        let supervisor = builder.watchdog_program(watchdog).build().unwrap();
        let spec = SessionSpec::developer(workspace.path()).mode(Mode::Yolo);
        let session = supervisor.open(spec).await.unwrap();
        for (name, why) in [("no", "not that"), ("late", "no answer within 6s"), ("garbage", "not understood")] {
            let result = bash(&session, &format!("touch {name}; touch made")).await;
            assert!(fs::remove_file(workspace.path().join("made")).is_ok(), "the control: {result:?}");
            assert!(!workspace.path().join(name).exists(), "{result:?}");
            let told = &result.metadata.changes.as_ref().unwrap().not_started;
            assert!(told.len() == 1 && told[0].why.contains(why), "{told:?}");
        }
        let log = fs::read_to_string(&log).unwrap();
        assert!(log.contains("\"commands\":[\"touch no\",\"touch made\"]"), "{log}");
        assert!(log.contains("{\"exec\":{\"argv\":[\"touch\",\"made\"],\"program\":\"/usr/bin/touch\"}"), "{log}");
    });
}

/// A call whose program waits for an answer that does not come ends when its time is up, and nothing of it is left; and the
/// session goes on.
#[test]
fn a_call_that_waits_for_an_answer_has_its_time() {
    #[derive(Debug)]
    struct Silent;
    impl Approver for Silent {
        fn name(&self) -> &'static str {
            "silent"
        }
        fn ask(&self, _question: Arc<Question>) -> Asked {
            Box::pin(std::future::pending())
        }
    }
    with_sessions(
        |spec| {
            spec.watchdogs.push(Arc::new(Sees { asks: true, ..Sees::new("WORD") }));
            spec.approvers.push(Arc::new(Silent));
            spec.patience = Duration::from_secs(60);
        },
        async |session, workspace| {
            let start = Instant::now();
            let result = session.call("bash", json!({ "command": "touch WORD", "timeout_ms": 500 })).await;
            assert_eq!(result.data.as_ref().unwrap()["timed_out"], true, "{result:?}");
            assert!(start.elapsed() < Duration::from_secs(60), "not the person's patience");
            bash(session, "touch other").await;
            assert!(workspace.join("other").exists() && !workspace.join("WORD").exists());
        },
    );
}

/// Denies a word to every program, where it is asked about programs: it does not want that itself.
#[derive(Debug)]
struct WhereAsked(&'static str);

impl Watchdog for WhereAsked {
    fn judge(&self, _call: &CallFacts<'_>) -> Verdict {
        Verdict::Allow
    }

    fn judge_exec(&self, exec: &ExecFacts<'_>) -> Verdict {
        match exec.argv.iter().any(|word| word.as_bytes() == self.0.as_bytes()) {
            true => Verdict::Deny(Reason { rule: "word".to_owned(), text: "that word is not to be said".to_owned() }),
            false => Verdict::Allow,
        }
    }
}

/// The built-in rules see what starts where the session wants that, and only there: what hides from them in a line. A host's
/// watchdog sees it there too, whether it asked for that or not.
#[test]
fn the_built_in_rules_see_what_starts() {
    let hidden = "$(printf d)d if=/dev/null of=/dev/sda count=0; echo $?";
    let step = |session: &Session, of: &str| session.steps().any(|step| step.detail.contains(of));
    let rules_hold = async |session: &Session| {
        let result = bash(session, hidden).await;
        assert!(result.data.as_ref().unwrap()["output"].as_str().unwrap().ends_with("137\n"), "{result:?}");
        let told = &result.metadata.changes.as_ref().unwrap().not_started;
        assert!(told[0].why.contains("watchdog rule `write-to-device`"), "{told:?}");
        let result = bash(session, "dd if=/dev/zero of=file bs=1 count=1 2>/dev/null; echo $?").await;
        assert_eq!(result.data.unwrap()["output"], "0\n", "the control");
    };
    with_sessions(
        |spec| spec.watch_execs = true,
        async |session, workspace| {
            rules_hold(session).await;
            bash(session, "touch WORD").await;
            assert!(workspace.join("WORD").exists(), "nobody has anything against it");
            assert!(step(session, "each shown to the watchdog's rules"));
        },
    );
    with_sessions(
        |spec| {
            spec.watch_execs = true;
            spec.watchdogs.push(Arc::new(WhereAsked("WORD")));
        },
        async |session, workspace| {
            rules_hold(session).await;
            bash(session, "touch WORD; touch word").await;
            assert!(!workspace.join("WORD").exists() && workspace.join("word").exists());
            assert!(step(session, "each shown to the watchdogs"));
        },
    );
    with_sessions(
        |spec| spec.watchdogs.push(Arc::new(WhereAsked("WORD"))),
        async |session, workspace| {
            let result = bash(session, hidden).await;
            let output = result.data.unwrap()["output"].as_str().unwrap().to_owned();
            assert!(output.ends_with("1\n"), "it starts, and the sandbox holds: {output}");
            bash(session, "touch WORD").await;
            assert!(workspace.join("WORD").exists() && !step(session, "watchdog"), "nobody is asked");
        },
    );
}
