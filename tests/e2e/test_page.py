"""The page's files, and the endpoints behind it, without a browser: who gets what at `/`, caching, the
policy, keys on a WebSocket, the ledger over time, its rows and CSV, keys, pins, cancels."""
import csv
import io
import json
import threading
import time

import pytest
import websockets.exceptions
from websockets.typing import Subprotocol

import daemon as ingot

pytestmark = pytest.mark.home("release")

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def test_root_is_the_page_for_a_browser_alone(scripted):
    for headers in ({}, {"Accept": "*/*"}, {"Accept": "application/json, text/plain"}, {"Accept": "text/htmlx"}):
        r = scripted.http("GET", "/", headers=headers)
        assert (r.status, r.body) == (200, b"Ollama is running"), headers
        assert r.headers["vary"] == "accept"
    for headers in (HTML, {"Accept": "TEXT/HTML;q=0.9"}, {"Accept": "image/png, text/html"}):
        r = scripted.http("GET", "/", headers=headers)
        assert r.status == 200 and r.body.startswith(b"<!doctype html>"), headers
        assert r.headers["content-type"] == "text/html; charset=utf-8"
    for path in ("/ui", "/ui/", "/ui/index.html"):
        assert scripted.http("GET", path).body == r.body
    head = scripted.http("HEAD", "/", headers=HTML)
    assert head.status == 200 and head.body == b"" and int(head.headers["content-length"]) == len(r.body)


def test_what_the_page_loads_is_there(scripted):
    r = scripted.http("GET", "/ui/main.js")
    assert r.status == 200 and r.headers["content-type"] == "text/javascript; charset=utf-8"
    assert "default-src 'none'" in r.headers["content-security-policy"] and "'unsafe" not in r.headers["content-security-policy"]
    assert r.headers["x-content-type-options"] == "nosniff" and r.headers["cache-control"] == "no-cache"
    tag = r.headers["etag"]
    for value in (tag, '"x", %s' % tag):
        same = scripted.http("GET", "/ui/main.js", headers={"If-None-Match": value})
        assert (same.status, same.body, same.headers["etag"]) == (304, b"", tag)
    assert scripted.http("GET", "/ui/main.js", headers={"If-None-Match": '"other"'}).status == 200
    assert scripted.http("GET", "/ui/main.j").status == 404
    assert scripted.http("GET", "/ui/../ingot.yaml").status == 404
    r = scripted.http("POST", "/ui/main.js", body=b"")
    assert r.status == 405 and r.headers["allow"] == "GET"


def test_304_keeps_the_connection(scripted):
    tag = scripted.http("GET", "/ui").headers["etag"]
    ask = "GET /ui HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: %s\r\n\r\n" % tag
    s = scripted.connect()
    s.sendall((ask + ask + "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").encode())
    data = b""
    while piece := s.recv(65536):
        data += piece
    assert data.count(b"HTTP/1.1 304 Not Modified") == 2 and data.endswith(b'{"status":"ok"}')


# ---- the ledger ---------------------------------------------------------------------------------

@pytest.fixture
def ledger(start, models):
    """A daemon with four rows: three of two models, and one that was refused."""
    d = start(extra={"models": [{"name": "tiny", "path": models.script()}, {"name": "random", "path": models.random()}]})
    for model in ("tiny", "random", "tiny"):
        assert d.chat("hello", model=model, max_tokens=5).status == 200
    assert d.chat("hello", model="none").status == 404
    ingot.until(lambda: len(d.http("GET", "/v1/ingot/ledger").json["data"]) == 4, "four rows")
    return d


def test_stats(ledger):
    r = ledger.http("GET", "/v1/ingot/stats").json
    assert r["to"] - r["from"] == pytest.approx(3601, abs=2) and r["step_s"] == pytest.approx(60, abs=1)
    total = r["total"]
    assert (total["requests"], total["refused"], total["errors"], total["output_tokens"]) == (4, 1, 0, 15)
    for name in ("requests", "refused", "output_tokens", "prompt_tokens", "cached_tokens"):
        assert sum(s[name] for s in r["data"]) == total[name]
    assert 0 < total["ttft_ms"][0] <= total["ttft_ms"][1] <= total["ttft_ms"][2]
    assert all(v > 0 for v in total["itl_ms"])
    # within 1 % of the rows' own
    times = sorted(row["ttft_ms"] for row in ledger.http("GET", "/v1/ingot/ledger").json["data"] if row["ttft_ms"])
    assert len(times) == 3 and total["ttft_ms"][0] == pytest.approx(times[1], rel=0.011)
    assert total["ttft_ms"][2] == pytest.approx(times[2], rel=0.011)
    one = ledger.http("GET", "/v1/ingot/stats?model=random").json["total"]
    assert (one["requests"], one["output_tokens"]) == (1, 5)
    now = time.time()
    none = ledger.http("GET", "/v1/ingot/stats?from=%d&to=%d&step=10" % (now - 9000, now - 8000)).json
    assert none["data"] == [] and none["total"]["requests"] == 0 and none["total"]["ttft_ms"] == [None] * 3


@pytest.mark.parametrize("path, param", [
    ("stats?from=yesterday", "from"), ("stats?from=0x10", "from"), ("stats?from=2000&to=1000", "from"), ("stats?step=0.0001", "step"),
    ("stats?to=1e99", "to"), ("stats?steps=3", "steps"), ("stats?limit=3", "limit"), ("stats?to=999999999999999999999", "to"),
    ("ledger?limit=0", "limit"), ("ledger?limit=1001", "limit"), ("ledger?before=-1", "before"), ("ledger?format=xml", "format"),
    ("ledger?key=" + "k" * 60, "key"), ("ledger?step=5", "step")])
def test_wrong_queries_are_named(scripted, path, param):
    r = scripted.http("GET", "/v1/ingot/" + path)
    assert r.status == 400 and r.error["param"] == param, r


def test_rows(ledger):
    rows = ledger.http("GET", "/v1/ingot/ledger").json["data"]
    assert [r["model"] for r in rows] == ["none", "tiny", "random", "tiny"]
    assert rows[0]["finish"] == "refused" and rows[0]["ttft_ms"] is None and "none" in rows[0]["error"]
    first = ledger.http("GET", "/v1/ingot/ledger?limit=3").json
    assert first["has_more"] is True and [r["row"] for r in first["data"]] == [r["row"] for r in rows[:3]]
    rest = ledger.http("GET", "/v1/ingot/ledger?limit=3&before=%d" % first["data"][-1]["row"]).json
    assert rest["has_more"] is False and rest["data"] == rows[3:]
    for query, n in (("model=tiny", 2), ("finish=refused", 1), ("client=127.0.0.1", 4), ("client=10.0.0.1", 0),
                     ("endpoint=POST%20/v1/chat/completions", 4), ("key=x", 0), ("model=tiny%27%20OR%201=1", 0)):
        assert len(ledger.http("GET", "/v1/ingot/ledger?" + query).json["data"]) == n, query


def test_csv(start, models):
    d = start(models.script())
    for name in ('a,"b"', "=1+1", "tiny"):
        d.chat("hello", model=name)
    ingot.until(lambda: len(d.http("GET", "/v1/ingot/ledger").json["data"]) == 3, "three rows")
    r = d.http("GET", "/v1/ingot/ledger?format=csv")
    assert r.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(r.body.decode())))
    assert [row["model"] for row in rows] == ["tiny", "'=1+1", 'a,"b"']
    assert rows[0]["finish"] == "stop" and float(rows[0]["ttft_ms"]) > 0 and rows[1]["ttft_ms"] == ""
    assert len(list(csv.reader(io.StringIO(d.http("GET", "/v1/ingot/ledger?format=csv&limit=1").body.decode())))) == 2


def test_without_a_ledger(start, models):
    d = start(models.script(), extra={"ledger": {"enabled": False}})
    for path in ("stats", "ledger"):
        r = d.http("GET", "/v1/ingot/" + path)
        assert r.status == 404 and r.error["code"] == "no_ledger"


def test_a_ledger_that_is_damaged_is_said(start, models, tmp_path):
    d = start(models.script())
    d.chat()
    ingot.until(lambda: d.http("GET", "/v1/ingot/ledger").json["data"], "a row")
    path = d.folder.parent / "ledger.db"
    for suffix in ("", "-wal", "-shm"):
        if (old := path.with_name(path.name + suffix)).exists():
            old.replace(old.with_name("away" + suffix))
    assert d.http("GET", "/v1/ingot/ledger").json["data"] == []  # it is not there
    path.write_bytes(b"no database at all " * 300)
    r = d.http("GET", "/v1/ingot/stats")
    assert r.status == 503 and r.error["code"] == "ledger_unreadable" and str(path) in r.error["message"]
    path.unlink()


# ---- models, requests ------------------------------------------------------------------------

def test_models_and_pins(scripted):
    listed = {m["id"]: m for m in scripted.http("GET", "/v1/ingot/models").json["data"]}
    assert set(listed) == {"tiny", "random", "slow"} and listed["tiny"]["fits"] == "yes"
    assert listed["tiny"]["quantization"] and listed["tiny"]["file_bytes"] > 1000
    for pinned in (True, False):
        r = scripted.http("POST", "/v1/ingot/models/pin", {"model": "random", "pinned": pinned})
        assert r.status == 200 and r.json["pinned"] is pinned
        assert {m["id"]: m["pinned"] for m in scripted.http("GET", "/v1/ingot/models").json["data"]}["random"] is pinned
    assert scripted.http("POST", "/v1/ingot/models/pin", {"model": "random"}).error["param"] == "pinned"
    assert scripted.http("POST", "/v1/ingot/models/pin", {"model": "none", "pinned": True}).status == 404


def test_a_pinned_model_is_not_unloaded_for_another(start, models):
    """And says before whether it fits."""
    d = start(extra={"memory": {"budget": 128 << 20}, "kvcache": {"arena": 64 << 20}, "models": [
        {"name": name, "path": models.slow(), "load": "first_use"} for name in "abcd"]})

    def fits():
        return {m["id"]: m["fits"] for m in d.http("GET", "/v1/ingot/models").json["data"]}

    def load(name):
        return d.http("POST", "/v1/ingot/models/load", {"model": name, "wait": True})

    loaded = []
    for name in "abcd":
        if fits()[name] != "yes":
            break
        assert load(name).status == 200
        loaded.append(name)
        assert d.http("POST", "/v1/ingot/models/pin", {"model": name, "pinned": True}).status == 200
    assert loaded and len(loaded) < 4
    rest = "abcd"[len(loaded)]
    assert fits()[rest] == "no" and load(rest).status == 503
    d.http("POST", "/v1/ingot/models/pin", {"model": loaded[0], "pinned": False})
    assert fits()[rest] == "instead"
    assert load(rest).status == 200
    states = {m["id"]: m["state"] for m in d.http("GET", "/v1/ingot/models").json["data"]}
    assert states[loaded[0]] == "unloaded" and states[rest] == "ready"


def test_an_administrator_cancels(scripted):
    c = scripted.ws()
    c.create(model="slow", max_output_tokens=16000)
    c.until_type("response.output_text.delta")
    running, = [r for r in scripted.http("GET", "/v1/ingot/requests").json["data"] if r["endpoint"].startswith("ws")]
    assert running["cached_tokens"] is not None
    r = scripted.http("DELETE", "/v1/ingot/requests/" + running["id"])
    assert r.status == 200 and r.json == {"object": "request", "id": running["id"], "cancelled": True}
    last = c.until_type("response.failed", "response.incomplete")[-1]
    assert "administrator" in json.dumps(last)
    c.close()
    assert scripted.http("DELETE", "/v1/ingot/requests/" + running["id"]).status == 404
    assert scripted.http("GET", "/v1/ingot/requests/" + running["id"]).status == 405


# ---- keys ------------------------------------------------------------------------------------

def test_keys(start, models, tmp_path):
    d = start(models.script(), extra={"server": {"keys_file": str(tmp_path / "keys")}})
    empty = d.http("GET", "/v1/ingot/keys").json
    assert empty == {"object": "list", "required": False, "data": []}
    r = d.http("POST", "/v1/ingot/keys", {"role": "user"})
    assert r.status == 409 and r.error["code"] == "no_administrator"
    made = d.http("POST", "/v1/ingot/keys", {"id": "boss", "role": "administrator", "note": "first"})
    assert made.status == 200 and made.json["key"].startswith("ingot-") and made.json["note"] == "first"
    boss = {"Authorization": "Bearer " + made.json["key"]}
    # from the reply on a key is needed
    assert d.http("GET", "/v1/models").status == 401
    user = d.http("POST", "/v1/ingot/keys", {"max_concurrent": 2, "requests_per_minute": 0}, headers=boss).json
    assert user["role"] == "user" and user["id"].startswith("key_")
    assert (user["max_concurrent"], user["requests_per_minute"], user["tokens_per_minute"]) == (2, 0, None)
    guest = {"Authorization": "Bearer " + user["key"]}
    assert d.http("GET", "/v1/models", headers=guest).status == 200
    for method, path in (("GET", "keys"), ("POST", "keys"), ("DELETE", "keys/boss"), ("GET", "stats"), ("GET", "ledger"),
                         ("GET", "models"), ("POST", "models/pin"), ("DELETE", "requests/x")):
        body = {} if method == "POST" else None
        assert d.http(method, "/v1/ingot/" + path, body, headers=guest).status == 403, path
    listed = d.http("GET", "/v1/ingot/keys", headers=boss).json
    assert listed["required"] is True and [k["id"] for k in listed["data"]] == ["boss", user["id"]]
    assert "key" not in listed["data"][0] and made.json["key"] not in json.dumps(listed)
    for body, status, what in (({"id": "boss"}, 409, "key_exists"), ({"id": "Boss"}, 400, "id"), ({"role": "king"}, 400, "role"),
                               ({"note": "two\nlines"}, 400, "note"), ({"max_concurrent": -1}, 400, "max_concurrent"),
                               ({"colour": "red"}, 400, "colour")):
        r = d.http("POST", "/v1/ingot/keys", body, headers=boss)
        assert r.status == status and what in (r.error["param"], r.error["code"]), r
    assert d.http("DELETE", "/v1/ingot/keys/boss", headers=boss).error["code"] == "no_administrator"
    assert d.http("DELETE", "/v1/ingot/keys/nobody", headers=boss).status == 404
    assert d.http("DELETE", "/v1/ingot/keys/" + user["id"], headers=boss).json["deleted"] is True
    assert d.http("GET", "/v1/models", headers=guest).status == 401
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o600


def test_the_page_needs_no_key_and_its_socket_has_one(start, models, tmp_path):
    d = start(models.script(), extra={"server": {"keys_file": str(tmp_path / "keys")}})
    key = d.http("POST", "/v1/ingot/keys", {"role": "administrator"}).json["key"]
    assert d.http("GET", "/", headers=HTML).status == 200 and d.http("GET", "/ui/main.js").status == 200
    assert d.http("GET", "/").status == 401  # for a program
    with pytest.raises(websockets.exceptions.InvalidStatus):
        d.ws(subprotocols=[Subprotocol("ingot")])
    with pytest.raises(websockets.exceptions.InvalidStatus):
        d.ws(subprotocols=[Subprotocol("ingot"), Subprotocol("ingot-key." + key + "0")])
    c = d.ws(subprotocols=[Subprotocol("ingot"), Subprotocol("ingot-key." + key)])
    assert c.ws.subprotocol == "ingot"
    assert c.answer()[-1]["type"] == "response.completed"
    c.close()
    # it is a key of handshakes alone
    assert d.http("GET", "/v1/models", headers={"Sec-WebSocket-Protocol": "ingot-key." + key}).status == 401
    assert key not in d.log


def test_many_ask_at_once(ledger):
    """The network loop reads nothing: it streams while the ledger is read."""
    replies = []

    def ask():
        for _ in range(10):
            replies.append(ledger.http("GET", "/v1/ingot/stats").status)

    askers = [threading.Thread(target=ask) for _ in range(6)]
    for t in askers:
        t.start()
    assert ledger.chat("hello").status == 200
    for t in askers:
        t.join()
    assert replies == [200] * 60
    s = ledger.connect()  # one that leaves before its reply
    s.sendall(b"GET /v1/ingot/ledger?format=csv HTTP/1.1\r\nHost: localhost\r\n\r\n")
    s.close()
    assert ledger.http("GET", "/healthz").status == 200


# ---- events ------------------------------------------------------------------------------------

EVENTS = "/v1/ingot/events"


def test_events(scripted):
    """The first ones come at once, later ones with changes alone."""
    c = scripted.ws(EVENTS)
    first = {e["type"]: e["data"] for e in (c.event(), c.event(), c.event())}
    assert set(first) == {"status", "requests", "models"}
    assert first["requests"] == {"object": "list", "total": 0, "data": []}
    assert first["status"] == scripted.http("GET", "/v1/ingot/status").json
    assert [m["id"] for m in first["models"]["data"]] == ["tiny", "random", "slow"]
    scripted.http("POST", "/v1/ingot/models/pin", {"model": "random", "pinned": True})
    e = c.until_type("models")[-1]
    assert {m["id"]: m["pinned"] for m in e["data"]["data"]} == {"tiny": False, "random": True, "slow": False}
    scripted.http("POST", "/v1/ingot/models/pin", {"model": "random", "pinned": False})
    c.until_type("models")
    other = scripted.ws()
    other.create(model="slow", max_output_tokens=16000)
    while not (running := c.until_type("requests")[-1]["data"]["data"]):
        pass
    assert running[0]["model"] == "slow" and running[0]["endpoint"] == "ws /v1/responses"
    tokens = running[0]["output_tokens"]
    assert c.until_type("requests")[-1]["data"]["data"][0]["output_tokens"] > tokens
    other.close()
    while c.until_type("requests")[-1]["data"]["data"]:
        pass
    c.send({"type": "response.create"})
    assert c.until_type("error")[-1]["error"]["code"] == "unexpected_message"
    c.close()
    r = scripted.http("GET", EVENTS)
    assert r.status == 426 and r.error["code"] == "upgrade_required"


def test_events_need_an_administrator_and_end_with_the_key(start, models, tmp_path):
    d = start(models.script(), extra={"server": {"keys_file": str(tmp_path / "keys")}})
    boss = {"Authorization": "Bearer " + d.http("POST", "/v1/ingot/keys", {"id": "boss", "role": "administrator"}).json["key"]}
    user = d.http("POST", "/v1/ingot/keys", {"id": "user"}, headers=boss).json["key"]
    other = d.http("POST", "/v1/ingot/keys", {"id": "other", "role": "administrator"}, headers=boss).json["key"]
    for key in (user, "ingot-none"):
        with pytest.raises(websockets.exceptions.InvalidStatus):
            d.ws(EVENTS, subprotocols=[Subprotocol("ingot"), Subprotocol("ingot-key." + key)])
    c = d.ws(EVENTS, subprotocols=[Subprotocol("ingot"), Subprotocol("ingot-key." + other)])
    assert c.event()["type"] == "status"
    d.http("DELETE", "/v1/ingot/keys/other", headers=boss)
    with pytest.raises(websockets.exceptions.ConnectionClosedError) as e:
        while True:
            c.event()
    assert e.value.rcvd.code == 1008
    # a refused handshake is no request of a model
    assert d.http("GET", "/v1/ingot/ledger", headers=boss).json["data"] == []


def test_events_end_when_the_daemon_does(start, models):
    d = start(models.script())
    c = d.ws(EVENTS)
    c.event()
    d.process.terminate()
    with pytest.raises(websockets.exceptions.ConnectionClosed) as e:
        while True:
            c.event()
    assert e.value.rcvd.code == 1001
    assert d.wait_exit() == 0
