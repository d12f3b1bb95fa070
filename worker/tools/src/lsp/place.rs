//! Places in files: here a line and a column count from 1, and a column is a character. In the protocol both count from 0, and a
//! column is a unit of UTF-16. And URIs, which name files there.

use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use callgate_policy::path::HostPath;

/// The UTF-16 units before a column, from 1; the number of characters in the line, if it has fewer.
pub(super) fn to_utf16(line: &str, column: u64) -> Result<u64, usize> {
    let before = usize::try_from(column.saturating_sub(1)).unwrap_or(usize::MAX);
    let characters = line.chars().count();
    if before > characters {
        return Err(characters);
    }
    Ok(line.chars().take(before).map(|c| c.len_utf16() as u64).sum())
}

/// The column, from 1, at which so many UTF-16 units are before. In the middle of a character it is that one's; after the last it is the
/// end's.
pub(super) fn of_utf16(line: &str, units: u64) -> u64 {
    let (mut before, mut column) = (0, 1);
    for c in line.chars() {
        before += c.len_utf16() as u64;
        if before > units {
            break;
        }
        column += 1;
    }
    column
}

/// The lines of a text, without what ends them.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line))
}

/// A file's URI.
pub(super) fn uri(path: &HostPath) -> String {
    let mut uri = "file://".to_owned();
    for byte in path.as_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => uri.push(char::from(*byte)),
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri
}

/// The file that a URI names, if it names one of this host by an absolute path without detours.
pub(super) fn path_of(uri: &str) -> Option<HostPath> {
    let rest = uri.strip_prefix("file://")?;
    let rest = rest.strip_prefix("localhost").unwrap_or(rest);
    let mut bytes = Vec::with_capacity(rest.len());
    let mut left = rest.as_bytes();
    while let [first, after @ ..] = left {
        left = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = left.split_at_checked(2)?;
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let [high, low] = [digit(digits[0])?, digit(digits[1])?];
        bytes.push(u8::try_from(high * 16 + low).ok()?);
        left = after;
    }
    let path = HostPath::from(PathBuf::from(std::ffi::OsString::from_vec(bytes)));
    path.is_normal().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S0-25: a character may be one unit of UTF-16 or two, and columns count characters.
    #[test]
    fn s0_25_columns_are_characters_and_units_of_utf16() {
        let line = "aä€𝄞b";
        for (column, units) in [(1, 0), (2, 1), (3, 2), (4, 3), (5, 5), (6, 6)] {
            assert_eq!(to_utf16(line, column), Ok(units), "{column}");
            assert_eq!(of_utf16(line, units), column, "{units}");
        }
        assert_eq!(to_utf16(line, 7), Err(5));
        assert_eq!(to_utf16(line, u64::MAX), Err(5));
        assert_eq!(of_utf16(line, 4), 4, "in the middle of a character");
        assert_eq!(of_utf16(line, u64::MAX), 6);
        assert_eq!((to_utf16("", 1), of_utf16("", 9)), (Ok(0), 1));
        assert_eq!(lines("a\r\nb\n").collect::<Vec<_>>(), ["a", "b", ""]);
    }

    /// S0-25: a URI names what it names, whatever bytes are in it, and nothing by a detour.
    #[test]
    fn s0_25_uris_name_files() {
        for path in ["/w/a b.py", "/w/ü%20#?.py", "/"] {
            assert_eq!(path_of(&uri(&path.into())), Some(path.into()), "{path}");
        }
        let odd = HostPath::from(PathBuf::from(std::ffi::OsString::from_vec(b"/w/\xff\n".to_vec())));
        assert_eq!(uri(&odd), "file:///w/%FF%0A");
        assert_eq!(path_of("file:///w/%FF%0A"), Some(odd));
        assert_eq!(path_of("file://localhost/w/a"), Some("/w/a".into()));
        for none in
            ["http://h/a", "file://host/a", "file:///w/../etc/passwd", "file:///a%00", "file:///a%4", "file:", ""]
        {
            assert_eq!(path_of(none), None, "{none}");
        }
        assert_eq!(path_of("file:///w/%2e%2e/etc"), None);
    }
}
