//! Files that another program runs, or lets itself be told by, later: a call may write them, and its result says so.

/// Why a file that was written matters later, if it does. `path` is any path; its last components count.
#[must_use]
pub fn why(path: &[u8]) -> Option<&'static str> {
    let lower = path.to_ascii_lowercase();
    let mut components = lower.rsplit(|b| *b == b'/');
    let name = components.next().unwrap_or_default();
    let parent = components.next().unwrap_or_default();
    let above = components.next().unwrap_or_default();
    let is = |names: &[&str]| names.iter().any(|own| own.as_bytes() == name);
    let ends = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end.as_bytes()));
    let starts = |starts: &[&str]| starts.iter().any(|start| name.starts_with(start.as_bytes()));
    if (above, parent) == (b".github", b"workflows")
        || is(&[".gitlab-ci.yml", "jenkinsfile", ".travis.yml", "azure-pipelines.yml"])
        || parent == b".circleci"
    {
        return Some("a build server runs it");
    }
    if is(&[".envrc", ".tool-versions", "mise.toml", ".mise.toml"]) {
        return Some("a shell that enters the directory may run it");
    }
    if is(&["agents.md", "claude.md", "gemini.md", ".cursorrules", ".windsurfrules", "copilot-instructions.md"]) {
        return Some("agents take it as instructions");
    }
    if is(&["git-rebase-todo"]) {
        return Some("git rebase --continue runs what it says");
    }
    if is(&[".gitmodules", ".gitattributes"]) {
        return Some("git acts on it");
    }
    if is(&["sitecustomize.py", "usercustomize.py", "conftest.py", "setup.py", "noxfile.py", "manage.py"])
        || ends(&[".pth"])
    {
        return Some("python or its tools run it");
    }
    if is(&["package.json", "gulpfile.js", "gruntfile.js", ".eslintrc.js", ".pnpmfile.cjs", "bunfig.toml"])
        || (ends(&[".js", ".ts", ".cjs", ".mjs", ".cts", ".mts"]) && name.windows(8).any(|part| part == b".config."))
    {
        return Some("node's tools run it, or what it says");
    }
    if is(&["build.rs", "rust-toolchain", "rust-toolchain.toml"]) {
        return Some("cargo runs it, or what it says");
    }
    let builds = [
        "makefile",
        "gnumakefile",
        "bsdmakefile",
        "justfile",
        "taskfile.yml",
        "taskfile.yaml",
        "rakefile",
        "gemfile",
        "cmakelists.txt",
        "meson.build",
        "sconstruct",
        "wscript",
        "build.gradle",
        "build.gradle.kts",
        "settings.gradle",
        "settings.gradle.kts",
        "gradlew",
        "mvnw",
        "pom.xml",
        "build.sbt",
        "build.xml",
        "dockerfile",
        "containerfile",
        "docker-compose.yml",
        "docker-compose.yaml",
        "compose.yml",
        "compose.yaml",
        "vagrantfile",
        "tox.ini",
        "pyproject.toml",
        "procfile",
        "configure",
        "autogen.sh",
        "build.zig",
        "flake.nix",
        "shell.nix",
        "default.nix",
        "workspace.bazel",
        "build.bazel",
        "lefthook.yml",
        ".pre-commit-config.yaml",
        "magefile.go",
    ];
    if is(&builds) || ends(&[".mk", ".cmake"]) || starts(&["dockerfile.", "makefile."]) {
        return Some("a build runs what it says");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

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
        ] {
            assert!(why(path.as_bytes()).is_some(), "{path}");
        }
        for path in ["main.rs", "README.md", "workflows/ci.yml", "package.json.bak", "config.ts", "makefile2"] {
            assert_eq!(why(path.as_bytes()), None, "{path}");
        }
    }
}
