//! `git_status` and `git_diff`: what has changed in a repository, without a shell and without git (S2-14, S2-15).
//!
//! A repository can configure dozens of programs that git starts while it only looks: a file system monitor, filters, external
//! diffs, pagers (F4, F10). Here nothing can be started at all. The repository is read by `gix`, in a worker whose filter has no
//! execve(2), and nothing of its configuration that names a program or another file counts (`repository`). Nothing is
//! written either: the index stays as it is, byte for byte.

use callgate_policy::failure::ErrorCode;
use callgate_policy::path::HostPath;
use gix::bstr::{BStr, ByteSlice as _};
use serde_json::{Map, Value};

use super::search::REST_MAX;
use super::{HEAD, ToolError, ToolReason, ToolResult};

pub mod diff;
mod repository;
pub mod status;
mod unified;

/// A text as a result's `content`, of which so many bytes are shown; what there is no room for is kept elsewhere (S0-44).
struct GitText {
    bytes: Vec<u8>,
    /// There was more than is kept.
    lost: bool,
}

impl GitText {
    fn new() -> Self {
        Self { bytes: Vec::new(), lost: false }
    }

    /// Adds to it, unless more is there already than is kept.
    fn add(&mut self, more: &[u8]) {
        if self.is_full() {
            self.lost = true;
        } else {
            self.bytes.extend_from_slice(more);
        }
    }

    /// True if nothing more is kept.
    fn is_full(&self) -> bool {
        self.bytes.len() >= REST_MAX
    }

    /// The result, with the text in its place.
    fn into_output(self, mut data: Map<String, Value>, most: usize) -> ToolResult {
        let is_text = std::str::from_utf8(&self.bytes).is_ok();
        let text = String::from_utf8_lossy(&self.bytes);
        let at = text.floor_char_boundary(most.min(text.len()));
        let (shown, rest) = text.split_at(at);
        let truncated = !rest.is_empty() || self.lost;
        data.insert(if truncated { HEAD } else { "content" }.to_owned(), shown.into());
        if !is_text {
            data.insert("lossy".to_owned(), true.into());
        }
        ToolResult { data: Value::Object(data), truncated, rest: rest.as_bytes().to_vec(), lost: self.lost }
    }
}

/// Puts a path of the repository into a result, and its bytes beside it where text would lose some (C-27).
fn name(data: &mut Map<String, Value>, key: &str, path: &BStr) {
    use base64::Engine as _;
    data.insert(key.to_owned(), path.to_str_lossy().into());
    if path.to_str().is_err() {
        data.insert(format!("{key}_b64"), base64::engine::general_purpose::STANDARD.encode(path).into());
    }
}

/// A path as git writes it: in quotes, with escapes, if it has a byte that a line of text cannot have; in its porcelain also if it
/// has a blank.
fn quoted(path: &[u8], blanks: Blanks) -> Vec<u8> {
    let is_plain = |byte: u8| (b' '..0x7f).contains(&byte) && byte != b'"' && byte != b'\\';
    let in_quotes = blanks == Blanks::Quoted && path.contains(&b' ');
    if path.iter().all(|byte| is_plain(*byte)) && !in_quotes {
        return path.to_vec();
    }
    let mut out = vec![b'"'];
    for byte in path {
        let escaped = match byte {
            b'"' => "\\\"".to_owned(),
            b'\\' => "\\\\".to_owned(),
            0x07 => "\\a".to_owned(),
            0x08 => "\\b".to_owned(),
            b'\t' => "\\t".to_owned(),
            b'\n' => "\\n".to_owned(),
            0x0b => "\\v".to_owned(),
            0x0c => "\\f".to_owned(),
            b'\r' => "\\r".to_owned(),
            byte if is_plain(*byte) => char::from(*byte).to_string(),
            byte => format!("\\{byte:03o}"),
        };
        out.extend_from_slice(escaped.as_bytes());
    }
    out.push(b'"');
    out
}

/// Effect of a blank: whether it alone puts a path in quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blanks {
    Quoted,
    Plain,
}

/// Reason why a repository gave no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GitError {
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
}

impl ToolReason for GitError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::NoRepository { .. } => ErrorCode::NotFound,
            Self::Repository { .. } => ErrorCode::ToolExecutionFailed,
        }
    }

    fn next_step(&self) -> Option<&'static str> {
        match self {
            Self::NoRepository { .. } => {
                Some("name a directory of a repository; one above the workspace is not looked for")
            }
            Self::Repository { .. } => None,
        }
    }
}

/// Most characters of an error of the library's that are told: what it quotes comes from the repository.
const WHY_MAX: usize = 300;

/// An operation on a repository that failed.
fn failed(what: &'static str, error: impl std::fmt::Display) -> ToolError {
    let text = error.to_string();
    let why: String = text.chars().flat_map(char::escape_debug).take(WHY_MAX).collect();
    GitError::Repository { what, why }.into()
}

#[cfg(test)]
mod tests;
