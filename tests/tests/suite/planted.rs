//! Names that somebody could guess and take first: nothing is followed from them, written to them or taken away (A11).
//!
//! The directory for temporary files is one that everybody may write, and not sticky, so that the kernel's own protection of
//! links (`fs.protected_symlinks`) plays no part.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use callgate_tests::{Binaries, Host, ProgramOutcome, ProgramRunner, TestEnv, eventually, matrix};
use serde_json::json;

/// Names that a program that names its files by its own name, its user or its number would use, in a temporary
/// directory or beside the file `made` that it writes.
fn guesses(user: u32) -> Vec<String> {
    let zeros = "0".repeat(32);
    let mut names: Vec<String> = [
        "callgate",
        "callgate-",
        "callgate-0",
        "callgate-1",
        "callgate.lock",
        "callgate.sock",
        "callgate.pid",
        "callgate.json",
        "callgate-launcher",
        "callgate-broker",
        "callgate-session",
        "callgate-frame",
        "callgate-scratch",
        "callgate-scratch-",
        "callgate-scratch-XXXXXX",
        ".callgate",
        ".callgate-",
        ".callgate-0",
        ".callgate-made",
        ".callgate-made.tmp",
        ".callgate-tmp",
        ".trash-0",
        ".trash-1",
        "made.tmp",
        ".made.tmp",
        "made.new",
        "made.part",
        "made.bak",
        "made~",
        "#made#",
        ".made.swp",
        "home",
        "tmp",
        "shm",
        "ipc",
        "status.json",
    ]
    .map(str::to_owned)
    .to_vec();
    names.extend([format!("callgate-{user}"), format!("callgate-{zeros}"), format!(".callgate-{zeros}")]);
    // Those of the processes to come.
    let pid = std::process::id();
    for pid in pid..pid + 100 {
        names.extend([format!("callgate-{pid}"), format!(".callgate-{pid}"), format!("callgate-{user}-{pid}")]);
    }
    names.sort();
    names.dedup();
    names
}

/// A directory whose every guessable name is a link: to a file, to a directory, or to a name that is not there yet, all of
/// them the victim's.
struct Planted {
    directory: PathBuf,
    victim: PathBuf,
    names: Vec<String>,
}

impl Planted {
    fn in_directory(env: &TestEnv, directory: PathBuf, name: &str) -> Self {
        let victim = env.outside().join(format!("victim-{name}"));
        fs::create_dir_all(victim.join("directory")).unwrap();
        env.file_at(victim.join("file"), "old");
        for path in [&victim, &victim.join("directory")] {
            env.give(path);
        }
        let names = guesses(env.target().user.uid());
        // The first is a link to the file.
        for (name, target) in names.iter().zip(["file", "directory", "missing"].into_iter().cycle()) {
            symlink(victim.join(target), directory.join(name)).unwrap();
            std::os::unix::fs::lchown(directory.join(name), Some(env.target().user.uid()), None).unwrap();
        }
        Self { directory, victim, names }
    }

    /// The links and what they lead to.
    fn look(&self) -> BTreeMap<PathBuf, String> {
        let link = |name: &String| {
            let path = self.directory.join(name);
            let about = fs::symlink_metadata(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            (path.clone(), format!("{} {:?} {}", about.ino(), fs::read_link(&path).unwrap(), about.ctime_nsec()))
        };
        let mut seen: BTreeMap<PathBuf, String> = self.names.iter().map(link).collect();
        for directory in [self.victim.clone(), self.victim.join("directory")] {
            for entry in fs::read_dir(&directory).unwrap() {
                let path = entry.unwrap().path();
                let about = fs::symlink_metadata(&path).unwrap();
                let text = fs::read_to_string(&path).unwrap_or_default();
                seen.insert(path, format!("{:o} {} {} {text}", about.mode(), about.uid(), about.mtime()));
            }
        }
        assert_eq!(seen.len(), self.names.len() + 2, "there is something new: {seen:?}");
        seen
    }
}

fn callgate(run: &ProgramRunner, words: &[&str]) -> ProgramOutcome {
    let binary = Binaries::of_this_build().callgate().display().to_string();
    run.run(&[&[binary.as_str()], words].concat())
}

fn shared(env: &TestEnv) -> PathBuf {
    let path = env.outside().join("shared");
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    path
}

/// A11: everything that callgate does, while every name that it could be expected to use is a link of somebody else's.
#[test]
fn a11_nothing_is_followed_from_a_planted_name() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let shared = shared(&env);
        let plants = [
            Planted::in_directory(&env, shared.clone(), "shared"),
            Planted::in_directory(&env, env.workspace(), "workspace"),
        ];
        let before = plants.each_ref().map(Planted::look);
        let temporary = shared.display().to_string();
        let run =
            env.weakened().variable("TMPDIR", &temporary).variable("TMP", &temporary).variable("TEMP", &temporary);
        let arguments = json!({ "path": "made", "content": "new" }).to_string();
        let line = "echo $TMPDIR; echo mine > $TMPDIR/callgate && cat $TMPDIR/callgate";
        let bash = json!({ "command": line }).to_string();
        for (words, status) in [
            (&["run", "--", "sh", "-c", line][..], 0),
            (&["call", "write", &arguments], 0),
            (&["call", "read", r#"{"path": "made"}"#], 0),
            (&["call", "bash", &bash], 0),
            (&["doctor"], 0),
        ] {
            let ended = callgate(&run, words);
            assert_eq!(ended.status.code(), Some(status), "{words:?}: {ended:?}");
            assert_eq!(plants.each_ref().map(Planted::look), before, "{words:?}");
            if words.last() == Some(&line) {
                let mut lines = ended.stdout.lines();
                let inside = Path::new(lines.next().unwrap());
                // In a directory of its own below the shared one, or in a mount of the session's.
                let own = inside.parent().unwrap();
                assert_eq!(own.starts_with(&shared), !target.has_namespaces(), "{ended:?}");
                assert!(!plants[0].names.iter().any(|name| shared.join(name) == own), "{ended:?}");
                assert_eq!(lines.next(), Some("mine"), "{ended:?}");
            }
        }
        assert_eq!(fs::read_to_string(env.workspace().join("made")).unwrap(), "new");
        // The launcher, which removes what sessions have kept, ends after the command.
        eventually("nothing is left", || fs::read_dir(&shared).unwrap().count() == plants[0].names.len());
        // The control: who uses such a name writes where it leads.
        let stolen = format!("echo stolen > '{temporary}/{}'", plants[0].names[0]);
        assert!(env.bare().run(&["sh", "-c", &stolen]).status.success());
        assert_eq!(fs::read_to_string(plants[0].victim.join("file")).unwrap(), "stolen\n");
    });
}

/// A11: the file that `write` fills before it takes its name is made anew, for its owner alone, by a name of 128 random bits.
/// It is seen here because it can be neither renamed nor removed.
#[test]
fn a11_a_temporary_file_has_a_name_that_nobody_can_guess() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let arguments = json!({ "path": "made", "content": "new" }).to_string();
        let stuck =
            ["fail", "renameat", "EIO", "fail", "renameat2", "EIO", "fail", "unlinkat", "EIO", "fail", "unlink", "EIO"];
        // The session's directory cannot be removed then either.
        let run = env.weakened().weaken(&stuck).variable("TMPDIR", &shared(&env).display().to_string());
        for _ in 0..2 {
            let ended = callgate(&run, &["call", "write", &arguments]);
            assert_eq!(ended.status.code(), Some(1), "{ended:?}");
            assert!(!env.workspace().join("made").exists());
        }
        let mut names = Vec::new();
        for entry in fs::read_dir(env.workspace()).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let random = name.strip_prefix(".callgate-").unwrap_or_else(|| panic!("{name}"));
            assert!(random.len() == 32 && random.bytes().all(|digit| digit.is_ascii_hexdigit()), "{name}");
            names.push(name);
        }
        assert_eq!(names.len(), 2, "one for each try: {names:?}");
        assert_ne!(names[0], names[1]);
        // The control: the same call without a failure leaves nothing but the file.
        let env = TestEnv::new(target);
        assert_eq!(callgate(&env.weakened(), &["call", "write", &arguments]).status.code(), Some(0));
        let left: Vec<_> = fs::read_dir(env.workspace()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["made"]);
    });
}
