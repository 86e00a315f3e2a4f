"""What survives a stop, a crash and an upgrade: stored responses, the ledger, the service itself."""
import contextlib
import os
import pathlib
import random
import sqlite3
import threading
import time

import pytest

from daemon import Daemon, until


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
