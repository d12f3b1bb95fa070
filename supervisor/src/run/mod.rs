//! The one way to run a program: its start, what it prints, how long is waited for it, and what its end means.
//!
//! `bash`, `exec_shell`, declared tools, readers of documents, language servers, tasks in the background and agents' programs come
//! here, each with its streams and with a [`Listener`] that makes a result of what is heard.

mod answer;
pub(crate) mod limits;
mod stop;
mod streams;
mod surroundings;

use std::time::{Duration, Instant};

use callgate_policy::envelope::{Changes, Denial, StepReport};
use callgate_policy::limit::{Bounds, LimitReport};
use callgate_policy::path::HostPath;
use callgate_worker::protocol::ProgramEnd;

pub(crate) use self::answer::{ANSWER_MAX, PrintedAnswer};
use self::stop::Patience;
pub(crate) use self::stop::{GRACE, Orders, Stop};
pub(crate) use self::streams::{ProgramInput, ProgramOutput, ProgramStream, Streams};
pub(crate) use self::surroundings::Surroundings;
use crate::bounds::FOREVER;
use crate::confine::{Aborter, ConfineError, Opened, Program};
use crate::gate::ApprovedPlan;
use crate::turn::Turn;

/// The most that a program without privilege can make a pipe hold, bytes: `/proc/sys/fs/pipe-max-size`, pipe(7).
const PIPE_MAX: usize = 1024 * 1024;
/// Most bytes that are read of a stream at once.
const PIECE: usize = 64 * 1024;

/// Whoever hears what a program prints.
pub(crate) trait Listener: Send {
    /// Takes the next piece of a stream.
    fn hear(&mut self, stream: ProgramStream, piece: &[u8]);

    /// True once nothing can come of the program any more, which is ended then.
    fn has_enough(&self) -> bool {
        false
    }
}

/// The words that a program is started with, as one line.
pub(crate) fn line_of(argv: &[HostPath]) -> String {
    argv.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// For a program whose streams go elsewhere.
impl Listener for () {
    fn hear(&mut self, _: ProgramStream, _: &[u8]) {}
}

/// A program that runs, and the host's ends of what it prints to. It has the program alone, so that whoever follows it can kill it.
/// Dropped, it ends with all that it started.
pub(crate) struct Running {
    program: Program,
    outputs: [Option<ProgramOutput>; 2],
    /// Most bytes that it may print, if that is counted.
    most: Option<u64>,
    /// All bytes that came.
    seen: u64,
    bounds: Bounds,
    timeout: Duration,
    began: Instant,
}

/// How a program has ended.
pub(crate) struct ProgramEnded {
    /// The program, which holds its turn until this is dropped.
    pub(crate) program: Program,
    pub(crate) end: ProgramEnd,
    pub(crate) took: Duration,
    pub(crate) limits: Vec<LimitReport>,
    /// Limit for which it was ended, and what to do about it.
    pub(crate) ended_for: Option<Denial>,
    /// Changes by it, and what was refused to it, if there is any of either.
    pub(crate) changes: Option<Changes>,
}

impl Running {
    /// Starts it, confined by its plan.
    ///
    /// # Errors
    /// The step that failed; nothing has run then.
    pub(crate) async fn start(
        opened: &Opened,
        plan: ApprovedPlan,
        streams: Streams,
        turn: Turn,
    ) -> Result<Self, ConfineError> {
        let (bounds, timeout, began) = (plan.bounds, plan.timeout, Instant::now());
        let program = opened.program(plan, (streams.stdio, None), turn).await?;
        // Elsewhere nobody counts.
        let most = streams.outputs.iter().any(Option::is_some).then_some(bounds.output);
        Ok(Self { most, began, ..Self::of(program, streams.outputs, (bounds, timeout)) })
    }

    /// One that was started elsewhere, with the host's ends of what it prints to, which may be as much as it wants to.
    pub(crate) fn of(
        program: Program,
        outputs: [Option<ProgramOutput>; 2],
        (bounds, timeout): (Bounds, Duration),
    ) -> Self {
        Self { program, outputs, most: None, seen: 0, bounds, timeout, began: Instant::now() }
    }

    /// Steps that confined it, each confirmed before its first instruction.
    pub(crate) fn steps(&self) -> &[StepReport] {
        self.program.steps()
    }

    /// An aborter of it. `None` if it is the only one of its session, and ends with that.
    pub(crate) fn aborter(&self) -> Option<Aborter> {
        self.program.aborter()
    }

    /// Hears it until it has ended, and all that it started with it, while `feed` writes what it is to read. Whoever holds its
    /// streams after that is no part of it, and is not waited for.
    ///
    /// It is ended when it prints more than it may, when the listener has enough, and by orders. One that its worker does not end
    /// in time is killed with its worker. Nothing of it runs when this returns.
    ///
    /// # Errors
    /// [`ConfineError::TimedOut`] for such a one, also if it is not gone for a long time after it was killed;
    /// [`ConfineError::WorkerLost`] if its worker was killed from outside.
    pub(crate) async fn follow(
        mut self,
        listener: &mut impl Listener,
        feed: impl Future<Output = ()>,
        orders: Orders,
    ) -> Result<ProgramEnded, ConfineError> {
        match self.hear(listener, feed, orders).await {
            Ok(end) => Ok(self.ended(end)),
            Err(error) => match self.program.kill().await {
                // With its session everything has ended.
                Ok(()) | Err(ConfineError::Ended) => Err(error),
                Err(lives) => Err(lives),
            },
        }
    }

    async fn hear(
        &mut self,
        listener: &mut impl Listener,
        feed: impl Future<Output = ()>,
        mut orders: Orders,
    ) -> Result<ProgramEnd, ConfineError> {
        let Self { program, outputs: [out, err], seen, most, timeout, .. } = self;
        let buffer = |output: &Option<ProgramOutput>| vec![0; if output.is_some() { PIECE } else { 0 }];
        let (mut of_out, mut of_err) = (buffer(out), buffer(err));
        let mut take = |stream: ProgramStream, piece: &[u8], listener: &mut _| {
            if piece.is_empty() {
                return false;
            }
            *seen += piece.len() as u64;
            Listener::hear(listener, stream, piece);
            most.is_some_and(|most| *seen > most) || Listener::has_enough(listener)
        };
        let mut patience = Patience::with(*timeout);
        let mut ended = std::pin::pin!(program.wait());
        let mut feed = std::pin::pin!(feed);
        let (mut is_fed, mut has_enough) = (false, false);
        let (mut out_ends, mut err_ends) = (out.is_none(), err.is_none());
        let end = loop {
            let stop = tokio::select! {
                () = &mut feed, if !is_fed => {
                    is_fed = true;
                    continue;
                }
                got = streams::read(out, &mut of_out), if !out_ends && !has_enough => {
                    out_ends = got == 0;
                    has_enough = take(ProgramStream::Out, &of_out[..got], listener);
                    if has_enough { Stop::Kill } else { continue }
                }
                got = streams::read(err, &mut of_err), if !err_ends && !has_enough => {
                    err_ends = got == 0;
                    has_enough = take(ProgramStream::Err, &of_err[..got], listener);
                    if has_enough { Stop::Kill } else { continue }
                }
                stop = orders.next() => stop,
                () = patience.ends() => match patience.order {
                    Stop::Terminate => Stop::Kill,
                    Stop::No => break Err(ConfineError::TimedOut(*timeout)),
                    Stop::Kill => break Err(ConfineError::TimedOut(GRACE)),
                },
                end = &mut ended => break end,
            };
            // One that is blocked in a write ends all the same.
            patience.order(program, stop).await;
        };
        if has_enough {
            // Of what it printed nothing more is wanted, but for the reason that it may have said.
            if let Some(got) = err.as_ref().and_then(|err| err.read_now(&mut of_err)) {
                listener.hear(ProgramStream::Err, &of_err[..got]);
            }
            return end;
        }
        // What it wrote last is still in the pipes.
        for (stream, output, buffer) in [(ProgramStream::Out, out, &mut of_out), (ProgramStream::Err, err, &mut of_err)]
        {
            for _ in 0..PIPE_MAX / PIECE {
                let Some(got) = output.as_ref().and_then(|output| output.read_now(buffer)) else { break };
                take(stream, &buffer[..got], listener);
            }
        }
        end
    }

    /// Meaning of its end.
    fn ended(self, end: ProgramEnd) -> ProgramEnded {
        let Self { program, bounds, timeout, began, .. } = self;
        let seen = self.most.map(|_| self.seen);
        let timeout = (timeout < FOREVER).then(|| limits::ms(timeout));
        let changes = program.changes();
        let hit = limits::ended_for(&bounds, &end, seen);
        ProgramEnded {
            took: began.elapsed(),
            limits: limits::of_program(&bounds, &end, timeout, seen, changes),
            ended_for: hit.map(|hit| limits::denial(&bounds, hit, end.left)),
            changes: changes.filter(|changes| !changes.is_empty()).cloned(),
            end,
            program,
        }
    }
}
