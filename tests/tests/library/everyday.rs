//! Lines that people and agents type work under a policy that fits, where every exec is judged and rules are in force:
//! nothing is refused, and output, exit status and what is left in the workspace are the same as outside.

mod lines;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use callgate::policy::ceiling::Ceiling;
use callgate::policy::effective::Source;
use callgate::policy::manifest::{Format, Manifest};
use callgate::policy::requirement::RequirementSet;
use callgate::policy::rules::{Action, Rule, RuleScope};
use callgate::{Launcher, Outcome, Session, SessionSpec, StrengthChoice, Supervisor};
use callgate_tests::{Binaries, Host, TestEnv, matrix};
use serde_json::{Value, json};

use self::lines::{BUILDS, LINES, PROJECT, SCRIPTS};

/// Programs with any arguments.
const PROGRAMS: &str = "ls cat head tail wc stat du basename dirname realpath readlink find xargs which date uname id true false \
    printf seq tac sleep grep sed cp rm mv sort uniq cut tr paste comm diff cmp rev nl fold od base64 md5sum sha256sum cksum expand \
    join split shuf factor numfmt tee strings mkdir rmdir touch ln chmod install truncate dd mktemp tar gzip zcat expr env sh bash \
    nohup nice timeout yes mkfifo echo perl awk cc as ld ar make sqlite3 rg bc jq vim apt-cache dpkg-query";

/// Subcommands that `git` is started with, by people and by itself.
const GIT: &str = "--version init config status add commit log diff show switch branch merge tag describe stash grep blame rev-parse \
    ls-files clone worktree archive reset reflog gc fsck checkout rebase cherry-pick format-patch shortlog rm maintenance rev-list \
    index-pack unpack-objects pack-objects upload-pack repack prune prune-packed pack-refs rerere update-index clean commit-graph \
    multi-pack-index symbolic-ref";

/// Variables for each line, inside and outside: in the session's environment, which what is bounded starts with.
const VARIABLES: &[(&str, &str)] = &[
    ("LC_ALL", "C.UTF-8"),
    ("NPM_CONFIG_UPDATE_NOTIFIER", "false"),
    ("GIT_AUTHOR_DATE", "2020-01-01T00:00:00Z"),
    ("GIT_COMMITTER_DATE", "2020-01-01T00:00:00Z"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
];

/// And before each.
const PRELUDE: &str = "export PATH=/usr/local/bin:/usr/bin:/bin";

/// Answer of one of these programs where it is asked outside.
fn says(env: &TestEnv, words: &[&str]) -> String {
    env.bare().run(words).stdout.trim().to_owned()
}

/// Names, with the arguments that each is for.
fn named(env: &TestEnv) -> Value {
    let rest = json!({ "rest": true });
    let one = json!({ "wildcard": true, "dash": true });
    let mut shell: Vec<Value> =
        PROGRAMS.split_whitespace().map(|name| json!({ "cmd": name, "args": [rest] })).collect();
    let git = says(env, &["git", "--exec-path"]);
    shell.extend(GIT.split_whitespace().map(|word| json!({ "cmd": "git", "args": [word, rest] })));
    shell.push(json!({ "cmd": "git", "args": ["-c", one, one, rest] }));
    shell.push(json!({ "cmd": format!("{git}/git-upload-pack"), "args": [one] }));
    shell.push(json!({ "cmd": "/usr/bin/python3", "args": [one, rest] }));
    shell.push(json!({ "cmd": "/usr/bin/python3", "args": [] }));
    shell.push(json!({ "cmd": "node", "args": [one, rest] }));
    shell.push(json!({ "cmd": "npm", "args": ["--version"] }));
    shell.push(json!({ "cmd": "npm", "args": ["pkg", { "prefix": "get" }, "version"] }));
    shell.push(json!({ "cmd": "npm", "args": ["run", "-s", one] }));
    shell.push(json!({ "cmd": "/usr/bin/pip3", "args": [{ "prefix": "--" }] }));
    shell.push(json!({ "cmd": "dpkg", "args": [{ "prefix": "-" }, one] }));
    for part in ["cc1", "collect2"] {
        shell.push(json!({ "cmd": says(env, &["cc", &format!("-print-prog-name={part}")]), "args": [rest] }));
    }
    for (script, _) in SCRIPTS {
        shell.push(json!({ "cmd": format!("{{workspace}}/{script}"), "args": [rest] }));
    }
    json!(shell)
}

/// Any program, judged all the same (`watch_execs`): what a build has made is started, whatever its name.
fn any() -> Value {
    json!([{ "cmd": "*" }])
}

fn project(env: &TestEnv) {
    let workspace = env.workspace();
    for (name, text) in PROJECT.iter().chain(SCRIPTS) {
        let path = workspace.join(name);
        let directory = path.parent().unwrap();
        fs::create_dir_all(directory).unwrap();
        env.file_at(path.clone(), text);
        directory.ancestors().take_while(|path| *path != workspace).for_each(|path| env.give(path));
        if SCRIPTS.iter().any(|(script, _)| script == name) {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
}

fn spec(env: &TestEnv, shell: Value) -> SessionSpec {
    let rule =
        |permission: &str, pattern: &str, action| (RuleScope::Session, Rule::new(permission, action).pattern(pattern));
    let strength = env.target().by_strength(StrengthChoice::Namespaces, StrengthChoice::Landlock);
    let watch_execs = shell == any();
    let mut spec = SessionSpec::new(env.workspace()).strength(strength);
    spec.watch_execs = watch_execs;
    // In the mode `ask`, with nobody to ask.
    spec.rules = vec![rule("bash", "*", Action::Allow), rule("write", "secret/**", Action::Deny)];
    let requires =
        json!({ "fs": { "read": ["/etc/dpkg/**", "/var/lib/dpkg/**"], "write": ["{workspace}/**"] }, "shell": shell });
    let requires: RequirementSet = serde_json::from_value(requires).unwrap();
    // `bash` requires any program.
    let only = Ceiling { shell: Some(requires.shell.clone()), ..Ceiling::default() };
    spec.ceilings.push((Source::CommandLine, only));
    spec.requires.push((Source::CommandLine, requires));
    let set: String = VARIABLES.iter().map(|(name, value)| format!("{name} = {value:?}\n")).collect();
    spec.manifest = Some(Manifest::parse(&format!("[env.set]\n{set}"), Format::Toml, "m.toml").unwrap());
    spec
}

/// Traces of a line: its output and exit status.
type LineTraces = (String, i64);

fn outside(env: &TestEnv, line: &str) -> LineTraces {
    let home = env.outside().display().to_string();
    let bare = env.bare().variable("HOME", &home);
    let bare = VARIABLES.iter().fold(bare, |bare, (name, value)| bare.variable(name, value));
    let ended = bare.run(&["/bin/bash", "--noprofile", "--norc", "-c", &format!("exec 2>&1; {PRELUDE}\n{line}")]);
    (named_alike(&ended.stdout, env), i64::from(ended.status.code().unwrap_or(-1)))
}

/// Traces that it leaves, or what was refused to it.
async fn inside(session: &Session, env: &TestEnv, line: &str) -> Result<LineTraces, String> {
    let result = session.call("bash", json!({ "command": format!("{PRELUDE}\n{line}") })).await;
    let refused = result.metadata.changes.as_ref().is_some_and(|changes| !changes.not_started.is_empty());
    if result.kind != Outcome::Output || refused {
        return Err(format!("{result:?}"));
    }
    let data = result.data.unwrap();
    Ok((named_alike(data["output"].as_str().unwrap(), env), data["exit_code"].as_i64().unwrap_or(-1)))
}

fn named_alike(output: &str, env: &TestEnv) -> String {
    output.replace(&env.workspace().display().to_string(), "WORKSPACE")
}

/// By name: kind and mode, and content.
type Tree = BTreeMap<String, (u32, Vec<u8>)>;

/// All that is in a tree: kinds and modes, and contents but for what holds times or is packed.
fn tree(top: &Path) -> Tree {
    let mut found = BTreeMap::new();
    let mut directories = vec![top.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(top).unwrap().display().to_string();
            let about = fs::symlink_metadata(&path).unwrap();
            let content = if about.is_dir() && !name.starts_with(".git/objects") {
                directories.push(path);
                Vec::new()
            } else if about.is_symlink() {
                fs::read_link(&path).unwrap().as_os_str().as_encoded_bytes().to_vec()
            } else if about.is_file() && name != ".git/index" {
                fs::read(&path).unwrap()
            } else {
                Vec::new()
            };
            found.insert(name, (about.mode(), content));
        }
    }
    found
}

/// Runs all lines in one session of each target, and outside once for each user.
fn same_inside(lines: &[&str], shell: impl Fn(&TestEnv) -> Value) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bare: RefCell<HashMap<u32, (Vec<LineTraces>, Tree)>> = RefCell::default();
    matrix(Host::STRENGTHS, |target| {
        let mut bare = bare.borrow_mut();
        let (wanted, kept) = bare.entry(target.user.uid()).or_insert_with(|| {
            let env = TestEnv::new(target);
            project(&env);
            (lines.iter().map(|line| outside(&env, line)).collect(), tree(&env.workspace()))
        });
        let env = TestEnv::new(target);
        project(&env);
        runtime.block_on(async {
            let launcher = Launcher::spawn(&Binaries::of_this_build().callgate()).unwrap();
            let supervisor = Supervisor::builder().launcher(launcher).build().unwrap();
            let session = supervisor.open(spec(&env, shell(&env))).await.unwrap();
            let mut differ = Vec::new();
            for (line, wanted) in lines.iter().zip(wanted.iter()) {
                let left = inside(&session, &env, line).await;
                if left.as_ref() != Ok(wanted) {
                    differ.push(format!("{line}\n  outside {wanted:?}\n  inside  {left:?}"));
                }
            }
            assert!(differ.is_empty(), "{}", differ.join("\n"));
            // The control: the gate stands, and so do the rules.
            let held = session.call("write", json!({ "path": "secret/x", "content": "x" })).await;
            assert_eq!(
                held.metadata.denial.as_ref().map(|denial| denial.layer),
                Some(callgate::Layer::Rule),
                "{held:?}"
            );
            let enforced = session.call("bash", json!({ "command": "true" })).await.metadata.enforced;
            assert!(format!("{enforced:?}").contains("argv verified"), "{enforced:?}");
        });
        let left = tree(&env.workspace());
        let names = |tree: &Tree| tree.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&left), names(kept));
        let changed: Vec<_> = left.iter().filter(|(name, what)| kept.get(*name) != Some(*what)).collect();
        assert!(changed.is_empty(), "{changed:?}");
    });
}

/// C2, C9: more than two hundred lines, with each program granted by name and arguments.
#[test]
fn c2_c9_everyday_lines_work_where_every_exec_is_judged() {
    assert!(LINES.len() >= 200, "{}", LINES.len());
    same_inside(LINES, named);
}

/// C2, C18: builds start what they have made, where any program is granted and judged all the same.
#[test]
fn c2_c18_builds_work_where_every_exec_is_judged() {
    same_inside(BUILDS, |_| any());
}
