"""An ingotd for tests: a generated configuration, port 0, and a way to talk to it.

Nothing here sleeps to let something happen: `until` polls a condition against a
deadline and says what it last saw.  A daemon that is stopped must exit 0 and must
not have been reported on by a sanitizer; Daemon.stop checks both.
"""
import contextlib
import http.client
import json
import os
import pathlib
import re
import select
import signal
import socket
import subprocess
import time

import websockets.sync.client

BUILD = pathlib.Path(os.environ.get("INGOT_BUILD", "build")).resolve()
# "address", "thread" or nothing: which sanitizer the build has.
SANITIZER = os.environ.get("INGOT_SANITIZER", "")
# How much longer everything may take than on a plain build.
PATIENCE = {"": 1, "address": 4, "thread": 8}[SANITIZER]
DEADLINE_S = 30 * PATIENCE

SANITIZER_ENV = {
    "ASAN_OPTIONS": "exitcode=99:detect_leaks=1:abort_on_error=0:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "halt_on_error=1:exitcode=99:print_stacktrace=1",
    "TSAN_OPTIONS": "exitcode=66:halt_on_error=0:second_deadlock_stack=1",
}
REPORT = re.compile(r"(AddressSanitizer|LeakSanitizer|ThreadSanitizer|runtime error:)")


def until(condition, what, deadline_s=None):
    """Poll until condition() is true; its value.  What it last returned is in the failure."""
    end = time.monotonic() + (deadline_s or DEADLINE_S)
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError("never came true: %s (last: %r)" % (what, value))
        time.sleep(0.005)


def rss_bytes(d):
    return int(subprocess.check_output(["ps", "-o", "rss=", "-p", str(d.process.pid)])) * 1024


def in_pieces(ask):
    """What ask() gives, (pieces, …), once there are several pieces: the tokens of a short answer
    may reach a busy machine's client together, but those of every answer never do."""
    def several():
        got = ask()
        return got if len(got[0]) > 1 else None
    return until(several, "an answer in more than one piece")


def yaml_text(value, indent=0):
    """A nested dict as block YAML; strings are quoted as JSON does."""
    pad = "  " * indent
    lines = []
    for key, v in value.items():
        if isinstance(v, dict):
            lines.append("%s%s:\n%s" % (pad, key, yaml_text(v, indent + 1)))
        elif isinstance(v, list) and v and isinstance(v[0], dict):
            lines.append("%s%s:" % (pad, key))
            for item in v:
                body = yaml_text(item, indent + 2)
                lines.append("%s  - %s" % (pad, body.lstrip()))
        else:
            lines.append("%s%s: %s" % (pad, key, json.dumps(v)))
    return "\n".join(lines)


def merged(base, extra):
    out = dict(base)
    for key, v in extra.items():
        out[key] = merged(out[key], v) if isinstance(v, dict) and isinstance(out.get(key), dict) else v
    return out


def module_folders():
    return sorted({str(p.parent) for pattern in ("*.so", "*.dylib")
                   for p in (BUILD / "modules").rglob(pattern)})


def clean_env(home, extra=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("INGOT_", "XDG_"))}
    env.update(SANITIZER_ENV)
    env.update(HOME=str(home), LC_ALL="C")
    if os.environ.get("INGOT_TSAN_SUPPRESSIONS"):
        env["TSAN_OPTIONS"] += ":suppressions=" + os.environ["INGOT_TSAN_SUPPRESSIONS"]
    env.update(extra or {})
    return env


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]

    def events(self):
        """The data of a stream of server-sent events, in order, as text."""
        out = []
        for frame in self.body.decode().split("\n\n"):
            data = [line[5:].lstrip(" ") for line in frame.split("\n") if line.startswith("data:")]
            if data:
                out.append("\n".join(data))
        return out

    def __repr__(self):
        return "Reply(%d, %r)" % (self.status, self.body[:400])


class Metrics:
    """Prometheus's text, parsed strictly."""
    LINE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$')
    LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')

    def __init__(self, text):
        self.types, self.samples = {}, []
        for line in text.split("\n"):
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                assert name not in self.types, "two TYPE lines for " + name
                self.types[name] = kind
            elif line.startswith("# HELP ") or line == "":
                continue
            else:
                m = self.LINE.match(line)
                assert m, "not a sample: %r" % line
                labels, rest = {}, m.group(2) or ""
                while rest:
                    pair = self.LABEL.match(rest)
                    assert pair, "not labels: %r" % rest
                    labels[pair.group(1)] = pair.group(2)
                    rest = rest[pair.end():]
                self.samples.append((m.group(1), labels, float(m.group(3))))

    def sum(self, name, **labels):
        found = [v for n, l, v in self.samples
                 if n == name and all(l.get(k) == w for k, w in labels.items())]
        assert found, "no sample of %s%r" % (name, labels)
        return sum(found)


class Daemon:
    """A running ingotd.  Use `Starter.__call__` of the fixture `start`."""

    def __init__(self, folder, config, env=None, args=(), wait=True, program=None):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config_path = self.folder / "ingot.yaml"
        self.stderr_path = self.folder / "stderr.txt"
        self.config = config
        self.write_config(config)
        self.env = clean_env(self.folder, env)
        self.started = time.monotonic()
        self.stderr_file = open(self.stderr_path, "wb")
        self.process = subprocess.Popen(
            [str(program or BUILD / "daemon" / "ingotd"), "--config", str(self.config_path), *args],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.stderr_file,
            cwd=self.folder, env=self.env)
        self.host = self.port = None
        self.stopped = False
        self.sockets = []
        if wait:
            self.wait_ready()

    # ---- life ----

    def write_config(self, config):
        self.config = config
        text = config if isinstance(config, str) else yaml_text(config) + "\n"
        temporary = self.config_path.with_suffix(".new")
        temporary.write_text(text)
        temporary.replace(self.config_path)

    @property
    def log(self):
        return self.stderr_path.read_text(errors="replace")

    def wait_ready(self):
        line, end = b"", time.monotonic() + DEADLINE_S
        fd = self.process.stdout.fileno()
        while not line.endswith(b"\n"):
            if not select.select([fd], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError("not ready in time; it said:\n" + self.log)
            byte = os.read(fd, 1)
            if not byte:
                code = self.process.wait(DEADLINE_S)
                self.stopped = True
                raise AssertionError("ended with %d before it was ready; it said:\n%s"
                                     % (code, self.log))
            line += byte
        m = re.fullmatch(r"ready http://(\S+):(\d+)\n", line.decode())
        assert m, "standard output began with %r" % line
        self.host, self.port = m.group(1).strip("[]"), int(m.group(2))
        self.ready_s = time.monotonic() - self.started

    def wait_exit(self, deadline_s=None):
        code = self.process.wait(deadline_s or DEADLINE_S)
        self.stopped = True
        return code

    def stop(self):
        """SIGTERM, exit code 0, nothing from a sanitizer."""
        for s in self.sockets:
            with contextlib.suppress(Exception):
                if isinstance(s, socket.socket):  # a thread that reads from it would hold it open
                    s.shutdown(socket.SHUT_RDWR)
                s.close()
        if self.stopped:
            self.check_reports()
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.wait_exit()
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError("SIGTERM did not end it; it said:\n" + self.log)
        self.check_reports()
        assert code == 0, "SIGTERM gave exit code %d; it said:\n%s" % (code, self.log)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.stopped = True

    def close(self):
        self.stderr_file.close()
        self.process.stdout.close()

    def check_reports(self):
        assert not REPORT.search(self.log), self.log

    # ---- HTTP ----

    def http(self, method, path, body=None, headers=None, timeout=None):
        """One request on a connection of its own."""
        c = http.client.HTTPConnection(self.host, self.port, timeout=timeout or DEADLINE_S)
        try:
            data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
            h = {"Content-Type": "application/json"} if data is not None else {}
            h.update(headers or {})
            c.request(method, path, data, h)
            r = c.getresponse()
            return Reply(r.status, r.headers, r.read())
        finally:
            c.close()

    def chat(self, content="hi", **options):
        body = {"model": "tiny", "messages": [{"role": "user", "content": content}],
                "temperature": 0}
        body.update(options)
        return self.http("POST", "/v1/chat/completions", body)

    def chat_text(self, content="hi", **options):
        r = self.chat(content, **options)
        assert r.status == 200, r
        return r.json["choices"][0]["message"]["content"]

    def metrics(self):
        r = self.http("GET", "/metrics")
        assert r.status == 200, r
        return Metrics(r.body.decode())

    def running(self):
        return self.metrics().sum("ingot_num_requests_running")

    def waiting(self):
        return self.metrics().sum("ingot_num_requests_waiting")

    def blocks_used(self):
        return self.metrics().sum("ingot_kv_cache_blocks_used")

    def until_idle(self):
        def idle():
            m = self.metrics()
            state = [m.sum("ingot_num_requests_running"), m.sum("ingot_num_requests_waiting"),
                     m.sum("ingot_kv_cache_blocks_used")]
            return state == [0, 0, 0]
        until(idle, "nothing runs or waits and no block is used")

    # ---- raw sockets ----

    def connect(self, receive_buffer=None):
        s = socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET)
        if receive_buffer:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        s.settimeout(DEADLINE_S)
        s.connect((self.host, self.port))
        self.sockets.append(s)
        return s

    def raw(self, data, half_close=False):
        """Send bytes, read until the daemon closes or the reply is whole."""
        s = self.connect()
        with contextlib.suppress(OSError):  # it may hang up at any byte
            s.sendall(data)
            if half_close:
                s.shutdown(socket.SHUT_WR)
        reply = read_reply(s)
        s.close()
        return reply

    # ---- WebSocket ----

    def ws(self, path="/v1/responses", **options):
        options.setdefault("compression", None)
        options.setdefault("max_size", None)
        options.setdefault("max_queue", None)
        options.setdefault("close_timeout", 5 * PATIENCE)
        c = Connection(websockets.sync.client.connect(
            "ws://%s:%d%s" % (self.host, self.port, path), open_timeout=DEADLINE_S, **options))
        self.sockets.append(c)
        return c


def read_reply(s):
    """One HTTP reply from a raw socket, by Content-Length or until it closes; None when
    the daemon closed without a word."""
    data = b""
    try:
        while True:
            head, blank, body = data.partition(b"\r\n\r\n")
            if blank:
                length = re.search(rb"(?im)^content-length: *(\d+)", head)
                if length and len(body) >= int(length.group(1)):
                    break
            piece = s.recv(65536)
            if not piece:
                break
            data += piece
    except ConnectionResetError:
        pass
    if not data:
        return None
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = http.client.HTTPMessage()
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name] = value.strip()
    return Reply(int(lines[0].split(" ")[1]), headers, body)


class Connection:
    """A WebSocket on which Responses are asked for."""

    def __init__(self, ws):
        self.ws = ws

    def send(self, event):
        self.ws.send(event if isinstance(event, (str, bytes)) else json.dumps(event))

    def create(self, content="hi", **options):
        event = {"type": "response.create", "model": "tiny", "input": content, "temperature": 0}
        event.update(options)
        self.send({k: v for k, v in event.items() if v is not ...})

    def event(self, deadline_s=None):
        return json.loads(self.ws.recv(timeout=deadline_s or DEADLINE_S))

    def until_type(self, *types):
        """Events up to and with the first of one of these types."""
        out = []
        while True:
            out.append(self.event())
            if out[-1]["type"] in types:
                return out

    def answer(self, *args, **options):
        """Ask and read to the end; the events."""
        self.create(*args, **options)
        return self.until_type("response.completed", "response.incomplete", "response.failed", "error")

    def error(self):
        """The next event, which must be an error in the WebSocket's shape."""
        e = self.event()
        assert e["type"] == "error", e
        assert isinstance(e["status"], int) and e["status"] >= 300, e
        assert set(e["error"]) >= {"type", "code", "message", "param"}, e
        assert isinstance(e["error"]["message"], str) and e["error"]["message"], e
        assert e["error"]["code"] is None or isinstance(e["error"]["code"], str), e
        return e

    def close(self):
        self.ws.close()

    def abort(self):
        """Drop the TCP connection without a word of WebSocket."""
        self.ws.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.ws.socket.shutdown(socket.SHUT_RDWR)
        self.ws.socket.close()


def text_of(events):
    return "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
