"""What a request gets does not depend on what runs beside it; queues are bounded; the
daemon sleeps when there is nothing to do."""
import os
import threading
import time

import pytest

from daemon import DEADLINE_S, text_of, until
from tiny_model import SCRIPT


def ask_all(d, requests):
    """All at once on one connection, each on a lane of its own; texts in order."""
    c = d.ws()
    for i, r in enumerate(requests):
        c.create(stream_id="lane%d" % i, **r)
    texts, ended = [""] * len(requests), 0
    while ended < len(requests):
        e = c.event()
        assert e["type"] not in ("error", "response.failed"), e
        lane = int(e["stream_id"][4:])
        if e["type"] == "response.output_text.delta":
            texts[lane] += e["delta"]
        ended += e["type"] in ("response.completed", "response.incomplete")
    c.close()
    return texts


def crowd(n):
    """n requests of different lengths; every other one draws."""
    return [{"content": "request %d " % i * (1 + 5 * (i % 4)), "model": "random",
             "max_output_tokens": 60, "temperature": 0 if i % 2 else 1, "seed": i}
            for i in range(n)]


@pytest.mark.home("release", "asan", "tsan")
@pytest.mark.tsan
def test_alone_and_in_a_crowd(scripted):
    """The same tokens for each of sixteen requests, alone and beside the other fifteen."""
    requests = crowd(16)
    alone = [ask_all(scripted, [r])[0] for r in requests]
    assert len(set(alone)) == 16 and all(alone)
    assert ask_all(scripted, requests) == alone
    assert ask_all(scripted, requests[::-1]) == alone[::-1]


@pytest.mark.home("release")
@pytest.mark.parametrize("dtype", ["F32", "F16", "Q8_0", "Q4_0", "Q4_1"])
def test_formats_threads_and_chunks(start, models, dtype):
    """Every weight format answers, and neither threads nor chunks change a token."""
    requests = crowd(6)
    texts = []
    for threads, chunk, batch in ((1, 512, 512), (2, 512, 512), (2, 1, 512), (3, 7, 16), (2, 64, 64)):
        d = start(models.random(dtype=dtype), {
            "models": [{"name": "random", "path": models.random(dtype=dtype)}],
            "runtime": {"threads": threads},
            "scheduler": {"prefill_chunk": chunk, "max_batch_tokens": batch}})
        texts.append(ask_all(d, requests))
        d.stop()
    assert all(t == texts[0] for t in texts[1:])


def instruction_sets():
    flags = set()
    try:
        with open("/proc/cpuinfo") as f:
            for line in f:
                if line.startswith("flags"):
                    flags = set(line.split(":")[1].split())
                    break
    except OSError:
        pass
    out = ["generic"]
    if {"avx2", "fma", "f16c"} <= flags:
        out.append("avx2")
    if {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"} <= flags:
        out.append("avx512")
        if "avx512_bf16" in flags:
            out.append("avx512_bf16")
    return out


@pytest.mark.home("release")
@pytest.mark.parametrize("activations", ["auto", "f32"])
@pytest.mark.parametrize("isa", instruction_sets())
def test_instruction_sets(start, models, isa, activations):
    """Each by itself gives the same tokens alone as in a crowd."""
    requests = crowd(5)
    d = start(extra={"models": [{"name": "random", "path": models.random(dtype="Q4_1")},
                                {"name": "tiny", "path": models.script()}],
                     "runtime": {"isa": isa, "activations": activations}})
    alone = [ask_all(d, [r])[0] for r in requests]
    assert ask_all(d, requests) == alone
    # By the default model's name or not, the known text is the known text everywhere.
    assert ask_all(d, [{"content": "hi", "model": "tiny"}]) == [SCRIPT]


@pytest.mark.home("release")
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_cache_types(start, models, dtype):
    d = start(models.script(), {"kvcache": {"dtype": dtype}})
    assert d.chat_text() == SCRIPT


def test_unknown_instruction_set(start, models):
    log = start.refused(models.script(), {"runtime": {"isa": "mmx"}})
    assert "mmx" in log


@pytest.mark.tsan
def test_a_full_queue_refuses(start, models):
    d = start(extra={"models": [{"name": "slow", "path": models.slow()}],
                     "scheduler": {"max_seqs": 1, "max_queue": 2, "retry_after": "7s"}})
    c = d.ws()
    for lane in ("a", "b", "c"):
        c.create("hi", model="slow", stream_id=lane)
    until(lambda: (d.running(), d.waiting()) == (1, 2), "one runs, two wait")
    r = d.chat(model="slow")
    assert r.status == 503
    assert r.headers["Retry-After"] == "7"
    assert r.error["message"] and r.error["type"] == "server_error"
    other = d.ws()
    other.create("hi", model="slow")
    assert other.error()["status"] == 503
    c.close()
    d.until_idle()
    assert d.chat(model="slow", max_tokens=2).status == 200


@pytest.mark.tsan
def test_more_than_run_at_once_still_end(start, models):
    """Sequences wait for a place and for blocks: all of them are answered in the end."""
    d = start(models.random(), {"models": [{"name": "random", "path": models.random()}],
                                "scheduler": {"max_seqs": 3}})
    requests = crowd(12)
    texts = ask_all(d, requests)
    assert all(texts)
    assert ask_all(d, requests[7:8]) == texts[7:8]
    d.until_idle()


def test_an_arena_that_is_too_small_for_all(start, models):
    """When blocks run out nothing fails: some wait or are taken back and done again."""
    # 2 blocks of 2 heads of 32: 512 bytes a token, 8 KiB a cache block. Six requests of
    # some 450 tokens need 170 blocks; there are 64.
    path = models.random()
    small = {"models": [{"name": "random", "path": path}],
             "kvcache": {"arena": 512 << 10, "slab": 64 << 10}}
    requests = [{"content": "r%d " % i, "model": "random", "max_output_tokens": 350,
                 "temperature": 1, "seed": i} for i in range(6)]
    d = start(extra=small)
    texts = ask_all(d, requests)
    d.until_idle()
    d.stop()
    roomy = start(extra={"models": [{"name": "random", "path": path}]})
    assert ask_all(roomy, requests) == texts


@pytest.mark.home("release", "asan", "tsan")
@pytest.mark.tsan
def test_cancel_storm(scripted):
    """Clients that leave at every moment of a request; nothing is left behind."""
    def leave(i):
        c = scripted.ws()
        c.create("hi " * (1 + i * 7), model="slow")
        for _ in range(i % 7):
            c.event()
        c.abort() if i % 2 else c.close()
    threads = [threading.Thread(target=leave, args=(i,)) for i in range(24)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(DEADLINE_S)
    scripted.until_idle()
    assert scripted.chat_text() == SCRIPT


def cpu_seconds(pid):
    with open("/proc/%d/stat" % pid) as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.release
@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="reads /proc")
def test_idle_takes_no_time(start, models):
    """After a request, with a connection open: at most two ticks of the clock in three seconds."""
    d = start(models.script())
    c = d.ws()
    assert text_of(c.answer()) == SCRIPT
    d.until_idle()
    before, end = cpu_seconds(d.process.pid), time.monotonic() + 3
    while time.monotonic() < end:  # this is the measured stretch, not a wait for something
        time.sleep(0.1)
    used = cpu_seconds(d.process.pid) - before
    assert used <= 0.02, "%.2f s of CPU time in 3 s of nothing to do" % used
