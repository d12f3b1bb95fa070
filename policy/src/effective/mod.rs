//! From what is asked for to what is in force: ceiling ∩ parent ∩ declared (X0-1, C-1).

mod beyond;
mod bound;
mod declared;
mod everything;
mod links;
mod origin;
mod region;
mod rights;

#[cfg(test)]
mod laws;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::path::HostPath;
use crate::pattern::{HostPattern, PathPattern};
use crate::plan::AskedFor;
use crate::rules::{Capability, SubPolicy};

pub use beyond::{Beyond, beyond};
pub use bound::Bound;
pub use declared::{CAPABILITIES, Contribution, DEBUG, DeclareError, Declared, NOT_DELEGATED};
pub use everything::everything;
pub use links::LeadsOut;
pub(crate) use origin::{ItemLines, line_of};
pub use origin::{Kind, Origin, Source};
pub(crate) use region::Region;
pub use region::{PathRegion, Scope, ShellRegion};
pub use rights::Rights;

/// Rights in force for a session. Made only by [`narrow`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectiveSet {
    rights: Rights,
    exact: bool,
    narrowings: Narrowings,
    /// Rights that it was narrowed from, and by whom: for the reasons of denials.
    asked: Rights,
    bounds: Arc<[Bound]>,
    session_dir: Option<HostPath>,
    readable: Scope<PathRegion>,
    /// Rights that the calls of single tools have besides, by the tool's own name.
    of_tools: BTreeMap<String, ToolRights>,
}

/// Rights of one tool's calls: those that are left, and those that were asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ToolRights {
    left: Rights,
    asked: Rights,
}

/// A right that was asked for and is not in force, or only in part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Narrowing {
    /// Kind of right.
    pub kind: Kind,
    /// Right that was asked for, with variables expanded.
    pub asked: String,
    /// Who asked.
    pub origins: Vec<Origin>,
    /// Who did not grant it.
    pub bound: Source,
    /// Rest that the bound leaves of it; empty if nothing.
    pub left: Vec<String>,
}

/// Every right that was lost on the way, and to which bound.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Narrowings(Vec<Narrowing>);

impl Narrowings {
    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Narrowing> {
        self.0.iter()
    }

    /// True if all that was asked for is in force.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Records what a bound takes of these rights.
    fn record_all(&mut self, bound: &Bound, asked: &Rights) {
        let Bound { source, read, write, hosts, shell, capabilities, asked: _, of_tools: _ } = bound;
        self.record((Kind::Read, source), &asked.read, read.as_ref(), Scope::meet);
        self.record((Kind::Write, source), &asked.write, write.as_ref(), bound.meets_writing());
        self.record((Kind::Hosts, source), &asked.hosts, hosts.as_ref(), Scope::meet);
        self.record((Kind::Shell, source), &asked.shell, shell.as_ref(), Scope::meet);
        self.record((Kind::Capabilities, source), &asked.capabilities, capabilities.as_ref(), Scope::meet);
    }

    fn record<T: Region>(
        &mut self,
        (kind, source): (Kind, &Source),
        asked: &Scope<T>,
        most: Option<&Scope<T>>,
        meet: impl Fn(&Scope<T>, &Scope<T>) -> Scope<T>,
    ) {
        let Some(most) = most else { return };
        for (region, origins) in asked.iter() {
            let mut alone = Scope::default();
            alone.insert(region.clone(), []);
            let left = meet(&alone, most);
            if left.iter().any(|(left, _)| left == region) {
                continue;
            }
            self.0.push(Narrowing {
                kind,
                asked: region.to_string(),
                origins: origins.iter().cloned().collect(),
                bound: source.clone(),
                left: left.iter().map(|(left, _)| left.to_string()).collect(),
            });
        }
    }
}

impl fmt::Display for Narrowing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.kind, self.asked)?;
        let left = if self.left.is_empty() { "nothing".to_owned() } else { self.left.join(", ") };
        write!(f, "bounded to {left} by {}", self.bound.in_a_sentence())?;
        for origin in &self.origins {
            write!(f, " (asked by {origin})")?;
        }
        Ok(())
    }
}

/// Narrows what is declared to what every bound grants.
///
/// Laws, each tested as a property:
/// - within each input: a path, host, argv or capability is allowed only if it was declared and every bound allows it,
///   and then it is;
/// - the same rights whatever the order of the bounds;
/// - unchanged when repeated;
/// - every right lost appears in the [`Narrowings`], with the bound that took it.
#[must_use]
pub fn narrow(declared: &Declared, bounds: &[Bound]) -> EffectiveSet {
    let mut rights = declared.rights.reduced();
    let mut narrowings = Narrowings::default();
    let of_tool = |asked: &Rights| ToolRights { left: asked.reduced(), asked: asked.clone() };
    let mut of_tools: BTreeMap<String, ToolRights> =
        declared.of_tools.iter().map(|(tool, asked)| (tool.clone(), of_tool(asked))).collect();
    for bound in bounds {
        narrowings.record_all(bound, &declared.rights);
        rights = bound.leaves(&rights);
        for (tool, own) in &mut of_tools {
            let bound = bound.on_tool(tool);
            narrowings.record_all(&bound, &own.asked);
            own.left = bound.leaves(&own.left);
        }
    }
    narrowings.0.sort();
    narrowings.0.dedup();
    let readable = rights.read.clone();
    let (asked, bounds) = (declared.rights.clone(), bounds.into());
    EffectiveSet { rights, exact: declared.exact, narrowings, asked, bounds, session_dir: None, readable, of_tools }
}

/// Where the trees of a scope begin.
fn trees(scope: &Scope<PathRegion>) -> Vec<HostPath> {
    scope.iter().filter(|(region, _)| !region.is_literal()).map(|(region, _)| region.literal_prefix()).collect()
}

impl EffectiveSet {
    /// The rights in force.
    #[must_use]
    pub fn rights(&self) -> &Rights {
        &self.rights
    }

    /// Rights for the calls of one tool, by its own name: those of the session, and those that the tool has alone.
    #[must_use]
    pub fn for_tool(&self, tool: &str) -> Cow<'_, Self> {
        let Some(own) = self.of_tools.get(tool) else { return Cow::Borrowed(self) };
        let mut all = self.clone();
        all.rights = all.rights.and(&own.left);
        all.asked = all.asked.and(&own.asked);
        own.left.read.iter().for_each(|(region, origins)| all.readable.add(region.clone(), origins.iter().cloned()));
        all.bounds = self.bounds.iter().map(|bound| bound.on_tool(tool)).collect();
        all.of_tools = BTreeMap::new();
        Cow::Owned(all)
    }

    /// Rights that single tools have for their own calls, besides those of the session.
    pub fn of_tools(&self) -> impl Iterator<Item = (&str, &Rights)> {
        self.of_tools.iter().map(|(tool, own)| (tool.as_str(), &own.left))
    }

    /// Hosts that some call may connect to: those of the session, and those that single tools have alone.
    pub fn hosts_of_calls(&self) -> impl Iterator<Item = &HostPattern> {
        let own = self.of_tools.values().flat_map(|own| own.left.hosts.iter());
        self.rights.hosts.iter().chain(own).map(|(host, _)| host)
    }

    /// True if some call may connect to more than a program of the session.
    pub(crate) fn has_hosts_of_tools(&self) -> bool {
        self.of_tools.values().any(|own| !own.left.hosts.is_empty())
    }

    /// Rights that were lost.
    #[must_use]
    pub fn narrowings(&self) -> &Narrowings {
        &self.narrowings
    }

    /// Who took a right that was asked for: the first bound that leaves nothing of it.
    pub(crate) fn taken_by(&self, allows: impl Fn(&Rights) -> bool) -> Option<&Source> {
        if !allows(&self.asked) {
            return None;
        }
        self.bounds.iter().find(|bound| !allows(&bound.leaves(&self.asked))).map(Bound::source)
    }

    /// Bound on hosts, if there is one: the first.
    #[must_use]
    pub fn bound_on_hosts(&self) -> Option<&Source> {
        self.bounds.iter().find(|bound| bound.hosts.is_some()).map(Bound::source)
    }

    /// True if a pattern that the kernel can only be told in a wider form is refused.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.exact
    }

    /// Rights for a call that only reads: what may be written may be read, and nothing be written.
    #[must_use]
    pub fn for_reading(&self) -> Self {
        let mut reading = self.clone();
        for (region, origins) in std::mem::take(&mut reading.rights.write).iter() {
            reading.rights.read.add(region.clone(), origins.iter().cloned());
        }
        for own in reading.of_tools.values_mut() {
            own.left.write = Scope::default();
        }
        reading
    }

    /// Rights for a call that is narrowed to a sub-policy (S0-15).
    #[doc(hidden)]
    #[must_use]
    pub fn narrowed_to(&self, sub_policy: &SubPolicy) -> Self {
        let mut left = self.clone();
        left.rights.write = sub_policy.write_within(&self.rights.write);
        left.rights.hosts = sub_policy.net_within(&self.rights.hosts);
        for own in left.of_tools.values_mut() {
            own.left.write = sub_policy.write_within(&own.left.write);
            own.left.hosts = sub_policy.net_within(&own.left.hosts);
        }
        left
    }

    /// Share of some requirements that is in force here: those of one tool, which runs with it and nothing else.
    /// Bounded by what bounds this, and by this itself.
    #[must_use]
    pub fn part(&self, declared: &Declared) -> Self {
        let itself = Bound { asked: self.asked_in_all(), ..Bound::at_most(Source::Parent, self.rights.clone()) };
        let bounds: Vec<Bound> = self.bounds.iter().cloned().chain([itself]).collect();
        narrow(declared, &bounds)
    }

    /// Capabilities that a program started by a call could use: reading always, since the base system is there to read.
    pub fn capabilities_of_programs(&self) -> impl Iterator<Item = Capability> + use<> {
        let writes = (!self.rights.write.is_empty()).then_some(Capability::FsWrite);
        let fetches = (!self.rights.hosts.is_empty()).then_some(Capability::NetFetch);
        [Some(Capability::FsRead), writes, fetches].into_iter().flatten()
    }

    /// Reach of such a program in words, for a person who is asked about a program: what it may read and change, and
    /// whom it may reach.
    #[must_use]
    pub fn reach(&self) -> Vec<String> {
        let listed = |what: &'static str, regions: Vec<String>| {
            regions.into_iter().map(move |region| format!("{what} {region}"))
        };
        let read = self.rights.read.iter().map(|(region, _)| region.to_string()).collect();
        let write = self.rights.write.iter().map(|(region, _)| region.to_string()).collect();
        let hosts = self.rights.hosts.iter().map(|(host, _)| host.to_string()).collect();
        listed("change", write).chain(listed("read", read)).chain(listed("connect to", hosts)).collect()
    }

    /// Lets the session read its own directory, where sidecars lie (S0-46, C-26). Not a right that could be passed on:
    /// [`EffectiveSet::as_parent`] leaves it out.
    #[must_use]
    pub fn with_session_dir(mut self, dir: HostPath) -> Self {
        self.readable = self.rights.read.clone();
        if let Some(tree) = PathPattern::subtree(&dir) {
            self.readable.add(tree.into(), []);
        }
        self.session_dir = Some(dir);
        self
    }

    /// The session's own directory.
    #[must_use]
    pub fn session_dir(&self) -> Option<&HostPath> {
        self.session_dir.as_ref()
    }

    /// All that may be read, the session's own directory included; that has no origin, since nobody asked for it.
    pub(crate) fn readable(&self) -> &Scope<PathRegion> {
        &self.readable
    }

    /// True if a path may be read, the session's own directory included.
    #[must_use]
    pub fn allows_read(&self, path: &HostPath) -> bool {
        self.rights.allows_read(path) || self.in_session_dir(path)
    }

    /// True if a path may be changed.
    #[must_use]
    pub fn allows_write(&self, path: &HostPath) -> bool {
        self.rights.allows_write(path)
    }

    /// Places that bounds have left of larger trees to write in, each with the outermost of these, or with the tree in
    /// it that was asked for by a protected name. What lies there is protected for what leads to it from anywhere in
    /// that tree (a repository's `core.hooksPath`, a link with a protected name): who has less than was asked for must
    /// not be able to do more. A place that was asked for by itself is not one of these.
    #[must_use]
    pub fn left_of(&self) -> BTreeMap<HostPath, HostPath> {
        let wider = self.wider();
        let tree_of = |left: &PathRegion| {
            let place = left.literal_prefix();
            let trees = wider.iter().filter_map(|scope| {
                let holds =
                    |region: &&PathRegion| left.within(region) && place.as_path().starts_with(region.literal_prefix());
                let holding: Vec<&PathRegion> = scope.iter().map(|(region, _)| region).filter(holds).collect();
                if holding.iter().any(|region| region.literal_prefix() == place) {
                    return None; // it was asked for by itself
                }
                let depth = |region: &&&PathRegion| region.literal_prefix().as_bytes().len();
                let outermost = holding.iter().min_by_key(depth)?;
                // What was asked for by its protected name is not kept for that name.
                let named = holding.iter().filter(|region| region.adds_to(outermost)).max_by_key(depth);
                Some(named.unwrap_or(outermost).literal_prefix())
            });
            trees.min_by_key(|tree| tree.as_bytes().len())
        };
        let left = self.rights.write.iter().map(|(region, _)| region);
        left.filter_map(|region| Some((region.literal_prefix(), tree_of(region)?))).collect()
    }

    /// The trees to write in that were asked for and are not granted as a whole, the outermost: what may be written, if anything,
    /// is judged from them as well, for something in them may lead there.
    #[must_use]
    pub fn judged_from(&self) -> Vec<HostPath> {
        let lies_in = |tree: &HostPath, outer: &HostPath| tree.as_path().starts_with(outer);
        let granted = trees(&self.rights.write);
        let asked = self.asked_trees();
        let outermost = |tree: &&HostPath| !asked.iter().any(|outer| outer != *tree && lies_in(tree, outer));
        let not_granted = |tree: &&HostPath| !granted.iter().any(|outer| lies_in(tree, outer));
        asked.iter().filter(outermost).filter(not_granted).cloned().collect()
    }

    /// The trees among [`Self::asked_for`].
    fn asked_trees(&self) -> Vec<HostPath> {
        let asked: BTreeSet<HostPath> = self.wider().iter().flat_map(trees).collect();
        asked.into_iter().collect()
    }

    /// All that was asked for to write in, whatever bounds left of it.
    #[must_use]
    pub fn asked_regions(&self) -> Vec<PathRegion> {
        self.wider().iter().flat_map(Scope::iter).map(|(region, _)| region.clone()).collect()
    }

    /// The places of [`Self::asked_regions`].
    #[must_use]
    pub fn asked_for(&self) -> Vec<AskedFor> {
        let regions = self.asked_regions();
        let places =
            regions.iter().map(|region| AskedFor { path: region.literal_prefix(), is_tree: !region.is_literal() });
        places.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Rights that it was made from by taking away: what was asked for, and what its parents have and were asked for.
    fn wider(&self) -> Vec<Scope<PathRegion>> {
        let of_parent = self.bounds.iter().filter(|bound| bound.source == Source::Parent);
        let of_parent = of_parent.flat_map(|bound| bound.write.iter().chain([&bound.asked])).cloned();
        // What was asked for in a larger tree as well says nothing, unless it is a protected name.
        std::iter::once(self.asked.write.reduced()).chain(of_parent).collect()
    }

    /// Regions that it and its parents were asked for to write in.
    fn asked_in_all(&self) -> Scope<PathRegion> {
        let mut asked = self.asked.write.reduced();
        for bound in self.bounds.iter().filter(|bound| bound.source == Source::Parent) {
            bound.asked.iter().for_each(|(region, origins)| asked.add(region.clone(), origins.iter().cloned()));
        }
        asked
    }

    /// The bound that a session started by this one is under: its rights, but for those that are not passed on (X0-27).
    #[must_use]
    pub fn as_parent(&self) -> Bound {
        let mut rights = self.rights.clone();
        rights.capabilities = Scope::default();
        for (name, origins) in
            self.rights.capabilities.iter().filter(|(name, _)| !NOT_DELEGATED.contains(&name.as_str()))
        {
            rights.capabilities.insert(name.clone(), origins.iter().cloned());
        }
        let of_tools = self.of_tools.iter().map(|(tool, own)| (tool.clone(), own.left.clone())).collect();
        Bound { asked: self.asked_in_all(), of_tools, ..Bound::at_most(Source::Parent, rights) }
    }

    fn in_session_dir(&self, path: &HostPath) -> bool {
        let inside = |dir: &HostPath| dir.is_normal() && path.as_path().starts_with(dir);
        path.is_normal() && self.session_dir.as_ref().is_some_and(inside)
    }
}
