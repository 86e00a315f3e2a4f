"""Responses: the events, their fields and order, lanes, errors, cancel; what is kept, continued
and forked; over the WebSocket and over HTTP."""
import json
import os
import re

import pytest
import websockets.exceptions

from daemon import text_of, until
from tiny_model import SCRIPT

pytestmark = [pytest.mark.home("asan"), pytest.mark.tsan]


def check_response(r, status):
    """The response object as clients read it."""
    assert r["object"] == "response" and r["id"].startswith("resp_"), r
    assert isinstance(r["created_at"], (int, float)) and r["created_at"] > 1.7e9
    assert r["status"] == status
    assert isinstance(r["output"], list) and isinstance(r["tools"], list)
    assert isinstance(r["parallel_tool_calls"], bool)
    assert r["tool_choice"] in ("auto", "none")
    for key in ("model", "usage", "error", "incomplete_details", "instructions", "metadata",
                "temperature", "top_p", "max_output_tokens", "previous_response_id"):
        assert key in r, "the response has no %s" % key


def check_usage(u):
    assert u["input_tokens"] > 0 and u["output_tokens"] > 0
    assert u["total_tokens"] == u["input_tokens"] + u["output_tokens"]
    assert set(u["input_tokens_details"]) >= {"cached_tokens", "cache_write_tokens"}
    assert u["input_tokens_details"]["cached_tokens"] <= u["input_tokens"]
    assert u["output_tokens_details"]["reasoning_tokens"] == 0


def check_answer(events, final="response.completed", status="completed", stream_id=None):
    """One text answer, event by event; the whole text."""
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    for e in events:
        if stream_id is None:
            assert "stream_id" not in e, e
        else:
            assert e["stream_id"] == stream_id, e
    kinds = [e["type"] for e in events if e["type"] != "response.in_progress"]
    deltas = kinds.count("response.output_text.delta")
    assert kinds == (["response.created", "response.output_item.added",
                      "response.content_part.added"] + ["response.output_text.delta"] * deltas +
                     ["response.output_text.done", "response.content_part.done",
                      "response.output_item.done", final])
    assert [e["type"] for e in events[:2]] == ["response.created", "response.in_progress"]

    by_kind = {e["type"]: e for e in events}
    created, last = by_kind["response.created"]["response"], by_kind[final]["response"]
    check_response(created, "in_progress")
    assert created["output"] == [] and created["usage"] is None
    check_response(by_kind["response.in_progress"]["response"], "in_progress")
    check_response(last, status)
    for e in events:
        if "response" in e:
            assert e["response"]["id"] == created["id"]

    item = by_kind["response.output_item.added"]["item"]
    assert by_kind["response.output_item.added"]["output_index"] == 0
    assert item["type"] == "message" and item["role"] == "assistant"
    assert item["status"] == "in_progress" and item["content"] == [] and item["id"]
    part = by_kind["response.content_part.added"]
    assert (part["item_id"], part["output_index"], part["content_index"]) == (item["id"], 0, 0)
    assert part["part"] == {"type": "output_text", "text": "", "annotations": []} or (
        part["part"].pop("logprobs") == [] and
        part["part"] == {"type": "output_text", "text": "", "annotations": []})
    text = text_of(events)
    for e in events:
        if e["type"].startswith("response.output_text."):
            assert (e["item_id"], e["output_index"], e["content_index"]) == (item["id"], 0, 0)
            assert e["logprobs"] == []
        if e["type"] == "response.output_text.delta":
            assert isinstance(e["delta"], str) and e["delta"]
    assert by_kind["response.output_text.done"]["text"] == text
    done = by_kind["response.content_part.done"]
    assert (done["item_id"], done["output_index"], done["content_index"]) == (item["id"], 0, 0)
    assert done["part"]["type"] == "output_text" and done["part"]["text"] == text
    whole = by_kind["response.output_item.done"]["item"]
    assert by_kind["response.output_item.done"]["output_index"] == 0
    assert (whole["id"], whole["type"], whole["role"]) == (item["id"], "message", "assistant")
    assert whole["status"] == ("completed" if final == "response.completed" else "incomplete")
    assert [p["text"] for p in whole["content"]] == [text]
    assert last["output"] == [whole]
    check_usage(last["usage"])
    return text


def test_event_sequence(ws):
    events = ws.answer("hello", metadata={"kind": "test"}, instructions="Be brief.",
                       max_output_tokens=100, temperature=0, top_p=0.9)
    assert check_answer(events) == SCRIPT
    r = events[-1]["response"]
    assert r["model"] == "tiny" and r["metadata"] == {"kind": "test"}
    assert r["instructions"] == "Be brief." and r["max_output_tokens"] == 100
    assert r["temperature"] == 0 and r["top_p"] == pytest.approx(0.9)
    assert r["error"] is None and r["incomplete_details"] is None
    assert r["usage"]["output_tokens"] in (18, 19)  # with or without the end token


def test_deltas_are_whole_characters(ws):
    """The accent is two tokens and the crab four: each must come in one delta."""
    events = ws.answer(model="slow", max_output_tokens=18 * 5)
    deltas = [e["delta"] for e in events if e["type"] == "response.output_text.delta"]
    assert "".join(deltas) == SCRIPT * 5
    assert "\ufffd" not in "".join(deltas)
    assert len(deltas) > 1, "the answer came in one piece: it was not streamed"


@pytest.mark.parametrize("value", [
    "hello",
    [{"role": "user", "content": "hello"}],
    [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}],
    [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "hello"},
     {"type": "message", "role": "assistant",
      "content": [{"type": "output_text", "text": "Hi.", "annotations": []}]},
     {"role": "user", "content": "again"}],
])
def test_forms_of_input(ws, value):
    assert check_answer(ws.answer(value)) == SCRIPT


def test_the_same_input_in_two_forms_is_the_same_prompt(ws):
    a = ws.answer("hello", model="random", max_output_tokens=40)
    b = ws.answer([{"role": "user", "content": [{"type": "input_text", "text": "hello"}]}],
                  model="random", max_output_tokens=40)
    c = ws.answer("hello!", model="random", max_output_tokens=40)
    assert text_of(a) == text_of(b)
    assert text_of(a) != text_of(c)
    first, second = a[-1]["response"]["usage"], b[-1]["response"]["usage"]
    n = first["input_tokens"]
    assert second["input_tokens_details"]["cached_tokens"] == n - 1
    for usage in first, second:
        del usage["input_tokens_details"]
    assert first == second


def test_numbers_start_again_with_each_response(ws):
    assert check_answer(ws.answer("one")) == SCRIPT
    assert check_answer(ws.answer("two")) == SCRIPT


def test_binary_frame_is_read_or_refused(ws):
    """Either is fine; hanging or dying is not."""
    ws.send(json.dumps({"type": "response.create", "model": "tiny", "input": "hi"}).encode())
    try:
        assert ws.event()["type"] in ("response.created", "error")
    except websockets.exceptions.ConnectionClosed as e:
        assert e.rcvd and e.rcvd.code == 1003


def test_max_output_tokens_is_incomplete(ws):
    events = ws.answer("hi", max_output_tokens=3)
    assert check_answer(events, "response.incomplete", "incomplete") == "Alpha bravo charlie"
    r = events[-1]["response"]
    assert r["incomplete_details"] == {"reason": "max_output_tokens"}
    assert r["usage"]["output_tokens"] == 3


@pytest.mark.parametrize("n", [5, 11, 12, 13])
def test_an_end_within_a_character(ws, n):
    """Five tokens end after the first byte of the accent, more within the crab: the answer ends
    before them."""
    events = ws.answer("hi", max_output_tokens=n)
    said = check_answer(events, "response.incomplete", "incomplete")
    assert said == ("Alpha bravo charlie delta" if n == 5 else SCRIPT[:SCRIPT.index("\U0001f980")])
    assert events[-1]["response"]["usage"]["output_tokens"] == n
    assert ws.answer("hi", max_output_tokens=n + 1)[-1]["type"] == "response.incomplete"


@pytest.mark.parametrize("stop, expected", [
    (" charlie", "Alpha bravo"),
    (["nowhere", "lta"], "Alpha bravo charlie de"),
    ("vo cha", "Alpha bra"),  # over the edge of two tokens
    (["\u00e9 ec"], "Alpha bravo charlie delta"),
    (["india\U0001f980"], "Alpha bravo charlie delta\u00e9 echo foxtrot golf hotel "),
    ("A", ""),
])
def test_stop_strings_never_leak(ws, stop, expected):
    events = ws.answer("hi", stop=stop)
    assert text_of(events) == expected
    if expected:
        assert check_answer(events) == expected
    assert events[-1]["type"] == "response.completed"
    for s in [stop] if isinstance(stop, str) else stop:
        assert s not in text_of(events)


def test_a_stop_string_that_never_comes_holds_back_nothing(ws):
    """A prefix of the stop string is text after all once the answer ends."""
    assert check_answer(ws.answer("hi", stop="kilo.!")) == SCRIPT


def test_seed(ws):
    def ask(**options):
        return text_of(ws.answer("hello", model="random", temperature=1, max_output_tokens=40,
                                 **options))
    assert ask(seed=7) == ask(seed=7)
    assert ask(seed=7) != ask(seed=8)
    assert ask() != ask(), "without a seed each draw must differ"
    assert ask(seed=7, top_k=1) == ask(seed=8, top_k=1) == text_of(
        ws.answer("hello", model="random", temperature=0, max_output_tokens=40))


def test_two_lanes_at_once(ws):
    for lane in ("a", "b"):
        ws.create("hi", model="slow", max_output_tokens=200, stream_id=lane)
    events, ended = {"a": [], "b": []}, []
    order = []
    while len(ended) < 2:
        e = ws.event()
        lane = e["stream_id"]
        events[lane].append(e)
        order.append(lane)
        if e["type"] == "response.incomplete":
            ended.append(lane)
    for lane in ("a", "b"):
        check_answer(events[lane], "response.incomplete", "incomplete", stream_id=lane)
    first_end = max(i for i, lane in enumerate(order) if lane == ended[0])
    other_deltas = [i for i, lane in enumerate(order) if lane == ended[1] and i < first_end]
    assert len(other_deltas) > 10, "the lanes ran one after the other"
    assert events["a"][0]["response"]["id"] != events["b"][0]["response"]["id"]


def test_a_lane_is_first_in_first_out(ws):
    for n in (1, 2, 3):
        ws.create("hi", max_output_tokens=3, metadata={"n": str(n)})
    for n in (1, 2, 3):
        events = ws.until_type("response.incomplete")
        check_answer(events, "response.incomplete", "incomplete")
        assert events[-1]["response"]["metadata"] == {"n": str(n)}


def test_named_and_default_lanes_mix(ws):
    ws.create("hi", stream_id="other.lane-1_x")
    ws.create("hi")
    lanes = {None: [], "other.lane-1_x": []}
    while not all(l and l[-1]["type"] == "response.completed" for l in lanes.values()):
        e = ws.event()
        lanes[e.get("stream_id")].append(e)
    assert check_answer(lanes[None]) == SCRIPT
    assert check_answer(lanes["other.lane-1_x"], stream_id="other.lane-1_x") == SCRIPT


@pytest.mark.parametrize("name", ["", "a b", "x" * 257, "\u00e9", 7])
def test_bad_stream_id(ws, name):
    ws.create("hi", stream_id=name)
    e = ws.error()
    assert e["status"] == 400 and e["error"]["param"] == "stream_id"
    assert "stream_id" not in e
    if name != 7:
        assert e["error"]["code"] == "invalid_stream_id"
    assert check_answer(ws.answer()) == SCRIPT


def test_the_33rd_lane_is_refused(ws):
    for i in range(32):
        ws.create("hi", max_output_tokens=1, stream_id="lane%d" % i)
    ended = 0
    while ended < 32:
        ended += ws.event()["type"] in ("response.incomplete", "response.completed")
    ws.create("hi", stream_id="one.more")
    e = ws.error()
    assert e["error"]["code"] == "websocket_stream_limit_reached"
    assert e["status"] == 400 and e["error"]["param"] == "stream_id"
    events = ws.answer(stream_id="lane3")
    assert check_answer(events, stream_id="lane3") == SCRIPT


BAD_MESSAGES = [
    ("not json", None),
    ("", None),
    ("[]", None),
    ("null", None),
    ('{"type": "response.create"', None),
    ('{"type": "response.create", "model": "tiny", "input": "a"} {}', None),
    ("[" * 5000 + "]" * 5000, None),
    ('{"type": 5}', "type"),
    ("{}", "type"),
    ('{"type": "response.zeppelin"}', "type"),
    ('{"type": "response.create", "model": "tiny"}', "input"),
]


@pytest.mark.parametrize("message, param", BAD_MESSAGES)
def test_bad_messages_keep_the_connection(ws, message, param):
    ws.send(message)
    e = ws.error()
    assert e["status"] == 400 and e["error"]["type"] == "invalid_request_error"
    if param:
        assert e["error"]["param"] == param, e
    assert check_answer(ws.answer()) == SCRIPT


@pytest.mark.parametrize("name, value", [
    ("top_logprobs", 1),
    ("text", {"format": {"type": "poem"}}),
    ("conversation", "conv_1"),
    ("background", True),
    ("prompt", {"id": "pmpt_1"}),
    ("tool_choice", {"type": "web_search"}),
])
def test_what_is_not_supported_is_refused_by_name(ws, name, value):
    ws.create("hi", **{name: value})
    e = ws.error()
    assert e["status"] == 400
    assert e["error"]["param"].split(".")[0].split("[")[0] == name, e
    assert name in e["error"]["message"], e
    assert check_answer(ws.answer()) == SCRIPT


@pytest.mark.parametrize("name, value", [
    ("temperature", "hot"), ("temperature", -0.1), ("temperature", 2.1), ("temperature", True),
    ("top_p", 0), ("top_p", 1.01), ("top_p", []), ("top_k", -1), ("top_k", 1.5),
    ("seed", "x"), ("seed", 1.5), ("max_output_tokens", 0), ("max_output_tokens", -3),
    ("max_output_tokens", "5"), ("max_output_tokens", 1 << 40), ("stop", 5), ("stop", [""]),
    ("stop", ["x"] * 17), ("metadata", "x"), ("metadata", {"a": 1}), ("instructions", 5),
    ("input", 5), ("input", {"a": 1}), ("input", [5]),
    ("input", [{"role": "wizard", "content": "x"}]),
    ("input", [{"role": "user", "content": 5}]),
    ("model", 5), ("stream", False), ("stream", "yes"), ("store", "no"),
])
def test_wrong_values_are_refused_by_name(ws, name, value):
    ws.create("hi", **{name: value})
    e = ws.error()
    assert e["status"] == 400 and e["error"]["type"] == "invalid_request_error"
    assert e["error"]["param"].startswith(name), e
    assert check_answer(ws.answer()) == SCRIPT


def test_what_codex_sends_is_known(ws):
    """A first turn as its client makes it, as far as plain text goes."""
    ws.send({"type": "response.create", "model": "tiny", "instructions": "You are a coder.",
             "input": [{"type": "message", "role": "user",
                        "content": [{"type": "input_text", "text": "hi"}]}],
             "tools": [], "tool_choice": "auto", "parallel_tool_calls": False, "reasoning": None,
             "store": False, "stream": True, "include": [], "prompt_cache_key": "thread",
             "client_metadata": {"a": "b"}})
    assert text_of(ws.until_type("response.completed")) == SCRIPT


def test_unknown_model_names_the_known_ones(ws):
    ws.create("hi", model="zeppelin")
    e = ws.error()
    assert e["status"] == 404 and e["error"]["code"] == "model_not_found"
    assert e["error"]["param"] == "model"
    for name in ("zeppelin", "tiny", "random", "slow"):
        assert name in e["error"]["message"]
    assert check_answer(ws.answer()) == SCRIPT


def test_no_model_is_the_default_one(ws):
    events = ws.answer("hi", model=...)
    assert check_answer(events) == SCRIPT
    assert events[-1]["response"]["model"] == "tiny"


def test_prompt_longer_than_the_context(ws):
    for n_words in 600, 3000:
        events = ws.answer("word " * n_words)
        assert [e["type"] for e in events] == ["response.created", "response.in_progress", "response.failed"]
        error = events[-1]["response"]["error"]
        assert error["code"] == "context_length_exceeded"
        assert "512" in error["message"], "the context's length is not named"
    assert check_answer(ws.answer()) == SCRIPT


def test_the_context_ends_an_answer(ws):
    events = ws.answer("hi", model="random", seed=1, temperature=0, input="x " * 900)
    r = events[-1]["response"]
    assert r["status"] == "incomplete"
    assert r["usage"]["total_tokens"] in (2048, 2049)


def test_an_error_names_its_lane(ws):
    ws.create("hi", stream_id="left", temperature=9)
    e = ws.error()
    assert e["stream_id"] == "left"


def test_cancel(ws, scripted):
    ws.create("hi", model="slow")
    events = ws.until_type("response.output_text.delta")
    rid = events[0]["response"]["id"]
    ws.send({"type": "response.cancel", "response_id": rid})
    events += ws.until_type("response.incomplete")
    check_answer(events, "response.incomplete", "cancelled")
    scripted.until_idle()
    assert check_answer(ws.answer()) == SCRIPT


def test_cancel_one_lane_of_two(ws, scripted):
    ws.create("hi", model="slow", stream_id="a", max_output_tokens=400)
    ws.create("hi", model="slow", stream_id="b", max_output_tokens=60)
    ids = {}
    events = {"a": [], "b": []}
    while len(ids) < 2 or not text_of(events["a"]):
        e = ws.event()
        events[e["stream_id"]].append(e)
        if e["type"] == "response.created":
            ids[e["stream_id"]] = e["response"]["id"]
    ws.send({"type": "response.cancel", "response_id": ids["a"]})
    while not all(events[l][-1]["type"] == "response.incomplete" for l in "ab"):
        e = ws.event()
        events[e["stream_id"]].append(e)
    check_answer(events["a"], "response.incomplete", "cancelled", stream_id="a")
    check_answer(events["b"], "response.incomplete", "incomplete", stream_id="b")
    assert events["b"][-1]["response"]["usage"]["output_tokens"] == 60


def test_steer_is_refused_as_the_sdk_expects(ws):
    ws.send({"type": "response.steer", "input": "x", "previous_response_id": "resp_1"})
    e = ws.event()
    assert e["type"] == "response.steer.failed"
    assert e["error"]["code"] == "steering_not_supported"


def test_closing_the_socket_cancels(scripted):
    c = scripted.ws()
    for lane in ("a", "b", "c"):
        c.create("hi", model="slow", stream_id=lane)
    c.until_type("response.output_text.delta")
    until(lambda: scripted.running() == 3, "three run")
    assert scripted.blocks_used() >= 3
    c.close()
    scripted.until_idle()


def test_a_socket_that_breaks_cancels(scripted):
    c = scripted.ws()
    c.create("hi", model="slow")
    c.until_type("response.output_text.delta")
    c.abort()
    scripted.until_idle()


def test_four_killed_of_eight(scripted):
    """Those killed give back what they held while the others go on."""
    connections = [scripted.ws() for _ in range(8)]
    # Nothing is shared: a cached block of one that is killed would stay in use by others with the same text.
    for i, c in enumerate(connections):
        c.create("%d hi" % i, model="slow")
    # Some hundred tokens each, so that a sequence's growth while we look is small.
    for c in connections:
        seen = 0
        while seen < 100:
            seen += c.event()["type"] == "response.output_text.delta"
    m = scripted.metrics()
    assert m.sum("ingot_num_requests_running") == 8
    before = m.sum("ingot_kv_cache_blocks_used")
    assert before >= 8 * (100 // 16)
    for c in connections[:4]:
        c.abort()

    def four_left():
        now = scripted.metrics()
        return now if now.sum("ingot_num_requests_running") == 4 else None
    after = until(four_left, "four are left").sum("ingot_kv_cache_blocks_used")
    # Freed with the same step that drops them: nobody may see four sequences and the
    # blocks of more.  Those that are left have grown since, on a busy machine by much.
    left = scripted.http("GET", "/v1/ingot/requests").json["data"]
    assert len(left) == 4
    most = sum((r["prompt_tokens"] + r["output_tokens"]) // 16 + 2 for r in left)
    assert after <= most, "%d blocks with eight; with four %d, which need %d" % (before, after, most)
    for c in connections[4:]:
        c.close()
    scripted.until_idle()


def test_pings_are_answered(ws):
    pong = ws.ws.ping()
    assert pong.wait(10)


def test_other_paths_are_no_websocket(scripted):
    for path in ("/", "/v1/chat/completions", "/nowhere"):
        with pytest.raises(websockets.exceptions.InvalidStatus) as e:
            scripted.ws(path)
        assert e.value.response.status_code in (400, 404, 405, 426)


def test_official_sdk_headers(scripted):
    c = scripted.ws(additional_headers={
        "Authorization": "Bearer sk-x", "Accept": "application/json",
        "Content-Type": "application/json", "X-Stainless-Lang": "python",
        "OpenAI-Beta": "responses_websockets=2026-02-06"})
    assert check_answer(c.answer()) == SCRIPT


def test_compression_may_be_offered(scripted):
    c = scripted.ws(compression="deflate")
    assert check_answer(c.answer()) == SCRIPT


def test_special_tokens_in_content_are_text(ws):
    """A user who writes a control token's name gets more tokens, not another turn."""
    plain = ws.answer("x", max_output_tokens=1)[-1]["response"]["usage"]["input_tokens"]
    control = ws.answer("<|im_end|>", max_output_tokens=1)[-1]["response"]["usage"]["input_tokens"]
    assert control - plain >= 5


# ---- what is kept ---------------------------------------------------------------------

def final(events, status="completed"):
    r = events[-1]["response"]
    assert r["status"] == status, events[-1]
    return r


@pytest.mark.parametrize("store", [True, False])
def test_continuing_is_sending_it_whole(ws, store):
    """The same text and as many tokens of prompt, whichever way the conversation comes."""
    def turn(content, **options):
        events = ws.answer(content, model="random", max_output_tokens=6, store=store, **options)
        return final(events, "incomplete"), text_of(events)
    whole, previous = [], None
    for content in "uno", "due", "tre":
        r, said = turn(content, previous_response_id=previous)
        assert r["store"] is store and r["previous_response_id"] == previous
        assert said and "\0" not in said, "noise that JSON can't carry back: take other words"
        whole.append({"role": "user", "content": content})
        again, said_again = turn(whole, stream_id="whole")
        assert said_again == said
        assert again["usage"]["input_tokens"] == r["usage"]["input_tokens"]
        whole += r["output"]
        previous = r["id"]


def test_two_forks_of_one_parent(ws):
    parent = final(ws.answer("go", model="random", max_output_tokens=20), "incomplete")["id"]
    texts = {}
    for lane, content in (("a", "left"), ("b", "right"), ("c", "left")):
        ws.create(content, model="random", max_output_tokens=20, stream_id=lane,
                  previous_response_id=parent)
    while len(texts) < 3:
        e = ws.event()
        if e["type"] == "response.output_text.done":
            texts[e["stream_id"]] = e["text"]
    assert texts["a"] == texts["c"] != texts["b"]


def test_forks_without_store(ws):
    """Each lane of a connection keeps several responses, so that an agent goes back to one; the
    parent is not lost when a child has come."""
    def turn(content, previous=None, **options):
        r = ws.answer(content, model="random", max_output_tokens=6, store=False,
                      previous_response_id=previous, **options)
        return final(r, "incomplete")["id"], text_of(r)
    made = [turn("go")[0]]
    for i in range(7):  # 8 with the first
        made.append(turn("step %d" % i, made[-1])[0])
    said = turn("again", made[0])[1]  # now 9: the first is gone
    ws.create("more", store=False, previous_response_id=made[0])
    assert ws.error()["error"]["code"] == "previous_response_not_found"
    first = turn("go", stream_id="b")[0]
    assert turn("again", first, stream_id="b")[1] == said
    assert turn("again", made[7])[1] == turn("again", made[7])[1] != ""


def test_a_continued_prompt_is_found_again(ws):
    """Cached is what was computed for the parent, answer included, at least to the last whole block."""
    parent = final(ws.answer("hello " * 30))
    child = final(ws.answer("and now?", previous_response_id=parent["id"]))
    total, cached = parent["usage"]["total_tokens"], child["usage"]["input_tokens_details"]["cached_tokens"]
    assert total - 18 <= cached <= total, (cached, total)
    assert child["usage"]["input_tokens"] > total


def test_a_hit_changes_no_bit(start, models):
    path, said = models.random(), []
    for on in (True, False):
        d = start(path, extra={"kvcache": {"prefix_cache": on}})
        c, previous, texts, cached = d.ws(), None, [], []
        for turn in ("one", "two", "three"):
            # whether noise draws its end before the limit is up to the last bits of its numbers
            r = c.answer(turn, temperature=1, seed=5, max_output_tokens=30,
                         previous_response_id=previous)[-1]["response"]
            assert r["status"] in ("incomplete", "completed"), r
            previous = r["id"]
            texts.append((r["status"], r["output"][0]["content"][0]["text"]))
            cached.append(r["usage"]["input_tokens_details"]["cached_tokens"])
        assert (cached[1] > 0 and cached[2] > cached[1]) if on else cached == [0, 0, 0]
        said.append(texts)
        d.stop()
    assert said[0] == said[1]


@pytest.mark.home("release")
@pytest.mark.real
def test_a_conversation_of_a_real_model_is_found_again(start):
    """What it said is tokenised anew; where that gives what it drew, nothing is computed twice."""
    d = start(os.environ["INGOT_TEST_MODEL"], {"memory": {"budget": 0}, "kvcache": {"arena": 256 << 20}})
    c, previous, total = d.ws(), None, 0
    for turn in ("What is a river?", "And a lake?", "Which one is larger?"):
        r = c.answer(turn, max_output_tokens=60, previous_response_id=previous)[-1]["response"]
        usage, previous = r["usage"], r["id"]
        cached = usage["input_tokens_details"]["cached_tokens"]
        assert total - 18 <= cached <= total, (cached, total)
        total = usage["total_tokens"]
    c.close()


def test_warm_up(ws):
    ws.create("word " * 60, generate=False, store=False, instructions="Be brief.")
    events = ws.until_type("response.completed")
    assert [e["type"] for e in events] == ["response.created", "response.in_progress",
                                           "response.completed"]
    warm = final(events)
    assert warm["output"] == [] and warm["usage"]["output_tokens"] == 0
    n = warm["usage"]["input_tokens"]
    assert n > 60
    r = final(ws.answer([], instructions="Be brief.", store=False, previous_response_id=warm["id"]))
    assert r["output"][0]["content"][0]["text"] == SCRIPT
    assert r["usage"]["input_tokens"] == n
    assert r["usage"]["input_tokens_details"]["cached_tokens"] == (n - 1) // 16 * 16
    ws.create([], generate=False, store=False)
    nothing = final(ws.until_type("response.completed"))
    assert check_answer(ws.answer("hi", store=False, previous_response_id=nothing["id"])) == SCRIPT


def test_a_parent_that_is_not_there(ws, scripted):
    ws.create("hi", previous_response_id="resp_nix", stream_id="l")
    e = ws.error()
    assert (e["status"], e["stream_id"]) == (400, "l")
    assert (e["error"]["code"], e["error"]["param"], e["error"]["type"]) == (
        "previous_response_not_found", "previous_response_id", "invalid_request_error")
    # not stored: of the connection
    r = final(ws.answer("hi", store=False))
    other = scripted.ws()
    other.create("hi", previous_response_id=r["id"])
    assert other.error()["error"]["code"] == "previous_response_not_found"
    other.close()
    reply = scripted.http("POST", "/v1/responses", {"input": "hi", "previous_response_id": r["id"]})
    assert (reply.status, reply.error["code"]) == (400, "previous_response_not_found")
    assert check_answer(ws.answer("hi", store=False, previous_response_id=r["id"])) == SCRIPT


def test_a_turn_that_fails_lets_its_parent_go(ws):
    r = final(ws.answer("hi", store=False))
    for lane in {"stream_id": "fork"}, {}:
        failed = ws.answer("word " * 600, store=False, previous_response_id=r["id"], **lane)[-1]
        assert failed["response"]["error"]["code"] == "context_length_exceeded"
    ws.create("hi", store=False, previous_response_id=r["id"])
    assert ws.error()["error"]["code"] == "previous_response_not_found"


def test_system_messages_that_come_first(scripted, ws):
    """They stay apart, as in a chat: what the first says is read once, whatever follows it."""
    first, second, user = "one " * 20, "two", {"role": "user", "content": "hi"}
    a = final(ws.answer([{"role": "developer", "content": second}, user], instructions=first))["usage"]
    b = scripted.chat(messages=[{"role": "system", "content": first}, {"role": "system", "content": second},
                                user]).json["usage"]
    assert a["input_tokens"] == b["prompt_tokens"]
    assert b["prompt_tokens_details"]["cached_tokens"] >= b["prompt_tokens"] - 16


def test_tools_are_read_with_the_warm_up(start, models):
    """Before what the first turn's developer message adds, of which a warm-up knows nothing."""
    ws = start(models.random()).ws()
    tools = [{"type": "function", "name": "look", "description": "Looks. " * 30,
              "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}]
    warm = final(ws.answer([{"role": "developer", "content": "Be brief."}], generate=False, store=False, tools=tools))
    turn = final(ws.answer([{"role": "developer", "content": "Be kind."}, {"role": "user", "content": "hi"}],
                           store=False, tools=tools, previous_response_id=warm["id"], max_output_tokens=1), "incomplete")
    assert turn["usage"]["input_tokens_details"]["cached_tokens"] >= warm["usage"]["input_tokens"] - 32


# ---- over HTTP --------------------------------------------------------------------------

def post(d, content="hi", **options):
    return d.http("POST", "/v1/responses", {"model": "tiny", "input": content, "temperature": 0,
                                            **options})


def test_http_whole(scripted):
    r = post(scripted, instructions="Be brief.", metadata={"a": "b"})
    assert r.status == 200 and r.headers["content-type"] == "application/json"
    check_response(r.json, "completed")
    check_usage(r.json["usage"])
    assert r.json["output"][0]["content"][0]["text"] == SCRIPT
    assert r.json["metadata"] == {"a": "b"} and r.json["completed_at"] >= r.json["created_at"]
    r = post(scripted, max_output_tokens=3)
    check_response(r.json, "incomplete")
    assert r.json["incomplete_details"] == {"reason": "max_output_tokens"}


def test_http_stream(scripted):
    r = post(scripted, stream=True)
    assert r.status == 200 and r.headers["content-type"].startswith("text/event-stream")
    frames = r.body.decode().split("\n\n")
    assert frames.pop() == ""
    events = []
    for frame in frames:
        name, data = frame.split("\n")
        events.append(json.loads(data[len("data: "):]))
        assert name == "event: " + events[-1]["type"]
    assert check_answer(events) == SCRIPT


def test_http_continues_what_the_socket_began(scripted, ws):
    a = final(ws.answer("one", model="random", max_output_tokens=10), "incomplete")["id"]
    def ask(**options):
        return post(scripted, "two", model="random", max_output_tokens=10, **options).json
    b = ask(previous_response_id=a)
    assert b["output"][0]["content"] == ask(previous_response_id=a)["output"][0]["content"]
    assert b["output"][0]["content"] != ask()["output"][0]["content"]
    c = ws.answer("two", model="random", max_output_tokens=10, previous_response_id=a)
    assert text_of(c) == b["output"][0]["content"][0]["text"]


def test_kept_responses_are_fetched_listed_and_deleted(scripted):
    a = post(scripted, "first").json
    b = post(scripted, [{"role": "user", "content": "second"}], previous_response_id=a["id"]).json
    path = "/v1/responses/" + b["id"]
    assert scripted.http("GET", path).json == b
    items = scripted.http("GET", path + "/input_items?limit=2&order=asc").json
    assert items["object"] == "list" and items["has_more"]
    assert [(i["role"], i["content"][0]["text"]) for i in items["data"]] == [
        ("user", "first"), ("assistant", SCRIPT)]
    assert items["last_id"] == items["data"][1]["id"] == a["output"][0]["id"]
    rest = scripted.http("GET", path + "/input_items?order=asc&after=" + items["last_id"]).json
    assert [i["content"][0]["text"] for i in rest["data"]] == ["second"] and not rest["has_more"]
    assert scripted.http("GET", path + "/input_items").json["data"][0] == rest["data"][0]
    r = scripted.http("GET", path + "/input_items?limit=1000")
    assert (r.status, r.error["param"]) == (400, "limit")
    r = scripted.http("GET", path + "?stream=true")
    assert (r.status, r.error["param"]) == (400, "stream")
    assert scripted.http("GET", path + "?" + "a" * 2000).status == 414
    r = scripted.http("POST", path + "/cancel")
    assert r.status == 400
    # the parent goes, the child stays
    gone = scripted.http("DELETE", "/v1/responses/" + a["id"])
    assert gone.status == 200 and gone.json["deleted"] is True and gone.json["id"] == a["id"]
    for method in "GET", "DELETE":
        r = scripted.http(method, "/v1/responses/" + a["id"])
        assert (r.status, r.error["code"]) == (404, "response_not_found")
    assert post(scripted, "third", previous_response_id=a["id"]).status == 400
    assert post(scripted, "third", previous_response_id=b["id"]).status == 200
    # what was not to be stored is not there
    c = post(scripted, store=False).json
    assert c["store"] is False and scripted.http("GET", "/v1/responses/" + c["id"]).status == 404


def test_overflow_over_http(scripted):
    """A stream fails with events; without one the error is the reply."""
    long = {"input": "word " * 600}
    r = scripted.http("POST", "/v1/responses", dict(long, stream=True))
    assert r.status == 200
    assert re.findall(r"^event: (.*)$", r.body.decode(), re.M) == [
        "response.created", "response.in_progress", "response.failed", "error"]
    r = scripted.http("POST", "/v1/responses", long)
    assert (r.status, r.error["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize("body, param", [
    ({"input": []}, "input"), ({}, "input"), ({"input": "hi", "stream": 1}, "stream"),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
    ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "input"),
])
def test_http_refuses_by_name(scripted, body, param):
    r = scripted.http("POST", "/v1/responses", body)
    assert (r.status, r.error["param"]) == (400, param), r


def test_what_is_a_websockets_is_noted(scripted):
    r = scripted.http("POST", "/v1/responses", {"input": "hi", "stream_id": "a", "type": "response.create"})
    assert r.status == 200 and r.headers["x-ingot-ignored"] == "stream_id, type"


def test_an_empty_text_is_an_input(scripted):
    """As LM Studio's clients load a model."""
    r = scripted.http("POST", "/v1/responses", {"input": "", "max_output_tokens": 1})
    assert r.status == 200 and r.json["usage"]["output_tokens"] == 1


def test_logprobs(scripted):
    r = post(scripted, model="random", max_output_tokens=12, top_logprobs=2,
             include=["message.output_text.logprobs"]).json
    part = r["output"][0]["content"][0]
    assert len(part["logprobs"]) == 12 and r["top_logprobs"] == 2
    text = b"".join(bytes(t["bytes"]) for t in part["logprobs"]).decode(errors="replace")
    assert text == part["text"]
    for t in part["logprobs"]:
        assert t["logprob"] <= 0 and len(t["top_logprobs"]) == 2
        assert t["token"] == t["top_logprobs"][0]["token"], "temperature 0 draws the likeliest"


def test_requests_over_http_are_in_the_ledger(start, models):
    from test_ledger import until_rows
    d = start(models.script())
    a = post(d).json["id"]
    c = d.ws()
    c.answer([], generate=False)
    rows = until_rows(d, 2)
    assert {(r["endpoint"], r["status"]) for r in rows} == {("POST /v1/responses", 200),
                                                           ("ws /v1/responses", 200)}
    assert a in {r["id"] for r in rows}
