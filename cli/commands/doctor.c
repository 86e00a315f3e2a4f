/*
 * doctor.c: `ingot doctor`: checks whether the daemon can serve on this machine.  Repeats the steps
 * of the daemon's start and continues after an error, so that all errors are shown at once.
 * Allocates neither weights nor cache, and writes nothing.
 */
#include "cli/commands/doctor.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

#include "base/dtype.h"
#include "base/json.h"
#include "base/log.h"
#include "base/machine.h"
#include "cli/commands/command.h"
#include "cli/net/http_client.h"
#include "cli/options.h"
#include "cli/net/served_models.h"
#include "cli/term/text.h"
#include "store/config.h"
#include "store/ledger.h"
#include "model/chat/chat_template.h"
#include "model/formats/checkpoint.h"
#include "model/tokenizer/tokenizer.h"
#include "runtime/driver.h"
#include "runtime/modules/modules.h"
#include "runtime/plan.h"

#define TIMEOUT_MS 3000
#define LOW_DISK_BYTES (16u << 20)

struct doctor {
	struct ig_findings found;
	struct ig_config *config;
	struct ig_modules *modules;
	struct ig_error refusal; /* of the first module that was not loaded */
	struct ig_driver *driver;
	/* Memory of the models that can be planned: all, those loaded at the start, the pinned. */
	uint64_t all_bytes, start_bytes, pinned_bytes;
	bool files; /* only the named files are checked */
};

#define OK(d, what, ...) ig_findings_add(&(d)->found, IG_FINDING_OK, what, NULL, __VA_ARGS__)
#define NOTE(d, what, todo, ...)                                                                   \
	ig_findings_add(&(d)->found, IG_FINDING_NOTE, what, todo, __VA_ARGS__)
#define WRONG(d, what, todo, ...)                                                                  \
	ig_findings_add(&(d)->found, IG_FINDING_WRONG, what, todo, __VA_ARGS__)

/* ---- the machine ------------------------------------------------------------------- */

static void processor_name(char *buf, size_t size)
{
	snprintf(buf, size, "unknown processor");
#ifdef __APPLE__
	size_t n = size;
	if (sysctlbyname("machdep.cpu.brand_string", buf, &n, NULL, 0))
		snprintf(buf, size, "unknown processor");
#else
	char line[512];
	FILE *f = fopen("/proc/cpuinfo", "re");
	while (f && fgets(line, sizeof line, f)) {
		char *value = strchr(line, ':');
		if (strncmp(line, "model name", 10) || !value)
			continue;
		value += 1 + (value[1] == ' ');
		value[strcspn(value, "\n")] = 0;
		snprintf(buf, size, "%.200s", value);
		break;
	}
	if (f)
		fclose(f);
#endif
}

static void instruction_sets(char *buf, size_t size)
{
	size_t n = 0;

	buf[0] = 0;
#if defined(__x86_64__)
	__builtin_cpu_init();
#define HAS(name)                                                                                  \
	do {                                                                                       \
		if (__builtin_cpu_supports(name) && n < size)                                      \
			n += (size_t)snprintf(buf + n, size - n, "%s%s", n ? " " : "", name);      \
	} while (0)
	HAS("avx2");
	HAS("fma");
	HAS("avx512f");
	HAS("avx512bw");
	HAS("avx512vl");
	HAS("avx512vnni");
	HAS("avx512bf16");
#undef HAS
#elif defined(__APPLE__) && defined(__aarch64__)
	static const char *const names[][2] = {
		{ "hw.optional.arm.FEAT_DotProd", "dotprod" },
		{ "hw.optional.arm.FEAT_I8MM", "i8mm" },
		{ "hw.optional.arm.FEAT_BF16", "bf16" },
	};
	n = (size_t)snprintf(buf, size, "neon");
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		int on = 0;
		size_t len = sizeof on;
		if (!sysctlbyname(names[i][0], &on, &len, NULL, 0) && on && n < size)
			n += (size_t)snprintf(buf + n, size - n, " %s", names[i][1]);
	}
#elif defined(__aarch64__)
	n = (size_t)snprintf(buf, size, "neon");
#endif
	if (!n)
		snprintf(buf, size, "none beyond the basic ones");
}

static void check_machine(struct doctor *d)
{
	char name[256], isa[256], memory[32];

	processor_name(name, sizeof name);
	instruction_sets(isa, sizeof isa);
	OK(d, "machine", "%s; %u processors and %s of memory are usable; instruction sets: %s",
	   name, ig_machine_cpus(), ig_text_bytes(memory, sizeof memory, ig_machine_memory()), isa);
}

/* ---- configuration, driver, modules --------------------------------------------------- */

/* Load the modules and, if all were loaded, check their options in the configuration. */
static int load_modules(struct doctor *d, struct ig_error *err)
{
	const struct ig_module *modules[IG_MAX_MODULES];

	if (ig_modules_create(&d->modules, &d->refusal) ||
	    ig_modules_load_folders(d->modules, d->config->modules.path, &d->refusal))
		return 0; /* check_modules reports it */
	return ig_config_check_modules(d->config, modules, ig_modules_list(d->modules, modules),
				       err);
}

static void check_config(struct doctor *d, const char *path)
{
	struct ig_error err = { 0 };
	int rc = ig_config_load(path, &d->config, &err);

	if (rc == -ENOENT && !path) {
		NOTE(d, "configuration", "none is needed: all options have defaults", "%s",
		     err.text);
		rc = ig_config_load_or_defaults(path, &d->config, &err);
		rc = rc ? rc : load_modules(d, &err);
	} else if (!rc && !(rc = load_modules(d, &err))) {
		OK(d, "configuration", "%s: valid, %zu model%s", d->config->file,
		   d->config->n_entries, d->config->n_entries == 1 ? "" : "s");
	}
	if (!rc)
		return;
	WRONG(d, "configuration",
	      "correct it; modules, models and the ledger are checked after that", "%s", err.text);
	ig_config_destroy(d->config);
	d->config = NULL;
}

static void check_driver(struct doctor *d)
{
	const struct ig_config *c = d->config;
	struct ig_driver_options o = { .isa = c->runtime.isa,
				       .n_threads = c->runtime.threads,
				       .activations = c->runtime.activations,
				       .experts = c->runtime.experts,
				       .strict = c->runtime.strict };
	struct ig_memory_facts memory = { .budget = c->memory.budget,
					  .machine = ig_machine_memory(),
					  .wired_limit_mb = ig_gpu_wired_limit_mb() };
	struct ig_error err = { 0 };

	if (ig_driver_open(c->runtime.driver, &o, &d->driver, &err)) {
		WRONG(d, "driver",
		      "set runtime.driver and runtime.isa to auto, or to values that this machine has",
		      "%s", err.text);
		return;
	}
	OK(d, "driver", "%s", ig_driver_describe(d->driver));
	memory.device = ig_driver_memory(d->driver);
	memory.unified = ig_driver_is_unified(d->driver);
	ig_findings_memory(&d->found, &memory);
}

static void on_module(void *ctx, const char *name, const char *version, const char *path)
{
	char what[160];

	snprintf(what, sizeof what, "module %.140s", name);
	OK((struct doctor *)ctx, what, "version %s, %s", version, path);
}

static void check_modules(struct doctor *d)
{
	struct ig_error err = d->refusal;
	char archs[512] = "", folders[512] = "";
	size_t n = 0;

	if (!d->modules) {
		WRONG(d, "modules", NULL, "%s", err.text);
		return;
	}
	for (char **p = d->config->modules.path; p && *p && n < sizeof folders; p++)
		n += (size_t)snprintf(folders + n, sizeof folders - n, "%s%s", n ? ", " : "", *p);
	int rc = err.code ? err.code :
			    ig_modules_start(d->modules, d->config->modules.settings,
					     d->config->modules.n_settings, &err);
	ig_modules_each(d->modules, on_module, d);
	if (rc)
		WRONG(d, "modules",
		      "the daemon would not start; install modules of this version, or correct modules.path",
		      "%s", err.text);
	if (!ig_modules_kvcache(d->modules, d->config->kvcache.service))
		WRONG(d, "kv cache",
		      "set kvcache.service to one that a module provides, or modules.path to the folder of kvcache.so",
		      "no module in %s provides the service '%s' (kvcache.service)",
		      folders[0] ? folders : "(no folder)", d->config->kvcache.service);
	ig_modules_arch_names(d->modules, archs, sizeof archs);
	if (archs[0] && strncmp(archs, "none", 4))
		OK(d, "architectures", "%s", archs);
	else
		WRONG(d, "architectures", "set modules.path to the folder of attention.so",
		      "no module in %s provides one", folders[0] ? folders : "(no folder)");
}

/* ---- models ------------------------------------------------------------------------------ */

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
static void show_contexts(struct doctor *d, const char *what, const struct ig_model_info *info,
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

/* Plan the model, for its memory. */
static void check_plan(struct doctor *d, const char *what, const struct ig_config_model *m,
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
	   ig_text_bytes(kv, sizeof kv,
			 kv_bytes_per_token(&plan->info, limits.k_dtype, limits.v_dtype)));
	if (state_bytes(&plan->info))
		OK(d, what, "memory: %s of state for each sequence, and as much for each snapshot",
		   ig_text_bytes(state, sizeof state, state_bytes(&plan->info)));
	if (d->files)
		show_contexts(d, what, &plan->info, &limits, *bytes);
out:
	ig_program_destroy(program);
}

/* What the model is for, and how it gets its input. */
static void check_chat(struct doctor *d, const char *what, const struct ig_checkpoint *g,
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

static void check_model(struct doctor *d, const struct ig_config_model *m, uint64_t *bytes)
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
		rc = ig_plan_record(d->modules, g, &plan, &err);
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
static void check_file(struct doctor *d, char *path)
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
static void check_memory(struct doctor *d, const uint64_t *bytes)
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

static void check_models(struct doctor *d)
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

/* ---- ledger, daemon ------------------------------------------------------------------------- */

/* dir: where the ledger is or will be. */
static void check_disk(struct doctor *d, const char *dir)
{
	struct statvfs fs;
	char space[32];

	if (statvfs(dir, &fs))
		return;
	uint64_t n = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (n < LOW_DISK_BYTES)
		WRONG(d, "ledger", "free some space, or change ledger.path",
		      "the disk of %s is full: %s are left; requests are served, but without space "
		      "they have no row",
		      dir, ig_text_bytes(space, sizeof space, n));
}

static void check_ledger(struct doctor *d)
{
	const char *path = d->config->ledger.path;
	struct ig_ledger_stats *s = NULL;
	struct ig_error err = { 0 };
	struct stat st;
	int64_t n_requests = 0;
	size_t n = 0;
	char dir[4096];

	if (!d->config->ledger.enabled) {
		NOTE(d, "ledger", NULL, "disabled (ledger.enabled)");
		return;
	}
	if (stat(path, &st) == 0) {
		if (access(path, W_OK)) {
			WRONG(d, "ledger", "let the daemon's user write it, or change ledger.path",
			      "%s cannot be written: %s", path, strerror(errno));
		} else if (ig_ledger_stats(path, IG_LEDGER_BY_MODEL, 0, &s, &n, &err)) {
			WRONG(d, "ledger",
			      "move the file (the daemon creates a new one), or change ledger.path",
			      "%s", err.text);
		} else {
			for (size_t i = 0; i < n; i++)
				n_requests += s[i].n_requests;
			OK(d, "ledger", "%s: %lld requests", path, (long long)n_requests);
		}
		free(s);
		check_disk(d, path);
		return;
	}
	/* it does not exist: the nearest existing folder above it must be writable */
	snprintf(dir, sizeof dir, "%s", path);
	for (;;) {
		char *slash = strrchr(dir, '/');
		if (!slash)
			strcpy(dir, ".");
		else if (slash == dir)
			dir[1] = 0;
		else
			*slash = 0;
		if (stat(dir, &st) == 0 || !slash || slash == dir)
			break;
	}
	if (!S_ISDIR(st.st_mode) || access(dir, W_OK | X_OK))
		WRONG(d, "ledger", "let the daemon's user write there, or change ledger.path",
		      "%s cannot be created: %s is not a writable folder", path, dir);
	else
		OK(d, "ledger", "%s: the daemon will create it when it starts", path);
	check_disk(d, dir);
}

/* What only the running daemon knows; only administrators are told. */
static void check_status(struct doctor *d, const struct ig_endpoint *e)
{
	struct ig_error err = { 0 };
	json_t *root = NULL;
	long http = 0;

	if (ig_http_get_json(e, "/v1/ingot/status", TIMEOUT_MS, &root, &http, &err) == 0) {
		json_t *ledger = json_object_get(root, "ledger");
		const char *why = ig_json_text(ledger, "error");
		if (json_is_true(json_object_get(ledger, "failing")))
			WRONG(d, "ledger",
			      "free some space on its disk; the daemon goes on by itself",
			      "the daemon cannot write it: %s; requests have no row meanwhile",
			      why ? why : "it does not say why");
		json_t *responses = json_object_get(root, "responses");
		why = ig_json_text(responses, "error");
		if (json_is_true(json_object_get(responses, "failing")))
			WRONG(d, "responses",
			      "free some space on their disk; the daemon goes on by itself",
			      "the daemon cannot write them: %s; a restart forgets them meanwhile",
			      why ? why : "it does not say why");
	}
	json_decref(root);
}

/* Models that the daemon could not load; only administrators get the causes. */
static void check_served(struct doctor *d, const struct ig_endpoint *e)
{
	struct ig_error err = { 0 };
	json_t *list = ig_served_list(e, &err);
	char what[160];

	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *m = json_array_get(list, i);
		const char *why = ig_json_text(m, "error");
		if (strcmp(ig_served_state(m), "failed"))
			continue;
		snprintf(what, sizeof what, "model %.140s", ig_served_name(list, i));
		WRONG(d, what, "correct it, then: ingot models load",
		      "the daemon could not load it: %s",
		      why ? why : "only administrators get the cause");
	}
	json_decref(list);
}

static void check_daemon(struct doctor *d, const struct ig_where *where)
{
	struct ig_endpoint e;
	struct ig_error err = { 0 };
	json_t *root = NULL;
	long http = 0;

	if (ig_endpoint_open(where, &e, &err)) {
		/* an error of the configuration is reported already */
		NOTE(d, "daemon", NULL, "not checked: %s", err.text);
		return;
	}
	if (ig_http_get_json(&e, "/healthz", TIMEOUT_MS, &root, &http, &err) == 0) {
		OK(d, "daemon", "runs at %s", e.url);
		check_served(d, &e);
		check_status(d, &e);
	} else if (!http) {
		NOTE(d, "daemon", "start it with: ingotd --config FILE", "none at %s (%s)", e.url,
		     err.text);
	} else {
		WRONG(d, "daemon", "if it is another program, change server.port", "%s", err.text);
	}
	json_decref(root);
}

int ig_doctor_main(int argc, char **argv)
{
	struct ig_where where = { 0 };
	bool json = false;
	const struct ig_option opts[] = {
		IG_WHERE_OPTIONS(&where),
		IG_FLAG("json", 0, &json, "print JSON"),
		{ 0 },
	};
	struct doctor d = { 0 };
	struct ig_strbuf out = { 0 };
	int n_files,
		status = ig_command_start(
			"doctor [FILE …] [options]",
			"Check the machine, the configuration and everything that it names; print what is "
			"wrong\nand what to do.  With a FILE, a GGUF file or a folder with safetensors: whether "
			"that\nmodel will run here, with what memory at what context.  Exits with 1 when "
			"anything is\nwrong.",
			opts, argc, argv, &n_files);

	if (status >= 0)
		return status;
	/* errors come back as text; the log would print them again */
	ig_log_set_level(-1);
	check_machine(&d);
	check_config(&d, where.config);
	if (d.config) {
		check_driver(&d);
		check_modules(&d);
		d.files = n_files > 0;
		for (int i = 0; i < n_files; i++)
			check_file(&d, argv[i]);
		if (!d.files) {
			check_models(&d);
			check_ledger(&d);
		}
	}
	if (!n_files)
		check_daemon(&d, &where);

	if (json ? ig_findings_json(&d.found, &out) : ig_findings_text(&d.found, &out)) {
		fwrite(out.data, 1, out.len, stdout);
		status = ig_findings_wrong(&d.found) ? IG_EXIT_FAILED : IG_EXIT_OK;
	} else {
		status = ig_complain("out of memory");
	}
	ig_strbuf_finish(&out);
	ig_findings_finish(&d.found);
	ig_driver_close(d.driver);
	ig_modules_destroy(d.modules);
	ig_config_destroy(d.config);
	return status;
}
