"""A language server for tests: it answers, or does what no server should, as its argument says."""
import json
import os
import socket
import sys
import time

mode, root, beside = sys.argv[1:4]
source, sink = sys.stdin.buffer, sys.stdout.buffer


def send(message):
    body = json.dumps(dict(message, jsonrpc="2.0")).encode()
    sink.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    sink.flush()


def receive():
    length = None
    while True:
        line = source.readline()
        if not line:
            sys.exit(0)
        if line == b"\r\n":
            return json.loads(source.read(length))
        name, value = line.split(b":")
        if name.lower() == b"content-length":
            length = int(value)


def range_of(line, start, end):
    return {"start": {"line": line, "character": start}, "end": {"line": line, "character": end}}


def tried(what):
    try:
        return what() or "done"
    except OSError as error:
        return error.strerror


def connect():
    with socket.create_connection(("127.0.0.1", int(beside)), timeout=5):
        pass


def attack():
    made = {
        "overwrite": lambda: open(root + "/kept", "w").write("new") and None,
        "make": lambda: open(root + "/made", "w").close(),
        "remove": lambda: os.remove(root + "/kept"),
        "home": lambda: open(os.path.expanduser("~/made"), "w").close(),
        "temporary": lambda: open(os.environ.get("TMPDIR", "/tmp") + "/made", "w").close(),
        "connect": connect,
    }
    return "; ".join("%s: %s" % (name, tried(what)) for name, what in made.items())


def misbehave():
    if mode == "hang":
        time.sleep(3600)
    elif mode == "crash":
        sys.stderr.write("the reason\n")
        sys.exit(3)
    elif mode == "garbage":
        sink.write(b"no header\r\n\r\n{}")
    elif mode == "endless-header":
        sink.write(b"x" * 100000)
    elif mode == "huge":
        sink.write(b"Content-Length: 4000000000\r\n\r\n")
    elif mode == "no-json":
        sink.write(b"Content-Length: 4\r\n\r\n[[[[")
    elif mode == "bytes":
        # Announced as UTF-16, counted otherwise.
        send({"id": 1, "result": {"capabilities": {"positionEncoding": "utf-8"}}})
    elif mode == "flood":
        text = "x" * 1000000
        while True:
            send({"method": "window/logMessage", "params": {"type": 3, "message": text}})
    elif mode == "complain":
        while True:
            sys.stderr.write("y" * 65536)
    elif mode == "ask-without-end":
        items = [{}] * 100000
        while True:
            send({"id": "more", "method": "workspace/configuration", "params": {"items": items}})
    sink.flush()
    time.sleep(3600)


request = receive()
assert request["method"] == "initialize", request
if mode not in ("good", "push", "attack", "many"):
    misbehave()
capabilities = {} if mode == "push" else {"diagnosticProvider": {"interFileDependencies": True}}
send({"id": request["id"], "result": {"capabilities": capabilities}})
asked_again = False
while True:
    message = receive()
    method, params = message.get("method"), message.get("params")
    answer = None
    if method == "initialized":
        send({"id": "c", "method": "workspace/configuration", "params": {"items": [{}, {}]}})
        send({"id": "u", "method": "unheard/of"})
    elif method is None and message["id"] == "c":
        assert message["result"] == [None, None], message
    elif method is None and message["id"] == "u":
        assert message["error"]["code"] == -32601, message
    elif method == "textDocument/didOpen":
        document = params["textDocument"]
        if mode == "push":
            one = {"range": range_of(0, 5, 6), "message": "pushed", "severity": 2, "source": "toy", "code": 7}
            send({"method": "textDocument/publishDiagnostics", "params": {"uri": "file:///other", "diagnostics": []}})
            send({"method": "textDocument/publishDiagnostics", "params": {"uri": document["uri"], "diagnostics": [one]}})
    elif method == "textDocument/diagnostic":
        answer = {"kind": "full", "items": [{"range": range_of(0, 5, 6), "message": "pulled"}]}
    elif method == "textDocument/hover":
        at = params["position"]
        text = attack() if mode == "attack" else "%s at %d:%d" % (document["text"], at["line"], at["character"])
        answer = {"contents": {"kind": "plaintext", "value": text}}
    elif method == "textDocument/definition":
        if not asked_again:
            # Servers say so while they read.
            asked_again = True
            send({"id": message["id"], "error": {"code": -32801, "message": "content modified"}})
            continue
        answer = {"uri": "file://" + root + "/b%2Etoy", "range": range_of(1, 5, 9)}
    elif method == "textDocument/references":
        assert params["context"] == {"includeDeclaration": False}, params
        secret = {"uri": "file://" + beside, "range": range_of(0, 4, 5)}
        detour = {"uri": "file://" + root + "/../b.toy", "range": range_of(0, 0, 1)}
        link = {"uri": "file://" + root + "/link.toy", "range": range_of(0, 4, 5)}
        wrong = {"uri": "file://" + root + "/a.toy", "range": range_of(9000, 9000, 10 ** 12)}
        answer = [secret, detour, link, wrong, {"nonsense": 1}, 5]
        if mode == "many":
            answer = [{"uri": "file://" + root + "/a.toy", "range": range_of(n, 0, 1)} for n in range(5000)]
    elif method == "textDocument/documentSymbol":
        inner = {"name": "inner", "kind": 6, "range": range_of(0, 0, 1), "selectionRange": range_of(0, 5, 6)}
        outer = {"name": "outer", "kind": 5, "range": range_of(0, 0, 9), "selectionRange": range_of(0, 0, 1)}
        answer = [dict(outer, children=[inner])]
    if answer is not None:
        send({"id": message["id"], "result": answer})
