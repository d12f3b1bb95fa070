//! PDFs that are broken in all ways: each is read, or refused with an error that says what is wrong.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use callgate::policy::mode::Mode;
use callgate::policy::tool::Surface;
use callgate::{Launcher, Outcome, Session, SessionSpec, Supervisor};
use callgate_tests::repetitions;
use serde_json::{Value, json};

use super::surfaces::spec;
use super::{STRENGTHS, callgate};

/// The longest that one may take, on a machine that does other things: a call that hangs takes for ever.
const PATIENCE: Duration = Duration::from_secs(180);

/// Xorshift: the same numbers each time.
struct PdfDice(u64);

impl PdfDice {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % most.max(1) as u64).unwrap()
    }
}

/// A file with one to four things done to it that its writer did not.
fn mutated(original: &[u8], dice: &mut PdfDice) -> Vec<u8> {
    let mut bytes = original.to_vec();
    for _ in 0..=dice.below(4) {
        let at = dice.below(bytes.len());
        let piece = at..(at + 1 + dice.below(64)).min(bytes.len());
        match dice.below(7) {
            0 => bytes[at] ^= 1 << dice.below(8),
            1 => bytes.truncate(at.max(8)),
            2 => drop(bytes.drain(piece)),
            3 => {
                let piece = bytes[piece].to_vec();
                let to = dice.below(bytes.len());
                bytes.splice(to..to, piece);
            }
            // Lengths, places and numbers of objects that are not right.
            4 => bytes.iter_mut().skip(at).filter(|byte| byte.is_ascii_digit()).take(3).for_each(|byte| *byte = b'9'),
            5 => bytes[piece].fill(0),
            _ => {
                let word = [&b"/Kids [1 0 R]"[..], b"/Length -1", b"<<<<<<<<", b"1 0 obj", b"endstream", b"/Prev 0"];
                bytes.splice(at..at, word[dice.below(word.len())].iter().copied());
            }
        }
        if bytes.is_empty() {
            bytes.push(b'%');
        }
    }
    bytes
}

fn tree(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut files, mut directories) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                directories.push(entry);
            } else {
                files.insert(entry.clone(), fs::read(entry).unwrap());
            }
        }
    }
    files
}

/// True if it was read.
async fn read(session: &Session, tool: &str, path: &Path) -> bool {
    let called = session.call(tool, json!({ "path": path.display().to_string() }));
    let envelope = tokio::time::timeout(PATIENCE, called).await.expect("it ends");
    match envelope.kind {
        Outcome::Output => {
            let data = envelope.data.unwrap();
            let text = data.get("content").or(data.get("head"));
            assert!(text.is_some_and(Value::is_string), "{data}");
            true
        }
        _ => {
            let error = envelope.error_text.unwrap();
            let says = ["pdf", "PDF", "not text", "password"].iter().any(|word| error.contains(word));
            assert!(says && !error.contains("without a result"), "{error}");
            false
        }
    }
}

/// S2-2, X2-13: each of 500 mutated PDFs is read, or fails with an error that says why, by `read_pdf` and by `read_file`; none of them keeps
/// the session busy, and no file is other than before.
#[test]
fn s2_2_x2_13_mutated_pdfs_are_read_or_refused() {
    let documents = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/documents");
    let originals: Vec<Vec<u8>> = ["one.pdf", "five.pdf", "plain.pdf", "locked.pdf", "blank.pdf"]
        .map(|name| fs::read(documents.join(name)).unwrap())
        .into();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut dice = PdfDice(0x5eed_0f9d_f5a1);
    let (mut were_read, mut were_refused) = (0, 0);
    let mutations = repetitions(100, 500);
    for strength in STRENGTHS {
        let workspace = tempfile::tempdir().unwrap();
        runtime.block_on(async {
            let supervisor = Supervisor::builder().launcher(Launcher::spawn(&callgate()).unwrap()).build().unwrap();
            let by_name = SessionSpec::developer(workspace.path()).extra_tool("read_pdf");
            let by_name = supervisor.open(by_name.strength(strength).mode(Mode::Yolo)).await.unwrap();
            let seen = spec(workspace.path(), Surface::Deepseek).strength(strength).mode(Mode::Yolo);
            let seen = supervisor.open(seen).await.unwrap();
            let path = workspace.path().join("some.pdf");
            for (number, original) in originals.iter().cycle().take(mutations / STRENGTHS.len()).enumerate() {
                fs::write(&path, mutated(original, &mut dice)).unwrap();
                let before = tree(workspace.path());
                let (session, tool) = if number % 2 == 0 { (&by_name, "read_pdf") } else { (&seen, "read_file") };
                match read(session, tool, &path).await {
                    true => were_read += 1,
                    false => were_refused += 1,
                }
                assert_eq!(tree(workspace.path()), before, "{number}");
            }
            // The control: what is whole is read after all that.
            fs::write(&path, &originals[0]).unwrap();
            assert!(read(&by_name, "read_pdf", &path).await && read(&seen, "read_file", &path).await);
        });
    }
    assert_eq!(were_read + were_refused, mutations);
    assert!(were_read.min(were_refused) > mutations / 10, "{were_read} were read, {were_refused} refused");
}
