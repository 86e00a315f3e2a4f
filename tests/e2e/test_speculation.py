"""scheduler.speculation: drafts change no token, whatever is asked for; where they are seen; prediction; draft models."""
import concurrent.futures
import os

import pytest

from conftest import Starter
from daemon import until
from test_ledger import until_rows
from test_options import reload

pytestmark = pytest.mark.home("release")

MODEL = os.environ.get("INGOT_TEST_MODEL", "")
CHAT = "/v1/chat/completions"
DRAFTS = ["ingot_spec_decode_num_%s_total" % s for s in ("drafts", "draft_tokens", "accepted_tokens")]
CODE = "def area(width, height):\n    return width * height\n\n\ndef edge(width, height):\n    return 2 * (width + height)\n"
PROSE = "A farmer has a fox, a goose and a sack of corn. "


def drafts(d, **labels):
    m = d.metrics()
    return [m.sum(name, **labels) for name in DRAFTS]


def ask(d, **request):
    r = d.http("POST", CHAT, dict({"max_tokens": 60, "messages": [{"role": "user", "content": "hi"}]}, **request))
    assert r.status == 200, r
    return r.json


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    s = [Starter(tmp_path_factory.mktemp(value)) for value in ("off", "on")]
    yield [one(MODEL, {"scheduler": {"speculation": value}}) for one, value in zip(s, ("off", "on"))]
    for one in s:
        one.finish()


def requests():
    """With everything that sampling knows, on texts that repeat themselves and that do not."""
    schema = {"type": "array", "minItems": 4, "maxItems": 6, "items": {
        "type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "legs": {"type": "integer"}},
        "required": ["name", "legs"], "additionalProperties": False}}
    code, prose = ([{"role": "user", "content": text}] for text in (
        "Write this file again, with height renamed to depth:\n" + 2 * CODE, PROSE * 3 + "Write this again."))
    return [
        {"messages": code, "temperature": 0, "max_tokens": 120},
        {"messages": code, "temperature": 0.7, "seed": 5, "prediction": {"type": "content", "content": CODE}},
        {"messages": prose, "temperature": 0, "logprobs": True, "top_logprobs": 3},
        {"messages": prose, "temperature": 0.9, "seed": 11, "frequency_penalty": 0.3, "repetition_penalty": 1.1},
        {"messages": prose, "temperature": 0.3, "seed": 2, "stop": ["corn", "goose."], "logit_bias": {"100": 4}},
        {"messages": prose, "temperature": 0.5, "seed": 3, "max_tokens": 150, "logprobs": True,
         "response_format": {"type": "json_schema", "json_schema": {"name": "animals", "strict": True, "schema": schema}}},
        {"messages": code, "temperature": 0, "ignore_eos": True, "max_tokens": 90},
    ]


def choices(answers):
    return [[{k: v for k, v in c.items()} for c in a["choices"]] for a in answers]


@pytest.mark.real
def test_the_same_text(both):
    off, on = both
    plain = [ask(off, **r) for r in requests()]
    assert drafts(off) == [0, 0, 0]
    alone = [ask(on, **r) for r in requests()]
    with concurrent.futures.ThreadPoolExecutor(len(plain)) as pool:
        together = list(pool.map(lambda r: ask(on, **r), requests()))
    assert choices(alone) == choices(plain)
    assert choices(together) == choices(plain)
    for a, b in zip(plain, alone):
        assert a["usage"]["completion_tokens"] == b["usage"]["completion_tokens"]
    n, n_tokens, n_right = drafts(on)
    assert 0 < n <= n_tokens and 0 < n_right <= n_tokens  # how many pays depends on what steps cost here
    rows = until_rows(on, 2 * len(plain))
    assert (sum(r["draft_tokens"] for r in rows), sum(r["accepted_tokens"] for r in rows)) == (n_tokens, n_right)
    off_rows = until_rows(off, len(plain))
    assert {(r["draft_tokens"], r["accepted_tokens"]) for r in off_rows} == {(0, 0)}


@pytest.mark.release
def test_it_is_reloadable_and_seen(start, models):
    """The model repeats itself, so drafts are right, and pay as soon as the machine is not too busy to measure that."""
    extra = {"models": [{"name": "loop", "path": models.slow()}]}
    d = start(extra=dict(extra, scheduler={"speculation": "off"}))
    text = ask(d, max_tokens=300)["choices"][0]["message"]["content"]
    assert drafts(d) == [0, 0, 0]
    reload(d, {"scheduler": {"speculation": "lookup"}}, "speculation: off -> lookup")

    def accepted():
        assert ask(d, max_tokens=300)["choices"][0]["message"]["content"] == text
        _, n, n_right = drafts(d)
        assert n_right <= n
        return n_right > 100
    until(accepted, "a hundred right drafts")
    c = d.ws()
    c.create("hi", model="loop")
    c.until_type("response.output_text.delta")
    listed = until(lambda: [r for r in d.http("GET", "/v1/ingot/requests").json["data"] if r["accepted_tokens"]], "accepted tokens")
    assert listed[0]["draft_tokens"] >= listed[0]["accepted_tokens"] <= listed[0]["output_tokens"]
    c.close()
    d.until_idle()


@pytest.mark.release
def test_draft_model(start, models):
    """One that says the same in a small part of the time is nearly always right, and is seen to be."""
    entry = {"name": "loop", "path": models.slow(), "draft": models.quick()}
    off = start(extra={"models": [{"name": "loop", "path": models.slow()}]})
    wanted = [ask(off, max_tokens=300, temperature=t, seed=3) for t in (0, 1)]
    size = off.http("GET", "/v1/models").json["data"][0]["weight_bytes"]
    off.stop()
    d = start(extra={"models": [entry], "scheduler": {"speculation": "draft"}})

    asked = []

    def accepted():
        for t, w in zip((0, 1), wanted):
            asked.append(ask(d, max_tokens=300, temperature=t, seed=3))
            assert choices(asked[-1:]) == choices([w])
        return drafts(d, source="model")[2] > 200
    until(accepted, "two hundred right drafts")
    _, n, n_right = drafts(d, source="model")
    assert n_right > 0.9 * n and drafts(d, source="lookup") == [0, 0, 0]
    d.until_idle()
    rows = until_rows(d, 2 + len(asked))  # with those of the other daemon
    assert sum(r["model_draft_tokens"] for r in rows) == n and sum(r["model_accepted_tokens"] for r in rows) == n_right
    assert {r["draft_tokens"] - r["model_draft_tokens"] for r in rows} == {0}
    m = d.metrics()
    gain = m.sum("ingot_spec_decode_saved_seconds_total") - m.sum("ingot_spec_decode_spent_seconds_total")
    assert abs(sum(r["draft_gain_ms"] for r in rows) - 1000 * gain) < 1
    assert d.http("GET", "/v1/models").json["data"][0]["weight_bytes"] > size
    reload(d, {"scheduler": {"speculation": "off"}}, "speculation: draft -> off")
    ask(d, max_tokens=100)
    assert drafts(d)[1] == n


def test_useless_draft_model(start, models):
    """Another random model is rarely right: no text changes, alone and together, and it is soon left alone."""
    requests = [{"temperature": t, "seed": seed, "max_tokens": 150, "ignore_eos": True} for t in (0, 1) for seed in (1, 2)]
    off = start(models.random(n_blocks=12))
    wanted = [ask(off, **r) for r in requests]
    off.stop()
    d = start(extra={"models": [{"name": "tiny", "path": models.random(n_blocks=12),
                                 "draft": models.random(n_blocks=1, seed=2)}],
                     "scheduler": {"speculation": "draft"}})
    assert choices([ask(d, **r) for r in requests]) == choices(wanted)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert choices(list(pool.map(lambda r: ask(d, **r), requests))) == choices(wanted)
    _, n, n_right = drafts(d, source="model")
    m = d.metrics()
    lost = m.sum("ingot_spec_decode_spent_seconds_total") - m.sum("ingot_spec_decode_saved_seconds_total")
    assert n > 0 and n_right < n / 4
    # how many that are depends on what steps cost here (test_draft_model.c counts); beside each token they cost half of it
    assert lost < m.sum("ingot_engine_step_seconds_sum") / 5


def test_refused_draft_models(start, models, tmp_path):
    linked = tmp_path / "linked.gguf"
    linked.symlink_to(models.script())
    for draft, text in ((str(tmp_path / "nowhere.gguf"), "model tiny: draft %s/nowhere.gguf: " % tmp_path),
                        (models(kind="thinks"), "it has another vocabulary: token "),
                        (str(linked), "model tiny: draft %s: it is the model itself" % linked),
                        (models.script(), "models[0].draft: it is the model itself")):
        log = start.refused(extra={"models": [{"name": "tiny", "path": models.script(), "draft": draft}]})
        assert text in log, log
    log = start.refused(extra={"models": [{"name": "tiny", "path": models.script(), "draft": models.random()}],
                               "memory": {"budget": 66 << 20}, "kvcache": {"arena": 65 << 20}})
    assert " of draft models, scratch " in log and "; set memory.budget or kvcache.arena" in log, log


@pytest.mark.real
def test_prediction(both):
    """The more of a prediction is right, the more of it is accepted; no prediction changes the text."""
    off, on = both
    what = {"messages": [{"role": "user", "content": "Name the planets of the sun."}], "temperature": 0.8, "seed": 9}
    text = ask(off, **what)["choices"][0]["message"]["content"]

    def details(d, prediction):
        a = ask(d, **what, **({"prediction": {"type": "content", "content": prediction}} if prediction is not None else {}))
        assert a["choices"][0]["message"]["content"] == text
        return a["usage"]["completion_tokens_details"]
    assert "accepted_prediction_tokens" not in details(on, None)

    def accepted(prediction):
        return details(on, prediction)["accepted_prediction_tokens"]
    until(lambda: accepted(text) > 20, "the text is accepted")
    until(lambda: accepted([{"type": "text", "text": text[:40]}, {"type": "text", "text": text[40:]}]) > 20, "its parts are")
    assert accepted("It was a bright cold day in April, and the clocks were striking.") <= 20
    assert details(off, text) == {"reasoning_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}


def test_wrong_predictions(start, models):
    d = start(models.script())
    for wrong, param in (("x", "prediction"), ({"type": "content"}, "prediction.content"), ({"content": "x"}, "prediction.type"),
                         ({"type": "file", "content": "x"}, "prediction.type"),
                         ({"type": "content", "content": 5}, "prediction.content"),
                         ({"type": "content", "content": "x " * 90000}, "prediction")):
        r = d.http("POST", CHAT, {"messages": [{"role": "user", "content": "hi"}], "prediction": wrong})
        assert (r.status, r.error["param"]) == (400, param), r
    assert ask(d, prediction={"type": "content", "content": ""})["choices"][0]["message"]["content"]
