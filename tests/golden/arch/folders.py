#!/usr/bin/env python3
"""The models of make.py as folders: NAME/ as transformers writes them, and two as MLX does.

    pip install torch transformers safetensors gguf numpy
    folders.py [name ...]

NAME/ holds the very numbers of NAME.gguf, so its logits are the same to the bit.  "linear"
comes in several files with an index, and "mistral" and "mistral3" as the text half of a model that sees.
"mlx" and "mlxmoe" are quantised by MLX's formula; their goldens are of the model with the
exact values of those codes.
"""

import json
import pathlib
import shutil
import sys

import numpy as np
import torch
import transformers as tf
from safetensors.numpy import load_file, save_file

import make

HERE = pathlib.Path(__file__).parent


def short(state):
    """Matrices as F16, vectors as float32, what is shared still shared."""
    done = {}
    for p in state.values():
        key = p.data_ptr(), tuple(p.shape)
        if key not in done:
            done[key] = p.float() if p.ndim == 1 else p.half()
    return {k: done[p.data_ptr(), tuple(p.shape)] for k, p in state.items()}


def strip_config(folder, text_of=None):
    """Without what changes with the version; inside another model's, if that is asked for."""
    c = json.loads((folder / "config.json").read_text())
    for key in ("transformers_version", "_name_or_path"):
        c.pop(key, None)
    if folder.name == "mistral3":  # transformers 4 has no class of it
        c["model_type"] = "ministral3"
        c["rope_parameters"] = {**c.pop("rope_scaling"), "rope_theta": c.pop("rope_theta"),
                                "llama_4_scaling_beta": 0.3}
    if c["model_type"] == "gemma4_text":  # as Google's files have it
        full = next(iter(c.pop("per_layer_config").values()))
        c["global_head_dim"] = full["head_dim"]
        c["num_global_key_value_heads"] = full.get("num_key_value_heads")
    if folder.name == "granite4":  # as IBM's files have it
        c["layer_types"] = ["mamba" if x == "linear_attention" else "attention"
                            for x in c["layer_types"]]
        c["position_embedding_type"] = "nope"
    if text_of:
        c = {"model_type": text_of, "text_config": c, "vision_config": {"model_type": "pixtral"}}
    (folder / "config.json").write_text(json.dumps(c, indent=1) + "\n")
    for f in folder.iterdir():
        f.chmod(0o644)
    (folder / "generation_config.json").unlink(missing_ok=True)


def puzzle_config(folder, model):
    """Each block's own sizes instead of the model's, and the prefix of tensors' names, as NVIDIA's Puzzle files have them;
    transformers has no class of it."""
    kinds = {"linear_attention": "mamba", "full_attention": "attention", "moe": "moe"}
    path = folder / "config.json"
    c = json.loads(path.read_text())
    sizes = ("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "moe_latent_size",
             "moe_shared_expert_intermediate_size")
    c["layers_block_type"] = [kinds[k] for k in c["layers_block_type"]]
    c["block_configs"] = [{"block_type": k, **{s: getattr(block.mixer.experts.config, s) for s in sizes if k == "moe"}}
                          for k, block in zip(c["layers_block_type"], model.model.layers)]
    for s in sizes:
        del c[s]
    c |= {"model_type": "nemotron_h_puzzle", "architectures": ["NemotronHPuzzleForCausalLM"], "num_hidden_layers": None}
    path.write_text(json.dumps(c, indent=1) + "\n")
    t = {k.replace("backbone.", "model."): v for k, v in load_file(folder / "model.safetensors").items()}
    save_file(t, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)


def save(name, model, **more):
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, state_dict=short(model.state_dict()), safe_serialization=True,
                          **more)
    strip_config(folder, "mistral3" if name.startswith("mistral") else None)
    if hasattr(model, "further"):  # a block that predicts further tokens
        t = load_file(folder / "model.safetensors")
        within = getattr(model, "further_in", f"model.layers.{model.config.num_hidden_layers}.")
        t |= {within + k:
              np.ones(v, np.float16 if len(v) > 1 else np.float32)
              for k, v in model.further.items()}
        save_file(t, folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "model.safetensors").chmod(0o644)
    if getattr(model, "mxfp4", {}):
        t = load_file(folder / "model.safetensors")
        for hf in [k for k in model.mxfp4 if k.startswith("model.")]:
            del t[hf]
            t[hf + "_blocks"], t[hf + "_scales"] = model.mxfp4[hf][:2]
        save_file(t, folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "model.safetensors").chmod(0o644)
        c = json.loads((folder / "config.json").read_text())
        c["quantization_config"] = {"modules_to_not_convert": ["model.layers.*.self_attn"],
                                    "quant_method": "mxfp4"}
        (folder / "config.json").write_text(json.dumps(c, indent=1) + "\n")
    if name == "nemotronpuzzle":
        puzzle_config(folder, model)
    if name == "mistral":
        t = {"language_model." + k: v for k, v in load_file(folder / "model.safetensors").items()}
        t["vision_tower.patch_conv.weight"] = np.zeros((2, 3, 2, 2), np.float16)
        save_file(t, folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "model.safetensors").chmod(0o644)
    return folder


# ---- MLX ----

def bf16(a):
    """To the nearest bfloat16, as float32."""
    b = np.ascontiguousarray(a, dtype=np.float32).view(np.uint32)
    return ((b + 0x7fff + (b >> 16 & 1)) & 0xffff0000).astype(np.uint32).view(np.float32)


def quantise(w, group, bits):
    """Codes, scales, biases as mlx.core.quantize makes them, and the exact values."""
    g = w.astype(np.float32).reshape(*w.shape[:-1], -1, group)
    low, high = g.min(-1), g.max(-1)
    top = 2 ** bits - 1
    mask = np.abs(low) > np.abs(high)
    scale = np.maximum((high - low) / top, 1e-7)
    scale = np.where(mask, scale, -scale)
    edge = np.where(mask, low, high)
    q0 = np.round(edge / scale)
    scale = np.where(q0 != 0, edge / np.where(q0 == 0, 1, q0), scale)
    bias = np.where(q0 != 0, edge, 0)
    scale, bias = bf16(scale), bf16(bias)
    q = np.clip(np.round((g - bias[..., None]) / scale[..., None]), 0, top).astype(np.uint32)
    exact = q * scale[..., None].astype(np.float64) + bias[..., None]
    per = 32 // bits
    words = q.reshape(*w.shape[:-1], -1, per)
    words = (words << (np.arange(per, dtype=np.uint32) * bits)).sum(-1, dtype=np.uint32)
    return words, scale, bias, exact.reshape(w.shape)


def mlx(name, model, rules, arrays_of):
    """Quantise every matrix by the first rule whose word is in its name; the model gets the
    exact values, the folder the codes."""
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    from safetensors.torch import save_file as save_torch
    config = json.loads(model.config.to_json_string())
    config.pop("transformers_version", None)
    config["quantization"] = {"group_size": rules[-1][1], "bits": rules[-1][2]}
    out = {}
    for hf, a, back in arrays_of(model):
        if a.ndim == 1:
            out[hf] = torch.from_numpy(a).float()
            continue
        group, bits = next(r[1:] for r in rules if r[0] in hf)
        words, scale, bias, exact = quantise(a, group, bits)
        back(exact)
        module = hf.removesuffix(".weight")
        out[hf] = torch.from_numpy(words.view(np.int32)).view(torch.uint32)
        out[module + ".scales"] = torch.from_numpy(scale).bfloat16()
        out[module + ".biases"] = torch.from_numpy(bias).bfloat16()
        if (group, bits) != rules[-1][1:]:
            config["quantization"][module] = {"group_size": group, "bits": bits}
    save_torch({k: v.contiguous() for k, v in out.items()}, folder / "model.safetensors",
               metadata={"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    (folder / "model.safetensors").chmod(0o644)
    return make.run(name, model, 100)


def setter(p):
    def back(exact):
        p.data = torch.from_numpy(exact).clone()
    return back


def dense_arrays(model):
    for hf, p in model.named_parameters():
        yield hf, p.data.numpy(), setter(p)


def moe_arrays(model):
    """Experts as MLX stacks them."""
    stacks = {}
    for hf, p in model.named_parameters():
        if ".experts." not in hf:
            yield hf, p.data.numpy(), setter(p)
            continue
        head, _, tail = hf.partition(".experts.")
        number, _, part = tail.partition(".")
        stacks.setdefault(f"{head}.switch_mlp.{part}", {})[int(number)] = p
    for hf, parts in stacks.items():
        def back(exact, parts=parts):
            for i in range(len(parts)):
                setter(parts[i])(exact[i])
        yield hf, np.stack([parts[i].data.numpy() for i in range(len(parts))]), back


def mlx_dense(name):
    c = tf.LlamaConfig(**{**make.SIZES, "hidden_size": 128, "intermediate_size": 96},
                       tie_word_embeddings=True, rope_theta=10000.0, rms_norm_eps=1e-5)
    m = tf.LlamaForCausalLM(c).double().eval()
    make.fill(m, 31, False)
    return mlx(name, m, [("down_proj", 32, 8), ("embed", 128, 8), ("o_proj", 128, 4), ("", 64, 4)],
               dense_arrays)


def mlx_moe(name):
    c = tf.Qwen3MoeConfig(**make.SIZES, head_dim=16, tie_word_embeddings=True, rope_theta=1e6,
                          rms_norm_eps=1e-6, num_experts=6, num_experts_per_tok=2,
                          moe_intermediate_size=32, norm_topk_prob=True)
    m = tf.Qwen3MoeForCausalLM(c).double().eval()
    make.fill(m, 32, False)
    return mlx(name, m, [("mlp.gate.", 64, 8), ("down_proj", 32, 4), ("", 64, 4)], moe_arrays)


MLX = {"mlx": mlx_dense, "mlxmoe": mlx_moe}


def main():
    make.write = lambda *args, **more: None  # the models alone
    models = make.all_models()
    for name in sys.argv[1:] or [*models, *MLX]:
        if name in MLX:
            gap = MLX[name](name)
            if gap < 1e-3:
                sys.exit(f"{name}: another seed is needed, the least gap is {gap}")
        else:
            model = models[name](name)
            getattr(model, "restore", lambda: None)()
            save(name, model, **({"max_shard_size": "50KB"} if name == "linear" else {}))
        size = sum(f.stat().st_size for f in (HERE / name).iterdir())
        print(f"{name}: {size} bytes")
        if size > 200000:
            sys.exit(f"{name}: too large")


if __name__ == "__main__":
    main()
