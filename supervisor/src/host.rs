//! Mechanisms and files of this host: asked for once, and handed on as values.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use callgate_policy::effective::EffectiveSet;
use callgate_policy::path::HostPath;
use callgate_policy::plan::compile::{self, HostFacts, LeftOut};
use callgate_policy::plan::etc::{Readable, Reading};
use callgate_policy::plan::exec::{HEADER_BYTES, Header, read_header};
use callgate_policy::plan::{AskedFor, Calls, Identity, PrivateDir, Strength};
use callgate_policy::step::Step;
use callgate_worker::apply::landlock::host_abi;
use callgate_worker::apply::limit::limit_cores;
use callgate_worker::protocol::StepFailure;
use callgate_worker::way::{Id, Link};
use rustix::fs::OFlags;

use crate::etc;
use crate::gitconfig;
use crate::home::Homes;
use crate::place::{Changeable, Place};

/// The host cannot enforce what every session needs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// No Landlock.
    #[error("this kernel does not offer Landlock, without which nothing can be confined")]
    NoLandlock,
}

impl HostError {
    /// Advice about it.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::NoLandlock => {
                "use Linux 5.13 or newer built with CONFIG_SECURITY_LANDLOCK, with `landlock` among the lsm= names of its \
                 command line (see /sys/kernel/security/lsm); in a container, let its seccomp profile allow landlock_*"
            }
        }
    }
}

/// Mechanisms that the kernel offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostSupport {
    /// The Landlock ABI to use, 1 to 7.
    pub landlock_abi: u8,
}

impl HostSupport {
    /// Asks the kernel.
    ///
    /// # Errors
    /// [`HostError::NoLandlock`].
    pub fn probe() -> Result<Self, HostError> {
        let landlock_abi = host_abi().ok_or(HostError::NoLandlock)?;
        Ok(Self { landlock_abi })
    }
}

/// Something the host refused, what takes its place, and how to get it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Missing {
    /// Thing that was refused, and by which call.
    pub(crate) what: String,
    /// Mechanism that holds in its place.
    pub(crate) instead: &'static str,
    /// Command to type.
    pub(crate) remedy: &'static str,
}

impl Missing {
    pub(crate) fn namespaces(failed: &StepFailure) -> Self {
        Self {
            what: failed.to_string(),
            instead: "Landlock and seccomp hold alone",
            remedy: "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 kernel.unprivileged_userns_clone=1 \
                     user.max_user_namespaces=10000 (those that the host has)",
        }
    }
}

/// True if a step of making namespaces failed because this host refuses them, and not for a limit that was met just
/// now: what comes of chance must not decide what confines a session.
pub(crate) fn refuses_namespaces(failed: &StepFailure) -> bool {
    let is_step = matches!(failed.step, Step::Namespaces | Step::Mounts);
    // A most of zero is how they are switched off (namespaces(7)).
    let are_off = || {
        let kinds = ["user", "mnt", "pid", "net", "ipc", "uts"];
        let mut most =
            kinds.iter().map(|kind| text_of(Path::new(&format!("/proc/sys/user/max_{kind}_namespaces")), 64));
        most.any(|most| most.is_ok_and(|most| most.trim() == "0"))
    };
    let is_clone = failed.step == Step::Namespaces && failed.errno == Some(rustix::io::Errno::NOSPC.raw_os_error());
    is_step && (failed.limit().is_none() || (is_clone && are_off()))
}

/// Closes this process to others of its user: no core dump, and no look into its memory (D1). For every host: its process
/// holds policy, and often secrets. It cannot be undone; sessions that are opened later start with it.
///
/// # Errors
/// The kernel's own.
pub fn close_process() -> Result<(), StepFailure> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    let refused = |what: &str, errno| StepFailure::new(Step::Supervisor, what).errno(errno);
    // Sessions start with this limit, and could not raise it.
    limit_cores().map_err(|e| refused("set its core limit", e.raw_os_error()))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|e| refused("close its memory to others", Some(e.raw_os_error())))
}

/// As whom a session runs: the owner of the workspace if we may become that, else ourselves.
pub(crate) fn owner(workspace: Option<&Place>) -> Identity {
    let me = Identity { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
    workspace.filter(|_| me.uid == 0).map(Place::owner).filter(|owner| owner.uid != 0).unwrap_or(me)
}

/// How much memory this host has, bytes; a terabyte if it does not say.
pub(crate) fn memory() -> u64 {
    let about = rustix::system::sysinfo();
    let bytes = about.totalram.saturating_mul(u64::from(about.mem_unit));
    if bytes > 0 { bytes } else { 1 << 40 }
}

/// 128 random bits, in hexadecimal.
pub(crate) fn random() -> std::io::Result<String> {
    Ok(hex(&random_bytes()?))
}

/// 128 random bits.
pub(crate) fn random_bytes() -> std::io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes)
}

/// In hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The home directory of whoever runs this: HOME, or what the user database says.
pub(crate) fn home() -> Option<PathBuf> {
    std::env::home_dir().filter(|home| home.is_absolute())
}

/// Where programs of whoever runs this keep their state: `XDG_STATE_HOME`, or `.local/state` in the home directory.
#[allow(clippy::disallowed_methods, reason = "the one place where the environment is read")]
pub(crate) fn state() -> Option<PathBuf> {
    let named = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|named| named.is_absolute());
    named.or_else(|| home().map(|home| home.join(".local/state")))
}

/// Where callgate's settings of whoever runs this are: `callgate` in `XDG_CONFIG_HOME`, or in `.config` in the home directory.
#[allow(clippy::disallowed_methods, reason = "the one place where the environment is read")]
#[must_use]
pub fn user_settings() -> Option<PathBuf> {
    let named = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|named| named.is_absolute());
    named.or_else(|| home().map(|home| home.join(".config"))).map(|config| config.join("callgate"))
}

/// The directory on a path that these names lead to, one below the other, whatever the path begins with.
pub(crate) fn named_in(path: &Path, names: &[&str]) -> Option<PathBuf> {
    let ends_so = |above: &&Path| {
        let mut parts = above.iter().rev();
        names.iter().rev().all(|name| parts.next().is_some_and(|part| part.eq_ignore_ascii_case(name)))
    };
    path.ancestors().find(ends_so).map(ToOwned::to_owned)
}

/// The variables of this process that are text.
#[allow(clippy::disallowed_methods, reason = "the one place where the environment is read")]
pub(crate) fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// One variable of this process, if it is text.
#[allow(clippy::disallowed_methods, reason = "the one place where the environment is read")]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var_os(name)?.into_string().ok()
}

/// The directory for temporary files, or what was named as one that is not there.
pub(crate) fn temporary() -> Result<PathBuf, (PathBuf, std::io::Error)> {
    let path = std::env::temp_dir();
    match std::fs::metadata(&path) {
        Ok(about) if about.is_dir() => Ok(path),
        Ok(_) => Err((path, std::io::ErrorKind::NotADirectory.into())),
        Err(source) => Err((path, source)),
    }
}

/// Text of a regular file, to at most so many bytes. Opened without waiting: a FIFO that nobody writes would hold us
/// for ever, and a device may have no end.
pub(crate) fn text_of(file: &Path, most: u64) -> std::io::Result<String> {
    use std::io::Read as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let opened = std::fs::File::options().read(true).custom_flags(flags).open(file)?;
    if !opened.metadata()?.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    opened.take(most).read_to_string(&mut text)?;
    Ok(text)
}

/// Device and inode: what a directory is, whatever its name.
pub(crate) fn identity_of(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// True if what a path leads to can be started as a program, as execvp(3) sees it.
pub(crate) fn is_startable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|about| about.is_file() && about.mode() & 0o111 != 0)
}

/// Header of a program's file, which says what else the kernel opens to run it: its first bytes, if it is a regular file.
pub(crate) fn header(path: &Path) -> io::Result<Header> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    file.take(HEADER_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(read_header(&bytes))
}

/// Which file a path leads to, and which version of it: device, inode, size, and when it was changed, seconds and nanoseconds
/// (`st_ctime`, which no program can set).
pub(crate) fn version_of(path: &Path) -> Option<(u64, u64, u64, i64, i64)> {
    let about = std::fs::metadata(path).ok()?;
    Some((about.dev(), about.ino(), about.size(), about.ctime(), about.ctime_nsec()))
}

/// Collects what plans are compiled from. A tool that runs with a part of what is in force in a session finds its programs where
/// the whole session does not write: what other calls have planted would run with what only the tool has.
pub(crate) fn facts(
    (strength, calls): (Strength, Calls),
    landlock_abi: u8,
    identity: Identity,
    private: PrivateDir,
    workspace: Vec<HostPath>,
    (effective, of_session): (&EffectiveSet, Option<&EffectiveSet>),
    changeable: &Changeable,
) -> HostFacts {
    let home = home();
    let (toolchains, defaults) = home.as_deref().map(|home| toolchains(home, changeable)).unwrap_or_default();
    #[allow(clippy::disallowed_methods, reason = "the one place where the environment is read")]
    let mut env: BTreeMap<String, HostPath> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, HostPath::from(PathBuf::from(value)))))
        .collect();
    for (name, value) in defaults {
        env.entry(name.to_owned()).or_insert(value);
    }
    let gitconfig = gitconfig::for_sessions(&env, home.as_deref());
    let venv = env.get("VIRTUAL_ENV").map(|venv| venv.as_path().join("bin"));
    // A program that a call has planted there could take another's place in a later call, or be started in place of one that
    // was granted. With one call, and any program granted, there is nothing to take.
    let free = of_session.is_none() && calls == Calls::One && !compile::exec(effective).is_judged();
    let although = venv.as_deref().filter(|_| free);
    let search = Search::of(env.get("PATH"), toolchains, (of_session.unwrap_or(effective), changeable));
    let (path, path_left_out) = search.path(effective, although);
    // Of a part, what its session was asked for as well.
    let all = of_session.into_iter().chain([effective]);
    let asked = all.flat_map(|set| [set.asked_for(), asked_without_links(set)].concat()).collect();
    HostFacts {
        strength,
        calls,
        landlock_abi,
        identity,
        private,
        left_of: effective.left_of(),
        asked,
        asked_without_links: asked_without_links(effective),
        homes: Homes::find().iter().map(HostPath::from).collect(),
        workspace,
        toolchains: search.toolchains,
        etc: etc::readable(),
        shared: search.shared,
        path,
        path_left_out,
        env,
        gitconfig,
    }
}

/// Toolchains that live in the home directory, each part that programs need by name: never the directory that also
/// holds credentials (`~/.cargo/credentials.toml`).
const TOOLCHAINS: &[(&str, Option<&str>)] = &[
    (".cargo/bin", Some("CARGO_HOME")),
    (".cargo/registry", Some("CARGO_HOME")),
    (".cargo/git", Some("CARGO_HOME")),
    (".cargo/env", None),
    (".rustup", Some("RUSTUP_HOME")),
    (".pyenv", Some("PYENV_ROOT")),
    (".nvm", Some("NVM_DIR")),
    (".volta/bin", None),
    (".volta/tools", None),
    (".bun/bin", None),
    (".deno/bin", None),
    ("go/bin", None),
    ("go/pkg", Some("GOPATH")),
    (".local/bin", None),
    (".local/lib", None),
    (".local/share/uv", None),
    (".local/share/mise", None),
    (".local/share/fnm", None),
    (".rbenv", None),
    (".asdf", None),
    (".sdkman/candidates", None),
];

/// A link that a call may have put in the way of one would show the session whatever it leads to: that one is left out. Sessions
/// with other workspaces may have had calls that wrote in a tool's directory. So links are followed that lie in the home
/// directory itself, or above it; and what holds a home directory or keys is no toolchain.
fn toolchains(home: &Path, changeable: &Changeable) -> (Vec<HostPath>, Vec<(&'static str, HostPath)>) {
    let mut found = Vec::new();
    let mut env = Vec::new();
    let homes = Homes::find();
    let above_home: Vec<Id> = home.ancestors().filter_map(identity_of).collect();
    for (part, variable) in TOOLCHAINS {
        let is_near = |link: &Link| link.directory().is_some_and(|directory| above_home.contains(&directory));
        let Some(path) = real_path(&home.join(part), changeable, is_near) else { continue };
        if let Some(why) = homes.found_in(&path) {
            tracing::warn!(path = %path.display(), %why, "left out: it is no toolchain");
            continue;
        }
        found.push(HostPath::from(path));
        if let (Some(variable), Some(top)) = (variable, Path::new(part).components().next()) {
            env.push((*variable, HostPath::from(home.join(top))));
        }
    }
    (found, env)
}

/// Where a path leads, without links. `None` if it leads nowhere, or by a link that a call may have made, or by one that is not
/// to be followed.
fn real_path(path: &Path, changeable: &Changeable, is_followed: impl Fn(&Link) -> bool) -> Option<PathBuf> {
    let link = match changeable.follow(path) {
        Err(link) => link,
        Ok(way) => {
            let way = way?;
            match way.links.iter().find(|link| !is_followed(link)) {
                None => return way.real_path().ok(),
                Some(link) => link.path.clone(),
            }
        }
    };
    let (path, link) = (path.display(), link.display());
    tracing::warn!(%path, %link, "left out: a call may have made this link; to use it, grant what it leads to");
    None
}

/// Directories of PATH, and those that were left out with the reason.
type SearchPath = (Vec<HostPath>, Vec<(HostPath, LeftOut)>);

/// Where programs are looked for by their names.
pub(crate) struct Search {
    /// The directories of PATH that exist, the path of each without links, and who may have planted programs there.
    directories: Vec<(HostPath, HostPath, Option<LeftOut>)>,
    toolchains: Vec<HostPath>,
    /// Parts of the system that are readable.
    shared: Vec<Readable>,
}

impl Search {
    fn of(
        given: Option<&HostPath>,
        toolchains: Vec<HostPath>,
        (session, changeable): (&EffectiveSet, &Changeable),
    ) -> Self {
        let given = given.map_or("/usr/local/bin:/usr/bin:/bin".into(), |path| path.as_path().as_os_str().to_owned());
        let (written, workspace) = (Written::by(session), Written(changeable.earlier().map(Standing::of).collect()));
        // What lies there may be seen in a written directory as well. Where mounts cannot be read, nothing is known of that.
        let planted = |real: &Path| {
            let Some(names) = changeable.names(real) else { return Some(LeftOut::Writable) };
            let touches = |all: &Written| names.iter().any(|name| all.touches(name));
            match () {
                () if touches(&written) => Some(LeftOut::Writable),
                () if touches(&workspace) || names.iter().any(|name| changeable.asked(name)) => {
                    Some(LeftOut::Workspace)
                }
                () => None,
            }
        };
        // Without a slash at the end, which is no part of a name.
        let named = std::env::split_paths(&given).map(|dir| dir.components().collect::<PathBuf>());
        let directories = named.filter(|dir| dir.is_absolute()).filter_map(|dir| {
            let real = real_path(&dir, changeable, |_| true)?;
            let planted = planted(&real);
            Some((HostPath::from(dir), HostPath::from(real), planted))
        });
        Self { directories: directories.collect(), toolchains, shared: etc::shared() }
    }

    /// Path as for a session with these rights, and for its tools.
    pub(crate) fn of_tools(session: &EffectiveSet, changeable: &Changeable) -> Self {
        let toolchains = home().map(|home| self::toolchains(&home, changeable).0).unwrap_or_default();
        #[allow(clippy::disallowed_methods, reason = "the one place where the environment is read")]
        let given = std::env::var_os("PATH").map(|path| HostPath::from(PathBuf::from(path)));
        Self::of(given.as_ref(), toolchains, (session, changeable))
    }

    /// The directories that programs may be read from, and that neither the session can write nor an earlier one of the same
    /// workspace: a program planted in one would be started in place of the real one (C12). `although` stays all the same.
    pub(crate) fn path(&self, effective: &EffectiveSet, although: Option<&Path>) -> SearchPath {
        let (mut path, mut left_out) = (Vec::new(), Vec::new());
        for (dir, real, planted) in &self.directories {
            let is_root = ["/bin", "/sbin"].iter().any(|system| real.as_path().starts_with(system));
            // Of a directory in which not everything is everybody's, the rest is: its programs are granted one by one.
            let mut shared = self.shared.iter().filter(|readable| match readable.reading {
                Reading::Tree => real.as_path().starts_with(&readable.path),
                Reading::File => readable.path.as_path().parent() == Some(real.as_path()),
                Reading::Names => false,
            });
            let system = is_root || shared.next().is_some();
            let toolchain = self.toolchains.iter().any(|toolchain| real.as_path().starts_with(toolchain));
            let readable = system || toolchain || effective.allows_read(real);
            match planted.filter(|_| although != Some(dir.as_path())) {
                _ if !readable => left_out.push((dir.clone(), LeftOut::NotReadable)),
                Some(why) => left_out.push((dir.clone(), why)),
                None if path.contains(dir) => {}
                None => path.push(dir.clone()),
            }
        }
        (path, left_out)
    }
}

/// Places that a session may change, with all that lies below, as the kernel is told it: a pattern such as `**/bin/**`
/// lets programs write anywhere below the directory that it begins in.
struct Written(Vec<Standing>);

impl Written {
    fn by(effective: &EffectiveSet) -> Self {
        let write = effective.rights().write().iter();
        Self(write.map(|(region, _)| Standing::of(without_links(region.literal_prefix().as_path()))).collect())
    }

    /// True if one of them is this directory, holds it or lies in it. What lies in it counts because a program of the
    /// directory may be a link to there.
    fn touches(&self, directory: &Path) -> bool {
        let directory = Standing::of(directory.to_owned());
        self.0.iter().any(|place| directory.lies_in(place) || place.lies_in(&directory))
    }
}

/// Names without links of places that were asked for to write in, where they differ. A single name is itself: a call
/// may make a link of it.
fn asked_without_links(effective: &EffectiveSet) -> Vec<AskedFor> {
    let real = |asked: &AskedFor| {
        let path = asked.path.as_path();
        let real = match (asked.is_tree, path.parent(), path.file_name()) {
            (false, Some(directory), Some(name)) => without_links(directory).join(name),
            _ => without_links(path),
        };
        (real != path).then(|| AskedFor { path: real.into(), is_tree: asked.is_tree })
    };
    effective.asked_for().iter().filter_map(real).collect()
}

/// The path of what need not be there yet, without the links on the way to it.
fn without_links(path: &Path) -> PathBuf {
    match (std::fs::canonicalize(path), path.parent(), path.file_name()) {
        (Ok(real), ..) => real,
        (Err(_absent), Some(parent), Some(name)) => without_links(parent).join(name),
        (Err(_absent), ..) => path.to_owned(),
    }
}

/// A path without links, and which directories it and those above it are: a mounted directory has several paths.
struct Standing {
    path: PathBuf,
    own: Option<Id>,
    all: Vec<Id>,
}

impl Standing {
    fn of(path: PathBuf) -> Self {
        Self { own: identity_of(&path), all: path.ancestors().filter_map(identity_of).collect(), path }
    }

    fn lies_in(&self, outer: &Self) -> bool {
        self.path.starts_with(&outer.path) || outer.own.is_some_and(|own| self.all.contains(&own))
    }
}
