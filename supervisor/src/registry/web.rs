//! The tools that fetch. They run in a worker; here is which hosts their calls need.

use std::sync::Arc;
use std::time::Duration;

use callgate_policy::effect::{Effect, EffectKind, Effects, HostConnection};
use callgate_policy::manifest::{Credential, Over};
use callgate_policy::pattern::{Host, HostPattern};
use callgate_policy::plan::{CallWork, Secured};
use callgate_policy::requirement::{NetRequirement, RequirementSet};
use callgate_tools::web::fetch::{self, FetchHost};
use callgate_tools::web::search;
use serde_json::{Map, Value, json};

use super::executor::{Executor, Then, WorkerTool};
use super::prepare::{Attempt, Context, InvalidArgument, Prepare, Prepared};
use super::searches::Searches;
use super::{RegistryError, Tool, Understood};

/// Time that a worker has beyond that of a hop, to read what came.
const READING: Duration = Duration::from_secs(15);

/// `web_fetch` (S0-20). It requires no host: which ones are granted is for manifests and people to say.
pub(super) fn web_fetch() -> Result<Tool, RegistryError> {
    let contract = &fetch::CONTRACT;
    let texts = (contract.description, contract.schema, contract.output);
    Ok(Tool::bundled(contract.name, texts, Executor::Worker(WorkerTool::new(Fetch).then(Then::Redirect)))
        .does(&[EffectKind::Connects])
        .side_by_side())
}

/// `web_search` (S0-19), of whom a manifest names. It requires their hosts, for its own calls.
pub(super) fn web_search(searches: Arc<Searches>) -> Result<Tool, RegistryError> {
    let contract = &search::CONTRACT;
    let texts = (contract.description, contract.schema, contract.output);
    let worker = WorkerTool::new(Search(Arc::clone(&searches))).then(Then::NextProvider(Arc::clone(&searches)));
    let requires = requires_hosts(searches.search.providers.iter().filter_map(|one| fetch::place(&one.url).ok()));
    Ok(Tool::bundled(contract.name, texts, Executor::Worker(worker))
        .does(&[EffectKind::Searches])
        .side_by_side()
        .requires_alone(requires))
}

/// Requirements of a tool that connects to these hosts.
pub(super) fn requires_hosts(places: impl IntoIterator<Item = FetchHost>) -> RequirementSet {
    let host = |place: FetchHost| {
        // On a port of the web, what goes there is what the URL says.
        let web = match (place.tls, place.port) {
            (true, 443) => Some("https"),
            (false, 80) => Some("http"),
            (true | false, _) => None,
        };
        let web = web.and_then(|scheme| HostPattern::parse(&format!("{}:{scheme}", place.host)).ok());
        web.or_else(|| Some(HostPattern::of_host(&Host::parse(&place.host).ok()?, place.port)))
    };
    let mut hosts: Vec<HostPattern> = places.into_iter().filter_map(host).collect();
    hosts.sort_unstable();
    hosts.dedup();
    RequirementSet { net: NetRequirement { hosts }, ..RequirementSet::default() }
}

/// Message about `web_search` where nobody can be asked.
pub(crate) const NO_PROVIDER: &str = "there is no `web_search` here: the manifest names no provider; write providers = [\"duckduckgo\"] \
     in [net.search], or another one";

struct Fetch;

impl Prepare for Fetch {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        let bad = |reason: String| InvalidArgument { name: "url".to_owned(), reason };
        let place = fetch::place(args["url"].as_str().unwrap_or_default()).map_err(bad)?;
        let credentials = credentials(fetch::NAME, &place, context);
        let secured = (place.tls && !credentials.is_empty()).then(|| Secured::of(fetch::NAME, &["GET"]));
        let effects = connects(place, args["url"].as_str().unwrap_or_default());
        let work = CallWork::Tool { name: fetch::NAME.to_owned(), paths: Vec::new(), limit: context.limit };
        let hop = Duration::from_millis(args["timeout_ms"].as_u64().unwrap_or(fetch::TIMEOUT));
        let told = Map::from_iter(secured.as_ref().map(|_| (fetch::BY_EGRESS.to_owned(), true.into())));
        Ok(Prepared { effects, work: Some(work), timeout: Some(hop + READING), credentials, secured, told })
    }
}

/// A request to one host at one port.
pub(super) fn connects(FetchHost { host, port, .. }: FetchHost, request: impl Into<String>) -> Effects {
    Effects::of(Effect::Connects(HostConnection { host, port, request: request.into(), searches: false }))
}

/// The credentials that egress adds there for a tool. By TLS it adds them where it makes the TLS itself.
pub(super) fn credentials(tool: &str, place: &FetchHost, context: &Context<'_>) -> Vec<Credential> {
    // What is no host in its one form is denied by whoever judges the need.
    let Ok(host) = Host::parse(&place.host) else { return Vec::new() };
    let over = if place.tls { Over::Https } else { Over::Http };
    let goes_along = |one: &&Credential| one.over == over && one.is_for(tool) && one.covers(&host, place.port);
    context.credentials.iter().filter(goes_along).cloned().collect()
}

struct Search(Arc<Searches>);

impl Prepare for Search {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        let Attempt { number, left } = context.attempt;
        let bad = |reason: String| InvalidArgument { name: search::PROVIDER.to_owned(), reason };
        let provider =
            self.0.provider(context.session, number).ok_or_else(|| bad("there is nobody to ask".to_owned()))?;
        let place = fetch::place(&provider.url).map_err(bad)?;
        let credentials = credentials(search::NAME, &place, context);
        let secured = place.tls && !credentials.is_empty();
        let secured = secured.then(|| Secured::of(search::NAME, &["GET", "POST"]));
        let FetchHost { host, port, .. } = place;
        let request = args["query"].to_string();
        let effects = Effects::of(Effect::Connects(HostConnection { host, port, request, searches: true }));
        let work = CallWork::Tool { name: search::NAME.to_owned(), paths: Vec::new(), limit: context.limit };
        // Whoever does not answer leaves time for the others.
        let others = u32::try_from(self.0.providers().saturating_sub(number)).unwrap_or(1).max(1);
        let share = left.unwrap_or(self.0.timeout()) / others;
        let millis = u64::try_from(share.as_millis()).unwrap_or(u64::MAX).max(1);
        let told = [
            (search::PROVIDER, provider.kind.name().into()),
            (search::AT, provider.url.as_str().into()),
            (search::TIME, millis.into()),
            (fetch::BY_EGRESS, secured.is_some().into()),
        ];
        let told = told.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Ok(Prepared { effects, work: Some(work), timeout: Some(share + READING), credentials, secured, told })
    }
}

/// A result, with who was asked in vain before (C-19).
pub(crate) fn with_failed(mut data: Value, failed: &[(String, String)]) -> Value {
    if !failed.is_empty() {
        let told = failed.iter().map(|(provider, error)| json!({ "provider": provider, "error": error }));
        data["failed"] = told.collect();
    }
    data
}

/// Where a fetch goes on: its page has moved to another host, which is judged as the first one was.
#[derive(Debug, Clone)]
pub(crate) struct Hop {
    url: Value,
    left: Value,
}

impl Hop {
    /// Most that a call has, whatever its workers say.
    pub(crate) const MOST: u64 = fetch::REDIRECTS;

    /// If that is all that the result of a worker that fetches says.
    pub(crate) fn of(data: &Value) -> Option<Self> {
        let data = data.as_object().filter(|data| data.len() == 2)?;
        Some(Self { url: data.get(fetch::REDIRECT)?.clone(), left: data.get(fetch::LEFT)?.clone() })
    }

    /// The call that goes on there. Its worker is told how many hops are left.
    pub(crate) fn next(self, before: &Understood) -> Understood {
        let mut next = before.clone();
        next.args["url"] = self.url;
        next.told.insert(fetch::LEFT.to_owned(), self.left);
        next
    }
}
