//! One connection: what is said first is compared with the name that it was made for (B13).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use callgate_policy::pattern::Host;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::hello::{self, Hello, Hellos};
use super::http::{self, BadRequest, ConnectionReuse, MadeFor, Refused};
use super::meter::MeteredServer;
use super::opening::{self, FirstSpeaker, HTTP2, Spoken};
use super::other::Other;
use super::relay::{FirstBytes, relay};
use super::serving::{Egress, Route};
use super::stream;
use crate::protocol::FromEgress;

/// How long a client has for a hello that it has begun, and to read why it was refused.
const HELLO: Duration = Duration::from_secs(60);
const FAREWELL: Duration = Duration::from_secs(2);
/// A TLS alert: fatal, access denied (RFC 8446).
const ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

impl Egress {
    /// Serves a connection until it ends. `server` is there already if the client has waited for it.
    pub(super) async fn converse(
        self: Arc<Self>,
        client: TcpStream,
        server: Option<MeteredServer>,
        call: u64,
        route: Route,
    ) {
        let server = match server {
            Some(server) => Ok(server),
            None => self.connect(call, &route).await,
        };
        match (&route.made_for, server) {
            // Nobody's name is to be compared, but only HTTP and TLS may have been granted.
            (None, Ok(server)) if route.only_web => self.only_web(client, server, call, &route).await,
            (None, Ok(server)) => relay(client, server, Vec::new(), FirstBytes::Nothing).await,
            (None, Err(_)) => stream::reset(client),
            (Some(made_for), server) => {
                let made_for = made_for.clone();
                self.compare(client, server, call, (route, made_for)).await;
            }
        }
    }

    async fn compare(
        self: Arc<Self>,
        mut client: TcpStream,
        server: Result<MeteredServer, i32>,
        call: u64,
        (route, made_for): (Route, MadeFor),
    ) {
        let is_secured = made_for.outfit.is_secured();
        let may_speak = server.as_ref().ok().filter(|_| !route.only_web && !is_secured).map(|server| &server.socket);
        let Ok(opening) = opening::hear(&mut client, may_speak).await else { return stream::reset(client) };
        match (opening, server) {
            // Egress makes the TLS of what is said here, and of nothing but requests.
            (FirstSpeaker::Client(spoken, _), _) if is_secured && spoken != Spoken::Http => {
                self.ended(call, &route, "egress makes its TLS, and it is no HTTP".to_owned());
                stream::reset(client);
            }
            (FirstSpeaker::Client(spoken, _), _) if let Some(reason) = route.other_than(spoken) => {
                self.ended(call, &route, reason.to_owned());
                stream::reset(client);
            }
            (FirstSpeaker::Client(Spoken::Tls, heard), server) => match self.hello(&mut client, heard, &made_for).await
            {
                Ok((heard, length)) => {
                    let refuse = |reason: String| self.ended(call, &route, reason);
                    let hellos = Hellos::new(&made_for.name, &refuse);
                    forward(client, server, heard, FirstBytes::Hello(&hellos, length)).await;
                }
                Err(Some(reason)) => {
                    self.ended(call, &route, reason);
                    farewell(client, &ACCESS_DENIED).await;
                }
                Err(None) => stream::reset(client),
            },
            (FirstSpeaker::Client(Spoken::Http, heard), Ok(server)) => {
                let refused = self.refused(call, route);
                http::serve(client, heard, server, (made_for, ConnectionReuse::Open), refused).await;
            }
            (FirstSpeaker::Client(Spoken::Http, heard), Err(errno)) => {
                let why = format!("it cannot be reached: {}", io::Error::from_raw_os_error(errno));
                let sentence = format!("{}: {why}", route.host);
                self.ended(call, &route, why);
                http::apologize(client, heard, sentence).await;
            }
            (FirstSpeaker::Client(Spoken::Http2, _), _) => {
                self.ended(call, &route, HTTP2.to_owned());
                let answer = "HTTP/1.1 505 HTTP Version Not Supported\r\nconnection: close\r\n\r\n\
                              callgate: without TLS, only HTTP/1 can be used\n";
                farewell(client, answer.as_bytes()).await;
            }
            (FirstSpeaker::Client(_, heard), _) if route.only_web => {
                // One that was never used is nothing to tell of.
                if !heard.is_empty() {
                    let host = &route.host;
                    self.ended(
                        call,
                        &route,
                        format!("it is neither HTTP nor TLS; a grant for {host} by its port lets all pass"),
                    );
                }
                stream::reset(client);
            }
            (FirstSpeaker::Client(_, heard) | FirstSpeaker::Server(heard), server) => {
                let refuse = |reason| self.ended(call, &route, reason);
                forward(client, server, heard, FirstBytes::Other(&Other::new(&made_for.name, &refuse))).await;
            }
        }
    }

    /// Relays HTTP and TLS, each at its port, and nothing else.
    async fn only_web(&self, mut client: TcpStream, server: MeteredServer, call: u64, route: &Route) {
        let Ok(FirstSpeaker::Client(spoken, heard)) = opening::hear(&mut client, None).await else {
            return stream::reset(client);
        };
        let web = matches!(spoken, Spoken::Tls | Spoken::Http | Spoken::Http2);
        match route.other_than(spoken).or((!web).then_some("it is neither HTTP nor TLS")) {
            None => forward(client, Ok(server), heard, FirstBytes::Nothing).await,
            Some(reason) => {
                if !heard.is_empty() {
                    self.ended(call, route, reason.to_owned());
                }
                stream::reset(client);
            }
        }
    }

    /// Hears the whole hello, and tells its length: more may have come with it. An error is the reason why it is refused; without
    /// one, the client is gone.
    async fn hello(
        &self,
        client: &mut TcpStream,
        mut heard: Vec<u8>,
        made_for: &MadeFor,
    ) -> Result<(Vec<u8>, usize), Option<String>> {
        loop {
            match hello::read(&heard) {
                Err(bad) => return Err(Some(bad.to_string())),
                Ok(Hello::For(host, length)) if host == made_for.name => return Ok((heard, length)),
                Ok(Hello::For(host, _)) => {
                    let known = self.elsewhere(&host, made_for.port);
                    return Err(Some(format!("the TLS hello is for {host}, {known}")));
                }
                Ok(Hello::Incomplete) => {}
            }
            match timeout(HELLO, client.read_buf(&mut heard)).await {
                Ok(Ok(read)) if read > 0 => {}
                Ok(Ok(_) | Err(_)) | Err(_) => return Err(None),
            }
        }
    }

    /// Remark on a host that was named on a connection to another.
    fn elsewhere(&self, host: &Host, port: u16) -> &'static str {
        if self.network.allows(host, port) { "which takes a connection of its own" } else { "which was not granted" }
    }

    /// Tells of requests that are refused, and says what the client is told.
    pub(super) fn refused(self: Arc<Self>, call: u64, route: Route) -> Refused {
        Arc::new(move |bad| {
            let reason = match (bad, &route.made_for) {
                (BadRequest::OtherHost { asked, .. }, Some(made_for)) => {
                    let host = Host::parse(asked);
                    let known = host.map_or("which was not granted", |host| self.elsewhere(&host, made_for.port));
                    format!("{bad}; {asked} is a host {known}")
                }
                _ => bad.to_string(),
            };
            self.ended(call, &route, reason.clone());
            reason
        })
    }

    fn ended(&self, call: u64, route: &Route, reason: String) {
        self.say(FromEgress::Ended { call, host: route.host.clone(), reason: crate::protocol::shortened(reason) });
    }
}

async fn forward(client: TcpStream, server: Result<MeteredServer, i32>, heard: Vec<u8>, first: FirstBytes<'_>) {
    match server {
        Ok(server) => relay(client, server, heard, first).await,
        Err(_) => stream::reset(client),
    }
}

/// Says a last word, and waits for it to be read: what was not read of the client would take it back.
pub(super) async fn farewell(mut client: TcpStream, word: &[u8]) {
    let said = async {
        client.write_all(word).await?;
        client.shutdown().await?;
        let mut rest = [0; 4096];
        while client.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    // A client that does not listen is let go.
    let _late = timeout(FAREWELL, said).await;
}
