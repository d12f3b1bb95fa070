//! A person at a terminal: a shell in a tmux of its own, keys typed there, and what the screen then shows.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::environment::TestEnv;

/// Longer than any program takes to answer a key on a machine that is busy with other tests.
const TOO_LONG: Duration = Duration::from_secs(60);

/// A shell of the target's user, on the target's host, in a terminal of 80 columns and 24 rows. It ends when dropped.
#[derive(Debug)]
pub struct UserShell<'a> {
    env: &'a TestEnv,
    socket: PathBuf,
    marks: u32,
    /// Held so that the number of the person's terminal is not one that a session of callgate counts up to.
    _numbers: Vec<File>,
}

impl<'a> UserShell<'a> {
    /// Sits down before the target's host.
    #[track_caller]
    pub fn new(env: &'a TestEnv) -> Self {
        let numbers = (0..8).map(|_| File::options().read(true).write(true).open("/dev/ptmx").expect("a terminal"));
        let person = Self { env, socket: env.outside().join("tmux.socket"), marks: 0, _numbers: numbers.collect() };
        let socket = person.socket.to_str().expect("test names are text");
        let words = ["tmux", "-S", socket, "-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24"];
        let mut command = env.weakened().command(&[&words[..], &["bash", "--norc", "--noprofile"]].concat());
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", env.outside())
            .env("SHELL", "/bin/bash")
            .env("LC_ALL", "C.UTF-8")
            .env("PS1", "outer> ");
        let status = command.status().expect("tmux is installed (.ci/test does so)");
        assert!(status.success(), "{command:?}: {status}");
        person.shows("outer>");
        person
    }

    fn tmux(&self, words: &[&str]) -> String {
        let mut command = Command::new("tmux");
        let output = command.arg("-S").arg(&self.socket).args(words).output().expect("tmux is installed");
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Text on the screen.
    pub fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen holds this.
    #[track_caller]
    pub fn shows(&self, text: &str) {
        self.waits_for(text, |screen| screen.contains(text));
    }

    /// Waits until a line of the screen is this.
    #[track_caller]
    pub fn shows_line(&self, line: &str) {
        self.waits_for(line, |screen| screen.lines().any(|each| each.trim_end() == line));
    }

    /// Waits until what the screen shows satisfies `holds`.
    #[track_caller]
    pub fn waits_for(&self, what: &str, holds: impl Fn(&str) -> bool) {
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if holds(&screen) {
                return;
            }
            assert!(start.elapsed() < TOO_LONG, "not within {TOO_LONG:?}: {what}, on the screen\n{screen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Types these characters as they are.
    pub fn types(&self, text: &str) {
        self.tmux(&["send-keys", "-l", "--", text]);
    }

    /// Presses keys by tmux's names: `Enter`, `Escape`, `C-c`.
    pub fn presses(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"][..], keys].concat());
    }

    /// Types a line.
    pub fn enters(&self, line: &str) {
        self.types(line);
        self.presses(&["Enter"]);
    }

    /// Waits until a shell asks for a line: what is typed before may be for the program that is about to end.
    #[track_caller]
    pub fn is_asked(&self) {
        let prompts = ["outer>", "inner>"];
        self.waits_for("a prompt", |screen| {
            let line = screen.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
            prompts.iter().any(|prompt| line.trim_end().ends_with(prompt))
        });
    }

    /// At a shell's prompt, starts a line on a cleared screen.
    #[track_caller]
    pub fn starts(&self, line: &str) {
        self.is_asked();
        self.enters(&format!("clear; {line}"));
    }

    /// At a shell's prompt, has it run a line to its end; gives what that printed, as the screen shows it, line by line.
    /// `$?` is that of the line before. The screen is cleared first.
    #[track_caller]
    pub fn asks(&mut self, line: &str) -> Vec<String> {
        self.marks += 1;
        // Typed, the marks look different.
        let (begin, end) = (format!("<{}>", self.marks), format!("</{}>", self.marks));
        self.is_asked();
        self.enters(&format!("s=$?; clear; echo '<'{n}'>'; (exit $s); {line}; echo '</'{n}'>'", n = self.marks));
        let between = |screen: &str| -> Option<Vec<String>> {
            let mut lines = screen.lines().map(str::trim_end).skip_while(|each| *each != begin).skip(1);
            let mut held = Vec::new();
            loop {
                let line = lines.next()?;
                match line.strip_suffix(end.as_str()) {
                    Some("") => return Some(held),
                    // What ends in no line feed.
                    Some(rest) => return Some([held, vec![rest.to_owned()]].concat()),
                    None => held.push(line.to_owned()),
                }
            }
        };
        self.waits_for(&end, |screen| between(screen).is_some());
        between(&self.screen()).expect("seen a moment ago")
    }

    /// Gives the terminal another size.
    pub fn resizes(&self, columns: u16, rows: u16) {
        self.tmux(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]);
    }

    /// The name of the person's terminal.
    pub fn terminal(&self) -> String {
        self.tmux(&["display-message", "-p", "#{pane_tty}"]).trim().to_owned()
    }

    /// The terminal's modes, as stty(1) writes them down.
    pub fn modes(&self) -> String {
        let file = File::options().read(true).write(true).open(self.terminal()).expect("the tests' user may");
        let output = Command::new("stty").arg("-g").stdin(file).output().expect("stty is in coreutils");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The command line that runs `words` under callgate, on this host already.
    pub fn sandboxed(&self, words: &str) -> String {
        self.sandboxed_with(&[], words)
    }

    /// Types a sandboxed command with flags of `callgate run`.
    pub fn sandboxed_with(&self, flags: &[&str], words: &str) -> String {
        let run = self.env.sandbox().flag(flags);
        let command = run.command(&[]);
        let args: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy().into_owned()).collect();
        // What `weaken` would do is done: all here is its child.
        let at = args.iter().position(|arg| arg == "run").expect("a run under callgate");
        let callgate = crate::binaries::Binaries::of_this_build().callgate();
        format!("{} {} {words}", callgate.display(), args[at..].join(" "))
    }

    /// The callgate that the shell has started.
    #[track_caller]
    pub fn callgate(&self) -> String {
        let shell = self.tmux(&["display-message", "-p", "#{pane_pid}"]).trim().to_owned();
        let path = format!("/proc/{shell}/task/{shell}/children");
        let children = std::fs::read_to_string(&path).expect("the shell runs");
        let mut children = children.split_whitespace();
        let first = children.next().unwrap_or_else(|| panic!("nothing runs in the terminal:\n{}", self.screen()));
        first.to_owned()
    }
}

impl Drop for UserShell<'_> {
    fn drop(&mut self) {
        // It may be gone with its last window.
        drop(Command::new("tmux").arg("-S").arg(&self.socket).arg("kill-server").output());
    }
}
