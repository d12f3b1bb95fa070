//! Random system calls with random arguments, from a supply in which the attacked things are many: paths and process ids
//! outside, addresses of listeners, descriptors of every kind, lengths and flags at their limits, bad pointers.

use std::fs::File;
use std::os::fd::IntoRawFd as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use callgate_tests::Dice;
use callgate_worker::probe::act::{ProbeAct, act};
use callgate_worker::probe::outcome::{ActArgs, ActFailure, ActOutcome};
use callgate_worker::sys::probe::{self as sys, ForkSide, bits, call, int, into, legacy, null, text};
use serde_json::json;

use crate::sys::{keep_awake, leaked, shared_counter};

pub(crate) const ACTS: &[ProbeAct] = &[
    act("chaos", "D5", "SEED SECONDS all|notified [TARGET…]", "random calls in children, one after the other", chaos),
    act("connect-and-tell", "B7", "TARGET", "reach a listener by one honest call: the control", tell),
];

/// Calls of one child.
const CALLS: u32 = 2000;
/// Time that a child gets before it is killed: some call may have put it to sleep.
const CHILD: Duration = Duration::from_millis(400);

/// Calls that would only end the child, or take its own memory away from under it.
const LEFT_OUT: &[i64] = &[
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_brk,
    libc::SYS_mprotect,
    libc::SYS_pkey_mprotect,
    libc::SYS_madvise,
    libc::SYS_remap_file_pages,
    libc::SYS_shmdt,
    libc::SYS_sigaltstack,
    libc::SYS_vfork,
    libc::SYS_clone,
    libc::SYS_clone3,
];

/// Calls that a broker answers, besides those of `legacy`.
const NOTIFIED: &[i64] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    452,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_listen,
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_setsockopt,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_inotify_add_watch,
    libc::SYS_openat,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_mknodat,
    libc::SYS_truncate,
    libc::SYS_kill,
    libc::SYS_tgkill,
    libc::SYS_prlimit64,
    libc::SYS_setpriority,
    libc::SYS_sched_setaffinity,
    libc::SYS_pidfd_open,
    legacy::CHMOD,
    legacy::CHOWN,
    legacy::LCHOWN,
    legacy::UTIME,
];

/// Supply that arguments are chosen from. All memory is leaked: the kernel may write there at any time, and nobody
/// reads it.
struct Supply {
    pointers: Vec<u64>,
    pids: Vec<u64>,
    descriptors: u64,
}

/// An address of a listener, as the kernel wants it.
fn address(target: &str) -> Option<Vec<u8>> {
    let (kind, rest) = target.split_once(':')?;
    match kind {
        "port" => {
            let port: u16 = rest.parse().ok()?;
            let family = u16::try_from(libc::AF_INET).ok()?;
            Some([&family.to_ne_bytes()[..], &port.to_be_bytes(), &[127, 0, 0, 1], &[0; 8]].concat())
        }
        "unix" | "abstract" => {
            let family = u16::try_from(libc::AF_UNIX).ok()?;
            // An abstract name begins with a zero, and ends where its address does.
            let (lead, end): (&[u8], &[u8]) = if kind == "abstract" { (&[0], &[]) } else { (&[], &[0]) };
            Some([&family.to_ne_bytes()[..], lead, rest.as_bytes(), end].concat())
        }
        _ => None,
    }
}

impl Supply {
    fn gather(targets: &[String]) -> Result<Self, ActFailure> {
        let mut supply = Self { pointers: Vec::new(), pids: vec![0, 1], descriptors: 0 };
        for word in
            [".", "..", "inside", "inside/x", "/", "/proc/self/fd/3", "/proc/1/mem", "/tmp", "/dev/shm/x", "user.x", ""]
        {
            supply.add(format!("{word}\0").into_bytes());
        }
        let mut addresses = Vec::new();
        for target in targets {
            if let Some(pid) = target.strip_prefix("pid:") {
                supply.pids.push(pid.parse().map_err(|_bad| ActFailure::unready("not a process id"))?);
            }
            let path = target.strip_prefix("path:").or_else(|| target.strip_prefix("unix:"));
            if let Some(path) = path {
                // As often as all others together.
                for _ in 0..4 {
                    supply.add(format!("{path}\0").into_bytes());
                }
            }
            addresses.extend(address(target));
        }
        for address in addresses {
            supply.add_message(&address);
            supply.add(address);
        }
        for filler in [0_u8, 1, 0xff] {
            supply.add(vec![filler; 4096]);
        }
        supply.open()?;
        Ok(supply)
    }

    fn add(&mut self, mut bytes: Vec<u8>) -> u64 {
        // Room behind it for what the kernel writes.
        bytes.resize(bytes.len().max(256) + 64, 0);
        let address = leaked(bytes.leak());
        self.pointers.push(address);
        address
    }

    /// A msghdr (and, as its first member, an mmsghdr) to this address, with a few bytes to say.
    fn add_message(&mut self, address: &[u8]) {
        let text = self.add(b"chaos".to_vec());
        let vector = self.add([text.to_ne_bytes(), 5_u64.to_ne_bytes()].concat());
        let name = self.add(address.to_vec());
        let words = [name, address.len() as u64, vector, 1, 0, 0, 0, 0];
        self.add(words.iter().flat_map(|word| word.to_ne_bytes()).collect());
    }

    /// Descriptors of every kind that can be had, from 3 on.
    fn open(&mut self) -> Result<(), ActFailure> {
        // An earlier run may have left it as it liked.
        let _not_there = std::fs::remove_file("inside");
        let file = |path: &str| File::options().read(true).write(true).create(true).truncate(false).open(path);
        let io = |error| ActFailure::io("open", &error);
        let mut last = file("inside").map_err(io)?.into_raw_fd();
        // Some of these are refused, which is as it should be.
        for path in [".", "/", "/proc/self", "/dev/null"] {
            last = File::open(path).map_or(last, |file| file.into_raw_fd());
        }
        let kinds = [
            (libc::AF_UNIX, libc::SOCK_STREAM),
            (libc::AF_UNIX, libc::SOCK_DGRAM),
            (libc::AF_INET, libc::SOCK_STREAM),
            (libc::AF_INET, libc::SOCK_DGRAM),
        ];
        for (family, kind) in kinds {
            if let Ok(fd) = call("socket", libc::SYS_socket, &[int(family), int(kind), int(0)]) {
                last = i32::try_from(fd).unwrap_or(last);
            }
        }
        let mut pair = [0_i32; 2];
        if call(
            "socketpair",
            libc::SYS_socketpair,
            &[int(libc::AF_UNIX), int(libc::SOCK_STREAM), int(0), into(&mut pair)],
        )
        .is_ok()
        {
            last = pair[1];
        }
        if let Ok(fd) = call("memfd", libc::SYS_memfd_create, &[text(c"chaos"), int(0)]) {
            last = i32::try_from(fd).unwrap_or(last);
        }
        self.descriptors = u64::from(last.unsigned_abs()) + 1;
        Ok(())
    }

    fn argument(&self, dice: &mut Dice) -> u64 {
        match dice.below(20) {
            0..=4 => match dice.below(8) {
                0 => u64::from(libc::AT_FDCWD.cast_unsigned()),
                1 => u64::MAX,
                _ => dice.roll() % self.descriptors.max(1),
            },
            5..=10 => dice.one(&self.pointers) + dice.one(&[0, 0, 0, 0, 1, 2, 8]),
            11..=12 => 1 << dice.below(40),
            13 => dice.roll() & 0xffff_ffff,
            14..=15 => dice.one(&self.pids),
            16 => dice.one(&[0, 1, 2, 3, 5, 8, 16, 110, 4096, u64::from(u32::MAX), u64::MAX, i64::MAX.cast_unsigned()]),
            17 => dice.one(&[0, 1, 4095, 0x7fff_ffff_f000, 0xffff_8000_0000_0000, u64::MAX - 4095]),
            18 => dice.roll() % 64,
            _ => dice.roll(),
        }
    }
}

fn chaos(args: &ActArgs<'_>) -> ActOutcome {
    let number = |index: usize| {
        let word = args.word(index)?;
        word.parse::<u64>().map_err(|_bad| ActFailure::unready(format!("{word} is no number")))
    };
    let (seed, seconds) = (number(0)?, number(1)?);
    let notified = args.word(2)? == "notified";
    let supply = Supply::gather(args.0.get(3..).unwrap_or_default())?;
    let start = Instant::now();
    let (mut children, calls) = (0_u64, shared_counter()?);
    while start.elapsed() < Duration::from_secs(seconds) {
        children += 1;
        let dice = Dice::new(seed << 20 | children);
        let ForkSide::Parent(child) = sys::fork_with("fork", 0)? else { act_up(dice, &supply, notified, calls) };
        outlive(child)?;
    }
    Ok(json!({ "children": children, "calls": calls.load(Ordering::Relaxed) }))
}

/// Waits for a child, and kills it if it sleeps.
fn outlive(child: i32) -> Result<(), ActFailure> {
    let start = Instant::now();
    let mut status = 0_i32;
    loop {
        let waited = call("wait4", libc::SYS_wait4, &[int(child), into(&mut status), int(libc::WNOHANG), null()]);
        match waited {
            Ok(0) if start.elapsed() < CHILD => std::thread::sleep(Duration::from_millis(1)),
            Ok(0) => {
                call("kill", libc::SYS_kill, &[int(child), int(libc::SIGKILL)])?;
                return sys::wait(child).map(drop);
            }
            Ok(_) => return Ok(()),
            Err(failure) if failure.is_errno(libc::EINTR) => {}
            Err(failure) => return Err(failure),
        }
    }
}

fn act_up(mut dice: Dice, supply: &Supply, notified: bool, calls: &AtomicU64) -> ! {
    let me = std::process::id();
    // Who counts, and goes on with the next child. In a namespace of its own it has one of the small ids that are often said.
    let counts = std::os::unix::process::parent_id();
    // What it makes stays small, whatever it says.
    let small = [64_u64 << 20; 2];
    let limit = [int(0), int(libc::RLIMIT_FSIZE), sys::from(&small), null()];
    let limited = call("prlimit64", libc::SYS_prlimit64, &limit);
    if limited.is_err() {
        sys::exit(1);
    }
    // What it does to its group it does to itself.
    let alone = call("setsid", libc::SYS_setsid, &[]);
    if alone.is_err() {
        sys::exit(1);
    }
    // What it does to its own streams, the one who counts would have to print by.
    let quiet = std::fs::File::options().read(true).write(true).open("/dev/null");
    let quiet = quiet.is_ok_and(|null| {
        (0..3).all(|stream| call("dup3", libc::SYS_dup3, &[sys::fd(&null), int(stream), int(0)]).is_ok())
    });
    if !quiet {
        sys::exit(1);
    }
    keep_awake();
    for _ in 0..CALLS {
        let number = if notified {
            dice.one(NOTIFIED)
        } else {
            let number = i64::try_from(dice.below(472)).unwrap_or(0);
            // The same call as another table numbers it.
            number | dice.one(&[0, 0, 0, 0, 0, 0, 0, 0x4000_0000])
        };
        if LEFT_OUT.contains(&number) {
            continue;
        }
        let mut arguments = [0_u64; 6];
        for argument in &mut arguments {
            *argument = supply.argument(&mut dice);
        }
        // A sandbox that did not hold would take the machine with it, where it should fail a test.
        let everybody = arguments[0] as u32 == u32::MAX;
        if everybody && matches!(number & 0xffff, libc::SYS_kill | libc::SYS_tkill | libc::SYS_rt_sigqueueinfo) {
            continue;
        }
        if arguments[..2].iter().any(|&named| named as u32 == counts) {
            continue;
        }
        calls.fetch_add(1, Ordering::Relaxed);
        sys::raw(number, &arguments.map(bits));
        if std::process::id() != me {
            sys::exit(2);
        }
    }
    sys::exit(0)
}

/// One honest try of what chaos tries by chance: the canary's control.
fn tell(args: &ActArgs<'_>) -> ActOutcome {
    let target = args.word(0)?;
    let address = address(target).ok_or_else(|| ActFailure::unready("not a listener"))?;
    let family = if target.starts_with("port:") { libc::AF_INET } else { libc::AF_UNIX };
    let kind = if args.word_or(1, "stream") == "dgram" { libc::SOCK_DGRAM } else { libc::SOCK_STREAM };
    let socket = sys::call_fd("socket", libc::SYS_socket, &[int(family), int(kind), int(0)])?;
    call("connect", libc::SYS_connect, &[sys::fd(&socket), sys::from(&address[..]), sys::len(&address)])?;
    call("write", libc::SYS_write, &[sys::fd(&socket), text(c"x"), int(1)])?;
    Ok(json!({}))
}
