//! Things that are shared without being a file of the workspace: System V and POSIX IPC, `/dev/shm` (D4).

use callgate_tests::{Host, Target, TestEnv, matrix};
use libc::{EACCES, ENOENT, EPERM};

/// Keys and names are the call's own, so that those of others do not exist. Numbers are the kernel's: they mean nothing in
/// an IPC namespace of one's own, and elsewhere the broker knows whose they are.
fn not_its_own(_target: Target) -> i32 {
    EACCES
}

/// A key that no other test uses at the same time.
fn key(target: Target, salt: u32) -> String {
    let user = target.user.uid() & 1;
    (u64::from(std::process::id()) << 8 | u64::from(salt) << 1 | u64::from(user)).to_string()
}

/// Segments, semaphores and queues of the host can be neither found nor used by number.
#[test]
fn d4_system_v_ipc_of_the_host_is_out_of_reach() {
    let kinds = [
        ("shm-sysv-create", "shm-sysv-get", "shm-sysv-attach", "shm-sysv-remove"),
        ("sem-sysv-create", "sem-sysv-get", "sem-sysv-op", "sem-sysv-remove"),
        ("msg-sysv-create", "msg-sysv-get", "msg-sysv-send", "msg-sysv-remove"),
    ];
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for (salt, (create, get, using, remove)) in (1..).zip(kinds) {
            let key = key(target, salt);
            let made = env.bare().probe(&[create, &key]);
            let id = made.assert_ok().fact("id").to_string();
            let controls = [env.bare().probe(&[get, &key]), env.bare().probe(&[using, &id])];
            let refusals = [
                env.sandbox().probe(&[get, &key]),
                env.sandbox().probe(&[using, &id]),
                env.sandbox().probe(&[remove, &id]),
            ];
            // Before any assertion, so that nothing outlives a failure; it also shows that it was still there.
            let removed = env.bare().probe(&[remove, &id]);
            for control in &controls {
                control.assert_ok();
            }
            let [by_key, by_number @ ..] = &refusals;
            by_key.assert_errno(ENOENT);
            for refused in by_number {
                refused.assert_errno(not_its_own(target));
            }
            removed.assert_ok();
        }
    });
}

/// Objects that a call makes are gone with it: the next call, or the host, does not find them.
#[test]
fn d4_system_v_ipc_of_a_call_does_not_outlive_it() {
    let kinds = [
        ("shm-sysv-create", "shm-sysv-get", "shm-sysv-remove"),
        ("sem-sysv-create", "sem-sysv-get", "sem-sysv-remove"),
        ("msg-sysv-create", "msg-sysv-get", "msg-sysv-remove"),
    ];
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for (salt, (create, get, remove)) in (10..).zip(kinds) {
            let key = key(target, salt);
            let made = env.sandbox().probe(&[create, &key]);
            made.assert_ok();
            let left = env.bare().probe(&[get, &key]);
            if left.is_ok() {
                env.bare().probe(&[remove, &left.fact("id").to_string()]).assert_ok();
            }
            left.assert_errno(ENOENT);
        }
    });
}

/// D11: a segment's mode may not keep its own maker from looking at it: callgate, who made it for the call, would not know it
/// again when the call has ended, and it would stay on the host, which has room for 4,096. The mode was taken as it came.
#[test]
fn d11_a_segment_that_nobody_may_read_is_removed_with_its_call() {
    let script = "
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def errno(result): return ctypes.get_errno() if result == -1 else 0
ids = [libc.shmget(0, 4096, 0o1000) for _ in range(3)]
about = ctypes.create_string_buffer(256)
def set_mode(mode):
    struct.pack_into('=III', about, 4, os.getuid(), os.getgid(), 0); struct.pack_into('=I', about, 20, mode)
    return errno(libc.shmctl(ids[0], 1, about))
print(errno(libc.shmctl(ids[0], 2, about)), set_mode(0o640), set_mode(0o200), set_mode(0), errno(libc.shmctl(ids[0], 1, None)))
print(*ids)
if sys.argv[1] == 'remove': print(*[libc.shmctl(id, 0, None) for id in ids])";
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let run = |run: callgate_tests::ProgramRunner, then| run.run(&["/usr/bin/python3", "-c", script, then]);
        let control = run(env.bare(), "remove");
        // Root may look at any.
        let looked = if target.user.uid() == 0 { 0 } else { EACCES };
        assert!(control.stdout.starts_with(&format!("{looked} 0 0 0 {}\n", libc::EFAULT)), "{control:?}");
        assert!(control.stdout.ends_with("0 0 0\n"), "{control:?}");
        let inside = run(env.sandbox(), "leave");
        let mut left = Vec::new();
        // With an IPC namespace the numbers are its own, and it is gone.
        if !target.has_namespaces() {
            let ids = inside.stdout.lines().nth(1).unwrap_or_default().to_owned();
            left.extend(ids.split(' ').map(str::to_owned));
            // Before any assertion, so that nothing outlives a failure.
            left.retain(|id| env.bare().probe(&["shm-sysv-remove", id]).is_ok());
        }
        assert_eq!(left, Vec::<String>::new(), "they outlived their call");
        let wanted = format!("0 0 {EPERM} {EPERM} {}", libc::EFAULT);
        assert_eq!(inside.stdout.lines().next(), Some(wanted.as_str()), "{inside:?}");
        assert_eq!(inside.stdout.lines().nth(1).map(|ids| ids.contains('-')), Some(false), "{inside:?}");
    });
}

/// POSIX names live in /dev/shm, which callers of one host share.
#[test]
fn d4_posix_shared_memory_of_the_host_is_out_of_reach() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let name = format!("callgate-test-{}-{}", std::process::id(), target.user.uid());
        let path = format!("/dev/shm/{name}");
        env.bare().probe(&["shm-posix", &name]).assert_ok();
        let control = env.bare().probe(&["shm-posix-open", &name]);
        let open = env.sandbox().probe(&["shm-posix-open", &name]);
        let unlink = env.sandbox().probe(&["unlink", &path]);
        let removed = std::fs::remove_file(&path);
        control.assert_ok();
        open.assert_errno(ENOENT);
        unlink.assert_errno(ENOENT);
        removed.expect("it was still there");
    });
}

/// The host's /dev/shm, whether or not a call may use its own, is left as it was.
#[test]
fn d4_nothing_is_left_in_dev_shm() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        for (act, prefix) in [("shm-posix", ""), ("sem-posix", "sem.")] {
            let name = format!("callgate-left-{}-{}", std::process::id(), target.user.uid());
            let tried = env.sandbox().probe(&[act, &name]);
            tried.assert_ok();
            let left = std::fs::remove_file(format!("/dev/shm/{prefix}{name}"));
            assert!(left.is_err(), "{act} left a file: {tried}");
        }
    });
}

/// A POSIX queue of the host.
#[test]
fn d4_posix_queues_of_the_host_are_out_of_reach() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let name = format!("callgate-test-{}-{}", std::process::id(), target.user.uid());
        env.bare().probe(&["mq-open", &name]).assert_ok();
        env.sandbox().probe(&["mq-open-existing", &name]).assert_errno(EACCES);
        // No rule of Landlock can name a queue, so that there are none inside.
        env.sandbox().probe(&["mq-open", &name]).assert_errno(EACCES);
        env.bare().probe(&["mq-open-existing", &name]).assert_errno(ENOENT);
    });
}

/// Sealed memory stays available: compilers and browsers use it, and it is nobody else's.
#[test]
fn memfds_work_inside() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        env.bare().probe(&["memfd-seal"]).assert_ok();
        env.sandbox().probe(&["memfd-seal"]).assert_ok();
    });
}
