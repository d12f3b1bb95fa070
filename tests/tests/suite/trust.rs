//! A project's own manifest has no effect until its owner trusts what it says now (X1-35, E1); what people approve of is kept
//! for a project only under such a manifest (S1-18, X1-5).

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use callgate_tests::{Binaries, Host, ProgramOutcome, ProgramRunner, Target, TestEnv, User, UserShell, matrix};
use serde_json::{Value, json};

/// Where the host's strength makes no difference.
const HERE: Target = Target { host: Host::Namespaces, user: User::Ordinary };

/// A directory outside the workspace, and beside the user's own things.
fn granted(env: &TestEnv) -> PathBuf {
    let directory = env.outside().join("granted");
    if !directory.exists() {
        fs::create_dir(&directory).unwrap();
        env.give(&directory);
    }
    directory
}

/// A manifest that grants what the defaults do not: a directory outside the workspace.
fn greedy(env: &TestEnv) -> String {
    format!(
        "[[requires.shell]]\ncmd = \"*\"\n[requires.fs]\nread = [\"{{workspace}}/**\"]\nwrite = [\"{}/**\"]\n",
        granted(env).display()
    )
}

/// The user's own commands: their home is outside, in a directory that is theirs.
fn user(env: &TestEnv) -> ProgramRunner {
    env.weakened().variable("HOME", &env.outside().display().to_string())
}

fn callgate(env: &TestEnv, words: &[&str]) -> ProgramOutcome {
    let binary = Binaries::of_this_build().callgate().display().to_string();
    user(env).run(&[&[binary.as_str()], words].concat())
}

/// `callgate run` of a program that writes outside; whether it could, and what was said.
fn reaches_out(env: &TestEnv) -> (bool, String) {
    let target = granted(env).join("reached");
    let ended = callgate(env, &["run", "--", "sh", "-c", &format!("echo reached > {}", target.display())]);
    let reached = target.exists();
    assert_eq!(ended.status.success(), reached, "{ended:?}");
    if reached {
        fs::remove_file(&target).unwrap();
    } else {
        // Without namespaces the name is there and closed; with them it is nowhere.
        assert!(ended.stderr.contains("Permission denied") || ended.stderr.contains("nonexistent"), "{ended:?}");
    }
    (reached, ended.stderr)
}

#[track_caller]
fn assert_held(env: &TestEnv, notice: &str) {
    let (reached, said) = reaches_out(env);
    assert!(!reached, "{said}");
    assert!(said.contains(notice) && said.contains("callgate trust"), "{said}");
}

/// Asserts that what was trusted is another: nothing runs, with or without it.
#[track_caller]
fn assert_refused(env: &TestEnv, why: &str) {
    let ran = env.workspace().join("ran");
    for words in [&["run", "--", "touch", "ran"][..], &["call", "bash", "{\"command\": \"touch ran\"}"]] {
        let ended = callgate(env, words);
        assert_eq!(ended.status.code(), Some(65), "{ended:?}");
        assert!(!ran.exists(), "{ended:?}");
        assert!(ended.stderr.contains(why) && ended.stderr.contains("since it was trusted"), "{why}: {ended:?}");
        assert!(ended.stderr.contains("callgate trust") && ended.stderr.contains("--revoke"), "{ended:?}");
    }
}

#[track_caller]
fn assert_reached(env: &TestEnv) {
    let (reached, said) = reaches_out(env);
    assert!(reached && said.is_empty(), "{said}");
}

#[track_caller]
fn assert_said(ended: &ProgramOutcome, code: i32, words: &str) {
    assert_eq!(ended.status.code(), Some(code), "{ended:?}");
    assert!(ended.stderr.contains(words) || ended.stdout.contains(words), "{words:?}: {ended:?}");
}

/// X1-35, E1: before trust it widens nothing and a notice says so; then it counts, until one byte of it is another; and what was
/// trusted is trusted again when it is back.
#[test]
fn e1_x1_35_a_manifest_counts_when_it_is_trusted_and_as_long_as_it_is_the_same() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let dir = env.workspace().display().to_string();
        // Without one the defaults are in force and nothing is said.
        let (reached, said) = reaches_out(&env);
        assert!(!reached && !said.contains("trust"), "{said}");
        let greedy = greedy(&env);
        env.workspace_file("callgate.toml", &greedy);
        assert_held(&env, "is not trusted");
        assert!(!env.outside().join(".callgate").exists(), "looking makes nothing");
        let given = callgate(&env, &["trust", &dir]);
        assert_said(&given, 0, "write");
        assert!(
            given.stdout.contains(&format!("{}/**", granted(&env).display())),
            "it says what it asks for: {given:?}"
        );
        assert_reached(&env);
        env.workspace_file("callgate.toml", &format!("{greedy}#"));
        assert_refused(&env, "callgate.toml has changed");
        env.workspace_file("callgate.toml", &greedy);
        assert_reached(&env);
        assert_said(&callgate(&env, &["trust", "--revoke", &dir]), 0, "no longer trusted");
        assert_held(&env, "is not trusted");
        assert_said(&callgate(&env, &["trust", "--revoke", &dir]), 0, "was not trusted");
    });
}

/// E1, X1-35: who trusts a manifest is shown each of its keys.
#[test]
fn e1_x1_35_every_key_of_a_trusted_manifest_is_shown() {
    matrix(&[Host::NoNamespaces], |target| {
        let env = TestEnv::new(target);
        let text = "id = \"every-key\"\nmode = \"allowlist\"\nallowlist = [\"bash:git *\"]\nheadless = \"halt\"\n\
            approvals = \"project\"\nwatch_execs = true\nprofile = \"eval\"\ntools = [\"read\", \"bash\"]\n\
            [requires.fs]\nread = [\"in/**\"]\nwrite = [\"out/**\"]\nexact = true\n\
            [requires.net]\nhosts = [\"example.org\"]\n[[requires.shell]]\ncmd = \"make\"\n\
            [ceiling]\ncapabilities = [\"stream.send\"]\n[ceiling.fs]\nread = [\"most/**\"]\nwrite = []\n\
            [ceiling.net]\nhosts = [\"*.example.org\"]\n[[ceiling.shell]]\ncmd = \"sh\"\n\
            [[rules]]\npermission = \"bash\"\naction = \"deny\"\n\
            [limits]\nwall = \"7s\"\ncpu = \"6s\"\nmemory = \"5MiB\"\nprocesses = 41\nopen_files = 42\n\
            file_size = \"3MiB\"\ndisk = \"2MiB\"\noutput = \"1MiB\"\nnetwork = \"4MiB\"\n\
             session_network = \"5MiB\"\nnetwork_rate = \"6MiB\"\n[env]\npass = [\"LANG\"]\nset = { A = \"b\" }\n\
            [mcp.git]\ncommand = [\"mcp-server-git\", \"-r\"]\ndata = [\"-r\"]\ntrusted = true\nrequires.fs.read = [\"in/**\"]\n\
            env.set = { B = \"c\" }\ntools = [\"log\"]\ntimeout = \"9s\"\n";
        env.workspace_file("callgate.toml", text);
        let shown = callgate(&env, &["trust", &env.workspace().display().to_string()]);
        assert_eq!(shown.status.code(), Some(0), "{shown:?}");
        let lines: Vec<String> =
            shown.stdout.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let wanted = [
            "id every-key",
            "read in/**",
            "write out/**",
            "exact true",
            "net example.org",
            "shell make",
            "at most read most/**",
            "at most write nothing",
            "at most net *.example.org",
            "at most shell sh",
            "at most capability stream.send",
            "profile eval",
            "tools read, bash",
            "mode allowlist",
            "allowlist bash:git *",
            "headless halt",
            "approvals project",
            "watch_execs true",
            "rule deny bash",
            "limit wall=7s",
            "limit cpu=6s",
            "limit memory=5MiB",
            "limit processes=41",
            "limit open_files=42",
            "limit file_size=3MiB",
            "limit disk=2MiB",
            "limit output=1MiB",
            "limit network=4MiB",
            "limit session_network=5MiB",
            "limit network_rate=6MiB",
            "env LANG",
            "env A=b",
            r#"mcp git: command ["mcp-server-git","-r"]"#,
            "mcp git: data -r",
            "mcp git: trusted true",
            "mcp git: tools log",
            "mcp git: read in/**",
            "mcp git: env B=c",
            "mcp git: timeout 9s",
        ];
        let (lines, rest) = lines.split_at(wanted.len());
        assert_eq!(lines, wanted, "{shown:?}");
        let caution = &rest[0];
        assert!(caution.starts_with("Hosts: ") && caution.contains("to anybody"), "F16: {shown:?}");
    });
}

/// E1, X4-2: a profile in a file is a part of what is trusted.
#[test]
fn e1_a_profile_is_trusted_with_its_manifest() {
    let env = TestEnv::new(HERE);
    let profile = "profile: mine\nshell:\n  mode: unrestricted\nfile_write:\n  mode: full\n";
    env.workspace_file("mine.yaml", profile);
    env.workspace_file("callgate.toml", &format!("profile = \"./mine.yaml\"\n{}", greedy(&env)));
    assert_held(&env, "is not trusted");
    assert_said(&callgate(&env, &["trust", "."]), 0, "is trusted");
    assert_reached(&env);
    env.workspace_file("mine.yaml", &format!("{profile}#"));
    assert_refused(&env, "mine.yaml has changed");
    fs::remove_file(env.workspace().join("mine.yaml")).unwrap();
    assert_refused(&env, "mine.yaml has changed, or cannot be read");
    assert_said(&callgate(&env, &["trust", "."]), 65, "mine.yaml");
    env.workspace_file("mine.yaml", profile);
    assert_reached(&env);
}

/// E1: what was trusted may have granted less than the defaults do. So when it changes, goes or is replaced, nothing runs until
/// somebody has looked; trust that is taken back is another thing.
#[test]
fn e1_a_changed_manifest_does_not_fall_back_to_wider_defaults() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let dir = env.workspace().display().to_string();
        let theirs = env.workspace_file("theirs", "old");
        let narrow = "[requires.fs]\nread = [\"{workspace}/**\"]\n[[requires.shell]]\ncmd = \"*\"\n";
        let file = env.workspace_file("callgate.toml", narrow);
        let write = || callgate(&env, &["run", "--", "sh", "-c", "echo new > theirs"]);
        assert_said(&callgate(&env, &["trust", &dir]), 0, "is trusted");
        assert!(!write().status.success());
        theirs.assert_contents("old");
        let cases: [(&str, &dyn Fn()); 4] = [
            ("has changed", &|| drop(env.workspace_file("callgate.toml", &format!("{narrow}#")))),
            ("has gone", &|| fs::remove_file(&file).unwrap()),
            ("has changed", &|| {
                fs::remove_file(&file).unwrap();
                symlink("theirs", &file).unwrap();
            }),
            ("callgate.json has changed", &|| {
                fs::remove_file(&file).unwrap();
                env.workspace_file("callgate.json", "{\"id\": \"x\"}");
            }),
        ];
        for (why, change) in cases {
            change();
            assert_refused(&env, why);
            let ended = write();
            assert_eq!(ended.status.code(), Some(65), "{ended:?}");
            theirs.assert_contents("old");
            for name in ["callgate.toml", "callgate.json"] {
                let path = env.workspace().join(name);
                if path.symlink_metadata().is_ok() {
                    fs::remove_file(path).unwrap();
                }
            }
            env.workspace_file("callgate.toml", narrow);
        }
        assert!(!write().status.success(), "it is trusted as it was");
        fs::remove_file(&file).unwrap();
        assert_said(&callgate(&env, &["trust", "--revoke", &dir]), 0, "no longer trusted");
        assert!(write().status.success(), "the control: the defaults let it");
        theirs.assert_contents("new\n");
    });
}

/// X1-35: for once is for one session; the list is the user's alone, and says what is in it.
#[test]
fn x1_35_trust_for_once_is_used_up() {
    let env = TestEnv::new(HERE);
    env.workspace_file("callgate.json", &json!({
        "requires": { "shell": [{ "cmd": "*" }], "fs": { "read": ["{workspace}/**"], "write": [format!("{}/**", granted(&env).display())] },
    } }).to_string());
    let dir = env.workspace().display().to_string();
    assert_said(&callgate(&env, &["trust", "--once", &dir]), 0, "for the next session");
    let listed = callgate(&env, &["trust", "--list", "--json"]);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(listed[0]["canonicalPath"], json!(dir), "{listed}");
    assert_eq!(listed[0]["decision"], "once");
    assert_eq!(listed[0]["files"]["callgate.json"].as_str().map(str::len), Some(64), "{listed}");
    assert_reached(&env);
    assert_held(&env, "is not trusted");
    let list = env.outside().join(".callgate/trust.json");
    assert_eq!(fs::metadata(&list).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(list.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(callgate(&env, &["trust", "--list"]).stdout, "");
}

/// X1-35: no walk upwards; the parent's manifest is the parent's, trusted or not. And a place is not a content: the same
/// manifest elsewhere is not trusted by it.
#[test]
fn x1_35_trust_is_for_one_directory() {
    let env = TestEnv::new(HERE);
    let below = env.workspace().join("below");
    fs::create_dir(&below).unwrap();
    env.give(&below);
    env.workspace_file("callgate.toml", &greedy(&env));
    assert_said(&callgate(&env, &["trust", "."]), 0, "is trusted");
    assert_reached(&env);
    let file = granted(&env).join("reached");
    let script = format!("echo reached > {}", file.display());
    let ended = callgate(&env, &["run", "-C", "below", "--", "sh", "-c", &script]);
    assert!(!ended.status.success() && !file.exists() && !ended.stderr.contains("trust"), "{ended:?}");
    env.file_at(below.join("callgate.toml"), &greedy(&env));
    let ended = callgate(&env, &["run", "-C", "below", "--", "sh", "-c", &script]);
    assert!(!ended.status.success() && !file.exists() && ended.stderr.contains("is not trusted"), "{ended:?}");
}

/// X1-35: nothing is read before there is trust, whatever lies there; after it, what cannot be read is not what was trusted.
#[test]
fn x1_35_odd_files_in_a_manifest_s_place_hold_nobody_up() {
    let env = TestEnv::new(HERE);
    let file = env.workspace().join("callgate.toml");
    let dir = env.workspace().display().to_string();
    let make = |what: &str| match what {
        "a FIFO" => assert!(env.bare().run(&["mkfifo", &file.display().to_string()]).status.success()),
        "an endless device" => symlink("/dev/zero", &file).unwrap(),
        "a link to nowhere" => symlink("nowhere", &file).unwrap(),
        _ => fs::create_dir(&file).unwrap(),
    };
    for trusted in [false, true] {
        if trusted {
            env.workspace_file("callgate.toml", &greedy(&env));
            assert_said(&callgate(&env, &["trust", &dir]), 0, "is trusted");
            fs::remove_file(&file).unwrap();
        }
        for what in ["a FIFO", "an endless device", "a link to nowhere", "a directory"] {
            make(what);
            match trusted {
                true => assert_refused(&env, "callgate.toml has changed"),
                false => assert_held(&env, "is not trusted"),
            }
            let refused = callgate(&env, &["trust", &dir]);
            assert!(!refused.status.success() && refused.stderr.contains("callgate.toml"), "{what}: {refused:?}");
            if file.is_dir() && !file.is_symlink() { fs::remove_dir(&file) } else { fs::remove_file(&file) }.unwrap();
        }
    }
    // A mistake is told by `trust`, with its line, and gives no trust.
    env.workspace_file("callgate.toml", "mode = \"loud\"\n");
    let refused = callgate(&env, &["trust", &dir]);
    assert_said(&refused, 65, "callgate.toml:1");
    assert_refused(&env, "callgate.toml has changed");
    env.workspace_file("callgate.json", "{}");
    assert_said(&callgate(&env, &["run", "--", "true"]), 65, "both callgate.toml and callgate.json");
    assert_said(&callgate(&env, &["trust", &env.outside().display().to_string()]), 64, "nothing to trust");
    assert_said(&callgate(&env, &["trust", "/nowhere"]), 64, "/nowhere");
    assert_said(&callgate(&env, &["trust"]), 64, "Usage");
}

/// A list that others can write, or that is none, is not believed; and the error says what to do.
#[test]
fn a_list_that_others_can_write_is_not_believed() {
    let env = TestEnv::new(HERE);
    let dir = env.workspace().display().to_string();
    env.workspace_file("callgate.toml", &greedy(&env));
    assert_said(&callgate(&env, &["trust", &dir]), 0, "is trusted");
    let list = env.outside().join(".callgate/trust.json");
    let believed = fs::read_to_string(&list).unwrap();
    let run = || callgate(&env, &["run", "--", "true"]);
    assert_eq!(run().status.code(), Some(0), "the control");
    for path in [&*list, list.parent().unwrap()] {
        let before = fs::metadata(path).unwrap().permissions();
        fs::set_permissions(path, fs::Permissions::from_mode(before.mode() | 0o020)).unwrap();
        assert_said(&run(), 65, "is not yours alone");
        fs::set_permissions(path, before).unwrap();
    }
    for (text, says) in [
        ("", "is not a list of trusted projects"),
        ("{\"schemaVersion\":2,\"projects\":[]}", "schemaVersion is 2"),
        (&believed.replacen("\"decision\": \"trusted\"", "\"decision\": \"yes\"", 1), "unknown variant"),
        (&believed.replacen("\"files\"", "\"file\"", 1), "unknown field"),
        (&"[".repeat(100_000), "is not a list of trusted projects"),
    ] {
        fs::write(&list, text).unwrap();
        assert_said(&run(), 65, says);
        assert_said(&callgate(&env, &["trust", &dir]), 65, says);
        assert_eq!(fs::read_to_string(&list).unwrap(), text, "what is there is not lost");
    }
    // Nor is one of ours that cannot be read an empty one.
    fs::write(&list, believed).unwrap();
    fs::set_permissions(&list, fs::Permissions::from_mode(0o000)).unwrap();
    assert_said(&run(), 65, "use the list of trusted projects");
    fs::set_permissions(&list, fs::Permissions::from_mode(0o600)).unwrap();
    assert_reached(&env);
}

/// E4: a session whose workspace is the user's home can neither trust itself nor change what is trusted.
#[test]
fn e4_a_session_cannot_change_what_is_trusted() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let home = env.workspace().display().to_string();
        let run = env.weakened().variable("HOME", &home);
        let binary = Binaries::of_this_build().callgate().display().to_string();
        let inside = |script: &str| run.run(&[&binary, "run", "--allow-home", "--", "sh", "-c", script]);
        env.workspace_file("manifest", &greedy(&env));
        for script in [
            "mkdir .callgate && echo '{}' > .callgate/trust.json",
            "mkdir d && echo '{}' > d/trust.json && mv d .callgate",
            "ln -s /tmp .callgate",
            "cp manifest callgate.toml",
            "mv manifest callgate.toml",
            "ln manifest callgate.json",
        ] {
            let ended = inside(script);
            assert!(!ended.status.success(), "{script}: {ended:?}");
            assert!(!env.workspace().join(".callgate").exists(), "{script}");
            assert!(
                ["callgate.toml", "callgate.json"].iter().all(|name| !env.workspace().join(name).exists()),
                "{script}"
            );
        }
        assert!(inside("cp manifest other.toml && mkdir e").status.success(), "the control");
        // Nor is the list there to be read, once there is one.
        env.workspace_file("callgate.toml", &fs::read_to_string(env.workspace().join("manifest")).unwrap());
        assert!(run.run(&[&binary, "trust", "."]).status.success());
        let list = env.workspace().join(".callgate/trust.json");
        let before = fs::read(&list).unwrap();
        let plain = "[[requires.shell]]\ncmd = \"*\"\n[requires.fs]\nwrite = [\"{workspace}/**\"]\n";
        env.workspace_file("plain.toml", plain);
        let inside = |script: &str| {
            run.run(&[&binary, "run", "--allow-home", "--manifest", "plain.toml", "--", "sh", "-c", script])
        };
        for script in ["echo '{}' > .callgate/trust.json", "rm -r .callgate", "mv .callgate x", "echo >> callgate.toml"]
        {
            let ended = inside(script);
            assert!(!ended.status.success(), "{script}: {ended:?}");
            assert_eq!(fs::read(&list).unwrap(), before, "{script}");
        }
        assert!(inside("echo > made").status.success(), "the control");
    });
}

/// Trust given at the same time to many projects is kept for each of them.
#[test]
fn trust_given_at_once_is_all_kept() {
    let env = TestEnv::new(HERE);
    let names: Vec<String> = (0..12).map(|n| format!("project-{n}")).collect();
    for name in &names {
        let dir = env.workspace().join(name);
        fs::create_dir(&dir).unwrap();
        env.give(&dir);
        env.file_at(dir.join("callgate.toml"), "mode = \"ask\"\n");
    }
    let binary = Binaries::of_this_build().callgate().display().to_string();
    let user = user(&env);
    let started: Vec<_> = names.iter().map(|name| user.command(&[&binary, "trust", name]).spawn().unwrap()).collect();
    for mut child in started {
        assert!(child.wait().unwrap().success());
    }
    let listed: Value = serde_json::from_str(&callgate(&env, &["trust", "--list", "--json"]).stdout).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), names.len(), "{listed}");
}

/// S1-18, X1-5, S1-17: under a trusted manifest that wants it, "always" is for later calls of the project too; under any other
/// it cannot be asked for; and it goes when the manifest changes or trust is taken back.
#[test]
fn s1_18_x1_5_always_is_kept_for_a_trusted_project() {
    let env = TestEnv::new(HERE);
    let manifest = |approvals: &str| {
        format!(
            "{approvals}\n[[requires.shell]]\ncmd = \"*\"\n[requires.fs]\nwrite = [\"{{workspace}}/**\"]\n\
             [[rules]]\npermission = \"bash\"\naction = \"ask\"\n"
        )
    };
    env.workspace_file("callgate.toml", &manifest("approvals = \"project\""));
    env.workspace_file("args", &json!({ "command": "echo ran >> made" }).to_string());
    let person = UserShell::new(&env);
    let binary = Binaries::of_this_build().callgate().display().to_string();
    let made = env.workspace().join("made");
    let runs = || fs::read_to_string(&made).map_or(0, |text| text.lines().count());
    let envelope =
        || -> Value { serde_json::from_str(&fs::read_to_string(env.workspace().join("out")).unwrap()).unwrap() };
    let call = |n: u8| format!("{binary} call bash - < args > out; echo call {n} ended $?");
    let asks = "allow? once, always, reject [reject]:";
    person.starts(&format!("{binary} trust . > /dev/null; {}", call(1)));
    person.waits_for(asks, |screen| screen.trim_end().ends_with(asks));
    person.shows_line("\"always\" allows exactly this, for this project");
    person.enters("always");
    person.shows_line("call 1 ended 0");
    assert_eq!(envelope()["metadata"]["approved_by"], "terminal");
    person.is_asked();
    person.starts(&call(2));
    person.shows_line("call 2 ended 0");
    assert_eq!((runs(), &envelope()["metadata"]["approved_by"]), (2, &json!("project")));
    // Another line is another key.
    person.is_asked();
    env.workspace_file("args", &json!({ "command": "echo ran >>made" }).to_string());
    person.starts(&call(3));
    person.waits_for(asks, |screen| screen.trim_end().ends_with(asks));
    person.enters("once");
    person.shows_line("call 3 ended 0");
    person.is_asked();
    let listed = callgate(&env, &["trust", "--list"]);
    assert!(
        listed.stdout.contains("always: bash runs in ")
            && listed.stdout.contains(": echo ran >> made\n")
            && listed.stdout.lines().count() == 2,
        "{listed:?}"
    );
    // The manifest is another: trusted again, it starts without approvals.
    env.workspace_file("args", &json!({ "command": "echo ran >> made" }).to_string());
    env.workspace_file("callgate.toml", &manifest("approvals = \"project\" # changed"));
    person.starts(&format!("{binary} trust . > /dev/null; {}", call(4)));
    person.waits_for(asks, |screen| screen.trim_end().ends_with(asks));
    person.enters("reject");
    person.shows_line("call 4 ended 77");
    assert_eq!(runs(), 3, "three times approved of");
    person.is_asked();
    // Named by hand, it is nobody's project.
    let refused = callgate(&env, &["call", "--manifest", "callgate.toml", "read", "{\"path\": \"args\"}"]);
    assert_said(&refused, 65, "whose own manifest is trusted");
    let taken = callgate(&env, &["call", "--manifest", "/dev/null", "read", "{\"path\": \"args\"}"]);
    assert_eq!(taken.status.code(), Some(65), "{taken:?}");
}

/// E9: there is no mode in which a command runs unconfined so that its grants can be learnt from it.
#[test]
fn e9_nothing_is_learnt_from_what_runs_unconfined() {
    let env = TestEnv::new(HERE);
    let target = env.outside().join("reached");
    let script = format!("echo reached > {}", target.display());
    for words in
        [&["policy", "learn", "--"][..], &["learn", "--"], &["run", "--learn", "--"], &["run", "--no-sandbox", "--"]]
    {
        let ended = callgate(&env, &[words, &["sh", "-c", &script]].concat());
        assert_eq!(ended.status.code(), Some(64), "{ended:?}");
        assert!(!target.exists(), "{words:?}");
    }
    assert!(user(&env).run(&["sh", "-c", &script]).status.success() && target.exists(), "the control");
}

/// An approval that cannot be kept is said to be none, without being asked for: the person would wonder why they are asked again.
#[test]
fn s1_18_an_approval_that_cannot_be_kept_is_told() {
    let env = TestEnv::new(HERE);
    let manifest = "approvals = \"project\"\n[[requires.shell]]\ncmd = \"*\"\n[requires.fs]\n\
                    write = [\"{workspace}/**\"]\n[[rules]]\npermission = \"bash\"\naction = \"ask\"\n";
    env.workspace_file("callgate.toml", manifest);
    env.workspace_file("args", &json!({ "command": "echo ran >> made" }).to_string());
    let person = UserShell::new(&env);
    let binary = Binaries::of_this_build().callgate().display().to_string();
    let asks = "allow? once, always, reject [reject]:";
    let close = |mode: &str| format!("chmod {mode} ~/.callgate ~/.callgate/*");
    person.starts(&format!(
        "{binary} trust . > /dev/null; {}; {binary} call bash - < args > out; echo ended $?",
        close("a-w")
    ));
    person.waits_for(asks, |screen| screen.trim_end().ends_with(asks));
    person.enters("always");
    person.shows_line("ended 0");
    person.shows("callgate: WARN an approval could not be kept for the project");
    person.is_asked();
    person.starts(&format!("{}; echo done", close("u+w")));
    person.shows_line("done");
}

/// E1, E4: a list of trusted projects that a link leads to counts only under its protected name: elsewhere a call could have written
/// it.
#[test]
fn e1_e4_no_list_is_believed_that_a_link_leads_to() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let (home, dotfiles) = (env.outside().join("home"), env.outside().join("dotfiles"));
        for directory in [&home, &dotfiles, &dotfiles.join(".callgate"), &dotfiles.join("trusted")] {
            fs::create_dir(directory).unwrap();
            fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
            env.give(directory);
        }
        env.workspace_file("callgate.toml", "id = \"x\"\n");
        let trust = || {
            let binary = Binaries::of_this_build().callgate().display().to_string();
            env.weakened().variable("HOME", home.to_str().unwrap()).run(&[&binary, "trust", "."])
        };
        std::os::unix::fs::symlink(dotfiles.join("trusted"), home.join(".callgate")).unwrap();
        let refused = trust();
        assert!(!refused.status.success() && refused.stderr.contains("not called .callgate"), "{refused:?}");
        assert_eq!(fs::read_dir(dotfiles.join("trusted")).unwrap().count(), 0);
        fs::remove_file(home.join(".callgate")).unwrap();
        std::os::unix::fs::symlink(dotfiles.join(".callgate"), home.join(".callgate")).unwrap();
        let given = trust();
        assert!(given.status.success(), "the control: {given:?}");
        assert!(dotfiles.join(".callgate/trust.json").exists());
    });
}

/// Output of `trust` about a manifest, on both streams, and how it ended.
fn trusts(env: &TestEnv, manifest: &str) -> (i32, String) {
    env.workspace_file("callgate.toml", manifest);
    let ended = callgate(env, &["trust", "."]);
    (ended.status.code().unwrap(), format!("{}{}", ended.stdout, ended.stderr))
}

/// A manifest that no session could be opened with is not trusted: unknown tools and permissions are told with their line, and what may
/// have been meant. What may come later is said, and trusted.
#[test]
fn what_is_trusted_is_checked() {
    let env = TestEnv::new(HERE);
    fs::create_dir(env.workspace().join("source")).unwrap();
    for (manifest, line, said) in [
        ("id = \"x\"\ntools = [\"read\", \"bahs\"]\n", 2, "did you mean `bash`?"),
        ("id = \"x\"\nextra = [\"sqlit\"]\n", 2, "did you mean `sqlite`?"),
        ("[[rules]]\npermission = \"wirte\"\naction = \"deny\"\n", 1, "did you mean `write`?"),
        ("[[rules]]\npermission = \"fs.reed\"\naction = \"deny\"\n", 2, "there is no capability \"fs.reed\""),
    ] {
        let (status, text) = trusts(&env, manifest);
        assert!(
            status == 65 && text.contains(&format!("callgate.toml:{line}")) && text.contains(said),
            "{manifest}: {text}"
        );
        let listed = callgate(&env, &["trust", "--list"]).stdout;
        assert_eq!(listed, "", "{manifest}");
    }
    for (item, said) in [
        ("read = [\"/srv/nowhere/**\"]", "callgate.toml:4: `/srv/nowhere/**`: there is no /srv/nowhere\n"),
        ("write = [\"{workspace}/suorce/**\"]", "/suorce; did you mean source?\n"),
    ] {
        let (status, text) = trusts(&env, &format!("id = \"x\"\n\n[requires.fs]\n{item}\n"));
        assert!(status == 0 && text.contains(said), "{text}");
    }
    let (_, text) = trusts(
        &env,
        "[requires.fs]\nread = [\"{workspace}/source/**\", \"{workspace}/later/**\"]\nwrite = [\"/srv/new\"]\n",
    );
    assert!(!text.contains("there is no"), "the control: {text}");
    let (status, text) = trusts(&env, "id = \"x\"\nextra = [\"postgres\"]\n");
    assert!(
        status == 0 && text.contains("callgate.toml:2: `postgres`: no database of this kind is configured"),
        "{text}"
    );
}

/// `trust` shows what is in force with it, what its tools require that nothing bounds, and what is another than the last time. Calls do
/// not repeat it.
#[test]
fn what_is_in_force_and_what_has_changed_is_shown() {
    let env = TestEnv::new(HERE);
    let dir = env.workspace().display().to_string();
    let search = "[net.search]\nproviders = [\"duckduckgo\"]\n";
    let first = format!("[requires.fs]\nread = [\"in/**\"]\n{search}");
    let (_, text) = trusts(&env, &first);
    for line in [
        "In force in a session, with what its tools require:\n",
        &format!("  write {dir}/** (edit, write)\n"),
        "  start any program (bash)\n",
        "  connect to html.duckduckgo.com:https (`web_search` alone)\n",
        "`bash` requires any program: that counts. To bound it, say so in [[ceiling.shell]]\n",
    ] {
        assert!(text.contains(line), "{line:?}: {text}");
    }
    assert!(!text.contains("since it was trusted") && !text.contains("not granted"), "{text}");
    let called = callgate(&env, &["call", "glob", "{\"pattern\": \"*\"}"]);
    assert!(called.status.success() && called.stderr.is_empty(), "{called:?}");
    let named = callgate(&env, &["call", "--manifest", "callgate.toml", "glob", "{\"pattern\": \"*\"}"]);
    assert!(named.stderr.contains("To bound it, say so in"), "the control: nobody was told of it: {named:?}");

    let (_, text) = trusts(&env, &first);
    assert!(text.contains("Nothing of that is another than when it was trusted ("), "{text}");
    let (_, text) =
        trusts(&env, &format!("[ceiling.net]\nhosts = []\n[requires.fs]\nread = [\"in/**\", \"/usr/**\"]\n{search}"));
    assert!(
        text.contains("  not granted: net.hosts html.duckduckgo.com:https: bounded to nothing by `[ceiling.net]`"),
        "{text}"
    );
    let changes = text.split("Changed since it was trusted (").nth(1).unwrap();
    for line in [
        "  - in force: connect to html.duckduckgo.com:https (`web_search` alone)\n",
        "  + read /usr/**\n",
        "  + at most net nothing\n",
        "  + in force: read /usr/**\n",
    ] {
        assert!(changes.contains(line), "{line:?}: {changes}");
    }
    assert!(!changes.contains("in/**"), "{changes}");
}

/// On a terminal `trust` asks, after it has shown what there is to trust; enter alone is a no. Scripts say `--yes`, and where it cannot be
/// seen nobody is asked.
#[test]
fn trust_asks_on_a_terminal() {
    let env = TestEnv::new(HERE);
    env.workspace_file("callgate.toml", "id = \"asked-about\"\n");
    let person = UserShell::new(&env);
    let binary = Binaries::of_this_build().callgate().display().to_string();
    let is_trusted = || !callgate(&env, &["trust", "--list"]).stdout.is_empty();
    let asks = "Trust it until it changes? [y/N]";
    for (answer, line, status) in [
        ("", "is not trusted by this.", 1),
        ("n", "is not trusted by this.", 1),
        ("y", "is trusted until it changes.", 0),
    ] {
        assert!(!is_trusted());
        person.starts(&format!("clear; {binary} trust .; echo it ended $?"));
        person.waits_for(asks, |screen| screen.trim_end().ends_with(asks));
        person.shows("asked-about");
        assert!(!is_trusted(), "nothing is trusted before the answer");
        person.enters(answer);
        person.shows(line);
        person.shows_line(&format!("it ended {status}"));
    }
    assert!(is_trusted());
    callgate(&env, &["trust", "--revoke", "."]);
    for command in [format!("{binary} trust --yes ."), format!("{binary} trust . > /dev/null")] {
        person.starts(&format!("clear; {command}; echo it ended without $?"));
        person.shows_line("it ended without 0");
        assert!(is_trusted(), "{command}");
        callgate(&env, &["trust", "--revoke", "."]);
    }
}

/// E1, E8: what is shown of a manifest turns no line and hides nothing, wherever in it that stands.
#[test]
fn e1_e8_what_is_shown_hides_nothing() {
    let env = TestEnv::new(HERE);
    for (c, shown) in [
        ('\u{202e}', "u{202e}"),
        ('\u{2066}', "u{2066}"),
        ('\u{200b}', "u{200b}"),
        ('\u{ad}', "u{ad}"),
        ('\u{5d0}', "u{5d0}"),
    ] {
        let manifest = format!(
            "id = \"a{c}b\"\nroots = []\n[requires.fs]\nread = [\"/srv/a{c}b/**\"]\n[[requires.shell]]\ncmd = \"p{c}q\"\n\
             [[rules]]\npermission = \"bash\"\npattern = \"git {c}push\"\naction = \"deny\"\n\
             [env]\nset = {{ A = \"x{c}y\" }}\n[mcp.m]\ncommand = [\"/bin/m{c}n\"]\n"
        );
        let (status, text) = trusts(&env, &manifest);
        assert!(status == 0 && !text.contains(c), "{c:?}: {text:?}");
        assert!(text.matches(shown).count() >= 8, "{c:?}: {text}");
    }
}
