//! Programs that start another one, and which of their words it is.
//!
//! A row says what a manual says: which options there are, which take a value, how many words of its own a program has, and how
//! what follows is read. An option that is in no row may take a value or not; then each word may be the command's name.

use super::known::{HOLE, KnownWord, assigned};

/// The reading of what stands behind a wrapper's options and its own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WrappedRest {
    /// A command and its arguments.
    Command,
    /// A package that is fetched if need be, whose command has its name: `npx eslint@9 x`.
    Package,
    /// Words that make a line.
    Line,
    /// Lines, each a word.
    Lines,
    /// `-c LINE`, or a command.
    CommandOrLine,
    /// `-c LINE`, or a line.
    LineBehindOption,
    /// A command, but behind `--` alone.
    BehindDashes,
    /// Nothing that starts.
    Nothing,
}

/// Facts known of a wrapper.
#[derive(Clone, Copy)]
pub(super) struct Wrapper {
    /// Its names, each with its subcommand.
    pub(super) names: &'static [&'static str],
    /// Letters of options without a value.
    pub(super) flags: &'static str,
    /// Letters of options with one.
    pub(super) valued: &'static str,
    /// Letters of options that may have one in the same word.
    pub(super) attached: &'static str,
    /// Long options without a value, or with one in the same word.
    pub(super) long: &'static [&'static str],
    /// Long options whose value is the next word, unless there is a `=`.
    pub(super) long_valued: &'static [&'static str],
    /// Those of the options, letters and long ones, that choose a directory.
    pub(super) places: (&'static str, &'static [&'static str]),
    /// Those whose value is a line; then what follows starts nothing.
    pub(super) lines: (&'static str, &'static [&'static str]),
    /// Those with which nothing is started.
    pub(super) nothing: (&'static str, &'static [&'static str]),
    /// Those with which what follows is a line, or a command, in place of what it is without.
    pub(super) line_if: &'static str,
    pub(super) command_if: (&'static str, &'static [&'static str]),
    /// How many words of its own stand before the command.
    pub(super) own: usize,
    /// True for a word of its own. Another word may be the command already.
    pub(super) is_own: fn(&str) -> bool,
    /// Assignments that may stand before the command.
    pub(super) assigns: Assignments,
    /// The command runs in another directory, or may.
    pub(super) moves: bool,
    /// True if each option is one word, whatever its name is.
    pub(super) is_one_word: bool,
    /// How the rest is read.
    pub(super) rest: WrappedRest,
}

/// Assignments that a wrapper takes before its command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Assignments {
    /// None.
    Nothing,
    /// `NAME=value`. Of other words with a `=` it is not known.
    Names,
    /// Every word with a `=`, whatever stands before it.
    Anything,
}

impl Wrapper {
    /// The name of the long option that a text begins, if it begins one alone.
    pub(super) fn full_name<'a>(&self, text: &'a str) -> &'a str {
        let lists = [self.long, self.long_valued, self.lines.1, self.nothing.1, self.command_if.1];
        let all = || lists.into_iter().flatten().copied();
        let mut begun = all().filter(|name| !text.is_empty() && name.starts_with(text));
        match (all().any(|name| name == text), begun.next(), begun.next()) {
            (false, Some(name), None) => name,
            _ => text,
        }
    }
}

impl Assignments {
    /// True if a word is certainly one.
    pub(super) fn have(self, word: &KnownWord) -> bool {
        let Some((name, _)) = word.text.split_once('=').filter(|_| !word.several) else { return false };
        match self {
            Self::Nothing => false,
            Self::Names => assigned(&word.text).is_some(),
            Self::Anything => !name.starts_with(['-', HOLE]),
        }
    }

    /// True if a word may be one.
    pub(super) fn may_have(self, word: &KnownWord) -> bool {
        self.have(word) || (self != Self::Nothing && word.text.contains('=') && !word.text.starts_with('-'))
    }
}

pub(super) const PLAIN: Wrapper = Wrapper {
    names: &[],
    flags: "",
    valued: "",
    attached: "",
    long: &[],
    long_valued: &[],
    places: ("", &[]),
    lines: ("", &[]),
    nothing: ("", &[]),
    line_if: "",
    command_if: ("", &[]),
    own: 0,
    is_own: |_| true,
    assigns: Assignments::Nothing,
    moves: false,
    is_one_word: false,
    rest: WrappedRest::Command,
};

#[rustfmt::skip]
const ARCHITECTURES: &[&str] = &[
    "linux32", "linux64", "i386", "i486", "i586", "i686", "athlon", "x86_64", "aarch64", "arm", "arm64", "armv7l", "armv8l", "ppc",
    "ppc64", "ppc64le", "ppcle", "s390", "s390x", "mips", "mips32", "mips64", "sparc", "sparc64", "riscv32", "riscv64", "alpha",
    "loongarch64", "parisc", "parisc64", "ia64", "uname26",
];

#[rustfmt::skip]
const PERSONALITY: Wrapper = Wrapper {
    flags: "vRBFILSTXZ3",
    long: &[
        "verbose", "addr-no-randomize", "fdpic-funcptrs", "mmap-page-zero", "addr-compat-layout", "read-implies-exec", "32bit",
        "short-inode", "whole-seconds", "sticky-timeouts", "3gb", "4gb", "uname-2.6",
    ],
    nothing: ("", &["list", "show"]),
    ..PLAIN
};

#[rustfmt::skip]
const NPX: Wrapper = Wrapper {
    flags: "yqn",
    valued: "pwC",
    long: &["yes", "no", "quiet", "silent", "no-install", "ignore-existing", "workspaces", "prefer-online", "offline", "prefer-offline"],
    long_valued: &["package", "workspace", "prefix", "cache", "registry", "userconfig", "shell", "loglevel", "node-options"],
    lines: ("c", &["call"]),
    places: ("C", &["prefix", "workspace", "workspaces"]),
    rest: WrappedRest::Package,
    ..PLAIN
};

const fn is_number(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if !bytes[at].is_ascii_digit() {
            return false;
        }
        at += 1;
    }
    !bytes.is_empty()
}

#[rustfmt::skip]
const WRAPPERS: &[Wrapper] = &[
    Wrapper {
        names: &["env"],
        flags: "i0v", valued: "uC",
        long: &["ignore-environment", "null", "debug"], long_valued: &["unset", "chdir"],
        places: ("C", &["chdir"]), assigns: Assignments::Anything,
        ..PLAIN
    },
    Wrapper { names: &["cross-env", "cross-env-shell"], assigns: Assignments::Anything, ..PLAIN },
    Wrapper {
        names: &[
            "nohup", "busybox", "toybox", "builtin", "coproc", "unbuffer", "fakeroot", "nocache", "noglob", "eatmydata", "catchsegv",
            "nosync",
        ],
        ..PLAIN
    },
    Wrapper { names: &["command"], flags: "p", ..PLAIN },
    Wrapper { names: &["exec"], flags: "cl", valued: "a", ..PLAIN },
    Wrapper {
        names: &["time"],
        flags: "pvaq", valued: "fo",
        long: &["portability", "verbose", "append", "quiet"], long_valued: &["format", "output"],
        ..PLAIN
    },
    Wrapper { names: &["nice"], valued: "n", long_valued: &["adjustment"], ..PLAIN },
    Wrapper {
        names: &["ionice"],
        flags: "t", valued: "cn", long: &["ignore"], long_valued: &["class", "classdata"],
        nothing: ("pPu", &["pid", "pgid", "uid"]),
        ..PLAIN
    },
    Wrapper {
        names: &["timeout"],
        flags: "fpv", valued: "ks",
        long: &["foreground", "preserve-status", "verbose"], long_valued: &["kill-after", "signal"],
        own: 1,
        ..PLAIN
    },
    Wrapper { names: &["stdbuf"], valued: "ioe", long_valued: &["input", "output", "error"], ..PLAIN },
    Wrapper { names: &["setsid"], flags: "cfw", long: &["ctty", "fork", "wait"], ..PLAIN },
    Wrapper {
        names: &["sudo", "doas"],
        flags: "AbEHknPSNn", valued: "ugphCDRTrt",
        long: &["preserve-env", "set-home", "non-interactive", "stdin", "background", "askpass", "reset-timestamp"],
        long_valued: &["user", "group", "prompt", "host", "chdir", "chroot"],
        places: ("DR", &["chdir", "chroot"]), assigns: Assignments::Names,
        ..PLAIN
    },
    Wrapper {
        names: &["xargs"],
        flags: "0rtpxo", valued: "InPdaLsE",
        // Their value is in the same word, if there is one.
        long: &["null", "no-run-if-empty", "verbose", "interactive", "exit", "open-tty", "replace", "max-lines"],
        long_valued: &["max-args", "max-procs", "delimiter", "arg-file", "max-chars"],
        ..PLAIN
    },
    Wrapper {
        names: &["flock"],
        flags: "sxenouFv", valued: "wE",
        long: &["shared", "exclusive", "unlock", "nonblock", "nb", "close", "no-fork", "verbose"],
        long_valued: &["wait", "timeout", "conflict-exit-code"],
        own: 1, rest: WrappedRest::CommandOrLine,
        ..PLAIN
    },
    Wrapper { names: &["taskset"], flags: "ac", long: &["all-tasks", "cpu-list"], nothing: ("p", &["pid"]), own: 1, ..PLAIN },
    Wrapper {
        names: &["chrt"],
        flags: "abdfiorRv", valued: "TPD",
        long: &["all-tasks", "batch", "deadline", "fifo", "idle", "other", "rr", "reset-on-fork", "verbose"],
        long_valued: &["sched-runtime", "sched-period", "sched-deadline"],
        nothing: ("pm", &["pid", "max"]), own: 1, is_own: is_number,
        ..PLAIN
    },
    Wrapper { names: &["setarch"], own: 1, is_own: |text| ARCHITECTURES.contains(&text), ..PERSONALITY },
    Wrapper { names: &["linux32", "linux64", "i386", "i486", "i586", "i686", "x86_64", "uname26"], ..PERSONALITY },
    Wrapper {
        names: &["strace"],
        flags: "cCdfFhiknqrtTvVwxyYzZDA", valued: "abeEIoOpPsSuUX",
        long: &["follow-forks", "output-separately", "summary", "summary-only", "debug", "no-abbrev", "quiet", "timestamps", "decode-fds"],
        long_valued: &["output", "trace", "expr", "string-limit", "user", "columns", "attach", "signal", "status", "interruptible"],
        ..PLAIN
    },
    Wrapper { names: &["ltrace"], flags: "bcCfhiLrStTV", valued: "aADeFlnopsuwxX", long_valued: &["output", "library", "config"], ..PLAIN },
    Wrapper {
        names: &["perf stat", "perf record", "perf trace"],
        flags: "aivndBASgqsTPWN", valued: "eptrCGIDoxMFmbjukz",
        long: &["all-cpus", "verbose", "detailed", "null", "scale", "sync", "no-inherit", "quiet", "summary", "append"],
        long_valued: &["event", "output", "repeat", "pid", "cpu", "call-graph", "freq", "count", "delay", "metrics"],
        nothing: ("", &["list"]),
        ..PLAIN
    },
    Wrapper { names: &["logsave"], flags: "asv", own: 1, ..PLAIN },
    Wrapper { names: &["sg"], own: 1, is_own: |text| text != "-", rest: WrappedRest::LineBehindOption, ..PLAIN },
    Wrapper {
        names: &["script"],
        flags: "aefq", valued: "EIBOTmo", attached: "t",
        long: &["append", "flush", "force", "quiet", "return", "timing"],
        long_valued: &["echo", "log-in", "log-out", "log-io", "log-timing", "logging-format", "output-limit"],
        lines: ("c", &["command"]), rest: WrappedRest::BehindDashes,
        ..PLAIN
    },
    Wrapper {
        names: &["watch"],
        flags: "bcCefgprtw", valued: "nqs", attached: "d",
        long: &["beep", "color", "no-color", "differences", "errexit", "follow", "chgexit", "precise", "no-rerun", "no-title", "no-wrap"],
        long_valued: &["interval", "equexit", "shotsdir"],
        command_if: ("x", &["exec"]), rest: WrappedRest::Line,
        ..PLAIN
    },
    Wrapper { names: &["entr"], flags: "acdnprxz", line_if: "s", ..PLAIN },
    Wrapper {
        names: &["ld.so"],
        long: &["inhibit-cache", "list", "verify", "list-tunables", "list-diagnostics", "help", "version"],
        long_valued: &["library-path", "glibc-hwcaps-prepend", "glibc-hwcaps-mask", "inhibit-rpath", "audit", "preload", "argv0"],
        ..PLAIN
    },
    Wrapper { names: &["npx", "npm exec", "bunx", "bun x", "pnpx", "pnpm dlx", "yarn dlx"], ..NPX },
    Wrapper {
        names: &["pnpm exec", "yarn exec", "bundle exec", "bundler exec", "rbenv exec", "pyenv exec", "nodenv exec", "asdf exec", "volta run"],
        flags: "rc", long: &["recursive", "parallel", "no-bail"], lines: ("", &["shell-mode"]),
        ..PLAIN
    },
    Wrapper {
        names: &["uvx", "uv tool run"],
        flags: "qvn", valued: "pwcf",
        long: &["isolated", "offline", "quiet", "verbose", "no-cache", "refresh", "upgrade"],
        long_valued: &["from", "with", "python", "index-url", "with-requirements", "constraints"],
        rest: WrappedRest::Package,
        ..PLAIN
    },
    Wrapper {
        names: &["uv run", "rye run", "hatch run", "pdm run", "pipenv run", "poetry run"],
        flags: "qvns", valued: "pwe",
        long: &["frozen", "locked", "isolated", "offline", "no-project", "no-sync", "all-extras", "no-dev", "quiet", "verbose", "active", "exact"],
        long_valued: &["with", "with-editable", "with-requirements", "python", "extra", "group", "package", "env-file", "directory", "project"],
        places: ("", &["directory"]),
        ..PLAIN
    },
    Wrapper { names: &["pipx run"], flags: "qv", long: &["no-cache", "verbose", "quiet"], long_valued: &["spec", "python", "index-url"], rest: WrappedRest::Package, ..PLAIN },
    Wrapper { names: &["rustup run"], long: &["install"], own: 1, ..PLAIN },
    Wrapper { names: &["direnv exec", "aws-vault exec"], own: 1, moves: true, ..PLAIN },
    Wrapper {
        names: &["conda run", "mamba run", "micromamba run"],
        flags: "v", valued: "np", long: &["no-capture-output", "live-stream", "dev"], long_valued: &["name", "prefix", "cwd"],
        places: ("", &["cwd"]),
        ..PLAIN
    },
    Wrapper { names: &["mise exec", "mise x", "doppler run", "op run", "chamber exec", "dotenvx run", "fnm exec", "infisical run"], is_one_word: true, moves: true, rest: WrappedRest::BehindDashes, ..PLAIN },
    Wrapper { names: &["nix-shell"], valued: "pAIE", long: &["pure", "packages"], lines: ("", &["run", "command"]), rest: WrappedRest::Nothing, ..PLAIN },
    Wrapper { names: &["setlock"], flags: "nNxX", own: 1, ..PLAIN },
    Wrapper { names: &["envdir", "envuidgid", "setuidgid"], own: 1, ..PLAIN },
    Wrapper { names: &["dumb-init"], flags: "cv", valued: "r", long: &["single-child", "verbose"], long_valued: &["rewrite"], ..PLAIN },
    Wrapper { names: &["tini", "tini-static", "catatonit"], flags: "sgvw", valued: "pe", ..PLAIN },
    Wrapper { names: &["cpulimit"], flags: "zivbfmkqrs", valued: "lpPecu", long: &["lazy", "include-children", "verbose", "quiet", "background", "foreground"], long_valued: &["limit", "pid", "exe", "path", "cpu"], ..PLAIN },
    Wrapper {
        names: &["prlimit"],
        attached: "cdefilmnqrstuvxy",
        long: &[
            "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc", "rss", "rtprio", "rttime",
            "sigpending", "stack", "as", "noheadings", "raw", "verbose",
        ],
        long_valued: &["output"], nothing: ("p", &["pid"]), valued: "o",
        ..PLAIN
    },
    Wrapper {
        names: &["unshare"],
        flags: "fcr", attached: "muinpUCT", valued: "RwSGl",
        long: &["mount", "uts", "ipc", "net", "pid", "user", "cgroup", "time", "fork", "map-root-user", "map-current-user", "map-auto", "mount-proc", "kill-child", "keep-caps"],
        long_valued: &["root", "wd", "setuid", "setgid", "map-user", "map-group", "map-users", "map-groups", "propagation", "setgroups", "monotonic", "boottime"],
        places: ("Rw", &["root", "wd"]),
        ..PLAIN
    },
    Wrapper {
        names: &["nsenter"],
        flags: "aFeZ", attached: "muinpUCTrw", valued: "tSGW",
        long: &["all", "mount", "uts", "ipc", "net", "pid", "user", "cgroup", "time", "root", "wd", "preserve-credentials", "no-fork", "follow-context", "env"],
        long_valued: &["target", "setuid", "setgid", "wdns"],
        moves: true,
        ..PLAIN
    },
    Wrapper { names: &["chroot"], long: &["skip-chdir"], long_valued: &["userspec", "groups"], own: 1, moves: true, ..PLAIN },
    Wrapper { names: &["valgrind"], is_one_word: true, ..PLAIN },
    Wrapper { names: &["torsocks", "torify"], flags: "iq", ..PLAIN },
    Wrapper { names: &["proxychains", "proxychains4"], flags: "q", valued: "f", ..PLAIN },
    Wrapper { names: &["xvfb-run"], flags: "al", valued: "nsefpw", long: &["auto-servernum", "listen-tcp"], long_valued: &["server-num", "server-args", "error-file", "auth-file", "wait"], ..PLAIN },
    Wrapper { names: &["chronic", "ifne"], flags: "ven", ..PLAIN },
    Wrapper { names: &["faketime"], flags: "m", valued: "f", long: &["exclude-monotonic"], own: 1, ..PLAIN },
    Wrapper { names: &["pkexec"], long: &["disable-internal-agent", "keep-cwd"], long_valued: &["user"], moves: true, ..PLAIN },
    Wrapper { names: &["caffeinate"], flags: "dimsu", valued: "tw", ..PLAIN },
    Wrapper { names: &["choom"], valued: "n", long_valued: &["adjust"], nothing: ("p", &["pid"]), ..PLAIN },
    Wrapper { names: &["dbus-run-session"], long_valued: &["config-file", "dbus-daemon"], ..PLAIN },
    Wrapper { names: &["systemd-inhibit"], long: &["no-pager", "list"], long_valued: &["what", "who", "why", "mode"], ..PLAIN },
    Wrapper { names: &["concurrently"], flags: "krs", valued: "ncp", long: &["kill-others", "kill-others-on-fail", "raw"], long_valued: &["names", "prefix", "prefix-colors", "success", "restart-tries"], rest: WrappedRest::Lines, ..PLAIN },
    Wrapper {
        names: &["hyperfine"],
        flags: "iN", valued: "wrmMnuS",
        long: &["show-output", "ignore-failure"],
        long_valued: &["warmup", "runs", "min-runs", "max-runs", "command-name", "export-json", "export-markdown", "export-csv", "shell", "style"],
        lines: ("psc", &["prepare", "setup", "cleanup", "conclude", "reference"]), rest: WrappedRest::Lines,
        ..PLAIN
    },
    Wrapper { names: &["nodemon"], valued: "weid", long_valued: &["watch", "ext", "ignore", "delay"], lines: ("x", &["exec"]), rest: WrappedRest::Nothing, ..PLAIN },
    Wrapper { names: &["cargo watch"], flags: "cq", valued: "wixd", long_valued: &["watch", "ignore", "exec", "delay"], lines: ("s", &["shell"]), rest: WrappedRest::Nothing, ..PLAIN },
];

/// Programs that start one, in a way that is not known here in detail: each of their words may be its name.
#[rustfmt::skip]
const SOME_WORD: &[&str] = &[
    "systemd-run", "cgexec", "runuser", "su", "firejail", "bwrap", "setpriv", "rlwrap", "chpst", "softlimit", "numactl",
    "ssh-agent", "start-stop-daemon", "capsh", "lldb", "dtach", "abduco", "daemonize", "daemon", "runcon", "uclampset", "mispipe", "pee",
    "proot", "dbus-launch", "machinectl", "watchexec", "nodaemon", "unionfs", "schroot", "ltrace-ng", "heaptrack", "rr", "bpftrace",
    "ccache", "distcc", "sccache", "foreman", "honcho", "overmind", "perf sched", "perf lock", "perf c2c", "perf mem", "perf kvm",
    "perf kmem", "perf timechart", "perf ftrace", "perf script", "perf kwork", "perf inject", "perf daemon",
];

/// The row of a wrapper, by its name alone or with a subcommand.
pub(super) fn row(name: &str, subcommand: &str) -> Option<Wrapper> {
    let both = format!("{name} {subcommand}");
    WRAPPERS.iter().find(|row| row.names.contains(&both.as_str()) || row.names.contains(&name)).copied()
}

/// True if some row has a program with a subcommand.
pub(super) fn has_subcommands(name: &str) -> bool {
    let begins = |known: &&str| known.strip_prefix(name).is_some_and(|rest| rest.starts_with(' '));
    WRAPPERS.iter().flat_map(|row| row.names).chain(SOME_WORD).any(begins)
}

/// True if each word of a program may be the name of what it starts.
pub(super) fn starts_some_word(name: &str, subcommand: &str) -> bool {
    SOME_WORD.contains(&name) || SOME_WORD.contains(&format!("{name} {subcommand}").as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An option has one meaning in a row, and a program one row.
    #[test]
    fn rows_do_not_contradict_themselves() {
        let mut names = Vec::new();
        for row in WRAPPERS {
            for letter in row.valued.chars().chain(row.lines.0.chars()) {
                assert!(!row.flags.contains(letter) && !row.attached.contains(letter), "{:?} -{letter}", row.names);
            }
            for long in row.long_valued.iter().chain(row.lines.1) {
                assert!(!row.long.contains(long), "{:?} --{long}", row.names);
            }
            for name in row.names {
                assert!(!SOME_WORD.contains(name), "{name}");
                assert!(!names.contains(name), "{name} twice");
                names.push(name);
            }
        }
    }
}
