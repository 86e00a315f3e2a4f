"""Bytes on the socket that no honest client sends, and clients that are slow or many."""
import base64
import json
import os
import socket
import struct
import threading
import time

import pytest

from daemon import DEADLINE_S, PATIENCE, read_reply, text_of, until
from tiny_model import FLOOD, SCRIPT

CHAT = "/v1/chat/completions"


def post(headers, data=b"", path=CHAT):
    lines = ["POST %s HTTP/1.1" % path, "Host: localhost", "Content-Type: application/json"]
    return ("\r\n".join(lines + headers) + "\r\n\r\n").encode() + data


def still_serves(d):
    assert d.chat_text() == SCRIPT


# ---- bodies -------------------------------------------------------------------

def test_no_length(scripted):
    r = scripted.raw(post([]))
    assert r.status == 411
    still_serves(scripted)


def test_transfer_encoding(scripted):
    for headers in (["Transfer-Encoding: chunked"],
                    ["Content-Length: 5", "Transfer-Encoding: chunked"],
                    ["Transfer-Encoding: identity"]):
        r = scripted.raw(post(headers, b"0\r\n\r\n"))
        assert r.status == 411, (headers, r)
    still_serves(scripted)


@pytest.mark.parametrize("value", ["x", "-1", "1e3", "+5", "0x10", "5 5",
                                   "99999999999999999999999"])
def test_bad_length(scripted, value):
    r = scripted.raw(post(["Content-Length: " + value], b"{}"), half_close=True)
    assert r is None or r.status in (400, 411, 413), r
    still_serves(scripted)


def test_body_too_large(start, models):
    d = start(models.script(), {"server": {"max_body": 65536}})
    r = d.raw(post(["Content-Length: 65537"], b"{" + b" " * 100))
    assert r.status == 413
    assert "max_body" in r.error["message"], r.error
    filler = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "hi"}]})
    r = d.http("POST", CHAT, (filler + " " * (65536 - len(filler))).encode())
    assert r.status == 200, r
    still_serves(d)


def test_body_that_breaks_off(scripted):
    before = scripted.metrics().sum("ingot_connections")
    s = scripted.connect()
    s.sendall(post(["Content-Length: 1000"], b'{"model":'))
    s.close()
    until(lambda: scripted.metrics().sum("ingot_connections") <= before, "the connection is gone")
    still_serves(scripted)


def test_more_bytes_than_the_length(scripted):
    data = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}).encode()
    r = scripted.raw(post(["Content-Length: %d" % len(data), "Connection: close"],
                          data + b"GARBAGE / HTTP/9\r\n\r\n"))
    assert r is None or r.status in (200, 400)
    still_serves(scripted)


# ---- heads --------------------------------------------------------------------

def test_headers_too_large(scripted):
    r = scripted.raw(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"a" * 100000 +
                     b"\r\n\r\n")
    assert r is None or r.status in (400, 413, 414, 431), r
    still_serves(scripted)


def test_long_headers_that_fit(scripted):
    """Larger than libwebsockets' own default, within ours."""
    r = scripted.raw(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " +
                     b"a" * 6000 + b"\r\nConnection: close\r\n\r\n")
    assert r is not None and r.status == 200


@pytest.mark.parametrize("data", [
    b"\r\n\r\n", b"\0" * 100, b"GET\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET /" + b"a" * 70000,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
    b"GET /%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /%00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    bytes(range(256)) * 4,
], ids=["blank", "zeros", "one word", "no host", "endless path", "TLS", "HTTP/2", "two hosts",
        "bad escape", "NUL in the path", "every byte"])
def test_no_http(scripted, data):
    r = scripted.raw(data, half_close=True)
    assert r is None or 300 <= r.status < 500, r
    still_serves(scripted)


def test_a_slow_head_is_cut_off(scripted):
    """A head that never ends costs one connection for a while and nobody else anything."""
    s = scripted.connect()
    s.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
    s.settimeout(0.2)
    end = time.monotonic() + 60 * PATIENCE
    closed = False
    while not closed and time.monotonic() < end:
        try:
            s.send(b"a")
            closed = s.recv(100) == b""
        except socket.timeout:
            assert scripted.http("GET", "/healthz").status == 200
        except OSError:
            closed = True
    assert closed, "still open after a minute"


# ---- WebSocket frames ------------------------------------------------------------

class RawWs:
    """A WebSocket of which every byte is ours."""

    def __init__(self, d, extra=b""):
        self.s = d.connect()
        key = base64.b64encode(os.urandom(16))
        self.s.sendall(b"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
                       b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                       b"Sec-WebSocket-Key: " + key + b"\r\n" + extra + b"\r\n")
        data = b""
        while b"\r\n\r\n" not in data:
            piece = self.s.recv(1)
            assert piece, "no handshake: %r" % data
            data += piece
        assert data.startswith(b"HTTP/1.1 101"), data

    @staticmethod
    def frame(opcode, payload, fin=True, masked=True, reserved=0, length=None):
        n = len(payload) if length is None else length
        head = bytes([(0x80 if fin else 0) | reserved << 4 | opcode])
        mask = 0x80 if masked else 0
        if n < 126:
            head += bytes([mask | n])
        elif n < 65536:
            head += bytes([mask | 126]) + struct.pack(">H", n)
        else:
            head += bytes([mask | 127]) + struct.pack(">Q", n)
        if masked:
            key = os.urandom(4)
            payload = bytes(b ^ key[i % 4] for i, b in enumerate(payload))
            head += key
        return head + payload

    def send(self, *frames):
        self.s.sendall(b"".join(frames))

    def read_frame(self):
        """(opcode, payload), or None when the connection is closed."""
        def exactly(n):
            data = b""
            while len(data) < n:
                piece = self.s.recv(n - len(data))
                if not piece:
                    raise EOFError
                data += piece
            return data
        try:
            a, b = exactly(2)
            n = b & 0x7f
            if n == 126:
                n = struct.unpack(">H", exactly(2))[0]
            elif n == 127:
                n = struct.unpack(">Q", exactly(8))[0]
            assert not b & 0x80, "a server must not mask"
            return a & 0x0f, exactly(n)
        except (EOFError, ConnectionResetError):
            return None

    def closing(self):
        """Read to the end; the close code, None without one."""
        code = None
        while True:
            f = self.read_frame()
            if f is None:
                return code
            if f[0] == 8 and len(f[1]) >= 2:
                code = struct.unpack(">H", f[1][:2])[0]


CREATE = json.dumps({"type": "response.create", "model": "tiny", "input": "hi",
                     "temperature": 0}).encode()


def text_over(w):
    text = ""
    while True:
        f = w.read_frame()
        assert f, "closed in the middle"
        if f[0] == 1:
            e = json.loads(f[1])
            assert e["type"] != "error", e
            if e["type"] == "response.output_text.delta":
                text += e["delta"]
            if e["type"] == "response.completed":
                return text


def test_fragments(scripted):
    """One message in frames of a byte, a ping in between."""
    w = RawWs(scripted)
    for i, b in enumerate(CREATE):
        w.send(w.frame(1 if i == 0 else 0, bytes([b]), fin=i == len(CREATE) - 1))
        if i == 10:
            w.send(w.frame(9, b"there?"))
    assert text_over(w) == SCRIPT


def test_many_messages_at_once(scripted):
    """Sent before the first answer is read, in one write."""
    w = RawWs(scripted)
    w.send(*[w.frame(1, CREATE)] * 10)
    for _ in range(10):
        assert text_over(w) == SCRIPT


def test_message_too_large(start, models):
    d = start(models.script(), {"server": {"max_body": 65536}})
    for frames in ([RawWs.frame(1, b" " * 70000)],
                   [RawWs.frame(1, b" " * 1000, fin=False)] +
                   [RawWs.frame(0, b" " * 1000, fin=False)] * 100,
                   [RawWs.frame(1, b" " * 70000, length=1 << 62)]):
        w = RawWs(d)
        try:
            w.send(*frames)
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert w.closing() in (1009, 1002, None)
    w = RawWs(d)
    w.send(w.frame(1, CREATE + b" " * (65536 - len(CREATE) - 8)))
    assert text_over(w) == SCRIPT
    still_serves(d)


def test_bad_utf8(scripted):
    w = RawWs(scripted)
    w.send(w.frame(1, b'{"type": "\xff\xfe"}'))
    f = w.read_frame()
    if f is not None and f[0] == 1:
        assert json.loads(f[1])["type"] == "error"
    else:
        assert f is None or struct.unpack(">H", f[1][:2])[0] in (1007, 1002)
    still_serves(scripted)


@pytest.mark.parametrize("name, frame", [
    ("unmasked", RawWs.frame(1, CREATE, masked=False)),
    ("reserved bits", RawWs.frame(1, CREATE, reserved=7)),
    ("unknown opcode", RawWs.frame(5, b"x")),
    ("continuation of nothing", RawWs.frame(0, b"x")),
    ("long ping", RawWs.frame(9, b"x" * 200)),
    ("fragmented ping", RawWs.frame(9, b"x", fin=False)),
    ("close with one byte", RawWs.frame(8, b"x")),
    ("close with a bad code", RawWs.frame(8, struct.pack(">H", 5))),
    ("garbage", bytes(range(255, 0, -1)) * 20),
])
def test_hostile_frames(scripted, name, frame):
    """Whatever comes of the connection, the daemon lives and nothing is left behind."""
    w = RawWs(scripted)
    w.send(frame)
    w.s.shutdown(socket.SHUT_WR)
    w.closing()
    still_serves(scripted)


def test_bad_handshakes(scripted):
    for extra in (b"Sec-WebSocket-Version: 8\r\n", b""):
        s = scripted.connect()
        s.sendall(b"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
                  b"Connection: Upgrade\r\n" + extra + b"\r\n")
        s.shutdown(socket.SHUT_WR)
        r = read_reply(s)
        assert r is None or 400 <= r.status < 500, r
    still_serves(scripted)


# ---- clients that do not read, or come in numbers --------------------------------

def slow_reader(d):
    """Asks for an endless answer and reads nothing of it."""
    s = d.connect(receive_buffer=4096)
    data = json.dumps({"model": "flood", "messages": [{"role": "user", "content": "hi"}],
                       "temperature": 0, "stream": True}).encode()
    s.sendall(post(["Content-Length: %d" % len(data)], data))
    return s


@pytest.fixture
def flooding(start, models):
    """`flood` sends 2 KiB with each token and never ends within a test."""
    def make(timeout_ms):
        return start(extra={
            "models": [{"name": "tiny", "path": models.script()},
                       {"name": "flood", "path": models(kind="flood", n_context=262144)}],
            "kvcache": {"arena": 512 << 20},
            "server": {"client_buffer": 16384, "slow_client_timeout": "%dms" % timeout_ms}})
    return make


@pytest.mark.tsan
def test_a_slow_reader_is_paused_and_others_go_on(flooding):
    d = flooding(600000)
    s = slow_reader(d)
    until(lambda: d.metrics().sum("ingot_num_requests_paused") == 1, "the sequence is paused")

    # What the system buffers for the socket has to fill up too; from then on its cache
    # stays and does not grow, whatever others do.
    def stable():
        used = d.blocks_used()
        for _ in range(5):
            still_serves(d)
        return used if d.blocks_used() == used else None
    used = until(stable, "the paused sequence holds what it has")
    assert used > 0
    # It reads again and is served again, in order and without a gap.
    data = b""
    while data.count(FLOOD.encode()) < 5000:
        piece = s.recv(65536)
        assert piece
        data += piece
    frames = [f[6:] for f in data.decode(errors="replace").split("\n\n") if f.startswith("data: {")]
    text = "".join(json.loads(f)["choices"][0]["delta"].get("content") or "" for f in frames[:-1])
    assert text == (FLOOD * (len(text) // len(FLOOD) + 1))[:len(text)]
    s.close()
    d.until_idle()


def test_a_slow_reader_is_given_up(flooding):
    d = flooding(1000)
    s = slow_reader(d)
    until(lambda: d.metrics().sum("ingot_num_requests_paused") == 1, "the sequence is paused")
    d.until_idle()
    s.close()
    from test_ledger import rows
    row, = until(lambda: [r for r in rows(d) if r["model"] == "flood"], "its row is there")
    assert row["cancel_reason"] == "slow_client" and row["finish"] == "cancelled"


def test_connections_are_capped(start, models):
    d = start(models.script(), {"server": {"max_connections": 8}})
    held = [d.connect() for _ in range(30)]
    # The cap may be reached, but what is let in is served and what is let go is let go.
    for s in held:
        s.close()

    def served():
        try:
            return d.chat().status == 200
        except OSError:
            return False
    until(served, "it serves again when the others have gone")


def test_idle_connections_are_cheap(scripted):
    held = [scripted.connect() for _ in range(100)]
    still_serves(scripted)
    for s in held:
        s.close()
    until(lambda: scripted.metrics().sum("ingot_connections") <= 3, "they are gone")


def test_a_storm_of_clients(scripted):
    """Forty threads at once: each gets its own whole answer."""
    wrong = []

    def one(i):
        try:
            if i % 2:
                c = scripted.ws()
                got = text_of(c.answer("client %d" % i))
                c.close()
            else:
                got = scripted.chat_text("client %d" % i)
            if got != SCRIPT:
                wrong.append((i, got))
        except Exception as e:  # noqa: BLE001 - whatever it was, the test reports it
            wrong.append((i, repr(e)))
    threads = [threading.Thread(target=one, args=(i,)) for i in range(40)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(DEADLINE_S)
    assert wrong == []
    scripted.until_idle()
