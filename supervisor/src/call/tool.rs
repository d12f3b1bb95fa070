//! Result of a tool that ran in the worker.

use callgate_policy::envelope::{Denial, Layer};
use callgate_policy::failure::ErrorCode;
use callgate_policy::limit::{Bounds, LimitName};
use callgate_tools::database::CONTRACTS as DATABASES;
use callgate_tools::is_refusal;
use callgate_tools::web::{fetch, search};
use callgate_worker::protocol::LimitHit;

use super::envelope::Done;
use super::rest::Rest;
use crate::confine::{ToolError, ToolOutput, ToolRun};
use crate::error::CallError;
use crate::error::denied;
use crate::session::Session;

impl Session {
    pub(super) fn shape_tool(
        &self,
        tool: &str,
        run: ToolRun,
        (bounds, timeout): (&Bounds, u64),
    ) -> Result<Done, CallError> {
        if let Some(error) = not_fetched(tool, &run) {
            return Err(error);
        }
        match run.end {
            Ok(ToolOutput { data, truncated, rest, lost }) => {
                let mut kept = Rest { tool, outputs: self.sandbox.outputs.as_ref(), file: None, lost };
                if !rest.is_empty() {
                    kept.add(&rest);
                }
                let limits = crate::run::limits::of_tool(bounds, timeout, run.changes.as_ref());
                let changes = run.changes.filter(|changes| !changes.is_empty());
                Ok(Done { limits, changes, ..kept.done(data, truncated) })
            }
            // EFBIG: setrlimit(2) bounds it, or the file system does.
            Err(ToolError { errno: Some(27), .. }) => {
                let hit = LimitHit::new(LimitName::FileSize, 0);
                Err(denied(crate::run::limits::denial(bounds, hit, 0)))
            }
            Err(ToolError { text, errno: Some(libc_errno), .. })
                if is_refusal(libc_errno)
                    && run.changes.as_ref().is_some_and(|changes| !changes.refused.is_empty()) =>
            {
                let kept = run.changes.unwrap_or_default().refused.swap_remove(0);
                Err(denied(
                    Denial::new(Layer::Sandbox, text, format!("{} is kept as it is: {}", kept.path, kept.why))
                        .remedy("grant it by its name (requires.fs.write)")
                        .typed("grant it by its name (requires.fs.write, or --write)"),
                ))
            }
            Err(ToolError { text, errno: Some(libc_errno), .. }) if is_refusal(libc_errno) => Err(denied({
                let errno = std::io::Error::from_raw_os_error(libc_errno);
                Denial::new(Layer::Sandbox, text, format!("the kernel refused it ({errno})")).remedy(
                    "grant where its links lead and the directories that it needs made, if it is not the file's own \
                     permissions",
                )
            })),
            Err(ToolError { text, code, .. }) => Err(CallError::Told { text, code }),
        }
    }
}

/// Egress has refused what a tool asked for, or failed. To the worker it says so as a server would, in HTTP, and a server could say
/// the same; what the broker has heard of egress, no server says.
fn not_fetched(tool: &str, run: &ToolRun) -> Option<CallError> {
    let what = match tool {
        fetch::NAME => "fetched",
        search::NAME => "asked",
        name if DATABASES.iter().any(|contract| contract.name == name) => "reached",
        _ => return None,
    };
    let not_reached = &run.changes.as_ref()?.not_reached;
    let (host, why) = not_reached.iter().find_map(|host| Some((host, host.why.as_ref()?)))?;
    let code = match &run.end {
        Err(error) => error.code,
        Ok(output) if output.data["status"] == 502 => ErrorCode::ToolExecutionFailed,
        Ok(_) => ErrorCode::Forbidden,
    };
    let text = format!("{} was not {what}: {}", host.address.escape_debug(), why.escape_debug());
    Some(CallError::Told { text, code })
}
