//! Facts about the host that plans are compiled from: its toolchains, the path on which programs are looked for, its user's homes.

use std::path::{Path, PathBuf};

use callgate_policy::effective::EffectiveSet;
use callgate_policy::path::HostPath;
use callgate_policy::plan::compile::{self, HostFacts, LeftOut};
use callgate_policy::plan::etc::{EtcReading, Readable};
use callgate_policy::plan::{AskedFor, Calls, Identity, PrivateDir, Strength};
use callgate_worker::way::{Id, Link};

use crate::gitconfig;
use crate::home::Homes;
use crate::host::{environment, home, identity_of};
use crate::host_view::HostView;
use crate::place::Changeable;

/// Collects what plans are compiled from. A tool that runs with a part of what is in force in a session finds its programs where
/// the whole session does not write: what other calls have planted would run with what only the tool has.
pub(crate) fn collect(
    (strength, calls): (Strength, Calls),
    landlock_abi: u8,
    identity: Identity,
    private: PrivateDir,
    workspace: Vec<HostPath>,
    (effective, of_session): (&EffectiveSet, Option<&EffectiveSet>),
    (changeable, host): (&Changeable, &HostView),
) -> HostFacts {
    let (home, homes) = (home(), host.homes());
    let (toolchains, defaults) = home.as_deref().map(|home| toolchains(home, changeable, homes)).unwrap_or_default();
    let mut env = environment();
    for (name, value) in defaults {
        env.entry(name.to_owned()).or_insert(value);
    }
    let gitconfig = gitconfig::for_sessions(&env, home.as_deref());
    let venv = env.get("VIRTUAL_ENV").map(|venv| venv.as_path().join("bin"));
    // A program that a call has planted there could take another's place in a later call, or be started in place of one that
    // was granted. With one call, and any program granted, there is nothing to take.
    let free = of_session.is_none() && calls == Calls::One && !compile::exec(effective).is_judged();
    let although = venv.as_deref().filter(|_| free);
    let search = Search::of(env.get("PATH"), toolchains, (of_session.unwrap_or(effective), changeable, host));
    let (path, path_left_out) = search.path(effective, although);
    // Of a part, what its session was asked for as well.
    let all = of_session.into_iter().chain([effective]);
    let asked = all.flat_map(|set| [set.asked_for(), asked_without_links(set)].concat()).collect();
    HostFacts {
        strength,
        calls,
        landlock_abi,
        identity,
        private,
        left_of: effective.left_of(),
        asked,
        asked_without_links: asked_without_links(effective),
        closed: Vec::new(),
        homes: homes.iter().map(HostPath::from).collect(),
        workspace,
        toolchains: search.toolchains,
        etc: host.system().etc.clone(),
        shared: host.system().shared.clone(),
        path,
        path_left_out,
        env,
        gitconfig,
    }
}

/// Toolchains that live in the home directory, each part that programs need by name: never the directory that also
/// holds credentials (`~/.cargo/credentials.toml`).
const TOOLCHAINS: &[(&str, Option<&str>)] = &[
    (".cargo/bin", Some("CARGO_HOME")),
    (".cargo/registry", Some("CARGO_HOME")),
    (".cargo/git", Some("CARGO_HOME")),
    (".cargo/env", None),
    (".rustup", Some("RUSTUP_HOME")),
    (".pyenv", Some("PYENV_ROOT")),
    (".nvm", Some("NVM_DIR")),
    (".volta/bin", None),
    (".volta/tools", None),
    (".bun/bin", None),
    (".deno/bin", None),
    ("go/bin", None),
    ("go/pkg", Some("GOPATH")),
    (".local/bin", None),
    (".local/lib", None),
    (".local/share/uv", None),
    (".local/share/mise", None),
    (".local/share/fnm", None),
    (".rbenv", None),
    (".asdf", None),
    (".sdkman/candidates", None),
];

/// A link that a call may have put in the way of one would show the session whatever it leads to: that one is left out. Sessions
/// with other workspaces may have had calls that wrote in a tool's directory. So links are followed that lie in the home
/// directory itself, or above it; and what holds a home directory or keys is no toolchain.
fn toolchains(home: &Path, changeable: &Changeable, homes: &Homes) -> (Vec<HostPath>, Vec<(&'static str, HostPath)>) {
    let mut found = Vec::new();
    let mut env = Vec::new();
    let above_home: Vec<Id> = home.ancestors().filter_map(identity_of).collect();
    for (part, variable) in TOOLCHAINS {
        let is_near = |link: &Link| link.directory().is_some_and(|directory| above_home.contains(&directory));
        let Some(path) = real_path(&home.join(part), changeable, is_near) else { continue };
        if let Some(why) = homes.found_in(&path) {
            tracing::warn!(path = %path.display(), %why, "left out: it is no toolchain");
            continue;
        }
        found.push(HostPath::from(path));
        if let (Some(variable), Some(top)) = (variable, Path::new(part).components().next()) {
            env.push((*variable, HostPath::from(home.join(top))));
        }
    }
    (found, env)
}

/// Where a path leads, without links. `None` if it leads nowhere, or by a link that a call may have made, or by one that is not
/// to be followed.
fn real_path(path: &Path, changeable: &Changeable, is_followed: impl Fn(&Link) -> bool) -> Option<PathBuf> {
    let link = match changeable.follow(path) {
        Err(link) => link,
        Ok(way) => {
            let way = way?;
            match way.links.iter().find(|link| !is_followed(link)) {
                None => return way.real_path().ok(),
                Some(link) => link.path.clone(),
            }
        }
    };
    let (path, link) = (path.display(), link.display());
    tracing::warn!(%path, %link, "left out: a call may have made this link; to use it, grant what it leads to");
    None
}

/// Directories of PATH, and those that were left out with the reason.
type SearchPath = (Vec<HostPath>, Vec<(HostPath, LeftOut)>);

/// Where programs are looked for by their names.
pub(crate) struct Search<'h> {
    /// The directories of PATH that exist, the path of each without links, and who may have planted programs there.
    directories: Vec<(HostPath, HostPath, Option<LeftOut>)>,
    toolchains: Vec<HostPath>,
    /// Parts of the system that are readable.
    shared: &'h [Readable],
}

impl<'h> Search<'h> {
    fn of(
        given: Option<&HostPath>,
        toolchains: Vec<HostPath>,
        (session, changeable, host): (&EffectiveSet, &Changeable, &'h HostView),
    ) -> Self {
        let given = given.map_or("/usr/local/bin:/usr/bin:/bin".into(), |path| path.as_path().as_os_str().to_owned());
        let (written, workspace) = (Written::by(session), Written(changeable.earlier().map(Standing::of).collect()));
        // What lies there may be seen in a written directory as well. Where mounts cannot be read, nothing is known of that.
        let planted = |real: &Path| {
            let Some(names) = changeable.names(real) else { return Some(LeftOut::Writable) };
            let touches = |all: &Written| names.iter().any(|name| all.touches(name));
            match () {
                () if touches(&written) => Some(LeftOut::Writable),
                () if touches(&workspace) || names.iter().any(|name| changeable.asked(name)) => {
                    Some(LeftOut::Workspace)
                }
                () => None,
            }
        };
        // Without a slash at the end, which is no part of a name.
        let named = std::env::split_paths(&given).map(|dir| dir.components().collect::<PathBuf>());
        let directories = named.filter(|dir| dir.is_absolute()).filter_map(|dir| {
            let real = real_path(&dir, changeable, |_| true)?;
            let planted = planted(&real);
            Some((HostPath::from(dir), HostPath::from(real), planted))
        });
        Self { directories: directories.collect(), toolchains, shared: &host.system().shared }
    }

    /// Path as for a session with these rights, and for its tools.
    pub(crate) fn of_tools(session: &EffectiveSet, changeable: &Changeable, host: &'h HostView) -> Self {
        let toolchains = home().map(|home| self::toolchains(&home, changeable, host.homes()).0).unwrap_or_default();
        Self::of(environment().get("PATH"), toolchains, (session, changeable, host))
    }

    /// The directories that programs may be read from, and that neither the session can write nor an earlier one of the same
    /// workspace: a program planted in one would be started in place of the real one (C12). `although` stays all the same.
    pub(crate) fn path(&self, effective: &EffectiveSet, although: Option<&Path>) -> SearchPath {
        let (mut path, mut left_out) = (Vec::new(), Vec::new());
        for (dir, real, planted) in &self.directories {
            let is_root = ["/bin", "/sbin"].iter().any(|system| real.as_path().starts_with(system));
            // Of a directory in which not everything is everybody's, the rest is: its programs are granted one by one.
            let mut shared = self.shared.iter().filter(|readable| match readable.reading {
                EtcReading::Tree => real.as_path().starts_with(&readable.path),
                EtcReading::File => readable.path.as_path().parent() == Some(real.as_path()),
                EtcReading::Names => false,
            });
            let system = is_root || shared.next().is_some();
            let toolchain = self.toolchains.iter().any(|toolchain| real.as_path().starts_with(toolchain));
            let readable = system || toolchain || effective.allows_read(real);
            match planted.filter(|_| although != Some(dir.as_path())) {
                _ if !readable => left_out.push((dir.clone(), LeftOut::NotReadable)),
                Some(why) => left_out.push((dir.clone(), why)),
                None if path.contains(dir) => {}
                None => path.push(dir.clone()),
            }
        }
        (path, left_out)
    }
}

/// Places that a session may change, with all that lies below, as the kernel is told it: a pattern such as `**/bin/**`
/// lets programs write anywhere below the directory that it begins in.
struct Written(Vec<Standing>);

impl Written {
    fn by(effective: &EffectiveSet) -> Self {
        let write = effective.rights().write().iter();
        Self(write.map(|(region, _)| Standing::of(without_links(region.literal_prefix().as_path()))).collect())
    }

    /// True if one of them is this directory, holds it or lies in it. What lies in it counts because a program of the
    /// directory may be a link to there.
    fn touches(&self, directory: &Path) -> bool {
        let directory = Standing::of(directory.to_owned());
        self.0.iter().any(|place| directory.lies_in(place) || place.lies_in(&directory))
    }
}

/// Names without links of places that were asked for to write in, where they differ. A single name is itself: a call
/// may make a link of it.
fn asked_without_links(effective: &EffectiveSet) -> Vec<AskedFor> {
    let real = |asked: &AskedFor| {
        let path = asked.path.as_path();
        let real = match (asked.is_tree, path.parent(), path.file_name()) {
            (false, Some(directory), Some(name)) => without_links(directory).join(name),
            _ => without_links(path),
        };
        (real != path).then(|| AskedFor { path: real.into(), is_tree: asked.is_tree })
    };
    effective.asked_for().iter().filter_map(real).collect()
}

/// The path of what need not be there yet, without the links on the way to it.
fn without_links(path: &Path) -> PathBuf {
    match (std::fs::canonicalize(path), path.parent(), path.file_name()) {
        (Ok(real), ..) => real,
        (Err(_absent), Some(parent), Some(name)) => without_links(parent).join(name),
        (Err(_absent), ..) => path.to_owned(),
    }
}

/// A path without links, and which directories it and those above it are: a mounted directory has several paths.
struct Standing {
    path: PathBuf,
    own: Option<Id>,
    all: Vec<Id>,
}

impl Standing {
    fn of(path: PathBuf) -> Self {
        Self { own: identity_of(&path), all: path.ancestors().filter_map(identity_of).collect(), path }
    }

    fn lies_in(&self, outer: &Self) -> bool {
        self.path.starts_with(&outer.path) || outer.own.is_some_and(|own| self.all.contains(&own))
    }
}
