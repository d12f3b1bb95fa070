//! The tools outside the lock (S0-25): a session has those that its manifest, its host or its surface names.

use super::{RegistryError, Tool, exec_shell, files, hosted, patch, pdf, repositories, run_tests};

/// All of them, in the order in which they are listed.
pub(super) fn tools() -> Result<Vec<Tool>, RegistryError> {
    let mut tools = vec![files::list()?, files::file_search()?, files::read_excel()?, pdf::read_pdf()?];
    tools.extend([patch::apply_patch()?, files::note()?, hosted::update_plan()?]);
    tools.push(exec_shell::exec_shell()?);
    tools.extend(hosted::background::tools()?);
    tools.push(run_tests::run_tests()?);
    tools.extend(repositories::tools()?);
    Ok(tools)
}
