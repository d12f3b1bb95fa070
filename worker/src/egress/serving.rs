//! Service of egress: the broker's wishes, the connections that it has announced, and questions for names.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use callgate_policy::pattern::Host;
use callgate_policy::plan::Network;
use hickory_proto::op::ResponseCode;
use rustix::net::{RecvFlags, SocketAddrAny, SocketFlags};
use rustix::process::{Resource, getrlimit};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{Notify, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::credentials::SealedCredentials;
use super::http::MadeFor;
use super::lock::lock;
use super::meter::{self, ConnectionAccount, ConnectionMeter, MeteredServer, SessionMeter};
use super::names::{self, NameAnswer, NameBook, NameQuestion, NameRecord, QUESTION_MAX};
use super::opening::Spoken;
use super::stream;
use super::upstream::{self, Resolver, Unreachable, Unresolved};
use crate::protocol::{
    Channel, ConnectTarget, ConnectionMade, FromEgress, Reach, Reached, Received, ToEgress, shortened,
};

/// The most connections that wait for egress to take them.
pub(crate) const BACKLOG: i32 = 4096;
/// Most connections at once, those included that were announced and have not come.
const CONNECTIONS: usize = 4096;
/// Descriptors that are not connections': of the event loop, the broker, and questions that are passed on.
const OTHER_DESCRIPTORS: u64 = 600;
/// How long an announced connection may take to come.
const EXPECTED: Duration = Duration::from_secs(10);
/// How long a connection for questions is kept without one.
const QUIET: Duration = Duration::from_secs(30);
/// How long a listener pauses that cannot take a connection, for want of descriptors or memory; and a report for which the
/// broker has no room.
const PAUSE: Duration = Duration::from_millis(20);
/// Most questions that the kernel keeps for a socket: each takes more of its buffer (`rmem_default`) than this many could.
const SET_ASIDE: usize = 4096;
/// Reason why a call that speaks in the clear to egress is not let out like that.
const NOT_SECURED: &str = "its credential is for another name or port, and it does not go there in the clear";
/// Reason why a call is refused what its session may reach.
const NARROWED: &str = "it is not granted to this call, which may reach less than its session";
/// Most reports that wait for the broker to hear them.
const REPORTS: usize = 4096;

/// Sockets that egress listens on.
pub(super) struct Sockets {
    pub(super) listener: std::net::TcpListener,
    pub(super) names: Option<std::net::UdpSocket>,
}

/// All that it knows.
pub(super) struct Egress {
    pub(super) network: Network,
    resolver: Resolver,
    credentials: SealedCredentials,
    book: Mutex<NameBook>,
    /// Connections from the ports on loopback from which connections are to come, the last one last.
    expected: Mutex<HashMap<u16, Vec<TcpStream>>>,
    /// Something has come from one of them.
    came: Notify,
    listener: OnceLock<TcpListener>,
    seats: Arc<Seats>,
    questions: Arc<Semaphore>,
    broker: AsyncFd<Channel>,
    /// Reports that the broker's socket had no room for.
    reports: Mutex<VecDeque<FromEgress>>,
    reported: Notify,
    calls: Mutex<ServedCalls>,
    meter: Arc<SessionMeter>,
    names: OnceLock<UdpSocket>,
    /// Questions that were asked while a narrowed call ran, which is over.
    late: Mutex<Vec<(NameQuestion, SocketAddr)>>,
    is_late: Notify,
}

/// Facts known of calls, while they last.
#[derive(Default)]
struct ServedCalls {
    tasks: HashMap<u64, Vec<AbortHandle>>,
    /// Those that may reach less than their session.
    narrowed: HashSet<u64>,
    meters: HashMap<u64, Arc<ConnectionMeter>>,
}

/// Room for connections. No call takes so much of it that none is left for others.
struct Seats {
    room: usize,
    /// By the number of the call.
    taken: Mutex<HashMap<u64, usize>>,
}

/// A connection's own, until it is dropped.
struct ConnectionSeat {
    seats: Arc<Seats>,
    call: u64,
}

impl Seats {
    fn take(seats: &Arc<Self>, call: u64) -> Option<ConnectionSeat> {
        let mut taken = lock(&seats.taken);
        let all: usize = taken.values().sum();
        let own = taken.get(&call).copied().unwrap_or(0);
        if all >= seats.room || own >= seats.room / 4 * 3 {
            return None;
        }
        taken.insert(call, own + 1);
        drop(taken);
        Some(ConnectionSeat { seats: Arc::clone(seats), call })
    }
}

impl Drop for ConnectionSeat {
    fn drop(&mut self) {
        let mut taken = lock(&self.seats.taken);
        if let Some(own) = taken.get_mut(&self.call) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.call);
            }
        }
    }
}

/// Who asks.
#[derive(Debug, Clone)]
pub(super) struct Asker {
    /// The call: as in [`Reach`].
    pub(super) call: u64,
    /// Network that it may connect to, if that is less than what its session may.
    pub(super) within: Option<Network>,
}

/// Where a connection leads.
pub(super) struct Route {
    /// As people write it: `name:port`.
    pub(super) host: String,
    /// The name that what is said on it must be for. `None` for an address that was granted as such.
    pub(super) made_for: Option<MadeFor>,
    /// Only HTTP and TLS were granted.
    pub(super) only_web: bool,
    pub(super) addresses: Vec<SocketAddr>,
}

impl Route {
    /// True if it leads to this machine, so that it is known at once whether anybody is there: whoever does not wait
    /// for that can be told all the same.
    fn is_near(&self) -> bool {
        self.addresses.iter().all(|place| place.ip().is_loopback())
    }
}

impl Route {
    /// Reason why what is spoken is not what was granted, if only HTTP at 80 and TLS at 443 were.
    pub(super) fn other_than(&self, spoken: Spoken) -> Option<&'static str> {
        let port = self.addresses.first().filter(|_| self.only_web)?.port();
        let is_secured = self.made_for.as_ref().is_some_and(|made_for| made_for.outfit.is_secured());
        match (port, spoken) {
            (80, Spoken::Tls) => Some("it is TLS, and HTTP alone was granted at port 80"),
            // What is said to egress, which makes the TLS.
            (443, Spoken::Http) if is_secured => None,
            (443, Spoken::Http | Spoken::Http2) => Some("it is HTTP, and TLS alone was granted at port 443"),
            _ => None,
        }
    }
}

/// Reason why there is no route.
pub(super) enum NoRoute {
    Refused { host: String, reason: Option<String> },
    Failed { host: String, errno: i32 },
}

/// How many connections there may be at once, each with two descriptors and for a while a third.
pub(super) fn room() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let room = descriptors.saturating_sub(OTHER_DESCRIPTORS) / 2;
    usize::try_from(room).unwrap_or(CONNECTIONS).clamp(64, CONNECTIONS)
}

impl Egress {
    pub(super) fn new(
        network: Network,
        (resolver, credentials): (Resolver, SealedCredentials),
        broker: Channel,
        room: usize,
    ) -> io::Result<Arc<Self>> {
        rustix::io::ioctl_fionbio(&broker, true)?;
        let meter = Arc::new(SessionMeter::new(&network.carries));
        Ok(Arc::new(Self {
            network,
            meter,
            resolver,
            credentials,
            book: Mutex::default(),
            expected: Mutex::default(),
            came: Notify::new(),
            listener: OnceLock::new(),
            seats: Arc::new(Seats { room, taken: Mutex::default() }),
            questions: Arc::new(Semaphore::new(upstream::QUESTIONS)),
            // For reading alone: else each report that the broker takes would wake this side.
            #[allow(
                deprecated,
                reason = "its replacement is unsafe; a Channel owns its descriptor and never gives another"
            )]
            broker: AsyncFd::with_interest(broker, Interest::READABLE)?,
            reports: Mutex::default(),
            reported: Notify::new(),
            calls: Mutex::default(),
            names: OnceLock::new(),
            late: Mutex::default(),
            is_late: Notify::new(),
        }))
    }

    /// Serves until the broker is gone.
    pub(super) async fn serve(self: Arc<Self>, sockets: Sockets) -> io::Result<()> {
        sockets.listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(sockets.listener)?;
        self.listener.get_or_init(|| listener);
        tokio::spawn(Arc::clone(&self).accept());
        if let Some(names) = sockets.names {
            names.set_nonblocking(true)?;
            let names = UdpSocket::from_std(names)?;
            self.names.get_or_init(|| names);
            tokio::spawn(Arc::clone(&self).answer_by_udp());
        }
        tokio::spawn(Arc::clone(&self).report());
        loop {
            match self.broker.async_io(Interest::READABLE, Channel::receive::<ToEgress>).await? {
                Received::Message(wish, fds) => self.hear(wish, fds),
                Received::Data(_) => {}
                Received::Closed => return Ok(()),
            }
        }
    }

    fn hear(self: &Arc<Self>, wish: ToEgress, fds: Vec<OwnedFd>) {
        match wish {
            ToEgress::Reach(reach) => {
                let Some(answer) = fds.into_iter().next() else { return };
                let call = reach.call;
                let most = reach.within.as_ref().map_or(u64::MAX, |within| within.carries.call);
                let most = most.min(self.network.carries.call);
                self.begins(call, most);
                let task = tokio::spawn(Arc::clone(self).reach(reach, answer.into()));
                let mut calls = lock(&self.calls);
                let tasks = calls.tasks.entry(call).or_default();
                tasks.retain(|task| !task.is_finished());
                tasks.push(task.abort_handle());
            }
            ToEgress::Narrowed { call } => drop(lock(&self.calls).narrowed.insert(call)),
            ToEgress::Count { call } => {
                let Some(answer) = fds.into_iter().next() else { return };
                let carried = lock(&self.calls).meters.get(&call).map(|meter| meter.carried()).unwrap_or_default();
                // A broker that is gone needs no answer.
                let _gone: io::Result<()> = Channel::from(answer).send(&carried, &[]);
            }
            // What is dropped is closed.
            ToEgress::Gone { call } => {
                let mut calls = lock(&self.calls);
                calls.meters.remove(&call);
                if calls.narrowed.remove(&call) {
                    self.set_aside();
                }
                calls.tasks.remove(&call).into_iter().flatten().for_each(|task| task.abort());
            }
        }
    }

    /// True if a question that is read now may be one of a call that may reach less than its session. All that the
    /// broker has said is heard first.
    fn is_narrowed(self: &Arc<Self>) -> bool {
        let any = || !lock(&self.calls).narrowed.is_empty();
        let mut narrowed = any();
        while let Ok(Received::Message(wish, fds)) = self.broker.get_ref().receive::<ToEgress>() {
            self.hear(wish, fds);
            narrowed |= any();
        }
        narrowed
    }

    /// Takes the questions that have come and were not read: the call that is over may have asked them.
    fn set_aside(&self) {
        let Some(socket) = self.names.get() else { return };
        let mut bytes = vec![0; QUESTION_MAX];
        let mut late = lock(&self.late);
        // More than a socket's buffer holds would be somebody else's, who goes on. Asked of the kernel itself: the event loop may not
        // know yet that something has come.
        for _ in 0..SET_ASIDE {
            let Ok((length, _, Some(from))) = rustix::net::recvfrom(socket, &mut *bytes, RecvFlags::DONTWAIT) else {
                break;
            };
            let Ok(from) = SocketAddr::try_from(from) else { continue };
            late.push((NameQuestion::read(bytes.get(..length).unwrap_or_default(), &self.network), from));
        }
        drop(late);
        self.is_late.notify_one();
    }

    async fn reach(self: Arc<Self>, reach: Reach, broker: Channel) {
        // A broker that is gone needs no answer, and everything ends.
        let answer = |reached: Reached| drop(broker.send(&reached, &[]));
        let Some(seat) = Seats::take(&self.seats, reach.call) else {
            return answer(Reached::Failed { host: self.name_of(reach.to), errno: libc::EAGAIN });
        };
        // Names go on: what is said of a host should not be that it has none.
        if reach.to != ConnectTarget::Names
            && let Some(reason) = self.excess(reach.call)
        {
            let host = self.name_of(reach.to);
            self.say(FromEgress::Refused { call: reach.call, host: host.clone(), reason: Some(reason) });
            return answer(Reached::Refused { host });
        }
        let asker = Asker { call: reach.call, within: reach.within };
        let route = match reach.to {
            ConnectTarget::Names | ConnectTarget::Proxy => None,
            ConnectTarget::Address(place) => match self.route(upstream::meant(place), &asker).await {
                Ok(route) => Some(route),
                Err(NoRoute::Failed { host, errno }) => return answer(Reached::Failed { host, errno }),
                Err(NoRoute::Refused { host, reason }) => {
                    self.say(FromEgress::Refused { call: reach.call, host: host.clone(), reason });
                    return answer(Reached::Refused { host });
                }
            },
        };
        let host = route.as_ref().map_or_else(|| self.name_of(reach.to), |route| route.host.clone());
        let server = match &route {
            Some(route) if reach.wait || route.is_near() => match self.connect(reach.call, route).await {
                Ok(server) => Some(server),
                Err(errno) => return answer(Reached::Failed { host, errno }),
            },
            Some(_) | None => None,
        };
        let Some(expecting) = Expecting::from(&self, reach.from) else {
            return answer(Reached::Failed { host, errno: libc::EADDRINUSE });
        };
        answer(Reached::Ready { host });
        let Ok(Some(client)) = timeout(EXPECTED, expecting.take(broker)).await else { return };
        // What cannot be set makes a connection slower, not another one.
        let _slower: io::Result<()> = stream::prepare(&client);
        match route {
            Some(route) => self.converse(client, server, reach.call, route).await,
            None if reach.to == ConnectTarget::Proxy => self.stand_in(client, asker).await,
            None => self.answer_by_tcp(client, &asker).await,
        }
        drop(seat);
    }

    /// A call has asked for a connection, and may carry so much.
    pub(super) fn begins(&self, call: u64, most: u64) {
        lock(&self.calls).meters.entry(call).or_insert_with(|| Arc::new(ConnectionMeter::new(most)));
    }

    /// Connects a call to where its route leads.
    pub(super) async fn connect(self: &Arc<Self>, call: u64, route: &Route) -> Result<MeteredServer, i32> {
        if self.excess(call).is_some() {
            return Err(libc::EACCES);
        }
        let socket = upstream::connect(&route.addresses).await?;
        // Of a call that is gone, this ends as well.
        let meter = lock(&self.calls).meters.get(&call).cloned().ok_or(libc::ECANCELED)?;
        let (egress, host) = (Arc::clone(self), route.host.clone());
        let tell = move |reason| {
            egress.say(FromEgress::Ended { call, host: host.clone(), reason: shortened(reason) });
        };
        Ok(MeteredServer::new(socket, ConnectionAccount::open(meter, Arc::clone(&self.meter), Arc::new(tell))))
    }

    /// Reason why a call may carry no more, if it may not.
    fn excess(&self, call: u64) -> Option<String> {
        let meter = lock(&self.calls).meters.get(&call).cloned()?;
        meter::excess(&meter, &self.meter)
    }

    fn name_of(&self, target: ConnectTarget) -> String {
        match target {
            ConnectTarget::Names => "the names".to_owned(),
            ConnectTarget::Proxy => "the proxy".to_owned(),
            ConnectTarget::Address(place) => match lock(&self.book).name_at(place.ip()) {
                Some(name) => format!("{name}:{}", place.port()),
                None => place.to_string(),
            },
        }
    }

    /// Where a connection to an address leads, if that was granted and may be reached.
    pub(super) async fn route(&self, place: SocketAddr, asker: &Asker) -> Result<Route, NoRoute> {
        let name = lock(&self.book).name_at(place.ip());
        let Some(name) = name else {
            let may = asker.within.as_ref().is_none_or(|within| upstream::granted(place, within).is_some());
            return match upstream::granted(place, &self.network) {
                Some((host, addresses)) if may => {
                    let both = || std::iter::once(&self.network).chain(&asker.within);
                    let only_web = both().any(|network| network.only_web(&Host::Address(place.ip()), place.port()));
                    let made_for = self.made_for(&host, Host::Address(place.ip()), place.port(), asker)?;
                    // Nobody's name is compared where nothing is added.
                    let made_for = Some(made_for).filter(|made_for| !made_for.outfit.is_none());
                    Ok(Route { host, made_for, only_web, addresses })
                }
                Some((host, _)) => Err(NoRoute::Refused { host, reason: Some(NARROWED.to_owned()) }),
                None => Err(NoRoute::Refused { host: place.to_string(), reason: None }),
            };
        };
        self.route_to(&Host::Name(name.to_string()), place.port(), asker).await
    }

    /// Route by name.
    pub(super) async fn route_to(&self, name: &Host, port: u16, asker: &Asker) -> Result<Route, NoRoute> {
        let host = format!("{name}:{port}");
        let both = || std::iter::once(&self.network).chain(&asker.within);
        if !both().all(|network| network.allows(name, port)) {
            let reason = self.network.allows(name, port).then(|| NARROWED.to_owned());
            return Err(NoRoute::Refused { host, reason });
        }
        let addresses = match self.resolver.addresses(&name.to_string()).await {
            Ok(addresses) => addresses,
            Err(Unresolved::NoName | Unresolved::NoAddress | Unresolved::Failed) => {
                return Err(NoRoute::Failed { host, errno: libc::EHOSTUNREACH });
            }
        };
        let reachable = upstream::reachable(&addresses, port, &self.network).and_then(|places| match &asker.within {
            None => Ok(places),
            Some(within) => {
                let addresses: Vec<IpAddr> = places.iter().map(SocketAddr::ip).collect();
                upstream::reachable(&addresses, port, within)
            }
        });
        match reachable {
            Ok(addresses) => {
                let only_web = both().any(|network| network.only_web(name, port));
                let made_for = self.made_for(&host, name.clone(), port, asker)?;
                Ok(Route { host, made_for: Some(made_for), only_web, addresses })
            }
            Err(Unreachable::Refused(ip, what)) => {
                let reason = Some(format!("it leads to {ip} ({what}), which a name's grant does not cover"));
                Err(NoRoute::Refused { host, reason })
            }
            Err(Unreachable::NoRoute(errno)) => Err(NoRoute::Failed { host, errno }),
        }
    }

    /// The name that a connection is for, with what is added to its requests. Refused if egress is to make the TLS, and would not.
    fn made_for(&self, shown: &str, name: Host, port: u16, asker: &Asker) -> Result<MadeFor, NoRoute> {
        let secured = asker.within.as_ref().and_then(|within| within.secured.as_ref());
        let outfit = self.credentials.outfit(&name, port, secured);
        if secured.is_some() && !outfit.is_secured() {
            return Err(NoRoute::Refused { host: shown.to_owned(), reason: Some(NOT_SECURED.to_owned()) });
        }
        Ok(MadeFor { outfit, ..MadeFor::new(name, port) })
    }

    /// Takes the connections that were announced, each once, and no others: whoever else is on this machine may try (B17).
    async fn accept(self: Arc<Self>) {
        let Some(listener) = self.listener.get() else { return };
        loop {
            match listener.accept().await {
                Ok((client, from)) => self.comes(client, from),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    fn comes(&self, client: TcpStream, from: SocketAddr) {
        let is_here = from.ip() == IpAddr::V4(Ipv4Addr::LOCALHOST);
        match lock(&self.expected).get_mut(&from.port()).filter(|_| is_here) {
            // Somebody who comes often from there leaves nothing behind, and takes no room.
            Some(came) => {
                came.extract_if(.., |other| !is_connected(other)).for_each(stream::reset);
                came.push(client);
                self.came.notify_waiters();
            }
            None => stream::reset(client),
        }
    }

    /// Takes what has come already, though not more than can have: others come meanwhile.
    fn accept_all(&self) -> io::Result<()> {
        let Some(listener) = self.listener.get() else { return Ok(()) };
        // Asked of the kernel itself: the event loop may not know yet that something has come.
        for _ in 0..=BACKLOG {
            let Ok((client, Some(from))) = accept_at_once(listener) else { break };
            let client = std::net::TcpStream::from(client);
            self.comes(TcpStream::from_std(client)?, SocketAddr::try_from(from)?);
        }
        Ok(())
    }

    async fn answer_by_udp(self: Arc<Self>) {
        let Some(socket) = self.names.get() else { return };
        let mut bytes = vec![0; QUESTION_MAX];
        loop {
            let (questions, may_ask) = tokio::select! {
                biased;
                () = self.is_late.notified() => (std::mem::take(&mut *lock(&self.late)), false),
                heard = socket.recv_from(&mut bytes) => match heard {
                    Ok((length, from)) => {
                        let question = NameQuestion::read(bytes.get(..length).unwrap_or_default(), &self.network);
                        // Who asks is not known: by names alone a call that may reach nothing could say what it likes outside (B4).
                        let may_ask = !question.answer.is_asked_outside() || !self.is_narrowed();
                        (vec![(question, from)], may_ask)
                    }
                    Err(_) => {
                        tokio::time::sleep(PAUSE).await;
                        continue;
                    }
                },
            };
            for (question, from) in questions {
                self.answer_datagram(question, from, may_ask).await;
            }
        }
    }

    async fn answer_datagram(self: &Arc<Self>, mut question: NameQuestion, from: SocketAddr, may_ask: bool) {
        if !may_ask {
            question.answer = question.answer.unasked();
        }
        if !question.answer.is_asked_outside() {
            if let (Some(answer), Some(socket)) = (self.answer(&question, None).await, self.names.get()) {
                // A full buffer loses it, as networks do: whoever asked will ask again.
                let _lost: io::Result<usize> = socket.try_send_to(&answer, from);
            }
        } else if let Ok(seat) = Arc::clone(&self.questions).try_acquire_owned() {
            let egress = Arc::clone(self);
            tokio::spawn(async move {
                if let (Some(answer), Some(socket)) = (egress.answer(&question, None).await, egress.names.get()) {
                    let _lost: io::Result<usize> = socket.send_to(&answer, from).await;
                }
                drop(seat);
            });
        }
    }

    /// Answers questions until there are no more.
    async fn answer_by_tcp(&self, mut client: TcpStream, asker: &Asker) {
        let network = asker.within.as_ref().unwrap_or(&self.network);
        while let Ok(Some(question)) = timeout(QUIET, read_question(&mut client)).await.unwrap_or(Ok(None)) {
            let Some(answer) = self.answer(&NameQuestion::read(&question, network), Some(asker.call)).await else {
                return;
            };
            let Ok(length) = u16::try_from(answer.len()) else { return };
            let framed = [&length.to_be_bytes()[..], &answer].concat();
            if client.write_all(&framed).await.is_err() {
                return;
            }
        }
    }

    async fn answer(&self, question: &NameQuestion, call: Option<u64>) -> Option<Vec<u8>> {
        let ok = ResponseCode::NoError;
        match &question.answer {
            NameAnswer::None => None,
            NameAnswer::Failure(code) => question.answered(*code, &[]),
            NameAnswer::Empty => question.answered(ok, &[]),
            NameAnswer::Localhost => question.answered(ok, &[NameRecord::Address(Ipv4Addr::LOCALHOST)]),
            NameAnswer::NoName { told } => {
                if let Some(name) = told {
                    self.name_refused(call, name);
                }
                question.answered(ResponseCode::NXDomain, &[])
            }
            NameAnswer::NameAt(ip) => {
                let name = lock(&self.book).name_at((*ip).into());
                // Another may be what some other call has to say.
                match name.filter(|name| names::is_named(&self.network, &Host::Name(name.to_string()))) {
                    Some(name) => question.answered(ok, &[NameRecord::Name(name)]),
                    None => question.answered(ResponseCode::NXDomain, &[]),
                }
            }
            // What it is called may be anything: nobody outside is asked until a call connects that may.
            NameAnswer::AddressOfAny(name) => {
                let address = lock(&self.book).address_of(name);
                question.answered(ok, &[NameRecord::Address(address)])
            }
            NameAnswer::AddressOf(name) | NameAnswer::EmptyOf(name) => match self.resolver.addresses(name).await {
                Ok(_) if matches!(question.answer, NameAnswer::EmptyOf(_)) => question.answered(ok, &[]),
                Ok(_) => {
                    let address = lock(&self.book).address_of(name);
                    question.answered(ok, &[NameRecord::Address(address)])
                }
                Err(Unresolved::NoName) => question.answered(ResponseCode::NXDomain, &[]),
                Err(Unresolved::NoAddress) => question.answered(ok, &[]),
                Err(Unresolved::Failed) => question.answered(ResponseCode::ServFail, &[]),
            },
        }
    }

    fn name_refused(&self, call: Option<u64>, name: &str) {
        let name = name.to_owned();
        // Only of a call that was narrowed it is refused what the session may know.
        let narrowed = call.filter(|_| names::knows(&self.network, &Host::Name(name.clone())));
        self.say(match narrowed {
            Some(call) => FromEgress::Refused { call, host: name, reason: Some(NARROWED.to_owned()) },
            None => FromEgress::NameRefused { call, name },
        });
    }

    /// Tells the broker, at once if there is room: it reports a call's refusals when the call has ended, and no later.
    pub(super) fn say(&self, report: FromEgress) {
        let mut waiting = lock(&self.reports);
        if waiting.is_empty() && self.broker.get_ref().send(&report, &[]).is_ok() {
            return;
        }
        if waiting.len() < REPORTS {
            waiting.push_back(report);
            self.reported.notify_one();
        }
    }

    /// Tells the broker what there was no room for.
    async fn report(self: Arc<Self>) {
        loop {
            self.reported.notified().await;
            loop {
                let next = lock(&self.reports).front().cloned();
                let Some(next) = next else { break };
                match self.broker.get_ref().send(&next, &[]) {
                    Ok(()) => drop(lock(&self.reports).pop_front()),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(PAUSE).await,
                    // The broker is gone, and everything ends.
                    Err(_) => return,
                }
            }
        }
    }
}

fn accept_at_once(listener: &TcpListener) -> rustix::io::Result<(OwnedFd, Option<SocketAddrAny>)> {
    rustix::net::acceptfrom_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
}

/// True if a socket is one end of a connection. One that was reset has no peer any more.
fn is_connected(socket: &TcpStream) -> bool {
    rustix::net::getpeername(socket).is_ok()
}

/// A port from which a connection is to come, while this lives.
struct Expecting<'a> {
    egress: &'a Egress,
    from: u16,
}

impl<'a> Expecting<'a> {
    /// `None` if one is on its way already: nobody takes its place.
    fn from(egress: &'a Egress, from: u16) -> Option<Self> {
        let mut expected = lock(&egress.expected);
        if expected.contains_key(&from) {
            return None;
        }
        expected.insert(from, Vec::new());
        Some(Self { egress, from })
    }

    /// Takes the other end of the call's socket: the broker says when that is connected, and whether it still is when this has found
    /// what is alive here.
    async fn take(self, broker: Channel) -> Option<TcpStream> {
        rustix::io::ioctl_fionbio(&broker, true).ok()?;
        #[allow(
            deprecated,
            reason = "its replacement is unsafe; a Channel owns its descriptor and never gives another"
        )]
        let broker = AsyncFd::with_interest(broker, Interest::READABLE).ok()?;
        let says = async |wanted: ConnectionMade| {
            let said = broker.async_io(Interest::READABLE, Channel::receive::<ConnectionMade>).await;
            matches!(said, Ok(Received::Message(made, _)) if made == wanted)
        };
        if !says(ConnectionMade::Connected).await {
            return None;
        }
        let client = loop {
            let came = self.egress.came.notified();
            self.egress.accept_all().ok()?;
            if let Some(client) = self.alive() {
                break client;
            }
            came.await;
            // Whoever comes again and again does not keep the others waiting.
            tokio::task::yield_now().await;
        };
        broker.get_ref().send(&Reached::Taken, &[]).ok()?;
        if says(ConnectionMade::Sure).await {
            return Some(client);
        }
        stream::reset(client);
        None
    }

    /// Connection that has come and is connected: there is at most one.
    fn alive(&self) -> Option<TcpStream> {
        let came = lock(&self.egress.expected).get_mut(&self.from).map(std::mem::take)?;
        let (mut alive, dead): (Vec<_>, Vec<_>) = came.into_iter().partition(is_connected);
        dead.into_iter().for_each(stream::reset);
        alive.pop()
    }
}

impl Drop for Expecting<'_> {
    fn drop(&mut self) {
        let came = lock(&self.egress.expected).remove(&self.from);
        came.into_iter().flatten().for_each(stream::reset);
    }
}

/// The next question of a connection, without its length. `None` at its end, and for one that is too long.
async fn read_question(client: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let length = match client.read_u16().await {
        Ok(length) => usize::from(length),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    };
    if length > QUESTION_MAX {
        return Ok(None);
    }
    let mut question = vec![0; length];
    client.read_exact(&mut question).await?;
    Ok(Some(question))
}
