//! Programs with subcommands: where the subcommand stands, and by which other names it goes (G7).
//!
//! `git -C . push` and `git --no-pager push` are pushes, `npm publi` publishes, and `docker container run` is `docker run`. A rule
//! that denies or asks is about a command however it is spelled; so each spelling has the [`CommandForms`] without what stands before the
//! subcommand. An option that is not known may take a value or not, and then there are two.

use std::collections::BTreeSet;

use super::known::{HOLE, KnownWord, base};

/// Most places at which a subcommand is looked for, and most forms of one command.
const FORMS_MAX: usize = 32;

/// Knowledge of a program.
struct Program {
    /// Its names; the first is the one that forms have.
    names: &'static [&'static str],
    /// Options before the subcommand whose value is the next word, unless it is in the same.
    valued: &'static [&'static str],
    /// Options before the subcommand without a value.
    flags: &'static [&'static str],
    /// Options that change how a result is printed, and nothing else: a rule that allows does not mind them.
    harmless: &'static [&'static str],
    /// Subcommands that have subcommands, before which options may stand again.
    groups: &'static [&'static str],
    /// Other names of subcommands, which nobody can give another meaning.
    synonyms: &'static [(&'static str, &'static str)],
    /// Subcommands of which every beginning will do.
    shortened: &'static [&'static str],
}

const NONE: Program =
    Program { names: &[], valued: &[], flags: &[], harmless: &[], groups: &[], synonyms: &[], shortened: &[] };

/// Programs with the commands of docker.
#[rustfmt::skip]
const CONTAINERS: Program = Program {
    valued: &[
        "--url", "--connection", "-c", "--identity", "--log-level", "--root", "--runroot", "--storage-driver",
        "--storage-opt", "--namespace", "-n", "--address", "-a", "--cgroup-manager", "--runtime", "--tmpdir",
        "--events-backend",
    ],
    flags: &["--remote", "-r", "--noout", "--syslog"],
    groups: &["container", "image", "compose", "volume", "network", "system", "pod", "machine", "play", "kube"],
    synonyms: DOCKER_SYNONYMS,
    ..NONE
};

/// Terraform and what wraps it.
#[rustfmt::skip]
const INFRASTRUCTURE: Program = Program {
    flags: &["-help", "-version", "--help", "--version"],
    groups: &["state", "workspace", "providers"],
    ..NONE
};

/// Managers of a Python project.
#[rustfmt::skip]
const PYTHON_PROJECT: Program = Program {
    valued: &["-C", "--directory", "-P", "--project"],
    flags: &[
        "-q", "--quiet", "-n", "--no-interaction", "-v", "--no-ansi", "--ansi", "--no-plugins", "--no-cache",
    ],
    harmless: &["-q", "--quiet", "-n", "--no-interaction", "--no-ansi"],
    groups: &["self", "env", "config", "cache"],
    ..NONE
};

/// Programs that deploy an application.
#[rustfmt::skip]
const DEPLOYMENT: Program = Program {
    valued: &[
        "-a", "--app", "-t", "--access-token", "--token", "--cwd", "-S", "--scope", "--config", "-c",
        "--project", "-P", "--env", "-e", "--stack", "-s", "--profile", "--remote", "-r",
    ],
    flags: &["--verbose", "--debug", "--json", "--non-interactive", "-y", "--yes"],
    ..NONE
};

/// Programs that control a service of the system.
#[rustfmt::skip]
const SYSTEM_CONTROL: Program = Program {
    valued: &["-H", "--host", "-M", "--machine", "-f", "--fields", "-m", "--mode", "-w", "--wait"],
    flags: &["--no-pager", "-t", "--terse", "-p", "--pretty", "-q", "--quiet"],
    ..NONE
};

/// A system's package managers.
#[rustfmt::skip]
const PACKAGES: Program = Program {
    valued: &["-R", "--root", "-c", "--config", "--installation", "--dbpath"],
    flags: &["-n", "--non-interactive", "-q", "--quiet", "--user", "--system", "-v"],
    ..NONE
};

#[rustfmt::skip]
const PROGRAMS: &[Program] = &[
    Program {
        names: &["git"],
        valued: &[
            "-C", "-c", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--config-env", "--attr-source",
        ],
        flags: &[
            "-p", "--paginate", "-P", "--no-pager", "--no-replace-objects", "--no-lazy-fetch", "--no-optional-locks",
            "--no-advice", "--bare", "--literal-pathspecs", "--glob-pathspecs", "--noglob-pathspecs",
            "--icase-pathspecs", "--exec-path", "-h", "--help", "-v", "--version", "--html-path", "--man-path",
            "--info-path",
        ],
        harmless: &["-P", "--no-pager", "--no-optional-locks", "--no-advice", "--literal-pathspecs"],
        groups: &["remote", "stash", "submodule", "worktree", "lfs", "bisect", "notes"],
        synonyms: &[("stage", "add"), ("annotate", "blame"), ("send-pack", "push"), ("fetch-pack", "fetch")],
        ..NONE
    },
    Program {
        names: &["npm"],
        valued: &[
            "--prefix", "-C", "--loglevel", "--registry", "--userconfig", "--globalconfig", "--cache", "-w",
            "--workspace", "--tag", "--otp", "--access", "--omit", "--include", "--node-options", "--script-shell",
        ],
        flags: &[
            "-g", "--global", "-s", "--silent", "-q", "--quiet", "-d", "-dd", "-ddd", "--verbose", "-f", "--force",
            "-y", "--yes", "--workspaces", "--dry-run", "--json", "--no-color", "--color", "--offline",
            "--ignore-scripts", "-D",
        ],
        harmless: &["-s", "--silent", "-q", "--quiet", "--no-color", "--no-progress", "--no-fund", "--no-audit"],
        groups: &["token", "team", "org", "dist-tag", "access", "owner", "config", "cache", "profile", "hook"],
        synonyms: NPM_SYNONYMS,
        shortened: NPM,
    },
    Program {
        names: &["pnpm"],
        valued: &["-C", "--dir", "--filter", "-F", "--loglevel", "--reporter", "--store-dir", "--config"],
        flags: &[
            "-r", "--recursive", "-w", "--workspace-root", "-s", "--silent", "--color", "--no-color", "--stream",
        ],
        harmless: &["-s", "--silent", "--color", "--no-color"],
        synonyms: &[
            ("i", "install"), ("rm", "remove"), ("un", "remove"), ("uninstall", "remove"), ("up", "update"),
            ("upgrade", "update"), ("t", "test"), ("tst", "test"),
        ],
        ..NONE
    },
    Program {
        names: &["yarn", "yarnpkg"],
        valued: &["--cwd", "--modules-folder", "--cache-folder", "--registry", "--use-yarnrc"],
        flags: &["-s", "--silent", "--verbose", "--json", "--offline", "--no-color", "--non-interactive"],
        harmless: &["-s", "--silent", "--no-color", "--non-interactive"],
        groups: &["workspace", "npm", "plugin", "global"],
        synonyms: &[("npm publish", "publish")],
        ..NONE
    },
    Program {
        names: &["cargo"],
        valued: &["-C", "--config", "-Z", "--color", "--manifest-path", "--target-dir"],
        flags: &["-q", "--quiet", "-v", "-vv", "--verbose", "--locked", "--offline", "--frozen", "--list", "-V"],
        harmless: &[
            "-q", "--quiet", "-v", "--verbose", "--color=always", "--color=never", "--color=auto", "--offline",
            "--locked", "--frozen",
        ],
        synonyms: &[("b", "build"), ("c", "check"), ("d", "doc"), ("t", "test"), ("r", "run"), ("rm", "remove")],
        ..NONE
    },
    Program {
        names: &["docker"],
        valued: DOCKER_VALUED,
        flags: &["-D", "--debug", "--tls", "--tlsverify"],
        groups: &[
            "container", "image", "compose", "buildx", "builder", "volume", "network", "system", "swarm", "service",
            "stack", "context",
        ],
        synonyms: DOCKER_SYNONYMS,
        ..NONE
    },
    Program { names: &["podman"], ..CONTAINERS },
    Program { names: &["nerdctl"], ..CONTAINERS },
    Program {
        names: &["kubectl", "oc", "k"],
        valued: &[
            "-n", "--namespace", "--context", "--cluster", "--user", "--kubeconfig", "-s", "--server", "--token",
            "--as", "--as-group", "--request-timeout", "-v", "--v", "--cache-dir", "--certificate-authority",
            "--client-key", "--client-certificate",
        ],
        flags: &["--insecure-skip-tls-verify", "--warnings-as-errors", "--match-server-version"],
        groups: &["rollout", "config", "set", "create", "auth", "certificate", "top"],
        ..NONE
    },
    Program {
        names: &["systemctl"],
        valued: &[
            "-H", "--host", "-M", "--machine", "-t", "--type", "-p", "--property", "-n", "--lines", "-o", "--output",
            "--root", "--state", "-s", "--signal", "--job-mode", "--kill-who", "--image", "-P",
        ],
        flags: &[
            "--user", "--system", "-q", "--quiet", "--no-pager", "--no-block", "-a", "--all", "-l", "--full",
            "--now", "-f", "--force", "--no-legend", "--no-ask-password", "--global", "--runtime", "--failed",
        ],
        harmless: &["--no-pager", "-q", "--quiet", "-l", "--full", "--no-legend"],
        ..NONE
    },
    Program {
        names: &["ip"],
        valued: &["-n", "-netns", "-b", "-batch", "-f", "-family", "-rc", "-rcvbuf", "-l", "-loops"],
        flags: &[
            "-4", "-6", "-o", "-oneline", "-br", "-brief", "-s", "-stats", "-d", "-details", "-j", "-json", "-p",
            "-pretty", "-c", "-color", "-h", "-human", "-r", "-resolve", "-t", "-a", "-all", "-force",
        ],
        harmless: &[
            "-br", "-brief", "-o", "-oneline", "-j", "-json", "-p", "-pretty", "-c", "-color", "-4", "-6", "-s",
            "-d",
        ],
        groups: &["link", "address", "route", "netns", "rule", "neighbour", "tunnel"],
        synonyms: &[
            ("l", "link"), ("li", "link"), ("lin", "link"), ("a", "address"), ("ad", "address"), ("add", "address"),
            ("addr", "address"), ("r", "route"), ("ro", "route"), ("rou", "route"), ("rout", "route"), ("ru",
            "rule"), ("n", "neighbour"), ("neigh", "neighbour"), ("neighbor", "neighbour"), ("net", "netns"),
        ],
        ..NONE
    },
    Program {
        names: &["gh"],
        valued: &["-R", "--repo", "--hostname"],
        groups: &[
            "pr", "issue", "repo", "release", "run", "workflow", "gist", "secret", "variable", "auth", "cache",
            "codespace", "extension", "label", "project", "ruleset", "ssh-key", "gpg-key", "alias", "config",
        ],
        synonyms: &[("cs", "codespace"), ("ext", "extension"), ("extensions", "extension")],
        ..NONE
    },
    Program {
        names: &["glab"],
        valued: &["-R", "--repo"],
        groups: &["mr", "issue", "repo", "release", "ci", "auth", "variable", "snippet"],
        ..NONE
    },
    Program {
        names: &["aws"],
        valued: &[
            "--profile", "--region", "--output", "--query", "--endpoint-url", "--ca-bundle", "--cli-read-timeout",
            "--cli-connect-timeout", "--color", "--cli-binary-format",
        ],
        flags: &[
            "--debug", "--no-verify-ssl", "--no-paginate", "--no-sign-request", "--no-cli-pager",
            "--no-cli-auto-prompt",
        ],
        harmless: &["--no-cli-pager", "--no-cli-auto-prompt"],
        groups: &[
            "s3", "s3api", "ec2", "iam", "lambda", "ecs", "eks", "rds", "sts", "ssm", "logs", "cloudformation",
            "secretsmanager", "dynamodb", "sqs", "sns", "ecr", "kms", "route53",
        ],
        ..NONE
    },
    Program {
        names: &["gcloud"],
        valued: &[
            "--project", "--account", "--format", "--configuration", "--verbosity", "--impersonate-service-account",
            "--filter",
        ],
        flags: &["-q", "--quiet"],
        groups: &[
            "compute", "instances", "container", "clusters", "run", "functions", "iam", "projects", "storage", "sql",
            "secrets", "app", "auth", "config", "services", "alpha", "beta",
        ],
        ..NONE
    },
    Program {
        names: &["az"],
        valued: &["--subscription", "-o", "--output", "--query"],
        flags: &["--verbose", "--debug", "--only-show-errors"],
        groups: &["vm", "group", "storage", "aks", "acr", "keyvault", "webapp", "network", "ad", "role"],
        ..NONE
    },
    Program { names: &["terraform", "tofu"], ..INFRASTRUCTURE },
    Program { names: &["terragrunt"], ..INFRASTRUCTURE },
    Program {
        names: &["pip"],
        valued: &[
            "--python", "--log", "--proxy", "--retries", "--timeout", "--exists-action", "--trusted-host", "--cert",
            "--client-cert", "--cache-dir", "--use-feature", "--use-deprecated", "--index-url", "-i",
            "--config-settings",
        ],
        flags: &[
            "-q", "-qq", "--quiet", "-v", "-vv", "--verbose", "--isolated", "--require-virtualenv", "--no-input",
            "--no-cache-dir", "--disable-pip-version-check", "--no-color", "--debug",
        ],
        harmless: &["-q", "--quiet", "--no-color", "--disable-pip-version-check", "--no-input"],
        groups: &["cache", "config", "index"],
        ..NONE
    },
    Program {
        names: &["uv"],
        valued: &["--directory", "--project", "--config-file", "--cache-dir", "--color", "--python", "-p"],
        flags: &[
            "-q", "--quiet", "-v", "--verbose", "--offline", "--no-cache", "-n", "--no-config", "--native-tls",
            "--no-progress",
        ],
        harmless: &["-q", "--quiet", "--no-progress", "--offline"],
        groups: &["pip", "tool", "python", "cache", "self"],
        ..NONE
    },
    Program { names: &["poetry"], ..PYTHON_PROJECT },
    Program { names: &["pdm"], ..PYTHON_PROJECT },
    Program {
        names: &["apt", "apt-get", "aptitude"],
        valued: &[
            "-o", "--option", "-c", "--config-file", "-t", "--target-release", "--default-release", "-a",
            "--host-architecture",
        ],
        flags: &[
            "-y", "--yes", "--assume-yes", "-q", "-qq", "--quiet", "-s", "--simulate", "--dry-run", "-f",
            "--fix-broken", "-m", "-d", "--download-only", "--no-install-recommends", "-V", "-u",
            "--allow-unauthenticated", "--force-yes", "--purge",
        ],
        ..NONE
    },
    Program {
        names: &["dnf", "yum", "microdnf"],
        valued: &[
            "-c", "--config", "--installroot", "--releasever", "--setopt", "-x", "--exclude", "--repo",
            "--enablerepo", "--disablerepo", "-d", "-e",
        ],
        flags: &[
            "-y", "--assumeyes", "-q", "--quiet", "-v", "--verbose", "-C", "--cacheonly", "-b", "--best",
            "--nogpgcheck",
        ],
        groups: &["module", "group", "history"],
        ..NONE
    },
    Program {
        names: &["apk"],
        valued: &[
            "-p", "--root", "-X", "--repository", "--keys-dir", "--repositories-file", "--cache-dir", "--arch",
        ],
        flags: &["-q", "--quiet", "-v", "--no-cache", "-U", "--allow-untrusted", "-f"],
        ..NONE
    },
    Program {
        names: &["brew"],
        flags: &["-v", "--verbose", "-q", "--quiet", "-d", "--debug"],
        groups: &["bundle", "services"],
        synonyms: &[
            ("rm", "uninstall"), ("remove", "uninstall"), ("ls", "list"), ("up", "update"), ("ln", "link"),
            ("instal", "install"), ("dr", "doctor"), ("abv", "info"),
        ],
        ..NONE
    },
    Program { names: &["go"], valued: &["-C"], groups: &["mod", "work", "tool", "telemetry"], ..NONE },
    Program {
        names: &["rustup"],
        flags: &["-v", "--verbose", "-q", "--quiet"],
        harmless: &["-q", "--quiet"],
        groups: &["toolchain", "target", "component", "override", "self", "set"],
        synonyms: &[("install", "toolchain install"), ("uninstall", "toolchain uninstall")],
        ..NONE
    },
    Program {
        names: &["helm"],
        valued: &[
            "-n", "--namespace", "--kube-context", "--kubeconfig", "--kube-token", "--kube-apiserver",
            "--registry-config", "--repository-cache", "--repository-config", "--burst-limit",
        ],
        flags: &["--debug"],
        groups: &["repo", "plugin", "registry", "dependency", "get", "show"],
        synonyms: &[
            ("delete", "uninstall"), ("del", "uninstall"), ("un", "uninstall"), ("ls", "list"), ("dep",
            "dependency"),
        ],
        ..NONE
    },
    Program {
        names: &["svn"],
        valued: &["--username", "--password", "--config-dir", "--config-option"],
        flags: &["--non-interactive", "--trust-server-cert", "--no-auth-cache", "-q", "--quiet"],
        synonyms: &[
            ("ci", "commit"), ("co", "checkout"), ("del", "delete"), ("remove", "delete"), ("rm", "delete"), ("up",
            "update"),
        ],
        ..NONE
    },
    Program {
        names: &["hg"],
        valued: &["-R", "--repository", "--cwd", "--config", "--encoding", "--color", "--pager"],
        flags: &[
            "-y", "--noninteractive", "-q", "--quiet", "-v", "--verbose", "--debug", "--traceback", "--time",
            "--profile", "--hidden",
        ],
        ..NONE
    },
    Program {
        names: &["jj"],
        valued: &["-R", "--repository", "--at-operation", "--at-op", "--color", "--config", "--config-file"],
        flags: &["--ignore-working-copy", "--ignore-immutable", "--debug", "--quiet", "--no-pager"],
        harmless: &["--quiet", "--no-pager"],
        groups: &["git", "op", "operation", "bookmark", "workspace", "config"],
        ..NONE
    },
    Program {
        names: &["gem"],
        valued: &["--config-file"],
        flags: &["--no-color", "--verbose", "-V", "--norc"],
        harmless: &["--no-color"],
        ..NONE
    },
    Program {
        names: &["bundle", "bundler"],
        valued: &["--gemfile", "-r", "--retry"],
        flags: &["--no-color", "--verbose", "-V"],
        harmless: &["--no-color"],
        ..NONE
    },
    Program { names: &["dotnet"], flags: &["-d", "--diagnostics"], groups: &["nuget", "tool", "ef", "workload"], ..NONE },
    Program { names: &["flyctl", "fly"], ..DEPLOYMENT },
    Program { names: &["vercel"], ..DEPLOYMENT },
    Program { names: &["netlify"], ..DEPLOYMENT },
    Program { names: &["heroku"], ..DEPLOYMENT },
    Program { names: &["wrangler"], ..DEPLOYMENT },
    Program { names: &["firebase"], ..DEPLOYMENT },
    Program { names: &["railway"], ..DEPLOYMENT },
    Program { names: &["serverless", "sls"], ..DEPLOYMENT },
    Program { names: &["pulumi"], ..DEPLOYMENT },
    Program { names: &["cdk"], ..DEPLOYMENT },
    Program { names: &["sqlite3"], ..NONE },
    Program { names: &["psql"], ..NONE },
    Program { names: &["nmcli"], ..SYSTEM_CONTROL },
    Program { names: &["loginctl"], ..SYSTEM_CONTROL },
    Program { names: &["machinectl"], ..SYSTEM_CONTROL },
    Program { names: &["journalctl"], ..SYSTEM_CONTROL },
    Program { names: &["timedatectl"], ..SYSTEM_CONTROL },
    Program { names: &["hostnamectl"], ..SYSTEM_CONTROL },
    Program { names: &["resolvectl"], ..SYSTEM_CONTROL },
    Program { names: &["snap"], ..PACKAGES },
    Program { names: &["flatpak"], ..PACKAGES },
    Program { names: &["pacman"], ..PACKAGES },
    Program { names: &["zypper"], ..PACKAGES },
];

#[rustfmt::skip]
const DOCKER_VALUED: &[&str] = &[
    "--config", "-c", "--context", "-H", "--host", "-l", "--log-level", "--tlscacert", "--tlscert", "--tlskey", "-f",
    "--file", "-p", "--project-name", "--profile", "--env-file", "--project-directory", "--ansi", "--progress",
    "--builder", "--parallel",
];

#[rustfmt::skip]
const DOCKER_SYNONYMS: &[(&str, &str)] = &[
    ("container run", "run"), ("container create", "create"), ("container exec", "exec"), ("container rm", "rm"),
    ("container remove", "rm"), ("container stop", "stop"), ("container start", "start"),
    ("container restart", "restart"), ("container kill", "kill"), ("container cp", "cp"),
    ("container commit", "commit"), ("container logs", "logs"), ("container attach", "attach"),
    ("container inspect", "inspect"), ("container ls", "ps"), ("container ps", "ps"), ("container list", "ps"),
    ("container pause", "pause"), ("container update", "update"), ("container export", "export"),
    ("image build", "build"), ("buildx build", "build"), ("buildx b", "build"), ("builder build", "build"),
    ("image push", "push"), ("image pull", "pull"), ("image rm", "rmi"), ("image remove", "rmi"),
    ("image ls", "images"), ("image list", "images"), ("image save", "save"), ("image load", "load"),
    ("image tag", "tag"), ("image import", "import"), ("image history", "history"), ("system info", "info"),
    ("system events", "events"),
];

/// npm takes each beginning of these.
#[rustfmt::skip]
const NPM: &[&str] = &[
    "access", "adduser", "audit", "bugs", "cache", "ci", "completion", "config", "dedupe", "deprecate", "diff",
    "dist-tag", "docs", "doctor", "edit", "exec", "explain", "explore", "find-dupes", "fund", "get", "help",
    "help-search", "hook", "init", "install", "install-ci-test", "install-test", "link", "ll", "login", "logout",
    "ls", "org", "outdated", "owner", "pack", "ping", "pkg", "prefix", "profile", "prune", "publish", "query",
    "rebuild", "repo", "restart", "root", "run-script", "sbom", "search", "set", "shrinkwrap", "star", "stars",
    "start", "stop", "team", "test", "token", "undeprecate", "uninstall", "unpublish", "unstar", "update", "version",
    "view", "whoami",
];

#[rustfmt::skip]
const NPM_SYNONYMS: &[(&str, &str)] = &[
    ("author", "owner"), ("home", "docs"), ("issues", "bugs"), ("info", "view"), ("show", "view"), ("v", "view"),
    ("find", "search"), ("s", "search"), ("se", "search"), ("add", "install"), ("i", "install"), ("in", "install"),
    ("ins", "install"), ("inst", "install"), ("insta", "install"), ("instal", "install"), ("isnt", "install"),
    ("isnta", "install"), ("isntal", "install"), ("isntall", "install"), ("unlink", "uninstall"),
    ("remove", "uninstall"), ("rm", "uninstall"), ("r", "uninstall"), ("un", "uninstall"), ("rb", "rebuild"),
    ("list", "ls"), ("la", "ll"), ("ln", "link"), ("create", "init"), ("innit", "init"), ("it", "install-test"),
    ("cit", "install-ci-test"), ("sit", "install-ci-test"), ("clean-install-test", "install-ci-test"),
    ("up", "update"), ("upgrade", "update"), ("udpate", "update"), ("c", "config"), ("tst", "test"), ("t", "test"),
    ("ddp", "dedupe"), ("run", "run-script"), ("rum", "run-script"), ("urn", "run-script"), ("ic", "ci"),
    ("clean-install", "ci"), ("install-clean", "ci"), ("isntall-clean", "ci"), ("x", "exec"), ("why", "explain"),
    ("verison", "version"), ("hlep", "help"), ("dist-tags", "dist-tag"), ("ogr", "org"), ("add-user", "adduser"),
];

/// Other spellings of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CommandForms {
    /// Commands that it may be, with the program's and the subcommand's own names and without what stands before the subcommand.
    pub(crate) meant: Vec<Vec<KnownWord>>,
    /// The command that it certainly is, if that can be said in other words.
    pub(crate) same: Option<Vec<KnownWord>>,
}

fn program(name: &str) -> Option<&'static Program> {
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let is_named =
        |program: &&Program| program.names.contains(&name) || (plain == "pip" && program.names.contains(&"pip"));
    PROGRAMS.iter().find(is_named)
}

/// The names of a program with subcommands; its forms go by the first. None of a program that is not known.
pub(crate) fn names_of(name: &str) -> &'static [&'static str] {
    program(name).map_or(&[], |program| program.names)
}

/// Other spellings of a command. None for a program that is not known.
pub(crate) fn forms(words: &[KnownWord]) -> CommandForms {
    let Some((first, args)) = words.split_first() else { return CommandForms::default() };
    let Some(name) = first.fixed().map(base) else { return CommandForms::default() };
    // `python3 -m pip install` and `git-push`, by whatever path.
    if let Some(inner) = module(name, args).or_else(|| joined_name(name, args)) {
        let mut meant = forms(&inner).meant;
        meant.push(inner);
        return CommandForms { meant, same: None };
    }
    let Some(program) = program(name) else { return CommandForms::default() };
    let own = program.names[0];
    let mut meant: Vec<Vec<KnownWord>> = Vec::new();
    let mut all = subcommands(program, args).into_iter().flat_map(|at| spelled(program, &args[at..]));
    for mut form in all.by_ref().take(FORMS_MAX) {
        form.insert(0, KnownWord::known(own));
        if !meant.contains(&form) {
            meant.push(form);
        }
    }
    // Behind these it may be any other.
    if all.next().is_some() {
        meant.push(vec![KnownWord::known(own), KnownWord::anything()]);
    }
    CommandForms { meant, same: same(program, first, args) }
}

/// `python -m MODULE …`, as a command of that name. The letter may stand among others: `-Bm`.
fn module(name: &str, args: &[KnownWord]) -> Option<Vec<KnownWord>> {
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if !matches!(plain, "python" | "pypy" | "py") {
        return None;
    }
    let mut at = 0;
    while let Some(arg) = args.get(at) {
        let Some(letters) = arg.text.strip_prefix('-') else {
            // What is not known may be an option, or nothing; any other word is a script.
            arg.fixed().is_none().then_some(())?;
            at += 1;
            continue;
        };
        let last = letters.char_indices().find(|(_, letter)| "mcWX".contains(*letter) || *letter == HOLE);
        let last = last.filter(|_| !letters.starts_with('-'));
        let behind = args.get(at + 1..).unwrap_or_default();
        match last.map(|(place, letter)| (letter, &letters[place + letter.len_utf8()..])) {
            Some(('m', "")) => return (!behind.is_empty()).then(|| behind.to_vec()),
            Some(('m', module)) => {
                return Some(std::iter::once(KnownWord::known(module)).chain(behind.iter().cloned()).collect());
            }
            Some(('c', _)) => return None,
            Some((HOLE, _)) => return Some(vec![KnownWord::anything()]),
            Some((_, "")) => at += 2,
            Some(_) | None => at += 1,
        }
    }
    None
}

/// A subcommand that is a program of its own: `git-push`, `docker-compose`.
fn joined_name(name: &str, args: &[KnownWord]) -> Option<Vec<KnownWord>> {
    let (program, subcommand) = name.split_once('-')?;
    let words = [program, subcommand].map(KnownWord::known);
    matches!(program, "git" | "docker" | "cargo" | "kubectl")
        .then(|| words.into_iter().chain(args.iter().cloned()).collect())
}

/// Places among a program's arguments where its subcommand may stand, and the names that it may have there. Of a program that is not
/// known it is the first.
pub(crate) fn subcommands_of(name: &str, args: &[KnownWord]) -> Vec<(usize, String)> {
    let Some(program) = program(name) else {
        return args.first().and_then(KnownWord::fixed).map(|first| (0, first.to_owned())).into_iter().collect();
    };
    let named = |at: usize| {
        args[at].fixed().map(|given| names(program, given)).unwrap_or_default().into_iter().map(move |name| (at, name))
    };
    subcommands(program, args).into_iter().flat_map(named).collect()
}

/// Places among a program's words where its subcommand may stand.
fn subcommands(program: &Program, args: &[KnownWord]) -> BTreeSet<usize> {
    let (mut next, mut found, mut seen) = (vec![0], BTreeSet::new(), BTreeSet::new());
    while let Some(at) = next.pop() {
        if at >= args.len() || !seen.insert(at) {
            continue;
        }
        let word = &args[at];
        // `cargo +nightly build`
        let is_option = word.text.starts_with('-') || (at == 0 && word.text.starts_with('+'));
        if !is_option {
            found.insert(at);
            continue;
        }
        match takes(program, word) {
            Some(words) => next.push(at + words),
            None => next.extend([at + 1, at + 2]),
        }
        // Its value may be none, or more words.
        if args.get(at + 1).is_some_and(|value| value.several) {
            found.insert(at + 1);
        }
    }
    found
}

/// Words that an option takes with itself, if that is known.
fn takes(program: &Program, option: &KnownWord) -> Option<usize> {
    let text = option.text.as_str();
    let name = text.split('=').next().unwrap_or(text);
    if option.several || name.contains(HOLE) {
        return None;
    }
    if text.starts_with('+') || text.contains('=') || program.flags.contains(&text) || program.harmless.contains(&text)
    {
        return Some(1);
    }
    if program.valued.contains(&text) {
        return Some(2);
    }
    // `-C.`
    let is_attached = |valued: &&&str| valued.len() == 2 && text.starts_with(**valued) && !text.starts_with("--");
    program.valued.iter().find(is_attached).map(|_| 1)
}

/// Spellings of what begins with a subcommand, with its own name.
fn spelled(program: &Program, words: &[KnownWord]) -> Vec<Vec<KnownWord>> {
    let Some((first, rest)) = words.split_first() else { return Vec::new() };
    let Some(given) = first.fixed() else { return vec![words.to_vec()] };
    let mut all = Vec::new();
    for name in names(program, given) {
        let with = |rest: &[KnownWord]| {
            let named = name.split(' ').map(KnownWord::known);
            named.chain(rest.iter().cloned()).collect::<Vec<_>>()
        };
        all.push(with(rest));
        if !program.groups.contains(&name.as_str()) {
            continue;
        }
        let inner = subcommands(program, rest);
        if inner.len() > FORMS_MAX {
            all.push(with(&[KnownWord::anything()]));
        }
        for at in inner.into_iter().take(FORMS_MAX) {
            all.push(with(&rest[at..]));
            let inner = rest[at].fixed().map(|inner| format!("{name} {inner}"));
            let other = inner.and_then(|inner| synonym(program, &inner));
            all.extend(
                other.map(|other| {
                    std::iter::once(KnownWord::known(other)).chain(rest[at + 1..].iter().cloned()).collect()
                }),
            );
        }
    }
    all
}

fn synonym(program: &Program, name: &str) -> Option<&'static str> {
    program.synonyms.iter().find(|(other, _)| *other == name).map(|(_, own)| *own)
}

/// The subcommands that a word may be.
fn names(program: &Program, given: &str) -> Vec<String> {
    // npm takes `runScript` for `run-script`.
    let kebab: String = given
        .chars()
        .flat_map(|c| if c.is_ascii_uppercase() { vec!['-', c.to_ascii_lowercase()] } else { vec![c] })
        .collect();
    let name = if program.shortened.is_empty() { given } else { kebab.as_str() };
    if let Some(own) = synonym(program, name) {
        return vec![own.to_owned()];
    }
    if program.shortened.is_empty() || program.shortened.contains(&name) || name.is_empty() {
        return vec![name.to_owned()];
    }
    let begun = program.shortened.iter().filter(|own| own.starts_with(name)).map(|own| (*own).to_owned());
    std::iter::once(name.to_owned()).chain(begun).collect()
}

/// The command without its harmless options, and with the subcommand's own name, if there is anything of the kind.
fn same(program: &Program, first: &KnownWord, args: &[KnownWord]) -> Option<Vec<KnownWord>> {
    let harmless = |arg: &&KnownWord| arg.fixed().is_some_and(|arg| program.harmless.contains(&arg));
    let skipped = args.iter().take_while(harmless).count();
    let rest = args.get(skipped..)?;
    let is_fixed = first.fixed().is_some_and(has_fixed_names);
    let own = rest.first().and_then(KnownWord::fixed).filter(|_| is_fixed).and_then(|name| synonym(program, name));
    let named =
        own.map(|own| std::iter::once(KnownWord::known(own)).chain(rest[1..].iter().cloned()).collect::<Vec<_>>());
    let rest = named.or_else(|| (skipped > 0).then(|| rest.to_vec()))?;
    Some(std::iter::once(first.clone()).chain(rest).collect())
}

/// True if nobody can give another meaning to the other names of a program's subcommands. Aliases of cargo's are its user's.
pub(crate) fn has_fixed_names(name: &str) -> bool {
    matches!(base(name), "npm" | "docker")
}

/// A pattern with the program's and the subcommand's own names, if it has others.
pub(crate) fn canonical(pattern: &str) -> Option<String> {
    let mut words = pattern.split(' ');
    let (name, given) = (words.next()?, words.next().unwrap_or_default());
    let program = program(name)?;
    let rest: Vec<&str> = words.collect();
    let pair = rest.first().and_then(|second| synonym(program, &format!("{given} {second}")));
    let (own, rest) = match pair {
        Some(own) => (own, &rest[1..]),
        None => (synonym(program, given).unwrap_or(given), &rest[..]),
    };
    let canonical = std::iter::once(program.names[0])
        .chain(Some(own).filter(|own| !own.is_empty()))
        .chain(rest.iter().copied())
        .collect::<Vec<_>>()
        .join(" ");
    (canonical != pattern).then_some(canonical)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<KnownWord> {
        line.split(' ').map(|word| KnownWord { text: word.replace('$', "\0"), several: word.contains("$$") }).collect()
    }

    fn meant(line: &str) -> Vec<String> {
        let shown = |words: &Vec<KnownWord>| {
            words.iter().map(|word| word.text.replace('\0', "$")).collect::<Vec<_>>().join(" ")
        };
        forms(&words(line)).meant.iter().map(shown).collect()
    }

    /// G7: whatever stands before a subcommand, and by whatever name it goes.
    #[test]
    fn g7_a_subcommand_is_found() {
        for (line, form) in [
            ("git push", "git push"),
            ("git -C . push x", "git push x"),
            ("git -C. push", "git push"),
            ("git --no-pager push", "git push"),
            ("git -c a.b=c --git-dir x --work-tree=y -P push", "git push"),
            ("git --unknown push", "git push"),
            ("git --unknown value push", "git push"),
            ("git -C $ push", "git push"),
            ("/usr/bin/git -C . push", "git push"),
            ("/usr/lib/git-core/git-push origin", "git push origin"),
            ("git --literal-pathspecs stage x", "git add x"),
            ("npm --prefix x publish", "npm publish"),
            ("npm publi --tag x", "npm publish --tag x"),
            ("npm i x", "npm install x"),
            ("npm runScript x", "npm run-script x"),
            ("docker --context x run y", "docker run y"),
            ("docker container run y", "docker run y"),
            ("docker container --x run y", "docker run y"),
            ("docker-compose -f x up", "docker compose up"),
            ("docker compose -f x up", "docker compose up"),
            ("cargo +nightly -q publish", "cargo publish"),
            ("pip3.12 -q install x", "pip install x"),
            ("python3 -m pip install x", "pip install x"),
            ("python3 -mpip install x", "pip install x"),
            ("python3 -BIm pip install x", "pip install x"),
            ("python3 -Bmpip install x", "pip install x"),
            ("python3 -W ignore -Xdev -m pip install x", "pip install x"),
            ("python3 $$ -m pip install x", "pip install x"),
            ("python3 -$ pip install x", "$"),
            ("apt-get -y install x", "apt install x"),
            ("kubectl -n x delete pod", "kubectl delete pod"),
            ("aws --region x s3 --profile y rm z", "aws s3 rm z"),
            ("systemctl --user stop x", "systemctl stop x"),
            ("ip -4 a add x", "ip address add x"),
            ("gh -R a/b pr merge 1", "gh pr merge 1"),
            ("go -C x build", "go build"),
            ("helm -n x delete y", "helm uninstall y"),
        ] {
            assert!(meant(line).iter().any(|found| found == form), "{line}: {:?}", meant(line));
        }
        for (line, other) in [
            ("git commit push", "git push"),
            ("git -C push status", "git push"),
            ("npm pack", "npm publish"),
            ("npm p", "npm install"),
            ("docker ps run", "docker run"),
            ("ls push", "ls push"),
            ("python3 x.py -m pip", "pip"),
            ("python3 -c x -m pip", "pip"),
            ("python3 -Wm pip", "pip"),
        ] {
            assert!(!meant(line).iter().any(|found| found.starts_with(other)), "{line}: {:?}", meant(line));
        }
        // However many options stand before it.
        for options in [31, 32, 33, 5_000] {
            let found = meant(&format!("git {}push", "--x ".repeat(options)));
            assert!(found.len() <= FORMS_MAX + 1, "{options}");
            assert!(found.iter().any(|form| form == "git push" || form == "git $"), "{options}: {found:?}");
        }
        let found = meant(&format!("uv pip {}install x", "--x ".repeat(40)));
        assert!(found.iter().any(|form| form.starts_with("uv pip install") || form == "uv pip $"), "{found:?}");
    }

    /// A rule that allows leaves out harmless options and no others.
    #[test]
    fn only_harmless_options_are_left_out() {
        let same = |line: &str| {
            let text = |words: Vec<KnownWord>| words.iter().map(|word| word.text.clone()).collect::<Vec<_>>().join(" ");
            forms(&words(line)).same.map(text)
        };
        assert_eq!(same("git --no-pager log -1").as_deref(), Some("git log -1"));
        assert_eq!(same("npm -s i x").as_deref(), Some("npm install x"));
        for line in [
            "git log",
            "git -C . log",
            "git -c a=b log",
            "git --exec-path=x log",
            "git --git-dir=x log",
            "npm publi",
            "cargo --config x build",
            "docker --config x run",
        ] {
            assert_eq!(same(line), None, "{line}");
        }
        for program in PROGRAMS {
            for option in [
                "-C",
                "-c",
                "--git-dir",
                "--work-tree",
                "--exec-path",
                "--config",
                "--prefix",
                "--manifest-path",
                "-H",
                "--host",
            ] {
                let colours = (program.names[0], option) == ("ip", "-c");
                assert!(colours || !program.harmless.contains(&option), "{} {option}", program.names[0]);
            }
            let twice = |option: &&&str| program.valued.contains(option);
            assert!(!program.flags.iter().chain(program.harmless).any(|option| twice(&option)), "{}", program.names[0]);
        }
    }

    #[test]
    fn patterns_are_about_the_own_names() {
        for (pattern, own) in [
            ("npm i *", "npm install *"),
            ("apt-get install *", "apt install *"),
            ("docker container run *", "docker run *"),
            ("pip3 install *", "pip install *"),
        ] {
            assert_eq!(canonical(pattern).as_deref(), Some(own));
        }
        for pattern in ["git push *", "ls *", "git *", "*"] {
            assert_eq!(canonical(pattern), None, "{pattern}");
        }
    }
}
