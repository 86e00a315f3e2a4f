"""scheduler.speculation: mtp, a model's own head that guesses: no token changes, whatever is asked for; where it is seen."""
import concurrent.futures
import subprocess

import pytest

import daemon as ingot
import mtp_model
from daemon import until, yaml_text
from test_ledger import until_rows
from test_options import reload
from test_speculation import ask, choices, drafts

pytestmark = pytest.mark.home("release")


def start_with(start, path, speculation, **scheduler):
    return start(extra={"models": [{"name": "tiny", "path": path}],
                        "scheduler": dict(scheduler, speculation=speculation)})


@pytest.mark.release
def test_right_guesses(start, tmp_path):
    """A head that is always right: fewer steps for the same text, greedy and sampled, in ledger and metrics."""
    path = mtp_model.write(tmp_path / "right.gguf", kind="loop", n_blocks=8, width=256, n_ff=512, n_context=4096)
    off = start_with(start, path, "off")
    wanted = [ask(off, max_tokens=150, temperature=t, seed=3) for t in (0, 1)]
    assert drafts(off) == [0, 0, 0]
    off.stop()
    d = start_with(start, path, "mtp")
    assert "model tiny: it guesses tokens by a head of its own (MTP)" in d.log and "left out" not in d.log
    for value, said in ("mtp", "guesses tokens by a head of its own"), ("lookup", "left out: 14 tensors of the prediction"):
        r = subprocess.run([ingot.BUILD / "cli/ingot", "doctor", path], capture_output=True, text=True,
                           env=ingot.clean_env(tmp_path, {"INGOT_SCHEDULER_SPECULATION": value}), timeout=ingot.DEADLINE_S)
        assert said in r.stdout, r
    asked = []

    def accepted():
        for t, w in zip((0, 1), wanted):
            asked.append(ask(d, max_tokens=150, temperature=t, seed=3))
            assert choices(asked[-1:]) == choices([w])
        return drafts(d, source="mtp")[2] > 100
    until(accepted, "a hundred right guesses")
    n_drafts, n, n_right = drafts(d, source="mtp")
    assert n_drafts == n >= n_right > 0.9 * n
    assert drafts(d, source="lookup") == drafts(d, source="model") == [0, 0, 0]
    d.until_idle()
    rows = until_rows(d, 2 + len(asked))  # with those of the other daemon
    assert sum(r["mtp_draft_tokens"] for r in rows) == n and sum(r["mtp_accepted_tokens"] for r in rows) == n_right
    assert {r["draft_tokens"] - r["mtp_draft_tokens"] for r in rows} == {0}
    m = d.metrics()
    gain = m.sum("ingot_spec_decode_saved_seconds_total") - m.sum("ingot_spec_decode_spent_seconds_total")
    assert abs(sum(r["draft_gain_ms"] for r in rows) - 1000 * gain) < 1
    reload(d, {"scheduler": {"speculation": "off"}}, "speculation: mtp -> off")
    ask(d, max_tokens=100)
    assert drafts(d, source="mtp")[1] == n


def test_wrong_guesses(start, tmp_path):
    """A head that is always wrong changes nothing, and is soon left alone."""
    path = mtp_model.write(tmp_path / "wrong.gguf", kind="loop", wrong=True, n_context=4096)
    off = start_with(start, path, "off")
    wanted = ask(off, max_tokens=400)
    assert "left out: 15 tensors of the prediction of further tokens (MTP)" in off.log
    off.stop()
    d = start_with(start, path, "mtp")
    for _ in range(3):
        assert choices([ask(d, max_tokens=400)]) == choices([wanted])
    _, n, n_right = drafts(d, source="mtp")
    assert n_right == 0 and n < 200


def requests():
    schema = {"type": "array", "minItems": 2, "maxItems": 3, "items": {"type": "integer"}}
    return [dict({"messages": [{"role": "user", "content": "the user and the system %d" % (i % 2)}], "max_tokens": 80,
                  "seed": i, "ignore_eos": True}, **more) for i, more in enumerate((
                      {"temperature": 0}, {"temperature": 1}, {"temperature": 0.8, "logprobs": True, "top_logprobs": 2},
                      {"temperature": 0.7, "frequency_penalty": 0.4}, {"temperature": 0},
                      {"temperature": 0.5, "ignore_eos": False, "response_format": {
                          "type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": schema}}}))]


@pytest.mark.parametrize("arch", ["glm4moe", "qwen35"])
def test_the_same_text(start, tmp_path, arch):
    """A random model, whose head is sometimes right: every token depends on all before it.  Alone, together, with
    prefixes that are found, and where requests are preempted for lack of memory."""
    path = mtp_model.write(tmp_path / "random.gguf", arch, kind="random", n_context=512)
    off = start_with(start, path, "off")
    plain = [ask(off, **r) for r in requests()]
    off.stop()
    small = {"arena": "1MiB", "slab": "64KiB"} if arch == "glm4moe" else {"arena": "5MiB", "slab": "128KiB"}
    for more in ({}, {"kvcache": small}):
        d = start(extra=dict({"models": [{"name": "tiny", "path": path}], "scheduler": {"speculation": "mtp"}}, **more))
        assert choices([ask(d, **r) for r in requests()]) == choices(plain)
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            together = list(pool.map(lambda r: ask(d, **r), 2 * requests()))
        assert choices(together) == choices(2 * plain)
        assert drafts(d, source="mtp")[1] > 0
        d.stop()


def test_folder(start, tmp_path):
    """A folder's head guesses as the GGUF file's with the same numbers does, and that of a file that is made of it."""
    options = {"kind": "random", "n_context": 512}
    paths = [mtp_model.write(tmp_path / "tiny.gguf", dtype="F16", **options),
             mtp_model.write_folder(tmp_path / "tiny", **options), str(tmp_path / "converted.gguf")]
    subprocess.run([ingot.BUILD / "cli/ingot", "convert", *paths[1:], "--type", "F16"], check=True, capture_output=True,
                   env=ingot.clean_env(tmp_path), timeout=10 * ingot.DEADLINE_S)
    off = start_with(start, paths[0], "off")
    plain = [ask(off, **r) for r in requests()]
    off.stop()
    for path in paths:
        d = start_with(start, path, "mtp")
        assert "model tiny: it guesses tokens by a head of its own (MTP)" in d.log and "left out" not in d.log
        assert choices([ask(d, **r) for r in requests()]) == choices(plain)
        assert drafts(d, source="mtp")[1] > 0
        d.stop()


def test_head_in_a_file(start, tmp_path):
    """A head in a file of its own, which the model's entry names as its draft."""
    path, head = mtp_model.write_parts(tmp_path, kind="random", n_context=512)
    off = start_with(start, path, "off")
    plain = [ask(off, **r) for r in requests()]
    assert "left out" not in off.log
    off.stop()
    entry = {"name": "tiny", "path": path, "draft": head}
    d = start(extra={"models": [entry], "scheduler": {"speculation": "mtp"}})
    assert "model tiny: it guesses tokens by a head of its own (MTP)" in d.log and "left out" not in d.log
    assert choices([ask(d, **r) for r in requests()]) == choices(plain)
    assert drafts(d, source="mtp")[1] > 0 and drafts(d, source="model")[1] == 0
    d.stop()
    config = tmp_path / "doctor.yaml"
    config.write_text(yaml_text({"models": [entry]}))
    r = subprocess.run([ingot.BUILD / "cli/ingot", "doctor", "--config", config], capture_output=True, text=True,
                       env=ingot.clean_env(tmp_path), timeout=ingot.DEADLINE_S)
    assert "guesses tokens by a head of its own" in r.stdout, r
    d = start(extra={"models": [entry], "scheduler": {"speculation": "lookup"}})
    assert "model tiny: draft %s: the head that guesses (MTP) is not used" % head in d.log
    assert choices([ask(d, **requests()[0])]) == choices(plain[:1])


def test_refused_heads(start, models, tmp_path):
    """Of another model, and of one that has its own."""
    path, head = mtp_model.write_parts(tmp_path, kind="random", n_context=512)
    for model, text in ((models.random(), "a head for architecture qwen35; the model's is llama"),
                        (mtp_model.write(tmp_path / "own.gguf", "qwen35", kind="random", n_context=512),
                         "the model has a head of its own already")):
        log = start.refused(extra={"models": [{"name": "tiny", "path": model, "draft": head}], "scheduler": {"speculation": "mtp"}})
        assert "model tiny: draft %s: %s: %s" % (head, head, text) in log, log
