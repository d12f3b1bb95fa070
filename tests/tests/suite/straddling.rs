//! Addresses and headers that lie across the end of what is mapped, or are unmapped while the call is judged: nobody is reached,
//! and nothing goes on to the kernel that was not looked at (B18). A vector's second message is judged as its first.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;

use callgate_tests::{Host, TestEnv, eventually, matrix};
use libc::{EACCES, ECONNREFUSED, EFAULT, EOPNOTSUPP};

use super::net_none::LoopbackListener;

/// B18: whole, it is judged by all of its bytes; cut at the border of a page, it is no address.
#[test]
fn b18_an_address_or_header_across_two_pages_is_judged_whole_or_not_at_all() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let host = LoopbackListener::new();
        for (act, errno, cut) in
            [("straddling-connect", ECONNREFUSED, EFAULT), ("straddling-sendmsg", EOPNOTSUPP, EOPNOTSUPP)]
        {
            let words = [act, "127.0.0.1", &host.port];
            env.bare().probe(&words).assert_ok();
            assert_eq!(host.visits(), 1, "{act} bare");
            env.sandbox().probe(&words).assert_errno(errno);
            let words = [act, "127.0.0.1", &host.port, "cut"];
            env.bare().probe(&words).assert_errno(EFAULT);
            // The flag of the second is refused before anything is read.
            env.sandbox().probe(&words).assert_errno(cut);
            assert_eq!(host.visits(), 0, "{act}");
        }
        // What may be sent is sent, and what is cut is not.
        for run in [env.bare(), env.sandbox()] {
            run.probe(&["straddling-own"]).assert_ok();
            run.probe(&["straddling-own", "cut"]).assert_errno(EFAULT);
        }
    });
}

/// B18: the second page comes and goes while the call is judged. Each try fails as one of the two would, and those to one's own
/// listener go through, as they do bare.
#[test]
fn b18_what_is_unmapped_while_it_is_judged_reaches_nobody() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let host = LoopbackListener::new();
        // How many of each answer, and that there were no others. A hundred tries fit a listener's queue.
        let race = |run: &callgate_tests::ProgramRunner, kind: &str, port: &str, known: &[&str]| -> Vec<u64> {
            let tried = run.probe(&["straddling-race", kind, "127.0.0.1", port, "100"]);
            let answers = tried.assert_ok().fact("answers");
            let answers = answers.as_object().unwrap();
            assert!(answers.keys().all(|answer| known.contains(&answer.as_str())), "{tried}");
            known.iter().map(|name| answers.get(*name).and_then(serde_json::Value::as_u64).unwrap_or(0)).collect()
        };
        for kind in ["connect", "sendmsg"] {
            eventually("the control sees both", || {
                let bare = race(&env.bare(), kind, &host.port, &["ok", "EFAULT"]);
                assert_eq!(host.visits() as u64, bare[0], "{kind} bare");
                bare.iter().all(|&count| count > 0)
            });
            let refused = if kind == "connect" { &["ECONNREFUSED", "EFAULT"][..] } else { &["EOPNOTSUPP"] };
            eventually("the race sees both", || {
                let inside = race(&env.sandbox(), kind, &host.port, refused);
                assert_eq!((inside.iter().sum::<u64>(), host.visits()), (100, 0), "{kind}: {inside:?}");
                inside.iter().all(|&count| count > 0)
            });
        }
        let own = race(&env.sandbox(), "connect", "own", &["ok", "EFAULT"]);
        assert!(own[0] > 0, "{own:?}");
    });
}

/// B18: two messages in one call, of which only the second goes to a stranger.
#[test]
fn b18_the_second_message_of_a_vector_reaches_nobody() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let host = LoopbackListener::new();
        let words = ["sendmmsg-second", "127.0.0.1", &host.port];
        assert_eq!(env.bare().probe(&words).assert_ok().fact("sent"), 2);
        assert_eq!(host.visits(), 1, "the control arrived");
        let answer = env.sandbox().probe(&words);
        if target.has_namespaces() {
            // Both are sent, to addresses of the session's own network.
            assert_eq!(answer.assert_ok().fact("sent"), 2);
        } else {
            answer.assert_errno(EACCES);
        }
        assert_eq!(host.visits(), 0, "somebody came");

        let path = env.workspace().join("log");
        let log = UnixDatagram::bind(&path).unwrap();
        log.set_nonblocking(true).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
        let words = ["unix-sendmmsg-second", path.to_str().unwrap()];
        let mut data = [0; 64];
        assert_eq!(env.bare().probe(&words).assert_ok().fact("sent"), 2);
        log.recv(&mut data).expect("the control arrived");
        env.sandbox().probe(&words).assert_errno(EACCES);
        assert!(log.recv(&mut data).is_err(), "something came");
    });
}
