//! S4's profiles as they are written, and what they come to.
#![allow(clippy::unwrap_used, reason = "a failing test may stop")]

use super::*;
use crate::effect::EffectKind;
use crate::rules::testing::{call, judge, runs};
use crate::rules::{Act, Action, CommandPart, DecidedBy, Decision, RuleScope, RuleSet, RuleSource};
use crate::variable::Variables;

/// Subject of a tool; one that nobody knows may do anything.
fn subject(tool: &str) -> Subject {
    Subject::of_locked(tool).unwrap_or_default()
}

/// Kind of a tool's effect; one that nobody knows has somebody do something.
fn about(tool: &str) -> EffectKind {
    match tool {
        "read" | "grep" => EffectKind::Shows,
        "glob" => EffectKind::Lists,
        "write" | "edit" => EffectKind::Writes,
        "bash" => EffectKind::Runs,
        "web_fetch" => EffectKind::Connects,
        "web_search" => EffectKind::Searches,
        "task" => EffectKind::Delegates,
        "sqlite" | "postgres" | "mysql" | "oracle" | "vertica" => EffectKind::Queries,
        "todo" | "skill" | "tool_search" => EffectKind::Notes,
        "question" => EffectKind::Asks,
        _ => EffectKind::Serves,
    }
}

fn parse(text: &str) -> Profile {
    Profile::parse(text, "p.yaml").unwrap_or_else(|error| unreachable(&error.to_string()))
}

#[track_caller]
fn unreachable(why: &str) -> Profile {
    assert!(why.is_empty(), "{why}");
    Profile::default()
}

/// The rules that a session makes of a profile, where nobody names a mode.
fn rules(profile: &Profile) -> RuleSet {
    let variables = Variables::new(vec!["/w".into()], vec![], vec![]).unwrap();
    let mut rules = RuleSet::default();
    rules.silent = profile.silent();
    for Placed { value, place } in &profile.approval {
        let source = RuleSource { scope: RuleScope::Manifest, place: place.clone() };
        match value {
            Clause::Rule(rule) => rules.add(rule, &source, &variables).unwrap(),
            Clause::Rest => {
                let rest = Rule::new("*", Action::Allow);
                rules.add(&rest, &source, &variables).unwrap();
            }
            Clause::Phrase(text) => rules.add_phrase(text, &source),
        }
    }
    rules
}

fn command(profile: &Profile, text: &str) -> Decision {
    judge(&rules(profile), &runs("bash", vec![Act::Command(CommandPart::of_text(text))]))
}

fn tool(profile: &Profile, tool: &str) -> Decision {
    judge(&rules(profile), &call(tool, about(tool), vec![Act::Nothing]))
}

fn place(decision: &Decision) -> String {
    match &decision.by {
        DecidedBy::Rule(told) => told.source.place.clone(),
        DecidedBy::Mode { .. }
        | DecidedBy::Approval { .. }
        | DecidedBy::Profile
        | DecidedBy::Neutral
        | DecidedBy::Tool
        | DecidedBy::Default => "no rule".to_owned(),
    }
}

const WHOLE: &str = "\
# A comment.
profile: mine
description: \"What it is for\"
shell:
  mode: unrestricted
file_write:
  mode: create-only
database:
  mode: mutations
approval:
  mode: granular
  required_tools: [write, oracle]
  dangerous_patterns:
    - rm -rf
    - 'git push'
shell_timeout: 30
shell_working_dir: sub
bash_only: false
";

/// X4-2: every key is read.
#[test]
fn x4_2_every_key_is_read() {
    let profile = parse(WHOLE);
    assert_eq!((profile.name.as_str(), profile.description.as_deref()), ("mine", Some("What it is for")));
    assert_eq!((profile.shell, profile.file_write), (Shell::Unrestricted, FileWrite::CreateOnly));
    assert_eq!((profile.database, profile.bash_only), (Database::Mutations, false));
    assert_eq!(profile.shell_timeout, Some(Duration::from_secs(30)));
    assert_eq!(profile.shell_working_dir, Some(Placed { value: "sub".into(), place: "p.yaml:17".into() }));
    let places: Vec<&str> = profile.approval.iter().map(|clause| clause.place.as_str()).collect();
    assert_eq!(places, ["p.yaml:11", "p.yaml:12", "p.yaml:12", "p.yaml:14", "p.yaml:15"]);
}

/// X4-2: what is left out is as S4 has it, and S4's short and long ways to write a mode are the same.
#[test]
fn x4_2_what_is_left_out_is_s4_s_own() {
    let profile = parse("profile: x\n");
    assert_eq!((profile.shell, profile.file_write), (Shell::Restricted, FileWrite::Off));
    assert_eq!((profile.database, profile.shell_timeout), (Database::Readonly, Some(Duration::from_secs(120))));
    assert_eq!(
        profile.approval,
        parse("profile: x\napproval: {}\n")
            .approval
            .iter()
            .map(|clause| { Placed { place: "p.yaml:1".into(), ..clause.clone() } })
            .collect::<Vec<_>>()
    );
    assert_eq!(parse("description: no name\n").name, "custom");
    assert_eq!(parse("name: other\n").name, "other");
    assert_eq!(parse("shell: unrestricted\n").shell, Shell::Unrestricted);
    assert_eq!(parse("file_write: create-only\n").file_write, FileWrite::CreateOnly);
    assert_eq!(parse("database: mutations\n").database, Database::Mutations);
    assert_eq!(parse("shell_working_dir: null\n").shell_working_dir, None);
    assert!(parse("bash_only: yes\n").bash_only);
    assert_eq!(parse("\u{feff}profile: marked\r\nshell: unrestricted\r\n").shell, Shell::Unrestricted);
    let anchors = "approval: {mode: granular, required_tools: &tools [bash], dangerous_patterns: *tools}\n";
    assert_eq!(parse(anchors).approval.len(), 3);
}

/// The reference shows the values that hold if nothing is said.
#[test]
fn x4_2_the_reference_shows_what_is_left_out() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/manifest.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (example, _) = text.split_once("```yaml\n").unwrap().1.split_once("```").unwrap();
    let nothing = parse("profile: custom\n");
    let shown = parse(example);
    let unplaced = |profile: &Profile| profile.approval.iter().map(|clause| clause.value.clone()).collect::<Vec<_>>();
    assert_eq!(unplaced(&shown), unplaced(&nothing));
    assert_eq!(Profile { description: None, approval: nothing.approval.clone(), ..shown }, nothing);
}

/// X4-2: `off` without quotes is a boolean to YAML; it is off all the same, and nothing else that is a boolean is a mode.
#[test]
fn x4_2_off_is_off_with_and_without_quotes() {
    for off in ["off", "Off", "OFF", "'off'", "\"off\"", "false"] {
        for text in [format!("file_write:\n  mode: {off}\n"), format!("file_write: {off}\n")] {
            assert_eq!(parse(&text).file_write, FileWrite::Off, "{text}");
        }
    }
    for not in ["on", "true", "full-ish", "0", "~"] {
        assert!(Profile::parse(&format!("file_write:\n  mode: {not}\n"), "p.yaml").is_err(), "{not}");
    }
}

/// X4-1: S4's own files, as it ships them.
#[test]
fn x4_1_s4_s_own_files_are_read() {
    let readonly = "profile: readonly\ndescription: \"Read-only research profile with restricted shell\"\nshell:\n  mode: \
                    restricted  # (cat, grep, find, etc.)\nfile_write:\n  mode: off  # none\ndatabase:\n  mode: \
                    readonly\napproval:\n  mode: dangerous\n";
    let profile = parse(readonly);
    assert_eq!((profile.shell, profile.file_write), (Shell::Restricted, FileWrite::Off));
    assert!(
        !profile.may_write()
            && !profile.offers(subject("write"))
            && !profile.offers(subject("edit"))
            && profile.offers(subject("bash"))
    );
    let bash_only = parse(
        "profile: developer-bash-only\nshell:\n  mode: unrestricted\nfile_write:\n  mode: off\ndatabase:\n  mode: \
         readonly\napproval:\n  mode: dangerous\nshell_timeout: 300\nbash_only: true\n",
    );
    let offered: Vec<&str> = ["read", "write", "edit", "glob", "grep", "bash", "other"]
        .into_iter()
        .filter(|t| bash_only.offers(subject(t)))
        .collect();
    assert_eq!(offered, ["bash"]);
    assert!(bash_only.may_write(), "what an unrestricted shell is for");
    let built_in = Profile::built_in("developer-bash-only").unwrap();
    assert_eq!((built_in.shell, built_in.file_write, built_in.bash_only), (Shell::Unrestricted, FileWrite::Off, true));
    let unrestricted = parse(
        "profile: unrestricted\nshell:\n  mode: unrestricted\nfile_write:\n  mode: full\ndatabase:\n  mode: \
         mutations\napproval:\n  mode: none\nshell_timeout: 300\nshell_working_dir: /app\n",
    );
    assert!(unrestricted.offers(subject("edit")) && unrestricted.offers(subject("anything")));
    let said = unrestricted.working_dir(&["/w".into()]).unwrap_err().to_string();
    assert_eq!(said, "p.yaml:11: shell_working_dir /app is not in the workspace /w");
    assert_eq!(unrestricted.working_dir(&["/app".into()]), Ok(Some("/app".into())));
    for name in Profile::NAMES {
        assert_eq!(Profile::built_in(name).unwrap().name, name);
    }
}

/// S4-13, C-14: which of the tools that change files are there.
#[test]
fn s4_13_which_tools_change_files() {
    for (mode, write, edit) in [("off", false, false), ("create-only", true, false), ("full", true, true)] {
        let profile = parse(&format!("file_write:\n  mode: {mode}\n"));
        assert_eq!((profile.offers(subject("write")), profile.offers(subject("edit"))), (write, edit), "{mode}");
        for reads in ["read", "glob", "grep"] {
            assert!(profile.offers(subject(reads)), "{mode}");
        }
    }
}

/// X4-4: the second level. Were the tool there all the same, the call would be refused.
#[test]
fn x4_4_a_profile_refuses_besides_not_offering() {
    let profile = |mode| parse(&format!("file_write: {mode}\n"));
    for how in [WriteKind::Create, WriteKind::Write, WriteKind::Replace] {
        let writes = writes("/w/new", how);
        assert!(profile("off").refuses(&writes).unwrap().contains("lets no tool write /w/new"));
        assert_eq!(profile("full").refuses(&writes), None);
        assert_eq!(profile("create-only").refuses(&writes).is_none(), how == WriteKind::Create);
    }
    assert_eq!(profile("off").refuses(&Effects::default()), None, "it writes nothing");
}

fn writes(path: &str, how: WriteKind) -> Effects {
    Effects::of(Effect::Writes { path: path.into(), how })
}

/// S4-14, X4-13: no sensitive place, however the letters are written; what only looks like one is none.
#[test]
fn s4_14_sensitive_places_are_closed_to_new_files() {
    let profile = parse("file_write: create-only\n");
    for path in [
        "/w/.bashrc",
        "/w/.ssh/id",
        "/w/.aws/credentials",
        "/etc/x",
        "/usr/lib/x",
        "/bin/x",
        "/sbin/x",
        "/w/.config/x",
        "/w/.gnupg/x",
        "/w/a/.profile",
        "/w/.BashRC",
        "/w/.Ssh/x",
        "/w/.zshrc/x",
        "/w/.bash_profile",
        "/etc",
    ] {
        assert!(profile.refuses(&writes(path, WriteKind::Create)).unwrap().contains(path), "{path}");
    }
    for path in ["/w/bashrc", "/w/x.bashrc", "/w/ssh/x", "/w/etc/x", "/etcetera/x", "/w/usr/x", "/w/.configs"] {
        assert_eq!(profile.refuses(&writes(path, WriteKind::Create)), None, "{path}");
    }
}

/// C-7, X4-3: each approval mode as rules, and the place of the one that decided.
#[test]
fn x4_3_approval_modes_are_rules() {
    let profile = |approval: &str| parse(&format!("shell: unrestricted\napproval:\n{approval}"));
    let none = profile("  mode: none\n");
    for name in ["bash", "write", "edit", "read", "sqlite"] {
        assert_eq!(tool(&none, name).action, Action::Allow, "{name}");
    }
    assert_eq!(place(&command(&none, "rm -rf x")), "p.yaml:3");
    let all = profile("  mode: all\n");
    for name in ["bash", "write", "read", "grep"] {
        let decision = tool(&all, name);
        assert_eq!((decision.action, place(&decision).as_str()), (Action::Ask, "p.yaml:3"), "{name}");
    }
    let dangerous = profile("  mode: dangerous\n");
    for name in DANGEROUS_TOOLS {
        assert_eq!(tool(&dangerous, name).action, Action::Ask, "{name}");
    }
    for name in ["read", "glob", "grep", "list"] {
        assert_eq!(tool(&dangerous, name).action, Action::Allow, "{name}");
    }
    let granular = profile("  mode: granular\n  required_tools:\n    - read\n    - write\n");
    assert_eq!((tool(&granular, "read").action, place(&tool(&granular, "read")).as_str()), (Action::Ask, "p.yaml:5"));
    assert_eq!((tool(&granular, "write").action, place(&tool(&granular, "write")).as_str()), (Action::Ask, "p.yaml:6"));
    assert_eq!(tool(&granular, "edit").action, Action::Ask, "it writes files as well");
    for name in ["bash", "glob"] {
        assert_eq!(tool(&granular, name).action, Action::Allow, "{name}");
    }
    assert_eq!(command(&granular, "rm -rf x").action, Action::Allow, "no pattern is said");
    let more = profile("  mode: dangerous\n  required_tools: [read]\n");
    assert_eq!(tool(&more, "read").action, Action::Ask, "what is said is asked about besides");
    assert_eq!(tool(&more, "write").action, Action::Ask);
}

/// X4-3: dangerous texts are found in any command, in capitals or not, across blanks, and behind what is not known; the
/// decision names the text.
#[test]
fn x4_3_dangerous_texts_are_asked_about() {
    let own: Vec<String> = DANGEROUS_PATTERNS.iter().map(|text| format!("    - {text:?}\n")).collect();
    let profile =
        parse(&format!("approval:\n  mode: granular\n  required_tools: []\n  dangerous_patterns:\n{}", own.concat()));
    for text in [
        "rm -rf build",
        "rm -r build",
        "sudo rm -rf /",
        "RM -RF x",
        "rm -R x",
        "sqlite3 db drop table t",
        "psql -c DROP DATABASE x",
        "truncate -s 0 f",
        "psql -c delete from t",
        "> /dev/sda",
        "mkfs.ext4 /dev/sda",
        "dd if=/dev/zero of=x",
        "\0",
        "rm \0",
    ] {
        assert_eq!(command(&profile, text).action, Action::Ask, "{text:?}");
    }
    for text in ["rm x", "ls -r", "echo mk fs", "git drop", "dd of=x"] {
        assert_eq!(command(&profile, text).action, Action::Allow, "{text:?}");
    }
    let decision = command(&profile, "rm -rf build");
    assert_eq!(decision.to_string(), "the rule ask bash \"*rm -r*\" (p.yaml:6), for `rm -rf build`");
    let rules = rules(&profile);
    assert!(rules.looks_at_commands("bash"));
    let bomb = ":(){ :|:& };:";
    let across = |line: &str, parts: &[&str]| {
        let parts: Vec<CommandPart> = parts.iter().map(|part| CommandPart::of_text(part)).collect();
        rules.has_phrase_across(&CommandPart::of_text(line), &parts)
    };
    assert!(across(bomb, &[":", ":"]), "no command of it has the text");
    assert!(!across("rm -rf x", &["rm -rf x"]), "its command has it");
    assert!(!across("ls; ls", &["ls", "ls"]));
    let unknown = runs("bash", vec![Act::UnknownCommand]);
    assert_eq!(judge(&rules, &unknown).action, Action::Ask, "what cannot be taken apart slips past nothing");
}

/// X4-2: every mistake is told at its line, with the key or the value that is one.
#[test]
fn x4_2_mistakes_are_told_at_their_line() {
    for (text, line, said) in [
        ("", 1, "the profile is empty"),
        ("# only a comment\n", 1, ""),
        ("profile: x\nshel:\n  mode: restricted\n", 2, "a profile has no key \"shel\""),
        ("profile: x\nshell:\n  mod: restricted\n", 3, "shell has no key \"mod\""),
        ("profile: x\nshell:\n  mode: open\n", 3, "\"open\" is not one of restricted, unrestricted"),
        ("profile: x\nshell: {}\n", 2, "shell has no `mode`"),
        ("file_write:\n  mode: append\n", 2, "\"append\" is not one of off, create-only, full"),
        ("database: write\n", 1, "\"write\" is not one of readonly, mutations"),
        ("approval:\n  mode: some\n", 2, "\"some\" is not one of all, dangerous, granular, none"),
        ("approval:\n  mode: granular\n  required_tools: bash\n", 3, "a list is needed here, not a string"),
        ("approval:\n  required_tools: [bash, fs.read]\n", 2, "\"fs.read\" is not the name of a tool"),
        ("approval:\n  required_tools: ['*']\n", 2, "\"*\" is not the name of a tool"),
        ("approval:\n  dangerous_patterns: ['']\n", 2, "the string is empty"),
        ("profile: x\nshell_timeout: 0\n", 2, "the limit must be above zero"),
        ("profile: x\nshell_timeout: -1\n", 2, "the limit must be above zero"),
        ("profile: x\nshell_timeout: 1.5\n", 2, "an integer is needed here, not a fraction"),
        ("profile: x\nshell_timeout: 1000000\n", 2, "at most 86400 seconds"),
        ("profile: x\nshell_timeout: 99999999999999999999\n", 2, ""),
        ("profile: x\nbash_only: 1\n", 2, "a boolean is needed here"),
        ("profile: [x]\n", 1, "a string is needed here, not an array"),
        ("profile: x\nprofile: y\n", 2, "duplicate"),
        ("profile: x\nshell:\n  mode: restricted\n  mode: unrestricted\n", 4, "duplicate"),
        ("- profile\n", 1, "a profile is a table of keys, not an array"),
        ("just text\n", 1, "a profile is a table of keys, not a string"),
        ("profile: x\n---\nprofile: y\n", 2, ""),
        ("profile: x\n\tshell: y\n", 1, "found a tab"),
        ("profile: 'x\n", 1, ""),
        ("profile: *nowhere\n", 1, ""),
        ("base: &b {mode: restricted}\n", 1, "a profile has no key \"base\""),
        ("shell:\n  <<: {mode: unrestricted}\n", 2, ""),
        ("profile: !!binary aGk=\nshell: !x restricted\nx: 1\n", 3, ""),
    ] {
        let error = Profile::parse(text, "p.yaml").expect_err(text);
        let shown = error.to_string();
        assert!(error.message().contains(said), "{text:?}: {shown}");
        assert!(shown.contains(&format!("p.yaml:{line}")), "{text:?} is not at line {line}: {shown}");
    }
}

/// A text that is made to be large is refused before it is.
#[test]
fn x4_2_what_is_made_to_be_large_is_refused() {
    let refused = |text: &str| {
        let error = Profile::parse(text, "p.yaml").expect_err("it is refused");
        assert!(error.to_string().len() < 4_000, "{}", error.message().len());
        error.message().to_owned()
    };
    assert_eq!(refused(&format!("profile: {}", "x".repeat(MAX_BYTES))), "the profile is larger than 64 KiB");
    for depth in [20, 1_000, 30_000] {
        refused(&format!("profile: {}{}", "[".repeat(depth), "]".repeat(depth)));
        refused(&format!("profile: {}", "{a: ".repeat(depth)));
        refused(&format!(
            "profile:\n{}",
            (1..depth.min(300)).map(|n| format!("{}-\n", " ".repeat(n))).collect::<String>()
        ));
    }
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..12 {
        let ten = vec![format!("*a{}", n - 1); 10].join(", ");
        bomb.push_str(&format!("a{n}: &a{n} [{ten}]\n"));
    }
    refused(&bomb);
    refused("description: &a\n  x: *a\n");
    refused(&format!("profile: x\n{}", "? a\n".repeat(10_000)));
}
