//! Which calls of a session may run side by side (S3-6, S3-7, C-17).

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, OwnedSemaphorePermit, RwLock};

/// Concurrency of a tool's calls: whether they may run beside others. What a tool does not say is that they may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Concurrency {
    /// One at a time, in the order of the calls: it changes something.
    #[default]
    Alone,
    /// Beside others of its kind: it only reads.
    SideBySide,
}

/// The queue of a session: calls that only read run side by side, each that changes something runs alone, and nobody passes
/// anybody who came before and has to wait.
#[derive(Debug, Default)]
pub(crate) struct Turns(Arc<RwLock<()>>);

/// A call's place. Held until nothing of the call runs any more.
#[derive(Debug)]
pub(crate) enum Turn {
    SideBySide {
        _guard: OwnedRwLockReadGuard<()>,
    },
    Alone {
        _guard: OwnedRwLockWriteGuard<()>,
    },
    /// Turn of a task in the background, beside all calls: its place among the tasks.
    Background {
        _place: OwnedSemaphorePermit,
    },
    /// Turn of a program that the host has started, beside all calls.
    Host,
}

/// A call's place in the queue, which it keeps while it is looked at and a person is asked about it: who comes later waits for
/// the answer too (X1-22). Dropping it gives the place up.
pub(crate) enum Place {
    /// It is its turn.
    Turn(Turn),
    Waits(Pin<Box<dyn Future<Output = Turn> + Send>>),
}

impl Turns {
    /// Takes the next place. It does not wait: not even to be polled again.
    pub(crate) async fn queue(&self, concurrency: Concurrency) -> Place {
        let mut waits = Box::pin(turn(Arc::clone(&self.0), concurrency));
        // tokio's lock is fair: whoever was polled first comes first.
        match poll_fn(|context| Poll::Ready(waits.as_mut().poll(context))).await {
            Poll::Ready(turn) => Place::Turn(turn),
            Poll::Pending => Place::Waits(waits),
        }
    }

    /// Waits for the turn of a call that nobody is asked about.
    pub(crate) async fn take(&self, concurrency: Concurrency) -> Turn {
        self.queue(concurrency).await.turn().await
    }
}

impl Place {
    /// Waits for it.
    pub(crate) async fn turn(self) -> Turn {
        match self {
            Self::Turn(turn) => turn,
            Self::Waits(turn) => turn.await,
        }
    }
}

async fn turn(lock: Arc<RwLock<()>>, concurrency: Concurrency) -> Turn {
    match concurrency {
        Concurrency::SideBySide => Turn::SideBySide { _guard: lock.read_owned().await },
        Concurrency::Alone => Turn::Alone { _guard: lock.write_owned().await },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Waker};

    fn has_come(future: Pin<&mut impl Future<Output = Turn>>) -> Option<Turn> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        }
    }

    /// S3-6, S3-7, C-17: what reads runs side by side; what changes something runs alone, and nobody passes who came first.
    #[test]
    fn s3_6_s3_7_c_17_readers_share_and_writers_queue() {
        use Concurrency::{Alone, SideBySide};
        let turns = Turns::default();
        let (mut first, mut second) = (pin!(turns.take(SideBySide)), pin!(turns.take(SideBySide)));
        let (first, second) = (has_come(first.as_mut()), has_come(second.as_mut()));
        assert!(first.is_some() && second.is_some(), "two that read");
        let (mut writer, mut other) = (pin!(turns.take(Alone)), pin!(turns.take(Alone)));
        let mut late = pin!(turns.take(SideBySide));
        assert!(has_come(writer.as_mut()).is_none() && has_come(other.as_mut()).is_none());
        assert!(has_come(late.as_mut()).is_none(), "it came after one that changes something");
        drop(first);
        assert!(has_come(writer.as_mut()).is_none(), "one still reads");
        drop(second);
        assert!(has_come(other.as_mut()).is_none(), "it is the other's turn");
        let held = has_come(writer.as_mut());
        assert!(held.is_some() && has_come(late.as_mut()).is_none());
        drop(held);
        assert!(has_come(late.as_mut()).is_none());
        let held = has_come(other.as_mut());
        assert!(held.is_some());
        drop(held);
        assert!(has_come(late.as_mut()).is_some());
    }

    /// C-17, X1-22: who keeps a place and does not come yet is not passed; whose place is given up is.
    #[test]
    fn c_17_a_place_is_kept_while_somebody_is_asked() {
        use Concurrency::{Alone, SideBySide};
        let turns = Turns::default();
        let place = |concurrency| match pin!(turns.queue(concurrency)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(place) => place,
            Poll::Pending => unreachable!("it does not wait"),
        };
        let (first, second) = (place(Alone), place(Alone));
        assert!(matches!(&first, Place::Turn(_)) && matches!(&second, Place::Waits(_)));
        let mut reader = pin!(turns.take(SideBySide));
        let mut second = pin!(second.turn());
        assert!(has_come(reader.as_mut()).is_none() && has_come(second.as_mut()).is_none());
        drop(first);
        assert!(has_come(reader.as_mut()).is_none(), "the second is before it");
        let held = has_come(second.as_mut());
        assert!(held.is_some());
        drop(held);
        assert!(has_come(reader.as_mut()).is_some());
        let (refused, mut other) = (place(Alone), pin!(turns.take(Alone)));
        drop(refused);
        assert!(has_come(other.as_mut()).is_some());
    }

    /// C-17: a tool that says nothing runs alone; those that only read have said so.
    #[test]
    fn c_17_unless_declared_a_tool_runs_alone() {
        assert_eq!(Concurrency::default(), Concurrency::Alone);
        let registry = crate::Registry::locked().expect("contracts are constants");
        let shared: Vec<_> = registry
            .tools()
            .filter(|tool| tool.concurrency == Concurrency::SideBySide)
            .map(|tool| tool.name.as_str())
            .collect();
        assert_eq!(shared, ["read", "glob", "grep", "web_fetch", "skill", "tool_search"]);
    }
}
