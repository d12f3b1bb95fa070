//! Facts of a session that explain what was refused to a program of it.

use callgate_policy::envelope::Changes;
use callgate_policy::remarks::{GrantedHosts, remark_offline, remarks_on};
use callgate_worker::protocol::ProgramEnd;

/// Facts of a session that its programs' ends are told with.
pub(crate) struct Surroundings {
    /// Hosts that are granted.
    pub(crate) granted: GrantedHosts,
    pub(crate) is_offline: bool,
}

impl Surroundings {
    /// Notes on what the sandbox refused to a program that has ended, for whoever reads the result alone. `output` is where signs of
    /// a network that is not there are looked for.
    pub(crate) fn notes(
        &self,
        command: &str,
        end: &ProgramEnd,
        changes: Option<&Changes>,
        output: &[&[u8]],
    ) -> Vec<String> {
        let failed = end.code != Some(0);
        let mut notes = changes.map(|changes| remarks_on(command, &self.granted, changes, failed)).unwrap_or_default();
        if self.is_offline && !notes.iter().any(|note| note.starts_with("the network")) {
            let sign = output.iter().find_map(|output| remark_offline(&String::from_utf8_lossy(output), &self.granted));
            notes.extend(sign);
        }
        notes
    }
}
