//! The tools that make requests to one service for the caller: `azure_devops` and `rlm_query`. Each is there only if it is configured.
//!
//! They run in a worker. Here is what their calls need, and what their workers are told: where the service is. A token is added by egress.

use std::sync::Arc;
use std::time::Duration;

use callgate_policy::effect::{Effect, EffectKind, Effects, HostConnection, ServedRequest};
use callgate_policy::manifest::{self, Credential};
use callgate_policy::pattern::Host;
use callgate_policy::plan::{CallWork, Secured};
use callgate_policy::tool::Subject;
use callgate_tools::web::azure::{self, AzureOperation};
use callgate_tools::web::fetch::{self, FetchHost};
use callgate_tools::web::rlm;
use serde_json::{Map, Value};

use super::executor::{Executor, WorkerTool};
use super::prepare::{Context, InvalidArgument, Prepare, Prepared};
use super::web::{connects, credentials, requires_hosts};
use super::{RegistryError, Tool};
use crate::credentials::is_set;
use crate::host;

/// Time that a worker has beyond that of its requests.
const AFTER: Duration = Duration::from_secs(5);

/// Where the caller's environment names the organization.
const ORGANIZATION: &str = "AZURE_DEVOPS_ORG";
/// Where it has the token.
pub(crate) const TOKEN: &str = "AZURE_DEVOPS_PAT";
/// Where organizations are, if no variable names another server.
const AZURE: &str = "https://dev.azure.com";

/// An organization of Azure DevOps, as the caller's environment names it (S4-20).
#[derive(Debug)]
pub(crate) struct Azure {
    /// Where it is.
    url: String,
    place: FetchHost,
    /// The project of calls that name none.
    project: Option<String>,
    /// Nothing may be changed there (S4-21).
    reads_only: bool,
}

impl Azure {
    /// Service that the caller's environment names. The error is why there is no such tool.
    pub(crate) fn of_caller() -> Result<Self, String> {
        Self::of(host::variable, || is_set(TOKEN))
    }

    fn of(variable: impl Fn(&str) -> Option<String>, has_token: impl Fn() -> bool) -> Result<Self, String> {
        let given = |name: &str| variable(name).filter(|value| !value.is_empty());
        let Some(organization) = given(ORGANIZATION).filter(|_| has_token()) else {
            return Err(format!(
                "there is no `azure_devops` here: set {ORGANIZATION} and {TOKEN} where callgate is started"
            ));
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if !organization.chars().all(plain) || organization.chars().all(|c| c == '.') {
            return Err(format!("there is no `azure_devops` here: {ORGANIZATION} is not the name of an organization"));
        }
        let server = given("AZURE_DEVOPS_URL").unwrap_or_else(|| AZURE.to_owned());
        let url = format!("{}/{organization}", server.trim_end_matches('/'));
        // The token would go readably otherwise, and so with the requests of any program.
        let place = fetch::place(&url).ok().filter(|place| place.tls && !url.contains(['?', '#']));
        let place = place.ok_or("there is no `azure_devops` here: AZURE_DEVOPS_URL is not an https URL of a server")?;
        // Whatever is no clear no is a yes: it is the safe side.
        let reads_only = given("AZURE_DEVOPS_READONLY").is_some_and(|value| !matches!(&*value, "false" | "0" | "no"));
        let project = given("AZURE_DEVOPS_PROJECT");
        azure::place(&url, project.as_deref())
            .map_err(|why| format!("there is no `azure_devops` here: AZURE_DEVOPS_PROJECT: {why}"))?;
        Ok(Self { url, place, project, reads_only })
    }

    fn bad(name: &str, reason: impl Into<String>) -> InvalidArgument {
        InvalidArgument { name: name.to_owned(), reason: reason.into() }
    }

    /// The token, for egress.
    fn credential(&self) -> Option<Credential> {
        let host = Host::parse(&self.place.host).ok()?;
        Some(Credential::of_tool(azure::NAME, (&host, self.place.port), TOKEN))
    }

    /// The project that a call is about.
    fn project_of<'a>(&'a self, args: &'a Value) -> Option<&'a str> {
        args["project"].as_str().or(self.project.as_deref())
    }

    /// Key that rules are compared with, and that an "always" is remembered for: the operation and where; of one that
    /// changes something, also what. Where is what requests begin with, and not a text that might be read in another
    /// way.
    fn key(&self, args: &Value) -> String {
        let operation = args["operation"].as_str().unwrap_or_default();
        let changes = AzureOperation::named(operation).is_none_or(AzureOperation::changes);
        match azure::place(&self.url, self.project_of(args)) {
            Ok(place) if changes => format!("{operation} in {place}: {args}"),
            Ok(place) => format!("{operation} in {place}"),
            // Such a call is refused.
            Err(_no_place) => format!("{operation} in no place: {args}"),
        }
    }
}

impl Prepare for Azure {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        let operation = azure::operation(args, self.project.as_deref());
        let operation = operation.map_err(|(name, reason)| Self::bad(&name, reason))?;
        if self.reads_only && operation.changes() {
            let name = operation.name();
            return Err(Self::bad(
                "operation",
                format!("AZURE_DEVOPS_READONLY is set, and `{name}` changes something"),
            ));
        }
        azure::place(&self.url, self.project_of(args)).map_err(|why| Self::bad("project", why))?;
        let words = Some(self.key(args));
        let request = ServedRequest { tool: azure::NAME.to_owned(), arguments: args.clone(), key: None, words };
        let FetchHost { host, port, .. } = self.place.clone();
        let effects = Effects::of(Effect::Serves(request)).by(Effect::Connects(HostConnection::new(host, port)));
        let mut told = Map::from_iter([
            (azure::AT.to_owned(), self.url.as_str().into()),
            (fetch::BY_EGRESS.to_owned(), true.into()),
        ]);
        let project = self.project.as_deref().filter(|_| operation.has_project() && args.get("project").is_none());
        told.extend(project.map(|project| ("project".to_owned(), project.into())));
        let work = CallWork::Tool { name: azure::NAME.to_owned(), paths: Vec::new(), limit: context.limit };
        Ok(Prepared {
            effects,
            work: Some(work),
            timeout: Some(azure::TIMEOUT + AFTER),
            credentials: credentials(azure::NAME, &self.place, context),
            // Without the token egress refuses the connection: no request goes there without it.
            secured: Some(Secured::of(azure::NAME, operation.methods())),
            told,
        })
    }
}

/// `azure_devops` (S4-20). It requires the organization's host, for its own calls. To whoever decides it changes things, unless a call says otherwise.
pub(super) fn azure_devops(azure: Arc<Azure>) -> Result<Tool, RegistryError> {
    let contract = &azure::CONTRACT;
    let texts = (contract.description, contract.schema, contract.output);
    let worker = WorkerTool { credential: azure.credential(), ..WorkerTool::new(Arc::clone(&azure)) };
    let tool = Tool::bundled(contract.name, texts, Executor::Worker(worker));
    let all = tool.parameters.clone();
    let mut shown = Value::clone(&all);
    if azure.reads_only {
        // What a call of one that is not shown hears is said by the tool, with the reason.
        let reads = AzureOperation::ALL.into_iter().filter(|operation| !operation.changes()).map(AzureOperation::name);
        shown["properties"]["operation"]["enum"] = reads.collect();
    }
    let requires = requires_hosts([azure.place.clone()]);
    let mut tool = tool.parameters(shown).compared_with(all).requires_alone(requires);
    tool.key_of = Some(Arc::new(move |args| azure.key(args)));
    Ok(tool)
}

/// Whose models `rlm_query` asks.
#[derive(Debug)]
pub(crate) struct Rlm(manifest::Rlm);

/// Message about `rlm_query` where nobody can be asked.
pub(crate) const NO_MODEL: &str = "there is no `rlm_query` here: the manifest names no model; write url = \"https://api.deepseek.com\" in \
     [net.rlm], and give its key in [[net.credentials]]";

impl Rlm {
    pub(crate) fn new(rlm: manifest::Rlm) -> Self {
        Self(rlm)
    }
}

impl Prepare for Rlm {
    fn prepare(&self, args: &Value, context: &Context<'_>) -> Result<Prepared, InvalidArgument> {
        let bad = |name: &str, reason: String| InvalidArgument { name: name.to_owned(), reason };
        rlm::check(args).map_err(|(name, reason)| bad(name, reason))?;
        let url = format!("{}/chat/completions", self.0.url);
        let place = fetch::place(&url).map_err(|reason| bad("prompt", reason))?;
        let credentials = credentials(rlm::NAME, &place, context);
        let secured = (place.tls && !credentials.is_empty()).then(|| Secured::of(rlm::NAME, &["POST"]));
        let mut told =
            Map::from_iter([(rlm::AT.to_owned(), url.into()), (fetch::BY_EGRESS.to_owned(), secured.is_some().into())]);
        if args.get("model").is_none() {
            told.insert("model".to_owned(), self.0.model.as_str().into());
        }
        let work = CallWork::Tool { name: rlm::NAME.to_owned(), paths: Vec::new(), limit: context.limit };
        let timeout = Some(rlm::TIMEOUT + AFTER);
        Ok(Prepared {
            effects: connects(place, args.to_string()),
            work: Some(work),
            timeout,
            credentials,
            secured,
            told,
        })
    }
}

/// `rlm_query` (S2-22). It requires the host of the model, for its own calls. Nobody is asked about it (X2-5): whoever names the model has said that it may be asked.
pub(super) fn rlm_query(rlm: Arc<Rlm>) -> Result<Tool, RegistryError> {
    let contract = &rlm::CONTRACT;
    let texts = (contract.description, contract.schema, contract.output);
    let executor = Executor::Worker(WorkerTool::new(Arc::clone(&rlm)));
    let tool = Tool::bundled(contract.name, texts, executor);
    let mut parameters = Value::clone(&tool.parameters);
    parameters["properties"]["model"]["default"] = rlm.0.model.as_str().into();
    let requires = requires_hosts(fetch::place(&rlm.0.url).ok());
    let tool = tool.parameters(parameters).requires_alone(requires);
    Ok(tool.subject(Subject::Fetch).does(&[EffectKind::Connects]).ungated().side_by_side())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use super::*;

    fn azure(more: &[(&str, &str)]) -> Result<Azure, String> {
        let given = [("AZURE_DEVOPS_ORG", "acme"), ("AZURE_DEVOPS_PAT", "0123456789")];
        let variable = |name: &str| {
            let found = more.iter().chain(&given).find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Azure::of(variable, || variable(TOKEN).is_some_and(|token| !token.is_empty()))
    }

    /// S4-20: it is there only if the organization and the token are, and only where the token goes by TLS.
    #[test]
    fn s4_20_it_is_there_if_organization_and_token_are() {
        let there = azure(&[]).unwrap();
        assert_eq!((&*there.url, there.reads_only), ("https://dev.azure.com/acme", false));
        assert_eq!(there.credential().unwrap().host.to_string(), "dev.azure.com:443");
        assert!(!format!("{there:?}").contains("0123456789"), "it does not hold the token");
        let server = azure(&[("AZURE_DEVOPS_URL", "https://tfs.example:8443/tfs/")]).unwrap();
        assert_eq!(server.url, "https://tfs.example:8443/tfs/acme");
        assert!(azure(&[("AZURE_DEVOPS_ORG", "")]).unwrap_err().contains("set AZURE_DEVOPS_ORG"));
        assert!(azure(&[("AZURE_DEVOPS_PAT", "")]).unwrap_err().contains("AZURE_DEVOPS_PAT"));
        for organization in ["a/b", "..", "a?b", "a b", "a@b"] {
            assert!(azure(&[("AZURE_DEVOPS_ORG", organization)]).is_err(), "{organization}");
        }
        for url in
            ["http://tfs.example", "tfs.example", "https://u:p@tfs.example", "https://tfs.example/?a=", "file:///x"]
        {
            assert!(azure(&[("AZURE_DEVOPS_URL", url)]).is_err(), "{url}");
        }
    }

    /// Rules see of a project where its requests go. A name that leads elsewhere is refused, and no rule was about it.
    #[test]
    fn rules_see_where_requests_go() {
        let there = azure(&[("AZURE_DEVOPS_PROJECT", "Shop")]).unwrap();
        let search =
            |project: &str| there.key(&serde_json::json!({ "operation": "search", "wiql": "x", "project": project }));
        assert_eq!(search("a b/c"), "search in https://dev.azure.com/acme/a%20b%2Fc");
        assert_eq!(
            there.key(&serde_json::json!({ "operation": "search" })),
            "search in https://dev.azure.com/acme/Shop"
        );
        for project in ["sec\tret", "..", "\t.."] {
            let key = search(project);
            assert!(key.starts_with("search in no place: {"), "{key}");
            assert!(azure(&[("AZURE_DEVOPS_PROJECT", project)]).unwrap_err().contains("AZURE_DEVOPS_PROJECT"));
        }
    }

    /// S4-21, X4-16: operations that change something are not in the schema of one that only reads, and are refused with the reason.
    #[test]
    fn s4_21_x4_16_one_that_only_reads_has_no_operations_that_change() {
        let operations = |tool: &Tool| tool.parameters["properties"]["operation"]["enum"].as_array().unwrap().len();
        assert_eq!(operations(&azure_devops(Arc::new(azure(&[]).unwrap())).unwrap()), 9);
        for yes in ["true", "1", "TRUE", "yes"] {
            let reads = azure(&[("AZURE_DEVOPS_READONLY", yes)]).unwrap();
            let tool = azure_devops(Arc::new(reads)).unwrap();
            assert_eq!(operations(&tool), 5, "{yes}");
        }
        for no in ["false", "0", ""] {
            assert!(!azure(&[("AZURE_DEVOPS_READONLY", no)]).unwrap().reads_only, "{no}");
        }
    }
}
