//! Variables by which a program starts another one, or is another command: `EDITOR`, `GIT_SSH_COMMAND`, `MAKEFLAGS`, `LD_PRELOAD`.
//!
//! Such a value is a command line, or says which program or file is run. So whoever sets the variable, before a command, by `env` or by
//! `export`, starts what the value says, whether or not the program that is started looks at it. A value that is not known may be
//! any command.

/// Use that programs make of a variable's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VariableUse {
    /// A command line, or the name of a program.
    Line,
    /// Programs or files of code, with blanks or colons between two.
    Files,
    /// Options of this program.
    Options(&'static str),
    /// The value of a setting of git's, whose name is in another variable.
    Setting,
    /// A text that bash expands: what it substitutes runs.
    Expanded,
    /// The name of a file of code, which bash expands first.
    ExpandedFile,
    /// A line that bash evaluates by itself.
    Evaluated,
    /// A text that is not read here: code in a language of its own, a file of settings, a directory of programs.
    Code,
}

use VariableUse::{Code, Evaluated, Expanded, ExpandedFile, Files, Line, Options, Setting};

/// Variables by their names; a `*` stands for any text. The first row that fits counts.
#[rustfmt::skip]
const VARIABLES: &[(VariableUse, &[&str])] = &[
    (Evaluated, &["PROMPT_COMMAND"]),
    (Expanded, &["PS0", "PS1", "PS2", "PS3", "PS4"]),
    (ExpandedFile, &["BASH_ENV", "ENV"]),
    (Line, &[
        "*EDITOR", "VISUAL", "FCEDIT", "TEXEDIT", "*PAGER", "BROWSER", "*_BROWSER", "*_COMMAND", "*ASKPASS", "LESSOPEN", "LESSCLOSE",
        "GIT_SSH", "SVN_SSH", "*_RSH", "RSYNC_CONNECT_PROG", "GIT_EXTERNAL_DIFF", "SHELL", "CONFIG_SHELL", "NIX_BUILD_SHELL",
        "CC", "CC_*", "CXX", "CXX_*", "CPP", "LD", "AR", "AS", "FC", "HOSTCC", "HOST_CC", "TARGET_CC", "CMAKE_*_COMPILER_LAUNCHER",
        "CCACHE_PREFIX", "CCACHE_COMPILER", "RUSTC", "RUSTDOC", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_RUSTC*",
        "CARGO_BUILD_RUSTDOC", "CARGO_TARGET_*_RUNNER", "CARGO_TARGET_*_LINKER", "CARGO_*CREDENTIAL_PROVIDER",
        "npm_config_script_shell", "npm_config_shell", "npm_config_git", "npm_config_editor", "npm_config_viewer",
        "npm_config_browser",
    ]),
    (Setting, &["GIT_CONFIG_VALUE_*", "CARGO_ALIAS_*"]),
    (Files, &[
        "LD_PRELOAD", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "PYTHONSTARTUP", "MAKEFILES", "OPENSSL_CONF", "npm_config_init_module",
    ]),
    (Options("make"), &["MAKEFLAGS", "GNUMAKEFLAGS", "MFLAGS"]),
    (Options("rustc"), &["RUSTFLAGS", "RUSTDOCFLAGS", "CARGO_*_RUSTFLAGS", "CARGO_*_RUSTDOCFLAGS"]),
    (Options("node"), &["NODE_OPTIONS", "npm_config_node_options"]),
    (Options("perl"), &["PERL5OPT"]),
    (Options("ruby"), &["RUBYOPT"]),
    (Options("java"), &["JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "MAVEN_OPTS", "GRADLE_OPTS"]),
    (Options("go"), &["GOFLAGS"]),
    (Options("tar"), &["TAR_OPTIONS"]),
    (Options("man"), &["MANOPT"]),
    (Options("less"), &["LESS", "SYSTEMD_LESS"]),
    (Options("fzf"), &["FZF_DEFAULT_OPTS"]),
    (Code, &[
        "BASH_FUNC_*", "PERL5DB", "PYTHONBREAKPOINT", "VIMINIT", "GVIMINIT", "EXINIT", "ZDOTDIR", "LESSKEY_CONTENT", "GIT_EXEC_PATH",
        "GIT_TEMPLATE_DIR", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG", "GCONV_PATH",
        "COMPILER_PATH", "GCC_EXEC_PREFIX", "CARGO_ENCODED_RUSTFLAGS",
    ]),
];

/// Use of a variable by its name. npm takes its settings in capitals or not.
pub(super) fn use_of(name: &str) -> Option<VariableUse> {
    let lower = name.to_ascii_lowercase();
    let name = if lower.starts_with("npm_config_") { lower.as_str() } else { name };
    let is_named = |pattern: &&str| match pattern.split_once('*') {
        Some((start, end)) => name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end),
        None => name == *pattern,
    };
    VARIABLES.iter().find(|(_, names)| names.iter().any(is_named)).map(|(used, _)| *used)
}

/// True if bash finds code in a variable by itself.
pub(crate) fn is_evaluated(name: &str) -> bool {
    matches!(name, "SHELLOPTS" | "BASHOPTS")
        || name.starts_with("BASH_FUNC_")
        || matches!(use_of(name), Some(Evaluated | Expanded | ExpandedFile))
}

/// True if programs start what a variable's value says.
pub(crate) fn is_started(name: &str) -> bool {
    use_of(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A variable has one use, so that the order of the rows makes no difference but where one says so.
    #[test]
    fn a_name_has_one_use() {
        let mut all: Vec<&str> = VARIABLES.iter().flat_map(|(_, names)| *names).copied().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        for (name, used) in [
            ("GIT_EDITOR", Some(Line)),
            ("PROMPT_COMMAND", Some(Evaluated)),
            ("CARGO_TARGET_X_RUNNER", Some(Line)),
            ("CARGO_TARGET_DIR", None),
            ("NPM_CONFIG_Script_shell", Some(Line)),
            ("GIT_CONFIG_VALUE_12", Some(Setting)),
            ("GIT_CONFIG_KEY_12", None),
            ("GIT_CONFIG_COUNT", None),
            ("PATH", None),
            ("LD_LIBRARY_PATH", None),
            ("CARGO_BUILD_RUSTFLAGS", Some(Options("rustc"))),
            ("editor", None),
        ] {
            assert_eq!(use_of(name), used, "{name}");
        }
    }
}
