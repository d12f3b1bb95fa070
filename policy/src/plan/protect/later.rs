//! Files that another program runs, or takes orders from, later: a call may write them, and its result says so.
//!
//! What names mean is data ([`KINDS`]): by kind, each with what reads the file and when. A name that is missing here is not
//! reported and nothing else: what must not be written at all is in [`super::names()`].

use std::collections::HashMap;
use std::sync::OnceLock;

/// Files that have one reader in common.
#[derive(Debug, Clone, Copy)]
pub struct ReaderFiles {
    /// Description of one in the result.
    pub reason: &'static str,
    /// Program that reads such a file, and when: why it is in the table.
    pub evidence: &'static str,
    /// The last components of paths. A `*` stands for any part of a name. Case counts only for patterns that have capitals.
    pub patterns: &'static [&'static str],
}

/// The table.
pub const KINDS: &[ReaderFiles] = &[
    ReaderFiles {
        reason: "a build server runs it",
        evidence: "GitHub, GitLab, Gitea, Forgejo, Jenkins, CircleCI, Buildkite, Drone, Woodpecker, Azure, Bitbucket, Travis, \
                   AppVeyor, Cirrus, Tekton and Google Cloud Build read it at the next push; actions when a workflow uses them",
        patterns: &[
            ".github/workflows/*",
            ".github/actions/*",
            ".github/actions/*/*",
            "action.yml",
            "action.yaml",
            ".github/dependabot.yml",
            ".gitlab-ci.yml",
            ".gitlab-ci.yaml",
            ".gitlab/ci/*",
            ".gitea/workflows/*",
            ".forgejo/workflows/*",
            ".woodpecker/*",
            ".woodpecker.yml",
            "jenkinsfile",
            "jenkinsfile.*",
            ".travis.yml",
            "azure-pipelines.yml",
            ".azure-pipelines/*",
            ".circleci/*",
            ".buildkite/*",
            ".buildkite/hooks/*",
            ".drone.yml",
            ".drone.jsonnet",
            "appveyor.yml",
            ".appveyor.yml",
            ".cirrus.yml",
            ".cirrus.star",
            "bitbucket-pipelines.yml",
            "cloudbuild.yaml",
            ".tekton/*",
            "buildspec.yml",
            "netlify.toml",
            "vercel.json",
        ],
    },
    ReaderFiles {
        reason: "a shell that enters the directory may run it",
        evidence: "direnv, asdf, mise, devbox, devenv, autoenv and shadowenv on `cd`, once the directory is allowed",
        patterns: &[
            ".envrc",
            ".tool-versions",
            "mise.toml",
            ".mise.toml",
            "mise.*.toml",
            ".mise/config.toml",
            ".mise/tasks/*",
            "devbox.json",
            "devenv.nix",
            ".autoenv.zsh",
            ".in",
            ".out",
            ".shadowenv.d/*",
            ".node-version",
            ".nvmrc",
            ".python-version",
            ".ruby-version",
        ],
    },
    ReaderFiles {
        reason: "agents take it as instructions",
        evidence: "coding agents read it at the start of a session, or when they look for what they can do: AGENTS.md, the \
                   CLAUDE.md family, skills, prompts, rules of editors",
        patterns: &[
            "agents.md",
            "agents.override.md",
            "agent.md",
            "claude.md",
            "claude.local.md",
            "gemini.md",
            "qwen.md",
            "crush.md",
            "warp.md",
            "skill.md",
            "conventions.md",
            ".cursorrules",
            ".windsurfrules",
            ".goosehints",
            ".rules",
            ".aiderignore",
            "copilot-instructions.md",
            "*.instructions.md",
            "*.prompt.md",
            "*.chatmode.md",
            "*.agent.md",
        ],
    },
    ReaderFiles {
        reason: "version control acts on it, or runs what it says",
        evidence: "gitmodules(5), gitattributes(5) at checkout and add; git-rebase(1), git-am(1) and git-cherry-pick(1) when they \
                   continue; Mercurial, Jujutsu and Sapling read their own files at each command",
        patterns: &[
            ".gitmodules",
            ".gitattributes",
            "info/attributes",
            ".lfsconfig",
            "rebase-merge/*",
            "rebase-apply/*",
            "sequencer/*",
            ".hg/hgrc",
            ".hg/sharedpath",
            ".jj/repo/config.toml",
            ".sl/config",
        ],
    },
    ReaderFiles {
        reason: "a commit or a push runs what it says",
        evidence: "pre-commit, lefthook, husky, overcommit, simple-git-hooks, lint-staged and their like, once they are installed",
        patterns: &[
            ".pre-commit-config.yaml",
            ".pre-commit-hooks.yaml",
            "lefthook.yml",
            "lefthook.yaml",
            "lefthook.toml",
            "lefthook.json",
            ".lefthook.yml",
            "lefthook-local.yml",
            ".overcommit.yml",
            ".lintstagedrc",
            ".lintstagedrc.*",
            ".simple-git-hooks.json",
            ".simple-git-hooks.js",
            ".githooks/*",
            ".git-hooks/*",
            "prek.toml",
        ],
    },
    ReaderFiles {
        reason: "python or its tools run it, or what it says",
        evidence: "site(1) modules and .pth files at each start; pip, build, pytest, tox, nox, invoke, coverage, sphinx, IPython and \
                   the debugger from their configuration",
        patterns: &[
            "sitecustomize.py",
            "usercustomize.py",
            "conftest.py",
            "setup.py",
            "setup.cfg",
            "pyproject.toml",
            "pytest.ini",
            ".pytest.ini",
            "tox.ini",
            "tox.toml",
            "noxfile.py",
            "manage.py",
            "tasks.py",
            "fabfile.py",
            "dodo.py",
            "pavement.py",
            ".coveragerc",
            ".pylintrc",
            "pylintrc",
            "mypy.ini",
            ".mypy.ini",
            "hatch_build.py",
            "hatch.toml",
            "pdm_build.py",
            "pixi.toml",
            "pipfile",
            "requirements*.txt",
            "environment.yml",
            "docs/conf.py",
            "source/conf.py",
            "*.pth",
            "pyvenv.cfg",
            ".pdbrc",
            ".pythonrc",
            ".pythonrc.py",
            "ipython_config.py",
            "pip.conf",
        ],
    },
    ReaderFiles {
        reason: "node's tools run it, or what it says",
        evidence: "npm, yarn, pnpm, bun and deno (scripts, hooks); bundlers, test runners and linters load their configuration as code",
        patterns: &[
            "package.json",
            ".pnpmfile.cjs",
            ".pnpmfile.mjs",
            "pnpm-workspace.yaml",
            ".yarn/plugins/*",
            ".yarn/releases/*",
            ".pnp.cjs",
            ".pnp.loader.mjs",
            "deno.json",
            "deno.jsonc",
            "gulpfile.*",
            "gruntfile.*",
            "jakefile.js",
            "webpack.mix.js",
            ".eslintrc*",
            ".prettierrc*",
            ".stylelintrc*",
            ".babelrc*",
            ".mocharc*",
            ".swcrc",
            ".postcssrc*",
            ".releaserc*",
            ".huskyrc*",
            "angular.json",
            "nx.json",
            "turbo.json",
            "lerna.json",
            "*.config.js",
            "*.config.cjs",
            "*.config.mjs",
            "*.config.ts",
            "*.config.cts",
            "*.config.mts",
        ],
    },
    ReaderFiles {
        reason: "cargo runs it, or what it says",
        evidence: "cargo(1): build scripts, procedural macros, dependencies by path, runners; rustup from rust-toolchain",
        patterns: &[
            "cargo.toml",
            "build.rs",
            "rust-toolchain",
            "rust-toolchain.toml",
            "clippy.toml",
            "xtask/src/main.rs",
        ],
    },
    ReaderFiles {
        reason: "a build of the jvm's languages runs what it says",
        evidence: "maven, gradle, sbt, mill, ant, leiningen: their files are programs, and the wrappers download one",
        patterns: &[
            "pom.xml",
            ".mvn/*",
            ".mvn/wrapper/*",
            "mvnw",
            "mvnw.cmd",
            "build.gradle",
            "build.gradle.kts",
            "settings.gradle",
            "settings.gradle.kts",
            "gradle.properties",
            "*.gradle",
            "*.gradle.kts",
            "gradlew",
            "gradlew.bat",
            "gradle/wrapper/*",
            "gradle/libs.versions.toml",
            "build.sbt",
            "project/plugins.sbt",
            "project/build.properties",
            ".sbtopts",
            ".jvmopts",
            "build.sc",
            "build.mill",
            "build.xml",
            "project.clj",
            "deps.edn",
            "shadow-cljs.edn",
        ],
    },
    ReaderFiles {
        reason: "a build for .net runs what it says",
        evidence: "msbuild: targets and tasks in project files, and in those that every project below reads; nuget sources",
        patterns: &[
            "*.csproj",
            "*.fsproj",
            "*.vbproj",
            "*.vcxproj",
            "*.sln",
            "*.slnx",
            "*.proj",
            "*.props",
            "*.targets",
            "directory.build.rsp",
            "nuget.config",
            "global.json",
            "dotnet-tools.json",
            "build.cake",
            "build.fsx",
        ],
    },
    ReaderFiles {
        reason: "tools of ruby, php, perl, elixir, erlang, haskell, go, swift or dart run it, or what it says",
        evidence: "bundler, rake, composer (scripts), mix, rebar, stack and cabal (custom builds), go generate and mage, swift \
                   packages, pub: their files are programs or name them",
        patterns: &[
            "gemfile",
            "gems.rb",
            "rakefile",
            "*.rake",
            "*.gemspec",
            ".rspec",
            ".irbrc",
            ".pryrc",
            "guardfile",
            "capfile",
            "fastfile",
            "podfile",
            "composer.json",
            ".php-cs-fixer.php",
            "phpunit.xml",
            "phpunit.xml.dist",
            ".user.ini",
            "artisan",
            "makefile.pl",
            "build.pl",
            ".perltidyrc",
            ".proverc",
            "mix.exs",
            ".iex.exs",
            ".formatter.exs",
            "rebar.config",
            "rebar.config.script",
            ".erlang",
            "setup.hs",
            "setup.lhs",
            "*.cabal",
            "cabal.project",
            "cabal.project.local",
            "stack.yaml",
            "package.yaml",
            ".ghci",
            "go.mod",
            "go.work",
            "magefile.go",
            ".golangci.yml",
            ".goreleaser.yml",
            ".air.toml",
            "package.swift",
            "pubspec.yaml",
            "dub.json",
            "dub.sdl",
            "shard.yml",
            "dune",
            "dune-project",
            "*.opam",
            ".ocamlinit",
            ".rprofile",
            ".renviron",
            "renv/activate.r",
            "startup.jl",
            "project.toml",
        ],
    },
    ReaderFiles {
        reason: "a build runs what it says",
        evidence: "make(1), cmake(1), ninja(1), meson(1), bazel, buck, pants, scons, waf, autotools, just, task, nix, zig and their like",
        patterns: &[
            "makefile",
            "makefile.*",
            "gnumakefile",
            "bsdmakefile",
            "*.mk",
            "*.mak",
            "justfile",
            ".justfile",
            "*.just",
            "taskfile.yml",
            "taskfile.yaml",
            "taskfile.dist.yml",
            "cmakelists.txt",
            "cmakepresets.json",
            "cmakeuserpresets.json",
            "*.cmake",
            "build.ninja",
            "meson.build",
            "meson_options.txt",
            "meson.options",
            "sconstruct",
            "sconscript",
            "wscript",
            "configure",
            "configure.ac",
            "configure.in",
            "autogen.sh",
            "bootstrap.sh",
            "build.sh",
            "BUILD",
            "WORKSPACE",
            "workspace.bazel",
            "workspace.bzlmod",
            "build.bazel",
            "module.bazel",
            "*.bzl",
            ".bazelrc",
            "user.bazelrc",
            ".bazeliskrc",
            ".bazelversion",
            "tools/bazel",
            ".buckconfig",
            "BUCK",
            "TARGETS",
            "pants.toml",
            ".please",
            ".plzconfig",
            "earthfile",
            "build.zig",
            "build.zig.zon",
            "flake.nix",
            "flake.lock",
            "shell.nix",
            "default.nix",
            "guix.scm",
            "manifest.scm",
            "pkgbuild",
            "debian/rules",
            "*.spec",
            "snapcraft.yaml",
            "conanfile.py",
            "conanfile.txt",
            "vcpkg.json",
            "xmake.lua",
            "premake5.lua",
            "platformio.ini",
            "dagger.json",
        ],
    },
    ReaderFiles {
        reason: "containers, machines or servers are made or started from it",
        evidence: "docker, podman, compose, skaffold, tilt, vagrant, packer, terraform, ansible, pulumi, helm, systemd, supervisors and cron",
        patterns: &[
            "dockerfile",
            "dockerfile.*",
            "*.dockerfile",
            "containerfile",
            "containerfile.*",
            "docker-bake.hcl",
            "docker-bake.json",
            "docker-compose*.yml",
            "docker-compose*.yaml",
            "compose*.yml",
            "compose*.yaml",
            "skaffold.yaml",
            "tiltfile",
            "vagrantfile",
            "*.pkr.hcl",
            "*.tf",
            "*.tf.json",
            "*.tfvars",
            "terragrunt.hcl",
            "ansible.cfg",
            "pulumi.yaml",
            "chart.yaml",
            "kustomization.yaml",
            "helmfile.yaml",
            "procfile",
            "procfile.*",
            "fly.toml",
            "app.yaml",
            "serverless.yml",
            "*.service",
            "*.timer",
            "*.socket",
            "*.desktop",
            "supervisord.conf",
            "ecosystem.config.js",
            "crontab",
        ],
    },
    ReaderFiles {
        reason: "an editor or a debugger that is started here runs it, or what it says",
        evidence: "gdb(1), lldb(1) and radare2 (where auto-loading allows), language servers, projectile, neoconf, vim's local \
                   configuration by plug-ins, ctags(1), tmux by session managers",
        patterns: &[
            ".gdbinit",
            ".gdbearlyinit",
            "*-gdb.py",
            "*-gdb.gdb",
            ".lldbinit",
            ".radare2rc",
            ".lvimrc",
            ".local.vimrc",
            ".vimspector.json",
            ".nvim/*",
            ".neoconf.json",
            ".nlsp-settings/*",
            ".projectile",
            ".clangd",
            "compile_commands.json",
            "compile_flags.txt",
            ".ccls",
            ".ctags.d/*",
            ".ctags",
            ".vsls.json",
            ".tmuxinator.yml",
            ".tmuxp.yaml",
            ".ycm_extra_conf.py",
            ".jupyter/*",
            "jupyter_*_config.py",
        ],
    },
];

/// Programs of an environment: run by its users, and by editors that look for them. Package managers make many of them.
pub const PROGRAMS: &[&str] = &[
    "*venv*/bin/*",
    "env/bin/*",
    ".virtualenvs/*/bin/*",
    ".tox/*/bin/*",
    ".nox/*/bin/*",
    ".pixi/envs/*/bin/*",
    ".conda/bin/*",
    "node_modules/.bin/*",
    "vendor/bin/*",
    "bundle/bin/*",
    ".bundle/bin/*",
    ".direnv/bin/*",
    "target/*/build/*/build-script-*",
    ".gradle/wrapper/dists/*/*/*/bin/*",
    ".yarn/sdks/*/bin/*",
];

/// Former holder of a file's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormerHolder {
    /// Nothing.
    Nothing,
    /// Something that was there before the call.
    Another,
}

/// Note on a file, and the path it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Later {
    /// Reason why it matters.
    pub why: &'static str,
    /// It is said of its directory: there may be many such files in it.
    pub of_directory: bool,
}

/// A pattern's components, the last first.
type Pieces = Vec<&'static [u8]>;

/// The table, ready to be compared with.
struct LaterTable {
    /// By the last component, if that has no star, with the reason.
    named: HashMap<&'static [u8], Vec<(Pieces, &'static str)>>,
    /// The others.
    starred: Vec<(Pieces, &'static str)>,
    programs: Vec<Pieces>,
    /// The directories of patterns, each as it begins, in the same two parts.
    above: HashMap<&'static [u8], Vec<(Pieces, &'static str)>>,
    above_starred: Vec<(Pieces, &'static str)>,
}

/// Note on new programs of an environment.
const NEW_PROGRAMS: &str = "programs of an environment: its users and editors run them";

fn pieces(pattern: &'static str) -> Pieces {
    pattern.rsplit('/').map(str::as_bytes).collect()
}

fn table() -> &'static LaterTable {
    static TABLE: OnceLock<LaterTable> = OnceLock::new();
    TABLE.get_or_init(|| {
        let programs = PROGRAMS.iter().map(|pattern| pieces(pattern)).collect();
        let mut table = LaterTable {
            named: HashMap::new(),
            starred: Vec::new(),
            programs,
            above: HashMap::new(),
            above_starred: Vec::new(),
        };
        let of_kinds = KINDS.iter().flat_map(|kind| kind.patterns.iter().map(|pattern| (*pattern, kind.reason)));
        for (pattern, reason) in of_kinds.chain(PROGRAMS.iter().map(|pattern| (*pattern, NEW_PROGRAMS))) {
            let pieces = pieces(pattern);
            for begun in (1..pieces.len()).map(|at| &pieces[at..]) {
                match begun.first() {
                    Some(last) if !last.contains(&b'*') => {
                        table.above.entry(last).or_default().push((begun.to_vec(), reason));
                    }
                    _ => table.above_starred.push((begun.to_vec(), reason)),
                }
            }
        }
        for (pattern, kind) in KINDS.iter().flat_map(|kind| kind.patterns.iter().map(move |pattern| (*pattern, kind))) {
            let pieces = pieces(pattern);
            match pieces.first() {
                Some(last) if !last.contains(&b'*') => table.named.entry(last).or_default().push((pieces, kind.reason)),
                _ => table.starred.push((pieces, kind.reason)),
            }
        }
        table
    })
}

/// True if the last components of a path, the last first, are those of a pattern.
fn ends_with(path: &[u8], pattern: &[&[u8]]) -> bool {
    let mut components = path.rsplit(|b| *b == b'/');
    pattern.iter().all(|piece| components.next().is_some_and(|name| matches(name, piece)))
}

/// True if a name is what a piece of a pattern says: its parts between the stars follow one another.
fn matches(name: &[u8], piece: &[u8]) -> bool {
    let Some(first) = piece.iter().position(|c| *c == b'*') else { return name == piece };
    let Some(rest) = name.strip_prefix(&piece[..first]) else { return false };
    let after = &piece[first + 1..];
    (0..=rest.len()).any(|skipped| matches(&rest[skipped..], after))
}

/// Later effect of a file that was written, if it has one. `path` is any path; its last components count.
#[must_use]
pub fn why(path: &[u8], before: FormerHolder) -> Option<Later> {
    let lower = path.to_ascii_lowercase();
    let table = table();
    let named = |path: &[u8]| {
        let name = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
        let mut lines = table.named.get(name).into_iter().flatten();
        lines.find(|(pattern, _)| ends_with(path, pattern)).map(|(_, why)| *why)
    };
    let starred = || table.starred.iter().find(|(pattern, _)| ends_with(&lower, pattern)).map(|(_, why)| *why);
    if let Some(why) = named(path).or_else(|| named(&lower)).or_else(starred) {
        return Some(Later { why, of_directory: false });
    }
    if !table.programs.iter().any(|pattern| ends_with(&lower, pattern)) {
        return None;
    }
    Some(match before {
        FormerHolder::Another => {
            Later { why: "it takes the place of a program of this environment", of_directory: false }
        }
        FormerHolder::Nothing => Later { why: NEW_PROGRAMS, of_directory: true },
    })
}

/// Later effect of names below a directory of this path, if the directory's own name gives them one.
#[must_use]
pub fn why_below(path: &[u8]) -> Option<&'static str> {
    let lower = path.to_ascii_lowercase();
    let table = table();
    let name = lower.rsplit(|b| *b == b'/').next().unwrap_or_default();
    let mut lines = table.above.get(name).into_iter().flatten().chain(&table.above_starred);
    lines.find(|(pattern, _)| ends_with(&lower, pattern)).map(|(_, why)| *why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_told(path: &str) -> bool {
        why(path.as_bytes(), FormerHolder::Nothing).is_some()
    }

    /// Each pattern is found by a path that it describes, in any directory and case: the table is what is compared with.
    #[test]
    fn every_name_of_the_table_is_told() {
        let all = KINDS.iter().flat_map(|kind| kind.patterns).chain(PROGRAMS);
        for pattern in all {
            let path = format!("/w/{}", pattern.replace('*', "x"));
            let any_case = *pattern == pattern.to_ascii_lowercase();
            assert!(is_told(&path) && (!any_case || is_told(&path.to_ascii_uppercase())), "{path}");
            assert!(any_case || !pattern.contains(['*', '/']), "{pattern}: compared as a whole name");
        }
        assert!(KINDS.iter().all(|kind| !kind.reason.is_empty() && !kind.evidence.is_empty()));
    }

    /// Each directory of a pattern leads to what the pattern describes, and no other name does.
    #[test]
    fn every_directory_of_the_table_leads_on() {
        for pattern in KINDS.iter().flat_map(|kind| kind.patterns).chain(PROGRAMS) {
            let path = format!("/w/{}", pattern.replace('*', "x"));
            for at in path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 2) {
                assert!(why_below(&path.as_bytes()[..at]).is_some(), "{path}: {}", &path[..at]);
            }
        }
        for path in ["/w", "/w/src", "/w/workflows", "/w/x.github", "/w/bin", "/"] {
            assert_eq!(why_below(path.as_bytes()), None, "{path}");
        }
    }

    #[test]
    fn what_runs_later_is_told() {
        for path in [
            "/w/Makefile",
            "a/build.rs",
            "package.json",
            "t/conftest.py",
            ".envrc",
            ".github/workflows/ci.yml",
            "vite.config.ts",
            "x.pth",
            "CLAUDE.md",
            "docker-compose.yml",
            ".git/rebase-merge/git-rebase-todo",
            "skills/x/SKILL.md",
        ] {
            assert!(is_told(path), "{path}");
        }
        for path in [
            "main.rs",
            "README.md",
            "workflows/ci.yml",
            "package.json.bak",
            "config.ts",
            "makefile2",
            "bin/python",
            "x/.bin/y",
            "build",
        ] {
            assert!(!is_told(path), "{path}");
        }
    }

    /// F2: what takes a program's place is named itself; new ones are named together.
    #[test]
    fn f2_programs_of_an_environment_are_told() {
        for path in [".venv/bin/python", "node_modules/.bin/tsc", "vendor/bin/phpunit"] {
            let told = |before| why(path.as_bytes(), before).map(|later| later.of_directory);
            assert_eq!((told(FormerHolder::Another), told(FormerHolder::Nothing)), (Some(false), Some(true)), "{path}");
        }
    }

    #[test]
    fn a_long_name_takes_no_time() {
        let path = [b"docker-compose".as_slice(), &[b'-'; 4000], b".yaml/venv/bin/x"].concat();
        assert!(why(&path, FormerHolder::Nothing).is_some());
        assert!(!matches(&[b'v'; 255], b"*venv*"));
    }
}
