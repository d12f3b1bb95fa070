//! A person at a terminal, and `callgate run` in it: interactive programs work, and the person's terminal stays the
//! person's (D6). tmux types the keys and reads the screen.

use std::fs;

use callgate_tests::{Binaries, Host, Target, TestEnv, UserShell, eventually, matrix};
use libc::{EACCES, EIO, ENOENT, EPERM};

/// A shell inside, as a place to work in.
fn shell_inside(person: &UserShell<'_>) {
    person.starts(&person.sandboxed("bash --norc --noprofile"));
    person.shows("bash-");
    person.enters("PS1='inner> '; clear");
    person.is_asked();
}

fn leave(person: &UserShell<'_>) {
    person.starts("exit");
    person.shows_line("outer>");
}

/// On a terminal of both strengths, as both users, which afterwards is in the modes that it was in before.
fn at_terminals(test: impl Fn(Target, &TestEnv, &mut UserShell<'_>)) {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let mut person = UserShell::new(&env);
        let before = person.modes();
        test(target, &env, &mut person);
        eventually("the modes are as before", || person.modes() == before);
    });
}

#[test]
fn vim_edits_saves_is_stopped_and_goes_on() {
    at_terminals(|_, env, person| {
        shell_inside(person);
        let file = env.workspace().join("new.txt");
        person.enters("vim -u NONE -N new.txt");
        person.shows("\"new.txt\" [New]");
        person.types("ihello");
        person.presses(&["Escape"]);
        person.enters(":w");
        eventually("vim saves", || fs::read_to_string(&file).is_ok_and(|text| text == "hello\n"));
        person.presses(&["C-z"]);
        person.shows("Stopped");
        assert_eq!(person.asks("jobs -s | wc -l"), ["1"], "the shell inside works on");
        person.enters("fg");
        person.waits_for("vim again", |screen| screen.starts_with("hello\n~"));
        person.types("oagain");
        person.presses(&["Escape"]);
        person.enters(":wq");
        person.shows("inner>");
        assert_eq!(fs::read_to_string(&file).unwrap(), "hello\nagain\n");
        leave(person);
    });
}

#[test]
fn less_and_top_show_pages() {
    at_terminals(|target, env, person| {
        let lines: String = (1..=500).map(|n| format!("line {n}.\n")).collect();
        env.workspace_file("long", &lines);
        person.starts(&person.sandboxed("less long"));
        person.shows_line("line 1.");
        person.presses(&["G"]);
        person.shows_line("line 500.");
        person.presses(&["q"]);
        assert_eq!(person.asks("echo $?"), ["0"]);
        person.starts(&person.sandboxed("top"));
        if target.has_namespaces() {
            person.shows("load average:");
            person.shows("PID USER");
            person.presses(&["q"]);
            assert_eq!(person.asks("echo $?"), ["0"]);
        } else {
            // It shows the host's processes, which is what must not be.
            person.shows("library failed pids statistics");
            assert!(!person.screen().contains("PID USER"), "{}", person.screen());
        }
    });
}

/// getpass(3) in Python opens /dev/tty and turns the echo off.
#[test]
fn a_password_is_asked_for_and_not_shown() {
    at_terminals(|_, env, person| {
        env.workspace_file("ask.py", "import getpass\nprint(len(getpass.getpass('Secret? ')))\n");
        person.starts(&person.sandboxed("/usr/bin/python3 ask.py < /dev/null"));
        person.shows_line("Secret?");
        person.enters("hunter2");
        person.shows_line("7");
        assert!(!person.screen().contains("hunter2"), "{}", person.screen());
    });
}

/// Keys that make signals make them in the program's terminal: neither callgate nor the shell before it hears of them.
#[test]
fn keys_that_make_signals_reach_the_program_only() {
    at_terminals(|_, _, person| {
        shell_inside(person);
        let callgate = person.callgate();
        for (key, end) in [("C-c", "130"), ("C-\\", "131")] {
            person.starts("(echo sleeping; exec sleep 1000)");
            person.shows_line("sleeping");
            person.presses(&[key]);
            assert_eq!(person.asks("echo $?"), [end]);
        }
        assert_eq!(person.callgate(), callgate, "callgate lives");
        leave(person);
        for (key, end) in [("C-c", "130"), ("C-\\", "131")] {
            person.starts(&person.sandboxed("sh -c 'echo sleeping; exec sleep 1000'"));
            person.shows_line("sleeping");
            person.presses(&[key]);
            assert_eq!(person.asks("echo $?"), [end]);
        }
    });
}

#[test]
fn the_size_is_the_persons_and_follows_it() {
    at_terminals(|_, _, person| {
        shell_inside(person);
        assert_eq!(person.asks("stty size"), ["24 80"]);
        person.resizes(100, 30);
        // The shell heeds a size when it is told of it.
        person.starts("until [ \"$(stty size)\" = '30 100' ]; do :; done; echo it is");
        person.shows_line("it is");
        person.starts("trap 'stty size' WINCH; echo ready");
        person.shows_line("ready");
        person.resizes(90, 20);
        person.enters("");
        person.shows("20 90");
        person.presses(&["Enter"]);
        leave(person);
    });
}

/// Whatever ends callgate or stops it, the person's terminal is as before. [`at_terminals`] looks at the end; here also
/// between.
#[test]
fn the_persons_terminal_is_given_back_on_every_way_out() {
    at_terminals(|_, _, person| {
        let before = person.modes();
        let raw = "sh -c 'stty raw -echo; printf \"started\\r\\n\"; exec sleep 1000'";
        let started = |person: &UserShell<'_>| {
            person.starts(&person.sandboxed(raw));
            person.shows_line("started");
            assert_ne!(person.modes(), before, "the control: it is taken over");
        };
        for (signal, end) in [("TERM", "143"), ("HUP", "129"), ("INT", "130")] {
            started(person);
            signal_to(signal, &person.callgate());
            person.is_asked();
            eventually("given back", || person.modes() == before);
            assert_eq!(person.asks("echo $?"), [end], "SIG{signal} is the program's");
        }

        started(person);
        let inner = sleeper_below(&person.callgate());
        signal_to("KILL", &inner);
        person.is_asked();
        eventually("given back", || person.modes() == before);
        assert_eq!(person.asks("echo $?"), ["137"]);

        started(person);
        let callgate = person.callgate();
        signal_to("TSTP", &callgate);
        person.shows("Stopped");
        assert_eq!(person.asks("jobs -s | wc -l"), ["1"], "the person's shell has its terminal");
        person.enters("fg");
        eventually("taken over again", || person.modes() != before && state_of(&callgate) != Some('T'));
        signal_to("TERM", &callgate);
        person.is_asked();
        eventually("given back", || person.modes() == before);
    });
}

fn signal_to(signal: &str, pid: &str) {
    let status = std::process::Command::new("kill").args(["-s", signal, pid]).status().unwrap();
    assert!(status.success(), "kill -s {signal} {pid}: {status}");
}

/// The program that is named `sleep`, among all that `pid` has started.
fn sleeper_below(pid: &str) -> String {
    let mut found = None;
    eventually("the program sleeps", || {
        found = below(pid)
            .into_iter()
            .find(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == "sleep"));
        found.is_some()
    });
    found.unwrap()
}

fn below(pid: &str) -> Vec<String> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().flat_map(|child| [vec![child.to_owned()], below(child)].concat()).collect()
}

fn state_of(pid: &str) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

/// D6: the program has a terminal of its own by every name, and the person's by none.
#[test]
fn d6_the_program_sees_its_own_terminal_only() {
    at_terminals(|target, _, person| {
        let outer = person.terminal();
        assert_eq!(person.asks("tty"), [outer.as_str()], "the control");
        shell_inside(person);
        let inner = person.asks("tty").concat();
        assert!(inner.starts_with("/dev/pts/") && inner != outer, "{inner} in {outer}");
        let streams = person.asks("for n in 0 1 2; do readlink /proc/self/fd/$n; done");
        assert_eq!(streams, [inner.as_str(), inner.as_str(), inner.as_str()]);
        let all = person.asks("for n in $(seq 0 19); do readlink /proc/self/fd/$n; done | grep /dev/ | sort -u");
        assert_eq!(all, [inner.as_str()], "of all descriptors");
        assert_eq!(person.asks("(: < $(tty)) && : > /dev/stderr && : > /dev/tty && echo opened"), ["opened"]);
        if target.has_namespaces() {
            assert_eq!(inner, "/dev/pts/0", "of the session's own");
        }
        leave(person);
    });
}

/// D6: nothing inside opens the person's terminal, types into it, or types into its own; the same acts succeed before it.
#[test]
fn d6_the_persons_terminal_cannot_be_opened_written_or_typed_into() {
    let probe = Binaries::of_this_build().probe();
    let probe = probe.display();
    let legacy = fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti").unwrap_or_else(|_| "1".to_owned());
    at_terminals(|target, env, person| {
        let outer = person.terminal();
        let errno = |name: &str| -> Option<i64> {
            let path = env.workspace().join(name);
            let text = fs::read_to_string(&path).unwrap();
            fs::remove_file(path).unwrap();
            let line: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
            assert!(line["ok"].is_boolean(), "{text}");
            line["errno"].as_i64()
        };
        let acts = [
            ("read", format!("{probe} open-legacy {outer} read > read")),
            ("write", format!("{probe} write {outer} $'typed\\n' > write")),
            ("sti", format!("{probe} tty-sti 0 > sti")),
            ("sti-high", format!("{probe} tty-sti 0 1 > sti-high")),
            ("sti-highest", format!("{probe} tty-sti 0 0x80000000 > sti-highest")),
            ("linux", format!("{probe} tty-linux 0 > linux")),
        ];
        // The controls: before callgate each of them is possible, but for what this kernel refuses itself.
        for (name, act) in &acts {
            let seen = person.asks(act);
            if *name == "write" {
                assert_eq!(seen, ["typed"], "the control: it is on the screen");
            }
            // What was typed waits for the shell.
            person.presses(&["C-u"]);
            let expected = match *name {
                "linux" => the_kernel_was_asked(errno(name)),
                typing if typing.starts_with("sti") && legacy.trim() != "1" && target.user.uid() != 0 => {
                    errno(name) == Some(i64::from(EIO))
                }
                _ => errno(name).is_none(),
            };
            assert!(expected, "the control of {name}");
        }

        shell_inside(person);
        for (name, act) in &acts {
            person.asks(act);
            let expected = match *name {
                "read" | "write" => target.by_strength(ENOENT, EACCES),
                _ => EPERM,
            };
            assert_eq!(errno(name), Some(i64::from(expected)), "{name} inside");
        }
        // Nothing waits to be read, inside or before it.
        assert_eq!(person.asks("read -t 0; echo $?"), ["1"]);
        leave(person);
        assert_eq!(person.asks("read -t 0; echo $?"), ["1"]);
    });
}

/// A pseudo-terminal is no virtual console: TIOCLINUX exists for those alone, and its control is that the kernel was asked.
fn the_kernel_was_asked(errno: Option<i64>) -> bool {
    errno != Some(i64::from(EPERM))
}

/// A stream that is no terminal is handed on as it is; with standard output on the terminal, the rest is the program's
/// terminal.
#[test]
fn streams_that_are_elsewhere_stay_there() {
    at_terminals(|_, env, person| {
        env.workspace_file("input", "from a file\n");
        let run = |words: &str| person.sandboxed(words);
        let terminals = "sh -c 'for n in 0 1 2; do test -t $n && echo $n is; done; :'";
        let cases = [
            (format!("{} < input", run("cat")), vec!["from a file"]),
            (format!("echo piped | {}", run("cat")), vec!["piped"]),
            (format!("{} < input", run(terminals)), vec!["1 is", "2 is"]),
            (format!("{} | cat", run(terminals)), vec!["2 is"]),
            (format!("{} | cat", run("sh -c 'cat; echo nothing was read'")), vec!["nothing was read"]),
            (format!("{} 2>&1 | cat", run(terminals)), vec![]),
            (
                format!("{} | cat", run("sh -c 'tty < /dev/tty'")),
                vec!["sh: 1: cannot open /dev/tty: No such device or address"],
            ),
            (format!("{} > file; cat file", run("sh -c 'echo one; echo two'")), vec!["one", "two"]),
            (run("sh -c 'exit 7'") + "; echo $?", vec!["7"]),
            (run("seq 100000") + " | tail -n 1", vec!["100000"]),
            (run("sh -c 'seq 100000; exit 3'") + " | tail -n 1", vec!["100000"]),
        ];
        for (line, wanted) in cases {
            assert_eq!(person.asks(&line), wanted, "{line}");
        }
        let nowhere = person.sandboxed_with(&["--tty"], "true");
        let said = person.asks(&format!("setsid -w {nowhere} < /dev/null > said 2>&1; echo $?; cut -d' ' -f 1-7 said"));
        assert_eq!(said, ["64", "callgate: --tty: there is no terminal here"]);
        // All that a program wrote is shown before callgate ends.
        person.starts(&person.sandboxed("seq 100000"));
        person.waits_for("the last line, then the prompt", |screen| screen.contains("100000\nouter>"));
        let wanted = person.sandboxed_with(&["--tty"], "sh -c 'echo asked; read line < /dev/tty; echo read $line'");
        person.starts(&format!("{wanted} | cat"));
        person.shows_line("asked");
        person.enters("typed");
        // By another way than the echo of what was typed, and so perhaps on its line.
        person.shows("read typed");
    });
}

/// openpty(3) and what is built on it, in both strengths: a terminal inside the terminal.
#[test]
fn programs_inside_make_terminals() {
    at_terminals(|_, _, person| {
        let make =
            "/usr/bin/python3 -c 'import os,pty; m,s=os.openpty(); os.write(s,b\"through\\n\"); print(os.read(m,99))'";
        person.starts(&person.sandboxed(make));
        person.shows_line("b'through\\r\\n'");
        let script = "script -qec 'test -t 0 && test -t 1 && echo a terminal' /dev/null";
        person.starts(&person.sandboxed(script));
        person.shows_line("a terminal");
        person.shows("outer>");
    });
}
