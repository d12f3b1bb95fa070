//! Granted hosts, against an Internet of the suite's own (`tests/data/internet`): they are reached by name, by any program, at their
//! ports; nothing else is (B5, B12, B13). It takes root, and a kernel that has network namespaces.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use callgate_tests::{Binaries, Host, ProgramOutcome, ProgramRunner, Target, TestEnv, matrix, skip};
use serde_json::{Value, json};

/// The suite's Internet, for one target. It is there until this is dropped.
pub(crate) struct Internet {
    // Ends before the directory, in which its files are, goes.
    keeper: InternetKeeper,
    pub(crate) env: TestEnv,
    log: String,
}

const PYTHON: &str = "/usr/bin/python3";

pub(crate) fn data() -> String {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.join("data/internet").display().to_string()
}

/// The process that has made the Internet and its host; both end with it.
struct InternetKeeper(Child);

impl InternetKeeper {
    /// The reason, where there can be no Internet.
    #[track_caller]
    fn start(log: &str, serves: &str) -> Result<Self, String> {
        // What takes long to make is kept beside what was built.
        let exe = std::env::current_exe().unwrap();
        let made = exe.ancestors().nth(3).unwrap().join("tests-internet");
        let mut keeper = Command::new(PYTHON)
            .args([&format!("{}/internet.py", data()), log])
            .env("INTERNET_SERVES", serves)
            .env("INTERNET_MADE", made)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut said).unwrap();
        if said == "ready\n" {
            return Ok(Self(keeper));
        }
        let output = keeper.wait_with_output().unwrap();
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        assert_eq!(output.status.code(), Some(77), "{why}");
        Err(why)
    }
}

impl Drop for InternetKeeper {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.0.stdin.take());
        self.0.wait().expect("our own child can be waited for");
    }
}

impl Internet {
    /// `None` where there can be none, which is said.
    pub(crate) fn new(target: Target, serves: &str) -> Option<Self> {
        let env = TestEnv::new(target);
        let log = env.file("log", "").display().to_string();
        match InternetKeeper::start(&log, serves) {
            Ok(keeper) => Some(Self { keeper, env, log }),
            Err(why) => {
                let name = if why.contains("no program") { "iproute2" } else { "internet" };
                skip(name, format_args!("{target:?}: {why}"));
                None
            }
        }
    }

    /// On the Internet's host.
    pub(crate) fn on(&self, run: ProgramRunner) -> ProgramRunner {
        let weaken = Binaries::of_this_build().weaken().display().to_string();
        run.around(&[&weaken, "enter", &self.keeper.0.id().to_string(), "--"])
    }

    /// Where these hosts are granted.
    pub(crate) fn inside(&self, hosts: &[&str]) -> ProgramRunner {
        let granted = hosts.iter().fold(self.env.sandbox().read(data()), |run, host| run.flag(&["--net", host]));
        self.on(granted)
    }

    pub(crate) fn bare(&self) -> ProgramRunner {
        self.on(self.env.bare())
    }

    /// Requests that came to its servers since the last look.
    pub(crate) fn seen(&self) -> String {
        let seen = fs::read_to_string(&self.log).unwrap();
        fs::write(&self.log, "").unwrap();
        seen
    }

    /// Where its servers keep their files.
    pub(crate) fn servers(&self) -> String {
        format!("{}.servers", self.log)
    }
}

/// Runs a script, in which `$CA` is the certificate of the Internet's servers.
pub(crate) fn shell(run: &ProgramRunner, script: &str) -> ProgramOutcome {
    run.run(&["/bin/sh", "-c", &script.replace("$CA", &format!("{}/certificate.pem", data()))])
}

/// In both strengths, as root and as a user.
pub(crate) fn on_the_internet(test: impl Fn(&Internet)) {
    on_an_internet_with("", test);
}

/// Runs the test where these servers are there as well (`ssh,postgres,redis`).
pub(crate) fn on_an_internet_with(servers: &'static str, test: impl Fn(&Internet)) {
    matrix(Host::STRENGTHS, |target| {
        if let Some(internet) = Internet::new(target, servers) {
            test(&internet);
        }
    });
}

/// S0-36, X1-38: programs of every kind reach a granted host as they do outside, without being told of a proxy.
#[test]
fn s0_36_programs_reach_granted_hosts() {
    let curl = "curl -sS -m 60 --cacert $CA";
    let scripts = [
        format!("{curl} http://good.example/a && {curl} https://good.example/b && {curl} http://GOOD.example./c"),
        format!("{curl} http://good.example/1 http://good.example/2 https://good.example/3 https://good.example/4"),
        format!("{curl} http://good.example/large | wc -c; {curl} https://good.example/large | wc -c"),
        format!("head -c 8388608 /dev/zero | {curl} -w '%{{http_code}}\n' --data-binary @- http://good.example/"),
        "getent hosts good.example >/dev/null && getent ahosts sub.good.example >/dev/null && echo found".to_owned(),
        "git ls-remote http://good.example/repository".to_owned(),
        "GIT_SSL_CAINFO=$CA git ls-remote https://good.example/repository".to_owned(),
        r#"python3 -c '
import asyncio, ssl, socket, urllib.request
tls = ssl.create_default_context(cafile="$CA")
for url in "http://good.example/a", "https://sub.good.example/b":
    print(urllib.request.urlopen(url, context=tls if url.startswith("https") else None, timeout=60).read())
async def main():
    async def one(number):
        reads, writes = await asyncio.open_connection("good.example", 443, ssl=tls)
        writes.write(b"GET /%d HTTP/1.1\r\nHost: good.example\r\nConnection: close\r\n\r\n" % number)
        return (await reads.read()).split(b"\r\n\r\n")[1]
    print(set(await asyncio.gather(*(one(number) for number in range(50)))))
asyncio.run(main())
# What a program serves for itself goes on.
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
server.accept()[0].sendall(b"own")
print(client.recv(9))'"#
            .to_owned(),
        "node -e 'fetch(\"http://good.example/a\").then(r => r.text()).then(console.log)'".to_owned(),
        "NODE_EXTRA_CA_CERTS=$CA node -e 'fetch(\"https://good.example/a\").then(r => r.text()).then(console.log)'"
            .to_owned(),
    ];
    on_the_internet(|internet| {
        let inside = internet.inside(&["good.example", "*.good.example"]);
        for script in &scripts {
            let control = shell(&internet.bare(), script);
            assert!(control.status.success() && !control.stdout.is_empty(), "{script}: {control:?}");
            let ended = shell(&inside, script);
            assert_eq!((&ended.stdout, &*ended.stderr), (&control.stdout, ""), "{script}: {ended:?}");
        }
    });
}

/// S0-36, B5: nothing else is reached, by name or by address, and the world does not hear of it.
#[test]
fn s0_36_b5_nothing_but_granted_hosts_and_ports_is_reached() {
    let tried = [
        "http://evil.example/",
        "https://evil.example/",
        "http://secret.good.example/",
        "http://good.example:8080/",
        "http://93.184.216.34/",
        "http://93.184.216.35/",
        "http://10.0.0.1/",
        "http://169.254.169.254/",
        "http://127.0.0.1/",
        "http://127.0.0.1:8080/",
        "http://93.184.216.1:8080/",
        "http://[::ffff:93.184.216.35]/",
        "http://0.0.0.0:8080/",
    ];
    let curl = |url: &str| format!("curl -gsS -m 30 -k {url}");
    on_the_internet(|internet| {
        for url in tried {
            let control = shell(&internet.bare(), &curl(url));
            assert!(control.status.success() || url.contains("secret"), "{url}: {control:?}");
            assert!(!internet.seen().is_empty(), "{url}: the control is seen");
            let ended = shell(&internet.inside(&["good.example"]), &curl(url));
            assert!(matches!(ended.status.code(), Some(6 | 7)) && ended.stdout.is_empty(), "{url}: {ended:?}");
            let seen = internet.seen();
            let seen = seen.lines().filter(|line| !line.starts_with("name good.example ")).collect::<Vec<_>>();
            assert!(seen.is_empty(), "{url}: {seen:?}");
        }
        let ended = shell(&internet.inside(&["good.example"]), &curl("http://evil.example/"));
        assert!(ended.stderr.contains("--net evil.example"), "{ended:?}");
        // A datagram to the resolver outside, and a name in it, go nowhere.
        let ask = "python3 -c '
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(3)
s.sendto(b\"\\0\\1\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\6secret\\4evil\\7example\\0\\0\\1\\0\\1\", (\"93.184.216.53\", 53))
print(len(s.recv(512)))'";
        let control = shell(&internet.bare(), ask);
        assert!(control.status.success() && internet.seen().contains("secret.evil.example"), "{control:?}");
        let ended = shell(&internet.inside(&["good.example"]), ask);
        assert!(!ended.status.success() && ended.stdout.is_empty(), "{ended:?}");
        assert_eq!(internet.seen(), "");
    });
}

/// B12: a granted name that leads to this machine, to its network or to its cloud's metadata, at once or at the second question, does
/// not lead there. It does where the address is granted as well.
#[test]
fn b12_a_granted_name_does_not_lead_inside() {
    let curl = |name: &str| format!("curl -sS -m 30 http://{name}/");
    on_the_internet(|internet| {
        for (name, address) in [
            ("to-loopback.example", "127.0.0.1"),
            ("to-lan.example", "10.0.0.1"),
            ("to-metadata.example", "169.254.169.254"),
            ("to-host.example", "93.184.216.1"),
            ("to-host-too.example", "93.184.216.2"),
        ] {
            let control = shell(&internet.bare(), &curl(name));
            assert!(control.stdout.contains(address), "{name}: {control:?}");
            assert!(internet.seen().contains("http "), "{name}");
            let ended = shell(&internet.inside(&[name]), &curl(name));
            assert_eq!((ended.status.code(), &*ended.stdout), (Some(7), ""), "{name}: {ended:?}");
            assert!(ended.stderr.contains(address), "{name}: {ended:?}");
            assert!(!internet.seen().contains("http "), "{name}");
            let granted = shell(&internet.inside(&[name, address]), &curl(name));
            assert!(granted.stdout.contains(address), "{name}: {granted:?}");
            internet.seen();
        }
        let first = |name: &str| format!("getent hosts {name}; {}", curl(name));
        let control = shell(&internet.bare(), &first("changing-outside.example"));
        assert!(control.stdout.contains("http of 127.0.0.1"), "{control:?}");
        internet.seen();
        let name = "changing-inside.example";
        let ended = shell(&internet.inside(&[name]), &first(name));
        assert!(ended.stdout.starts_with("198.18.") && !ended.stdout.contains("http of"), "{ended:?}");
        assert!(!internet.seen().contains("http "), "{ended:?}");
    });
}

/// B13: a granted name is no way to the other hosts of its server, by TLS or HTTP, in the first request or a later one.
#[test]
fn b13_a_granted_name_is_no_way_to_what_its_server_also_has() {
    let curl = "curl -sS -m 30 --cacert $CA";
    let other = "-H 'Host: other.example'";
    on_the_internet(|internet| {
        for (script, what) in [
            (format!("{curl} {other} http://good.example/secret"), "http"),
            (format!("{curl} http://good.example/ --next -sS -m 30 {other} http://good.example/secret"), "http"),
            (format!("{curl} --connect-to other.example:443:good.example:443 https://other.example/secret"), "https"),
            (format!("{curl} --connect-to other.example:80:good.example:80 http://other.example/secret"), "http"),
        ] {
            let control = shell(&internet.bare(), &script);
            assert!(control.stdout.contains("http"), "{script}: {control:?}");
            assert!(internet.seen().contains("/secret"), "{script}");
            for hosts in [&["good.example"][..], &["good.example", "other.example"]] {
                let ended = shell(&internet.inside(hosts), &script);
                assert!(!ended.stdout.contains("http of") || script.contains("--next"), "{script}: {ended:?}");
                assert!(!internet.seen().contains("/secret"), "{script}");
                match what {
                    "http" => assert!(ended.stdout.contains("callgate: the request is for other.example"), "{ended:?}"),
                    _ => assert!(ended.stderr.contains("access denied"), "{ended:?}"),
                }
                assert!(ended.stderr.contains("callgate: "), "{script}: it is reported: {ended:?}");
            }
        }
    });
}

/// S0-36, B15: what is granted by words, or by an address without a port, is HTTP at 80 and TLS at 443, and nothing else.
#[test]
fn s0_36_b15_a_grant_without_a_number_is_for_http_and_tls() {
    let curl = "curl -sS -m 30 -k";
    let raw = |host: &str| {
        format!(
            r#"python3 -c '
import socket
s = socket.create_connection(("{host}", 80), timeout=60)
s.sendall(b"\0\r\n\r\n")
assert s.recv(99)'"#
        )
    };
    on_the_internet(|internet| {
        for (granted, script, may, why) in [
            ("good.example:http", format!("{curl} http://good.example/"), true, ""),
            ("good.example:http", format!("{curl} https://good.example/"), false, "good.example:443"),
            ("good.example:https", format!("{curl} https://good.example/"), true, ""),
            ("good.example:https", format!("{curl} http://good.example:443/"), false, "TLS alone was granted"),
            ("good.example:http", format!("{curl} https://good.example:80/"), false, "HTTP alone was granted"),
            ("93.184.216.35", format!("{curl} http://93.184.216.35/"), true, ""),
            ("93.184.216.35", format!("{curl} https://93.184.216.35/"), true, ""),
            ("93.184.216.35", format!("{curl} http://93.184.216.35:443/"), false, "TLS alone was granted"),
            ("93.184.216.35:80", raw("93.184.216.35"), true, ""),
            ("93.184.216.35", raw("93.184.216.35"), false, "neither HTTP nor TLS"),
            ("good.example:80", raw("good.example"), true, ""),
            ("good.example", raw("good.example"), false, "neither HTTP nor TLS"),
        ] {
            let ended = shell(&internet.inside(&[granted]), &script);
            assert_eq!(ended.status.success(), may, "{granted}: {script}: {ended:?}");
            assert!(ended.stderr.contains(why), "{granted}: {script}: {ended:?}");
        }
    });
}

/// S0-36, B17: programs are told what they expect of a server of their own that is not there yet; how often they were refused is
/// counted; and a socket that is bound where egress does not expect it is refused before anybody could come in its place.
#[test]
fn s0_36_b17_errors_are_those_of_a_network() {
    let script = r#"python3 -c '
import errno, socket
def to(address, bound=None, option=None, family=socket.AF_INET):
    with socket.socket(family) as s:
        if option: s.setsockopt(socket.IPPROTO_IP, option, 1)
        if bound: s.bind(bound)
        try: s.connect(address)
        except OSError as e: return errno.errorcode[e.errno]
        return "connected"
good = (socket.gethostbyname("good.example"), 2525)
print(to(("127.0.0.1", 7777)), *(to(("93.184.216.77", 81)) for _ in range(5)))
print(to(good), to(good, ("127.0.0.1", 0)), to(good, ("0.0.0.0", 0), 24))
print(to(good, ("127.0.0.2", 0)), to(("::ffff:" + good[0], 2525), ("::1", 0), None, socket.AF_INET6))'"#;
    on_the_internet(|internet| {
        let ended = shell(&internet.inside(&["good.example:2525"]), script);
        let expected = format!(
            "ECONNREFUSED{}\n{}\nEADDRNOTAVAIL EADDRNOTAVAIL\n",
            " EACCES".repeat(5),
            ["connected"; 3].join(" ")
        );
        assert_eq!(ended.stdout, expected, "{ended:?}");
        let counted = ended.stderr.lines().find(|line| line.contains("93.184.216.77:81"));
        assert!(counted.is_some_and(|line| line.contains('5')), "{ended:?}");
    });
}

/// S0-36: a port that is granted carries any protocol, both ways, until both sides have ended; one that is not carries none.
#[test]
fn s0_36_a_granted_port_carries_any_protocol() {
    let echo = "python3 -c '
import socket
s = socket.create_connection((\"good.example\", 2525), timeout=60)
print(s.recv(6))
data = bytes(range(256)) * 4096
import threading
threading.Thread(target=lambda: (s.sendall(data), s.shutdown(socket.SHUT_WR))).start()
back = bytearray()
while part := s.recv(65536): back += part
print(back == data)'";
    on_the_internet(|internet| {
        let control = shell(&internet.bare(), echo);
        assert!(control.stdout.ends_with("True\n"), "{control:?}");
        internet.seen();
        for host in ["good.example:2525", "good.example:2000-3000", "good.example:*"] {
            let ended = shell(&internet.inside(&[host]), echo);
            assert_eq!(ended.stdout, control.stdout, "{host}: {ended:?}");
        }
        internet.seen();
        for host in ["good.example", "good.example:2526", "93.184.216.34:2525"] {
            let ended = shell(&internet.inside(&[host]), echo);
            assert!(!ended.status.success() && ended.stdout.is_empty(), "{host}: {ended:?}");
            assert!(!internet.seen().contains("echo"), "{host}");
        }
    });
}

/// S0-20: what egress answers to a fetch is callgate's word, and the same words of a server are the server's.
#[test]
fn s0_20_what_egress_answers_is_told_apart() {
    on_the_internet(|internet| {
        let fetch = |url: &str, hosts: &[&str]| {
            let binary = Binaries::of_this_build().callgate().display().to_string();
            let arguments = serde_json::json!({ "url": url, "format": "text" }).to_string();
            let mut words = vec![binary.as_str(), "call"];
            words.extend(hosts.iter().flat_map(|host| ["--net", *host]));
            words.extend(["web_fetch", &arguments]);
            let ended = internet.on(internet.env.weakened()).run(&words);
            let envelope: serde_json::Value =
                serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
            (ended.status.code().unwrap(), envelope)
        };
        for (url, hosts, said) in [
            ("http://good.example/no-answer", ["good.example"], "good.example:80 was not fetched: it closed"),
            ("http://good.example/no-http", ["good.example"], "good.example:80 was not fetched: it closed"),
            ("http://good.example:81/", ["good.example:81"], "good.example:81 was not fetched: it cannot be reached"),
            ("http://to-lan.example/", ["to-lan.example"], "to-lan.example:80 was not fetched: it leads to 10.0.0.1"),
        ] {
            let (status, envelope) = fetch(url, &hosts);
            assert!(status == 1 && envelope["error_text"].as_str().unwrap().starts_with(said), "{url}: {envelope}");
            assert!(envelope["data"].get("content").is_none(), "{envelope}");
        }
        let (status, envelope) = fetch("http://good.example/as-if", &["good.example"]);
        let (data, own) = (&envelope["data"], "callgate: good.example: it closed the connection\n");
        assert_eq!((status, &data["status"], &data["success"]), (0, &502.into(), &false.into()), "{envelope}");
        assert_eq!((&data["content"], &data["untrusted"]), (&own.into(), &true.into()), "{envelope}");
        let (status, envelope) = fetch("http://good.example/a", &["good.example"]);
        assert_eq!((status, &envelope["data"]["status"]), (0, &200.into()), "the control: {envelope}");
    });
}

/// S0-36: what a call's connections carry is counted; a call that carries too much is cut off, and told why.
#[test]
fn s0_36_what_a_call_carries_is_counted_and_bounded() {
    const LARGE: u64 = 32 << 20;
    on_the_internet(|internet| {
        let status = internet.env.outside().join("status.json");
        let fetch = |limit: &str, url: &str| {
            let flags = ["--limit", limit, "--status", &status.display().to_string()];
            let run = internet.inside(&["good.example"]).flag(&flags);
            let script = format!(
                "curl -sS -m 60 --cacert $CA {url}/large | wc -c; curl -sS -m 60 --cacert $CA {url}/again | wc -c"
            );
            let ended = shell(&run, &script);
            let envelope: Value = serde_json::from_str(&fs::read_to_string(&status).unwrap()).unwrap();
            let counts: Vec<u64> = ended.stdout.lines().map(|line| line.trim().parse().unwrap()).collect();
            let limits = envelope["metadata"]["limits"].as_array().unwrap();
            let report = limits.iter().find(|report| report["limit"] == "network").unwrap().clone();
            (counts, report, envelope["metadata"]["changes"].clone(), ended.stderr)
        };
        for url in ["http://good.example", "https://good.example"] {
            let (counts, report, changes, stderr) = fetch("network=64MiB", url);
            assert!(counts[0] == LARGE && counts[1] > 10, "the control: {counts:?} {stderr}");
            assert_eq!((&report["hit"], &report["by"]), (&json!(false), &json!(["egress"])));
            let carried = &changes["carried"];
            assert_eq!((&carried["connections"], &changes["not_reached"]), (&json!(2), &Value::Null));
            assert!(carried["received"].as_u64().unwrap() > LARGE && carried["sent"].as_u64().unwrap() > 100);
            internet.seen();

            let (counts, report, changes, stderr) = fetch("network=4MiB", url);
            assert!((1 << 20..6 << 20).contains(&counts[0]) && counts[1] == 0, "{counts:?} {stderr}");
            assert!(stderr.contains("Permission denied") || stderr.contains("Failed to connect"), "{stderr}");
            assert_eq!(report["hit"], json!(true), "{report}");
            assert_eq!(report["overshoot"], report["used"].as_u64().unwrap() - (4 << 20));
            let why = changes["not_reached"][0]["why"].as_str().unwrap();
            assert!(why.contains("more than the limit of 4MiB"), "{why}");
            assert!(!internet.seen().contains("/again"), "it did not come there");
        }
    });
}
