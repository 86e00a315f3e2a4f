"""A reply on a terminal: broken at words, Markdown, reasoning, without all that where it is not wanted.
pyte, a terminal emulator, says what is on the screen."""
import json
import random
import subprocess
import threading

import pyte
import pytest

import daemon as ingot
from terminal import Terminal, env  # noqa: F401
from test_cli_run import created, delta, ended, serve  # noqa: F401

INGOT = str(ingot.BUILD / "cli" / "ingot")


@pytest.fixture
def run(serve, env):  # noqa: F811
    """Run `ingot run` on a terminal against a server that sends these deltas; the terminal."""
    running = []

    def start(*deltas, columns=40, args=(), reasoning=(), hold=None, **more):
        def handle(c, request):
            c.send(created())
            for text in reasoning:
                c.send(json.dumps({"type": "response.reasoning_text.delta", "delta": text}))
            for text in deltas:
                if text is None: # wait until the test has looked
                    hold.wait(ingot.DEADLINE_S)
                    hold.clear()
                else:
                    c.send(delta(text))
            c.send(ended())
        t = Terminal([INGOT, "run", "-q", "--url", serve(handle).url, *args, "x"], dict(env, **more),
                     columns=columns)
        running.append(t)
        if not hold:
            assert t.wait() == 0, t.seen
        return t
    yield start
    for t in running:
        t.close()


def screen(t, columns=40):
    s = pyte.Screen(columns, 200)
    pyte.ByteStream(s).feed(t.raw)
    return s


def lines(t, columns=40):
    return [line.rstrip() for line in screen(t, columns).display if line.strip()]


def pieces(text, seed):
    r, out = random.Random(seed), []
    while text:
        n = r.randint(1, 9)
        out.append(text[:n])
        text = text[n:]
    return out


def test_lines_are_broken_at_words(run):
    text = "The quick brown fox jumps over the lazy dog while seven wizards quietly box up the jam."
    for seed in range(3):
        shown = lines(run(*pieces(text, seed)))
        assert " ".join(shown) == text and len(shown) == 3
        assert max(map(len, shown)) < 40
    text = "漢字とかなの文章は、どこでも改行できるので、端末の幅に合わせて折り返されます。"
    shown = lines(run(*text, columns=21), 21)
    # pyte leaves an empty cell behind a wide character
    assert "".join(shown).replace(" ", "") == text and len(shown) > 3
    assert not any(line[0] in "、。" for line in shown)


def test_a_word_that_began_moves(run):
    hold = threading.Event()
    t = run("one two thr", None, "eeeeeeeeee four", columns=20, hold=hold)
    t.until("one two thr")
    assert lines(t, 20) == ["one two thr"]
    hold.set()
    assert t.wait() == 0
    assert lines(t, 20) == ["one two", "threeeeeeeeee four"]


def test_another_width_during_a_reply(run):
    hold = threading.Event()
    t = run("one two three four five ", None, "six seven eight nine ten eleven twelve", columns=60,
            hold=hold)
    t.until("five ")
    t.resize(20)
    hold.set()
    assert t.wait() == 0
    assert t.raw.decode().replace("\r", "").split("\n")[1:] == [
        "six seven eight ", "nine ten eleven ", "twelve", ""]


MARKDOWN = """# A title

Some **bold words that go on** and *lean*, `code`, [a link](https://example.org/a).

- an item that is longer than one line of this
  1. and one within, also longer than a line

> Quoted words that need more than a line too.

```python
def function_with_a_long_name(argument):  # not broken
```

| model | tok/s |
|---|---:|
| small | 189 |
"""


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_markdown(run, size):
    t = run(*[MARKDOWN[i:i + size] for i in range(0, len(MARKDOWN), size)])
    s = screen(t)
    shown = [line.rstrip() for line in s.display]

    def look(word):
        y = next(y for y, line in enumerate(shown) if word in line)
        return s.buffer[y][shown[y].index(word)]
    assert look("title").bold and look("bold").bold and not look("Some").bold
    assert look("lean").italics and look("link").underscore
    assert look("code`").fg == "cyan" and look("def").fg == "cyan"
    assert look("model").bold and not look("small").bold
    at = shown.index("- an item that is longer than one line")
    assert shown[at + 1:at + 4] == ["  of this", "  1. and one within, also longer than a",
                                    "     line"]
    at = shown.index("> Quoted words that need more than a")
    assert shown[at + 1] == "  line too."
    assert "def function_with_a_long_name(argument):" in shown and "  # not broken" in shown
    # the model's text is all there: without styles and broken lines it is as the model wrote it
    assert "".join(x.strip() for x in MARKDOWN.split()) == "".join("".join(shown).split())


def test_reasoning(run):
    t = run("The answer.", reasoning=["I think ", "about it for longer than a line has columns"])
    assert lines(t) == ["Reasoning", "I think about it for longer than a line", "has columns",
                        "The answer."]
    assert t.seen.endswith("columns\n\nThe answer.\n")
    assert b"\x1b[2mI think" in t.raw and t.raw.rindex(b"\x1b[0m") < t.raw.index(b"The answer")
    assert "Reasoning" not in run("x", reasoning=["I think"], args=["--plain"]).seen


def test_without_colours(run):
    t = run("**bold** `code` [a](https://b.c)", NO_COLOR="1")
    assert b"\x1b[0;1mbold" in t.raw
    assert not any(b"%d" % n in t.raw for n in range(30, 38))


@pytest.mark.parametrize("args, env_of", [(["--plain"], {}), ([], {"TERM": "dumb"}), ([], {"TERM": ""})])
def test_plain(run, args, env_of):
    text = "**bold** and words that need more than forty columns to be written\n"
    t = run(text, args=args, **env_of)
    assert t.raw.decode() == text.replace("\n", "\r\n")
    # escape sequences do not pass there either
    assert b"\x1b" not in run("a\x1b[31mb\u009b", args=args, **env_of).raw


def test_pipes_get_the_bytes(env, serve):  # noqa: F811
    text = "**bold** \x1b[31m and words that need more than eighty columns to be written, " * 3

    def handle(c, request):
        c.send(created())
        c.send(json.dumps({"type": "response.reasoning_text.delta", "delta": "hm"}))
        for piece in pieces(text, 1):
            c.send(delta(piece))
        c.send(ended())
    p = subprocess.run([INGOT, "run", "--url", serve(handle).url, "x"], env=env, capture_output=True,
                       stdin=subprocess.DEVNULL, timeout=ingot.DEADLINE_S)
    assert p.stdout == text.encode() + b"\n", p.stderr


def test_chat(serve, env):  # noqa: F811
    """The same in a chat; what is sent in the next turn is the model's text."""
    asked = []

    def handle(c, request):
        while True:
            asked.append(request)
            c.send(created())
            for piece in pieces("Words **that are bold** and more of them than a line has.", 2):
                c.send(delta(piece))
            c.send(ended())
            request = json.loads(c.recv(timeout=ingot.DEADLINE_S))
    t = Terminal([INGOT, "chat", "--url", serve(handle).url], env, columns=40)
    try:
        t.prompt()
        t.ask("x")
        assert "Words **that are bold** and more of\nthem than a line has." in \
            "\n".join(lines(t))
        t.ask("y")
        assert asked[1]["input"][1]["content"] == "Words **that are bold** and more of them than a line has."
        t.type("\x04")
        assert t.wait() == 0
    finally:
        t.close()
