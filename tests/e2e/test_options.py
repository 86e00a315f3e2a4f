"""Each option does something: the same is asked with two values, and what comes back
differs.  Options whose effect is the matter of another file are tested there: ports, folders
of modules, the memory budget, the kvcache service, allowed hosts and origins, the ledger's
path, sampling with a seed, stop strings, what pull and run send; model_wait, watch_config and a
model's load, keep_alive and pin (test_models.py)."""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import time

import pytest

from access import add_key, bearer
from conftest import Starter, configuration
from daemon import BUILD, DEADLINE_S, Daemon, clean_env, merged, read_reply, text_of, until
from test_cli import CATALOG, ingot
from test_engine import instruction_sets
from test_hostile import CHAT, post, slow_reader
from test_ledger import rows, until_rows
from test_tls import certificate
from tiny_model import SCRIPT

pytestmark = pytest.mark.home("release")

ROOT = pathlib.Path(__file__).resolve().parents[2]


def reload(d, extra, said):
    """Change the configuration under d; until its log says so."""
    n = len(d.log)
    d.write_config(merged(d.config, extra))
    d.process.send_signal(signal.SIGHUP)
    until(lambda: re.search(said, d.log[n:]), "the log says " + said)


def status(d):
    r = d.http("GET", "/v1/ingot/status")
    assert r.status == 200, r
    return r.json


def usage_and_steps(d, words, **options):
    """One chat alone: its usage, and how many steps the engine took."""
    d.until_idle()
    before = d.metrics().sum("ingot_engine_steps_total")
    r = d.chat("word " * words, **options)
    assert r.status == 200, r
    d.until_idle()
    return r.json["usage"], d.metrics().sum("ingot_engine_steps_total") - before


def held(d, n, model="slow"):
    """n requests that never end, on a connection; closed with it."""
    c = d.ws()
    for i in range(n):
        c.create("hi", model=model, stream_id="held%d" % i)
    return c


# ---- ingot.yaml: one daemon with everything set, beside one with the defaults -----------

LOOPBACK = "127.0.0.2" if sys.platform.startswith("linux") else "::1"


@pytest.fixture(scope="module")
def tuned(tmp_path_factory, models):
    folder = tmp_path_factory.mktemp("tuned")
    s = Starter(folder)
    d = s(config=configuration(folder, extra={
        "server": {"host": LOOPBACK, "max_connections": 6, "max_header": "2KiB",
                   "max_body": "4KiB", "keepalive_interval": "1h"},
        "runtime": {"driver": "cpu", "isa": "generic", "threads": 1, "activations": "f32",
                    "strict": False},
        "memory": {"budget": "512MiB"},
        "kvcache": {"arena": "32MiB", "slab": "512KiB", "dtype": "f32", "prefix_cache": False},
        "scheduler": {"max_batch_tokens": 24, "prefill_chunk": 5, "max_seqs": 2},
        "models": [{"name": "tiny", "path": models.script()},
                   {"name": "random", "path": models.random(), "context": 256},
                   {"name": "slow", "path": models.slow()}],
        "default_model": "random"}))
    yield d
    s.finish()


def test_runtime(tuned, scripted):
    a, b = status(tuned), status(scripted)
    assert a["device"] == "cpu, generic, 1 thread, activations f32"
    assert re.fullmatch("cpu, %s, 2 threads, activations auto, strict" % instruction_sets()[-1],
                        b["device"])
    assert (a["driver"], a["isa"], a["threads"]) == ("cpu", "generic", 1)
    assert (b["driver"], b["isa"], b["threads"]) == ("cpu", instruction_sets()[-1], 2)


def test_activations_and_cache_types_change_the_numbers(start, models):
    """Rounding differs, so that some draw of many falls to another token."""
    path = models.random()

    def say(activations, dtype):
        d = start(extra={"models": [{"name": "random", "path": path}],
                         "runtime": {"isa": "generic", "activations": activations},
                         "kvcache": {"dtype": dtype}})
        c = d.ws()
        text = text_of(c.answer("hello", model="random", temperature=1, seed=3,
                                max_output_tokens=400))
        d.stop()
        return text
    exact = say("f32", "f32")
    assert exact == say("f32", "f32")
    assert exact != say("auto", "f32")
    assert exact != say("f32", "f16")


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="a system without affinity")
def test_threads_are_those_that_it_may_use(start, models):
    """runtime.threads: 0 takes the processors that are left to it, not all that there are."""
    all_ = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(all_)})
    try:
        d = start(extra={"models": [{"name": "tiny", "path": models.script()}],
                         "runtime": {"threads": 0}})
    finally:
        os.sched_setaffinity(0, all_)
    assert status(d)["threads"] == 1 and d.chat_text() == SCRIPT


def test_the_cpu_packs_weights_always(start, models):
    log = start.refused(models.script(), extra={"runtime": {"driver": "cpu", "repack": "never"}})
    assert 'repack "never" is not supported by the driver cpu' in log
    log = start.refused(models.script(), extra={"runtime": {"driver": "cpu", "tensor_units": "never"}})
    assert 'tensor_units "never" are not supported by the driver cpu' in log
    d = start(models.script(), extra={"runtime": {"driver": "cpu", "repack": "always"}})
    assert status(d)["driver"] == "cpu"


def test_experts_stay_in_the_file_for_less_memory_and_the_same_words(start, models):
    path = models.random(n_experts=8, n_used=2, n_ff=128)
    n_bytes = {}

    def say(experts):
        d = start(extra={"models": [{"name": "random", "path": path}],
                         "runtime": {"driver": "cpu", "experts": experts}})
        assert ("experts mapped" in status(d)["device"]) == (experts == "mapped")
        n_bytes[experts] = d.metrics().sum("ingot_weight_bytes")
        text = text_of(d.ws().answer("hello", model="random", temperature=1, seed=3,
                                     max_output_tokens=100))
        d.stop()
        return text
    assert say("packed") == say("mapped")
    # two layers of three matrices of eight experts, in tiles as many bytes as in the file
    assert n_bytes["packed"] - n_bytes["mapped"] == 2 * 3 * 8 * 128 * 128 // 32 * 34


def test_memory(tuned, scripted):
    for d, budget, arena in ((tuned, 512 << 20, 32 << 20), (scripted, 1 << 30, 64 << 20)):
        memory = status(d)["memory"]
        assert (memory["budget_bytes"], memory["arena_bytes"]) == (budget, arena)
        assert d.metrics().sum("ingot_kv_cache_arena_bytes") == arena


def test_slab_and_dtype(tuned, scripted):
    """Bytes of a block follow from the type, what is committed is a number of slabs."""
    def bytes_of(d):
        d.until_idle()
        c = held(d, 1)
        c.until_type("response.output_text.delta")
        kv = status(d)["kvcache"]
        c.close()
        d.until_idle()
        return kv["used_bytes"] / kv["blocks_used"], kv["committed_bytes"]
    (wide, small_slabs), (narrow, large_slabs) = bytes_of(tuned), bytes_of(scripted)
    assert wide == 2 * narrow
    assert large_slabs == 4 << 20
    assert 0 < small_slabs < 4 << 20 and small_slabs % (512 << 10) == 0


def test_chunks_and_batches(tuned, scripted):
    """The steps that a prompt takes are counted; the chunk is reloadable, the batch is not."""
    usage, steps = usage_and_steps(scripted, 20, max_tokens=1)
    assert steps == 1
    usage, steps = usage_and_steps(tuned, 20, max_tokens=1)
    n = usage["prompt_tokens"]
    assert n > 48 and steps == (n + 4) // 5
    reload(tuned, {"scheduler": {"prefill_chunk": 512, "max_batch_tokens": 12}},
           "max_batch_tokens: 24 -> 12 needs a restart")
    usage, steps = usage_and_steps(tuned, 20, max_tokens=1)
    assert steps == (n + 23) // 24


def test_sequences_at_once(tuned, scripted):
    c = held(scripted, 3)
    until(lambda: (scripted.running(), scripted.waiting()) == (3, 0), "three run")
    c.close()
    c = held(tuned, 3)
    until(lambda: (tuned.running(), tuned.waiting()) == (2, 1), "two run, one waits")
    c.close()
    scripted.until_idle()
    tuned.until_idle()


def test_fewer_rows_than_sequences(start, models):
    """Each that runs takes a row of every step: the lesser number counts, and is said."""
    d = start(extra={"models": [{"name": "slow", "path": models.slow()}],
                     "scheduler": {"max_batch_tokens": 2, "max_seqs": 9}})
    assert re.search(r"max_seqs is 9, but only scheduler\.max_batch_tokens, 2", d.log)
    c = held(d, 3)
    until(lambda: (d.running(), d.waiting()) == (2, 1), "two run, one waits")
    c.close()


def test_queue_and_keep_alive_by_reload(tuned):
    """While two run and one waits, the options of waiting change."""
    c = held(tuned, 2)
    until(lambda: tuned.running() == 2, "two run")
    waiting = tuned.ws()
    waiting.create("hi", model="slow")
    until(lambda: tuned.waiting() == 1, "one waits")
    assert [waiting.event()["type"] for _ in range(2)] == ["response.created", "response.in_progress"]
    reload(tuned, {"server": {"keepalive_interval": "100ms"},
                   "scheduler": {"max_queue": 1, "retry_after": "9s"}}, "retry_after: 2s -> 9s")
    began = time.monotonic()
    assert [waiting.event()["type"] for _ in range(3)] == ["response.in_progress"] * 3
    assert time.monotonic() - began < 10, "5 s each is the default"
    r = tuned.chat(model="slow")
    assert (r.status, r.headers["Retry-After"]) == (503, "9")
    assert r.error["code"] == "server_busy"
    reload(tuned, {"scheduler": {"max_queue": 2, "retry_after": "2s"}}, "max_queue: 1 -> 2")
    another = tuned.ws()
    another.create("hi", model="slow")
    until(lambda: tuned.waiting() == 2, "two wait")
    for x in (another, waiting, c):
        x.close()
    tuned.until_idle()


def test_keep_alive_of_a_stream(start, models):
    """Over HTTP it is a comment between events."""
    d = start(extra={"models": [{"name": "slow", "path": models.slow()}],
                     "server": {"keepalive_interval": "100ms"}, "scheduler": {"max_seqs": 1}})
    c = held(d, 1)
    until(lambda: d.running() == 1, "one runs")
    s = d.connect()
    data = json.dumps({"model": "slow", "messages": [{"role": "user", "content": "hi"}],
                       "stream": True}).encode()
    s.sendall(post(["Content-Length: %d" % len(data)], data))
    got, began = b"", time.monotonic()
    while got.count(b": keep-alive\n\n") < 3:
        piece = s.recv(65536)
        assert piece, got
        got += piece
    assert time.monotonic() - began < 10, "5 s each is the default"
    assert b'"content":"A' not in got
    c.close()


def test_length_of_an_answer(tuned):
    """Up to the model's context, or as far as the option says, or the request."""
    def usage(**options):
        return tuned.chat(model="random", **options).json["usage"]
    assert usage()["total_tokens"] == 256
    reload(tuned, {"scheduler": {"max_output_tokens": 3}}, "max_output_tokens: 0 -> 3")
    assert usage()["completion_tokens"] == 3
    assert usage(max_tokens=5)["completion_tokens"] == 5
    reload(tuned, {"scheduler": {"max_output_tokens": 0}}, "max_output_tokens: 3 -> 0")


def test_context(tuned, scripted, start, models):
    def context(d):
        return {m["name"]: m["context"] for m in status(d)["models"]}["random"]
    assert (context(tuned), context(scripted)) == (256, 2048)
    r = tuned.chat("word " * 200, model="random")
    assert r.status == 400 and "256" in r.error["message"]
    assert scripted.chat("word " * 200, model="random", max_tokens=1).status == 200
    log = start.refused(extra={"models": [{"name": "long", "path": models.script(), "context": 513}]})
    assert "model long: context is 513, the model was trained for 512" in log


def test_default_model(tuned, scripted):
    def answers(d):
        return d.chat(model=None, max_tokens=1).json["model"]
    assert (answers(scripted), answers(tuned)) == ("tiny", "random")
    reload(tuned, {"default_model": "slow"}, "default_model: random -> slow")
    assert answers(tuned) == "slow"
    assert [m["name"] for m in status(tuned)["models"] if m["default"]] == ["slow"]


def test_host(tuned, scripted):
    assert (tuned.host, scripted.host) == (LOOPBACK, "127.0.0.1")
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", tuned.port), timeout=DEADLINE_S).close()
    socket.create_connection((LOOPBACK, tuned.port), timeout=DEADLINE_S).close()


def test_sizes_of_requests(tuned, scripted):
    """Neither grows by a reload: that needs a restart, and so it is said."""
    head = {"X-Filler": "a" * 3000}
    body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "hi"}],
                       "max_tokens": 1}).ljust(5000).encode()
    assert scripted.http("GET", "/healthz", headers=head).status == 200
    assert scripted.http("POST", CHAT, body).status == 200

    def refused():
        r = tuned.raw(("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Filler: %s\r\n\r\n"
                       % head["X-Filler"]).encode())
        assert r is None or r.status in (400, 413, 431), r
        r = tuned.raw(post(["Content-Length: 5000"], body[:100]))
        assert r.status == 413 and "max_body" in r.error["message"], r
    refused()
    reload(tuned, {"server": {"max_body": "1MiB", "max_header": "16KiB"}},
           "max_body: 4KiB -> 1MiB needs a restart")
    refused()
    assert tuned.chat_text() == SCRIPT
    # Compared with what is in force: said again as long as it differs, then no more.
    reload(tuned, {}, "max_body: 4KiB -> 1MiB needs a restart")
    n = len(tuned.log)
    reload(tuned, {"server": {"max_body": "4KiB", "max_header": "2KiB"}}, "reload: ")
    m = len(tuned.log)
    reload(tuned, {}, "reload: ")
    assert m > n and "max_body" not in tuned.log[n:]


def test_connections_at_once(tuned):
    """The seventh is refused with a reason, and let in when another has gone."""
    first = tuned.connect()

    def get(s, path):
        s.sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path)
        return read_reply(s)

    def until_alone(s):
        until(lambda: b"\ningot_connections 1\n" in get(s, b"/metrics").body, "it is alone")
    until_alone(first)
    others = [tuned.connect() for _ in range(5)]
    for s in others:
        assert get(s, b"/healthz").status == 200
    r = tuned.http("GET", "/healthz")
    assert r.status == 503 and r.error["code"] == "too_many_connections", r
    first.close()

    def served():
        return tuned.http("GET", "/healthz").status == 200
    until(served, "there is a place again")
    for s in others[1:]:
        s.close()
    until_alone(others[0])
    others[0].close()


def test_drain_timeout_by_reload(tuned):
    """20 s without; the last test of this daemon, which ends here."""
    c = held(tuned, 1)
    c.until_type("response.output_text.delta")
    reload(tuned, {"server": {"drain_timeout": "0s"}}, "drain_timeout: 20s -> 0s")
    began = time.monotonic()
    tuned.process.send_signal(signal.SIGTERM)
    assert tuned.wait_exit() == 0
    assert time.monotonic() - began < 15
    assert rows(tuned)[-1]["cancel_reason"] == "shutdown"


# ---- ingot.yaml: the rest ------------------------------------------------------------------

def test_client_buffer_and_slow_client_timeout(start, models):
    """With a larger buffer more is computed before the pause; the time is reloadable."""
    def outputs(buffer):
        d = start(extra={"models": [{"name": "flood",
                                     "path": models(kind="flood", n_context=262144)}],
                         "server": {"client_buffer": buffer, "slow_client_timeout": "1h"}})
        s = slow_reader(d)

        def at_rest():
            r = d.http("GET", "/v1/ingot/requests").json["data"]
            before = r[0]["output_tokens"] if r and r[0]["state"] == "paused" else None
            time.sleep(0.05)
            r = d.http("GET", "/v1/ingot/requests").json["data"]
            return before if r and r[0]["output_tokens"] == before else None
        n = until(at_rest, "it is paused for good")
        reload(d, {"server": {"slow_client_timeout": "100ms"}}, "slow_client_timeout: 1h -> 100ms")
        d.until_idle()
        s.close()
        assert until_rows(d, 1)[0]["cancel_reason"] == "slow_client"
        d.stop()
        return n
    # A token is 2 KiB of text.
    assert outputs("4MiB") - outputs("16KiB") > 1000


def test_ledger(start, models):
    """How many rows wait while another program has the file, and how old they get."""
    def while_locked(d, n):
        db = sqlite3.connect(d.config["ledger"]["path"], timeout=DEADLINE_S)
        db.execute("BEGIN IMMEDIATE")
        for _ in range(n):
            assert d.chat(max_tokens=1).status == 200
        until(lambda: d.metrics().sum("ingot_request_success_total") == n, "all are counted")
        dropped = d.metrics().sum("ingot_ledger_rows_dropped_total")
        db.rollback()
        db.close()
        return dropped
    d = start(models.script())
    assert while_locked(d, 10) == 0
    until_rows(d, 10)
    d.stop()
    db = sqlite3.connect(d.config["ledger"]["path"])
    for n_days, row in ((10, 1), (2, 2), (2, 3)):
        db.execute("UPDATE requests SET received_ns = received_ns - ? WHERE row = ?",
                   (n_days * 86400 * 10**9, row))
    db.commit()
    db.close()

    d = start(models.script(), {"ledger": {"retention_days": 5, "queue": 4}})
    until(lambda: len(rows(d)) == 9, "what is ten days old is gone")
    assert while_locked(d, 10) == 6
    until(lambda: len(rows(d)) == 13, "four were kept")
    reload(d, {"ledger": {"retention_days": 1}}, "retention_days: 5 -> 1")
    until(lambda: len(rows(d)) == 11, "what is two days old is gone")


def test_log(start, models, tmp_path):
    """What is written follows the level, where it is written the file; both by a reload."""
    a, b = tmp_path / "a.log", tmp_path / "b.log"
    d = start(models.script(), {"log": {"level": "debug", "file": str(a)}})
    assert d.log == "" and "module attention" in a.read_text()

    def take(extra, said):
        d.write_config(merged(d.config, extra))
        d.process.send_signal(signal.SIGHUP)
        until(lambda: b.exists() and said in b.read_text(), said)
    take({"log": {"level": "info", "file": str(b)}}, "log.level: debug -> info")
    assert "debug -> info" not in a.read_text()
    # Nothing can be waited for where nothing is said: the next reload speaks again.
    d.write_config(merged(d.config, {"log": {"level": "error"}}))
    d.process.send_signal(signal.SIGHUP)
    d.until_idle()

    take({"log": {"level": "warn"}, "server": {"port": 1}}, "server.port: 0 -> 1")
    text = b.read_text()
    assert "info -> error" not in text and "error -> warn" not in text
    other = start(models.script(), {"ledger": {"enabled": False}, "responses": {"persist": False}})
    assert "module attention" not in other.log and "loaded in" in other.log
    quiet = start(models.script(), {"ledger": {"enabled": False}, "responses": {"persist": False}, "log": {"level": "error"}})
    assert quiet.log == ""


def test_prefix_cache(start, models):
    """The same text; a prompt that is asked again is not computed again."""
    texts = {}
    for value in (True, False):
        d = start(extra={"kvcache": {"prefix_cache": value},
                         "models": [{"name": "random", "path": models.random()}]})
        ask = {"model": "random", "max_tokens": 12, "temperature": 1, "seed": 4}
        prompt = "word " * 60
        first = d.chat(prompt, **ask).json
        again = d.chat(prompt, **ask).json
        longer = d.chat(prompt + "and more", **ask).json
        texts[value] = [r["choices"][0]["message"]["content"] for r in (first, again, longer)]
        cached = [r["usage"]["prompt_tokens_details"]["cached_tokens"] for r in (first, again, longer)]
        if value:
            n = first["usage"]["prompt_tokens"]
            assert cached[0] == 0
            assert cached[1] == n - 1
            assert 0 < cached[2] <= cached[1]
            assert d.metrics().sum("ingot_kv_cache_cached_bytes") > 0
        else:
            assert cached == [0, 0, 0]
            assert d.metrics().sum("ingot_kv_cache_cached_bytes") == 0
        d.stop()
    assert texts[True] == texts[False] and texts[True][0] == texts[True][1]


def test_max_cached(start, models):
    """modules.kvcache.max_cached: less is kept for the prompt that is asked again."""
    cached = {}
    for value in ("0", "16KiB"):  # 16 tokens of this model take 8 KiB
        d = start(extra={"modules": {"kvcache": {"max_cached": value}},
                         "models": [{"name": "random", "path": models.random()}]})
        ask = {"model": "random", "max_tokens": 12, "temperature": 1, "seed": 4}
        d.chat("word " * 60, **ask)
        cached[value] = d.chat("word " * 60, **ask).json["usage"]["prompt_tokens_details"][
            "cached_tokens"]
        d.until_idle()
        kept = d.metrics().sum("ingot_kv_cache_cached_bytes")
        assert kept > 16384 if value == "0" else kept == 16384, kept
        d.stop()
    assert cached["0"] > cached["16KiB"] == 32


def test_share(start, models, tmp_path):
    """Whether a key's prompt was asked before is not told to another key, unless all share."""
    path = tmp_path / "keys"
    keys = [add_key(path, "a"), add_key(path, "b"), add_key(path, "c", "--admin")]
    for share in ("key", "all"):
        d = start(extra={"kvcache": {"share": share},
                         "server": {"keys_file": str(path), "allow_anonymous": True},
                         "models": [{"name": "random", "path": models.random()}]})

        def cached(key):
            body = {"model": "random", "max_tokens": 4, "messages": [
                {"role": "user", "content": "word " * 60}]}
            r = d.http("POST", "/v1/chat/completions", body, bearer(key) if key else None)
            return r.json["usage"]["prompt_tokens_details"]["cached_tokens"]
        first = [cached(key) for key in (*keys, None)]
        again = [cached(key) for key in (*keys, None)]
        assert all(again) and len(set(again)) == 1
        assert first == [0, 0, 0, 0] if share == "key" else first == [0] + again[1:]
        d.metrics = lambda: None  # it would be refused
        d.stop()


def test_run_ahead(start, models):
    """The same text; a step that ran ahead of the end is one more, and thrown away."""
    steps, texts = {}, {}
    for value in ("on", "off", "auto"):
        d = start(extra={"runtime": {"run_ahead": value},
                         "models": [{"name": "tiny", "path": models.script()},
                                    {"name": "random", "path": models.random()}]})
        usage, steps[value] = usage_and_steps(d, 3, temperature=0)
        assert usage["completion_tokens"] > 3
        texts[value] = d.chat_text("hello", model="random", max_tokens=40, temperature=1, seed=4)
        d.stop()
    assert texts["on"] == texts["off"] == texts["auto"]
    assert steps["on"] == steps["off"] + 1
    assert steps["auto"] == steps["off"], "the cpu driver gains nothing by it"


# ---- who gets in: the options of test_security.py, each against its other value ------------

def test_unix_socket_and_host(start, models, short, tmp_path):
    """A socket where the option says, of the mode that it says, beside the port or alone."""
    path = short / "s"

    def mode_of():
        return path.stat().st_mode & 0o777 if path.exists() else None
    d = start(models.script())
    assert mode_of() is None
    d.stop()
    for mode in (None, "0660"):
        extra = {"server": {"unix_socket": str(path)}}
        if mode:
            extra["server"]["unix_socket_mode"] = mode
        d = start(models.script(), extra)
        assert mode_of() == int(mode or "0600", 8)
        assert ingot(d, "ps", "--url", "unix:" + str(path), url=False)[0] == 0
        d.stop()
    log = start.refused(models.script(), {"server": {"host": ""}})
    assert "there is nothing to listen on" in log
    folder = tmp_path / "alone"
    d = Daemon(folder, configuration(folder, models.script(), {"server": {
        "host": "", "unix_socket": str(path)}}), wait=False)
    try:
        assert d.process.stdout.readline() == b"ready unix:%s\n" % str(path).encode()
        assert ingot(d, "ps", "--url", "unix:" + str(path), url=False)[0] == 0
    finally:
        d.stop()
        d.close()


def test_tls_files(start, models, tmp_path):
    """Both make the port speak TLS; each alone is refused, and so is one for the other."""
    cert, key = certificate(tmp_path)
    log = start.refused(models.script(), {"server": {"tls_cert": str(cert)}})
    assert "server.tls_cert: server.tls_key must be set too" in log
    log = start.refused(models.script(), {"server": {"tls_key": str(key)}})
    assert "server.tls_key: server.tls_cert must be set too" in log
    log = start.refused(models.script(), {"server": {"tls_cert": str(key), "tls_key": str(cert)}})
    assert str(key) in log
    d = Daemon(tmp_path / "d", configuration(tmp_path, models.script(), {"server": {
        "tls_cert": str(cert), "tls_key": str(key)}}), wait=False)
    try:
        url = d.process.stdout.readline().decode().split()[1]
        assert url.startswith("https://")
        port = int(url.rpartition(":")[2])
        assert ssl.get_server_certificate(("127.0.0.1", port), timeout=DEADLINE_S).split() == \
            cert.read_text().split()
    finally:
        d.stop()
        d.close()


def test_keys_file_and_allow_anonymous(start, models, tmp_path):
    path = tmp_path / "keys"
    key = add_key(path)

    def statuses(**server):
        d = start(models.script(), {"server": server, "ledger": {"enabled": False}, "responses": {"persist": False}})
        return [d.http("GET", path, headers=h).status for path in ("/v1/models", "/metrics")
                for h in ({}, bearer(key), bearer("wrong"))]
    assert statuses() == [200] * 6  # no file where the default is: no key is asked for
    assert statuses(keys_file=str(path)) == [401, 200, 401, 401, 403, 401]
    assert statuses(keys_file=str(path), allow_anonymous=True) == [200, 200, 401, 403, 403, 401]
    # the default is a place too
    home = tmp_path / "state"
    add_key(home / "ingot" / "keys")
    d = start(models.script(), env={"XDG_STATE_HOME": str(home)})
    if sys.platform.startswith("linux"):
        assert d.chat().status == 401


def test_limits(start, models):
    """Each of them alone, by a reload; 429 beyond it."""
    d = start(extra={"models": [{"name": "tiny", "path": models.script()},
                                {"name": "slow", "path": models.slow()}]})

    def of(what):
        return d.chat(max_tokens=1).status, what in str(d.chat(max_tokens=1).body)
    c = held(d, 2)
    until(lambda: d.running() == 2, "two run")
    assert d.chat(max_tokens=1).status == 200
    reload(d, {"limits": {"max_concurrent": 2}}, "max_concurrent: 0 -> 2")
    assert of("2 requests at once") == (429, True)
    reload(d, {"limits": {"max_concurrent": 3}}, "max_concurrent: 2 -> 3")
    assert d.chat(max_tokens=1).status == 200
    c.close()
    d.until_idle()
    reload(d, {"limits": {"max_concurrent": 0, "requests_per_minute": 1}},
           "requests_per_minute: 0 -> 1")
    assert d.chat(max_tokens=1).status == 200
    assert of("1 requests a minute") == (429, True)
    reload(d, {"limits": {"requests_per_minute": 0, "tokens_per_minute": 2}},
           "tokens_per_minute: 0 -> 2")
    assert d.chat(max_tokens=1).status == 200  # more than a minute's: paid for afterwards
    assert of("2 tokens a minute") == (429, True)
    reload(d, {"limits": {"tokens_per_minute": 0}}, "tokens_per_minute: 2 -> 0")
    assert d.chat(max_tokens=1).status == 200


def test_kept_responses(start, models):
    """How many, how large, and that a reload takes hold of those that are there."""
    d = start(models.script(), extra={"responses": {"max_stored": 3, "max_stored_bytes": "256KiB"}})

    def make(content="hi"):
        r = d.http("POST", "/v1/responses", {"input": content, "max_output_tokens": 1})
        assert r.status == 200, r
        return r.json

    def there(r):
        return d.http("GET", "/v1/responses/" + r["id"]).status == 200
    made = [make() for _ in range(4)]
    assert [there(r) for r in made] == [False, True, True, True]
    large = make([{"role": "user", "content": "a"}] * 60)
    assert large["store"] and there(large) and not there(made[1])
    too_large = d.http("POST", "/v1/responses", {"input": "hi", "max_output_tokens": 1,
                                                 "prompt_cache_key": "x" * 300000})
    assert too_large.json["store"] is False and not there(too_large.json) and there(large)
    reload(d, {"responses": {"max_stored_bytes": "16KiB"}}, "max_stored_bytes: 256KiB -> 16KiB")
    until(lambda: not there(large), "what is too much is gone")
    reload(d, {"responses": {"max_stored": 0}}, "max_stored: 3 -> 0")
    until(lambda: not make()["store"], "nothing is kept")



def test_kept_of_a_lane(start, models):
    d = start(models.script(), extra={"responses": {"max_stored_per_lane": 2}})
    c = d.ws()

    def make():
        return c.answer("hi", store=False, max_output_tokens=1)[-1]["response"]["id"]

    def there(previous):
        return c.answer("hi", store=False, previous_response_id=previous, max_output_tokens=1,
                        stream_id="other")[-1]["type"] != "error"
    made = [make() for _ in range(3)]
    assert [there(i) for i in made] == [False, True, True]
    reload(d, {"responses": {"max_stored_per_lane": 3}}, "max_stored_per_lane: 2 -> 3")
    made = [make() for _ in range(4)]
    assert [there(i) for i in made] == [False, True, True, True]


# ---- what a request may say --------------------------------------------------------------

def test_sampling(scripted):
    """Two doors, the same parameters, each with an effect of its own."""
    def over_http(**options):
        return scripted.chat_text("hello", model="random", max_tokens=40, **options)
    c = scripted.ws()

    def over_ws(**options):
        return text_of(c.answer("hello", model="random", max_output_tokens=40, **options))
    for ask in (over_http, over_ws):
        greedy = ask(temperature=0)
        sampled = ask(temperature=1, seed=4)
        assert sampled == ask(temperature=1, seed=4) != greedy
        assert sampled == ask(temperature=None, seed=4), "1 is the default"
        assert sampled != ask(temperature=1, seed=5)
        assert sampled != ask(temperature=1.9, seed=4)
        assert ask(temperature=1, seed=4, top_k=1) == greedy
        assert ask(temperature=1, seed=4, top_k=2) not in (greedy, sampled)
        assert ask(temperature=1, seed=4, top_p=1e-6) == greedy
        assert ask(temperature=1, seed=4, top_p=0.5) not in (greedy, sampled)
        assert ask(temperature=1, seed=4, top_p=1, top_k=0) == sampled
        assert ask(temperature=1, seed=4, min_p=1) == greedy
        assert ask(temperature=1, seed=4, min_p=0.4) not in (greedy, sampled)
        off = {"min_p": 0, "repetition_penalty": 1, "frequency_penalty": 0, "presence_penalty": 0,
               "logit_bias": {}}
        assert ask(temperature=1, seed=4, **off) == sampled
        for penalty, value in (("repetition_penalty", 1.3), ("frequency_penalty", 1.5),
                               ("presence_penalty", 1.5)):
            other = ask(temperature=0, **{penalty: value})
            assert other == ask(temperature=0, **{penalty: value}) != greedy, penalty
        assert ask(temperature=0, logit_bias={"5": 100}) == ask(temperature=1, logit_bias={"5": 100},
                                                                seed=9) != greedy
    assert over_http(temperature=1, seed=4) == over_ws(temperature=1, seed=4)
    c.close()


def test_what_is_sent_back(ws):
    """Parameters that change no text are in the response."""
    plain = ws.answer(max_output_tokens=1)[-1]["response"]
    other = ws.answer(max_output_tokens=2, store=False, metadata={"a": "b"}, top_p=0.5,
                      temperature=0.5, tool_choice="none", parallel_tool_calls=False,
                      instructions="Say nothing.")[-1]["response"]
    for key, was, is_ in (("max_output_tokens", 1, 2), ("store", True, False),
                          ("metadata", {}, {"a": "b"}), ("top_p", 1, 0.5),
                          ("temperature", 0, 0.5), ("tool_choice", "auto", "none"),
                          ("parallel_tool_calls", True, False),
                          ("instructions", None, "Say nothing.")):
        assert (plain[key], other[key]) == (was, is_), key
    longer = ws.answer(max_output_tokens=1, instructions="Say nothing. " * 9)[-1]["response"]
    assert longer["usage"]["input_tokens"] > other["usage"]["input_tokens"]


# ---- the command line ----------------------------------------------------------------------

def test_print_config(tmp_path):
    command, env = [str(BUILD / "daemon" / "ingotd"), "--print-config"], clean_env(tmp_path)
    r = subprocess.run(command, env=env, capture_output=True, text=True)
    assert (r.returncode, r.stderr) == (0, "")
    assert r.stdout == (ROOT / "etc" / "ingot.yaml").read_text()
    if os.path.exists("/dev/full"):
        with open("/dev/full", "w") as full:
            assert subprocess.run(command, env=env, stdout=full).returncode == 1


def test_where_the_daemon_is(scripted, tmp_path):
    """--url before the configuration, for every command that asks the daemon."""
    url = "http://127.0.0.1:%d" % scripted.port
    right, wrong = tmp_path / "right.yaml", tmp_path / "wrong.yaml"
    right.write_text("server:\n  port: %d\n" % scripted.port)
    wrong.write_text("server:\n  port: 9\n")
    for command in (["ps"], ["run", "-q", "-t", "0", "hello"]):
        assert ingot(scripted, *command, "-c", str(right), url=False)[0] == 0
        code, _, err = ingot(scripted, *command, "-c", str(wrong), url=False)
        assert code == 1 and ":9" in err
        assert ingot(scripted, *command, "-c", str(wrong), "--url", url, url=False)[0] == 0
    for args, served in ((["-c", str(right)], True), (["-c", str(wrong)], False),
                         (["-c", str(wrong), "--url", url], True)):
        code, out, err = ingot(scripted, "models", *args, url=False)
        assert code == 0, err
        assert ("daemon: none at" not in out) == served == ("slow" in out), out
        code, out, err = ingot(scripted, "doctor", "--json", *args, url=False)
        assert ("runs at " + url in out) == served, out


def test_models_and_their_folder(scripted, tmp_path):
    known = tmp_path / "known.yaml"
    known.write_text(pathlib.Path(CATALOG).read_text().replace("name: smollm2-135m\n",
                                                               "name: zeppelin\n"))

    def names(*args):
        code, out, err = ingot(scripted, "models", "--json", *args)
        assert code == 0, err
        j = json.loads(out)
        return j["folder"], {m["name"]: m["pulled"] for m in j["known"]}
    folder, plain = names()
    assert "smollm2-135m" in plain and set(plain.values()) == {"no"}
    assert "zeppelin" in names("--models", str(known))[1]
    assert "smollm2-135m" not in names("--models", str(known))[1]
    file = re.search(r"(?m)^ +file: (\S+)", known.read_text()).group(1)
    (tmp_path / file).write_text("not so large")
    there, pulled = names("--to", str(tmp_path))
    assert there == str(tmp_path) != folder and "other" in pulled.values()


def test_stats_span_and_ledger(start, models, tmp_path):
    d = start(models.script())
    for _ in range(3):
        d.chat(max_tokens=1)
    until_rows(d, 3)
    d.stop()
    copy = tmp_path / "copy.db"
    shutil.copy(d.config["ledger"]["path"], copy)
    db = sqlite3.connect(copy)
    db.execute("UPDATE requests SET received_ns = received_ns - ? WHERE row = 1", (7200 * 10**9,))
    db.commit()
    db.close()

    def n(*args):
        code, out, err = ingot(d, "stats", "--json", *args)
        assert code == 0, err
        return json.loads(out)["models"][0]["requests"]
    assert n("-c", str(d.config_path), "--since", "1h") == 3
    assert n("--ledger", str(copy), "--since", "1h") == 2
    assert n("--ledger", str(copy), "--since", "3h") == n("--ledger", str(copy), "--since", "all") == 3
    assert n("--ledger", str(copy)) == 3


# ---- the build ------------------------------------------------------------------------------

@pytest.mark.release  # a matter of the sources: once is enough
@pytest.mark.skipif(not shutil.which("meson"), reason="needs meson")
def test_build_options(tmp_path):
    """-Dtests=false builds no test, -Dbench=false no benchmark; -Dfuzz=true makes the fuzz tests libFuzzer's; -Dptx names the
    architectures for which there are kernels, -Dptx_optimization says how they are compiled, -Dcompute_optimization how the processor's are."""
    def introspect(what, folder):
        return json.loads(subprocess.check_output(["meson", "introspect", "--" + what, str(folder)]))

    def tests_of(folder):
        return {t["name"]: t["cmd"][1:] for t in introspect("tests", folder)}

    def set_up(name, *options, **env):
        subprocess.run(["meson", "setup", str(tmp_path / name), str(ROOT), *options], check=True,
                       stdout=subprocess.DEVNULL, env=dict(os.environ, **env))
        return tests_of(tmp_path / name)
    assert set_up("without", "-Dtests=false", "-Dbench=false") == {}
    built = {t["name"] for t in introspect("targets", tmp_path / "without")}
    assert "ingotd" in built and "ingot-bench" not in built
    here = tests_of(BUILD)
    assert here["fuzz_config"][0] != "-runs=0"
    if shutil.which("clang"):
        ptx, = [o["value"] for o in introspect("buildoptions", BUILD) if o["name"] == "ptx"]
        fuzz = set_up("fuzz", "-Dfuzz=true", "-Dptx=" + ",".join(ptx), CC="clang")
        assert fuzz["fuzz_config"][0] == "-runs=0" and set(fuzz) == set(here)
    def levels(folder):
        commands = json.loads((tmp_path / folder / "compile_commands.json").read_text())
        return {c["file"].rsplit("/", 1)[-1]: [w for w in c["command"].split() if w.startswith("-O")][-1] for c in commands}
    set_up("mixed", "-Dtests=false", "-Dbench=false", "-Doptimization=0", "-Dcompute_optimization=2", "-Dptx=")
    for file, mixed in ("tile_generic.c", "-O2"), ("interp.c", "-O2"), ("gated_delta.c", "-O2"), ("choice.c", "-O0"):
        assert (levels("mixed").get(file), levels("without").get(file)) == (mixed, "-O3"), file
    if shutil.which("clang-19"):
        def kernels(folder):
            return {t["name"].rsplit("-", 1)[1] for t in introspect("targets", tmp_path / folder) if t["name"].startswith("ptx-")}
        assert not kernels("mixed") and kernels("without") == {"80", "90a"}
        texts = []
        for level in "30":
            subprocess.run(["meson", "configure", str(tmp_path / "mixed"), "-Dptx=90a", "-Dptx_optimization=" + level], check=True,
                           stdout=subprocess.DEVNULL)
            subprocess.run(["ninja", "-C", str(tmp_path / "mixed"), "shaders/copy.sm90a.ptx"], check=True, stdout=subprocess.DEVNULL)
            texts.append((tmp_path / "mixed/shaders/copy.sm90a.ptx").read_text())
        assert len(set(texts)) == 2 and all(".entry" in text for text in texts)
