"""Sixteen WebSocket clients at once, one of which reads nothing for some time while four
are killed in mid-stream: the eleven others lose no token and none of their rate, and each
request has its row in the ledger with the true reason.

What is measured: answers follow each other on every connection, so the load is the same all
the time; seconds before and after the trouble are compared with those within it.  Three
figures, so that a busy machine can't fail the test and a daemon that waits can't pass it:
the tokens that arrive at a client for each step of the engine, the share of the time that
the engine spends in steps, and the processor time for a step of the thread that has the
sockets: whoever stalls or goes costs the others nothing.  None cares how fast the machine is.
"""
import json
import os
import pathlib
import socket
import threading
import time

import pytest

from daemon import PATIENCE, SANITIZER, until
from rawsocket import PONG, TEXT, WebSocket, frame
from test_ledger import rows
from tiny_model import SCRIPT

N = 16
STALLED, KILLED = 0, (1, 2, 3, 4)
STALL_S = 15 if not SANITIZER else 8
QUIET_S = 6 if not SANITIZER else 4
# Of one answer.  Between two of a client some steps go without it, the more the faster they are
# beside the client: answers are so long that these are few.
N_TOKENS = 1080 if not SANITIZER else 180
# The client that stalls and those that will be killed ask for one answer without an end: what
# became of it can only be what is done to them.  What the system would buffer for the one that
# stalls is filled with the reply to this, so that the daemon has to keep what comes after.
ENDLESS = (STALLED, *KILLED)
FILLER = b'{"type":"response.steer","input":"' + b"*" * (12 << 20) + b'"}'
DELTA = b'"type":"response.output_text.delta"'


class Client(threading.Thread):
    """Asks again as soon as it is answered.  What came is kept with its time and judged at
    the end: while it runs, a thread of a test should cost next to nothing."""

    def __init__(self, d, number):
        super().__init__(daemon=True)
        self.number = number
        # The one that will stall leaves the system little to put off the daemon with.
        self.w = WebSocket(d, receive_buffer=4096 if number == STALLED else None)
        self.frames, self.n_asked = [], 0
        self.paused, self.stopped = threading.Event(), False
        self.start()

    def ask(self):
        self.n_asked += 1
        event = {"type": "response.create", "model": "slow", "input": "client %d" % self.number,
                 "temperature": 0}
        if self.number not in ENDLESS:
            event["max_output_tokens"] = N_TOKENS
        self.w.send(frame(TEXT, json.dumps(event).encode()))

    def run(self):
        self.ask()
        while True:
            while self.paused.is_set():
                time.sleep(0.01)
            try:
                got = self.w.read()
            except OSError:
                got = ("closed", "by us")
            if got[0] == "closed":
                return
            if got[0] == "ping":
                self.w.send(frame(PONG, got[1]))
                continue
            self.frames.append((time.monotonic(), got[1]))
            if b'"type":"response.incomplete"' in got[1]:
                if self.stopped:
                    return
                self.ask()

    def wake(self):
        """It reads on, what has piled up first: that is much for the buffer that it had, each
        fill of which waits for the daemon's turn on a busy machine."""
        self.w.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self.paused.clear()

    def kill(self, reset):
        """In the middle of an answer: by a reset, as a process whose machine is gone, or by a
        mere end of the stream."""
        assert sum(DELTA in payload for _, payload in list(self.frames)) > 5
        if reset:
            self.w.reset()
        else:
            self.w.s.shutdown(socket.SHUT_RDWR)
            self.w.close()

    def texts(self):
        """[(time, text)] of its deltas; on the way every event's number is checked."""
        out, n = [], 0
        for at, payload in self.frames:
            e = json.loads(payload)
            if e["type"] == "response.steer.failed":
                continue
            n = 0 if e["type"] == "response.created" else n
            assert e["sequence_number"] == n, (self.number, n, e)
            n += 1
            if DELTA in payload or e["type"] == "response.output_text.delta":
                out.append((at, e["delta"]))
            else:
                assert e["type"] != "error", e
        return out

    def ids(self):
        """Of all that it asked for and that began."""
        return [json.loads(p)["response"]["id"] for _,
                p in self.frames if b'"type":"response.created"' in p]

    def answers(self):
        return [json.loads(p)["response"] for _,
                p in self.frames if b'"type":"response.incomplete"' in p]


def loop_s(d):
    """Seconds of processor time of the thread that has the sockets; None where nothing says so."""
    for task in pathlib.Path("/proc/%d/task" % d.process.pid).glob("*"):
        if (task / "comm").read_text() == "ingot-loop\n":
            return int((task / "schedstat").read_text().split()[0]) / 1e9
    assert not os.path.exists("/proc/self/schedstat"), "no thread is called ingot-loop"
    return None


class Window:
    """What the daemon did in some seconds."""

    def __init__(self, d, seconds, meanwhile=()):
        loop, before, self.begin = loop_s(d), d.metrics(), time.monotonic()
        for action in meanwhile:
            time.sleep(1)
            action()
        time.sleep(max(0, self.begin + seconds - time.monotonic()))
        after, self.end = d.metrics(), time.monotonic()
        self.loop_us = loop and (loop_s(d) - loop) * 1e6
        self.steps = after.sum("ingot_engine_steps_total") - before.sum("ingot_engine_steps_total")
        self.busy_s = (after.sum("ingot_engine_step_seconds_sum") -
                       before.sum("ingot_engine_step_seconds_sum"))
        assert self.steps > 0

    def judge(self, clients):
        n_characters = sum(len(text) for c in clients for at, text in c.texts()
                           if self.begin <= at < self.end)
        self.per_step = n_characters * 18 / len(SCRIPT) / len(clients) / self.steps
        self.busy = self.busy_s / (self.end - self.begin)
        self.loop_us = self.loop_us and self.loop_us / self.steps

    def __repr__(self):
        return ("%.3f tokens of a client in a step, %.3f of the time in %d steps, %s us for each to send"
                % (self.per_step, self.busy, self.steps, self.loop_us and round(self.loop_us)))


@pytest.mark.home("release", "asan", "tsan")
@pytest.mark.tsan
@pytest.mark.parametrize("stall_s", [STALL_S, pytest.param(30, marks=pytest.mark.long)])
def test_sixteen_clients(start, models, stall_s):
    model = models(kind="loop", n_blocks=4, width=256, n_ff=1024, n_context=16384)
    d = start(extra={"models": [{"name": "slow", "path": model}],
                     "runtime": {"threads": 1},  # the clients and other tests need a processor, too
                     "kvcache": {"arena": 256 << 20},
                     "server": {"client_buffer": 1024, "slow_client_timeout": "10m"}})
    clients = [Client(d, i) for i in range(N)]
    rest = [c for c in clients if c.number != STALLED and c.number not in KILLED]
    until(lambda: all(len(c.frames) > 20 for c in clients), "all sixteen are served")
    quiet = [Window(d, QUIET_S)]
    clients[STALLED].paused.set()
    clients[STALLED].w.send(frame(TEXT, FILLER))
    until(lambda: d.metrics().sum("ingot_num_requests_paused") == 1, "its sequence is paused")
    before_stall = sum(len(t) for _, t in clients[STALLED].texts())
    trouble = Window(d, stall_s, [lambda i=i: clients[i].kill(reset=i % 2) for i in KILLED])
    assert d.metrics().sum("ingot_num_requests_paused") == 1
    assert d.running() <= N - len(KILLED), "the killed clients' answers run on"
    clients[STALLED].wake()
    clients += [Client(d, N + i) for i in range(len(KILLED))]
    until(lambda: all(len(c.frames) > 20 for c in clients[N:]), "the new ones are served")
    quiet.append(Window(d, QUIET_S))
    for c in clients:
        c.stopped = True
    clients[STALLED].w.send(frame(TEXT, b'{"type":"response.cancel"}'))
    for c in clients:
        c.join(60 * PATIENCE)
        assert not c.is_alive(), "client %d never ended" % c.number

    # No token is lost, by the stalled one neither.
    for c in clients:
        if c.number in KILLED:
            continue
        text, done = "".join(t for _, t in c.texts()), c.answers()
        assert len(done) == c.n_asked
        if c.number == STALLED:
            assert text == (SCRIPT * (len(text) // len(SCRIPT) + 1))[:len(text)]
            assert before_stall < len(text)
        else:
            assert text == SCRIPT * (N_TOKENS // 18) * len(done)
            assert all(r["usage"]["output_tokens"] == N_TOKENS for r in done)
    # The ledger: a row for each request, those of the killed with the reason.
    asked = sum(c.n_asked for c in clients)
    d.until_idle()
    got = until(lambda: (lambda r: r if len(r) >= asked else None)(rows(d)), "%d rows" % asked)
    assert len(got) == asked
    row_of = {r["id"]: r for r in got}
    for c in clients:
        if c.number in KILLED:
            row = row_of.pop(c.ids()[-1])
            assert (row["finish"], row["cancel_reason"]) == ("cancelled", "client_gone")
            assert row["output_tokens"] > 5
        for r in c.answers():
            row = row_of.pop(r["id"])
            assert row["output_tokens"] == r["usage"]["output_tokens"]
            assert (row["finish"], row["cancel_reason"] or "", row["status"]) == (
                ("cancelled", "client_cancel", 499) if c.number == STALLED else ("length", "", 200))
    assert row_of == {}

    for w in quiet + [trouble]:
        w.judge(rest)
    print("quiet: %r\nquiet: %r\ntrouble: %r" % (quiet[0], quiet[1], trouble))
    assert trouble.per_step >= 0.95 * max(w.per_step for w in quiet), (quiet, trouble)
    assert trouble.busy >= 0.95 * max(w.busy for w in quiet), (quiet, trouble)
    if trouble.loop_us:
        assert trouble.loop_us <= 2 * max(w.loop_us for w in quiet), (quiet, trouble)
