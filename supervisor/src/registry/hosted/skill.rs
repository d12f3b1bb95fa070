//! `skill` (S0-21, S0-31): instructions that lie in files, of which a model sees one line each until it asks for one.
//!
//! A skill is a directory with a `SKILL.md` in one of [`FOLDERS`], in the user's home directory or in a project. Those of a
//! project count only if its manifest is trusted, and only as they were then: a `SKILL.md` that has changed since is left out.
//! Nothing is looked up by a link. A stranger may have written the text: it is bounded, and its front matter is read by a worker
//! that can do nothing else, as command lines are (`call/understand.rs`). What that answers is looked at as a model's words are.
//!
//! A skill grants nothing. The tools that it lists are told to the host, and to nobody else.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use callgate_policy::path::HostPath;
use callgate_policy::pattern::PathTemplate;
use callgate_policy::requirement::{FsRequirement, RequirementSet};
use callgate_policy::skill::{FILE_MAX, FRONT_MAX, FrontMatter, is_name, split};
use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;

use super::super::directory::refuse_others;
use super::super::executor::{Executor, HostTool};
use super::super::{Origin, RegistryError, Tool};
use crate::home::Homes;
use crate::host;
use crate::place::Place;
use crate::registry::acts::Hosted;

/// Where skills lie, in a home directory or a project: of two with one name the first counts, and a project's before the user's.
const FOLDERS: [&str; 3] = [".callgate/skills", ".agents/skills", ".claude/skills"];
/// File that makes a directory a skill.
pub(crate) const FILE: &str = "SKILL.md";
/// Most entries of one folder that are looked at.
const ENTRIES: usize = 200;

const DESCRIPTION: &str = "Returns the instructions of a skill: know-how for one kind of work, which this host or project has. Use it \
when one of the skills that you were told of fits what you are to do. Files that a skill refers to lie in the directory that is \
named with it; read them with read. A skill gives no rights: what it says is advice.";

const SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "name": { "type": "string", "minLength": 1, "maxLength": 64, "description": "The skill's name." }
  },
  "required": ["name"],
  "additionalProperties": false
}"#;

const OUTPUT: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "content": { "type": "string", "description": "The instructions, between `<skill_content name=… directory=…>` and its end." },
    "head": { "description": "The first part of a result that was too long." }
  },
  "anyOf": [{ "required": ["head"] }, { "required": ["content"] }]
}"#;

pub(super) fn skill() -> Result<Tool, RegistryError> {
    Ok(Tool::bundled("skill", (DESCRIPTION, SCHEMA, OUTPUT), Executor::Host(HostTool::Session(Hosted::Skill)))
        .side_by_side())
}

/// A skill, as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Skill {
    /// Its name, description and the rest of its front matter. The tools that it lists are a wish: a host may give it no others,
    /// and nothing is granted by it.
    #[serde(flatten)]
    pub front: FrontMatter,
    /// Whose it is: [`Origin::User`] or [`Origin::Project`].
    pub origin: Origin,
    /// Where it and the files beside it lie.
    pub directory: HostPath,
}

/// Directory that is no skill, though it lies where skills do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SkillLeftOut {
    /// Path of it.
    pub path: HostPath,
    /// Reason.
    pub why: String,
}

/// The skills of a session, which are the same as long as it lasts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Skills {
    /// By name.
    pub skills: Vec<Skill>,
    /// Directories that are left out.
    pub left_out: Vec<SkillLeftOut>,
}

/// Skills as a session knows them.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) found: Arc<Found>,
    pub(crate) index: OnceCell<Skills>,
    /// The texts that were asked for, as they were the first time.
    pub(crate) loaded: Mutex<BTreeMap<String, String>>,
}

impl Known {
    pub(crate) fn new(found: Arc<Found>) -> Self {
        Self { found, ..Self::default() }
    }

    pub(crate) fn found(&self) -> Arc<Found> {
        Arc::clone(&self.found)
    }
}

/// The directories of skills, before anything in them is read.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) skills: Vec<Candidate>,
    pub(crate) left_out: Vec<SkillLeftOut>,
    pub(crate) home: Option<Place>,
}

#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) origin: Origin,
    pub(crate) name: String,
    /// From the home directory or the project.
    pub(crate) file: PathBuf,
    pub(crate) directory: HostPath,
    /// Whose that is.
    owner: u32,
    /// Digest of its file when the session was opened.
    pub(crate) digest: String,
}

impl Found {
    /// Looks for skills. `trusted` has the digests of the project's, if its manifest is trusted.
    pub(crate) fn look(project: Option<(&Place, &BTreeMap<String, String>)>) -> Self {
        let mut found = Self::default();
        if let Some((root, trusted)) = project {
            for candidate in found.below((root.as_fd(), root.path().as_path()), &Origin::Project) {
                match candidate.file.to_str().and_then(|file| trusted.get(file)) {
                    Some(digest) if *digest == candidate.digest => found.skills.push(candidate),
                    Some(_) => found.leave_out(
                        candidate.directory,
                        "SKILL.md has changed since the project was trusted; look at it, then: callgate trust DIR",
                    ),
                    None => found.leave_out(candidate.directory, "it was not there when the project was trusted"),
                }
            }
        }
        // One that cannot be held is one that has no skills.
        if let Some(home) = host::home().and_then(|home| Place::find(&home).ok()) {
            let of_user = found.below((home.as_fd(), home.path().as_path()), &Origin::User);
            found.skills.extend(of_user);
            found.home = Some(home);
        }
        found
    }

    fn leave_out(&mut self, path: HostPath, why: impl Into<String>) {
        self.left_out.push(SkillLeftOut { path, why: why.into() });
    }

    fn below(&mut self, (base, place): (BorrowedFd<'_>, &Path), origin: &Origin) -> Vec<Candidate> {
        let mut all = Vec::new();
        for folder in FOLDERS {
            let path = place.join(folder);
            let opened = match beneath(base, Path::new(folder), OFlags::DIRECTORY) {
                Err(Errno::NOENT) => continue,
                opened => opened.and_then(|folder| Ok((Dir::read_from(&folder)?, rustix::fs::fstat(&folder)?, folder))),
            };
            let others = |stat: &Stat| if *origin == Origin::Project { Ok(()) } else { refuse_others(stat) };
            let opened = opened.map_err(unreadable).and_then(|(entries, stat, held)| {
                others(&stat).map(|()| (entries, held)).map_err(|why| why.to_string())
            });
            let (entries, held) = match opened {
                Ok(opened) => opened,
                Err(why) => {
                    self.leave_out(path.into(), why);
                    continue;
                }
            };
            // In one order, however the file system keeps them.
            let names = entries.flatten().map(|entry| entry.file_name().to_bytes().to_vec());
            let names: BTreeSet<Vec<u8>> = names.filter(|name| !name.starts_with(b".")).take(ENTRIES + 1).collect();
            if names.len() > ENTRIES {
                self.leave_out(
                    path.clone().into(),
                    format!("it has more than {ENTRIES} entries, of which the others are not seen"),
                );
            }
            for name in names.into_iter().take(ENTRIES) {
                let name = std::ffi::OsStr::from_bytes(&name);
                let directory = path.join(name);
                match candidate(held.as_fd(), name, origin) {
                    Ok(None) => {}
                    Err(why) => self.leave_out(directory.into(), why),
                    Ok(Some((name, owner, digest))) => {
                        let file = Path::new(folder).join(&name).join(FILE);
                        let directory = HostPath::from(directory);
                        all.push(Candidate { origin: origin.clone(), name, file, directory, owner, digest });
                    }
                }
            }
        }
        all
    }

    /// The directories that the session may read: for what lies beside a skill's file, those of whoever it runs as.
    pub(crate) fn directories(&self, session: u32, homes: &Homes) -> Vec<HostPath> {
        let is_granted =
            |skill: &&Candidate| skill.owner == session && homes.found_in(skill.directory.as_path()).is_none();
        self.skills.iter().filter(is_granted).map(|skill| skill.directory.clone()).collect()
    }
}

/// Requirements for reading these directories.
pub(crate) fn requires(directories: &[HostPath]) -> Option<RequirementSet> {
    let read: Vec<PathTemplate> = directories.iter().map(PathTemplate::of_tree).collect();
    let fs = FsRequirement { read, ..FsRequirement::default() };
    (!fs.read.is_empty()).then(|| RequirementSet { fs, ..RequirementSet::default() })
}

/// The name, the owner and the digest of a skill, all of one directory; `None` for what is none. What is no skill is known before
/// its directory is granted, as far as that can be seen without reading YAML.
fn candidate(
    folder: BorrowedFd<'_>,
    name: &std::ffi::OsStr,
    origin: &Origin,
) -> Result<Option<(String, u32, String)>, String> {
    let directory = match beneath(folder, Path::new(name), OFlags::DIRECTORY) {
        Err(Errno::NOTDIR) => return Ok(None),
        directory => directory.map_err(unreadable)?,
    };
    let Some(name) = name.to_str().filter(|name| is_name(name)) else {
        return Err("its name is not one of a-z, 0-9 and `-`".to_owned());
    };
    let stat = rustix::fs::fstat(&directory).map_err(unreadable)?;
    if *origin != Origin::Project {
        refuse_others(&stat).map_err(|why| why.to_string())?;
    }
    match rustix::fs::statat(&directory, FILE, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Err("there is no SKILL.md in it".to_owned()),
        stat => drop(stat.map_err(unreadable)?),
    }
    let text = text_of(directory.as_fd(), Path::new(FILE), origin)?;
    front_of(&text)?;
    Ok(Some((name.to_owned(), stat.st_uid, digest_of(&text))))
}

/// The front matter of a skill's text, unread.
pub(crate) fn front_of(text: &str) -> Result<&str, String> {
    match split(text) {
        None => Err("SKILL.md does not begin with a front matter: a line `---`, its keys, and a line `---`".to_owned()),
        Some((front, _)) if front.len() > FRONT_MAX => {
            Err(format!("its front matter is longer than {} KiB", FRONT_MAX / 1024))
        }
        Some((front, _)) => Ok(front),
    }
}

/// The digests of a project's skills, for whoever is about to trust it.
pub(crate) fn digests((held, root): (BorrowedFd<'_>, &Path)) -> BTreeMap<String, String> {
    let candidates = Found::default().below((held, root), &Origin::Project);
    candidates.into_iter().filter_map(|skill| Some((skill.file.to_str()?.to_owned(), skill.digest))).collect()
}

pub(crate) fn digest_of(text: &str) -> String {
    host::hex(&Sha256::digest(text))
}

/// Opens what lies beneath a directory, by no link. Other file systems may be mounted there: whoever could mount one needs no
/// skill.
fn beneath(base: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::io::retry_on_intr(|| rustix::fs::openat2(base, path, flags, Mode::empty(), resolve))
}

fn unreadable(errno: Errno) -> String {
    match errno {
        Errno::LOOP => "it is a symbolic link, or lies behind one".to_owned(),
        errno => format!("it cannot be read: {}", std::io::Error::from(errno)),
    }
}

/// Text of a skill's file. One of the user's is theirs or root's alone; a project's is what was trusted.
pub(crate) fn text_of(base: BorrowedFd<'_>, file: &Path, origin: &Origin) -> Result<String, String> {
    let opened = beneath(base, file, OFlags::empty()).map_err(unreadable)?;
    let stat = rustix::fs::fstat(&opened).map_err(unreadable)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err("SKILL.md is not a regular file".to_owned());
    }
    if *origin != Origin::Project {
        refuse_others(&stat).map_err(|why| format!("SKILL.md: {why}"))?;
        // By another name, calls may write what they may not write by this one.
        if stat.st_nlink != 1 {
            return Err("SKILL.md has another name elsewhere (a hard link); replace it by a copy".to_owned());
        }
    }
    let mut text = Vec::new();
    let read = std::fs::File::from(opened).take(FILE_MAX as u64 + 1).read_to_end(&mut text);
    read.map_err(|error| format!("SKILL.md cannot be read: {error}"))?;
    if text.len() > FILE_MAX {
        return Err(format!("SKILL.md is longer than {} KiB", FILE_MAX / 1024));
    }
    String::from_utf8(text).map_err(|_bytes| "SKILL.md is not UTF-8".to_owned())
}
