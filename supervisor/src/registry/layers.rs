//! Where tools come from: what callgate brings, what the user declares, what a trusted project declares (S1-24).
//!
//! A definition is read by the descriptor of its directory, through no link, and bounded in size; so are the files that belong
//! to it. Nothing of a project's is parsed before its digest is one that was trusted.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

use callgate_policy::plan::protect::{Match, State, names};
use rustix::fs::{Mode, OFlags};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::declared::{Definition, line_of};
use super::directory::{Directory, FILE_MAX, LAYER_MAX, digest, refuse_others};
use super::{Origin, Registry, RegistryError, Tool};
use crate::host;

/// Where a project declares its tools, below its root.
const OF_PROJECT: &str = ".callgate/tools";
/// Where a user does, below the directory for settings.
const OF_USER: &str = "tools";

/// The longest definition, bytes.
const DEFINITION_MAX: u64 = 64 * 1024;
/// The most definitions of a layer.
const DEFINITIONS_MAX: usize = 128;

/// A tool that a file declares and that is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LeftOut {
    /// Its name, if that much is known.
    pub name: Option<String>,
    /// The layer.
    pub origin: Origin,
    /// The file that declares it.
    pub file: PathBuf,
    /// True if that is what the file says, and no mistake.
    pub disabled: bool,
    /// Reason.
    pub why: String,
}

const DISABLED: &str = "disabled there; to have it, take `disable = true` or `enabled = false` out";

/// The definitions of one layer, as they were read.
#[derive(Debug, Clone)]
pub(crate) struct Layer {
    origin: Origin,
    found: Vec<(PathBuf, Found)>,
    left_out: Vec<LeftOut>,
}

#[derive(Debug, Clone)]
enum Found {
    Tool(Box<Tool>),
    /// A tool of this name is not wanted.
    Without(String),
}

impl Found {
    fn name(&self) -> &str {
        match self {
            Self::Tool(tool) => &tool.name,
            Self::Without(name) => name,
        }
    }
}

/// True if this is a protected name wherever calls may write above it. What the user declares counts without being
/// trusted first, so no call of any session may have written it.
pub(crate) fn counts(path: &Path) -> bool {
    matches!(names().find(State::default(), path.as_os_str().as_encoded_bytes()), Match::Kept { .. })
}

/// Asked of each file, by its name below the root and its digest, before anything of it is used.
pub(crate) type IsBelieved<'a> = &'a mut dyn FnMut(&str, &str) -> bool;

impl Layer {
    /// Declarations of a project; or the name of a file that is not believed, of which nothing was parsed.
    pub(crate) fn of_project(
        (held, root): (BorrowedFd<'_>, &Path),
        is_believed: IsBelieved<'_>,
    ) -> Result<Self, String> {
        Self::below(Origin::Project, (held, root, OF_PROJECT), is_believed)
    }

    /// Declarations of the user in this directory for settings. One that is not there declares nothing.
    pub(crate) fn of_user(settings: &Path) -> Self {
        let origin = Origin::User;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = std::fs::canonicalize(settings).and_then(|real| {
            let held = rustix::fs::open(&real, flags | OFlags::NOFOLLOW, Mode::empty())?;
            refuse_others(&rustix::fs::fstat(&held)?)?;
            Ok((held, real))
        });
        let left_out =
            |why: String| LeftOut { name: None, origin: Origin::User, file: settings.to_owned(), disabled: false, why };
        match opened {
            Ok((_, real)) if !counts(&real) => {
                let tools = real.join(OF_USER);
                let why = format!(
                    "calls of a session that may write there could have declared tools in {}; move it to \
                     ~/.config/callgate/tools, a name under which no call writes, and let no link lead there",
                    tools.display()
                );
                let left_out = tools.symlink_metadata().is_ok().then(|| left_out(why));
                Self { origin, found: Vec::new(), left_out: left_out.into_iter().collect() }
            }
            Ok((held, real)) => match Self::below(origin, (held.as_fd(), &real, OF_USER), &mut |_, _| true) {
                Ok(layer) => layer,
                Err(name) => Self { origin: Origin::User, found: Vec::new(), left_out: vec![left_out(name)] },
            },
            // A home that is somebody else's (`sudo -u`) has no tools of ours.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
                Self { origin, found: Vec::new(), left_out: Vec::new() }
            }
            Err(error) => Self { origin, found: Vec::new(), left_out: vec![left_out(error.to_string())] },
        }
    }

    fn below(
        origin: Origin,
        (held, root, under): (BorrowedFd<'_>, &Path, &str),
        is_believed: IsBelieved<'_>,
    ) -> Result<Self, String> {
        let mut layer = Self { origin: origin.clone(), found: Vec::new(), left_out: Vec::new() };
        let whole =
            |why: String| LeftOut { name: None, origin: origin.clone(), file: root.join(under), disabled: false, why };
        let directory = match Directory::below(held, (root, under), origin == Origin::User) {
            Ok(Some(directory)) => directory,
            Ok(None) => return Ok(layer),
            Err(error) => {
                layer.left_out.push(whole(error.to_string()));
                return Ok(layer);
            }
        };
        let names = match directory.definitions() {
            Ok(names) => names,
            Err(error) => {
                layer.left_out.push(whole(error.to_string()));
                return Ok(layer);
            }
        };
        let mut room = LAYER_MAX;
        for (number, name) in names.iter().enumerate() {
            let path = directory.path.join(name.to_string_lossy().as_ref());
            if number == DEFINITIONS_MAX {
                let why = format!(
                    "a layer has at most {DEFINITIONS_MAX} definitions; this one and those after it are left out"
                );
                layer.left_out.push(LeftOut { name: None, origin: origin.clone(), file: path, disabled: false, why });
                break;
            }
            match read_definition(&origin, (&directory, &mut room), (under, name), is_believed)? {
                Ok(found) => layer.found.push((path, found)),
                Err((name, why)) => {
                    layer.left_out.push(LeftOut { name, origin: origin.clone(), file: path, disabled: false, why })
                }
            }
        }
        layer.refuse_twins();
        Ok(layer)
    }

    /// Two definitions of one name in one layer: nobody says which is meant, so it is neither (F12).
    fn refuse_twins(&mut self) {
        let names: Vec<String> = self.found.iter().map(|(_, found)| found.name().to_owned()).collect();
        let is_twin = |name: &str| names.iter().filter(|other| *other == name).count() > 1;
        for (file, found) in std::mem::take(&mut self.found) {
            if !is_twin(found.name()) {
                self.found.push((file, found));
                continue;
            }
            let why = "another file of the same layer declares this name too; keep one".to_owned();
            let (name, origin) = (Some(found.name().to_owned()), self.origin.clone());
            self.left_out.push(LeftOut { name, origin, file, disabled: false, why });
        }
    }

    /// The names of its tools, for whoever trusts them, each with what it runs.
    pub(crate) fn tools(&self) -> impl Iterator<Item = &Tool> {
        self.found.iter().filter_map(|(_, found)| match found {
            Found::Tool(tool) => Some(&**tool),
            Found::Without(_) => None,
        })
    }

    /// Parts of it that cannot be used, and what it takes away.
    pub(crate) fn left_out(&self) -> Vec<LeftOut> {
        let without = self.found.iter().filter_map(|(file, found)| {
            let Found::Without(name) = found else { return None };
            let (name, origin, file) = (Some(name.clone()), self.origin.clone(), file.clone());
            Some(LeftOut { name, origin, file, disabled: true, why: DISABLED.to_owned() })
        });
        self.left_out.iter().cloned().chain(without).collect()
    }
}

/// A definition and the files that belong to it. The outer error is the name of one that is not believed; the inner one is what is
/// wrong with it, and the tool's name if that is known.
#[allow(clippy::type_complexity, reason = "what is not believed ends all; what is broken is left out")]
fn read_definition(
    origin: &Origin,
    (directory, room): (&Directory, &mut u64),
    (under, file): (&str, &CString),
    is_believed: IsBelieved<'_>,
) -> Result<Result<Found, (Option<String>, String)>, String> {
    let Ok(file) = file.to_str() else { return Ok(Err((None, "its name is not UTF-8".to_owned()))) };
    let text = match directory.read_within(file, DEFINITION_MAX, room) {
        Ok(text) => text,
        Err(error) => return Ok(Err((None, error.to_string()))),
    };
    let of_definition = digest(&text);
    let below = format!("{under}/{file}");
    if !is_believed(&below, &of_definition) {
        return Err(below);
    }
    let Ok(text) = String::from_utf8(text) else { return Ok(Err((None, "it is not UTF-8".to_owned()))) };
    let declaration = match Definition::parse(&text) {
        Ok(Definition::Tool(declaration)) => declaration,
        Ok(Definition::Without(name)) => return Ok(Ok(Found::Without(name))),
        Err(wrong) => return Ok(Err(wrong)),
    };
    let (mut all, mut digests) = (Sha256::new(), Vec::new());
    all.update(&of_definition);
    for name in &declaration.files {
        let bytes = match directory.read_within(name, FILE_MAX, room) {
            Ok(bytes) => bytes,
            Err(error) => {
                let line = line_of(&text, if declaration.runs(name) { "command" } else { "files" });
                let line = line.map(|line| format!("line {line}: ")).unwrap_or_default();
                return Ok(Err((Some(declaration.name.clone()), format!("{line}its file {name}: {error}"))));
            }
        };
        let (of_file, below) = (digest(&bytes), format!("{under}/{name}"));
        if !is_believed(&below, &of_file) {
            return Err(below);
        }
        all.update(&of_file);
        digests.push((name.clone(), of_file));
    }
    let place = (directory.path.join(file), directory.clone());
    let tool = declaration.tool(origin.clone(), place, (digests, &host::hex(&all.finalize())));
    Ok(match tool.check() {
        Ok(()) => Ok(Found::Tool(Box::new(tool))),
        Err(error) => {
            let key = match &error {
                RegistryError::Name { .. } => "name",
                RegistryError::OutputSchema { .. } => "output_schema",
                RegistryError::Schema { .. }
                | RegistryError::Taken { .. }
                | RegistryError::Unknown { .. }
                | RegistryError::NotInTheCatalogue { .. }
                | RegistryError::UnknownToAgent { .. }
                | RegistryError::Requires { .. } => "parameters",
            };
            let line = line_of(&text, key).map(|line| format!("line {line}: ")).unwrap_or_default();
            Err((Some(declaration.name.clone()), format!("{line}{error}")))
        }
    })
}

impl Registry {
    /// Adds what layers declare, the earliest first: a tool of a later one takes the place of one with its name (S1-5, C-10).
    pub(crate) fn declare(&mut self, layers: &[Layer]) {
        for layer in layers {
            self.left_out.extend(layer.left_out.iter().cloned());
            // What a broken definition was to replace does not stand in for it: it may be allowed more (F12).
            for name in layer.left_out.iter().filter_map(|left_out| left_out.name.as_deref()) {
                self.tools.retain(|tool| tool.name != name || tool.executor.declared().is_none());
            }
            for (file, found) in &layer.found {
                if let Err((disabled, why)) = self.take(found) {
                    let (name, origin, file) = (Some(found.name().to_owned()), layer.origin.clone(), file.clone());
                    self.left_out.push(LeftOut { name, origin, file, disabled, why });
                }
            }
        }
    }

    /// Adds one, or says why not, and whether that is what was wanted.
    fn take(&mut self, found: &Found) -> Result<(), (bool, String)> {
        let there = self.tools.iter().position(|tool| tool.name == found.name());
        if let Some(tool) = there.map(|at| &self.tools[at])
            && tool.origin != Origin::Bundled
            && tool.executor.declared().is_none()
        {
            return Err((false, format!("the host has a tool of this name ({})", tool.origin)));
        }
        let tool = match found {
            Found::Without(name) => {
                self.tools.retain(|tool| tool.name != *name);
                return Err((true, DISABLED.to_owned()));
            }
            Found::Tool(tool) => tool,
        };
        if callgate_policy::tool::Subject::of_locked(&tool.name).is_some() {
            let locked = Self::locked().ok();
            let locked = locked.as_ref().and_then(|locked| locked.find(&tool.name));
            // Its contract stays what it is (S0-24).
            if locked.is_none_or(|locked| locked.parameters != tool.parameters) {
                let why = "the name is locked: a tool that takes its place has the same `parameters` (callgate tools NAME --json)";
                return Err((false, why.to_owned()));
            }
        }
        match there {
            Some(at) => self.tools[at] = (**tool).clone(),
            None => self.tools.push((**tool).clone()),
        }
        Ok(())
    }

    /// Leaves out each declared tool that a reason is found for.
    pub(crate) fn leave_out(&mut self, reason: impl Fn(&mut Tool) -> Option<String>) {
        let mut left_out = Vec::new();
        self.tools.retain_mut(|tool| {
            if tool.executor.declared().is_none() {
                return true;
            }
            let Some(why) = reason(tool) else { return true };
            let Some(declared) = tool.executor.declared() else { return true };
            let (name, origin, file) = (Some(tool.name.clone()), tool.origin.clone(), declared.file.clone());
            left_out.push(LeftOut { name, origin, file, disabled: false, why });
            false
        });
        self.left_out.extend(left_out);
    }

    /// The layers without a tool.
    pub(crate) fn without(&self, name: &str) -> Self {
        self.only(|tool| tool.name != name)
    }

    /// Tools that are declared and not there, and why.
    #[must_use]
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// True if a tool of this name is declared and not there.
    pub(crate) fn is_left_out(&self, name: &str) -> bool {
        self.left_out.iter().any(|left_out| left_out.name.as_deref() == Some(name))
    }
}
