#!/usr/bin/env python3
"""The truth that the runtime is judged by: the model's forward pass in float64 on the
exactly dequantised weights, written out plainly in numpy and sharing no code with Ingot.

    truth.py MODEL.gguf --write smollm2.truth [--full LOGITS]
        runs every prompt of prompts.py, continues it greedily for 64 steps and writes
        the golden; --full keeps all logits as float32, [prompt, step, vocabulary].
    truth.py MODEL.gguf --golden smollm2.truth --full LOGITS
        recomputes all logits for the ids of a golden, and fails when a record of the
        golden is not what they give.
    truth.py --golden smollm2.truth --full LOGITS --against DUMP [--limits f32|8bit]
        compares the full logits of a run (dump_logits or peer_logits wrote DUMP, the
        same layout) with the truth's, and prints a table; --limits makes a breach of the
        limits an error.

Needs numpy; --write needs the PyPI package `tokenizers` as well.  About two minutes and
4 GB for SmolLM2-135M.

The golden (little-endian; test_model_truth.c reads the same):
    char magic[8] "IGTRUTH1"; u32 n_prompts, n_steps, n_top, n_proj, n_vocab;
    u32 bytes of the model file; u8 sha256[32] of it;
    per prompt: u32 n_ids; u16 ids[n_ids]; u16 forced[n_steps]; n_steps records of
        f32 nll       logsumexp(logits) - logit of the forced id
        f32 mean      of all logits
        f32 css       sum of (logit - mean)^2
        u16 top[n_top]; f32 top_logit[n_top]   the largest, centred; top[0] is the argmax
        f32 proj[n_proj]   sum over the vocabulary of sign * centred logit
Projection j's sign at position v of step t of prompt p is minus where bit j of
splitmix64((v + 7919 (n_steps p + t)) mod n_vocab) is set.  A difference of two logit
vectors has the same expected square under every such projection as its own sum of
squares, so a few of them judge the whole vector, every position of it, in a fraction of
the bytes.  The signs move on from step to step because differences resemble each other:
under the same signs their estimates would err together (by 10 % instead of 1 %).
"""
import argparse
import hashlib
import os
import struct
import sys

import numpy as np

from gguf_read import Gguf

MAGIC = b"IGTRUTH1"
N_STEPS, N_TOP, N_PROJ = 64, 8, 16

# name: (least share of equal steps, greatest centred NMSE over all, and of one prompt,
#        greatest truth gap of a lost step, mean NLL difference of a prompt, over all)
# f32: rounding alone separates the two; 1e-9 is far above what float32 sums lose (about
# 1e-12) and far below what any wrong constant costs.  8bit: activations in blocks of 32
# lose 1.8 % of the steps of this model, all of them near ties; llama.cpp's own arithmetic
# loses 1.9 to 2.4 %.
LIMITS = {"f32": (1.0, 1e-9, 1e-9, 0.0, 1e-4, 1e-5),
          "8bit": (0.97, 4e-3, 1e-2, 0.6, 0.06, 0.015)}


class Llama:
    """A dense Llama in float64, as the papers write it."""

    def __init__(self, g):
        m, self.g = g.meta, g
        if m["general.architecture"] != "llama":
            sys.exit("truth.py knows the architecture llama only")
        self.n_layers = m["llama.block_count"]
        self.width = m["llama.embedding_length"]
        self.n_heads = m["llama.attention.head_count"]
        self.n_kv = m["llama.attention.head_count_kv"]
        self.hd = m.get("llama.attention.key_length", self.width // self.n_heads)
        self.eps = m["llama.attention.layer_norm_rms_epsilon"]
        self.base = m["llama.rope.freq_base"]
        if m["llama.rope.dimension_count"] != self.hd or "rope_freqs.weight" in g.tensors:
            sys.exit("truth.py rotates whole heads without factors only")
        self.embd = g.tensor("token_embd.weight")
        self.head = g.tensor("output.weight") if "output.weight" in g.tensors else self.embd
        self.out_norm = g.tensor("output_norm.weight")
        names = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm",
                 "ffn_gate", "ffn_up", "ffn_down")
        self.layers = [{n: g.tensor("blk.%d.%s.weight" % (i, n)) for n in names}
                       for i in range(self.n_layers)]

    def norm(self, x, w):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * w

    def rope(self, x, pos):
        """x [rows, heads, head_dim], pairs (2i, 2i + 1): GGUF's row order for Llama."""
        angle = pos[:, None] * self.base ** (-np.arange(self.hd // 2) * 2.0 / self.hd)
        c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
        a, b = x[..., 0::2], x[..., 1::2]
        return np.stack([a * c - b * s, a * s + b * c], -1).reshape(x.shape)

    def forward(self, ids, seqs, last_only):
        """One step for several sequences: rows[i] of ids belong to seqs[i], a dict with
        n and per-layer K and V.  Returns logits of every sequence's last row."""
        counts = [len(r) for r in ids]
        pos = np.concatenate([np.arange(s["n"], s["n"] + n) for s, n in zip(seqs, counts)])
        x = self.embd[np.concatenate(ids)]
        edges = np.cumsum([0] + counts)
        for i, w in enumerate(self.layers):
            h = self.norm(x, w["attn_norm"])
            q = self.rope((h @ w["attn_q"].T).reshape(-1, self.n_heads, self.hd), pos)
            k = self.rope((h @ w["attn_k"].T).reshape(-1, self.n_kv, self.hd), pos)
            v = (h @ w["attn_v"].T).reshape(-1, self.n_kv, self.hd)
            out = np.empty_like(x)
            for s, a, b in zip(seqs, edges, edges[1:]):
                n = s["n"] + b - a
                s["k"][i, s["n"]:n] = k[a:b]
                s["v"][i, s["n"]:n] = v[a:b]
                out[a:b] = self.attend(q[a:b], s["k"][i, :n], s["v"][i, :n])
            x = x + out @ w["attn_output"].T
            h = self.norm(x, w["ffn_norm"])
            gate = h @ w["ffn_gate"].T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ w["ffn_up"].T)) @ w["ffn_down"].T
        for s, n in zip(seqs, counts):
            s["n"] += n
        x = self.norm(x[edges[1:] - 1] if last_only else x, self.out_norm)
        return x @ self.head.T

    def attend(self, q, k, v):
        rows, n = len(q), len(k)
        group = self.n_heads // self.n_kv
        mask = np.arange(n)[None] > np.arange(n - rows, n)[:, None]
        out = np.empty_like(q)
        for h in range(self.n_heads):
            score = q[:, h] @ k[:, h // group].T / np.sqrt(self.hd)
            score[mask] = -np.inf
            p = np.exp(score - score.max(-1, keepdims=True))
            out[:, h] = p @ v[:, h // group] / p.sum(-1, keepdims=True)
        return out.reshape(rows, -1)

    def sequence(self, n):
        return {"n": 0, "k": np.empty((self.n_layers, n, self.n_kv, self.hd)),
                "v": np.empty((self.n_layers, n, self.n_kv, self.hd))}


def run(model, prompts, forced=None):
    """All logits, [prompt, step, vocabulary] as float64, and the forced ids: the greedy
    continuation unless given."""
    seqs = [model.sequence(len(p) + N_STEPS) for p in prompts]
    logits = np.empty((len(prompts), N_STEPS, len(model.head)))
    for i, (p, s) in enumerate(zip(prompts, seqs)):
        logits[i, 0] = model.forward([np.array(p)], [s], True)[0]
        print("prompt %d of %d, %d tokens" % (i + 1, len(prompts), len(p)), file=sys.stderr)
    out = np.empty((len(prompts), N_STEPS), np.int64)
    for t in range(N_STEPS):
        out[:, t] = logits[:, t].argmax(-1) if forced is None else forced[:, t]
        if t + 1 < N_STEPS:
            logits[:, t + 1] = model.forward([r[None] for r in out[:, t]], seqs, True)
    return logits, out


def signs(n_vocab):
    """[n_proj, n_vocab] of +1 and -1."""
    with np.errstate(over="ignore"):
        z = np.arange(n_vocab, dtype=np.uint64) + np.uint64(0x9e3779b97f4a7c15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xbf58476d1ce4e5b9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94d049bb133111eb)
        z = z ^ (z >> np.uint64(31))
    return 1.0 - 2.0 * ((z[None] >> np.arange(N_PROJ, dtype=np.uint64)[:, None]) & np.uint64(1))


def record_dtype():
    return np.dtype([("nll", "<f4"), ("mean", "<f4"), ("css", "<f4"), ("top", "<u2", N_TOP),
                     ("top_logit", "<f4", N_TOP), ("proj", "<f4", N_PROJ)])


def log_sum_exp(x):
    m = x.max(-1, keepdims=True)
    return (m + np.log(np.exp(x - m).sum(-1, keepdims=True)))[..., 0]


def records(logits, forced, prompt):
    """The golden's records of one prompt's logits [steps, vocabulary]."""
    all_signs = signs(logits.shape[-1])
    mean = logits.mean(-1)
    c = logits - mean[:, None]
    r = np.zeros(len(logits), record_dtype())
    step = np.arange(len(logits))
    r["nll"] = log_sum_exp(logits) - logits[step, forced]
    r["mean"] = mean
    r["css"] = (c * c).sum(-1)
    r["top"] = np.argsort(-c, axis=-1, kind="stable")[:, :N_TOP]
    r["top_logit"] = np.take_along_axis(c, r["top"].astype(np.int64), -1)
    for t in step:
        r["proj"][t] = np.roll(all_signs, -7919 * (N_STEPS * prompt + t), axis=1) @ c[t]
    return r


def sha256(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        for piece in iter(lambda: f.read(1 << 20), b""):
            h.update(piece)
    return h.digest()


def write_header(f, model_path, n_prompts, n_steps, n_vocab):
    f.write(MAGIC + struct.pack("<6I", n_prompts, n_steps, N_TOP, N_PROJ, n_vocab,
                                os.path.getsize(model_path)) + sha256(model_path))


def write_golden(path, model_path, prompts, forced, logits):
    with open(path, "wb") as f:
        write_header(f, model_path, len(prompts), N_STEPS, logits.shape[-1])
        for i, (p, ids, x) in enumerate(zip(prompts, forced, logits)):
            f.write(struct.pack("<I", len(p)))
            f.write(np.array(p, "<u2").tobytes() + ids.astype("<u2").tobytes())
            f.write(records(x, ids, i).tobytes())


def write_ids(path, model_path, prompts, forced, n_vocab):
    """A golden for dump_logits alone, which reads the ids: its records are zeros."""
    with open(path, "wb") as f:
        write_header(f, model_path, len(prompts), len(forced[0]), n_vocab)
        for p, ids in zip(prompts, forced):
            f.write(struct.pack("<I", len(p)))
            f.write(np.array(p, "<u2").tobytes() + ids.astype("<u2").tobytes())
            f.write(np.zeros(len(ids), record_dtype()).tobytes())


def read_golden(path):
    with open(path, "rb") as f:
        data = f.read()
    n_prompts, n_steps, n_top, n_proj, n_vocab, _ = struct.unpack_from("<6I", data, 8)
    if data[:8] != MAGIC or (n_steps, n_top, n_proj) != (N_STEPS, N_TOP, N_PROJ):
        sys.exit("%s: not a golden that this script knows" % path)
    at, out = 8 + 24 + 32, {"n_vocab": n_vocab, "sha256": data[32:64], "prompts": [],
                            "forced": [], "records": []}
    for _ in range(n_prompts):
        n, = struct.unpack_from("<I", data, at)
        out["prompts"].append(np.frombuffer(data, "<u2", n, at + 4).astype(np.int64))
        at += 4 + 2 * n
        out["forced"].append(np.frombuffer(data, "<u2", n_steps, at).astype(np.int64))
        at += 2 * n_steps
        out["records"].append(np.frombuffer(data, record_dtype(), n_steps, at))
        at += record_dtype().itemsize * n_steps
    out["forced"] = np.array(out["forced"])
    return out


def check_golden(golden, logits):
    """0 when the golden's records are what these logits give."""
    wrong = 0
    for i, (forced, rec) in enumerate(zip(golden["forced"], golden["records"])):
        now = records(logits[i].astype(np.float64), forced, i)
        close = np.abs(rec["top_logit"] - now["top_logit"]).max()
        proj = np.abs(rec["proj"] - now["proj"]).max()
        if (rec["top"][:, 0] != now["top"][:, 0]).any() or close > 1e-4 or proj > 1e-2:
            print("prompt %d: the golden differs (top logits by %.2g, projections by %.2g)"
                  % (i, close, proj))
            wrong += 1
    print("golden: %d of %d prompts as recomputed" % (len(logits) - wrong, len(logits)))
    return wrong


def compare(golden, full, dump, limits):
    shape = (len(golden["prompts"]), N_STEPS, golden["n_vocab"])
    truth, other = (np.memmap(p, "<f4", "r", shape=shape) for p in (full, dump))
    print("prompt tokens  equal  lost with gap   centred NMSE  mean NLL difference")
    equal, lost_gap, nll, err, css, worst = [], [], [], 0.0, 0.0, 0.0
    for i, forced in enumerate(golden["forced"]):
        a, b = truth[i].astype(np.float64), other[i].astype(np.float64)
        if not np.isfinite(b).all():
            sys.exit("prompt %d: logits that are not finite" % i)
        step = np.arange(N_STEPS)
        same = a.argmax(-1) == b.argmax(-1)
        two = np.sort(a, -1)[:, -2:]
        gap = np.where(same, 0.0, two[:, 1] - two[:, 0]).max()
        d = (log_sum_exp(b) - b[step, forced]) - (log_sum_exp(a) - a[step, forced])
        a -= a.mean(-1, keepdims=True)
        b -= b.mean(-1, keepdims=True)
        e, c = ((a - b) ** 2).sum(), (a * a).sum()
        print("%6d %6d  %2d/%2d  %13.4f  %13.3e  %+.2e" % (
            i, len(golden["prompts"][i]), same.sum(), N_STEPS, gap, e / c, d.mean()))
        equal.append(same.mean())
        lost_gap.append(gap)
        nll.append(d.mean())
        err, css, worst = err + e, css + c, max(worst, e / c)
    nll = np.array(nll)
    values = [np.mean(equal), err / css, worst, max(lost_gap), np.abs(nll).max(),
              abs(nll.mean())]
    print("all: equal %.2f %%, centred NMSE %.3e (worst prompt %.3e), greatest gap lost "
          "%.3f, mean NLL difference %.2e (worst prompt %.2e)" % (
              100 * values[0], values[1], values[2], values[3], values[5], values[4]))
    if limits is None:
        return 0
    lim = LIMITS[limits]
    bad = [values[0] < lim[0]] + [v > x for v, x in zip(values[1:], lim[1:])]
    print("limits of %s: %s" % (limits, "BROKEN" if any(bad) else "kept"))
    return int(any(bad))


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    ap.add_argument("model", nargs="?")
    ap.add_argument("--write", metavar="GOLDEN")
    ap.add_argument("--golden")
    ap.add_argument("--full", metavar="LOGITS")
    ap.add_argument("--against", metavar="DUMP")
    ap.add_argument("--limits", choices=sorted(LIMITS))
    args = ap.parse_args()
    if args.against:
        if not args.golden or not args.full:
            ap.error("--against needs --golden and --full")
        sys.exit(compare(read_golden(args.golden), args.full, args.against, args.limits))
    if not args.model or bool(args.write) == bool(args.golden):
        ap.error("name a model, and either --write or --golden")
    g = Gguf(args.model)
    if args.write:
        from prompts import encode_all
        prompts, forced = encode_all(g), None
    else:
        golden = read_golden(args.golden)
        prompts, forced = golden["prompts"], golden["forced"]
        if golden["sha256"] != sha256(args.model):
            sys.exit("%s is of another file than %s" % (args.golden, args.model))
    logits, forced = run(Llama(g), prompts, forced)
    if args.write:
        write_golden(args.write, args.model, prompts, forced, logits)
    if args.full:
        with open(args.full, "wb") as f:
            for x in logits:
                f.write(x.astype("<f4").tobytes())
    sys.exit(check_golden(read_golden(args.write or args.golden), logits) != 0)


if __name__ == "__main__":
    main()
