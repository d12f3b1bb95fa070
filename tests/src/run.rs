//! Runs programs bare or under callgate, and says what came of them.

use std::fmt;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::binaries::Binaries;
use crate::errno;
use crate::host::Target;

/// Longer than any act takes on a machine that is busy with other tests.
const TOO_LONG: Duration = Duration::from_secs(90);

/// A way of running programs: as a user, on a host, perhaps under callgate.
#[derive(Clone, Debug)]
pub struct ProgramRunner {
    /// A program that runs all the others, with its arguments.
    around: Vec<String>,
    modes: Vec<String>,
    /// The arguments of `callgate run`, if it is under callgate.
    confined: Option<Vec<String>>,
    directory: PathBuf,
    variables: Vec<(String, String)>,
}

impl ProgramRunner {
    /// As the target's user on the machine as it is: the control.
    pub(crate) fn bare(target: Target, directory: impl AsRef<Path>) -> Self {
        Self {
            around: Vec::new(),
            modes: target.user_modes(),
            confined: None,
            directory: directory.as_ref().to_owned(),
            variables: Vec::new(),
        }
    }

    /// On the target's host without callgate: shows what the host itself denies.
    pub(crate) fn weakened(target: Target, directory: impl AsRef<Path>) -> Self {
        Self { modes: target.modes(), ..Self::bare(target, directory) }
    }

    /// Under callgate, with its defaults and nothing but the probe to read besides.
    pub(crate) fn sandbox(target: Target, directory: impl AsRef<Path>) -> Self {
        let probe = Binaries::of_this_build().probe();
        Self {
            confined: Some(vec!["--read".to_owned(), probe.display().to_string()]),
            ..Self::weakened(target, directory)
        }
    }

    /// One more flag of `callgate run`, with its value if it has one.
    #[must_use]
    pub fn flag(mut self, words: &[&str]) -> Self {
        let flags = self.confined.as_mut().expect("flags are for runs under callgate");
        flags.extend(words.iter().map(|&word| word.to_owned()));
        self
    }

    /// One more weakness of the host.
    #[must_use]
    pub fn weaken(mut self, words: &[&str]) -> Self {
        self.modes.extend(words.iter().map(|&word| word.to_owned()));
        self
    }

    /// Grants reading.
    #[must_use]
    pub fn read(self, path: impl AsRef<Path>) -> Self {
        self.flag(&["--read", &path.as_ref().display().to_string()])
    }

    /// Grants writing.
    #[must_use]
    pub fn write(self, path: impl AsRef<Path>) -> Self {
        self.flag(&["--write", &path.as_ref().display().to_string()])
    }

    /// Started by a program, with its arguments, that starts all the rest.
    #[must_use]
    pub fn around(mut self, words: &[&str]) -> Self {
        self.around = words.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// With a directory mounted at another name as well, for what is started here alone. It takes root.
    #[must_use]
    pub fn mounted(mut self, directory: &Path, alias: &Path) -> Self {
        let script = r#"mount --bind "$0" "$1" && shift && exec "$@""#;
        self.around = ["unshare", "--mount", "sh", "-c", script].map(str::to_owned).to_vec();
        self.around.extend([directory, alias].map(|path| path.display().to_string()));
        self
    }

    /// Started in another directory.
    #[must_use]
    pub fn started_in(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = directory.into();
        self
    }

    /// A variable in the environment of what is started here.
    #[must_use]
    pub fn variable(mut self, key: &str, value: &str) -> Self {
        self.variables.push((key.to_owned(), value.to_owned()));
        self
    }

    /// The command line for `words`, ready to be started; for tests that need more than its end.
    pub fn command(&self, words: &[&str]) -> Command {
        let binaries = Binaries::of_this_build();
        let mut line = self.around.clone();
        if !self.modes.is_empty() {
            line.push(binaries.weaken().display().to_string());
            line.extend(self.modes.iter().cloned());
            line.push("--".to_owned());
        }
        if let Some(flags) = &self.confined {
            line.extend([binaries.callgate().display().to_string(), "run".to_owned()]);
            line.extend(flags.iter().cloned());
            line.push("--".to_owned());
        }
        line.extend(words.iter().map(|&word| word.to_owned()));
        let (program, args) = line.split_first().expect("there are words to run");
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(&self.directory)
            .envs(self.variables.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null());
        command
    }

    /// Command for an act of the probe.
    pub fn probe_command(&self, act: &[&str]) -> Command {
        let probe = Binaries::of_this_build().probe().display().to_string();
        let words: Vec<&str> = std::iter::once(probe.as_str()).chain(act.iter().copied()).collect();
        self.command(&words)
    }

    /// Performs an act.
    #[track_caller]
    pub fn probe(&self, act: &[&str]) -> Probe {
        Probe { act: act.join(" "), ended: ended(self.probe_command(act)) }
    }

    /// Performs an act that may not come to its end.
    #[track_caller]
    pub fn act(&self, act: &[&str]) -> ProgramOutcome {
        ended(self.probe_command(act))
    }

    /// Runs any program to its end.
    #[track_caller]
    pub fn run(&self, words: &[&str]) -> ProgramOutcome {
        ended(self.command(words))
    }
}

/// End of a program: how it ended and what it printed.
#[derive(Debug)]
pub struct ProgramOutcome {
    /// How it ended.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Waits for the program itself, not for the end of its output, which a daemon that it left behind may hold open.
#[track_caller]
fn ended(mut command: Command) -> ProgramOutcome {
    let mut out = tempfile::tempfile().expect("a temporary file");
    let mut err = tempfile::tempfile().expect("a temporary file");
    command.stdout(out.try_clone().expect("a descriptor"));
    command.stderr(err.try_clone().expect("a descriptor"));
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let status = wait(&mut child).unwrap_or_else(|| panic!("{command:?} has not ended after {TOO_LONG:?}"));
    let text = |file: &mut std::fs::File| {
        let mut bytes = Vec::new();
        file.rewind().expect("a file can be rewound");
        file.read_to_end(&mut bytes).expect("our own file can be read");
        String::from_utf8_lossy(&bytes).into_owned()
    };
    ProgramOutcome { status, stdout: text(&mut out), stderr: text(&mut err) }
}

fn wait(child: &mut Child) -> Option<ExitStatus> {
    let start = Instant::now();
    let mut pause = Duration::from_micros(500);
    while start.elapsed() < TOO_LONG {
        if let Some(status) = child.try_wait().expect("our own child can be waited for") {
            return Some(status);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    child.kill().expect("our own child can be killed");
    child.wait().expect("our own child can be waited for");
    None
}

/// Result of an act.
#[derive(Debug)]
pub struct Probe {
    act: String,
    ended: ProgramOutcome,
}

impl fmt::Display for Probe {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ProgramOutcome { status, stdout, stderr } = &self.ended;
        write!(to, "probe {}: {status}\n{stdout}{stderr}", self.act)
    }
}

impl Probe {
    /// The probe's line, if the act was really tried.
    fn line(&self) -> Option<Value> {
        let lines = self.ended.stdout.lines().rev();
        let mut lines = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.find(|line| line["act"].as_str() == self.act.split(' ').next() && line["ok"].is_boolean())
    }

    #[track_caller]
    fn tried(&self) -> Value {
        match self.line() {
            Some(line) if self.ended.status.success() => line,
            Some(_) | None => panic!("the act was not tried: {self}"),
        }
    }

    /// True if the act succeeded; false also if it was not tried.
    pub fn is_ok(&self) -> bool {
        self.line().is_some_and(|line| line["ok"] == true)
    }

    /// Something the act saw; null if it did not.
    pub fn fact(&self, name: &str) -> Value {
        self.line().map_or(Value::Null, |line| line[name].clone())
    }

    /// The errno it failed with; none if it succeeded.
    #[track_caller]
    pub fn errno(&self) -> Option<i32> {
        let number = self.tried()["errno"].as_i64()?;
        Some(i32::try_from(number).expect("an errno is small"))
    }

    /// The call that failed; empty if none did.
    #[track_caller]
    pub fn at(&self) -> String {
        self.tried()["at"].as_str().unwrap_or_default().to_owned()
    }

    /// End of the whole run.
    pub fn ended(&self) -> &ProgramOutcome {
        &self.ended
    }

    /// The act was tried and succeeded.
    #[track_caller]
    pub fn assert_ok(&self) -> &Self {
        assert!(self.tried()["ok"] == true, "should have succeeded: {self}");
        self
    }

    /// The act was tried and failed with this errno.
    #[track_caller]
    pub fn assert_errno(&self, wanted: i32) -> &Self {
        self.assert_errno_any(&[wanted])
    }

    /// The act was tried and failed with one of these.
    #[track_caller]
    pub fn assert_errno_any(&self, wanted: &[i32]) -> &Self {
        let names: Vec<&str> = wanted.iter().map(|&number| errno::name(number)).collect();
        match self.errno() {
            Some(number) if wanted.contains(&number) => self,
            Some(_) | None => panic!("should have failed with {}: {self}", names.join(" or ")),
        }
    }

    /// The act was tried and its process was killed by this signal.
    #[track_caller]
    pub fn assert_killed_by(&self, signal: i32) -> &Self {
        assert_eq!(self.tried()["signal"].as_i64(), Some(i64::from(signal)), "{self}");
        self
    }
}
