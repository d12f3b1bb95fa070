//! Assembles the seccomp filters: to do so takes longer than to install them, and they depend on nothing that is known later.
#![allow(clippy::disallowed_methods, reason = "it runs when callgate is built")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a build that cannot assemble its filters must stop")]

#[path = "src/seccomp.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is the library's")]
mod seccomp;

use std::fmt::Write as _;
use std::path::Path;

use callgate_policy::plan::seccomp::{
    Arch, Filter, Variant, ask_delta, base, egress, fetch_delta, reader_delta, readers, search_delta, searcher_delta,
    tool_delta,
};
use callgate_policy::plan::{Starter, Strength, Writer};

fn main() {
    println!("cargo::rerun-if-changed=src/seccomp.rs");
    #[allow(clippy::disallowed_methods, reason = "how cargo tells a build script things")]
    let cargo = |name| std::env::var(name).unwrap();
    let arch = match cargo("CARGO_CFG_TARGET_ARCH").as_str() {
        "x86_64" => Arch::X86_64,
        "aarch64" => Arch::Aarch64,
        other => panic!("callgate has no system call tables for {other}"),
    };
    let mut source = String::new();
    for (name, filter) in [
        ("TOOL_DELTA", tool_delta()),
        ("SEARCH_DELTA", search_delta()),
        ("FETCH_DELTA", fetch_delta()),
        ("ASK_DELTA", ask_delta()),
        ("READERS", readers()),
        ("READER_DELTA", reader_delta()),
        ("SEARCHER_DELTA", searcher_delta()),
        ("EGRESS", egress()),
    ] {
        let (length, body) = program(&filter, arch);
        writeln!(source, "static {name}: [BpfInsn; {length}] = {body};").unwrap();
    }
    for (name, strength, writer, starter, debug) in [
        ("BASE_LANDLOCK", Strength::Landlock, Writer::Kernel, Starter::Kernel, false),
        ("BASE_NAMESPACES", Strength::Namespaces, Writer::Kernel, Starter::Kernel, false),
        ("KEPT_LANDLOCK", Strength::Landlock, Writer::Broker, Starter::Kernel, false),
        ("KEPT_NAMESPACES", Strength::Namespaces, Writer::Broker, Starter::Kernel, false),
        ("SINGLE_LANDLOCK", Strength::Landlock, Writer::BrokerReadsToo, Starter::Kernel, false),
        ("SINGLE_NAMESPACES", Strength::Namespaces, Writer::BrokerReadsToo, Starter::Kernel, false),
        ("DEBUG_LANDLOCK", Strength::Landlock, Writer::Kernel, Starter::Kernel, true),
        ("DEBUG_NAMESPACES", Strength::Namespaces, Writer::Kernel, Starter::Kernel, true),
        ("KEPT_DEBUG_LANDLOCK", Strength::Landlock, Writer::Broker, Starter::Kernel, true),
        ("KEPT_DEBUG_NAMESPACES", Strength::Namespaces, Writer::Broker, Starter::Kernel, true),
        ("SINGLE_DEBUG_LANDLOCK", Strength::Landlock, Writer::BrokerReadsToo, Starter::Kernel, true),
        ("SINGLE_DEBUG_NAMESPACES", Strength::Namespaces, Writer::BrokerReadsToo, Starter::Kernel, true),
        ("JUDGED_LANDLOCK", Strength::Landlock, Writer::Kernel, Starter::Broker, false),
        ("JUDGED_NAMESPACES", Strength::Namespaces, Writer::Kernel, Starter::Broker, false),
        ("KEPT_JUDGED_LANDLOCK", Strength::Landlock, Writer::Broker, Starter::Broker, false),
        ("KEPT_JUDGED_NAMESPACES", Strength::Namespaces, Writer::Broker, Starter::Broker, false),
        ("SINGLE_JUDGED_LANDLOCK", Strength::Landlock, Writer::BrokerReadsToo, Starter::Broker, false),
        ("SINGLE_JUDGED_NAMESPACES", Strength::Namespaces, Writer::BrokerReadsToo, Starter::Broker, false),
    ] {
        let variants = (1..=7).map(|landlock_abi| base(Variant { strength, landlock_abi, writer, starter, debug }));
        let bodies: Vec<_> = variants.map(|filter| format!("&{}", program(&filter, arch).1)).collect();
        writeln!(source, "/// By Landlock ABI, from 1.\nstatic {name}: [&[BpfInsn]; 7] = [{}];", bodies.join(", "))
            .unwrap();
    }
    std::fs::write(Path::new(&cargo("OUT_DIR")).join("filters.rs"), source).unwrap();
}

/// Its length, and itself as an array expression.
fn program(filter: &Filter, arch: Arch) -> (usize, String) {
    let program = seccomp::assemble(filter, arch).unwrap();
    let instruction =
        |i: &seccomp::BpfInsn| format!("BpfInsn {{ code: {}, jt: {}, jf: {}, k: {} }}", i.code, i.jt, i.jf, i.k);
    let body: Vec<_> = program.iter().map(instruction).collect();
    (program.len(), format!("[{}]", body.join(", ")))
}
