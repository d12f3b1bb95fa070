//! The settings of a repository that may change inside the sandbox, as data.
//!
//! git has hundreds of keys; other programs (git-lfs, git-annex, tig, editors, …) read the same file for theirs, and new
//! ones come with every release. Many name a program to run, or a file that names one. So this is a list of those that do
//! not, each with the values that it may have. What is not in it stays as it is ([`super::gitconfig::may_replace`]).

use super::gitconfig::Setting;

/// Forms of a value. None may hold a control character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueForm {
    /// A boolean, a number with a unit, or a word that no path can be: `true`, `-1`, `512m`, `merges`.
    Word,
    /// Words and colours, with blanks between them: `bold red`, `2 weeks`.
    Words,
    /// Text that is shown and nothing else.
    Text,
    /// A reference or a refspec.
    Ref,
    /// A remote repository's address: `https://`, `ssh://`, `git://` or `user@host:path`. Neither a path, whose repository
    /// may have hooks, nor `name::address`, which runs `git-remote-name`.
    Url,
    /// `.`, or a remote of a plain name that has an address in the file: git takes any other name for a path.
    Remote,
    /// One of these.
    OneOf(&'static [&'static str]),
}

/// Which keys a line of a table is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sub {
    /// `section.name`.
    Without,
    /// `section.anything.name`.
    With,
    /// Both.
    Either,
}

use Sub::{Either, With, Without};
use ValueForm::{OneOf, Ref, Remote, Text, Url, Word, Words};

/// Section, whether a subsection stands between, names (none: all of them), values.
pub(super) type KeyLine = (&'static str, Sub, &'static [&'static str], ValueForm);

const HARMLESS: &[KeyLine] = &[
    ("advice", Without, &[], Word),
    ("author", Without, &["name", "email"], Text),
    ("branch", Without, &["autosetupmerge", "autosetuprebase", "sort"], Word),
    ("branch", With, &["description"], Text),
    ("branch", With, &["merge", "vscode-merge-base"], Ref),
    ("branch", With, &["rebase"], Word),
    ("branch", With, &["remote", "pushremote"], Remote),
    ("checkout", Without, &["defaultremote", "guess", "workers"], Word),
    ("color", Either, &[], Words),
    ("column", Without, &[], Words),
    ("commit", Without, &["cleanup", "gpgsign", "status", "verbose"], Word),
    ("committer", Without, &["name", "email"], Text),
    (
        "core",
        Without,
        &[
            "abbrev",
            "autocrlf",
            "bare",
            "bigfilethreshold",
            "checkstat",
            "commitgraph",
            "compression",
            "eol",
            "filemode",
            "fscache",
            "hidedotfiles",
            "ignorecase",
            "ignorestat",
            "logallrefupdates",
            "longpaths",
            "loosecompression",
            "multipackindex",
            "precomposeunicode",
            "preloadindex",
            "quotepath",
            "repositoryformatversion",
            "safecrlf",
            "sparsecheckout",
            "sparsecheckoutcone",
            "splitindex",
            "symlinks",
            "trustctime",
            "untrackedcache",
        ],
        Word,
    ),
    // git takes what it cannot read as a boolean for a program, a number that is too large as well.
    ("core", Without, &["fsmonitor"], OneOf(&["true", "false"])),
    ("core", Without, &["sharedrepository"], OneOf(&["umask", "false", "group", "0", "1"])),
    (
        "diff",
        Without,
        &[
            "algorithm",
            "colormoved",
            "context",
            "ignoresubmodules",
            "indentheuristic",
            "interhunkcontext",
            "mnemonicprefix",
            "noprefix",
            "relative",
            "renamelimit",
            "renames",
            "submodule",
        ],
        Word,
    ),
    (
        "extensions",
        Without,
        &["compatobjectformat", "objectformat", "preciousobjects", "refstorage", "relativeworktrees", "worktreeconfig"],
        Word,
    ),
    ("extensions", Without, &["partialclone"], Remote),
    ("feature", Without, &["experimental", "manyfiles"], Word),
    (
        "fetch",
        Without,
        &["all", "parallel", "prune", "prunetags", "recursesubmodules", "unpacklimit", "writecommitgraph"],
        Word,
    ),
    ("gc", Without, &["auto", "autodetach", "autopacklimit", "packrefs", "writecommitgraph"], Word),
    ("gc", Either, &["pruneexpire", "reflogexpire", "reflogexpireunreachable", "worktreepruneexpire"], Words),
    (
        "index",
        Without,
        &["recordendofindexentries", "recordoffsettable", "skiphash", "sparse", "threads", "version"],
        Word,
    ),
    ("init", Without, &["defaultbranch"], Ref),
    ("lfs", With, &["access", "locksverify"], Word),
    ("lfs", Without, &["repositoryformatversion"], Word),
    ("log", Without, &["abbrevcommit", "decorate", "follow", "showroot", "showsignature"], Word),
    ("maintenance", Either, &["auto", "enabled", "strategy"], Word),
    (
        "merge",
        Without,
        &["autostash", "conflictstyle", "directoryrenames", "ff", "log", "renamelimit", "renames", "stat", "verbosity"],
        Word,
    ),
    ("pack", Without, &["compression", "depth", "threads", "window", "windowmemory", "writebitmaphashcache"], Word),
    ("pull", Without, &["ff", "rebase"], Word),
    ("push", Without, &["autosetupremote", "default", "followtags", "recursesubmodules", "useforceifincludes"], Word),
    (
        "rebase",
        Without,
        &[
            "abbreviatecommands",
            "autosquash",
            "autostash",
            "backend",
            "forkpoint",
            "missingcommitscheck",
            "rebasemerges",
            "reschedulefailedexec",
            "stat",
            "updaterefs",
        ],
        Word,
    ),
    ("remote", Without, &["pushdefault"], Remote),
    ("remote", With, &["fetch", "push", "partialclonefilter"], Ref),
    (
        "remote",
        With,
        &[
            "followremotehead",
            "gh-resolved",
            "mirror",
            "promisor",
            "prune",
            "prunetags",
            "skipdefaultupdate",
            "skipfetchall",
        ],
        Word,
    ),
    ("remote", With, &["tagopt"], OneOf(&["--tags", "--no-tags"])),
    ("remote", With, &["url", "pushurl"], Url),
    ("rerere", Without, &["autoupdate", "enabled"], Word),
    ("stash", Without, &["showincludeuntracked", "showpatch", "showstat"], Word),
    (
        "status",
        Without,
        &[
            "aheadbehind",
            "branch",
            "relativepaths",
            "renames",
            "short",
            "showstash",
            "showuntrackedfiles",
            "submodulesummary",
        ],
        Word,
    ),
    ("submodule", Without, &["fetchjobs", "propagatebranches", "recurse"], Word),
    ("submodule", Without, &["active"], Text),
    ("submodule", With, &["active", "fetchrecursesubmodules", "ignore", "shallow"], Word),
    ("submodule", With, &["branch"], Ref),
    ("submodule", With, &["update"], OneOf(&["checkout", "merge", "rebase", "none"])),
    ("submodule", With, &["url"], Url),
    ("tag", Without, &["forcesignannotated", "gpgsign", "sort"], Word),
    ("user", Without, &["name", "email"], Text),
    ("user", Without, &["useconfigonly"], Word),
];

/// Form of a setting's value, if its key is in the list.
#[must_use]
pub fn harmless(setting: &Setting) -> Option<ValueForm> {
    value_in(HARMLESS, setting)
}

/// The values that a table gives a setting's key, if the key is in it.
pub(super) fn value_in(table: &[KeyLine], setting: &Setting) -> Option<ValueForm> {
    let stands = |sub: Sub| match sub {
        Either => true,
        With => setting.subsection.is_some(),
        Without => setting.subsection.is_none(),
    };
    let mut lines = table.iter().filter(|(section, sub, ..)| *section == setting.section && stands(*sub));
    let line = lines.find(|(_, _, names, _)| names.is_empty() || names.contains(&setting.name.as_str()))?;
    Some(line.3)
}

/// Most bytes that a value may have.
const LONGEST: usize = 4096;

impl ValueForm {
    /// True if a value is one of these. `None` is a key alone, which means true. `has_address` tells of a remote's name.
    pub(super) fn admits(self, value: Option<&[u8]>, has_address: impl Fn(&[u8]) -> bool) -> bool {
        let Some(value) = value else { return matches!(self, Word | Words) };
        if value.len() > LONGEST || value.iter().any(u8::is_ascii_control) {
            return false;
        }
        let all = |more: &[u8]| value.iter().all(|c| c.is_ascii_alphanumeric() || more.contains(c));
        // No program takes it for an option.
        let number = || value.strip_prefix(b"-").is_some_and(|rest| rest.first().is_some_and(u8::is_ascii_digit));
        let no_option = !value.starts_with(b"-") || number();
        match self {
            Word => all(b"-+_.=") && no_option,
            Words => all(b"-+_.=#, ") && no_option,
            Ref => all(b"-+_.=/:*^@") && no_option,
            Text => true,
            Url => is_address(value),
            Remote => value == b"." || (is_name(value) && has_address(value)),
            OneOf(words) => words.iter().any(|word| word.as_bytes() == value),
        }
    }
}

/// True if git takes a name for a remote's wherever it stands. One with a slash it may take for a path, address or not.
fn is_name(name: &[u8]) -> bool {
    name.first().is_some_and(u8::is_ascii_alphanumeric)
        && name.iter().all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(c))
}

/// Schemes for which git itself speaks to another host, and starts nothing but ssh.
const SCHEMES: &[&str] = &["https://", "ssh://", "git://"];

/// True if an address is of another host, by one of git's own transports.
fn is_address(url: &[u8]) -> bool {
    // A helper's name stands before it, whatever follows.
    if url.windows(2).any(|two| two == b"::") || !url.is_ascii() || url.contains(&b' ') {
        return false;
    }
    let scheme = SCHEMES.iter().find_map(|scheme| url.strip_prefix(scheme.as_bytes()));
    let (authority, path) = match scheme {
        Some(rest) => {
            let end = rest.iter().position(|c| *c == b'/').unwrap_or(rest.len());
            rest.split_at(end)
        }
        None if url.windows(3).any(|three| three == b"://") => return false,
        // As git tells `host:path` from a path: no slash before the colon.
        None => match url.iter().position(|c| matches!(c, b'/' | b':')) {
            Some(at) if url.get(at) == Some(&b':') => (&url[..at], &url[at + 1..]),
            _ => return false,
        },
    };
    let host = authority.rsplit(|c| *c == b'@').next().unwrap_or_default();
    let plain = |c: &u8| c.is_ascii_alphanumeric() || b"-._~%:@[]+!$&'()*,;=".contains(c);
    let no_option = |part: &[u8]| !part.is_empty() && !part.starts_with(b"-");
    authority.iter().all(plain) && no_option(authority) && no_option(host) && !path.starts_with(b"-")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A18: an address is one of another host, by a transport of git's own.
    #[test]
    fn a18_addresses() {
        for url in [
            "https://example.com/x/y.git",
            "https://user:token@example.com:8443/x",
            "ssh://git@example.com:22/x",
            "git://example.com/x",
            "git@example.com:x/y.git",
            "host:x",
        ] {
            assert!(is_address(url.as_bytes()), "{url}");
        }
        for url in [
            "",
            "up",
            "./up",
            "../up",
            "/srv/up",
            "~/up",
            "up/x:y",
            "file:///srv/up",
            "http://example.com/x",
            "ext::sh -c x",
            "ext::x",
            "https::x",
            "https://x/ext::y",
            "ssh://-oProxyCommand=x/y",
            "ssh://u@-oProxyCommand=x/y",
            "-oProxyCommand=x:y",
            "u@-x:y",
            "host:-x",
            "https://",
            "transport://x",
            "https://a b/c",
        ] {
            assert!(!is_address(url.as_bytes()), "{url}");
        }
    }
}
