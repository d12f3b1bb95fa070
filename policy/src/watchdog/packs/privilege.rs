//! Becoming someone else.

use super::guard::{Guard, Pack, any};

pub(super) const GUARDS: &[Guard] = &[
    Pack::Privilege.asks(
        "become-another-user",
        "it asks for another user's rights; nothing here may gain any",
        "sudo apt-get install jq",
        "grep sudo notes.txt",
        |commands| {
            any(commands, |name, _| matches!(name, "sudo" | "su" | "doas" | "pkexec" | "runuser" | "machinectl"))
        },
    ),
    Pack::Privilege.guard(
        "change-protection",
        "it switches off what protects this machine",
        "iptables -F",
        "iptables -L",
        |commands| {
            any(commands, |name, args| {
                let says = |word: &str| args.iter().any(|arg| arg == word);
                (matches!(name, "iptables" | "ip6tables") && (says("-F") || says("--flush") || says("-X")))
                    || (name == "nft" && says("flush"))
                    || (name == "ufw" && (says("disable") || says("reset")))
                    || (name == "setenforce" && says("0"))
            })
        },
    ),
    Pack::Privilege.guard(
        "set-uid",
        "it makes a program that runs with its owner's rights",
        "chmod u+s tool",
        "chmod u+x tool",
        |commands| {
            any(commands, |name, args| name == "setcap" || (name == "chmod" && args.iter().any(|arg| sets_id(arg))))
        },
    ),
    Pack::Privilege.guard(
        "privileged-container",
        "it starts a container that has the host's rights",
        "docker run --privileged -it debian",
        "docker run --rm -it debian ls",
        |commands| {
            any(commands, |name, args| {
                let host = |arg: &String| {
                    matches!(arg.as_str(), "--privileged" | "--pid=host" | "--cap-add=ALL" | "--cap-add=SYS_ADMIN")
                        || arg.starts_with("/:/")
                        || arg.starts_with("-v/:")
                        || arg.contains("docker.sock:")
                        || arg.starts_with("--volume=/:")
                };
                matches!(name, "docker" | "podman" | "nerdctl") && args.iter().any(host)
            })
        },
    ),
    Pack::Privilege.guard(
        "enter-namespaces",
        "it enters another process's world",
        "nsenter -t 1 -m sh",
        "lsns",
        |commands| any(commands, |name, _| name == "nsenter"),
    ),
    Pack::Privilege.guard(
        "change-users",
        "it changes who may log in, and as whom",
        "usermod -aG docker me",
        "id -nG me",
        |commands| {
            any(commands, |name, _| {
                matches!(
                    name,
                    "usermod" | "useradd" | "adduser" | "groupmod" | "passwd" | "chpasswd" | "visudo" | "gpasswd"
                )
            })
        },
    ),
    Pack::Privilege.guard("change-kernel", "it changes the running kernel", "insmod x.ko", "lsmod", |commands| {
        any(commands, |name, args| {
            matches!(name, "insmod" | "modprobe" | "rmmod" | "kexec")
                || (name == "sysctl" && args.iter().any(|arg| arg == "-w" || arg == "--write"))
        })
    }),
];

/// A mode with the set-user-id or set-group-id bit.
fn sets_id(mode: &str) -> bool {
    let symbolic = mode.split(',').any(|part| {
        part.split_once(['+', '=']).is_some_and(|(who, what)| {
            what.contains('s')
                && who.bytes().all(|byte| b"ugoa".contains(&byte))
                && what.bytes().all(|byte| b"rwxXst".contains(&byte))
        })
    });
    let octal = mode.len() == 4
        && mode.bytes().all(|byte| (b'0'..=b'7').contains(&byte))
        && matches!(mode.as_bytes()[0], b'2'..=b'7');
    symbolic || octal
}
