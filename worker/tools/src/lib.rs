//! The tools, as they run inside an already confined worker.
//!
//! Nothing here decides what is allowed: the plan granted a path, the kernel holds the worker to it, and a tool does its
//! work or says which operation failed. What comes from the model (the arguments) and what lies in the workspace (the
//! files) are both hostile: a tool never blocks on what it opens, never holds more than its limit of a file in memory,
//! and never panics.
//!
//! Each tool's [`Contract`] stands beside its code, as data, so that the supervisor can list and validate a tool without
//! running it.
#![cfg_attr(
    not(all(feature = "databases", feature = "file-search", feature = "git", feature = "spreadsheets")),
    allow(dead_code, reason = "what only a tool that is left out uses")
)]
#![expect(clippy::disallowed_methods, reason = "they run in a worker, which may do what its call may")]

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use callgate_policy::effective::PathRegion;
use callgate_policy::failure::ErrorCode;
use callgate_policy::path::HostPath;
use callgate_policy::plan::{CallPlan, FsRule, Work};
use callgate_worker::toolset::{Failed, Given, Peer, Toolset};
use rustix::fs::FileType;
use serde_json::{Map, Value};

pub mod csv_tasks;
pub mod database;
pub mod diagnostics;
pub mod edit;
#[cfg(feature = "file-search")]
pub mod file_search;
#[cfg(feature = "git")]
pub mod git;
pub mod glob;
pub mod grep;
pub mod list;
pub mod lsp;
pub mod note;
pub mod numbered;
pub mod overview;
pub mod patch;
pub mod read;
#[cfg(feature = "spreadsheets")]
pub mod read_excel;
mod results;
mod search;
pub mod shell;
pub mod skill;
pub mod web;
pub mod workbook;
pub mod write;

pub use callgate_worker::toolset::{Kind, Output};
pub use search::{EXCLUDE, INCLUDE};

/// Contract of a tool: its name, what it needs, and what a model reads about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contract {
    /// The locked name (S0-9).
    pub name: &'static str,
    /// The capabilities that a call needs.
    pub requires: &'static [&'static str],
    /// Prose for the model.
    pub description: &'static str,
    /// JSON Schema 2020-12 of the arguments.
    pub schema: &'static str,
    /// JSON Schema 2020-12 of the result.
    pub output: &'static str,
    /// The system calls that it needs besides those of every tool.
    pub kind: Kind,
}

/// The tools that this module carries out.
pub const CONTRACTS: &[Contract] = &[
    read::CONTRACT,
    write::CONTRACT,
    edit::CONTRACT,
    patch::CONTRACT,
    note::CONTRACT,
    glob::CONTRACT,
    grep::CONTRACT,
    list::CONTRACT,
    #[cfg(feature = "file-search")]
    file_search::CONTRACT,
    #[cfg(feature = "spreadsheets")]
    read_excel::CONTRACT,
    web::fetch::CONTRACT,
    web::search::CONTRACT,
    #[cfg(feature = "git")]
    git::status::CONTRACT,
    #[cfg(feature = "git")]
    git::diff::CONTRACT,
    overview::CONTRACT,
    #[cfg(feature = "git")]
    diagnostics::CONTRACT,
    web::azure::CONTRACT,
    web::rlm::CONTRACT,
    lsp::CONTRACT,
];

/// The kind of the tool of this name; of one without a contract, which only the supervisor calls, [`Kind::Plain`].
#[must_use]
pub fn kind_of(name: &str) -> Kind {
    let mut contracts = CONTRACTS.iter().chain(database::CONTRACTS);
    contracts.find(|contract| contract.name == name).map_or(Kind::Plain, |contract| contract.kind)
}

/// The tools of this crate, for a launcher.
#[derive(Debug, Clone, Copy)]
pub struct BuiltIn;

impl Toolset for BuiltIn {
    fn kind(&self, name: &str) -> Kind {
        kind_of(name)
    }

    fn run(&self, plan: &CallPlan, arguments: &Value, given: Given) -> Result<Output, Failed> {
        let Some((name, context)) = Context::of(plan, given) else {
            let text = "the plan of a program".to_owned();
            return Err(Failed { text, errno: None, code: ErrorCode::ToolExecutionFailed });
        };
        run(name, arguments, &context).map_err(Failed::from)
    }
}

impl From<ToolError> for Failed {
    fn from(error: ToolError) -> Self {
        Self { text: error.text(), errno: error.errno(), code: error.code() }
    }
}

/// Context that a call runs with, besides its arguments.
#[derive(Debug, Clone)]
pub struct Context {
    /// The absolute path that the plan granted. It, never `args["path"]`, is what a tool opens: the argument was
    /// resolved and checked to become this one, and may not even be able to spell it (a name that is not UTF-8).
    pub path: HostPath,
    /// All paths that were granted to it, in the order of its arguments: the first is `path`.
    pub paths: Vec<HostPath>,
    /// The most of the result that is shown: bytes of `content` as they are returned (base64 counts encoded), paths, or
    /// matches.
    pub limit: usize,
    /// Part of `path` that was granted, if that is a directory to be searched: itself, or parts of it.
    pub roots: Vec<HostPath>,
    /// If not empty, a search tells of these alone.
    pub within: Vec<PathRegion>,
    /// How many threads a search has.
    pub threads: usize,
    /// Treatment of symbolic links on the way.
    pub links: Links,
    /// The certificates of authorities, for a tool that fetches.
    pub certificates: Vec<u8>,
    /// The program that it talks to, if it does.
    pub peer: Option<Arc<Peer>>,
}

/// Treatment of symbolic links on the way to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// They lead where they lead.
    Followed,
    /// They are an error: rules have judged the path, and not where it leads.
    Refused,
}

impl Context {
    /// For a tool that works on one file, or a search of all of one tree.
    #[must_use]
    pub fn new(path: HostPath, limit: usize) -> Self {
        Self {
            roots: vec![path.clone()],
            paths: vec![path.clone()],
            path,
            limit,
            within: Vec::new(),
            threads: 1,
            links: Links::Followed,
            certificates: Vec::new(),
            peer: None,
        }
    }

    /// The tool that a plan names, and the context that it runs in; `None` for the plan of a program.
    #[must_use]
    pub fn of(plan: &CallPlan, given: Given) -> Option<(&str, Self)> {
        let Work::Tool { name, paths, limit } = &plan.work else { return None };
        // One that works on no file has no use for a path.
        let path = paths.first().cloned().unwrap_or_else(|| "/".into());
        let below = |rule: &&FsRule| rule.path.as_path().starts_with(&path);
        let roots = plan.rules.own().iter().filter(below).map(|rule| rule.path.clone()).collect();
        let limit = usize::try_from(*limit).unwrap_or(usize::MAX);
        let links = if plan.as_spelt { Links::Refused } else { Links::Followed };
        let paths = paths.clone();
        let Given { threads, certificates, peer } = given;
        let peer = peer.map(Arc::new);
        let within = plan.within.clone();
        Some((name, Self { path, paths, limit, roots, within, threads, links, certificates, peer }))
    }

    /// Says where links lead, if they are refused. That they are is held where the file is opened.
    fn refuse_links(&self) -> Result<(), ToolError> {
        if self.links == Links::Followed {
            return Ok(());
        }
        let there = self.path.as_path().ancestors().find_map(|part| Some((part, std::fs::canonicalize(part).ok()?)));
        match there {
            Some((part, real)) if real != part => {
                let rest = self.path.as_path().strip_prefix(part).unwrap_or(Path::new(""));
                let real = if rest.as_os_str().is_empty() { real } else { real.join(rest) };
                Err(ToolError::ByLink { path: self.path.clone(), real: real.into() })
            }
            Some(_) | None => Ok(()),
        }
    }

    fn may_tell_of(&self, path: &Path) -> bool {
        self.within.is_empty() || self.within.iter().any(|region| region.matches(&path.into()))
    }

    /// The path, if a search may tell of it: the kernel may have had to be told more than was granted.
    fn may_be_told(&self) -> Result<&HostPath, ToolError> {
        let refused =
            || ToolError::Open { path: self.path.clone(), source: io::Error::from_raw_os_error(libc::EACCES) };
        if self.may_tell_of(self.path.as_path()) { Ok(&self.path) } else { Err(refused()) }
    }

    /// True if the path is a directory, as far as it is granted. One of which only parts were granted need not be visible.
    fn is_directory(&self) -> Result<bool, ToolError> {
        if !self.roots.contains(&self.path) {
            return Ok(true);
        }
        let stat = rustix::fs::stat(self.path.as_path())
            .map_err(|e| ToolError::Open { path: self.path.clone(), source: e.into() })?;
        Ok(FileKind::of_other(stat.st_mode) == Some(FileKind::Directory))
    }

    fn require_directory(&self) -> Result<(), ToolError> {
        if self.is_directory()? { Ok(()) } else { Err(ToolError::NotADirectory { path: self.path.clone() }) }
    }
}

/// The key of a truncated result's first part, in place of the key that holds all of it (C-27).
pub const HEAD: &str = "head";

/// Runs the tool `name`.
///
/// # Errors
///
/// The operation that failed. Nothing was changed then, but for parent directories that `write` may have made.
pub fn run(name: &str, args: &Value, ctx: &Context) -> Result<Output, ToolError> {
    ctx.refuse_links()?;
    match name {
        "read" => read::run(args, ctx),
        "write" => write::run(args, ctx),
        write::CREATE => write::create(args, ctx),
        "edit" => edit::run(args, ctx),
        patch::NAME => patch::run(args, ctx),
        patch::READER => patch::read_names(args),
        "note" => note::run(args, ctx),
        "glob" => glob::run(args, ctx),
        "grep" => grep::run(args, ctx),
        "list" => list::run(args, ctx),
        #[cfg(feature = "file-search")]
        "file_search" => file_search::run(args, ctx),
        #[cfg(feature = "spreadsheets")]
        "read_excel" => read_excel::run(args, ctx),
        web::fetch::NAME => web::fetch::run(args, ctx),
        web::search::NAME => web::search::run(args, ctx),
        #[cfg(feature = "git")]
        git::status::NAME => git::status::run(args, ctx),
        #[cfg(feature = "git")]
        git::diff::NAME => git::diff::run(args, ctx),
        overview::NAME => overview::run(args, ctx),
        #[cfg(feature = "git")]
        diagnostics::NAME => diagnostics::run(ctx),
        web::azure::NAME => web::azure::run(args, ctx),
        web::rlm::NAME => web::rlm::run(args, ctx),
        lsp::NAME => lsp::run(args, ctx),
        #[cfg(feature = "databases")]
        "sqlite" | "postgres" | "mysql" => database::run(args, ctx),
        database::sql::NAME => database::sql::run(args),
        shell::NAME => shell::run(args),
        skill::NAME => skill::run(args),
        csv_tasks::NAME => csv_tasks::run(args, ctx),
        _ => Err(ToolError::UnknownTool { name: name.to_owned() }),
    }
}

/// Reason why a tool gave no result. `Display` says what failed and on what, the cause is `source`, the way on is
/// [`ToolError::next_step`]; [`ToolError::text`] is all three in a line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// No tool of that name runs here.
    #[error("unknown tool {name:?}")]
    UnknownTool {
        /// The name that was asked for.
        name: String,
    },
    /// An argument is missing, or is not what the schema says.
    #[error("argument `{name}` must be {wants}, not {found}")]
    Argument {
        /// The argument.
        name: &'static str,
        /// Type that it must have.
        wants: &'static str,
        /// Value that it had, shortened.
        found: String,
    },
    /// Lines and bytes were asked for in one call (C-27).
    #[error("a line range and a byte range in one call")]
    MixedRanges,
    /// The range ends before it starts.
    #[error("end_line {end_line} is before start_line {start_line}")]
    EmptyRange {
        /// The first line asked for.
        start_line: u64,
        /// The last line asked for.
        end_line: u64,
    },
    /// The range starts after the last line.
    #[error("start_line {start_line} is past the end of {path}, which has {total_lines} lines")]
    StartPastEnd {
        /// The file.
        path: HostPath,
        /// The first line asked for.
        start_line: u64,
        /// The lines there are.
        total_lines: u64,
    },
    /// The range starts after the last byte.
    #[error("byte_offset {byte_offset} is past the end of {path}, which has {size} bytes")]
    OffsetPastEnd {
        /// The file.
        path: HostPath,
        /// The first byte asked for.
        byte_offset: u64,
        /// The bytes there are.
        size: u64,
    },
    /// The path ends in `/`, `.` or `..`, so that it cannot name a file.
    #[error("{path} does not end in a file name")]
    NoFileName {
        /// The path.
        path: HostPath,
    },
    /// The file is not text, and text is what was asked for.
    #[error("{path} is not text: {why}")]
    NotText {
        /// The file.
        path: HostPath,
        /// How that is known.
        why: String,
    },
    /// No line of the file defines the name.
    #[error("nothing in {path} defines `{symbol}`")]
    NoSymbol {
        /// The file.
        path: HostPath,
        /// The name.
        symbol: String,
    },
    /// The path names something that is not a regular file.
    #[error("{path} is {what}, not a regular file")]
    NotRegular {
        /// The path.
        path: HostPath,
        /// Kind of file that it is.
        what: FileKind,
    },
    /// The path names no directory.
    #[error("{path} is not a directory")]
    NotADirectory {
        /// The path.
        path: HostPath,
    },
    /// An expression or a pattern that makes no sense.
    #[error("argument `{argument}`, {pattern}: {reason}")]
    Pattern {
        /// The argument.
        argument: &'static str,
        /// Pattern, shortened.
        pattern: String,
        /// Mistake in it.
        reason: String,
    },
    /// The text to be replaced is not in the file.
    #[error("`old_string` is not in {path}{}", .why.text())]
    NotFound {
        /// The file.
        path: HostPath,
        /// Possible cause.
        why: edit::Mismatch,
    },
    /// The text to be replaced is there more than once.
    #[error("`old_string`{} is in {path} {times} times, first on lines {}", .stage.text(), edit::listed(.lines))]
    NotUnique {
        /// The file.
        path: HostPath,
        /// How often.
        times: usize,
        /// Where the first of them begin.
        lines: Vec<u64>,
        /// How it was looked for.
        stage: edit::Stage,
    },
    /// The replacement is what is there.
    #[error("`old_string` and `new_string` are the same")]
    NoChange,
    /// The file is longer than this tool holds in memory.
    #[error("{path} has {size} bytes, more than the {most} that edit takes")]
    TooLong {
        /// The file.
        path: HostPath,
        /// The bytes there are.
        size: u64,
        /// The most.
        most: u64,
    },
    /// Somebody else wrote to the file meanwhile. It is as they left it.
    #[error("{path} was changed by somebody else meanwhile")]
    Changed {
        /// The file.
        path: HostPath,
    },
    /// The file could not be found or opened.
    #[error("open {path}")]
    Open {
        /// The file.
        path: HostPath,
        /// Cause.
        source: io::Error,
    },
    /// The file was open, and reading it failed.
    #[error("read {path}")]
    Read {
        /// The file.
        path: HostPath,
        /// Cause.
        source: io::Error,
    },
    /// Only new files may be made, and the name is taken. What has it is as it was.
    #[error("{path} is there already, and only new files may be made")]
    Exists {
        /// The file.
        path: HostPath,
    },
    /// A directory on the way to the file could not be opened or made.
    #[error("make the directories above {path}")]
    Parent {
        /// The file.
        path: HostPath,
        /// Cause.
        source: io::Error,
    },
    /// A symbolic link is on the way, and rules have judged the path as it is spelt.
    #[error("{path} goes by a symbolic link to {real}, and rules are about names")]
    ByLink {
        /// The path.
        path: HostPath,
        /// Where it leads.
        real: HostPath,
    },
    /// Symbolic links led the kernel and this code to different files: somebody is changing them.
    #[error("the symbolic links of {path} changed while they were followed")]
    LinkChanged {
        /// The file.
        path: HostPath,
    },
    /// The new content's temporary file could not be made beside the file.
    #[error("make a temporary file beside {path}")]
    Temporary {
        /// The file.
        path: HostPath,
        /// Cause.
        source: io::Error,
    },
    /// The new content could not be stored. The old content is as it was.
    #[error("write {path}")]
    Write {
        /// The file.
        path: HostPath,
        /// Cause.
        source: io::Error,
    },
    /// The new content could not be given the old file's mode. The old content is as it was.
    #[error("keep the mode of {path}")]
    Mode {
        /// The file.
        path: HostPath,
        /// Cause.
        source: io::Error,
    },
    /// No repository is there, nor above it as far as the call may look.
    #[error("there is no git repository at {path}, nor above it in the workspace")]
    NoRepository {
        /// Where one was looked for.
        path: HostPath,
    },
    /// A repository could not be read.
    #[error("{what}: {why}")]
    Repository {
        /// Act that failed.
        what: &'static str,
        /// Reason.
        why: String,
    },
    /// A page was not fetched.
    #[error("fetch {url}: {why}")]
    Fetch {
        /// The page.
        url: String,
        /// Reason.
        why: String,
        /// Kind of error.
        code: ErrorCode,
    },
    /// A database has done nothing.
    #[error("{database}: {why}")]
    Database {
        /// Which, by its tool and its alias.
        database: String,
        /// Reason.
        why: String,
        /// Kind of error.
        code: ErrorCode,
    },
    /// A provider has given no results.
    #[error("ask {provider}: {why}")]
    Search {
        /// Its name in a manifest.
        provider: String,
        /// Reason.
        why: String,
        /// Kind of error.
        code: ErrorCode,
    },
    /// A workbook gave no result.
    #[error("{path}: {why}")]
    Workbook {
        /// The file.
        path: HostPath,
        /// The reason.
        why: workbook::WorkbookError,
    },
    /// A file could not be removed. It is as it was.
    #[error("remove {path}")]
    Remove {
        /// The file.
        path: HostPath,
        /// Cause.
        source: io::Error,
    },
    /// A patch makes no sense, or does not fit. All files are as they were, unless it says otherwise.
    #[error("{0}")]
    Patch(Box<patch::PatchError>),
    /// A service has not done what it was asked.
    #[error("ask {service}: {why}")]
    Service {
        /// Name of it for people.
        service: &'static str,
        /// Reason.
        why: String,
        /// Kind of error.
        code: ErrorCode,
    },
    /// A language server has not answered.
    #[error("{server}: {why}{}", lsp::last_words(.words))]
    LanguageServer {
        /// Its name.
        server: String,
        /// Reason.
        why: lsp::LspError,
        /// The end of what it had written on standard error.
        words: String,
    },
    /// The new content was complete and could not be put in the old one's place. The old content is as it was.
    #[error("replace {path}")]
    Publish {
        /// The file.
        path: HostPath,
        /// Cause.
        source: io::Error,
    },
}

impl ToolError {
    /// The kernel's own answer, where a system call failed. For EACCES, EPERM and EROFS the supervisor looks for the
    /// layer that refused.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        self.cause().and_then(io::Error::raw_os_error)
    }

    /// Kind of error (X1-25).
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Argument { .. }
            | Self::MixedRanges
            | Self::EmptyRange { .. }
            | Self::StartPastEnd { .. }
            | Self::OffsetPastEnd { .. }
            | Self::NoFileName { .. }
            | Self::Pattern { .. }
            | Self::NoChange => ErrorCode::InputInvalid,
            Self::UnknownTool { .. } | Self::NotFound { .. } | Self::NoSymbol { .. } | Self::NoRepository { .. } => {
                ErrorCode::NotFound
            }
            Self::NotUnique { .. } => ErrorCode::AmbiguousMatch,
            Self::TooLong { .. } => ErrorCode::LimitExceeded,
            Self::Changed { .. } | Self::LinkChanged { .. } => ErrorCode::ResourceBusy,
            Self::Exists { .. } | Self::ByLink { .. } => ErrorCode::Forbidden,
            Self::NotText { .. } | Self::NotRegular { .. } | Self::NotADirectory { .. } | Self::Repository { .. } => {
                ErrorCode::ToolExecutionFailed
            }
            Self::Fetch { code, .. }
            | Self::Search { code, .. }
            | Self::Service { code, .. }
            | Self::Database { code, .. } => *code,
            Self::Workbook { why, .. } => why.code(),
            Self::LanguageServer { why, .. } => why.code(),
            Self::Patch(error) => error.code(),
            Self::Open { source, .. }
            | Self::Read { source, .. }
            | Self::Parent { source, .. }
            | Self::Temporary { source, .. }
            | Self::Write { source, .. }
            | Self::Mode { source, .. }
            | Self::Remove { source, .. }
            | Self::Publish { source, .. } => match source.raw_os_error() {
                Some(libc::ENOENT) => ErrorCode::NotFound,
                Some(libc::EBUSY | libc::EAGAIN | libc::ETXTBSY) => ErrorCode::ResourceBusy,
                _ => ErrorCode::ToolExecutionFailed,
            },
        }
    }

    /// Next step of the caller.
    #[must_use]
    pub fn next_step(&self) -> Option<&'static str> {
        match self {
            Self::UnknownTool { .. } => Some("call one of the tools that the registry lists"),
            Self::Argument { .. } => Some("see the tool's schema"),
            Self::MixedRanges => Some("ask for lines or for bytes"),
            Self::EmptyRange { .. } => Some("lines are counted from 1, and end_line is included"),
            Self::StartPastEnd { .. } | Self::OffsetPastEnd { .. } => Some("start before the end"),
            Self::NoFileName { .. } => Some("name a file"),
            Self::NotText { .. } => Some("use a program that reads such files, by the shell"),
            Self::NoSymbol { .. } => Some("look for it with a search, or read by lines"),
            Self::NotRegular { what: FileKind::Directory, .. } => {
                Some("name a file in it; glob, or `ls` by bash, lists a directory")
            }
            Self::NotRegular { .. } => Some("only regular files are read and written"),
            Self::NotADirectory { .. } => Some("name the directory that it is in"),
            Self::Pattern { argument: "pattern", reason, .. } if reason.contains("\\n") => {
                Some("each line is matched alone; look for a part of one line, with context_lines")
            }
            Self::Pattern { argument: "sql", .. } => Some("a statement is words, numbers and plain texts in quotes"),
            Self::Pattern { .. } => Some("see the tool's schema; a backslash takes a character literally"),
            Self::NotFound { why, .. } => Some(why.next_step()),
            Self::NotUnique { .. } => Some("give more of the lines around it, so that it is there once"),
            Self::NoChange => Some("give the text as it is to be"),
            Self::TooLong { .. } => Some("use a program, such as sed, by bash"),
            Self::Changed { .. } => Some("read it again"),
            Self::Exists { .. } => Some("choose a name that is free"),
            Self::ByLink { .. } => Some("name the file itself"),
            Self::Workbook { why, .. } => why.next_step(),
            Self::Patch(error) => Some(error.next_step()),
            Self::NoRepository { .. } => {
                Some("name a directory of a repository; one above the workspace is not looked for")
            }
            Self::Repository { .. }
            | Self::Fetch { .. }
            | Self::Search { .. }
            | Self::Service { .. }
            | Self::LanguageServer { .. }
            | Self::Database { .. } => None,
            Self::LinkChanged { .. } => Some("try again, or name the file that the link leads to"),
            Self::Open { source, .. }
            | Self::Read { source, .. }
            | Self::Parent { source, .. }
            | Self::Temporary { source, .. }
            | Self::Write { source, .. }
            | Self::Mode { source, .. }
            | Self::Remove { source, .. }
            | Self::Publish { source, .. } => next_step_for(source.raw_os_error()?),
        }
    }

    /// The failure in one line: the operation and its object, the cause, the next step. Of a refusal the operation alone: what
    /// to do about that depends on what was granted, which the supervisor knows. The envelope's `error_text`.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = self.to_string();
        if self.errno().is_some_and(is_refusal) {
            return text;
        }
        if let Some(cause) = self.cause() {
            text.push_str(&format!(": {cause}"));
        }
        if let Some(step) = self.next_step() {
            text.push_str(&format!("; {step}"));
        }
        text
    }

    fn cause(&self) -> Option<&io::Error> {
        match self {
            Self::Open { source, .. }
            | Self::Read { source, .. }
            | Self::Parent { source, .. }
            | Self::Temporary { source, .. }
            | Self::Write { source, .. }
            | Self::Mode { source, .. }
            | Self::Remove { source, .. }
            | Self::Publish { source, .. } => Some(source),
            Self::UnknownTool { .. }
            | Self::Argument { .. }
            | Self::MixedRanges
            | Self::EmptyRange { .. }
            | Self::StartPastEnd { .. }
            | Self::OffsetPastEnd { .. }
            | Self::NoFileName { .. }
            | Self::NotText { .. }
            | Self::NoSymbol { .. }
            | Self::NotRegular { .. }
            | Self::NotADirectory { .. }
            | Self::NoRepository { .. }
            | Self::Repository { .. }
            | Self::Pattern { .. }
            | Self::NotFound { .. }
            | Self::NotUnique { .. }
            | Self::NoChange
            | Self::TooLong { .. }
            | Self::Changed { .. }
            | Self::Exists { .. }
            | Self::ByLink { .. }
            | Self::Fetch { .. }
            | Self::Search { .. }
            | Self::Workbook { .. }
            | Self::Patch(_)
            | Self::Service { .. }
            | Self::LanguageServer { .. }
            | Self::Database { .. }
            | Self::LinkChanged { .. } => None,
        }
    }
}

/// True if an error number is what the layers refuse with.
#[must_use]
pub fn is_refusal(errno: i32) -> bool {
    matches!(errno, libc::EACCES | libc::EPERM | libc::EROFS)
}

fn next_step_for(errno: i32) -> Option<&'static str> {
    Some(match errno {
        libc::ENOENT => "check the spelling; glob lists what there is",
        libc::ENOTDIR => "a name before the last is no directory",
        libc::ELOOP => "the symbolic links go in a circle; name the file itself",
        libc::ENAMETOOLONG => "a name has at most 255 bytes and a path 4095",
        libc::ENOSPC => "the file system is full; free some space or write less",
        libc::EDQUOT => "the disk quota is used up; free some space or write less",
        libc::EFBIG => "the limit on the size of a file is reached; write less",
        libc::EAGAIN => "the file would block until somebody else acts; only stored content is read",
        libc::EBUSY => "the file is a mount point and cannot be replaced; write another file",
        libc::ETXTBSY => "the program is running; try again when it has ended",
        _ => return None,
    })
}

/// Kind of what a path names when it is not a regular file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileKind {
    /// A directory.
    Directory,
    /// A named pipe.
    Fifo,
    /// A unix socket.
    Socket,
    /// A character device, such as a terminal or `/dev/zero`.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A symbolic link where none can be followed.
    Symlink,
    /// Something that this code does not know.
    Unknown,
}

impl FileKind {
    /// `None` for a regular file.
    pub(crate) fn of_other(mode: rustix::fs::RawMode) -> Option<Self> {
        match FileType::from_raw_mode(mode) {
            FileType::RegularFile => None,
            FileType::Directory => Some(Self::Directory),
            FileType::Fifo => Some(Self::Fifo),
            FileType::Socket => Some(Self::Socket),
            FileType::CharacterDevice => Some(Self::CharacterDevice),
            FileType::BlockDevice => Some(Self::BlockDevice),
            FileType::Symlink => Some(Self::Symlink),
            FileType::Unknown => Some(Self::Unknown),
        }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Directory => "a directory",
            Self::Fifo => "a named pipe",
            Self::Socket => "a socket",
            Self::CharacterDevice => "a character device",
            Self::BlockDevice => "a block device",
            Self::Symlink => "a symbolic link",
            Self::Unknown => "of a kind unknown here",
        })
    }
}

/// Puts `path` into a result, and `path_b64` beside it where text would lose bytes (C-27).
pub fn name_path(data: &mut Map<String, Value>, path: &HostPath) {
    use base64::Engine as _;
    let bytes = path.as_bytes();
    data.insert("path".to_owned(), String::from_utf8_lossy(bytes).into());
    if std::str::from_utf8(bytes).is_err() {
        data.insert("path_b64".to_owned(), base64::engine::general_purpose::STANDARD.encode(bytes).into());
    }
}

/// The optional argument `name`, an integer of at least `least`.
///
/// `2.0` is an integer too: JSON Schema 2020-12 says so, and some models write it.
pub(crate) fn integer(
    args: &Value,
    name: &'static str,
    least: u64,
    wants: &'static str,
) -> Result<Option<u64>, ToolError> {
    /// Up to here every integer has its own f64.
    const EXACT: f64 = 9_007_199_254_740_992.0;

    let Some(value) = args.get(name) else { return Ok(None) };
    let whole = |n: &f64| n.fract() == 0.0 && (0.0..=EXACT).contains(n);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`whole` holds: in range, no fraction")]
    let number = value.as_u64().or_else(|| value.as_f64().filter(whole).map(|n| n as u64));
    match number.filter(|&n| n >= least) {
        Some(number) => Ok(Some(number)),
        None => Err(ToolError::Argument { name, wants, found: shorten(value) }),
    }
}

/// The optional argument `name`, a string.
fn text<'a>(args: &'a Value, name: &'static str, wants: &'static str) -> Result<Option<&'a str>, ToolError> {
    match args.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(ToolError::Argument { name, wants, found: shorten(other) }),
    }
}

/// The argument `name`, a string that must be there.
fn required_text<'a>(args: &'a Value, name: &'static str) -> Result<&'a str, ToolError> {
    let missing = || ToolError::Argument { name, wants: "a string", found: "missing".to_owned() };
    text(args, name, "a string")?.ok_or_else(missing)
}

/// The optional argument `name`, a yes or no; no by default.
fn flag(args: &Value, name: &'static str) -> Result<bool, ToolError> {
    match args.get(name) {
        None => Ok(false),
        Some(Value::Bool(yes)) => Ok(*yes),
        Some(other) => Err(ToolError::Argument { name, wants: "true or false", found: shorten(other) }),
    }
}

/// True if a surface has told this: it says so by 1.
fn is_told(args: &Value, name: &str) -> bool {
    args[name].as_u64() == Some(1)
}

/// The optional argument `name`, a list of strings; empty by default.
fn list_of_text<'a>(args: &'a Value, name: &'static str) -> Result<Vec<&'a str>, ToolError> {
    let wrong = |found: &Value| ToolError::Argument { name, wants: "a list of strings", found: shorten(found) };
    match args.get(name) {
        None => Ok(Vec::new()),
        Some(list) => {
            let texts = list.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
            texts.ok_or_else(|| wrong(list))
        }
    }
}

/// A value as an error message can carry it.
pub(crate) fn shorten(value: &Value) -> String {
    let mut text = value.to_string();
    if text.len() > 40 {
        text.truncate(text.floor_char_boundary(37));
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn contracts_are_closed_json_schemas_and_carry_the_locked_names() {
        for contract in CONTRACTS {
            let schema: Value = serde_json::from_str(contract.schema).expect("a schema is JSON");
            assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
            assert_eq!(schema["additionalProperties"], false, "{}", contract.name);
            let properties = schema["properties"].as_object().expect("properties");
            for (name, property) in properties {
                assert!(property["description"].is_string(), "{}: {name} has no description", contract.name);
            }
            for name in schema["required"].as_array().expect("required") {
                assert!(properties.contains_key(name.as_str().expect("a name")));
            }
            assert!(!contract.description.is_empty());
        }
        let names =
            ["read", "write", "edit", "apply_patch", "note", "glob", "grep", "list", "file_search", "read_excel"];
        let others = [
            "web_fetch",
            "web_search",
            "git_status",
            "git_diff",
            "repo_overview",
            "diagnostics",
            "azure_devops",
            "rlm_query",
            "lsp",
        ];
        assert_eq!(CONTRACTS.iter().map(|c| c.name).collect::<Vec<_>>(), [&names[..], &others].concat());
        assert_eq!(read::CONTRACT.requires, ["fs.read"]); // S0-10
        assert_eq!(write::CONTRACT.requires, ["fs.write"]); // S0-11
        assert_eq!(edit::CONTRACT.requires, ["fs.read", "fs.write"]); // S0-12
        assert_eq!(patch::CONTRACT.requires, ["fs.read", "fs.write"]); // S0-25
        assert_eq!(glob::CONTRACT.requires, ["fs.read"]); // S0-13
        assert_eq!(grep::CONTRACT.requires, ["fs.read"]); // S0-14
        assert_eq!(web::fetch::CONTRACT.requires, ["net.fetch"]); // S0-20
        assert_eq!(web::search::CONTRACT.requires, ["net.fetch"]); // S0-19
    }

    #[test]
    fn an_unknown_tool_is_named() {
        let ctx = Context::new(HostPath::from("/"), 10);
        let error = run("raed", &json!({}), &ctx).expect_err("no such tool");
        assert_eq!(error.text(), "unknown tool \"raed\"; call one of the tools that the registry lists");
        assert_eq!(error.errno(), None);
    }

    #[test]
    fn integers_are_what_json_schema_calls_integers() {
        let wants = "a whole number of at least 1";
        for (value, expected) in [(json!(1), 1), (json!(2.0), 2), (json!(u64::MAX), u64::MAX)] {
            assert_eq!(integer(&json!({ "n": value }), "n", 1, wants).expect("an integer"), Some(expected));
        }
        assert_eq!(integer(&json!({}), "n", 1, wants).expect("absent"), None);
        for value in [json!(0), json!(-1), json!(1.5), json!("1"), json!(null), json!(1e300), json!([1])] {
            let error = integer(&json!({ "n": value }), "n", 1, wants).expect_err("no such line");
            assert!(matches!(error, ToolError::Argument { name: "n", .. }), "{value}: {error}");
        }
        let long = integer(&json!({ "n": "ü".repeat(500) }), "n", 1, wants).expect_err("a string");
        assert!(long.to_string().len() < 120, "{long}");
    }

    #[test]
    fn an_error_says_operation_cause_and_next_step() {
        let source = io::Error::from_raw_os_error(libc::ENOENT);
        let error = ToolError::Open { path: HostPath::from("/no\nwhere"), source };
        assert_eq!(error.errno(), Some(libc::ENOENT));
        assert_eq!(
            error.text(),
            "open /no\\nwhere: No such file or directory (os error 2); check the spelling; glob lists what there is"
        );
        let refused = ToolError::Open { path: HostPath::from("/x"), source: io::Error::from_raw_os_error(libc::EROFS) };
        assert_eq!((refused.errno(), refused.text().as_str()), (Some(libc::EROFS), "open /x"));
    }
}
