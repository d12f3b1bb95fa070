//! Several calls that a model made in one message.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use callgate_policy::envelope::ResultEnvelope;
use serde_json::Value;

use crate::session::Session;

impl Session {
    /// Makes several calls, each a tool's name and its arguments, and returns their results in the same order (X1-22).
    ///
    /// First all of them pass rules, watchdogs and people, one after the other; nothing runs before the last answer. Then those
    /// that passed run: calls that only read side by side, each of the others alone, in their order (C-17). What fails or is
    /// denied fails nothing else. `task` counts as a call that only reads: what a subagent changes, it changes in its own session,
    /// while the others of this one that only read run beside it. Dropping the future aborts all of them.
    pub async fn batch<S: Into<String>>(&self, calls: impl IntoIterator<Item = (S, Value)>) -> Vec<ResultEnvelope> {
        let aborted = self.aborts.listen();
        let calls: Vec<(String, Value)> = calls.into_iter().map(|(tool, args)| (tool.into(), args)).collect();
        let entered = self.tools.lifecycle.enter_all(calls.iter().map(|(tool, _)| tool.as_str())).await;
        let proposed = calls.into_iter().zip(&entered).map(|((tool, args), entered)| self.propose(entered, tool, args));
        let proposed: Vec<_> = proposed.collect();
        let mut passed = Vec::new();
        for mut call in proposed {
            let first = aborted.clone().unless(self.let_pass(&mut call)).await;
            passed.push((call, first));
        }
        let runs = passed.into_iter().map(|(mut call, first)| {
            let mut aborted = aborted.clone();
            async move {
                let outcome = match first {
                    Ok(first) => aborted.unless(self.run(first, &mut |_piece| {}, &mut call)).await,
                    Err(error) => Err(error),
                };
                self.conclude(call, outcome).await
            }
        });
        all(runs).await
    }
}

/// Waits for all of them at once. A message has tens of calls, so each is polled whenever one of them has something to do.
pub(crate) async fn all<T>(futures: impl Iterator<Item = impl Future<Output = T> + Send>) -> Vec<T> {
    enum Each<'a, T> {
        Runs(Pin<Box<dyn Future<Output = T> + Send + 'a>>),
        Done(T),
    }
    let mut each: Vec<Each<'_, T>> = futures.map(|future| Each::Runs(Box::pin(future))).collect();
    poll_fn(|context| {
        let mut all_done = true;
        for one in &mut each {
            if let Each::Runs(future) = one {
                match future.as_mut().poll(context) {
                    Poll::Ready(done) => *one = Each::Done(done),
                    Poll::Pending => all_done = false,
                }
            }
        }
        if all_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    let done = each.into_iter().filter_map(|one| match one {
        Each::Done(done) => Some(done),
        Each::Runs(_) => None,
    });
    done.collect()
}
