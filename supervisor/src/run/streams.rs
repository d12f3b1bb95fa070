//! A program's streams, and the host's ends of them: pipes, or a terminal.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe::{Receiver, Sender};

use crate::confine::{Stdio, Terminal};

/// Ctrl-D as a terminal has it: the end of the input, if it comes at the beginning of a line.
const END_OF_TRANSMISSION: u8 = 4;

/// Stream that a program prints to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgramStream {
    Out,
    Err,
}

/// A program's own ends, and the host's ends of what it prints to: of standard output and of standard error. One whose two are the
/// same stream has the first alone.
pub(crate) struct Streams {
    pub(super) stdio: Stdio,
    pub(super) outputs: [Option<ProgramOutput>; 2],
}

impl Streams {
    /// One pipe for all that it prints, so that it comes in the order in which it was written; nothing to read.
    pub(crate) fn merged() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let null = std::fs::File::open("/dev/null")?;
        let stdio = Stdio::new(null.into(), writer.try_clone()?.into(), writer.into());
        Ok(Self { stdio, outputs: [Some(ProgramOutput::Pipe(Receiver::from_owned_fd(reader.into())?)), None] })
    }

    /// A pipe for each.
    pub(crate) fn piped() -> io::Result<(Self, ProgramInput)> {
        let (stdio, pipes) = Stdio::piped()?;
        let (stdin, stdout, stderr) = pipes.into_async()?;
        let outputs = [Some(ProgramOutput::Pipe(stdout)), Some(ProgramOutput::Pipe(stderr))];
        Ok((Self { stdio, outputs }, ProgramInput::Pipe(stdin)))
    }

    /// A terminal for all three.
    pub(crate) fn terminal((terminal, stdio): (Terminal, Stdio)) -> (Self, ProgramInput) {
        let terminal = Arc::new(terminal);
        let input = ProgramInput::Terminal(Arc::clone(&terminal));
        (Self { stdio, outputs: [Some(ProgramOutput::Terminal(terminal)), None] }, input)
    }

    /// These, whose other ends somebody else has.
    pub(crate) fn elsewhere(stdio: Stdio) -> Self {
        Self { stdio, outputs: [None, None] }
    }

    /// The program's own ends, for a start by other means, and the host's.
    pub(crate) fn into_parts(self) -> (Stdio, [Option<ProgramOutput>; 2]) {
        (self.stdio, self.outputs)
    }
}

/// Where a program's input goes.
#[derive(Debug)]
pub(crate) enum ProgramInput {
    Pipe(Sender),
    Terminal(Arc<Terminal>),
    Closed,
}

/// Where a program's output comes from.
#[derive(Debug)]
pub(crate) enum ProgramOutput {
    Pipe(Receiver),
    Terminal(Arc<Terminal>),
}

impl ProgramInput {
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

    /// Writes all of this as far as the program reads it, and ends it. One that does not has its reasons.
    pub(crate) async fn feed(mut self, bytes: &[u8]) {
        drop(self.write(bytes, &mut 0).await);
    }
}

impl ProgramOutput {
    /// Waits for some; 0 at its end. Dropping the future loses nothing.
    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Pipe(pipe) => pipe.read(buffer).await,
            Self::Terminal(terminal) => terminal.read(buffer).await,
        }
    }

    /// Bytes that are there now, if there is anything. The kernel is asked, for tokio may not have heard of it yet.
    pub(super) fn read_now(&self, buffer: &mut [u8]) -> Option<usize> {
        let got = match self {
            Self::Pipe(pipe) => rustix::io::read(pipe, buffer),
            Self::Terminal(terminal) => rustix::io::read(terminal.as_fd(), buffer),
        };
        got.ok().filter(|got| *got > 0)
    }
}

/// Reads from such a stream; 0 at its end. One that is not there has none.
pub(super) async fn read(output: &mut Option<ProgramOutput>, buffer: &mut [u8]) -> usize {
    match output {
        // A terminal whose program is gone fails.
        Some(output) => output.read(buffer).await.unwrap_or(0),
        None => 0,
    }
}
