//! Tests of what the command line cannot show.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failing test may stop")]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use callgate_policy::approval::{ApprovalScope, EffectKey, GrantedBy};
use callgate_policy::effect::{Effect, ProgramRun};

use super::*;

struct Place {
    list: TrustList,
    project: PathBuf,
    _dir: tempfile::TempDir,
}

impl Place {
    /// A project whose directory has a name that is not text.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().join(OsStr::from_bytes(b"pro\xffject"));
        std::fs::create_dir(&project).unwrap();
        let list = TrustList::at(dir.path().join("state/callgate"));
        Self { list, project, _dir: dir }
    }

    fn manifest(&self, text: &str) {
        std::fs::write(self.project.join("callgate.toml"), text).unwrap();
    }

    fn project(&self) -> Option<Project> {
        match self.list.find(&self.project) {
            Ok(Found::Trusted(project)) => Some(*project),
            Ok(Found::Nothing | Found::Untrusted { .. }) | Err(TrustError::Changed { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }
}

/// E1, F6: another directory at the project's path is not the project, though its manifest were the same.
#[test]
fn e1_trust_is_not_for_what_takes_the_directory_s_place() {
    let place = Place::new();
    place.manifest("mode = \"ask\"");
    place.list.trust(&place.project, Decision::Trusted).unwrap();
    let project = place.project().unwrap();
    let root = project.root().clone();
    let is_at = |path: &Path| crate::place::Place::find(path).is_ok_and(|place| project.is_at(&place));
    assert!(is_at(root.as_path()), "the control");
    let aside = place.project.with_extension("aside");
    std::fs::rename(&place.project, &aside).unwrap();
    assert!(!is_at(root.as_path()) && !is_at(&aside));
    std::fs::create_dir(&place.project).unwrap();
    place.manifest("mode = \"ask\"");
    assert!(!is_at(root.as_path()));
    std::fs::remove_file(place.project.join("callgate.toml")).unwrap();
    std::fs::remove_dir(&place.project).unwrap();
    std::os::unix::fs::symlink(&aside, &place.project).unwrap();
    assert!(!is_at(&aside) && !is_at(root.as_path()), "it is the same directory, and has another path");
}

fn approval(text: &str) -> Approval {
    Approval {
        implied: Vec::new(),
        tool: "bash".to_owned(),
        effects: vec![key(text)],
        wider: None,
        granted_at: now(),
        granted_by: GrantedBy::User,
        scope: ApprovalScope::Project,
    }
}

fn key(line: &str) -> EffectKey {
    EffectKey::of(&Effect::Runs(ProgramRun::shell(line, "/".into())), str::to_owned)
}

/// The commands that are approved, of these.
fn kept(project: &Project) -> Vec<&'static str> {
    let all = ["make", "late", "later"];
    let is_kept = |line: &&str| project.approvals().iter().any(|approval| approval.effects == [key(line)]);
    all.into_iter().filter(is_kept).collect()
}

/// S1-18, X1-5: kept once each, for the manifest under which they were given, and gone with the trust.
#[test]
fn approvals_are_the_trusted_manifest_s() {
    let place = Place::new();
    place.manifest("mode = \"ask\"");
    assert!(place.project().is_none());
    place.list.trust(&place.project, Decision::Trusted).unwrap();
    let first = place.project().unwrap();
    first.keep(&approval("make")).unwrap();
    first.keep(&approval("make")).unwrap();
    assert_eq!(kept(&place.project().unwrap()), ["make"]);
    // Trust given again for the same content loses nothing.
    place.list.trust(&place.project, Decision::Trusted).unwrap();
    assert_eq!(kept(&place.project().unwrap()), ["make"]);
    place.manifest("mode = \"yolo\"");
    assert!(place.project().is_none());
    place.list.trust(&place.project, Decision::Trusted).unwrap();
    assert!(kept(&place.project().unwrap()).is_empty());
    // A session under the manifest that was gives nothing to the one that is.
    first.keep(&approval("late")).unwrap();
    assert!(kept(&place.project().unwrap()).is_empty());
    place.list.revoke(&place.project).unwrap();
    assert!(place.project().is_none());
    first.keep(&approval("later")).unwrap();
    assert!(place.list.all().unwrap().is_empty());
}

/// S1-18: nor does a session under the profile that was give anything to the one that is.
#[test]
fn approvals_are_the_trusted_profile_s_too() {
    let place = Place::new();
    let profile = |name: &str| {
        let text = format!("profile: {name}\nshell:\n  mode: restricted\n");
        std::fs::write(place.project.join("mine.yaml"), text).unwrap();
        place.list.trust(&place.project, Decision::Trusted).unwrap();
        place.project().unwrap()
    };
    place.manifest("profile = \"./mine.yaml\"");
    let first = profile("first");
    first.keep(&approval("make")).unwrap();
    assert_eq!(kept(&place.project().unwrap()), ["make"], "the control");
    assert!(kept(&profile("second")).is_empty());
    first.keep(&approval("late")).unwrap();
    assert!(kept(&place.project().unwrap()).is_empty());
}

/// X1-35: of two sessions that are opened at once, one has the trust that was given for once.
#[test]
fn once_is_for_one_of_many() {
    let place = Place::new();
    place.manifest("mode = \"ask\"");
    for _ in 0..20 {
        place.list.trust(&place.project, Decision::Once).unwrap();
        let opened: usize = std::thread::scope(|scope| {
            let found: Vec<_> = (0..4).map(|_| scope.spawn(|| usize::from(place.project().is_some()))).collect();
            found.into_iter().map(|found| found.join().unwrap()).sum()
        });
        assert_eq!(opened, 1);
    }
}

/// A project that is gone can still be forgotten.
#[test]
fn trust_in_what_is_gone_can_be_taken_back() {
    let place = Place::new();
    place.manifest("mode = \"ask\"");
    place.list.trust(&place.project, Decision::Trusted).unwrap();
    std::fs::remove_dir_all(&place.project).unwrap();
    assert_eq!(place.list.all().unwrap().len(), 1);
    assert!(place.list.revoke(&place.project).unwrap());
    assert!(place.list.all().unwrap().is_empty());
}
