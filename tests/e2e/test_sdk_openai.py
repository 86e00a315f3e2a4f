"""The openai package, as it is, against Responses: HTTP, whole and streamed, and the WebSocket."""
import asyncio
import json

import openai
import pydantic
import pytest
import websockets

from daemon import in_pieces
from tiny_model import SCRIPT

pytestmark = pytest.mark.home("release")

WEATHER = {"type": "function", "name": "get_weather", "description": "The weather of a city.",
           "strict": True, "parameters": {
               "type": "object", "properties": {
                   "city": {"type": "string", "maxLength": 12},
                   "days": {"type": "integer", "minimum": 1, "maximum": 7}},
               "required": ["city", "days"], "additionalProperties": False}}
CALL = {"city": "Paris\u00e9", "days": 3}


def client(d, kind=openai.OpenAI, **options):
    """Strict: what lacks a field, or has one of the wrong type, raises."""
    return kind(base_url="http://%s:%d/v1" % (d.host, d.port), api_key="none", max_retries=0,
                _strict_response_validation=True, **options)


def ask(d, content="hi", model="tiny", **options):
    return client(d).responses.create(model=model, input=content, temperature=0, **options)


# ---- HTTP -----------------------------------------------------------------------------

def test_whole(family):
    r = ask(family, instructions="Be brief.", metadata={"k": "v"})
    assert r.output_text == SCRIPT and r.status == "completed" and r.error is None
    assert (r.model, r.instructions, r.metadata) == ("tiny", "Be brief.", {"k": "v"})
    assert r.output[0].role == "assistant" and r.output[0].content[0].annotations == []
    assert r.usage.total_tokens == r.usage.input_tokens + r.usage.output_tokens
    assert r.usage.input_tokens_details.cached_tokens >= 0
    r = ask(family, max_output_tokens=3)
    assert r.status == "incomplete" and r.incomplete_details.reason == "max_output_tokens"
    assert r.output_text == "Alpha bravo charlie"


def test_stream(family):
    events = list(ask(family, stream=True))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == SCRIPT
    assert events[0].type == "response.created" and events[-1].type == "response.completed"
    assert type(events[-1]).__name__ == "ResponseCompletedEvent"
    assert events[-1].response.output_text == SCRIPT
    done = [e for e in events if e.type == "response.output_item.done"]
    assert [e.item for e in done] == events[-1].response.output


def test_stream_helper(family):
    with client(family).responses.stream(model="tiny", input="hi", temperature=0) as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert text == final.output_text == SCRIPT
    with client(family).responses.stream(model="tiny", input="hi", temperature=0,
                                         max_output_tokens=2) as stream:
        with pytest.raises(RuntimeError):  # its way to say that it was cut short
            stream.get_final_response()


def test_async(family):
    async def run():
        c = client(family, openai.AsyncOpenAI)
        whole, stream = await asyncio.gather(
            c.responses.create(model="tiny", input="hi", temperature=0),
            c.responses.create(model="tiny", input="hi", temperature=0, stream=True))
        text = ""
        async for e in stream:
            text += e.delta if e.type == "response.output_text.delta" else ""
        assert text == whole.output_text == SCRIPT
        await c.close()
    asyncio.run(run())


def test_errors(family):
    with pytest.raises(openai.BadRequestError) as e:
        ask(family, background=True)
    assert (e.value.code, e.value.param) == ("unsupported_parameter", "background")
    with pytest.raises(openai.NotFoundError) as e:
        ask(family, model="zeppelin")
    assert e.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as e:
        ask(family, previous_response_id="resp_nix")
    assert (e.value.code, e.value.param) == ("previous_response_not_found", "previous_response_id")
    with pytest.raises(openai.NotFoundError):
        client(family).responses.retrieve("resp_nix")


def test_continue_fetch_list_delete(family):
    c = client(family)
    a = ask(family, "one", model="noise", max_output_tokens=8)
    b = ask(family, "two", model="noise", max_output_tokens=8, previous_response_id=a.id)
    fork = ask(family, "zwei", model="noise", max_output_tokens=8, previous_response_id=a.id)
    assert b.previous_response_id == fork.previous_response_id == a.id
    assert b.output_text != fork.output_text
    assert c.responses.retrieve(b.id) == b
    items = list(c.responses.input_items.list(b.id, order="asc", limit=1))  # page by page
    assert [i.role for i in items] == ["user", "assistant", "user"]
    assert items[1].id == a.output[0].id and items[2].content[0].text == "two"
    assert c.responses.delete(a.id) is None
    with pytest.raises(openai.NotFoundError):
        c.responses.retrieve(a.id)
    with pytest.raises(openai.BadRequestError):
        c.responses.cancel(b.id)
    # sent back as it came, it is the same conversation
    whole = [{"role": "user", "content": "one"}, *a.output, {"role": "user", "content": "two"}]
    assert ask(family, whole, model="noise", max_output_tokens=8).output_text == b.output_text


def test_input_tokens(family):
    c = client(family)
    n = c.responses.input_tokens.count(model="tools", input="hi", tools=[WEATHER], instructions="Go.")
    r = ask(family, model="tools", tools=[WEATHER], instructions="Go.")
    assert n.input_tokens == r.usage.input_tokens
    n = c.responses.input_tokens.count(model="tools", input="more", previous_response_id=r.id)
    assert n.input_tokens == ask(family, "more", model="tools", max_output_tokens=1,
                                 previous_response_id=r.id).usage.input_tokens


def test_tools(family):
    r = ask(family, model="tools", tools=[WEATHER])
    assert [i.type for i in r.output] == ["reasoning", "message", "function_call"]
    thought, said, call = r.output
    assert (thought.content[0].text, said.content[0].text) == ("Hm.", "I'll look.")
    assert call.name == "get_weather" and json.loads(call.arguments) == CALL
    assert r.usage.output_tokens_details.reasoning_tokens > 0
    assert r.tools[0].name == "get_weather" and r.tool_choice == "auto"
    # its result goes on, by id or with all that was before it; either way it is the same prompt
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    one = ask(family, [result], model="tools", tools=[WEATHER], previous_response_id=r.id)
    all_ = ask(family, [{"role": "user", "content": "hi"}, *r.output, result], model="tools",
               tools=[WEATHER])
    assert one.usage.input_tokens == all_.usage.input_tokens
    assert all_.usage.input_tokens_details.cached_tokens == one.usage.input_tokens - 1

    def streamed():
        with client(family).responses.stream(model="tools", input="hi", tools=[WEATHER],
                                             temperature=0) as stream:
            events = list(stream)
            return ([e for e in events if e.type == "response.function_call_arguments.delta"],
                    events, stream.get_final_response())
    deltas, events, final = in_pieces(streamed)
    assert json.loads(deltas[-1].snapshot) == CALL
    assert "".join(e.delta for e in events if e.type == "response.reasoning_text.delta") == "Hm."
    assert json.loads(final.output[2].arguments) == CALL


OTHER = {"type": "function", "name": "other", "parameters": {"type": "object"}, "strict": False}


@pytest.mark.parametrize("choice", [
    "required", {"type": "function", "name": "get_weather"},
    {"type": "allowed_tools", "mode": "required",
     "tools": [{"type": "function", "name": "get_weather"}]}])
def test_forced(family, choice):
    tools = [WEATHER] if choice == "required" else [OTHER, WEATHER]
    r = ask(family, model="noise", tools=tools, tool_choice=choice, parallel_tool_calls=False,
            max_output_tokens=400)
    call = r.output[-1]
    assert call.type == "function_call" and call.name == "get_weather", r
    arguments = json.loads(call.arguments)
    assert set(arguments) == {"city", "days"} and 1 <= arguments["days"] <= 7
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    assert ask(family, [result], model="noise", tools=[WEATHER], max_output_tokens=5,
               previous_response_id=r.id).status == "incomplete"


def test_custom_tool(family):
    """Free text: the call and its result are items of their own."""
    tool = {"type": "custom", "name": "note", "description": "Keep a note.",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}}
    r = ask(family, model="noise", tools=[tool], tool_choice={"type": "custom", "name": "note"},
            parallel_tool_calls=False, max_output_tokens=60)
    call = r.output[-1]
    assert call.type == "custom_tool_call" and call.name == "note" and isinstance(call.input, str)
    if r.status == "completed":  # noise need not come to an end
        result = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "kept"}
        assert ask(family, [result], model="noise", tools=[tool], max_output_tokens=5,
                   previous_response_id=r.id).usage.input_tokens > r.usage.input_tokens


class Days(pydantic.BaseModel):
    days: int
    sunny: bool


def test_parse(family):
    r = client(family).responses.parse(model="noise", input="hi", text_format=Days, temperature=0,
                                       max_output_tokens=200)
    assert isinstance(r.output_parsed, Days)
    with client(family).responses.stream(model="noise", input="hi", text_format=Days, temperature=0,
                                         max_output_tokens=200) as stream:
        assert stream.get_final_response().output_parsed == r.output_parsed


def test_logprobs(family):
    r = ask(family, include=["message.output_text.logprobs"], top_logprobs=2)
    tokens = r.output[0].content[0].logprobs
    assert b"".join(bytes(t.bytes) for t in tokens).decode() == SCRIPT
    for t in tokens:
        assert t.logprob > -0.01 and t.top_logprobs[0].token == t.token
        assert t.top_logprobs[1].logprob < t.logprob
    events = list(ask(family, include=["message.output_text.logprobs"], stream=True))
    streamed = [t.token for e in events if e.type == "response.output_text.delta" for t in e.logprobs]
    assert streamed == [t.token for t in tokens]
    # those of a message are of its text alone
    r = ask(family, model="tools", tools=[WEATHER], include=["message.output_text.logprobs"])
    assert "".join(t.token for t in r.output[1].content[0].logprobs) == "I'll look."


# ---- the WebSocket --------------------------------------------------------------------

def answer(connection, **options):
    """Ask and read to the end; the events."""
    options.setdefault("model", "tiny")
    connection.response.create(temperature=0, **options)
    events = []
    for e in connection:
        events.append(e)
        if e.type in ("response.completed", "response.incomplete", "response.failed", "error"):
            return events
    raise AssertionError("the connection ended")


def test_socket(family):
    with client(family).responses.connect() as c:
        events = answer(c, input="hi", metadata={"k": "v"})
        assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == SCRIPT
        r = events[-1].response
        assert r.output_text == SCRIPT and r.metadata == {"k": "v"}
        again = answer(c, input="and?", previous_response_id=r.id)[-1].response
        assert again.previous_response_id == r.id
        assert again.usage.input_tokens_details.cached_tokens >= r.usage.input_tokens // 16 * 16
        assert answer(c, input="hi", max_output_tokens=2)[-1].type == "response.incomplete"
        # an error is an event, and the connection lives on
        e = answer(c, input="hi", previous_response_id="resp_nix")[-1]
        assert e.type == "error" and e.error.code == "previous_response_not_found"
        assert e.status == 400
        c.response.steer(input="x", previous_response_id=r.id)
        e = next(iter(c))
        assert e.type == "response.steer.failed" and e.error.code == "steering_not_supported"
        # a warm-up, and what continues it
        events = answer(c, input="word " * 40, generate=False, store=False)
        warm = events[-1].response
        assert warm.output == [] and events[-1].type == "response.completed"
        r = answer(c, input=[], store=False, previous_response_id=warm.id)[-1].response
        assert r.output_text == SCRIPT
        assert r.usage.input_tokens_details.cached_tokens >= 32


def test_socket_lanes(family):
    with client(family).responses.connect() as c:
        parent = answer(c, model="noise", input="go", max_output_tokens=10)[-1].response.id
        for lane, content in (("a", "left"), ("b", "right"), ("c", "left")):
            c.response.create(model="noise", input=content, max_output_tokens=10, temperature=0,
                              previous_response_id=parent, stream_id=lane)
        numbers, texts = {}, {}
        for e in c:
            numbers.setdefault(e.stream_id, []).append(e.sequence_number)
            if e.type == "response.incomplete":
                texts[e.stream_id] = e.response.output_text
                if len(texts) == 3:
                    break
        assert texts["a"] == texts["c"] != texts["b"]
        for n in numbers.values():
            assert n == list(range(len(n)))


def test_socket_async(family):
    async def run():
        c = client(family, openai.AsyncOpenAI)
        async with c.responses.connect() as one, c.responses.connect() as other:
            for connection in (one, other):
                await connection.response.create(model="tools", input="hi", tools=[WEATHER],
                                                 temperature=0)
            for connection in (one, other):
                async for e in connection:
                    if e.type == "response.completed":
                        assert json.loads(e.response.output[2].arguments) == CALL
                        break
        await c.close()
    asyncio.run(run())


def test_socket_handlers(family):
    """Events to handlers by their types, as dispatch_events gives them."""
    seen = []
    with client(family).responses.connect() as c:
        def completed(e):
            seen.append(e.response.output_text)
            c.close()
        c.on("response.completed", completed)
        c.response.create(model="tiny", input="hi", temperature=0)
        try:
            c.dispatch_events()
        except websockets.exceptions.ConnectionClosed as e:
            assert e.rcvd is None or e.rcvd.code == 1000
    assert seen == [SCRIPT]
