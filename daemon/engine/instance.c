/*
 * instance.c: one model from its file's path to a program that steps are submitted to: open
 * the file, its tokenizer and template, record the plan, lower it; then, when the memory
 * contract has space, load it.  models.c and loader.c decide who holds it, and when.
 */
#include "daemon/engine/instance_private.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "daemon/engine/kv_disk_private.h"

#include "model/formats/adapter.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Tokens at the end of a vocabulary that only pad it, at most. */
#define MAX_PADDING 1024

/* ---- identity of the file ---------------------------------------------------------- */

/* A hash of the files of a folder that does not depend on their order. */
static uint64_t folder_of(const char *path)
{
	DIR *d = opendir(path);
	const struct dirent *entry;
	uint64_t sum = 0;

	while (d && (entry = readdir(d))) {
		struct stat st;
		int64_t when;
		uint64_t h;
		if (entry->d_name[0] == '.' || fstatat(dirfd(d), entry->d_name, &st, 0) < 0)
			continue;
		when = ig_mtime_ns(&st);
		h = ig_fnv1a(IG_FNV1A, entry->d_name, strlen(entry->d_name));
		h = ig_fnv1a(h, &st.st_size, sizeof st.st_size);
		h = ig_fnv1a(h, &st.st_ino, sizeof st.st_ino);
		sum += ig_fnv1a(h, &when, sizeof when);
	}
	if (d)
		closedir(d);
	return sum;
}

void ig_file_id_of(const char *path, struct ig_file_id *out)
{
	struct stat st;

	*out = (struct ig_file_id){ 0 };
	if (stat(path, &st) < 0)
		return;
	out->dev = (uint64_t)st.st_dev;
	out->ino = (uint64_t)st.st_ino;
	out->size = (uint64_t)st.st_size;
	out->mtime_ns = ig_mtime_ns(&st);
	if (S_ISDIR(st.st_mode))
		out->files = folder_of(path);
}

/* ---- adapters ---- */

void ig_model_adapters_free(struct ig_model_adapter *a, uint32_t n)
{
	for (uint32_t i = 0; a && i < n; i++) {
		free(a[i].name);
		free(a[i].path);
	}
	free(a);
}

struct ig_model_adapter *ig_model_adapters_copy(const struct ig_model_adapter *a, uint32_t n)
{
	struct ig_model_adapter *out = calloc(n + 1, sizeof *out);
	bool ok = out != NULL;

	for (uint32_t i = 0; ok && i < n; i++) {
		out[i].name = strdup(a[i].name);
		out[i].path = strdup(a[i].path);
		out[i].scale_percent = a[i].scale_percent;
		ig_file_id_of(a[i].path, &out[i].file_id);
		ok = out[i].name && out[i].path;
	}
	if (!ok) {
		ig_model_adapters_free(out, n);
		return NULL;
	}
	return out;
}

/* As the configuration says. */
static void scale_adapter(struct ig_adapter *a, uint32_t percent)
{
	for (uint32_t i = 0; percent != 100 && i < a->n_parts; i++)
		a->parts[i].scale = a->parts[i].scale * (float)percent / 100;
}

/* Of all its numbers: a cached block depends on them. */
static bool name_adapter(const struct ig_adapter *a, struct ig_kv_name *out)
{
	struct ig_kv_namer *n = ig_kv_namer_create();

	if (!n)
		return false;
	ig_kv_name_begin(n, NULL);
	for (uint32_t i = 0; i < a->n_parts; i++) {
		const struct ig_adapter_part *p = &a->parts[i];
		ig_kv_name_add(n, p->weight, strlen(p->weight));
		ig_kv_name_add(n, &p->scale, sizeof p->scale);
		ig_kv_name_add(n, p->a, (size_t)(p->rank * p->n_cols) * sizeof *p->a);
		ig_kv_name_add(n, p->b, (size_t)(p->rank * p->n_rows) * sizeof *p->b);
	}
	bool ok = ig_kv_name_end(n, out);
	ig_kv_namer_destroy(n);
	return ok;
}

uint64_t ig_model_salt(const struct ig_engine_model *m, uint64_t identity)
{
	uint64_t part;

	if (!m->adapter)
		return identity;
	/* of a hash, so two adapters', or one's and a key's, are never the same by chance */
	memcpy(&part, m->instance->adapter_names[m->adapter - 1].bytes, sizeof part);
	return ig_fnv1a(part, &identity, sizeof identity);
}

/* With the head that guesses, if the file has one.  A head that can't be used is none. */
static int record_mtp(struct ig_model *m, struct ig_error *err)
{
	struct ig_error why = { 0 };
	int rc = ig_plan_record_mtp(m->backend->modules, m->file, &m->plan, &why);

	if (rc && rc != -ENOMEM && !m->head_named &&
	    !ig_plan_record(m->backend->modules, m->file, &m->plan, err)) {
		ig_log_warn("model %s: %s: it does without", m->name, why.text);
		return 0;
	}
	m->has_mtp = m->plan && m->plan->first_mtp_node;
	if (!rc && m->head_named && !m->has_mtp)
		rc = ig_fail(&why, -ENOTSUP,
			     "heads that guess (MTP) of this architecture are not supported");
	return rc ? ig_fail(err, rc, "%s%s", m->head_named ? "its draft: " : "", why.text) : 0;
}

static int record(struct ig_model *m, bool is_draft, struct ig_error *err)
{
	struct ig_plan_adapter *list = calloc(m->n_adapters + 1, sizeof *list);
	struct ig_adapter **open = calloc(m->n_adapters + 1, sizeof *open);
	struct ig_error why = { 0 };
	int rc = list && open ? 0 : ig_fail(err, -ENOMEM, "out of memory");

	for (uint32_t i = 0; i < m->n_adapters && !rc; i++) {
		rc = ig_adapter_open(m->adapters[i].path, m->file,
				     ig_modules_archs(m->backend->modules), &open[i], &why);
		if (rc)
			rc = ig_fail(err, rc, "adapter %s: %s", m->adapters[i].name, why.text);
		if (!rc)
			scale_adapter(open[i], m->adapters[i].scale_percent);
		if (!rc && !name_adapter(open[i], &m->adapter_names[i]))
			rc = ig_fail(err, -ENOMEM, "out of memory");
		list[i] = (struct ig_plan_adapter){ m->adapters[i].name, open[i] };
	}
	/* an adapter was trained without the head */
	if (!rc && !m->n_adapters && !is_draft && m->backend->with_mtp)
		rc = record_mtp(m, err);
	else if (!rc)
		rc = ig_plan_record_adapted(m->backend->modules, m->file, list, m->n_adapters,
					    &m->plan, err);
	for (uint32_t i = 0; open && i < m->n_adapters; i++)
		ig_adapter_close(open[i]);
	free(open);
	free(list);
	return rc;
}

static int take_adapters(struct ig_model *m, const struct ig_model_spec *spec, struct ig_error *err)
{
	m->adapters = ig_model_adapters_copy(spec->adapters, spec->n_adapters);
	m->n_adapters = m->adapters ? spec->n_adapters : 0;
	m->adapted = calloc(spec->n_adapters + 1, sizeof *m->adapted);
	m->adapter_names = calloc(spec->n_adapters + 1, sizeof *m->adapter_names);
	if (!m->adapters || !m->adapted || !m->adapter_names)
		return ig_fail(err, -ENOMEM, "out of memory");
	return 0;
}

/* What requests see of the model with each adapter. */
static int show_adapters(struct ig_model *m, struct ig_error *err)
{
	for (uint32_t i = 0; i < m->n_adapters; i++) {
		char *name;
		if (asprintf(&name, "%s:%s", m->name, m->adapters[i].name) < 0)
			return ig_fail(err, -ENOMEM, "out of memory");
		m->adapted[i] = m->shown;
		m->adapted[i].name = name;
		m->adapted[i].adapter = i + 1;
	}
	return 0;
}

/* ---- opening ------------------------------------------------------------------------ */

static int open_tokenizer(struct ig_model *m, bool is_draft, struct ig_error *err)
{
	struct ig_error why = { 0 };
	int rc = ig_tokenizer_open(m->file, &m->tokenizer, err);

	if (rc < 0 || is_draft)
		return rc;
	if (m->plan->info.result != IG_RESULT_TOKENS) {
		m->chat_error = strdup(m->plan->info.result == IG_RESULT_SCORE ?
					       "it is a reranker" :
					       "it is a model of embeddings");
		if (!m->chat_error)
			return ig_fail(err, -ENOMEM, "out of memory");
		return m->plan->info.result == IG_RESULT_SCORE ?
			       ig_rerank_template_open(m->file, m->tokenizer, &m->rerank, err) :
			       0;
	}
	rc = ig_chat_template_open(m->file, m->tokenizer, &m->chat, &why);
	if (rc == -ENOMEM)
		return ig_fail(err, rc, "%s", why.text);
	if (rc < 0) {
		/* The model can still complete text; a chat request is refused with the reason. */
		m->chat = NULL;
		m->chat_error = strdup(rc == -ENOENT ? "the file has no chat template" : why.text);
		if (!m->chat_error)
			return ig_fail(err, -ENOMEM, "out of memory");
		ig_log_warn("model %s: no chat: %s", m->name, m->chat_error);
	}
	return 0;
}

static int fill_layouts(struct ig_model *m, struct ig_error *err)
{
	const struct ig_backend *b = m->backend;
	struct ig_model_info info;
	int rc = ig_driver_model_info(b->driver, m->plan, &info, err);

	for (uint32_t g = 0; g < m->n_groups && !rc; g++) {
		const struct ig_cache_group *group = &info.groups[g];
		m->layouts[g] = (struct ig_kv_layout){ .k_dtype = m->limits.k_dtype,
						       .v_dtype = m->limits.v_dtype,
						       .n_layers = group->n_layers,
						       .n_kv_heads = group->n_kv_heads,
						       .head_dim = group->head_dim,
						       .kind = group->kind };
		rc = b->kv->layout(b->ruler, &m->layouts[g], err);
	}
	return rc;
}

/* A head of a type that the driver has no kernels for is none. */
static int lower_plan(struct ig_model *m, struct ig_error *err)
{
	struct ig_driver *driver = m->backend->driver;
	int rc = ig_driver_lower(driver, m->plan, &m->limits, &m->program, &m->memory, err);

	if (rc != -ENOTSUP || !m->has_mtp)
		return rc;
	ig_log_warn("model %s: %s: it does without its head that guesses", m->name, err->text);
	ig_plan_destroy(m->plan);
	m->plan = NULL;
	m->has_mtp = false;
	*err = (struct ig_error){ 0 };
	rc = ig_plan_record(m->backend->modules, m->file, &m->plan, err);
	return rc ? rc : ig_driver_lower(driver, m->plan, &m->limits, &m->program, &m->memory, err);
}

static int lower(struct ig_model *m, uint32_t context, bool is_draft, struct ig_error *err)
{
	const struct ig_backend *b = m->backend;
	const bool own = m->wants.k_dtype != IG_DTYPE_NONE;
	int rc;

	m->limits = (struct ig_program_limits){ .max_rows = b->max_rows,
						.max_seqs = b->max_seqs,
						/* a draft has one row for each sequence */
						.max_logit_rows =
							is_draft ? b->max_seqs : b->max_logit_rows,
						.max_context = context,
						.k_dtype = own ? m->wants.k_dtype : b->k_dtype,
						.v_dtype = own ? m->wants.v_dtype : b->v_dtype,
						.max_slabs = b->max_slabs };
	if (m->whole_texts)
		ig_program_limit_texts(&m->limits);
	rc = lower_plan(m, err);
	if (rc < 0)
		return rc;
	m->n_logits = m->plan->n_results;
	m->mask_words = m->whole_texts ? 0 : (m->n_logits + 31) / 32;
	if (m->whole_texts)
		m->memory.scratch_bytes +=
			(uint64_t)IG_STEPS_IN_FLIGHT * IG_STEP_TEXTS * m->n_logits * sizeof(float);
	m->split_rows = ig_program_split_rows(m->program);
	if (!m->split_rows || m->split_rows > b->max_rows)
		m->split_rows = b->max_rows;
	rc = fill_layouts(m, err);
	if (!rc && b->disk && !is_draft && !ig_kv_name_model(m, &m->kv_name))
		rc = ig_fail(err, -ENOMEM, "out of memory");
	return rc;
}

/* A draft that is a file with nothing but the model's head: a part of the model's file from now on. */
static int take_head(struct ig_model *m, const char *path, struct ig_error *err)
{
	struct ig_checkpoint *head = NULL;
	struct ig_error why = { 0 };
	int rc = 0;

	if (!path || ig_checkpoint_is_folder(path))
		return 0;
	rc = ig_checkpoint_open(path, NULL, &head, &why);
	m->head_named = !rc && ig_checkpoint_is_head(head);
	if (m->head_named && (m->n_adapters || !m->backend->with_mtp)) {
		ig_log_warn("model %s: draft %s: the head that guesses (MTP) is not used%s",
			    m->name, path,
			    m->n_adapters ? ": models with adapters do without" :
					    " with this driver and scheduler.speculation");
	} else if (m->head_named) {
		rc = ig_checkpoint_add_head(m->file, head, &why);
		if (!rc)
			return 0;
	}
	ig_checkpoint_close(head);
	return rc ? ig_fail(err, rc, "draft %s: %s", path, why.text) : 0;
}

static int read_model(struct ig_model *m, const struct ig_model_spec *spec, struct ig_error *err)
{
	const struct ig_model *owner = spec->owner;
	const uint32_t wanted_context = m->wants.context;
	uint32_t context;
	int rc = ig_checkpoint_open(m->path, ig_modules_archs(m->backend->modules), &m->file, err);

	if (rc || (rc = take_head(m, spec->draft, err)) || (rc = record(m, owner, err)) ||
	    (rc = open_tokenizer(m, owner, err)))
		return rc;
	if ((int64_t)m->plan->info.n_vocab < ig_tokenizer_n_vocab(m->tokenizer))
		return ig_fail(err, -EINVAL, "the tokenizer has %d tokens, the embedding only %u",
			       ig_tokenizer_n_vocab(m->tokenizer), m->plan->info.n_vocab);
	m->n_groups = m->plan->info.n_groups;
	m->whole_texts = m->plan->info.result != IG_RESULT_TOKENS;
	if ((!m->n_groups && !m->whole_texts) || m->n_groups > IG_MAX_CACHE_GROUPS)
		return ig_fail(err, -EINVAL, "%u cache groups; 1 to %d are possible", m->n_groups,
			       IG_MAX_CACHE_GROUPS);
	for (uint32_t g = 0; g < m->n_groups; g++) {
		m->has_state = m->has_state || m->plan->info.groups[g].kind == IG_CACHE_STATE;
		if (m->plan->info.groups[g].window > m->window)
			m->window = m->plan->info.groups[g].window;
	}
	context = m->plan->info.n_context;
	if (wanted_context > context)
		return ig_fail(err, -EINVAL, "context is %u, the model was trained for %u tokens",
			       wanted_context, context);
	if (wanted_context)
		context = wanted_context;
	else if (m->whole_texts && context > IG_DEFAULT_TEXT)
		context = IG_DEFAULT_TEXT; /* scratch memory grows with it */
	if (owner && context > owner->limits.max_context)
		context = owner->limits.max_context;
	if (context < 2 || context > INT32_MAX / 2)
		return ig_fail(err, -EINVAL, "a context of %u tokens", context);
	m->arch = strdup(m->plan->arch && m->plan->arch->name ? m->plan->arch->name : "");
	if (!m->arch)
		return ig_fail(err, -ENOMEM, "out of memory");
	return lower(m, context, owner, err);
}

/* ---- the draft model ---------------------------------------------------------------- */

/* Ids mean the same in both, as far as both have them; files of one family differ in what pads their
 * vocabularies. */
static int check_vocabulary(const struct ig_model *m, const struct ig_model *d,
			    struct ig_error *err)
{
	int32_t n = ig_tokenizer_n_vocab(m->tokenizer),
		n_draft = ig_tokenizer_n_vocab(d->tokenizer);
	int32_t least = n < n_draft ? n : n_draft, most = n < n_draft ? n_draft : n;

	if (most - least > MAX_PADDING)
		return ig_fail(err, -EINVAL,
			       "it has another vocabulary: %d tokens, the model has %d", n_draft,
			       n);
	for (int32_t i = 0; i < least; i++) {
		size_t len = 0, len_draft = 0;
		bool special, special_draft;
		const char *text = ig_tokenizer_token(m->tokenizer, i, &len, &special);
		const char *draft = ig_tokenizer_token(d->tokenizer, i, &len_draft, &special_draft);
		if (!text != !draft || len != len_draft || (text && memcmp(text, draft, len)))
			return ig_fail(err, -EINVAL,
				       "it has another vocabulary: token %d is \"%.*s\", the "
				       "model's is \"%.*s\"",
				       i, draft ? (int)(len_draft < 40 ? len_draft : 40) : 0,
				       draft ? draft : "", text ? (int)(len < 40 ? len : 40) : 0,
				       text ? text : "");
	}
	return 0;
}

static int open_draft(struct ig_model *m, const char *path, struct ig_error *err)
{
	struct ig_model_spec spec = {
		.name = m->name,
		.path = path,
		.wants = { .k_dtype = m->wants.k_dtype, .v_dtype = m->wants.v_dtype },
		.owner = m,
	};
	struct ig_error why = { 0 };
	struct ig_file_id id;
	int rc;

	ig_file_id_of(path, &id);
	if (id.ino && id.dev == m->file_id.dev && id.ino == m->file_id.ino)
		return ig_fail(err, -EINVAL, "draft %s: it is the model itself", path);
	rc = ig_model_open(m->backend, &spec, &m->draft, &why);
	if (!rc)
		rc = check_vocabulary(m, m->draft, &why);
	return rc ? ig_fail(err, rc, "draft %s: %s", path, why.text) : 0;
}

/* Models that pool the last row were trained with a token behind the text; some files do not say so. */
static int32_t suffix_of(const struct ig_model *m)
{
	int32_t suffix = ig_tokenizer_suffix(m->tokenizer);

	return suffix >= 0 || !m->whole_texts ?
		       suffix :
		       ig_tokenizer_find_special(m->tokenizer, "<|endoftext|>");
}

int ig_model_open(const struct ig_backend *b, const struct ig_model_spec *spec,
		  struct ig_model **out, struct ig_error *err)
{
	struct ig_model *m = calloc(1, sizeof *m);
	int rc;

	if (!m)
		return ig_fail(err, -ENOMEM, "out of memory");
	m->backend = b;
	m->n_holds = 1;
	m->wants = spec->wants;
	m->name = strdup(spec->name);
	m->path = strdup(spec->path);
	if (!m->name || !m->path) {
		rc = ig_fail(err, -ENOMEM, "out of memory");
		goto fail;
	}
	/* before it is opened, so that a replacement in the meantime is noticed */
	ig_file_id_of(spec->path, &m->file_id);
	rc = take_adapters(m, spec, err);
	if (!rc)
		rc = read_model(m, spec, err);
	if (!rc && spec->draft && !m->head_named)
		rc = open_draft(m, spec->draft, err);
	if (rc < 0)
		goto fail;
	m->shown = (struct ig_engine_model){
		.name = m->name,
		.tokenizer = m->tokenizer,
		.chat = m->chat,
		.chat_error = m->chat_error,
		.rerank = m->rerank,
		.n_context = m->limits.max_context,
		.arch = m->arch,
		.file = m->path,
		.weight_bytes =
			m->memory.weight_bytes + (m->draft ? m->draft->memory.weight_bytes : 0),
		.created_s = m->file_id.mtime_ns / 1000000000,
	};
	if (m->chat)
		ig_completion_style_of(m->chat, &m->shown.style);
	m->shown.n_results = m->n_logits;
	m->shown.width_outside = m->whole_texts ? 0 : ig_program_outside_width(m->program);
	m->shown.suffix = suffix_of(m);
	ig_model_traits_of(m, &m->shown.traits);
	m->shown.instance = m;
	rc = show_adapters(m, err);
	if (rc < 0)
		goto fail;
	*out = m;
	return 0;
fail:
	ig_model_close(m);
	ig_model_free(m);
	return rc;
}

/* ---- loading --------------------------------------------------------------------------- */

/* Load with the copy of packed weights at f->path. */
static int load_copy(struct ig_model *m, struct ig_packed_file *f, struct ig_error *err)
{
	int rc = ig_program_load_packed(m->program, f, err);

	if (rc)
		return rc;
	if (f->why.code && f->why.code != -ENOENT)
		ig_log_warn("model %s: its copy of packed weights: %s", m->name, f->why.text);
	if (f->result != IG_PACKED_NONE)
		ig_log_info("model %s: packed weights are %s %s", m->name,
			    f->result == IG_PACKED_MAPPED ? "mapped from" : "written to", f->path);
	return 0;
}

/* Load the program, with runtime.packed_cache if that is set and the driver packs. */
static int load_program(struct ig_model *m, struct ig_error *err)
{
	struct ig_packed_files *files = m->backend->packed;
	struct ig_packed_file f = { 0 };
	struct ig_kv_name name;
	struct ig_error why = { 0 };
	uint64_t n_bytes, layout = files ? ig_program_packed_layout(m->program, &n_bytes) : 0;
	char *path;
	int rc;

	if (!layout)
		return ig_program_load(m->program, err);
	if (!ig_kv_name_packed(m, layout, &name) || !(path = ig_packed_files_path(files, &name)))
		return ig_fail(err, -ENOMEM, "out of memory");
	if (!ig_packed_files_make_space(files, &name, n_bytes, &why)) {
		ig_log_warn("model %s: %s", m->name, why.text);
		free(path);
		return ig_program_load(m->program, err);
	}
	f.path = path;
	memcpy(f.name, name.bytes, sizeof f.name);
	rc = load_copy(m, &f, err);
	ig_packed_files_use(files, &name);
	free(path);
	return rc;
}

int ig_model_load(struct ig_model *m, struct ig_error *err)
{
	int rc = load_program(m, err);

	m->max_blocks = (m->limits.max_context + IG_BLOCK_TOKENS - 1) / IG_BLOCK_TOKENS;
	for (uint32_t i = 0; i < IG_STEPS_IN_FLIGHT && rc == 0; i++)
		rc = ig_step_buffer_make(m, &m->steps[i], err);
	if (!rc && m->draft) {
		struct ig_error why = { 0 };
		rc = ig_model_load(m->draft, &why);
		if (rc)
			ig_fail(err, rc, "draft %s: %s", m->draft->path, why.text);
	}
	return rc;
}

void ig_model_close(struct ig_model *m)
{
	if (m->draft)
		ig_model_close(m->draft);
	ig_model_free(m->draft);
	m->draft = NULL;
	ig_program_destroy(m->program);
	m->program = NULL;
	ig_plan_destroy(m->plan);
	m->plan = NULL;
	if (m->chat)
		ig_chat_template_close(m->chat);
	m->chat = NULL;
	ig_rerank_template_close(m->rerank);
	m->rerank = NULL;
	if (m->tokenizer) {
		ig_grammar_cache_drop(m->backend->grammars, m->tokenizer);
		ig_tokenizer_close(m->tokenizer);
	}
	m->tokenizer = NULL;
	ig_checkpoint_close(m->file);
	m->file = NULL;
	for (uint32_t i = 0; i < IG_STEPS_IN_FLIGHT; i++)
		ig_step_buffer_free(&m->steps[i]);
	free(m->name);
	free(m->path);
	free(m->arch);
	free(m->chat_error);
	for (uint32_t i = 0; m->adapted && i < m->n_adapters; i++)
		free((char *)(uintptr_t)m->adapted[i].name);
	/* holders may still point at what they got: the structs stay as the instance does */
	for (uint32_t i = 0; m->adapted && i < m->n_adapters; i++)
		m->adapted[i] = (struct ig_engine_model){ .instance = m, .adapter = i + 1 };
	ig_model_adapters_free(m->adapters, m->n_adapters);
	m->adapters = NULL;
	free(m->adapter_names);
	m->adapter_names = NULL;
	m->name = m->path = m->arch = m->chat_error = NULL;
	m->shown = (struct ig_engine_model){ .instance = m };
}

void ig_model_free(struct ig_model *m)
{
	if (m)
		free(m->adapted);
	free(m);
}
