//! Policy, as values: manifests, requirements, rules, profiles, limits, and what comes of them.
//!
//! These are the parts of the crate `callgate-policy` that a host writes down or is shown. What turns them into a plan for the
//! kernel is left out, because callgate does that itself.

/// The key under which a person's answer is kept, and for how long.
pub mod approval {
    pub use callgate_policy::approval::{Approval, ApprovalScope, Approvals, EffectKey, GrantedBy, Wider};
}

/// Ceiling: what a manifest or a host allows at most.
pub mod ceiling {
    pub use callgate_policy::ceiling::{Ceiling, FsCeiling, NetCeiling};
}

/// The formats of manifests, and errors that show the line.
pub mod document {
    pub use callgate_policy::document::{Format, ManifestError};
}

/// Rights in force, where each came from, and what a ceiling took away.
pub mod effective {
    pub use callgate_policy::call_grant::CallGrant;
    pub use callgate_policy::effective::{
        Beyond, Bound, Contribution, DeclareError, Declared, EffectiveSet, Kind, Narrowing, Narrowings, Origin,
        PathRegion, Rights, Scope, ShellRegion, Source, narrow,
    };
}

/// Envelope: what a host gets of a call.
pub mod envelope {
    pub use callgate_policy::envelope::{
        Blocked, Carried, Changes, Coerced, Denial, Deprecation, Enforced, Layer, Metadata, NotReached, Note, Outcome,
        ResultEnvelope, StepReport,
    };
    pub use callgate_policy::remarks::remarks;
}

/// Kinds of errors that end a call.
pub mod failure {
    pub use callgate_policy::failure::{ErrorClass, ErrorCode, Failure, FailureContext};
}

/// Limits: their names, how they are set, and what a result says of them.
pub mod limit {
    pub use callgate_policy::limit::{Bounds, Enforcer, LimitError, LimitName, LimitReport, Limits, Unit};
}

/// `callgate.toml` and `callgate.json`.
pub mod manifest {
    pub use callgate_policy::manifest::{
        Agent, AgentMode, Credential, CredentialSource, Env, Form, Format, LanguageServer, MAX_BYTES, MCP_DESCRIPTION,
        MCP_START, Manifest, ManifestError, McpServer, Net, Over, Provider, ProviderKind, Rlm, Search,
    };
}

/// Treatment of calls that no rule decides.
pub mod mode {
    pub use callgate_policy::mode::{Headless, Mode};
}

/// Effects of a call: what it shows, changes, starts and reaches.
pub mod effect {
    pub use callgate_policy::delegated::{AgentPrompt, DelegatedWork};
    pub use callgate_policy::effect::{
        DatabaseQuery, Effect, EffectKind, EffectKinds, Effects, FileAct, FileScope, HostConnection, ProgramRun,
        ServedRequest, WriteKind,
    };
}

/// Paths of the host, absolute and resolved.
pub mod path {
    pub use callgate_policy::path::{HostPath, NormalizeError, normalize};
}

/// Patterns for paths, hosts and arguments.
pub mod pattern {
    pub use callgate_policy::pattern::{
        ArgPattern, ArgPatterns, Host, HostPattern, PathPattern, PathTemplate, PatternError, Ports, ProgramPattern,
    };
    pub use callgate_policy::plan::Exactness;
}

/// Parts of a session's plan that a host chooses or is told. The plan itself is callgate's own.
pub mod plan {
    pub use callgate_policy::plan::compile::{LeftOut, PlanError};
    pub use callgate_policy::plan::env::{Fate, Variable};
    pub use callgate_policy::plan::{AskedFor, Calls, Strength};
}

/// Profiles: which tools a session has, and what they may do.
pub mod profile {
    pub use callgate_policy::profile::{
        Clause, Database, FileWrite, MAX_BYTES, OutsideWorkspace, Placed, Profile, ProfileFile, ProfileName, Shell,
    };
}

/// Rights that are asked for.
pub mod requirement {
    pub use callgate_policy::requirement::{
        FsRequirement, NetRequirement, Program, RequirementSet, ShellRunRequirement,
    };
}

/// Rules, and what they made of a call.
pub mod rules {
    pub use callgate_policy::rules::{
        Action, AllowEntry, Capability, CommandMistake, DecidedBy, Decision, LackingRule, PermissionError, Rule,
        RuleError, RuleGrant, RulePatternError, RuleScope, RuleSource, SubPolicyReport, Told,
    };
}

/// A command line, taken apart.
pub mod shell {
    pub use callgate_policy::shell::{Assignment, Line, Nest, Piece, Redirect, Simple, Unknown, Word};
}

/// Description that a skill gives of itself.
pub mod skill {
    pub use callgate_policy::skill::FrontMatter;
}

/// A statement for a database, and what it does.
pub mod sql {
    pub use callgate_policy::sql::{Dialect, SQL_MAX, SqlKind, Statement};
}

/// The steps of confinement.
pub mod step {
    pub use callgate_policy::step::Step;
}

/// Subject of a tool.
pub mod tool {
    pub use callgate_policy::tool::{Changes, Subject, Surface};
}

/// Sizes and times as people write them.
pub mod unit {
    pub use callgate_policy::unit::{ByteSize, UnitError, parse_duration};
}

/// The variables that patterns may name.
pub mod variable {
    pub use callgate_policy::variable::{VariableError, Variables};
}

/// Watchdogs: the trait, what they are shown, and what they say.
pub mod watchdog {
    pub use callgate_policy::watchdog::{Builtin, CallFacts, ExecFacts, Reason, Verdict, Wants, Watchdog};
}
