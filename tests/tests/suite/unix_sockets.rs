//! Unix sockets of the host: by path, by abstract name, by datagram; and those of the call itself (B7).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::Path;

use callgate_tests::{Host, TestEnv, matrix};
use libc::{EACCES, ECONNREFUSED, ENOENT};

fn open_to_all(path: &Path) -> &str {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    path.to_str().unwrap()
}

/// B7: a stream server of the host, as D-Bus, docker.sock and ssh-agent are; both where no grant reaches and inside the
/// workspace, where a right to write files is no right to talk to whoever listens there.
#[test]
fn b7_a_stream_server_of_the_host_is_out_of_reach() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for directory in [env.outside(), env.workspace()] {
            let path = directory.join("server");
            let server = UnixListener::bind(&path).unwrap();
            server.set_nonblocking(true).unwrap();
            let words = ["unix-connect", open_to_all(&path)];
            env.bare().probe(&words).assert_ok();
            server.accept().expect("the control arrived");
            // Outside, the name does not exist in a private mount tree.
            let hidden = target.has_namespaces() && directory == env.outside();
            env.sandbox().probe(&words).assert_errno(if hidden { ENOENT } else { EACCES });
            assert!(server.accept().is_err(), "somebody came");
        }
    });
}

/// B7: datagrams carry their destination with each message, behind a pointer that a filter cannot follow.
#[test]
fn b7_a_datagram_server_of_the_host_gets_nothing() {
    let acts = [
        &["unix-dgram"][..],
        &["unix-dgram-sendmmsg"],
        &["unix-dgram-pair-sendmsg"],
        &["unix-dgram-pair-sendto"],
        &["unix-connect", "dgram"],
    ];
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for directory in [env.outside(), env.workspace()] {
            let path = directory.join("log");
            let server = UnixDatagram::bind(&path).unwrap();
            server.set_nonblocking(true).unwrap();
            let path = open_to_all(&path);
            let mut data = [0; 64];
            for act in acts {
                let words = [&act[..1], &[path], &act[1..]].concat();
                env.bare().probe(&words).assert_ok();
                server.recv(&mut data).expect("the control arrived");
                let answer = env.sandbox().probe(&words);
                answer.assert_errno(EACCES);
                assert!(server.recv(&mut data).is_err(), "something came: {answer}");
            }
        }
    });
}

/// B7: abstract names belong to the network namespace, and to whom Landlock's scope lets them.
#[test]
fn b7_an_abstract_server_of_the_host_is_out_of_reach() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let name = format!("callgate-test-{}-{target:?}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let stream = UnixListener::bind_addr(&address).unwrap();
        stream.set_nonblocking(true).unwrap();
        env.bare().probe(&["unix-abstract", &name]).assert_ok();
        stream.accept().expect("the control arrived");
        env.sandbox().probe(&["unix-abstract", &name]).assert_errno(ECONNREFUSED);
        assert!(stream.accept().is_err(), "somebody came");

        let name = format!("{name}-datagram");
        let datagrams = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        datagrams.set_nonblocking(true).unwrap();
        let mut data = [0; 64];
        env.bare().probe(&["unix-abstract-dgram", &name]).assert_ok();
        datagrams.recv(&mut data).expect("the control arrived");
        env.sandbox().probe(&["unix-abstract-dgram", &name]).assert_errno(EACCES);
        assert!(datagrams.recv(&mut data).is_err(), "something came");
    });
}

/// B7: an abstract name is its server's as long as that has the socket open, and free again afterwards (unix(7)). It was not:
/// a server that was started again under its name failed with EADDRINUSE until the call had ended.
#[test]
fn b7_an_abstract_name_is_free_again_when_its_server_is_gone() {
    let script = "import socket as s\nname='\\0callgate-again'\n\
        def serve():\n  x=s.socket(s.AF_UNIX); x.bind(name); x.listen(); return x\n\
        def ask():\n  c=s.socket(s.AF_UNIX)\n  try: c.connect(name); return 'heard'\n  except OSError as e: return e.errno\n\
        a=serve(); print(ask())\n\
        try: serve()\n\
        except OSError as e: print(e.errno)\n\
        a.close(); print(ask())\n\
        b=s.socket(s.AF_UNIX); b.bind(name); b.close()\n\
        c=serve(); print(ask())";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let wanted = format!("heard\n{}\n{ECONNREFUSED}\nheard\n", libc::EADDRINUSE);
        for run in [env.bare(), env.sandbox()] {
            let ended = run.run(&["/usr/bin/python3", "-c", script]);
            assert_eq!(ended.stdout, wanted, "{ended:?}");
        }
    });
}

/// Programs work among themselves: pairs, descriptors through pairs.
#[test]
fn pairs_work_inside() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for act in ["socketpair-stream", "socketpair-seqpacket", "scm-rights-self"] {
            env.sandbox().probe(&[act]).assert_ok();
        }
    });
}
