//! From a filter table to a program in the kernel.
//!
//! A program has three parts: the checks of architecture and x32, a binary search over ranges of system call numbers,
//! and the blocks that compare arguments. The kernel runs a new filter once for every number to learn which ones it
//! may let pass without asking, so that installing costs in proportion to the average path: the search keeps that at
//! eight comparisons where a list would need two hundred. `seccompiler` makes the blocks; it can neither search nor
//! notify nor refuse x32, so those parts are made here, and the tests hold the whole against a plain reading of the
//! table for every number.

use std::collections::BTreeMap;

use callgate_policy::plan::seccomp::{ArgRule, CallAction, CallVerdict, Condition, Filter, Width, X86_64_ONLY};
use seccompiler::{SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule};

pub use callgate_policy::plan::seccomp::Arch;
/// One instruction of classic BPF, laid out as the kernel wants it.
pub use seccompiler::sock_filter as BpfInsn;

/// Reason why a table could not be turned into a program: a mistake in the table.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AssembleError {
    /// A name that the architecture lacks, and that is not known to be x86-64's alone.
    #[error("find the number of system call {name} on {arch:?}")]
    UnknownName {
        /// The name.
        name: &'static str,
        /// Where.
        arch: Arch,
    },
    /// Two actions for one number.
    #[error("give system call {name} one action: the table has two")]
    NamedTwice {
        /// The name.
        name: &'static str,
    },
    /// A comparison that cannot be expressed.
    #[error("compile the argument rules of system call {name}")]
    Arguments {
        /// The name.
        name: &'static str,
        /// Error of the compiler.
        source: seccompiler::BackendError,
    },
    /// A conditional jump reaches 255 instructions.
    #[error("join the argument rules of system call {name}: too many for one block")]
    BlockTooLong {
        /// The name.
        name: &'static str,
    },
    /// The kernel takes 4096 instructions.
    #[error("fit the filter into 4096 instructions: it has {instructions}")]
    TooLong {
        /// How many there are.
        instructions: usize,
    },
}

/// The program that does what the table says, on one architecture. The same table always gives the same bytes.
pub fn assemble(filter: &Filter, arch: Arch) -> Result<Vec<BpfInsn>, AssembleError> {
    let mut code = Code::default();
    let mut blocks: BTreeMap<&CallAction, Goal> = BTreeMap::new();
    let mut goals = BTreeMap::new();
    for (number, (name, action)) in numbered(filter, arch)? {
        let goal = match action {
            CallAction::Always(verdict) => Goal::Return(ret(*verdict)),
            CallAction::Args { rules, otherwise } => match blocks.get(action) {
                Some(goal) => *goal,
                None => {
                    let goal = code.block(&argument_block(name, rules, *otherwise, arch)?);
                    blocks.insert(action, goal);
                    goal
                }
            },
        };
        goals.insert(number, goal);
    }
    let search = code.search(&ranges(&goals, Goal::Return(ret(filter.default))), PROBED);
    let program = code.finish(search, arch);
    if program.len() > libc::BPF_MAXINSNS as usize {
        return Err(AssembleError::TooLong { instructions: program.len() });
    }
    Ok(program)
}

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const IF_ANY_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const CLASS_MASK: u16 = 7;

// Offsets in `struct seccomp_data`.
const DATA_NR: u32 = 0;
const DATA_ARCH: u32 = 4;

// linux/audit.h: the machine's ELF number, and the marks for 64 bits and little-endian.
const AUDIT_ARCH_X86_64: u32 = 62 | 0xc000_0000;
const AUDIT_ARCH_AARCH64: u32 = 183 | 0xc000_0000;
/// x32 calls have this bit, and the architecture of x86-64 (asm/unistd.h).
const X32_SYSCALL_BIT: u32 = 0x4000_0000;

fn audit_arch(arch: Arch) -> u32 {
    match arch {
        Arch::X86_64 => AUDIT_ARCH_X86_64,
        Arch::Aarch64 => AUDIT_ARCH_AARCH64,
    }
}

fn ret(verdict: CallVerdict) -> u32 {
    match verdict {
        CallVerdict::Allow => libc::SECCOMP_RET_ALLOW,
        CallVerdict::Notify => libc::SECCOMP_RET_USER_NOTIF,
        CallVerdict::Errno(errno) => libc::SECCOMP_RET_ERRNO | u32::from(errno.number()),
    }
}

fn numbered(filter: &Filter, arch: Arch) -> Result<BTreeMap<u32, (&'static str, &CallAction)>, AssembleError> {
    let mut calls = BTreeMap::new();
    for (name, action) in filter.calls() {
        let Some(number) = number(name, arch) else {
            if arch != Arch::X86_64 && X86_64_ONLY.contains(&name) {
                continue;
            }
            return Err(AssembleError::UnknownName { name, arch });
        };
        if calls.insert(number, (name, action)).is_some() {
            return Err(AssembleError::NamedTwice { name });
        }
    }
    Ok(calls)
}

fn number(name: &str, arch: Arch) -> Option<u32> {
    let id = match arch {
        Arch::X86_64 => name.parse::<syscalls::x86_64::Sysno>().ok()?.id(),
        Arch::Aarch64 => {
            // One call under two names: asm-generic/unistd.h says newfstatat from Linux 6.7 on.
            let name = if name == "newfstatat" { "fstatat" } else { name };
            name.parse::<syscalls::aarch64::Sysno>().ok()?.id()
        }
    };
    u32::try_from(id).ok()
}

/// Where a number leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Goal {
    /// To this return value.
    Return(u32),
    /// To the instruction at this place, counted from the program's end.
    Place(usize),
}

/// Numbers from `first` up to the next range's.
#[derive(Debug, Clone, Copy)]
struct NumberRange {
    first: u32,
    goal: Goal,
}

/// All 2^32 numbers, neighbours with one goal in one range.
fn ranges(goals: &BTreeMap<u32, Goal>, default: Goal) -> Vec<NumberRange> {
    let mut ranges: Vec<NumberRange> = Vec::new();
    let mut push = |first, goal| {
        if ranges.last().is_none_or(|range| range.goal != goal) {
            ranges.push(NumberRange { first, goal });
        }
    };
    let mut next = 0;
    for (&number, &goal) in goals {
        if next < number {
            push(next, default);
        }
        push(number, goal);
        next = number + 1;
    }
    push(next, default);
    ranges
}

/// A program that grows from its end, so that the place of whatever a jump leads to is known: BPF jumps forward only.
#[derive(Default)]
struct Code {
    /// The last instruction first.
    backwards: Vec<BpfInsn>,
    /// The nearest instruction that leads to a goal.
    nearest: BTreeMap<Goal, usize>,
}

impl Code {
    fn push(&mut self, code: u16, jt: u8, jf: u8, k: u32) -> usize {
        self.backwards.push(BpfInsn { code, jt, jf, k });
        self.backwards.len() - 1
    }

    fn block(&mut self, block: &[BpfInsn]) -> Goal {
        self.backwards.extend(block.iter().rev().cloned());
        Goal::Place(self.backwards.len() - 1)
    }

    /// Makes sure that an instruction that leads to the goal can be reached from the next two places, and returns its
    /// own place.
    fn bring_near(&mut self, goal: Goal) -> usize {
        let nearest = match goal {
            Goal::Place(place) => Some(self.nearest.get(&goal).copied().unwrap_or(place)),
            Goal::Return(_) => self.nearest.get(&goal).copied(),
        };
        if let Some(place) = nearest
            && self.backwards.len() - place <= usize::from(u8::MAX)
        {
            return place;
        }
        let here = match goal {
            Goal::Return(value) => self.push(RETURN, 0, 0, value),
            Goal::Place(place) => {
                let distance = u32::try_from(self.backwards.len() - place - 1).unwrap_or(u32::MAX);
                self.push(JUMP, 0, 0, distance)
            }
        };
        self.nearest.insert(goal, here);
        here
    }

    fn branch(&mut self, code: u16, k: u32, yes: Goal, no: Goal) -> Goal {
        let (yes, no) = (self.bring_near(yes), self.bring_near(no));
        let here = self.backwards.len();
        let offset = |place: usize| u8::try_from(here - place - 1);
        let (Ok(yes), Ok(no)) = (offset(yes), offset(no)) else {
            // Cannot happen, see `bring_near`; and a jump cut short would lead anywhere.
            return Goal::Return(libc::SECCOMP_RET_KILL_PROCESS);
        };
        Goal::Place(self.push(code, yes, no, k))
    }

    /// A search tree over the ranges below `end`, balanced by how many numbers the kernel may ask about.
    fn search(&mut self, ranges: &[NumberRange], end: u32) -> Goal {
        match ranges {
            [] => Goal::Return(libc::SECCOMP_RET_KILL_PROCESS),
            [only] => only.goal,
            [before, one, after] if before.goal == after.goal && after.first - one.first == 1 => {
                self.branch(IF_EQUAL, one.first, one.goal, before.goal)
            }
            _ => {
                let (low, high) = ranges.split_at(middle(ranges, end));
                let first = high.first().map_or(end, |range| range.first);
                // High first: the low half then stands right behind its comparison.
                let yes = self.search(high, end);
                let no = self.search(low, first);
                self.branch(IF_AT_LEAST, first, yes, no)
            }
        }
    }

    fn finish(mut self, search: Goal, arch: Arch) -> Vec<BpfInsn> {
        let search = match arch {
            Arch::X86_64 => {
                let kill = Goal::Return(libc::SECCOMP_RET_KILL_PROCESS);
                self.branch(IF_ANY_BIT, X32_SYSCALL_BIT, kill, search)
            }
            Arch::Aarch64 => search,
        };
        let start = self.bring_near(search);
        if start + 1 != self.backwards.len() {
            let distance = u32::try_from(self.backwards.len() - start - 1).unwrap_or(u32::MAX);
            self.push(JUMP, 0, 0, distance);
        }
        self.push(LOAD, 0, 0, DATA_NR);
        self.push(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS);
        self.push(IF_EQUAL, 1, 0, audit_arch(arch));
        self.push(LOAD, 0, 0, DATA_ARCH);
        self.backwards.reverse();
        self.backwards
    }
}

/// Just above the numbers in use: the kernel probes these alone, and the last range would outweigh all others.
const PROBED: u32 = 480;

/// Where to cut two or more ranges so that both halves hold about as many numbers.
fn middle(ranges: &[NumberRange], end: u32) -> usize {
    let start = ranges.first().map_or(0, |range| range.first);
    let imbalance = |cut: &NumberRange| (cut.first - start).abs_diff(end.saturating_sub(cut.first));
    let cuts = ranges.iter().enumerate().skip(1);
    cuts.min_by_key(|(_, cut)| imbalance(cut)).map_or(1, |(index, _)| index)
}

const MATCHED: u16 = 1;
const MISSED: u16 = 2;
/// The architecture check, the number's load and its comparison, all of which were made before the block.
const PREFIX: usize = 5;

/// Compares arguments in the rules' order and returns. `seccompiler` knows two actions for a filter and none that
/// notifies, so each run of rules with one verdict is compiled by itself with markers for both, of which the first is
/// rewritten and the second falls through to the next run.
fn argument_block(
    name: &'static str,
    rules: &[ArgRule],
    otherwise: CallVerdict,
    arch: Arch,
) -> Result<Vec<BpfInsn>, AssembleError> {
    let mut block = Vec::new();
    for run in rules.chunk_by(|one, next| one.then == next.then) {
        let compiled = compile(run, arch).map_err(|source| AssembleError::Arguments { name, source })?;
        let matched = libc::SECCOMP_RET_TRACE | u32::from(MATCHED);
        // Two returns at the end, for arguments and for numbers that do not match.
        let body = compiled.len().saturating_sub(2);
        block.extend(compiled.into_iter().take(body).skip(PREFIX).map(|insn| {
            if insn.code == RETURN && insn.k == matched {
                BpfInsn { k: ret(run.first().map_or(otherwise, |rule| rule.then)), ..insn }
            } else {
                insn
            }
        }));
    }
    block.push(BpfInsn { code: RETURN, jt: 0, jf: 0, k: ret(otherwise) });
    tidy(&block).ok_or(AssembleError::BlockTooLong { name })
}

fn compile(run: &[ArgRule], arch: Arch) -> Result<Vec<BpfInsn>, seccompiler::BackendError> {
    let rules = run
        .iter()
        .map(|rule| {
            let conditions = rule.when.iter().map(|condition| compile_condition(condition, arch));
            SeccompRule::new(conditions.collect::<Result<_, _>>()?)
        })
        .collect::<Result<Vec<_>, seccompiler::BackendError>>()?;
    let target = match arch {
        Arch::X86_64 => seccompiler::TargetArch::x86_64,
        Arch::Aarch64 => seccompiler::TargetArch::aarch64,
    };
    let (missed, matched) = (SeccompAction::Trace(MISSED.into()), SeccompAction::Trace(MATCHED.into()));
    SeccompFilter::new([(0, rules)].into(), missed, matched, target)?.try_into()
}

fn compile_condition(condition: &Condition, arch: Arch) -> Result<SeccompCondition, seccompiler::BackendError> {
    let width = match condition.width {
        Width::Low32 => SeccompCmpArgLen::Dword,
        Width::Full64 => SeccompCmpArgLen::Qword,
    };
    let comparison = match condition.mask {
        Some(mask) => SeccompCmpOp::MaskedEq(mask.value(arch)),
        None => SeccompCmpOp::Eq,
    };
    SeccompCondition::new(condition.arg, width, comparison, condition.value.value(arch))
}

/// Content of the accumulator when an instruction is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Accumulator {
    /// The word of the call's data at this offset, on every way here.
    Holds(u32),
    /// One thing or another.
    Unknown,
}

/// Shortens a block. `seccompiler` compiles each condition by itself: it loads an argument for every value that it is
/// compared with, returns from every rule apart, and puts two jumps before each rule for a chain of numbers that does
/// not exist here. `None` if a jump does not fit any more.
fn tidy(block: &[BpfInsn]) -> Option<Vec<BpfInsn>> {
    let arrivals = arrivals(block)?;
    // Where control ends up that comes here: behind jumps and loads of what is loaded, at the last equal return.
    let end_of = |mut place: usize| {
        loop {
            place = match block.get(place) {
                Some(insn) if insn.code == JUMP => place + 1 + insn.k as usize,
                Some(insn) if insn.code == LOAD && arrivals.get(place) == Some(&Some(Accumulator::Holds(insn.k))) => {
                    place + 1
                }
                Some(insn) if insn.code == RETURN => {
                    return block.iter().rposition(|other| other == insn).unwrap_or(place);
                }
                Some(_) | None => return place,
            }
        }
    };
    let mut live = vec![false; block.len()];
    let mut pending = vec![end_of(0)];
    while let Some(place) = pending.pop() {
        if std::mem::replace(live.get_mut(place)?, true) {
            continue;
        }
        let insn = block.get(place)?;
        match class(insn) {
            libc::BPF_RET => {}
            libc::BPF_JMP => pending.extend(branches(place, insn).map(end_of)),
            // A statement has no offset to change: what follows must stay behind it.
            _ if end_of(place + 1) != place + 1 => return None,
            _ => pending.push(place + 1),
        }
    }
    let places: Vec<usize> = live
        .iter()
        .scan(0, |kept, live| {
            let place = *kept;
            *kept += usize::from(*live);
            Some(place)
        })
        .collect();
    let kept = block.iter().enumerate().filter(|(place, _)| live[*place]);
    kept.map(|(place, insn)| {
        let mut insn = insn.clone();
        if class(&insn) == libc::BPF_JMP {
            let offset = |target: usize| u8::try_from(places.get(end_of(target))? - places[place] - 1).ok();
            let [jt, jf] = branches(place, &insn);
            (insn.jt, insn.jf) = (offset(jt)?, offset(jf)?);
        }
        Some(insn)
    })
    .collect()
}

/// For every instruction what the accumulator holds there, or `None` if nothing leads to it. One pass is enough, since
/// all jumps lead forward.
fn arrivals(block: &[BpfInsn]) -> Option<Vec<Option<Accumulator>>> {
    let mut arrivals = vec![None; block.len()];
    *arrivals.first_mut()? = Some(Accumulator::Unknown);
    for (place, insn) in block.iter().enumerate() {
        let Some(arrival) = arrivals[place] else {
            continue;
        };
        let (next, leaving) = match class(insn) {
            libc::BPF_RET => continue,
            libc::BPF_JMP if insn.code == JUMP => ([place + 1 + insn.k as usize; 2], arrival),
            libc::BPF_JMP => (branches(place, insn), arrival),
            _ if insn.code == LOAD => ([place + 1; 2], Accumulator::Holds(insn.k)),
            _ => ([place + 1; 2], Accumulator::Unknown),
        };
        for next in next {
            let slot = arrivals.get_mut(next)?;
            *slot = Some(match *slot {
                None => leaving,
                Some(earlier) if earlier == leaving => leaving,
                Some(_) => Accumulator::Unknown,
            });
        }
    }
    Some(arrivals)
}

fn class(insn: &BpfInsn) -> u32 {
    u32::from(insn.code & CLASS_MASK)
}

fn branches(place: usize, insn: &BpfInsn) -> [usize; 2] {
    [insn.jt, insn.jf].map(|offset| place + 1 + usize::from(offset))
}

#[cfg(test)]
#[path = "seccomp/tests.rs"]
mod tests;
