//! Remarks on what was refused while a program ran: the program has had an errno, and often says something else of it.

use crate::envelope::{Blocked, Changes, NotReached, Note};
use crate::pattern::HostPattern;
use crate::plan::env::OFFLINE_SIGNS;
use crate::plan::protect;

mod wanted;

/// Sockets by which a service of the host is reached: how their paths end, and whose they are.
const SERVICES: &[(&str, &str)] = &[
    ("/docker.sock", "the Docker daemon"),
    ("/docker/desktop/docker.sock", "the Docker daemon"),
    ("/podman.sock", "the Podman service"),
    ("/containerd.sock", "containerd"),
    ("/buildkitd.sock", "BuildKit"),
    ("/crio.sock", "CRI-O"),
    ("/libvirt-sock", "libvirt"),
    ("/system_bus_socket", "the system's D-Bus"),
    ("/S.gpg-agent", "the GnuPG agent"),
    ("/.s.PGSQL.5432", "PostgreSQL"),
    ("/mysqld.sock", "MySQL"),
    ("/snapd.socket", "snapd"),
];

/// Sockets that C libraries ask for by themselves, and do without.
const UNASKED: &[&str] =
    &["/nscd/socket", "/run/systemd/userdb/", "/run/systemd/resolve/", "/dev/log", "/run/systemd/journal/"];

/// Most items of a list that are told.
const TOLD: usize = 5;

/// The service that has its socket at this path, if it is a known one.
#[must_use]
pub fn service(path: &str) -> Option<&'static str> {
    SERVICES.iter().find(|(end, _)| path.ends_with(end)).map(|(_, service)| *service)
}

/// One sentence for each kind of refusal, with what to do about it; nothing where nothing was refused. `failed` is whether the
/// program has failed: what programs try and do without is told only then. Text that a program has chosen is escaped.
#[must_use]
pub fn remarks(changes: &Changes, failed: bool) -> Vec<String> {
    remarks_on("", &GrantedHosts::default(), changes, failed)
}

/// Hosts that a program may reach, and what bounds them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GrantedHosts {
    /// Hosts that are granted.
    pub hosts: Vec<HostPattern>,
    /// Bound beyond which no flag grants one, in a sentence.
    pub bound: Option<String>,
}

/// Remarks where the command is known, and the hosts that were granted: what the command names may be what nobody saw
/// it ask for.
#[must_use]
pub fn remarks_on(command: &str, granted: &GrantedHosts, changes: &Changes, failed: bool) -> Vec<String> {
    let mut remarks = Vec::new();
    remarks.extend(kept(&changes.refused));
    remarks.extend(network(command, granted, changes));
    remarks.extend(asked_by_udp(&granted.hosts, changes));
    remarks.extend(ended(changes));
    remarks.extend(loopback(changes).filter(|_| failed));
    remarks.extend(sockets(&changes.not_reached));
    if failed {
        // Who looks up a name makes a datagram socket of another kind for what was found.
        let looked_up = changes.blocked.contains_key(&Blocked::NameLookup);
        let kinds = changes.blocked.keys().filter(|kind| !looked_up || **kind != Blocked::DatagramSocket);
        remarks.extend(kinds.filter_map(|kind| blocked(*kind)).map(str::to_owned));
    }
    remarks.extend(vanished(&changes.vanished));
    remarks
}

/// Remark that package managers work offline, where no flag grants a host.
fn offline_by(bound: &str) -> String {
    format!(
        "the network is not granted, so package managers were told to work offline with what they have stored. No flag grants it, for \
         the hosts are bounded by {bound}"
    )
}

/// Remark where a package manager has printed that it is offline: the session has told it so, and nobody saw it try.
#[must_use]
pub fn remark_offline(output: &str, granted: &GrantedHosts) -> Option<String> {
    let usual = || {
        "the network is not granted, so package managers were told to work offline with what they have stored (by variables \
         such as CARGO_NET_OFFLINE; unsetting them does not help). To let them fetch, grant the hosts of their registry (--net \
         index.crates.io --net static.crates.io, --net registry.npmjs.org, --net pypi.org --net files.pythonhosted.org)"
            .to_owned()
    };
    let is_sign = OFFLINE_SIGNS.iter().any(|sign| output.contains(sign));
    is_sign.then(|| granted.bound.as_deref().map_or_else(usual, offline_by))
}

/// Remark where its output is not known, of a command that has failed.
#[must_use]
pub fn remark_offline_command(command: &str, granted: &GrantedHosts) -> Option<String> {
    let (program, hosts) = wanted::registry(command)?;
    if let Some(bound) = &granted.bound {
        return Some(offline_by(bound));
    }
    let grants: Vec<String> = hosts.iter().map(|host| flag(host)).collect();
    Some(format!(
        "the network is not granted, so {program} was told to work offline with what it has stored. If that was not enough: {} (or \
         `hosts` in [requires.net])",
        grants.join(" ")
    ))
}

fn kept(refused: &[Note]) -> Option<String> {
    let one = |note: &Note| format!("{} ({})", note.path.escape_debug(), note.why.escape_debug());
    let all = listed(refused.iter().map(one))?;
    let is_policy = |note: &Note| note.why == protect::POLICY;
    let by_name = "to allow one, grant it by name (--write PATH, or `write` in [requires.fs])";
    let remedy = match (refused.iter().any(is_policy), refused.iter().all(is_policy)) {
        (_, true) => "change it yourself, or keep it where calls do not write".to_owned(),
        (true, false) => format!("{by_name}, but for what decides about this session"),
        (false, false) => by_name.to_owned(),
    };
    Some(format!("protected, and not changed: {all}; {remedy}"))
}

/// Without `/`: unix sockets have paths.
fn is_loopback(address: &str) -> bool {
    address.starts_with("127.") || address.starts_with("[::1]:")
}

fn counted(NotReached { address, count, .. }: &NotReached) -> String {
    let times = if *count > 1 { format!(" ({count} times)") } else { String::new() };
    format!("{}{times}", address.escape_debug())
}

/// Hosts that were not granted, once, with what grants them.
fn network(command: &str, GrantedHosts { hosts: granted, bound }: &GrantedHosts, changes: &Changes) -> Option<String> {
    let remote = |reached: &&NotReached| !reached.address.contains('/') && !is_loopback(&reached.address);
    let refused = || changes.not_reached.iter().filter(remote).filter(|reached| reached.why.is_none());
    // With a host granted, names are answered for, and no grant lets anybody ask elsewhere.
    let looked_up = granted.is_empty() && changes.blocked.contains_key(&Blocked::NameLookup);
    let looked_up = looked_up.then(|| "a name that was looked up (DNS)".to_owned());
    let wanted = listed(refused().map(counted).chain(looked_up))?;
    let not_granted =
        format!("the network is not granted for {wanted}; it is not down, and trying again does not help.");
    if let Some(bound) = bound {
        return Some(format!("{not_granted} No flag grants it, for the hosts are bounded by {bound}: name it there"));
    }
    let mut grants: Vec<String> = Vec::new();
    for grant in refused().filter_map(grant) {
        if !grants.contains(&grant) && grants.len() < TOLD {
            grants.push(grant);
        }
    }
    let mut what = "To grant it".to_owned();
    if grants.is_empty() {
        let mut named = wanted::named(command);
        let is_granted =
            |host: &String| HostPattern::parse(host).is_ok_and(|host| granted.iter().any(|grant| host.within(grant)));
        named.retain(|host| !is_granted(host));
        let (hosts, of) = match wanted::registry(command) {
            _ if !named.is_empty() => (named, "To grant what the command names".to_owned()),
            Some((program, hosts)) => (hosts, format!("To grant what {program} usually asks for")),
            None => (vec!["HOST".to_owned()], what),
        };
        what = of;
        grants.extend(hosts.iter().map(|host| flag(host)));
    }
    Some(format!("{not_granted} {what}: {} (or `hosts` in [requires.net])", grants.join(" ")))
}

/// A name that was asked for by UDP, past the answers that granted names have.
fn asked_by_udp(granted: &[HostPattern], changes: &Changes) -> Option<String> {
    let asked = !granted.is_empty() && changes.blocked.contains_key(&Blocked::NameLookup);
    asked.then(|| {
        "a name was looked up by UDP (DNS), which is refused here. Programs that use the system's resolver (getaddrinfo) find \
         the names that are granted; without namespaces they ask by TCP (RES_OPTIONS=use-vc, which is set), and a program with a \
         resolver of its own reaches a granted address alone (--net ADDRESS)"
            .to_owned()
    })
}

/// The flag that grants a host. On the ports of the web a pattern needs none.
fn grant(reached: &NotReached) -> Option<String> {
    let web = [":80", ":443"].iter().find_map(|port| reached.address.strip_suffix(port));
    let pattern = HostPattern::parse(web.unwrap_or(&reached.address)).ok()?.to_string();
    Some(flag(&pattern))
}

fn flag(pattern: &str) -> String {
    // A shell reads brackets as a pattern of its own.
    if pattern.contains('[') { format!("--net '{pattern}'") } else { format!("--net {pattern}") }
}

/// Remark on hosts that were granted, and refused for what they led to or for what was said, or did not answer.
fn ended(changes: &Changes) -> Option<String> {
    let refused = changes.not_reached.iter().filter(|reached| !reached.address.contains('/'));
    let one = |reached: &NotReached| {
        let why = reached.why.as_ref()?.escape_debug();
        Some(format!("{} ({why})", counted(reached)))
    };
    Some(format!("not reached, although its host is granted: {}", listed(refused.filter_map(one))?))
}

fn loopback(changes: &Changes) -> Option<String> {
    let here = || changes.not_reached.iter().filter(|reached| is_loopback(&reached.address) && reached.why.is_none());
    let all = listed(here().map(counted))?;
    let grants: Vec<String> = here().filter_map(grant).take(TOLD).collect();
    Some(format!(
        "nothing that this call started listens on {all}: start the server in the same command. To grant a server of this machine: {}",
        grants.join(" ")
    ))
}

fn sockets(not_reached: &[NotReached]) -> Option<String> {
    let asked = |path: &str| path.contains('/') && !UNASKED.iter().any(|unasked| path.contains(unasked));
    let one = |reached: &NotReached| match service(&reached.address) {
        Some(service) => format!("{} ({service})", reached.address.escape_debug()),
        None => counted(reached),
    };
    let all = listed(not_reached.iter().filter(|reached| asked(&reached.address)).map(one))?;
    Some(format!(
        "not granted, whether or not anybody listens there: {all}; no call reaches sockets of programs outside, so do this \
         part outside the sandbox"
    ))
}

fn blocked(kind: Blocked) -> Option<&'static str> {
    Some(match kind {
        Blocked::Ptrace => {
            "ptrace was refused: debuggers and tracers (gdb, strace, LeakSanitizer) need --debug, or `capabilities = \
             [\"debug\"]` in [requires]"
        }
        Blocked::Mount => "mounting and changing the root are refused inside",
        Blocked::Namespace => {
            "new namespaces are refused inside: programs that sandbox themselves (bubblewrap, Chromium, Flatpak, rootless \
             containers) need their own switch for that, such as --no-sandbox, or have to run outside"
        }
        Blocked::Identity => {
            "no process inside takes another user or group, not even root's: have servers stay the user they are (nginx: \
             `user root;`, apt: -o APT::Sandbox::User=root), or start callgate as the user they change to"
        }
        Blocked::Owner => {
            "files cannot be given to another user or group inside, not even by root: have the program leave owners alone \
             (tar --no-same-owner, rsync --no-owner --no-group), or change them outside"
        }
        Blocked::SeccompListener => {
            "seccomp filters that ask another program are refused inside, for callgate's is there already and Linux allows one: \
             programs that supervise others in that way (callgate itself, container runtimes) have to run outside"
        }
        Blocked::DatagramSocket => "datagram sockets (UDP) are refused inside",
        Blocked::OtherSocket => {
            "raw and other sockets of the network are refused inside (ping, traceroute, MPTCP, SCTP)"
        }
        // Told with the network.
        Blocked::NameLookup => return None,
    })
}

fn vanished(paths: &[String]) -> Option<String> {
    let all = listed(paths.iter().map(|path| path.escape_debug().to_string()))?;
    Some(format!(
        "gone with the session, whose /tmp is its own: {all}; to keep such files, make them in the workspace or grant a \
         directory (--write DIR)"
    ))
}

/// The first of them, and how many more. `None` if there is none.
fn listed(items: impl Iterator<Item = String>) -> Option<String> {
    let all: Vec<String> = items.collect();
    let (first, rest) = all.split_at(all.len().min(TOLD));
    match (first.is_empty(), rest.len()) {
        (true, _) => None,
        (false, 0) => Some(first.join(", ")),
        (false, more) => Some(format!("{} and {more} more", first.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(all: &[(&str, u64)]) -> Changes {
        let not_reached = all.iter().map(|(address, count)| NotReached::new(*address, *count)).collect();
        Changes { not_reached, ..Changes::default() }
    }

    fn said(changes: &Changes, failed: bool) -> String {
        remarks(changes, failed).join("\n")
    }

    #[test]
    fn where_nothing_was_refused_nothing_is_said() {
        assert_eq!(remarks(&Changes::default(), true), Vec::<String>::new());
        let changed = Changes { created: vec!["/w/x".into()], more: 7, ..Changes::default() };
        assert_eq!(remarks(&changed, true), Vec::<String>::new());
    }

    /// A file that decides about the session is not granted by name, so that is not proposed.
    #[test]
    fn the_remedy_is_one_that_works() {
        let note = |why: &str| Note::new("/w/x", why);
        let with = |refused: Vec<Note>| said(&Changes { refused, ..Changes::default() }, true);
        let by_name = with(vec![note("a shell runs it")]);
        assert!(by_name.contains("grant it by name") && !by_name.contains("but for"), "{by_name}");
        let policy = with(vec![note(protect::POLICY)]);
        assert!(policy.contains("change it yourself") && !policy.contains("--write"), "{policy}");
        let both = with(vec![note(protect::POLICY), note("a shell runs it")]);
        assert!(both.contains("grant it by name") && both.contains("but for what decides"), "{both}");
    }

    #[test]
    fn the_network_is_said_once_with_what_was_wanted() {
        let mut changes = reached(&[("1.1.1.1:443", 3), ("[2001:db8::1]:80", 1)]);
        changes.blocked.insert(Blocked::NameLookup, 4);
        let said = said(&changes, false);
        assert_eq!(said.matches("not granted").count(), 1, "{said}");
        for part in ["a name that was looked up (DNS)", "1.1.1.1:443 (3 times)", "[2001:db8::1]:80"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(said.contains("To grant it: --net 1.1.1.1 --net 2001:db8::1 (or"), "{said}");
    }

    /// Issue 22: whoever forgets `--net` is told what to type, once for each host.
    #[test]
    fn what_grants_a_host_is_said() {
        let wanted =
            [("pypi.org", 4), ("pypi.org:443", 1), ("db.example.com:5432", 1), ("[2001:db8::1]:22", 1), ("a b:80", 1)];
        let said = said(&reached(&wanted), false);
        let grants = "--net pypi.org --net db.example.com:5432 --net '[2001:db8::1]:22' (or";
        assert!(said.contains(grants) && said.contains("pypi.org (4 times), pypi.org:443"), "{said}");
        let mut changes = Changes::default();
        changes.blocked.insert(Blocked::NameLookup, 1);
        let said = remarks(&changes, false).join("\n");
        assert!(said.contains("--net HOST"), "{said}");
    }

    /// Issue 22: without any grant nobody sees which name is asked for, and the command may say it.
    #[test]
    fn what_the_command_names_is_said() {
        let mut changes = Changes::default();
        changes.blocked.insert(Blocked::NameLookup, 1);
        for (command, end) in [
            (
                "curl https://example.com",
                "To grant what the command names: --net example.com (or `hosts` in [requires.net])",
            ),
            (
                "pip install six",
                "what pip usually asks for: --net pypi.org --net files.pythonhosted.org (or `hosts` in [requires.net])",
            ),
            ("./script", "To grant it: --net HOST (or `hosts` in [requires.net])"),
        ] {
            let said = remarks_on(command, &GrantedHosts::default(), &changes, true);
            assert!(said.len() == 1 && said[0].ends_with(end), "{command}: {said:?}");
        }
        assert!(
            remark_offline_command("npm install", &GrantedHosts::default())
                .expect("it asks a registry")
                .contains(": --net registry.npmjs.org (or")
        );
        assert_eq!(remark_offline_command("npm test", &GrantedHosts::default()), None);
    }

    /// A host that is granted already is not to be granted: who asks for it by UDP is told of that.
    #[test]
    fn a_granted_host_is_not_suggested() {
        let hosts = vec![HostPattern::parse("*.example.com").expect("a pattern")];
        let granted = GrantedHosts { hosts, bound: None };
        let mut changes = Changes::default();
        changes.blocked.insert(Blocked::NameLookup, 1);
        let said = remarks_on("wget https://a.example.com/b", &granted, &changes, true);
        assert!(said.len() == 1 && said[0].contains("by UDP (DNS), which is refused here"), "{said:?}");
        assert!(!said[0].contains("example.com") && !said[0].starts_with("the network"), "{said:?}");
        // A refused host whose address makes no pattern: of those that the command names, one is left to grant.
        changes.not_reached.push(NotReached::new("a b:80", 1));
        let said = remarks_on("wget https://a.example.com https://b.example", &granted, &changes, true).join("\n");
        assert!(said.contains("names: --net b.example (or") && !said.contains("(DNS);"), "{said}");
    }

    /// C-1: where a ceiling bounds the hosts, no flag is proposed.
    #[test]
    fn c_1_a_bound_is_named_and_no_flag() {
        let changes = reached(&[("b.example:80", 1)]);
        let bound = Some("`[ceiling.net]`, m.toml line 2".to_owned());
        let granted = |bound| GrantedHosts { hosts: Vec::new(), bound };
        let said = remarks_on("curl b.example", &granted(bound), &changes, true).join("\n");
        assert!(
            said.contains("not granted for b.example:80") && said.contains("bounded by `[ceiling.net]`, m.toml line 2"),
            "{said}"
        );
        assert!(!said.contains("--net"), "{said}");
        let control = remarks_on("curl b.example", &granted(None), &changes, true).join("\n");
        assert!(control.contains("--net b.example"), "{control}");
    }

    /// A host that was granted and refused all the same needs no grant.
    #[test]
    fn what_a_granted_host_was_refused_for_is_said() {
        let why = Some("it leads to 10.0.0.1, a private network".to_owned());
        let not_reached = vec![NotReached::new("a.com:443", 2).because(why)];
        let said = said(&Changes { not_reached, ..Changes::default() }, false);
        assert!(said.contains("a.com:443 (2 times) (it leads to 10.0.0.1") && !said.contains("--net"), "{said}");
    }

    /// A server that is yet to come is tried until it is there: only who has failed is told of it.
    #[test]
    fn what_programs_do_without_is_said_only_of_failures() {
        let mut changes = reached(&[("127.0.0.1:5432", 9), ("[::1]:5432", 1)]);
        changes.blocked.extend([(Blocked::Ptrace, 1), (Blocked::DatagramSocket, 2)]);
        assert_eq!(said(&changes, false), "");
        let said = said(&changes, true);
        assert!(said.contains("127.0.0.1:5432 (9 times), [::1]:5432") && said.contains("gdb"), "{said}");
    }

    #[test]
    fn sockets_are_said_by_whose_they_are_but_not_what_libraries_ask_for() {
        let docker = said(&reached(&[("/var/run/docker.sock", 2)]), false);
        assert!(docker.contains("/var/run/docker.sock (the Docker daemon)"), "{docker}");
        assert_eq!(said(&reached(&[("/var/run/nscd/socket", 2)]), true), "");
        assert_eq!(service("/run/user/1000/podman/podman.sock"), Some("the Podman service"));
        assert_eq!(service("/w/mine.sock"), None);
    }

    #[test]
    fn lists_are_bounded_and_escaped() {
        let refused = (0..9).map(|n| Note::new(format!("/w/{n}\u{1b}[2J"), "it is kept")).collect();
        let said = said(&Changes { refused, ..Changes::default() }, false);
        assert!(said.contains("and 4 more") && !said.contains('\u{1b}'), "{said}");
    }
}
