//! Variables that a line may set.

/// Variables that change how text is shown, and nothing else.
pub(super) const HARMLESS: &[&str] = &["LANGUAGE", "TZ", "NO_COLOR", "COLUMNS", "LINES", "CLICOLOR"];

/// A variable of the line's own, in small letters: bash gives none of them a meaning, but for proxies, which curl reads.
pub(super) fn is_own(name: &str) -> bool {
    let small = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    small
        && name.bytes().any(|byte| byte.is_ascii_lowercase())
        && !name.ends_with("_proxy")
        && name != "auto_resume"
        && name != "histchars"
}
