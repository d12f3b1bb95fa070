//! Connections to a server on loopback, directly, through a bare relay, and from a session through
//! egress.
//!
//! The relay is the floor: one thread, an event loop, reads and writes of as many bytes at once as egress, and nothing that judges
//! anything. It copies by read and write because `splice` was slower. Server, relay and client are this binary, each a process.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::iter::successors;
use std::process::{Child, Command};
use std::time::Instant;

use callgate::{Session, Stdio};
use callgate_policy::effective::Source;
use callgate_policy::pattern::HostPattern;
use callgate_policy::requirement::{NetRequirement, RequirementSet};
use callgate_tests::parent_of;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::NetworkPart;
use crate::failure::BenchFailure;
use crate::figures::median;
use crate::sessions::{BenchOpener, open_many_files};

/// Connections one after the other, in one sample.
const CONNECTS: u32 = 500;
/// Bytes of one connection, in one sample.
const BYTES: u64 = 512 << 20;
/// Bytes that are sent once.
const LARGE: u64 = 2 << 30;
/// Connections at once.
const AT_ONCE: u32 = 2000;
/// Most bytes that relay and server write at once.
const BUFFER: usize = 256 * 1024;

/// Plays a part of this benchmark, in a process of its own.
pub(crate) fn play(part: &NetworkPart) -> Result<(), BenchFailure> {
    open_many_files()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let played = match *part {
        NetworkPart::Serve => runtime.block_on(listen(serve)),
        NetworkPart::Relay { to } => runtime.block_on(listen(move |client| relay(client, to))),
        NetworkPart::Connects { to, count } => runtime.block_on(connects(to, count)).and_then(print),
        NetworkPart::Bytes { to, bytes } => runtime.block_on(receive(to, bytes)).and_then(print),
        NetworkPart::AtOnce { to, count } => runtime.block_on(at_once(to, count)).and_then(print),
        NetworkPart::Opens { .. } => Ok(()),
    };
    played.map_err(BenchFailure::io("play a part of the benchmark"))
}

fn print(figure: f64) -> std::io::Result<()> {
    writeln!(std::io::stdout(), "{figure:.1}")
}

async fn listen<F: Future<Output = std::io::Result<()>> + 'static>(
    serve: impl Fn(TcpStream) -> F,
) -> std::io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(([127, 0, 0, 1], 0).into())?;
    let listener = socket.listen(4096)?;
    print(f64::from(listener.local_addr()?.port()))?;
    let tasks = tokio::task::LocalSet::new();
    tasks
        .run_until(async {
            loop {
                let (client, _) = listener.accept().await?;
                client.set_nodelay(true)?;
                // One that fails harms no other.
                tokio::task::spawn_local(serve(client));
            }
        })
        .await
}

async fn serve(mut client: TcpStream) -> std::io::Result<()> {
    let block = vec![b'x'; BUFFER];
    while let Ok(mut left) = client.read_u64().await {
        while left > 0 {
            let part = usize::try_from(left).unwrap_or(BUFFER).min(BUFFER);
            client.write_all(block.get(..part).unwrap_or_default()).await?;
            left -= part as u64;
        }
    }
    Ok(())
}

async fn relay(mut client: TcpStream, to: u16) -> std::io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", to)).await?;
    server.set_nodelay(true)?;
    tokio::io::copy_bidirectional_with_sizes(&mut client, &mut server, BUFFER, BUFFER).await?;
    Ok(())
}

async fn ask(to: u16, bytes: u64) -> std::io::Result<TcpStream> {
    let mut server = TcpStream::connect(("127.0.0.1", to)).await?;
    server.set_nodelay(true)?;
    server.write_u64(bytes).await?;
    Ok(server)
}

async fn connects(to: u16, count: u32) -> std::io::Result<f64> {
    let mut took = Vec::new();
    for _ in 0..count {
        let started = Instant::now();
        ask(to, 1).await?.read_u8().await?;
        took.push(started.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(took))
}

async fn receive(to: u16, bytes: u64) -> std::io::Result<f64> {
    let started = Instant::now();
    let mut server = ask(to, bytes).await?;
    let (mut left, mut buffer) = (bytes, vec![0; BUFFER]);
    while left > 0 {
        match server.read(&mut buffer).await? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => left = left.saturating_sub(read as u64),
        }
    }
    #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
    Ok(bytes as f64 / started.elapsed().as_secs_f64())
}

async fn at_once(to: u16, count: u32) -> std::io::Result<f64> {
    let mut open = Vec::new();
    for _ in 0..count {
        open.push(TcpStream::connect(("127.0.0.1", to)).await?);
    }
    for server in &mut open {
        server.write_u64(1).await?;
    }
    let mut answered = 0;
    for server in &mut open {
        server.read_u8().await?;
        answered += 1;
    }
    Ok(f64::from(answered))
}

/// A server or a relay. It ends with this.
struct StandingServer(Child, u16);

impl StandingServer {
    fn start(program: &std::path::Path, words: &[&str]) -> Result<Self, BenchFailure> {
        let failed = BenchFailure::io("start a server to measure with");
        let mut command = Command::new(program);
        command.arg("play").args(words).stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line).map_err(BenchFailure::io("read a server's port"))?;
        }
        let standing = Self(child, line.trim().trim_end_matches(".0").parse().unwrap_or(0));
        if standing.1 == 0 { Err(broken(format!("a server printed `{line}`"))) } else { Ok(standing) }
    }
}

impl Drop for StandingServer {
    fn drop(&mut self) {
        // It may have ended.
        let _ended: std::io::Result<()> = self.0.kill();
        let _waited = self.0.wait();
    }
}

/// Who connects, by which way.
enum Way<'a> {
    Outside(u16),
    Inside(&'a Session, u16),
}

impl Way<'_> {
    async fn figure(&self, program: &std::path::Path, what: &str, count: u64) -> Result<f64, BenchFailure> {
        let (Self::Outside(port) | Self::Inside(_, port)) = self;
        let words: Vec<OsString> =
            vec![program.into(), "play".into(), what.into(), port.to_string().into(), count.to_string().into()];
        let text = match self {
            Self::Outside(_) => outside(&words)?,
            Self::Inside(session, _) => inside(session, &words).await?,
        };
        text.trim().parse().map_err(|error| broken(format!("{what} printed `{text}`: {error}")))
    }
}

async fn inside(session: &Session, words: &[OsString]) -> Result<String, BenchFailure> {
    let (mut reader, writer) = std::io::pipe().map_err(BenchFailure::io("make a pipe"))?;
    let null = |file: &mut std::fs::OpenOptions| file.open("/dev/null").map_err(BenchFailure::io("open /dev/null"));
    let input = null(std::fs::File::options().read(true))?;
    let error = std::io::stderr();
    let error = rustix::io::dup(&error)?;
    let program = session.spawn(words, Stdio::new(input.into(), writer.into(), error)).await?;
    program.wait().await?;
    let mut text = String::new();
    reader.read_to_string(&mut text).map_err(BenchFailure::io("read what the client printed"))?;
    Ok(text)
}

fn outside(words: &[OsString]) -> Result<String, BenchFailure> {
    let [program, arguments @ ..] = words else { return Ok(String::new()) };
    let output = Command::new(program).args(arguments).output().map_err(BenchFailure::io("start the client"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Measures, and prints a line for each way.
pub(crate) async fn measure(opener: &BenchOpener<'_>, rounds: u32, as_json: bool) -> Result<(), BenchFailure> {
    let program = opener.scratch.program();
    let server = StandingServer::start(program, &["serve"])?;
    let relay = StandingServer::start(program, &["relay", &server.1.to_string()])?;
    let mut spec = opener.spec();
    let granted = HostPattern::parse(&format!("127.0.0.1:{}", server.1)).map_err(|error| broken(error.to_string()))?;
    let net = NetRequirement { hosts: vec![granted] };
    spec.requires.push((Source::CommandLine, RequirementSet { net, ..RequirementSet::default() }));
    let session = opener.supervisor.open(spec).await?;
    let ways = [Way::Outside(server.1), Way::Outside(relay.1), Way::Inside(&session, server.1)];
    let mut connects = [const { Vec::new() }; 3];
    let mut speeds = [const { Vec::new() }; 3];
    for round in 0..=rounds {
        for (at, way) in ways.iter().enumerate() {
            let connect = way.figure(program, "connects", CONNECTS.into()).await?;
            let speed = way.figure(program, "bytes", BYTES).await?;
            // The first round warms up.
            if round > 0 {
                connects[at].push(connect);
                speeds[at].push(speed / 1e9);
            }
        }
    }
    let large = ways[2].figure(program, "bytes", LARGE).await? / 1e9;
    let after_large = egress_peak_kib()?;
    let many = ways[2].figure(program, "at-once", AT_ONCE.into()).await?;
    let peak = egress_peak_kib()?;
    let (connects, speeds) = (connects.map(median), speeds.map(median));
    let mut out = std::io::stdout();
    let printed = if as_json {
        writeln!(
            out,
            "{}",
            json!({ "network": {
                "connect_and_first_byte_us": { "direct": connects[0], "relay": connects[1], "egress": connects[2] },
                "gb_per_s": { "direct": speeds[0], "relay": speeds[1], "egress": speeds[2] },
                "large": { "bytes": LARGE, "gb_per_s": large, "egress_peak_kib": after_large },
                "at_once": { "connections": many, "egress_peak_kib": peak },
            }})
        )
    } else {
        writeln!(
            out,
            "{:<34}{:>10}{:>10}{:>10}  egress/relay\n{:<34}{:>10.0}{:>10.0}{:>10.0}{:>14.2}\n{:<34}{:>10.2}{:>10.2}{:>10.2}{:>14.2}\n\
             2 GiB through egress: {large:.2} GB/s; its memory at most {after_large} KiB\n\
             connections at once that answered: {many:.0}; its memory at most {peak} KiB",
            "",
            "direct",
            "relay",
            "egress",
            "connect and first byte, µs",
            connects[0],
            connects[1],
            connects[2],
            connects[2] / connects[1],
            "one connection, GB/s",
            speeds[0],
            speeds[1],
            speeds[2],
            speeds[2] / speeds[1],
        )
    };
    printed.map_err(BenchFailure::io("print it"))
}

/// The most memory that an egress of ours has used so far (proc_pid_status(5)).
fn egress_peak_kib() -> Result<u64, BenchFailure> {
    let all = std::fs::read_dir("/proc").map_err(BenchFailure::io("look at the session's processes"))?;
    let ours = |pid: u32| successors(Some(pid), |pid| parent_of(*pid)).any(|pid| pid == std::process::id());
    let peaks = all.flatten().filter_map(|process| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        let status = std::fs::read_to_string(process.path().join("status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        (field("Name:") == Some("cg-egress") && ours(pid))
            .then(|| field("VmHWM:")?.trim_end_matches(" kB").parse().ok())?
    });
    peaks.max().ok_or_else(|| broken("egress was not found".to_owned()))
}

fn broken(reason: String) -> BenchFailure {
    BenchFailure::of("the network", reason)
}
