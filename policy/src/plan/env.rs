//! The environment of programs: complete, and named; nothing is inherited.

mod offline;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

use super::facts::{HostFacts, PlanError};
use super::{Exec, Strength};
use crate::manifest::Env;
use crate::path::HostPath;
use crate::shell::reading;

pub use self::offline::{OFFLINE, OFFLINE_SIGNS};

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
    "RUSTC",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "CARGO_BUILD_RUSTC_WRAPPER",
    "MAKEFILES",
    "MAKEFLAGS",
    "GNUMAKEFLAGS",
    "CLASSPATH",
    "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
    "GCC_EXEC_PREFIX",
    "COMPILER_PATH",
    "LUA_PATH",
    "LUA_CPATH",
    "LUA_INIT",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "R_PROFILE_USER",
    "XDG_CONFIG_HOME",
];

/// Prefixes of such names.
const LOADER_PREFIXES: &[&str] = &["LD_", "DYLD_", "GIT_", "SSH_", "GLIBC_", "MALLOC_", "BASH_FUNC_"];

/// Parts of names whose values are secrets.
const SECRETS: &[&str] = &["TOKEN", "SECRET", "KEY", "PASSWORD", "PASSWD", "CREDENTIAL", "AUTH"];

/// Names that callgate decides, since they lead programs to files.
const FIXED: &[&str] = &["PATH", "HOME", "TMPDIR", "SHELL", "PWD"];

/// Warning about a name in `[env]`; `policy check` prints it.
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
    let secrets = names().filter(|name| is_secret_name(name)).map(|name| EnvWarning::Secret(name.clone()));
    secrets.chain(names().filter(|name| is_loader(name)).map(|name| EnvWarning::Loader(name.clone()))).collect()
}

/// True if a variable of this name holds a secret, as far as names tell.
#[must_use]
pub fn is_secret_name(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    SECRETS.iter().any(|part| upper.contains(part))
}

/// True if callgate decides the value of a variable, so that nobody else can name it.
#[must_use]
pub fn is_fixed(name: &str) -> bool {
    FIXED.contains(&name)
}

fn is_loader(name: &str) -> bool {
    LOADERS.contains(&name) || LOADER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Where programs put what they can make again: below `TMPDIR`, since there are sessions and calls that cannot write in `HOME`.
const CACHES: &[(&str, &str)] =
    &[("XDG_CACHE_HOME", "tmp/cache"), ("GOCACHE", "tmp/cache/go-build"), ("npm_config_cache", "tmp/cache/npm")];

/// Where programs look for a directory of their own before `/tmp`, which sessions without namespaces cannot write. (Java has no
/// variable that does so in silence: each of its two prints a line on standard error.)
const TEMPORARY: &[(&str, &str)] = &[("TMUX_TMPDIR", "tmp"), ("SCREENDIR", "tmp")];

/// Where a proxy is, for programs that insist on one. No variable that programs know by themselves: what they reach by their own
/// sockets is told apart by name and port just as well.
const PROXY_VARIABLE: &str = "CALLGATE_PROXY";

/// Has resolvers ask by TCP (resolv.conf(5), glibc and c-ares), in sessions without a network of their own.
const RESOLVER: (&str, &str) = ("RES_OPTIONS", "use-vc");

/// Fate of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// Programs get the caller's value.
    Passed,
    /// Programs get a value of callgate's, of the manifest's, or one that was typed.
    Set,
    /// The caller has it, and programs do not get it.
    Dropped,
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Passed => "passed",
            Self::Set => "set",
            Self::Dropped => "dropped",
        })
    }
}

/// A variable of the caller's environment or of the session's, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Fate of the variable.
    pub fate: Fate,
    /// Value that programs get. Nothing where it was dropped: that may be a secret.
    pub value: Option<HostPath>,
    /// Reason for that.
    pub why: String,
}

/// Where a session's environment comes from.
#[derive(Debug, Clone, Copy)]
pub struct EnvSources<'a> {
    /// Facts of the host, the caller's environment included.
    pub facts: &'a HostFacts,
    /// Names in the manifest and on the command line.
    pub env: &'a Env,
    /// True if no host is granted.
    pub offline: bool,
}

/// Makes the complete environment: what [`explain`] lists and does not drop.
///
/// # Errors
///
/// [`PlanError::FixedVariable`] for a name that callgate decides, [`PlanError::Reading`] for one by which shells read lines in another way.
pub fn compile(sources: EnvSources<'_>) -> Result<BTreeMap<String, HostPath>, PlanError> {
    Ok(explain(sources)?.into_iter().filter_map(|variable| Some((variable.name, variable.value?))).collect())
}

/// Every variable of the caller's environment and of the session's, by name.
///
/// # Errors
///
/// [`PlanError::FixedVariable`] for a name that callgate decides, [`PlanError::Reading`] for one by which shells read lines in another way.
pub fn explain(EnvSources { facts, env, offline }: EnvSources<'_>) -> Result<Vec<Variable>, PlanError> {
    if let Some(name) = env.pass.iter().chain(env.set.keys()).find(|name| is_fixed(name)) {
        return Err(PlanError::FixedVariable(name.clone()));
    }
    let passed = env.pass.iter().filter_map(|name| Some((name, facts.env.get(name)?.clone())));
    let set = env.set.iter().map(|(name, value)| (name, HostPath::from(value.as_str())));
    if let Some((name, value)) = passed.chain(set).find(|(name, value)| !keeps_reading(name, value)) {
        return Err(PlanError::Reading { name: name.clone(), value });
    }
    let mut all = BTreeMap::new();
    let mut add = |name: &str, fate, value, why: &str| {
        all.insert(name.to_owned(), Variable { name: name.to_owned(), fate, value, why: why.to_owned() });
    };
    let private = |name: &str| Some(HostPath::from(facts.private.inside.as_path().join(name)));
    let named = |name: &str| env.pass.iter().chain(env.set.keys()).any(|named| named.eq_ignore_ascii_case(name));
    for (name, value, why) in OFFLINE.iter().filter(|(name, ..)| offline && !named(name)) {
        add(name, Fate::Set, Some((*value).into()), &format!("no network is granted; {why}"));
    }
    if !offline && !named(PROXY_VARIABLE) {
        let (address, port) = super::PROXY;
        let url = format!("http://{address}:{port}");
        let why = "a proxy (HTTP, and SOCKS5 on the same port) for programs that insist on one; none is needed";
        add(PROXY_VARIABLE, Fate::Set, Some(url.as_str().into()), why);
    }
    if !offline && facts.strength == Strength::Landlock && !named(RESOLVER.0) {
        add(RESOLVER.0, Fate::Set, Some(RESOLVER.1.into()), "names are asked for by TCP: there is no UDP here");
    }
    for (name, place) in TEMPORARY.iter().chain(CACHES) {
        add(name, Fate::Set, private(place), "the session's own");
    }
    for (name, value) in &facts.env {
        match why_passed(name, env) {
            Some(_) if reading::is_locale(name) && !keeps_reading(name, value) => {
                add(name, Fate::Set, Some(reading::LOCALE.into()), WHY_UTF8);
            }
            Some(_) if !keeps_reading(name, value) => add(name, Fate::Dropped, None, WHY_UTF8),
            Some(why) => add(name, Fate::Passed, Some(value.clone()), why),
            // One that callgate sets has that value already.
            None if offline && OFFLINE.iter().any(|(set, ..)| set == name) && !named(name) => {}
            None if TEMPORARY.iter().chain(CACHES).any(|(set, _)| set == name) => {}
            None => add(name, Fate::Dropped, None, why_dropped(name)),
        }
    }
    for (name, value) in &env.set {
        add(name, Fate::Set, Some(value.as_str().into()), "by `[env]` or --env");
    }
    add("PATH", Fate::Set, Some(search_path(&facts.path)), &why_path(facts));
    add("HOME", Fate::Set, private("home"), "the session's own");
    add("TMPDIR", Fate::Set, private("tmp"), "the session's own");
    add("SHELL", Fate::Set, Some("/bin/bash".into()), "the shell that is there");
    Ok(all.into_values().collect())
}

/// Reason why programs get another locale than their caller's.
const WHY_UTF8: &str =
    "the caller's has another character set than UTF-8, by which a shell would read other commands than rules do";

/// True if shells that get this variable read lines as rules do.
fn keeps_reading(name: &str, value: &HostPath) -> bool {
    reading::keeps(name, value.as_bytes())
}

fn why_passed(name: &str, env: &Env) -> Option<&'static str> {
    if env.pass.iter().any(|passed| passed == name) {
        return Some("by `[env]` or --env");
    }
    if name.starts_with("LC_") {
        return Some("language and formats");
    }
    PASSED.iter().find(|(passed, _)| *passed == name).map(|(_, why)| *why)
}

fn why_dropped(name: &str) -> &'static str {
    match name {
        "PWD" | "OLDPWD" | "_" | "SHLVL" => "shells set it themselves",
        _ if is_secret_name(name) => "the name looks like a secret's; --env NAME passes it to every program",
        _ if is_loader(name) => "it decides what programs load or run; --env NAME passes it",
        _ => "not among those that are passed; --env NAME passes it",
    }
}

fn why_path(facts: &HostFacts) -> String {
    let mut text = "the caller's directories that programs may be read from and that calls cannot write".to_owned();
    for (directory, why) in &facts.path_left_out {
        text.push_str(&format!("; left out: {directory} ({why})"));
    }
    text
}

/// Refuses variables that were typed and decide what programs load or run, in a session that decides which programs start and
/// with which arguments: `git log` would be another program with another `LD_PRELOAD`. A manifest may still name them.
///
/// # Errors
///
/// [`PlanError::Steering`].
pub fn refuse_steering(typed: &Env, exec: &Exec) -> Result<(), PlanError> {
    let mut names = typed.pass.iter().chain(typed.set.keys());
    match names.find(|name| exec.is_judged() && is_loader(name)) {
        Some(name) => Err(PlanError::Steering(name.clone())),
        None => Ok(()),
    }
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
