//! From bytes to text: which encoding a page is in.

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};

/// Where a page may say it itself (WHATWG HTML, "prescan a byte stream").
const PRESCAN: usize = 1024;

/// The text, and the name of the encoding that it was in. What cannot be read is U+FFFD.
///
/// In this order: a byte order mark, the header's charset, what the page says of itself, UTF-8 if it is that, and windows-1252, as
/// browsers do.
pub(super) fn decode(bytes: &[u8], charset: Option<&str>) -> (String, &'static str) {
    let labelled = |label: &str| Encoding::for_label(label.trim().as_bytes());
    let encoding = Encoding::for_bom(bytes)
        .map(|(encoding, _)| encoding)
        .or_else(|| charset.and_then(labelled))
        .or_else(|| said_inside(bytes).as_deref().and_then(labelled).map(in_ascii))
        .unwrap_or(if std::str::from_utf8(bytes).is_ok() { UTF_8 } else { WINDOWS_1252 });
    let (text, encoding, _) = encoding.decode(bytes);
    (text.into_owned(), encoding.name())
}

/// A page that says in ASCII that it is UTF-16 is wrong.
fn in_ascii(encoding: &'static Encoding) -> &'static Encoding {
    if encoding.is_ascii_compatible() { encoding } else { UTF_8 }
}

/// `<meta charset=X>`, `<meta … content="…; charset=X">`, `<?xml … encoding="X"?>`.
fn said_inside(bytes: &[u8]) -> Option<String> {
    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(PRESCAN)]).to_ascii_lowercase();
    let value = |text: &str, key: &str| {
        let after = text.split_once(key)?.1.trim_start().strip_prefix('=')?.trim_start();
        let after = after.trim_start_matches(['"', '\'']);
        let end = after.find(|c: char| !(c.is_ascii_alphanumeric() || "-_:.".contains(c))).unwrap_or(after.len());
        (end > 0).then(|| after[..end].to_owned())
    };
    if start.starts_with("<?xml") {
        let declaration = start.split("?>").next().unwrap_or_default();
        if let Some(encoding) = value(declaration, "encoding") {
            return Some(encoding);
        }
    }
    start.split("<meta").skip(1).find_map(|tag| value(tag.split('>').next().unwrap_or_default(), "charset"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_encoding_is_the_nearest_that_is_said() {
        let cases: &[(&[u8], Option<&str>, &str, &str)] = &[
            (b"caf\xe9", None, "café", "windows-1252"),
            ("café".as_bytes(), None, "café", "UTF-8"),
            (b"caf\xe9", Some("ISO-8859-1"), "café", "windows-1252"),
            (b"\xef\xbb\xbfcaf\xc3\xa9", Some("iso-8859-1"), "café", "UTF-8"),
            (b"\xff\xfea\0b\0", None, "ab", "UTF-16LE"),
            (b"<meta charset=shift_jis>\x93\xfa\x96\x7b", None, "<meta charset=shift_jis>日本", "Shift_JIS"),
            (
                b"<META http-equiv=x content='text/html; charset=windows-1251'>\xcc\xe8\xf0",
                None,
                "<META http-equiv=x content='text/html; charset=windows-1251'>Мир",
                "windows-1251",
            ),
            (b"<?xml version='1.0' encoding='gbk'?>\xc4\xe3", None, "<?xml version='1.0' encoding='gbk'?>你", "GBK"),
            (b"<meta charset=utf-16>a", None, "<meta charset=utf-16>a", "UTF-8"),
            (b"a", Some("no-such"), "a", "UTF-8"),
            (b"a\xff", Some("utf-8"), "a\u{fffd}", "UTF-8"),
        ];
        for (bytes, charset, text, encoding) in cases {
            assert_eq!(decode(bytes, *charset), ((*text).to_owned(), *encoding), "{bytes:?}");
        }
    }
}
