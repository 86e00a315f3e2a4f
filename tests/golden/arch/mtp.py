#!/usr/bin/env python3
"""The model glm4moe of make.py with a whole head that guesses the token after the next one.

    pip install numpy gguf
    mtp.py

writes glm4moe_mtp.gguf, which has the base of glm4moe.gguf and a random block 2, and
glm4moe_mtp.guesses beside this script.  transformers does not compute such heads, so the
reference is here, in float64, from the definition: of each row the normalised embedding of the next
token and the normalised hidden row (behind the model's last norm) side by side, a projection, a
layer, a norm, and a product with a matrix of tokens.  The base is computed by the same functions, and
its logits must be those of glm4moe.golden, which are transformers'.  glm4moe_mtp.guesses, little-endian:

    "IGG1", u32 n_vocab, n_prompts, n_steps
    for each prompt of glm4moe.golden: f32 logits[n_steps][n_vocab] of the head, behind the row whose
    logits the golden has, when the next token is its greedy one
"""

import pathlib
import struct

import gguf
import numpy as np

HERE = pathlib.Path(__file__).parent
HEADS, KV_HEADS, DIM, N_ROT, EPS = 4, 2, 16, 8, float(np.float32(1e-5))
EXPERTS, USED, GROUPS, GROUPS_USED, SCALE = 8, 3, 4, 2, 2.5


def read(path):
    """The tensors of a file as matrices of float64."""
    return {t.name: t.data.astype(np.float64) for t in gguf.GGUFReader(path).tensors}


def norm(x, w):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * w


def silu(x):
    return x / (1 + np.exp(-x))


def rotate(x):
    """RoPE of the first N_ROT dimensions, halves of them as pairs; x [heads, n, DIM]."""
    half = N_ROT // 2
    angle = np.arange(x.shape[1])[:, None] * 1e6 ** (-np.arange(half) / half)
    a, b, rest = x[..., :half], x[..., half:N_ROT], x[..., N_ROT:]
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)


def attend(w, at, h):
    n = len(h)

    def heads(name, count):
        return (h @ w[f"{at}attn_{name}.weight"].T + w[f"{at}attn_{name}.bias"]).reshape(
            n, count, DIM).swapaxes(0, 1)

    q = rotate(norm(heads("q", HEADS), w[at + "attn_q_norm.weight"]))
    k = rotate(norm(heads("k", KV_HEADS), w[at + "attn_k_norm.weight"]))
    k, v = (np.repeat(x, HEADS // KV_HEADS, 0) for x in (k, heads("v", KV_HEADS)))
    scores = q @ k.swapaxes(1, 2) / DIM ** 0.5
    scores = np.where(np.tril(np.ones((n, n), bool)), scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    out = (p / p.sum(-1, keepdims=True)) @ v
    return out.swapaxes(0, 1).reshape(n, -1) @ w[at + "attn_output.weight"].T


def glu(w, at, kind, h, expert=None):
    gate, up, down = (w[f"{at}ffn_{x}{kind}.weight"] for x in ("gate", "up", "down"))
    if expert is not None:
        gate, up, down = gate[expert], up[expert], down[expert]
    return (silu(h @ gate.T) * (h @ up.T)) @ down.T


def experts(w, at, h):
    score = 1 / (1 + np.exp(-h @ w[at + "ffn_gate_inp.weight"].T))
    biased = score + w[at + "exp_probs_b.bias"]
    out = glu(w, at, "_shexp", h)
    for row in range(len(h)):
        groups = biased[row].reshape(GROUPS, -1)
        best = np.argsort(-np.sort(groups, -1)[:, -2:].sum(-1), kind="stable")[:GROUPS_USED]
        allowed = np.where(np.isin(np.arange(EXPERTS) // (EXPERTS // GROUPS), best),
                           biased[row], -np.inf)
        chosen = np.argsort(-allowed, kind="stable")[:USED]
        weight = score[row, chosen] / (score[row, chosen].sum() + 1e-20) * SCALE
        for e, x in zip(chosen, weight):
            out[row] += x * glu(w, at, "_exps", h[row], e)
    return out


def layer(w, at, x):
    x = x + attend(w, at, norm(x, w[at + "attn_norm.weight"]))
    h = norm(x, w[at + "post_attention_norm.weight"])
    return x + (glu(w, at, "", h) if at == "blk.0." else experts(w, at, h))


def hidden(w, ids):
    """Behind the last norm."""
    x = w["token_embd.weight"][ids]
    for at in ("blk.0.", "blk.1."):
        x = layer(w, at, x)
    return norm(x, w["output_norm.weight"])


def guess(w, ids):
    """The head's logits behind the last row but one of ids, whose next token is the last."""
    at = "blk.2."
    e = norm(w["token_embd.weight"][ids[1:]], w[at + "nextn.enorm.weight"])
    h = norm(hidden(w, ids[:-1]), w[at + "nextn.hnorm.weight"])
    x = np.concatenate([e, h], -1) @ w[at + "nextn.eh_proj.weight"].T
    return norm(layer(w, at, x), w[at + "nextn.shared_head_norm.weight"])[-1] @ \
        w["output.weight"].T


def whole(base):
    """With a random head: its layer's tensors have the shapes of block 1's."""
    g = np.random.default_rng(7)
    w = dict(base)
    shapes = {k.replace("blk.1.", "blk.2."): v.shape for k, v in base.items() if "blk.1." in k}
    width = base["output_norm.weight"].shape[0]
    shapes |= {f"blk.2.nextn.{x}.weight": (width,) for x in ("enorm", "hnorm", "shared_head_norm")}
    shapes["blk.2.nextn.eh_proj.weight"] = (width, 2 * width)
    for name, shape in shapes.items():
        r = g.standard_normal(shape)
        if len(shape) > 1:
            r *= 1.3 / shape[-1] ** 0.5
        else:
            r = 0.25 * r + ("norm.weight" in name)
        short = np.float16 if len(shape) > 1 and "ffn_gate_inp" not in name else np.float32
        w[name] = r.astype(short).astype(np.float64)
    return w


def write(w, path):
    """With the keys of glm4moe.gguf, which has the same types of tensors."""
    out = gguf.GGUFWriter(path, "glm4moe")
    for key, field in gguf.GGUFReader(HERE / "glm4moe.gguf").fields.items():
        if key.startswith("glm4moe."):
            value = field.contents()
            (out.add_bool if isinstance(value, bool) else out.add_uint32 if isinstance(value, int)
             else out.add_float32)(key, value)
    for name, a in w.items():
        keep = a.ndim == 1 or "ffn_gate_inp" in name
        out.add_tensor(name, np.ascontiguousarray(a.astype(np.float32 if keep else np.float16)))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def nmse(a, b):
    return ((a - b) ** 2).sum() / ((b - b.mean()) ** 2).sum()


def main():
    w = whole(read(HERE / "glm4moe.gguf"))
    write(w, HERE / "glm4moe_mtp.gguf")
    data = (HERE / "glm4moe.golden").read_bytes()
    magic, n_vocab, n_prompts, n_steps = struct.unpack_from("<4sIII", data)
    assert magic == b"IGA1"
    at, out = 16, struct.pack("<4sIII", b"IGG1", n_vocab, n_prompts, n_steps)
    for _ in range(n_prompts):
        n, = struct.unpack_from("<I", data, at)
        ids = list(struct.unpack_from(f"<{n}i", data, at + 4))
        greedy = struct.unpack_from(f"<{n_steps}i", data, at + 4 + 4 * n)
        at += 4 + 4 * n + 4 * n_steps
        want = np.frombuffer(data, "<f4", n_steps * n_vocab, at).reshape(n_steps, n_vocab)
        at += want.nbytes
        x = hidden(w, ids + list(greedy[:-1]))[n - 1:] @ w["output.weight"].T
        error = nmse(x, want.astype(np.float64))
        print(f"base against transformers: NMSE {error:.1e}")
        assert error < 1e-11
        rows = [guess(w, ids + list(greedy[:t + 1])) for t in range(n_steps)]
        out += np.array(rows, "<f4").tobytes()
    (HERE / "glm4moe_mtp.guesses").write_bytes(out)


if __name__ == "__main__":
    main()
