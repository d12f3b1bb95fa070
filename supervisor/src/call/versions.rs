//! Additions of a session to `diagnostics` (S2-16): its sandbox, as the kernel confirmed it for this very call, and the
//! versions of the programs that it may start.
//!
//! Each program is a step of its own, which passes all layers. Nobody is asked about one: what a person would have to decide is
//! left out, with the reason.

use serde_json::{Value, json};

use super::enforced;
use super::envelope::Done;
use super::step::{CallStep, Next, StepStanding};
use crate::error::CallError;
use crate::gate::Known;
use crate::registry::{Attempt, Tool, Understood, versions};
use crate::session::Session;

/// The most of a version that is reported, characters.
const VERSION_MAX: usize = 200;

/// Programs that are asked for their versions.
pub(super) struct Versions {
    left: std::vec::IntoIter<(&'static str, Tool)>,
    /// The program that has been asked last.
    asked: Option<&'static str>,
    found: Vec<Value>,
    /// The result, once there is one.
    done: Option<Done>,
}

impl Default for Versions {
    fn default() -> Self {
        Self { left: versions().into_iter(), asked: None, found: Vec::new(), done: None }
    }
}

impl Versions {
    /// Takes the result of the call itself, then a version with each step, and adds what was found in the end.
    pub(super) fn next(&mut self, session: &Session, known: &Known, result: Result<Done, CallError>) -> Next {
        match (self.asked.take(), result) {
            (None, Ok(mut done)) => {
                done.data["sandbox"] = session.sandbox_of(known);
                self.done = Some(done);
            }
            (None, Err(error)) => return Next::End(Err(error)),
            (Some(program), result) => {
                self.found.push(match result.map_err(|error| cause(&error)).and_then(|done| version(&done.data)) {
                    Ok(version) => json!({ "program": program, "version": version }),
                    Err(why) => json!({ "program": program, "unknown": why }),
                });
            }
        }
        if let Some((program, tool)) = self.left.next() {
            self.asked = Some(program);
            let (other, args) = (Some(Box::new(tool)), Understood::of(json!({})));
            return Next::Step(CallStep { other, args, attempt: Attempt::default(), standing: StepStanding::Beside });
        }
        let mut done = self.done.take().unwrap_or_else(|| Done::of(json!({})));
        done.data["toolchain"] = std::mem::take(&mut self.found).into();
        Next::End(Ok(done))
    }
}

impl Session {
    /// The sandbox that confined a call.
    fn sandbox_of(&self, known: &Known) -> Value {
        let network: Vec<String> = self.granted_hosts().hosts.iter().map(ToString::to_string).collect();
        json!({
            "strength": self.sandbox.facts.strength,
            "profile": self.gate.profile.name.to_string(),
            "network": network,
            "enforced": enforced(self, &known.steps),
        })
    }
}

/// The version that a program has said, or why there is none.
fn version(data: &Value) -> Result<String, String> {
    let line = data["output"].as_str().unwrap_or_default().lines().next().unwrap_or_default();
    let line: String = line.chars().filter(|c| !c.is_control()).take(VERSION_MAX).collect();
    match &data["exit_code"] {
        Value::Number(code) if code.as_i64() == Some(0) && !line.is_empty() => Ok(line),
        Value::Number(code) => Err(format!("it ended with status {code}")),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            Err("it did not end by itself".to_owned())
        }
    }
}

/// Reason why something failed, without what was being done: that is plain here.
fn cause(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}
