//! Rights and plans, printed for people: each rule with where it came from and how exact it is.

use std::collections::BTreeSet;
use std::fmt;

use crate::effective::{EffectiveSet, Origin, Scope};
use crate::pattern::HostPattern;
use crate::plan::protect::NameGuard;
use crate::plan::protect::names::{FREE, NAMES};
use crate::plan::{Exactness, Extent, FsAccess, FsRule, Network, ProgramRule, SessionPlan, Strength};

impl fmt::Display for EffectiveSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rights = self.rights();
        section(f, "fs.read", rights.read())?;
        section(f, "fs.write", rights.write())?;
        section(f, "net.hosts", rights.hosts())?;
        way_out(f, rights.hosts().iter().map(|(host, _)| host))?;
        section(f, "shell", rights.shell())?;
        section(f, "capabilities", rights.capabilities())?;
        if !self.narrowings().is_empty() {
            writeln!(f, "not granted")?;
        }
        for narrowing in self.narrowings().iter() {
            writeln!(f, "  {narrowing}")?;
        }
        Ok(())
    }
}

fn section<T: fmt::Display>(f: &mut fmt::Formatter<'_>, name: &str, scope: &Scope<T>) -> fmt::Result {
    writeln!(f, "{name}{}", if scope.is_empty() { ": nothing" } else { "" })?;
    for (region, origins) in scope.iter() {
        writeln!(f, "  {region}{}", Because(origins))?;
    }
    Ok(())
}

fn way_out<'a>(f: &mut fmt::Formatter<'_>, hosts: impl Iterator<Item = &'a HostPattern>) -> fmt::Result {
    Network::cautions(hosts).into_iter().try_for_each(|caution| writeln!(f, "  {caution}"))
}

struct Because<'a>(&'a BTreeSet<Origin>);

impl fmt::Display for Because<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, origin) in self.0.iter().enumerate() {
            write!(f, "{}{origin}", if place == 0 { "  ← " } else { "; " })?;
        }
        Ok(())
    }
}

impl fmt::Display for FsRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let access = match self.access {
            FsAccess::List => "list",
            FsAccess::Read => "read",
            FsAccess::ReadExecute => "read, execute",
            FsAccess::Write => "write",
            FsAccess::Kept => "write, kept",
            FsAccess::Device => "device",
        };
        let extent = match self.extent {
            Extent::Subtree => "/**",
            Extent::File | Extent::Entry => "",
        };
        let widened = match (self.exactness, self.extent) {
            (Exactness::Exact, Extent::Entry) => " (this name)",
            (Exactness::Exact, Extent::Subtree | Extent::File) => "",
            (Exactness::Widened, _) => " (widened)",
        };
        write!(f, "{access:<13} {}{extent}{widened}  ← {}", self.path, self.source)
    }
}

impl fmt::Display for SessionPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let strength = match self.strength {
            Strength::Landlock => "Landlock and seccomp",
            Strength::Namespaces => "namespaces, Landlock and seccomp",
        };
        writeln!(
            f,
            "{strength}, Landlock ABI {}, uid {} gid {}",
            self.landlock_abi, self.identity.uid, self.identity.gid
        )?;
        writeln!(f, "files")?;
        for rule in self.rules() {
            writeln!(f, "  {rule}")?;
        }
        if self.writer().is_broker() {
            writeln!(f, "kept in trees that are written, at any depth and in any case, unless granted by name")?;
            for group in NAMES {
                let how = match group.guard {
                    NameGuard::GitConfig => " (judged by content)",
                    NameGuard::Temporary => " (each for the session that made it)",
                    NameGuard::Closed | NameGuard::Repository => "",
                };
                writeln!(f, "  {}{how}  ← {}", group.patterns.join(" "), group.reason)?;
            }
            writeln!(f, "  a repository of any other name is kept as if it were called .git")?;
            writeln!(f, "  nothing in: {}", FREE.join(", "))?;
        }
        if self.exec.is_judged() {
            writeln!(f, "programs, each judged when it is started")?;
        }
        for ProgramRule { programs, args, source } in self.exec.rules() {
            write!(f, "  {programs}")?;
            if !args.is_any() {
                write!(f, " [{args}]")?;
            }
            let is_written = programs.directory().is_some_and(|directory| self.changes_in(directory));
            let whatever =
                if is_written { " (calls may write there, so this is any program that they can read)" } else { "" };
            writeln!(f, "{whatever}  ← {source}")?;
        }
        if let Some(network) = &self.network {
            writeln!(f, "hosts that are reached, names by their name alone")?;
            for host in &network.hosts {
                writeln!(f, "  {host}")?;
            }
            way_out(f, network.hosts.iter())?;
        }
        if self.debug {
            writeln!(f, "the processes of a call may trace one another")?;
        }
        if let Some(programs) = &self.reading {
            let names: Vec<String> = programs.iter().map(ToString::to_string).collect();
            writeln!(
                f,
                "calls of the restricted shell: nothing to write, and of programs only\n  {}",
                names.join(" ")
            )?;
        }
        writeln!(f, "environment")?;
        for (name, value) in &self.env {
            writeln!(f, "  {name}={value}")?;
        }
        if !self.gitconfig.is_empty() {
            writeln!(f, "~/.gitconfig, from the person's own")?;
        }
        for line in self.gitconfig.lines() {
            writeln!(f, "  {line}")?;
        }
        Ok(())
    }
}
