//! The tools outside the lock (S0-25): a session has those that its manifest, its host or its surface names.

use callgate_policy::manifest::Net;
use callgate_tools::web::{azure, rlm};

use super::services::{Azure, NO_MODEL};
use super::{RegistryError, Tool, database, exec_shell, files, hosted, lsp, patch, pdf, repositories, run_tests};

/// All of them, in the order in which they are listed.
pub(super) fn tools() -> Result<Vec<Tool>, RegistryError> {
    let mut tools = files::outside().collect::<Result<Vec<_>, _>>()?;
    tools.push(pdf::read_pdf()?);
    tools.extend([patch::apply_patch()?, files::note()?, hosted::update_plan()?]);
    tools.push(exec_shell::exec_shell()?);
    tools.extend(hosted::background::tools()?);
    tools.push(run_tests::run_tests()?);
    tools.push(lsp::lsp()?);
    tools.extend(repositories::tools()?);
    if cfg!(feature = "databases") {
        tools.extend([database::sqlite()?, database::postgres()?, database::mysql()?]);
    }
    Ok(tools)
}

/// Those that are there only where the caller or a manifest has configured them.
pub(super) fn configured() -> impl Iterator<Item = &'static str> {
    [azure::NAME, rlm::NAME].into_iter().chain(hosted::agents::NAMES)
}

/// True if a tool is one of those.
pub(super) fn is_configured(name: &str) -> bool {
    name == hosted::agents::INBOX || configured().any(|configured| configured == name)
}

/// Reason why one of those is not there, if it is for that it is not configured.
pub(crate) fn not_configured(name: &str, net: Option<&Net>) -> Option<String> {
    match name {
        azure::NAME => Azure::of_caller().err(),
        rlm::NAME => net.is_none_or(|net| net.rlm.is_none()).then(|| NO_MODEL.to_owned()),
        _ if hosted::agents::NAMES.contains(&name) => Some(
            "there is no agent to start: the manifest declares none (`[agents.NAME]`), or the session did not ask for this tool \
             (`extra`)"
                .to_owned(),
        ),
        _ => None,
    }
}
