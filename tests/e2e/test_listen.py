"""Where the daemon listens: the network with and without keys, and the unix socket."""
import os
import pathlib
import socket
import stat

import pytest
import websockets.sync.client

from access import UnixConnection, add_key, ask, bearer, hang_up, ingot
from daemon import DEADLINE_S, Connection, merged, read_reply, text_of
from test_ledger import rows, until_rows
from tiny_model import SCRIPT

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "temperature": 0}


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
