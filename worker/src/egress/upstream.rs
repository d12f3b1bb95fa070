//! The way out: where a name leads to, whether that may be reached, and the connection to it.
//!
//! What a name leads to is asked here, not inside, and the address that was judged is the one that is connected to: another
//! answer to a second question changes nothing (B12).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use callgate_policy::pattern::Host;
use callgate_policy::plan::Network;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{LookupIpStrategy, NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::stream;

/// Most addresses of a name that are tried.
const ADDRESSES_MAX: usize = 8;
/// How long an address has before the next is tried beside it (RFC 8305).
const HEAD_START: Duration = Duration::from_millis(250);
/// How long all of them have. The kernel gives a single one up after about as long.
const CONNECT: Duration = Duration::from_secs(130);

/// Most questions by UDP that wait for an answer from outside. More are not heard, and asked again.
pub(super) const QUESTIONS: usize = 256;
/// Most answers that are kept for as long as they hold.
const CACHE: u64 = 4096;

/// Asks as the host does: its servers, its `/etc/hosts`. For each kind of address by itself: where one was answered and the
/// other was not, nothing but the answers tells which.
pub(super) struct Resolver {
    v4: TokioResolver,
    v6: TokioResolver,
}

/// Reason why a name leads nowhere: what is said of one kind of address, the later of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Unresolved {
    /// It does not exist.
    NoName,
    /// It has no address.
    NoAddress,
    /// Nobody who knows answers.
    Failed,
}

impl Unresolved {
    fn of(error: &NetError) -> Self {
        match error {
            error if error.is_nx_domain() => Self::NoName,
            error if error.is_no_records_found() => Self::NoAddress,
            _ => Self::Failed,
        }
    }
}

impl Resolver {
    /// Reads the host's configuration. Must be called before this process is confined.
    pub(super) fn of_host() -> Result<Self, NetError> {
        // As glibc does where nothing is configured.
        let (config, options) = hickory_resolver::system_conf::read_system_conf().unwrap_or_else(|_unconfigured| {
            let here = NameServerConfig::udp_and_tcp(Ipv4Addr::LOCALHOST.into());
            (ResolverConfig::from_parts(None, Vec::new(), vec![here]), ResolverOpts::default())
        });
        Self::with(config, options)
    }

    pub(super) fn with(config: ResolverConfig, options: ResolverOpts) -> Result<Self, NetError> {
        let of = |kind: LookupIpStrategy| {
            let provider = TokioRuntimeProvider::default();
            let builder = TokioResolver::builder_with_config(config.clone(), provider);
            let mut builder = builder.with_options(options.clone());
            let options = builder.options_mut();
            options.ip_strategy = kind;
            options.cache_size = CACHE;
            options.max_active_requests = QUESTIONS;
            builder.build()
        };
        Ok(Self { v4: of(LookupIpStrategy::Ipv4Only)?, v6: of(LookupIpStrategy::Ipv6Only)? })
    }

    /// Asks, unless an earlier answer still holds.
    pub(super) async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, Unresolved> {
        // A name of one word may be short for one in the host's own domain; no other is.
        let absolute = if name.contains('.') { format!("{name}.") } else { name.to_owned() };
        let both = tokio::join!(self.v4.lookup_ip(&*absolute), self.v6.lookup_ip(&*absolute));
        let mut addresses = Vec::new();
        let mut missing = Unresolved::NoName;
        for found in [both.0, both.1] {
            let found = match found {
                Ok(found) => found,
                Err(error) => {
                    missing = missing.max(Unresolved::of(&error));
                    continue;
                }
            };
            for address in found.iter().map(|address| address.to_canonical()) {
                if !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
        }
        if addresses.is_empty() { Err(missing) } else { Ok(addresses) }
    }
}

/// Reason why an address that a name leads to is not connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unreachable {
    /// It is one that a grant of the name does not cover.
    Refused(IpAddr, &'static str),
    /// There is no way to it.
    NoRoute(i32),
}

/// Those addresses of a name that may be reached, in the order in which they are to be tried.
pub(super) fn reachable(addresses: &[IpAddr], port: u16, network: &Network) -> Result<Vec<SocketAddr>, Unreachable> {
    let (mut v6, mut v4) = (Vec::new(), Vec::new());
    let mut refused = None;
    let mut unreachable = libc::EHOSTUNREACH;
    for ip in addresses.iter().copied() {
        let place = SocketAddr::new(ip, port);
        if !network.allows_address(ip, port) {
            match special(place) {
                Ok(None) => {}
                Ok(Some(what)) => {
                    refused = refused.or(Some(Unreachable::Refused(ip, what)));
                    continue;
                }
                Err(errno) => {
                    unreachable = errno;
                    continue;
                }
            }
        }
        if ip.is_ipv6() { v6.push(place) } else { v4.push(place) }
    }
    if v6.is_empty() && v4.is_empty() {
        return Err(refused.unwrap_or(Unreachable::NoRoute(unreachable)));
    }
    let rounds = v6.len().max(v4.len());
    let alternating = (0..rounds).flat_map(|round| [v6.get(round), v4.get(round)]).flatten();
    Ok(alternating.copied().take(ADDRESSES_MAX).collect())
}

/// Peculiarity of an address: by the registries, or because it is this machine's. An error is why it cannot be reached.
fn special(place: SocketAddr) -> Result<Option<&'static str>, i32> {
    if let Some(what) = Network::special(place.ip()) {
        return Ok(Some(what));
    }
    match source_to(place) {
        Ok(source) if source == place.ip() || is_own(place.ip())? => Ok(Some("this machine's own")),
        Ok(_) => Ok(None),
        Err(rustix::io::Errno::ACCESS) => Ok(Some("a broadcast address")),
        Err(errno) => Err(errno.raw_os_error()),
    }
}

/// True if an address is one of this machine's, of which there may be several in one network: a socket can be bound to
/// no other.
fn is_own(ip: IpAddr) -> Result<bool, i32> {
    let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None);
    match socket.and_then(|socket| rustix::net::bind(&socket, &SocketAddr::new(ip, 0))) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::ADDRNOTAVAIL) => Ok(false),
        Err(errno) => Err(errno.raw_os_error()),
    }
}

/// The address from which the kernel would send to another. Nothing is sent. Its own addresses are reached from themselves.
fn source_to(place: SocketAddr) -> rustix::io::Result<IpAddr> {
    let family = if place.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    rustix::net::connect(&socket, &place)?;
    let source: SocketAddr = rustix::net::getsockname(&socket)?.try_into()?;
    Ok(source.ip())
}

/// Connects to the first of these that answers. The error is the kernel's about the last that failed.
pub(super) async fn connect(places: &[SocketAddr]) -> Result<TcpStream, i32> {
    tokio::time::timeout(CONNECT, first_of(places)).await.unwrap_or(Err(libc::ETIMEDOUT))
}

async fn first_of(places: &[SocketAddr]) -> Result<TcpStream, i32> {
    let mut places = places.iter().copied();
    let mut trying = JoinSet::new();
    let mut failed = libc::EHOSTUNREACH;
    loop {
        let next = places.next();
        let is_last = next.is_none();
        match next {
            Some(place) => drop(trying.spawn(TcpStream::connect(place))),
            None if trying.is_empty() => return Err(failed),
            None => {}
        }
        tokio::select! {
            Some(done) = trying.join_next() => match done.map_err(io::Error::other).flatten() {
                Ok(socket) => match stream::prepare(&socket) {
                    Ok(()) => return Ok(socket),
                    Err(error) => failed = errno(&error),
                },
                Err(error) => failed = errno(&error),
            },
            () = tokio::time::sleep(HEAD_START), if !is_last => {}
        }
    }
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// Address that a program means that connects to no address: this machine (ip(7)).
pub(super) fn meant(place: SocketAddr) -> SocketAddr {
    let ip = match place.ip().to_canonical() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, place.port())
}

/// The addresses behind one that was granted. `localhost` is both of its addresses, since servers listen on either.
pub(super) fn granted(place: SocketAddr, network: &Network) -> Option<(String, Vec<SocketAddr>)> {
    let port = place.port();
    if network.allows(&Host::Address(place.ip()), port) {
        return Some((place.to_string(), vec![place]));
    }
    network.allows_address(place.ip(), port).then(|| {
        let mut both = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
        if place.is_ipv6() {
            both.reverse();
        }
        (format!("localhost:{port}"), both.map(|ip| SocketAddr::new(ip, port)).into())
    })
}
