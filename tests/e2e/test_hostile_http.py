"""HTTP that two readers could read in two ways, chunked bodies, and odd request lines.  A
client streams on beside every test, and no body is ever taken for a second request."""
import contextlib
import json
import re
import socket

import pytest

from daemon import PATIENCE, read_reply, rss_bytes, until
from rawsocket import Reader
from tiny_model import SCRIPT

pytestmark = [pytest.mark.home("asan"), pytest.mark.usefixtures("undisturbed")]

CHAT = "/v1/chat/completions"
BODY = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "hi"}],
                   "temperature": 0}).encode()
# A request whose reply would name it, and would be the last.
SMUGGLED = b"GET /v1/smuggled HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


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

# name: the request's headers, its body, the statuses that its first reply may have.  After a refusal
# nothing more is answered; where no two readers disagree about its end, the next request is.
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
    "empty length": (["Content-Length:"], BODY + SMUGGLED, {400}),
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
    "folded length": (["Content-Length: %d" % N, " 0"], BODY + SMUGGLED, {400}),
    "encoding that is not chunked": (["Transfer-Encoding: xchunked"], INNER, {501}),
    "encoding and more": (["Transfer-Encoding: chunked, identity"], INNER, {501}),
    "encoding twice": ([TE, TE], INNER, {501}),
    "encoding twice, one unknown": ([TE, "Transfer-Encoding: cow"], INNER, {501}),
    "identity": (["Transfer-Encoding: identity", "Content-Length: %d" % N], BODY + SMUGGLED, {400}),
    "gzip": (["Transfer-Encoding: gzip, chunked"], INNER, {501}),
    "encoding in quotes": (['Transfer-Encoding: "chunked"'], INNER, {501}),
    "encoding with a vertical tab": ([b"Transfer-Encoding: \x0bchunked"], INNER, {400}),
    "bare LF with both": None,  # made below
    "bytes after a length": (["Content-Length: %d" % N], BODY + SMUGGLED, {200}),
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
    assert statuses and statuses[0] in allowed, (statuses, got)
    assert statuses[1:] == ([404] if statuses[0] == 200 else []), (statuses, got)
    assert (b"smuggled" in got) == (statuses[0] == 200), got
    assert len(re.findall(rb'"object": ?"chat.completion"', got)) <= 1


@pytest.mark.parametrize("line", ["X: y", "Hos: y", "Conten: y", "X:y", "X:", "X: a:b"])
def test_fields_before_those_of_a_body(scripted, line):
    """Whatever field comes before the length or the encoding, it counts."""
    for field, body in ((TE, chunked(BODY) + SMUGGLED),
                        (b"Content-Length: %d" % N, BODY + SMUGGLED)):
        got, statuses = everything(scripted, request([line, field], body))
        assert statuses == [200, 404] and b"smuggled" in got, got
        got, statuses = everything(scripted, request([line, field], body, "GET", "/healthz"))
        assert statuses == [400] and b"smuggled" not in got, got


@pytest.mark.parametrize("line", [b"no colon at all", b": no name", b"a b: c", b"X : y", b" X: y",
                                  b"X: a\0b", b"X: a\x7fb", b"X: a\rb", b"X: a\nY: b",
                                  b"\xc3\xa9: y", b"(X): y"])
def test_fields_that_two_may_read_in_two_ways(scripted, line):
    for rest in ([line, "Content-Length: %d" % N], ["Content-Length: %d" % N, line]):
        got, statuses = everything(scripted, request(rest, BODY + SMUGGLED))
        assert statuses == [400] and b"invalid_header" in got and b"smuggled" not in got, got


def test_pipelined_requests_are_answered_in_order(scripted):
    get = request([], b"", "GET", "/healthz")
    got, statuses = everything(scripted, get * 3)
    assert statuses == [200] * 3 and got.count(b'{"status":"ok"}') == 3, got

    def post(n, *headers, body=None):
        data = body or json.dumps(dict(json.loads(BODY), max_tokens=n)).encode()
        return request([*headers, "Content-Length: %d" % len(data), "X-Request-Id: r%d" % n], data)
    chunks = request([TE, "X-Request-Id: r9"], chunked(BODY[:7], BODY[7:]))
    sent = (post(3) + get + post(1) + b"\r\n" + chunks + post(2) +
            request(["Connection: close", "X-Request-Id: last"], b"", "GET", "/v1/models"))
    got, statuses = everything(scripted, sent + get)
    assert statuses == [200] * 6, got
    ids = re.findall(rb"x-request-id: (\S+)", got)
    assert [i for i in ids if not i.startswith(b"req_")] == [b"r3", b"r1", b"r9", b"r2", b"last"]
    said = [json.loads(t) for t in re.findall(rb'"content":("(?:[^"\\]|\\.)*")', got)]
    assert said == ["Alpha bravo charlie", "Alpha", SCRIPT, "Alpha bravo"]
    # In pieces that end anywhere: the same.
    s = scripted.connect()
    for i in range(0, len(sent), 50):
        s.sendall(sent[i:i + 50])
    r = Reader(s)
    while r.more():
        pass
    assert re.findall(rb"HTTP/1\.1 (\d+)", r.data) == [b"200"] * 6
    # One that is refused ends the connection; what was asked before it is answered.
    got, statuses = everything(scripted, post(1) + post(2, TE) + post(3))
    assert statuses == [200, 400], got
    # A stream ends with the connection, too.
    stream = json.dumps(dict(json.loads(BODY), stream=True)).encode()
    got, statuses = everything(scripted, post(1, body=stream) + post(3))
    assert statuses == [200] and got.endswith(b"data: [DONE]\n\n"), got
    # One after the other on one connection is what clients do.
    s = scripted.connect()
    for _ in range(3):
        s.sendall(request(["Content-Length: %d" % N], BODY))
        r = read_reply(s)
        assert r.status == 200 and r.json["choices"][0]["message"]["content"] == SCRIPT
    s.close()


def test_pipelined_requests_wait_in_little_memory(scripted):
    """While one is answered, what is sent after it is read up to a bound, then not at all."""
    endless = json.dumps({"model": "slow", "messages": [{"role": "user", "content": "hi"}],
                          "temperature": 0, "max_tokens": 1500}).encode()
    s = scripted.connect()
    s.sendall(request(["Content-Length: %d" % len(endless)], endless))
    until(lambda: scripted.running() >= 1, "it runs")
    before, sent = rss_bytes(scripted), 0
    s.settimeout(1)
    flood = request([], b"", "GET", "/healthz") * 1000
    with contextlib.suppress(TimeoutError):
        while sent < 64 << 20:
            sent += s.send(flood)
    assert sent < 32 << 20 and rss_bytes(scripted) - before < 32 << 20
    s.close()


def test_a_client_that_leaves_with_requests_waiting(scripted):
    body = json.dumps({"model": "slow", "messages": [{"role": "user", "content": "hi"}],
                       "temperature": 0}).encode()
    s = scripted.connect()
    s.sendall(request(["Content-Length: %d" % len(body)], body) * 2)
    until(lambda: scripted.running() >= 1, "it runs")
    s.close()
    until(lambda: scripted.running() <= 1, "it is cancelled")  # but for the witness


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


@pytest.mark.parametrize("line, status", [
    (b"GET /healthz HTTP/1.0", 200), (b"GET /healthz HTTP/1.2", 505), (b"GET /healthz HTTP/2.0", 505),
    (b"GET /healthz HTTP/11", 505), (b"GET /healthz HTTP", 400), (b"GET /healthz", 400),
    (b"GET /healthz HTTP/1.1 x", 505), (b"GET /healthz FTP/1.1", 400), (b"GET", 400), (b"", 400),
    (b"GET  /healthz HTTP/1.1", 400), (b" GET /healthz HTTP/1.1", 400),
    (b"GET\t/healthz HTTP/1.1", 400), (b"GET /heal\nthz HTTP/1.1", 400),
    (b"BREW /healthz HTTP/1.1", 501), (b"GET /healthz HTTP/1.1\rX: y", 400),
    (b"GE\0T /healthz HTTP/1.1", 400), (b"GET /heal\0thz HTTP/1.1", 400), (b"\0" * 200, 400),
    (b"CONNECT localhost:22 HTTP/1.1", 501), (b"TRACE / HTTP/1.1", 501),
    (b"GET http://localhost/healthz HTTP/1.1", 400), (b"OPTIONS * HTTP/1.1", 400),
    (b"GET healthz HTTP/1.1", 400), (b"GET /%zz HTTP/1.1", 400), (b"GET /%00 HTTP/1.1", 400),
    (b"GET /%ff HTTP/1.1", 400), (b"GET /?%z HTTP/1.1", 400), (b"GET /%68ealthz HTTP/1.1", 200),
    (b"GET /" + b"a" * 8300 + b" HTTP/1.1", 414), (b"GET /healthz?" + b"a" * 1100 + b" HTTP/1.1", 414),
], ids=lambda v: repr(v[:40]) if isinstance(v, bytes) else None)
def test_odd_request_lines(scripted, line, status):
    got, found = everything(scripted, line + b"\r\nHost: localhost\r\n\r\n")
    assert found == [status], got
    if status >= 400:
        assert set(json.loads(got.split(b"\r\n\r\n")[1])["error"]) == {"message", "type", "param",
                                                                       "code"}


@pytest.mark.parametrize("n", [20000, 300000])
def test_long_heads_get_the_apis_errors(scripted, n):
    """In the format of the path's protocol where the path has come, and with the client's id."""
    long = b"X-Long: " + b"a" * n
    for path, kind in ((CHAT, "openai"), ("/v1/messages", "anthropic"), ("/nowhere", "openai")):
        got, found = everything(scripted, request(["X-Request-Id: mine", long, "Content-Length: 2"],
                                                  b"{}", path=path))
        head, _, text = got.partition(b"\r\n\r\n")
        assert found == [431] and b"x-request-id: mine" in head, got
        e = json.loads(text)
        if kind == "anthropic":
            assert e["type"] == "error" and e["error"]["type"] == "invalid_request_error", e
        else:
            assert e["error"]["code"] == "header_too_large", e
        assert "server.max_header" in e["error"]["message"]
    got, found = everything(scripted, b"GET /" + b"a" * n + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert found == [414] and b"text/html" not in got
    assert json.loads(got.partition(b"\r\n\r\n")[2])["error"]["code"] == "uri_too_long"


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
