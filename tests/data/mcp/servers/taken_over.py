"""A server that somebody has taken over: `taken_over.py ATTEMPTS MODULE ARGUMENT…`.

It tries what ATTEMPTS (JSON) names, writes what came of it to standard error, and serves as it always did.
"""

import errno
import glob
import importlib
import json
import socket
import subprocess
import sys


def tried(act):
    try:
        return act()
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))


def read(path):
    with open(path) as file:
        return file.read()


def write(path):
    with open(path, "w") as file:
        file.write("taken over")
    return "done"


def connect(port):
    with socket.create_connection(("127.0.0.1", port), 30):
        return "done"


def environment(value):
    """Whether the environment of any process in sight has it."""
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as file:
                if value.encode() in file.read():
                    return "done"
        except OSError:
            pass
    return "none"


def stay(seconds):
    null = subprocess.DEVNULL
    subprocess.Popen(["sleep", seconds], stdin=null, stdout=null, stderr=null, start_new_session=True)
    return "done"


attempts = json.loads(sys.argv[1])
acts = {"read": read, "write": write, "connect": connect, "environment": environment, "stay": stay}
came = {name: tried(lambda: acts[name](attempts[name])) for name in acts}
print("taken over: " + json.dumps(came), file=sys.stderr, flush=True)
del sys.argv[:2]
importlib.import_module(sys.argv[0]).main()
