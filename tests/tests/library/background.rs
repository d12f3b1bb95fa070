//! Programs in the background, as a host's model has them: `exec_shell` and the tools beside it (S2-11 to S2-13, X2-1 to X2-4).

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use callgate::policy::failure::ErrorCode;
use callgate::policy::mode::Mode;
use callgate::policy::profile::Profile;
use callgate::policy::rules::{Action, Rule, RuleScope};
use callgate::{
    Answer, Approver, Asked, EventKind, Launcher, Layer, Outcome, Question, ResultEnvelope, Session, SessionSpec,
    Store, Supervisor,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{STRENGTHS, callgate, until};

const TOOLS: [&str; 5] =
    ["exec_shell", "exec_shell_wait", "exec_shell_interact", "exec_shell_cancel", "exec_shell_list"];
/// Longer than anything takes here: no result comes because this has passed.
const LONG: u64 = 600_000;

fn with_tools(spec: SessionSpec) -> SessionSpec {
    TOOLS.into_iter().fold(spec, SessionSpec::extra_tool)
}

/// Runs `test` in a session of each strength that has the tools.
fn in_sessions(spec: impl Fn(SessionSpec) -> SessionSpec, test: impl AsyncFn(Session, &Path)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in STRENGTHS {
        let workspace = tempfile::tempdir().unwrap();
        runtime.block_on(async {
            let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
            let base = with_tools(SessionSpec::developer(workspace.path()).strength(strength).mode(Mode::Yolo));
            let session = supervisor.open(spec(base)).await.unwrap();
            test(session, workspace.path()).await;
        });
    }
}

async fn data(session: &Session, tool: &str, args: Value) -> Value {
    let result = session.call(tool, args.clone()).await;
    assert_eq!(result.kind, Outcome::Output, "{tool} {args}: {result:?}");
    result.data.unwrap()
}

/// Starts a task, and returns its id.
async fn start(session: &Session, command: &str) -> String {
    let started = data(session, "exec_shell", json!({ "command": command, "background": true })).await;
    assert_eq!((&started["status"], &started["sandboxed"]), (&json!("Running"), &json!(true)), "{started}");
    started["task_id"].as_str().unwrap().to_owned()
}

/// Waits for the end of a task, and returns what it had printed on standard output since it was read last.
async fn ended(session: &Session, id: &str) -> (Value, String) {
    let mut output = String::new();
    loop {
        let delta = data(session, "exec_shell_wait", json!({ "task_id": id, "timeout_ms": LONG })).await;
        output.push_str(delta["stdout"].as_str().unwrap());
        if delta["status"] != "Running" && delta["stdout_truncated"] == false {
            return (delta, output);
        }
    }
}

/// How many processes have this in their command line.
fn with(text: &str) -> usize {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(text)).count()
}

/// X2-1, X2-2: in the foreground the streams are apart, the input ends, and the result says how it ended.
#[test]
fn x2_1_x2_2_a_command_in_the_foreground() {
    in_sessions(
        |spec| spec,
        async |session, _| {
            let shell = async |args: Value| data(&session, "exec_shell", args).await;
            let both = shell(json!({ "command": "echo out; echo err >&2; exit 3" })).await;
            assert_eq!((&both["stdout"], &both["stderr"]), (&json!("out\n"), &json!("err\n")), "{both}");
            assert_eq!((&both["status"], &both["exit_code"]), (&json!("Failed"), &json!(3)), "{both}");
            assert_eq!((&both["summary"], &both["stdout_len"]), (&json!("out"), &json!(4)), "{both}");
            for name in ["stdin", "input", "data"] {
                let fed = shell(json!({ "command": "cat; echo .", name: "a\nb" })).await;
                assert_eq!((&fed["stdout"], &fed["status"]), (&json!("a\nb.\n"), &json!("Completed")), "{name}: {fed}");
            }
            let unfed = shell(json!({ "command": "cat; echo ended" })).await;
            assert_eq!(unfed["stdout"], "ended\n", "{unfed}");
            // Who does not read all of a long input is not waited for.
            let unread = shell(json!({ "command": "head -c 1", "stdin": "x".repeat(200_000) })).await;
            assert_eq!(unread["stdout"], "x", "{unread}");
            // X2-2: 30,000 bytes of each, at a character's boundary; the rest is in a file.
            let long = shell(json!({ "command": "printf 'x%.0s' {1..29999}; printf 'äöü'; echo short >&2" })).await;
            assert_eq!((&long["stdout_omitted"], &long["stdout_truncated"]), (&json!(6), &json!(true)), "{long}");
            assert_eq!((&long["stderr"], &long["stderr_truncated"]), (&json!("short\n"), &json!(false)));
            assert!(long["stdout"].as_str().unwrap().ends_with("x\n[the first 29999 bytes; 6 more are not shown]"));
            assert_eq!(fs::read_to_string(long["stdout_path"].as_str().unwrap()).unwrap(), "äöü");
            // X2-4: a timeout kills, and says what to do.
            let late = shell(json!({ "command": "echo begun; sleep 600", "timeout_ms": 1000 })).await;
            assert_eq!((&late["status"], &late["stdout"]), (&json!("TimedOut"), &json!("begun\n")), "{late}");
            assert!(late["notes"][0].as_str().unwrap().contains("background: true"), "{late}");
            for (args, says) in [
                (json!({ "command": "true", "interactive": true, "tty": true }), "cannot be combined with `tty`"),
                (json!({ "command": "true", "stdin": "a", "data": "b" }), "one argument"),
            ] {
                let refused = session.call("exec_shell", args).await;
                assert!(refused.error_text.as_ref().unwrap().contains(says), "{refused:?}");
                assert_eq!(refused.metadata.error.unwrap().context.code, ErrorCode::InputInvalid);
            }
        },
    );
}

/// S2-12, S2-13, X2-3: ten thousand increments are ten thousand lines, each once and in order.
#[test]
fn s2_12_s2_13_x2_3_increments_are_read_once_and_none_is_lost() {
    in_sessions(
        |spec| spec,
        async |session, _| {
            let echo = "n=0; while read -r line; do n=$((n+1)); echo \"$n $line\"; done; echo over";
            let id = start(&session, echo).await;
            let mut total = 0;
            for n in 1..=10_000u32 {
                let args = json!({ "task_id": id, "input": "ä\n", "timeout_ms": LONG });
                let delta = data(&session, "exec_shell_interact", args).await;
                assert_eq!(delta["stdout"], format!("{n} ä\n"), "{delta}");
                total += delta["stdout_len"].as_u64().unwrap();
                assert_eq!((&delta["stdout_total_len"], &delta["stream_delta"]), (&json!(total), &json!(true)));
            }
            let args = json!({ "task_id": id, "close_stdin": true, "timeout_ms": LONG });
            let last = data(&session, "exec_shell_interact", args).await;
            assert_eq!(last["stdout"], "over\n", "{last}");
            let (end, more) = ended(&session, &id).await;
            assert_eq!((&end["status"], &end["exit_code"], &*more), (&json!("Completed"), &json!(0), ""), "{end}");
            // It can be asked for again, and nothing of the output comes again.
            assert_eq!(ended(&session, &id).await.1, "");
        },
    );
}

/// X2-3: a stream of a megabyte is read in parts while it is written, without loss or doubling; and what nobody reads is bounded,
/// its end kept and its loss counted.
#[test]
fn x2_3_a_stream_is_whole_and_what_is_dropped_is_counted() {
    in_sessions(
        |spec| spec,
        async |session, workspace| {
            // It stops every 100 KB until it is told that those were read.
            let id =
                start(&session, "for i in {1..10}; do seq -f '%09.0f' $((i*10000)) $((i*10000+9999)); read -r; done")
                    .await;
            let (mut output, mut read) = (String::new(), 0);
            loop {
                let delta = data(&session, "exec_shell_wait", json!({ "task_id": id, "wait": false })).await;
                assert_eq!(delta["stdout_omitted"], 0, "{delta}");
                output.push_str(delta["stdout"].as_str().unwrap());
                if delta["status"] != "Running" {
                    break;
                }
                if output.len() >= read + 100_000 {
                    read += 100_000;
                    let args = json!({ "task_id": id, "input": "\n", "timeout_ms": 1 });
                    output.push_str(data(&session, "exec_shell_interact", args).await["stdout"].as_str().unwrap());
                }
            }
            output.push_str(&ended(&session, &id).await.1);
            let whole: String = (10_000..110_000).map(|n| format!("{n:09}\n")).collect();
            assert!(output == whole, "{} of {} bytes", output.len(), whole.len());

            let flood = start(&session, "seq -f '%09.0f' 0 99999; touch flooded").await;
            until("all is written, and nothing read", || workspace.join("flooded").exists()).await;
            let (mut read, mut omitted, mut output) = (0, 0, String::new());
            loop {
                let delta = data(&session, "exec_shell_wait", json!({ "task_id": flood, "timeout_ms": LONG })).await;
                read += delta["stdout_len"].as_u64().unwrap();
                omitted += delta["stdout_omitted"].as_u64().unwrap();
                output.push_str(delta["stdout"].as_str().unwrap());
                if delta["status"] != "Running" && delta["stdout_truncated"] == false {
                    assert_eq!(delta["stdout_total_len"], 1_000_000, "{delta}");
                    break;
                }
            }
            assert_eq!(read + omitted, 1_000_000);
            assert!(omitted > 500_000 && output.ends_with("000099998\n000099999\n"), "{omitted}");
        },
    );
}

/// X2-4: fifty tasks at once, one more than there may be, and the end of all of them.
#[test]
fn x2_4_fifty_tasks_run_at_once_and_there_is_a_bound() {
    in_sessions(
        |spec| spec,
        async |session, workspace| {
            let marker = workspace.join("marker").display().to_string();
            let mut ids = Vec::new();
            for n in 0..64 {
                ids.push(start(&session, &format!("echo {n}; read -r; echo {n} {marker}; exit {n}")).await);
            }
            let more = session.call("exec_shell", json!({ "command": "touch more", "background": true })).await;
            assert_eq!(more.metadata.error.as_ref().unwrap().context.code, ErrorCode::ResourceBusy, "{more:?}");
            assert!(more.error_text.unwrap().contains("at most 64"));
            assert!(!workspace.join("more").exists());
            let listed = data(&session, "exec_shell_list", json!({})).await;
            let tasks = listed["tasks"].as_array().unwrap();
            assert!(tasks.iter().map(|task| task["task_id"].as_str().unwrap()).eq(ids.iter().map(String::as_str)));
            assert!(tasks.iter().all(|task| task["status"] == "Running"));
            // Each has its own streams and its own end.
            for (n, id) in ids.iter().enumerate().take(10) {
                let input = json!({ "task_id": id, "input": "\n", "timeout_ms": LONG });
                let mut output =
                    data(&session, "exec_shell_interact", input).await["stdout"].as_str().unwrap().to_owned();
                let (end, rest) = ended(&session, id).await;
                output.push_str(&rest);
                assert_eq!(output, format!("{n}\n{n} {marker}\n"));
                assert_eq!(end["exit_code"], n, "{end}");
            }
            start(&session, "read -r").await;
            assert!(with(&marker) >= 54, "the control");
            let cancelled = data(&session, "exec_shell_cancel", json!({ "all": true })).await;
            let cancelled = cancelled["tasks"].as_array().unwrap();
            assert_eq!(cancelled.len(), 55);
            assert!(cancelled.iter().all(|task| task["status"] == "Killed" && task["signal"] == 15), "{cancelled:?}");
            assert_eq!(with(&marker), 0);
            let again = start(&session, "echo again").await;
            assert_eq!(ended(&session, &again).await.1, "again\n");
        },
    );
}

/// X2-4: a cancelled task is asked to end, and what does not is killed, with whatever it has started and however that hides.
#[test]
fn x2_4_cancel_ends_the_whole_tree() {
    in_sessions(
        |spec| spec,
        async |session, workspace| {
            let marker = workspace.join("marker");
            fs::write(&marker, "").unwrap();
            let marker = marker.display().to_string();
            let polite =
                start(&session, "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.05; done").await;
            let ready = json!({ "task_id": polite, "timeout_ms": LONG });
            assert_eq!(data(&session, "exec_shell_interact", ready).await["stdout"], "ready\n");
            let told = data(&session, "exec_shell_cancel", json!({ "task_id": polite })).await;
            assert_eq!(
                (&told["tasks"][0]["status"], &told["tasks"][0]["exit_code"]),
                (&json!("Killed"), &json!(7)),
                "{told}"
            );
            assert_eq!(ended(&session, &polite).await.1, "bye\n");

            let deaf = format!(
                "trap '' TERM HUP INT; (setsid tail -f {marker} </dev/null >/dev/null 2>&1 &); tail -f {marker} & echo ready; \
                 while :; do sleep 0.05; done"
            );
            let deaf = start(&session, &deaf).await;
            let ready = json!({ "task_id": deaf, "timeout_ms": LONG });
            assert_eq!(data(&session, "exec_shell_interact", ready).await["stdout"], "ready\n");
            until("its children run", || with(&format!("-f\0{marker}")) >= 2).await;
            let told = data(&session, "exec_shell_cancel", json!({ "task_id": deaf })).await;
            assert_eq!(
                (&told["tasks"][0]["status"], &told["tasks"][0]["signal"]),
                (&json!("Killed"), &json!(9)),
                "{told}"
            );
            assert_eq!(with(&marker), 0, "as soon as the call returns");
            for args in [json!({}), json!({ "task_id": deaf, "all": true })] {
                let refused = session.call("exec_shell_cancel", args).await;
                assert_eq!(refused.metadata.error.unwrap().context.code, ErrorCode::InputInvalid);
            }
        },
    );
}

/// The pid of the one process whose command line has this.
fn pid_of(text: &str) -> Option<u32> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let mut named = all.filter(|entry| {
        fs::read(entry.path().join("cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(text))
    });
    named.find_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn parent_of(pid: u32) -> i32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().parse().unwrap()
}

/// X2-4, D12: the init of a task is stopped, by somebody outside, and does not end its program. Whoever cancels the task has it killed
/// all the same, before it is said to have ended, and its session goes on. What that takes passes by a clock that the test sets on.
#[test]
fn x2_4_d12_a_task_whose_init_is_stopped_is_killed() {
    /// Longer than is waited for a task that was told to end, each time, and shorter than it runs.
    const PATIENCE: Duration = Duration::from_secs(151);
    in_sessions(
        |spec| spec,
        async |session, workspace| {
            let marker = workspace.join("marker");
            fs::write(&marker, "").unwrap();
            let marker = marker.display().to_string();
            let id = start(&session, &format!("trap '' TERM; while :; do sleep 0.05; done; : {marker}")).await;
            until("it runs", || with(&marker) == 1).await;
            let init = parent_of(pid_of(&marker).unwrap());
            let stopped = Pid::from_raw(init).unwrap();
            kill_process(stopped, Signal::STOP).unwrap();
            let cancels = async { data(&session, "exec_shell_cancel", json!({ "task_id": id })).await };
            let time_passes = async {
                // First it is asked to end, then it is told to, then it is killed.
                for _ in 0..3 {
                    let began = Instant::now();
                    while began.elapsed() < Duration::from_secs(2) {
                        if with(&marker) == 0 {
                            return;
                        }
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                    tokio::time::pause();
                    tokio::time::advance(PATIENCE).await;
                    tokio::time::resume();
                }
            };
            let (told, ()) = tokio::join!(cancels, time_passes);
            assert_eq!(with(&marker), 0, "it is said to have ended: {told}");
            assert_eq!(told["tasks"][0]["status"], "Failed", "{told}");
            let said = ended(&session, &id).await.0;
            assert!(said["notes"].to_string().contains("and was killed"), "{said}");
            let next = start(&session, "echo next").await;
            assert_eq!(ended(&session, &next).await.1, "next\n", "the session goes on");
        },
    );
}

/// X2-3: an input at the start and later ones are one stream; what is not read is not written, and that is told.
#[test]
fn x2_3_input_goes_on_and_ends() {
    in_sessions(
        |spec| spec,
        async |session, _| {
            let args = json!({ "command": "cat; echo over", "background": true, "stdin": "one\n" });
            let id = data(&session, "exec_shell", args).await["task_id"].as_str().unwrap().to_owned();
            let interact = async |args: Value| {
                let mut all = json!({ "task_id": id, "timeout_ms": LONG });
                all.as_object_mut().unwrap().extend(args.as_object().unwrap().clone());
                data(&session, "exec_shell_interact", all).await
            };
            assert_eq!(interact(json!({})).await["stdout"], "one\n");
            let two = interact(json!({ "data": "two\n" })).await;
            assert_eq!((&two["stdout"], &two["input_written"]), (&json!("two\n"), &json!(4)), "{two}");
            let mut last = interact(json!({ "stdin": "three\n", "close_stdin": true })).await;
            let output = last["stdout"].take().as_str().unwrap().to_owned() + &ended(&session, &id).await.1;
            assert_eq!(output, "three\nover\n");
            let late = interact(json!({ "input": "four\n" })).await;
            assert_eq!((&late["status"], &late["input_written"]), (&json!("Completed"), &json!(0)), "{late}");
            assert!(late["notes"][0].as_str().unwrap().starts_with("0 of 5 bytes"), "{late}");
            // It reads nothing: a pipe takes what it holds, and the rest is not waited for beyond the time.
            let deaf = start(&session, "sleep 600").await;
            let args = json!({ "task_id": deaf, "input": "x".repeat(200_000), "timeout_ms": 100 });
            let full = data(&session, "exec_shell_interact", args).await;
            assert_eq!((&full["status"], &full["input_written"]), (&json!("Running"), &json!(65_536)), "{full}");
            assert!(full["notes"][0].as_str().unwrap().contains("does not read its input"), "{full}");
            // The session's other calls do not wait for one that types.
            let args = json!({ "task_id": deaf, "input": "x".repeat(200_000), "timeout_ms": LONG });
            let other = async {
                let printed = data(&session, "exec_shell", json!({ "command": "echo other" })).await;
                data(&session, "exec_shell_cancel", json!({ "all": true })).await;
                printed["stdout"].clone()
            };
            let (full, printed) = tokio::join!(data(&session, "exec_shell_interact", args), other);
            assert_eq!((&full["input_written"], printed.as_str()), (&json!(0), Some("other\n")), "{full}");
        },
    );
}

/// S0-51, C3: what is typed in pieces is judged as the line that it makes, and nothing is typed behind what a call was not judged with.
#[test]
fn s0_51_c3_what_is_typed_in_pieces_is_one_line() {
    in_sessions(
        |spec| spec,
        async |session, _| {
            session.add_rule(&Rule::new("bash", Action::Deny).pattern("git push *")).unwrap();
            let id = start(&session, "cat").await;
            let types = async |text: &str| {
                let args = json!({ "task_id": id, "input": text, "timeout_ms": 200 });
                session.call("exec_shell_interact", args).await
            };
            let layer = |result: ResultEnvelope| result.metadata.denial.map(|denial| denial.layer);
            for pieces in [&["git pu", "sh\n"][..], &["gi", "t ", "pus", "h"], &["git pu", "\u{4}", "sh\n"]] {
                let (last, first) = pieces.split_last().unwrap();
                for piece in first {
                    assert_eq!(layer(types(piece).await), None, "{pieces:?} {piece:?}");
                }
                assert_eq!(layer(types(last).await), Some(Layer::Rule), "{pieces:?}");
                // The control: the same beginning ends in another way.
                assert_eq!(layer(types("ll\n").await), None, "{pieces:?}");
            }
            // A terminal takes it back.
            assert_eq!(layer(types("git puXX\u{8}\u{8}sh\n").await), Some(Layer::Rule));
            assert_eq!(layer(types("\u{3}").await), None, "the control");
            // An interactive shell puts other words there.
            for text in ["!x\n", "^pull^push\n", "echo a!!\n"] {
                assert_eq!(layer(types(text).await), Some(Layer::Rule), "{text:?}");
            }
            assert_eq!(layer(types("echo a != b\n").await), None, "the control");
            let terminal = json!({ "command": "cat", "background": true, "tty": true });
            let terminal = data(&session, "exec_shell", terminal).await["task_id"].clone();
            for (to, wanted) in [(&terminal, Some(Layer::Rule)), (&json!(id), None)] {
                let args = json!({ "task_id": to, "input": "git pul\t", "timeout_ms": 200 });
                assert_eq!(
                    layer(session.call("exec_shell_interact", args).await),
                    wanted,
                    "a terminal may complete it"
                );
            }
            types("l\n").await;
            let after = types("over\n").await.data.unwrap();
            assert!(!after["stdout"].as_str().unwrap().contains("git push"), "{after}");
        },
    );
}

/// X2-1: a terminal of the task's own.
#[test]
fn x2_1_a_task_has_a_terminal() {
    in_sessions(
        |spec| spec,
        async |session, _| {
            let args = json!({ "command": "test -t 0 && test -t 1 && echo terminal; stty -echo; read -r x; echo got $x", "tty": true });
            let id = data(&session, "exec_shell", args).await["task_id"].as_str().unwrap().to_owned();
            let args = json!({ "task_id": id, "timeout_ms": LONG });
            assert_eq!(data(&session, "exec_shell_interact", args).await["stdout"], "terminal\r\n");
            let args = json!({ "task_id": id, "input": "this\n", "timeout_ms": LONG });
            let mut output = data(&session, "exec_shell_interact", args).await["stdout"].as_str().unwrap().to_owned();
            let (end, rest) = ended(&session, &id).await;
            output.push_str(&rest);
            assert!(output.ends_with("got this\r\n"), "{output:?}");
            assert_eq!(end["status"], "Completed");
        },
    );
}

/// X2-4: who aborts the calls of a turn stops waiting; the task goes on, and none of its output is lost. S0-69: the end of the
/// session is its end, also while the host's runtime does something else.
#[test]
fn x2_4_s0_69_a_task_outlives_its_turn_and_not_its_session() {
    in_sessions(
        |spec| spec,
        async |session, workspace| {
            let beats = workspace.join("beats");
            let beat = format!("trap '' TERM; while :; do echo beat | tee -a {}; sleep 0.02; done", beats.display());
            let id = start(&session, &beat).await;
            let length = || fs::metadata(&beats).map_or(0, |about| about.len());
            until("it beats", || length() > 0).await;
            let waits = session.call("exec_shell_wait", json!({ "task_id": id, "timeout_ms": LONG }));
            let (waited, ()) = tokio::join!(waits, session.abort());
            assert_eq!(waited.metadata.error.unwrap().context.code, ErrorCode::TurnCancelled);
            let before = length();
            until("it beats on", || length() > before).await;
            let delta = data(&session, "exec_shell_wait", json!({ "task_id": id, "wait": false })).await;
            assert!(delta["stdout"].as_str().unwrap().starts_with("beat\n") && delta["status"] == "Running", "{delta}");
            assert!(with(&beats.display().to_string()) > 0, "the control");
            drop(session);
            // The runtime is blocked meanwhile.
            let start = std::time::Instant::now();
            while with(&beats.display().to_string()) > 0 {
                assert!(start.elapsed().as_secs() < 60, "it runs still");
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        },
    );
}

/// X2-3: an id is worth something in its own session alone; one that is not known is refused, and changes nothing.
#[test]
fn x2_3_a_task_is_its_session_s() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in STRENGTHS {
        let workspace = tempfile::tempdir().unwrap();
        runtime.block_on(async {
            let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
            let spec = || with_tools(SessionSpec::developer(workspace.path()).strength(strength).mode(Mode::Yolo));
            let (mine, other) = (supervisor.open(spec()).await.unwrap(), supervisor.open(spec()).await.unwrap());
            let id = start(&mine, "cat").await;
            let of_other = [
                ("exec_shell_wait", json!({ "task_id": id })),
                ("exec_shell_interact", json!({ "task_id": id, "input": "theirs\n", "close_stdin": true })),
                ("exec_shell_cancel", json!({ "task_id": id })),
            ];
            for (tool, args) in of_other {
                let refused = other.call(tool, args).await;
                assert_eq!(refused.metadata.error.unwrap().context.code, ErrorCode::NotFound, "{tool}");
            }
            data(&other, "exec_shell_cancel", json!({ "all": true })).await;
            assert_eq!(data(&other, "exec_shell_list", json!({})).await["tasks"], json!([]));
            let args = json!({ "task_id": id, "input": "mine\n", "timeout_ms": LONG });
            assert_eq!(data(&mine, "exec_shell_interact", args).await["stdout"], "mine\n", "the control");
        });
    }
}

/// Says yes for the session, and remembers what was shown.
#[derive(Debug, Default)]
struct SessionPerson {
    asked: Mutex<Vec<String>>,
    times: AtomicU32,
}

impl Approver for SessionPerson {
    fn name(&self) -> &'static str {
        "person"
    }

    fn ask(&self, question: Arc<Question>) -> Asked {
        self.times.fetch_add(1, Ordering::Relaxed);
        self.asked.lock().unwrap().push(question.arguments["command"].as_str().unwrap_or_default().to_owned());
        Box::pin(async { Some(Answer::Always) })
    }
}

fn denial(result: &ResultEnvelope) -> Option<Layer> {
    result.metadata.denial.as_ref().map(|denial| denial.layer)
}

/// X2-5: a person is asked about the start of a task as about any command, and not about what is read of it; a yes to a command
/// with one input is none to another. Rules deny a task's command, and any of the tools.
#[test]
fn x2_5_rules_and_people_decide_about_tasks() {
    let person = Arc::new(SessionPerson::default());
    let shared = Arc::clone(&person);
    in_sessions(
        move |spec| {
            let denies = Rule::new("shell.run", Action::Deny).pattern("touch *");
            spec.mode(Mode::Ask).approver(shared.clone()).rule(RuleScope::Session, denies)
        },
        async |session, workspace| {
            person.times.store(0, Ordering::Relaxed);
            let times = || person.times.load(Ordering::Relaxed);
            let id = start(&session, "cat").await;
            assert_eq!(times(), 1);
            let typed = json!({ "task_id": id, "input": "a\n", "timeout_ms": LONG });
            assert_eq!(data(&session, "exec_shell_interact", typed).await["stdout"], "a\n");
            data(&session, "exec_shell_wait", json!({ "task_id": id, "wait": false })).await;
            data(&session, "exec_shell_list", json!({})).await;
            data(&session, "exec_shell_cancel", json!({ "task_id": id })).await;
            assert_eq!(times(), 2, "about what is typed, and nothing else: {:?}", person.asked);
            start(&session, "cat").await;
            assert_eq!(times(), 2, "the answer is kept");
            data(&session, "exec_shell", json!({ "command": "cat", "stdin": "one" })).await;
            data(&session, "exec_shell", json!({ "command": "cat", "stdin": "one" })).await;
            assert_eq!(times(), 3, "for one input, once");
            data(&session, "exec_shell", json!({ "command": "cat", "stdin": "another" })).await;
            assert_eq!(times(), 4);
            for background in [true, false] {
                let args = json!({ "command": "echo a; touch made", "background": background });
                let denied = session.call("exec_shell", args).await;
                assert_eq!(denial(&denied), Some(Layer::Rule), "{denied:?}");
            }
            assert_eq!(times(), 4);
            assert!(!workspace.join("made").exists());
            let listed = data(&session, "exec_shell_list", json!({})).await;
            assert_eq!(listed["tasks"].as_array().unwrap().len(), 2, "{listed}");
            session.add_rule(&Rule::new("exec_shell_interact", Action::Deny)).unwrap();
            let id = listed["tasks"][1]["task_id"].as_str().unwrap();
            let denied = session.call("exec_shell_interact", json!({ "task_id": id, "input": "b\n" })).await;
            assert_eq!(denial(&denied), Some(Layer::Rule), "{denied:?}");
            let read = data(&session, "exec_shell_wait", json!({ "task_id": id, "wait": false })).await;
            assert_eq!(read["stdout"], "", "nothing was typed: {read}");
        },
    );
}

/// S4-9, X2-1: a shell that only reads does so in the background too, whatever is typed to it.
#[test]
fn s4_9_x2_1_a_restricted_shell_is_restricted_in_the_background() {
    in_sessions(
        |spec| spec.mode(Mode::Ask).profile(Profile::built_in("readonly").unwrap()),
        async |session, workspace| {
            fs::write(workspace.join("file"), "content\n").unwrap();
            let denied = session.call("exec_shell", json!({ "command": "touch made", "background": true })).await;
            assert_eq!(denial(&denied), Some(Layer::Rule), "{denied:?}");
            assert_eq!(data(&session, "exec_shell_list", json!({})).await["tasks"], json!([]));
            let id = start(&session, "cat file").await;
            assert_eq!(ended(&session, &id).await.1, "content\n", "the control");
            assert!(!workspace.join("made").exists());
        },
    );
}

/// A task is held by the same sandbox as any command: what is typed to a shell does no more than its line could.
#[test]
fn a2_what_is_typed_is_held_by_the_sandbox() {
    let outside = tempfile::tempdir().unwrap();
    let made = outside.path().join("made");
    in_sessions(
        |spec| spec,
        async |session, workspace| {
            let id = start(&session, "bash").await;
            let line = format!("touch {}; touch inside; echo $?\n", made.display());
            let args = json!({ "task_id": id, "input": line, "close_stdin": true, "timeout_ms": LONG });
            data(&session, "exec_shell_interact", args).await;
            ended(&session, &id).await;
            assert!(workspace.join("inside").exists(), "the control");
            assert!(!made.exists());
        },
    );
}

/// A server in the background is there for the session's other calls.
#[test]
fn x2_4_the_session_reaches_a_server_in_the_background() {
    in_sessions(
        |spec| spec,
        async |session, workspace| {
            let server = "import socket,sys\ns=socket.create_server(('127.0.0.1',0))\nprint(s.getsockname()[1],flush=True)\n\
                          while True:\n c,_=s.accept()\n c.sendall(b'hello')\n c.close()\n";
            fs::write(workspace.join("server.py"), server).unwrap();
            let id = start(&session, "python3 server.py").await;
            let delta = data(&session, "exec_shell_interact", json!({ "task_id": id, "timeout_ms": LONG })).await;
            let port = delta["stdout"].as_str().unwrap().trim().to_owned();
            assert!(!port.is_empty(), "{delta}");
            let ask = json!({ "command": format!("cat < /dev/tcp/127.0.0.1/{port}") });
            assert_eq!(data(&session, "exec_shell", ask.clone()).await["stdout"], "hello");
            data(&session, "exec_shell_cancel", json!({ "task_id": id })).await;
            assert_eq!(data(&session, "exec_shell", ask).await["status"], "Failed", "it has ended");
        },
    );
}

/// X2-4, X0-57: the start is recorded with its command, increments as the results of their calls, and the end as a message of its
/// own; a session that is closed has ended all of it.
#[test]
fn x2_4_x0_57_tasks_are_recorded() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in STRENGTHS {
        let (workspace, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        runtime.block_on(async {
            let store = Store::at(&state.path().canonicalize().unwrap().join("store")).unwrap();
            let launcher = Launcher::spawn(&callgate()).unwrap();
            let supervisor = Supervisor::builder().launcher(launcher).store(store.clone()).build().unwrap();
            let spec = || with_tools(SessionSpec::developer(workspace.path()).strength(strength).mode(Mode::Yolo));
            let session = supervisor.open(spec()).await.unwrap();
            let one = start(&session, "echo one; read -r; exit 5").await;
            let typed = json!({ "task_id": one, "input": "\n", "timeout_ms": LONG });
            data(&session, "exec_shell_interact", typed).await;
            assert_eq!(ended(&session, &one).await.0["exit_code"], 5);
            let marker = workspace.path().join("marker").display().to_string();
            fs::write(&marker, "").unwrap();
            let two = start(&session, &format!("tail -f {marker}")).await;
            until("it runs", || with(&format!("-f\0{marker}")) > 0).await;
            let id = session.id().to_owned();
            session.close().await.unwrap();
            assert_eq!(with(&marker), 0, "as soon as it is closed");
            let record = store.session(&id).unwrap();
            let mut ends = Vec::new();
            let mut calls = Vec::new();
            let replayed = store.replay(&record, |event| -> Result<(), callgate::StoreError> {
                if event.tool == "exec_shell-completion" && event.kind == EventKind::Succeeded {
                    ends.push(event.envelope().unwrap().data.unwrap());
                } else if event.kind == EventKind::Proposed {
                    calls.push((event.tool.clone(), event.arguments().unwrap()));
                }
                Ok(())
            });
            replayed.unwrap();
            assert_eq!(
                (&ends[0]["task_id"], &ends[0]["status"], &ends[0]["exit_code"]),
                (&json!(one), &json!("Failed"), &json!(5))
            );
            assert_eq!((&ends[1]["task_id"], &ends[1]["status"]), (&json!(two), &json!("Killed")));
            let begun = json!({ "command": "echo one; read -r; exit 5", "background": true });
            assert!(calls.contains(&("exec_shell".to_owned(), begun)), "{calls:?}");
            // X2-4: tasks are the process's. Their ids mean nothing to the next session.
            let next = supervisor.open(spec()).await.unwrap();
            let gone = next.call("exec_shell_wait", json!({ "task_id": one })).await;
            assert_eq!(gone.metadata.error.unwrap().context.code, ErrorCode::NotFound);
        });
    }
}

/// S2-17, X2-18: the project's tests run by what its files speak of, found inside the sandbox; and rules see that command.
#[test]
fn s2_17_x2_18_tests_run_by_what_the_workspace_has() {
    in_sessions(
        |spec| {
            let denies = Rule::new("shell.run", Action::Deny).pattern("make *");
            spec.extra_tool("run_tests").rule(RuleScope::Session, denies)
        },
        async |session, workspace| {
            let run = async |args: Value| session.call("run_tests", args).await;
            let none = run(json!({})).await;
            assert!(none.error_text.unwrap().contains("Cargo.toml"), "nothing says what");
            fs::write(workspace.join("Makefile"), "test:\n\ttouch made\n").unwrap();
            let denied = run(json!({})).await;
            assert_eq!(denial(&denied), Some(Layer::Rule), "{denied:?}");
            assert!(!workspace.join("made").exists());
            // What comes before it counts, and a link that leads out of the grants is not there.
            fs::write(workspace.join("pyproject.toml"), "").unwrap();
            std::os::unix::fs::symlink("/root/Cargo.toml", workspace.join("Cargo.toml")).unwrap();
            let bin = workspace.join("bin");
            fs::create_dir(&bin).unwrap();
            let found = run(json!({ "args": ["-k", "a b"] })).await;
            let told = found.data.as_ref().map(|data| data["output"].as_str().unwrap().to_owned());
            let told = told.or(found.error_text.clone()).unwrap();
            assert!(told.contains("pytest"), "{found:?}");
            assert_eq!(denial(&found).filter(|layer| *layer == Layer::Rule), None, "the control: another command");
        },
    );
}
