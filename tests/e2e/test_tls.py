"""TLS: versions, certificates and their reload, handshakes that never end."""
import http.client
import json
import shutil
import socket
import ssl
import subprocess
import time

import pytest
import websockets.sync.client

from access import UnixConnection, add_key, ask, bearer, hang_up
from daemon import DEADLINE_S, Connection, text_of, until
from tiny_model import SCRIPT

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "temperature": 0}


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
