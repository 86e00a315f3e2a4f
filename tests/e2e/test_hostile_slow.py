"""Clients that are slow on purpose: in sending a head, a body or a handshake, in reading, and
those that keep the daemon busy with nothing."""
import contextlib
import json
import time

import pytest

from daemon import PATIENCE, rss_bytes, until
from rawsocket import CONTINUATION, PING, TEXT, Reader, WebSocket, frame, handshake
from test_hostile import flooding  # noqa: F401 - a fixture
from test_ledger import rows
from tiny_model import SCRIPT

pytestmark = pytest.mark.home("asan")

CHAT = "/v1/chat/completions"


def until_closed(sockets, deadline_s, each_second):
    """Wait until the daemon has closed all of these; what is still open at the deadline."""
    opened, end = set(sockets), time.monotonic() + deadline_s
    last = {s: b"" for s in opened}
    while opened and time.monotonic() < end:
        for s in list(opened):
            try:
                each_second(s)
                piece = s.recv(65536)
                last[s] += piece
                if not piece:
                    opened.discard(s)
            except BlockingIOError:
                pass
            except OSError:
                opened.discard(s)
        time.sleep(1)
    return opened, last


@pytest.mark.tsan
def test_whoever_sends_slowly_is_cut_off(flooding, watched):  # noqa: F811
    """Three hundred connections that drip, each in its own way; all are gone in less than a
    minute.  Meanwhile a chunked request's stream stays, whose body came in good time and whose
    client reads nothing yet, and others are served."""
    d = flooding(600000)
    watched(d, model="tiny", n_tokens=10)
    n = 50 if PATIENCE == 1 else 10
    post = ("POST %s HTTP/1.1\r\nHost: localhost\r\n" % CHAT).encode()
    ways = {
        "nothing at all": (b"", b""),
        "a head": (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", b"a"),
        "lines of a head": (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", b"X: y\r\n"),
        "a handshake": (handshake()[:-2], b"X: y\r\n"),
        "a body": (post + b"Content-Length: 100000\r\n\r\n{", b" "),
        "a chunked body": (post + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        "a chunk's extension": (post + b"Transfer-Encoding: chunked\r\n\r\n1;", b"a"),
        "a refused body": (post + b"Content-Length: 99999999999\r\n\r\n", b" "),
    }
    body = json.dumps({"model": "flood", "messages": [{"role": "user", "content": "hi"}],
                       "stream": True,
                       "temperature": 0}).encode()
    prompt = d.connect(receive_buffer=4096)
    prompt.sendall(post + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body),
                                                                                        body))
    stream = Reader(prompt)
    until(lambda: d.metrics().sum("ingot_num_requests_paused") == 1, "it is paused")
    drips = {}
    for first, drip in ways.values():
        for _ in range(n):
            s = d.connect()
            s.sendall(first)
            s.setblocking(False)
            drips[s] = drip
    began = time.monotonic()

    def each_second(s):
        if drips[s]:
            s.send(drips[s])
    left, last = until_closed(list(drips), 55 + 10 * PATIENCE, each_second)
    assert not left, "%d connections are still open" % len(left)
    assert sum(b"HTTP/1.1 408 " in data for data in last.values()) >= n, "nobody was told why"
    assert all(b"HTTP/1.1 200 " not in data for data in last.values())
    while time.monotonic() < began + 23:  # the body's timer, had it not been put off
        time.sleep(0.2)
    stream.data = b""
    for _ in range(20):  # what was on the way, and more
        assert stream.more(), "the prompt client's stream ended too"
    prompt.close()


@pytest.mark.tsan
def test_slow_readers(flooding, watched):  # noqa: F811
    """Five over HTTP, five over WebSockets, all asking for megabytes and reading nothing: they
    cost little memory, end as slow clients, and nobody waits for them."""
    d = flooding(2000 * PATIENCE)
    watched(d, model="tiny", n_tokens=10)
    base = rss_bytes(d)
    held = []
    for i in range(5):
        s = d.connect(receive_buffer=4096)
        data = json.dumps({"model": "flood", "messages": [{"role": "user", "content": "hi"}],
                           "temperature": 0, "stream": True}).encode()
        s.sendall(("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
                   % (CHAT, len(data))).encode() + data)
        w = WebSocket(d, receive_buffer=4096)
        w.send(frame(TEXT, json.dumps({"type": "response.create", "model": "flood", "input": "hi",
                                       "temperature": 0}).encode()))
        held += [s, w]
    most = 0

    def given_up():
        nonlocal most
        most = max(most, rss_bytes(d))
        return [r for r in rows(d) if r["model"] == "flood"]
    got = until(lambda: (lambda r: r if len(r) == 10 else None)(given_up()), "their rows are there")
    assert {(r["finish"], r["cancel_reason"]) for r in got} == {("cancelled", "slow_client")}
    grown = most - base
    assert grown < (96 << 20) * (1 if PATIENCE == 1 else 4), "%d MiB more" % (grown >> 20)
    for h in held:
        h.close()


def floods(d, frames, seconds):
    """Send these bytes again and again without reading; how many went out."""
    w = WebSocket(d, receive_buffer=4096)
    data = b"".join(frames)
    w.s.settimeout(0.5)
    sent, end = 0, time.monotonic() + seconds
    with contextlib.suppress(TimeoutError, OSError):
        while time.monotonic() < end:
            w.s.sendall(data)
            sent += len(data)
    return w, sent


@pytest.mark.tsan
@pytest.mark.usefixtures("undisturbed")
@pytest.mark.parametrize("name, frames", [
    ("pings", [frame(PING, b"p" * 125)] * 100),
    ("empty pings", [frame(PING)] * 500),
    ("pongs", [frame(10, b"p" * 125)] * 100),
    ("empty messages", [frame(TEXT)] * 500),
    ("events that are wrong", [frame(TEXT, b'{"type":"nonsense"}')] * 100),
    ("events to be repeated",
     [frame(TEXT, b'{"type":"response.steer","input":"' + b"a" * 4000 + b'"}')] * 20),
    ("cancels of nothing", [frame(TEXT, b'{"type":"response.cancel"}')] * 100),
], ids=lambda v: v if isinstance(v, str) else "")
def test_floods(scripted, name, frames):
    """As fast as the socket takes them, and nothing is read: what the daemon keeps for the
    client is bounded, and the connection can still be closed."""
    before = rss_bytes(scripted)
    w, sent = floods(scripted, frames, 1.5)
    assert sent > 10000
    grown = rss_bytes(scripted) - before
    assert grown < (32 << 20) * PATIENCE, "%d MiB more after %d bytes" % (grown >> 20, sent)
    w.reset()
    assert scripted.chat_text() == SCRIPT


@pytest.mark.usefixtures("undisturbed")
def test_fragments_without_end(scripted):
    """Empty ones end after a thousand, the others at the largest message; neither costs memory."""
    before = rss_bytes(scripted)
    w = WebSocket(scripted)
    w.send(frame(TEXT, b"", fin=False), *[frame(CONTINUATION, b"", fin=False)] * 200000)
    assert rss_bytes(scripted) - before < (16 << 20) * PATIENCE
    assert w.read()[:2] == ("close", 1009)
    w.reset()
    w = WebSocket(scripted)
    w.send(frame(TEXT, b" ", fin=False), *[frame(CONTINUATION, b" " * 65536, fin=False)] * 600)
    got = w.read()
    assert got[:2] == ("close", 1009), got
    w.reset()


@pytest.mark.usefixtures("undisturbed")
def test_messages_that_are_never_finished(scripted):
    """Sixty-four half messages of half a MiB, held and then dropped: their memory is given back."""
    before = scripted.metrics().sum("ingot_connections")
    held = []
    for _ in range(64):
        w = WebSocket(scripted)
        w.send(frame(TEXT, b" " * (1 << 19), fin=False))
        held.append(w)
    assert scripted.chat_text() == SCRIPT
    for w in held:
        w.reset()
    until(lambda: scripted.metrics().sum("ingot_connections") <= before, "they are gone")
