//! S2's tools about subagents: they work in the background, and are known by an id (S2-21 to S2-28, X2-19, C-25, C-31, C-32).

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use callgate::policy::tool::Surface;
use callgate::{AgentTask, Outcome, ResultEnvelope, Session};
use serde_json::{Value, json};
use tokio::sync::{Barrier, Semaphore};

use super::task::{ALL, by, error_of, in_each_strength, spec, supervisor};
use super::until;

/// Longer than anything takes here: no result comes because this has passed.
const LONG: u64 = 3_600_000;

/// An agent that answers with its prompt, and one that goes on; both are programs.
const PROGRAMS: &str = r#"
[agents.general]
description = "repeats"
runner = ["cat"]
[agents.sleeper]
description = "goes on"
runner = ["sleep", "100000"]
[agents.broken]
description = "fails"
runner = ["sh", "-c", "cat >&2; exit 3"]
"#;

async fn data(session: &Session, tool: &str, args: Value) -> Value {
    let result = session.call(tool, args.clone()).await;
    assert_eq!(result.kind, Outcome::Output, "{tool} {args}: {result:?}");
    result.data.unwrap()
}

async fn error(session: &Session, tool: &str, args: Value) -> String {
    error_of(&session.call(tool, args).await).to_owned()
}

async fn spawn(session: &Session, kind: &str, prompt: &str) -> String {
    let started = data(session, "agent_spawn", json!({ "type": kind, "prompt": prompt })).await;
    assert_eq!((&started["status"], &started["runs"]), (&json!("Running"), &json!(1)), "{started}");
    started["agent_id"].as_str().unwrap().to_owned()
}

async fn result_of(session: &Session, id: &str) -> Value {
    data(session, "agent_result", json!({ "agent_id": id, "timeout_ms": LONG })).await
}

fn in_sessions(test: impl AsyncFn(Session)) {
    in_each_strength(async |workspace, strength| {
        let spec = spec(workspace, strength, &format!("{ALL}{PROGRAMS}")).surface(Surface::Deepseek);
        test(supervisor(None).open(spec).await.unwrap()).await;
    });
}

/// S2-21, X2-19: agents that are programs, from their start to their end: Completed with the answer, Failed with what went wrong,
/// Cancelled by a call, Interrupted by an abort.
#[test]
fn s2_21_x2_19_an_agent_s_states() {
    in_sessions(async |session| {
        let (cat, broken) = (spawn(&session, "general", "an answer").await, spawn(&session, "broken", "why").await);
        let answered = result_of(&session, &cat).await;
        assert_eq!(
            (&answered["status"], &answered["output"]),
            (&json!("Completed"), &json!("an answer")),
            "{answered}"
        );
        assert_eq!((&answered["type"], &answered["timed_out"]), (&json!("general"), &json!(false)));
        let failed = result_of(&session, &broken).await;
        assert_eq!(failed["status"], "Failed");
        assert!(failed["error"].as_str().unwrap().contains("status 3; it had written: why"), "{failed}");
        assert!(failed["output"].is_null());

        let (one, two) = (spawn(&session, "sleeper", "x").await, spawn(&session, "sleeper", "x").await);
        let runs = data(&session, "agent_result", json!({ "agent_id": one, "block": false })).await;
        assert_eq!((&runs["status"], &runs["timed_out"]), (&json!("Running"), &json!(true)));
        let ids = json!({ "ids": [one, cat], "timeout_ms": LONG });
        let any = data(&session, "wait", ids).await;
        assert_eq!(
            (&any["timed_out"], &any["agents"][1]["status"]),
            (&json!(false), &json!("Completed")),
            "one has ended"
        );
        let cancelled = data(&session, "agent_cancel", json!({ "agent_id": one })).await;
        assert_eq!(cancelled["status"], "Cancelled", "{cancelled}");
        session.abort().await;
        let all = data(&session, "wait", json!({ "ids": [one, two], "wait_mode": "all", "timeout_ms": LONG })).await;
        assert_eq!(all["agents"][1]["status"], "Interrupted", "{all}");
        let list = data(&session, "agent_list", json!({})).await;
        let states: Vec<&str> =
            list["agents"].as_array().unwrap().iter().map(|one| one["status"].as_str().unwrap()).collect();
        assert_eq!(states, ["Completed", "Failed", "Cancelled", "Interrupted"]);
        assert_eq!((&list["running"], &list["max_running"]), (&json!(0), &json!(5)));
        let unknown = error(&session, "agent_result", json!({ "agent_id": "agent_0" })).await;
        assert!(unknown.contains("there is no agent `agent_0` of this session") && unknown.contains(&cat), "{unknown}");
    });
}

/// S2-22, C-31: five that run are all, as description and error say; those that have ended do not count. Cancelling one of those
/// forgets it and changes nothing else.
#[test]
fn s2_22_c_31_only_those_that_run_count() {
    in_sessions(async |session| {
        let registry = session.registry();
        let description = &registry.find("agent_spawn").unwrap().description;
        assert!(description.contains("At most 5 are in flight at once; only those that run count"), "{description}");
        let mut done = Vec::new();
        for number in 0..3 {
            done.push(spawn(&session, "general", &number.to_string()).await);
            result_of(&session, &done[number]).await;
        }
        let mut run = Vec::new();
        for _ in 0..5 {
            run.push(spawn(&session, "sleeper", "x").await);
        }
        let sixth = json!({ "type": "general", "prompt": "x" });
        let expected =
            "5 subagents of this session are in flight, and there are at most 5; wait until one of them has ended";
        assert_eq!(error(&session, "agent_spawn", sixth.clone()).await, expected);
        let again = json!({ "agent_id": done[0], "prompt": "x" });
        assert_eq!(error(&session, "agent_assign", again).await, expected);
        assert_eq!(result_of(&session, &done[0]).await["output"], "0", "it is as it was");

        let before = data(&session, "agent_list", json!({})).await;
        let freed = data(&session, "agent_cancel", json!({ "agent_id": done[1] })).await;
        assert_eq!(freed["status"], "Completed");
        assert!(error(&session, "agent_result", json!({ "agent_id": done[1] })).await.contains("there is no agent"));
        let after = data(&session, "agent_list", json!({})).await;
        let ids = |list: &Value| -> Vec<Value> {
            let agents = list["agents"].as_array().unwrap();
            agents.iter().map(|one| json!([one["agent_id"], one["status"]])).collect()
        };
        let mut expected_ids = ids(&before);
        expected_ids.retain(|one| one[0] != json!(done[1]));
        assert_eq!((ids(&after), &after["running"]), (expected_ids, &json!(5)));
        assert_eq!(error(&session, "agent_spawn", sixth.clone()).await, expected, "that has made no place");
        data(&session, "agent_cancel", json!({ "agent_id": run[0] })).await;
        let id = data(&session, "agent_spawn", sixth).await["agent_id"].as_str().unwrap().to_owned();
        assert_eq!(result_of(&session, &id).await["output"], "x", "the control: this has");
    });
}

/// S2-23 to S2-28, C-32: old names are listed nowhere and do the same. Their results say so beside the other metadata, those of the
/// names that stay do not.
#[test]
fn s2_23_s2_24_s2_25_s2_26_s2_28_c_32_old_names_do_the_same_and_say_so() {
    in_sessions(async |session| {
        let said = |result: &ResultEnvelope| serde_json::to_value(&result.metadata).unwrap();
        let names: Vec<String> = session.registry().names().into_iter().map(str::to_owned).collect();
        let started = session.call("agent_spawn", json!({ "type": "sleeper", "prompt": "x" })).await;
        assert!(said(&started)["_deprecation"].is_null(), "S2-28");
        let id = started.data.unwrap()["agent_id"].clone();
        for (old, new, args, is_error) in [
            ("spawn_agent", "agent_spawn", json!({ "prompt": "y" }), false),
            ("delegate_to_agent", "agent_spawn", json!({ "prompt": "y" }), false),
            ("send_input", "agent_send_input", json!({ "agent_id": id, "message": "y" }), true),
            ("assign_agent", "agent_assign", json!({ "agent_id": id, "prompt": "y" }), true),
            ("close_agent", "agent_cancel", json!({ "agent_id": id }), false),
        ] {
            assert!(!names.iter().any(|name| name == old) && names.iter().any(|name| name == new), "{old}");
            let result = session.call(old, args).await;
            assert_eq!(result.kind == Outcome::Error, is_error, "{old}: {result:?}");
            let metadata = said(&result);
            let expected = json!({
                "this_tool": old, "use_instead": new, "removed_in": "0.8.0",
                "message": format!("`{old}` is deprecated and will be removed in 0.8.0; call `{new}`"),
            });
            assert_eq!(metadata["_deprecation"], expected, "{old}");
            assert!(metadata["duration_ms"].is_u64() && metadata["decision"].is_object(), "S2-26: {metadata}");
        }
        let state = data(&session, "agent_result", json!({ "agent_id": id, "block": false })).await;
        assert_eq!(state["status"], "Cancelled", "close_agent has ended it");
    });
}

/// X2-19: a type is an agent of the manifest; general and custom are any, the others are an error that says what there is. Explicit
/// tools only narrow.
#[test]
fn x2_19_a_type_is_an_agent_and_tools_only_narrow() {
    const MORE: &str = "[agents.review]\ndescription = \"looks\"\ntools = [\"read\", \"grep\"]\n";
    in_each_strength(async |workspace, strength| {
        let runner = by(|task: AgentTask| async move {
            Ok(format!("{}: {}", task.agent, task.session.registry().names().join(" ")))
        });
        let spec = spec(workspace, strength, &format!("{ALL}{MORE}")).agent_runner(runner).surface(Surface::Deepseek);
        let session = supervisor(None).open(spec).await.unwrap();
        let answer = async |args: Value| {
            let started = data(&session, "agent_spawn", args).await;
            let ended = result_of(&session, started["agent_id"].as_str().unwrap()).await;
            ended["output"].as_str().unwrap_or_else(|| panic!("{ended}")).to_owned()
        };
        assert_eq!(answer(json!({ "prompt": "x", "type": "review" })).await, "review: read_file grep_files");
        assert!(
            answer(json!({ "prompt": "x" })).await.starts_with("any: read_file list_dir write_file"),
            "there is no general"
        );
        let custom = json!({ "prompt": "x", "type": "custom", "allowed_tools": ["list_dir", "write"] });
        assert_eq!(answer(custom).await, "any: list_dir write_file agent_inbox");
        let narrowed = json!({ "prompt": "x", "type": "review", "allowed_tools": ["read"] });
        assert_eq!(answer(narrowed).await, "review: read_file");
        for (args, says) in [
            (
                json!({ "prompt": "x", "type": "review", "allowed_tools": ["write_file"] }),
                "the agent `review` has no tool `write_file`",
            ),
            (json!({ "prompt": "x", "type": "custom" }), "name them in `allowed_tools`"),
            (json!({ "prompt": "x", "type": "explore" }), "declare `[agents.explore]`"),
        ] {
            let refused = error(&session, "agent_spawn", args).await;
            assert!(refused.contains(says), "{refused}");
        }
        assert_eq!(
            data(&session, "agent_list", json!({})).await["agents"].as_array().unwrap().len(),
            4,
            "none was started"
        );
    });
}

/// S2-21: an agent that runs reads what is sent to it, in order; one that has ended is started again, with a new task or with what it
/// did before.
#[test]
fn s2_21_an_agent_is_told_more_and_starts_again() {
    const MORE: &str = "[agents.deaf]\ndescription = \"takes nothing\"\ntools = []\n";
    in_each_strength(async |workspace, strength| {
        let runner = by(|task: AgentTask| async move {
            let mut heard = Vec::new();
            while task.prompt == "listen" && heard.last().is_none_or(|last| last != "stop") {
                let got = task.session.call("agent_inbox", json!({ "timeout_ms": 600_000 })).await;
                let Some(got) = got.data else { return std::future::pending().await };
                heard.extend(got["messages"].as_array().unwrap().iter().map(|m| m.as_str().unwrap().to_owned()));
            }
            Ok(format!("{}|{}", task.prompt, heard.join(",")))
        });
        let spec = spec(workspace, strength, &format!("{ALL}{MORE}")).agent_runner(runner).surface(Surface::Deepseek);
        let session = supervisor(None).open(spec).await.unwrap();
        let id = spawn(&session, "any", "listen").await;
        let sent = data(&session, "agent_send_input", json!({ "agent_id": id, "message": "one" })).await;
        assert_eq!((&sent["delivered"], &sent["takes_input"]), (&json!("queued"), &json!(true)));
        data(&session, "agent_assign", json!({ "agent_id": id, "prompt": "two" })).await;
        data(&session, "agent_send_input", json!({ "agent_id": id, "message": "stop" })).await;
        let ended = result_of(&session, &id).await;
        assert_eq!(ended["output"], "listen|one,Your task is now another one:\ntwo,stop");
        let late = error(&session, "agent_send_input", json!({ "agent_id": id, "message": "late" })).await;
        assert!(late.contains("has ended (Completed); agent_assign gives it a new task"), "{late}");
        let again = data(&session, "agent_assign", json!({ "agent_id": id, "prompt": "other" })).await;
        assert_eq!((&again["delivered"], &again["runs"]), (&json!("started"), &json!(2)));
        assert_eq!(result_of(&session, &id).await["output"], "other|");
        data(&session, "resume_agent", json!({ "agent_id": id, "message": "more" })).await;
        let resumed = result_of(&session, &id).await;
        let told = "other\n\nYou worked on this before, and that ended (Completed). What came of it:\nother|\n\nGo on with this:\nmore|";
        assert_eq!((&resumed["output"], &resumed["prompt"]), (&json!(told), &json!("other")));

        let deaf = spawn(&session, "deaf", "listen").await;
        let refused = error(&session, "agent_send_input", json!({ "agent_id": deaf, "message": "x" })).await;
        assert!(refused.contains("takes no input while it runs") && refused.contains("[agents.deaf]"), "{refused}");
        assert!(error(&session, "resume_agent", json!({ "agent_id": deaf })).await.contains("has not ended"));
        let none = error(&session, "agent_inbox", json!({})).await;
        assert!(none.contains("there is no tool"), "it is a subagent's: {none}");
    });
}

/// S2-21, S2-22: a swarm has five at once and no more, with those that were started before; the answers come by the ids of the tasks.
#[test]
fn s2_21_s2_22_a_swarm_has_five_at_once() {
    in_each_strength(async |workspace, strength| {
        let (all_four, now, most) =
            (Arc::new(Barrier::new(4)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let seen = Arc::clone(&most);
        let runner = by(move |task: AgentTask| {
            let (all_four, now, most) = (Arc::clone(&all_four), Arc::clone(&now), Arc::clone(&most));
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                if task.prompt == "wait" {
                    return std::future::pending().await;
                }
                // It passes once four are here.
                all_four.wait().await;
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(task.prompt)
            }
        });
        let spec = spec(workspace, strength, ALL).agent_runner(runner).surface(Surface::Deepseek);
        let session = supervisor(None).open(spec).await.unwrap();
        spawn(&session, "any", "wait").await;
        let tasks: Vec<Value> = (0..8).map(|n| json!({ "id": format!("t{n}"), "prompt": format!("do {n}") })).collect();
        let started = data(&session, "agent_swarm", json!({ "tasks": tasks })).await;
        let id = started["swarm_id"].clone();
        assert_eq!((&started["total"], &started["status"]), (&json!(8), &json!("Running")));
        let ended = data(&session, "swarm_result", json!({ "swarm_id": id, "timeout_ms": LONG })).await;
        let answers: Vec<Value> =
            ended["agents"].as_array().unwrap().iter().map(|one| json!([one["item_id"], one["output"]])).collect();
        let expected: Vec<Value> = (0..8).map(|n| json!([format!("t{n}"), format!("do {n}")])).collect();
        assert_eq!(answers, expected, "{ended}");
        assert_eq!(seen.load(Ordering::SeqCst), 5);
        let status = data(&session, "swarm_status", json!({ "swarm_id": id })).await;
        assert_eq!((&status["status"], &status["counts"]), (&json!("Ended"), &json!({ "Completed": 8 })));
        assert!(status["agents"][0]["output"].is_null(), "without the answers");
        assert!(error(&session, "swarm_status", json!({ "swarm_id": "swarm_0" })).await.contains("there is no swarm"));
    });
}

/// X2-19: an agent for each row, sixteen at once, each with its columns; it reports of its own row and of no other. What is to stop
/// starts no more.
#[test]
fn x2_19_an_agent_for_each_row() {
    in_each_strength(async |workspace, strength| {
        let all = Arc::new(Barrier::new(16));
        let runner = by(move |task: AgentTask| {
            let all = Arc::clone(&all);
            async move {
                let told = |name: &str| task.prompt.split(name).nth(1).unwrap().split('`').nth(1).unwrap().to_owned();
                let (job, item) = (told("job_id"), told("item_id"));
                if task.prompt.starts_with("say") {
                    all.wait().await;
                }
                let other = json!({ "job_id": job, "item_id": "other", "result": {} });
                let refused = task.session.call("report_agent_job_result", other).await;
                assert!(error_of(&refused).contains("reports of no other"), "{refused:?}");
                let stop = task.prompt.starts_with("stop");
                let own = json!({ "job_id": job, "item_id": item, "result": { "of": item }, "stop": stop });
                let reported = task.session.call("report_agent_job_result", own).await;
                assert_eq!(reported.data, Some(json!({ "recorded": true })), "{reported:?}");
                Ok(task.prompt.lines().next().unwrap().to_owned())
            }
        });
        let rows: String = (0..16).map(|n| format!("r{n},v{n}\n")).collect();
        fs::write(workspace.join("rows.csv"), format!("name,value\n{rows}")).unwrap();
        let spec = spec(workspace, strength, ALL).agent_runner(runner).surface(Surface::Deepseek);
        let session = supervisor(None).open(spec).await.unwrap();
        let args = json!({ "csv_path": "rows.csv", "instruction": "say {value}", "id_column": "name" });
        let started = data(&session, "spawn_agents_on_csv", args).await;
        assert_eq!(started["job_id"], started["swarm_id"]);
        let ended = data(&session, "swarm_result", json!({ "swarm_id": started["job_id"], "timeout_ms": LONG })).await;
        for n in 0..16 {
            let one = &ended["agents"][n];
            assert_eq!(
                (&one["item_id"], &one["output"]),
                (&json!(format!("r{n}")), &json!(format!("say v{n}"))),
                "{one}"
            );
            assert_eq!((&one["result"], &one["status"]), (&json!({ "of": format!("r{n}") }), &json!("Completed")));
        }
        let args = json!({ "csv_path": "rows.csv", "instruction": "stop {value}", "max_concurrency": 1 });
        let started = data(&session, "spawn_agents_on_csv", args).await;
        let ended = data(&session, "swarm_result", json!({ "swarm_id": started["job_id"], "timeout_ms": LONG })).await;
        assert_eq!(ended["counts"], json!({ "Completed": 1, "Cancelled": 15 }), "{ended}");
        let outside = json!({ "job_id": "x", "item_id": "x", "result": {} });
        assert!(error(&session, "report_agent_job_result", outside).await.contains("this session works on no row"));
        for (args, says) in [
            (
                json!({ "csv_path": "rows.csv", "instruction": "{no}" }),
                "there is no column `no`; there are: name, value",
            ),
            (json!({ "csv_path": "absent.csv", "instruction": "x" }), "absent.csv"),
            (json!({ "csv_path": "/etc/shadow", "instruction": "x" }), "is denied"),
            (json!({ "csv_path": "rows.csv", "instruction": "x", "max_concurrency": 17 }), "max_concurrency"),
        ] {
            let refused = error(&session, "spawn_agents_on_csv", args.clone()).await;
            assert!(refused.contains(says), "{args}: {refused}");
        }
    });
}

/// X2-19, C-31: a row that is cancelled before it has begun, and started again, has one life: its job does not begin it once more, and
/// cancelling it ends what runs.
#[test]
fn x2_19_c_31_a_row_that_is_started_again_has_one_life() {
    in_each_strength(async |workspace, strength| {
        let (first, begun) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let (lets, seen) = (Arc::clone(&first), Arc::clone(&begun));
        let runner = by(move |task: AgentTask| {
            let (first, begun) = (Arc::clone(&first), Arc::clone(&begun));
            async move {
                match task.prompt.lines().next().unwrap() {
                    "do r1" => first.acquire().await.unwrap().forget(),
                    // Its last life goes on; another would end at once.
                    "do r2" if begun.fetch_add(1, Ordering::SeqCst) == 0 => std::future::pending().await,
                    _ => {}
                }
                Ok("done".to_owned())
            }
        });
        fs::write(workspace.join("rows.csv"), "name\nr1\nr2\nr3\n").unwrap();
        let spec = spec(workspace, strength, ALL).agent_runner(runner).surface(Surface::Deepseek);
        let session = supervisor(None).open(spec).await.unwrap();
        let rows = json!({ "csv_path": "rows.csv", "instruction": "do {name}", "max_concurrency": 1 });
        let started = data(&session, "spawn_agents_on_csv", rows).await;
        let id = |row: usize| started["agents"][row]["agent_id"].as_str().unwrap().to_owned();
        let cancelled = data(&session, "agent_cancel", json!({ "agent_id": id(1) })).await;
        assert_eq!((&cancelled["status"], &cancelled["runs"]), (&json!("Cancelled"), &json!(0)), "{cancelled}");
        let resumed = data(&session, "resume_agent", json!({ "agent_id": id(1) })).await;
        assert_eq!((&resumed["status"], &resumed["runs"]), (&json!("Running"), &json!(1)), "{resumed}");
        until("it works", || seen.load(Ordering::SeqCst) == 1).await;
        // Its job comes to its row, and goes on to the next.
        lets.add_permits(1);
        assert_eq!(result_of(&session, &id(0)).await["status"], "Completed");
        assert_eq!(result_of(&session, &id(2)).await["status"], "Completed", "the control: others begin");
        let still = data(&session, "agent_result", json!({ "agent_id": id(1), "block": false })).await;
        assert_eq!((&still["status"], &still["runs"]), (&json!("Running"), &json!(1)), "{still}");
        assert_eq!(seen.load(Ordering::SeqCst), 1, "it was begun once");
        let ended = data(&session, "agent_cancel", json!({ "agent_id": id(1) })).await;
        assert_eq!(ended["status"], "Cancelled", "{ended}");
        let list = data(&session, "agent_list", json!({})).await;
        assert_eq!((list["agents"].as_array().unwrap().len(), &list["running"]), (3, &json!(0)), "{list}");
    });
}

/// S2-21, C-22: rules about `task` hold for all that start agents, by their old names too, and rules about `read` for the rows.
#[test]
fn s2_21_c_22_rules_about_task_and_read_hold() {
    in_each_strength(async |workspace, strength| {
        fs::write(workspace.join("rows.csv"), "a\n1\n").unwrap();
        let started = Arc::new(Semaphore::new(0));
        let count = Arc::clone(&started);
        let runner = by(move |task: AgentTask| {
            count.add_permits(1);
            async move { Ok(task.prompt) }
        });
        let calls = [
            ("agent_spawn", json!({ "prompt": "x" })),
            ("spawn_agent", json!({ "prompt": "x" })),
            ("agent_swarm", json!({ "tasks": [{ "prompt": "x" }] })),
            ("spawn_agents_on_csv", json!({ "csv_path": "rows.csv", "instruction": "x" })),
        ];
        let open = async |rule: &str| {
            let spec = spec(workspace, strength, &format!("{ALL}{rule}")).agent_runner(Arc::clone(&runner));
            supervisor(None).open(spec.surface(Surface::Deepseek)).await.unwrap()
        };
        let session = open("[[rules]]\npermission = \"task\"\naction = \"deny\"\n").await;
        for (tool, args) in &calls {
            let refused = error(&session, tool, args.clone()).await;
            assert!(refused.contains("denied") && refused.contains("rule"), "{tool}: {refused}");
        }
        let of_read = open("[[rules]]\npermission = \"read\"\npattern = \"*.csv\"\naction = \"deny\"\n").await;
        let refused = error(&of_read, calls[3].0, calls[3].1.clone()).await;
        assert!(refused.contains("denied") && refused.contains("rows.csv"), "{refused}");
        assert_eq!(started.available_permits(), 0, "none was started");
        for (tool, args) in &calls {
            let begun = data(&open("").await, tool, args.clone()).await;
            assert!(begun["agent_id"].is_string() || begun["swarm_id"].is_string(), "the control: {tool} {begun}");
        }
    });
}

/// S0-51, C-22: a rule about a task is about every prompt of a call, by whichever tool of whichever surface, whatever else the call
/// says; and about what it says besides. What is not known before a file is read is meant by every rule that denies.
#[test]
fn s0_51_a_rule_about_a_task_is_about_every_prompt() {
    const DENIED: &str = "deploy to production";
    in_each_strength(async |workspace, strength| {
        fs::write(workspace.join("rows.csv"), "a\nproduction\n").unwrap();
        let open = async |surface, pattern: &str| {
            let rule = format!("[[rules]]\npermission = \"task\"\npattern = {pattern:?}\naction = \"deny\"\n");
            let spec = spec(workspace, strength, &format!("{ALL}{PROGRAMS}{rule}")).surface(surface);
            supervisor(None).open(spec).await.unwrap()
        };
        let csv = |instruction: &str| json!({ "csv_path": "rows.csv", "instruction": instruction });
        let denied = [
            (Surface::Deepseek, "agent_spawn", json!({ "prompt": DENIED })),
            (Surface::Deepseek, "agent_spawn", json!({ "prompt": DENIED, "allowed_tools": ["read"] })),
            (Surface::Deepseek, "agent_spawn", json!({ "prompt": "Deploy to PRO\u{200b}DUCTION" })),
            (
                Surface::Deepseek,
                "agent_swarm",
                json!({ "tasks": [{ "prompt": "x" }, { "id": "y", "prompt": DENIED }] }),
            ),
            (Surface::Deepseek, "spawn_agents_on_csv", csv(DENIED)),
            (Surface::Deepseek, "spawn_agents_on_csv", csv("deploy to {a}")),
            (Surface::Locked, "task", json!({ "subagent_type": "general", "prompt": DENIED, "background": true })),
            (Surface::Locked, "task", json!({ "subagent_type": "general", "prompt": DENIED, "metadata": { "a": 1 } })),
            (Surface::Engine, "Delegate", json!({ "goal": DENIED })),
            (Surface::Engine, "Delegate", json!({ "tasks": ["x", DENIED] })),
            (Surface::Rho, "delegate", json!({ "instruction": DENIED })),
        ];
        let allowed = [
            (Surface::Deepseek, "agent_spawn", json!({ "prompt": "look at production" })),
            (Surface::Deepseek, "spawn_agents_on_csv", csv("look at {a} and {{b}}")),
            (Surface::Engine, "Delegate", json!({ "tasks": ["x", "deploy"] })),
        ];
        for pattern in [DENIED, "general: deploy to *"] {
            for (surface, tool, args) in &denied {
                let refused = error(&open(*surface, pattern).await, tool, args.clone()).await;
                assert!(refused.contains("the rule deny task"), "{pattern}, {tool} {args}: {refused}");
            }
            for (surface, tool, args) in &allowed {
                data(&open(*surface, pattern).await, tool, args.clone()).await;
            }
            let session = open(Surface::Deepseek, pattern).await;
            let ended = spawn(&session, "general", "x").await;
            result_of(&session, &ended).await;
            for (tool, name) in
                [("agent_assign", "prompt"), ("agent_send_input", "message"), ("resume_agent", "message")]
            {
                let refused = error(&session, tool, json!({ "agent_id": ended, name: DENIED })).await;
                assert!(refused.contains("the rule deny task"), "{pattern}, {tool}: {refused}");
            }
            data(&session, "resume_agent", json!({ "agent_id": ended, "message": "go on" })).await;
        }
        let of_setting = open(Surface::Locked, "metadata.team=production").await;
        let args = |team| json!({ "subagent_type": "general", "prompt": "x", "metadata": { "team": team } });
        let refused = error(&of_setting, "task", args("production")).await;
        assert!(refused.contains("the rule deny task"), "{refused}");
        data(&of_setting, "task", args("test")).await;
    });
}

/// C-22: a rule about `task` with a pattern is about the agent's program, whichever tool starts it.
#[test]
fn c_22_a_rule_about_an_agent_s_program_holds() {
    in_each_strength(async |workspace, strength| {
        let rule = "[[rules]]\npermission = \"bash\"\npattern = \"sleep *\"\naction = \"deny\"\n";
        let spec = spec(workspace, strength, &format!("{ALL}{PROGRAMS}{rule}")).surface(Surface::Deepseek);
        let session = supervisor(None).open(spec).await.unwrap();
        let calls = [
            ("agent_spawn", json!({ "type": "sleeper", "prompt": "x" })),
            ("delegate_to_agent", json!({ "type": "sleeper", "prompt": "x" })),
            ("agent_swarm", json!({ "type": "sleeper", "tasks": [{ "prompt": "x" }] })),
        ];
        for (tool, args) in calls {
            let refused = error(&session, tool, args).await;
            assert!(refused.contains("denied") && refused.contains("sleep"), "{tool}: {refused}");
        }
        assert_eq!(data(&session, "agent_list", json!({})).await["agents"], json!([]), "none was started");
        spawn(&session, "general", "the control").await;
    });
}
