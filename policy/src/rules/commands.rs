//! A command line as the parts that rules look at.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use crate::effect::EffectKind;
use crate::path::{HostPath, normalize, passes_kernel_links};
use crate::shell::input::{Input, InputUse, executes, takes_data};
use crate::shell::programs::{self, CommandForms};
use crate::shell::starts::{self, HOLE, InnerCommand, KnownWord, LineReader, PartKind, Started};
use crate::shell::{Assignment, LINE_MAX, Line, Piece, Redirect, Word, plain, reading, variables};
use crate::watchdog::words;

use super::builtins::{evaluates, is_neutral_builtin, is_own_name};

/// Most parts that a line is judged by: of a longer one nobody has looked at all.
const PARTS_MAX: usize = 4096;
/// Most commands that one command of a line is seen to start, and most variables that it is seen to set.
const STARTED_MAX: usize = 256;

/// A part of a call that rules about commands look at: a command, a variable that is set, a file that is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandPart {
    /// Its kind.
    kind: PartKind,
    /// Its words, with a blank between two.
    text: String,
    words: Vec<KnownWord>,
    /// Something in it may be evaluated as code, so that its words do not say what it does.
    evaluates: bool,
    /// The commands by which it is started, and how many words of each say what its name is.
    within: Vec<(Arc<[KnownWord]>, usize)>,
    /// Input that decides what it does.
    reads: Reads,
    /// Where it runs.
    directory: CommandDirectory,
    /// Text that the line gives it to read, with a [`HOLE`] for what is not known.
    document: Option<Arc<str>>,
    /// Where its line has its program looked for.
    search: ProgramSearch,
    /// True if it does nothing but hand lines to a shell that were read in full, so that their parts say what it does.
    hands_on: bool,
    /// Other spellings of it, if it is a program with subcommands.
    forms: Arc<CommandForms>,
    /// The texts of what it may be by its forms.
    meant: Arc<[String]>,
    /// Places of its program, once a rule has asked.
    places: OnceLock<Vec<ProgramPlace>>,
}

/// Where a line has programs looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ProgramSearch {
    /// In these directories, besides those of the session.
    In(Arc<[String]>),
    /// In so many directories that each program may lie anywhere.
    Anywhere,
}

/// Most places at which the programs of a line are looked for, all programs and directories together.
const PLACES_MAX: usize = 1024;
/// Most bytes of all of them with the words of the programs.
const PLACES_BYTES_MAX: usize = 1 << 20;

/// Longer paths start no program (`PATH_MAX`), bytes: they are not looked into, and every pattern about paths is about them.
const PATH_MAX: usize = 4096;

/// The directory in which a command runs, as rules see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CommandDirectory {
    /// Where commands of the session run that name no directory: its absolute path, if a call has said it.
    Usual(Option<Arc<str>>),
    /// Another.
    Other {
        /// Its absolute path.
        path: Arc<str>,
        /// Bytes of the path that a person need not be shown: the workspace's root.
        root: usize,
    },
    /// One that is not known before it runs.
    Unknown,
}

impl Default for CommandDirectory {
    fn default() -> Self {
        Self::Usual(None)
    }
}

/// The place of a program that is named by a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProgramPlace {
    /// Its absolute and normal path, with the words behind it. What is not known of it is a [`HOLE`], and all before that too.
    At(String),
    /// One that the path does not tell, or a path that is too long to be looked into.
    Anywhere,
}

/// A file that a shell opens.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OpenedFile {
    /// Kind of its effect: it is shown, or written.
    pub(super) kind: EffectKind,
    /// Where it is.
    pub(super) place: OpenedPlace,
}

/// Place of a file that a shell opens, as far as a line says it. No link is followed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OpenedPlace {
    /// This path.
    At(HostPath),
    /// One of these, where `*` stands for any text.
    Like(String),
    /// Any.
    Any,
}

impl OpenedFile {
    /// Any file, shown or written.
    pub(super) fn any() -> Vec<Self> {
        [EffectKind::Shows, EffectKind::Writes].map(|kind| Self { kind, place: OpenedPlace::Any }).into()
    }
}

impl OpenedPlace {
    /// The place of an absolute and normal path, in which a [`HOLE`] and all before it stand for any text.
    fn of(path: &str) -> Self {
        match path.rfind(HOLE).map(|hole| &path[hole + HOLE.len_utf8()..]) {
            None => Self::At(HostPath::from(path)),
            Some("") => Self::Any,
            Some(end) => Self::Like(format!("*{end}")),
        }
    }
}

/// Where the commands of a call begin.
#[derive(Debug, Clone, Copy)]
pub struct Begin<'a> {
    /// The directory that the call names, or the usual one.
    pub directory: &'a HostPath,
    /// The directory of calls that name none.
    pub usual: &'a HostPath,
    /// The root of the workspace.
    pub root: &'a HostPath,
}

impl CommandDirectory {
    fn of(Begin { directory, usual, root }: Begin<'_>) -> Self {
        let Some(path) = directory.as_path().to_str().map(Arc::<str>::from) else { return Self::Unknown };
        if directory == usual {
            return Self::Usual(Some(path));
        }
        let below = directory.as_path().strip_prefix(root.as_path()).ok().and_then(|below| below.to_str());
        let root = below.map_or(0, |below| (path.len() - below.len()).saturating_sub(usize::from(!below.is_empty())));
        Self::Other { path, root }
    }

    fn shown(path: &str, root: usize) -> &str {
        match &path[root..] {
            "" => ".",
            _ if root == 0 => path,
            below => below.trim_start_matches('/'),
        }
    }

    /// Its absolute path, if it is known.
    pub(super) fn path(&self) -> Option<&str> {
        match self {
            Self::Usual(path) => path.as_deref(),
            Self::Other { path, .. } => Some(path),
            Self::Unknown => None,
        }
    }

    /// The usual directory, if a call runs there.
    pub(super) fn usual(&self) -> Option<&str> {
        match self {
            Self::Usual(path) => path.as_deref(),
            Self::Other { .. } | Self::Unknown => None,
        }
    }

    /// Its path from the root of the workspace if it lies there, with `/` before each name, unless it is the usual one.
    pub(super) fn below_root(&self) -> Option<&str> {
        match self {
            Self::Other { path, root } if *root > 0 => Some(path[*root..].trim_end_matches('/')),
            Self::Usual(_) | Self::Other { .. } | Self::Unknown => None,
        }
    }

    /// The directory for a person, relative to the workspace's root if it lies there; `None` for the usual one.
    pub(super) fn told(&self) -> Option<&str> {
        match self {
            Self::Usual(_) => None,
            Self::Other { path, root } => Some(Self::shown(path, *root)),
            Self::Unknown => Some("a directory that is not known before it runs"),
        }
    }
}

/// The commands of a call that begins in this directory. One that changes it (`cd sub`) leaves open where the others run: it may
/// fail, and it may stand anywhere in a line. What a wrapper may start elsewhere (`env -C sub make`) stays there.
#[must_use]
pub fn beginning_in(parts: Vec<CommandPart>, begin: Begin<'_>) -> Vec<CommandPart> {
    let stays = parts.iter().filter(|part| part.moves()).all(|part| part.moves_to(begin.directory));
    let directory = if stays { CommandDirectory::of(begin) } else { CommandDirectory::Unknown };
    let placed = |part: CommandPart| match part.changes_directory()
        || matches!(part.kind, PartKind::Sets { .. })
        || part.directory == CommandDirectory::Unknown
    {
        // They do the same anywhere.
        true => part,
        false => CommandPart { directory: directory.clone(), places: OnceLock::new(), ..part },
    };
    parts.into_iter().map(placed).collect()
}

/// Input to be read to know what a part does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reads {
    /// Its words.
    Itself,
    /// Its words and an input, in which there may be others.
    Input,
    /// Its words, as SQL: capitals make no difference to most names.
    Sql,
}

impl CommandPart {
    /// A part made of words.
    #[must_use]
    pub fn of_words(words: Vec<KnownWord>) -> Self {
        let evaluates = evaluates(&words);
        Self { evaluates, ..Self::of(joined(&words), words) }
    }

    /// A part that evaluates nothing, in the usual directory.
    fn of(text: String, words: Vec<KnownWord>) -> Self {
        let forms = programs::forms(&words);
        Self {
            kind: PartKind::Runs,
            text,
            meant: forms.meant.iter().map(|words| joined(words)).collect(),
            places: OnceLock::new(),
            forms: Arc::new(forms),
            words,
            evaluates: false,
            within: Vec::new(),
            reads: Reads::Itself,
            directory: CommandDirectory::default(),
            document: None,
            hands_on: false,
            search: ProgramSearch::In(Arc::default()),
        }
    }

    /// A part made of a text whose words are parted by blanks; what is behind a [`HOLE`] may be several.
    #[must_use]
    pub fn of_text(text: &str) -> Self {
        let word = |word: &str| KnownWord { text: word.to_owned(), several: word.contains(HOLE) };
        let words: Vec<KnownWord> = text.split(' ').filter(|word| !word.is_empty()).map(word).collect();
        Self { evaluates: evaluates(&words), ..Self::of(text.to_owned(), words) }
    }

    /// A part made of a statement of SQL. Rules that deny or ask compare it without regard to capitals.
    #[must_use]
    pub fn of_statement(text: &str) -> Self {
        Self { reads: Reads::Sql, ..Self::of_text(text) }
    }

    /// This part for a command that is given something to read, which may be what it does: a pattern with a `*` does
    /// not allow it.
    #[must_use]
    pub fn fed(self) -> Self {
        Self { reads: Reads::Input, ..self }
    }

    /// Parts of a program that is started without a shell, and of all that it starts in turn. `None` if a shell among these may read its
    /// line in another way than it was read here ([`reading`]).
    #[must_use]
    pub fn of_argv<S: AsRef<str>>(argv: &[S]) -> Option<Vec<Self>> {
        let words: Vec<KnownWord> =
            argv.iter().map(|word| KnownWord::known(word.as_ref().replace(HOLE, "?"))).collect();
        // No shell reads it: its name is no builtin.
        let outer = Self::of(joined(&words), words.clone());
        let below = started((&words, &Input::default()), &InnerLines::default());
        let all: Vec<Self> = std::iter::once(outer).chain(set_by(&words, &[])).chain(below).collect();
        let all = searched(all, &[]);
        (!all.iter().any(Self::has_bash_read_otherwise)).then_some(all)
    }

    /// True if it sets a variable by which bash may read what follows in another way than the grammar does.
    fn has_bash_read_otherwise(&self) -> bool {
        let set = self.sets().flatten().zip(self.text.split_once('='));
        set.is_some_and(|(name, (_, value))| !reading::keeps(name, value.as_bytes()))
    }

    /// The variable that it gives a value, if it does that: its name, if it is known.
    fn sets(&self) -> Option<Option<&str>> {
        match &self.kind {
            PartKind::Sets { name, .. } => Some(name.as_deref()),
            PartKind::Runs | PartKind::Reads { .. } | PartKind::Writes => None,
        }
    }

    /// A part for a variable that is given a value, by itself (for the line, if `alone`) or by the command `within`.
    fn assignment(name: Option<&str>, value: &str, alone: bool, within: Vec<(Arc<[KnownWord]>, usize)>) -> Self {
        let hole = HOLE.to_string();
        // Whatever it is, it is one variable's value.
        let text = format!("{}={value}", name.unwrap_or(&hole));
        // Of what bash evaluates by itself, now or later.
        let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
        let evaluates = name.is_none_or(|name| variables::is_evaluated(name) || (is_counted(name) && !is_number));
        let words = vec![KnownWord::known(text.clone())];
        Self {
            kind: PartKind::Sets { name: name.map(str::to_owned), alone },
            evaluates,
            within,
            ..Self::of(text, words)
        }
    }

    fn within(started: Started) -> Self {
        let directory = if started.moved { CommandDirectory::Unknown } else { CommandDirectory::default() };
        let InnerCommand { kind, words, input } = started.inner;
        Self { within: started.within, directory, ..Self::of_words(words).reading(&input).being(kind) }
    }

    /// A part for a file that the shell opens.
    fn opened(InnerCommand { kind, words, .. }: InnerCommand) -> Self {
        Self::of_words(words).being(kind)
    }

    fn being(self, kind: PartKind) -> Self {
        Self { kind, ..self }
    }

    /// This part with the texts that its line gives it. One that executes such a text in a language of its own is fed.
    fn reading(self, input: &Input) -> Self {
        let known: Vec<&str> = input.read.iter().map(|text| text.text.as_str()).collect();
        if known.is_empty() {
            return self;
        }
        let reads = if executes(&self.words) == InputUse::Code { Reads::Input } else { self.reads };
        Self { reads, document: Some(known.join(&HOLE.to_string()).trim_end_matches('\n').into()), ..self }
    }

    /// Its words, with a blank between two and a [`HOLE`] for what is not known.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Text with the program's name alone in place of its path, if it has one. What is not known of the name may hold a
    /// slash, so that anything may stand before it.
    pub(super) fn by_name(&self) -> Option<&str> {
        if self.kind != PartKind::Runs {
            return None;
        }
        let (path, _) = self.text.split_once(' ').unwrap_or((&self.text, ""));
        let base = starts::base(path);
        let known = base.rfind(HOLE).unwrap_or(0);
        let at = path.len() - base.len() + known;
        (at > 0).then(|| &self.text[at..])
    }

    /// Places of the program, if it is named by a path, or looked for in directories that its line names; of a file that the shell
    /// opens, its place, behind `<` or `>`.
    pub(super) fn places(&self) -> &[ProgramPlace] {
        self.places.get_or_init(|| self.find_places())
    }

    fn find_places(&self) -> Vec<ProgramPlace> {
        let program = match self.kind {
            PartKind::Runs if !self.is_statement() => self.words.first(),
            PartKind::Reads { .. } | PartKind::Writes => {
                return self.words.get(1).map(|file| self.place_of(&file.text)).into_iter().collect();
            }
            PartKind::Runs | PartKind::Sets { .. } => None,
        };
        let Some(program) = program else { return Vec::new() };
        if program.text.contains('/') {
            return vec![self.place_of(&program.text)];
        }
        match &self.search {
            ProgramSearch::Anywhere => vec![ProgramPlace::Anywhere],
            ProgramSearch::In(directories) => {
                directories.iter().map(|directory| self.place_of(&format!("{directory}/{}", program.text))).collect()
            }
        }
    }

    /// The place to which a path of the program, or of the file that the shell opens, leads.
    fn place_of(&self, path: &str) -> ProgramPlace {
        let Some(path) = self.path_of(path) else { return ProgramPlace::Anywhere };
        let first = self.words.first().map_or("", |word| word.text.as_str());
        ProgramPlace::At(match self.kind {
            PartKind::Runs => path + self.text.get(first.len()..).unwrap_or_default(),
            PartKind::Reads { .. } | PartKind::Writes | PartKind::Sets { .. } => format!("{first} {path}"),
        })
    }

    /// The absolute path of one that starts where the part runs; `None` if it may be any.
    fn path_of(&self, path: &str) -> Option<String> {
        let hole = HOLE.to_string();
        let before = self.directory.path().unwrap_or(&hole);
        let is_any = path.len() > PATH_MAX || passes_kernel_links(before, path, |given, name| given == name);
        (!is_any).then(|| normal(before, path, HOLE))
    }

    /// Commands that it may be, in other words, each also as one text: as [`programs::forms`] has them, and else as it is.
    pub(super) fn meant(&self) -> impl Iterator<Item = (&str, &[KnownWord])> {
        let own = self.forms.meant.is_empty().then_some((self.text.as_str(), &self.words[..]));
        self.meant.iter().zip(&self.forms.meant).map(|(text, words)| (text.as_str(), words.as_slice())).chain(own)
    }

    /// The command that it certainly is, in other words, if there are any.
    pub(super) fn same(&self) -> Option<&[KnownWord]> {
        self.forms.same.as_deref()
    }

    /// Text that the line gives it to read; a [`HOLE`] if it is given one that nobody has told.
    pub(super) fn document(&self) -> Option<&str> {
        self.document.as_deref().or_else(|| self.is_fed().then_some("\0"))
    }

    /// The command whose input it is, if it is a file that is read.
    pub(super) fn read_by(&self) -> Option<&[KnownWord]> {
        match &self.kind {
            PartKind::Reads { by } => Some(by),
            PartKind::Runs | PartKind::Sets { .. } | PartKind::Writes => None,
        }
    }

    /// True if it needs no rule of its own: it is allowed if no rule denies it or asks about it. That is a file that a command
    /// reads, which rules about files judge; a variable of the line's own; what the shell does by itself and nobody else sees
    /// (`true`, `exit`, `set -e`, `[ -f x ]`); and a shell whose line was read in full (`bash -c LINE`), for the parts of that line are
    /// there too.
    #[must_use]
    pub fn is_neutral(&self) -> bool {
        if self.read_by().is_some() {
            return !self.is_shown() && !self.may_connect();
        }
        if self.hands_on && !self.is_fed() {
            return true;
        }
        if self.evaluates || self.is_fed() || self.is_statement() {
            return false;
        }
        let name = |words: &[KnownWord]| words.first().and_then(KnownWord::fixed).map(str::to_owned);
        if let PartKind::Sets { name: set, alone } = &self.kind {
            let by = self.within.last().and_then(|(words, _)| name(words));
            let is_inside =
                by.as_deref().is_some_and(|by| matches!(by, "read" | "mapfile" | "readarray" | "local" | "getopts"));
            return set.as_deref().is_some_and(is_own_name) && (*alone || is_inside);
        }
        if self.kind == PartKind::Writes {
            return false;
        }
        name(&self.words).is_some_and(|name| is_neutral_builtin(&name, &self.words[1..]))
    }

    /// True if the shell reads a file for what nobody has to allow, so that the file alone says what is read: `x=$(<file)`,
    /// `[ … ] < file`, and a file that is behind a loop or a group.
    pub(super) fn is_shown(&self) -> bool {
        self.read_by().is_some_and(|by| match by.split_first() {
            None => true,
            Some((name, args)) => {
                name.fixed().is_none_or(|name| starts::is_shell(starts::base(name)) || is_neutral_builtin(name, args))
            }
        })
    }

    /// True for a file by which bash may make a connection: `< /dev/tcp/HOST/PORT`, or one that is not known.
    pub(super) fn may_connect(&self) -> bool {
        let file = self.words.get(1).and_then(KnownWord::fixed);
        file.is_none_or(|file| ["/dev/tcp/", "/dev/udp/"].iter().any(|at| file.starts_with(at)))
    }

    /// Files that the shell opens here. A line that is not known may open any.
    pub(super) fn opens(&self) -> Vec<OpenedFile> {
        let kind = match &self.kind {
            PartKind::Reads { .. } => EffectKind::Shows,
            PartKind::Writes => EffectKind::Writes,
            PartKind::Runs if self.text.len() == 1 && self.text.contains(HOLE) => return OpenedFile::any(),
            PartKind::Runs | PartKind::Sets { .. } => return Vec::new(),
        };
        let path = self.words.get(1).and_then(|file| self.path_of(&file.text));
        vec![OpenedFile { kind, place: path.map_or(OpenedPlace::Any, |path| OpenedPlace::of(&path)) }]
    }

    /// Where it runs.
    pub(super) fn directory(&self) -> &CommandDirectory {
        &self.directory
    }

    /// True if it is known to do nothing but change the directory of the shell.
    fn changes_directory(&self) -> bool {
        let name = self.words.first().and_then(KnownWord::fixed);
        name.is_some_and(|name| matches!(name, "cd" | "chdir" | "pushd" | "popd"))
    }

    /// True if it may change the directory of the shell: also a file that the shell reads, and a command that is not known.
    fn moves(&self) -> bool {
        let name = self.words.first().filter(|_| self.kind == PartKind::Runs);
        let is_open = name.is_some_and(|name| name.fixed().is_none_or(|name| matches!(name, "." | "source")));
        is_open || self.changes_directory()
    }

    /// True if it changes to this directory, wherever it is looked for.
    fn moves_to(&self, directory: &HostPath) -> bool {
        let words: Option<Vec<&str>> = self.words.iter().map(KnownWord::fixed).collect();
        let Some(["cd", to]) = words.as_deref() else { return false };
        let is_plain = (to.starts_with('/') || *to == ".") && !to.split('/').any(|component| component == "..");
        is_plain && normalize(directory, &HostPath::from(*to)).is_ok_and(|to| to == *directory)
    }

    /// Its words.
    pub(super) fn words(&self) -> &[KnownWord] {
        &self.words
    }

    /// True if it sets a variable whose name is not known before it runs.
    pub(super) fn sets_anything(&self) -> bool {
        self.sets() == Some(None)
    }

    /// True if a pattern's word stands for a value of the variable that this sets, and of no other.
    pub(super) fn is_set_by(&self, word: &str) -> bool {
        let name = self.sets().flatten();
        name.zip(word.split_once('='))
            .is_some_and(|(name, (written, _))| written.strip_suffix('+').unwrap_or(written) == name)
    }

    /// True if it may do what none of its parts says. What `eval`, `trap` and shells are handed is a part of its own,
    /// and what a script does is not seen in a line.
    pub(super) fn hides(&self) -> bool {
        let name = self.words.first().and_then(KnownWord::fixed).map(starts::base);
        let told = name.is_none_or(|name| matches!(name, "eval" | "trap" | "." | "source") || starts::is_shell(name));
        self.evaluates && (self.kind != PartKind::Runs || !told)
    }

    /// True if it is one of SQL.
    pub(super) fn is_statement(&self) -> bool {
        self.reads == Reads::Sql
    }

    /// True if it is given something to read.
    pub(super) fn is_fed(&self) -> bool {
        self.reads == Reads::Input
    }

    /// True if its words do not say what it does.
    pub(super) fn evaluates(&self) -> bool {
        self.evaluates
    }

    /// Use that it makes of its standard input. A program that is not known may be one that executes it.
    #[must_use]
    pub fn uses_input(&self) -> InputUse {
        let used = executes(&self.words);
        if used == InputUse::Data && !takes_data(&self.words) { InputUse::Code } else { used }
    }

    /// The commands by which it is started.
    pub(super) fn around(&self) -> impl Iterator<Item = (&[KnownWord], usize)> {
        self.within.iter().map(|(words, known)| (&words[..], *known))
    }

    fn shown(&self) -> String {
        self.text.replace(HOLE, "…")
    }
}

/// The absolute path that a path has from a directory, without `.`, `..` and empty components, as far as the texts say.
///
/// What stands for any text may be several components. So `..` behind it leaves such a text there. A [`HOLE`] may also lead out
/// of what is before it, of which nothing is left; a pattern's `*` stands for names.
pub(super) fn normal(directory: &str, path: &str, wild: char) -> String {
    let directory = if path.starts_with('/') { "" } else { directory };
    let mut kept = String::with_capacity(directory.len() + path.len() + 1);
    for component in directory.split('/').chain(path.split('/')) {
        match component {
            "" | "." => {}
            ".." => {
                let last = kept.rfind('/').unwrap_or(0);
                let was_wild = kept[last..].contains(wild);
                kept.truncate(last);
                kept.extend(was_wild.then_some(wild));
            }
            name => match name.rfind(HOLE) {
                Some(hole) => {
                    kept.clear();
                    kept.push_str(&name[hole..]);
                }
                None => {
                    kept.push('/');
                    kept.push_str(name);
                }
            },
        }
    }
    kept
}

/// Words as one text.
pub(super) fn joined(words: &[KnownWord]) -> String {
    words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ")
}

/// Each part of a line that rules must allow: a command with its arguments, and each command that it starts in turn
/// (`env x`, `sh -c x`, `echo x | sh`); `NAME=value` for each variable that is set, since what a program does hangs on those too;
/// `> file` for each file that the shell itself writes, and `< file` for each that it reads. `None` if the line was not understood as
/// a whole: then there may be others.
#[must_use]
pub fn parts(line: &Line) -> Option<Vec<CommandPart>> {
    line.understood().ok()?;
    let lines = InnerLines { known: Some(&line.inner), ..InnerLines::default() };
    let all: Vec<CommandPart> = parts_within(line, &lines).collect();
    (all.len() <= PARTS_MAX).then(|| searched(all, &search(line)))
}

/// Parts of a line, and no more of them than tell that there are too many.
fn parts_within<'a>(line: &'a Line, lines: &'a InnerLines<'_>) -> impl Iterator<Item = CommandPart> + 'a {
    (0..line.commands.len()).flat_map(move |at| of_command(line, at, Some(lines))).take(PARTS_MAX + 1)
}

/// Lines within a line that [`parts`] looks into and that nobody has read: texts that shells are handed. The grammar's answers
/// belong in [`Line::inner`], and may have further ones in them.
#[must_use]
pub fn unread(line: &Line) -> Vec<String> {
    let lines = InnerLines { known: Some(&line.inner), ..InnerLines::default() };
    parts_within(line, &lines).for_each(drop);
    lines.missing.into_inner().into_iter().collect()
}

/// The variable by which a line may have bash read what is behind it in another way than the grammar does ([`reading`]), with its
/// value, if there is one: set by itself or by what a command sets, also one that is started in turn. Builtins whose words may name
/// any variable are not among them: they count as evaluating.
#[must_use]
pub fn read_otherwise(line: &Line) -> Option<String> {
    let lines = InnerLines { known: Some(&line.inner), ..InnerLines::default() };
    parts_within(line, &lines).find(CommandPart::has_bash_read_otherwise).map(|part| part.shown())
}

/// Commands of a line for people, with `…` for what is not known before it runs, and without what commands start in turn.
#[must_use]
pub fn shown(line: &Line) -> Option<Vec<String>> {
    line.understood().ok()?;
    Some((0..line.commands.len()).flat_map(|at| of_command(line, at, None)).map(|part| part.shown()).collect())
}

/// Parts of a command of a line. With `lines` also those of what it starts.
fn of_command(line: &Line, at: usize, lines: Option<&InnerLines<'_>>) -> Vec<CommandPart> {
    let Some(command) = line.commands.get(at) else { return Vec::new() };
    let words: Vec<KnownWord> = command.words.iter().map(KnownWord::from).collect();
    let input = Input::of(line, at);
    let below = lines.map(|lines| set_by(&words, &[]).chain(started((&words, &input), lines)).collect());
    let by: Arc<[KnownWord]> = words.as_slice().into();
    let hands_on = lines.is_some_and(|lines| lines.are_read(&words, LineReader::Bash));
    let run = CommandPart { hands_on, ..CommandPart::of_words(words.clone()).reading(&input) };
    let run = (!words.is_empty()).then_some(run);
    let values =
        || command.assignments.iter().flat_map(|one| values_of(one).into_iter().map(|value| (&one.name, value)));
    let set =
        values().map(|(name, value)| CommandPart::assignment(Some(name), &value, command.words.is_empty(), Vec::new()));
    let by_variables = lines.into_iter().flat_map(|lines| {
        let word = |(name, value): (&String, String)| [KnownWord::known(format!("{name}={value}"))];
        values()
            .filter(|(name, _)| variables::is_started(name))
            .map(word)
            .flat_map(|word| started((&word, &Input::default()), lines))
    });
    let written = command.redirects.iter().filter_map(|redirect| {
        let target = written(redirect)?;
        let part = CommandPart::opened(InnerCommand::writes(KnownWord::from(target)));
        Some(CommandPart { evaluates: expands_again(redirect), ..part })
    });
    let read = command.redirects.iter().filter_map(read);
    let read = read.map(|target| CommandPart::opened(InnerCommand::reads(KnownWord::from(target), Arc::clone(&by))));
    run.into_iter()
        .chain(set)
        .chain(written)
        .chain(read)
        .chain(below.into_iter().flat_map(|below: Vec<_>| below))
        .chain(by_variables)
        .collect()
}

/// Values that a variable is given: one, unless programs start what each of several says.
fn values_of(assignment: &Assignment) -> Vec<String> {
    let values: Vec<String> = assignment.values.iter().map(|value| KnownWord::from(value).text).collect();
    if variables::is_started(&assignment.name) { values } else { vec![values.join(" ")] }
}

/// True if bash expands a redirection's word a second time, as it does that of `>&word` if it is no descriptor's number.
fn expands_again(redirect: &Redirect) -> bool {
    let is_plain = |text: &str| !text.contains(['$', '`']);
    redirect.operator.ends_with('&') && !redirect.target.as_ref().and_then(Word::text).is_some_and(is_plain)
}

/// Parts that a command starts in turn.
fn started((words, input): (&[KnownWord], &Input), lines: &InnerLines<'_>) -> Vec<CommandPart> {
    let with_sets = |started: Started| {
        let words = &started.inner.words;
        let set: Vec<CommandPart> = set_by(words, &started.within).collect();
        let part = match &started.inner.kind {
            PartKind::Sets { name, alone } => {
                let value = words.first().and_then(|word| word.text.split_once('=')).map_or("", |(_, value)| value);
                CommandPart::assignment(name.as_deref(), value, *alone, started.within.clone())
            }
            // Which shell runs it is not told.
            PartKind::Runs | PartKind::Reads { .. } | PartKind::Writes => CommandPart {
                hands_on: lines.are_read(words, LineReader::Posix),
                ..CommandPart::within(started.clone())
            },
        };
        std::iter::once(part).chain(set)
    };
    let cut = |text: &str, reader| lines.commands(text, reader);
    starts::all((words, input), (STARTED_MAX, &lines.budget), &cut).into_iter().flat_map(with_sets).collect()
}

/// Lines within a line, as far as the grammar has read them.
#[derive(Default)]
struct InnerLines<'a> {
    known: Option<&'a BTreeMap<String, Line>>,
    /// Those that it has not.
    missing: RefCell<BTreeSet<String>>,
    /// Budget of looking at the commands that they start.
    budget: starts::StartBudget,
}

impl InnerLines<'_> {
    /// True if a command does nothing but hand on lines that the grammar has read, and that the shell reads alike.
    fn are_read(&self, words: &[KnownWord], runs: LineReader) -> bool {
        let is_read =
            |text: &String| self.known.and_then(|known| known.get(text)).is_some_and(|line| line.understood().is_ok());
        let handed = starts::handed_on(words, runs);
        handed.is_some_and(|(texts, reader)| texts.iter().all(|text| is_read(text) && is_read_alike(text, reader)))
    }

    /// The commands of a line that is handed to a shell: as the grammar reads it, or else as the quick cut does. If they may not be
    /// all, one of them is anything.
    fn commands(&self, text: &str, reader: LineReader) -> Vec<InnerCommand> {
        let known = self.known.and_then(|known| known.get(text));
        if known.is_none() && text.len() <= LINE_MAX {
            self.missing.borrow_mut().insert(text.to_owned());
        }
        let Some(line) = known.filter(|line| line.understood().is_ok()) else { return cut(text) };
        let mut commands: Vec<InnerCommand> =
            (0..line.commands.len()).flat_map(|at| inner_commands(line, at)).collect();
        if !is_read_alike(text, reader) {
            commands.push(InnerCommand::of(vec![KnownWord::anything()]));
        }
        commands
    }
}

/// True if a shell reads a line that the grammar understands as bash does.
fn is_read_alike(text: &str, reader: LineReader) -> bool {
    match reader {
        LineReader::Bash => true,
        LineReader::Posix => plain::is_plain(text) || plain::is_portable(text),
        LineReader::Other => plain::is_plain(text),
    }
}

/// A command of a line within a line, and what the shell itself does for it.
fn inner_commands(line: &Line, at: usize) -> Vec<InnerCommand> {
    let Some(command) = line.commands.get(at) else { return Vec::new() };
    let words: Vec<KnownWord> = command.words.iter().map(KnownWord::from).collect();
    let by: Arc<[KnownWord]> = words.as_slice().into();
    let values =
        command.assignments.iter().flat_map(|one| values_of(one).into_iter().map(move |value| (&one.name, value)));
    let set = values.map(|(name, value)| {
        // It is one variable's value.
        let word = KnownWord::known(format!("{name}={value}"));
        InnerCommand::sets(name, word, words.is_empty())
    });
    let set: Vec<InnerCommand> = set.collect();
    let written = command.redirects.iter().filter_map(|redirect| {
        let target = written(redirect)?;
        Some(match expands_again(redirect) {
            true => InnerCommand::of(vec![KnownWord::anything()]),
            false => InnerCommand::writes(KnownWord::from(target)),
        })
    });
    let read = command.redirects.iter().filter_map(read);
    let read = read.map(|target| InnerCommand::reads(KnownWord::from(target), Arc::clone(&by)));
    let run = (!words.is_empty()).then(|| InnerCommand { input: Input::of(line, at), ..InnerCommand::of(words) });
    set.into_iter().chain(written).chain(read).chain(run).collect()
}

/// The parts of a line, with the directories in which one of them has programs looked for. A rule about a directory is then about a
/// program by its name. All of them have those, whichever comes first.
fn searched(parts: Vec<CommandPart>, known: &[String]) -> Vec<CommandPart> {
    let is_path = |part: &&CommandPart| part.sets() == Some(Some("PATH"));
    let values = parts.iter().filter(is_path).filter_map(|part| part.text.split_once('=').map(|(_, value)| value));
    let hole = HOLE.to_string();
    let mut all: BTreeSet<String> = known.iter().cloned().collect();
    for value in values {
        // The grammar's words tell `$PATH` from other variables.
        let told = |directory: &&str| known.is_empty() || !value.contains(':') || *directory != hole;
        let directories = value.split(':').filter(told);
        all.extend(directories.map(|directory| if directory.is_empty() { "." } else { directory }.to_owned()));
    }
    if all.is_empty() {
        return parts;
    }
    let bytes: usize =
        parts.iter().map(|part| part.text.len()).sum::<usize>() + all.iter().map(String::len).sum::<usize>();
    let is_bounded = all.len().saturating_mul(parts.len()) <= PLACES_MAX
        && all.len().max(parts.len()).saturating_mul(bytes) <= PLACES_BYTES_MAX;
    let search = if is_bounded { ProgramSearch::In(all.into_iter().collect()) } else { ProgramSearch::Anywhere };
    parts.into_iter().map(|part| CommandPart { search: search.clone(), places: OnceLock::new(), ..part }).collect()
}

/// Directories of the values that a line gives to `PATH`. The value that it has already (`$PATH`) is none of them.
fn search(line: &Line) -> Vec<String> {
    let commands = line.commands.iter().chain(line.inner.values().flat_map(|inner| &inner.commands));
    let value = |word: &Word| match word {
        Word::Static(text) => text.clone(),
        Word::Dynamic(pieces) => {
            let is_own =
                |piece: &&Piece| !matches!(piece, Piece::Variable { name, changed: false, .. } if name == "PATH");
            KnownWord::from(&Word::Dynamic(pieces.iter().filter(is_own).cloned().collect())).text
        }
    };
    let values = commands.flat_map(|command| {
        let assigned = command.assignments.iter().filter(|assignment| assignment.name == "PATH");
        let given = command.words.iter().filter(|word| word.known_start().starts_with("PATH="));
        assigned.flat_map(|assignment| &assignment.values).map(value).chain(
            given.map(|word| value(word).split_once('=').map_or_else(String::new, |(_, value)| value.to_owned())),
        )
    });
    values
        .flat_map(|value| value.split(':').filter(|name| !name.is_empty()).map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

/// The variables that a command sets. What it is started by says so too, where it has the command as its last words.
fn set_by(words: &[KnownWord], within: &[(Arc<[KnownWord]>, usize)]) -> impl Iterator<Item = CommandPart> {
    let shared: Arc<[KnownWord]> = words.into();
    let around: Vec<Arc<[KnownWord]>> = within
        .iter()
        .map(|(outer, _)| outer)
        .filter(|outer| outer.ends_with(words))
        .chain([&shared])
        .map(Arc::clone)
        .collect();
    let length = words.len();
    let mut sets = starts::sets(words);
    if sets.len() > STARTED_MAX {
        sets = vec![starts::Set { name: None, value: HOLE.to_string(), at: 0 }];
    }
    sets.into_iter().map(move |set| {
        // A pattern about the command is about the line's own variables too, but must name others.
        let known = |outer: &Arc<[KnownWord]>| match set.name.as_deref().is_some_and(is_own_name) {
            true => outer.len() - length,
            false => outer.len() - length + set.at + 1,
        };
        let within = around.iter().map(|outer| (Arc::clone(outer), known(outer))).collect();
        CommandPart::assignment(set.name.as_deref(), &set.value, false, within)
    })
}

/// Variables that are numbers to bash, which evaluates what they are given (`OPTIND='a[$(x)]'`).
fn is_counted(name: &str) -> bool {
    matches!(
        name,
        "OPTIND"
            | "RANDOM"
            | "SRANDOM"
            | "SECONDS"
            | "LINENO"
            | "HISTCMD"
            | "BASHPID"
            | "PPID"
            | "UID"
            | "EUID"
            | "EPOCHSECONDS"
            | "EPOCHREALTIME"
            | "OPTERR"
    )
}

/// A line within a line, for which bash's grammar is not asked. The quick cut finds the commands of a plain one ([`plain`]); any other
/// may have commands besides those, so that one of them is anything at all.
fn cut(line: &str) -> Vec<InnerCommand> {
    let mut all = Vec::new();
    for command in words::commands(line) {
        let mut run = Vec::new();
        let mut rest = command.words.iter();
        while let Some(word) = rest.next() {
            if word == ">" {
                let target = rest.next().filter(|target| *target != "/dev/null");
                all.extend(target.map(|target| InnerCommand::writes(KnownWord::unparsed(target))));
            } else if let Some((name, _)) = starts::assigned(word).filter(|_| run.is_empty()) {
                // It stays one word.
                let value = KnownWord { several: false, ..KnownWord::unparsed(word) };
                all.push(InnerCommand::sets(name, value, false));
            } else {
                run.push(KnownWord::unparsed(word));
            }
        }
        // What a builtin evaluates is no longer to be seen in these words.
        let is_substitution = |word: &String| word.contains("$(") || word.contains('`');
        if evaluates(&run) && command.words.iter().any(is_substitution) {
            all.push(InnerCommand::of(vec![KnownWord::anything()]));
        }
        if !run.is_empty() {
            all.push(InnerCommand::of(run));
        }
    }
    if !plain::is_plain(line) {
        all.push(InnerCommand::of(vec![KnownWord::anything()]));
    }
    all
}

/// The file that a redirection reads, if it is one that matters.
fn read(redirect: &Redirect) -> Option<&Word> {
    let target = redirect.target.as_ref().filter(|_| redirect.operator == "<")?;
    (target.text() != Some("/dev/null")).then_some(target)
}

/// The file that a redirection writes, if it is one that matters.
fn written(redirect: &Redirect) -> Option<&Word> {
    let target = redirect.target.as_ref()?;
    let reads = matches!(redirect.operator.as_str(), "<" | "<<" | "<<-" | "<<<");
    // A copy of a descriptor, as in `2>&1`, writes no other file.
    let copies = redirect.operator.ends_with('&')
        && target.text().is_some_and(|text| text.bytes().all(|b| b.is_ascii_digit() || b == b'-'));
    let nothing = target.text() == Some("/dev/null");
    (!reads && !copies && !nothing).then_some(target)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use super::*;
    use crate::shell::Simple;

    fn word(text: &str) -> Word {
        Word::Static(text.to_owned())
    }

    /// A setting or a file that a command writes is a part of its own: `git log *` allows neither another pager nor a file.
    #[test]
    fn what_is_set_and_written_is_a_part() {
        let redirect = |operator: &str, target: &str| Redirect {
            operator: operator.to_owned(),
            fd: None,
            target: Some(word(target)),
        };
        let command = Simple {
            words: vec![word("git"), word("log"), Word::Dynamic(vec![Piece::Text("a".into()), Piece::Glob('*')])],
            assignments: vec![Assignment { name: "GIT_PAGER".into(), values: vec![word("x")] }],
            redirects: vec![
                redirect(">", "out"),
                redirect(">", "/dev/null"),
                redirect(">&", "1"),
                redirect("<", "in"),
                redirect(">>", "log"),
                redirect("&>", "all"),
            ],
            within: vec![],
        };
        let line = Line { commands: vec![command], ..Line::default() };
        let texts: Vec<String> = parts(&line).unwrap().iter().map(|part| part.text().to_owned()).collect();
        assert_eq!(texts, ["git log a\0", "GIT_PAGER=x", "> out", "> log", "> all", "< in", "x"]);
        assert_eq!(parts(&Line::unknown("it is not bash", 3)), None);
    }

    /// A command that a wrapper or a shell starts is a part of its own too.
    #[test]
    fn what_is_started_in_turn_is_a_part() {
        let argv = ["nice", "sh", "-c", "A=1 touch x > y; $z"];
        let texts: Vec<String> =
            CommandPart::of_argv(&argv).unwrap().iter().map(|part| part.text().to_owned()).collect();
        let wanted = [argv.join(" "), argv[1..].join(" "), "A=1".into(), "> y".into(), "touch x".into(), "\0".into()];
        assert_eq!(texts, wanted);
    }

    /// A line of too many parts is not judged by them, and a command that sets too many variables sets any.
    #[test]
    fn parts_are_bounded() {
        let redirect = Redirect { operator: ">".into(), fd: None, target: Some(word("a")) };
        let written = |count: usize| {
            let command = Simple { redirects: vec![redirect.clone(); count], ..Simple::default() };
            parts(&Line { commands: vec![command], ..Line::default() })
        };
        assert_eq!(written(PARTS_MAX).map(|parts| parts.len()), Some(PARTS_MAX));
        assert_eq!(written(PARTS_MAX + 1), None);
        let exported = |count: usize| {
            let words = std::iter::once(word("export")).chain((0..count).map(|at| word(&format!("x{at}=1"))));
            let command = Simple { words: words.collect(), ..Simple::default() };
            parts(&Line { commands: vec![command], ..Line::default() }).unwrap()
        };
        assert_eq!(exported(STARTED_MAX).len(), 1 + STARTED_MAX);
        assert!(exported(STARTED_MAX + 1).len() == 2 && exported(5_000)[1].sets_anything());
    }

    /// However many commands of a line start some word of theirs, it is judged by few words; beyond that a command may be any.
    #[test]
    fn what_all_commands_of_a_line_start_is_bounded() {
        let words: Vec<Word> = std::iter::once(word("systemd-run")).chain((0..250).map(|_| word("a"))).collect();
        let line = |commands: usize| Line {
            commands: (0..commands).map(|_| Simple { words: words.clone(), ..Simple::default() }).collect(),
            ..Line::default()
        };
        let parts = |commands: usize| parts(&line(commands)).unwrap();
        let is_any = |part: &CommandPart| part.text() == "\0";
        assert!(!parts(1).iter().any(is_any));
        let many = parts(120);
        assert!(many.iter().any(is_any));
        let looked_at: usize = many.iter().map(|part| part.words().len()).sum();
        assert!(looked_at < 1 << 18, "{looked_at}");
    }

    /// However many directories a line has its programs looked for in, few places are compared with rules; beyond that a program may
    /// lie anywhere.
    #[test]
    fn places_of_programs_are_bounded() {
        let places = |directories: usize, commands: usize| -> Vec<ProgramPlace> {
            let path: Vec<String> = (0..directories).map(|at| format!("/d{at}")).collect();
            let path = Assignment { name: "PATH".into(), values: vec![word(&path.join(":"))] };
            let commands = (0..commands).map(|at| Simple {
                words: vec![word("x")],
                assignments: if at == 0 { vec![path.clone()] } else { Vec::new() },
                ..Simple::default()
            });
            let line = Line { commands: commands.collect(), ..Line::default() };
            parts(&line).unwrap().iter().flat_map(|part| part.places().to_vec()).collect()
        };
        assert_eq!(places(2, 3).len(), 6);
        assert!(!places(30, 30).contains(&ProgramPlace::Anywhere));
        for (directories, commands) in [(5_000, 1), (5_000, 4_000), (2, 4_000), (100, 100)] {
            let places = places(directories, commands);
            assert!(places.len() <= commands.max(PLACES_MAX), "{directories} {commands}: {}", places.len());
            assert!(places.contains(&ProgramPlace::Anywhere), "{directories} {commands}");
        }
    }

    /// Text that a builtin evaluates in a line within a line may be anything.
    #[test]
    fn what_is_evaluated_within_a_line_is_not_known() {
        let texts = |line: &str| -> Vec<String> {
            let parts = CommandPart::of_argv(&["sh", "-c", line]).unwrap();
            parts.iter().skip(1).map(|part| part.text().to_owned()).collect()
        };
        assert_eq!(texts("printf -v 'a[$(touch x)]' y"), ["\0", "printf -v a\0 y"]);
        assert_eq!(texts("echo '$(touch x)'"), ["echo \0"]);
    }

    /// C19: what a shell is started with may have it read its line by another character set.
    #[test]
    fn c19_what_a_shell_reads_otherwise_is_not_known() {
        assert_eq!(CommandPart::of_argv(&["env", "LC_ALL=zh_CN.GBK", "sh", "-c", "ls"]), None);
        assert_eq!(CommandPart::of_argv(&["sh", "-c", "export LANG=$x; ls"]), None);
        assert!(CommandPart::of_argv(&["env", "LC_ALL=C", "sh", "-c", "ls"]).is_some());
    }
}
