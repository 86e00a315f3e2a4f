"""Reasoning in chat completions: how much of it, and what becomes of that of earlier turns in the
templates of Qwen 3, GLM and gpt-oss: within a loop of tool calls the prompt goes on where the answer
ended, so that its cache is used."""
import pytest

from conftest import configuration, Starter
from tiny_model import THINKS_WORDS

CHAT = "/v1/chat/completions"
CALL = {"id": "call_1", "type": "function",
        "function": {"name": "look", "arguments": '{"where": "here"}'}}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "nothing"}
TOOLS = [{"type": "function", "function": {"name": "look", "strict": True, "parameters": {
    "type": "object", "properties": {"where": {"type": "string"}}, "required": ["where"],
    "additionalProperties": False}}}]


@pytest.fixture(scope="module")
def families(shared_folder, models):
    s = Starter(shared_folder)
    d = s(config=configuration(shared_folder, extra={"models": [
        {"name": "qwen", "path": models(kind="thinks", template="qwen3", n_context=2048)},
        {"name": "glm", "path": models.random(template="glm")},
        {"name": "oss", "path": models.random(template="gpt-oss")},
    ]}))
    yield d
    d.until_idle()
    s.finish()


def prompt(d, model, messages, opened=True, **options):
    """The text that the template makes of them."""
    r = d.http("POST", "/v1/tokenize", {"model": model, "messages": messages, "return_token_strs": True,
                                        "add_special_tokens": opened, **options})
    assert r.status == 200, r
    return "".join(r.json["token_strs"])


def assistant(reasoning, content, *calls, name="reasoning_content"):
    m = {"role": "assistant", "content": content, name: reasoning}
    return dict(m, tool_calls=list(calls)) if calls else m


def user(text):
    return {"role": "user", "content": text}


# What each model writes: its reasoning, its text, its call.
WRITES = {
    "qwen": ("<think>\nalpha bravo\n</think>\n\nCharlie delta echo", "\n<tool_call>\n"
             '{"name": "look", "arguments": {"where": "here"}}\n</tool_call>'),
    "glm": ("\n<think>alpha bravo</think>\nCharlie delta echo", "\n<tool_call>look\n"
            "<arg_key>where</arg_key>\n<arg_value>here</arg_value>\n</tool_call>"),
    "oss": ("<|channel|>analysis<|message|>alpha bravo<|end|>",
            "<|start|>assistant<|channel|>commentary to=functions.look <|constrain|>json<|message|>"
            '{"where": "here"}<|call|>'),
}


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("model", WRITES)
def test_within_a_loop_the_prompt_goes_on(families, model, name):
    first = [user("one"), dict(assistant("old", "two"), **{name: "old"}), user("three")]
    turn = assistant("alpha bravo", "" if model == "oss" else "Charlie delta echo", CALL, name=name)
    said, call = WRITES[model]
    start = prompt(families, model, first)
    assert "old" not in start and "two" in start
    second = prompt(families, model, first + [turn, RESULT])
    assert second.startswith(start + said + call), (start + said + call, second)
    # a second call of the loop: the first one's reasoning stays
    again = dict(turn, tool_calls=[dict(CALL, id="call_2")])
    third = prompt(families, model, first + [turn, RESULT, again, dict(RESULT, tool_call_id="call_2")])
    assert third.startswith(second + said + call)
    # at the next user's turn it goes: the template's rule, not ours
    later = prompt(families, model, first + [turn, RESULT, assistant("x", "Done."), user("four")])
    assert "alpha" not in later and "Done." in later


def test_within_a_loop_the_cache_is_used(families):
    def ask(messages):
        r = families.http("POST", CHAT, {"model": "qwen", "messages": messages, "temperature": 0,
                                         "tools": TOOLS})
        assert r.status == 200 and "x-ingot-ignored" not in r.headers, r
        return r.json["choices"][0]["message"], r.json["usage"]
    first = [user("word " * 40)]
    m, u = ask(first)
    assert (m["reasoning_content"], m["content"]) == ("alpha bravo", "Charlie delta echo")
    assert u["completion_tokens"] in (len(THINKS_WORDS), len(THINKS_WORDS) + 1)
    _, u2 = ask(first + [dict(m, tool_calls=[CALL]), RESULT])
    cached = u2["prompt_tokens_details"]["cached_tokens"]
    assert u["total_tokens"] - 18 <= cached <= u["total_tokens"], (cached, u)
    # without its reasoning the turn is another text: only the prompt is found, and what opens the turn
    _, u3 = ask(first + [dict(m, tool_calls=[CALL], reasoning_content="other"), RESULT])
    assert u3["prompt_tokens_details"]["cached_tokens"] <= u["prompt_tokens"] + 1 < cached + 8


def test_gpt_oss_takes_content_or_thinking(families):
    """Its template refuses both beside a call: then the content is what it shows."""
    text = prompt(families, "oss", [user("go"), assistant("thought", "said", CALL), RESULT])
    assert "analysis<|message|>said<|end|>" in text and "thought" not in text


def tokens(d, model, **options):
    r = d.http("POST", CHAT, {"model": model, "messages": [user("hi")], "max_tokens": 1, **options})
    assert r.status == 200, r
    assert "x-ingot-ignored" not in r.headers, r.headers["x-ingot-ignored"]
    return r.json["usage"]["prompt_tokens"]


def with_vars(d, model, **options):
    return tokens(d, model, chat_template_kwargs=options)


def test_effort(families):
    d = families
    plain = {m: tokens(d, m) for m in WRITES}
    for effort in ("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"):
        n = with_vars(d, "oss", reasoning_effort=effort)
        assert tokens(d, "oss", reasoning_effort=effort) == n
        assert tokens(d, "oss", reasoning={"effort": effort}) == n
        assert effort not in ("none", "low", "high", "max") or n < plain["oss"], effort
    for m in ("qwen", "glm"):
        off = with_vars(d, m, enable_thinking=False)
        assert off > plain[m]
        assert tokens(d, m, reasoning_effort="none") == off
        assert tokens(d, m, reasoning={"effort": "none"}) == off
        assert tokens(d, m, reasoning={"enabled": False}) == off
        assert tokens(d, m, reasoning_effort="minimal") == plain[m]
        assert tokens(d, m, reasoning={"enabled": True}) == plain[m]
        assert tokens(d, m, reasoning_effort=None, reasoning=None) == plain[m]
        # what is said to the template counts
        assert tokens(d, m, reasoning_effort="none",
                      chat_template_kwargs={"enable_thinking": True}) == plain[m]
    assert tokens(d, "oss", reasoning_effort="none", chat_template_kwargs={
        "reasoning_effort": "high"}) == with_vars(d, "oss", reasoning_effort="high")
    assert tokens(d, "oss", reasoning_effort="low", reasoning={"effort": "minimal"}) == (
        with_vars(d, "oss", reasoning_effort="low"))


@pytest.mark.parametrize("options, param", [
    ({"reasoning_effort": 5}, "reasoning_effort"), ({"reasoning_effort": ""}, "reasoning_effort"),
    ({"reasoning_effort": "a b"}, "reasoning_effort"), ({"reasoning_effort": "x" * 33}, "reasoning_effort"),
    ({"reasoning": "high"}, "reasoning"), ({"reasoning": {"effort": []}}, "reasoning.effort"),
    ({"reasoning": {"enabled": "no"}}, "reasoning.enabled"), ({"verbosity": 5}, "verbosity"),
])
def test_bad_values_are_named(families, options, param):
    r = families.http("POST", CHAT, {"model": "glm", "messages": [user("hi")], **options})
    assert (r.status, r.error["param"]) == (400, param), r


def test_what_has_no_effect_is_noted(families):
    options = {"verbosity": "high", "store": True,
               "service_tier": "flex", "web_search_options": {}, "reasoning": {"exclude": True}}
    r = families.http("POST", CHAT, {"model": "glm", "messages": [user("hi")], "max_tokens": 1, **options})
    assert r.status == 200
    noted = set(r.headers["x-ingot-ignored"].split(", "))
    assert noted == set(options) - {"reasoning"} | {"reasoning.exclude"}, noted
    r = families.http("POST", CHAT, {"model": "glm", "messages": [user("hi")], "max_tokens": 1,
                                     "verbosity": "medium", "store": False, "service_tier": "auto",
                                     "reasoning": {"exclude": False}})
    assert r.status == 200 and "x-ingot-ignored" not in r.headers
