//! The trace that a call is a part of (W3C Trace Context), as whoever made the call has said.

use std::fmt;

tokio::task_local! {
    static CURRENT: Traceparent;
}

/// A `traceparent` (W3C Trace Context): which trace a call is a part of. It is recorded and passed on, and decides nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traceparent(String);

impl Traceparent {
    /// `None` for what is malformed: it is then as if nothing had been said.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let is_some = |part: &str| part.bytes().any(|byte| byte != b'0');
        let parts: Vec<&str> = text.split('-').collect();
        let [version, trace, parent, flags] = parts[..] else { return None };
        let has_lengths = [version.len(), trace.len(), parent.len(), flags.len()] == [2, 32, 16, 2];
        let is_whole = has_lengths && parts.iter().all(|part| is_hex(part));
        (is_whole && version != "ff" && is_some(trace) && is_some(parent)).then(|| Self(text.to_owned()))
    }

    /// Trace of the calls that are made within the same future.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    /// Makes the calls that are made within `calls` a part of this trace.
    pub async fn scope<F: Future>(self, calls: F) -> F::Output {
        CURRENT.scope(self, calls).await
    }

    /// As it was said.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Does the work as a part of a trace, if there is one.
pub(crate) async fn within<F: Future>(trace: Option<Traceparent>, work: F) -> F::Output {
    match trace {
        Some(trace) => trace.scope(work).await,
        None => work.await,
    }
}

#[cfg(test)]
mod tests {
    use super::Traceparent;

    #[test]
    fn what_is_malformed_is_none() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(Traceparent::parse(good).map(|trace| trace.to_string()).as_deref(), Some(good));
        for bad in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333\u{e9}-1",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n",
        ] {
            assert_eq!(Traceparent::parse(bad), None, "{bad:?}");
        }
    }
}
