"""Tiny models of architectures glm4moe and qwen35 with a head that guesses the token after the next one.

The head's layer has the tensors of the model's last layer, which has attention.  Of a model that is a table from a token to the next one
(kinds script and loop: layers add nothing) the head sees only the token that follows, so its guess is what the
table says of that: always right.  `wrong`: its matrix of tokens is moved by one, so it is always wrong.

A glm4moe can also be a folder of safetensors with the same numbers.
"""
import json
import struct

import tiny_model


class Headed(tiny_model.Model):
    wrong = False

    def metadata(self):
        a = self.arch + "."
        replaced = {a + "block_count": self.n_blocks + 1}
        return [(k, t, replaced.get(k, v)) for k, t, v in super().metadata()] + [(a + "nextn_predict_layers", "u32", 1)]

    def tensors(self):
        w, n = self.width, self.n_blocks
        out = [(name.replace("ffn_norm", "post_attention_norm"), *rest) for name, *rest in super().tensors()]
        last, head = "blk.%d." % (n - 1), "blk.%d." % n
        out += [(head + name[len(last):], *rest) for name, *rest in out if name.startswith(last)]
        ones = struct.pack("<%df" % w, *[1.0] * w)
        out += [(head + "nextn.%s.weight" % name, [w], tiny_model.F32, ones)
                for name in ("enorm", "hnorm", "shared_head_norm")]
        rows = b"".join(struct.pack("<%de" % (2 * w), *[float(k == i) for k in range(2 * w)]) for i in range(w))
        out.append((head + "nextn.eh_proj.weight", [2 * w, w], tiny_model.F16, rows))
        if self.wrong:
            dims, dtype, data = next(rest for name, *rest in out if name == "output.weight")
            row = tiny_model.ROW_BYTES[dtype](w)
            out.append((head + "nextn.shared_head_head.weight", dims, dtype, data[-row:] + data[:-row]))
        return out


class Glm(Headed):
    def __init__(self, wrong=False, **options):
        super().__init__(n_experts=4, **options)
        self.arch, self.wrong = "glm4moe", wrong

    def metadata(self):
        a = self.arch + "."
        return super().metadata() + [(a + "expert_feed_forward_length", "u32", self.n_ff),
                                     (a + "expert_gating_func", "u32", 2), (a + "expert_weights_norm", "bool", True)]


class Part:
    """A model's file without its head, or the file that has only the head, as llama.cpp's converter writes it."""
    def __init__(self, model, head):
        self.model, self.head = model, head

    def metadata(self):
        m = self.model
        return super(Headed, m).metadata() if not self.head else [
            e for e in m.metadata() if not e[0].startswith("tokenizer.")]

    def tensors(self):
        block = "blk.%d." % self.model.n_blocks
        return [t for t in self.model.tensors()
                if (t[0].startswith(block) or not t[0].startswith("blk.") if self.head else not t[0].startswith(block))]


def write_parts(folder, **options):
    """(the model's path, the head's)"""
    paths = folder / "model.gguf", folder / "mtp-model.gguf"
    for path, head in zip(paths, (False, True)):
        path.write_bytes(tiny_model.build(Part(Headed(arch="qwen35", **options), head)))
    return tuple(map(str, paths))


def write(path, arch="glm4moe", **options):
    path.write_bytes(tiny_model.build(Glm(**options) if arch == "glm4moe" else Headed(arch=arch, **options)))
    return str(path)


# GGUF's names of a layer's tensors and those of a folder.
NAMES = {"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_gate_inp": "mlp.gate", "nextn.enorm": "enorm", "nextn.hnorm": "hnorm", "nextn.eh_proj": "eh_proj",
         "nextn.shared_head_norm": "shared_head.norm", "nextn.shared_head_head": "shared_head.head"}
ENDS = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight"}


def folder_tensors(model):
    """(name, shape, dtype, bytes) as a folder has them: of each expert its own."""
    for name, dims, dtype, data in model.tensors():
        if name in ENDS:
            yield ENDS[name], dims[::-1], dtype, data
            continue
        _, layer, part = name.removesuffix(".weight").split(".", 2)
        p = "model.layers.%s." % layer
        if not part.endswith("_exps"):
            yield p + NAMES[part] + ".weight", dims[::-1], dtype, data
            continue
        each = len(data) // dims[2]
        for e in range(dims[2]):
            yield ("%smlp.experts.%d.%s_proj.weight" % (p, e, part.split("_")[1]), dims[1::-1], dtype,
                   data[e * each:(e + 1) * each])


def tokenizer_of(v):
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"added_tokens": [{"id": i, "content": t, **flags} for i, t in enumerate(v.control)],
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, level]},
            "decoder": level, "model": {"type": "BPE", "vocab": v.index, "merges": v.merges}}


def write_folder(path, **options):
    m = Glm(dtype="F16", **options)
    path.mkdir()
    header, at, tensors = {}, 0, list(folder_tensors(m))
    for name, shape, dtype, data in tensors:
        header[name] = {"dtype": {tiny_model.F32: "F32", tiny_model.F16: "F16"}[dtype], "shape": shape,
                        "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(t[3] for t in tensors))
    (path / "config.json").write_text(json.dumps({
        "model_type": "glm4_moe", "tie_word_embeddings": False, "num_hidden_layers": m.n_blocks, "hidden_size": m.width,
        "intermediate_size": m.n_ff, "moe_intermediate_size": m.n_ff, "num_attention_heads": m.n_heads,
        "num_key_value_heads": m.n_kv_heads, "head_dim": m.head_dim, "max_position_embeddings": m.n_context,
        "rms_norm_eps": 1e-5, "partial_rotary_factor": 1.0, "rope_theta": 10000.0, "n_routed_experts": m.n_experts,
        "num_experts_per_tok": m.n_used, "n_shared_experts": 0, "first_k_dense_replace": 0, "vocab_size": m.n_vocab,
        "num_nextn_predict_layers": 1}))
    (path / "tokenizer.json").write_text(json.dumps(tokenizer_of(m.vocabulary)))
    (path / "tokenizer_config.json").write_text(json.dumps({
        "add_bos_token": False, "chat_template": m.template, "bos_token": m.vocabulary.tokens[tiny_model.IM_START],
        "eos_token": m.vocabulary.tokens[tiny_model.IM_END]}))
    return str(path)
