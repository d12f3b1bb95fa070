//! git as people use it: with their own name and short commands.

use std::fs;

use callgate_tests::{Host, Run, TestEnv, matrix};

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

/// What of it stands in a session's `~/.gitconfig`.
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

fn sh(run: &Run, script: &str) -> callgate_tests::Ended {
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
