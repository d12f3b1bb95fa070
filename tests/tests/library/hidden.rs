//! A thousand command lines that start `touch` in roundabout ways, up to six ways deep, from a generator: outside they do, in a
//! session that grants it most do, and where it is not granted none does (C2 to C12, C19).
//!
//! An ordinary run tries some of each way. `CALLGATE_SEED` is where the generator begins; each failure names it and the line.

mod lines;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use callgate::policy::ceiling::Ceiling;
use callgate::policy::effective::Source;
use callgate::policy::requirement::RequirementSet;
use callgate::{Launcher, Layer, Outcome, Session, SessionSpec, Stdio, StrengthChoice, Supervisor};
use callgate_tests::{Binaries, Host, Target, TestEnv, User, matrix, matrix_as, repetitions};
use serde_json::{Value, json};

use self::lines::{Generator, GrantedResult, HARD_LINK, Hidden};

const LINES: usize = 1000;

/// How many lines are tried of each way at least, where there are as many: in a full run all.
fn of_each_way() -> usize {
    repetitions(5, LINES)
}

/// All that the lines are hidden in, with any arguments.
const WRAPPERS: &str = "bash sh env nice timeout nohup setsid stdbuf flock xargs find awk sed make tar vim script split seq echo printf \
    tr rev base64 which cp cat chmod ln mv mkdir rm gzip true perl git /usr/bin/python3";

fn seed() -> u64 {
    #[allow(clippy::disallowed_methods, reason = "where to begin is for who runs the tests")]
    let said = std::env::var("CALLGATE_SEED").ok();
    said.map_or(1104, |said| said.parse().expect("CALLGATE_SEED is a number"))
}

/// The lines, all different, and the ways that must be among them.
fn generated() -> (Vec<Hidden>, Vec<(&'static str, GrantedResult)>) {
    let loader = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"].into_iter();
    let loader = loader.into_iter().find(|path| Path::new(path).is_file());
    let mut generator = Generator::new(seed(), loader);
    let (mut lines, mut known) = (Vec::new(), BTreeSet::new());
    while lines.len() < LINES {
        let hidden = generator.next();
        if known.insert(hidden.line.clone()) {
            lines.push(hidden);
        }
    }
    let mut tried: BTreeMap<&str, usize> = BTreeMap::new();
    lines.retain(|hidden| {
        let is_wanted = hidden.ways.iter().any(|way| tried.get(way).copied().unwrap_or_default() < of_each_way());
        hidden.ways.iter().filter(|_| is_wanted).for_each(|way| *tried.entry(way).or_default() += 1);
        is_wanted
    });
    (lines, generator.ways())
}

/// A directory for each line, and a link to a program of the user's own: a hard link to `touch` itself is not everybody's to make.
fn prepare(env: &TestEnv, group: &str) -> Vec<PathBuf> {
    let (twin, hard) = (env.outside().join("twin"), env.workspace().join(HARD_LINK));
    if !hard.exists() {
        fs::copy("/usr/bin/touch", &twin).unwrap();
        fs::set_permissions(&twin, fs::Permissions::from_mode(0o755)).unwrap();
        env.give(&twin);
        fs::hard_link(&twin, &hard).unwrap();
    }
    let directory = |number: usize| {
        let path = env.workspace().join(format!("{group}{number:04}"));
        fs::create_dir(&path).unwrap();
        env.give(&path);
        path
    };
    (0..LINES).map(directory).collect()
}

/// Results of lines: those that started it, by their number, for each way how many of how many.
#[derive(Default)]
struct LineTally {
    ran: usize,
    ways: BTreeMap<&'static str, (usize, usize)>,
}

impl LineTally {
    fn count(&mut self, hidden: &Hidden, ran: bool) {
        self.ran += usize::from(ran);
        for way in &hidden.ways {
            let (some, all) = self.ways.entry(way).or_default();
            *some += usize::from(ran);
            *all += 1;
        }
    }
}

async fn session(env: &TestEnv, touch: &[Value]) -> Session {
    let git = env.bare().run(&["git", "--exec-path"]).stdout.trim().to_owned();
    let mut shell: Vec<Value> = WRAPPERS.split_whitespace().map(|name| json!({ "cmd": name })).collect();
    shell.extend(["git", "git-remote-ext"].map(|name| json!({ "cmd": format!("{git}/{name}") })));
    shell.extend_from_slice(touch);
    let requires = json!({ "fs": { "write": ["{workspace}/**"] }, "shell": shell });
    let requires: RequirementSet = serde_json::from_value(requires).unwrap();
    let strength = env.target().by_strength(StrengthChoice::Namespaces, StrengthChoice::Landlock);
    let mode = Some(callgate::policy::mode::Mode::Yolo);
    // `bash` requires any program.
    let only = Ceiling { shell: Some(requires.shell.clone()), ..Ceiling::default() };
    let mut spec = SessionSpec::new(env.workspace()).strength(strength).at_most(Source::CommandLine, only);
    spec.mode = mode;
    spec.requires.push((Source::CommandLine, requires));
    let launcher = Launcher::spawn(&Binaries::of_this_build().callgate()).unwrap();
    Supervisor::builder().launcher(launcher).build().unwrap().open(spec).await.unwrap()
}

/// Runs a line there; what is told of programs that were not started.
async fn run(session: &Session, hidden: &Hidden, directory: &Path) -> Vec<String> {
    let arguments = json!({ "command": hidden.line, "working_dir": directory, "timeout_ms": 60_000 });
    let result = session.call("bash", arguments).await;
    let changes = if result.metadata.denial.as_ref().is_some_and(|denial| denial.layer == Layer::Watchdog) {
        // Some lines are known to layer 2. Layer 3 is to hold without it, so as the host's own program, of which it is not asked.
        let line = format!("cd {} && {{\n{}\n}}", directory.display(), hidden.line);
        let program = session.spawn(["bash", "-c", &line], Stdio::null().unwrap()).await.unwrap();
        program.wait().await.unwrap();
        program.changes().cloned()
    } else {
        assert_eq!(result.kind, Outcome::Output, "seed {}: {hidden:?}: {result:?}", seed());
        assert_eq!(result.data.unwrap()["timed_out"], false, "seed {}: {hidden:?}", seed());
        result.metadata.changes
    };
    changes.unwrap_or_default().not_started.into_iter().map(|note| note.path).collect()
}

fn made(directory: &Path) -> bool {
    directory.join("made").exists()
}

fn none_starts(target: Target) {
    let (lines, _) = generated();
    let env = TestEnv::new(target);
    let directories = prepare(&env, "denied");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut started, mut silent) = (Vec::new(), Vec::new());
    runtime.block_on(async {
        // In one it is not granted, in the other with other arguments.
        let other = json!(["--version"]);
        let hard = format!("{{workspace}}/{HARD_LINK}");
        let sessions = [
            session(&env, &[]).await,
            session(&env, &[json!({ "cmd": "touch", "args": other }), json!({ "cmd": hard, "args": other })]).await,
        ];
        for (number, (hidden, directory)) in lines.iter().zip(&directories).enumerate() {
            let told = run(&sessions[number % 2], hidden, directory).await;
            if told.is_empty() {
                silent.push(hidden);
            }
            if made(directory) {
                started.push(hidden);
            }
        }
        for session in sessions {
            drop(session);
        }
    });
    assert!(started.is_empty(), "seed {}: {started:#?}", seed());
    // Whatever else was made is none of it, wherever.
    let left = directories.iter().filter(|directory| made(directory)).count();
    assert_eq!((left, made(&env.workspace())), (0, false));
    // They were refused, and did not fail for another reason: each result says so.
    assert!(silent.is_empty(), "seed {}: {silent:#?}", seed());
}

// What is granted depends on no user; what is denied is tried as both.
fn most_start(target: Target) {
    let (lines, ways) = generated();
    let env = TestEnv::new(target);
    let directories = prepare(&env, "granted");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut tally, mut never, mut failed) = (LineTally::default(), LineTally::default(), Vec::new());
    runtime.block_on(async {
        let hard = format!("{{workspace}}/{HARD_LINK}");
        let session = session(&env, &[json!({ "cmd": "touch" }), json!({ "cmd": hard })]).await;
        for (hidden, directory) in lines.iter().zip(&directories) {
            let told = run(&session, hidden, directory).await;
            let stays = hidden.ways.iter().any(|way| ways.contains(&(*way, GrantedResult::Stays)));
            (if stays { &mut never } else { &mut tally }).count(hidden, made(directory));
            if !stays && !made(directory) {
                failed.push((hidden, told));
            }
        }
        drop(session);
    });
    eprintln!("{target:?}: {} of {} start it; {} by what stays", tally.ran, lines.len(), never.ran);
    assert_eq!(never.ran, 0, "what is no granted file: {:?}", never.ways);
    assert!(tally.ran * 10 >= lines.len() * 6, "only {}: {failed:#?}", tally.ran);
    for (way, granted) in ways {
        let (some, all) = tally.ways.get(way).copied().unwrap_or_default();
        assert!(granted == GrantedResult::Stays || some > 0, "{way}: {some} of {all}: {failed:#?}");
    }
    assert!(failed.is_empty(), "seed {}: {failed:#?}", seed());
}

/// The control of the control: outside, all do.
#[test]
fn c2_a_thousand_hidden_lines_start_a_program_outside() {
    let (lines, ways) = generated();
    let env = TestEnv::new(Target { host: Host::Namespaces, user: User::Ordinary });
    let directories = prepare(&env, "bare");
    let mut tally = LineTally::default();
    let mut failed = Vec::new();
    for (hidden, directory) in lines.iter().zip(&directories) {
        let path = "/usr/local/bin:/usr/bin:/bin";
        let bare = env.bare().variable("PATH", path).variable("HOME", &env.outside().display().to_string());
        let script = format!("cd {}\n{}", directory.display(), hidden.line);
        let ended = bare.run(&["/bin/bash", "--noprofile", "--norc", "-c", &script]);
        tally.count(hidden, made(directory));
        if !made(directory) {
            failed.push((hidden, ended));
        }
    }
    for (way, _) in ways {
        let (some, all) = tally.ways.get(way).copied().unwrap_or_default();
        assert!(some > 0, "{way}: {some} of {all}: {failed:#?}");
    }
    assert!(failed.is_empty(), "seed {}: {failed:#?}", seed());
}

/// C2 to C12, C19: none of them starts what is not granted, or with other arguments.
#[test]
fn c2_c3_c4_c5_c6_c7_c8_c9_c10_none_of_a_thousand_hidden_lines_starts_a_denied_program() {
    matrix(&[Host::Namespaces], none_starts);
}

/// None starts it with Landlock and seccomp alone.
#[test]
fn c2_c3_c4_c5_c6_c7_c8_c9_c10_none_of_a_thousand_hidden_lines_starts_it_without_namespaces() {
    matrix(&[Host::NoNamespaces], none_starts);
}

/// The control: where it is granted, the same lines start it.
#[test]
fn c2_a_thousand_hidden_lines_start_what_is_granted() {
    matrix_as(User::Ordinary, &[Host::Namespaces], most_start);
}

/// They start what is granted with Landlock and seccomp alone.
#[test]
fn c2_a_thousand_hidden_lines_start_what_is_granted_without_namespaces() {
    matrix_as(User::Ordinary, &[Host::NoNamespaces], most_start);
}
