//! The tools outside the lock (S0-25): a session has those that its manifest, its host or its surface names.

use super::{RegistryError, Tool, database, files, hosted};

/// All of them, in the order in which they are listed.
pub(super) fn tools() -> Result<Vec<Tool>, RegistryError> {
    Ok(vec![files::note()?, hosted::update_plan()?, database::sqlite()?, database::postgres()?, database::mysql()?])
}
