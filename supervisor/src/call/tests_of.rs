//! Command that runs the tests of a workspace: found out by workers of the readers, since the supervisor opens no file
//! for a tool.

use std::time::Duration;

use callgate_policy::effect::Effects;
use callgate_policy::path::HostPath;
use callgate_policy::plan::CallWork;
use callgate_policy::plan::compile::{self, CallSpec};
use serde_json::{Value, json};

use crate::error::CallError;
use crate::gate::ApprovedPlan;
use crate::registry::{MARKERS, RUNNER};
use crate::session::Session;
use crate::turn::{Concurrency, Turns};

/// Time for a look at one file, which takes a fraction of a second.
const TIMEOUT: Duration = Duration::from_secs(5);

impl Session {
    /// Adds the program that runs a workspace's tests to the arguments of a call, if they name none. A file that the session may not read is
    /// as if it were not there.
    pub(super) async fn find_runner(&self, args: &mut Value) -> Result<(), CallError> {
        if args.get(RUNNER).is_some() || !self.sandbox.opened.has_readers() {
            return Ok(());
        }
        for (marker, runner) in MARKERS {
            let path = HostPath::from(self.root().as_path().join(marker));
            if self.is_readable(path).await? {
                if let Some(args) = args.as_object_mut() {
                    args.insert(RUNNER.to_owned(), (*runner).into());
                }
                return Ok(());
            }
        }
        Ok(())
    }

    /// True if a worker finds a file there.
    async fn is_readable(&self, path: HostPath) -> Result<bool, CallError> {
        let needs = Effects::default().showing(path.clone());
        let Ok(grant) = self.check(&needs) else { return Ok(false) };
        let args = json!({ "path": path, "byte_length": 1 });
        let work = CallWork::Tool { name: "read".to_owned(), paths: vec![path], limit: 16 };
        let plan = compile::call(
            &grant,
            &self.sandbox.facts,
            CallSpec { work, bounds: self.sandbox.bounds, timeout: TIMEOUT },
        )?;
        // It tells of a name whether it is there, and changes nothing.
        let turn = Turns::default().take(Concurrency::SideBySide).await;
        let run = self.sandbox.opened.tool(ApprovedPlan::of_the_runner(plan), args, turn).await?;
        Ok(run.end.is_ok())
    }
}
