//! The context that a tool runs in: what its plan granted, and how far its result may go.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use callgate_policy::denied::DeniedFiles;
use callgate_policy::effective::PathRegion;
use callgate_policy::path::HostPath;
use callgate_policy::plan::{CallPlan, CallWork, FsRule};
use callgate_worker::toolset::{Given, Peer};
use serde_json::{Map, Value, json};

use super::error::ToolError;
use super::file_kind::FileKind;
use crate::FileAct;

/// Context that a call runs with, besides its arguments.
#[derive(Debug, Clone)]
pub struct ToolContext {
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
    /// Files that a search leaves out, and how many those were.
    pub left_out: LeftOutFiles,
    /// How many threads a search has.
    pub threads: usize,
    /// Treatment of symbolic links on the way.
    pub links: LinkTreatment,
    /// The certificates of authorities, for a tool that fetches.
    pub certificates: Vec<u8>,
    /// The program that it talks to, if it does.
    pub peer: Option<Arc<Peer>>,
}

/// Files that rules deny, which a search leaves out and counts.
#[derive(Debug, Clone, Default)]
pub struct LeftOutFiles {
    denied: Arc<[DeniedFiles]>,
    count: Arc<AtomicU64>,
}

impl LeftOutFiles {
    /// True if no rule denies any.
    pub(super) fn is_empty(&self) -> bool {
        self.denied.is_empty()
    }

    /// True if a path is to be left out.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.denied.iter().any(|denied| denied.pattern.matches(&path.into()))
    }

    /// Counts one of them.
    pub(super) fn count(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Puts the number into a result, with the rules, if there are some.
    pub(super) fn tell(&self, data: &mut Map<String, Value>) {
        let count = self.count.load(Ordering::Relaxed);
        if count == 0 {
            return;
        }
        let mut rules: Vec<&str> = self.denied.iter().map(|denied| denied.rule.as_str()).collect();
        rules.dedup();
        data.insert("left_out".to_owned(), json!({ "count": count, "by": rules }));
    }
}

/// Treatment of symbolic links on the way to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkTreatment {
    /// They lead where they lead.
    Followed,
    /// They are an error: rules have judged the path, and not where it leads.
    Refused,
}

impl ToolContext {
    /// For a tool that works on one file, or a search of all of one tree.
    #[must_use]
    pub fn new(path: HostPath, limit: usize) -> Self {
        Self {
            roots: vec![path.clone()],
            paths: vec![path.clone()],
            path,
            limit,
            within: Vec::new(),
            left_out: LeftOutFiles::default(),
            threads: 1,
            links: LinkTreatment::Followed,
            certificates: Vec::new(),
            peer: None,
        }
    }

    /// The tool that a plan names, and the context that it runs in; `None` for the plan of a program.
    #[must_use]
    pub fn of(plan: &CallPlan, given: Given) -> Option<(&str, Self)> {
        let CallWork::Tool { name, paths, limit } = &plan.work else { return None };
        // One that works on no file has no use for a path.
        let path = paths.first().cloned().unwrap_or_else(|| "/".into());
        let below = |rule: &&FsRule| rule.path.as_path().starts_with(&path);
        let roots = plan.rules.own().iter().filter(below).map(|rule| rule.path.clone()).collect();
        let limit = usize::try_from(*limit).unwrap_or(usize::MAX);
        let links = if plan.as_spelt { LinkTreatment::Refused } else { LinkTreatment::Followed };
        let paths = paths.clone();
        let Given { threads, certificates, peer } = given;
        let peer = peer.map(Arc::new);
        let within = plan.within.clone();
        let left_out = LeftOutFiles { denied: plan.without.clone().into(), count: Arc::default() };
        Some((name, Self { path, paths, limit, roots, within, left_out, threads, links, certificates, peer }))
    }

    /// Says where links lead, if they are refused. That they are is held where the file is opened.
    pub(super) fn refuse_links(&self) -> Result<(), ToolError> {
        if self.links == LinkTreatment::Followed {
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

    pub(super) fn may_tell_of(&self, path: &Path) -> bool {
        let is_left_out = self.left_out.has(path);
        !is_left_out && (self.within.is_empty() || self.within.iter().any(|region| region.matches(&path.into())))
    }

    /// The path, if a search may tell of it: the kernel may have had to be told more than was granted.
    pub(super) fn may_be_told(&self) -> Result<&HostPath, ToolError> {
        let refused = || ToolError::File {
            act: FileAct::Open,
            path: self.path.clone(),
            source: io::Error::from_raw_os_error(libc::EACCES),
        };
        if self.may_tell_of(self.path.as_path()) { Ok(&self.path) } else { Err(refused()) }
    }

    /// True if the path is a directory, as far as it is granted. One of which only parts were granted need not be visible.
    pub(super) fn is_directory(&self) -> Result<bool, ToolError> {
        if !self.roots.contains(&self.path) {
            return Ok(true);
        }
        let stat = rustix::fs::stat(self.path.as_path()).map_err(|e| ToolError::File {
            act: FileAct::Open,
            path: self.path.clone(),
            source: e.into(),
        })?;
        Ok(FileKind::of_other(stat.st_mode) == Some(FileKind::Directory))
    }

    pub(super) fn require_directory(&self) -> Result<(), ToolError> {
        if self.is_directory()? { Ok(()) } else { Err(ToolError::NotADirectory { path: self.path.clone() }) }
    }
}
