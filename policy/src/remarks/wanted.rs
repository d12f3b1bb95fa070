//! Which hosts a command would ask for, as far as its words say. It is for advice alone: a shell reads words in more ways than this.

use crate::pattern::HostPattern;

/// Package managers, what they do that asks for packages, and where those usually are.
const REGISTRIES: &[(&[&str], &[&str], &[&str])] = &[
    (&["npm", "pnpm", "yarn"], &["install", "i", "ci", "add", "update", "exec", "create"], &["registry.npmjs.org"]),
    (&["pip", "pip3", "pipx"], &["install", "download", "upgrade"], &["pypi.org", "files.pythonhosted.org"]),
    (&["uv"], &["pip", "add", "sync", "lock", "tool"], &["pypi.org", "files.pythonhosted.org"]),
    (&["cargo"], &["install", "add", "fetch", "update"], &["index.crates.io", "static.crates.io"]),
    (&["go"], &["get", "install", "mod"], &["proxy.golang.org", "sum.golang.org"]),
    (&["gem", "bundle"], &["install", "update"], &["rubygems.org", "index.rubygems.org"]),
    (&["composer"], &["install", "require", "update"], &["repo.packagist.org"]),
];

/// Schemes of URLs, and the ports that a pattern has to name for them.
const SCHEMES: &[(&str, Option<u16>)] = &[
    ("http", None),
    ("https", None),
    ("ws", None),
    ("wss", None),
    ("ssh", Some(22)),
    ("git", Some(9418)),
    ("ftp", Some(21)),
];

/// The hosts of its URLs, and of what git and ssh take for one (`git@host:path`), as patterns.
pub(super) fn named(command: &str) -> Vec<String> {
    let is_between = |c: char| c.is_whitespace() || "\"'`;|&()<>".contains(c);
    listed(command.split(is_between).filter_map(|word| of_url(word).or_else(|| of_login(word))))
}

/// The program that gets packages with this command, and the hosts that it usually gets them from.
pub(super) fn registry(command: &str) -> Option<(&str, Vec<String>)> {
    command.split([';', '|', '&', '(', '\n']).find_map(|part| {
        let mut words = part.split_whitespace().skip_while(|word| word.contains('='));
        let first = words.next()?;
        let program = if words.clone().next() == Some("-m") { words.nth(1)? } else { first };
        let program = program.rsplit('/').next()?;
        let (_, gets, hosts) = REGISTRIES.iter().find(|(programs, _, _)| programs.contains(&program))?;
        let verb = words.find(|word| !word.starts_with('-'))?;
        gets.contains(&verb).then(|| (program, listed(hosts.iter().map(|host| (*host).to_owned()))))
    })
}

fn of_url(word: &str) -> Option<String> {
    let (before, rest) = word.split_once("://")?;
    let (_, port) = SCHEMES.iter().find(|(scheme, _)| before.rsplit(['+', '=']).next() == Some(scheme))?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    pattern(host, port.filter(|_| !has_port))
}

fn of_login(word: &str) -> Option<String> {
    let (user, place) = word.split_once('@')?;
    let (host, _) = place.split_once(':')?;
    let is_user = !user.is_empty() && user.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    pattern(host, Some(22)).filter(|_| is_user && host.contains('.'))
}

fn pattern(host: &str, port: Option<u16>) -> Option<String> {
    let text = port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    // The ports of the web need no number.
    let text = [":80", ":443"].iter().find_map(|web| text.strip_suffix(web)).unwrap_or(&text);
    // One host at one port: what a command may have written besides grants more than anybody meant.
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte));
    let is_one = match text.rsplit_once(':') {
        Some((_, port)) if !port.contains(']') => {
            text.contains("]:") || !text.contains('[') && port.bytes().all(|b| b.is_ascii_digit())
        }
        _ => true,
    };
    HostPattern::parse(text).ok().filter(|_| is_plain && is_one).map(|pattern| pattern.to_string())
}

/// Each once, and no more than are told.
fn listed(hosts: impl Iterator<Item = String>) -> Vec<String> {
    let mut all = Vec::new();
    for host in hosts {
        if !all.contains(&host) && all.len() < super::TOLD {
            all.push(host);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_names_is_found() {
        for (command, hosts) in [
            ("curl -sS https://example.com/a?b=https://c", &["example.com"][..]),
            ("curl 'http://u:p@Example.COM.:8080/' https://example.com:443", &["example.com:8080", "example.com"]),
            ("git clone git@github.com:a/b.git", &["github.com:22"]),
            ("git clone ssh://git@git.example:2222/a", &["git.example:2222"]),
            ("sh -c 'wget https://a.example;curl https://b.example'", &["a.example", "b.example"]),
            ("pip install git+https://github.com/a/b", &["github.com"]),
            ("curl http://[2001:db8::1]/", &["2001:db8::1"]),
            ("curl https://*.com/ http://a.example:* http://b.example:1-65535 http://c.example:1,2", &[]),
            ("echo a@b.example file:///etc/x http:// https://$HOST/ x://y", &[]),
        ] {
            assert_eq!(named(command), hosts, "{command}");
        }
    }

    #[test]
    fn a_package_manager_s_usual_registry_is_known() {
        for (command, program, host) in [
            ("npm install left-pad", "npm", "registry.npmjs.org"),
            ("cd a && CI=1 /usr/bin/npm --silent ci", "npm", "registry.npmjs.org"),
            ("python3 -m pip install six", "pip", "pypi.org"),
            ("cargo add serde", "cargo", "index.crates.io"),
        ] {
            let (found, hosts) = registry(command).unwrap_or_default();
            assert!(found == program && hosts.first().is_some_and(|first| first == host), "{command}: {hosts:?}");
        }
        for command in ["npm test", "cargo test", "echo npm install", "go", "pip list", ""] {
            assert_eq!(registry(command), None, "{command}");
        }
    }
}
