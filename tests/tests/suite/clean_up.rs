//! A session's things on the host are made and removed without touching anything else: whatever a call, or another
//! process of the user, has put into its place (A11, A21, D12).

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use callgate_tests::{Binaries, Host, ProgramRunner, TestEnv, User, eventually, matrix, matrix_as, parent_of};

/// A tree outside, and a repository in it, which are the user's own; and what an attack could have changed about them.
struct VictimTree(PathBuf);

impl VictimTree {
    fn make(env: &TestEnv) -> Self {
        let top = env.outside().join("victim");
        for directory in ["", "deep/er", ".git/hooks"] {
            fs::create_dir_all(top.join(directory)).unwrap();
        }
        for file in ["precious", "deep/er/file", ".git/config", ".git/hooks/pre-push"] {
            fs::write(top.join(file), "precious\n").unwrap();
        }
        let victim = Self(top);
        victim.all().iter().for_each(|path| env.give(path));
        fs::set_permissions(&victim.0, fs::Permissions::from_mode(0o751)).unwrap();
        victim
    }

    fn all(&self) -> Vec<PathBuf> {
        let mut all = vec![self.0.clone()];
        let mut next = 0;
        while let Some(path) = all.get(next).cloned() {
            next += 1;
            if fs::symlink_metadata(&path).unwrap().is_dir() {
                let mut below: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect();
                below.sort();
                all.extend(below);
            }
        }
        all
    }

    fn look(&self) -> Vec<String> {
        let form = |path: PathBuf| {
            let about = fs::symlink_metadata(&path).unwrap();
            let changed = (about.ctime(), about.ctime_nsec());
            format!("{} {:o} {}:{} {changed:?}", path.display(), about.mode(), about.uid(), about.gid())
        };
        self.all().into_iter().map(form).collect()
    }
}

/// A directory for temporary files of the target's user.
fn temporary(env: &TestEnv, place: &Path) -> PathBuf {
    let directory = place.join("t");
    fs::create_dir(&directory).unwrap();
    env.give(&directory);
    directory
}

/// Files that are left in it.
fn left(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn with_temporary(run: ProgramRunner, directory: &Path) -> ProgramRunner {
    run.variable("TMPDIR", directory.to_str().unwrap())
}

/// Traps that a call leaves and that cannot simply be removed: links out of directories that may not be written or
/// entered, at any depth. `{victim}` is the victim.
const TRAPS: &str = r#"
set -e
cd "$TMPDIR"
mkdir d none deep deep/a deep/a/b home
for at in d none deep/a/b "$HOME"; do ln -s {victim} "$at/link"; ln -s {victim}/.git "$at/git"; ln -s {victim}/precious "$at/file"; done
chmod 500 d deep/a/b "$HOME"
chmod 0 none
chmod 100 deep/a deep
: all is set
"#;

/// A21: links that lie in directories without write permission are removed, and not what they name.
#[test]
fn a21_links_in_directories_that_may_not_be_written_are_not_followed() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let victim = VictimTree::make(&env);
        let directory = temporary(&env, &env.outside());
        let script = TRAPS.replace("{victim}", victim.0.to_str().unwrap());
        let before = victim.look();
        let run = with_temporary(env.sandbox(), &directory);
        let ended = run.run(&["sh", "-c", &script]);
        assert!(ended.status.success(), "{ended:?}");
        assert_eq!(victim.look(), before);
        assert_eq!(left(&directory), [] as [PathBuf; 0], "{target:?}");
    });
}

/// A21: a call that can reach the session's directory itself, because temporary files lie in its workspace, puts links in the
/// place of the parts, and of the whole.
#[test]
fn a21_parts_of_the_private_directory_that_were_replaced_are_not_followed() {
    matrix(&[Host::NoNamespaces], |target| {
        let swaps = [
            r#"mv "$d/ipc" "$d/ipc.old"; ln -s {victim} "$d/ipc"; ln -s {victim}/.git "$d/git""#,
            r#"mkdir "$d/ipc/x"; ln -s {victim} "$d/ipc/x/link"; chmod 500 "$d/ipc/x"; ln -s {victim} "$d/more""#,
        ];
        for swap in swaps {
            let env = TestEnv::new(target);
            let victim = VictimTree::make(&env);
            let directory = temporary(&env, &env.workspace());
            let script = format!("set -e; cd /; d=$(echo {}/callgate-*); {swap}", directory.display());
            let script = script.replace("{victim}", victim.0.to_str().unwrap());
            let before = victim.look();
            // With every place for temporary files in its reach, the session's own directory is too.
            let run = with_temporary(env.sandbox(), &directory).write("/var/tmp").write("/run");
            let ended = run.run(&["sh", "-c", &script]);
            assert!(ended.status.success(), "the control: {ended:?}");
            assert_eq!(victim.look(), before, "{swap}");
            let elsewhere = with_temporary(env.sandbox(), &directory).run(&["sh", "-c", "echo $TMPDIR"]);
            assert!(!Path::new(&elsewhere.stdout).starts_with(env.workspace()), "{elsewhere:?}");
        }
    });
}

/// A21: another process of the user moves the whole directory away while a call runs, and puts a link in its place. What was
/// moved is emptied, where it is now; what stays is reported.
#[test]
fn a21_a_private_directory_that_was_moved_is_not_looked_for_by_name() {
    matrix(&[Host::NoNamespaces], |target| {
        let env = TestEnv::new(target);
        let victim = VictimTree::make(&env);
        let directory = temporary(&env, &env.outside());
        let before = victim.look();
        let script = ": > $TMPDIR/file; : > ready; until [ -e done ]; do sleep 0.02; done";
        let mut command = with_temporary(env.sandbox(), &directory).command(&["sh", "-c", script]);
        let callgate = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        eventually("the call runs", || env.workspace().join("ready").exists());
        let [at] = left(&directory).try_into().unwrap();
        let moved = directory.join("moved");
        fs::rename(&at, &moved).unwrap();
        symlink(&victim.0, &at).unwrap();
        assert!(moved.join("tmp/file").exists(), "the control");
        env.workspace_file("done", "");
        let output = callgate.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(victim.look(), before);
        assert!(at.is_symlink() && left(&moved).is_empty(), "{:?}", left(&moved));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(&format!("{} is left", at.display())), "{said}");
    });
}

/// A process of this name below `top`.
fn below(top: u32, name: &str) -> Option<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let named = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
    let descends = |pid: &u32| {
        let mut at = *pid;
        while let Some(parent) = parent_of(at).filter(|parent| *parent > 1) {
            if parent == top {
                return true;
            }
            at = parent;
        }
        false
    };
    pids.filter(named).find(descends)
}

/// D12: the broker is killed, so that the launcher is the one to clean up, which nothing confines.
#[test]
fn d12_what_a_killed_broker_leaves_is_removed_and_nothing_else() {
    matrix(&[Host::NoNamespaces], |target| {
        let env = TestEnv::new(target);
        let victim = VictimTree::make(&env);
        let directory = temporary(&env, &env.outside());
        let script = TRAPS.replace("{victim}", victim.0.to_str().unwrap()) + "echo > \"$OLDPWD/set\"; sleep 600";
        let before = victim.look();
        let mut command = with_temporary(env.sandbox(), &directory).command(&["sh", "-c", &script]);
        let mut callgate = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        eventually("the traps are set", || env.workspace().join("set").exists());
        assert_eq!(left(&directory).len(), 1, "the control: it is there");
        let broker = below(callgate.id(), "cg-broker").unwrap().to_string();
        assert!(std::process::Command::new("kill").args(["-9", &broker]).status().unwrap().success());
        callgate.wait().unwrap();
        eventually("nothing is left", || left(&directory).is_empty());
        assert_eq!(victim.look(), before);
    });
}

/// A11: root makes the session's directory for the workspace's owner, who swaps a part of it for a link meanwhile.
#[test]
fn a11_root_gives_nothing_away_but_what_it_made() {
    matrix_as(User::Root, &[Host::NoNamespaces], |target| {
        let uid = User::Ordinary.uid();
        let env = TestEnv::new(target);
        for mine in [env.workspace(), env.outside()] {
            chown(mine, Some(uid), Some(uid)).unwrap();
        }
        let victim = env.file("roots", "precious\n");
        chown(&*victim, Some(0), Some(0)).unwrap();
        let before = victim.metadata();
        let directory = temporary(&env, &env.outside());
        chown(&directory, Some(uid), Some(uid)).unwrap();
        let done = AtomicBool::new(false);
        on_one_processor();
        std::thread::scope(|scope| {
            scope.spawn(|| swap_ipc(uid, &directory, &victim, &done));
            let run = with_temporary(env.sandbox(), &directory);
            for _ in 0..20 {
                let ended = run.run(&["true"]);
                if victim.metadata() != before {
                    break;
                }
                drop(ended);
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(victim.metadata(), before);
        let ended = env.sandbox().run(&["id", "-u"]);
        assert_eq!(ended.stdout.trim(), uid.to_string(), "the control: {ended:?}");
    });
}

/// As `uid`: swaps `ipc` of every session's directory for a link to `target`, as soon as the directory is given away. It has
/// the processor then, before whoever did so goes on.
#[allow(unsafe_code, reason = "no safe wrapper changes a thread's turn, or waits for what happens in a directory")]
pub(crate) fn swap_ipc(uid: u32, directory: &Path, target: &Path, done: &AtomicBool) {
    let name = std::ffi::CString::new(directory.as_os_str().as_encoded_bytes()).unwrap();
    let turn = libc::sched_param { sched_priority: 1 };
    // SAFETY: a live value of the type; 0 is this thread. Where it is refused, it takes more tries.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const turn) };
    files_as(uid);
    // SAFETY: takes integers only.
    let events = unsafe { libc::inotify_init1(libc::IN_NONBLOCK) };
    // SAFETY: a live string that ends with NUL.
    assert!(unsafe { libc::inotify_add_watch(events, name.as_ptr(), libc::IN_ATTRIB) } > 0);
    let mut event = [0_u8; 4096];
    while !done.load(Ordering::Relaxed) {
        let mut wait = libc::pollfd { fd: events, events: libc::POLLIN, revents: 0 };
        // SAFETY: one live pollfd.
        unsafe { libc::poll(&raw mut wait, 1, 100) };
        // SAFETY: as many bytes as the array has.
        let read = unsafe { libc::read(events, event.as_mut_ptr().cast(), event.len()) };
        if let Some(name) = event[16..].split(|byte| *byte == 0).next().filter(|_| read > 16) {
            let ipc = directory.join(std::str::from_utf8(name).unwrap()).join("ipc");
            if fs::rename(&ipc, ipc.with_file_name("aside")).is_ok() {
                symlink(target, &ipc).unwrap_or(());
            }
        }
    }
    // SAFETY: ours, and used no more.
    unsafe { libc::close(events) };
}

/// From now on this thread makes, opens and removes files as `uid`.
#[allow(unsafe_code, reason = "no safe wrapper changes the user of one thread for its files alone")]
pub(crate) fn files_as(uid: u32) {
    // SAFETY: takes integers only; changes this thread alone.
    unsafe { libc::setfsgid(uid) };
    // SAFETY: as above.
    unsafe { libc::setfsuid(uid) };
}

/// This thread, and what it starts, use one processor.
#[allow(unsafe_code, reason = "no safe wrapper says which processors a thread may use")]
pub(crate) fn on_one_processor() {
    // SAFETY: plain integers, for which all zero is a value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: takes nothing.
    let here = unsafe { libc::sched_getcpu() };
    // SAFETY: the number of a processor that exists.
    unsafe { libc::CPU_SET(usize::try_from(here).unwrap(), &mut set) };
    // SAFETY: a live set, and its size; 0 is this thread.
    assert_eq!(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) }, 0);
}

/// With a full directory for temporary files, callgate returns when it is gone.
#[test]
fn the_private_directory_is_gone_when_callgate_has_returned() {
    matrix(&[Host::NoNamespaces], |target| {
        let env = TestEnv::new(target);
        let directory = temporary(&env, &env.outside());
        let script = "cd \"$TMPDIR\"; mkdir {1..10}; for d in {1..10}; do for f in {1..100}; do : > $d/$f; done; done";
        let ended = with_temporary(env.sandbox(), &directory).run(&["bash", "-c", script]);
        assert!(ended.status.success(), "{ended:?}");
        assert_eq!(left(&directory), [] as [PathBuf; 0]);
    });
}

/// D12: what a command works in is removed also if the command is killed by the signal that it cannot catch.
#[test]
fn d12_a_killed_command_leaves_no_scratch_directory() {
    let callgate = Binaries::of_this_build().callgate().display().to_string();
    matrix(&[Host::NoNamespaces], |target| {
        for (words, prefix) in [(&["doctor", "--attack"][..], "callgate-attack-"), (&["bench"], "callgate-scratch-")] {
            let env = TestEnv::new(target);
            let directory = temporary(&env, &env.outside());
            let words: Vec<&str> = std::iter::once(callgate.as_str()).chain(words.iter().copied()).collect();
            let mut command = with_temporary(env.weakened(), &directory).command(&words);
            let mut command = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let made = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(prefix);
            eventually("it works there", || left(&directory).iter().any(|path| made(path) && !left(path).is_empty()));
            command.kill().unwrap();
            command.wait().unwrap();
            // The signal may come between the making of the place for results and the hand-over to the launcher.
            let just_made = |path: &PathBuf| {
                path.file_name().unwrap().to_string_lossy().starts_with("callgate-out-") && left(path).is_empty()
            };
            eventually("nothing is left", || left(&directory).iter().all(just_made));
        }
    });
}
