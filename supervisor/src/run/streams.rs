//! The host's ends of a background task's streams: pipes, or a terminal.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe::{Receiver, Sender};

use super::terminal::Terminal;

/// Ctrl-D as a terminal has it: the end of the input, if it comes at the beginning of a line.
const END_OF_TRANSMISSION: u8 = 4;

/// Where a task's input goes.
#[derive(Debug)]
pub(crate) enum TaskInput {
    Pipe(Sender),
    Terminal(Arc<Terminal>),
    Closed,
}

/// Where a task's output comes from.
#[derive(Debug)]
pub(crate) enum TaskOutput {
    Pipe(Receiver),
    Terminal(Arc<Terminal>),
}

impl TaskInput {
    /// Writes all of this, and counts what was taken: a program that does not read takes no more than a pipe holds, and whoever
    /// waits for it may be dropped.
    pub(crate) async fn write(&mut self, bytes: &[u8], written: &mut usize) -> io::Result<()> {
        while *written < bytes.len() {
            let rest = &bytes[*written..];
            *written += match self {
                Self::Pipe(pipe) => pipe.write(rest).await?,
                Self::Terminal(terminal) => terminal.write_some(rest).await?,
                Self::Closed => return Err(io::ErrorKind::BrokenPipe.into()),
            };
        }
        Ok(())
    }

    /// Ends it, as far as such an input ends: to a terminal it is one more character.
    pub(crate) async fn close(&mut self) -> io::Result<()> {
        if let Self::Terminal(terminal) = self {
            return terminal.write(&[END_OF_TRANSMISSION]).await;
        }
        *self = Self::Closed;
        Ok(())
    }

    pub(crate) fn is_open(&self) -> bool {
        !matches!(self, Self::Closed)
    }
}

impl TaskOutput {
    /// Waits for some; 0 at its end. Dropping the future loses nothing.
    pub(crate) async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Pipe(pipe) => pipe.read(buffer).await,
            Self::Terminal(terminal) => terminal.read(buffer).await,
        }
    }

    /// Bytes that are there now, if there is anything. The kernel is asked, for tokio may not have heard of it yet.
    pub(crate) fn read_now(&self, buffer: &mut [u8]) -> Option<usize> {
        let got = match self {
            Self::Pipe(pipe) => rustix::io::read(pipe, buffer),
            Self::Terminal(terminal) => rustix::io::read(terminal.as_fd(), buffer),
        };
        got.ok().filter(|got| *got > 0)
    }
}
