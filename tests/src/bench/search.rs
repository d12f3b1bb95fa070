//! `grep` and `glob` over a large tree, every layer on, beside ripgrep over the same tree.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use callgate::Session;
use callgate_tests::Dice;
use serde_json::{Value, json};

use crate::failure::BenchFailure;
use crate::figures::{MeasuredFigures, order};
use crate::sessions::{BenchOpener, strength};

/// The tree: so many files in so many directories, 500 MB of lines as sources have them.
const FILES: usize = 40_000;
const DIRECTORIES: usize = 2_000;
const FILE_BYTES: usize = 12_500;
/// One file in so many holds the rare word.
const RARE: usize = 300;
/// At most this much of ripgrep's own time.
const TARGET: f64 = 1.2;

/// Comparison: a call, and ripgrep's words for the same.
struct Comparison {
    name: &'static str,
    tool: &'static str,
    arguments: Value,
    ripgrep: &'static [&'static str],
}

fn comparisons() -> Vec<Comparison> {
    let grep =
        |name, pattern, ripgrep| Comparison { name, tool: "grep", arguments: json!({ "pattern": pattern }), ripgrep };
    vec![
        grep("grep, a word", "xylophone", &["--line-number", "-e", "xylophone", "."]),
        grep("grep, an expression", r"xylo\w+\s*\(\d+\)", &["--line-number", "-e", r"xylo\w+\s*\(\d+\)", "."]),
        Comparison {
            name: "grep, a word in any case",
            tool: "grep",
            arguments: json!({ "pattern": "XyLoPhone", "ignore_case": true }),
            ripgrep: &["--line-number", "--ignore-case", "-e", "XyLoPhone", "."],
        },
        Comparison {
            name: "glob, by name",
            tool: "glob",
            arguments: json!({ "pattern": "*_77.rs" }),
            ripgrep: &["--files", "--glob", "*_77.rs", "."],
        },
    ]
}

/// Result of one comparison, medians.
struct SearchComparison {
    name: &'static str,
    call: Duration,
    /// `None` where ripgrep is not installed.
    ripgrep: Option<Duration>,
}

impl SearchComparison {
    fn ratio(&self) -> Option<f64> {
        self.ripgrep.map(|ripgrep| self.call.as_secs_f64() / ripgrep.as_secs_f64())
    }
}

/// Makes the tree, measures, prints.
pub(crate) async fn run(opener: &BenchOpener<'_>, runs: u32, json: bool) -> Result<(), BenchFailure> {
    let bytes = make_tree(opener.scratch.path())?;
    let session = opener.open().await?;
    let ripgrep = on_path("rg");
    let comparisons = comparisons();
    let mut samples = vec![(Vec::new(), Vec::new()); comparisons.len()];
    let mut dice = Dice::new(0x9e37_79b9_7f4a_7c15);
    for round in 0..=runs {
        for at in order(&mut dice, comparisons.len()) {
            let comparison = &comparisons[at];
            let call = call(&session, comparison).await?;
            let other = ripgrep.as_deref().map(|rg| outside(rg, opener.scratch.path(), comparison)).transpose()?;
            // The first warms up: the tree is in memory after it.
            if round > 0 {
                samples[at].0.push(call);
                samples[at].1.extend(other);
            }
        }
    }
    let median = |times: &[Duration]| (!times.is_empty()).then(|| MeasuredFigures::of(times).median);
    let found: Vec<SearchComparison> = comparisons
        .iter()
        .zip(&samples)
        .map(|(comparison, (calls, others))| SearchComparison {
            name: comparison.name,
            call: median(calls).unwrap_or_default(),
            ripgrep: median(others),
        })
        .collect();
    print(&found, bytes, runs, strength(&session), json).map_err(BenchFailure::io("print the figures"))
}

async fn call(session: &Session, comparison: &Comparison) -> Result<Duration, BenchFailure> {
    let started = Instant::now();
    let envelope = session.call(comparison.tool, comparison.arguments.clone()).await;
    let took = started.elapsed();
    let failed = |reason| BenchFailure::of(comparison.name, reason);
    let data = envelope.data.ok_or_else(|| failed(envelope.error_text.unwrap_or_default()))?;
    let list = data.get("matches").or_else(|| data.get("paths")).and_then(Value::as_array).map_or(0, Vec::len);
    if list > 0 { Ok(took) } else { Err(failed("it found nothing".to_owned())) }
}

/// The program of this name that a shell would start.
fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|file| rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok())
}

fn outside(ripgrep: &Path, tree: &Path, comparison: &Comparison) -> Result<Duration, BenchFailure> {
    let started = Instant::now();
    let output = std::process::Command::new(ripgrep)
        .args(["--no-config", "--no-require-git", "--no-ignore-global"])
        .args(comparison.ripgrep)
        .current_dir(tree)
        .stdin(std::process::Stdio::null())
        .output()
        .map_err(BenchFailure::io("start ripgrep"))?;
    let took = started.elapsed();
    if output.status.success() && !output.stdout.is_empty() {
        return Ok(took);
    }
    let reason = format!("ripgrep ended with {} and found nothing", output.status);
    Err(BenchFailure::of(comparison.name, reason))
}

/// Fills the directory with text that looks like sources to a search: words, calls, short lines. Gives its size in bytes.
fn make_tree(top: &Path) -> Result<u64, BenchFailure> {
    const WORDS: [&str; 24] = [
        "let", "value", "return", "static", "buffer", "length", "index", "self", "match", "error", "result", "config",
        "request", "handler", "parse", "token", "stream", "writer", "offset", "count", "option", "string", "state",
        "update",
    ];
    let mut dice = Dice::new(0x2545_f491_4f6c_dd1d);
    let mut bytes = 0;
    for directory in 0..DIRECTORIES {
        let path = top.join(format!("crate_{}/module_{directory}", directory % 40));
        std::fs::create_dir_all(&path).map_err(BenchFailure::io("make a directory of the tree"))?;
        for file in 0..FILES / DIRECTORIES {
            let number = directory * (FILES / DIRECTORIES) + file;
            let mut text = String::with_capacity(FILE_BYTES + 200);
            if number.is_multiple_of(RARE) {
                text.push_str("// the rare word\nfn xylophone(7) {}\n");
            }
            while text.len() < FILE_BYTES {
                let indent = dice.below(4) * 4;
                let words = 3 + dice.below(7);
                text.extend(std::iter::repeat_n(' ', indent));
                for _ in 0..words {
                    text.push_str(dice.one(&WORDS));
                    text.push(dice.one(&[' ', '(', '.', ',', '_']));
                }
                text.push_str(&format!("{});\n", dice.below(1000)));
            }
            bytes += text.len() as u64;
            std::fs::write(path.join(format!("file_{}.rs", number % 100)), text)
                .map_err(BenchFailure::io("write a file of the tree"))?;
        }
    }
    Ok(bytes)
}

fn print(found: &[SearchComparison], bytes: u64, runs: u32, strength: &str, json: bool) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    let ms = |time: Duration| (time.as_secs_f64() * 1e4).round() / 10.0;
    if json {
        let rows: Vec<Value> = found
            .iter()
            .map(|row| {
                json!({ "name": row.name, "call_ms": ms(row.call), "ripgrep_ms": row.ripgrep.map(ms), "ratio": row.ratio() })
            })
            .collect();
        return writeln!(
            out,
            "{}",
            json!({ "bytes": bytes, "files": FILES, "runs": runs, "strength": strength, "target": TARGET, "searches": rows })
        );
    }
    let build = if cfg!(debug_assertions) { "debug build: not the figures of a shipped one" } else { "release build" };
    let megabytes = bytes / 1_000_000;
    writeln!(out, "{megabytes} MB in {FILES} files; {strength}; {runs} runs of each, in turns, medians ({build})\n")?;
    writeln!(out, "{:<26} {:>12} {:>12} {:>8}   at most {TARGET}", "", "callgate", "ripgrep", "ratio")?;
    for row in found {
        let other = row.ripgrep.map_or_else(|| "absent".to_owned(), |time| format!("{:.1} ms", ms(time)));
        let ratio = row.ratio().map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        let word = match row.ratio() {
            Some(ratio) if ratio <= TARGET => "met",
            Some(_) => "not met",
            None => "not measured",
        };
        writeln!(out, "{:<26} {:>9.1} ms {other:>12} {ratio:>8}   {word}", row.name, ms(row.call))?;
    }
    Ok(())
}
