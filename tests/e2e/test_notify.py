"""What a supervisor such as systemd is told (Type=notify, WatchdogSec): the tests are the supervisor."""
import contextlib
import ctypes
import os
import pathlib
import select
import signal
import socket
import sys

import pytest

from daemon import DEADLINE_S, PATIENCE, until

WATCHDOG = {"WATCHDOG_USEC": str(PATIENCE * 1_000_000)}


class Supervisor:
    """The socket that NOTIFY_SOCKET names, and all messages that came."""

    def __init__(self, address):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.env = {"NOTIFY_SOCKET": address if isinstance(address, str) else "@" + address[1:].decode()}
        self.said, self.n_seen = [], 0

    def read(self):
        while select.select([self.socket], [], [], 0)[0]:
            self.said.append(dict(line.split("=", 1) for line in self.socket.recv(4096).decode().split("\n")))

    def until(self, name, value):
        """The next message with NAME=value, after the one that was waited for last."""
        def found():
            self.read()
            i = next((i for i in range(self.n_seen, len(self.said)) if self.said[i].get(name) == value), -1)
            self.n_seen = max(self.n_seen, i + 1)
            return i >= 0 and self.said[i]
        return until(found, "the supervisor is told %s=%s" % (name, value))

    def values(self, name):
        return [m[name] for m in self.said if name in m]


@pytest.fixture(params=["path", "abstract"] if sys.platform == "linux" else ["path"])
def supervisor(request, short):
    s = Supervisor(str(short / "notify") if request.param == "path" else b"\0ingot-test-%d" % os.getpid())
    yield s
    s.socket.close()


def test_start_reload_and_stop(start, models, supervisor):
    d = start(models.script(), env=supervisor.env)
    supervisor.until("READY", "1")
    said = supervisor.said
    assert said[0]["STATUS"].startswith("Loading model tiny, ") and int(said[1]["EXTEND_TIMEOUT_USEC"]) >= 60_000_000
    assert said[2:] == [{"STATUS": "Serving at http://127.0.0.1:%d" % d.port}, {"READY": "1"}]
    d.process.send_signal(signal.SIGHUP)
    assert int(supervisor.until("RELOADING", "1")["MONOTONIC_USEC"]) > 0
    supervisor.until("READY", "1")
    d.stop()
    supervisor.read()
    assert supervisor.said[-3:] == [{"STOPPING": "1"}, {"STATUS": "Stopping, with 0 requests under way"},
                                    {"EXTEND_TIMEOUT_USEC": "30000000"}]
    assert "WATCHDOG" not in {k for m in supervisor.said for k in m}  # WATCHDOG_USEC was not there


def test_a_broken_reload_ends_too(start, models, supervisor):
    d = start(models.script(), env=supervisor.env)
    d.config_path.write_text("servre: 1\n")
    d.process.send_signal(signal.SIGHUP)
    supervisor.until("RELOADING", "1")
    supervisor.until("READY", "1")


def test_the_drain_has_its_time(start, models, supervisor):
    """drain_timeout changes what is asked for, and signs of life go on while it lasts."""
    d = start(models.slow(), {"server": {"drain_timeout": "17m"}}, env=dict(supervisor.env, **WATCHDOG))
    ws = d.ws()
    ws.create("hi")
    ws.until_type("response.output_text.delta")
    d.process.send_signal(signal.SIGTERM)
    supervisor.until("EXTEND_TIMEOUT_USEC", str((17 * 60 + 10) * 1_000_000))
    assert "Stopping, with 1 requests under way" in supervisor.values("STATUS")
    supervisor.until("WATCHDOG", "1")
    ws.close()
    assert d.wait_exit() == 0


def test_a_start_that_fails_says_why(start, supervisor):
    start.refused("/no/such/model.gguf", env=supervisor.env)
    supervisor.read()
    assert "/no/such/model.gguf" in supervisor.said[-1]["STATUS"] and supervisor.values("READY") == []


@pytest.mark.parametrize("name, value", [("NOTIFY_SOCKET", "notify"), ("WATCHDOG_USEC", "1s")])
def test_wrong_variables(start, models, short, name, value):
    log = start.refused(models.script(), env={"NOTIFY_SOCKET": str(short / "notify"), name: value})
    assert '%s is "%s"' % (name, value) in log


# ---- the watchdog -----------------------------------------------------------------------------------

class Stopped:
    """A thread of another process, stopped where it is; the others run on."""
    ATTACH, DETACH, ANY_THREAD = 16, 17, 0x40000000

    def __init__(self, tid):
        self.tid, self.libc = tid, ctypes.CDLL(None, use_errno=True)

    def ptrace(self, request):
        if self.libc.ptrace(request, ctypes.c_long(self.tid), None, None):
            raise OSError(ctypes.get_errno(), "ptrace")

    def __enter__(self):
        self.ptrace(self.ATTACH)
        os.waitpid(self.tid, self.ANY_THREAD)

    def __exit__(self, *error):
        with contextlib.suppress(OSError):  # it may have been killed
            self.ptrace(self.DETACH)


def thread_of(d, name):
    tids = [int(t.name) for t in pathlib.Path("/proc/%d/task" % d.process.pid).iterdir()
            if (t / "comm").read_text() == name + "\n"]
    assert len(tids) == 1
    return tids[0]


@pytest.mark.release
@pytest.mark.skipif(sys.platform != "linux", reason="a single thread is stopped with Linux's ptrace")
@pytest.mark.parametrize("thread", ["engine", "ingot-loop"])
def test_a_thread_that_hangs_misses_the_watchdog(start, models, short, thread):
    s = Supervisor(str(short / "notify"))
    d = start(models.script(), env=dict(s.env, **WATCHDOG))
    for _ in range(2):  # idle, nothing else moves it
        s.until("WATCHDOG", "1")

    def n_misses():
        return d.log.count("a thread has not moved")
    with Stopped(thread_of(d, thread)):
        earlier = n_misses()  # on a busy machine
        until(lambda: n_misses() > earlier, "a sign of life is left out")
        s.read()
        before, n = len(s.said), n_misses()
        until(lambda: n_misses() >= n + 2, "and the next ones")
        s.read()
        assert s.said[before:] == []
        s.n_seen = before
    s.until("WATCHDOG", "1")
    assert d.chat_text()
    s.socket.close()


def test_a_successor_is_the_main_process(start, models, supervisor):
    """systemd is told, so the old one ends, and the successor gives the signs of life."""
    d = start(models.script(), env=dict(supervisor.env, **WATCHDOG))
    supervisor.until("READY", "1")
    d.process.send_signal(signal.SIGUSR2)
    d.wait_ready()

    def told():
        supervisor.read()
        return supervisor.values("MAINPID")

    pid = int(until(told, "the supervisor is told MAINPID")[0])
    try:
        assert pid != d.process.pid and d.wait_exit() == 0
        n = len(supervisor.said)
        until(lambda: supervisor.read() or any("WATCHDOG" in m for m in supervisor.said[n:]), "a sign of life")
        assert d.chat().status == 200
    finally:
        os.kill(pid, signal.SIGTERM)
    supervisor.until("STOPPING", "1")
