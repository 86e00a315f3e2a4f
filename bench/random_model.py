#!/usr/bin/env python3
"""Write a GGUF file with the shape of a known model and random weights, for timing.

    bench/random_model.py SHAPE OUT.gguf [--type Q4_0|Q5_0|Q8_0|Q4_K|Q6_K] [--layers N] [--context N]
        [--tokenizer FILE.gguf]

Every matrix has the same type, and values of a size at which activations neither grow nor
vanish; vectors are float32.  A shape's numbers are those of the model's own configuration.  The file
has no tokenizer, or another file's, and the vocabulary and the chat template with it: then the model
answers in random words, because all other tokens (and the end of a text) have the logit 0.
"""
import argparse
import os
import pathlib
import random
import re
import struct

F32, ALIGNMENT = 0, 32
U32_KEY, F32_KEY, TEXT_KEY = 4, 6, 8
# type: (GGUF's number, values of a block, bytes of a block)
TYPES = {"Q4_0": (2, 32, 18), "Q5_0": (6, 32, 22), "Q8_0": (8, 32, 34), "Q4_K": (12, 256, 144),
         "Q6_K": (14, 256, 210)}

LLAMA_KEYS = {"attention.layer_norm_rms_epsilon": 1e-5}
SHAPES = {
    "gpt2": dict(arch="gpt2", title="GPT-2 124M", layers=12, width=768, ff=3072, heads=12,
                 kv_heads=12, head_dim=64, vocab=50257, context=1024,
                 keys={"attention.layer_norm_epsilon": 1e-5}),
    "tinyllama": dict(arch="llama", title="TinyLlama 1.1B", layers=22, width=2048, ff=5632,
                      heads=32, kv_heads=4, head_dim=64, vocab=32000, context=2048,
                      keys={**LLAMA_KEYS, "rope.freq_base": 1e4}),
    "devstral": dict(arch="llama", title="Devstral-Small-2505 24B", layers=40, width=5120,
                     ff=32768, heads=32, kv_heads=8, head_dim=128, vocab=131072, context=131072,
                     keys={**LLAMA_KEYS, "rope.freq_base": 1e9}),
    "mistral-large": dict(arch="llama", title="Mistral-Large-2411 123B", layers=88, width=12288,
                          ff=28672, heads=96, kv_heads=8, head_dim=128, vocab=32768, context=131072,
                          keys={**LLAMA_KEYS, "rope.freq_base": 1e6}),
    "qwen3-30b-a3b": dict(arch="qwen3moe", title="Qwen3-30B-A3B", layers=48, width=2048, ff=6144,
                          heads=32, kv_heads=4, head_dim=128, vocab=151936, context=40960,
                          experts=128, experts_used=8, expert_ff=768,
                          keys={"attention.layer_norm_rms_epsilon": 1e-6,
                                "rope.freq_base": 1e6}),
    "qwen3.5-9b": dict(arch="qwen35", title="Qwen3.5-9B", layers=32, width=4096, ff=12288, heads=16,
                       kv_heads=4, head_dim=256, vocab=248320, context=262144, period=4,
                       key_heads=16, value_heads=32, state=128, taps=4,
                       keys={"attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e7,
                             "rope.dimension_count": 64, "full_attention_interval": 4,
                             "ssm.conv_kernel": 4, "ssm.state_size": 128, "ssm.group_count": 16,
                             "ssm.time_step_rank": 32, "ssm.inner_size": 4096}),
    "glm-4.7-flash": dict(arch="deepseek2", title="GLM-4.7-Flash 30B-A3B", layers=47, width=2048,
                          ff=10240, heads=20, kv_heads=1, head_dim=256, vocab=154880,
                          context=202752, experts=64, experts_used=4, expert_ff=1536, dense=1,
                          q_latent=768, latent=512, rotated=64,
                          keys={"attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 1e6,
                                "attention.q_lora_rank": 768, "attention.kv_lora_rank": 512,
                                "attention.key_length": 576, "attention.value_length": 512,
                                "attention.key_length_mla": 256,
                                "attention.value_length_mla": 256, "rope.dimension_count": 64,
                                "expert_shared_count": 1, "leading_dense_block_count": 1,
                                "expert_gating_func": 2, "expert_weights_norm": 1,
                                "expert_weights_scale": 1.8}),
}


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def key(name, value):
    if isinstance(value, str):
        return text(name) + struct.pack("<I", TEXT_KEY) + text(value)
    if isinstance(value, float):
        return text(name) + struct.pack("<If", F32_KEY, value)
    return text(name) + struct.pack("<II", U32_KEY, value)


def keys_of(s):
    a = s["arch"] + "."
    out = {"general.architecture": s["arch"], "general.name": s["title"] + ", random weights",
           "tokenizer.ggml.model": "none", a + "vocab_size": s["vocab"],
           a + "context_length": s["context"], a + "embedding_length": s["width"],
           a + "block_count": s["layers"], a + "feed_forward_length": s["ff"],
           a + "attention.head_count": s["heads"], a + "attention.head_count_kv": s["kv_heads"],
           a + "attention.key_length": s["head_dim"], a + "attention.value_length": s["head_dim"],
           a + "rope.dimension_count": s["head_dim"], **{a + k: v for k, v in s["keys"].items()}}
    if s["arch"] == "gpt2":
        for k in "attention.key_length", "attention.value_length", "rope.dimension_count":
            del out[a + k]
    if "experts" in s:
        out.update({a + "expert_count": s["experts"], a + "expert_used_count": s["experts_used"],
                    a + "expert_feed_forward_length": s["expert_ff"]})
    return out


# Bytes of a value by GGUF's number of its type; 8: text, 9: an array.
FIXED = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


class Tokenizer:
    """The keys of a GGUF file's tokenizer as they are there, and which of its tokens are words."""

    def __init__(self, path):
        self.raw, self.at = pathlib.Path(path).read_bytes(), 0
        magic, version, _, n_keys = self.take("<4sIQQ")
        if magic != b"GGUF" or version != 3:
            raise SystemExit("%s is no GGUF file of version 3" % path)
        self.keys, arrays = [], {}
        for _ in range(n_keys):
            begin, name = self.at, self.text().decode()
            kind, = self.take("<I")
            value = self.value(kind)
            if name.startswith("tokenizer."):
                self.keys.append(self.raw[begin:self.at])
                arrays[name] = value
        if not arrays.get("tokenizer.ggml.tokens"):
            raise SystemExit("%s has no tokenizer" % path)
        del self.raw
        self.is_word = [re.fullmatch("(Ġ|▁)?[A-Za-z]+".encode(), t) is not None
                        for t in arrays["tokenizer.ggml.tokens"]]

    def take(self, form):
        out = struct.unpack_from(form, self.raw, self.at)
        self.at += struct.calcsize(form)
        return out

    def text(self):
        n, = self.take("<Q")
        self.at += n
        return self.raw[self.at - n:self.at]

    def value(self, kind):
        """Texts and arrays of texts; of all others nothing is kept."""
        if kind == TEXT_KEY:
            return self.text()
        if kind != 9:
            self.at += FIXED[kind]
            return None
        of, n = self.take("<IQ")
        if of in FIXED:
            self.at += n * FIXED[of]
            return None
        return [self.value(of) for _ in range(n)]


def delta_net(b, s):
    """The tensors of a layer with a gated delta net, as tensors_of has them."""
    values = s["value_heads"] * s["state"]
    qkv = 2 * s["key_heads"] * s["state"] + values
    return [(b + "attn_qkv.weight", (qkv, s["width"]), None),
            (b + "attn_gate.weight", (values, s["width"]), None),
            (b + "ssm_conv1d.weight", (qkv, s["taps"]), "router"),
            (b + "ssm_norm.weight", (s["state"],), 1.0),
            (b + "ssm_out.weight", (s["width"], values), None),
            (b + "ssm_dt.bias", (s["value_heads"],), 0.0),
            (b + "ssm_a", (s["value_heads"],), -0.1),
            (b + "ssm_beta.weight", (s["value_heads"], s["width"]), None),
            (b + "ssm_alpha.weight", (s["value_heads"], s["width"]), None)]


def tensors_of(s):
    """[(name, dimensions with columns last, value)]: value is that of a vector's elements,
    "router" for a float32 matrix (of a router, or taps), None for a matrix of the file's type."""
    w, q, kv = s["width"], s["heads"] * s["head_dim"], s["kv_heads"] * s["head_dim"]
    out = [("token_embd.weight", (s["vocab"], w), None)]

    def vector(name, n, value=1.0):
        out.append((name, (n,), value))

    def matrix(name, *dims):
        out.append((name, dims, None))

    if s["arch"] == "gpt2":
        matrix("position_embd.weight", s["context"], w)
    for i in range(s["layers"]):
        b = "blk.%d." % i
        vector(b + "attn_norm.weight", w)
        vector(b + ("post_attention_norm.weight" if "period" in s else "ffn_norm.weight"), w)
        if s["arch"] == "gpt2":
            for name, n, k in (("attn_qkv", 3 * w, w), ("attn_output", w, w),
                               ("ffn_up", s["ff"], w), ("ffn_down", w, s["ff"])):
                matrix(b + name + ".weight", n, k)
                vector(b + name + ".bias", n, 0.0)
            vector(b + "attn_norm.bias", w, 0.0)
            vector(b + "ffn_norm.bias", w, 0.0)
            continue
        delta = "period" in s and (i + 1) % s["period"] != 0
        if delta:
            out += delta_net(b, s)
        else:
            matrix(b + "attn_output.weight", w, q)
        if delta:
            pass
        elif "latent" in s: # values are as wide as keys
            matrix(b + "attn_q_a.weight", s["q_latent"], w)
            vector(b + "attn_q_a_norm.weight", s["q_latent"])
            matrix(b + "attn_q_b.weight", q, s["q_latent"])
            matrix(b + "attn_kv_a_mqa.weight", s["latent"] + s["rotated"], w)
            vector(b + "attn_kv_a_norm.weight", s["latent"])
            matrix(b + "attn_k_b.weight", s["heads"], s["latent"], s["head_dim"] - s["rotated"])
            matrix(b + "attn_v_b.weight", s["heads"], s["head_dim"], s["latent"])
        else: # with a period a gate of the output lies beside q
            matrix(b + "attn_q.weight", (2 if "period" in s else 1) * q, w)
            matrix(b + "attn_k.weight", kv, w)
            matrix(b + "attn_v.weight", kv, w)
            if "period" in s:
                vector(b + "attn_q_norm.weight", s["head_dim"])
                vector(b + "attn_k_norm.weight", s["head_dim"])
        if "experts" in s and i >= s.get("dense", 0):
            e, f = s["experts"], s["expert_ff"]
            if "latent" in s:
                vector(b + "exp_probs_b.bias", e, 0.0)
                matrix(b + "ffn_gate_shexp.weight", f, w)
                matrix(b + "ffn_up_shexp.weight", f, w)
                matrix(b + "ffn_down_shexp.weight", w, f)
            else:
                vector(b + "attn_q_norm.weight", s["head_dim"])
                vector(b + "attn_k_norm.weight", s["head_dim"])
            out.append((b + "ffn_gate_inp.weight", (e, w), "router"))
            matrix(b + "ffn_gate_exps.weight", e, f, w)
            matrix(b + "ffn_up_exps.weight", e, f, w)
            matrix(b + "ffn_down_exps.weight", e, w, f)
        else:
            matrix(b + "ffn_gate.weight", s["ff"], w)
            matrix(b + "ffn_up.weight", s["ff"], w)
            matrix(b + "ffn_down.weight", w, s["ff"])
    vector("output_norm.weight", w)
    if s["arch"] == "gpt2":
        vector("output_norm.bias", w, 0.0)
    matrix("output.weight", s["vocab"], w)
    return out


def blocks(rng, kind, n_cols, n):
    """n blocks of a matrix whose rows have n_cols values: about n_cols ** -0.5 in size."""
    size, half = n_cols ** -0.5, lambda x: struct.pack("<e", x)
    if kind == "Q4_0":
        d = half(size / 4.6)
        return b"".join(d + rng.randbytes(16) for _ in range(n))
    if kind == "Q5_0":
        d = half(size / 9.2)
        return b"".join(d + rng.randbytes(20) for _ in range(n))
    if kind == "Q6_K": # scales of 8 bits, codes of 6 around 0
        d = half(size / 1370)
        return b"".join(rng.randbytes(208) + d for _ in range(n))
    if kind == "Q8_0":
        d = half(size / 73)
        return b"".join(d + rng.randbytes(32) for _ in range(n))
    # scales of 6 bits around 31, codes of 4 around 7.5; the minima cancel the average
    d, m = half(size / 190), half(size / 190 * 7.5)
    return b"".join(d + m + rng.randbytes(140) for _ in range(n))


def write(path, name, kind="Q4_0", layers=None, seed=1, context=None, tokenizer=None):
    """Write a temporary file beside it, then rename it."""
    s = dict(SHAPES[name])
    s.update(layers=layers or s["layers"], context=context or s["context"],
             vocab=len(tokenizer.is_word) if tokenizer else s["vocab"])
    rng, (number, per_block, block_bytes) = random.Random(seed), TYPES[kind]
    keys, tensors = [key(k, v) for k, v in keys_of(s).items()], tensors_of(s)
    if tokenizer:
        keys = [k for k in keys if b"tokenizer.ggml.model" not in k] + tokenizer.keys
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys)) + b"".join(keys)
    offset, pools = 0, {}
    plan = []
    for tensor, dims, value in tensors:
        n_values = 1
        for d in dims:
            n_values *= d
        n_bytes = 4 * n_values if value is not None else n_values // per_block * block_bytes
        head += text(tensor) + struct.pack("<I", len(dims))
        head += b"".join(struct.pack("<Q", d) for d in reversed(dims))
        head += struct.pack("<IQ", F32 if value is not None else number, offset)
        plan.append((dims[-1], n_bytes, value, tokenizer is not None and tensor == "output.weight"))
        offset += -(-n_bytes // ALIGNMENT) * ALIGNMENT
    part = pathlib.Path(str(path) + ".part")
    with open(part, "wb") as f:
        f.write(head + b"\0" * (-len(head) % ALIGNMENT))
        for n_cols, n_bytes, value, words_only in plan:
            if value == "router":
                data = b"".join(struct.pack("<f", rng.gauss(0, n_cols ** -0.5))
                                for _ in range(n_bytes // 4))
                f.write(data)
            elif value is not None:
                f.write(struct.pack("<f", value) * (n_bytes // 4))
            else:
                if n_cols not in pools:
                    pools[n_cols] = blocks(rng, kind, n_cols, 1 << 16 if per_block == 32 else 1 << 13)
                pool, left = pools[n_cols], n_bytes
                for is_word in tokenizer.is_word if words_only else ():
                    row = n_cols // per_block * block_bytes
                    at = rng.randrange((len(pool) - row) // block_bytes) * block_bytes
                    f.write(pool[at:at + row] if is_word else bytes(row))
                    left -= row
                while left: # starts at another block each time: all tensors differ
                    at = rng.randrange(len(pool) // block_bytes) * block_bytes
                    piece = pool[at:at + left]
                    f.write(piece)
                    left -= len(piece)
            f.write(b"\0" * (-n_bytes % ALIGNMENT))
    os.replace(part, path)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    ap.add_argument("shape", choices=SHAPES)
    ap.add_argument("out")
    ap.add_argument("--type", default="Q4_0", choices=TYPES)
    ap.add_argument("--layers", type=int, help="fewer than the model's")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--context", type=int, help="another one than the model's")
    ap.add_argument("--tokenizer", type=Tokenizer, metavar="FILE.gguf")
    args = ap.parse_args()
    write(args.out, args.shape, args.type, args.layers, args.seed, args.context, args.tokenizer)


if __name__ == "__main__":
    main()
