//! `callgate run` at a terminal. The program never gets that terminal, but one of its own, and bytes are copied between the
//! two: it can neither type into the person's terminal nor change it, and Ctrl-C is for the program alone (D6).
//!
//! Which of its three streams are on its terminal: those that are one for callgate, if standard output is. It is at work
//! in a pipe otherwise, and who reads that pipe may be at the terminal (`| less`), which two cannot read at once.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::Duration;

use callgate::{Session, Stdio, Terminal, WindowSize};
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use rustix::termios::{OptionalActions, OutputModes, QueueSelector, Termios};
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use super::exit::CommandFailure;

/// How long a job in the background waits before it looks whether it has been brought to the foreground: a shell's `fg`
/// tells a job that was not stopped nothing.
const PATIENCE: Duration = Duration::from_millis(100);
/// For a terminal that does not know its size.
const USUAL: WindowSize = WindowSize { rows: 24, columns: 80 };

/// The person's terminal.
pub(super) struct Outer {
    terminal: OwnedFd,
    /// Which of standard input, output and error are terminals.
    streams: [bool; 3],
    /// True if it is the program's to be controlled from; false if it shows its standard error only.
    controls: bool,
}

impl Outer {
    /// Looks at the three streams. `None` if no terminal is among them, and none is `wanted`.
    pub(super) fn find(wanted: bool) -> Result<Option<Self>, CommandFailure> {
        let (input, output, error) = (io::stdin(), io::stdout(), io::stderr());
        let streams = [input.as_fd(), output.as_fd(), error.as_fd()].map(rustix::termios::isatty);
        let controls = wanted || streams[1];
        let number = [1, 0, 2].into_iter().find(|number| streams[*number]);
        if !controls && number.is_none() {
            return Ok(None);
        }
        let terminal = reopened(number).map_err(|source| match (number, source) {
            (None, source) => CommandFailure::Named {
                what: "--tty: there is no terminal here to copy to and from; leave it out".to_owned(),
                source,
            },
            (Some(_), source) => CommandFailure::Io { what: "open this terminal".to_owned(), source },
        })?;
        Ok(Some(Self { terminal, streams, controls }))
    }

    /// The program's streams, and what copies between its terminal and this.
    pub(super) fn lend(self, session: &Session) -> Result<(Stdio, Relay), CommandFailure> {
        let io = |what: &'static str| CommandFailure::io(what);
        let (terminal, mut stdio) = session.terminal(size_of(&self.terminal)).map_err(|e| CommandFailure::Io {
            what: "make a terminal for the command".to_owned(),
            source: io::Error::other(e),
        })?;
        let end = stdio.terminal_end().map_err(io("keep the command's terminal"))?;
        set_modes(&self, &terminal).map_err(|e| io("set the command's terminal")(e.into()))?;
        let copy = |stream: BorrowedFd<'_>| stream.try_clone_to_owned().map_err(io("take over a standard stream"));
        if !self.controls {
            stdio = stdio.without_terminal();
        }
        if !self.streams[0] {
            stdio = stdio.with_input(copy(io::stdin().as_fd())?);
        } else if !self.controls {
            stdio = stdio.with_input(File::open("/dev/null").map_err(io("open /dev/null"))?.into());
        }
        if !self.streams[1] {
            stdio = stdio.with_output(copy(io::stdout().as_fd())?);
        }
        if !self.streams[2] {
            stdio = stdio.with_error(copy(io::stderr().as_fd())?);
        }
        #[allow(
            deprecated,
            reason = "its replacement is unsafe; an OwnedFd owns its descriptor and never gives another"
        )]
        let outer = AsyncFd::new(self.terminal).map_err(io("wait on this terminal"))?;
        let told = TerminalFacts::listen(self.controls).map_err(CommandFailure::runtime)?;
        let relay =
            Relay { outer, terminal, end, told, controls: self.controls, raw: Cell::new(false), woken: Notify::new() };
        Ok((stdio, relay))
    }
}

/// The terminal once more, with flags of our own: those of a standard stream are shared with the shell.
fn reopened(number: Option<usize>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let open = |path: &str| rustix::fs::open(path, flags, Mode::empty());
    let by_number = number.map(|number| open(&format!("/proc/self/fd/{number}")));
    match by_number {
        Some(Ok(terminal)) => Ok(terminal),
        // It may be somebody else's, after su(1), and still this process's own.
        Some(Err(_)) | None => Ok(open("/dev/tty")?),
    }
}

fn size_of(terminal: &OwnedFd) -> WindowSize {
    match rustix::termios::tcgetwinsize(terminal) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => WindowSize { rows: size.ws_row, columns: size.ws_col },
        Ok(_) | Err(_) => USUAL,
    }
}

/// Has the program's terminal begin as this one is: its erase character, its character set.
fn set_modes(outer: &Outer, terminal: &Terminal) -> rustix::io::Result<()> {
    let mut modes = rustix::termios::tcgetattr(terminal)?;
    if in_foreground(&outer.terminal) {
        // In the background it is in the modes of whoever is in the foreground.
        modes = rustix::termios::tcgetattr(&outer.terminal)?;
    }
    if !outer.controls {
        // The person's terminal is left as it is, and ends lines itself.
        modes.output_modes.remove(OutputModes::OPOST);
    }
    rustix::termios::tcsetattr(terminal, OptionalActions::Now, &modes)
}

/// True if this process may read the terminal and change it. One that does not control it always may.
fn in_foreground(terminal: &OwnedFd) -> bool {
    rustix::termios::tcgetpgrp(terminal).is_ok_and(|group| group == rustix::process::getpgrp())
        || rustix::termios::tcgetsid(terminal).is_err()
}

/// Copies between the person's terminal and the program's.
pub(super) struct Relay {
    outer: AsyncFd<OwnedFd>,
    terminal: Terminal,
    /// Kept open until the program has ended: it may close its terminal and open it again.
    end: Option<OwnedFd>,
    told: TerminalFacts,
    controls: bool,
    /// True if the person's terminal hands over every key as it is.
    raw: Cell<bool>,
    woken: Notify,
}

/// Facts that a terminal or its shell tells.
struct TerminalFacts {
    resized: tokio::signal::unix::Signal,
    /// To stop, and to go on. Without a terminal to give back, the kernel stops this process as any other.
    job: Option<(tokio::signal::unix::Signal, tokio::signal::unix::Signal)>,
}

impl TerminalFacts {
    fn listen(controls: bool) -> io::Result<Self> {
        let of = |number: Signal| signal(SignalKind::from_raw(number.as_raw()));
        let job = if controls { Some((of(Signal::TSTP)?, of(Signal::CONT)?)) } else { None };
        Ok(Self { resized: of(Signal::WINCH)?, job })
    }
}

impl Relay {
    /// The program's own end of its terminal: while it is held, [`Relay::run`] goes on.
    pub(super) fn take_end(&mut self) -> Option<OwnedFd> {
        self.end.take()
    }

    /// Copies until nothing has the program's terminal open, and all that was written there is shown; or until the
    /// person's is gone, which then hangs up the program's. Dropping it, too, leaves the person's terminal as it was.
    pub(super) async fn run(self) {
        let _given_back = GiveBack;
        let Self { outer, terminal, mut told, controls, raw, woken, .. } = self;
        let relay = Copying { outer, terminal, raw, woken };
        tokio::select! {
            () = relay.show() => {}
            () = relay.hand_on_keys(), if controls => {}
            () = relay.heed(&mut told) => {}
        }
    }
}

struct Copying {
    outer: AsyncFd<OwnedFd>,
    terminal: Terminal,
    raw: Cell<bool>,
    woken: Notify,
}

impl Copying {
    /// Hands on what the program writes, to the person. Ends when it has ended, or nobody is left to see it.
    async fn show(&self) {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(got @ 1..) = self.terminal.read(&mut buffer).await {
            if write_all(&self.outer, &buffer[..got]).await.is_err() {
                return;
            }
        }
    }

    /// Hands on what the person types, to the program. Ends when the person's terminal is gone.
    async fn hand_on_keys(&self) {
        let mut buffer = vec![0; 4 * 1024];
        loop {
            self.come_to_foreground().await;
            let Ok(mut ready) = self.outer.readable().await else { return };
            if !in_foreground(self.outer.get_ref()) {
                // What is there is for somebody else.
                self.raw.set(false);
                continue;
            }
            match ready.try_io(|fd| Ok(rustix::io::read(fd, &mut *buffer)?)) {
                Ok(Ok(got @ 1..)) if self.terminal.write(&buffer[..got]).await.is_ok() => {}
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) => return,
                Err(_would_block) => {}
            }
        }
    }

    async fn come_to_foreground(&self) {
        while !in_foreground(self.outer.get_ref()) {
            tokio::select! {
                () = tokio::time::sleep(PATIENCE) => {}
                () = self.woken.notified() => {}
            }
        }
        if !self.raw.get() {
            self.raw.set(take_over(self.outer.get_ref()).is_ok());
        }
    }

    /// The person's terminal has another size, or its shell stops this job and lets it go on.
    async fn heed(&self, told: &mut TerminalFacts) {
        loop {
            // First for what happened before it was listened to. A size that cannot be set is as if nobody had said so.
            drop(self.terminal.resize(size_of(self.outer.get_ref())));
            let TerminalFacts { resized, job } = &mut *told;
            let (stop, go_on) = match job {
                Some((stop, go_on)) => (Some(stop), Some(go_on)),
                None => (None, None),
            };
            tokio::select! {
                _ = resized.recv() => {}
                _ = heard(stop) => {
                    give_back();
                    self.raw.set(false);
                    // As the signal would have; what follows is when it goes on. The program is not stopped with it.
                    let _stopped: Result<_, _> = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
                }
                _ = heard(go_on) => {
                    // Whoever had the terminal meanwhile has left it in other modes.
                    self.raw.set(false);
                    if in_foreground(self.outer.get_ref()) {
                        self.raw.set(take_over(self.outer.get_ref()).is_ok());
                    }
                    self.woken.notify_one();
                }
            }
        }
    }
}

async fn heard(signal: Option<&mut tokio::signal::unix::Signal>) -> Option<()> {
    match signal {
        Some(signal) => signal.recv().await,
        None => std::future::pending().await,
    }
}

/// Writes all of this to a descriptor that does not block; waits while there is no room.
async fn write_all(to: &AsyncFd<OwnedFd>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let mut ready = to.writable().await?;
        match ready.try_io(|fd| Ok(rustix::io::write(fd, bytes)?)) {
            Ok(Ok(written)) => bytes = &bytes[written..],
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(Err(error)) => return Err(error),
            Err(_would_block) => {}
        }
    }
    Ok(())
}

/// The terminal as it was before it was taken over: whatever ends this process gives it back, a panic too.
static TAKEN: Mutex<Option<(OwnedFd, Termios)>> = Mutex::new(None);

/// From now on every key is handed over as it is: the program's terminal makes signals, lines and echoes of them.
fn take_over(terminal: &OwnedFd) -> io::Result<()> {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut modes = match &*taken {
        Some((_, before)) => before.clone(),
        None => {
            let before = rustix::termios::tcgetattr(terminal)?;
            *taken = Some((terminal.try_clone()?, before.clone()));
            give_back_on_panic();
            before
        }
    };
    modes.make_raw();
    Ok(rustix::termios::tcsetattr(terminal, OptionalActions::Now, &modes)?)
}

/// Undoes [`take_over`], unless the terminal is somebody else's by now.
fn give_back() {
    let taken = match TAKEN.try_lock() {
        Ok(mut taken) => taken.take(),
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().take(),
        Err(TryLockError::WouldBlock) => None,
    };
    if let Some((terminal, before)) = taken
        && in_foreground(&terminal)
    {
        // What the program had it answer (a cursor's place, a title) is not for the shell to read (D6). Not by TCSAFLUSH,
        // which would wait for a terminal that shows nothing. A terminal that is gone needs nothing.
        let _thrown_away: Result<_, _> = rustix::termios::tcflush(&terminal, QueueSelector::IFlush);
        let _given: Result<_, _> = rustix::termios::tcsetattr(&terminal, OptionalActions::Now, &before);
    }
}

/// [`give_back`] at the end of a scope.
struct GiveBack;

impl Drop for GiveBack {
    fn drop(&mut self) {
        give_back();
    }
}

/// Where a panic aborts, nothing is dropped.
fn give_back_on_panic() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
    });
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a failed unwrap fails the test, which is about a panic")]
mod tests {
    use rustix::pty::OpenptFlags;

    use super::*;

    /// D6, where a panic ends a process without dropping anything, too: its hook gives the terminal back, without what the
    /// program has had it answer.
    #[test]
    fn a_panic_gives_the_terminal_back() {
        let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        rustix::pty::unlockpt(&master).unwrap();
        let terminal = rustix::pty::ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        let modes = || format!("{:?}", rustix::termios::tcgetattr(&terminal).unwrap());
        let before = modes();
        take_over(&terminal).unwrap();
        assert_ne!(modes(), before, "the control");
        let waiting = || rustix::io::ioctl_fionread(&terminal).unwrap();
        rustix::io::write(&master, b"an answer").unwrap();
        while waiting() < 9 {
            std::thread::yield_now();
        }
        let seen = std::thread::spawn(|| panic!("on purpose")).join();
        assert!(seen.is_err());
        assert_eq!((modes(), waiting()), (before, 0));
    }
}
