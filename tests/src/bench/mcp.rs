//! A `read` of 4 KiB through the library, through `callgate mcp` on standard input and output, and what the
//! SDK's own way costs: a server of the same SDK whose tool answers with the same text, and does nothing.
//!
//! Both servers are processes of their own, and have the same client. The session of the library is recorded, as that of the server is.

use std::fs::File;
use std::io::{BufRead as _, BufReader, PipeReader, PipeWriter, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

use callgate::{Launcher, Store, Supervisor};
use callgate_tests::Binaries;
use callgate_worker::sys::process::{self, Fork, OneThread};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ServerCapabilities,
    ServerConfig,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ErrorData, ServerHandler, ServiceExt as _};
use rustix::process::{Pid, WaitOptions, waitpid};
use serde_json::{Value, json};

use crate::failure::BenchFailure;
use crate::figures::{MeasuredFigures, micros, settle};
use crate::sessions::{BenchOpener, BenchScratch, FILE, reads};

/// The floor.
struct Echo(String);

impl ServerHandler for Echo {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new("echo", env!("CARGO_PKG_VERSION"));
        info
    }

    async fn call_tool(
        &self,
        _request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        Ok(CallToolResult::success(vec![ContentBlock::text(self.0.clone())]).into())
    }
}

fn echo(text: String) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let transport = AsyncRwTransport::new_server(tokio::io::stdin(), tokio::io::stdout());
        let running = Echo(text).serve(transport).await.map_err(std::io::Error::other)?;
        running.waiting().await.map(drop).map_err(std::io::Error::other)
    })
}

/// Both servers.
pub(crate) struct Peers {
    floor: BenchPeer,
    served: BenchPeer,
}

impl Peers {
    /// This process must have one thread, and no event loop yet.
    pub(crate) fn start(scratch: &BenchScratch, records: &Path) -> Result<Self, BenchFailure> {
        Ok(Self { floor: BenchPeer::echo(scratch)?, served: BenchPeer::callgate(scratch, records)? })
    }
}

/// A server, and a client of it that waits for each answer.
struct BenchPeer {
    pid: Option<Pid>,
    to: Option<PipeWriter>,
    from: BufReader<PipeReader>,
    last: u64,
}

impl BenchPeer {
    /// The floor.
    fn echo(scratch: &BenchScratch) -> Result<Self, BenchFailure> {
        let text =
            std::fs::read_to_string(scratch.file()).map_err(BenchFailure::io("read from the scratch directory"))?;
        Self::fork(move || echo(text))
    }

    /// `callgate mcp` in the scratch directory, recorded below `records`.
    fn callgate(scratch: &BenchScratch, records: &Path) -> Result<Self, BenchFailure> {
        let (program, workspace) = (Binaries::of_this_build().callgate(), scratch.path().to_owned());
        let state = records.join("served");
        Self::fork(move || {
            use std::os::unix::process::CommandExt as _;
            let mut command = std::process::Command::new(program);
            command.arg("mcp").arg("-C").arg(workspace).args(["--mode", "yolo"]).env("XDG_STATE_HOME", state);
            Err(command.exec())
        })
    }

    fn fork(serve: impl FnOnce() -> std::io::Result<()>) -> Result<Self, BenchFailure> {
        let failed = || BenchFailure::io("start a server to measure with");
        let ((input, to), (from, output)) = (std::io::pipe().map_err(failed())?, std::io::pipe().map_err(failed())?);
        match process::fork(OneThread::confirm().map_err(failed())?, 0).map_err(failed())? {
            Fork::Child => {
                drop((to, from));
                let ended = stand_in(input.into(), output.into()).and_then(|()| serve());
                process::exit_now(ended.map_or(1, |()| 0))
            }
            Fork::Parent(pid) => {
                Ok(Self { pid: Pid::from_raw(pid), to: Some(to), from: BufReader::new(from), last: 0 })
            }
        }
    }

    fn begin(&mut self) -> Result<(), BenchFailure> {
        let about = json!({ "name": "bench", "version": env!("CARGO_PKG_VERSION") });
        self.request(
            "initialize",
            &json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about }),
        )?;
        self.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))
    }

    fn read(&mut self) -> Result<(), BenchFailure> {
        let answer = self.request("tools/call", &json!({ "name": "read", "arguments": { "path": FILE } }))?;
        match answer["result"]["content"][0]["text"].as_str() {
            Some(text) if text.len() >= 4096 => Ok(()),
            _ => Err(broken(format!("it answered {answer}"))),
        }
    }

    fn say(&mut self, message: &Value) -> Result<(), BenchFailure> {
        let to = self.to.as_mut().ok_or_else(|| broken("it has ended".to_owned()))?;
        writeln!(to, "{message}").map_err(BenchFailure::io("write to a server"))
    }

    fn request(&mut self, method: &str, params: &Value) -> Result<Value, BenchFailure> {
        self.last += 1;
        self.say(&json!({ "jsonrpc": "2.0", "id": self.last, "method": method, "params": params }))?;
        let mut line = String::new();
        self.from.read_line(&mut line).map_err(BenchFailure::io("read from a server"))?;
        serde_json::from_str(&line).map_err(|error| broken(format!("it answered {line:?}: {error}")))
    }
}

impl Drop for BenchPeer {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.to.take());
        let _ended = waitpid(self.pid, WaitOptions::empty());
    }
}

/// Makes these the standard input and output.
fn stand_in(input: OwnedFd, output: OwnedFd) -> std::io::Result<()> {
    rustix::stdio::dup2_stdin(File::from(input))?;
    rustix::stdio::dup2_stdout(File::from(output))?;
    Ok(())
}

/// The three take turns.
pub(crate) async fn measure(
    opener: &BenchOpener<'_>,
    (launcher, records): (Launcher, &Path),
    Peers { mut floor, mut served }: Peers,
    runs: u32,
    as_json: bool,
) -> Result<(), BenchFailure> {
    let store = Store::at(&records.join("library"))?;
    let supervisor = Supervisor::builder().launcher(launcher).store(store).build()?;
    let session = supervisor.open(opener.spec()).await?;
    floor.begin()?;
    served.begin()?;
    let warm = runs.div_ceil(10);
    let mut samples = [const { Vec::new() }; 3];
    for run in 0..warm + runs {
        // In an order that changes from round to round.
        for subject in (0..3).map(|subject| (subject + run as usize) % 3) {
            settle().await;
            let started = Instant::now();
            match subject {
                0 => reads(&session, 1).await?,
                1 => served.read()?,
                _ => floor.read()?,
            }
            if run >= warm {
                samples[subject].push(started.elapsed());
            }
        }
    }
    print(&samples.map(|samples| MeasuredFigures::of(&samples)), runs, as_json)
        .map_err(BenchFailure::io("print the figures"))
}

fn print([library, served, floor]: &[MeasuredFigures; 3], runs: u32, as_json: bool) -> std::io::Result<()> {
    let to_floor = micros(served.median) / micros(floor.median);
    let to_both = micros(served.median) / (micros(floor.median) + micros(library.median));
    let mut out = std::io::stdout();
    if as_json {
        let figures = |of: &MeasuredFigures| json!({ "median_us": micros(of.median), "p99_us": micros(of.p99) });
        let figures = json!({
            "runs": runs, "debug_build": cfg!(debug_assertions),
            "library": figures(library), "mcp": figures(served), "echo": figures(floor),
            "mcp_to_echo": to_floor, "mcp_to_library_and_echo": to_both,
        });
        return writeln!(out, "{}", json!({ "mcp": figures }));
    }
    writeln!(out, "{:<52} {:>10} {:>10}", "a read of 4 KiB, µs", "median", "p99")?;
    for (name, figures) in [
        ("through the library, recorded", library),
        ("through `callgate mcp`", served),
        ("the floor: a tool that answers with the text", floor),
    ] {
        writeln!(out, "{name:<52} {:>10.0} {:>10.0}", micros(figures.median), micros(figures.p99))?;
    }
    writeln!(out, "mcp / floor: {to_floor:.2}; mcp / (library + floor): {to_both:.2}; {runs} runs of each, in turns")
}

fn broken(reason: String) -> BenchFailure {
    BenchFailure::of("a server", reason)
}
