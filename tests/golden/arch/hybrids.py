"""The models of make.py that have recurrent layers and experts, or Mamba-2.  make.py and folders.py
run them."""

import numpy as np
import torch
import transformers as tf

import make

SIZES = {**make.SIZES, "num_hidden_layers": 3, "hidden_size": 32, "num_attention_heads": 2,
         "num_key_value_heads": 1}
del SIZES["intermediate_size"]


def shift(model, ending):
    """Norms that are not stored as w - 1, unlike the others of the model."""
    for hf, p in model.named_parameters():
        if hf.endswith(ending):
            p.data += 1


# ---- Qwen ----

def qwen_names(i):
    hf, to = f"model.layers.{i}.", f"blk.{i}."
    return {
        **make.moe_names(i), **make.qwen35_names(i),
        hf + "linear_attn.in_proj_ba.weight": to + "ssm_ba.weight",
        hf + "mlp.shared_expert_gate.weight": to + "ffn_gate_inp_shexp.weight",
        **{hf + f"mlp.shared_expert.{x}_proj.weight": to + f"ffn_{x}_shexp.weight"
           for x in ("gate", "up", "down")},
    }


def flat_gate(c, to, a):
    """The shared expert's gate is a vector in the file."""
    return a[0] if to.endswith("ffn_gate_inp_shexp.weight") else a


def qwen35moe_tensor(c, to, a):
    return flat_gate(c, to, make.qwen35_tensor(c, to, a))


def qwen_keys(c, n_blocks, **more):
    return {
        "block_count": n_blocks, "context_length": make.N_CONTEXT, "embedding_length": 32,
        "attention.head_count": 2, "attention.head_count_kv": 1,
        "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e7,
        "rope.dimension_count": 4, "attention.key_length": 16, "attention.value_length": 16,
        "ssm.conv_kernel": 4, "ssm.state_size": c.linear_key_head_dim,
        "ssm.group_count": c.linear_num_key_heads, "ssm.time_step_rank": c.linear_num_value_heads,
        "ssm.inner_size": c.linear_num_value_heads * c.linear_value_head_dim,
        "expert_count": c.num_experts, "expert_used_count": c.num_experts_per_tok,
        "expert_feed_forward_length": 16,
        "expert_shared_feed_forward_length": c.shared_expert_intermediate_size, **more}


def qwen(config_of, model_of, seed, **more):
    c = config_of(
        **{**SIZES, **more}, head_dim=16, rms_norm_eps=1e-6,
        rope_parameters=dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.25),
        linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=8,
        linear_value_head_dim=16, moe_intermediate_size=16, shared_expert_intermediate_size=24,
        num_experts=5, num_experts_per_tok=2)
    c._experts_implementation = "eager"  # in float64
    m = model_of(c).double().eval()
    make.fill(m, seed, True)
    make.fill_experts(m, seed + 1)
    shift(m, "linear_attn.norm.weight")
    return m


def qwen35moe(name):
    """Beside it a block that predicts further tokens."""
    m = qwen(tf.Qwen3_5MoeTextConfig, tf.Qwen3_5MoeForCausalLM, 67, tie_word_embeddings=True,
             layer_types=["linear_attention", "linear_attention", "full_attention"])
    m.further = {"fc.weight": (32, 64), "pre_fc_norm_hidden.weight": (32,)}
    m.further_in = "mtp."
    names = {"fc.weight": "eh_proj.weight", "pre_fc_norm_hidden.weight": "hnorm.weight"}
    make.write(name, "qwen35moe", m, qwen_keys(m.config, 4, **{
        "attention.recurrent_layers": [True, True, False, False], "nextn_predict_layers": 1,
        "rope.dimension_sections": [1, 1, 0, 0]}),
        qwen_names, True, norm_shift=1.0, tensor=qwen35moe_tensor,
        extra={f"blk.3.nextn.{names[k]}": np.ones(v, np.float16 if len(v) > 1 else np.float32)
               for k, v in m.further.items()})
    return m


def by_heads_of_keys(c, state):
    """q | k | v and z out of their matrix, which has them by heads of keys."""
    out = {}
    k, r = c.linear_key_head_dim, c.linear_num_value_heads // c.linear_num_key_heads
    v = r * c.linear_value_head_dim
    for hf, p in state.items():
        if not hf.endswith("in_proj_qkvz.weight"):
            out[hf] = p
            continue
        heads = p.reshape(c.linear_num_key_heads, -1, p.shape[1])
        parts = [x.reshape(-1, p.shape[1]) for x in heads.split([k, k, v, v], dim=1)]
        out[hf.replace("qkvz", "qkv")] = torch.cat(parts[:3])
        out[hf.replace("qkvz", "z")] = parts[3]
    return out


def qwen3next_tensor(c, to, a):
    if to.endswith("ssm_a"):
        a = (-np.exp(a.astype(np.float64))).astype(np.float32)
    return flat_gate(c, to, a)


def qwen3next(name):
    """Every second layer has attention; heads of values lie by their heads of keys."""
    m = qwen(tf.Qwen3NextConfig, tf.Qwen3NextForCausalLM, 63, tie_word_embeddings=False,
             layer_types=["linear_attention", "full_attention", "linear_attention"],
             norm_topk_prob=True, intermediate_size=72)
    make.write(name, "qwen3next", m, qwen_keys(m.config, 3, **{
        "full_attention_interval": 2, "feed_forward_length": 72}),
        qwen_names, False, norm_shift=1.0, tensor=qwen3next_tensor,
        state=by_heads_of_keys(m.config, m.state_dict()))
    return m


# ---- LFM2 ----

def lfm2moe_names(i):
    hf, to = f"model.layers.{i}.", f"blk.{i}."
    return {
        **make.moe_names(i), **make.lfm2_names(i),
        hf + "feed_forward.gate.weight": to + "ffn_gate_inp.weight",
        hf + "feed_forward.expert_bias": to + "exp_probs_b.bias",
    }


def lfm2moe(name):
    """A dense layer, then two with experts."""
    c = tf.Lfm2MoeConfig(
        **SIZES, intermediate_size=48, tie_word_embeddings=True, norm_eps=1e-5,
        rope_parameters=dict(rope_type="default", rope_theta=1e6), moe_intermediate_size=32,
        num_dense_layers=1, num_experts=6, num_experts_per_tok=3,
        layer_types=["conv", "full_attention", "conv"])
    c._experts_implementation = "eager"
    m = tf.Lfm2MoeForCausalLM(c).double().eval()
    make.fill(m, 71, False)
    make.fill_experts(m, 72)
    g = torch.Generator().manual_seed(73)
    for layer in m.model.layers[1:]:
        bias = 0.3 * torch.randn(6, generator=g, dtype=torch.float64)
        layer.feed_forward.expert_bias.data = bias.float().double()
    make.write(name, "lfm2moe", m, {
        "block_count": 3, "context_length": make.N_CONTEXT, "embedding_length": 32,
        "feed_forward_length": 48, "attention.head_count": 2,
        "attention.head_count_kv": [0, 1, 0], "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 1e6, "vocab_size": make.N_VOCAB, "shortconv.l_cache": 3,
        "expert_count": 6, "expert_used_count": 3, "expert_feed_forward_length": 32,
        "leading_dense_block_count": 1, "expert_gating_func": 2}, lfm2moe_names, True)
    return m


MODELS = {f.__name__: f for f in (qwen35moe, qwen3next, lfm2moe)}
