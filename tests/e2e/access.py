"""What the tests of access share: keys, a daemon that listens in any way, connections to a unix socket."""
import http.client
import json
import re
import signal
import socket
import subprocess

from daemon import BUILD, DEADLINE_S, Daemon, Reply, clean_env, until


def ingot(folder, *args, check=True, env=None):
    r = subprocess.run([str(BUILD / "cli" / "ingot"), *map(str, args)], env=clean_env(folder, env),
                       cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                       timeout=DEADLINE_S)
    assert not re.search("Sanitizer|runtime error:", r.stderr), r.stderr
    assert not check or r.returncode == 0, r.stderr
    return r


def add_key(path, *args):
    """A key of the file, made as people make them."""
    there = [f for f in path.parents if f.exists()][0]
    return ingot(there, "keys", "add", "--file", path, *args).stdout.strip()


def bearer(key):
    return {"Authorization": "Bearer " + key}


def hang_up(d, said):
    """SIGHUP, until the log says so."""
    n = len(d.log)
    d.process.send_signal(signal.SIGHUP)
    until(lambda: re.search(said, d.log[n:]), "the log says " + said)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=DEADLINE_S)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def ask(connection, method, path, body=None, headers=None):
    data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
    try:
        connection.request(method, path, data, headers or {})
        r = connection.getresponse()
        return Reply(r.status, r.headers, r.read())
    finally:
        connection.close()


class AnyDaemon(Daemon):
    """One whose ready line may name TLS or a unix socket."""

    def wait_ready(self):
        line = self.process.stdout.readline().decode()
        m = re.fullmatch(r"ready (https?)://(\S+):(\d+)\n", line)
        self.scheme, self.url = (m.group(1) if m else None), line[6:].strip()
        if m:
            self.host, self.port = m.group(2).strip("[]"), int(m.group(3))
        else:
            assert line.startswith("ready unix:/"), "it said %r and\n%s" % (line, self.log)
