//! Places where rules let calls of a shell write (S0-15).

use callgate_policy::call_grant::CallGrant;
use callgate_policy::envelope::{Denial, Layer};
use callgate_policy::path::HostPath;
use callgate_policy::rules::SubPolicy;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use crate::error::CallError;

/// Where a rule's grant lets a call write. A link in the way would lead it to what the rule does not name; a call that runs
/// meanwhile, or a person who is asked for long, could have made one. So this is asked again before the call runs.
#[derive(Debug, Default)]
pub(crate) struct GrantedPlaces {
    by: String,
    paths: Vec<HostPath>,
}

impl GrantedPlaces {
    /// Places for a sub-policy. What the session grants is not looked at where the rule says nothing of writing.
    pub(crate) fn of(sub_policy: &SubPolicy, grant: &CallGrant) -> Self {
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
