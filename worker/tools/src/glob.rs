//! `glob`: the files whose path matches a pattern (S0-13, C-27).
//!
//! The pattern is what ripgrep's `--glob` takes, seen from the directory that is searched: one without a slash matches a
//! name at any depth, one with a slash the whole path. What is hidden or ignored is found only if the pattern spells it out
//! (`Chosen::by`). Results are files, never directories, in the order of their paths.

use std::path::Path;

use serde_json::{Map, Value};

use super::arguments::required_text;
use super::search::{
    Chosen, FirstFew, HEAD_MAX, REST_MAX, ShownEntries, Trouble, Visitor, path_entry, path_of, sort_key, walk,
};
use super::{Contract, FileNeed, HEAD, Needs, SyscallNeed, ToolContext, ToolError, ToolResult, results};

/// The arguments of `glob`.
pub const GLOB_SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "pattern": {
      "type": "string", "minLength": 1, "maxLength": 4096,
      "description": "Which files, relative to `path`: `*.rs` matches a name at any depth, `src/**/*.rs` a path (`*` and `?` do not cross a slash, `**` does; also `[abc]` and `{a,b}`), `!*.rs` all others. Wildcards match neither hidden files nor ignored ones: to get those, begin with their directory (`.git/**`, `target/**/*.d`) or give the name itself (`.env`, `.env*`)."
    },
    "path": {
      "type": ["string", "object"], "minLength": 1,
      "properties": { "b64": { "type": "string", "minLength": 1 } }, "required": ["b64"], "additionalProperties": false,
      "description": "The directory to search, absolute or relative to the workspace. Default: the workspace. A path that is not UTF-8 is `{\"b64\": \"…\"}`, with the `path_b64` of a result."
    }
  },
  "required": ["pattern"],
  "additionalProperties": false
}"#;

/// Word that a supervisor says and a model cannot: the file that has changed last is first (X3-8).
pub const NEWEST_FIRST: &str = "newest_first";

/// Contract of `glob`.
pub const CONTRACT: Contract = Contract {
    name: "glob",
    requires: &["fs.read"],
    description: "Find files by name: returns `paths`, absolute and sorted, of the files below a directory that match a \
        pattern. Left out are hidden files, `.git` among them, and those that .gitignore, .ignore or .rgignore exclude, \
        unless the pattern begins with their directory (`.git/**`, `target/**/*.d`) or gives their name (`.env`). Links are \
        not followed; directories are not listed. Of more than 1000 paths the first are the list `head` instead of \
        `paths`, and the rest is in the file `output_path` of the metadata, one JSON value to a line.",
    schema: GLOB_SCHEMA,
    output: results::GLOB,
    kind: SyscallNeed::Searches,
    run,
    files: Some(FileNeed::locked(Needs::List)),
};

/// Lists the files below `ctx.path` that match `args["pattern"]`.
///
/// # Errors
/// A pattern that makes no sense, or a directory that cannot be looked at.
pub fn run(args: &Value, ctx: &ToolContext) -> Result<ToolResult, ToolError> {
    let pattern = required_text(args, "pattern")?;
    let chosen = Chosen::by(ctx, "pattern", pattern)?.within_told(args, ctx)?;
    ctx.require_directory()?;
    let newest_first = args[NEWEST_FIRST].as_u64() == Some(1);
    let (lists, trouble) = walk(ctx, &chosen, || GlobList { found: FirstFew::new(HEAD_MAX + REST_MAX), newest_first })?;
    let (found, lost) = FirstFew::of_all(HEAD_MAX + REST_MAX, lists.into_iter().map(|list| list.found));
    let mut shown = ShownEntries { lost, ..ShownEntries::default() };
    for (mut key, ()) in found {
        if newest_first {
            key.drain(..AGE);
        }
        shown.add(path_entry(path_of(key)), ctx.limit);
    }
    let mut data = Map::new();
    // All are text, but for names that are not: then there are their bytes too, at the same place.
    let not_text: Vec<Value> = shown.head.iter().map(|entry| entry["path_b64"].clone()).collect();
    let as_text = |entry: Value| if entry.is_string() { entry } else { entry["path"].clone() };
    let truncated = !shown.rest.is_empty() || shown.lost;
    let list = if truncated { HEAD } else { "paths" };
    data.insert(list.to_owned(), shown.head.into_iter().map(as_text).collect());
    if not_text.iter().any(Value::is_string) {
        data.insert("path_b64".to_owned(), not_text.into());
    }
    Trouble::tell(trouble, &mut data);
    ctx.left_out.tell(&mut data);
    Ok(ToolResult { data: Value::Object(data), truncated, rest: shown.rest, lost: shown.lost })
}

struct GlobList {
    found: FirstFew<()>,
    newest_first: bool,
}

/// Bytes of a key that say when a file has changed, where that comes first.
const AGE: usize = 16;

/// Begins with the time since a file has changed, as far as that is known; the longest is last.
fn by_age(path: &Path, key: &[u8]) -> Vec<u8> {
    let changed = std::fs::symlink_metadata(path).and_then(|is| is.modified()).ok();
    let since = changed.and_then(|changed| changed.duration_since(std::time::UNIX_EPOCH).ok()).unwrap_or_default();
    let mut all = (u128::MAX - since.as_nanos()).to_be_bytes().to_vec();
    all.extend_from_slice(key);
    all
}

impl Visitor for GlobList {
    fn file(&mut self, path: &Path, _named: bool, _trouble: &mut Trouble) {
        let mut key = sort_key(path);
        if self.newest_first {
            key = by_age(path, &key);
        }
        if self.found.wants(&key) {
            self.found.add(key, path.as_os_str().len() + 3, ());
        }
    }
}
