//! Runs real programs and projects bare and under callgate, in both host strengths, and says where they differ.
//!
//! `cargo run -p callgate-tests --bin compat -- [--install] [--write] [NAME…]`: the entries of `tests/compat.toml`, or those whose
//! names contain one of the words. `--install` installs missing Debian packages, `--write` writes `docs/hosts-compat.md`.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a tool of the tests, where a panic is the report")]

use std::process::{Command, ExitCode};

use callgate_tests::projects::{CompatProject, Met, page, projects};
use callgate_tests::{Host, Target, User};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (flags, names): (Vec<_>, Vec<_>) = words.into_iter().partition(|word| word.starts_with("--"));
    let has = |flag: &str| flags.iter().any(|given| given == flag);
    let is_wanted =
        |project: &CompatProject| names.is_empty() || names.iter().any(|name| project.name.contains(name.as_str()));
    let wanted: Vec<CompatProject> = projects().into_iter().filter(is_wanted).collect();
    let mut rows = Vec::new();
    for project in &wanted {
        if has("--install") {
            install(project);
        }
        let met: Vec<Met> = Host::STRENGTHS
            .iter()
            .flat_map(|&host| [User::Root, User::Ordinary].map(|user| Target { host, user }))
            .map(|target| project.meet(target))
            .collect();
        println!("{}: {}", project.name, met.iter().map(Met::to_string).collect::<Vec<_>>().join("; "));
        rows.push((project, met));
    }
    if has("--write") {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/hosts-compat.md"), page(&rows)).unwrap();
    }
    let unexplained = rows.iter().filter(|(project, met)| met.iter().any(|met| !met.is_as_said_of(project)));
    match unexplained.map(|(project, _)| project.name.as_str()).collect::<Vec<_>>() {
        none if none.is_empty() => ExitCode::SUCCESS,
        some => {
            eprintln!("different, and tests/compat.toml does not say so: {}", some.join(", "));
            ExitCode::FAILURE
        }
    }
}

fn install(project: &CompatProject) {
    let missing: Vec<&String> = project.debian.iter().filter(|package| !is_installed(package)).collect();
    if missing.is_empty() {
        return;
    }
    let installed = Command::new("apt-get")
        .args(["install", "-y", "-qq", "--no-install-recommends"])
        .args(missing)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdout(std::process::Stdio::null())
        .status();
    if !installed.is_ok_and(|status| status.success()) {
        eprintln!("{}: not all of its packages could be installed", project.name);
    }
}

fn is_installed(package: &str) -> bool {
    Command::new("dpkg").args(["-s", package]).output().is_ok_and(|done| done.status.success())
}
