"""Values that no honest client sends, to each endpoint that reads JSON: an error with a code,
in the endpoint's own shape, and a client that streams on beside it."""
import json

import pytest

from daemon import DEADLINE_S
from rawsocket import TEXT, WebSocket, frame
from tiny_model import SCRIPT

pytestmark = [pytest.mark.home("asan"), pytest.mark.usefixtures("undisturbed")]

ENDPOINTS = {
    "chat": ("/v1/chat/completions", b'"messages":[{"role":"user","content":%s}]'),
    "completions": ("/v1/completions", b'"prompt":%s'),
    "responses": ("/v1/responses", b'"input":%s'),
    "messages": ("/v1/messages", b'"max_tokens":10,"messages":[{"role":"user","content":%s}]'),
    "ollama chat": ("/api/chat", b'"messages":[{"role":"user","content":%s}]'),
    "ollama generate": ("/api/generate", b'"prompt":%s'),
    "websocket": (None, b'"type":"response.create","input":%s'),
}


def body(endpoint, content=b'"hi"', extra=b"", model=b'"tiny"'):
    return b'{"model":%s,%s%s}' % (model, ENDPOINTS[endpoint][1] % content, extra)


def ask(d, endpoint, data, headers=()):
    """(status, error's code or None, message)."""
    path = ENDPOINTS[endpoint][0]
    if path:
        r = d.http("POST", path, data, dict(headers), timeout=2 * DEADLINE_S)
        e = r.error if r.status != 200 else None
        if isinstance(e, str):  # Ollama's
            return r.status, "error", e
        return r.status, e and (e.get("code") or e["type"]), e and e["message"]
    w = WebSocket(d)
    w.send(frame(TEXT, data))
    got = w.read()
    while got[0] == "text" and json.loads(got[1])["type"] in ("response.created", "response.in_progress"):
        got = w.read()
    w.close()
    if got[0] == "close":
        return got[1], "close", got[2].decode()
    e = json.loads(got[1])
    if e["type"] == "response.failed":  # a prompt that exceeds the context
        return 400, e["response"]["error"]["code"], e["response"]["error"]["message"]
    if e["type"] != "error":
        return 200, None, None
    return e["status"], e["error"]["code"] or e["error"]["type"], e["error"]["message"]


def refused(d, endpoint, data, statuses=(400,)):
    status, code, message = ask(d, endpoint, data)
    assert status in statuses and code and message, (status, code, message)
    return code


# What is no JSON, or JSON that two readers read in two ways.
TEXTS = {
    "empty": b"", "blank": b" \n\t ", "null": b"null", "number": b"1", "string": b'"text"',
    "array": b"[]",
    "unended object": b'{"model":"tiny"', "unended string": b'{"model":"tin',
    "trailing comma": b'{"model":"tiny",}',
    "single quotes": b"{'model':'tiny'}", "comment": b'{"model":"tiny"/**/}',
    "no quotes": b"{model:1}",
    "NaN": b'{"temperature":NaN}', "Infinity": b'{"temperature":Infinity}',
    "hexadecimal": b'{"n":0x1}',
    "leading zero": b'{"n":01}', "plus": b'{"n":+1}', "point first": b'{"n":.5}',
    "point last": b'{"n":1.}',
    "tab in a string": b'{"a":"\t"}', "bad escape": b'{"a":"\\x41"}',
    "cut escape": b'{"a":"\\u12"}',
    "lone high surrogate": b'{"a":"\\ud83e"}', "lone low surrogate": b'{"a":"\\udd80"}',
    "surrogates the wrong way round": b'{"a":"\\udd80\\ud83e"}',
    "high surrogate and a letter": b'{"a":"\\ud83ex"}',
    "NUL byte": b'{"a":"\0"}', "NUL after the end": b"{}\0", "two objects": b"{}{}",
    "words after the end": b"{} and more",
    "form": b"model=tiny&messages=hi", "XML": b"<?xml version='1.0'?><model>tiny</model>",
}
BYTES = {  # not UTF-8: a WebSocket closes instead
    "byte-order mark": b"\xef\xbb\xbf{}", "UTF-16": '{"model":"tiny"}'.encode("utf-16"),
    "UTF-32": '{"model":"tiny"}'.encode("utf-32"), "Latin-1": b'{"a":"\xe9"}',
    "overlong": b'{"a":"\xc0\xaf"}',
    "surrogate in UTF-8": b'{"a":"\xed\xa0\x80"}', "compressed": b"\x1f\x8b\x08\0\0\0\0\0\0\3",
}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_texts_that_are_no_request(scripted, endpoint):
    for name, data in TEXTS.items():
        assert refused(scripted, endpoint, data), name
    for name, data in BYTES.items():
        statuses = (400,) if endpoint != "websocket" else (400, 1007)
        assert refused(scripted, endpoint, data, statuses), name


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_strings_that_are_no_text(scripted, endpoint):
    """The same within a request that is well formed but for them."""
    for content in (b'"\\ud83e"', b'"\\udd80"', b'"\\ud83e\\ud83e"'):
        refused(scripted, endpoint, body(endpoint, content))
    # and some that are: noncharacters, the last code point, escapes for everything
    for content in (b'"\\uffff\\udbff\\udfff"', b'"\\u0001\\u001f\\u007f"', b'"a\\u0000b"',
                    b'"\\u202e\\u200b\\ufeff"'):
        assert ask(scripted, endpoint, body(endpoint, content))[0] == 200, content


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_nul(scripted, endpoint):
    """U+0000 is text that a model may have generated; in a name, or a string that is none of a conversation, it is refused."""
    assert ask(scripted, endpoint, body(endpoint, b'"\\u0000"'))[0] == 200
    assert refused(scripted, endpoint, body(endpoint, model=b'"tiny\\u0000"')) == refused(scripted, endpoint, b"{")
    refused(scripted, endpoint, body(endpoint, extra=b',"stop":"\\u0000"'))
    refused(scripted, endpoint, body(endpoint, extra=b',"\\u0000":1'))


def test_nul_arrives(scripted):
    """As tokens of its own: in a prompt, in a conversation, in instructions; and it comes back."""
    def count(text, **more):
        return len(scripted.http("POST", "/v1/tokenize", {"model": "tiny", **more} if more else {
            "model": "tiny", "prompt": text}).json["tokens"])
    ids = scripted.http("POST", "/v1/tokenize", {"model": "tiny", "prompt": "a\0b\0"}).json["tokens"]
    assert scripted.http("POST", "/v1/detokenize", {"model": "tiny", "tokens": ids}).json["prompt"] == "a\0b\0"

    def conversation(text):
        return count(None, messages=[{"role": "system", "content": text}, {"role": "user", "content": [{"type": "text", "text": text}]},
                                     {"role": "assistant", "content": text}, {"role": "user", "content": text}])
    assert conversation("a\0b") - conversation("ab") == 4 * (count("a\0b") - count("ab")) > 0

    def usage(**fields):
        return scripted.http("POST", "/v1/responses", {"model": "tiny", "max_output_tokens": 1, **fields}).json["usage"]["input_tokens"]
    assert usage(input="hi", instructions="a\0b") - usage(input="hi", instructions="ab") == count("a\0b") - count("ab")
    # what was stored is the same
    first = scripted.http("POST", "/v1/responses", {"model": "tiny", "max_output_tokens": 1, "input": "a\0b", "store": True}).json["id"]
    items = scripted.http("GET", "/v1/responses/%s/input_items" % first).json["data"]
    assert items[0]["content"][0]["text"] == "a\0b"
    assert usage(input="x\0", previous_response_id=first) - usage(input="x", previous_response_id=first) == count("x\0") - count("x")


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_duplicate_keys(scripted, endpoint):
    for extra in (b',"model":"random"', b',"temperature":0,"temperature":1', b',"x":1,"x":1'):
        refused(scripted, endpoint, body(endpoint, extra=extra))
    refused(scripted, endpoint, b'{"model":"tiny","mod\\u0065l":"tiny"}')


@pytest.mark.parametrize("endpoint", [
    pytest.param(name,
                 marks=[pytest.mark.tsan] if name in ("chat",
                                                      "websocket") else []) for name in ENDPOINTS])
def test_deep_and_huge(scripted, endpoint):
    n = 100000
    for data in (b"[" * n, b"[" * n + b"]" * n, b'{"a":' * n + b"1" + b"}" * n,
                 body(endpoint, b"[" * n + b"]" * n),
                 body(endpoint, extra=b',"metadata":' + b'{"a":' * n + b"1" + b"}" * n),
                 b'{"a":' * 200000):
        refused(scripted, endpoint, data)
    # Wide: a million of everything.
    refused(scripted, endpoint,
            body(endpoint, extra=b',"stop":[' + b",".join([b'"s"'] * 1000000) + b"]"))
    refused(scripted, endpoint,
            b'{"model":"tiny",' + b",".join(b'"k%d":1' % i for i in range(300000)) + b"}")
    long_name = b'{"model":"tiny","' + b"k" * (8 << 20) + b'":1}'
    if endpoint.startswith("ollama"):  # an unknown name beside a whole request, to load the model
        assert ask(scripted, endpoint, long_name)[0] == 200
    else:
        refused(scripted, endpoint, long_name)
    if endpoint not in ("chat", "websocket"):
        return  # the same reader for all: once over HTTP and once over a WebSocket
    refused(scripted, endpoint, b"[" * (16 << 20))
    # Long: 30 MB of text is more than any context, and no key to a model's name.
    assert refused(scripted, endpoint, body(endpoint, b'"' + b"word " * 6000000 + b'"'))
    refused(scripted, endpoint, body(endpoint, model=b'"' + b"m" * (20 << 20) + b'"'), (400, 404))


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_numbers_out_of_range(scripted, endpoint):
    limit = {"chat": b"max_tokens", "completions": b"max_tokens", "messages": b"top_k",
             "ollama chat": b"top_k", "ollama generate": b"num_predict"}.get(endpoint,
                                                                             b"max_output_tokens")
    member = b',"options":{"%s":%s}' if endpoint.startswith("ollama") else b',"%s":%s'
    numbers = [b"1e400", b"-1e400", b"1e999999999", b"123456789012345678901234567890",
               b"-9223372036854775809",
               b"1" + b"0" * 100000, b"1." + b"0" * 1000000 + b"e99999", b"-1", b"1.5",
               b"9223372036854775807",
               b"18446744073709551615", b'"5"', b"true", b"[]", b"{}"]
    for number in numbers:
        if number in (b"9223372036854775807",) and endpoint == "messages":
            continue
        if number == b"-1" and limit == b"num_predict":
            continue  # no limit
        refused(scripted, endpoint, body(endpoint, extra=member % (limit, number)))
    for number in (b"1e308", b"-1e-3", b"1e400", b"-1", b'"0"', b"[0]", b"true", b"1e-99999999999"):
        status, code, message = ask(scripted, endpoint,
                                    body(endpoint, extra=member % (b"temperature", number)))
        assert status in (200, 400) and (status == 400 or number == b"1e-99999999999"), (number,
                                                                                         status,
                                                                                         message)
    for number in (b"0", b"-0", b"-0.0", b"0e0", b"5e-324"):
        assert ask(scripted, endpoint,
                   body(endpoint, extra=member % (b"temperature", number)))[0] == 200, number


def test_it_serves_after_all_that(scripted):
    assert scripted.chat_text() == SCRIPT
