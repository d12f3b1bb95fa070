//! A broker, zygotes and workers that send what they like, with whatever descriptors: the supervisor answers every call, and
//! an output is one that a worker really sent after its confinement (S0-68).

use std::fs::File;
use std::io::{IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{LazyLock, Mutex};

use callgate::Outcome;
use callgate_worker::protocol::Channel;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use super::{PlayedHost, Processes};

static HOST: LazyLock<Mutex<PlayedHost>> = LazyLock::new(|| Mutex::new(PlayedHost::new()));

/// Most bytes that wait in a socket before a send would block.
const QUEUED: usize = 64 * 1024;

/// One thing said: who (2 bits), how (2 bits), how many descriptors (2 bits), which (2 bits); then a length in two bytes, and
/// as many bytes.
fn script(mut data: &[u8], processes: &Processes) {
    let mut queued = 0;
    while let [head, low, high, rest @ ..] = data {
        let len = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (body, next) = rest.split_at(len);
        data = next;
        queued += len + 1;
        if queued > QUEUED {
            return;
        }
        let channel = match head & 3 {
            0 => &processes.broker,
            1 => &processes.programs,
            2 => &processes.readers,
            _ => &processes.workers[usize::from(head >> 6 & 1)],
        };
        let count = usize::from(head >> 4 & 3);
        let mut fds: Vec<OwnedFd> = Vec::new();
        for index in 0..count {
            let fd = match index + usize::from(head >> 6) {
                4 => File::open("/dev/null").expect("it is there").into(),
                5 => File::open("/proc/self/status").expect("it is there").into(),
                other => processes.offered(other).try_clone().expect("descriptors are left"),
            };
            fds.push(fd);
        }
        match head >> 2 & 3 {
            0 => say(channel, body, &fds),
            1 => say(channel, &[b"J", body].concat(), &fds),
            2 => say(channel, &[b"D", body].concat(), &fds),
            _ => {
                fds.push(memfd(body));
                say(channel, b"M", &fds);
            }
        }
    }
}

fn memfd(body: &[u8]) -> OwnedFd {
    let fd = rustix::fs::memfd_create(c"frame", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
    let mut file = File::from(fd);
    file.write_all(body).expect("it is memory");
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    // One in two is not sealed.
    if body.len().is_multiple_of(2) {
        rustix::fs::fcntl_add_seals(&file, seals).expect("it may be sealed");
    }
    file.into()
}

fn say(channel: &Channel, frame: &[u8], fds: &[OwnedFd]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(|fd| fd.as_fd()).collect();
    if !borrowed.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(&borrowed)), "there is room for these");
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    // A full socket or one that is closed says nothing; the rest of the script goes on.
    let _lost = rustix::net::sendmsg(channel, &[IoSlice::new(frame)], &mut control, flags);
}

/// The target.
pub fn target(data: &[u8]) {
    let Some((setting, data)) = data.split_first() else { return };
    let host = HOST.lock().expect("nothing panics with it");
    let honest = |bit: u8| setting >> bit & 1 == 0;
    let opening = |processes: &mut Processes| {
        // How far it behaves before it does what it likes.
        if honest(0) {
            processes.ready();
            if honest(1) {
                processes.prepared();
                if honest(2) {
                    processes.confined();
                }
            }
        }
        script(data, processes);
    };
    host.session(opening, async |session, _processes| {
        let (tool, args) = match setting >> 3 & 3 {
            0 => ("read", serde_json::json!({ "path": "file" })),
            1 => ("write", serde_json::json!({ "path": "file", "content": "x" })),
            _ => ("bash", serde_json::json!({ "command": "true", "timeout_ms": 1000 })),
        };
        for _ in 0..2 {
            let envelope = session.call(tool, args.clone()).await;
            assert_eq!(envelope.kind == Outcome::Error, envelope.error_text.is_some(), "{envelope:?}");
        }
    });
}
