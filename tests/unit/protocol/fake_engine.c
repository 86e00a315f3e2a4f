/*
 * fake_engine.c: see fake_engine.h.  Two threads play parse and prep, another the engine; the
 * real stream.c carries the text.  Chat templates and tokenizers are played too: an
 * id is a byte of "role:content;".
 */
#include "tests/unit/protocol/fake_engine.h"

#include "base/clock.h"
#include "model/chat/completion.h"
#include "store/ledger_history.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_GENS 256
#define MAX_PREP 64
#define MAX_READY 16

struct gen {
	bool used, cancelled;
	uint64_t id;
	struct fake_script script;
	struct ig_stream *stream;
	int32_t n_prompt, n_output, priority;
	uint64_t n_bytes;
	int at, round;
	char name[64], cancel_reason[24];
};

struct prep {
	struct ig_engine *of;
	pthread_t thread;
	struct {
		void (*fn)(void *ctx);
		void *ctx;
	} jobs[MAX_PREP];
	size_t head, tail;
	bool held;
};

struct ig_engine {
	pthread_t engine_thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool stop, released, draining;
	struct fake_script script;
	struct fake_seen seen;
	struct gen gens[MAX_GENS];
	uint64_t next_id;
	struct prep parse, prep;
	struct ig_engine_model model, other;
	int model_rc;
	struct {
		void (*fn)(void *ctx);
		void *ctx;
	} ready[MAX_READY];
	size_t n_ready;
	bool load_ended; /* the engine's thread is to call them */
};

static atomic_int n_holds;
static atomic_llong keep_alive_ns;
static struct ig_completion_style style; /* of both models */

static void finish(struct ig_engine *e, struct gen *g, enum ig_finish how, const char *error)
{
	struct ig_gen_result r = { .finish = how,
				   .n_prompt = g->n_prompt,
				   .n_cached = 3,
				   .n_output = g->n_output,
				   .stop_index = g->script.stop_index - 1,
				   .report = g->script.report };

	if (error)
		ig_fail(&r.error, g->script.error_code ? g->script.error_code : -EIO, "%s", error);
	snprintf(r.cancel_reason, sizeof r.cancel_reason, "%s", g->cancel_reason);
	e->seen.n_finished++;
	g->used = false;
	ig_stream_finish(g->stream, &r);
	ig_stream_unref(g->stream);
}

/* One step of one request; false when it can't go on now. */
static bool step(struct ig_engine *e, struct gen *g)
{
	if (g->cancelled) {
		finish(e, g, IG_FINISH_CANCELLED, NULL);
		return true;
	}
	bool held = g->script.hold && !e->released;
	if (ig_stream_n_cached(g->stream) < 0 && !(g->script.waits && (held || g->script.error)))
		ig_stream_begin(g->stream, 3, &g->script.report);
	if (held)
		return false;
	const char *const *pieces = g->script.pieces;
	if (!pieces || !pieces[0] ||
	    (!pieces[g->at] && ++g->round >= (g->script.repeat ? g->script.repeat : 1))) {
		finish(e, g, g->script.finish, g->script.error);
		return true;
	}
	if (!pieces[g->at])
		g->at = 0;
	size_t len = strlen(pieces[g->at]);
	/* its first byte's id, and half as likely as the one before */
	struct ig_token_logprob note = { .id = (unsigned char)pieces[g->at][0],
					 .logprob = -0.5f * (float)(g->n_output + 1),
					 .text_end = g->n_bytes + len,
					 .n_top = 1,
					 .top = { { 'z', -0.25f } } };
	if (!ig_stream_has_space(g->stream, len) ||
	    (ig_stream_has_logprobs(g->stream) && ig_stream_put_logprob(g->stream, &note) < 0))
		return false; /* paused until the reader takes something */
	ig_stream_put(g->stream, pieces[g->at], len);
	g->n_bytes += len;
	g->at++;
	g->n_output++;
	return true;
}

static void call_ready(struct ig_engine *e)
{
	while (e->n_ready) {
		void (*fn)(void *ctx) = e->ready[--e->n_ready].fn;
		void *ctx = e->ready[e->n_ready].ctx;
		pthread_mutex_unlock(&e->lock);
		fn(ctx);
		pthread_mutex_lock(&e->lock);
	}
	e->load_ended = false;
}

static void *engine_main(void *ctx)
{
	struct ig_engine *e = ctx;

	pthread_mutex_lock(&e->lock);
	while (!e->stop) {
		bool any = e->load_ended;
		if (any)
			call_ready(e);
		int n = 0;
		for (size_t i = 0; i < MAX_GENS; i++) {
			n += e->gens[i].used;
			if (e->gens[i].used)
				any |= step(e, &e->gens[i]);
		}
		if (n > e->seen.n_running_max)
			e->seen.n_running_max = n;
		if (!any)
			pthread_cond_wait(&e->cond, &e->lock);
	}
	for (size_t i = 0; i < MAX_GENS; i++)
		if (e->gens[i].used) {
			snprintf(e->gens[i].cancel_reason, 24, "shutdown");
			finish(e, &e->gens[i], IG_FINISH_CANCELLED, NULL);
		}
	pthread_mutex_unlock(&e->lock);
	return NULL;
}

static void *prep_main(void *ctx)
{
	struct prep *p = ctx;
	struct ig_engine *e = p->of;

	pthread_mutex_lock(&e->lock);
	while (!e->stop) {
		if (p->head == p->tail || p->held) {
			pthread_cond_wait(&e->cond, &e->lock);
			continue;
		}
		size_t i = p->tail++ % MAX_PREP;
		pthread_mutex_unlock(&e->lock);
		p->jobs[i].fn(p->jobs[i].ctx);
		pthread_mutex_lock(&e->lock);
	}
	pthread_mutex_unlock(&e->lock);
	return NULL;
}

struct ig_engine *fake_engine_create(void)
{
	struct ig_engine *e = calloc(1, sizeof *e);

	pthread_mutex_init(&e->lock, NULL);
	pthread_cond_init(&e->cond, NULL);
	e->next_id = 1;
	e->model = (struct ig_engine_model){ .name = "fake",
					     .chat = (const void *)e,
					     .n_context = 2000,
					     .arch = "fake",
					     .file = "fake.gguf",
					     .created_s = 1700000000 };
	e->other = e->model;
	e->other.name = "spare";
	atomic_store(&n_holds, 0);
	pthread_create(&e->engine_thread, NULL, engine_main, e);
	e->parse.of = e->prep.of = e;
	pthread_create(&e->parse.thread, NULL, prep_main, &e->parse);
	pthread_create(&e->prep.thread, NULL, prep_main, &e->prep);
	return e;
}

void fake_engine_script(struct ig_engine *e, const struct fake_script *s)
{
	pthread_mutex_lock(&e->lock);
	e->script = *s;
	e->released = false;
	pthread_mutex_unlock(&e->lock);
}

void fake_engine_hold_prep(struct ig_engine *e, bool held)
{
	pthread_mutex_lock(&e->lock);
	e->prep.held = held;
	pthread_cond_broadcast(&e->cond);
	pthread_mutex_unlock(&e->lock);
}

void fake_engine_release(struct ig_engine *e)
{
	pthread_mutex_lock(&e->lock);
	e->released = true;
	pthread_cond_broadcast(&e->cond);
	pthread_mutex_unlock(&e->lock);
}

struct fake_seen fake_engine_seen(struct ig_engine *e)
{
	pthread_mutex_lock(&e->lock);
	struct fake_seen s = e->seen;
	pthread_mutex_unlock(&e->lock);
	return s;
}

void ig_engine_destroy(struct ig_engine *e)
{
	if (!e)
		return;
	pthread_mutex_lock(&e->lock);
	e->stop = true;
	pthread_cond_broadcast(&e->cond);
	pthread_mutex_unlock(&e->lock);
	pthread_join(e->engine_thread, NULL);
	pthread_join(e->parse.thread, NULL);
	pthread_join(e->prep.thread, NULL);
	pthread_cond_destroy(&e->cond);
	pthread_mutex_destroy(&e->lock);
	free(e);
}

void ig_engine_drain(struct ig_engine *e)
{
	pthread_mutex_lock(&e->lock);
	e->draining = true;
	pthread_mutex_unlock(&e->lock);
}

/* ---- models --------------------------------------------------------------------- */

void fake_engine_model(struct ig_engine *e, int rc)
{
	pthread_mutex_lock(&e->lock);
	e->model_rc = rc;
	pthread_mutex_unlock(&e->lock);
}

void fake_engine_load_ends(struct ig_engine *e, int rc)
{
	pthread_mutex_lock(&e->lock);
	e->model_rc = rc;
	e->load_ended = true;
	pthread_cond_broadcast(&e->cond);
	pthread_mutex_unlock(&e->lock);
}

int64_t fake_keep_alive_ns(void) { return atomic_load(&keep_alive_ns); }

int fake_model_holds(void) { return atomic_load(&n_holds); }

/* "fake", "spare", and of aliases "alias-*" for spare. */
bool ig_engine_model_name(struct ig_engine *e, const char *name, char out[IG_MAX_MODEL_NAME + 1])
{
	bool spare = name && (!strcmp(name, "spare") || !strncmp(name, "alias-", 6));
	bool fake = !name || !name[0] || !strcmp(name, "fake");

	snprintf(out, IG_MAX_MODEL_NAME + 1, "%s", spare ? "spare" : fake ? "fake" : "");
	return spare || fake;
}

int ig_engine_take_model(struct ig_engine *e, const char *name, void (*ready)(void *ctx), void *ctx,
			 const struct ig_engine_model **out, struct ig_error *err)
{
	bool other = name && !strcmp(name, "spare");
	int rc;

	if (name && name[0] && !other && strcmp(name, e->model.name))
		return ig_fail(err, -ENOENT, "no model is named \"%s\"; known: fake, spare", name);
	pthread_mutex_lock(&e->lock);
	rc = e->draining ? -ESHUTDOWN : other ? 0 : e->model_rc;
	if (rc == -EINPROGRESS && ready && e->n_ready < MAX_READY) {
		e->ready[e->n_ready].fn = ready;
		e->ready[e->n_ready++].ctx = ctx;
		e->seen.n_callbacks++;
	}
	pthread_mutex_unlock(&e->lock);
	if (rc == -EIO)
		ig_fail(err, rc, "fake: the file is damaged");
	else if (rc == -ENOMEM)
		ig_fail(err, rc, "fake: no space; raise memory.budget");
	if (rc)
		return rc;
	atomic_fetch_add(&n_holds, 1);
	struct ig_engine_model *m = other ? &e->other : &e->model;
	m->style = style;
	*out = m;
	return 0;
}

const struct ig_engine_model *ig_engine_keep_model(const struct ig_engine_model *m)
{
	atomic_fetch_add(&n_holds, 1);
	return m;
}

void ig_engine_release_model(const struct ig_engine_model *m)
{
	if (m)
		atomic_fetch_sub(&n_holds, 1);
}

void ig_engine_set_keep_alive(const struct ig_engine_model *m, int64_t ns)
{
	atomic_store(&keep_alive_ns, ns);
}

int ig_engine_unload_model(struct ig_engine *e, const char *name, struct ig_error *err)
{
	if (strcmp(name, "fake") && strcmp(name, "spare"))
		return ig_fail(err, -ENOENT, "no model is named \"%s\"; known: fake, spare", name);
	pthread_mutex_lock(&e->lock);
	e->seen.n_unloaded++;
	pthread_mutex_unlock(&e->lock);
	return 0;
}

size_t ig_engine_models(struct ig_engine *e, struct ig_model_status *out, size_t cap)
{
	struct ig_model_status s = { .n_context = 2000,
				     .created_s = 1700000000,
				     .expires_s = -1,
				     .weight_bytes = 1000,
				     .scratch_bytes = 10,
				     .fit = IG_FITS,
				     .traits = { .file_bytes = 990, .quantization = "Q8_0" },
				     .n_loads = 1,
				     .loaded_s = 0.5,
				     .idle_s = 2,
				     .file = "fake.gguf",
				     .arch = "fake" };

	pthread_mutex_lock(&e->lock);
	int rc = e->model_rc;
	pthread_mutex_unlock(&e->lock);
	for (size_t i = 0; i < 2 && i < cap; i++) {
		out[i] = s;
		snprintf(out[i].name, sizeof out[i].name, i ? "spare" : "fake");
		out[i].is_default = !i;
		out[i].pinned = i;
		out[i].state = IG_MODEL_READY;
	}
	if (cap && rc) {
		out[0].state = rc == -EINPROGRESS ? IG_MODEL_LOADING : IG_MODEL_FAILED;
		snprintf(out[0].error, sizeof out[0].error, "the file is damaged");
		out[0].n_context = 0;
	} else if (cap) {
		out[0].expires_s = 60;
	}
	return 2;
}

struct ig_grammar_cache *ig_engine_grammars(struct ig_engine *e) { return NULL; }

int ig_engine_submit(struct ig_engine *e, const struct ig_gen_spec *spec, uint64_t *gen,
		     struct ig_error *err)
{
	pthread_mutex_lock(&e->lock);
	int rc = e->draining ? -ESHUTDOWN : e->script.submit_rc;
	if (rc < 0) {
		pthread_mutex_unlock(&e->lock);
		return ig_fail(err, rc, "the fake engine refuses");
	}
	struct gen *g = e->gens;
	while (g->used)
		g++;
	*g = (struct gen){ .used = true,
			   .id = e->next_id++,
			   .script = e->script,
			   .stream = spec->stream,
			   .n_prompt = spec->n_prompt,
			   .priority = spec->priority };
	snprintf(g->name, sizeof g->name, "%s", spec->id);
	*gen = g->id;
	struct fake_seen *s = &e->seen;
	s->n_submitted++;
	snprintf(s->model, sizeof s->model, "%s", spec->model->name);
	s->n_prompt = spec->n_prompt;
	s->max_tokens = spec->sampling.max_tokens;
	s->top_k = spec->sampling.top_k;
	s->priority = spec->priority;
	s->deadline_ns = spec->deadline_ns;
	s->min_p = (float)spec->sampling.min_p;
	s->frequency_penalty = (float)spec->sampling.frequency_penalty;
	s->presence_penalty = (float)spec->sampling.presence_penalty;
	s->repetition_penalty = (float)spec->sampling.repetition_penalty;
	s->n_biases = spec->sampling.n_biases;
	if (spec->sampling.n_biases)
		s->bias = spec->sampling.biases[0];
	s->temperature = (float)spec->sampling.temperature;
	s->top_p = (float)spec->sampling.top_p;
	s->seed = spec->sampling.seed;
	s->n_top = spec->n_top;
	s->prefill_only = spec->prefill_only;
	s->wants_report = spec->wants_report;
	memcpy(s->compare_with, spec->compare_with, sizeof s->compare_with);
	s->ignore_end = spec->sampling.ignore_end;
	s->has_grammar = spec->grammar;
	memset(s->stops, 0, sizeof s->stops);
	for (int i = 0; i < 4 && spec->sampling.stops && spec->sampling.stops[i]; i++)
		snprintf(s->stops[i], sizeof s->stops[i], "%s", spec->sampling.stops[i]);
	int n = 0;
	for (; n < spec->n_prompt && n < (int)sizeof s->prompt - 1; n++)
		s->prompt[n] = (char)spec->prompt[n];
	s->prompt[n] = 0;
	pthread_cond_broadcast(&e->cond);
	pthread_mutex_unlock(&e->lock);
	return 0;
}

void ig_engine_cancel(struct ig_engine *e, uint64_t gen, const char *reason)
{
	pthread_mutex_lock(&e->lock);
	for (size_t i = 0; i < MAX_GENS; i++)
		if (e->gens[i].used && e->gens[i].id == gen && !e->gens[i].cancelled) {
			e->gens[i].cancelled = true;
			snprintf(e->gens[i].cancel_reason, 24, "%s", reason);
			snprintf(e->seen.cancel_reason, 24, "%s", reason);
			e->seen.n_cancelled++;
		}
	pthread_cond_broadcast(&e->cond);
	pthread_mutex_unlock(&e->lock);
}

void ig_engine_resume(struct ig_engine *e, uint64_t gen)
{
	pthread_mutex_lock(&e->lock);
	e->seen.n_resumed++;
	pthread_cond_broadcast(&e->cond);
	pthread_mutex_unlock(&e->lock);
}

void ig_engine_record_refused(struct ig_engine *e, const struct ig_ledger_row *row)
{
	pthread_mutex_lock(&e->lock);
	e->seen.n_refused++;
	e->seen.refused = *row;
	pthread_mutex_unlock(&e->lock);
}

void ig_engine_record_note(struct ig_engine *e, const char *id, const char *text)
{
	pthread_mutex_lock(&e->lock);
	e->seen.n_notes++;
	snprintf(e->seen.note, sizeof e->seen.note, "%s: %s", id, text);
	pthread_mutex_unlock(&e->lock);
}

size_t ig_engine_list(struct ig_engine *e, struct ig_gen_info *out, size_t cap)
{
	size_t n = 0;

	pthread_mutex_lock(&e->lock);
	for (size_t i = 0; i < MAX_GENS; i++)
		if (e->gens[i].used) {
			if (n < cap) {
				out[n] = (struct ig_gen_info){ .model = "fake",
							       .state = "decode",
							       .n_prompt = e->gens[i].n_prompt,
							       .priority = e->gens[i].priority };
				snprintf(out[n].id, sizeof out[n].id, "%s", e->gens[i].name);
			}
			n++;
		}
	pthread_mutex_unlock(&e->lock);
	return n;
}

static int queue_job(struct prep *p, int rc, void (*fn)(void *ctx), void *ctx)
{
	struct ig_engine *e = p->of;

	pthread_mutex_lock(&e->lock);
	if (!rc && p->head - p->tail == MAX_PREP)
		rc = -EAGAIN;
	if (!rc) {
		p->jobs[p->head % MAX_PREP].fn = fn;
		p->jobs[p->head++ % MAX_PREP].ctx = ctx;
		pthread_cond_broadcast(&e->cond);
	}
	pthread_mutex_unlock(&e->lock);
	return rc;
}

int ig_engine_parse(struct ig_engine *e, void (*fn)(void *ctx), void *ctx)
{
	return queue_job(&e->parse, e->script.parse_rc, fn, ctx);
}

int ig_engine_prep(struct ig_engine *e, const struct ig_job *job)
{
	return queue_job(&e->prep, e->script.prep_rc, job->fn, job->ctx);
}

int ig_engine_read(struct ig_engine *e, void (*fn)(void *ctx), void *ctx)
{
	return queue_job(&e->parse, 0, fn, ctx);
}

int ig_engine_pin_model(struct ig_engine *e, const char *name, bool pin, struct ig_error *err)
{
	return 0;
}

int ig_ledger_write_series(const char *path, const struct ig_ledger_query *q,
			   struct ig_json_writer *w, struct ig_error *err)
{
	return 0;
}

int ig_ledger_write_groups(const char *path, const struct ig_ledger_query *q,
			   struct ig_json_writer *w, struct ig_error *err)
{
	return 0;
}

const char *ig_ledger_by_name(enum ig_ledger_by by) { return by ? "other" : "model"; }

int ig_ledger_write_rows(const char *path, const struct ig_ledger_query *q,
			 struct ig_json_writer *w, struct ig_error *err)
{
	return 0;
}

int ig_ledger_write_csv(const char *path, const struct ig_ledger_query *q, struct ig_strbuf *out,
			struct ig_error *err)
{
	return 0;
}

void ig_engine_describe(struct ig_engine *e, struct ig_json_writer *w)
{
	ig_json_putf(w, "'fake': %-s", ig_json_bool(true));
}

/* ---- texts and ids: an id is a byte --------------------------------------------- */

static int add_ids(struct ig_ids *out, const char *text, size_t len, size_t max_ids)
{
	if (out->n + len > max_ids)
		return -E2BIG;
	int32_t *p = realloc(out->ids, (out->n + len + 1) * sizeof *p);
	if (!p)
		return -ENOMEM;
	out->ids = p;
	for (size_t i = 0; i < len; i++)
		p[out->n++] = (unsigned char)text[i];
	return 0;
}

static struct ig_chat_turns turns = { true, true, true, true };

void fake_engine_turns(const struct ig_chat_turns *t) { turns = *t; }

const struct ig_chat_turns *ig_chat_template_turns(const struct ig_chat_template *c,
						   const struct ig_chat_input *in)
{
	return &turns;
}

const char *ig_chat_template_source(const struct ig_chat_template *c, size_t i, size_t *len)
{
	*len = 0;
	return NULL;
}

int ig_chat_template_encode_json(const struct ig_chat_template *c, const struct ig_chat_input *in,
				 size_t max_ids, struct ig_ids *out, struct ig_error *err)
{
	struct ig_strbuf text = { 0 };
	size_t i;
	json_t *m;

	json_array_foreach((json_t *)in->messages, i, m)
	{
		char *calls = json_dumps(json_object_get(m, "tool_calls"), JSON_COMPACT);
		const char *content = json_string_value(json_object_get(m, "content"));
		ig_strbuf_printf(&text, "%s:%s%s;", json_string_value(json_object_get(m, "role")),
				 content ? content : "", calls ? calls : "");
		free(calls);
	}
	if (in->tools) {
		char *tools = json_dumps(in->tools, JSON_COMPACT);
		ig_strbuf_printf(&text, "tools:%s;", tools);
		free(tools);
	}
	if (in->continues && text.len)
		text.len--; /* the last turn is open */
	int rc = ig_strbuf_ok(&text) ? add_ids(out, text.data ? text.data : "", text.len, max_ids) :
				       -ENOMEM;
	ig_strbuf_finish(&text);
	return rc;
}

int ig_tokenizer_encode(const struct ig_tokenizer *t, const char *text, size_t len, bool special,
			size_t max_ids, struct ig_ids *out)
{
	return add_ids(out, text, len, max_ids);
}

const char *ig_tokenizer_token(const struct ig_tokenizer *t, int32_t id, size_t *len, bool *special)
{
	static char bytes[256];

	if (id < 0 || id > 255)
		return NULL;
	bytes[id] = (char)id;
	*len = 1;
	*special = false;
	return &bytes[id];
}

bool ig_tokenizer_adds_space(const struct ig_tokenizer *t) { return false; }

bool ig_tokenizer_trims(const struct ig_tokenizer *t) { return false; }

int32_t ig_tokenizer_n_vocab(const struct ig_tokenizer *t) { return 256; }

size_t ig_tokenizer_longest(const struct ig_tokenizer *t) { return 1; }

int32_t ig_tokenizer_bos(const struct ig_tokenizer *t) { return -1; }

bool ig_tokenizer_add_bos(const struct ig_tokenizer *t) { return false; }

const int32_t *ig_tokenizer_separators(const struct ig_tokenizer *t, unsigned *n)
{
	static const int32_t between[] = { '\n' };

	*n = 1;
	return between;
}

/* Query and document with a NUL before each, where there is room for them. */
int ig_rerank_template_encode(const struct ig_rerank_template *c, const char *query, size_t n_query,
			      const char *document, size_t n_document, size_t max_document,
			      size_t max_ids, struct ig_ids *out)
{
	int rc = n_query + 2 >= max_ids ? -E2BIG : add_ids(out, "", 1, SIZE_MAX);

	if (max_document && n_document > max_document)
		n_document = max_document;
	if (n_document > max_ids - n_query - 2)
		n_document = max_ids - n_query - 2;
	if (!rc)
		rc = add_ids(out, query, n_query, SIZE_MAX);
	if (!rc)
		rc = add_ids(out, "", 1, SIZE_MAX);
	return rc ? rc : add_ids(out, document, n_document, SIZE_MAX);
}

void ig_ids_finish(struct ig_ids *l)
{
	free(l->ids);
	*l = (struct ig_ids){ 0 };
}

/* ---- forms: the script says how the model writes; grammars are only counted -------- */

void fake_engine_style(const struct ig_completion_style *s) { style = *s; }

void ig_completion_style_prompted(struct ig_completion_style *s, const struct ig_tokenizer *t,
				  const int32_t *ids, size_t n)
{
}

const char *ig_completion_prefix(const struct ig_completion_style *s)
{
	return s->opens_reasoning ? "</think>" : NULL;
}

size_t ig_completion_shown_tokens(const struct ig_completion_style *s, const struct ig_tokenizer *t,
				  int32_t *ids, size_t cap)
{
	return 0;
}

struct ig_grammar {
	atomic_int n_refs;
};

static struct ig_grammar grammar;

int ig_completion_tool_grammar(const struct ig_completion_style *s, const struct ig_tokenizer *t,
			       struct ig_grammar_cache *cache, const struct json_t *tools,
			       const struct ig_tool_grammar *g, struct ig_grammar **out,
			       struct ig_error *err)
{
	*out = ig_grammar_ref(&grammar);
	return 0;
}

int ig_grammar_cache_get(struct ig_grammar_cache *c, const struct ig_tokenizer *t,
			 const struct ig_grammar_source *source, struct ig_grammar **out,
			 struct ig_error *err)
{
	const struct ig_grammar_part *p = source->choices[0].parts;

	if (p->kind == IG_GRAMMAR_REGEX && p->len && p->text[0] == '*')
		return ig_fail(err, -EINVAL, "nothing to repeat");
	*out = ig_grammar_ref(&grammar);
	return 0;
}

struct ig_grammar *ig_grammar_ref(struct ig_grammar *g)
{
	atomic_fetch_add(&g->n_refs, 1);
	return g;
}

void ig_grammar_unref(struct ig_grammar *g)
{
	if (g)
		atomic_fetch_sub(&g->n_refs, 1);
}

int fake_grammar_refs(void) { return atomic_load(&grammar.n_refs); }

/* ---- metrics: enough of them --------------------------------------------------- */

void ig_metrics_write(const struct ig_metrics *m, struct ig_strbuf *out)
{
	ig_strbuf_puts(out, "# fake\n");
}

void ig_metrics_set(struct ig_metrics *m, enum ig_gauge g, double v) {}

double ig_metrics_get(const struct ig_metrics *m, enum ig_gauge g) { return 0; }

void ig_metrics_add(struct ig_metrics *m, enum ig_counter c, uint64_t n) {}

void ig_metrics_ignored(struct ig_metrics *m, const char *name) {}

void ig_metrics_normalized(struct ig_metrics *m, const char *rule) {}
