//! The tools that fetch. They run in a worker; here is which hosts their calls need.

use std::sync::Arc;
use std::time::Duration;

use callgate_policy::need::{CallNeeds, HostNeed};
use callgate_policy::plan::Work;
use callgate_policy::tool::Subject;
use callgate_worker::tools::web::fetch;
use serde_json::Value;

use super::executor::{Context, Executor, InvalidArgument, Prepare, Prepared};
use super::{RegistryError, Tool};

/// What a worker has beyond the time that a hop has, to read what came.
const READING: Duration = Duration::from_secs(15);

/// `web_fetch` (S0-20). It requires no host: which ones are granted is for manifests and people to say.
pub(super) fn web_fetch() -> Result<Tool, RegistryError> {
    let contract = &fetch::CONTRACT;
    let texts = (contract.description, contract.schema, contract.output);
    Ok(Tool::bundled(contract.name, texts, Executor::Worker(Arc::new(Fetch)))?.side_by_side())
}

struct Fetch;

impl Prepare for Fetch {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        let bad = |reason: String| InvalidArgument { name: "url".to_owned(), reason };
        let (host, port) = fetch::host(args["url"].as_str().unwrap_or_default()).map_err(bad)?;
        let needs = CallNeeds { hosts: vec![HostNeed { host, port }], ..CallNeeds::default() };
        let work = Work::Tool { name: fetch::NAME.to_owned(), paths: Vec::new(), limit: context.limit };
        let hop = Duration::from_millis(args["timeout_ms"].as_u64().unwrap_or(fetch::TIMEOUT));
        Ok(Prepared { needs, work: Some(work), timeout: Some(hop + READING) })
    }
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
    pub(crate) fn of(tool: &Tool, data: &Value) -> Option<Self> {
        let fetches = tool.subject == Subject::Fetch && matches!(tool.executor, Executor::Worker(_));
        let data = data.as_object().filter(|data| fetches && data.len() == 2)?;
        Some(Self { url: data.get(fetch::REDIRECT)?.clone(), left: data.get(fetch::LEFT)?.clone() })
    }

    /// The call that goes on there.
    pub(crate) fn next(&self, mut args: Value) -> Value {
        args["url"] = self.url.clone();
        args
    }

    /// What its worker is told besides.
    pub(crate) fn tell(&self, args: &mut Value) {
        args[fetch::LEFT] = self.left.clone();
    }
}
