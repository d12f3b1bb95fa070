//! Nothing that a call writes decides about the next one: the manifest and the profile that a session was opened with are kept from
//! its calls, wherever they lie and by whatever name (E4), and a recorded session is bound to what they said.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use callgate_tests::{Binaries, Host, ProgramRunner, Target, TestEnv, User, matrix, matrix_as};
use libc::EACCES;
use serde_json::{Value, json};

use crate::mcp::{PersonAnswer, StdioClient, callgate, user};
use crate::mcp_servers::client_of;

const MANIFEST: &str =
    "[requires.fs]\nread = [\"{workspace}/**\"]\nwrite = [\"{workspace}/**\"]\n[[requires.shell]]\ncmd = \"*\"\n";
const PROFILE: &str = "profile: p\nshell: unrestricted\nfile_write: full\napproval: none\n";

/// A workspace with a manifest and the profile that it names, in a directory of their own.
fn place(target: Target) -> TestEnv {
    let env = TestEnv::new(target);
    let conf = env.workspace().join("conf");
    fs::create_dir(&conf).unwrap();
    env.give(&conf);
    env.workspace_file("conf/builder.toml", &format!("profile = \"./p.yaml\"\n{MANIFEST}"));
    env.workspace_file("conf/p.yaml", PROFILE);
    env.workspace_file("other", "another\n");
    symlink("builder.toml", env.workspace().join("conf/link.toml")).unwrap();
    env
}

/// With a manifest that lies where nothing is granted.
fn control(env: &TestEnv) -> ProgramRunner {
    let manifest = env.file("builder.toml", MANIFEST);
    env.sandbox().flag(&["--manifest", manifest.text()])
}

fn text(env: &TestEnv) -> Vec<String> {
    let read = |name: &str| fs::read_to_string(env.workspace().join(name)).unwrap_or_default();
    ["conf/builder.toml", "conf/p.yaml", "conf/link.toml", "other"].map(read).to_vec()
}

/// Each ordinary way to have something else at the name of the manifest, of its profile and of a link to it.
#[test]
fn e4_calls_do_not_change_what_their_policy_came_from() {
    const ACTS: &[&[&str]] = &[
        &["write", "conf/builder.toml", "new"],
        &["open-trunc", "conf/builder.toml"],
        &["truncate", "conf/builder.toml"],
        &["unlink", "conf/builder.toml"],
        &["rename", "conf/builder.toml", "moved"],
        &["rename", "other", "conf/builder.toml"],
        &["rename-exchange", "other", "conf/builder.toml"],
        &["link", "conf/builder.toml", "second"],
        &["write", "conf/p.yaml", "new"],
        &["unlink", "conf/p.yaml"],
        &["rename", "other", "conf/p.yaml"],
        &["unlink", "conf/link.toml"],
        &["rename", "other", "conf/link.toml"],
        &["write", "conf/link.toml", "new"],
        &["rename", "conf", "moved"],
    ];
    matrix(Host::STRENGTHS, |target| {
        for act in ACTS {
            let env = place(target);
            let mut words: Vec<String> =
                act.iter().map(|word| env.workspace().join(word).display().to_string()).collect();
            words[0] = act[0].to_owned();
            if act[0] == "write" {
                words[2] = act[2].to_owned();
            }
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let before = text(&env);
            env.sandbox().flag(&["--manifest", "conf/link.toml"]).probe(&words).assert_errno(EACCES);
            assert_eq!(text(&env), before, "{act:?}");
            control(&env).probe(&words).assert_ok();
            assert!(act[0] == "link" || text(&env) != before, "the control changed nothing: {act:?}");
        }
    });
}

/// A second name of the manifest is the manifest, wherever that itself lies.
#[test]
fn e4_a3_another_name_of_a_manifest_is_kept_as_well() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let manifest = env.file("builder.toml", MANIFEST);
        let second = env.workspace().join("second");
        fs::hard_link(&manifest, &second).unwrap();
        let run = env.sandbox().flag(&["--manifest", manifest.text()]);
        let write = |to: &str| ["write", to, "new"].map(str::to_owned);
        let act = write(second.to_str().unwrap());
        let act: Vec<&str> = act.iter().map(String::as_str).collect();
        run.probe(&act).assert_errno(EACCES);
        manifest.assert_contents(MANIFEST);
        // The control: with one name each.
        fs::remove_file(&second).unwrap();
        env.workspace_file("second", MANIFEST);
        run.probe(&act).assert_ok();
        manifest.assert_contents(MANIFEST);
    });
}

/// A mount of the file alone, as containers have them, is one more name.
#[test]
fn e4_a8_a_manifest_that_is_mounted_in_the_workspace_is_kept() {
    // Root alone can mount something for it.
    matrix_as(User::Root, Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let manifest = env.file("builder.toml", MANIFEST);
        let name = env.workspace_file("shown.toml", "empty\n");
        let run = env.sandbox().flag(&["--manifest", manifest.text()]);
        let write = ["write", name.text(), "new"];
        run.clone().mounted(&manifest, &name).probe(&write).assert_errno(EACCES);
        manifest.assert_contents(MANIFEST);
        // The control: another file is mounted there.
        let another = env.file("another", "old");
        run.mounted(&another, &name).probe(&write).assert_ok();
        another.assert_contents("new");
    });
}

/// A file beside a granted one, in a directory with a protected name, is no more a call's to change for what it is called.
#[test]
fn e4_a_manifest_beside_a_granted_name_is_kept() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let editor = env.workspace().join(".vscode");
        fs::create_dir(&editor).unwrap();
        env.give(&editor);
        let granted = "write = [\"{workspace}/**\", \"{workspace}/.vscode/settings.json\"]";
        let text = MANIFEST.replace("write = [\"{workspace}/**\"]", granted);
        env.workspace_file(".vscode/settings.json", "{}\n");
        let manifest = env.workspace_file(".vscode/settings.json.toml", &text);
        let beside = env.workspace_file(".vscode/settings.json.bak", "old");
        let run = env.sandbox().flag(&["--manifest", manifest.text()]);
        run.probe(&["write", manifest.text(), "new"]).assert_errno(EACCES);
        run.probe(&["rename", manifest.text(), beside.text()]).assert_errno(EACCES);
        manifest.assert_contents(&text);
        // The control: what is beside a granted name, and no policy.
        run.probe(&["write", beside.text(), "new"]).assert_ok();
        beside.assert_contents("new");
    });
}

/// Where `..` leads hangs on where the directory is that it is looked up in.
#[test]
fn e4_a_directory_that_a_manifests_path_goes_back_from_is_no_link() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for directory in ["sub", "apart"] {
            fs::create_dir(env.workspace().join(directory)).unwrap();
            env.give(&env.workspace().join(directory));
        }
        env.workspace_file("builder.toml", MANIFEST);
        let run = env.sandbox().flag(&["--manifest", "sub/../builder.toml"]);
        let replace = |name: &str| format!("mv {name} moved 2>&1 || rmdir {name}; ln -s /usr/share {name}");
        let is_link = |name: &str| env.workspace().join(name).is_symlink();
        // The control: one on nobody's way.
        let ended = run.run(&["sh", "-c", &replace("apart")]);
        assert!(ended.status.success() && is_link("apart"), "{ended:?}");
        let ended = run.run(&["sh", "-c", &replace("sub")]);
        assert!(!ended.status.success() && !is_link("sub"), "{ended:?}");
    });
}

/// Where somebody granted just that file, it cannot be kept, and there is no session.
#[test]
fn e4_a_session_that_is_granted_its_own_policy_is_refused() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for granted in ["{workspace}/named.toml", "{workspace}/named.toml/**"] {
            let text = MANIFEST.replace("write = [\"{workspace}/**\"]", &format!("write = [\"{granted}\"]"));
            let named = env.workspace_file("named.toml", &text);
            let line = ["sh", "-c", "echo '# taken' >> named.toml"];
            let ended = env.sandbox().flag(&["--manifest", "named.toml"]).run(&line);
            assert_eq!(ended.status.code(), Some(64), "{ended:?}");
            assert!(ended.stderr.contains("the policy came from"), "{ended:?}");
            named.assert_contents(&text);
            // The control: the same words from another place.
            let apart = env.file("apart.toml", &text);
            let ended = env.sandbox().flag(&["--manifest", apart.text()]).run(&line);
            assert!(ended.status.success(), "{ended:?}");
            named.assert_contents(&format!("{text}# taken\n"));
        }
    });
}

/// In a directory where nothing is protected by its name it is kept all the same, or there is no session.
#[test]
fn e4_a_manifest_in_a_directory_where_nothing_is_protected_is_kept() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let free = env.workspace().join("target");
        fs::create_dir(&free).unwrap();
        env.give(&free);
        let tree = MANIFEST.replace("write = [\"{workspace}/**\"]", "write = [\"{workspace}/target/**\"]");
        for text in [&*tree, MANIFEST] {
            let manifest = env.workspace_file("target/m.toml", text);
            for line in ["echo '# taken' >> target/m.toml", "rm target/m.toml", "echo > t; mv t target/m.toml"] {
                env.sandbox().flag(&["--manifest", "target/m.toml"]).run(&["sh", "-c", line]);
                manifest.assert_contents(text);
            }
            let apart = env.file("apart.toml", text);
            let line = ["sh", "-c", "echo '# taken' >> target/m.toml"];
            let ended = env.sandbox().flag(&["--manifest", apart.text()]).run(&line);
            assert!(ended.status.success(), "the control: {ended:?}");
            manifest.assert_contents(&format!("{text}# taken\n"));
        }
    });
}

/// A line that appends to the manifest.
fn taking(what: &Path) -> Value {
    json!({ "command": format!("echo '# taken' >> {}; echo done > other", what.display()) })
}

/// It holds for tools too, by `call` and for a client of `mcp`.
#[test]
fn e4_tools_and_clients_do_not_change_it_either() {
    matrix(Host::STRENGTHS, |target| {
        let env = place(target);
        let kept = [env.workspace().join("conf/builder.toml"), env.workspace().join("conf/p.yaml")];
        let before = text(&env);
        for file in &kept {
            let words = ["call", "--manifest", "conf/builder.toml", "bash", &taking(file).to_string()];
            assert!(callgate(&env, &words).stdout.contains("ermission denied"));
            let write = json!({ "path": file, "content": "taken" }).to_string();
            let ended = callgate(&env, &["call", "--manifest", "conf/builder.toml", "write", &write]);
            assert!(ended.stdout.contains("it decides about this session"), "{ended:?}");
        }
        assert_eq!(text(&env)[..3], before[..3]);
        assert_eq!(text(&env)[3], "done\n", "the control: the rest of the line has run");
        let words =
            [&Binaries::of_this_build().callgate().display().to_string(), "mcp", "--manifest", "conf/builder.toml"];
        let mut client: StdioClient = client_of(&user(&env), &env, &words);
        client.initialize(PersonAnswer::Says("once"));
        for file in &kept {
            client.call("bash", taking(file), PersonAnswer::Says("once"));
        }
        client.close();
        assert_eq!(text(&env)[..3], before[..3]);
    });
}

/// X0-55: a recorded session goes on with the manifest and the profile that it was made with, and with no others.
#[test]
fn x0_55_a_recorded_session_is_bound_to_its_profile() {
    let target = Target { host: Host::Namespaces, user: User::Ordinary };
    let env = place(target);
    let made = callgate(&env, &["session", "new", "--manifest", "conf/builder.toml"]);
    let typed = callgate(&env, &["session", "new", "--profile", "conf/p.yaml"]);
    for id in [made.stdout.trim(), typed.stdout.trim()] {
        let call = || callgate(&env, &["call", "--session", id, "bash", "{\"command\": \"echo ran >> other\"}"]);
        env.workspace_file("other", "");
        assert!(call().status.success(), "{:?}", call());
        let ran = fs::read_to_string(env.workspace().join("other")).unwrap();
        env.workspace_file("conf/p.yaml", &PROFILE.replace("none", "dangerous"));
        let ended = call();
        assert_eq!(ended.status.code(), Some(65), "{ended:?}");
        assert!(ended.stderr.contains("the profile of session") && ended.stderr.contains("has changed"), "{ended:?}");
        assert_eq!(fs::read_to_string(env.workspace().join("other")).unwrap(), ran);
        let forked = callgate(&env, &["session", "fork", id]).stdout;
        let ended = callgate(&env, &["call", "--session", forked.trim(), "bash", "{\"command\": \"true\"}"]);
        assert!(ended.stderr.contains("the profile of session"), "a fork is bound to it as well: {ended:?}");
        env.workspace_file("conf/p.yaml", PROFILE);
        assert!(call().status.success(), "the control: it is what it was");
    }
}
