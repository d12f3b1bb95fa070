//! Terminals for programs: a pseudo-terminal (pty(7)) whose master the host keeps.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use callgate_policy::plan::Identity;
use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;
use tokio::io::unix::AsyncFd;

use super::stdio::Stdio;

/// How large a terminal is, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSize {
    /// How many lines.
    pub rows: u16,
    /// How many columns.
    pub columns: u16,
}

impl WindowSize {
    fn raw(self) -> Winsize {
        Winsize { ws_row: self.rows, ws_col: self.columns, ws_xpixel: 0, ws_ypixel: 0 }
    }
}

/// A terminal could not be made or handed over.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct TerminalError {
    what: &'static str,
    source: io::Error,
}

fn failed<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> TerminalError {
    move |source| TerminalError { what, source: source.into() }
}

/// The master of a program's terminal: what is written here is typed there, and what is shown there is read here.
///
/// It is a stranger's output. Shown on a terminal of one's own, it may do to that whatever its escape sequences can.
///
/// Dropping it hangs the terminal up: its programs get `SIGHUP`.
#[derive(Debug)]
pub struct Terminal(AsyncFd<OwnedFd>);

impl Terminal {
    /// Makes one in a devpts of the session's, or in the host's.
    pub(super) fn make(
        within: Option<&OwnedFd>,
        size: WindowSize,
        owner: Identity,
    ) -> Result<(Self, Stdio), TerminalError> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened = match within {
            Some(terminals) => rustix::fs::openat(terminals, "ptmx", flags, Mode::empty()),
            None => rustix::fs::open("/dev/ptmx", flags, Mode::empty()),
        };
        let master = opened.map_err(failed("make a pseudo-terminal"))?;
        rustix::pty::unlockpt(&master).map_err(failed("unlock the pseudo-terminal"))?;
        let other = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        // By the master, not by a name: its other end, whatever stands at /dev/pts (Linux 4.13).
        let end = rustix::pty::ioctl_tiocgptpeer(&master, other).map_err(failed("open the pseudo-terminal"))?;
        if rustix::process::geteuid().is_root() {
            // Whoever opens the master owns the other end; the program must be able to open it by its name.
            let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
            rustix::fs::fchown(&end, Some(uid), Some(gid)).map_err(failed("give the pseudo-terminal away"))?;
        }
        // Not for write(1) and wall(1) of others, as the host may have it.
        rustix::fs::fchmod(&end, Mode::RUSR | Mode::WUSR).map_err(failed("close the pseudo-terminal to others"))?;
        let stdio = Stdio::terminal(&end).map_err(failed("copy a descriptor"))?;
        #[allow(
            deprecated,
            reason = "its replacement is unsafe; an OwnedFd owns its descriptor and never gives another"
        )]
        let master = AsyncFd::new(master).map_err(failed("wait on the pseudo-terminal"))?;
        let terminal = Self(master);
        terminal.resize(size).map_err(failed("size the pseudo-terminal"))?;
        Ok((terminal, stdio))
    }

    /// Changes its size; what runs in its foreground gets `SIGWINCH`.
    ///
    /// # Errors
    /// `TIOCSWINSZ`'s own (ioctl_tty(2)).
    pub fn resize(&self, size: WindowSize) -> io::Result<()> {
        Ok(rustix::termios::tcsetwinsize(&self.0, size.raw())?)
    }

    /// Reads what was written there; waits for some. 0 once nothing has it open any more.
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// read(2)'s own.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.0.readable().await?;
            match ready.try_io(|fd| Ok(rustix::io::read(fd, &mut *buffer)?)) {
                // The last of them has closed it.
                Ok(Err(error)) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => return Ok(0),
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(done) => return done,
                Err(_would_block) => {}
            }
        }
    }

    /// Types all of this; waits while what is there reads nothing.
    ///
    /// # Errors
    /// write(2)'s own.
    pub async fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = &rest[self.write_some(rest).await?..];
        }
        Ok(())
    }

    /// Types the first of this, and says how much. Dropping the future types nothing.
    pub(crate) async fn write_some(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.0.writable().await?;
            match ready.try_io(|fd| Ok(rustix::io::write(fd, bytes)?)) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(done) => return done,
                Err(_would_block) => {}
            }
        }
    }
}

/// For its modes (termios(3)): what is set on the master holds for the terminal.
impl AsFd for Terminal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}
