//! Variables that decide how bash reads a line.
//!
//! bash reads by the character set of its locale: in GB18030, GBK, Big5 and Shift_JIS the second byte of a character can be a
//! backslash, a quote or a backquote. The grammar reads UTF-8. So programs get a locale with that character set, or none
//! (`C`, where a byte is a character and every byte of ASCII is itself), and a line that chooses another is not understood. Nor is
//! one that chooses by which texts bash translates `$"…"`: it expands what it finds there.

/// Locale that takes the place of one with another character set. glibc has it built in; where it is missing, `C` is in force.
pub const LOCALE: &str = "C.UTF-8";

/// True if a variable chooses a locale.
#[must_use]
pub fn is_locale(name: &str) -> bool {
    name == "LANG" || name.starts_with("LC_")
}

/// True if bash reads a line as the grammar does, also after the variable has got this value.
#[must_use]
pub fn keeps(name: &str, value: &[u8]) -> bool {
    match name {
        // A directory with locales, of any name and character set.
        "LOCPATH" => false,
        // A catalogue of translations, with commands in them.
        "TEXTDOMAIN" | "TEXTDOMAINDIR" => false,
        // Both turn on options of the parser.
        "POSIXLY_CORRECT" | "BASH_COMPAT" | "SHELLOPTS" | "BASHOPTS" => false,
        // Languages of messages. A path leads to texts of anybody's.
        "LANGUAGE" => !value.contains(&b'/') && !value.contains(&0),
        _ if is_locale(name) => std::str::from_utf8(value).is_ok_and(is_utf8),
        _ => true,
    }
}

/// True if the character set of a locale is UTF-8 or ASCII, by its name (setlocale(3)): `C`, `POSIX`, `zh_CN.UTF-8`,
/// `ca_ES.utf8@valencia`. A name without a character set has the one that its language had before there was UTF-8. An empty value
/// is as good as none.
fn is_utf8(locale: &str) -> bool {
    if matches!(locale, "" | "C" | "POSIX") {
        return true;
    }
    let is_plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    let Some((language, rest)) = locale.split_once('.') else { return false };
    let (charset, modifier) = rest.split_once('@').unwrap_or((rest, ""));
    let is_named = !language.is_empty() && is_plain(language) && is_plain(modifier);
    is_named && (charset.eq_ignore_ascii_case("UTF-8") || charset.eq_ignore_ascii_case("utf8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_utf8_and_ascii_are_read_alike() {
        for (name, value, kept) in [
            ("LC_ALL", "C", true),
            ("LC_ALL", "POSIX", true),
            ("LC_ALL", "", true),
            ("LANG", "C.UTF-8", true),
            ("LANG", "zh_CN.utf8", true),
            ("LC_CTYPE", "ca_ES.UTF-8@valencia", true),
            ("LC_ALL", "zh_CN", false),
            ("LC_ALL", "chinese", false),
            ("LC_ALL", "zh_CN.GB18030", false),
            ("LC_CTYPE", "ja_JP.SJIS", false),
            ("LANG", "zh_TW.Big5", false),
            ("LC_ALL", ".UTF-8", false),
            ("LC_ALL", "zh_CN.GBK.UTF-8", false),
            ("LC_ALL", "zh_CN.GBK@x.UTF-8", false),
            ("LC_ALL", "/w/x.UTF-8", false),
            ("LC_ALL", "../x.UTF-8", false),
            ("LC_ALL", "x.UTF-8@../y", false),
            ("LC_ALL", "zh_CN.\0", false),
            ("LC_ALL", "\0", false),
            ("LC_MESSAGES", "zh_CN.GBK", false),
            ("LOCPATH", "", false),
            ("TEXTDOMAIN", "d", false),
            ("TEXTDOMAINDIR", "/w/tr", false),
            ("POSIXLY_CORRECT", "1", false),
            ("BASH_COMPAT", "3.1", false),
            ("LANGUAGE", "de:fr", true),
            ("LANGUAGE", "../x", false),
            ("IFS", ":", true),
            ("x", "\0", true),
        ] {
            assert_eq!(keeps(name, value.as_bytes()), kept, "{name}={value:?}");
        }
    }
}
