//! The filters of this architecture, assembled when callgate was built.

use std::io;
use std::os::fd::OwnedFd;

use callgate_policy::plan::seccomp::Variant;
use callgate_policy::plan::{Starter, Strength, Writer};

use crate::protocol::Threads;
use crate::seccomp::BpfInsn;
use crate::sys;
use crate::toolset::SyscallNeed;

include!(concat!(env!("OUT_DIR"), "/filters.rs"));

/// Installs the base filter on this thread; returns its listener and its length in instructions.
pub(crate) fn install_base(variant: Variant) -> io::Result<(OwnedFd, usize)> {
    let program = base_program(variant).ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
    let listener =
        install(program, FilterListener::Wanted)?.ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
    Ok((listener, program.len()))
}

/// A filter that lets everything pass.
static NOTHING: [BpfInsn; 1] = [BpfInsn { code: libc::BPF_RET as u16, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW }];

/// Installs a filter that refuses nothing and asks nothing, for attempts to break out that are made without the base filter;
/// returns its listener, which the broker waits on, and its length.
pub(crate) fn install_nothing() -> io::Result<(OwnedFd, usize)> {
    let listener =
        install(&NOTHING, FilterListener::Wanted)?.ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
    Ok((listener, NOTHING.len()))
}

/// Installs the readers' filter on this thread; returns its length in instructions.
pub(crate) fn install_readers() -> io::Result<usize> {
    install(&READERS, FilterListener::Absent).map(|_none| READERS.len())
}

/// Installs the filter of egress on this thread; returns its length in instructions.
pub(crate) fn install_egress() -> io::Result<usize> {
    install(&EGRESS, FilterListener::Absent).map(|_none| EGRESS.len())
}

/// Installs the filter of one tool below the broker, upon the base filter.
pub(crate) fn install_tool(kind: SyscallNeed) -> io::Result<()> {
    let program: &[BpfInsn] = match kind {
        SyscallNeed::Plain => &TOOL_DELTA,
        SyscallNeed::Searches => &SEARCH_DELTA,
        SyscallNeed::Fetches => &FETCH_DELTA,
        SyscallNeed::Asks => &ASK_DELTA,
    };
    install(program, FilterListener::Absent).map(drop)
}

/// Installs the filter of one reading worker, upon the readers'.
pub(crate) fn install_reader(threads: Threads) -> io::Result<()> {
    let program: &[BpfInsn] = match threads {
        Threads::Never => &READER_DELTA,
        Threads::OfItsOwn => &SEARCHER_DELTA,
    };
    install(program, FilterListener::Absent).map(drop)
}

fn base_program(variant: Variant) -> Option<&'static [BpfInsn]> {
    let programs = match (variant.strength, variant.writer, variant.starter, variant.debug) {
        (Strength::Landlock, Writer::Kernel, Starter::Kernel, false) => &BASE_LANDLOCK,
        (Strength::Namespaces, Writer::Kernel, Starter::Kernel, false) => &BASE_NAMESPACES,
        (Strength::Landlock, Writer::Broker, Starter::Kernel, false) => &KEPT_LANDLOCK,
        (Strength::Namespaces, Writer::Broker, Starter::Kernel, false) => &KEPT_NAMESPACES,
        (Strength::Landlock, Writer::BrokerReadsToo, Starter::Kernel, false) => &SINGLE_LANDLOCK,
        (Strength::Namespaces, Writer::BrokerReadsToo, Starter::Kernel, false) => &SINGLE_NAMESPACES,
        (Strength::Landlock, Writer::Kernel, Starter::Kernel, true) => &DEBUG_LANDLOCK,
        (Strength::Namespaces, Writer::Kernel, Starter::Kernel, true) => &DEBUG_NAMESPACES,
        (Strength::Landlock, Writer::Broker, Starter::Kernel, true) => &KEPT_DEBUG_LANDLOCK,
        (Strength::Namespaces, Writer::Broker, Starter::Kernel, true) => &KEPT_DEBUG_NAMESPACES,
        (Strength::Landlock, Writer::BrokerReadsToo, Starter::Kernel, true) => &SINGLE_DEBUG_LANDLOCK,
        (Strength::Namespaces, Writer::BrokerReadsToo, Starter::Kernel, true) => &SINGLE_DEBUG_NAMESPACES,
        // Who judges each start traces it, and so nobody else does.
        (_, _, Starter::Broker, true) => return None,
        (Strength::Landlock, Writer::Kernel, Starter::Broker, false) => &JUDGED_LANDLOCK,
        (Strength::Namespaces, Writer::Kernel, Starter::Broker, false) => &JUDGED_NAMESPACES,
        (Strength::Landlock, Writer::Broker, Starter::Broker, false) => &KEPT_JUDGED_LANDLOCK,
        (Strength::Namespaces, Writer::Broker, Starter::Broker, false) => &KEPT_JUDGED_NAMESPACES,
        (Strength::Landlock, Writer::BrokerReadsToo, Starter::Broker, false) => &SINGLE_JUDGED_LANDLOCK,
        (Strength::Namespaces, Writer::BrokerReadsToo, Starter::Broker, false) => &SINGLE_JUDGED_NAMESPACES,
    };
    programs.get(usize::from(variant.landlock_abi).checked_sub(1)?).copied()
}

/// Listener of a filter: whether someone will answer what it asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FilterListener {
    /// No one: notified calls fail with ENOSYS, unless a filter below has a listener.
    Absent,
    /// The caller, who gets the descriptor. One per chain of filters: a second one fails with EBUSY (seccomp(2)).
    Wanted,
}

/// Adds the program to this thread and all it will start, for good. Other threads are not touched, so this belongs
/// where there is one thread. Needs `no_new_privs`, otherwise it fails with EACCES.
///
/// Allocates nothing, and may thus be called between fork(2) and exec(2).
pub(crate) fn install(program: &[BpfInsn], listener: FilterListener) -> io::Result<Option<OwnedFd>> {
    match listener {
        FilterListener::Absent => sys::seccomp::set_filter(program).map(|()| None),
        FilterListener::Wanted => sys::seccomp::set_filter_with_listener(program).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use callgate_policy::plan::seccomp::{
        Arch, ask_delta, base, egress, fetch_delta, reader_delta, readers, search_delta, searcher_delta, tool_delta,
    };

    use super::*;
    use crate::seccomp::assemble;

    /// The built-in programs are what the tables say now.
    #[test]
    fn the_built_in_programs_are_the_tables() {
        let here = if cfg!(target_arch = "aarch64") { Arch::Aarch64 } else { Arch::X86_64 };
        for strength in [Strength::Landlock, Strength::Namespaces] {
            for writer in [Writer::Kernel, Writer::Broker, Writer::BrokerReadsToo] {
                for (starter, debug) in [
                    (Starter::Kernel, false),
                    (Starter::Broker, false),
                    (Starter::Kernel, true),
                    (Starter::Broker, true),
                ] {
                    let variant = |landlock_abi| Variant { strength, landlock_abi, writer, starter, debug };
                    for landlock_abi in 1..=7 {
                        let variant = variant(landlock_abi);
                        let wanted = assemble(&base(variant), here).ok();
                        let wanted = wanted.filter(|_| (starter, debug) != (Starter::Broker, true));
                        assert_eq!(base_program(variant), wanted.as_deref(), "{variant:?}");
                    }
                    assert_eq!(base_program(variant(0)), None);
                    assert_eq!(base_program(variant(8)), None);
                }
            }
        }
        for (built, table) in [
            (&TOOL_DELTA[..], tool_delta()),
            (&SEARCH_DELTA, search_delta()),
            (&FETCH_DELTA, fetch_delta()),
            (&ASK_DELTA, ask_delta()),
            (&READERS, readers()),
            (&READER_DELTA, reader_delta()),
            (&SEARCHER_DELTA, searcher_delta()),
            (&EGRESS, egress()),
        ] {
            assert_eq!(Some(built), assemble(&table, here).ok().as_deref(), "{}", table.title);
        }
    }
}
