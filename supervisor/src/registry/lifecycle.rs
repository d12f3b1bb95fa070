//! The life of a session's tools: there, taking no more calls, gone; and replaced as a whole between turns (S1-20, S1-26).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use serde::Serialize;
use tokio::sync::{OwnedRwLockReadGuard, RwLock as Flights};

use super::Registry;

/// State of a tool: whether its calls are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ToolState {
    /// They are.
    Active,
    /// No new ones: those in flight are still carried out.
    Deactivating,
    /// None is.
    Inactive,
}

/// The tools of a session as they are now, and the calls that hold them.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    now: RwLock<Arc<Registry>>,
    /// Held by whoever makes other tools of those that are there now.
    changes: Mutex<()>,
    /// Each call holds it for reading, and what replaces the tools for writing.
    all: Arc<Flights<()>>,
    stages: Mutex<BTreeMap<String, Arc<Stage>>>,
}

/// One tool's part of that.
#[derive(Debug, Default)]
struct Stage {
    refuses: AtomicBool,
    flights: Arc<Flights<()>>,
}

/// A call that holds the tools as they were when it began.
#[derive(Debug, Clone)]
pub(crate) struct InFlight {
    registry: Arc<Registry>,
    _all: Arc<OwnedRwLockReadGuard<()>>,
    /// None of a tool that is not there.
    _one: Option<Arc<OwnedRwLockReadGuard<()>>>,
}

impl InFlight {
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }
}

/// A tool that takes no calls.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the tool `{0}` was deactivated, and takes no calls")]
pub(crate) struct Inactive(pub(crate) String);

impl Lifecycle {
    pub(crate) fn new(registry: Registry) -> Self {
        Self {
            now: RwLock::new(Arc::new(registry)),
            changes: Mutex::default(),
            all: Arc::default(),
            stages: Mutex::default(),
        }
    }

    /// The tools as they are now.
    pub(crate) fn now(&self) -> Arc<Registry> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins a call. One that comes while the tools are replaced waits for those that come.
    pub(crate) async fn enter(&self, name: &str) -> Result<InFlight, Inactive> {
        let all = Arc::new(Arc::clone(&self.all).read_owned().await);
        self.enter_one(all, name).await
    }

    /// Begins several calls as one: whoever waits until those in flight have ended would otherwise come between them, and wait
    /// for the first, which waits for the others.
    pub(crate) async fn enter_all<'a>(
        &self,
        names: impl Iterator<Item = &'a str> + Clone,
    ) -> Vec<Result<InFlight, Inactive>> {
        let all = Arc::new(Arc::clone(&self.all).read_owned().await);
        // Each tool once, and in one order, so that two that begin several do not wait for each other.
        let mut entered = BTreeMap::new();
        for name in names.clone().collect::<BTreeSet<_>>() {
            entered.insert(name, self.enter_one(Arc::clone(&all), name).await);
        }
        names.filter_map(|name| entered.get(name).cloned()).collect()
    }

    async fn enter_one(&self, all: Arc<OwnedRwLockReadGuard<()>>, name: &str) -> Result<InFlight, Inactive> {
        let registry = self.now();
        let one = match registry.find(name) {
            None => None,
            Some(tool) => {
                let stage = self.stage(&tool.name);
                let refused =
                    || stage.refuses.load(Ordering::SeqCst).then(|| Inactive(name.to_owned())).map_or(Ok(()), Err);
                refused()?;
                let one = Arc::new(Arc::clone(&stage.flights).read_owned().await);
                // It may have been deactivated since.
                refused()?;
                Some(one)
            }
        };
        Ok(InFlight { registry, _all: all, _one: one })
    }

    /// Takes no more calls of a tool, and returns when those in flight have ended. A second time it changes nothing.
    pub(crate) async fn deactivate(&self, name: &str) {
        let stage = self.stage(name);
        stage.refuses.store(true, Ordering::SeqCst);
        drop(stage.flights.write().await);
    }

    /// Takes calls again.
    pub(crate) fn activate(&self, name: &str) {
        self.stage(name).refuses.store(false, Ordering::SeqCst);
    }

    pub(crate) fn state(&self, name: &str) -> ToolState {
        let stage = self.stage(name);
        match (stage.refuses.load(Ordering::SeqCst), stage.flights.try_write().is_ok()) {
            (false, _) => ToolState::Active,
            (true, false) => ToolState::Deactivating,
            (true, true) => ToolState::Inactive,
        }
    }

    /// Replaces the tools when no call is in flight. What `load` returns as an error changes nothing.
    pub(crate) async fn replace<T, E>(&self, load: impl FnOnce(&Registry) -> Result<(Registry, T), E>) -> Result<T, E> {
        let _nobody = self.all.write().await;
        self.change(load)
    }

    /// Changes the registry at once: a call that is in flight keeps the tools that it began with.
    pub(crate) fn change<T, E>(&self, load: impl FnOnce(&Registry) -> Result<(Registry, T), E>) -> Result<T, E> {
        let _alone = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let (registry, told) = load(&self.now())?;
        let there: Vec<String> = registry.names().into_iter().map(str::to_owned).collect();
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(registry);
        // A tool that is gone and comes back is a new one.
        self.stages.lock().unwrap_or_else(PoisonError::into_inner).retain(|name, _| there.contains(name));
        Ok(told)
    }

    fn stage(&self, name: &str) -> Arc<Stage> {
        let mut stages = self.stages.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(stages.entry(name.to_owned()).or_default())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// S1-20, S1-26, X1-22: several calls begin as one. Whoever waits until those in flight have ended does not come between them:
    /// it would wait for the first, and the first for the others.
    #[test]
    fn s1_20_s1_26_x1_22_calls_of_a_batch_do_not_wait_for_who_waits_for_them() {
        let tools = Lifecycle::new(Registry::locked().unwrap());
        let first = match poll(pin!(tools.enter("read"))) {
            Poll::Ready(first) => first.unwrap(),
            Poll::Pending => unreachable!("nobody is before it"),
        };
        let mut gone = pin!(tools.deactivate("bash"));
        assert!(poll(gone.as_mut()).is_ready(), "no call of it is in flight");
        let mut waits = pin!(tools.replace(|_now| Ok::<_, ()>((Registry::locked().unwrap(), ()))));
        assert!(poll(waits.as_mut()).is_pending(), "one is in flight");
        let mut batch = pin!(tools.enter_all(["read", "read", "bash", "nothing", "read"].into_iter()));
        assert!(poll(batch.as_mut()).is_pending(), "it waits for what comes");
        drop(first);
        assert!(poll(waits.as_mut()).is_ready());
        let Poll::Ready(entered) = poll(batch.as_mut()) else { unreachable!("they hold the tools together") };
        assert_eq!(entered.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false, true, true]);
        let mut waits = pin!(tools.replace(|_now| Ok::<_, ()>((Registry::locked().unwrap(), ()))));
        assert!(poll(waits.as_mut()).is_pending());
        drop(entered);
        assert!(poll(waits.as_mut()).is_ready());

        // One that has begun, and waits for a tool of its own.
        let Poll::Ready(Ok(edit)) = poll(pin!(tools.enter("edit"))) else { unreachable!("nobody is before it") };
        let mut gone = pin!(tools.deactivate("edit"));
        assert!(poll(gone.as_mut()).is_pending(), "a call of it is in flight");
        tools.activate("edit");
        let mut batch = pin!(tools.enter_all(["edit", "read"].into_iter()));
        assert!(poll(batch.as_mut()).is_pending());
        let mut waits = pin!(tools.replace(|_now| Ok::<_, ()>((Registry::locked().unwrap(), ()))));
        assert!(poll(waits.as_mut()).is_pending());
        drop(edit);
        assert!(poll(gone.as_mut()).is_ready());
        let Poll::Ready(entered) = poll(batch.as_mut()) else { unreachable!("who came later does not stop it") };
        assert!(entered.iter().all(Result::is_ok) && poll(waits.as_mut()).is_pending());
    }
}
