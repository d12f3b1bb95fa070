//! Hosts that lack Landlock rights or namespaces, or ptrace: what takes their place holds as well (A12, A15, B5, B7, D1, D2).
//!
//! One act of each family on each such host; the families' own modules try every act on the two strengths.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};

use callgate_tests::{Host, TestEnv, eventually, matrix};
use libc::{EACCES, ECONNREFUSED, ENOENT, EPERM, EROFS, ESRCH};

/// A5, A12: files that are granted for reading, and files that are not.
#[test]
fn a5_a12_files_and_their_metadata() {
    matrix(Host::LACKING, |target| {
        let env = TestEnv::new(target);
        let (mine, theirs) = (env.workspace_file("mine", "old"), env.file("theirs", "old"));
        let moved = env.workspace().join("moved");
        let before = theirs.metadata();
        for act in [&["write", theirs.text(), "new"][..], &["chmod", theirs.text(), "666"], &["unlink", theirs.text()]]
        {
            env.sandbox().probe(act).assert_errno(target.by_strength(ENOENT, EACCES));
        }
        for act in
            [&["write", theirs.text(), "new"][..], &["chmod", theirs.text(), "666"], &["setxattr", theirs.text()]]
        {
            let readable = env.sandbox().read(&theirs).probe(act);
            readable.assert_errno(target.by_strength(EROFS, EACCES));
        }
        assert_eq!(theirs.metadata(), before);
        theirs.assert_contents("old");
        for act in [
            &["write", mine.text(), "new"][..],
            &["chmod", mine.text(), "666"],
            &["setxattr", mine.text()],
            &["rename", mine.text(), moved.to_str().unwrap()],
        ] {
            env.sandbox().probe(act).assert_ok();
        }
        env.bare().probe(&["write", theirs.text(), "new"]).assert_ok();
    });
}

/// B5, B7: listeners of the host, by port, path and abstract name; and the call's own.
#[test]
fn b5_b7_sockets() {
    matrix(Host::LACKING, |target| {
        let env = TestEnv::new(target);
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        tcp.set_nonblocking(true).unwrap();
        let port = tcp.local_addr().unwrap().port().to_string();
        let path = env.workspace().join("server");
        let unix = UnixListener::bind(&path).unwrap();
        unix.set_nonblocking(true).unwrap();
        let log = env.workspace().join("log");
        let datagrams = UnixDatagram::bind(&log).unwrap();
        datagrams.set_nonblocking(true).unwrap();
        for path in [&path, &log] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
        }
        let name = format!("callgate-lacking-{}-{target:?}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let hidden = UnixListener::bind_addr(&address).unwrap();
        hidden.set_nonblocking(true).unwrap();
        let acts = [
            (vec!["tcp-connect", "127.0.0.1", &port], ECONNREFUSED),
            (vec!["udp-sendto", "127.0.0.1", &port], EACCES),
            (vec!["unix-connect", path.to_str().unwrap()], EACCES),
            (vec!["unix-dgram", log.to_str().unwrap()], EACCES),
            (vec!["unix-dgram-pair-sendmsg", log.to_str().unwrap()], EACCES),
            (vec!["unix-abstract", &name], ECONNREFUSED),
        ];
        let mut data = [0; 64];
        for (act, errno) in &acts {
            env.sandbox().probe(act).assert_errno(*errno);
            assert!(tcp.accept().is_err() && unix.accept().is_err() && hidden.accept().is_err(), "somebody came");
            assert!(datagrams.recv(&mut data).is_err(), "something came");
            env.bare().probe(act).assert_ok();
            let came = [
                tcp.accept().is_ok(),
                unix.accept().is_ok(),
                hidden.accept().is_ok(),
                datagrams.recv(&mut data).is_ok(),
            ];
            assert!(came.contains(&true) || act[0] == "udp-sendto", "the control did not arrive: {act:?}");
        }
        let here = env.workspace();
        for own in [
            &["loopback-self", "127.0.0.1"][..],
            &["unix-self", here.to_str().unwrap()],
            &["unix-self-abstract", &name],
            &["socketpair-stream"],
        ] {
            env.sandbox().probe(own).assert_ok();
        }
    });
}

/// D1, D2: processes of the host.
#[test]
fn d1_d2_other_processes() {
    matrix(Host::LACKING, |target| {
        let env = TestEnv::new(target);
        let mut bystander = env.bystander();
        let pid = bystander.text();
        let before = bystander.condition();
        // Without a signal scope the broker looks the process up, and finds no such sibling.
        let unscoped = matches!(target.host, Host::Abi(..6));
        let signalled = if unscoped { EPERM } else { target.by_strength(ESRCH, EPERM) };
        for (act, errno) in [
            (vec!["kill", &pid, "9"], signalled),
            (vec!["tgkill", &pid, "9"], signalled),
            (vec!["sigqueue", &pid, "9"], signalled),
            (vec!["prlimit", &pid], EPERM),
            (vec!["setpriority", &pid], EPERM),
            (vec!["sched-affinity", &pid], EPERM),
            (vec!["ptrace-attach", &pid], EPERM),
            (vec!["process-vm-readv", &pid], EPERM),
            (vec!["proc-pid", &pid, "environ"], target.by_strength(ENOENT, EACCES)),
        ] {
            env.sandbox().probe(&act).assert_errno(errno);
            assert!(bystander.is_alive() && bystander.condition() == before, "{act:?}");
        }
        env.bare().probe(&["kill", &pid, "9"]).assert_ok();
        eventually("the control kills it", || !bystander.is_alive());
    });
}

/// Where the broker may not look at a call's memory, what needs its judgement is refused: EPERM, never let through.
#[test]
fn d1_under_yama_what_cannot_be_judged_is_refused() {
    matrix(&[Host::Yama], |target| {
        let env = TestEnv::new(target);
        let (mine, theirs) = (env.workspace_file("mine", "old"), env.file("theirs", "old"));
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        server.set_nonblocking(true).unwrap();
        let port = server.local_addr().unwrap().port().to_string();
        let before = (mine.metadata(), theirs.metadata());
        for act in
            [&["chmod", theirs.text(), "666"][..], &["chmod", mine.text(), "666"], &["tcp-connect", "127.0.0.1", &port]]
        {
            env.sandbox().probe(act).assert_errno(EPERM);
        }
        assert_eq!((mine.metadata(), theirs.metadata()), before);
        assert!(server.accept().is_err(), "somebody came");
        // What needs no pointer, or no broker, works; and what Landlock and the mounts hold is held.
        env.sandbox().probe(&["write", mine.text(), "new"]).assert_ok();
        env.sandbox().probe(&["fchmod", mine.text(), "666"]).assert_ok();
        env.sandbox().probe(&["write", theirs.text(), "new"]).assert_errno(ENOENT);
        theirs.assert_contents("old");
        env.bare().probe(&["chmod", theirs.text(), "666"]).assert_ok();
    });
}
