//! Single programs in a session of many calls: what callgate starts itself starts with every call, in a worker that is new or
//! used again, and beside others; and nothing else does (C2, C13).

use callgate::policy::ceiling::Ceiling;
use callgate::policy::effective::Source;
use callgate::policy::requirement::RequirementSet;
use callgate::{Launcher, SessionSpec, Stdio, StrengthChoice, Supervisor};
use callgate_tests::{Binaries, Host, TestEnv, matrix};
use serde_json::json;

#[test]
fn each_call_starts_its_shell_and_no_call_another() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let strength = target.by_strength(StrengthChoice::Namespaces, StrengthChoice::Landlock);
        let mut spec = SessionSpec::new(env.workspace()).strength(strength).mode(callgate::policy::mode::Mode::Yolo);
        let requires: RequirementSet = serde_json::from_value(json!({
            "fs": { "write": ["{workspace}/**"] },
            "shell": [{ "cmd": "expr", "args": ["1", "+", { "wildcard": true }] }, { "cmd": "sleep" }],
        }))
        .unwrap();
        // `bash` requires any program.
        let only = Ceiling { shell: Some(requires.shell.clone()), ..Ceiling::default() };
        spec.ceilings.push((Source::CommandLine, only));
        spec.requires.push((Source::CommandLine, requires));
        runtime.block_on(async {
            let launcher = Launcher::spawn(&Binaries::of_this_build().callgate()).unwrap();
            let session = Supervisor::builder().launcher(launcher).build().unwrap().open(spec).await.unwrap();
            // Started past the tools, and still there while the calls are made.
            let beside = session.spawn(["sleep", "60"], Stdio::null().unwrap()).await.unwrap();
            for round in 0..20 {
                let line = format!(
                    "expr 1 + {round}; (sleep 0.01; bash -c 'echo inner'; expr 2 + 2) & /bin/bash -c 'echo inner'; wait"
                );
                let envelope = session.call("bash", json!({ "command": line })).await;
                let text = envelope.data.as_ref().unwrap()["output"].as_str().unwrap();
                assert!(text.starts_with(&format!("{}\n", 1 + round)), "{text}");
                assert!(!text.contains("inner\n") && !text.contains("\n4\n"), "{text}");
                assert_eq!(text.matches("Permission denied").count(), 3, "{text}");
                let told = &envelope.metadata.changes.as_ref().unwrap().not_started;
                assert_eq!(told.len(), 3, "of this call alone: {told:?}");
            }
            // Layer 1, before anything starts; and a tool that starts nothing is as it was.
            assert!(session.spawn(["expr", "2", "+", "2"], Stdio::null().unwrap()).await.is_err());
            let written = session.call("write", json!({ "path": "file", "content": "x" })).await;
            assert!(written.error_text.is_none(), "{written:?}");
            beside.abort().await.unwrap();
            assert_eq!(beside.wait().await.unwrap().signal, Some(9));
        });
    });
}
