//! Attacks where a host is granted (B1 to B4, B6, B8 to B10, F16): on the Internet of `network.rs`, which tells who was reached.

use callgate_tests::{Binaries, ProgramOutcome, ProgramRunner, skip};
use libc::{EACCES, EAFNOSUPPORT, ENETUNREACH, ENOSYS, EOPNOTSUPP, EPERM};
use serde_json::Value;

use super::network::{Internet, on_the_internet, shell};

/// The host that is granted, by name and address, and another that is not.
const GOOD: &str = "93.184.216.34";
const EVIL: &str = "93.184.216.35";
/// Greets whoever connects, and writes down that they came.
const ECHO: &str = "2525";

/// Requests that its servers have seen, but for the granted host's name being asked for.
fn seen(internet: &Internet) -> Vec<String> {
    let seen = internet.seen();
    seen.lines().filter(|line| !line.starts_with("name good.example ")).map(str::to_owned).collect()
}

/// Results of these acts, made one after the other.
#[track_caller]
fn acts(run: &ProgramRunner, acts: &[&[&str]]) -> Vec<Value> {
    let probe = Binaries::of_this_build().probe().display().to_string();
    let line = |act: &&[&str]| {
        let words: Vec<String> = act.iter().map(|word| format!("'{word}'")).collect();
        format!("{probe} {}", words.join(" "))
    };
    let ended = shell(run, &acts.iter().map(line).collect::<Vec<_>>().join("\n"));
    let answers: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), acts.len(), "each was tried: {ended:?}");
    answers
}

/// B1, B2, B3, B4, B8, B9: with a host granted, no kind of socket and no way of sending leads past what compares: neither to that host,
/// by its address and port, nor to another. The control connects to it as it may.
#[test]
fn b1_b2_b3_b4_b8_b9_no_kind_of_socket_leads_past_a_grant() {
    on_the_internet(|internet| {
        let by_strength = |rules| internet.env.target().by_strength(ENETUNREACH, rules);
        let mut tried: Vec<(Vec<&str>, i32)> = Vec::new();
        for address in [GOOD, EVIL] {
            for (act, errno) in [
                ("mptcp-connect", EACCES),
                ("fastopen-sendto", EOPNOTSUPP),
                ("fastopen-sendmsg", EOPNOTSUPP),
                ("fastopen-sendmmsg", EOPNOTSUPP),
                ("fastopen-connect", EPERM),
                ("sctp", EACCES),
                ("udp-sendto", by_strength(EACCES)),
                ("udp-connect", by_strength(EACCES)),
            ] {
                tried.push((vec![act, address, ECHO], errno));
            }
        }
        for (act, errno) in [
            ("raw", EACCES),
            ("ping-socket", EACCES),
            ("packet", EAFNOSUPPORT),
            ("vsock", EAFNOSUPPORT),
            ("alg", EAFNOSUPPORT),
            ("key", EAFNOSUPPORT),
            ("smc", EAFNOSUPPORT),
            ("io-uring-setup", ENOSYS),
        ] {
            tried.push((vec![act], errno));
        }
        let all: Vec<&[&str]> = tried.iter().map(|(act, _)| &act[..]).collect();
        let (granted, other) = (["tcp-connect", GOOD, ECHO], ["tcp-connect", EVIL, ECHO]);
        let controls = acts(&internet.bare(), &[&[&granted[..], &other], &all[..]].concat());
        let came = seen(internet);
        // TCP to both; MPTCP and four ways of fast open to both.
        assert_eq!(came.len(), 12, "{came:?}: {controls:?}");
        for (act, control) in all.iter().zip(&controls[2..]).filter(|(_, control)| control["ok"] != true) {
            assert!(act.len() == 1 || act[0] == "sctp", "{control}");
            skip("kind-of-socket", format_args!("control of {act:?} as {:?}: {control}", internet.env.target().user));
        }
        let inside = internet.inside(&[&format!("{GOOD}:*"), "good.example:*"]);
        let answers = acts(&inside, &[&[&granted[..], &other], &all[..]].concat());
        assert_eq!(
            (&answers[0]["ok"], &answers[1]["errno"]),
            (&Value::from(true), &Value::from(EACCES)),
            "{answers:?}"
        );
        let unexpected: Vec<_> =
            tried.iter().zip(&answers[2..]).filter(|((_, errno), answer)| answer["errno"] != *errno).collect();
        assert!(unexpected.is_empty(), "{unexpected:?}");
        assert_eq!(seen(internet), [format!("echo {GOOD}:{ECHO}")], "the granted connection, and no other");
    });
}

/// B6: variables that name a proxy, or say that there is none, change nothing. A proxy outside is a host like any other; by the
/// session's own only what is granted is reached, and a program that goes past it finds the same.
#[test]
fn b6_variables_of_proxies_change_nothing() {
    let curl = "curl -sS -m 30";
    on_the_internet(|internet| {
        let own = "http://198.18.0.1:3128";
        let others = format!("http://{EVIL}:8080");
        let inside = internet.inside(&["good.example"]);
        for (variables, url) in [
            (format!("http_proxy={others}"), "http://good.example/"),
            (format!("ALL_PROXY={others}"), "http://good.example/"),
            ("NO_PROXY='*'".to_owned(), "http://evil.example/"),
            ("-u http_proxy".to_owned(), "http://evil.example/"),
        ] {
            let script = format!("env {variables} {curl} {url}");
            let control = shell(&internet.bare(), &script);
            assert!(control.stdout.contains(EVIL) && !seen(internet).is_empty(), "{script}: {control:?}");
            let ended = shell(&inside, &script);
            assert!(matches!(ended.status.code(), Some(5..=7)) && ended.stdout.is_empty(), "{script}: {ended:?}");
            assert_eq!(seen(internet), [""; 0], "{script}");
        }
        let script = |url: &str, more: &str| format!("env http_proxy={own} https_proxy={own} {curl} {more} {url}");
        let by_own = shell(&inside, &script("http://good.example/", ""));
        assert!(by_own.stdout.contains(GOOD) && !seen(internet).is_empty(), "the control: {by_own:?}");
        for (more, code) in [("", 0), ("--noproxy '*'", 6)] {
            let ended = shell(&inside, &script("http://evil.example/", more));
            assert_eq!(ended.status.code(), Some(code), "{more}: {ended:?}");
            assert!(!ended.stdout.contains("http of"), "{more}: {ended:?}");
            assert_eq!(code == 0, ended.stdout.contains("callgate: evil.example:80 was not granted"), "{ended:?}");
            assert!(ended.stderr.contains("--net evil.example"), "it is reported: {ended:?}");
            assert_eq!(seen(internet), [""; 0], "{more}");
        }
    });
}

/// B10: real clients of SOCKS and CONNECT reach a host through the session's proxy if it is granted, and no other. The control is the
/// same where the other host is granted too.
#[test]
fn b10_clients_of_socks_and_connect_reach_granted_hosts_alone() {
    let mut lines = Vec::new();
    for (options, scheme, refused) in [
        ("--socks5-hostname 198.18.0.1:3128", "http", 97),
        ("--socks5-hostname 198.18.0.1:3128", "https", 97),
        ("-x socks5h://198.18.0.1:3128", "https", 97),
        ("--proxytunnel -x http://198.18.0.1:3128", "http", 56),
        ("-x http://198.18.0.1:3128", "https", 56),
    ] {
        for (name, is_granted) in [
            ("good.example", true),
            ("GOOD.example.", true),
            ("evil.example", false),
            ("EVIL.EXAMPLE", false),
            (EVIL, false),
            ("0x5db8d823", false),
            ("1572395043", false),
            ("0135.0270.0330.043", false),
        ] {
            lines.push((format!("curl -sS -k -m 30 {options} {scheme}://{name}/"), scheme, is_granted, refused));
        }
    }
    // What each of them printed, and its status.
    let run = |run: &ProgramRunner| -> (Vec<String>, ProgramOutcome) {
        let script: String =
            lines.iter().map(|(line, ..)| format!("{line} | tr '\\n' ' '; echo $PIPESTATUS\n")).collect();
        let ended = run.run(&["/bin/bash", "-c", &script]);
        (ended.stdout.lines().map(str::to_owned).collect(), ended)
    };
    on_the_internet(|internet| {
        let (control, _) = run(&internet.inside(&["good.example", "evil.example", EVIL]));
        let both = seen(internet);
        assert!(both.iter().filter(|line| line.contains(EVIL)).count() == 30, "the control: {both:?}");
        let (printed, ended) = run(&internet.inside(&["good.example"]));
        assert_eq!((control.len(), printed.len()), (lines.len(), lines.len()), "{ended:?}");
        for ((line, scheme, is_granted, refused), (control, printed)) in lines.iter().zip(control.iter().zip(&printed))
        {
            let host = if *is_granted { GOOD } else { EVIL };
            let reached =
                |printed: &String| printed.starts_with(&format!("{scheme} of {host} for ")) && printed.ends_with(" 0");
            assert!(reached(control), "{line}: {control}");
            assert!(if *is_granted { reached(printed) } else { *printed == refused.to_string() }, "{line}: {printed}");
        }
        let came = seen(internet);
        assert!(came.len() == 10 && came.iter().all(|line| line.contains(GOOD)), "{came:?}");
        for port in ["80", "443"] {
            assert!(ended.stderr.contains(&format!("evil.example:{port} (")), "it is reported: {ended:?}");
        }
    });
}

/// B10: what one program reads as a granted host and another as a host that is not, no proxy takes. Nobody is asked for it, either.
#[test]
fn b10_a_spelling_that_programs_read_differently_is_no_host() {
    let hosts = [
        "evil.example\\0.good.example",
        "evil.example%00.good.example",
        "evil.example#.good.example",
        "evil.example@.good.example",
        "good.example@evil.example",
        "evil.example/.good.example",
        "evil.example\\.good.example",
        "evil.example..good.example",
        "[::ffff:93.184.216.35]",
        "[64:ff9b::5db8:d823]",
        "0x5db8d823",
        "0135.0270.0330.043",
        "1572395043",
        "93.184.55331",
    ];
    let asked = |hosts: &[&'static str]| -> Vec<[&'static str; 5]> {
        let by = |kind| hosts.iter().map(move |host| ["by-proxy", "198.18.0.1:3128", kind, host, "80"]);
        ["socks", "connect", "request"].into_iter().flat_map(by).collect()
    };
    on_the_internet(|internet| {
        let inside = internet.inside(&["good.example", "*.good.example"]);
        let run = |hosts: &[&'static str]| {
            let asked = asked(hosts);
            let answers = acts(&inside, &asked.iter().map(|words| &words[..]).collect::<Vec<_>>());
            asked.into_iter().zip(answers).collect::<Vec<_>>()
        };
        for (words, answer) in run(&["sub.good.example"]) {
            assert!(answer["answer"].as_str().unwrap_or("").contains("for sub.good.example"), "{words:?}: {answer}");
        }
        assert_ne!(seen(internet), [""; 0]);
        for (words, answer) in run(&hosts) {
            assert!(matches!(answer["name"].as_str(), Some("EACCES" | "EINVAL")), "{words:?}: {answer}");
        }
        assert_eq!(seen(internet), [""; 0]);
    });
}

fn callgate(internet: &Internet, words: &[&str]) -> ProgramOutcome {
    let binary = Binaries::of_this_build().callgate().display().to_string();
    let home = internet.env.outside().display().to_string();
    internet.on(internet.env.weakened().variable("HOME", &home)).run(&[&[&*binary], words].concat())
}

/// F16: a granted host is a way out for whatever may be read, which is said before a manifest counts. A grant of less holds:
/// what is granted at one port, or for fetching alone, takes nothing in at another.
#[test]
fn f16_a_granted_host_is_a_way_out_and_said_to_be_one() {
    let manifest = |hosts: &str| {
        format!(
            "id = \"x\"\n[[requires.shell]]\ncmd = \"*\"\n[requires.fs]\nwrite = [\"{{workspace}}/**\"]\n[requires.net]\nhosts = [{hosts}]\n"
        )
    };
    let send = ["curl", "-fsS", "-m", "30", "--data-binary", "@secret", "http://good.example/"];
    on_the_internet(|internet| {
        internet.env.workspace_file("secret", "what may be read");
        let control = internet.bare().run(&send);
        assert!(control.status.success() && internet.seen().contains("post 16"), "{control:?}");
        let cases = [
            ("\"good.example\"", true, true),
            ("\"good.example:443\"", false, true),
            ("\"good.example:https\"", false, true),
            ("\"other.example\"", false, true),
            ("", false, false),
        ];
        let tried = cases.map(|(hosts, ..)| {
            internet.env.workspace_file("callgate.toml", &manifest(hosts));
            let trusted = callgate(internet, &["trust", "."]);
            assert!(trusted.status.success(), "{trusted:?}");
            let told = format!("{}{}", trusted.stdout, trusted.stderr);
            let is_said =
                told.contains("whatever may be read can be sent to these hosts") && told.contains("to anybody");
            internet.seen();
            let ended = callgate(internet, &[&["run", "--"], &send[..]].concat());
            let is_out = internet.seen().contains("post ");
            assert_eq!(ended.status.success(), is_out, "{hosts}: {ended:?}");
            (hosts, is_out, is_said)
        });
        assert_eq!(tried, cases);
    });
}
