//! `callgate-bench` reports every subject and cleans up. What it measures is nobody's to assert.

use std::fs;
use std::process::Command;

use callgate_tests::eventually;
use serde_json::Value;

/// The report of this subject, in each strength; nothing may be left where it worked.
fn reports(words: &[&str], check: impl Fn(&Value)) {
    for strength in ["namespaces", "landlock"] {
        let temporary = tempfile::tempdir().unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_callgate-bench"))
            .args(words)
            .args(["--json", "--strength", strength])
            .env("TMPDIR", temporary.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        check(&serde_json::from_slice(&output.stdout).unwrap());
        eventually("nothing is left behind", || fs::read_dir(temporary.path()).unwrap().count() == 0);
    }
}

fn is_positive(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number > 0.0)
}

/// The server, the library and the floor.
#[test]
fn bench_of_the_protocol_reports_every_subject_and_leaves_nothing() {
    reports(&["mcp", "--runs", "10"], |report| {
        let report = &report["mcp"];
        for subject in ["library", "mcp", "echo"] {
            let of = &report[subject];
            assert!(is_positive(&of["median_us"]), "{subject}: {report}");
            assert!(of["median_us"].as_f64() <= of["p99_us"].as_f64(), "{subject}: {report}");
        }
        assert!(report["mcp_to_echo"].is_f64() && report["mcp_to_library_and_echo"].is_f64(), "{report}");
    });
}

#[test]
fn bench_of_decisions_reports_every_figure_and_leaves_nothing() {
    reports(&["decisions", "--runs", "1"], |report| {
        for figure in ["file", "line", "grammar"] {
            assert!(is_positive(&report["decision_us"][figure]), "{report}");
        }
        for figure in ["any_program", "arguments_judged", "watched"] {
            assert!(is_positive(&report["exec_us"][figure]), "{report}");
        }
        assert_eq!(report["targets"].as_array().unwrap().len(), 3);
    });
}

#[test]
fn bench_of_opening_and_recording_reports_every_figure_and_leaves_nothing() {
    reports(&["opens"], |report| {
        assert!(is_positive(&report["open_ns"]["inside"]) && is_positive(&report["open_ns"]["outside"]), "{report}");
    });
    reports(&["recording", "--runs", "10"], |report| {
        for figure in ["read", "recorded_read", "floor"] {
            assert!(is_positive(&report["recording_us"][figure]), "{report}");
        }
        for figure in ["fifty_sessions", "fifty_recorded_sessions"] {
            assert!(is_positive(&report["reads_per_second"][figure]), "{report}");
        }
    });
}
