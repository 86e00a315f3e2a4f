/*
 * doctor_models.c: what `ingot doctor` says of models: whether each can be read and run here, with
 * what memory, and whether those of the configuration fit together.
 */
#include "cli/commands/doctor_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/machine.h"
#include "cli/term/text.h"
#include "model/chat/chat_template.h"
#include "model/chat/rerank_template.h"
#include "model/formats/checkpoint.h"
#include "model/tokenizer/tokenizer.h"
#include "runtime/plan.h"

static uint64_t kv_bytes_per_token(const struct ig_model_info *info, uint32_t k, uint32_t v)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < info->n_groups && i < IG_MAX_CACHE_GROUPS; i++) {
		const struct ig_cache_group *g = &info->groups[i];
		if (g->kind == IG_CACHE_STATE)
			continue;
		n += (uint64_t)g->n_layers * g->n_kv_heads *
		     (ig_dtype_row_bytes(k, g->head_dim) +
		      (g->kind == IG_CACHE_K ? 0 : ig_dtype_row_bytes(v, g->head_dim)));
	}
	return n;
}

/* Of all recurrent layers; 0: there are none. */
static uint64_t state_bytes(const struct ig_model_info *info)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < info->n_groups && i < IG_MAX_CACHE_GROUPS; i++)
		if (info->groups[i].kind == IG_CACHE_STATE)
			n += 4 * (uint64_t)info->groups[i].n_layers * info->groups[i].n_kv_heads *
			     info->groups[i].head_dim;
	return n;
}

/* The cache of one sequence of n tokens.  A window keeps its tokens and those of a step; of a state there are the
 * live one and the one behind it. */
static uint64_t kv_bytes(const struct ig_model_info *info, const struct ig_program_limits *limits,
			 uint32_t n)
{
	struct ig_model_info one = *info;
	uint64_t bytes = 2 * state_bytes(info);

	one.n_groups = 1;
	for (uint32_t i = 0; i < info->n_groups && i < IG_MAX_CACHE_GROUPS; i++) {
		const uint64_t most = (uint64_t)info->groups[i].window + limits->max_rows;
		one.groups[0] = info->groups[i];
		bytes += kv_bytes_per_token(&one, limits->k_dtype, limits->v_dtype) *
			 (info->groups[i].window && most < n ? most : n);
	}
	return bytes;
}

/* Of a file that was named: the memory at some contexts, and the largest one that fits. */
static void show_contexts(struct ig_doctor *d, const char *what, const struct ig_model_info *info,
			  const struct ig_program_limits *limits, uint64_t bytes)
{
	static const uint32_t contexts[] = { 4096, 32768, 131072, UINT32_MAX };
	const uint64_t budget = d->config->memory.budget;
	const uint64_t limit =
		budget ? budget :
			 ig_default_budget(ig_machine_memory(), ig_driver_memory(d->driver),
					   ig_driver_is_unified(d->driver));
	char cache[32], all[32], most[32];
	uint32_t fits = 0, step = 1;

	ig_text_bytes(most, sizeof most, limit);
	for (size_t i = 0; i < sizeof contexts / sizeof *contexts; i++) {
		const uint32_t n = contexts[i] < info->n_context ? contexts[i] : info->n_context;
		const uint64_t kv = kv_bytes(info, limits, n);

		OK(d, what, "context %u: %s of cache for one sequence, %s in all", n,
		   ig_text_bytes(cache, sizeof cache, kv),
		   ig_text_bytes(all, sizeof all, bytes + kv));
		if (n == info->n_context)
			break;
	}
	while (step <= info->n_context / 2)
		step *= 2;
	for (; step; step /= 2)
		if (info->n_context - fits >= step &&
		    bytes + kv_bytes(info, limits, fits + step) <= limit)
			fits += step;
	if (fits == info->n_context)
		OK(d, what, "fits: its whole context of %u tokens needs no more than %s", fits,
		   most);
	else if (fits)
		NOTE(d, what, "a longer one needs more memory, or kvcache.dtype: q8_0",
		     "fits with a context of up to %u of %u tokens: %s of memory", fits,
		     info->n_context, most);
	else
		WRONG(d, what, "take a file of fewer bits, a smaller model, or a larger machine",
		      "does not fit: it needs %s, there is %s",
		      ig_text_bytes(all, sizeof all, bytes), most);
}

/* A head that guesses in a file of its own becomes a part of the model's. */
static int take_head(const char *path, struct ig_checkpoint *g, struct ig_error *err)
{
	struct ig_checkpoint *head;
	int rc = 0;

	if (!*path || ig_checkpoint_is_folder(path))
		return 0;
	if ((rc = ig_checkpoint_open(path, NULL, &head, err)))
		return rc;
	if (ig_checkpoint_is_head(head) && !(rc = ig_checkpoint_add_head(g, head, err)))
		return 0;
	ig_checkpoint_close(head);
	return rc;
}

/* As the daemon does: with a head of its own that guesses, where that can be used. */
static int record_plan(const struct ig_doctor *d, const struct ig_config_model *m,
		       struct ig_checkpoint *g, struct ig_plan **out, struct ig_error *err)
{
	const bool with_mtp = !m->n_adapters && d->driver && ig_driver_takes_mtp(d->driver) &&
			      ig_config_guesses_by(d->config, "mtp");
	int rc = with_mtp ? take_head(m->draft, g, err) : 0;

	if (rc)
		return rc;
	return with_mtp && !ig_plan_record_mtp(d->modules, g, out, err) ?
		       0 :
		       ig_plan_record(d->modules, g, out, err);
}

/* Plan the model, for its memory. */
static void check_plan(struct ig_doctor *d, const char *what, const struct ig_config_model *m,
		       const struct ig_plan *plan, uint64_t *bytes)
{
	const struct ig_config *c = d->config;
	struct ig_program_memory memory = { 0 };
	struct ig_program *program = NULL;
	struct ig_error err = { 0 };
	char weights[32], scratch[32], kv[32], state[32], left_out[256];
	const bool whole_texts = plan->info.result != IG_RESULT_TOKENS;

	ig_plan_left_out(plan, left_out, sizeof left_out);
	if (*left_out)
		OK(d, what, "runs as a model of text; left out: %s", left_out);
	if (plan->first_mtp_node)
		OK(d, what, "guesses tokens by a head of its own (MTP)");
	/* as in the daemon: no more sequences than rows */
	uint32_t n_rows = c->scheduler.max_batch_tokens, n_seqs = c->scheduler.max_seqs;
	if (n_seqs > n_rows)
		n_seqs = n_rows;
	struct ig_program_limits limits = {
		.max_rows = n_rows,
		.max_seqs = n_seqs,
		.max_logit_rows = n_seqs,
		.max_context = m->context ? m->context : plan->info.n_context,
	};
	if (whole_texts && !m->context && limits.max_context > IG_DEFAULT_TEXT)
		limits.max_context = IG_DEFAULT_TEXT;
	if (whole_texts)
		ig_program_limit_texts(&limits);
	if (!ig_cache_dtypes(m->kv_dtype, &limits.k_dtype, &limits.v_dtype)) /* auto */
		ig_cache_dtypes(c->kvcache.dtype, &limits.k_dtype, &limits.v_dtype);
	if (m->context > plan->info.n_context) {
		WRONG(d, what, "lower the model's context in the configuration",
		      "context: %u is more than the %u that the model was trained for", m->context,
		      plan->info.n_context);
		goto out;
	}
	if (!d->driver)
		goto out;
	if (ig_driver_lower(d->driver, plan, &limits, &program, &memory, &err)) {
		WRONG(d, what, "the driver cannot run this model; see its error", "%s", err.text);
		goto out;
	}
	struct ig_model_info info;
	if (ig_driver_model_info(d->driver, plan, &info, &err)) {
		WRONG(d, what, "the driver cannot run this model; see its error", "%s", err.text);
		goto out;
	}
	*bytes = memory.weight_bytes + memory.scratch_bytes;
	if (whole_texts) {
		OK(d, what,
		   "memory: %s for weights, %s for scratch, no cache; texts of up to %u tokens",
		   ig_text_bytes(weights, sizeof weights, memory.weight_bytes),
		   ig_text_bytes(scratch, sizeof scratch, memory.scratch_bytes),
		   limits.max_context);
		goto out;
	}
	OK(d, what, "memory: %s for weights, %s for scratch, %s of cache for each token",
	   ig_text_bytes(weights, sizeof weights, memory.weight_bytes),
	   ig_text_bytes(scratch, sizeof scratch, memory.scratch_bytes),
	   ig_text_bytes(kv, sizeof kv, kv_bytes_per_token(&info, limits.k_dtype, limits.v_dtype)));
	if (state_bytes(&plan->info))
		OK(d, what, "memory: %s of state for each sequence, and as much for each snapshot",
		   ig_text_bytes(state, sizeof state, state_bytes(&plan->info)));
	if (d->files)
		show_contexts(d, what, &info, &limits, *bytes);
out:
	ig_program_destroy(program);
}

/* What the model is for, and how it gets its input. */
static void check_chat(struct ig_doctor *d, const char *what, const struct ig_checkpoint *g,
		       const struct ig_tokenizer *tokenizer, const struct ig_plan *plan)
{
	struct ig_chat_template *chat = NULL;
	const int n = ig_tokenizer_n_vocab(tokenizer);
	struct ig_error err = { 0 };
	int rc;

	if (plan && plan->info.result == IG_RESULT_EMBEDDING) {
		OK(d, what,
		   "tokenizer of %d tokens; makes embeddings of %u dimensions, and no text", n,
		   plan->n_results);
		return;
	}
	if (plan && plan->info.result == IG_RESULT_SCORE) {
		struct ig_rerank_template *prompt;
		if (ig_rerank_template_open(g, tokenizer, &prompt, &err)) {
			WRONG(d, what, "convert it with a program that writes one", "%s", err.text);
			return;
		}
		ig_rerank_template_close(prompt);
		OK(d, what, "tokenizer of %d tokens; a reranker, which makes no text", n);
		return;
	}
	rc = ig_chat_template_open(g, tokenizer, &chat, &err);
	if (rc == -ENOENT)
		NOTE(d, what, "chats will be refused",
		     "the file has no chat template; tokenizer of %d tokens", n);
	else if (rc)
		WRONG(d, what, "serve a model whose chat template Ingot can run",
		      "chat template: %s", err.text);
	else
		OK(d, what, "tokenizer of %d tokens, chat template %s", n,
		   ig_chat_template_name(chat));
	ig_chat_template_close(chat);
}

static void check_model(struct ig_doctor *d, const struct ig_config_model *m, uint64_t *bytes)
{
	struct ig_plan *plan = NULL;
	struct ig_tokenizer *tokenizer = NULL;
	struct ig_checkpoint *g = NULL;
	struct ig_error err = { 0 };
	const char *arch = "";
	size_t arch_len = 0;
	char what[160], size[32];
	int rc = 0;

	snprintf(what, sizeof what, "model %.140s", m->name);
	if (ig_checkpoint_open(m->path, d->modules ? ig_modules_archs(d->modules) : NULL, &g,
			       &err)) {
		WRONG(d, what, "correct the path, or download the file again (ingot pull)", "%s",
		      err.text);
		return;
	}
	if (ig_checkpoint_str(g, "general.architecture", &arch, &arch_len, &err)) {
		WRONG(d, what, "the file is not a language model", "%s: %s", m->path, err.text);
		goto out;
	}
	OK(d, what, "%s: %s, architecture %.*s, %llu tensors, %s", m->path, ig_checkpoint_format(g),
	   (int)(arch_len < 60 ? arch_len : 60), arch,
	   (unsigned long long)ig_checkpoint_n_tensors(g),
	   ig_text_bytes(size, sizeof size, ig_checkpoint_file_bytes(g)));
	if (ig_tokenizer_open(g, &tokenizer, &err))
		WRONG(d, what, "serve a model whose tokenizer Ingot knows", "tokenizer: %s",
		      err.text);
	if (d->modules)
		rc = record_plan(d, m, g, &plan, &err);
	if (tokenizer)
		check_chat(d, what, g, tokenizer, plan);
	if (rc)
		WRONG(d, what,
		      "serve a model of a known architecture, or install the module of this one",
		      "%s", err.text);
	if (plan)
		check_plan(d, what, m, plan, bytes);
out:
	ig_plan_destroy(plan);
	ig_tokenizer_close(tokenizer);
	ig_checkpoint_close(g);
}

/* A file or a folder that the configuration does not name. */
void ig_doctor_file(struct ig_doctor *d, char *path)
{
	static char no[] = "", dtype[] = "auto";
	char *name = strrchr(path, '/');
	struct ig_config_model m = { .name = name && name[1] ? name + 1 : path,
				     .path = path,
				     .kv_dtype = dtype,
				     .draft = no,
				     .load = no };
	uint64_t bytes = 0;

	check_model(d, &m, &bytes);
}

static bool at_start(const struct ig_config_model *m) { return strcmp(m->load, "first_use") != 0; }

/* The models loaded at the start must fit together, and each other one besides the pinned ones.
 * All models together need not fit. */
static void check_memory(struct ig_doctor *d, const uint64_t *bytes)
{
	const struct ig_config *c = d->config;
	uint64_t arena = c->kvcache.arena, space = c->memory.budget - arena;
	char need[32], budget[32], what[160];
	bool wrong = false;

	if (!c->memory.budget)
		return;
	if (arena > c->memory.budget)
		space = 0;
	ig_text_bytes(budget, sizeof budget, c->memory.budget);
#define NEED(n) ig_text_bytes(need, sizeof need, (n) + arena)
	if (d->start_bytes > space) {
		WRONG(d, "memory",
		      "raise memory.budget, lower kvcache.arena, or load models on first use "
		      "(load: first_use)",
		      "kvcache.arena and the models that are loaded at the start need %s, "
		      "memory.budget is %s",
		      NEED(d->start_bytes), budget);
		return;
	}
	for (size_t i = 0; i < c->n_models; i++) {
		const struct ig_config_model *m = &c->models[i];
		if (m->pin || bytes[i] + d->pinned_bytes <= space)
			continue;
		wrong = true;
		snprintf(what, sizeof what, "model %.140s", m->name);
		WRONG(d, what, "raise memory.budget, lower kvcache.arena, or pin fewer models",
		      "cannot be loaded: with kvcache.arena and the pinned models it needs %s, "
		      "memory.budget is %s",
		      NEED(bytes[i] + d->pinned_bytes), budget);
	}
	if (d->pinned_bytes > space)
		WRONG(d, "memory", "raise memory.budget, or pin fewer models",
		      "kvcache.arena and the pinned models need %s, memory.budget is %s",
		      NEED(d->pinned_bytes), budget);
	else if (d->all_bytes > space && !wrong)
		NOTE(d, "memory",
		     "the least recently used are unloaded when needed; pin: true keeps a model "
		     "loaded",
		     "all models and kvcache.arena need %s, memory.budget is %s",
		     NEED(d->all_bytes), budget);
#undef NEED
}

void ig_doctor_models(struct ig_doctor *d)
{
	const struct ig_config *c = d->config;
	bool named = !c->default_model || !*c->default_model;
	uint64_t *bytes = calloc(c->n_models + 1, sizeof *bytes);

	for (size_t i = 0; bytes && i < c->n_models; i++) {
		const struct ig_config_model *m = &c->models[i];
		check_model(d, m, &bytes[i]);
		named = named || !strcmp(m->name, c->default_model);
		d->all_bytes += bytes[i];
		d->start_bytes += at_start(m) ? bytes[i] : 0;
		d->pinned_bytes += m->pin ? bytes[i] : 0;
	}
	if (!bytes)
		WRONG(d, "models", NULL, "out of memory");
	else if (!c->n_models)
		NOTE(d, "models",
		     "download one: `ingot pull qwen3-4b`, or another that `ingot models` lists; then "
		     "`ingot chat`",
		     "there is none, neither in the configuration nor in %s",
		     c->models_folder[0] ? c->models_folder : "models.folder, which is none");
	else if (!named)
		WRONG(d, "models", "name one of models: in default_model",
		      "default_model is %s, which is not among them", c->default_model);
	if (bytes)
		check_memory(d, bytes);
	free(bytes);
}
