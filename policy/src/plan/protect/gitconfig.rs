//! A repository's configuration: which keys run programs, and whether two files say the same of them (A18).
//!
//! git reads a file as `git-config(1)` describes and `config.c` does; so does this, and a file that it cannot read is
//! refused, never guessed at.

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// Why a configuration may not take another's place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// git, or this, cannot read it.
    #[error("line {line} cannot be read")]
    Unreadable {
        /// From 1.
        line: usize,
    },
    /// A key that runs programs differs.
    #[error("{key} differs, which can run programs")]
    Key {
        /// `section.name` or `section.subsection.name`.
        key: String,
    },
}

/// Whether `new` may take the place of `old` (empty if there is none): all keys that can run programs have the same values
/// in the same order.
///
/// # Errors
/// [`Refusal`], with the first key that differs.
pub fn may_replace(old: &[u8], new: &[u8]) -> Result<(), Refusal> {
    if old == new {
        return Ok(());
    }
    let running = |text| parse(text).map(|all| all.into_iter().filter(runs).collect::<Vec<_>>());
    let (old, new) = (running(old)?, running(new)?);
    let mut pairs = old.iter().zip(&new);
    let differs = pairs.find(|(old, new)| old != new).map(|(_, new)| new);
    let differs = differs.or_else(|| new.get(old.len())).or_else(|| old.get(new.len()));
    match differs {
        None => Ok(()),
        Some(setting) => Err(Refusal::Key { key: key(setting) }),
    }
}

fn key(setting: &Setting) -> String {
    match &setting.subsection {
        Some(sub) => format!("{}.{}.{}", setting.section, String::from_utf8_lossy(sub), setting.name),
        None => format!("{}.{}", setting.section, setting.name),
    }
}

/// Sections all of whose keys count, and why.
const SECTIONS: &[(&str, &str)] = &[
    ("alias", "a value that starts with `!` is a command"),
    ("browser", "browser.*.cmd and .path"),
    ("credential", "helpers are programs, and are handed passwords"),
    ("difftool", "commands"),
    ("filter", "clean, smudge and process run at checkout and add"),
    ("gpg", "gpg.program, gpg.*.program, defaultKeyCommand"),
    ("guitool", "commands"),
    ("hook", "hooks by configuration"),
    ("http", "proxies, certificates and headers: who is believed"),
    ("https", "the same"),
    ("imap", "imap.tunnel is a command"),
    ("include", "another file is read as if it stood here"),
    ("includeif", "the same"),
    ("instaweb", "commands"),
    ("man", "man.*.cmd and .path"),
    ("mergetool", "commands"),
    ("pager", "commands"),
    ("protocol", "lets `ext::` addresses run commands"),
    ("sendemail", "commands and servers"),
    ("sequence", "sequence.editor"),
    ("trailer", "trailer.*.command and .cmd"),
    ("uploadpack", "uploadpack.packObjectsHook"),
    ("web", "web.browser"),
];

/// Single keys, `section.name`; a subsection may stand between.
const KEYS: &[&str] = &[
    "add.interactive",
    "core.alternaterefscommand",
    "core.askpass",
    "core.attributesfile",
    "core.editor",
    "core.fsmonitor",
    "core.gitproxy",
    "core.hookspath",
    "core.pager",
    "core.protecthfs",
    "core.protectntfs",
    "core.sshcommand",
    "core.worktree",
    "diff.command",
    "diff.external",
    "diff.guitool",
    "diff.textconv",
    "diff.tool",
    "help.browser",
    "init.templatedir",
    "interactive.difffilter",
    "merge.driver",
    "merge.guitool",
    "merge.tool",
    "remote.proxy",
    "remote.receivepack",
    "remote.uploadpack",
    "remote.vcs",
    "ssh.variant",
    "submodule.update",
    "tar.command",
    "user.signingkeycommand",
];

/// Ends of names by which other programs (git-lfs, git-annex, git-svn, …) call what they run.
const ENDS: &[&str] = &[
    "agent",
    "browser",
    "cmd",
    "command",
    "driver",
    "editor",
    "exec",
    "helper",
    "hook",
    "hooks",
    "hookspath",
    "pager",
    "program",
    "prog",
    "proxy",
    "script",
    "shell",
    "tool",
];

/// Whether a setting can make git, or a program that reads the same file, run another program, or read such settings
/// elsewhere.
#[must_use]
pub fn runs(setting: &Setting) -> bool {
    let Setting { section, name, value, .. } = setting;
    let value = value.as_deref().unwrap_or_default();
    let whole = format!("{section}.{name}");
    // `checkout`, `merge`, `rebase` and `none` are git's own; `submodule update --init` writes them.
    if whole == "submodule.update" {
        return value.trim_ascii_start().starts_with(b"!");
    }
    let address = matches!(name.as_str(), "url" | "pushurl" | "insteadof" | "pushinsteadof") || section == "url";
    let helper = |text: &[u8]| text.windows(2).any(|two| two == b"::");
    // `ext::sh -c …` runs a command, and any `name::` a program git-remote-name.
    if address && (helper(value) || setting.subsection.as_deref().is_some_and(helper)) {
        return true;
    }
    SECTIONS.iter().any(|(own, _)| own == section)
        || KEYS.contains(&whole.as_str())
        || ENDS.iter().any(|end| name.ends_with(end))
        || value.trim_ascii_start().starts_with(b"!")
        || (section == "lfs" && matches!(name.as_str(), "path" | "args" | "clean" | "smudge"))
}

/// What a configuration has git read or run elsewhere: the values of `core.hooksPath`, `core.fsmonitor` and the includes'
/// paths, as written.
#[must_use]
pub fn redirects(text: &[u8]) -> Vec<(Redirect, Vec<u8>)> {
    let Ok(settings) = parse(text) else { return Vec::new() };
    let redirect = |setting: &Setting| match (setting.section.as_str(), setting.name.as_str()) {
        ("core", "hookspath" | "fsmonitor") => Some(Redirect::FromWorktree),
        ("include" | "includeif", "path") => Some(Redirect::FromFile),
        _ => None,
    };
    settings.into_iter().filter_map(|setting| Some((redirect(&setting)?, setting.value?))).collect()
}

/// What a relative value starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redirect {
    /// The top of the working tree.
    FromWorktree,
    /// The directory of the file that says so.
    FromFile,
}

/// Reads a file as git does.
///
/// # Errors
/// [`Refusal::Unreadable`].
pub fn parse(text: &[u8]) -> Result<Vec<Setting>, Refusal> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut reader = Reader { text, at: 0, line: 1 };
    let mut all = Vec::new();
    // git takes a key before any section for an error; so it is here.
    let mut section: Option<(String, Option<Vec<u8>>)> = None;
    while let Some(c) = reader.next()? {
        match c {
            b'#' | b';' => reader.skip_line()?,
            c if is_space(c) => {}
            b'[' => section = Some(reader.section()?),
            c if c.is_ascii_alphabetic() => {
                let (section, subsection) = section.clone().ok_or(Refusal::Unreadable { line: reader.line })?;
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

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    line: usize,
}

impl Reader<'_> {
    fn unreadable(&self) -> Refusal {
        Refusal::Unreadable { line: self.line }
    }

    /// The next byte, `\r\n` as one. A NUL is refused: git would end a value there.
    fn next(&mut self) -> Result<Option<u8>, Refusal> {
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

    /// The same, and the end of the file is the end of a line.
    fn next_or_end(&mut self) -> Result<u8, Refusal> {
        Ok(self.next()?.unwrap_or(b'\n'))
    }

    fn skip_line(&mut self) -> Result<(), Refusal> {
        while self.next_or_end()? != b'\n' {}
        Ok(())
    }

    /// After `[`.
    fn section(&mut self) -> Result<(String, Option<Vec<u8>>), Refusal> {
        let mut name = String::new();
        loop {
            match self.next()? {
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
    fn setting(&mut self, first: u8) -> Result<(String, Option<Vec<u8>>), Refusal> {
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
    fn value(&mut self) -> Result<Vec<u8>, Refusal> {
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
                        b'\n' => continue,
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
            "[remote \"up\"]\nurl = git@x:y\npushurl=z\n",
            "[branch \"main\"]\nremote = up\nmerge = refs/heads/main\n",
            "[submodule \"s\"]\nactive = true\nurl = ../s\nupdate = none\n",
            "[pull]\nrebase\n",
            "[extensions]\nworktreeConfig = true\n",
            "[core]\nautocrlf = true ; alias\n",
            "# [alias] x = !y\n",
            "[lfs]\nrepositoryformatversion = 0\n",
            "[commit]\ngpgsign = true\n",
        ] {
            assert!(!refused(added), "{added}");
        }
        assert!(may_replace(b"", PLAIN.as_bytes()).is_ok());
    }

    /// A18: each key that runs something, in each spelling.
    #[test]
    fn a18_keys_that_run_programs_may_not() {
        for added in [
            "[core]\nhooksPath = x\n",
            "[CORE]HOOKSPATH=x",
            "[core] fsmonitor = ./x",
            "[core]\nsshCommand = x\n",
            "[core]\npager=x\n",
            "[core]\neditor = x\n",
            "[core]\naskPass = x\n",
            "[core]\ngitProxy = x\n",
            "[core]\nworktree = /home/u\n",
            "[alias]\nst = !x\n",
            "[alias \"st\"]\ncommand = !x\n",
            "[filter \"f\"]\nclean = x\n",
            "[filter.f]\nsmudge = x\n",
            "[diff \"d\"]\ntextconv = x\n",
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
            "[remote \"r\"]\nuploadpack = x\n",
            "[remote \"r\"]\nreceivepack = x\n",
            "[remote \"r\"]\nvcs = x\n",
            "[remote \"r\"]\nurl = ext::sh -c x\n",
            "[http]\nproxy = x\n",
            "[protocol \"ext\"]\nallow = always\n",
            "[trailer \"t\"]\ncmd = x\n",
            "[tar \"x\"]\ncommand = x\n",
            "[difftool \"d\"]\ncmd = x\n",
            "[lfs \"customtransfer.x\"]\npath = x\n",
            "[annex]\nyoutube-dl-command = x\n",
            "[x]\ny = !z\n",
            "[interactive]\ndiffFilter = x\n",
            "[core]\n\\\nhooksPath = x\n",
            "[core]\r\nhooksPath = x\r\n",
            "[hook \"a\"]\ncommand = x\n",
            "[core]a=b\\\n\n[alias]x=y",
        ] {
            assert!(refused(added), "{added}");
        }
    }

    /// A value that was there may stay, in the same order, whatever else changes; it may not go.
    #[test]
    fn what_ran_before_stays() {
        let old = "[core]\n\tpager = less\n[alias]\n\tst = status\n";
        let ok = "[alias]\n  st = \"status\" # same\n";
        assert!(may_replace(old.as_bytes(), format!("[core]\npager=less\n{ok}[user]\nname=x").as_bytes()).is_ok());
        let key = |new: &str| may_replace(old.as_bytes(), new.as_bytes()).unwrap_err();
        assert_eq!(key("[core]\n\tpager = less\n"), Refusal::Key { key: "alias.st".into() });
        assert_eq!(key("[core]\npager = more\n[alias]\nst = status\n"), Refusal::Key { key: "core.pager".into() });
        assert_eq!(key("[alias]\nst = status\n[core]\npager = less\n"), Refusal::Key { key: "alias.st".into() });
    }

    #[test]
    fn values_are_read_as_git_reads_them() {
        let value = |text: &str| parse(format!("[a]\nb{text}").as_bytes()).map(|all| all[0].value.clone());
        for (text, wanted) in [
            (" = x ", Some("x")),
            ("=x y # c", Some("x y")),
            ("=\" x \";c", Some(" x ")),
            ("= a\\\nb", Some("ab")),
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
        for text in ["x = 1", "[a", "[a b]", "[a \"b]", "[a \"b\" ]", "[a_b]", "=\n"] {
            assert!(parse(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn redirects_are_found() {
        let text = b"[core]\nhooksPath = .hooks\n[include]\npath = ../x\n[includeIf \"gitdir:/\"]\npath = y\n";
        let found: Vec<_> = redirects(text).into_iter().map(|(_, value)| String::from_utf8(value).unwrap()).collect();
        assert_eq!(found, [".hooks", "../x", "y"]);
    }
}
