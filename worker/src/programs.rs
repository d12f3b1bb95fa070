//! Finds on this host what a session may start: the granted programs, what interprets them, and what loads them.
//!
//! Done by the broker before it is confined, in the session's mount namespace, where names mean what they will mean to the
//! session. Nothing is found again later: a file that takes another's place is another file.

mod helpers;
mod trees;

use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use callgate_policy::path::HostPath;
use callgate_policy::pattern::{ArgPatterns, ProgramPattern};
use callgate_policy::plan::SessionPlan;
use callgate_policy::plan::exec::{
    Environment, FileId, GrantedStart, HEADER_BYTES, Header, InterpreterWord, OWN_STARTS, ProgramRule, StartFiles,
    Starts, read_header, started_by_env,
};
use rustix::fs::{FileType, Mode, OFlags};

use self::helpers::Helpers;
pub(crate) use self::trees::{ProgramTree, locate};
use crate::asked::AskedPlaces;
use crate::mountinfo::{self, Mount};
use crate::protocol::StepFailure;
use crate::sys::fd::path_of;
use crate::way::{FollowedPath, is_the_systems};

/// How deep the kernel follows interpreters that are scripts themselves (fs/exec.c).
pub(crate) const DEPTH: u8 = 5;

/// Loaders that programs have which no rule names; where any program may be started, these may not (C8).
const LOADERS: &[&str] = &[
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/ld-linux.so.2",
    "/lib/ld-linux-aarch64.so.1",
    "/lib/ld-linux-armhf.so.3",
    "/libx32/ld-linux-x32.so.2",
    "/lib/ld-musl-x86_64.so.1",
    "/lib/ld-musl-i386.so.1",
    "/lib/ld-musl-aarch64.so.1",
];

/// Programs that were found.
#[derive(Default)]
pub(crate) struct FoundPrograms {
    /// Where the session may read.
    readable: Vec<PathBuf>,
    /// Where it may write, or an earlier session of its workspace.
    changeable: Vec<PathBuf>,
    /// Where calls of an earlier session could have changed something that was bounded less.
    asked: AskedPlaces,
    /// By which those have further names; without them anything may be one.
    mounts: Option<Vec<Mount>>,
    pub(crate) starts: Starts,
    /// The files that the kernel must be let execute for it.
    pub(crate) files: Vec<OwnedFd>,
    /// The directories below which everything may be started.
    pub(crate) trees: Vec<ProgramTree>,
    known: Vec<FileId>,
    /// Granted, and not there.
    pub(crate) missing: Vec<ProgramPattern>,
    /// Granted, and not to be read, without which nothing is started.
    pub(crate) unreadable: Vec<ProgramPattern>,
}

/// Finds what a plan grants.
pub(crate) fn find(plan: &SessionPlan, path: &[PathBuf], readable: &[PathBuf]) -> Result<FoundPrograms, StepFailure> {
    let mut found = FoundPrograms::of(plan, readable);
    for rule in plan.exec.rules() {
        let ProgramRule { programs, args, source: _ } = rule;
        match programs {
            ProgramPattern::Any => found.starts.add(all_of(StartFiles::Any, args)),
            ProgramPattern::One(program) => found.add_one(program, None, rule, plan, path),
            ProgramPattern::Below(directory) => match ProgramTree::open(directory, plan)? {
                None => found.missing.push(programs.clone()),
                Some(tree) => {
                    if !found.may_read_some_of(&tree) {
                        found.unreadable.push(programs.clone());
                    }
                    found.starts.add(all_of(StartFiles::Below(tree.id()), args));
                    found.trees.push(tree);
                }
            },
            ProgramPattern::OneBelow { path: program, directory } => match ProgramTree::open(directory, plan)? {
                None => found.missing.push(programs.clone()),
                Some(tree) => found.add_one(program, Some(&tree), rule, plan, path),
            },
        }
    }
    Ok(found)
}

/// All that these files do with these arguments.
fn all_of(files: StartFiles, args: &ArgPatterns) -> GrantedStart {
    let (head, args) = (Vec::new(), args.clone());
    GrantedStart { files, is_image: true, run_by: None, called: None, by_name: false, head, args }
}

/// Finds what calls may start that only read: each program by its name, whatever else its file can be, with any arguments. What is
/// not there is not missed.
pub(crate) fn find_for_reading(
    plan: &SessionPlan,
    programs: &[HostPath],
    path: &[PathBuf],
    readable: &[PathBuf],
) -> FoundPrograms {
    let mut found = FoundPrograms::of(plan, readable);
    for program in programs {
        if let Some(file) = look_up(program, path) {
            for file in std::iter::once(&file).chain(&helpers::of(&file, plan).itself) {
                // Not there: one start less.
                let _there = found.add(file, Named::Granted, Vec::new(), (&ArgPatterns::any(), true), path, DEPTH);
            }
        }
    }
    found
}

/// Where a name or path leads, as execvp(3) finds it.
#[expect(clippy::disallowed_methods, reason = "only says what to open; what is granted is the file that is then held")]
fn look_up(program: &HostPath, path: &[PathBuf]) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.as_path().to_owned());
    }
    path.iter().map(|dir| dir.join(program.as_path())).find(|file| {
        rustix::fs::stat(file).is_ok_and(|stat| {
            FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_mode & 0o111 != 0
        })
    })
}

/// File that a program names, to be opened.
#[derive(Clone, Copy)]
enum Named<'a> {
    /// Somebody who grants it.
    Granted,
    /// The file, if it lies in this tree.
    InATree(&'a ProgramTree),
    /// Another program's file. If calls can change that, it may have come from one; if not, nothing that calls can change is
    /// meant by it.
    InAFile { changes: bool },
}

/// Whose calls may have changed something. What only an earlier session's could is no leave to be led anywhere.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    /// This session's, or another's of its workspace.
    This,
    /// Those of an earlier one as well, that was bounded less.
    EarlierToo,
}

/// A regular file that is open for reading.
struct File {
    fd: OwnedFd,
    id: FileId,
}

impl File {
    #[expect(
        clippy::disallowed_methods,
        reason = "a granted program is a path: it is opened once, as the session's user, and the file is held"
    )]
    fn open(path: &Path) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&fd).ok()?;
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        regular.then(|| Self { fd, id: trees::file_of(&stat) })
    }

    /// True if this is what its path spells, without links.
    fn is_at(&self, path: &Path) -> bool {
        path_of(self.fd.as_fd()).is_ok_and(|real| real == path)
    }

    /// True if it lies where the session may read.
    fn lies_in(&self, readable: &[PathBuf]) -> bool {
        path_of(self.fd.as_fd()).is_ok_and(|real| readable.iter().any(|tree| real.starts_with(tree)))
    }

    fn header(&self) -> Option<Header> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        let file = std::fs::File::from(rustix::io::dup(&self.fd).ok()?);
        file.take(HEADER_BYTES as u64).read_to_end(&mut bytes).ok()?;
        Some(read_header(&bytes))
    }
}

impl FoundPrograms {
    /// Programs of a plan. What callgate starts itself is executable, and nothing that is granted; and loaders are not
    /// started.
    fn of(plan: &SessionPlan, readable: &[PathBuf]) -> Self {
        // Not what the session has of its own: a private `/tmp` is not where the host's programs are.
        let written = plan.grants.iter().filter(|rule| rule.access.changes()).map(|rule| &rule.path);
        // As they are spelt, and without links.
        let names = |path: &HostPath| {
            let real = FollowedPath::follow(path.as_path()).ok().and_then(|way| way.real_path().ok());
            std::iter::once(path.as_path().to_owned()).chain(real)
        };
        let changeable = written.chain(&plan.workspace).flat_map(names).collect();
        // A call of an earlier session that was bounded less may have written what this one was asked for.
        let asked = AskedPlaces::of(&plan.protection.asked, rustix::process::geteuid().as_raw());
        let (readable, starts) = (readable.to_vec(), Starts::with(Environment::of(&plan.env)));
        let mut found = Self { readable, changeable, asked, mounts: mountinfo::read().ok(), starts, ..Self::default() };
        for own in OWN_STARTS {
            found.executable(Path::new(own), Named::Granted);
        }
        for loader in LOADERS {
            if let Some(file) = File::open(Path::new(loader)) {
                found.starts.add_loader(file.id);
            }
        }
        found
    }

    /// Lets the program of a rule be started, if it is there, and in this tree if there is one.
    fn add_one(
        &mut self,
        program: &HostPath,
        tree: Option<&ProgramTree>,
        rule: &ProgramRule,
        plan: &SessionPlan,
        path: &[PathBuf],
    ) {
        let named = tree.map_or(Named::Granted, Named::InATree);
        let mut grant = |file: &PathBuf| self.add(file, named, Vec::new(), (&rule.args, false), path, DEPTH).is_some();
        match look_up(program, path).filter(|file| grant(file)) {
            Some(file) => self.add_helpers((helpers::of(&file, plan), self.named_by(&file)), &rule.args, path),
            None => self.missing.push(rule.programs.clone()),
        }
    }

    /// True if calls can have something else be found at a path: by what lies there, or by a link on the way. `None`
    /// where the mounts are not known by which it may have another name.
    fn changes(&self, path: &Path, who: Who) -> Option<bool> {
        let by_name = |at: &Path| {
            let asked = || who == Who::EarlierToo && self.asked.holds(at);
            self.changeable.iter().any(|tree| at.starts_with(tree)) || asked()
        };
        let mounts = self.mounts.as_ref()?;
        let within = |at: &Path| by_name(at) || mountinfo::other_names(mounts, at).iter().any(|name| by_name(name));
        let Ok(way) = FollowedPath::follow(path) else { return Some(within(path)) };
        let by_link = || way.links.iter().any(|link| within(&link.path));
        Some(within(path) || way.real_path().is_ok_and(|real| within(&real)) || by_link())
    }

    /// True unless it is certain that they do not: a file's other names may be anywhere.
    fn may_change(&self, path: &Path) -> bool {
        let Ok(way) = FollowedPath::follow(path) else { return self.changes(path, Who::EarlierToo) != Some(false) };
        // A file with a second name may have that where calls write, unless it comes with the system.
        let stat = way.stat();
        let is_linked = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_nlink > 1;
        // In a user namespace root's files are nobody's.
        let is_anothers = stat.st_uid == 0 || stat.st_uid != rustix::process::geteuid().as_raw();
        // Unless somebody works there.
        let works_there = self.asked.is_among_the_systems() || self.changeable.iter().any(|tree| is_the_systems(tree));
        let is_the_systems = is_anothers && !works_there && way.real_path().is_ok_and(|real| is_the_systems(&real));
        let is_linked = is_linked && !is_the_systems;
        is_linked || self.changes(path, Who::EarlierToo) != Some(false)
    }

    /// File that a program's file names.
    fn named_by(&self, program: &Path) -> Named<'static> {
        Named::InAFile { changes: self.changes(program, Who::This) == Some(true) }
    }

    /// True if anything in a tree could be read.
    fn may_read_some_of(&self, tree: &ProgramTree) -> bool {
        let overlaps = |real: &Path| self.readable.iter().any(|read| real.starts_with(read) || read.starts_with(real));
        path_of(tree.as_fd()).is_ok_and(|real| overlaps(&real))
    }

    /// Lets a program be started with these arguments, after these words, and by no other name if that is so. `None` if it is not
    /// there.
    fn add(
        &mut self,
        file: &Path,
        named: Named<'_>,
        head: Vec<InterpreterWord>,
        (args, by_name): (&ArgPatterns, bool),
        path: &[PathBuf],
        depth: u8,
    ) -> Option<FileId> {
        let (id, header) = self.executable(file, named)?;
        let start = |is_image, run_by| {
            let called = file.file_name().map(|name| name.as_bytes().to_vec());
            let (head, args) = (head.clone(), args.clone());
            GrantedStart { files: StartFiles::One(id), is_image, run_by, called, by_name, head, args }
        };
        match header {
            Header::Dynamic { .. } | Header::Image => self.starts.add(start(true, None)),
            Header::Text => self.starts.add(start(false, None)),
            Header::Script { interpreter, argument } => {
                let (line, named) = ((&*interpreter, argument), self.named_by(file));
                let run_by = if depth > 0 {
                    self.add_interpreter((line, named), (id, &head), args, path, depth - 1)
                } else {
                    None
                };
                self.starts.add(start(false, run_by));
            }
        }
        Some(id)
    }

    /// Lets what a program starts of its own be started. Under another path it is the same program: with granted arguments it
    /// takes these and no others. Helpers for single commands come with the whole program alone, for `args` do not say what
    /// they do.
    fn add_helpers(&mut self, (helpers, named): (Helpers, Named<'_>), args: &ArgPatterns, path: &[PathBuf]) {
        let others = if args.is_any() { helpers.others } else { Vec::new() };
        for helper in helpers.itself.iter().chain(&others) {
            // Not there: one start less.
            let _there = self.add(helper, named, Vec::new(), (args, false), path, DEPTH);
        }
    }

    /// The kernel puts the interpreter's argument and the script's name before the script's own arguments. What makes something of
    /// the script.
    fn add_interpreter(
        &mut self,
        ((interpreter, argument), named): ((&[u8], Option<Vec<u8>>), Named<'_>),
        (script, head): (FileId, &[InterpreterWord]),
        args: &ArgPatterns,
        path: &[PathBuf],
        depth: u8,
    ) -> Option<FileId> {
        let interpreter = Path::new(std::ffi::OsStr::from_bytes(interpreter));
        let after = |words: &[&[u8]]| -> Vec<InterpreterWord> {
            let words = words.iter().map(|word| InterpreterWord::Exact(word.to_vec()));
            words.chain([InterpreterWord::File(script)]).chain(head.iter().cloned()).collect()
        };
        let argument = argument.unwrap_or_default();
        let line: Vec<&[u8]> = if argument.is_empty() { vec![] } else { vec![&argument] };
        let run_by = self.add(interpreter, named, after(&line), (args, false), path, depth);
        if interpreter.file_name().is_some_and(|name| name == "env")
            && let Some((program, words)) = started_by_env(&argument)
            && let Some(file) = look_up(&program, path)
        {
            // What env(1) starts is an exec of its own.
            return self.add(&file, named, after(&words), (args, false), path, depth);
        }
        run_by
    }

    /// Lets the kernel open a file to execute it, and its loader: what may be executed may be read. So nothing is let be read
    /// that the grant does not spell, and that the session may not read anyway: where a link leads, and what a file names as its
    /// interpreter or loader, a call may have settled before (A2).
    fn executable(&mut self, path: &Path, named: Named<'_>) -> Option<(FileId, Header)> {
        let may_be_read = |file: &File| file.lies_in(&self.readable);
        let is_meant = |file: &File| match named {
            Named::Granted => file.is_at(path) || may_be_read(file),
            Named::InATree(tree) => {
                let lies_there = path_of(file.fd.as_fd()).is_ok_and(|real| tree.holds(file.id, &real));
                lies_there && (file.is_at(path) || may_be_read(file))
            }
            Named::InAFile { changes } => may_be_read(file) && (changes || !self.may_change(path)),
        };
        let file = File::open(path).filter(is_meant)?;
        let (id, header) = (file.id, file.header()?);
        if let Header::Dynamic { loader } = &header
            && let loader = Path::new(std::ffi::OsStr::from_bytes(loader))
            && (self.changes(path, Who::This) == Some(true) || !self.may_change(loader))
            && let Some(loader) = File::open(loader).filter(may_be_read)
        {
            self.starts.add_loader(loader.id);
            self.keep(loader);
        }
        self.keep(file);
        Some((id, header))
    }

    fn keep(&mut self, file: File) {
        if !self.known.contains(&file.id) {
            self.known.push(file.id);
            self.files.push(file.fd);
        }
    }
}
