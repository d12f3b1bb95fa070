//! Random sequences of changes to small trees (A1, A3, A4, A9, A18, A19).

use std::ffi::CString;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use callgate_tests::Dice;
use callgate_worker::probe::act::{ProbeAct, act};
use callgate_worker::probe::outcome::{ActArgs, ActOutcome};
use callgate_worker::sys::probe::{self as sys, bits, call, int, text};
use serde_json::json;

pub(crate) const ACTS: &[ProbeAct] = &[act(
    "sequences",
    "A4",
    "DIR FIRST COUNT STEPS NAME…",
    "in each of COUNT subdirectories of DIR, from FIRST on, STEPS random changes of these names",
    sequences,
)];

fn sequences(args: &ActArgs<'_>) -> ActOutcome {
    let (top, first, count, steps) = (args.word(0)?, args.number(1)?, args.number(2)?, args.number(3)?);
    let names = args.rest(4);
    let mut digests = Vec::new();
    for n in first..first + count {
        let directory = format!("{top}/{n}");
        let mut random = Dice::new(u64::try_from(n).unwrap_or(0).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut results = Vec::new();
        let mut held = Vec::new();
        for _ in 0..steps {
            let one = |random: &mut Dice| {
                let name = names.get(random.below(names.len())).map_or("", String::as_str);
                // Now and then something below it, or it as a directory.
                match random.below(12) {
                    0..4 => sys::c(&format!(
                        "{directory}/{name}/{}",
                        names.get(random.below(names.len())).map_or("", String::as_str)
                    )),
                    4 => sys::c(&format!("{directory}/{name}/")),
                    5 => sys::c(&format!("{directory}/{name}/.")),
                    _ => sys::c(&format!("{directory}/{name}")),
                }
            };
            let (a, b) = (one(&mut random), one(&mut random));
            // Now and then one that is seldom meant.
            let kind = if random.below(5) == 0 { 17 + random.below(17) } else { random.below(17) };
            results.push((kind, step(kind, &a, &b, &mut held)));
        }
        drop(held);
        let mut hasher = DefaultHasher::new();
        results.hash(&mut hasher);
        listing(Path::new(&directory), Path::new(&directory)).hash(&mut hasher);
        digests.push(json!([hasher.finish(), results]));
    }
    Ok(json!({ "digests": digests }))
}

/// One change; its errno, or 0. Some descriptors are kept and written to later.
fn step(kind: usize, a: &CString, b: &CString, held: &mut Vec<std::os::fd::OwnedFd>) -> i32 {
    let cwd = || int(libc::AT_FDCWD);
    let mut open = |path: &CString, flags: i32| match sys::open("open", path, flags) {
        Ok(file) => {
            let written = call("write", libc::SYS_write, &[sys::fd(&file), text(c"text"), bits(4)]);
            let errno = written.as_ref().map_or_else(|e| e.errno_number(), |_| 0);
            if held.len() < 4 {
                held.push(file);
            }
            errno
        }
        Err(failure) => failure.errno_number(),
    };
    let done = match kind {
        0 => return open(a, libc::O_WRONLY | libc::O_CREAT),
        1 => return open(a, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL),
        2 => return open(a, libc::O_RDWR | libc::O_TRUNC),
        3 => return open(a, libc::O_WRONLY | libc::O_APPEND | libc::O_NOFOLLOW),
        4 => call("mkdirat", libc::SYS_mkdirat, &[cwd(), text(a), bits(0o755)]),
        5 => call("unlinkat", libc::SYS_unlinkat, &[cwd(), text(a), int(0)]),
        6 => call("unlinkat", libc::SYS_unlinkat, &[cwd(), text(a), int(libc::AT_REMOVEDIR)]),
        7 | 8 => call("renameat2", libc::SYS_renameat2, &[cwd(), text(a), cwd(), text(b), bits(0)]),
        9 => call("renameat2", libc::SYS_renameat2, &[cwd(), text(a), cwd(), text(b), bits(1)]),
        10 | 11 => call("renameat2", libc::SYS_renameat2, &[cwd(), text(a), cwd(), text(b), bits(2)]),
        12 => call("linkat", libc::SYS_linkat, &[cwd(), text(a), cwd(), text(b), int(0)]),
        13 => call("linkat", libc::SYS_linkat, &[cwd(), text(a), cwd(), text(b), int(libc::AT_SYMLINK_FOLLOW)]),
        14 => {
            // Relative, as most are.
            let name = a.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            let name = CString::new(name).unwrap_or_default();
            call("symlinkat", libc::SYS_symlinkat, &[text(&name), cwd(), text(b)])
        }
        15 => call("fchmodat", libc::SYS_fchmodat, &[cwd(), text(a), bits(0o700 | kind_bits(b))]),
        16 => call("truncate", libc::SYS_truncate, &[text(a), bits(2)]),
        // What is seldom meant, and mostly refused.
        17 => return open(a, libc::O_PATH | libc::O_TRUNC),
        18 => return open(a, libc::O_WRONLY | libc::O_CREAT | libc::O_DIRECTORY),
        19 => return open(a, libc::O_RDWR | libc::O_TMPFILE),
        20 => return open(a, libc::O_RDONLY | libc::O_CREAT | libc::O_NOFOLLOW),
        21 => call("truncate", libc::SYS_truncate, &[text(a), int(-1)]),
        22 => call("mknodat", libc::SYS_mknodat, &[cwd(), text(a), bits(0o170_644), int(0)]),
        23 => call("symlinkat", libc::SYS_symlinkat, &[text(c""), cwd(), text(a)]),
        24 => call("symlinkat", libc::SYS_symlinkat, &[bits(0), int(-1), text(a)]),
        25 => call("renameat", libc::SYS_renameat, &[cwd(), text(a), cwd(), bits(0)]),
        26 => call("linkat", libc::SYS_linkat, &[cwd(), text(c""), cwd(), text(a), int(libc::AT_EMPTY_PATH)]),
        27 => call("unlinkat", libc::SYS_unlinkat, &[cwd(), text(a), int(1)]),
        28 => call("utimensat", libc::SYS_utimensat, &[cwd(), text(a), bits(0), int(libc::AT_SYMLINK_NOFOLLOW)]),
        29 => call("utimensat", libc::SYS_utimensat, &[cwd(), text(a), bits(0), int(1)]),
        30 => call("utimensat", libc::SYS_utimensat, &[cwd(), bits(0), bits(0), int(0)]),
        31 => call("setxattr", libc::SYS_setxattr, &[text(a), text(c"user.x"), text(c""), bits(0), bits(4)]),
        32 => {
            let id = [int(-1), int(-1), int(libc::AT_SYMLINK_NOFOLLOW)];
            call("fchownat", libc::SYS_fchownat, &[&[cwd(), text(a)], &id[..]].concat())
        }
        _ => sys::open("open", a, libc::O_PATH)
            .and_then(|file| call("fchmod", libc::SYS_fchmod, &[sys::fd(&file), bits(0o700)])),
    };
    done.map_or_else(|failure| failure.errno_number(), |_| 0)
}

fn kind_bits(path: &CString) -> u64 {
    u64::try_from(path.to_bytes().len() & 7).unwrap_or(0)
}

/// Listing of what there is, without what differs between two trees that were made alike.
fn listing(top: &Path, directory: &Path) -> Vec<(String, u32, u64, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(about) = fs::symlink_metadata(&path) else { continue };
        let name = path.strip_prefix(top).unwrap_or(&path).display().to_string();
        let held = if about.is_file() { fs::read(&path).unwrap_or_default() } else { Vec::new() };
        all.push((name, about.mode(), if about.is_dir() { 0 } else { about.nlink() }, held));
        if about.is_dir() {
            all.extend(listing(top, &path));
        }
    }
    all.sort();
    all
}
