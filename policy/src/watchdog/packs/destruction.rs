//! Loss that no undo brings back.

use super::{Command, Guard, Pack, any, has_short, writes_to};

pub(super) const GUARDS: &[Guard] = &[
    Pack::Destruction.guard(
        "remove-root-or-home",
        "it removes the root directory or the whole home directory",
        "rm -rf --no-preserve-root /",
        "rm -rf ./target /tmp/x",
        |commands| any(commands, |name, args| removes(name, args, is_everything)),
    ),
    Pack::Destruction.guard(
        "remove-system",
        "it removes a part of the system",
        "rm -r /usr/lib",
        "rm -rf /usr/local/src/mine",
        |commands| any(commands, |name, args| removes(name, args, is_system)),
    ),
    Pack::Destruction.guard(
        "remove-repository",
        "it removes the repository with all its history",
        "rm -rf .git",
        "rm -rf .github/old",
        |commands| {
            any(commands, |name, args| {
                removes(name, args, |arg| matches!(arg.trim_end_matches('/'), ".git" | "./.git"))
            })
        },
    ),
    Pack::Destruction.guard(
        "make-file-system",
        "it makes a file system over what a device holds",
        "mkfs.ext4 /dev/sda1",
        "man mkfs.ext4",
        |commands| any(commands, |name, _| name == "mkfs" || name.starts_with("mkfs.") || name == "wipefs"),
    ),
    Pack::Destruction.guard(
        "write-to-device",
        "it writes over a disk",
        "dd if=/dev/zero of=/dev/sda bs=1M",
        "dd if=/dev/zero of=disk.img bs=1M count=1 2>/dev/null",
        |commands| {
            any(commands, |name, args| {
                name == "dd" && args.iter().any(|arg| arg.strip_prefix("of=").is_some_and(is_disk))
            })
        },
    ),
    Pack::Destruction.guard(
        "redirect-to-device",
        "it writes over a disk",
        "cat image > /dev/nvme0n1",
        "make > /dev/null",
        |commands| writes_to(commands, is_disk),
    ),
    Pack::Destruction.guard(
        "shred-device",
        "it writes over a disk",
        "shred -n 1 /dev/sdb",
        "shred -u old-key.txt",
        |commands| any(commands, |name, args| name == "shred" && args.iter().any(|arg| is_disk(arg))),
    ),
    Pack::Destruction.guard(
        "fork-bomb",
        "it starts itself without end",
        ":(){ :|:& };:",
        "f() { g | h; }; f",
        is_fork_bomb,
    ),
    Pack::Destruction.guard(
        "open-everything",
        "it lets everybody change the system or the whole home directory",
        "chmod -R 777 /",
        "chmod -R 755 dist",
        |commands| {
            any(commands, |name, args| {
                matches!(name, "chmod" | "chown" | "chgrp")
                    && (has_short(args, 'R') || args.iter().any(|arg| arg == "--recursive"))
                    && args.iter().any(|arg| is_everything(arg) || is_system(arg))
            })
        },
    ),
    Pack::Destruction.guard(
        "kill-everything",
        "it ends every process that it may",
        "kill -9 -1",
        "kill -9 4711",
        |commands| any(commands, |name, args| name == "kill" && args.iter().skip(1).any(|arg| arg == "-1")),
    ),
    Pack::Destruction.guard(
        "drop-database",
        "it drops a whole database",
        "psql -c 'DROP DATABASE shop'",
        "psql -c 'SELECT 1'",
        |commands| {
            any(commands, |name, args| {
                name == "dropdb"
                    || (matches!(name, "psql" | "mysql" | "mariadb" | "sqlcmd")
                        && args.iter().any(|arg| arg.to_ascii_lowercase().contains("drop database")))
            })
        },
    ),
];

fn removes(name: &str, args: &[String], what: fn(&str) -> bool) -> bool {
    let recursive = args.iter().any(|arg| arg == "--recursive") || has_short(args, 'r') || has_short(args, 'R');
    name == "rm" && recursive && args.iter().any(|arg| what(arg))
}

fn is_everything(arg: &str) -> bool {
    let bare = arg.trim_end_matches('*').trim_end_matches('/');
    matches!(bare, "~" | "$HOME" | "${HOME}") || (bare.is_empty() && arg.starts_with('/'))
}

fn is_system(arg: &str) -> bool {
    let bare = arg.trim_end_matches('*').trim_end_matches('/');
    let whole = [
        "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/opt", "/proc", "/root", "/sbin", "/srv", "/sys",
        "/usr", "/var",
    ];
    whole.contains(&bare)
        || ["/usr/bin", "/usr/lib", "/usr/sbin", "/usr/share", "/var/lib"].contains(&bare)
        || arg.starts_with("/etc/")
        || arg.starts_with("/boot/")
}

fn is_disk(path: &str) -> bool {
    let disks = ["sd", "hd", "vd", "xvd", "nvme", "mmcblk", "dm-", "mapper/", "disk/", "loop", "md"];
    path.strip_prefix("/dev/").is_some_and(|name| disks.iter().any(|disk| name.starts_with(disk)))
}

/// A function whose body pipes it into itself, as `:(){ :|:& };:` is cut: `:`, then `:` piped into `:`.
fn is_fork_bomb(commands: &[Command]) -> bool {
    let name = |command: &Command| command.words.first().cloned();
    commands.windows(3).any(|three| {
        let [defined, first, second] = three else { return false };
        second.piped && name(defined).is_some() && name(defined) == name(first) && name(first) == name(second)
    })
}
