//! Who may speak.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HOST, HeaderValue, ORIGIN};
use hyper::{StatusCode, Uri};
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};

use super::refusal::Refusal;

/// Least and most characters of a token.
const SHORTEST: usize = 32;
const LONGEST: usize = 512;

/// Token that a client shows to be let in: 32 random bytes in hexadecimal, if callgate makes it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// Reason why a text is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// It could be guessed, or is no line of a file of tokens.
    #[error("a token has 32 to 512 characters")]
    Length,
    /// It could not stand in a header.
    #[error("a token has letters, digits and -._~+/= alone")]
    Character,
    /// The kernel gave no random bytes.
    #[error("there are no random bytes")]
    Random,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// Makes one.
    ///
    /// # Errors
    /// [`TokenError::Random`]
    pub fn make() -> Result<Self, TokenError> {
        let mut bytes = [0_u8; 32];
        let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        match filled {
            Ok(32) => Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect())),
            Ok(_) | Err(_) => Err(TokenError::Random),
        }
    }

    /// Takes one that somebody else has made.
    ///
    /// # Errors
    /// [`TokenError`]
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        if !(SHORTEST..=LONGEST).contains(&text.len()) {
            return Err(TokenError::Length);
        }
        match text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte)) {
            true => Ok(Self(text.to_owned())),
            false => Err(TokenError::Character),
        }
    }

    /// As a client sends it after `Bearer`.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// Whose a token is: its place among the tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Holder(u32);

#[cfg(test)]
impl Holder {
    pub(super) fn of(number: u32) -> Self {
        Self(number)
    }
}

pub(super) struct Door {
    /// Names of this server for those who mean it: with its port, so that a page of another server is not its own.
    hosts: Vec<String>,
    origins: Vec<String>,
    tokens: Vec<Token>,
}

impl Door {
    pub(super) fn new(addresses: &[SocketAddr], tokens: Vec<Token>) -> Self {
        let mut hosts = Vec::new();
        for address in addresses {
            hosts.push(address.to_string());
            if address.port() == 80 {
                hosts.push(if address.is_ipv6() { format!("[{}]", address.ip()) } else { address.ip().to_string() });
            }
        }
        // A client may take the name for either address. Whoever listens at the one that is not this server's is sent the token.
        let has = |ip: IpAddr| addresses.iter().find(|address| address.ip() == ip);
        if let (Some(address), Some(_)) = (has(Ipv4Addr::LOCALHOST.into()), has(Ipv6Addr::LOCALHOST.into())) {
            hosts.push(format!("localhost:{}", address.port()));
            if address.port() == 80 {
                hosts.push("localhost".to_owned());
            }
        }
        let origins = hosts.iter().map(|host| format!("http://{host}")).collect();
        Self { hosts, origins, tokens }
    }

    pub(super) fn holders(&self) -> usize {
        self.tokens.len()
    }

    pub(super) fn hosts(&self) -> &[String] {
        &self.hosts
    }

    pub(super) fn origins(&self) -> &[String] {
        &self.origins
    }

    /// Whose request it is. A page in a browser on this machine can send requests here, by this address or by a name of its own that it
    /// makes lead here (F17): it has another Origin or another Host, and no token.
    pub(super) fn admit(&self, uri: &Uri, headers: &HeaderMap) -> Result<Holder, Refusal> {
        let means_us = |host: &str| self.hosts.iter().any(|ours| ours.eq_ignore_ascii_case(host));
        let host = only(headers, HOST.as_str()).flatten();
        if !host.is_some_and(means_us) || !uri.authority().is_none_or(|authority| means_us(authority.as_str())) {
            return Err(
                Refusal::new(StatusCode::FORBIDDEN, "this server is not the host that the request names").last()
            );
        }
        let is_ours = |origin: &str| self.origins.iter().any(|ours| ours.eq_ignore_ascii_case(origin));
        match only(headers, ORIGIN.as_str()) {
            None => {}
            Some(Some(origin)) if is_ours(origin) => {}
            Some(_) => {
                return Err(
                    Refusal::new(StatusCode::FORBIDDEN, "pages of other servers may not send requests here").last()
                );
            }
        }
        let shown = only(headers, AUTHORIZATION.as_str()).flatten().and_then(|value| value.split_once(' '));
        let shown = shown.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("Bearer")).map(|(_, token)| token.trim());
        shown.and_then(|shown| self.holder(shown)).ok_or_else(Refusal::unknown)
    }

    /// Takes as long for a token that is nearly right as for any other.
    fn holder(&self, shown: &str) -> Option<Holder> {
        let (mut found, mut holder) = (Choice::from(0), 0_u32);
        for (number, token) in (0_u32..).zip(&self.tokens) {
            let is_it = token.0.as_bytes().ct_eq(shown.as_bytes());
            holder.conditional_assign(&number, is_it);
            found |= is_it;
        }
        bool::from(found).then_some(Holder(holder))
    }
}

/// The value of a header: `None` if it is not there, `Some(None)` if it is there twice or is no text, which is no value.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<Option<&'a str>> {
    let mut all = headers.get_all(name).iter();
    let first = all.next()?;
    let text = |value: &'a HeaderValue| value.to_str().ok();
    Some(if all.next().is_none() { text(first) } else { None })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]

    use super::*;

    const GOOD: &str = "0123456789abcdef0123456789abcdef";

    fn status(headers: &[(&'static str, &str)], uri: &str) -> Result<Holder, StatusCode> {
        status_at(&["127.0.0.1:8931"], headers, uri)
    }

    fn status_at(addresses: &[&str], headers: &[(&'static str, &str)], uri: &str) -> Result<Holder, StatusCode> {
        let tokens = [GOOD, &GOOD.repeat(2)].map(|token| Token::parse(token).unwrap());
        let addresses: Vec<SocketAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        let door = Door::new(&addresses, tokens.to_vec());
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.append(*name, value.parse().unwrap());
        }
        door.admit(&uri.parse().unwrap(), &all).map_err(|refusal| refusal.status())
    }

    #[test]
    fn f17_who_means_another_host_or_comes_from_another_page_is_refused() {
        let token = ("authorization", format!("Bearer {GOOD}"));
        let token = (token.0, token.1.as_str());
        let host = ("host", "127.0.0.1:8931");
        assert_eq!(status(&[host, token], "/mcp"), Ok(Holder(0)));
        assert_eq!(status(&[host, token, ("origin", "http://127.0.0.1:8931")], "/mcp"), Ok(Holder(0)));
        let second = format!("bearer {}", GOOD.repeat(2));
        assert_eq!(status(&[host, ("authorization", &second)], "/mcp"), Ok(Holder(1)));
        for other in
            ["evil.example", "evil.example:8931", "127.0.0.1", "127.0.0.1:8932", "[::1]:8931", "127.0.0.1:8931."]
        {
            assert_eq!(status(&[("host", other), token], "/mcp"), Err(StatusCode::FORBIDDEN), "{other}");
        }
        assert_eq!(status(&[token], "/mcp"), Err(StatusCode::FORBIDDEN));
        assert_eq!(status(&[host, host, token], "/mcp"), Err(StatusCode::FORBIDDEN));
        assert_eq!(status(&[host, token], "http://evil.example/mcp"), Err(StatusCode::FORBIDDEN));
        for origin in
            ["null", "http://evil.example", "http://127.0.0.1:80", "https://127.0.0.1:8931", "http://127.0.0.1"]
        {
            let refused = status(&[host, token, ("origin", origin)], "/mcp");
            assert_eq!(refused, Err(StatusCode::FORBIDDEN), "{origin}");
        }
        let shown =
            [&GOOD[1..], &format!("{GOOD}0"), "", "x", &GOOD.to_uppercase()].map(|token| format!("Bearer {token}"));
        for shown in shown.iter().map(String::as_str).chain([GOOD, "Basic x", "Bearer"]) {
            let refused = status(&[host, ("authorization", shown)], "/mcp");
            assert_eq!(refused, Err(StatusCode::UNAUTHORIZED), "{shown}");
        }
        assert_eq!(status(&[host, token, token], "/mcp"), Err(StatusCode::UNAUTHORIZED));
        assert_eq!(status(&[host], "/mcp"), Err(StatusCode::UNAUTHORIZED));
    }

    /// F17: a name of two addresses is this server's if both are.
    #[test]
    fn f17_localhost_is_this_server_if_both_its_addresses_are() {
        let token = ("authorization", format!("Bearer {GOOD}"));
        let token = (token.0, token.1.as_str());
        let (v4, v6) = ("127.0.0.1:8931", "[::1]:8931");
        for host in ["localhost:8931", "LocalHost:8931", v4, v6] {
            assert_eq!(status_at(&[v4, v6], &[("host", host), token], "/mcp"), Ok(Holder(0)), "{host}");
        }
        let page = ("origin", "http://localhost:8931");
        assert_eq!(status_at(&[v4, v6], &[("host", v4), token, page], "/mcp"), Ok(Holder(0)));
        for address in [v4, v6] {
            assert_eq!(status_at(&[address], &[("host", address), token], "/mcp"), Ok(Holder(0)));
            let refused = status_at(&[address], &[("host", "localhost:8931"), token], "/mcp");
            assert_eq!(refused, Err(StatusCode::FORBIDDEN), "{address}");
            let refused = status_at(&[address], &[("host", address), token, page], "/mcp");
            assert_eq!(refused, Err(StatusCode::FORBIDDEN), "{address}");
        }
    }

    #[test]
    fn a_token_is_long_and_fits_a_header() {
        let (one, other) = (Token::make().unwrap(), Token::make().unwrap());
        assert_ne!(one, other);
        assert_eq!(Token::parse(one.text()), Ok(one.clone()));
        assert!(!format!("{one:?}").contains(one.text()));
        assert_eq!(Token::parse("short"), Err(TokenError::Length));
        assert_eq!(Token::parse(&"x".repeat(513)), Err(TokenError::Length));
        assert_eq!(Token::parse(&format!("{GOOD} {GOOD}")), Err(TokenError::Character));
    }
}
