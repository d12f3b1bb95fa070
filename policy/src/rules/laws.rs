//! The laws of rules, against oracles that know nothing of ranks or indices (C-3, S0-54, S0-55).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failing test may stop")]

use std::error::Error as _;

use proptest::prelude::*;

use super::commands::Begin;
use super::testing::{call, judge, runs};
use super::*;
use crate::effect::ServedRequest;
use crate::effective::{Contribution, Declared, Source, narrow};
use crate::path::HostPath;
use crate::shell::input::InputUse;

const COMMANDS: [&str; 7] = ["git", "git push", "git push origin", "git log", "rm x", "git \0", "\0"];
const PERMISSIONS: [&str; 9] =
    ["bash", "read", "mcp:hub:issue", "mcp:hub:*", "mcp:*:*", "shell.run", "fs.read", "net.fetch", "*"];
const PATTERNS: [Option<&str>; 9] = [
    None,
    Some("*"),
    Some("git *"),
    Some("git push *"),
    Some("git push origin"),
    Some("*push*"),
    Some("/w/**"),
    Some("/w/a"),
    Some("/w/*.rs"),
];
const SCOPES: [RuleScope; 4] = [RuleScope::Manifest, RuleScope::Session, RuleScope::Project, RuleScope::Default];

fn rule() -> impl Strategy<Value = (Rule, RuleScope)> {
    let action = prop_oneof![Just(Action::Allow), Just(Action::Ask), Just(Action::Deny)];
    (0..PERMISSIONS.len(), 0..PATTERNS.len(), action, 0..SCOPES.len()).prop_filter_map(
        "the pattern fits",
        |(permission, pattern, action, scope)| {
            let rule =
                Rule { pattern: PATTERNS[pattern].map(str::to_owned), ..Rule::new(PERMISSIONS[permission], action) };
            set(&[(rule.clone(), SCOPES[scope])]).map(|_| (rule, SCOPES[scope]))
        },
    )
}

fn set(rules: &[(Rule, RuleScope)]) -> Option<RuleSet> {
    let variables = Variables::new(vec!["/w".into()], vec![], vec![]).unwrap();
    let mut set = RuleSet::default();
    for (at, (rule, scope)) in rules.iter().enumerate() {
        set.add(rule, &RuleSource { scope: *scope, place: at.to_string() }, &variables).ok()?;
    }
    Some(set)
}

/// Order of C-3, in its own words: negative if the first of two matching rules decides.
fn oracle_order((one, a): &((Rule, RuleScope), usize), (other, b): &((Rule, RuleScope), usize)) -> std::cmp::Ordering {
    let pinned = |(rule, scope): &(Rule, RuleScope)| *scope == RuleScope::Manifest && rule.action == Action::Deny;
    let kind = |(rule, _): &(Rule, RuleScope)| match rule.permission.as_str() {
        "*" => 4,
        "shell.run" | "fs.read" | "net.fetch" => 3,
        name if name.starts_with("mcp:") && name.contains('*') => 2,
        _ => 1,
    };
    let pattern = |(rule, _): &(Rule, RuleScope)| rule.pattern.clone().unwrap_or_else(|| "*".to_owned());
    let literal = |text: &str| text.find(['*', '?', '[', '{']).unwrap_or(text.len());
    let wild = |text: &str| text.matches(['*', '?', '[', '{']).count();
    let (p, q) = (pattern(one), pattern(other));
    let exact = |text: &str| wild(text) == 0;
    let strength = |(rule, _): &(Rule, RuleScope)| match rule.action {
        Action::Deny => 0,
        Action::Ask => 1,
        Action::Allow => 2,
    };
    let scope = |(_, scope): &(Rule, RuleScope)| match scope {
        RuleScope::Session => 0,
        RuleScope::Project => 1,
        RuleScope::Manifest => 2,
        RuleScope::Default => 3,
    };
    let is_default = |(_, scope): &(Rule, RuleScope)| *scope == RuleScope::Default;
    // A subtree is told with one star: `/w/**` is the directory and all beneath it.
    let wild = |text: &str| if text == "*" { usize::MAX } else { wild(text) };
    (pinned(other).cmp(&pinned(one)))
        .then(is_default(one).cmp(&is_default(other)))
        .then(kind(one).cmp(&kind(other)))
        .then(exact(&q).cmp(&exact(&p)))
        .then(literal(&q).cmp(&literal(&p)))
        .then(wild(&p).cmp(&wild(&q)))
        .then(strength(one).cmp(&strength(other)))
        .then(scope(one).cmp(&scope(other)))
        .then(b.cmp(a))
}

/// True if a text is one of a pattern's, found by trying everything.
fn is_one_of(pattern: &str, text: &str) -> bool {
    match (pattern.chars().next(), text.chars().next()) {
        (None, None) => true,
        (Some('*'), first) => {
            is_one_of(&pattern[1..], text) || first.is_some_and(|c| is_one_of(pattern, &text[c.len_utf8()..]))
        }
        (Some(p), Some(t)) => p == t && is_one_of(&pattern[p.len_utf8()..], &text[t.len_utf8()..]),
        (None, Some(_)) | (Some(_), None) => false,
    }
}

/// ` *` at the end is nothing too.
fn is_meant(pattern: &str, text: &str) -> bool {
    let bare = pattern.strip_suffix(" *").filter(|rest| !rest.contains('*'));
    is_one_of(pattern, text) || bare == Some(text)
}

/// Word by word: `*` alone is any number of them.
fn is_meant_by_words(pattern: &str, text: &str) -> bool {
    fn words(text: &str) -> Vec<&str> {
        text.split(' ').filter(|word| !word.is_empty()).collect()
    }
    fn each(pattern: &[&str], words: &[&str]) -> bool {
        match (pattern, words) {
            ([], []) => true,
            (["*", rest @ ..], _) => {
                each(rest, words) || words.split_first().is_some_and(|(_, after)| each(pattern, after))
            }
            ([one, rest @ ..], [word, after @ ..]) => is_one_of(one, word) && each(rest, after),
            ([..], [..]) => false,
        }
    }
    each(&words(pattern), &words(text))
}

/// All that a command with holes may turn out to be, with short words.
fn meanings(command: &str) -> Vec<String> {
    const FILLS: [&str; 8] = ["", "a", "b", " ", "push", "push a", "push origin", "git push origin"];
    match command.find('\0') {
        None => vec![command.to_owned()],
        Some(at) => {
            FILLS.iter().flat_map(|fill| meanings(&format!("{}{fill}{}", &command[..at], &command[at + 1..]))).collect()
        }
    }
}

fn oracle_matches(rule: &Rule, tool: &str, capability: &str, command: &str) -> bool {
    let permission = match rule.permission.as_str() {
        "*" => true,
        name if name.starts_with("mcp:") => is_one_of(name, tool),
        name => name == tool || name == capability,
    };
    let Some(pattern) = rule.pattern.as_deref().filter(|text| *text != "*") else { return permission };
    let meanings = meanings(command);
    let command = match rule.action {
        Action::Allow => {
            meanings.iter().all(|meaning| is_meant(pattern, meaning) && is_meant_by_words(pattern, meaning))
        }
        Action::Ask | Action::Deny => meanings.iter().any(|meaning| is_meant(pattern, meaning)),
    };
    permission && command
}

proptest! {
    /// C-3, S0-54: of the rules that match, the one decides that the published comparator puts first.
    #[test]
    fn the_rule_that_ranks_first_decides(
        rules in prop::collection::vec(rule(), 0..12),
        command in prop::sample::select(&COMMANDS[..]),
    ) {
        let rules: Vec<_> = rules.into_iter().filter(|(rule, _)| {
            // Paths and hosts have oracles of their own. What is not known may open a file.
            let is_about_commands = matches!(&*rule.permission, "bash" | "shell.run");
            let names_path = rule.pattern.as_deref().is_some_and(|text| text.starts_with('/'));
            !names_path && (command != "\0" || rule.pattern.is_none() || is_about_commands)
        }).collect();
        let part = CommandPart::of_text(command);
        let call = runs("bash", vec![Act::Command(part.clone())]);
        let decision = judge(&set(&rules).unwrap(), &call);
        let mut matching: Vec<_> = rules
            .iter()
            .cloned()
            .zip(0..)
            .filter(|((rule, _), _)| oracle_matches(rule, "bash", "shell.run", command))
            .collect();
        matching.sort_by(oracle_order);
        match matching.first() {
            None => prop_assert_eq!(decision.by, DecidedBy::Default),
            Some(((rule, _), at)) => {
                let DecidedBy::Rule(told) = decision.by else { panic!("{decision:?}, not {rule:?}") };
                prop_assert_eq!(&told.rule, rule);
                prop_assert_eq!(told.source.place, at.to_string());
                prop_assert_eq!(decision.action, rule.action);
            }
        }
    }

    /// S0-55, C-2: whatever session and project say, and whatever the mode, what a manifest denies stays denied. So it does in
    /// the rules that are left for a subagent, which has every denial of its parent's. (No session has subagents yet; they come
    /// with issue 21, and with them the tests of the requirement itself.)
    #[test]
    fn nothing_lifts_what_a_manifest_denies(
        denied in 0..PATTERNS.len(),
        others in prop::collection::vec(rule(), 0..10),
        command in prop::sample::select(&COMMANDS[..]),
        yolo: bool,
    ) {
        let pattern = PATTERNS[denied].filter(|text| !text.starts_with('/')).map(str::to_owned);
        let deny = Rule { pattern, ..Rule::new("bash", Action::Deny) };
        let part = CommandPart::of_text(command);
        let call = runs("bash", vec![Act::Command(part.clone())]);
        let mode = if yolo { Mode::Yolo } else { Mode::Ask };
        let judge_all = |rules: &[(Rule, RuleScope)]| judge(&RuleSet { mode, ..set(rules).unwrap() }, &call).action;
        let alone = judge_all(&[(deny.clone(), RuleScope::Manifest)]);
        let with: Vec<_> = std::iter::once((deny.clone(), RuleScope::Manifest)).chain(others.clone()).collect();
        if alone == Action::Deny {
            prop_assert_eq!(judge_all(&with), Action::Deny);
        }
        // By whomever the parent was denied it: the child's own rules come after.
        let parent = set(&[(deny, RuleScope::Session)]).unwrap();
        if judge(&parent, &call).action == Action::Deny {
            let mut child = parent.inherited();
            let variables = Variables::new(vec!["/w".into()], vec![], vec![]).unwrap();
            for (rule, scope) in &others {
                child.add(rule, &RuleSource { scope: *scope, place: "child".to_owned() }, &variables).unwrap();
            }
            prop_assert_eq!(judge(&child, &call).action, Action::Deny);
        }
    }

    /// The order in which rules came tells two apart only where nothing else does.
    #[test]
    fn order_matters_for_ties_alone(rules in prop::collection::vec(rule(), 0..8), command in prop::sample::select(&COMMANDS[..])) {
        let part = CommandPart::of_text(command);
        let call = runs("bash", vec![Act::Command(part.clone())]);
        let backwards: Vec<_> = rules.iter().rev().cloned().collect();
        prop_assert_eq!(judge(&set(&rules).unwrap(), &call).action, judge(&set(&backwards).unwrap(), &call).action);
    }

    /// Containment and overlap of command patterns, against all that short holes may stand for.
    #[test]
    fn patterns_cover_and_touch_what_the_oracle_says(pattern in "[ab *]{0,5}", command in "[ab \0]{0,5}") {
        prop_assume!(!matches!(&*pattern, "" | "*" | "**"));
        let permission = Permission::parse("bash").unwrap();
        let variables = Variables::new(vec![], vec![], vec![]).unwrap();
        let kinds = RuleSet::default().kinds_of(&permission);
        let compiled = Matcher::compile(("", kinds), (Some(&pattern), Action::Deny), &variables);
        // Blanks that no command has are a mistake.
        let Ok(matcher) = compiled.map(|mut all| all.swap_remove(0)) else { return Ok(()) };
        let meanings = meanings(&command);
        let command = CommandPart::of_text(&command);
        if matcher.applies(Action::Allow, &Act::Command(command.clone())) {
            prop_assert!(meanings.iter().all(|meaning| is_meant(&pattern, meaning)), "it covers what it does not mean");
        }
        if meanings.iter().any(|meaning| is_meant(&pattern, meaning)) {
            prop_assert!(matcher.applies(Action::Deny, &Act::Command(command.clone())), "something slips past");
        }
    }

    /// A path rule on trees: a tree is allowed only if all in it is, and denied if anything in it is.
    #[test]
    fn trees_are_allowed_whole_and_denied_in_part(
        pattern in prop::sample::select(&["/w/**", "/w/a/**", "/w/a", "/w/*.rs", "/w/a/*.rs", "/**", "/x/**"][..]),
        tree in prop::sample::select(&["/", "/w", "/w/a", "/w/b", "/x"][..]),
    ) {
        let files: Vec<HostPath> =
            ["/w/a", "/w/a/b", "/w/a/c.rs", "/w/d.rs", "/w/b/e", "/x/y", "/x"].map(HostPath::from).to_vec();
        let permission = Permission::parse("fs.read").unwrap();
        let variables = Variables::new(vec!["/w".into()], vec![], vec![]).unwrap();
        let matcher = Matcher::compile(("", RuleSet::default().kinds_of(&permission)), (Some(pattern), Action::Deny), &variables).unwrap().swap_remove(0);
        let means = |path: &HostPath| matcher.applies(Action::Deny, &Act::File(path));
        let root = HostPath::from(tree);
        let mut beneath = files.iter().filter(|file| file.as_path().starts_with(tree));
        if matcher.applies(Action::Allow, &Act::Tree(&root)) {
            prop_assert!(beneath.clone().all(means));
        }
        if beneath.any(means) {
            prop_assert!(matcher.applies(Action::Deny, &Act::Tree(&root)));
        }
    }
}

/// S0-51: a rule that denies or asks about a path is about all that lies below it; one that allows is not. The path itself stays the more
/// exact pattern.
#[test]
fn s0_51_a_directory_is_denied_with_what_lies_in_it() {
    use crate::effect::EffectKind::Shows;
    let file = |set: &RuleSet, path: &str| judge(set, &call("read", Shows, vec![Act::File(&path.into())])).action;
    for pattern in ["secret", "secret/", "./secret", "./secret/**", "/w/secret", "{workspace}/secret"] {
        for action in [Action::Deny, Action::Ask] {
            let set = one("read", Some(pattern), action);
            for path in ["/w/secret", "/w/secret/key", "/w/secret/a/b"] {
                assert_eq!(file(&set, path), action, "{pattern}: {path}");
            }
            let tree = judge(&set, &call("read", Shows, vec![Act::Tree(&"/w/secret/a".into())])).action;
            assert_eq!(tree, action, "{pattern}");
            let other = one("read", Some("elsewhere"), action);
            assert_eq!(file(&set, "/w/secrets"), file(&other, "/w/secrets"), "{pattern}");
        }
    }
    for pattern in ["secret/key ", " secret", "$HOME/x", "${HOME}/x"] {
        assert!(
            set(&[(Rule::new("read", Action::Deny).pattern(pattern), RuleScope::Manifest)]).is_none(),
            "{pattern:?}"
        );
    }
    let allows = one("read", Some("./docs"), Action::Allow);
    assert_eq!(file(&allows, "/w/docs"), Action::Allow);
    assert_ne!(file(&allows, "/w/docs/a"), Action::Allow);
    assert!(set(&[(Rule::new("read", Action::Allow).pattern("docs/"), RuleScope::Manifest)]).is_none());
    let rules = [
        (Rule::new("read", Action::Ask).pattern("docs"), RuleScope::Manifest),
        (Rule::new("read", Action::Allow).pattern("docs/open/**"), RuleScope::Manifest),
    ];
    let both = set(&rules).unwrap();
    assert_eq!(file(&both, "/w/docs/open/a"), Action::Allow);
    assert_eq!(file(&both, "/w/docs/a"), Action::Ask);
    let root = "/w".into();
    let search = call("grep", Shows, vec![Act::Search(&root)]);
    let left: Vec<String> = one("read", Some("secret"), Action::Deny)
        .left_out(&search)
        .iter()
        .map(|left| left.pattern.to_string())
        .collect();
    assert!(left.contains(&"/w/secret/**".to_owned()), "{left:?}");
}

/// S0-51: a directory that is denied by its path alone is a place that can be closed, and held programs run.
#[test]
fn s0_51_a_directory_by_its_path_alone_is_a_place() {
    let mut set = one("fs.write", Some("docs"), Action::Deny);
    let places = set.closed_places();
    let paths: Vec<String> = places.iter().map(|place| place.path.to_string()).collect();
    assert_eq!(paths, ["/w/docs"]);
    let capability = permission::Capability::FsWrite;
    assert!(set.first_of_reach(capability).is_some());
    set.hold(places);
    assert!(set.first_of_reach(capability).is_none());
}

fn one(permission: &str, pattern: Option<&str>, action: Action) -> RuleSet {
    let rule = Rule { pattern: pattern.map(str::to_owned), ..Rule::new(permission, action) };
    set(&[(rule, RuleScope::Manifest)]).unwrap()
}

/// C-3: of rules that are the same the newest is the one that is named.
#[test]
fn of_equal_rules_the_newest_is_named() {
    let rule = Rule::new("bash", Action::Deny).pattern("git *");
    let set = set(&vec![(rule, RuleScope::Session); 3]).unwrap();
    let part = CommandPart::of_text("git push");
    let named = vec![Act::Command(part.clone())];
    let DecidedBy::Rule(told) = judge(&set, &runs("bash", named)).by else { panic!("a rule decides") };
    assert_eq!(told.source.place, "2");
}

/// A pattern's meaning depends on the effects of the tool, also of tools that only this session has.
#[test]
fn patterns_mean_what_the_tool_does() {
    let kinds = [("count", EffectKind::Runs), ("fetch", EffectKind::Connects), ("view", EffectKind::Shows)];
    let variables = Variables::new(vec!["/w".into()], vec![], vec![]).unwrap();
    let source = RuleSource { scope: RuleScope::Session, place: "this session".to_owned() };
    let deny = |tool: &str, pattern: &str| {
        let tools = kinds.map(|(name, kind)| (name.to_owned(), EffectKinds::of(&[kind]))).into();
        let mut rules = RuleSet { tools, ..RuleSet::default() };
        let rule = Rule::new(tool, Action::Deny).pattern(pattern);
        rules.add(&rule, &source, &variables).map(|()| rules)
    };
    let (part, file) = (CommandPart::of_text("wc a"), HostPath::from("/w/wc a"));
    let (command, path) = (Act::Command(part), Act::File(&file));
    let denied = |tool, kind, act: &Act<'_>| {
        judge(&deny(tool, "wc *").unwrap(), &call(tool, kind, vec![act.clone()])).action == Action::Deny
    };
    for (tool, by_command, by_path) in
        [("count", true, false), ("bash", true, false), ("view", false, true), ("read", false, true)]
    {
        let denied = (denied(tool, EffectKind::Runs, &command), denied(tool, EffectKind::Shows, &path));
        assert_eq!(denied, (by_command, by_path), "{tool}");
    }
    // A command is no host's name.
    assert!(deny("fetch", "wc *").is_err() && deny("fetch", "*.example.com").is_ok());
}

/// X0-25: what is left for a subagent. Of what allows only the author's rules are, and what denies comes before all else.
#[test]
fn what_allows_is_inherited_from_the_author_alone() {
    let parts = ["git push", "git log", "rm x", "ls"].map(CommandPart::of_text);
    let rules = [
        ("git push *", Action::Deny, RuleScope::Project),
        ("git *", Action::Allow, RuleScope::Manifest),
        ("rm *", Action::Allow, RuleScope::Session),
        ("ls *", Action::Allow, RuleScope::Project),
    ];
    let rules = rules.map(|(pattern, action, scope)| (Rule::new("bash", action).pattern(pattern), scope));
    let parent = set(&rules).unwrap();
    let child = parent.inherited();
    let judged = |set: &RuleSet| {
        parts.each_ref().map(|part| {
            let named = vec![Act::Command(part.clone())];
            judge(set, &runs("bash", named)).action
        })
    };
    assert_eq!(judged(&parent), [Action::Deny, Action::Allow, Action::Allow, Action::Allow], "the control");
    assert_eq!(judged(&child), [Action::Deny, Action::Allow, Action::Ask, Action::Ask]);
    assert_eq!((parent.len(), child.len(), child.is_empty()), (4, 2, false));
    assert!(RuleSet::default().is_empty());
}

/// C-22: a rule about a locked tool is about its effect, whichever tool has it; one about another tool is about that tool alone.
#[test]
fn c_22_a_rule_about_a_locked_tool_is_about_its_effect() {
    let commands = [CommandPart::of_text("git push"), CommandPart::of_text("git log")].map(Act::Command);
    let file = HostPath::from("/w/secret/a");
    let judged = |rule: &Rule, tool: &str, kind, act: &Act<'_>, standing| {
        let mut set = RuleSet { mode: Mode::Yolo, ..RuleSet::default() };
        set.tools = [("exec_shell".to_owned(), EffectKinds::of(&[EffectKind::Runs]))].into();
        let source = RuleSource { scope: RuleScope::Project, place: "p:1".to_owned() };
        set.add(rule, &source, &Variables::new(vec!["/w".into()], vec![], vec![]).unwrap()).unwrap();
        let mut call = call(tool, kind, vec![act.clone()]);
        call.effects[0].standing = standing;
        judge(&set, &call).action
    };
    let deny = |permission: &str, pattern: &str| Rule::new(permission, Action::Deny).pattern(pattern);
    let bash = deny("bash", "git push *");
    for tool in ["bash", "exec_shell", "run_tests", "mcp:a:b"] {
        for standing in [EffectStanding::Own, EffectStanding::Implied] {
            assert_eq!(judged(&bash, tool, EffectKind::Runs, &commands[0], standing), Action::Deny, "{tool}");
            assert_eq!(judged(&bash, tool, EffectKind::Runs, &commands[1], standing), Action::Allow, "{tool}");
        }
    }
    let own = deny("exec_shell", "git push *");
    assert_eq!(judged(&own, "exec_shell", EffectKind::Runs, &commands[0], EffectStanding::Own), Action::Deny);
    assert_eq!(judged(&own, "bash", EffectKind::Runs, &commands[0], EffectStanding::Own), Action::Allow);
    for (permission, kind) in [
        ("read", EffectKind::Shows),
        ("grep", EffectKind::Shows),
        ("glob", EffectKind::Lists),
        ("write", EffectKind::Writes),
        ("edit", EffectKind::Writes),
    ] {
        let rule = deny(permission, "secret/**");
        for tool in ["apply_patch", "read_csv", "sqlite"] {
            let denied = judged(&rule, tool, kind, &Act::File(&file), EffectStanding::Own);
            assert_eq!(denied, Action::Deny, "{permission} {tool}");
        }
        let other = if kind == EffectKind::Writes { EffectKind::Shows } else { EffectKind::Writes };
        assert_eq!(judged(&rule, "t", other, &Act::File(&file), EffectStanding::Own), Action::Allow, "{permission}");
    }
}

/// C-22: what allows a locked tool's effect allows it for every tool; another effect of the same call still needs a rule.
#[test]
fn c_22_every_effect_of_a_call_must_be_allowed() {
    let command = Act::Command(CommandPart::of_text("git log"));
    let file = HostPath::from("/w/a");
    let mut set = RuleSet::default();
    let source = RuleSource { scope: RuleScope::Manifest, place: "m:1".to_owned() };
    set.add(&Rule::new("bash", Action::Allow), &source, &Variables::default()).unwrap();
    let mut both = runs("t", vec![command]);
    assert_eq!(judge(&set, &both).action, Action::Allow);
    both.effects.extend(call("t", EffectKind::Writes, vec![Act::File(&file)]).effects);
    let decision = judge(&set, &both);
    assert_eq!((decision.action, decision.about.as_deref()), (Action::Ask, Some("/w/a")));
    both.effects[1].standing = EffectStanding::Implied;
    assert_eq!(judge(&set, &both).action, Action::Allow, "how it is carried out needs no rule that allows it");
}

/// C-22, S0-15: the `grant` of a rule about `bash` narrows every tool that runs programs.
#[test]
fn c_22_a_grant_goes_with_its_rule() {
    let part = || Act::Command(CommandPart::of_text("touch a"));
    let grant = RuleGrant { write: Some(Vec::new()), net: Some(Vec::new()) };
    let set = |action| {
        let mut set = RuleSet { mode: Mode::Yolo, ..RuleSet::default() };
        let source = RuleSource { scope: RuleScope::Manifest, place: "m:1".to_owned() };
        let rule = Rule { grant: Some(grant.clone()), ..Rule::new("bash", action).pattern("touch *") };
        set.add(&rule, &source, &Variables::default()).unwrap();
        set
    };
    for action in [Action::Ask, Action::Allow] {
        for tool in ["bash", "exec_shell"] {
            assert!(set(action).sub_policy(&runs(tool, vec![part()])).is_some(), "{tool}");
        }
    }
    assert!(set(Action::Allow).sub_policy(&runs("bash", vec![Act::WholeLine])).is_none(), "the control");
}

/// X4-3: a text that a person is asked about is found in what a program is given to read, and so is a denied command.
#[test]
fn x4_3_a_text_is_found_in_an_input() {
    let bash = || Act::Command(CommandPart::of_text("bash"));
    let judged = |input, pattern: Option<&str>| {
        let mut set = RuleSet { mode: Mode::Ask, ..RuleSet::default() };
        let source = RuleSource { scope: RuleScope::Manifest, place: "m:1".to_owned() };
        set.add(&Rule::new("bash", Action::Allow), &source, &Variables::default()).unwrap();
        match pattern {
            Some(pattern) => {
                let deny = Rule::new("bash", Action::Deny).pattern(pattern);
                set.add(&deny, &source, &Variables::default()).unwrap();
            }
            None => set.add_phrase("rm -rf", &source),
        }
        judge(&set, &runs("bash", vec![bash(), Act::input(input, InputUse::Line)])).action
    };
    assert_eq!(judged("cd /\nRM -rf x; echo", None), Action::Ask);
    assert_eq!(judged("rm x", None), Action::Allow, "the control");
    assert_eq!(judged("cd /\nrm -rf x", Some("rm *")), Action::Deny, "a line of it");
    for input in ["true; rm x", "(rm x)", "if true; then rm x; fi", "$x", "env a-b=1 rm x"] {
        assert_eq!(judged(input, Some("rm *")), Action::Deny, "{input}");
    }
    assert_eq!(judged("true; ls rm", Some("rm *")), Action::Allow, "the control");
    assert_eq!(judged("x = rm", Some("rm *")), Action::Allow, "the control");
    assert_eq!(judged("os.system('rm x')", Some("*rm*")), Action::Deny, "somewhere in it");
}

/// C-1: what a command is given to read may be what it does, so only a rule without a `*` allows it.
#[test]
fn a_pattern_does_not_allow_what_is_given_something_to_read() {
    let judged = |pattern: &str, part: &CommandPart| {
        let call = runs("bash", vec![Act::Command(part.clone())]);
        judge(&one("bash", Some(pattern), Action::Allow), &call).action
    };
    let commit = CommandPart::of_text("git commit -v");
    let fed = commit.clone().fed();
    assert_eq!(judged("git commit *", &commit), Action::Allow, "the control");
    assert_eq!(judged("git commit *", &fed), Action::Ask);
    assert_eq!(judged("git commit -v", &fed), Action::Allow);
}

/// S4-16: servers take names in capitals for the same names; what allows is for one spelling.
#[test]
fn statements_are_denied_in_capitals_or_not() {
    let judged = |pattern: &str, action, text: &str| {
        let part = CommandPart::of_statement(text);
        let tools = [("postgres".to_owned(), EffectKinds::of(&[EffectKind::Queries]))].into();
        let mut set = RuleSet { tools, ..RuleSet::default() };
        let source = RuleSource { scope: RuleScope::Manifest, place: "m:1".to_owned() };
        set.add(&Rule::new("postgres", action).pattern(pattern), &source, &Variables::default()).unwrap();
        judge(&set, &call("postgres", EffectKind::Queries, vec![Act::Command(part)])).action
    };
    for text in ["SELECT * FROM secrets", "SELECT * FROM SECRETS", "SELECT * FROM \"Secrets\""] {
        assert_eq!(judged("*secrets*", Action::Deny, text), Action::Deny, "{text}");
        assert_eq!(judged("*SecretS*", Action::Deny, text), Action::Deny, "{text}");
    }
    assert_eq!(judged("*secrets*", Action::Deny, "SELECT * FROM items"), Action::Ask, "the control");
    assert_eq!(judged("SELECT * FROM secrets", Action::Allow, "SELECT * FROM secrets"), Action::Allow, "the control");
    assert_eq!(judged("SELECT * FROM secrets", Action::Allow, "SELECT * FROM SECRETS"), Action::Ask);
    let part = CommandPart::of_text("rm SECRETS");
    let named = vec![Act::Command(part.clone())];
    let bash = runs("bash", named);
    assert_eq!(judge(&one("bash", Some("*secrets*"), Action::Deny), &bash).action, Action::Ask, "a command is not SQL");
}

/// X0-10: globs in either part, and a server's tool by its name.
#[test]
fn servers_tools_are_meant_by_globs() {
    let judge = |permission, tool| {
        let call = call(tool, EffectKind::Serves, vec![Act::Nothing]);
        judge(&one(permission, None, Action::Deny), &call).action == Action::Deny
    };
    for permission in ["mcp:hub:issue", "mcp:hub:*", "mcp:*:issue", "mcp:*:*", "mcp:h*:is*", "*"] {
        assert!(judge(permission, "mcp:hub:issue"), "{permission}");
    }
    for permission in ["mcp:hub:issues", "mcp:lab:*", "bash"] {
        assert!(!judge(permission, "mcp:hub:issue"), "{permission}");
    }
    assert!(!judge("mcp:*:*", "read"));
}

/// A rule that cannot mean anything is an error, not a rule that never matches.
#[test]
fn rules_that_make_no_sense_are_refused() {
    for (permission, text) in [
        ("fs.raed", "there is no capability \"fs.raed\""),
        ("mcp:hub", "permission \"mcp:hub\" is neither"),
        ("", "permission \"\" is neither"),
        ("ba sh", "permission \"ba sh\" is neither"),
    ] {
        let rule = Rule::new(permission, Action::Deny);
        let source = RuleSource { scope: RuleScope::Manifest, place: "m.toml:3".to_owned() };
        let variables = Variables::new(vec![], vec![], vec![]).unwrap();
        let error = RuleSet::default().add(&rule, &source, &variables).unwrap_err();
        let cause = error.source().unwrap().to_string();
        assert!(error.to_string().starts_with("m.toml:3: ") && cause.starts_with(text), "{error}: {cause}");
    }
}

/// S0-51: an agent is named by what can be nothing else; a rule that denies or asks may be about a prompt or a setting.
#[test]
fn an_agent_is_named_by_what_is_no_prompt() {
    let named =
        |pattern: &str, action| one("task", Some(pattern), action).agents().map(|(name, _)| name.to_owned()).next();
    for (pattern, allowed, denied) in [
        ("reader", Some("reader"), Some("reader")),
        ("reader: sum up", Some("reader"), None),
        ("sum up", Some("sum up"), None),
        ("metadata.team=x", Some("metadata.team=x"), None),
        ("*: sum up", None, None),
        ("read*", None, None),
    ] {
        assert_eq!(named(pattern, Action::Allow).as_deref(), allowed, "{pattern}");
        assert_eq!(named(pattern, Action::Deny).as_deref(), denied, "{pattern}");
    }
}

/// S0-51: a pattern that no command is like is an error that says what to write; a statement may look like one.
#[test]
fn patterns_that_no_command_is_like_are_refused() {
    let add = |permission: &str, pattern: &str, action| {
        let variables = Variables::new(vec!["/w".into()], vec![], vec![]).unwrap();
        let source = RuleSource { scope: RuleScope::Manifest, place: "m.toml:3".to_owned() };
        let mut set = RuleSet {
            tools: [("sqlite".to_owned(), EffectKinds::of(&[EffectKind::Queries]))].into(),
            ..RuleSet::default()
        };
        set.add(&Rule::new(permission, action).pattern(pattern), &source, &variables)
            .map_err(|error| error.source().unwrap().to_string())
    };
    for action in [Action::Allow, Action::Ask, Action::Deny] {
        for permission in ["bash", "shell.run", "*"] {
            for pattern in [
                "git  push",
                "A=1 git push",
                "make 2>&1",
                "sleep * &",
                "for *",
                "* | bash",
                "cd src && make > out",
                "cd src &&  make",
            ] {
                let error = add(permission, pattern, action).unwrap_err();
                assert!(
                    error.starts_with(&format!("the pattern {pattern:?} can never match: ")),
                    "{permission}: {error}"
                );
            }
            for pattern in ["git push *", "A=1", "> out", "cd src && make *", "find * -exec rm {} ;"] {
                add(permission, pattern, action).unwrap();
            }
        }
        for pattern in ["SELECT * FROM t WHERE a > 5", "SELECT a || b", "SELECT 'a  b'", "for x"] {
            add("sqlite", pattern, action).unwrap();
        }
        add("*", "/w/a  b/**", action).unwrap();
    }
}

/// S0-54: what a program could do counts only where a rule tightens it; and every part of a call must be allowed.
#[test]
fn the_strictest_part_decides() {
    let files = [HostPath::from("/w/a"), HostPath::from("/etc/x")];
    let two = call("read", EffectKind::Shows, files.iter().map(Act::File).collect());
    let decision = judge(&one("read", Some("/w/**"), Action::Allow), &two);
    assert_eq!((decision.action, decision.about.as_deref()), (Action::Ask, Some("/etc/x")));
    let make = Act::Command(CommandPart::of_text("make"));
    let shell = JudgedCall { reach: vec![Capability::FsRead], ..runs("bash", vec![make]) };
    assert_eq!(judge(&one("bash", None, Action::Allow), &shell).action, Action::Allow);
    assert_eq!(
        judge(&one("fs.read", None, Action::Allow), &shell).action,
        Action::Ask,
        "reading does not allow running"
    );
    let mut rules = one("bash", None, Action::Allow);
    let deny = Rule::new("fs.read", Action::Deny).pattern("/w/secret/**");
    let source = RuleSource { scope: RuleScope::Session, place: "this session".into() };
    rules.add(&deny, &source, &Variables::new(vec![], vec![], vec![]).unwrap()).unwrap();
    let decision = judge(&rules, &shell);
    assert_eq!(decision.action, Action::Deny, "a program could read it");
    assert_eq!(
        decision.to_string(),
        "the rule deny fs.read \"/w/secret/**\" (this session), for what a program could do"
    );
}

/// S1-14 to S1-16, C-5, C-8: what holds where no rule does.
#[test]
fn the_mode_decides_what_no_rule_does() {
    let command = |text: &str| runs("bash", vec![Act::Command(CommandPart::of_text(text))]);
    let file = HostPath::from("/w/x");
    let mut rules = RuleSet { silent: EffectKinds::of(&[EffectKind::Shows]), ..RuleSet::default() };
    let read = call("read", EffectKind::Shows, vec![Act::File(&file)]);
    assert_eq!(judge(&rules, &read).by, DecidedBy::Profile);
    assert_eq!(judge(&rules, &command("ls")).action, Action::Ask);
    rules.mode = Mode::Allowlist;
    rules.allowlist = vec![AllowEntry::parse("bash:ls *")];
    assert_eq!(judge(&rules, &command("ls -l")).action, Action::Allow);
    assert_eq!(judge(&rules, &command("rm x")).action, Action::Ask, "C-5: a miss is asked about");
    rules.mode = Mode::Yolo;
    assert_eq!(judge(&rules, &command("rm x")).action, Action::Allow);
    let yolo = RuleSet { mode: Mode::Yolo, ..one("bash", None, Action::Ask) };
    assert_eq!(judge(&yolo, &command("ls")).action, Action::Allow, "S1-16: nobody is asked");
}

/// The parts of a line of commands, `;` between them, whose words are parted by blanks; `%` is a blank in a word, `$` a variable
/// in quotes.
fn parts(line: &str) -> Vec<CommandPart> {
    use crate::shell::{Assignment, Line, Piece, Simple, Word};
    let word = |word: &str| {
        let text = |text: &str| Piece::Text(text.replace('%', " "));
        let variable = || Piece::Variable { name: "x".to_owned(), quoted: true, changed: false };
        match word.split_once('$').filter(|(_, rest)| !rest.starts_with('(')) {
            None => Word::Static(word.replace('%', " ")),
            Some((before, behind)) => Word::Dynamic(vec![text(before), variable(), text(behind)]),
        }
    };
    let command = |command: &str| {
        let mut words = command.split_whitespace().peekable();
        let mut assignments = Vec::new();
        while let Some(next) = words.next_if(|word| word.contains('=') && !word.starts_with('-')) {
            let (name, value) = next.split_once('=').unwrap();
            assignments.push(Assignment { name: name.to_owned(), values: vec![word(value)] });
        }
        Simple { words: words.map(word).collect(), assignments, ..Simple::default() }
    };
    commands::parts(&Line { commands: line.split(" ; ").map(command).collect(), ..Line::default() }).unwrap()
}

/// A pattern that is passed over by the letters that it needs does not match.
#[test]
fn no_rule_is_passed_over_by_its_letters() {
    let lines = [
        "git -C . push",
        "git --no-pager push origin",
        "rm -r -f x",
        "npm --prefix x publish",
        "docker container run x",
        "time env A=1 ls",
        "sh -c ls",
        "curl --data=x y",
        "./scripts/../x",
        "PATH=. x",
    ];
    let patterns = [
        "git push *",
        "rm -rf *",
        "npm publish *",
        "docker run *",
        "ls *",
        "time *",
        "curl * -d *",
        "./x",
        "read *",
        "*push*",
        "PATH=*",
        "/bin/ls *",
        "git *",
        "mapfile *",
    ];
    let variables = Variables::new(vec!["/w".into()], vec![], vec![]).unwrap();
    let kinds = EffectKinds::of(&[EffectKind::Runs]);
    let mut read = parts("read -r x");
    read.extend(parts_reading("mapfile -t x", "kept"));
    let acts = lines.iter().flat_map(|line| parts(line)).chain(read).map(Act::Command);
    let mut matched = 0;
    for act in acts {
        for (pattern, action) in patterns.iter().flat_map(|one| [(one, Action::Allow), (one, Action::Deny)]) {
            let matchers = Matcher::compile(("bash", kinds), (Some(pattern), action), &variables).unwrap();
            for matcher in matchers.iter().filter(|matcher| matcher.applies(action, &act)) {
                matched += 1;
                assert!(Pairs::of(&act).have(matcher.pairs()), "{pattern} {action} {act:?}");
            }
        }
    }
    assert!(matched > 20, "{matched}");
}

/// The parts of a command that reads a file.
fn parts_reading(command: &str, file: &str) -> Vec<CommandPart> {
    use crate::shell::{Line, Piece, Redirect, Simple, Word};
    let words = command.split(' ').filter(|word| !word.is_empty()).map(|word| Word::Static(word.to_owned())).collect();
    let target = Some(match file {
        "\0" => Word::Dynamic(vec![Piece::Output { quoted: true }]),
        file => Word::Static(file.to_owned()),
    });
    let redirects = vec![Redirect { operator: "<".to_owned(), fd: None, target }];
    let commands = vec![Simple { words, redirects, ..Simple::default() }];
    commands::parts(&Line { commands, ..Line::default() }).unwrap()
}

/// A file that a line has the shell open is judged by the rules about files too, where the line says which it is.
#[test]
fn s0_51_files_that_a_line_opens_are_judged() {
    let root = HostPath::from("/w");
    let begin = Begin { directory: &root, usual: &root, root: &root };
    let action = |rules: &[(Rule, RuleScope)], mode: Mode, parts: Vec<CommandPart>| {
        let acts = commands::beginning_in(parts, begin).into_iter().map(Act::Command).collect();
        judge(&RuleSet { mode, ..set(rules).unwrap() }, &runs("bash", acts)).action
    };
    let rule = |rule: Rule| (rule, RuleScope::Manifest);
    let all = rule(Rule::new("bash", Action::Allow));
    for permission in ["read", "grep", "fs.read"] {
        let denied = [all.clone(), rule(Rule::new(permission, Action::Deny).pattern("/w/secret/**"))];
        for (file, wanted) in [
            ("secret/key", Action::Deny),
            ("./docs/../secret/key", Action::Deny),
            ("/w/secret/key", Action::Deny),
            ("docs/secret/key", Action::Allow),
        ] {
            assert_eq!(action(&denied, Mode::Ask, parts_reading("wc -l", file)), wanted, "{permission} {file}");
        }
    }
    // `x=$(<file)`: what is read is what a tool that reads would show.
    let alone = || parts_reading("", "docs/a");
    assert_eq!(action(&[], Mode::Ask, alone()), Action::Ask);
    assert_eq!(action(&[rule(Rule::new("read", Action::Allow))], Mode::Ask, alone()), Action::Allow);
    assert_eq!(
        action(&[rule(Rule::new("bash", Action::Allow).pattern("< docs/*"))], Mode::Ask, alone()),
        Action::Allow
    );
    let by_place = rule(Rule::new("read", Action::Allow).pattern("docs/**"));
    assert_eq!(action(&[by_place], Mode::Ask, alone()), Action::Ask, "a link may lead from there elsewhere");
    let connects = || parts_reading("", "/dev/tcp/x/1");
    assert_eq!(action(&[rule(Rule::new("read", Action::Allow))], Mode::Ask, connects()), Action::Ask);
    let denies = [all, rule(Rule::new("read", Action::Deny).pattern("secret/**"))];
    assert_eq!(action(&denies, Mode::Yolo, parts_reading("", "\0")), Action::Deny, "which file is not known");
    assert_eq!(
        action(&denies, Mode::Yolo, parts_reading("wc", "\0")),
        Action::Deny,
        "as of any file that is not known"
    );
    let asks = [denies[0].clone(), rule(Rule::new("read", Action::Ask))];
    assert_eq!(action(&asks, Mode::Ask, parts_reading("wc", "x")), Action::Allow, "it names no file");
    // What is read as a line, and what nobody could read.
    let fed = |text: &str| {
        let shell = || parts("bash").into_iter().map(Act::Command);
        let acts = shell().chain([Act::input(text.to_owned(), InputUse::Line)]).collect();
        judge(&RuleSet { mode: Mode::Yolo, ..set(&denies).unwrap() }, &runs("bash", acts)).action
    };
    assert_eq!((fed("cat < secret/key\n"), fed("cat docs/a\n")), (Action::Deny, Action::Allow));
    let unread = |rules: &[(Rule, RuleScope)]| {
        judge(&RuleSet { mode: Mode::Yolo, ..set(rules).unwrap() }, &runs("bash", vec![Act::UnknownCommand])).action
    };
    assert_eq!((unread(&denies), unread(&denies[..1])), (Action::Deny, Action::Allow));
}

/// A file of which only the end is known is met by the patterns that may mean it.
#[test]
fn s0_51_a_file_that_is_partly_known_is_judged() {
    let variables = Variables::new(vec!["/w".into()], vec![], vec![]).unwrap();
    let meets = |pattern: &str, like: &str| {
        let kinds = EffectKinds::of(&[EffectKind::Writes]);
        let all = Matcher::compile(("write", kinds), (Some(pattern), Action::Deny), &variables).unwrap();
        all.iter().any(|matcher| matcher.applies(Action::Deny, &Act::FileLike(like)))
    };
    for (pattern, like) in [
        ("**/*.pem", "*/c.pem"),
        ("docs/*.pem", "*/c.pem"),
        ("docs/**", "*/x"),
        ("**/.env", "*.env"),
        ("{docs,src}/x", "*/x"),
        ("docs/[ab].pem", "*/c.pem"),
        ("docs/a", "*a"),
    ] {
        assert!(meets(pattern, like), "{pattern} {like}");
    }
    for (pattern, like) in [("**/*.md", "*/c.pem"), ("docs/*.md", "*/b"), ("**/.env", "*/env")] {
        assert!(!meets(pattern, like), "{pattern} {like}");
    }
}

fn judged(rules: &[(&str, Action)], mode: Mode, line: &str) -> Action {
    let rule = |(pattern, action): &(&str, Action)| (Rule::new("bash", *action).pattern(*pattern), RuleScope::Manifest);
    let set = RuleSet { mode, ..set(&rules.iter().map(rule).collect::<Vec<_>>()).unwrap() };
    let parts = parts(line);
    let named = parts.iter().map(|part| Act::Command(part.clone())).collect();
    judge(&set, &runs("bash", named)).action
}

/// A variable that a command sets is a part like one that the line sets: what allows the command does not allow that another
/// program is found by a name.
#[test]
fn what_commands_set_must_be_allowed() {
    let names =
        ["env", "ls", "export", "declare", "typeset", "readonly", "local", "read", "mapfile", "printf", "getopts"];
    let patterns: Vec<String> = names.iter().map(|name| format!("{name} *")).collect();
    let rules: Vec<(&str, Action)> = patterns.iter().map(|pattern| (&**pattern, Action::Allow)).collect();
    for line in [
        "PATH=. ls",
        "env PATH=. ls",
        "env -i PATH=$ ls",
        "env -u PATH ls",
        "env $ ls",
        "env A=1 PATH+=x ls",
        "env -S./x",
        "env -vS ./x",
        "export PATH=. ; ls",
        "export LD_PRELOAD=./x.so ; ls",
        "export $ ; ls",
        "declare PATH=. ; ls",
        "declare -x PATH=. ; ls",
        "typeset PATH=. ; ls",
        "readonly PATH=. ; ls",
        "local PATH=. ; ls",
        "read PATH ; ls",
        "read -r x PATH ; ls",
        "mapfile -t PATH ; ls",
        "printf -v PATH . ; ls",
        "getopts a PATH ; ls",
        "export http_proxy=x ; ls",
        "declare q=$",
    ] {
        assert_eq!(judged(&rules, Mode::Ask, line), Action::Ask, "{line}");
    }
    for line in
        ["ls -l", "export x=1 ; ls", "declare x=y ; ls", "read -r x ; ls", "mapfile -t x ; ls", "getopts a x", "env ls"]
    {
        assert_eq!(judged(&rules, Mode::Ask, line), Action::Allow, "{line}");
    }
    // Who names the variable allows it.
    for (pattern, line) in [
        ("export X=*", "export X=1"),
        ("export X=*", "export X=$"),
        ("env A=1 ls *", "env A=1 ls -l"),
        ("export PATH=/x", "export PATH=/x"),
        ("*", "export PATH=."),
    ] {
        assert_eq!(judged(&[(pattern, Action::Allow)], Mode::Ask, line), Action::Allow, "{pattern} {line}");
    }
    assert_eq!(
        judged(&[("env *", Action::Allow), ("A=*", Action::Allow), ("ls *", Action::Allow)], Mode::Ask, "env A=1 ls"),
        Action::Allow
    );
    // What denies a variable denies it however it is set.
    for line in [
        "PATH=. ls",
        "env PATH=. ls",
        "export PATH=.",
        "export PATH+=:.",
        "export $",
        "env $=1 ls",
        "declare PATH=.",
        "read PATH",
        "mapfile -t PATH",
        "printf -v PATH .",
        "bash -c PATH=.;ls",
        "bash -c export%PATH=.",
        "sudo PATH=. ls",
    ] {
        assert_eq!(judged(&[("PATH=*", Action::Deny)], Mode::Yolo, line), Action::Deny, "{line}");
    }
    for line in ["export X=$", "X=$ ls", "export $", "env A=/bin/rm ls"] {
        assert_eq!(judged(&[("rm *", Action::Deny)], Mode::Yolo, line), Action::Allow, "{line}");
    }
}

/// A rule that tightens is not passed by in silence by what bash may evaluate; what is seen in it is denied in any mode.
#[test]
fn what_may_be_evaluated_is_touched() {
    for action in [Action::Ask, Action::Deny] {
        let rules = [("rm *", action), ("*", Action::Allow)];
        for line in [
            "let $",
            "let i++",
            "printf -v $ x",
            "test -v $",
            "declare -i x=$",
            "declare q=$",
            "read $",
            "history -w",
            "enable -f ./x y",
            "PS4=$ ls",
            "export PROMPT_COMMAND=$",
            "bind -x $",
            "eval $",
            "trap $ EXIT",
            "bash -c $",
        ] {
            assert!(judged(&rules, Mode::Ask, line) >= Action::Ask, "{line}");
        }
        for line in [
            "ls $",
            "set -ex ; ls",
            "trap ls EXIT",
            "eval ls",
            "bash x.sh",
            ". ./x",
            "export x=$",
            "declare -A x",
            "bash -c [%-f%x%];ls",
            "bash -c find%{}",
        ] {
            assert_eq!(judged(&rules, Mode::Ask, line), Action::Allow, "{line}");
        }
        // Who names exactly this command allows it.
        let named = [("rm *", action), ("let i++", Action::Allow)];
        assert_eq!(judged(&named, Mode::Ask, "let i++"), Action::Allow);
    }
    for line in [
        "env - rm x",
        "env -Srm%x",
        "env -vS rm%x",
        "env A=$ rm x",
        "eval -- rm x",
        "eval $",
        "trap -- rm%x EXIT",
        "x86_64 rm x",
        "i386 rm x",
        "linux32 rm x",
        "setarch x86_64 rm x",
        "ssh-agent rm x",
        "script -qcrm%x /dev/null",
        "script --command=rm%x /dev/null",
        "flock f -c rm%x",
        "su me -c rm%x",
        "sg group -c rm%x",
        "tmux new rm%x",
        "start-stop-daemon --start --exec /bin/rm -- x",
        "bash -c /bin/r[m]%x",
        "bash -c /b?n/rm%x",
        "bash -c r{m,}%x",
        "bash -c ~/rm%x",
        "printf -v a[$(rm%x)] y",
        "let a[$(rm%x)]",
        "declare -i x=a[$(rm%x)]",
        "mapfile -C rm%x a",
        "compgen -C rm%x",
        "complete -C rm%x y",
        "alias y=rm%x",
        "jobs -x rm x",
        "hash -p /bin/rm y",
        "/b$ x",
    ] {
        assert_eq!(judged(&[("rm *", Action::Deny)], Mode::Yolo, line), Action::Deny, "{line}");
    }
    for line in ["history -w out", "history -a out", "bash -c history%-w%out"] {
        assert_eq!(judged(&[("> *", Action::Deny)], Mode::Yolo, line), Action::Deny, "{line}");
    }
}

/// S0-15: what a line may do lies within the grant of each of its commands' rules, in whatever order they stand; a command whose
/// rule has no grant changes nothing about it.
#[test]
fn s0_15_a_line_is_within_each_grant() {
    let grant = |json: &str| serde_json::from_str::<RuleGrant>(json).unwrap();
    let granted = |pattern: &str, json: &str| Rule::new("bash", Action::Allow).pattern(pattern).grant(grant(json));
    let rules = [
        granted("cargo *", r#"{"write": ["target/**", "out/**"], "net": []}"#),
        granted("npm *", r#"{"write": ["out/**", "dist/**"]}"#),
        granted("curl *", r#"{"net": ["a.com"]}"#),
        Rule::new("bash", Action::Allow).pattern("mkdir *"),
    ];
    let mut set = RuleSet::default();
    let variables = Variables::new(vec!["/w".into()], vec![], vec![]).unwrap();
    for (place, rule) in rules.iter().enumerate() {
        let source = RuleSource { scope: RuleScope::Manifest, place: format!("m:{place}") };
        set.add(rule, &source, &variables).unwrap();
    }
    let asked = serde_json::from_str(r#"{"fs": {"write": ["**"]}, "net": {"hosts": ["a.com", "b.com"]}}"#).unwrap();
    let asked = [Contribution::from_source(&Source::Default, &asked)];
    let session = narrow(&Declared::union(&asked, &variables, &[]).unwrap(), &[]);
    let left = |line: &str| {
        let parts = parts(line);
        let named = parts.iter().map(|part| Act::Command(part.clone())).collect();
        let sub_policy = set.sub_policy(&runs("bash", named))?;
        Some(sub_policy.told(&session))
    };
    let of = |by: &str, write: &[&str], net: &[&str]| {
        let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        Some(SubPolicyReport { by: by.to_owned(), write: texts(write), net: texts(net) })
    };
    let cargo = of("rule m:0", &["/w/out/**", "/w/target/**"], &[]);
    for line in ["cargo test", "cargo test ; mkdir x", "mkdir x ; cargo test", "true ; cargo test", "cargo a ; cargo b"]
    {
        assert_eq!(left(line), cargo, "{line}");
    }
    for line in ["cargo test ; npm run", "npm run ; mkdir x ; cargo test"] {
        assert_eq!(left(line), of("rule m:0, m:1", &["/w/out/**"], &[]), "{line}");
    }
    assert_eq!(left("curl a ; npm run"), of("rule m:1, m:2", &["/w/dist/**", "/w/out/**"], &["a.com"]));
    assert_eq!(left("curl a ; cargo test"), of("rule m:0, m:2", &["/w/out/**", "/w/target/**"], &[]));
    assert_eq!(left("mkdir x ; true"), None);
}

/// A decision has no name twice, which strict readers of JSON refuse, and is read back as it was.
#[test]
fn a_decision_names_nothing_twice() {
    let grant = RuleGrant::default().write(vec![]);
    let rule = Rule::new("bash", Action::Allow).pattern("git *").grant(grant);
    let rules = set(&[(rule, RuleScope::Manifest)]).unwrap();
    let part = CommandPart::of_text("git log");
    let named = vec![Act::Command(part.clone())];
    let call = runs("bash", named);
    let decision = judge(&rules, &call);
    let text = serde_json::to_string(&decision).unwrap();
    let names = ["action", "rule_action", "by", "about", "permission", "pattern", "grant", "scope", "place"];
    for name in names {
        assert_eq!(text.matches(&format!("\"{name}\":")).count(), 1, "{name}: {text}");
    }
    assert_eq!(serde_json::from_str::<Decision>(&text).unwrap(), decision);
}

/// A denial of a host is about each of its ports, unless it names some; what allows is for the web.
#[test]
fn a_host_is_denied_at_every_port() {
    let judge = |pattern: &str, action, port: u16| {
        let host = Act::Host("evil.example", port);
        judge(&one("net.fetch", Some(pattern), action), &call("web_fetch", EffectKind::Connects, vec![host]))
    };
    for port in [80, 443, 8443, 22, 65535] {
        for pattern in ["evil.example", "*.example"] {
            assert_eq!(judge(pattern, Action::Deny, port).action, Action::Deny, "{pattern} {port}");
            let asked = judge(pattern, Action::Ask, port);
            assert!(matches!(asked.by, DecidedBy::Rule(_)), "{pattern} {port}: {asked:?}");
            let is_web = matches!(port, 80 | 443);
            let allowed = judge(pattern, Action::Allow, port).action == Action::Allow;
            assert_eq!(allowed, is_web, "{pattern} {port}");
        }
    }
    assert_eq!(judge("evil.example:443", Action::Deny, 443).action, Action::Deny, "the control");
    assert_eq!(judge("evil.example:443", Action::Deny, 8443).action, Action::Ask, "it names its port");
    assert_eq!(judge("evil.example:http,https", Action::Deny, 8443).action, Action::Ask, "and so does this");
    assert_eq!(judge("other.example", Action::Deny, 443).action, Action::Ask, "another host");
}

/// Verdict of a rule on a command of bash that runs in a directory of the workspace `/w`.
fn commanded(pattern: &str, action: Action, (command, directory): (&[&str], &str)) -> Action {
    let words = command.iter().map(|word| crate::shell::starts::KnownWord::known(*word)).collect();
    commanded_in_line(pattern, action, (vec![CommandPart::of_words(words)], directory))
}

fn commanded_in_line(pattern: &str, action: Action, (line, directory): (Vec<CommandPart>, &str)) -> Action {
    let (root, directory) = (HostPath::from("/w"), HostPath::from(directory));
    let begin = commands::Begin { directory: &directory, usual: &root, root: &root };
    let parts = commands::beginning_in(line, begin);
    // The last one, which the others are there for.
    let named = vec![Act::Command(parts.last().unwrap().clone())];
    let rule = Rule::new("bash", action).pattern(pattern);
    let set = set(&[(rule, RuleScope::Session)]).unwrap();
    judge(&set, &runs("bash", named)).action
}

/// An allowance for what lies in a directory is none for a path that leads out of it, nor for one that is not known.
#[test]
fn a_path_that_leads_out_is_not_allowed() {
    let allows = |pattern: &str, command: &[&str]| commanded(pattern, Action::Allow, (command, "/w")) == Action::Allow;
    for command in ["./scripts/x", "./scripts//x", "./scripts/./x", "./scripts/a/x", "./scripts/..x", "./scripts/x.."] {
        assert!(allows("./scripts/*", &[command]), "{command}");
    }
    for command in [
        "./scripts/../vendor/evil.sh",
        "./scripts/./../vendor/evil.sh",
        "./scripts//../vendor/evil.sh",
        "./scripts/a/../../vendor/evil.sh",
        "./scripts/..",
        "./scripts/\0",
        "./scripts/\0/x",
        "/w/scripts/x",
        "scripts/x",
    ] {
        assert!(!allows("./scripts/*", &[command]), "{command}");
        assert!(!allows("./scripts/* *", &[command, "y"]), "{command}");
    }
    assert!(allows("python3 scripts/*", &["python3", "scripts/x.py"]), "the control");
    assert!(!allows("python3 scripts/*", &["python3", "scripts/../vendor/evil.py"]), "nor is an argument");
    assert!(!allows("tar --file=in/*", &["tar", "--file=in/../x"]));
    assert!(allows("./scripts/../vendor/x", &["./scripts/../vendor/x"]), "whoever writes it means it");
    assert!(allows("cat *", &["cat", "../x"]), "any argument is any");
}

/// A denial of the programs in a directory holds by whatever path they are named.
#[test]
fn a_directory_is_denied_by_whatever_path() {
    let denies = |pattern: &str, command: &[&str], directory: &str| {
        commanded(pattern, Action::Deny, (command, directory)) == Action::Deny
    };
    for pattern in ["./vendor/*", "vendor/*", "/w/vendor/*", ".//vendor/./*"] {
        for (command, directory) in [
            ("./vendor/evil.sh", "/w"),
            ("vendor/evil.sh", "/w"),
            ("./vendor//evil.sh", "/w"),
            ("./scripts/../vendor/evil.sh", "/w"),
            ("scripts/./../vendor/evil.sh", "/w"),
            ("/w/vendor/evil.sh", "/w"),
            ("/w/scripts/../vendor/evil.sh", "/w"),
            ("../vendor/evil.sh", "/w/scripts"),
            ("./evil.sh", "/w/vendor"),
            ("/proc/self/cwd/vendor/evil.sh", "/w"),
            ("/proc/self/cwd/../w/vendor/evil.sh", "/w"),
            ("/proc/self/cwd/../../../vendor/evil.sh", "/w"),
            ("/dev/fd/3/../../../vendor/evil.sh", "/w"),
            ("/dev/fd/3", "/w"),
            ("./\0/evil.sh", "/w"),
        ] {
            assert!(denies(pattern, &[command], directory), "{pattern} {command} in {directory}");
            assert!(denies(&format!("{pattern} now"), &[command, "now"], directory), "{pattern} {command}");
        }
        for (command, directory) in
            [("./scripts/x", "/w"), ("./vendored/x", "/w"), ("./vendor", "/w"), ("./x", "/w"), ("vendor", "/w")]
        {
            assert!(!denies(pattern, &[command], directory), "{pattern} {command} in {directory}");
        }
    }
    let moved = vec![CommandPart::of_text("cd \0"), CommandPart::of_text("./evil.sh")];
    assert_eq!(commanded_in_line("./vendor/*", Action::Deny, (moved, "/w")), Action::Deny);
}

/// A rule that allows a command does so where the session's commands run, and elsewhere only if it says where.
#[test]
fn a_command_is_allowed_in_its_directory() {
    let allows = |pattern: &str, directory: &str| {
        commanded(pattern, Action::Allow, (&["make", "test"], directory)) == Action::Allow
    };
    for pattern in ["make test", "make *", "cd vendor && make test"] {
        assert_eq!(allows(pattern, "/w"), !pattern.starts_with("cd"), "{pattern}");
        assert_eq!(allows(pattern, "/w/vendor"), pattern.starts_with("cd"), "{pattern}");
        assert!(!allows(pattern, "/w/vendor/other") && !allows(pattern, "/elsewhere"), "{pattern}");
    }
    assert!(allows("cd /elsewhere && make *", "/elsewhere") && allows("cd packages/* && make *", "/w/packages/a"));
    assert!(allows("*", "/w/vendor"), "what is about all commands is about all of them");
    let told = |directory: &str, first: &str| {
        let (root, directory) = (HostPath::from("/w"), HostPath::from(directory));
        let begin = commands::Begin { directory: &directory, usual: &root, root: &root };
        let parts = commands::beginning_in(vec![CommandPart::of_text(first), CommandPart::of_text("make")], begin);
        Act::Command(parts[1].clone()).told().unwrap()
    };
    assert_eq!(told("/w", "true"), "`make`");
    assert_eq!(told("/w/vendor", "true"), "`make` in vendor");
    assert_eq!(told("/w", "cd vendor"), "`make` in a directory that is not known before it runs");
    let in_line = |first: &[&str], pattern: &str, action| {
        let words = first.iter().map(|word| crate::shell::starts::KnownWord::known(*word)).collect();
        commanded_in_line(
            pattern,
            action,
            (vec![CommandPart::of_words(words), CommandPart::of_text("make test")], "/w"),
        )
    };
    for stays in [&["cd", "."][..], &["cd", "/w"], &["cd", "/w/"], &["true"]] {
        assert_eq!(in_line(stays, "make test", Action::Allow), Action::Allow, "{stays:?}");
    }
    for moves in [
        &["cd", "vendor"][..],
        &["cd", "/"],
        &["cd"],
        &["cd", "-"],
        &["cd", "/w/vendor/.."],
        &["pushd", "."],
        &["popd"],
    ] {
        assert_eq!(in_line(moves, "make test", Action::Allow), Action::Ask, "{moves:?}");
        assert_eq!(in_line(moves, "cd vendor && make test", Action::Allow), Action::Ask, "{moves:?}: it may fail");
        assert_eq!(in_line(moves, "make test", Action::Deny), Action::Deny, "{moves:?}");
        assert_eq!(in_line(moves, "cd vendor && make test", Action::Deny), Action::Deny, "{moves:?}");
    }
    assert_eq!(in_line(&["true"], "cd vendor && make test", Action::Deny), Action::Ask, "the control");
    let entry = AllowEntry::parse("bash:make *");
    let parts = |directory: &str| {
        let (root, directory) = (HostPath::from("/w"), HostPath::from(directory));
        let begin = commands::Begin { directory: &directory, usual: &root, root: &root };
        commands::beginning_in(vec![CommandPart::of_text("make test")], begin).remove(0)
    };
    assert!(
        entry.covers("bash", &Act::Command(parts("/w"))) && !entry.covers("bash", &Act::Command(parts("/w/vendor")))
    );
}

/// Denials of programs hold for every spelling of their paths, wherever the pattern's first `*` stands.
#[test]
fn a_denial_by_path_is_anchored() {
    let denies = |pattern: &str, (command, directory): (&str, &str)| {
        commanded(pattern, Action::Deny, (&[command], directory)) == Action::Deny
    };
    let below = [
        ("./x", "/w"),
        ("vendor/x", "/w"),
        ("./vendor/x", "/w"),
        ("scripts/../vendor/x", "/w"),
        ("/w/x", "/w"),
        ("/w/vendor/x", "/w"),
        ("./x", "/w/vendor"),
        ("../x", "/w/vendor"),
        ("../w/x", "/w"),
    ];
    for pattern in ["./*", "/w/*", "{workspace}/*", "scripts/../*", "/*/../w/*"] {
        for command in below {
            assert!(denies(pattern, command), "{pattern} {command:?}");
        }
        for command in [("/usr/bin/x", "/w"), ("../x", "/w"), ("/wide/x", "/w"), ("x", "/w")] {
            assert!(!denies(pattern, command) || pattern == "/*/../w/*", "{pattern} {command:?}");
        }
    }
    for pattern in ["./v*/x", "v*/x", "/w/v*/x", "{workspace}/v*/x", "*/vendor/x"] {
        for command in [
            ("vendor/x", "/w"),
            ("./vendor/x", "/w"),
            ("scripts/../vendor/x", "/w"),
            ("/w/vendor/x", "/w"),
            ("./x", "/w/vendor"),
            ("./\0/x", "/w"),
            ("./scripts/\0/../vendor/x", "/w"),
        ] {
            assert!(denies(pattern, command), "{pattern} {command:?}");
        }
        for command in [("./scripts/y", "/w"), ("scripts/y", "/w"), ("./y", "/w/vendor"), ("/w/vendor/y", "/w")] {
            assert!(!denies(pattern, command), "{pattern} {command:?}");
        }
    }
    let moved = vec![CommandPart::of_text("cd \0"), CommandPart::of_text("./x")];
    assert_eq!(commanded_in_line("./v*/x", Action::Deny, (moved, "/w")), Action::Deny);
}

/// S3: a path that starts no program is not looked into, and no rule about paths lets it pass.
#[test]
fn a_long_path_is_touched_and_not_looked_into() {
    let denies = |pattern: &str, command: &str| commanded(pattern, Action::Deny, (&[command], "/w")) == Action::Deny;
    let long = |length: usize| format!("./{}x", "a/".repeat(length));
    for pattern in ["./vendor/*", "/w/vendor/*", "vendor/y"] {
        assert!(denies(pattern, &long(30_000)), "{pattern}");
        assert!(!denies(pattern, &long(1)) && !denies(pattern, &long(2_000)), "the control: {pattern}");
        assert!(!denies(pattern, &"a".repeat(60_000)), "it is no path: {pattern}");
    }
    assert!(!denies("touch *", &long(30_000)), "a rule about a name");
}

/// S5: a rule about a directory is about it however it is spelled.
#[test]
fn a_rule_about_a_directory_knows_it_by_any_spelling() {
    let is =
        |pattern: &str, action, directory: &str| commanded(pattern, action, (&["make", "test"], directory)) == action;
    for directory in
        ["vendor", "vendor/", "./vendor", "vendor//.", "a/../vendor", "/w/vendor", "/w/./vendor/", "{workspace}/vendor"]
    {
        let pattern = format!("cd {directory} && make *");
        for action in [Action::Deny, Action::Allow] {
            assert!(is(&pattern, action, "/w/vendor"), "{action} {pattern}");
            for other in ["/w", "/w/vendored", "/w/vendor/a", "/vendor"] {
                assert!(!is(&pattern, action, other), "{action} {pattern} {other}");
            }
        }
    }
    let outside = "cd ../vendor && make *";
    assert!(!is(outside, Action::Allow, "/w/vendor") && !is("cd * && make *", Action::Allow, "/vendor"));
    let entry = |directory: &str| AllowEntry::parse(&format!("bash:cd {directory} && make *"));
    let part = |directory: &str| {
        let (root, directory) = (HostPath::from("/w"), HostPath::from(directory));
        let begin = commands::Begin { directory: &directory, usual: &root, root: &root };
        commands::beginning_in(vec![CommandPart::of_text("make test")], begin).remove(0)
    };
    for (directory, allowed) in [("/w/vendor", true), ("/vendor", false), ("/w", false)] {
        assert_eq!(entry("./vendor/").covers("bash", &Act::Command(part(directory))), allowed, "{directory}");
    }
    for root in [".", "./", "/w", "/w/"] {
        assert!(is(&format!("cd {root} && make *"), Action::Deny, "/w"), "the usual directory too: {root}");
    }
    for directory in ["\"vendor\"", "'vendor'", "my vendor", "", "~/vendor", "$HOME", "a\\ b", "a*/../vendor"] {
        let rule = Rule::new("bash", Action::Deny).pattern(format!("cd {directory} && make *"));
        assert!(set(&[(rule, RuleScope::Manifest)]).is_none(), "{directory:?}");
    }
}

proptest! {
    /// Denials by a path are about every spelling of it and of what lies below, and about no other's.
    #[test]
    fn a_path_is_denied_by_every_spelling(
        pattern in "(/w/|\\./|)([ab]|\\.|\\.\\.|)/[ab]/[ab]",
        path in "(/w/|\\./|)([ab]|\\.|\\.\\.|)/[ab]/[ab]",
        directory in prop::sample::select(&["/w", "/w/a", "/w/b/a", "/a"][..]),
    ) {
        let resolved = |from: &str, path: &str| crate::path::normalize(&from.into(), &path.into()).unwrap();
        let is_below = |one: &HostPath, other: &HostPath| one.as_path().starts_with(other.as_path());
        let is_meant = is_below(&resolved(directory, &path), &resolved("/w", &pattern));
        // The star keeps names apart: every program is known by its name alone otherwise.
        let denied = commanded(&format!("{pattern}*"), Action::Deny, (&[&path], directory)) == Action::Deny;
        prop_assert!(!is_meant || denied, "it slips past");
        prop_assert!(is_meant || !denied || path.starts_with(&pattern), "another is denied");
    }
}

/// A pattern says characters, whatever they take in UTF-8.
#[test]
fn a_file_is_denied_by_its_characters() {
    let denies = |pattern: &str, path: &str| {
        let path = HostPath::from(path);
        let call = call("read", EffectKind::Shows, vec![Act::File(&path)]);
        judge(&one("read", Some(pattern), Action::Deny), &call).action == Action::Deny
    };
    for (pattern, path) in
        [("/w/docs/?.txt", "/w/docs/é.txt"), ("/w/docs/[!a].txt", "/w/docs/é.txt"), ("/w/[é]", "/w/é")]
    {
        assert!(denies(pattern, path), "{pattern} {path}");
    }
    assert!(denies("/w/docs/?.txt", "/w/docs/e.txt") && !denies("/w/docs/?.txt", "/w/docs/ee.txt"), "the control");
}

/// E7: a line within a line hides no command from a rule that tightens: it is plain, or it may do anything.
#[test]
fn e7_a_line_within_a_line_hides_nothing() {
    let rules = [("touch *", Action::Deny), ("*", Action::Allow)];
    let rule = |(pattern, action): (&str, Action)| (Rule::new("bash", action).pattern(pattern), RuleScope::Manifest);
    let judged = |mode, argv: &[&str]| {
        let set = RuleSet { mode, ..set(&rules.map(rule)).unwrap() };
        let parts = CommandPart::of_argv(argv);
        let commands = |parts: &'_ [CommandPart]| -> Action {
            let named = parts.iter().map(|part| Act::Command(part.clone())).collect();
            judge(&set, &runs("bash", named)).action
        };
        let named = vec![Act::UnknownCommand];
        let unknown = || judge(&set, &runs("bash", named)).action;
        parts.as_deref().map_or_else(unknown, commands)
    };
    for mode in [Mode::Ask, Mode::Yolo] {
        for line in [
            "<<<x touch PWNED",
            "function f { touch PWNED; }; f",
            "if false; then :; elif touch PWNED; then :; fi",
            "B+=2 touch PWNED",
            "B[0]=2 touch PWNED",
            "{x}>/dev/null touch PWNED",
            "coproc X { touch PWNED; }; wait",
            "</dev/null>/dev/null touch PWNED",
            "echo $'\\''; touch PWNED #'",
            "cat <<E\n'\nE\ntouch PWNED #'",
            "x=\"a[\\$(touch PWNED)]\"; echo $((x))",
            "function f { export LC_ALL=zh_CN.GB18030; bash <<< \"$1\"; }; f \"$1\"",
        ] {
            for argv in
                [&["bash", "-c", line][..], &["nice", "sh", "-ec", line], &["eval", line], &["trap", line, "EXIT"]]
            {
                assert_eq!(judged(mode, argv), Action::Deny, "{mode:?} {argv:?}");
            }
        }
        for name in ["TEXTDOMAIN=d", "TEXTDOMAINDIR=/w/tr"] {
            assert_eq!(judged(mode, &["env", name, "bash", "-c", "ls"]), Action::Deny, "{name}");
        }
        // Another shell takes a plain line in its own way.
        for argv in
            [["fish", "-c", "and touch PWNED"], ["zsh", "-c", "=touch PWNED"], ["csh", "-c", "repeat 1 touch x"]]
        {
            assert_eq!(judged(mode, &argv), Action::Deny, "{argv:?}");
        }
        for line in ["ls; cat x && git log | head >> log", "cd 'a b' && make \"$TARGET\" 2>&1", "rm -f \"$1\""] {
            assert_eq!(judged(mode, &["bash", "-c", line]), Action::Allow, "the control: {line}");
        }
        assert_eq!(judged(mode, &["bash", "-c", "ls; touch x"]), Action::Deny, "the control");
    }
}

/// A command that a wrapper may start elsewhere is not taken for one in the usual directory.
#[test]
fn what_is_started_elsewhere_is_not_allowed_here() {
    let (root, vendored) = (HostPath::from("/w"), "cd vendor && make test");
    let begin = commands::Begin { directory: &root, usual: &root, root: &root };
    let judged = |pattern: &str, action, argv: &[&str]| {
        let parts = commands::beginning_in(CommandPart::of_argv(argv).unwrap(), begin);
        let named = parts.iter().filter(|part| part.text() == "make test" || part.text() == "./evil.sh");
        let named: Vec<_> = named.map(|part| Act::Command(part.clone())).collect();
        assert!(!named.is_empty(), "{argv:?}");
        judge(&one("bash", Some(pattern), action), &runs("bash", named)).action
    };
    for before in [
        &["env", "-C", "vendor"][..],
        &["env", "-Cvendor"],
        &["env", "-iC", "vendor"],
        &["env", "--chdir=vendor"],
        &["env", "--chdir", "vendor"],
        &["env", "--ch=vendor"],
        &["nice", "env", "-C", "vendor", "time"],
        &["find", "vendor", "-execdir"],
        &["find", "vendor", "-okdir"],
        &["fd", "--base-directory", "vendor", "-x"],
        &["sudo", "-D", "vendor"],
        &["sudo", "--chdir=vendor"],
        &["sudo", "-i"],
        &["unshare", "--wd=vendor"],
        &["unshare", "-w", "vendor"],
        &["start-stop-daemon", "-d", "vendor"],
        &["systemd-run", "--user"],
    ] {
        let (make, evil) = ([before, &["make", "test"]].concat(), [before, &["./evil.sh"]].concat());
        assert_eq!(judged("make test", Action::Allow, &make), Action::Ask, "{before:?}");
        assert_eq!(judged(vendored, Action::Deny, &make), Action::Deny, "{before:?}");
        assert_eq!(judged("./vendor/*", Action::Deny, &evil), Action::Deny, "{before:?}");
    }
    for line in ["chdir vendor; make test", ". ./x; make test", "source x; make test", "$x vendor; make test"] {
        assert_eq!(judged("make test", Action::Allow, &["sh", "-c", line]), Action::Ask, "{line}");
        assert_eq!(judged(vendored, Action::Deny, &["sh", "-c", line]), Action::Deny, "{line}");
    }
    for before in [
        &["env"][..],
        &["env", "-i", "A=C", "-u", "B"],
        &["nice", "-n", "5"],
        &["timeout", "--signal=KILL", "9", "stdbuf", "-oL"],
        &["find", ".", "-exec"],
        &["sudo", "-u", "me"],
        &["flock", "lock"],
        &["xargs", "-n1", "sh", "-c", "make test"],
    ] {
        let make = [before, &["make", "test"]].concat();
        assert_eq!(judged("make test", Action::Allow, &make), Action::Allow, "the control: {before:?}");
        assert_eq!(judged(vendored, Action::Deny, &make), Action::Ask, "the control: {before:?}");
    }
}

/// Some acts of each kind, each with the kind of its effect.
fn some_acts() -> Vec<(EffectKind, Act<'static>)> {
    let leaked = |path: &str| -> &'static HostPath { Box::leak(Box::new(HostPath::from(path))) };
    let request = |arguments: serde_json::Value| -> Act<'static> {
        let request = ServedRequest { tool: "mcp:s:t".to_owned(), arguments, key: None, words: None };
        Act::Request(Box::leak(Box::new(request)))
    };
    let mut acts = Vec::new();
    for path in ["/w/a", "/w/docs/a", "/w/docs/private/key", "/w/secret/x.rs", "/etc/hosts"] {
        acts.extend(
            [EffectKind::Shows, EffectKind::Lists, EffectKind::Writes].map(|kind| (kind, Act::File(leaked(path)))),
        );
    }
    acts.extend([EffectKind::Shows, EffectKind::Lists].map(|kind| (kind, Act::Tree(leaked("/w/docs")))));
    for text in ["git push", "git push origin", "git log", "rm x", "ls", "make test", "git \0"] {
        acts.push((EffectKind::Runs, Act::Command(CommandPart::of_text(text))));
    }
    acts.extend(
        [Act::UnknownCommand, Act::WholeLine, Act::input("git push\n", InputUse::Line)]
            .map(|act| (EffectKind::Runs, act)),
    );
    for (host, port) in [("a.com", 443), ("evil.example", 8443)] {
        acts.extend([EffectKind::Connects, EffectKind::Searches].map(|kind| (kind, Act::Host(host, port))));
    }
    acts.push((EffectKind::Queries, Act::Command(CommandPart::of_statement("SELECT * FROM secrets"))));
    acts.extend([("reader", "sum up"), ("writer", "git push")].map(|(agent, text)| {
        let what = AgentMatter::Prompt(text.into());
        (EffectKind::Delegates, Act::Agent(AgentPart { agent, what }))
    }));
    acts.push((EffectKind::Serves, request(serde_json::json!({ "path": "docs/a", "n": 1 }))));
    acts.push((EffectKind::Serves, request(serde_json::json!({ "path": "secret/x" }))));
    acts.extend([EffectKind::Asks, EffectKind::Notes, EffectKind::UsesSecrets].map(|kind| (kind, Act::Nothing)));
    acts
}

const ALL_PERMISSIONS: [&str; 19] = [
    "bash",
    "read",
    "grep",
    "glob",
    "write",
    "edit",
    "web_fetch",
    "web_search",
    "task",
    "sqlite",
    "todo",
    "deploy",
    "mcp:s:t",
    "mcp:*:*",
    "fs.read",
    "fs.write",
    "shell.run",
    "net.fetch",
    "*",
];
const ALL_PATTERNS: [Option<&str>; 18] = [
    None,
    Some("*"),
    Some("git *"),
    Some("git push *"),
    Some("git push"),
    Some("*push*"),
    Some("docs/**"),
    Some("/w/a"),
    Some("**/key"),
    Some("*.rs"),
    Some("a.com"),
    Some("*.example"),
    Some("reader"),
    Some("*secret*"),
    Some("path=docs/**"),
    Some("cd docs && make test"),
    Some(""),
    Some("git add * && git push"),
];

fn any_rule() -> impl Strategy<Value = (Rule, RuleScope)> {
    let action = prop_oneof![Just(Action::Allow), Just(Action::Ask), Just(Action::Deny)];
    let pattern = prop::sample::select(&ALL_PATTERNS[..]);
    (prop::sample::select(&ALL_PERMISSIONS[..]), pattern, action, prop::sample::select(&SCOPES[..])).prop_map(
        |(permission, pattern, action, scope)| {
            (Rule { pattern: pattern.map(str::to_owned), ..Rule::new(permission, action) }, scope)
        },
    )
}

/// Those of some rules that are accepted, in a set of this mode.
fn accepted(rules: &[(Rule, RuleScope)], mode: Mode) -> RuleSet {
    let variables = Variables::new(vec!["/w".into()], vec![], vec![]).unwrap();
    let kinds = |kinds: &[EffectKind]| EffectKinds::of(kinds);
    let mut set = RuleSet { mode, ..RuleSet::default() };
    set.tools = [
        ("sqlite".to_owned(), kinds(&[EffectKind::Queries])),
        ("todo".to_owned(), kinds(&[EffectKind::Notes])),
        ("deploy".to_owned(), kinds(&[EffectKind::Serves])),
    ]
    .into();
    for (at, (rule, scope)) in rules.iter().enumerate() {
        drop(set.add(rule, &RuleSource { scope: *scope, place: at.to_string() }, &variables));
    }
    set
}

/// A call of some tool with some of the acts, the first its own and the others as they are told.
fn some_call(
    tool: &'static str,
    acts: &[(EffectKind, Act<'static>)],
    standings: &[EffectStanding],
) -> JudgedCall<'static> {
    let standing = |at: usize| if at == 0 { EffectStanding::Own } else { standings[at % standings.len()] };
    let effects = acts.iter().enumerate().map(|(at, (kind, act))| {
        let mut one = call(tool, *kind, vec![act.clone()]).effects.swap_remove(0);
        one.standing = standing(at);
        one
    });
    JudgedCall {
        tool,
        effects: effects.collect(),
        reach: vec![Capability::FsRead, Capability::NetFetch],
        ..JudgedCall::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// S0-51: no rule is accepted that no call can ever match.
    #[test]
    fn no_rule_is_accepted_that_cannot_match(rule in any_rule()) {
        let alone = accepted(std::slice::from_ref(&rule), Mode::Ask);
        prop_assume!(!alone.is_empty());
        let tools = ["bash", "sqlite", "todo", "deploy", "mcp:s:t"];
        // What a pattern matches is found by putting a letter for its stars.
        let text = rule.0.pattern.as_deref().unwrap_or("x").replace("**", "x").replace('*', "x");
        let file = HostPath::from(format!("/w/{}", text.trim_start_matches("/w/")));
        let value = text.strip_prefix("path=").unwrap_or(&text);
        let arguments = serde_json::json!({ "path": value });
        let request = ServedRequest { tool: String::new(), arguments, key: None, words: None };
        let of_pattern = [
            (EffectKind::Serves, Act::Request(&request)),
            (EffectKind::Shows, Act::File(&file)),
            (EffectKind::Lists, Act::File(&file)),
            (EffectKind::Writes, Act::File(&file)),
            (EffectKind::Runs, Act::Command(CommandPart::of_text(&text))),
            (EffectKind::Queries, Act::Command(CommandPart::of_statement(&text))),
            (EffectKind::Connects, Act::Host(&text, 443)),
            (EffectKind::Searches, Act::Host(&text, 443)),
            (EffectKind::Delegates, Act::Agent(AgentPart { agent: &text, what: AgentMatter::Prompt("".into()) })),
        ];
        let matches = some_acts().iter().chain(&of_pattern).any(|(kind, act)| tools.iter().any(|tool| {
            let decision = judge(&alone, &call(tool, *kind, vec![act.clone()]));
            matches!(decision.by, DecidedBy::Rule(_))
        }));
        // A command in another directory is none of these acts.
        let is_elsewhere = rule.0.pattern.as_deref().is_some_and(|pattern| pattern.starts_with("cd "));
        prop_assert!(matches || is_elsewhere, "{:?}", rule.0);
    }

    /// S0-54, S0-55: a rule that is added and denies or asks lets nothing pass that did not, whatever the mode.
    #[test]
    fn a_rule_that_tightens_lets_nothing_more_pass(
        rules in prop::collection::vec(any_rule(), 0..8),
        tightens in any_rule().prop_filter("it tightens", |(rule, _)| rule.action != Action::Allow),
        picked in prop::collection::vec(0..40_usize, 1..4),
        standings in prop::collection::vec(prop::sample::select(&[EffectStanding::Own, EffectStanding::Implied][..]), 1..3),
        mode in prop::sample::select(&[Mode::Ask, Mode::AutoEdit, Mode::Yolo][..]),
    ) {
        let acts = some_acts();
        let acts: Vec<_> = picked.iter().map(|at| acts[at % acts.len()].clone()).collect();
        for tool in ["bash", "sqlite", "deploy", "mcp:s:t"] {
            let call = some_call(tool, &acts, &standings);
            let before = judge(&accepted(&rules, mode), &call).action;
            let with: Vec<_> = rules.iter().cloned().chain([tightens.clone()]).collect();
            let after = judge(&accepted(&with, mode), &call).action;
            prop_assert!(after != Action::Allow || before == Action::Allow, "{tool}: {before:?} became {after:?}");
        }
    }

    /// X0-25, S0-56: a subagent's rules let nothing pass that its parent's do not, whatever its own say.
    #[test]
    fn x0_25_a_child_never_gets_more(
        rules in prop::collection::vec(any_rule(), 0..8),
        own in prop::collection::vec(any_rule().prop_filter("it tightens", |(rule, _)| rule.action != Action::Allow), 0..3),
        picked in prop::collection::vec(0..40_usize, 1..4),
        mode in prop::sample::select(&[Mode::Ask, Mode::AutoEdit, Mode::Yolo][..]),
    ) {
        let parent = accepted(&rules, mode);
        let mut child = parent.inherited();
        let variables = Variables::new(vec!["/w".into()], vec![], vec![]).unwrap();
        for (rule, scope) in &own {
            drop(child.add(rule, &RuleSource { scope: *scope, place: "child".to_owned() }, &variables));
        }
        let acts = some_acts();
        let acts: Vec<_> = picked.iter().map(|at| acts[at % acts.len()].clone()).collect();
        for tool in ["bash", "sqlite", "deploy", "mcp:s:t"] {
            let call = some_call(tool, &acts, &[EffectStanding::Own]);
            let (of_child, of_parent) = (judge(&child, &call).action, judge(&parent, &call).action);
            prop_assert!(of_child >= of_parent.min(Action::Ask), "{tool}: {of_child:?} of a child, {of_parent:?}");
            prop_assert!(of_parent != Action::Deny || of_child != Action::Allow);
        }
    }
}
