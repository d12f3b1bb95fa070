//! Egress: the process through which a session reaches what it was granted of the network (design "Network").
//!
//! It stands in the host's network, and reads what strangers wrote: questions for names, TLS hellos, heads of HTTP. So it is a
//! process of its own that has no file, no program and no other process, and knows nothing but the granted hosts, and what is
//! added to requests for them. The broker tells it of each connection that a call asks for; the call's socket is then connected to
//! it, and it decides what becomes of that. Whoever takes it over reaches what can be connected to from the host, and nothing else.

mod confine;
mod connection;
mod credentials;
#[cfg(any(fuzzing, test))]
#[allow(clippy::expect_used, unreachable_pub, reason = "a fuzz target is to stop, and is a program of its own")]
pub mod fuzzing;
mod hello;
mod http;
mod lock;
mod meter;
mod names;
mod opening;
mod other;
mod proxy;
mod relay;
#[cfg(test)]
mod seeds;
mod serving;
mod stream;
#[cfg(test)]
mod tests;
mod upstream;

use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;

use callgate_policy::envelope::StepReport;
use callgate_policy::plan::Identity;
use callgate_policy::step::Step;
use tokio::runtime::Runtime;

use self::credentials::SealedCredentials;
pub(crate) use self::serving::BACKLOG;
use self::serving::{Egress, Sockets};
use self::upstream::Resolver;
use crate::apply::failure;
use crate::protocol::{Channel, FromEgress, Received, Serve, StepFailure};

/// The life of the process: it hears what to serve, confines itself, and serves until the broker is gone. Returns its exit code.
///
/// What it adds to requests comes by a descriptor that no other process of the session has had.
pub(crate) fn run(broker: Channel, credentials: Option<OwnedFd>, identity: Identity, landlock_abi: u8) -> i32 {
    match start(&broker, credentials, identity, landlock_abi) {
        // The session was given up before it began.
        Ok(None) => 0,
        Ok(Some((ready, steps))) => {
            let said = broker.send(&FromEgress::Serving(steps), &[]);
            let served = said.and_then(|()| ready.serve(broker));
            i32::from(served.is_err()) * 70
        }
        Err(failed) => i32::from(broker.send(&FromEgress::Failed(failed), &[]).is_err()) * 70,
    }
}

/// Confined, and ready to serve.
struct ReadyEgress {
    runtime: Runtime,
    serve: Serve,
    sockets: Sockets,
    resolver: Resolver,
    credentials: SealedCredentials,
    /// For how many connections at once.
    room: usize,
}

fn start(
    broker: &Channel,
    credentials: Option<OwnedFd>,
    identity: Identity,
    landlock_abi: u8,
) -> Result<Option<(ReadyEgress, Vec<StepReport>)>, StepFailure> {
    let mut steps = confine::become_ready(identity)?;
    let heard = broker.receive().map_err(failure(Step::Egress, "hear what to serve"))?;
    let Received::Message(serve, fds) = heard else { return Ok(None) };
    let sockets = sockets(&serve, fds)?;
    let credentials = SealedCredentials::read(credentials)?;
    // While there are files to read it from.
    let resolver = Resolver::of_host()
        .map_err(|e| StepFailure::new(Step::Egress, format!("read how names are resolved ({e})")))?;
    // With the descriptors that it takes, which the filter does not let be made.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(failure(Step::Egress, "make its event loop"))?;
    let room = serving::room();
    steps.extend(confine::confine(&serve.network, landlock_abi)?);
    Ok(Some((ReadyEgress { runtime, serve, sockets, resolver, credentials, room }, steps)))
}

fn sockets(serve: &Serve, fds: Vec<OwnedFd>) -> Result<Sockets, StepFailure> {
    let mut fds = fds.into_iter();
    let absent = || StepFailure::new(Step::Egress, "the sockets to listen on did not come");
    let listener = TcpListener::from(fds.next().ok_or_else(absent)?);
    let names = if serve.names { Some(UdpSocket::from(fds.next().ok_or_else(absent)?)) } else { None };
    Ok(Sockets { listener, names })
}

impl ReadyEgress {
    fn serve(self, broker: Channel) -> std::io::Result<()> {
        let Self { runtime, serve, sockets, resolver, credentials, room } = self;
        let served = runtime.block_on(async move {
            let egress = Egress::new(serve.network, (resolver, credentials), broker, room)?;
            egress.serve(sockets).await
        });
        // Whatever is under way ends with the process.
        runtime.shutdown_background();
        served
    }
}
