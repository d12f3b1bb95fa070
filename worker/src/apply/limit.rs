//! Resource limits (setrlimit(2)).

use callgate_policy::plan::{Limit, Resource};
use rustix::process::{Rlimit, getrlimit, setrlimit};

/// A limit in the two forms it is applied in, with its soft and hard bound: alike, so that it cannot be raised, but for open
/// files, where a soft limit that is lower stays. Never above the host's own hard limit, which cannot be raised either and
/// holds all the same.
fn bounded(limit: &Limit) -> (rustix::process::Resource, u32, [u64; 2]) {
    use rustix::process::Resource as R;
    let (resource, number) = match limit.resource {
        Resource::Core => (R::Core, libc::RLIMIT_CORE),
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
        Resource::Core | Resource::Processes | Resource::AddressSpace | Resource::FileSize | Resource::CpuSeconds => {
            hard
        }
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
pub(crate) fn set(limits: &[Limit]) -> std::io::Result<()> {
    for limit in limits {
        let (resource, _, [soft, hard]) = bounded(limit);
        setrlimit(resource, Rlimit { current: Some(soft), maximum: Some(hard) })?;
    }
    Ok(())
}
