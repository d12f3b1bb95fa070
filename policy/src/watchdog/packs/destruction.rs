//! Loss that no undo brings back: of the system, of other people's data, and (asked about) of the workspace.

use super::guard::{Guard, Pack, any, fed_with, has_short, runs_text, writes_to};
use crate::watchdog::words::PipedCommand;

pub(super) const GUARDS: &[Guard] = &[
    Pack::Destruction.guard(
        "remove-root-or-home",
        "it removes the root directory or a whole home directory",
        "rm -rf --no-preserve-root /",
        "rm -rf ./target /tmp/x",
        |commands| {
            any(commands, |name, args| {
                removes(name, args, is_everything)
                    || (name == "mv" && targets(args).iter().any(|arg| is_everything(arg)))
            }) || runs_text(commands, removes_in_text)
        },
    ),
    Pack::Destruction.guard(
        "remove-system",
        "it removes a part of the system",
        "rm -r /usr/lib",
        "rm -rf /usr/local/src/mine",
        |commands| {
            any(commands, |name, args| {
                removes(name, args, is_system)
                    || (matches!(name, "rm" | "unlink") && args.iter().any(|arg| is_system_file(arg)))
                    || (name == "mv" && sources(args).iter().any(|arg| is_system(arg) || is_system_file(arg)))
            })
        },
    ),
    Pack::Destruction.guard(
        "remove-found",
        "it removes what it finds in the system or a whole home directory",
        "find / -type f -delete",
        "find . -name '*.pyc' -delete",
        |commands| finds_to_remove(commands, |args| !is_narrowed(args)),
    ),
    Pack::Destruction.guard(
        "change-system",
        "it writes over a part of the system",
        "echo x > /etc/hosts",
        "cp /etc/hosts hosts.bak",
        |commands| {
            writes_to(commands, is_system_file)
                || any(commands, |name, args| {
                    let last = || args.last().is_some_and(|arg| is_system_file(arg));
                    match name {
                        "cp" | "mv" | "ln" | "install" | "rsync" => last(),
                        "sed" | "perl" => has_in_place(args) && args.iter().any(|arg| is_system_file(arg)),
                        "truncate" | "shred" => args.iter().any(|arg| is_system_file(arg)),
                        "dd" => args.iter().any(|arg| arg.strip_prefix("of=").is_some_and(is_system_file)),
                        _ => false,
                    }
                })
        },
    ),
    Pack::Destruction.guard(
        "make-file-system",
        "it makes a file system, or another table of parts, over what a device holds",
        "mkfs.ext4 /dev/sda1",
        "man mkfs.ext4",
        |commands| {
            any(commands, |name, args| {
                let device = || args.iter().any(|arg| arg.starts_with("/dev/"));
                (makes_file_system(name) && device())
                    || (matches!(
                        name,
                        "blkdiscard" | "sgdisk" | "parted" | "fdisk" | "sfdisk" | "cryptsetup" | "hdparm" | "badblocks"
                    ) && device()
                        && !args
                            .iter()
                            .any(|arg| matches!(arg.as_str(), "-l" | "--list" | "-p" | "print" | "-I" | "status")))
                    || (name == "zpool" && args.first().is_some_and(|arg| arg == "destroy"))
                    || matches!(name, "lvremove" | "vgremove" | "pvremove")
            })
        },
    ),
    Pack::Destruction.asks(
        "make-file-system-in-file",
        "it makes a file system over what a file holds",
        "mkfs.ext4 disk.img",
        "man mkfs.ext4",
        |commands| any(commands, |name, _| makes_file_system(name)),
    ),
    Pack::Destruction.guard(
        "write-to-device",
        "it writes over a disk, or memory",
        "dd if=/dev/zero of=/dev/sda bs=1M",
        "dd if=/dev/zero of=disk.img bs=1M count=1 2>/dev/null",
        |commands| {
            any(commands, |name, args| match name {
                "dd" => args.iter().any(|arg| arg.strip_prefix("of=").is_some_and(is_disk)),
                "cp" | "mv" | "install" => args.last().is_some_and(|arg| is_disk(arg)),
                _ => false,
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
        "it changes who may use the system or a whole home directory",
        "chmod -R 777 /",
        "chmod -R 755 dist",
        |commands| {
            any(commands, |name, args| {
                matches!(name, "chmod" | "chown" | "chgrp")
                    && is_recursive(args)
                    && args.iter().any(|arg| is_everything(arg) || is_system(arg))
            })
        },
    ),
    Pack::Destruction.guard(
        "kill-everything",
        "it ends every process that it may, or the first",
        "kill -9 -1",
        "kill -9 4711",
        |commands| {
            any(commands, |name, args| {
                name == "killall5"
                    || (name == "kill" && args.iter().skip(1).any(|arg| matches!(arg.as_str(), "-1" | "1")))
            })
        },
    ),
    Pack::Destruction.guard("stop-machine", "it stops the machine", "shutdown now", "man shutdown", |commands| {
        let stops = ["poweroff", "reboot", "halt", "kexec", "rescue", "emergency", "suspend", "hibernate"];
        any(commands, |name, args| {
            (matches!(name, "shutdown" | "reboot" | "halt" | "poweroff") && !args.iter().any(|arg| arg == "--help"))
                || (matches!(name, "init" | "telinit")
                    && args.first().is_some_and(|arg| matches!(arg.as_str(), "0" | "6" | "1")))
                || (name == "systemctl" && args.iter().any(|arg| stops.contains(&arg.as_str())))
        }) || writes_to(commands, |path| path == "/proc/sysrq-trigger")
    }),
    Pack::Destruction.guard(
        "drop-database",
        "it drops a database, or all that a table holds",
        "psql -c 'DROP DATABASE shop'",
        "psql -c 'SELECT 1'",
        |commands| {
            let tools = ["psql", "mysql", "mariadb", "sqlcmd", "mysqladmin", "clickhouse-client", "cqlsh"];
            any(commands, |name, args| {
                name == "dropdb"
                    || (name == "mysqladmin" && args.iter().any(|arg| arg == "drop"))
                    || (tools.contains(&name) && args.iter().any(|arg| drops(arg) && !drops_if_there(arg)))
                    || (matches!(name, "mongosh" | "mongo")
                        && args.iter().any(|arg| arg.contains("dropDatabase") || arg.contains(".drop(")))
                    || (name == "redis-cli"
                        && flushes(args)
                        && args.iter().any(|arg| matches!(arg.as_str(), "-h" | "-u")))
            }) || fed_with(commands, &tools, drops)
        },
    ),
    Pack::Destruction.asks(
        "drop-local-database",
        "it drops what a database of this project holds",
        "sqlite3 x.db 'DROP TABLE t'",
        "sqlite3 x.db 'SELECT 1'",
        |commands| {
            any(commands, |name, args| {
                let says = |word: &str| args.iter().any(|arg| arg == word);
                (matches!(name, "sqlite3" | "psql" | "mysql" | "mariadb") && args.iter().any(|arg| drops(arg)))
                    || (name == "redis-cli" && flushes(args))
                    || (matches!(name, "rails" | "rake")
                        && args.iter().any(|arg| arg.starts_with("db:drop") || arg.starts_with("db:reset")))
                    || (says("migrate") && says("reset"))
                    || (name == "manage.py" && says("flush"))
            })
        },
    ),
    Pack::Destruction.guard(
        "destroy-infrastructure",
        "it destroys what runs or is kept elsewhere, without a question",
        "terraform destroy -auto-approve",
        "terraform plan",
        destroys_infrastructure,
    ),
    Pack::Destruction.asks(
        "change-infrastructure",
        "it takes away what runs or is kept elsewhere, or on this machine",
        "kubectl delete pod x",
        "kubectl get pods",
        changes_infrastructure,
    ),
    Pack::Destruction.guard(
        "overwrite-shared-branch",
        "it takes commits away from a branch that others build on",
        "git push --force origin main",
        "git push origin main",
        |commands| {
            any(commands, |name, args| {
                name == "git" && pushes(args).is_some_and(|push| push.is_shared && push.takes_away)
            })
        },
    ),
    Pack::Destruction.asks(
        "overwrite-branch",
        "it takes commits away from a repository that others may use",
        "git push -f origin feature",
        "git push -u origin feature",
        |commands| any(commands, |name, args| name == "git" && pushes(args).is_some_and(|push| push.takes_away)),
    ),
    Pack::Destruction.asks(
        "discard-work",
        "it discards work that is in no commit, or commits that nothing names any more",
        "git clean -fdx",
        "git clean -n",
        |commands| any(commands, |name, args| name == "git" && discards(args)),
    ),
    Pack::Destruction.asks(
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
    Pack::Destruction.asks(
        "remove-workspace",
        "it removes, or opens to everybody, all that there is here",
        "rm -rf *",
        "rm -rf target",
        |commands| {
            let opens = |name: &str, args: &[String]| {
                name == "chmod"
                    && is_recursive(args)
                    && args.iter().any(|arg| matches!(arg.as_str(), "777" | "0777" | "a+rwx" | "666" | "000"))
                    && args.iter().any(|arg| is_here(arg))
            };
            let empties = |name: &str, args: &[String]| {
                matches!(name, "truncate" | "shred") && args.iter().any(|arg| matches!(arg.as_str(), "*" | "./*"))
            };
            any(commands, |name, args| removes(name, args, is_here) || opens(name, args) || empties(name, args))
                || finds_to_remove_here(commands)
                || finds_to_remove(commands, is_narrowed)
        },
    ),
    Pack::Destruction.asks(
        "end-others",
        "it ends processes or services that this project may not have started",
        "killall node",
        "kill 1234",
        |commands| {
            any(commands, |name, args| {
                let system = || !args.iter().any(|arg| arg == "--user");
                name == "killall"
                    || (name == "pkill"
                        && args.iter().any(|arg| arg.starts_with("-u") || arg.starts_with("-U") || arg == "."))
                    || (name == "systemctl"
                        && system()
                        && args.iter().any(|arg| matches!(arg.as_str(), "stop" | "disable" | "mask" | "isolate")))
                    || (matches!(name, "apt" | "apt-get" | "dnf" | "yum" | "pacman" | "zypper")
                        && args.iter().any(|arg| {
                            matches!(arg.as_str(), "purge" | "remove" | "autoremove" | "erase" | "-R" | "-Rns")
                        }))
            })
        },
    ),
];

// ---- files ----

fn is_recursive(args: &[String]) -> bool {
    args.iter().any(|arg| arg == "--recursive") || has_short(args, 'r') || has_short(args, 'R')
}

fn removes(name: &str, args: &[String], what: fn(&str) -> bool) -> bool {
    name == "rm" && is_recursive(args) && args.iter().any(|arg| what(arg))
}

fn targets(args: &[String]) -> Vec<&String> {
    args.iter().filter(|arg| !arg.starts_with('-')).collect()
}

/// All but where they go.
fn sources(args: &[String]) -> Vec<&String> {
    let mut words = targets(args);
    words.pop();
    words
}

fn has_in_place(args: &[String]) -> bool {
    args.iter().any(|arg| {
        arg.starts_with("--in-place") || (arg.starts_with('-') && !arg.starts_with("--") && arg.contains('i'))
    })
}

/// A path without `.`, `..` and doubled slashes, and without a `*` at its end.
fn plain(path: &str) -> String {
    let bare = path.trim_end_matches('*');
    if !bare.starts_with('/') {
        return bare.trim_end_matches('/').to_owned();
    }
    let mut parts = Vec::new();
    for part in bare.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

fn is_everything(arg: &str) -> bool {
    let path = plain(arg);
    let of_user = |path: &str| {
        ["/home/", "/Users/"].iter().any(|all| path.strip_prefix(all).is_some_and(|user| !user.contains('/')))
    };
    matches!(path.as_str(), "~" | "$HOME" | "${HOME}" | "/" | "/home" | "/root") || of_user(&path)
}

fn is_system(arg: &str) -> bool {
    let path = plain(arg);
    let whole = [
        "/bin",
        "/boot",
        "/dev",
        "/etc",
        "/lib",
        "/lib64",
        "/opt",
        "/proc",
        "/sbin",
        "/srv",
        "/sys",
        "/usr",
        "/var",
        "/usr/bin",
        "/usr/lib",
        "/usr/lib64",
        "/usr/sbin",
        "/usr/share",
        "/usr/local",
        "/usr/include",
        "/var/lib",
        "/var/log",
    ];
    whole.contains(&path.as_str()) || is_system_file(&path)
}

/// True if a path belongs to the system itself.
fn is_system_file(path: &str) -> bool {
    let path = plain(path);
    let places = [
        "/etc/",
        "/boot/",
        "/bin/",
        "/sbin/",
        "/lib/",
        "/lib64/",
        "/usr/bin/",
        "/usr/sbin/",
        "/usr/lib/",
        "/usr/lib64/",
        "/var/lib/dpkg/",
        "/var/lib/rpm/",
        "/proc/sys/",
        "/sys/",
    ];
    places.iter().any(|place| path.starts_with(place))
}

fn is_disk(path: &str) -> bool {
    let disks =
        ["sd", "hd", "vd", "xvd", "nvme", "mmcblk", "dm-", "mapper/", "disk/", "loop", "md", "mem", "kmem", "port"];
    path.strip_prefix("/dev/").is_some_and(|name| disks.iter().any(|disk| name.starts_with(disk)))
}

fn makes_file_system(name: &str) -> bool {
    name == "mkfs" || name.starts_with("mkfs.") || matches!(name, "wipefs" | "mkswap" | "mke2fs")
}

/// All of the directory that a line runs in, or what a variable that may be empty leaves of a path.
fn is_here(arg: &str) -> bool {
    let of_variable = |arg: &str| {
        let name = arg.strip_prefix("${").and_then(|rest| rest.split_once('}')).map(|(_, rest)| rest);
        let rest = name.or_else(|| {
            let rest = arg.strip_prefix('$')?;
            Some(rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_'))
        });
        rest.is_some_and(|rest| matches!(rest, "/" | "/*"))
    };
    matches!(arg, "*" | "." | "./" | "./*" | ".." | "../" | "../*" | ".*" | "$PWD" | "${PWD}" | "$PWD/" | "$PWD/*")
        || of_variable(arg)
}

// ---- what is found ----

/// True if `find` looks for some files only.
fn is_narrowed(args: &[String]) -> bool {
    let by = ["-name", "-iname", "-path", "-wholename", "-regex", "-empty", "-user", "-newer", "-perm"];
    args.iter().any(|arg| by.contains(&arg.as_str()))
}

fn removes_found(args: &[String]) -> bool {
    let removers = ["rm", "shred", "unlink", "truncate"];
    args.iter().any(|arg| arg == "-delete")
        || args.windows(2).any(|pair| pair[0].starts_with("-exec") && removers.contains(&super::words::base(&pair[1])))
}

fn finds(commands: &[PipedCommand], from: fn(&str) -> bool, which: impl Fn(&[String]) -> bool) -> bool {
    commands.iter().enumerate().any(|(at, command)| {
        let Some(("find", args)) = command.program() else { return false };
        let roots: Vec<&String> = args.iter().take_while(|arg| !arg.starts_with('-')).collect();
        let piped = || {
            commands.get(at + 1).filter(|next| next.piped).is_some_and(|next| {
                let words = &next.words;
                words.iter().any(|word| word == "xargs") && words.iter().any(|word| word == "rm" || word == "shred")
            })
        };
        roots.iter().any(|root| from(root)) && which(args) && (removes_found(args) || piped())
    })
}

fn finds_to_remove(commands: &[PipedCommand], which: impl Fn(&[String]) -> bool) -> bool {
    finds(commands, |root| is_everything(root) || is_system(root), which)
}

fn finds_to_remove_here(commands: &[PipedCommand]) -> bool {
    finds(commands, is_here, |args| !is_narrowed(args))
}

/// True if an interpreter's text removes something.
fn removes_in_text(text: &str) -> bool {
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect::<String>().replace('"', "'");
    ["rmtree('/'", "rmtree('/home", "rmSync('/'", "rm_rf('/'", "rmtree(os.path.expanduser('~')"]
        .iter()
        .any(|call| text.contains(call))
}

// ---- what is elsewhere ----

/// SQL that takes away more than rows that it names.
fn drops(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let words: Vec<&str> =
        text.split(|c: char| c.is_whitespace() || c == ';').filter(|word| !word.is_empty()).collect();
    let pair = |one: &str, others: &[&str]| words.windows(2).any(|pair| pair[0] == one && others.contains(&pair[1]));
    pair("drop", &["database", "table", "schema", "keyspace", "user"])
        || words.contains(&"truncate")
        || (pair("delete", &["from"]) && !words.contains(&"where"))
}

/// True if a text begins as scripts that set up a table do.
fn drops_if_there(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("drop table if exists") && !text.contains("cascade")
}

fn flushes(args: &[String]) -> bool {
    args.iter().any(|arg| arg.to_ascii_lowercase().starts_with("flush"))
}

fn destroys_infrastructure(commands: &[PipedCommand]) -> bool {
    any(commands, |name, args| {
        let says = |word: &str| args.iter().any(|arg| arg == word);
        let begins = |start: &str| args.iter().any(|arg| arg.starts_with(start));
        let unasked = || begins("-auto-approve") || begins("--auto-approve") || says("--terragrunt-non-interactive");
        match name {
            "terraform" | "tofu" | "terragrunt" => {
                (says("destroy") || says("-destroy") || says("--destroy")) && unasked()
            }
            "pulumi" => says("destroy") && (says("--yes") || says("-y")),
            "kubectl" | "oc" => {
                let kinds = ["namespace", "namespaces", "ns", "node", "nodes", "pv", "pvc", "crd", "project"];
                says("delete") && (args.iter().any(|arg| kinds.contains(&arg.as_str())) || says("--all") || says("-A"))
            }
            "aws" => {
                let verb = args.iter().any(|arg| arg.starts_with("delete-") || arg.starts_with("terminate-"));
                verb || (says("s3") && (says("rb") || (says("rm") && says("--recursive"))))
            }
            "gcloud" => says("delete"),
            "gsutil" => (says("rm") && (says("-r") || says("-R"))) || says("rb"),
            "az" => says("delete"),
            "eksctl" | "doctl" => says("delete"),
            "gh" | "glab" => (says("repo") || says("project")) && says("delete"),
            "heroku" => begins("apps:destroy") || begins("pg:reset"),
            "flyctl" | "fly" => says("destroy"),
            "npm" => args.first().is_some_and(|arg| arg == "unpublish"),
            _ => false,
        }
    })
}

fn changes_infrastructure(commands: &[PipedCommand]) -> bool {
    any(commands, |name, args| {
        let says = |word: &str| args.iter().any(|arg| arg == word);
        let first = |word: &str| args.first().is_some_and(|arg| arg == word);
        if says("--help") || says("-h") || says("--dry-run") || says("--dry-run=client") {
            return false;
        }
        match name {
            "terraform" | "tofu" | "terragrunt" => says("destroy") || (says("apply") && says("-auto-approve")),
            "pulumi" => says("destroy"),
            "kubectl" | "oc" => says("delete") || says("drain"),
            "helm" => says("uninstall") || says("delete"),
            "docker" | "podman" => {
                says("prune")
                    || (first("volume") && says("rm"))
                    || (says("compose") && says("down") && (says("-v") || says("--volumes")))
            }
            "vagrant" => says("destroy"),
            "npm" | "pnpm" | "yarn" | "cargo" => first("publish") || first("yank"),
            "twine" => says("upload"),
            "gem" => first("push"),
            _ => false,
        }
    })
}

/// Parts of a `git push`.
struct Push {
    takes_away: bool,
    is_shared: bool,
}

/// git's own options before its command.
fn command_of_git(args: &[String]) -> Option<(&str, &[String])> {
    let mut rest = args;
    while let Some((first, behind)) = rest.split_first() {
        if !first.starts_with('-') {
            return Some((first, behind));
        }
        let valued = matches!(first.as_str(), "-C" | "-c" | "--git-dir" | "--work-tree" | "--namespace");
        rest = behind.get(usize::from(valued)..)?;
    }
    None
}

fn pushes(args: &[String]) -> Option<Push> {
    let ("push", args) = command_of_git(args)? else { return None };
    if args.iter().any(|arg| arg == "--dry-run" || arg == "-n") {
        return None;
    }
    let forced = args
        .iter()
        .any(|arg| arg.starts_with("--force") || arg == "--mirror" || arg == "--prune" || is_short_with(arg, 'f'));
    let deleting = args.iter().any(|arg| arg == "--delete" || is_short_with(arg, 'd'));
    let names: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).skip(1).collect();
    let shared = |name: &str| {
        let name = name.trim_start_matches('+');
        let to = name.rsplit(':').next().unwrap_or(name);
        let to = to.strip_prefix("refs/heads/").unwrap_or(to);
        matches!(to, "main" | "master" | "develop" | "trunk" | "production" | "release") || to.starts_with("release/")
    };
    let marked = names.iter().any(|name| name.starts_with(['+', ':']));
    let is_shared = args.iter().any(|arg| arg == "--mirror")
        || names.iter().any(|name| shared(name) && (forced || deleting || name.starts_with(['+', ':'])));
    Some(Push { takes_away: forced || deleting || marked, is_shared })
}

fn is_short_with(arg: &str, letter: char) -> bool {
    arg.starts_with('-') && !arg.starts_with("--") && arg.contains(letter)
}

fn discards(args: &[String]) -> bool {
    let Some((command, args)) = command_of_git(args) else { return false };
    let says = |word: &str| args.iter().any(|arg| arg == word);
    let everything = || args.iter().any(|arg| matches!(arg.as_str(), "." | "./" | "*" | ":/"));
    match command {
        "clean" => {
            args.iter().any(|arg| arg == "--force" || is_short_with(arg, 'f'))
                && !args.iter().any(|arg| arg == "--dry-run" || is_short_with(arg, 'n'))
        }
        "reset" => says("--hard"),
        "checkout" | "restore" => everything() && !says("--staged"),
        "branch" => says("-D") || (says("--delete") && says("--force")),
        "stash" => says("clear") || says("drop"),
        "reflog" => says("expire") || says("delete"),
        "gc" => args.iter().any(|arg| matches!(arg.as_str(), "--prune=now" | "--prune=all")),
        "filter-branch" | "filter-repo" => true,
        "update-ref" => says("-d"),
        _ => false,
    }
}

/// A function whose body pipes it into itself, as `:(){ :|:& };:` is cut: `:`, then `:` piped into `:`.
fn is_fork_bomb(commands: &[PipedCommand]) -> bool {
    let name = |command: &PipedCommand| command.words.first().cloned();
    commands.windows(3).any(|three| {
        let [defined, first, second] = three else { return false };
        second.piped && name(defined).is_some() && name(defined) == name(first) && name(first) == name(second)
    })
}
