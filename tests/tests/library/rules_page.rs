//! `docs/rules.md` says what rules do: each of its examples, in both strengths.

use std::path::Path;

use callgate::policy::manifest::{Format, Manifest};
use callgate::policy::rules::Action;
use callgate::{CallError, Launcher, Session, SessionSpec, Supervisor};
use serde_json::Value;

use super::{STRENGTHS, callgate};

const PAGE: &str = include_str!("../../../docs/rules.md");

/// Keys that every example has besides its rules.
const GRANTS: &str = "mode = \"ask\"\nextra = [\"exec_shell\", \"list\", \"read_csv\"]\n";
const TABLES: &str = "\n[requires.fs]\nwrite = [\"{workspace}/**\"]\n[[requires.shell]]\ncmd = \"*\"\n";

/// An example: its rules, and each call with what becomes of it.
struct RuleExample {
    rules: String,
    calls: Vec<(String, String, Value)>,
}

/// The blocks of the page, each a pair of rules and calls.
fn examples() -> Vec<RuleExample> {
    let block = |text: &str, language: &str| {
        let (_, rest) = text.split_once(&format!("```{language}\n"))?;
        rest.split_once("```").map(|(block, rest)| (block.to_owned(), rest.to_owned()))
    };
    let mut examples = Vec::new();
    let mut rest = PAGE.to_owned();
    while let Some((rules, after)) = block(&rest, "toml") {
        let (calls, after) = block(&after, "text").expect("calls behind the rules");
        let call = |line: &str| {
            let (verdict, call) = line.split_once(' ').expect("a verdict");
            let (tool, args) = call.trim_start().split_once(' ').expect("a tool");
            (verdict.to_owned(), tool.to_owned(), serde_json::from_str(args.trim_start()).expect("arguments"))
        };
        examples.push(RuleExample { rules, calls: calls.lines().map(call).collect() });
        rest = after;
    }
    examples
}

async fn verdict(session: &Session, tool: &str, args: &Value) -> String {
    match session.preview(tool, args, None).await {
        Ok(preview) if preview.asks.is_empty() && preview.decision.action == Action::Allow => "allow".to_owned(),
        Ok(_) => "ask".to_owned(),
        Err(CallError::Denied(denial)) if denial.layer == callgate::Layer::Rule => "deny".to_owned(),
        Err(error) => format!("{error:?}"),
    }
}

fn workspace(at: &Path) {
    for file in ["docs/a.txt", "src/a.txt", "secret/key", "docs/private/a.txt"] {
        let file = at.join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "a\n").unwrap();
    }
}

/// S0-49 to S0-55, C-3, C-22: the page that explains the rules is right.
#[test]
fn s0_49_the_page_about_rules_is_right() {
    let examples = examples();
    assert_eq!(examples.len(), 13);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in STRENGTHS {
        runtime.block_on(async {
            let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
            for RuleExample { rules, calls } in &examples {
                let at = tempfile::tempdir().unwrap();
                workspace(at.path());
                let text = format!("{GRANTS}{rules}{TABLES}");
                let manifest = Manifest::parse(&text, Format::Toml, "test").unwrap_or_else(|e| panic!("{e}\n{text}"));
                let spec = SessionSpec::with_manifest(at.path(), manifest).strength(strength);
                let session = supervisor.open(spec).await.unwrap();
                for (wanted, tool, args) in calls {
                    assert_eq!(&verdict(&session, tool, args).await, wanted, "{tool} {args}\n{rules}");
                }
            }
        });
    }
}
