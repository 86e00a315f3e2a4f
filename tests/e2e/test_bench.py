"""bench/predecessor and what it makes its models with: real shapes, fewer layers; bench/agents; bench/beside."""
import json
import os
import pathlib
import re
import struct
import subprocess

import pytest

import daemon as ingot

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.release


@pytest.mark.parametrize("shape, kind", [("gpt2", "Q4_K"), ("tinyllama", "Q4_0"),
                                         ("qwen3-30b-a3b", "Q4_0"), ("qwen3-30b-a3b", "Q4_K")])
def test_random_models_step(tmp_path, shape, kind):
    """A made file has the shape's weights, and two runs of it take the same bytes."""
    path = tmp_path / "m.gguf"
    subprocess.run([ROOT / "bench/random_model.py", shape, path, "--type", kind, "--layers", "1", "--experts", "16"],
                   check=True)
    out = subprocess.run([ingot.BUILD / "bench/ingot-bench", path, "--prompt", "3", "--decode",
                          "2", "--rounds", "1", "--streams", "1,3", "--json"], check=True,
                         capture_output=True, text=True).stdout
    one, three = map(json.loads, out.splitlines())
    assert (one["streams"], three["streams"]) == (1, 3)
    assert one["decode"]["tokens"] == 2 and three["decode"]["tokens"] == 6
    assert one["prefill"]["tokens"] == 3 and three["prefill"]["tokens"] == 9
    per_weight = {"Q4_0": 18 / 32, "Q4_K": 144 / 256}[kind]
    macs = one["linear_macs"] + one["logits_macs"] # of a row; routers and biases are float32
    assert one["step_bytes"] == pytest.approx(per_weight * macs, rel=0.02)
    idle = per_weight * 3 * 768 * 2048 * (16 - 8) if shape == "qwen3-30b-a3b" else 0
    assert one["file_bytes"] == pytest.approx(one["step_bytes"] + idle, rel=1e-6)


@pytest.mark.parametrize("shape, layers, of", [("gpt-oss-20b", 2, "MXFP4"), ("qwen3.5-35b-a3b", 4, "Q4_K"), ("gemma-4-26b-a4b", 6, "Q5_0"),
                                              ("nemotron-3-nano", 6, "Q5_0")])
def test_shapes_of_2026_step(tmp_path, shape, layers, of):
    """So many layers have all kinds of the shape's; `of` is the type of its experts, or of their down (rows of no whole
    blocks); experts and tokens are as few as asked for."""
    path = tmp_path / "m.gguf"
    subprocess.run([ROOT / "bench/random_model.py", shape, path, "--type", "Q4_K", "--layers", str(layers), "--experts", "10",
                    "--vocab", "300"], check=True)
    with path.open("rb") as f:
        raw = f.read(1 << 20)
    embed, down = (raw.index(name) + len(name) for name in (b"token_embd.weight", b"ffn_down_exps.weight"))
    assert struct.unpack_from("<QQ", raw, embed + 4)[1] == 300
    n, _, _, experts, number = struct.unpack_from("<IQQQI", raw, down)
    assert (n, experts) == (3, 10) and number == {"MXFP4": 39, "Q5_0": 6, "Q4_K": 12}[of]
    folders = sorted({str(p.parent) for p in (ingot.BUILD / "modules").rglob("*.so")})
    out = subprocess.run([ingot.BUILD / "bench/ingot-bench", path, "--prompt", "3", "--decode", "2", "--rounds", "1", "--json"],
                         check=True, capture_output=True, text=True, env={**os.environ, "INGOT_MODULE_PATH": ":".join(folders)}).stdout
    assert json.loads(out)["decode"]["tokens"] == 2


def test_memory_of_a_stream(tmp_path):
    """docs/performance.md has what the doctor says of files without values, which are as long as others."""
    path, whole = tmp_path / "m.gguf", ["--type", "Q4_K", "--layers", "2", "--experts", "8", "--vocab", "256"]
    sizes = []
    for empty in ([], ["--empty"]):
        subprocess.run([ROOT / "bench/random_model.py", "gpt-oss-20b", path, *whole, *empty], check=True)
        sizes.append(path.stat().st_size)
    assert sizes[0] == sizes[1] and path.stat().st_blocks * 512 < sizes[0] / 4
    rows = re.findall(r"^\| ([a-z0-9.-]+) \| (none|[0-9.]+ MiB) \| ([0-9.]+ [MG]iB) \| ([0-9.]+ [MG]iB) \|$",
                      (ROOT / "docs/performance.md").read_text(), re.M)
    assert len(rows) == 9
    for shape, *row in rows:
        subprocess.run([ROOT / "bench/random_model.py", shape, path, "--type", "Q4_K", "--empty"], check=True)
        says = subprocess.run([ingot.BUILD / "cli/ingot", "doctor", path], capture_output=True, text=True,
                              env={**os.environ, "HOME": str(tmp_path)}).stdout
        state = re.search(r"memory: (\S+ MiB) of state", says)
        caches = [re.search(r"context %d: (\S+ \w+) of cache for one sequence" % n, says)[1] for n in (32768, 131072)]
        assert [state[1] if state else "none", *caches] == row, shape


@pytest.mark.real
def test_random_models_answer_in_words(tmp_path, start):
    """With a tokenizer the file is served like any model, and says nothing but words; its context is the one asked for."""
    path = tmp_path / "m.gguf"
    subprocess.run([ROOT / "bench/random_model.py", "tinyllama", path, "--type", "Q4_K", "--layers", "1", "--context", "777",
                    "--tokenizer", os.environ["INGOT_TEST_MODEL"]], check=True)
    d = start(str(path))
    reply = d.http("POST", "/v1/chat/completions", {
        "model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 30, "temperature": 0}).json
    answer = reply["choices"][0]
    assert answer["finish_reason"] == "length" and reply["usage"]["completion_tokens"] == 30
    assert re.fullmatch("[A-Za-z ]+", answer["message"]["content"])
    limit = d.http("POST", "/v1/chat/completions", {"model": "tiny", "messages": [{"role": "user", "content": "word " * 1000}]})
    assert limit.status == 400 and " 777 " in limit.json["error"]["message"]
    bad = subprocess.run([ROOT / "bench/random_model.py", "tinyllama", path, "--tokenizer", __file__], capture_output=True, text=True)
    assert bad.returncode == 1 and "is no GGUF file" in bad.stderr


def test_predecessor(tmp_path):
    """Its tables have our figures at every number of streams beside the predecessor's."""
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run([ROOT / "bench/predecessor", "--shapes", "gpt2", "--layers", "1",
                          "--prompt", "4", "--decode", "2", "--build", ingot.BUILD, "--work",
                          tmp_path, "--foreign", "1000", "--json", tmp_path / "r.json"],
                         capture_output=True, text=True, env=env)
    assert run.returncode == 0, run.stderr
    rows = [[c.strip() for c in line.strip("|").split("|")]
            for line in run.stdout.splitlines() if line.startswith("|")]
    assert rows[0] == ["tok/s, all streams together", "1", "2", "4", "8", "16"]
    names = [r[0] for r in rows[2:]]
    assert names == ["ingot, decode", "ingot, prefill", "roofline, decode",
                     "predecessor, decode, PyTorch"]
    assert rows[-1][1:] == ["42.0", "–", "–", "–", "–"]
    samples = json.loads((tmp_path / "r.json").read_text())["gpt2"]["ingot"]
    for n in (1, 2, 4, 8, 16):
        assert len(samples["decode %d" % n]) == 1 and samples["decode %d" % n][0] > 0
    assert run.stdout.splitlines()[2].startswith("GPT-2 124M, Q4_0, cpu")


def test_predecessor_refuses(tmp_path):
    run = subprocess.run([ROOT / "bench/predecessor", "--shapes", "gpt2,gpt5", "--build",
                          ingot.BUILD, "--work", tmp_path], capture_output=True, text=True)
    assert run.returncode and "there is no shape gpt5; known: tinyllama" in run.stderr


def agents(model, path, *args):
    run = subprocess.run([ROOT / "bench/agents", "--model", model, "--build", ingot.BUILD, "--tokens", "4000", "--json", path,
                          *args], capture_output=True, text=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    assert run.returncode in (0, 1), run.stderr
    return run, json.loads(path.read_text())


def test_agents(models, tmp_path):
    """Codex on a socket and over HTTP and Claude Code: from the second turn on nearly all is in the cache; without
    the rules of kvcache.normalize Claude Code's is not."""
    model = models(kind="tools", n_context=16384)
    run, got = agents(model, tmp_path / "a.json", "--agents", "3", "--turns", "3")
    assert run.returncode == 0, run.stdout
    assert [a["agent"] for a in got] == ["CodexSocket", "ClaudeCode", "Codex"]
    for a in got:
        assert a["error"] is None and len(a["turns"]) == 3
        sizes = [t["prompt_tokens"] for t in a["turns"]]
        assert 4000 < sizes[0] < sizes[1] < sizes[2]
        assert all(t["cached_tokens"] >= 0.95 * t["prompt_tokens"] for t in a["turns"][1:])
        assert "%.1f %% of %d" % (100 * a["turns"][2]["cached_tokens"] / sizes[2], sizes[2]) in run.stdout
    run, got = agents(model, tmp_path / "b.json", "--agents", "2", "--turns", "2", "--without-rules")
    assert run.returncode == 1 and "NOT" in run.stdout
    assert [a["turns"][1]["cached_tokens"] > 0.95 * a["turns"][1]["prompt_tokens"] for a in got] == [True, False]


@pytest.mark.parametrize("speculation", ["on", "off", "often"])
def test_beside(models, tmp_path, speculation):
    """A stream beside two prompts, with and without guesses at its next tokens; another word is refused."""
    path, build, config = tmp_path / "beside.json", tmp_path / "build", tmp_path / "config"
    (build / "daemon").mkdir(parents=True)
    (build / "modules").symlink_to(ingot.BUILD / "modules")
    started = build / "daemon/ingotd"   # ingotd --config FILE: keeps the file, which the bench deletes
    started.write_text('#!/bin/sh\ncp "$2" "%s" && exec "%s" "$@"\n' % (config, ingot.BUILD / "daemon/ingotd"))
    started.chmod(0o755)
    run = subprocess.run([ROOT / "bench/beside", "--build", build, "--model", models(), "--words", "40", "--prompts", "2",
                          "--rounds", "1", "--alone", "1", "--foreign", "100", "--speculation", speculation, "--json", path],
                         capture_output=True, text=True)
    if speculation == "often":
        assert run.returncode == 2 and "--speculation: invalid choice: 'often'" in run.stderr
        return
    assert run.returncode == 0, run.stderr
    assert json.loads(config.read_text())["scheduler"] == {"speculation": speculation}
    (got,) = json.loads(path.read_text()).values()
    assert all(len(of) == 1 and of[0] > 0 for of in got.values()), got
    assert "1 streams, 2 prompts of 40 words" in run.stdout
