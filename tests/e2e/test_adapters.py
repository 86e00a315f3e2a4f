"""LoRA adapters through the daemon: the base's answers are those of a daemon without adapters, whatever runs beside
them; an adapter's answers are its own, and the same alone; each has a cache of its own, in memory and on disk; what is
wrong is refused by name and place."""
import concurrent.futures
import json
import pathlib
import random
import signal
import struct

import pytest

from daemon import until

WORDS = " ".join("word%d and so on;" % i for i in range(40))
SHAPES = {"self_attn.q_proj": (128, 128), "self_attn.v_proj": (128, 64), "mlp.gate_proj": (128, 192),
          "mlp.down_proj": (192, 128)}


def adapter(folder, seed=1, rank=4, size=0.3, wide=0, alpha=8, **options):
    """A folder as PEFT writes it, for the tiny model of random weights; wide: values too many in a row of A."""
    rng, header, data = random.Random(seed), {}, b""
    for layer in range(2):
        for module, (n_in, n_out) in SHAPES.items():
            for name, shape in {"A": (rank, n_in + wide), "B": (n_out, rank)}.items():
                n = shape[0] * shape[1]
                values = struct.pack("<%df" % n, *(rng.gauss(0, size) for _ in range(n)))
                header["base_model.model.model.layers.%d.%s.lora_%s.weight" % (layer, module, name)] = {
                    "dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
                data += values
    folder = pathlib.Path(folder)
    folder.mkdir(exist_ok=True)
    text = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, **options}))
    return str(folder)


def entry(models, *adapters):
    return {"name": "tiny", "path": models.random(),
            "adapters": [{"name": n, "path": str(p)} for n, p in adapters]}


def ask(d, model="tiny", text="Who?", **options):
    """The answer, the length of the prompt, and how much of that was cached."""
    r = d.http("POST", "/v1/chat/completions", {
        "model": model, "max_tokens": 24, "temperature": 1, "seed": 7, "messages": [
            {"role": "system", "content": WORDS}, {"role": "user", "content": text}], **options})
    assert r.status == 200, r.body
    used = r.json["usage"]
    return (r.json["choices"][0]["message"]["content"], used["prompt_tokens"],
            used["prompt_tokens_details"]["cached_tokens"])


@pytest.fixture
def two(tmp_path, models):
    return entry(models, ("one", adapter(tmp_path / "one")), ("two", adapter(tmp_path / "two", seed=2, rank=7)))


NAMES = ["tiny", "tiny:one", "tiny:two"]


@pytest.mark.tsan
def test_in_one_batch(start, models, two):
    d = start(models.random())
    plain = {t: ask(d, text=t)[0] for t in ("Who?", "Why?", "How?")}
    d.stop()
    d = start(extra={"models": [two]})
    alone = {(m, t): ask(d, m, t)[0] for m in NAMES for t in plain}
    assert {t: alone["tiny", t] for t in plain} == plain
    assert all(len({alone[m, t] for m in NAMES}) == 3 for t in plain)
    d.stop()
    d = start(extra={"models": [two]})  # with nothing cached
    with concurrent.futures.ThreadPoolExecutor(len(alone)) as pool:
        together = dict(zip(alone, pool.map(lambda mt: ask(d, *mt)[0], alone)))
    assert together == alone
    d.until_idle()


def test_cache_of_each(start, two):
    d = start(extra={"models": [two]})
    first = {}
    for m in NAMES:  # each finds nothing of the others
        first[m] = ask(d, m)
        assert first[m][2] == 0, m
    for m in NAMES:
        text, n_prompt, n_cached = ask(d, m)
        assert n_prompt - 17 <= n_cached < n_prompt and text == first[m][0], m


def test_names(start, two):
    d = start(extra={"models": [two]})
    listed = d.http("GET", "/v1/models").json["data"]
    assert [m["id"] for m in listed] == NAMES and [m["default"] for m in listed] == [True, False, False]
    assert [m.get("adapter_of") for m in listed] == [None, "tiny", "tiny"]
    # memory is counted once, at the model's own name
    assert listed[0]["weight_bytes"] > 0 and {m["weight_bytes"] + m["scratch_bytes"] for m in listed[1:]} == {0}
    running = d.http("GET", "/api/ps").json["models"]
    assert [m["name"] for m in running] == NAMES and [bool(m["size"]) for m in running] == [True, False, False]
    assert [m["name"] for m in d.http("GET", "/v1/ingot/status").json["models"]] == ["tiny"]
    assert d.http("GET", "/v1/models/tiny:two").json["id"] == "tiny:two"
    for name in ("tiny:three", "tiny:", "one", "other:one"):
        r = d.chat(model=name)
        assert (r.status, r.error["code"]) == (404, "model_not_found"), r.body
        assert '"%s"; known: tiny, tiny:one, tiny:two' % name in r.error["message"]
        assert d.http("GET", "/v1/models/" + name).status == 404
    assert d.chat(model="tiny:one").json["model"] == "tiny:one"


def test_refused(start, models, tmp_path):
    wrong, nowhere = adapter(tmp_path / "wrong", wide=1), tmp_path / "nowhere"
    dora = adapter(tmp_path / "dora", use_dora=True)
    for path, texts in ((wrong, ["model tiny: adapter bad: ", "/wrong/adapter_model.safetensors: tensor \"base_model.",
                                 "takes 129 values", "of the base model 128"]),
                        (nowhere, ["model tiny: adapter bad: ", str(nowhere)]),
                        (dora, ["model tiny: adapter bad: ", "adapter_config.json: \"use_dora\" is not supported"])):
        log = start.refused(extra={"models": [entry(models, ("bad", path))]})
        assert not [t for t in texts if t not in log], log


def reload(d, models):
    n = len(d.log)
    d.write_config(dict(d.config, models=models))
    d.process.send_signal(signal.SIGHUP)
    until(lambda: "reload: " in d.log[n:], "the log says reload")


def answers(d, model):
    """The answer, once the adapter is there."""
    r = d.chat(model=model, seed=7, max_tokens=24)
    return r.json["choices"][0]["message"]["content"] if r.status == 200 else None


@pytest.mark.tsan
def test_reload(start, models, tmp_path, two):
    d = start(models.random())
    plain = answers(d, "tiny")
    assert d.chat(model="tiny:one").status == 404
    reload(d, [two])
    one = until(lambda: answers(d, "tiny:one"), "the adapter is loaded")
    assert answers(d, "tiny") == plain != one
    adapter(tmp_path / "one", seed=3)  # other numbers under the same name
    reload(d, [two])
    other = until(lambda: answers(d, "tiny:one") not in (one, None) and answers(d, "tiny:one"),
                  "the other numbers are loaded")
    assert other != plain and answers(d, "tiny") == plain
    # one that does not fit leaves what there is
    adapter(tmp_path / "one", seed=3, wide=1)
    n = len(d.log)
    reload(d, [two])
    until(lambda: "takes 129 values" in d.log[n:], "the log says what is wrong")
    assert answers(d, "tiny") == plain
    reload(d, [entry(models)])
    until(lambda: d.chat(model="tiny:one").status == 404, "it is gone")
    assert answers(d, "tiny") == plain


def test_scale(start, models, tmp_path):
    """Half of it is the adapter with half the alpha, and not the whole."""
    both = entry(models, ("one", adapter(tmp_path / "one", alpha=8)), ("half", adapter(tmp_path / "half", alpha=4)))
    d = start(extra={"models": [both]})
    one, half = answers(d, "tiny:one"), answers(d, "tiny:half")
    both["adapters"][0]["scale_percent"] = 50
    reload(d, [both])
    assert until(lambda: answers(d, "tiny:one") not in (one, None) and answers(d, "tiny:one"), "it is scaled") == half
    assert half != one


def test_blocks_on_disk(start, models, tmp_path, two):
    extra = {"kvcache": {"disk": str(tmp_path / "kv")}, "models": [two]}

    def disk(d):
        return d.http("GET", "/v1/ingot/status").json["kvcache"]["disk"]

    def begun():
        d = start(extra=extra)
        until(lambda: disk(d)["ready"], "the folder is known")
        return d

    d = begun()
    first, n_prompt, _ = ask(d, "tiny:one")
    until(lambda: disk(d)["blocks"] >= n_prompt // 16, "its blocks are saved")
    d.stop()
    d = begun()
    assert [ask(d, m)[2] for m in ("tiny", "tiny:two")] == [0, 0]
    again, _, n_cached = ask(d, "tiny:one")
    assert n_prompt - 17 <= n_cached < n_prompt and again == first
    d.stop()
    adapter(tmp_path / "one", seed=3)  # other numbers: none of its blocks
    d = begun()
    other, _, n_cached = ask(d, "tiny:one")
    assert n_cached == 0 and other != first
