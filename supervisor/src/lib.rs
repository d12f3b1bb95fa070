//! **callgate** runs the tool calls of AI agents on Linux so that nobody has to trust the model.
//!
//! A host makes a [`Supervisor`], opens a [`Session`] for a workspace, and hands it tool calls. Each call is checked
//! against what was granted, judged by the watchdogs, and carried out by a worker process that the kernel confines. What
//! comes back is a [`ResultEnvelope`], with what enforced it.
//!
//! ```no_run
//! # async fn host() -> Result<(), Box<dyn std::error::Error>> {
//! use callgate::{Launcher, SessionSpec, Supervisor};
//!
//! let supervisor = Supervisor::builder().launcher(Launcher::spawn("/usr/bin/callgate".as_ref())?).build()?;
//! // Reading passes; of anything else nobody is there to approve, until `approvers` or `rules` name somebody.
//! let session = supervisor.open(SessionSpec::developer("/home/me/project")).await?;
//! let result = session.call("read", serde_json::json!({"path": "README.md"})).await;
//! println!("{}", serde_json::to_string_pretty(&result)?);
//! # Ok(())
//! # }
//! ```

// The name that the fuzz targets know this crate by, which are tried with their seeds.
#[cfg(test)]
extern crate self as callgate;

mod aborts;
mod agents;
mod background;
mod bounds;
mod call;
mod causes;
mod confine;
mod credentials;
mod error;
mod etc;
mod facts;
mod gate;
mod gitconfig;
mod home;
mod host;
mod host_view;
mod id;
mod inquiry;
mod mounts;
mod open_error;
mod origin;
mod owner;
mod place;
mod registry;
mod run;
#[cfg(test)]
mod seeds;
mod session;
mod store;
mod supervisor;
mod trace;
pub mod trust;
mod turn;

pub mod doctor;
#[doc(hidden)]
pub mod json;
pub mod policy;
pub mod profile;
pub mod shown;

pub use callgate_policy::envelope::{Coerced, Denial, Enforced, Layer, Metadata, Outcome, ResultEnvelope, StepReport};
pub use callgate_policy::limit::{Bounds, Enforcer, LimitError, LimitName, LimitReport, Limits};
pub use callgate_worker::launcher::Ahead;
pub use callgate_worker::protocol::{Leftover, LimitHit, ProgramEnd, StepFailure, Used};

pub use bounds::{AGENT_DEPTH_MAX, AGENTS_MAX, FAMILY_MAX};
pub use callgate_policy::step::Step;
pub use callgate_policy::tool::{Changes, Subject};
pub use causes::with_causes;
pub use confine::{
    ConfineError, LAUNCHER_NAME, Launcher, LauncherError, OutputsError, Program, ProgramPipes, Stdio, Terminal,
    TerminalError, WindowSize,
};
pub use credentials::CredentialError;
pub use error::CallError;
pub use gate::{
    Answer, Approver, Asked, AskedBy, Preview, Question, ShownEffect, WatchdogProgram, WatchdogProgramError,
    interaction_required,
};
pub use host::{HostError, HostSupport, close_process, user_settings};
pub use inquiry::{Choice, Inquired, Inquiry, Query, Reply, Unanswered};
pub use open_error::{OpenError, refuse_strangers};
pub use origin::Origin;
pub use place::TypedPath;
pub use registry::{
    Answering, Handler, HandlerCall, LeftOut, Registry, RegistryError, Schema, Skill, SkillLeftOut, Skills, Tool,
    ToolState,
};
pub use session::{
    AgentEndpoint, AgentRun, AgentRunner, AgentServed, AgentService, AgentTask, Coercion, Examined, MissingPlace,
    Overflow, ReloadError, Session, SessionSpec, StrengthChoice, Warning, WatchdogObject,
};
pub use store::{
    CallRecord, Event, EventKind, Events, MissedEvents, Retention, SessionRecord, SessionState, Store, StoreError,
    Todo, TodoStatus,
};
pub use supervisor::{Builder, Supervisor};
pub use trace::Traceparent;
pub use turn::Concurrency;

/// The example of the README, compiled with the other doctests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
