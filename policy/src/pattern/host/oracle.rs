//! Host patterns against an oracle that knows what was meant, not how it is read.
//!
//! Hosts and patterns are drawn as lists of labels and strings of bits, and are then spelt in one of the ways that there are. What is
//! asked of the parser and of the matching is compared with the drawn ones, label by label, bit by bit and port by port.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failing test may stop")]

use super::{Host, HostPattern};

/// SplitMix64, so that each run asks the same.
struct OracleDice(u64);

impl OracleDice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, sides: usize) -> usize {
        usize::try_from(self.roll() % u64::try_from(sides).unwrap()).unwrap()
    }

    fn one_in(&mut self, sides: usize) -> bool {
        self.below(sides) == 0
    }

    fn of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// Labels in ASCII, and as people write them.
const LABELS: &[(&str, &str)] = &[
    ("a", "a"),
    ("b", "b"),
    ("aa", "aa"),
    ("a-b", "a-b"),
    ("_srv", "_srv"),
    ("0", "0"),
    ("com", "com"),
    ("xn--bcher-kva", "bücher"),
    ("xn--r8jz45g", "例え"),
    ("xn--d1acufc", "домен"),
];
/// The last labels: a number makes an address of a name.
const TOPS: &[(&str, &str)] = &[("com", "com"), ("a", "a"), ("xn--p1ai", "рф")];

type Label = (&'static str, &'static str);

#[derive(Debug, Clone)]
enum Meant {
    Labels(Vec<Label>),
    /// From the first to the last, 32 or 128 of them.
    Bits(Vec<bool>),
}

fn labels(dice: &mut OracleDice) -> Vec<Label> {
    let mut labels: Vec<Label> = (0..dice.below(4)).map(|_| *dice.of(LABELS)).collect();
    labels.push(*dice.of(TOPS));
    labels
}

fn bits_of(octets: &[u8]) -> Vec<bool> {
    octets.iter().flat_map(|octet| (0..8).rev().map(move |bit| octet >> bit & 1 == 1)).collect()
}

fn octets_of(bits: &[bool]) -> Vec<u8> {
    bits.chunks(8).map(|octet| octet.iter().fold(0, |value, bit| value << 1 | u8::from(*bit))).collect()
}

/// Few addresses, so that they are near one another. None of the IPv6 ones holds an IPv4 address.
fn address(dice: &mut OracleDice) -> Vec<bool> {
    if dice.one_in(2) {
        let octets = [*dice.of(&[10, 127, 192]), *dice.of(&[0, 168]), 0, *dice.of(&[0, 1, 255])];
        bits_of(&octets)
    } else {
        let mut octets = [0; 16];
        (octets[0], octets[1]) = *dice.of(&[(0x20, 0x01), (0xfd, 0), (0, 0x99)]);
        octets[3] = *dice.of(&[0xdb, 8]);
        octets[9] = *dice.of(&[0, 0, 7]);
        octets[15] = *dice.of(&[0, 1, 0xff]);
        bits_of(&octets)
    }
}

fn spelt_labels(dice: &mut OracleDice, labels: &[Label]) -> String {
    let unicode = dice.one_in(3);
    let words = labels.iter().map(|(ascii, shown)| if unicode { *shown } else { *ascii });
    let text = words.collect::<Vec<_>>().join(".");
    let text = match dice.below(3) {
        0 => text.to_uppercase(),
        1 => text.chars().enumerate().map(|(at, c)| if at % 2 == 0 { c.to_ascii_uppercase() } else { c }).collect(),
        _ => text,
    };
    if dice.one_in(4) { text + "." } else { text }
}

/// `in_url`: with brackets.
fn spelt_address(dice: &mut OracleDice, bits: &[bool], in_url: bool) -> String {
    let octets = octets_of(bits);
    if octets.len() == 4 {
        return octets.iter().map(ToString::to_string).collect::<Vec<_>>().join(".");
    }
    let groups: Vec<u16> = octets.chunks(2).map(|two| u16::from(two[0]) << 8 | u16::from(two[1])).collect();
    let text = match dice.below(4) {
        0 => groups.iter().map(|group| format!("{group:04x}")).collect::<Vec<_>>().join(":"),
        1 => groups.iter().map(|group| format!("{group:X}")).collect::<Vec<_>>().join(":"),
        2 => {
            let first: Vec<_> = groups[..6].iter().map(|group| format!("{group:x}")).collect();
            format!("{}:{}.{}.{}.{}", first.join(":"), octets[12], octets[13], octets[14], octets[15])
        }
        _ => {
            // The longest run of zeros, or any other.
            let start = groups.iter().position(|group| *group == 0).unwrap();
            let end = groups[start..].iter().position(|group| *group != 0).map_or(8, |length| start + length);
            let hex = |groups: &[u16]| groups.iter().map(|group| format!("{group:x}")).collect::<Vec<_>>().join(":");
            format!("{}::{}", hex(&groups[..start]), hex(&groups[end..]))
        }
    };
    if in_url || dice.one_in(2) { format!("[{text}]") } else { text }
}

/// Spellings that mean no host, or more than one.
fn misspelt(dice: &mut OracleDice, meant: &Meant) -> String {
    match meant {
        Meant::Labels(labels) => {
            let text = labels.iter().map(|(ascii, _)| *ascii).collect::<Vec<_>>().join(".");
            match dice.below(9) {
                0 => format!(".{text}"),
                1 => format!("{text}.."),
                2 => format!("{text}\0.evil"),
                3 => format!("{text}%00"),
                4 => format!("user@{text}"),
                5 => format!("{text} "),
                6 => text.replace('a', "ａ") + "ａ",
                7 => format!("{text}\r\n"),
                _ => format!("-{text}"),
            }
        }
        Meant::Bits(bits) => {
            let octets = octets_of(bits);
            let [a, b, c, d] = octets[octets.len() - 4..] else { unreachable!("there are at least four") };
            let value = u32::from_be_bytes([a, b, c, d]);
            match dice.below(9) {
                0 => format!("0{a:o}.{b}.{c}.{d}"),
                1 => format!("0x{a:x}.{b}.{c}.{d}"),
                2 => format!("{value}"),
                3 => format!("0x{value:x}"),
                4 => format!("{a}.{}", value & 0xff_ffff),
                5 => format!("::ffff:{a}.{b}.{c}.{d}"),
                6 => format!("64:ff9b::{:x}:{:x}", value >> 16, value & 0xffff),
                7 => format!("2002:{:x}:{:x}::1", value >> 16, value & 0xffff),
                _ => format!("fe80::{a:x}%eth0"),
            }
        }
    }
}

#[derive(Debug, Clone)]
enum GrantedHosts {
    Exactly(Meant),
    Below(Vec<Label>),
    /// Its first bits.
    Network(Vec<bool>, usize),
}

fn granted(dice: &mut OracleDice) -> (GrantedHosts, String) {
    match dice.below(4) {
        0 => {
            let labels = labels(dice);
            let text = spelt_labels(dice, &labels);
            (GrantedHosts::Exactly(Meant::Labels(labels)), text)
        }
        1 => {
            let labels = labels(dice);
            let text = format!("*.{}", spelt_labels(dice, &labels));
            (GrantedHosts::Below(labels), text)
        }
        2 => {
            let bits = address(dice);
            let text = spelt_address(dice, &bits, true);
            (GrantedHosts::Exactly(Meant::Bits(bits)), text)
        }
        _ => {
            let mut bits = address(dice);
            let all = bits.len();
            let length = *dice.of(&[0, 1, 7, 8, 9, 16, 31, 32]);
            bits[length..].fill(false);
            // What is left could hold an IPv4 address.
            let is_clear = all == 32 || bits[..16].iter().any(|bit| *bit);
            let (bits, length) = if is_clear || length == 0 { (bits, length) } else { (vec![false; all], 0) };
            let text = if bits.iter().any(|bit| *bit) || all == 32 {
                spelt_address(dice, &bits, true)
            } else {
                "[::]".to_owned()
            };
            (GrantedHosts::Network(bits, length), format!("{text}/{length}"))
        }
    }
}

/// Ports one by one, and how they are written.
fn ports(dice: &mut OracleDice) -> (Vec<(u16, u16)>, String) {
    let mut meant = Vec::new();
    let mut texts = Vec::new();
    for _ in 0..dice.below(4) {
        let (first, last) =
            *dice.of(&[(80, 80), (443, 443), (22, 22), (8000, 8009), (79, 81), (1, 65535), (65535, 65535)]);
        let text = match (first, last) {
            (80, 80) if dice.one_in(2) => "http".to_owned(),
            (443, 443) if dice.one_in(2) => "https".to_owned(),
            (1, 65535) if dice.one_in(2) => "*".to_owned(),
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("{first}-{last}"),
        };
        meant.push((first, last));
        texts.push(text);
    }
    if meant.is_empty() {
        return (vec![(80, 80), (443, 443)], String::new());
    }
    (meant, format!(":{}", texts.join(",")))
}

fn covers(granted: &GrantedHosts, host: &Meant) -> bool {
    match (granted, host) {
        (GrantedHosts::Exactly(Meant::Labels(mine)), Meant::Labels(labels)) => {
            mine.len() == labels.len() && mine.iter().zip(labels).all(|(mine, label)| mine.0 == label.0)
        }
        (GrantedHosts::Below(parent), Meant::Labels(labels)) => {
            let tail = labels.iter().rev().zip(parent.iter().rev()).take_while(|(label, mine)| label.0 == mine.0);
            labels.len() > parent.len() && tail.count() == parent.len()
        }
        (GrantedHosts::Exactly(Meant::Bits(mine)), Meant::Bits(bits)) => mine == bits,
        (GrantedHosts::Network(mine, length), Meant::Bits(bits)) => {
            mine.len() == bits.len() && mine[..*length].iter().zip(bits).all(|(mine, bit)| mine == bit)
        }
        (
            GrantedHosts::Exactly(_) | GrantedHosts::Below(_) | GrantedHosts::Network(..),
            Meant::Labels(_) | Meant::Bits(_),
        ) => false,
    }
}

/// Attack B10: 100,000 spellings of hosts, each against a pattern: covered if and only if the host that it means was granted, and
/// refused if it means none.
#[test]
fn b10_a_host_is_what_it_is_in_any_spelling() {
    let mut dice = OracleDice(22);
    let (mut covered, mut refused) = (0, 0);
    for _ in 0..2000 {
        let (granted, text) = granted(&mut dice);
        let (granted_ports, suffix) = ports(&mut dice);
        let text = text + &suffix;
        let pattern = HostPattern::parse(&text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert_eq!(HostPattern::parse(&pattern.to_string()).as_ref(), Ok(&pattern), "{text:?} survives printing");
        for _ in 0..50 {
            let host = if dice.one_in(2) { Meant::Labels(labels(&mut dice)) } else { Meant::Bits(address(&mut dice)) };
            let port = *dice.of(&[0, 1, 22, 79, 80, 81, 443, 7999, 8000, 8009, 8010, 65535]);
            if dice.one_in(8) {
                let spelt = misspelt(&mut dice, &host);
                assert!(Host::parse(&spelt).is_err() && !pattern.matches(&spelt, port), "{spelt:?} for {text:?}");
                refused += 1;
                continue;
            }
            let spelt = match &host {
                Meant::Labels(labels) => spelt_labels(&mut dice, labels),
                Meant::Bits(bits) => spelt_address(&mut dice, bits, false),
            };
            let at_port = granted_ports.iter().any(|(first, last)| (*first..=*last).any(|each| each == port));
            let meant = at_port && covers(&granted, &host);
            assert_eq!(pattern.matches(&spelt, port), meant, "{text:?} and {spelt:?} at {port}");
            covered += usize::from(meant);
        }
    }
    assert!(covered > 1000 && refused > 1000, "{covered} covered, {refused} refused");
}
