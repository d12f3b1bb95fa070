//! Which names are protected, as data with reasons (design "Filesystem patterns"; attacks A1, A9, A16, A18, A19).
//!
//! Patterns are relative to *any* directory: `.vscode` is protected in the workspace's root and in every directory below.
//! They are written in lower case and compared without regard to case (A9): a file system that ignores case, or a
//! checkout on one, reads `.VSCode` as `.vscode`. A pattern means the name and all beneath it.
//!
//! A repository may have any name. Whoever looks at directories ([`State::in_repository`](super::State::in_repository))
//! takes one that git would take for a repository as if it were called `.git`.

/// What is done about a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Guard {
    /// It is neither made, changed, moved nor removed.
    Closed,
    /// The same in a repository; but one that the call itself has made is the call's.
    Repository,
    /// A repository's configuration: it is replaced as a whole, and only by one whose keys that run programs are the same
    /// ([`super::gitconfig`]).
    GitConfig,
}

/// Names that have one reason in common.
#[derive(Debug, Clone, Copy)]
pub struct Group {
    /// What could be done with them.
    pub reason: &'static str,
    /// What is done about that.
    pub guard: Guard,
    /// The patterns. `*` stands for any part of a name, `**` for any number of names but those in [`NEVER_DEEP`].
    pub patterns: &'static [&'static str],
}

/// Components that `**` does not stand for: below them a repository keeps branches and objects, which may have any name.
pub const NEVER_DEEP: &[&str] = &["refs", "logs", "objects"];

/// Directories in which nothing is protected by name: they are filled by package managers and compilers, with whatever
/// the packages hold, and nobody opens them as a project. Compared with regard to case.
pub const FREE: &[&str] = &["node_modules", "target"];

/// The table.
pub const NAMES: &[Group] = &[
    Group {
        reason: "start-up files of shells and sessions run at the next login",
        guard: Guard::Closed,
        patterns: &[
            ".bashrc",
            ".bash_profile",
            ".bash_login",
            ".bash_logout",
            ".bash_aliases",
            ".profile",
            ".zshrc",
            ".zshenv",
            ".zprofile",
            ".zlogin",
            ".zlogout",
            ".kshrc",
            ".mkshrc",
            ".cshrc",
            ".tcshrc",
            ".login",
            ".logout",
            ".inputrc",
            ".xprofile",
            ".xinitrc",
            ".xsession",
            ".xsessionrc",
            ".pam_environment",
            ".config/fish",
            ".config/nushell",
            ".config/autostart",
            ".config/systemd",
            ".config/environment.d",
            ".config/git",
            ".gitconfig",
        ],
    },
    Group {
        reason: "keys and credentials, and the programs that their settings name",
        guard: Guard::Closed,
        patterns: &[
            ".ssh",
            ".gnupg",
            ".aws",
            ".azure",
            ".kube",
            ".docker",
            ".config/gcloud",
            ".config/gh",
            ".config/op",
            ".netrc",
            "_netrc",
            ".git-credentials",
            ".pgpass",
            ".my.cnf",
            ".vault-token",
            ".password-store",
            ".terraformrc",
            ".terraform.d",
            ".oci",
            ".env",
        ],
    },
    Group {
        reason: "credentials of package managers, and settings of theirs that run programs",
        guard: Guard::Closed,
        patterns: &[
            ".npmrc",
            ".yarnrc",
            ".yarnrc.yml",
            ".pnpmrc",
            "bunfig.toml",
            ".pypirc",
            ".pip",
            ".config/pip",
            ".cargo/credentials",
            ".cargo/credentials.toml",
            ".cargo/config",
            ".cargo/config.toml",
            ".gem/credentials",
            ".bundle/config",
            ".m2/settings.xml",
            ".gradle/gradle.properties",
            ".gradle/init.gradle",
            ".gradle/init.d",
            ".composer/auth.json",
            ".nuget",
        ],
    },
    Group {
        reason: "settings of editors, which run tasks and load extensions when a directory is opened",
        guard: Guard::Closed,
        patterns: &[
            ".vscode",
            ".vscode-server",
            "*.code-workspace",
            ".idea",
            ".fleet",
            ".zed",
            ".cursor",
            ".windsurf",
            ".devcontainer",
            ".devcontainer.json",
            ".exrc",
            ".vimrc",
            ".nvimrc",
            ".nvim.lua",
            ".vim",
            ".config/nvim",
            ".dir-locals.el",
            ".emacs",
            ".emacs.d",
            "*.sublime-project",
        ],
    },
    Group {
        reason: "settings of agents and of MCP servers: they start programs and grant permissions",
        guard: Guard::Closed,
        patterns: &[
            ".mcp.json",
            ".mcp",
            ".claude",
            ".claude.json",
            ".codex",
            ".gemini",
            ".qwen",
            ".aider.conf.yml",
            ".continue",
            ".cline",
            ".clinerules",
            ".roo",
            ".amazonq",
            ".copilot",
            ".opencode",
            "opencode.json",
            "opencode.jsonc",
            ".goose",
            ".kiro",
            ".crush",
            ".augment",
            ".factory",
            ".srt-settings.json",
            "fence.json",
            ".agents",
        ],
    },
    Group {
        reason: "callgate's own manifests and state (E4)",
        guard: Guard::Closed,
        patterns: &["callgate.toml", "callgate.json", ".callgate"],
    },
    Group {
        reason: "programs that version control runs by itself, and pointers to where it finds them",
        guard: Guard::Repository,
        patterns: &[
            "*.git/branches",
            "*.git/commondir",
            "*.git/hooks",
            "*.git/remotes",
            "*.git/modules/**/branches",
            "*.git/modules/**/commondir",
            "*.git/modules/**/gitdir",
            "*.git/modules/**/hooks",
            "*.git/modules/**/remotes",
            "*.git/worktrees/*/commondir",
            "*.git/worktrees/*/gitdir",
            ".hg/hgrc",
            ".hg/hgrc-not-shared",
            ".hg/sharedpath",
            ".jj/repo/config.toml",
            ".sl/config",
            ".husky",
        ],
    },
    Group {
        reason: "configuration of repositories, many of whose keys run programs (A18)",
        guard: Guard::GitConfig,
        patterns: &[
            "*.git/config",
            "*.git/config.worktree",
            "*.git/modules/**/config",
            "*.git/modules/**/config.worktree",
            "*.git/worktrees/*/config.worktree",
        ],
    },
];
