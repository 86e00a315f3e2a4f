"""The models of make.py that have recurrent layers and experts, or Mamba-2.  make.py and folders.py
run them."""

import copy

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

def qwen35_names(i):
    hf, to = f"model.layers.{i}.", f"blk.{i}."
    parts = {"in_proj_qkv.weight": "attn_qkv.weight", "in_proj_z.weight": "attn_gate.weight",
             "in_proj_b.weight": "ssm_beta.weight", "in_proj_a.weight": "ssm_alpha.weight",
             "conv1d.weight": "ssm_conv1d.weight", "dt_bias": "ssm_dt.bias", "A_log": "ssm_a",
             "norm.weight": "ssm_norm.weight", "out_proj.weight": "ssm_out.weight"}
    return {**make.llama_names(i),
            hf + "post_attention_layernorm.weight": to + "post_attention_norm.weight",
            **{hf + "linear_attn." + a: to + b for a, b in parts.items()}}


def qwen35_tensor(c, to, a):
    """As the converter has it: a head of values h with the head h % n_k_heads of keys, A itself."""
    n_k, n_v, dim = c.linear_num_key_heads, c.linear_num_value_heads, c.linear_value_head_dim

    def tiled(x):
        return x.reshape(n_k, n_v // n_k, -1, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)

    part = to.split(".", 2)[2]
    if part in ("attn_qkv.weight", "ssm_conv1d.weight"):
        keys = 2 * n_k * c.linear_key_head_dim
        return np.concatenate([a[:keys], tiled(a[keys:])])
    if part == "ssm_out.weight":
        return tiled(a.T).T
    if part == "ssm_a":
        a = (-np.exp(a.astype(np.float64))).astype(np.float32)
    return tiled(a) if part in ("attn_gate.weight", "ssm_beta.weight", "ssm_alpha.weight",
                                "ssm_dt.bias", "ssm_a") else a


def qwen35(name):
    """Three heads of values to a head of keys."""
    c = tf.Qwen3_5TextConfig(
        **{**make.SIZES, "num_hidden_layers": 4, "hidden_size": 40, "intermediate_size": 32,
           "num_attention_heads": 2, "num_key_value_heads": 1}, head_dim=32,
        tie_word_embeddings=True, rms_norm_eps=1e-6,
        rope_parameters=dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.25),
        linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=16,
        linear_value_head_dim=16)
    m = tf.Qwen3_5ForCausalLM(c).double().eval()
    make.fill(m, 51, True)
    for hf, p in m.named_parameters():
        if hf.endswith("linear_attn.norm.weight"):
            p.data += 1
    make.write(name, "qwen35", m, {
        **{k: v for k, v in make.base(c).items() if k != "rope.freq_base"}, "rope.freq_base": 1e7,
        "rope.dimension_count": 8, "rope.dimension_sections": [2, 1, 1, 0],
        "attention.key_length": 32, "attention.value_length": 32, "full_attention_interval": 4,
        "ssm.conv_kernel": 4, "ssm.state_size": 16, "ssm.group_count": 2,
        "ssm.time_step_rank": 6, "ssm.inner_size": 96}, qwen35_names, True, norm_shift=1.0,
          tensor=qwen35_tensor)
    return m


def qwen_names(i):
    hf, to = f"model.layers.{i}.", f"blk.{i}."
    return {
        **make.moe_names(i), **qwen35_names(i),
        hf + "linear_attn.in_proj_ba.weight": to + "ssm_ba.weight",
        hf + "mlp.shared_expert_gate.weight": to + "ffn_gate_inp_shexp.weight",
        **{hf + f"mlp.shared_expert.{x}_proj.weight": to + f"ffn_{x}_shexp.weight"
           for x in ("gate", "up", "down")},
    }


def flat_gate(c, to, a):
    """The shared expert's gate is a vector in the file."""
    return a[0] if to.endswith("ffn_gate_inp_shexp.weight") else a


def qwen35moe_tensor(c, to, a):
    return flat_gate(c, to, qwen35_tensor(c, to, a))


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


def qwen35o(name):
    """Dense, with the deviations of Ollama's files: KV heads by layer, other names, vision."""
    c = tf.Qwen3_5TextConfig(
        **{**SIZES, "num_hidden_layers": 2}, intermediate_size=48, head_dim=16, rms_norm_eps=1e-6,
        tie_word_embeddings=True, layer_types=["linear_attention", "full_attention"],
        rope_parameters=dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.25),
        linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=8,
        linear_value_head_dim=16)
    m = tf.Qwen3_5ForCausalLM(c).double().eval()
    make.fill(m, 77, True)
    shift(m, "linear_attn.norm.weight")

    def names(i):
        return {hf: to.replace("ssm_dt.bias", "ssm_dt") for hf, to in qwen35_names(i).items()}

    def tensor(c, to, a):
        return qwen35_tensor(c, to.replace("ssm_dt", "ssm_dt.bias"), a)
    make.write(name, "qwen35", m, {
        "block_count": 2, "context_length": make.N_CONTEXT, "embedding_length": 32,
        "feed_forward_length": 48, "attention.head_count": 2, "attention.head_count_kv": [0, 1],
        "attention.layer_norm_rms_epsilon": 1e-6, "attention.key_length": 16,
        "attention.value_length": 16, "rope.freq_base": 1e7, "rope.dimension_count": 4,
        "rope.dimension_sections": [1, 1, 0], "ssm.conv_kernel": 4, "ssm.state_size": 8,
        "ssm.group_count": 2, "ssm.time_step_rank": 6, "ssm.inner_size": 96}, names, True,
        norm_shift=1.0, tensor=tensor,
        extra={"v.blk.0.attn_q.weight": np.ones((8, 8), np.float16)})
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

def lfm2_names(i):
    hf, to = f"model.layers.{i}.", f"blk.{i}."
    return {
        hf + "operator_norm.weight": to + "attn_norm.weight",
        hf + "ffn_norm.weight": to + "ffn_norm.weight",
        **{hf + f"self_attn.{x}_proj.weight": to + f"attn_{x}.weight" for x in "qkv"},
        hf + "self_attn.out_proj.weight": to + "attn_output.weight",
        **{hf + f"self_attn.{x}_layernorm.weight": to + f"attn_{x}_norm.weight" for x in "qk"},
        **{hf + f"conv.{x}.weight": to + f"shortconv.{x}.weight"
           for x in ("in_proj", "conv", "out_proj")},
        **{hf + f"feed_forward.{x}.weight": to + f"ffn_{y}.weight"
           for x, y in (("w1", "gate"), ("w3", "up"), ("w2", "down"))},
    }


def lfm2(name):
    """Convolutions before and behind attention."""
    c = tf.Lfm2Config(**{**make.SIZES, "num_hidden_layers": 4, "hidden_size": 48,
                         "num_attention_heads": 3, "num_key_value_heads": 1},
                      tie_word_embeddings=True, norm_eps=1e-5, block_multiple_of=8,
                      rope_parameters=dict(rope_type="default", rope_theta=1e6),
                      layer_types=["conv", "conv", "full_attention", "conv"])
    m = tf.Lfm2ForCausalLM(c).double().eval()
    make.fill(m, 44, False)
    make.write(name, "lfm2", m, {
        "block_count": 4, "context_length": make.N_CONTEXT, "embedding_length": 48,
        "feed_forward_length": 48, "attention.head_count": 3,
        "attention.head_count_kv": [0, 0, 1, 0],
        "attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 1e6, "vocab_size": make.N_VOCAB,
        "shortconv.l_cache": 3}, lfm2_names, True)
    return m


def lfm2moe_names(i):
    hf, to = f"model.layers.{i}.", f"blk.{i}."
    return {
        **make.moe_names(i), **lfm2_names(i),
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


# ---- Mamba-2 ----

def mamba2_names(hf, to):
    parts = {"in_proj.weight": "ssm_in.weight", "conv1d.weight": "ssm_conv1d.weight",
             "conv1d.bias": "ssm_conv1d.bias", "dt_bias": "ssm_dt.bias", "A_log": "ssm_a",
             "D": "ssm_d", "norm.weight": "ssm_norm.weight", "out_proj.weight": "ssm_out.weight"}
    return {hf + a: to + b for a, b in parts.items()}


def mamba2_tensor(n_groups):
    """As the converter has them: A itself, a column each, norms by groups."""
    def tensor(c, to, a):
        if to.endswith("ssm_a"):
            a = (-np.exp(a.astype(np.float64))).astype(np.float32)
        if to.endswith(("ssm_a", "ssm_d")):
            return a[:, None]
        return a.reshape(n_groups, -1) if to.endswith("ssm_norm.weight") else a
    return tensor


def nemotron_names(i):
    hf, to = f"model.layers.{i}.", f"blk.{i}."
    mixer = hf + "mixer."
    return {
        hf + "norm.weight": to + "attn_norm.weight", **mamba2_names(mixer, to),
        **{mixer + f"{x}_proj.weight": to + f"attn_{x}.weight" for x in "qkv"},
        mixer + "o_proj.weight": to + "attn_output.weight",
        mixer + "gate.weight": to + "ffn_gate_inp.weight",
        mixer + "gate.e_score_correction_bias": to + "exp_probs_b.bias",
        mixer + "experts.up_proj": to + "ffn_up_exps.weight",
        to + "ffn_down_exps.weight": to + "ffn_down_exps.weight",
        **{mixer + f"{x}_proj.weight": to + f"ffn_{x}.weight" for x in ("up", "down")},
        **{mixer + f"shared_experts.{x}_proj.weight": to + f"ffn_{x}_shexp.weight"
           for x in ("up", "down")},
        mixer + "fc1_latent_proj.weight": to + "ffn_latent_down.weight",
        mixer + "fc2_latent_proj.weight": to + "ffn_latent_up.weight",
        "model.embeddings.weight": "token_embd.weight", "model.norm_f.weight": "output_norm.weight",
    }


def nemotron(name, seed, layers, arch="nemotron_h_moe", each=None, **more):
    """layers: a letter each, M Mamba-2, * attention, - feed-forward, E experts.  each: of a layer with experts how many
    it uses, and their width."""
    kinds = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
    c = tf.NemotronHConfig(
        vocab_size=make.N_VOCAB, hidden_size=32, max_position_embeddings=make.N_CONTEXT,
        layers_block_type=[kinds[x] for x in layers], num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, intermediate_size=48, mamba_num_heads=6,
        mamba_head_dim=16, n_groups=2, ssm_state_size=16, n_routed_experts=6,
        num_experts_per_tok=2, moe_intermediate_size=32, moe_shared_expert_intermediate_size=40,
        routed_scaling_factor=2.5, attn_implementation="eager", **more)
    c._experts_implementation = "eager"
    m = tf.NemotronHForCausalLM(c).double().eval()
    for layer in m.model.layers:  # as its own step by step, and other programs: not clamped
        if layer.block_type == "linear_attention":
            layer.mixer.time_step_limit = (0.0, float("inf"))
    for i, (used, width) in (each or {}).items():
        of_layer = copy.deepcopy(c)
        of_layer.num_experts_per_tok, of_layer.moe_intermediate_size = used, width
        m.model.layers[i].mixer = type(m.model.layers[i].mixer)(of_layer, layer_idx=i).double().eval()
    make.fill(m, seed, False)
    make.fill_experts(m, seed + 1)
    ff = {"M": 0, "*": 0, "-": 48, "E": 32}
    keys = {
        "block_count": len(layers), "context_length": make.N_CONTEXT, "embedding_length": 32,
        "feed_forward_length": [ff[x] for x in layers], "attention.head_count": 2,
        "attention.head_count_kv": [int(x == "*") for x in layers], "attention.key_length": 16,
        "attention.value_length": 16,
        # a file of layers without experts has only the other key, as of a config.json with layer_norm_epsilon alone
        **({"attention.layer_norm_rms_epsilon": 1e-5} if "E" in layers else {}),
        "attention.layer_norm_epsilon": 1e-5,
        "ssm.conv_kernel": 4, "ssm.inner_size": 96, "ssm.state_size": 16,
        "ssm.time_step_rank": 6, "ssm.group_count": 2}
    if "E" in layers:
        keys |= {
            "expert_count": 6, "expert_used_count": 2, "expert_feed_forward_length": 32,
            "expert_shared_feed_forward_length": 40, "expert_shared_count": 1,
            "expert_weights_norm": True, "expert_weights_scale": 2.5, "expert_gating_func": 2,
            "expert_group_count": c.n_group, "expert_group_used_count": c.topk_group}
    if c.moe_latent_size:
        keys["moe_latent_size"] = c.moe_latent_size
    if each: # as the converter has them of a config.json with block_configs
        keys |= {"expert_used_count": [each.get(i, (0, 0))[0] for i in range(len(layers))],
                 **dict.fromkeys(("feed_forward_length", "expert_feed_forward_length"),
                                 [each.get(i, (0, 0))[1] for i in range(len(layers))])}
    make.write(name, arch, m, keys, nemotron_names, False, tensor=mamba2_tensor(2))
    return m


def nemotronh(name):
    """Without experts."""
    return nemotron(name, 91, "M-*M", "nemotron_h")


def nemotron3(name):
    """Experts, among them."""
    return nemotron(name, 83, "MEM*E")


def nemotron3l(name):
    """Experts of fewer columns, in groups."""
    return nemotron(name, 85, "ME*", moe_latent_size=16, n_group=3, topk_group=2)


def nemotronpuzzle(name):
    """Experts of fewer columns, whose number and width differ by layer."""
    return nemotron(name, 105, "MEE*E", each={1: (3, 48), 2: (1, 16), 4: (2, 64)}, moe_latent_size=16)


# ---- Granite 4 ----

def granite_names(i):
    hf, to = f"model.layers.{i}.", f"blk.{i}."
    return {
        **make.moe_names(i), **mamba2_names(hf + "mamba.", to),
        hf + "block_sparse_moe.router.weight": to + "ffn_gate_inp.weight",
        **{to + f"ffn_{x}.weight": to + f"ffn_{x}.weight"
           for x in ("gate", "up", "down", "gate_shexp", "up_shexp", "down_shexp")},
    }


def split_shared(state, ending):
    """The two input matrices of the shared feed-forward are one in the folder."""
    out = {}
    for hf, p in state.items():
        head, _, tail = hf.partition(".shared_mlp.")
        to = f"{head.replace('model.layers', 'blk')}.ffn_%s{ending}.weight"
        if tail == "input_linear.weight":
            out[to % "gate"], out[to % "up"] = p.chunk(2)
        elif tail:
            out[to % "down"] = p
        else:
            out[hf] = p
    return out


def granite(name, seed, layers, n_experts=0, **more):
    """layers: a letter each, M Mamba-2, * attention."""
    kinds = {"M": "linear_attention", "*": "full_attention"}
    c = tf.GraniteMoeHybridConfig(
        **{**SIZES, "num_hidden_layers": len(layers)}, intermediate_size=16, rms_norm_eps=1e-5,
        layer_types=[kinds[x] for x in layers], shared_intermediate_size=48,
        num_local_experts=n_experts, num_experts_per_tok=2, embedding_multiplier=3.0,
        residual_multiplier=0.22, attention_multiplier=0.4, logits_scaling=0.25,
        mamba_n_heads=4, mamba_d_head=16, mamba_n_groups=2, mamba_d_state=16, **more)
    c._experts_implementation = "eager"
    m = tf.GraniteMoeHybridForCausalLM(c).double().eval()
    make.fill(m, seed, False)
    make.fill_experts(m, seed + 1)
    keys = {
        "block_count": len(layers), "context_length": make.N_CONTEXT, "embedding_length": 32,
        "feed_forward_length": 16 if n_experts else 48, "attention.head_count": 2,
        "attention.head_count_kv": [int(x == "*") for x in layers],
        "attention.layer_norm_rms_epsilon": 1e-5, "embedding_scale": 3.0, "residual_scale": 0.22,
        "attention.scale": 0.4, "logit_scale": 0.25, "rope.freq_base": 10000.0,
        "rope.dimension_count": 16,
        "rope.scaling.finetuned": c.position_embedding_type == "rope",
        "expert_shared_feed_forward_length": 48}
    if "M" in layers:
        keys |= {"ssm.conv_kernel": 4, "ssm.inner_size": 64, "ssm.state_size": 16,
                 "ssm.time_step_rank": 4, "ssm.group_count": 2}
    if n_experts:
        keys |= {"expert_count": n_experts, "expert_used_count": 2}
    make.write(name, "granitehybrid", m, keys, granite_names, c.tie_word_embeddings,
               permuted=True, tensor=mamba2_tensor(2),
               state=split_shared(m.state_dict(), "_shexp" if n_experts else ""))
    return m


def granite4(name):
    """Without experts, and without RoPE."""
    return granite(name, 95, "MM*M", tie_word_embeddings=True)


def granite4m(name):
    return granite(name, 97, "M*", 5)


def granite4a(name):
    """Attention alone, with RoPE."""
    return granite(name, 99, "**", tie_word_embeddings=True, position_embedding_type="rope")


def granite3_experts(name, seed, shared):
    """Attention with RoPE in all layers."""
    kind = tf.GraniteMoeSharedConfig if shared else tf.GraniteMoeConfig
    c = kind(**{**SIZES, "num_hidden_layers": 2}, intermediate_size=16, rms_norm_eps=1e-5, num_local_experts=5,
             num_experts_per_tok=2, embedding_multiplier=3.0, residual_multiplier=0.22, attention_multiplier=0.4,
             logits_scaling=0.25, **({"shared_intermediate_size": shared} if shared else {}))
    c._experts_implementation = "eager"
    m = (tf.GraniteMoeSharedForCausalLM if shared else tf.GraniteMoeForCausalLM)(c).double().eval()
    make.fill(m, seed, False)
    make.fill_experts(m, seed + 1)
    keys = {"block_count": 2, "context_length": make.N_CONTEXT, "embedding_length": 32, "feed_forward_length": 16,
            "attention.head_count": 2, "attention.head_count_kv": 1, "attention.layer_norm_rms_epsilon": 1e-5,
            "embedding_scale": 3.0, "residual_scale": 0.22, "attention.scale": 0.4, "logit_scale": 0.25,
            "rope.freq_base": 10000.0, "rope.dimension_count": 16, "expert_count": 5, "expert_used_count": 2}
    if shared:
        keys["expert_shared_feed_forward_length"] = shared
    make.write(name, "granitemoe", m, keys, granite_names, c.tie_word_embeddings, permuted=True,
               state=split_shared(m.state_dict(), "_shexp"))
    return m


def granite3m(name):
    return granite3_experts(name, 101, 0)


def granite3s(name):
    return granite3_experts(name, 103, 48)


MODELS = {f.__name__: f for f in (lfm2, lfm2moe, qwen35, qwen35moe, qwen35o, qwen3next, nemotronh,
                                  nemotron3, nemotron3l, nemotronpuzzle, granite4,
                                  granite4m, granite4a, granite3m, granite3s)}
