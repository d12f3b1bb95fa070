//! Words that bash evaluates though quoted, found by asking bash: rules with a wildcard allow none of them (C4, C19).
#![allow(clippy::disallowed_methods, reason = "a directory of the test's own")]

use std::path::Path;
use std::process::{Command, Stdio};

use callgate_policy::approval::{Approvals, EffectKey};
use callgate_policy::effect::{Effect, ProgramRun};
use callgate_policy::rules::commands::parts;
use callgate_policy::rules::{
    Act, Action, EffectStanding, JudgedCall, JudgedEffect, Rule, RuleScope, RuleSet, RuleSource,
};
use callgate_policy::variable::Variables;

use super::understand;

/// Lines with a word that is quoted and holds a command: a number, an index, a name, a file. `INDEX` stands for an element of an
/// array whose index is the command `touch hit`, and `COMMAND` for that command alone.
const LINES: &str = include_str!("evaluated.txt");

/// Such lines that do nothing of the kind, and are everyday enough that nobody wants to be asked about them.
const PLAIN: &[&str] = &[
    "test \"$x\" -gt 0",
    "[ \"$x\" -eq 1 ]",
    "printf '%d %s\\n' 1 \"$x\"",
    "[[ 'INDEX' == x ]]",
    "[[ -e 'INDEX' ]]",
    "[[ $# -eq 0 ]]",
    "[[ $? -ne 0 ]]",
    "[[ 3 -lt 10 && 10 -gt $$ ]]",
    "[[ ${#x} -ge 1 ]]",
    "n='INDEX'",
    "export n='INDEX'",
    "shift 'INDEX'",
    "exit 'INDEX'",
    "exit 3",
    "for i in 1; do break 1; done",
    "f() { return 'INDEX'; }; f",
    "kill 'INDEX'",
    "ulimit -n 'INDEX'",
    "sleep 'INDEX'",
    "cd 'INDEX'",
    "echo x >'COMMAND'",
    "echo x 2>&1",
    "echo x >&2",
    "echo x &>out",
    "echo x >&out",
    "cat <<< 'COMMAND'",
    "OPTIND=1",
    "SECONDS=0",
    "RANDOM=42",
    "i=0; while [ \"$i\" -lt 3 ]; do i=$((i+1)); done",
    "for ((i=0; i<3; i++)); do echo $i; done",
    "n=5; ((n--)); echo ${x:0:n}",
    "a=('INDEX' b); echo \"${a[@]}\" ${#a[@]} ${a[0]} ${!a[@]}",
    "i=1; a=('INDEX' b); echo ${a[i]}; a[i]=c",
    "x='INDEX'; echo ${x:1:3} ${x%.*} ${x/a/$x}",
    "i=3; [[ $i -gt 2 ]]",
];

fn line(text: &str) -> String {
    text.replace("INDEX", "b[$(touch hit)]").replace("COMMAND", "$(touch hit)")
}

/// True if bash does it.
fn hits(directory: &Path, line: &str) -> bool {
    let mut bash = Command::new("bash");
    bash.args(["--noprofile", "--norc", "-c", line, "bash", "one", "two"]).current_dir(directory).env_clear();
    bash.env("PATH", "/usr/local/bin:/usr/bin:/bin").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(bash.status().is_ok(), "bash is there");
    let hit = directory.join("hit");
    let is_there = hit.exists();
    if is_there {
        assert!(std::fs::remove_file(hit).is_ok());
    }
    is_there
}

/// True if rules allow it that have a wildcard for the arguments of each of its commands, for what it sets and what it
/// writes.
fn is_allowed(line: &str) -> bool {
    let Some(parts) = parts(&understand(line)) else { return false };
    let mut rules = RuleSet::default();
    for part in &parts {
        let text = part.text();
        let (name, end) = match text.split_once([' ', '=']) {
            Some((name, _)) => (name, &text[name.len()..=name.len()]),
            None => (text, " "),
        };
        if name.contains('\0') {
            return false;
        }
        let rule = Rule::new("bash", Action::Allow).pattern(format!("{name}{end}*"));
        let source = RuleSource { scope: RuleScope::Manifest, place: "here".to_owned() };
        assert!(rules.add(&rule, &source, &Variables::default()).is_ok(), "{rule:?}");
    }
    let effect = Effect::Runs(ProgramRun::shell(line, "/".into()));
    let acts = parts.into_iter().map(Act::Command).collect();
    let effects = vec![JudgedEffect::new(&effect, EffectStanding::Own).with(acts)];
    let call = JudgedCall { tool: "bash", effects, ..JudgedCall::default() };
    let key = |effect: &Effect| EffectKey::of(effect, str::to_owned);
    rules.judge(&call, &Approvals::default(), &key).decision.action == Action::Allow
}

/// C4, C19: whatever this bash evaluates of these words, a person is asked about, unless a rule is about exactly that.
#[test]
fn c4_c19_what_bash_evaluates_no_wildcard_allows() -> std::io::Result<()> {
    let directory = tempfile::tempdir()?;
    let lines: Vec<String> = LINES.lines().map(line).collect();
    let evaluated: Vec<&String> = lines.iter().filter(|line| hits(directory.path(), line)).collect();
    assert!(evaluated.len() * 2 > lines.len(), "the control: most of them are evaluated, {} are", evaluated.len());
    let allowed: Vec<_> = evaluated.iter().filter(|line| is_allowed(line)).collect();
    assert!(allowed.is_empty(), "{allowed:#?}");
    Ok(())
}

/// The control: what is not evaluated is allowed.
#[test]
fn c4_what_bash_does_not_evaluate_is_allowed() -> std::io::Result<()> {
    let directory = tempfile::tempdir()?;
    let lines: Vec<String> = PLAIN.iter().map(|plain| line(plain)).collect();
    let evaluated: Vec<_> = lines.iter().filter(|line| hits(directory.path(), line)).collect();
    assert!(evaluated.is_empty(), "{evaluated:#?}");
    let asked: Vec<_> = lines.iter().filter(|line| !is_allowed(line)).collect();
    assert!(asked.is_empty(), "{asked:#?}");
    Ok(())
}
