//! A place to attack: a workspace, files beside it, and processes that mind their own business.

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::binaries::open_to_all;
use crate::host::{Target, User, own_uid};
use crate::run::ProgramRunner;

/// A directory of its own, with a `workspace` (where callgate runs) and an `outside` (which no grant mentions). Both
/// belong to the target's user, so that whatever is denied there is denied by callgate and not by ownership.
#[derive(Debug)]
pub struct TestEnv {
    target: Target,
    root: TempDir,
}

impl TestEnv {
    /// An empty workspace and an empty outside.
    pub fn new(target: Target) -> Self {
        let parent = std::env::temp_dir();
        let parent = if open_to_all(&parent) { parent } else { PathBuf::from("/tmp") };
        let root = tempfile::Builder::new()
            .prefix("callgate-test-")
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir_in(parent)
            .expect("a temporary directory");
        let env = Self { target, root };
        for directory in [env.workspace(), env.outside()] {
            fs::create_dir(&directory).expect("the parent is ours");
            env.give(&directory);
        }
        env
    }

    /// The target that this is for.
    pub fn target(&self) -> Target {
        self.target
    }

    /// Where callgate runs, and what it may write by default.
    pub fn workspace(&self) -> PathBuf {
        self.root.path().join("workspace")
    }

    /// A directory that no grant mentions.
    pub fn outside(&self) -> PathBuf {
        self.root.path().join("outside")
    }

    /// A file outside.
    pub fn file(&self, name: &str, contents: &str) -> TestFile {
        self.file_at(self.outside().join(name), contents)
    }

    /// A file in the workspace.
    pub fn workspace_file(&self, name: &str, contents: &str) -> TestFile {
        self.file_at(self.workspace().join(name), contents)
    }

    /// A file anywhere.
    pub fn file_at(&self, path: PathBuf, contents: &str) -> TestFile {
        fs::write(&path, contents).expect("the directory exists");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("the file is ours");
        self.give(&path);
        TestFile { path }
    }

    /// Makes `path` the target's user's.
    pub fn give(&self, path: &Path) {
        let uid = self.target.user.uid();
        if uid != own_uid() {
            chown(path, Some(uid), Some(uid)).expect("root may give files away");
        }
    }

    /// As the target's user, neither weakened nor confined: for controls.
    pub fn bare(&self) -> ProgramRunner {
        ProgramRunner::bare(self.target, self.workspace())
    }

    /// As the target's user on the target's host, not confined.
    pub fn weakened(&self) -> ProgramRunner {
        ProgramRunner::weakened(self.target, self.workspace())
    }

    /// Under callgate with its defaults.
    pub fn sandbox(&self) -> ProgramRunner {
        self.sandbox_as(self.target.user)
    }

    /// Under callgate with its defaults, run by another user than the one to whom the workspace belongs.
    pub fn sandbox_as(&self, caller: User) -> ProgramRunner {
        ProgramRunner::sandbox(Target { user: caller, ..self.target }, self.workspace())
    }

    /// A process of the target's user, bare, that sleeps until it is dropped (two hours at most).
    pub fn bystander(&self) -> Bystander {
        let mut command = self.bare().command(&["sleep", "7200"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let bystander = Bystander(command.spawn().expect("the probe can be started"));
        let comm = format!("/proc/{}/comm", bystander.pid());
        let uid = self.target.user.uid();
        eventually("the bystander runs", || {
            let mine = fs::metadata(&comm).is_ok_and(|about| about.uid() == uid);
            mine && fs::read_to_string(&comm).is_ok_and(|comm| comm.trim() == "sleep")
        });
        bystander
    }
}

/// A file that a test made.
#[derive(Debug)]
pub struct TestFile {
    path: PathBuf,
}

impl TestFile {
    /// Its path as text, for a command line.
    pub fn text(&self) -> &str {
        self.path.to_str().expect("test names are text")
    }

    /// It still holds this.
    #[track_caller]
    pub fn assert_contents(&self, wanted: &str) {
        let held = fs::read_to_string(&self.path).expect("the file is still there");
        assert_eq!(held, wanted, "{}", self.path.display());
    }

    /// Everything that a metadata write would change, except the time of change, which looking alters on no file system.
    pub fn metadata(&self) -> String {
        let about = fs::symlink_metadata(&self.path).expect("the file is still there");
        format!(
            "mode {:o} owner {}:{} modified {} changed {}.{:09}",
            about.mode(),
            about.uid(),
            about.gid(),
            about.mtime(),
            about.ctime(),
            about.ctime_nsec()
        )
    }
}

impl Deref for TestFile {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl AsRef<Path> for TestFile {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

/// A process that attacks are aimed at; killed when dropped.
#[derive(Debug)]
pub struct Bystander(Child);

impl Bystander {
    /// Its number.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Its number as text, for a command line.
    pub fn text(&self) -> String {
        self.pid().to_string()
    }

    /// True if it still runs.
    pub fn is_alive(&mut self) -> bool {
        self.0.try_wait().expect("our own child can be waited for").is_none()
    }

    /// True if a signal stopped it.
    pub fn is_stopped(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        let state = stat.rsplit(')').next().unwrap_or_default();
        state.trim_start().starts_with('T')
    }

    /// Condition of it that an attack could have changed.
    pub fn condition(&self) -> String {
        condition_of(self.pid())
    }
}

/// The parent of a process, while it is there (proc_pid_stat(5)).
pub fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
}

/// Condition of a process that an attack could have changed: priority, processors, a limit, tracer.
pub fn condition_of(pid: u32) -> String {
    let file = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let kept = ["TracerPid:", "Cpus_allowed:"];
    let status = file("status");
    let mut seen: Vec<&str> = status.lines().filter(|line| kept.iter().any(|key| line.starts_with(key))).collect();
    let limits = file("limits");
    seen.extend(limits.lines().filter(|line| line.starts_with("Max msgqueue")));
    let stat = file("stat");
    // The 17th field after the command's name in brackets is the nice value.
    seen.extend(stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(16)));
    seen.join("\n")
}

impl Drop for Bystander {
    fn drop(&mut self) {
        // It may have ended by the very attack that the test is about.
        if self.0.kill().is_ok() {
            self.0.wait().expect("our own child can be waited for");
        }
    }
}

/// Waits until `holds`, and fails the test if it does not within a minute.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
