//! Additions of a session to `diagnostics` (S2-16): its sandbox, as the kernel confirmed it for this very call, and the
//! versions of the programs that it may start.
//!
//! Each program is a call of its own, which passes all layers. Nobody is asked about one: what a person would have to decide is
//! left out, and told.

use callgate_policy::plan::Strength;
use serde_json::{Value, json};

use super::envelope::Done;
use super::{Going, Proposed, enforced};
use crate::error::CallError;
use crate::gate::Known;
use crate::registry::{ReadBefore, Registry, Tool, Understood, versions};
use crate::session::Session;
use crate::turn::Concurrency;

/// The most of a version that is told, characters.
const VERSION_MAX: usize = 200;

impl Session {
    /// Adds the session's part.
    pub(super) async fn diagnose(
        &self,
        done: &mut Done,
        registry: &Registry,
        call: &mut Proposed<'_>,
    ) -> Result<(), CallError> {
        let strength = match self.sandbox.facts.strength {
            Strength::Landlock => "landlock",
            Strength::Namespaces => "namespaces",
        };
        let network: Vec<String> = self.granted_hosts().iter().map(ToString::to_string).collect();
        done.data["sandbox"] = json!({
            "strength": strength,
            "profile": self.gate.profile.name.to_string(),
            "network": network,
            "enforced": enforced(self, &call.known.steps),
        });
        let mut toolchain = Vec::new();
        for (program, tool) in versions() {
            self.goes_on(&call.tool)?;
            toolchain.push(match self.version(&tool, registry, call).await {
                Ok(version) => json!({ "program": program, "version": version }),
                Err(why) => json!({ "program": program, "unknown": why }),
            });
        }
        done.data["toolchain"] = toolchain.into();
        Ok(())
    }

    /// Has a program say its version, or says why not.
    async fn version(&self, tool: &Tool, registry: &Registry, call: &mut Proposed<'_>) -> Result<String, String> {
        let understood = Understood::of(json!({}));
        let checked = self
            .checked_on(tool, registry, (understood, &ReadBefore::default()), Going::default())
            .map_err(|e| cause(&e))?;
        let place = self.turns.queue(Concurrency::Alone).await;
        let asking = self.gate.questions.queue(Concurrency::Alone).await;
        if self.would_ask(&checked).await.map_err(|e| cause(&e))? {
            return Err("a person would have to be asked".to_owned());
        }
        // What it is confined by is not what confines the call that is reported on.
        let mut known = Known::default();
        let approved = self.pass(checked, asking, (&mut known, &mut call.recording)).await.map_err(|e| cause(&e))?;
        let turn = place.turn().await;
        let about = (&mut known, &mut call.recording);
        let ran = Box::pin(self.execute(registry, approved, turn, &mut |_| {}, about)).await;
        let data = ran.map_err(|e| cause(&e))?.data;
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
}

/// Reason why something failed, without what was being done: that is plain here.
fn cause(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}
