//! Acts on what the launcher left behind: descriptors, environment, terminal (attacks A20, B17, D6, A17, E5).

use callgate_worker::probe::act::{ProbeAct, act};
use callgate_worker::probe::outcome::{ActArgs, ActOutcome};
use callgate_worker::sys::probe::{call, int};
use serde_json::json;

pub(crate) const ACTS: &[ProbeAct] = &[act("list-fds", "A20", "", "every open descriptor and what it is", list_fds)];

/// Asks about each number rather than reading /proc/self/fd, which needs a descriptor itself and may be closed.
fn list_fds(_args: &ActArgs<'_>) -> ActOutcome {
    let mut open = serde_json::Map::new();
    for number in 0..65536 {
        if call("fcntl", libc::SYS_fcntl, &[int(number), int(libc::F_GETFD), int(0)]).is_ok() {
            let target = std::fs::read_link(format!("/proc/self/fd/{number}"));
            let target = target.map_or_else(|_| "?".to_owned(), |path| path.display().to_string());
            open.insert(number.to_string(), json!(target));
        }
    }
    Ok(json!({ "fds": open }))
}
