/* gateway.c: see gateway.h.  Names of models and adapters have no character that a label would need to
 * escape, and no comma. */
#include "daemon/protocol/status/gateway.h"

#include <inttypes.h>

#include "ingot/kvcache.h"

/* How long prefixes stay in the cache depends on how many blocks there are.  Models share the arena
 * and have blocks of several sizes: the count is that of the largest, so that the picker does not
 * expect more than there is. */
static void put_cache(const struct ig_model_status *list, size_t n, double arena_bytes,
		      struct ig_strbuf *out)
{
	uint64_t largest = 0;

	for (size_t i = 0; i < n; i++)
		if (list[i].state == IG_MODEL_READY && list[i].block_bytes > largest)
			largest = list[i].block_bytes;
	if (!largest)
		return;
	ig_strbuf_printf(
		out,
		"# HELP vllm:cache_config_info Tokens of a block, and blocks in the arena.\n"
		"# TYPE vllm:cache_config_info gauge\n"
		"vllm:cache_config_info{block_size=\"%d\",num_gpu_blocks=\"%" PRIu64 "\"} 1\n",
		IG_BLOCK_TOKENS, (uint64_t)(arena_bytes / (double)largest));
}

static void put_adapters(const struct ig_model_status *list, size_t n, enum ig_model_state state,
			 struct ig_strbuf *out)
{
	bool any = false;

	for (size_t i = 0; i < n; i++)
		if (list[i].is_adapter && list[i].state == state) {
			ig_strbuf_printf(out, "%s%s", any ? "," : "", list[i].name);
			any = true;
		}
}

/* Adapters are in memory when their model is, and any number of them is in a batch. */
static void put_lora(const struct ig_model_status *list, size_t n, double now_s,
		     struct ig_strbuf *out)
{
	size_t n_adapters = 0;

	for (size_t i = 0; i < n; i++)
		n_adapters += list[i].is_adapter;
	if (!n_adapters)
		return;
	ig_strbuf_printf(
		out,
		"# HELP vllm:lora_requests_info Adapters in memory, and those that are being "
		"loaded; the value is the time.\n"
		"# TYPE vllm:lora_requests_info gauge\n"
		"vllm:lora_requests_info{max_lora=\"%zu\",running_lora_adapters=\"",
		n_adapters);
	put_adapters(list, n, IG_MODEL_READY, out);
	ig_strbuf_puts(out, "\",waiting_lora_adapters=\"");
	put_adapters(list, n, IG_MODEL_LOADING, out);
	ig_strbuf_printf(out, "\"} %.3f\n", now_s);
}

void ig_gateway_write(const struct ig_model_status *list, size_t n, double arena_bytes,
		      double now_s, struct ig_strbuf *out)
{
	put_cache(list, n, arena_bytes, out);
	put_lora(list, n, now_s, out);
}
