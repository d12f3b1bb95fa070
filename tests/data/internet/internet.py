"""Makes a host that has an Internet of the suite's own: `internet.py LOG`, as root.

The host and the Internet are two network namespaces, joined by a cable. Names, addresses and servers are below. Each
server writes what reaches it to LOG, a line each, before it answers; the host has servers of its own, which do too.
With INTERNET_SERVES (`ssh,postgres`), servers of `servers.py` are there as well, whose files are in the directory LOG.servers; with
`git` among them, the web servers have a repository, `/git/repository`.
It prints `ready`. A program is then on the host if it enters the network and mount namespaces of this process. Everything
ends with the end of standard input. Exit status 77: it cannot be made here, and standard error says why.
"""

import base64
import ctypes
import http.server
import json
import os
import select
import signal
import socket
import socketserver
import ssl
import struct
import subprocess
import sys
import threading

sys.dont_write_bytecode = True
import servers
import services

HERE = os.path.dirname(os.path.abspath(__file__))
LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18

HOST, HOST_TOO = "93.184.216.1", "93.184.216.2"
GOOD, EVIL, RESOLVER = "93.184.216.34", "93.184.216.35", "93.184.216.53"
LAN, METADATA = "10.0.0.1", "169.254.169.254"
NAMES = {
    "good.example": GOOD,
    "sub.good.example": GOOD,
    "other.example": GOOD,  # the same server: what fronting takes
    "evil.example": EVIL,
    "to-good.example": GOOD,  # no certificate is for it
    "to-loopback.example": "127.0.0.1",
    "to-lan.example": LAN,
    "to-metadata.example": METADATA,
    "to-host.example": HOST,
    "to-host-too.example": HOST_TOO,
}
# Where distributions keep the certificates of authorities.
CERTIFICATES = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
]
# The first answer for a name that begins so, and each later one.
CHANGING, CHANGES = "changing-", [GOOD, "127.0.0.1"]
FILES = servers.files("good.example")
SERVES = [server for server in os.environ.get("INTERNET_SERVES", "").split(",") if server]


def fail(what):
    print(f"no Internet here: {what}", file=sys.stderr)
    sys.exit(77)


def call(name, *args):
    if getattr(LIBC, name)(*args) != 0:
        fail(f"{name}: {os.strerror(ctypes.get_errno())}")


def ip(*words):
    try:
        done = subprocess.run(["ip", *words], capture_output=True, text=True)
    except FileNotFoundError:
        fail("there is no program `ip` (iproute2)")
    if done.returncode != 0:
        fail(f"ip {' '.join(words)}: {done.stderr.strip()}")


CHILDREN = []


def child(serve):
    """Forks a process that serves and ends with this one. Waits until it is ready."""
    read, write = os.pipe()
    # A signal at its death (PR_SET_PDEATHSIG) would not come: it is another user's by then.
    parent = os.pidfd_open(os.getpid())
    if pid := os.fork():
        CHILDREN.append(pid)
        os.close(parent)
        os.close(write)
        if os.read(read, 1) != b"x":
            fail("a server did not start")
        os.close(read)
        return
    try:
        serve(lambda: os.write(write, b"x"))
        select.select([parent], [], [])
    finally:
        os._exit(1)


# What programs and tools never hold.
CREDENTIALS = ["Authorization", "X-Subscription-Token", "X-Key"]
FOUND = {"title": "Found", "url": "https://found.example/page", "snippet": "A page that was found."}


def search(path):
    """What the providers of searches answer there, as they really do."""
    if path.endswith("/res/v1/web/search"):
        results = [{"title": FOUND["title"], "url": FOUND["url"], "description": FOUND["snippet"]}]
        return json.dumps({"type": "search", "web": {"type": "search", "results": results}}).encode()
    if path.endswith("/search"):
        results = [{**FOUND, "content": FOUND["snippet"]}]
        return json.dumps({"query": "x", "number_of_results": 0, "results": results}).encode()
    if path.endswith("/html/"):
        with open(f"{HERE}/duckduckgo.html", "rb") as file:
            return file.read()
    return None


class Web(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        here = self.connection.getsockname()
        kind = "https" if isinstance(self.connection, ssl.SSLSocket) else "http"
        log(f"{kind} {here[0]}:{here[1]} {self.headers.get('Host')} {self.path}")
        if self.path in ("/no-answer", "/no-http"):
            self.wfile.write(b"SSH-2.0-x\r\n\r\n" if self.path == "/no-http" else b"")
            self.close_connection = True
            return
        if self.path.startswith("/git/"):
            self.serve_git(b"")
            return
        if self.path in FILES:
            kind, body = FILES[self.path]
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        if self.path.startswith("/acme/"):
            self.serve_azure(b"")
            return
        for name in CREDENTIALS:
            for value in self.headers.get_all(name, []):
                log(f"credential {self.headers.get('Host')} {name}: {value}")
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/to/"))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if self.path == "/repeated":  # what it was sent, in the forms in which servers give that back
            value = self.headers.get("X-Subscription-Token", "")
            basic = [base64.b64encode(text.encode()).decode() for text in (value, f"you:{value}")]
            body = json.dumps([value, *basic, value.replace("-", "%2D"), json.dumps(value)]).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        if self.path.startswith("/broken/"):
            self.send_error(503)
            return
        found = search(self.path.split("?")[0])
        if found:
            body = found
        elif self.path == "/large":
            body = b"x" * (32 << 20)
        elif self.path.startswith("/repository/info/refs"):
            body = b"0123456789012345678901234567890123456789\trefs/heads/main\n"
        else:
            body = f"{kind} of {here[0]} for {self.headers.get('Host')}\n".encode()
        if self.path == "/as-if":  # as egress says it
            body = b"callgate: good.example: it closed the connection\n"
        self.send_response(502 if self.path == "/as-if" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def do_POST(self):
        body = self.body()
        log(f"post {len(body)}")
        if self.path.startswith("/git/"):
            self.serve_git(body)
            return
        if self.path.startswith("/acme/"):
            self.serve_azure(body)
            return
        if self.path.endswith("/chat/completions"):
            self.answer_with("application/json", *services.completions(self.headers, body))
            return
        if self.path == "/search":
            log(f"credential {self.headers.get('Host')} authorization: {self.headers.get('Authorization')}")
            log(f"asked {body.decode()}")
            body = json.dumps({"query": "x", "results": [{**FOUND, "content": FOUND["snippet"]}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        self.send_response(204)
        self.end_headers()

    def do_PATCH(self):
        self.serve_azure(self.body())

    def serve_azure(self, body):
        """Only who speaks TLS is served: a token does not go in the clear."""
        log(f"azure {self.command} {self.path}")
        state = f"{sys.argv[1]}.azure"
        answer = services.azure(self.command, self.path, self.headers, body, state)
        status, kind, body = answer if isinstance(self.connection, ssl.SSLSocket) else (400, "text/plain", b"")
        self.answer_with(kind, status, body)

    def answer_with(self, kind, status, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def serve_git(self, body):
        status, headers, body = servers.answer_git(f"{sys.argv[1]}.servers/git", self.command, self.path, self.headers, body)
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128

    def server_bind(self):
        # Its own asks for the name of its address, which nobody knows here.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address

    def handle_error(self, *_):
        pass


def web(address, port, tls=None):
    server = Server((address, port), Web)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def echo(address, port):
    """A protocol of its own: whoever connects is greeted, and hears what they say."""
    listener = socket.create_server((address, port), backlog=128)

    def serve(client):
        log(f"echo {address}:{port}")
        client.sendall(b"hello\n")
        while data := client.recv(65536):
            client.sendall(data)
        client.close()

    def accept():
        while True:
            threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def names(address):
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.bind((address, 53))
    asked = {}

    def serve():
        while True:
            question, client = listener.recvfrom(4096)
            labels, at = [], 12
            while question[at]:
                labels.append(question[at + 1 : at + 1 + question[at]].decode("latin1").lower())
                at += 1 + question[at]
            name, kind = ".".join(labels), struct.unpack_from(">H", question, at + 1)[0]
            log(f"name {name} {kind}")
            found = NAMES.get(name)
            if name.startswith(CHANGING):
                if kind == 1:
                    asked[name] = asked.get(name, 0) + 1
                found = CHANGES[min(max(asked.get(name, 1), 1), len(CHANGES)) - 1]
            answer = b""
            if found and kind == 1:
                answer = struct.pack(">HHHIH", 0xC00C, 1, 1, 0, 4) + socket.inet_aton(found)
            head = question[:2] + struct.pack(">HHHHH", 0x8180 if found else 0x8183, 1, 1 if answer else 0, 0, 0)
            listener.sendto(head + question[12 : at + 5] + answer, client)

    threading.Thread(target=serve, daemon=True).start()


def log(line):
    os.write(LOG, (line + "\n").encode())


def serve_the_internet(ready):
    call("unshare", CLONE_NEWNET)
    ip("link", "set", "lo", "up")
    ip("link", "add", "cable", "type", "veth", "peer", "name", "uplink", "netns", str(os.getppid()))
    for address in (f"{GOOD}/24", f"{EVIL}/24", f"{RESOLVER}/24", f"{LAN}/24", f"{METADATA}/16"):
        ip("address", "add", address, "dev", "cable")
    ip("link", "set", "cable", "up")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(f"{HERE}/certificate.pem", f"{HERE}/key.pem")
    names(RESOLVER)
    for address in (GOOD, EVIL, LAN, METADATA):
        web(address, 80)
        web(address, 443, tls)
        web(address, 8080)
        echo(address, 2525)
    if "git" in SERVES:
        servers.make_repository(f"{sys.argv[1]}.servers/git")
    programs = [server for server in SERVES if server in servers.PORTS]
    if programs:
        servers.start(programs, GOOD, f"{sys.argv[1]}.servers")
    ready()


def serve_the_host(ready):
    for address in ("127.0.0.1", HOST, HOST_TOO):
        web(address, 80)
        web(address, 8080)
    ready()


def main():
    global LOG
    LOG = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    call("unshare", CLONE_NEWNET | CLONE_NEWNS)
    call("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    ip("link", "set", "lo", "up")
    if SERVES:
        # Whoever started this one, at home beside the log; OpenSSH asks for that.
        home = os.path.dirname(sys.argv[1])
        users = {servers.GIT: ("git", "/"), os.stat(home).st_uid: ("somebody", home)}
        servers.know(users, f"{sys.argv[1]}.servers")
    child(serve_the_internet)
    for address in (HOST, HOST_TOO):
        ip("address", "add", f"{address}/24", "dev", "uplink")
    ip("link", "set", "uplink", "up")
    ip("route", "add", "default", "via", GOOD)
    child(serve_the_host)
    path = os.path.realpath("/etc/resolv.conf")
    with open(f"{sys.argv[1]}.resolv.conf", "w") as file:
        file.write(f"nameserver {RESOLVER}\n")
    call("mount", f"{sys.argv[1]}.resolv.conf".encode(), path.encode(), None, MS_BIND, None)
    # What this host's tools believe: the authority that has signed for these servers.
    for path in CERTIFICATES:
        if os.path.isfile(path):
            place = os.path.realpath(path).encode()
            call("mount", f"{HERE}/certificate.pem".encode(), place, None, MS_BIND, None)
            # Whatever adds an authority to those of the host must not add it to this file.
            call("mount", b"none", place, None, MS_REMOUNT | MS_BIND | MS_RDONLY, None)
    print("ready", flush=True)
    sys.stdin.read()
    for pid in CHILDREN:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    servers.wait(f"{sys.argv[1]}.servers")


main()
