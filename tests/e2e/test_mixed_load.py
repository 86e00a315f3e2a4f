"""Five minutes of everything at once: clients that talk, cancel, leave, stall and lie, while
models come and go with the configuration.  Under a sanitizer this is what finds the races
and leaks that no single test provokes; `./check --long` runs it so."""
import json
import os
import random
import signal
import socket
import threading
import time

import pytest

from daemon import DEADLINE_S, SANITIZER, rss_bytes, text_of, until
from rawsocket import TEXT, WebSocket, fragments, frame
from test_hostile_http import SMUGGLING, chunked, everything, request
from test_hostile_json import TEXTS, ask, body
from test_ledger import rows
from tiny_model import SCRIPT

SECONDS = int(os.environ.get("INGOT_TEST_LOAD_S", 300))
CHAT = "/v1/chat/completions"


def messages(**options):
    return dict({"model": "tiny", "messages": [{"role": "user", "content": "hi"}],
                 "temperature": 0}, **options)


def create(model):
    return json.dumps({"type": "response.create", "model": model, "input": "x"}).encode()


class Load:
    """Threads that each repeat one thing until the end; the first thing that is wrong ends all."""

    def __init__(self, d):
        self.d, self.end, self.wrong, self.done = d, time.monotonic() + SECONDS, [], {}
        self.lock, self.threads, self.kinds = threading.Lock(), [], set()

    def add(self, what, n=1):
        self.kinds.add(what.__name__)
        for i in range(n):
            t = threading.Thread(target=self.run,
                                 args=(what, random.Random("%s %d" % (what.__name__, i))))
            self.threads.append(t)

    def run(self, what, rng):
        try:
            while time.monotonic() < self.end and not self.wrong:
                what(rng)
                with self.lock:
                    self.done[what.__name__] = self.done.get(what.__name__, 0) + 1
        except Exception as e:  # noqa: BLE001 - whatever it was, the test reports it
            self.wrong.append("%s: %r" % (what.__name__, e))

    def finish(self):
        for t in self.threads:
            t.start()
        for t in self.threads:
            t.join(SECONDS + 4 * DEADLINE_S)
            assert not t.is_alive(), "a client hangs; done so far: %r" % self.done
        assert self.wrong == []


@pytest.mark.long
@pytest.mark.tsan
def test_mixed_load(start, models):
    extra = {
        "models": [{"name": "tiny", "path": models.script()},
                   {"name": "random", "path": models.random()},
                   {"name": "loop", "path": models(kind="loop", n_context=4096)},
                   {"name": "flood", "path": models(kind="flood", n_context=65536)}],
        "kvcache": {"arena": 128 << 20},
        "server": {"client_buffer": 16384, "slow_client_timeout": "3s", "max_connections": 200},
    }
    d = start(extra=extra)
    known = {i: d.chat_text("question %d" % i, model="random", max_tokens=40) for i in range(8)}
    load = Load(d)

    def conversations(rng):
        c = d.ws()
        for _ in range(rng.randrange(1, 6)):
            assert text_of(c.answer("hello")) == SCRIPT
        c.close()

    def lanes(rng):
        c = d.ws()
        names = ["lane-%d" % i for i in range(4)]
        for name in names:
            c.create("hello", stream_id=name)
        events = []
        while sum(e["type"] == "response.completed" for e in events) < 4:
            events.append(c.event())
            assert events[-1]["type"] != "error", events[-1]
        for name in names:
            assert text_of([e for e in events if e["stream_id"] == name]) == SCRIPT
        c.close()

    def whole_answers(rng):
        i = rng.randrange(8)
        assert d.chat_text("question %d" % i, model="random", max_tokens=40) == known[i]

    def streams(rng):
        r = d.http("POST", CHAT, messages(stream=True))
        chunks = [json.loads(e) for e in r.events() if e != "[DONE]"]
        deltas = [c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"]]
        assert "".join(deltas) == SCRIPT

    def chunked_bodies(rng):
        data = json.dumps(messages()).encode()
        cut = rng.randrange(1, len(data))
        r = d.raw(request([b"Transfer-Encoding: chunked"], chunked(data[:cut], data[cut:])))
        assert r.status == 200 and r.json["choices"][0]["message"]["content"] == SCRIPT, r

    def cancels(rng):
        c = d.ws()
        c.create("hello", model="loop")
        c.until_type("response.output_text.delta")
        c.send({"type": "response.cancel"})
        c.until_type("response.incomplete", "response.completed")
        c.close()

    def leaves(rng):
        w = WebSocket(d)
        w.send(frame(TEXT, create("loop")))
        for _ in range(rng.randrange(1, 40)):
            w.read()
        w.reset() if rng.random() < 0.7 else w.close()

    def leaves_http(rng):
        s = d.connect()
        data = json.dumps(messages(model="loop", stream=True)).encode()
        s.sendall(request(["Content-Length: %d" % len(data)], data)[:rng.randrange(1, 400)])
        s.settimeout(0.05)
        try:
            s.recv(rng.randrange(1, 3000))
        except OSError:
            pass
        s.close()

    def stalls(rng):
        w = WebSocket(d, receive_buffer=4096)
        w.send(frame(TEXT, create("flood")))
        time.sleep(rng.uniform(0.5, 6))
        w.reset()

    def frames_at_random(rng):
        w = WebSocket(d)
        for _ in range(rng.randrange(1, 20)):
            data = rng.randbytes(rng.choice((0, 1, 5, 125, 126, 3000)))
            w.send(frame(rng.choice((0, 1, 1, 1, 2, 3, 8, 9, 9, 10, 15)), data,
                         fin=rng.random() < 0.7,
                         mask=rng.random() < 0.9, reserved=rng.choice((0, 0, 0, 0, 1, 7))))
        w.reset()

    def fragmented(rng):
        w = WebSocket(d)
        w.send(*fragments(json.dumps({"type": "response.steer", "input": "x" * 3000}).encode(),
                          rng.randrange(1, 500)))
        kind, got = w.read()
        assert kind == "text" and json.loads(got)["steer"]["input"] == "x" * 3000
        w.close()

    def smuggles(rng):
        name = rng.choice([n for n, row in SMUGGLING.items() if row and 200 not in row[2]])
        headers, data, _ = SMUGGLING[name]
        got, statuses = everything(d, request(headers, data))
        assert b"smuggled" not in got and 200 not in statuses, (name, got)

    def nonsense(rng):
        endpoint = rng.choice(("chat", "completions", "responses", "messages", "websocket"))
        status, code, _ = ask(d, endpoint, rng.choice(list(TEXTS.values())))
        assert status == 400 and code
        assert ask(d, endpoint, body(endpoint, b"[" * 5000))[0] == 400

    def bytes_at_random(rng):
        s = d.connect()
        try:
            s.sendall(rng.randbytes(rng.randrange(1, 3000)))
            s.shutdown(socket.SHUT_WR)
            s.recv(4096)
        except OSError:
            pass
        s.close()

    def looks(rng):
        d.metrics()
        assert d.http("GET", "/v1/models").status == 200
        rows(d)
        time.sleep(0.2)

    def reloads(rng):
        """Another model comes and goes; a figure changes."""
        changed = json.loads(json.dumps(d.config))
        names = [m["name"] for m in changed["models"]]
        if "guest" in names:
            changed["models"].pop(names.index("guest"))
        else:
            changed["models"].append({"name": "guest", "path": models(kind="script", n_blocks=1)})
        changed["server"]["keepalive_interval"] = rng.choice(("100ms", "5s"))
        d.write_config(changed)
        d.process.send_signal(signal.SIGHUP)
        time.sleep(rng.uniform(1, 4))

    def asks_the_guest(rng):
        r = d.chat(model="guest")
        assert r.status in (200, 404, 503), r
        time.sleep(0.1)

    load.add(conversations, 2)
    load.add(whole_answers, 2)
    for what in (lanes, streams, chunked_bodies, cancels, leaves, leaves_http, frames_at_random,
                 fragmented,
                 smuggles, nonsense, bytes_at_random, looks, reloads, asks_the_guest):
        load.add(what)
    load.add(stalls, 2)
    before = rss_bytes(d)
    load.finish()
    d.until_idle()
    until(lambda: d.metrics().sum("ingot_connections") <= 3, "all connections are gone")
    assert d.chat_text() == SCRIPT
    assert set(load.done) == load.kinds, load.done
    print(load.done)
    # Every request that began has ended with a reason.
    ends = {(r["finish"], r["cancel_reason"] or "") for r in rows(d)}
    assert ends <= {("stop", ""), ("length", ""), ("refused", ""), ("cancelled", "client_gone"),
                    ("cancelled", "client_cancel"), ("cancelled", "slow_client")}, ends
    assert d.metrics().sum("ingot_ledger_rows_dropped_total") == 0
    if not SANITIZER:
        grown = rss_bytes(d) - before
        assert grown < 300 << 20, "%d MiB more" % (grown >> 20)
