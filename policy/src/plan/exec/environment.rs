//! Comparison of a program's environment with the session's.
//!
//! Arguments say what a program does only as long as nothing else does: `MAKEFILES=…`, `PYTHONPATH=.`, `LD_PRELOAD`, `BASH_ENV`,
//! `GIT_CONFIG_COUNT`, `NODE_OPTIONS` and a hundred more, and tomorrow's. So where a grant bounds arguments, or lets an interpreter
//! run one script alone, the environment is the one that the session was opened with. What may differ is listed here.

use std::collections::{BTreeMap, BTreeSet};

use crate::path::HostPath;
use crate::plan::{ENDPOINT, ENDPOINT_VARIABLE};
use crate::shell::reading;

/// Variables that say how text is shown and nothing else, as long as it names no file.
const SHOWN: &[&str] = &[
    "LANG",
    "LANGUAGE",
    "TERM",
    "COLORTERM",
    "COLUMNS",
    "LINES",
    "NO_COLOR",
    "FORCE_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "MAKELEVEL",
    "MAKE_TERMOUT",
    "MAKE_TERMERR",
    "SHLVL",
];

/// Variables that shells set by themselves (where a program starts is its caller's to choose anyway, and these say no
/// more), and text that git hands on for its messages and commits, with the place in its tree (which it works out anew
/// at each start) and its protocol.
const FREE: &[&str] = &[
    "_",
    "PWD",
    "OLDPWD",
    "GIT_PREFIX",
    "GIT_PROTOCOL",
    "GIT_REFLOG_ACTION",
    "GIT_CHERRY_PICK_HELP",
    "GIT_AUTHOR_NAME",
    "GIT_AUTHOR_EMAIL",
    "GIT_AUTHOR_DATE",
    "GIT_COMMITTER_NAME",
    "GIT_COMMITTER_EMAIL",
    "GIT_COMMITTER_DATE",
];

/// Prefix of such names, with the rest an object's: the branch that it is called by.
const FREE_PREFIX: &[u8] = b"GITHEAD_";

/// The environment that a session was opened with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<Vec<u8>, Vec<u8>>);

impl Environment {
    /// Environment of a plan.
    #[must_use]
    pub fn of(variables: &BTreeMap<String, HostPath>) -> Self {
        let pair = |(name, value): (&String, &HostPath)| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        Self(variables.iter().map(pair).collect())
    }

    /// The name of a variable that could have a program do something else: one that differs, or is gone, and is not harmless.
    /// `entries` are `NAME=value`, all of them; `is_fixed` tells whether a directory is one that the session cannot change.
    pub fn steered_by<A: AsRef<[u8]>>(
        &self,
        entries: &[A],
        mut is_fixed: impl FnMut(&[u8]) -> bool,
    ) -> Option<Vec<u8>> {
        let mut seen = BTreeSet::new();
        for entry in entries {
            let entry = entry.as_ref();
            let end = entry.iter().position(|byte| *byte == b'=').unwrap_or(entry.len());
            let (name, value) = (&entry[..end], entry.get(end + 1..));
            let own = self.0.get(name).map(Vec::as_slice);
            // One that is there twice has two meanings: each is looked at.
            if own.is_none_or(|own| value != Some(own))
                && !value.is_some_and(|value| is_harmless(name, value, own, &mut is_fixed))
            {
                return Some(name.to_vec());
            }
            seen.insert(name);
        }
        self.0.keys().find(|name| !seen.contains(name.as_slice()) && !may_be_gone(name)).cloned()
    }
}

fn is_shown(name: &[u8]) -> bool {
    name.starts_with(b"LC_") || SHOWN.iter().any(|shown| shown.as_bytes() == name)
}

fn is_free(name: &[u8]) -> bool {
    name.starts_with(FREE_PREFIX) || FREE.iter().any(|free| free.as_bytes() == name)
}

fn may_be_gone(name: &[u8]) -> bool {
    is_shown(name) || is_free(name) || name == b"TZ"
}

fn is_harmless(name: &[u8], value: &[u8], own: Option<&[u8]>, is_fixed: &mut impl FnMut(&[u8]) -> bool) -> bool {
    match name {
        // Every program on it that is started is judged; what is looked up there and not started is no program of the call's.
        b"PATH" | b"GIT_EXEC_PATH" => {
            let known: Vec<&[u8]> = own.unwrap_or_default().split(|byte| *byte == b':').collect();
            let mut directories = value.split(|byte| *byte == b':');
            directories
                .all(|directory| known.contains(&directory) || directory.starts_with(b"/") && is_fixed(directory))
        }
        b"TZ" => !value.starts_with(b"/") && !value.starts_with(b":") && !value.starts_with(b".") && !has_dots(value),
        // callgate gives it to an agent's program, and it has no other value.
        _ if name == ENDPOINT_VARIABLE.as_bytes() => value == ENDPOINT.as_bytes(),
        _ if is_shown(name) => {
            !value.contains(&b'/') && std::str::from_utf8(name).is_ok_and(|name| reading::keeps(name, value))
        }
        _ => is_free(name),
    }
}

fn has_dots(value: &[u8]) -> bool {
    value.windows(2).any(|pair| pair == b"..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Environment {
        let pairs = [("PATH", "/usr/bin:/bin"), ("HOME", "/s/home"), ("LANG", "C.UTF-8"), ("MAKEFILES", "/w/own.mk")];
        Environment::of(&pairs.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect())
    }

    #[test]
    fn where_the_endpoint_is_steers_nobody() {
        let at = |place: &str| steered(&[&format!("{ENDPOINT_VARIABLE}={place}")], &[]);
        assert_eq!(at(ENDPOINT), None);
        assert_eq!(at("/elsewhere").as_deref(), Some(ENDPOINT_VARIABLE));
    }

    fn steered(changed: &[&str], without: &[&str]) -> Option<String> {
        let usual = ["PATH=/usr/bin:/bin", "HOME=/s/home", "LANG=C.UTF-8", "MAKEFILES=/w/own.mk"];
        let name = |entry: &str| entry.split('=').next().unwrap_or_default().to_owned();
        let replaced = |entry: &str| changed.iter().any(|other| name(other) == name(entry));
        let kept = usual.into_iter().filter(|entry| !replaced(entry) && !without.contains(&name(entry).as_str()));
        let entries: Vec<&str> = kept.chain(changed.iter().copied()).collect();
        let is_fixed = |directory: &[u8]| directory.starts_with(b"/usr/");
        session().steered_by(&entries, is_fixed).map(|name| String::from_utf8_lossy(&name).into_owned())
    }

    /// A variable steers that is not the session's own and not known to be harmless: allowed is what is listed.
    #[test]
    fn what_is_not_known_steers() {
        assert_eq!(steered(&[], &[]), None);
        for (entry, name) in [
            ("MAKEFILES=/w/evil.mk", "MAKEFILES"),
            ("MAKEFLAGS=--eval=x", "MAKEFLAGS"),
            ("PYTHONPATH=.", "PYTHONPATH"),
            ("LD_PRELOAD=./x.so", "LD_PRELOAD"),
            ("LD_AUDIT=x", "LD_AUDIT"),
            ("BASH_ENV=x", "BASH_ENV"),
            ("ENV=x", "ENV"),
            ("BASH_FUNC_ls%%=() { x; }", "BASH_FUNC_ls%%"),
            ("GIT_CONFIG_COUNT=1", "GIT_CONFIG_COUNT"),
            ("GIT_SSH_COMMAND=x", "GIT_SSH_COMMAND"),
            ("GIT_DIR=/w/x", "GIT_DIR"),
            ("GIT_INDEX_FILE=/w/x", "GIT_INDEX_FILE"),
            ("GIT_EXEC_PATH=/w", "GIT_EXEC_PATH"),
            ("NODE_OPTIONS=-r ./x", "NODE_OPTIONS"),
            ("PERL5LIB=.", "PERL5LIB"),
            ("PERL5OPT=-Mx", "PERL5OPT"),
            ("RUBYOPT=-rx", "RUBYOPT"),
            ("HOME=/w", "HOME"),
            ("PATH=.:/usr/bin", "PATH"),
            ("PATH=/w:/usr/bin", "PATH"),
            ("PATH=", "PATH"),
            ("LC_ALL=/w/locale", "LC_ALL"),
            ("LC_ALL=zh_CN.GBK", "LC_ALL"),
            ("LOCPATH=/w", "LOCPATH"),
            ("TERM=../x", "TERM"),
            ("TZ=:/w/zone", "TZ"),
            ("tomorrows=x", "tomorrows"),
            ("no equals sign", "no equals sign"),
            ("", ""),
        ] {
            assert_eq!(steered(&[entry], &[]).as_deref(), Some(name), "{entry}");
        }
        for entry in [
            "LANG=de_DE.UTF-8",
            "LC_ALL=C",
            "TERM=xterm-256color",
            "COLUMNS=80",
            "_=/usr/bin/make",
            "PWD=/w/sub",
            "SHLVL=2",
            "TZ=Europe/Berlin",
            "PATH=/usr/lib/git-core:/usr/bin:/bin",
            "PATH=/bin",
            "GIT_EXEC_PATH=/usr/lib/git-core",
            "GITHEAD_1234=side",
        ] {
            assert_eq!(steered(&[entry], &[]), None, "{entry}");
        }
    }

    /// Two of a name are two chances; and what the session has set may not be taken away.
    #[test]
    fn each_of_two_counts_and_so_does_what_is_gone() {
        assert_eq!(steered(&["HOME=/s/home", "HOME=/w"], &[]).as_deref(), Some("HOME"));
        assert_eq!(steered(&[], &["MAKEFILES"]).as_deref(), Some("MAKEFILES"));
        assert_eq!(steered(&[], &["LANG"]), None);
    }
}
