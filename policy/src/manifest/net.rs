//! `[net]`: whom `web_search` and `rlm_query` ask, and what egress adds to requests so that no call has to hold it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::path::HostPath;
use crate::pattern::{Host, HostPattern};

/// `[net]`. What may be reached is for `requires.net` to say: nothing here grants a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Net {
    /// Whom `web_search` asks; without it there is no such tool.
    pub search: Option<Search>,
    /// Whose models `rlm_query` asks; without it there is no such tool.
    pub rlm: Option<Rlm>,
    /// Credentials that requests to some hosts get.
    pub credentials: Vec<Credential>,
}

/// `[net.rlm]` (S2-22).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rlm {
    /// Where the interface is: its requests go to `chat/completions` below it.
    pub url: String,
    /// The model that is asked if a call names none.
    pub model: String,
}

impl Rlm {
    /// The model, if the manifest does not say.
    pub const MODEL: &str = "deepseek-v4-flash";
}

impl fmt::Display for Rlm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.model, self.url)
    }
}

/// `[net.search]` (S0-34, S0-35).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Search {
    /// Whom it asks: at least one.
    pub providers: Vec<Provider>,
    /// Most calls of a session.
    pub calls: u64,
    /// How long a call may take, whoever is asked in it.
    pub timeout: Duration,
}

impl Search {
    /// Calls of a session, if the manifest does not say.
    pub const CALLS: u64 = 25;
    /// Time of a call, if the manifest does not say.
    pub const TIMEOUT: Duration = Duration::from_secs(15);
    /// The most time that a manifest may give (X2-17).
    pub const LONGEST: Duration = Duration::from_secs(60);
    /// The most providers.
    pub const PROVIDERS_MAX: usize = 8;
}

/// Whom `web_search` asks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Provider {
    /// Protocol that it speaks.
    pub kind: ProviderKind,
    /// Where it is.
    pub url: String,
}

/// Protocol of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProviderKind {
    /// A `SearXNG` instance, with the format `json` switched on.
    Searxng,
    /// Brave's search API.
    Brave,
    /// Tavily's search API.
    Tavily,
    /// `DuckDuckGo`'s pages for browsers without scripts.
    Duckduckgo,
}

impl ProviderKind {
    /// Names in a manifest.
    pub const NAMES: [&str; 4] = ["searxng", "brave", "tavily", "duckduckgo"];

    /// By its name in a manifest.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "searxng" => Some(Self::Searxng),
            "brave" => Some(Self::Brave),
            "tavily" => Some(Self::Tavily),
            "duckduckgo" => Some(Self::Duckduckgo),
            _ => None,
        }
    }

    /// Its name in a manifest.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Searxng => "searxng",
            Self::Brave => "brave",
            Self::Tavily => "tavily",
            Self::Duckduckgo => "duckduckgo",
        }
    }

    /// Where it is, if there is one for all.
    #[must_use]
    pub fn url(self) -> Option<&'static str> {
        match self {
            Self::Searxng => None,
            Self::Brave => Some("https://api.search.brave.com"),
            Self::Tavily => Some("https://api.tavily.com"),
            Self::Duckduckgo => Some("https://html.duckduckgo.com"),
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.kind.name(), self.url)
    }
}

/// Check of a provider's URL; an error says why the text is none.
pub(super) fn check_provider_url(url: &str) -> Result<(), String> {
    let wanted = || format!("{url:?} is not where a provider can be; write https://HOST, and a path if it has one");
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")).ok_or_else(wanted)?;
    let plain = |c: char| c.is_ascii_graphic() && !"?#@\\%".contains(c);
    if !rest.chars().all(plain) {
        return Err(wanted());
    }
    let authority = rest.split('/').next().unwrap_or(rest);
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let is_port =
        |port: &str| port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0);
    if port.is_some_and(|port| !is_port(port)) {
        return Err(wanted());
    }
    Host::parse(host).map(drop).map_err(|error| error.to_string())
}

/// One of `[[net.credentials]]`: a header that egress adds, with a value that no call sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Credential {
    /// To whose requests. Without ports: at the one that [`Over`] usually has.
    pub host: HostPattern,
    /// To which of them.
    pub over: Over,
    /// Its name, in small letters.
    pub header: String,
    /// Text before the value in it.
    pub prefix: String,
    /// Where the value comes from.
    pub from: CredentialSource,
    /// How the value stands in the header.
    #[serde(default, skip_serializing_if = "Form::is_plain")]
    pub form: Form,
    /// The one tool whose requests it goes with; otherwise it goes with those of all that fetch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_for: Option<String>,
}

/// How a credential's value stands in its header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// As it is, behind the prefix.
    #[default]
    Plain,
    /// As the password of a user without a name (RFC 7617).
    Password,
}

impl Form {
    fn is_plain(&self) -> bool {
        *self == Self::Plain
    }
}

/// Which requests a credential goes with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Over {
    /// Those of callgate's own tools by TLS, which egress makes.
    #[default]
    Https,
    /// Those of every program and tool in the clear: whoever is on the way can read it.
    Http,
}

impl Over {
    /// Names in a manifest.
    pub const NAMES: [&str; 2] = ["https", "http"];

    pub(super) fn parse(name: &str) -> Option<Self> {
        match name {
            "https" => Some(Self::Https),
            "http" => Some(Self::Http),
            _ => None,
        }
    }

    /// Its name in a manifest.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
        }
    }

    fn port(self) -> u16 {
        match self {
            Self::Https => 443,
            Self::Http => 80,
        }
    }
}

/// Where the value of a credential comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CredentialSource {
    /// This variable of the supervisor's own environment.
    Variable(String),
    /// This file: a whole path, or one that starts in the home directory (`~/`).
    File(HostPath),
}

impl fmt::Display for CredentialSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => write!(f, "the variable {name}"),
            Self::File(path) => write!(f, "the file {path}"),
        }
    }
}

impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {} over {}, from {}", self.header, self.host, self.over.name(), self.from)
    }
}

impl Credential {
    /// The most of them.
    pub const MOST: usize = 64;

    /// A token for one of callgate's own tools, which the caller's environment has: it goes to this host by TLS, as a password.
    #[must_use]
    pub fn of_tool(tool: &str, (host, port): (&Host, u16), variable: &str) -> Self {
        Self {
            host: HostPattern::of_host(host, port),
            over: Over::Https,
            header: "authorization".to_owned(),
            prefix: "Basic ".to_owned(),
            from: CredentialSource::Variable(variable.to_owned()),
            form: Form::Password,
            only_for: Some(tool.to_owned()),
        }
    }

    /// True if it goes with the requests of a tool.
    #[must_use]
    pub fn is_for(&self, tool: &str) -> bool {
        self.only_for.as_deref().is_none_or(|its| its == tool)
    }

    /// True if it goes with requests to a host at a port, over what it is for.
    #[must_use]
    pub fn covers(&self, host: &Host, port: u16) -> bool {
        self.host.covers(host, port) && self.is_at(port)
    }

    fn is_at(&self, port: u16) -> bool {
        !self.host.ports().is_web() || port == self.over.port()
    }

    /// True if a request could go with it that one of these patterns grants.
    #[must_use]
    pub fn has_use<'a>(&self, granted: impl IntoIterator<Item = &'a HostPattern>) -> bool {
        let meets = |pattern: &HostPattern| {
            let both = self.host.meet(pattern);
            both.is_some_and(|both| !self.host.ports().is_web() || both.ports().holds(self.over.port()))
        };
        granted.into_iter().any(meets)
    }

    /// True if a request could go with this and with another of the same name, so that one would take the other's place.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        self.header == other.header
            && self.over == other.over
            && self.has_use([&other.host])
            && other.has_use([&self.host])
    }
}

/// Headers that say where a message ends, to whom it goes and by which way: callgate and HTTP itself decide about them.
const NOT_OURS: &[&str] = &[
    "host",
    "connection",
    "content-length",
    "content-type",
    "content-encoding",
    "date",
    "expect",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];

/// The name of a header that may be added, in small letters.
pub(super) fn header_name(name: &str) -> Result<String, String> {
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || name.len() > 128 || !name.bytes().all(is_token) {
        return Err(format!("{name:?} is not the name of a header"));
    }
    let name = name.to_ascii_lowercase();
    if NOT_OURS.contains(&name.as_str()) || name.starts_with("proxy-") {
        return Err(format!("the header {name} is about the message or its way; it is no place for a credential"));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use super::*;

    fn credential(host: &str, over: Over) -> Credential {
        Credential {
            host: HostPattern::parse(host).unwrap(),
            over,
            header: "authorization".to_owned(),
            prefix: String::new(),
            from: CredentialSource::Variable("TOKEN".to_owned()),
            form: Form::Plain,
            only_for: None,
        }
    }

    /// X0-18: a credential is for its host and port, and without a port for the one of its scheme alone.
    #[test]
    fn x0_18_a_credential_covers_its_host_and_port_alone() {
        let at =
            |host: &str, over, asked: &str, port| credential(host, over).covers(&Host::parse(asked).unwrap(), port);
        assert!(at("a.example", Over::Https, "a.example", 443) && at("a.example", Over::Http, "A.example.", 80));
        assert!(!at("a.example", Over::Https, "a.example", 80) && !at("a.example", Over::Http, "a.example", 443));
        assert!(!at("a.example", Over::Https, "a.example", 8443) && !at("a.example", Over::Https, "b.example", 443));
        assert!(
            !at("*.a.example", Over::Https, "a.example", 443) && at("*.a.example", Over::Https, "b.a.example", 443)
        );
        assert!(
            at("a.example:8443", Over::Https, "a.example", 8443)
                && !at("a.example:8443", Over::Https, "a.example", 443)
        );
    }

    #[test]
    fn a_credential_has_a_use_where_its_host_is_granted() {
        let granted = |hosts: &[&str]| hosts.iter().map(|host| HostPattern::parse(host).unwrap()).collect::<Vec<_>>();
        let secure = credential("a.example", Over::Https);
        assert!(secure.has_use(&granted(&["b.example", "a.example"])) && secure.has_use(&granted(&["*.example:443"])));
        assert!(!secure.has_use(&granted(&["a.example:http"])) && !secure.has_use(&granted(&["b.example"])));
        assert!(!secure.has_use(&[]));
        assert!(secure.is_beside(&credential("*.example", Over::Https)));
        assert!(!secure.is_beside(&credential("a.example", Over::Http)));
        assert!(!secure.is_beside(&credential("a.example:8443", Over::Https)));
    }
}
