"""The ledger: one true row a request, no text, one daemon, and what happens without a disk."""
import pathlib
import re
import signal
import sqlite3

import pytest

from daemon import until
from tiny_model import SCRIPT


def rows(d):
    """All rows of a running daemon's ledger, oldest first, as dicts."""
    path = pathlib.Path(d.config["ledger"]["path"])
    if not path.exists():
        return []
    db = sqlite3.connect("file:%s?mode=ro" % path, uri=True, timeout=10)
    try:
        db.row_factory = sqlite3.Row
        return [dict(r) for r in db.execute("SELECT * FROM requests ORDER BY row")]
    finally:
        db.close()


def until_rows(d, n):
    return until(lambda: (lambda r: r if len(r) >= n else None)(rows(d)), "%d rows" % n)


def test_rows_are_true(start, models):
    d = start(extra={"models": [{"name": "tiny", "path": models.script()},
                                {"name": "slow", "path": models.slow()}]})
    r = d.chat(max_tokens=5).json
    c = d.ws()
    done = c.answer("hi")[-1]["response"]
    c.create("hi", model="slow")
    events = c.until_type("response.output_text.delta")
    c.send({"type": "response.cancel", "response_id": events[0]["response"]["id"]})
    c.until_type("response.incomplete")
    until_rows(d, 3)  # rows are written in the order in which requests end
    gone = d.ws()
    gone.create("hi", model="slow")
    gone.until_type("response.output_text.delta")
    gone.abort()
    d.until_idle()
    until_rows(d, 4)
    assert d.chat(model="zeppelin").status == 404
    until_rows(d, 5)
    assert d.chat("word " * 3000).status == 400
    got = until_rows(d, 6)
    assert len(got) == 6
    whole, answered, cancelled, left, unknown, long_prompt = got

    assert whole["id"] == r["id"] and whole["model"] == "tiny"
    assert "chat/completions" in whole["endpoint"] and whole["client"].startswith("127.0.0.1")
    assert (whole["finish"], whole["cancel_reason"] or "", whole["status"]) == ("length", "", 200)
    assert (whole["prompt_tokens"], whole["output_tokens"]) == (
        r["usage"]["prompt_tokens"], r["usage"]["completion_tokens"])

    assert answered["id"] == done["id"] and "responses" in answered["endpoint"]
    assert (answered["finish"], answered["status"]) == ("stop", 200)
    assert answered["prompt_tokens"] == done["usage"]["input_tokens"]
    assert answered["output_tokens"] == done["usage"]["output_tokens"]
    for row in (whole, answered):
        for key in ("queue_ms", "prefill_ms", "decode_ms", "ttft_ms", "total_ms"):
            assert 0 <= row[key] < 60000, (key, row)
        assert row["ttft_ms"] <= row["total_ms"]

    assert (cancelled["finish"], cancelled["cancel_reason"]) == ("cancelled", "client_cancel")
    assert (left["finish"], left["cancel_reason"]) == ("cancelled", "client_gone")
    assert cancelled["output_tokens"] > 0
    assert (unknown["status"], unknown["finish"]) == (404, "refused")
    assert "zeppelin" in unknown["error"] or unknown["model"] == "zeppelin"
    assert (long_prompt["status"], long_prompt["finish"]) == (400, "refused")
    assert long_prompt["error"]


def test_shutdown_is_a_reason(start, models):
    d = start(extra={"models": [{"name": "slow", "path": models.slow()}],
                     "server": {"drain_timeout": "200ms"}})
    c = d.ws()
    c.create("hi", model="slow")
    c.until_type("response.output_text.delta")
    d.process.send_signal(signal.SIGTERM)
    assert d.wait_exit() == 0
    row, = rows(d)
    assert (row["finish"], row["cancel_reason"]) == ("cancelled", "shutdown")


def test_no_text_is_kept(start, models):
    """Neither what was asked nor what was answered is anywhere in the ledger's files."""
    secret = "Zq7XpromptXWv"
    d = start(models.script())
    assert d.chat_text(secret) == SCRIPT
    assert d.chat(secret, zeppelin=secret).status == 200
    assert d.chat(secret, functions=[secret]).status == 400
    assert d.http("POST", "/v1/chat/completions", ("{" + secret).encode()).status == 400
    c = d.ws()
    c.answer(secret, instructions=secret, metadata={secret: secret})
    until_rows(d, 2)
    d.stop()
    path = pathlib.Path(d.config["ledger"]["path"])
    data = b"".join(p.read_bytes() for p in path.parent.glob(path.name + "*"))
    assert len(rows(d)) >= 2 and b"tiny" in data
    assert secret.encode() not in data and b"foxtrot" not in data


def test_request_ids(start, models):
    """What the reply's x-request-id says, the row and the log say too, whatever came of it."""
    d = start(models.script(), {"log": {"level": "debug"}})
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
    said = []
    for method, path, data, sent in (
            ("POST", "/v1/chat/completions", body, "trace-7/a"),
            ("POST", "/v1/chat/completions", body, None),
            ("POST", "/v1/messages", dict(body, max_tokens=4), "two"),
            ("POST", "/v1/responses", b"{", "three"),
            ("POST", "/v1/completions", {"model": "nix", "prompt": "a"}, "four"),
            ("POST", "/v1/completions", b"{}", "x" * 64),
            ("POST", "/v1/completions", b"{}", "x" * 65),
            ("POST", "/v1/completions", b"{}", "a b")):
        said.append(d.http(method, path, data,
                           {"X-Request-Id": sent} if sent else None).headers["x-request-id"])
        if sent and len(sent) <= 64 and " " not in sent:
            assert said[-1] == sent
        else:
            assert re.fullmatch("req_[0-9a-f]{24}", said[-1])
    for sent in ("socket", None):
        c = d.ws(additional_headers={"x-request-id": sent} if sent else None)
        found = c.ws.response.headers["x-request-id"]
        assert found == sent or not sent and found.startswith("req_")
        for _ in range(2):  # all that is asked on it has the same
            c.answer()
            said.append(found)
        c.close()
    until_rows(d, len(said))
    assert sorted(r["request_id"] for r in rows(d)) == sorted(said)
    assert len(set(said)) == len(said) - 2
    until(lambda: all("x-request-id %s, " % i in d.log for i in said), "the log has them")
    ids = {r["request_id"]: r["id"] for r in rows(d)}
    assert ("request %s: x-request-id trace-7/a, POST /v1/chat/completions, status 200, stop"
            % ids["trace-7/a"]) in d.log


def test_schema(start, models):
    d = start(models.script())
    d.chat()
    until_rows(d, 1)
    db = sqlite3.connect(d.config["ledger"]["path"])
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert db.execute("PRAGMA user_version").fetchone()[0] >= 1
    sql, = db.execute("SELECT sql FROM sqlite_master WHERE name = 'requests'").fetchone()
    assert "STRICT" in sql.upper()
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


def test_two_daemons_on_one_ledger(start, models):
    d = start(models.script())
    path = d.config["ledger"]["path"]
    log = start.refused(models.script(), {"ledger": {"path": path}})
    assert path in log
    assert d.chat_text() == SCRIPT
    d.stop()
    assert start(models.script(), {"ledger": {"path": path}}).chat_text() == SCRIPT


def test_ledger_that_cannot_be_written(start, models, tmp_path):
    """Root may write everywhere, so the folder's place is taken by a file, and the file's by
    a folder."""
    taken = tmp_path / "taken"
    taken.write_text("a file, not a folder")
    log = start.refused(models.script(), {"ledger": {"path": str(taken / "ledger.db")}})
    assert str(taken) in log
    folder = tmp_path / "folder.db"
    folder.mkdir()
    log = start.refused(models.script(), {"ledger": {"path": str(folder)}})
    assert str(folder) in log


def test_ledger_that_is_no_database(start, models, tmp_path):
    path = tmp_path / "ledger.db"
    path.write_bytes(b"this is no database, but it is long enough to be one. " * 100)
    log = start.refused(models.script(), {"ledger": {"path": str(path)}})
    assert str(path) in log
    assert path.read_bytes().startswith(b"this is no database"), "it was overwritten"


def test_ledger_of_a_later_version(start, models, tmp_path):
    d = start(models.script())
    d.stop()
    path = d.config["ledger"]["path"]
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    log = start.refused(models.script())
    assert path in log and "99" in log


def test_ledger_of_another_program(start, models, tmp_path):
    path = tmp_path / "ledger.db"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE precious (a)")
    db.close()
    log = start.refused(models.script(), {"ledger": {"path": str(path)}})
    assert str(path) in log
    db = sqlite3.connect(path)
    assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("precious",)]
    db.close()


def test_ledger_off(start, models):
    d = start(models.script(), {"ledger": {"enabled": False}})
    assert d.chat_text() == SCRIPT
    assert not pathlib.Path(d.config["ledger"]["path"]).exists()


@pytest.mark.tsan
def test_kill_9_and_start_again(start, models):
    d = start(models.script())
    for _ in range(3):
        assert d.chat_text() == SCRIPT
    until_rows(d, 3)
    d.process.send_signal(signal.SIGKILL)
    assert d.wait_exit() == -signal.SIGKILL
    again = start(models.script())
    assert again.config["ledger"]["path"] == d.config["ledger"]["path"]
    assert again.chat_text() == SCRIPT
    assert len(until_rows(again, 4)) == 4
    db = sqlite3.connect(again.config["ledger"]["path"])
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()
