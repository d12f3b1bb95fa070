//! Parts of tests that a machine cannot try, counted against a committed list (`.config/skips.txt`).

use std::fmt::Display;
use std::sync::OnceLock;

use crate::host::own_uid;

/// The list: a line for each part, with its name, what the machine lacks, and why that is accepted.
const LIST: &str = include_str!("../../.config/skips.txt");

/// Things that a machine may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    /// Something of its kernel or its hardware.
    Kernel,
    /// A program that `.ci/test` installs as root.
    Program,
    /// Root, who runs the tests in CI.
    Root,
}

fn listed(name: &str) -> Option<Lack> {
    let line = LIST.lines().map(|line| line.split_whitespace().take(2).collect::<Vec<_>>());
    line.filter(|words| words.first() == Some(&name)).find_map(|words| match *words.get(1)? {
        "kernel" => Some(Lack::Kernel),
        "program" => Some(Lack::Program),
        "root" => Some(Lack::Root),
        _ => None,
    })
}

/// True if this run must have every program and be root.
fn is_complete() -> bool {
    static COMPLETE: OnceLock<bool> = OnceLock::new();
    *COMPLETE.get_or_init(|| own_uid() == 0 || std::env::var("CI").is_ok_and(|value| value == "true"))
}

/// Says that a part of the running test cannot be tried here. The test fails instead if the list does not name the part, or if
/// a program or root is missing where neither may be: in CI, and where root runs the tests, who can install what is missing.
#[track_caller]
pub fn skip(name: &str, why: impl Display) {
    match listed(name) {
        None => panic!("{name} cannot be tried here, and .config/skips.txt does not list it: {why}"),
        Some(Lack::Program | Lack::Root) if is_complete() => panic!("{name} must be tried here, and cannot: {why}"),
        Some(Lack::Kernel | Lack::Program | Lack::Root) => eprintln!("SKIP {name}: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::{LIST, listed, skip};

    #[test]
    fn every_line_of_the_list_says_what_is_lacking_and_why() {
        for line in LIST.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let name = line.split_whitespace().next().unwrap();
            assert!(listed(name).is_some() && line.split_whitespace().count() > 4, "{line}");
        }
    }

    #[test]
    fn what_is_not_listed_is_a_failure() {
        assert!(catch_unwind(|| skip("nothing-of-this-name", "a test")).is_err());
        skip("host", "the control");
    }
}
