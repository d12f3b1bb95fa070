//! Host patterns: names, addresses and networks, with ports (S0-36, design "Network").
//!
//! Strict on purpose (attack B10): what two programs could read as two hosts is refused, in a pattern and in a request.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};
use serde::{Deserialize, Serialize};

use super::PatternError;
use crate::variable::PatternVariable;

#[cfg(test)]
mod oracle;
mod ports;

pub use ports::Ports;

/// `api.example.com`, `*.example.com` (subdomains only), an address or a network; each may have ports behind it:
/// `host:port`, `host:80,443`, `host:8000-8099`, `host:*` for all.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPattern {
    name: HostName,
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
enum HostName {
    Exact(String),
    /// Name that follows `*.`.
    Subdomains(String),
    Network {
        address: IpAddr,
        prefix: u8,
    },
}

impl HostPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    ///
    /// [`PatternError`], naming what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        Self::parse_with(text, Ports::web)
    }

    /// Reads a pattern of hosts that are denied or asked about. Without ports it is about every port.
    ///
    /// # Errors
    ///
    /// As [`HostPattern::parse`].
    pub fn parse_denied(text: &str) -> Result<Self, PatternError> {
        Self::parse_with(text, Ports::all)
    }

    fn parse_with(text: &str, unless_named: fn() -> Ports) -> Result<Self, PatternError> {
        if let Some((name, _)) = text.split_once('{').and_then(|(_, rest)| rest.split_once('}')) {
            return Err(match PatternVariable::parse(name) {
                Some(_) => PatternError::VariableInHost(name.to_owned()),
                None => PatternError::UndefinedVariable(name.to_owned()),
            });
        }
        check_characters(text, "-_.:,[]/*")?;
        let (host, prefix, ports) = split(text)?;
        let ports = ports.unwrap_or_else(unless_named);
        let name = match (prefix, host.strip_prefix("*.")) {
            (Some(prefix), _) => network(host, prefix)?,
            (None, Some(parent)) => match Host::parse(parent)? {
                Host::Name(parent) => HostName::Subdomains(parent),
                Host::Address(_) => return Err(PatternError::HostWildcard),
            },
            (None, None) => match Host::parse(host)? {
                Host::Name(name) => HostName::Exact(name),
                Host::Address(address) => HostName::Network { address, prefix: bits(address) },
            },
        };
        Ok(Self { name, ports })
    }

    /// True if a connection to `host` at `port` is meant. A host that is not in a clean form never is.
    #[must_use]
    pub fn matches(&self, host: &str, port: u16) -> bool {
        Host::parse(host).is_ok_and(|host| self.covers(&host, port))
    }

    /// True if a connection to a host that was parsed is meant.
    #[must_use]
    pub fn covers(&self, host: &Host, port: u16) -> bool {
        self.ports.holds(port)
            && match (&self.name, host) {
                (HostName::Exact(mine), Host::Name(name)) => mine == name,
                (HostName::Subdomains(parent), Host::Name(name)) => is_below(name, parent),
                (HostName::Network { address, prefix }, Host::Address(ip)) => in_network(*ip, *address, *prefix),
                (HostName::Exact(_) | HostName::Subdomains(_), Host::Address(_))
                | (HostName::Network { .. }, Host::Name(_)) => false,
            }
    }

    /// True if it is for this host by its own name, and for no other.
    #[must_use]
    pub fn is_exactly(&self, host: &Host) -> bool {
        matches!((&self.name, host), (HostName::Exact(mine), Host::Name(name)) if mine == name)
    }

    /// Which ports.
    #[must_use]
    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    /// One host at one port, whatever is said there.
    #[must_use]
    pub fn of_host(host: &Host, port: u16) -> Self {
        let name = match host {
            Host::Name(name) => HostName::Exact(name.clone()),
            Host::Address(address) => HostName::Network { address: *address, prefix: bits(*address) },
        };
        Self { name, ports: Ports::one(port) }
    }

    /// The network that it is, and the length of its prefix, if it is not a name. An address is a network of one.
    #[must_use]
    pub fn network(&self) -> Option<(IpAddr, u8)> {
        match self.name {
            HostName::Exact(_) | HostName::Subdomains(_) => None,
            HostName::Network { address, prefix } => Some((address, prefix)),
        }
    }

    /// True if everything this matches is matched by `other`.
    pub(crate) fn within(&self, other: &Self) -> bool {
        self.ports.within(&other.ports) && self.name.within(&other.name)
    }

    /// Intersection of both. Names nest or are apart, and ports are a set, so it is one pattern or none.
    pub(crate) fn meet(&self, other: &Self) -> Option<Self> {
        let name = match (self.name.within(&other.name), other.name.within(&self.name)) {
            (true, _) => self.name.clone(),
            (false, true) => other.name.clone(),
            (false, false) => return None,
        };
        Some(Self { name, ports: self.ports.meet(&other.ports)? })
    }
}

impl HostName {
    fn within(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(name), Self::Subdomains(parent)) => is_below(name, parent),
            (Self::Subdomains(mine), Self::Subdomains(parent)) => mine == parent || is_below(mine, parent),
            (Self::Network { address, prefix }, Self::Network { address: other, prefix: shorter }) => {
                prefix >= shorter && in_network(*address, *other, *shorter)
            }
            (mine, other) => mine == other,
        }
    }
}

impl Host {
    /// Reads a host name or an address (IPv6 with or without brackets), and gives it its one normal form.
    ///
    /// # Errors
    ///
    /// [`PatternError`] for whatever could be read as another host.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        check_characters(text, "-_.:[]*")?;
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Ok(address) = bare.unwrap_or(text).parse::<Ipv6Addr>() {
            return plain_v6(address).map(|address| Self::Address(address.into()));
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Ok(Self::Address(address.into()));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        let name = if name.is_ascii() { name.to_ascii_lowercase() } else { in_ascii(name)? };
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
        match &self.name {
            HostName::Exact(name) => write!(f, "{name}")?,
            HostName::Subdomains(parent) => write!(f, "*.{parent}")?,
            HostName::Network { address, prefix } => {
                match address {
                    IpAddr::V6(address) if !self.ports.is_web() => write!(f, "[{address}]")?,
                    IpAddr::V4(_) | IpAddr::V6(_) => write!(f, "{address}")?,
                }
                if *prefix != bits(*address) {
                    write!(f, "/{prefix}")?;
                }
            }
        }
        if self.ports.is_web() { Ok(()) } else { write!(f, ":{}", self.ports) }
    }
}

/// In ASCII letters, digits and `signs` alone. What is not ASCII is for [`in_ascii`] to judge.
fn check_characters(text: &str, signs: &str) -> Result<(), PatternError> {
    if text.is_empty() {
        return Err(PatternError::Empty);
    }
    match text.chars().find(|c| c.is_control() || !(c.is_ascii_alphanumeric() || signs.contains(*c) || !c.is_ascii())) {
        Some(c) if c.is_control() => Err(PatternError::Control(c)),
        Some(c) => Err(PatternError::HostCharacter(c)),
        None => Ok(()),
    }
}

/// An internationalised name in the form that is asked for (IDNA 2008 as UTS #46 processes it). One that IDNA first changes in more than
/// its case (wide letters, what cannot be seen, an ideographic full stop) looks like another name than it is; and of a few letters
/// (`ß`, `ς`, two joiners) programs make two names. Such are refused, with the form that says which is meant.
fn in_ascii(name: &str) -> Result<String, PatternError> {
    // Which letters and hyphens a name may have is asked of the result, as of any name.
    let (uts46, anything) = (Uts46::new(), AsciiDenyList::EMPTY);
    let ascii = uts46.to_ascii(name.as_bytes(), anything, Hyphens::Allow, DnsLength::Ignore);
    let ascii = ascii.map_err(|_malformed| PatternError::NotPunycode)?.into_owned();
    let (shown, valid) = uts46.to_unicode(ascii.as_bytes(), anything, Hyphens::Allow);
    let deviates = |c: char| matches!(c, 'ß' | 'ς' | '\u{200c}' | '\u{200d}');
    if valid.is_err() || shown != name.to_lowercase() || shown.contains(deviates) {
        return Err(PatternError::UnclearName { name: name.to_owned(), ascii });
    }
    Ok(ascii)
}

/// Takes the ports, if there are some, and the network's prefix off.
fn split(text: &str) -> Result<(&str, Option<&str>, Option<Ports>), PatternError> {
    // Only IPv6 has more than one colon; unbracketed it can have no port.
    let whole_v6 = !text.starts_with('[') && text.matches(':').count() > 1;
    let port_at = if whole_v6 { None } else { text.rfind(':').filter(|at| !text[*at..].contains(']')) };
    let (host, ports) = match port_at {
        Some(at) => (&text[..at], Some(Ports::parse(&text[at + 1..])?)),
        None => (text, None),
    };
    match host.split_once('/') {
        Some((host, prefix)) => Ok((host, Some(prefix), ports)),
        None => Ok((host, None, ports)),
    }
}

fn network(host: &str, prefix: &str) -> Result<HostName, PatternError> {
    let refused = || PatternError::Network(format!("{host}/{prefix}"));
    let Host::Address(address) = Host::parse(host)? else { return Err(refused()) };
    let plain = prefix == "0" || !prefix.starts_with('0');
    let length = prefix.bytes().all(|b| b.is_ascii_digit()).then(|| prefix.parse::<u8>().ok()).flatten();
    let length = length.filter(|length| plain && *length <= bits(address)).ok_or_else(refused)?;
    // Host bits are a slip of the pen or a misunderstanding; either way the pattern does not say what it grants.
    if masked(address, length) != value(address) {
        return Err(refused());
    }
    Ok(HostName::Network { address, prefix: length })
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

pub(crate) fn in_network(address: IpAddr, network: IpAddr, prefix: u8) -> bool {
    address.is_ipv4() == network.is_ipv4() && masked(address, prefix) == masked(network, prefix)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use super::*;

    /// S0-36: what each form of pattern matches, with its controls.
    #[test]
    fn patterns_match_what_they_say() {
        type HostPorts = &'static [(&'static str, u16)];
        let cases: [(&str, HostPorts, HostPorts); 15] = [
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
            ("a.com:22,443", &[("a.com", 22), ("a.com", 443)], &[("a.com", 80), ("a.com", 23)]),
            (
                "a.com:8000-8099,http",
                &[("a.com", 8000), ("a.com", 8099), ("a.com", 80)],
                &[("a.com", 8100), ("a.com", 443)],
            ),
            ("a.com:*", &[("a.com", 1), ("a.com", 65535)], &[("a.com", 0), ("b.com", 1)]),
            ("[::1]:22,80", &[("::1", 22)], &[("::1", 23)]),
            ("Bücher.example:22", &[("xn--bcher-kva.example", 22), ("BÜCHER.example.", 22)], &[("bucher.example", 22)]),
            ("*.例え.テスト", &[("a.xn--r8jz45g.xn--zckzah", 443)], &[("xn--r8jz45g.xn--zckzah", 443)]),
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
            ("a\u{fffd}.example", PatternError::NotPunycode),
            ("xn--a-.\u{fc}.example", PatternError::NotPunycode),
            ("b\u{fc}cher.example\u{7f}", PatternError::Control('\u{7f}')),
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
            ("a.example:80,", PatternError::Port(String::new())),
            ("a.example:80,,443", PatternError::Port(String::new())),
            ("a.example:90-80", PatternError::Port("90-80".into())),
            ("a.example:0-80", PatternError::Port("0-80".into())),
            ("a.example:80-", PatternError::Port("80-".into())),
            ("a.example:080", PatternError::Port("080".into())),
            ("a.example:HTTP", PatternError::Port("HTTP".into())),
            ("a.example,b.example", PatternError::HostCharacter(',')),
            ("a.{workspace}", PatternError::VariableInHost("workspace".into())),
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

    /// Attack B10: what IDNA makes another name of, and what programs make two names of, is refused with the form that is clear.
    #[test]
    fn names_that_are_not_what_they_look_like_are_refused() {
        for (text, ascii) in [
            ("ｅxample.com", "example.com"),
            ("exam\u{ad}ple.com", "example.com"),
            ("example。com", "example.com"),
            ("bu\u{308}cher.example", "xn--bcher-kva.example"),
            ("faß.example", "xn--fa-hia.example"),
            ("１２７.0.0.1", "127.0.0.1"),
        ] {
            let unclear = PatternError::UnclearName { name: text.to_owned(), ascii: ascii.to_owned() };
            assert_eq!(HostPattern::parse(text), Err(unclear.clone()), "{text:?}");
            assert_eq!(Host::parse(text), Err(unclear), "{text:?}");
        }
        assert!(Host::parse("xn--fa-hia.example").is_ok(), "the control");
    }

    /// In ports, `http` and `https` are those ports for nothing else; neither bounds what is granted by number, nor is it widened.
    #[test]
    fn ports_are_kept_in_one_form() {
        for (text, printed) in [
            ("a.com:https,http", "a.com"),
            ("a.com:443,80", "a.com:80,443"),
            ("a.com:80,http", "a.com:80"),
            ("a.com:3,1-2,5", "a.com:1-3,5"),
            ("a.com:1-5,3-65535", "a.com:*"),
            ("a.com:*,https", "a.com:*"),
        ] {
            assert_eq!(HostPattern::parse(text).unwrap().to_string(), printed);
        }
        let meet = |left: &str, right: &str| {
            let met = HostPattern::parse(left).unwrap().meet(&HostPattern::parse(right).unwrap());
            met.map(|met| met.to_string())
        };
        assert_eq!(meet("a.com", "a.com:443").as_deref(), Some("a.com:https"));
        assert_eq!(meet("a.com:*", "*.com").as_deref(), Some("a.com"));
        assert_eq!(meet("a.com:22-443", "a.com:443-500").as_deref(), Some("a.com:443"));
        assert_eq!(meet("a.com:22", "a.com"), None);
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
            "*.x.com:22-80,442",
            "a.x.com:http,22",
            "a.x.com:*",
            "10.0.0.0/8:https,1-22",
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
