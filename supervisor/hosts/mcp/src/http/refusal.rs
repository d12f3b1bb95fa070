//! Answers, and refusals: answers that do not come from the SDK.

use std::borrow::Cow;
use std::convert::Infallible;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};

/// When a client that found no room may come again, seconds: sessions end with their clients, at any time.
const RETRY: &str = "5";

pub(super) type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Reason why a request gets no answer of the SDK's.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    what: Cow<'static, str>,
    /// True if the connection is of no more use.
    is_last: bool,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, what: impl Into<Cow<'static, str>>) -> Self {
        Self { status, what: what.into(), is_last: false }
    }

    pub(super) fn last(self) -> Self {
        Self { is_last: true, ..self }
    }

    /// Refusal of who is not known.
    pub(super) fn unknown() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "`Authorization: Bearer TOKEN` is missing, or is of no use here").last()
    }

    /// Refusal of a session that is not there, or is not this holder's.
    pub(super) fn no_session() -> Self {
        Self::new(StatusCode::NOT_FOUND, "there is no such session: begin with `initialize`")
    }

    #[cfg(test)]
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// The answer that says so.
    pub(super) fn answer(self) -> Answer {
        let mut answer = Response::new(Full::new(Bytes::from(format!("{}\n", self.what))).boxed());
        *answer.status_mut() = self.status;
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if self.is_last {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"callgate\""));
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY));
        }
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(ALLOW, HeaderValue::from_static("POST, GET, DELETE"));
        }
        answer
    }
}
