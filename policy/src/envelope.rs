//! The result envelope: one shape for every tool (S0-42), with what enforced what.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One result, whatever the tool (S0-42, S0-68, C-13).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultEnvelope {
    /// `output` or `error`.
    #[serde(rename = "type")]
    pub kind: Outcome,
    /// The tool's result, in the shape its tool documents (C-27). Present when `type` is `output`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub data: Option<Value>,
    /// What went wrong, the offending input and the next step. Present when `type` is `error`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error_text: Option<String>,
    /// Everything about the call that is not its result.
    pub metadata: Metadata,
}

/// Whether a call gave a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It did; a failing `bash` command included (C-13).
    Output,
    /// It did not.
    Error,
}

/// What accompanies a result.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Metadata {
    /// Wall time of the call, milliseconds, from validation to the last byte.
    pub duration_ms: u64,
    /// The result was cut to the tool's limit (S0-44).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub truncated: Option<bool>,
    /// Where the rest is (S0-44).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub output_path: Option<String>,
    /// There is no result because the call's time was up.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub timed_out: Option<bool>,
    /// Which layer said no, when one did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub denial: Option<Denial>,
    /// What confined the call. Made from steps that the kernel confirmed, never from the plan (C-18).
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub enforced: Vec<Enforced>,
}

/// One thing that was granted or closed, and what holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforced {
    /// What: `fs.read`, `fs.write`, `net`, `shell`, `ipc`, `process`, `privilege`, …
    pub what: String,
    /// The mechanisms, each confirmed: `landlock abi 7`, `seccomp`, `network namespace`, …
    pub by: Vec<String>,
}

/// The layer that refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// The arguments did not match the tool's schema (S0-4).
    Schema,
    /// Layer 1: outside the EffectiveSet.
    Capability,
    /// Layer 2: the watchdog.
    Watchdog,
    /// Layer 3: the kernel.
    Sandbox,
    /// The host cannot enforce what was asked.
    Host,
}

/// Why a call did not go through, and the smallest change that would let it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denial {
    /// Who refused.
    pub layer: Layer,
    /// What was asked for: a path, a host, an argv.
    pub asked: String,
    /// The rule or the missing grant.
    pub reason: String,
    /// What to type, or to write in the manifest.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub remedy: Option<String>,
}

/// One confinement step that was performed and that the kernel confirmed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepReport {
    /// The step's name, as in `worker/src/apply.rs`.
    pub step: String,
    /// What was confirmed, read back from the kernel where it can be: `abi 7, 12 rules`.
    pub detail: String,
}
