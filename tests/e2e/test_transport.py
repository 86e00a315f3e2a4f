"""runtime.transport: one model on several ranks, which mpirun starts here on one machine.  Every wait has an end, and
every process of a group is killed after its test."""
import json
import os
import shutil
import signal
import subprocess
import time

import pytest

from daemon import BUILD, DEADLINE_S, Daemon, merged, until

# Open MPI's own memory is never freed, which a sanitizer would report.
pytestmark = [pytest.mark.release,
              pytest.mark.skipif(not (BUILD / "modules/transport-mpi/transport-mpi.so").exists() or
                                 not shutil.which("mpirun"), reason="this build has no Open MPI")]

# A rank's death must not end the others before they have said so: mpirun waits this long for them.
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "odls_base_sigkill_timeout", "6",
          "--mca", "btl", "vader,self", "--mca", "oob_tcp_if_include", "lo"]
CPU = {"runtime": {"driver": "cpu", "threads": 1}}


def children(pid):
    out = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], stdout=subprocess.PIPE, timeout=DEADLINE_S)
    return [int(line) for line in out.stdout.split()]


def command(pid):
    with open("/proc/%d/cmdline" % pid, "rb") as f:
        return f.read().decode().split("\0")


@pytest.fixture
def ranks(start):
    """ranks(n, path, extra): an ingotd and n - 1 workers."""
    running = []

    def begin(n, path, extra):
        folder = start.folder / ("ranks%d" % len(running))
        folder.mkdir()
        script = folder / "start"
        ingotd = str(BUILD / "daemon/ingotd")
        script.write_text("#!/bin/sh\nexec %s -np 1 %s \"$@\" : -np %d %s \"$@\" --worker\n"
                          % (" ".join(MPIRUN), ingotd, n - 1, ingotd))
        script.chmod(0o755)
        config = start.config(path, merged(merged(CPU, {"ledger": {"path": str(folder / "ledger.db")}, "runtime": {"transport": "mpi", "transport_timeout": "4s"}}),
                                           extra))
        d = Daemon(folder, config, wait=False, program=script,
                   env={"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "TMPDIR": "/tmp"})
        running.append(d)
        return d
    yield begin
    for d in running:
        pids = children(d.process.pid) if not d.stopped else []
        for pid in [d.process.pid, *pids] if not d.stopped else []:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        d.process.wait(DEADLINE_S)
        d.close()


def end(d):
    """SIGTERM to mpirun ends all ranks."""
    pids = children(d.process.pid)
    assert pids
    d.process.send_signal(signal.SIGTERM)
    d.wait_exit()
    until(lambda: not any(os.path.exists("/proc/%d" % p) for p in pids), "all ranks have ended")
    return d.log


ASKED = [dict(content="a few words of a prompt", max_tokens=24),
         dict(content="another one, much longer: " + "more words, " * 60, max_tokens=12, temperature=1, seed=3),
         dict(content="with figures", max_tokens=4, logprobs=True, top_logprobs=2)]


def answers(d):
    out = []
    for body in ASKED:
        r = d.chat(**body)
        assert r.status == 200, r
        out.append(r.json["choices"])
    return out


def test_same_bytes(start, models, ranks):
    """Two ranks and three answer what one process answers, and end together."""
    one = start(models.random(n_blocks=4), CPU)
    want = answers(one)
    for n in 2, 3:
        d = ranks(n, models.random(n_blocks=4), {})
        d.wait_ready()
        assert answers(d) == want
        assert "rank %d of %d" % (n - 1, n) in d.log
        log = end(d)
        assert log.count("rank 0 has ended") == n - 1, log


def test_rank_is_killed(models, ranks):
    """Its requests end with an error that names it, and all ranks end, so that a supervisor starts them again."""
    d = ranks(2, models.slow(), {})
    d.wait_ready()
    [worker] = [p for p in children(d.process.pid) if "--worker" in command(p)]
    s = d.connect()
    body = json.dumps({"model": "tiny", "stream": True, "max_tokens": 4000,
                       "messages": [{"role": "user", "content": "hi"}]}).encode()
    s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
              b"Content-Length: %d\r\n\r\n" % len(body) + body)
    said = b""
    while said.count(b"data:") < 3:
        piece = s.recv(4096)
        assert piece, said
        said += piece
    os.kill(worker, signal.SIGKILL)
    begun = time.monotonic()
    while b'"error"' not in said:
        piece = s.recv(65536)
        assert piece, "the stream ended without an error: %r" % said[-300:]
        said = said[-4096:] + piece
    assert b"rank 1 has not been heard for " in said, said
    # transport_timeout, not the default
    assert time.monotonic() - begun < 9, "4 s of silence were to be enough"
    assert d.wait_exit() != 0


def test_what_is_refused(start, models, ranks):
    """By name, at the start."""
    d = ranks(2, models.random(), {"runtime": {"run_ahead": "on"}})
    assert d.wait_exit() != 0
    assert "over several machines there can be no runtime.run_ahead: on" in d.log
    p = subprocess.run([str(BUILD / "daemon/ingotd"), "--worker", "--config", str(d.config_path)],
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=DEADLINE_S, env=d.env)
    assert p.returncode == 1 and b"this is rank 0, which is the daemon, not a worker" in p.stdout, p.stdout
    start.refused(models.random(), merged(CPU, {"runtime": {"transport": "mpi"}}),
                  env={"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
