//! Where what is granted by its spelling leads out of what a bound grants by its own.

use std::path::{Path, PathBuf};

use super::{Bound, EffectiveSet, PathRegion, Scope, ShellRegion, Source};
use crate::path::HostPath;
use crate::pattern::{PathPattern, ProgramPattern};

/// A place that is granted, that lies within a bound as it is spelt, and that a link leads out of it.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeadsOut {
    /// As it is spelt.
    pub granted: HostPath,
    /// Where that leads.
    pub to: PathBuf,
    /// Bound that does not grant that.
    pub bound: Source,
}

impl EffectiveSet {
    /// The first of these, if there is one. Bounds are met by spelling, and the kernel is told of what a path leads to: with a
    /// ceiling of `/srv/data/**`, a link `/srv/data/home` must not bring `/home` in (C-1). `real` is a path without its links,
    /// if it leads anywhere, and `seen` is that of what is granted, where that was looked at.
    #[doc(hidden)]
    #[must_use]
    pub fn leads_out(
        &self,
        seen: impl Fn(&Path) -> Option<PathBuf>,
        real: impl Fn(&Path) -> Option<PathBuf>,
    ) -> Option<LeadsOut> {
        self.bounds.iter().find_map(|bound| self.leads_out_of(bound, &seen, &real))
    }

    /// The first that leads out of this bound.
    #[doc(hidden)]
    #[must_use]
    pub fn leads_out_of(
        &self,
        bound: &Bound,
        seen: impl Fn(&Path) -> Option<PathBuf>,
        real: impl Fn(&Path) -> Option<PathBuf>,
    ) -> Option<LeadsOut> {
        let real = |path: &HostPath| nearest(path, &real);
        let leads_out = |granted: HostPath, source: &Source, holds: &dyn Fn(&Path) -> bool| {
            let to = nearest(&granted, &seen).filter(|to| to != granted.as_path() && !holds(to))?;
            Some(LeadsOut { granted, to, bound: source.clone() })
        };
        let of_files = |granted: &Scope<PathRegion>, most: &Scope<PathRegion>, source: &Source| {
            let most: Vec<(bool, PathBuf)> = most
                .iter()
                .filter_map(|(region, _)| Some((region.is_literal(), real(&region.literal_prefix())?)))
                .collect();
            granted.iter().find_map(|(region, _)| {
                // What is named alone holds nothing below it.
                let holds = |to: &Path| {
                    let by = |(is_literal, place): &(bool, PathBuf)| match is_literal {
                        true => region.is_literal() && to == place,
                        false => to.starts_with(place),
                    };
                    most.iter().any(by)
                };
                leads_out(region.literal_prefix(), source, &holds)
            })
        };
        let of_programs = |most: &Scope<ShellRegion>, source: &Source| {
            self.rights.shell.iter().find_map(|(region, _)| match region.programs() {
                ProgramPattern::Below(directory) => {
                    let holds = |to: &Path| {
                        let args = |most: &ShellRegion| most.args().is_any() || most.args() == region.args();
                        most.iter().map(|(most, _)| most).filter(|most| args(most)).any(|most| match most.programs() {
                            ProgramPattern::Any => true,
                            ProgramPattern::Below(place) => real(place).is_some_and(|place| to.starts_with(place)),
                            ProgramPattern::One(_) | ProgramPattern::OneBelow { .. } => false,
                        })
                    };
                    leads_out(directory.clone(), source, &holds)
                }
                // Of one program it is asked where it lies when it is found.
                ProgramPattern::Any | ProgramPattern::One(_) | ProgramPattern::OneBelow { .. } => None,
            })
        };
        let read = bound.read.as_ref().and_then(|most| of_files(&self.rights.read, most, &bound.source));
        let write = || of_files(&self.rights.write, bound.write.as_ref()?, &bound.source);
        let shell = || of_programs(bound.shell.as_ref()?, &bound.source);
        read.or_else(write).or_else(shell)
    }

    /// Regions of these files by where their paths lead, with all below a pattern's literal directory: to ask what the
    /// kernel is told to grant, and not to grant anything.
    #[doc(hidden)]
    #[must_use]
    pub fn led_to(&self, seen: impl Fn(&Path) -> Option<PathBuf>) -> Self {
        let led = |granted: &Scope<PathRegion>| {
            let mut all = Scope::default();
            for (region, origins) in granted.iter() {
                let spelt = region.literal_prefix();
                let to = nearest(&spelt, &seen).map(HostPath::from).filter(|to| *to != spelt);
                let pattern = to.map(|to| match region.is_literal() {
                    true => PathPattern::literal(&to),
                    false => PathPattern::subtree(&to),
                });
                let led = pattern.flatten().map_or_else(|| region.clone(), PathRegion::from);
                all.add(led, origins.iter().cloned());
            }
            all
        };
        let mut all = self.clone();
        (all.rights.read, all.rights.write) = (led(&self.rights.read), led(&self.rights.write));
        all
    }
}

/// Where a path leads; of what is not there yet, the nearest directory that is, and what is to be below that.
fn nearest(path: &HostPath, real: impl Fn(&Path) -> Option<PathBuf>) -> Option<PathBuf> {
    path.as_path().ancestors().find_map(|above| {
        let (to, rest) = (real(above)?, path.as_path().strip_prefix(above).ok()?);
        Some(if rest.as_os_str().is_empty() { to } else { to.join(rest) })
    })
}
