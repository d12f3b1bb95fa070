//! Sub-policies: what a call of a shell may do, where that is less than its session may (S0-15).

use callgate_policy::call_grant::CallGrant;
use callgate_policy::envelope::{Denial, Layer};
use callgate_policy::path::HostPath;
use callgate_policy::plan::compile;
use callgate_policy::plan::{CallPlan, CallRules};
use callgate_policy::rules::{RuledCall, SubPolicy, SubPolicyReport};
use callgate_policy::shell::{Line, restricted};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use crate::error::CallError;
use crate::session::Session;

impl Session {
    /// Sub-policy that rules give its commands; else, for a line whose commands all only read, one with nothing to
    /// change. Only a line that something looks at is taken apart, so nothing is known of others.
    pub(super) fn sub_policy(&self, ruled: &RuledCall<'_>, line: Option<&Line>) -> Option<SubPolicy> {
        let of_rules = self.rules.read().unwrap_or_else(std::sync::PoisonError::into_inner).sub_policy(ruled);
        let reads = || line.is_some_and(|line| restricted::judge(line).is_ok());
        of_rules.or_else(|| reads().then(SubPolicy::reading))
    }

    /// The plan, with what its sub-policy leaves; and where the rules let it write.
    pub(super) fn narrowed(
        &self,
        plan: CallPlan,
        grant: &CallGrant,
        sub_policy: Option<&SubPolicy>,
    ) -> Result<(CallPlan, GrantedPlaces), CallError> {
        let Some(sub_policy) = sub_policy else { return Ok((plan, GrantedPlaces::default())) };
        let places = GrantedPlaces::of(sub_policy, grant);
        places.refuse_links()?;
        Ok((compile::narrowed(plan, grant, sub_policy, self.plan(), &self.facts)?, places))
    }

    /// For the envelope.
    pub(super) fn sub_policy_report(&self, plan: &CallPlan, sub_policy: Option<&SubPolicy>) -> Option<SubPolicyReport> {
        match &plan.rules {
            CallRules::OfSession | CallRules::Own(_) => None,
            CallRules::Reading => {
                let network = plan.network.as_ref().or(self.plan().network.as_ref());
                let net = network.map(|network| network.hosts.iter().map(ToString::to_string).collect());
                let by = format!("profile {}", self.profile.name);
                Some(SubPolicyReport { by, net: net.unwrap_or_default(), ..SubPolicyReport::default() })
            }
            CallRules::Narrowed(_) => sub_policy.map(|sub_policy| sub_policy.told(&self.effective)),
        }
    }
}

/// Where a rule's grant lets a call write. A link in the way would lead it to what the rule does not name; a call that runs
/// meanwhile, or a person who is asked for long, could have made one. So this is asked again before the call runs.
#[derive(Debug, Default)]
pub(crate) struct GrantedPlaces {
    by: String,
    paths: Vec<HostPath>,
}

impl GrantedPlaces {
    /// Places for a sub-policy. What the session grants is not looked at where the rule says nothing of writing.
    fn of(sub_policy: &SubPolicy, grant: &CallGrant) -> Self {
        if !sub_policy.bounds_writing() {
            return Self::default();
        }
        let left = sub_policy.write_within(grant.write());
        Self { by: sub_policy.by(), paths: left.iter().map(|(region, _)| region.literal_prefix()).collect() }
    }

    /// Refuses the call if a symbolic link leads one of them elsewhere.
    pub(crate) fn refuse_links(&self) -> Result<(), CallError> {
        self.paths.iter().try_for_each(|path| refuse_a_link(path, &self.by))
    }
}

fn refuse_a_link(path: &HostPath, by: &str) -> Result<(), CallError> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match rustix::fs::openat2(CWD, path.as_path(), flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Err(rustix::io::Errno::LOOP) => {
            let reason = format!("the {by} grants it, and a symbolic link leads it elsewhere");
            let denial = Denial::new(Layer::Rule, path.to_string(), reason);
            let remedy = "name the place that the link leads to in the rule's `grant`";
            Err(CallError::Denied(Box::new(denial.remedy(remedy))))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}
