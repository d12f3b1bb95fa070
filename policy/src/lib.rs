//! Decisions on what a tool call may do, made without touching the machine.
//!
//! This crate is pure: no files, no clock, no environment, no system calls. The supervisor reads files and asks the
//! kernel, and hands *values* in; what comes out is plain data that a worker performs.
//!
//! The flow, one type per stage:
//!
//! ```text
//! Manifest ─parse→ RequirementSet ─┐
//! tools' `requires` ───────────────┴union→ declared ─narrow→ EffectiveSet ─check→ CallGrant ─compile→ plan
//! ```
//!
//! ```
//! use std::time::Duration;
//! use callgate_policy::effect::Effects;
//! use callgate_policy::effective::{Bound, Contribution, Declared, Source, narrow};
//! use callgate_policy::limit::Bounds;
//! use callgate_policy::manifest::{Format, Manifest};
//! use callgate_policy::path::normalize;
//! use callgate_policy::plan::{CallWork, Calls, Identity, PrivateDir, PrivateKind, Strength, compile};
//! use callgate_policy::variable::Variables;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let text = "id = \"reviewer\"\n[requires.fs]\nread = [\"{workspace}/**\"]\n";
//! let manifest = Manifest::parse(text, Format::Toml, "callgate.toml")?;
//! let variables = Variables::new(vec!["/home/u/work".into()], vec![], vec![])?;
//! let tool = Source::Tool("read".into());
//! let requires = serde_json::from_str(r#"{"fs": {"read": ["**"]}}"#)?;
//! let asked = [Contribution::manifest(&manifest), Contribution::from_source(&tool, &requires)];
//! let declared = Declared::union(&asked, &variables, &[])?;
//! let effective = narrow(&declared, &[Bound::unlimited(Source::Ceiling)]).with_session_dir("/run/s1/out".into());
//!
//! let facts = compile::HostFacts {
//!     strength: Strength::Landlock,
//!     calls: Calls::Many,
//!     landlock_abi: 7,
//!     identity: Identity { uid: 1000, gid: 1000 },
//!     private: PrivateDir { inside: "/run/s1".into(), kind: PrivateKind::OnHost },
//!     workspace: variables.workspace().to_vec(),
//!     toolchains: vec![],
//!     etc: vec![],
//!     shared: vec![],
//!     left_of: effective.left_of(),
//!     asked_without_links: vec![],
//!     asked: vec![],
//!     closed: vec![],
//!     homes: vec![],
//!     path: vec!["/usr/bin".into(), "/bin".into()],
//!     path_left_out: vec![],
//!     env: Default::default(),
//!     gitconfig: String::new(),
//! };
//! let bounds = Bounds::of(&manifest.limits, 16 << 30);
//! let session = compile::session(&effective, &facts, &manifest.env, &bounds)?;
//! assert!(session.network.is_none(), "no host was granted");
//!
//! let path = normalize(&"/home/u/work".into(), &"src/../README.md".into())?;
//! let grant = effective.check(&Effects::default().showing(path.clone())).map_err(|d| d.reason)?;
//! let work = CallWork::Tool { name: "read".into(), paths: vec![path.clone()], limit: 200 * 1024 };
//! let spec = compile::CallSpec { work, bounds, timeout: Duration::from_secs(60) };
//! let call = compile::call(&grant, &facts, spec)?;
//! assert_eq!(call.rules.own().len(), 1);
//! assert_eq!(session.workspace, ["/home/u/work".into()]);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod approval;
pub mod call_grant;
pub mod ceiling;
pub mod databases;
pub mod delegated;
pub mod denied;
pub mod document;
pub mod effect;
pub mod effective;
pub mod envelope;
mod explain;
pub mod failure;
pub mod limit;
pub mod manifest;
pub mod mode;
pub mod path;
pub mod pattern;
pub mod plan;
pub mod profile;
pub mod remarks;
pub mod requirement;
pub mod rules;
pub mod shell;
pub mod skill;
pub mod sql;
pub mod step;
pub mod template;
pub mod tool;
pub mod unit;
pub mod variable;
pub mod watchdog;
