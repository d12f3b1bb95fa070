//! Messages of the processes of one session to each other.
//!
//! Control frames are JSON of at most [`FRAME_MAX`] bytes over `SOCK_SEQPACKET`; a larger one travels as a sealed memfd, if it is
//! of a kind that may be larger ([`ChannelMessage::LONGEST`]). None of a worker's is.
//! A worker's frames are hostile input once it has read a call's arguments: from then on it may send result bytes and
//! an end, nothing else, and neither names a path, a status or an enforcement.

mod channel;
mod egress;
mod fds;
mod frame;
pub mod notice;
mod question;

pub use channel::{Channel, ChannelMessage, FRAME_MAX, LARGE, Received};
pub use egress::SealedCredential;
pub(crate) use egress::{ConnectTarget, ConnectionMade, FromEgress, Reach, Reached, Serve, ToEgress};
pub use fds::{CgroupFds, ProgramFds, ProgramFdsSent, SessionFds, SessionFdsSent};
pub use frame::{
    AboutToRun, AtEndpoint, FromWorker, FromZygote, Leftover, LimitHit, MayRun, OpenSession, ProgramEnd, Register,
    SessionReply, SessionSteps, StepFailure, Threads, ToBroker, ToWorker, ToZygote, ToolEnd, Used,
};
pub(crate) use frame::{shortened, shortened_to};
pub use question::{SyscallAnswer, SyscallQuestion};
