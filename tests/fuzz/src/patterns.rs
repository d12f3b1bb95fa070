//! A pattern and a subject, of each kind: never a panic, and what a pattern says of itself is true of what it matches (S0-36).

use callgate_policy::path::{HostPath, normalize};
use callgate_policy::pattern::{ArgPatterns, Host, HostPattern, PathTemplate};
use callgate_policy::variable::Variables;

/// The target.
pub fn target(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == b'\n');
    let (pattern, subject) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let Ok(pattern) = std::str::from_utf8(pattern) else { return };
    path(pattern, subject);
    if let Ok(subject) = std::str::from_utf8(subject) {
        host(pattern, subject);
    }
    if let Ok(args) = serde_json::from_str::<ArgPatterns>(pattern) {
        let words: Vec<&[u8]> = subject.split(|byte| *byte == 0).collect();
        assert!(!args.is_any() || args.matches(&words), "`any` matches everything");
    }
}

fn path(pattern: &str, subject: &[u8]) {
    use std::os::unix::ffi::OsStrExt as _;
    let Ok(template) = PathTemplate::parse(pattern) else { return };
    let variables = Variables::new(vec!["/w".into(), "/w2".into()], vec!["/w/u".into()], vec![]);
    let Ok(variables) = variables else { return };
    let subject = HostPath::from(std::path::PathBuf::from(std::ffi::OsStr::from_bytes(subject)));
    let Ok(subject) = normalize(&"/w".into(), &subject) else { return };
    assert!(subject.is_normal(), "{subject}");
    for pattern in template.expand(&variables) {
        let prefix = pattern.literal_prefix();
        let matches = pattern.matches(&subject);
        assert!(
            !matches || subject.as_path().starts_with(prefix.as_path()),
            "{pattern:?} matches {subject} outside {prefix}"
        );
        if pattern.is_literal() {
            assert_eq!(matches, subject == prefix, "{pattern:?} and {subject}");
        }
        if pattern.is_subtree() {
            assert_eq!(matches, subject.as_path().starts_with(prefix.as_path()), "{pattern:?} and {subject}");
        }
    }
}

fn host(pattern: &str, subject: &str) {
    let Ok(pattern) = HostPattern::parse(pattern) else { return };
    for port in [0, 22, 80, 443, 65535] {
        let covers = Host::parse(subject).is_ok_and(|host| pattern.covers(&host, port));
        assert_eq!(pattern.matches(subject, port), covers, "{pattern:?} and {subject}:{port}");
    }
}
