//! The result envelope: one shape for every tool (S0-42), with what enforced what.

use std::collections::BTreeMap;

use crate::failure::{ErrorCode, Failure};
use crate::step::Step;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::limit::LimitReport;
use crate::rules::{Decision, SubPolicyReport};

/// One result, whatever the tool (S0-42, S0-68, C-13).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ResultEnvelope {
    /// `output` or `error`.
    #[serde(rename = "type")]
    pub kind: Outcome,
    /// The tool's result, in the shape its tool documents (C-27). Present when `type` is `output`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub data: Option<Value>,
    /// Mistake, the offending input and the next step. Present when `type` is `error`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error_text: Option<String>,
    /// Everything about the call that is not its result.
    pub metadata: Metadata,
}

impl ResultEnvelope {
    /// The envelope of a call that gave `data`.
    #[must_use]
    pub fn output(data: Value, metadata: Metadata) -> Self {
        Self { kind: Outcome::Output, data: Some(data), error_text: None, metadata }
    }

    /// The envelope of a call that gave no result.
    #[must_use]
    pub fn error(text: impl Into<String>, metadata: Metadata) -> Self {
        Self { kind: Outcome::Error, data: None, error_text: Some(text.into()), metadata }
    }
}

/// Kind of end: whether a call gave a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It did; a failing `bash` command included (C-13).
    Output,
    /// It did not.
    Error,
}

/// Data that accompany a result.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Metadata {
    /// Wall time of the call, milliseconds, from validation to the last byte.
    pub duration_ms: u64,
    /// The result was cut to the tool's limit (S0-44).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub truncated: Option<bool>,
    /// A file with the rest (S0-44). It exists as long as the session, or longer where the host named a directory for it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub output_path: Option<String>,
    /// Reason why not all of the rest was kept, and how to keep it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rest_lost: Option<String>,
    /// There is no result because the call's time was up.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub timed_out: Option<bool>,
    /// Kind of error, for programs (X1-25). Present when `type` is `error`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<Failure>,
    /// Which layer said no, when one did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub denial: Option<Denial>,
    /// Mechanisms that confined the call. Made from steps that the kernel confirmed, never from the plan (C-18).
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub enforced: Vec<Enforced>,
    /// The call's limits: who held each, what was used, and whether it was met.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub limits: Vec<LimitReport>,
    /// Which arguments were given as another type than the schema's, and taken as that (C-21). Only in sessions that allow it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub coerced: Vec<Coerced>,
    /// Result of rules and mode for the call, and the rule that decided.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub decision: Option<Decision>,
    /// Rights that the call was narrowed to, where it had less than its session (S0-15).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sub_policy: Option<SubPolicyReport>,
    /// Who said yes, where somebody was asked: `session` for an answer that was kept.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub approved_by: Option<String>,
    /// The trace that the call is a part of, if whoever made it has said so: a W3C `traceparent`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub traceparent: Option<String>,
    /// Reason why the end of the call is not in the record of its session. The next call waits until it is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub not_recorded: Option<String>,
    /// Changes by the call in trees with kept names, where the broker is the writer and knows.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub changes: Option<Changes>,
    /// The tool was called by a name that will go (S2-25).
    #[serde(rename = "_deprecation", skip_serializing_if = "Option::is_none", default)]
    pub deprecation: Option<Deprecation>,
}

/// A name of a tool that still works and will go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Deprecation {
    /// The name that was called.
    pub this_tool: String,
    /// The name to call.
    pub use_instead: String,
    /// The version from which the old name is unknown.
    pub removed_in: String,
    /// Message in a sentence.
    pub message: String,
}

impl Deprecation {
    /// `this_tool` goes in the version `removed_in`, and `use_instead` stays.
    #[must_use]
    pub fn new(this_tool: impl Into<String>, use_instead: impl Into<String>, removed_in: impl Into<String>) -> Self {
        let (this_tool, use_instead, removed_in) = (this_tool.into(), use_instead.into(), removed_in.into());
        let message = format!("`{this_tool}` is deprecated and will be removed in {removed_in}; call `{use_instead}`");
        Self { this_tool, use_instead, removed_in, message }
    }
}

impl Metadata {
    /// Metadata of a call that took this long. All else is filled in by who knows it.
    #[must_use]
    pub fn new(duration_ms: u64) -> Self {
        Self { duration_ms, ..Self::default() }
    }
}

/// An argument that was taken as another type than it was given as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Coerced {
    /// Where it stands in the arguments: a JSON pointer, such as `/start_line`.
    pub argument: String,
    /// The type that it was given as: `string`, `integer`, `null`, …
    pub from: String,
    /// The type that it was taken as; `absent` if it was left out.
    pub to: String,
}

/// Changes by a call. Paths are as the kernel has them; those that are not UTF-8 are shown with U+FFFD.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Changes {
    /// Files and directories that are there now and were not.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub created: Vec<String>,
    /// Files that were opened for writing, or replaced.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub changed: Vec<String>,
    /// Paths that were there and are not.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub removed: Vec<String>,
    /// New repositories, under any name, and files that say where one is: their hooks and configuration are the call's. What in
    /// them runs a program is in `runs_later`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub repositories: Vec<String>,
    /// Files that another program will run later, or be told by.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub runs_later: Vec<Note>,
    /// Kept names that the call tried to change.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub refused: Vec<Note>,
    /// Programs that the call tried to start and that were not granted: the argument vector, and why not.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub not_started: Vec<Note>,
    /// Addresses that the call tried to connect to and did not reach, because nothing grants them.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub not_reached: Vec<NotReached>,
    /// Acts that no call may do, and how often this one tried.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub blocked: BTreeMap<Blocked, u64>,
    /// Files that the call has left in a `/tmp` that only its session sees: they go with it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub vanished: Vec<String>,
    /// Bytes that its connections to granted hosts have carried, if it had some.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub carried: Option<Carried>,
    /// How many more there are, for which there was no room.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub more: u64,
}

/// Bytes that connections have carried, as their hosts see it: with TLS, its bytes are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// How many were made.
    pub connections: u64,
    /// Bytes to the hosts.
    pub sent: u64,
    /// Bytes from them.
    pub received: u64,
}

impl Carried {
    /// Both ways together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sent.saturating_add(self.received)
    }
}

impl Changes {
    /// Nothing was changed, and nothing refused.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Where a call wanted to connect to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NotReached {
    /// `HOST:PORT`, the name of a host that was looked up, or the path of a unix socket.
    pub address: String,
    /// How often it tried.
    pub count: u64,
    /// Reason, if it is another than that it was not granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl NotReached {
    /// This address was tried so often.
    #[must_use]
    pub fn new(address: impl Into<String>, count: u64) -> Self {
        Self { address: address.into(), count, why: None }
    }

    /// For another reason than that it was not granted.
    #[must_use]
    pub fn because(self, why: Option<String>) -> Self {
        Self { why, ..self }
    }
}

/// Acts that no call may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Blocked {
    /// Watch or change another process, or be watched: ptrace(2).
    Ptrace,
    /// Mount, unmount, or change the root.
    Mount,
    /// Make a namespace, or enter one.
    Namespace,
    /// Take another user or group: setuid(2) and its kin.
    Identity,
    /// Give a file to another user or group: chown(2).
    Owner,
    /// Install a seccomp filter with a listener of its own, of which a process has one: the broker's.
    SeccompListener,
    /// Make a datagram socket as resolvers do, to look up a name. How many sockets that takes is the resolver's choice.
    NameLookup,
    /// Make another datagram socket for the network.
    DatagramSocket,
    /// Make a socket of another kind for the network, such as a raw one.
    OtherSocket,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Coerced {
    /// The argument at this JSON pointer, given as the type `from` and taken as the type `to`.
    #[must_use]
    pub fn new(argument: impl Into<String>, from: impl Into<String>, to: impl Into<String>) -> Self {
        Self { argument: argument.into(), from: from.into(), to: to.into() }
    }
}

/// A path, or an argument vector, and what is to be said of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Note {
    /// The path.
    pub path: String,
    /// Reason why it is named.
    pub why: String,
}

impl Note {
    /// This path is named for this reason.
    #[must_use]
    pub fn new(path: impl Into<String>, why: impl Into<String>) -> Self {
        Self { path: path.into(), why: why.into() }
    }
}

/// One thing that was granted or closed, and what holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Enforced {
    /// Kind of right: `fs.read`, `fs.write`, `net`, `shell`, `ipc`, `process`, `privilege`, …
    pub what: String,
    /// The mechanisms, each confirmed: `landlock abi 7`, `seccomp`, `network namespace`, …
    pub by: Vec<String>,
}

impl Enforced {
    /// This is held by these mechanisms.
    #[must_use]
    pub fn new(what: impl Into<String>, by: Vec<String>) -> Self {
        Self { what: what.into(), by }
    }
}

/// The layer that refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Layer {
    /// The arguments did not match the tool's schema (S0-4).
    Schema,
    /// Layer 1: outside the EffectiveSet.
    Capability,
    /// Layer 2: the watchdog.
    Watchdog,
    /// Layer 3: the kernel.
    Sandbox,
    /// A limit of the call.
    Limit,
    /// The host cannot enforce what was asked.
    Host,
    /// A rule, or the mode (S0-49).
    Rule,
    /// A person, or that there is none to ask (S0-57, S0-59).
    Person,
}

impl Layer {
    /// Kind of error of its denials (X1-25).
    #[must_use]
    pub fn code(self) -> ErrorCode {
        match self {
            Self::Schema => ErrorCode::InputInvalid,
            Self::Limit => ErrorCode::LimitExceeded,
            Self::Person => ErrorCode::ApprovalDenied,
            Self::Host => ErrorCode::HostRefused,
            Self::Capability | Self::Watchdog | Self::Sandbox | Self::Rule => ErrorCode::Forbidden,
        }
    }

    /// True if it refused this call for what it is about, so that one about another host may pass.
    #[must_use]
    pub fn is_of_the_call(self) -> bool {
        match self {
            Self::Capability | Self::Rule | Self::Sandbox => true,
            Self::Schema | Self::Watchdog | Self::Limit | Self::Host | Self::Person => false,
        }
    }
}

/// Reason why a call did not go through, and the smallest change that would let it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Denial {
    /// Who refused.
    pub layer: Layer,
    /// Thing that was asked for: a path, a host, an argv.
    pub asked: String,
    /// The rule or the missing grant.
    pub reason: String,
    /// Remedy in words that fit every host: what to write in the manifest, or to do.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub remedy: Option<String>,
    /// Remedy for people at the command line, who can also type a flag. Not serialized: other hosts have no such flags.
    #[serde(skip)]
    pub typed: Option<String>,
}

impl Denial {
    /// A denial that nothing is known to lift.
    #[must_use]
    pub fn new(layer: Layer, asked: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { layer, asked: asked.into(), reason: reason.into(), remedy: None, typed: None }
    }

    /// With what would lift it.
    #[must_use]
    pub fn remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }

    /// With the remedy as the command line prints it.
    #[must_use]
    pub fn typed(self, remedy: impl Into<String>) -> Self {
        Self { typed: Some(remedy.into()), ..self }
    }

    /// Remedy that the command line prints.
    #[must_use]
    pub fn remedy_to_type(&self) -> Option<&str> {
        self.typed.as_deref().or(self.remedy.as_deref())
    }
}

/// One confinement step that was performed and that the kernel confirmed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StepReport {
    /// Which.
    pub step: Step,
    /// Facts that were confirmed, read back from the kernel where it can be: `abi 7, 12 rules`.
    pub detail: String,
}

impl StepReport {
    /// This step was performed; `detail` is what the kernel confirmed.
    #[must_use]
    pub fn new(step: Step, detail: impl Into<String>) -> Self {
        Self { step, detail: detail.into() }
    }
}
