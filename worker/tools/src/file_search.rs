//! `file_search`: the files whose names are most like what is looked for (S2-8, X2-16). It looks at names, never at contents.
//!
//! Which files there are is what `glob` says without a pattern: what git ignores and what is hidden are left out, and links
//! are not followed. Upper and lower case are the same. Scores, with ties in the order of paths:
//!
//! | score | the query is |
//! |---|---|
//! | 1 | the file's name |
//! | 0.98 | its path, relative to the directory that is searched |
//! | 0.9, 0.85 | how its name, its path begins |
//! | 0.75, 0.7 | in its name, in its path |
//! | up to 0.6, up to 0.3 | in its name, in its path, with other characters in between |
//!
//! Of the last two the score says how close together the characters are, and whether they begin words, as frizbee judges it.

use callgate_policy::tool::Subject;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use frizbee::{CaseMatching, Config, Matcher};
use serde_json::{Map, Value, json};

use super::arguments::{integer, list_of_text, required_text};
use super::search::{Chosen, Trouble, Visitor, path_of, sort_key, walk};
use super::{Contract, FileNeed, Needs, SyscallNeed, ToolContext, ToolError, ToolResult, name_path, results};

/// The arguments of `file_search`.
pub const FILE_SEARCH_SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "query": {
      "type": "string", "minLength": 1, "maxLength": 256,
      "description": "What to look for in file names: all of a name, its beginning, a part of it, or some of its characters in their order (`usrctl` finds `user_controller.rs`). With a slash it is a path. Upper and lower case are the same."
    },
    "path": {
      "type": ["string", "object"], "minLength": 1,
      "properties": { "b64": { "type": "string", "minLength": 1 } }, "required": ["b64"], "additionalProperties": false,
      "description": "The directory to search, absolute or relative to the workspace. Default: the workspace. A path that is not UTF-8 is `{\"b64\": \"…\"}`."
    },
    "limit": {
      "type": "integer", "default": 20, "minimum": 1, "maximum": 200,
      "description": "How many files to return. Default: 20."
    },
    "extensions": {
      "type": "array", "maxItems": 64, "items": { "type": "string", "minLength": 1, "maxLength": 64 },
      "description": "Only files with one of these extensions, such as `[\"rs\", \"toml\"]`. Default: all files."
    }
  },
  "required": ["query"],
  "additionalProperties": false
}"#;

/// Contract of `file_search`.
pub const CONTRACT: Contract = Contract {
    name: "file_search",
    requires: &["fs.read"],
    description: "Find files whose names are like a query, when you do not know exactly what they are called. Returns \
        `matches`, the best first, each with `path`, `name` and `score` (1 is the very name), and `total_matches`. Contents \
        are not looked at. Left out are hidden files and those that .gitignore, .ignore or .rgignore exclude.",
    schema: FILE_SEARCH_SCHEMA,
    output: results::FILE_SEARCH,
    kind: SyscallNeed::Searches,
    run,
    files: Some(FileNeed::outside(Needs::List, Subject::Search)),
};

/// How many files are returned unless the call says otherwise (X2-16).
const LIMIT: u64 = 20;
/// The most that are returned.
const MOST: usize = 200;

/// Searches below `ctx.path`.
///
/// # Errors
/// An argument that makes no sense, or a directory that cannot be looked at.
pub fn run(args: &Value, ctx: &ToolContext) -> Result<ToolResult, ToolError> {
    let query = required_text(args, "query")?.to_lowercase();
    let limit = integer(args, "limit", 1, "a whole number from 1 to 200")?.unwrap_or(LIMIT);
    let limit = usize::try_from(limit).unwrap_or(MOST).min(MOST).min(ctx.limit);
    let extensions: Vec<String> = list_of_text(args, "extensions")?
        .into_iter()
        .map(|extension| extension.trim_start_matches('.').to_lowercase())
        .collect();
    ctx.require_directory()?;
    let wanted = FileQuery { base: ctx.path.as_path().to_owned(), query, extensions, limit };
    let (threads, trouble) = walk(ctx, &Chosen::all(), || Ranked::new(&wanted))?;
    let (mut best, mut searched, mut total) = (BTreeSet::new(), 0, 0);
    for thread in threads {
        (searched, total) = (searched + thread.searched, total + thread.total);
        best.extend(thread.best);
    }
    let matches: Value = best.into_iter().take(limit).map(|(Reverse(score), key)| told(score, path_of(key))).collect();
    let mut data = Map::new();
    data.insert("matches".to_owned(), matches);
    data.insert("total_matches".to_owned(), total.into());
    data.insert("files_searched".to_owned(), searched.into());
    Trouble::tell(trouble, &mut data);
    ctx.left_out.tell(&mut data);
    Ok(ToolResult::of(Value::Object(data), false))
}

fn told(score: Score, path: PathBuf) -> Value {
    let mut entry = Map::new();
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name_path(&mut entry, &path.into());
    entry.insert("name".to_owned(), name.into());
    entry.insert("score".to_owned(), json!(f64::from(score) / f64::from(WHOLE)));
    Value::Object(entry)
}

/// Thing that is looked for.
struct FileQuery {
    base: PathBuf,
    /// In lower case.
    query: String,
    extensions: Vec<String>,
    limit: usize,
}

/// How alike, in thousandths.
type Score = u16;
/// The very name.
const WHOLE: Score = 1000;

/// The best that one thread has found.
struct Ranked<'a> {
    wanted: &'a FileQuery,
    matcher: Matcher,
    /// Score that the query itself would have: the most.
    full: u16,
    best: BTreeSet<(Reverse<Score>, Vec<u8>)>,
    searched: u64,
    total: u64,
}

impl<'a> Ranked<'a> {
    fn new(wanted: &'a FileQuery) -> Self {
        let mut matcher = Matcher::new(wanted.query.as_str(), &Config::default().casing(CaseMatching::Ignore));
        let full = matcher.match_one(&wanted.query, 0).map_or(1, |found| found.score).max(1);
        Self { wanted, matcher, full, best: BTreeSet::new(), searched: 0, total: 0 }
    }

    /// How alike a file is, if it is at all.
    fn score(&mut self, path: &Path) -> Option<Score> {
        let path = path.strip_prefix(&self.wanted.base).unwrap_or(path);
        let name = path.file_name()?.to_string_lossy().to_lowercase();
        let path = path.to_string_lossy().to_lowercase();
        let query = self.wanted.query.as_str();
        let by_parts = [
            (name == query, WHOLE),
            (path == query, 980),
            (name.starts_with(query), 900),
            (path.starts_with(query), 850),
            (name.contains(query), 750),
            (path.contains(query), 700),
        ];
        if let Some((_, score)) = by_parts.into_iter().find(|(holds, _)| *holds) {
            return Some(score);
        }
        let in_name = self.in_order(&name).map(|share| 300 + share);
        in_name.or_else(|| self.in_order(&path))
    }

    /// The query's characters in their order, with others in between: 1 to 300.
    fn in_order(&mut self, text: &str) -> Option<Score> {
        let found = self.matcher.match_one(text, 0)?;
        let share = u32::from(found.score) * 300 / u32::from(self.full);
        Some(Score::try_from(share).unwrap_or(300).clamp(1, 300))
    }

    fn has_extension(&self, path: &Path) -> bool {
        let extension = || path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
        self.wanted.extensions.is_empty() || extension().is_some_and(|found| self.wanted.extensions.contains(&found))
    }
}

impl Visitor for Ranked<'_> {
    fn file(&mut self, path: &Path, _named: bool, _trouble: &mut Trouble) {
        if !self.has_extension(path) {
            return;
        }
        self.searched += 1;
        let Some(score) = self.score(path) else { return };
        self.total += 1;
        self.best.insert((Reverse(score), sort_key(path)));
        if self.best.len() > self.wanted.limit {
            self.best.pop_last();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn files(names: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        for name in names {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            fs::write(path, "").expect("a file");
        }
        dir
    }

    fn search(dir: &Path, args: Value) -> Value {
        run(&args, &ToolContext { threads: 2, ..ToolContext::new(dir.into(), 1000) }).expect("a result").data
    }

    fn scores(dir: &Path, data: &Value) -> Vec<(String, f64)> {
        let one = |entry: &Value| {
            let path = Path::new(entry["path"].as_str().expect("a path")).strip_prefix(dir).expect("below").to_owned();
            (path.to_string_lossy().into_owned(), entry["score"].as_f64().expect("a score"))
        };
        data["matches"].as_array().expect("matches").iter().map(one).collect()
    }

    /// X2-16: the order of the stages, and their scores.
    #[test]
    fn x2_16_scores_go_from_the_very_name_to_characters_in_order() {
        let dir = files(&["main/x.txt", "a/main", "mainly", "b/domain", "domain/y", "m_a_i_n", "mz/az/iz/nz", "other"]);
        let data = search(dir.path(), json!({ "query": "Main" }));
        let found = scores(dir.path(), &data);
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a/main", "mainly", "main/x.txt", "b/domain", "domain/y", "m_a_i_n", "mz/az/iz/nz"]);
        assert_eq!(found.iter().take(5).map(|(_, score)| *score).collect::<Vec<_>>(), [1.0, 0.9, 0.85, 0.75, 0.7]);
        assert!((0.3..0.6).contains(&found[5].1) && (0.0..0.3).contains(&found[6].1), "{found:?}");
        let by_path = search(dir.path(), json!({ "query": "b/domain" }));
        assert_eq!(scores(dir.path(), &by_path), [("b/domain".to_owned(), 0.98)]);
        assert_eq!(data["files_searched"], 8);
    }

    /// X2-16: ties by path; twenty files unless the call says otherwise, and how many there are.
    #[test]
    fn x2_16_ties_go_by_path_and_twenty_are_returned() {
        let names: Vec<String> = (0..230).map(|number| format!("d{}/same", number)).collect();
        let dir = files(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let mut sorted = names.clone();
        sorted.sort();
        for (args, most) in [
            (json!({}), 20),
            (json!({ "limit": 1 }), 1),
            (json!({ "limit": 200 }), 200),
            (json!({ "limit": 201 }), 200),
        ] {
            let mut args = args;
            args["query"] = "same".into();
            let data = search(dir.path(), args);
            let found: Vec<String> = scores(dir.path(), &data).into_iter().map(|(name, _)| name).collect();
            assert_eq!(found, sorted[..most], "{most}");
            assert_eq!(data["total_matches"], 230);
        }
    }

    /// S2-8: names, not contents. X2-16: what git ignores is not found; extensions narrow it.
    #[test]
    fn s2_8_names_are_searched_without_what_git_ignores() {
        let dir = files(&["target/needle.rs", "src/needle.rs", "src/needle.txt", ".needle", "plain"]);
        fs::write(dir.path().join(".gitignore"), "target\n").expect("a file");
        fs::write(dir.path().join("plain"), "needle").expect("a file");
        let found = |args: Value| -> Vec<String> {
            scores(dir.path(), &search(dir.path(), args)).into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(found(json!({ "query": "needle" })), ["src/needle.rs", "src/needle.txt"]);
        assert_eq!(found(json!({ "query": "needle", "extensions": [".RS"] })), ["src/needle.rs"]);
        assert_eq!(found(json!({ "query": "needle", "extensions": ["md"] })), [""; 0]);
    }

    #[test]
    fn names_and_queries_of_all_sorts_are_compared() {
        use std::os::unix::ffi::OsStrExt as _;
        let dir = files(&["Über Größe.txt", "x"]);
        fs::write(dir.path().join(std::ffi::OsStr::from_bytes(b"bad\xff.txt")), "").expect("a file");
        assert_eq!(search(dir.path(), json!({ "query": "größe" }))["total_matches"], 1);
        let bad = search(dir.path(), json!({ "query": "bad" }));
        assert!(bad["matches"][0]["path_b64"].is_string());
        for query in ["!^x", "'", " ", "\0", "x".repeat(256).as_str(), "../..", "$"] {
            search(dir.path(), json!({ "query": query }));
        }
    }
}
