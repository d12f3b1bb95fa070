//! Requests that are taken back when nobody waits for their answer any more.

use rmcp::model::{CancelledNotification, CancelledNotificationParam, RequestId};
use rmcp::service::{Peer, ServiceRole};

/// A request, until it is answered. Dropped before, it is taken back.
pub(crate) struct TakenBack<R: ServiceRole> {
    peer: Peer<R>,
    id: Option<RequestId>,
    why: &'static str,
}

impl<R: ServiceRole> TakenBack<R> {
    pub(crate) fn new(peer: Peer<R>, id: RequestId, why: &'static str) -> Self {
        Self { peer, id: Some(id), why }
    }

    pub(crate) fn answered(mut self) {
        self.id = None;
    }
}

impl<R: ServiceRole> Drop for TakenBack<R> {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), tokio::runtime::Handle::try_current()) else { return };
        let (peer, why) = (self.peer.clone(), self.why);
        runtime.spawn(async move {
            let cancelled = CancelledNotification::new(CancelledNotificationParam::new(Some(id), Some(why.to_owned())));
            // Another side that is gone does nothing.
            drop(peer.send_notification(cancelled.into()).await);
        });
    }
}
