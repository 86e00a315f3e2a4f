"""The engine with everything on, for as long as one likes: clients that come at random, cancel, leave and run late,
conversations that fork, reloads, unloads, a full disk, damaged files, SIGKILL and another start.  A reply is the same
whenever it is complete, each request is in the ledger once, and nothing grows.  `./check --long` has an hour of it."""
import contextlib
import json
import os
import random
import resource
import signal
import sqlite3
import statistics
import threading
import time

import pytest

from daemon import PATIENCE, SANITIZER, rss_bytes, text_of, until
from test_disk_full import Limit
from test_kv_disk import files
from tiny_model import SCRIPT

CHAT = "/v1/chat/completions"
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "n": {"type": "boolean"}},
          "required": ["name", "n"], "additionalProperties": False}
N_REQUESTS = 150  # different ones, asked for again and again
N_CLIENTS = 6
LEAST_S = 120  # of a life; in a shorter one memory only shows what is used for the first time


def said(role, rng, n):
    return {"role": role, "content": " ".join("%s%d" % (rng.choice("abcdefgh"), rng.randrange(40)) for _ in range(n))}


def request(k):
    """The k-th request: one of twelve conversations, which share beginnings, and what it asks for."""
    rng, talk = random.Random(k), random.Random("talk %d" % (k % 12))
    messages = [said("system", random.Random("system %d" % (k % 3)), 60)]
    for _ in range(rng.randrange(5)):
        messages += [said("user", talk, 20), said("assistant", talk, 20)]
    body = {"model": rng.choice(("random", "random", "other")), "messages": [*messages, said("user", rng, 12)],
            "max_tokens": rng.randrange(1, 60), "temperature": rng.choice((0, 0.8)), "seed": k}
    for share, more in ((0.15, {"n": 2}), (0.2, {"logprobs": True, "top_logprobs": 3}), (0.15, {"frequency_penalty": 0.5}),
                        (0.2, {"stop": ["e", "zz"]}),
                        (0.2, {"prediction": {"type": "content", "content": messages[-1]["content"]}}),
                        (0.1, {"response_format": {"type": "json_schema",
                                                   "json_schema": {"name": "x", "schema": SCHEMA}}})):
        if rng.random() < share:
            body.update(more)
    return body


def reply_of(choices):
    return [(c["message"]["content"], c["finish_reason"], json.dumps(c.get("logprobs"))) for c in choices]


class Soak:
    """Clients of one daemon after the other, with the same ledger and the same folder for computed blocks."""

    def __init__(self, start, extra, seconds, folder):
        self.start, self.extra, self.seconds, self.folder = start, extra, seconds, folder
        self.lock = threading.Lock()
        self.go, self.over = threading.Event(), False
        self.n_busy, self.ending, self.wrong = 0, False, []
        self.known, self.done = {}, {}
        self.unseen, self.seen = set(), set()  # ids of complete replies, and those found in the ledger
        self.n_dropped = self.n_restored = 0
        self.d = start(extra=extra)

    # ---- what clients do ----

    def complete(self, rng, **more):
        """A whole reply; the same as ever."""
        k = rng.randrange(N_REQUESTS)
        r = self.d.http("POST", CHAT, {**request(k), **more})
        assert r.status == 200, r
        choices, id_ = r.json["choices"], r.json["id"]
        self.keep(("chat", k), reply_of(choices),
                  *(["%s-%d" % (id_, i) for i in range(len(choices))] if len(choices) > 1 else [id_]))

    def knows(self, rng):
        assert self.d.chat_text("soak %d" % rng.randrange(1000)) == SCRIPT

    def in_a_hurry(self, rng):
        self.complete(rng, priority=rng.randrange(3))

    def late(self, rng):
        r = self.d.http("POST", CHAT, {**request(rng.randrange(N_REQUESTS)), "deadline": rng.choice((0.001, 0.02, 0.5))})
        assert r.status == 200 or r.error["code"] == "deadline_exceeded", r

    def streams(self, rng):
        k = rng.randrange(N_REQUESTS)
        r = self.d.http("POST", CHAT, {**request(k), "stream": True, "n": 1})
        assert r.status == 200, r
        *events, end = r.events()
        assert end == "[DONE]", end  # a stream's end is the connection's, which SIGKILL brings, too
        events = [json.loads(e) for e in events]
        text = "".join(c["delta"].get("content") or "" for e in events for c in e["choices"])
        self.keep(("stream", k), text, events[0]["id"])

    def talks(self, rng):
        """Two responses on a WebSocket."""
        c = self.d.ws()
        for k in (rng.randrange(40), rng.randrange(40)):
            events = c.answer("%d %s" % (k, "and so on " * (k * 3)), model="random", max_output_tokens=1 + k)
            assert events[-1]["type"] in ("response.completed", "response.incomplete"), events[-1]
            self.keep(("response", k), text_of(events), events[-1]["response"]["id"])
        c.close()

    def cancels(self, rng):
        c = self.d.ws()
        c.create("go on", model="slow")
        c.until_type("response.output_text.delta")
        c.send({"type": "response.cancel"})
        c.until_type("response.incomplete", "response.completed")
        c.close()

    def leaves(self, rng):
        c = self.d.ws()
        c.create("go on", model="slow")
        c.until_type("response.output_text.delta")
        c.abort()

    def is_ended(self, rng):
        """Somebody else ends it."""
        c = self.d.ws()
        c.create("go on", model="slow")
        events = c.until_type("response.output_text.delta")
        r = self.d.http("DELETE", "/v1/ingot/requests/" + events[0]["response"]["id"])
        assert r.status in (200, 404), r
        c.until_type("response.incomplete", "response.completed", "response.failed")
        c.close()

    def hangs_up(self, rng):
        s = self.d.connect()
        data = json.dumps({**request(rng.randrange(N_REQUESTS)), "stream": True}).encode()
        s.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                  % (CHAT.encode(), len(data)) + data)
        s.settimeout(0.05)
        with contextlib.suppress(OSError):
            s.recv(rng.randrange(1, 2000))
        s.close()

    def too_long(self, rng):
        r = self.d.http("POST", CHAT, {"model": "random", "messages": [said("user", rng, 3000)]})
        assert r.status == 400 and r.error["code"] == "context_length_exceeded", r

    def looks(self, rng):
        self.d.metrics()
        assert self.d.http("GET", "/v1/ingot/requests").status == 200
        assert self.d.http("GET", "/v1/ingot/status").status == 200

    # ---- what else happens ----

    def unloads(self, rng):
        r = self.d.http("POST", "/v1/ingot/models/unload", {"model": "other"})
        assert r.status in (200, 404, 409), r

    def reloads(self, rng):
        config = json.loads(json.dumps(self.d.config))
        config["scheduler"].update(speculation=rng.choice(("off", "lookup", "draft", "mtp", "on")), prompt_share=rng.choice((5, 36, 95)))
        self.d.write_config(config)
        self.d.process.send_signal(signal.SIGHUP)

    def fills_the_disk(self, rng):
        limit = Limit(self.folder)
        limit.fill(self.d)
        time.sleep(rng.uniform(0.05, 0.5))
        limit.free(self.d)

    def damages(self, rng):
        for path in rng.sample(files(self.folder / "kv"), 2):
            with contextlib.suppress(OSError):  # it may be removed just now
                data = bytearray(path.read_bytes())
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                path.write_bytes(data[:rng.choice((len(data), len(data) // 2))])

    def removes(self, rng):
        for path in rng.sample(files(self.folder / "kv"), 2):
            path.unlink(missing_ok=True)

    # ---- the run ----

    CLIENTS = {complete: 8, knows: 1, in_a_hurry: 3, streams: 5, talks: 3, late: 2, cancels: 1, leaves: 2, is_ended: 1, hangs_up: 2,
               too_long: 1, looks: 1}
    FAULTS = {unloads: 2, reloads: 3, fills_the_disk: 1, damages: 1, removes: 1}

    def keep(self, key, reply, *ids):
        """ids: of its rows."""
        with self.lock:
            assert self.known.setdefault(key, reply) == reply, (key, reply, self.known[key])
            assert not (self.seen | self.unseen).intersection(ids), "%s twice" % ids
            self.unseen.update(ids)

    def thread(self, what, rng, pause_s):
        while not self.over:
            with self.lock:
                goes = self.go.is_set()
                self.n_busy += goes
            if not goes:
                self.go.wait(0.05)
                continue
            one = rng.choices(list(what), what.values())[0]
            try:
                one(self, rng)
                with self.lock:
                    self.done[one.__name__] = self.done.get(one.__name__, 0) + 1
            except ValueError:
                if one.__name__ not in ("damages", "removes"):  # there are no files yet
                    self.wrong.append("%s: a value" % one.__name__)
            except Exception as e:  # noqa: BLE001 - whatever it was, the test reports it
                if not self.ending:
                    self.wrong.append("%s: %r" % (one.__name__, e))
            with self.lock:
                self.n_busy -= 1
            time.sleep(rng.expovariate(1 / pause_s))

    def stand_still(self):
        self.go.clear()
        until(lambda: self.n_busy == 0, "all clients are done")

    def find_rows(self):
        """All complete replies are in the ledger, but those that it says it could not write."""
        db = sqlite3.connect("file:%s?mode=ro" % self.d.config["ledger"]["path"], uri=True, timeout=10)
        with contextlib.closing(db):
            found = {r[0] for r in db.execute("SELECT id FROM requests")}
        new = self.unseen & found
        self.seen |= new
        self.unseen -= new
        return len(self.unseen) <= self.n_dropped + self.d.metrics().sum("ingot_ledger_rows_dropped_total")

    def look(self):
        """Nothing is under way: bytes of memory and descriptors."""
        self.stand_still()
        self.d.until_idle()
        until(lambda: self.d.metrics().sum("ingot_connections") <= 1, "all connections are gone")
        assert self.wrong == []
        until(self.find_rows, "each reply has its row")
        return rss_bytes(self.d), len(os.listdir("/proc/%d/fd" % self.d.process.pid))

    def all_has_come(self):
        return set(self.done) == {f.__name__ for f in (*self.CLIENTS, *self.FAULTS)} and self.restored() > 0

    def restored(self):
        """Tokens, in all lives: one that finds files slower than computing may leave the next one few to try."""
        return self.n_restored + self.d.metrics().sum("ingot_kv_cache_disk_restored_tokens_total")

    def life(self, seconds, last):
        """Until SIGKILL; what look() saw.  The last one, if it is short, ends when all has come that may come."""
        begin, points = time.monotonic(), []

        def goes_on():
            lasts = time.monotonic() - begin
            return lasts < seconds or len(points) < 3 or (last and lasts < LEAST_S * PATIENCE and not self.all_has_come())
        while goes_on() and not self.wrong:
            self.go.set()
            time.sleep(max(0.3, seconds / 25))
            points.append(self.look())
        return points

    def end_life(self):
        self.n_restored = self.restored()
        self.n_dropped += int(self.d.metrics().sum("ingot_ledger_rows_dropped_total"))
        self.go.set()
        time.sleep(0.3)
        self.ending = True
        self.d.kill()
        self.stand_still()
        self.ending = False
        self.unseen.clear()  # the ledger is written in batches: what ended just before may be lost
        self.n_dropped = 0
        self.d.check_reports()

    def run(self):
        threads = [threading.Thread(target=self.thread, args=(self.CLIENTS, random.Random("client %d" % i), 0.05))
                   for i in range(N_CLIENTS)]
        threads.append(threading.Thread(target=self.thread, args=(
            self.FAULTS, random.Random("faults"), 0.5 if self.seconds >= LEAST_S else 0.15)))
        for t in threads:
            t.start()
        lives = []
        try:
            n = max(2, self.seconds // 600)
            for i in range(n):
                lives.append(self.life(self.seconds / n, i == n - 1))
                if i < n - 1 and not self.wrong:
                    self.end_life()
                    self.d = self.start(extra=self.extra)
        finally:
            self.over = True
            for t in threads:
                t.join()
        assert self.wrong == []
        return lives


def assert_no_growth(points, seconds):
    """Descriptors stay; memory grows by no more than it goes up and down."""
    descriptors = [n for _, n in points[1:]]
    assert max(descriptors) - min(descriptors) <= 2, descriptors
    memory = [m for m, _ in points[len(points) // 3:]]
    if SANITIZER or seconds < LEAST_S:  # a sanitizer keeps what was freed for a while
        return
    assert memory[-1] <= points[0][0] + (64 << 20), [m >> 10 for m in memory]
    slope, at = statistics.linear_regression(range(len(memory)), memory)
    spread = statistics.pstdev(m - at - slope * i for i, m in enumerate(memory))
    assert slope * len(memory) <= (1 << 20) + 3 * spread, [m >> 10 for m in memory]


def soak(start, models, tmp_path, seconds):
    s = Soak(start, {
        "models": [{"name": "tiny", "path": models.script()},
                   {"name": "random", "path": models.random()}, {"name": "other", "path": models.random(width=128)},
                   {"name": "slow", "path": models.slow(), "draft": models.quick()}],
        # not all conversations have space, in memory nor on disk
        "kvcache": {"arena": 10 << 20, "disk": str(tmp_path / "kv"), "disk_size": 4 << 20},
        "scheduler": {"speculation": "on", "max_seqs": 4},
        "responses": {"max_stored": 50},
        "runtime": {"strict": False},
    }, seconds, tmp_path)
    lives = s.run()
    m = s.d.metrics()
    db = sqlite3.connect("file:%s?mode=ro" % s.d.config["ledger"]["path"], uri=True)
    with contextlib.closing(db):
        twice = db.execute("SELECT id FROM requests WHERE id != '' GROUP BY id HAVING COUNT(*) > 1").fetchall()
        ids = {r[0] for r in db.execute("SELECT id FROM requests")}
    assert twice == [] and s.seen <= ids
    assert s.all_has_come(), (s.done, s.restored())
    assert m.sum("ingot_kv_cache_disk_bytes") <= 4 << 20
    for points in lives:
        assert_no_growth(points, seconds / len(lives))
    print(json.dumps({"done": s.done, "restored": [s.n_restored, s.restored()], "lives": [[[m >> 10, n] for m, n in p] for p in lives]}))


linux = pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only on Linux")


@pytest.mark.home("tsan")
@pytest.mark.tsan
@linux
def test_soak_for_a_moment(start, models, tmp_path):
    soak(start, models, tmp_path, 5 * PATIENCE)


@linux
@pytest.mark.long
@pytest.mark.tsan
def test_soak(start, models, tmp_path):
    soak(start, models, tmp_path, int(os.environ.get("INGOT_SOAK_S", 3600)))
