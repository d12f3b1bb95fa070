//! The broker acts on the file that is meant, whatever its path says: names that were removed, paths in another mount
//! tree, directories that are mounted twice, and paths longer than the kernel can tell (A3, A9, A12, A18).

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use callgate_tests::{Host, ProgramRunner, Target, TestEnv, matrix, skip};

use crate::protect::picture;

const PYTHON: &str = "/usr/bin/python3";

/// Runs each act, and prints its name and what came of it.
const TRY: &str = "
import errno, os, sys
def attempt(name, act):
    try: act(); print(name, 'ok')
    except OSError as e: print(name, errno.errorcode[e.errno])
# With a directory, Python follows the link of procfs (AT_SYMLINK_FOLLOW).
def link(fd, name): os.link(f'/proc/self/fd/{fd}', name, src_dir_fd=os.open('.', os.O_PATH))
";

fn python(run: &ProgramRunner, script: &str, arguments: &[&str]) -> String {
    let script = format!("{TRY}{script}");
    let ended = run.run(&[&[PYTHON, "-c", &script], arguments].concat());
    assert!(ended.status.success(), "{ended:?}");
    ended.stdout
}

/// Output of a script where each act is refused, or each succeeds.
fn all(acts: &[&str], came: &str) -> String {
    acts.iter().map(|act| format!("{act} {came}\n")).collect()
}

const BY_DESCRIPTOR: &[&str] = &["open", "append", "truncate", "fchmod", "utime", "setxattr", "link"];

/// A3: whoever removes the other name of a kept file has a descriptor whose path leads nowhere, of a file with one name.
#[test]
fn a3_a_kept_file_whose_other_name_was_removed_stays() {
    let script = "
name = sys.argv[1]
fd = os.open(name, os.O_RDONLY); own = f'/proc/self/fd/{fd}'
os.unlink(name) if sys.argv[2] == 'unlink' else os.rename('plain', name)
attempt('open', lambda: os.close(os.open(own, os.O_WRONLY)))
attempt('append', lambda: os.write(os.open(own, os.O_WRONLY | os.O_APPEND), b'new'))
attempt('truncate', lambda: os.truncate(own, 0))
attempt('fchmod', lambda: os.fchmod(fd, 0o777))
attempt('utime', lambda: os.utime(fd, (1, 1)))
attempt('setxattr', lambda: os.setxattr(fd, 'user.x', b'x'))
attempt('link', lambda: link(fd, 'new'))
";
    matrix(Host::STRENGTHS, |target| {
        for way in ["unlink", "rename"] {
            let env = TestEnv::new(target);
            let hooks = env.workspace().join(".git/hooks");
            fs::create_dir_all(&hooks).unwrap();
            [&env.workspace().join(".git"), &hooks].into_iter().for_each(|directory| env.give(directory));
            for (kept, other) in [(".env", "other"), (".git/hooks/pre-push", "twin")] {
                let file = env.workspace_file(kept, "old");
                fs::hard_link(&file, env.workspace().join(other)).unwrap();
                env.workspace_file("plain", "plain");
                let before = file.metadata();
                assert_eq!(python(&env.sandbox(), script, &[other, way]), all(BY_DESCRIPTOR, "EACCES"), "{way} {kept}");
                file.assert_contents("old");
                assert_eq!(file.metadata().split(" changed").next(), before.split(" changed").next());
            }
            // The control: without callgate.
            let file = env.workspace_file(".env", "old");
            drop(fs::remove_file(env.workspace().join("other")));
            fs::hard_link(&file, env.workspace().join("other")).unwrap();
            env.workspace_file("plain", "plain");
            assert_eq!(python(&env.bare(), script, &["other", way]), all(BY_DESCRIPTOR, "ok"));
            file.assert_contents("");
        }
    });
}

/// Programs remove their temporary files and go on with them.
#[test]
fn a3_a_removed_file_of_the_call_s_own_can_be_written() {
    let script = "
fd = os.open('mine', os.O_CREAT | os.O_RDWR); own = f'/proc/self/fd/{fd}'
os.unlink('mine')
attempt('open', lambda: os.write(os.open(own, os.O_WRONLY), b'new'))
attempt('fchmod', lambda: os.fchmod(fd, 0o600))
unnamed = os.open('.', os.O_TMPFILE | os.O_RDWR)
attempt('link', lambda: link(unnamed, 'made'))
";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let acts = if supports_unnamed(&env) { &["open", "fchmod", "link"][..] } else { return };
        assert_eq!(python(&env.sandbox(), script, &[]), all(acts, "ok"));
        assert!(env.workspace().join("made").is_file());
    });
}

fn supports_unnamed(env: &TestEnv) -> bool {
    let script = "os.open('.', os.O_TMPFILE | os.O_RDWR)";
    env.bare().run(&[PYTHON, "-c", &format!("import os; {script}")]).status.success()
}

/// A3: where some directory cannot be looked into, a file with two names might have a kept one there. A call can make such a
/// directory itself.
#[test]
fn a3_an_unreadable_directory_hides_no_other_name() {
    let script = "
os.chmod('before', 0); os.mkdir('after'); os.chmod('after', 0)
attempt('other', lambda: os.close(os.open('other', os.O_WRONLY)))
open('one', 'w').close(); os.link('one', 'two')
attempt('own', lambda: os.close(os.open('two', os.O_WRONLY)))
os.chmod('before', 0o700); os.chmod('after', 0o700); os.rmdir('after')
";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        // In whichever order directories are listed, one that cannot be looked into is looked for before the kept name.
        fs::create_dir(env.workspace().join("before")).unwrap();
        env.give(&env.workspace().join("before"));
        let deep = env.workspace().join("a/.vscode");
        fs::create_dir_all(&deep).unwrap();
        let kept = env.file_at(deep.join("tasks.json"), "old");
        fs::hard_link(&kept, env.workspace().join("other")).unwrap();
        assert_eq!(python(&env.bare(), script, &[]), "other ok\nown ok\n", "the control");
        for name in ["one", "two"] {
            fs::remove_file(env.workspace().join(name)).unwrap();
        }
        assert_eq!(python(&env.sandbox(), script, &[]), "other EACCES\nown ok\n");
        kept.assert_contents("old");
    });
}

/// A12: a file that was handed in lies in the host's mount tree. Its path may be one in the session's, of which it may change
/// all: `/tmp/x` is not `/tmp/x`.
#[test]
fn a12_metadata_of_a_file_that_was_handed_in_stays() {
    let acts = ["fchmod", "utime", "setxattr", "fchown"];
    let script = "
attempt('fchmod', lambda: os.fchmod(0, 0o777))
attempt('utime', lambda: os.utime(0, (1, 1)))
attempt('setxattr', lambda: os.setxattr(0, 'user.x', b'x'))
attempt('fchown', lambda: os.fchown(0, os.getuid(), -1))
";
    let script = format!("{TRY}{script}");
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let run = |run: &ProgramRunner, file: &Path| {
            let output = run.command(&[PYTHON, "-c", &script]).stdin(File::open(file).unwrap()).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let theirs = env.file("theirs", "old");
        assert!(theirs.starts_with("/tmp") || theirs.starts_with("/var/tmp"), "{}", theirs.display());
        let before = theirs.metadata();
        assert_eq!(run(&env.sandbox(), &theirs), all(&acts, "EACCES"));
        assert_eq!(theirs.metadata(), before);
        // The controls: what is handed in and lies in the workspace, and no callgate.
        assert_eq!(run(&env.sandbox(), &env.workspace_file("mine", "old")), all(&acts, "ok"));
        assert_eq!(run(&env.bare(), &theirs), all(&acts, "ok"));
    });
}

/// A12: the same of what was opened for writing: that allows writing, and no more.
#[test]
fn a12_metadata_of_an_output_outside_stays() {
    let script = "
attempt('fchmod', lambda: os.fchmod(1, 0o777))
attempt('utime', lambda: os.utime(1, (1, 1)))
";
    let script = format!("{TRY}sys.stdout = sys.stderr\n{script}");
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let theirs = env.file("theirs", "old");
        for (run, came) in [(env.sandbox(), "EACCES"), (env.bare(), "ok")] {
            let before = theirs.metadata();
            let to = OpenOptions::new().append(true).open(&theirs).unwrap();
            let output = run.command(&[PYTHON, "-c", &script]).stdout(to).output().unwrap();
            assert_eq!(String::from_utf8(output.stderr).unwrap(), all(&["fchmod", "utime"], came));
            assert_eq!(theirs.metadata() == before, came == "EACCES");
        }
    });
}

/// In a mount namespace in which `from` is mounted at `to` as well. Only root can make one.
fn with_mounts(mounts: &[(&Path, &Path)], inner: &Command) -> Command {
    let line = |(from, to): &(&Path, &Path)| format!("mount --bind '{}' '{}' && ", from.display(), to.display());
    let script = format!("{}exec \"$@\"", mounts.iter().map(line).collect::<String>());
    let mut command = Command::new("/usr/bin/unshare");
    command.args(["-m", "--propagation", "private", "/bin/sh", "-c", &script, "sh"]);
    command.arg(inner.get_program()).args(inner.get_args()).stdin(Stdio::null());
    command.current_dir(inner.get_current_dir().unwrap());
    command
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// A workspace with an empty `alias`, and directories in which names are kept.
fn with_alias(target: Target) -> (TestEnv, PathBuf) {
    let env = TestEnv::new(target);
    for directory in [".git", ".git/hooks", "alias", "src"] {
        fs::create_dir(env.workspace().join(directory)).unwrap();
        env.give(&env.workspace().join(directory));
    }
    let alias = env.workspace().join("alias");
    (env, alias)
}

/// Output, but for what callgate says of it.
fn ended(mut command: Command) -> (bool, String) {
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let own = stderr.split_inclusive('\n').filter(|line| !line.starts_with("callgate: protected, and not changed: "));
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned() + &own.collect::<String>())
}

/// A18: a kept name in a directory that is mounted twice is kept by either way to it.
#[test]
fn a18_a_directory_that_is_mounted_twice_keeps_its_names() {
    if !is_root() {
        return skip("root", "only root can mount");
    }
    let acts = ["make", "config", "hooks", "move"];
    let script = "
here = sys.argv[1]
attempt('make', lambda: open(f'{here}/hooks/pre-push', 'w').close())
attempt('config', lambda: open(f'{here}/config', 'w').close())
attempt('hooks', lambda: os.rename(f'{here}/hooks', f'{here}/x'))
attempt('move', lambda: os.rename('.git', 'other'))
attempt('plain', lambda: open(f'{here}/plain', 'w').close())
";
    let script = format!("{TRY}{script}");
    matrix(Host::STRENGTHS, |target| {
        // In the workspace, and as a grant of its own.
        for apart in [false, true] {
            let (env, inside) = with_alias(target);
            let alias = if apart { env.outside() } else { inside };
            let git = env.workspace().join(".git");
            let run = |run: &ProgramRunner| {
                let inner = run.command(&[PYTHON, "-c", &script, alias.to_str().unwrap()]);
                ended(with_mounts(&[(&git, &alias)], &inner))
            };
            let before = picture(&git);
            let (ok, came) = run(&env.sandbox().write(&alias));
            assert!(ok, "{came}");
            assert_eq!(came, all(&acts, "EACCES") + "plain ok\n", "apart {apart}");
            fs::remove_file(git.join("plain")).unwrap();
            assert_eq!(picture(&git), before);
            let (ok, came) = run(&env.bare());
            // A directory that is mounted elsewhere may be renamed.
            assert!(ok && came == all(&acts, "ok") + "plain ok\n", "the control: {came}");
        }
    });
}

/// A18: the other way round, a directory that is mounted where names are kept: in the workspace, and outside of all grants.
#[test]
fn a18_a_directory_that_is_seen_where_names_are_kept() {
    if !is_root() {
        return skip("root", "only root can mount");
    }
    let script = "
attempt('make', lambda: open('src/settings.json', 'w').close())
attempt('move', lambda: os.rename('src', 'other'))
attempt('plain', lambda: open('plain', 'w').close())
";
    let script = format!("{TRY}{script}");
    matrix(Host::STRENGTHS, |target| {
        for place in ["workspace", "outside"] {
            let (env, _) = with_alias(target);
            let settings = env.workspace().parent().unwrap().join(place).join(".vscode");
            fs::create_dir(&settings).unwrap();
            let source = env.workspace().join("src");
            let run = |run: &ProgramRunner| {
                ended(with_mounts(&[(&source, &settings)], &run.command(&[PYTHON, "-c", &script])))
            };
            let (ok, came) = run(&env.sandbox());
            assert!(ok && came == "make EACCES\nmove EACCES\nplain ok\n", "{place}: {came}");
            assert!(picture(&source).is_empty());
            assert_eq!(run(&env.bare()).1, "make ok\nmove ok\nplain ok\n", "the control");
        }
    });
}

/// A18: what is mounted into the workspace from where names are kept that no grant mentions.
#[test]
fn a18_a_directory_from_outside_keeps_its_names() {
    if !is_root() {
        return skip("root", "only root can mount");
    }
    let script = "
attempt('make', lambda: open('alias/config.fish', 'w').close())
attempt('plain', lambda: open('plain', 'w').close())
";
    let script = format!("{TRY}{script}");
    matrix(Host::STRENGTHS, |target| {
        let (env, alias) = with_alias(target);
        let fish = env.outside().join(".config/fish");
        fs::create_dir_all(&fish).unwrap();
        env.give(&fish);
        let run = |run: &ProgramRunner| ended(with_mounts(&[(&fish, &alias)], &run.command(&[PYTHON, "-c", &script])));
        let (ok, came) = run(&env.sandbox());
        assert!(ok && came == "make EACCES\nplain ok\n", "{came}");
        assert!(picture(&fish).is_empty());
        assert_eq!(run(&env.bare()).1, "make ok\nplain ok\n", "the control");
    });
}

/// A18: where Landlock alone bounds writing, nobody could keep those names: there is no session, and it says why.
#[test]
fn a18_a_free_directory_that_is_another_s_place_is_refused() {
    if !is_root() {
        return skip("root", "only root can mount");
    }
    matrix(Host::STRENGTHS, |target| {
        let (env, _) = with_alias(target);
        let (git, free) = (env.workspace().join(".git"), env.workspace().join("target"));
        fs::create_dir_all(free.join("hooks")).unwrap();
        [&free, &free.join("hooks")].into_iter().for_each(|directory| env.give(directory));
        let lines = "id = \"x\"\n[[requires.shell]]\ncmd = \"*\"\n[requires.fs]\nread = [\"{workspace}/**\"]\n";
        let manifest = env.file("m.toml", &format!("{lines}write = [\"{{workspace}}/target/**\"]\n"));
        let only_free = env.sandbox().flag(&["--manifest", manifest.text()]);
        let run = |run: &ProgramRunner, mounts: &[(&Path, &Path)]| {
            ended(with_mounts(mounts, &run.command(&["/bin/sh", "-c", "echo x > target/hooks/pre-push"])))
        };
        let hook = git.join("hooks/pre-push");
        let (ok, came) = run(&only_free, &[(&git, &free)]);
        assert!(!ok && came.contains("is mounted from where names are kept"), "{came}");
        // In a workspace that may be written it is the broker's.
        let (ok, came) = run(&env.sandbox(), &[(&git, &free)]);
        assert!(!ok && came.contains("ermission denied"), "{came}");
        assert!(!hook.exists());
        let (ok, came) = run(&only_free, &[]);
        assert!(ok && free.join("hooks/pre-push").exists(), "the control: not mounted: {came}");
        let (ok, came) = run(&env.bare(), &[(&git, &free)]);
        assert!(ok && hook.exists(), "the control: {came}");
    });
}

/// C16: a path may be as long as it is outside, where it lies deeper than the kernel can say.
#[test]
fn c16_a_path_as_long_as_a_path_may_be() {
    let acts = ["chmod", "truncate", "utime", "link", "rename", "open", "unlink"];
    let script = "
step = 'd' * 200
names = [step] * 20
top = os.getcwd()
for name in names: os.mkdir(name); os.chdir(name)
os.chdir(top)
base = '/'.join(names) + '/'
path = base + 'f' * (4095 - len(base)); other = path[:-1] + 'g'
os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
attempt('chmod', lambda: os.chmod(path, 0o640))
attempt('truncate', lambda: os.truncate(path, 3))
attempt('utime', lambda: os.utime(path, (1, 1)))
attempt('link', lambda: os.link(path, other))
attempt('rename', lambda: os.rename(other, path))
attempt('open', lambda: os.close(os.open(path, os.O_WRONLY)))
attempt('kept', lambda: os.close(os.open(base + '.npmrc', os.O_CREAT | os.O_WRONLY)))
attempt('unlink', lambda: os.unlink(path))
";
    matrix(Host::STRENGTHS, |target| {
        let came = |run: &ProgramRunner, env: &TestEnv| {
            let came = python(run, script, &[]);
            fs::remove_dir_all(env.workspace()).unwrap();
            came
        };
        let [bare, inside] = [TestEnv::new(target), TestEnv::new(target)];
        let wanted = |kept: &str| all(&acts[..6], "ok") + &format!("kept {kept}\n") + &all(&acts[6..], "ok");
        assert_eq!(came(&bare.bare(), &bare), wanted("ok"), "the control");
        assert_eq!(came(&inside.sandbox(), &inside), wanted("EACCES"));
    });
}

/// D9: what fails for a limit of the process is not taken for a host without namespaces: the session is refused, and says what
/// to raise.
#[test]
fn d9_a_limit_is_not_a_host_without_namespaces() {
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        let run = |most: u32| {
            let inner = env.sandbox().command(&["/bin/true"]);
            let mut command = Command::new("/bin/sh");
            command.args(["-c", &format!("ulimit -n {most}; exec \"$@\""), "sh"]);
            command.arg(inner.get_program()).args(inner.get_args()).current_dir(env.workspace()).stdin(Stdio::null());
            let output = command.output().unwrap();
            (output.status.code(), String::from_utf8(output.stderr).unwrap())
        };
        for most in [16, 20, 24] {
            let (status, told) = run(most);
            assert!(matches!(status, Some(69 | 70)), "{most}: {told}");
            assert!(told.contains("Too many open files"), "{most}: {told}");
            // The name of the directory that the weaker strength would have made.
            let told = told.replace(&env.workspace().display().to_string(), "WORKSPACE");
            assert!(!told.contains("/callgate-"), "{most}: {told}");
        }
        let (status, told) = run(20);
        assert!(status == Some(69) && told.contains("a limit") && told.contains("ulimit -n"), "{told}");
        assert_eq!(run(256).0, Some(0), "the control");
        let clone = ["fail", "clone", "ENOSPC", "arg0&0x10000000=0x10000000"];
        let none_left = env.sandbox().weaken(&clone).run(&["/bin/true"]);
        assert_eq!(none_left.status.code(), Some(69), "{none_left:?}");
        assert!(none_left.stderr.contains("user.max_*_namespaces"), "{none_left:?}");
    });
}

/// D9: nor is a TMPDIR that is not there.
#[test]
fn d9_a_missing_tmpdir_is_named() {
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        let absent = env.outside().join("absent");
        let run = env.weakened().variable("TMPDIR", absent.to_str().unwrap());
        let callgate = callgate_tests::Binaries::of_this_build().callgate();
        let ended = run.run(&[callgate.to_str().unwrap(), "doctor", "--attack"]);
        assert_eq!(ended.status.code(), Some(64), "{ended:?}");
        assert!(ended.stderr.contains("TMPDIR") && ended.stderr.contains("No such file"), "{ended:?}");
    });
}
