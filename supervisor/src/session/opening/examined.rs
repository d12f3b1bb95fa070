//! A look at a session that is not opened: for whoever is asked to trust its manifest.

use std::path::Path;

use callgate_policy::effective::{EffectiveSet, Kind};
use callgate_policy::manifest::Manifest;
use callgate_policy::path::HostPath;
use callgate_policy::variable::Variables;

use super::super::rules::rules;
use super::super::{SessionSpec, Warning};
use super::believed::BelievedTools;
use super::roots::HeldRoots;
use crate::open_error::OpenError;
use crate::registry::nearest;

/// Rights that a session would have, and what about it its author may not have meant.
#[derive(Debug)]
#[non_exhaustive]
pub struct Examined {
    /// Rights that would be in force.
    pub effective: EffectiveSet,
    /// Warnings that the session would have.
    pub warnings: Vec<Warning>,
    /// Places that a manifest names and that are not there.
    pub missing: Vec<MissingPlace>,
    /// Tools for databases of which none is configured, and why.
    pub databases: Vec<(String, String)>,
}

/// A place that is granted and not there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingPlace {
    /// Pattern that names it.
    pub named: String,
    /// Line of the manifest on which that stands, from 1.
    pub line: usize,
    /// The place.
    pub path: HostPath,
    /// A place beside it with a similar name.
    pub similar: Option<String>,
}

impl Examined {
    /// Looks at what a session with this specification would have, as far as that is known before anything of it is made.
    ///
    /// # Errors
    /// [`OpenError`], where a session would not be opened for what is looked at here.
    pub fn of(mut spec: SessionSpec) -> Result<Self, OpenError> {
        let held = HeldRoots::find(&mut spec, None)?;
        let tools = BelievedTools::of(&held, &mut spec, None)?;
        rules(&spec, None, held.profile(), tools.registry(), held.variables())?;
        let databases = tools.databases().cloned().unwrap_or_default();
        let without = tools.registry().tools().filter_map(|tool| {
            let why = databases.find(tool.executor.dialect()?, None).err()?;
            databases.of_kind(tool.executor.dialect()?).next().is_none().then(|| (tool.name.clone(), why))
        });
        let without = without.collect();
        let effective = tools.effective().clone();
        let missing = spec.manifest.iter().flat_map(|manifest| missing(manifest, held.variables())).collect();
        let (.., warnings) = tools.into_parts();
        Ok(Self { effective, warnings, missing, databases: without })
    }
}

/// Places that a manifest names and that are not there. In the workspace they may come later, so there only those are told of that have
/// a name like one that is there.
fn missing(manifest: &Manifest, variables: &Variables) -> Vec<MissingPlace> {
    let fs = &manifest.requires.fs;
    let read = fs.read.iter().enumerate().map(|(place, template)| (Kind::Read, place, template));
    let write = fs.write.iter().enumerate().map(|(place, template)| (Kind::Write, place, template));
    let places = read.chain(write).flat_map(|(kind, place, template)| {
        let named = manifest.line(kind, place);
        template.expand(variables).into_iter().filter_map(move |pattern| {
            let path = pattern.literal_prefix();
            // A single file to write need not be there yet.
            let is_to_come = pattern.is_literal() && kind == Kind::Write;
            if is_to_come || std::fs::symlink_metadata(path.as_path()).is_ok() {
                return None;
            }
            let similar = similar(path.as_path());
            let is_inside = variables.workspace().iter().any(|root| path.as_path().starts_with(root));
            (!is_inside || similar.is_some()).then(|| MissingPlace {
                line: named,
                named: template.to_string(),
                path,
                similar,
            })
        })
    });
    places.collect()
}

/// A name beside a path that is like its own.
fn similar(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let beside = std::fs::read_dir(path.parent()?).ok()?;
    let names: Vec<String> = beside.take(4096).filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    nearest(name, names.iter().map(String::as_str)).map(str::to_owned)
}
