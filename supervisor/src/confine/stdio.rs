//! A program's standard streams.

use callgate_worker::protocol::ProgramFds;
use std::fs::File;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use tokio::net::unix::pipe::{Receiver, Sender};

/// A program's standard input, output and error, and its terminal if it has one ([`Session::terminal`]).
///
/// [`Session::terminal`]: crate::Session::terminal
#[derive(Debug)]
pub struct Stdio {
    streams: [OwnedFd; 3],
    /// To be its controlling terminal.
    terminal: Option<OwnedFd>,
}

/// The host's ends of a program's pipes ([`Stdio::piped`]). They are blocking, and close on exec.
///
/// Read standard output and standard error side by side: a program that fills one of the pipes waits until somebody reads it.
#[derive(Debug)]
#[non_exhaustive]
pub struct ProgramPipes {
    /// End to which the program's standard input is written, which ends when this is dropped.
    pub stdin: OwnedFd,
    /// The program's standard output. It ends when all processes that have it are gone.
    pub stdout: OwnedFd,
    /// The program's standard error, which ends likewise.
    pub stderr: OwnedFd,
}

impl ProgramPipes {
    /// The three for tokio, in their order: input, output, error.
    ///
    /// # Errors
    /// If a pipe cannot be registered with the runtime.
    ///
    /// # Panics
    /// Outside a runtime with I/O enabled, as all of tokio's pipes do.
    pub fn into_async(self) -> io::Result<(Sender, Receiver, Receiver)> {
        Ok((
            Sender::from_owned_fd(self.stdin)?,
            Receiver::from_owned_fd(self.stdout)?,
            Receiver::from_owned_fd(self.stderr)?,
        ))
    }
}

impl Stdio {
    /// These three. Pipes, files and terminals are handed over as they are; the program can do with them what their
    /// open flags allow.
    #[must_use]
    pub fn new(input: OwnedFd, output: OwnedFd, error: OwnedFd) -> Self {
        Self { streams: [input, output, error], terminal: None }
    }

    /// All three, and its controlling terminal.
    pub(super) fn terminal(end: &OwnedFd) -> io::Result<Self> {
        let copy = || end.try_clone();
        Ok(Self { streams: [copy()?, copy()?, copy()?], terminal: Some(copy()?) })
    }

    /// These streams with another standard input.
    #[must_use]
    pub fn with_input(mut self, input: OwnedFd) -> Self {
        self.streams[0] = input;
        self
    }

    /// These streams with another standard output.
    #[must_use]
    pub fn with_output(mut self, output: OwnedFd) -> Self {
        self.streams[1] = output;
        self
    }

    /// These streams with another standard error.
    #[must_use]
    pub fn with_error(mut self, error: OwnedFd) -> Self {
        self.streams[2] = error;
        self
    }

    /// Takes the controlling terminal away: what is a terminal among the three can be written to, and nothing more.
    #[must_use]
    pub fn without_terminal(self) -> Self {
        Self { terminal: None, ..self }
    }

    /// A copy of its terminal's own end, if it has one. While it is held, the terminal stays open.
    ///
    /// # Errors
    /// dup(2)'s own.
    pub fn terminal_end(&self) -> io::Result<Option<OwnedFd>> {
        self.terminal.as_ref().map(OwnedFd::try_clone).transpose()
    }

    /// As they travel with a call.
    pub(super) fn descriptors(&self) -> ProgramFds<BorrowedFd<'_>> {
        let stdio = self.streams.each_ref().map(OwnedFd::as_fd);
        ProgramFds { stdio, terminal: self.terminal.as_ref().map(OwnedFd::as_fd), endpoint: None, cgroup: None }
    }

    /// A new pipe for each of the three, and the host's ends of them.
    ///
    /// ```no_run
    /// # async fn run(session: &callgate::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// use callgate::Stdio;
    /// use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    ///
    /// let (stdio, pipes) = Stdio::piped()?;
    /// let program = session.spawn(["sort"], stdio).await?;
    /// let (mut stdin, mut stdout, _stderr) = pipes.into_async()?;
    /// stdin.write_all(b"b\na\n").await?;
    /// drop(stdin); // `sort` reads until its input ends.
    /// let mut sorted = String::new();
    /// stdout.read_to_string(&mut sorted).await?;
    /// program.wait().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// pipe2(2)'s own: the process has too many open files.
    pub fn piped() -> io::Result<(Self, ProgramPipes)> {
        let ((input, stdin), (stdout, output), (stderr, error)) = (io::pipe()?, io::pipe()?, io::pipe()?);
        let pipes = ProgramPipes { stdin: stdin.into(), stdout: stdout.into(), stderr: stderr.into() };
        Ok((Self::new(input.into(), output.into(), error.into()), pipes))
    }

    /// Streams that join a program to a worker, which gets the other ends, in the order of the program's: a socket, to which it can write
    /// as its filter lets it, and two pipes.
    pub(crate) fn joined() -> io::Result<(Self, [OwnedFd; 3])> {
        let ((input, stdin), (stdout, output), (stderr, error)) = (UnixStream::pair()?, io::pipe()?, io::pipe()?);
        // The program can write to its end as well, and send descriptors: nobody takes them, so the kernel is not to keep any.
        stdin.shutdown(Shutdown::Read)?;
        let worker = [stdin.into(), stdout.into(), stderr.into()];
        Ok((Self::new(input.into(), output.into(), error.into()), worker))
    }

    /// `/dev/null` for all three.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn null() -> io::Result<Self> {
        let null = OwnedFd::from(File::options().read(true).write(true).open("/dev/null")?);
        Ok(Self::new(null.try_clone()?, null.try_clone()?, null))
    }

    /// Copies of this process's own.
    ///
    /// # Errors
    /// dup(2)'s own, for a stream that is closed.
    pub fn inherit() -> io::Result<Self> {
        Ok(Self::new(
            io::stdin().as_fd().try_clone_to_owned()?,
            io::stdout().as_fd().try_clone_to_owned()?,
            io::stderr().as_fd().try_clone_to_owned()?,
        ))
    }
}
