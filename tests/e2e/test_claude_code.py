"""Claude Code's requests, field by field as it sends them, and what it reads of the replies."""
import http.client
import json
import signal
import time

import pytest

from conftest import Starter, configuration
from daemon import DEADLINE_S, PATIENCE, merged, until
from test_ledger import rows
from tiny_model import SCRIPT, SCRIPT_WORDS

HEADERS = {
    "anthropic-version": "2023-06-01", "x-api-key": "none", "authorization": "Bearer none",
    "anthropic-beta": ",".join("beta-%d-2025-10-15" % i for i in range(9)),
    "x-claude-code-session-id": "5f3c", "x-claude-code-agent-id": "a1", "x-app": "cli",
}
BETA = "/v1/messages?beta=true"
EPHEMERAL = {"type": "ephemeral", "ttl": "1h"}
NAMES = ["Agent", "Bash", "BashOutput", "Edit", "EnterPlanMode", "ExitPlanMode", "Glob", "Grep",
         "KillShell", "ListMcpResources", "MultiEdit", "NotebookEdit", "Read", "Skill",
         "SlashCommand", "TaskCreate", "TaskGet", "TaskUpdate", "TodoWrite", "WebFetch",
         "WebSearch", "Write", "mcp__calc__add", "get_weather"]


def tool(name):
    return {"name": name, "description": "Does what %s does." % name, "input_schema": {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
        "properties": {"path": {"type": "string", "description": "A path."},
                       "n": {"type": "number", "exclusiveMinimum": 0}},
        "required": ["path"], "additionalProperties": False}}


def system(number):
    """Its own block is new in each request."""
    return [{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.%d; "
             "cc_entrypoint=cli; cch=%05x;" % (number, number)},
            {"type": "text", "text": "You are Claude Code.", "cache_control": EPHEMERAL},
            {"type": "text", "text": "Be brief. " * 20, "cache_control": EPHEMERAL}]


def request(number=1, **options):
    """The main loop's."""
    tools = [tool(name) for name in NAMES]
    tools[-2].update(defer_loading=True, strict=False)
    tools[-1]["cache_control"] = EPHEMERAL
    body = {
        "model": "claude-opus-4-6", "max_tokens": 32000, "stream": True,
        "system": system(number), "tools": tools,
        "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "<system-reminder>\nToday is Monday.\n</system-reminder>"},
                {"type": "text", "text": "What is the weather?", "cache_control": EPHEMERAL}]},
            {"role": "system", "content": [{"type": "text", "text": "The user is on Linux."}]}],
        "metadata": {"user_id": json.dumps({"device_id": "d", "session_id": "5f3c"})},
        "thinking": {"type": "adaptive", "display": "omitted"},
        "output_config": {"effort": "high"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    }
    body.update(options)
    return body


@pytest.fixture(scope="module")
def agent(shared_folder, models):
    """`coder`, which thinks, speaks and calls a tool; `strict`, whose template takes a system
    message at the start only and wants turns in turn."""
    s = Starter(shared_folder)
    d = s(config=configuration(shared_folder, extra={
        "server": {"model_id_prefix": "claude-"},
        "models": [{"name": "coder", "path": models(kind="tools", n_context=32768)},
                   {"name": "strict", "path": models(kind="script", template="strict",
                                                     n_context=1024)}],
        "aliases": {"claude-haiku-*": "strict", "claude-*": "coder"}}))
    yield d
    d.until_idle()
    s.finish()


def post(d, body, path=BETA, **headers):
    return d.http("POST", path, body, {**HEADERS, **headers})


def whole(d, **options):
    """A short request to strict: its reply, which must be a 200."""
    body = {"model": "strict", "max_tokens": 400, "temperature": 0,
            "messages": [{"role": "user", "content": "hi"}]}
    body.update(options)
    r = post(d, body)
    assert r.status == 200, r
    return r.json


def events(r):
    assert r.status == 200, r
    return [json.loads(e) for e in r.events()]


def message(got):
    """As the SDK puts a message together; every block is complete."""
    assert got[0]["type"] == "message_start" and got[-1]["type"] == "message_stop"
    assert got[-2]["type"] == "message_delta"
    m = dict(got[0]["message"])
    m.update(got[-2]["delta"], content=[])
    open_block = None
    for e in got[1:-2]:
        if e["type"] == "content_block_start":
            assert open_block is None and e["index"] == len(m["content"])
            open_block = e["content_block"]
            partial = ""
        elif e["type"] == "content_block_delta":
            d = e["delta"]
            if d["type"] == "input_json_delta":
                partial += d["partial_json"]
            else:
                key = d["type"].split("_")[0]
                open_block[key] += d[key]
        elif e["type"] == "content_block_stop":
            if open_block["type"] == "tool_use":
                open_block["input"] = json.loads(partial)
            m["content"].append(open_block)
            open_block = None
        else:
            assert e["type"] == "ping"
    assert open_block is None
    return m


def row_of(d, id):
    """The ledger's row of a request."""
    return until(lambda: [row for row in rows(d) if row["id"] == id], "a row of " + id)[0]


def test_main_loop(agent):
    r = post(agent, request())
    assert r.headers["x-ingot-ignored"] is None
    got = events(r)
    m = message(got)
    assert m["model"] == "claude-opus-4-6"  # the request's
    assert [b["type"] for b in m["content"]] == ["thinking", "text", "tool_use"]
    thinking, text, call = m["content"]
    assert thinking["thinking"] == "" and thinking["signature"]
    assert text["text"] == "I'll look." and call["name"] == "get_weather"
    assert m["stop_reason"] == "tool_use"
    # the numbers of the start are those of the end, and of count_tokens
    used, last = got[0]["message"]["usage"], got[-2]["usage"]
    for key in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
        assert used[key] == last[key]
    n = used["input_tokens"] + used["cache_read_input_tokens"]
    body = {k: v for k, v in request().items() if k not in ("max_tokens", "stream", "metadata")}
    counted = post(agent, body, "/v1/messages/count_tokens?beta=true")
    assert counted.status == 200 and counted.json["input_tokens"] == n > 2000

    # the second turn: everything comes back, with the results; its own block is another one
    history = request()["messages"] + [
        {"role": "assistant", "content": m["content"]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": call["id"], "is_error": True, "content": [
                {"type": "text", "text": "no "}, {"type": "text", "text": "rain"}],
             "cache_control": EPHEMERAL},
            {"type": "text", "text": "<system-reminder>be quick</system-reminder>"}]},
        {"role": "system", "content": "Token usage: 1"}]
    again = events(post(agent, request(2, messages=history)))
    assert message(again)["stop_reason"] == "tool_use"
    used = again[0]["message"]["usage"]
    # the first prompt was in the cache, but for a last block
    assert n - 32 <= used["cache_read_input_tokens"] <= n + last["output_tokens"]
    assert 0 < used["input_tokens"] < 500
    # the model has its thinking back, which nobody saw
    body["messages"] = history
    with_thinking = post(agent, body, "/v1/messages/count_tokens").json["input_tokens"]
    assert with_thinking == used["input_tokens"] + used["cache_read_input_tokens"]
    history[2]["content"] = [{"type": "thinking", "thinking": "Hm.", "signature": "x"}, text, call]
    assert post(agent, body, "/v1/messages/count_tokens").json["input_tokens"] == with_thinking
    history[2]["content"] = [text, call]
    assert post(agent, body, "/v1/messages/count_tokens").json["input_tokens"] < with_thinking
    row = row_of(agent, again[0]["message"]["id"])
    assert (row["model"], row["cached_tokens"]) == ("coder", used["cache_read_input_tokens"])


def test_thinking_shown(agent):
    for display in ("summarized", "updates", None):
        thinking = {"type": "enabled", "budget_tokens": 1024}
        if display:
            thinking["display"] = display
        got = message(events(post(agent, request(thinking=thinking))))["content"][0]
        assert got["thinking"] == "Hm." and got["signature"]
        m = post(agent, request(thinking=thinking, stream=False)).json["content"][0]
        assert m["thinking"] == "Hm." and m["signature"]
    for kind in ("disabled", "between_tools"):
        assert post(agent, request(thinking={"type": kind})).status == 200


def test_side_requests(agent):
    """Titles and agents ask for other models, and for a format."""
    title = {"type": "json_schema", "schema": {
        "type": "object", "properties": {"title": {"type": "string", "maxLength": 5}},
        "required": ["title"], "additionalProperties": False}}
    r = post(agent, {"model": "claude-haiku-4-5-20251001", "max_tokens": 400,
                     "messages": [{"role": "user", "content": "hi"}],
                     "output_config": {"format": title}})
    assert r.status == 200 and r.json["model"] == "claude-haiku-4-5-20251001"
    assert len(json.loads(r.json["content"][0]["text"])["title"]) <= 5
    # a search that Anthropic's servers would make can't be forced; else it is left out, by name
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
    r = post(agent, request(tools=[search], tool_choice={"type": "tool", "name": "web_search"}))
    assert r.status == 400 and "tool" in r.error["message"]
    r = post(agent, request(tools=[search, tool("get_weather")]))
    assert r.status == 200
    assert r.headers["x-ingot-ignored"] == "tools[0].type=web_search_20250305"
    r = post(agent, request(diagnostics={"previous_message_id": "msg_1"}, speed="fast",
                            output_config={"task_budget": {"type": "tokens", "total": 1000}}))
    assert sorted(r.headers["x-ingot-ignored"].split(", ")) == [
        "diagnostics", "output_config.task_budget", "speed"]
    assert post(agent, request(diagnostics=None, speed="standard")).headers["x-ingot-ignored"] is None


def test_system_turns(agent):
    """Where the template has no place for them they are text of a turn of the user."""
    def count(*messages, **options):
        r = post(agent, {"model": "strict", "messages": [
            {"role": role, "content": text} for role, text in messages], **options},
            "/v1/messages/count_tokens")
        assert r.status == 200, r
        return r.json["input_tokens"]
    assert (count(("user", "a"), ("system", "b"), ("user", "c"), ("assistant", "d"), ("system", "e"),
                  ("user", "f"), system="s") ==
            count(("user", "a\n\nb\n\nc"), ("assistant", "d"), ("user", "e\n\nf"), system="s"))
    assert count(("system", "a"), ("user", "b"), system="s") == count(("user", "b"), system="s\n\na")
    assert count(("user", "a"), system=system(1)) == count(("user", "a"), system=system(22222)[1:])
    # chat and Responses do the same
    turns = [{"role": "user", "content": "a"}, {"role": "developer", "content": "b"},
             {"role": "user", "content": "c"}, {"role": "user", "content": "d"}]
    one = [{"role": "user", "content": "a\n\nb\n\nc\n\nd"}]
    used = [agent.http("POST", "/v1/chat/completions",
                       {"model": "strict", "messages": m, "max_tokens": 1}).json["usage"]["prompt_tokens"]
            for m in (turns, one)]
    used += [agent.http("POST", "/v1/responses", {"model": "strict", "input": m,
                                                  "max_output_tokens": 1}).json["usage"]["input_tokens"]
             for m in (turns, one)]
    assert len(set(used)) == 1
    # and a template with a place for them has them there: they count as turns of their own
    there = [agent.http("POST", "/v1/chat/completions", {"model": "coder", "messages": m,
                                                         "max_tokens": 1}).json["usage"]["prompt_tokens"]
             for m in (turns, one)]
    assert there[0] > there[1]


def test_prefill(agent):
    """The model goes on where the assistant's last message ends."""
    for n in (1, 3):
        begin = "".join(SCRIPT_WORDS[:n])
        m = whole(agent, messages=[{"role": "user", "content": "hi"},
                                   {"role": "assistant", "content": begin + " \n"}])
        assert m["content"][0]["text"] == SCRIPT[len(begin):] and m["stop_reason"] == "end_turn"
    # nothing to go on from: an answer from its start
    m = whole(agent, messages=[{"role": "user", "content": "hi"}, {"role": "assistant", "content": ""}])
    assert m["content"][0]["text"] == SCRIPT


def test_models(agent):
    r = agent.http("GET", "/v1/models?limit=1000", headers=HEADERS)
    ids = [m["id"] for m in r.json["data"]]
    assert ids == ["coder", "strict", "claude-coder", "claude-strict"]
    assert (r.json["first_id"], r.json["last_id"]) == ("coder", "claude-strict")
    assert [m.get("alias_of") for m in r.json["data"]] == [None, None, "coder", "strict"]
    assert [m["display_name"] for m in r.json["data"]] == ["coder", "strict"] * 2
    for name, real in (("claude-strict", "strict"), ("claude-haiku-9", "strict"), ("claude-x", "coder")):
        one = agent.http("GET", "/v1/models/" + name).json
        assert (one["id"], one["alias_of"]) == (name, real)
    assert whole(agent, model="claude-strict")["content"][0]["text"] == SCRIPT
    assert agent.http("GET", "/v1/models/gpt-9").status == 404
    # every protocol: the reply repeats the name
    r = agent.chat(model="claude-haiku-9")
    assert r.json["model"] == "claude-haiku-9" and r.json["choices"][0]["message"]["content"] == SCRIPT
    r = agent.http("POST", "/v1/responses", {"model": "claude-haiku-9", "input": "hi"})
    assert r.json["model"] == "claude-haiku-9"
    assert row_of(agent, r.json["id"])["model"] == "strict"


def test_models_while_loading(start, models):
    """The list does not wait for a load: its client gives it three seconds."""
    d = start(extra={"server": {"model_id_prefix": "claude-"}, "models": [
        {"name": "tiny", "path": models.script()},
        {"name": "large", "load": "first_use", "path": models(
            kind="loop", n_blocks=4, width=1024, n_heads=32, n_kv_heads=1, n_ff=4096,
            n_context=1024)}]})
    assert d.http("POST", "/v1/ingot/models/load", {"model": "claude-large"}).status == 202
    took, state = [], "loading"
    while state == "loading":
        began = time.monotonic()
        r = d.http("GET", "/v1/models?limit=1000", headers=HEADERS)
        seconds = time.monotonic() - began
        state = [m["state"] for m in r.json["data"] if m["id"] == "claude-large"][0]
        if state == "loading":
            took.append(seconds)
    assert state == "ready" and took
    # a busy machine may hold up some of them; a lock would hold up all
    assert min(took) < 0.01 * PATIENCE, took


def test_root(agent):
    for method in ("GET", "HEAD"):
        r = agent.http(method, "/", headers=HEADERS)
        assert r.status == 200 and r.headers["content-type"].startswith("text/plain")
        assert r.body == (b"Ollama is running" if method == "GET" else b"")


def test_reload(start, models):
    d = start(extra={"models": [{"name": "a", "path": models.script()}], "aliases": {"b*": "a"}})
    assert whole(d, model="bee")["model"] == "bee"
    assert post(d, request(model="claude-a")).status == 404
    d.write_config(merged(d.config, {"server": {"model_id_prefix": "claude-"},
                                     "aliases": {"b*": "a", "c": "a"}}))
    d.process.send_signal(signal.SIGHUP)
    until(lambda: "aliases: {b*: a} -> {b*: a, c: a}" in d.log, "the change is logged")
    until(lambda: len(d.http("GET", "/v1/models").json["data"]) == 2, "a second id")
    assert whole(d, model="c")["content"][0]["text"] == SCRIPT
    assert whole(d, model="claude-a")["content"][0]["text"] == SCRIPT
    # an alias of nothing: the old configuration stays
    d.write_config(merged(d.config, {"aliases": {"c": "zeppelin"}}))
    d.process.send_signal(signal.SIGHUP)
    until(lambda: "aliases.c: there is no model \"zeppelin\"; models has a" in d.log, "an error")
    assert whole(d, model="c")["content"][0]["text"] == SCRIPT


def test_length(agent):
    """The words by which it compacts the conversation or reduces max_tokens: strict has 1024
    tokens, of which 64 are kept for an output."""
    def ask(n, max_tokens):
        return post(agent, {"model": "strict", "max_tokens": max_tokens, "messages": [
            {"role": "user", "content": "a" * n}]})
    empty = post(agent, {"model": "strict", "messages": [{"role": "user", "content": "b"}]},
                 "/v1/messages/count_tokens").json["input_tokens"] - 1
    # 32000 is more than the context has: the answer is as long as it can be
    n = next(n for n in range(700, 3000) if len_of(agent, n) > 950)
    tokens = len_of(agent, n)
    assert empty < tokens <= 960 and ask(n, 32000).status == 200
    while len_of(agent, n) <= 960:
        n += 1
    tokens = len_of(agent, n)
    r = ask(n, 32000)
    assert r.status == 400 and r.error["type"] == "invalid_request_error"
    assert r.error["message"].startswith(
        "input length and `max_tokens` exceed context limit: %d + 32000 > 1024, decrease input "
        "length or `max_tokens` and try again" % tokens)
    assert "prompt is too long: %d tokens > 960 maximum" % tokens in r.error["message"]
    assert ask(n, 1024 - tokens).status == 200
    while len_of(agent, n) < 1024:
        n += 1
    r = ask(n, 1)
    assert r.status == 400 and r.error["type"] == "invalid_request_error"
    assert r.error["message"] == "prompt is too long: %d tokens > 1023 maximum" % len_of(agent, n)
    r = ask(900000, 1)
    assert r.status == 400 and "prompt is too long: 4096 tokens > 1023 maximum" in r.error["message"]


def len_of(d, n):
    return post(d, {"model": "strict", "messages": [{"role": "user", "content": "a" * n}]},
                "/v1/messages/count_tokens").json["input_tokens"]


def types_of(d, body):
    """The types of a stream's events, as they come."""
    c = http.client.HTTPConnection(d.host, d.port, timeout=DEADLINE_S)
    c.request("POST", BETA, json.dumps(body), {"Content-Type": "application/json", **HEADERS})
    r = c.getresponse()
    assert r.status == 200
    for line in r:
        if line.startswith(b"event: "):
            yield line[7:].strip().decode()
    c.close()


def test_first_event(start, models):
    """While it waits for its turn a stream pings; the first other event has the usage."""
    d = start(extra={"server": {"keepalive_interval": "100ms"}, "scheduler": {"max_seqs": 1},
                     "models": [{"name": "slow", "path": models.slow()}]})
    first = d.ws()
    first.create("go on", model="slow", max_output_tokens=10000)
    first.until_type("response.output_text.delta")
    began = time.monotonic()
    reader = types_of(d, {"model": "slow", "max_tokens": 3, "stream": True,
                          "messages": [{"role": "user", "content": "hi"}]})
    seen = [next(reader) for _ in range(2)]
    assert seen == ["ping", "ping"] and time.monotonic() - began < 10
    first.close()
    rest = list(reader)
    assert [e for e in rest if e != "ping"][0] == "message_start" and rest[-1] == "message_stop"


WRONG = [
    ("context_management", 5), ("context_management", []), ("context_management.edits", "all"),
    ("context_management.edits[0]", 1), ("context_management.edits[0].type", {}),
    ("output_config", "high"), ("output_config.effort", 3), ("output_config.format", "json"),
    ("output_config.task_budget", 10000), ("thinking", True), ("thinking.type", None),
    ("thinking.type", ["adaptive"]), ("thinking.display", 1), ("thinking.budget_tokens", "1k"),
    ("thinking.budget_tokens", -1), ("metadata", "u"), ("metadata.user_id", {}), ("diagnostics", "x"),
    ("speed", 2), ("mcp_servers", {}), ("cache_control", "ephemeral"), ("service_tier", 1),
    ("system", 5), ("system[0]", "s"), ("system[0].type", 5), ("system[0].text", []),
    ("system[0].cache_control", 1), ("tools", {}), ("tools[0]", "Bash"), ("tools[0].name", 5),
    ("tools[0].description", []), ("tools[0].input_schema", "object"), ("tools[0].strict", "yes"),
    ("tools[0].defer_loading", 1), ("tools[0].cache_control", True), ("tool_choice", "any"),
    ("tool_choice.type", 5), ("messages", {}), ("messages[0]", "hi"), ("messages[0].role", 5),
    ("messages[0].role", "developer"), ("messages[0].content", 5), ("messages[0].content[0]", "hi"),
    ("messages[0].content[0].type", 5), ("messages[0].content[0].text", 5),
    ("messages[0].content[0].cache_control", "x"), ("messages[1].content", {}),
    ("messages[1].content[0].text", 7), ("max_tokens", "32000"), ("max_tokens", 0),
    ("max_tokens", 1 << 40), ("stream", "yes"),
]


def put(body, path, value):
    """Set the member at path; what is on the way and is not there is made."""
    at = body
    parts = path.replace("[", ".[").split(".")
    for part, after in zip(parts, parts[1:] + [None]):
        key = int(part[1:-1]) if part[0] == "[" else part
        if after is None:
            at[key] = value
            return body
        fresh = [{}] if after[0] == "[" else {}
        if isinstance(at, dict):
            at = at.setdefault(key, fresh)
        else:
            at = at[key]


@pytest.mark.parametrize("path,value", WRONG, ids=["%s=%s" % (p, json.dumps(v)[:12]) for p, v in WRONG])
def test_wrong_types(agent, path, value):
    r = post(agent, put(request(max_tokens=1), path, value))
    assert r.status == 400, r
    assert r.json["type"] == "error" and r.error["type"] == "invalid_request_error"
    assert "'%s'" % path in r.error["message"], r.error["message"]


NEW = {"context_management": {"edits": []}, "output_config": {}, "thinking": {"type": "disabled"},
       "diagnostics": {}, "speed": "standard", "mcp_servers": [], "cache_control": EPHEMERAL}


@pytest.mark.parametrize("name", NEW)
def test_absent_doubled_huge(agent, name):
    body = request(max_tokens=1)
    for value in (None, NEW[name]):
        assert post(agent, {**body, name: value}).status == 200
    body.pop(name, None)
    assert post(agent, body).status == 200
    text = json.dumps(body)[:-1]
    double = text + ',"%s":%s' % (name, json.dumps(NEW[name])) * 2 + "}"
    r = post(agent, double.encode(), **{"content-type": "application/json"})
    assert r.status == 400 and "duplicate key" in r.error["message"]
    # large, deep, with names that are not known: an answer or a 400, and the daemon lives
    for value in ('"%s"' % ("x" * (1 << 20)), "[" * 60 + "]" * 60, '{"a":' * 50 + "1" + "}" * 50,
                  "{%s}" % ",".join('"k%d":%d' % (i, i) for i in range(50000)), "1e999", "-0"):
        r = post(agent, (text + ',"%s":%s}' % (name, value)).encode(),
                 **{"content-type": "application/json"})
        assert r.status in (200, 400), r
    assert len(post(agent, {**body, "k" * 100000: 1}).headers["x-ingot-ignored"]) < 500


def test_many_blocks(agent):
    """A turn of many blocks is put together in linear time."""
    n = 30000
    began = time.monotonic()
    for role, kind, key in (("user", "text", "text"), ("assistant", "thinking", "thinking")):
        blocks = [{"type": kind, key: "x" * 300} for _ in range(n)]
        r = post(agent, request(messages=[{"role": "user", "content": "a"}, {"role": role, "content": blocks},
                                          {"role": "user", "content": "b"}]))
        assert r.status == 400 and "prompt is too long" in r.error["message"], r
    turns = [{"role": "user" if i % 2 else "system", "content": "x" * 300} for i in range(n)]
    r = post(agent, {"model": "strict", "max_tokens": 1, "messages": turns})
    assert r.status == 400 and "prompt is too long" in r.error["message"]
    assert time.monotonic() - began < 60
