"""Why a prompt was not cached: in replies (read by the openai package, strictly), on /v1/ingot/requests,
in the ledger and by `ingot cache`."""
import json
import signal

import openai
import pytest

from daemon import until
from test_cli import ingot
from test_ledger import rows, until_rows

HEAD = "You are a cook who answers in one word. "
LONG = HEAD + "Mind the salt, the pepper and the fire. " * 4


def client(d, key="none"):
    return openai.OpenAI(base_url="http://%s:%d/v1" % (d.host, d.port), api_key=key, max_retries=0,
                         _strict_response_validation=True)


def ask(d, text, key="none", **options):
    return client(d, key).responses.create(model=options.pop("model", "tiny"), input=text, max_output_tokens=3, **options)


def cache(d, *args):
    code, out, err = ingot(d, "cache", "-c", str(d.config_path), *args)
    assert code == 0, err
    return out


def test_responses(start, models):
    d = start(models.script())
    wants = {"extra_body": {"prompt_cache_diagnostics": True}}
    a = ask(d, LONG + "Bread?", **wants)
    assert a.prompt_cache_diagnostics.type == "unavailable"
    assert a.prompt_cache_diagnostics.ingot["reason"] == "first_seen"
    assert a.prompt_cache_diagnostics.ingot["same_tokens"] is None
    plain = ask(d, LONG + "Bread?")
    assert plain.prompt_cache_diagnostics is None
    assert plain.usage.input_tokens_details.cached_tokens >= plain.usage.input_tokens - 16

    # a word in the middle
    other = LONG.replace("fire", "oven", 1) + "Bread?"
    b = ask(d, other, prompt_cache_options={"comparison_response_id": plain.id})
    diagnostics, used = b.prompt_cache_diagnostics, b.usage
    assert (diagnostics.type, diagnostics.reason) == ("cache_miss", "input_changed")
    same = diagnostics.comparison_reusable_tokens
    assert diagnostics.cache_missed_tokens == used.input_tokens - same
    assert 16 < same < used.input_tokens and same - 16 <= used.input_tokens_details.cached_tokens <= same
    own = diagnostics.ingot
    assert (own["reason"], own["compared_with"], own["same_tokens"]) == ("diverged", plain.id, same)
    # the texts are those of both prompts, on both sides of the place
    place = LONG.index(" fire")
    while not LONG[:place].endswith(own["same"]):
        place += 1
    assert (LONG + "Bread?")[place:].startswith(own["earlier"])
    assert other[place:].startswith(own["now"]) and own["now"] != own["earlier"]

    hit = ask(d, LONG + "Bread?", prompt_cache_options={"comparison_response_id": plain.id})
    assert hit.prompt_cache_diagnostics.type == "cache_hit"
    none = ask(d, LONG + "Bread?", prompt_cache_options={"comparison_response_id": "resp_none"})
    assert none.prompt_cache_diagnostics.type == "comparison_response_not_found"
    # a conversation goes on
    more = ask(d, "And wine?", previous_response_id=none.id, **wants)
    assert more.prompt_cache_diagnostics.type == "cache_hit"
    assert more.prompt_cache_diagnostics.ingot["reason"] == "extended"

    events = list(ask(d, other, stream=True, **wants))
    assert events[0].response.prompt_cache_diagnostics is None
    assert events[-1].response.prompt_cache_diagnostics.type == "cache_hit"

    chunks = list(client(d).chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": LONG + "Rice?"}], max_tokens=3, stream=True, **wants))
    assert chunks[-1].choices == []
    assert chunks[-1].prompt_cache_diagnostics["ingot"]["reason"] == "diverged"
    chat = client(d).chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": LONG + "Rice?"}], max_tokens=3, **wants)
    assert chat.prompt_cache_diagnostics["type"] == "cache_hit"
    assert chat.usage.prompt_tokens_details.cached_tokens >= chat.usage.prompt_tokens - 16


def test_other_model(start, models):
    """Two names of one file: the same tokens, and nothing is shared."""
    path = models.script()
    d = start(extra={"models": [{"name": "tiny", "path": path}, {"name": "twin", "path": path}]})
    a = ask(d, LONG)
    b = ask(d, LONG, model="twin", extra_body={"prompt_cache_diagnostics": True})
    assert (b.prompt_cache_diagnostics.type, b.prompt_cache_diagnostics.reason) == ("cache_miss", "model_changed")
    own = b.prompt_cache_diagnostics.ingot
    assert (own["reason"], own["cached_tokens"], own["compared_with"]) == ("other_model", 0, a.id)
    assert (own["same"], own["earlier"], own["now"]) == ("", "", "")
    until_rows(d, 2)
    assert "are those of %s, which asked another model" % a.id in cache(d, "--model", "twin")


def test_keys(start, models, tmp_path):
    """A key learns nothing of another one's prompts; the ledger says that they were alike."""
    d = start(models.script(), {"server": {"keys_file": str(tmp_path / "keys")}})
    keys = {i: ingot(d, "keys", "add", i, *(["--admin"] if i == "boss" else []), "--file",
                         str(tmp_path / "keys"))[1].strip() for i in ("boss", "a", "b")}
    d.process.send_signal(signal.SIGHUP)
    until(lambda: d.http("GET", "/v1/models").status == 401, "the keys are read")
    wants = {"extra_body": {"prompt_cache_diagnostics": True}}
    a = ask(d, LONG, keys["a"], **wants)
    told = [ask(d, text, keys["b"], **wants).prompt_cache_diagnostics.ingot for text in (LONG, LONG)]
    assert [t["reason"] for t in told] == ["first_seen", "full"]
    assert [t["compared_with"] for t in told][0] is None
    named = ask(d, LONG, keys["b"], prompt_cache_options={"comparison_response_id": a.id})
    assert named.prompt_cache_diagnostics.type == "comparison_response_not_found"
    boss = ask(d, LONG, keys["boss"], **wants).prompt_cache_diagnostics
    assert (boss.type, boss.ingot["reason"], boss.ingot["compared_with"]) == ("unavailable", "other_key", None)
    got = [r for r in until_rows(d, 5) if r["cache_reason"]]
    assert [(r["key"], r["cache_reason"]) for r in got] == [
        ("a", "first_seen"), ("b", "other_key"), ("b", "full"), ("b", "full"), ("boss", "other_key")]
    assert got[1]["cache_same_tokens"] == a.usage.input_tokens and got[1]["cache_compared"] == ""
    listed = json.loads(cache(d, "--key", "b", "--json"))["requests"]
    assert [r["cache_reason"] for r in listed] == ["full", "full", "other_key"]
    assert "computed, but for another key" in listed[2]["words"]
    assert cache(d, "--key", "nobody").startswith("no such request in ")


def test_running_and_in_words(start, models):
    d = start(extra={"models": [{"name": "tiny", "path": models.script()},
                                {"name": "slow", "path": models.slow()}]})
    ids = [d.chat(text, max_tokens=3).json["id"] for text in (LONG, LONG, LONG.replace("fire", "oven", 1))]
    assert d.chat("hi", model="none").status == 404  # it did not run
    c = d.ws()
    c.create(LONG, model="slow")
    c.until_type("response.output_text.delta")
    running, = d.http("GET", "/v1/ingot/requests").json["data"]
    assert running["cache_reason"] in ("first_seen", "other_model")
    assert set(running) >= {"cache_same_tokens", "cache_compared"}
    c.abort()
    d.until_idle()
    got = until_rows(d, 5)
    assert "Mind the salt" not in json.dumps(got)
    assert [r["cache_reason"] for r in got[:3]] == ["first_seen", "full", "diverged"]
    assert (got[2]["cache_compared"], got[0]["cache_same_tokens"]) == (ids[1], None)

    said = cache(d, "--model", "tiny").split("\n")
    assert [i for i in ids if i in "".join(said[0::2])] == ids  # the latest last
    assert said[1].endswith(" 0 cached (0 %): no earlier request begins like it")
    assert said[3].endswith("the whole prompt was cached")
    assert said[5].endswith("after %d tokens it differs from %s" % (got[2]["cache_same_tokens"], ids[1]))
    assert said[6].startswith("3 requests: ")
    assert ids[2] in cache(d, "-m", "tiny", "-n", "1") and ids[1] + "  tiny" not in cache(d, "-m", "tiny", "-n", "1")
    assert len(json.loads(cache(d, "--json"))["requests"]) == 4
    assert len(json.loads(cache(d, "--json", "--client", "127.0.0.1"))["requests"]) == 4
    assert json.loads(cache(d, "--json", "--client", "192.0.2.1")) == {"requests": []}
    assert len(json.loads(cache(d, "--json", "--since", "1h", "--ledger", d.config["ledger"]["path"]))["requests"]) == 4


@pytest.mark.parametrize("args", [["-n", "0"], ["-n", "1001"], ["--since", "soon"], ["--model", "m" * 200], ["x"]])
def test_wrong_usage(scripted, args):
    code, out, err = ingot(scripted, "cache", *args)
    assert (code, out) == (2, "") and "cache" in err, err


def test_without_a_ledger(scripted, tmp_path):
    code, out, err = ingot(scripted, "cache", "--ledger", str(tmp_path / "nowhere.db"))
    assert (code, out) == (1, "") and "nowhere.db" in err and "the daemon creates it" in err


def test_disabled_and_short(start, models):
    d = start(models.script(), {"kvcache": {"prefix_cache": False}})
    own = ask(d, LONG, extra_body={"prompt_cache_diagnostics": True}).prompt_cache_diagnostics.ingot
    assert (own["reason"], own["cached_tokens"]) == ("disabled", 0)
    short = client(d).completions.create(model="tiny", prompt="a", max_tokens=1,
                                         extra_body={"prompt_cache_diagnostics": True})
    assert short.prompt_cache_diagnostics["ingot"]["reason"] == "disabled"
    until_rows(d, 2)
    assert all(r["cache_reason"] == "disabled" for r in rows(d))
    assert "the prefix cache is off" in cache(d)
