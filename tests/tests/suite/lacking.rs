//! A host that refuses to read another's memory by system call: it is read by proc_pid_mem(5), and judged (D1). What lacks Landlock rights or namespaces is in `every_abi`.

use std::net::TcpListener;

use callgate_tests::{Host, TestEnv, matrix};
use libc::{EACCES, ECONNREFUSED, ENOENT};

/// Where process_vm_readv(2) is refused, as some containers' filters do, what a call names is still judged. (Yama itself at
/// `ptrace_scope` 2 or 3 refuses the file too; then a session with kept names is refused.)
#[test]
fn d1_what_a_call_names_is_judged_without_process_vm_readv() {
    matrix(&[Host::Yama], |target| {
        let env = TestEnv::new(target);
        let (mine, theirs) = (env.workspace_file("mine", "old"), env.file("theirs", "old"));
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        server.set_nonblocking(true).unwrap();
        let port = server.local_addr().unwrap().port().to_string();
        let (before, kept) = (theirs.metadata(), env.workspace_file(".env", "old"));
        env.sandbox().probe(&["chmod", theirs.text(), "666"]).assert_errno(ENOENT);
        env.sandbox().probe(&["tcp-connect", "127.0.0.1", &port]).assert_errno(ECONNREFUSED);
        env.sandbox().probe(&["write", kept.text(), "new"]).assert_errno(EACCES);
        kept.assert_contents("old");
        assert_eq!(theirs.metadata(), before);
        assert!(server.accept().is_err(), "somebody came");
        env.sandbox().probe(&["chmod", mine.text(), "666"]).assert_ok();
        env.sandbox().probe(&["write", mine.text(), "new"]).assert_ok();
        env.sandbox().probe(&["fchmod", mine.text(), "666"]).assert_ok();
        env.sandbox().probe(&["write", theirs.text(), "new"]).assert_errno(ENOENT);
        theirs.assert_contents("old");
        env.bare().probe(&["chmod", theirs.text(), "666"]).assert_ok();
    });
}
