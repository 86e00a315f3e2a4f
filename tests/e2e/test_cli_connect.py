"""How the commands get to a daemon: keys, https, unix sockets.  Against servers made here."""
import http
import json
import os
import pathlib
import ssl
import subprocess
import threading

import pytest
import websockets.sync.server

import daemon as ingot
from test_cli_run import INGOT, answer, env, run, serve  # noqa: F401

CATALOG = str(pathlib.Path(__file__).resolve().parents[2] / "etc" / "models.yaml")
TLS = pathlib.Path(__file__).parent / "tls"
# What each command that asks the daemon does first.
ASKING = [["run", "hello"], ["chat"], ["ps"], ["models"]]


def guarded(keys, seen):
    """Let in who has one of the keys, and answer the GETs of ps and models."""
    def check(c, request):
        sent = request.headers.get("Authorization")
        seen.append((request.path, sent))
        if keys is not None and sent not in ["Bearer " + k for k in keys]:
            text = '{"error":{"message":"Incorrect API key provided","code":"invalid_api_key"}}'
            return c.respond(http.HTTPStatus.UNAUTHORIZED, text)
        if request.path != "/v1/responses":
            return c.respond(http.HTTPStatus.OK, '{"data":[{"id":"m"}]}')
        return None
    return check


def command(env, url, args, *more):
    text = b"hello\n" if args[0] == "chat" else None
    if args[0] == "models":
        more += ("--models", CATALOG)
    return run(env, url, *args[1:], *more, command=args[0], stdin=text)


@pytest.mark.parametrize("args", ASKING, ids=lambda a: a[0])
def test_key(env, serve, args, tmp_path):  # noqa: F811
    seen = []
    s = serve(answer("yes"), process_request=guarded(["k-1"], seen))
    path = tmp_path / "key"
    path.write_text("k-1\n")
    for more, variable in ((["--api-key", "k-1"], None), (["--api-key-file", str(path)], None),
                           ([], "k-1"), (["--api-key", "k-1"], "wrong")):
        e = dict(env, INGOT_API_KEY=variable) if variable else env
        code, out, err = command(e, s.url, args, *more)
        assert code == 0, err
        assert seen[-1][1] == "Bearer k-1"
    for more in ([], ["--api-key", "k-2"]):
        code, out, err = command(env, s.url, args, *more)
        assert code == 1 and out == "" and "401" in err and err.count("\n") == 1, err
        assert "k-2" not in err
    assert seen[-2][1] is None


def test_key_is_not_among_the_processes(env, serve):  # noqa: F811
    """What `ps` of the system shows of the command line has no key in it."""
    def handle(c, request):
        c.recv(timeout=ingot.DEADLINE_S)
    s = serve(handle)
    p = subprocess.Popen([INGOT, "run", "--url", s.url, "--api-key", "sesame-1", "hello"], env=env,
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    ingot.until(lambda: s.requests, "it has asked")
    assert s.headers[0][1]["Authorization"] == "Bearer sesame-1"
    shown = subprocess.run(["ps", "-ww", "-o", "args=", "-p", str(p.pid)], capture_output=True,
                           text=True).stdout if not os.path.exists("/proc/self/cmdline") else \
        pathlib.Path("/proc/%d/cmdline" % p.pid).read_text()
    assert "--api-key" in shown and "sesame" not in shown
    p.terminate()
    p.communicate(timeout=ingot.DEADLINE_S)


def secure(serve, cert, key):  # noqa: F811
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / cert, TLS / key)
    s = serve(answer("secret"), ssl=context, process_request=guarded(None, []))
    s.url = s.url.replace("http:", "https:")
    return s


@pytest.fixture
def tls(serve):  # noqa: F811
    return secure(serve, "cert.pem", "key.pem")


@pytest.mark.parametrize("args", ASKING, ids=lambda a: a[0])
def test_https(env, tls, args):
    cert = ["--cacert", str(TLS / "cert.pem")]
    code, out, err = command(env, tls.url, args, *cert)
    assert code == 0, err
    if args[0] in ("run", "chat"):
        assert out == "secret\n"
    named = tls.url.replace("127.0.0.1", "localhost")
    assert command(env, named, args, *cert)[0] == 0
    assert command(dict(env, INGOT_CACERT=cert[1]), tls.url, args)[0] == 0


@pytest.mark.parametrize("args", ASKING[:3], ids=lambda a: a[0])
def test_https_of_a_stranger(env, tls, args):
    """A certificate that nobody vouches for is refused, and so is another host's."""
    code, out, err = command(env, tls.url, args)
    assert code == 1 and out == "" and "--cacert" in err, err
    # plain HTTP is spoken there: no TLS
    plain = tls.url.replace("https:", "http:")
    assert command(env, plain, args)[0] == 1


@pytest.mark.parametrize("args", ASKING[:3], ids=lambda a: a[0])
def test_https_of_another_host(env, serve, args):  # noqa: F811
    """A certificate that is trusted, but not for this name."""
    s = secure(serve, "other.pem", "other-key.pem")
    for url in (s.url, s.url.replace("127.0.0.1", "localhost")):
        code, out, err = command(env, url, args, "--cacert", str(TLS / "other.pem"))
        assert code == 1 and out == "" and "--cacert" in err, err
    assert not s.requests


@pytest.mark.parametrize("args", ASKING, ids=lambda a: a[0])
def test_unix_socket(env, args, short):
    path = str(short / "s")
    seen, failures = [], []

    def handle(c):
        try:
            seen.append(c.request.headers["Host"])
            answer("local")(c, json.loads(c.recv(timeout=ingot.DEADLINE_S)))
            while True:
                c.recv(timeout=ingot.DEADLINE_S)
        except websockets.exceptions.ConnectionClosed:
            pass
        except Exception as e:
            failures.append(e)
    s = websockets.sync.server.unix_serve(handle, path,
                                          process_request=guarded(["k"], []))
    t = threading.Thread(target=s.serve_forever)
    t.start()
    try:
        for url in ("unix:" + path, "unix://" + path):
            code, out, err = command(env, url, args, "--api-key", "k")
            assert code == 0, err
            if args[0] in ("run", "chat"):
                assert out == "local\n" and seen[-1] == "localhost"
        code, out, err = command(env, "unix:" + path + "x", args)
        assert code == (0 if args[0] == "models" else 1)
        assert "unix:" + path + "x" in out + err
    finally:
        s.shutdown()
        t.join()
    assert not failures


@pytest.mark.parametrize("url", ["ftp://h", "https://", "unix:relative", "http://h:99999"])
def test_wrong_urls(env, url):
    for args in ASKING:
        code, out, err = command(env, url, args)
        assert code == 1 and out == "" and err.count("\n") == 1
