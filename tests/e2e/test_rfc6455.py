"""The WebSocket layer held to RFC 6455, case by case, after the list that Autobahn made
the custom; the numbers are the groups of that list.

The daemon is no echo server, but one of its replies repeats what it was sent: it answers
`response.steer` with an event that has the `input` again.  So a message arrived whole and
unchanged when its text comes back.  A case is what is sent and what must come, frame by
frame; a client streams on beside all of them.
"""
import json
import time

import pytest

import rawsocket
from daemon import PATIENCE
from rawsocket import (BINARY, CONTINUATION, PING, PONG, TEXT, WebSocket, close_frame, fragments,
                       frame, handshake)

pytestmark = [pytest.mark.home("asan"), pytest.mark.usefixtures("undisturbed")]

MAX_BODY = 32 << 20  # server.max_body's default


def steer(text):
    """A message whose reply has `text` again."""
    return json.dumps({"type": "response.steer", "stream_id": "rfc", "input": text},
                      ensure_ascii=False).encode()


def steer_of(size, filler="*"):
    """A message of exactly so many bytes, and its text."""
    text = filler * (size - len(steer("")))
    message = steer(text)
    assert len(message) == size
    return message, text


# ---- what may come -----------------------------------------------------------------------

def echo(text):
    def check(got):
        assert got[0] == "text", got
        e = json.loads(got[1])
        assert (e["type"], e["stream_id"]) == ("response.steer.failed", "rfc"), got
        assert e["steer"]["input"] == text, "another text came back"
    return check


def error(got):
    """An event that says what is wrong with a message that is well framed."""
    assert got[0] == "text", got
    e = json.loads(got[1])
    assert e["type"] == "error" and 400 <= e["status"] < 500 and e["error"]["message"], e


def pong(payload):
    def check(got):
        assert got == ("pong", payload), got
    return check


def closes(*codes):
    """The daemon's close frame; a reason is UTF-8."""
    def check(got):
        assert got[0] == "close" and got[1] in codes, "%r, not a close with %s" % (got[:2], codes)
        got[2].decode()
    return check


def ended(got):
    assert got[0] == "closed", got


HELLO = steer("hello")


def then(*frames):
    """Among what must come: send more, now."""
    return list(frames)


def run(d, sent, expected, chop=None):
    """Send all of it, then read what must come; a connection that goes on must still serve."""
    w = WebSocket(d)
    w.send(*sent, chop=chop)
    for check in expected:
        if isinstance(check, list):
            w.send(*check, chop=chop)
            continue
        got = w.read()
        check(got)
        if got[0] == "close":  # as every client does, and then it sends no more
            w.send(close_frame(got[1] or 1000))
            w.finish()
    if not expected or expected[-1] is not ended:
        w.send(frame(TEXT, steer("still here")))
        echo("still here")(w.read())
        w.send(close_frame(1000))
        closes(1000)(w.read())
        ended(w.read())
    w.close()


# A case: name, frames, what must come.  A connection whose list does not end with
# `ended` must go on serving.
CASES = []


# A few of each kind are enough for ThreadSanitizer: frames are the loop thread's alone.
TSAN = {"1.1.8-text-of-65536-in-chops-of-997", "1.2.2-binary-of-125", "2.10-ten-pings",
        "4.1-opcode-3-after-text", "5.7-ping-between-fragments-bytewise",
        "6.4.23-state-is-new-with-each-message", "7.1.4-text-after-close", "9.1.1-largest-message",
        "9.3.1-1MiB-in-fragments-of-64", "9.7.1-a-thousand-messages"}


def case(name, sent, *expected, chop=None):
    CASES.append(pytest.param(sent, list(expected), chop, id=name,
                              marks=[pytest.mark.tsan] if name in TSAN else []))


# ---- 1: framing --------------------------------------------------------------------------

case("1.1.1-empty-text", [frame(TEXT, b"")], error)
for n, size in enumerate((125, 126, 127, 128, 65535, 65536), 2):
    message, text = steer_of(size)
    case("1.1.%d-text-of-%d" % (n, size), [frame(TEXT, message)], echo(text))
    if size < 1000:
        case("1.1.%d-bytewise" % n, [frame(TEXT, message)], echo(text), chop=1)
message, text = steer_of(65536)
case("1.1.8-text-of-65536-in-chops-of-997", [frame(TEXT, message)], echo(text), chop=997)
message, text = steer_of(1 << 20, "\u00e9" if len(steer("")) % 2 == 0 else "*")
case("1.1.9-text-of-1MiB", [frame(TEXT, message)], echo(text))
for n, size in enumerate((0, 125, 126, 127, 128, 65535, 65536), 1):
    case("1.2.%d-binary-of-%d" % (n, size), [frame(BINARY, b"\xfe" * size)], closes(1003), ended)
case("1.2.8-binary-in-chops", [frame(BINARY, b"\xfe" * 65536)], closes(1003), ended, chop=997)
case("1.3.1-key-of-zeros", [frame(TEXT, HELLO, mask=b"\0\0\0\0")], echo("hello"))
case("1.3.2-key-with-zeros", [frame(TEXT, HELLO, mask=b"\0\xff\0\x80")], echo("hello"))
case("1.3.3-two-keys", [frame(TEXT, HELLO, mask=b"\1\2\3\4"), frame(TEXT, HELLO, mask=b"\0\0\0\0")],
     echo("hello"), echo("hello"))
case("1.4.1-unmasked-text", [frame(TEXT, HELLO, mask=False)], closes(1002), ended)
case("1.4.3-unmasked-after-masked", [frame(TEXT, HELLO)], echo("hello"),
     then(frame(TEXT, HELLO, mask=False)), closes(1002), ended)
case("1.4.4-unmasked-fragment", [frame(TEXT, HELLO[:5], fin=False),
                                 frame(CONTINUATION, HELLO[5:], mask=False)], closes(1002), ended)
case("1.4.5-unmasked-close", [close_frame(1000, mask=False)], closes(1002), ended)
case("1.4.2-unmasked-ping", [frame(PING, b"x", mask=False)], closes(1002), ended)
case("1.5.1-length-of-16-bits-that-fits-7", [frame(TEXT, HELLO[:-1] + b" " * 20 + b"}", form=16)],
     closes(1002), ended)
case("1.5.2-length-of-64-bits-that-fits-16", [frame(TEXT, steer_of(300)[0], form=64)],
     closes(1002), ended)
case("1.5.3-length-with-its-highest-bit", [frame(TEXT, b"x", form=64, length=1 << 63)],
     closes(1002), ended)

# ---- 2: pings and pongs ------------------------------------------------------------------

for n, payload in enumerate((b"", b"Hello, world!", b"\0\xff\xfe\xfd\xfc\xfb\0\xff", b"\xfe" * 125),
                            1):
    case("2.%d-ping-of-%d" % (n, len(payload)), [frame(PING, payload)], pong(payload))
case("2.5-ping-of-126", [frame(PING, b"\xfe" * 126)], closes(1002), ended)
case("2.6-ping-of-125-bytewise", [frame(PING, b"\xfe" * 125)], pong(b"\xfe" * 125), chop=1)
case("2.7-pong-unasked", [frame(PONG, b"")])
case("2.8-pong-unasked-with-payload", [frame(PONG, b"unasked")])
case("2.9-pong-then-ping", [frame(PONG, b"unasked"), frame(PING, b"ping")], pong(b"ping"))
case("2.10-ten-pings", [frame(PING, b"payload-%d" % i) for i in range(10)],
     *[pong(b"payload-%d" % i) for i in range(10)])
case("2.11-ten-pings-bytewise", [frame(PING, b"payload-%d" % i) for i in range(10)],
     *[pong(b"payload-%d" % i) for i in range(10)], chop=1)
case("2.12-pong-of-126", [frame(PONG, b"x" * 126)], closes(1002), ended)
case("2.13-fragmented-ping", [frame(PING, b"x", fin=False)], closes(1002), ended)

# ---- 3: reserved bits --------------------------------------------------------------------

for bits in range(1, 8):
    case("3.%d-reserved-bits-on-text" % bits,
         [frame(TEXT, HELLO)],
         echo("hello"), then(frame(TEXT, HELLO, reserved=bits)), closes(1002), ended)
case("3.8-reserved-bit-on-ping", [frame(PING, b"x", reserved=2)], closes(1002), ended)
case("3.9-reserved-bit-on-close", [close_frame(1000, reserved=1)], closes(1002), ended)
case("3.10-reserved-bit-on-continuation",
     [frame(TEXT, HELLO[:5], fin=False), frame(CONTINUATION, HELLO[5:], reserved=4)],
     closes(1002), ended)
case("3.11-reserved-bit-bytewise", [frame(TEXT, HELLO, reserved=7)], closes(1002), ended, chop=1)

# ---- 4: opcodes --------------------------------------------------------------------------

for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15):
    group = "4.1" if opcode < 8 else "4.2"
    case("%s-opcode-%d" % (group, opcode), [frame(opcode, b"")], closes(1002), ended)
    case("%s-opcode-%d-after-text" % (group, opcode),
         [frame(TEXT, HELLO)],
         echo("hello"), then(frame(opcode, b"x"), frame(PING, b"")), closes(1002), ended)

# ---- 5: fragmentation --------------------------------------------------------------------

case("5.1-ping-in-two-fragments", [frame(PING, b"a", fin=False), frame(CONTINUATION, b"b")],
     closes(1002), ended)
case("5.2-pong-in-two-fragments", [frame(PONG, b"a", fin=False), frame(CONTINUATION, b"b")],
     closes(1002), ended)
case("5.3-text-in-two-fragments", fragments(HELLO, 30), echo("hello"))
case("5.4-text-in-two-fragments-bytewise", fragments(HELLO, 30), echo("hello"), chop=1)
case("5.5-text-bytewise-fragments", fragments(HELLO, 1), echo("hello"))
case("5.6-ping-between-fragments",
     [frame(TEXT, HELLO[:9], fin=False), frame(PING, b"mid"), frame(CONTINUATION, HELLO[9:])],
     pong(b"mid"), echo("hello"))
case("5.7-ping-between-fragments-bytewise",
     [frame(TEXT, HELLO[:9], fin=False), frame(PING, b"mid"), frame(CONTINUATION, HELLO[9:])],
     pong(b"mid"), echo("hello"), chop=1)
case("5.8-pong-between-fragments",
     [frame(TEXT, HELLO[:9], fin=False), frame(PONG, b"mid"), frame(CONTINUATION, HELLO[9:])],
     echo("hello"))
case("5.9-continuation-of-nothing", [frame(CONTINUATION, b"x")], closes(1002), ended)
case("5.10-continuation-of-nothing-then-text", [frame(CONTINUATION, b"x"), frame(TEXT, HELLO)],
     closes(1002), ended)
case("5.11-continuation-of-nothing-bytewise", [frame(CONTINUATION, b"x", fin=False)],
     closes(1002), ended, chop=1)
case("5.12-continuation-after-a-whole-message", [frame(TEXT, HELLO)],
     echo("hello"), then(frame(CONTINUATION, b"x")), closes(1002), ended)
case("5.13-unended-continuation-after-a-whole-message",
     [frame(TEXT, HELLO)],
     echo("hello"), then(frame(CONTINUATION, b"x", fin=False)), closes(1002), ended)
case("5.14-new-text-within-a-message", [frame(TEXT, b"a", fin=False), frame(TEXT, b"b")],
     closes(1002), ended)
case("5.15-new-binary-within-a-message", [frame(TEXT, b"a", fin=False), frame(BINARY, b"b")],
     closes(1002), ended)
case("5.16-new-text-within-a-message-after-a-ping",
     [frame(TEXT, b"a", fin=False), frame(CONTINUATION, b"b", fin=False), frame(TEXT, b"c")],
     closes(1002), ended)
case("5.17-empty-fragments",
     [frame(TEXT, b"", fin=False), frame(CONTINUATION, HELLO, fin=False), frame(CONTINUATION, b"")],
     echo("hello"))
case("5.18-only-empty-fragments", [frame(TEXT, b"", fin=False), frame(CONTINUATION, b"")], error)
case("5.19-two-fragmented-messages", fragments(HELLO, 7) + fragments(steer("again"), 7),
     echo("hello"), echo("again"))
case("5.20-many-pings-between-fragments",
     [f for part in fragments(HELLO, 20) for f in (part, frame(PONG, b"between"))], echo("hello"))
case("5.21-binary-in-fragments", [frame(BINARY, b"a", fin=False), frame(CONTINUATION, b"b")],
     closes(1003), ended)

# ---- 6: UTF-8 ----------------------------------------------------------------------------

VALID = {
    "6.2.1-greek": "\u03ba\u1f79\u03c3\u03bc\u03b5", "6.2.2-four-bytes": "\U0001f980\U00010348",
    "6.4.1-first-of-two": "\u0080", "6.4.2-first-of-three": "\u0800",
    "6.4.3-first-of-four": "\U00010000",
    "6.4.4-last-of-one": "\u007f", "6.4.5-last-of-two": "\u07ff", "6.4.6-last-of-three": "\uffff",
    "6.4.7-last-of-four": "\U0010ffff", "6.4.8-before-surrogates": "\ud7ff",
    "6.4.9-after-surrogates": "\ue000", "6.4.10-replacement": "\ufffd",
    "6.4.11-noncharacter": "\ufffe",
    "6.4.12-byte-order-mark": "\ufeff", "6.4.13-noncharacters-beyond": "\U0001ffff\U0010fffe",
}
for name, text in VALID.items():
    message = steer(text + " and more")
    case(name, [frame(TEXT, message)], echo(text + " and more"))
    case(name + "-bytewise-fragments", fragments(message, 1), echo(text + " and more"))
case("6.2.3-character-over-two-fragments", fragments(steer("a\U0001f980b"), 54),
     echo("a\U0001f980b"))
case("6.2.4-in-chops", [frame(TEXT, steer("\U0001f980" * 30))], echo("\U0001f980" * 30), chop=3)
case("6.2.5-NUL", [frame(TEXT, b"\0")], error)

INVALID = {
    "6.3.1-among-valid": b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited",
    "6.6.1-continuation-alone": b"\x80", "6.6.2-continuations": b"\x80\xbf\x80\xbf",
    "6.8.1-start-alone": b"\xc3", "6.8.2-three-bytes-cut": b"\xe2\x82",
    "6.8.3-four-bytes-cut": b"\xf0\x9f\xa6",
    "6.9.1-starts-in-a-row": b"\xc3\xc3\xc3", "6.9.2-start-then-ASCII": b"\xe2\x28\xa1",
    "6.10.1-FE": b"\xfe", "6.10.2-FF": b"\xff", "6.10.3-both": b"\xfe\xfe\xff\xff",
    "6.11.1-overlong-slash-2": b"\xc0\xaf", "6.11.2-overlong-slash-3": b"\xe0\x80\xaf",
    "6.11.3-overlong-slash-4": b"\xf0\x80\x80\xaf", "6.11.4-overlong-5": b"\xf8\x80\x80\x80\xaf",
    "6.11.5-overlong-6": b"\xfc\x80\x80\x80\x80\xaf", "6.12.1-longest-overlong-2": b"\xc1\xbf",
    "6.12.2-longest-overlong-3": b"\xe0\x9f\xbf", "6.12.3-longest-overlong-4": b"\xf0\x8f\xbf\xbf",
    "6.13.1-overlong-NUL": b"\xc0\x80", "6.14.1-surrogate-D800": b"\xed\xa0\x80",
    "6.14.2-surrogate-DBFF": b"\xed\xaf\xbf", "6.14.3-surrogate-DC00": b"\xed\xb0\x80",
    "6.14.4-surrogate-DFFF": b"\xed\xbf\xbf", "6.14.5-surrogate-pair": b"\xed\xa0\xbd\xed\xb8\x80",
    "6.15.1-beyond-10FFFF": b"\xf4\x90\x80\x80", "6.15.2-F5": b"\xf5\x80\x80\x80",
    "6.15.3-five-bytes": b"\xf8\x88\x80\x80\x80", "6.15.4-six-bytes": b"\xfc\x84\x80\x80\x80\x80",
}
for name, data in INVALID.items():
    case(name, [frame(TEXT, data)], closes(1007), ended)
    case(name + "-within-JSON", [frame(TEXT, HELLO[:-7] + data + HELLO[-7:])], closes(1007), ended)
    case(name + "-bytewise-fragments", fragments(data + b"", 1), closes(1007), ended)
    case(name + "-bytewise", [frame(TEXT, HELLO[:-7] + data + HELLO[-7:])], closes(1007), ended,
         chop=1)
# It need not wait for the end of a message that can't become valid any more.
case("6.4.20-fails-fast-in-an-unended-message",
     [frame(TEXT, b"\xce\xba\xe1\xbd\xb9\xf4\x90", fin=False)], closes(1007), ended)
case("6.4.21-fails-fast-within-a-frame", [frame(TEXT, b"\xed\xa0" + b" " * 100, length=5000)],
     closes(1007), ended)
case("6.4.22-fails-at-the-end-when-cut",
     [frame(TEXT, b"abc\xf0\x9f", fin=False), frame(CONTINUATION, b"")], closes(1007), ended)
case("6.4.23-state-is-new-with-each-message",
     [frame(TEXT, HELLO)], echo("hello"), then(frame(TEXT, b"\x80")), closes(1007), ended)

# ---- 7: closing --------------------------------------------------------------------------

case("7.1.1-message-then-close", [frame(TEXT, HELLO)],
     echo("hello"), then(close_frame(1000)), closes(1000), ended)
case("7.1.2-second-close", [close_frame(1000), close_frame(1000)], closes(1000), ended)
case("7.1.3-ping-after-close", [close_frame(1000), frame(PING, b"late")], closes(1000), ended)
case("7.1.4-text-after-close", [close_frame(1000), frame(TEXT, HELLO)], closes(1000), ended)
case("7.1.5-close-within-a-message",
     [frame(TEXT, HELLO[:9], fin=False), close_frame(1000), frame(CONTINUATION, HELLO[9:])],
     closes(1000), ended)
case("7.1.6-a-megabyte-after-close",
     [frame(TEXT, HELLO)], echo("hello"),
     then(close_frame(1000), frame(TEXT, b" " * (1 << 20))), closes(1000), ended)
case("7.3.1-empty-close", [close_frame()], closes(None), ended)
case("7.3.2-close-of-one-byte", [frame(rawsocket.CLOSE, b"a")], closes(1002), ended)
case("7.3.3-code-only", [close_frame(1000)], closes(1000), ended)
case("7.3.4-with-a-reason", [close_frame(1000, b"Hello World!")], closes(1000), ended)
case("7.3.5-longest-reason", [close_frame(1000, b"*" * 123)], closes(1000), ended)
case("7.3.6-too-long", [close_frame(1000, b"*" * 124)], closes(1002), ended)
case("7.3.7-fragmented", [close_frame(1000, fin=False)], closes(1002), ended)
case("7.3.8-bytewise", [close_frame(1000, b"reason")], closes(1000), ended, chop=1)
case("7.5.1-reason-is-not-UTF-8", [close_frame(1000, b"\xce\xba\xed\xa0\x80")], closes(1007), ended)
case("7.5.2-reason-is-cut-UTF-8", [close_frame(1000, b"\xe2\x82")], closes(1007), ended)
for code in (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014,
             3000, 3999, 4000, 4999):
    case("7.7-code-%d" % code, [close_frame(code)], closes(code), ended)
for code in (0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535):
    case("7.9-code-%d" % code, [close_frame(code)], closes(1002), ended)
    case("7.9-code-%d-with-reason" % code, [close_frame(code, b"because")], closes(1002), ended)

# ---- 9: limits ---------------------------------------------------------------------------

message, text = steer_of(MAX_BODY)
case("9.1.1-largest-message", [frame(TEXT, message)], echo(text))
case("9.1.2-larger-by-one", [frame(TEXT, message + b" ")], closes(1009), ended)
case("9.1.3-header-of-a-larger-one", [frame(TEXT, b" ", length=MAX_BODY + 1)], closes(1009), ended)
case("9.1.4-header-of-2^62", [frame(TEXT, b" ", length=1 << 62)], closes(1009), ended)
case("9.1.5-larger-in-fragments", fragments(b" " * (MAX_BODY + 1), 1 << 20), closes(1009), ended)
case("9.2.1-fragments-without-end", [frame(TEXT, b"[", fin=False)] +
     [frame(CONTINUATION, b" " * 60000, fin=False)] * 1000, closes(1009), ended)
case("9.2.2-empty-fragments-without-end", [frame(TEXT, b"", fin=False)] +
     [frame(CONTINUATION, b"", fin=False)] * 20000, closes(1009), ended)
case("9.2.3-empty-fragments-without-end-after-a-message", [frame(TEXT, HELLO)], echo("hello"),
     then(*[frame(TEXT, b"a", fin=False)] + [frame(CONTINUATION, b"", fin=False)] * 2000),
     closes(1009), ended)
message, text = steer_of(1 << 20)
case("9.3.1-1MiB-in-fragments-of-64", fragments(message, 64), echo(text))
case("9.3.2-1MiB-in-fragments-of-64KiB", fragments(message, 65536), echo(text))
message, text = steer_of(100000)
case("9.5.1-100000-in-chops-of-97", [frame(TEXT, message)], echo(text), chop=97)
case("9.7.1-a-thousand-messages", [frame(TEXT, HELLO)] * 1000, *[echo("hello")] * 1000)

# ---- 10: a message in frames as a library of the client's would make them ----------------

message, text = steer_of(65536)
case("10.1.1-frames-of-1300", fragments(message, 1300), echo(text))

@pytest.mark.parametrize("sent, expected, chop", CASES)
def test_case(scripted, sent, expected, chop):
    run(scripted, sent, expected, chop)


def test_every_exception_names_a_case():
    assert TSAN <= {c.id for c in CASES}


def test_it_does_not_wait_for_ever_for_a_close(scripted):
    """A client that answers a close with nothing."""
    w = WebSocket(scripted)
    w.send(frame(7, b""))
    closes(1002)(w.read())
    began = time.monotonic()
    ended(w.read())
    assert time.monotonic() - began < 10 * PATIENCE


@pytest.mark.long
def test_an_idle_peer_is_pinged(scripted):
    """After a minute of silence; one that answers is pinged again, and its socket serves."""
    w = WebSocket(scripted)
    w.s.settimeout(90)
    for _ in range(2):
        assert w.read() == ("ping", b"")
        w.send(frame(PONG, b""))
    w.send(frame(TEXT, HELLO))
    echo("hello")(w.read())
    w.close()


# ---- 12, 13: compression; it is offered by most clients and declined ---------------------

@pytest.mark.parametrize("offer", [
    "permessage-deflate", "permessage-deflate; client_max_window_bits",
    "permessage-deflate; server_max_window_bits=8, permessage-deflate",
    "x-webkit-deflate-frame",
    "permessage-deflate; client_no_context_takeover; server_max_window_bits=10",
    "made-up; with=\"quotes\", another",
])
def test_compression_is_declined(scripted, offer):
    w = WebSocket(scripted, headers=[("Sec-WebSocket-Extensions", offer)])
    assert b"extensions" not in w.head.lower()
    w.send(frame(TEXT, HELLO))
    echo("hello")(w.read())
    w.send(frame(TEXT, b"\xf2H\xcd\xc9\xc9\x07\x00", reserved=4))  # as if it had been taken
    closes(1002)(w.read())
    w.finish()
    ended(w.read())


# ---- the handshake -----------------------------------------------------------------------

def refused(d, data, status, code=None):
    r = d.raw(data)
    assert r is not None and r.status == status, r
    if code:
        assert r.error["code"] == code, r
    return r


@pytest.mark.parametrize("version", ["8", "12", "14", "0", "-1", "13.0", "13x", "", "13, 8", "x"])
def test_another_version_of_the_protocol(scripted, version):
    r = refused(scripted, handshake(headers=[("Sec-WebSocket-Version", version)]), 426)
    assert r.headers["sec-websocket-version"] == "13" and r.headers["upgrade"] == "websocket"
    assert "upgrade" in r.headers["connection"]
    refused(scripted, handshake(drop=["Sec-WebSocket-Version"]), 426)


@pytest.mark.parametrize("key", ["", "x", "AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAAA=",
                                 "AAAAAAAAAAAAAAAAAAAA AA==", "A" * 200, "A" * 22 + "==A"])
def test_another_key(scripted, key):
    refused(scripted, handshake(headers=[("Sec-WebSocket-Key", key)]), 400, "invalid_handshake")
    refused(scripted, handshake(drop=["Sec-WebSocket-Key"]), 400, "invalid_handshake")


@pytest.mark.parametrize("value", ["close", "keep-alive", "up", "upgrades", "x-upgrade", ""])
def test_connection_that_does_not_say_upgrade(scripted, value):
    refused(scripted, handshake(headers=[("Connection", value)]), 400, "invalid_handshake")


@pytest.mark.parametrize("value",
                         ["Upgrade", "keep-alive, Upgrade", "UPGRADE", "upgrade,keep-alive",
                                   "keep-alive ,  upgrade"])
def test_connection_that_says_upgrade(scripted, value):
    w = WebSocket(scripted, headers=[("Connection", value)])
    w.send(frame(TEXT, HELLO))
    echo("hello")(w.read())
    w.close()


def test_handshakes_that_are_something_else(scripted):
    """Each is refused as plain HTTP; none leaves anything behind."""
    d = scripted
    for value in ("h2c", "websockets", "web socket", "TLS/1.0", "websocket, h2c"):
        r = d.raw(handshake(headers=[("Upgrade", value)]))
        assert r is not None and 400 <= r.status < 500, (value, r)
    refused(d, handshake(version="HTTP/1.0"), 400, "unsupported_upgrade")
    refused(d, handshake(version="HTTP/2.0"), 505)
    refused(d, handshake(method="POST", headers=[("Content-Length", "0")]), 400)
    refused(d, handshake(headers=[("Content-Length", "5")]) + b"12345", 400, "unexpected_body")
    refused(d, handshake(headers=[("Transfer-Encoding", "chunked")]) + b"0\r\n\r\n", 400,
            "unexpected_body")
    refused(d, handshake(path="/v1/chat/completions"), 404)
    refused(d, handshake(path="/"), 404)
    refused(d, handshake(drop=["Host"]), 400, "invalid_host")
    refused(d, handshake(headers=[("Host", "evil.example")]), 403, "host_not_allowed")
    refused(d, handshake(headers=[("Origin", "https://evil.example")]), 403, "origin_not_allowed")
    refused(d, handshake(headers=[("Sec-WebSocket-Protocol", "chat, superchat")]), 400,
            "unsupported_subprotocol")
    refused(d, handshake(headers=[("X-Large", "a" * 100000)]), 431, "header_too_large")
    w = WebSocket(d, headers=[("X-Large", "a" * 8000), ("Sec-WebSocket-Protocol", "ingot")])
    assert b"sec-websocket-protocol: ingot" in w.head.lower()
    w.close()


def test_a_frame_together_with_the_handshake(scripted):
    """Sent before the 101 came, in one write."""
    s = scripted.connect()
    s.sendall(handshake() + frame(TEXT, HELLO) + frame(PING, b"early"))
    w = WebSocket.__new__(WebSocket)
    w.s, w.reader = s, rawsocket.Reader(s)
    assert w.reader.until(b"\r\n\r\n").startswith(b"HTTP/1.1 101 ")
    got = {w.read()[0], w.read()[0]}
    assert got == {"text", "pong"}, got
    w.close()


def test_a_handshake_byte_by_byte(scripted):
    s = scripted.connect()
    for b in handshake():
        s.sendall(bytes([b]))
    reader = rawsocket.Reader(s)
    assert reader.until(b"\r\n\r\n").startswith(b"HTTP/1.1 101 ")
    s.close()
