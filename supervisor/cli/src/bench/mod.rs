//! `callgate bench`: what calls cost here, every layer on, beside a plain spawn.
//!
//! Nothing is asserted: a machine that is busy gives other figures, and so ratios within one interleaved run are what
//! counts.

mod figures;
mod report;
mod rounds;
mod scratch;
mod sessions;
mod subject;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use self::figures::Figures;
use self::report::{BenchReport, ReportRow};
use self::rounds::{Shuffle, settle};
use self::scratch::Scratch;
use self::sessions::{RATE_CALLS_PER_RUN, open_many_files};
use self::subject::{BenchSubject, Benchmarked};
use super::arguments::Bench;
use super::exit::CommandFailure;
use super::supervisor::{forked, supervise};

pub(super) fn bench(bench: &Bench, json: bool) -> Result<ExitCode, CommandFailure> {
    let scratch = Scratch::make()?;
    let report = supervise(forked()?, async |supervisor| {
        let opener = sessions::Opener { supervisor: &supervisor, scratch: &scratch, strength: bench.strength.into() };
        measure(bench, &opener).await
    })?;
    report.print(json)?;
    Ok(ExitCode::SUCCESS)
}

async fn measure(bench: &Bench, opener: &sessions::Opener<'_>) -> Result<BenchReport, CommandFailure> {
    open_many_files()?;
    // What `callgate run` leaves to end by itself comes back here, and is waited for between samples.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|e| CommandFailure::runtime(e.into()))?;
    let memory = sessions::idle_memory(opener).await?;
    let benchmarked = Benchmarked::all(opener).await?;
    let rows = interleave(bench.runs, &benchmarked).await?;
    let rates = sessions::rates(opener, bench.runs.saturating_mul(RATE_CALLS_PER_RUN)).await?;
    let spawned = benchmarked.spawned_per_second(bench.runs.saturating_mul(RATE_CALLS_PER_RUN))?;
    let many = sessions::many(opener, bench.sessions).await?;
    Ok(BenchReport {
        runs: bench.runs,
        strength: benchmarked.strength(),
        landlock_abi: opener.supervisor.support().landlock_abi,
        rows,
        absent: benchmarked.absent,
        rates,
        spawned,
        memory,
        many,
    })
}

/// Runs every subject in each round, in an order that changes from round to round, so that none always follows the same
/// other. The rounds that warm up are not counted.
async fn interleave(runs: u32, benchmarked: &Benchmarked) -> Result<Vec<ReportRow>, CommandFailure> {
    let subjects = &benchmarked.subjects;
    let mut samples: Vec<Vec<Duration>> = vec![Vec::new(); subjects.len()];
    let mut own_cpu = vec![Duration::ZERO; subjects.len()];
    let mut shuffle = Shuffle(0x9e37_79b9_7f4a_7c15);
    for _ in 0..(runs / 10).max(3) {
        for at in shuffle.order(subjects.len()) {
            sample(&subjects[at]).await?;
        }
    }
    let before = subjects.iter().map(BenchSubject::session_cpu).collect::<Result<Vec<_>, _>>()?;
    for _ in 0..runs {
        for at in shuffle.order(subjects.len()) {
            let (wall, cpu) = sample(&subjects[at]).await?;
            samples[at].push(wall);
            own_cpu[at] += cpu;
        }
    }
    subjects
        .iter()
        .enumerate()
        .map(|(at, subject)| {
            let session = match (subject.session_cpu()?, before[at]) {
                (Some(after), Some(before)) => after.saturating_sub(before),
                _ => Duration::ZERO,
            };
            let cpu = subject.cpu_is_measurable().then(|| (own_cpu[at] + session) / runs);
            Ok(ReportRow { name: subject.name(), key: subject.key(), figures: Figures::of(&samples[at], cpu) })
        })
        .collect()
}

/// One run: how long it took, and what it cost this process and the children that it waited for.
async fn sample(subject: &BenchSubject) -> Result<(Duration, Duration), CommandFailure> {
    settle().await;
    let cpu = own_cpu()?;
    let started = Instant::now();
    subject.run().await?;
    let took = started.elapsed();
    // What a call leaves to be done costs no time, but it costs.
    tokio::task::yield_now().await;
    let cpu = own_cpu()?.saturating_sub(cpu);
    subject.tidy().await?;
    Ok((took, cpu))
}

/// CPU time of this process and of all children waited for (getrusage(2)).
fn own_cpu() -> Result<Duration, CommandFailure> {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeValLike as _;
    let mut micros = 0;
    for who in [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN] {
        let usage = getrusage(who).map_err(|e| CommandFailure::runtime(e.into()))?;
        micros += usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    }
    Ok(Duration::from_micros(u64::try_from(micros).unwrap_or(0)))
}
