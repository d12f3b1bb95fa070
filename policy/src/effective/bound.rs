//! Bounds on rights: what somebody grants at most.

use std::collections::BTreeMap;

use crate::ceiling::Ceiling;
use crate::pattern::HostPattern;
use crate::variable::Variables;

use super::declared::{Contribution, DeclareError, Declared};
use super::origin::{Kind, Source};
use super::region::{PathRegion, Region, Scope, ShellRegion};
use super::rights::Rights;

/// The most that someone grants: an operator's or a person's ceiling, or what a parent session may delegate (X0-1). A kind
/// that it does not name is not bounded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    pub(super) source: Source,
    pub(super) read: Option<Scope<PathRegion>>,
    pub(super) write: Option<Scope<PathRegion>>,
    pub(super) hosts: Option<Scope<HostPattern>>,
    pub(super) shell: Option<Scope<ShellRegion>>,
    pub(super) capabilities: Option<Scope<String>>,
    /// Regions that a parent was asked for to write in, before its own bounds took from that. It bounds nothing.
    pub(super) asked: Scope<PathRegion>,
    /// Rights that a parent has for the calls of single tools alone: the most that the same tool of a child has besides.
    pub(super) of_tools: BTreeMap<String, Rights>,
}

impl Bound {
    /// Whatever the environment offers: the ceiling by default, so that a tool's requirements take effect without a
    /// second edit (S0-8, C-1).
    #[must_use]
    pub fn unlimited(source: Source) -> Self {
        let (asked, of_tools) = (Scope::default(), BTreeMap::new());
        Self { source, read: None, write: None, hosts: None, shell: None, capabilities: None, asked, of_tools }
    }

    /// No more than these rights.
    #[must_use]
    pub fn at_most(source: Source, rights: Rights) -> Self {
        let Rights { read, write, hosts, shell, capabilities } = rights;
        Self {
            source,
            read: Some(read),
            write: Some(write),
            hosts: Some(hosts),
            shell: Some(shell),
            capabilities: Some(capabilities),
            asked: Scope::default(),
            of_tools: BTreeMap::new(),
        }
    }

    /// Nothing to change, and all else as it is.
    #[must_use]
    pub fn without_writing(source: Source) -> Self {
        Self { write: Some(Scope::default()), ..Self::unlimited(source) }
    }

    /// Bounds of a ceiling, with its variables expanded: a bound for each of its tables, whose source `source` names.
    ///
    /// # Errors
    ///
    /// [`DeclareError`] naming the item.
    pub fn of_ceiling(
        ceiling: &Ceiling,
        source: impl Fn(Kind) -> Source,
        variables: &Variables,
        registered: &[&str],
    ) -> Result<Vec<Self>, DeclareError> {
        let mut bounds = Vec::new();
        for kind in [Kind::Write, Kind::Hosts, Kind::Shell, Kind::Capabilities] {
            if !ceiling.bounds(kind) {
                continue;
            }
            let (source, items) = (source(kind), ceiling.items(kind));
            let most = Declared::union(&[Contribution::from_source(&source, &items)], variables, registered)?.rights;
            let mut bound = Self::unlimited(source);
            match kind {
                Kind::Read | Kind::Write => {
                    bound.read = ceiling.fs.read.is_some().then_some(most.read);
                    // What can be read back is read, so without a word about writing it is bounded as reading is.
                    bound.write = if ceiling.fs.write.is_some() { Some(most.write) } else { bound.read.clone() };
                }
                Kind::Hosts => bound.hosts = Some(most.hosts),
                Kind::Shell => bound.shell = Some(most.shell),
                Kind::Capabilities => bound.capabilities = Some(most.capabilities),
            }
            bounds.push(bound);
        }
        Ok(bounds)
    }

    /// Whose it is.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Function that meets what may be written, as to names that are kept in a tree.
    pub(crate) fn meets_writing(&self) -> fn(&Scope<PathRegion>, &Scope<PathRegion>) -> Scope<PathRegion> {
        if self.source == Source::Parent { Scope::meet_without_further_naming } else { Scope::meet_without_naming }
    }

    /// This bound as it is on the calls of one tool.
    pub(super) fn on_tool(&self, tool: &str) -> Self {
        fn with<T: Region>(most: &mut Option<Scope<T>>, more: &Scope<T>) {
            let Some(most) = most else { return };
            more.iter().for_each(|(region, origins)| most.add(region.clone(), origins.iter().cloned()));
        }
        let mut bound = Self { of_tools: BTreeMap::new(), ..self.clone() };
        if let Some(own) = self.of_tools.get(tool) {
            with(&mut bound.read, &own.read);
            with(&mut bound.write, &own.write);
            with(&mut bound.hosts, &own.hosts);
            with(&mut bound.shell, &own.shell);
            with(&mut bound.capabilities, &own.capabilities);
        }
        bound
    }

    /// Rest that it leaves of these rights.
    pub(crate) fn leaves(&self, rights: &Rights) -> Rights {
        Rights {
            read: met(&rights.read, self.read.as_ref(), Scope::meet),
            write: met(&rights.write, self.write.as_ref(), self.meets_writing()),
            hosts: met(&rights.hosts, self.hosts.as_ref(), Scope::meet),
            shell: met(&rights.shell, self.shell.as_ref(), Scope::meet),
            capabilities: met(&rights.capabilities, self.capabilities.as_ref(), Scope::meet),
        }
    }
}

fn met<T: Clone>(
    asked: &Scope<T>,
    most: Option<&Scope<T>>,
    meet: impl Fn(&Scope<T>, &Scope<T>) -> Scope<T>,
) -> Scope<T> {
    most.map_or_else(|| asked.clone(), |most| meet(asked, most))
}
