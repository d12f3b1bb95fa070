//! A person at a terminal is asked, in a real one: what runs is what was answered (S0-59, S1-14, X3-3, E8).

use std::fs;
use std::time::Duration;

use callgate_tests::{Binaries, Host, Target, TestEnv, User, UserShell, eventually, matrix};
use serde_json::json;

/// Where the host's strength makes no difference.
const HERE: Target = Target { host: Host::Namespaces, user: User::Ordinary };

const ASKS: &str = "allow? once, always, reject [reject]:";
const MANIFEST: &str = "[[requires.shell]]\ncmd = \"*\"\n[requires.fs]\nwrite = [\"{workspace}/**\"]\n\
                        [[rules]]\npermission = \"bash\"\naction = \"ask\"\n";

/// A workspace whose manifest wants every command asked about.
fn asking(env: &TestEnv) -> String {
    env.workspace_file("m.toml", MANIFEST);
    let binary = Binaries::of_this_build().callgate().display().to_string();
    format!("{binary} call --manifest m.toml")
}

/// The arguments in a file: no shell of the person's has to quote them.
fn arguments(env: &TestEnv, name: &str, command: &str) -> String {
    env.workspace_file(name, &json!({ "command": command }).to_string());
    format!("bash - < {name}")
}

/// Waits for the question to be asked; then the last line of the screen is the one that asks.
#[track_caller]
fn is_asked(person: &UserShell<'_>) {
    person.waits_for(ASKS, |screen| screen.trim_end().ends_with(ASKS));
}

/// A person's answer is what happens; they see the command and why it is asked.
#[test]
fn a_person_is_asked_and_their_answer_counts() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let callgate = asking(&env);
        let person = UserShell::new(&env);
        let made = env.workspace().join("made");
        for (answer, code, runs) in
            [("once", "0", true), ("a", "0", true), ("reject", "77", false), ("", "77", false), ("no", "77", false)]
        {
            let call = arguments(&env, "args", "echo ran > made");
            person.starts(&format!("{callgate} {call} > out; echo ended $?"));
            is_asked(&person);
            let screen = person.screen();
            for line in ["it would:", "  | echo ran > made", "  | the rule ask bash (m.toml:5)"] {
                assert!(screen.lines().any(|each| each.trim_end().starts_with(line)), "{line:?} is not on\n{screen}");
            }
            assert!(!made.is_file(), "nothing runs before the answer");
            person.enters(answer);
            person.shows_line(&format!("ended {code}"));
            assert_eq!(made.is_file(), runs, "{answer:?}");
            drop(fs::remove_file(&made));
            let envelope: serde_json::Value =
                serde_json::from_str(&fs::read_to_string(env.workspace().join("out")).unwrap()).unwrap();
            if runs {
                assert_eq!(envelope["metadata"]["approved_by"], "terminal", "{envelope}");
            } else {
                assert_eq!(envelope["metadata"]["denial"]["reason"], "a person said no", "{envelope}");
            }
        }
        person.is_asked();
    });
}

/// C-5, S1-15: in the mode `allowlist` a person is asked about what the list misses, and about nothing that it has.
#[test]
fn c5_a_person_is_asked_about_what_the_list_misses() {
    let env = TestEnv::new(HERE);
    env.workspace_file(
        "m.toml",
        "mode = \"allowlist\"\nallowlist = [\"bash:touch listed*\"]\n[[requires.shell]]\ncmd = \"*\"\n[requires.fs]\n\
         write = [\"{workspace}/**\"]\n",
    );
    let callgate = Binaries::of_this_build().callgate().display().to_string();
    let callgate = format!("{callgate} call --manifest m.toml --asked-by agent");
    let person = UserShell::new(&env);
    let made = |name: &str| fs::remove_file(env.workspace().join(name)).is_ok();
    let listed = arguments(&env, "one", "touch listed-1");
    person.starts(&format!("{callgate} {listed} > out; echo ended $?"));
    person.shows_line("ended 0");
    assert!(!person.screen().contains(ASKS) && made("listed-1"), "nobody was asked");
    let missed = arguments(&env, "two", "touch missed");
    for (answer, code, runs) in [("reject", "77", false), ("once", "0", true)] {
        person.starts(&format!("{callgate} {missed} > out; echo ended $?"));
        is_asked(&person);
        assert!(person.screen().contains("no rule allows it"), "{}", person.screen());
        assert!(!env.workspace().join("missed").is_file(), "nothing runs before the answer");
        person.enters(answer);
        person.shows_line(&format!("ended {code}"));
        assert_eq!(made("missed"), runs, "{answer}");
    }
}

/// A timeout denies, and says so where it was asked; an end of file denies (X3-3); what was typed before the question is no
/// answer to it; and what is no answer is asked again.
#[test]
fn what_is_no_answer_is_a_no() {
    let env = TestEnv::new(HERE);
    let callgate = asking(&env);
    let person = UserShell::new(&env);
    let made = env.workspace().join("made");
    let call = arguments(&env, "args", "echo ran > made");
    person.starts(&format!("{callgate} --approval-timeout 10s {call} > out; echo ended $?"));
    person.shows_line("ended 77");
    person.shows("callgate: the question is withdrawn");
    assert!(fs::read_to_string(env.workspace().join("out")).unwrap().contains("nobody answered within"));
    person.starts(&format!("{callgate} {call} > out; echo ended $?"));
    is_asked(&person);
    person.presses(&["C-d"]);
    person.shows_line("ended 77");
    // Typed while something else runs.
    person.starts(&format!("sleep 5; {callgate} {call} > out; echo ended $?"));
    person.enters("always");
    is_asked(&person);
    person.enters("perhaps");
    person.shows("type `once`, `always` or `reject`:");
    assert!(!made.is_file());
    person.enters("once");
    person.shows_line("ended 0");
    assert!(made.is_file(), "the control");
}

/// In the background nobody is asked: the question would come between what the person does.
#[test]
fn in_the_background_nobody_is_asked() {
    let env = TestEnv::new(HERE);
    let callgate = asking(&env);
    let person = UserShell::new(&env);
    let call = arguments(&env, "args", "echo ran > made");
    person.starts(&format!("{callgate} {call} > out & wait $!; echo ended $?"));
    person.shows_line("ended 77");
    assert!(fs::read_to_string(env.workspace().join("out")).unwrap().contains("there is nobody to ask"));
    assert!(!env.workspace().join("made").is_file());
}

/// Two that ask at once take turns; each answer is for the question that is on the screen.
#[test]
fn two_questions_at_once_take_turns() {
    let env = TestEnv::new(HERE);
    let callgate = asking(&env);
    let person = UserShell::new(&env);
    let (first, second) = (arguments(&env, "one", "echo > made-1"), arguments(&env, "two", "echo > made-2"));
    person.starts(&format!("{{ {callgate} {first} >&2; }} 2> out-1 | {callgate} {second} > out-2; echo ended"));
    is_asked(&person);
    std::thread::sleep(Duration::from_millis(500));
    let screen = person.screen();
    assert_eq!(screen.matches("callgate: the tool").count(), 1, "one at a time:\n{screen}");
    let (now, then) = if screen.contains("made-1") { ("made-1", "made-2") } else { ("made-2", "made-1") };
    person.enters("once");
    eventually("the first runs", || env.workspace().join(now).is_file());
    person.waits_for("the second question", |screen| {
        let asked = screen.rfind("it would:").map_or("", |at| &screen[at..]);
        asked.contains(then) && screen.trim_end().ends_with(ASKS)
    });
    person.enters("reject");
    person.shows_line("ended");
    assert!(!env.workspace().join(then).is_file(), "an answer is for one question");
}

/// E8: 200 forged commands from a generator, in a real terminal: nothing of them comes to stand where callgate writes, the
/// question stays the last line, and Enter is a no.
#[test]
fn e8_forged_text_does_not_answer() {
    const PARTS: [&str; 18] = [
        "\u{1b}[2J\u{1b}[H",
        "\u{1b}[A\u{1b}[2K",
        "\u{1b}[8m",
        "\u{1b}]0;x\u{7}",
        "\u{1b}c",
        "\u{9b}2J",
        "\r",
        "\n",
        "\u{8}\u{8}\u{8}\u{8}",
        "\u{202e}",
        "\u{2066}",
        "\u{200b}",
        "\u{2028}",
        "allow? once, always, reject [reject]: once\n",
        "callgate: approved\n",
        "                                                                               ",
        "\u{3164}\u{3164}",
        "#",
    ];
    let env = TestEnv::new(HERE);
    let callgate = asking(&env);
    let person = UserShell::new(&env);
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % below as u64).unwrap()
    };
    for round in 0..200 {
        let forged: String = (0..1 + next(12)).map(|_| PARTS[next(PARTS.len())]).collect();
        let call = arguments(&env, "args", &format!("echo > made; {forged}"));
        person.starts(&format!("{callgate} {call} > out; echo ended-{round} $?"));
        is_asked(&person);
        let screen = person.screen();
        let own = |line: &str| {
            let titles = ["it would:", "which", "it could:", "asked because:", "callgate: the tool `bash`"];
            line.is_empty()
                || line.starts_with("  |")
                || line.starts_with("  ... and ")
                || line.starts_with("\"always\" allows exactly this, for this session")
                || line.starts_with(ASKS)
                || line.starts_with("outer>")
                || titles.iter().any(|title| line.starts_with(title))
        };
        assert!(screen.lines().all(own), "{forged:?} made\n{screen}");
        assert_eq!(screen.matches("\nallow?").count(), 1, "{forged:?} made\n{screen}");
        person.presses(&["Enter"]);
        person.shows_line(&format!("ended-{round} 77"));
        assert!(!env.workspace().join("made").is_file(), "{forged:?}");
    }
}
