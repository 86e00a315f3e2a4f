#!/usr/bin/env python3
"""Models of make.py and hybrids.py with a whole head that guesses the token after the next one.

    pip install numpy gguf safetensors
    mtp.py [NAME ...]

writes for each NAME (glm4moe, qwen35, qwen35moe, qwen3next, glmlite) NAME_mtp.gguf, which has the base of NAME.gguf and a
random block behind it, the folder NAME_mtp/ with the same numbers (the base's tensors from NAME/, those of the block
by the names that the publishers' files have), and NAME_mtp.guesses beside this script.  transformers does not compute such
heads, so the reference is here, in float64, from the definition: of each row the normalised embedding of
the next token and the normalised hidden row (behind the model's last norm) side by side, a projection, a
layer with attention, a norm, and a product with a matrix of tokens.  The base is computed by the same
functions, and its logits must be those of NAME.golden, which are transformers'.  NAME_mtp.guesses,
little-endian:

    "IGG1", u32 n_vocab, n_prompts, n_steps
    for each prompt of NAME.golden: f32 logits[n_steps][n_vocab] of the head, behind the row whose
    logits the golden has, when the next token is its greedy one
"""

import json
import pathlib
import struct
import sys

import gguf
import numpy as np
from safetensors.numpy import load_file, save_file

HERE = pathlib.Path(__file__).parent


def silu(x):
    return x / (1 + np.exp(-x))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# Of the head's layer, by GGUF's names: those of folders.
LAYER_NAMES = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
               "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
               "attn_k_norm": "self_attn.k_norm", "post_attention_norm": "post_attention_layernorm",
               "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
               "ffn_gate_inp": "mlp.gate", "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
               "exp_probs_b": "mlp.gate.e_score_correction_bias", "ffn_norm": "post_attention_layernorm",
               "attn_q_a": "self_attn.q_a_proj", "attn_q_a_norm": "self_attn.q_a_layernorm",
               "attn_q_b": "self_attn.q_b_proj", "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
               "attn_kv_a_norm": "self_attn.kv_a_layernorm"}


class Base:
    """A file's keys, without the architecture, and its tensors as matrices of float64."""
    MOST = 1e-11  # NMSE of the base's logits
    FFN_NORM = "post_attention_norm.weight"

    def __init__(self, name):
        reader = gguf.GGUFReader(HERE / (name + ".gguf"))
        self.arch = reader.fields["general.architecture"].contents()
        self.keys = {k[len(self.arch) + 1:]: f.contents() for k, f in reader.fields.items()
                     if k.startswith(self.arch + ".")}
        k = self.keys
        self.n_layers = k["block_count"] - k.get("nextn_predict_layers", 0)
        self.w = {t.name: t.data.astype(np.float64) for t in reader.tensors}
        self.eps = float(np.float32(k["attention.layer_norm_rms_epsilon"]))
        self.heads, self.kv_heads = k["attention.head_count"], k["attention.head_count_kv"]
        self.dim, self.n_rot = k["attention.key_length"], k["rope.dimension_count"]
        self.theta = k["rope.freq_base"]
        self.used = k.get("expert_used_count")

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.w[name]

    def times(self, x, name):
        return x @ self.w[name].T

    def rotate(self, x):
        """RoPE of the first n_rot dimensions, halves of them as pairs; x [heads, n, dim]."""
        half = self.n_rot // 2
        angle = np.arange(x.shape[1])[:, None] * self.theta ** (-np.arange(half) / half)
        a, b, rest = x[..., :half], x[..., half:self.n_rot], x[..., self.n_rot:]
        cos, sin = np.cos(angle), np.sin(angle)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)

    def over(self, at, q, k, v):
        """Causal attention; q [heads, n, dim], k and v [kv_heads, n, dim], before norm and RoPE of q and k."""
        n = q.shape[1]
        q = self.rotate(self.norm(q, at + "attn_q_norm.weight"))
        k = self.rotate(self.norm(k, at + "attn_k_norm.weight"))
        k, v = (np.repeat(x, self.heads // self.kv_heads, 0) for x in (k, v))
        scores = q @ k.swapaxes(1, 2) / self.dim ** 0.5
        scores = np.where(np.tril(np.ones((n, n), bool)), scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        return ((p / p.sum(-1, keepdims=True)) @ v).swapaxes(0, 1)

    def by_heads(self, x, n_heads):
        return x.reshape(len(x), n_heads, -1).swapaxes(0, 1)

    def glu(self, at, kind, h, expert=None):
        gate, up, down = (self.w[f"{at}ffn_{x}{kind}.weight"] for x in ("gate", "up", "down"))
        if expert is not None:
            gate, up, down = gate[expert], up[expert], down[expert]
        return (silu(h @ gate.T) * (h @ up.T)) @ down.T

    def layer(self, at, x):
        x = x + self.mix(at, self.norm(x, at + "attn_norm.weight"))
        h = self.norm(x, at + self.FFN_NORM)
        return x + (self.experts(at, h) if at + "ffn_gate_inp.weight" in self.w else self.glu(at, "", h))

    def hidden(self, ids):
        """Behind the last norm."""
        x = self.w["token_embd.weight"][ids]
        for i in range(self.n_layers):
            x = self.layer(f"blk.{i}.", x)
        return self.norm(x, "output_norm.weight")

    def logits(self, x):
        return self.times(x, "output.weight" if "output.weight" in self.w else "token_embd.weight")

    def guess(self, ids):
        """The head's logits behind the last row but one of ids, whose next token is the last."""
        at = f"blk.{self.n_layers}."
        e = self.norm(self.w["token_embd.weight"][ids[1:]], at + "nextn.enorm.weight")
        h = self.norm(self.hidden(ids[:-1]), at + "nextn.hnorm.weight")
        x = self.times(np.concatenate([e, h], -1), at + "nextn.eh_proj.weight")
        return self.logits(self.norm(self.layer(at, x), at + "nextn.shared_head_norm.weight")[-1])


class Glm(Base):
    FOLDER = {"layer": "model.layers.{}.", "shared": "mlp.shared_experts", "nextn.eh_proj": "model.layers.{}.eh_proj",
              "nextn.enorm": "model.layers.{}.enorm", "nextn.hnorm": "model.layers.{}.hnorm",
              "nextn.shared_head_norm": "model.layers.{}.shared_head.norm", "norm": 0}
    GROUPS, GROUPS_USED, SCALE = 4, 2, 2.5

    def mix(self, at, h):
        q, k, v = (self.by_heads(self.times(h, f"{at}attn_{x}.weight") + self.w[f"{at}attn_{x}.bias"], n)
                   for x, n in (("q", self.heads), ("k", self.kv_heads), ("v", self.kv_heads)))
        return self.times(self.over(at, q, k, v).reshape(len(h), -1), at + "attn_output.weight")

    def experts(self, at, h):
        score = sigmoid(self.times(h, at + "ffn_gate_inp.weight"))
        biased = score + self.w[at + "exp_probs_b.bias"]
        n, out = score.shape[1], self.glu(at, "_shexp", h)
        for row in range(len(h)):
            groups = biased[row].reshape(self.GROUPS, -1)
            best = np.argsort(-np.sort(groups, -1)[:, -2:].sum(-1), kind="stable")[:self.GROUPS_USED]
            allowed = np.where(np.isin(np.arange(n) // (n // self.GROUPS), best), biased[row], -np.inf)
            chosen = np.argsort(-allowed, kind="stable")[:self.used]
            weight = score[row, chosen] / (score[row, chosen].sum() + 1e-20) * self.SCALE
            for e, x in zip(chosen, weight):
                out[row] += x * self.glu(at, "_exps", h[row], e)
        return out


class Latent(Glm):
    """Multi-head latent attention, absorbed: keys and values are one latent of each token, and a rotated key."""
    GROUPS, GROUPS_USED, SCALE = 1, 1, float(np.float32(1.8))
    FFN_NORM = "ffn_norm.weight"

    def latent_norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * self.w[name]

    def rotate_pairs(self, x):
        """Neighbours are pairs; x [.., n, n_rot]."""
        angle = np.arange(x.shape[-2])[:, None] * self.theta ** (-np.arange(self.n_rot // 2) * 2 / self.n_rot)
        z = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(1j * angle)
        return np.stack([z.real, z.imag], -1).reshape(x.shape)

    def mix(self, at, h):
        n, n_latent = len(h), self.keys["attention.kv_lora_rank"]
        q = self.latent_norm(self.times(h, at + "attn_q_a.weight"), at + "attn_q_a_norm.weight")
        q = self.by_heads(self.times(q, at + "attn_q_b.weight"), self.heads)
        kv = self.times(h, at + "attn_kv_a_mqa.weight")
        c = self.latent_norm(kv[:, :n_latent], at + "attn_kv_a_norm.weight")
        still, turned = q[..., :-self.n_rot], self.rotate_pairs(q[..., -self.n_rot:])
        scores = (np.einsum("hnd,hld->hnl", still, self.w[at + "attn_k_b.weight"]) @ c.T +
                  turned @ self.rotate_pairs(kv[:, n_latent:]).T) / q.shape[-1] ** 0.5
        scores = np.where(np.tril(np.ones((n, n), bool)), scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        out = np.einsum("hnl,hvl->nhv", p / p.sum(-1, keepdims=True) @ c, self.w[at + "attn_v_b.weight"])
        return self.times(out.reshape(n, -1), at + "attn_output.weight")


class Qwen(Base):
    FOLDER = {"layer": "mtp.layers.0.", "shared": "mlp.shared_expert", "nextn.eh_proj": "mtp.fc",
              "nextn.enorm": "mtp.pre_fc_norm_embedding", "nextn.hnorm": "mtp.pre_fc_norm_hidden",
              "nextn.shared_head_norm": "mtp.norm", "norm": 1}
    MOST = 1e-10  # transformers has float32 in its norms

    def norm(self, x, name):
        """In float32, too; of one row two experts are so close that it matters."""
        x = x.astype(np.float32)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True, dtype=np.float32) + np.float32(self.eps))
        return x.astype(np.float64) * self.w[name]

    def mix(self, at, h):
        return self.attend(at, h) if at + "attn_q.weight" in self.w else self.delta_net(at, h)

    def attend(self, at, h):
        """The matrix of queries has those of a head, then its gate."""
        q, gate = self.times(h, at + "attn_q.weight").reshape(len(h), self.heads, 2, self.dim).transpose(2, 1, 0, 3)
        k, v = (self.by_heads(self.times(h, f"{at}attn_{x}.weight"), self.kv_heads) for x in "kv")
        out = self.over(at, q, k, v) * sigmoid(gate.swapaxes(0, 1))
        return self.times(out.reshape(len(h), -1), at + "attn_output.weight")

    def delta_net(self, at, h):
        k, w, n = self.keys, self.w, len(h)
        n_k, n_v, k_dim = k["ssm.group_count"], k["ssm.time_step_rank"], k["ssm.state_size"]
        x, taps = self.times(h, at + "attn_qkv.weight"), w[at + "ssm_conv1d.weight"]
        padded = np.concatenate([np.zeros((taps.shape[1] - 1, x.shape[1])), x])
        x = silu(sum(padded[i:i + n] * taps[:, i] for i in range(taps.shape[1])))
        q, key, v = np.split(x, [n_k * k_dim, 2 * n_k * k_dim], -1)
        unit = [y / np.sqrt((y * y).sum(-1, keepdims=True) + 1e-6) for y in (self.by_heads(a, n_k) for a in (q, key))]
        v = self.by_heads(v, n_v)
        if at + "ssm_ba.weight" in w:  # by heads of keys, of each its betas, then its alphas
            beta, alpha = (x.reshape(n, n_v) for x in np.moveaxis(
                self.times(h, at + "ssm_ba.weight").reshape(n, n_k, 2, n_v // n_k), 2, 0))
            q, key = (np.repeat(y, n_v // n_k, 0) for y in unit)
        else:
            beta, alpha = (self.times(h, f"{at}ssm_{x}.weight") for x in ("beta", "alpha"))
            q, key = (np.tile(y, (n_v // n_k, 1, 1)) for y in unit)
        beta, step = sigmoid(beta).T, np.log1p(np.exp(alpha + w[at + "ssm_dt.bias"]))
        decay, out = np.exp(step * w[at + "ssm_a"]).T, np.zeros_like(v)
        state = np.zeros((n_v, k_dim, v.shape[2]))
        for t in range(n):
            state = state * decay[:, t, None, None]
            known = np.einsum("hk,hkv->hv", key[:, t], state)
            state = state + key[:, t, :, None] * ((v[:, t] - known) * beta[:, t, None])[:, None]
            out[:, t] = np.einsum("hk,hkv->hv", q[:, t], state) / k_dim ** 0.5
        out = self.norm(out, at + "ssm_norm.weight").swapaxes(0, 1).reshape(n, -1)
        return self.times(out * silu(self.times(h, at + "attn_gate.weight")), at + "ssm_out.weight")

    def experts(self, at, h):
        score = np.exp(self.times(h, at + "ffn_gate_inp.weight"))
        gate = sigmoid(h @ self.w[at + "ffn_gate_inp_shexp.weight"])
        out = self.glu(at, "_shexp", h) * gate[:, None]
        for row in range(len(h)):
            chosen = np.argsort(-score[row], kind="stable")[:self.used]
            for e in chosen:
                out[row] += score[row, e] / score[row, chosen].sum() * self.glu(at, "_exps", h[row], e)
        return out


MODELS = {"glm4moe": Glm, "qwen35": Qwen, "qwen35moe": Qwen, "qwen3next": Qwen, "glmlite": Latent}


def add_head(m):
    """A random one: its layer's tensors have the shapes of the last layer's that has attention."""
    g = np.random.default_rng(7)
    last = max(i for i in range(m.n_layers) if {f"blk.{i}.attn_q.weight", f"blk.{i}.attn_q_a.weight"} & set(m.w))
    last, at = f"blk.{last}.", f"blk.{m.n_layers}."
    shapes = {k.replace(last, at): v.shape for k, v in m.w.items() if k.startswith(last)}
    width = m.w["output_norm.weight"].shape[0]
    shapes |= {f"{at}nextn.{x}.weight": (width,) for x in ("enorm", "hnorm", "shared_head_norm")}
    shapes[at + "nextn.eh_proj.weight"] = (width, 2 * width)
    for name, shape in shapes.items():
        r = g.standard_normal(shape)
        if len(shape) > 1:
            r *= 1.3 / shape[-1] ** 0.5
        else:
            r = 0.25 * r + ("norm.weight" in name)
        if "norm.weight" in name and m.FOLDER["norm"]:  # a folder has the float32 below 1
            r = (r.astype(np.float32) - np.float32(1)) + np.float32(1)
        short = np.float16 if len(shape) > 1 and "ffn_gate_inp" not in name else np.float32
        m.w[name] = r.astype(short).astype(np.float64)
    m.keys |= {"block_count": m.n_layers + 1, "nextn_predict_layers": 1}


def write(m, path):
    """With the types of tensors that NAME.gguf has."""
    out = gguf.GGUFWriter(path, m.arch)
    for key, value in m.keys.items():
        add = (out.add_array if isinstance(value, list) else out.add_bool if isinstance(value, bool) else
               out.add_uint32 if isinstance(value, int) else out.add_float32)
        add(f"{m.arch}.{key}", value)
    for name, a in m.w.items():
        keep = a.ndim == 1 or "ffn_gate_inp" in name or "ssm_conv1d" in name
        out.add_tensor(name, np.ascontiguousarray(a.astype(np.float32 if keep else np.float16)))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def folder_tensors(m):
    """The head's tensors by the folder's names; norms are stored without the 1 that GGUF's have."""
    at, to = f"blk.{m.n_layers}.", m.FOLDER
    for name, a in m.w.items():
        if not name.startswith(at):
            continue
        part, _, end = name[len(at):].rpartition(".")
        a = a.astype(np.float32)
        if end == "weight" and part.endswith("norm"):
            a = a - np.float32(to["norm"])
        layer, kind = to["layer"].format(m.n_layers), part.rpartition("_")[2]
        which = part.split("_")[1] if part.startswith("ffn_") else None
        if a.ndim > 1 and "ffn_gate_inp" not in part:
            a = a.astype(np.float16)
        if part == "attn_k_b":  # of each head its keys, then its values
            both = np.concatenate([a.swapaxes(1, 2), m.w[at + "attn_v_b.weight"].astype(np.float16)], 1)
            yield layer + "self_attn.kv_b_proj.weight", both.reshape(-1, both.shape[-1])
        elif part == "attn_v_b":
            continue
        elif part in to:
            yield to[part].format(m.n_layers) + ".weight", a
        elif kind == "exps":
            for e, x in enumerate(a):
                yield f"{layer}mlp.experts.{e}.{which}_proj.weight", x
        elif kind == "shexp" and part not in LAYER_NAMES:
            yield f"{layer}{to['shared']}.{which}_proj.weight", a
        elif part == "exp_probs_b":
            yield layer + LAYER_NAMES[part], a
        else:
            yield f"{layer}{LAYER_NAMES[part]}.{end}", a[None] if part == "ffn_gate_inp_shexp" else a


def write_folder(m, name):
    """The base is that of NAME/, without what it has of a block."""
    of_block = ("mtp.", f"model.layers.{m.n_layers}.")
    folder, base = HERE / (name + "_mtp"), HERE / name
    folder.mkdir(exist_ok=True)
    t = {k: v for k, v in load_file(base / "model.safetensors").items() if not k.startswith(of_block)}
    save_file(t | {k: np.ascontiguousarray(a) for k, a in folder_tensors(m)}, folder / "model.safetensors",
              metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    config = json.loads((base / "config.json").read_text())
    if name.startswith("qwen35"):  # Qwen3-Next's files have no key of it
        config["mtp_num_hidden_layers"] = 1
    elif name == "glmlite":
        config["num_nextn_predict_layers"] = 1
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def nmse(a, b):
    return ((a - b) ** 2).sum() / ((b - b.mean()) ** 2).sum()


def make(name):
    m = MODELS[name](name)
    add_head(m)
    write(m, HERE / (name + "_mtp.gguf"))
    write_folder(m, name)
    data = (HERE / (name + ".golden")).read_bytes()
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
        error = nmse(m.logits(m.hidden(ids + list(greedy[:-1]))[n - 1:]), want.astype(np.float64))
        print(f"{name}: base against transformers: NMSE {error:.1e}")
        assert error < m.MOST
        rows = [m.guess(ids + list(greedy[:t + 1])) for t in range(n_steps)]
        out += np.array(rows, "<f4").tobytes()
    (HERE / (name + "_mtp.guesses")).write_bytes(out)


def main():
    for name in sys.argv[1:] or MODELS:
        make(name)


if __name__ == "__main__":
    main()
