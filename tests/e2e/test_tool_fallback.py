"""Tools for a model whose chat template knows none: described in the system message, read back in
Hermes' form, and everybody is told; or refused.  And calls that break off: they are a response,
with a note in the ledger and the log."""
import json
import signal

import pytest
from daemon import merged, until
from test_http import CHAT, body
from test_ledger import until_rows

FORMAT = "x-ingot-tool-format"
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "parameters": {"type": "object", "properties": {
        "city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}
ASK = [{"role": "user", "content": "weather?"}]
DONE = ASK + [
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "sun"}]


@pytest.fixture
def model(models):
    """It writes a call, and its template has never heard of tools."""
    return models(kind="tools", template="chatml", n_context=2048)


def ask(d, messages=ASK, **more):
    return d.http("POST", CHAT, body(messages=messages, tools=[WEATHER], **more))


def test_tools_are_described_and_calls_read(start, model):
    d = start(model)
    r = ask(d, max_tokens=200)
    assert r.status == 200, r.body
    assert {k.lower(): v for k, v in r.headers.items()}[FORMAT] == "hermes-fallback"
    message = json.loads(r.body)["choices"][0]["message"]
    call = message["tool_calls"][0]["function"]
    assert call["name"] == "get_weather"
    assert json.loads(call["arguments"]) == {"city": "Paris\u00e9", "days": 3}
    assert message["content"].endswith("I'll look.")
    # without tools nothing is said
    plain = d.http("POST", CHAT, body(messages=ASK, max_tokens=5))
    assert FORMAT not in {k.lower() for k in plain.headers}
    # what is in the prompt: calls and results of earlier turns are texts in it
    def tokens(messages, **more):
        r = d.http("POST", "/v1/tokenize", body(messages=messages, **more))
        assert r.status == 200, r.body
        ids = json.loads(r.body)["tokens"]
        return json.loads(d.http("POST", "/v1/detokenize", body(tokens=ids)).body)["prompt"]
    prompt = tokens(DONE, tools=[WEATHER])
    assert prompt.count("<tools>\n") == 1 and '"name": "get_weather"' in prompt
    assert '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call><|im_end|>' in prompt
    assert "<|im_start|>user\n<tool_response>\nsun\n</tool_response><|im_end|>" in prompt
    assert "<tools>\n" not in tokens(DONE) and "<tool_response>" in tokens(DONE)


def test_a_required_call_has_the_tools_schema(start, models):
    d = start(models(kind="random", n_context=2048))
    r = ask(d, tool_choice="required", temperature=1, seed=7, max_tokens=400)
    choice = json.loads(r.body)["choices"][0]
    assert r.status == 200 and choice["message"]["tool_calls"][0]["function"]["name"] == "get_weather"
    if choice["finish_reason"] == "tool_calls":
        assert isinstance(json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])["city"], str)


def test_the_websocket_is_told(start, model):
    d = start(model)
    c = d.ws()
    c.create("weather?", tools=[{"type": "function", **WEATHER["function"]}])
    events = c.until_type("response.completed")
    assert events[0]["headers"] == {FORMAT: "hermes-fallback"}
    assert not any("headers" in e for e in events[1:])


def test_a_broken_call_is_a_response_with_a_note(start, model):
    d = start(model)
    for max_tokens in range(8, 16):  # somewhere in the call
        r = ask(d, max_tokens=max_tokens)
        assert r.status == 200 and json.loads(r.body)["choices"][0]["finish_reason"] == "length"
    ask(d, max_tokens=200)
    rows = until_rows(d, 9)
    assert all(row["status"] == 200 for row in rows) and rows[-1]["error"] == ""
    until(lambda: any(row["error"] for row in until_rows(d, 9)), "a note")
    notes = [row["error"] for row in until_rows(d, 9) if row["error"]]
    assert all(note.startswith("a tool call could not be read: hermes: expected ") for note in notes), notes
    assert all(note in d.log for note in notes)


def test_refused(start, model):
    d = start(model, extra={"tools": {"fallback": "refuse"}})
    r = ask(d)
    assert r.status == 400 and "does not support tools" in r.body.decode()
    assert FORMAT not in {k.lower() for k in r.headers}
    d.write_config(merged(d.config, {"tools": {"fallback": "hermes"}}))
    d.process.send_signal(signal.SIGHUP)
    until(lambda: ask(d, max_tokens=5).status == 200, "a reload")
