//! Repositories that are not called `.git`: what a `.git` leads to, bare ones of any name, and those that a call makes (A18, F1,
//! F5, F6).

use std::fs;

use callgate_tests::{Host, ProgramRunner, Target, TestEnv, matrix};
use serde_json::Value;

use crate::protect::picture;

const IDENTITY: &str = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.c GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.c";

/// A workspace that a script has furnished, outside.
fn furnished(target: Target, script: &str) -> TestEnv {
    let env = TestEnv::new(target);
    let ended = env.bare().run(&["/bin/sh", "-c", &format!("set -e; {IDENTITY}; {script}")]);
    assert!(ended.status.success(), "{script}: {ended:?}");
    env
}

fn sh(run: &ProgramRunner, script: &str) -> callgate_tests::ProgramOutcome {
    run.run(&["/bin/sh", "-c", &format!("{IDENTITY}; {script}")])
}

/// Changes in the result of a command.
fn changes(env: &TestEnv, script: &str) -> Value {
    let status = env.outside().join("status");
    let ended = sh(&env.sandbox().flag(&["--status", status.to_str().unwrap()]), &format!("set -e; {script}"));
    assert!(ended.status.success(), "{script}: {ended:?}");
    let envelope: Value = serde_json::from_slice(&fs::read(&status).unwrap()).unwrap();
    envelope["metadata"]["changes"].clone()
}

/// True if a list of the result has a path in the workspace; of what is noted, whether the note has these words.
fn has(env: &TestEnv, changes: &Value, list: &str, name: &str, words: &str) -> bool {
    let path = env.workspace().join(name).display().to_string();
    let mut all = changes[list].as_array().into_iter().flatten();
    all.any(|one| match one.get("path") {
        Some(noted) => *noted == *path && one["why"].as_str().is_some_and(|why| why.contains(words)),
        None => *one == *path,
    })
}

/// A18, F5, F6: whatever a `.git` leads to, or git takes for a repository, keeps its hooks and its settings. Each with `$R`,
/// where the repository is, and `$W`, where git is used.
#[test]
fn a18_what_a_pointer_leads_to_is_kept() {
    let first = "git init -q -b main . && echo x > f && git add f && git commit -qm one";
    let places = [
        (format!("{first}; mv .git .bare; echo 'gitdir: .bare' > .git"), ".bare", "."),
        (format!("{first}; mv .git .repo; ln -s .repo .git"), ".repo", "."),
        (format!("{first}; mv .git x; echo 'gitdir: ./l/../x' > .git; mkdir a; ln -s a l"), "x", "."),
        (format!("{first}; mv .git x; echo 'gitdir: x' > p; ln -s p .git"), "x", "."),
        (
            "mkdir s && cd s && git init -q -b main . && echo x > f && git add f && git commit -qm one && cd .. && \
             git clone -q --bare s proj.git && rm -rf s && git -C proj.git worktree add -q ../w main"
                .to_owned(),
            "proj.git",
            "w",
        ),
        (
            "mkdir s && cd s && git init -q -b main . && echo x > f && git add f && git commit -qm one && cd .. && \
             git clone -q --bare s store && rm -rf s && git -C store worktree add -q ../w main"
                .to_owned(),
            "store",
            "w",
        ),
    ];
    matrix(Host::STRENGTHS, |target| {
        for (script, repository, worktree) in &places {
            let env = furnished(target, script);
            let top = env.workspace();
            let with = format!("R={repository}; W={worktree}");
            let before = picture(&top);
            let acts = [
                "echo '[alias]x=!y' >> $R/config",
                "git -C $W config core.fsmonitor ./x",
                "cp $R/config $R/c && echo '[core]fsmonitor=./x' >> $R/c && ! mv $R/c $R/config && rm $R/c && false",
                "echo '[alias]x=!y' > $R/config.worktree",
                "mkdir -p $R/hooks && echo x > $R/hooks/post-commit",
                "mv $R/hooks h",
                "echo ../p > $R/commondir",
                "mkdir $R/remotes",
                "mv $R r",
                "for w in $R/worktrees/*; do echo x > $w/commondir || exit 1; done; test -d $R/worktrees",
                "for w in $R/worktrees/*; do echo x > $w/gitdir || exit 1; done; test -d $R/worktrees",
                "rm $W/.git",
                "echo gitdir: p > $W/.git",
            ];
            // All of them in one session, and each changes nothing.
            let each = acts.map(|act| format!("({act}) 2>/dev/null && echo \"done: {}\"", act.replace(['$', '"'], "")));
            let ended = sh(&env.sandbox(), &format!("{with}; {}; true", each.join("\n")));
            assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), ""), "{repository}: {ended:?}");
            assert_eq!(picture(&top), before, "{repository}");
            // The control: what people do with git.
            let work = "set -e; git -C $W config user.name me; echo 1 > $W/one; git -C $W add one; git -C $W commit -qm two; \
                        git -C $W checkout -q -b side; git -C $W gc -q; git -C $W config user.name; git -C $W log --oneline | wc -l";
            let ended = sh(&env.sandbox(), &format!("{with}; {work}"));
            assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), "me\n2\n"), "{repository}: {ended:?}");
            assert!(env.bare().run(&["/bin/sh", "-c", &format!("{with}; echo x > $R/hooks/h")]).status.success());
        }
    });
}

/// F5: where a `.git` leads and nothing is yet, nothing can be made.
#[test]
fn f5_a_pointer_that_leads_nowhere_stays_so() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target, "echo 'gitdir: planted' > .git; mkdir sub; ln -s ../other sub/.git");
        let before = picture(&env.workspace());
        for act in ["git init -q --bare planted", "mkdir planted", "git init -q --bare other", "ln -s x planted"] {
            // One of them is found when something below its directory is to be changed.
            let ended = sh(&env.sandbox(), &format!("echo x > sub/x; rm sub/x; {act}"));
            assert!(!ended.status.success(), "{act}: {ended:?}");
            assert_eq!(picture(&env.workspace()), before, "{act}");
        }
        let ended = sh(&env.sandbox(), "mkdir elsewhere");
        assert!(ended.status.success() && env.workspace().join("elsewhere").is_dir(), "{ended:?}");
    });
}

/// F1: a repository that a call makes, by git or by plain writes, under any name, is in its result, and so is what it has git run.
#[test]
fn f1_a_planted_repository_is_in_the_result() {
    let plain = "mkdir -p s/objects s/refs s/hooks; echo 'ref: refs/heads/main' > s/HEAD";
    let cases = [
        (format!("{plain}; printf '[core]\\n\\tbare = false\\n\\tfsmonitor = ./x\\n' > s/config"), "s", "config", "core.fsmonitor"),
        (format!("{plain}; echo x > s/hooks/pre-push"), "s", "hooks/pre-push", "runs"),
        (format!("{plain}; printf '[include]\\n\\tpath = ../x\\n' > s/config; mkdir d; mv s d/t"), "d/t", "config", "include.path"),
        ("git init -q --bare s; git -C s config core.fsmonitor ./x".to_owned(), "s", "config", "core.fsmonitor"),
        ("mkdir s; echo ../other > s/commondir; echo 'ref: refs/heads/x' > s/HEAD".to_owned(), "s", "commondir", "leads"),
        (
            "mkdir -p .git/modules/n/objects .git/modules/n/refs; printf '[alias]x=!y' > .git/modules/n/config; \
             echo 'ref: refs/heads/main' > .git/modules/n/HEAD"
                .to_owned(),
            ".git/modules/n",
            "config",
            "alias.x",
        ),
        (
            "git init -q n; echo x > n/f; git -C n add f; git -C n commit -qm n; git add n 2>/dev/null; git -C n config core.fsmonitor ./x"
                .to_owned(),
            "n/.git",
            "config",
            "core.fsmonitor",
        ),
        (
            "git config extensions.worktreeConfig true; git worktree add -q wt; git -C wt config --worktree core.fsmonitor ./x"
                .to_owned(),
            ".git/worktrees/wt",
            "config.worktree",
            "core.fsmonitor",
        ),
    ];
    matrix(Host::STRENGTHS, |target| {
        for (script, repository, program, words) in &cases {
            let env = furnished(target, "git init -q -b main . && echo x > f && git add f && git commit -qm one");
            let changes = changes(&env, script);
            assert!(has(&env, &changes, "repositories", repository, ""), "{script}: {changes}");
            let program = format!("{repository}/{program}");
            assert!(has(&env, &changes, "runs_later", &program, words), "{script}: {changes}");
            // git finds it outside, as it was told.
            assert!(env.workspace().join(repository).join("HEAD").exists(), "{script}");
        }
        // The controls: one that runs nothing is named alone, and work in one that was there is no new one.
        let env = furnished(target, "git init -q -b main . && echo x > f && git add f && git commit -qm one");
        let made = changes(&env, "git init -q --bare plain; git clone -q . copy; git -C copy config user.name x");
        for repository in ["plain", "copy/.git"] {
            assert!(has(&env, &made, "repositories", repository, ""), "{made}");
            let config = format!("{repository}/config");
            assert!(!has(&env, &made, "runs_later", &format!("{repository}/hooks/pre-push"), ""), "{made}");
            assert_eq!(
                has(&env, &made, "runs_later", &config, ""),
                repository == "copy/.git",
                "its origin is a path: {made}"
            );
        }
        let worked = changes(
            &env,
            "git config user.name x; echo y > f; git commit -qam two; git checkout -q -b side; git gc -q",
        );
        assert_eq!(worked.get("repositories"), None, "{worked}");
    });
}

/// F1: a repository that one call has made and another changes is in the other's result as well; the next session keeps it.
#[test]
fn f1_a_planted_repository_is_kept_by_the_next_session() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target, "true");
        let made = changes(
            &env,
            "git init -q --bare s; mv s t; git -C t config core.fsmonitor ./x; git -C t config alias.x '!y'",
        );
        assert!(has(&env, &made, "repositories", "t", "") && !has(&env, &made, "repositories", "s", ""), "{made}");
        let before = picture(&env.workspace());
        for act in ["git -C t config core.fsmonitor ./y", "echo x > t/hooks/pre-push", "mv t u"] {
            assert!(!sh(&env.sandbox(), act).status.success(), "{act}");
            assert_eq!(picture(&env.workspace()), before, "{act}");
        }
        assert!(sh(&env.sandbox(), "git -C t config user.name x").status.success());
    });
}

/// A18: settings that lead to a file in a home directory, from which the workspace is granted.
#[test]
fn a18_paths_from_home_are_kept() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(
            target,
            "git init -q .; mkdir hooks; echo x > hooks/pre-push; echo '[user]name=x' > more; echo x > free",
        );
        let name = env.workspace().file_name().unwrap().to_str().unwrap().to_owned();
        let config =
            format!("git config core.hooksPath '~/{name}/hooks'; git config include.path '~someone/{name}/more'");
        assert!(env.bare().run(&["/bin/sh", "-c", &config]).status.success());
        let before = picture(&env.workspace());
        for act in ["echo x > hooks/pre-commit", "echo '[alias]x=!y' >> more", "mv hooks h", "rm more"] {
            assert!(!sh(&env.sandbox(), act).status.success(), "{act}");
            assert_eq!(picture(&env.workspace()), before, "{act}");
        }
        assert!(sh(&env.sandbox(), "echo y > free").status.success());
        assert_eq!(fs::read_to_string(env.workspace().join("free")).unwrap(), "y\n");
    });
}

/// A18: no directory that a call has filled elsewhere takes a name below which a repository's settings lead.
#[test]
fn a18_no_directory_moves_to_where_settings_lead_below_it() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(
            target,
            "git init -q .; git config core.hooksPath tools/hooks; git config include.path ../conf/g.inc",
        );
        let fill = "mkdir -p z/hooks && echo x > z/hooks/pre-commit && echo x > z/g.inc";
        for (to, planted) in [("tools", "tools/hooks"), ("conf", "conf/g.inc")] {
            assert!(!sh(&env.sandbox(), &format!("{fill} && mv -T z {to}")).status.success(), "{to}");
            assert!(fs::symlink_metadata(env.workspace().join(planted)).is_err(), "{planted}");
            assert!(
                !sh(&env.sandbox(), &format!("rm -rf {to}; mv --exchange z {to} || mv -T z {to}")).status.success()
            );
            assert!(fs::symlink_metadata(env.workspace().join(planted)).is_err(), "{planted}");
        }
        assert!(sh(&env.sandbox(), &format!("{fill} && mv -T z free")).status.success(), "the control");
        assert!(env.workspace().join("free/hooks/pre-commit").is_file());
    });
}

/// A18: where hooks and settings are links into the workspace, what they lead to is kept.
#[test]
fn a18_what_hooks_and_settings_link_to_is_kept() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(
            target,
            "git init -q .; mkdir -p scripts; echo x > scripts/pre-commit; echo x > scripts/free; mv .git/config gc; \
             rm -f .git/hooks/pre-commit; ln -s ../../scripts/pre-commit .git/hooks/pre-commit; ln -s ../gc .git/config",
        );
        let before = picture(&env.workspace());
        for act in [
            "echo y > scripts/pre-commit",
            "mv scripts/pre-commit scripts/x",
            "mv scripts s",
            "echo '[core]fsmonitor=x' >> gc",
            "rm gc",
        ] {
            assert!(!sh(&env.sandbox(), act).status.success(), "{act}");
            assert_eq!(picture(&env.workspace()), before, "{act}");
        }
        assert!(sh(&env.sandbox(), "echo y > scripts/free").status.success(), "the control");
        assert_eq!(fs::read_to_string(env.workspace().join("scripts/free")).unwrap(), "y\n");
    });
}

/// A18: what is not known to be harmless is refused, and the result says which setting it was.
#[test]
fn a18_settings_that_nobody_knows_are_refused() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target, "git init -q -b main . && echo x > f && git add f && git commit -qm one");
        let before = picture(&env.workspace());
        for (key, value) in [
            ("rebase.instructionFormat", "%s%nexec x"),
            ("pull.twohead", "x/evil"),
            ("tig.x", "y"),
            ("remote.up.url", "./up"),
            ("remote.up.pushurl", "ext::sh -c x"),
            ("branch.main.remote", "./up"),
            ("branch.main.pushRemote", "up"),
            ("url.ext::x.insteadOf", "https://"),
        ] {
            let changes = changes(&env, &format!("! git config '{key}' '{value}'"));
            assert!(has(&env, &changes, "refused", ".git/config", key.split('.').next().unwrap()), "{key}: {changes}");
            assert_eq!(picture(&env.workspace()), before, "{key}");
        }
        for act in [
            "mkdir -p .git/remotes && echo 'URL: ext::x' > .git/remotes/origin",
            "mkdir -p .git/branches && echo ./x > .git/branches/up",
        ] {
            assert!(!sh(&env.sandbox(), act).status.success(), "{act}");
            assert!(
                !env.workspace().join(".git/remotes").exists() && !env.workspace().join(".git/branches/up").exists(),
                "{act}"
            );
        }
        // The control: what git itself writes.
        let script = "git remote add up https://example.com/x; git config branch.main.remote up; git config branch.main.merge refs/heads/main; \
                      git remote rename up origin; git config branch.main.remote; git remote set-url origin git@example.com:x; \
                      git branch -q --track side main; git remote remove origin; git submodule status; git sparse-checkout set --cone a";
        let ended = sh(&env.sandbox(), &format!("set -e; {script}"));
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), "origin\n"), "{ended:?}");
    });
}

/// A18: what the settings of a repository lead to is kept though no call has acted in it, at any depth, and so is what a
/// `.git` file leads to that is not there.
#[test]
fn a18_nested_repositories_are_known_before_the_first_write() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(
            target,
            "mkdir -p shared bare free d/e/f lost; git init -q sub; git -C sub config core.hooksPath ../shared; \
             git init -q --bare d/e/f/store; git -C d/e/f/store config core.hooksPath \"$PWD/bare\"; \
             echo 'gitdir: ../gone' > lost/.git; ln -s ../free/linked shared/post-commit",
        );
        let before = picture(&env.workspace());
        for act in [
            "echo x > shared/pre-commit",
            "echo x > free/linked",
            "mv free shared/pre-commit",
            "mv shared elsewhere",
            "ln -s x shared/pre-push",
            "echo x > bare/update",
            "mkdir gone",
            "git init -q --bare gone",
        ] {
            assert!(!sh(&env.sandbox(), act).status.success(), "{act}");
            assert_eq!(picture(&env.workspace()), before, "{act}");
        }
        assert!(sh(&env.sandbox(), "echo x > free/pre-commit; mkdir other").status.success(), "the control");
        assert!(env.workspace().join("free/pre-commit").is_file() && env.workspace().join("other").is_dir());
        // The control: outside, git runs what stands there.
        let hook = "printf '#!/bin/sh\\ntouch ../ran\\n' > shared/pre-commit; chmod +x shared/pre-commit";
        let ended = sh(&env.bare(), &format!("{hook}; git -C sub commit -q --allow-empty -m one"));
        assert!(ended.status.success() && env.workspace().join("ran").exists(), "{ended:?}");
    });
}

/// A18: what could not be looked at is in the result of a call that changes something.
#[test]
fn a18_what_was_not_looked_at_is_in_the_result() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(
            target,
            "git init -q .; git init -q many; for n in $(seq 1100); do echo > many/.git/hooks/h$n; done; \
             mkdir -p closed open; chmod 0 closed",
        );
        let changed = changes(&env, "echo x > f");
        assert!(has(&env, &changed, "runs_later", "many/.git/hooks", "not all of it was looked at"), "{changed}");
        assert!(has(&env, &changed, "runs_later", "closed", "cannot be looked at"), "{changed}");
        assert!(!has(&env, &changed, "runs_later", "open", ""), "{changed}");
        // The control: where all of it was looked at, nothing is said.
        assert!(sh(&env.bare(), "chmod 755 closed; rm many/.git/hooks/h*; rm f").status.success());
        let changed = changes(&env, "echo x > f");
        assert!(has(&env, &changed, "created", "f", "") && changed.get("runs_later").is_none(), "{changed}");
    });
}

/// A18: settings that the session cannot read count as well: those of the repository that the workspace lies in, and those that
/// a repository's settings include from elsewhere.
#[test]
fn a18_settings_outside_lead_into_the_workspace() {
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(
            target,
            "git init -q .; git config core.hooksPath sub/hooks; git config include.path ../sub/more; mkdir -p sub/free",
        );
        let before = picture(&env.workspace());
        let sub = env.workspace().join("sub");
        let inside = || env.sandbox().started_in(&sub);
        for act in
            ["mkdir hooks", "mkdir z && mv -T z hooks || { rmdir z; false; }", "echo x > more", "ln -s free hooks"]
        {
            assert!(!sh(&inside(), act).status.success(), "{act}");
            assert_eq!(picture(&env.workspace()), before, "{act}");
        }
        assert!(sh(&inside(), "echo x > free/hooks; mkdir mine").status.success(), "the control");
        assert!(sub.join("mine").is_dir());
        assert!(!sh(&inside(), "cat ../.git/config").status.success(), "the settings cannot be read");
        // From elsewhere, into the workspace.
        let env = furnished(target, "git init -q .; mkdir free");
        let more = env.file("more", &format!("[core]\n\thooksPath = {}/led\n", env.workspace().display()));
        let include = format!("git config include.path '{}'", env.outside().join("more").display());
        assert!(sh(&env.bare(), &include).status.success());
        assert!(!sh(&env.sandbox(), "mkdir led").status.success());
        assert!(!env.workspace().join("led").exists());
        assert!(sh(&env.sandbox(), "mkdir mine").status.success(), "the control");
        assert!(!more.text().is_empty());
    });
}

/// A18: a branch that follows a name whose address a call has taken away is in the result: git takes the name for a path.
#[test]
fn a18_a_branch_that_follows_a_name_without_an_address_is_in_the_result() {
    let follow = "git config remote.evil.url https://example.com/x; git config branch.main.remote evil";
    matrix(Host::STRENGTHS, |target| {
        let env = furnished(target, "git init -q -b main . && echo x > f && git add f && git commit -qm one");
        let changed = changes(&env, &format!("{follow}; git config --unset remote.evil.url"));
        assert!(has(&env, &changed, "runs_later", ".git/config", "branch.main.remote"), "{changed}");
        // What was so before is no change of this call's; what was only so in between is none either.
        let changed = changes(&env, "git config user.name x");
        assert!(!has(&env, &changed, "runs_later", ".git/config", ""), "{changed}");
        let env = furnished(target, "git init -q -b main . && echo x > f && git add f && git commit -qm one");
        let changed =
            changes(&env, &format!("{follow}; git remote rename evil up; test $(git config branch.main.remote) = up"));
        assert!(has(&env, &changed, "changed", ".git/config", ""), "{changed}");
        assert!(!has(&env, &changed, "runs_later", ".git/config", ""), "{changed}");
        // In a call of its own.
        let changed = changes(&env, "git config --unset remote.up.url");
        assert!(has(&env, &changed, "runs_later", ".git/config", "branch.main.remote"), "{changed}");
    });
}
