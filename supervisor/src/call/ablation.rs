//! One layer switched off, to show that the other two hold. In test builds only (feature `ablation`): a shipped binary has
//! no code for it, and no flag, variable or manifest reaches it.

use callgate_policy::effect::{Effect, EffectKind, EffectKinds, Effects};
use callgate_policy::envelope::Layer;
use callgate_policy::path::HostPath;
use callgate_policy::plan::CallWork;
use callgate_tools::BuiltIn;
use callgate_worker::toolset::{Given, Toolset as _};
use serde_json::{Value, json};

use crate::gate::{ApprovedTask, ProgramTask};
use crate::session::Session;

impl Session {
    /// This session without one of its three layers, or (`Rule`) without the restricted shell's look at the line.
    #[must_use]
    pub fn without(mut self, layer: Layer) -> Self {
        self.gate.ablated = Some(layer);
        self
    }

    /// This session, with tools that have forgotten to declare effects of these kinds: the sandbox of a call is then made without them.
    #[must_use]
    pub fn forgetting(mut self, kinds: EffectKinds) -> Self {
        self.gate.forgotten = kinds;
        self
    }

    /// Takes away the effects that a tool has forgotten to declare.
    pub(crate) fn forget(&self, effects: &mut Effects) {
        let is_declared = |effect: &Effect| !self.gate.forgotten.has(effect.kind());
        effects.own.retain(is_declared);
        effects.implied.retain(is_declared);
        if self.gate.forgotten.has(EffectKind::Shows) {
            effects.consulted.clear();
        }
    }

    pub(crate) fn lacks(&self, layer: Layer) -> bool {
        self.gate.ablated == Some(layer)
    }
}

/// Carries a call out in this very process, as if there were no sandbox.
pub(crate) fn unconfined(task: &ApprovedTask<'_>) -> Result<Value, String> {
    let (plan, args) = match task {
        ApprovedTask::Worker { plan, args, .. } => (plan, args),
        ApprovedTask::Program(_, ProgramTask { plan, .. }) => (plan, &Value::Null),
        ApprovedTask::Host(..) => return Err("it does not run in the sandbox".to_owned()),
    };
    match &plan.work {
        CallWork::Tool { .. } => {
            let given = Given { threads: 1, certificates: Vec::new(), peer: None };
            BuiltIn.run(plan, args, given).map(|output| output.data).map_err(|failed| failed.text)
        }
        CallWork::Program { argv, working_dir, env } => {
            let [program, rest @ ..] = argv.as_slice() else { return Err("an empty argv".to_owned()) };
            #[allow(clippy::disallowed_methods, reason = "the sandbox is what is missing here")]
            let output = std::process::Command::new(program.as_path())
                .args(rest.iter().map(HostPath::as_path))
                .current_dir(working_dir.as_path())
                .envs(env.iter().filter_map(|pair| pair.as_path().to_str()?.split_once('=')))
                .output()
                .map_err(|e| e.to_string())?;
            Ok(json!({
                "output": String::from_utf8_lossy(&output.stdout),
                "exit_code": output.status.code(),
            }))
        }
    }
}
