//! `apply_patch`: changes several files at once, all of them or none (S0-25, S2-6, X2-18).
//!
//! The files are named in the patch, so it is read twice. [`read_names`] runs in a worker of the readers, which can open no
//! file, before the call is checked: it says which files the patch reads and writes, and the capability check, rules,
//! watchdogs and people see those. [`run`] then works in a worker that is confined to them, reads the patch again, and
//! refuses a name that was not checked. A reader that lies gains nothing.
//!
//! # All or nothing
//!
//! First everything is worked out in memory: what files hold is read, all hunks are put in. Then each new content is stored
//! in a temporary file beside its file, and only when all are stored do they take their names: first the files that are new,
//! then those that replace others, and what is removed goes last. So nothing has changed if
//! - a hunk does not fit, a file is missing or there already, or one file leads to another by links;
//! - the disk is full, a quota or a limit is met, or a directory may not be written;
//! - a file is protected or read-only, which is asked before any file is changed. A protected name that is new is refused when
//!   it is taken, and by then only new files have come, which are removed again.
//!
//! If a file cannot take its name after all, because it is a mount point or somebody else changes the directory, what was done
//! is undone from memory; the space for that was freed by what was done. If even that fails, the error names the files that
//! stay changed.
//!
//! The names are taken one by one, for the kernel has no call that replaces several files. What that means:
//! - **Others see some files changed before others**, for as long as that takes: each of them whole, old or new. Calls of the
//!   same session do not, for this one runs alone.
//! - **The worker is killed** (a timeout, a call that is given up, the memory killer) or **the supervisor is**: the broker takes
//!   the names in one step of its own for all files of trees where names are protected, which a workspace is. It is asked once,
//!   checks all, and then renames and removes without asking or waiting for anybody. So all is done, or nothing.
//! - **The broker is killed in that step, or the whole machine dies**: some files may be new and others old. Nothing is
//!   synced, as for `write`. There is no journal: it would have to lie where the session writes, and whoever reads it later
//!   would have to believe it.
//! - **Files that the kernel alone guards** (a protected name that was granted by its name, a grant below such a one): there is
//!   no such step, and the worker itself takes the names. A kill between two of them leaves some changed.
//!
//! Directories that were made for new files stay when the call fails, and so does a directory whose last file is removed.

mod commit;
mod error;
mod hunks;
mod parse;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;

use callgate_policy::path::HostPath;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use self::commit::{After, PatchFiles};
pub use self::error::{Misfit, PatchError};
use self::parse::{Change, FILES_MAX, FilePatch};
use super::arguments::{flag, integer, required_text, text};
use super::{Contract, SyscallNeed, ToolContext, ToolError, ToolResult, name_path, results};
use crate::FileAct;

/// The name of the tool.
pub const NAME: &str = "apply_patch";
/// The name by which the supervisor has a patch's names read.
pub const READER: &str = "patch-names";
/// Word to the worker besides the arguments: the names that were checked, in the order of the plan's paths.
pub const CHECKED: &str = "checked_names";

/// The longest patch, bytes.
pub const PATCH_MAX: usize = 4 * 1024 * 1024;
/// Lines of context that a hunk may leave out, if the call does not say.
const FUZZ: usize = 3;
/// The most that it may say.
const FUZZ_MAX: u64 = 50;

/// The arguments of `apply_patch`.
pub const PATCH_SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "patch": {
      "type": "string", "minLength": 1, "maxLength": 4194304,
      "description": "A unified diff over one or more files, as `git diff` or `diff -u` writes it. Names are relative to the workspace, with or without `a/` and `b/`. New, deleted, renamed and copied files and modes need git's headers (`diff --git`), or `/dev/null` in place of a name. Not with `changes`."
    },
    "changes": {
      "type": "array", "minItems": 1, "maxItems": 64,
      "items": {
        "type": "object",
        "properties": {
          "path": {
            "type": ["string", "object"], "minLength": 1,
            "properties": { "b64": { "type": "string", "minLength": 1 } }, "required": ["b64"], "additionalProperties": false,
            "description": "The file to create or overwrite, absolute or relative to the workspace."
          },
          "content": { "type": "string", "description": "The complete new content of the file." }
        },
        "required": ["path", "content"],
        "additionalProperties": false
      },
      "description": "Files that are written as a whole, all of them or none. Not with `patch`."
    },
    "fuzz": {
      "type": "integer", "default": 3, "minimum": 0, "maximum": 50,
      "description": "How many lines of context at each end of a hunk need not match, if the hunk then fits in exactly one place. Default 3. With 0, what git apply refuses is refused."
    },
    "create_if_missing": {
      "type": "boolean", "default": false,
      "description": "Whether a file that the patch changes and that is not there counts as an empty one. Default false."
    }
  },
  "required": [],
  "additionalProperties": false
}"#;

/// Contract of `apply_patch`.
pub const CONTRACT: Contract = Contract {
    name: NAME,
    requires: &["fs.read", "fs.write"],
    description: "Apply a patch to one or more files: all of it, or nothing if a hunk does not fit or a file cannot be \
        written. Give a unified diff as `patch`, or whole files as `changes`. Each file is changed once. Files keep their modes \
        unless the patch says otherwise, and symbolic links are written through. Returns what was done to each file, and \
        which hunks were not at the line that they name.",
    schema: PATCH_SCHEMA,
    output: results::PATCH,
    kind: SyscallNeed::Plain,
    run,
    files: None,
};

/// Which files a patch reads and writes, as it names them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatchNames {
    /// Those that are read and stay as they are: what is copied.
    pub read: Vec<HostPath>,
    /// Those that are read, and changed, removed or renamed.
    pub change: Vec<HostPath>,
    /// Those that are made.
    pub write: Vec<HostPath>,
    /// True if it removes or renames a file, or makes one that may be executable: more than an edit.
    pub is_more_than_an_edit: bool,
}

impl PatchNames {
    /// All of them, in the order in which the plan has their paths.
    pub fn all(&self) -> impl Iterator<Item = &HostPath> {
        self.read.iter().chain(&self.change).chain(&self.write)
    }

    fn of(files: &[FilePatch<'_>]) -> Self {
        let mut names = Self::default();
        let add = |list: &mut Vec<HostPath>, name: &[u8]| {
            let name = host_path(name);
            if !list.contains(&name) {
                list.push(name);
            }
        };
        for file in files {
            names.is_more_than_an_edit |= match file.change {
                Change::Delete | Change::Rename => true,
                // A copy has the mode of what it is copied from, unless the patch says otherwise.
                Change::Copy => file.executable != Some(false),
                Change::Modify | Change::Create => file.executable == Some(true),
            };
            match file.change {
                Change::Modify | Change::Delete => add(&mut names.change, &file.new),
                Change::Create => add(&mut names.write, &file.new),
                Change::Rename => {
                    add(&mut names.change, &file.old);
                    add(&mut names.write, &file.new);
                }
                Change::Copy => {
                    add(&mut names.read, &file.old);
                    add(&mut names.write, &file.new);
                }
            }
        }
        // One that is changed as well is read anyway.
        names.read.retain(|name| !names.change.contains(name));
        names.write.retain(|name| !names.change.contains(name));
        names
    }
}

fn host_path(name: &[u8]) -> HostPath {
    HostPath::from(std::path::PathBuf::from(std::ffi::OsStr::from_bytes(name)))
}

/// Says which files `args["patch"]` names: [`PatchNames`].
///
/// # Errors
/// An argument that is not text, or a text that is no patch.
pub fn read_names(args: &Value) -> Result<ToolResult, ToolError> {
    let text = complete(required_text(args, "patch")?);
    Ok(ToolResult::of(json!(PatchNames::of(&parsed(&text)?)), false))
}

/// A text whose last line was not ended: whoever writes JSON easily forgets that.
fn complete(text: &str) -> String {
    if text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}

fn parsed(text: &str) -> Result<Vec<FilePatch<'_>>, PatchError> {
    if text.len() > PATCH_MAX {
        return Err(PatchError::TooLarge { what: "this patch", most: "4 MiB" });
    }
    parse::parse(text.as_bytes())
}

/// Applies `args["patch"]` or `args["changes"]` to `ctx.paths`.
///
/// # Errors
///
/// The first thing that is wrong, with the file and the hunk. All files are as they were, unless the error says otherwise;
/// directories that were made stay.
pub fn run(args: &Value, ctx: &ToolContext) -> Result<ToolResult, ToolError> {
    for path in &ctx.paths {
        ToolContext { path: path.clone(), ..ctx.clone() }.refuse_links()?;
    }
    let wants = "a whole number from 0 to 50";
    let fuzz =
        integer(args, "fuzz", 0, wants)?.map_or(FUZZ, |fuzz| usize::try_from(fuzz.min(FUZZ_MAX)).unwrap_or(FUZZ));
    match (text(args, "patch", "a string")?, args.get("changes")) {
        (Some(patch), None) => {
            let text = complete(patch);
            apply(&parsed(&text)?, args, (fuzz, flag(args, "create_if_missing")?), ctx)
        }
        (None, Some(Value::Array(changes))) => write_all(changes, ctx),
        _ => Err(PatchError::Either.into()),
    }
}

/// The path of each name that was checked.
fn checked<'c>(args: &Value, ctx: &'c ToolContext) -> BTreeMap<HostPath, &'c HostPath> {
    let names: Vec<HostPath> = serde_json::from_value(args[CHECKED].clone()).unwrap_or_default();
    names.into_iter().zip(&ctx.paths).collect()
}

fn apply(
    patches: &[FilePatch<'_>],
    args: &Value,
    (fuzz, create_if_missing): (usize, bool),
    ctx: &ToolContext,
) -> Result<ToolResult, ToolError> {
    let checked = checked(args, ctx);
    let path = |name: &[u8]| {
        let path = checked.get(&host_path(name)).copied();
        path.ok_or_else(|| ToolError::from(PatchError::NotChecked { name: parse::lossy(name) }))
    };
    let mut files = PatchFiles::new(ctx.links);
    let mut told = Vec::new();
    for patch in patches {
        let (old, new) = (path(&patch.old)?, path(&patch.new)?);
        let before = match patch.change {
            Change::Create => None,
            Change::Copy => Some(files.read(old)?),
            Change::Modify | Change::Delete | Change::Rename => match files.take(old) {
                Err(ToolError::File { act: FileAct::Open, source, .. })
                    if source.raw_os_error() == Some(libc::ENOENT) =>
                {
                    let from_nothing = patch.hunks.iter().all(|hunk| hunk.old_start == 0 && hunk.old_count == 0);
                    let is_new = patch.change == Change::Modify && (create_if_missing || from_nothing);
                    if !is_new {
                        return Err(PatchError::Missing { path: old.clone() }.into());
                    }
                    None
                }
                taken => Some(taken?),
            },
        };
        let (content, mode) = before.as_deref().map_or((&[][..], None), |before| (&before.content, Some(before.mode)));
        let applied = hunks::apply(content, &patch.hunks, fuzz).map_err(|(number, why)| PatchError::Hunk {
            path: old.clone(),
            hunk: number + 1,
            of: patch.hunks.len(),
            line: patch.hunks[number].at,
            why,
        })?;
        let change = if before.is_none() { Change::Create } else { patch.change };
        let mut data = Map::new();
        name_path(&mut data, new);
        data.insert("action".to_owned(), change.name().into());
        if new != old {
            let mut from = Map::new();
            name_path(&mut from, old);
            data.extend(from.into_iter().map(|(key, value)| (key.replacen("path", "from", 1), value)));
        }
        data.insert("hunks".to_owned(), patch.hunks.len().into());
        data.insert("added".to_owned(), applied.added.into());
        data.insert("removed".to_owned(), applied.removed.into());
        if applied.fuzz > 0 {
            data.insert("fuzz".to_owned(), applied.fuzz.into());
        }
        if !applied.moved.is_empty() {
            let moved = applied.moved.iter().take(100).map(|(hunk, by)| json!([hunk + 1, by])).collect();
            data.insert("moved".to_owned(), Value::Array(moved));
        }
        told.push(Value::Object(data));
        if change == Change::Delete {
            if !applied.content.is_empty() {
                return Err(PatchError::HoldsMore { path: old.clone() }.into());
            }
            files.leave(new, After::Nothing)?;
            continue;
        }
        if change == Change::Rename && patches.iter().all(|other| other.new != patch.old) {
            files.leave(old, After::Nothing)?;
        }
        let may_be_there = change == Change::Modify
            || patches.iter().any(|other| other.change == Change::Rename && other.old == patch.new);
        let (content, executable) = (applied.content, patch.executable);
        files.leave(new, After::Content { content, mode, executable, is_new: !may_be_there })?;
    }
    files.commit()?;
    Ok(ToolResult::of(json!({ "files": told }), false))
}

/// Writes whole files.
fn write_all(changes: &[Value], ctx: &ToolContext) -> Result<ToolResult, ToolError> {
    if changes.len() > FILES_MAX {
        return Err(PatchError::TooMany { most: FILES_MAX }.into());
    }
    if changes.len() != ctx.paths.len() {
        return Err(PatchError::NotChecked { name: "changes".to_owned() }.into());
    }
    let mut files = PatchFiles::new(ctx.links);
    let mut told = Vec::new();
    for (change, path) in changes.iter().zip(&ctx.paths) {
        let content = required_text(change, "content")?.as_bytes().to_vec();
        let mode = match files.take(path) {
            Err(ToolError::File { act: FileAct::Open, source, .. }) if source.raw_os_error() == Some(libc::ENOENT) => {
                None
            }
            taken => Some(taken?.mode),
        };
        let mut data = Map::new();
        name_path(&mut data, path);
        let action = if mode.is_some() { Change::Modify } else { Change::Create };
        data.insert("action".to_owned(), action.name().into());
        told.push(Value::Object(data));
        files.leave(path, After::Content { content, mode, executable: None, is_new: mode.is_none() })?;
    }
    files.commit()?;
    Ok(ToolResult::of(json!({ "files": told }), false))
}
