//! Which calls of a session may run side by side (S3-6, S3-7, C-17).

use std::sync::Arc;

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// Whether calls of a tool may run beside others. What a tool does not say is that they may.
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
    SideBySide { _guard: OwnedRwLockReadGuard<()> },
    Alone { _guard: OwnedRwLockWriteGuard<()> },
}

impl Turns {
    /// Waits for the turn of a call. Its place is that of the first poll (tokio's lock is fair).
    pub(crate) async fn take(&self, concurrency: Concurrency) -> Turn {
        let lock = Arc::clone(&self.0);
        match concurrency {
            Concurrency::SideBySide => Turn::SideBySide { _guard: lock.read_owned().await },
            Concurrency::Alone => Turn::Alone { _guard: lock.write_owned().await },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

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

    /// C-17: a tool that says nothing runs alone; those that only read have said so.
    #[test]
    fn c_17_unless_declared_a_tool_runs_alone() {
        assert_eq!(Concurrency::default(), Concurrency::Alone);
        let registry = crate::Registry::locked().expect("contracts are constants");
        let shared: Vec<_> =
            registry.tools().filter(|tool| tool.concurrency == Concurrency::SideBySide).map(|tool| tool.id).collect();
        assert_eq!(shared, ["read", "glob", "grep"]);
    }
}
