//! Limits in a result: who held each, what was used, and what to do about one that was met.

use callgate_policy::envelope::{Changes, Denial, Layer};
use callgate_policy::limit::{Bounds, Enforcer, LimitName, LimitReport};
use callgate_worker::protocol::{LimitHit, ProgramEnd};

/// Signals that setrlimit(2) sends: SIGXCPU, SIGXFSZ.
const BY_SIGNAL: [(i32, LimitName); 2] = [(24, LimitName::Cpu), (25, LimitName::FileSize)];

/// Limits of a program. `timeout` in milliseconds, `output` in bytes, where there are such.
pub(crate) fn of_program(
    bounds: &Bounds,
    end: &ProgramEnd,
    timeout: Option<u64>,
    output: Option<u64>,
    changes: Option<&Changes>,
) -> Vec<LimitReport> {
    let hit = ended_for(bounds, end, output).or_else(|| signalled(end));
    let report = |limit: LimitName| {
        use Enforcer::{Cgroup, Rlimit, Supervisor, Timer, Watcher};
        let kernel_or_watcher = || if end.grouped { vec![Cgroup] } else { vec![Watcher] };
        let (by, used) = match limit {
            LimitName::Wall => (vec![Timer], None),
            LimitName::Cpu => (vec![Watcher, Rlimit], Some(end.used.cpu_ms)),
            LimitName::Memory => (kernel_or_watcher(), Some(end.used.memory)),
            LimitName::Processes => (kernel_or_watcher(), Some(end.used.processes)),
            LimitName::OpenFiles | LimitName::FileSize => (vec![Rlimit], None),
            LimitName::Disk => (vec![Watcher], end.used.disk),
            LimitName::Output => (vec![Supervisor], Some(output?)),
            LimitName::Network | LimitName::SessionNetwork | LimitName::NetworkRate => {
                return of_network(limit, bounds, changes);
            }
        };
        let value = if limit == LimitName::Wall { timeout? } else { bounds.value(limit)? };
        let met = hit.filter(|hit| hit.limit == limit);
        let used = met.filter(|hit| hit.used > 0).map(|hit| hit.used).or(used);
        let is_hit = met.is_some() || (limit == LimitName::Wall && end.timed_out);
        let overshoot = used.filter(|_| is_hit).map(|used| used.saturating_sub(value));
        let mut report = LimitReport::new(limit, value, by);
        (report.used, report.hit, report.overshoot) = (used, is_hit, overshoot);
        Some(report)
    };
    LimitName::ALL.into_iter().filter_map(report).collect()
}

/// Limit on what connections may carry, if there were some.
fn of_network(limit: LimitName, bounds: &Bounds, changes: Option<&Changes>) -> Option<LimitReport> {
    let carried = changes?.carried?;
    let mut report = LimitReport::new(limit, bounds.value(limit)?, vec![Enforcer::Egress]);
    if limit == LimitName::Network {
        let over = carried.bytes().saturating_sub(report.value);
        (report.used, report.hit) = (Some(carried.bytes()), over > 0);
        report.overshoot = report.hit.then_some(over);
    }
    Some(report)
}

/// As the envelope counts time.
pub(crate) fn ms(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Limits of a tool that runs in the worker itself: one process, which the kernel bounds.
pub(crate) fn of_tool(bounds: &Bounds, timeout: u64, changes: Option<&Changes>) -> Vec<LimitReport> {
    let report = |limit: LimitName| {
        let by = match limit {
            LimitName::Wall => Enforcer::Supervisor,
            LimitName::Cpu | LimitName::Memory | LimitName::OpenFiles | LimitName::FileSize => Enforcer::Rlimit,
            // It starts none and writes one file; its result is bounded by its surface.
            LimitName::Processes | LimitName::Disk | LimitName::Output => return None,
            LimitName::Network | LimitName::SessionNetwork | LimitName::NetworkRate => {
                return of_network(limit, bounds, changes);
            }
        };
        let value = if limit == LimitName::Wall { timeout } else { bounds.value(limit)? };
        Some(LimitReport::new(limit, value, vec![by]))
    };
    LimitName::ALL.into_iter().filter_map(report).collect()
}

/// The limit for which a program was ended with all that it had started, if it was.
pub(crate) fn ended_for(bounds: &Bounds, end: &ProgramEnd, output: Option<u64>) -> Option<LimitHit> {
    let output = output.filter(|used| *used > bounds.output).map(|used| LimitHit::new(LimitName::Output, used));
    end.hit.or(output)
}

/// The limit of which the kernel told a program by a signal, as a shell passes it on: that program's own end, and perhaps
/// not all of the call's.
fn signalled(end: &ProgramEnd) -> Option<LimitHit> {
    let signal = end.signal.or(end.code.filter(|code| *code > 128).map(|code| code - 128))?;
    let (_, limit) = BY_SIGNAL.into_iter().find(|(number, _)| *number == signal)?;
    Some(LimitHit::new(limit, 0))
}

/// Adds to a result how many of its processes are still there, if any is: they were killed, and do not end.
pub(crate) fn tell_left(data: &mut serde_json::Value, end: &ProgramEnd) {
    if end.left > 0
        && let Some(data) = data.as_object_mut()
    {
        data.insert("processes_left".to_owned(), end.left.into());
    }
}

/// Reason why a call has no result, and what to do about it. `left`: how many of its processes do not end.
pub(crate) fn denial(bounds: &Bounds, hit: LimitHit, left: u32) -> Denial {
    let value = bounds.value(hit.limit).unwrap_or(0);
    let rest = match left {
        0 => "everything that it had started was ended".to_owned(),
        left => format!("{left} of its processes were killed and do not end"),
    };
    let reason = format!("{}; {rest}", hit.limit.story(hit.used, value));
    Denial::new(Layer::Limit, hit.limit.to_string(), reason)
        .remedy(hit.limit.remedy(hit.used, value))
        .typed(hit.limit.remedy_to_type(hit.used, value))
}
