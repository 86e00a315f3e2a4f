"""Models that come and go while the daemon runs: on first use, by keep_alive, under the memory
contract, by a changed configuration, by administrators; what requests are given that wait, and
that no running stream notices.

A load that takes its time is made without waiting for one: under a budget with space for one
copy, a model that was unloaded while a stream uses it is loaded again when that stream ends.
"""
import http.client
import json
import os
import re
import shutil
import signal
import threading
import time

import pytest

from access import add_key, bearer
from conftest import configuration
from daemon import PATIENCE, Daemon, text_of, until
from test_cli import ingot
from test_ledger import rows
from tiny_model import SCRIPT

CHAT = "/v1/chat/completions"
LOAD, UNLOAD = "/v1/ingot/models/load", "/v1/ingot/models/unload"
ARENA = 16 << 20


def shown(d, name):
    r = d.http("GET", "/v1/models/" + name)
    assert r.status == 200, r
    return r.json


def state(d, name):
    return shown(d, name)["state"]


def states(d):
    return {m["id"]: m["state"] for m in d.http("GET", "/v1/models").json["data"]}


def load(d, name, wait=True):
    return d.http("POST", LOAD, {"model": name, "wait": wait})


def unload(d, name):
    r = d.http("POST", UNLOAD, {"model": name})
    assert r.status == 200, r
    return r.json["state"]


def model(name, path, **options):
    return {"name": name, "path": path, **options}


def lazy(name, path, **options):
    return model(name, path, load="first_use", **options)


def big(models):
    """`loop` with large weights and a small cache: a stream of it runs for minutes, and holds it."""
    return models(kind="loop", n_blocks=2, width=1024, n_heads=32, n_kv_heads=1, n_ff=4096,
                  n_context=65536)


def change(d, models, how=signal.SIGHUP, said="reload: "):
    """Other models in the configuration under d; until it is taken over."""
    n = len(d.log)
    config = dict(d.config, models=models)
    d.write_config(config)
    if how:
        d.process.send_signal(how)
    until(lambda: said in d.log[n:], "the log says " + said)


class Stream:
    """An answer that runs, on a connection of its own; finish reads it to its end."""

    def __init__(self, d, model="random", n=300, content="go on", **options):
        self.ws = d.ws()
        self.ws.create(content, model=model, max_output_tokens=n, **options)
        self.events = self.ws.until_type("response.output_text.delta")

    def finish(self):
        self.events += self.ws.until_type("response.completed", "response.incomplete",
                                          "response.failed", "error")
        self.ws.close()
        assert self.events[-1]["type"] in ("response.completed", "response.incomplete"), \
            self.events[-1]
        return text_of(self.events)

    def stop(self):
        self.ws.close()


@pytest.fixture(scope="module")
def sizes(tmp_path_factory, models):
    """What a copy of `slow` takes."""
    folder = tmp_path_factory.mktemp("sizes")
    d = Daemon(folder, configuration(folder, extra={"kvcache": {"arena": ARENA}, "models": [
        model("slow", big(models))]}))
    try:
        m = shown(d, "slow")
        return m["weight_bytes"] + m["scratch_bytes"]
    finally:
        d.stop()
        d.close()


def budget_for(sizes, n):
    """Space for n copies and half of another."""
    return ARENA + int((n + 0.5) * sizes)


@pytest.fixture
def tight(start, models, sizes):
    """A daemon that has space for one copy of `slow`, and a stream of it: `slow` was unloaded,
    and is loaded again when the stream ends.  Beside it `tiny`, which is small and pinned."""
    def make(extra=None, script=None, **server):
        d = start(extra={
            "server": {"keepalive_interval": "100ms", **server},
            "scheduler": {"retry_after": "1s"},
            "memory": {"budget": budget_for(sizes, 1)}, "kvcache": {"arena": ARENA},
            "models": [model("slow", big(models)),
                       model("tiny", script or models.script(), pin=True)], **(extra or {})})
        stream = Stream(d, "slow", n=100000)
        assert unload(d, "slow") == "unloading"
        return d, stream
    return make


# ---- states --------------------------------------------------------------------------------

@pytest.mark.home("release")
def test_first_use(start, models):
    """The ready line comes when those of the start are loaded; others are loaded by the first
    request, whatever it is."""
    d = start(extra={"models": [lazy("random", models.random()), model("tiny", models.script()),
                                lazy("other", models.random(seed=3))],
                     "default_model": "tiny"})
    assert states(d) == {"random": "unloaded", "tiny": "ready", "other": "unloaded"}
    m = shown(d, "random")
    assert (m["loads"], m["active_requests"], m["default"], m["idle_s"]) == (0, 0, False, None)
    assert d.chat_text(model="") == d.chat_text() == SCRIPT
    assert states(d)["random"] == "unloaded"
    r = d.http("POST", "/v1/tokenize", {"model": "random", "prompt": "hello"})
    assert r.status == 200 and r.json["max_model_len"] == 2048
    m = shown(d, "random")
    assert (m["state"], m["loads"], m["max_input_tokens"]) == ("ready", 1, 2048)
    assert m["weight_bytes"] > 0 and m["load_s"] > 0 and m["expires_s"] is None
    text = d.chat_text(model="random", max_tokens=20)
    assert d.chat_text(model="random", max_tokens=20) == text
    assert shown(d, "random")["loads"] == 1
    assert states(d)["other"] == "unloaded"
    r = d.http("GET", "/v1/models/zeppelin")
    assert r.status == 404 and "random, tiny, other" in r.error["message"]


@pytest.mark.parametrize("path,body", [
    (CHAT, {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}),
    ("/v1/completions", {"prompt": "hi", "max_tokens": 1}),
    ("/v1/responses", {"input": "hi", "max_output_tokens": 1}),
    ("/v1/responses/input_tokens", {"input": "hi"}),
    ("/v1/messages", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}),
    ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "hi"}]}),
    ("/v1/detokenize", {"tokens": [50, 51]}),
])
def test_every_request_loads(scripted, path, body):
    """With a model that was unloaded before."""
    unload(scripted, "random")
    until(lambda: state(scripted, "random") == "unloaded", "it is unloaded")
    r = scripted.http("POST", path, {"model": "random", **body})
    assert r.status == 200, r
    assert state(scripted, "random") == "ready"


@pytest.mark.tsan
def test_a_stream_beside_loads(start, models):
    """While models are loaded and unloaded, its tokens keep coming, and are those of before."""
    d = start(extra={"models": [model("random", models.random()), lazy("slow", models.slow()),
                                lazy("other", models.random(seed=3, width=256, n_ff=1024))]})
    quiet = Stream(d, n=1000 // PATIENCE).finish()
    n_loads, gaps = 0, []
    stop = threading.Event()

    def churn():
        nonlocal n_loads
        while not stop.is_set():
            for name in ("slow", "other"):
                assert load(d, name).status == 200
                unload(d, name)
                n_loads += 1
    t = threading.Thread(target=churn)
    t.start()
    try:
        while n_loads < 4:
            s, last = Stream(d, n=1000 // PATIENCE), time.monotonic()
            while s.events[-1]["type"] != "response.incomplete":
                s.events.append(s.ws.event())
                gaps.append(time.monotonic() - last)
                last = time.monotonic()
            s.ws.close()
            assert text_of(s.events) == quiet
    finally:
        stop.set()
        t.join()
    assert max(gaps) < 2 * PATIENCE, "it stood still for %.1f s" % max(gaps)


# ---- waiting -----------------------------------------------------------------------------------

def body_of(model="slow", **options):
    return {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3,
            **options}


class Raw:
    """A POST whose reply is read as it comes."""

    def __init__(self, d, path, body):
        self.s, self.data = d.connect(), b""
        text = json.dumps(body).encode()
        self.s.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
                       % (path.encode(), len(text), text))

    def until(self, what, n=1):
        while self.data.count(what) < n:
            piece = self.s.recv(65536)
            assert piece, "the end came before %r: %r" % (what, self.data)
            self.data += piece
        return self.data

    def rest(self):
        while piece := self.s.recv(65536):
            self.data += piece
        self.s.close()
        return self.data.partition(b"\r\n\r\n")[2]


@pytest.mark.tsan
def test_keep_alives(tight):
    """Each kind of stream in its own way, on the wall clock, before a token of it is there."""
    d, stream = tight()
    asks = [
        (CHAT, body_of(stream=True), b": keep-alive\n\n", b"data: [DONE]"),
        ("/v1/completions", {"model": "slow", "prompt": "hi", "max_tokens": 3, "stream": True},
         b": keep-alive\n\n", b"data: [DONE]"),
        ("/v1/messages", body_of(stream=True), b"event: ping\n", b"event: message_stop\n"),
        ("/v1/responses", {"model": "slow", "input": "hi", "max_output_tokens": 3, "stream": True},
         b"event: response.in_progress\n", b"event: response.incomplete\n"),
    ]
    raws = [Raw(d, path, body) for path, body, _, _ in asks]
    c = d.ws()
    c.create("hi", model="slow", max_output_tokens=3)
    for raw, (path, _, alive, end) in zip(raws, asks):
        got = raw.until(alive, 3)
        assert got.startswith(b"HTTP/1.1 200 OK\r\n") and end not in got, (path, got)
        assert b"text/event-stream" in got
    events = [c.event() for _ in range(4)]
    assert [e["type"] for e in events] == ["response.created"] + ["response.in_progress"] * 3
    assert d.http("GET", "/healthz").json == {"status": "ok"}
    assert d.chat_text() == SCRIPT, "others are answered"
    assert state(d, "slow") == "loading"
    stream.stop()
    for raw, (path, _, _, end) in zip(raws, asks):
        assert end in raw.rest(), path
    events += c.until_type("response.incomplete")
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    assert len({e["response"]["id"] for e in events if "response" in e}) == 1
    assert text_of(events)
    c.close()
    until(lambda: d.running() == 0, "all have ended")
    assert shown(d, "slow")["loads"] == 2


class Lists:
    """Asks for the list of models, again and again on one connection."""

    def __init__(self, d, query):
        self.c, self.path = http.client.HTTPConnection(d.host, d.port, timeout=60), "/v1/models" + query
        self.loading_s = []  # how long the replies took that show `slow` being loaded

    def ask(self):
        began = time.monotonic()
        self.c.request("GET", self.path)
        r = self.c.getresponse()
        text = r.read()
        took = time.monotonic() - began
        assert r.status == 200, text
        state = {m["id"]: m["state"] for m in json.loads(text)["data"]}["slow"]
        if state == "loading":
            self.loading_s.append(took)
        return state

    def judge(self):
        """A quarter of them within 10 ms: a busy machine delays many, a load would delay all."""
        self.c.close()
        times = sorted(self.loading_s)
        assert times[len(times) // 4] < 0.010, times


@pytest.mark.release
@pytest.mark.parametrize("query", ["", "?limit=1000", "?limit=1"])
def test_the_list_is_there_while_a_load_waits(tight, query):
    d, stream = tight()
    assert load(d, "slow", wait=False).status == 202
    lists = Lists(d, query)
    for _ in range(100):
        assert lists.ask() == "loading"
    lists.judge()
    stream.stop()


@pytest.mark.release
def test_the_list_is_there_while_weights_are_packed(start, models):
    d = start(extra={"models": [lazy("slow", models.slow()), model("tiny", models.script())]})
    lists = Lists(d, "?limit=1000")

    def enough():
        assert load(d, "slow", wait=False).status == 202
        until(lambda: lists.ask() == "ready", "it is loaded")
        unload(d, "slow")
        until(lambda: lists.ask() == "unloaded", "it is unloaded")
        return len(lists.loading_s) >= 100
    until(enough, "a hundred replies show the load")
    lists.judge()


def test_whole_replies_wait(tight):
    d, stream = tight()
    raw = Raw(d, CHAT, body_of())
    time.sleep(0.35)
    raw.s.settimeout(0.05)
    with pytest.raises(TimeoutError):
        raw.s.recv(1)
    raw.s.settimeout(60 * PATIENCE)
    stream.stop()
    got = raw.until(b"finish_reason")
    assert got.startswith(b"HTTP/1.1 200 OK\r\n")


def test_waiting_is_listed(tight):
    """What waits for its model is listed with a state of its own, and an administrator can cancel it."""
    d, stream = tight()
    raw = Raw(d, CHAT, body_of())

    def waiting():
        return [r for r in d.http("GET", "/v1/ingot/requests").json["data"] if r["state"] == "loading"]
    r, = until(waiting, "a request that waits")
    assert (r["model"], r["endpoint"]) == ("slow", "POST " + CHAT) and r["age_s"] < 60
    assert (r["prompt_tokens"], r["output_tokens"], r["cached_tokens"], r["cache_reason"]) == (0, 0, None, None)
    assert d.http("GET", "/v1/ingot/requests").json["total"] == 2  # and the one that runs
    assert d.http("DELETE", "/v1/ingot/requests/" + r["id"]).json["cancelled"]
    got = raw.until(b"(administrator)")
    assert got.startswith(b"HTTP/1.1 500 ") and b"request_cancelled" in got
    assert waiting() == [] and d.http("DELETE", "/v1/ingot/requests/" + r["id"]).status == 404
    stream.stop()


def test_no_waiting(tight):
    """model_wait: 0 refuses at once, and a retry finds the model."""
    d, stream = tight(model_wait="0s")
    r = d.http("POST", CHAT, body_of(stream=True))
    assert (r.status, r.error["code"], r.headers["Retry-After"]) == (503, "model_loading", "1")
    r = d.http("POST", "/v1/messages", body_of())
    assert (r.status, r.headers["Retry-After"]) == (503, "1")
    assert r.json["error"]["type"] == "overloaded_error"
    c = d.ws()
    c.create("hi", model="slow")
    e = c.error()
    assert (e["status"], e["error"]["code"], e["retry_after"]) == (503, "model_loading", 1)
    c.close()
    stream.stop()
    until(lambda: state(d, "slow") == "ready", "it is loaded")
    assert d.http("POST", CHAT, body_of()).status == 200


def test_the_wait_ends(tight):
    """server.model_wait: a status, or the last event of a stream that has begun."""
    d, stream = tight(model_wait="700ms")
    began = time.monotonic()
    raw = Raw(d, CHAT, body_of(stream=True))
    r = d.http("POST", CHAT, body_of())
    assert (r.status, r.error["code"], r.headers["Retry-After"]) == (503, "model_loading", "1")
    assert "more than 0.7 s (server.model_wait)" in r.error["message"]
    assert time.monotonic() - began > 0.6
    body = raw.rest()
    assert body.startswith(b": keep-alive\n\n") and body.endswith(b"\n\n")
    assert json.loads(body.split(b"data: ")[1])["error"]["code"] == "model_loading"
    c = d.ws()
    events = c.answer("hi", model="slow")
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["error"]["code"] == "model_loading"
    c.close()
    stream.stop()


@pytest.mark.home("release")
def test_the_sdk_comes_again(tight):
    """OpenAI's package retries a 503, after Retry-After."""
    openai = pytest.importorskip("openai")
    d, stream = tight(model_wait="0s")
    d.http("POST", CHAT, body_of())  # the load is under way
    statuses = []

    def answered(response):
        if not statuses:
            stream.stop()  # now that one was refused
        statuses.append(response.status_code)

    with openai.OpenAI(base_url="http://127.0.0.1:%d/v1" % d.port, api_key="none", max_retries=5,
                       http_client=openai.DefaultHttpxClient(
                           event_hooks={"response": [answered]})) as client:
        began = time.monotonic()
        r = client.chat.completions.create(model="slow", max_tokens=3,
                                           messages=[{"role": "user", "content": "hi"}])
    assert r.choices[0].message.content and time.monotonic() - began > 0.9
    assert statuses[0] == 503 and statuses[-1] == 200


@pytest.mark.home("release")
def test_the_sdks_wait(tight):
    """What they are given meanwhile disturbs none of their readers."""
    openai = pytest.importorskip("openai")
    anthropic = pytest.importorskip("anthropic")
    d, stream = tight()
    url, hi = "http://127.0.0.1:%d" % d.port, [{"role": "user", "content": "hi"}]
    texts, begun = {}, threading.Semaphore(0)

    def responses():
        with openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0) as client:
            with client.responses.stream(model="slow", input="hi", max_output_tokens=9) as s:
                begun.release()  # each has its response's head, while it waits
                kinds = [e.type for e in s]
            assert kinds[:2] == ["response.created", "response.in_progress"]
            assert kinds.count("response.in_progress") > 1
            texts["responses"] = kinds[-1]

    def chat():
        with openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0) as client:
            s = client.chat.completions.create(model="slow", max_tokens=9, messages=hi, stream=True)
            begun.release()
            texts["chat"] = "".join(c.choices[0].delta.content or "" for c in s if c.choices)

    def messages():
        with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client:
            with client.messages.stream(model="slow", max_tokens=9, messages=hi) as s:
                begun.release()
                texts["messages"] = "".join(s.text_stream)
    threads = [threading.Thread(target=t) for t in (responses, chat, messages)]
    for t in threads:
        t.start()
    assert all(begun.acquire(timeout=60 * PATIENCE) for _ in threads), "they wait"
    assert state(d, "slow") == "loading"
    time.sleep(1.5 * PATIENCE)
    assert texts == {}
    stream.stop()
    for t in threads:
        t.join()
    assert texts["responses"] == "response.incomplete"
    assert texts["chat"] and texts["chat"] == texts["messages"]


def test_clients_that_leave(tight):
    """They are forgotten, with a row; nothing is computed for them."""
    d, stream = tight()
    raw = Raw(d, CHAT, body_of(stream=True))
    raw.until(b": keep-alive")
    raw.s.close()
    c = d.ws()
    c.create("hi", model="slow")
    c.until_type("response.in_progress")
    c.abort()

    def left():
        return [r for r in rows(d) if r["error"] == "cancelled before it ran (client_gone)"]
    until(lambda: len(left()) == 2, "both have their rows")
    assert {(r["endpoint"], r["model"], r["status"]) for r in left()} == {
        ("POST " + CHAT, "slow", 499), ("ws /v1/responses", "slow", 499)}
    stream.stop()
    until(lambda: state(d, "slow") == "ready", "it is loaded all the same")
    d.until_idle()


def test_cancel_on_the_socket(tight):
    d, stream = tight()
    c = d.ws()
    c.create("hi", model="slow", stream_id="a")
    rid = c.until_type("response.in_progress")[0]["response"]["id"]
    c.create("hi", model="slow", stream_id="b")
    c.send({"type": "response.cancel", "response_id": rid})
    while (e := c.event())["type"] != "response.incomplete":
        pass
    assert (e["response"]["id"], e["response"]["status"]) == (rid, "cancelled")
    c.create("hi", model="tiny", stream_id="a")
    while (e := c.event())["type"] != "response.completed":
        pass
    assert e["stream_id"] == "a", "the lane goes on"
    stream.stop()
    while (e := c.event())["type"] != "response.output_text.delta":
        pass
    assert e["stream_id"] == "b"
    c.close()


def test_the_end_comes_while_they_wait(tight):
    d, stream = tight()
    raw, whole = Raw(d, CHAT, body_of(stream=True)), Raw(d, CHAT, body_of())
    raw.until(b": keep-alive")
    c = d.ws()
    c.create("hi", model="slow")
    c.until_type("response.in_progress")
    d.process.send_signal(signal.SIGTERM)
    assert b'"server_shutting_down"' in raw.rest()
    got = whole.rest()
    assert b"HTTP/1.1 503" in whole.data and b"retry-after: 1" in whole.data
    assert json.loads(got)["error"]["code"] == "server_shutting_down"
    assert c.until_type("response.failed")[-1]["response"]["error"]["code"] == "server_shutting_down"
    stream.stop()
    d.stop()


def test_too_many_wait(tight):
    d, stream = tight(extra={"scheduler": {"max_queue": 2, "retry_after": "1s"}})
    waiting = [Raw(d, CHAT, body_of(stream=True)) for _ in range(2)]
    for w in waiting:
        w.until(b": keep-alive")
    r = d.http("POST", CHAT, body_of())
    assert (r.status, r.error["code"], r.headers["Retry-After"]) == (503, "server_busy", "1")
    assert "models" in r.error["message"]
    stream.stop()
    for w in waiting:
        assert b"[DONE]" in w.rest()


# ---- under the memory contract -----------------------------------------------------------------

def test_the_least_recently_used_goes(start, models, sizes):
    """Space for two of four: the least recently used one is unloaded, except one
    that is pinned or in use."""
    config = [lazy(name, big(models)) for name in "abcd"]
    d = start(extra={"memory": {"budget": budget_for(sizes, 2)}, "kvcache": {"arena": ARENA},
                     "models": config})

    def use(name, status=200):
        r = d.http("POST", CHAT, body_of(name))
        assert r.status == status, r
        return r

    def loaded():
        return "".join(sorted(n for n, s in states(d).items() if s == "ready"))
    use("a"), use("b")
    assert loaded() == "ab"
    use("a"), use("c")
    assert loaded() == "ac"
    use("d")
    assert loaded() == "cd"
    assert re.search(r"model a: unloaded to free memory for d", d.log)
    # pinned: the other one goes, though it was used later
    change(d, [dict(m, pin=m["name"] == "c") for m in config])
    until(lambda: shown(d, "d")["active_requests"] == 0, "its request has ended")
    use("a")
    assert loaded() == "ac"
    # in use: there is no space
    s = Stream(d, "a", n=100000)
    r = use("b", 503)
    assert r.error["code"] == "insufficient_memory" and "memory.budget" in r.error["message"]
    assert r.headers["Retry-After"]
    r = load(d, "b")
    assert (r.status, r.error["code"]) == (503, "insufficient_memory") and r.headers["Retry-After"]
    s.stop()
    d.until_idle()
    use("b")
    assert loaded() == "bc"


@pytest.mark.home("release")
def test_keep_alive(start, models):
    """Unloaded after so long without a request; one that runs keeps it."""
    d = start(extra={"models": [model("tiny", models.script()),
                                lazy("slow", big(models), keep_alive="300ms"),
                                model("random", models.random(), keep_alive="1h")]})
    s = Stream(d, "slow", n=100000)
    time.sleep(0.5)
    m = shown(d, "slow")
    assert (m["state"], m["active_requests"], m["idle_s"]) == ("ready", 1, 0)
    s.stop()
    until(lambda: shown(d, "slow")["active_requests"] == 0, "the stream has ended")
    until(lambda: state(d, "slow") == "unloaded", "it is unloaded")
    assert states(d)["tiny"] == states(d)["random"] == "ready"
    assert 3000 < shown(d, "random")["expires_s"] <= 3600
    assert shown(d, "tiny")["expires_s"] is None
    assert d.http("POST", CHAT, body_of()).status == 200
    assert shown(d, "slow")["loads"] == 2


# ---- by the configuration -----------------------------------------------------------------------

@pytest.mark.parametrize("how", [pytest.param(signal.SIGHUP, marks=pytest.mark.tsan), None],
                         ids=["SIGHUP", "watch_config"])
def test_add_swap_remove(start, models, how):
    """While streams of all of them run, whose texts are as when nothing happens."""
    first = [model("stays", models.random()), model("swapped", models.random(seed=5)),
             model("goes", models.random(seed=6))]
    d = start(extra={"models": first})
    names = [m["name"] for m in first]
    quiet = {n: Stream(d, n, n=1200 // PATIENCE).finish() for n in names}
    streams = {n: Stream(d, n, n=1200 // PATIENCE) for n in names}
    change(d, [first[0], model("swapped", models.random(seed=7)), model("new", models.script())],
           how)
    until(lambda: states(d) == {"stays": "ready", "swapped": "ready", "new": "ready"},
          "all are there")
    r = d.chat(model="goes")
    assert (r.status, r.error["code"]) == (404, "model_not_found")
    assert d.chat_text(model="new") == SCRIPT
    now = Stream(d, "swapped", n=1200 // PATIENCE).finish()
    for n in names:
        assert streams[n].finish() == quiet[n], n
    assert now != quiet["swapped"]
    # and back, with a default that moves
    change(d, first, how)
    until(lambda: set(states(d)) == set(names) and set(states(d).values()) == {"ready"}, "back")
    assert Stream(d, "swapped", n=1200 // PATIENCE).finish() == quiet["swapped"]
    d.until_idle()


def test_watch_config(start, models, tmp_path):
    """Renamed over, written in place, by way of a link; a mistake changes nothing and is said."""
    tiny, random = model("tiny", models.script()), model("random", models.random())
    d = start(extra={"models": [tiny]})
    change(d, [tiny, random], None)  # a rename
    until(lambda: len(states(d)) == 2, "it is added")
    n = len(d.log)
    good = d.config_path.read_text()
    d.config_path.write_text(good + "zeppelin: 1\n")  # in place
    until(lambda: re.search(r"ingot\.yaml:\d+:1: unknown key \"zeppelin\"", d.log[n:]), "it is said")
    assert "the old configuration stays" in d.log[n:] and len(states(d)) == 2
    target = tmp_path / "elsewhere.yaml"
    os.rename(d.config_path, target)  # it may be gone for a while
    time.sleep(1.5)
    assert d.log[n:].count("zeppelin") == 1, "once"
    os.symlink(target, d.config_path)
    target.write_text(good.replace("name: \"tiny\"", "name: \"other\""))
    until(lambda: list(states(d)) == ["other", "random"], "it is taken over")
    # switched off, and SIGHUP is heard all the same
    n = len(d.log)
    d.write_config(dict(d.config, models=[random], server=dict(d.config["server"],
                                                               watch_config=False)))
    until(lambda: "watch_config: true -> false" in d.log[n:], "the log says it")
    d.write_config(dict(d.config, models=[tiny]))
    time.sleep(2.5)
    assert list(states(d)) == ["random"]
    d.process.send_signal(signal.SIGHUP)
    until(lambda: list(states(d)) == ["tiny"], "SIGHUP is heard")


def replace(path, other):
    shutil.copy(other, str(path) + ".new")
    os.rename(str(path) + ".new", path)


def test_a_bad_file(start, models, tmp_path):
    """It is refused with its reason; the others do not mind; when it is mended it is loaded."""
    path = tmp_path / "model.gguf"
    shutil.copy(models.script(), path)
    d = start(extra={"models": [model("tiny", models.script()), lazy("bad", str(path))]})
    replace(path, models(damage="truncated"))
    for ask in (lambda: d.chat(model="bad"), lambda: load(d, "bad")):
        r = ask()
        assert (r.status, r.error["code"]) == (503, "model_load_failed"), r
        assert r.headers["Retry-After"] and "bad" in r.error["message"], r
    m = shown(d, "bad")
    assert m["state"] == "failed" and str(path) in m["error"], m
    assert d.chat_text() == SCRIPT
    code, out, err = ingot(d, "models")
    assert code == 0 and "failed" in out and str(path) in out
    code, out, err = ingot(d, "doctor", "-c", str(d.config_path),
                           "--url", "http://127.0.0.1:%d" % d.port)
    assert code == 1 and "the daemon could not load it" in out
    replace(path, models.script())
    until(lambda: d.chat(model="bad").status == 200, "it is mended")
    assert d.chat_text(model="bad") == SCRIPT
    # at the start it is a reason not to come up
    log = start.refused(extra={"models": [model("bad", models(damage="truncated"))]})
    assert "bad" in log


def test_a_disk_that_is_not_there_yet(start, models, tmp_path):
    """A file that is wanted for the first request only keeps no other model from being served."""
    path = tmp_path / "later" / "model.gguf"
    d = start(extra={"models": [model("tiny", models.script()), lazy("later", str(path))]})
    assert states(d) == {"tiny": "ready", "later": "failed"}
    assert str(path) in shown(d, "later")["error"] and str(path) in d.log
    assert d.chat(model="later").status == 503 and d.chat_text() == SCRIPT
    path.parent.mkdir()
    shutil.copy(models.script(), path)
    until(lambda: d.chat(model="later").status == 200, "the disk is there")
    assert states(d) == {"tiny": "ready", "later": "ready"}


# ---- administrators -----------------------------------------------------------------------------

def test_who_may(start, models, tmp_path):
    path = tmp_path / "keys"
    user, admin = bearer(add_key(path)), bearer(add_key(path, "--admin"))
    d = start(extra={"server": {"keys_file": str(path)},
                     "models": [model("tiny", models.script()), lazy("random", models.random())]})
    for what in (LOAD, UNLOAD):
        r = d.http("POST", what, {"model": "random"})
        assert (r.status, r.error["code"]) == (401, "missing_api_key")
        r = d.http("POST", what, {"model": "random"}, user)
        assert (r.status, r.error["code"]) == (403, "administrator_required")
    mine = d.http("GET", "/v1/models/random", headers=user).json
    assert mine["state"] == "unloaded" and "file" not in mine and "active_requests" not in mine
    r = d.http("POST", LOAD, {"model": "random"}, admin)
    assert r.status in (200, 202) and r.json["id"] == "random"
    r = d.http("POST", LOAD, {"model": "random", "wait": True}, admin)
    assert (r.status, r.json["state"]) == (200, "ready") and r.json["file"] == models.random()
    r = d.http("POST", UNLOAD, {"model": "random"}, admin)
    assert r.status == 200 and r.json["state"] in ("unloading", "unloaded")
    r = d.http("POST", UNLOAD, {"model": "zeppelin"}, admin)
    assert (r.status, r.error["code"]) == (404, "model_not_found")
    r = d.http("POST", LOAD, {"model": "zeppelin"}, admin)
    assert (r.status, r.error["code"]) == (404, "model_not_found")
    r = d.http("POST", LOAD, {}, admin)
    assert (r.status, r.error["param"]) == (400, "model")
    assert d.http("GET", LOAD, headers=admin).status == 405
    assert rows(d) == [], "none of it is a model's work"


def test_command_line(start, models, tmp_path):
    path = tmp_path / "model.gguf"
    shutil.copy(models.script(), path)
    d = start(extra={"models": [model("tiny", models.script()), lazy("random", models.random()),
                                lazy("bad", str(path))]})
    replace(path, models(damage="arch"))
    code, out, err = ingot(d, "models", "load", "random")
    assert code == 0 and re.match(r"random: ready, .* a context of 2048 tokens\n", out), (out, err)
    code, out, err = ingot(d, "models", "load", "random", "--no-wait", "--json")
    assert code == 0 and json.loads(out)["state"] == "ready"
    code, out, err = ingot(d, "ps")
    assert code == 0 and re.search(r"(?m)^random +ready ", out) and "bad" not in out, out
    code, out, err = ingot(d, "models")
    assert re.search(r"(?m)^bad .* unloaded ", out), out
    code, out, err = ingot(d, "models", "unload", "random")
    assert code == 0 and re.fullmatch(r"random: (unloading|unloaded)\n", out), (out, err)
    until(lambda: state(d, "random") == "unloaded", "it is unloaded")
    assert not re.search(r"(?m)^random ", ingot(d, "ps")[1])
    code, out, err = ingot(d, "models", "load", "bad")
    assert code == 1 and out == "" and "zeppelin" in err
    code, out, err = ingot(d, "models", "unload", "nothing")
    assert code == 1 and "tiny, random, bad" in err
    code, out, err = ingot(d, "models", "load", "tiny", "--url", "http://127.0.0.1:9")
    assert code == 1 and "127.0.0.1:9" in err


@pytest.mark.home("release")
def test_doctor_of_memory(start, models, sizes, scripted, tmp_path):
    """What does not fit together need not, unless it must."""
    from daemon import yaml_text

    def doctor(*config, budget):
        path = tmp_path / "x.yaml"
        path.write_text(yaml_text(configuration(tmp_path, extra={
            "memory": {"budget": budget}, "kvcache": {"arena": ARENA},
            "models": list(config)})) + "\n")
        code, out, _ = ingot(scripted, "doctor", "-c", str(path))
        return code, out
    path = big(models)
    assert doctor(model("a", path), model("b", path), budget=budget_for(sizes, 2))[0] == 0
    code, out = doctor(model("a", path), model("b", path), budget=budget_for(sizes, 1))
    assert code == 1 and "load: first_use" in out
    code, out = doctor(model("a", path), lazy("b", path), budget=budget_for(sizes, 1))
    assert code == 0 and "are unloaded when needed" in out
    code, out = doctor(model("a", path, pin=True), lazy("b", path), budget=budget_for(sizes, 1))
    assert code == 1 and "cannot be loaded: with kvcache.arena" in out
