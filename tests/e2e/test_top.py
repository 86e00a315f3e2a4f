"""`ingot top` on a terminal of its own, with a real daemon and requests that run; pyte, a terminal
emulator, says what is on the screen."""
import json
import os
import re
import signal
import subprocess
import termios

import pytest

import daemon as ingot
from daemon import until
from terminal import Screen, env  # noqa: F401
from test_cli_chat import free_port, url_of

pytestmark = pytest.mark.home("release")

INGOT = str(ingot.BUILD / "cli" / "ingot")


class Top(Screen):
    def see(self, *texts):
        """Wait until a line has all of these; the line."""
        def found():
            return next((line for line in self.look() if all(re.search(t, line) for t in texts)), None)
        return until(found, "%r on the screen" % (texts,))

    def until_gone(self, text):
        until(lambda: not any(re.search(text, line) for line in self.look()), "%r is gone" % text)

    def press(self, keys, *shown):
        self.type(keys)
        return self.see(*shown) if shown else None

    def row(self, id):
        return next(y for y, line in enumerate(self.look()) if line.startswith(id))

    def is_selected(self, id):
        return self.screen.buffer[self.row(id)][0].reverse


@pytest.fixture
def top(scripted, env):
    running = []

    def start(*args, url=None, columns=160, **more):
        t = Top([INGOT, "top", "--url", url or url_of(scripted), *args], dict(env, **more), columns)
        running.append(t)
        return t
    yield start
    for t in running:
        t.close()
        assert not ingot.REPORT.search(t.raw.decode()), t.raw


@pytest.fixture
def ask(scripted):
    """Requests that never end by themselves."""
    clients = []

    def start():
        c = scripted.ws()
        clients.append(c)
        c.create("go on", model="slow")
        return c.until_type("response.created")[-1]["response"]["id"]
    yield start
    for c in clients:
        c.close()
    scripted.until_idle()


def restored(t):
    return termios.tcgetattr(t.slave) == t.at_first and t.raw.endswith(b"\x1b[?25h\x1b[?1049l")


def leave(t):
    t.type("q")
    assert t.wait() == 0, t.look()
    assert restored(t)


def once(env, url, *args, **more):
    p = subprocess.run([INGOT, "top", "--url", url, *args], env=dict(env, **more), capture_output=True,
                       stdin=subprocess.DEVNULL, timeout=ingot.DEADLINE_S)
    assert not ingot.REPORT.search(p.stderr.decode()), p.stderr
    return p.returncode, p.stdout.decode(), p.stderr.decode()


def test_what_it_shows(top, ask, scripted):
    scripted.chat_text("hi")
    until(lambda: scripted.http("GET", "/v1/ingot/stats").json["total"]["requests"], "the ledger's row")
    id = ask()
    t = top()
    assert url_of(scripted) in t.see("ingot top")
    t.see("running 1   queue 0   paused 0   tokens/s [1-9]")
    t.see("requests [1-9].*output tokens.*first token p50 [0-9.]+ m?s p95 .*between tokens")
    t.see(r"Memory .* of 1\.0 GiB \[█.*\]")
    t.see("weights.*scratch.*cache in use [1-9].*cache idle.*cache free.*free")
    assert "ready" in t.see("^slow ", "MiB") and t.see("^tiny ", "ready")
    line = t.see("^" + id, "decode", "127.0.0.1", "ws /v1/responses", r"slow +decode +[0-9]+ +[1-9]")
    assert re.search(r" \d+ %  +[0-9.]+ m? ?s ", line), line
    first = int(line.split()[3])
    until(lambda: int(t.see("^" + id).split()[3]) > first, "more tokens")
    leave(t)


def test_select_and_cancel(top, ask, scripted):
    one, two = ask(), ask()
    t = top()
    t.see("^" + one)
    t.see("^" + two)
    assert not t.is_selected(one)
    t.press("x", "Select a request first")
    t.type("j") # the oldest one is the first
    until(lambda: t.is_selected(one), "selected")
    t.type("\x1b[B")
    until(lambda: t.is_selected(two), "selected")
    t.type("k")
    until(lambda: t.is_selected(one), "selected")
    t.press("x", "Cancel %s\\?" % one)
    t.type("n")
    t.until_gone("Cancel ")
    t.see("^" + one)
    t.press("\x1b[3~", "Cancel %s\\?" % one)
    t.press("y", "Cancelled %s" % one)
    t.until_gone("^" + one)
    t.see("^" + two)
    assert [r["id"] for r in scripted.http("GET", "/v1/ingot/requests").json["data"]] == [two]
    leave(t)


def test_sort_pause_and_help(top, ask, scripted):
    one = ask()
    until(lambda: scripted.http("GET", "/v1/ingot/requests").json["data"][0]["output_tokens"] > 20, "tokens")
    two = ask()
    t = top()
    t.see("^" + two)
    assert t.row(one) < t.row(two)
    for name in ("tokens/s", "tokens", "prompt", "model", "client", "age"):
        t.press("s", r"sort \(%s\)" % name)
    t.press("p", "paused", "go on")
    three = ask()
    other = top()
    other.see("^" + three)
    leave(other)
    t.press("s", r"sort \(tokens/s\)")
    assert not any(line.startswith(three) for line in t.look()), "it is paused"
    t.type("p")
    t.see("^" + three)
    t.press("h", "cancel the selected request")
    t.type(" ")
    t.until_gone("cancel the selected request")
    t.see("^" + one)
    leave(t)


def test_interval(top, ask):
    """The screen changes as often as is said; keys are obeyed at once."""
    t, slow = top("--interval", "0.1"), top("--interval", "3600")
    for each in (t, slow):
        each.see("ingot top")
    id = ask()
    t.see("^" + id)
    slow.press("s", r"sort \(tokens/s\)")
    assert not any(line.startswith(id) for line in slow.look())
    leave(t)
    leave(slow)


def test_sizes(top, ask):
    id = ask()
    for columns, t in [(n, top(columns=n)) for n in (40, 80, 300)]:
        line = t.see("%s.*decode" % id[-8:])
        shown = t.look()
        assert shown[0].startswith("ingot top") and "h help" in shown[-1]
        assert ("slow" in line) == (columns > 40) and ("ws /v1" in line) == (columns > 80)
        leave(t)


def test_resize(top, ask):
    id = ask()
    t = top(columns=120)
    t.see("^" + id)
    t.resize(44)
    t.screen.resize(50, 44)
    t.see("%s +decode" % id[-8:])
    assert t.look()[0].startswith("ingot top") and "h help" in t.look()[-1]
    leave(t)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signals_restore_the_terminal(top, number):
    t = top()
    t.see("running 0")
    assert termios.tcgetattr(t.slave) != t.at_first
    t.process.send_signal(number)
    assert t.wait() == 0
    assert restored(t)


def test_stopped_and_continued(top):
    t = top()
    t.see("running 0")
    t.process.send_signal(signal.SIGTSTP)
    until(lambda: os.waitid(os.P_PID, t.process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT), "it stops")
    while t._read(0):
        pass
    assert restored(t)
    t.process.send_signal(signal.SIGCONT)
    until(lambda: termios.tcgetattr(t.slave) != t.at_first, "it has the terminal again")
    t.press("s", r"sort \(tokens/s\)")
    leave(t)


def test_the_daemon_restarts(top, start, models):
    config = {"server": {"port": free_port()}, "models": [{"name": "again", "path": models.script()}]}
    d = start(extra=config)
    t = top(url=url_of(d))
    t.see("^again ", "ready")
    d.stop()
    t.see("No connection, trying again")
    d = start(extra=config)
    t.until_gone("No connection")
    d.chat_text("hi", model="again")
    t.see("requests [1-9]")
    leave(t)


def test_without_a_screen(env, scripted, ask):
    id = ask()
    url = url_of(scripted)
    code, out, err = once(env, url, "--once")
    assert (code, err) == (0, "") and "\x1b" not in out and "\r" not in out
    assert re.search(r"^%s +slow +decode +\d+ +[1-9]" % id, out, re.M), out
    assert "Memory" in out and "tokens/s" in out and "h help" not in out
    # where UTF-8 is not shown
    code, out, _ = once(env, url, "--once", LC_ALL="C")
    assert code == 0 and out.isascii() and "[#" in out
    code, out, err = once(env, url, "--json")
    assert code == 0 and out.count("\n") == 1, err
    seen = json.loads(out)
    assert set(seen) == {"status", "requests", "models", "stats", "tokens_per_second"}
    assert seen["requests"]["data"][0]["id"] == id and seen["tokens_per_second"] > 0
    assert seen["requests"]["data"][0]["tokens_per_second"] == seen["tokens_per_second"]
    assert {m["id"] for m in seen["models"]["data"]} == {"tiny", "random", "slow"}
    assert seen["stats"]["step_s"] == 60


@pytest.mark.parametrize("args, said", [
    (["x"], "no argument"), (["--once", "--json"], "exclude"), (["--interval", "0"], "not within"),
    (["--interval", "x"], "not a number"),
])
def test_usage(env, args, said):
    p = subprocess.run([INGOT, "top", *args], env=env, capture_output=True, text=True)
    assert p.returncode == 2 and said in p.stderr


def test_why_it_can_not(env, scripted, top, start, models, tmp_path):
    nowhere = "http://127.0.0.1:%d" % free_port()
    assert "nothing answers" in once(env, nowhere)[2] and once(env, nowhere)[0] == 1
    code, out, err = once(env, url_of(scripted))
    assert code == 1 and "not a terminal" in err and "--once" in err and out == ""
    t = top(TERM="dumb")
    assert t.wait() == 1 and b"dumb" in t.raw and b"\x1b" not in t.raw
    # keys: none, a wrong one, a user's, an administrator's
    keys = tmp_path / "keys"
    made = {}
    for name, role in (("admin", ["--admin"]), ("user", [])):
        p = subprocess.run([INGOT, "keys", "add", name, *role, "--file", str(keys)], env=env,
                           capture_output=True, text=True)
        assert p.returncode == 0, p.stderr
        made[name] = p.stdout.split()[-1]
    d = start(models.slow(), extra={"server": {"keys_file": str(keys)}})
    url = url_of(d)
    assert "none was given" in once(env, url, "--once")[2]
    assert "401" in once(env, url, "--once", INGOT_API_KEY="ingot-wrong")[2]
    err = once(env, url, "--once", INGOT_API_KEY=made["user"])[2]
    assert "403" in err and "administrator" in err
    c = d.ws(additional_headers={"Authorization": "Bearer " + made["user"]})
    c.create("go on")
    c.until_type("response.output_text.delta")
    out = once(env, url, "--once", INGOT_API_KEY=made["admin"])[1]
    assert re.search(r"^resp_.* user +127\.0\.0\.1", out, re.M), out
    c.close()
    # a key that is removed while it looks
    t = top(url=url, INGOT_API_KEY=made["admin"])
    t.see("running")
    subprocess.run([INGOT, "keys", "add", "other", "--admin", "--file", str(keys)], env=env, check=True,
                   capture_output=True)
    subprocess.run([INGOT, "keys", "remove", "admin", "--file", str(keys)], env=env, check=True,
                   capture_output=True)
    d.process.send_signal(signal.SIGHUP)
    assert t.wait() == 1
    assert b"401" in t.raw.rpartition(b"\x1b[?1049l")[2]
    assert termios.tcgetattr(t.slave) == t.at_first


def test_without_a_ledger(start, models, top):
    d = start(models.script(), extra={"ledger": {"enabled": False}})
    t = top(url=url_of(d))
    t.see("keeps no ledger")
    leave(t)
