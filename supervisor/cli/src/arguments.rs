//! Arguments that can be typed.

use std::ffi::OsString;
use std::path::PathBuf;

use callgate::StrengthChoice;
use callgate_policy::tool::Surface;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use serde::{Deserialize, Serialize};

/// Runs tool calls of AI agents, and any other command, in a sandbox that the kernel enforces.
#[derive(Debug, Parser)]
#[command(
    name = "callgate",
    version,
    arg_required_else_help = true,
    after_help = "Examples:
  callgate run -- cargo test                      this directory read-write, no network
  callgate run --read ~/data -- python3 plot.py   another directory, to read
  callgate call read '{\"path\": \"README.md\"}'      one tool call, as an agent host makes it
  callgate doctor                                 what this host can enforce
  callgate bench                                  what a call costs on this machine

Exit status (`run` otherwise exits with the command's own):
      0  success
      1  the tool failed (`call`)
     64  usage error, or an unknown tool
     65  invalid manifest or arguments
     69  this host cannot enforce what was asked for
     70  callgate itself failed
     77  denied
    124  timeout
  128+n  killed by signal n"
)]
pub(super) struct Arguments {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// Level of the log on standard error: `off`, `error`, `warn` (the default), `info`, `debug`, `trace`, or a filter
    /// such as `callgate::trust=info`. With --json each line is a JSON object.
    #[arg(long, global = true, value_name = "LEVEL")]
    pub(super) log: Option<String>,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Run(RunArguments),
    Call(CallArguments),
    Mcp(Box<Mcp>),
    Tools(ToolsArguments),
    Skills(SkillsArguments),
    Trust(TrustArguments),
    Session(Sessions),
    Doctor(Doctor),
    Bench(Bench),
    Completions(Completions),
    Man(Man),
    /// Make one attempt to break out, with this process's own rights: `doctor --attack` runs this inside and outside.
    #[command(hide = true)]
    Attempt(AttemptArguments),
}

/// Grants of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Grants {
    /// Also grant reading this file or directory. Can be given more than once.
    #[arg(long, value_name = "PATH")]
    pub(super) read: Vec<PathBuf>,
    /// Also grant reading and writing this file or directory. Can be given more than once. A file need not exist yet.
    #[arg(long, value_name = "PATH")]
    pub(super) write: Vec<PathBuf>,
    /// Grant connecting to this host, by name, for any program. Can be given more than once. Default: no network.
    ///
    /// HOST is a name (`pypi.org`), all names below one (`*.example.com`), an address or a network (`10.0.0.0/8`). Without
    /// ports it grants HTTP on port 80 and TLS on port 443; ports follow a colon: `:5432`, `:22,443`, `:8000-8099`, `:*`
    /// for all. Whatever the command may read, it can send there.
    #[arg(long, value_name = "HOST[:PORT,…]")]
    pub(super) net: Vec<String>,
    /// Grant starting only this program and those that the manifest names. Can be given more than once. Without it, any program
    /// may start, or those that the manifest names. `DIR/**` is every program below a directory.
    #[arg(long, value_name = "PROGRAM")]
    pub(super) exec: Vec<String>,
    /// Take grants, limits, rules and environment from this manifest. Default: the workspace's own `callgate.toml` or
    /// `callgate.json` if you trusted it (see `callgate trust`), otherwise the workspace read-write and the system read-only.
    #[arg(long, value_name = "FILE")]
    pub(super) manifest: Option<PathBuf>,
    /// Limit what a call may use, together with everything that it starts. Can be given more than once, and overrides the
    /// manifest.
    ///
    /// NAME is one of wall (default: 120s for `call`, none for `run`), cpu (24h), memory (three quarters of this host's),
    /// processes (4096, including threads), open_files (65536 for each process), file_size (64GiB), disk (64GiB written),
    /// output (256MiB, for `call bash`), network (64GiB to and from granted hosts), session_network (1TiB), network_rate (none;
    /// a size, in a second). Times take ms, s, m or h; sizes take B, KiB, MiB, GiB or TiB.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(super) limit: Vec<String>,
    /// Allow the command's processes to trace one another: gdb, strace, LeakSanitizer. They reach no process outside
    /// the call. Not together with --exec.
    #[arg(long)]
    pub(super) debug: bool,
    /// Pass this variable of your environment on to programs, or set it. Can be given more than once, and overrides the
    /// manifest. Without it programs get only what `run --explain-env` lists.
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(super) env: Vec<String>,
    /// The workspace: the directory where the command starts, and which is granted by default. Default: this directory.
    #[arg(long, short = 'C', value_name = "DIR")]
    pub(super) workspace: Option<PathBuf>,
    /// Another root of the workspace, with the same grants as the first. Can be given more than once.
    #[arg(long, value_name = "DIR")]
    pub(super) root: Vec<PathBuf>,
    /// A directory that `{ad-hoc}` stands for in the manifest's patterns, such as that of a file which is open outside the
    /// workspace. Can be given more than once.
    #[arg(long, value_name = "DIR")]
    pub(super) ad_hoc: Vec<PathBuf>,
    /// The directory that `{user-data}` stands for in the manifest's patterns.
    #[arg(long, value_name = "DIR")]
    pub(super) user_data: Option<PathBuf>,
    /// Allow the workspace, or a granted directory, to be or contain a home directory. The keys in it can then be read.
    #[arg(long)]
    pub(super) allow_home: bool,
}

/// Which tools there are besides the locked ones, and what they are called.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Offer {
    /// The names under which the tools are seen: `locked` (the default), `deepseek`, `engine` or `rho`. Rules go by what a call does,
    /// whatever its name. Overrides the manifest.
    #[arg(long, value_name = "NAME", value_parser = surface)]
    pub(super) surface: Option<Surface>,
    /// Also offer this tool from outside the lock (see `callgate tools --all`). Can be given more than once.
    #[arg(long, value_name = "TOOL")]
    pub(super) extra: Vec<String>,
}

fn surface(name: &str) -> Result<Surface, String> {
    Surface::parse(name).ok_or_else(|| format!("there is no such surface; there are: {}", Surface::NAMES.join(", ")))
}

/// Run a command in the sandbox.
///
/// The command uses callgate's own standard input, output and error, so it works in a pipe. Signals are passed on to it, and
/// callgate exits with its status. When it ends, so does everything that it started.
///
/// On a terminal the command gets a terminal of its own, and Ctrl-C, Ctrl-Z and Ctrl-\ reach only the command. If you redirect
/// output, the command does not read your terminal, and its standard input is empty unless you redirect that too; --tty
/// changes this. Ctrl-Z needs a shell inside: it does not stop a command that runs without one.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  callgate run -- bash                           a place to work in
  callgate run -- make -j2
  callgate run --tty -- ./ask.sh | tee answers   reads the terminal, with output redirected
  git diff | callgate run -- ./review.py > review.txt
  callgate run --net registry.npmjs.org -- npm install
  callgate run --limit memory=2GiB --limit wall=5m -- npm test
  callgate run --env DATABASE_URL --env RUST_LOG=debug -- cargo test
  callgate run --debug -- gdb ./a.out
  callgate run --explain-env                     which variables the command would get
  callgate run --session ses_0195 -- make         in a recorded session (see `callgate session`)
  callgate run --write ../out --status result.json -- ./build.sh")]
pub(super) struct RunArguments {
    #[command(flatten)]
    pub(super) grants: Grants,
    /// Run the command in this recorded session, with the grants that the session was made with.
    #[arg(long, value_name = "ID", conflicts_with = "explain_env")]
    pub(super) session: Option<String>,
    /// Write the result envelope to this file. It says how the command ended, and what enforced its limits and grants.
    #[arg(long, value_name = "FILE", conflicts_with = "status_fd")]
    pub(super) status: Option<PathBuf>,
    /// Write the result envelope to this open descriptor.
    #[arg(long, value_name = "N")]
    pub(super) status_fd: Option<i32>,
    /// Give the command a terminal of its own even if standard output is not a terminal.
    #[arg(long)]
    pub(super) tty: bool,
    /// List the variables that the command would get, those that it would not, and why; and run nothing.
    #[arg(long)]
    pub(super) explain_env: bool,
    /// The command and its arguments.
    #[arg(required_unless_present = "explain_env", trailing_var_arg = true, value_name = "CMD")]
    pub(super) argv: Vec<OsString>,
}

/// Make one tool call, as an agent host does, and print the result envelope.
///
/// The call passes the same layers as a model's: schema, capability check, rules, watchdog, sandbox.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  callgate call read '{\"path\": \"src/main.rs\", \"start_line\": 1, \"end_line\": 40}'
  callgate call bash '{\"command\": \"cargo test 2>&1 | tail\"}'
  callgate call --net api.example.com bash '{\"command\": \"curl -fsS https://api.example.com\"}'
  callgate call --limit processes=64 bash '{\"command\": \"./configure\"}'
  callgate call --manifest callgate.toml bash '{\"command\": \"git push\"}'
  callgate call --asked-by agent --mode ask bash '{\"command\": \"ls\"}'
  callgate call --session ses_0195 bash '{\"command\": \"make\"}'
  callgate call question '{\"questions\": [{\"question\": \"Which port?\"}]}'
  jq -n '{path: \"notes.txt\", content: \"…\"}' | callgate call write -
  callgate call --batch < calls.jsonl             several calls, one a line

Exit status:
    0  the tool gave a result, even if the command of `bash` failed (see data.exit_code)
    1  the tool failed, the call reached a limit, the kernel refused it something, or the
       session halted because nobody could be asked
   64  usage error, or a tool that does not exist or that the session does not offer
   65  invalid arguments or manifest
   69  this host cannot enforce what was asked for
   70  callgate itself failed
   77  denied by a grant, a rule, a watchdog or a person
  124  timeout

If the session could be opened, the envelope is printed whatever the status.")]
pub(super) struct CallArguments {
    #[command(flatten)]
    pub(super) grants: Grants,
    /// Make the call in this recorded session, with the grants, the profile and the mode that the session was made with, and
    /// with the approvals that were given in it. Output that does not fit the result is kept until the session is closed.
    #[arg(long, value_name = "ID", conflicts_with_all = ["profile", "mode", "output_dir"])]
    pub(super) session: Option<String>,
    #[command(flatten)]
    pub(super) offer: Offer,
    /// Also print a program's output to standard error while it runs.
    #[arg(long)]
    pub(super) stream: bool,
    /// Action on a call that no rule decides. Overrides the manifest. Typing a call approves it, unless a rule or a
    /// watchdog asks or denies, so `ask`, `allowlist` and `auto-edit` matter only with `--asked-by agent`.
    #[arg(long, value_name = "MODE")]
    pub(super) mode: Option<DefaultAction>,
    /// Whose call this is. A program that makes calls for a model passes `agent`: callgate then asks about a call that no rule
    /// allows, and denies it if there is nobody to ask.
    #[arg(long, value_name = "WHO", value_enum, default_value_t = CallOwner::Person)]
    pub(super) asked_by: CallOwner,
    /// Which tools there are and what they may do: `readonly`, `developer`, `eval`, `unrestricted`, `developer-bash-only`,
    /// `plan`, or a YAML file. Overrides the manifest.
    #[arg(long, value_name = "NAME|FILE")]
    pub(super) profile: Option<String>,
    /// If the result is too long, keep the rest in a new file in this directory, which the result names. The directory must
    /// exist, and the call must not be able to write to it. Without this option the rest is not kept.
    #[arg(long, value_name = "DIR")]
    pub(super) output_dir: Option<PathBuf>,
    /// Convert an argument of the wrong type where that loses nothing: `"5"` to 5, `"true"` to true, one value to a list of
    /// one, null to absent. The result lists what was converted.
    #[arg(long)]
    pub(super) coerce: bool,
    /// How long a question waits for your answer: `30s`, `5m` (the default).
    #[arg(long, value_name = "TIME")]
    pub(super) approval_timeout: Option<String>,
    /// Make several calls, as a model asks for them in one message. Each line of standard input is one:
    /// `{"tool": "read", "arguments": {"path": "a"}}`. First all of them pass rules, watchdogs and you, in their order; then those
    /// that only read run side by side, and each of the others alone. Prints one result a line, in the order of the calls. The exit
    /// status is that of the first call that failed.
    #[arg(long, conflicts_with_all = ["tool", "arguments", "stream"])]
    pub(super) batch: bool,
    /// The tool's name (see `callgate tools`).
    #[arg(required_unless_present = "batch")]
    pub(super) tool: Option<String>,
    /// Its arguments as JSON; `-` reads them from standard input.
    #[arg(default_value = "{}", value_name = "JSON")]
    pub(super) arguments: String,
}

/// Serve the tools to an agent host, by the Model Context Protocol on standard input and output, or over HTTP.
///
/// The host's calls are an agent's: what no rule allows is asked of the person at the host, and denied if the host cannot ask. Every
/// call is recorded in the session (see `callgate session`).
///
/// With --http several hosts can use one server, each in a session of its own. Only programs on this machine reach it, and only those
/// that send a token, which is in a file for you alone.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  callgate mcp -C ~/project
  callgate mcp --profile readonly
  callgate mcp --http 127.0.0.1:8931 -C ~/project       a host connects to http://127.0.0.1:8931/mcp
  callgate mcp -C ~/project --print-config zed          what Zed's settings need
  claude mcp add callgate -- callgate mcp -C ~/project
  codex mcp add callgate -- callgate mcp -C ~/project

In a configuration that is JSON:
  {\"mcpServers\": {\"callgate\": {\"command\": \"callgate\", \"args\": [\"mcp\", \"-C\", \"/home/you/project\"]}}}")]
pub(super) struct Mcp {
    #[command(flatten)]
    pub(super) new: SessionArguments,
    /// Continue this recorded session, with the grants, the profile and the mode that it was made with.
    #[arg(long, value_name = "ID", conflicts_with_all = ["profile", "mode", "title"])]
    pub(super) session: Option<String>,
    /// How long a question waits for an answer: `30s`, `5m` (the default).
    #[arg(long, value_name = "TIME")]
    pub(super) approval_timeout: Option<String>,
    /// Serve over HTTP at this address, which must be one of this machine alone: `127.0.0.1:8931`, `[::1]:8931`. With port 0 a free
    /// one is chosen. The address and the file with the token are printed on standard error.
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "session")]
    pub(super) http: Option<String>,
    /// Take the tokens for --http from this file, one a line. Clients with different tokens are kept apart. If there is no such file, it
    /// is made with one token. Without this option a new token is made at each start.
    #[arg(long, value_name = "FILE", requires = "http")]
    pub(super) token_file: Option<PathBuf>,
    /// Print what is to be put into this host's configuration, so that it starts the server with the options that were typed, and serve
    /// nothing. Where it belongs is printed on standard error.
    #[arg(long, value_name = "HOST", value_enum, conflicts_with = "http")]
    pub(super) print_config: Option<AgentHost>,
    /// Close the session of a client over HTTP that makes no request for this long: `30m` (the default).
    #[arg(long, value_name = "TIME", requires = "http")]
    pub(super) idle_timeout: Option<String>,
    /// Serve the tools of another MCP server, which is started in the sandbox: the command after `--`, as it stands in a host's
    /// configuration. It speaks MCP on its standard input and output.
    #[arg(long, requires = "server", conflicts_with_all = ["http", "session"])]
    pub(super) wrap: bool,
    /// Name of the server in rules, as in `mcp:NAME:TOOL`. Default: the name of its command.
    #[arg(long, value_name = "NAME", requires = "wrap")]
    pub(super) name: Option<String>,
    /// The server and its arguments.
    #[arg(last = true, value_name = "SERVER", requires = "wrap")]
    pub(super) server: Vec<OsString>,
    /// Serve at most this many clients over HTTP at once, each in a session of its own: `64` (the default). The next client gets the
    /// status 503.
    #[arg(long, value_name = "N", requires = "http", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(super) max_sessions: Option<u16>,
}

/// List the tools, or show one with its schema.
///
/// Besides callgate's own there are those that you declare (`~/.config/callgate/tools/*.toml`) and those that a trusted project
/// declares (`.callgate/tools/*.toml`). What is declared and cannot be used is listed with the reason.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  callgate tools
  callgate tools bash
  callgate tools --json | jq '.[].id'")]
pub(super) struct ToolsArguments {
    /// The workspace, whose tools are listed too if you trust it. Default: this directory.
    #[arg(long, short = 'C', value_name = "DIR")]
    pub(super) workspace: Option<PathBuf>,
    #[command(flatten)]
    pub(super) offer: Offer,
    /// List the tools outside the lock too, which a session has only if it names them.
    #[arg(long, conflicts_with = "name")]
    pub(super) all: bool,
    /// The tool to show.
    pub(super) name: Option<String>,
}

/// List the skills, one line each, as an agent host puts them before a model.
///
/// A skill is a directory with a SKILL.md in `.callgate/skills`, `.agents/skills` or `.claude/skills`: in your home directory,
/// or in the project if its manifest is trusted. Of two with one name the project's counts. The SKILL.md of a project's skill
/// counts as it was when you trusted it; one that is new or has changed is left out until you trust the project again.
///
/// `callgate call skill` returns the text. A skill grants no tool and no right. The files beside it can be read.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  callgate skills
  callgate skills --json | jq '.left_out'
  callgate call skill '{\"name\": \"release-notes\"}'")]
pub(super) struct SkillsArguments {
    /// The workspace. Default: this directory.
    #[arg(long, short = 'C', value_name = "DIR")]
    pub(super) workspace: Option<PathBuf>,
}

/// Trust a project's own manifest, until it changes.
///
/// Prints what the manifest (`callgate.toml` or `callgate.json` in the project's directory) asks for, what is in force with it and
/// what has changed since it was last trusted, and asks on a terminal. From then on `run` and `call` apply it there.
///
/// Trust is bound to the manifest's content. If the manifest changes or is removed, `run` and `call` refuse until you trust it
/// again or revoke trust. A manifest that you never trusted has no effect: the defaults apply, with a notice. The list of
/// trusted manifests is `~/.callgate/trust.json`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  callgate trust .             until the manifest changes
  callgate trust --once .      for the next `run` or `call` there
  callgate trust --revoke .    no longer; also forgets approvals given for the project
  callgate trust --list")]
pub(super) struct TrustArguments {
    /// The project's directory.
    #[arg(required_unless_present = "list")]
    pub(super) dir: Option<PathBuf>,
    /// Trust it for the next session only.
    #[arg(long, conflicts_with_all = ["revoke", "list"])]
    pub(super) once: bool,
    /// Do not ask, for scripts. Where standard input or output is no terminal, nobody is asked anyway.
    #[arg(long, conflicts_with_all = ["revoke", "list"])]
    pub(super) yes: bool,
    /// Revoke trust, and forget the approvals given for the project.
    #[arg(long, conflicts_with = "list")]
    pub(super) revoke: bool,
    /// List the trusted manifests.
    #[arg(long, conflicts_with = "dir")]
    pub(super) list: bool,
}

/// Show what this host can enforce, and how to get what is missing.
///
/// Opens a session in each strength, runs a program in it and reports what was confirmed. For each missing part it says what
/// replaces it and which command adds it. Changes nothing on the host.
///
/// With --attack it tries to break out. It makes each attempt outside first, where it must succeed, then in a session of each
/// strength, then without each mechanism and with each mechanism alone. The targets are made for the test: files in a scratch
/// directory, servers on loopback and processes of its own. After each attempt it checks the targets, and a changed target
/// counts as reached.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  callgate doctor
  callgate doctor --json | jq -r '.checks[] | select(.state != \"ok\") | .remedy[]'
  callgate doctor --attack
  callgate doctor --attack --under \\
      'bwrap --unshare-all --ro-bind / / --dev /dev --proc /proc --bind {dir} {dir} --'

Exit status:
    0  sessions can run here in at least one strength; with --attack: nothing is open
    1  with --attack: something is open
   69  no session can run here; with --attack: nothing could be tried")]
pub(super) struct Doctor {
    /// Try to break out, and print what held and which mechanism holds it alone.
    #[arg(long)]
    pub(super) attack: bool,
    /// Make the same attempts under this other sandbox: a command that runs the program named after it. `{dir}` stands for the
    /// scratch workspace, which holds the program that makes the attempts; the sandbox must let it be written. `{host}` stands
    /// for an address and port: a sandbox that grants it is attacked with a host granted as well.
    #[arg(long, value_name = "COMMAND", requires = "attack")]
    pub(super) under: Option<String>,
}

/// Record sessions: many commands with the same grants, approvals and outputs, and a record of what they did.
///
/// Each call is recorded before it runs and again when it has ended. A call that cannot be recorded does not run. If callgate
/// is killed, the next `session` command ends the call's record with an error; the call is not made again.
///
/// Sessions are kept in `$XDG_STATE_HOME/callgate`, or `~/.local/state/callgate`, for you alone. No session may reach that
/// directory. Secrets are taken out before anything is written: values of variables such as API_TOKEN, and tokens that are known
/// by how they begin (`sk-`, `ghp_`, …). Texts of more than 64 KiB are cut. What a result has no room for is kept as it came, in
/// a file that the result names, until the session is closed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  id=$(callgate session new --title 'fix the build')
  callgate call --session $id bash '{\"command\": \"make\"}'
  callgate run --session $id -- make test
  callgate session show $id
  callgate session replay $id | jq -r .event
  callgate session close $id
  callgate session prune --older-than 30d")]
pub(super) struct Sessions {
    #[command(subcommand)]
    pub(super) act: SessionAct,
}

/// Acts on recorded sessions. ID is a session's id, or a beginning of it that no other has.
#[derive(Debug, Subcommand)]
pub(super) enum SessionAct {
    /// Make a session, and print its id.
    ///
    /// The grants hold for every `call` and `run` with `--session ID`. The workspace is fixed. If a manifest changes later, the
    /// session cannot be continued. It is opened once, so that what is wrong with the grants is reported now.
    #[command(after_help = "Examples:
  callgate session new
  callgate session new --title review --profile readonly -C ~/project
  callgate session new --write ../out --limit memory=2GiB --env DATABASE_URL")]
    New(Box<SessionArguments>),
    /// List the sessions.
    #[command(after_help = "Examples:
  callgate session list
  callgate session list --json | jq -r '.[] | select(.state == \"idle\") | .id'")]
    List,
    /// Show a session and its calls.
    #[command(after_help = "Examples:
  callgate session show ses_0195
  callgate session show ses_0195 --json | jq '.calls[-1].result'")]
    Show(SessionId),
    /// Print the events of a session again, one JSON object a line, as they were when they happened.
    ///
    /// Nothing is executed. The workspace and the manifest need not be there.
    #[command(after_help = "Examples:
  callgate session replay ses_0195
  callgate session replay --results ses_0195     each result, as `callgate call` prints it")]
    Replay(Replay),
    /// Make a session that goes on where another one is, and print its id.
    ///
    /// It has the same grants, what has happened so far, and the added rules that deny or ask. It has neither the approvals nor the
    /// added rules that allow, and no output files. The fork of a halted session is halted.
    #[command(after_help = "Example:
  callgate session fork ses_0195")]
    Fork(SessionId),
    /// Close a session: remove its output files. What was recorded stays until `prune`.
    #[command(after_help = "Example:
  callgate session close ses_0195")]
    Close(SessionId),
    /// Print all that is recorded of a session, as one JSON object.
    #[command(after_help = "Example:
  callgate session export ses_0195 > session.json")]
    Export(SessionId),
    /// Remove old sessions, with their records and output files. Sessions that are open stay.
    #[command(after_help = "Examples:
  callgate session prune --older-than 30d
  callgate session prune --keep-size 500MiB      the oldest go until the rest fits")]
    Prune(Prune),
}

#[derive(Debug, Args)]
pub(super) struct SessionArguments {
    #[command(flatten)]
    pub(super) grants: Grants,
    #[command(flatten)]
    pub(super) offer: Offer,
    /// Title of the session in lists.
    #[arg(long, value_name = "TEXT")]
    pub(super) title: Option<String>,
    /// Which tools there are and what they may do (see `callgate call --help`).
    #[arg(long, value_name = "NAME|FILE")]
    pub(super) profile: Option<String>,
    /// Action on a call that no rule decides. Overrides the manifest.
    #[arg(long, value_name = "MODE")]
    pub(super) mode: Option<DefaultAction>,
}

#[derive(Debug, Args)]
pub(super) struct SessionId {
    /// The session.
    #[arg(value_name = "ID")]
    pub(super) id: String,
}

#[derive(Debug, Args)]
pub(super) struct Replay {
    /// The session.
    #[arg(value_name = "ID")]
    pub(super) id: String,
    /// Print the result of each call instead.
    #[arg(long)]
    pub(super) results: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(super) struct Prune {
    /// Remove sessions in which nothing has happened for this long: `12h`, `30d`.
    #[arg(long, value_name = "TIME")]
    pub(super) older_than: Option<String>,
    /// Remove the oldest sessions until the rest takes no more than this: `500MiB`.
    #[arg(long, value_name = "SIZE")]
    pub(super) keep_size: Option<String>,
}

/// Action on a call that no rule decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum DefaultAction {
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

impl From<DefaultAction> for callgate_policy::mode::Mode {
    fn from(mode: DefaultAction) -> Self {
        match mode {
            DefaultAction::Ask => Self::Ask,
            DefaultAction::Allowlist => Self::Allowlist,
            DefaultAction::AutoEdit => Self::AutoEdit,
            DefaultAction::Yolo => Self::Yolo,
        }
    }
}

/// A program that starts servers of the Model Context Protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum AgentHost {
    ClaudeCode,
    Codex,
    Cursor,
    Vscode,
    Zed,
    Gemini,
    Goose,
}

/// Whose a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum CallOwner {
    /// A person's, who typed it.
    Person,
    /// A model's.
    Agent,
}

impl From<CallOwner> for callgate::AskedBy {
    fn from(whose: CallOwner) -> Self {
        match whose {
            CallOwner::Person => Self::Person,
            CallOwner::Agent => Self::Agent,
        }
    }
}

/// Which strength to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum MeasuredStrength {
    /// Namespaces if the host has them.
    Best,
    /// Landlock and seccomp alone.
    Landlock,
    /// Namespaces, or an error.
    Namespaces,
}

impl From<MeasuredStrength> for StrengthChoice {
    fn from(strength: MeasuredStrength) -> Self {
        match strength {
            MeasuredStrength::Best => Self::Best,
            MeasuredStrength::Landlock => Self::Landlock,
            MeasuredStrength::Namespaces => Self::Namespaces,
        }
    }
}

/// Measure what calls cost on this machine, compared with a plain spawn.
///
/// Compares calls, with every layer on, to `posix_spawn` of the same program and, if it is installed, to bubblewrap with all
/// its namespaces. The subjects take turns in one run, so that a disturbance affects all of them: trust the ratios. Works in a
/// directory of its own, which it removes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  callgate bench
  callgate bench --runs 1000 --sessions 1000
  callgate bench --strength landlock --json > here.json

Missed targets are reported, but are not a failure: the exit status is 0.")]
pub(super) struct Bench {
    /// How often each subject runs, after a warm-up of a tenth as many runs.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pub(super) runs: u32,
    /// How many sessions are opened at once.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) sessions: u32,
    /// Which strength to measure.
    #[arg(long, value_enum, default_value_t = MeasuredStrength::Best)]
    pub(super) strength: MeasuredStrength,
}

/// Print a completion script for a shell.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  callgate completions bash > ~/.local/share/bash-completion/completions/callgate
  callgate completions fish > ~/.config/fish/completions/callgate.fish
  callgate completions zsh  > ~/.zfunc/_callgate")]
pub(super) struct Completions {
    /// The shell.
    #[arg(value_enum)]
    pub(super) shell: Shell,
}

/// Print the manual page, or write the pages of all commands into a directory.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  callgate man | man -l -
  callgate man ~/.local/share/man/man1")]
pub(super) struct Man {
    /// Write all pages into this directory, which is created if it does not exist.
    #[arg(value_name = "DIR")]
    pub(super) directory: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct AttemptArguments {
    /// An act of the probe and its arguments; `--list` prints all.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(super) words: Vec<String>,
}
