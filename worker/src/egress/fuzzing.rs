//! The readers of what strangers wrote, for fuzz targets.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use callgate_policy::pattern::{Host, HostPattern};
use callgate_policy::plan::{Carries, Network};
use hickory_proto::op::{Message, ResponseCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::hello::{self, Hello};
use super::http::{self, ConnectionReuse, MadeFor};
use super::meter::{ConnectionAccount, ConnectionMeter, MeteredServer, SessionMeter};
use super::names::{NameAnswer, NameQuestion, NameRecord};
use super::opening::{Spoken, spoken};

/// The one host that is granted.
pub const GRANTED: &str = "good.example";

/// A question for names: what is asked on behalf of it was granted, and the answer is one.
///
/// # Panics
/// If that does not hold.
pub fn question(bytes: &[u8]) {
    let network = Network {
        hosts: HostPattern::parse(GRANTED).into_iter().collect(),
        secured: None,
        past_session: false,
        carries: Carries::UNBOUNDED,
    };
    let question = NameQuestion::read(bytes, &network);
    let found = [NameRecord::Address(Ipv4Addr::LOCALHOST), NameRecord::Name("good.example".into())];
    match &question.answer {
        NameAnswer::None => return,
        NameAnswer::AddressOf(name) => assert_eq!(name, GRANTED),
        NameAnswer::NoName { told: Some(name) } => assert!(Host::parse(name).is_ok() && name != GRANTED),
        NameAnswer::Failure(_)
        | NameAnswer::Empty
        | NameAnswer::NoName { .. }
        | NameAnswer::Localhost
        | NameAnswer::EmptyOf(_)
        | NameAnswer::AddressOfAny(_)
        | NameAnswer::NameAt(_) => {}
    }
    for records in [&found[..], &[]] {
        let answer = question.answered(ResponseCode::NoError, records).expect("there are words for it");
        let read = Message::from_vec(&answer).expect("it is a message");
        assert_eq!(&read.metadata.id.to_be_bytes(), &bytes[..2]);
        assert!(answer.len() <= 1232, "it fits into a datagram");
    }
}

/// A TLS hello: the server that it names is in it, and it names the same in whatever records it comes.
///
/// # Panics
/// If that does not hold.
pub fn hello(bytes: &[u8]) {
    let read = hello::read(bytes);
    if let Some((_, shorter)) = bytes.split_last()
        && hello::read(shorter) != Ok(Hello::Incomplete)
    {
        assert_eq!(hello::read(shorter), read, "what follows changes nothing");
    }
    let Ok(Hello::For(host, _)) = read else { return };
    let name = host.to_string();
    let found = bytes.len() > name.len() * 2; // in pieces, perhaps, each with its head
    assert!(found, "{name} in {} bytes", bytes.len());
}

/// The beginning of a connection: once it is clear what it is, nothing that follows makes it something else.
///
/// # Panics
/// If that does not hold.
pub fn opening(bytes: &[u8]) {
    for length in 0..bytes.len().min(2048) {
        let first = spoken(&bytes[..length]);
        if !matches!(first, Spoken::Undecided | Spoken::Text | Spoken::Odd) {
            assert_eq!(spoken(bytes), first, "after {length} bytes");
            return;
        }
    }
}

/// Part of these bytes, the client's, that reaches an HTTP server.
///
/// # Panics
/// Without a loopback interface.
#[must_use]
pub fn requests(bytes: &[u8]) -> Vec<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("an event loop");
    runtime.block_on(async {
        let (client, theirs) = pair().await;
        let (upstream, mut server) = pair().await;
        let made_for = MadeFor::new(Host::Name(GRANTED.to_owned()), 80);
        let serving = tokio::spawn(http::serve(
            theirs,
            bytes.to_vec(),
            unmetered(upstream),
            (made_for, ConnectionReuse::Open),
            Arc::new(|bad| bad.to_string()),
        ));
        let (mut reads, mut writes) = client.into_split();
        let client = tokio::spawn(async move {
            let _gone = writes.shutdown().await;
            let _end = reads.read_to_end(&mut Vec::new()).await;
        });
        let mut all = Vec::new();
        // Answers whatever may be a head.
        let served = async {
            let mut answered = 0;
            while let Ok(1..) = server.read_buf(&mut all).await {
                let heads = all.windows(4).filter(|window| *window == b"\r\n\r\n").count();
                for _ in answered..heads {
                    let _gone = server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
                }
                answered = heads;
            }
        };
        let _late = tokio::time::timeout(Duration::from_millis(200), served).await;
        serving.abort();
        client.abort();
        all
    })
}

/// For which nothing is bounded.
fn unmetered(server: TcpStream) -> MeteredServer {
    let all = Arc::new(SessionMeter::new(&Carries::UNBOUNDED));
    MeteredServer::new(server, ConnectionAccount::open(Arc::new(ConnectionMeter::new(u64::MAX)), all, Arc::new(drop)))
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.expect("loopback");
    let at = listener.local_addr().expect("it is bound");
    let (one, other) = tokio::join!(TcpStream::connect(at), listener.accept());
    (one.expect("it listens"), other.expect("it listens").0)
}
