//! Where what is granted by its spelling leads out of what a bound grants by its own.

use std::path::{Path, PathBuf};

use super::{EffectiveSet, PathRegion, Scope, Source};
use crate::path::HostPath;
use crate::pattern::ProgramPattern;

/// A place that is granted, that lies within a bound as it is spelt, and that a link leads out of it.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeadsOut {
    /// As it is spelt.
    pub granted: HostPath,
    /// Where that leads.
    pub to: PathBuf,
    /// What does not grant that.
    pub bound: Source,
}

impl EffectiveSet {
    /// The first of these, if there is one. Bounds are met by spelling, and the kernel is told of what a path leads to: with a
    /// ceiling of `/srv/data/**`, a link `/srv/data/home` must not bring `/home` in (C-1). `real` is a path without its links,
    /// if it leads anywhere.
    #[doc(hidden)]
    #[must_use]
    pub fn leads_out(&self, real: impl Fn(&Path) -> Option<PathBuf>) -> Option<LeadsOut> {
        let within = |to: &Path, places: &[HostPath]| {
            places.iter().any(|place| real(place.as_path()).is_some_and(|place| to.starts_with(place)))
        };
        let find = |granted: Vec<HostPath>, source: &Source, most: &[HostPath]| {
            granted.into_iter().find_map(|granted| {
                let to = real(granted.as_path()).filter(|to| to != granted.as_path() && !within(to, most))?;
                Some(LeadsOut { granted, to, bound: source.clone() })
            })
        };
        self.bounds.iter().find_map(|bound| {
            let files = [(&self.rights.read, &bound.read), (&self.rights.write, &bound.write)];
            let files = files
                .into_iter()
                .find_map(|(granted, most)| find(prefixes(granted), &bound.source, &prefixes(most.as_ref()?)));
            files.or_else(|| {
                let most = bound.shell.as_ref()?;
                if most.iter().any(|(region, _)| *region.programs() == ProgramPattern::Any) {
                    return None;
                }
                let directories = most.iter().filter_map(|(region, _)| region.programs().directory().cloned());
                let below = self.rights.shell.iter().filter_map(|(region, _)| match region.programs() {
                    ProgramPattern::Below(directory) => Some(directory.clone()),
                    // Of one program it is asked where it lies when it is found.
                    ProgramPattern::Any | ProgramPattern::One(_) | ProgramPattern::OneBelow { .. } => None,
                });
                find(below.collect(), &bound.source, &directories.collect::<Vec<_>>())
            })
        })
    }
}

fn prefixes(regions: &Scope<PathRegion>) -> Vec<HostPath> {
    regions.iter().map(|(region, _)| region.literal_prefix()).collect()
}
