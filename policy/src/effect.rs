//! Effects of a call: what it shows, changes, starts and reaches.
//!
//! They are worked out from a call's validated arguments, once. Layer 1 checks them against the rights in force, rules and people
//! judge them, and the sandbox of the worker is compiled from them, so an effect that a tool did not declare fails in the kernel.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::delegated::DelegatedWork;
use crate::path::HostPath;
use crate::sql::{Dialect, SqlKind, Statement};

/// One effect of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Effect {
    /// The model sees what a file holds, or files of a tree.
    Shows(FileScope),
    /// The model sees the names of files.
    Lists(FileScope),
    /// A file is created, changed or removed.
    Writes {
        /// Its path, normalized ([`crate::path::normalize`]).
        path: HostPath,
        /// Kind of the change.
        how: WriteKind,
    },
    /// A program starts, or one that runs is given input.
    Runs(ProgramRun),
    /// A connection is made.
    Connects(HostConnection),
    /// A database runs a statement.
    Queries(DatabaseQuery),
    /// A subagent works.
    Delegates(DelegatedWork),
    /// A person is asked a question.
    Asks,
    /// Something of the session's own is read or changed, of this name: a list, a plan, a skill, the tools that there are.
    Notes(String),
    /// Somebody else carries out a request: a server, the host, a declared tool.
    Serves(ServedRequest),
    /// A capability without an object is used (`secrets.has`, `stream.send`).
    Uses(String),
}

/// A file, or a directory with everything in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileScope {
    /// One file.
    File(HostPath),
    /// Everything of a directory that may be read.
    Tree(HostPath),
}

impl FileScope {
    /// Its path.
    #[must_use]
    pub fn path(&self) -> &HostPath {
        match self {
            Self::File(path) | Self::Tree(path) => path,
        }
    }
}

/// Kind of a change to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteKind {
    /// A file that was not there is made; one that is there is left as it is.
    Create,
    /// The file's content is written, whether it was there or not.
    Write,
    /// Anything else: it is removed, moved, or made a program.
    Replace,
}

/// Kind of act on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileAct {
    /// [`Effect::Lists`].
    Lists,
    /// [`Effect::Shows`].
    Shows,
    /// [`WriteKind::Create`].
    Creates,
    /// [`WriteKind::Write`].
    Writes,
    /// [`WriteKind::Replace`].
    Replaces,
}

impl FileAct {
    /// True if whoever may do this may do that: who writes a file, whether it was there or not, may create it.
    #[must_use]
    pub fn covers(self, that: Self) -> bool {
        self == that || (self, that) == (Self::Writes, Self::Creates)
    }
}

impl fmt::Display for FileAct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lists => "list",
            Self::Shows => "show",
            Self::Creates => "create",
            Self::Writes => "write",
            Self::Replaces => "replace or remove",
        })
    }
}

/// A program that starts, or input to one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramRun {
    /// This program. It names no files, so it keeps all paths and hosts that are in force.
    Program {
        /// The argument vector. `argv[0]` is a bare name or an absolute path.
        argv: Vec<HostPath>,
        /// Where it starts.
        directory: HostPath,
        /// Text that it is given to read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<String>,
    },
    /// A command line; each program in it is judged where it starts.
    Line {
        /// As the shell reads it.
        line: String,
        /// Where it starts.
        directory: HostPath,
        /// Text that it is given to read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<String>,
    },
    /// A program that is about to start below a call, as the kernel has it.
    Started {
        /// The file that runs.
        program: HostPath,
        /// Its arguments. The first is what the caller says that the program is called.
        argv: Vec<HostPath>,
    },
    /// Text that is typed to a program that runs.
    Typed {
        /// The program: its task, and its command line if that is known.
        to: String,
        /// Beginning of the line that it was typed before, if that is not ended.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        before: String,
        /// True if it reads from a terminal, whose keys edit a line.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        on_terminal: bool,
        /// The text.
        text: String,
    },
}

impl ProgramRun {
    /// A program that starts in a directory, without input.
    #[must_use]
    pub fn program(argv: Vec<HostPath>, directory: HostPath) -> Self {
        Self::Program { argv, directory, input: None }
    }

    /// A command line that starts in a directory, without input.
    #[must_use]
    pub fn shell(line: impl Into<String>, directory: HostPath) -> Self {
        Self::Line { line: line.into(), directory, input: None }
    }

    /// The command line, if it is one.
    #[must_use]
    pub fn line(&self) -> Option<&str> {
        match self {
            Self::Line { line, .. } => Some(line),
            Self::Program { .. } | Self::Started { .. } | Self::Typed { .. } => None,
        }
    }

    /// Text that its program reads.
    #[must_use]
    pub fn input(&self) -> Option<&str> {
        match self {
            Self::Program { input, .. } | Self::Line { input, .. } => {
                input.as_deref().filter(|input| !input.is_empty())
            }
            Self::Typed { text, .. } => Some(text),
            Self::Started { .. } => None,
        }
    }

    /// Where it starts; `None` for input to a program that runs already.
    #[must_use]
    pub fn directory(&self) -> Option<&HostPath> {
        match self {
            Self::Program { directory, .. } | Self::Line { directory, .. } => Some(directory),
            Self::Started { .. } | Self::Typed { .. } => None,
        }
    }
}

/// A connection to a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostConnection {
    /// As the call names it.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Request that is made there, for a person: a URL, a question.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request: String,
    /// True if it is a search of the web, which `web_search` in a rule means.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub searches: bool,
}

impl HostConnection {
    /// A connection to this host.
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port, request: String::new(), searches: false }
    }
}

/// A statement that a database runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseQuery {
    /// Which kind of database.
    pub dialect: Dialect,
    /// The name that its configuration gives the database.
    pub database: String,
    /// Statement to run.
    pub statement: Statement,
}

impl DatabaseQuery {
    /// True if it may change something.
    #[must_use]
    pub fn changes(&self) -> bool {
        self.statement.kind != SqlKind::Reads
    }
}

/// A request that somebody else carries out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedRequest {
    /// The tool's name in rules: `mcp:server:tool` for a server's.
    pub tool: String,
    /// Its arguments.
    pub arguments: serde_json::Value,
    /// The key that the tool derives from the arguments and from what it was defined as: a tool that is defined anew is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The request in words, if the tool can say it: rules compare that in place of the arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
}

/// All effects of one call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effects {
    /// Effects of the call itself. Each must be allowed.
    pub own: Vec<Effect>,
    /// How it does that: the file of a database, the host of a clone. Rules that deny or ask apply; no rule has to allow it.
    pub implied: Vec<Effect>,
    /// Files that are read if they may be, and not shown: ignore files above a directory that is searched.
    pub consulted: Vec<HostPath>,
}

impl Effects {
    /// One effect.
    #[must_use]
    pub fn of(effect: Effect) -> Self {
        Self { own: vec![effect], ..Self::default() }
    }

    /// These and another.
    #[must_use]
    pub fn and(mut self, effect: Effect) -> Self {
        self.own.push(effect);
        self
    }

    /// These, which also shows this file.
    #[must_use]
    pub fn showing(self, path: impl Into<HostPath>) -> Self {
        self.and(Effect::Shows(FileScope::File(path.into())))
    }

    /// These, with a change to this file.
    #[must_use]
    pub fn writing(self, path: impl Into<HostPath>) -> Self {
        self.and(Effect::Writes { path: path.into(), how: WriteKind::Write })
    }

    /// These, carried out by this.
    #[must_use]
    pub fn by(mut self, effect: Effect) -> Self {
        self.implied.push(effect);
        self
    }

    /// All of them, what the call does first.
    pub fn all(&self) -> impl Iterator<Item = &Effect> {
        self.own.iter().chain(&self.implied)
    }

    /// Files that are created, changed or removed.
    pub fn written(&self) -> impl Iterator<Item = &HostPath> {
        self.all().filter_map(|effect| if let Effect::Writes { path, .. } = effect { Some(path) } else { None })
    }

    /// Files and trees whose content or names are shown.
    pub fn shown(&self) -> impl Iterator<Item = &FileScope> {
        self.all().filter_map(
            |effect| {
                if let Effect::Shows(place) | Effect::Lists(place) = effect { Some(place) } else { None }
            },
        )
    }

    /// Connections that are made.
    pub fn connections(&self) -> impl Iterator<Item = &HostConnection> {
        self.all().filter_map(|effect| if let Effect::Connects(connection) = effect { Some(connection) } else { None })
    }

    /// The program that starts, if one does.
    #[must_use]
    pub fn run(&self) -> Option<&ProgramRun> {
        self.all().find_map(|effect| {
            if let Effect::Runs(run @ (ProgramRun::Program { .. } | ProgramRun::Line { .. })) = effect {
                Some(run)
            } else {
                None
            }
        })
    }

    /// The statement of a database, if there is one.
    #[must_use]
    pub fn query(&self) -> Option<&DatabaseQuery> {
        self.all().find_map(|effect| if let Effect::Queries(query) = effect { Some(query) } else { None })
    }

    /// The command line, if that is what the call runs.
    #[must_use]
    pub fn command_line(&self) -> Option<&str> {
        self.run().and_then(ProgramRun::line)
    }
}

impl Effect {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> EffectKind {
        match self {
            Self::Shows(_) => EffectKind::Shows,
            Self::Lists(_) => EffectKind::Lists,
            Self::Writes { .. } => EffectKind::Writes,
            Self::Runs(_) => EffectKind::Runs,
            Self::Connects(connection) if connection.searches => EffectKind::Searches,
            Self::Connects(_) => EffectKind::Connects,
            Self::Queries(_) => EffectKind::Queries,
            Self::Delegates(_) => EffectKind::Delegates,
            Self::Asks => EffectKind::Asks,
            Self::Notes(_) => EffectKind::Notes,
            Self::Serves(_) => EffectKind::Serves,
            Self::Uses(capability) if capability == "stream.send" => EffectKind::Sends,
            Self::Uses(_) => EffectKind::UsesSecrets,
        }
    }

    /// Act on a file or a tree, and its path, if it is one.
    #[must_use]
    pub fn on_file(&self) -> Option<(FileAct, &HostPath)> {
        match self {
            Self::Shows(scope) => Some((FileAct::Shows, scope.path())),
            Self::Lists(scope) => Some((FileAct::Lists, scope.path())),
            Self::Writes { path, how } => {
                let act = match how {
                    WriteKind::Create => FileAct::Creates,
                    WriteKind::Write => FileAct::Writes,
                    WriteKind::Replace => FileAct::Replaces,
                };
                Some((act, path))
            }
            Self::Runs(_)
            | Self::Connects(_)
            | Self::Queries(_)
            | Self::Delegates { .. }
            | Self::Asks
            | Self::Notes(_)
            | Self::Serves(_)
            | Self::Uses(_) => None,
        }
    }

    /// Its canonical text: two effects are equal if and only if their texts are.
    #[must_use]
    pub fn canonical(&self) -> String {
        // Maps are sorted, and nothing in an effect fails to be written.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Kind of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum EffectKind {
    /// [`Effect::Shows`].
    Shows,
    /// [`Effect::Lists`].
    Lists,
    /// [`Effect::Writes`].
    Writes,
    /// [`Effect::Runs`].
    Runs,
    /// [`Effect::Connects`].
    Connects,
    /// [`Effect::Connects`], to search the web.
    Searches,
    /// [`Effect::Queries`].
    Queries,
    /// [`Effect::Delegates`].
    Delegates,
    /// [`Effect::Asks`].
    Asks,
    /// [`Effect::Notes`].
    Notes,
    /// [`Effect::Serves`].
    Serves,
    /// [`Effect::Uses`] of `secrets.has`.
    UsesSecrets,
    /// [`Effect::Uses`] of `stream.send`.
    Sends,
}

/// A set of kinds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct EffectKinds(u16);

impl EffectKinds {
    /// Every kind.
    pub const ALL: Self = Self(u16::MAX);

    /// These.
    #[must_use]
    pub const fn of(kinds: &[EffectKind]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < kinds.len() {
            bits |= 1 << kinds[at] as u16;
            at += 1;
        }
        Self(bits)
    }

    /// True if a kind is one of them.
    #[must_use]
    pub fn has(self, kind: EffectKind) -> bool {
        self.meets(Self::of(&[kind]))
    }

    /// True if they have a kind in common.
    #[must_use]
    pub fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// These and those.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for FileScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.fmt(f),
            Self::Tree(path) => write!(f, "{path} and everything in it"),
        }
    }
}

/// A line for a person. What a model wrote in it is untrusted: whoever shows it makes control characters harmless.
impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shows(place) => write!(f, "shows {place}"),
            Self::Lists(place) => write!(f, "lists {place}"),
            Self::Writes { path, how: WriteKind::Create } => write!(f, "creates {path}"),
            Self::Writes { path, how: WriteKind::Write } => write!(f, "writes {path}"),
            Self::Writes { path, how: WriteKind::Replace } => write!(f, "replaces or removes {path}"),
            Self::Runs(ProgramRun::Program { argv, directory, input }) => {
                start(f, directory, input.as_deref())?;
                let words: Vec<String> = argv.iter().map(|word| quoted(&word.to_string())).collect();
                f.write_str(&words.join(" "))
            }
            Self::Runs(ProgramRun::Line { line, directory, input }) => {
                start(f, directory, input.as_deref())?;
                f.write_str(line)
            }
            Self::Runs(ProgramRun::Started { program, argv }) => {
                write!(f, "starts {program} as")?;
                argv.iter().try_for_each(|word| write!(f, " {}", quoted(&word.to_string())))
            }
            Self::Runs(ProgramRun::Typed { to, before, text, .. }) if before.is_empty() => {
                write!(f, "types {text:?} to {to}")
            }
            Self::Runs(ProgramRun::Typed { to, before, text, .. }) => {
                write!(f, "types {text:?} behind {before:?} to {to}")
            }
            Self::Connects(HostConnection { host, port, request, .. }) => {
                write!(f, "connects to {host}:{port}")?;
                if request.is_empty() { Ok(()) } else { write!(f, " for {request}") }
            }
            Self::Queries(query) => {
                let does = if query.changes() { "changes" } else { "reads" };
                write!(f, "{does} the {} database {}: {}", query.dialect.tool(), query.database, query.statement.text)
            }
            Self::Delegates(work) => work.fmt(f),
            Self::Asks => f.write_str("asks a person"),
            Self::Notes(what) => write!(f, "uses the session's own {what}"),
            Self::Serves(ServedRequest { tool, words: Some(words), .. }) => write!(f, "has {tool} do: {words}"),
            Self::Serves(ServedRequest { tool, arguments, .. }) => write!(f, "calls {tool} with {arguments}"),
            Self::Uses(capability) => write!(f, "uses {capability}"),
        }
    }
}

/// The beginning of what is said of a program, which begins in the next line: nothing in its words can pass for what callgate says of
/// it.
fn start(f: &mut fmt::Formatter<'_>, directory: &HostPath, input: Option<&str>) -> fmt::Result {
    write!(f, "runs in {}", quoted(&directory.to_string()))?;
    input.map_or(Ok(()), |input| write!(f, ", with the input {input:?}"))?;
    f.write_str(":\n")
}

/// A word of a command line for a person: in quotes where it would read as several.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("{word:?}") }
}

impl Effect {
    /// How dangerous it is at worst, so that the worst is shown first: the higher, the worse.
    #[must_use]
    pub fn danger(&self) -> u8 {
        match self {
            Self::Runs(_) => 9,
            Self::Queries(query) if query.changes() => 8,
            Self::Serves(_) => 7,
            Self::Delegates(_) => 6,
            Self::Writes { how: WriteKind::Replace, .. } => 5,
            Self::Writes { .. } => 4,
            Self::Connects(_) => 3,
            Self::Uses(_) | Self::Queries(_) => 2,
            Self::Shows(_) => 1,
            Self::Lists(_) | Self::Asks | Self::Notes(_) => 0,
        }
    }
}
