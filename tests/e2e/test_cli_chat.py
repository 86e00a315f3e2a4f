"""`ingot chat`: on a terminal, from a pipe, with a daemon that answers, ends and comes back."""
import json
import os
import pathlib
import signal
import socket
import stat
import subprocess
import termios
import threading

import pytest

import daemon as ingot
from daemon import until
from terminal import Terminal, env  # noqa: F401
from test_cli_run import created, delta, ended, serve  # noqa: F401
from test_ledger import rows
from tiny_model import SCRIPT

INGOT = str(ingot.BUILD / "cli" / "ingot")


def url_of(d):
    return "http://%s:%d" % (d.host, d.port)


@pytest.fixture
def chat(scripted, env):  # noqa: F811
    """Start a chat and wait for its prompt."""
    running = []

    def start(*args, url=None, prompt=True, **more):
        t = Terminal([INGOT, "chat", "--url", url or url_of(scripted), *args], dict(env, **more))
        running.append(t)
        if prompt:
            t.greeting = t.prompt()
        return t
    yield start
    for t in running:
        t.close()
        assert not ingot.REPORT.search(t.seen), t.seen


def leave(t):
    t.type("\x04")
    assert t.wait() == 0, t.seen
    assert termios.tcgetattr(t.slave) == t.at_first, "the terminal is not as it was"


def items(*texts):
    return [{"role": "assistant" if i % 2 else "user", "content": text}
            for i, text in enumerate(texts)]


def expected(d, *texts, **options):
    """What the daemon itself says to these turns."""
    c = d.ws()
    events = c.answer(items(*texts), model="random", max_output_tokens=12, **options)
    c.close()
    return ingot.text_of(events)


RANDOM = ["random", "-t", "0", "-n", "12"]


def screened(text):
    """As a terminal shows a model's text: control characters are spaces there."""
    out = "".join(" " if (ord(c) < 32 and c not in "\n\t") or 0x7f <= ord(c) < 0xa0 else c
                  for c in text)
    return out


# ---- on a terminal -------------------------------------------------------------------


def test_turns(chat, scripted):
    t = chat("tiny", "-t", "0")
    assert "tiny at http://" in t.greeting and "/help" in t.greeting
    assert t.ask("hello") == SCRIPT
    assert t.ask("and again") == SCRIPT
    assert "tok/s" not in t.seen
    stats = t.ask("/stats")
    assert "in all: 2 replies" in stats and "conversation of 2 turns, model tiny" in stats
    leave(t)


def test_the_conversation_is_sent(chat, scripted):
    """A model whose words depend on all that was said says what it says to the daemon's own
    clients when they send the same turns."""
    t = chat(*RANDOM)
    first = expected(scripted, "hello")
    second = expected(scripted, "hello", first, "and then?")
    assert second != expected(scripted, "and then?")
    assert t.ask("hello").split("\n(ended early")[0] == screened(first)
    assert t.ask("and then?").split("\n(ended early")[0] == screened(second)
    # take it back, say something else
    assert "1 turn left" in t.ask("/undo")
    other = expected(scripted, "hello", first, "or what?")
    assert t.ask("or what?").split("\n(ended early")[0] == screened(other)
    # the same question at temperature 0: the same answer, and no turn more
    assert t.ask("/retry").split("\n(ended early")[0] == screened(other)
    assert "conversation of 2 turns" in t.ask("/stats")
    assert "conversation cleared" in t.ask("/clear")
    assert t.ask("hello").split("\n(ended early")[0] == screened(first)
    leave(t)


def test_system(chat, scripted):
    t = chat(*RANDOM)
    assert "no system message" in t.ask("/system")
    plain = t.ask("hello")
    t.ask("/clear")
    assert "set" in t.ask("/system Another message.")
    assert t.ask("/system") == "Another message."
    changed = t.ask("hello")
    assert changed.split("\n(ended early")[0] == screened(
        expected(scripted, "hello", instructions="Another message."))
    assert changed != plain
    t.ask("/clear")
    assert "no system message" in t.ask("/system -")
    assert t.ask("hello") == plain
    leave(t)
    t = chat(*RANDOM, "--system", "Another message.")
    assert t.ask("hello") == changed
    leave(t)


def test_model(chat):
    t = chat("random", "-t", "0", "-n", "12")
    listed = t.ask("/model")
    assert "* random" in listed and "  tiny" in listed and "  slow" in listed
    said = t.ask("hello")
    assert "serves no model 'zeppelin'" in t.ask("/model zeppelin")
    assert "tiny" in t.ask("/model tiny")
    assert t.ask("hello").startswith(SCRIPT[:20]) and not said.startswith(SCRIPT[:20])
    leave(t)


def test_save_and_load(chat, scripted, tmp_path):
    path = tmp_path / "talk.json"
    t = chat(*RANDOM, "-s", "Be odd.")
    first = expected(scripted, "hello", instructions="Be odd.")
    t.ask("hello")
    assert "saved" in t.ask("/save %s" % path)
    saved = json.loads(path.read_text())
    assert saved["messages"] == items("hello", first)
    assert (saved["model"], saved["system"]) == ("random", "Be odd.")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    second = expected(scripted, "hello", first, "more", instructions="Be odd.")
    leave(t)
    for args, command in ((["--load", str(path)], None), ([], "/load %s" % path)):
        t = chat("-t", "0", "-n", "12", *args)
        if command:
            assert "loaded" in t.ask(command) and "1 turn" in t.seen
        assert t.ask("more").split("\n(ended early")[0] == screened(second)
        leave(t)
    # nothing of another program is overwritten, and nothing of it is loaded
    other = tmp_path / "precious.json"
    other.write_text('{"a": 1}')
    t = chat(*RANDOM)
    assert "not a saved conversation" in t.ask("/save %s" % other)
    assert "not a conversation that /save wrote" in t.ask("/load %s" % other)
    assert other.read_text() == '{"a": 1}'
    leave(t)
    t = chat("--load", str(other), prompt=False)
    assert t.wait() == 1 and "precious.json" in t.seen


def test_interrupt_ends_the_answer_only(chat, scripted):
    t = chat("slow", "-t", "0")
    n = len([r for r in rows(scripted) if r["cancel_reason"] == "client_cancel"])
    t.say("go on")
    t.until(SCRIPT[:20])
    t.type("\x03")
    assert "(stopped)" in t.prompt()
    until(lambda: len([r for r in rows(scripted) if r["cancel_reason"] == "client_cancel"]) == n + 1,
          "the request's row")
    scripted.until_idle()
    assert "last reply" in t.ask("/stats") and "cancelled" in t.seen
    assert "conversation of 1 turn" in t.seen, "what came is kept"
    t.ask("/model tiny")
    t.ask("/clear") # which may be longer than tiny's context
    assert t.ask("hello") == SCRIPT
    leave(t)


def test_interrupt_at_the_prompt(chat):
    t = chat("tiny", "-t", "0")
    t.type("never asked")
    t.until("never asked")
    t.type("\x03")
    assert "again" in t.prompt()
    assert t.ask("hello") == SCRIPT # which forgets the first Ctrl-C
    t.type("\x03")
    t.prompt()
    t.type("\x03")
    assert t.wait() == 0
    assert termios.tcgetattr(t.slave) == t.at_first


def test_interrupt_clears_what_was_begun(chat):
    t = chat("tiny", "-t", "0")
    t.say('"""')
    t.until("… ")
    t.say("half of it")
    t.until("… ")
    t.type("\x03")
    t.prompt()
    assert t.ask("hello") == SCRIPT
    assert "conversation of 1 turn" in t.ask("/stats")
    leave(t)


def test_exit(chat):
    for command in ("/exit", "/quit"):
        t = chat("tiny")
        t.say(command)
        assert t.wait() == 0
        assert termios.tcgetattr(t.slave) == t.at_first


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_leave_the_terminal_as_it_was(chat, scripted, number):
    t = chat("tiny")
    t.process.send_signal(number)
    assert t.wait() == 0
    assert termios.tcgetattr(t.slave) == t.at_first
    t = chat("slow", "-t", "0")
    t.say("go on")
    t.until(SCRIPT)
    t.process.send_signal(number)
    assert t.wait() == 0
    assert termios.tcgetattr(t.slave) == t.at_first
    scripted.until_idle()


def test_several_lines(chat, tmp_path):
    t = chat("tiny", "-t", "0")
    t.say("one\\")
    t.until("… ")
    assert t.ask("two") == SCRIPT
    t.say('"""')
    t.until("… ")
    t.say("/exit")
    t.until("… ")
    assert t.ask('"""') == SCRIPT
    t.type("\x1b[200~first\r/exit\r\tlast\x1b[201~")
    t.until("last")
    assert t.ask("!") == SCRIPT
    path = tmp_path / "x"
    t.ask("/save %s" % path)
    said = [m["content"] for m in json.loads(path.read_text())["messages"][::2]]
    assert said == ["one\ntwo", "/exit", "first\n/exit\n\tlast!"]
    leave(t)


def test_mistakes(chat):
    t = chat("tiny", "-t", "0")
    assert "unknown command /modle; did you mean /model?" in t.ask("/modle x")
    assert "/save FILE" in t.ask("/save")
    assert "takes no argument" in t.ask("/undo it")
    assert "no message yet" in t.ask("/retry")
    assert "nothing to remove" in t.ask("/undo")
    assert "No such file" in t.ask("/load /nonexistent/x")
    for command in ("/system", "/model", "/save", "/load", "/clear", "/retry", "/undo", "/stats",
                    "/exit", '"""'):
        assert command in t.ask("/help")
    assert t.ask("//etc/passwd is a file") == SCRIPT
    leave(t)


def test_history(chat, tmp_path):
    t = chat("tiny", "-t", "0")
    t.ask("hello")
    t.ask("/stats")
    path = tmp_path / ".local/state/ingot/chat_history"
    assert path.read_text() == "hello\n/stats\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    leave(t)
    # arrows go through what was typed in the last chat
    t = chat("tiny", "-t", "0")
    t.type("\x1b[A\x1b[A")
    t.until("hello")
    assert t.ask(" again") == SCRIPT
    assert path.read_text().endswith("/stats\nhello again\n")
    leave(t)
    before = path.read_text()
    t = chat("tiny", "-t", "0", "--no-history")
    t.type("\x1b[A")
    t.ask("secret")
    assert path.read_text() == before
    leave(t)
    state = tmp_path / "state"
    t = chat("tiny", "-t", "0", XDG_STATE_HOME=str(state))
    t.ask("elsewhere")
    assert (state / "ingot/chat_history").read_text() == "elsewhere\n"
    leave(t)


def test_history_that_can_not_be_kept(chat, tmp_path):
    (tmp_path / "file").write_text("")
    t = chat("tiny", "-t", "0", XDG_STATE_HOME=str(tmp_path / "file"))
    assert "the history is not saved" in t.seen
    assert t.ask("hello") == SCRIPT
    leave(t)


def test_tab_completes_commands_and_models(chat):
    t = chat("tiny", "-t", "0")
    t.type("/mo\tran\t")
    assert "the model is now random" in t.ask("")
    t.type("/st\t")
    assert "no reply yet" in t.ask("")
    t.type("/s\tx\t") # save, stats or system: nothing is put there
    assert "unknown command /sx" in t.ask("")
    leave(t)


def test_wide_characters(chat, tmp_path):
    t = chat("tiny", "-t", "0")
    t.type("grün 🦀x")
    t.type("\x7f") # takes the x, not half of the crab
    t.until("🦀")
    t.ask("!")
    path = tmp_path / "x"
    t.ask("/save %s" % path)
    assert json.loads(path.read_text())["messages"][0]["content"] == "grün 🦀!"
    leave(t)
    # in another locale too: what is sent is UTF-8
    t = chat("tiny", "-t", "0", LC_ALL="C")
    t.ask("grün 🦀")
    t.ask("/save %s" % path)
    assert json.loads(path.read_text())["messages"][0]["content"] == "grün 🦀"
    leave(t)


def test_stopped_and_continued(chat):
    """Ctrl-Z and fg: the shell has had the terminal meanwhile."""
    t = chat("tiny", "-t", "0")
    editing = termios.tcgetattr(t.slave)
    assert not editing[3] & termios.ICANON
    t.process.send_signal(signal.SIGSTOP)
    termios.tcsetattr(t.slave, termios.TCSANOW, t.at_first)
    t.process.send_signal(signal.SIGCONT)
    until(lambda: not termios.tcgetattr(t.slave)[3] & termios.ICANON, "the editor has it again")
    assert t.ask("hello").endswith(SCRIPT)
    leave(t)


def test_another_size_of_the_window(chat):
    t = chat("tiny", "-t", "0")
    t.type("a line that is longer than the window will be")
    t.until("will be")
    t.resize(20)
    t.type("!")
    t.until("!")
    assert SCRIPT in t.ask("").replace("\n", "").replace("\r", "")
    leave(t)


def test_speed_when_asked_for(chat):
    t = chat("tiny", "-t", "0", "--verbose")
    assert "tokens" in t.ask("hello")
    leave(t)


def test_answers_do_not_drive_the_terminal(chat, serve):  # noqa: F811
    def handle(c, request):
        c.send(created())
        c.send(delta("red \x1b[31m bell \x07 c1 \u009b31m"))
        c.send(ended())
    t = chat("-t", "0", url=serve(handle).url)
    t.say("x")
    t.until("red ")
    t.prompt()
    shown = t.raw[t.raw.index(b"red "):]
    assert b"red  [31m bell   c1  31m" in shown
    leave(t)


def test_no_colours(chat):
    t = chat("tiny", "-t", "0")
    assert b"\x1b[1m" in t.raw
    leave(t)
    t = chat("tiny", "-t", "0", NO_COLOR="1")
    assert b"\x1b[1m" not in t.raw
    leave(t)
    t = chat("tiny", "-t", "0", TERM="dumb", NO_COLOR="1")
    assert t.ask("hello") == SCRIPT
    assert b"\x1b" not in t.raw
    leave(t)


def test_a_model_that_is_not_there(chat, scripted):
    t = chat("zeppelin", prompt=False)
    assert t.wait() == 1 and "zeppelin" in t.seen


def test_errors_of_the_daemon(chat):
    """Shown as they are; the chat goes on, without the question."""
    t = chat("tiny", "-t", "0")
    assert t.ask("hello") == SCRIPT
    shown = t.ask("word " * 2000)
    assert "context" in shown and "ingot: " in shown
    assert t.ask("hello") == SCRIPT
    assert "conversation of 2 turns" in t.ask("/stats")
    leave(t)


# ---- a daemon that goes and comes ---------------------------------------------------------


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_restart_of_the_daemon(chat, start, models):
    port = free_port()
    config = {"server": {"port": port}, "models": [{"name": "random", "path": models.random()}]}
    d = start(extra=config)
    t = chat("-t", "0", "-n", "12", url=url_of(d))
    first = expected(d, "hello")
    assert t.ask("hello").split("\n(ended early")[0] == screened(first)
    d.stop()
    # asked while nobody is there: it tries again
    t.say("and then?")
    t.until("retrying in")
    d = start(extra=config)
    said = t.prompt().rpartition(" s)\n")[2].split("\n(ended early")[0]
    assert said == screened(expected(d, "hello", first, "and then?"))
    # restarted between two turns: not a word about it
    d.stop()
    start(extra=config)
    assert "retrying" not in t.ask("more")
    leave(t)


def test_lost_before_the_answer(chat, serve):  # noqa: F811
    n = []

    def handle(c, request):
        n.append(request)
        if len(n) == 1:
            c.socket.shutdown(socket.SHUT_RDWR)
            return
        c.send(created())
        c.send(delta("here"))
        c.send(ended())
    t = chat(url=serve(handle).url)
    assert t.ask("x").endswith("here")
    assert len(n) == 2 and n[0] == n[1]
    leave(t)


def test_a_daemon_that_is_about_to_end(chat, serve):  # noqa: F811
    """It says so; the question goes to the one that comes after it."""
    n = []

    def handle(c, request):
        n.append(request)
        if len(n) < 3:
            code = ["server_shutting_down", "websocket_connection_limit_reached"][len(n) - 1]
            c.send(json.dumps({"type": "error", "status": 503, "error": {
                "type": "server_error", "code": code, "message": "at its end", "param": None}}))
            return
        c.send(created())
        c.send(delta("here"))
        c.send(ended())
    t = chat(url=serve(handle).url)
    shown = t.ask("x")
    assert shown.endswith("here") and shown.count("at its end; retrying") == 2
    assert len(n) == 3 and n[0] == n[2]
    leave(t)


def test_lost_in_the_middle(chat, serve):  # noqa: F811
    """What came is kept and the loss is said; the next turn has a new connection."""
    n = []

    def handle(c, request):
        n.append(request)
        c.send(created())
        c.send(delta("half"))
        if len(n) == 1:
            c.socket.shutdown(socket.SHUT_RDWR)
            return
        c.send(ended())
    t = chat(url=serve(handle).url)
    shown = t.ask("x")
    assert shown.startswith("half\n") and "connection" in shown
    assert t.ask("go on") == "half"
    assert n[1]["input"] == items("x", "half", "go on")
    leave(t)


def test_nobody_comes_back(chat, serve):  # noqa: F811
    gone = threading.Event()

    def handle(c, request):
        c.send(created())
        c.send(delta("a"))
        c.send(ended())
        gone.wait(ingot.DEADLINE_S)
        c.socket.shutdown(socket.SHUT_RDWR)
    s = serve(handle)
    t = chat(url=s.url)
    assert t.ask("x") == "a"
    s.ws.shutdown()
    gone.set()
    assert s.done.wait(ingot.DEADLINE_S)
    t.say("y")
    t.until("retrying in")
    t.type("\x03") # does not wait for all of it
    assert "stopped" in t.prompt()
    leave(t)


def test_a_deaf_daemon(chat, serve):  # noqa: F811
    """It does not react to the cancel; a second Ctrl-C ends the wait."""
    release = threading.Event()

    def handle(c, request):
        c.send(created())
        c.send(delta("a"))
        release.wait(ingot.DEADLINE_S)
    t = chat(url=serve(handle).url)
    t.say("x")
    t.until("a")
    t.type("\x03\x03")
    assert "did not confirm" in t.prompt()
    release.set()
    leave(t)


def test_thoughts(chat, serve, env):  # noqa: F811
    """Shown to a person, dimmed; not sent back, and not for a pipe."""
    asked = []

    def handle(c, request):
        while True:
            asked.append(request)
            c.send(created())
            c.send(json.dumps({"type": "response.reasoning_text.delta", "delta": "hm, "}))
            c.send(json.dumps({"type": "response.reasoning_text.delta", "delta": "well"}))
            c.send(delta("yes"))
            c.send(ended())
            request = json.loads(c.recv(timeout=ingot.DEADLINE_S))
    url = serve(handle).url
    t = chat(url=url)
    assert t.ask("x") == "Reasoning\nhm, well\n\nyes"
    assert b"\x1b[2mhm, well" in t.raw
    t.ask("y")
    assert asked[1]["input"] == items("x", "yes", "y")
    leave(t)
    assert pipe(env, url, text="x\n")[:2] == (0, "yes\n")


def test_nothing_answers(env):
    url = "http://127.0.0.1:%d" % free_port()
    p = subprocess.run([INGOT, "chat", "--url", url], env=env, stdin=subprocess.DEVNULL,
                       capture_output=True, text=True, timeout=ingot.DEADLINE_S)
    assert p.returncode == 1 and "nothing answers at " + url in p.stderr


# ---- without a terminal ------------------------------------------------------------------


def pipe(env, url, *args, text=""):
    p = subprocess.run([INGOT, "chat", "--url", url, *args], env=env, input=text.encode(),
                       capture_output=True, timeout=ingot.DEADLINE_S)
    assert not ingot.REPORT.search(p.stderr.decode()), p.stderr
    return p.returncode, p.stdout.decode(), p.stderr.decode()


def test_pipe(scripted, env, tmp_path):
    code, out, err = pipe(env, url_of(scripted), "tiny", "-t", "0", text="hello\n\nagain")
    assert (code, out, err) == (0, SCRIPT + "\n" + SCRIPT + "\n", "")
    assert not (tmp_path / ".local").exists(), "a script is no history"


def test_pipe_with_commands(scripted, env, tmp_path):
    path = tmp_path / "x"
    code, out, err = pipe(env, url_of(scripted), "tiny", "-t", "0",
                          text="one\\\r\ntwo\r\n/system Be brief.\n/save %s\n/stats\n/exit\nno\n" % path)
    assert (code, out) == (0, SCRIPT + "\n"), err
    saved = json.loads(path.read_text())
    assert saved["messages"] == items("one\ntwo", SCRIPT) and saved["system"] == "Be brief."
    assert "1 reply" in err


def test_pipe_that_ends_within_a_message(scripted, env):
    assert pipe(env, url_of(scripted), "tiny", "-t", "0", text="one\\\n")[:2] == (0, SCRIPT + "\n")
    assert pipe(env, url_of(scripted), "tiny", "-t", "0", text='"""\none')[:2] == (0, SCRIPT + "\n")


@pytest.mark.parametrize("text, said", [
    ("/nonsense\nhello\n", "unknown command"),
    ("/load /nonexistent\nhello\n", "No such file"),
    ("/model zeppelin\nhello\n", "zeppelin"),
    ("w " * 3000 + "\nhello\n", "context"),
], ids=["command", "file", "model", "context"])
def test_a_script_stops_at_a_mistake(scripted, env, text, said):
    code, out, err = pipe(env, url_of(scripted), "tiny", "-t", "0", text=text)
    assert (code, out) == (1, "") and said in err


def test_pipe_of_one_endless_line(scripted, env):
    code, out, err = pipe(env, url_of(scripted), text="x" * ((16 << 20) + 1))
    assert (code, out) == (1, "") and "longer than 16 MiB" in err


def test_pipe_of_bytes(scripted, env):
    p = subprocess.run([INGOT, "chat", "--url", url_of(scripted)], env=env, input=b"\xff\xfe\n",
                       capture_output=True, timeout=ingot.DEADLINE_S)
    assert p.returncode == 1 and b"not UTF-8" in p.stderr and p.stdout == b""


def test_interrupt_of_a_script(scripted, env):
    p = subprocess.Popen([INGOT, "chat", "slow", "-t", "0", "--url", url_of(scripted)], env=env,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdin.write(b"hello\n")
    p.stdin.flush()
    assert p.stdout.read(5).decode() == SCRIPT[:5]
    p.send_signal(signal.SIGINT) # ends the answer
    err = p.stderr.readline()
    assert b"stopped" in err
    p.send_signal(signal.SIGINT) # while it waits for more: ends the chat
    out, err = p.communicate(timeout=ingot.DEADLINE_S)
    assert p.returncode == 130, err
    scripted.until_idle()


def test_output_that_nobody_reads(scripted, env):
    p = subprocess.Popen([INGOT, "chat", "slow", "-t", "0", "--url", url_of(scripted)], env=env,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdin.write(b"hello\n")
    p.stdin.flush()
    assert p.stdout.read(5).decode() == SCRIPT[:5]
    p.stdout.close()
    assert p.wait(ingot.DEADLINE_S) == 1
    assert p.stderr.read() == b""
    p.stdin.close()
    p.stderr.close()
    scripted.until_idle()


@pytest.mark.parametrize("args, said", [
    (["a", "b"], "expected one model"), (["a", "-m", "b"], "expected one model"),
    (["--zeppelin"], "unknown option"), (["-t", "9"], "not within"), ([""], "empty"),
    (["--load"], "needs a value"),
])
def test_usage(env, args, said):
    p = subprocess.run([INGOT, "chat", *args], env=env, stdin=subprocess.DEVNULL,
                       capture_output=True, text=True)
    assert p.returncode == 2 and said in p.stderr and p.stdout == ""


def test_history_is_not_for_others(env, tmp_path, chat):
    """A file that others could read before is closed to them."""
    path = tmp_path / ".local/state/ingot/chat_history"
    path.parent.mkdir(parents=True)
    path.write_text("old\n")
    os.chmod(path, 0o644)
    t = chat("tiny", "-t", "0")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    leave(t)
    assert pathlib.Path(path).read_text() == "old\n"
