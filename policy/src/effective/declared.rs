//! Rights that manifest and tools ask for together (S0-7), with variables expanded and each item's origin kept.

use std::collections::BTreeMap;

use crate::pattern::{ArgPatterns, PathPattern, PathTemplate, ProgramPattern};
use crate::requirement::{Program, RequirementSet};
use crate::variable::Variables;

use super::origin::{ItemLines, Kind, Origin, Source, line_of};
use super::region::ShellRegion;
use super::rights::Rights;

/// The names that `capabilities` may hold before a host registers its own. A closed set: each has one point that
/// enforces it, so an unknown one would be granted and mean nothing.
pub const CAPABILITIES: [&str; 3] = [DEBUG, "secrets.has", "stream.send"];

/// Those of them that a session does not pass on to a session that it starts (X0-27): credentials are their owner's alone.
pub const NOT_DELEGATED: [&str; 1] = ["secrets.has"];

/// To trace the call's own processes: ptrace(2) and its kin. The base filter enforces it.
pub const DEBUG: &str = "debug";

/// Requirements and whose they are.
#[derive(Debug, Clone, Copy)]
pub struct Contribution<'a> {
    set: &'a RequirementSet,
    whose: DeclaredBy<'a>,
    /// The tool for whose calls alone it is in force, if that is so.
    alone: Option<&'a str>,
}

#[derive(Debug, Clone, Copy)]
enum DeclaredBy<'a> {
    /// A manifest's, by the name of its file, with the lines of its items.
    Manifest(&'a str, &'a ItemLines),
    Other(&'a Source),
}

impl<'a> Contribution<'a> {
    /// A manifest's; each item is told by its line in `file`.
    pub(crate) fn from_lines(set: &'a RequirementSet, file: &'a str, lines: &'a ItemLines) -> Self {
        Self { set, whose: DeclaredBy::Manifest(file, lines), alone: None }
    }

    /// A tool's, the command line's, or the default.
    #[must_use]
    pub fn from_source(source: &'a Source, set: &'a RequirementSet) -> Self {
        Self { set, whose: DeclaredBy::Other(source), alone: None }
    }

    /// A tool's, in force for its own calls: programs of the session do not get it.
    #[must_use]
    pub fn of_tool_alone(tool: &'a str, source: &'a Source, set: &'a RequirementSet) -> Self {
        Self { alone: Some(tool), ..Self::from_source(source, set) }
    }

    fn origin(&self, kind: Kind, place: usize, text: String) -> Origin {
        let source = match self.whose {
            DeclaredBy::Manifest(file, lines) => {
                Source::Manifest { file: file.to_owned(), line: line_of(lines, kind, place) }
            }
            DeclaredBy::Other(source) => source.clone(),
        };
        Origin { source, kind, text }
    }
}

/// Requirements that cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeclareError {
    /// A capability that nobody registered.
    #[error("{0}: there is no such capability")]
    UnknownCapability(Origin),
}

/// The union of all requirements (S0-7): what is *asked for*; nothing of it is granted yet (X0-1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    pub(super) rights: Rights,
    /// Rights that are asked for the calls of single tools alone, by the tool's own name.
    pub(super) of_tools: BTreeMap<String, Rights>,
    pub(super) exact: bool,
}

impl Declared {
    /// Unites the contributions and expands their variables. Adding a tool adds its requirements (S0-8).
    ///
    /// `registered` are the capabilities that the host knows besides [`CAPABILITIES`].
    ///
    /// # Errors
    ///
    /// [`DeclareError`] naming the item and where it stands.
    pub fn union(
        contributions: &[Contribution<'_>],
        variables: &Variables,
        registered: &[&str],
    ) -> Result<Self, DeclareError> {
        let mut declared = Self { rights: Rights::default(), of_tools: BTreeMap::new(), exact: false };
        for contribution in contributions {
            let rights = match contribution.alone {
                Some(tool) => declared.of_tools.entry(tool.to_owned()).or_default(),
                None => &mut declared.rights,
            };
            rights.add_paths(contribution, variables);
            rights.add_hosts_and_programs(contribution, variables);
            rights.add_capabilities(contribution, registered)?;
            declared.exact |= contribution.set.fs.exact;
        }
        Ok(declared)
    }

    /// Rights that are asked for.
    #[must_use]
    pub fn rights(&self) -> &Rights {
        &self.rights
    }
}

impl Rights {
    fn add_paths(&mut self, contribution: &Contribution<'_>, variables: &Variables) {
        let fs = &contribution.set.fs;
        for (place, template) in fs.read.iter().enumerate() {
            let origin = contribution.origin(Kind::Read, place, template.to_string());
            for pattern in template.expand(variables) {
                self.read.insert(pattern.into(), [origin.clone()]);
            }
        }
        for (place, template) in fs.write.iter().enumerate() {
            let origin = contribution.origin(Kind::Write, place, template.to_string());
            for pattern in template.expand(variables) {
                // The kernel's write grant lets what was written be read back, so the right says so too.
                self.read.insert(pattern.clone().into(), [origin.clone()]);
                self.write.insert(pattern.into(), [origin.clone()]);
            }
        }
    }

    fn add_hosts_and_programs(&mut self, contribution: &Contribution<'_>, variables: &Variables) {
        for (place, host) in contribution.set.net.hosts.iter().enumerate() {
            let origin = contribution.origin(Kind::Hosts, place, host.to_string());
            self.hosts.insert(host.clone(), [origin]);
        }
        for (place, run) in contribution.set.shell.iter().enumerate() {
            let origin = contribution.origin(Kind::Shell, place, run.cmd.clone().into());
            let args = run.args.clone().unwrap_or_else(ArgPatterns::any);
            for programs in programs(&run.cmd, variables) {
                self.shell.insert(ShellRegion { programs, args: args.clone() }, [origin.clone()]);
            }
        }
    }

    fn add_capabilities(&mut self, contribution: &Contribution<'_>, registered: &[&str]) -> Result<(), DeclareError> {
        for (place, name) in contribution.set.capabilities.iter().enumerate() {
            let origin = contribution.origin(Kind::Capabilities, place, name.clone());
            if !CAPABILITIES.contains(&name.as_str()) && !registered.contains(&name.as_str()) {
                return Err(DeclareError::UnknownCapability(origin));
            }
            self.capabilities.insert(name.clone(), [origin]);
        }
        Ok(())
    }
}

/// An empty list comes of a variable that stands for nothing (S0-40).
fn programs(cmd: &Program, variables: &Variables) -> Vec<ProgramPattern> {
    let each = |path: &PathTemplate| path.expand(variables).iter().map(PathPattern::literal_prefix).collect::<Vec<_>>();
    match cmd {
        Program::Any => vec![ProgramPattern::Any],
        Program::Name(name) => vec![ProgramPattern::One(name.as_str().into())],
        Program::Path(path) => each(path).into_iter().map(ProgramPattern::One).collect(),
        Program::Tree(path) => each(path).into_iter().map(ProgramPattern::Below).collect(),
    }
}
