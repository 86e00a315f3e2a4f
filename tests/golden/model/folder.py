#!/usr/bin/env python3
"""The demo model as a folder of safetensors, for test_model_truth.c (INGOT_TEST_FOLDER).

    folder.py MODEL.gguf FOLDER [--mlx | --transformers]

The folder gets tokenizer.json and tokenizer_config.json, too, of the file's own vocabulary.

The weights are the file's exact values in float32, under the names and in the order of rows
that Hugging Face has.  With --transformers that package writes the folder, which gives the
same tensors.  With --mlx they stay the codes that they are: Q4_1 is MLX's group of 4 bits, and
Q8_0 one of 8 bits whose bias is -128 times its scale.

Needs numpy; --transformers needs torch and transformers.
"""
import json
import os
import struct
import sys

import numpy as np

from gguf_read import Gguf

PARTS = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
ENDS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
TYPES = {"float32": "F32", "float16": "F16", "uint32": "U32"}


def module_of(name):
    part = name.removesuffix(".weight")
    if part in ENDS:
        return ENDS[part]
    _, layer, part = part.split(".")
    return "model.layers.%s.%s" % (layer, PARTS[part])


def to_halves(rows, n_heads):
    """Pairs of a head's rows to halves: the converter's order back to Hugging Face's."""
    return (rows.reshape(n_heads, rows.shape[0] // n_heads // 2, 2, *rows.shape[1:])
            .swapaxes(1, 2).reshape(rows.shape))


def groups(g, name):
    """Codes packed as MLX does, scales and biases of groups of 32, and their bits."""
    dims, kind, at = g.tensors[name]
    n_rows, n_cols = int(np.prod(dims[1:])), dims[0]
    size = {3: 20, 8: 34}[kind]
    b = g.data[at:at + n_rows * n_cols // 32 * size].reshape(-1, size)
    d = np.ascontiguousarray(b[:, 0:2]).view("<f2")
    if kind == 3:
        q = np.concatenate([b[:, 4:] & 15, b[:, 4:] >> 4], axis=1)
        q, bias = q[:, 0::2] | q[:, 1::2] << 4, np.ascontiguousarray(b[:, 2:4]).view("<f2")
    else:
        q, bias = b[:, 2:] ^ 0x80, (d.astype(np.float32) * -128).astype("<f2")
    words = np.ascontiguousarray(q).view("<u4").reshape(n_rows, -1)
    return words, d.reshape(n_rows, -1), bias.reshape(n_rows, -1), 4 if kind == 3 else 8


def write(path, tensors):
    """The format in a few lines: the header's length, the header, the data."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, a in tensors.items():
        header[name] = {"dtype": TYPES[a.dtype.name], "shape": list(a.shape),
                        "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for a in tensors.values():
            f.write(np.ascontiguousarray(a).tobytes())


def config_of(m):
    n_heads = m["llama.attention.head_count"]
    return {"model_type": "llama", "hidden_act": "silu", "tie_word_embeddings": True,
            "num_hidden_layers": m["llama.block_count"],
            "hidden_size": m["llama.embedding_length"],
            "intermediate_size": m["llama.feed_forward_length"],
            "num_attention_heads": n_heads,
            "num_key_value_heads": m["llama.attention.head_count_kv"],
            "max_position_embeddings": m["llama.context_length"],
            "rms_norm_eps": float(np.float64(str(m["llama.attention.layer_norm_rms_epsilon"]))),
            "rope_theta": m["llama.rope.freq_base"],
            "vocab_size": len(m["tokenizer.ggml.tokens"])}


def write_tokenizer(out, m):
    """Byte-level BPE that takes digits one by one, as the demo model's own files have it."""
    tokens, control = m["tokenizer.ggml.tokens"], {}
    if m["tokenizer.ggml.pre"] != "smollm":
        sys.exit("folder.py knows the demo model's tokenizer only")
    for i, (text, kind) in enumerate(zip(tokens, m["tokenizer.ggml.token_type"])):
        if kind == 3:
            control[text] = i
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    with open(os.path.join(out, "tokenizer.json"), "w") as f:
        json.dump({
            "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
            "added_tokens": [{"id": i, "content": t, **flags, "special": True}
                             for t, i in control.items()],
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Digits", "individual_digits": True}, byte_level]},
            "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None,
                      "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False,
                      "vocab": {t: i for i, t in enumerate(tokens)},
                      "merges": m["tokenizer.ggml.merges"]}}, f)
    with open(os.path.join(out, "tokenizer_config.json"), "w") as f:
        json.dump({"add_bos_token": False, "chat_template": m["tokenizer.chat_template"],
                   "bos_token": tokens[m["tokenizer.ggml.bos_token_id"]],
                   "eos_token": tokens[m["tokenizer.ggml.eos_token_id"]]}, f)


def by_transformers(out, config, tensors):
    import torch
    import transformers
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config))
    missing, unknown = model.load_state_dict(
        {k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in tensors.items()}, strict=False)
    if unknown or missing != ["lm_head.weight"]:
        sys.exit("transformers misses %s and does not know %s" % (missing, unknown))
    model.tie_weights()
    model.save_pretrained(out, safe_serialization=True, max_shard_size="200MB")


def main():
    path, out = sys.argv[1:3]
    mode = sys.argv[3] if len(sys.argv) > 3 else ""
    if mode not in ("", "--mlx", "--transformers"):
        sys.exit(__doc__)
    g = Gguf(path)
    config, tensors = config_of(g.meta), {}
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    os.makedirs(out, exist_ok=True)
    write_tokenizer(out, g.meta)
    if mode == "--mlx":
        config["quantization"] = {"group_size": 32, "bits": 4}
    for name, (dims, kind, _) in g.tensors.items():
        module, part = module_of(name), name.split(".")[-2]
        order = (lambda a: to_halves(a, heads[part])) if part in heads else (lambda a: a)
        if mode == "--mlx" and kind in (3, 8):
            words, scales, biases, bits = groups(g, name)
            tensors[module + ".weight"] = order(words)
            tensors[module + ".scales"] = order(scales)
            tensors[module + ".biases"] = order(biases)
            if bits == 8:
                config["quantization"][module] = {"group_size": 32, "bits": 8}
        else:
            tensors[module + ".weight"] = order(g.tensor(name).astype(np.float32))
    if mode == "--transformers":
        by_transformers(out, config, tensors)
        return
    write(os.path.join(out, "model.safetensors"), tensors)
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(config, f, indent=1)


if __name__ == "__main__":
    main()
