//! Report on a program that a host started itself ([`Session::spawn`]).

use std::time::Duration;

use callgate_policy::envelope::{Denial, Metadata, Note, ResultEnvelope};
use callgate_policy::limit::LimitName;
use callgate_policy::plan::compile;
use callgate_policy::remarks::{remark_offline_command, remarks_on};
use callgate_worker::protocol::{LimitHit, ProgramEnd};
use serde_json::json;

use crate::confine::Program;
use crate::run::limits;
use crate::session::Session;

/// Most programs that were not started of which is told.
const STARTS: usize = 5;

impl Session {
    /// The envelope of a program of this session that has ended after so long: how it ended, what enforced its grants, its
    /// limits, what the sandbox refused (`notes`, as the tool `bash` has them), and what it changed in trees with kept names. Its
    /// output is the host's own to keep. In a recorded session this is also the end of the program's record; without it the record
    /// says that nobody waited.
    pub fn report(&self, program: &Program, end: &ProgramEnd, duration: Duration) -> ResultEnvelope {
        let mut data = json!({
            "exit_code": end.code,
            "signal": end.signal,
            "cpu_us": end.cpu_us,
            "killed": end.killed,
            "timed_out": end.timed_out,
        });
        limits::tell_left(&mut data, end);
        super::shell::add_notes(&mut data, self.notes_of(program, end));
        let wall = self.sandbox.bounds.value(LimitName::Wall);
        let mut metadata = Metadata::new(limits::ms(duration));
        metadata.enforced = super::enforced(self, program.steps());
        metadata.limits = limits::of_program(&self.sandbox.bounds, end, wall, None, program.changes());
        metadata.changes = program.changes().filter(|changes| !changes.is_empty()).cloned();
        let mut envelope = ResultEnvelope::output(data, metadata);
        if let Some(recording) = program.take_recording() {
            recording.end_now(&mut envelope);
        }
        envelope
    }

    /// Remarks on what the sandbox has refused to a program until now, in words that say what would grant it: for one
    /// that runs as long as its host, such as a server.
    pub async fn refused_to(&self, program: &Program) -> Vec<String> {
        let Some(changes) = program.changes_so_far().await else { return Vec::new() };
        let mut notes = remarks_on(program.command(), &self.granted_hosts(), &changes, true);
        notes.extend(changes.not_started.iter().take(STARTS).map(|Note { path, why, .. }| {
            format!(
                "not started: {} ({}); to allow it: --exec, or [[requires.shell]] in a manifest",
                path.escape_debug(),
                why.escape_debug()
            )
        }));
        notes
    }

    /// Remarks on what the sandbox refused to a program. What to type for the network comes last: it is what most
    /// people have forgotten.
    fn notes_of(&self, program: &Program, end: &ProgramEnd) -> Vec<String> {
        let Some(changes) = program.changes() else { return Vec::new() };
        let (command, failed) = (program.command(), end.code != Some(0));
        let granted = self.granted_hosts();
        let mut notes = remarks_on(command, &granted, changes, failed);
        let is_of_network = |note: &String| note.starts_with("the network");
        if failed && compile::is_offline(&self.effective) && !notes.iter().any(is_of_network) {
            notes.extend(remark_offline_command(command, &granted));
        }
        notes.sort_by_key(is_of_network);
        notes
    }

    /// Which limit a program of this session was ended for, and what to do about it. `None` if it ended otherwise.
    #[must_use]
    pub fn ended_for(&self, end: &ProgramEnd) -> Option<Denial> {
        let late = || self.sandbox.bounds.value(LimitName::Wall).filter(|_| end.timed_out);
        let hit = limits::ended_for(&self.sandbox.bounds, end, None);
        let hit = hit.or_else(|| Some(LimitHit::new(LimitName::Wall, late()?)))?;
        Some(limits::denial(&self.sandbox.bounds, hit, end.left))
    }
}
