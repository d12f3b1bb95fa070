//! `web_search`: whom it asks, how often, and what comes of it (S0-19, S0-33 to S0-35); and `[[net.credentials]]`: what egress adds to
//! requests, so that no call holds it (X0-18). Against the Internet of `network.rs`, whose servers answer as the providers do.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use callgate_tests::{Binaries, Host, ProgramOutcome, ProgramRunner, TestEnv, User, matrix};
use serde_json::{Value, json};

use super::network::{Internet, on_the_internet};

/// Page that is found on the suite's Internet.
const FOUND: &str = "https://found.example/page";
/// Secrets, which no other text is like.
const BY_VARIABLE: &str = "variable-secret-3f9a77";
const BY_FILE: &str = "file-secret-51c0de";

fn binary() -> String {
    Binaries::of_this_build().callgate().display().to_string()
}

/// A command of callgate's, where the two secrets are.
fn run(internet: &Internet, words: &[&str]) -> ProgramOutcome {
    let state = internet.env.outside().join("state");
    let run = internet.env.weakened().variable("THE_KEY", BY_VARIABLE);
    let run = internet.on(run.variable("XDG_STATE_HOME", &state.display().to_string()));
    run.run(&[&[binary().as_str()], words].concat())
}

/// A call in a session of its own, under this manifest.
fn call(internet: &Internet, manifest: &str, tool: &str, arguments: &Value) -> (i32, Value) {
    let manifest = internet.env.file("m.toml", &format!("mode = \"yolo\"\n{manifest}")).text().to_owned();
    answered(run(internet, &["call", "--manifest", &manifest, tool, &arguments.to_string()]))
}

fn answered(ended: ProgramOutcome) -> (i32, Value) {
    let envelope = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    (ended.status.code().unwrap(), envelope)
}

/// A manifest that grants hosts at most, and names providers.
fn asking(hosts: &[&str], providers: &str, more: &str) -> String {
    format!("[ceiling.net]\nhosts = {hosts:?}\n[net.search]\nproviders = [{providers}]\n{more}")
}

fn search(internet: &Internet, manifest: &str) -> (i32, Value) {
    call(internet, manifest, "web_search", &json!({ "query": "what is it" }))
}

const ALL: [&str; 4] = ["searxng", "brave", "tavily", "duckduckgo"];

/// S0-19, S0-33: each kind of provider, in the clear and by TLS, gives titles, URLs and snippets, which are called untrusted. It is asked
/// only where a ceiling leaves its host.
#[test]
fn s0_19_s0_33_a_granted_provider_is_asked_and_no_other() {
    on_the_internet(|internet| {
        for kind in ALL {
            for scheme in ["http", "https"] {
                let provider = format!("{{ kind = \"{kind}\", url = \"{scheme}://good.example/\" }}");
                let (status, envelope) = search(internet, &asking(&["good.example"], &provider, ""));
                let data = &envelope["data"];
                assert_eq!(
                    (status, &data["untrusted"], &data["provider"]),
                    (0, &json!(true), &json!(kind)),
                    "{envelope}"
                );
                let first = &data["results"][0];
                let wanted = if kind == "duckduckgo" { "https://www.rust-lang.org/" } else { FOUND };
                assert_eq!(first["url"], wanted, "{envelope}");
                assert!(!first["title"].as_str().unwrap().is_empty() && first["snippet"].is_string(), "{envelope}");
                let seen = internet.seen();
                let asked = if kind == "tavily" { "what is it" } else { "q=what+is+it" };
                assert!(seen.contains(asked), "{seen}");
            }
            let provider = format!("{{ kind = \"{kind}\", url = \"https://good.example\" }}");
            let (status, envelope) = search(internet, &asking(&["evil.example", "good.example:80"], &provider, ""));
            let denial = &envelope["metadata"]["denial"];
            assert_eq!((status, &denial["layer"]), (77, &json!("capability")), "{envelope}");
            assert_eq!(denial["asked"], "net.hosts good.example:443", "{envelope}");
            assert!(
                denial["remedy"].as_str().unwrap().contains("\"good.example\" to `hosts` in [ceiling.net]"),
                "{envelope}"
            );
            assert_eq!(internet.seen(), "", "nobody was asked");
        }
    });
}

/// S2-9, X2-17: by S2's name, with the query under each of its names; results are ranked and have a `ref_id` each. There are five unless
/// the call says otherwise.
#[test]
fn s2_9_x2_17_web_search_by_its_name_in_deepseek() {
    on_the_internet(|internet| {
        let provider = "{ kind = \"duckduckgo\", url = \"https://good.example\" }";
        let grants = |host: &str| format!("surface = \"deepseek\"\n{}", asking(&[host], provider, ""));
        for arguments in [
            json!({ "query": "what is it" }),
            json!({ "q": "what is it" }),
            json!({ "search_query": ["what is", "it"] }),
            json!({ "query": "what is it", "max_results": 1 }),
        ] {
            let (status, envelope) = call(internet, &grants("good.example"), "web_search", &arguments);
            assert_eq!(status, 0, "{arguments}: {envelope}");
            let results = envelope["data"]["results"].as_array().unwrap();
            assert_eq!(results[0]["url"], "https://www.rust-lang.org/", "{envelope}");
            let most = arguments["max_results"].as_u64().unwrap_or(5);
            assert!(results.len() as u64 <= most && (most == 1 || results.len() > 1), "{arguments}: {envelope}");
            for (number, result) in results.iter().enumerate() {
                assert_eq!(result["ref_id"], format!("web_{}", number + 1), "{envelope}");
                assert!(result["title"].is_string() && result["snippet"].is_string(), "{envelope}");
            }
            let seen = internet.seen();
            assert!(seen.contains("q=what+is+it"), "{arguments}: {seen}");
        }
        let none = call(internet, &grants("evil.example"), "web_search", &json!({ "q": "x" }));
        assert_eq!((none.0, &none.1["metadata"]["denial"]["layer"]), (77, &json!("capability")), "{}", none.1);
        assert_eq!(call(internet, &grants("good.example"), "web_search", &json!({ "max_results": 1 })).0, 65);
        assert_eq!(internet.seen(), "", "nobody was asked");
    });
}

/// S0-34, C-19: a session asks the same provider first, sessions do not all ask the same one, and another is asked if it fails, which
/// the result says.
#[test]
fn s0_34_c_19_another_provider_is_asked_if_one_fails() {
    matrix(&[Host::Namespaces], |target| {
        let Some(internet) = Internet::new(target, "") else { return };
        let broken = "{ kind = \"searxng\", url = \"https://good.example/broken\" }";
        let good = "{ kind = \"brave\", url = \"https://sub.good.example\" }";
        let hosts = ["good.example", "sub.good.example"];
        let manifest = asking(&hosts, &format!("{broken}, {good}"), "");
        let (mut first, mut second) = (false, false);
        // Each begins with one or the other by its id, as by the toss of a coin.
        for _ in 0..100 {
            let (status, envelope) = search(&internet, &manifest);
            assert_eq!((status, &envelope["data"]["provider"]), (0, &json!("brave")), "{envelope}");
            assert_eq!(envelope["data"]["results"][0]["url"], FOUND, "{envelope}");
            let failed = &envelope["data"]["failed"];
            if failed.is_null() {
                first = true;
            } else {
                second = true;
                let error = failed[0]["error"].as_str().unwrap();
                assert!(failed[0]["provider"] == "searxng" && error.contains("503"), "{envelope}");
            }
            if first && second {
                break;
            }
        }
        assert!(first && second, "sessions begin with either");

        // One that may not be asked is passed over, and the only one that is left tells its own error.
        let (status, envelope) = search(&internet, &asking(&["sub.good.example"], &format!("{broken}, {good}"), ""));
        assert_eq!((status, &envelope["data"]["provider"]), (0, &json!("brave")), "{envelope}");
        let (status, envelope) = search(&internet, &asking(&["good.example"], &format!("{broken}, {good}"), ""));
        assert!(status == 1 && envelope["error_text"].as_str().unwrap().contains("503"), "{envelope}");

        let manifest = internet.env.workspace_file(
            "callgate.toml",
            &format!(
                "mode = \"yolo\"\n{}",
                asking(&hosts, &["{ kind = \"searxng\", url = \"https://good.example\" }", good].join(", "), "")
            ),
        );
        let manifest = manifest.text().to_owned();
        let id = run(&internet, &["session", "new", "--manifest", &manifest]).stdout.trim().to_owned();
        let again = || {
            let words = ["call", "--session", &id, "web_search", r#"{"query": "x"}"#];
            answered(run(&internet, &words)).1["data"]["provider"].clone()
        };
        let first = again();
        assert!(first.is_string() && (0..3).all(|_| again() == first), "a session keeps to {first}");
    });
}

/// S0-35: after so many searches a session makes no more, also in its next process; the error has the number. A model cannot say whom to
/// ask. Without a provider the error says what to write.
#[test]
fn s0_35_searches_are_counted_and_must_be_configured() {
    matrix(&[Host::Namespaces], |target| {
        let Some(internet) = Internet::new(target, "") else { return };
        let provider = "{ kind = \"searxng\", url = \"https://good.example\" }";
        let text = format!("mode = \"yolo\"\n{}", asking(&["good.example"], provider, "calls = 3\n"));
        let manifest = internet.env.workspace_file("m.toml", &text).text().to_owned();
        let id = run(&internet, &["session", "new", "--manifest", &manifest]).stdout.trim().to_owned();
        let again = || answered(run(&internet, &["call", "--session", &id, "web_search", r#"{"query": "x"}"#]));
        for _ in 0..3 {
            assert_eq!(again().0, 0);
        }
        internet.seen();
        let (status, envelope) = again();
        let text = envelope["error_text"].as_str().unwrap();
        assert!(status == 1 && text.contains("its 3 searches"), "{envelope}");
        assert_eq!(envelope["metadata"]["error"]["context"]["code"], "LimitExceeded", "{envelope}");
        assert_eq!(internet.seen(), "", "nobody was asked");

        for hidden in ["provider", "provider_url", "tls_by_egress", "timeout_ms"] {
            let (status, envelope) = call(
                &internet,
                &asking(&["good.example"], provider, ""),
                "web_search",
                &json!({ "query": "x", hidden: "x" }),
            );
            assert_eq!((status, internet.seen()), (65, String::new()), "{envelope}");
        }
        let (status, envelope) = search(&internet, "[requires.net]\nhosts = [\"good.example\"]\n");
        let text = envelope["error_text"].as_str().unwrap();
        assert!(status != 0 && text.contains("[net.search]") && text.contains("duckduckgo"), "{envelope}");
        // It is offered where it can be asked, and nowhere else.
        let offered =
            |manifest: &str| call(&internet, manifest, "no_such_tool", &json!({})).1["error_text"].to_string();
        assert!(offered(&asking(&[], provider, "")).contains("web_fetch, web_search, "));
        assert!(!offered("id = \"x\"\n").contains("web_search"));
    });
}

/// Credentials for hosts of the Internet: by TLS, in the clear, from a variable and from a file.
fn with_credentials(key: &Path) -> String {
    format!(
        "[requires.net]\nhosts = [\"good.example\", \"sub.good.example\", \"other.example\", \"evil.example\", \"93.184.216.34\"]\n\
         [net.search]\nproviders = [{{ kind = \"brave\", url = \"https://good.example\" }}]\n\
         [[net.credentials]]\nhost = \"good.example\"\nheader = \"X-Subscription-Token\"\nenv = \"THE_KEY\"\n\
         [[net.credentials]]\nhost = \"other.example\"\nover = \"http\"\nheader = \"Authorization\"\nprefix = \"Bearer \"\n\
         file = \"{}\"\n",
        key.display()
    )
}

/// The file with a secret, which its user alone reads.
fn key(env: &TestEnv) -> PathBuf {
    let key = env.file("key", &format!("{BY_FILE}\n"));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    key.to_path_buf()
}

/// The lines of what came to servers that have a credential in them.
fn credentials(seen: &str) -> Vec<&str> {
    seen.lines().filter_map(|line| line.strip_prefix("credential ")).collect()
}

/// All that is written below a directory.
fn written(directory: &Path) -> Vec<u8> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { written(&path) } else { fs::read(path).unwrap_or_default() }).collect()
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// X0-18: a server gets what egress adds for it, and nobody else does: no other host, no result, no program, no record.
#[test]
fn x0_18_a_credential_comes_to_its_host_and_nowhere_else() {
    on_the_internet(|internet| {
        let key = key(&internet.env);
        let manifest = with_credentials(&key);
        let fetch = |url: &str| call(internet, &manifest, "web_fetch", &json!({ "url": url }));
        let by_variable = format!("good.example X-Subscription-Token: {BY_VARIABLE}");
        let by_file = format!("other.example Authorization: Bearer {BY_FILE}");
        let cases: [(&str, &[&str]); 8] = [
            ("https://good.example/a", &[&by_variable]),
            ("http://other.example/a", &[&by_file]),
            // What is for TLS does not go in the clear, nor the other way.
            ("http://good.example/a", &[]),
            ("https://other.example/a", &[]),
            ("https://sub.good.example/a", &[]),
            ("http://93.184.216.34/a", &[]),
            // The next host of a redirect gets nothing, and the one that redirects gets its own.
            ("https://good.example/to/https://sub.good.example/b", &[&by_variable]),
            ("https://sub.good.example/to/https://good.example/b", &[&by_variable]),
        ];
        for (url, wanted) in cases {
            let (status, envelope) = fetch(url);
            assert_eq!((status, &envelope["data"]["status"]), (0, &json!(200)), "{url}: {envelope}");
            assert_eq!(credentials(&internet.seen()), wanted, "{url}");
            let shown = envelope.to_string();
            assert!(!shown.contains(BY_VARIABLE) && !shown.contains(BY_FILE), "{url}: {shown}");
        }
        let (status, envelope) = search(internet, &manifest);
        assert_eq!((status, credentials(&internet.seen())), (0, vec![&*by_variable]), "{envelope}");
        assert!(!envelope.to_string().contains(BY_VARIABLE), "{envelope}");

        // A program has it added in the clear, in place of its own, and finds it nowhere.
        let script = "curl -sS -m 60 -H 'authorization: mine' -H 'AUTHORIZATION: too' http://other.example/ http://other.example/2 && \
                      curl -sS -m 60 -H 'Authorization: mine' http://evil.example/ && \
                      curl -sSk -m 60 https://good.example/ && curl -s -m 60 -X TRACE http://other.example/ && curl -s -m 60 -X track http://other.example/; \
                      env; cat /proc/self/environ /proc/*/environ /proc/*/cmdline 2>/dev/null; cat $0 2>/dev/null; true";
        // In a file, for the watchdog would not let a line pass that looks for other processes' variables.
        internet.env.workspace_file("look.sh", script);
        let (status, envelope) = call(internet, &manifest, "bash", &json!({ "command": "sh ./look.sh" }));
        assert_eq!(status, 0, "{envelope}");
        let seen = internet.seen();
        assert_eq!(credentials(&seen), [&*by_file, &by_file, "evil.example Authorization: mine"], "{envelope}");
        let shown = envelope.to_string();
        assert!(shown.contains("http of 93.184.216.35") && shown.contains("PATH="), "the control: {shown}");
        assert!(!shown.contains(BY_VARIABLE) && !shown.contains(BY_FILE), "{shown}");

        // Neither is it in what is recorded, in whichever form a server has given it back.
        let manifest = internet.env.workspace_file("m.toml", &format!("mode = \"yolo\"\n{manifest}")).text().to_owned();
        let made = run(internet, &["session", "new", "--manifest", &manifest]);
        let id = made.stdout.trim();
        let url = json!({ "url": "https://good.example/recorded" }).to_string();
        let (status, envelope) = answered(run(internet, &["call", "--session", id, "web_fetch", &url]));
        assert_eq!((status, credentials(&internet.seen())), (0, vec![&*by_variable]), "{envelope}");
        let url = json!({ "url": "https://good.example/repeated" }).to_string();
        let (status, envelope) = answered(run(internet, &["call", "--session", id, "web_fetch", &url]));
        assert_eq!(status, 0, "{envelope}");
        let forms = [
            BY_VARIABLE,
            "dmFyaWFibGUtc2VjcmV0LTNmOWE3Nw==",
            "eW91OnZhcmlhYmxlLXNlY3JldC0zZjlhNzc=",
            "variable%2Dsecret",
        ];
        let content = envelope["data"]["content"].as_str().unwrap();
        assert!(forms.iter().all(|form| content.contains(form)), "the control: {content}");
        let shown = run(internet, &["session", "show", id, "--json"]).stdout;
        let kept = written(&internet.env.outside().join("state"));
        assert!(
            shown.contains("good.example/recorded") && holds(&kept, "good.example/recorded"),
            "the control: {shown}"
        );
        assert!(shown.contains("good.example/repeated"), "the control: {shown}");
        // The last two are the parts of its base64 that are the same whatever stands around it.
        for secret in forms.into_iter().chain([BY_FILE, "dmFyaWFibGUtc2VjcmV0LTNmOWE3", "ZhcmlhYmxlLXNlY3JldC0zZjlh"]) {
            assert!(!shown.contains(secret) && !holds(&kept, secret), "{secret}");
        }
    });
}

/// X0-18: a server that shows its certificate for another name, or none that is believed, gets nothing, and the error is in words.
#[test]
fn x0_18_a_credential_does_not_come_to_whom_tls_does_not_know() {
    on_the_internet(|internet| {
        let manifest = "[requires.net]\nhosts = [\"to-good.example\", \"good.example:8080\"]\n\
                        [[net.credentials]]\nhost = \"to-good.example\"\nheader = \"X-Key\"\nenv = \"THE_KEY\"\n\
                        [[net.credentials]]\nhost = \"good.example:8080\"\nheader = \"X-Key\"\nenv = \"THE_KEY\"\n";
        for (url, says) in [("https://to-good.example/", "certificate"), ("https://good.example:8080/", "TLS")] {
            let (status, envelope) = call(internet, manifest, "web_fetch", &json!({ "url": url }));
            let text = envelope["error_text"].as_str().unwrap();
            assert!(status == 1 && text.contains(says) && !text.contains(BY_VARIABLE), "{envelope}");
            assert_eq!(credentials(&internet.seen()), [""; 0], "{url}");
        }
        // Of a search it is said as well.
        let provider = "[net.search]\nproviders = [{ kind = \"brave\", url = \"https://to-good.example\" }]\n";
        let (status, envelope) = search(internet, &format!("{manifest}{provider}"));
        let text = envelope["error_text"].as_str().unwrap();
        assert!(status == 1 && text.contains("to-good.example:443 was not asked"), "{envelope}");
        assert!(text.contains("certificate") && !text.contains(BY_VARIABLE), "{envelope}");
        assert_eq!(credentials(&internet.seen()), [""; 0]);
    });
}

/// A setting that would let calls have a credential, or is none, is refused before anything runs; the value is in no error.
#[test]
fn x0_18_a_credential_that_calls_could_read_is_refused() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let file = |path: &Path, text: &str, mode| {
            let file = env.file_at(path.to_owned(), text);
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            path.display().to_string()
        };
        let outside = |name: &str| env.outside().join(name);
        let good = file(&outside("good"), BY_FILE, 0o600);
        let inside = file(&env.workspace().join("key"), BY_FILE, 0o600);
        let open = file(&outside("open"), BY_FILE, 0o644);
        let empty = file(&outside("empty"), "\n", 0o600);
        let short = file(&outside("short"), "7-bytes\n", 0o600);
        let lines = file(&outside("lines"), &format!("{BY_FILE}\nX-More: 1\n"), 0o600);
        let linked = file(&outside("linked"), BY_FILE, 0o600);
        fs::hard_link(&linked, outside("second")).unwrap();
        let planted = env.workspace().join("planted");
        symlink(outside("good"), &planted).unwrap();
        let planted = planted.display().to_string();
        let of_file = |path: &str| format!("file = \"{path}\"");
        let variable = || "env = \"THE_KEY\"".to_owned();
        let cases = [
            (of_file(&good), "", None),
            (variable(), "", None),
            (of_file(&inside), "", Some("calls may read that file")),
            (of_file(&good), "READ", Some("calls may read that file")),
            (of_file(&open), "", Some("others can read it")),
            (of_file(&empty), "", Some("its value is empty")),
            (of_file(&short), "", Some("shorter than 8 bytes: it could be guessed")),
            (of_file(&lines), "", Some("one line of ASCII")),
            (of_file(&linked), "", Some("a second name")),
            (of_file(&planted), "", Some("a link that a call may have made")),
            (of_file("/no/such/file"), "", Some("No such file")),
            ("env = \"NO_SUCH_KEY\"".to_owned(), "", Some("without that variable")),
            (variable(), "[env]\npass = [\"THE_KEY\"]\n", Some("gives programs the variable THE_KEY")),
            // It is not asked for where its host is not granted.
            ("env = \"NO_SUCH_KEY\"".to_owned(), "NO HOST", None),
        ];
        for (from, more, refused) in cases {
            let hosts = if more == "NO HOST" { "b.example" } else { "a.example" };
            let read = if more == "READ" {
                format!("[requires.fs]\nread = [\"{}/**\"]\n", env.outside().display())
            } else {
                String::new()
            };
            let more = if more.starts_with('[') { more } else { "" };
            let text = format!(
                "[requires.net]\nhosts = [\"{hosts}\"]\n{read}{more}[[net.credentials]]\nhost = \"a.example\"\nheader = \"X-Key\"\n{from}\n"
            );
            let manifest = env.file("m.toml", &text).text().to_owned();
            let run: ProgramRunner = env.weakened().variable("THE_KEY", BY_VARIABLE);
            let ended = run.run(&[&binary(), "call", "--manifest", &manifest, "glob", r#"{"pattern": "*"}"#]);
            let said = format!("{}{}", ended.stdout, ended.stderr);
            match refused {
                None => assert_eq!(ended.status.code(), Some(0), "{text}: {ended:?}"),
                Some(why) => {
                    assert!(matches!(ended.status.code(), Some(64 | 65)) && said.contains(why), "{text}: {ended:?}");
                }
            }
            assert!(!said.contains(BY_VARIABLE) && !said.contains(BY_FILE), "{said}");
        }
        assert!(target.user == User::Root || own(&good) != 0, "the files are the user's");
    });
}

fn own(path: &str) -> u32 {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(path).unwrap().uid()
}
