//! A request counts whole, whatever bounds leave of it, and as it is outside of the session: for what is protected, for
//! the links that are followed, and for the programs that are run (A1, A2, A3, A10, A18, C12).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use callgate_tests::{Binaries, Host, ProgramOutcome, Target, TestEnv, eventually, matrix};

use crate::planted_links::PLANTED;

/// A manifest with any program; `@` stands for the directory outside, as the kernel has its path.
struct BoundedPlace {
    env: TestEnv,
    outside: PathBuf,
}

impl BoundedPlace {
    /// Directories of the user's, and repositories that lead into them.
    fn new(target: Target) -> Self {
        let env = TestEnv::new(target);
        let outside = env.outside().canonicalize().unwrap();
        Self { env, outside }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.outside.join(name)
    }

    fn text(&self, text: &str) -> String {
        text.replace('@', self.outside.to_str().unwrap())
    }

    /// By the user, who is nobody's call.
    #[track_caller]
    fn make(&self, line: &str) {
        let ended = self.env.bare().run(&["/bin/sh", "-e", "-c", &format!("cd {}; {line}", self.outside.display())]);
        assert!(ended.status.success(), "{ended:?}");
    }

    /// The words that start a command line in the workspace `p/w`.
    fn words(&self, manifest: &str, line: &str) -> Vec<String> {
        let manifest = self.env.file("manifest.toml", &self.text(manifest));
        let binary = Binaries::of_this_build().callgate().display().to_string();
        let words = [&binary, "run", "--manifest", manifest.text(), "--", "/bin/sh", "-c", line];
        words.map(str::to_owned).to_vec()
    }

    fn run(&self, manifest: &str, line: &str) -> ProgramOutcome {
        let words = self.words(manifest, &self.text(line));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.env.weakened().started_in(self.at("p/w")).run(&words)
    }

    /// After the line, what is protected is refused to be written, and its content stays. What is wrong with that, if anything.
    fn keeps(&self, manifest: &str, line: &str, kept: &[&str]) -> Option<String> {
        let kept: Vec<String> = kept.iter().map(|name| self.text(name)).collect();
        let contents = || kept.iter().map(|kept| fs::read(kept).ok()).collect::<Vec<_>>();
        let before = contents();
        let acts = kept.iter().map(|kept| format!("echo evil > {kept}; "));
        let ended = self.run(manifest, &format!("{line} {}", acts.collect::<String>()));
        let denied = ended.stderr.lines().filter(|line| line.ends_with("Permission denied")).count();
        let after = contents();
        for (kept, before) in kept.iter().zip(&before) {
            before.as_ref().map_or_else(|| drop(fs::remove_file(kept)), |before| fs::write(kept, before).unwrap());
        }
        (denied != kept.len() || before != after).then(|| format!("{kept:?}\n{manifest}\n{ended:?}\n"))
    }

    /// The control: what nothing leads to may be made.
    #[track_caller]
    fn makes(&self, manifest: &str, free: &str) {
        let free = self.text(free);
        let ended = self.run(manifest, &format!("echo new > {free} && rm {free} && echo new > {free}"));
        assert!(ended.status.success(), "{free}\n{manifest}\n{ended:?}");
        assert_eq!(fs::read_to_string(&free).unwrap(), "new\n");
        fs::remove_file(&free).unwrap();
    }
}

/// A manifest that asks for places, with a ceiling that leaves a part of them.
fn manifest(read: &str, write: &str, left: &str) -> String {
    format!("[requires]\nshell = [{{ cmd = \"*\" }}]\n[requires.fs]\nread = [{read}]\nwrite = [{write}]\n{left}")
}

fn ceiling(read: &str, write: &str) -> String {
    format!("[ceiling.fs]\nread = [{read}]\nwrite = [{write}]\n")
}

const WORKSPACE: &str = "\"{workspace}/**\"";
const SRC: &str = "\"{workspace}/src/**\"";

/// Places that a ceiling which leaves a part of the workspace lets be read. Without namespaces a call cannot start in
/// what it may not list.
fn readable(target: Target) -> &'static str {
    target.by_strength(SRC, WORKSPACE)
}

/// A1, A3, A18: what leads to what bounds leave may lie in another root, above or beside the workspace, where the session does not
/// read, and where its `/tmp` is not the host's; and it is the same by whatever links a person spells it.
#[test]
fn a1_a3_a18_all_that_was_asked_for_leads_to_what_bounds_leave() {
    matrix(Host::STRENGTHS, |target| {
        let place = BoundedPlace::new(target);
        place.make(
            "mkdir -p p/w/nested p/w/src/hooks p/w/src/own p/w/src/none p/w/far p/w/ends p/w/named p/w/other p/w/hooks p/b/hooks p/b/other
             linked() { git init -q $1; echo ok > $1/.git/hooks/post-commit; ln $1/.git/hooks/post-commit $2; }
             led() { git init -q $1; git -C $1 config core.hooksPath $2; }
             linked p/w/sub p/w/src/hl; led p/w/sub ../src/hooks; led p/b/sub ../hooks; led p/c $PWD/p/w/hooks
             mkdir -p real/src/hooks; ln -s real lnk; linked real/sub real/src/hl; led real/sub ../src/hooks
             mkdir -p top/src/hooks; ln -s top tolnk; led top src/hooks
             mkdir -p deep/er/real; ln -s deep/er/real far; led deep/er/real/sub ../../../../p/w/far
             mkdir -p v; led v/sub $PWD/p/w/ends
             led p/w/py ../named
             mkdir -p included p/w/incl; git config -f included/inc core.hooksPath $PWD/p/w/incl
             git init -q p/w/inc; git -C p/w/inc config include.path $PWD/included/inc
             ln -s p away; mkdir -p p/w/back p/w/cfg; led p/w/backs $PWD/away/w/back; ln -s $PWD/away/w/cfg p/w/.vscode
             ln -s src p/w/current; led p/w/src/theirs $PWD/p/w/current/own
             mkdir -p p/w/homes p/w/src/homes; led p/w/homed '~/w/homes'; led p/w/src/homed '~/src/homes'
             mkdir -p p/w/other/.vscode/sub; ln -s p/w/other/.vscode named
             ln -s p/w/src tosrc",
        );
        let above = "\"@/p/**\"";
        let anything = "\"/**\"";
        let tmp = "\"/tmp/**\"";
        // What may be read, what is asked for to write, what is left of both (unless nothing is bounded), what is protected, and
        // what is not.
        type BoundedCase<'a> = (&'a str, &'a str, Option<(&'a str, &'a str)>, &'a [&'a str], &'a str);
        let cases: [BoundedCase<'_>; 20] = [
            // With a root in the root, see below.
            (
                WORKSPACE,
                WORKSPACE,
                Some((WORKSPACE, "\"@/p/w/src/**\"")),
                &["@/p/w/src/hooks/x", "@/p/w/src/hl"],
                "@/p/w/src/n",
            ),
            // Above and beside the workspace.
            (
                WORKSPACE,
                above,
                Some((anything, "\"@/p/b/hooks/**\", \"@/p/b/other/**\"")),
                &["@/p/b/hooks/x"],
                "@/p/b/other/n",
            ),
            (
                WORKSPACE,
                above,
                Some((anything, "\"{workspace}/**\", \"@/p/b/hooks/**\"")),
                &["@/p/w/hooks/x", "@/p/b/hooks/x"],
                "@/p/w/other/n",
            ),
            // Spelt by a person's link; with a ceiling or by what is asked for.
            (
                WORKSPACE,
                "\"@/lnk/**\"",
                Some((anything, "\"@/lnk/src/**\"")),
                &["@/lnk/src/hooks/x", "@/real/src/hooks/x", "@/lnk/src/hl", "@/real/src/hl"],
                "@/lnk/src/n",
            ),
            (
                WORKSPACE,
                "\"@/lnk/**\"",
                Some(("\"{workspace}/**\", \"@/lnk/src/**\"", "\"@/lnk/src/**\"")),
                &["@/lnk/src/hooks/x", "@/real/src/hooks/x", "@/lnk/src/hl", "@/real/src/hl"],
                "@/lnk/src/n",
            ),
            (
                WORKSPACE,
                "\"@/real/sub/**\", \"@/lnk/src/**\"",
                None,
                &["@/lnk/src/hooks/x", "@/real/src/hooks/x"],
                "@/lnk/src/n",
            ),
            (WORKSPACE, "\"@/tolnk/src/**\"", None, &["@/tolnk/src/hooks/x", "@/top/src/hooks/x"], "@/tolnk/src/n"),
            (WORKSPACE, "\"{workspace}/**\", \"@/far/**\"", None, &["@/p/w/far/x"], "@/far/n"),
            // All of `/tmp` may be read, where this lies; and the session has one of its own.
            (
                tmp,
                "\"{workspace}/**\", \"@/v/**\"",
                Some((tmp, WORKSPACE)),
                &["@/p/w/ends/x", "@/p/w/src/hooks/x", "@/p/w/src/hl"],
                "@/p/w/n",
            ),
            (
                tmp,
                "\"{workspace}/**\", \"@/v/**\"",
                Some((tmp, "\"{workspace}/src/**\", \"{workspace}/ends/**\"")),
                &["@/p/w/ends/x", "@/p/w/src/hooks/x", "@/p/w/src/hl"],
                "@/p/w/src/n",
            ),
            // What a repository includes may no longer be read.
            (
                "\"{workspace}/**\", \"@/included/**\"",
                WORKSPACE,
                Some((WORKSPACE, WORKSPACE)),
                &["@/p/w/incl/x", "@/p/w/src/hooks/x"],
                "@/p/w/n",
            ),
            // A directory that is asked for by its bare name, beside a pattern.
            (WORKSPACE, "\"{workspace}/**/*.py\", \"{workspace}/py\"", None, &["@/p/w/named/x"], "@/p/w/other/n.py"),
            // A part of a protected directory, spelt by a person's link, frees that part alone.
            (
                WORKSPACE,
                "\"{workspace}/**\", \"@/named/**\"",
                Some((anything, "\"{workspace}/**\", \"@/named/sub/**\"")),
                &["@/p/w/other/.vscode/tasks.json"],
                "@/p/w/other/.vscode/sub/n",
            ),
            (
                WORKSPACE,
                "\"{workspace}/**\", \"@/named/**\"",
                Some((anything, "\"{workspace}/**\", \"@/named/settings.json\"")),
                &["@/p/w/other/.vscode/tasks.json"],
                "@/p/w/other/.vscode/settings.json",
            ),
            // A part of the workspace, spelt by a person's link, is a part of that for what leads there.
            (
                WORKSPACE,
                "\"{workspace}/**\", \"@/tosrc/**\"",
                Some((anything, "\"{workspace}/**\", \"@/tosrc/hooks/**\"")),
                &["@/p/w/src/hooks/x"],
                "@/p/w/src/n",
            ),
            (
                WORKSPACE,
                "\"{workspace}/**\", \"@/tosrc/**\"",
                Some((anything, "\"{workspace}/**\", \"@/tosrc/hooks/x\"")),
                &["@/p/w/src/hooks/x"],
                "@/p/w/src/n",
            ),
            // Home is above the workspace; or in what was asked for, and above what is left.
            (WORKSPACE, above, Some((anything, WORKSPACE)), &["@/p/w/homes/x", "@/p/w/src/homes/x"], "@/p/w/n"),
            (WORKSPACE, above, Some((anything, SRC)), &["@/p/w/src/homes/x"], "@/p/w/src/n"),
            // Nothing is bounded, and what leads there goes by a person's link that is not granted.
            (WORKSPACE, WORKSPACE, None, &["@/p/w/back/x", "@/p/w/cfg/x"], "@/p/w/n"),
            // Nothing is bounded, which is the control of the first.
            (WORKSPACE, WORKSPACE, None, &["@/p/w/src/hooks/x", "@/p/w/named/x", "@/p/w/src/own/x"], "@/p/w/n"),
        ];
        let mut wrong = Vec::new();
        for (number, (read, write, left, kept, free)) in cases.into_iter().enumerate() {
            let roots = if number == 0 { "roots = [\"nested\"]\n" } else { "" };
            let bounds = left.map(|(read, write)| ceiling(read, write));
            // Who names the whole of a protected directory has it.
            let whole = (!write.contains("@/named")).then(String::new);
            for bounds in whole.into_iter().chain(bounds) {
                let text = format!("{roots}{}", manifest(read, write, &bounds));
                wrong.extend(place.keeps(&text, "", kept));
                place.makes(&text, free);
            }
        }
        // What was found before the session was confined stays, whatever is looked at again in it: a repository whose settings go by
        // a link that is not to be seen there.
        let read = readable(target);
        let text = manifest(read, WORKSPACE, &ceiling(read, SRC));
        for touched in ["none", "theirs"] {
            let line = format!("echo x > @/p/w/src/{touched}/x;");
            wrong.extend(place.keeps(&text, &line, &["@/p/w/src/hl", "@/p/w/src/own/x"]));
            assert_eq!(fs::read_to_string(place.at("p/w/src").join(touched).join("x")).unwrap(), "x\n", "the control");
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}

/// A1, A18: what leads to exactly the workspace leads there, where that was left of a tree above; and `~` may be a home directory
/// anywhere in what was asked for.
#[test]
fn a1_a18_hooks_may_be_the_workspace_or_in_a_home_beside_it() {
    matrix(Host::STRENGTHS, |target| {
        let place = BoundedPlace::new(target);
        place.make(
            "mkdir -p p/w/d q/w u/t/hooks u/t/own; git init -q p/other; git -C p/other config core.hooksPath ../w
             git init -q q/w/sub; git -C q/w/sub config core.hooksPath '~/t/hooks'",
        );
        for bounds in [String::new(), ceiling(WORKSPACE, WORKSPACE)] {
            let text = manifest(WORKSPACE, "\"@/p/**\"", &bounds);
            let wrong = place.keeps(&text, "", &["@/p/w/pre-commit"]);
            assert!(wrong.is_none(), "{wrong:?}");
        }
        place.makes(&manifest(WORKSPACE, WORKSPACE, ""), "@/p/w/pre-commit");
        let in_home = "\"@/q/w/**\", \"@/u/t/**\"";
        for bounds in [String::new(), ceiling(in_home, in_home)] {
            let text = manifest(in_home, if bounds.is_empty() { in_home } else { "\"@/**\"" }, &bounds);
            for (file, is_kept) in [("hooks", true), ("own", false)] {
                let file = place.at("u/t").join(file).join("x");
                let words = place.words(&text, &format!("echo x > {}", file.display()));
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                let run = place.env.weakened().started_in(place.at("q/w"));
                let ended = run.variable("HOME", &place.at("u").display().to_string()).run(&words);
                assert_eq!((file.exists(), ended.status.success()), (!is_kept, !is_kept), "{bounds}\n{ended:?}");
                drop(fs::remove_file(&file));
            }
        }
    });
}

/// A1, A3, A18: nor is it forgotten when another session of the workspace makes a repository meanwhile.
#[test]
fn a1_a3_a18_what_another_session_makes_hides_nothing_that_was_found() {
    matrix(Host::STRENGTHS, |target| {
        let place = BoundedPlace::new(target);
        place.make(
            "mkdir -p p/w/src; for r in v/sub p/w/sub; do git init -q $r; echo ok > $r/.git/hooks/post-commit; done
             ln v/sub/.git/hooks/post-commit p/w/src/hl; ln p/w/sub/.git/hooks/post-commit p/w/src/hl2",
        );
        let read = readable(target);
        let text = manifest(WORKSPACE, "\"{workspace}/**\", \"@/v/**\"", &ceiling(read, SRC));
        let line = "cd src; echo x > ready; for i in $(seq 600); do [ -e go ] && break; sleep 0.1; done
                    echo x > r/x && echo went; echo evil > hl; echo evil > hl2";
        let words = place.words(&text, line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let first = place.env.weakened().started_in(place.at("p/w"));
        let mut first = first.command(&words).stdout(std::process::Stdio::piped()).spawn().unwrap();
        eventually("the first session runs", || {
            place.at("p/w/src/ready").exists() || first.try_wait().unwrap().is_some()
        });
        let other = place.run(&text, "cd src && git init -q r && git -C r config core.hooksPath hh");
        assert!(other.status.success(), "{other:?}");
        drop(place.env.file_at(place.at("p/w/src/go"), ""));
        let ended = first.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&ended.stdout), "went\n", "the control: {ended:?}");
        for linked in ["hl", "hl2"] {
            assert_eq!(fs::read_to_string(place.at("p/w/src").join(linked)).unwrap(), "ok\n", "{linked}");
        }
    });
}

/// A2, A10: a link that an earlier session made in what it was asked for is followed by none that is bounded: not where nothing is
/// left to write, and not where that lies above the workspace.
#[test]
fn a2_a10_no_link_in_what_was_asked_for_is_followed() {
    matrix(Host::STRENGTHS, |target| {
        let place = BoundedPlace::new(target);
        place.make("mkdir -p p/w p/real other own; echo secret > other/f; ln -s ../other own/a; echo real > p/real/f");
        let all = "\"@/p/**\", \"@/own/**\"";
        let planted = place.run(&manifest(WORKSPACE, all, ""), "ln -s ../other @/p/a && ! cat @/other/f");
        assert!(planted.status.success() && place.at("p/a/f").exists(), "{planted:?}");
        let line = "cat @/p/a/f; echo evil > @/p/a/f";
        let (read, write) = ("\"{workspace}/**\", \"@/p/a/**\"", "\"@/p/a/**\"");
        for bounds in [ceiling(read, ""), ceiling(read, write), ceiling(read, WORKSPACE), ceiling(read, read)] {
            let ended = place.run(&manifest(read, all, &bounds), line);
            assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(64), ""), "{bounds}\n{ended:?}");
            assert!(ended.stderr.contains(PLANTED), "{bounds}\n{ended:?}");
        }
        // The same by profiles, of which two only read.
        let asked = manifest(WORKSPACE, all, "");
        let bounds = format!("[ceiling.fs]\nread = [{read}]\n");
        let bounded = place.env.file("manifest.toml", &place.text(&format!("{asked}{bounds}")));
        let binary = Binaries::of_this_build().callgate().display().to_string();
        let arguments = place.text("{\"path\": \"@/p/a/f\"}");
        for profile in ["developer", "plan", "readonly"] {
            let words = [&binary, "call", "--profile", profile, "--manifest", bounded.text(), "read", &arguments];
            let ended = place.env.weakened().started_in(place.at("p/w")).run(&words);
            assert!(!ended.status.success() && ended.stderr.contains(PLANTED), "{profile}: {ended:?}");
            assert!(!ended.stdout.contains("secret"), "{profile}: {ended:?}");
        }
        // A tree above a home is asked for, and what is bounded to a part of that needs no leave.
        let home = |write: &str, line: &str| {
            let words = place.words(&manifest(WORKSPACE, "\"@/**\"", &ceiling(write, write)), &place.text(line));
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let home = place.outside.display().to_string();
            place.env.weakened().started_in(place.at("p/w")).variable("HOME", &home).run(&words)
        };
        assert!(home("\"{workspace}/**\", \"@/p/**\"", "ln -s ../other @/p/b").status.success());
        for write in ["\"{workspace}/**\", \"@/p/b/**\"", "\"@/p/b/**\""] {
            let ended = home(write, "echo evil > @/p/b/f");
            assert_eq!(ended.status.code(), Some(64), "{write}\n{ended:?}");
            assert!(ended.stderr.contains(PLANTED), "{write}\n{ended:?}");
        }
        assert_eq!(fs::read_to_string(place.at("other/f")).unwrap(), "secret\n");
        // The controls: a directory, and a person's link where no call was to write.
        let read = "\"{workspace}/**\", \"@/p/real/**\", \"@/own/a/**\"";
        let text = manifest(read, "\"@/p/**\"", &ceiling(read, "\"@/p/real/**\""));
        let ended = place.run(&text, "cat @/p/real/f @/own/a/f && echo new > @/p/real/f");
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), "real\nsecret\n"), "{ended:?}");
    });
}

/// C12: what an earlier session could write is no place to look for programs, and no interpreter of one that may be run.
#[test]
fn c12_no_program_is_one_that_was_asked_for_to_write() {
    matrix(Host::STRENGTHS, |target| {
        let place = BoundedPlace::new(target);
        place.make("mkdir -p p/w beside/bin own; ln -s beside spelt; cp /bin/sh beside/interp; cp /bin/sh own/interp");
        let interpreters =
            [("beside", "@/beside/interp"), ("own", "@/own/interp"), ("system", "/bin/sh"), ("calls", "@/p/w/interp")];
        for (name, interpreter) in interpreters {
            let text = place.text(&format!("#!{interpreter}\necho ran\n"));
            let script = place.env.file_at(place.at("own").join(format!("by-{name}")), &text);
            fs::set_permissions(&*script, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let asked = "\"{workspace}/**\", \"@/beside/**\"";
        let planted = "printf '#!/bin/sh\\necho planted\\n' > @/beside/bin/date && chmod 755 @/beside/bin/date &&
                       cp @/beside/bin/date @/beside/other && mv @/beside/other @/beside/interp";
        let ended = place.run(&manifest(asked, asked, ""), planted);
        assert!(ended.status.success(), "{ended:?}");
        let reads = "\"{workspace}/**\", \"@/beside/**\", \"@/own/**\"";
        let date = |write: &str, bounds: &str| {
            let words = place.words(&manifest(reads, write, bounds), "date");
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let path = format!("{}:/usr/bin:/bin", place.at("beside/bin").display());
            place.env.weakened().started_in(place.at("p/w")).variable("PATH", &path).run(&words)
        };
        let script = |name: &str, write: &str, bounds: &str| {
            let program = place.text(&format!("@/own/by-{name}"));
            let text = manifest(reads, write, bounds).replace("cmd = \"*\"", &format!("cmd = \"{program}\""));
            let manifest = place.env.file("manifest.toml", &place.text(&text));
            let binary = Binaries::of_this_build().callgate().display().to_string();
            let words = [&binary, "run", "--manifest", manifest.text(), "--", &program];
            place.env.weakened().started_in(place.at("p/w")).run(&words)
        };
        // By its name, and as a person's link spells it.
        let spelt = "\"{workspace}/**\", \"@/spelt/**\"";
        let single = "\"{workspace}/**\", \"@/beside/bin/date\", \"@/beside/interp\"";
        let bounds = [String::new(), ceiling(reads, WORKSPACE), ceiling(reads, "")];
        for (asked, bounds) in
            [asked, spelt, single].into_iter().flat_map(|asked| bounds.iter().map(move |bounds| (asked, bounds)))
        {
            let ended = date(asked, bounds);
            assert!(ended.status.success() && !ended.stdout.contains("planted"), "{bounds}\n{ended:?}");
            let ended = script("beside", asked, bounds);
            assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(126), ""), "{bounds}\n{ended:?}");
            assert_eq!(script("own", asked, bounds).stdout, "ran\n", "the control: {bounds}");
        }
        // What a script names is not free because the script itself was asked for.
        let ended = place.run(&manifest(asked, asked, ""), "cp /bin/sh @/p/w/interp");
        assert!(ended.status.success(), "{ended:?}");
        for write in [WORKSPACE, "\"{workspace}/**\", \"@/own/**\""] {
            let ended = script("calls", write, &ceiling(reads, WORKSPACE));
            assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(126), ""), "{write}\n{ended:?}");
        }
        // Whoever could write where the system's are has changed more than a session.
        let asked = "\"{workspace}/**\", \"/usr/**\"";
        let bounds = ceiling(reads, "");
        assert_eq!(script("system", asked, &bounds).stdout, "ran\n");
        assert!(date(asked, &bounds).status.success());
        // The control: where none was asked for to write there.
        assert_eq!(date(WORKSPACE, "").stdout, "planted\n");
        assert_ne!(script("beside", WORKSPACE, "").status.code(), Some(126));
    });
}

/// A1, A18: a repository that a person makes after a session was opened, and before that has changed anything, counts.
#[test]
fn a1_a18_what_a_person_makes_before_the_first_change_leads_as_well() {
    matrix(Host::STRENGTHS, |target| {
        let place = BoundedPlace::new(target);
        place.make("mkdir -p p/w p/w/hooks p/w/other sign");
        let text = manifest("\"{workspace}/**\", \"@/sign/**\"", WORKSPACE, "");
        let line = "echo running; for i in $(seq 600); do [ -e @/sign/go ] && break; sleep 0.1; done
                    echo x > other/x && echo went; echo evil > hooks/pre-commit";
        let words = place.words(&text, &place.text(line));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let first = place.env.weakened().started_in(place.at("p/w"));
        let mut first = first.command(&words).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut told = std::io::BufReader::new(first.stdout.take().unwrap());
        let mut next = || {
            let mut line = String::new();
            std::io::BufRead::read_line(&mut told, &mut line).unwrap();
            line
        };
        assert_eq!(next(), "running\n");
        place.make("git init -q p/w/sub; git -C p/w/sub config core.hooksPath ../hooks; touch sign/go");
        assert_eq!(next(), "went\n", "the control");
        let ended = first.wait().unwrap();
        assert!(!ended.success() && !place.at("p/w/hooks/pre-commit").exists(), "{ended:?}");
        assert!(place.at("p/w/other/x").exists());
    });
}

/// A file that a call leaves at a name that a later session is granted alone neither hangs its opening nor has it
/// opened with less than the host can do; and a single file that is to be made in a `/tmp` of the session's own is
/// refused.
#[test]
fn what_a_call_leaves_at_a_name_costs_no_later_session_its_namespaces() {
    matrix(Host::STRENGTHS, |target| {
        let place = BoundedPlace::new(target);
        place.make("mkdir -p p/w");
        let all = manifest(WORKSPACE, WORKSPACE, "");
        let one = manifest(WORKSPACE, "\"{workspace}/b/**\"", "");
        let left = manifest(WORKSPACE, WORKSPACE, &ceiling(WORKSPACE, "\"{workspace}/b/**\""));
        let own = fs::read_link("/proc/self/ns/pid").unwrap().display().to_string();
        let acts = [
            ("socket", "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('b')\""),
            ("FIFO", "mkfifo b"),
            ("file", "echo x > b"),
            ("program", "cp /bin/sleep b"),
            ("directory", "mkdir b"),
        ];
        for (what, act) in acts {
            let made = place.run(&all, act);
            assert!(made.status.success() && place.at("p/w/b").symlink_metadata().is_ok(), "{what}: {made:?}");
            let mut running = (what == "program").then(|| {
                let program = place.at("p/w/b");
                std::process::Command::new(program).arg("600").spawn().unwrap()
            });
            for text in [&one, &left] {
                let ended = place.run(text, "readlink /proc/self/ns/pid");
                let opened = ended.status.success() && !ended.stdout.is_empty();
                let isolated = ended.stdout.trim() != own;
                assert!(!opened || isolated == target.by_strength(true, false), "{what}: {text}\n{ended:?}");
                assert!(opened || what != "directory", "the control: {ended:?}");
            }
            if let Some(running) = &mut running {
                running.kill().unwrap();
                running.wait().unwrap();
            }
            let _gone = place.run(&all, "rm -r b");
        }
    });
}

/// A name that another session turns into a link, or takes away, while what is granted there is mounted has the mount nowhere
/// else, and costs the session no namespace.
#[test]
fn a_mount_point_that_is_exchanged_leads_nowhere() {
    matrix(&[Host::Namespaces], |target| {
        let place = BoundedPlace::new(target);
        place.make("mkdir -p p/w/out/bin; cp /usr/bin/id p/w/out/bin/git; cp /usr/bin/env /usr/bin/cat p/w/out/bin");
        let turn = "python3 -c \"
import os, time
while not os.path.exists('done'):
    os.rename('out', 'o2'); os.symlink('../../../../usr', 'out'); time.sleep(0.02)
    os.unlink('out'); os.rename('o2', 'out'); time.sleep(0.05)
\"";
        let words = place.words(&manifest(WORKSPACE, WORKSPACE, ""), turn);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut turning = place.env.weakened().started_in(place.at("p/w")).command(&words).spawn().unwrap();
        let bounds = ceiling(WORKSPACE, "\"{workspace}/out/bin/**\"");
        let text = manifest(WORKSPACE, WORKSPACE, &bounds).replace("cmd = \"*\"", "cmd = \"git\"");
        let manifest = place.env.file("bounded.toml", &place.text(&text));
        let binary = Binaries::of_this_build().callgate().display().to_string();
        let words = [&binary, "run", "--json", "--manifest", manifest.text(), "--", "git", "--version"];
        let run = || place.env.weakened().started_in(place.at("p/w")).variable("PATH", "/usr/bin:/bin").run(&words);
        let ended: Vec<ProgramOutcome> = (0..30).map(|_| run()).collect();
        drop(place.env.file_at(place.at("p/w/done"), ""));
        turning.wait().unwrap();
        for ended in &ended {
            assert!(!ended.stdout.contains("uid="), "another program has the name: {ended:?}");
            assert!(!ended.status.success() || ended.stdout.contains("git version"), "{ended:?}");
        }
        assert!(ended.iter().any(|ended| ended.status.success()), "the control: {:?}", ended.first());
    });
}

/// A file in a tree that was asked for and is bounded away is no reason to refuse what is left, and its names are not told.
#[test]
fn what_is_bounded_away_closes_nothing_and_is_not_told() {
    matrix(Host::STRENGTHS, |target| {
        let place = BoundedPlace::new(target);
        place.make(
            "mkdir -p p/w v/closed v/hushed; echo a > p/w/a; ln p/w/a p/w/b; git init -q v/hushed; printf '[core\\n' > v/hushed/.git/config
             chmod 0 v/closed",
        );
        let text = |bounds: &str| {
            let text = manifest(WORKSPACE, "\"{workspace}/**\", \"@/v/**\"", bounds);
            place.text(&format!("id = \"x\"\nmode = \"yolo\"\n{text}"))
        };
        let call = |bounds: &str| {
            let manifest = place.env.file("manifest.toml", &text(bounds));
            let binary = Binaries::of_this_build().callgate().display().to_string();
            let line = r#"{"command": "echo new > b; echo new > c"}"#;
            let words = [&binary, "call", "--manifest", manifest.text(), "bash", line];
            place.env.weakened().started_in(place.at("p/w")).run(&words)
        };
        for (bounds, told) in [(String::new(), true), (ceiling(WORKSPACE, WORKSPACE), false)] {
            let ended = call(&bounds);
            let names = ["hushed", "closed"].map(|name| ended.stdout.contains(name) || ended.stderr.contains(name));
            assert_eq!(names[0], told, "{bounds}\n{ended:?}");
            assert!(told || !names[1], "{bounds}\n{ended:?}"); // root looks into it
            let written = fs::read_to_string(place.at("p/w/a")).unwrap() == "new\n";
            assert_eq!(written, !told, "what may be written of it, has to be looked at: {bounds}\n{ended:?}");
        }
        fs::set_permissions(place.at("v/closed"), fs::Permissions::from_mode(0o755)).unwrap();
    });
}
