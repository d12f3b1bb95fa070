//! git as people use it: with their own name and short commands, and granted alone.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use callgate_tests::{Binaries, Host, ProgramRunner, TestEnv, User, matrix};
use serde_json::json;

/// A person's configuration: what sessions get, and what they do not.
const PERSON: &str = "\
[user]
\tname = Zoë \"Z\" Example
\temail = zoe@example.com
\tsigningKey = ABCD
[init]
\tdefaultBranch = trunk
[core]
\tautocrlf = input
\teditor = touch edited
\tpager = touch paged
\tsshCommand = touch connected
\thooksPath = HOME/hooks
[commit]
\tgpgSign = true
\ttemplate = HOME/template
[alias]
\tst = status --short
\trun = !touch aliased
\tvia = -c core.fsmonitor=x status
[credential \"https://example.com\"]
\thelper = store
\tusername = zoe
[url \"https://TOKEN@example.com/\"]
\tinsteadOf = gh:
[include]
\tpath = included
[github]
\ttoken = TOKEN
";

/// Part of it that stands in a session's `~/.gitconfig`.
const INSIDE: &str = "user.name=Zoë Z Example\nuser.email=zoe@example.com\ninit.defaultbranch=trunk\ncore.autocrlf=input\n\
                      alias.st=status --short\n";

/// A home outside with that configuration.
fn home(env: &TestEnv) -> String {
    let home = env.outside().display().to_string();
    env.file(".gitconfig", &PERSON.replace("HOME", &home));
    env.file("included", "[user]\n\tname = Included\n");
    env.file("template", "a template\n");
    home
}

fn sh(run: &ProgramRunner, script: &str) -> callgate_tests::ProgramOutcome {
    run.run(&["/bin/sh", "-c", script])
}

/// A person's name and harmless settings are there; what runs a program, names a file or holds a secret is not.
#[test]
fn a_person_s_git_configuration_is_there_as_far_as_it_is_harmless() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let home = home(&env);
        let list = "git config --global --includes --list";
        let inside = sh(&env.sandbox().variable("HOME", &home), list);
        assert_eq!((inside.status.code(), inside.stdout.as_str()), (Some(0), INSIDE), "{inside:?}");
        let bare = sh(&env.bare().variable("HOME", &home), list);
        for more in ["core.editor=touch edited", "alias.run=!touch aliased", "user.name=Included", "github.token=TOKEN"]
        {
            assert!(bare.stdout.contains(more), "bare: {more}: {bare:?}");
        }
        let work = "git init -q . && echo x > file && git add file && git commit -qm one && git st && \
                    git log -1 --format='%an <%ae>' && git branch --show-current";
        let inside = sh(&env.sandbox().variable("HOME", &home), work);
        let wanted = "Zoë Z Example <zoe@example.com>\ntrunk\n";
        assert_eq!((inside.status.code(), inside.stdout.as_str()), (Some(0), wanted), "{inside:?}");
        // Neither alias is there, nor the editor.
        let inside = sh(&env.sandbox().variable("HOME", &home), "git run; git via; git var GIT_EDITOR; ls");
        assert!(inside.stderr.contains("'run' is not a git command"), "{inside:?}");
        assert!(inside.stderr.contains("'via' is not a git command"), "{inside:?}");
        assert!(!inside.stdout.contains("touch") && !inside.stdout.contains("aliased"), "{inside:?}");
        let bare = sh(&env.bare().variable("HOME", &home), "git run");
        assert!(bare.status.success() && env.workspace().join("aliased").is_file(), "{bare:?}");
    });
}

/// Where git looks: also in `XDG_CONFIG_HOME`, and with `GIT_CONFIG_GLOBAL` nowhere else. What a call sets is the session's.
#[test]
fn a_person_s_git_configuration_is_found_and_stays_as_it_is() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let home = home(&env);
        let person = env.file(".gitconfig", "[user]\n\tname = Home\n");
        for directory in ["xdg", "xdg/git"] {
            fs::create_dir(env.outside().join(directory)).unwrap();
            env.give(&env.outside().join(directory));
        }
        env.file("xdg/git/config", "[user]\n\tname = Xdg\n\temail = x@example.com\n");
        let other = env.file("other", "[user]\n\tname = Other\n");
        let run = env.sandbox().variable("HOME", &home);
        let xdg = env.outside().join("xdg").display().to_string();
        let show = "git config user.name; git config user.email; true";
        for (run, wanted) in [
            (run.clone(), "Home\n"),
            (run.clone().variable("XDG_CONFIG_HOME", &xdg), "Home\nx@example.com\n"),
            (run.clone().variable("GIT_CONFIG_GLOBAL", other.text()), "Other\n"),
            (run.clone().variable("GIT_CONFIG_GLOBAL", "/dev/null"), ""),
        ] {
            let ended = sh(&run, show);
            assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), wanted), "{ended:?}");
        }
        let set = "git config --global user.name Set && git config --global alias.x '!echo ran' && git config user.name && git x";
        let ended = sh(&run, set);
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), "Set\nran\n"), "{ended:?}");
        person.assert_contents("[user]\n\tname = Home\n");
        let ended = sh(&run, show);
        assert_eq!(ended.stdout, "Home\n", "the next session: {ended:?}");
        // Where single programs are granted it cannot be changed.
        let judged = run.flag(&["--exec", "/bin/sh", "--exec", "git", "--exec", "cat"]);
        let ended = sh(&judged, "git config --global user.name Set; echo x >> ~/.gitconfig; cat ~/.gitconfig");
        assert_eq!(ended.stdout, "[user]\n\tname = \"Home\"\n", "{ended:?}");
        assert!(ended.stderr.contains("Permission denied"), "{ended:?}");
    });
}

/// The gits of this machine: distributions install theirs differently from what git's own Makefile does.
fn gits() -> Vec<&'static str> {
    let there = ["/usr/bin/git", "/usr/local/bin/git"].into_iter().filter(|path| Path::new(path).is_file());
    let all: Vec<&str> = there.collect();
    assert!(!all.is_empty(), "git is installed");
    all
}

/// Work that starts programs of git's own.
const WORK: &str = "set -e; $GIT init -q -b main . && $GIT config user.name a && $GIT config user.email a@b.c && \
                    echo 1 > f && $GIT add f && $GIT commit -qm one && echo 2 > f && $GIT stash -q && $GIT stash pop -q && \
                    $GIT commit -qam two && $GIT checkout -qb side HEAD~1 && echo 3 > g && $GIT add g && $GIT commit -qm three && \
                    $GIT rebase -q main && $GIT gc -q && $GIT clone -q . copy && $GIT -C copy pull -q && $GIT -C copy log --format=%s";

/// Whoever grants git grants the parts of it that lie in files of their own, and nothing else.
#[test]
fn git_granted_alone_starts_its_own_helpers() {
    matrix(Host::STRENGTHS, |target| {
        for git in gits() {
            let env = TestEnv::new(target);
            let script = format!("GIT={git}; {WORK}");
            let run = env.sandbox().flag(&["--exec", "/bin/sh", "--exec", git]);
            let ended = sh(&run, &script);
            assert_eq!(
                (ended.status.code(), ended.stdout.as_str()),
                (Some(0), "three\ntwo\none\n"),
                "{git}: {ended:?}"
            );
            assert!(!ended.stderr.contains("not started"), "{git}: {ended:?}");
            // A script among them, with what it starts itself.
            let run = run.flag(&["--exec", "sed", "--exec", "basename", "--exec", "uname"]);
            let ended = sh(&run, &format!("{git} submodule status"));
            assert!(ended.status.success(), "{git}: {ended:?}");
            for denied in ["touch made", "$($GIT --exec-path)/../../bin/touch made", "$GIT -c alias.x='!touch made' x"]
            {
                let ended = sh(&run, &format!("GIT={git}; {denied}"));
                assert!(!ended.status.success() && !env.workspace().join("made").is_file(), "{denied}: {ended:?}");
            }
        }
    });
}

/// C11: with `args` the helpers take the same arguments as the program, and those for single commands are not started.
#[test]
fn c11_helpers_take_no_other_arguments() {
    matrix(Host::STRENGTHS, |target| {
        for git in gits() {
            let env = TestEnv::new(target);
            let made = sh(&env.bare(), &format!("GIT={git}; {WORK}; git --exec-path > /dev/null; {git} --exec-path"));
            assert!(made.status.success(), "{made:?}");
            let core = made.stdout.lines().last().unwrap();
            let kept = env.workspace().join("f");
            let table = |name: &str| {
                format!(
                    "[[{name}.shell]]\ncmd = \"/bin/sh\"\n[[{name}.shell]]\ncmd = \"{git}\"\nargs = [\"log\", {{ rest = true }}]\n"
                )
            };
            let both = table("requires") + &table("ceiling");
            env.workspace_file("m.toml", &format!("id = \"x\"\n[requires.fs]\nwrite = [\"{{workspace}}/**\"]\n{both}"));
            let judged = env.sandbox().flag(&["--manifest", "m.toml"]);
            for granted in [git, &format!("{core}/git")] {
                let ended = sh(&judged, &format!("{granted} log --format=%s -1"));
                assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), "three\n"), "{granted}: {ended:?}");
            }
            let rms = [format!("{git} rm -qf f"), format!("{core}/git rm -qf f"), format!("{core}/git-rm -qf f")];
            for denied in rms.iter().chain(&[format!("{core}/git-submodule log")]) {
                let ended = sh(&judged, denied);
                assert_eq!((ended.status.code(), kept.is_file()), (Some(126), true), "{denied}: {ended:?}");
            }
            for rm in &rms {
                let bare = sh(&env.bare(), rm);
                assert!(bare.status.success() && !kept.is_file(), "bare: {rm}: {bare:?}");
                assert!(sh(&env.bare(), &format!("{git} reset -q --hard")).status.success());
            }
        }
    });
}

/// C12: what lies where helpers would is one only if it is root's, and where the session cannot write.
#[test]
fn c12_what_others_put_beside_a_program_is_no_helper() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for top in [env.workspace(), env.outside()] {
            let make = "mkdir -p p/bin p/lib/git-core && cp /bin/true p/bin/git && \
                        printf '#!/bin/sh\necho helper\n' > p/lib/git-core/git-x && chmod 755 p/lib/git-core/git-x";
            assert!(sh(&env.bare().started_in(&top), make).status.success());
            fs::set_permissions(top.join("p/lib/git-core"), fs::Permissions::from_mode(0o755)).unwrap();
            let helper = top.join("p/lib/git-core/git-x").display().to_string();
            let git = top.join("p/bin/git").display().to_string();
            let run = env.sandbox().read(env.outside()).flag(&["--exec", "/bin/sh", "--exec", &git]);
            let ended = sh(&run, &format!("{git} && {helper}"));
            // With namespaces the session has a `/tmp` of its own, which it writes and in which this lies.
            let is_fixed = top == env.outside() && target.host == Host::NoNamespaces;
            let is_helper = is_fixed && target.user == User::Root;
            let wanted = if is_helper { (Some(0), "helper\n") } else { (Some(126), "") };
            assert_eq!((ended.status.code(), ended.stdout.as_str()), wanted, "{helper}: {ended:?}");
            assert_eq!(sh(&env.bare(), &helper).stdout, "helper\n");
        }
    });
}

/// A directory below a repository's top is a workspace like any other, and whoever needs git there hears where the whole is.
#[test]
fn a_part_of_a_repository_says_where_the_whole_is() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let top = env.workspace().display().to_string();
        assert!(sh(&env.bare(), "git init -q -b main . && mkdir part && echo x > part/file").status.success());
        let binary = Binaries::of_this_build().callgate().display().to_string();
        let part = env.weakened().started_in(env.workspace().join("part"));
        let run = |flags: &[&str], words: &[&str]| part.run(&[&[&binary, "run"], flags, &["--"], words].concat());
        let bash = |command: &str| part.run(&[&binary, "call", "bash", &json!({ "command": command }).to_string()]);
        let told = format!("part of the git repository {top}, which is not granted");
        for ended in [run(&[], &["git", "status"]), run(&[], &["sh", "-c", "exec /usr/bin/env git log"])] {
            assert_eq!(ended.status.code(), Some(128), "{ended:?}");
            assert!(ended.stderr.contains(&told) && ended.stderr.contains(&format!("try: -C {top}\n")), "{ended:?}");
        }
        assert!(bash("git status").stderr.contains(&told));
        // What needs no repository, or is not git, works and says nothing.
        for ended in
            [run(&[], &["git", "--version"]), run(&[], &["cat", "file"]), bash("cat file; exit 128"), bash("echo git")]
        {
            assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
        }
        // As it says; and where the repository can be read.
        for flags in [["-C", &top], ["--read", &top]] {
            let ended = run(&flags, &["git", "status", "--short"]);
            assert!(ended.status.success() && !ended.stderr.contains("part of"), "{ended:?}");
        }
        // A repository of its own.
        assert_eq!(run(&[], &["git", "init", "-q", "."]).status.code(), Some(0));
        assert!(!run(&[], &["git", "log"]).stderr.contains("part of"));
    });
}
