//! `read` as S3 and S4 have it (S4-3, X3-8, X4-10): text alone, each line with its number, and the definition of one name.
//!
//! The supervisor asks for it, by what it tells the worker beside the arguments; the locked `read` returns a file as it is stored.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;

use callgate_policy::failure::ErrorCode;
use callgate_policy::path::HostPath;
use serde_json::{Map, Value};

use super::{HEAD, ToolContext, ToolError, ToolResult};
use crate::{FileAct, ToolReason};

/// How wide a number is. Without it nothing is numbered.
pub const NUMBER_LINES: &str = "number_lines";
/// How many characters of a line are shown.
pub const LINE_CHARS: &str = "line_chars";
/// Word to the worker: the last line says how many there are.
pub const COUNT_LINES: &str = "count_lines";
/// Word to the worker: files are refused that are not text by their names (X4-10).
pub const REFUSE_BINARY_NAMES: &str = "refuse_binary_names";
/// The name whose definition is wanted.
pub const SYMBOL: &str = "symbol";

/// Names of files that are not text, or are not read as text.
const BINARY: &[&str] = &[
    "7z", "a", "avi", "bin", "bmp", "bz2", "class", "dat", "db", "dll", "dmg", "doc", "docx", "dylib", "eot", "exe",
    "flac", "gif", "gz", "ico", "iso", "jar", "jpeg", "jpg", "mkv", "mov", "mp3", "mp4", "o", "odp", "ods", "odt",
    "ogg", "otf", "pdf", "pkl", "png", "ppt", "pptx", "pyc", "pyo", "rar", "so", "sqlite", "sqlite3", "svg", "tar",
    "tgz", "tiff", "ttf", "war", "wasm", "wav", "webm", "webp", "whl", "woff", "woff2", "xls", "xlsx", "xz", "zip",
    "zst",
];
/// How much of a file is looked at for a definition, bytes.
const DEFINITION_MAX: u64 = 8 << 20;
/// Lines of a file are counted up to this many bytes.
const COUNT_MAX: u64 = 256 << 20;
/// Bytes that an error shows of a file that is not text.
const SHOWN: usize = 32;

/// No line of the file defines the name.
#[derive(Debug, thiserror::Error)]
#[error("nothing in {path} defines `{symbol}`")]
struct NoSymbol {
    path: HostPath,
    symbol: String,
}

impl ToolReason for NoSymbol {
    fn code(&self) -> ErrorCode {
        ErrorCode::NotFound
    }

    fn next_step(&self) -> Option<&'static str> {
        Some("look for it with a search, or read by lines")
    }
}

/// Refuses a file whose name says that it is not text.
pub(super) fn refuse_by_name(args: &Value, path: &HostPath) -> Result<(), ToolError> {
    if args[REFUSE_BINARY_NAMES].as_u64() != Some(1) {
        return Ok(());
    }
    let extension = path.as_path().extension().and_then(|extension| extension.to_str()).map(str::to_ascii_lowercase);
    match extension.filter(|extension| BINARY.contains(&extension.as_str())) {
        Some(extension) => {
            Err(ToolError::NotText { path: path.clone(), why: format!("its name ends in .{extension}") })
        }
        None => Ok(()),
    }
}

/// The result of `read` with its lines numbered, if that was asked for.
pub(super) fn number(args: &Value, ctx: &ToolContext, output: ToolResult) -> Result<ToolResult, ToolError> {
    let Some(width) = args[NUMBER_LINES].as_u64().and_then(|width| usize::try_from(width).ok()) else {
        return Ok(output);
    };
    let ToolResult { data: Value::Object(mut data), truncated, rest, lost } = output else { return Ok(output) };
    let name = if truncated { HEAD } else { "content" };
    let Some(Value::String(text)) = data.get(name).cloned() else {
        return Ok(ToolResult { data: data.into(), truncated, rest, lost });
    };
    if data.get("encoding").and_then(Value::as_str) != Some("utf-8") {
        return Err(ToolError::NotText { path: ctx.path.clone(), why: format!("it begins with {}", hex(&text)) });
    }
    let first = data.get("start_line").and_then(Value::as_u64).unwrap_or(1);
    let most = args[LINE_CHARS].as_u64().and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    let (mut numbered, last) = numbered(&text, first, (width, most));
    if args[COUNT_LINES].as_u64() == Some(1) {
        let total = total(&mut data, ctx)?;
        let _infallible = write!(numbered, "\nShowing lines {first}–{last} of {total}");
    }
    data.insert(name.to_owned(), numbered.into());
    Ok(ToolResult { data: data.into(), truncated, rest, lost })
}

/// The lines with their numbers, and the number of the last.
fn numbered(text: &str, first: u64, (width, most): (usize, usize)) -> (String, u64) {
    let mut numbered = String::with_capacity(text.len() + text.len() / 4);
    let mut last = first;
    for (number, line) in (first..).zip(text.lines()) {
        last = number;
        let separator = if numbered.is_empty() { "" } else { "\n" };
        let (shown, more) = match line.char_indices().nth(most) {
            Some((at, _)) => (&line[..at], "…"),
            None => (line, ""),
        };
        let _infallible = write!(numbered, "{separator}{number:>width$}\t{shown}{more}");
    }
    (numbered, last)
}

/// How many lines the file has, as text.
fn total(data: &mut Map<String, Value>, ctx: &ToolContext) -> Result<String, ToolError> {
    if let Some(total) = data.get("total_lines").and_then(Value::as_u64) {
        return Ok(total.to_string());
    }
    let (lines, is_whole) = count(ctx)?;
    if is_whole {
        data.insert("total_lines".to_owned(), lines.into());
    }
    Ok(if is_whole { lines.to_string() } else { format!("more than {lines}") })
}

/// Counts the lines of a file, and says whether those are all.
fn count(ctx: &ToolContext) -> Result<(u64, bool), ToolError> {
    let failed = |source| ToolError::File { act: FileAct::Read, path: ctx.path.clone(), source };
    let (file, _) = super::read::open(&ctx.path, ctx.links)?;
    let (mut file, mut chunk) = (file.take(COUNT_MAX), vec![0; 64 * 1024]);
    let (mut newlines, mut last) = (0, b'\n');
    loop {
        match file.read(&mut chunk).map_err(failed)? {
            0 => return Ok((newlines + u64::from(last != b'\n'), file.limit() > 0)),
            read => {
                newlines += memchr::memchr_iter(b'\n', &chunk[..read]).count() as u64;
                last = chunk[read - 1];
            }
        }
    }
}

/// The first bytes of what is not text: it came as base64.
fn hex(base64: &str) -> String {
    use base64::Engine as _;
    let some = &base64[..base64.len().min(SHOWN.div_ceil(3) * 4)];
    let bytes = base64::engine::general_purpose::STANDARD.decode(some).unwrap_or_default();
    bytes.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

/// The lines of a definition, first and last, if one is asked for.
pub(super) fn lines_of_symbol(args: &Value, ctx: &ToolContext) -> Result<Option<(u64, u64)>, ToolError> {
    let Some(symbol) = args[SYMBOL].as_str() else { return Ok(None) };
    let (file, _) = super::read::open(&ctx.path, ctx.links)?;
    let text = beginning(file, &ctx.path)?;
    let lines: Vec<&str> = text.lines().collect();
    let missing = || NoSymbol { path: ctx.path.clone(), symbol: symbol.to_owned() };
    let at = lines.iter().position(|line| defines(line, symbol)).ok_or_else(missing)?;
    let last = at + length(&lines[at..]) - 1;
    Ok(Some((at as u64 + 1, last as u64 + 1)))
}

fn beginning(file: File, path: &HostPath) -> Result<String, ToolError> {
    let mut bytes = Vec::new();
    let failed = |source| ToolError::File { act: FileAct::Read, path: path.clone(), source };
    file.take(DEFINITION_MAX).read_to_end(&mut bytes).map_err(failed)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Words that come before a name where it is defined.
const DEFINING: &[&str] = &[
    "fn",
    "def",
    "class",
    "struct",
    "enum",
    "union",
    "trait",
    "interface",
    "type",
    "const",
    "static",
    "let",
    "var",
    "function",
    "func",
    "mod",
    "module",
    "macro_rules!",
    "impl",
    "namespace",
];

/// True if a line defines this name.
fn defines(line: &str, symbol: &str) -> bool {
    let is_of_name = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    line.match_indices(symbol).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + symbol.len()..]);
        let is_whole = !before.ends_with(is_of_name) && !after.starts_with(is_of_name);
        let word = before.trim_end().rsplit(|c: char| c.is_whitespace() || c == '(').next().unwrap_or_default();
        is_whole && before.ends_with(char::is_whitespace) && DEFINING.contains(&word)
    })
}

/// How many lines belong to a definition that begins here: to its closing brace, or as far as lines are indented more.
fn length(lines: &[&str]) -> usize {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let opens = lines.iter().take(20).position(|line| line.contains('{'));
    let ends = lines.iter().take(20).position(|line| line.trim_end().ends_with([';', ':']));
    if let Some(opens) = opens.filter(|opens| ends.is_none_or(|ends| *opens <= ends)) {
        let mut depth = 0_i64;
        for (number, line) in lines.iter().enumerate() {
            for c in line.chars() {
                depth += i64::from(c == '{') - i64::from(c == '}');
            }
            if number >= opens && depth <= 0 {
                return number + 1;
            }
        }
        return lines.len();
    }
    let own = indent(lines[0]);
    let inside = lines.iter().skip(1).take_while(|line| line.trim().is_empty() || indent(line) > own);
    let all = 1 + inside.count();
    // Empty lines after it are not its own.
    all - lines[1..all].iter().rev().take_while(|line| line.trim().is_empty()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// X4-10, X3-8: six columns, and what is longer than a line may be is cut.
    #[test]
    fn x4_10_lines_are_numbered_and_cut() {
        let (text, last) = numbered("a\näöü\n\n", 99_999, (6, 2));
        assert_eq!(text, " 99999\ta\n100000\täö…\n100001\t");
        assert_eq!(last, 100_001);
    }

    #[test]
    fn a_definition_ends_with_its_brace_or_its_indentation() {
        let rust =
            ["fn other() {}", "pub fn f(", "    a: u8,", ") -> u8 {", "    if a { 1 } else { 2 }", "}", "fn g() {}"];
        let at = rust.iter().position(|line| defines(line, "f")).expect("it is there");
        assert_eq!((at, length(&rust[at..])), (1, 5));
        let python = ["class A:", "    def f(self):", "        return 1", "", "    def g(self): pass", "x = 1"];
        let at = python.iter().position(|line| defines(line, "f")).expect("it is there");
        assert_eq!((at, length(&python[at..])), (1, 2));
        assert!(!defines("    self.f()", "f") && !defines("fn ff() {}", "f"));
    }
}
