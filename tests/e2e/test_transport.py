"""runtime.transport: one model on several ranks, which mpirun starts here on one machine.  Every wait has an end, and
every process of a group is killed after its test."""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest

import tiny_model
from daemon import BUILD, DEADLINE_S, Daemon, merged, until

# Open MPI's own memory is never freed, which a sanitizer would report.
pytestmark = [pytest.mark.release,
              pytest.mark.skipif(not (BUILD / "modules/transport-mpi/transport-mpi.so").exists() or
                                 not shutil.which("mpirun"), reason="this build has no Open MPI")]

UNIT = (pathlib.Path(__file__).resolve().parents[2] / "debian/ingot-mpi.ingot-machines.service").read_text()
ENV = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl": "vader,self",
       "OMPI_MCA_oob_tcp_if_include": "lo", "TMPDIR": "/tmp"}
CPU = {"runtime": {"driver": "cpu", "threads": 1}}


def children(pid):
    out = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], stdout=subprocess.PIPE, timeout=DEADLINE_S)
    return [int(line) for line in out.stdout.split()]


def command(pid):
    with open("/proc/%d/cmdline" % pid, "rb") as f:
        return f.read().decode().split("\0")


def as_the_unit(n):
    """What the service of Debian's package starts, on this machine."""
    line = re.search(r"^ExecStart=(.*)", UNIT.replace("\\\n", ""), re.M)[1]
    for old, new in [("/usr/bin/mpirun ", "mpirun "), ("${MACHINES}", "localhost:%d" % n), ("${WORKERS}", str(n - 1)),
                     ("/usr/bin/ingotd", str(BUILD / "daemon/ingotd")), ("--config /etc/ingot/ingot.yaml", '"$@"'),
                     # A rank's death must not end the others before they have said so: mpirun waits this long.
                     ("odls_base_sigkill_timeout 12 ", "odls_base_sigkill_timeout 6 ")]:
        assert old in line, old
        line = line.replace(old, new)
    return line


@pytest.fixture
def ranks(start):
    """ranks(n, path, extra): an ingotd and n - 1 workers.  ranks.run(d): once more what is in the folder of one."""
    running = []

    def run(folder, config, env):
        d = Daemon(folder, config, wait=False, program=folder / "start", env=merged(ENV, env))
        running.append(d)
        return d

    def begin(n, path, extra, env=None):
        folder = start.folder / ("ranks%d" % len(running))
        folder.mkdir()
        (folder / "start").write_text("#!/bin/sh\nexec %s\n" % as_the_unit(n))
        (folder / "start").chmod(0o755)
        return run(folder, start.config(path, merged(merged(CPU, {
            "ledger": {"path": str(folder / "ledger.db")}, "runtime": {"transport": "mpi", "transport_timeout": "4s"}}), extra)), env or {})
    begin.run = run
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


def assert_memory(d, n, one):
    """/metrics says what each rank has: a part of the weights of one process, and the same slabs of the cache."""
    m = d.metrics()
    of = {kind: [m.sum("ingot_rank_memory_bytes", kind=kind, rank=str(r)) for r in range(n)]
          for kind in ("weights", "scratch", "kv_cache")}
    assert len([name for name, *_ in m.samples if name == "ingot_rank_memory_bytes"]) == 3 * n
    whole = one.metrics().sum("ingot_weight_bytes")
    assert all(0 < x < whole for x in of["weights"]), of
    assert sum(of["weights"]) >= whole, (of, whole)  # a table that two of them read is in both
    assert max(of["weights"]) == m.sum("ingot_weight_bytes")
    assert 0 < max(of["scratch"]) <= m.sum("ingot_scratch_bytes")
    assert of["kv_cache"] == [m.sum("ingot_kv_cache_committed_bytes")] * n
    shown = d.http("GET", "/v1/ingot/status").json["memory"]["ranks"]
    assert [(r["weight_bytes"], r["scratch_bytes"]) for r in shown] == list(zip(of["weights"], of["scratch"]))
    assert one.http("GET", "/v1/ingot/status").json["memory"]["ranks"] == []
    m = one.metrics()
    for kind, name in ("weights", "ingot_weight_bytes"), ("scratch", "ingot_scratch_bytes"), ("kv_cache", "ingot_kv_cache_committed_bytes"):
        assert m.sum("ingot_rank_memory_bytes") > 0 and m.sum("ingot_rank_memory_bytes", kind=kind, rank="0") == m.sum(name)


def test_same_bytes(start, models, ranks):
    """Two ranks, three and four answer what one process answers, and end together."""
    one = start(models.random(n_blocks=4), CPU)
    want = answers(one)
    for n in 2, 3, 4:
        d = ranks(n, models.random(n_blocks=4), {})
        d.wait_ready()
        assert answers(d) == want
        assert "rank %d of %d" % (n - 1, n) in d.log
        assert_memory(d, n, one)
        log = end(d)
        assert log.count("rank 0 has ended") == n - 1, log


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def streamed(d, n):
    """The text of a stream of n tokens."""
    r = d.chat(stream=True, max_tokens=n)
    assert r.status == 200, r
    *events, done = r.events()
    assert done == "[DONE]"
    return "".join(c["delta"].get("content") or "" for e in events for c in json.loads(e)["choices"])


def test_rank_is_killed(models, ranks):
    """Its requests end with an error that names it, and all ranks end; started again, as the unit does, they serve at the
    same address, and the unit is told when."""
    assert re.search(r"^Restart=always$", UNIT, re.M) and "\nNotifyAccess=all\n" in UNIT
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told.bind("\0ingot-ranks-%d" % os.getpid())
    told.settimeout(DEADLINE_S)
    env = {"NOTIFY_SOCKET": "@ingot-ranks-%d" % os.getpid()}
    d = ranks(2, models.slow(), {"server": {"port": free_port()}}, env)
    until(lambda: b"READY=1" in told.recv(4096).split(b"\n"), "it is ready")
    d.wait_ready()
    want = streamed(d, 40)
    assert len(want) > 100 and (tiny_model.SCRIPT * 4).startswith(want)
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

    again = ranks.run(d.folder, d.config, env)
    until(lambda: b"READY=1" in told.recv(4096).split(b"\n"), "it is ready again")
    again.wait_ready()
    assert again.port == d.port and streamed(again, 40) == want
    end(again)
    told.close()


def test_what_is_refused(start, models, ranks):
    """By name, at the start."""
    d = ranks(2, models.random(), {"runtime": {"run_ahead": "on"}})
    assert d.wait_exit() != 0
    assert "over several machines there can be no runtime.run_ahead: on" in d.log
    p = subprocess.run([str(BUILD / "daemon/ingotd"), "--worker", "--config", str(d.config_path)],
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=DEADLINE_S, env=d.env)
    assert p.returncode == 1 and b"this is rank 0, which is the daemon, not a worker" in p.stdout, p.stdout
    start.refused(models.random(), merged(CPU, {"runtime": {"transport": "mpi"}}),
                  env=ENV)
