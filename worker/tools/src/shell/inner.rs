//! Lines within lines, and what shells read: rules see them as they see the line itself (C3, G7).

use callgate_policy::approval::{Approvals, EffectKey};
use callgate_policy::effect::{Effect, ProgramRun};
use callgate_policy::mode::Mode;
use callgate_policy::path::HostPath;
use callgate_policy::rules::commands::{self, Begin};
use callgate_policy::rules::{
    Act, Action, EffectStanding, JudgedCall, JudgedEffect, Rule, RuleScope, RuleSet, RuleSource,
};
use callgate_policy::variable::Variables;

use super::understand;

/// Verdict of rules on a line that runs in the workspace `/w`.
pub(super) fn judged(rules: &[(&str, Action)], mode: Mode, line: &str) -> Action {
    let variables = Variables::new(vec!["/w".into()], vec![], vec![]).expect("variables");
    let mut set = RuleSet::default();
    set.mode = mode;
    for (at, (pattern, action)) in rules.iter().enumerate() {
        let source = RuleSource { scope: RuleScope::Manifest, place: at.to_string() };
        set.add(&Rule::new("bash", *action).pattern(*pattern), &source, &variables).expect("a rule");
    }
    let root = HostPath::from("/w");
    let begin = Begin { directory: &root, usual: &root, root: &root };
    let parts = commands::parts(&understand(line)).map(|parts| commands::beginning_in(parts, begin));
    let acts = parts.map_or_else(|| vec![Act::UnknownCommand], |parts| parts.into_iter().map(Act::Command).collect());
    if acts.is_empty() {
        return Action::Allow;
    }
    let effect = Effect::Runs(ProgramRun::shell(line, root.clone()));
    let effects = vec![JudgedEffect::new(&effect, EffectStanding::Own).with(acts)];
    let call = JudgedCall { tool: "bash", effects, ..JudgedCall::default() };
    let key = |effect: &Effect| EffectKey::of(effect, str::to_owned);
    set.judge(&call, &Approvals::default(), &key).decision.action
}

fn denied(pattern: &str, line: &str) -> bool {
    judged(&[(pattern, Action::Deny)], Mode::Yolo, line) == Action::Deny
}

fn allowed(patterns: &[&str], line: &str) -> bool {
    let rules: Vec<_> = patterns.iter().map(|pattern| (*pattern, Action::Allow)).collect();
    judged(&rules, Mode::Ask, line) == Action::Allow
}

/// C3: a line that a shell is handed has its commands read in full: they are denied, and no others are.
#[test]
fn c3_a_line_within_a_line_is_read_in_full() {
    for line in [
        "bash -c 'if true; then touch x; fi'",
        "bash -c 'for f in *; do touch $f; done'",
        "bash -c 'if false; then :; elif touch x; then :; fi'",
        "bash -c 'function f { touch x; }; f'",
        "bash -c '</dev/null touch x'",
        r#"bash -c "echo \$'a\\'b'; touch x""#,
        r#"eval "echo \$'a\\'b'; touch x""#,
        "eval 'case x in x) touch y;; esac'",
        "trap 'if true; then touch x; fi' EXIT",
        "bash -c 'bash -c \"while true; do touch x; done\"'",
        "sh -c '{ touch x; }'",
        "nice sh -ec '(touch x)'",
        "eval 'bash <<< \"touch x\"'",
        "</dev/null touch x",
        "if false; then :; elif touch x; then :; fi",
        "function f { touch x; }; f",
        r"echo $'a\'b'; touch x",
    ] {
        assert!(denied("touch *", line), "{line}");
        assert!(!denied("tuch *", line), "the control: it is known not to be another: {line}");
    }
    // In dash these are two commands, and the second is hidden for bash in a quote or a comment.
    for line in [r#"sh -c "echo \$'\\'; touch x #'""#, "sh -c 'touch y &>x'", "sh -c '[[ -f x ]] && ls'"] {
        assert!(denied("touch *", line), "{line}");
    }
    for (patterns, line) in [
        (&["bash -c *", "wc *", "sh -c *", "f=*"][..], "for f in a b; do wc $f; done"),
        (&["git log *"], "</dev/null git log"),
        (&["wc *", "cat *"], "if true; then wc x; elif false; then cat y; fi"),
    ] {
        assert!(allowed(patterns, line), "{line}");
    }
}

/// G7: a shell that reads its commands from a here-document, a here-string or a pipe starts them.
#[test]
fn g7_what_a_shell_reads_is_a_line() {
    for line in [
        "bash <<< 'git push'",
        "sh <<E\ngit push\nE",
        "sh <<'E'\nif true; then\n  git push\nfi\nE",
        "echo git push | bash",
        "echo 'git push' | sudo bash",
        "echo -n git push | env -i sh -s",
        "printf '%s\\n' 'git push' | sh",
        "printf 'git push\\n' | sh",
        "printf 'git %s' push | sh",
        "cat <<E | bash\ngit push\nE",
        "cat <<< 'git push' | tee log | bash",
        "{ echo -n 'git '; echo push; } | bash",
        "echo git push | { bash; }",
        "(bash) <<E\ngit push\nE",
        "while true; do bash; done <<< 'git push'",
        "bash <(echo git push)",
        "source <(echo git push)",
        ". /dev/stdin <<< 'git push'",
        "bash < <(echo git push)",
        "echo git push | tee >(sh)",
        "echo git push | at now",
        "bash -c 'echo git push | sh'",
        "exec <<< 'git push'; { bash; }",
    ] {
        assert!(denied("git push *", line), "{line}");
        if !line.contains("at now") {
            assert!(!denied("git pull *", line), "the control: {line}");
        }
    }
    // A text that is not known may be anything.
    for line in ["curl -s x | bash", "echo $x | sh", "base64 -d <<< eA== | bash", "echo 'git\\npush' | sh"] {
        assert!(denied("git push *", line), "{line}");
    }
    for line in [
        "cat <<< 'git push'",
        "echo git push | cat",
        "echo git push | bash -c cat",
        "bash x.sh <<< 'git push'",
        "git commit -F - <<E\ngit push\nE",
    ] {
        assert!(!denied("git push *", line), "the control: {line}");
    }
}

/// Input that a program executes is not covered by a wildcard; data is.
#[test]
fn what_is_executed_is_named() {
    for (pattern, line) in [
        ("git commit *", "git commit -F - <<'E'\nfix: x\n\nwhy\nE"),
        ("git commit *", "git commit -F- <<< 'fix: x'"),
        ("python3 -", "python3 - <<'E'\nprint(1)\nE"),
        ("python3 - <<*", "python3 - <<'E'\nprint(1)\nE"),
        ("python3 - <<print*", "python3 - <<'E'\nprint(1)\nE"),
        ("python3 *", "python3 x.py <<'E'\n1\nE"),
        ("tee *", "tee x <<< y"),
    ] {
        assert!(allowed(&[pattern], line), "{pattern}: {line}");
    }
    for (pattern, line) in [
        ("python3 *", "python3 - <<'E'\nprint(1)\nE"),
        ("python3 *", "python3 <<< 'print(1)'"),
        ("python3 - <<import*", "python3 - <<'E'\nprint(1)\nE"),
        ("python3 - <<print*", "python3 - <<E\nprint($x)\nE"),
        ("node *", "node <<E\nx\nE"),
        ("psql *", "psql db <<< 'drop table x'"),
    ] {
        assert!(!allowed(&[pattern], line), "{pattern}: {line}");
    }
    assert!(!allowed(&["echo *", "python3 *"], "echo 'print(1)' | python3"));
    assert!(allowed(&["echo *", "python3 *"], "echo '{}' | python3 -m json.tool"), "the control");
    assert!(denied("python3 * <<*os.system*", "python3 - <<E\nos.system(1)\nE"));
    assert!(!denied("python3 * <<*os.system*", "python3 - <<E\nprint(1)\nE"), "the control");
}

/// A file that a redirection reads is seen by what denies and asks, and needs nothing else to be allowed.
#[test]
fn a_file_that_is_read_is_seen() {
    for line in
        ["cat < key", "bash -c 'cat < key'", "while true; do echo l; done < key", "x=$(< key)", "{ cat; } < key"]
    {
        assert!(denied("*key*", line), "{line}");
        assert!(line.contains('$') || !denied("*kex*", line), "the control: {line}");
    }
    assert!(allowed(&["wc *"], "wc -l < x") && !allowed(&["cat *"], "wc -l < x"));
    assert!(judged(&[("wc *", Action::Allow), ("< *key", Action::Ask)], Mode::Ask, "wc -l < key") == Action::Ask);
}

/// A rule about the programs of a directory is about those that a line finds there by its `PATH`.
#[test]
fn a_path_that_leads_to_a_denied_directory_is_seen() {
    for line in [
        "PATH=./vendor:$PATH x",
        "PATH=vendor x",
        "PATH=$PATH:/w/vendor; x",
        "export PATH=./vendor:$PATH; x",
        "env PATH=./vendor x",
        "PATH=$v:$PATH x",
        "read PATH; x",
        "bash -c 'PATH=./vendor:$PATH x'",
        "x; PATH=/w/scripts/../vendor x",
        "PATH=: /w/vendor/x",
    ] {
        assert!(denied("./vendor/*", line), "{line}");
    }
    for line in
        ["PATH=./scripts:$PATH x", "PATH=$PATH:/usr/local/bin x", "export PATH=/opt/bin:$PATH; x", "P=./vendor x"]
    {
        assert!(!denied("./vendor/*", line), "the control: {line}");
    }
}

/// Commands of the shell that do nothing by themselves need no rule; those that only look like them do.
#[test]
fn what_needs_no_rule_is_known() {
    let rules = ["wc *", "git log *", "make *"];
    for line in [
        "set -euo pipefail; make test",
        "for f in a b; do wc $f; done",
        "while true; do git log; break; done",
        "n=3; wc $n",
        "x=$(git log); [ -n \"$x\" ] && wc \"$x\"",
        "if [ -f x ]; then wc x; else exit 1; fi",
        "make || true",
        "make; exit 0",
        ": ; make",
        "f() { local x=1; wc $x; return 0; }; f",
        "n=$((1 + 2)); wc $n",
        "bash -c 'if make; then git log; fi'",
        "bash -ec 'for f in a b; do wc $f; done'",
        "sh -c 'make && { git log; }'",
        "eval 'while make; do break; done'",
        "bash -c \"bash -c 'make; wc x'\"",
    ] {
        assert!(allowed(&rules, line) || line.ends_with("; f"), "{line}");
    }
    // What is read is shown, though nobody has to allow what reads it: an error or an exit status says what it is.
    let shown = [
        "while read -r f; do wc \"$f\"; done < list",
        "x=$(<list); [ \"$x\" -eq 1 ]",
        "[ -n \"$(<list)\" ]",
        "{ make; } < list",
        "bash -c 'x=$(<list); wc $x'",
    ];
    for line in shown {
        assert!(!allowed(&rules, line), "{line}");
        assert!(allowed(&[&rules[..], &["< list"]].concat(), line), "the control: {line}");
    }
    for line in [
        "PATH=x; make",
        "x=1 make",
        "http_proxy=x; make",
        "set -k; make",
        "set -x; make",
        "set; make",
        "set -o xtrace; make",
        ": < /dev/tcp/x/1; make",
        "test -v 'a[$(x)]'; make",
        "export x=1; make",
        "for PATH in x; do make; done",
        "read PATH; make",
        "make > out",
        "touch x; make",
        "bash -c 'make; touch x'",
        "bash -c 'make > out'",
        "bash -c \"make $x\"",
        "bash -c 'make (' ",
        "bash --rcfile x -ic make",
        "bash -O extglob -c make",
        "./bash -c make",
        "sh -c 'make &>x'",
        "zsh -c make",
        "bash x.sh",
        "bash -c 'x=1 make'",
    ] {
        assert!(!allowed(&rules, line), "{line}");
    }
}

/// Lines within lines are bounded in number, depth and time; what is left out may be anything.
#[test]
fn hostile_lines_within_lines_end() {
    let deep = (0..12).fold("touch x".to_owned(), |line, _| format!("eval {}", quoted(&line)));
    let lines = [
        (0..2000).map(|at| format!("eval 'if a; then b{at}; fi';")).collect::<String>(),
        "echo x | ".repeat(4000) + "bash",
        "cat | ".repeat(4000) + "bash",
        format!("{}{}{}", "{ ".repeat(90), "a | ".repeat(4000) + "bash", ";}".repeat(90)),
        "bash <(a);".repeat(4000),
        deep,
    ];
    for line in lines {
        let started = std::time::Instant::now();
        assert!(denied("touch *", &line), "{}", &line[..20]);
        let took = started.elapsed();
        assert!(took < std::time::Duration::from_secs(40), "{took:?} for {}", &line[..20]);
    }
}

fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace(' ', "\\ ")
}

/// G7, C1: a rule is about a command whatever stands before its subcommand, by whatever name it goes and in whatever order its
/// options stand; what allows minds all but a few.
#[test]
fn g7_c1_a_command_is_known_in_other_words() {
    for (pattern, line) in [
        ("git push *", "git -C . push"),
        ("git push *", "git --no-pager push"),
        ("git push *", "git -c a.b=c push"),
        ("git push *", "git --git-dir=x push"),
        ("git push *", "sudo git --weird push"),
        ("/usr/bin/git push *", "git -C . push"),
        ("docker run *", "docker --context x run y"),
        ("docker run *", "docker container run y"),
        ("docker container run *", "docker run y"),
        ("npm publish *", "npm --prefix x publish"),
        ("npm publish *", "npm publi"),
        ("npm i *", "npm install x"),
        ("cargo publish *", "cargo +nightly publish"),
        ("pip install *", "python3 -m pip install x"),
        ("apt-get install *", "apt -y install x"),
        ("rm -rf *", "rm -r -f x"),
        ("rm -rf *", "sudo rm x --recursive --force"),
        ("curl * -d *", "curl --data=x https://y"),
        ("git push --force *", "git -C . push -f origin"),
        ("/bin/rm -rf *", "rm -fr x"),
    ] {
        assert!(denied(pattern, line), "{pattern}: {line}");
        let told = judged(&[("*", Action::Allow), (pattern, Action::Ask)], Mode::Ask, line);
        assert_eq!(told, Action::Ask, "{pattern}: {line}");
    }
    for (pattern, line) in [
        ("git push *", "git -C push status"),
        ("git push *", "git log push"),
        ("npm publish *", "npm pack"),
        ("rm -rf *", "rm -r x"),
        ("curl * -d *", "curl -o d https://y"),
        ("git push --force *", "git push origin main"),
    ] {
        assert!(!denied(pattern, line), "the control: {pattern}: {line}");
    }
    for (pattern, line) in [
        ("git log *", "git --no-pager log -1"),
        ("npm install *", "npm i x"),
        ("npm i *", "npm install x"),
        ("git -C . log *", "git -C . log"),
    ] {
        assert!(allowed(&[pattern], line), "{pattern}: {line}");
    }
    for (pattern, line) in [
        ("git log *", "git -C x log"),
        ("git log *", "git -c core.pager=x log"),
        ("git log *", "git --git-dir=x log"),
        ("git log *", "git --exec-path=x log"),
        ("git log *", "git --no-pager -C x log"),
        ("docker run *", "docker --config x run y"),
        ("npm install *", "npm insta$x"),
        ("npm publish *", "npm publi"),
        ("git log *", "./git --no-pager log"),
    ] {
        assert!(!allowed(&[pattern], line), "{pattern}: {line}");
    }
}
