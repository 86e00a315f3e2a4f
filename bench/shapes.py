"""Shapes of known models, for bench/random_model.py: their numbers, and the keys and tensors of their GGUF files as llama.cpp's
converter names them.  A shape's numbers are those of the model's own configuration.

A tensor is (name, dimensions with columns last, value): None for a matrix of the file's type, "MXFP4" for one of that
type, "exact" for a float32 matrix of random values, else the number that all elements have, or a list of them.
"""
LLAMA_KEYS = {"attention.layer_norm_rms_epsilon": 1e-5}
QWEN_KEYS = {"attention.layer_norm_rms_epsilon": 1e-6}
DELTA_KEYS = {**QWEN_KEYS, "rope.freq_base": 1e7, "rope.dimension_count": 64, "full_attention_interval": 4, "ssm.conv_kernel": 4,
              "ssm.state_size": 128, "ssm.group_count": 16, "ssm.time_step_rank": 32, "ssm.inner_size": 4096}
GPT_OSS_KEYS = {**LLAMA_KEYS, "attention.sliding_window": 128, "rope.freq_base": 1.5e5, "rope.scaling.type": "yarn",
                "rope.scaling.factor": 32.0, "rope.scaling.original_context_length": 4096}
GEMMA4_FULL = 6     # every sixth layer sees all positions
NEMOTRON_NANO = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"  # Mamba-2, experts, attention
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
                          keys={**QWEN_KEYS, "rope.freq_base": 1e6}),
    "qwen3-next-80b-a3b": dict(arch="qwen3next", title="Qwen3-Next-80B-A3B", layers=48, width=2048, ff=5120, heads=16, kv_heads=2,
                               head_dim=256, vocab=151936, context=262144, period=4, key_heads=16, value_heads=32, state=128,
                               taps=4, experts=512, experts_used=10, expert_ff=512, shared_ff=512, keys=DELTA_KEYS),
    "qwen3.5-9b": dict(arch="qwen35", title="Qwen3.5-9B", layers=32, width=4096, ff=12288, heads=16,
                       kv_heads=4, head_dim=256, vocab=248320, context=262144, period=4,
                       key_heads=16, value_heads=32, state=128, taps=4,
                       keys={**DELTA_KEYS, "rope.dimension_sections": [11, 11, 10, 0]}),
    "qwen3.5-35b-a3b": dict(arch="qwen35moe", title="Qwen3.5-35B-A3B", layers=40, width=2048, heads=16, kv_heads=2, head_dim=256,
                            vocab=248320, context=262144, period=4, key_heads=16, value_heads=32, state=128, taps=4,
                            experts=256, experts_used=8, expert_ff=512, shared_ff=512,
                            keys={**DELTA_KEYS, "rope.dimension_sections": [11, 11, 10, 0]}),
    "gemma-4-26b-a4b": dict(arch="gemma4", title="Gemma 4 26B-A4B", layers=30, width=2816, ff=2112, heads=16, kv_heads=8, head_dim=256,
                            full_kv_heads=2, full_head_dim=512, vocab=262144, context=262144,
                            experts=128, experts_used=8, expert_ff=704,
                            keys={**QWEN_KEYS, "attention.sliding_window": 1024, "attention.key_length": 512, "attention.value_length": 512,
                                  "attention.key_length_swa": 256, "attention.value_length_swa": 256,
                                  "attention.shared_kv_layers": 0, "embedding_length_per_layer_input": 0,
                                  "rope.dimension_count": 512, "rope.dimension_count_swa": 256, "rope.freq_base": 1e6,
                                  "rope.freq_base_swa": 1e4, "final_logit_softcapping": 30.0}),
    "gpt-oss-20b": dict(arch="gpt-oss", title="gpt-oss-20b", layers=24, width=2880, ff=2880, heads=64, kv_heads=8, head_dim=64,
                        vocab=201088, context=131072, experts=32, experts_used=4, expert_ff=2880, keys=GPT_OSS_KEYS),
    "gpt-oss-120b": dict(arch="gpt-oss", title="gpt-oss-120b", layers=36, width=2880, ff=2880, heads=64, kv_heads=8, head_dim=64,
                         vocab=201088, context=131072, experts=128, experts_used=4, expert_ff=2880, keys=GPT_OSS_KEYS),
    "nemotron-3-nano": dict(arch="nemotron_h_moe", title="Nemotron 3 Nano 30B-A3B", layers=len(NEMOTRON_NANO), width=2688, heads=32,
                            kv_heads=2, head_dim=128, vocab=131072, context=262144, pattern=NEMOTRON_NANO, mamba_heads=64,
                            mamba_width=4096, state=128, groups=8, taps=4, experts=128, experts_used=6, expert_ff=1856, shared_ff=3712,
                            keys={**LLAMA_KEYS, "ssm.conv_kernel": 4, "ssm.inner_size": 4096, "ssm.state_size": 128,
                                  "ssm.time_step_rank": 64, "ssm.group_count": 8, "attention.layer_norm_epsilon": 1e-5,
                                  "expert_shared_count": 1, "expert_weights_norm": True, "expert_weights_scale": 2.5,
                                  "expert_gating_func": 2, "expert_group_count": 1, "expert_group_used_count": 1}),
    "glm-4.5-air": dict(arch="glm4moe", title="GLM-4.5-Air 106B-A12B", layers=46, width=4096, ff=10944, heads=96, kv_heads=8, head_dim=128,
                        vocab=151552, context=131072, experts=128, experts_used=8, expert_ff=1408, shared_ff=1408, dense=1,
                        keys={**LLAMA_KEYS, "rope.freq_base": 1e6, "rope.dimension_count": 64, "expert_shared_count": 1,
                              "leading_dense_block_count": 1, "expert_gating_func": 2, "expert_weights_norm": True,
                              "expert_weights_scale": 1.0}),
    "glm-4.7-flash": dict(arch="deepseek2", title="GLM-4.7-Flash 30B-A3B", layers=47, width=2048,
                          ff=10240, heads=20, kv_heads=1, head_dim=256, vocab=154880,
                          context=202752, experts=64, experts_used=4, expert_ff=1536, shared_ff=1536, dense=1,
                          q_latent=768, latent=512, rotated=64,
                          keys={**LLAMA_KEYS, "rope.freq_base": 1e6,
                                "attention.q_lora_rank": 768, "attention.kv_lora_rank": 512,
                                "attention.key_length": 576, "attention.value_length": 512,
                                "attention.key_length_mla": 256,
                                "attention.value_length_mla": 256, "rope.dimension_count": 64,
                                "expert_shared_count": 1, "leading_dense_block_count": 1,
                                "expert_gating_func": 2, "expert_weights_norm": True,
                                "expert_weights_scale": 1.8}),
}


def with_layers(s):
    """Keys that have a value for each layer."""
    layers = range(s["layers"])
    if s["arch"] == "gemma4":
        is_full = [i % GEMMA4_FULL == GEMMA4_FULL - 1 for i in layers]
        return {"attention.head_count_kv": [s["full_kv_heads"] if full else s["kv_heads"] for full in is_full],
                "attention.sliding_window_pattern": [not full for full in is_full]}
    if s["arch"] == "nemotron_h_moe":
        kinds = s["pattern"][:s["layers"]]
        return {"attention.head_count_kv": [s["kv_heads"] if kind == "*" else 0 for kind in kinds],
                "feed_forward_length": [s["expert_ff"] if kind == "E" else 0 for kind in kinds]}
    return {}


def keys_of(s):
    """The keys of a file; one that a shape names itself has that value."""
    out = {"vocab_size": s["vocab"], "context_length": s["context"], "embedding_length": s["width"], "block_count": s["layers"],
           "attention.head_count": s["heads"], "attention.head_count_kv": s["kv_heads"]}
    if "ff" in s:
        out["feed_forward_length"] = s["ff"]
    if s["arch"] != "gpt2":
        out.update({"attention.key_length": s["head_dim"], "attention.value_length": s["head_dim"],
                    "rope.dimension_count": s["head_dim"]})
    if "experts" in s:
        out.update({"expert_count": s["experts"], "expert_used_count": s["experts_used"], "expert_feed_forward_length": s["expert_ff"]})
    if "shared_ff" in s:
        out["expert_shared_feed_forward_length"] = s["shared_ff"]
    out.update({**s["keys"], **with_layers(s)})
    return {"general.architecture": s["arch"], "general.name": s["title"] + ", random weights", "tokenizer.ggml.model": "none",
            **{s["arch"] + "." + k: v for k, v in out.items()}}


# ---- parts of a layer; b: the beginning of its tensors' names ------------------------------------

def weights(b, **shapes):
    """Matrices, by name."""
    return [(b + name + ".weight", dims, None) for name, dims in shapes.items()]


def vectors(b, n, *names, value=1.0):
    return [(b + name, (n,), value) for name in names]


def attention(b, s, kv_heads=None, head_dim=None, has_v=True, gated=False):
    w, d, kv = s["width"], head_dim or s["head_dim"], kv_heads or s["kv_heads"]
    out = weights(b, attn_q=((2 if gated else 1) * s["heads"] * d, w), attn_k=(kv * d, w))
    return out + (weights(b, attn_v=(kv * d, w)) if has_v else []) + weights(b, attn_output=(w, s["heads"] * d))


def head_norms(b, s, head_dim=None):
    return vectors(b, head_dim or s["head_dim"], "attn_q_norm.weight", "attn_k_norm.weight")


def biases(b, s, *more):
    d = s["head_dim"]
    return [(b + name, (n,), 0.0) for name, n in (("attn_q.bias", s["heads"] * d), ("attn_k.bias", s["kv_heads"] * d),
                                                  ("attn_v.bias", s["kv_heads"] * d), *more)]


def latent_attention(b, s):
    """With keys and values of all heads in one latent row."""
    w, q = s["width"], s["heads"] * s["head_dim"]
    return (weights(b, attn_q_a=(s["q_latent"], w), attn_q_b=(q, s["q_latent"]), attn_kv_a_mqa=(s["latent"] + s["rotated"], w),
                    attn_k_b=(s["heads"], s["latent"], s["head_dim"] - s["rotated"]),
                    attn_v_b=(s["heads"], s["head_dim"], s["latent"]), attn_output=(w, q)) +
            vectors(b, s["q_latent"], "attn_q_a_norm.weight") + vectors(b, s["latent"], "attn_kv_a_norm.weight"))


def delta_net(b, s):
    values, heads = s["value_heads"] * s["state"], s["value_heads"]
    qkv = 2 * s["key_heads"] * s["state"] + values
    rates = ({"ssm_ba": (2 * heads, s["width"])} if s["arch"] == "qwen3next" else
             {"ssm_beta": (heads, s["width"]), "ssm_alpha": (heads, s["width"])})
    return (weights(b, attn_qkv=(qkv, s["width"]), attn_gate=(values, s["width"]), ssm_out=(s["width"], values), **rates) +
            [(b + "ssm_conv1d.weight", (qkv, s["taps"]), "exact"), (b + "ssm_a", (heads,), -0.1)] +
            vectors(b, s["state"], "ssm_norm.weight") + vectors(b, heads, "ssm_dt.bias", value=0.0))


def mamba(b, s):
    """Mamba-2."""
    di, heads, bc = s["mamba_width"], s["mamba_heads"], 2 * s["groups"] * s["state"]
    return (weights(b, ssm_in=(2 * di + bc + heads, s["width"]), ssm_out=(s["width"], di)) +
            [(b + "ssm_conv1d.weight", (di + bc, s["taps"]), "exact"), (b + "ssm_conv1d.bias", (di + bc,), 0.0),
             (b + "ssm_a", (heads, 1), -0.1), (b + "ssm_d", (heads, 1), 1.0),
             (b + "ssm_norm.weight", (s["groups"], di // s["groups"]), 1.0), (b + "ssm_dt.bias", (heads,), 0.0)])


def feed_forward(b, s, ff, suffix=""):
    """A feed-forward with gate, or a shared expert."""
    w = s["width"]
    return weights(b, **{"ffn_gate" + suffix: (ff, w), "ffn_up" + suffix: (ff, w), "ffn_down" + suffix: (w, ff)})


def router(b, s, selects=False):
    """selects: with a bias that only chooses."""
    e = s["experts"]
    return ([(b + "ffn_gate_inp.weight", (e, s["width"]), "exact")] +
            (vectors(b, e, "exp_probs_b.bias", value=0.0) if selects else []))


def experts(b, s, kind=None, has_gate=True):
    e, w, f = s["experts"], s["width"], s["expert_ff"]
    shapes = {"ffn_gate_exps": (e, f, w), "ffn_up_exps": (e, f, w), "ffn_down_exps": (e, w, f)}
    return [(b + name + ".weight", dims, kind) for name, dims in shapes.items() if has_gate or name != "ffn_gate_exps"]


# ---- layers --------------------------------------------------------------------------------------

def gpt2(b, s, i):
    w, out = s["width"], []
    for name, n, k in (("attn_qkv", 3 * w, w), ("attn_output", w, w), ("ffn_up", s["ff"], w), ("ffn_down", w, s["ff"])):
        out += weights(b, **{name: (n, k)}) + vectors(b, n, name + ".bias", value=0.0)
    return out + vectors(b, w, "attn_norm.weight", "ffn_norm.weight") + vectors(b, w, "attn_norm.bias", "ffn_norm.bias", value=0.0)


def llama(b, s, i):
    return vectors(b, s["width"], "attn_norm.weight", "ffn_norm.weight") + attention(b, s) + feed_forward(b, s, s["ff"])


def qwen3moe(b, s, i):
    return (vectors(b, s["width"], "attn_norm.weight", "ffn_norm.weight") + attention(b, s) + head_norms(b, s) + router(b, s) +
            experts(b, s))


def qwen3next(b, s, i):
    """qwen35 and qwen35moe, too."""
    out = vectors(b, s["width"], "attn_norm.weight", "post_attention_norm.weight")
    if (i + 1) % s["period"]:
        out += delta_net(b, s)
    else: # beside q a gate of the output
        out += attention(b, s, gated=True) + head_norms(b, s)
    if "experts" not in s:
        return out + feed_forward(b, s, s["ff"])
    return (out + router(b, s) + experts(b, s) + feed_forward(b, s, s["shared_ff"], "_shexp") +
            vectors(b, s["width"], "ffn_gate_inp_shexp.weight", value=0.01))


def gemma4(b, s, i):
    w, e, full = s["width"], s["experts"], i % GEMMA4_FULL == GEMMA4_FULL - 1
    d, kv = (s["full_head_dim"], s["full_kv_heads"]) if full else (s["head_dim"], s["kv_heads"])
    return (attention(b, s, kv, d, has_v=not full) + head_norms(b, s, d) + feed_forward(b, s, s["ff"]) + router(b, s) +
            weights(b, ffn_gate_up_exps=(e, 2 * s["expert_ff"], w), ffn_down_exps=(e, w, s["expert_ff"])) +
            vectors(b, 1, "layer_output_scale.weight") + vectors(b, e, "ffn_down_exps.scale") +
            vectors(b, w, "ffn_gate_inp.scale", *(name + ".weight" for name in (
                "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_ffw_norm_1", "post_ffw_norm_2",
                "pre_ffw_norm_2"))))


def gpt_oss(b, s, i):
    w, e, f = s["width"], s["experts"], s["expert_ff"]
    return (vectors(b, w, "attn_norm.weight", "post_attention_norm.weight") + attention(b, s) +
            biases(b, s, ("attn_output.bias", w)) + vectors(b, s["heads"], "attn_sinks.weight", value=0.0) + router(b, s) +
            experts(b, s, "MXFP4") + vectors(b, e, "ffn_gate_inp.bias", value=0.0) +
            [(b + "ffn_gate_exps.bias", (e, f), 0.0), (b + "ffn_up_exps.bias", (e, f), 0.0), (b + "ffn_down_exps.bias", (e, w), 0.0)])


def nemotron(b, s, i):
    kind, out = s["pattern"][i], vectors(b, s["width"], "attn_norm.weight")
    if kind == "M":
        return out + mamba(b, s)
    if kind == "*":
        return out + attention(b, s)
    return (out + router(b, s, selects=True) + experts(b, s, has_gate=False) +
            weights(b, ffn_up_shexp=(s["shared_ff"], s["width"]), ffn_down_shexp=(s["width"], s["shared_ff"])))


def feed_forward_or_experts(b, s, i):
    if i < s["dense"]:
        return feed_forward(b, s, s["ff"])
    return router(b, s, selects=True) + experts(b, s) + feed_forward(b, s, s["shared_ff"], "_shexp")


def glm4moe(b, s, i):
    return (vectors(b, s["width"], "attn_norm.weight", "post_attention_norm.weight") + attention(b, s) + biases(b, s) +
            feed_forward_or_experts(b, s, i))


def deepseek2(b, s, i):
    return vectors(b, s["width"], "attn_norm.weight", "ffn_norm.weight") + latent_attention(b, s) + feed_forward_or_experts(b, s, i)


LAYERS = {"gpt2": gpt2, "llama": llama, "qwen3moe": qwen3moe, "qwen3next": qwen3next, "qwen35": qwen3next, "qwen35moe": qwen3next,
          "gemma4": gemma4, "gpt-oss": gpt_oss, "nemotron_h_moe": nemotron, "glm4moe": glm4moe, "deepseek2": deepseek2}


def tensors_of(s):
    w = s["width"]
    out = weights("", token_embd=(s["vocab"], w))
    if s["arch"] == "gpt2":
        out += weights("", position_embd=(s["context"], w))
    for i in range(s["layers"]):
        out += LAYERS[s["arch"]]("blk.%d." % i, s, i)
    out += vectors("", w, "output_norm.weight")
    if s["arch"] == "gpt2":
        out += vectors("", w, "output_norm.bias", value=0.0)
    if s["arch"] == "gemma4": # a quarter of a full layer's pairs is rotated; its logits are by token_embd
        n = s["full_head_dim"] // 2
        return out + [("rope_freqs.weight", (n,), [1.0] * (n // 4) + [1e30] * (n - n // 4))]
    return out + weights("", output=(s["vocab"], w))
