"""Who gets in: API keys, their roles and limits, `ingot keys`, proxies, pages of browsers."""
import hashlib
import json
import os
import pathlib
import re
import stat
import subprocess
import sys

import pytest
import websockets.exceptions

from access import add_key, bearer, hang_up, ingot
from conftest import Starter, configuration
from daemon import BUILD, DEADLINE_S, clean_env, merged, read_reply, text_of, until
from test_ledger import rows
from tiny_model import SCRIPT

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "temperature": 0}
OPEN_MESSAGES = {"model": "tiny", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}


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
