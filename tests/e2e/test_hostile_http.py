"""HTTP that two readers could read in two ways, chunked bodies, and odd request lines.  A
client streams on beside every test, and no body is ever taken for a second request."""
import contextlib
import json
import re
import socket

import pytest

from daemon import PATIENCE, read_reply, until
from rawsocket import Reader
from tiny_model import SCRIPT

pytestmark = pytest.mark.usefixtures("undisturbed")

CHAT = "/v1/chat/completions"
BODY = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "hi"}],
                   "temperature": 0}).encode()
# A request whose reply would name it.
SMUGGLED = b"GET /v1/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"


def request(headers, body=b"", method="POST", path=CHAT, end=b"\r\n"):
    lines = [("%s %s HTTP/1.1" % (method, path)).encode(), b"Host: localhost"]
    lines += [h if isinstance(h, bytes) else h.encode() for h in headers]
    return end.join(lines) + end + end + body


def everything(d, data):
    """Send and read to the end, or until nothing comes any more: (bytes, statuses)."""
    s = d.connect()
    with contextlib.suppress(OSError):
        s.sendall(data)
    r = Reader(s)
    s.settimeout(0.5 * PATIENCE)
    with contextlib.suppress(TimeoutError):
        while r.more():
            pass
    s.close()
    return r.data, [int(m) for m in re.findall(rb"HTTP/1\.[01] (\d\d\d) ", r.data)]


def chunked(*parts, last=b"0\r\n\r\n"):
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + last


N = len(BODY)
TE = b"Transfer-Encoding: chunked"
INNER = chunked(BODY) + SMUGGLED

# name: the request's headers, its body, the statuses that its first reply may have.  What
# comes after the first reply, if anything, is a refusal.
SMUGGLING = {
    "length and encoding": ([TE, "Content-Length: 6"], b"0\r\n\r\nG" + SMUGGLED, {400}),
    "encoding and length": (["Content-Length: %d" % len(INNER), TE], INNER, {400}),
    "two lengths": (["Content-Length: 0", "Content-Length: %d" % N], BODY + SMUGGLED, {400}),
    "the same length twice": (["Content-Length: %d" % N] * 2, BODY + SMUGGLED, {400}),
    "lengths in a list": (["Content-Length: %d, %d" % (N, N)], BODY + SMUGGLED, {400}),
    "length with a sign": (["Content-Length: +%d" % N], BODY + SMUGGLED, {400}),
    "length below zero": (["Content-Length: -%d" % N], BODY + SMUGGLED, {400}),
    "hexadecimal length": (["Content-Length: 0x%x" % N], BODY + SMUGGLED, {400}),
    "length with a blank inside": (["Content-Length: 1 0"], BODY + SMUGGLED, {400}),
    "length with a point": (["Content-Length: %d.0" % N], BODY + SMUGGLED, {400}),
    "length in words": (["Content-Length: all"], BODY + SMUGGLED, {400}),
    "length with NUL": ([b"Content-Length: 1\x000"], BODY + SMUGGLED, {400}),
    "length of 2^64 and some": (["Content-Length: %d" % (2**64 + N)], BODY + SMUGGLED, {400}),
    "empty length": (["Content-Length:"], BODY + SMUGGLED, {400, 411}),
    "blank before a length's colon": (["Content-Length : %d" % N], BODY + SMUGGLED, {400}),
    "blank before an encoding's colon": (["Transfer-Encoding : chunked", "Content-Length: 6"],
                                         b"0\r\n\r\nG" + SMUGGLED, {400}),
    "tab before an encoding's colon": (["Transfer-Encoding\t: chunked", "Content-Length: 6"],
                                       b"0\r\n\r\nG" + SMUGGLED, {400}),
    "encoding behind a blank": (["Content-Length: 6", " Transfer-Encoding: chunked"],
                                b"0\r\n\r\nG" + SMUGGLED, {400}),
    "encoding behind a tab": (["Zyx-Folded: a", "\tTransfer-Encoding: chunked",
                               "Content-Length: 6"],
                              b"0\r\n\r\nG" + SMUGGLED, {400}),
    "folded length": (["Content-Length: %d" % N, " 0"], BODY + SMUGGLED, {200, 400, 408, 411}),
    "encoding that is not chunked": (["Transfer-Encoding: xchunked"], INNER, {501}),
    "encoding and more": (["Transfer-Encoding: chunked, identity"], INNER, {501}),
    "encoding twice": ([TE, TE], INNER, {501}),
    "encoding twice, one unknown": ([TE, "Transfer-Encoding: cow"], INNER, {501}),
    "identity": (["Transfer-Encoding: identity", "Content-Length: %d" % N], BODY + SMUGGLED, {400}),
    "gzip": (["Transfer-Encoding: gzip, chunked"], INNER, {501}),
    "encoding in quotes": (['Transfer-Encoding: "chunked"'], INNER, {501}),
    "encoding with a vertical tab": ([b"Transfer-Encoding: \x0bchunked"], INNER, {501}),
    "bare LF with both": None,  # made below
    "bytes after a length": (["Content-Length: %d" % N], BODY + SMUGGLED, {400}),
    "bytes after the last chunk": ([TE], INNER, {200}),
    "a GET with a body": None,
    "a GET with a chunked body": None,
    "a HEAD with a body": None,
    "a DELETE with a body": None,
    "a PUT without a length": None,
}
SPECIAL = {
    "bare LF with both": (request([TE, "Content-Length: 6"], b"0\r\n\r\nG" + SMUGGLED, end=b"\n"),
                          {400}),
    "a GET with a body": (request(["Content-Length: %d" % len(SMUGGLED)], SMUGGLED, "GET",
                                  "/healthz"), {400}),
    "a GET with a chunked body": (request([TE], chunked(SMUGGLED), "GET", "/healthz"), {400}),
    "a HEAD with a body": (request(["Content-Length: %d" % len(SMUGGLED)], SMUGGLED, "HEAD",
                                   "/healthz"), {400}),
    "a DELETE with a body": (request(["Content-Length: %d" % len(SMUGGLED)], SMUGGLED, "DELETE",
                                     "/healthz"), {400}),
    "a PUT without a length": (request([], SMUGGLED, "PUT", "/healthz"), {405}),
}


@pytest.mark.parametrize("name", SMUGGLING)
def test_smuggling(scripted, name):
    if name in SPECIAL:
        data, allowed = SPECIAL[name]
    else:
        headers, body, allowed = SMUGGLING[name]
        data = request(headers, body)
    got, statuses = everything(scripted, data)
    assert b"smuggled" not in got, got
    assert statuses and statuses[0] in allowed, (statuses, got)
    assert all(s >= 400 for s in statuses[1:]), (statuses, got)
    assert len(re.findall(rb'"object": ?"chat.completion"', got)) <= 1


# A header that libwebsockets 4.1 confuses with the beginning of one that it knows: it takes the
# next line for part of the name.  What is hidden from it so never makes two requests of one.
@pytest.mark.parametrize("hiding", ["X: y", "Hos: y", "no colon at all", "Conten: y"])
def test_hidden_headers(scripted, hiding):
    for hidden, body in ((TE, chunked(BODY) + SMUGGLED),
                         (b"Content-Length: %d" % N, BODY + SMUGGLED)):
        got, statuses = everything(scripted, request([hiding, hidden], body))
        assert b"smuggled" not in got, got
        got, statuses = everything(scripted, request([hiding, hidden], body, "GET", "/healthz"))
        assert b"smuggled" not in got or not statuses or statuses[0] != 200, got


def test_pipelined_requests_are_answered_in_order_or_refused(scripted):
    get = request([], b"", "GET", "/healthz")
    got, statuses = everything(scripted, get * 3)
    assert statuses == [200] * 3 and got.count(b'{"status":"ok"}') == 3, got
    post = request(["Content-Length: %d" % N], BODY)
    got, statuses = everything(scripted, post * 2)
    assert statuses == [400] and b"pipelining_not_supported" in got, got
    # One after the other on one connection is what clients do.
    s = scripted.connect()
    for _ in range(3):
        s.sendall(post)
        r = read_reply(s)
        assert r.status == 200 and r.json["choices"][0]["message"]["content"] == SCRIPT
    s.close()


# ---- chunked bodies --------------------------------------------------------------------

def text_of(reply):
    assert reply is not None and reply.status == 200, reply
    return reply.json["choices"][0]["message"]["content"]


@pytest.mark.parametrize("body", [
    chunked(BODY), chunked(*[BODY[i:i + 1] for i in range(N)]), chunked(BODY[:20], BODY[20:]),
    b"%X;name=value\r\n%s\r\n" % (N, BODY) + b"0;last\r\nTrailer: x\r\nAnother: y\r\n\r\n",
    b"0000%x\r\n%s\r\n0000\r\n\r\n" % (N, BODY),
], ids=["one chunk", "a chunk a byte", "two chunks", "extensions and trailers", "zeros in front"])
def test_chunked_bodies(scripted, body):
    assert text_of(scripted.raw(request([TE], body))) == SCRIPT
    s = scripted.connect()
    for i in range(0, len(body), 7):
        s.sendall((request([TE]) if i == 0 else b"") + body[i:i + 7])
    assert text_of(read_reply(s)) == SCRIPT
    s.close()


@pytest.mark.tsan
def test_a_chunked_body_that_asks_for_a_stream(scripted):
    """As `curl -T -` sends it: the head first, the body when it is told to go on."""
    body = json.dumps(dict(json.loads(BODY), stream=True)).encode()
    s = scripted.connect()
    s.sendall(request([TE, "Expect: 100-continue"]))
    r = Reader(s)
    assert r.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    s.sendall(chunked(body))
    assert r.until(b"\r\n\r\n").startswith(b"HTTP/1.1 200 OK\r\n")
    while r.more():
        pass
    s.close()
    frames = [f[6:] for f in r.data.decode().split("\n\n") if f.startswith("data: ")]
    assert frames[-1] == "[DONE]"
    deltas = [json.loads(f)["choices"][0]["delta"].get("content") or "" for f in frames[:-1]]
    assert "".join(deltas) == SCRIPT


@pytest.mark.parametrize("body, status, code", [
    (b"0\r\n\r\n", 400, "invalid_json"),
    (b"x\r\n", 400, "invalid_chunk"), (b"5\nhello\n0\n\n", 400, "invalid_chunk"),
    (b"-1\r\n", 400, "invalid_chunk"), (b"0x5\r\nhello\r\n0\r\n\r\n", 400, "invalid_chunk"),
    (b" 5\r\nhello\r\n0\r\n\r\n", 400, "invalid_chunk"), (b"5 \r\nhello\r\n", 400, "invalid_chunk"),
    (b"5\r\nhellox\r\n0\r\n\r\n", 400, "invalid_chunk"), 
    (b"ffffffffffffffff\r\nx", 400, "invalid_chunk"), (b"\r\n", 400, "invalid_chunk"),
    (b"1;" + b"a" * 20000, 400, "invalid_chunk"),
    (b"0\r\n" + b"a: b\r\n" * 5000, 400, "invalid_chunk"),
    (b"0\r\n folded: trailer\r\n\r\n", 400, "invalid_chunk"),
    (b"2000001\r\n" + b" " * (32 << 20) + b" \r\n", 413, "body_too_large"),
    (chunked(*[b" " * (1 << 20)] * 33), 413, "body_too_large"),
], ids=lambda v: None if not isinstance(v, bytes) else repr(v[:20]))
def test_chunked_bodies_that_are_refused(scripted, body, status, code):
    got, statuses = everything(scripted, request([TE], body))
    assert statuses == [status] and code.encode() in got, (statuses, got[-400:])


def test_a_chunked_body_that_breaks_off(scripted):
    before = scripted.metrics().sum("ingot_connections")
    for body in (b"", b"5", b"5\r\nhel", chunked(BODY, last=b"0\r\n")):
        s = scripted.connect()
        s.sendall(request([TE], body))
        s.shutdown(socket.SHUT_WR)
        assert Reader(s).exactly(1) is None
        s.close()
    until(lambda: scripted.metrics().sum("ingot_connections") <= before, "the connections are gone")


# ---- request lines and heads ---------------------------------------------------------------

TARGETS = ["http://localhost/healthz", "http://evil.example/healthz", "*", "healthz", "//healthz",
           "/./healthz", "/../../healthz", "/%2e%2e/healthz", "/healthz%00", "/healthz%0d%0aX:%20y",
           "/healthz#fragment", "/healthz?" + "a=b&" * 2000, "/" + "a/" * 5000, "/%", "/%f",
           "/%ff%fe",
           "/\xff\xfe", "/\u00e9".encode().decode("latin-1"), "/healthz/../../etc/passwd",
           "\\healthz", "/" + "a" * 70000]


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: repr(t[:24]))
def test_odd_targets(scripted, target):
    for method in ("GET", "POST", "OPTIONS"):
        data = ("%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close"
                "\r\n\r\n" % (method, target)).encode("latin-1")
        got, statuses = everything(scripted, data)
        assert all(s == 200 or 400 <= s < 500 for s in statuses), (method, got)
        assert b"root:" not in got


@pytest.mark.parametrize("line, statuses", [
    (b"GET /healthz HTTP/1.0", {200}), (b"GET /healthz HTTP/1.2", {505}),
    (b"GET /healthz HTTP/2.0", {505}),
    (b"GET /healthz HTTP/11", {505}), (b"GET /healthz HTTP", {400}), (b"GET /healthz", {400}),
    (b"GET /healthz HTTP/1.1 x", {505}), (b"GET /healthz FTP/1.1", {400}), (b"GET", {403, None}),
    (b"", {None}), (b"BREW /healthz HTTP/1.1", {403}),
    (b"GET /healthz HTTP/1.1\rX: y", {200, 400, None}),
    (b"GE\0T /healthz HTTP/1.1", {403, None}), (b"GET /heal\0thz HTTP/1.1", {400, 403, 404, None}),
    (b"\0" * 200, {403, None}), (b"CONNECT localhost:22 HTTP/1.1", {None}),
    (b"TRACE / HTTP/1.1", {403}),
], ids=repr)
def test_odd_request_lines(scripted, line, statuses):
    got, found = everything(scripted, line + b"\r\nHost: localhost\r\n\r\n")
    assert (found[0] if found else None) in statuses, got


def test_odd_heads(scripted):
    """Header names and values that no client sends, each with a plain request around it."""
    for header in [b": empty name", b"\0: y", b"X-\0A: y", b"X-Long: " + b"a" * 60000,
                   b"X-" + b"a" * 60000 + b": y", b"\xff\xfe: \xff",
                   b"Authorization: Bearer \xff\0\xff",
                   b"Content-Type: \0", b"Host: localhost\0.evil.example", b"Host: \xff"] + [
                   b"\r\n".join(b"X-%d: y" % i for i in range(n)) for n in (10, 100, 1000, 3000)]:
        got, statuses = everything(scripted, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
                                   b"Connection: close\r\n" + header + b"\r\n\r\n")
        assert not statuses or statuses[0] == 200 or 400 <= statuses[0] < 500, (header[:50], got)
    for host in (b"evil.example", b"localhost, evil.example", b"localhost@evil.example", b"", b"[::1",
                 b"localhost:x", b"localhost:99999999", b"127.0.0.1.evil.example"):
        got, statuses = everything(scripted, b"GET /healthz HTTP/1.1\r\nHost: " + host +
                                   b"\r\n\r\n")
        assert statuses and statuses[0] in (400, 403), (host, got)
