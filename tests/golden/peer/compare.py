#!/usr/bin/env python3
"""The tiny models of tests/golden/arch and tests/golden/embed in llama.cpp, beside Ingot and the goldens.

    compare.py LLAMA_SOURCE LLAMA_BIN BUILD WORK [name ...]

LLAMA_SOURCE is llama.cpp's source tree, LLAMA_BIN the folder of its libraries (bench/get_llama makes both), BUILD a
build folder of Ingot, WORK a folder for temporary files.  Each file is widened to float32, because llama.cpp rounds
activations to the type of the weights, gets the key of a file without a tokenizer where it has none, and is
otherwise what Ingot reads.  Both programs are fed the golden's ids, one step after another, with float32
arithmetic and cache.  For each model: the centred NMSE of all logits and the greedy tokens that are equal, of the
peer and of Ingot against the golden (transformers), and of the peer against Ingot.  Vectors of embeddings are
compared by their greatest difference, scores of rerankers too.

A change is what CHANGES does to a file for both programs where its shape or a key is none that the peer has: a golden
stands for the file then only if it says so.  LIMIT holds for every model but those in DIFFERS, which says where the
peer computes something else, and how far off it is; a difference that has gone, or is much smaller, is a failure,
too.  REFUSED are files that the peer does not read.  Exit status 0: all is as expected.  Needs numpy, gguf and a C
compiler.
"""
import pathlib
import struct
import subprocess
import sys

import gguf
import numpy as np

GOLDEN = pathlib.Path(__file__).resolve().parents[1]
LIMIT = 1e-9  # centred NMSE: sums of float32 in another order give 1e-11 at most
VECTORS = 1e-5  # as test_embed_golden.c
TABLE = "GELU by a table of float16"
# name: (what the peer does otherwise, the least and the greatest centred NMSE against Ingot; of vectors the difference)
DIFFERS = {
    **{name: (TABLE, 1e-9, 1e-5) for name in ("gemma3", "gemma4", "gemma4e", "gemma4moe", "gpt2")},
    "glmlite": ("norms of latents with the model's epsilon", 1e-3, 0.5),
    "mistral": ("no window in architecture llama", 0.1, 5),
    "gptoss": ("the clamp is 7, YaRN's ramp is rounded", 1e-2, 2),
    "gptossmx": ("the clamp is 7, YaRN's ramp is rounded", 1e-2, 2),
    "gptoss-clamp": ("YaRN's ramp is rounded", 1e-3, 2),
    **{name: ("GELU by tanh, from a table of float16", 1e-5, 1e-3) for name in
       ("bert", "bertcls", "xlmr", "xlmrmean", "nomicmoe")},
    "xlmrrank": ("GELU by tanh, from a table of float16", 1e-5, 1e-2),
    **{name: (TABLE, 1e-5, 1e-3) for name in ("gemmaembed", "gemmadense")},
    "qwen3rankcls": ("a softmax of its one logit, which is 1", 1e-1, 10),
    "bertrank": ("both texts have the first one's type", 1e-2, 5),
}
REFUSED = {
    "deepseek2": "key not found in model: deepseek2.attention.q_lora_rank",  # unless there are 27 layers
    "granite4a": "key not found in model: granitehybrid.ssm.conv_kernel",  # its converter says granitemoe then
    "nomicmoehub": "wrong number of tensors; expected 52, got 50",  # the bias of the experts' sum in two layers
    "qwen35moe": "blk.0.attn_qkv.weight' has wrong shape",  # heads of keys and values of one size
    "qwen3next": "blk.0.attn_qkv.weight' has wrong shape",
    "qwen35o": "rope.dimension_sections has wrong array length",  # as Ollama writes it
}


# ---- changes -------------------------------------------------------------------------------

class Change:
    """A file for both programs: keys (None: left out), and of each tensor what it is in the new file."""

    def __init__(self, of, keys, tensors=lambda name, a: [(name, a)], golden=False):
        self.of, self.keys, self.tensors, self.golden = of, keys, tensors, golden


def wider(name, a):
    """Heads of keys of 16 values instead of 8, as those of values; no block that predicts further tokens."""
    if name.endswith(("attn_qkv.weight", "ssm_conv1d.weight")):
        heads = a[:32].reshape(4, 8, a.shape[1])
        a = np.concatenate([np.concatenate([heads, 0.7 * heads[::-1, ::-1]], 1).reshape(64, a.shape[1]), a[32:]])
    return [] if name.startswith("blk.3.") else [(name, a)]


def deeper(name, a):
    """The block of experts 26 times."""
    return [(name.replace("blk.1.", "blk.%d." % i), a) for i in range(1, 27)] if name.startswith("blk.1.") else [(name, a)]


PLAIN = {"swiglu_limit": None, "rope.scaling.type": None, "rope.scaling.factor": None,
         "rope.scaling.original_context_length": None}
CHANGES = {
    # Without the block that predicts further tokens, of which the file has a part only.
    "glm4moe": Change("glm4moe", {"block_count": 2, "nextn_predict_layers": None},
                      lambda name, a: [] if name.startswith("blk.2.") else [(name, a)], golden=True),
    "glmlite-epsilon": Change("glmlite", {"attention.layer_norm_rms_epsilon": 1e-6}),
    "mistral-full": Change("mistral", {"attention.sliding_window": None}),
    "gptoss-clamp": Change("gptoss", {"swiglu_limit": None}),
    "gptoss-plain": Change("gptoss", PLAIN),
    "gptossmx-plain": Change("gptossmx", PLAIN),
    "deepseek2-27": Change("deepseek2", {"block_count": 27}, deeper),
    "qwen3next-16": Change("qwen3next", {"ssm.state_size": 16}, wider),
    "qwen35moe-16": Change("qwen35moe", {"ssm.state_size": 16, "block_count": 3, "nextn_predict_layers": None,
                                         "attention.recurrent_layers": [True, True, False]}, wider),
}


# ---- goldens -------------------------------------------------------------------------------

def read_arch(path):
    """[(ids, greedy, logits [n_steps, n_vocab])]; arch/make.py describes the format."""
    b, out = path.read_bytes(), []
    magic, n_vocab, n_prompts, n_steps = struct.unpack_from("<4sIII", b)
    assert magic == b"IGA1", path
    at = 16
    for _ in range(n_prompts):
        n, = struct.unpack_from("<I", b, at)
        ids = np.frombuffer(b, "<i4", n, at + 4)
        greedy = np.frombuffer(b, "<i4", n_steps, at + 4 + 4 * n)
        at += 4 + 4 * (n + n_steps)
        out.append((ids, greedy, np.frombuffer(b, "<f4", n_steps * n_vocab, at).reshape(n_steps, n_vocab)))
        at += 4 * n_steps * n_vocab
    return out


def read_embed(path):
    """[(ids, types, vector)]; embed/make.py writes it."""
    b, out = path.read_bytes(), []
    magic, n_columns, n_texts = struct.unpack_from("<4sII", b)
    assert magic == b"IGE1", path
    at = 12
    for _ in range(n_texts):
        n_bytes, n = struct.unpack_from("<II", b, at)
        ids, types = np.frombuffer(b, "<i4", 2 * n, at + 8).reshape(2, n)
        at += 8 + 8 * n
        out.append((ids, types, np.frombuffer(b, "<f8", n_columns, at)))
        at += 8 * n_columns + n_bytes
    return out


def write_truth(path, prompts, n_steps, width):
    """What dump_logits and peer_logits read: prompts and forced ids, with empty records (model/truth.py)."""
    out = struct.pack("<8s6I32x", b"IGTRUTH1", len(prompts), n_steps, 8, 16, width, 0)
    for ids, forced in prompts:
        out += struct.pack("<I", len(ids)) + np.asarray(ids, "<u2").tobytes() + np.asarray(forced, "<u2").tobytes()
        out += bytes(124 * n_steps)
    path.write_bytes(out)


# ---- files ---------------------------------------------------------------------------------

def widen(source, to, n_vocab, change):
    """A copy in float32; without a tokenizer it says so, as the peer wants."""
    keys, tensors = (change.keys, change.tensors) if change else ({}, lambda name, a: [(name, a)])
    r = gguf.GGUFReader(source)
    arch = r.fields["general.architecture"].contents()
    w = gguf.GGUFWriter(to, arch)
    for name, f in r.fields.items():
        value = keys.get(name.removeprefix(arch + "."), f.contents())
        if not name.startswith("GGUF.") and name != "general.architecture" and value is not None:
            w.add_key_value(name, value, f.types[0], f.types[-1] if len(f.types) > 1 else None)
    if "tokenizer.ggml.model" not in r.fields:
        w.add_tokenizer_model("none")
        if arch + ".vocab_size" not in r.fields:
            w.add_vocab_size(n_vocab)
    for t in r.tensors:
        for name, a in tensors(t.name, gguf.quants.dequantize(t.data, t.tensor_type)):
            w.add_tensor(name, np.ascontiguousarray(a, dtype=np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def result(argv, dump, shape):
    """The rows that a program wrote, or the end of what it said."""
    dump.unlink(missing_ok=True)
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True)
    if done.returncode:
        return None, " | ".join(done.stderr.strip().splitlines()[-3:])
    return np.fromfile(dump, "<f4").reshape(shape).astype(np.float64), ""


def nmse(got, want):
    """Sum of squared differences over that of the logits, as test_arch_golden.c has it."""
    return ((got - want) ** 2).sum() / ((want - want.mean()) ** 2).sum()


class Run:
    def __init__(self, source, libraries, build, work):
        self.build, self.work = pathlib.Path(build), pathlib.Path(work)
        self.work.mkdir(parents=True, exist_ok=True)
        self.peer, self.file = self.work / "peer_logits", self.work / "model.gguf"
        self.truth, self.dump = self.work / "ids", self.work / "dump.f32"
        self.bad = 0
        subprocess.run(["cc", "-O2", "-I", source + "/include", "-I", source + "/ggml/include",
                        GOLDEN / "model/peer_logits.c", "-o", self.peer, "-L", libraries, "-lllama", "-lggml",
                        "-lggml-base", "-Wl,-rpath," + libraries, "-lm"], check=True)

    def say(self, name, text, ok=True):
        self.bad += not ok
        print("%-16s %s%s" % (name, text, "" if ok else "   <-- not as expected"), flush=True)

    def refused(self, name, why):
        want = REFUSED.get(name)
        self.say(name, "the peer: %s" % why, want is not None and want in why)

    def arch(self, name):
        change = CHANGES.get(name)
        of, golden = (change.of, change.golden) if change else (name, True)
        prompts = read_arch(GOLDEN / ("arch/%s.golden" % of))
        n_steps, n_vocab = prompts[0][2].shape
        shape = len(prompts), n_steps, n_vocab
        widen(GOLDEN / ("arch/%s.gguf" % of), self.file, n_vocab, change)
        write_truth(self.truth, [p[:2] for p in prompts], n_steps, n_vocab)
        want = np.array([p[2] for p in prompts], dtype=np.float64)
        ours, why = result([self.build / "tests/golden/dump_logits", self.file, self.truth, self.dump,
                            "--activations", "f32", "--kv", "f32"], self.dump, shape)
        if ours is None:
            return self.say(name, "Ingot: " + why, False)
        peer, why = result([self.peer, self.file, self.truth, self.dump, "f32"], self.dump, shape)
        if peer is None:
            return self.refused(name, why)
        got = [max(nmse(a[i], b[i]) for i in range(len(prompts)))
               for a, b in ((peer, ours), (peer, want), (ours, want))]
        equal = int((peer.argmax(-1) == ours.argmax(-1)).sum())
        what, least, most = DIFFERS.get(name, ("", 0, LIMIT))
        ok = least <= got[0] <= most and (not golden or got[2] <= 1e-6) and (what or equal == len(prompts) * n_steps)
        text = "  peer/golden %.1e  Ingot/golden %.1e" % tuple(got[1:]) if golden else "%42s" % ""
        self.say(name, "peer/Ingot %.1e%s  tokens %d of %d  %s" % (got[0], text, equal, len(prompts) * n_steps, what), ok)

    def embed(self, name):
        texts = read_embed(GOLDEN / ("embed/%s.golden" % name))
        width = len(texts[0][2])
        widen(GOLDEN / ("embed/%s.gguf" % name), self.file, 0, None)
        write_truth(self.truth, [(t[0], [0]) for t in texts], 1, width)
        peer, why = result([self.peer, self.file, self.truth, self.dump, "vectors"], self.dump, (len(texts), width))
        if peer is None:
            return self.refused(name, why)
        want = [t[2] for t in texts]
        if name == "qwen3rank":  # the peer makes probabilities of the two logits
            want = [np.exp(w - np.max(w)) / np.exp(w - np.max(w)).sum() for w in want]
        elif width > 1:
            peer /= np.linalg.norm(peer, axis=1, keepdims=True)
        most = np.abs(peer - want).max()
        what, least, limit = DIFFERS.get(name, ("", 0, VECTORS))
        self.say(name, "peer/golden: greatest difference %.1e  %s" % (most, what), least <= most <= limit)


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    run, names = Run(*sys.argv[1:5]), sys.argv[5:]
    for folder, check in (("arch", run.arch), ("embed", run.embed)):
        for path in sorted((GOLDEN / folder).glob("*.golden")):
            if path.with_suffix(".gguf").exists() and (not names or path.stem in names):
                check(path.stem)
    for name in sorted(set(CHANGES) - {c.of for c in CHANGES.values()}):
        if not names or name in names:
            run.arch(name)
    print("%d not as expected" % run.bad)
    sys.exit(bool(run.bad))


if __name__ == "__main__":
    main()
