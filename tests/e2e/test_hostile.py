"""Bytes on the socket that no honest client sends, and clients that do not read.

The rest of it: test_hostile_http.py (requests that two read in two ways), test_hostile_json.py
(values), test_hostile_slow.py, test_hostile_many.py, and test_rfc6455.py (frames)."""
import json
import threading

import pytest

from daemon import DEADLINE_S, SANITIZER, read_reply, rss_bytes, text_of, until
from rawsocket import TEXT, WebSocket, frame
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


# ---- heads --------------------------------------------------------------------

def with_header(n):
    """A request whose one long header has n bytes."""
    return (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + b"a" * n +
            b"\r\nConnection: close\r\n\r\n")


@pytest.mark.parametrize("limit", [4096, 16384, 65536])
def test_header_limit(start, models, limit):
    """What fits server.max_header is served; a byte more than the limit is not, and the connection
    is closed."""
    d = start(models.script(), {"server": {"max_header": limit}})
    fits = d.raw(with_header(limit - 300))
    assert fits is not None and fits.status == 200, fits
    for n in (limit, 100000):
        r = d.raw(with_header(n))
        assert (r.status, r.error["code"]) == (431, "header_too_large"), r
    exact = limit - len(with_header(0))
    assert d.raw(with_header(exact)).status == 200
    assert d.raw(with_header(exact + 1)).status == 431
    still_serves(d)


@pytest.mark.parametrize("data, status, code", [
    (b"\r\n\r\n", None, None), (b"\0" * 100, None, None), (b"GET\r\n\r\n", 400, "invalid_request_line"),
    (b"GET / HTTP/1.1\r\n\r\n", 400, "invalid_host"), (b"GET /" + b"a" * 70000, 414, "uri_too_long"),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", None, None),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "http_version_not_supported"),
    (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 400, "invalid_host"),
    (b"GET /%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "invalid_url"),
    (b"GET /%00 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "invalid_url"),
    (bytes(range(256)) * 4, 400, "invalid_request_line"),
], ids=["blank", "zeros", "one word", "no host", "endless path", "TLS", "HTTP/2", "two hosts",
        "bad escape", "NUL in the path", "every byte"])
def test_no_http(scripted, data, status, code):
    r = scripted.raw(data, half_close=True)
    assert (r.status if r else None) == status, r
    assert code is None or r.error["code"] == code, r
    still_serves(scripted)


# ---- WebSocket frames ------------------------------------------------------------

CREATE = json.dumps({"type": "response.create", "model": "tiny", "input": "hi",
                     "temperature": 0}).encode()


def text_over(w):
    text = ""
    while True:
        f = w.read()
        assert f[0] != "closed", "closed in the middle"
        if f[0] == "text":
            e = json.loads(f[1])
            assert e["type"] != "error", e
            if e["type"] == "response.output_text.delta":
                text += e["delta"]
            if e["type"] == "response.completed":
                return text


def test_fragments(scripted):
    """One message in frames of a byte, a ping in between."""
    w = WebSocket(scripted)
    for i, b in enumerate(CREATE):
        w.send(frame(1 if i == 0 else 0, bytes([b]), fin=i == len(CREATE) - 1))
        if i == 10:
            w.send(frame(9, b"there?"))
    assert text_over(w) == SCRIPT


def test_many_messages_at_once(scripted):
    """Sent before the first answer is read, in one write."""
    w = WebSocket(scripted)
    w.send(*[frame(1, CREATE)] * 10)
    for _ in range(10):
        assert text_over(w) == SCRIPT


def test_message_too_large(start, models):
    d = start(models.script(), {"server": {"max_body": 65536}})
    for frames in ([frame(1, b" " * 70000)],
                   [frame(1, b" " * 1000, fin=False)] +
                   [frame(0, b" " * 1000, fin=False)] * 100,
                   [frame(1, b" " * 70000, length=1 << 62)]):
        w = WebSocket(d)
        w.send(*frames)
        assert w.read()[:2] == ("close", 1009)
        w.close()
    w = WebSocket(d)
    w.send(frame(1, CREATE + b" " * (65536 - len(CREATE) - 8)))
    assert text_over(w) == SCRIPT
    still_serves(d)


def test_garbage(scripted):
    """Whatever comes of the connection, the daemon lives and nothing is left behind."""
    for data in (bytes(range(255, 0, -1)) * 20, bytes(range(256)) * 20, b"\xff" * 5000, b"\0" * 5000,
                 b"GET / HTTP/1.1\r\n\r\n" * 100, frame(TEXT, CREATE)[:-1]):
        w = WebSocket(scripted)
        w.send(data)
        w.finish()
        w.reader.exactly(1 << 30)
        w.close()
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


@pytest.mark.home("asan")
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
    data = bytearray()
    while len(data) < 5000 * len(FLOOD):
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
    """As many as may be are served; those after them are told why they are not."""
    d = start(models.script(), {"server": {"max_connections": 8}})
    held = [d.connect() for _ in range(30)]
    replies = []
    for s in held:
        s.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        replies.append(read_reply(s))
    assert [r.status for r in replies] == [200] * 8 + [503] * 22
    assert all(r.error["code"] == "too_many_connections" and int(r.headers["Retry-After"]) > 0
               for r in replies[8:])
    for s in held:
        s.close()

    def served():
        try:
            return d.chat().status == 200
        except OSError:
            return False
    until(served, "it serves again when the others have gone")


def test_idle_connections_are_cheap(scripted):
    still_serves(scripted)
    before = rss_bytes(scripted)
    held = [scripted.connect() for _ in range(100)]
    until(lambda: scripted.metrics().sum("ingot_connections") > 100, "all are open")
    still_serves(scripted)
    assert scripted.metrics().sum("ingot_connections") > 100, "some were closed"
    # A sanitizer keeps what was freed for a while.
    grown = rss_bytes(scripted) - before
    assert SANITIZER or grown < 100 * (8 << 10), "100 connections took %d KiB" % (grown >> 10)
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
