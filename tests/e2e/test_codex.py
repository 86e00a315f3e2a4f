"""Codex on the socket, as its client was seen to speak: the handshake, the warm-up, turns that
send only what is new, tools and their results, what it reads of the answer."""
import json

import pytest

from tiny_model import SCRIPT

HEADERS = {
    "OpenAI-Beta": "responses_websockets=2026-02-06", "Authorization": "Bearer sk-none",
    "originator": "codex_cli_rs", "session-id": "0199-session", "thread-id": "0199-thread",
    "x-client-request-id": "0199-thread", "version": "0.99.0",
    "User-Agent": "codex_cli_rs/0.99.0 (Linux; x86_64)", "x-codex-window-id": "0199-thread:0",
    "x-codex-turn-metadata": '{"turn_id":"1"}', "x-codex-beta-features": "",
}
SHELL = {"type": "function", "name": "get_weather", "description": "Runs it.", "strict": False,
         "parameters": {"type": "object", "properties": {"city": {"type": "string"},
                                                         "days": {"type": "integer"}},
                        "required": ["city"], "additionalProperties": False}}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Edit files.",
         "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}}
SEARCH = {"type": "web_search", "external_web_access": False}


def message(role, text):
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


class Codex:
    """A client that builds its turns as Codex does."""

    def __init__(self, d, model):
        # It offers compression, and is content without.
        self.c = d.ws(additional_headers=HEADERS, compression="deflate")
        self.model, self.base, self.sent, self.previous = model, None, [], None

    def begin(self, items, tools, **more):
        body = {"type": "response.create", "model": self.model, "instructions": "You are Codex.",
                "tools": tools, "tool_choice": "auto", "parallel_tool_calls": False,
                "reasoning": {"effort": "medium", "summary": "auto"}, "store": False, "stream": True,
                "include": ["reasoning.encrypted_content"], "prompt_cache_key": "0199-thread",
                "text": {"verbosity": "medium"}, "client_metadata": {"x-codex-window": "0"}, **more}
        if self.previous and items[:len(self.sent)] == self.sent:
            body["previous_response_id"] = self.previous
            body["input"] = items[len(self.sent):]
        else:
            body["input"] = items
        self.c.send(body)

    def send(self, items, tools, **more):
        self.begin(items, tools, **more)
        return self.read(items)

    def read(self, items):
        """What it reads of a response: items when they are done, the id and usage in the end."""
        done = []
        assert isinstance(self.c.event()["response"], dict)
        while True:
            e = self.c.event()
            assert "stream_id" not in e
            if e["type"] == "response.output_item.done":
                done.append(e["item"])
            assert e["type"] not in ("error", "response.failed", "response.incomplete"), e
            if e["type"] == "response.completed":
                break
        usage = e["response"]["usage"]
        for key in "input_tokens", "output_tokens", "total_tokens":
            assert isinstance(usage[key], int)
        assert isinstance(usage["input_tokens_details"]["cached_tokens"], int)
        assert isinstance(usage["output_tokens_details"]["reasoning_tokens"], int)
        assert e["response"]["output"] == done
        self.previous, self.sent = e["response"]["id"], items + [self.kept(i) for i in done]
        return done, usage

    @staticmethod
    def kept(item):
        """An item as it is kept and sent again: its own fields, no id, no status; thoughts
        without their text."""
        fields = {"message": ("role", "content"), "function_call": ("name", "arguments", "call_id"),
                  "custom_tool_call": ("name", "input", "call_id"), "reasoning": ("summary",)}
        out = {"type": item["type"], **{k: item[k] for k in fields[item["type"]]}}
        if item["type"] == "message":
            out["content"] = [{"type": p["type"], "text": p["text"]} for p in item["content"]]
        if item["type"] == "reasoning":
            out.update(content=None, encrypted_content=None)
        return out


def test_warm_up_and_turns(family):
    c = Codex(family, "tiny")
    done, usage = c.send([], [], generate=False)
    assert done == []
    # the first turn goes on from the warm-up, with all that is new
    done, usage = c.send([message("developer", "Permissions."), message("user", "hi " * 20)], [])
    assert [p["text"] for p in done[0]["content"]] == [SCRIPT]
    done, more = c.send(c.sent + [message("user", "again")], [])
    assert done[0]["content"][0]["text"] == SCRIPT
    assert more["input_tokens"] > usage["total_tokens"]
    assert more["input_tokens_details"]["cached_tokens"] >= usage["total_tokens"] - 34
    c.c.close()


def test_a_warm_up_with_tools(family):
    c = Codex(family, "noise")
    done, usage = c.send([], [SHELL, PATCH, SEARCH], generate=False)
    assert done == [] and c.previous.startswith("resp_")
    c.c.close()


def test_a_warm_up_is_gone_on_with_and_nothing_new(family):
    c = Codex(family, "tiny")
    items = [message("user", "word " * 30)]
    done, usage = c.send(items, [], generate=False)
    assert done == [] and usage["output_tokens"] == 0
    done, again = c.send(items, [])  # nothing is new: an empty list goes out
    assert done[0]["content"][0]["text"] == SCRIPT
    assert again["input_tokens"] == usage["input_tokens"]
    assert again["input_tokens_details"]["cached_tokens"] >= 32
    c.c.close()


def test_tools(family):
    """A call, its result, and the conversation sent whole on a connection of its own."""
    c = Codex(family, "tools")
    items = [message("developer", "Permissions."), message("user", "weather?")]
    done, usage = c.send(items, [SHELL, PATCH, SEARCH])
    assert [i["type"] for i in done] == ["reasoning", "message", "function_call"]
    assert json.loads(done[2]["arguments"])["days"] == 3
    items = c.sent + [{"type": "function_call_output", "call_id": done[2]["call_id"],
                       "output": "rain"}]
    done, more = c.send(items, [SHELL, PATCH, SEARCH])
    assert more["input_tokens"] > usage["input_tokens"]
    assert more["input_tokens_details"]["cached_tokens"] > usage["input_tokens"] - 32
    c.c.close()
    fresh = Codex(family, "tools")
    done, whole = fresh.send(items, [SHELL, PATCH, SEARCH])
    assert [i["type"] for i in done] == ["reasoning", "message", "function_call"]
    fresh.c.close()


def prompt_of(d, items):
    """The tokens of the prompt that a full create of these messages makes."""
    messages = [{"role": "system", "content": "You are Codex."}] + [
        {"role": i["role"], "content": "".join(p["text"] for p in i["content"])} for i in items]
    r = d.http("POST", "/v1/tokenize", {"model": "tiny", "messages": messages})
    assert r.status == 200, r
    return r.json["tokens"]


@pytest.mark.parametrize("idle", [True, False], ids=["later", "at-once"])
def test_after_an_interrupt_the_prefix_is_found(start, models, idle):
    """It drops the connection in mid-answer, without a word of WebSocket; the next create has the
    whole conversation on a new one, and <turn_aborted> where the answer broke off."""
    d = start(models(kind="book", n_context=2048, n_blocks=8, width=128, book=(
        ("'turn_aborted' in ask", "As you wish."), ("'count' in ask", "one, two, three..."), ("true", "Hello."))))
    c = Codex(d, "tiny")
    done, usage = c.send([message("developer", "Permissions. " * 8), message("user", "hi " * 20)], [])
    assert done[0]["content"][0]["text"] == "Hello."
    interrupted = c.sent + [message("user", "count " * 20)]
    c.begin(interrupted, [])
    c.c.until_type("response.output_text.delta")
    assert d.running() == 1 and d.blocks_used() > 0
    c.c.abort()
    if idle:
        d.until_idle()  # its blocks are free, and still found
    again = interrupted + [message("user", "<turn_aborted>\nThe user interrupted the turn.\n</turn_aborted>")]
    before, now = prompt_of(d, interrupted), prompt_of(d, again)
    same = next(i for i, (a, b) in enumerate(zip(before, now)) if a != b)
    assert usage["total_tokens"] < same < len(before)
    fresh = Codex(d, "tiny")
    done, usage = fresh.send(again, [])
    assert done[0]["content"][0]["text"] == "As you wish."
    assert usage["input_tokens"] == len(now)
    assert usage["input_tokens_details"]["cached_tokens"] == same
    fresh.c.close()
    d.until_idle()


def test_an_error_is_one_that_it_reads(family):
    c = Codex(family, "tiny")
    c.c.send({"type": "response.create", "model": "tiny", "input": [], "store": False,
              "previous_response_id": "resp_gone", "client_metadata": {}})
    e = c.c.event()
    assert e["type"] == "error" and isinstance(e["status"], int) and e["status"] >= 300
    assert e["error"]["code"] == "previous_response_not_found"
    assert isinstance(e["error"]["message"], str)
    # it is ignored where nothing is expected, and a full turn follows on the same connection
    c.c.send({"type": "response.processed", "response_id": "resp_gone"})
    done, usage = c.send([message("user", "hi")], [])
    assert done[0]["content"][0]["text"] == SCRIPT
    c.c.close()


def test_over_http(family):
    """Where no WebSocket can be had it posts the same, and reads the same events."""
    body = {"model": "tiny", "instructions": "You are Codex.", "input": [message("user", "hi")],
            "tools": [], "tool_choice": "auto", "parallel_tool_calls": False, "reasoning": None,
            "store": False, "stream": True, "include": [], "prompt_cache_key": "0199-thread",
            "client_metadata": {"a": "b"}}
    r = family.http("POST", "/v1/responses", body)
    assert r.status == 200
    events = [json.loads(e) for e in r.events()]
    assert events[-1]["type"] == "response.completed"
    done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
    assert done[0]["content"][0]["text"] == SCRIPT
    assert family.http("GET", "/v1/responses").status == 426
