//! The program against the table: a BPF interpreter on one side, a plain reading of the table on the other, for every
//! number, architecture and boundary of an argument. What the kernel makes of it is tested beside the system call.

use std::collections::BTreeSet;

use callgate_policy::plan::seccomp::{
    Variant, ask_delta, base, fetch_delta, reader_delta, readers, search_delta, searcher_delta, tool_delta,
};
use callgate_policy::plan::{Starter, Strength, Writer};

use super::*;

/// `struct seccomp_data`, without the instruction pointer.
#[derive(Debug, Clone, Copy)]
struct SampleCall {
    nr: u32,
    arch: u32,
    args: [u64; 6],
}

impl SampleCall {
    fn word(self, offset: u32) -> Option<u32> {
        match offset {
            0 => Some(self.nr),
            4 => Some(self.arch),
            16..=60 if offset.is_multiple_of(4) => {
                let arg = self.args.get((offset as usize - 16) / 8)?;
                Some(if offset.is_multiple_of(8) { *arg as u32 } else { (*arg >> 32) as u32 })
            }
            _ => None,
        }
    }
}

/// Imitation of the kernel's interpreter (Documentation/networking/filter.rst). `None` for a program that it would not
/// have accepted.
fn run(program: &[BpfInsn], call: SampleCall, covered: &mut [bool]) -> Option<(u32, usize)> {
    const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
    let (mut accumulator, mut at, mut steps) = (0, 0, 0);
    loop {
        let insn = program.get(at)?;
        *covered.get_mut(at)? = true;
        steps += 1;
        at += 1;
        let holds = match insn.code {
            RETURN => return Some((insn.k, steps)),
            LOAD => {
                accumulator = call.word(insn.k)?;
                continue;
            }
            AND => {
                accumulator &= insn.k;
                continue;
            }
            JUMP => {
                at += insn.k as usize;
                continue;
            }
            IF_EQUAL => accumulator == insn.k,
            IF_AT_LEAST => accumulator >= insn.k,
            IF_ANY_BIT => accumulator & insn.k != 0,
            _ => return None,
        };
        at += usize::from(if holds { insn.jt } else { insn.jf });
    }
}

/// The table read plainly: shares the numbers of names with the assembler, and nothing else.
struct TableReading<'f> {
    arch: Arch,
    default: CallVerdict,
    by_number: Vec<Option<&'f CallAction>>,
}

impl<'f> TableReading<'f> {
    fn new(filter: &'f Filter, arch: Arch) -> Self {
        let mut by_number = vec![None; 1024];
        for (name, action) in filter.calls() {
            if let Some(number) = number(name, arch) {
                by_number[number as usize] = Some(action);
            }
        }
        Self { arch, default: filter.default, by_number }
    }

    fn action(&self, nr: u32) -> Option<&'f CallAction> {
        self.by_number.get(nr as usize).copied().flatten()
    }

    fn answer(&self, call: SampleCall) -> u32 {
        let ours = match self.arch {
            Arch::X86_64 => 0xc000_003e,
            Arch::Aarch64 => 0xc000_00b7,
        };
        if call.arch != ours || (self.arch == Arch::X86_64 && call.nr & 0x4000_0000 != 0) {
            return 0x8000_0000; // SECCOMP_RET_KILL_PROCESS
        }
        let verdict = match self.action(call.nr) {
            None => self.default,
            Some(CallAction::Always(verdict)) => *verdict,
            Some(CallAction::Args { rules, otherwise }) => rules
                .iter()
                .find(|rule| rule.when.iter().all(|condition| self.holds(condition, call)))
                .map_or(*otherwise, |rule| rule.then),
        };
        match verdict {
            CallVerdict::Allow => 0x7fff_0000,
            CallVerdict::Notify => 0x7fc0_0000,
            CallVerdict::Errno(errno) => 0x0005_0000 + u32::from(errno.number()),
        }
    }

    fn holds(&self, condition: &Condition, call: SampleCall) -> bool {
        let argument = call.args[usize::from(condition.arg)];
        let mask = condition.mask.map_or(u64::MAX, |mask| mask.value(self.arch));
        let wanted = condition.value.value(self.arch) & mask;
        match condition.width {
            Width::Low32 => (argument & mask) as u32 == wanted as u32,
            Width::Full64 => argument & mask == wanted,
        }
    }
}

/// Values of each argument around everything that the action compares it with: hit, missed by each single bit that
/// counts, and the same with bits in the upper half, which decide nothing for an `int` (D5).
fn boundaries(action: Option<&CallAction>, arch: Arch) -> [Vec<u64>; 6] {
    let mut values: [BTreeSet<u64>; 6] = Default::default();
    if let Some(CallAction::Args { rules, .. }) = action {
        for condition in rules.iter().flat_map(|rule| &rule.when) {
            let value = condition.value.value(arch);
            let mask = condition.mask.map_or(0, |mask| mask.value(arch));
            let set = &mut values[usize::from(condition.arg)];
            set.extend([value, value.wrapping_sub(1), value + 1, value | !mask, !value, 0, mask, u64::MAX]);
            set.extend([value | 1 << 32, value | 1 << 63, value | 0xffff_ffff_0000_0000]);
            if mask.count_ones() <= 16 {
                set.extend((0..32).filter(|bit| mask >> bit & 1 != 0).map(|bit| value ^ 1 << bit));
            }
        }
    }
    values.map(|set| if set.is_empty() { vec![0, u64::MAX] } else { set.into_iter().collect() })
}

/// Arguments that are compared in every combination, the others all zero and all ones.
fn arguments(action: Option<&CallAction>, arch: Arch) -> Vec<[u64; 6]> {
    let values = boundaries(action, arch);
    let mut all = vec![[0; 6], [u64::MAX; 6]];
    for (arg, values) in values.iter().enumerate().filter(|(_, values)| values.len() > 2) {
        let earlier = all.clone();
        for &value in values {
            all.extend(earlier.iter().map(|args| {
                let mut args = *args;
                args[arg] = value;
                args
            }));
        }
    }
    all
}

fn variants() -> impl Iterator<Item = Variant> {
    [Strength::Landlock, Strength::Namespaces]
        .into_iter()
        .flat_map(|strength| [Writer::Kernel, Writer::Broker, Writer::BrokerReadsToo].map(|writer| (strength, writer)))
        .flat_map(|(strength, writer)| {
            // Who judges each start traces, and so nobody else does.
            let kinds = [(Starter::Kernel, false), (Starter::Broker, false), (Starter::Kernel, true)];
            kinds.map(|(starter, debug)| (strength, writer, starter, debug))
        })
        .flat_map(|(strength, writer, starter, debug)| {
            // What `debug` changes depends on no ABI.
            let first = if debug { 7 } else { 1 };
            (first..=7).map(move |landlock_abi| Variant { strength, landlock_abi, writer, starter, debug })
        })
}

fn assembled(filter: &Filter, arch: Arch) -> Vec<BpfInsn> {
    assemble(filter, arch).expect("the table is sound")
}

/// D5, and every line of the table: all numbers, all architectures, all boundaries.
fn check(filter: &Filter, arch: Arch) {
    let program = assembled(filter, arch);
    assert_eq!(program, assembled(filter, arch), "the same table gives the same bytes");
    let reading = TableReading::new(filter, arch);
    let mut covered = vec![false; program.len()];
    let numbers = (0..1024).flat_map(|nr| [nr, 0x4000_0000 | nr, 0x8000_0000 | nr]).chain([u32::MAX]);
    for nr in numbers {
        for audit_arch in [AUDIT_ARCH_X86_64, AUDIT_ARCH_AARCH64, 0x4000_0003] {
            for args in arguments(reading.action(nr), arch) {
                let call = SampleCall { nr, arch: audit_arch, args };
                let (answer, _) = run(&program, call, &mut covered).expect("the kernel takes the program");
                assert_eq!(answer, reading.answer(call), "{}, {arch:?}: {call:x?}", filter.title);
            }
        }
    }
    let idle: Vec<_> = covered.iter().enumerate().filter(|(_, covered)| !**covered).collect();
    assert!(idle.is_empty(), "{}, {arch:?}: nothing reaches {idle:?}", filter.title);
}

#[test]
fn program_does_what_the_table_says_on_x86_64() {
    variants().for_each(|variant| check(&base(variant), Arch::X86_64));
}

#[test]
fn program_does_what_the_table_says_on_aarch64() {
    variants().for_each(|variant| check(&base(variant), Arch::Aarch64));
}

/// C7, D2: a worker that searches or asks makes threads exactly as C libraries do, and by no flag more or less another process or a
/// namespace; any other worker makes nothing.
#[test]
fn c7_d2_threads_are_made_by_searches_alone_and_nothing_else_is() {
    const THREAD: u64 = 0x3d_0f00;
    const DETACHED: u64 = 0x40_0000; // musl's; the kernel ignores it
    for (arch, audit_arch, clone) in [(Arch::X86_64, AUDIT_ARCH_X86_64, 56), (Arch::Aarch64, AUDIT_ARCH_AARCH64, 220)] {
        let answer = |filter: &Filter, flags: u64| {
            let program = assembled(filter, arch);
            let call = SampleCall { nr: clone, arch: audit_arch, args: [flags, 0, 0, 0, 0, 0] };
            run(&program, call, &mut vec![false; program.len()]).expect("the kernel takes the program").0
        };
        let allows = |filter: &Filter, flags| answer(filter, flags) == 0x7fff_0000;
        let searching = [search_delta(), searcher_delta(), ask_delta()];
        let plain = [tool_delta(), reader_delta(), fetch_delta()];
        for flags in [THREAD, THREAD | DETACHED] {
            assert!(searching.iter().chain([&readers()]).all(|filter| allows(filter, flags)), "{flags:x}");
            assert!(!plain.iter().any(|filter| allows(filter, flags)), "{flags:x}");
        }
        let others = (0..64).map(|bit| THREAD ^ 1 << bit).filter(|flags| *flags != THREAD | DETACHED);
        for flags in others.chain([libc::SIGCHLD as u64, 0x4111, 0]) {
            assert!(!searching.iter().chain(&plain).any(|filter| allows(filter, flags)), "{flags:x}");
        }
        assert!(allows(&readers(), libc::SIGCHLD as u64), "the control: the zygote forks");
    }
}

/// D11: the init looks for what a process holds open in one of its threads: none may have descriptors of its own.
#[test]
fn d11_threads_share_their_descriptors() {
    const THREAD: u64 = 0x3d_0f00;
    const FILES: u64 = 0x400;
    for (arch, audit_arch, clone) in [(Arch::X86_64, AUDIT_ARCH_X86_64, 56), (Arch::Aarch64, AUDIT_ARCH_AARCH64, 220)] {
        for variant in variants() {
            let program = assembled(&base(variant), arch);
            let answer = |flags: u64| {
                let call = SampleCall { nr: clone, arch: audit_arch, args: [flags, 0, 0, 0, 0, 0] };
                run(&program, call, &mut vec![false; program.len()]).expect("the kernel takes the program").0
            };
            assert_eq!(answer(THREAD), 0x7fff_0000, "the control");
            assert_eq!(answer(THREAD & !FILES), 0x5_0001);
            assert_eq!(answer(libc::SIGCHLD as u64), 0x7fff_0000, "a process has its own");
        }
    }
}

#[test]
fn the_tools_filters_do_what_their_tables_say() {
    for filter in
        [tool_delta(), search_delta(), fetch_delta(), ask_delta(), readers(), reader_delta(), searcher_delta()]
    {
        check(&filter, Arch::X86_64);
        check(&filter, Arch::Aarch64);
    }
}

/// A call that the build's headers know and nobody decided on would be closed without a reason.
#[test]
fn every_known_call_is_in_the_table() {
    let (strength, writer, starter) = (Strength::Landlock, Writer::Kernel, Starter::Kernel);
    let filter = base(Variant { strength, landlock_abi: 7, writer, starter, debug: false });
    let named: BTreeSet<_> = filter.calls().map(|(name, _)| name).collect();
    for id in 0..1024 {
        if let Some(name) = syscalls::x86_64::Sysno::new(id).map(|sysno| sysno.name()) {
            assert!(named.contains(name), "{name} has no reason");
        }
        // 403 to 423 are for 32-bit systems alone (asm-generic/unistd.h).
        if let Some(name) = syscalls::aarch64::Sysno::new(id).map(|sysno| sysno.name())
            && !(403..=423).contains(&id)
            && name != "fstatat"
        {
            assert!(named.contains(name), "{name} has no reason");
        }
    }
}

/// The names that aarch64 may lack are exactly those that it lacks.
#[test]
fn x86_64_only_is_true() {
    for name in X86_64_ONLY {
        assert!(number(name, Arch::X86_64).is_some(), "{name} is on no architecture");
        assert_eq!(number(name, Arch::Aarch64), None, "{name} is on both");
    }
}

#[test]
fn unknown_name_is_refused() {
    let mut filter = tool_delta();
    filter.groups[0].calls.push(("openatt", CallAction::Always(CallVerdict::Allow)));
    let error = assemble(&filter, Arch::X86_64);
    assert!(matches!(error, Err(AssembleError::UnknownName { name: "openatt", arch: Arch::X86_64 })), "{error:?}");
}

#[test]
fn second_action_for_a_name_is_refused() {
    let mut filter = tool_delta();
    filter.groups[0].calls.push(("execve", CallAction::Always(CallVerdict::Allow)));
    let error = assemble(&filter, Arch::X86_64);
    assert!(matches!(error, Err(AssembleError::NamedTwice { name: "execve" })), "{error:?}");
}

/// Installing costs as much as the path that the kernel runs for each of its numbers. About eight comparisons are meant,
/// besides the four instructions that come first. The length itself costs little: what is allowed of ioctl(2), fcntl(2), prctl(2)
/// and setsockopt(2) is listed number by number, and only these calls go through their lists.
#[test]
fn paths_are_short() {
    // With a network of its own a session has more options of sockets, of which two are said to be set and are not (SO_REUSEPORT,
    // SO_LINGER); requests of ptrace(2) are a list too.
    let bound = |variant: &Variant| {
        (if variant.writer.is_broker() { 810 } else { 780 })
            + if variant.strength == Strength::Namespaces { 45 } else { 0 }
            + if variant.debug { 60 } else { 0 }
    };
    for (filter, bound) in variants().map(|variant| (base(variant), bound(&variant))).chain([
        (tool_delta(), 100),
        (readers(), 200),
        (reader_delta(), 20),
        (search_delta(), 110),
        (fetch_delta(), 100),
        (ask_delta(), 115),
        (searcher_delta(), 30),
    ]) {
        for arch in [Arch::X86_64, Arch::Aarch64] {
            let program = assembled(&filter, arch);
            let mut covered = vec![false; program.len()];
            let steps: usize = (0..470)
                .map(|nr| {
                    let call = SampleCall { nr, arch: audit_arch(arch), args: [0; 6] };
                    run(&program, call, &mut covered).map_or(usize::MAX, |(_, steps)| steps)
                })
                .sum();
            println!(
                "{}, {arch:?}: {} instructions, {:.1} on average",
                filter.title,
                program.len(),
                steps as f64 / 470.0
            );
            assert!(program.len() < bound && steps < 470 * 13, "{}, {arch:?}", filter.title);
        }
    }
}

/// D1, D12: with `debug`, requests that debuggers make pass; the broker is asked about those that make a tracer of a parent or
/// have tracees stop at their end, and about all others, which it refuses. Without, it is asked about each.
#[test]
fn d1_d12_requests_of_tracers_are_a_list() {
    const ALLOW: u32 = 0x7fff_0000;
    const ASK: u32 = 0x7fc0_0000;
    const SEIZE: u64 = 0x4206;
    const OPTIONS: u64 = 0x4200;
    const EXIT: u64 = 0x40;
    for (arch, audit_arch, ptrace) in [(Arch::X86_64, AUDIT_ARCH_X86_64, 101), (Arch::Aarch64, AUDIT_ARCH_AARCH64, 117)]
    {
        for variant in variants() {
            let program = assembled(&base(variant), arch);
            let answer = |request: u64, data: u64| {
                let call = SampleCall { nr: ptrace, arch: audit_arch, args: [request, 1, 0, data, 0, 0] };
                run(&program, call, &mut vec![false; program.len()]).expect("the kernel takes the program").0
            };
            let pass = if variant.debug { ALLOW } else { ASK };
            // PEEKDATA, CONT, ATTACH, SYSCALL, GETREGSET.
            for request in [2, 7, 16, 24, 0x4204] {
                assert_eq!(answer(request, u64::MAX), pass, "{request:x}");
            }
            for request in [SEIZE, OPTIONS] {
                for options in [0, 1, 0x10_00bf] {
                    assert_eq!(answer(request, options), pass, "{options:x}");
                }
                // TRACEEXIT, SUSPEND_SECCOMP, and bits that mean nothing yet.
                for options in [EXIT, EXIT | 1, 1 << 21, 1 << 8, 1 << 32, 1 << 63] {
                    assert_eq!(answer(request, options), ASK, "{options:x}");
                }
            }
            // TRACEME, OLDSETOPTIONS, SECCOMP_GET_FILTER, and the next that there will be.
            for request in [0, 21, 0x420c, 0x4213, u64::MAX] {
                assert_eq!(answer(request, 0), ASK, "{request:x}");
            }
        }
    }
}
