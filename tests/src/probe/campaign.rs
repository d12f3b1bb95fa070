//! Random acts of processes that live side by side in a few directories: files, links, modes, sockets, and how they end (A3, A6,
//! A8, A12, A21, B5, B7). `tests/suite/campaign.rs` has the stranger outside and says what none of this may change.
//!
//! Where `chaos` calls the kernel at random, these acts make sense: each does what some program does, and it is their order
//! that nobody thought of. They meet because there are few names, ports and descriptors.

use std::ffi::CString;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use callgate_tests::Dice;
use callgate_worker::probe::act::{ProbeAct, act};
use callgate_worker::probe::outcome::{ActArgs, ActFailure, ActOutcome, number};
use callgate_worker::probe::{errno, network, unix};
use callgate_worker::sys::probe::{
    self as sys, Arg, ForkSide, bits, call, call_fd, fd, from, int, into, len, null, text,
};
use serde_json::json;

pub(crate) const ACTS: &[ProbeAct] = &[act(
    "campaign",
    "A21",
    "SEED MILLISECONDS PORT,… ABSTRACT PLACE:NAME,……",
    "two processes and their children do random things to these names for so long at most; each act is a line on stderr",
    campaign,
)];

/// A kind of act, and how often it is chosen.
struct CampaignStep {
    name: &'static str,
    weight: usize,
    take: fn(&mut Actor) -> Result<(), ActFailure>,
}

const fn step(name: &'static str, weight: usize, take: fn(&mut Actor) -> Result<(), ActFailure>) -> CampaignStep {
    CampaignStep { name, weight, take }
}

const STEPS: &[CampaignStep] = &[
    // Files.
    step("make", 6, make),
    step("overwrite", 5, overwrite),
    step("truncate", 2, truncate),
    step("hold", 6, hold),
    step("reopen", 6, reopen),
    step("mkdir", 6, mkdir),
    step("fifo", 1, fifo),
    step("remove", 6, remove),
    step("rename", 5, rename),
    // Links.
    step("symlink", 8, symlink),
    step("link", 3, link),
    step("link-held", 1, link_held),
    step("push-link", 2, push_link),
    // Modes, owners, times.
    step("chmod", 7, chmod),
    step("chmod-held", 2, chmod_held),
    step("chown", 1, chown),
    step("touch", 2, touch),
    step("attribute", 1, attribute),
    step("umask", 1, umask),
    // Sockets.
    step("serve-tcp", 4, serve_tcp),
    step("serve-unix", 5, serve_unix),
    step("serve-abstract", 2, serve_abstract),
    step("rebind", 2, rebind),
    step("visit-tcp", 6, visit_tcp),
    step("visit-unix", 6, visit_unix),
    step("visit-abstract", 2, visit_abstract),
    step("listen-again", 1, listen_again),
    step("accept", 3, accept),
    step("shutdown", 4, shut_down),
    step("hang-up", 4, hang_up),
    step("device", 1, device),
    // Processes. How each ends is in `Actor::leave`.
    step("spawn", 1, spawn),
];

/// The last act of some: what they leave is hard to remove.
const CLOSE: CampaignStep = step("close", 0, close);

/// A directory and the names that are used in it.
#[derive(Clone)]
struct CampaignDirectory {
    directory: String,
    names: Vec<String>,
}

impl CampaignDirectory {
    /// `DIR:NAME,…`, where DIR may begin with a variable: `$TMPDIR/..`.
    fn parse(word: &str) -> Result<Self, ActFailure> {
        let (directory, names) =
            word.split_once(':').ok_or_else(|| ActFailure::unready(format!("{word} has no names")))?;
        let directory = match directory.strip_prefix('$') {
            Some(rest) => {
                let (variable, rest) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                let value = std::env::var(variable).map_err(|_unset| ActFailure::unready(format!("no ${variable}")))?;
                format!("{value}{rest}")
            }
            None => directory.to_owned(),
        };
        Ok(Self { directory, names: names.split(',').map(str::to_owned).collect() })
    }

    fn path(&self, name: &str) -> CString {
        sys::c(&format!("{}/{name}", self.directory))
    }
}

/// Descriptors of one kind that an actor holds at most; then a new one takes the place of an old one.
const HELD: usize = 8;
/// Children of one actor at most.
const CHILDREN: usize = 2;
/// Text that an actor writes and says.
const SECRET: &[u8] = b"said inside\n";

struct Actor {
    name: String,
    dice: Dice,
    places: Vec<CampaignDirectory>,
    ports: Vec<u16>,
    hidden: String,
    files: Vec<OwnedFd>,
    sockets: Vec<OwnedFd>,
    children: usize,
    most: u64,
    /// The arguments of the act that is being taken.
    said: String,
}

fn campaign(args: &ActArgs<'_>) -> ActOutcome {
    let (seed, most) = (args.number(0)?.cast_unsigned(), args.number(1)?.cast_unsigned());
    let port = |word: &str| number(word).and_then(|port| u16::try_from(port).ok());
    let ports: Option<Vec<u16>> = args.word(2)?.split(',').map(port).collect();
    let mut actor = Actor {
        name: "a".to_owned(),
        dice: scattered(seed),
        places: args.rest(4).iter().map(|word| CampaignDirectory::parse(word)).collect::<Result<_, _>>()?,
        ports: ports.ok_or_else(|| ActFailure::unready("not ports"))?,
        hidden: args.word(3)?.to_owned(),
        files: Vec::new(),
        sockets: Vec::new(),
        children: 0,
        most,
        said: String::new(),
    };
    actor.fork("b")?;
    actor.live();
    Ok(json!({}))
}

/// Neighbouring seeds have little in common after this.
fn scattered(seed: u64) -> Dice {
    Dice::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

impl Actor {
    /// Acts until its time is over.
    fn live(&mut self) {
        let all: usize = STEPS.iter().map(|step| step.weight).sum();
        let span = 1 + self.dice.roll() % self.most.max(1);
        let end = Instant::now() + Duration::from_millis(span);
        while Instant::now() < end {
            let mut at = self.dice.below(all);
            let mut steps = STEPS.iter();
            let chosen = steps.find(|step| {
                let found = at < step.weight;
                at = at.saturating_sub(step.weight);
                found
            });
            if let Some(step) = chosen {
                self.take(step);
            }
        }
        if self.dice.below(2) == 0 {
            self.take(&CLOSE);
        }
        self.leave();
    }

    /// Takes a step, and says so: one write, so that lines of several processes do not mix.
    fn take(&mut self, step: &CampaignStep) {
        self.said.clear();
        let came = match (step.take)(self) {
            Ok(()) => "ok".to_owned(),
            Err(ActFailure::Errno { number, .. }) => errno::name(number).to_owned(),
            Err(ActFailure::Signal { .. } | ActFailure::Unready(_)) => "-".to_owned(),
        };
        let line = format!("campaign: {} {}{} {came}\n", self.name, step.name, self.said);
        let written = call("write", libc::SYS_write, &[int(2), from(line.as_bytes()), len(line.as_bytes())]);
        if written.is_err() {
            sys::exit(1);
        }
    }

    /// Ends: by itself, by a signal, or after the others.
    fn leave(&mut self) {
        match self.dice.below(4) {
            0 => sys::exit(0),
            1 => drop(call("kill", libc::SYS_kill, &[bits(u64::from(std::process::id())), int(libc::SIGKILL)])),
            2 => {}
            _ => while call("wait4", libc::SYS_wait4, &[int(-1), null(), int(0), null()]).is_ok() {},
        }
    }

    /// Another actor, with copies of all descriptors, that goes its own way.
    fn fork(&mut self, name: &str) -> Result<(), ActFailure> {
        let seed = self.dice.roll();
        self.children += 1;
        if let ForkSide::Child = sys::fork_with("fork", 0)? {
            self.name.push_str(name);
            self.dice = scattered(seed);
            self.live();
            sys::exit(0);
        }
        Ok(())
    }

    fn say(&mut self, word: impl std::fmt::Display) {
        // Writing to a string does not fail.
        let _infallible = write!(self.said, " {word}");
    }

    fn one<T: Copy + std::fmt::Debug>(&mut self, of: &[T]) -> T {
        let chosen = self.dice.one(of);
        self.say(format_args!("{chosen:?}"));
        chosen
    }

    fn place(&mut self) -> Result<CampaignDirectory, ActFailure> {
        let place = self.places.get(self.dice.below(self.places.len()));
        place.cloned().ok_or_else(|| ActFailure::unready("no places"))
    }

    /// A name in this place, or now and then one below it.
    fn path_in(&mut self, place: &CampaignDirectory) -> CString {
        let mut name = self.name_of(place);
        if self.dice.below(3) == 0 {
            name = format!("{name}/{}", self.name_of(place));
        }
        let path = place.path(&name);
        self.say(path.to_string_lossy());
        path
    }

    fn name_of(&mut self, place: &CampaignDirectory) -> String {
        place.names.get(self.dice.below(place.names.len())).cloned().unwrap_or_default()
    }

    fn path(&mut self) -> Result<CString, ActFailure> {
        let place = self.place()?;
        Ok(self.path_in(&place))
    }

    /// One of the few names that are sockets' by turns, where there are such, and another beside it.
    fn socket_path(&mut self) -> Result<(CString, CString), ActFailure> {
        let places: Vec<&CampaignDirectory> =
            self.places.iter().filter(|place| place.names.iter().any(|name| name == "s0")).collect();
        let place =
            places.get(self.dice.below(places.len())).ok_or_else(|| ActFailure::unready("no places for sockets"))?;
        let place = CampaignDirectory::clone(place);
        let path = place.path(self.dice.one(&["s0", "s1"]));
        self.say(path.to_string_lossy());
        Ok((path, place.path(&format!("aside-{}", self.name))))
    }

    fn hold_file(&mut self, file: OwnedFd) {
        put(&mut self.files, file, &mut self.dice);
    }

    fn hold_socket(&mut self, socket: OwnedFd) {
        put(&mut self.sockets, socket, &mut self.dice);
    }

    /// A held file as the path that leads to it.
    fn held_file(&mut self) -> Result<CString, ActFailure> {
        let at = self.dice.below(self.files.len());
        let file = self.files.get(at).ok_or_else(|| ActFailure::unready("none held"))?;
        let path = sys::c(&format!("/proc/self/fd/{}", file.as_raw_fd()));
        self.say(std::fs::read_link(&*path.to_string_lossy()).unwrap_or_default().display());
        Ok(path)
    }

    fn held_socket(&mut self) -> Result<&OwnedFd, ActFailure> {
        let at = self.dice.below(self.sockets.len());
        self.say(at);
        self.sockets.get(at).ok_or_else(|| ActFailure::unready("none held"))
    }
}

fn put(held: &mut Vec<OwnedFd>, one: OwnedFd, dice: &mut Dice) {
    if held.len() < HELD {
        held.push(one);
    } else if let Some(old) = held.get_mut(dice.below(HELD)) {
        *old = one;
    }
}

fn cwd<'a>() -> Arg<'a> {
    int(libc::AT_FDCWD)
}

fn open(path: &CString, flags: i32) -> Result<OwnedFd, ActFailure> {
    sys::open("open", path, flags | libc::O_NONBLOCK)
}

fn write_secret(file: &OwnedFd) -> Result<(), ActFailure> {
    call("write", libc::SYS_write, &[fd(file), from(SECRET), len(SECRET)]).map(drop)
}

// ---- files ----

fn make(actor: &mut Actor) -> Result<(), ActFailure> {
    let path = actor.path()?;
    let flags = actor.dice.one(&[0, libc::O_EXCL, libc::O_TRUNC, libc::O_APPEND]);
    let file = open(&path, libc::O_WRONLY | libc::O_CREAT | flags)?;
    write_secret(&file)?;
    actor.hold_file(file);
    Ok(())
}

fn overwrite(actor: &mut Actor) -> Result<(), ActFailure> {
    let path = actor.path()?;
    let flags = actor.dice.one(&[0, libc::O_TRUNC, libc::O_NOFOLLOW]);
    write_secret(&open(&path, libc::O_WRONLY | flags)?)
}

fn truncate(actor: &mut Actor) -> Result<(), ActFailure> {
    call("truncate", libc::SYS_truncate, &[text(&actor.path()?), int(0)]).map(drop)
}

/// Holds a file by a descriptor that only reads, or does nothing.
fn hold(actor: &mut Actor) -> Result<(), ActFailure> {
    let path = actor.path()?;
    let flags = actor.dice.one(&[libc::O_RDONLY, libc::O_RDONLY, libc::O_PATH, libc::O_PATH | libc::O_NOFOLLOW]);
    let file = open(&path, flags)?;
    actor.hold_file(file);
    Ok(())
}

/// Opens a held file anew, for writing, whatever has become of its names.
fn reopen(actor: &mut Actor) -> Result<(), ActFailure> {
    let path = actor.held_file()?;
    write_secret(&open(&path, libc::O_WRONLY)?)
}

fn mkdir(actor: &mut Actor) -> Result<(), ActFailure> {
    call("mkdirat", libc::SYS_mkdirat, &[cwd(), text(&actor.path()?), int(0o755)]).map(drop)
}

fn fifo(actor: &mut Actor) -> Result<(), ActFailure> {
    let mode = bits(u64::from(libc::S_IFIFO | 0o644));
    call("mknodat", libc::SYS_mknodat, &[cwd(), text(&actor.path()?), mode, int(0)]).map(drop)
}

fn remove(actor: &mut Actor) -> Result<(), ActFailure> {
    let path = actor.path()?;
    let remove = |flags| call("unlinkat", libc::SYS_unlinkat, &[cwd(), text(&path), int(flags)]).map(drop);
    remove(0).or_else(|_no_file| remove(libc::AT_REMOVEDIR))
}

/// Within one place as a rule.
fn two_paths(actor: &mut Actor) -> Result<(CString, CString), ActFailure> {
    let place = actor.place()?;
    let one = actor.path_in(&place);
    let other = if actor.dice.below(4) == 0 { actor.path()? } else { actor.path_in(&place) };
    Ok((one, other))
}

/// Over what is there, not over it, or in exchange.
fn rename(actor: &mut Actor) -> Result<(), ActFailure> {
    let (old, new) = two_paths(actor)?;
    let flags = actor.one(&[0, libc::RENAME_NOREPLACE, libc::RENAME_EXCHANGE, libc::RENAME_EXCHANGE]);
    call("renameat2", libc::SYS_renameat2, &[cwd(), text(&old), cwd(), text(&new), int(flags)]).map(drop)
}

// ---- links ----

/// To a directory, or to something in one.
fn symlink(actor: &mut Actor) -> Result<(), ActFailure> {
    let directory = actor.place()?.path("");
    let target = if actor.dice.below(2) == 0 { directory } else { actor.path()? };
    actor.say(target.to_string_lossy());
    let path = actor.path()?;
    call("symlinkat", libc::SYS_symlinkat, &[text(&target), cwd(), text(&path)]).map(drop)
}

fn link(actor: &mut Actor) -> Result<(), ActFailure> {
    let (old, new) = two_paths(actor)?;
    let flags = actor.dice.one(&[0, libc::AT_SYMLINK_FOLLOW]);
    call("linkat", libc::SYS_linkat, &[cwd(), text(&old), cwd(), text(&new), int(flags)]).map(drop)
}

/// Gives a held file a new name.
fn link_held(actor: &mut Actor) -> Result<(), ActFailure> {
    let (old, new) = (actor.held_file()?, actor.path()?);
    let flags = int(libc::AT_SYMLINK_FOLLOW);
    call("linkat", libc::SYS_linkat, &[cwd(), text(&old), cwd(), text(&new), flags]).map(drop)
}

/// Puts links in the place of one name, again and again: `rebind` binds it meanwhile.
fn push_link(actor: &mut Actor) -> Result<(), ActFailure> {
    let target = actor.path()?;
    let (path, aside) = actor.socket_path()?;
    let flags = actor.one(&[0, libc::RENAME_EXCHANGE]);
    let mut came = Ok(());
    for _ in 0..50 {
        // It may be there, from last time.
        let _may_be_there = call("symlinkat", libc::SYS_symlinkat, &[text(&target), cwd(), text(&aside)]);
        came = call("renameat2", libc::SYS_renameat2, &[cwd(), text(&aside), cwd(), text(&path), int(flags)]).map(drop);
        if flags != 0 {
            let _may_be_gone = call("unlinkat", libc::SYS_unlinkat, &[cwd(), text(&aside), int(0)]);
        }
    }
    came
}

// ---- modes, owners, times ----

/// Modes by which directories can be entered or not, written or not; and what nobody else may read.
const MODES: &[i32] = &[0, 0o100, 0o500, 0o500, 0o500, 0o600, 0o700, 0o777];

fn chmod(actor: &mut Actor) -> Result<(), ActFailure> {
    let path = actor.path()?;
    let mode = actor.one(MODES);
    call("fchmodat", libc::SYS_fchmodat, &[cwd(), text(&path), int(mode)]).map(drop)
}

/// Closes all that is in a place, which may be full of links.
fn close(actor: &mut Actor) -> Result<(), ActFailure> {
    let place = actor.place()?;
    actor.say(&place.directory);
    let mode = actor.one(&[0, 0o100, 0o500, 0o500]);
    let close = |name: &str| call("fchmodat", libc::SYS_fchmodat, &[cwd(), text(&place.path(name)), int(mode)]);
    let closed = place.names.iter().filter(|name| close(name).is_ok()).count();
    if closed == 0 { Err(ActFailure::unready("nothing was closed")) } else { Ok(()) }
}

fn chmod_held(actor: &mut Actor) -> Result<(), ActFailure> {
    let path = actor.held_file()?;
    let mode = actor.one(MODES);
    let by_name = actor.dice.below(2) == 0;
    if by_name {
        return call("fchmodat", libc::SYS_fchmodat, &[cwd(), text(&path), int(mode)]).map(drop);
    }
    call("fchmod", libc::SYS_fchmod, &[fd(&open(&path, libc::O_RDONLY)?), int(mode)]).map(drop)
}

fn chown(actor: &mut Actor) -> Result<(), ActFailure> {
    let path = actor.path()?;
    let flags = actor.dice.one(&[0, libc::AT_SYMLINK_NOFOLLOW]);
    call("fchownat", libc::SYS_fchownat, &[cwd(), text(&path), int(-1), int(-1), int(flags)]).map(drop)
}

fn touch(actor: &mut Actor) -> Result<(), ActFailure> {
    let path = actor.path()?;
    let times = [1000_i64, 0, 1000, 0];
    let flags = actor.dice.one(&[0, libc::AT_SYMLINK_NOFOLLOW]);
    call("utimensat", libc::SYS_utimensat, &[cwd(), text(&path), from(&times), int(flags)]).map(drop)
}

fn attribute(actor: &mut Actor) -> Result<(), ActFailure> {
    let path = actor.path()?;
    let arguments = [text(&path), text(c"user.campaign"), from(SECRET), len(SECRET), int(0)];
    call("setxattr", libc::SYS_setxattr, &arguments).map(drop)
}

fn umask(actor: &mut Actor) -> Result<(), ActFailure> {
    let mask = actor.one(&[0, 0, 0o22, 0o77]);
    call("umask", libc::SYS_umask, &[int(mask)]).map(drop)
}

// ---- sockets ----

fn socket(family: i32) -> Result<OwnedFd, ActFailure> {
    network::socket(family, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0)
}

fn set(socket: &OwnedFd, option: i32, value: i32) -> Result<(), ActFailure> {
    let arguments = [fd(socket), int(libc::SOL_SOCKET), int(option), from(&value), int(4)];
    call("setsockopt", libc::SYS_setsockopt, &arguments).map(drop)
}

fn bind(socket: &OwnedFd, address: &[u8]) -> Result<(), ActFailure> {
    call("bind", libc::SYS_bind, &[fd(socket), from(address), len(address)]).map(drop)
}

fn listen(socket: &OwnedFd, backlog: i32) -> Result<(), ActFailure> {
    call("listen", libc::SYS_listen, &[fd(socket), int(backlog)]).map(drop)
}

/// Connects, waits a little where that takes a while, and says something.
fn visit(actor: &mut Actor, socket: OwnedFd, address: &[u8]) -> Result<(), ActFailure> {
    let connected = call("connect", libc::SYS_connect, &[fd(&socket), from(address), len(address)]);
    let told = match connected {
        Ok(_) => write_secret(&socket),
        Err(failure) if failure.is_errno(libc::EINPROGRESS) => {
            let mut wait = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
            let time = [0_i64, 2_000_000];
            call("ppoll", libc::SYS_ppoll, &[into(&mut wait), int(1), from(&time), null(), int(0)])?;
            write_secret(&socket)
        }
        Err(failure) => Err(failure),
    };
    // It may go on knocking.
    if actor.dice.below(2) == 0 {
        actor.hold_socket(socket);
    }
    told
}

fn inet(actor: &mut Actor, ips: &[Ipv4Addr]) -> Result<Vec<u8>, ActFailure> {
    let ip = actor.one(ips);
    let at = actor.dice.below(actor.ports.len());
    let port = actor.ports.get(at).copied().ok_or_else(|| ActFailure::unready("no ports"))?;
    actor.say(port);
    Ok(network::sockaddr(SocketAddr::new(IpAddr::V4(ip), port)))
}

fn serve_tcp(actor: &mut Actor) -> Result<(), ActFailure> {
    let address = inet(actor, &[Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED])?;
    let socket = socket(libc::AF_INET)?;
    set(&socket, libc::SO_REUSEADDR, actor.dice.one(&[0, 1]))?;
    if actor.dice.below(3) == 0 {
        // It may be refused: then it is not shared.
        let _shared = set(&socket, libc::SO_REUSEPORT, 1);
    }
    bind(&socket, &address)?;
    listen(&socket, actor.dice.one(&[0, 8]))?;
    actor.hold_socket(socket);
    Ok(())
}

fn visit_tcp(actor: &mut Actor) -> Result<(), ActFailure> {
    let address = inet(actor, &[Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED])?;
    let socket = socket(libc::AF_INET)?;
    visit(actor, socket, &address)
}

fn serve(actor: &mut Actor, address: &[u8]) -> Result<(), ActFailure> {
    let socket = socket(libc::AF_UNIX)?;
    bind(&socket, address)?;
    listen(&socket, 8)?;
    actor.hold_socket(socket);
    Ok(())
}

fn serve_unix(actor: &mut Actor) -> Result<(), ActFailure> {
    let (path, _) = actor.socket_path()?;
    serve(actor, &unix::name(&path.to_string_lossy(), false)?)
}

fn visit_unix(actor: &mut Actor) -> Result<(), ActFailure> {
    let path = if actor.dice.below(2) == 0 { actor.socket_path()?.0 } else { actor.path()? };
    let address = unix::name(&path.to_string_lossy(), false)?;
    let socket = socket(libc::AF_UNIX)?;
    visit(actor, socket, &address)
}

fn hidden(actor: &mut Actor) -> Result<Vec<u8>, ActFailure> {
    let name = format!("{}-{}", actor.hidden, actor.dice.below(2));
    actor.say(&name);
    unix::name(&name, true)
}

fn serve_abstract(actor: &mut Actor) -> Result<(), ActFailure> {
    let address = hidden(actor)?;
    serve(actor, &address)
}

fn visit_abstract(actor: &mut Actor) -> Result<(), ActFailure> {
    let address = hidden(actor)?;
    let socket = socket(libc::AF_UNIX)?;
    visit(actor, socket, &address)
}

/// Binds one name again and again, as servers do that restart.
fn rebind(actor: &mut Actor) -> Result<(), ActFailure> {
    let (path, _) = actor.socket_path()?;
    let address = unix::name(&path.to_string_lossy(), false)?;
    let mut came = Ok(());
    for _ in 0..20 {
        let _may_be_gone = call("unlinkat", libc::SYS_unlinkat, &[cwd(), text(&path), int(0)]);
        came = bind(&socket(libc::AF_UNIX)?, &address);
    }
    came
}

fn listen_again(actor: &mut Actor) -> Result<(), ActFailure> {
    listen(actor.held_socket()?, 1)
}

fn accept(actor: &mut Actor) -> Result<(), ActFailure> {
    let server = actor.held_socket()?;
    call_fd("accept4", libc::SYS_accept4, &[fd(server), null(), null(), int(libc::SOCK_CLOEXEC)]).map(drop)
}

/// Ends a server, and keeps its socket.
fn shut_down(actor: &mut Actor) -> Result<(), ActFailure> {
    call("shutdown", libc::SYS_shutdown, &[fd(actor.held_socket()?), int(libc::SHUT_RDWR)]).map(drop)
}

fn hang_up(actor: &mut Actor) -> Result<(), ActFailure> {
    if actor.sockets.is_empty() {
        return Err(ActFailure::unready("none held"));
    }
    let at = actor.dice.below(actor.sockets.len());
    actor.say(at);
    drop(actor.sockets.swap_remove(at));
    Ok(())
}

/// Has a connection to loopback leave by another device. This is no canary's to notice: it must not succeed.
fn device(_actor: &mut Actor) -> Result<(), ActFailure> {
    let socket = socket(libc::AF_INET)?;
    let arguments = [fd(&socket), int(libc::SOL_SOCKET), int(libc::SO_BINDTODEVICE), from(c"lo"), int(3)];
    call("setsockopt", libc::SYS_setsockopt, &arguments).map(drop)
}

// ---- processes ----

fn spawn(actor: &mut Actor) -> Result<(), ActFailure> {
    if actor.children >= CHILDREN || actor.name.len() > CHILDREN {
        return Err(ActFailure::unready("enough children"));
    }
    let name = actor.children.to_string();
    actor.fork(&name)
}
