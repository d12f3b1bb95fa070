//! The base filter: its groups in their order.

use super::groups::{
    addresses, clones, execution_domains, filters, host_state, identities, ioctls, ipc, kernel_surface,
    memory_of_others, messages, metadata, mounts, names, namespaces, native_aio, newer, obsolete, ordinary,
    other_processes, process_controls, reserved_space, socket_options, sockets, starting, uncounted_memory, unreadable,
    watching,
};
use super::types::{CallVerdict, Errno, Filter, Variant};
use crate::plan::{Starter, Strength, Writer};

/// The filter that holds for everything in a session.
pub fn base(variant: Variant) -> Filter {
    let Variant { strength, landlock_abi, writer, starter, debug } = variant;
    let strength_name = match strength {
        Strength::Landlock => "without namespaces",
        Strength::Namespaces => "with namespaces",
    };
    let writer_name = match writer {
        Writer::Kernel => "",
        Writer::Broker => ", kept names",
        Writer::BrokerReadsToo => ", single files",
    };
    let starter_name = match starter {
        Starter::Kernel => "",
        Starter::Broker => ", judged programs",
    };
    let debug_name = if debug { ", debug" } else { "" };
    let mut groups = ordinary();
    groups.push(filters());
    groups.push(starting(starter));
    groups.extend([
        metadata(),
        sockets(strength),
        addresses(),
        messages(strength),
        socket_options(strength),
        ioctls(strength, landlock_abi),
        ipc(),
        names(variant),
        watching(strength),
    ]);
    groups.extend(other_processes(landlock_abi));
    groups.extend([
        memory_of_others(debug),
        reserved_space(),
        uncounted_memory(),
        identities(),
        namespaces(),
        mounts(),
        kernel_surface(),
        host_state(),
    ]);
    groups.extend([
        execution_domains(),
        clones(debug),
        process_controls(debug),
        unreadable(),
        native_aio(),
        newer(),
        obsolete(),
    ]);
    Filter {
        title: format!(
            "base filter, {strength_name}, Landlock ABI {landlock_abi}{writer_name}{starter_name}{debug_name}"
        ),
        default: CallVerdict::Errno(Errno::Enosys),
        groups,
    }
}
