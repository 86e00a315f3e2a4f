/*
 * test_abi.c: a frozen copy of the module ABI: the size of every struct that
 * crosses it and where its members lie (LP64).  Structs of tier 1 only grow at their end,
 * with IG_ABI_MINOR; anything else that fails here means that modules built before
 * would misread us.  A change of tier 2 changes the build id.  Change the header, this copy
 * and docs/architecture.md in one commit, on purpose.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <ingot/arch.h>
#include <ingot/arch_files.h>
#include <ingot/kvcache.h>
#include <ingot/gpu_lower.h>

#define SIZE(type, n) assert_int_equal(sizeof(struct type), n)
#define AT(type, member, n) assert_int_equal(offsetof(struct type, member), n)

static void test_op(void **state)
{
	SIZE(ig_error, 512);
	AT(ig_error, text, 4);
	SIZE(ig_shape, 24);
	AT(ig_shape, n_cols, 8);
	AT(ig_shape, dtype, 16);
	AT(ig_shape, row_class, 20);
	SIZE(ig_op_shape, 360);
	AT(ig_op_shape, n_in, 4);
	AT(ig_op_shape, n_weights, 8);
	AT(ig_op_shape, n_out, 12);
	AT(ig_op_shape, params, 16);
	AT(ig_op_shape, in, 24);
	AT(ig_op_shape, weight, 120);
	AT(ig_op_shape, out, 312);
	SIZE(ig_tensor, 40);
	AT(ig_tensor, n_rows, 8);
	AT(ig_tensor, n_cols, 16);
	AT(ig_tensor, row_stride, 24);
	AT(ig_tensor, dtype, 32);
	AT(ig_tensor, layout, 36);
	SIZE(ig_op_launch, 616);
	AT(ig_op_launch, params, 16);
	AT(ig_op_launch, in, 24);
	AT(ig_op_launch, weight, 184);
	AT(ig_op_launch, out, 504);
	AT(ig_op_launch, step, 584);
	AT(ig_op_launch, kernel, 592);
	AT(ig_op_launch, shared, 600);
	AT(ig_op_launch, shared_bytes, 608);
	SIZE(ig_cpu_kernel, 72);
	AT(ig_cpu_kernel, isa, 4);
	AT(ig_cpu_kernel, weight_dtype, 8);
	AT(ig_cpu_kernel, weight_layout, 12);
	AT(ig_cpu_kernel, in_layout, 16);
	AT(ig_cpu_kernel, unit_kind, 20);
	AT(ig_cpu_kernel, n_units, 24);
	AT(ig_cpu_kernel, scratch_bytes, 32);
	AT(ig_cpu_kernel, run, 40);
	AT(ig_cpu_kernel, inner, 48);
	AT(ig_cpu_kernel, shared_bytes, 56);
	AT(ig_cpu_kernel, then, 64);
	SIZE(ig_op, 72);
	AT(ig_op, params_size, 4);
	AT(ig_op, name, 8);
	AT(ig_op, check, 16);
	AT(ig_op, reference, 24);
	AT(ig_op, cpu_kernels, 32);
	AT(ig_op, n_cpu_kernels, 40);
	AT(ig_op, flags, 44);
	AT(ig_op, gpu, 48);
	AT(ig_op, version, 56);
	AT(ig_op, split, 60);
	AT(ig_op, n_matrices, 64);
	SIZE(ig_kernel_host, 32);
	AT(ig_kernel_host, core_op, 8);
	AT(ig_kernel_host, tile_bytes, 16);
	AT(ig_kernel_host, tile_pack, 24);
	/* Element types and forms are GGUF's numbers, and what plans and tensors carry. */
	const int dtypes[] = { IG_F32,	  IG_F16,    IG_Q4_0, IG_Q4_1, IG_Q5_0,	 IG_Q5_1,
			       IG_Q8_0,	  IG_Q2_K,   IG_Q3_K, IG_Q4_K, IG_Q5_K,	 IG_Q6_K,
			       IG_IQ4_NL, IG_IQ4_XS, IG_I32,  IG_BF16, IG_MXFP4, IG_Q8_M };
	static const int numbers[] = { 0,  1,  2,  3,  6,  7,  8,  10, 11,
				       12, 13, 14, 20, 23, 26, 30, 39, 1000 };
	assert_memory_equal(dtypes, numbers, sizeof numbers);
	assert_int_equal(IG_LAYOUT_ROWS, 0);
	assert_int_equal(IG_LAYOUT_TILE16, 1);
	assert_int_equal(IG_LAYOUT_Q8, 2);
	assert_int_equal(IG_LAYOUT_BF16, 3);
}

static void test_step(void **state)
{
	SIZE(ig_kv_layout, 72);
	AT(ig_kv_layout, v_dtype, 4);
	AT(ig_kv_layout, n_layers, 8);
	AT(ig_kv_layout, n_kv_heads, 12);
	AT(ig_kv_layout, head_dim, 16);
	AT(ig_kv_layout, kind, 20);
	AT(ig_kv_layout, block_bytes, 24);
	AT(ig_kv_layout, layer_stride, 32);
	AT(ig_kv_layout, v_offset, 40);
	AT(ig_kv_layout, head_stride, 48);
	AT(ig_kv_layout, k_token_stride, 56);
	AT(ig_kv_layout, v_token_stride, 64);
	SIZE(ig_step_kv, 24);
	AT(ig_step_kv, block_tables, 8);
	AT(ig_step_kv, max_blocks, 16);
	SIZE(ig_logit_adjust, 16);
	AT(ig_logit_adjust, n_sampled, 4);
	AT(ig_logit_adjust, seen, 8);
	AT(ig_logit_adjust, bias, 12);
	SIZE(ig_sample_params, 56);
	AT(ig_sample_params, temperature, 0);
	AT(ig_sample_params, top_p, 4);
	AT(ig_sample_params, min_p, 8);
	AT(ig_sample_params, top_k, 12);
	AT(ig_sample_params, repetition_penalty, 16);
	AT(ig_sample_params, frequency_penalty, 20);
	AT(ig_sample_params, presence_penalty, 24);
	AT(ig_sample_params, mask, 28);
	AT(ig_sample_params, first_adjust, 32);
	AT(ig_sample_params, n_adjusts, 36);
	AT(ig_sample_params, position, 40);
	AT(ig_sample_params, seed, 48);
	SIZE(ig_step_segment, 16);
	AT(ig_step_segment, from, 8);
	SIZE(ig_step, 256);
	AT(ig_step, n_rows, 4);
	AT(ig_step, n_seqs, 8);
	AT(ig_step, n_logit_rows, 12);
	AT(ig_step, token_ids, 16);
	AT(ig_step, positions, 24);
	AT(ig_step, row_seq, 32);
	AT(ig_step, seq_lens, 40);
	AT(ig_step, logit_rows, 48);
	AT(ig_step, sample, 56);
	AT(ig_step, sampled_ids, 64);
	AT(ig_step, logits, 72);
	AT(ig_step, slab_bases, 80);
	AT(ig_step, kv, 88);
	AT(ig_step, n_groups, 96);
	AT(ig_step, n_adjusts, 100);
	AT(ig_step, adjusts, 104);
	AT(ig_step, masks, 112);
	AT(ig_step, n_masks, 120);
	AT(ig_step, token_from, 128);
	AT(ig_step, prev_ids, 136);
	AT(ig_step, row_adapter, 144);
	AT(ig_step, segments, 152);
	AT(ig_step, n_segments, 160);
	AT(ig_step, n_states, 164);
	AT(ig_step, row_types, 168);
	AT(ig_step, next_ids, 176);
	AT(ig_step, guess_rows, 184);
	AT(ig_step, guessed_ids, 192);
	AT(ig_step, guess_logits, 200);
	AT(ig_step, n_guesses, 208);
	AT(ig_step, stage_in, 216);
	AT(ig_step, stage_out, 224);
	AT(ig_step, rope_positions, 232);
	AT(ig_step, outside, 240);
	AT(ig_step, sees_to, 248);
	assert_int_equal(IG_STEPS_IN_FLIGHT, 2);
	assert_int_equal(IG_BLOCK_TOKENS, 16);
	assert_int_equal(IG_BLOCK_WORD(3, 5), 3 << 12 | 5);
	assert_int_equal(IG_BLOCK_SLAB(IG_BLOCK_WORD(3, 5)), 3);
	assert_int_equal(IG_BLOCK_INDEX(IG_BLOCK_WORD(3, 5)), 5);
}

static void test_module(void **state)
{
	SIZE(ig_op_version, 16);
	AT(ig_op_version, version, 8);
	SIZE(ig_module, 104);
	AT(ig_module, head.magic, 0);
	AT(ig_module, head.abi_major, 4);
	AT(ig_module, head.abi_minor, 6);
	AT(ig_module, head.struct_size, 8);
	AT(ig_module, name, 16);
	AT(ig_module, version, 24);
	AT(ig_module, requires_ops, 32);
	AT(ig_module, archs, 40);
	AT(ig_module, init, 48);
	AT(ig_module, build_id, 56);
	AT(ig_module, ops, 80);
	AT(ig_module, kvcache, 88);
	AT(ig_module, options, 96);
	SIZE(ig_host, 112);
	AT(ig_host, abi_major, 4);
	AT(ig_host, abi_minor, 6);
	AT(ig_host, log, 8);
	AT(ig_host, meta_u32, 16);
	AT(ig_host, meta_f32, 24);
	AT(ig_host, meta_str, 32);
	AT(ig_host, meta_array_u32, 40);
	AT(ig_host, meta_has_tensor, 48);
	AT(ig_host, meta_tensor, 56);
	AT(ig_host, weight, 64);
	AT(ig_host, record, 72);
	AT(ig_host, graph_status, 80);
	AT(ig_host, kernels, 88);
	AT(ig_host, option_number, 96);
	AT(ig_host, option_text, 104);
	SIZE(ig_module_option, 80);
	AT(ig_module_option, type, 8);
	AT(ig_module_option, min, 16);
	AT(ig_module_option, max, 24);
	AT(ig_module_option, number, 32);
	AT(ig_module_option, text, 40);
	AT(ig_module_option, choices, 48);
	AT(ig_module_option, unit, 56);
	AT(ig_module_option, help, 64);
	SIZE(ig_kv_arena, 56);
	AT(ig_kv_arena, arena_bytes, 8);
	AT(ig_kv_arena, slab_bytes, 16);
	AT(ig_kv_arena, ctx, 24);
	AT(ig_kv_arena, map_slab, 32);
	AT(ig_kv_arena, unmap_slab, 40);
	AT(ig_kv_arena, copy, 48);
	SIZE(ig_kv_stats, 48);
	AT(ig_kv_stats, cached_bytes, 40);
	SIZE(ig_kvcache_service, 224);
	AT(ig_kvcache_service, seq_step, 168);
	AT(ig_kvcache_service, seq_undo, 176);
	AT(ig_kvcache_service, seq_keep, 184);
	AT(ig_kvcache_service, seq_state, 192);
	AT(ig_kvcache_service, seq_add_state, 200);
	AT(ig_kvcache_service, seq_checkpoint, 208);
	AT(ig_kvcache_service, seq_rewind, 216);
	SIZE(ig_kv_segment, 24);
	AT(ig_kv_segment, from, 8);
	AT(ig_kv_segment, to, 16);
	AT(ig_kvcache_service, version, 4);
	AT(ig_kvcache_service, compact, 128);
	AT(ig_kvcache_service, trim, 136);
	AT(ig_kvcache_service, seq_known, 144);
	AT(ig_kvcache_service, seq_share, 152);
	AT(ig_kvcache_service, seq_append, 160);
	AT(ig_kvcache_service, seq_match, 112);
	AT(ig_kvcache_service, seq_commit, 120);
	AT(ig_kvcache_service, name, 8);
	AT(ig_kvcache_service, create, 16);
	AT(ig_kvcache_service, destroy, 24);
	AT(ig_kvcache_service, layout, 32);
	AT(ig_kvcache_service, add_group, 40);
	AT(ig_kvcache_service, remove_group, 48);
	AT(ig_kvcache_service, seq_create, 56);
	AT(ig_kvcache_service, seq_reserve, 64);
	AT(ig_kvcache_service, seq_advance, 72);
	AT(ig_kvcache_service, seq_destroy, 80);
	AT(ig_kvcache_service, seq_blocks, 88);
	AT(ig_kvcache_service, slab_bases, 96);
	AT(ig_kvcache_service, stats, 104);
}

static void test_arch(void **state)
{
	SIZE(ig_embed_params, 16);
	AT(ig_embed_params, next, 8);
	AT(ig_embed_params, outside, 12);
	SIZE(ig_norm_params, 28);
	AT(ig_norm_params, after, 16);
	AT(ig_norm_params, group, 20);
	AT(ig_norm_params, scale, 24);
	SIZE(ig_multiply_params, 8);
	SIZE(ig_sum_params, 8);
	SIZE(ig_concat_params, 8);
	SIZE(ig_stage_in_params, 16);
	AT(ig_stage_in_params, n, 8);
	AT(ig_stage_in_params, width, 12);
	SIZE(ig_stage_out_params, 12);
	AT(ig_stage_out_params, width, 8);
	SIZE(ig_soft_cap_params, 12);
	AT(ig_soft_cap_params, cap, 8);
	SIZE(ig_linear_params, 16);
	SIZE(ig_glu_params, 16);
	AT(ig_glu_params, limit, 8);
	AT(ig_glu_params, bias, 12);
	SIZE(ig_logits_params, 8);
	SIZE(ig_sample_op_params, 8);
	SIZE(ig_rope_table_params, 44);
	SIZE(ig_rope_kv_params, 56);
	SIZE(ig_attention_params, 56);
	AT(ig_rope_table_params, freq_scale, 12);
	AT(ig_rope_table_params, ramp_first, 16);
	AT(ig_rope_table_params, ramp_last, 20);
	AT(ig_rope_table_params, magnitude, 24);
	AT(ig_rope_table_params, sections, 28);
	AT(ig_rope_table_params, interleaved, 40);
	assert_int_equal(IG_ROPE_AXES, 3);
	AT(ig_rope_kv_params, mode, 16);
	AT(ig_rope_kv_params, n_pairs, 20);
	AT(ig_rope_kv_params, group, 24);
	AT(ig_rope_kv_params, layer, 28);
	AT(ig_rope_kv_params, norm_eps, 32);
	AT(ig_rope_kv_params, q_scale, 36);
	AT(ig_rope_kv_params, q_scale_length, 40);
	AT(ig_rope_kv_params, flags, 44);
	AT(ig_rope_kv_params, q_stride, 48);
	AT(ig_rope_kv_params, n_rest, 52);
	AT(ig_attention_params, group, 16);
	AT(ig_attention_params, layer, 20);
	AT(ig_attention_params, scale, 24);
	AT(ig_attention_params, window, 28);
	AT(ig_attention_params, gate, 32);
	AT(ig_attention_params, gate_first, 36);
	AT(ig_attention_params, gate_stride, 40);
	AT(ig_attention_params, gate_dim, 44);
	AT(ig_attention_params, v_dim, 48);
	AT(ig_attention_params, spans, 52);
	SIZE(ig_linear_heads_params, 12);
	AT(ig_linear_heads_params, n_heads, 4);
	AT(ig_linear_heads_params, n_rest, 8);
	SIZE(ig_rope_latent_params, 36);
	AT(ig_rope_latent_params, n_heads, 4);
	AT(ig_rope_latent_params, head_dim, 8);
	AT(ig_rope_latent_params, n_latent, 12);
	AT(ig_rope_latent_params, n_pairs, 16);
	AT(ig_rope_latent_params, mode, 20);
	AT(ig_rope_latent_params, group, 24);
	AT(ig_rope_latent_params, layer, 28);
	AT(ig_rope_latent_params, norm_eps, 32);
	assert_int_equal(IG_CACHE_KV, 0);
	assert_int_equal(IG_CACHE_STATE, 1);
	assert_int_equal(IG_CACHE_K, 2);
	SIZE(ig_pool_params, 8);
	SIZE(ig_output_params, 8);
	SIZE(ig_attention_rows_params, 28);
	AT(ig_attention_rows_params, head_dim, 12);
	AT(ig_attention_rows_params, scale, 16);
	AT(ig_attention_rows_params, back, 20);
	AT(ig_attention_rows_params, ahead, 24);
	assert_int_equal(IG_ACT_GELU_ERF, 16);
	assert_int_equal(IG_ACT_TANH, 17);
	assert_int_equal(IG_POOL_MEAN, 1);
	assert_int_equal(IG_POOL_CLS, 2);
	assert_int_equal(IG_POOL_LAST, 3);
	assert_int_equal(IG_POOL_RANK, 4);
	SIZE(ig_cache_group, 32);
	AT(ig_cache_group, kind, 20);
	SIZE(ig_model_info, 152);
	AT(ig_model_info, groups, 16);
	AT(ig_model_info, result, 144);
	AT(ig_model_info, n_mtp_layers, 148);
	SIZE(ig_arch, 56);
	AT(ig_arch, params_size, 4);
	AT(ig_arch, name, 8);
	AT(ig_arch, read_params, 16);
	AT(ig_arch, record, 24);
	AT(ig_arch, claims, 32);
	AT(ig_arch, files, 40);
	AT(ig_arch, record_mtp, 48);
	SIZE(ig_moe_route_params, 48);
	SIZE(ig_moe_glu_params, 28);
	SIZE(ig_moe_combine_params, 20);
	SIZE(ig_conv1d_params, 32);
	AT(ig_conv1d_params, group, 16);
	AT(ig_conv1d_params, first, 24);
	SIZE(ig_gated_delta_params, 44);
	AT(ig_gated_delta_params, tiled, 20);
	AT(ig_gated_delta_params, norm_eps, 28);
	AT(ig_gated_delta_params, layer, 36);
	AT(ig_gated_delta_params, by_key, 40);
	SIZE(ig_norm_gated_params, 20);
	AT(ig_norm_gated_params, eps, 8);
	AT(ig_norm_gated_params, rest, 16);
	SIZE(ig_selective_scan_params, 36);
	AT(ig_selective_scan_params, state_dim, 16);
	AT(ig_selective_scan_params, dt_first, 24);
	AT(ig_selective_scan_params, layer, 32);
	AT(ig_moe_route_params, normalise, 12);
	AT(ig_moe_route_params, scale, 16);
	AT(ig_moe_route_params, gating, 20);
	AT(ig_moe_route_params, select_bias, 24);
	AT(ig_moe_route_params, n_groups, 28);
	AT(ig_moe_route_params, n_groups_used, 32);
	AT(ig_moe_route_params, sum_epsilon, 36);
	AT(ig_moe_route_params, expert_scale, 40);
	AT(ig_moe_route_params, shared, 44);
	AT(ig_moe_glu_params, n_experts, 8);
	AT(ig_moe_combine_params, n_experts, 4);
	AT(ig_moe_combine_params, shared, 12);
	AT(ig_moe_combine_params, bias, 16);
	assert_int_equal(IG_MOE_BIAS_EACH, 1);
	assert_int_equal(IG_MOE_BIAS_SUM, 2);
	AT(ig_moe_glu_params, form, 16);
	AT(ig_moe_glu_params, bias, 20);
	AT(ig_moe_glu_params, limit, 24);
	assert_int_equal(IG_ABI_MAJOR, 1);
	assert_int_equal(IG_ABI_MINOR, 1);
	assert_int_equal(IG_KVCACHE_VERSION, 1);
	assert_int_equal(IG_ATTENTION_RANGE, 256);
	assert_int_equal(IG_ATTENTION_MAX_HEADS, 1024);
	assert_int_equal(IG_ATTENTION_MAX_HEAD_DIM, 576);
}

static void test_arch_files(void **state)
{
	SIZE(ig_config_key, 40);
	AT(ig_config_key, gguf, 8);
	AT(ig_config_key, kind, 16);
	AT(ig_config_key, flags, 20);
	AT(ig_config_key, fallback, 24);
	AT(ig_config_key, text, 32);
	SIZE(ig_config, 104);
	AT(ig_config, word_at, 88);
	AT(ig_config, word, 96);
	AT(ig_config, get_layer, 56);
	AT(ig_config, put_layers, 64);
	AT(ig_config, f32_at, 72);
	AT(ig_config, put_vectors, 80);
	AT(ig_config, u32, 8);
	AT(ig_config, f32, 16);
	AT(ig_config, flag, 24);
	AT(ig_config, get_u32, 32);
	AT(ig_config, put_u32, 40);
	AT(ig_config, refuse, 48);
	SIZE(ig_tensor_name, 24);
	AT(ig_tensor_name, gguf, 8);
	AT(ig_tensor_name, flags, 16);
	SIZE(ig_arch_files, 104);
	AT(ig_arch_files, if_set, 96);
	AT(ig_arch_files, yarn_log_scale, 88);
	AT(ig_arch_files, tied, 4);
	AT(ig_arch_files, model_type, 8);
	AT(ig_arch_files, outer_type, 16);
	AT(ig_arch_files, gguf, 24);
	AT(ig_arch_files, keys, 32);
	AT(ig_arch_files, n_keys, 40);
	AT(ig_arch_files, key_bytes, 44);
	AT(ig_arch_files, names, 48);
	AT(ig_arch_files, n_names, 56);
	AT(ig_arch_files, name_bytes, 60);
	AT(ig_arch_files, rope_theta, 64);
	AT(ig_arch_files, head_dim, 72);
	AT(ig_arch_files, rotary_percent, 76);
	AT(ig_arch_files, config, 80);
	const int kinds[] = { IG_CONFIG_U32,  IG_CONFIG_F32,  IG_CONFIG_LAYERS, IG_CONFIG_WORD,
			      IG_CONFIG_ONLY, IG_CONFIG_TRUE, IG_CONFIG_FALSE,	IG_CONFIG_REFUSED };
	for (int i = 0; i < 8; i++)
		assert_int_equal(kinds[i], i);
	const int flags[] = { IG_CONFIG_REQUIRED, IG_CONFIG_OPTIONAL, IG_CONFIG_NULLABLE,
			      IG_CONFIG_TIMES, IG_CONFIG_PLUS };
	for (int i = 0; i < 5; i++)
		assert_int_equal(flags[i], 1 << i);
	const int names[] = { IG_TENSOR_BIAS,	    IG_TENSOR_F32,	IG_TENSOR_PAIRS,
			      IG_TENSOR_TRANSPOSED, IG_TENSOR_PLUS_ONE, IG_TENSOR_EXPERTS,
			      IG_TENSOR_TWO,	    IG_TENSOR_CONV };
	for (int i = 0; i < 8; i++)
		assert_int_equal(names[i], 1 << i);
	assert_int_equal(IG_TENSOR_HEADS, 1 << 13);
}

static void test_gpu(void **state)
{
	SIZE(ig_ptx, 24);
	AT(ig_ptx, zlib, 8);
	AT(ig_ptx, n_bytes, 16);
	AT(ig_ptx, n_text, 20);
	SIZE(ig_shader, 64);
	AT(ig_shader, tensor, 4);
	AT(ig_shader, name, 8);
	AT(ig_shader, source, 16);
	AT(ig_shader, metallib, 24);
	AT(ig_shader, metallib_size, 32);
	AT(ig_shader, ptx_sm80, 40);
	AT(ig_shader, ptx_sm90a, 48);
	AT(ig_shader, n_sm80, 56);
	AT(ig_shader, n_sm90a, 60);
	SIZE(ig_gpu_facts, 128);
	AT(ig_gpu_facts, kind, 4);
	AT(ig_gpu_facts, arch, 8);
	AT(ig_gpu_facts, n_cores, 12);
	AT(ig_gpu_facts, max_threadgroup_bytes, 16);
	AT(ig_gpu_facts, max_threads, 20);
	AT(ig_gpu_facts, max_buffer_bytes, 24);
	AT(ig_gpu_facts, working_set_bytes, 32);
	AT(ig_gpu_facts, name, 40);
	AT(ig_gpu_facts, tiles, 104);
	AT(ig_gpu_facts, n_clusters, 108);
	AT(ig_gpu_facts, tensor_units, 120);
	SIZE(ig_gpu_ref, 16);
	AT(ig_gpu_ref, offset, 8);
	SIZE(ig_gpu_tensor, 56);
	AT(ig_gpu_tensor, n_rows, 16);
	AT(ig_gpu_tensor, n_cols, 24);
	AT(ig_gpu_tensor, row_stride, 32);
	AT(ig_gpu_tensor, dtype, 40);
	AT(ig_gpu_tensor, row_class, 44);
	AT(ig_gpu_tensor, layout, 48);
	SIZE(ig_gpu_norm, 120);
	AT(ig_gpu_norm, w, 56);
	AT(ig_gpu_norm, eps, 112);
	AT(ig_gpu_norm, max_rows, 116);
	SIZE(ig_gpu_launch, 920);
	AT(ig_gpu_launch, n_in, 4);
	AT(ig_gpu_launch, n_weights, 8);
	AT(ig_gpu_launch, n_out, 12);
	AT(ig_gpu_launch, params, 16);
	AT(ig_gpu_launch, in, 24);
	AT(ig_gpu_launch, weight, 248);
	AT(ig_gpu_launch, out, 696);
	AT(ig_gpu_launch, facts, 808);
	AT(ig_gpu_launch, max_rows, 816);
	AT(ig_gpu_launch, max_seqs, 820);
	AT(ig_gpu_launch, max_logit_rows, 824);
	AT(ig_gpu_launch, max_context, 828);
	AT(ig_gpu_launch, k_dtype, 832);
	AT(ig_gpu_launch, v_dtype, 836);
	AT(ig_gpu_launch, f32, 840);
	AT(ig_gpu_launch, max_partials, 844);
	AT(ig_gpu_launch, norm, 848);
	AT(ig_gpu_launch, unread_rows, 856);
	AT(ig_gpu_launch, also, 864);
	SIZE(ig_gpu_extent, 16);
	AT(ig_gpu_extent, mul, 4);
	AT(ig_gpu_extent, div, 8);
	AT(ig_gpu_extent, times, 12);
	SIZE(ig_gpu_bind, 32);
	AT(ig_gpu_bind, n_bytes, 16);
	AT(ig_gpu_bind, access, 24);
	SIZE(ig_gpu_box, 24);
	AT(ig_gpu_box, box_rows, 4);
	AT(ig_gpu_box, n_rows, 8);
	AT(ig_gpu_box, n_cols, 12);
	AT(ig_gpu_box, row_bytes, 16);
	SIZE(ig_gpu_dispatch, 744);
	AT(ig_gpu_dispatch, n_binds, 4);
	AT(ig_gpu_dispatch, shader, 8);
	AT(ig_gpu_dispatch, kernel, 16);
	AT(ig_gpu_dispatch, args, 24);
	AT(ig_gpu_dispatch, n_arg_bytes, 32);
	AT(ig_gpu_dispatch, threads, 36);
	AT(ig_gpu_dispatch, threadgroup_bytes, 40);
	AT(ig_gpu_dispatch, when_live, 44);
	AT(ig_gpu_dispatch, when_min, 48);
	AT(ig_gpu_dispatch, when_max, 52);
	AT(ig_gpu_dispatch, grid, 56);
	AT(ig_gpu_dispatch, bind, 104);
	AT(ig_gpu_dispatch, cluster, 616);
	AT(ig_gpu_dispatch, n_boxes, 620);
	AT(ig_gpu_dispatch, box, 624);
	SIZE(ig_gpu_host, 56);
	AT(ig_gpu_host, dispatch, 8);
	AT(ig_gpu_host, scratch, 16);
	AT(ig_gpu_host, constant, 24);
	AT(ig_gpu_host, ids, 32);
	AT(ig_gpu_host, logits, 40);
	AT(ig_gpu_host, kv, 48);
	SIZE(ig_gpu_op, 40);
	AT(ig_gpu_op, flags, 4);
	AT(ig_gpu_op, in_dtype, 8);
	AT(ig_gpu_op, lower, 16);
	AT(ig_gpu_op, tiles, 24);
	AT(ig_gpu_op, norm_rows, 32);
	assert_int_equal(IG_GPU_TILES, 1);
	assert_int_equal(IG_GPU_FEW_ROWS, 16);
	assert_int_equal(IG_GPU_MAX_BINDS, 16);
	assert_int_equal(IG_GPU_MAX_ARGS, 256);
	assert_int_equal(IG_N_LIVE, 13);
	assert_int_equal(IG_LIVE_WANT_LOGITS, 8);
	assert_int_equal(IG_LIVE_RANDOM_ROWS, 9);
	assert_int_equal(IG_LIVE_ADAPTED_ROWS, 10);
	assert_int_equal(IG_LIVE_GUESS_ROWS, 11);
	assert_int_equal(IG_LIVE_HEAD, 12);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_op),	   cmocka_unit_test(test_step),
		cmocka_unit_test(test_module),	   cmocka_unit_test(test_arch),
		cmocka_unit_test(test_arch_files), cmocka_unit_test(test_gpu),
	};
	return cmocka_run_group_tests_name("module ABI", tests, NULL, NULL);
}
