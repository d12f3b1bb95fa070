//! Bounds of subagents and background tasks, which descriptions of tools name and calls keep to.

use std::time::Duration;

/// Time of a program that names none: as long as its session, or as its host wants.
pub(crate) const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Depth to which subagents may be nested (X0-28, C-12).
pub const AGENT_DEPTH_MAX: usize = 5;
/// Most subagents of one session that may be in flight (C-12).
pub const AGENTS_MAX: usize = 5;
/// Most subagents of a session and of all below it that may be in flight.
pub const FAMILY_MAX: usize = 25;
/// Most agents of a CSV that work at once (X2-19).
pub(crate) const CSV_WORKERS_MAX: usize = 16;
/// Most tasks of a swarm.
pub(crate) const SWARM_MAX: usize = 25;
/// Most rows of a CSV.
pub(crate) const ROWS_MAX: usize = 256;
/// Most that run at once in a session.
pub(crate) const RUNNING_MAX: usize = 64;
