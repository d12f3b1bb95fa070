//! What was asked for counts whole, whatever bounds leave of it, and as it is outside of the session: for what is protected, for the
//! links that are followed, and for the programs that are run (A1, A2, A3, A10, A18, C12).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use callgate_tests::{Binaries, Ended, Host, Target, TestEnv, eventually, matrix};

use crate::planted_links::PLANTED;

/// A manifest with any program; `@` stands for the directory outside, as the kernel has its path.
struct Place {
    env: TestEnv,
    outside: PathBuf,
}

impl Place {
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

    fn run(&self, manifest: &str, line: &str) -> Ended {
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

/// What is asked for, and what of it a ceiling leaves.
fn manifest(read: &str, write: &str, left: &str) -> String {
    format!("[requires]\nshell = [{{ cmd = \"*\" }}]\n[requires.fs]\nread = [{read}]\nwrite = [{write}]\n{left}")
}

fn ceiling(read: &str, write: &str) -> String {
    format!("[ceiling.fs]\nread = [{read}]\nwrite = [{write}]\n")
}

const WORKSPACE: &str = "\"{workspace}/**\"";
const SRC: &str = "\"{workspace}/src/**\"";

/// What a ceiling that leaves a part of the workspace lets be read. Without namespaces a call cannot start in what it may not list.
fn readable(target: Target) -> &'static str {
    target.by_strength(SRC, WORKSPACE)
}

/// A1, A3, A18: what leads to what bounds leave may lie in another root, above or beside the workspace, where the session does not
/// read, and where its `/tmp` is not the host's; and it is the same by whatever links a person spells it.
#[test]
fn a1_a3_a18_all_that_was_asked_for_leads_to_what_bounds_leave() {
    matrix(Host::STRENGTHS, |target| {
        let place = Place::new(target);
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
             ln -s src p/w/current; led p/w/src/theirs $PWD/p/w/current/own",
        );
        let above = "\"@/p/**\"";
        let anything = "\"/**\"";
        let tmp = "\"/tmp/**\"";
        // What may be read, what is asked for to write, what is left of both (unless nothing is bounded), what is protected, and
        // what is not.
        type Case<'a> = (&'a str, &'a str, Option<(&'a str, &'a str)>, &'a [&'a str], &'a str);
        let cases: [Case<'_>; 14] = [
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
            // Nothing is bounded, and what leads there goes by a person's link that is not granted.
            (WORKSPACE, WORKSPACE, None, &["@/p/w/back/x", "@/p/w/cfg/x"], "@/p/w/n"),
            // Nothing is bounded, which is the control of the first.
            (WORKSPACE, WORKSPACE, None, &["@/p/w/src/hooks/x", "@/p/w/named/x", "@/p/w/src/own/x"], "@/p/w/n"),
        ];
        let mut wrong = Vec::new();
        for (number, (read, write, left, kept, free)) in cases.into_iter().enumerate() {
            let roots = if number == 0 { "roots = [\"nested\"]\n" } else { "" };
            let bounds = left.map(|(read, write)| ceiling(read, write));
            for bounds in std::iter::once(String::new()).chain(bounds) {
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

/// A1, A3, A18: nor is it forgotten when another session of the workspace makes a repository meanwhile.
#[test]
fn a1_a3_a18_what_another_session_makes_hides_nothing_that_was_found() {
    matrix(Host::STRENGTHS, |target| {
        let place = Place::new(target);
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
        let place = Place::new(target);
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
        let place = Place::new(target);
        place.make("mkdir -p p/w beside/bin own; ln -s beside spelt; cp /bin/sh beside/interp; cp /bin/sh own/interp");
        for (name, interpreter) in [("beside", "@/beside/interp"), ("own", "@/own/interp"), ("system", "/bin/sh")] {
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
        let bounds = [String::new(), ceiling(reads, WORKSPACE), ceiling(reads, "")];
        for (asked, bounds) in
            [asked, spelt].into_iter().flat_map(|asked| bounds.iter().map(move |bounds| (asked, bounds)))
        {
            let ended = date(asked, bounds);
            assert!(ended.status.success() && !ended.stdout.contains("planted"), "{bounds}\n{ended:?}");
            let ended = script("beside", asked, bounds);
            assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(126), ""), "{bounds}\n{ended:?}");
            assert_eq!(script("own", asked, bounds).stdout, "ran\n", "the control: {bounds}");
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

/// What lies in a tree that was asked for and is bounded away is no reason to refuse what is left, and its names are not told.
#[test]
fn what_is_bounded_away_closes_nothing_and_is_not_told() {
    matrix(Host::STRENGTHS, |target| {
        let place = Place::new(target);
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
