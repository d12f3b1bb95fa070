//! Rules on what runs later, when nobody looks.

use super::guard::{Guard, On, Pack, Touch, any, below_home, writes_to};

const fn guard(name: &'static str, reason: &'static str, caught: &'static str, passed: &'static str, on: On) -> Guard {
    Guard { name, pack: Pack::Persistence, reason, caught, passed, on, asks: false }
}

pub(super) const GUARDS: &[Guard] = &[
    guard(
        "schedule",
        "it has something run later, on its own",
        "crontab my.cron",
        "crontab -l",
        On::Commands(|commands| {
            any(commands, |name, args| {
                (name == "crontab" && args.iter().all(|arg| arg != "-l"))
                    || matches!(name, "at" | "batch")
                    || name == "launchctl"
                        && args.first().is_some_and(|arg| matches!(arg.as_str(), "load" | "bootstrap" | "submit"))
            })
        }),
    ),
    guard(
        "enable-service",
        "it has a service start with the host or the user",
        "systemctl --user enable x.service",
        "systemctl --user status x.service",
        On::Commands(|commands| {
            any(commands, |name, args| {
                (name == "systemctl"
                    && args.iter().any(|arg| matches!(arg.as_str(), "enable" | "link" | "edit" | "set-default")))
                    || name == "systemd-run"
                    || name == "update-rc.d"
            })
        }),
    ),
    guard(
        "append-to-start-up",
        "it writes what each later shell or login runs",
        "echo 'x' >> ~/.bashrc",
        "echo 'x' >> README.md",
        On::Commands(|commands| writes_to(commands, runs_later)),
    ),
    guard(
        "place-start-up",
        "it writes what each later shell or login runs",
        "cp evil ~/.config/autostart/x.desktop",
        "cp ~/.bashrc backup",
        On::Commands(|commands| {
            any(commands, |name, args| {
                matches!(name, "cp" | "mv" | "ln" | "install") && args.last().is_some_and(|arg| runs_later(arg))
            })
        }),
    ),
    guard(
        "write-start-up",
        "each later shell or login runs it",
        "/home/me/.profile",
        "src/profile.rs",
        On::Path(Touch::Change, runs_later),
    ),
    guard(
        "git-runs-programs",
        "it has git run a program later, in every repository",
        "git config --global core.pager ./x",
        "git config user.name me",
        On::Commands(|commands| any(commands, sets_program)),
    ),
    guard(
        "authorize-key",
        "it lets another key in",
        "cat key.pub >> ~/.ssh/authorized_keys",
        "cat ~/.ssh/authorized_keys",
        On::Commands(|commands| {
            writes_to(commands, |path| path.ends_with(".ssh/authorized_keys"))
                || any(commands, |name, _| name == "ssh-copy-id")
        }),
    ),
];

/// A file that is run later by a shell, a login, a desktop, cron or systemd.
fn runs_later(path: &str) -> bool {
    if [
        "/etc/cron",
        "/etc/profile",
        "/etc/systemd/",
        "/etc/init.d/",
        "/var/spool/cron",
        "/etc/ld.so.preload",
        "/etc/rc.local",
    ]
    .iter()
    .any(|start| path.starts_with(start))
    {
        return true;
    }
    let Some(rest) = below_home(path) else { return false };
    let files = [
        ".bashrc",
        ".bash_profile",
        ".bash_login",
        ".bash_logout",
        ".profile",
        ".zshrc",
        ".zshenv",
        ".zprofile",
        ".zlogin",
        ".xprofile",
        ".xinitrc",
        ".inputrc",
        ".gitconfig",
    ];
    let places = [
        ".config/autostart/",
        ".config/systemd/user/",
        ".config/fish/",
        ".config/environment.d/",
        ".local/share/systemd/",
        "Library/LaunchAgents/",
    ];
    files.contains(&rest) || places.iter().any(|place| rest.starts_with(place))
}

/// `git config` for all repositories, of a key whose value is a program.
fn sets_program(name: &str, args: &[String]) -> bool {
    let wide = args.iter().any(|arg| matches!(arg.as_str(), "--global" | "--system"));
    let reads = args
        .iter()
        .any(|arg| arg.starts_with("--get") || matches!(arg.as_str(), "--list" | "-l" | "--unset" | "get" | "list"));
    let keys = [
        "core.pager",
        "core.hookspath",
        "core.fsmonitor",
        "core.sshcommand",
        "credential.helper",
        "diff.external",
        "gpg.program",
        "init.templatedir",
    ];
    let key = |arg: &String| {
        let key = arg.to_ascii_lowercase();
        keys.contains(&key.as_str())
            || (key.starts_with("filter.") && (key.ends_with(".clean") || key.ends_with(".smudge")))
    };
    let alias =
        args.windows(2).any(|pair| pair[0].to_ascii_lowercase().starts_with("alias.") && pair[1].starts_with('!'));
    name == "git"
        && args.first().is_some_and(|arg| arg == "config")
        && wide
        && !reads
        && (alias || args.iter().any(key))
}
