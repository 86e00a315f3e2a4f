"""Prompts that take long before a token of them is computed: what streams are given that wait behind
them, and that an error is a status as long as nothing was sent."""
import json
import select

import pytest

from daemon import DEADLINE_S, PATIENCE, text_of
from test_models import CHAT, Raw

# The template renders "take your time" slowly, and knows no prompt for "wrong".
BOOK = (("'take your time' in ask %}{% for i in range(900) %}{% for j in range(1000) %}{% set k = i * j %}"
         "{% endfor %}{% endfor %}<|page_0|>{% elif false", "Slowly."),
        ("'wrong' in ask and raise_exception('This is wrong.')", "Never."), ("true", "Quickly."))

LARGE = 66000  # bytes of a prompt: those of 64 KiB and more


def messages(text, **options):
    return {"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": 20, **options}


def slow_prompts(d, more=""):
    """Requests whose prompts are at prep, all but the first."""
    raws = [Raw(d, "/v1/tokenize", messages("take your time" + more)) for _ in range(4 + 28 // PATIENCE)]
    assert answered(raws, DEADLINE_S)  # the first: the loop has had time to read the others
    return raws


def answered(raws, wait_s=0):
    return select.select([r.s for r in raws], [], [], wait_s)[0]


# path, body, keep-alive, how the stream of a prompt that is wrong ends
STREAMS = [
    (CHAT, lambda text: messages(text, stream=True), b": keep-alive\n\n", b'data: {"error":'),
    ("/v1/messages", lambda text: messages(text, stream=True), b"event: ping\n", b"event: error\n"),
    ("/v1/responses", lambda text: {"model": "tiny", "input": text, "stream": True},
     b"event: response.created\n", b"event: response.failed\n"),
    ("/api/chat", lambda text: messages(text), b'"done":false', b'{"error":"'),
]


@pytest.mark.tsan
def test_streams_begin_behind_slow_prompts(start, models):
    d = start(models(kind="book", book=BOOK), {"server": {"keepalive_interval": "100ms", "prep_threads": 1}})
    for path, body, _, _ in STREAMS:  # nobody is before them: nothing was sent when the error is found
        assert d.http("POST", path, body("wrong")).status == 400, path
    slow = slow_prompts(d)
    good, wrong = ([(Raw(d, path, body(text)), path, alive, end) for path, body, alive, end in STREAMS]
                   for text in ("hi", "wrong"))
    sockets = [d.ws(), d.ws()]
    sockets[0].create("hi")
    sockets[1].create("wrong")
    for raw, path, alive, _ in good + wrong:
        head, _, text = raw.until(alive).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n"), path
    for raw, path, alive, error in wrong:  # what prep found came later
        assert error in raw.rest() and b"This is wrong." in raw.data, (path, raw.data)
    for raw, path, alive, error in good:
        assert b"Quickly." in raw.rest() and error not in raw.data, (path, raw.data)
    events = sockets[0].until_type("response.completed", "error", "response.failed")
    assert text_of(events) == "Quickly."
    assert [e["type"] for e in events[:3]] == ["response.created"] + ["response.in_progress"] * 2
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    events = sockets[1].until_type("response.completed", "error", "response.failed")
    assert events[0]["type"] == "response.created" and events[-1]["type"] == "response.failed"
    assert "This is wrong." in events[-1]["response"]["error"]["message"]
    for raw in slow:
        assert raw.until(b'"count"').startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.home("release")
def test_a_bad_request_is_answered_before_slow_prompts(start, models):
    """What is wrong with its text is found without waiting for them."""
    d = start(models(kind="book", book=BOOK), {"server": {"prep_threads": 1}})
    slow = slow_prompts(d)
    assert d.http("POST", CHAT, {"model": "tiny", "messages": 7}).status == 400
    assert len(answered(slow)) < len(slow)
    for raw in slow:
        assert raw.until(b'"count"').startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.home("release")
@pytest.mark.tsan
def test_small_prompts_pass_large_ones(start, models):
    """Large prompts never have the last of several threads; with one thread all are in order."""
    for n_threads in (1, 2, 3):
        d = start(models(kind="book", book=BOOK, n_context=16384), {"server": {"prep_threads": n_threads}})
        slow = slow_prompts(d, " word" * (LARGE // 5))
        assert d.http("POST", "/v1/tokenize", messages("hi")).status == 200
        assert (len(answered(slow)) == len(slow)) == (n_threads == 1), n_threads
        counts = {json.loads(raw.until(b"}").partition(b"\r\n\r\n")[2])["count"] for raw in slow}
        assert len(counts) == 1, counts
        d.stop()
