//! Rules on system calls, and the classic BPF that they become.
//!
//! The program is linear, rule after rule, because it is read more often than it is run. Only calls of the native table
//! are judged: `int 0x80` and x32 pass, as they do on the hosts imitated here. weaken imitates a host, it guards nothing.

/// Answer of the kernel to a call that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KernelAnswer {
    Allow,
    Errno(i32),
    /// Ask the tracer, which answers in the call's place.
    Trace,
}

/// A condition on one argument; all of a rule's conditions must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArgumentCondition {
    pub(crate) argument: u8,
    pub(crate) mask: u64,
    pub(crate) test: Test,
}

/// Test that the masked argument is compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    Equals(u64),
    Differs(u64),
}

impl ArgumentCondition {
    pub(crate) const fn equals(argument: u8, mask: u64, value: u64) -> Self {
        Self { argument, mask, test: Test::Equals(value) }
    }

    pub(crate) const fn differs(argument: u8, mask: u64, value: u64) -> Self {
        Self { argument, mask, test: Test::Differs(value) }
    }
}

/// One call, perhaps only with certain arguments, and its answer. The first rule that matches counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BpfRule {
    pub(crate) number: u32,
    pub(crate) conditions: Vec<ArgumentCondition>,
    pub(crate) answer: KernelAnswer,
}

impl BpfRule {
    pub(crate) fn new(number: i64, answer: KernelAnswer) -> Self {
        Self { number: u32::try_from(number).unwrap_or(u32::MAX), conditions: Vec::new(), answer }
    }

    pub(crate) fn when(mut self, condition: ArgumentCondition) -> Self {
        self.conditions.push(condition);
        self
    }
}

#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xc000_00b7;

const X32_BIT: u32 = 0x4000_0000;

// The opcodes of linux/bpf_common.h that are needed.
const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

// Offsets in struct seccomp_data.
const AT_NUMBER: u32 = 0;
const AT_ARCHITECTURE: u32 = 4;
const AT_ARGUMENTS: u32 = 16;

const RETURN_ALLOW: u32 = 0x7fff_0000;
const RETURN_ERRNO: u32 = 0x0005_0000;
const RETURN_TRACE: u32 = 0x7ff0_0000;

fn statement(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k }
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

fn answer(answer: KernelAnswer) -> libc::sock_filter {
    let value = match answer {
        KernelAnswer::Allow => RETURN_ALLOW,
        KernelAnswer::Errno(number) => RETURN_ERRNO | (number.cast_unsigned() & 0xffff),
        KernelAnswer::Trace => RETURN_TRACE,
    };
    statement(RETURN, value)
}

/// The two halves of a masked argument, each loaded, masked and compared; a half that no mask bit touches is left out.
fn condition(condition: &ArgumentCondition, body: &mut Vec<OpenInstruction>) {
    let at = AT_ARGUMENTS + 8 * u32::from(condition.argument);
    let (value, equals) = match condition.test {
        Test::Equals(value) => (value, true),
        Test::Differs(value) => (value, false),
    };
    let halves: Vec<(u32, u32, u32)> = [(at, 0), (at + 4, 32)]
        .into_iter()
        .map(|(offset, shift)| {
            let half = |whole: u64| u32::try_from(whole >> shift & 0xffff_ffff).unwrap_or(0);
            (offset, half(condition.mask), half(value))
        })
        .filter(|&(_, mask, _)| mask != 0)
        .collect();
    let count = halves.len();
    for (index, (offset, mask, value)) in halves.into_iter().enumerate() {
        body.push(OpenInstruction::Plain(statement(LOAD, offset)));
        body.push(OpenInstruction::Plain(statement(AND, mask)));
        body.push(match (equals, count - index - 1) {
            (true, _) => OpenInstruction::UnlessEqualSkipRule(value),
            (false, 0) => OpenInstruction::IfEqualSkipRule(value),
            // The low half differs: the condition holds, the three instructions on the high half are left out.
            (false, _) => OpenInstruction::UnlessEqualSkip(value, 3),
        });
    }
}

/// An instruction whose jump is not known before the rule's length is.
enum OpenInstruction {
    Plain(libc::sock_filter),
    UnlessEqualSkipRule(u32),
    IfEqualSkipRule(u32),
    UnlessEqualSkip(u32, u8),
}

/// The program that answers by the first rule that matches, and by `otherwise` if none does.
pub(crate) fn compile(rules: &[BpfRule], otherwise: KernelAnswer) -> Vec<libc::sock_filter> {
    let mut program = vec![
        statement(LOAD, AT_ARCHITECTURE),
        jump(JUMP_EQUAL, NATIVE, 1, 0),
        answer(KernelAnswer::Allow),
        statement(LOAD, AT_NUMBER),
        jump(JUMP_AT_LEAST, X32_BIT, 0, 1),
        answer(KernelAnswer::Allow),
    ];
    for rule in rules {
        let mut body = Vec::new();
        for each in &rule.conditions {
            condition(each, &mut body);
        }
        // After the conditions come the answer and, since they overwrote it, the call's number once more.
        let length = body.len() + 1;
        program.push(jump(JUMP_EQUAL, rule.number, 0, u8::try_from(length).unwrap_or(u8::MAX)));
        for (index, piece) in body.into_iter().enumerate() {
            let past = u8::try_from(length - index - 1).unwrap_or(u8::MAX);
            program.push(match piece {
                OpenInstruction::Plain(instruction) => instruction,
                OpenInstruction::UnlessEqualSkipRule(value) => jump(JUMP_EQUAL, value, 0, past),
                OpenInstruction::IfEqualSkipRule(value) => jump(JUMP_EQUAL, value, past, 0),
                OpenInstruction::UnlessEqualSkip(value, skip) => jump(JUMP_EQUAL, value, 0, skip),
            });
        }
        program.push(answer(rule.answer));
        if !rule.conditions.is_empty() {
            program.push(statement(LOAD, AT_NUMBER));
        }
    }
    program.push(answer(otherwise));
    program
}

#[cfg(test)]
mod tests {
    use super::{ArgumentCondition, BpfRule, KernelAnswer, NATIVE, compile};

    /// Interprets a program as the kernel would, for the few opcodes that `compile` emits.
    fn run(program: &[libc::sock_filter], architecture: u32, number: u32, args: [u64; 6]) -> u32 {
        let mut data = [0_u32; 16];
        data[0] = number;
        data[1] = architecture;
        for (index, arg) in args.iter().enumerate() {
            data[4 + 2 * index] = u32::try_from(arg & 0xffff_ffff).unwrap_or(0);
            data[5 + 2 * index] = u32::try_from(arg >> 32).unwrap_or(0);
        }
        let (mut at, mut a) = (0, 0_u32);
        loop {
            let step = &program[at];
            at += 1;
            match step.code {
                super::LOAD => a = data[usize::try_from(step.k / 4).unwrap_or(0)],
                super::AND => a &= step.k,
                super::JUMP_EQUAL => at += usize::from(if a == step.k { step.jt } else { step.jf }),
                super::JUMP_AT_LEAST => {
                    at += usize::from(if a >= step.k { step.jt } else { step.jf });
                }
                _ => return step.k,
            }
        }
    }

    const ALLOW: u32 = super::RETURN_ALLOW;
    const EPERM: u32 = super::RETURN_ERRNO | 1;

    #[test]
    fn the_first_rule_whose_conditions_hold_answers() {
        let rules = [
            BpfRule::new(7, KernelAnswer::Errno(1)).when(ArgumentCondition::equals(0, u64::MAX, 5)),
            BpfRule::new(7, KernelAnswer::Errno(1)).when(ArgumentCondition::differs(1, u64::MAX, 9)),
            BpfRule::new(8, KernelAnswer::Errno(1)),
        ];
        let program = compile(&rules, KernelAnswer::Allow);
        let ask = |number, a, b| run(&program, NATIVE, number, [a, b, 0, 0, 0, 0]);
        assert_eq!(ask(7, 5, 9), EPERM);
        assert_eq!(ask(7, 6, 9), ALLOW);
        assert_eq!(ask(7, 6, 8), EPERM);
        assert_eq!(ask(7, 6, 1 << 40 | 9), EPERM);
        assert_eq!(ask(7, 1 << 40 | 5, 9), ALLOW);
        assert_eq!(ask(8, 0, 0), EPERM);
        assert_eq!(ask(9, 0, 0), ALLOW);
    }

    #[test]
    fn a_mask_leaves_the_other_bits_alone() {
        let rules = [BpfRule::new(56, KernelAnswer::Errno(1)).when(ArgumentCondition::differs(0, 0x7e02_0000, 0))];
        let program = compile(&rules, KernelAnswer::Allow);
        let ask = |flags| run(&program, NATIVE, 56, [flags, 0, 0, 0, 0, 0]);
        assert_eq!(ask(0x11), ALLOW);
        assert_eq!(ask(0x1000_0011), EPERM);
        assert_eq!(ask(1 << 40), ALLOW);
    }

    #[test]
    fn foreign_tables_pass() {
        let program = compile(&[BpfRule::new(1, KernelAnswer::Errno(1))], KernelAnswer::Errno(1));
        assert_eq!(run(&program, 0x4000_0003, 1, [0; 6]), ALLOW);
        assert_eq!(run(&program, NATIVE, 0x4000_0001, [0; 6]), ALLOW);
        assert_eq!(run(&program, NATIVE, 2, [0; 6]), EPERM);
    }
}
