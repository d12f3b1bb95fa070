//! Programs that people use reach a granted host at its granted port, and nothing else (S0-36): real ones, against real servers on the
//! Internet of `network.rs`. A program that this machine does not have is skipped by name.

use std::fs;
use std::path::Path;

use callgate_tests::{ProgramOutcome, ProgramRunner, skip};

use crate::network::{Internet, data, on_an_internet_with, shell};

/// A program, and how it reaches `good.example`.
struct NetworkProgram {
    /// Needs of the machine: programs and files. A `*` is any one name.
    needs: &'static [&'static str],
    /// The server that it needs, of `tests/data/internet/servers.py`. Empty: those that are always there do.
    server: &'static str,
    ports: &'static str,
    /// `$CA` is the Internet's certificate, `$DATA` the directory that it is in, `$SERVER` the server's.
    script: String,
    /// Text that it prints.
    prints: &'static str,
}

fn is_there(path: &str) -> bool {
    match path.split_once("/*/") {
        None => Path::new(path).exists(),
        Some((parent, rest)) => {
            fs::read_dir(parent).is_ok_and(|mut all| all.any(|one| one.unwrap().path().join(rest).exists()))
        }
    }
}

/// True if something that it needs is missing, which is said.
fn is_missing(needs: &[&str]) -> bool {
    let missing: Vec<&&str> = needs.iter().filter(|path| !is_there(path)).collect();
    if !missing.is_empty() {
        skip("network-program", format_args!("{missing:?} is missing"));
    }
    !missing.is_empty()
}

/// Lines of the Internet's servers about visitors from the host since the last look.
fn visitors(internet: &Internet) -> Vec<String> {
    let mut all = internet.seen();
    // How each says that somebody comes. That they go may be written after the next look.
    let servers = [("ssh", "Connection from "), ("postgres", "connection received: host="), ("redis", "Accepted ")];
    for (server, comes) in servers {
        let log = format!("{}/{server}/log", internet.servers());
        let Ok(written) = fs::read_to_string(&log) else { continue };
        fs::write(&log, "").unwrap();
        let came = written.lines().filter(|line| line.contains(&format!("{comes}93.184.216.1")));
        all.extend(came.map(|line| format!("{line}\n")));
    }
    all.lines().filter(|line| !line.starts_with("name ")).map(str::to_owned).collect()
}

/// The program does what it does bare where its host and port are granted; where another host or port is, nobody hears of it.
fn reaches_what_is_granted(program: &NetworkProgram) {
    if is_missing(program.needs) {
        return;
    }
    on_an_internet_with(program.server, |internet| {
        let server = format!("{}/{}", internet.servers(), program.server);
        let script = program.script.replace("$SERVER", &server).replace("$DATA", &data());
        let run = |run: &ProgramRunner| -> ProgramOutcome {
            // Of the certificates that are believed, a machine's own settings know nothing.
            let own = "unset REQUESTS_CA_BUNDLE CURL_CA_BUNDLE SSL_CERT_FILE PIP_CERT NODE_EXTRA_CA_CERTS";
            let ended = shell(run, &format!("set -e; {own}; mkdir work; cd work; {script}"));
            // What one has left helps no other.
            fs::remove_dir_all(internet.env.workspace().join("work")).unwrap();
            ended
        };
        let home = internet.env.outside().display().to_string();
        let user = internet.env.target().user.uid();
        // An ordinary user has no toolchain in root's home; root keeps its own.
        let bare = if user == 0 { internet.bare() } else { internet.bare().variable("HOME", &home) };
        visitors(internet);
        let control = run(&bare);
        if !control.status.success() && user != 0 && control.stderr.contains("cargo: ") {
            let (target, why) = (internet.env.target(), control.stderr);
            return skip("toolchain-of-root", format_args!("{target:?}: does not work bare: {why}"));
        }
        assert!(control.status.success() && control.stdout == program.prints, "{script}: {control:?}");
        assert_ne!(visitors(internet), [""; 0], "{script}: the control is seen");

        let inside = |granted: &str| {
            let keys = ["id_ed25519", "known_hosts"].map(|name| format!("{home}/.ssh/{name}"));
            keys.iter().filter(|key| Path::new(key).exists()).fold(internet.inside(&[granted]), ProgramRunner::read)
        };
        let granted = format!("good.example:{}", program.ports);
        let ended = run(&inside(&granted));
        assert!(ended.status.success() && ended.stdout == program.prints, "{script}: {ended:?}");
        assert_ne!(visitors(internet), [""; 0], "{script}");
        let other = format!("other.example:{}", program.ports);
        let first = granted.split(',').next().unwrap();
        for (instead, told) in [(&*other, "--net good.example"), ("good.example:7", first)] {
            let ended = run(&inside(instead));
            assert!(!ended.status.success() && ended.stdout != program.prints, "{instead}: {script}: {ended:?}");
            assert!(ended.stderr.contains(told), "{instead}: {script}: {ended:?}");
            assert_eq!(visitors(internet), [""; 0], "{instead}: {script}: nobody came");
        }
    });
}

/// S0-36: git and a shell over SSH, as people type it. The key and the known hosts are granted as files.
#[test]
fn s0_36_ssh_and_git_over_it() {
    reaches_what_is_granted(&NetworkProgram {
        needs: &["/usr/sbin/sshd", "/usr/bin/ssh", "/usr/bin/ssh-keygen"],
        server: "ssh",
        ports: "22",
        script: "git clone -q git@good.example:$SERVER/repository ours; cd ours; git config user.name a; git config user.email a@b.c
            git commit -q --allow-empty -m one; git push -q origin HEAD:main
            git ls-remote ssh://git@good.example$SERVER/repository main | cut -f 2
            head -c 8388608 /dev/zero | ssh git@good.example 'id -un; wc -c'"
            .to_owned(),
        prints: "refs/heads/main\ngit\n8388608\n",
    });
}

/// S0-36: git over HTTPS, by the protocol that servers like GitHub's speak: clone, fetch and push.
#[test]
fn s0_36_git_over_https() {
    let script = "export GIT_SSL_CAINFO=$CA; git clone -q https://good.example/git/repository ours; cd ours
        git config user.name a; git config user.email a@b.c
        head -c 4194304 /dev/urandom >large; git add large; git commit -q -m 'the second'; git push -q origin HEAD:$BRANCH
        git fetch -q; git log --format=%s origin/$BRANCH; git push -q origin :$BRANCH";
    reaches_what_is_granted(&NetworkProgram {
        needs: &["/usr/lib/git-core/git-http-backend", "/usr/bin/git"],
        server: "git",
        ports: "443",
        script: script.replace("$BRANCH", "another"),
        prints: "the second\nthe first\n",
    });
}

/// S0-36: what a person reads where the host of a repository was not granted: git says which host, and callgate what to type.
#[test]
fn s0_36_git_says_which_host_was_not_granted() {
    let script = "GIT_SSL_CAINFO=$CA git clone -q https://good.example/git/repository ours";
    if is_missing(&["/usr/lib/git-core/git-http-backend", "/usr/bin/git"]) {
        return;
    }
    on_an_internet_with("git", |internet| {
        let control = shell(&internet.inside(&["good.example"]), script);
        assert!(control.status.success() && control.stderr.is_empty(), "{control:?}");
        assert_ne!(visitors(internet), [""; 0]);
        fs::remove_dir_all(internet.env.workspace().join("ours")).unwrap();
        for (granted, git, callgate) in [
            // The name has no address for who may not reach it, and another port is refused by its number.
            ("evil.example", "Could not resolve host: good.example", "--net good.example"),
            ("good.example:80", "good.example", "not granted for good.example:443"),
        ] {
            let ended = shell(&internet.inside(&[granted]), script);
            assert_eq!((ended.status.code(), &*ended.stdout), (Some(128), ""), "{granted}: {ended:?}");
            let line = |start: &str| ended.stderr.lines().find(|line| line.starts_with(start)).unwrap_or_default();
            assert!(line("fatal: unable to access").contains(git), "{granted}: {ended:?}");
            assert!(line("callgate: the network").contains(callgate), "{granted}: {ended:?}");
            assert!(!internet.env.workspace().join("ours").exists(), "{granted}");
            assert_eq!(visitors(internet), [""; 0], "{granted}");
        }
    });
}

/// S0-36: pip installs a package of an index.
#[test]
fn s0_36_pip() {
    reaches_what_is_granted(&NetworkProgram {
        needs: &["/usr/bin/python3", "/usr/lib/python3/dist-packages/pip"],
        server: "",
        ports: "443",
        script: "/usr/bin/python3 -m pip install -q --disable-pip-version-check --root-user-action=ignore --no-cache-dir --retries 0 \
                 --cert $CA --index-url https://good.example/pip/ --target site granted
            PYTHONPATH=site /usr/bin/python3 -c 'import granted'"
            .to_owned(),
        prints: "a package of pip\n",
    });
}

/// S0-36: npm installs a package of a registry.
#[test]
fn s0_36_npm() {
    reaches_what_is_granted(&NetworkProgram {
        needs: &["/usr/bin/node", "/usr/bin/npm"],
        server: "",
        ports: "443",
        script: "npm install --silent --no-audit --no-fund --no-update-notifier --fetch-retries 0 --cache $PWD/cache \
                 --cafile $CA --registry https://good.example/npm/ granted
            node -e 'require(\"granted\")'"
            .to_owned(),
        prints: "a package of npm\n",
    });
}

/// S0-36: cargo builds with a package of a registry.
#[test]
fn s0_36_cargo() {
    reaches_what_is_granted(&NetworkProgram {
        needs: &["/usr/bin/cc"],
        server: "",
        ports: "443",
        script: r#"export CARGO_NET_RETRY=0 CARGO_HTTP_CAINFO=$CA CARGO_REGISTRIES_OURS_INDEX=sparse+https://good.example/cargo/ CARGO_HOME=$PWD/home
            mkdir src; echo 'fn main() { granted::say() }' >src/main.rs
            printf '[package]\nname = "ours"\nversion = "1.0.0"\nedition = "2021"\n
                [dependencies]\ngranted = { version = "1", registry = "ours" }\n' >Cargo.toml
            cargo run -q"#
            .to_owned(),
        prints: "a package of cargo\n",
    });
}

/// S0-36: psql asks PostgreSQL, which begins in the clear, asks for TLS, and goes on without.
#[test]
fn s0_36_psql() {
    reaches_what_is_granted(&NetworkProgram {
        needs: &["/usr/lib/postgresql/*/bin/initdb", "/usr/lib/postgresql/*/bin/psql"],
        server: "postgres",
        ports: "5432",
        script: "psql -h good.example -U git -d postgres -XAtc 'select count(*) from generate_series(1, 1000000)'"
            .to_owned(),
        prints: "1000000\n",
    });
}

/// S0-36: redis-cli asks Redis.
#[test]
fn s0_36_redis_cli() {
    reaches_what_is_granted(&NetworkProgram {
        needs: &["/usr/bin/redis-cli", "/usr/bin/redis-check-rdb"],
        server: "redis",
        ports: "6379",
        script: "redis-cli -e -h good.example set key value; redis-cli -e -h good.example get key".to_owned(),
        prints: "OK\nvalue\n",
    });
}

/// S0-36: Java's HttpClient, with HTTP, where it offers HTTP/2, and TLS.
#[test]
fn s0_36_java() {
    reaches_what_is_granted(&NetworkProgram {
        needs: &["/usr/bin/java", "/usr/bin/javac", "/usr/bin/keytool"],
        server: "",
        ports: "80,443",
        script: r#"keytool -importcert -noprompt -file $CA -keystore keys -storepass changeit 2>keytool
            cat >Get.java <<'END'
import java.net.URI;
import java.net.http.*;
public class Get {
    public static void main(String[] urls) throws Exception {
        for (var url : urls) {
            var request = HttpRequest.newBuilder(URI.create(url)).build();
            var response = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
            System.out.print(response.statusCode() + " " + response.body());
        }
    }
}
END
            java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djavax.net.ssl.trustStore=keys \
                -Djavax.net.ssl.trustStorePassword=changeit Get.java http://good.example/ https://good.example/"#
            .to_owned(),
        prints: "200 http of 93.184.216.34 for good.example\n200 https of 93.184.216.34 for good.example\n",
    });
}

/// S0-36: Python's requests, on a connection that is used again.
#[test]
fn s0_36_requests() {
    reaches_what_is_granted(&NetworkProgram {
        needs: &["/usr/bin/python3", "/usr/lib/python3/dist-packages/requests"],
        server: "",
        ports: "443",
        script: r#"/usr/bin/python3 -c '
import requests
session = requests.Session()
session.verify = "$CA"
print({session.get(f"https://good.example/{number}", timeout=60).text for number in range(9)})'"#
            .to_owned(),
        prints: "{'https of 93.184.216.34 for good.example\\n'}\n",
    });
}

/// Asks for the address by UDP, as the resolver of Go does: with a socket that is connected to the server that resolv.conf(5) names.
const ASKS_BY_UDP: &str = r#"/usr/bin/python3 -c '
import re, socket, struct
server = re.search(r"^nameserver\s+(\S+)", open("/etc/resolv.conf").read(), re.M)[1]
def ask(kind):
    asks = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    asks.settimeout(60)
    asks.connect((server, 53))
    asks.send(b"\x12\x34\1\0\0\1\0\0\0\0\0\0\4good\7example\0" + struct.pack(">HH", kind, 1))
    return asks.recv(512)
six, four = ask(28), ask(1)
assert six[6:8] == b"\0\0", six
# The last record of the answer is the address.
client = socket.create_connection((socket.inet_ntoa(four[-4:]), 80), 60)
client.sendall(b"GET / HTTP/1.0\r\nHost: good.example\r\n\r\n")
print(client.makefile().read().splitlines()[-1])'"#;

/// A static program, with the resolver of its own that musl has.
const STATIC: &str = "musl-gcc -static -o get $DATA/get.c; ./get good.example | tail -n 1";

/// S0-36: a program that asks for names itself, by UDP, reaches a granted host. Where there are no namespaces nobody answers it, which
/// it is told; there it reaches the host by an address that was granted.
#[test]
fn s0_36_programs_with_resolvers_of_their_own() {
    let answer = "http of 93.184.216.34 for good.example\n";
    for (needs, script) in [(&["/usr/bin/musl-gcc", "/usr/bin/cc"][..], STATIC), (&["/usr/bin/python3"], ASKS_BY_UDP)] {
        if is_missing(needs) {
            continue;
        }
        on_an_internet_with("", |internet| {
            let script = format!("set -e; {}", script.replace("$DATA", &data()));
            let control = shell(&internet.bare(), &script);
            assert_eq!(control.stdout, answer, "{control:?}");
            assert_ne!(visitors(internet), [""; 0]);
            let ended = shell(&internet.inside(&["good.example:80"]), &script);
            if internet.env.target().has_namespaces() {
                assert!(ended.stdout == answer && ended.stderr.is_empty(), "{ended:?}");
            } else {
                assert!(ended.stdout.is_empty() && ended.stderr.contains("callgate: "), "{ended:?}");
                assert_eq!(visitors(internet), [""; 0]);
                let by_address = script.replace("get good.example", "get 93.184.216.34");
                if by_address != script {
                    let ended = shell(&internet.inside(&["93.184.216.34:80"]), &by_address);
                    assert_eq!(ended.stdout, "http of 93.184.216.34 for 93.184.216.34\n", "{ended:?}");
                }
            }
            visitors(internet);
            for other in ["other.example:80", "good.example:7"] {
                let ended = shell(&internet.inside(&[other]), &script);
                assert!(ended.stdout.is_empty() && ended.stderr.contains("callgate: "), "{other}: {ended:?}");
                assert_eq!(visitors(internet), [""; 0], "{other}: {ended:?}");
            }
        });
    }
}
