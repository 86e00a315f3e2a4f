"""A full disk stops the ledger, not the service: a real one where a file system can be mounted, and the
limit of a process everywhere."""
import contextlib
import os
import pathlib
import resource
import shutil
import subprocess

import pytest

from daemon import until
from test_cli import ingot
from test_ledger import rows
from test_restart import respond, until_written
from tiny_model import SCRIPT

pytestmark = pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only on Linux")


class Disk:
    """32 MiB of memory as a file system."""

    def __init__(self, path):
        self.path, self.filler = path, path / "filler"

    def fill(self, d=None):
        with contextlib.suppress(OSError), open(self.filler, "wb", buffering=0) as f:
            while f.write(b"x" * 65536):
                pass
        with contextlib.suppress(OSError), open(self.filler, "ab", buffering=0) as f:
            while f.write(b"x"):
                pass
        assert shutil.disk_usage(self.path).free == 0

    def free(self, d):
        self.filler.unlink()


class Limit:
    """No file of the daemon can grow."""

    def __init__(self, path):
        self.path = path

    def fill(self, d):
        resource.prlimit(d.process.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))

    def free(self, d):
        resource.prlimit(d.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)


def mounted(path):
    path.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(path)],
                                      stderr=subprocess.DEVNULL).returncode:
        return False
    return True


@pytest.fixture(params=["disk", "limit"])
def disk(request, tmp_path):
    path = tmp_path / "disk"
    if request.param == "limit":
        yield Limit(path)
    elif mounted(path):
        yield Disk(path)
        subprocess.run(["umount", "-l", str(path)], check=True)
    else:  # the limit is the same to SQLite
        yield Limit(path)


def doctor(d):
    code, out, err = ingot(d, "doctor", "-c", str(d.config_path),
                           "--url", "http://127.0.0.1:%d" % d.port)
    return code, [x for x in out.splitlines() if x.startswith("wrong")]


def test_the_service_goes_on(start, models, disk):
    d = start(models.script(), {"ledger": {"path": str(disk.path / "ledger.db")}})

    def value(name):
        return d.metrics().sum("ingot_ledger_" + name)

    assert d.chat_text() == SCRIPT
    until(lambda: len(rows(d)) == 1, "a row")
    assert (value("failing"), value("rows_dropped_total")) == (0, 0)
    assert d.http("GET", "/v1/ingot/status").json["ledger"] == {"failing": False, "error": None}
    first = respond(d, "before")
    until_written(d, first)
    assert doctor(d) == (0, [])

    disk.fill(d)
    until(lambda: d.chat_text() == SCRIPT and value("failing") == 1, "the ledger fails")
    meanwhile = []
    until(lambda: meanwhile.append(respond(d, "meanwhile", previous_response_id=first["id"])) or
          d.metrics().sum("ingot_responses_failing") == 1, "the responses fail")
    lost = value("rows_dropped_total")
    assert lost >= 1 and "cannot be written" in d.log
    state = d.http("GET", "/v1/ingot/status").json["ledger"]
    assert state["failing"] and state["error"]
    code, wrong = doctor(d)
    assert code == 1 and any("the daemon cannot write it: " + state["error"] in x for x in wrong), wrong
    state = d.http("GET", "/v1/ingot/status").json["responses"]
    assert state["failing"] and any("the daemon cannot write them: " + state["error"] in x for x in wrong), wrong
    if isinstance(disk, Disk):
        assert any("is full: 0 B are left" in x for x in wrong), wrong

    disk.free(d)  # it goes on by itself, without a request
    until(lambda: value("failing") == 0, "the ledger is written again")
    until(lambda: d.metrics().sum("ingot_responses_failing") == 0, "the responses are written again")
    assert "is written again" in d.log and "are written again" in d.log and doctor(d) == (0, [])
    before = len(rows(d))
    assert d.chat_text() == SCRIPT
    until(lambda: len(rows(d)) == before + 1, "the next row")
    d.stop()
    # what could not be written was written afterwards
    d = start(models.script(), {"ledger": {"path": str(disk.path / "ledger.db")}})
    for r in (first, *meanwhile):
        assert d.http("GET", "/v1/responses/" + r["id"]).json == r
    d.stop()


def test_full_at_the_start(start, models, tmp_path):
    """The service starts; the ledger does when there is space."""
    path = tmp_path / "disk"
    real = mounted(path)
    disk = Disk(path) if real else Limit(path)
    try:
        if real:
            disk.fill()
            d = start(models.script(), {"ledger": {"path": str(path / "below" / "ledger.db")}})
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
            try:
                d = start(models.script(), {"ledger": {"path": str(path / "ledger.db")}})
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        assert d.chat_text() == SCRIPT
        assert d.metrics().sum("ingot_ledger_failing") == 1
        assert "until there is space" in d.log
        until(lambda: d.metrics().sum("ingot_ledger_rows_dropped_total") == 1, "its row is counted")
        disk.free(d)
        until(lambda: d.metrics().sum("ingot_ledger_failing") == 0, "the ledger is there")
        assert d.chat_text() == SCRIPT
        until(lambda: len(rows(d)) == 1, "a row")
        d.stop()
    finally:
        if real:
            subprocess.run(["umount", "-l", str(path)], check=True)
