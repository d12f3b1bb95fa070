//! Acts where a host may be granted: what leads past it, or from it to another (attacks B5, B6, B10, B13).

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use serde_json::json;

use crate::probe::act::{ProbeAct, act};
use crate::probe::network::address;
use crate::probe::outcome::{ActArgs, ActFailure, ActOutcome};

pub(crate) const ACTS: &[ProbeAct] = &[
    act("tcp-connect-soon", "B5", "ADDR PORT", "connect a TCP socket, and wait two seconds at most", tcp_connect_soon),
    act("http", "B5", "ADDR PORT", "ask for a page", http),
    act("by-proxy", "B10", "PROXY KIND HOST PORT", "ask by a proxy: socks, connect, request", by_proxy),
    act(
        "by-proxy-as",
        "B13",
        "PROXY HOST PORT SAYS NAME",
        "the same by CONNECT, and say http, http-later or tls for NAME",
        by_proxy_as,
    ),
    act("ask-name", "B4", "SERVER NAME", "ask by TCP for the address of a name", ask_name),
];

/// How long an answer of this machine may take, when it is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long a machine may take that may not be there.
const SOON: Duration = Duration::from_secs(2);
/// Most bytes of an answer.
const ANSWER_MAX: u64 = 64 * 1024;
/// A TLS record with an alert (RFC 8446).
const ALERT: u8 = 21;

fn failed(at: &str) -> impl Fn(std::io::Error) -> ActFailure + '_ {
    move |error| {
        let kind = error.kind();
        if kind == ErrorKind::TimedOut || kind == ErrorKind::WouldBlock {
            ActFailure::errno(at, libc::ETIMEDOUT)
        } else if kind == ErrorKind::UnexpectedEof {
            ActFailure::errno(at, libc::ECONNRESET)
        } else {
            ActFailure::io(at, &error)
        }
    }
}

fn tcp_connect_soon(args: &ActArgs<'_>) -> ActOutcome {
    TcpStream::connect_timeout(&address(args)?, SOON).map_err(failed("connect"))?;
    Ok(json!({}))
}

fn connected(to: SocketAddr) -> Result<TcpStream, ActFailure> {
    let stream = TcpStream::connect(to).map_err(failed("connect"))?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed("setsockopt"))?;
    Ok(stream)
}

fn http(args: &ActArgs<'_>) -> ActOutcome {
    let to = address(args)?;
    ask(&mut connected(to)?, &to.to_string())
}

/// One request, and all that is answered. What a proxy or egress answers in a server's place is a refusal.
fn ask(stream: &mut TcpStream, host: &str) -> ActOutcome {
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(failed("request"))?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer).map_err(failed("request"))?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    match status(&answer) {
        Some(200) => Ok(json!({ "answer": answer })),
        Some(code) => Err(ActFailure::errno("request", errno_of_http(code))),
        None => Err(ActFailure::errno("request", libc::ECONNRESET)),
    }
}

fn status(answer: &str) -> Option<u16> {
    answer.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
}

fn errno_of_http(status: u16) -> i32 {
    match status {
        403 | 421 => libc::EACCES,
        502 => libc::EHOSTUNREACH,
        _ => libc::EINVAL,
    }
}

/// RFC 1928.
fn errno_of_socks(code: u8) -> i32 {
    match code {
        2 => libc::EACCES,
        3 => libc::ENETUNREACH,
        4 => libc::EHOSTUNREACH,
        5 => libc::ECONNREFUSED,
        _ => libc::EINVAL,
    }
}

/// A word in which `\0` stands for a byte that no argument can hold.
fn bytes(word: &str) -> Vec<u8> {
    word.replace("\\0", "\0").into_bytes()
}

/// The proxy, the host and the port.
fn proxy(args: &ActArgs<'_>, host: usize) -> Result<(TcpStream, String, u16), ActFailure> {
    let proxy: SocketAddr = args.word(0)?.parse().map_err(|_none| ActFailure::unready("no address of a proxy"))?;
    let port = u16::try_from(args.number(host + 1)?).map_err(|_large| ActFailure::unready("no port"))?;
    Ok((connected(proxy)?, args.word(host)?.to_owned(), port))
}

fn by_proxy(args: &ActArgs<'_>) -> ActOutcome {
    let (mut stream, host, port) = proxy(args, 2)?;
    let authority = format!("{host}:{port}");
    match args.word(1)? {
        "socks" => socks(&mut stream, &host, port)?,
        "connect" => connect(&mut stream, &authority)?,
        "request" => {
            let request = format!("GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
            stream.write_all(&bytes(&request)).map_err(failed("request"))?;
            let mut answer = String::new();
            stream.take(ANSWER_MAX).read_to_string(&mut answer).map_err(failed("request"))?;
            return match status(&answer) {
                Some(200) => Ok(json!({ "answer": answer })),
                Some(code) => Err(ActFailure::errno("request", errno_of_http(code))),
                None => Err(ActFailure::errno("request", libc::ECONNRESET)),
            };
        }
        kind => return Err(ActFailure::unready(format!("{kind} is no kind of proxy"))),
    }
    ask(&mut stream, &authority)
}

fn socks(stream: &mut TcpStream, host: &str, port: u16) -> Result<(), ActFailure> {
    stream.write_all(&[5, 1, 0]).map_err(failed("SOCKS"))?;
    let mut method = [0; 2];
    stream.read_exact(&mut method).map_err(failed("SOCKS"))?;
    let place = match host.trim_matches(['[', ']']).parse() {
        Ok(IpAddr::V4(ip)) => [&[1][..], &ip.octets()].concat(),
        Ok(IpAddr::V6(ip)) => [&[4][..], &ip.octets()].concat(),
        Err(_) => {
            let name = bytes(host);
            let length = u8::try_from(name.len()).map_err(|_long| ActFailure::unready("the name is too long"))?;
            [&[3, length][..], &name].concat()
        }
    };
    let asked = [&[5, 1, 0][..], &place, &port.to_be_bytes()].concat();
    stream.write_all(&asked).map_err(failed("SOCKS"))?;
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).map_err(failed("SOCKS"))?;
    if answer[1] == 0 { Ok(()) } else { Err(ActFailure::errno("SOCKS", errno_of_socks(answer[1]))) }
}

fn connect(stream: &mut TcpStream, authority: &str) -> Result<(), ActFailure> {
    let asked = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
    stream.write_all(&bytes(&asked)).map_err(failed("CONNECT"))?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).map_err(failed("CONNECT"))?;
        head.extend(byte);
    }
    match status(&String::from_utf8_lossy(&head)) {
        Some(200) => Ok(()),
        Some(code) => Err(ActFailure::errno("CONNECT", errno_of_http(code))),
        None => Err(ActFailure::errno("CONNECT", libc::ECONNRESET)),
    }
}

fn by_proxy_as(args: &ActArgs<'_>) -> ActOutcome {
    let (mut stream, host, port) = proxy(args, 1)?;
    let authority = format!("{host}:{port}");
    connect(&mut stream, &authority)?;
    let name = args.word(4)?;
    match args.word(3)? {
        "http" => ask(&mut stream, &format!("{name}:{port}")),
        "http-later" => {
            stream
                .write_all(format!("GET / HTTP/1.1\r\nHost: {authority}\r\n\r\n").as_bytes())
                .map_err(failed("request"))?;
            first_answer(&mut stream)?;
            ask(&mut stream, &format!("{name}:{port}"))
        }
        "tls" => {
            stream.write_all(&hello(name)?).map_err(failed("hello"))?;
            let mut answer = Vec::new();
            stream.take(ANSWER_MAX).read_to_end(&mut answer).map_err(failed("hello"))?;
            match answer.first() {
                None => Err(ActFailure::errno("hello", libc::ECONNRESET)),
                Some(&ALERT) => Err(ActFailure::errno("hello", libc::EACCES)),
                Some(_) => Ok(json!({ "answer": String::from_utf8_lossy(&answer) })),
            }
        }
        what => Err(ActFailure::unready(format!("{what} cannot be said"))),
    }
}

/// Reads one answer of HTTP to its end, which its length tells.
fn first_answer(stream: &mut TcpStream) -> Result<(), ActFailure> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).map_err(failed("request"))?;
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.ok_or_else(|| ActFailure::unready("an answer without its length"))?];
    stream.read_exact(&mut body).map_err(failed("request"))
}

/// The hello of a TLS client that asks for this name.
fn hello(name: &str) -> Result<Vec<u8>, ActFailure> {
    let unready = |what: &dyn std::fmt::Display| ActFailure::unready(format!("no hello: {what}"));
    let name = ServerName::try_from(name.to_owned()).map_err(|error| unready(&error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unready(&error))?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let mut client = ClientConnection::new(Arc::new(config), name).map_err(|error| unready(&error))?;
    let mut hello = Vec::new();
    client.write_tls(&mut hello).map_err(|error| unready(&error))?;
    Ok(hello)
}

fn ask_name(args: &ActArgs<'_>) -> ActOutcome {
    let server: SocketAddr = args.word(0)?.parse().map_err(|_none| ActFailure::unready("no address of a server"))?;
    let name = Name::from_ascii(args.word(1)?).map_err(|error| ActFailure::unready(format!("no name: {error}")))?;
    let mut question = Message::new(7, MessageType::Query, OpCode::Query);
    question.metadata.recursion_desired = true;
    question.add_query(Query::query(name, RecordType::A));
    let question = question.to_vec().map_err(|error| ActFailure::unready(format!("no question: {error}")))?;
    let length = u16::try_from(question.len()).map_err(|_long| ActFailure::unready("the question is too long"))?;
    let mut stream = connected(server)?;
    stream.write_all(&[&length.to_be_bytes()[..], &question].concat()).map_err(failed("question"))?;
    let mut length = [0; 2];
    stream.read_exact(&mut length).map_err(failed("question"))?;
    let mut answer = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut answer).map_err(failed("question"))?;
    let answer = Message::from_vec(&answer).map_err(|error| ActFailure::unready(format!("no answer: {error}")))?;
    let is_address = |record: &&Record| matches!(record.data, RData::A(_));
    let addresses: Vec<String> =
        answer.answers.iter().filter(is_address).map(|record| record.data.to_string()).collect();
    let code = answer.metadata.response_code;
    if code == ResponseCode::NoError && !addresses.is_empty() {
        return Ok(json!({ "addresses": addresses }));
    }
    Err(ActFailure::errno("question", if code == ResponseCode::ServFail { libc::EAGAIN } else { libc::ENOENT }))
}
