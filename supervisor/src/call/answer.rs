//! Answers of the host, or of another process, to a call.

use serde_json::{Value, json};

use super::envelope::Done;
use super::rest::Rest;
use crate::error::CallError;
use crate::registry::{Handler, HandlerCall, Tool};
use crate::run::ANSWER_MAX;
use crate::session::Session;
use crate::turn::Turn;

impl Session {
    /// Asks whoever answers, for as long as the tool has time.
    pub(super) async fn answered(
        &self,
        tool: &Tool,
        handler: &dyn Handler,
        args: Value,
        turn: Turn,
    ) -> Result<Done, CallError> {
        let call = HandlerCall { tool: tool.name.clone(), session: self.id.clone(), args };
        let timeout = tool.timeout.unwrap_or(super::TIMEOUT);
        let answer = tokio::time::timeout(timeout, handler.answer(call)).await;
        drop(turn);
        let data = answer.map_err(|_elapsed| CallError::TimedOut(timeout))?.map_err(CallError::Tool)?;
        self.cut(tool, data)
    }

    /// Result of a text that is a part of the result.
    pub(crate) fn cut_text(&self, tool: &Tool, text: &str, data: impl FnOnce(&str) -> Value) -> Done {
        let limit = usize::try_from(self.tools.lifecycle.now().output_limit(&tool.name)).unwrap_or(usize::MAX);
        if text.len() <= limit {
            return Done::of(data(text));
        }
        let at = text.floor_char_boundary(limit);
        let mut rest = Rest { tool: &tool.name, outputs: self.sandbox.outputs.as_ref(), file: None, lost: false };
        rest.add(&text.as_bytes()[at..]);
        rest.done(data(&text[..at]), true)
    }

    /// The first part of an answer that is too long; the rest is kept elsewhere (S0-44).
    pub(crate) fn cut(&self, tool: &Tool, data: Value) -> Result<Done, CallError> {
        let text = data.as_str().map_or_else(|| data.to_string(), str::to_owned);
        if text.len() > ANSWER_MAX {
            return Err(CallError::Tool(format!("`{}` answered with more than {ANSWER_MAX} bytes", tool.name)));
        }
        let limit = usize::try_from(self.tools.lifecycle.now().output_limit(&tool.name)).unwrap_or(usize::MAX);
        if text.len() <= limit {
            return Ok(Done::of(data));
        }
        let at = text.floor_char_boundary(limit);
        let mut rest = Rest { tool: &tool.name, outputs: self.sandbox.outputs.as_ref(), file: None, lost: false };
        rest.add(&text.as_bytes()[at..]);
        Ok(rest.done(json!({ "head": text[..at] }), true))
    }
}
