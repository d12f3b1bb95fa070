//! The environment of programs: complete, and named; nothing is inherited.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

use super::Exec;
use super::facts::{HostFacts, PlanError};
use crate::manifest::Env;
use crate::path::HostPath;

/// Names that are taken over without being asked for, and why.
pub const PASSED: &[(&str, &str)] = &[
    ("LANG", "language of messages"),
    ("LANGUAGE", "language of messages"),
    ("TERM", "what the terminal can do"),
    ("COLORTERM", "what the terminal can do"),
    ("NO_COLOR", "what the person wants to see"),
    ("TZ", "the person's time"),
    ("USER", "programs ask for it instead of getuid(2)"),
    ("LOGNAME", "programs ask for it instead of getuid(2)"),
    ("CARGO_HOME", "where a toolchain lives"),
    ("RUSTUP_HOME", "where a toolchain lives"),
    ("RUSTUP_TOOLCHAIN", "which toolchain"),
    ("PYENV_ROOT", "where a toolchain lives"),
    ("PYENV_VERSION", "which toolchain"),
    ("VIRTUAL_ENV", "which toolchain"),
    ("NVM_DIR", "where a toolchain lives"),
    ("GOROOT", "where a toolchain lives"),
    ("GOPATH", "where a toolchain lives"),
    ("JAVA_HOME", "where a toolchain lives"),
];

/// Names that make a program load or run what their value says. They pass only if a manifest names them, with a warning.
const LOADERS: &[&str] = &[
    "BASH_ENV",
    "ENV",
    "PROMPT_COMMAND",
    "PS4",
    "SHELLOPTS",
    "BASHOPTS",
    "IFS",
    "CDPATH",
    "GCONV_PATH",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PERL5LIB",
    "PERL5OPT",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "RUBYLIB",
    "RUBYOPT",
    "JAVA_TOOL_OPTIONS",
    "EDITOR",
    "VISUAL",
    "PAGER",
    "LESSOPEN",
    "RUSTC_WRAPPER",
    "CARGO_BUILD_RUSTC_WRAPPER",
];

/// Prefixes of such names.
const LOADER_PREFIXES: &[&str] = &["LD_", "DYLD_", "GIT_", "SSH_", "GLIBC_", "MALLOC_", "BASH_FUNC_"];

/// Parts of names whose values are secrets.
const SECRETS: &[&str] = &["TOKEN", "SECRET", "KEY", "PASSWORD", "PASSWD", "CREDENTIAL", "AUTH"];

/// Names that callgate decides, since they lead programs to files.
const FIXED: &[&str] = &["PATH", "HOME", "TMPDIR", "SHELL", "PWD"];

/// What a person should know about a name in `[env]`; `policy check` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EnvWarning {
    /// The name looks like a secret's.
    Secret(String),
    /// The value decides what programs load or run.
    Loader(String),
}

impl fmt::Display for EnvWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret(name) => write!(f, "{name} looks like a secret; every program in the sandbox will read it"),
            Self::Loader(name) => write!(f, "{name} decides what programs load or run"),
        }
    }
}

/// The warnings about a manifest's `[env]`.
#[must_use]
pub fn warnings(env: &Env) -> Vec<EnvWarning> {
    let names = || env.pass.iter().chain(env.set.keys());
    let secrets = names().filter(|name| is_secret(name)).map(|name| EnvWarning::Secret(name.clone()));
    secrets.chain(names().filter(|name| is_loader(name)).map(|name| EnvWarning::Loader(name.clone()))).collect()
}

fn is_secret(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    SECRETS.iter().any(|part| upper.contains(part))
}

fn is_loader(name: &str) -> bool {
    LOADERS.contains(&name) || LOADER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Where programs put what they can make again, for sessions whose `HOME` nobody writes: below `TMPDIR`.
const CACHES: &[(&str, &str)] =
    &[("XDG_CACHE_HOME", "tmp/cache"), ("GOCACHE", "tmp/cache/go-build"), ("npm_config_cache", "tmp/cache/npm")];

/// Where programs look for a directory of their own before `/tmp`, which sessions without namespaces cannot write. (Java has no
/// variable that does so in silence: each of its two prints a line on standard error.)
const TEMPORARY: &[(&str, &str)] = &[("TMUX_TMPDIR", "tmp"), ("SCREENDIR", "tmp")];

/// Makes the complete environment. Where single programs are granted, calls cannot write in `HOME`: caches are elsewhere then,
/// unless `env` says where.
///
/// # Errors
///
/// [`PlanError::FixedVariable`] for a name that callgate decides.
pub fn compile(facts: &HostFacts, env: &Env, exec: &Exec) -> Result<BTreeMap<String, HostPath>, PlanError> {
    if let Some(name) = env.pass.iter().chain(env.set.keys()).find(|name| FIXED.contains(&name.as_str())) {
        return Err(PlanError::FixedVariable(name.clone()));
    }
    let passes = |name: &str| {
        PASSED.iter().any(|(passed, _)| *passed == name)
            || name.starts_with("LC_")
            || env.pass.iter().any(|passed| passed == name)
    };
    let mut all: BTreeMap<String, HostPath> =
        facts.env.iter().filter(|(name, _)| passes(name)).map(|(name, value)| (name.clone(), value.clone())).collect();
    all.extend(env.set.iter().map(|(name, value)| (name.clone(), HostPath::from(value.as_str()))));
    let private = |name: &str| HostPath::from(facts.private.inside.as_path().join(name));
    for (name, place) in TEMPORARY.iter().chain(CACHES.iter().filter(|_| exec.is_judged())) {
        all.entry((*name).to_owned()).or_insert_with(|| private(place));
    }
    all.insert("PATH".to_owned(), search_path(&facts.path));
    all.insert("HOME".to_owned(), private("home"));
    all.insert("TMPDIR".to_owned(), private("tmp"));
    all.insert("SHELL".to_owned(), "/bin/bash".into());
    Ok(all)
}

fn search_path(dirs: &[HostPath]) -> HostPath {
    let mut path = OsString::new();
    // An entry with a colon would be two, and the second could be relative.
    for dir in dirs.iter().filter(|dir| dir.is_normal() && !dir.as_bytes().contains(&b':')) {
        if !path.is_empty() {
            path.push(":");
        }
        path.push(dir.as_path());
    }
    path.into()
}
