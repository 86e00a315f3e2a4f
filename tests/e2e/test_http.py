"""HTTP: chat completions whole and streamed, models, health, metrics, and refusals."""
import json
import re

import pytest

from rawsocket import TEXT, WebSocket, frame, handshake
from tiny_model import SCRIPT

pytestmark = [pytest.mark.home("asan"), pytest.mark.tsan]

CHAT = "/v1/chat/completions"


def body(**options):
    b = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "temperature": 0}
    b.update(options)
    return {k: v for k, v in b.items() if v is not ...}


def check_usage(u):
    assert u["prompt_tokens"] > 0
    assert u["total_tokens"] == u["prompt_tokens"] + u["completion_tokens"]


@pytest.mark.home("release", "asan", "tsan")
def test_whole(scripted):
    r = scripted.http("POST", CHAT, body())
    assert r.status == 200
    assert r.headers["Content-Type"].startswith("application/json")
    assert int(r.headers["Content-Length"]) == len(r.body)
    j = r.json
    assert j["object"] == "chat.completion" and j["id"].startswith("chatcmpl-")
    assert j["created"] > 1.7e9 and j["model"] == "tiny"
    (choice,) = j["choices"]
    assert choice["index"] == 0 and choice["finish_reason"] == "stop"
    assert choice["message"]["role"] == "assistant" and choice["message"]["content"] == SCRIPT
    check_usage(j["usage"])
    assert j["usage"]["completion_tokens"] in (18, 19)


def test_metadata_comes_back(scripted):
    labels = {"run": "7", "quote": 'a"b'}
    assert scripted.http("POST", CHAT, body(metadata=labels)).json["metadata"] == labels
    assert "metadata" not in scripted.http("POST", CHAT, body()).json
    c = chunks(scripted.http("POST", CHAT, body(stream=True, metadata=labels)))
    assert c[0]["metadata"] == labels
    assert all("metadata" not in x for x in c[1:])


def test_store_has_no_effect(scripted):
    r = scripted.http("POST", CHAT, body(store=True))
    assert r.status == 200 and r.headers["x-ingot-ignored"] == "store"


def chunks(reply):
    assert reply.status == 200
    assert reply.headers["Content-Type"].startswith("text/event-stream")
    events = reply.events()
    assert events[-1] == "[DONE]" and events.count("[DONE]") == 1
    return [json.loads(e) for e in events[:-1]]


@pytest.mark.home("release", "asan", "tsan")
@pytest.mark.parametrize("usage", [True, False])
def test_stream(scripted, usage):
    options = {"stream_options": {"include_usage": True}} if usage else {}
    c = chunks(scripted.http("POST", CHAT, body(stream=True, **options)))
    if usage:
        last = c.pop()
        assert last["choices"] == []
        check_usage(last["usage"])
    assert len({x["id"] for x in c}) == 1 and len({x["created"] for x in c}) == 1
    for x in c:
        assert x["object"] == "chat.completion.chunk" and x["model"] == "tiny"
        assert x.get("usage") is None
        assert [ch["index"] for ch in x["choices"]] == [0]
    deltas = [x["choices"][0]["delta"] for x in c]
    assert deltas[0]["role"] == "assistant" and deltas[0].get("content", "") == ""
    assert all("role" not in d for d in deltas[1:])
    assert "".join(d.get("content") or "" for d in deltas) == SCRIPT
    assert "\ufffd" not in "".join(d.get("content") or "" for d in deltas)
    reasons = [x["choices"][0]["finish_reason"] for x in c]
    assert reasons[:-1] == [None] * (len(c) - 1) and reasons[-1] == "stop"
    assert deltas[-1] == {}


@pytest.mark.home("release", "asan", "tsan")
def test_stream_comes_in_pieces(scripted):
    c = chunks(scripted.http("POST", CHAT, body(model="slow", max_tokens=18 * 5, stream=True)))
    pieces = [x["choices"][0]["delta"].get("content") or "" for x in c]
    assert "".join(pieces) == SCRIPT * 5
    assert len([p for p in pieces if p]) > 1, "the answer came in one piece: it was not streamed"


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_length(scripted, name):
    j = scripted.http("POST", CHAT, body(**{name: 4})).json
    assert j["choices"][0]["finish_reason"] == "length"
    assert j["usage"]["completion_tokens"] == 4
    assert SCRIPT.startswith(j["choices"][0]["message"]["content"])


def test_length_within_a_character(scripted):
    """The accent is tokens 5 and 6: an answer of five ends before it, and shows no U+FFFD."""
    for stream in (False, True):
        r = scripted.http("POST", CHAT, body(max_tokens=5, stream=stream))
        said = ("".join(x["choices"][0]["delta"].get("content") or "" for x in chunks(r)) if stream
                else r.json["choices"][0]["message"]["content"])
        assert said == "Alpha bravo charlie delta"
    j = scripted.http("POST", CHAT, body(max_tokens=6)).json
    assert j["choices"][0]["message"]["content"] == "Alpha bravo charlie delta\u00e9"


def test_stop_strings(scripted):
    j = scripted.http("POST", CHAT, body(stop=["vo cha", " delta"])).json
    assert j["choices"][0]["message"]["content"] == "Alpha bra"
    assert j["choices"][0]["finish_reason"] == "stop"
    c = chunks(scripted.http("POST", CHAT, body(stop="vo cha", stream=True)))
    assert "".join(x["choices"][0]["delta"].get("content") or "" for x in c) == "Alpha bra"


def test_stream_and_whole_say_the_same(scripted):
    options = {"model": "random", "temperature": 1, "seed": 5, "max_tokens": 60}
    whole = scripted.http("POST", CHAT, body(**options)).json["choices"][0]["message"]["content"]
    c = chunks(scripted.http("POST", CHAT, body(stream=True, **options)))
    assert "".join(x["choices"][0]["delta"].get("content") or "" for x in c) == whole
    e = scripted.ws().answer("hello", model="random", temperature=1, seed=5, max_output_tokens=60)
    assert e[-1]["response"]["output"][0]["content"][0]["text"] == whole


def test_content_parts_and_roles(scripted):
    messages = [{"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "one "},
                                             {"type": "text", "text": "two"}]},
                {"role": "assistant", "content": "three"}, {"role": "user", "content": "four"}]
    r = scripted.http("POST", CHAT, body(messages=messages))
    assert r.json["choices"][0]["message"]["content"] == SCRIPT


def test_models(scripted):
    j = scripted.http("GET", "/v1/models").json
    assert j["object"] == "list"
    assert [m["id"] for m in j["data"]] == ["tiny", "random", "slow"]
    for m in j["data"]:
        assert m["object"] == "model" and m["created"] > 1.7e9 and m["owned_by"]
    one = scripted.http("GET", "/v1/models/tiny")
    assert one.status == 200 and one.json["id"] == "tiny"
    assert scripted.http("GET", "/v1/models/zeppelin").status == 404


def test_health(scripted):
    r = scripted.http("GET", "/healthz")
    assert r.status == 200 and r.body


def test_metrics(scripted):
    before = scripted.metrics()
    assert scripted.chat_text(max_tokens=7)
    after = scripted.metrics()

    def grew(name, **labels):
        try:
            was = before.sum(name, **labels)
        except AssertionError:
            was = 0
        return after.sum(name, **labels) - was
    assert grew("ingot_generation_tokens_total") == 7
    assert grew("ingot_prompt_tokens_total") > 5
    assert grew("ingot_request_success_total", finished_reason="length") == 1
    for name in ("ingot_time_to_first_token_seconds", "ingot_e2e_request_latency_seconds",
                 "ingot_request_queue_time_seconds", "ingot_request_prefill_time_seconds",
                 "ingot_request_decode_time_seconds"):
        assert after.types[name] == "histogram"
        assert grew(name + "_count") == 1
        assert grew(name + "_sum") >= 0
    assert grew("ingot_inter_token_latency_seconds_count") in (6, 7)
    for name in ("ingot_num_requests_running", "ingot_num_requests_waiting",
                 "ingot_kv_cache_usage_perc"):
        assert after.types[name] == "gauge"
        assert after.sum(name) == 0


def test_histograms_are_cumulative(scripted):
    scripted.chat_text(max_tokens=3)
    m = scripted.metrics()
    series = {}
    for name, labels, value in m.samples:
        if name.endswith("_bucket"):
            le = labels.pop("le")
            series.setdefault((name, tuple(sorted(labels.items()))), []).append((float(le), value))
    assert series
    for (name, labels), buckets in series.items():
        assert buckets == sorted(buckets), name
        assert [v for _, v in buckets] == sorted(v for _, v in buckets), name
        assert buckets[-1][0] == float("inf")
        assert buckets[-1][1] == m.sum(name[:-len("bucket")] + "count", **dict(labels))


def test_unknown_model(scripted):
    r = scripted.http("POST", CHAT, body(model="zeppelin"))
    assert r.status == 404 and r.error["code"] == "model_not_found"
    for name in ("zeppelin", "tiny", "random", "slow"):
        assert name in r.error["message"]


def test_prompt_longer_than_the_context(scripted):
    r = scripted.http("POST", CHAT, body(messages=[{"role": "user", "content": "word " * 3000}]))
    assert r.status == 400 and r.error["code"] == "context_length_exceeded"
    assert r.error["message"].startswith("This model's maximum context length is 512 tokens")


def test_prompt_longer_than_the_cache(start, models):
    d = start(models.random(), {"kvcache": {"arena": 512 << 10, "slab": 64 << 10}})
    r = d.http("POST", CHAT, body(messages=[{"role": "user", "content": "word " * 300}]))
    assert r.status == 400 and r.error["code"] == "context_length_exceeded"
    assert r.error["message"].startswith("This model's maximum context length is exceeded: ")
    assert "kvcache.arena" in r.error["message"]


@pytest.mark.parametrize("text", [
    b"", b"not json", b"[]", b"null", b'"x"', b'{"model": "tiny"', b"\xff\xfe", b'{"a": "\xc3"}',
    b"[" * 100000, b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
    b'{"model": "tiny", "model": "tiny", "messages": []}',
])
def test_bad_json(scripted, text):
    r = scripted.http("POST", CHAT, text)
    assert r.status == 400, r
    assert r.error["type"] == "invalid_request_error" and r.error["message"]
    assert set(r.error) >= {"message", "type", "param", "code"}


def test_bad_json_says_where(scripted):
    r = scripted.http("POST", CHAT, b'{"model": "tiny",\n "messages": [,]}')
    assert r.status == 400
    assert re.search(r"line 2|column|position|byte|2:", r.error["message"]), r.error


@pytest.mark.parametrize("options, param", [
    ({"messages": ...}, "messages"), ({"messages": []}, "messages"), ({"messages": "x"}, "messages"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, "messages"),
    ({"messages": [{"content": "x"}]}, "messages"), ({"messages": [{"role": "user"}]}, "messages"),
    ({"messages": [{"role": "user", "content": {"a": 1}}]}, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": 5}]}]}, "messages"),
    ({"temperature": "x"}, "temperature"), ({"temperature": 3}, "temperature"),
    ({"top_p": -1}, "top_p"), ({"top_k": "x"}, "top_k"), ({"seed": {}}, "seed"),
    ({"max_tokens": 0}, "max_tokens"), ({"max_completion_tokens": -1}, "max_completion_tokens"),
    ({"stop": {}}, "stop"), ({"stop": "x" * 4097}, "stop"), ({"stream": "x"}, "stream"),
    ({"stream_options": 5}, "stream_options"),
    ({"n": 0}, "n"), ({"tools": {"type": "web_search"}}, "tools"),
    ({"logprobs": 1}, "logprobs"), ({"logit_bias": {"1": 101}}, "logit_bias.1"),
    ({"response_format": {"type": "xml"}}, "response_format"),
    ({"presence_penalty": 2.1}, "presence_penalty"), ({"functions": [{}]}, "functions"),
    ({"service_tier": 5}, "service_tier"), ({"model": 5}, "model"),
])
def test_bad_parameters_are_named(scripted, options, param):
    r = scripted.http("POST", CHAT, body(**options))
    assert r.status == 400, r
    assert (r.error["param"] or "").startswith(param), r.error
    assert param in r.error["message"], r.error
    assert r.error["type"] == "invalid_request_error"


def test_not_found(scripted):
    for path in ("/nowhere", "/v1", "/v1/chat", "/v1/models/a/b/c", "/../etc/passwd",
                 "/%2e%2e/etc/passwd", "//nowhere"):
        r = scripted.http("GET", path)
        assert r.status in (400, 404), (path, r)
        if r.status == 404:
            assert r.error["message"]


@pytest.mark.parametrize("method, path, allow", [
    ("GET", CHAT, "POST"), ("DELETE", CHAT, "POST"), ("POST", "/v1/models", "GET"),
    ("POST", "/healthz", "GET"), ("PUT", "/metrics", "GET"),
])
def test_method_not_allowed(scripted, method, path, allow):
    r = scripted.http(method, path, b"" if method in ("POST", "PUT") else None)
    assert r.status == 405, r
    assert allow in r.headers["Allow"]


def test_responses_without_an_upgrade(scripted):
    r = scripted.http("GET", "/v1/responses")
    assert r.status == 426
    assert "websocket" in r.headers["Upgrade"].lower()


@pytest.mark.parametrize("value", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "",
                                   "localhost@evil.example", "10.0.0.1"])
def test_foreign_host_is_refused(scripted, value):
    for path in ("/v1/models", "/healthz"):
        r = scripted.raw(("GET %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (path, value)).encode())
        want = (403, "host_not_allowed") if value else (400, "invalid_host")
        assert (r.status, r.error["code"]) == want, r


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "[::1]", "LOCALHOST"])
def test_own_host_is_taken(scripted, name):
    for host in (name, "%s:%d" % (name, scripted.port)):
        r = scripted.raw(("GET /healthz HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % host).encode())
        assert r.status == 200, (host, r)


@pytest.mark.parametrize("value", ["http://evil.example", "null", "https://localhost.evil.example",
                                   "file://"])
def test_foreign_origin_is_refused(scripted, value):
    r = scripted.http("POST", CHAT, body(), headers={"Origin": value})
    assert r.status == 403, r
    import websockets.exceptions
    with pytest.raises((websockets.exceptions.InvalidStatus, websockets.exceptions.InvalidMessage,
                        ConnectionError, EOFError)) as e:
        scripted.ws(origin=value)
    if isinstance(e.value, websockets.exceptions.InvalidStatus):
        assert e.value.response.status_code == 403


def test_the_servers_own_pages_are_served(scripted):
    """A page of this server asks it, by whichever name it was opened; WebSockets too.  A page of
    another server on the same machine is another's."""
    port = scripted.port
    for host, origin in [("127.0.0.1", "http://127.0.0.1:%d" % port),
                         ("localhost:%d" % port, "http://localhost:%d" % port),
                         ("LOCALHOST:%d" % port, "HTTP://localhost:%d" % port),
                         ("127.0.0.1:%d" % port, "http://localhost:%d" % port),
                         ("localhost:%d" % port, "http://[::1]:%d" % port),
                         ("localhost", "https://localhost")]:  # behind a proxy with TLS
        r = scripted.http("POST", CHAT, body(max_tokens=1), headers={"Host": host, "Origin": origin})
        assert r.status == 200, (host, origin, r)
        assert r.headers["Access-Control-Allow-Origin"] == origin
        w = WebSocket(scripted, headers=[("Host", host), ("Origin", origin)])
        w.send(frame(TEXT, json.dumps({"type": "response.create", "model": "tiny",
                                       "input": "hi"}).encode()))
        assert b'"response.created"' in w.read()[1]
        w.close()
    for host, origin in [("127.0.0.1:%d" % port, "http://127.0.0.1:%d" % (port + 1)),
                         ("localhost", "http://localhost:%d" % (port + 1)),
                         ("localhost:%d" % port, "http://localhost"),
                         ("localhost:%d" % port, "http://evil.example:%d" % port),
                         ("localhost:%d" % port, "ws://localhost:%d" % port),
                         ("localhost:%d" % port, "http://localhost:%d/" % port),
                         ("localhost:%d" % port, "http://localhost:%d@evil.example" % port),
                         ("localhost:%d" % port, "localhost:%d" % port),
                         ("evil.example:%d" % port, "http://evil.example:%d" % port)]:
        r = scripted.http("GET", "/v1/models", headers={"Host": host, "Origin": origin})
        assert r.status == 403, (host, origin, r)
        r = scripted.raw(handshake(headers=[("Host", host), ("Origin", origin)]))
        assert r.status == 403, (host, origin, r)


def test_request_ids_are_echoed_everywhere(scripted, start, models):
    """Whatever the reply is, it has the client's x-request-id; one that is not fit, or none, gets
    one of ours."""
    full = start(models.script(), {"server": {"max_connections": 1}})
    head = "Host: localhost\r\nX-Request-ID: mine-7\r\n"
    page = "Origin: http://localhost\r\n"
    post = "POST %s HTTP/1.1\r\n" % CHAT + head
    stream = json.dumps(body(stream=True))
    for text, status in [
            ("GET /healthz HTTP/1.1\r\n" + head, 200), ("HEAD /v1/models HTTP/1.0\r\n" + head, 200),
            ("GET /nowhere HTTP/1.1\r\n" + head, 404), ("GET %s HTTP/1.1\r\n" % CHAT + head, 405),
            ("BREW / HTTP/1.1\r\n" + head, 501), ("GET / HTTP/3.0\r\n" + head, 505),
            ("GET / HTTP/1.1\r\nX : y\r\n" + head, 400), ("nonsense\r\n" + head, 400),
            ("GET / HTTP/1.1\r\nOrigin: http://evil.example\r\n" + head, 403),
            ("OPTIONS %s HTTP/1.1\r\n" % CHAT + page + head, 204),
            ("GET /v1/responses HTTP/1.1\r\n" + head, 426), (post, 411),
            (post + "Content-Length: 2\r\n\r\n{}", 400),
            (post + "Content-Length: 999999999\r\n", 413),
            (post + "Transfer-Encoding: chunked\r\n\r\nx", 400),
            (post + "Content-Length: %d\r\n\r\n%s" % (len(stream), stream), 200),
            ("GET / HTTP/1.1\r\n" + head + "X: " + "a" * 70000, 431)]:
        r = scripted.raw((text if "\r\n\r\n" in text else text + "\r\n").encode())
        assert (r.status, r.headers["x-request-id"]) == (status, "mine-7"), (text[:80], r)
    assert scripted.ws(additional_headers={"X-Request-Id": "mine-8"}).ws.response.headers[
        "x-request-id"] == "mine-8"
    for unfit in ("", "a b", "a" * 200, "\u00e9"):
        r = scripted.raw(("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: %s\r\n\r\n"
                          % unfit).encode())
        assert r.status == 200 and re.fullmatch("req_[0-9a-f]{24}", r.headers["x-request-id"]), unfit
    holding = full.connect()
    holding.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert holding.recv(100)
    r = full.raw(("GET /healthz HTTP/1.1\r\n" + head + "\r\n").encode())
    assert (r.status, r.headers["x-request-id"]) == (503, "mine-7") and int(r.headers["Retry-After"])
    holding.close()


def test_allowed_names_are_taken(start, models):
    d = start(models.script(), {"server": {"allowed_hosts": ["box.example"],
                                           "allowed_origins": ["http://app.example"]}})
    assert d.http("GET", "/v1/models", headers={"Host": "box.example"}).status == 200
    assert d.http("GET", "/v1/models", headers={"Host": "fox.example"}).status != 200
    assert d.http("GET", "/v1/models", headers={"Origin": "http://app.example"}).status == 200
    assert d.http("GET", "/v1/models", headers={"Origin": "http://cap.example"}).status == 403
    d.ws(origin="http://app.example").close()


def test_keep_alive_serves_many(scripted):
    import http.client
    c = http.client.HTTPConnection(scripted.host, scripted.port, timeout=30)
    for i in range(5):
        c.request("POST", CHAT, json.dumps(body(max_tokens=3)), {"Content-Type": "application/json"})
        r = c.getresponse()
        assert r.status == 200 and json.loads(r.read())["usage"]["completion_tokens"] == 3
        c.request("GET", "/healthz")
        r = c.getresponse()
        assert r.status == 200 and r.read()
    c.close()
