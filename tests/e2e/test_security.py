"""Who gets in and how: API keys and their roles, TLS, the unix socket, what may be
listened on, pages of browsers."""
import hashlib
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
import time

import pytest
import websockets.exceptions
import websockets.sync.client

from conftest import Starter, configuration
from daemon import (BUILD, DEADLINE_S, Connection, Daemon, Reply, clean_env, merged, read_reply,
                    text_of, until)
from test_ledger import rows, until_rows
from tiny_model import SCRIPT

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "temperature": 0}
OPEN_MESSAGES = {"model": "tiny", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}


def ingot(folder, *args, check=True, env=None):
    r = subprocess.run([str(BUILD / "cli" / "ingot"), *map(str, args)], env=clean_env(folder, env),
                       cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                       timeout=DEADLINE_S)
    assert not re.search("Sanitizer|runtime error:", r.stderr), r.stderr
    assert not check or r.returncode == 0, r.stderr
    return r


def add_key(path, *args):
    """A key of the file, made as people make them."""
    there = [f for f in path.parents if f.exists()][0]
    return ingot(there, "keys", "add", "--file", path, *args).stdout.strip()


def bearer(key):
    return {"Authorization": "Bearer " + key}


def hang_up(d, said):
    """SIGHUP, until the log says so."""
    n = len(d.log)
    d.process.send_signal(signal.SIGHUP)
    until(lambda: re.search(said, d.log[n:]), "the log says " + said)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=DEADLINE_S)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def ask(connection, method, path, body=None, headers=None):
    data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
    try:
        connection.request(method, path, data, headers or {})
        r = connection.getresponse()
        return Reply(r.status, r.headers, r.read())
    finally:
        connection.close()


class AnyDaemon(Daemon):
    """One whose ready line may name TLS or a unix socket."""

    def wait_ready(self):
        line = self.process.stdout.readline().decode()
        m = re.fullmatch(r"ready (https?)://(\S+):(\d+)\n", line)
        self.scheme, self.url = (m.group(1) if m else None), line[6:].strip()
        if m:
            self.host, self.port = m.group(2).strip("[]"), int(m.group(3))
        else:
            assert line.startswith("ready unix:/"), "it said %r and\n%s" % (line, self.log)


@pytest.fixture
def begin(start, models):
    """begin(extra) starts a daemon that listens in whatever way."""
    def one(extra, **options):
        folder = start.folder / ("a%d" % start.n)
        start.n += 1
        d = AnyDaemon(folder, start.config(models.script(), extra), wait=False, **options)
        start.running.append(d)
        d.wait_ready()
        return d
    return one


# ---- keys ---------------------------------------------------------------------------

@pytest.fixture(scope="module")
def keyed(tmp_path_factory, models):
    """A daemon with a user's and an administrator's key."""
    folder = tmp_path_factory.mktemp("keyed")
    path = folder / "keys"
    user, admin = add_key(path, "laptop"), add_key(path, "boss", "--admin", "--note", "mine")
    monitor = add_key(path, "prometheus", "--monitor")
    s = Starter(folder)
    d = s(config=configuration(folder, extra={
        "server": {"keys_file": str(path), "allowed_origins": ["http://page.test"]},
        "models": [{"name": "tiny", "path": models.script()}]}))
    d.user, d.admin, d.monitor, d.keys_path = user, admin, monitor, path
    yield d
    s.finish()


def test_keys_in_both_headers(keyed):
    for headers in (bearer(keyed.user), {"x-api-key": keyed.user}, bearer(keyed.admin),
                    {"Authorization": "bearer   " + keyed.user + " "}, {"X-API-KEY": keyed.admin},
                    {"Authorization": "Basic dTpw", "x-api-key": keyed.user}):
        r = keyed.http("POST", "/v1/chat/completions", CHAT, headers)
        assert r.status == 200, (headers, r)
        assert r.json["choices"][0]["message"]["content"] == SCRIPT
        assert keyed.http("GET", "/v1/models", headers=headers).status == 200


BAD_KEYS = {
    "another": {"Authorization": "Bearer ingot-" + "0" * 64},
    "empty": {"Authorization": "Bearer "},
    "blank": {"x-api-key": " "},
    "basic": {"Authorization": "Basic dTpw"},
    "no scheme": {"Authorization": "ingot-" + "0" * 64},
    "long": {"Authorization": "Bearer " + "a" * 5000},
    "long x-api-key": {"x-api-key": "a" * 5000},
}


@pytest.mark.parametrize("name", sorted(BAD_KEYS))
def test_wrong_key(keyed, name):
    for method, path, body in (("GET", "/v1/models", None), ("GET", "/metrics", None),
                               ("POST", "/v1/chat/completions", CHAT), ("GET", "/nothing", None),
                               ("GET", "/v1/responses", None)):
        r = keyed.http(method, path, body, BAD_KEYS[name])
        assert r.status == 401, (path, r)
        assert r.headers["WWW-Authenticate"] == 'Bearer realm="ingot"'
        assert r.error["type"] and r.error["message"] and r.error["param"] is None, r
        assert r.error["code"] in ("invalid_api_key", "missing_api_key")
        assert "aaaa" not in r.body.decode() and "0000" not in r.body.decode()


def test_almost_the_key(keyed):
    for wrong in (keyed.user[:-1], keyed.user + "0", keyed.user[:-1] + "x", keyed.user.upper(),
                  keyed.user[6:], keyed.user + ", " + keyed.user,
                  hashlib.sha256(keyed.user.encode()).hexdigest()):
        r = keyed.http("GET", "/v1/models", headers=bearer(wrong))
        assert r.status == 401 and r.error["code"] == "invalid_api_key", (wrong, r)
    # twice the header is no key twice
    r = keyed.raw(("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
                   "Authorization: Bearer %s\r\n\r\n" % (keyed.user, keyed.user)).encode())
    assert r.status == 401


def test_no_key(keyed):
    for method, path, body in (("GET", "/v1/models", None), ("GET", "/metrics", None),
                               ("GET", "/v1/ingot/status", None), ("GET", "/", None),
                               ("POST", "/v1/chat/completions", CHAT), ("HEAD", "/v1/models", None),
                               ("DELETE", "/v1/responses/x", None)):
        r = keyed.http(method, path, body)
        assert r.status == 401, (path, r)
        assert r.headers["WWW-Authenticate"] == 'Bearer realm="ingot"'
        if method != "HEAD":
            assert r.error["code"] == "missing_api_key" and "x-api-key" in r.error["message"]
    assert keyed.http("GET", "/healthz").json == {"status": "ok"}
    assert keyed.http("GET", "/healthz", headers=bearer("wrong")).status == 200
    # a body that is on its way does not drown the answer
    r = keyed.http("POST", "/v1/chat/completions", json.dumps(CHAT).encode() + b" " * 3000000)
    assert r.status == 401


def test_errors_have_the_shape_of_their_path(keyed):
    r = keyed.http("POST", "/v1/messages", OPEN_MESSAGES)
    assert r.status == 401
    assert r.json["type"] == "error" and r.json["error"]["type"] == "authentication_error", r
    r = keyed.http("POST", "/v1/chat/completions", CHAT)
    assert set(r.json) == {"error"} and set(r.error) == {"message", "type", "param", "code"}, r


def test_roles(keyed):
    for path in ("/metrics", "/v1/ingot/status", "/v1/ingot/requests", "/v1/ingot", "/v1/ingot/x"):
        r = keyed.http("GET", path, headers=bearer(keyed.user))
        assert r.status == 403 and r.error["code"] == "administrator_required", (path, r)
        assert "WWW-Authenticate" not in r.headers
        assert keyed.http("GET", path, headers=bearer(keyed.admin)).status in (200, 404)
    # spelling it otherwise is no way in
    for path in ("/v1/./ingot/status", "/v1/x/../ingot/status", "//metrics", "/%6detrics",
                 "/v1/%69ngot/status", "/v1//ingot/status", "/metrics/", "/metrics?x=1", "/METRICS"):
        r = keyed.http("GET", path, headers=bearer(keyed.user))
        assert r.status in (400, 403, 404), (path, r)
        assert b"ingot_" not in r.body and b"kvcache" not in r.body
    assert keyed.http("GET", "/v1/nothing", headers=bearer(keyed.user)).status == 404
    assert keyed.http("GET", "/v1ingot", headers=bearer(keyed.user)).status == 403


def test_a_monitor_reads_metrics_alone(keyed):
    with_key = bearer(keyed.monitor)
    r = keyed.http("GET", "/metrics", headers=with_key)
    assert r.status == 200 and b"ingot_build_info" in r.body
    assert keyed.http("HEAD", "/metrics", headers=with_key).status == 200
    assert keyed.http("GET", "/healthz", headers=with_key).status == 200
    for method, path, body in (
            ("GET", "/", None), ("GET", "/v1/models", None), ("GET", "/v1/models/tiny", None),
            ("GET", "/v1/ingot/status", None), ("GET", "/metrics/", None), ("GET", "/nothing", None),
            ("POST", "/v1/chat/completions", CHAT), ("POST", "/v1/messages", OPEN_MESSAGES),
            ("POST", "/v1/ingot/models/unload", {"model": "tiny"}), ("GET", "/v1/responses/x", None)):
        r = keyed.http(method, path, body, with_key)
        assert r.status == 403, (path, r)
        assert r.error.get("code", "monitor_key") == "monitor_key", (path, r)
        assert "/metrics" in r.error["message"]
    with pytest.raises(websockets.exceptions.InvalidStatus) as e:
        keyed.ws(additional_headers=with_key)
    assert e.value.response.status_code == 403


def test_keys_of_one_connection(keyed):
    """Each request is judged by itself, however the one before it was."""
    s = keyed.connect()

    def get(path, key):
        s.sendall(("GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n" % (
            path, "Authorization: Bearer %s\r\n" % key if key else "")).encode())
        return read_reply(s)
    assert get("/metrics", keyed.admin).status == 200
    assert get("/healthz", None).status == 200
    assert get("/v1/models", keyed.user).status == 200
    assert get("/metrics", keyed.user).status == 403
    s = keyed.connect()
    assert get("/metrics", keyed.admin).status == 200
    assert get("/metrics", None).status == 401


def test_websocket_with_keys(keyed):
    for headers in (bearer(keyed.user), {"x-api-key": keyed.user}):
        c = keyed.ws(additional_headers=headers)
        assert text_of(c.answer()) == SCRIPT
        c.close()
    for headers in (None, bearer("ingot-" + "1" * 64)):
        with pytest.raises(websockets.exceptions.InvalidStatus) as e:
            keyed.ws(additional_headers=headers)
        assert e.value.response.status_code == 401
        assert json.loads(e.value.response.body)["error"]["code"] in ("missing_api_key",
                                                                      "invalid_api_key")
        assert e.value.response.headers["WWW-Authenticate"] == 'Bearer realm="ingot"'


def test_ledger_says_whose_it_was(keyed):
    n = len(rows(keyed)) if pathlib.Path(keyed.config["ledger"]["path"]).exists() else 0
    assert keyed.http("POST", "/v1/chat/completions", CHAT, bearer(keyed.user)).status == 200
    c = keyed.ws(additional_headers=bearer(keyed.admin))
    assert text_of(c.answer()) == SCRIPT
    c.close()
    assert keyed.http("POST", "/v1/chat/completions", CHAT).status == 401
    until(lambda: len(rows(keyed)) >= n + 3, "the rows are there")
    keys = [(r["key"], r["status"]) for r in rows(keyed)]
    assert ("laptop", 200) in keys and ("boss", 200) in keys and ("", 401) in keys
    # nothing of a key itself is kept anywhere
    for path in keyed.folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert keyed.user[6:].encode() not in data and keyed.admin[6:].encode() not in data, path


def test_pages_with_keys(keyed):
    """A page of an allowed origin asks first, without a key, then comes with one."""
    origin = {"Origin": "http://page.test"}
    r = keyed.http("OPTIONS", "/v1/chat/completions", headers=dict(
        origin, **{"Access-Control-Request-Method": "POST",
                   "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os"}))
    assert r.status == 204
    assert r.headers["Access-Control-Allow-Origin"] == "http://page.test"
    allowed = [h.strip() for h in r.headers["Access-Control-Allow-Headers"].split(",")]
    for h in ("authorization", "content-type", "x-api-key", "anthropic-version", "*"):
        assert h in allowed
    assert {m.strip() for m in r.headers["Access-Control-Allow-Methods"].split(",")} == {
        "GET", "POST", "DELETE"}
    assert int(r.headers["Access-Control-Max-Age"]) > 0
    assert "Access-Control-Allow-Credentials" not in r.headers
    r = keyed.http("POST", "/v1/chat/completions", CHAT, dict(origin, **bearer(keyed.user)))
    assert r.status == 200 and r.headers["Access-Control-Allow-Origin"] == "http://page.test"
    # a refusal can be read by the page too
    r = keyed.http("POST", "/v1/chat/completions", CHAT, origin)
    assert r.status == 401 and r.headers["Access-Control-Allow-Origin"] == "http://page.test"
    for origin in ("http://evil.test", "null", "https://page.test", "http://page.test.evil.test"):
        r = keyed.http("OPTIONS", "/v1/chat/completions", headers={"Origin": origin})
        assert r.status == 403 and "Access-Control-Allow-Origin" not in r.headers
        r = keyed.http("GET", "/v1/models", headers={"Origin": origin, **bearer(keyed.user)})
        assert r.status == 403 and "Access-Control-Allow-Origin" not in r.headers
    # an OPTIONS that no browser sends is a request as others
    assert keyed.http("OPTIONS", "/v1/models").status == 401


def test_no_page_without_origins(scripted):
    """CORS is off unless somebody has configured it."""
    for method in ("OPTIONS", "GET"):
        r = scripted.http(method, "/v1/models", headers={"Origin": "http://page.test"})
        assert r.status == 403 and r.error["code"] == "origin_not_allowed"
        assert not [h for h in r.headers if h.lower().startswith("access-control")]


@pytest.mark.tsan
def test_keys_come_and_go(start, models, tmp_path):
    """A file is taken over on SIGHUP: what was removed is refused at once."""
    path = tmp_path / "k" / "keys"
    d = start(models.script(), {"server": {"keys_file": str(path)}})
    assert d.chat_text() == SCRIPT  # there is no file yet: nobody needs a key
    anonymous = d.ws()
    assert text_of(anonymous.answer()) == SCRIPT
    a, b = add_key(path, "a"), add_key(path, "b", "--admin")
    assert d.chat_text() == SCRIPT  # and so until it is told
    hang_up(d, "reload: 2 keys in " + str(path))
    assert d.chat().status == 401

    def ok(key):
        return d.http("POST", "/v1/chat/completions", CHAT, bearer(key)).status
    until(lambda: ok(a) == 200, "the new key is known")
    anonymous.create()
    with pytest.raises(websockets.exceptions.ConnectionClosed) as e:
        anonymous.event()
    assert e.value.rcvd.code == 1008
    with_a, with_b = d.ws(additional_headers=bearer(a)), d.ws(additional_headers=bearer(b))
    assert text_of(with_a.answer()) == SCRIPT
    ingot(tmp_path, "keys", "remove", "a", "--file", path)
    c = add_key(path, "a")  # the same id is not the same key
    hang_up(d, "reload: 2 keys")
    until(lambda: ok(c) == 200, "the newer key is known")
    assert (ok(a), ok(b)) == (401, 200)
    with_a.create()
    with pytest.raises(websockets.exceptions.ConnectionClosed) as e:
        with_a.event()
    assert e.value.rcvd.code == 1008
    assert text_of(with_b.answer()) == SCRIPT
    # a file that is broken, or that others may read, changes nothing
    good = path.read_text()
    path.write_text("x" + good)
    hang_up(d, "reload: .*keys:.*the old keys stay")
    assert (ok(b), ok(c)) == (200, 200)
    path.write_text(good)
    path.chmod(0o644)
    hang_up(d, "reload: .*chmod 600.*the old keys stay")
    assert (ok(b), ok(c)) == (200, 200)
    path.chmod(0o600)
    # one that is gone lets nobody in; keys are taken over beside a broken configuration too
    path.unlink()
    d.write_config("server:\n  prt: 1\n")
    hang_up(d, "keys is missing")
    until(lambda: ok(b) == 401, "no key is known")
    assert d.chat().status == 401 and d.http("GET", "/healthz").status == 200
    path.write_text(good)
    path.chmod(0o600)
    hang_up(d, "reload: 2 keys")
    until(lambda: ok(b) == 200, "it is back")
    # the last key removed: the file says that there are none, and so nobody gets in
    for name in ("a", "b"):
        ingot(tmp_path, "keys", "remove", name, "--file", path)
    hang_up(d, "reload: 0 keys")
    until(lambda: ok(b) == 401, "no key is known")


def test_bad_files_of_keys(start, models, tmp_path):
    path = tmp_path / "keys"
    add_key(path)
    extra = {"server": {"keys_file": str(path)}}
    path.chmod(0o640)
    log = start.refused(models.script(), extra)
    assert "%s: other users may read it (mode 0640); run: chmod 600" % path in log
    path.chmod(0o600)
    n = len(path.read_text().splitlines())
    with path.open("a") as f:
        f.write("ingot-secret-by-mistake\n")
    log = start.refused(models.script(), extra)
    assert "%s:%d: a line is ID ROLE" % (path, n + 1) in log and "secret" not in log
    path.unlink()
    path.mkdir()
    assert "is not a regular file" in start.refused(models.script(), extra)


@pytest.mark.tsan
def test_a_later_key_of_the_same_id(start, models, tmp_path):
    """It has none of the responses of the one that was removed."""
    path = tmp_path / "keys"
    old, admin = add_key(path, "a"), add_key(path, "b", "--admin")
    d = start(models.script(), {"server": {"keys_file": str(path)}})

    def respond(key, **more):
        return d.http("POST", "/v1/responses", {"model": "tiny", "input": "hi", **more}, bearer(key))
    kept = respond(old).json["id"]
    assert respond(old, previous_response_id=kept).status == 200
    # an administrator has none of others' either
    assert respond(admin, previous_response_id=kept).status == 400
    assert d.http("GET", "/v1/responses/" + kept, headers=bearer(admin)).status == 404
    assert d.http("GET", "/v1/responses/" + kept, headers=bearer(old)).status == 200
    ingot(tmp_path, "keys", "remove", "a", "--file", path)
    new = add_key(path, "a")
    hang_up(d, "reload: 2 keys")
    until(lambda: d.http("GET", "/v1/models", headers=bearer(new)).status == 200, "it is known")
    assert d.http("GET", "/v1/responses/" + kept, headers=bearer(new)).status == 404
    assert d.http("DELETE", "/v1/responses/" + kept, headers=bearer(new)).status == 404
    r = respond(new, previous_response_id=kept)
    assert r.status == 400 and r.error["code"] == "previous_response_not_found"


# ---- without keys, behind a proxy ---------------------------------------------------------

FORWARDED = ("Forwarded: for=192.0.2.1", "X-Forwarded-For: 127.0.0.1", "X-Forwarded-Host: localhost",
             "x-forwarded-proto: https", "X-Real-IP: 127.0.0.1", "Via: 1.1 localhost",
             "forwarded:", "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 127.0.0.1")


@pytest.mark.parametrize("header", FORWARDED)
def test_a_proxy_is_no_administrator(scripted, header):
    """Whoever comes through a proxy on this machine comes from loopback too."""
    def get(path, more):
        return scripted.raw(("GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n" % (path, more)).encode())
    for path in ("/metrics", "/v1/ingot/status", "/v1/ingot/requests"):
        assert get(path, "").status == 200
        r = get(path, header + "\r\n")
        assert r.status == 403 and r.error["code"] == "administrator_required", r
    assert get("/v1/models", header + "\r\n").status == 200
    assert get("/healthz", header + "\r\n").status == 200
    # where a model's file lies is for administrators
    assert b'"file"' in get("/v1/models", "").body
    assert b'"file"' not in get("/v1/models", header + "\r\n").body
    name, value = header.split("\r\n")[0].split(":", 1)
    if value:
        c = scripted.ws(additional_headers={name: value.strip()})
        assert text_of(c.answer()) == SCRIPT
        c.close()


# ---- ingot keys -----------------------------------------------------------------------

def test_the_command(tmp_path):
    path = tmp_path / "deep" / "keys"
    r = ingot(tmp_path, "keys", "list", "--file", path)
    assert "%s does not exist" % path in r.stdout
    r = ingot(tmp_path, "keys", "add", "--file", path)
    assert re.fullmatch("ingot-[0-9a-f]{64}\n", r.stdout)
    assert "only this once" in r.stderr and "kill -HUP" in r.stderr and "administrator" in r.stderr
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    r = ingot(tmp_path, "keys", "add", "boss", "--admin", "--note", "of the house",
              "--max-concurrent", "3", "--requests-per-minute=0", "--file", path)
    assert "administrator" in r.stderr and "no administrator's key" not in r.stderr
    text = path.read_text()
    assert r.stdout.strip() not in text
    line = [l for l in text.splitlines() if l.startswith("boss ")][0]
    assert line.split(" ")[2] == hashlib.sha256(r.stdout.strip().encode()).hexdigest()
    assert line.endswith("max_concurrent=3 requests_per_minute=0 note=of the house")
    r = ingot(tmp_path, "keys", "list", "--file", path)
    (boss,) = [l.split() for l in r.stdout.splitlines() if l.startswith("boss ")]
    assert boss[1] == "administrator" and boss[3:] == ["3", "none", "-", "1", "0", "of", "the", "house"]
    assert len(r.stdout.splitlines()) == 3
    for args, words in ((["add", "boss"], "a key boss exists"),
                        (["add", "Boss"], "is not a key's id"),
                        (["add", "a", "--note", "x\ny"], "--note"),
                        (["remove", "bos"], "did you mean boss?")):
        r = ingot(tmp_path, "keys", *args, "--file", path, check=False)
        assert r.returncode == 1 and words in r.stderr, r.stderr
    for args in ([], ["show"], ["remove"], ["list", "x"], ["add", "a", "b"], ["list", "--admin"],
                 ["list", "--monitor"], ["add", "--admin", "--monitor"],
                 ["add", "--max-concurrent", "-1"], ["add", "--tokens-per-minute", "1e3"],
                 ["add", "--requests-per-minute", "1000000001"]):
        r = ingot(tmp_path, "keys", *args, check=False)
        assert r.returncode == 2 and r.stderr.startswith("ingot: keys: "), (args, r.stderr)
    assert path.read_text() == text
    r = ingot(tmp_path, "keys", "remove", "boss", "--file", path)
    assert "no administrator's key is left" in r.stderr
    (last,) = [l.split()[0] for l in path.read_text().splitlines() if not l.startswith("#")]
    r = ingot(tmp_path, "keys", "remove", last, "--file", path)
    assert "every request will be refused" in r.stderr
    assert "every request is refused" in ingot(tmp_path, "keys", "list", "--file", path).stdout
    path.chmod(0o604)
    r = ingot(tmp_path, "keys", "add", "--file", path, check=False)
    assert r.returncode == 1 and "chmod 600" in r.stderr and r.stdout == ""


def test_the_command_finds_the_file(tmp_path):
    """By the configuration, and without one where the daemon would look."""
    (tmp_path / "c.yaml").write_text("server:\n  keys_file: there/keys\n")
    ingot(tmp_path, "keys", "add", "--config", "c.yaml")
    assert (tmp_path / "there" / "keys").exists()
    ingot(tmp_path, "keys", "add", "x", env={"XDG_STATE_HOME": str(tmp_path / "state")})
    if sys.platform.startswith("linux"):
        assert (tmp_path / "state" / "ingot" / "keys").exists()


def test_many_at_once(tmp_path):
    """Each of them adds its key, and none takes away another's."""
    path = tmp_path / "keys"
    command = [str(BUILD / "cli" / "ingot"), "keys", "add", "--file", str(path)]
    running = [subprocess.Popen(command + ["k%d" % i], env=clean_env(tmp_path),
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE) for i in range(12)]
    for p in running:
        p.communicate(timeout=DEADLINE_S)
    assert [p.returncode for p in running] == [0] * 12
    ids = [l.split()[0] for l in path.read_text().splitlines() if not l.startswith("#")]
    assert sorted(ids) == sorted("k%d" % i for i in range(12))


# ---- where it listens --------------------------------------------------------------------

@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_no_network_without_keys(start, models, tmp_path, host):
    path = tmp_path / "keys"
    extra = {"server": {"host": host, "keys_file": str(path)}}
    log = start.refused(models.script(), extra)
    line = log.strip().splitlines()[-1]
    for words in ("refusing to listen on %s" % host, str(path), "ingot keys add", "allow_anonymous",
                  "127.0.0.1"):
        assert words in line, line
    ingot(tmp_path, "keys", "add", "x", "--file", path)
    ingot(tmp_path, "keys", "remove", "x", "--file", path)
    assert "refusing" in start.refused(models.script(), extra)  # a file without keys is none


def test_network_with_keys(start, models, tmp_path):
    path = tmp_path / "keys"
    key = add_key(path)
    d = start(models.script(), {"server": {"host": "0.0.0.0", "keys_file": str(path)}})
    assert "server.tls_cert is not set" in d.log
    d.host = "127.0.0.1"
    assert d.chat().status == 401
    assert d.http("POST", "/v1/chat/completions", CHAT, bearer(key)).status == 200


def own_address():
    """An address of this machine that is not loopback, or None."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("192.0.2.1", 9))  # nothing is sent
            return s.getsockname()[0]
        except OSError:
            return None


def test_anonymous_from_the_network(start, models):
    """With allow_anonymous other machines are users, this machine is an administrator."""
    d = start(models.script(), {"server": {"host": "0.0.0.0", "allow_anonymous": True}})
    assert "WWW-Authenticate" not in d.http("GET", "/healthz").headers
    d.host = "127.0.0.1"
    assert d.chat_text() == SCRIPT and d.http("GET", "/metrics").status == 200
    address = own_address()
    if address and not address.startswith("127."):
        d.host = address
        host = {"Host": "localhost"}
        assert d.http("POST", "/v1/chat/completions", CHAT, host).status == 200
        assert d.http("GET", "/v1/models", headers=host).status == 200
        for path in ("/metrics", "/v1/ingot/status"):
            assert d.http("GET", path, headers=host).status == 403
        d.host = "127.0.0.1"


def test_anonymous_beside_keys(start, models, tmp_path):
    """Without a key one is a user, with a wrong one nobody."""
    path = tmp_path / "keys"
    admin = add_key(path, "--admin")
    d = start(models.script(), {"server": {"keys_file": str(path), "allow_anonymous": True}})
    assert d.chat_text() == SCRIPT
    c = d.ws()
    assert text_of(c.answer()) == SCRIPT
    assert d.http("GET", "/metrics").status == 403
    assert d.http("GET", "/metrics", headers=bearer(admin)).status == 200
    assert d.http("GET", "/v1/models", headers=bearer("wrong")).status == 401
    hang_up(d, "reload: 1 keys")
    assert text_of(c.answer()) == SCRIPT
    d.metrics = lambda: None  # it would be refused


# ---- the unix socket --------------------------------------------------------------------

def unix_ws(path, **options):
    return Connection(websockets.sync.client.unix_connect(
        str(path), uri="ws://whatever/v1/responses", compression=None, max_size=None,
        open_timeout=DEADLINE_S, **options))


@pytest.mark.tsan
def test_unix_socket(begin, short):
    path = short / "s"
    was = os.umask(0)
    try:
        d = begin({"server": {"unix_socket": str(path)}})
    finally:
        os.umask(was)
    assert stat.S_ISSOCK(path.stat().st_mode) and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert d.chat_text() == SCRIPT  # the port is there too
    r = ask(UnixConnection(path), "POST", "/v1/chat/completions", CHAT)
    assert r.status == 200 and r.json["choices"][0]["message"]["content"] == SCRIPT
    # any Host will do, but there is one
    for host, status in (("evil.test", 200), ("", 400)):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(DEADLINE_S)
        s.connect(str(path))
        line = "Host: %s\r\n" % host if host else ""
        s.sendall(("GET /v1/ingot/status HTTP/1.1\r\n%s\r\n" % line).encode())
        assert read_reply(s).status == status
        s.close()
    assert d.http("GET", "/healthz", headers={"Host": "evil.test"}).status == 403
    c = unix_ws(path)
    assert text_of(c.answer()) == SCRIPT
    c.close()
    until_rows(d, 3)
    clients = {r["client"] for r in rows(d)}
    assert clients == {"127.0.0.1", "unix:uid=%d" % os.getuid()}
    d.stop()
    assert not path.exists()


def test_unix_socket_alone(begin, short):
    path = short / "s"
    d = begin({"server": {"host": "", "unix_socket": str(path), "unix_socket_mode": "0660"}})
    assert d.url == "unix:" + str(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert ask(UnixConnection(path), "GET", "/metrics").status == 200
    if pathlib.Path("/proc/net/tcp").exists():
        inodes = set()
        for fd in pathlib.Path("/proc/%d/fd" % d.process.pid).iterdir():
            try:
                target = os.readlink(fd)
            except FileNotFoundError:  # closed meanwhile
                continue
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
        for table in ("tcp", "tcp6"):
            for line in pathlib.Path("/proc/net/" + table).read_text().splitlines()[1:]:
                assert line.split()[9] not in inodes, "it has a TCP socket"
    d.stop()


@pytest.mark.parametrize("mode", ["0600", "0660", "0666", "700"])
def test_unix_socket_mode(begin, short, mode):
    path = short / "s"
    d = begin({"server": {"unix_socket": str(path), "unix_socket_mode": mode}})
    assert stat.S_IMODE(path.stat().st_mode) == int(mode, 8)
    assert ask(UnixConnection(path), "GET", "/healthz").status == 200
    d.stop()


def test_unix_socket_with_keys(begin, short, tmp_path):
    """Keys hold there too."""
    path, keys = short / "s", tmp_path / "keys"
    key = add_key(keys)
    d = begin({"server": {"unix_socket": str(path), "keys_file": str(keys)}})
    assert ask(UnixConnection(path), "GET", "/v1/models").status == 401
    assert ask(UnixConnection(path), "GET", "/v1/models", headers=bearer(key)).status == 200
    assert ask(UnixConnection(path), "GET", "/metrics", headers=bearer(key)).status == 403
    c = unix_ws(path, additional_headers=bearer(key))
    assert text_of(c.answer()) == SCRIPT
    c.close()
    d.stop()


def test_what_lies_there(begin, start, models, short, tmp_path):
    """A socket that nobody answers on is taken away, and nothing else."""
    path = short / "s"
    extra = {"server": {"unix_socket": str(path)}, "ledger": {"enabled": False}, "responses": {"persist": False}}
    s = socket.socket(socket.AF_UNIX)
    s.bind(str(path))
    s.close()
    d = begin(extra)
    assert ask(UnixConnection(path), "GET", "/healthz").status == 200
    assert "another process does" in start.refused(models.script(), extra)
    assert ask(UnixConnection(path), "GET", "/healthz").status == 200
    d.kill()  # it could not tidy up
    assert path.exists()
    d = begin(extra)
    assert ask(UnixConnection(path), "GET", "/healthz").status == 200
    d.stop()
    path.write_text("precious")
    assert "is not a socket" in start.refused(models.script(), extra)
    assert path.read_text() == "precious"
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    assert "is not a socket" in start.refused(models.script(), extra)
    path.unlink()
    # one that listens and does not accept is somebody's too
    s = socket.socket(socket.AF_UNIX)
    s.bind(str(path))
    s.listen(0)
    assert "another process does" in start.refused(models.script(), extra)
    s.close()
    for bad, words in ((short / "nowhere" / "s", "No such file"),
                       (tmp_path / ("l" * 120), "at most")):
        log = start.refused(models.script(), merged(extra, {"server": {"unix_socket": str(bad)}}))
        assert str(bad) in log and words in log, log


# ---- TLS ------------------------------------------------------------------------------------

def openssl(*args):
    subprocess.run(["openssl", *map(str, args)], check=True, stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=DEADLINE_S)


def certificate(folder, name="tls", key=("ec", "-pkeyopt", "ec_paramgen_curve:P-256")):
    cert, private = folder / (name + ".crt"), folder / (name + ".key")
    openssl("req", "-x509", "-newkey", *key, "-nodes", "-keyout", private, "-out", cert, "-days", 2,
            "-subj", "/CN=" + name, "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    private.chmod(0o600)
    return cert, private


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    assert shutil.which("openssl"), "the openssl command makes the certificates"
    return certificate(tmp_path_factory.mktemp("tls"))


def trusting(cert, **options):
    context = ssl.create_default_context(cafile=str(cert))
    for name, v in options.items():
        setattr(context, name, v)
    return context


def https(d, cert, method, path, body=None, headers=None):
    c = http.client.HTTPSConnection(d.host, d.port, timeout=DEADLINE_S, context=trusting(cert))
    return ask(c, method, path, body, headers)


def tls_extra(pair, **server):
    return {"server": dict({"tls_cert": str(pair[0]), "tls_key": str(pair[1])}, **server)}


@pytest.mark.tsan
def test_tls(begin, pair, short, tmp_path):
    path = tmp_path / "keys"
    key = add_key(path)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        also = s.getsockname()[1]
    d = begin(tls_extra(pair, keys_file=str(path), unix_socket=str(short / "s"), also_listen=also))
    second = http.client.HTTPSConnection(d.host, also, timeout=DEADLINE_S, context=trusting(pair[0]))
    assert ask(second, "POST", "/v1/chat/completions", CHAT, bearer(key)).status == 200
    assert d.scheme == "https" and d.url == "https://127.0.0.1:%d" % d.port
    assert https(d, pair[0], "GET", "/healthz").status == 200
    r = https(d, pair[0], "POST", "/v1/chat/completions", CHAT, bearer(key))
    assert r.status == 200 and r.json["choices"][0]["message"]["content"] == SCRIPT
    r = https(d, pair[0], "POST", "/v1/chat/completions", dict(CHAT, stream=True), bearer(key))
    assert r.status == 200 and r.events()[-1] == "[DONE]"
    assert https(d, pair[0], "POST", "/v1/chat/completions", CHAT).status == 401
    # a body of many records, and a refusal while it comes
    big = json.dumps(CHAT).encode() + b" " * 3000000
    assert https(d, pair[0], "POST", "/v1/chat/completions", big, bearer(key)).status == 200
    assert https(d, pair[0], "GET", "/metrics", headers=bearer(key)).status == 403
    c = Connection(websockets.sync.client.connect(
        "wss://127.0.0.1:%d/v1/responses" % d.port, ssl=trusting(pair[0]), compression=None,
        open_timeout=DEADLINE_S, additional_headers=bearer(key)))
    assert text_of(c.answer()) == SCRIPT
    c.create("word " * 20000)  # more than a record
    assert c.until_type("response.failed", "response.completed")[-1]["type"] == "response.failed"
    assert text_of(c.answer()) == SCRIPT
    c.close()
    # the socket of the same daemon has no use for TLS
    r = ask(UnixConnection(short / "s"), "GET", "/v1/models", headers=bearer(key))
    assert r.status == 200
    d.stop()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # old versions are asked for on purpose
def test_tls_versions(begin, pair):
    d = begin(tls_extra(pair))

    def version(low, high, **options):
        context = trusting(pair[0], **options)
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version, context.maximum_version = low, high
        with socket.create_connection((d.host, d.port), timeout=DEADLINE_S) as s:
            with context.wrap_socket(s, server_hostname="localhost") as t:
                return t.version()
    v = ssl.TLSVersion
    assert version(v.TLSv1_2, v.TLSv1_2) == "TLSv1.2"
    assert version(v.TLSv1_2, v.TLSv1_3) == "TLSv1.3"
    for old in (v.TLSv1, v.TLSv1_1):
        with pytest.raises((ssl.SSLError, OSError)):
            version(old, old)
    # nothing follows the handshake of 1.3 but answers: see ig_tls_serve
    with socket.create_connection((d.host, d.port), timeout=DEADLINE_S) as s:
        with trusting(pair[0]).wrap_socket(s, server_hostname="localhost") as t:
            t.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert t.recv(4096).startswith(b"HTTP/1.1 200")
            assert t.version() == "TLSv1.3" and not t.session.has_ticket
    # HTTP/2 is not spoken, even where both sides could
    context = trusting(pair[0])
    context.set_alpn_protocols(["h2", "http/1.1"])
    with socket.create_connection((d.host, d.port), timeout=DEADLINE_S) as s:
        with context.wrap_socket(s, server_hostname="localhost") as t:
            assert t.selected_alpn_protocol() == "http/1.1"
            t.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert t.recv(4096).startswith(b"HTTP/1.1 200")
    # and plain HTTP is not taken for anything
    for data in (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
                 b"\x16\x03\x01\xff\xff" + b"\0" * 400):
        with socket.create_connection((d.host, d.port), timeout=DEADLINE_S) as s:
            got = b""
            try:
                s.sendall(data)
                s.shutdown(socket.SHUT_WR)
                while piece := s.recv(4096):
                    got += piece
            except OSError:  # it has hung up already
                pass
            assert b"200" not in got and b"status" not in got
    assert https(d, pair[0], "GET", "/healthz").status == 200
    d.stop()


def test_tls_with_a_chain_and_rsa(begin, tmp_path):
    """The certificate is signed by another, which is sent along."""
    def signed(name, extension, by, by_key):
        cert, key = tmp_path / (name + ".crt"), tmp_path / (name + ".key")
        request, ext = tmp_path / (name + ".csr"), tmp_path / (name + ".ext")
        ext.write_text(extension + "\n")
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request,
                "-subj", "/CN=" + name)
        openssl("x509", "-req", "-in", request, "-CA", by, "-CAkey", by_key, "-CAcreateserial",
                "-days", 2, "-out", cert, "-extfile", ext)
        key.chmod(0o600)
        return cert, key
    ca, ca_key = certificate(tmp_path, "ca", key=("rsa:2048",))
    mid, mid_key = signed("mid", "basicConstraints=critical,CA:TRUE", ca, ca_key)
    leaf, leaf_key = signed("leaf", "subjectAltName=DNS:localhost,IP:127.0.0.1", mid, mid_key)
    alone = begin(tls_extra((leaf, leaf_key)))
    with pytest.raises(ssl.SSLCertVerificationError):
        https(alone, ca, "GET", "/healthz")
    alone.stop()
    leaf.write_text(leaf.read_text() + mid.read_text())
    d = begin(tls_extra((leaf, leaf_key)))
    assert https(d, ca, "GET", "/healthz").status == 200
    d.stop()


def test_new_certificate_by_reload(begin, tmp_path):
    cert, private = certificate(tmp_path, "one")
    d = begin(tls_extra((cert, private)))

    def served():
        pem = ssl.get_server_certificate((d.host, d.port), timeout=DEADLINE_S)
        return [p for p in ("one", "two") if (tmp_path / (p + ".pem")).exists() and
                (tmp_path / (p + ".pem")).read_text().split() == pem.split()]
    shutil.copy(cert, tmp_path / "one.pem")
    assert served() == ["one"]
    held = http.client.HTTPSConnection(d.host, d.port, timeout=DEADLINE_S, context=trusting(cert))
    held.request("GET", "/healthz")
    assert held.getresponse().read()
    old = cert.read_text()
    other = certificate(tmp_path, "two", key=("rsa:2048",))
    shutil.copy(other[0], tmp_path / "two.pem")
    # the certificate without its key changes nothing
    shutil.copy(other[0], cert)
    hang_up(d, "is not the private key of .*the old certificate stays")
    assert served() == ["one"]
    shutil.copy(other[1], private)
    hang_up(d, "reload: ")
    until(lambda: served() == ["two"], "the new one is served")
    # who was connected stays so
    held.request("GET", "/healthz")
    assert held.getresponse().status == 200
    held.close()
    cert.write_text("rubbish")
    hang_up(d, "must be a certificate in PEM.*the old certificate stays")
    assert served() == ["two"]
    assert old != other[0].read_text()
    d.stop()


def test_bad_certificates(start, models, pair, tmp_path):
    cert, private = tmp_path / "c.crt", tmp_path / "c.key"
    extra = tls_extra((cert, private))

    def refused(cert_text, key_text, mode=0o600):
        for path, text in ((cert, cert_text), (private, key_text)):
            if path.exists():
                path.unlink()
            if text is not None:
                path.write_text(text)
        if private.exists():
            private.chmod(mode)
        return start.refused(models.script(), extra).strip().splitlines()[-1]
    good, good_key = pair[0].read_text(), pair[1].read_text()
    other, other_key = certificate(tmp_path, "other")
    assert "%s: cannot be read: No such file" % cert in refused(None, good_key)
    assert "%s: cannot be read: No such file" % private in refused(good, None)
    assert "%s: server.tls_cert must be a certificate in PEM" % cert in refused("", good_key)
    assert "%s: server.tls_cert must be a certificate in PEM" % cert in refused(good_key, good_key)
    assert str(cert) in refused(good.replace("A", "B"), good_key)
    broken = good[:len(good) // 2] + "!!\n-----END CERTIFICATE-----\n"
    assert "chain" in refused(good + broken, good_key)
    assert "%s: server.tls_key must be a private key in PEM" % private in refused(good, "rubbish")
    assert "%s: server.tls_key must be a private key in PEM" % private in refused(good, good)
    log = refused(good, other_key.read_text())
    assert "%s: is not the private key of %s" % (private, cert) in log
    for mode in (0o640, 0o604, 0o644):
        log = refused(good, good_key, mode)
        assert "%s: others may use the private key (mode %04o); run: chmod 600" % (private, mode) in log
    locked = tmp_path / "locked.key"
    openssl("pkey", "-in", pair[1], "-aes256", "-passout", "pass:secret", "-out", locked)
    assert "encrypted" in refused(good, locked.read_text())
    expired = tmp_path / "expired.crt"
    openssl("x509", "-in", pair[0], "-signkey", pair[1], "-days", "-1", "-out", expired)
    assert "has expired" in refused(expired.read_text(), good_key)
    for name in ("tls_cert", "tls_key"):
        log = start.refused(models.script(), {"server": {name: str(cert)}})
        assert "must be set too" in log


def test_slow_handshakes_are_counted_and_cut(begin, pair):
    """Connections that say nothing count, and hold nobody up."""
    d = begin(tls_extra(pair, max_connections=8))
    idle = [socket.create_connection((d.host, d.port), timeout=DEADLINE_S) for _ in range(7)]
    began = time.monotonic()
    assert https(d, pair[0], "GET", "/healthz").status == 200
    assert time.monotonic() - began < 10

    def full():
        try:
            return https(d, pair[0], "GET", "/healthz").status == 503
        except (ssl.SSLError, OSError):
            return True
    idle += [socket.create_connection((d.host, d.port), timeout=DEADLINE_S) for _ in range(1)]
    until(full, "the ninth is refused")
    for s in idle:
        s.close()
    until(lambda: https(d, pair[0], "GET", "/healthz").status == 200, "there is a place again")
    d.stop()


# ---- limits ---------------------------------------------------------------------------------

WAIT = re.compile(r"Rate limit reached for the key (\w+): (\d+) (requests at once|requests a minute|"
                  r"tokens a minute)\. Please try again in (\d+\.\d)s\.")


def limited(r, key, number, what):
    """A 429 as clients read it: code, header and text say the same."""
    assert r.status == 429, r
    assert r.error["code"] == "rate_limit_exceeded", r
    m = WAIT.fullmatch(r.error["message"])
    assert m and (m.group(1), int(m.group(2)), m.group(3)) == (key, number, what), r
    assert float(m.group(4)) <= int(r.headers["Retry-After"]) <= float(m.group(4)) + 1
    return float(m.group(4))


@pytest.mark.tsan
def test_limits_of_a_key(start, models, tmp_path):
    """Each key has its own; the ledger has what was refused."""
    path = tmp_path / "keys"
    few = add_key(path, "few", "--requests-per-minute", 3)
    one = add_key(path, "one", "--max-concurrent", 1)
    tokens = add_key(path, "tokens", "--tokens-per-minute", 60)
    free = add_key(path, "free", "--requests-per-minute", 0, "--max-concurrent", 0)
    d = start(extra={"server": {"keys_file": str(path)}, "limits": {"requests_per_minute": 50},
                     "models": [{"name": "tiny", "path": models.script()},
                                {"name": "slow", "path": models.slow()}]})

    def chat(key, **options):
        return d.http("POST", "/v1/chat/completions", dict(CHAT, **options), bearer(key))
    for _ in range(3):
        assert chat(few).status == 200
    assert limited(chat(few), "few", 3, "requests a minute") <= 20
    assert d.http("GET", "/v1/models", headers=bearer(few)).status == 200  # that is no work
    c = d.ws(additional_headers=bearer(few))
    c.create()
    e = c.error()
    assert e["status"] == 429 and e["error"]["code"] == "rate_limit_exceeded"
    assert WAIT.fullmatch(e["error"]["message"])
    r = d.http("POST", "/v1/messages", OPEN_MESSAGES, bearer(few))
    assert r.status == 429 and r.json["error"]["type"] == "rate_limit_error", r
    assert int(r.headers["Retry-After"]) > 0
    # at once: one that runs is one too many, and it may go on
    c = d.ws(additional_headers=bearer(one))
    c.create(model="slow")
    c.until_type("response.output_text.delta")
    limited(chat(one), "one", 1, "requests at once")
    c.until_type("response.output_text.delta")
    c.close()
    until(lambda: chat(one).status == 200, "it has gone, and there is a place")
    # tokens: what an answer took counts, so the minute is soon over
    used = 0
    while (r := chat(tokens, max_tokens=10)).status == 200:
        used += r.json["usage"]["total_tokens"]
        assert used < 1000
    assert used >= 30
    limited(r, "tokens", 60, "tokens a minute")
    # the configuration's holds for who has none, and not for who has none on purpose
    for _ in range(60):
        assert chat(free, max_tokens=1).status == 200
    status = [chat(one, max_tokens=1).status for _ in range(60)]
    assert status.count(429) >= 5 and status.count(200) >= 40
    until(lambda: ("few", 429) in [(r["key"], r["status"]) for r in rows(d)], "the ledger has it")
    d.until_idle = lambda: None  # /metrics is an administrator's


def test_limits_without_keys(start, models):
    """Those without a key count together; the limits change by a reload."""
    d = start(models.script(), {"limits": {"requests_per_minute": 2}})
    assert [d.chat(max_tokens=1).status for _ in range(3)] == [200, 200, 429]
    r = d.chat()
    assert re.fullmatch(r"Rate limit reached for requests without a key: 2 requests a minute\. "
                        r"Please try again in \d+\.\d+s\.", r.error["message"]), r
    d.write_config(merged(d.config, {"limits": {"requests_per_minute": 0}}))
    hang_up(d, "limits.requests_per_minute: 2 -> 0")
    until(lambda: d.chat(max_tokens=1).status == 200, "there is no limit")
    assert [d.chat(max_tokens=1).status for _ in range(20)] == [200] * 20


def test_keys_from_a_program(start, models, tmp_path):
    """server.keys_command instead of a file: at the start, on SIGHUP, and when it fails."""
    file, command = tmp_path / "keys", tmp_path / "command"
    key = add_key(file, "one", "--tokens-per-minute", "100000")
    command.write_text("#!/bin/sh\ncat %s\n" % file)
    command.chmod(0o700)
    d = start(models.script(), {"server": {"keys_command": str(command), "keys_file": str(tmp_path / "other")}})
    assert d.http("GET", "/v1/models").status == 401
    assert d.http("GET", "/v1/models", headers=bearer(key)).status == 200
    second = add_key(file, "two", "--admin")
    assert d.http("GET", "/v1/models", headers=bearer(second)).status == 401
    hang_up(d, "reload: 2 keys from " + str(command))
    until(lambda: d.http("GET", "/v1/models", headers=bearer(second)).status == 200, "the second key holds")
    r = d.http("GET", "/v1/ingot/keys", headers=bearer(second))
    assert r.status == 409 and r.error["code"] == "no_keys_file"
    command.write_text("#!/bin/sh\nexit 4\n")
    hang_up(d, "ended with 4; the old keys stay")
    assert d.http("GET", "/v1/models", headers=bearer(key)).status == 200
    assert "ended with 4" in start.refused(models.script(), {"server": {"keys_command": str(command)}})
