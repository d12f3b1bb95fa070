//! A session is in the directory that was meant, however others change what its path leads to (A10): by a link that lies there, or
//! in a race with callgate while it opens the session.

use std::ffi::CString;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, lchown, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use callgate_tests::{Host, ProgramOutcome, ProgramRunner, TestEnv, User, matrix, matrix_as};

use crate::clean_up::files_as;

/// Another user's tree, and one of whoever runs callgate.
struct Trees {
    env: TestEnv,
    /// In which the other user has `p/ws`, a link `l` to the tree with the secret, and a link to `p`.
    theirs: PathBuf,
    /// In which `ws/secret` lies.
    precious: PathBuf,
    uid: u32,
}

impl Trees {
    fn make(env: TestEnv, uid: u32) -> Self {
        let (theirs, precious) = (env.outside().join("u"), env.outside().join("vp"));
        fs::create_dir_all(theirs.join("p/ws")).unwrap();
        fs::create_dir_all(precious.join("ws")).unwrap();
        symlink(&precious, theirs.join("l")).unwrap();
        symlink("p", theirs.join("own")).unwrap();
        ["", "p", "p/ws"].iter().for_each(|name| chown(theirs.join(name), Some(uid), Some(uid)).unwrap());
        ["l", "own"].iter().for_each(|name| lchown(theirs.join(name), Some(uid), Some(uid)).unwrap());
        let secret = env.file_at(precious.join("ws/secret"), "precious\n");
        fs::set_permissions(&*secret, fs::Permissions::from_mode(0o600)).unwrap();
        [&precious, &precious.join("ws")].into_iter().for_each(|path| env.give(path));
        Self { env, theirs, precious, uid }
    }

    fn run(&self, run: &ProgramRunner) -> ProgramOutcome {
        run.run(&["sh", "-c", "id -u; cat secret; echo x > pwned"])
    }

    fn assert_untouched(&self) {
        let names: Vec<_> =
            fs::read_dir(self.precious.join("ws")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["secret"]);
        assert_eq!(fs::read_to_string(self.precious.join("ws/secret")).unwrap(), "precious\n");
    }
}

/// A10: root is not led by a user's link, or through a user's directory, to what is not that user's.
#[test]
fn a10_a_user_s_link_leads_root_nowhere_else() {
    matrix_as(User::Root, Host::STRENGTHS, |target| {
        let trees = Trees::make(TestEnv::new(target), User::Ordinary.uid());
        let run = |path: PathBuf| trees.env.sandbox().flag(&["-C", path.to_str().unwrap()]);
        let refused = |ended: ProgramOutcome| {
            assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(64), ""), "{ended:?}");
            assert!(ended.stderr.contains("on the way belongs to user"), "{ended:?}");
            trees.assert_untouched();
        };
        refused(trees.run(&run(trees.theirs.join("l/ws"))));
        refused(trees.run(&run(trees.theirs.join("p/../l/ws"))));
        refused(trees.run(&trees.env.sandbox().read(trees.theirs.join("l/ws/secret"))));
        refused(trees.run(&trees.env.sandbox().write(trees.theirs.join("l/ws"))));
        // The controls: a user's link to what is the user's, root's link there, and what root names itself.
        let roots_link = trees.env.outside().join("link");
        symlink(&trees.theirs, &roots_link).unwrap();
        for path in [trees.theirs.join("own/ws"), roots_link.join("p/ws")] {
            let ended = trees.run(&run(path));
            assert_eq!(ended.stdout.trim(), trees.uid.to_string(), "{ended:?}");
            assert_eq!(fs::metadata(trees.theirs.join("p/ws/pwned")).unwrap().uid(), trees.uid);
            fs::remove_file(trees.theirs.join("p/ws/pwned")).unwrap();
        }
        symlink(&trees.precious, trees.env.outside().join("mine")).unwrap();
        let ended = trees.run(&run(trees.env.outside().join("mine/ws")));
        assert_eq!(ended.stdout, "0\nprecious\n", "{ended:?}");
        assert!(trees.precious.join("ws/pwned").exists());
    });
}

/// A10: whoever may change the way to a workspace swaps a part of it while a session is opened there, for root and for a session of
/// the same user. There is no session, or it is in the directory that callgate was started in.
#[test]
fn a10_a_workspace_is_not_swapped_while_it_is_opened() {
    matrix(Host::STRENGTHS, |target| {
        let other = if target.user == User::Root { User::Ordinary } else { target.user };
        let trees = Trees::make(TestEnv::new(target), other.uid());
        let meant = fs::File::open(trees.theirs.join("p/ws")).unwrap();
        // Started in this very directory, by whatever name.
        let here = format!("/proc/{}/fd/{}", std::process::id(), meant.as_raw_fd());
        let run = trees.env.sandbox().started_in(here);
        let (done, swaps) = (AtomicBool::new(false), AtomicUsize::new(0));
        let mut ends = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                files_as(trees.uid);
                let name = |name| CString::new(trees.theirs.join(name).to_str().unwrap()).unwrap();
                let (one, two) = (name("p"), name("l"));
                while !done.load(Ordering::Relaxed) {
                    swaps.fetch_add(usize::from(exchange(&one, &two)), Ordering::Relaxed);
                    std::thread::sleep(Duration::from_micros(200));
                }
            });
            let start = Instant::now();
            while ends.len() < 25 && start.elapsed() < Duration::from_secs(2) {
                ends.push(trees.run(&run));
            }
            done.store(true, Ordering::Relaxed);
        });
        assert!(swaps.load(Ordering::Relaxed) > ends.len(), "the control: {ends:?}");
        for ended in &ends {
            assert!(!ended.stdout.contains("precious"), "{ended:?}");
        }
        trees.assert_untouched();
        let ended = trees.run(&run);
        assert_eq!(ended.stdout.trim(), trees.uid.to_string(), "the control: {ended:?}");
        assert!(!ended.stderr.contains("callgate:"), "{ended:?}");
    });
}

/// Each gets the other's name.
#[allow(unsafe_code, reason = "no safe wrapper among what the tests use")]
pub(crate) fn exchange(one: &CString, two: &CString) -> bool {
    let at = libc::AT_FDCWD;
    // SAFETY: two live strings that end with NUL.
    unsafe { libc::renameat2(at, one.as_ptr(), at, two.as_ptr(), libc::RENAME_EXCHANGE) == 0 }
}
