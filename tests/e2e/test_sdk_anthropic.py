"""The anthropic package, as it is, against messages."""
import anthropic
import pytest

from daemon import in_pieces
from tiny_model import SCRIPT

pytestmark = pytest.mark.home("release")

WEATHER = {"name": "get_weather", "description": "The weather of a city.", "input_schema": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 12},
                                     "days": {"type": "integer", "minimum": 1, "maximum": 7}},
    "required": ["city", "days"], "additionalProperties": False}}
CALL = {"city": "Paris\u00e9", "days": 3}
HI = [{"role": "user", "content": "hi"}]


def client(d):
    return anthropic.Anthropic(base_url="http://%s:%d" % (d.host, d.port), api_key="none",
                               max_retries=0)


def ask(d, model, **options):
    options.setdefault("messages", HI)
    options.setdefault("max_tokens", 400)
    return client(d).messages.create(model=model, extra_body={"temperature": 0}, **options)


def test_whole(family):
    m = ask(family, "tiny", system="be brief")
    assert [b.type for b in m.content] == ["text"] and m.content[0].text == SCRIPT
    assert m.stop_reason == "end_turn" and m.stop_sequence is None
    assert m.usage.input_tokens > 5 and m.usage.output_tokens > 10
    m = ask(family, "tiny", max_tokens=3)
    assert m.stop_reason == "max_tokens" and m.usage.output_tokens == 3
    m = ask(family, "tiny", stop_sequences=["never", "charlie del"])
    assert (m.content[0].text, m.stop_reason, m.stop_sequence) == (
        "Alpha bravo ", "stop_sequence", "charlie del")


def test_stream(family):
    with client(family).messages.stream(model="tiny", max_tokens=400, messages=HI,
                                        extra_body={"temperature": 0}) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == final.content[0].text == SCRIPT and final.stop_reason == "end_turn"
    assert final.usage.output_tokens > 10
    # what was read before is found again, and counted apart
    long = [{"role": "user", "content": "the user and " * 20}]
    first, again = ask(family, "tiny", messages=long).usage, ask(family, "tiny", messages=long).usage
    assert again.cache_read_input_tokens > first.cache_read_input_tokens + 32
    assert (first.input_tokens + first.cache_read_input_tokens ==
            again.input_tokens + again.cache_read_input_tokens)


def test_tools(family):
    m = ask(family, "tools", tools=[WEATHER])
    assert [b.type for b in m.content] == ["thinking", "text", "tool_use"]
    assert (m.content[0].thinking, m.content[1].text) == ("Hm.", "I'll look.")
    assert m.content[2].name == "get_weather" and m.content[2].input == CALL
    assert m.stop_reason == "tool_use"

    def streamed():
        with client(family).messages.stream(model="tools", max_tokens=400, messages=HI,
                                            tools=[WEATHER],
                                            extra_body={"temperature": 0}) as stream:
            return ([e.partial_json for e in stream if e.type == "input_json"],
                    stream.get_final_message())
    partial, final = in_pieces(streamed)
    assert final.content[2].input == CALL
    # all of it goes back, with the result
    back = HI + [{"role": "assistant", "content": m.model_dump(exclude_none=True)["content"]},
                 {"role": "user", "content": [{"type": "tool_result",
                                               "tool_use_id": m.content[2].id,
                                               "content": "rain", "is_error": False}]}]
    assert ask(family, "tools", messages=back, tools=[WEATHER]).usage.output_tokens > 3


def test_forced(family):
    m = client(family).messages.create(
        model="noise", max_tokens=400, messages=HI, tools=[WEATHER],
        tool_choice={"type": "any", "disable_parallel_tool_use": True})
    assert [b.type for b in m.content] == ["tool_use"]
    assert set(m.content[0].input) == {"city", "days"}


def test_count(family):
    n = client(family).messages.count_tokens(model="noise", messages=HI, tools=[WEATHER],
                                            system="s").input_tokens
    m = client(family).messages.create(model="noise", max_tokens=1, messages=HI, tools=[WEATHER],
                                      system="s")
    assert n == m.usage.input_tokens + m.usage.cache_read_input_tokens


def test_errors(family):
    with pytest.raises(anthropic.NotFoundError) as e:
        client(family).messages.create(model="other", max_tokens=1, messages=HI)
    assert e.value.body["error"]["type"] == "not_found_error"
    with pytest.raises(anthropic.BadRequestError) as e:
        ask(family, "tiny", messages=[{"role": "wizard", "content": "hi"}])
    assert "messages[0].role" in e.value.body["error"]["message"]
    with pytest.raises(anthropic.BadRequestError) as e:
        ask(family, "tiny", messages=[{"role": "user", "content": "word " * 3000}])
    assert "prompt is too long: " in e.value.body["error"]["message"]


def test_left_out(family):
    image = {"type": "image", "source": {"type": "url", "url": "http://x/"}}
    r = client(family).messages.with_raw_response.create(
        model="tiny", max_tokens=400, extra_body={"temperature": 0},
        messages=[{"role": "user", "content": [{"type": "text", "text": "hi"}, image]}])
    assert r.headers["x-ingot-ignored"] == "messages[0].content[1].type=image"
    assert r.parse().content[0].text == SCRIPT


def test_prefill(family):
    with client(family).messages.stream(
            model="tiny", max_tokens=400, extra_body={"temperature": 0},
            messages=HI + [{"role": "assistant", "content": "Alpha bravo"}]) as stream:
        assert stream.get_final_message().content[0].text == SCRIPT[len("Alpha bravo"):]


def test_thinking(family):
    """With and without its text, whole and streamed, and back: the same prompt."""
    used = set()
    for display in ("summarized", "omitted"):
        thinking = {"type": "adaptive", "display": display}
        options = dict(model="tools", max_tokens=400, messages=HI, tools=[WEATHER],
                       extra_body={"temperature": 0, "thinking": thinking,
                                   "output_config": {"effort": "high"}})
        with client(family).messages.stream(**options) as stream:
            streamed = stream.get_final_message()
        for m in (streamed, client(family).messages.create(**options)):
            block = m.content[0]
            assert block.type == "thinking" and block.signature
            assert block.thinking == ("Hm." if display == "summarized" else "")
            back = HI + [{"role": "assistant", "content": m.model_dump(exclude_none=True)["content"]},
                         {"role": "user", "content": [{"type": "tool_result", "content": "rain",
                                                       "tool_use_id": m.content[-1].id}]},
                         {"role": "system", "content": "be quick"}]
            used.add(client(family).messages.count_tokens(model="tools", messages=back,
                                                          tools=[WEATHER]).input_tokens)
    assert len(used) == 1


def test_models(family):
    assert [m.id for m in client(family).models.list()] == ["tiny", "tools", "noise"]
    assert client(family).models.retrieve("tiny").display_name == "tiny"


def test_pages_of_models(family):
    models = client(family).models
    page = models.list(limit=2)
    assert [m.id for m in page.data] == ["tiny", "tools"]
    assert (page.has_more, page.first_id, page.last_id) == (True, "tiny", "tools")
    page = page.get_next_page()
    assert ([m.id for m in page.data], page.has_more) == (["noise"], False)
    assert [m.id for m in models.list(limit=1)] == ["tiny", "tools", "noise"]
    assert [m.id for m in models.list(limit=1000)] == ["tiny", "tools", "noise"]
    assert [m.id for m in models.list(limit=1, after_id="tiny")] == ["tools", "noise"]
    assert [m.id for m in models.list(limit=1, before_id="noise")] == ["tools", "tiny"]
    for options in {"limit": 0}, {"limit": 1001}, {"after_id": "other"}, {"before_id": "other"}:
        with pytest.raises(anthropic.BadRequestError) as e:
            models.list(**options)
        name = next(iter(options))
        assert e.value.body["error"]["param"] == name and name in e.value.body["error"]["message"]
