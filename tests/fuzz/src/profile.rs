//! Any bytes as a profile: an error that says where, or one that means what it says (X4-2, S4-13).

use callgate_policy::effect::Effects;
use callgate_policy::manifest::ManifestError;
use callgate_policy::profile::{FileWrite, MAX_BYTES, Profile, Shell};
use callgate_policy::tool::Subject;

/// The target.
pub fn target(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Profile::parse(text, "p.yaml") {
        Err(error) => told(&error, text),
        Ok(profile) => means_what_it_says(&profile),
    }
}

fn told(error: &ManifestError, text: &str) {
    let shown = error.to_string();
    assert!(shown.contains("p.yaml:"), "an error names its file: {shown}");
    assert!(error.line() <= text.lines().count() + 1, "line {} of {text:?}", error.line());
    assert!(shown.len() < MAX_BYTES, "an error is not as large as the profile");
}

fn means_what_it_says(profile: &Profile) {
    assert_eq!(profile.offers(Subject::Create), profile.file_write != FileWrite::Off && !profile.bash_only);
    assert_eq!(profile.offers(Subject::Edit), profile.file_write == FileWrite::Full && !profile.bash_only);
    assert_eq!(profile.may_write(), profile.file_write != FileWrite::Off || profile.shell == Shell::Unrestricted);
    assert!(
        profile.refuses(&Effects::default().writing("/w/.ssh/x")).is_some() || profile.file_write == FileWrite::Full
    );
    assert!(!profile.approval.is_empty(), "each mode says something");
    assert!(profile.approval.iter().all(|placed| placed.place.starts_with("p.yaml:")));
}
