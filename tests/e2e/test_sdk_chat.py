"""The openai package, as it is, against chat completions, completions and tokens."""
import json

import openai
import pydantic
import pytest

from daemon import in_pieces
from tiny_model import SCRIPT

pytestmark = pytest.mark.home("release")

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "maxLength": 12},
        "days": {"type": "integer", "minimum": 1, "maximum": 7}},
        "required": ["city", "days"], "additionalProperties": False}}}
CALL = {"city": "Paris\u00e9", "days": 3}
HI = [{"role": "user", "content": "hi"}]


def client(d, **options):
    options.setdefault("_strict_response_validation", True)
    return openai.OpenAI(base_url="http://%s:%d/v1" % (d.host, d.port), api_key="none",
                         max_retries=0, **options)


def test_whole(family):
    r = client(family).chat.completions.create(model="tiny", messages=HI, temperature=0)
    assert r.choices[0].message.content == SCRIPT
    assert r.choices[0].finish_reason == "stop"
    assert r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens


def test_stream_helper(family):
    with client(family).chat.completions.stream(
            model="tiny", messages=HI, temperature=0, logprobs=True, top_logprobs=2,
            stream_options={"include_usage": True}) as stream:
        text = "".join(e.delta for e in stream if e.type == "content.delta")
        final = stream.get_final_completion()
    assert text == final.choices[0].message.content == SCRIPT
    assert final.usage.completion_tokens > 10
    tokens = final.choices[0].logprobs.content
    assert b"".join(bytes(t.bytes) for t in tokens).decode() == SCRIPT
    for t in tokens:
        assert t.logprob > -0.01 and len(t.top_logprobs) == 2
        assert t.top_logprobs[0].token == t.token
        assert t.top_logprobs[0].logprob == t.logprob > t.top_logprobs[1].logprob


@pytest.mark.parametrize("stream", [False, True])
def test_stop(family, stream):
    """A stop string over the border of tokens; no part of it is given."""
    r = client(family).chat.completions.create(
        model="tiny", messages=HI, temperature=0, stop=["charlie del", "never"], stream=stream)
    if stream:
        chunks = list(r)
        text = "".join(c.choices[0].delta.content or "" for c in chunks)
        reason = chunks[-1].choices[0].finish_reason
    else:
        text, reason = r.choices[0].message.content, r.choices[0].finish_reason
    assert (text, reason) == ("Alpha bravo ", "stop")


def test_choices(family):
    """n answers to one prompt: each is what its own seed gives alone, and the prompt is read
    once."""
    messages = [{"role": "user", "content": "tell me " * 40}]
    ask = dict(model="noise", messages=messages, max_tokens=24)
    r = client(family).chat.completions.create(n=4, seed=11, **ask)
    texts = [c.message.content for c in r.choices]
    assert [c.index for c in r.choices] == [0, 1, 2, 3] and len(set(texts)) == 4
    assert r.usage.completion_tokens == 4 * 24
    for i, text in enumerate(texts):
        alone = client(family).chat.completions.create(seed=11 + i, **ask)
        assert alone.choices[0].message.content == text
    seen = {}
    for c in client(family).chat.completions.create(n=4, seed=11, stream=True, **ask):
        seen.setdefault(c.choices[0].index, []).append(c.choices[0].delta.content or "")
    assert list(seen) == [0, 1, 2, 3]
    assert ["".join(seen[i]) for i in range(4)] == texts


def test_ignored_end(family):
    """Past its end the model draws tokens that say nothing: their log probabilities come, and
    nothing waits for text that never does."""
    r = client(family).chat.completions.create(
        model="tiny", messages=HI, temperature=0, max_tokens=400, logprobs=True,
        extra_body={"ignore_eos": True})
    assert r.choices[0].finish_reason == "length" and r.usage.completion_tokens == 400
    assert len(r.choices[0].logprobs.content) == 400
    assert r.choices[0].message.content.startswith(SCRIPT)


def test_tools(family):
    c = client(family)
    r = c.chat.completions.create(model="tools", messages=HI, tools=[WEATHER], temperature=0)
    m = r.choices[0].message
    assert r.choices[0].finish_reason == "tool_calls"
    assert m.content == "I'll look." and m.reasoning_content == "Hm."
    call = m.tool_calls[0]
    assert call.function.name == "get_weather" and json.loads(call.function.arguments) == CALL
    # the answer goes back with the tool's result; the model does not mind
    messages = HI + [m.model_dump(exclude_none=True),
                     {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
    r = c.chat.completions.create(model="tools", messages=messages, tools=[WEATHER], temperature=0)
    assert r.usage.prompt_tokens > 50

    def streamed():
        with c.chat.completions.stream(model="tools", messages=HI, tools=[WEATHER],
                                       temperature=0) as stream:
            return ([e for e in stream if e.type == "tool_calls.function.arguments.delta"],
                    stream.get_final_completion())
    deltas, final = in_pieces(streamed)
    assert "".join(e.arguments_delta for e in deltas) == call.function.arguments
    assert json.loads(final.choices[0].message.tool_calls[0].function.arguments) == CALL
    # without tools the markers are plain text
    r = c.chat.completions.create(model="tools", messages=HI, temperature=0)
    assert "<tool_call>" in r.choices[0].message.content and not r.choices[0].message.tool_calls


@pytest.mark.parametrize("choice", ["required", {"type": "function",
                                                 "function": {"name": "get_weather"}}])
def test_forced_call(family, choice):
    """A model that writes nonsense still makes a call that the schema allows."""
    for seed in range(4):
        r = client(family).chat.completions.create(
            model="noise", messages=HI, tools=[WEATHER], tool_choice=choice, seed=seed,
            parallel_tool_calls=False, max_tokens=400)
        m = r.choices[0].message
        assert r.choices[0].finish_reason == "tool_calls" and len(m.tool_calls) == 1
        arguments = json.loads(m.tool_calls[0].function.arguments)
        assert set(arguments) == {"city", "days"} and 1 <= arguments["days"] <= 7


class Point(pydantic.BaseModel):
    x: int
    label: str = pydantic.Field(max_length=8)
    kind: str = pydantic.Field(pattern="^(near|far)$")


def test_parsed(family):
    for seed in range(4):
        r = client(family).chat.completions.parse(
            model="noise", messages=HI, response_format=Point, seed=seed, max_tokens=400)
        assert isinstance(r.choices[0].message.parsed, Point)


def test_json_object_and_regex(family):
    c = client(family)
    r = c.chat.completions.create(model="noise", messages=HI, seed=1, max_tokens=2000,
                                  response_format={"type": "regex", "regex": "[a-c]{3}-\\d+x"},
                                  logit_bias={})
    import re
    assert re.fullmatch("[a-c]{3}-\\d+x", r.choices[0].message.content)
    with pytest.raises(openai.BadRequestError) as e:
        c.chat.completions.create(model="noise", messages=HI, response_format={
            "type": "json_schema", "json_schema": {"name": "n", "schema": {
                "type": "object", "properties": {"a": {"type": "array", "minContains": 2}}}}})
    assert e.value.param == "response_format" and "minContains" in e.value.message


def test_completions(family):
    c = client(family)
    r = c.completions.create(model="noise", prompt=["one", "two"], n=2, max_tokens=8, seed=3,
                             logprobs=2, temperature=1)
    assert [x.index for x in r.choices] == [0, 1, 2, 3]
    for x in r.choices:
        assert "".join(x.logprobs.tokens) == x.text and len(x.logprobs.top_logprobs[0]) == 2
    tokens = script_tokens(family, "one")
    by_ids = c.completions.create(model="noise", prompt=tokens, max_tokens=8, seed=3)
    assert by_ids.choices[0].text == r.choices[0].text
    # OpenAI's own chunks have a null finish_reason, too, which the package's type denies
    loose = client(family, _strict_response_validation=False)
    text = "".join(x.choices[0].text for x in loose.completions.create(
        model="noise", prompt="one", max_tokens=8, seed=3, stream=True, echo=True))
    assert text == "one" + r.choices[0].text


def script_tokens(d, text):
    r = d.http("POST", "/v1/tokenize", {"model": "noise", "prompt": text, "return_token_strs": True})
    assert r.status == 200 and "".join(r.json["token_strs"]) == text
    return r.json["tokens"]


def test_tokens(family):
    text = "the user and \u00e9\U0001f980\n"
    r = family.http("POST", "/v1/tokenize", {"model": "noise", "prompt": text})
    assert r.json["count"] == len(r.json["tokens"])
    back = family.http("POST", "/v1/detokenize", {"model": "noise", "tokens": r.json["tokens"]})
    assert back.json == {"prompt": text}
    chat = family.http("POST", "/v1/tokenize", {"model": "noise", "messages": HI, "tools": [WEATHER]})
    shown = family.http("POST", "/v1/detokenize", {"model": "noise", "tokens": chat.json["tokens"]}).json["prompt"]
    assert "get_weather" in shown and shown.endswith("<|im_start|>assistant\n")
    assert chat.json["count"] == client(family).chat.completions.create(
        model="noise", messages=HI, tools=[WEATHER], max_tokens=1).usage.prompt_tokens


def test_errors(family):
    c = client(family)
    with pytest.raises(openai.NotFoundError) as e:
        c.chat.completions.create(model="other", messages=HI)
    assert e.value.code == "model_not_found" and e.value.request_id
    with pytest.raises(openai.BadRequestError) as e:
        c.chat.completions.create(model="tiny", messages=HI, top_logprobs=3)
    assert e.value.param == "top_logprobs" and e.value.type == "invalid_request_error"


def test_models(family):
    page = client(family).models.list()
    assert [m.id for m in page] == ["tiny", "tools", "noise"]
    assert client(family).models.retrieve("tiny").owned_by == "ingot"
