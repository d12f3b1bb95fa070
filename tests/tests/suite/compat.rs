//! Everyday programs work inside as they do bare: same output, same exit status, in both strengths.

use std::fs;

use callgate_tests::{Host, ProgramRunner, TestEnv, matrix, skip};

/// A small project: a program with a dependency by path, a makefile, and no history yet.
const PROJECT: &[(&str, &str)] = &[
    (
        "Cargo.toml",
        "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\ndep = { path = \"dep\" }\n",
    ),
    ("src/main.rs", "fn main() { println!(\"{}\", dep::answer()); }\n"),
    ("build.rs", "fn main() { std::fs::write(std::env::var(\"OUT_DIR\").unwrap() + \"/made\", \"x\").unwrap(); }\n"),
    ("dep/Cargo.toml", "[package]\nname = \"dep\"\nversion = \"0.1.0\"\nedition = \"2021\"\n"),
    ("dep/src/lib.rs", "pub fn answer() -> u32 { 42 }\n"),
    (".gitignore", "target\n"),
    ("Makefile", "all: a.out\n\t./a.out\na.out: a.o b.o\n\tgcc $^\n%.o: %.c\n\tgcc -c $<\n"),
    ("a.c", "#include <stdio.h>\nint b(void);\nint main(void) { printf(\"%d\\n\", b()); return 0; }\n"),
    ("b.c", "int b(void) { return 6 * 7; }\n"),
];

/// Runs a script in a fresh copy of the project.
fn in_project(env: &TestEnv, run: &ProgramRunner, script: &str) -> (Option<i32>, String, String) {
    for (name, text) in PROJECT {
        let path = env.workspace().join(name);
        let directory = path.parent().unwrap();
        fs::create_dir_all(directory).unwrap();
        fs::write(&path, text).unwrap();
        for path in [directory, &path] {
            env.give(path);
        }
    }
    let ended = run.run(&["/bin/bash", "-c", &format!("set -e\n{script}")]);
    (ended.status.code(), ended.stdout, ended.stderr)
}

fn same_inside(script: &str) {
    matrix(Host::STRENGTHS, |target| {
        let (outer, inner) = (TestEnv::new(target), TestEnv::new(target));
        let home = outer.outside().display().to_string();
        // An ordinary user has no toolchain in root's home; root keeps its own.
        let bare = if target.user.uid() == 0 { outer.bare() } else { outer.bare().variable("HOME", &home) };
        let control = in_project(&outer, &bare, script);
        if control.0 != Some(0) {
            assert_ne!(target.user.uid(), 0, "does not work bare: {control:?}");
            return skip("toolchain-of-root", format_args!("{target:?}: does not work bare: {}", control.2));
        }
        let inside = in_project(&inner, &inner.sandbox(), script);
        assert_eq!((inside.0, &inside.1), (control.0, &control.1), "{}", inside.2);
        assert!(!control.1.is_empty(), "a script that prints nothing proves nothing");
    });
}

#[test]
fn git() {
    same_inside(
        "export GIT_AUTHOR_DATE=2020-01-01T00:00:00Z GIT_COMMITTER_DATE=2020-01-01T00:00:00Z\n\
         git init -q -b main .; git config user.name a; git config user.email a@b.c\n\
         git add .; git commit -qm one; echo '//' >> src/main.rs; git status --short; git commit -qam two; git log --format='%H %s'\n\
         git stash list; git gc -q; git fsck 2>&1; git clone -q . copy; git -C copy log --oneline; git worktree add -q tree; git -C tree status --short | wc -l",
    );
}

/// Work on history, and repositories in repositories.
#[test]
fn git_rebase_and_submodules() {
    same_inside(
        "export GIT_AUTHOR_DATE=2020-01-01T00:00:00Z GIT_COMMITTER_DATE=2020-01-01T00:00:00Z\n\
         export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=protocol.file.allow GIT_CONFIG_VALUE_0=always\n\
         me() { git -C $1 config user.name a; git -C $1 config user.email a@b.c; }\n\
         git init -q -b main lib; me lib; echo 1 > lib/f; git -C lib add f; git -C lib commit -qm lib\n\
         git init -q -b main top; me top; cd top; echo 1 > a; git add a; git commit -qm one\n\
         git switch -qc side; echo 2 > b; git add b; git commit -qm two; git switch -q main; echo 3 > c; git add c; git commit -qm three\n\
         git rebase -q main side; git log --format='%H %s'; git merge -q --no-ff -m merged main; git cherry-pick --allow-empty main >/dev/null 2>&1 || git cherry-pick --skip\n\
         git submodule --quiet add ../lib lib; git commit -qm sub; git submodule status; cat .gitmodules\n\
         cd ..; git clone -q top again; cd again; git submodule --quiet update --init; git submodule status; cat lib/f\n\
         echo 2 > ../lib/f; git -C ../lib commit -qam more; git submodule --quiet update --remote; cat lib/f; git status --short",
    );
}

/// Package managers and archives write what they write bare: many files, modes, links and renames.
#[test]
fn npm_pip_and_tar() {
    same_inside(
        r#"mkdir -p package/lib; echo '{"name":"local","version":"1.0.0","bin":{"local":"lib/run.js"},"scripts":{"postinstall":"echo done > made"}}' > package/package.json
printf '#!/usr/bin/env node\nconsole.log("ran")\n' > package/lib/run.js; tar czf local.tgz package; rm -r package
echo '{"name":"app","version":"1.0.0"}' > package.json
npm install --offline --no-audit --no-fund --silent --cache "$PWD/.cache" ./local.tgz; ./node_modules/.bin/local; cat node_modules/local/made
ls -l node_modules/local/lib | cut -c1-10; npm ls --no-update-notifier | grep local@
cat > wheel.py <<'END'
import zipfile
with zipfile.ZipFile('w-1-py3-none-any.whl', 'w') as z:
    z.writestr('w/__init__.py', 'x = 7\n'); z.writestr('w-1.dist-info/RECORD', '')
    z.writestr('w-1.dist-info/METADATA', 'Metadata-Version: 2.1\nName: w\nVersion: 1\n')
    z.writestr('w-1.dist-info/WHEEL', 'Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
END
/usr/bin/python3 wheel.py; /usr/bin/python3 -m pip install -q --no-index --disable-pip-version-check --root-user-action=ignore --target site ./w-1-py3-none-any.whl
PYTHONPATH=site /usr/bin/python3 -c 'import w; print(w.x)'
mkdir -p t/d/e; echo x > t/d/e/f; chmod 750 t/d; chmod 444 t/d/e/f; ln -s d/e/f t/link; ln t/d/e/f t/hard; find t -depth -exec touch -hd 2001-02-03 {} +
tar cf t.tar t; mkdir out; tar xf t.tar -C out; cd out; find . -printf '%M %n %l %Ts %p\n' | grep -v ' \.$' | sort"#,
    );
}

#[test]
fn cargo() {
    same_inside("cargo build --offline -q 2>&1; ./target/debug/app; cargo run --offline -q 2>&1");
}

#[test]
fn gcc_and_make() {
    same_inside("make -s -j2; make -s");
}

#[test]
fn sqlite() {
    same_inside(
        "sqlite3 db 'pragma journal_mode=wal; create table t(x); insert into t values(1);'\n\
         for i in 1 2 3 4; do sqlite3 -cmd '.timeout 20000' db 'insert into t values(2)' & done; wait\n\
         sqlite3 db 'select count(*), sum(x) from t; pragma integrity_check; pragma wal_checkpoint;'",
    );
}

#[test]
fn python() {
    same_inside(
        r#"cat > mp.py <<'END'
import multiprocessing as m, multiprocessing.shared_memory as s, subprocess, tempfile, socket, threading
def f(x): return x * x
def g(q, d, sem):
    with sem: d['k'] = q.get()
if __name__ == '__main__':
    for method in ('fork', 'spawn', 'forkserver'):
        c = m.get_context(method)
        with c.Pool(2) as p: print(method, p.map(f, range(4)))
        with c.Manager() as man:
            d, q, sem = man.dict(), c.Queue(), c.Semaphore(1)
            p = c.Process(target=g, args=(q, d, sem)); p.start(); q.put(7); p.join(); print(dict(d), p.exitcode)
    a = s.SharedMemory(create=True, size=4096); a.buf[0] = 9
    b = s.SharedMemory(name=a.name); print(b.buf[0]); b.close(); a.close(); a.unlink()
    print(subprocess.run(['echo', 'hi'], capture_output=True).stdout)
    with tempfile.TemporaryDirectory() as d: print(d.count('/') > 0)
END
/usr/bin/python3 mp.py"#,
    );
}

#[test]
fn node() {
    same_inside(
        r#"cat > s.js <<'END'
const { spawnSync, execFile } = require('child_process'), http = require('http');
console.log(spawnSync('echo', ['hi']).stdout.toString(), spawnSync('sh', ['-c', 'exit 3']).status);
const s = http.createServer((q, r) => r.end('served ' + q.url)).listen(0, '127.0.0.1', () =>
  http.get({ port: s.address().port, host: '127.0.0.1', path: '/x' }, (r) => r.on('data', (d) => console.log('' + d)).on('end', () => s.close())));
new (require('worker_threads').Worker)('console.log("worker")', { eval: true });
END
node s.js | sort; npm --version"#,
    );
}

/// Semaphores, shared memory, memfds, attributes, watches, sockets and processors, as libraries use them.
#[test]
fn the_rest_of_what_programs_need() {
    same_inside(
        r#"cat > rest.py <<'END'
import os, socket, threading, ctypes, fcntl, tempfile
l = ctypes.CDLL(None, use_errno=True)
a, b = socket.socketpair(); a.send(b'pair'); print(b.recv(9))
for address in ('sock', '\0callgate-compat-%d' % os.getpid()):
    s = socket.socket(socket.AF_UNIX); s.bind(address); s.listen()
    c = socket.socket(socket.AF_UNIX); c.connect(address); x, _ = s.accept(); x.send(b'unix'); print(c.recv(9))
for family, host in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')):
    s = socket.socket(family); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind((host, 0)); s.listen()
    c = socket.create_connection(s.getsockname()[:2]); x, _ = s.accept(); x.sendall(b'tcp'); print(c.recv(9)); x.close(); print(c.recv(9))
name = b'/callgate-compat-%d' % os.getpid()
l.sem_open.restype = ctypes.c_void_p
sem = l.sem_open(name, os.O_CREAT | os.O_EXCL, 0o600, 1); print(sem is not None, l.sem_wait(ctypes.c_void_p(sem)), l.sem_post(ctypes.c_void_p(sem)), l.sem_unlink(name))
fd = l.shm_open(name, os.O_CREAT | os.O_RDWR, 0o600); os.ftruncate(fd, 4096); print(fd >= 0, l.shm_unlink(name))
m = os.memfd_create('m', os.MFD_ALLOW_SEALING); os.write(m, b'x'); fcntl.fcntl(m, 1033, 15)
try: os.write(m, b'y')
except PermissionError: print('sealed')
open('f', 'w').close(); os.setxattr('f', 'user.k', b'v'); print(os.getxattr('f', 'user.k'), os.listxattr('f')); os.removexattr('f', 'user.k')
i = l.inotify_init(); print(l.inotify_add_watch(i, b'.', 0x100) > 0); open('g', 'w').close(); print(len(os.read(i, 99)) > 0)
print(open('/sys/devices/system/cpu/online').read().strip(), os.cpu_count() == len(os.sched_getaffinity(0)))
os.chmod('f', 0o640); os.utime('f', (1, 2)); st = os.stat('f'); print(oct(st.st_mode), st.st_mtime)
os.mkfifo('p'); os.symlink('f', 'l'); os.link('f', 'h'); print(os.readlink('l'), os.stat('h').st_nlink)
with tempfile.NamedTemporaryFile() as t: t.write(b'x'); t.flush(); print(os.stat(t.name).st_size)
pid = os.fork()
if pid == 0: os._exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), open('/dev/null').read(), len(os.urandom(3)))
END
/usr/bin/python3 rest.py"#,
    );
}

/// TMPDIR is the session's own: another session, or the host, finds nothing there.
#[test]
fn a_private_temporary_directory() {
    matrix(Host::STRENGTHS, |target| {
        let env = TestEnv::new(target);
        let name = format!("callgate-compat-{}-{}", std::process::id(), target.user.uid());
        let ended = env.sandbox().run(&["/bin/bash", "-c", &format!("echo x > $TMPDIR/{name} && cat $TMPDIR/{name}")]);
        assert_eq!(ended.stdout, "x\n", "{ended:?}");
        let again = env.sandbox().run(&["/bin/bash", "-c", &format!("[ ! -e $TMPDIR/{name} ]; echo $?")]);
        assert_eq!(again.stdout, "0\n", "{again:?}");
        assert!(!std::env::temp_dir().join(&name).exists());
    });
}

/// tmux has its socket where it may, though `/tmp` is closed without namespaces.
#[test]
fn tmux() {
    if !std::path::Path::new("/usr/bin/tmux").is_file() {
        return skip("tmux", "there is none");
    }
    same_inside(
        "tmux -f /dev/null new-session -d 'echo made > made; sleep 5' && tmux list-sessions -F '#{session_windows}'\n\
         until [ -s made ]; do sleep 0.1; done; cat made; tmux kill-server",
    );
}
