//! The switches by which package managers are told that there is no network.
//!
//! Without them a package manager tries for seconds or minutes what cannot succeed, and then advises to check the network. With
//! them it uses what it has stored, or says at once that it is offline.

/// Names, values, and which program reads them for what.
pub const OFFLINE: &[(&str, &str, &str)] = &[
    ("CARGO_NET_OFFLINE", "true", "cargo: uses what it has downloaded"),
    ("CARGO_NET_RETRY", "0", "cargo: one attempt, if a command goes online all the same"),
    ("RUSTUP_MAX_RETRIES", "0", "rustup: one attempt"),
    ("npm_config_offline", "true", "npm, pnpm, yarn 1: use their cache"),
    ("npm_config_fetch_retries", "0", "npm, pnpm: one attempt, if a command goes online all the same"),
    ("npm_config_update_notifier", "false", "npm: does not ask for a newer npm"),
    ("NO_UPDATE_NOTIFIER", "1", "tools written for Node: do not ask for a newer version"),
    ("YARN_ENABLE_NETWORK", "0", "yarn 2 and later: uses its cache"),
    ("COREPACK_ENABLE_NETWORK", "0", "corepack: uses the package managers that it has"),
    ("PIP_RETRIES", "0", "pip: one attempt"),
    ("PIP_DISABLE_PIP_VERSION_CHECK", "1", "pip: does not ask for a newer pip"),
    ("UV_OFFLINE", "1", "uv: uses its cache"),
    ("CONDA_OFFLINE", "true", "conda, mamba: use their cache"),
    ("HF_HUB_OFFLINE", "1", "Hugging Face's libraries: use their cache"),
    ("GOPROXY", "off", "go: uses the module cache"),
    ("BUNDLE_RETRY", "0", "bundler: one attempt"),
    ("BUNDLE_ALLOW_OFFLINE_INSTALL", "true", "bundler: uses its cache"),
    ("COMPOSER_DISABLE_NETWORK", "1", "composer: uses its cache"),
    ("HEX_OFFLINE", "1", "hex, for mix and rebar: uses its cache"),
    ("COURSIER_MODE", "offline", "coursier, for sbt and mill: uses its cache"),
    ("MAVEN_ARGS", "--offline", "Maven 3.9 and later: uses its repository"),
    ("CHECKPOINT_DISABLE", "1", "terraform, packer: do not ask for a newer version"),
    ("DENO_NO_UPDATE_CHECK", "1", "deno: does not ask for a newer version"),
];

/// Messages of package managers that were told to be offline and needed more than they have.
pub const OFFLINE_SIGNS: &[&str] = &[
    "you're using offline mode (--offline)",
    "--offline was specified",
    "cache mode is 'only-if-cached'",
    "ERR_PNPM_NO_OFFLINE",
    "Network access have been disabled by configuration",
    "Network connectivity is disabled",
    "the network was disabled",
    "module lookup disabled by GOPROXY=off",
    "in offline mode and the artifact",
    "COMPOSER_DISABLE_NETWORK",
    "OfflineModeIsEnabled",
];
