//! Addresses that are not the public Internet's: IANA's registries of special-purpose addresses (RFC 6890), and what clouds use.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::pattern::in_network;

/// Metadata services of clouds. All but Azure's lie in blocks that are special anyway.
const METADATA_V4: [[u8; 4]; 4] = [[169, 254, 169, 254], [100, 100, 100, 200], [192, 0, 0, 192], [168, 63, 129, 16]];
const METADATA_V6: [[u16; 8]; 3] = [
    [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254],
    [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254],
    [0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe],
];
const METADATA: &str = "the metadata service of a cloud";

/// Networks of IPv4 that are not given out for the Internet, the narrower first.
const V4: &[([u8; 4], u8, Option<&str>)] = &[
    ([0, 0, 0, 0], 32, Some("the unspecified address")),
    ([0, 0, 0, 0], 8, Some("this network")),
    ([10, 0, 0, 0], 8, Some("a private network")),
    ([100, 64, 0, 0], 10, Some("a provider's shared network")),
    ([127, 0, 0, 0], 8, Some("loopback")),
    ([169, 254, 0, 0], 16, Some("link-local")),
    ([172, 16, 0, 0], 12, Some("a private network")),
    // Anycast addresses of PCP and TURN, which are reachable from anywhere.
    ([192, 0, 0, 9], 32, None),
    ([192, 0, 0, 10], 32, None),
    ([192, 0, 0, 0], 24, Some("reserved for protocols")),
    ([192, 0, 2, 0], 24, Some("for documentation")),
    ([192, 88, 99, 0], 24, Some("the relays of 6to4")),
    ([192, 168, 0, 0], 16, Some("a private network")),
    ([198, 18, 0, 0], 15, Some("for benchmarks, and where callgate answers for names")),
    ([198, 51, 100, 0], 24, Some("for documentation")),
    ([203, 0, 113, 0], 24, Some("for documentation")),
    ([224, 0, 0, 0], 4, Some("multicast")),
    ([255, 255, 255, 255], 32, Some("broadcast")),
    ([240, 0, 0, 0], 4, Some("reserved")),
];

/// Networks of IPv6 that are not given out. What is in none of these and not in `2000::/3` is not given out either.
const V6: &[([u16; 8], u8, Option<&str>)] = &[
    ([0; 8], 128, Some("the unspecified address")),
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, Some("loopback")),
    ([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, Some("a translation to IPv4 of the local network")),
    ([0x100, 0, 0, 0, 0, 0, 0, 0], 64, Some("for discarding")),
    // Anycast addresses of PCP, TURN and SRP; AMT, AS112, ORCHIDv2 and drones.
    ([0x2001, 1, 0, 0, 0, 0, 0, 1], 128, None),
    ([0x2001, 1, 0, 0, 0, 0, 0, 2], 128, None),
    ([0x2001, 1, 0, 0, 0, 0, 0, 3], 128, None),
    ([0x2001, 3, 0, 0, 0, 0, 0, 0], 32, None),
    ([0x2001, 4, 0x112, 0, 0, 0, 0, 0], 48, None),
    ([0x2001, 0x20, 0, 0, 0, 0, 0, 0], 28, None),
    ([0x2001, 0x30, 0, 0, 0, 0, 0, 0], 28, None),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, Some("reserved for protocols")),
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, Some("for documentation")),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, Some("for documentation")),
    ([0x2000, 0, 0, 0, 0, 0, 0, 0], 3, None),
    ([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16, Some("for segment routing")),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, Some("a private network (unique local)")),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, Some("link-local")),
    ([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, Some("a private network (site-local)")),
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, Some("multicast")),
    ([0; 8], 0, Some("reserved")),
];

pub(super) fn special(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => special_v4(address),
        IpAddr::V6(address) => special_v6(address),
    }
}

/// True if a network has such addresses.
pub(super) fn is_in(network: IpAddr, prefix: u8) -> bool {
    let blocks_v4 = || V4.iter().filter(|(.., what)| what.is_some()).map(|(block, ..)| IpAddr::from(*block));
    let blocks_v6 = || V6.iter().filter(|(.., what)| what.is_some()).map(|(block, ..)| IpAddr::from(*block));
    // A block begins in the network, or holds its beginning.
    special(network).is_some()
        || blocks_v4().chain(blocks_v6()).any(|block| in_network(block, network, prefix))
        || METADATA_V4.iter().any(|address| in_network(IpAddr::from(*address), network, prefix))
}

fn special_v4(address: Ipv4Addr) -> Option<&'static str> {
    if METADATA_V4.contains(&address.octets()) {
        return Some(METADATA);
    }
    let holds = |block: &[u8; 4], length: u8| {
        let shift = 32 - u32::from(length);
        address.to_bits() >> shift == u32::from_be_bytes(*block) >> shift
    };
    V4.iter().find(|(block, length, _)| holds(block, *length)).and_then(|(_, _, what)| *what)
}

fn special_v6(address: Ipv6Addr) -> Option<&'static str> {
    if METADATA_V6.contains(&address.segments()) {
        return Some(METADATA);
    }
    let (held, is_public) = held(address);
    if let Some(what) = held.into_iter().flatten().find_map(special_v4) {
        return Some(what);
    }
    if is_public {
        return None;
    }
    let holds = |block: &[u16; 8], length: u8| {
        let shift = 128 - u32::from(length);
        let of = |address: Ipv6Addr| address.to_bits().checked_shr(shift).unwrap_or(0);
        of(address) == of(Ipv6Addr::from(*block))
    };
    V6.iter().find(|(block, length, _)| holds(block, *length)).and_then(|(_, _, what)| *what)
}

/// The IPv4 addresses in an IPv6 address, and whether it is public if they are.
fn held(address: Ipv6Addr) -> ([Option<Ipv4Addr>; 2], bool) {
    let segments = address.segments();
    let at = |place: usize| {
        let bits = (u32::from(segments[place]) << 16) | u32::from(segments[place + 1]);
        Some(Ipv4Addr::from_bits(bits))
    };
    match segments {
        // `::` and `::1` are none.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => ([None, None], false),
        // v4-mapped, and NAT64 (RFC 6052).
        [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => ([at(6), None], true),
        // v4-compatible, SIIT, and NAT64 of the local network: not public, whatever they hold.
        [0, 0, 0, 0, 0, 0, ..] | [0, 0, 0, 0, 0xffff, 0, ..] | [0x64, 0xff9b, 1, ..] => ([at(6), None], false),
        // 6to4.
        [0x2002, ..] => ([at(1), None], true),
        // Teredo: a server, and a client with its bits turned.
        [0x2001, 0, ..] => ([at(2), at(6).map(|client| Ipv4Addr::from_bits(!client.to_bits()))], true),
        // ISATAP.
        [_, _, _, _, 0 | 0x200, 0x5efe, ..] => ([at(6), None], false),
        _ => ([None, None], false),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use super::*;
    use crate::pattern::{Host, HostPattern};
    use crate::plan::{Carries, Network};

    /// IANA's IPv4 and IPv6 special-purpose address registries, each block with whether it is globally reachable; and blocks
    /// that are given out.
    const REGISTRIES: &[(&str, u8, bool)] = &[
        ("0.0.0.0", 8, false),
        ("0.0.0.0", 32, false),
        ("10.0.0.0", 8, false),
        ("100.64.0.0", 10, false),
        ("127.0.0.0", 8, false),
        ("169.254.0.0", 16, false),
        ("172.16.0.0", 12, false),
        ("192.0.0.0", 29, false),
        ("192.0.0.8", 32, false),
        ("192.0.0.9", 32, true),
        ("192.0.0.10", 32, true),
        ("192.0.0.170", 32, false),
        ("192.0.0.171", 32, false),
        ("192.0.2.0", 24, false),
        ("192.31.196.0", 24, true),
        ("192.52.193.0", 24, true),
        // Deprecated.
        ("192.88.99.0", 24, false),
        ("192.168.0.0", 16, false),
        ("192.175.48.0", 24, true),
        ("198.18.0.0", 15, false),
        ("198.51.100.0", 24, false),
        ("203.0.113.0", 24, false),
        ("224.0.0.0", 4, false),
        ("240.0.0.0", 4, false),
        ("255.255.255.255", 32, false),
        ("::1", 128, false),
        ("::", 128, false),
        ("64:ff9b:1::", 48, false),
        ("100::", 64, false),
        ("100:0:0:1::", 64, false),
        ("2001:1::1", 128, true),
        ("2001:1::2", 128, true),
        ("2001:1::3", 128, true),
        ("2001:2::", 48, false),
        ("2001:3::", 32, true),
        ("2001:4:112::", 48, true),
        ("2001:10::", 28, false),
        ("2001:20::", 28, true),
        ("2001:30::", 28, true),
        ("2001:db8::", 32, false),
        ("2620:4f:8000::", 48, true),
        ("3fff::", 20, false),
        ("5f00::", 16, false),
        ("fc00::", 7, false),
        ("fe80::", 10, false),
        ("fec0::", 10, false),
        ("ff00::", 8, false),
        // Not special.
        ("1.0.0.0", 8, true),
        ("9.255.0.0", 16, true),
        ("11.0.0.0", 8, true),
        ("100.63.0.0", 16, true),
        ("100.128.0.0", 16, true),
        ("126.0.0.0", 8, true),
        ("128.0.0.0", 16, true),
        ("169.253.0.0", 16, true),
        ("172.15.0.0", 16, true),
        ("172.32.0.0", 16, true),
        ("192.0.1.0", 24, true),
        ("192.0.3.0", 24, true),
        ("192.169.0.0", 16, true),
        ("198.17.0.0", 16, true),
        ("198.20.0.0", 16, true),
        ("223.255.255.0", 24, true),
        ("2400:cb00::", 32, true),
        ("2a00:1450::", 32, true),
        ("2606:2800::", 32, true),
        ("2001:200::", 32, true),
        ("2001:db7::", 32, true),
        ("2001:db9::", 32, true),
        // Given out for nothing.
        ("1::", 16, false),
        ("4000::", 3, false),
        ("8000::", 3, false),
        ("f000::", 5, false),
    ];

    fn ends(block: &str, length: u8) -> [IpAddr; 2] {
        match block.parse().unwrap() {
            IpAddr::V4(first) => {
                let last = first.to_bits() | u32::MAX.checked_shr(length.into()).unwrap_or(0);
                [first.into(), Ipv4Addr::from_bits(last).into()]
            }
            IpAddr::V6(first) => {
                let last = first.to_bits() | u128::MAX.checked_shr(length.into()).unwrap_or(0);
                [first.into(), Ipv6Addr::from_bits(last).into()]
            }
        }
    }

    /// Attack B12: every block of the registries, at both of its ends.
    #[test]
    fn special_blocks_are_those_of_the_registries() {
        for (block, length, is_global) in REGISTRIES {
            for address in ends(block, *length) {
                assert_eq!(Network::special(address).is_none(), *is_global, "{address} of {block}/{length}");
            }
        }
        for address in ["169.254.169.254", "fd00:ec2::254", "168.63.129.16", "100.100.100.200"] {
            assert_eq!(Network::special(address.parse().unwrap()), Some(METADATA), "{address}");
        }
    }

    /// Attack B10: an IPv4 address in IPv6 is what it is.
    #[test]
    fn what_holds_an_ipv4_address_is_judged_by_it() {
        let forms = |address: Ipv4Addr| {
            let [a, b] = [address.to_bits() >> 16, address.to_bits() & 0xffff];
            let turned = !address.to_bits();
            [
                format!("::ffff:{a:x}:{b:x}"),
                format!("64:ff9b::{a:x}:{b:x}"),
                format!("2002:{a:x}:{b:x}::1"),
                format!("2001:0:{a:x}:{b:x}:0:0:f7f7:f7f7"),
                format!("2001:0:808:808:0:0:{:x}:{:x}", turned >> 16, turned & 0xffff),
            ]
        };
        for (address, is_special) in
            [("127.0.0.1", true), ("10.1.2.3", true), ("169.254.169.254", true), ("8.8.8.8", false), ("1.1.1.1", false)]
        {
            for form in forms(address.parse().unwrap()) {
                assert_eq!(Network::special(form.parse().unwrap()).is_some(), is_special, "{address} as {form}");
            }
        }
        for form in ["::808:808", "::ffff:0:808:808", "64:ff9b:1::808:808", "2a00::5efe:a00:1"] {
            assert!(Network::special(form.parse().unwrap()).is_some(), "{form}");
        }
        assert_eq!(Network::special("2a00::5efe:808:808".parse().unwrap()), None);
    }

    /// A name's grant never reaches an address; an address's, a network's and that of `localhost` do, at their ports alone.
    #[test]
    fn addresses_are_granted_as_such() {
        let network = |hosts: &[&str]| Network {
            hosts: hosts.iter().map(|host| HostPattern::parse(host).unwrap()).collect(),
            secured: None,
            past_session: false,
            carries: Carries::UNBOUNDED,
        };
        let allows = |network: &Network, address: &str, port| network.allows_address(address.parse().unwrap(), port);
        let granted = network(&["a.com", "*.b.com:*", "10.0.0.0/8:22,8000-8010", "[fd00::1]:5432", "localhost:3000"]);
        for (address, port) in [
            ("10.1.2.3", 22),
            ("10.255.255.255", 8005),
            ("::ffff:10.1.2.3", 22),
            ("fd00::1", 5432),
            ("127.0.0.1", 3000),
            ("::1", 3000),
        ] {
            assert!(allows(&granted, address, port), "{address} {port}");
        }
        for (address, port) in [
            ("10.1.2.3", 80),
            ("10.1.2.3", 8011),
            ("11.0.0.1", 22),
            ("64:ff9b::10.1.2.3", 22),
            ("fd00::2", 5432),
            ("127.0.0.1", 80),
            ("127.0.0.2", 3000),
            ("93.184.216.34", 443),
        ] {
            assert!(!allows(&granted, address, port), "{address} {port}");
        }
        assert!(!allows(&network(&[]), "10.1.2.3", 22), "B11: nothing granted is nothing reached");
    }

    /// F16: a person who grants a host is told that it is a way out; and what else is in a network.
    #[test]
    fn f16_a_granted_host_is_called_a_way_out() {
        let cautions = |hosts: &[&str]| {
            let hosts: Vec<HostPattern> = hosts.iter().map(|host| HostPattern::parse(host).unwrap()).collect();
            Network::cautions(&hosts)
        };
        assert!(cautions(&[]).is_empty());
        let said = cautions(&["pypi.org"]);
        assert!(matches!(&said[..], [one] if one.contains("to anybody")), "{said:?}");
        assert_eq!(cautions(&["8.8.8.0/24", "2606:2800::/32"]).len(), 1);
        for host in ["0.0.0.0/0:443", "::/0", "10.1.2.3", "160.0.0.0/4", "localhost:3000", "127.0.0.1:*"] {
            let said = cautions(&["a.com", host]);
            assert!(said.len() == 2 && said[1].starts_with(host), "{said:?}");
        }
    }

    /// A port that is named is for any protocol, and what no pattern names is for the web.
    #[test]
    fn a_pattern_without_ports_is_for_the_web() {
        let host = Host::parse("a.com").unwrap();
        for (hosts, port, only) in [
            (&["a.com"][..], 443, true),
            (&["*.com", "a.com:https"], 443, true),
            (&["a.com", "a.com:443"], 443, false),
            (&["a.com:*"], 80, false),
            (&["a.com:22"], 443, false),
        ] {
            let network = Network {
                hosts: hosts.iter().map(|host| HostPattern::parse(host).unwrap()).collect(),
                secured: None,
                past_session: false,
                carries: Carries::UNBOUNDED,
            };
            assert_eq!(network.only_web(&host, port), only, "{hosts:?} {port}");
        }
    }
}
