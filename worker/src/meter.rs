//! The meter: what a program and all that it started use together, looked at by the program's init.
//!
//! The kernel bounds one process (setrlimit(2)), or a cgroup that few hosts delegate. Everything else is counted here, in
//! a process that the program cannot stop, trace or starve of the right to look: it is above the program's Landlock
//! domain, and all that the program starts, however it forks, has nowhere to go but below it (PR_SET_CHILD_SUBREAPER).
//!
//! What is counted must not depend on the program's good will. So no process is believed to be small because it cannot
//! be looked into: then the host's own count of shared memory decides.
//!
//! A program that ends within [`TICK`] costs nothing: no thread, no timer, only a shorter timeout of a poll that is there
//! anyway. Later the time between two looks follows from how far away the nearest limit is.
#![expect(
    clippy::disallowed_methods,
    reason = "procfs, and sizes of file systems: it only looks, in a call's init, which is confined"
)]

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use callgate_policy::limit::{Bounds, LimitName};

use crate::apply::landlock::SignalsStayBelow;
use crate::family;
use crate::procfs::Procfs;
use crate::protocol::{LimitHit, Used};
use crate::sys::process::{self, Pid};

/// How soon the first look is, and how close two can be.
const TICK: Duration = Duration::from_millis(10);
/// How far apart two can be.
const REST: Duration = Duration::from_millis(250);
/// Faster than processes touch new memory on any machine so far, bytes a second: how soon a limit could be met.
const FASTEST: u64 = 16 << 30;
/// A look may take this part of the time until the next.
const SHARE: u32 = 50;
/// Clock ticks a second in `/proc` (USER_HZ), on every architecture that callgate has a filter for.
const USER_HZ: u64 = 100;
/// But no look is put off for longer.
const LONGEST: Duration = Duration::from_secs(1);
/// Time that a look may take until it is content with what is never too small.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often memory is looked at again that is too much and not sure.
const LOOKS: usize = 3;
/// Bytes that a minor fault adds at least, and a mapping has.
const PAGE: u64 = 4096;
/// Bytes that the kernel keeps for a mapping: `vm_area_struct` (192), its place in a tree (up to 64), and, once it was
/// written to, `anon_vma` (104) with two links (64 each). For each process that it was inherited from there is one link
/// more.
const MAPPING: u64 = 448;
const LINK: u64 = 64;
/// linux/magic.h.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Files of this process and of the host that are read again and again, kept open: opening one costs more than reading it.
/// `None` for one that is not there.
#[derive(Debug)]
pub(crate) struct Counters {
    stat: Option<File>,
    io: Option<File>,
    loadavg: Option<File>,
    meminfo: Option<File>,
    /// Most mappings that a process of this host can have.
    mappings: u64,
    /// Where all processes are to be seen.
    procfs: Procfs,
}

impl Counters {
    pub(crate) fn open(procfs: Procfs) -> Self {
        let open = |path: &str| File::open(path).ok();
        Self {
            procfs,
            stat: open("/proc/self/stat"),
            io: open("/proc/self/io"),
            loadavg: open("/proc/loadavg"),
            meminfo: open("/proc/meminfo"),
            mappings: fs::read_to_string("/proc/sys/vm/max_map_count")
                .ok()
                .and_then(|text| text.trim().parse().ok())
                .unwrap_or(u64::MAX),
        }
    }
}

/// Text of such a file now: its first page, which is all of it.
fn said(counter: Option<&File>) -> Option<String> {
    let mut text = vec![0; 4096];
    let read = counter?.read_at(&mut text, 0).ok()?;
    text.truncate(read);
    String::from_utf8(text).ok()
}

/// How things stood before a program was started: taken while nobody waits.
#[derive(Debug)]
pub(crate) struct MeterBase {
    taken: Instant,
    forks: Option<Forks>,
    /// This process with all that it has reaped.
    own: Account,
    /// The host's shared memory: of every tmpfs, memfd, System V segment and shared anonymous mapping.
    shared: u64,
    /// Each tmpfs that programs can write, by a path in it, and the bytes it held.
    filesystems: Vec<(PathBuf, u64)>,
}

impl MeterBase {
    /// `writable`: the trees that programs may write.
    pub(crate) fn now(counters: &Counters, writable: &[PathBuf]) -> Self {
        let mut devices = HashSet::new();
        let mut new = |path: &&PathBuf| fs::metadata(path).is_ok_and(|about| devices.insert(about.dev()));
        let filesystems =
            writable.iter().filter(&mut new).filter_map(|path| Some((path.clone(), held_by_tmpfs(path)?)));
        Self {
            taken: Instant::now(),
            forks: Forks::now(counters),
            own: Account::of_reaped(counters),
            shared: host_shared(counters),
            filesystems: filesystems.collect(),
        }
    }

    /// True if it is so old that others have changed what it says of the host.
    pub(crate) fn is_stale(&self) -> bool {
        self.taken.elapsed() > Duration::from_secs(1)
    }
}

/// Resources that processes have used up, over all their life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Account {
    /// Clock ticks.
    cpu: u64,
    /// Times that a page was touched anew.
    faults: u64,
    /// Bytes caused to be sent to storage.
    stored: u64,
    /// Bytes written to anything.
    written: u64,
}

impl Account {
    /// Account of what this process has reaped. The kernel adds what those wrote to its own, which writes nothing.
    fn of_reaped(counters: &Counters) -> Self {
        let stat = said(counters.stat.as_ref()).and_then(|text| Stat::of(&text));
        let Some(stat) = stat else { return Self::default() };
        let (stored, written) = said(counters.io.as_ref()).map(|text| io_of(&text)).unwrap_or_default();
        Self { stored, written, ..stat.reaped() }
    }

    /// Most bytes that can have come to be in a tmpfs.
    fn touched(&self) -> u64 {
        self.written.saturating_add(self.faults.saturating_mul(PAGE))
    }

    fn each(self, other: Self, of: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            cpu: of(self.cpu, other.cpu),
            faults: of(self.faults, other.faults),
            stored: of(self.stored, other.stored),
            written: of(self.written, other.written),
        }
    }

    fn and(self, other: Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    fn since(self, base: Self) -> Self {
        self.each(base, u64::saturating_sub)
    }
}

/// One process: its number may be another's later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ProcessLife {
    pid: Pid,
    /// Clock ticks since the host was started.
    began: u64,
}

/// The account of one process.
#[derive(Debug, Clone, Copy, Default)]
struct AccountEntry {
    parent: Pid,
    /// With what it has reaped.
    all: Account,
    /// Account of what it has reaped. Of bytes the kernel does not tell that apart: here they are all of them.
    reaped: Account,
}

impl AccountEntry {
    /// A process with those that it has reaped (proc_pid_stat(5), proc_pid_io(5)), and whether that is all of it: what one
    /// has written that cannot be looked into is not told.
    fn of(procfs: &Procfs, pid: Pid) -> Option<(ProcessLife, Self, bool)> {
        let stat = Stat::of(&procfs.text(pid, "stat").ok()?)?;
        let io = procfs.text(pid, "io").ok();
        let (stored, written) = io.as_deref().map(io_of).unwrap_or_default();
        let io_of_it = Account { stored, written, ..Account::default() };
        let reaped = stat.reaped().and(io_of_it);
        let parent = Pid::try_from(stat.field(4)).unwrap_or(0);
        let life = ProcessLife { pid, began: stat.field(22) };
        Some((life, Self { parent, all: reaped.and(stat.own()), reaped }, io.is_some()))
    }

    /// Never less than it was.
    fn after(self, before: Option<&Self>) -> Self {
        let before = before.copied().unwrap_or_default();
        let (all, reaped) = (self.all.each(before.all, u64::max), self.reaped.each(before.reaped, u64::max));
        Self { all, reaped, ..self }
    }
}

/// The accounts of all processes that were there at one look, and what this one has reaped.
#[derive(Debug, Clone, Default)]
struct Accounts {
    own: Account,
    of: HashMap<ProcessLife, AccountEntry>,
}

impl Accounts {
    /// Account of what was used up since `before`, and whether the account of some process that has ended was not found
    /// with another.
    ///
    /// Who is reaped has its account added to that of its reaper, where it has been counted before. One that nobody waits for
    /// (SIGCHLD is ignored) takes its own with it. So what has ended is taken off what one that can have reaped it has gained
    /// *by reaping*: the nearest first of those above it, and this process last. Processor time and faults tell that it was
    /// reaped; what it has written is taken off only then.
    fn since(&self, before: &Self) -> (Account, bool) {
        // What each has gained by reaping, as far as nothing was taken off it.
        let mut gained: HashMap<Pid, Account> = HashMap::new();
        let mut spent = self.own.since(before.own);
        let mut own = spent;
        for (life, entry) in &self.of {
            let then = before.of.get(life).copied().unwrap_or_default();
            spent = spent.and(entry.all.since(then.all));
            gained.insert(life.pid, entry.reaped.since(then.reaped));
        }
        let above: HashMap<Pid, Pid> = before.of.iter().map(|(life, entry)| (life.pid, entry.parent)).collect();
        let mut ended: Vec<_> = before.of.iter().filter(|(life, _)| !self.of.contains_key(life)).collect();
        // Who stands lower first: those above it may have got more than its own.
        let chain =
            |pid: Pid| std::iter::successors(Some(pid), |pid| above.get(pid).copied()).skip(1).take(above.len());
        ended.sort_by_cached_key(|(life, _)| std::cmp::Reverse(chain(life.pid).count()));
        let mut lost = false;
        for (life, entry) in ended {
            let mut due = entry.all;
            let mut taken = Vec::new();
            for pid in chain(life.pid).map(Some).chain([None]) {
                let Some(from) = pid.map_or(Some(&mut own), |pid| gained.get_mut(&pid)) else { continue };
                let part = due.each(*from, u64::min);
                (*from, due) = (from.since(part), due.since(part));
                taken.push((pid, part));
            }
            let was_reaped = due.cpu == 0 && due.faults == 0;
            for (pid, part) in taken {
                if was_reaped {
                    spent = spent.since(part);
                } else if let Some(from) = pid.map_or(Some(&mut own), |pid| gained.get_mut(&pid)) {
                    *from = from.and(part);
                }
            }
            lost |= !was_reaped;
        }
        (spent, lost)
    }
}

/// `/proc/PID/stat` after the name.
struct Stat(Vec<u64>);

impl Stat {
    fn of(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        Some(Self(rest.split_ascii_whitespace().map(|field| field.parse().unwrap_or(0)).collect()))
    }

    /// Account of the process itself.
    fn own(&self) -> Account {
        let (cpu, faults) = (self.field(14) + self.field(15), self.field(10) + self.field(12));
        Account { cpu, faults, ..Account::default() }
    }

    /// Account of those that it has reaped.
    fn reaped(&self) -> Account {
        let (cpu, faults) = (self.field(16) + self.field(17), self.field(11) + self.field(13));
        Account { cpu, faults, ..Account::default() }
    }

    /// Numbered as in proc_pid_stat(5), from 3.
    fn field(&self, number: usize) -> u64 {
        self.0.get(number - 3).copied().unwrap_or(0)
    }
}

/// Bytes to storage, and bytes written to anything, by `/proc/PID/io`.
fn io_of(text: &str) -> (u64, u64) {
    let number = |key| number_after(text, key).unwrap_or(0);
    // Not less what was taken back: truncating another's unwritten file would make room for as much (proc_pid_io(5)).
    (number("write_bytes: "), number("wchar: "))
}

/// The number behind a key at the start of a line.
fn number_after(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

/// Bytes after a key in files that count in kB.
fn kib_after(text: &str, key: &str) -> u64 {
    number_after(text, key).unwrap_or(0) * 1024
}

/// Counts of processes and threads that the kernel keeps anyway (proc_loadavg(5)).
#[derive(Debug, Clone, Copy)]
struct Forks {
    /// The last number given to one of this PID namespace.
    newest: u64,
    /// How many there are on this host.
    alive: u64,
}

impl Forks {
    fn now(counters: &Counters) -> Option<Self> {
        let text = said(counters.loadavg.as_ref())?;
        let mut fields = text.split_ascii_whitespace().skip(3);
        let alive = fields.next()?.split_once('/')?.1.parse().ok()?;
        Some(Self { newest: fields.next()?.parse().ok()?, alive })
    }
}

fn host_shared(counters: &Counters) -> u64 {
    said(counters.meminfo.as_ref()).map_or(0, |text| kib_after(&text, "Shmem:"))
}

/// `None` for another kind of file system.
fn held_by_tmpfs(path: &Path) -> Option<u64> {
    let about = rustix::fs::statfs(path).ok()?;
    let is_tmpfs = u64::try_from(about.f_type).is_ok_and(|kind| kind == TMPFS_MAGIC);
    let block = u64::try_from(about.f_bsize).ok()?;
    is_tmpfs.then(|| about.f_blocks.saturating_sub(about.f_bfree).saturating_mul(block))
}

/// Memory of a process (proc_pid_status(5)), bytes.
#[derive(Debug, Default)]
struct Memory {
    /// Its own: anonymous, swapped, huge pages, page tables.
    own: u64,
    /// Shared memory that it has mapped and touched.
    mapped: u64,
    /// Most mappings that it can have: each is a page at least.
    mappings: u64,
}

/// One process of the family.
struct FamilyMember {
    pid: Pid,
    parent: Pid,
    /// Whom to ask for its memory and descriptors: a thread that lives.
    thread: Pid,
    memory: Memory,
}

impl FamilyMember {
    fn of(procfs: &Procfs, pid: Pid, threads: u64) -> io::Result<Self> {
        let (thread, status) = living_thread(procfs, pid, threads)?;
        let kib = |key| kib_after(&status, key);
        let own = kib("RssAnon:") + kib("VmSwap:") + kib("HugetlbPages:") + kib("VmPTE:");
        let memory = Memory { own, mapped: kib("RssShmem:"), mappings: kib("VmSize:") / PAGE };
        let parent = number_after(&status, "PPid:").and_then(|pid| Pid::try_from(pid).ok()).unwrap_or(0);
        Ok(Self { pid, parent, thread, memory })
    }
}

/// A thread of a process that has its memory still, and what it says of it. The first has lost it when it ends before the
/// others (pthread_exit(3) in main): it is a zombie then, and the process is not.
fn living_thread(procfs: &Procfs, pid: Pid, threads: u64) -> io::Result<(Pid, String)> {
    let status = procfs.text(pid, "status")?;
    if threads < 2 || has_memory(&status) {
        return Ok((pid, status));
    }
    let mut others = procfs.threads(pid).filter_map(|thread| Some((thread, procfs.text(thread, "status").ok()?)));
    Ok(others.find(|(_, status)| has_memory(status)).unwrap_or((pid, status)))
}

fn has_memory(status: &str) -> bool {
    number_after(status, "VmRSS:").is_some()
}

/// Result of a walk through the family.
#[derive(Default)]
struct FamilyWalk {
    members: Vec<FamilyMember>,
    tasks: u64,
    accounts: Accounts,
    /// Account of all of them so far.
    account: Account,
    /// A process is there and cannot be looked into: it runs a program that its user may not read.
    hidden: bool,
}

impl FamilyWalk {
    /// Bytes that the kernel keeps for each mapping of each member, by how many stand above it: parents come first.
    fn each_mapping(&self) -> impl Iterator<Item = u64> {
        let mut depths: HashMap<Pid, u64> = HashMap::new();
        self.members.iter().map(move |member| {
            let depth = depths.get(&member.parent).map_or(0, |above| above + 1);
            depths.insert(member.pid, depth);
            MAPPING + LINK * depth
        })
    }
}

/// Meters one program.
pub(crate) struct Meter<'a> {
    bounds: &'a Bounds,
    counters: &'a Counters,
    base: &'a MeterBase,
    /// A cgroup holds memory and processes.
    grouped: bool,
    /// When to look again.
    next: Instant,
    /// When to look at more than the number of forks.
    walk: Instant,
    forks: Option<Forks>,
    scope: Option<SignalsStayBelow>,
    tasks: u64,
    /// Accounts of the last look.
    accounts: Accounts,
    /// By all of them.
    spent: Account,
    used: Used,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(
        bounds: &'a Bounds,
        (counters, base): (&'a Counters, &'a MeterBase),
        scope: Option<SignalsStayBelow>,
        grouped: bool,
    ) -> Self {
        let next = Instant::now() + TICK;
        let (forks, used) = (base.forks, Used::default());
        let accounts = Accounts { own: base.own, of: HashMap::new() };
        let spent = Account::default();
        Self { bounds, counters, base, grouped, next, walk: next, forks, scope, tasks: 1, accounts, spent, used }
    }

    /// How long until there is something to do.
    pub(crate) fn pause(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// The most that was seen.
    pub(crate) fn used(&self) -> Used {
        self.used
    }

    /// Looks, if it is time to, and hardly longer than until `deadline`; says which limit was passed.
    pub(crate) fn look(&mut self, deadline: Option<Instant>) -> Option<LimitHit> {
        let began = Instant::now();
        if began < self.next {
            return None;
        }
        self.next = began + TICK;
        // Before the walk: who is forked meanwhile is counted twice, not missed.
        let forks = Forks::now(self.counters);
        let due = began >= self.walk;
        if !self.grouped && self.could_be_too_many(forks) {
            let tasks = self.count(forks);
            self.forks = forks;
            if let Some(hit) = self.counted(tasks) {
                return Some(hit);
            }
        }
        if !due {
            return None;
        }
        let family = self.survey();
        self.forks = forks;
        let until = began + PATIENCE;
        let hit = self.judge(&family, deadline.map_or(until, |deadline| deadline.min(until)));
        let took = began.elapsed();
        self.walk = Instant::now() + self.rest().max((took * SHARE).min(LONGEST));
        hit
    }

    /// True if there can be more than the limit: every process and thread that was made since the last count may be one
    /// of ours, and may be there still. The numbers begin anew at some point; then nothing is known.
    fn could_be_too_many(&self, forks: Option<Forks>) -> bool {
        match (forks, self.forks) {
            (Some(now), Some(then)) if now.newest >= then.newest => {
                self.tasks + (now.newest - then.newest) > self.bounds.processes
            }
            _ => true,
        }
    }

    /// Counts processes and threads. If the host has so many more of them that ours must be suspected, they are stopped for
    /// as long as that takes: each one of a bomb gets as much of the processor as we do, and makes others meanwhile.
    fn count(&self, forks: Option<Forks>) -> u64 {
        let suspected = match (forks, self.forks) {
            (Some(now), Some(then)) => self.tasks + now.alive.saturating_sub(then.alive) > self.bounds.processes,
            _ => true,
        };
        let signal = |signal| {
            let sent = self.scope.map(|scope| family::signal_all_at_once(scope, signal));
            // Refused, they are counted while they run.
            sent.is_some_and(|sent| sent.unwrap_or(false))
        };
        let stopped = suspected && signal(libc::SIGSTOP);
        let tasks = count(&self.counters.procfs, self.bounds.processes);
        // Who is too many stays as it is until it is killed.
        if stopped && tasks <= self.bounds.processes {
            signal(libc::SIGCONT);
        }
        tasks
    }

    fn counted(&mut self, tasks: u64) -> Option<LimitHit> {
        self.tasks = tasks;
        self.used.processes = self.used.processes.max(tasks);
        let hit = !self.grouped && tasks > self.bounds.processes;
        hit.then_some(LimitHit { limit: LimitName::Processes, used: tasks })
    }

    /// Until the nearest limit could be met.
    fn rest(&self) -> Duration {
        let bytes = self.bounds.memory.saturating_sub(self.used.memory);
        let stored = self.bounds.disk.saturating_sub(self.used.disk.unwrap_or(0));
        Duration::from_secs(1).mul_f64(bytes.min(stored) as f64 / FASTEST as f64).clamp(TICK, REST)
    }

    /// Everything of every process.
    fn survey(&mut self) -> FamilyWalk {
        let mut family = self.walk();
        let (mut spent, lost) = family.accounts.since(&self.accounts);
        // Or reaped after its parent was looked at: then it is with the parent by now. Once: a bomb makes each walk longer.
        if lost {
            family = self.walk();
            (spent, _) = family.accounts.since(&self.accounts);
        }
        self.spent = self.spent.and(spent);
        self.accounts = std::mem::take(&mut family.accounts);
        family.account = self.spent;
        family
    }

    fn walk(&self) -> FamilyWalk {
        let mut family = FamilyWalk::default();
        let procfs = &self.counters.procfs;
        each_descendant(procfs, |pid, threads| {
            match (FamilyMember::of(procfs, pid, threads), AccountEntry::of(procfs, pid)) {
                (Ok(member), entry) => {
                    family.tasks += threads;
                    family.members.push(member);
                    if let Some((life, entry, _)) = entry {
                        family.accounts.of.insert(life, entry.after(self.accounts.of.get(&life)));
                    }
                    let is_all = entry.is_some_and(|(.., is_all)| is_all);
                    family.hidden |= !is_all && is_alive(procfs, pid);
                }
                // Gone since it was listed, or out of sight: under hidepid nothing is told of who cannot be looked into.
                (Err(_), _) => {
                    let hidden = is_alive(procfs, pid);
                    family.tasks += u64::from(hidden);
                    family.hidden |= hidden;
                }
            }
            true
        });
        // One whose parent ended meanwhile was not come across. It would be taken for new by the next look, and count again.
        for (life, before) in &self.accounts.of {
            if family.accounts.of.contains_key(life) {
                continue;
            }
            if let Some((found, entry, _)) = AccountEntry::of(procfs, life.pid)
                && found == *life
            {
                family.accounts.of.insert(found, entry.after(Some(before)));
            }
        }
        family.accounts.own = Account::of_reaped(self.counters);
        family
    }

    fn judge(&mut self, family: &FamilyWalk, until: Instant) -> Option<LimitHit> {
        if let Some(hit) = self.counted(family.tasks) {
            return Some(hit);
        }
        let cpu_ms = family.account.cpu.saturating_mul(1000 / USER_HZ);
        self.used.cpu_ms = self.used.cpu_ms.max(cpu_ms);
        let bound_ms = u64::try_from(self.bounds.cpu.as_millis()).unwrap_or(u64::MAX);
        if cpu_ms > bound_ms {
            return Some(LimitHit { limit: LimitName::Cpu, used: cpu_ms });
        }
        let disk = self.stored(family);
        self.used.disk = self.used.disk.max(Some(disk));
        if disk > self.bounds.disk {
            return Some(LimitHit { limit: LimitName::Disk, used: disk });
        }
        if self.grouped {
            return None;
        }
        let (mut memory, mut sure) = self.memory(family, until);
        for _ in 0..LOOKS {
            if sure || memory <= self.bounds.memory {
                break;
            }
            let (again, is_sure) = self.memory(&self.walk(), until);
            (memory, sure) = (memory.min(again), is_sure);
        }
        self.used.memory = self.used.memory.max(memory);
        (memory > self.bounds.memory).then_some(LimitHit { limit: LimitName::Memory, used: memory })
    }

    /// Bytes written to storage, and what has come to be in a tmpfs. That is nobody's writing (proc_pid_io(5) does not count
    /// it), so it is what every tmpfs in reach has grown by, as far as this call can have caused it.
    fn stored(&self, family: &FamilyWalk) -> u64 {
        let growth = |(path, before): &(PathBuf, u64)| held_by_tmpfs(path).map(|now| now.saturating_sub(*before));
        let grown: u64 = self.base.filesystems.iter().filter_map(growth).sum();
        let caused = if family.hidden { u64::MAX } else { family.account.touched() };
        family.account.stored.saturating_add(grown.min(caused))
    }

    /// Memory of all of them. What is never too small comes first and is quick; only if that is too much, what is right,
    /// as far as there is time for it. And whether that is sure: of a process that has ended meanwhile only what is never too
    /// small is known; and one that is about to end has given up its memory, and looks as if it could not be looked into.
    fn memory(&self, family: &FamilyWalk, until: Instant) -> (u64, bool) {
        let own: u64 = family.members.iter().map(|member| member.memory.own).sum();
        let mapped: u64 = family.members.iter().map(|member| member.memory.mapped).sum();
        let grown = host_shared(self.counters).saturating_sub(self.base.shared);
        let quick = own.saturating_add(mapped).saturating_add(grown);
        if quick.saturating_add(self.mappings_at_most(family)) <= self.bounds.memory {
            return (quick, true);
        }
        let mappings = self.mappings(family);
        if quick.saturating_add(mappings) <= self.bounds.memory {
            return (quick.saturating_add(mappings), true);
        }
        let procfs = &self.counters.procfs;
        let (mut hidden, mut sure) = (family.hidden, true);
        let (mut own, mut mapped, mut unmapped) = (0, 0, 0);
        let mut seen = HashSet::new();
        let parents: HashMap<Pid, Pid> = family.members.iter().map(|member| (member.pid, member.thread)).collect();
        for FamilyMember { pid, parent, thread, memory } in &family.members {
            // After the parent was asked: what is one memory now was that then, or was empty.
            let is_counted = parents.get(parent).is_some_and(|parent| process::share_memory(*parent, *thread));
            let in_time = Instant::now() < until;
            let text = if in_time && !is_counted { procfs.text(*thread, "smaps_rollup").ok() } else { None };
            match text {
                _ if is_counted => {}
                Some(text) => {
                    let kib = |key| kib_after(&text, key);
                    let huge = kib("Private_Hugetlb:") + kib("Shared_Hugetlb:");
                    own += kib("Pss_Anon:") + kib("SwapPss:") + huge + page_tables(procfs, *thread);
                    mapped += kib("Pss_Shmem:");
                }
                None => {
                    own += memory.own;
                    mapped += memory.mapped;
                    let alive = is_alive(procfs, *pid);
                    sure &= alive;
                    hidden |= memory.own > 0 && alive;
                }
            }
            unmapped += held_by_descriptors(procfs, *thread, &mut seen, &mut hidden, until);
        }
        hidden = hidden
            || family.members.iter().any(|member| {
                Instant::now() >= until
                    || maps_what_may_be_hidden(procfs, member.thread, &seen)
                    || procfs.threads(member.pid).any(|thread| is_in_what_may_hold(procfs, thread))
            });
        // What is both mapped and held by a descriptor was counted twice, unless the host's count says that it is there.
        let shared = (mapped + unmapped).min(grown.max(mapped).max(unmapped));
        let suspected = if hidden { shared.max(grown) } else { shared };
        (own.saturating_add(mappings).saturating_add(suspected), sure && suspected == shared)
    }

    /// Most bytes that the kernel can keep for the mappings of all of them.
    fn mappings_at_most(&self, family: &FamilyWalk) -> u64 {
        let each = |(member, each): (&FamilyMember, u64)| {
            member.memory.mappings.min(self.counters.mappings).saturating_mul(each)
        };
        family.members.iter().zip(family.each_mapping()).map(each).fold(0, u64::saturating_add)
    }

    /// Bytes that it keeps, counted until that alone is too much. So the work is bounded, as is the time: a list of
    /// 60,000 mappings takes 40 ms.
    fn mappings(&self, family: &FamilyWalk) -> u64 {
        let mut sum = 0_u64;
        for (member, each) in family.members.iter().zip(family.each_mapping()) {
            let room = self.bounds.memory.saturating_sub(sum) / each;
            let counted = count_mappings(&self.counters.procfs, member.thread, room);
            let at_most = || if is_alive(&self.counters.procfs, member.pid) { member.memory.mappings } else { 0 };
            let count = counted.unwrap_or_else(|_untold| at_most().min(self.counters.mappings));
            sum = sum.saturating_add(count.saturating_mul(each));
            if sum > self.bounds.memory {
                break;
            }
        }
        sum
    }
}

/// The mappings of a process, counted until there are more than `most`.
fn count_mappings(procfs: &Procfs, pid: Pid, most: u64) -> io::Result<u64> {
    let mut maps = File::open(procfs.path(pid, "maps"))?;
    let (mut count, mut part) = (0, vec![0; 64 * 1024]);
    while count <= most {
        let read = maps.read(&mut part)?;
        if read == 0 {
            break;
        }
        count += part[..read].iter().filter(|byte| **byte == b'\n').count() as u64;
    }
    Ok(count)
}

fn page_tables(procfs: &Procfs, pid: Pid) -> u64 {
    procfs.text(pid, "status").map_or(0, |text| kib_after(&text, "VmPTE:"))
}

/// Bytes in memfds that a process holds open, mapped or not, each counted once. A descriptor on its way through a socket
/// belongs to no process (unix(7)): `hidden` says that there is one, or that there was no time to look.
fn held_by_descriptors(procfs: &Procfs, pid: Pid, seen: &mut HashSet<u64>, hidden: &mut bool, until: Instant) -> u64 {
    let Ok(entries) = fs::read_dir(procfs.path(pid, "fd")) else { return 0 };
    let mut held = 0;
    for path in entries.flatten().map(|entry| entry.path()) {
        if Instant::now() >= until {
            *hidden = true;
            break;
        }
        // No more than its name of a file elsewhere: that may be on a host that does not answer.
        let Ok(target) = fs::read_link(&path) else { continue };
        let target = target.as_os_str().as_encoded_bytes();
        if target.starts_with(b"socket:") {
            let number = path.file_name().unwrap_or_default().to_string_lossy();
            let info = procfs.text(pid, &format!("fdinfo/{number}")).unwrap_or_default();
            *hidden |= number_after(&info, "scm_fds:").is_some_and(|count| count > 0);
        } else if target.starts_with(b"/memfd:")
            && let Ok(about) = fs::metadata(&path)
            && about.nlink() == 0
            && seen.insert(about.ino())
        {
            held += about.blocks() * 512;
        }
    }
    held
}

/// True if a process maps shared memory of which pages may be that are in nobody's count, because nobody maps and has
/// touched them any more: a memfd that no descriptor holds, a System V segment, an anonymous mapping that is shared.
fn maps_what_may_be_hidden(procfs: &Procfs, pid: Pid, seen: &HashSet<u64>) -> bool {
    let Ok(maps) = fs::read(procfs.path(pid, "maps")) else { return false };
    // address, permissions, offset, device, inode, name (proc_pid_maps(5)).
    maps.split(|byte| *byte == b'\n').any(|line| {
        let line = String::from_utf8_lossy(line);
        let inode = line.split_ascii_whitespace().nth(4).and_then(|inode| inode.parse::<u64>().ok());
        let is_held = inode.is_none_or(|inode| seen.contains(&inode));
        line.contains(" /SYSV") || line.contains(" /dev/zero (deleted)") || (line.contains(" /memfd:") && !is_held)
    })
}

/// Calls that wait, and hold what a descriptor stood for meanwhile, though another thread has closed it: a memfd, or a message that
/// a memfd is in.
const HOLDING: &[libc::c_long] = &[
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_copy_file_range,
    libc::SYS_flock,
    libc::SYS_fcntl,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
];

/// True if a thread is in such a call (`/proc/PID/syscall`), or does not tell.
fn is_in_what_may_hold(procfs: &Procfs, thread: Pid) -> bool {
    match procfs.text(thread, "syscall") {
        Ok(text) => {
            text.split_ascii_whitespace().next().and_then(|nr| nr.parse().ok()).is_some_and(|nr| HOLDING.contains(&nr))
        }
        Err(_untold) => is_alive(procfs, thread),
    }
}

/// How many processes and threads there are, counted until there are more than `limit`.
fn count(procfs: &Procfs, limit: u64) -> u64 {
    let mut tasks = 0;
    each_descendant(procfs, |_, threads| {
        tasks += threads;
        tasks <= limit
    });
    tasks
}

/// True if there is such a process, and it has memory still: it is ending from when it gives that back.
fn is_alive(procfs: &Procfs, pid: Pid) -> bool {
    let ends = || living_thread(procfs, pid, u64::MAX).is_ok_and(|(_, status)| !has_memory(&status));
    process::kill(pid, 0).is_ok() && !ends()
}

/// Visits every descendant of this process with the number of its threads, parents first, until told to stop.
fn each_descendant(procfs: &Procfs, mut visit: impl FnMut(Pid, u64) -> bool) {
    let mut all = procfs.children(process::id());
    let mut next = 0;
    while let Some(pid) = all.get(next).copied() {
        next += 1;
        // A link for each thread, and two more. One that is gone or out of sight has none.
        let links = fs::metadata(procfs.path(pid, "task")).map_or(2, |about| about.nlink());
        if !visit(pid, links.saturating_sub(2)) {
            return;
        }
        match links {
            ..=2 => {}
            3 => all.extend(procfs.children_of_one_thread(pid)),
            _ => all.extend(procfs.children(pid)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(cpu: u64) -> Account {
        Account { cpu, stored: cpu, ..Account::default() }
    }

    /// Accounts from each process: its number, its parent's, and what it has used and reaped.
    fn accounts(own: u64, of: &[(Pid, Pid, u64, u64)]) -> Accounts {
        let entry = |parent, own, reaped| {
            let all = account(own + reaped);
            AccountEntry { parent, all, reaped: Account { stored: all.stored, ..account(reaped) } }
        };
        let of =
            of.iter().map(|&(pid, parent, own, reaped)| (ProcessLife { pid, began: 0 }, entry(parent, own, reaped)));
        Accounts { own: account(own), of: of.collect() }
    }

    fn since(own: u64, of: &[(Pid, Pid, u64, u64)]) -> (u64, u64, bool) {
        let before = accounts(3, &[(10, 1, 5, 0), (11, 10, 7, 0)]);
        let (spent, lost) = accounts(own, of).since(&before);
        (spent.cpu, spent.stored, lost)
    }

    #[test]
    fn d11_what_is_reaped_counts_once_and_what_is_lost_counts() {
        assert_eq!(since(3, &[(10, 1, 6, 0), (11, 10, 9, 0), (12, 10, 4, 0)]), (7, 7, false), "growth, and one more");
        assert_eq!(since(3, &[(10, 1, 5 + 2, 7)]), (2, 2, false), "reaped by its parent");
        assert_eq!(since(3 + 7 + 1, &[(10, 1, 5, 0)]), (1, 1, false), "reaped here");
        assert_eq!(since(3 + 5 + 7, &[]), (0, 0, false), "reaped by its parent, which was reaped here");
        assert_eq!(since(3, &[(10, 1, 5, 0)]), (0, 0, true), "waited for by nobody");
        assert_eq!(since(3, &[(10, 1, 5, 0), (12, 10, 7, 0)]), (7, 7, true), "and another in its place");
        assert_eq!(since(3, &[(10, 1, 5 + 7, 0)]), (7, 7, true), "and its parent does as much itself");
        assert_eq!(since(3, &[(11, 1, 7 + 5, 0)]), (5, 5, true), "and its child does");
        assert_eq!(since(3, &[(10, 1, 5, 0), (12, 10, 1, 7)]), (8, 8, true), "and another reaps as much");
    }
}
