//! Names inside the sandbox: granted ones have an address each, which stands for nothing but the name; others do not exist.
//!
//! Nothing that a program asks is passed on but the name itself, if it was granted: a question about any other is a message to
//! whoever answers for it (B4).

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use callgate_policy::pattern::Host;
use callgate_policy::plan::{NAMES_NETWORK, Network};
use hickory_proto::op::{Edns, Message, MessageType, Metadata, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, PTR};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

/// Most bytes of a question.
pub(super) const QUESTION_MAX: usize = 4096;
/// Most names that have an address at once.
const NAMES_MAX: usize = 65_536;
/// How long a program may keep an answer, seconds. The address stays the name's, but what it leads to may not exist for long.
const TTL: u32 = 60;
/// Most bytes of an answer by UDP.
const PAYLOAD: u16 = 1232;

/// Which address stands for which name.
#[derive(Debug, Default)]
pub(super) struct NameBook {
    numbers: HashMap<Arc<str>, u32>,
    names: HashMap<u32, (Arc<str>, u64)>,
    /// By when they were used last.
    used: BTreeMap<u64, u32>,
    clock: u64,
}

impl NameBook {
    /// The address that stands for a name, for as long as no 65,536 others were used since.
    pub(super) fn address_of(&mut self, name: &str) -> Ipv4Addr {
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None => self.enter(name),
        };
        self.touch(number);
        address(number)
    }

    /// The name for which an address stands.
    pub(super) fn name_at(&mut self, ip: IpAddr) -> Option<Arc<str>> {
        let IpAddr::V4(ip) = ip else { return None };
        let number = number(ip)?;
        let name = Arc::clone(&self.names.get(&number)?.0);
        self.touch(number);
        Some(name)
    }

    fn enter(&mut self, name: &str) -> u32 {
        let oldest = if self.names.len() < NAMES_MAX { None } else { self.used.pop_first() };
        let number = match oldest {
            None => u32::try_from(self.names.len()).unwrap_or(u32::MAX),
            Some((_, oldest)) => {
                if let Some((forgotten, _)) = self.names.remove(&oldest) {
                    self.numbers.remove(&forgotten);
                }
                oldest
            }
        };
        let name: Arc<str> = name.into();
        self.numbers.insert(Arc::clone(&name), number);
        self.names.insert(number, (name, self.clock));
        number
    }

    fn touch(&mut self, number: u32) {
        self.clock += 1;
        if let Some((_, used)) = self.names.get_mut(&number) {
            self.used.remove(used);
            *used = self.clock;
            self.used.insert(self.clock, number);
        }
    }
}

/// Addresses of a network of 256 that some programs take for the network itself, or for all of it.
const UNUSED: u32 = 2;

/// After the first, which is the interface's own.
fn address(number: u32) -> Ipv4Addr {
    let (first, _) = NAMES_NETWORK;
    let (block, place) = ((number + 1) / (256 - UNUSED), (number + 1) % (256 - UNUSED));
    Ipv4Addr::from_bits(first.to_bits() + block * 256 + place)
}

fn number(ip: Ipv4Addr) -> Option<u32> {
    let (first, _) = NAMES_NETWORK;
    let offset = ip.to_bits().checked_sub(first.to_bits())?;
    let (block, place) = (offset / 256, offset % 256);
    if place >= 256 - UNUSED { None } else { (block * (256 - UNUSED) + place).checked_sub(1) }
}

/// Answer to give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NameAnswer {
    /// Nothing: it is no question.
    None,
    /// That it is no proper one, or of a kind that nobody answers here.
    Failure(ResponseCode),
    /// The name exists, and has no record of this kind.
    Empty,
    /// There is no such name. `told` is a name that was asked for its address: that a program could not have it is worth telling.
    NoName { told: Option<String> },
    /// This machine.
    Localhost,
    /// The address of this name, which was granted, if it exists.
    AddressOf(String),
    /// That it has no record of this kind, if it exists. Programs ask for both kinds of address, and take the better answer.
    EmptyOf(String),
    /// The address of one of many that were granted together (`*.example.com`). What it is called may say something.
    AddressOfAny(String),
    /// The name for which this address stands.
    NameAt(Ipv4Addr),
}

impl NameAnswer {
    /// True if somebody outside is asked for it.
    pub(super) fn is_asked_outside(&self) -> bool {
        matches!(self, Self::AddressOf(_) | Self::EmptyOf(_))
    }

    /// The answer without asking anybody outside.
    pub(super) fn unasked(self) -> Self {
        if let Self::AddressOf(name) = self {
            Self::AddressOfAny(name)
        } else if let Self::EmptyOf(_) = self {
            Self::Empty
        } else {
            self
        }
    }
}

/// A question, and what is to be answered.
#[derive(Debug, Clone)]
pub(super) struct NameQuestion {
    message: Message,
    pub(super) answer: NameAnswer,
}

impl NameQuestion {
    /// Reads a question.
    pub(super) fn read(bytes: &[u8], network: &Network) -> Self {
        // Of what is an answer itself, or shorter than a head, nobody waits for one.
        let [id_high, id_low, flags, _, _, _, _, _, _, _, _, _, ..] = *bytes else { return Self::none() };
        if flags & 0x80 != 0 {
            return Self::none();
        }
        match Message::from_vec(bytes) {
            Ok(message) => {
                let answer = judge(&message, network);
                Self { message, answer }
            }
            Err(_) => Self {
                message: Message::new(u16::from_be_bytes([id_high, id_low]), MessageType::Query, OpCode::Query),
                answer: NameAnswer::Failure(ResponseCode::FormErr),
            },
        }
    }

    fn none() -> Self {
        Self { message: Message::new(0, MessageType::Query, OpCode::Query), answer: NameAnswer::None }
    }

    /// The answer: these records, or none, with this code. `None` if it cannot be put into words.
    pub(super) fn answered(&self, code: ResponseCode, records: &[NameRecord]) -> Option<Vec<u8>> {
        let mut answer = Message::new(self.message.metadata.id, MessageType::Response, self.message.metadata.op_code);
        answer.metadata = Metadata::response_from_request(&self.message.metadata);
        // Go takes an answer without it for one of a server that knows nothing.
        answer.metadata.recursion_available = true;
        answer.metadata.checking_disabled = false;
        answer.metadata.response_code = code;
        if let [query] = &*self.message.queries {
            answer.add_query(query.clone());
            for found in records {
                let data = match found {
                    NameRecord::Address(ip) => RData::A(A(*ip)),
                    NameRecord::Name(name) => RData::PTR(PTR(Name::from_ascii(format!("{name}.")).ok()?)),
                };
                answer.add_answer(Record::from_rdata(query.name().clone(), TTL, data));
            }
        }
        if self.message.edns.is_some() {
            let mut edns = Edns::new();
            edns.set_max_payload(PAYLOAD);
            answer.set_edns(edns);
        }
        answer.to_vec().ok()
    }
}

/// Content of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NameRecord {
    Address(Ipv4Addr),
    Name(Arc<str>),
}

fn judge(message: &Message, network: &Network) -> NameAnswer {
    if message.metadata.op_code != OpCode::Query {
        return NameAnswer::Failure(ResponseCode::NotImp);
    }
    if message.edns.as_ref().is_some_and(|edns| edns.version() != 0) {
        return NameAnswer::Failure(ResponseCode::BADVERS);
    }
    let [query] = &*message.queries else { return NameAnswer::Failure(ResponseCode::FormErr) };
    if query.query_class() != DNSClass::IN {
        return NameAnswer::Failure(ResponseCode::Refused);
    }
    let wants_address = matches!(query.query_type(), RecordType::A | RecordType::AAAA | RecordType::ANY);
    if let Some(ip) = reversed(query.name()) {
        return if query.query_type() == RecordType::PTR {
            NameAnswer::NameAt(ip)
        } else {
            NameAnswer::NoName { told: None }
        };
    }
    // What is no host's name in one form for all was not granted, and could not be.
    let Ok(Host::Name(name)) = Host::parse(&query.name().to_ascii()) else { return NameAnswer::NoName { told: None } };
    if name == "localhost" || name.ends_with(".localhost") {
        return if query.query_type() == RecordType::A { NameAnswer::Localhost } else { NameAnswer::Empty };
    }
    let host = Host::Name(name.clone());
    if !knows(network, &host) {
        return NameAnswer::NoName { told: wants_address.then_some(name) };
    }
    let wants = |kind: RecordType| query.query_type() == kind;
    match is_named(network, &host) {
        true if wants(RecordType::A) || wants(RecordType::ANY) => NameAnswer::AddressOf(name),
        true if wants(RecordType::AAAA) => NameAnswer::EmptyOf(name),
        false if wants(RecordType::A) || wants(RecordType::ANY) => NameAnswer::AddressOfAny(name),
        _ => NameAnswer::Empty,
    }
}

/// True if a host was granted at any port.
pub(super) fn knows(network: &Network, host: &Host) -> bool {
    network.hosts.iter().any(|pattern| pattern.ports().ranges().any(|range| pattern.covers(host, *range.start())))
}

/// True if a host was granted by its own name.
pub(super) fn is_named(network: &Network, host: &Host) -> bool {
    network.hosts.iter().any(|pattern| pattern.is_exactly(host))
}

/// The address that a name asks about, if it does that.
fn reversed(name: &Name) -> Option<Ipv4Addr> {
    let text = name.to_ascii().to_ascii_lowercase();
    let numbers = text.trim_end_matches('.').strip_suffix(".in-addr.arpa")?;
    let bytes = numbers.split('.').rev().map(|byte| byte.parse().ok()).collect::<Option<Vec<u8>>>()?;
    Some(<[u8; 4]>::try_from(bytes).ok()?.into())
}
