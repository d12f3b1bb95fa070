//! What can be typed.

use std::ffi::OsString;
use std::path::PathBuf;

use callgate::StrengthChoice;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// Runs the tool calls of AI agents, and any other command, so that the kernel holds them to what was granted.
#[derive(Debug, Parser)]
#[command(
    name = "callgate",
    version,
    arg_required_else_help = true,
    after_help = "Examples:
  callgate run -- cargo test                     run a command: this directory read-write, no network
  callgate run --read ~/data -- python3 plot.py  and another directory to read
  callgate call read '{\"path\": \"README.md\"}'     one tool call, as an agent host makes it
  callgate doctor                                what this host can enforce
  callgate bench                                 what a call costs on this machine

Exit status: 0; the command's own (run); 1 tool error (call); 64 usage, an unknown tool too; 65 invalid manifest or
arguments; 69 the host cannot enforce it; 70 our fault; 77 denied; 124 timeout; 128+n killed by signal n."
)]
pub(super) struct Arguments {
    /// Print JSON instead of text for people.
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// What to report on standard error while it happens: `off`, `error`, `warn` (the default), `info`, `debug`, `trace`, or a
    /// filter such as `callgate::trust=info`. With --json each line is a JSON object.
    #[arg(long, global = true, value_name = "LEVEL")]
    pub(super) log: Option<String>,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run a command in the sandbox.
    Run(Run),
    /// Make one tool call through all three layers, and print its envelope.
    Call(Call),
    /// List the tools, or show one with its schema.
    Tools(Tools),
    /// Let a project's own manifest count, until it changes.
    Trust(Trust),
    /// Tell what this host can enforce, and what to do about the rest.
    Doctor(Doctor),
    /// Measure what calls cost on this machine, beside a plain spawn.
    Bench(Bench),
    /// Print a completion script for a shell.
    Completions(Completions),
    /// Print the manual page, or write all of them into a directory.
    Man(Man),
    /// Open and close a file many times, and print what one time takes: what `bench` runs inside and outside.
    #[command(hide = true)]
    BenchOpens(BenchOpens),
    /// Make one attempt to break out, with the rights of whoever starts this: what `doctor --attack` runs inside and outside.
    #[command(hide = true)]
    Attempt(Attempt),
}

/// What a session may do.
#[derive(Debug, Args)]
pub(super) struct Grants {
    /// Grant reading this file or directory, besides what is granted without it; may be given several times.
    #[arg(long, value_name = "PATH")]
    pub(super) read: Vec<PathBuf>,
    /// Grant writing this file or directory, besides what is granted without it; may be given several times. A file need not
    /// exist yet.
    #[arg(long, value_name = "PATH")]
    pub(super) write: Vec<PathBuf>,
    /// Grant connecting to this host (`api.example.com`, `*.example.com:443`); may be given several times.
    #[arg(long, value_name = "HOST")]
    pub(super) net: Vec<String>,
    /// Grant starting this program, and no others but those that the manifest names; may be given several times. Without it,
    /// any, or what the manifest says.
    #[arg(long, value_name = "PROGRAM")]
    pub(super) exec: Vec<String>,
    /// Take grants, limits, rules and environment from this manifest. Default: the workspace's own `callgate.toml` or
    /// `callgate.json` if it is trusted (see `callgate trust`), else this directory read-write and the system read-only.
    #[arg(long, value_name = "FILE")]
    pub(super) manifest: Option<PathBuf>,
    /// Limit what a call may use, with all that it starts; may be given several times, and wins over the manifest.
    ///
    /// wall (default: none for `run`), cpu (24h), memory (three quarters of this host's), processes (4096, threads
    /// included), open_files (65536, each process), file_size (64GiB), disk (64GiB written), output (256MiB, of `call
    /// bash`). Times take ms, s, m, h; sizes B, KiB, MiB, GiB, TiB.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(super) limit: Vec<String>,
    /// Pass this variable of your environment on to programs, or set it; may be given several times, and wins over the manifest.
    /// Without it programs get only what `run --explain-env` lists.
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(super) env: Vec<String>,
    /// The workspace: where the command starts, and what the defaults grant. Default: this directory.
    #[arg(long, short = 'C', value_name = "DIR")]
    pub(super) workspace: Option<PathBuf>,
    /// A further root of the workspace, granted as the first is; may be given several times.
    #[arg(long, value_name = "DIR")]
    pub(super) root: Vec<PathBuf>,
    /// A directory that `{ad-hoc}` stands for in the manifest's patterns: of a file that is open outside the workspace. May be
    /// given several times.
    #[arg(long, value_name = "DIR")]
    pub(super) ad_hoc: Vec<PathBuf>,
    /// The directory that `{user-data}` stands for in the manifest's patterns.
    #[arg(long, value_name = "DIR")]
    pub(super) user_data: Option<PathBuf>,
    /// Let the workspace, or a directory that is granted, be or hold a home directory. The keys in it can be read then.
    #[arg(long)]
    pub(super) allow_home: bool,
}

/// Runs any program with the grants given. Its input, output and error are callgate's own, so it works in a pipe; signals
/// are passed on; its exit status is callgate's. When it ends, so does everything that it started.
///
/// On a terminal the program gets one of its own, and Ctrl-C, Ctrl-Z and Ctrl-\ are for the program alone. That needs
/// standard output on the terminal. If it is elsewhere, the terminal is not read: standard input, unless it is elsewhere
/// too, is empty. Ctrl-Z stops what runs in a shell inside; a program without one is not stopped.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  callgate run -- bash                           a place to work in
  callgate run -- make -j2
  callgate run --tty -- ./ask.sh | tee answers   read the terminal, though the output goes elsewhere
  git diff | callgate run -- ./review.py > review.txt
  callgate run --limit memory=2GiB --limit wall=5m -- npm test
  callgate run --env DATABASE_URL --env RUST_LOG=debug -- cargo test
  callgate run --explain-env                     which variables the command would get
  callgate run --write ../out --status result.json -- ./build.sh")]
pub(super) struct Run {
    #[command(flatten)]
    pub(super) grants: Grants,
    /// Write the result envelope, with what enforced it, to this file.
    #[arg(long, value_name = "FILE", conflicts_with = "status_fd")]
    pub(super) status: Option<PathBuf>,
    /// Write the result envelope to this open descriptor.
    #[arg(long, value_name = "N")]
    pub(super) status_fd: Option<i32>,
    /// Give the program a terminal of its own even if standard output is none.
    #[arg(long)]
    pub(super) tty: bool,
    /// List the variables that the command would get, those that it would not, and why; and run nothing.
    #[arg(long)]
    pub(super) explain_env: bool,
    /// The command and its arguments.
    #[arg(required_unless_present = "explain_env", trailing_var_arg = true, value_name = "CMD")]
    pub(super) argv: Vec<OsString>,
}

/// Makes one tool call, as an agent host does: schema, capability check, watchdog, sandbox. Prints the result envelope.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  callgate call read '{\"path\": \"src/main.rs\", \"start_line\": 1, \"end_line\": 40}'
  callgate call bash '{\"command\": \"cargo test 2>&1 | tail\"}'
  callgate call --limit processes=64 bash '{\"command\": \"./configure\"}'
  callgate call --manifest callgate.toml bash '{\"command\": \"git push\"}'   where a rule asks, you are asked
  callgate call --asked-by agent --mode ask bash '{\"command\": \"ls\"}'    a model's call: denied unless allowed
  jq -n '{path: \"notes.txt\", content: \"…\"}' | callgate call write -

Exit status:
    0  the tool gave a result; for bash also if its command failed (see data.exit_code)
    1  the tool failed or met a limit, the kernel refused it something, or the session halted because nobody could be asked
   64  something typed is wrong: an option, or a tool that does not exist or that the session does not offer
   65  the arguments or the manifest are not valid
   69  this host cannot enforce what was asked for
   70  callgate itself failed
   77  a grant, a rule, a watchdog or a person said no
  124  the call's time was up

Whatever the status, the envelope is printed if the session could be opened.")]
pub(super) struct Call {
    #[command(flatten)]
    pub(super) grants: Grants,
    /// Pass a program's output on to standard error while it comes.
    #[arg(long)]
    pub(super) stream: bool,
    /// What happens to a call that no rule decides; wins over the manifest. Typing a call approves it, unless a rule or a
    /// watchdog asks or denies: `ask`, `allowlist` and `auto-edit` make a difference with `--asked-by agent` alone.
    #[arg(long, value_name = "MODE")]
    pub(super) mode: Option<Mode>,
    /// Whose call this is. A program that starts `callgate call` for a model passes `agent`: a call that no rule allows is then
    /// asked about, and denied if there is nobody to ask.
    #[arg(long, value_name = "WHO", value_enum, default_value_t = AskedBy::Person)]
    pub(super) asked_by: AskedBy,
    /// Which tools there are and what they may do: `readonly`, `developer`, `eval`, `unrestricted`, `developer-bash-only`,
    /// `plan`, or a YAML file. Wins over the manifest.
    #[arg(long, value_name = "NAME|FILE")]
    pub(super) profile: Option<String>,
    /// Keep what the result has no room for in a new file in this directory, and name it in the result. The directory must
    /// exist, and the call must not be able to write it. Without this the rest is not kept.
    #[arg(long, value_name = "DIR")]
    pub(super) output_dir: Option<PathBuf>,
    /// Take an argument of the wrong type as the right one where that loses nothing: `"5"` as 5, `"true"` as true, one value
    /// as a list of one, null as absent. The result lists what was taken so.
    #[arg(long)]
    pub(super) coerce: bool,
    /// How long a question waits for your answer: `30s`, `5m` (the default).
    #[arg(long, value_name = "TIME")]
    pub(super) approval_timeout: Option<String>,
    /// The tool.
    pub(super) tool: String,
    /// Its arguments as JSON; `-` reads them from standard input.
    #[arg(default_value = "{}", value_name = "JSON")]
    pub(super) arguments: String,
}

/// Lists the tools of this build, or shows one with what it requires and the JSON Schema of its arguments.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  callgate tools
  callgate tools bash
  callgate tools --json | jq '.[].id'")]
pub(super) struct Tools {
    /// Show this tool whole.
    pub(super) name: Option<String>,
}

/// Lets the manifest in a project's own directory, `callgate.toml` or `callgate.json`, count for `run` and `call` there. Prints
/// what it asks for.
///
/// It is this content that is trusted: when the manifest changes or goes, `run` and `call` refuse until it is trusted again, or
/// trust is taken back. For every project that nobody has trusted the defaults are in force, and they say so. The list is
/// `~/.callgate/trust.json`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  callgate trust .             until the manifest changes
  callgate trust --once .      for the next `run` or `call` there
  callgate trust --revoke .    no longer; forgets what was approved of for the project
  callgate trust --list")]
pub(super) struct Trust {
    /// The project's directory.
    #[arg(required_unless_present = "list")]
    pub(super) dir: Option<PathBuf>,
    /// For the next session alone.
    #[arg(long, conflicts_with_all = ["revoke", "list"])]
    pub(super) once: bool,
    /// Take trust back.
    #[arg(long, conflicts_with = "list")]
    pub(super) revoke: bool,
    /// Print what is trusted.
    #[arg(long, conflicts_with = "dir")]
    pub(super) list: bool,
}

/// Opens a session in each strength for real, runs a program in it, and says what was confirmed; for what is missing, what
/// takes its place and what to type to get it. Changes nothing on the host.
///
/// With --attack it tries to break out: each attempt is made outside first, where it must succeed, then in a session of
/// each strength, then without each mechanism and with each alone. What is aimed at is made for it, in a scratch directory,
/// on loopback and as processes of its own; it is looked at after every attempt, and what changed counts as reached.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  callgate doctor
  callgate doctor --json | jq -r '.checks[] | select(.state != \"ok\") | .remedy[]'
  callgate doctor --attack
  callgate doctor --attack --under 'bwrap --unshare-all --ro-bind / / --dev /dev --proc /proc --bind {dir} {dir} --'

Exit status: 0 if sessions can run here in at least one strength, 69 if in none. With --attack: 0 if nothing is open, 1 if
something is, 69 if nothing could be tried.")]
pub(super) struct Doctor {
    /// Try to break out, and print what held, and which mechanism holds it alone.
    #[arg(long)]
    pub(super) attack: bool,
    /// Make the same attempts under this command instead, which confines what follows it. `{dir}` stands for the scratch
    /// workspace, which holds the program that makes the attempts and which the command must grant for writing.
    #[arg(long, value_name = "COMMAND", requires = "attack")]
    pub(super) under: Option<String>,
}

/// What happens to a call that no rule decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Mode {
    /// Ask; with nobody to ask, deny.
    #[value(alias = "default")]
    Ask,
    /// Allow what the manifest lists; ask about the rest.
    Allowlist,
    /// Allow `write` and `edit`; ask about the rest.
    AutoEdit,
    /// Allow all that nothing denies.
    #[value(alias = "force")]
    Yolo,
}

impl From<Mode> for callgate_policy::mode::Mode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Ask => Self::Ask,
            Mode::Allowlist => Self::Allowlist,
            Mode::AutoEdit => Self::AutoEdit,
            Mode::Yolo => Self::Yolo,
        }
    }
}

/// Whose a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum AskedBy {
    /// A person's, who typed it.
    Person,
    /// A model's.
    Agent,
}

impl From<AskedBy> for callgate::AskedBy {
    fn from(whose: AskedBy) -> Self {
        match whose {
            AskedBy::Person => Self::Person,
            AskedBy::Agent => Self::Agent,
        }
    }
}

/// Which strength to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Strength {
    /// Namespaces if the host has them.
    Best,
    /// Landlock and seccomp alone.
    Landlock,
    /// Namespaces, or an error.
    Namespaces,
}

impl From<Strength> for StrengthChoice {
    fn from(strength: Strength) -> Self {
        match strength {
            Strength::Best => Self::Best,
            Strength::Landlock => Self::Landlock,
            Strength::Namespaces => Self::Namespaces,
        }
    }
}

/// Measures calls with every layer on, beside `posix_spawn` of the same program and, where it is installed, bubblewrap with
/// all its namespaces. All subjects take turns in one run, so that what disturbs one disturbs all: trust the ratios. Works
/// in a directory of its own, which it removes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  callgate bench
  callgate bench --runs 1000 --sessions 1000
  callgate bench --strength landlock --json > here.json

A target that is not met is told, and is not a failure: the exit status is 0.")]
pub(super) struct Bench {
    /// How often each subject runs, after a tenth as many runs to warm up.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pub(super) runs: u32,
    /// How many sessions to open at once.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) sessions: u32,
    /// Which strength to measure.
    #[arg(long, value_enum, default_value_t = Strength::Best)]
    pub(super) strength: Strength,
    /// Measure `grep` and `glob` over a tree of 500 MB instead, beside ripgrep (`rg`) if it is installed. Each runs ten times
    /// at most. The tree is made in TMPDIR, and removed.
    #[arg(long)]
    pub(super) search: bool,
    /// Measure everyday work on files instead, inside and outside: git, tar, make, cargo, npm, pip. Minutes, on TMPDIR's disk.
    #[arg(long)]
    pub(super) files: bool,
}

/// Prints a script that teaches a shell to complete callgate's commands and flags.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  callgate completions bash > ~/.local/share/bash-completion/completions/callgate
  callgate completions fish > ~/.config/fish/completions/callgate.fish
  callgate completions zsh  > ~/.zfunc/_callgate")]
pub(super) struct Completions {
    /// Which shell.
    #[arg(value_enum)]
    pub(super) shell: Shell,
}

/// Prints `callgate(1)`, or writes it and the page of each command into a directory.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  callgate man | man -l -
  callgate man ~/.local/share/man/man1")]
pub(super) struct Man {
    /// Write every page into this directory, which is made if it is not there.
    #[arg(value_name = "DIR")]
    pub(super) directory: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct Attempt {
    /// An act of the probe and its arguments; `--list` prints all.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(super) words: Vec<String>,
}

#[derive(Debug, Args)]
pub(super) struct BenchOpens {
    /// What to open.
    pub(super) file: PathBuf,
    /// How often.
    pub(super) count: u32,
}
