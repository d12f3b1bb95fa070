//! `callgate mcp`.

use std::process::ExitCode;
use std::sync::Arc;

use callgate::{AskedBy, Overflow};
use callgate_mcp::Client;
use callgate_policy::plan::Calls;
use callgate_policy::unit::parse_duration;

use super::arguments::{Grants, Mcp};
use super::exit::Failure;
use super::session::{Recorded, make};
use super::{forked, show, supervise_with};

pub(super) fn mcp(mcp: Mcp) -> Result<ExitCode, Failure> {
    let Mcp { new, session, approval_timeout } = mcp;
    // Before a first event loop: egress cannot make one in a process that comes from one with another.
    let launcher = forked()?;
    let recorded = match session {
        Some(id) => Recorded::find(&id, &new.grants)?,
        None => Recorded::find(&make(new)?.id, &Grants::default())?,
    };
    let mut spec = show::spec(recorded.grants())?;
    spec.ceilings.extend(show::only_programs(&spec));
    spec.profile = show::profile(recorded.profile(), &spec)?;
    spec.calls = Calls::Many;
    spec.asked_by = AskedBy::Agent;
    spec.approvers = vec![Arc::new(Client)];
    spec.mode = recorded.mode().map(Into::into);
    spec.overflow = Overflow::Session;
    spec.resume = Some(recorded.id());
    if let Some(patience) = &approval_timeout {
        spec.patience =
            parse_duration(patience).map_err(|e| Failure::Usage(format!("--approval-timeout {patience}: {e}")))?;
    }
    supervise_with(Some(recorded.into_store()), launcher, async |supervisor| {
        let session = supervisor.open(spec).await?;
        show::tell_warnings(&session);
        let served = callgate_mcp::serve(Arc::new(session), tokio::io::stdin(), tokio::io::stdout()).await;
        served.map_err(|error| Failure::runtime(std::io::Error::other(error)))
    })?;
    Ok(ExitCode::SUCCESS)
}
