"""A request's priority and deadline, a key's weight and priority: which values are taken, what of them is in the file
of keys, the lists and the ledger, deadlines, and who has a place."""
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor

import anthropic
import ollama
import openai
import pytest

from access import add_key, bearer, hang_up, ingot
from daemon import until
from test_ledger import rows, until_rows

pytestmark = pytest.mark.home("release")

MESSAGES = {"messages": [{"role": "user", "content": "hi"}]}
# the path, the body, and where the parameters are
ASKED = {
    "/v1/chat/completions": (dict(MESSAGES, model="tiny", max_tokens=3), None),
    "/v1/completions": ({"model": "tiny", "prompt": "hi", "max_tokens": 3}, None),
    "/v1/responses": ({"model": "tiny", "input": "hi", "max_output_tokens": 3}, None),
    "/v1/messages": (dict(MESSAGES, model="tiny", max_tokens=3), None),
    "/api/chat": (dict(MESSAGES, model="tiny", stream=False), "options"),
    "/api/generate": ({"model": "tiny", "prompt": "hi", "stream": False}, "options"),
}
WRONG = [("priority", v) for v in (101, -101, 0.5, "0", True)] + [("deadline", v) for v in (0, -1, 86401, "1", [])]


def post(d, path, headers=None, **what):
    body, at = ASKED[path]
    return d.http("POST", path, dict(body, **({at: what} if at else what)), headers)


def test_values(scripted):
    for path, (_, at) in ASKED.items():
        for name, value in WRONG:
            r = post(scripted, path, **{name: value})
            assert r.status == 400 and "'%s%s'" % (at + "." if at else "", name) in r.body.decode(), (path, value, r)
        r = post(scripted, path, priority=-100, deadline=86400)
        assert r.status == 200 and "x-ingot-ignored" not in r.headers, (path, r)
    ws = scripted.ws()
    for name, value in WRONG:
        ws.create(**{name: value})
        assert ws.error()["error"]["param"] == name
    assert ws.answer(priority=100, deadline=86400)[-1]["type"] == "response.completed"
    ws.close()


def test_clients_packages(scripted):
    """A deadline that has passed at once, as programs get it."""
    url = "http://%s:%d" % (scripted.host, scripted.port)
    late = {"extra_body": {"deadline": 1e-6, "priority": 7}}
    oai = openai.OpenAI(base_url=url + "/v1", api_key="none")
    with pytest.raises(openai.InternalServerError) as e:
        oai.chat.completions.create(model="tiny", **MESSAGES, **late)
    assert (e.value.status_code, e.value.code, e.value.param) == (504, "deadline_exceeded", "deadline")
    with pytest.raises(openai.InternalServerError) as e:
        oai.responses.create(model="tiny", input="hi", stream=True, **late)
    assert (e.value.status_code, e.value.code) == (504, "deadline_exceeded")
    with pytest.raises(anthropic.APIStatusError) as e:
        anthropic.Anthropic(base_url=url, api_key="none").messages.create(
            model="tiny", max_tokens=3, **MESSAGES, **late)
    assert e.value.status_code == 504 and e.value.body["error"]["type"] == "timeout_error"
    with pytest.raises(ollama.ResponseError) as e:
        ollama.Client(host=url).chat(model="tiny", **MESSAGES, options={"deadline": 1e-6, "priority": 7})
    assert e.value.status_code == 504 and "deadline has passed" in e.value.error
    got = until(lambda: (lambda r: r if len(r) >= 4 else None)([r for r in rows(scripted) if r["priority"] == 7]), "4 rows")
    # they do not ask again, as they do after other errors of a server
    assert [r["endpoint"].split(" ")[1] for r in got] == ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat"]
    for row in got:
        assert (row["status"], row["finish"], row["output_tokens"]) == (504, "refused", 0)
        assert "deadline" in row["error"]
    # nothing of them is left behind
    scripted.until_idle()


def test_over_in_its_lane(scripted):
    """A response waits for its lane longer than its deadline; the lane goes on."""
    ws = scripted.ws()
    ws.create(model="slow", stream_id="a")
    first = ws.until_type("response.created")[0]["response"]["id"]
    ws.create(stream_id="a", deadline=0.1)
    ws.create(stream_id="a", deadline=3600)
    ws.create(stream_id="b")  # what came before it on this connection has been read, too
    ws.until_type("response.completed")
    end = time.monotonic() + 0.1
    until(lambda: time.monotonic() > end, "its deadline")
    ws.send({"type": "response.cancel", "response_id": first})
    ws.until_type("response.incomplete")
    e = ws.error()
    assert (e["status"], e["error"]["code"], e["stream_id"]) == (504, "deadline_exceeded", "a")
    assert ws.until_type("response.completed", "error")[-1]["type"] == "response.completed"
    ws.close()


def test_over_while_it_runs(scripted):
    """A reply that is being generated ends with its deadline."""
    asked = {path: (dict(body, model="slow"), at) for path, (body, at) in ASKED.items()}
    for body, at in asked.values():
        for name in ("max_tokens", "max_output_tokens"):
            if name in body:
                body[name] = 100000 if name == "max_output_tokens" else 10000
        body.update({at: {"deadline": 0.2, "num_predict": -1}} if at else {"deadline": 0.2})
    for path, (body, _) in asked.items():
        begin = time.monotonic()
        r = scripted.http("POST", path, body)
        assert r.status == 504 and r.headers["x-should-retry"] == "false", (path, r)
        assert "deadline" in r.body.decode() and time.monotonic() - begin >= 0.2
    body, _ = asked["/v1/chat/completions"]
    events = scripted.http("POST", "/v1/chat/completions", dict(body, stream=True)).events()
    pieces = [json.loads(e) for e in events if e != "[DONE]"]
    assert len(pieces) > 3 and pieces[1]["choices"][0]["delta"]["content"]
    assert pieces[-1]["error"]["code"] == "deadline_exceeded"
    ws = scripted.ws()
    ws.create(model="slow", deadline=0.2)
    failed = ws.until_type("response.failed", "error")[-1]
    assert failed["response"]["error"]["code"] == "deadline_exceeded" and failed["response"]["output"]
    ws.close()
    ended = until(lambda: (lambda r: r if len(r) >= len(asked) + 2 else None)(
        [r for r in rows(scripted) if (r["status"], r["finish"]) == (504, "error")]), "their rows")
    assert all(r["output_tokens"] > 0 and "deadline" in r["error"] for r in ended)


def test_a_place_for_everybody(start, models, tmp_path):
    """One key's requests have all places, and more of them wait: another key's is answered meanwhile, and so is
    one of the same key with a smaller number."""
    path = tmp_path / "keys"
    greedy, other = (bearer(add_key(path, name)) for name in ("greedy", "other"))
    boss = bearer(add_key(path, "boss", "--admin"))
    d = start(extra={"models": [{"name": "tiny", "path": models.script()}, {"name": "slow", "path": models.slow()}],
                     "server": {"keys_file": str(path)}, "scheduler": {"max_seqs": 3}})
    sockets = [d.ws(additional_headers=greedy) for _ in range(9)]
    for ws in sockets:
        ws.create(model="slow", priority=1)

    def state():
        listed = d.http("GET", "/v1/ingot/requests", headers=boss).json["data"]
        return sorted(r["state"] for r in listed if r["key"] == "greedy")
    until(lambda: state() == ["decode"] * 3 + ["waiting"] * 6, "all places are taken")
    assert post(d, "/v1/chat/completions", other, priority=1).status == 200
    assert post(d, "/v1/chat/completions", greedy, priority=0).status == 200
    assert "waiting" in state()
    for ws in sockets:
        ws.abort()
    until(lambda: not state(), "they are gone")


def test_the_queue_for_everybody(start, models, tmp_path):
    """One key's requests fill the queue: another key's is answered all the same, and the newest one of the first key
    gets the 503 that the other would have got, also if it is a stream."""
    path = tmp_path / "keys"
    greedy, other = (bearer(add_key(path, name)) for name in ("greedy", "other"))
    boss = bearer(add_key(path, "boss", "--admin"))
    d = start(extra={"models": [{"name": "tiny", "path": models.script()}, {"name": "slow", "path": models.slow()}],
                     "server": {"keys_file": str(path)},
                     "scheduler": {"max_seqs": 2, "max_queue": 3, "retry_after": "7s"}})

    def state(key="greedy"):
        listed = d.http("GET", "/v1/ingot/requests", headers=boss).json["data"]
        return sorted(r["state"] for r in listed if r["key"] == key)
    sockets = [d.ws(additional_headers=greedy) for _ in range(2)]
    for ws in sockets:
        ws.create(model="slow")
    until(lambda: state() == ["decode"] * 2, "both places are taken")
    with ThreadPoolExecutor(4) as pool:
        asked = []
        for what in ({}, {}, {"stream": True}):
            asked.append(pool.submit(post, d, "/v1/chat/completions", greedy, **what))
            until(lambda: state() == ["decode"] * 2 + ["waiting"] * len(asked), "it waits")
        refused = post(d, "/v1/chat/completions", greedy)
        assert (refused.status, refused.headers["Retry-After"]) == (503, "7")
        assert post(d, "/v1/chat/completions", other).status == 200
        displaced = asked.pop().result()
        assert (displaced.status, displaced.headers["Retry-After"]) == (503, "7")
        assert displaced.error["code"] == refused.error["code"] == "server_busy"
        assert "the queue is full" in displaced.error["message"]
        assert not any(a.done() for a in asked)
        got = [r for r in until_rows(d, 3) if r["status"] == 503]
        assert [(r["key"], r["finish"], r["output_tokens"]) for r in got] == [("greedy", "refused", 0)] * 2
        assert b"ingot_requests_refused_total 2\n" in d.http("GET", "/metrics", headers=boss).body
        for ws in sockets:
            ws.abort()
        assert [a.result().status for a in asked] == [200, 200]


# ---- keys ---------------------------------------------------------------------------------------------------

def test_the_command(tmp_path):
    path = tmp_path / "keys"
    add_key(path, "first", "--weight", 100, "--priority", -100, "--note", "weight=3")
    add_key(path, "second", "--priority=7")
    add_key(path, "plain")
    lines = {l.split(" ")[0]: l for l in path.read_text().splitlines()}
    assert lines["first"].endswith("Z weight=100 priority=-100 note=weight=3")
    assert lines["second"].endswith("Z priority=7") and lines["plain"].endswith("Z")
    listed = [re.split(r" {2,}", l) for l in ingot(tmp_path, "keys", "list", "--file", path).stdout.splitlines()]
    at = listed[0].index("WEIGHT")
    assert [(l[0], l[at], l[at + 1]) for l in listed] == [
        ("ID", "WEIGHT", "PRIORITY"), ("first", "100", "-100"), ("second", "1", "7"), ("plain", "1", "0")]
    for args in (["--weight", "0"], ["--weight", "101"], ["--weight", "two"], ["--priority", "101"], ["--priority", "-101"],
                 ["--priority", "0.5"], ["--priority"]):
        r = ingot(tmp_path, "keys", "add", "x", "--file", path, *args, check=False)
        assert r.returncode == 2 and r.stderr.startswith("ingot: keys: " + args[0]), (args, r.stderr)
    for args in (["list", "--weight", "1"], ["remove", "first", "--priority", "0"]):
        assert ingot(tmp_path, "keys", *args, "--file", path, check=False).returncode == 2
    assert sorted(lines) == sorted({l.split(" ")[0] for l in path.read_text().splitlines()})
    text = path.read_text()
    for word in ("weight=0", "priority=1.5", "weight=2 weight=2"):
        path.write_text(text + re.sub("[0-9a-f]{64}", "0" * 64, lines["plain"].replace("plain", "bad")) + " " + word + "\n")
        r = ingot(tmp_path, "keys", "list", "--file", path, check=False)
        assert r.returncode == 1 and "%s:%d: " % (path, len(text.splitlines()) + 1) in r.stderr, r.stderr


def test_keys_of_requests(start, models, tmp_path):
    """The number of a request beside its key's: in the list of what runs, and in the ledger."""
    path = tmp_path / "keys"
    keys = {"boss": add_key(path, "boss", "--admin"), "early": add_key(path, "early", "--priority", -10),
            "late": add_key(path, "late", "--priority", 5)}
    d = start(extra={"models": [{"name": "tiny", "path": models.script()}, {"name": "slow", "path": models.slow()}],
                     "server": {"keys_file": str(path), "allow_anonymous": True}})
    asked = [("boss", None, 0), ("boss", -1, 0), ("early", None, -10), ("early", -50, -10), ("early", -9, -9),
             ("late", None, 5), ("late", 0, 5), ("late", 6, 6), (None, -3, 0)]
    for name, own, _ in asked:
        what = {} if own is None else {"priority": own}
        assert post(d, "/v1/chat/completions", bearer(keys[name]) if name else None, **what).status == 200
    got = until_rows(d, len(asked))
    assert [(r["key"], r["priority"]) for r in got] == [(name or "", want) for name, _, want in asked]

    ws = d.ws(additional_headers=bearer(keys["late"]))
    ws.create(model="slow", priority=8)
    ws.until_type("response.created")
    boss = bearer(keys["boss"])
    running, = d.http("GET", "/v1/ingot/requests", headers=boss).json["data"]
    assert (running["key"], running["priority"]) == ("late", 8)
    ws.abort()
    until_rows(d, len(asked) + 1)
    row, = d.http("GET", "/v1/ingot/ledger?limit=1", headers=boss).json["data"]
    assert (row["key"], row["priority"], row["finish"]) == ("late", 8, "cancelled")

    listed = d.http("GET", "/v1/ingot/keys", headers=boss).json["data"]
    assert [(k["id"], k["weight"], k["priority"]) for k in listed] == [("boss", 1, 0), ("early", 1, -10), ("late", 1, 5)]
    made = d.http("POST", "/v1/ingot/keys", {"id": "new", "weight": 9, "priority": -2}, headers=boss)
    assert made.status == 200 and (made.json["weight"], made.json["priority"]) == (9, -2)
    assert "weight=9 priority=-2" in path.read_text()
    for name, value in (("weight", 0), ("weight", 101), ("weight", "2"), ("priority", -101), ("priority", 1.5)):
        r = d.http("POST", "/v1/ingot/keys", {"id": "x", name: value}, headers=boss)
        assert r.status == 400 and r.error["param"] == name, r
    # a changed file holds when it is read again
    path.write_text(path.read_text().replace("priority=5", "priority=50"))
    hang_up(d, "reload: 4 keys")
    assert post(d, "/v1/chat/completions", bearer(keys["late"])).status == 200
    assert until_rows(d, len(asked) + 2)[-1]["priority"] == 50
