//! A host that lacks ptrace: what needs it is refused (D1). What lacks Landlock rights or namespaces is in `every_abi`.

use std::net::TcpListener;

use callgate_tests::{Host, TestEnv, matrix};
use libc::{ENOENT, EPERM};

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
