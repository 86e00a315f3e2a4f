#!/usr/bin/env python3
"""What gemma3.gguf says of a prompt with rows that are no token's, as an image's would be.

    pip install gguf numpy
    outside.py

computes the model in float64, first for the prompts of gemma3.golden, whose logits are transformers', then for
a prompt in which some rows come from outside: random ones, which see each other both ways in all layers, and
which RoPE turns along three axes (with sections, which this model has not).  outside.golden, little-endian:

    "IGO1", u32 n_vocab, n_ids, first, n, width, n_positions, sections[3], n_logits
    i32 ids[n_ids], f32 rows[n][width], i32 positions[n][3], i32 at[n_logits], f32 logits[n_logits][n_vocab]

rows are those from `first` on; a position is counted from that of the first of them, and the token behind them is
n_positions further on than it; logits are of the rows `at`.
"""

import pathlib
import struct

import gguf
import numpy as np

HERE = pathlib.Path(__file__).parent
HEADS, DIM, WINDOW, EPS = 4, 16, 40, 1e-6
LOCAL = [True, True, False, True]  # layers with a window


def read_model():
    reader = gguf.GGUFReader(HERE / "gemma3.gguf")
    return {t.name: gguf.dequantize(t.data, t.tensor_type).astype(np.float64).reshape(t.shape[::-1])
            for t in reader.tensors}


def norm(x, w):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * w


def turn(x, turned, local, axes):
    """RoPE of [rows, heads, DIM], halves; turned [rows, 3]; axes: of each pair."""
    i = np.arange(DIM // 2)
    inverse = (1 / np.float64(10000.0 if local else 1e6) ** (2 * i / DIM)) * (1 if local else 1 / 8)
    angle = turned[:, axes] * inverse
    c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = x[..., :DIM // 2], x[..., DIM // 2:]
    return np.concatenate([a * c - b * s, b * c + a * s], -1)


def forward(w, x, turned, axes, sees_to):
    """Logits of all rows; x [rows, width]: the input; sees_to [rows]: the last row that each sees."""
    n = len(x)
    rows = np.arange(n)
    for i, local in enumerate(LOCAL):
        def t(name):
            return w[f"blk.{i}.{name}.weight"]
        h = norm(x, t("attn_norm"))
        q = norm((h @ t("attn_q").T).reshape(n, HEADS, DIM), t("attn_q_norm"))
        k = norm((h @ t("attn_k").T).reshape(n, 1, DIM), t("attn_k_norm"))
        v = h @ t("attn_v").T
        q, k = turn(q, turned, local, axes), turn(k, turned, local, axes)[:, 0]
        seen = rows[None] <= sees_to[:, None]
        if local:
            seen &= rows[None] > rows[:, None] - WINDOW
        score = np.where(seen[:, None], np.einsum("rhd,kd->rhk", q, k) / DIM ** 0.5, -np.inf)
        p = np.exp(score - score.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        x = x + norm((p @ v).reshape(n, -1) @ t("attn_output").T, t("post_attention_norm"))
        h = norm(x, t("ffn_norm"))
        g = h @ t("ffn_gate").T
        g = 0.5 * g * (1 + np.tanh((2 / np.pi) ** 0.5 * (g + 0.044715 * g ** 3)))
        x = x + norm((g * (h @ t("ffn_up").T)) @ t("ffn_down").T, t("post_ffw_norm"))
    return norm(x, w["output_norm.weight"]) @ w["token_embd.weight"].T


def embed(w, ids):
    # the scale is a float32, as in the model's code
    return w["token_embd.weight"][ids] * np.float64(np.float32(48 ** 0.5))


def check(w):
    """The same as transformers' logits.  Returns the first prompt."""
    data = (HERE / "gemma3.golden").read_bytes()
    n_vocab, n_prompts, n_steps = struct.unpack_from("<3I", data, 4)
    at, first = 16, None
    for _ in range(n_prompts):
        n_ids, = struct.unpack_from("<I", data, at)
        ids = np.frombuffer(data, "<i4", n_ids + n_steps, at + 4)
        at += 4 + 4 * (n_ids + n_steps)
        want = np.frombuffer(data, "<f4", n_steps * n_vocab, at).reshape(n_steps, n_vocab)
        at += 4 * n_steps * n_vocab
        rows = np.arange(n_ids + n_steps - 1)
        turned = np.repeat(rows[:, None], 3, 1)
        got = forward(w, embed(w, ids[:-1]), turned, np.zeros(DIM // 2, int), rows)[n_ids - 1:]
        error = ((got - want) ** 2).sum() / ((want - want.mean()) ** 2).sum()
        print(f"NMSE {error:.1e}")
        assert error < 1e-11
        first = ids[:n_ids] if first is None else first
    return first


def main():
    w = read_model()
    ids = check(w)
    n_vocab, width = w["token_embd.weight"].shape
    first, n, n_positions = 230, 32, 8
    sections = (4, 2, 2)
    axes = np.repeat(np.arange(3), sections)
    rows = np.random.default_rng(5).standard_normal((n, width)).astype("<f4")
    positions = np.stack([np.zeros(n, int), np.arange(n) // 8, np.arange(n) % 8], 1)
    x = embed(w, ids)
    x[first:first + n] = rows
    turned = np.repeat(np.arange(len(ids))[:, None], 3, 1)
    turned[first:first + n] = first + positions
    turned[first + n:] += n_positions - n
    sees_to = np.arange(len(ids))
    sees_to[first:first + n] = first + n - 1
    at = [first - 1, first + n - 1, len(ids) - 1]
    logits = forward(w, x, turned, axes, sees_to)[at]
    (HERE / "outside.golden").write_bytes(
        b"IGO1" + struct.pack("<10I", n_vocab, len(ids), first, n, width, n_positions, *sections, len(at))
        + ids.astype("<i4").tobytes() + rows.tobytes() + positions.astype("<i4").tobytes()
        + np.array(at, "<i4").tobytes() + logits.astype("<f4").tobytes())


if __name__ == "__main__":
    main()
