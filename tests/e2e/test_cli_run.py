"""`ingot run` and `ingot ps` against servers that behave and that do not.  The servers
are made here, so that every misbehaviour can be had; test_cli.py asks the real one."""
import http.server
import json
import os
import signal
import socket
import subprocess
import threading

import pytest
import websockets.exceptions
import websockets.sync.server

import daemon as ingot

INGOT = ingot.BUILD / "cli" / "ingot"


def event(kind, n=0, **fields):
    return json.dumps(dict(fields, type=kind, sequence_number=n))


def created(id="resp_1"):
    return event("response.created", response={"id": id, "status": "in_progress", "output": []})


def delta(text, n=4):
    return event("response.output_text.delta", n, item_id="m", output_index=0, content_index=0,
                 delta=text, logprobs=[])


def ended(kind="completed", status=None, n_output=3, **fields):
    return event("response." + kind, 9, response=dict({
        "id": "resp_1", "status": status or kind,
        "usage": {"input_tokens": 31, "input_tokens_details": {"cached_tokens": 16},
                  "output_tokens": n_output, "total_tokens": 31 + n_output}}, **fields))


class Server:
    """Runs handle(connection, first message as JSON) for each connection."""

    def __init__(self, handle, **options):
        self.handle, self.requests, self.headers, self.closed = handle, [], [], []
        self.done = threading.Event()
        self.failure = None
        self.ws = websockets.sync.server.serve(self.serve, "127.0.0.1", 0, **options)
        self.thread = threading.Thread(target=self.ws.serve_forever)
        self.thread.start()
        self.url = "http://127.0.0.1:%d" % self.ws.socket.getsockname()[1]

    def serve(self, c):
        self.headers.append((c.request.path, c.request.headers))
        try:
            first = json.loads(c.recv(timeout=ingot.DEADLINE_S))
            self.requests.append(first)
            self.handle(c, first)
            # the client says goodbye
            while True:
                c.recv(timeout=ingot.DEADLINE_S)
        except websockets.exceptions.ConnectionClosed as e:
            self.closed.append(e.rcvd.code if e.rcvd else None)
        except Exception as e:  # shown by the test, not by a thread's end
            self.failure = e
        finally:
            self.done.set()

    def stop(self):
        self.ws.shutdown()
        self.thread.join()
        assert self.failure is None, repr(self.failure)


@pytest.fixture
def serve():
    servers = []

    def start(handle, **options):
        servers.append(Server(handle, **options))
        return servers[-1]
    yield start
    for s in servers:
        s.stop()


@pytest.fixture
def env(tmp_path):
    return ingot.clean_env(tmp_path)


def checked(p, out, err):
    assert not ingot.REPORT.search(err), err
    return p.returncode, out, err


def run(env, url, *args, stdin=None, command="run"):
    extra = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
    p = subprocess.run([INGOT, command, "--url", url, *args], env=env, capture_output=True,
                       timeout=2 * ingot.DEADLINE_S, **extra)
    return checked(p, p.stdout.decode(), p.stderr.decode())


def answer(*texts):
    def handle(c, request):
        c.send(created())
        c.send(event("response.in_progress", response={"id": "resp_1"}))
        for t in texts:
            c.send(delta(t))
        c.send(event("some.new.event", 5, odd=[1, {"x": None}]))
        c.send(ended())
    return handle


def test_answer(env, serve):
    s = serve(answer("Paris", " is ", "schön."))
    code, out, err = run(env, s.url, "Where?")
    assert (code, out) == (0, "Paris is schön.\n"), err
    assert "3 tokens" in err and "tok/s" in err and "first token after" in err
    assert "prompt 31 tokens (16 cached)" in err
    assert s.requests == [{"type": "response.create", "store": False, "input": "Where?"}]
    path, headers = s.headers[0]
    assert path == "/v1/responses" and headers["Host"] == s.url.removeprefix("http://")
    assert "Origin" not in headers and "Sec-WebSocket-Protocol" not in headers
    s.done.wait(ingot.DEADLINE_S)
    assert s.closed == [1000], "no clean end"


def test_options_are_sent(env, serve):
    s = serve(answer("x"))
    code, out, err = run(env, s.url, "--model", "m", "--system", "s", "--max-tokens", "7",
                         "--temperature", "0.25", "--top-p", "0.5", "--top-k", "3", "--seed", "9",
                         "--quiet", "say \"x\"\n")
    assert (code, out, err) == (0, "x\n", "")
    assert s.requests == [{"type": "response.create", "store": False, "input": "say \"x\"\n",
                           "model": "m", "instructions": "s", "max_output_tokens": 7,
                           "temperature": 0.25, "top_p": 0.5, "top_k": 3, "seed": 9}]


def test_prompt_from_standard_input(env, serve):
    s = serve(answer("x"))
    assert run(env, s.url, stdin="two\nlines ü\n".encode())[0] == 0
    assert run(env, s.url, "-", stdin=b"dash")[0] == 0
    assert [r["input"] for r in s.requests] == ["two\nlines ü", "dash"]


def test_large_prompt_and_answer(env, serve):
    prompt, text = "p" * 3_000_000, "t" * 2_000_000
    s = serve(answer(text), max_size=None)
    code, out, err = run(env, s.url, "-", stdin=prompt.encode())
    assert (code, len(out)) == (0, len(text) + 1), err
    assert s.requests[0]["input"] == prompt


def test_json(env, serve):
    s = serve(answer("a\u2028", "b\0\"\n"))
    code, out, err = run(env, s.url, "--json", "x")
    assert (code, err) == (0, "") and out.count("\n") == 1
    got = json.loads(out)
    timings = got.pop("timings")
    assert got == {"model": None, "text": "a\u2028b\0\"\n", "finish_reason": "stop",
                   "usage": {"input_tokens": 31, "cached_tokens": 16, "output_tokens": 3}}
    assert set(timings) == {"first_token_ms", "total_ms", "tokens_per_second"}


def test_json_of_a_failure(env, serve):
    """One object on standard output whatever happens once the daemon is asked."""
    def cut(c, request):
        c.send(created())
        c.send(delta("half"))
        c.socket.shutdown(socket.SHUT_RDWR)
    code, out, err = run(env, serve(cut).url, "--json", "x")
    got = json.loads(out)
    assert code == 1 and (got["text"], got["finish_reason"]) == ("half", "error")
    assert "connection was lost" in got["error"]["message"] and "connection was lost" in err
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        code, out, err = run(env, "http://127.0.0.1:%d" % s.getsockname()[1], "--json", "x")
        assert code == 1 and json.loads(out)["finish_reason"] == "error"


def test_json_of_an_interrupt(env, serve):
    def handle(c, request):
        c.send(created())
        c.send(delta("half"))
        c.recv(timeout=ingot.DEADLINE_S)
        c.send(ended("incomplete", status="cancelled", n_output=2))
    s = serve(handle)
    p = subprocess.Popen([INGOT, "run", "--url", s.url, "--json", "x"], env=env,
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    ingot.until(lambda: s.requests, "it has asked")
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=2 * ingot.DEADLINE_S)
    code, out, err = checked(p, out.decode(), err.decode())
    assert code == 130 and json.loads(out)["finish_reason"] == "cancelled"


def test_events(env, serve):
    s = serve(answer("a", "b"))
    code, out, err = run(env, s.url, "--events", "x")
    events = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and events[0]["type"] == "response.created"
    assert [e["delta"] for e in events if "delta" in e] == ["a", "b"]
    assert events[-1]["type"] == "response.completed"


def test_early_end_is_said(env, serve):
    def handle(c, request):
        c.send(delta("half"))
        c.send(ended("incomplete", incomplete_details={"reason": "max_output_tokens"}))
    code, out, err = run(env, serve(handle).url, "x")
    assert (code, out) == (0, "half\n") and "ended early: max_output_tokens" in err


@pytest.mark.parametrize("send, said", [
    ({"type": "error", "status": 404, "error": {"type": "invalid_request_error",
      "code": "model_not_found", "message": "no model 'x'; known: tiny\x1b[31m"}},
     "ingot: no model 'x'; known: tiny [31m\n"),
    ({"type": "response.failed", "response": {"error": {"code": "server_error",
      "message": "the step failed"}}}, "ingot: the step failed\n"),
], ids=["error", "failed"])
def test_errors_are_printed(env, serve, send, said):
    s = serve(lambda c, request: c.send(json.dumps(send)))
    code, out, err = run(env, s.url, "x")
    assert (code, out, err) == (1, "", said)


@pytest.mark.parametrize("send, said", [
    ("no JSON", "sent text that is not JSON"),
    ("{}", "without a type"),
    (b"\x00\x01", "binary"),
    ('{"type":"response.output_text.delta"}', "without a text"),
], ids=["text", "untyped", "binary", "delta"])
def test_nonsense(env, serve, send, said):
    s = serve(lambda c, request: c.send(send))
    code, out, err = run(env, s.url, "x")
    assert code == 1 and out == "" and said in err and s.url in err


def test_closed_in_the_middle(env, serve):
    def handle(c, request):
        c.send(delta("half"))
        c.close(1012, "restart")
    code, out, err = run(env, serve(handle).url, "x")
    # libwebsockets 4.1 makes 1002 of codes that it does not know
    assert (code, out) == (1, "half\n") and "the server closed the connection (1" in err
    assert " restart)" in err


def test_cut_in_the_middle(env, serve):
    def handle(c, request):
        c.send(delta("half"))
        c.socket.shutdown(socket.SHUT_RDWR)
    code, out, err = run(env, serve(handle).url, "x")
    assert (code, out) == (1, "half\n") and "the connection was lost" in err


def interrupted(env, url, *args, until="started", times=1):
    p = subprocess.Popen([INGOT, "run", "--url", url, "x", *args], env=env,
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert p.stdout.read(len(until)).decode() == until
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=2 * ingot.DEADLINE_S)
    return checked(p, out.decode(), err.decode())


def test_interrupt_cancels_the_request(env, serve):
    cancels = []

    def handle(c, request):
        c.send(created("resp_77"))
        c.send(delta("started"))
        cancels.append(json.loads(c.recv(timeout=ingot.DEADLINE_S)))
        c.send(delta(" late"))
        c.send(ended("incomplete", status="cancelled", n_output=2))
    s = serve(handle)
    code, out, err = interrupted(env, s.url)
    assert (code, out) == (130, " late\n") and "cancelled" in err
    assert cancels == [{"type": "response.cancel", "response_id": "resp_77"}]


def test_interrupt_of_a_deaf_server(env, serve):
    """It gets its cancel and does not react: the client closes after a while."""
    release = threading.Event()

    def handle(c, request):
        c.send(delta("started"))
        release.wait(ingot.DEADLINE_S)
    code, out, err = interrupted(env, serve(handle).url)
    release.set()
    assert code == 130 and "did not confirm" in err


def test_interrupt_while_waiting(env, serve):
    """Before the first event: the cancel names no response."""
    got, cancels = threading.Event(), []

    def handle(c, request):
        got.set()
        cancels.append(json.loads(c.recv(timeout=ingot.DEADLINE_S)))
        c.send(json.dumps({"type": "error", "status": 499, "error": {"message": "cancelled"}}))
    s = serve(handle)
    p = subprocess.Popen([INGOT, "run", "--url", s.url, "x"], env=env, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert got.wait(ingot.DEADLINE_S)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=2 * ingot.DEADLINE_S)
    assert checked(p, out, err.decode())[0] == 130
    assert cancels == [{"type": "response.cancel"}]


def test_output_that_nobody_reads(env, serve):
    """`ingot run | head`: a closed pipe ends the request, without a word."""
    def handle(c, request):
        while True:  # until the connection is gone
            c.send(delta("x" * 1000))
    s = serve(handle)
    p = subprocess.Popen([INGOT, "run", "--url", s.url, "x"], env=env, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdout.read(100)
    p.stdout.close()
    err = p.stderr.read().decode()
    p.stderr.close()
    assert p.wait(2 * ingot.DEADLINE_S) == 1 and err == ""
    assert s.done.wait(ingot.DEADLINE_S), "the connection is still there"


def test_full_disk(env, serve):
    s = serve(answer("text"))
    with open("/dev/full", "w") as full:
        p = subprocess.run([INGOT, "run", "--url", s.url, "x"], env=env, stdout=full,
                           stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                           timeout=2 * ingot.DEADLINE_S)
    assert p.returncode == 1 and b"No space left" in p.stderr


def test_terminal_gets_no_escapes(env, serve):
    s = serve(answer("a\x1b[31m\nb\x07"))
    master, slave = os.openpty()
    p = subprocess.Popen([INGOT, "run", "--url", s.url, "--quiet", "x"], env=env,
                         stdin=subprocess.DEVNULL, stdout=slave, stderr=subprocess.PIPE)
    err = p.communicate(timeout=2 * ingot.DEADLINE_S)[1]
    os.close(slave)
    assert p.returncode == 0, err
    seen = os.read(master, 1000)
    os.close(master)
    assert seen == b"a [31m\r\nb \r\n"


def test_no_daemon(env):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        url = "http://127.0.0.1:%d" % s.getsockname()[1]
        code, out, err = run(env, url, "x")
        assert code == 1 and err.count("\n") == 1
        assert "nothing answers at " + url in err and "(ingotd, or as a service: brew services start ingot, systemctl start ingot)" in err
        code, out, err = run(env, url, command="ps")
        assert code == 1 and err.count("\n") == 1 and "nothing answers at " + url in err


def test_no_websocket_there(env):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(404)

        def log_message(self, *args):
            pass
    s = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    t = threading.Thread(target=s.serve_forever, args=(0.02,))
    t.start()
    try:
        url = "http://127.0.0.1:%d" % s.server_address[1]
        code, out, err = run(env, url, "x")
        assert code == 1 and "HTTP 404" in err and "is that Ingot's daemon?" in err
        code, out, err = run(env, url, command="ps")
        assert code == 1 and "HTTP 404" in err
    finally:
        s.shutdown()
        t.join()
        s.server_close()


def test_a_proxy_is_not_asked(env, serve):
    s = serve(answer("direct"))
    env = dict(env, http_proxy="http://127.0.0.1:9", HTTP_PROXY="http://127.0.0.1:9",
               all_proxy="http://127.0.0.1:9")
    assert run(env, s.url, "x")[:2] == (0, "direct\n")


def test_url_from_the_environment(env, serve):
    s = serve(answer("x"))
    p = subprocess.run([INGOT, "run", "x"], env=dict(env, INGOT_URL=s.url), capture_output=True,
                       stdin=subprocess.DEVNULL, timeout=2 * ingot.DEADLINE_S)
    assert (p.returncode, p.stdout) == (0, b"x\n")


def test_url_from_the_configuration(env, serve, tmp_path):
    s = serve(answer("x"))
    path = tmp_path / "ingot.yaml"
    path.write_text("server:\n  port: %s\n" % s.url.rpartition(":")[2])
    p = subprocess.run([INGOT, "run", "--config", str(path), "x"], env=env, capture_output=True,
                       stdin=subprocess.DEVNULL, timeout=2 * ingot.DEADLINE_S)
    assert (p.returncode, p.stdout) == (0, b"x\n"), p.stderr
    path.write_text("server:\n  port: 0\n")
    p = subprocess.run([INGOT, "run", "--config", str(path), "x"], env=env, capture_output=True,
                       stdin=subprocess.DEVNULL, timeout=2 * ingot.DEADLINE_S)
    assert p.returncode == 1 and b"--url" in p.stderr


@pytest.mark.parametrize("args, stdin, said", [
    (["--temprature", "1", "x"], None, "did you mean --temperature?"),
    (["--temperature", "3", "x"], None, "not within 0 … 2"),
    (["a", "b", "c"], None, "in quotes"),
    ([""], None, "the prompt is empty"),
    ([], b"", "the prompt is empty"),
    ([], b"\xff\xfe", "not UTF-8"),
    (["--seed", "9223372036854775808", "x"], None, "--seed"),
], ids=["option", "range", "two", "empty", "nothing", "bytes", "seed"])
def test_usage(env, args, stdin, said):
    code, out, err = run(env, "http://127.0.0.1:9", *args, stdin=stdin)
    assert code == 2 and out == "" and said in err


def test_help():
    for args in (["help"], ["--help"], ["help", "run"], ["run", "--help"]):
        p = subprocess.run([INGOT, *args], capture_output=True, text=True)
        assert p.returncode == 0 and p.stdout.startswith("usage: ingot") and p.stderr == ""
    p = subprocess.run([INGOT, "--version"], capture_output=True, text=True)
    assert p.stdout.startswith("ingot 0.")
    p = subprocess.run([INGOT, "rnu"], capture_output=True, text=True)
    assert p.returncode == 2 and "did you mean run?" in p.stderr
    assert subprocess.run([INGOT], capture_output=True).returncode == 2
