"""Real servers on the suite's Internet: OpenSSH, PostgreSQL and Redis, as Debian packages them; a repository, by git's own program for web
servers; and what the registries of pip, npm and cargo serve, as files.

The servers live in namespaces of their own and end with the program that asked for them. Their files are in one directory, which
belongs to the user `git`.
"""

import base64
import ctypes
import fcntl
import glob
import gzip
import hashlib
import io
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import zipfile

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWPID = 0x00020000, 0x08000000, 0x20000000
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
# The user that the servers run as.
GIT = 4243
PORTS = {"ssh": 22, "postgres": 5432, "redis": 6379, "mariadb": 3306}


def check(name, *args):
    if getattr(LIBC, name)(*args) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def start(wanted, address, directory):
    """Starts those servers at the address, and returns when each takes connections. All end with this process."""
    parent = os.pidfd_open(os.getpid())
    if not os.fork():
        try:
            check("unshare", CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWPID)
            # The first process of its namespace: with it all others end.
            if os.fork():
                os.close(parent)
                os.wait()
            else:
                check("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
                check("mount", b"none", b"/run", b"tmpfs", 0, None)
                os.mkdir("/run/sshd")
                # The last that used these files may still be ending: all its processes hold this.
                lock = os.open(f"{directory}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
                fcntl.flock(lock, fcntl.LOCK_EX)
                for server in wanted:
                    globals()[server](address, f"{directory}/{server}", lock)
                select.select([parent], [], [])
        finally:
            os._exit(1)
    # Longer than MariaDB waits for a file that the one before it still holds (100 s).
    deadline = time.monotonic() + 150
    for server in wanted:
        while not is_ready(server, address):
            if time.monotonic() > deadline:
                with open(f"{directory}/{server}/log") as log:
                    print(log.read()[-4000:], file=sys.stderr, flush=True)
                raise TimeoutError(server)
            time.sleep(0.02)


def wait(directory):
    """Returns when no server of that directory is left: all their processes hold its lock."""
    if os.path.exists(f"{directory}/lock"):
        lock = os.open(f"{directory}/lock", os.O_RDWR | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.close(lock)


def made(name, make, directory):
    """Has `make(DIRECTORY)` make a server's first files, which takes it seconds: once, and then a copy of them."""
    kept = os.environ.get("INTERNET_MADE")
    if not kept:
        make(directory)
        return
    os.makedirs(kept, exist_ok=True)
    lock = os.open(f"{kept}/{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_EX)
    if not os.path.exists(f"{kept}/{name}"):
        make(directory)
        # Under its name it is whole.
        shutil.rmtree(f"{kept}/{name}.new", ignore_errors=True)
        subprocess.check_call(["cp", "-a", directory, f"{kept}/{name}.new"])
        os.rename(f"{kept}/{name}.new", f"{kept}/{name}")
    os.close(lock)
    if not os.path.exists(directory):
        subprocess.check_call(["cp", "-a", "--reflink=auto", f"{kept}/{name}", directory])


def is_ready(server, address):
    if server == "postgres":
        # It takes connections before it answers them.
        return subprocess.run([f"{postgres_programs()}/pg_isready", "-q", "-h", address]).returncode == 0
    try:
        socket.create_connection((address, PORTS[server])).close()
        return True
    except ConnectionRefusedError:
        return False


def know(users, directory):
    """Gives these users, by their numbers, a name and a home, for this mount namespace alone."""
    os.makedirs(directory, mode=0o755, exist_ok=True)
    lines = {
        "passwd": [f"{name}:*:{uid}:{uid}::{home}:/bin/sh\n" for uid, (name, home) in users.items()],
        "group": [f"{name}:x:{uid}:\n" for uid, (name, _) in users.items()],
    }
    for file, own in lines.items():
        with open(f"/etc/{file}") as opened:
            others = [line for line in opened if int(line.split(":")[2]) not in users]
        with open(f"{directory}/{file}", "w") as opened:
            opened.writelines(own + others)
        check("mount", f"{directory}/{file}".encode(), f"/etc/{file}".encode(), None, MS_BIND, None)


def spawn(words, directory, user=GIT, run=subprocess.Popen, lock=None, **more):
    log = open(f"{directory}/log", "a")
    run(
        words,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        user=user,
        group=user,
        extra_groups=[],
        cwd=directory,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"},
        pass_fds=[lock] if lock else [],
        **more,
    )


def own(directory):
    os.makedirs(directory, exist_ok=True)
    os.chown(directory, GIT, GIT)


def run(words, directory):
    spawn(words, directory, run=subprocess.check_call)


def ssh(address, directory, lock):
    """It has a repository, `DIRECTORY/repository`, and lets in whoever asks for it. In their home, beside the log, are keys."""
    own(directory)
    home = os.path.dirname(os.path.dirname(directory))
    if not os.path.exists(f"{directory}/repository"):
        os.mkdir(f"{home}/.ssh", mode=0o700)
        for key in f"{home}/.ssh/id_ed25519", f"{directory}/host_key":
            subprocess.check_call(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key])
        shutil.copy(f"{home}/.ssh/id_ed25519.pub", f"{directory}/authorized_keys")
        with open(f"{directory}/host_key.pub") as public, open(f"{home}/.ssh/known_hosts", "w") as known:
            known.write(f"good.example {public.read()}")
        whose = os.stat(home).st_uid
        for file in ".", *os.listdir(f"{home}/.ssh"):
            os.chown(f"{home}/.ssh/{file}", whose, whose)
        run(["git", "init", "-q", "--bare", "-b", "main", "repository"], directory)
    options = {
        "ListenAddress": f"{address}:22",
        "HostKey": f"{directory}/host_key",
        "AuthorizedKeysFile": f"{directory}/authorized_keys",
        "LogLevel": "VERBOSE",
        "StrictModes": "no",
        "UsePAM": "no",
        "PasswordAuthentication": "no",
        "PidFile": "none",
    }
    words = [word for option in options.items() for word in ("-o", "{}={}".format(*option))]
    spawn(["/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null", *words], directory, user=0, lock=lock)


def postgres_programs():
    return max(glob.glob("/usr/lib/postgresql/*/bin/initdb")).rpartition("/")[0]


def postgres(address, directory, lock):
    own(directory)
    programs = postgres_programs()
    if not os.path.exists(f"{directory}/data/PG_VERSION"):
        words = ["--no-sync", "--no-locale", "--auth=trust", "--username=git", f"--pgdata={directory}/data"]
        version = programs.split("/")[-2]
        made(f"postgres-{version}", lambda _: run([f"{programs}/initdb", *words], directory), f"{directory}/data")
        with open(f"{directory}/data/pg_hba.conf", "a") as file:
            file.write("host all reader all scram-sha-256\nhost all all all trust\n")
    # One whose end nobody has waited for leaves it.
    if os.path.exists(f"{directory}/data/postmaster.pid"):
        os.unlink(f"{directory}/data/postmaster.pid")
    options = {"listen_addresses": address, "unix_socket_directories": "", "fsync": "off", "log_connections": "on"}
    words = [word for option in options.items() for word in ("-c", "{}={}".format(*option))]
    spawn([f"{programs}/postgres", "-D", f"{directory}/data", *words], directory, lock=lock)


def mariadb(address, directory, lock):
    own(directory)
    data = f"--datadir={directory}/data"
    if not os.path.exists(f"{directory}/data/mysql"):
        words = ["--no-defaults", data, "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        words.append("--innodb-log-file-size=4M")
        version = subprocess.check_output(["mariadbd", "--version"], text=True).split()[2]
        made(f"mariadb-{version}", lambda _: run(["mariadb-install-db", *words], directory), f"{directory}/data")
    with open(f"{directory}/first.sql", "w") as file:
        file.write("CREATE DATABASE IF NOT EXISTS shop;\n")
        file.write("CREATE USER IF NOT EXISTS git@'%' IDENTIFIED BY 'database-secret-77af01';\n")
        file.write("GRANT ALL ON *.* TO git@'%';\n")
    options = {"bind-address": address, "port": 3306, "socket": f"{directory}/socket", "init-file": f"{directory}/first.sql"}
    # What was committed outlives the process, which is killed when its run ends; nobody needs it to outlive the machine.
    options |= {"pid-file": f"{directory}/pid", "innodb-flush-log-at-trx-commit": 2, "innodb-buffer-pool-size": "16M"}
    options |= {"innodb-log-file-size": "4M"}
    words = ["--{}={}".format(*option) for option in options.items()]
    spawn(["mariadbd", "--no-defaults", data, "--skip-name-resolve", *words], directory, lock=lock)


def redis(address, directory, lock):
    own(directory)
    # Debian's package of the client has the server under the name of another part of it.
    words = ["redis-server", "--bind", address, "--save", "", "--loglevel", "verbose", "--protected-mode", "no", "--dir", directory]
    spawn(words, directory, lock=lock, executable="/usr/bin/redis-check-rdb")


# No settings of a machine or a person, and no owner of the repository but the one that it has.
GIT_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}


def make_repository(directory):
    """`DIRECTORY/repository` has one commit, and takes others from whoever sends them."""
    if os.path.exists(f"{directory}/repository"):
        return
    os.makedirs(directory)
    somebody = ["-c", "user.name=somebody", "-c", "user.email=somebody@good.example"]
    with open(f"{directory}/log", "a") as log:
        for words in (
            ["init", "-q", "-b", "main", "work"],
            ["-C", "work", *somebody, "commit", "-q", "--allow-empty", "-m", "the first"],
            ["clone", "-q", "--bare", "work", "new"],
            ["-C", "new", "config", "http.receivepack", "true"],
        ):
            subprocess.check_call(["git", *words], cwd=directory, env=GIT_ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    os.rename(f"{directory}/new", f"{directory}/repository")


def answer_git(directory, method, target, headers, body):
    """What git answers to a request for `/git/…`: status, headers and body (git-http-backend(1), RFC 3875)."""
    path, _, query = target.partition("?")
    environment = {
        **GIT_ENVIRONMENT,
        "GIT_PROJECT_ROOT": directory,
        "GIT_HTTP_EXPORT_ALL": "1",
        "PATH_INFO": path.removeprefix("/git"),
        "QUERY_STRING": query,
        "REQUEST_METHOD": method,
        "CONTENT_TYPE": headers.get("Content-Type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_CONTENT_ENCODING": headers.get("Content-Encoding", ""),
        "GIT_PROTOCOL": headers.get("Git-Protocol", ""),
        "REMOTE_ADDR": "0.0.0.0",
    }
    answer = subprocess.run(["git", "http-backend"], input=body, env=environment, stdout=subprocess.PIPE).stdout
    head, _, body = answer.partition(b"\r\n\r\n")
    fields = [tuple(line.split(": ", 1)) for line in head.decode().split("\r\n")]
    status = next((int(value[:3]) for name, value in fields if name == "Status"), 200)
    return status, [field for field in fields if field[0] != "Status"], body


def files(host):
    """What the registries serve, by path: a Python package, one for Node and one for Rust, each called `granted`."""
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as archive:
        about = "granted-1.0.0.dist-info"
        archive.writestr("granted.py", "print('a package of pip')\n")
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: granted\nVersion: 1.0.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", f"granted.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n")
    package = tar("package", {
        "package.json": json.dumps({"name": "granted", "version": "1.0.0"}),
        "index.js": "console.log('a package of npm')\n",
    })
    crate = tar("granted-1.0.0", {
        "Cargo.toml": '[package]\nname = "granted"\nversion = "1.0.0"\nedition = "2021"\n',
        "src/lib.rs": "pub fn say() { println!(\"a package of cargo\") }\n",
    })
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(package).digest()).decode()
    version = {
        "name": "granted",
        "version": "1.0.0",
        "dist": {"tarball": f"https://{host}/npm/granted/-/granted-1.0.0.tgz", "integrity": integrity},
    }
    versions = {"name": "granted", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    entry = {
        "name": "granted",
        "vers": "1.0.0",
        "deps": [],
        "features": {},
        "yanked": False,
        "cksum": hashlib.sha256(crate).hexdigest(),
    }
    return {
        "/pip/granted/": ("text/html", b'<a href="granted-1.0.0-py3-none-any.whl">granted-1.0.0-py3-none-any.whl</a>'),
        "/pip/granted/granted-1.0.0-py3-none-any.whl": ("application/zip", wheel.getvalue()),
        "/npm/granted": ("application/json", json.dumps(versions).encode()),
        "/npm/granted/-/granted-1.0.0.tgz": ("application/gzip", package),
        "/cargo/config.json": ("application/json", json.dumps({"dl": f"https://{host}/crates"}).encode()),
        "/cargo/gr/an/granted": ("text/plain", json.dumps(entry).encode() + b"\n"),
        "/crates/granted/1.0.0/download": ("application/gzip", crate),
    }


def tar(root, contents):
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for name, text in contents.items():
            about = tarfile.TarInfo(f"{root}/{name}")
            about.size = len(text)
            archive.addfile(about, io.BytesIO(text.encode()))
    # Without the time, so that it has the same digest whenever it is made.
    return gzip.compress(plain.getvalue(), mtime=0)
