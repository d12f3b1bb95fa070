//! A command line as the parts that rules look at.

use std::sync::Arc;

use crate::path::{HostPath, normalize};
use crate::shell::starts::{self, HOLE, KnownWord, Started};
use crate::shell::{Line, Redirect, Simple, Word, plain, reading};
use crate::watchdog::words;

use super::builtins::{evaluates, is_own_name};

/// Most commands that one command of a line is seen to start.
const STARTED_MAX: usize = 256;

/// A part of a call that rules about commands look at: a command, a variable that is set, a file that is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandPart {
    /// Its words, with a blank between two.
    text: String,
    words: Vec<KnownWord>,
    /// Something in it may be evaluated as code, so that its words do not say what it does.
    evaluates: bool,
    /// The commands by which it is started, and how many words of each say what its name is.
    within: Vec<(Arc<[KnownWord]>, usize)>,
    /// Variable that a command sets: its name, or `None` if that is not known.
    set: Option<Option<String>>,
    /// Input that decides what it does.
    reads: Reads,
    /// Where it runs.
    directory: CommandDirectory,
}

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
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ProgramPlace {
    /// Its absolute and normal path, with the words behind it. What is not known of it is a [`HOLE`], and all before that too.
    At(String),
    /// One that the path does not tell, or a path that is too long to be looked into.
    Anywhere,
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
        || part.set.is_some()
        || part.directory == CommandDirectory::Unknown
    {
        // They do the same anywhere.
        true => part,
        false => CommandPart { directory: directory.clone(), ..part },
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
        Self {
            text: joined(&words),
            words,
            evaluates,
            within: Vec::new(),
            set: None,
            reads: Reads::Itself,
            directory: CommandDirectory::default(),
        }
    }

    /// A part made of a text whose words are parted by blanks; what is behind a [`HOLE`] may be several.
    #[must_use]
    pub fn of_text(text: &str) -> Self {
        let word = |word: &str| KnownWord { text: word.to_owned(), several: word.contains(HOLE) };
        let words: Vec<KnownWord> = text.split(' ').filter(|word| !word.is_empty()).map(word).collect();
        Self {
            text: text.to_owned(),
            evaluates: evaluates(&words),
            words,
            within: Vec::new(),
            set: None,
            reads: Reads::Itself,
            directory: CommandDirectory::default(),
        }
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
        let outer = Self {
            text: joined(&words),
            words: words.clone(),
            evaluates: false,
            within: Vec::new(),
            set: None,
            reads: Reads::Itself,
            directory: CommandDirectory::default(),
        };
        let all: Vec<Self> = std::iter::once(outer).chain(set_by(&words, &[])).chain(started(&words)).collect();
        (!all.iter().any(Self::has_bash_read_otherwise)).then_some(all)
    }

    /// True if it sets a variable by which bash may read what follows in another way than the grammar does.
    fn has_bash_read_otherwise(&self) -> bool {
        let set = self.set.as_ref().and_then(Option::as_deref).zip(self.text.split_once('='));
        set.is_some_and(|(name, (_, value))| !reading::keeps(name, value.as_bytes()))
    }

    /// A part for a variable that is given a value, by itself or by the command `within`.
    fn assignment(name: Option<&str>, value: &str, within: Vec<(Arc<[KnownWord]>, usize)>) -> Self {
        let hole = HOLE.to_string();
        // Whatever it is, it is one variable's value.
        let text = format!("{}={value}", name.unwrap_or(&hole));
        // Of what bash evaluates by itself, now or later.
        let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
        let evaluates = name.is_none_or(|name| is_evaluated(name) || (is_counted(name) && !is_number));
        Self {
            words: vec![KnownWord::known(text.clone())],
            text,
            evaluates,
            within,
            set: Some(name.map(str::to_owned)),
            reads: Reads::Itself,
            directory: CommandDirectory::default(),
        }
    }

    fn within(started: Started) -> Self {
        let directory = if started.moved { CommandDirectory::Unknown } else { CommandDirectory::default() };
        Self { within: started.within, directory, ..Self::of_words(started.words) }
    }

    /// Its words, with a blank between two and a [`HOLE`] for what is not known.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Text with the program's name alone in place of its path, if it has one. What is not known of the name may hold a
    /// slash, so that anything may stand before it.
    pub(super) fn by_name(&self) -> Option<String> {
        if self.set.is_some() {
            return None;
        }
        let (path, _) = self.text.split_once(' ').unwrap_or((&self.text, ""));
        let base = starts::base(path);
        let known = base.rfind(HOLE).unwrap_or(0);
        let at = path.len() - base.len() + known;
        (at > 0).then(|| self.text[at..].to_owned())
    }

    /// The place of the program, if it is named by a path.
    pub(super) fn place(&self) -> Option<ProgramPlace> {
        let is_program = self.set.is_none() && !self.is_statement();
        let program = self.words.first().filter(|program| is_program && program.text.contains('/'))?;
        if program.text.len() > PATH_MAX {
            return Some(ProgramPlace::Anywhere);
        }
        let hole = HOLE.to_string();
        let before = self.directory.path().unwrap_or(&hole);
        let mut place = normal(before, &program.text, HOLE);
        // By the kernel's own links (`/proc/self/cwd`, `/dev/fd/3`) a path leads anywhere.
        if ["/proc/", "/dev/fd/"].iter().any(|links| place.starts_with(links)) {
            return Some(ProgramPlace::Anywhere);
        }
        place.push_str(self.text.get(program.text.len()..).unwrap_or_default());
        Some(ProgramPlace::At(place))
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
        let name = self.words.first().filter(|_| self.set.is_none());
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
        self.set == Some(None)
    }

    /// True if a pattern's word stands for a value of the variable that this sets, and of no other.
    pub(super) fn is_set_by(&self, word: &str) -> bool {
        let name = self.set.as_ref().and_then(Option::as_deref);
        name.zip(word.split_once('='))
            .is_some_and(|(name, (written, _))| written.strip_suffix('+').unwrap_or(written) == name)
    }

    /// True if it may do what none of its parts says. What `eval`, `trap` and shells are handed is a part of its own,
    /// and what a script does is not seen in a line.
    pub(super) fn hides(&self) -> bool {
        let name = self.words.first().and_then(KnownWord::fixed).map(starts::base);
        let told = name.is_none_or(|name| matches!(name, "eval" | "trap" | "." | "source") || starts::is_shell(name));
        self.evaluates && (self.set.is_some() || !told)
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
/// (`env x`, `sh -c x`); `NAME=value` for each variable that is set, since what a program does hangs on those too; `> file` for
/// each file that the shell itself writes. `None` if the line was not understood as a whole: then there may be others.
#[must_use]
pub fn parts(line: &Line) -> Option<Vec<CommandPart>> {
    let commands = line.understood().ok()?;
    Some(commands.iter().flat_map(|command| of_command(command, true)).collect())
}

/// The variable by which a line may have bash read what is behind it in another way than the grammar does ([`reading`]), with its
/// value, if there is one: set by itself or by what a command sets, also one that is started in turn. Builtins whose words may name
/// any variable are not among them: they count as evaluating.
#[must_use]
pub fn read_otherwise(line: &Line) -> Option<String> {
    let mut parts = line.commands.iter().flat_map(|command| of_command(command, true));
    parts.find(CommandPart::has_bash_read_otherwise).map(|part| part.shown())
}

/// Commands of a line for people, with `…` for what is not known before it runs, and without what commands start in turn.
#[must_use]
pub fn shown(line: &Line) -> Option<Vec<String>> {
    let commands = line.understood().ok()?;
    Some(commands.iter().flat_map(|command| of_command(command, false)).map(|part| part.shown()).collect())
}

fn of_command(command: &Simple, deep: bool) -> Vec<CommandPart> {
    let words: Vec<KnownWord> = command.words.iter().map(KnownWord::from).collect();
    let below = if deep { set_by(&words, &[]).chain(started(&words)).collect() } else { Vec::new() };
    let run = (!words.is_empty()).then(|| CommandPart::of_words(words));
    let set = command.assignments.iter().map(|assignment| {
        let values: Vec<String> = assignment.values.iter().map(|value| KnownWord::from(value).text).collect();
        CommandPart::assignment(Some(&assignment.name), &values.join(" "), Vec::new())
    });
    let written = command.redirects.iter().filter_map(|redirect| {
        let target = written(redirect)?;
        let part = CommandPart::of_words(vec![KnownWord::known(">"), KnownWord::from(target)]);
        // bash expands the word of `>&word` a second time if it is no descriptor's number.
        let is_plain = |text: &str| !text.contains(['$', '`']);
        let evaluates = redirect.operator.ends_with('&') && !target.text().is_some_and(is_plain);
        Some(CommandPart { evaluates, ..part })
    });
    run.into_iter().chain(set).chain(written).chain(below).collect()
}

/// Parts that a command starts in turn.
fn started(words: &[KnownWord]) -> Vec<CommandPart> {
    let with_sets = |started: Started| {
        let set: Vec<CommandPart> = set_by(&started.words, &started.within).collect();
        // A line's own assignment.
        let alone =
            started.words.first().filter(|_| started.words.len() == 1).and_then(|word| starts::assigned(&word.text));
        let part = match alone {
            Some((name, value)) => CommandPart::assignment(Some(name), value, started.within.clone()),
            None => CommandPart::within(started),
        };
        std::iter::once(part).chain(set)
    };
    starts::all(words, STARTED_MAX, &cut).into_iter().flat_map(with_sets).collect()
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
    starts::sets(words).into_iter().map(move |set| {
        // A pattern about the command is about the line's own variables too, but must name others.
        let known = |outer: &Arc<[KnownWord]>| match set.name.as_deref().is_some_and(is_own_name) {
            true => outer.len() - length,
            false => outer.len() - length + set.at + 1,
        };
        let within = around.iter().map(|outer| (Arc::clone(outer), known(outer))).collect();
        CommandPart::assignment(set.name.as_deref(), &set.value, within)
    })
}

/// Variables in which bash finds code.
fn is_evaluated(name: &str) -> bool {
    matches!(
        name,
        "PS0" | "PS1" | "PS2" | "PS3" | "PS4" | "PROMPT_COMMAND" | "BASH_ENV" | "ENV" | "SHELLOPTS" | "BASHOPTS"
    ) || name.starts_with("BASH_FUNC_")
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
fn cut(line: &str) -> Vec<Vec<KnownWord>> {
    let mut all = Vec::new();
    for command in words::commands(line) {
        let mut run = Vec::new();
        let mut rest = command.words.iter();
        while let Some(word) = rest.next() {
            if word == ">" {
                let target = rest.next().filter(|target| *target != "/dev/null");
                all.extend(target.map(|target| vec![KnownWord::known(">"), KnownWord::unparsed(target)]));
            } else if run.is_empty() && starts::is_assignment(word) {
                // It stays one word.
                all.push(vec![KnownWord { several: false, ..KnownWord::unparsed(word) }]);
            } else {
                run.push(KnownWord::unparsed(word));
            }
        }
        // What a builtin evaluates is no longer to be seen in these words.
        let is_substitution = |word: &String| word.contains("$(") || word.contains('`');
        if evaluates(&run) && command.words.iter().any(is_substitution) {
            all.push(vec![KnownWord::anything()]);
        }
        if !run.is_empty() {
            all.push(run);
        }
    }
    if !plain::is_plain(line) {
        all.push(vec![KnownWord::anything()]);
    }
    all
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
    use crate::shell::{Assignment, Piece};

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
        let line = Line { commands: vec![command], unknown: None };
        let texts: Vec<String> = parts(&line).unwrap().iter().map(|part| part.text().to_owned()).collect();
        assert_eq!(texts, ["git log a\0", "GIT_PAGER=x", "> out", "> log", "> all"]);
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
