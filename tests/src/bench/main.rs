//! Measurements for those who work on callgate: what `callgate bench` does not show to everybody. Build with `--release` for
//! figures of a shipped one.
//!
//! Nothing is asserted: a machine that is busy gives other figures, and so ratios within one interleaved run are what counts.
#![allow(clippy::disallowed_methods, reason = "the unconfined sides of comparisons, and where they find programs")]

mod decisions;
mod failure;
mod figures;
mod files;
mod mcp;
mod network;
mod opens;
mod record;
mod search;
mod sessions;

use std::path::PathBuf;
use std::process::ExitCode;

use callgate::{Launcher, StrengthChoice};
use clap::{Parser, Subcommand, ValueEnum};

use self::failure::BenchFailure;
use self::sessions::{BenchOpener, BenchScratch, supervise, temporary};

/// Measure what callgate costs, in parts.
#[derive(Debug, Parser)]
#[command(name = "callgate-bench")]
struct BenchArguments {
    #[command(subcommand)]
    subject: BenchSubject,
    /// How often each runs. Some run less often.
    #[arg(long, global = true, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    runs: u32,
    /// Which strength to measure.
    #[arg(long, global = true, value_enum, default_value_t = BenchStrength::Best)]
    strength: BenchStrength,
    /// Print one line of JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum BenchSubject {
    /// `grep` and `glob` over a tree of 500 MB, compared with ripgrep (`rg`) if it is installed, ten times at most. The tree is made in
    /// TMPDIR, and removed.
    Search,
    /// Everyday work on files, inside and outside: git, tar, make, cargo, npm, pip, five times at most. Takes minutes, on the disk of
    /// TMPDIR.
    Files,
    /// Connections to a server on loopback: directly, through a bare relay, and from a session, nine times at most. Ends with 2 GiB over
    /// one connection, and 2,000 connections at once, and the memory of the process that makes them.
    Network,
    /// A `read` of 4 KiB through `callgate mcp`, beside one through the library and beside a server of the same SDK whose tool does
    /// nothing.
    Mcp,
    /// Layers 1 and 2 with 1,000 rules, and the gate before each exec.
    Decisions,
    /// Opening and closing a file, inside and outside.
    Opens,
    /// A `read` in a session that is recorded and in one that is not, and many of both at once.
    Recording,
    /// Play a part of one of these, in a process of its own.
    #[command(subcommand, hide = true)]
    Play(NetworkPart),
}

#[derive(Debug, Subcommand)]
enum NetworkPart {
    /// Open and close a file so often, and print the nanoseconds of one.
    Opens { file: PathBuf, count: u32 },
    /// Answer each number with as many bytes. Prints its port.
    Serve,
    /// Copy between whoever connects and this port. Prints its own port.
    Relay { to: u16 },
    /// Connect so often, ask for one byte each time, and print the median in microseconds.
    Connects { to: u16, count: u32 },
    /// Ask for so many bytes, and print how many came in a second.
    Bytes { to: u16, bytes: u64 },
    /// Hold so many connections at once, ask for one byte on each, and print how many answered.
    AtOnce { to: u16, count: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BenchStrength {
    /// Namespaces if the host has them.
    Best,
    /// Landlock and seccomp alone.
    Landlock,
    /// Namespaces, or an error.
    Namespaces,
}

impl From<BenchStrength> for StrengthChoice {
    fn from(strength: BenchStrength) -> Self {
        match strength {
            BenchStrength::Best => Self::Best,
            BenchStrength::Landlock => Self::Landlock,
            BenchStrength::Namespaces => Self::Namespaces,
        }
    }
}

fn main() -> ExitCode {
    match measure(&BenchArguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("callgate-bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &BenchArguments) -> Result<(), BenchFailure> {
    let BenchArguments { subject, runs, json, .. } = arguments;
    let (runs, json) = (*runs, *json);
    if let BenchSubject::Play(part) = subject {
        return play(part);
    }
    // What is recorded lies where no session works.
    let records = temporary("callgate-records-")?;
    let scratch = BenchScratch::make()?;
    // Before the first event loop.
    let peers =
        matches!(subject, BenchSubject::Mcp).then(|| mcp::Peers::start(&scratch, records.path())).transpose()?;
    let launcher = Launcher::fork()?;
    let second = launcher.clone();
    supervise(launcher, async |supervisor| {
        let opener = BenchOpener { supervisor: &supervisor, scratch: &scratch, strength: arguments.strength.into() };
        let recorder = (second, records.path());
        match (subject, peers) {
            (BenchSubject::Search, _) => search::run(&opener, runs.min(10), json).await,
            (BenchSubject::Files, _) => files::measure(&opener, runs.min(5), json).await,
            (BenchSubject::Network, _) => network::measure(&opener, runs.min(9), json).await,
            (BenchSubject::Mcp, Some(peers)) => mcp::measure(&opener, recorder, peers, runs, json).await,
            (BenchSubject::Decisions, _) => decisions::measure(&opener, runs, json).await,
            (BenchSubject::Opens, _) => opens::measure(&opener, json).await,
            (BenchSubject::Recording, _) => record::measure(&opener, recorder, runs, json).await,
            // Neither comes here.
            (BenchSubject::Mcp, None) | (BenchSubject::Play(_), _) => Ok(()),
        }
    })
}

fn play(part: &NetworkPart) -> Result<(), BenchFailure> {
    match part {
        NetworkPart::Opens { file, count } => opens::play(file, *count),
        NetworkPart::Serve
        | NetworkPart::Relay { .. }
        | NetworkPart::Connects { .. }
        | NetworkPart::Bytes { .. }
        | NetworkPart::AtOnce { .. } => network::play(part),
    }
}
