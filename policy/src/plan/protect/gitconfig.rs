//! A repository's configuration: which of its settings may change, and what it leads to (A18).
//!
//! git reads a file as `git-config(1)` describes and `config.c` does; so does this, and a file that it cannot read is
//! refused, never guessed at.

use std::collections::{BTreeSet, HashSet};

use super::gitkeys::{ValueForm, harmless};

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Setting {
    /// In lower case, as git compares it.
    pub section: String,
    /// In the case in which it is written.
    pub subsection: Option<Vec<u8>>,
    /// In lower case.
    pub name: String,
    /// `None` for a name alone, which means true.
    pub value: Option<Vec<u8>>,
}

/// Reason why a configuration may not take another's place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigRefusal {
    /// git, or this, cannot read it.
    #[error("line {line} cannot be read")]
    Unreadable {
        /// From 1.
        line: usize,
    },
    /// A key differs that is not known to be harmless.
    #[error("{key} is not among the settings that are known to run no program")]
    Key {
        /// `section.name` or `section.subsection.name`.
        key: String,
    },
    /// A value that is not known to be harmless, of a key that is.
    #[error("{key} would have a value with which git may run a program or use another repository")]
    Value {
        /// Key of the setting.
        key: String,
    },
}

/// Judges whether `new` may take the place of `old` (empty if there is none).
///
/// Settings that are not known to be harmless ([`harmless`]) are in both, with the same values and in the same order. One
/// whose key is known may go, and may come with a value that is known too.
///
/// # Errors
/// [`ConfigRefusal`], with the first key that differs.
pub fn may_replace(old: &[u8], new: &[u8]) -> Result<(), ConfigRefusal> {
    if old == new {
        return Ok(());
    }
    let (old, new) = (parse(old)?, parse(new)?);
    let unknown = |all: &'_ [Setting]| all.iter().filter(|setting| harmless(setting).is_none()).cloned().collect();
    let (was, is): (Vec<Setting>, Vec<Setting>) = (unknown(&old), unknown(&new));
    let mut pairs = was.iter().zip(&is);
    let differs = pairs.find(|(was, is)| was != is).map(|(_, is)| is);
    let differs = differs.or_else(|| is.get(was.len())).or_else(|| was.get(is.len()));
    if let Some(setting) = differs {
        return Err(ConfigRefusal::Key { key: key(setting) });
    }
    // `git remote rename` writes the address first under its new name, and what refers to it after that.
    let remotes = Remotes::of([&old, &new]);
    let was: HashSet<&Setting> = old.iter().collect();
    let admitted = |setting: &&Setting| match harmless(setting) {
        Some(value) => remotes.admit(value, setting) || was.contains(setting),
        None => true,
    };
    match new.iter().find(|setting| !admitted(setting)) {
        None => Ok(()),
        Some(setting) => Err(ConfigRefusal::Value { key: key(setting) }),
    }
}

/// Most characters of a key that are shown.
const SHOWN: usize = 100;

/// How a setting's key is shown: whoever wrote it chose its length, and what is in it.
fn key(setting: &Setting) -> String {
    let key = match &setting.subsection {
        Some(sub) => format!("{}.{}.{}", setting.section, String::from_utf8_lossy(sub), setting.name),
        None => format!("{}.{}", setting.section, setting.name),
    };
    printable(&key)
}

fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).take(SHOWN).collect()
}

/// The first setting that can run programs, as far as is known: of a configuration that nobody judged.
///
/// # Errors
/// [`ConfigRefusal::Unreadable`].
pub fn first_not_harmless(text: &[u8]) -> Result<Option<String>, ConfigRefusal> {
    let all = parse(text)?;
    let remotes = Remotes::of([&all]);
    let admitted = |setting: &&Setting| harmless(setting).is_some_and(|value| remotes.admit(value, setting));
    Ok(all.iter().find(|setting| !admitted(setting)).map(key))
}

/// Which settings follow a remote that the file gives no address, each with its value: git takes the name for a path. Those of a
/// file that cannot be read are none.
#[must_use]
pub fn without_address(text: &[u8]) -> BTreeSet<String> {
    let Ok(all) = parse(text) else { return BTreeSet::new() };
    let remotes = Remotes::of([&all]);
    let follows = |setting: &&Setting| {
        harmless(setting).is_some_and(|value| value == ValueForm::Remote && !remotes.admit(value, setting))
    };
    let shown = |setting: &Setting| {
        let value = String::from_utf8_lossy(setting.value.as_deref().unwrap_or_default()).into_owned();
        format!("{} = {}", key(setting), printable(&value))
    };
    all.iter().filter(follows).map(shown).collect()
}

/// The names of remotes that have an address.
struct Remotes<'a>(Vec<&'a [u8]>);

impl<'a> Remotes<'a> {
    fn of<const N: usize>(files: [&'a [Setting]; N]) -> Self {
        let addressed = |setting: &&Setting| setting.section == "remote" && setting.name == "url";
        let all = files.into_iter().flatten().filter(addressed);
        let mut names: Vec<&[u8]> = all.filter_map(|setting| setting.subsection.as_deref()).collect();
        names.sort_unstable();
        Self(names)
    }

    fn admit(&self, value: ValueForm, setting: &Setting) -> bool {
        value.admits(setting.value.as_deref(), |name| self.0.binary_search(&name).is_ok())
    }
}

/// Prefix of a path that need not be there.
const OPTIONAL: &[u8] = b":(optional)";

/// Places where a configuration has git read or run something: the values of `core.hooksPath`, `core.fsmonitor` and the
/// includes' paths, as written. One that begins with `~/` or `~name/` is relative to a home directory.
#[must_use]
pub fn redirects(text: &[u8]) -> Vec<(ValueBase, Vec<u8>)> {
    let Ok(settings) = parse(text) else { return Vec::new() };
    let redirect = |setting: &Setting| match (setting.section.as_str(), setting.name.as_str()) {
        ("core", "fsmonitor") if setting.value.as_deref().is_some_and(is_boolean) => None,
        ("core", "hookspath" | "fsmonitor") => Some(ValueBase::FromWorktree),
        ("include" | "includeif", "path") => Some(ValueBase::FromFile),
        _ => None,
    };
    let path = |value: Vec<u8>| value.strip_prefix(OPTIONAL).map(<[u8]>::to_vec).unwrap_or(value);
    settings.into_iter().filter_map(|setting| Some((redirect(&setting)?, path(setting.value?)))).collect()
}

/// True if a value is one of git's words for a boolean. It takes numbers as well, which a reader may take for others.
fn is_boolean(value: &[u8]) -> bool {
    ["true", "yes", "on", "false", "no", "off"].iter().any(|word| value.eq_ignore_ascii_case(word.as_bytes()))
}

/// Base of a relative value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueBase {
    /// The top of the working tree.
    FromWorktree,
    /// The directory of the file that says so.
    FromFile,
}

/// Reads a file as git does.
///
/// # Errors
/// [`ConfigRefusal::Unreadable`].
pub fn parse(text: &[u8]) -> Result<Vec<Setting>, ConfigRefusal> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut reader = ConfigReader { text, at: 0, line: 1 };
    let mut all = Vec::new();
    // git takes a key before any section for an error; so it is here.
    let mut section: Option<(String, Option<Vec<u8>>)> = None;
    while let Some(c) = reader.next()? {
        match c {
            b'#' | b';' => reader.skip_line()?,
            c if is_space(c) => {}
            b'[' => section = Some(reader.section()?),
            c if c.is_ascii_alphabetic() => {
                let (section, subsection) = section.clone().ok_or(ConfigRefusal::Unreadable { line: reader.line })?;
                let (name, value) = reader.setting(c)?;
                all.push(Setting { section, subsection, name, value });
            }
            _ => return Err(reader.unreadable()),
        }
    }
    Ok(all)
}

/// As git's isspace: neither vertical tab nor form feed.
fn is_space(c: u8) -> bool {
    matches!(c, b' ' | b'\t' | b'\n' | b'\r')
}

struct ConfigReader<'a> {
    text: &'a [u8],
    at: usize,
    line: usize,
}

impl ConfigReader<'_> {
    fn unreadable(&self) -> ConfigRefusal {
        ConfigRefusal::Unreadable { line: self.line }
    }

    /// The next byte, `\r\n` as one. A NUL is refused: git would end a value there.
    fn next(&mut self) -> Result<Option<u8>, ConfigRefusal> {
        let Some(&c) = self.text.get(self.at) else { return Ok(None) };
        self.at += 1;
        match c {
            0 => Err(self.unreadable()),
            b'\r' if self.text.get(self.at) == Some(&b'\n') => {
                self.at += 1;
                self.line += 1;
                Ok(Some(b'\n'))
            }
            b'\n' => {
                self.line += 1;
                Ok(Some(b'\n'))
            }
            c => Ok(Some(c)),
        }
    }

    /// Next byte; the end of the file is the end of a line.
    fn next_or_end(&mut self) -> Result<u8, ConfigRefusal> {
        Ok(self.next()?.unwrap_or(b'\n'))
    }

    fn skip_line(&mut self) -> Result<(), ConfigRefusal> {
        while self.next_or_end()? != b'\n' {}
        Ok(())
    }

    /// After `[`.
    fn section(&mut self) -> Result<(String, Option<Vec<u8>>), ConfigRefusal> {
        let mut name = String::new();
        loop {
            match self.next()? {
                Some(b']') if name.is_empty() => return Err(self.unreadable()),
                // `[a.b]` is the old form of `[a "b"]`, in lower case.
                Some(b']') => {
                    return Ok(match name.split_once('.') {
                        Some((section, sub)) => (section.to_owned(), Some(sub.as_bytes().to_vec())),
                        None => (name, None),
                    });
                }
                Some(b' ' | b'\t') => break,
                Some(c) if c.is_ascii_alphanumeric() || c == b'-' || c == b'.' => {
                    name.push(char::from(c.to_ascii_lowercase()));
                }
                Some(_) | None => return Err(self.unreadable()),
            }
        }
        let quote = loop {
            match self.next()? {
                Some(b' ' | b'\t') => {}
                other => break other,
            }
        };
        if quote != Some(b'"') {
            return Err(self.unreadable());
        }
        let mut sub = Vec::new();
        loop {
            match self.next()? {
                Some(b'"') => break,
                Some(b'\\') => match self.next()? {
                    Some(b'\n') | None => return Err(self.unreadable()),
                    Some(c) => sub.push(c),
                },
                Some(b'\n') | None => return Err(self.unreadable()),
                Some(c) => sub.push(c),
            }
        }
        if self.next()? != Some(b']') {
            return Err(self.unreadable());
        }
        // `[a.b "c"]` has the section `a` too, for what is compared here.
        match name.split_once('.') {
            Some((section, rest)) => {
                let sub = [rest.as_bytes(), b".", &sub].concat();
                Ok((section.to_owned(), Some(sub)))
            }
            None => Ok((name, Some(sub))),
        }
    }

    /// After a name's first letter.
    fn setting(&mut self, first: u8) -> Result<(String, Option<Vec<u8>>), ConfigRefusal> {
        let mut name = String::from(char::from(first.to_ascii_lowercase()));
        let mut c = loop {
            match self.next_or_end()? {
                c if c.is_ascii_alphanumeric() || c == b'-' => name.push(char::from(c.to_ascii_lowercase())),
                c => break c,
            }
        };
        while matches!(c, b' ' | b'\t') {
            c = self.next_or_end()?;
        }
        match c {
            b'\n' => Ok((name, None)),
            b'=' => Ok((name, Some(self.value()?))),
            _ => Err(self.unreadable()),
        }
    }

    /// After `=`.
    fn value(&mut self) -> Result<Vec<u8>, ConfigRefusal> {
        let (mut value, mut quoted, mut keep) = (Vec::new(), false, 0);
        loop {
            match self.next_or_end()? {
                b'\n' if quoted => return Err(self.unreadable()),
                b'\n' => {
                    value.truncate(keep);
                    return Ok(value);
                }
                b'#' | b';' if !quoted => {
                    self.skip_line()?;
                    value.truncate(keep);
                    return Ok(value);
                }
                c if is_space(c) && !quoted => {
                    if keep > 0 {
                        value.push(c);
                    }
                }
                b'"' => {
                    quoted = !quoted;
                    keep = value.len();
                }
                b'\\' => {
                    let c = match self.next_or_end()? {
                        // The blanks before a line that goes on are a part of the value, whatever follows.
                        b'\n' => {
                            keep = value.len();
                            continue;
                        }
                        b't' => b'\t',
                        b'b' => 8,
                        b'n' => b'\n',
                        c @ (b'\\' | b'"') => c,
                        _ => return Err(self.unreadable()),
                    };
                    value.push(c);
                    keep = value.len();
                }
                c => {
                    value.push(c);
                    keep = value.len();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use super::*;

    const PLAIN: &str = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n[remote \"origin\"]\n\turl = https://x/y\n\
                         \tfetch = +refs/heads/*:refs/remotes/origin/*\n";

    fn refused(added: &str) -> bool {
        may_replace(PLAIN.as_bytes(), format!("{PLAIN}{added}").as_bytes()).is_err()
    }

    /// A18: what `git config`, `remote add` and `branch` write is no program.
    #[test]
    fn ordinary_settings_may_change() {
        for added in [
            "[user]\nname = x\nemail = y\n",
            "[remote \"up\"]\nurl = git@x:y\npushurl=https://z/y\n",
            "[branch \"main\"]\nremote = origin\nmerge = refs/heads/main\n",
            "[branch \"local\"]\nremote = .\nmerge = refs/heads/main\n",
            "[branch \"x\"]\nremote = up\n[remote \"up\"]\nurl = ssh://x/y\n",
            "[submodule \"s\"]\nactive = true\nurl = https://x/s\nupdate = none\n",
            "[pull]\nrebase\n",
            "[extensions]\nworktreeConfig = true\n",
            "[core]\nautocrlf = true ; alias\n",
            "[core]\ncompression = -1\n",
            "# [alias] x = !y\n",
            "[core]\nfsmonitor = true\n",
            "[lfs]\nrepositoryformatversion = 0\n",
            "[lfs \"https://x/y.git/info/lfs\"]\naccess = basic\nlocksverify = true\n",
            "[commit]\ngpgsign = true\n",
            "[color \"diff\"]\nmeta = bold #ff0000\n",
            "[gc \"refs/stash\"]\nreflogExpire = 2 weeks\n",
        ] {
            assert!(!refused(added), "{added}");
        }
        assert!(may_replace(b"", PLAIN.as_bytes()).is_ok());
        assert_eq!(first_not_harmless(PLAIN.as_bytes()), Ok(None));
    }

    /// A18: each key that runs something, in each spelling, and what nobody knows.
    #[test]
    fn a18_all_other_settings_may_not() {
        for added in [
            "[core]\nhooksPath = x\n",
            "[CORE]HOOKSPATH=x",
            "[core] fsmonitor = ./x",
            "[core] fsmonitor = 99999999999",
            "[core] fsmonitor = 1k",
            "[core] fsmonitor = 0x1",
            "[core] fsmonitor = truee",
            "[core] fsmonitor =",
            "[core] fsmonitor = true \\\n",
            "[core]\nsshCommand = x\n",
            "[core]\npager=x\n",
            "[core]\neditor = x\n",
            "[core]\naskPass = x\n",
            "[core]\ngitProxy = x\n",
            "[core]\nworktree = /home/u\n",
            "[core \"x\"]\nbare = false\n",
            "[core]\nbare = ./x\n",
            "[alias]\nst = !x\n",
            "[alias]\nst = status\n",
            "[alias \"st\"]\ncommand = !x\n",
            "[filter \"f\"]\nclean = x\n",
            "[filter.f]\nsmudge = x\n",
            "[diff \"d\"]\ntextconv = x\n",
            "[diff \"renames\"]\nrenames = x\n",
            "[diff]\nexternal = x\n",
            "[merge \"m\"]\ndriver = x\n",
            "[credential]\nhelper = x\n",
            "[credential \"https://x\"]\nhelper = !x\n",
            "[gpg]\nprogram = x\n",
            "[gpg \"ssh\"]\ndefaultKeyCommand = x\n",
            "[include]\npath = x\n",
            "[includeIf \"gitdir:/\"]\npath = x\n",
            "[pager]\nlog = x\n",
            "[sequence]\neditor = x\n",
            "[uploadpack]\npackObjectsHook = x\n",
            "[submodule \"s\"]\nupdate = !x\n",
            "[submodule \"s\"]\nurl = ../s\n",
            "[remote \"r\"]\nuploadpack = x\n",
            "[remote \"r\"]\nreceivepack = x\n",
            "[remote \"r\"]\nvcs = x\n",
            "[remote \"r\"]\nurl = ext::sh -c x\n",
            "[remote \"r\"]\nurl = ./x\n",
            "[remote \"r\"]\nurl\n",
            "[remote \"r\"]\nurl =\n",
            "[remote \"origin\"]\npushurl = ./x\n",
            "[remote \"r\"]\nproxy = x\n",
            "[remote \"r\"]\nfetch = --upload-pack=x\n",
            "[remote \"r\"]\ntagOpt = --upload-pack=x\n",
            "[remote]\npushDefault = x\n",
            "[branch \"b\"]\nremote = ./x\n",
            "[branch \"b\"]\nremote = x\n",
            "[branch \"b\"]\nremote = ext::sh\n",
            "[remote \"/w/x\"]\nurl = https://x/y\n[branch \"b\"]\nremote = /w/x\n",
            "[remote \"../x\"]\nurl = https://x/y\n[branch \"b\"]\npushRemote = ../x\n",
            "[remote \"ext::x\"]\nurl = https://x/y\n[remote]\npushDefault = ext::x\n",
            "[branch \"b\"]\npushRemote = x\n",
            "[branch \"b\"]\nmergeOptions = --strategy=x/evil\n",
            "[url \"ext::x \"]\ninsteadOf = https://\n",
            "[url \"./x\"]\npushInsteadOf = https://x/\n",
            "[http]\nproxy = x\n",
            "[http]\nsslVerify = false\n",
            "[protocol \"ext\"]\nallow = always\n",
            "[trailer \"t\"]\ncmd = x\n",
            "[tar \"x\"]\ncommand = x\n",
            "[difftool \"d\"]\ncmd = x\n",
            "[lfs \"customtransfer.x\"]\npath = x\n",
            "[lfs]\nurl = x\n",
            "[annex]\nyoutube-dl-command = x\n",
            "[annex]\nfreezecontent-command = x\n",
            "[tig]\nx = y\n",
            "[tig \"bind\"]\ngeneric = x !y\n",
            "[stgit]\nextensions = x\n",
            "[rebase]\ninstructionFormat = \"%nexec x\"\n",
            "[rebase]\nautosquash = \"%nexec x\"\n",
            "[pull]\ntwohead = x/evil\n",
            "[pull]\noctopus = x/evil\n",
            "[pull]\nrebase = x/evil\n",
            "[format]\noutputDirectory = /home/u\n",
            "[x]\ny = z\n",
            "[interactive]\ndiffFilter = x\n",
            "[core]\n\\\nhooksPath = x\n",
            "[core]\r\nhooksPath = x\r\n",
            "[hook \"a\"]\ncommand = x\n",
            "[core]a=b\\\n\n[alias]x=y",
            "[user]\nname = a\\nb\n",
        ] {
            assert!(refused(added), "{added}");
            assert!(!matches!(first_not_harmless(added.as_bytes()), Ok(None)), "{added}");
        }
    }

    /// A value that was there may stay, in the same order, whatever else changes; it may not go.
    #[test]
    fn what_ran_before_stays() {
        let old = "[core]\n\tpager = less\n[alias]\n\tst = status\n";
        let ok = "[alias]\n  st = \"status\" # same\n";
        assert!(may_replace(old.as_bytes(), format!("[core]\npager=less\n{ok}[user]\nname=x").as_bytes()).is_ok());
        let key = |new: &str| may_replace(old.as_bytes(), new.as_bytes()).unwrap_err();
        assert_eq!(key("[core]\n\tpager = less\n"), ConfigRefusal::Key { key: "alias.st".into() });
        assert_eq!(
            key("[core]\npager = more\n[alias]\nst = status\n"),
            ConfigRefusal::Key { key: "core.pager".into() }
        );
        assert_eq!(key("[alias]\nst = status\n[core]\npager = less\n"), ConfigRefusal::Key { key: "alias.st".into() });
    }

    /// A user's setting stays or goes: a path as an address, a branch that follows one. It comes to nothing else.
    #[test]
    fn what_the_user_set_may_stay_or_go() {
        let old = "[remote \"o\"]\nurl = /srv/x\n[branch \"b\"]\nremote = ../y\nmerge = refs/heads/b\n";
        let may = |new: &str| may_replace(old.as_bytes(), new.as_bytes()).is_ok();
        assert!(may(&format!("{old}[user]\nname = x\n")) && may(""));
        assert!(may("[branch \"b\"]\nremote = o\n[remote \"o\"]\nurl = /srv/x\n"));
        assert!(!may("[remote \"o\"]\nurl = /srv/y\n") && !may("[remote \"p\"]\nurl = /srv/x\n"));
        assert!(!may("[branch \"c\"]\nremote = ../y\n"));
    }

    /// Writes of `git remote rename`, step by step.
    #[test]
    fn a_remote_may_have_another_name() {
        let branch = |remote: &str| format!("[branch \"main\"]\nremote = {remote}\nmerge = refs/heads/main\n");
        let remote = |name: &str| format!("[remote \"{name}\"]\nurl = https://x/y\n");
        let steps = [
            format!("{}{}", remote("origin"), branch("origin")),
            format!("{}{}", remote("up"), branch("origin")),
            format!("{}fetch = +refs/heads/*:refs/remotes/up/*\n{}", remote("up"), branch("origin")),
            format!("{}{}", remote("up"), branch("up")),
        ];
        for pair in steps.windows(2) {
            assert_eq!(may_replace(pair[0].as_bytes(), pair[1].as_bytes()), Ok(()), "{pair:?}");
        }
        assert!(may_replace(steps[3].as_bytes(), format!("{}{}", remote("up"), branch("x")).as_bytes()).is_err());
    }

    /// A18: `git remote rename` takes the address away first. What then follows a name alone is known.
    #[test]
    fn a18_what_follows_a_name_without_an_address_is_known() {
        let follows = "[branch \"main\"]\nremote = evil\n[remote]\npushDefault = up\n[branch \"b\"]\nremote = .\n";
        let address = |name: &str| format!("[remote \"{name}\"]\nurl = https://x/y\n");
        let found = |text: &str| without_address(text.as_bytes()).into_iter().collect::<Vec<_>>();
        assert_eq!(found(follows), ["branch.main.remote = evil", "remote.pushdefault = up"]);
        assert_eq!(found(&format!("{follows}{}", address("evil"))), ["remote.pushdefault = up"]);
        assert_eq!(found(&format!("{follows}{}{}", address("evil"), address("up"))), [""; 0]);
        assert_eq!(found("[branch \"main\"]\nremote = ./\u{1}x\n"), ["branch.main.remote = ./\u{fffd}x"]);
    }

    #[test]
    fn a_key_is_shown_without_control_characters() {
        let text = format!("[x \"\u{1b}[2J{}\"]\ny = z\n", "x".repeat(9999));
        let Err(ConfigRefusal::Key { key }) = may_replace(b"", text.as_bytes()) else { unreachable!("it is refused") };
        assert!(key.chars().count() <= SHOWN && !key.contains('\u{1b}'), "{key}");
    }

    #[test]
    fn values_are_read_as_git_reads_them() {
        let value = |text: &str| parse(format!("[a]\nb{text}").as_bytes()).map(|all| all[0].value.clone());
        for (text, wanted) in [
            (" = x ", Some("x")),
            ("=x y # c", Some("x y")),
            ("=\" x \";c", Some(" x ")),
            ("= a\\\nb", Some("ab")),
            ("= a \\\nb", Some("a b")),
            ("= a \\\n", Some("a ")),
            ("= a \\\n  \n", Some("a ")),
            ("= a \\\n# c", Some("a ")),
            ("=\"#;\"", Some("#;")),
            ("=\\t\\n\\\"\\\\", Some("\t\n\"\\")),
            ("=", Some("")),
            ("", None),
            ("  ", None),
            ("=a\"b c\"d", Some("ab cd")),
        ] {
            assert_eq!(value(text), Ok(wanted.map(|text| text.as_bytes().to_vec())), "{text:?}");
        }
        for text in ["=\"x", "=\\x", " x", "_=1", "=a\0b"] {
            assert!(value(text).is_err(), "{text:?}");
        }
        for text in ["x = 1", "[]", "[a", "[a b]", "[a \"b]", "[a \"b\" ]", "[a_b]", "=\n"] {
            assert!(parse(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    /// Keys and values.
    type Read = Vec<(Vec<u8>, Option<Vec<u8>>)>;

    /// Settings as git reads them from a file; nothing if it cannot read it.
    #[allow(clippy::disallowed_methods, reason = "the reader is compared with git itself")]
    fn as_git_reads(text: &[u8]) -> std::io::Result<Option<Read>> {
        use std::io::Write as _;
        use std::process::{Command, Stdio};
        let mut git = Command::new("git");
        git.args(["config", "--file", "-", "--list", "-z"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = git.stderr(Stdio::null()).spawn()?;
        child.stdin.take().unwrap().write_all(text)?;
        let ended = child.wait_with_output()?;
        let pair = |record: &[u8]| match record.iter().position(|c| *c == b'\n') {
            Some(at) => (record[..at].to_vec(), Some(record[at + 1..].to_vec())),
            None => (record.to_vec(), None),
        };
        let records = ended.stdout.split(|c| *c == 0).filter(|record| !record.is_empty()).map(pair);
        Ok(ended.status.success().then(|| records.collect()))
    }

    /// A18: what is read here git reads too, with the same keys and values. (What is not read here is refused.)
    #[test]
    fn a18_what_is_read_is_read_as_git_reads_it() {
        use proptest::prelude::*;
        use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
        if let Err(e) = as_git_reads(b"") {
            eprintln!("skipped: git cannot be started: {e}");
            return;
        }
        let pieces = [
            "[a]\n",
            "\n[a \"B\"]",
            "[A.b]",
            "k",
            "key-1",
            "=",
            " = ",
            " ",
            "  ",
            "\t",
            "\n",
            "\r\n",
            "\r",
            "\\\n",
            " \\\n ",
            "\\\r\n",
            "\\",
            "\"",
            "#",
            ";",
            " # c",
            "\\t",
            "\\b",
            "\\n",
            "\\\"",
            "\\x",
            "x",
            "é",
            ".",
            "1",
            "[",
            "]",
            "\u{b}",
        ];
        // Mostly a value, which is where readers differ.
        let start = prop::sample::select(vec!["[a]\nk = x", "[a]\nk =", "[a \"b\"]k=\"x", "[a]\nk", ""]);
        let file = (start, prop::collection::vec(prop::sample::select(pieces.to_vec()), 0..10), any::<bool>());
        // Before 2.45, git makes a space of every other blank in a value.
        let blank = |value: &[u8]| value.iter().map(|c| if is_space(*c) { b' ' } else { *c }).collect::<Vec<_>>();
        let cases = 1500;
        let config = Config { cases, failure_persistence: None, ..Config::default() };
        let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
        let read = std::cell::Cell::new(0);
        let ran = runner.run(&file, |(start, pieces, more)| {
            let text = format!("{start}{}{}", pieces.concat(), if more { "\n[z]\nlast = 1\n" } else { "" });
            let Ok(ours) = parse(text.as_bytes()) else { return Ok(()) };
            read.set(read.get() + 1);
            let pair = |Setting { section, subsection, name, value }: &Setting| {
                let subsection = subsection.iter().flat_map(|sub| [&sub[..], b"."]).collect::<Vec<_>>().concat();
                let key = [section.as_bytes(), b".", &subsection, name.as_bytes()].concat();
                (key, value.as_deref().map(blank))
            };
            let git = as_git_reads(text.as_bytes()).unwrap();
            let git = git.map(|all| all.into_iter().map(|(key, value)| (key, value.as_deref().map(blank))).collect());
            prop_assert_eq!(git, Some(ours.iter().map(pair).collect::<Vec<_>>()), "{:?}", text);
            Ok(())
        });
        assert!(ran.is_ok(), "{ran:?}");
        assert!(read.get() > cases / 4, "the control: only {} of {cases} were read", read.get());
    }

    #[test]
    fn redirects_are_found() {
        let text =
            b"[core]\nhooksPath = :(optional).hooks\nfsmonitor = Yes\nfsmonitor = 1k\n[include]\npath = ../x\n[includeIf \"gitdir:/\"]\npath = y\n";
        let found: Vec<_> = redirects(text).into_iter().map(|(_, value)| String::from_utf8(value).unwrap()).collect();
        assert_eq!(found, [".hooks", "1k", "../x", "y"]);
    }
}
