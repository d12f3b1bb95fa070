//! Rules of the manifest, of the session and of the project, in force together (S0-49 to S0-55, C-2, C-3).

use std::fmt::Write as _;
use std::path::Path;

use callgate::policy::manifest::{Format, Manifest};
use callgate::policy::mode::Mode;
use callgate::policy::rules::{Action, Rule, RuleScope};
use callgate::{Launcher, Layer, Outcome, ResultEnvelope, Session, SessionSpec, Supervisor};
use serde_json::{Value, json};

use super::{STRENGTHS, callgate};

use Action::{Allow, Ask, Deny};
use RuleScope::{Manifest as Author, Project, Session as Here};

/// A scope, a permission, a pattern (the empty one is none) and an action.
type ScopeLine = (RuleScope, &'static str, &'static str, Action);

/// A tool and its arguments.
type ScopedCall = (&'static str, Value);

/// Rules, and what calls get under them.
type ScopeRow<'a> = (&'a [ScopeLine], &'a [(ScopedCall, Action)]);

fn rule((_, permission, pattern, action): ScopeLine) -> Rule {
    let rule = Rule::new(permission, action);
    if pattern.is_empty() { rule } else { rule.pattern(pattern) }
}

/// The author's rules as a manifest has them, above the workspace to write and any program.
fn manifest(rules: &[ScopeLine]) -> String {
    let mut text = String::new();
    for (_, permission, pattern, action) in rules.iter().filter(|(scope, ..)| *scope == Author) {
        write!(text, "[[rules]]\npermission = {permission:?}\naction = \"{action}\"\n").unwrap();
        if !pattern.is_empty() {
            writeln!(text, "pattern = {pattern:?}").unwrap();
        }
    }
    text + "[requires.fs]\nwrite = [\"{workspace}/**\"]\n[[requires.shell]]\ncmd = \"*\"\n"
}

/// Runs `test` in a session of each strength with these rules, and with nobody to ask.
fn with_manifest(text: &str, rules: &[ScopeLine], mode: Mode, test: impl AsyncFn(&Session, &Path)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for strength in STRENGTHS {
        let workspace = tempfile::tempdir().unwrap();
        for name in ["open", "secret"] {
            std::fs::write(workspace.path().join(name), name).unwrap();
        }
        runtime.block_on(async {
            let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
            let manifest = Manifest::parse(text, Format::Toml, "m.toml").unwrap();
            let mut spec = SessionSpec::with_manifest(workspace.path(), manifest).strength(strength).mode(mode);
            for line in rules.iter().filter(|(scope, ..)| *scope != Author) {
                spec = spec.rule(line.0, rule(*line));
            }
            test(&supervisor.open(spec).await.unwrap(), workspace.path()).await;
        });
    }
}

fn with_rules(rules: &[ScopeLine], mode: Mode, test: impl AsyncFn(&Session, &Path)) {
    with_manifest(&manifest(rules), rules, mode, test);
}

fn write(path: &str) -> ScopedCall {
    ("write", json!({ "path": path, "content": "new" }))
}

fn read(path: &str) -> ScopedCall {
    ("read", json!({ "path": path }))
}

fn bash(command: &str) -> ScopedCall {
    ("bash", json!({ "command": command }))
}

/// Outcome of a call: with nobody there, what is asked about is denied by that.
fn outcome(result: &ResultEnvelope) -> Action {
    match result.metadata.denial.as_ref().map(|denial| denial.layer) {
        None => Allow,
        Some(Layer::Person) => Ask,
        Some(Layer::Rule) => Deny,
        Some(other) => panic!("{other:?}: {result:?}"),
    }
}

/// That it was made if it was allowed, and that nothing was if it was not.
async fn assert_outcome(
    (session, workspace): (&Session, &Path),
    (tool, args): ScopedCall,
    wanted: Action,
    why: &dyn std::fmt::Debug,
) {
    let result = session.call(tool, args.clone()).await;
    assert_eq!(outcome(&result), wanted, "{tool} {args} under {why:?}: {result:?}");
    assert_eq!(result.kind == Outcome::Output, wanted == Allow, "{tool} {args} under {why:?}: {result:?}");
    if tool == "write" {
        let made = workspace.join(args["path"].as_str().unwrap());
        assert_eq!(made.exists(), wanted == Allow, "{args} under {why:?}");
    }
}

/// S0-49 to S0-54, C-3: what a call gets from the rules of three scopes. The most specific rule that matches decides, whoever
/// made it and in whatever order they came; scope and strictness count only where two are equally specific.
#[test]
fn s0_49_s0_50_s0_51_s0_53_s0_54_the_most_specific_rule_of_three_scopes_decides() {
    let table: &[ScopeRow<'_>] = &[
        // S0-52: where no rule matches, a person is asked.
        (&[], &[(write("a"), Ask), (bash("echo a"), Ask)]),
        // S0-50: a tool's id, a capability, and everything. S0-53: of each scope.
        (&[(Author, "write", "", Allow)], &[(write("a"), Allow), (bash("echo a"), Ask)]),
        (&[(Here, "write", "", Allow)], &[(write("a"), Allow), (bash("echo a"), Ask)]),
        (&[(Project, "write", "", Allow)], &[(write("a"), Allow), (bash("echo a"), Ask)]),
        (&[(Here, "fs.write", "", Allow)], &[(write("a"), Allow), (bash("echo a"), Ask)]),
        (&[(Project, "shell.run", "", Allow)], &[(write("a"), Ask), (bash("echo a"), Allow)]),
        (&[(Here, "*", "", Allow)], &[(write("a"), Allow), (bash("echo a"), Allow)]),
        (&[(Project, "fs.read", "secret", Deny)], &[(read("secret"), Deny), (read("open"), Allow)]),
        // S0-51: paths by glob, commands by their beginning.
        (&[(Here, "write", "src/**", Allow)], &[(write("src/a/b"), Allow), (write("srcs"), Ask)]),
        (&[(Project, "write", "*.rs", Allow)], &[(write("a.rs"), Allow), (write("a.c"), Ask)]),
        (
            &[(Project, "bash", "echo *", Allow)],
            &[(bash("echo"), Allow), (bash("echo a b"), Allow), (bash("echoes a"), Ask), (bash("echo a; ls"), Ask)],
        ),
        // S0-54: the longer pattern, though the shorter is stricter, came later and is of a scope that breaks ties.
        (
            &[(Project, "write", "docs/open/**", Allow), (Here, "write", "docs/**", Deny)],
            &[(write("docs/open/a"), Allow), (write("docs/a"), Deny), (write("a"), Ask)],
        ),
        (
            &[(Project, "write", "docs/shut/**", Deny), (Here, "write", "docs/**", Allow)],
            &[(write("docs/shut/a"), Deny), (write("docs/a"), Allow)],
        ),
        (
            &[(Author, "write", "docs/open/**", Allow), (Project, "write", "docs/**", Ask), (Here, "write", "", Deny)],
            &[(write("docs/open/a"), Allow), (write("docs/a"), Ask), (write("a"), Deny)],
        ),
        (
            &[(Author, "bash", "echo a", Allow), (Here, "bash", "echo *", Deny)],
            &[(bash("echo a"), Allow), (bash("echo b"), Deny)],
        ),
        // C-3: the tool's id before the capability, and that before everything.
        (&[(Author, "write", "", Allow), (Here, "fs.write", "a", Deny)], &[(write("a"), Allow)]),
        (&[(Author, "fs.write", "", Allow), (Here, "*", "", Deny)], &[(write("a"), Allow), (bash("echo a"), Deny)]),
        // C-3: of two that are equally specific, the stricter.
        (&[(Author, "write", "a", Allow), (Here, "write", "a", Ask)], &[(write("a"), Ask)]),
        (&[(Author, "write", "a", Ask), (Here, "write", "a", Allow)], &[(write("a"), Ask)]),
        (&[(Project, "write", "a", Deny), (Here, "write", "a", Allow)], &[(write("a"), Deny)]),
        (&[(Here, "write", "a", Deny), (Project, "write", "a", Allow)], &[(write("a"), Deny)]),
    ];
    for (rules, calls) in table {
        with_rules(rules, Mode::Ask, async |session, workspace| {
            let at = (session, workspace);
            for (call, wanted) in *calls {
                assert_outcome(at, call.clone(), *wanted, rules).await;
            }
        });
    }
}

/// S0-52: a rule that names no action asks.
#[test]
fn s0_52_a_rule_without_an_action_asks() {
    let lines = "[[rules]]\npermission = \"write\"\npattern = \"a\"\n";
    let allows = [(Author, "write", "", Allow)];
    with_manifest(&format!("{lines}{}", manifest(&allows)), &[], Mode::Ask, async |session, workspace| {
        let at = (session, workspace);
        assert_outcome(at, write("a"), Ask, &lines).await;
        assert_outcome(at, write("b"), Allow, &"the control").await;
    });
}

/// C-3: of equally specific rules that say the same, the session's is the one that is named, then the project's.
#[test]
fn c_3_of_equal_rules_the_nearest_scope_is_named() {
    let three = [(Author, "write", "a", Allow), (Project, "write", "a", Allow), (Here, "write", "a", Allow)];
    let twice = [three[0]; 2];
    for (rules, place) in [
        (&three[..], "this session"),
        (&three[..2], "this project"),
        (&three[..1], "m.toml:1"),
        // Of one scope's, the newest.
        (&twice, "m.toml:5"),
    ] {
        with_rules(rules, Mode::Ask, async |session, _| {
            let (tool, args) = write("a");
            let decision = session.call(tool, args).await.metadata.decision;
            assert_eq!(serde_json::to_value(decision).unwrap()["place"], place);
        });
    }
}

/// S0-55, C-2: what the manifest denies, no more specific rule of session or project allows, nor one that a host adds later, nor
/// a mode that asks about nothing. What session or project deny is not pinned so.
#[test]
fn s0_55_no_session_or_project_lifts_what_a_manifest_denies() {
    let denies = |scope| (scope, "fs.write", "docs/**", Deny);
    let allows = [(Here, "write", "docs/a", Allow), (Project, "write", "docs/b", Allow), (Here, "*", "", Allow)];
    let later = rule((Here, "write", "docs/c", Allow));
    for mode in [Mode::Ask, Mode::Yolo] {
        let rules: Vec<ScopeLine> = std::iter::once(denies(Author)).chain(allows).collect();
        with_rules(&rules, mode, async |session, workspace| {
            let at = (session, workspace);
            session.add_rule(&later).unwrap();
            for path in ["docs/a", "docs/b", "docs/c"] {
                assert_outcome(at, write(path), Deny, &rules).await;
            }
            assert!(!workspace.join("docs").exists());
            assert_outcome(at, write("a"), Allow, &"the control: beside it").await;
        });
        for other in [Here, Project] {
            let rules: Vec<ScopeLine> = std::iter::once(denies(other)).chain(allows).collect();
            with_rules(&rules, mode, async |session, workspace| {
                let at = (session, workspace);
                session.add_rule(&later).unwrap();
                for path in ["docs/a", "docs/b", "docs/c"] {
                    assert_outcome(at, write(path), Allow, &"the control: these rules do allow it").await;
                }
                assert_outcome(at, write("docs/d"), Deny, &rules).await;
            });
        }
    }
    // Nor is what a host adds as denied pinned: it is a rule of the session.
    with_rules(&[], Mode::Ask, async |session, workspace| {
        let at = (session, workspace);
        session.add_rule(&rule(denies(Here))).unwrap();
        session.add_rule(&later).unwrap();
        assert_outcome(at, write("docs/c"), Allow, &"the session's own").await;
        assert_outcome(at, write("docs/d"), Deny, &"the session's own").await;
    });
}
