"""Connections by the thousand: those that are too many are told so, those that were there go
on, and what each costs is bounded."""
import contextlib
import json
import os
import pathlib
import resource
import socket

import pytest

from daemon import PATIENCE, SANITIZER, rss_bytes, until
from rawsocket import PING, TEXT, WebSocket, frame
from tiny_model import SCRIPT

MANY = 2000 if PATIENCE == 1 else 600


@pytest.fixture(autouse=True)
def descriptors():
    """Space for the client side of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    want = MANY + 200
    if soft != resource.RLIM_INFINITY and soft < want:
        resource.setrlimit(resource.RLIMIT_NOFILE, (want, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def n_descriptors(d):
    """Of the daemon; 0 where the system does not say."""
    folder = pathlib.Path("/proc/%d/fd" % d.process.pid)
    return len(os.listdir(folder)) if folder.exists() else 0


@contextlib.contextmanager
def crowd(d, n):
    held = []
    try:
        for _ in range(n):
            s = socket.socket()
            s.settimeout(30 * PATIENCE)
            s.connect((d.host, d.port))
            held.append(s)
        yield held
    finally:
        for s in held:
            s.close()


def refused_as_too_many(d):
    """What a new client gets: (status, code), or None if it is only disconnected."""
    try:
        r = d.http("GET", "/healthz")
    except OSError:
        return None
    return r.status, r.status == 503 and r.error["code"]


def few_connections(d):
    """Whether there are hardly any, as far as it can be asked."""
    try:
        return d.metrics().sum("ingot_connections") <= 3
    except (AssertionError, OSError):
        return False  # those that have gone are still being put away


def models_of(models):
    return {"models": [{"name": "tiny", "path": models.script()},
                       {"name": "random", "path": models.random()}]}


@pytest.mark.tsan
def test_more_idle_connections_than_may_be(start, models, watched):
    """The first that is too many is told so in HTTP; however many follow, the daemon's
    descriptors are bounded, a stream goes on, and when they have gone all is as before."""
    limit = 100
    d = start(extra=dict(models_of(models), server={"max_connections": limit}))
    watched(d)
    r = d.http("GET", "/healthz")
    assert r.status == 200
    with crowd(d, limit):
        until(lambda: refused_as_too_many(d) == (503, "too_many_connections"),
              "one too many is told so")
        with crowd(d, MANY - limit):
            assert n_descriptors(d) < limit + 200
            # Some of them were disconnected at once.  No other client is served or kept waiting.
            said = refused_as_too_many(d)
            assert said in (None, (503, "too_many_connections")), said
            assert n_descriptors(d) < limit + 200
    until(lambda: refused_as_too_many(d) == (200, False), "it serves again")
    assert d.chat_text() == SCRIPT


@pytest.mark.tsan
def test_thousands_of_idle_websockets(start, models, watched):
    """All that may be are served, each answers a ping, and a stream goes on beside them."""
    d = start(extra=dict(models_of(models), server={"max_connections": MANY + 50}))
    watched(d)
    before = rss_bytes(d)
    held = [WebSocket(d) for _ in range(MANY)]
    cost = (rss_bytes(d) - before) / MANY
    # 16 KiB are a buffer to read into; a sanitizer keeps what was freed for a while.
    assert SANITIZER or cost < 48 << 10, "%d KiB a connection" % (cost / 1024)
    for w in held[::7]:
        w.send(frame(PING, b"there?"))
    for w in held[::7]:
        assert w.read() == ("pong", b"there?")
    assert d.chat_text() == SCRIPT
    # Each is still a client: the last one asks.
    held[-1].send(frame(TEXT, json.dumps({"type": "response.create", "model": "tiny", "input": "hi",
                                          "temperature": 0}).encode()))
    kinds = []
    while "response.completed" not in kinds:
        kinds.append(json.loads(held[-1].read()[1])["type"])
    for w in held:
        w.reset()
    until(lambda: few_connections(d), "they are gone")


@pytest.mark.tsan
def test_a_storm_that_connects_and_leaves(start, models, watched):
    """Connections that say nothing, half a word, or a whole request, and are gone at once."""
    d = start(extra=models_of(models))
    watched(d)
    body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}).encode()
    whole = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
             % len(body)) + body
    for i in range(MANY):
        s = socket.create_connection((d.host, d.port))
        with contextlib.suppress(OSError):
            s.sendall((b"", b"GET /heal", whole[:90], whole)[i % 4])
        if i % 3:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        s.close()
    until(lambda: few_connections(d), "they are gone")
    assert d.chat_text() == SCRIPT
