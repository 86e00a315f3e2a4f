"""Several daemons behind what is shipped for HAProxy and nginx, in Debian's own builds of these: conversations stay
with their caches, streams are not held back, and a daemon that ends, dies or comes costs no request."""
import collections
import http.client
import json
import pathlib
import re
import shutil
import signal
import subprocess
import threading

import pytest

from conftest import Starter
from daemon import DEADLINE_S, Daemon, text_of, until
from test_cli_chat import free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHIPPED = {"haproxy": ROOT / "etc/haproxy/ingot.cfg", "nginx": ROOT / "etc/nginx/ingot.conf"}
# What both files name: the proxy's port and those of three daemons.
PORTS = (6460, 6461, 6462, 6463)

pytestmark = pytest.mark.release  # the daemon's part in this is tested with sanitizers elsewhere

NGINX = """daemon off;
worker_processes 1;
pid %(folder)s/nginx.pid;
error_log %(folder)s/error.log info;
events { worker_connections 512; }
http {
	access_log off;
	client_body_temp_path %(folder)s/body;
	proxy_temp_path %(folder)s/proxy;
	fastcgi_temp_path %(folder)s/fastcgi;
	uwsgi_temp_path %(folder)s/uwsgi;
	scgi_temp_path %(folder)s/scgi;
	include %(folder)s/ingot.conf;
}
"""


class Proxy:
    """The proxy, which is asked as a daemon is."""
    http, chat, ws = Daemon.http, Daemon.chat, Daemon.ws

    def __init__(self, kind, folder, ports):
        self.kind, self.host, self.port, self.sockets = kind, "127.0.0.1", ports[0], []
        text = SHIPPED[kind].read_text()
        for shipped, port in zip(PORTS, ports):
            text, n = re.subn(r"127\.0\.0\.1:%d\b" % shipped, "127.0.0.1:%d" % port, text)
            assert n == 1, "%s names %d %d times" % (SHIPPED[kind], shipped, n)
        (folder / "ingot.conf").write_text(text)
        argv = ["haproxy", "-db", "-f", folder / "ingot.conf"]
        if kind == "nginx":
            (folder / "nginx.conf").write_text(NGINX % {"folder": folder})
            argv = ["nginx", "-p", folder, "-e", folder / "error.log", "-c", folder / "nginx.conf"]
        self.log = open(folder / "proxy.txt", "wb")
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def until_all_answer(self, daemons):
        """The proxy is there, and knows that the daemons are."""
        def served():
            assert self.process.poll() is None, "%s ended; see %s" % (self.kind, self.log.name)
            try:
                return self.http("GET", "/healthz").status == 200
            except OSError:
                return False
        until(served, "the proxy answers")
        # a new one is used once the proxy's checks, or its next try, have found it
        def spread():
            for i in range(30):
                assert self.http("GET", "/v1/models", headers={"session-id": "look %d" % i}).status == 200
            return all(answered(d) for d in daemons)
        until(spread, "each daemon is asked")

    def stop(self):
        for s in self.sockets:
            s.close()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(DEADLINE_S)
        self.log.close()


def answered(d):
    """Connections that this daemon has accepted, without this one."""
    return d.metrics().sum("ingot_connections_total") > 2


class Fleet:
    def __init__(self, kind, folder, models):
        self.folder, self.ports = folder, [free_port() for _ in range(4)]
        self.starter, self.path, self.n = Starter(folder), models.random(), 0
        self.daemons = [self.start(port) for port in self.ports[1:]]
        self.proxy = Proxy(kind, folder, self.ports)

    def start(self, port):
        self.n += 1
        return self.starter(self.path, extra={
            "server": {"port": port}, "ledger": {"path": str(self.folder / ("ledger%d.db" % self.n))},
            "scheduler": {"max_queue": 64}})

    def prompts_of(self, d):
        """Requests for a completion that this daemon has answered."""
        m = d.metrics()
        return sum(v for n, l, v in m.samples if n == "ingot_request_success_total" and l["model_name"] == "tiny")

    def finish(self):
        self.proxy.stop()
        self.starter.finish()


@pytest.fixture(params=sorted(SHIPPED))
def fleet(request, tmp_path, short, models):
    if not shutil.which(request.param):
        pytest.skip("%s is not here" % request.param)
    tmp_path.chmod(0o755)  # nginx's worker has no rights of root
    f = Fleet(request.param, short if request.param == "nginx" else tmp_path, models)
    if request.param == "nginx":
        short.chmod(0o755)
    try:
        f.proxy.until_all_answer(f.daemons)
        yield f
    finally:
        f.finish()


def converse(ask, name, turns, headers=None, **options):
    """A conversation that grows; each turn's (cached, all) tokens of its prompt."""
    messages, used = [{"role": "system", "content": "You are %s. " % name + "Mind the rules. " * 40}], []
    for i in range(turns):
        messages.append({"role": "user", "content": "Question %d of %s: what now?" % (i, name)})
        r = ask("POST", "/v1/chat/completions", {"model": "tiny", "messages": messages, "temperature": 0,
                                                 "max_tokens": 8, **options}, headers)
        assert r.status == 200, r
        text = r.json["choices"][0]["message"]["content"].replace("\0", "")  # which JSON readers refuse
        messages.append({"role": "assistant", "content": text or "-"})
        usage = r.json["usage"]
        used.append((usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]))
    return used


def cached_share(conversations):
    later = [turn for used in conversations for turn in used[1:]]
    return sum(cached for cached, _ in later) / sum(n for _, n in later)


def test_conversations_stay_with_their_cache(fleet, start, models):
    """By the header, by the body's key, by the prompt alone: as much is cached as by one daemon."""
    ways = {"header": lambda name: {"headers": {"session-id": name}}}
    if fleet.proxy.kind == "haproxy":
        ways["key"] = lambda name: {"prompt_cache_key": name}
        ways["prompt"] = lambda name: {}
    alone = start(models.random())
    names = ["agent %d" % i for i in range(6)]
    for way, options in ways.items():
        before = [fleet.prompts_of(d) for d in fleet.daemons]
        mine = [converse(fleet.proxy.http, way + name, 4, **options(way + name)) for name in names]
        one = [converse(alone.http, way + name, 4, **options(way + name)) for name in names]
        assert cached_share(mine) >= 0.9 * cached_share(one) > 0.5, way
        asked = [fleet.prompts_of(d) - b for d, b in zip(fleet.daemons, before)]
        assert sum(asked) == 24 and all(n % 4 == 0 for n in asked), "%s: %r" % (way, asked)
        assert max(asked) < 24, "all went to one daemon"


@pytest.mark.parametrize("fleet", ["haproxy"], indirect=True)  # nginx does not look into bodies
def test_a_header_and_a_key_agree(fleet):
    for i in range(8):
        before = [fleet.prompts_of(d) for d in fleet.daemons]
        converse(fleet.proxy.http, "a", 1, headers={"session-id": "s%d" % i})
        converse(fleet.proxy.http, "b", 1, prompt_cache_key="s%d" % i)
        assert sorted(fleet.prompts_of(d) - b for d, b in zip(fleet.daemons, before)) == [0, 0, 2]


def test_streams_are_not_held_back(fleet):
    """The first event of a stream is there while its request still runs; a WebSocket goes through."""
    c = http.client.HTTPConnection(fleet.proxy.host, fleet.proxy.port, timeout=DEADLINE_S)
    c.request("POST", "/v1/chat/completions", json.dumps({
        "model": "tiny", "messages": [{"role": "user", "content": "go on"}], "stream": True, "max_tokens": 1500,
        "ignore_eos": True, "min_tokens": 1500}), {"Content-Type": "application/json"})
    r = c.getresponse()
    assert r.status == 200 and r.readline().startswith(b"data: ")
    assert sum(d.running() for d in fleet.daemons) == 1
    c.close()
    until(lambda: sum(d.running() for d in fleet.daemons) == 0, "a client that leaves is noticed behind the proxy")
    w = fleet.proxy.ws(additional_headers={"session-id": "w"})
    events = w.answer("hello", max_output_tokens=8)
    assert events[-1]["type"] in ("response.completed", "response.incomplete")
    assert text_of(events)
    w.close()


def test_administration_is_not_for_clients(fleet):
    for path in ("/metrics", "/v1/ingot/status", "/v1/ingot/requests"):
        assert fleet.proxy.http("GET", path).status == 403, path
    assert fleet.proxy.http("GET", "/v1/models").status == 200


class Load:
    """Clients that ask all the time; each reply's status."""

    def __init__(self, proxy, n=6):
        self.proxy, self.done, self.statuses = proxy, threading.Event(), collections.Counter()
        self.failed, self.threads = [], [threading.Thread(target=self.ask, args=(i,)) for i in range(n)]
        for t in self.threads:
            t.start()

    def ask(self, i):
        k = 0
        while not self.done.is_set():
            k += 1
            try:
                # not streamed: until its answer is whole, nothing of it has begun
                r = self.proxy.http("POST", "/v1/chat/completions", {
                    "model": "tiny", "messages": [{"role": "user", "content": "load"}], "max_tokens": 4},
                    {"session-id": "client %d, conversation %d" % (i, k % 9)})
                self.statuses[r.status] += 1
                if r.status != 200:
                    self.failed.append(repr(r))
            except OSError as e:
                self.failed.append(repr(e))

    def some(self, n):
        """That many more requests are answered."""
        want = self.statuses[200] + n
        until(lambda: self.statuses[200] >= want or self.failed, "%d further answers" % n)

    def end(self):
        self.done.set()
        for t in self.threads:
            t.join(DEADLINE_S)


def test_daemons_come_and_go_under_load(fleet):
    load = Load(fleet.proxy)
    try:
        load.some(30)
        fleet.daemons[0].kill()  # at any moment
        load.some(30)
        fleet.daemons[1].stop()  # drains: its requests are finished, new ones get 503
        load.some(30)
        fleet.daemons[0] = fleet.start(fleet.ports[1])
        fleet.daemons[1] = fleet.start(fleet.ports[2])
        until(lambda: load.failed or all(fleet.prompts_of(d) > 0 for d in fleet.daemons), "the new ones get requests")
        load.some(30)
    finally:
        load.end()
    assert load.failed == []
