//! Egress as a whole, over real sockets: in a thread that is confined as the process is.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failing test may stop")]

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use callgate_policy::pattern::{Host, HostPattern};
use callgate_policy::plan::Network;
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig, ResolverOpts};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::confine;
use super::http::MadeFor;
use super::serving::{Egress, Route, Sockets};
use super::upstream::Resolver;
use crate::protocol::{Channel, FromEgress, Reach, Reached, Received, Target};

/// Longer than anything takes, on any machine.
const LONG: Duration = Duration::from_secs(60);

/// What a name leads to, as the host's name server says at the moment.
type Table = Arc<Mutex<HashMap<String, Vec<Ipv4Addr>>>>;

/// A name server of the host's: it answers from a table, and what is not in it does not exist. Each answer holds for no time.
fn name_server() -> (SocketAddr, Table, Arc<Mutex<Vec<String>>>) {
    let (table, asked) = (Table::default(), Arc::new(Mutex::new(Vec::new())));
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = socket.local_addr().unwrap();
    let (known, heard) = (Arc::clone(&table), Arc::clone(&asked));
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        loop {
            let (length, from) = socket.recv_from(&mut bytes).unwrap();
            let question = Message::from_vec(&bytes[..length]).unwrap();
            let mut answer = Message::new(question.metadata.id, MessageType::Response, OpCode::Query);
            answer.metadata.recursion_available = true;
            let query = question.queries[0].clone();
            let name = query.name().to_ascii().to_ascii_lowercase();
            heard.lock().unwrap().push(name.clone());
            match known.lock().unwrap().get(name.trim_end_matches('.')) {
                None => answer.metadata.response_code = ResponseCode::NXDomain,
                Some(addresses) if query.query_type() == RecordType::A => {
                    for address in addresses {
                        let data = RData::A(A(*address));
                        answer.add_answer(Record::from_rdata(query.name().clone(), 0, data));
                    }
                }
                Some(_) => {}
            }
            answer.add_query(query);
            socket.send_to(&answer.to_vec().unwrap(), from).unwrap();
        }
    });
    (at, table, asked)
}

/// Egress, and the ends that its broker and the session's programs have.
struct Served {
    broker: Channel,
    at: SocketAddr,
    names: UdpSocket,
    table: Table,
    /// What it asked the host's name server.
    asked: Arc<Mutex<Vec<String>>>,
    routes: Option<tokio::sync::mpsc::UnboundedSender<(OwnedFd, Route)>>,
    ended: mpsc::Receiver<()>,
}

fn serve(hosts: &[&str]) -> Served {
    serve_with(hosts, 4096)
}

fn serve_with(hosts: &[&str], room: usize) -> Served {
    let network = Network { hosts: hosts.iter().map(|host| HostPattern::parse(host).unwrap()).collect() };
    let (server, table, asked) = name_server();
    let (broker, theirs) = Channel::pair().unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    let stub = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let names = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    names.connect(stub.local_addr().unwrap()).unwrap();
    names.set_read_timeout(Some(LONG)).unwrap();
    let (routes, mut wanted) = tokio::sync::mpsc::unbounded_channel::<(OwnedFd, Route)>();
    let (ends, ended) = mpsc::channel();
    thread::spawn(move || {
        let mut by_udp = ConnectionConfig::udp();
        by_udp.port = server.port();
        let host = NameServerConfig::new(server.ip(), true, vec![by_udp]);
        let mut options = ResolverOpts::default();
        options.use_hosts_file = hickory_resolver::config::ResolveHosts::Never;
        let resolver = Resolver::with(ResolverConfig::from_parts(None, vec![], vec![host]), options).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // As the process does, but for what would hold for the other threads as well.
        crate::apply::privilege::set_no_new_privs().unwrap();
        if let Some(abi) = crate::apply::landlock::host_abi() {
            let ports = confine::ports(&network);
            let ruleset = crate::apply::landlock::connecting_alone(abi, ports.as_ref()).unwrap();
            crate::apply::landlock::restrict(&ruleset).unwrap();
        }
        crate::filters::install_egress().unwrap();
        runtime.block_on(async move {
            let egress = Egress::new(network, resolver, theirs, room).unwrap();
            let also = Arc::clone(&egress);
            tokio::spawn(async move {
                while let Some((client, route)) = wanted.recv().await {
                    let client = tokio::net::TcpStream::from_std(client.into()).unwrap();
                    tokio::spawn(Arc::clone(&also).converse(client, None, 7, route));
                }
            });
            egress.serve(Sockets { listener, names: Some(stub) }).await.unwrap();
        });
        ends.send(()).unwrap();
    });
    Served { broker, at, names, table, asked, routes: Some(routes), ended }
}

impl Served {
    fn knows(&self, name: &str, addresses: &[Ipv4Addr]) {
        self.table.lock().unwrap().insert(name.to_owned(), addresses.to_vec());
    }

    /// Asks for a name as programs do.
    fn look_up(&self, name: &str, kind: RecordType) -> Message {
        let mut question = Message::query();
        question.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
        question.metadata.recursion_desired = true;
        self.names.send(&question.to_vec().unwrap()).unwrap();
        let mut bytes = [0; 4096];
        let length = self.names.recv(&mut bytes).unwrap();
        let answer = Message::from_vec(&bytes[..length]).unwrap();
        assert_eq!((answer.metadata.id, &answer.queries), (question.metadata.id, &question.queries));
        answer
    }

    fn address_of(&self, name: &str) -> IpAddr {
        let answer = self.look_up(name, RecordType::A);
        assert_eq!(answer.metadata.response_code, ResponseCode::NoError, "{name}");
        answer.answers[0].data.ip_addr().unwrap()
    }

    /// As the broker does it for a program that connects.
    fn ask(&self, to: Target, wait: bool) -> (OwnedFd, Reached) {
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let socket = socket.unwrap();
        rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let from: SocketAddr = rustix::net::getsockname(&socket).unwrap().try_into().unwrap();
        let (ours, theirs) = Channel::pair().unwrap();
        self.broker.send(&Reach { call: 7, to, from: from.port(), wait }, &[theirs.as_fd()]).unwrap();
        drop(theirs);
        let Received::Message(reached, _) = ours.receive::<Reached>().unwrap() else { panic!("no answer") };
        (socket, reached)
    }

    fn connect(&self, socket: OwnedFd) -> TcpStream {
        rustix::net::connect(&socket, &self.at).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    fn reach(&self, ip: IpAddr, port: u16) -> TcpStream {
        let (socket, reached) = self.ask(Target::Address(SocketAddr::new(ip, port)), true);
        assert!(matches!(reached, Reached::Ready { .. }), "{reached:?}");
        self.connect(socket)
    }

    /// A connection that was made for a name, whatever its port and its address are.
    fn made_for(&self, name: &str, server: SocketAddr, only_web: bool) -> TcpStream {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        let (theirs, _) = listener.accept().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let name = Host::parse(name).unwrap();
        let host = format!("{name}:80");
        let route = Route { host, made_for: Some(MadeFor { name, port: 80 }), only_web, addresses: vec![server] };
        self.routes.as_ref().unwrap().send((theirs.into(), route)).unwrap();
        client
    }

    fn told(&self) -> FromEgress {
        let Received::Message(told, _) = self.broker.receive().unwrap() else { panic!("nothing is told") };
        told
    }

    fn nothing_told(&self) {
        assert_eq!(self.broker.receive_if_there::<FromEgress>().unwrap(), None);
    }

    /// Why a connection was ended.
    fn reason(&self) -> String {
        match self.told() {
            FromEgress::Ended { call: 7, host, reason } => {
                assert_eq!(host, "good.example:80");
                reason
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A server that does this with each connection, and says what it made of it.
fn server<T: Send + 'static>(
    serve: impl Fn(TcpStream) -> T + Send + Sync + 'static,
) -> (SocketAddr, mpsc::Receiver<T>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    let (says, heard) = mpsc::channel();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for socket in listener.incoming() {
            let (serve, says, socket) = (Arc::clone(&serve), says.clone(), socket.unwrap());
            socket.set_read_timeout(Some(LONG)).unwrap();
            thread::spawn(move || {
                // Nobody listens any more when the test is over.
                let _over = says.send(serve(socket));
            });
        }
    });
    (at, heard)
}

/// All that it is sent, until the other side has said all.
fn whole(mut socket: TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    // A reset is an end as well.
    let _reset = socket.read_to_end(&mut all);
    all
}

/// Says all of it, hears the answer to its end.
fn say(mut client: TcpStream, bytes: &[u8]) -> String {
    client.write_all(bytes).unwrap();
    String::from_utf8_lossy(&whole(client)).into_owned()
}

/// Nothing but a name that was granted has an address, and nothing but such a name is passed on.
#[test]
fn only_granted_names_have_addresses() {
    let served = serve(&["good.example:8080", "*.below.example", "absent.example"]);
    for name in ["good.example", "a.below.example"] {
        served.knows(name, &[Ipv4Addr::new(93, 184, 216, 34)]);
    }
    let first = served.address_of("good.example.");
    assert_eq!(first, IpAddr::from([198, 18, 0, 2]));
    assert_eq!(served.address_of("GOOD.example."), first, "one name, one address");
    assert_eq!(served.address_of("a.below.example."), IpAddr::from([198, 18, 0, 3]));
    let answer = served.look_up("2.0.18.198.in-addr.arpa.", RecordType::PTR);
    assert_eq!(answer.answers[0].data.to_string(), "good.example.");
    for kind in [RecordType::AAAA, RecordType::HTTPS, RecordType::SVCB, RecordType::TXT, RecordType::MX] {
        let answer = served.look_up("good.example.", kind);
        assert_eq!((answer.metadata.response_code, answer.answers.len()), (ResponseCode::NoError, 0), "{kind}");
        assert!(answer.metadata.recursion_available);
    }
    served.nothing_told();
    let before = served.asked.lock().unwrap().len();
    for name in ["evil.example.", "below.example.", "xgood.example.", "secret.good.example."] {
        assert_eq!(served.look_up(name, RecordType::A).metadata.response_code, ResponseCode::NXDomain, "{name}");
        assert_eq!(served.told(), FromEgress::NameRefused { name: name.trim_end_matches('.').to_owned() });
    }
    assert_eq!(served.look_up("evil.example.", RecordType::TXT).metadata.response_code, ResponseCode::NXDomain);
    served.nothing_told();
    assert_eq!(served.asked.lock().unwrap().len(), before, "nobody outside was asked");
    assert_eq!(served.look_up("absent.example.", RecordType::A).metadata.response_code, ResponseCode::NXDomain);
    assert!(served.asked.lock().unwrap().len() > before, "the control");
    assert_eq!(served.look_up("localhost.", RecordType::A).answers[0].data.ip_addr(), Some(Ipv4Addr::LOCALHOST.into()));
    served.nothing_told();
}

/// What is no question harms nobody: the next is answered.
#[test]
fn malformed_questions_are_answered_or_not_heard() {
    let served = serve(&["good.example"]);
    served.knows("good.example", &[Ipv4Addr::new(93, 184, 216, 34)]);
    let loops = [&[0, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], &[0xc0, 12, 0, 1, 0, 1]].concat();
    for bytes in [&b""[..], b"x", &[0; 11], &[0xff; 600], &loops] {
        served.names.send(bytes).unwrap();
    }
    let mut bytes = [0; 512];
    let length = served.names.recv(&mut bytes).unwrap();
    let answer = Message::from_vec(&bytes[..length]).unwrap();
    assert_eq!((answer.metadata.id, answer.metadata.response_code), (9, ResponseCode::FormErr));
    served.address_of("good.example.");
}

/// By TCP, several questions on one connection.
#[test]
fn names_are_asked_for_by_tcp() {
    let served = serve(&["good.example"]);
    served.knows("good.example", &[Ipv4Addr::new(93, 184, 216, 34)]);
    let (socket, reached) = served.ask(Target::Names, true);
    assert!(matches!(reached, Reached::Ready { .. }));
    let mut client = served.connect(socket);
    let mut both = Vec::new();
    for (id, name) in [(1, "good.example."), (2, "evil.example.")] {
        let mut question = Message::new(id, MessageType::Query, OpCode::Query);
        question.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
        let bytes = question.to_vec().unwrap();
        both.extend([&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], &bytes].concat());
    }
    client.write_all(&both).unwrap();
    for (id, code) in [(1, ResponseCode::NoError), (2, ResponseCode::NXDomain)] {
        let mut length = [0; 2];
        client.read_exact(&mut length).unwrap();
        let mut bytes = vec![0; u16::from_be_bytes(length).into()];
        client.read_exact(&mut bytes).unwrap();
        let answer = Message::from_vec(&bytes).unwrap();
        assert_eq!((answer.metadata.id, answer.metadata.response_code), (id, code));
    }
    client.write_all(&[0xff, 0xff]).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0, "one that is too long ends it");
}

/// Both ways, large, with a half-close; only at the granted port, only to what was granted.
#[test]
fn a_granted_name_is_reached_at_its_port_alone() {
    let (at, sums) = server(|socket| {
        let mut back = socket.try_clone().unwrap();
        let all = whole(socket);
        back.write_all(&all).unwrap();
        all.len()
    });
    let own = format!("127.0.0.1:{}", at.port());
    let name = format!("good.example:{}", at.port());
    let served = serve(&[&name, &own]);
    served.knows("good.example", &[Ipv4Addr::LOCALHOST]);
    let ip = served.address_of("good.example.");
    let mut client = served.reach(ip, at.port());
    let bytes: Vec<u8> = (0..8_u32 << 20).map(|number| (number % 251) as u8).collect();
    let sent = bytes.clone();
    let mut writes = client.try_clone().unwrap();
    thread::spawn(move || {
        writes.write_all(&sent).unwrap();
        writes.shutdown(Shutdown::Write).unwrap();
    });
    let mut back = Vec::new();
    client.read_to_end(&mut back).unwrap();
    assert!(back == bytes, "{} bytes came back", back.len());
    assert_eq!(sums.recv().unwrap(), bytes.len());

    let (_, reached) = served.ask(Target::Address(SocketAddr::new(ip, 22)), true);
    assert_eq!(reached, Reached::Refused { host: "good.example:22".into() });
    assert_eq!(served.told(), FromEgress::Refused { call: 7, host: "good.example:22".into(), reason: None });
    for place in ["93.184.216.34:80", "198.18.200.1:80", "[2001:db8::1]:80", "127.0.0.1:1", "[::ffff:127.0.0.1]:1"] {
        let (_, reached) = served.ask(Target::Address(place.parse().unwrap()), true);
        assert!(matches!(reached, Reached::Refused { .. }), "{place}: {reached:?}");
        assert!(matches!(served.told(), FromEgress::Refused { call: 7, reason: None, .. }), "{place}");
    }
    drop(served.reach(at.ip(), at.port()));
    let mapped = "::ffff:127.0.0.1".parse().unwrap();
    drop(served.reach(mapped, at.port()));
    served.nothing_told();
}

/// B12: a granted name that comes to lead to this machine, its network or its cloud's metadata does not.
#[test]
fn b12_a_name_that_leads_inside_is_refused() {
    let (at, _) = server(drop);
    let own = format!("127.0.0.1:{}", at.port());
    let name = format!("good.example:{}", at.port());
    let served = serve(&[&name, &own]);
    served.knows("good.example", &[Ipv4Addr::LOCALHOST]);
    let ip = served.address_of("good.example.");
    drop(served.reach(ip, at.port()));
    for inside in [[127, 0, 0, 2], [10, 0, 0, 1], [169, 254, 169, 254], [192, 168, 1, 1], [0, 0, 0, 0], [224, 0, 0, 1]]
    {
        served.knows("good.example", &[inside.into()]);
        let (_, reached) = served.ask(Target::Address(SocketAddr::new(ip, at.port())), true);
        assert_eq!(reached, Reached::Refused { host: name.clone() }, "{inside:?}");
        let FromEgress::Refused { reason: Some(reason), .. } = served.told() else { panic!("{inside:?}") };
        assert!(reason.contains(&Ipv4Addr::from(inside).to_string()), "{reason}");
    }
    // Of several, those that may be.
    served.knows("good.example", &[[10, 0, 0, 1].into(), Ipv4Addr::LOCALHOST]);
    drop(served.reach(ip, at.port()));
    served.nothing_told();
}

/// A blocking connect learns why it fails; what does not exist is not refused.
#[test]
fn what_is_not_there_fails_as_it_would_outside() {
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let own = format!("127.0.0.1:{}", closed.port());
    let name = format!("good.example:{}", closed.port());
    let served = serve(&[&name, &own]);
    served.knows("good.example", &[Ipv4Addr::LOCALHOST]);
    let ip = served.address_of("good.example.");
    let to = Target::Address(SocketAddr::new(ip, closed.port()));
    assert_eq!(served.ask(to, true).1, Reached::Failed { host: name.clone(), errno: libc::ECONNREFUSED });
    let (socket, reached) = served.ask(to, false);
    assert_eq!(reached, Reached::Ready { host: name.clone() });
    let answer = say(served.connect(socket), b"GET / HTTP/1.1\r\nhost: good.example\r\nconnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("refused"), "{answer}");
    served.table.lock().unwrap().clear();
    assert_eq!(served.ask(to, true).1, Reached::Failed { host: name, errno: libc::EHOSTUNREACH });
    served.nothing_told();
}

/// B17: a connection that was not announced is not served, nor is one that was, a second time.
#[test]
fn b17_only_announced_connections_are_served() {
    let (at, _) = server(|mut socket| socket.write_all(b"hello").unwrap());
    let own = format!("127.0.0.1:{}", at.port());
    let served = serve(&[&own]);
    let mut stranger = TcpStream::connect(served.at).unwrap();
    stranger.set_read_timeout(Some(LONG)).unwrap();
    assert!(stranger.read(&mut [0; 5]).map_or(true, |read| read == 0));
    // From the same port, at another address of loopback.
    let (socket, reached) = served.ask(Target::Address(at), true);
    assert!(matches!(reached, Reached::Ready { .. }));
    let from: SocketAddr = rustix::net::getsockname(&socket).unwrap().try_into().unwrap();
    let thief = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&thief, &SocketAddr::from(([127, 0, 0, 2], from.port()))).unwrap();
    rustix::net::connect(&thief, &served.at).unwrap();
    let mut thief = TcpStream::from(thief);
    thief.set_read_timeout(Some(LONG)).unwrap();
    assert!(thief.read(&mut [0; 5]).map_or(true, |read| read == 0));
    // The control, which the thief has not spoilt.
    let mut bytes = [0; 5];
    let mut client = served.connect(socket);
    client.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"hello");
}

/// The end of the broker is the end of egress.
#[test]
fn it_ends_with_the_broker() {
    let served = serve(&["good.example"]);
    drop(served.broker);
    served.ended.recv_timeout(LONG).unwrap();
}

fn hello(of: &str) -> Vec<u8> {
    match of {
        "openssl" => include_bytes!("hellos/openssl").to_vec(),
        "openssl-tls1.2" => include_bytes!("hellos/openssl-tls1.2").to_vec(),
        "gnutls" => include_bytes!("hellos/gnutls").to_vec(),
        "java" => include_bytes!("hellos/java").to_vec(),
        "without a name" => include_bytes!("hellos/openssl-without-name").to_vec(),
        _ => unreachable!(),
    }
}

/// A hello with these bytes as its extensions, in records of at most this many bytes.
fn made_hello(extensions: &[u8], record: usize) -> Vec<u8> {
    let length = |bytes: &[u8]| u16::try_from(bytes.len()).unwrap().to_be_bytes();
    let body = [&[3, 3][..], &[7; 32], &[0], &[0, 2, 0x13, 1], &[1, 0], &length(extensions), extensions].concat();
    let message = [&[1, 0][..], &length(&body), &body].concat();
    message.chunks(record).flat_map(|part| [&[22, 3, 1][..], &length(part), part].concat()).collect()
}

fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &u16::try_from(body.len()).unwrap().to_be_bytes(), body].concat()
}

fn server_name(name: &[u8]) -> Vec<u8> {
    let entry = [&[0][..], &u16::try_from(name.len()).unwrap().to_be_bytes(), name].concat();
    extension(0, &[&u16::try_from(entry.len()).unwrap().to_be_bytes()[..], &entry].concat())
}

/// B13: a TLS connection is for the name that it was made for, or ended before a byte of it has left.
#[test]
fn b13_a_hello_for_another_server_is_refused() {
    let (at, heard) = server(whole);
    let served = serve(&["good.example:*", "other.example:*"]);
    let good = server_name(b"good.example");
    let split = made_hello(&good, 7);
    let mixed = made_hello(&server_name(b"Good.EXAMPLE"), 1000);
    for (what, hello) in [
        ("openssl", hello("openssl")),
        ("openssl, TLS 1.2", hello("openssl-tls1.2")),
        ("gnutls", hello("gnutls")),
        ("java", hello("java")),
        ("split", split.clone()),
        ("mixed case", mixed),
    ] {
        for only_web in [true, false] {
            let mut client = served.made_for("good.example", at, only_web);
            // In parts that have nothing to do with those of the protocol.
            for part in hello.chunks(11) {
                client.write_all(part).unwrap();
            }
            client.shutdown(Shutdown::Write).unwrap();
            assert!(heard.recv_timeout(LONG).unwrap() == hello, "{what}");
        }
    }
    let ech = [good.clone(), extension(0xfe0d, &[0; 64])].concat();
    let esni = [good.clone(), extension(0xffce, &[0; 64])].concat();
    let twice = [good.clone(), server_name(b"evil.example")].concat();
    let two = [&[0, 30, 0, 0, 12][..], b"good.example", &[0, 0, 12], b"evil.example"].concat();
    let cut = [&good[..], &[0, 43, 0, 9, 2]].concat();
    let long = made_hello(&[good.clone(), extension(21, &[0; 60_000])].concat(), 100);
    let no_records = [&[22, 3, 1][..], &[0, 0]].concat();
    let more_than_one = {
        let one = made_hello(&good, 1000);
        let length = u16::try_from(2 * (one.len() - 5)).unwrap().to_be_bytes();
        [&[22, 3, 1][..], &length, &one[5..], &one[5..]].concat()
    };
    for (what, hello, why) in [
        ("another that was granted", made_hello(&server_name(b"other.example"), 1000), "a connection of its own"),
        ("another that was not", made_hello(&server_name(b"evil.example"), 1000), "was not granted"),
        ("no name", hello("without a name"), "names no server"),
        ("no extension", made_hello(&[], 1000), "names no server"),
        ("encrypted", made_hello(&ech, 1000), "encrypted"),
        ("encrypted, the draft", made_hello(&esni, 1000), "encrypted"),
        ("two extensions", made_hello(&twice, 1000), "malformed"),
        ("two names", made_hello(&extension(0, &two), 1000), "malformed"),
        ("what follows is cut off", made_hello(&cut, 1000), "malformed"),
        ("a dot", made_hello(&server_name(b"good.example."), 1000), "read differently"),
        ("an address", made_hello(&server_name(b"10.0.0.1"), 1000), "read differently"),
        ("a NUL", made_hello(&server_name(b"good.example\0.evil.example"), 1000), "read differently"),
        ("too many records", long, "too often"),
        ("an empty record", no_records, "malformed"),
        ("two in a record", more_than_one, "malformed"),
        ("not a hello", vec![22, 3, 3, 0, 5, 2, 0, 0, 1, 0], "malformed"),
        ("SSL 2", vec![0x80, 0x2e, 1, 3, 1, 0, 0x15, 0, 0, 0, 0x10], "malformed"),
        ("too long", vec![22, 3, 3, 0x40, 0, 1, 2, 0, 0], "longer"),
    ] {
        for only_web in [true, false] {
            let answer = say(served.made_for("good.example", at, only_web), &hello);
            assert_eq!(answer.as_bytes(), [21, 3, 3, 0, 2, 2, 49], "{what}");
            let reason = served.reason();
            assert!(reason.contains(why), "{what}: {reason}");
        }
        assert!(heard.recv_timeout(LONG).unwrap().is_empty(), "{what}: it reached the server");
        assert!(heard.recv_timeout(LONG).unwrap().is_empty(), "{what}: it reached the server");
    }
    served.nothing_told();
}
