//! Limits of a call: their names, values and defaults, and what a result says of each.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::unit::{ByteSize, UnitError, parse_duration};

/// One of the things that a call may use up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitName {
    /// Time from the call's start, milliseconds (S0-35's timeout).
    Wall,
    /// Processor time of all its processes together, milliseconds.
    Cpu,
    /// Memory of all its processes together, bytes: private pages, swap, page tables, and shared memory once, mapped or not.
    /// Pages of files are not counted: the kernel takes those back by itself.
    Memory,
    /// Processes and threads at once.
    Processes,
    /// Open descriptors of one process.
    OpenFiles,
    /// Length of one file, bytes.
    FileSize,
    /// Bytes that all its processes together cause to be written to storage.
    Disk,
    /// Bytes that a tool's program writes to standard output and error together.
    Output,
    /// Bytes that all connections of a call carry together, both ways.
    Network,
    /// Network bytes of all calls of a session, those that are over included.
    SessionNetwork,
    /// How fast the connections of a session may carry that, together.
    NetworkRate,
}

/// Unit that a limit's number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Milliseconds.
    Ms,
    /// Bytes.
    Bytes,
    /// Bytes in a second.
    BytesPerSecond,
    /// A number of things.
    Count,
}

impl LimitName {
    /// All, in the order of reports.
    pub const ALL: [Self; 11] = [
        Self::Wall,
        Self::Cpu,
        Self::Memory,
        Self::Processes,
        Self::OpenFiles,
        Self::FileSize,
        Self::Disk,
        Self::Output,
        Self::Network,
        Self::SessionNetwork,
        Self::NetworkRate,
    ];

    /// As manifests and envelopes spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Wall => "wall",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Processes => "processes",
            Self::OpenFiles => "open_files",
            Self::FileSize => "file_size",
            Self::Disk => "disk",
            Self::Output => "output",
            Self::Network => "network",
            Self::SessionNetwork => "session_network",
            Self::NetworkRate => "network_rate",
        }
    }

    /// Unit that its number counts.
    #[must_use]
    pub fn unit(self) -> Unit {
        match self {
            Self::Wall | Self::Cpu => Unit::Ms,
            Self::Memory | Self::FileSize | Self::Disk | Self::Output | Self::Network | Self::SessionNetwork => {
                Unit::Bytes
            }
            Self::NetworkRate => Unit::BytesPerSecond,
            Self::Processes | Self::OpenFiles => Unit::Count,
        }
    }

    /// A number as a person writes it, in the largest unit that divides it.
    #[must_use]
    pub fn text(self, number: u64) -> String {
        match self.unit() {
            Unit::Bytes | Unit::BytesPerSecond => ByteSize(number).to_string(),
            Unit::Count => number.to_string(),
            Unit::Ms => match number {
                ms if ms > 0 && ms.is_multiple_of(3_600_000) => format!("{}h", ms / 3_600_000),
                ms if ms > 0 && ms.is_multiple_of(60_000) => format!("{}m", ms / 60_000),
                ms if ms.is_multiple_of(1000) => format!("{}s", ms / 1000),
                ms => format!("{ms}ms"),
            },
        }
    }

    /// Sentence about a call that met it, with `used` and `value` in its own unit.
    #[must_use]
    pub fn story(self, used: u64, value: u64) -> String {
        let (used, value) = (self.rough(used), self.text(value));
        match self {
            Self::Wall => format!("it ran longer than the limit of {value}"),
            Self::Cpu => {
                format!("its processes together took {used} of processor time, more than the limit of {value}")
            }
            Self::Memory => format!("its processes together held {used} of memory, more than the limit of {value}"),
            Self::Processes => format!("it had {used} processes and threads, more than the limit of {value}"),
            Self::OpenFiles => format!("a process had {used} open files, more than the limit of {value}"),
            Self::FileSize => format!("a file was to become longer than the limit of {value}"),
            Self::Disk => format!("its processes together wrote {used} to disk, more than the limit of {value}"),
            Self::Output => format!("it wrote {used} of output, more than the limit of {value}"),
            Self::Network => format!("its connections carried {used}, more than the limit of {value}"),
            Self::SessionNetwork => {
                format!("the session's connections have carried {used}, more than the limit of {value}")
            }
            Self::NetworkRate => format!("its connections carried {used} a second, more than the limit of {value}"),
        }
    }

    /// Line to write in the manifest to be allowed twice as much as was used or allowed.
    #[must_use]
    pub fn remedy(self, used: u64, value: u64) -> String {
        format!("if it needs more, raise it: {}", self.line(&self.raised(used, value)))
    }

    /// Option to type to be allowed as much, or to write in the manifest.
    #[must_use]
    pub fn remedy_to_type(self, used: u64, value: u64) -> String {
        let text = self.raised(used, value);
        format!("if it needs more, raise it: `--limit {}={text}`, or {}", self.as_str(), self.line(&text))
    }

    fn line(self, text: &str) -> String {
        let quoted = if self.unit() == Unit::Count { text.to_owned() } else { format!("\"{text}\"") };
        format!("`{} = {quoted}` below [limits] in the manifest", self.as_str())
    }

    fn raised(self, used: u64, value: u64) -> String {
        let wanted = used.max(value).saturating_mul(2);
        let rounded = match self.unit() {
            Unit::Bytes | Unit::BytesPerSecond => match wanted {
                w if w >= 1 << 30 => w.div_ceil(1 << 30) << 30,
                w if w >= 1 << 20 => w.div_ceil(1 << 20) << 20,
                w => w,
            },
            Unit::Ms => wanted.div_ceil(1000) * 1000,
            Unit::Count => wanted,
        };
        self.text(rounded)
    }

    /// A measured number, which divides by nothing: rounded to what a person reads.
    fn rough(self, number: u64) -> String {
        match self.unit() {
            Unit::Bytes | Unit::BytesPerSecond => match number {
                n if n >= 10 << 30 => format!("{}GiB", n >> 30),
                n if n >= 1 << 20 => format!("{}MiB", n >> 20),
                n if n >= 1 << 10 => format!("{}KiB", n >> 10),
                n => format!("{n}B"),
            },
            Unit::Ms | Unit::Count => self.text(number),
        }
    }
}

impl fmt::Display for LimitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Limits as they are asked for: `[limits]` of a manifest, `--limit` of a command line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// [`LimitName::Wall`].
    pub wall: Option<Duration>,
    /// [`LimitName::Cpu`].
    pub cpu: Option<Duration>,
    /// [`LimitName::Memory`].
    pub memory: Option<ByteSize>,
    /// [`LimitName::Processes`].
    pub processes: Option<u64>,
    /// [`LimitName::OpenFiles`].
    pub open_files: Option<u64>,
    /// [`LimitName::FileSize`].
    pub file_size: Option<ByteSize>,
    /// [`LimitName::Disk`].
    pub disk: Option<ByteSize>,
    /// [`LimitName::Output`].
    pub output: Option<ByteSize>,
    /// [`LimitName::Network`].
    pub network: Option<ByteSize>,
    /// [`LimitName::SessionNetwork`].
    pub session_network: Option<ByteSize>,
    /// [`LimitName::NetworkRate`].
    pub network_rate: Option<ByteSize>,
}

/// Text that is no limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// No `=`.
    #[error("{0:?} is not NAME=VALUE; write for example `memory=2GiB`")]
    Form(String),
    /// No such limit.
    #[error(
        "there is no limit `{0}`; there are: wall, cpu, memory, processes, open_files, file_size, disk, output, network, \
             session_network, network_rate"
    )]
    Name(String),
    /// Not a value.
    #[error("the limit {name} cannot be read")]
    Unit {
        /// Which limit.
        name: LimitName,
        /// Mistake in the value.
        source: UnitError,
    },
    /// Not a number.
    #[error("{name}: {text:?} is not a whole number above zero")]
    Count {
        /// Which limit.
        name: LimitName,
        /// Text as typed.
        text: String,
    },
}

impl Limits {
    /// Takes `NAME=VALUE` in.
    ///
    /// # Errors
    /// [`LimitError`], which says what can be written.
    pub fn set(&mut self, text: &str) -> Result<(), LimitError> {
        let (name, value) = text.split_once('=').ok_or_else(|| LimitError::Form(text.to_owned()))?;
        let found = LimitName::ALL.into_iter().find(|each| each.as_str() == name);
        let name = found.ok_or_else(|| LimitError::Name(name.to_owned()))?;
        let time = || parse_duration(value).map_err(|source| LimitError::Unit { name, source });
        let size = || ByteSize::parse(value).map_err(|source| LimitError::Unit { name, source });
        let count = || match value.parse::<u64>() {
            Ok(count) if count > 0 => Ok(count),
            Ok(_) | Err(_) => Err(LimitError::Count { name, text: value.to_owned() }),
        };
        match name {
            LimitName::Wall => self.wall = Some(time()?),
            LimitName::Cpu => self.cpu = Some(time()?),
            LimitName::Memory => self.memory = Some(size()?),
            LimitName::Processes => self.processes = Some(count()?),
            LimitName::OpenFiles => self.open_files = Some(count()?),
            LimitName::FileSize => self.file_size = Some(size()?),
            LimitName::Disk => self.disk = Some(size()?),
            LimitName::Output => self.output = Some(size()?),
            LimitName::Network => self.network = Some(size()?),
            LimitName::SessionNetwork => self.session_network = Some(size()?),
            LimitName::NetworkRate => self.network_rate = Some(size()?),
        }
        Ok(())
    }

    /// These, and where they say nothing, those of `base`.
    #[must_use]
    pub fn or(self, base: Self) -> Self {
        Self {
            wall: self.wall.or(base.wall),
            cpu: self.cpu.or(base.cpu),
            memory: self.memory.or(base.memory),
            processes: self.processes.or(base.processes),
            open_files: self.open_files.or(base.open_files),
            file_size: self.file_size.or(base.file_size),
            disk: self.disk.or(base.disk),
            output: self.output.or(base.output),
            network: self.network.or(base.network),
            session_network: self.session_network.or(base.session_network),
            network_rate: self.network_rate.or(base.network_rate),
        }
    }
}

/// Limits that are in force for each call of a session. There is one of each kind, whatever was asked for; only a command
/// that a person runs may go on for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Bounds {
    /// [`LimitName::Wall`], if it was asked for. A tool call has a timeout besides.
    pub wall: Option<Duration>,
    /// [`LimitName::Cpu`].
    pub cpu: Duration,
    /// [`LimitName::Memory`], bytes.
    pub memory: u64,
    /// [`LimitName::Processes`].
    pub processes: u64,
    /// [`LimitName::OpenFiles`].
    pub open_files: u64,
    /// [`LimitName::FileSize`], bytes.
    pub file_size: u64,
    /// [`LimitName::Disk`], bytes.
    pub disk: u64,
    /// [`LimitName::Output`], bytes.
    pub output: u64,
    /// [`LimitName::Network`], bytes.
    pub network: u64,
    /// [`LimitName::SessionNetwork`], bytes.
    pub session_network: u64,
    /// [`LimitName::NetworkRate`], bytes a second, if it was asked for.
    pub network_rate: Option<u64>,
}

impl Bounds {
    /// Bounds that are asked for, and defaults for the rest, chosen so that no everyday build meets one and no bomb
    /// takes the host with it. `host_memory` is what the host has, bytes: a call gets three quarters unless it says
    /// otherwise.
    #[must_use]
    pub fn of(limits: &Limits, host_memory: u64) -> Self {
        let size = |given: Option<ByteSize>, default: u64| given.map_or(default, |size| size.0);
        Self {
            wall: limits.wall,
            cpu: limits.cpu.unwrap_or(Duration::from_secs(24 * 3600)),
            memory: size(limits.memory, host_memory / 4 * 3),
            processes: limits.processes.unwrap_or(4096),
            open_files: limits.open_files.unwrap_or(65_536),
            file_size: size(limits.file_size, 64 << 30),
            disk: size(limits.disk, 64 << 30),
            output: size(limits.output, 256 << 20),
            network: size(limits.network, 64 << 30),
            session_network: size(limits.session_network, 1 << 40),
            network_rate: limits.network_rate.map(|size| size.0),
        }
    }

    /// These, or what is asked for where that is less.
    #[must_use]
    pub fn within(&self, limits: &Limits) -> Self {
        let least = |own: u64, asked: Option<u64>| asked.map_or(own, |asked| asked.min(own));
        let size = |size: Option<ByteSize>| size.map(|size| size.0);
        Self {
            wall: self.wall.into_iter().chain(limits.wall).min(),
            cpu: limits.cpu.map_or(self.cpu, |asked| asked.min(self.cpu)),
            memory: least(self.memory, size(limits.memory)),
            processes: least(self.processes, limits.processes),
            open_files: least(self.open_files, limits.open_files),
            file_size: least(self.file_size, size(limits.file_size)),
            disk: least(self.disk, size(limits.disk)),
            output: least(self.output, size(limits.output)),
            network: least(self.network, size(limits.network)),
            session_network: least(self.session_network, size(limits.session_network)),
            network_rate: self.network_rate.into_iter().chain(size(limits.network_rate)).min(),
        }
    }

    /// One of them in its own unit; none for what was not asked for and has no default.
    #[must_use]
    pub fn value(&self, name: LimitName) -> Option<u64> {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        match name {
            LimitName::Wall => self.wall.map(ms),
            LimitName::Cpu => Some(ms(self.cpu)),
            LimitName::Memory => Some(self.memory),
            LimitName::Processes => Some(self.processes),
            LimitName::OpenFiles => Some(self.open_files),
            LimitName::FileSize => Some(self.file_size),
            LimitName::Disk => Some(self.disk),
            LimitName::Output => Some(self.output),
            LimitName::Network => Some(self.network),
            LimitName::SessionNetwork => Some(self.session_network),
            LimitName::NetworkRate => self.network_rate,
        }
    }
}

/// Who holds a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Enforcer {
    /// A cgroup of the call's own (cgroups(7), version 2): the kernel never lets it be passed.
    Cgroup,
    /// setrlimit(2), for each process: the kernel never lets it be passed.
    Rlimit,
    /// The call's init, which looks at intervals and ends the call: it may be passed by what is used in between.
    Watcher,
    /// The init's clock.
    Timer,
    /// The supervisor, which reads the program's output.
    Supervisor,
    /// Egress, through which everything goes.
    Egress,
}

/// A limit of a call, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LimitReport {
    /// Which.
    pub limit: LimitName,
    /// How much is allowed, in `unit`.
    pub value: u64,
    /// How much the call asked for, where that was more (C-18).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub requested: Option<u64>,
    /// Unit of `value`, `requested`, `used` and `overshoot`.
    pub unit: Unit,
    /// Who holds it.
    pub by: Vec<Enforcer>,
    /// The most that was seen, where somebody looked. For memory a safe estimate, never too small, unless it was met.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub used: Option<u64>,
    /// The call met it, and was ended for it or had a request refused.
    pub hit: bool,
    /// By how much it was passed before the call was ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub overshoot: Option<u64>,
}

impl LimitReport {
    /// This limit, in its own unit, is held by these. Nothing is known of what was used, and it was not passed.
    #[must_use]
    pub fn new(limit: LimitName, value: u64, by: Vec<Enforcer>) -> Self {
        Self { limit, value, requested: None, unit: limit.unit(), by, used: None, hit: false, overshoot: None }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use std::error::Error as _;

    use super::*;

    /// Every limit can be typed, and what is typed wrong is named.
    #[test]
    fn each_limit_can_be_typed() {
        let mut limits = Limits::default();
        for text in [
            "wall=5m",
            "cpu=1h",
            "memory=2GiB",
            "processes=7",
            "open_files=64",
            "file_size=1MiB",
            "disk=3GiB",
            "output=1KiB",
            "network=5GiB",
            "session_network=6GiB",
            "network_rate=8MiB",
        ] {
            limits.set(text).unwrap();
        }
        let bounds = Bounds::of(&limits, 0);
        let typed = LimitName::ALL.map(|name| name.text(bounds.value(name).unwrap()));
        assert_eq!(typed, ["5m", "1h", "2GiB", "7", "64", "1MiB", "3GiB", "1KiB", "5GiB", "6GiB", "8MiB"]);
        for (text, part) in [
            ("memory", "NAME=VALUE"),
            ("ram=1GiB", "there is no limit `ram`"),
            ("memory=2GB", "2GiB"),
            ("wall=0s", "120s"),
            ("processes=0", "above zero"),
        ] {
            let error = Limits::default().set(text).unwrap_err();
            let said = format!("{error}: {}", error.source().map(ToString::to_string).unwrap_or_default());
            assert!(said.contains(part), "{text}: {said}");
        }
    }

    /// The command line wins over the manifest, and both over the defaults.
    #[test]
    fn what_is_nearer_wins() {
        let mut typed = Limits::default();
        typed.set("memory=1GiB").unwrap();
        let mut written = Limits::default();
        written.set("memory=2GiB").unwrap();
        written.set("processes=9").unwrap();
        let bounds = Bounds::of(&typed.or(written), 16 << 30);
        assert_eq!((bounds.memory, bounds.processes, bounds.disk), (1 << 30, 9, 64 << 30));
        assert_eq!(Bounds::of(&Limits::default(), 16 << 30).memory, 12 << 30);
    }

    /// A remedy can be typed as it stands.
    #[test]
    fn each_remedy_can_be_typed() {
        for name in LimitName::ALL {
            for (used, value) in [(0, 1), (700, 512), (5 << 30, 3 << 30), (900_001, 900_000)] {
                assert!(!name.remedy(used, value).contains("--"));
                let remedy = name.remedy_to_type(used, value);
                let typed = remedy.split('`').nth(1).unwrap().strip_prefix("--limit ").unwrap();
                let mut limits = Limits::default();
                limits.set(typed).unwrap();
                let raised = Bounds::of(&limits, 0).value(name).unwrap();
                assert!(raised > used.max(value), "{remedy}");
                assert!(name.story(used, value).contains("limit of"));
            }
        }
    }
}
