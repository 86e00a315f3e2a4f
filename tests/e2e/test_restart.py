"""What survives a stop, a crash and an upgrade: stored responses, the ledger, the service itself."""
import contextlib
import http.client
import os
import pathlib
import random
import re
import signal
import socket
import sqlite3
import subprocess
import threading
import time

import pytest

from daemon import BUILD, Daemon, until


def responses_path(d):
    path = pathlib.Path(d.config["ledger"]["path"])
    return path.with_name(path.stem + "-responses.db")


def number(path, sql, *args):
    db = sqlite3.connect("file:%s?mode=ro" % path, uri=True, timeout=10)
    try:
        return db.execute(sql, args).fetchone()[0]
    finally:
        db.close()


def until_written(d, response):
    until(lambda: number(responses_path(d), "SELECT count(*) FROM responses WHERE id = ?", response["id"]),
          "it is on the disk")


def respond(d, text, headers=None, **options):
    body = {"model": "tiny", "input": text, "temperature": 0, "max_output_tokens": 8, **options}
    r = d.http("POST", "/v1/responses", body, headers)
    assert r.status == 200, r
    return r.json


def text_of(response):
    return "".join(p["text"] for item in response["output"] if item["type"] == "message"
                   for p in item["content"])


@pytest.mark.tsan
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_responses_survive(start, models, how):
    d = start(models.random())
    a = respond(d, "the first")
    b = respond(d, "the second", previous_response_id=a["id"])
    c = respond(d, "the third", previous_response_id=b["id"])
    other = respond(d, "the third")
    assert text_of(c) != text_of(other)  # the answer depends on what was before
    gone = respond(d, "not kept", store=False)
    deleted = respond(d, "to be deleted")
    assert d.http("DELETE", "/v1/responses/" + deleted["id"]).status == 200
    d.http("DELETE", "/v1/responses/" + a["id"])
    status = d.http("GET", "/v1/ingot/status").json["responses"]
    assert status["stored"] == 3 and status["persist"] and not status["failing"]
    until_written(d, other)
    until(lambda: number(responses_path(d), "SELECT count(*) FROM responses WHERE listed") == 3, "all is written")
    assert os.stat(responses_path(d)).st_mode & 0o777 == 0o600
    d.kill() if how == "kill" else d.stop()

    d = start(models.random())
    assert d.http("GET", "/v1/responses/" + b["id"]).json == b
    for lost in (a, gone, deleted):
        assert d.http("GET", "/v1/responses/" + lost["id"]).status == 404
    again = respond(d, "the third", previous_response_id=b["id"])
    assert text_of(again) == text_of(c)
    items = d.http("GET", "/v1/responses/%s/input_items?order=asc" % c["id"]).json["data"]
    assert [i["content"][0]["text"] for i in items if i["type"] == "message" and i["role"] == "user"] == [
        "the first", "the second", "the third"]
    assert d.http("POST", "/v1/responses", {"model": "tiny", "input": "x", "previous_response_id": a["id"]}).status == 400


def test_persist_is_an_option(start, models):
    off = {"responses": {"persist": False}}
    d = start(models.script(), off)
    a = respond(d, "x")
    assert not responses_path(d).exists()
    assert d.http("GET", "/v1/ingot/status").json["responses"] == {
        "stored": 1, "bytes": d.http("GET", "/v1/ingot/status").json["responses"]["bytes"],
        "persist": False, "failing": False, "error": None}
    d.stop()
    d = start(models.script())
    assert d.http("GET", "/v1/responses/" + a["id"]).status == 404
    b = respond(d, "y")
    d.stop()
    d = start(models.script(), off)  # what an earlier start left is not used, and said
    assert d.http("GET", "/v1/responses/" + b["id"]).status == 404
    assert "responses.persist is off" in d.log and str(responses_path(d)) in d.log


def test_path_and_one_daemon(start, models, tmp_path):
    d = start(models.script(), {"responses": {"path": str(tmp_path / "r" / "mine.db")}})
    respond(d, "x")
    until(lambda: number(tmp_path / "r" / "mine.db", "SELECT count(*) FROM responses"), "it is there")
    log = start.refused(models.script(), {"responses": {"path": str(tmp_path / "r" / "mine.db")},
                                          "ledger": {"path": str(tmp_path / "other.db")}})
    assert "another daemon (process %d)" % d.process.pid in log and "responses.path" in log


def load(d, stop):
    """Requests of every kind until the daemon is gone."""
    previous = None
    while not stop.is_set():
        with contextlib.suppress(OSError, ValueError, KeyError):  # it was killed
            body = {"model": "tiny", "input": "and then", "max_output_tokens": 8, "previous_response_id": previous}
            r = d.http("POST", "/v1/responses", {k: v for k, v in body.items() if v}, timeout=5)
            previous = r.json["id"] if r.status == 200 else None
            d.chat(max_tokens=4)


def killed_at_random(start, models, n, seed):
    rng = random.Random(seed)
    n_rows = n_stored = 0
    many = {"responses": {"max_stored": 100000}}
    for i in range(n):
        if i % 4 == 3:  # while it starts
            early = Daemon(start.folder / ("early%d" % i), start.config(models.random(), many), wait=False)
            time.sleep(rng.random() * 0.05)
            early.kill()
            early.close()
        d = start(models.random(), many)
        path = pathlib.Path(d.config["ledger"]["path"])
        stop = threading.Event()
        threads = [threading.Thread(target=load, args=(d, stop)) for _ in range(3)]
        for t in threads:
            t.start()
        time.sleep(rng.random() * 0.25)
        d.kill()
        stop.set()
        for t in threads:
            t.join()
        for file, table in ((path, "requests"), (responses_path(d), "responses")):
            assert number(file, "PRAGMA integrity_check") == "ok", file
        rows = number(path, "SELECT count(*) FROM requests")
        assert rows >= n_rows, "rows were lost"
        n_rows = rows
        assert number(responses_path(d), "SELECT count(*) FROM responses AS r WHERE parent IS NOT NULL AND NOT EXISTS"
                      " (SELECT 1 FROM responses WHERE id = r.parent)") == 0
        n_stored = number(responses_path(d), "SELECT count(*) FROM responses")
    d = start(models.random(), many)
    status = d.http("GET", "/v1/ingot/status").json
    assert status["responses"]["stored"] == n_stored and not status["ledger"]["failing"]
    assert "responses" not in d.log
    return n_stored


def test_killed_at_random(start, models):
    assert killed_at_random(start, models, 8, seed=1)


@pytest.mark.long
def test_killed_200_times(start, models):
    assert killed_at_random(start, models, 200, seed=time.time())


# ---- a successor takes over ------------------------------------------------------------------

def successor(d):
    """Hand over; the process that serves then."""
    n = d.log.count("has taken over")
    d.process.send_signal(signal.SIGUSR2)
    d.wait_ready()
    until(lambda: d.log.count("has taken over") > n, "the old one stops accepting")
    return int(re.findall(r"process (\d+) has taken over", d.log)[-1])


class Load:
    """So many requests a second, each over a connection of its own, and what went wrong."""

    def __init__(self, d, per_second, n_threads=8):
        self.d, self.pause, self.stop = d, n_threads / per_second, threading.Event()
        self.done, self.wrong, self.slowest = 0, [], 0
        self.threads = [threading.Thread(target=self.run) for _ in range(n_threads)]
        for t in self.threads:
            t.start()

    def run(self):
        at = time.monotonic()
        while not self.stop.is_set():
            began = time.monotonic()
            try:
                r = self.d.http("GET", "/v1/models") if random.random() < 0.8 else self.d.chat(max_tokens=2)
                if r.status != 200:
                    self.wrong.append(r)
            except Exception as e:  # refused, reset, cut off
                self.wrong.append(e)
            self.done += 1
            self.slowest = max(self.slowest, time.monotonic() - began)
            at = max(at + self.pause, time.monotonic() - 0.5)
            self.stop.wait(max(0, at - time.monotonic()))

    def finish(self):
        self.stop.set()
        for t in self.threads:
            t.join()
        return self.wrong


@pytest.mark.tsan
def test_no_connection_is_refused(start, models, short):
    """Three handovers in a row under load; every request is answered, whoever was asked."""
    d = start(models.script(), {"server": {"unix_socket": str(short / "s")}})
    pids, load = [d.process.pid], Load(d, 200)
    try:
        for _ in range(3):
            until(lambda n=load.done: load.done >= n + 100, "100 more requests")
            pids.append(successor(d))
            assert d.http("GET", "/v1/ingot/status").status == 200
    finally:
        wrong = load.finish()
    assert not wrong, wrong[:5]
    assert load.done >= 300 and len(set(pids)) == 4
    with socket.socket(socket.AF_UNIX) as s:  # its other sockets went along
        s.connect(str(short / "s"))
        s.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert s.recv(100).startswith(b"HTTP/1.1 200")
    # whoever started it sees one process, and its signals reach the one that serves
    d.process.send_signal(signal.SIGHUP)
    until(lambda: "reload: %s" % d.config_path in d.log, "the successor reloads")
    d.stop()
    assert not (short / "s").exists()
    for pid in pids[1:]:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    with pytest.raises(OSError):
        d.http("GET", "/healthz")


@pytest.mark.tsan
def test_what_runs_goes_on(start, models):
    """A stream, a WebSocket and a connection that is kept open outlive the handover; responses of both are known."""
    d = start(extra={"models": [{"name": "tiny", "path": models.random()},
                                {"name": "slow", "path": models.slow()}]})
    before = respond(d, "before")
    ws = d.ws()
    ws.create("hi", model="slow", store=True, max_output_tokens=60)
    ws.until_type("response.output_text.delta")
    kept = http.client.HTTPConnection(d.host, d.port, timeout=30)
    kept.request("GET", "/healthz")
    assert kept.getresponse().read()
    successor(d)
    kept.request("GET", "/healthz")  # the old one still answers, and says that it is the last time
    r = kept.getresponse()
    assert (r.status, r.headers["connection"]) == (200, "close")
    assert r.read() and d.http("GET", "/v1/responses/" + before["id"]).json == before
    during = respond(d, "during", previous_response_id=before["id"])
    done = ws.until_type("response.incomplete")[-1]["response"]
    until(lambda: d.http("GET", "/v1/responses/" + done["id"]).status == 200, "the old one's is known")
    ws.close()
    until(lambda: "--guard" in pathlib.Path("/proc/%d/cmdline" % d.process.pid).read_text(), "the old one only guards")
    assert d.http("GET", "/v1/responses/" + during["id"]).json == during
    assert respond(d, "x", previous_response_id=done["id"])
    until(lambda: number(d.config["ledger"]["path"], "SELECT count(*) FROM requests") == 4, "the rows of both")


def test_a_successor_that_fails(start, models):
    """Nothing has changed, and the next attempt may work."""
    d = start(models.script())
    good = d.config_path.read_text()
    d.write_config(good + "wrong: true\n")
    d.process.send_signal(signal.SIGUSR2)
    until(lambda: "no successor: process" in d.log, "it is said")
    assert "wrong" in d.log and d.chat().status == 200
    d.write_config(good)
    successor(d)
    assert d.chat().status == 200


def test_asked_by_the_program(start, models, tmp_path):
    d = start(models.script())
    ask = [str(BUILD / "daemon" / "ingotd"), "--takeover", "--config", str(d.config_path)]
    p = subprocess.run(ask, capture_output=True, text=True, env=d.env, timeout=60)
    assert p.returncode == 0 and "process %d" % d.process.pid in p.stdout, p
    d.wait_ready()
    until(lambda: "has taken over" in d.log, "it has")
    assert d.chat().status == 200
    d.stop()
    p = subprocess.run(ask, capture_output=True, text=True, env=d.env, timeout=60)
    assert p.returncode == 1 and "no daemon runs" in p.stderr, p


def test_told_to_end_meanwhile(start, models):
    d = start(extra={"models": [{"name": "slow", "path": models.slow()}]})
    ws = d.ws()
    ws.create("hi", model="slow")
    ws.until_type("response.output_text.delta")
    pid = successor(d)
    d.process.send_signal(signal.SIGTERM)  # while the old one still has a stream
    assert d.wait_exit() == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("stopped", [False, True])
def test_told_to_end_before_the_successor_serves(start, models, stopped):
    """Both end, the old one as if it were alone; one that can't hear it is killed."""
    d = start(models.random())
    d.process.send_signal(signal.SIGUSR2)
    until(lambda: "is to take over" in d.log, "a successor is started")
    pid = int(re.findall(r"process (\d+) .* is to take over", d.log)[-1])
    if stopped:
        os.kill(pid, signal.SIGSTOP)
    d.process.send_signal(signal.SIGTERM)
    assert d.wait_exit() == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(OSError):
        socket.create_connection((d.host, d.port), timeout=5)
