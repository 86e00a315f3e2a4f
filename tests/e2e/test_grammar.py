"""Calls that are held to a grammar or a schema without being required, and answers in a format
beside tools."""
import json
import pathlib
import re
import time

import pytest

from test_sdk_openai import CALL, WEATHER

pytestmark = pytest.mark.home("release")

BYTE = 3  # the token of a byte b is BYTE + b
NOTE = 'start: "n=" NUMBER (LF LINE)~1..2\nLINE: "\\"" /[a-c]{2}/ "\\""\nNUMBER: /[1-9]/~2\n%import common.LF\n'
IS_NOTE = re.compile('n=[1-9]{2}(\n"[a-c]{2}"){1,2}')
NOW = {"name": "now", "strict": True, "parameters": {"type": "object", "properties": {},
                                                      "additionalProperties": False}}


def custom(name, definition, syntax="lark"):
    return {"type": "custom", "name": name, "description": "d",
            "format": {"type": "grammar", "syntax": syntax, "definition": definition}}


def short(days):
    """The weather of few days."""
    return {**WEATHER, "parameters": {**WEATHER["parameters"], "properties": {
        **WEATHER["parameters"]["properties"], "days": {"enum": days}}}}


def respond(d, model="tools", **options):
    r = d.http("POST", "/v1/responses", {"model": model, "input": "hi", "temperature": 0, **options})
    assert r.status == 200, r.body
    return r.json


def chat(d, first, **options):
    """noise, whose every token is this byte where the grammar lets it."""
    r = d.http("POST", "/v1/chat/completions", {
        "model": "noise", "messages": [{"role": "user", "content": "hi"}], "temperature": 0,
        "logit_bias": {str(BYTE + ord(first)): 100}, "max_tokens": 300, **options})
    assert r.status == 200, r.body
    return r.json["choices"][0]


def test_a_strict_tool_is_held(family):
    """Text and reasoning are as without; the call is not."""
    for days in [1, 2], [7]:
        r = respond(family, tools=[short(days)])
        thought, said, call = r["output"]
        assert (thought["content"][0]["text"], said["content"][0]["text"]) == ("Hm.", "I'll look.")
        assert call["name"] == "get_weather" and json.loads(call["arguments"])["days"] in days
    r = respond(family, tools=[{**short([1, 2]), "strict": False}])
    assert json.loads(r["output"][2]["arguments"]) == CALL
    # only what is strict; the others are any object
    r = respond(family, tools=[{**short([1, 2]), "strict": False}, {"type": "function", **NOW}])
    assert json.loads(r["output"][2]["arguments"]) == CALL


def test_a_strict_schema_that_cannot_be_held(family):
    bad = {**WEATHER, "parameters": {"type": "object", "properties": {"a": {"not": {}}}}}
    assert respond(family, tools=[{**bad, "strict": False}])["status"] == "completed"
    r = family.http("POST", "/v1/responses", {"model": "tools", "input": "hi", "tools": [bad]})
    assert r.status == 400 and r.error["param"] == "tools"
    assert r.error["message"] == 'tools[0].function.parameters: $.properties.a: "not" is not supported'
    r = family.http("POST", "/v1/responses", {"model": "tools", "input": "hi", "tools": [WEATHER],
                                              "ignore_eos": True})
    assert r.status == 400 and r.error["param"] == "ignore_eos"


@pytest.mark.parametrize("choice", ["auto", "required", {"type": "custom", "name": "get_weather"}])
def test_a_custom_tool_is_held_to_its_grammar(family, choice):
    """Of a model that means to call it otherwise, and of one that means nothing."""
    for model in ("tools", "noise"):
        if model == "noise" and choice == "auto":
            continue
        r = respond(family, model, tools=[custom("get_weather", NOTE)], tool_choice=choice,
                    parallel_tool_calls=False, max_output_tokens=200)
        assert r["status"] == "completed", r
        call = r["output"][-1] if choice != "auto" else r["output"][2]
        assert call["type"] == "custom_tool_call" and call["name"] == "get_weather"
        assert IS_NOTE.fullmatch(call["input"]), call["input"]


def test_a_custom_tool_is_held_to_an_expression(family):
    r = respond(family, "noise", tools=[custom("f", '"(a|b){3}\\n"', "regex")], tool_choice="required",
                parallel_tool_calls=False, max_output_tokens=200)
    assert re.fullmatch('"[ab]{3}\n"', r["output"][-1]["input"])


def test_the_prompt_is_the_same_for_any_grammar(family):
    """What holds the call is not in the prompt; the description shows the grammar once."""
    plain = {"type": "function", "name": "f", "parameters": {
        "type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"],
        "additionalProperties": False},
        "description": "d\n\nThe input is text of this Lark grammar:\n" + NOTE}
    counts = {family.http("POST", "/v1/responses/input_tokens", {
        "model": "tools", "input": "hi", "tools": [tool]}).json["input_tokens"]
        for tool in (plain, custom("f", NOTE))}
    assert len(counts) == 1


@pytest.mark.parametrize("definition, message", [
    ("start: a", "line 1, column 8: 'a' is not defined"),
    ("start: \"x\"\nb: /(/", "line 2, column 4: a group without its ), at byte 1 of the expression"),
    ("a: \"x\"", "the grammar has no rule 'start'"),
    ("start: s\ns: \"x\" s", "line 1, column 1: no text of the rule 'start' ever ends"),
    ("start: s\ns: \"x\"? s \"y\" | \"z\"", "line 2, column 1: the rule 's' may begin with itself other than as the "
     "first item of its own alternatives"),
    ("start: ((\"x\"~1000)~1000)~1000", "line 1, column 1: the grammar is too large for an automaton"),
    ("start: (\"a\" | \"b\")* \"a\" (\"a\" | \"b\")~30", "line 1, column 1: the grammar is too large for an automaton"),
    ("start: " + "(" * 500, "line 1, column 41: groups are nested more than 32 deep"),
])
def test_a_grammar_that_is_refused(family, definition, message):
    """By its place among the client's own tools, and soon."""
    for choice in ("auto", "required"):
        began = time.monotonic()
        r = family.http("POST", "/v1/responses", {
            "model": "noise", "input": "hi", "tool_choice": choice,
            "tools": [{"type": "web_search"}, custom("f", definition)]})
        assert r.status == 400 and time.monotonic() - began < 20
        assert r.error["message"] == "tools[1].format.definition: " + message
        assert r.error["param"] == ("tools" if choice == "auto" else "tool_choice")


def test_a_format_beside_tools(family):
    """The answer is in the format, or a call."""
    tools = [{"type": "function", "function": NOW}]
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"],
              "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    c = chat(family, "{", tools=tools, response_format=form)
    assert c["finish_reason"] == "stop" and set(json.loads(c["message"]["content"])) == {"ok"}
    c = chat(family, "<", tools=tools, response_format=form, parallel_tool_calls=False)
    assert c["finish_reason"] == "tool_calls" and c["message"]["content"] is None
    call, = c["message"]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("now", {})
    # without a choice of tools there is only the format
    c = chat(family, "<", tools=tools, tool_choice="none", response_format=form)
    assert set(json.loads(c["message"]["content"])) == {"ok"}
    r = family.http("POST", "/v1/chat/completions", {
        "model": "noise", "messages": [{"role": "user", "content": "hi"}], "tools": tools,
        "response_format": {"type": "regex", "regex": "("}})
    assert r.status == 400 and r.error["param"] == "response_format"


def test_a_format_beside_tools_after_reasoning(family):
    """Codex sends its output's schema in every request: reasoning stays free, and so is the choice."""
    form = {"type": "json_schema", "name": "codex_output_schema", "strict": True, "schema": {
        "type": "object", "properties": {"n": {"enum": [1]}}, "required": ["n"], "additionalProperties": False}}
    r = respond(family, tools=[WEATHER], text={"format": form}, parallel_tool_calls=False, max_output_tokens=300)
    assert r["output"][0]["type"] == "reasoning" and r["output"][0]["content"][0]["text"] == "Hm."
    last = r["output"][1]
    if last["type"] == "function_call":
        assert set(json.loads(last["arguments"])) == {"city", "days"}
    else:
        assert json.loads(last["content"][0]["text"]) == {"n": 1}
    assert len(r["output"]) == 2


def test_a_client_s_own_grammar(family):
    """The keyword that holds custom tools is one for any string of a schema."""
    schema = {"type": "object", "properties": {"n": {"type": "string", "x-ingot-grammar": {
        "syntax": "lark", "definition": 'start: "\\"" /[a-c]{3}/'}}}, "required": ["n"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    c = chat(family, "b", response_format=form)
    assert json.loads(c["message"]["content"]) == {"n": '"bbb'}


def test_a_strict_tool_in_messages(family):
    schema = short([1, 2])["parameters"]
    for strict in True, False:
        r = family.http("POST", "/v1/messages", {
            "model": "tools", "max_tokens": 200, "messages": [{"role": "user", "content": "hi"}],
            "tools": [{"name": "get_weather", "input_schema": schema, "strict": strict}]})
        assert r.status == 200 and r.json["stop_reason"] == "tool_use", r.body
        assert (r.json["content"][-1]["input"]["days"] in (1, 2)) == strict


def test_the_grammar_of_patches(family):
    """That of Codex, for a tool that the model means to call otherwise.  Nothing leads the model out
    of a line again, so the call is cut short."""
    corpus = (pathlib.Path(__file__).parent.parent / "golden" / "grammar" / "lark_corpus.py").read_text("utf-8")
    definition = corpus.split("APPLY_PATCH = r'''")[1].split("'''")[0]
    r = respond(family, tools=[custom("get_weather", definition), WEATHER | {"name": "other"}], max_output_tokens=96)
    call = r["output"][2]
    assert call["type"] == "custom_tool_call" and r["status"] == "incomplete"
    assert '"input": "*** Begin Patch\\n*** ' in call["input"]  # of a call cut short, what was written
