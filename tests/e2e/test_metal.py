"""The daemon with `runtime.driver: metal`, on the double of Apple's API over the software
device.  The double ends the daemon at the first breach of Apple's rules."""
import concurrent.futures
import os
import re

import pytest

import daemon as ingot
import mtp_model
from conftest import Starter, configuration
from test_adapters import adapter, entry
from test_embeddings import GOLDEN, ROWS, TEXTS
from test_engine import ask_all
from test_speculation import ask, choices
from test_states import at_work, recurrent

PROGRAM = ingot.BUILD / "tests" / "metal" / "ingotd-metal"
CHECKED = ingot.BUILD / "tests" / "metal" / "ingotd-metal-checked"
MODEL = os.environ.get("INGOT_TEST_MODEL", "")

# A sanitizer does not follow the software device's fibers.
pytestmark = [pytest.mark.home("release"),
              pytest.mark.skipif(not PROGRAM.exists(), reason="this build has no double of Metal"),
              pytest.mark.skipif(bool(ingot.SANITIZER), reason="fibers under a sanitizer")]

METAL = {"runtime": {"driver": "metal"}}


@pytest.fixture(scope="module")
def on_metal(tmp_path_factory, models):
    folder = tmp_path_factory.mktemp("metal")
    s = Starter(folder)
    d = s(config=configuration(folder, extra=ingot.merged(METAL, {"models": [
        {"name": "tiny", "path": models.script()}, {"name": "random", "path": models.random()},
        {"name": "q8_0", "path": models.random(), "kv_dtype": "q8_0"},
        {"name": "q8_0/f16", "path": models.random(), "kv_dtype": "q8_0/f16"}]})),
        program=PROGRAM)
    yield d
    d.until_idle()
    s.finish()



def test_it_says_what_computes(on_metal):
    said = on_metal.http("GET", "/v1/ingot/status").json
    assert said["driver"] == "metal"
    assert said["device"].startswith("metal, Software M1")


def test_states(tmp_path, models):
    """Recurrent layers, with steps in flight: two agents that begin alike have the texts of a daemon without a cache."""
    texts = []
    for cache in True, False:
        s = Starter(tmp_path / str(cache))
        try:
            d = s(recurrent(models), extra=ingot.merged(METAL, {"kvcache": {"prefix_cache": cache}}), program=PROGRAM)
            agents = at_work(d, 2, 2)
            texts.append([a.texts for a in agents])
            assert all((n_cached >= 0.95 * n) == cache for a in agents for n, n_cached in a.turns[1:])
        finally:
            s.finish()
    assert texts[0] == texts[1]


def test_a_head_that_guesses(tmp_path):
    """With steps in flight: some guesses are right, and the text is that without."""
    path = mtp_model.write(tmp_path / "random.gguf", kind="random", n_context=512)
    texts = []
    for speculation in "off", "mtp":
        s = Starter(tmp_path / speculation)
        try:
            d = s(extra=ingot.merged(METAL, {"models": [{"name": "tiny", "path": path}],
                                             "scheduler": {"speculation": speculation}}), program=PROGRAM)
            assert ("it guesses tokens by a head of its own" in d.log) == (speculation == "mtp")
            requests = [{"messages": [{"role": "user", "content": "the user %d" % i}], "max_tokens": 60, "seed": i,
                         "temperature": i, "ignore_eos": True} for i in range(2)]
            texts.append(choices([ask(d, **r) for r in requests]))
        finally:
            s.finish()
    assert texts[0] == texts[1]


def test_repacked_weights(tmp_path, models):
    """Weights in tiles by option: said, and the text is the same."""
    texts = []
    for repack in "never", "always":
        s = Starter(tmp_path / repack)
        try:
            d = s(models.random(), extra=ingot.merged(METAL, {"runtime": {"repack": repack}}), program=CHECKED)
            said = d.http("GET", "/v1/ingot/status").json["device"]
            assert ("weights repacked" if repack == "always" else "weights not repacked") in said
            texts.append(choices([ask(d, max_tokens=8, temperature=0, messages=[{"role": "user", "content": "hello"}])]))
        finally:
            s.finish()
    assert texts[0] == texts[1]


def test_tensor_units(tmp_path, models):
    """A GPU that has them: said, and a text is the same alone as beside others.  By option they are not used."""
    texts = {}
    for units in "auto", "never":
        s = Starter(tmp_path / units)
        try:
            d = s(models.random(), extra=ingot.merged(METAL, {"runtime": {"tensor_units": units}}), program=CHECKED,
                  env={"INGOT_FAKE_CHIP": "M5"})
            said = d.http("GET", "/v1/ingot/status").json["device"]
            assert said.startswith("metal, Software M5") and ("tensor units" in said) == (units == "auto")
            requests = [{"messages": [{"role": "user", "content": "hello %d" % i}], "max_tokens": 8, "seed": i,
                         "temperature": 1} for i in range(4)]
            texts[units] = choices([ask(d, **r) for r in requests])
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                assert choices(list(pool.map(lambda r: ask(d, **r), requests))) == texts[units]
        finally:
            s.finish()
    assert len(set(map(str, texts["auto"]))) == 4


def test_the_default_budget(tmp_path, models):
    """Less than Metal recommends, and not what is configured for the CPU."""
    s = Starter(tmp_path)
    try:
        d = s(models.script(), extra=ingot.merged(METAL, {"memory": {"budget": 0}}), program=PROGRAM,
              env={"INGOT_FAKE_WORKING_SET": str(1 << 30)})
        memory = d.http("GET", "/v1/ingot/status").json["memory"]
        assert memory["budget_bytes"] == 768 << 20
        assert "the GPU's limit is 1.00" in d.log
    finally:
        s.finish()


def test_memory_pressure(tmp_path, models):
    """What the system says frees idle cache, then idle models; with the next request they are there again."""
    pipe = tmp_path / "pressure"
    os.mkfifo(pipe)
    s = Starter(tmp_path)
    try:
        d = s(config=configuration(tmp_path, extra=ingot.merged(METAL, {"models": [
            {"name": "kept", "path": models.script(), "pin": True}, {"name": "idle", "path": models.random()}]})),
            program=PROGRAM, env={"INGOT_FAKE_PRESSURE": str(pipe)})

        def states():
            return {m["id"]: m["state"] for m in d.http("GET", "/v1/ingot/models").json["data"]}
        said = d.chat_text("hello", model="idle", max_tokens=16, temperature=0)
        d.chat_text("hello", model="kept", max_tokens=16)
        d.until_idle()
        assert d.metrics().sum("ingot_kv_cache_cached_bytes") > 0
        assert states() == {"kept": "ready", "idle": "ready"}
        pipe.write_text("4\n")  # critical: a quarter of the working set
        ingot.until(lambda: states()["idle"] == "unloaded", "the idle model is unloaded")
        assert states()["kept"] == "ready" and d.metrics().sum("ingot_memory_pressure_total") == 1
        assert d.metrics().sum("ingot_kv_cache_cached_bytes") == 0 and d.metrics().sum("ingot_model_unloads_total") == 1
        assert "the system is short of memory" in d.log
        assert d.chat_text("hello", model="idle", max_tokens=16, temperature=0) == said
    finally:
        s.finish()


@pytest.mark.parametrize("keep", ["100ms", "0s", "1h"])
def test_keep_wired(tmp_path, models, keep):
    """So long after a step memory stays wired, and the next step wires it again; with 0 the system alone decides."""
    s = Starter(tmp_path)
    try:
        d = s(models.script(), extra=ingot.merged(METAL, {"runtime": {"keep_wired": keep}}), program=PROGRAM,
              env={"INGOT_FAKE_WIRED": "1"})

        def wired():
            return [int(n) for n in re.findall(r"the double: (\d+) residency sets are wired", d.log)]

        def times():
            """That memory was wired when it was not."""
            return sum(n > 0 and not before for before, n in zip([0] + wired(), wired()))

        def is_unwired():
            return not wired() or wired()[-1] == 0
        for _ in range(2):
            if keep == "100ms":
                ingot.until(is_unwired, "memory is unwired when nothing happens")
            before = times()
            d.chat_text("hello", max_tokens=4)
            if keep == "100ms":
                ingot.until(lambda: times() > before, "a step wires it")
            elif keep == "1h":
                ingot.until(times, "memory is wired")
        d.until_idle()
        if keep == "100ms":
            ingot.until(is_unwired, "memory is unwired in the end")
        else:
            assert times() == (keep == "1h") and is_unwired() == (keep == "0s")
    finally:
        s.finish()


def test_an_answer(on_metal):
    from tiny_model import SCRIPT
    assert on_metal.chat_text("hello", max_tokens=64) == SCRIPT


@pytest.mark.parametrize("model", ["random", "q8_0", "q8_0/f16"])
def test_alone_and_in_a_crowd(on_metal, model):
    requests = [{"content": "request %d " % i * (1 + 5 * (i % 4)), "model": model,
                 "max_output_tokens": 12, "temperature": i % 2, "seed": i} for i in range(16)]
    alone = [ask_all(on_metal, [r])[0] for r in requests]
    assert len(set(alone)) > 8
    assert ask_all(on_metal, requests) == alone


def test_vectors(tmp_path):
    """With the usual activations, float16 beside weights of F16: near sentence-transformers', and the same bits alone as
    beside others."""
    s = Starter(tmp_path)
    try:
        d = s(config=configuration(tmp_path, extra=ingot.merged(METAL, {"models": [
            {"name": "bert", "path": str(GOLDEN / "bert.gguf")}]})), program=PROGRAM)

        def vectors(texts):
            body = d.http("POST", "/v1/embeddings", {"model": "bert", "input": texts}).json
            return [e["embedding"] for e in body["data"]]
        together = vectors(TEXTS)
        assert max(abs(x - y) for a, r in zip(together, ROWS) for x, y in zip(a, r[2])) <= 1e-3
        assert [vectors([t])[0] for t in TEXTS] == together
        assert vectors(TEXTS[::-1]) == together[::-1]
    finally:
        s.finish()


def test_adapters(tmp_path, models):
    """In one batch, under the checks of every byte that a dispatch touches: the base's answers are those without
    adapters, and all are the same alone."""
    s = Starter(tmp_path)
    two = entry(models, ("one", adapter(tmp_path / "one")), ("two", adapter(tmp_path / "two", seed=2, rank=7)))
    requests = [{"content": "request %d" % i, "model": name, "max_output_tokens": 4, "temperature": i % 2, "seed": i}
                for i in range(2) for name in ("tiny", "tiny:one", "tiny:two")]
    try:
        d = s(models.random(), extra=METAL, program=PROGRAM)
        plain = [ask_all(d, [r])[0] for r in requests if r["model"] == "tiny"]
        d.stop()
        d = s(extra=ingot.merged(METAL, {"models": [two]}), program=CHECKED)
        alone = [ask_all(d, [r])[0] for r in requests]
        assert alone[::3] == plain and len(set(alone)) == len(alone)
        assert ask_all(d, requests) == alone
    finally:
        s.finish()


@pytest.mark.parametrize("dtype", ["f16", "q8_0"])
def test_every_barrier_stands(tmp_path, models, dtype):
    """Checked shaders: the double sees every byte that a dispatch touches."""
    s = Starter(tmp_path)
    try:
        d = s(models.random(), extra=ingot.merged(METAL, {"kvcache": {"dtype": dtype}}),
              program=CHECKED)
        requests = [{"content": "request %d " % i * (1 + 20 * i), "max_output_tokens": 4,
                     "temperature": i % 2, "seed": i} for i in range(4)]
        alone = [ask_all(d, [r])[0] for r in requests]
        assert ask_all(d, requests) == alone
    finally:
        s.finish()


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    s = Starter(tmp_path_factory.mktemp("metal-real"))
    d = s(MODEL, extra=METAL, program=PROGRAM)
    yield d
    s.finish()


@pytest.mark.real
def test_a_real_model(real):
    body = {"model": "tiny", "temperature": 0, "max_tokens": 8,
            "messages": [{"role": "user", "content": "What is the capital of France?"}]}
    r = real.http("POST", "/v1/chat/completions", body, timeout=300)
    assert r.status == 200, r
    assert "Paris" in r.json["choices"][0]["message"]["content"]


@pytest.mark.real
def test_a_real_model_in_a_crowd(real):
    requests = [{"content": "Tell me about the number %d." % i, "max_output_tokens": 4,
                 "temperature": 0.8 * (i % 2), "seed": i} for i in range(9)]  # more than eight rows
    alone = [ask_all(real, [r])[0] for r in requests[:2]]
    assert ask_all(real, requests)[:2] == alone
