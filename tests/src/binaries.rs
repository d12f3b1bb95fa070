//! Finds the programs under test, where users other than root can run them too.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The programs that tests start.
#[derive(Debug)]
pub struct Binaries {
    directory: PathBuf,
}

const NAMES: [&str; 3] = ["callgate", "probe", "weaken"];

impl Binaries {
    /// The programs of this build: beside this program, or above the test's own executable; or a copy of them where a directory on the way is
    /// closed to other users.
    pub fn of_this_build() -> &'static Self {
        static FOUND: OnceLock<Binaries> = OnceLock::new();
        FOUND.get_or_init(|| {
            let this = std::env::current_exe().expect("the test's own executable has a path");
            // target/<profile>/deps/<test>, or target/<profile>/<program>.
            let beside = |directory: &&Path| directory.join(NAMES[0]).is_file();
            let built = this.ancestors().skip(1).take(2).find(beside).expect("the workspace's programs are built");
            let directory = if open_to_all(built) { built.to_owned() } else { copied(built) };
            Self { directory }
        })
    }

    fn named(&self, name: &str) -> PathBuf {
        let path = self.directory.join(name);
        assert!(path.is_file(), "{name} is not built: run `cargo build` for the whole workspace first");
        path
    }

    /// The program under test.
    pub fn callgate(&self) -> PathBuf {
        self.named("callgate")
    }

    /// The program that performs acts.
    pub fn probe(&self) -> PathBuf {
        self.named("probe")
    }

    /// The program that makes the host weaker.
    pub fn weaken(&self) -> PathBuf {
        self.named("weaken")
    }
}

/// True if every user may pass through `directory` and all above it.
pub(crate) fn open_to_all(directory: &Path) -> bool {
    directory.ancestors().all(|each| fs::metadata(each).is_ok_and(|about| about.mode() & 0o001 != 0))
}

/// A directory of ours under /tmp, named for what it holds, so that the tests of one build share it. Its owner is
/// checked because anyone may make a directory of that name first.
fn copied(built: &Path) -> PathBuf {
    let mine = fs::metadata("/proc/self").expect("/proc is mounted").uid();
    let mut name = format!("callgate-tests-{mine}");
    for program in NAMES {
        if let Ok(about) = fs::metadata(built.join(program)) {
            name.push_str(&format!("-{:x}-{:x}", about.mtime(), about.mtime_nsec()));
        }
    }
    let directory = Path::new("/tmp").join(name);
    // Another test may have made it already; what it is, is looked at next.
    let made = fs::DirBuilder::new().mode(0o755).create(&directory);
    let about = fs::symlink_metadata(&directory).unwrap_or_else(|error| panic!("{made:?}, then {error}"));
    assert!(about.is_dir() && about.uid() == mine, "{} is somebody else's", directory.display());
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).expect("the directory is ours");
    for program in NAMES {
        let (from, to) = (built.join(program), directory.join(program));
        if from.is_file() && !to.is_file() {
            // By way of a name of our own: another test must never run half a program.
            let partial = directory.join(format!("{program}.{}", std::process::id()));
            fs::copy(&from, &partial).expect("the program is readable");
            fs::rename(&partial, &to).expect("the directory is ours");
        }
    }
    directory
}
