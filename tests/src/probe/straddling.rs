//! Addresses and message headers that lie across the end of what is mapped, or of which the second half comes and goes while
//! the call is judged (attack B18).
//!
//! Both halves are pages of one memfd: mapped again, the second one is whole at once, without a moment in which it is zero.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use callgate_worker::probe::act::{ProbeAct, act};
use callgate_worker::probe::network::{self, MessageHeader, sockaddr, word_of};
use callgate_worker::probe::outcome::{ActArgs, ActFailure, ActOutcome};
use callgate_worker::probe::{errno, unix};
use callgate_worker::sys::probe::{call, call_fd, fd, from, int, len, null, text};
use serde_json::json;

pub(crate) const ACTS: &[ProbeAct] = &[
    act("straddling-connect", "B18", "ADDR PORT [cut]", "connect; the address spans two pages", connect),
    act("straddling-sendmsg", "B18", "ADDR PORT [cut]", "sendmsg MSG_FASTOPEN; the header spans two pages", sendmsg),
    act("straddling-own", "B18", "[cut]", "sendmsg to one's own pair; the header spans two pages", own_pair),
    act(
        "straddling-race",
        "B18",
        "connect|sendmsg ADDR PORT|own N",
        "the same N times while the second page comes and goes",
        race,
    ),
    act("sendmmsg-second", "B18", "ADDR PORT", "two datagrams: to oneself, and to ADDR", second_udp),
    act("unix-sendmmsg-second", "B18", "PATH", "two datagrams: to one's own pair, and to PATH", second_unix),
];

const PAGE: usize = 4096;

/// Two pages, with something across their border.
struct Pages {
    file: OwnedFd,
    start: i64,
    /// Where it begins.
    at: i64,
}

fn size(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl Pages {
    /// `first` bytes of it are before the border.
    fn with(bytes: &[u8], first: usize) -> Result<Self, ActFailure> {
        let file = call_fd("memfd_create", libc::SYS_memfd_create, &[text(c"pages"), int(0)])?;
        call("ftruncate", libc::SYS_ftruncate, &[fd(&file), int(size(2 * PAGE))])?;
        let offset = size(PAGE - first);
        call("pwrite64", libc::SYS_pwrite64, &[fd(&file), from(bytes), len(bytes), int(offset)])?;
        let (protection, shared) = (int(libc::PROT_READ | libc::PROT_WRITE), int(libc::MAP_SHARED));
        let start =
            call("mmap", libc::SYS_mmap, &[null(), int(size(2 * PAGE)), protection, shared, fd(&file), int(0)])?;
        Ok(Self { file, start, at: start + offset })
    }

    fn cut(&self) -> Result<(), ActFailure> {
        call("munmap", libc::SYS_munmap, &[int(self.start + size(PAGE)), int(size(PAGE))]).map(drop)
    }

    fn mend(&self) -> Result<(), ActFailure> {
        let (protection, fixed) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
        let second = [int(self.start + size(PAGE)), int(size(PAGE)), int(protection), int(fixed)];
        let [address, length, protection, flags] = second;
        let offset = int(size(PAGE));
        call("mmap", libc::SYS_mmap, &[address, length, protection, flags, fd(&self.file), offset]).map(drop)
    }

    fn cut_if_asked(&self, word: &str) -> Result<(), ActFailure> {
        match word {
            "cut" => self.cut(),
            "" => Ok(()),
            other => Err(ActFailure::unready(format!("{other}: cut, or nothing"))),
        }
    }
}

fn words(message: &[u64]) -> Vec<u8> {
    message.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn tcp(address: std::net::SocketAddr) -> Result<OwnedFd, ActFailure> {
    network::socket(network::family(address), libc::SOCK_STREAM, 0)
}

/// Family and port are before the border, the rest of the address behind it.
fn address_pages(address: std::net::SocketAddr) -> Result<(Pages, i64), ActFailure> {
    let bytes = sockaddr(address);
    Ok((Pages::with(&bytes, 4)?, size(bytes.len())))
}

fn connect_once(address: std::net::SocketAddr, pages: &Pages, length: i64) -> Result<OwnedFd, ActFailure> {
    let socket = tcp(address)?;
    call("connect", libc::SYS_connect, &[fd(&socket), int(pages.at), int(length)])?;
    Ok(socket)
}

fn connect(args: &ActArgs<'_>) -> ActOutcome {
    let address = network::address(args)?;
    let (pages, length) = address_pages(address)?;
    pages.cut_if_asked(args.word_or(2, ""))?;
    connect_once(address, &pages, length)?;
    Ok(json!({}))
}

const WORD: &[u8] = b"callgate-probe";

/// Name and its length are before the border, what is sent and all else behind it. The parts must outlive the pages' use.
fn header_pages(name: &[u8], vector: &[u64; 2]) -> Result<Pages, ActFailure> {
    Pages::with(&words(&MessageHeader::new(name, vector, &[]).words), 16)
}

fn send_once(socket: &impl AsRawFd, pages: &Pages, flags: i32) -> Result<i64, ActFailure> {
    call("sendmsg", libc::SYS_sendmsg, &[fd(socket), int(pages.at), int(flags)])
}

fn sendmsg(args: &ActArgs<'_>) -> ActOutcome {
    let address = network::address(args)?;
    let (name, vector) = (sockaddr(address), [word_of(WORD), WORD.len() as u64]);
    let pages = header_pages(&name, &vector)?;
    pages.cut_if_asked(args.word_or(2, ""))?;
    send_once(&tcp(address)?, &pages, libc::MSG_FASTOPEN)?;
    Ok(json!({}))
}

fn own_pair(args: &ActArgs<'_>) -> ActOutcome {
    let (one, _other) = unix::pair(libc::SOCK_STREAM)?;
    let vector = [word_of(WORD), WORD.len() as u64];
    let pages = header_pages(&[], &vector)?;
    pages.cut_if_asked(args.word_or(0, ""))?;
    let sent = send_once(&one, &pages, 0)?;
    Ok(json!({ "sent": sent }))
}

/// Results of each try: `ok`, or an errno's name, and how often.
fn race(args: &ActArgs<'_>) -> ActOutcome {
    let (kind, rest) = (args.word(0)?, ActArgs(args.rest(1)));
    let failed = |error: std::io::Error| ActFailure::io("bind", &error);
    // Not accepted: a connection counts once the kernel has queued it.
    let own = if rest.word(1)? == "own" { Some(TcpListener::bind((rest.word(0)?, 0)).map_err(failed)?) } else { None };
    let address = match &own {
        Some(listener) => listener.local_addr().map_err(failed)?,
        None => network::address(&rest)?,
    };
    let (name, vector) = (sockaddr(address), [word_of(WORD), WORD.len() as u64]);
    let (pages, length) = match kind {
        "connect" => address_pages(address)?,
        "sendmsg" => (header_pages(&name, &vector)?, 0),
        other => return Err(ActFailure::unready(format!("{other}: connect or sendmsg"))),
    };
    let over = AtomicBool::new(false);
    let mut answers: BTreeMap<&str, u64> = BTreeMap::new();
    let toggled = std::thread::scope(|threads| {
        let toggling = threads.spawn(|| -> Result<(), ActFailure> {
            while !over.load(Ordering::Relaxed) {
                pages.cut()?;
                std::thread::yield_now();
                pages.mend()?;
                std::thread::yield_now();
            }
            Ok(())
        });
        for _ in 0..rest.number(2)? {
            let tried = match kind {
                "connect" => connect_once(address, &pages, length).map(drop),
                _ => tcp(address).and_then(|socket| send_once(&socket, &pages, libc::MSG_FASTOPEN)).map(drop),
            };
            let answer = match tried {
                Ok(()) => "ok",
                Err(failure) => errno::name(failure.errno_number()),
            };
            *answers.entry(answer).or_default() += 1;
        }
        over.store(true, Ordering::Relaxed);
        toggling.join().map_err(|_panic| ActFailure::unready("the thread panicked"))?
    });
    toggled?;
    Ok(json!({ "answers": answers }))
}

/// Two messages in one call, whose headers are on either side of the border.
fn send_two(socket: &OwnedFd, first: &[u8], second: &[u8]) -> ActOutcome {
    let vector = [word_of(WORD), WORD.len() as u64];
    let both = [MessageHeader::new(first, &vector, &[]).words, MessageHeader::new(second, &vector, &[]).words].concat();
    let pages = Pages::with(&words(&both), 64)?;
    let sent = call("sendmmsg", libc::SYS_sendmmsg, &[fd(socket), int(pages.at), int(2), int(0)])?;
    Ok(json!({ "sent": sent }))
}

fn second_udp(args: &ActArgs<'_>) -> ActOutcome {
    let address = network::address(args)?;
    let socket = network::socket(network::family(address), libc::SOCK_DGRAM, 0)?;
    let own = std::net::UdpSocket::bind((address.ip(), 0)).map_err(|error| ActFailure::io("bind", &error))?;
    let own = own.local_addr().map_err(|error| ActFailure::io("getsockname", &error))?;
    send_two(&socket, &sockaddr(own), &sockaddr(address))
}

fn second_unix(args: &ActArgs<'_>) -> ActOutcome {
    let (one, _other) = unix::pair(libc::SOCK_DGRAM)?;
    send_two(&one, &[], &unix::name(args.word(0)?, false)?)
}
