//! Additions of egress to requests for hosts with credentials (decision 0033): a header with a value that no call sees.
//!
//! In the clear that is done for every program of the session. By TLS it is done for callgate's own tools alone: such a call speaks in
//! the clear to egress, which makes the TLS itself. No program's TLS is taken apart.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use callgate_policy::manifest::{Credential, Over};
use callgate_policy::pattern::Host;
use callgate_policy::plan::Secured;
use callgate_policy::step::Step;
use hyper::Method;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use super::meter::MeteredServer;
use crate::protocol::{SealedCredential, StepFailure};
use crate::toolset;

/// Most bytes of all of them together.
const ALL_MAX: u64 = 1024 * 1024;
/// How long a server may take for its part of the handshake.
const HANDSHAKE: Duration = Duration::from_secs(60);

/// A connection to a server: as it is, or with TLS on it.
pub(super) type UpstreamConnection = Either<MeteredServer, Box<TlsStream<MeteredServer>>>;

/// All that a session has.
#[derive(Default)]
pub(super) struct SealedCredentials {
    all: Vec<SealedCredential>,
    /// `None` if none of them goes by TLS.
    tls: Option<Arc<ClientConfig>>,
}

impl SealedCredentials {
    /// Reads them, while there are files in which the certificates of authorities are. The errors have none of what was read.
    pub(super) fn read(from: Option<OwnedFd>) -> Result<Self, StepFailure> {
        let Some(from) = from else { return Ok(Self::default()) };
        let failed = |what: &str| StepFailure::new(Step::Egress, format!("read the credentials: {what}"));
        let mut bytes = Vec::new();
        let read = File::from(from).take(ALL_MAX).read_to_end(&mut bytes);
        read.map_err(|error| failed(&error.to_string()))?;
        let all = serde_json::from_slice(&bytes);
        bytes.fill(0);
        Self::of(all.map_err(|_malformed| failed("they are malformed"))?, toolset::certificates).map_err(failed)
    }

    /// `certificates` are read only if one of them goes by TLS.
    fn of(all: Vec<SealedCredential>, certificates: impl FnOnce() -> Vec<u8>) -> Result<Self, &'static str> {
        if all.iter().any(|one| one.header().is_none()) {
            return Err("one of them cannot be a header");
        }
        let by_tls = all.iter().any(|one| one.credential.over == Over::Https);
        let tls = by_tls.then(|| client(&certificates())).transpose()?;
        Ok(Self { all, tls: tls.map(Arc::new) })
    }

    /// Outfit for a host. `secured` is a call of a tool that egress makes the TLS for.
    pub(super) fn outfit(&self, host: &Host, port: u16, secured: Option<&Secured>) -> Outfit {
        let goes_along = |credential: &Credential| match secured {
            Some(Secured { tool, .. }) => credential.over == Over::Https && credential.is_for(tool),
            // What is for one tool alone goes with no program's requests.
            None => credential.over == Over::Http && credential.only_for.is_none(),
        };
        let its = self.all.iter().filter(|one| goes_along(&one.credential) && one.credential.covers(host, port));
        let headers: Vec<_> = its.filter_map(SealedCredential::header).collect();
        let tls = self.tls.as_ref().filter(|_| !headers.is_empty());
        let tls = tls.zip(secured).map(|(tls, secured)| {
            let methods = secured.methods.iter().filter_map(|method| Method::from_bytes(method.as_bytes()).ok());
            EgressTls { config: Arc::clone(tls), methods: methods.collect() }
        });
        Outfit { headers: headers.into(), tls }
    }
}

fn client(certificates: &[u8]) -> Result<ClientConfig, &'static str> {
    let mut roots = RootCertStore::empty();
    // Authorities that this build cannot read are not believed, as those that are not there.
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(certificates).flatten());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config =
        versions.map_err(|_none| "there is no version of TLS")?.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

impl SealedCredential {
    /// The header, which is marked so that nothing prints it.
    fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        let name = HeaderName::from_bytes(self.credential.header.as_bytes()).ok()?;
        let mut value = HeaderValue::from_str(&format!("{}{}", self.credential.prefix, self.value)).ok()?;
        value.set_sensitive(true);
        Some((name, value))
    }
}

/// Additions to the requests of one connection.
#[derive(Clone, Default)]
pub(super) struct Outfit {
    headers: Arc<[(HeaderName, HeaderValue)]>,
    tls: Option<EgressTls>,
}

/// TLS that egress makes.
#[derive(Clone)]
struct EgressTls {
    config: Arc<ClientConfig>,
    /// Methods of the requests that it is made for.
    methods: Arc<[Method]>,
}

impl fmt::Debug for Outfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.headers.iter().map(|(name, _)| name);
        f.debug_struct("Outfit").field("headers", &names.collect::<Vec<_>>()).field("tls", &self.tls.is_some()).finish()
    }
}

impl Outfit {
    /// True if nothing is added.
    pub(super) fn is_none(&self) -> bool {
        self.headers.is_empty()
    }

    /// True if egress makes the TLS.
    pub(super) fn is_secured(&self) -> bool {
        self.tls.is_some()
    }

    /// True if a request may have it: no server is asked to show it (TRACE), and a tool does nothing but what its call
    /// is about.
    pub(super) fn is_for(&self, method: &Method) -> bool {
        match &self.tls {
            Some(tls) => tls.methods.contains(method),
            // Servers take small letters too, and one has a word of its own for it (TRACK).
            None => self.is_none() || !["TRACE", "TRACK"].iter().any(|word| method.as_str().eq_ignore_ascii_case(word)),
        }
    }

    /// Adds it, in place of what the client had under these names. A client cannot add it again behind the body.
    pub(super) fn add_to(&self, headers: &mut HeaderMap) {
        for (name, value) in self.headers.iter() {
            headers.insert(name.clone(), value.clone());
        }
        if !self.is_none() {
            headers.remove(header::TRAILER);
        }
    }

    /// The connection to the server, on which requests are said. The error is why there is none.
    pub(super) async fn secure(&self, server: MeteredServer, host: &Host) -> Result<UpstreamConnection, String> {
        let Some(tls) = &self.tls else { return Ok(Either::Left(server)) };
        let name = match host {
            Host::Name(name) => ServerName::try_from(name.clone()).map_err(|_odd| "TLS has no such name".to_owned())?,
            Host::Address(ip) => ServerName::from(*ip),
        };
        let connected = timeout(HANDSHAKE, TlsConnector::from(Arc::clone(&tls.config)).connect(name, server)).await;
        match connected {
            Ok(Ok(connection)) => Ok(Either::Right(Box::new(connection))),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_late) => Err("it did not answer".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use std::cell::Cell;

    use super::*;

    fn credentials(over: &str) -> (SealedCredentials, bool) {
        let one = serde_json::json!([{
            "credential": {
                "host": "a.example", "over": over, "header": "x-key", "prefix": "", "from": { "variable": "A" },
            },
            "value": "01234567",
        }]);
        let read = Cell::new(false);
        let certificates = || {
            read.set(true);
            Vec::new()
        };
        (SealedCredentials::of(serde_json::from_value(one).unwrap(), certificates).unwrap(), read.get())
    }

    /// The certificates of authorities are read where egress makes TLS, and nowhere else.
    #[test]
    fn certificates_are_read_for_tls_alone() {
        let host = Host::parse("a.example").unwrap();
        let fetch = Secured::of("web_fetch", &["GET"]);
        let (secured, read) = credentials("https");
        assert!(read && secured.outfit(&host, 443, Some(&fetch)).is_secured());
        let (plain, read) = credentials("http");
        assert!(!read && !plain.outfit(&host, 80, None).is_none() && plain.outfit(&host, 443, Some(&fetch)).is_none());
    }

    /// A credential of one tool goes with its requests alone, and those have the methods of its call and no others.
    #[test]
    fn a_credential_of_one_tool_goes_with_no_other_s_requests() {
        let host = Host::parse("a.example").unwrap();
        let (mut all, _) = credentials("https");
        all.all[0].credential.only_for = Some("azure_devops".to_owned());
        let of = |tool, methods: &[&str]| all.outfit(&host, 443, Some(&Secured::of(tool, methods)));
        assert!(of("web_fetch", &["GET"]).is_none() && all.outfit(&host, 80, None).is_none());
        let reads = of("azure_devops", &["GET"]);
        assert!(reads.is_secured() && reads.is_for(&Method::GET));
        assert!(![Method::POST, Method::PATCH, Method::TRACE].iter().any(|method| reads.is_for(method)));
        assert!(of("azure_devops", &["PATCH"]).is_for(&Method::PATCH));
    }
}
