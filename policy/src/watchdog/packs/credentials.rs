//! Keys, tokens and passwords.

use super::guard::{Guard, On, Pack, Touch, any, below_home};
use crate::watchdog::words::PipedCommand;

const fn guard(name: &'static str, reason: &'static str, caught: &'static str, passed: &'static str, on: On) -> Guard {
    Guard { name, pack: Pack::Credentials, reason, caught, passed, on, asks: false }
}

pub(super) const GUARDS: &[Guard] = &[
    guard(
        "print-secret",
        "it prints a private key or a stored password",
        "cat ~/.ssh/id_ed25519",
        "cat ~/.ssh/id_ed25519.pub",
        On::Commands(|commands| {
            // Programs that use keys name them; these show or copy them.
            let shows = [
                "cat", "head", "tail", "less", "more", "strings", "base64", "xxd", "od", "hexdump", "cp", "mv", "tar",
                "zip", "grep", "sed", "awk", "tee", "dd", "scp", "rsync", "python", "python3",
            ];
            any(commands, |name, args| shows.contains(&name) && args.iter().any(|arg| is_secret(arg)))
        }),
    ),
    guard(
        "read-secret",
        "it is a private key or a stored password",
        "/home/me/.aws/credentials",
        "/home/me/.aws/config",
        On::Path(Touch::Read, is_secret),
    ),
    guard(
        "change-secret",
        "it is a private key or a stored password",
        "/root/.netrc",
        "docs/netrc.md",
        On::Path(Touch::Change, is_secret),
    ),
    guard(
        "metadata-service",
        "it asks the cloud's metadata service, which hands out this host's credentials",
        "curl http://169.254.169.254/latest/meta-data/",
        "curl http://127.0.0.1:8080/latest/",
        On::Commands(|commands| {
            any(commands, |name, args| {
                matches!(name, "curl" | "wget" | "nc" | "python3" | "python")
                    && args.iter().any(|arg| {
                        arg.contains("169.254.169.254")
                            || arg.contains("metadata.google.internal")
                            || arg.contains("[fd00:ec2::254]")
                    })
            })
        }),
    ),
    guard(
        "other-environment",
        "it reads another process's environment",
        "cat /proc/1/environ",
        "cat /proc/self/status",
        On::Commands(|commands| {
            commands.iter().any(|command: &PipedCommand| {
                command.words.iter().any(|word| word.starts_with("/proc/") && word.ends_with("/environ"))
            })
        }),
    ),
    guard(
        "export-keys",
        "it prints private keys or stored passwords",
        "gpg --export-secret-keys -a",
        "gpg --verify a.sig a",
        On::Commands(|commands| {
            any(commands, |name, args| {
                (name.starts_with("gpg") && args.iter().any(|arg| arg.starts_with("--export-secret")))
                    || (name == "git"
                        && args.first().is_some_and(|arg| arg == "credential")
                        && args.get(1).is_some_and(|arg| arg == "fill"))
                    || name == "secret-tool"
                    || (name == "security"
                        && args.iter().any(|arg| arg.starts_with("find-") && arg.ends_with("-password")))
            })
        }),
    ),
];

/// Where programs keep secrets: each name stands below a home directory, but for the system's own.
const SECRETS: &[&str] = &[
    ".aws/credentials",
    ".netrc",
    ".git-credentials",
    ".pgpass",
    ".pypirc",
    ".npmrc",
    ".docker/config.json",
    ".kube/config",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".config/gh/hosts.yml",
    ".config/gcloud/credentials.db",
    ".config/gcloud/application_default_credentials.json",
    ".azure/accessTokens.json",
    ".gem/credentials",
    ".terraform.d/credentials.tfrc.json",
    ".config/git/credentials",
    ".my.cnf",
    ".vault-token",
    ".password-store",
    ".local/share/keyrings",
];

/// True if a path names a secret that a program keeps.
pub(super) fn is_secret(path: &str) -> bool {
    if matches!(path, "/etc/shadow" | "/etc/gshadow" | "/etc/sudoers") {
        return true;
    }
    let Some(rest) = below_home(path) else { return false };
    let key = rest.strip_prefix(".ssh/").is_some_and(|name| {
        !name.ends_with(".pub")
            && (name.starts_with("id_") || name.ends_with(".pem") || name.ends_with(".key") || name == "*")
    });
    let ring = rest
        .strip_prefix(".gnupg/")
        .is_some_and(|name| name.starts_with("private-keys") || name.starts_with("secring"));
    key || ring
        || SECRETS.contains(&rest)
        || rest.starts_with(".password-store/")
        || rest.starts_with(".local/share/keyrings/")
}
