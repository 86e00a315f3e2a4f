"""`ingot convert`: what it writes can be served, what it says is so, and what goes wrong leaves
nothing behind."""
import json
import pathlib
import random
import re
import resource
import signal
import struct
import subprocess
import sys
import time

import pytest

import daemon as ingot
import tiny_model
from tiny_model import SCRIPT

pytestmark = pytest.mark.home("release")

INGOT = str(ingot.BUILD / "cli" / "ingot")
ENCODE = ingot.BUILD / "tests" / "golden" / "encode_lines"


def convert(folder, *args, **options):
    return subprocess.run([INGOT, "convert", *map(str, args)], capture_output=True, text=True,
                          env=ingot.clean_env(folder), cwd=folder,
                          timeout=10 * ingot.DEADLINE_S, **options)


def converted(folder, *args):
    p = convert(folder, *args)
    assert p.returncode == 0, p.stderr
    return p.stdout


def report(folder, *args):
    return json.loads(converted(folder, *args, "--json"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A model in float32 that answers with SCRIPT, its rows long enough for all types."""
    path = tmp_path_factory.mktemp("plain") / "script.gguf"
    tiny_model.write(path, kind="script", dtype="F32", width=256, n_ff=512)
    return path


def large(path, spoiled=False):
    """A file of one matrix that takes a while: random codes under scales of one."""
    rows, cols = 4096, 4096
    blocks = bytearray(random.Random(1).randbytes(rows * cols // 32 * 34))
    blocks[0::34], blocks[1::34] = bytes(rows * cols // 32), b"\x3c" * (rows * cols // 32)
    if spoiled: # the third block of row 4000: infinity times one
        at = (4000 * cols // 32 + 2) * 34
        blocks[at:at + 3] = b"\x00\x7c\x01"
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 1)
    head += tiny_model.string("general.architecture") + tiny_model.value_bytes("str", "llama")
    head += tiny_model.string("blk.0.ffn_up.weight") + struct.pack("<IQQIQ", 2, cols, rows, 8, 0)
    path.write_bytes(head + bytes(-len(head) % 32) + blocks)


# ---- files that are served --------------------------------------------------------------


@pytest.mark.parametrize("name", ["F16", "Q8_0", "Q4_K_M", "IQ4_XS", "Q2_K"])
def test_a_converted_model_answers(name, plain, start, tmp_path):
    out = tmp_path / "out.gguf"
    converted(tmp_path, plain, out, "--type", name)
    d = start(str(out))
    assert d.chat_text() == SCRIPT


@pytest.mark.release
def test_float32_gives_the_same_answers(models, start, tmp_path):
    """Wider types hold the same weights, so a random model says the same."""
    source, out = models.random(), tmp_path / "wide.gguf"
    r = report(tmp_path, source, out, "-t", "F32")
    assert r["rmse"] == 0 and r["largest_error"] == 0
    said = []
    for i, path in enumerate((source, str(out))):
        exact = {"runtime": {"activations": "f32"}, "kvcache": {"dtype": "f32"},
                 "ledger": {"path": str(tmp_path / ("%d.db" % i))}}
        said.append(start(path, exact).chat_text("Tell me.", max_tokens=40))
    assert said[0] == said[1]


def safetensors(path, tensors):
    """[(name, shape, bytes)], all float32."""
    table, at = {}, 0
    for name, shape, data in tensors:
        table[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    head = json.dumps(table).encode()
    head += b" " * (-len(head) % 8)
    path.write_bytes(struct.pack("<Q", len(head)) + head + b"".join(t[2] for t in tensors))


HF = {"token_embd": "model.embed_tokens", "output": "lm_head", "output_norm": "model.norm",
      "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
      "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
      "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
      "ffn_down": "mlp.down_proj"}


def hf_folder(folder):
    """The scripted model as transformers would write it; its attention is all zeros, so the
    order of rows does not show."""
    m = tiny_model.Model(kind="script", dtype="F32")
    folder.mkdir()
    tensors = []
    for name, dims, _, data in m.tensors():
        parts = name.split(".")
        hf = HF[parts[-2]]
        if parts[0] == "blk":
            hf = "model.layers.%s.%s" % (parts[1], hf)
        tensors.append((hf + ".weight", dims[::-1], data))
    safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": m.n_vocab,
        "hidden_size": m.width, "intermediate_size": m.n_ff, "num_hidden_layers": m.n_blocks,
        "num_attention_heads": m.n_heads, "num_key_value_heads": m.n_kv_heads,
        "max_position_embeddings": m.n_context, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "float32"}))
    v = m.vocabulary
    n = len(tiny_model.CONTROL)
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": i, "content": t, "special": True, "single_word": False,
                          "lstrip": False, "rstrip": False, "normalized": False}
                         for i, t in enumerate(v.tokens[:n])],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": True}]},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False,
                  "byte_fallback": False, "vocab": {t: i for i, t in enumerate(v.tokens)},
                  "merges": v.merges}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "GPT2Tokenizer", "bos_token": v.tokens[tiny_model.IM_START],
        "eos_token": v.tokens[tiny_model.IM_END], "chat_template": m.template}))
    return v


def ids(path, text):
    p = subprocess.run([ENCODE, str(path)], input=struct.pack("<I", len(text)) + text,
                       capture_output=True, check=True)
    n, = struct.unpack_from("<I", p.stdout)
    return struct.unpack_from("<%di" % n, p.stdout, 4)


def test_a_folder_becomes_a_file(start, tmp_path):
    """Weights, configuration, vocabulary and chat template."""
    folder, out = tmp_path / "folder", tmp_path / "out.gguf"
    hf_folder(folder)
    r = report(tmp_path, folder, out, "--type", "Q8_0")
    assert {t["from"] for t in r["tensors"]} == {"F32"}
    assert {t["to"] for t in r["tensors"]} == {"F32", "Q8_0"}
    text = "Hello 1234, the user's\n\n  words: \u00e9\u4f60\U0001f600 <|im_end|>".encode() + b"\xff"
    assert ids(out, text) == ids(folder, text)
    assert start(str(out)).chat_text() == SCRIPT


def test_a_folders_architecture_is_a_modules(plain, tmp_path):
    """The configuration's modules say what is in a folder; a GGUF file needs none."""
    folder, out, config = tmp_path / "folder", tmp_path / "out.gguf", tmp_path / ".config/ingot"
    hf_folder(folder)
    (tmp_path / "none").mkdir()
    config.mkdir(parents=True)
    (config / "ingot.yaml").write_text("modules:\n  path: [%s]\n" % (tmp_path / "none"))
    p = convert(tmp_path, folder, out)
    assert p.returncode == 1 and '"llama": not supported; known: none' in p.stderr
    converted(tmp_path, plain, out)
    (config / "ingot.yaml").write_text("modules: 7\n")
    p = convert(tmp_path, folder, tmp_path / "other.gguf")
    assert p.returncode == 1 and "ingot.yaml:1" in p.stderr and "modules" in p.stderr


def test_a_vocabulary_that_keys_cant_say(tmp_path):
    """Refused, where else texts would silently become other ids."""
    folder, out = tmp_path / "folder", tmp_path / "out.gguf"
    hf_folder(folder)
    path = folder / "tokenizer.json"
    j = json.loads(path.read_text())
    j["normalizer"] = {"type": "Replace", "pattern": {"String": "e"}, "content": "a"}
    path.write_text(json.dumps(j))
    p = convert(tmp_path, folder, out)
    assert p.returncode == 1 and "can't be expressed in a GGUF file" in p.stderr
    assert sorted(f.name for f in tmp_path.iterdir()) == ["folder"]
    path.unlink()
    p = convert(tmp_path, folder, out)
    assert p.returncode == 0 and "has no tokenizer" in p.stderr


# ---- importance matrices, MXFP4, memory ---------------------------------------------------


def imatrix(path, entries):
    """llama.cpp's older format, of {name: squares}."""
    out = struct.pack("<i", len(entries))
    for name, squares in entries.items():
        out += struct.pack("<i", len(name)) + name.encode()
        out += struct.pack("<ii%df" % len(squares), 1, len(squares), *squares)
    path.write_bytes(out + struct.pack("<ii", 1, 7) + b"texts.t")
    return path


def test_an_importance_matrix(tmp_path):
    source = tmp_path / "random.gguf"
    tiny_model.write(source, kind="random", dtype="F32", width=256, n_ff=512)
    wide = [1 if i % 16 else 900 for i in range(256)]
    file = imatrix(tmp_path / "imatrix.dat", {"blk.%d.ffn_up.weight" % i: wide for i in (0, 1)})
    without = report(tmp_path, source, "without.gguf", "-t", "Q4_0")
    p = convert(tmp_path, source, "with.gguf", "-t", "Q4_0", "--imatrix", file, "--json")
    assert p.returncode == 0 and "weighted the errors of 2 of" in p.stderr
    weighted = json.loads(p.stdout)
    assert {t["name"] for t in weighted["tensors"] if t["weighted"]} == {
        "blk.0.ffn_up.weight", "blk.1.ffn_up.weight"}
    # the reported errors are not weighted, so they grow
    assert weighted["rmse"] > without["rmse"]
    assert not any(t["weighted"] for t in without["tensors"])
    assert b"quantize.imatrix.file" in (tmp_path / "with.gguf").read_bytes()


def test_an_importance_matrix_of_another_model(plain, tmp_path):
    for entries, said in (({"blk.7.ffn_up.weight": [1] * 256}, "has no tensor 'blk.7.ffn_up.weight'"),
                          ({"blk.0.ffn_up.weight": [1] * 128}, "has 128 values, but in ")):
        file = imatrix(tmp_path / "imatrix.dat", entries)
        p = convert(tmp_path, plain, "out.gguf", "--imatrix", file)
        assert p.returncode == 1 and said in p.stderr and "imatrix.dat" in p.stderr
    file.write_bytes(file.read_bytes()[:300])
    p = convert(tmp_path, plain, "out.gguf", "--imatrix", file)
    assert p.returncode == 1 and "is truncated" in p.stderr
    assert [f.name for f in tmp_path.iterdir()] == ["imatrix.dat"]


@pytest.mark.parametrize("name", ["Q8_0", "Q4_K_M", "Q2_K"])
def test_mxfp4_stays(name, tmp_path):
    """Experts that were trained in MXFP4, from a folder and from a file."""
    folder = pathlib.Path(__file__).resolve().parents[1] / "golden" / "arch" / "gptossmx"
    r = report(tmp_path, folder, "out.gguf", "-t", name)
    kept = [t for t in r["tensors"] if t["from"] == "MXFP4"]
    assert kept and all(t["to"] == "MXFP4" and t["bytes_before"] == t["bytes_after"] for t in kept)
    assert any(t["to"] != "MXFP4" and t["to"] != "F32" for t in r["tensors"])
    again = report(tmp_path, "out.gguf", "again.gguf", "-t", "Q6_K")
    assert {t["to"] for t in again["tensors"] if t["from"] == "MXFP4"} == {"MXFP4"}


@pytest.mark.release
def test_memory_is_less_than_a_tensor(tmp_path):
    """A sparse file whose only matrix, all experts of a layer, has 256 MB."""
    rows, cols, experts = 4096, 4096, 8
    source = tmp_path / "sparse.gguf"
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 1)
    head += tiny_model.string("general.architecture") + tiny_model.value_bytes("str", "llama")
    head += tiny_model.string("blk.0.ffn_up_exps.weight")
    head += struct.pack("<IQQQIQ", 3, cols, rows, experts, 1, 0)
    with open(source, "wb") as f:
        f.write(head + bytes(-len(head) % 32))
        f.truncate(f.tell() + 2 * rows * cols * experts)
    # Of a small process: what its parent has in memory counts as a child's, too, until it runs its program.
    measure = ("import os, subprocess, sys; p = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL);"
               "_, status, usage = os.wait4(p.pid, 0); print(usage.ru_maxrss); sys.exit(status != 0)")
    r = subprocess.run([sys.executable, "-c", measure, INGOT, "convert", source, tmp_path / "out.gguf", "-t", "Q4_0",
                        "--threads", "2"], env=ingot.clean_env(tmp_path), capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    most = int(r.stdout) * (1 if sys.platform == "darwin" else 1024)
    assert most < 100 << 20, most


# ---- what it says -----------------------------------------------------------------------


def test_the_report(plain, tmp_path):
    out = tmp_path / "out.gguf"
    r = report(tmp_path, plain, out, "-t", "q4_k_m", "--threads", "1")
    assert r["type"] == "Q4_K_M" and r["path"] == str(out)
    assert r["file_bytes"] == out.stat().st_size
    assert r["bytes_before"] > 4 * r["bytes_after"] > 0
    assert 4 < r["bits_per_weight"] < 8 and r["seconds"] > 0
    types = {t["name"]: t["to"] for t in r["tensors"]}
    assert types["blk.0.attn_norm.weight"] == "F32" and types["output.weight"] == "Q6_K"
    assert types["blk.0.attn_q.weight"] == "Q4_K"
    for key in ("bytes_before", "bytes_after"):
        assert sum(t[key] for t in r["tensors"]) == r[key]
    assert 0 < r["relative_error"] < 0.1 and 0 < r["rmse"] < r["largest_error"]
    # the same bytes from many threads
    other = tmp_path / "other.gguf"
    converted(tmp_path, plain, other, "-t", "Q4_K_M", "--threads", "5")
    assert other.read_bytes() == out.read_bytes()


def test_the_table(plain, tmp_path):
    text = converted(tmp_path, plain, "out.gguf", "--type", "Q4_0")
    rows = [re.split(r"  +", line.strip()) for line in text.split("\n\n")[0].split("\n")]
    assert rows[0] == ["TENSOR", "N", "FROM", "TO", "BEFORE", "AFTER", "RMSE", "ERROR"]
    by = {row[0]: row for row in rows[1:]}
    assert by["attn_q.weight"][1:4] == ["2", "F32", "Q4_0"]
    assert by["attn_norm.weight"][-2:] == ["0", "exact"]
    assert rows[-1][0] == "all"
    assert re.search(r"out\.gguf: Q4_0, .* bits a weight, written in ", text)
    text = converted(tmp_path, plain, "out.gguf", "--type", "Q4_0", "--tensors", "--force")
    assert "blk.1.attn_q.weight" in text
    # a source that was quantised is worth a word
    p = convert(tmp_path, "out.gguf", "again.gguf", "-t", "Q8_0")
    assert p.returncode == 0 and "the source is quantised" in p.stderr


def test_types_are_listed(tmp_path):
    names = converted(tmp_path, "--types").split()
    assert names[:3] == ["F32", "F16", "BF16"] and {"Q4_K_M", "Q2_K", "MXFP4"} <= set(names)


# ---- what goes wrong --------------------------------------------------------------------


@pytest.mark.parametrize("args, said", [
    ([], "a model, and a file to write to"), (["a"], "a file to write to"), (["a", "b", "c"], "two files"),
    (["a", "b", "--type", "Q4_K_N"], "did you mean Q4_K_"), (["a", "b", "--threads", "0"], "--threads"),
    (["a", "b", "--force=1"], "takes no value"),
])
def test_wrong_usage(args, said, tmp_path):
    p = convert(tmp_path, *args)
    assert p.returncode == 2 and said in p.stderr and not p.stdout
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_there(plain, tmp_path):
    out = tmp_path / "out.gguf"
    out.write_text("precious")
    p = convert(tmp_path, plain, out)
    assert p.returncode == 1 and "there already" in p.stderr and "--force" in p.stderr
    assert out.read_text() == "precious"
    assert len(list(tmp_path.iterdir())) == 1
    converted(tmp_path, plain, out, "--force")
    assert out.read_bytes()[:4] == b"GGUF"
    # even onto itself
    converted(tmp_path, out, out, "--force", "--type", "F16")
    assert report(tmp_path, out, "other.gguf", "-t", "F32")["bytes_before"] < plain.stat().st_size


@pytest.mark.parametrize("damage", ["magic", "truncated", "truncated-header", "beyond", "type",
                                    "huge-counts", "offset-overflow"])
def test_damaged_files(damage, tmp_path):
    source = tmp_path / "bad.gguf"
    tiny_model.write(source, damage=damage)
    p = convert(tmp_path, source, tmp_path / "out.gguf")
    assert p.returncode == 1 and "bad.gguf" in p.stderr
    assert [f.name for f in tmp_path.iterdir()] == ["bad.gguf"]


def test_paths_that_cant_be(plain, tmp_path):
    for out, said in (("none/out.gguf", "No such file"), (str(tmp_path), "is a folder"),
                      ("", "has no name")):
        p = convert(tmp_path, plain, out)
        assert p.returncode == 1 and said in p.stderr, out
    p = convert(tmp_path, "nothing.gguf", "out.gguf")
    assert p.returncode == 1 and "nothing.gguf" in p.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.release
def test_a_value_that_is_none(tmp_path):
    """It is found late, in the middle of a file that grows."""
    source = tmp_path / "source.gguf"
    large(source, spoiled=True)
    p = convert(tmp_path, source, tmp_path / "out.gguf", "--type", "Q4_0")
    assert p.returncode == 1
    assert "'blk.0.ffn_up.weight', row 4000, column 64 is inf, which Q4_0 can't hold" in p.stderr
    assert [f.name for f in tmp_path.iterdir()] == ["source.gguf"]


def test_a_full_disk(plain, tmp_path):
    """As a limit on the size of files: the write in the middle fails."""
    limit = 100_000
    p = convert(tmp_path, plain, "out.gguf", "--type", "F16",
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    assert p.returncode == 1 and "can't write" in p.stderr, p.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.release
def test_ctrl_c(tmp_path):
    source, out = tmp_path / "source.gguf", tmp_path / "out.gguf"
    large(source)
    p = subprocess.Popen([INGOT, "convert", source, out, "--type", "Q2_K", "--threads", "1"],
                         env=ingot.clean_env(tmp_path), stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + ingot.DEADLINE_S
        while not list(tmp_path.glob("out.gguf.part-*")):
            assert time.monotonic() < until and p.poll() is None
            time.sleep(0.01)
        p.send_signal(signal.SIGINT)
        said, wrong = p.communicate(timeout=ingot.DEADLINE_S)
    finally:
        p.kill()
    assert p.returncode == 130 and said == "" and "no file is left" in wrong
    assert [f.name for f in tmp_path.iterdir()] == ["source.gguf"]
