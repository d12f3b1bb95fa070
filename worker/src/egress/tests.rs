//! Egress as a whole, over real sockets: in a thread that is confined as the process is.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failing test may stop")]

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use callgate_policy::envelope::Carried;
use callgate_policy::pattern::{Host, HostPattern};
use callgate_policy::plan::{Carries, Network};
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig, ResolverOpts};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::confine;
use super::credentials::SealedCredentials;
use super::http::MadeFor;
use super::serving::{Egress, Route, Sockets};
use super::upstream::Resolver;
use crate::protocol::{Channel, ConnectTarget, ConnectionMade, FromEgress, Reach, Reached, Received, ToEgress};

/// Longer than anything takes, on any machine.
const LONG: Duration = Duration::from_secs(60);

/// Addresses that a name leads to, as the host's name server says at the moment.
type NameTable = Arc<Mutex<HashMap<String, Vec<Ipv4Addr>>>>;

/// A name server of the host's: it answers from a table, and what is not in it does not exist. Each answer holds for no time.
fn name_server() -> (SocketAddr, NameTable, Arc<Mutex<Vec<String>>>) {
    let (table, asked) = (NameTable::default(), Arc::new(Mutex::new(Vec::new())));
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
                _ if name.starts_with("failing.") && query.query_type() == RecordType::A => {
                    answer.metadata.response_code = ResponseCode::ServFail;
                }
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

/// A call's socket, and the channel on which it was asked for.
struct Asking {
    socket: OwnedFd,
    broker: Channel,
}

/// Egress, and the ends that its broker and the session's programs have.
struct ServedEgress {
    broker: Channel,
    at: SocketAddr,
    names: UdpSocket,
    table: NameTable,
    /// Names that it asked the host's name server.
    asked: Arc<Mutex<Vec<String>>>,
    routes: Option<tokio::sync::mpsc::UnboundedSender<(OwnedFd, Route)>>,
    ended: mpsc::Receiver<()>,
}

fn serve(hosts: &[&str]) -> ServedEgress {
    serve_with(hosts, 4096, Carries::UNBOUNDED)
}

fn serve_with(hosts: &[&str], room: usize, carries: Carries) -> ServedEgress {
    let network = Network {
        hosts: hosts.iter().map(|host| HostPattern::parse(host).unwrap()).collect(),
        secured: None,
        past_session: false,
        carries,
    };
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
            let egress = Egress::new(network, (resolver, SealedCredentials::default()), theirs, room).unwrap();
            // That of the connections that no test asks for.
            egress.begins(7, u64::MAX);
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
    ServedEgress { broker, at, names, table, asked, routes: Some(routes), ended }
}

impl ServedEgress {
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
    fn ask(&self, to: ConnectTarget, wait: bool) -> (Asking, Reached) {
        self.ask_for(7, None, to, wait)
    }

    fn ask_for(&self, call: u64, within: Option<Network>, to: ConnectTarget, wait: bool) -> (Asking, Reached) {
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let socket = socket.unwrap();
        rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let from: SocketAddr = rustix::net::getsockname(&socket).unwrap().try_into().unwrap();
        let (broker, reached) = self.announce(Reach { call, within, to, from: from.port(), wait });
        (Asking { socket, broker }, reached)
    }

    fn announce(&self, reach: Reach) -> (Channel, Reached) {
        let (ours, theirs) = Channel::pair().unwrap();
        self.broker.send(&ToEgress::Reach(reach), &[theirs.as_fd()]).unwrap();
        drop(theirs);
        let Received::Message(reached, _) = ours.receive::<Reached>().unwrap() else { panic!("no answer") };
        (ours, reached)
    }

    fn connect(&self, Asking { socket, broker }: Asking) -> TcpStream {
        rustix::net::connect(&socket, &self.at).unwrap();
        broker.send(&ConnectionMade::Connected, &[]).unwrap();
        assert!(matches!(broker.receive().unwrap(), Received::Message(Reached::Taken, _)));
        broker.send(&ConnectionMade::Sure, &[]).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    fn reach(&self, ip: IpAddr, port: u16) -> TcpStream {
        let (socket, reached) = self.ask(ConnectTarget::Address(SocketAddr::new(ip, port)), true);
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
        let route = Route { host, made_for: Some(MadeFor::new(name, 80)), only_web, addresses: vec![server] };
        self.routes.as_ref().unwrap().send((theirs.into(), route)).unwrap();
        client
    }

    /// Bytes that a call has carried, as the broker asks for them.
    fn carried(&self, call: u64) -> Carried {
        let (ours, theirs) = Channel::pair().unwrap();
        self.broker.send(&ToEgress::Count { call }, &[theirs.as_fd()]).unwrap();
        drop(theirs);
        let Received::Message(carried, _) = ours.receive().unwrap() else { panic!("no answer") };
        carried
    }

    fn told(&self) -> FromEgress {
        let Received::Message(told, _) = self.broker.receive().unwrap() else { panic!("nothing is told") };
        told
    }

    fn nothing_told(&self) {
        assert_eq!(self.broker.receive_if_there::<FromEgress>().unwrap(), None);
    }

    /// Reason why a connection was ended.
    fn reason(&self) -> String {
        let told = self.told();
        let FromEgress::Ended { call: 7, host, reason } = told else { panic!("{told:?}") };
        assert_eq!(host, "good.example:80");
        reason
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

/// The head of a request, and not a byte more.
fn head(socket: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
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
        assert_eq!(served.told(), FromEgress::NameRefused { call: None, name: name.trim_end_matches('.').to_owned() });
    }
    assert_eq!(served.look_up("evil.example.", RecordType::TXT).metadata.response_code, ResponseCode::NXDomain);
    served.nothing_told();
    assert_eq!(served.asked.lock().unwrap().len(), before, "nobody outside was asked");
    assert_eq!(served.look_up("absent.example.", RecordType::A).metadata.response_code, ResponseCode::NXDomain);
    assert!(served.asked.lock().unwrap().len() > before, "the control");
    assert_eq!(served.look_up("localhost.", RecordType::A).answers[0].data.ip_addr(), Some(Ipv4Addr::LOCALHOST.into()));
    served.nothing_told();
}

/// A name below a granted one may say something: nobody outside is asked for it until a call connects that may.
#[test]
fn b4_names_below_a_granted_one_are_asked_for_when_a_call_connects() {
    let (at, _) = server(drop);
    let port = at.port();
    let served = serve(&[&format!("*.below.example:{port}"), &format!("127.0.0.1:{port}")]);
    for name in ["secret.below.example", "open.below.example"] {
        served.knows(name, &[Ipv4Addr::LOCALHOST]);
    }
    let asked_for = |word: &str| served.asked.lock().unwrap().iter().any(|name| name.starts_with(word));
    let secret = ConnectTarget::Address(SocketAddr::new(served.address_of("secret.below.example."), port));
    let (_, reached) = served.ask_for(
        8,
        Some(Network { hosts: vec![], secured: None, past_session: false, carries: Carries::UNBOUNDED }),
        secret,
        true,
    );
    assert_eq!(reached, Reached::Refused { host: format!("secret.below.example:{port}") });
    assert!(!asked_for("secret"));
    // By TCP it is known who asks.
    let (socket, _) = served.ask_for(
        8,
        Some(Network { hosts: vec![], secured: None, past_session: false, carries: Carries::UNBOUNDED }),
        ConnectTarget::Names,
        true,
    );
    let mut client = served.connect(socket);
    let mut question = Message::query();
    question.add_query(Query::query(Name::from_ascii("other.below.example.").unwrap(), RecordType::A));
    let bytes = question.to_vec().unwrap();
    client.write_all(&[&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], &bytes].concat()).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let answer = Message::from_vec(&whole(client)[2..]).unwrap();
    assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain);
    assert!(!asked_for("other"));
    let told: Vec<FromEgress> = (0..2).map(|_| served.told()).collect();
    let is_narrowed = |told: &FromEgress| matches!(told, FromEgress::Refused { call: 8, reason: Some(_), .. });
    assert!(told.iter().all(is_narrowed), "{told:?}");
    // The control: a call that may.
    drop(served.reach(served.address_of("open.below.example."), port));
    assert!(asked_for("open"));
}

/// B4: nobody knows who asks by UDP. While a call runs that may reach less than its session, nobody outside is asked for what is.
#[test]
fn b4_a_narrowed_call_says_nothing_by_names() {
    let served = serve(&["good.example", "*.below.example"]);
    served.knows("good.example", &[Ipv4Addr::new(192, 0, 2, 1)]);
    let gone = |call| served.broker.send(&ToEgress::Gone { call }, &[]).unwrap();
    served.broker.send(&ToEgress::Narrowed { call: 8 }, &[]).unwrap();
    let stands_for = served.address_of("good.example.");
    assert_eq!(served.look_up("good.example.", RecordType::AAAA).metadata.response_code, ResponseCode::NoError);
    gone(9);
    served.address_of("good.example.");
    // What it has asked when it ends is its own as well.
    let mut question = Message::query();
    question.add_query(Query::query(Name::from_ascii("good.example.").unwrap(), RecordType::A));
    for _ in 0..200 {
        served.names.send(&question.to_vec().unwrap()).unwrap();
    }
    gone(8);
    for _ in 0..200 {
        served.names.recv(&mut [0; 512]).unwrap();
    }
    assert_eq!(*served.asked.lock().unwrap(), Vec::<String>::new());
    // The control: it is over.
    assert_eq!(served.address_of("good.example."), stands_for);
    assert!(!served.asked.lock().unwrap().is_empty());
    // What a name below a granted one is called is nobody else's.
    let below = served.address_of("secret.below.example.");
    for (ip, known) in [(stands_for, true), (below, false)] {
        let IpAddr::V4(ip) = ip else { panic!("{ip}") };
        let [a, b, c, d] = ip.octets();
        let answer = served.look_up(&format!("{d}.{c}.{b}.{a}.in-addr.arpa."), RecordType::PTR);
        assert_eq!(answer.answers.len(), usize::from(known), "{ip}");
    }
}

/// A name server that has failed for one kind of address has not said that there is none.
#[test]
fn what_could_not_be_asked_is_no_answer() {
    let served = serve(&["failing.example", "empty.example", "absent.example"]);
    served.knows("failing.example", &[]);
    served.knows("empty.example", &[]);
    for kind in [RecordType::A, RecordType::AAAA] {
        assert_eq!(served.look_up("failing.example.", kind).metadata.response_code, ResponseCode::ServFail, "{kind}");
        assert_eq!(served.look_up("absent.example.", kind).metadata.response_code, ResponseCode::NXDomain, "{kind}");
    }
    let answer = served.look_up("empty.example.", RecordType::A);
    assert_eq!((answer.metadata.response_code, answer.answers.len()), (ResponseCode::NoError, 0), "the control");
}

/// A malformed question harms nobody: the next is answered.
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
    let (socket, reached) = served.ask(ConnectTarget::Names, true);
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

    let (_, reached) = served.ask(ConnectTarget::Address(SocketAddr::new(ip, 22)), true);
    assert_eq!(reached, Reached::Refused { host: "good.example:22".into() });
    assert_eq!(served.told(), FromEgress::Refused { call: 7, host: "good.example:22".into(), reason: None });
    for place in ["93.184.216.34:80", "198.18.200.1:80", "[2001:db8::1]:80", "127.0.0.1:1", "[::ffff:127.0.0.1]:1"] {
        let (_, reached) = served.ask(ConnectTarget::Address(place.parse().unwrap()), true);
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
        let (_, reached) = served.ask(ConnectTarget::Address(SocketAddr::new(ip, at.port())), true);
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
    let to = ConnectTarget::Address(SocketAddr::new(ip, closed.port()));
    assert_eq!(served.ask(to, true).1, Reached::Failed { host: name.clone(), errno: libc::ECONNREFUSED });
    assert_eq!(
        served.ask(to, false).1,
        Reached::Failed { host: name.clone(), errno: libc::ECONNREFUSED },
        "it is near"
    );
    let client = served.made_for("good.example", closed, true);
    let answer = say(client, b"GET / HTTP/1.1\r\nhost: good.example\r\nconnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("refused"), "{answer}");
    assert!(served.reason().starts_with("it cannot be reached: Connection refused"), "as the answer says");
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
    let (asking, reached) = served.ask(ConnectTarget::Address(at), true);
    assert!(matches!(reached, Reached::Ready { .. }));
    let from: SocketAddr = rustix::net::getsockname(&asking.socket).unwrap().try_into().unwrap();
    let thief = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&thief, &SocketAddr::from(([127, 0, 0, 2], from.port()))).unwrap();
    rustix::net::connect(&thief, &served.at).unwrap();
    let mut thief = TcpStream::from(thief);
    thief.set_read_timeout(Some(LONG)).unwrap();
    assert!(thief.read(&mut [0; 5]).map_or(true, |read| read == 0));
    // The control, which the thief has not spoilt.
    let mut bytes = [0; 5];
    let mut client = served.connect(asking);
    client.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"hello");
}

/// B17: nobody takes the place of a connection that is on its way.
#[test]
fn b17_a_port_is_announced_once() {
    let (at, _) = server(|mut socket| socket.write_all(b"hello").unwrap());
    let own = format!("127.0.0.1:{}", at.port());
    let served = serve(&[&own]);
    let to = ConnectTarget::Address(at);
    let (asking, _) = served.ask(to, true);
    let from: SocketAddr = rustix::net::getsockname(&asking.socket).unwrap().try_into().unwrap();
    let (_, again) =
        served.announce(Reach { call: 8, within: None, to: ConnectTarget::Names, from: from.port(), wait: true });
    assert!(matches!(again, Reached::Failed { errno: libc::EADDRINUSE, .. }), "{again:?}");
    let mut bytes = [0; 5];
    served.connect(asking).read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"hello");
}

/// B17: what somebody else on the machine says from the port of a call's connection is not the call's, whether it was said before the
/// call's own connection or instead of it.
#[test]
fn b17_nobody_speaks_from_the_port_of_a_call() {
    let (at, heard) = server(whole);
    let own = format!("127.0.0.1:{}", at.port());
    let served = serve(&[&own]);
    let stranger_from = |port: u16| {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        sockopt::set_socket_reuseaddr(&socket, true).unwrap();
        rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, port))).unwrap();
        rustix::net::connect(&socket, &served.at).unwrap();
        TcpStream::from(socket)
    };
    let ask = || {
        let (asking, reached) = served.ask(ConnectTarget::Address(at), true);
        assert!(matches!(reached, Reached::Ready { .. }));
        sockopt::set_socket_reuseaddr(&asking.socket, true).unwrap();
        let from: SocketAddr = rustix::net::getsockname(&asking.socket).unwrap().try_into().unwrap();
        (asking, from.port())
    };
    let mut said = Vec::new();
    for _ in 0..20 {
        let (asking, port) = ask();
        // It resets its connection, so that the port is free again, and what it has said lies there.
        let mut stranger = stranger_from(port);
        stranger.write_all(b"evil").unwrap();
        sockopt::set_socket_linger(&stranger, Some(Duration::ZERO)).unwrap();
        drop(stranger);
        let mut client = served.connect(asking);
        client.write_all(b"good").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        said.push(heard.recv().unwrap());
    }
    assert_eq!(said, vec![b"good".to_vec(); 20]);
    // The call's own connection cannot be made while the other is there, and nobody takes that for the call's.
    let (asking, port) = ask();
    let mut stranger = stranger_from(port);
    assert_eq!(rustix::net::connect(&asking.socket, &served.at), Err(rustix::io::Errno::ADDRNOTAVAIL));
    stranger.write_all(b"evil").unwrap();
    drop(asking);
    assert!(stranger.read(&mut [0]).map_or(true, |read| read == 0));
    assert_eq!(heard.recv().unwrap(), b"", "its server hears nothing");
}

/// With a call its connections end, whatever their servers do; and no call takes all the room.
#[test]
fn connections_end_with_their_call() {
    let (at, ended) = server(whole);
    let own = format!("127.0.0.1:{}", at.port());
    let served = serve_with(&[&own], 4, Carries::UNBOUNDED);
    let to = ConnectTarget::Address(at);
    let reach = |call| match served.ask_for(call, None, to, true) {
        (socket, Reached::Ready { .. }) => Some(served.connect(socket)),
        (_, Reached::Failed { errno: libc::EAGAIN, .. }) => None,
        (_, other) => panic!("{other:?}"),
    };
    let mut held: Vec<TcpStream> = (0..3).map(|_| reach(7).unwrap()).collect();
    assert!(reach(7).is_none(), "it has its part");
    let mut other = reach(8).unwrap();
    // Each is there, and none ends by itself.
    other.write_all(b"other").unwrap();
    assert!(ended.try_recv().is_err());
    served.broker.send(&ToEgress::Gone { call: 7 }, &[]).unwrap();
    for _ in 0..3 {
        assert_eq!(ended.recv_timeout(LONG).unwrap(), b"");
    }
    for client in &mut held {
        assert!(client.read(&mut [0]).map_or(true, |read| read == 0));
    }
    assert!(reach(7).is_some(), "there is room again");
    other.shutdown(Shutdown::Write).unwrap();
    let last = std::iter::repeat_with(|| ended.recv_timeout(LONG).unwrap()).find(|heard| !heard.is_empty());
    assert_eq!(last.unwrap(), b"other", "the control");
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

/// B13: a server may ask for a second hello, which must be for the same name.
#[test]
fn b13_a_second_hello_for_another_server_is_refused() {
    let (at, heard) = server(|mut socket| {
        let mut first = [0; 11];
        socket.read_exact(&mut first).unwrap();
        socket.write_all(b"again").unwrap();
        [first.to_vec(), whole(socket)].concat()
    });
    let served = serve(&["good.example:*", "other.example:*"]);
    let (good, early) = (server_name(b"good.example"), extension(42, &[]));
    let plain = made_hello(&good, 1000);
    let early = made_hello(&[good, early].concat(), 1000);
    let warning = [21, 3, 3, 0, 2, 1, 90];
    let change = [20, 3, 3, 0, 1, 1];
    let second = |name: &[u8], record: usize| made_hello(&server_name(name), record);
    let data = [23, 3, 3, 0, 2, 9, 9];
    let evil = second(b"evil.example", 1000);
    let mut odd = evil.clone();
    odd[9] = 4;
    for (what, first, said, why) in [
        ("the same", &plain, [&change[..], &second(b"good.example", 1000), &data].concat(), None),
        ("none", &plain, [&change[..], &data].concat(), None),
        ("the same, early data", &early, [&data[..], &second(b"good.example", 1000), &data, &data].concat(), None),
        ("another", &plain, [&change[..], &second(b"other.example", 1000)].concat(), Some("for other.example")),
        ("another at once", &plain, evil.clone(), Some("for evil.example")),
        ("another in pieces", &plain, [&change[..], &second(b"evil.example", 5)].concat(), Some("for evil.example")),
        ("another after a warning", &plain, [&warning[..], &evil].concat(), Some("for evil.example")),
        ("another after data", &early, [&data[..], &change, &data, &evil].concat(), Some("for evil.example")),
        ("another of a version of its own", &plain, odd.clone(), Some("for evil.example")),
        ("no name", &plain, [&change[..], &made_hello(&[], 1000)].concat(), Some("names no server")),
    ] {
        let mut client = served.made_for("good.example", at, false);
        client.write_all(first).unwrap();
        client.read_exact(&mut [0; 5]).unwrap();
        let written: std::io::Result<()> = said.chunks(3).try_for_each(|part| client.write_all(part));
        assert!(written.is_ok() || why.is_some(), "{what}: {written:?}");
        // A reset is an end as well.
        let _reset = client.shutdown(Shutdown::Write);
        let got = heard.recv_timeout(LONG).unwrap();
        match why {
            None => assert!(got == [&first[..], &said].concat(), "{what}"),
            Some(why) => {
                let reason = served.reason();
                assert!(reason.contains(why), "{what}: {reason}");
                assert!(!String::from_utf8_lossy(&got[first.len()..]).contains("example"), "{what}: it was sent");
            }
        }
    }
    served.nothing_told();
}

/// B13: the same in one piece with the first, and after the server has answered: only one that asks again is sent a second hello,
/// and what looks like one in a connection that is encrypted passes.
#[test]
fn b13_a_second_hello_is_looked_for_until_the_server_has_answered() {
    let answer = |random: &[u8; 32]| {
        let body = [&[3, 3][..], random, &[0, 0x13, 1, 0, 0, 0]].concat();
        let length = u8::try_from(body.len()).unwrap();
        let warning = [21, 3, 3, 0, 2, 1, 112];
        [&warning[..], &[22, 3, 3, 0, length + 4, 2, 0, 0, length], &body].concat()
    };
    let served = serve(&["good.example:*"]);
    let good = made_hello(&server_name(b"good.example"), 1000);
    let evil = made_hello(&server_name(b"evil.example"), 1000);
    let (at, heard) = server(whole);
    let mut client = served.made_for("good.example", at, false);
    client.write_all(&[&good[..], &evil].concat()).unwrap();
    let got = heard.recv_timeout(LONG).unwrap();
    assert!(!String::from_utf8_lossy(&got).contains("evil"), "it was sent");
    assert_eq!(served.reason(), "a second TLS hello is for evil.example");
    for (random, passes) in [(&super::hello::ASKS_AGAIN, false), (&[9; 32], true)] {
        let answer = answer(random);
        let length = answer.len();
        let hello = good.len();
        let (at, heard) = server(move |mut socket| {
            socket.read_exact(&mut vec![0; hello]).unwrap();
            for part in answer.chunks(20) {
                socket.write_all(part).unwrap();
            }
            whole(socket)
        });
        let mut client = served.made_for("good.example", at, false);
        client.write_all(&good).unwrap();
        client.read_exact(&mut vec![0; length]).unwrap();
        // It may be reset before all is said.
        let _reset = client.write_all(&evil).and_then(|()| client.shutdown(Shutdown::Write));
        let got = heard.recv_timeout(LONG).unwrap();
        assert_eq!(got == evil, passes, "{passes}");
        assert_eq!(got.is_empty(), !passes, "{passes}");
        if !passes {
            assert_eq!(served.reason(), "a second TLS hello is for evil.example");
        }
    }
    served.nothing_told();
}

/// A server of HTTP that notes what it is sent, and answers each request that it finds in it. It finds them as servers do that
/// read leniently: whatever looks like a head is one.
fn web_server() -> (SocketAddr, Arc<Mutex<String>>) {
    let sent = Arc::new(Mutex::new(String::new()));
    let notes = Arc::clone(&sent);
    let (at, _) = server(move |mut socket| {
        let mut heads = 0;
        let mut all = Vec::new();
        let mut bytes = [0; 4096];
        while let Ok(read @ 1..) = socket.read(&mut bytes) {
            all.extend_from_slice(&bytes[..read]);
            notes.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..read]));
            let found = all.windows(4).filter(|window| *window == b"\r\n\r\n").count();
            let is_chunked = String::from_utf8_lossy(&all).to_ascii_lowercase().contains("transfer-encoding");
            let is_whole = !is_chunked || all.ends_with(b"0\r\n\r\n");
            if found > heads && is_whole {
                heads = found;
                socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes").unwrap();
                if all.windows(13).any(|window| window == b"ection: close") {
                    return;
                }
            }
        }
    });
    (at, sent)
}

/// B13: what some servers take for a request is none that passes unread, however it begins.
#[test]
fn b13_an_odd_first_line_is_compared_or_refused() {
    let (at, sent) = web_server();
    let served = serve(&["good.example:*"]);
    let evil = b"GET /x HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    let long = [b"GET /", &*b"x".repeat(70_000), &evil[6..]].concat();
    for (what, request) in [
        ("blanks", [&*b"\r\n".repeat(600), evil].concat()),
        ("no version", b"GET http://evil.example/x\r\n\r\n".to_vec()),
        ("no version, nothing more", b"GET http://evil.example/x\r\n".to_vec()),
        ("a control character", b"GET /\x01 HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_vec()),
        ("a long line", long),
        ("a method that is none", [b"GET@", &evil[3..]].concat()),
        ("one that is no text", [b"G\xc9T", &evil[3..]].concat()),
        ("a line that is none before it", [b"\0\r\n", &evil[..]].concat()),
        ("no version, and a host", b"GET * FOO\r\nHost: evil.example\r\n\r\n".to_vec()),
    ] {
        let mut client = served.made_for("good.example", at, false);
        // It may be refused before all is said.
        let _reset = client.write_all(&request).and_then(|()| client.shutdown(Shutdown::Write));
        let answer = String::from_utf8_lossy(&whole(client)).into_owned();
        assert!(!answer.contains("yes"), "{what}: {answer}");
        assert_eq!(*sent.lock().unwrap(), "", "{what}");
    }
    // The end of the data is no line end here, and one for some: it does not come, and the connection is reset.
    let (ends, ended) = server(|mut socket| {
        let mut all = Vec::new();
        (socket.read_to_end(&mut all).is_err(), all)
    });
    let unended = b"\x01 GET http://evil.example/x HTTP/1.1";
    let client = served.made_for("good.example", ends, false);
    (&client).write_all(unended).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert!(ended.recv_timeout(LONG).unwrap().0, "it came to its end");
    // A server that answers with HTTP speaks it, whatever it was asked.
    drop(client);
    while served.broker.receive_if_there::<FromEgress>().unwrap().is_some() {}
    let answer = say(served.made_for("good.example", at, false), b"GET_ /x FOO\r\n\r\n");
    assert_eq!(answer, "");
    assert!(served.reason().contains("the server speaks HTTP"));
    // In two pieces: the first is passed on, and the line never ends.
    while served.broker.receive_if_there::<FromEgress>().unwrap().is_some() {}
    for (first, rest) in [(&b"GET \x1c"[..], &evil[4..]), (b"\x01", evil), (b"{", &evil[1..])] {
        sent.lock().unwrap().clear();
        let mut client = served.made_for("good.example", at, false);
        client.write_all(first).unwrap();
        while sent.lock().unwrap().is_empty() {
            thread::sleep(Duration::from_millis(5));
        }
        let _reset = client.write_all(rest).and_then(|()| client.shutdown(Shutdown::Write));
        assert_eq!(whole(client), b"", "{}", first.escape_ascii());
        assert_eq!(*sent.lock().unwrap(), String::from_utf8_lossy(first));
        assert!(served.reason().contains("unusual form"));
    }
    let good = "GET /x HTTP/1.1\r\nHost: good.example\r\nConnection: close\r\n\r\n";
    let answer = say(served.made_for("good.example", at, false), good.as_bytes());
    assert!(answer.ends_with("yes"), "the control: {answer}");
}

/// B13: each request of a connection is compared with its name, and none hides in another.
#[test]
fn b13_each_request_is_for_the_name_of_its_connection() {
    let (at, sent) = web_server();
    let served = serve(&["good.example:*", "other.example:*"]);
    let close = "connection: close\r\n\r\n";
    for request in [
        format!("GET /a HTTP/1.1\r\nHost: good.example\r\n{close}"),
        format!("GET /a HTTP/1.1\r\nhOsT:   GOOD.example:80  \r\n{close}"),
        format!("GET http://good.example/a HTTP/1.1\r\nHost: good.example\r\n{close}"),
        format!("GET /a HTTP/1.1\r\nHost: good.example\r\nConnection: host, te\r\nTE: x\r\n{close}"),
        format!("\r\nGET /a HTTP/1.1\r\nHost: good.example.\r\n{close}"),
        format!("POST /a HTTP/1.1\r\nHost: good.example\r\nContent-Length: 3\r\n{close}xyz"),
        format!("POST /a HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n{close}3\r\nxyz\r\n0\r\n\r\n"),
        "GET /a HTTP/1.0\r\nHost: good.example\r\n\r\n".to_owned(),
    ] {
        for only_web in [true, false] {
            sent.lock().unwrap().clear();
            let answer = say(served.made_for("good.example", at, only_web), request.as_bytes());
            assert!(answer.starts_with("HTTP/1.") && answer.ends_with("\r\n\r\nyes"), "{request}: {answer}");
            let sent = sent.lock().unwrap();
            assert!(sent.contains(" /a HTTP/1.") && !sent.contains("host, te") && !sent.contains("TE:"), "{sent}");
            assert_eq!(sent.contains("xyz"), request.contains("xyz"), "{sent}");
        }
    }
    served.nothing_told();
    for (request, why) in [
        ("GET /b HTTP/1.1\r\nHost: other.example\r\n\r\n", "connection of its own"),
        ("GET /b HTTP/1.1\r\nHost: evil.example\r\n\r\n", "evil.example is a host which was not granted"),
        ("GET http://evil.example/b HTTP/1.1\r\nHost: good.example\r\n\r\n", "evil.example"),
        ("GET http://good.example@evil.example/b HTTP/1.1\r\nHost: good.example\r\n\r\n", "read differently"),
        ("GET http://good.example/b HTTP/1.1\r\nHost: evil.example\r\n\r\n", "evil.example"),
        ("GET https://good.example/b HTTP/1.1\r\nHost: good.example\r\n\r\n", "unusual"),
        ("GET /b HTTP/1.1\r\nHost: good.example\r\nHost: evil.example\r\n\r\n", "more than one"),
        ("GET /b HTTP/1.1\r\nHost: good.example:81\r\n\r\n", "port 81"),
        ("GET /b HTTP/1.1\r\nHost: good.example:0x50\r\n\r\n", "read differently"),
        ("GET /b HTTP/1.1\r\nHost: good.example,evil.example\r\n\r\n", "read differently"),
        ("GET /b HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n", "10.0.0.1"),
        ("GET /b HTTP/1.1\r\n\r\n", "names no host"),
        ("GET /b HTTP/1.0\r\n\r\n", "names no host"),
        ("CONNECT good.example:80 HTTP/1.1\r\nHost: good.example\r\n\r\n", "proxy"),
        ("POST /b HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "encoded"),
        (
            "POST /b HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "encoded",
        ),
    ] {
        for only_web in [true, false] {
            sent.lock().unwrap().clear();
            let answer = say(served.made_for("good.example", at, only_web), request.as_bytes());
            assert!(answer.starts_with("HTTP/1.") && answer.contains(" 403 "), "{request}: {answer}");
            let reason = served.reason();
            assert!(answer.contains(&reason) && reason.contains(why), "{request}: {reason}");
            assert_eq!(*sent.lock().unwrap(), "", "{request}: it reached the server");
        }
    }
    served.nothing_told();
}

/// B13: what a server does not read of a request's body, it takes for the next request. So nothing follows a body.
#[test]
fn b13_nothing_follows_a_body() {
    let (at, heard) = server(|mut socket| {
        let mut all = Vec::new();
        let mut bytes = [0; 4096];
        // It reads no body, and goes on for as long as it was not told that this is the last.
        while let Ok(read @ 1..) = socket.read(&mut bytes) {
            all.extend_from_slice(&bytes[..read]);
            if all.ends_with(b"\r\n\r\n") || all.ends_with(b"hidden") {
                let _gone = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes");
                if String::from_utf8_lossy(&all).to_ascii_lowercase().contains("connection: close") {
                    break;
                }
            }
        }
        String::from_utf8_lossy(&all).into_owned()
    });
    let served = serve(&["good.example:*"]);
    let mut client = served.made_for("good.example", at, false);
    client.write_all(b"GET /a HTTP/1.1\r\nHost: good.example\r\nContent-Length: 60\r\n\r\n").unwrap();
    // The rest of the body would be a request of its own.
    let mut answer = vec![0; 15];
    client.read_exact(&mut answer).unwrap();
    let _closed =
        client.write_all(b"GET /b HTTP/1.1\r\nHost: evil.example\r\n\r\nGET /c HTTP/1.1\r\nHost: good.example\r\n\r\n");
    let rest = String::from_utf8_lossy(&whole(client)).into_owned();
    assert!(!rest.contains("HTTP/1.1"), "{rest}");
    let sent = heard.recv_timeout(LONG).unwrap();
    assert!(sent.to_ascii_lowercase().contains("connection: close") && !sent.contains("/c"), "{sent}");
    // The control: without a body a connection is kept.
    let mut client = served.made_for("good.example", at, false);
    for path in ["/a", "/b"] {
        client.write_all(format!("GET {path} HTTP/1.1\r\nHost: good.example\r\n\r\n").as_bytes()).unwrap();
        let mut answer = [0; 41];
        client.read_exact(&mut answer).unwrap();
        assert!(answer.ends_with(b"yes"), "{}", answer.escape_ascii());
    }
}

/// B13: what two readers could take for different requests is refused, or written anew as one.
#[test]
fn b13_no_request_hides_in_another() {
    let (at, sent) = web_server();
    let served = serve(&["good.example:*"]);
    let hidden = "GET /hidden HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    let good = "HTTP/1.1\r\nHost: good.example\r\n";
    // Malformed: nothing of it is passed on.
    for request in [
        format!("POST /a {good}Transfer-Encoding: xchunked\r\n\r\n{hidden}"),
        format!("POST /a {good}Content-Length: 0\r\nContent-Length: 5\r\n\r\n{hidden}"),
        format!("POST /a {good}Content-Length: +5\r\n\r\n{hidden}"),
        format!("POST /a {good}Transfer-Encoding : chunked\r\n\r\n{hidden}"),
        format!("GET /a {good}Host\t: evil.example\r\n\r\n"),
        format!("GET /a {good} folded: evil.example\r\n\r\n"),
        format!("GET /a {good}X: a\rGET /hidden HTTP/1.1\rHost: evil.example\r\n\r\n"),
        "GET /a HTTP/1.1 HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(),
        "GET /a HTTP/1.1 \r\nHost: evil.example\r\n\r\n".to_owned(),
        "get\t/a http/1.1\r\nHost: evil.example\r\n\r\n".to_owned(),
        "GET /a HTTP/1.2\r\nHost: evil.example\r\n\r\n".to_owned(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
    ] {
        for only_web in [true, false] {
            sent.lock().unwrap().clear();
            let answer = say(served.made_for("good.example", at, only_web), request.as_bytes());
            assert!(answer.starts_with("HTTP/1.1 4") || answer.starts_with("HTTP/1.1 505"), "{request}: {answer}");
            assert_eq!(*sent.lock().unwrap(), "", "{request}: it reached the server");
        }
    }
    let reason = served.reason();
    assert!(reason.contains("HTTP/2"), "{reason}");
    let _second = served.reason();
    served.nothing_told();
    // Both lengths: one counts, the other does not leave, and nothing follows.
    let both = format!("POST /a {good}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}");
    let answer = say(served.made_for("good.example", at, false), both.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    {
        let sent = sent.lock().unwrap();
        assert!(!sent.to_ascii_lowercase().contains("content-length") && !sent.contains("hidden"), "{sent}");
    }
    // A second request on the same connection.
    for (first, kept) in [
        (format!("GET /a {good}\r\n"), true),
        (format!("POST /a {good}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), false),
    ] {
        sent.lock().unwrap().clear();
        let answer = say(served.made_for("good.example", at, true), format!("{first}{hidden}").as_bytes());
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("HTTP/1.1 403 ") == kept, "{answer}");
        assert!(!sent.lock().unwrap().contains("hidden"));
        if kept {
            let reason = served.reason();
            assert!(reason.contains("evil.example"), "{reason}");
        }
    }
    // The control: a second one for the same host.
    let two = format!("GET /a {good}\r\nGET /b {good}connection: close\r\n\r\n");
    let answer = say(served.made_for("good.example", at, true), two.as_bytes());
    assert_eq!(answer.matches("HTTP/1.1 200 ").count(), 2, "{answer}");
    served.nothing_told();
}

/// A connection may become a websocket, and nothing that names hosts once more.
#[test]
fn connections_are_upgraded_to_what_names_no_host() {
    let (at, sent) = server(|mut socket| {
        let head = head(&mut socket);
        if head.to_ascii_lowercase().contains("upgrade: websocket") {
            socket
                .write_all(
                    // The example of RFC 6455, 1.3.
                    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                      Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nhello",
                )
                .unwrap();
            let mut echo = socket.try_clone().unwrap();
            std::io::copy(&mut socket, &mut echo).unwrap();
            echo.shutdown(Shutdown::Write).unwrap();
        } else if head.starts_with("GET /unasked") {
            socket
                .write_all(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n")
                .unwrap();
        } else {
            socket.write_all(b"HTTP/1.1 200 OK\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nyes").unwrap();
        }
        head
    });
    let served = serve(&["good.example:*"]);
    let request = |path: &str, upgrade: &str| {
        format!(
            "GET {path} HTTP/1.1\r\nHost: good.example\r\nUpgrade: {upgrade}\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
    };
    let mut client = served.made_for("good.example", at, true);
    client.write_all(request("/", "websocket").as_bytes()).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let answer = String::from_utf8(whole(client)).unwrap();
    assert!(answer.starts_with("HTTP/1.1 101 ") && answer.contains("helloGET /"), "{answer}");
    sent.recv_timeout(LONG).unwrap();
    for upgrade in ["h2c", "TLS/1.2", "websocket, h2c", "HTTP/2.0"] {
        let close = request("/", upgrade).replace("Connection: Upgrade", "Connection: close");
        let answer = say(served.made_for("good.example", at, true), close.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains("h2c"), "{answer}");
        let sent = sent.recv_timeout(LONG).unwrap().to_ascii_lowercase();
        assert!(!sent.contains("upgrade:"), "{sent}");
    }
    let answer = say(served.made_for("good.example", at, true), request("/unasked", "h2c").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(served.reason().starts_with("it switched protocols without being asked"));
    served.nothing_told();
}

/// B13: a server that says "101" because it was asked to goes on with HTTP: the next request would be compared with nothing.
#[test]
fn b13_an_upgrade_that_no_server_has_agreed_to_is_none() {
    let (at, sent) = server(|mut socket| {
        let head = head(&mut socket);
        let answer =
            head.lines().next().unwrap().split(' ').nth(1).unwrap().trim_start_matches('/').replace('|', "\r\n");
        let answer = answer.replace('_', " ");
        socket.write_all(format!("HTTP/1.1 101 Switching Protocols\r\n{answer}\r\n\r\n").as_bytes()).unwrap();
        String::from_utf8(whole(socket)).unwrap()
    });
    let served = serve(&["good.example:*"]);
    let key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let websocket = "Upgrade:_websocket|Connection:_Upgrade|Sec-WebSocket-Accept:_s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
    let docker = "Upgrade:_tcp|Connection:_Upgrade";
    let evil = "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    let tries = [
        ("websocket", key, "Connection:_Upgrade"),
        ("websocket", key, "Upgrade:_websocket|Connection:_Upgrade"),
        ("websocket", key, &websocket.replace("s3pP", "s3pQ")),
        ("websocket", key, &websocket.replace("Connection:_Upgrade", "Connection:_close")),
        ("websocket", key, docker),
        ("websocket", "", "Upgrade:_websocket|Connection:_Upgrade"),
        ("websocket", &key.replace("13", "12"), websocket),
        ("tcp", "", "Upgrade:_websocket|Connection:_Upgrade"),
        ("tcp", "", "Connection:_Upgrade"),
    ];
    for (upgrade, key, answer) in tries {
        let mut client = served.made_for("good.example", at, false);
        let head =
            format!("GET /{answer} HTTP/1.1\r\nHost: good.example\r\nUpgrade: {upgrade}\r\nConnection: Upgrade\r\n");
        client.write_all(format!("{head}{key}\r\n{evil}").as_bytes()).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let got = String::from_utf8(whole(client)).unwrap();
        assert!(got.starts_with("HTTP/1.1 502 ") && got.contains("switched protocols"), "{upgrade} {answer}: {got}");
        assert_eq!(sent.recv_timeout(LONG).unwrap(), "", "{upgrade} {answer}: it came there");
        served.reason();
    }
    // Nothing proves that a server has understood this one. What follows is looked at.
    for (after, came) in [("bytes\0", "bytes\0"), (evil, "GET / HTTP/1.1\r")] {
        let mut client = served.made_for("good.example", at, false);
        let head =
            format!("GET /{docker} HTTP/1.1\r\nHost: good.example\r\nUpgrade: tcp\r\nConnection: Upgrade\r\n\r\n");
        client.write_all(format!("{head}{after}").as_bytes()).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let _reset = client.read_to_end(&mut Vec::new());
        let there = sent.recv_timeout(LONG).unwrap();
        assert!(there == came || (after == evil && !there.contains("evil")), "{there:?}");
    }
    let reason = served.reason();
    assert!(reason.starts_with("it is HTTP"), "{reason}");
    served.nothing_told();
}

/// A protocol that names no host passes where a port was granted, and only there.
#[test]
fn other_protocols_pass_where_a_port_was_granted() {
    let (at, heard) = server(|mut socket| {
        let mut bytes = [0; 8000];
        let read = socket.read(&mut bytes).unwrap();
        socket.write_all(b"pong").unwrap();
        String::from_utf8_lossy(&bytes[..read]).into_owned()
    });
    let served = serve(&["good.example:*"]);
    let long = "\u{1}".repeat(1500);
    for word in ["PING\r\n", "\0\0\0\u{8}", "{\"a\"", "*1\r\n$4", &long] {
        let mut client = served.made_for("good.example", at, false);
        client.write_all(word.as_bytes()).unwrap();
        let mut back = [0; 4];
        client.read_exact(&mut back).unwrap();
        assert_eq!((&back[..], heard.recv_timeout(LONG).unwrap().as_str()), (&b"pong"[..], word));
        let client = served.made_for("good.example", at, true);
        assert_eq!(say(client, word.as_bytes()), "", "{word}");
        assert_eq!(heard.recv_timeout(LONG).unwrap(), "", "{word}: it reached the server");
        let reason = served.reason();
        assert!(reason.contains("neither HTTP nor TLS"), "{reason}");
    }
    // A server that speaks first.
    let (at, heard) = server(|mut socket| {
        socket.write_all(b"220 hello\r\n").unwrap();
        whole(socket)
    });
    let mut client = served.made_for("good.example", at, false);
    let mut greeting = [0; 11];
    client.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"220 hello\r\n");
    let said = [&b"\x01".repeat(300)[..], b"EHLO me\r\nHost: evil.example\r\n"].concat();
    client.write_all(&said).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert!(heard.recv_timeout(LONG).unwrap() == said);
    served.nothing_told();
}

/// B13: a server that speaks first, as some of HTTP/2 do, changes nothing: HTTP and TLS do not begin like that.
#[test]
fn b13_what_follows_a_server_that_speaks_first_is_neither() {
    let (at, heard) = server(|mut socket| {
        socket.write_all(b"settings").unwrap();
        whole(socket)
    });
    let served = serve(&["good.example:*"]);
    let evil = made_hello(&server_name(b"evil.example"), 1000);
    for (said, why) in [
        (&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], "HTTP/2 without TLS"),
        (b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "after the server has spoken"),
        (&evil, "it is TLS"),
    ] {
        for pieces in [1000, 1] {
            let mut client = served.made_for("good.example", at, false);
            client.read_exact(&mut [0; 8]).unwrap();
            // It may be reset before all is said.
            let _reset: std::io::Result<()> = said.chunks(pieces).try_for_each(|piece| client.write_all(piece));
            let got = heard.recv_timeout(LONG).unwrap();
            assert!(got.len() < 20 && said.starts_with(&got), "{why}: {}", got.escape_ascii());
            let reason = served.reason();
            assert!(reason.contains(why), "{reason}");
        }
    }
    served.nothing_told();
}

/// B13: what follows the first lines of SSH is encrypted, and nobody's request. The client's line has several words, so that behind
/// another answer it is looked at to the end.
#[test]
fn b13_ssh_is_ssh_when_both_sides_have_said_so() {
    let served = serve(&["good.example:*"]);
    for (greeting, passes) in [("SSH-2.0-server\r\n", true), ("220 hello\r\n", false)] {
        let (at, heard) = server(move |mut socket| {
            let mut byte = [0];
            while byte != *b"\n" {
                socket.read_exact(&mut byte).unwrap();
            }
            socket.write_all(greeting.as_bytes()).unwrap();
            whole(socket)
        });
        let mut client = served.made_for("good.example", at, false);
        client.write_all(b"SSH-2.0-client of somebody\r\n").unwrap();
        let mut back = vec![0; greeting.len()];
        client.read_exact(&mut back).unwrap();
        let said = b"\x01\n://evil.example/\n";
        client.write_all(said).unwrap();
        let _reset = client.shutdown(Shutdown::Write);
        let got = heard.recv_timeout(LONG).unwrap();
        assert_eq!(got == said, passes, "{greeting}: {}", got.escape_ascii());
        if !passes {
            let reason = served.reason();
            assert!(reason.starts_with("it names evil.example"), "{reason}");
        }
    }
    served.nothing_told();
}

/// Peers that are slow, endless or mad cost their own connection. The control is another, at the same time.
#[test]
fn a_hostile_peer_harms_no_other() {
    let (at, _) = web_server();
    let served = serve(&["good.example:*"]);
    let mut held = Vec::new();
    for part in [&b"GET / HT"[..], b"GET / HTTP/1.1\r\nHost: good.example\r\nX: ", &[22, 3, 1], b"\r\n\r\n", b""] {
        let mut slow = served.made_for("good.example", at, true);
        slow.write_all(part).unwrap();
        held.push(slow);
    }
    let endless: [(Vec<u8>, Vec<u8>); 4] = [
        (b"GET / HTTP/1.1\r\nHost: good.example\r\nX: ".to_vec(), vec![b'x'; 4096]),
        (b"GET / HTTP/1.1\r\nHost: good.example\r\n".to_vec(), b"X: y\r\n".repeat(100)),
        (b"GET /".to_vec(), vec![b'x'; 4096]),
        (vec![], b"\r\n".repeat(2000)),
    ];
    for (start, more) in endless {
        let mut client = served.made_for("good.example", at, true);
        client.write_all(&start).unwrap();
        // Until it is ended, as it must be.
        let mut sent = 0;
        while sent < 64 << 20 && client.write_all(&more).is_ok() {
            sent += more.len();
        }
        assert!(sent < 64 << 20, "it goes on: {}", start.escape_ascii());
    }
    let request = b"GET / HTTP/1.1\r\nHost: good.example\r\nConnection: close\r\n\r\n";
    let answer = say(served.made_for("good.example", at, true), request);
    assert!(answer.ends_with("yes"), "{answer}");
    drop(held);
}

/// Many at once, each served, none kept from the next; and what is too many fails for those alone.
#[test]
fn thousands_of_connections_are_served_at_once() {
    const MANY: usize = 2000;
    let host = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    if host.maximum.is_some_and(|most| most < 5 * MANY as u64) {
        eprintln!("skipped: this host lets no process have 10,000 descriptors");
        return;
    }
    crate::apply::limit::open_files_as_many();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    // One thread serves them all, so that they are there at once.
    let echo = thread::spawn(move || {
        let mut sockets: Vec<TcpStream> = listener.incoming().take(MANY).map(Result::unwrap).collect();
        for socket in &mut sockets {
            let mut word = [0; 4];
            socket.read_exact(&mut word).unwrap();
            socket.write_all(&word).unwrap();
        }
        sockets
    });
    let own = format!("127.0.0.1:{}", at.port());
    let served = serve_with(&[&own], MANY / 3 * 4 + 4, Carries::UNBOUNDED);
    let mut clients: Vec<TcpStream> = (0..MANY).map(|_| served.reach(at.ip(), at.port())).collect();
    // They keep their seats.
    let mut more = Vec::new();
    let refused = loop {
        match served.ask(ConnectTarget::Names, true) {
            (asking, Reached::Ready { .. }) => more.push(asking),
            (_, refused) => break refused,
        }
    };
    assert_eq!(refused, Reached::Failed { host: "the names".into(), errno: libc::EAGAIN });
    assert!(more.len() < 10, "{} more than a call's share", more.len());
    let another = served.ask_for(8, None, ConnectTarget::Address(at), true).1;
    assert!(matches!(another, Reached::Ready { .. }), "another call has room: {another:?}");
    for (number, client) in clients.iter_mut().enumerate() {
        client.write_all(&u32::try_from(number).unwrap().to_be_bytes()).unwrap();
    }
    for (number, client) in clients.iter_mut().enumerate() {
        let mut word = [0; 4];
        client.read_exact(&mut word).unwrap();
        assert_eq!(u32::from_be_bytes(word) as usize, number);
    }
    drop((clients, echo.join().unwrap()));
}

/// Programs that insist on a proxy find granted hosts, and a sentence for others (B10, B13).
#[test]
fn b10_a_proxy_leads_to_granted_hosts_alone() {
    let (at, _) = web_server();
    let port = at.port();
    let (own, name) = (format!("127.0.0.1:{port}"), format!("good.example:{port}"));
    let served = serve(&[&name, &own, "only.example", "127.0.0.9"]);
    served.knows("good.example", &[Ipv4Addr::LOCALHOST]);
    served.knows("only.example", &[Ipv4Addr::new(127, 0, 0, 9)]);
    let proxy = || {
        let (socket, reached) = served.ask(ConnectTarget::Proxy, true);
        assert!(matches!(reached, Reached::Ready { .. }), "{reached:?}");
        served.connect(socket)
    };
    let request = format!("GET /a HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n");
    let socks = |host: &[u8], port: u16| [&[5, 1, 0, 5, 1, 0][..], host, &port.to_be_bytes()].concat();
    let by_name = |name: &[u8]| [&[3, u8::try_from(name.len()).unwrap()][..], name].concat();
    // SOCKS: what is granted.
    for host in [by_name(b"good.example"), by_name(b"GOOD.example."), by_name(b"127.0.0.1"), vec![1, 127, 0, 0, 1]] {
        let mut client = proxy();
        client.write_all(&socks(&host, port)).unwrap();
        let mut answer = [0; 12];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0], "{}", host.escape_ascii());
        let answer = say(client, request.as_bytes());
        assert!(answer.ends_with("yes"), "{answer}");
    }
    served.nothing_told();
    // What is not, and what could be read as two hosts.
    for (host, told) in [
        (by_name(b"evil.example"), true),
        (by_name(b"127.0.0.2"), true),
        (vec![4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2], true),
        (by_name(b"good.example\0.evil.example"), false),
        (by_name(b"good.example%00"), false),
        (by_name(b"0x7f.1"), false),
        (by_name(b"\xff"), false),
        (by_name(b""), false),
    ] {
        let answer = say(proxy(), &socks(&host, port));
        assert_eq!(answer.as_bytes()[..4], [5, 0, 5, 2], "{}", host.escape_ascii());
        if told {
            assert!(matches!(served.told(), FromEgress::Refused { call: 7, .. }), "{}", host.escape_ascii());
        }
        served.nothing_told();
    }
    assert_eq!(say(proxy(), &[5, 1, 2]).as_bytes(), "\u{5}\u{fffd}".as_bytes(), "no way without a password");
    assert_eq!(say(proxy(), &[5, 1, 0, 5, 2, 0, 1, 0, 0, 0, 0, 0, 0]).as_bytes()[..4], [5, 0, 5, 7], "no listening");
    // CONNECT, and what is said then.
    let connect = |to: &str| format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\nProxy-Authorization: x\r\n\r\n");
    let answer = say(proxy(), format!("{}{request}", connect(&name)).as_bytes());
    assert!(answer.starts_with("HTTP/1.1 200 Connection") && answer.ends_with("yes"), "{answer}");
    served.nothing_told();
    let other = connect(&name) + "GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    let answer = say(proxy(), other.as_bytes());
    assert!(answer.contains("HTTP/1.1 403 "), "{answer}");
    assert!(matches!(served.told(), FromEgress::Ended { call: 7, .. }));
    for (to, code, why) in [
        ("evil.example:443", "403", "evil.example:443 was not granted"),
        ("good.example:22", "403", "good.example:22 was not granted"),
        ("good.example", "400", "a host and a port"),
        ("good.example:0x50", "400", "a port that is none"),
        ("good_example%00:80", "400", "read differently"),
    ] {
        let answer = say(proxy(), connect(to).as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")) && answer.contains(why), "{to}: {answer}");
        if code == "403" {
            assert!(matches!(served.told(), FromEgress::Refused { call: 7, .. }), "{to}");
        }
    }
    // A request to be passed on, one on each connection.
    let absolute = format!("GET http://{name}/a HTTP/1.1\r\nHost: {name}\r\nProxy-Connection: keep-alive\r\n\r\n");
    let answer = say(proxy(), absolute.repeat(2).as_bytes());
    assert_eq!(answer.matches("HTTP/1.1 200 ").count(), 1, "{answer}");
    assert!(answer.to_ascii_lowercase().contains("connection: close") && answer.ends_with("yes"), "{answer}");
    let answer = say(proxy(), b"GET http://evil.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("evil.example:80 was not granted"), "{answer}");
    assert!(matches!(served.told(), FromEgress::Refused { call: 7, .. }));
    let other = format!("GET http://{name}/ HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    let answer = say(proxy(), other.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("evil.example"), "{answer}");
    assert!(matches!(served.told(), FromEgress::Ended { call: 7, .. }));
    // Where TLS alone was granted.
    for host in ["only.example", "127.0.0.9"] {
        let answer = say(proxy(), format!("GET http://{host}:443/ HTTP/1.1\r\nHost: {host}:443\r\n\r\n").as_bytes());
        assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("TLS alone was granted"), "{answer}");
        assert!(matches!(served.told(), FromEgress::Refused { call: 7, .. }));
    }
    for garbage in [&b"\0\0\0\0"[..], b"GET / HTTP/1.1\r\n\r\n", &[0xff; 100], b"\x04\x01\0\x50\x7f\0\0\x01\0"] {
        let answer = say(proxy(), garbage);
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("proxy"), "{answer}");
    }
    served.nothing_told();
}

/// A call's connections end when they have carried too much, and it makes no other; other calls go on, and the session's own limit
/// is that of all of them.
#[test]
fn s0_36_what_connections_carry_is_counted_and_bounded() {
    const PIECE: usize = 100 * 1024;
    let (at, _) = server(|mut socket| {
        let mut word = [0; 4];
        socket.read_exact(&mut word).unwrap();
        // A client that was cut off takes no more.
        let _reset = socket.write_all(&vec![b'x'; PIECE]);
    });
    let granted = at.to_string();
    let carries = Carries { call: 250 * 1024, session: 450 * 1024, rate: None };
    let served = serve_with(&[&granted], 4096, carries);
    let fetch = |call: u64| {
        let (socket, reached) = served.ask_for(call, None, ConnectTarget::Address(at), true);
        match reached {
            Reached::Ready { .. } => {}
            Reached::Taken | Reached::Refused { .. } | Reached::Failed { .. } => return Err(reached),
        }
        let mut client = served.connect(socket);
        client.write_all(b"more").unwrap();
        let mut all = Vec::new();
        client.read_to_end(&mut all).map_err(|_reset| reached).map(|_| all.len())
    };
    assert_eq!(served.carried(8), Carried::default());
    for done in 1..=2 {
        assert_eq!(fetch(8), Ok(PIECE), "the control");
        let all = u64::try_from(PIECE).unwrap() * done;
        assert_eq!(served.carried(8), Carried { connections: done, sent: 4 * done, received: all });
    }
    served.nothing_told();
    assert!(matches!(fetch(8), Err(Reached::Ready { .. })), "it is cut off");
    let FromEgress::Ended { call: 8, host, reason } = served.told() else { panic!("another reason") };
    assert!(host == granted && reason.contains("more than the limit of 250KiB; "), "{host}: {reason}");
    assert_eq!(fetch(8), Err(Reached::Refused { host: granted.clone() }));
    let FromEgress::Refused { call: 8, reason: Some(again), .. } = served.told() else { panic!("another reason") };
    assert!(again.contains("the limit of 250KiB; if it needs more"), "{again}");
    assert_eq!(fetch(9), Ok(PIECE), "another call goes on");
    served.nothing_told();
    // Its worker has another call.
    served.broker.send(&ToEgress::Gone { call: 8 }, &[]).unwrap();
    assert_eq!(served.carried(8), Carried::default());
    assert!(matches!(fetch(8), Err(Reached::Ready { .. })), "it is cut off");
    let FromEgress::Ended { call: 8, reason, .. } = served.told() else { panic!("another reason") };
    assert!(reason.starts_with("the session's connections") && reason.contains("limit of 450KiB; "), "{reason}");
    assert!(matches!(fetch(10), Err(Reached::Refused { .. })));
}

/// Connections that were open before a limit was reached carry no piece more each.
#[test]
fn s0_36_many_connections_carry_no_more_than_one() {
    const PIECE: usize = 64 * 1024;
    let (at, heard) = server(|socket| whole(socket).len());
    let carried = |most: u64| -> usize {
        let served = serve_with(&[&at.to_string()], 4096, Carries { call: most, ..Carries::UNBOUNDED });
        let reach = || served.connect(served.ask_for(9, None, ConnectTarget::Address(at), true).0);
        let mut clients: Vec<TcpStream> = (0..32).map(|_| reach()).collect();
        for client in &mut clients {
            // One that was cut off takes no more.
            let _reset = client.write_all(&[b'x'; PIECE]);
        }
        drop(clients);
        (0..32).map(|_| heard.recv_timeout(LONG).unwrap()).sum()
    };
    assert_eq!(carried(64 << 20), 32 * PIECE, "the control");
    let all = carried(u64::try_from(PIECE).unwrap());
    assert!(all <= PIECE + 256 * 1024, "{all}");
}

/// A session with a rate carries no more than that lets it, whichever way.
#[test]
fn s0_36_a_rate_holds_for_all_connections() {
    let (at, _) = server(|mut socket| {
        let mut word = [0; 4];
        socket.read_exact(&mut word).unwrap();
        let _reset = socket.write_all(&vec![b'x'; 4 * 1024 * 1024]);
    });
    let most = |rate: Option<u64>| {
        let served = serve_with(&[&at.to_string()], 4096, Carries { rate, ..Carries::UNBOUNDED });
        let mut client = served.reach(at.ip(), at.port());
        client.write_all(b"more").unwrap();
        let late = rate.is_some_and(|rate| rate == 1);
        client.set_read_timeout(Some(if late { Duration::from_millis(500) } else { LONG })).unwrap();
        let mut all = Vec::new();
        // What does not come in a while will come tomorrow.
        let _late = client.read_to_end(&mut all);
        all.len()
    };
    assert_eq!(most(None), 4 * 1024 * 1024, "the control");
    // Each way passes on what it reads first, and then waits.
    assert!(most(Some(1)) <= 512 * 1024);
    assert_eq!(most(Some(1 << 40)), 4 * 1024 * 1024);
}
