//! Layer 1: what one call needs, checked against what is in force (S0-61, S0-63).

use std::fmt;

use crate::effective::{EffectiveSet, Kind, Origin, PathRegion, Rights, Scope, Source};
use crate::envelope::{Denial, Layer};
use crate::path::HostPath;
use crate::pattern::{Host, HostPattern, PathPattern, ProgramPattern, escaped_pattern};

use crate::effect::{Effect, Effects, FileScope, HostConnection, ProgramRun};

/// Rights of one call: the least that it needs. Made only by [`EffectiveSet::check`].
///
/// Invariant: within the EffectiveSet it was made from (tested as a property).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallGrant {
    read: Scope<PathRegion>,
    write: Scope<PathRegion>,
    hosts: Vec<(Host, u16)>,
    shell: Option<ProgramRun>,
    /// Hosts that its programs may connect to, if other calls of the session may connect to more.
    programs_reach: Option<Vec<HostPattern>>,
    exact: bool,
    session_write: Scope<PathRegion>,
    only_reads: bool,
}

impl CallGrant {
    /// Paths to read.
    #[must_use]
    pub fn read(&self) -> &Scope<PathRegion> {
        &self.read
    }

    /// Paths to change.
    #[must_use]
    pub fn write(&self) -> &Scope<PathRegion> {
        &self.write
    }

    /// Hosts to connect to, besides those that a program may reach.
    #[must_use]
    pub fn hosts(&self) -> &[(Host, u16)] {
        &self.hosts
    }

    /// Program that it may start.
    #[must_use]
    pub fn shell(&self) -> Option<&ProgramRun> {
        self.shell.as_ref()
    }

    /// Hosts that its programs may connect to, if other calls of the session may connect to more.
    #[must_use]
    pub fn programs_reach(&self) -> Option<&[HostPattern]> {
        self.programs_reach.as_deref()
    }

    /// Places that any call of the session may change: a name that is protected by default is released by being granted
    /// here.
    #[must_use]
    pub fn session_write(&self) -> &Scope<PathRegion> {
        &self.session_write
    }

    /// This grant without anything to write: a restricted shell gets that, whatever is in force (S4-9).
    #[must_use]
    pub fn for_reading(self) -> Self {
        Self { write: Scope::default(), only_reads: true, ..self }
    }

    /// True if nothing may be changed by it, and only programs be started that read.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        self.only_reads
    }

    /// True if a pattern that would be widened is refused.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.exact
    }
}

/// True if these rights let a program start.
fn allows_run(rights: &Rights, run: &ProgramRun) -> bool {
    match run {
        ProgramRun::Program { argv, .. } => rights.allows_argv(argv),
        ProgramRun::Line { .. } => !rights.shell.is_empty(),
        ProgramRun::Started { .. } | ProgramRun::Typed { .. } => true,
    }
}

impl EffectiveSet {
    /// Checks a call, whole: each of its effects is in force, or nothing of it happens (S0-61).
    ///
    /// # Errors
    ///
    /// A [`Denial`] for the first effect that is not, with the smallest change that would grant it.
    pub fn check(&self, effects: &Effects) -> Result<CallGrant, Denial> {
        let mut grant = self.grant_of_program(effects.run())?;
        for effect in effects.all() {
            self.add_effect(&mut grant, effect)?;
        }
        // Files that the call does without where they are not granted.
        for path in effects.consulted.iter().filter(|path| self.allows_read(path)) {
            self.add_read(&mut grant, path)?;
        }
        Ok(grant)
    }

    /// Adds one effect to what a call may do.
    fn add_effect(&self, grant: &mut CallGrant, effect: &Effect) -> Result<(), Denial> {
        match effect {
            Effect::Shows(FileScope::File(path)) | Effect::Lists(FileScope::File(path)) => self.add_read(grant, path),
            Effect::Shows(FileScope::Tree(path)) | Effect::Lists(FileScope::Tree(path)) => {
                for (region, origins) in self.readable_below(path)?.iter() {
                    grant.read.add(region.clone(), origins.iter().cloned());
                }
                Ok(())
            }
            Effect::Writes { path, how: _ } => {
                let pattern = self.checked(Kind::Write, path, self.allows_write(path))?;
                let origins = self.origins(&self.rights().write, path);
                grant.read.add(pattern.clone().into(), origins.clone());
                grant.write.add(pattern.into(), origins);
                Ok(())
            }
            // A directory outside what may be read is not a place to start in (A10).
            Effect::Runs(ProgramRun::Line { directory, .. }) => self.add_read(grant, directory),
            Effect::Connects(connection) => {
                grant.hosts.push(self.checked_host(connection)?);
                Ok(())
            }
            Effect::Uses(name) if !self.rights().allows_capability(name) => {
                let allows = |rights: &Rights| rights.allows_capability(name);
                Err(self.denial(Kind::Capabilities, name, &Grantable { pattern: name, args: None, flag: None }, allows))
            }
            // A program was granted before; the others need nothing of the sandbox.
            Effect::Runs(ProgramRun::Program { .. } | ProgramRun::Started { .. } | ProgramRun::Typed { .. })
            | Effect::Queries(_)
            | Effect::Delegates(_)
            | Effect::Asks
            | Effect::Notes(_)
            | Effect::Serves(_)
            | Effect::Uses(_) => Ok(()),
        }
    }

    fn add_read(&self, grant: &mut CallGrant, path: &HostPath) -> Result<(), Denial> {
        let pattern = self.checked(Kind::Read, path, self.allows_read(path))?;
        grant.read.add(pattern.into(), self.origins(&self.rights().read, path));
        Ok(())
    }

    /// Grant of a call that starts this program, or none.
    fn grant_of_program(&self, run: Option<&ProgramRun>) -> Result<CallGrant, Denial> {
        let session_write = self.rights().write.clone();
        let (hosts, exact) = (vec![], self.is_exact());
        let Some(run) = run else {
            let (read, write) = (Scope::default(), Scope::default());
            let (shell, programs_reach, only_reads) = (None, None, false);
            return Ok(CallGrant { read, write, hosts, shell, programs_reach, exact, session_write, only_reads });
        };
        if !allows_run(self.rights(), run) {
            return Err(self.shell_denial(run));
        }
        let hosts_of_programs = || self.rights().hosts().iter().map(|(host, _)| host.clone()).collect();
        Ok(CallGrant {
            read: self.readable().clone(),
            write: self.rights().write.clone(),
            hosts,
            shell: Some(run.clone()),
            programs_reach: self.has_hosts_of_tools().then(hosts_of_programs),
            exact,
            session_write,
            only_reads: false,
        })
    }

    fn checked(&self, kind: Kind, path: &HostPath, allowed: bool) -> Result<PathPattern, Denial> {
        let Some(pattern) = PathPattern::literal(path) else {
            let reason = "the path is not absolute and resolved, so it cannot be compared with a grant".to_owned();
            return Err(Denial::new(Layer::Capability, format!("{kind} {path}"), reason));
        };
        if allowed { Ok(pattern) } else { Err(self.path_denial(kind, path)) }
    }

    fn readable_below(&self, path: &HostPath) -> Result<Scope<PathRegion>, Denial> {
        let Some(tree) = PathPattern::subtree(path) else {
            return Err(self.path_denial(Kind::Read, path));
        };
        let mut below = Scope::default();
        below.insert(PathRegion::from(tree), []);
        let granted = self.readable().meet(&below);
        if granted.is_empty() { Err(self.path_denial(Kind::Read, path)) } else { Ok(granted) }
    }

    fn checked_host(&self, need: &HostConnection) -> Result<(Host, u16), Denial> {
        let asked = format!("{}:{}", need.host.escape_default(), need.port);
        match Host::parse(&need.host) {
            Ok(host) if self.rights().allows_host(&host, need.port) => Ok((host, need.port)),
            Ok(host) => {
                let pattern = host_pattern(&host, need.port);
                let by = Grantable { pattern: &pattern, args: None, flag: Some(format!("--net {}", quoted(&pattern))) };
                Err(self.denial(Kind::Hosts, &asked, &by, |rights| rights.allows_host(&host, need.port)))
            }
            Err(error) => {
                let asked = format!("{} {asked}", Kind::Hosts);
                Err(Denial::new(Layer::Capability, asked, error.to_string()))
            }
        }
    }

    fn origins(&self, scope: &Scope<PathRegion>, path: &HostPath) -> Vec<Origin> {
        scope.iter().filter(|(region, _)| region.matches(path)).flat_map(|(_, origins)| origins.clone()).collect()
    }

    fn path_denial(&self, kind: Kind, path: &HostPath) -> Denial {
        let flag = if kind == Kind::Write { "--write" } else { "--read" };
        // A name that is not text cannot be written in a manifest.
        let pattern = path.as_path().to_str().map(escaped_pattern);
        let flag = pattern.as_ref().map(|pattern| format!("{flag} {}", quoted(pattern)));
        let by = Grantable { pattern: pattern.as_deref().unwrap_or_default(), args: None, flag };
        let denial = self.denial(kind, &path.to_string(), &by, |rights| match kind {
            Kind::Write => rights.allows_write(path),
            Kind::Read | Kind::Hosts | Kind::Shell | Kind::Capabilities => rights.allows_read(path),
        });
        if pattern.is_some() { denial } else { Denial { remedy: None, typed: None, ..denial } }
    }

    fn shell_denial(&self, run: &ProgramRun) -> Denial {
        let (asked, program) = match run {
            ProgramRun::Program { argv, .. } => {
                let words: Vec<String> = argv.iter().map(ToString::to_string).collect();
                (words.join(" "), words.into_iter().next().unwrap_or_default())
            }
            ProgramRun::Line { .. } | ProgramRun::Started { .. } | ProgramRun::Typed { .. } => {
                ("a command line".to_owned(), "*".to_owned())
            }
        };
        let args = self.args_to_name(run);
        // `--exec` would grant it with any arguments, which somebody has taken care not to do.
        let flag = args.is_none().then(|| format!("--exec {}", quoted(&program)));
        let by = Grantable { pattern: &program, args, flag };
        self.denial(Kind::Shell, &asked, &by, |rights| allows_run(rights, run))
    }

    /// The arguments of a program that is granted with some, and not with these.
    fn args_to_name(&self, run: &ProgramRun) -> Option<Vec<String>> {
        let ProgramRun::Program { argv, .. } = run else { return None };
        let (cmd, args) = argv.split_first()?;
        let mut granted = self.rights().shell.iter();
        let is_named = |programs: &ProgramPattern| *programs != ProgramPattern::Any && programs.matches(cmd);
        let is_granted_with_some = granted.any(|(region, _)| is_named(region.programs()) && !region.args().is_any());
        is_granted_with_some.then(|| args.iter().map(ToString::to_string).collect())
    }

    fn denial(&self, kind: Kind, asked: &str, by: &Grantable<'_>, allows: impl Fn(&Rights) -> bool) -> Denial {
        let bound = self.taken_by(allows);
        let flag = by.flag.as_deref();
        let (remedy, typed) = match bound {
            Some(Source::ManifestCeiling { .. }) => (manifest_line("ceiling", kind, by), None),
            Some(bound) => {
                let typed = flag.filter(|_| *bound == Source::CommandLine).map(|flag| format!("pass {flag} too"));
                (format!("it was asked for; {} has to grant it", bound.in_a_sentence()), typed)
            }
            None => {
                let line = manifest_line("requires", kind, by);
                let typed = flag.map(|flag| format!("{line}, or pass {flag}"));
                (line, typed)
            }
        };
        let denial = Denial::new(Layer::Capability, format!("{kind} {asked}"), self.reason(kind, bound));
        Denial { typed, ..denial.remedy(remedy) }
    }

    fn reason(&self, kind: Kind, bound: Option<&Source>) -> String {
        let rights = self.rights();
        let granted = match kind {
            Kind::Read => listed(&rights.read),
            Kind::Write => listed(&rights.write),
            Kind::Hosts => listed(&rights.hosts),
            Kind::Shell => listed(&rights.shell),
            Kind::Capabilities => listed(&rights.capabilities),
        };
        let granted = if granted.is_empty() { "nothing" } else { granted.as_str() };
        match bound {
            Some(bound) => {
                format!("{kind} was asked for, but is bounded to {granted} by {}", bound.in_a_sentence())
            }
            None if granted == "nothing" => format!("{kind} grants nothing"),
            None => format!("{kind} grants only {granted}"),
        }
    }
}

/// How a person would grant what is denied.
struct Grantable<'a> {
    /// The text that would grant it, as an item of its kind.
    pattern: &'a str,
    /// The arguments that the item has to name.
    args: Option<Vec<String>>,
    /// The flag with its value.
    flag: Option<String>,
}

/// At most five, so that a message stays one.
fn listed<T: fmt::Display>(scope: &Scope<T>) -> String {
    let mut texts: Vec<String> = scope.iter().take(5).map(|(region, _)| region.to_string()).collect();
    if scope.iter().count() > texts.len() {
        texts.push("…".to_owned());
    }
    texts.join(", ")
}

/// `table` is `requires` or `ceiling`.
fn manifest_line(table: &str, kind: Kind, Grantable { pattern, args, .. }: &Grantable<'_>) -> String {
    // A JSON string is a TOML basic string too, and so is a list of them.
    let text = serde_json::Value::from(*pattern).to_string();
    match kind {
        Kind::Read => format!("add {text} to `read` in [{table}.fs]"),
        Kind::Write => format!("add {text} to `write` in [{table}.fs]"),
        Kind::Hosts => format!("add {text} to `hosts` in [{table}.net]"),
        Kind::Shell => {
            let args = args.as_ref().map(|args| format!(" and args = {}", serde_json::Value::from(args.as_slice())));
            format!("add [[{table}.shell]] with cmd = {text}{}", args.unwrap_or_default())
        }
        Kind::Capabilities => format!("add {text} to `capabilities` in [{table}]"),
    }
}

fn host_pattern(host: &Host, port: u16) -> String {
    match host {
        _ if port == 80 || port == 443 => host.to_string(),
        Host::Address(address) if address.is_ipv6() => format!("[{address}]:{port}"),
        Host::Name(_) | Host::Address(_) => format!("{host}:{port}"),
    }
}

/// For a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:+,@%=".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failing test may stop")]
    use proptest::prelude::*;

    use super::*;
    use crate::effective::{Bound, Contribution, Declared, narrow};
    use crate::manifest::{Format, Manifest};
    use crate::requirement::RequirementSet;
    use crate::variable::Variables;

    fn declared(json: &str) -> Declared {
        let set: RequirementSet = serde_json::from_str(json).unwrap();
        let variables = Variables::new(vec!["/w".into()], vec![], vec![]).unwrap();
        Declared::union(&[Contribution::from_source(&Source::Default, &set)], &variables, &[]).unwrap()
    }

    fn effective(json: &str) -> EffectiveSet {
        narrow(&declared(json), &[]).with_session_dir("/run/s1".into())
    }

    fn reads(path: &str) -> Effects {
        Effects::default().showing(path)
    }

    /// S0-61: inside is granted, outside is denied with its remedy; and the remedy works.
    #[test]
    fn a_read_outside_is_denied_with_the_remedy() {
        let set = effective(r#"{"fs": {"read": ["**"]}}"#);
        assert!(set.check(&reads("/w/a")).is_ok());
        assert!(set.check(&reads("/run/s1/out")).is_ok(), "C-26");
        let denial = set.check(&reads("/etc/[x]'s")).unwrap_err();
        assert_eq!(denial.layer, Layer::Capability);
        assert_eq!(denial.asked, "fs.read /etc/[x]'s");
        assert_eq!(denial.reason, "fs.read grants only /w/**");
        assert_eq!(denial.remedy.as_deref(), Some(r#"add "/etc/\\[x\\]'s" to `read` in [requires.fs]"#));
        assert_eq!(
            denial.remedy_to_type().unwrap(),
            r#"add "/etc/\\[x\\]'s" to `read` in [requires.fs], or pass --read '/etc/\[x\]'\''s'"#
        );
        assert!(effective(r#"{"fs": {"read": ["/etc/\\[x\\]'s"]}}"#).check(&reads("/etc/[x]'s")).is_ok());
    }

    #[test]
    fn a_path_that_is_not_resolved_is_denied() {
        let set = effective(r#"{"fs": {"read": ["/**"]}}"#);
        for path in ["/w/../etc/shadow", "w/a", "", "/w/a\0b"] {
            assert!(set.check(&reads(path)).is_err(), "{path:?}");
        }
    }

    /// C-1: a denial names the ceiling when that is what took the right.
    #[test]
    fn a_denial_names_the_bound() {
        let ceiling = declared(r#"{"fs": {"read": ["**"]}}"#);
        let bound = Bound::at_most(Source::Ceiling, ceiling.rights().clone());
        let set = narrow(&declared(r#"{"fs": {"write": ["/w/x"]}}"#), &[bound]);
        let denial = set.check(&Effects::default().writing("/w/x")).unwrap_err();
        assert_eq!(denial.reason, "fs.write was asked for, but is bounded to nothing by the ceiling");
    }

    /// C-1: it names the manifest's table and its line, also where the tool that asked did so for the whole tree.
    #[test]
    fn a_denial_names_the_manifest_s_ceiling() {
        let text = "id = \"x\"\n\n[ceiling.fs]\nwrite = [\"out/**\"]\n[[ceiling.shell]]\ncmd = \"git\"\n";
        let manifest = Manifest::parse(text, Format::Toml, "callgate.toml").unwrap();
        let variables = Variables::new(vec!["/w".into()], vec![], vec![]).unwrap();
        let bounds = manifest.ceiling_bounds(&variables).unwrap();
        let set = narrow(&declared(r#"{"fs": {"write": ["**"]}, "shell": [{"cmd": "*"}]}"#), &bounds);
        let write = |path: &str| Effects::default().writing(path);
        assert!(set.check(&write("/w/out/x")).is_ok() && set.check(&reads("/w/x")).is_ok(), "the control");
        let denial = set.check(&write("/w/x")).unwrap_err();
        let reason = "fs.write was asked for, but is bounded to /w/out/** by `[ceiling.fs]`, callgate.toml line 3";
        assert_eq!(denial.reason, reason);
        assert_eq!(denial.remedy.unwrap(), "add \"/w/x\" to `write` in [ceiling.fs]");
        let denial = set.check(&write("/x")).unwrap_err();
        assert_eq!(denial.reason, "fs.write grants only /w/out/**", "nobody asked for that");
        let make = Effect::Runs(ProgramRun::program(vec!["make".into()], "/w".into()));
        let denial = set.check(&Effects::of(make)).unwrap_err();
        assert!(denial.reason.ends_with("bounded to git by `[[ceiling.shell]]`, callgate.toml line 5"), "{denial:?}");
        assert_eq!(denial.remedy_to_type().unwrap(), "add [[ceiling.shell]] with cmd = \"make\"", "no flag lifts it");
    }

    /// A mistake in a ceiling is told of the table that it stands in.
    #[test]
    fn a_mistake_in_a_ceiling_names_its_own_table() {
        let text = "[ceiling]\ncapabilities = [\"nope\"]\n[ceiling.fs]\nwrite = [\"out/**\"]\n";
        let manifest = Manifest::parse(text, Format::Toml, "callgate.toml").unwrap();
        let variables = Variables::new(vec!["/w".into()], vec![], vec![]).unwrap();
        let error = manifest.ceiling_bounds(&variables).unwrap_err().to_string();
        assert!(error.starts_with("`[ceiling]`, callgate.toml line "), "{error}");
    }

    /// A tool that names its file gets that file, not the tree.
    #[test]
    fn a_grant_is_the_file_and_a_tree_is_narrowed() {
        let set = effective(r#"{"fs": {"read": ["src/**/*.py"], "write": ["out/**"]}}"#);
        let regions = |grant: &CallGrant| grant.read().iter().map(|(region, _)| region.to_string()).collect::<Vec<_>>();
        assert_eq!(regions(&set.check(&reads("/w/src/a/b.py")).unwrap()), ["/w/src/a/b.py"]);
        let below = |dir: &str| Effects::of(Effect::Shows(FileScope::Tree(dir.into())));
        assert_eq!(regions(&set.check(&below("/w")).unwrap()), ["/w/out/**", "/w/src/**/*.py"]);
        assert_eq!(regions(&set.check(&below("/w/src/a")).unwrap()), ["/w/src/**/*.py ∩ /w/src/a/**"]);
        assert!(set.check(&below("/etc")).is_err());
    }

    #[test]
    fn programs_and_hosts_are_checked() {
        let set = effective(r#"{"shell": [{"cmd": "git", "args": ["log"]}], "net": {"hosts": ["a.com"]}}"#);
        let program = |argv: &[&str]| {
            let argv = argv.iter().map(|word| HostPath::from(*word)).collect();
            Effects::of(Effect::Runs(ProgramRun::program(argv, "/w".into())))
        };
        assert!(set.check(&program(&["git", "log"])).is_ok());
        let denial = set.check(&program(&["git", "push"])).unwrap_err();
        assert_eq!(denial.asked, "shell git push");
        let with = "add [[requires.shell]] with cmd = \"git\" and args = [\"push\"]";
        assert_eq!((denial.remedy.as_deref(), denial.typed.as_deref()), (Some(with), None), "no flag names arguments");
        let denial = set.check(&program(&["make", "all"])).unwrap_err();
        assert_eq!(denial.remedy_to_type().unwrap(), "add [[requires.shell]] with cmd = \"make\", or pass --exec make");
        let line = Effects::of(Effect::Runs(ProgramRun::shell("true", "/run/s1".into())));
        assert!(set.check(&line).is_ok());
        assert!(effective("{}").check(&line).is_err(), "without `shell`, nothing starts");
        let outside = set.check(&Effects::of(Effect::Runs(ProgramRun::shell("true", "/etc".into())))).unwrap_err();
        assert_eq!(outside.asked, "fs.read /etc", "A10: not a directory to start in");
        let host = |host: &str, port| Effects::of(Effect::Connects(HostConnection::new(host, port)));
        assert!(set.check(&host("A.com.", 443)).is_ok());
        assert!(set.check(&host("a.com\0.evil", 443)).unwrap_err().remedy.is_none(), "B10");
        let denial = set.check(&host("b.com", 8080)).unwrap_err();
        assert_eq!(
            denial.remedy_to_type().unwrap(),
            "add \"b.com:8080\" to `hosts` in [requires.net], or pass --net b.com:8080"
        );
    }

    const PATHS: [&str; 8] = ["/w", "/w/a", "/w/a/a", "/w/a/b", "/w/b", "/b", "/run/s1/x", "/w/b/a"];

    proptest! {
        /// The invariant of [`CallGrant`]: within the EffectiveSet, and enough for the call.
        #[test]
        fn a_grant_is_within_the_effective_set(
            read in proptest::collection::vec(proptest::sample::select(&["a/**", "*", "/b", "**/a", "b/?"][..]), 0..4),
            write in proptest::collection::vec(proptest::sample::select(&["a/**", "*/b", "/b"][..]), 0..3),
            asked_read in proptest::sample::subsequence(&PATHS[..], 0..3),
            asked_below in proptest::sample::subsequence(&PATHS[..], 0..2),
            asked_write in proptest::sample::subsequence(&PATHS[..], 0..2),
            shell in any::<bool>(),
        ) {
            let json = serde_json::json!({"fs": {"read": read, "write": write}, "shell": [{"cmd": "*"}]});
            let set = effective(&json.to_string());
            let paths = |paths: Vec<&str>| paths.into_iter().map(HostPath::from).collect::<Vec<_>>();
            let (asked_read, asked_below, asked_write) = (paths(asked_read), paths(asked_below), paths(asked_write));
            let effects = asked_read.iter().cloned().fold(Effects::default(), Effects::showing);
            let effects = asked_write.iter().cloned().fold(effects, Effects::writing);
            let below = |effects: Effects, path: &HostPath| effects.and(Effect::Shows(FileScope::Tree(path.clone())));
            let effects = asked_below.iter().fold(effects, below);
            let line = shell.then(|| Effect::Runs(ProgramRun::shell("true", "/run/s1".into())));
            let effects = line.into_iter().fold(effects, Effects::and);
            let granted = |scope: &Scope<PathRegion>, path: &HostPath| scope.iter().any(|(region, _)| region.matches(path));
            if let Ok(grant) = set.check(&effects) {
                for path in PATHS.map(HostPath::from) {
                    prop_assert!(!granted(grant.read(), &path) || set.allows_read(&path), "{path}");
                    prop_assert!(!granted(grant.write(), &path) || set.allows_write(&path), "{path}");
                }
                prop_assert!(asked_read.iter().all(|path| granted(grant.read(), path)));
                prop_assert!(asked_write.iter().all(|path| granted(grant.write(), path)));
            } else {
                let fine = asked_read.iter().all(|path| set.allows_read(path))
                    && asked_write.iter().all(|path| set.allows_write(path));
                prop_assert!(!fine || !asked_below.is_empty());
            }
        }
    }
}
