"""What idle connections and stored responses take of the daemon's memory; docs/performance.md has the bounds."""
import base64
import json
import resource

import pytest

from daemon import rss_bytes, until

pytestmark = pytest.mark.release  # sanitizers take memory of their own
N = 1000
WARM = 200  # those before: what the first ones take is not theirs alone
UPGRADE = (b"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
           b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n" % base64.b64encode(b"0123456789abcdef"))
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def each(d, n, what):
    """Bytes that each of n more takes, after WARM of them."""
    kept = [what() for _ in range(WARM)]
    before = rss_bytes(d)
    kept += [what() for _ in range(n)]
    return (rss_bytes(d) - before) / n, kept


@pytest.fixture
def many_files():
    """A process may have at least so many files open as connections are tested."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 2 * (N + WARM)
    if hard != resource.RLIM_INFINITY and hard < most:
        pytest.skip("at most %d files may be open" % hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("head, answer, most", [(GET, b'{"status":"ok"}', 6000), (UPGRADE, b"\r\n\r\n", 6000)],
                         ids=["keep-alive", "websocket"])
def test_idle_connections(start, models, many_files, head, answer, most):
    d = start(models.script(), {"server": {"max_connections": N + WARM + 10}})

    def connect():
        s, got = d.connect(), b""
        s.sendall(head)
        while answer not in got:
            got += s.recv(4096)
        return s
    size, sockets = each(d, N, connect)
    print("%.0f bytes each" % size)
    assert 100 < size < most
    assert d.metrics().sum("ingot_connections") >= N + WARM
    for s in sockets:
        s.close()
    until(lambda: d.metrics().sum("ingot_connections") < 10, "they are closed")


def test_stored_responses(start, models):
    """With one message of 1,000 bytes each; the next ones take no more than those before that they replace."""
    d = start(models(kind="script", n_context=2048), {"responses": {"max_stored": N + WARM, "persist": False}})

    def respond():
        r = d.http("POST", "/v1/responses", {"model": "tiny", "input": "word " * 200, "max_output_tokens": 1})
        assert r.status == 200, r
        return r.json["id"]
    size, ids = each(d, N, respond)
    print("%.0f bytes each" % size)
    assert 1000 < size < 20000
    assert d.http("GET", "/v1/responses/" + ids[0]).status == 200
    before = rss_bytes(d)
    for _ in range(N):
        respond()
    assert (rss_bytes(d) - before) / N < size / 3
    assert d.http("GET", "/v1/responses/" + ids[1]).status == 404
    assert json.loads(d.http("GET", "/v1/responses/" + respond()).body)["status"] == "incomplete"
