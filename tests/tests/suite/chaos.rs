//! A program that makes random system calls with random arguments, aimed at things outside: none of them changes, and what
//! answers the kernel's questions meanwhile does not fall over (D1 to D5, A2, A5, A12, B7, S0-68).
//!
//! `CALLGATE_CHAOS_SECONDS` says how long, for each host and each kind; 2 if it is not set, in a full run 8.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::process::ExitStatus;
use std::time::{Duration, Instant, SystemTime};

use callgate_tests::{Bystander, Host, Probe, ProgramRunner, TestEnv, TestFile, eventually, matrix, repetitions};

fn seconds() -> u64 {
    #[allow(clippy::disallowed_methods, reason = "how long to try is for who runs the tests")]
    let said = std::env::var("CALLGATE_CHAOS_SECONDS").ok();
    said.map_or(repetitions(2, 8), |said| said.parse().expect("CALLGATE_CHAOS_SECONDS is a number of seconds"))
}

/// Things outside that belong to the same user, so that only callgate stands before them.
struct Canaries {
    env: TestEnv,
    file: TestFile,
    bystander: Bystander,
    tcp: TcpListener,
    udp: UdpSocket,
    stream: UnixListener,
    datagram: UnixDatagram,
    hidden: UnixListener,
    name: String,
    told: BTreeMap<&'static str, usize>,
}

impl Canaries {
    fn new(env: TestEnv) -> Self {
        let name = format!("callgate-chaos-{}-{:?}", std::process::id(), env.target());
        let file = env.file("file", "canary");
        fs::create_dir(env.outside().join("directory")).unwrap();
        env.give(&env.outside().join("directory"));
        symlink(env.outside(), env.workspace().join("link")).unwrap();
        env.weakened().run(&["mkfifo", &env.outside().join("fifo").display().to_string()]);
        let at = |name: &str| env.outside().join(name);
        let (stream, datagram) =
            (UnixListener::bind(at("stream")).unwrap(), UnixDatagram::bind(at("datagram")).unwrap());
        for socket in ["stream", "datagram"] {
            env.give(&at(socket));
        }
        let hidden = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let canaries = Self {
            file,
            bystander: env.bystander(),
            tcp: TcpListener::bind("127.0.0.1:0").unwrap(),
            udp: UdpSocket::bind("127.0.0.1:0").unwrap(),
            stream,
            datagram,
            hidden,
            name,
            told: BTreeMap::new(),
            env,
        };
        canaries.tcp.set_nonblocking(true).unwrap();
        canaries.udp.set_nonblocking(true).unwrap();
        canaries.stream.set_nonblocking(true).unwrap();
        canaries.datagram.set_nonblocking(true).unwrap();
        canaries.hidden.set_nonblocking(true).unwrap();
        canaries
    }

    /// As words for the probe.
    fn targets(&self) -> Vec<String> {
        let outside = self.env.outside();
        let at = |name: &str| outside.join(name).display().to_string();
        vec![
            format!("path:{}", at("file")),
            format!("path:{}", at("directory")),
            format!("path:{}", at("fifo")),
            format!("path:{}", at("new")),
            format!("path:{}", self.env.workspace().join("link/file").display()),
            format!("unix:{}", at("stream")),
            format!("unix:{}", at("datagram")),
            format!("abstract:{}", self.name),
            format!("port:{}", self.tcp.local_addr().unwrap().port()),
            format!("port:{}", self.udp.local_addr().unwrap().port()),
            format!("pid:{}", self.bystander.pid()),
            format!("pid:{}", std::process::id()),
        ]
    }

    /// Takes what has reached each listener since it was made.
    fn hear(&mut self) {
        let heard = |result: std::io::Result<usize>| match result {
            Ok(_) => 1,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => panic!("a canary cannot listen: {error}"),
        };
        let mut bytes = [0_u8; 64];
        let now = [
            ("tcp", heard(self.tcp.accept().map(|_| 0))),
            ("udp", heard(self.udp.recv(&mut bytes))),
            ("stream", heard(self.stream.accept().map(|_| 0))),
            ("datagram", heard(self.datagram.recv(&mut bytes))),
            ("abstract", heard(self.hidden.accept().map(|_| 0))),
        ];
        for (name, count) in now {
            *self.told.entry(name).or_default() += count;
        }
    }

    /// Everything about them that an attack could have changed.
    fn look(&mut self) -> String {
        self.hear();
        let mut seen = String::new();
        for name in ["", "file", "directory", "fifo", "stream", "datagram"] {
            let path = self.env.outside().join(name);
            let about = fs::symlink_metadata(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let (mode, owner, links, size) = (about.mode(), about.uid(), about.nlink(), about.size());
            writeln!(seen, "{name}: {mode:o} of {owner}, {links} links, {size} bytes, {:?}", times(&about)).unwrap();
        }
        let mut names: Vec<_> =
            fs::read_dir(self.env.outside()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        writeln!(seen, "{names:?}").unwrap();
        let mut held = String::new();
        fs::File::open(&*self.file).unwrap().read_to_string(&mut held).unwrap();
        writeln!(seen, "{held}\n{}\nalive {}", self.bystander.condition(), self.bystander.is_alive()).unwrap();
        writeln!(seen, "stopped {}", self.bystander.is_stopped()).unwrap();
        for (listener, count) in &self.told {
            writeln!(seen, "{listener} heard {count}").unwrap();
        }
        for file in ["sys/kernel/hostname", "sys/kernel/domainname", "self/mounts", "self/limits"] {
            seen.push_str(&fs::read_to_string(format!("/proc/{file}")).unwrap());
        }
        seen
    }
}

/// When it was written, and when anything about it changed: a mode, an owner, a link, an attribute.
fn times(about: &fs::Metadata) -> [i64; 4] {
    [about.mtime(), about.mtime_nsec(), about.ctime(), about.ctime_nsec()]
}

/// An act outside that reaches a canary.
type OutsideAct<'a> = &'a dyn Fn(&Canaries) -> ExitStatus;

/// Whatever reaches a canary is seen: each is reached once, bare.
#[test]
fn the_control_every_canary_notices() {
    matrix(&[Host::NoNamespaces], |target| {
        let mut canaries = Canaries::new(TestEnv::new(target));
        let bare = canaries.env.bare();
        let file = canaries.file.text().to_owned();
        let outside = canaries.env.outside();
        let at = |name: &str| outside.join(name).display().to_string();
        let pid = canaries.bystander.text();
        let tell =
            |target: String, kind: &str| bare.probe(&["connect-and-tell", &target, kind]).assert_ok().ended().status;
        let shell = |line: &str| bare.run(&["sh", "-c", line]).status;
        let acts: [(&str, OutsideAct<'_>); 12] = [
            ("contents", &|_| shell(&format!("printf x >{file}"))),
            ("mode", &|_| shell(&format!("chmod 600 {file}"))),
            ("time", &|_| shell(&format!("touch -d yesterday {file}"))),
            ("attribute", &|_| bare.probe(&["setxattr", &file]).assert_ok().ended().status),
            ("link", &|_| shell(&format!("ln {file} {}", at("other")))),
            ("name", &|_| shell(&format!("mv {} {}", at("other"), at("new")))),
            ("tcp", &|c| tell(format!("port:{}", c.tcp.local_addr().unwrap().port()), "stream")),
            ("udp", &|c| tell(format!("port:{}", c.udp.local_addr().unwrap().port()), "dgram")),
            ("stream", &|_| tell(format!("unix:{}", at("stream")), "stream")),
            ("datagram", &|_| tell(format!("unix:{}", at("datagram")), "dgram")),
            ("abstract", &|c| tell(format!("abstract:{}", c.name), "stream")),
            ("priority", &|_| shell(&format!("renice 17 {pid}"))),
        ];
        let mut before = canaries.look();
        assert_eq!(before, canaries.look(), "it does not change by itself");
        for (what, act) in acts {
            assert!(act(&canaries).success(), "{what}");
            eventually(&format!("{what} is noticed"), || canaries.look() != before);
            before = canaries.look();
        }
        assert!(shell(&format!("kill {pid}")).success());
        eventually("the end of a process is noticed", || canaries.look() != before);
    });
}

fn tries(kind: &str) {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let sandbox = env.sandbox();
        let mut canaries = Canaries::new(env);
        let targets = canaries.targets();
        let before = canaries.look();
        let start = Instant::now();
        let budget = Duration::from_secs(seconds());
        // A seed that was not tried before: what is found is in the message.
        let mut seed = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros() as u64 & 0xffff_ffff;
        let mut calls = 0;
        while start.elapsed() < budget || (calls <= 10_000 && start.elapsed() < 30 * budget) {
            seed += 1;
            // The workspace is its own to spoil.
            let workspace = canaries.env.workspace();
            fs::set_permissions(&workspace, fs::Permissions::from_mode(0o755)).unwrap();
            canaries.env.give(&workspace);
            let tried = one_try(&sandbox, kind, seed, &targets);
            calls += tried.fact("calls").as_u64().unwrap_or(0);
            if !tried.ended().status.success() {
                eprintln!("{tried}");
            }
            assert_eq!(before, canaries.look(), "{kind} with seed {seed} reached a canary on {target:?}");
        }
        assert!(calls > 10_000, "only {calls} calls were made");
        eprintln!("{kind} on {target:?}: {calls} calls in {:?}", start.elapsed());
    });
}

/// The probe itself may be a victim; but whoever ran it tells the truth.
fn one_try(sandbox: &ProgramRunner, kind: &str, seed: u64, targets: &[String]) -> Probe {
    let seed = seed.to_string();
    let mut act = vec!["chaos", &seed, "2", kind];
    act.extend(targets.iter().map(String::as_str));
    let tried = sandbox.probe(&act);
    let code = tried.ended().status.code();
    // Its own status, or 128 and the signal that killed it: callgate itself did not fail, and no worker was lost.
    assert!(code.is_some_and(|code| code == 0 || code > 128), "{tried}");
    tried
}

#[test]
fn random_calls_reach_nothing_outside() {
    tries("all");
}

#[test]
fn random_questions_to_the_broker_reach_nothing_outside() {
    tries("notified");
}
