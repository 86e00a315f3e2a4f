/* worker.c: see worker.h. */
#include "runtime/machines/worker.h"
#include "base/log.h"
#include "model/formats/checkpoint.h"
#include "runtime/modules/modules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MS 1000u

struct model {
	struct ig_checkpoint *file; /* NULL: there is none of this number */
	struct ig_plan *plan;
	struct ig_part *part;
};

struct worker {
	const struct ig_worker *own;
	struct ig_part_slabs slabs;
	struct model models[IG_WIRE_MAX_PROGRAMS];
};

/* The next message of a channel, which must be of this rank. */
static int next(struct worker *w, enum ig_channel channel, uint32_t from, struct ig_message **m,
		struct ig_error *err)
{
	int rc;

	do
		rc = ig_link_receive(w->own->link, channel, WAIT_MS, m, err);
	while (rc == -ETIMEDOUT);
	if (!rc && (*m)->from != from) {
		rc = ig_fail(err, -EPROTO, "a message of rank %u where one of rank %u should be",
			     (*m)->from, from);
		free(*m);
		*m = NULL;
	}
	return rc;
}

static int read_struct(const struct ig_message *m, void *to, size_t size, struct ig_error *err)
{
	if (m->n_bytes != size)
		return ig_fail(err, -EPROTO, "a command (%u) of %llu bytes in place of %zu",
			       m->kind, (unsigned long long)m->n_bytes, size);
	memcpy(to, m->data, size);
	return 0;
}

static int answer(struct worker *w, enum ig_channel channel, uint32_t kind, uint32_t program,
		  int code, const struct ig_program_memory *memory, const char *text,
		  struct ig_error *err)
{
	struct ig_wire_reply r = { .program = program, .code = code };
	struct ig_message *m = ig_message_create(kind, sizeof r);

	if (memory)
		r.memory = *memory;
	snprintf(r.text, sizeof r.text, "%.*s", (int)sizeof r.text - 1, text);
	if (m)
		memcpy(m->data, &r, sizeof r);
	return ig_link_send(w->own->link, 0, channel, m, err);
}

static void close_model(struct model *m)
{
	ig_part_destroy(m->part);
	ig_plan_destroy(m->plan);
	ig_checkpoint_close(m->file);
	*m = (struct model){ 0 };
}

static int open_model(struct worker *w, struct model *m, const struct ig_wire_lower *c,
		      struct ig_program_memory *memory, struct ig_error *err)
{
	const struct ig_worker *own = w->own;
	const char *path = NULL;
	int rc = own->find(own->ctx, c->name, &path, err);

	if (!rc)
		rc = ig_checkpoint_open(path, ig_modules_archs(own->modules), &m->file, err);
	if (!rc && ig_wire_model(m->file) != c->model)
		rc = ig_fail(err, -EINVAL, "%s is another file than rank 0's", path);
	if (!rc)
		rc = ig_plan_record(own->modules, m->file, &m->plan, err);
	if (!rc)
		rc = ig_part_lower(own->driver, m->plan, ig_link_n_ranks(own->link),
				   ig_link_rank(own->link), c->program, &c->limits, own->layout,
				   own->ctx, &m->part, memory, err);
	return rc;
}

static int lower(struct worker *w, const struct ig_message *m, struct ig_error *err)
{
	struct ig_program_memory memory = { 0 };
	struct ig_error why = { 0 };
	struct ig_wire_lower c = { 0 };
	int rc = read_struct(m, &c, sizeof c, err);

	if (rc)
		return rc;
	if (c.program >= IG_WIRE_MAX_PROGRAMS || w->models[c.program].file ||
	    !memchr(c.name, 0, sizeof c.name) || c.limits.max_rows > 1u << 20 ||
	    c.limits.max_seqs > 1u << 20 || c.limits.max_logit_rows > 1u << 20 ||
	    c.limits.max_context > INT32_MAX / 2 || c.limits.max_slabs > IG_PART_MAX_SLABS)
		return ig_fail(err, -EPROTO, "a model with wrong limits, or as program %u",
			       c.program);
	rc = open_model(w, &w->models[c.program], &c, &memory, &why);
	if (rc)
		close_model(&w->models[c.program]);
	else
		ig_log_info("model %s: this rank's layers have %.1f MiB of weights", c.name,
			    (double)memory.weight_bytes / (1 << 20));
	return answer(w, IG_CHANNEL_REPLIES, IG_WIRE_REPLY, c.program, rc, &memory, why.text, err);
}

/* A command of a program's number: load, destroy. */
static int of_program(struct worker *w, const struct ig_message *m, struct ig_error *err)
{
	struct ig_error why = { 0 };
	uint32_t program = 0;
	int rc = read_struct(m, &program, sizeof program, err);

	if (rc)
		return rc;
	if (program >= IG_WIRE_MAX_PROGRAMS ||
	    (m->kind == IG_WIRE_LOAD && !w->models[program].part))
		return ig_fail(err, -EPROTO, "there is no program %u", program);
	if (m->kind == IG_WIRE_DESTROY) {
		close_model(&w->models[program]);
		return 0;
	}
	rc = ig_part_load(w->models[program].part, &why);
	return answer(w, IG_CHANNEL_REPLIES, IG_WIRE_REPLY, program, rc, NULL, why.text, err);
}

static int change_slabs(struct worker *w, const struct ig_message *m, struct ig_error *err)
{
	struct ig_wire_slab_bytes s = { 0 };
	struct ig_wire_copy c = { 0 };
	int rc;

	if (m->kind == IG_WIRE_COPY) {
		rc = read_struct(m, &c, sizeof c, err);
		return rc ? rc : ig_part_copy(&w->slabs, &c, err);
	}
	if ((rc = read_struct(m, &s, sizeof s, err)))
		return rc;
	return m->kind == IG_WIRE_MAP ? ig_part_map(&w->slabs, s.slab, s.n_bytes, err) :
					ig_part_unmap(&w->slabs, s.slab, err);
}

static int step(struct worker *w, const struct ig_message *m, struct ig_error *err)
{
	const uint32_t rank = ig_link_rank(w->own->link), n = ig_link_n_ranks(w->own->link);
	const uint32_t program = ig_wire_program_of(m);
	struct ig_message *rows, *out = NULL;
	int rc;

	if (program >= IG_WIRE_MAX_PROGRAMS || !w->models[program].part)
		return ig_fail(err, -EPROTO, "there is no program %u", program);
	if ((rc = next(w, IG_CHANNEL_ROWS, rank - 1, &rows, err)))
		return rc;
	rc = ig_part_run(w->models[program].part, &w->slabs, m, rows, &out, err);
	free(rows);
	if (rc)
		return rc;
	return rank + 1 < n ? ig_link_send(w->own->link, rank + 1, IG_CHANNEL_ROWS, out, err) :
			      ig_link_send(w->own->link, 0, IG_CHANNEL_RESULTS, out, err);
}

static int obey(struct worker *w, const struct ig_message *m, struct ig_error *err)
{
	switch (m->kind) {
	case IG_WIRE_LOWER: return lower(w, m, err);
	case IG_WIRE_LOAD:
	case IG_WIRE_DESTROY: return of_program(w, m, err);
	case IG_WIRE_MAP:
	case IG_WIRE_UNMAP:
	case IG_WIRE_COPY: return change_slabs(w, m, err);
	case IG_WIRE_STEP: return step(w, m, err);
	default: return ig_fail(err, -EPROTO, "command %u is not known", m->kind);
	}
}

int ig_worker_run(const struct ig_worker *own, struct ig_error *err)
{
	struct worker *w = calloc(1, sizeof *w);
	struct ig_message *m = NULL;
	bool ended = false;
	int rc = 0;

	if (!w)
		return ig_fail(err, -ENOMEM, "no memory for a worker");
	w->own = own;
	w->slabs.driver = own->driver;
	while (!rc && !ended) {
		rc = next(w, IG_CHANNEL_COMMANDS, 0, &m, err);
		if (rc)
			break;
		ended = m->kind == IG_WIRE_END;
		if (!ended)
			rc = obey(w, m, err);
		/* Rank 0 can't go on without this rank, and says why. */
		if (rc && rc != -ENODEV)
			answer(w, IG_CHANNEL_RESULTS, IG_WIRE_FAILED, 0, rc, NULL, err->text, NULL);
		free(m);
	}
	for (uint32_t i = 0; i < IG_WIRE_MAX_PROGRAMS; i++)
		close_model(&w->models[i]);
	ig_part_unmap_all(&w->slabs);
	free(w);
	return rc;
}
