//! Which programs may be started, and how an exec is judged.
//!
//! What is told apart are files, by device and inode: names are the caller's text. A granted program comes with what the
//! kernel starts for it: the interpreters of a script, as far as they run that script, and the dynamic loader, which is
//! let be opened for that and never started itself (C8). What the worker finds on the host becomes [`Starts`]; the judgement
//! is here, without a file system.
//!
//! Of the programs of a tree nothing is known before they are started: what is held is the directory, and the worker finds out
//! whether a file lies below it each time ([`Located`]). So they bring nothing with them: what interprets a script of a tree
//! must be granted itself, and a loader must be another program's too. A loader that lies in a tree is not started there either:
//! a tree is granted for the programs in it, and a loader starts whatever its arguments name (C8).
//!
//! `argv[0]` is the caller's text too, but some programs do what it says: busybox, and git as `git-rm` (C11). Where arguments
//! are judged it must be the name that was granted, or they would be the arguments of another program in the same file.

mod environment;
mod header;

use serde::{Deserialize, Serialize};

pub use self::environment::Environment;
pub use self::header::{HEADER_BYTES, Header, is_program, read_header, started_by_env};
use crate::pattern::{ArgPatterns, ProgramPattern};

/// Programs that callgate starts itself for a call, whatever is granted: the shell of `bash`. It is executable, and a
/// call that starts it again is refused unless it is granted.
pub const OWN_STARTS: &[&str] = &["/bin/bash"];

/// Programs that a session may start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exec {
    /// Whatever the rules for files let be executed, with any arguments. Nobody is asked.
    #[default]
    Any,
    /// Programs that match one of these, and what callgate itself starts for a call.
    Only(Vec<ProgramRule>),
}

impl Exec {
    /// True if starting a program is asked about.
    #[must_use]
    pub fn is_judged(&self) -> bool {
        matches!(self, Self::Only(_))
    }

    /// Its rules.
    #[must_use]
    pub fn rules(&self) -> &[ProgramRule] {
        match self {
            Self::Any => &[],
            Self::Only(rules) => rules,
        }
    }

    /// True if every rule names its program or its tree, so that the kernel can be told what may be executed.
    #[must_use]
    pub fn names_all(&self) -> bool {
        self.is_judged() && self.rules().iter().all(|rule| rule.programs != ProgramPattern::Any)
    }

    /// True if a rule says something about arguments, which only the kernel's own copy of them can be held to.
    #[must_use]
    pub fn judges_arguments(&self) -> bool {
        self.rules().iter().any(|rule| !rule.args.is_any())
    }
}

/// Programs and their arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramRule {
    /// Which.
    pub programs: ProgramPattern,
    /// Patterns that `argv[1..]` must match.
    pub args: ArgPatterns,
    /// Where it came from, for people.
    pub source: String,
}

/// Identity of a file, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
}

/// Where a file lies, as the kernel has it when the file is started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Located {
    /// The directories that hold it, of those below which programs are granted.
    pub below: Vec<FileId>,
    /// Its own name, directories left out; looked at only if it lies in one of them.
    pub name: Vec<u8>,
    /// It is a program by itself ([`is_program`]); looked at only if it lies in one of them.
    pub is_program: bool,
}

/// Which files a start is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartFiles {
    /// Any.
    Any,
    /// This one.
    One(FileId),
    /// Those that lie below this directory when they are started.
    Below(FileId),
}

/// Word in an interpreter's arguments before those of its script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InterpreterWord {
    /// This.
    Exact(Vec<u8>),
    /// A name of this file: the script.
    File(FileId),
}

/// One way in which something granted is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantedStart {
    /// Files that may be started.
    pub files: StartFiles,
    /// True if the kernel runs the file itself, and not an interpreter for it, which has a `GrantedStart` of its own.
    pub is_image: bool,
    /// That interpreter, of a script.
    pub run_by: Option<FileId>,
    /// The name that it was granted by, directories left out; `None` for any. Where the arguments are judged, it must be
    /// started by that name, and a file of a tree by its own.
    pub called: Option<Vec<u8>>,
    /// It must be started by that name whatever its arguments: of a file that is several programs, this one.
    pub by_name: bool,
    /// Words before the granted arguments.
    pub head: Vec<InterpreterWord>,
    /// The granted arguments.
    pub args: ArgPatterns,
}

impl GrantedStart {
    /// True if this argument vector is granted. `names` tells whether a word is a name of a file.
    fn takes<A: AsRef<[u8]>>(
        &self,
        argv: &[A],
        located: &Located,
        names: &mut impl FnMut(&[u8], FileId) -> bool,
    ) -> bool {
        let (name, args) = argv.split_first().map_or((&b""[..], argv), |(name, args)| (name.as_ref(), args));
        let Some((head, rest)) = args.split_at_checked(self.head.len()) else { return false };
        self.is_called(name, located)
            && self.args.matches(rest)
            && self.head.iter().zip(head).all(|(word, arg)| match word {
                InterpreterWord::Exact(text) => text == arg.as_ref(),
                InterpreterWord::File(file) => names(arg.as_ref(), *file),
            })
    }

    /// True if all that the file can do is granted.
    fn is_whole(&self) -> bool {
        self.is_image && self.head.is_empty() && self.args.is_any()
    }

    /// True if it may go by this name (C11). A script never learns its own: the kernel puts its interpreter's there.
    fn is_called(&self, name: &[u8], located: &Located) -> bool {
        let base = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
        let any_arguments = self.head.is_empty() && self.args.is_any();
        let called = match self.files {
            StartFiles::Below(_) => Some(located.name.as_slice()),
            StartFiles::Any | StartFiles::One(_) => self.called.as_deref(),
        };
        (any_arguments && !self.by_name) || !self.is_image || called.is_none_or(|called| called == base)
    }

    /// True if it starts this file, which it is of: a directory is granted for the programs in it.
    fn starts(&self, located: &Located) -> bool {
        located.is_program || !matches!(self.files, StartFiles::Below(_))
    }

    fn is_of(&self, file: FileId, located: &Located) -> bool {
        match self.files {
            StartFiles::Any => true,
            StartFiles::One(mine) => mine == file,
            StartFiles::Below(directory) => located.below.contains(&directory),
        }
    }
}

/// Judgement on a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartJudgement {
    /// It is granted.
    Granted,
    /// It is not.
    NotGranted,
    /// The interpreter that the script names is not granted.
    Interpreter(Vec<u8>),
    /// It lies in a directory that is, and is no program by itself.
    Library,
    /// It would be, but for this variable of its environment.
    Steered(Vec<u8>),
}

impl StartJudgement {
    /// Reason for a refusal, for people; `None` if it is granted.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        match self {
            Self::Granted => None,
            Self::NotGranted => Some("it is not granted".to_owned()),
            Self::Interpreter(path) => Some(format!(
                "it is granted with all that lies in its directory, and {}, which interprets it, is not granted so",
                String::from_utf8_lossy(path).escape_debug()
            )),
            Self::Library => Some(
                "it lies in a granted directory, and is no program by itself: a library or a dynamic loader, or a file \
                 that cannot be read"
                    .to_owned(),
            ),
            Self::Steered(name) => Some(format!(
                "its environment has not the session's {}, which could have it do something else than was granted; set it \
                 in [env], or grant the program without `args`",
                String::from_utf8_lossy(name).escape_debug()
            )),
        }
    }
}

/// A start as it is told: from the caller's memory, or from the kernel's own copy.
#[derive(Debug)]
pub struct StartRequest<'a, A> {
    /// The file that is named, or that runs.
    pub file: FileId,
    /// Where it lies.
    pub located: &'a Located,
    /// The argument vector.
    pub argv: &'a [A],
    /// `NAME=value`, all of them, where [`Starts::looks_at_environment`] says so.
    pub environment: &'a [A],
}

impl<A> Clone for StartRequest<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for StartRequest<'_, A> {}

/// Meaning of a word of an argument vector or an environment, where the program is started.
pub trait WordMeaning {
    /// True if a word is a name of a file, and stays one.
    fn names(&self, word: &[u8], file: FileId) -> bool;
    /// True if a directory is one that the session cannot change, nor what leads to it.
    fn is_fixed(&self, directory: &[u8]) -> bool;
}

/// All that may be started in a session, as it was found when the session was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Starts {
    starts: Vec<GrantedStart>,
    loaders: Vec<FileId>,
    environment: Environment,
}

impl Starts {
    /// None yet, in a session with this environment.
    #[must_use]
    pub fn with(environment: Environment) -> Self {
        Self { environment, ..Self::default() }
    }

    /// Adds one.
    pub fn add(&mut self, start: GrantedStart) {
        if !self.starts.contains(&start) {
            self.starts.push(start);
        }
    }

    /// A dynamic loader, which is not started as a program, whatever else is granted.
    pub fn add_loader(&mut self, loader: FileId) {
        if !self.loaders.contains(&loader) {
            self.loaders.push(loader);
        }
    }

    /// Judges whether starting the named file could be granted, from the caller's memory, which it may change. So this
    /// refuses, and never allows.
    pub fn could_start<A: AsRef<[u8]>>(&self, asked: StartRequest<'_, A>, look: &impl WordMeaning) -> StartJudgement {
        self.judge(asked, look, |_| true)
    }

    /// Judges whether what the kernel has made ready to run is granted: the file is what it runs, and the vector its
    /// own copy.
    pub fn admits<A: AsRef<[u8]>>(&self, asked: StartRequest<'_, A>, look: &impl WordMeaning) -> StartJudgement {
        self.judge(asked, look, |start| start.is_image)
    }

    fn judge<A: AsRef<[u8]>>(
        &self,
        StartRequest { file, located, argv, environment }: StartRequest<'_, A>,
        look: &impl WordMeaning,
        counts: impl Fn(&GrantedStart) -> bool,
    ) -> StartJudgement {
        if self.loaders.contains(&file) {
            return StartJudgement::NotGranted;
        }
        let starts = self.starts.iter().filter(|start| counts(start) && start.is_of(file, located));
        let mut names = |word: &[u8], file| look.names(word, file);
        let mut granted = starts.filter(|start| start.takes(argv, located, &mut names)).peekable();
        if granted.peek().is_none() {
            return StartJudgement::NotGranted;
        }
        let mut granted = granted.filter(|start| start.starts(located)).peekable();
        if granted.peek().is_none() {
            return StartJudgement::Library;
        }
        if granted.any(|start| !self.binds(start)) {
            return StartJudgement::Granted;
        }
        let steered = self.environment.steered_by(environment, |directory| look.is_fixed(directory));
        steered.map_or(StartJudgement::Granted, StartJudgement::Steered)
    }

    /// True if the environment has a say in whether a file may be started.
    #[must_use]
    pub fn looks_at_environment(&self, file: FileId, located: &Located) -> bool {
        self.starts.iter().any(|start| start.is_of(file, located) && self.binds(start))
    }

    /// True if only some of what a file can do is granted: then its environment must not say something else. A script
    /// is whatever its interpreter makes of it.
    fn binds(&self, start: &GrantedStart) -> bool {
        // One that is granted with its tree alone counts as bound: where it lies is not known here.
        let nowhere = Located::default();
        let whole = |file| self.starts.iter().any(|start| start.is_of(file, &nowhere) && start.is_whole());
        let is_script = start.run_by.is_some_and(whole) && start.args.is_any();
        !start.is_whole() && !is_script
    }

    /// How many arguments [`Starts::could_start`] looks at for a file, at most; `None` if it is not granted at all.
    #[must_use]
    pub fn looks_at(&self, file: FileId, located: &Located) -> Option<usize> {
        if self.loaders.contains(&file) {
            return None;
        }
        let of_it = self.starts.iter().filter(|start| start.is_of(file, located));
        of_it.map(|start| start.head.len() + start.args.looks_at()).max()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use super::*;

    fn id(inode: u64) -> FileId {
        FileId { device: 1, inode }
    }

    fn args(json: &str) -> ArgPatterns {
        serde_json::from_str(json).unwrap()
    }

    const GIT: u64 = 1;
    const SCRIPT: u64 = 2;
    const PYTHON: u64 = 3;
    const LOADER: u64 = 9;

    /// `git log <rest>`, and a script with `#!/usr/bin/python3 -u` that takes one argument.
    fn starts() -> Starts {
        let mut starts = Starts::default();
        let log = args(r#"["log", {"rest": true}]"#);
        let called = |name: &str| Some(name.as_bytes().to_vec());
        starts.add(GrantedStart {
            files: StartFiles::One(id(GIT)),
            is_image: true,
            run_by: None,
            called: called("git"),
            by_name: false,
            head: vec![],
            args: log,
        });
        let one = args(r#"[{"wildcard": true}]"#);
        starts.add(GrantedStart {
            files: StartFiles::One(id(SCRIPT)),
            is_image: false,
            run_by: Some(id(PYTHON)),
            called: called("script"),
            by_name: false,
            head: vec![],
            args: one.clone(),
        });
        let head = vec![InterpreterWord::Exact(b"-u".to_vec()), InterpreterWord::File(id(SCRIPT))];
        starts.add(GrantedStart {
            files: StartFiles::One(id(PYTHON)),
            is_image: true,
            run_by: None,
            called: called("python3"),
            by_name: false,
            head,
            args: one,
        });
        starts.add_loader(id(LOADER));
        starts
    }

    /// All that a program does, by any name or, if it is given, by that one alone.
    fn whole(files: StartFiles, by_name: Option<&str>) -> GrantedStart {
        let called = by_name.map(|name| name.as_bytes().to_vec());
        let by_name = by_name.is_some();
        GrantedStart { files, is_image: true, run_by: None, called, by_name, head: vec![], args: ArgPatterns::any() }
    }

    struct ScriptHere;

    impl WordMeaning for ScriptHere {
        fn names(&self, word: &[u8], file: FileId) -> bool {
            word == b"./script" && file == id(SCRIPT)
        }

        fn is_fixed(&self, directory: &[u8]) -> bool {
            directory.starts_with(b"/usr/")
        }
    }

    const NOWHERE: &Located = &Located { below: Vec::new(), name: Vec::new(), is_program: false };

    fn asked<'a>(file: u64, argv: &'a [&'a str]) -> StartRequest<'a, &'a str> {
        StartRequest { file: id(file), located: NOWHERE, argv, environment: &[] }
    }

    fn admits(file: u64, name: &str, args: &[&str]) -> bool {
        starts().admits(asked(file, &[&[name], args].concat()), &ScriptHere) == StartJudgement::Granted
    }

    /// C2, C6: what counts is the file and what follows argv[0].
    #[test]
    fn a_program_is_its_file_and_its_arguments() {
        let admits = |file, args: &[&str]| admits(file, "/usr/bin/git", args);
        assert!(admits(GIT, &["log"]) && admits(GIT, &["log", "-p"]));
        assert!(!admits(GIT, &["push"]) && !admits(GIT, &[]) && !admits(GIT, &["-c", "x", "log"]));
        assert!(!admits(7, &["log"]), "another file by the same name");
    }

    /// C9: an interpreter that was not granted runs the granted script, as the kernel starts it, and nothing else.
    #[test]
    fn an_interpreter_runs_its_script_alone() {
        let admits = |file, args: &[&str]| admits(file, "python3", args);
        assert!(admits(PYTHON, &["-u", "./script", "x"]));
        for other in [&["-c", "import os"][..], &["-u", "./other", "x"], &["-u", "./script"], &["./script", "x"], &[]] {
            assert!(!admits(PYTHON, other), "{other:?}");
        }
        assert!(!admits(SCRIPT, &["x"]), "the kernel runs no script itself");
        let could =
            |file, argv: &[&str]| starts().could_start(asked(file, argv), &ScriptHere) == StartJudgement::Granted;
        assert!(could(SCRIPT, &["./script", "x"]) && !could(SCRIPT, &["script"]));
        assert!(could(GIT, &["git", "log"]) && !could(GIT, &["git", "push"]) && !could(GIT, &["git-rm", "log"]));
    }

    /// C11: `argv[0]` may make another program of a file, so that arguments are granted to one name.
    #[test]
    fn arguments_are_granted_to_a_name() {
        for name in ["git", "./git", "/usr/libexec/git"] {
            assert!(admits(GIT, name, &["log"]), "{name}");
        }
        for name in ["git-rm", "/usr/libexec/git-core/git-rm", "-git", "git/", "", "log"] {
            assert!(!admits(GIT, name, &["log"]), "{name}");
        }
        assert!(admits(PYTHON, "python3", &["-u", "./script", "x"]) && !admits(PYTHON, "sh", &["-u", "./script", "x"]));
        assert_eq!(starts().admits(asked(GIT, &[]), &ScriptHere), StartJudgement::NotGranted, "no vector at all");
        // With any arguments, all that the file does is granted.
        let mut any = Starts::default();
        any.add(GrantedStart { called: Some(b"git".to_vec()), ..whole(StartFiles::One(id(GIT)), None) });
        assert_eq!(any.admits(asked(GIT, &["git-rm", "x"]), &ScriptHere), StartJudgement::Granted);
        // Unless it is granted by its name.
        let mut named = Starts::default();
        named.add(whole(StartFiles::One(id(GIT)), Some("git")));
        assert_eq!(named.admits(asked(GIT, &["git-rm", "x"]), &ScriptHere), StartJudgement::NotGranted);
        assert_eq!(named.admits(asked(GIT, &["/usr/bin/git", "x"]), &ScriptHere), StartJudgement::Granted);
    }

    /// C8: a loader is not started, even where any program is granted.
    #[test]
    fn a_loader_is_no_program() {
        let mut any = starts();
        any.add(whole(StartFiles::Any, None));
        assert_eq!(any.admits(asked(7, &["x"]), &ScriptHere), StartJudgement::Granted);
        assert_eq!(any.admits(asked(LOADER, &["./file"]), &ScriptHere), StartJudgement::NotGranted);
        assert_eq!(any.could_start(asked(LOADER, &["./file"]), &ScriptHere), StartJudgement::NotGranted);
        assert_eq!(any.looks_at(id(LOADER), NOWHERE), None);
    }

    /// Where only some of what a program does is granted, its environment is the session's: of a grant with `args`, and of an
    /// interpreter that runs its script alone. A program that may do all is not asked about it.
    #[test]
    fn the_environment_of_what_is_bound_is_the_sessions() {
        let judged = |file, argv: &[&str], environment: &[&str]| {
            let asked = StartRequest { file: id(file), located: NOWHERE, argv, environment };
            (starts().could_start(asked, &ScriptHere), starts().admits(asked, &ScriptHere))
        };
        let steered = || StartJudgement::Steered(b"BASH_ENV".to_vec());
        assert_eq!(judged(GIT, &["git", "log"], &["LANG=C"]), (StartJudgement::Granted, StartJudgement::Granted));
        assert_eq!(judged(GIT, &["git", "log"], &["BASH_ENV=x"]), (steered(), steered()));
        assert_eq!(judged(PYTHON, &["python3", "-u", "./script", "x"], &["BASH_ENV=x"]), (steered(), steered()));
        assert_eq!(judged(SCRIPT, &["./script", "x"], &["BASH_ENV=x"]).0, steered());
        assert_eq!(judged(GIT, &["git", "push"], &["BASH_ENV=x"]).0, StartJudgement::NotGranted);
        assert!(starts().looks_at_environment(id(GIT), NOWHERE) && starts().looks_at_environment(id(SCRIPT), NOWHERE));
        let mut all = starts();
        all.add(whole(StartFiles::One(id(GIT)), None));
        let asked = StartRequest { environment: &["BASH_ENV=x"], ..asked(GIT, &["git", "log"]) };
        assert_eq!(all.admits(asked, &ScriptHere), StartJudgement::Granted);
        let refusal = steered().refusal().unwrap();
        assert!(refusal.contains("BASH_ENV"), "{refusal}");
    }

    #[test]
    fn no_more_is_read_than_is_judged() {
        assert_eq!(starts().looks_at(id(GIT), NOWHERE), Some(1));
        assert_eq!(starts().looks_at(id(SCRIPT), NOWHERE), Some(2), "one, and one too many");
        assert_eq!(starts().looks_at(id(PYTHON), NOWHERE), Some(4));
        assert_eq!(starts().looks_at(id(7), NOWHERE), None);
    }

    /// A tree grants what lies in it when it is started, whatever the file, and nothing by a name that was left behind.
    /// With arguments each goes by its own name, and its environment is the session's. A loader stays none.
    #[test]
    fn s0_39_a_tree_grants_what_lies_in_it() {
        const TREE: u64 = 20;
        let tree = |args: ArgPatterns| {
            let mut starts = starts();
            starts.add(GrantedStart { args, ..whole(StartFiles::Below(id(TREE)), None) });
            starts
        };
        let inside = Located { below: vec![id(TREE)], name: b"x".to_vec(), is_program: true };
        let elsewhere = Located { below: vec![id(21)], name: b"x".to_vec(), is_program: true };
        let any = tree(ArgPatterns::any());
        for (located, wanted) in [
            (&inside, StartJudgement::Granted),
            (&elsewhere, StartJudgement::NotGranted),
            (NOWHERE, StartJudgement::NotGranted),
        ] {
            for file in [7, 8] {
                let asked = StartRequest { located, environment: &["BASH_ENV=x"], ..asked(file, &["y", "z"]) };
                assert_eq!(
                    (any.could_start(asked, &ScriptHere), any.admits(asked, &ScriptHere)),
                    (wanted.clone(), wanted.clone())
                );
            }
        }
        assert_eq!((any.looks_at(id(7), &inside), any.looks_at(id(7), NOWHERE)), (Some(0), None));
        assert_eq!(
            any.admits(StartRequest { located: &inside, ..asked(LOADER, &["x"]) }, &ScriptHere),
            StartJudgement::NotGranted
        );
        // A loader that only lies there, or a library (C8); one that is granted by itself is somebody's choice.
        let library = Located { is_program: false, ..inside.clone() };
        let asked_of = |file, argv| StartRequest { located: &library, ..asked(file, argv) };
        assert_eq!(any.could_start(asked_of(7, &["x", "y"]), &ScriptHere), StartJudgement::Library);
        assert_eq!(any.admits(asked_of(7, &["x", "y"]), &ScriptHere), StartJudgement::Library);
        assert_eq!(any.admits(asked_of(GIT, &["git", "log"]), &ScriptHere), StartJudgement::Granted);
        let one = tree(args(r#"["one"]"#));
        let judged = |argv: &[&str], environment: &[&str]| {
            one.admits(StartRequest { file: id(7), located: &inside, argv, environment }, &ScriptHere)
        };
        assert_eq!(judged(&["./x", "one"], &[]), StartJudgement::Granted);
        for argv in [&["y", "one"][..], &["x"], &["x", "two"], &["x", "one", "one"]] {
            assert_eq!(judged(argv, &[]), StartJudgement::NotGranted, "{argv:?}");
        }
        assert_eq!(judged(&["x", "one"], &["BASH_ENV=x"]), StartJudgement::Steered(b"BASH_ENV".to_vec()));
    }
}
