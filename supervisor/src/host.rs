//! Mechanisms and files of this host, and what it says of its user: asked for once, and handed on as values.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use callgate_policy::path::HostPath;
use callgate_policy::plan::exec::{HEADER_BYTES, Header, read_header};
use callgate_policy::step::Step;
use callgate_worker::apply::landlock::host_abi;
use callgate_worker::apply::limit::limit_cores;
use callgate_worker::protocol::StepFailure;
use rustix::fs::OFlags;

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

/// The variables of this process whose names are text, with their values as they are.
#[allow(clippy::disallowed_methods, reason = "the one place where the environment is read")]
pub(crate) fn environment() -> BTreeMap<String, HostPath> {
    let named = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, PathBuf::from(value))));
    named.map(|(name, value)| (name, HostPath::from(value))).collect()
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

/// Text of a regular file, to at most so many bytes. See [`bytes_of`].
pub(crate) fn text_of(file: &Path, most: u64) -> std::io::Result<String> {
    String::from_utf8(bytes_of(file, most)?).map_err(|error| {
        let what = format!("it is not UTF-8 from byte {} on", error.utf8_error().valid_up_to());
        std::io::Error::new(std::io::ErrorKind::InvalidData, what)
    })
}

/// Bytes of a regular file, to at most so many. Opened without waiting: a FIFO that nobody writes would hold us
/// for ever, and a device may have no end.
pub(crate) fn bytes_of(file: &Path, most: u64) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let opened = std::fs::File::options().read(true).custom_flags(flags).open(file)?;
    if !opened.metadata()?.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    opened.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
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
