//! Resource limits (setrlimit(2)).

use std::io;

use callgate_policy::plan::{Limit, Resource};
use callgate_policy::step::Step;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Rlimit, getrlimit, setrlimit};

use super::kernel;
use crate::protocol::StepFailure;

/// A limit in the two forms it is applied in, with its soft and hard bound: alike, so that it cannot be raised, but for open
/// files, where a soft limit that is lower stays. Never above the host's own hard limit, which cannot be raised either and
/// holds all the same.
fn bounded(limit: &Limit) -> (rustix::process::Resource, u32, [u64; 2]) {
    use rustix::process::Resource as R;
    let (resource, number) = match limit.resource {
        Resource::OpenFiles => (R::Nofile, libc::RLIMIT_NOFILE),
        Resource::Processes => (R::Nproc, libc::RLIMIT_NPROC),
        Resource::AddressSpace => (R::As, libc::RLIMIT_AS),
        Resource::FileSize => (R::Fsize, libc::RLIMIT_FSIZE),
        Resource::CpuSeconds => (R::Cpu, libc::RLIMIT_CPU),
    };
    let host = getrlimit(resource);
    let hard = limit.max.min(host.maximum.unwrap_or(u64::MAX));
    let soft = match limit.resource {
        Resource::OpenFiles => hard.min(host.current.unwrap_or(u64::MAX)),
        Resource::Processes | Resource::AddressSpace | Resource::FileSize | Resource::CpuSeconds => hard,
    };
    (resource, number, [soft, hard])
}

/// Lets this process open as many files as the host lets it. What it had before will do where the host refuses (`fs.nr_open` was
/// lowered since).
pub(crate) fn open_files_as_many() {
    let host = getrlimit(rustix::process::Resource::Nofile);
    let _as_before: rustix::io::Result<()> =
        setrlimit(rustix::process::Resource::Nofile, Rlimit { current: host.maximum, maximum: host.maximum });
}

/// No core dump of this process and of all that comes from it: a dump is a copy of memory, left behind or handed to a program
/// outside (core(5)). A limit of one byte stops both kinds that it governs; 0 would not stop a pipe. It does not govern a
/// socket (Linux 6.16), so that no dump holds memory either. The base filter keeps programs from another limit, and no rule of
/// Landlock's from another filter.
#[expect(clippy::disallowed_methods, reason = "procfs is the kernel's: nobody puts a link in its files' place")]
pub(crate) fn no_core_dumps() -> Result<String, StepFailure> {
    let fail = |what: &str, e: rustix::io::Errno| kernel(Step::CoreDumps, what, e.into());
    let unfiltered =
        match rustix::fs::open("/proc/self/coredump_filter", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(filter) => {
                rustix::io::write(&filter, b"0").map_err(|e| fail("keep memory out of them", e))?;
                None
            }
            // A kernel that makes none.
            Err(rustix::io::Errno::NOENT) => None,
            Err(e) => Some(e),
        };
    match (limit_cores().map_err(|e| kernel(Step::CoreDumps, "setrlimit", e))?, unfiltered) {
        (0, Some(e)) => Err(fail("open coredump_filter", e)),
        (0, None) => Ok("without memory".to_owned()),
        (_, None) => Ok("none".to_owned()),
        // In a sandbox whose `/proc` may only be read.
        (_, Some(_)) => Ok("none, but by a socket in core_pattern".to_owned()),
    }
}

/// Sets the limit of core dumps to one byte, or leaves it at 0 where it is that and cannot be raised. Returns what it is.
///
/// # Errors
/// setrlimit(2)'s own.
pub fn limit_cores() -> io::Result<u64> {
    use rustix::process::Resource::Core;
    let one = Rlimit { current: Some(1), maximum: Some(1) };
    match setrlimit(Core, one) {
        Err(rustix::io::Errno::PERM) if getrlimit(Core).maximum == Some(0) => Ok(0),
        set => set.map(|()| 1).map_err(io::Error::from),
    }
}

/// For a child that may not allocate between clone and exec.
pub(crate) fn raw(limits: &[Limit]) -> Vec<(u32, libc::rlimit)> {
    limits
        .iter()
        .map(|limit| {
            let (_, number, [soft, hard]) = bounded(limit);
            (number, libc::rlimit { rlim_cur: soft, rlim_max: hard })
        })
        .collect()
}

/// Applies limits to this process.
pub(crate) fn set(limits: &[Limit]) -> io::Result<()> {
    for limit in limits {
        let (resource, _, [soft, hard]) = bounded(limit);
        setrlimit(resource, Rlimit { current: Some(soft), maximum: Some(hard) })?;
    }
    Ok(())
}
