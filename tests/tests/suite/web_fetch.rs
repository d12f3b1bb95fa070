//! `web_fetch`: pages of granted hosts as text (S0-20), and what a call of it does not reach (X1-38, X0-18, X2-17).

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use callgate_tests::{Binaries, Host, TestEnv, matrix};
use serde_json::{Value, json};

/// A web server of the host on loopback: it answers each path from a table, and keeps what was asked.
struct WebServer {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl WebServer {
    fn new(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, asked) = (listener.local_addr().unwrap().port(), Arc::new(Mutex::new(Vec::new())));
        let (answer, kept) = (Arc::new(answer), Arc::clone(&asked));
        // It waits for connections until the test's process ends.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, kept) = (Arc::clone(&answer), Arc::clone(&kept));
                std::thread::spawn(move || drop(serve(&stream, &*answer, &kept)));
            }
        });
        Self { port, asked }
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    fn granted(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The requests since this was last looked at.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

/// One request, and the end of the connection.
fn serve(mut stream: &TcpStream, answer: &dyn Fn(&str) -> Vec<u8>, asked: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let mut head = String::new();
    while let Some(line) = lines.next().transpose()?.filter(|line| !line.is_empty()) {
        head.push_str(&line);
        head.push('\n');
    }
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    asked.lock().unwrap().push(head);
    stream.write_all(&answer(&path))
}

fn response(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

const HTML: &str = "Content-Type: text/html\r\n";

/// `callgate call web_fetch`, with these hosts granted.
fn fetch(env: &TestEnv, granted: &[&str], arguments: &Value) -> (i32, Value) {
    let binary = Binaries::of_this_build().callgate().display().to_string();
    let arguments = arguments.to_string();
    let mut words = vec![binary.as_str(), "call"];
    words.extend(granted.iter().flat_map(|host| ["--net", *host]));
    words.extend(["web_fetch", &arguments]);
    let ended = env.weakened().run(&words);
    let envelope = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    (ended.status.code().unwrap(), envelope)
}

/// S0-20: a granted page is text, also by a name, and is called untrusted. X1-38: one that is not granted is denied before any request,
/// with the remedy, which works.
#[test]
fn s0_20_x1_38_a_granted_page_is_fetched_and_no_other() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let page = |_: &str| {
            response("200 OK", HTML, b"<title>T</title><nav>menu</nav><h1>Head</h1><p>see <a href=x>there</a>")
        };
        let (server, other) = (WebServer::new(page), WebServer::new(page));
        let asked = json!({ "url": server.url("/a#part") });
        let (status, envelope) = fetch(&env, &[&server.granted()], &asked);
        assert_eq!(status, 0, "{envelope}");
        let data = &envelope["data"];
        assert_eq!(data["content"], format!("# Head\n\nsee [there]({})", server.url("/x")), "{envelope}");
        assert_eq!((&data["title"], &data["status"], &data["success"]), (&json!("T"), &json!(200), &json!(true)));
        assert_eq!((&data["untrusted"], &data["url"]), (&json!(true), &json!(server.url("/a"))));
        let heard = server.asked();
        assert!(heard.len() == 1 && heard[0].starts_with("GET /a HTTP/1.1\n"), "{heard:?}");
        let named = json!({ "url": format!("http://localhost:{}/", server.port), "format": "text" });
        let (_, envelope) = fetch(&env, &[&format!("localhost:{}", server.port)], &named);
        assert_eq!(envelope["data"]["content"], "Head\n\nsee there", "{envelope}");
        assert_eq!(server.asked().len(), 1);

        for granted in [&[][..], &[other.granted().as_str()], &["127.0.0.2:*"], &["example.com"]] {
            let (status, envelope) = fetch(&env, granted, &asked);
            assert_eq!((status, &envelope["metadata"]["denial"]["layer"]), (77, &json!("capability")), "{envelope}");
            let denial = &envelope["metadata"]["denial"];
            assert_eq!(denial["asked"], format!("net.hosts {}", server.granted()), "{envelope}");
            assert!(denial["remedy"].as_str().unwrap().contains(&format!("--net {}", server.granted())), "{envelope}");
        }
        assert_eq!((server.asked(), other.asked()), (Vec::new(), Vec::new()), "nobody was asked");
    });
}

/// X0-18: a redirect to another origin is judged as a call to it is; with the grant it is followed, and nothing goes along.
#[test]
fn x0_18_x2_17_a_redirect_to_another_host_is_judged_again() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let end = WebServer::new(|_| response("200 OK", "Content-Type: text/plain\r\n", b"the end"));
        let to = end.url("/end");
        let start = WebServer::new(move |path| match path {
            "/loop" => response("302 Found", "Location: /loop\r\n", b""),
            "/file" => response("302 Found", "Location: file:///etc/passwd\r\n", b""),
            "/same" => response("302 Found", "Location: /out\r\nSet-Cookie: a=b\r\n", b""),
            _ => response("307 Temporary Redirect", &format!("Location: {to}\r\nSet-Cookie: a=b\r\n"), b""),
        });
        let asked = json!({ "url": start.url("/same") });
        let (status, envelope) = fetch(&env, &[&start.granted()], &asked);
        assert_eq!(status, 77, "{envelope}");
        assert_eq!(envelope["metadata"]["denial"]["asked"], format!("net.hosts {}", end.granted()), "{envelope}");
        assert_eq!((start.asked().len(), end.asked()), (2, Vec::new()), "the host that was not granted was not asked");

        let (status, envelope) = fetch(&env, &[&start.granted(), &end.granted()], &asked);
        assert_eq!((status, &envelope["data"]["content"]), (0, &json!("the end")), "{envelope}");
        assert_eq!(envelope["data"]["url"], end.url("/end"));
        let (heard, head) = (start.asked().len(), end.asked().concat());
        assert_eq!(heard, 2);
        assert!(!head.to_lowercase().contains("cookie") && !head.to_lowercase().contains("referer"), "{head}");

        let (status, envelope) = fetch(&env, &[&start.granted()], &json!({ "url": start.url("/loop") }));
        assert_eq!((status, start.asked().len()), (1, 6), "{envelope}");
        assert_eq!(envelope["metadata"]["error"]["context"]["code"], "LimitExceeded", "{envelope}");
        let (status, envelope) = fetch(&env, &[&start.granted()], &json!({ "url": start.url("/file") }));
        assert!(status == 1 && envelope["error_text"].as_str().unwrap().contains("only http"), "{envelope}");
    });
}

/// S0-15, B15: a rule for all calls that leaves them less of the network leaves a fetch no more, whatever the session was granted, and
/// wherever a page leads.
#[test]
fn s0_15_b15_a_rules_grant_bounds_a_fetch() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let other = WebServer::new(|_| response("200 OK", "Content-Type: text/plain\r\n", b"the other"));
        let to = other.url("/");
        let server = WebServer::new(move |path| match path {
            "/away" => response("302 Found", &format!("Location: {to}\r\n"), b""),
            _ => response("200 OK", "Content-Type: text/plain\r\n", b"the page"),
        });
        let hosts = format!("[\"{}\", \"{}\"]", server.granted(), other.granted());
        let call = |rule: &str, path: &str| {
            env.workspace_file("m.toml", &format!("[requires.net]\nhosts = {hosts}\n{rule}"));
            let binary = Binaries::of_this_build().callgate().display().to_string();
            let arguments = json!({ "url": server.url(path) }).to_string();
            let ended = env.weakened().run(&[&binary, "call", "--manifest", "m.toml", "web_fetch", &arguments]);
            let envelope = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
            (ended.status.code().unwrap(), envelope)
        };
        let rule = |grant: &str| format!("[[rules]]\npermission = \"*\"\naction = \"allow\"\n{grant}\n");
        let refused = |(status, envelope): (i32, Value), host: &str| {
            let denial = &envelope["metadata"]["denial"];
            assert_eq!((status, &denial["layer"]), (77, &json!("rule")), "{envelope}");
            assert_eq!(denial["asked"], format!("net.hosts {host}"), "{envelope}");
        };
        for grant in ["grant = { net = [] }".to_owned(), format!("grant = {{ net = [\"{}\"] }}", other.granted())] {
            refused(call(&rule(&grant), "/"), &server.granted());
            assert_eq!((server.asked(), other.asked()), (Vec::new(), Vec::new()), "nobody was asked");
        }
        let this_alone = rule(&format!("grant = {{ net = [\"{}\"] }}", server.granted()));
        refused(call(&this_alone, "/away"), &other.granted());
        assert_eq!((server.asked().len(), other.asked()), (1, Vec::new()));
        for rule in [this_alone, rule("grant = { write = [] }"), rule("")] {
            let (status, envelope) = call(&rule, "/");
            assert_eq!((status, &envelope["data"]["content"]), (0, &json!("the page")), "the control: {envelope}");
        }
        let (status, envelope) = call(&rule(""), "/away");
        assert_eq!((status, &envelope["data"]["content"]), (0, &json!("the other")), "the control: {envelope}");
    });
}

/// X2-17: another status than 2xx is told apart, what is read is bounded, also of what is compressed, and what is no text is an error.
#[test]
fn x2_17_what_comes_is_bounded_and_told_apart() {
    matrix(&[Host::Namespaces], |target| {
        let env = TestEnv::new(target);
        let server = WebServer::new(|path| match path {
            "/gone" => response("410 Gone", HTML, b"<p>gone for good"),
            "/pdf" => response("200 OK", "Content-Type: application/pdf\r\n", b"%PDF-1.7"),
            "/long" => response("200 OK", "Content-Type: text/plain\r\n", "word ".repeat(200_000).as_bytes()),
            _ => response("200 OK", HTML, b""),
        });
        let fetch = |arguments: Value| fetch(&env, &[&server.granted()], &arguments);
        let (status, envelope) = fetch(json!({ "url": server.url("/gone") }));
        let data = &envelope["data"];
        assert_eq!((status, &data["success"], &data["status"]), (0, &json!(false), &json!(410)), "{envelope}");
        assert_eq!(data["content"], "gone for good");
        let (status, envelope) = fetch(json!({ "url": server.url("/pdf") }));
        assert!(status == 1 && envelope["error_text"].as_str().unwrap().contains("no text"), "{envelope}");
        let (_, envelope) = fetch(json!({ "url": server.url("/long"), "max_bytes": 10 }));
        assert_eq!((&envelope["data"]["content"], &envelope["data"]["body_cut"]), (&json!("word word "), &json!(true)));
        let (_, envelope) = fetch(json!({ "url": server.url("/long") }));
        assert_eq!(envelope["metadata"]["truncated"], true, "{envelope}");
        assert!(envelope["data"]["head"].as_str().unwrap().len() <= 200 * 1024);
        for url in ["ftp://127.0.0.1/", "file:///etc/passwd", "http://u:p@127.0.0.1/", "x"] {
            let (status, envelope) = fetch(json!({ "url": url }));
            assert_eq!(status, 65, "{url}: {envelope}");
        }
        server.asked();
        let (status, envelope) = fetch(json!({ "url": server.url("/"), "redirects_left": 9 }));
        assert_eq!((status, server.asked()), (65, Vec::new()), "{envelope}");
    });
}

/// S2-10, X2-17: `fetch_url` has Markdown unless it is asked for text or for what the server sent, and reads a million bytes unless it is
/// asked for more. What is not granted is denied by that name too.
#[test]
fn s2_10_x2_17_fetch_url_by_its_name() {
    const PAGE: &str =
        "<title>T</title><script>s()</script><h1>Head</h1><p>see <a href=\"http://x.example/\">there</a>";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let server = WebServer::new(|path| match path {
            "/gone" => response("410 Gone", HTML, b"<p>gone for good"),
            "/long" => response("200 OK", HTML, format!("<p>begin<!--{}--><p>end", " ".repeat(1_000_000)).as_bytes()),
            _ => response("200 OK", HTML, PAGE.as_bytes()),
        });
        let binary = Binaries::of_this_build().callgate().display().to_string();
        let call = |host: &str, arguments: &Value| {
            let arguments = arguments.to_string();
            let words = [&binary, "call", "--surface", "deepseek", "--net", host, "fetch_url", &arguments];
            let ended = env.weakened().run(&words);
            let envelope: Value =
                serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
            (ended.status.code().unwrap(), envelope)
        };
        let granted = server.granted();
        let markdown = "# Head\n\nsee [there](http://x.example/)";
        for (format, content) in
            [(None, markdown), (Some("markdown"), markdown), (Some("text"), "Head\n\nsee there"), (Some("raw"), PAGE)]
        {
            let mut arguments = json!({ "url": server.url("/") });
            arguments.as_object_mut().unwrap().extend(format.map(|format| ("format".to_owned(), format.into())));
            let (status, envelope) = call(&granted, &arguments);
            let data = &envelope["data"];
            assert_eq!((status, &data["content"]), (0, &json!(content)), "{format:?}: {envelope}");
            assert_eq!((&data["status"], &data["truncated"]), (&json!(200), &json!(false)), "{envelope}");
            assert_eq!((&data["url"], &data["content_type"]), (&json!(server.url("/")), &json!("text/html")));
        }
        let gone = call(&granted, &json!({ "url": server.url("/gone") })).1;
        assert_eq!((&gone["data"]["success"], &gone["data"]["content"]), (&json!(false), &json!("gone for good")));
        for (most, cut) in [(None, true), (Some(2_000_000), false)] {
            let mut arguments = json!({ "url": server.url("/long") });
            arguments.as_object_mut().unwrap().extend(most.map(|most| ("max_bytes".to_owned(), most.into())));
            let (_, envelope) = call(&granted, &arguments);
            let data = &envelope["data"];
            assert_eq!(data["truncated"], cut, "{envelope}");
            assert_eq!(data["content"].as_str().unwrap().contains("end"), !cut, "{envelope}");
        }
        server.asked();
        for arguments in [json!({ "url": server.url("/"), "format": "html" }), json!({ "url": "ftp://127.0.0.1/" })] {
            assert_eq!(call(&granted, &arguments).0, 65, "{arguments}");
        }
        let (status, envelope) = call("example.com", &json!({ "url": server.url("/") }));
        assert_eq!((status, &envelope["metadata"]["denial"]["layer"]), (77, &json!("capability")), "{envelope}");
        assert_eq!(server.asked(), Vec::<String>::new(), "nobody was asked");
    });
}
