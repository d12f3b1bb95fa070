//! Host patterns: names, addresses and networks, with ports (S0-36, design "Network").
//!
//! Strict on purpose (attack B10): what two programs could read as two hosts is refused, in a pattern and in a request.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::PatternError;
use crate::variable::Variable;

/// `api.example.com`, `*.example.com` (subdomains only), `host:port`, an address or a network.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPattern {
    name: Name,
    ports: Ports,
}

/// A host as a request names it, in its one normal form.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    /// Lower case, without the trailing dot.
    Name(String),
    /// An address.
    Address(IpAddr),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Exact(String),
    /// What follows `*.`.
    Subdomains(String),
    Network {
        address: IpAddr,
        prefix: u8,
    },
}

/// The ports that a pattern covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ports {
    /// 80 and 443: what a pattern without a port means.
    Web,
    /// One.
    One(u16),
}

impl Ports {
    fn holds(self, port: u16) -> bool {
        match self {
            Self::Web => port == 80 || port == 443,
            Self::One(one) => port == one,
        }
    }

    fn within(self, other: Self) -> bool {
        match self {
            Self::Web => other == Self::Web,
            Self::One(port) => other.holds(port),
        }
    }
}

impl HostPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    ///
    /// [`PatternError`], naming what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if let Some((name, _)) = text.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
            return Err(match Variable::parse(name) {
                Some(_) => PatternError::VariableInHost(name.to_owned()),
                None => PatternError::UndefinedVariable(name.to_owned()),
            });
        }
        check_characters(text)?;
        let (host, prefix, ports) = split(text)?;
        let name = match (prefix, host.strip_prefix("*.")) {
            (Some(prefix), _) => network(host, prefix)?,
            (None, Some(parent)) => match Host::parse(parent)? {
                Host::Name(parent) => Name::Subdomains(parent),
                Host::Address(_) => return Err(PatternError::HostWildcard),
            },
            (None, None) => match Host::parse(host)? {
                Host::Name(name) => Name::Exact(name),
                Host::Address(address) => Name::Network { address, prefix: bits(address) },
            },
        };
        Ok(Self { name, ports })
    }

    /// Whether a connection to `host` at `port` is meant. A host that is not in a clean form never is.
    #[must_use]
    pub fn matches(&self, host: &str, port: u16) -> bool {
        Host::parse(host).is_ok_and(|host| self.covers(&host, port))
    }

    /// The same, for a host that was parsed.
    #[must_use]
    pub fn covers(&self, host: &Host, port: u16) -> bool {
        self.ports.holds(port)
            && match (&self.name, host) {
                (Name::Exact(mine), Host::Name(name)) => mine == name,
                (Name::Subdomains(parent), Host::Name(name)) => is_below(name, parent),
                (Name::Network { address, prefix }, Host::Address(ip)) => in_network(*ip, *address, *prefix),
                (Name::Exact(_) | Name::Subdomains(_), Host::Address(_)) | (Name::Network { .. }, Host::Name(_)) => {
                    false
                }
            }
    }

    /// Which ports.
    #[must_use]
    pub fn ports(&self) -> Ports {
        self.ports
    }

    /// Whether everything this matches is matched by `other`.
    pub(crate) fn within(&self, other: &Self) -> bool {
        self.ports.within(other.ports)
            && match (&self.name, &other.name) {
                (Name::Exact(name), Name::Subdomains(parent)) => is_below(name, parent),
                (Name::Subdomains(mine), Name::Subdomains(parent)) => mine == parent || is_below(mine, parent),
                (Name::Network { address, prefix }, Name::Network { address: other, prefix: shorter }) => {
                    prefix >= shorter && in_network(*address, *other, *shorter)
                }
                (mine, other) => mine == other,
            }
    }

    /// What both match. Names nest or are apart, and so do ports, so it is one pattern or none.
    pub(crate) fn meet(&self, other: &Self) -> Option<Self> {
        let ports = if self.ports.within(other.ports) { self.ports } else { other.ports };
        let (mine, theirs) = (self.with_ports(ports), other.with_ports(ports));
        let name = if mine.within(&theirs) { mine } else { theirs };
        (name.within(self) && name.within(other)).then_some(name)
    }

    fn with_ports(&self, ports: Ports) -> Self {
        Self { name: self.name.clone(), ports }
    }
}

impl Host {
    /// Reads a host name or an address (IPv6 with or without brackets), and gives it its one normal form.
    ///
    /// # Errors
    ///
    /// [`PatternError`] for whatever could be read as another host.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        check_characters(text)?;
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Ok(address) = bare.unwrap_or(text).parse::<Ipv6Addr>() {
            return plain_v6(address).map(|address| Self::Address(address.into()));
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Ok(Self::Address(address.into()));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        check_name(&name)?;
        Ok(Self::Name(name))
    }
}

impl TryFrom<String> for HostPattern {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        Self::parse(&text)
    }
}

impl From<HostPattern> for String {
    fn from(pattern: HostPattern) -> Self {
        pattern.to_string()
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.name, self.ports) {
            (Name::Exact(name), _) => write!(f, "{name}")?,
            (Name::Subdomains(parent), _) => write!(f, "*.{parent}")?,
            (Name::Network { address, prefix }, ports) => {
                match address {
                    IpAddr::V6(address) if ports != Ports::Web => write!(f, "[{address}]")?,
                    IpAddr::V4(_) | IpAddr::V6(_) => write!(f, "{address}")?,
                }
                if *prefix != bits(*address) {
                    write!(f, "/{prefix}")?;
                }
            }
        }
        match self.ports {
            Ports::Web => Ok(()),
            Ports::One(port) => write!(f, ":{port}"),
        }
    }
}

fn check_characters(text: &str) -> Result<(), PatternError> {
    if text.is_empty() {
        return Err(PatternError::Empty);
    }
    match text.chars().find(|c| !(c.is_ascii_alphanumeric() || "-_.:[]/*".contains(*c))) {
        Some(c) if c.is_control() => Err(PatternError::Control(c)),
        Some(c) if !c.is_ascii() => Err(PatternError::NotPunycode),
        Some(c) => Err(PatternError::HostCharacter(c)),
        None => Ok(()),
    }
}

/// Takes the port and the network's prefix off.
fn split(text: &str) -> Result<(&str, Option<&str>, Ports), PatternError> {
    // Only IPv6 has more than one colon; unbracketed it can have no port.
    let whole_v6 = !text.starts_with('[') && text.matches(':').count() > 1;
    let port_at = if whole_v6 { None } else { text.rfind(':').filter(|at| !text[*at..].contains(']')) };
    let (host, ports) = match port_at {
        Some(at) => (&text[..at], Ports::One(port(&text[at + 1..])?)),
        None => (text, Ports::Web),
    };
    match host.split_once('/') {
        Some((host, prefix)) => Ok((host, Some(prefix), ports)),
        None => Ok((host, None, ports)),
    }
}

fn port(text: &str) -> Result<u16, PatternError> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    let number = if plain { text.parse().ok() } else { None };
    number.ok_or_else(|| PatternError::Port(text.to_owned()))
}

fn network(host: &str, prefix: &str) -> Result<Name, PatternError> {
    let refused = || PatternError::Network(format!("{host}/{prefix}"));
    let Host::Address(address) = Host::parse(host)? else { return Err(refused()) };
    let plain = prefix == "0" || !prefix.starts_with('0');
    let length = prefix.bytes().all(|b| b.is_ascii_digit()).then(|| prefix.parse::<u8>().ok()).flatten();
    let length = length.filter(|length| plain && *length <= bits(address)).ok_or_else(refused)?;
    // Host bits are a slip of the pen or a misunderstanding; either way the pattern does not say what it grants.
    if masked(address, length) != value(address) {
        return Err(refused());
    }
    Ok(Name::Network { address, prefix: length })
}

fn check_name(name: &str) -> Result<(), PatternError> {
    if name.len() > 253 {
        return Err(PatternError::HostLength);
    }
    if name.contains('*') {
        return Err(PatternError::HostWildcard);
    }
    for label in name.split('.') {
        let plain = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if label.is_empty() || label.len() > 63 || !plain || label.starts_with('-') || label.ends_with('-') {
            return Err(PatternError::Label(label.to_owned()));
        }
    }
    // A last label that is a number makes inet_aton(3) and the URL standard read an address.
    let last = name.rsplit('.').next().unwrap_or(name);
    let hexadecimal = last.strip_prefix("0x").is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    if hexadecimal || last.bytes().all(|b| b.is_ascii_digit()) {
        return Err(PatternError::OddAddress(name.to_owned()));
    }
    Ok(())
}

/// Refuses the forms that carry an IPv4 address: v4-mapped, v4-compatible, NAT64 (RFC 6052) and 6to4. A grant or a
/// denial of the one would not hold for the other.
fn plain_v6(address: Ipv6Addr) -> Result<Ipv6Addr, PatternError> {
    let segments = address.segments();
    let zeros = segments[..5].iter().all(|segment| *segment == 0);
    let mapped = zeros && segments[5] == 0xffff;
    let compatible = zeros && segments[5] == 0 && segments[6] != 0;
    let nat64 = segments[..2] == [0x64, 0xff9b];
    let six_to_four = segments[0] == 0x2002;
    if mapped || compatible || nat64 || six_to_four { Err(PatternError::EmbeddedV4(address)) } else { Ok(address) }
}

fn is_below(name: &str, parent: &str) -> bool {
    name.strip_suffix(parent).is_some_and(|labels| labels.len() > 1 && labels.ends_with('.'))
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn value(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn masked(address: IpAddr, prefix: u8) -> u128 {
    let shift = u32::from(bits(address).saturating_sub(prefix));
    value(address).checked_shr(shift).and_then(|high| high.checked_shl(shift)).unwrap_or(0)
}

fn in_network(address: IpAddr, network: IpAddr, prefix: u8) -> bool {
    address.is_ipv4() == network.is_ipv4() && masked(address, prefix) == masked(network, prefix)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use super::*;

    /// S0-36: what each form of pattern matches, with its controls.
    #[test]
    fn patterns_match_what_they_say() {
        type Hosts = &'static [(&'static str, u16)];
        let cases: [(&str, Hosts, Hosts); 9] = [
            (
                "api.example.com",
                &[("api.example.com", 443), ("api.example.com", 80), ("API.example.com.", 443)],
                &[
                    ("api.example.com", 22),
                    ("x.api.example.com", 443),
                    ("example.com", 443),
                    ("api.example.com..", 443),
                ],
            ),
            (
                "*.example.com",
                &[("a.example.com", 443), ("a.b.example.com", 80)],
                &[("example.com", 443), ("aexample.com", 443), (".example.com", 443), ("a.example.com.evil", 443)],
            ),
            ("*.Example.COM.:8443", &[("a.example.com", 8443)], &[("a.example.com", 443)]),
            ("localhost:3000", &[("localhost", 3000)], &[("localhost", 80), ("127.0.0.1", 3000)]),
            ("10.0.0.1", &[("10.0.0.1", 80)], &[("10.0.0.2", 80), ("::ffff:10.0.0.1", 80), ("010.0.0.1", 80)]),
            ("10.0.0.0/8", &[("10.255.0.1", 443)], &[("11.0.0.1", 443), ("a0", 443), ("167772161", 443)]),
            ("0.0.0.0/0:53", &[("8.8.8.8", 53)], &[("::1", 53), ("8.8.8.8", 80)]),
            ("::1", &[("::1", 80), ("[::1]", 443)], &[("::2", 80)]),
            ("[2001:db8::]/32:8080", &[("2001:db8::5", 8080)], &[("2001:db9::5", 8080), ("2001:db8::5", 80)]),
        ];
        for (text, yes, no) in cases {
            let pattern = HostPattern::parse(text).unwrap();
            for (host, port) in yes {
                assert!(pattern.matches(host, *port), "{text} should match {host} {port}");
            }
            for (host, port) in no {
                assert!(!pattern.matches(host, *port), "{text} should not match {host} {port}");
            }
            assert_eq!(HostPattern::parse(&pattern.to_string()), Ok(pattern), "{text} survives printing");
        }
    }

    /// Attack B10: every spelling that two programs read differently.
    #[test]
    fn ambiguous_hosts_are_refused() {
        for (text, error) in [
            ("", PatternError::Empty),
            ("a.example\0.com", PatternError::Control('\0')),
            ("a.example.com\r\nHost: b", PatternError::Control('\r')),
            ("a .example", PatternError::HostCharacter(' ')),
            ("a%00.example", PatternError::HostCharacter('%')),
            ("user@example.com", PatternError::HostCharacter('@')),
            ("bücher.example", PatternError::NotPunycode),
            ("a..example", PatternError::Label(String::new())),
            (".example", PatternError::Label(String::new())),
            ("-a.example", PatternError::Label("-a".into())),
            ("0177.0.0.1", PatternError::OddAddress("0177.0.0.1".into())),
            ("0x7f.0.0.1", PatternError::OddAddress("0x7f.0.0.1".into())),
            ("0x7f000001", PatternError::OddAddress("0x7f000001".into())),
            ("127.1", PatternError::OddAddress("127.1".into())),
            ("2130706433", PatternError::OddAddress("2130706433".into())),
            ("a*.example", PatternError::HostWildcard),
            ("*", PatternError::HostWildcard),
            ("a.*.example", PatternError::HostWildcard),
            ("*.10.0.0.1", PatternError::HostWildcard),
            ("a.example:0", PatternError::Port("0".into())),
            ("a.example:70000", PatternError::Port("70000".into())),
            ("a.example:", PatternError::Port(String::new())),
            ("10.0.0.1/8", PatternError::Network("10.0.0.1/8".into())),
            ("10.0.0.0/33", PatternError::Network("10.0.0.0/33".into())),
            ("a.example/8", PatternError::Network("a.example/8".into())),
            ("{workspace}", PatternError::VariableInHost("workspace".into())),
            ("{api}", PatternError::UndefinedVariable("api".into())),
        ] {
            assert_eq!(HostPattern::parse(text), Err(error), "{text:?}");
        }
        for text in ["::ffff:10.0.0.1", "[::ffff:a00:1]:80", "::10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::"] {
            assert!(matches!(HostPattern::parse(text), Err(PatternError::EmbeddedV4(_))), "{text}");
        }
    }

    /// The meet of two patterns matches exactly what both match.
    #[test]
    fn meet_is_the_intersection() {
        let texts = [
            "a.x.com",
            "*.x.com",
            "*.a.x.com",
            "x.com",
            "a.x.com:443",
            "*.x.com:22",
            "10.0.0.0/8",
            "10.1.0.0/16",
            "10.1.2.3:80",
            "::/0",
            "::1",
        ];
        let hosts = ["a.x.com", "b.a.x.com", "x.com", "10.1.2.3", "10.2.0.1", "::1", "2001:db8::1"];
        for (left, right) in texts.iter().flat_map(|left| texts.iter().map(move |right| (left, right))) {
            let (left, right) = (HostPattern::parse(left).unwrap(), HostPattern::parse(right).unwrap());
            let meet = left.meet(&right);
            assert_eq!(meet, right.meet(&left));
            for (host, port) in hosts.iter().flat_map(|host| [22, 80, 443].map(|port| (host, port))) {
                let both = left.matches(host, port) && right.matches(host, port);
                assert_eq!(meet.as_ref().is_some_and(|m| m.matches(host, port)), both, "{left} {right} {host}:{port}");
                assert!(!left.within(&right) || !left.matches(host, port) || right.matches(host, port));
            }
        }
    }
}
