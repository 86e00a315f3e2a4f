/*
 * fake_run.c: an encoder's commands, and running them on the software device.
 */
#include "tests/metal/fake_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t n_dispatches, n_encoders; /* one queue's thread at a time: run_lock */
static pthread_mutex_t run_lock = PTHREAD_MUTEX_INITIALIZER;

struct fake_pass *fake_pass_create(void)
{
	struct fake_pass *p = calloc(1, sizeof *p);

	if (p)
		p->last = &p->first;
	return p;
}

void fake_pass_destroy(struct fake_pass *p)
{
	for (struct fake_command *c = p->first, *next; c; c = next) {
		next = c->next;
		for (uint32_t i = 0; i < c->n_bindings; i++) {
			if (c->binding[i].memory)
				fake_memory_unref(c->binding[i].memory);
			free(c->binding[i].bytes);
		}
		free(c);
	}
	for (uint32_t i = 0; i < p->n_used; i++)
		fake_memory_unref(p->used[i]);
	free(p->used);
	free(p);
}

static bool writes(const struct fake_command *c, uint32_t index)
{
	if (c->kind == FAKE_FILL)
		return true;
	for (uint32_t i = 0; i < c->kernel->n_arguments; i++)
		if (c->kernel->arguments[i].kind != SOFT_THREADGROUP &&
		    c->kernel->arguments[i].index == index)
			return c->kernel->arguments[i].access & SOFT_WRITE;
	return false; /* bound by an earlier dispatch, of no use to this one */
}

void fake_pass_under_way(struct fake_pass *p, struct fake_timeline *t, int by)
{
	for (struct fake_command *c = p->first; c; c = c->next)
		for (uint32_t i = 0; i < c->n_bindings; i++)
			if (c->binding[i].memory)
				fake_memory_use(c->binding[i].memory, t, writes(c, i), by);
}

static void pass_resident(struct fake_pass *p, int by)
{
	for (struct fake_command *c = p->first; c; c = c->next)
		for (uint32_t i = 0; i < c->n_bindings; i++)
			if (c->binding[i].memory)
				fake_memory_resident(c->binding[i].memory, by);
	for (uint32_t i = 0; i < p->n_used; i++)
		fake_memory_resident(p->used[i], by);
}

static int run_dispatch(const struct fake_command *c)
{
	struct soft_dispatch d = {
		.kernel = c->kernel,
		.groups = { c->groups[0], c->groups[1], c->groups[2] },
		.threads = { c->threads, 1, 1 },
		.threadgroup_bytes = c->threadgroup_bytes,
	};
	struct soft_report report;

	for (uint32_t i = 0; i < c->n_bindings; i++) {
		const struct fake_binding *b = &c->binding[i];
		if (b->bytes) {
			d.buffer[i] = (struct soft_binding){ b->bytes, b->n_bytes };
		} else if (b->memory) {
			if (b->memory->freed)
				fake_report(
					"kernel %s: buffer %u at index %u was freed before the command "
					"buffer ran",
					c->kernel->name, b->memory->serial, i);
			d.buffer[i] = (struct soft_binding){ b->memory->gpu + b->offset,
							     b->memory->n_bytes - b->offset };
		}
	}
	int rc = soft_run(&d, &report);
	if (rc)
		fake_report("%s", report.text);
	if (!rc && fake_machine.wrong_kernel && !strcmp(c->kernel->name, fake_machine.wrong_kernel))
		*(uint32_t *)d.buffer[c->n_bindings - 1].base ^= 1u << fake_machine.wrong_bit;
	return rc ? -EFAULT : 0;
}

/* Checked shaders tell every access, which takes one worker to be sorted out. */
static int start_workers(void)
{
	static bool started;
	const struct soft_shader *s;
	uint32_t n = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);

	if (started)
		return 0;
	for (uint32_t i = 0; (s = soft_shader(i)) != NULL; i++)
		if (s->checked)
			n = 1;
	started = true;
	return soft_start(n < 8 ? n : 8);
}

int fake_pass_run(struct fake_pass *p)
{
	int rc;

	pthread_mutex_lock(&run_lock);
	rc = start_workers();
	fake_now = (struct fake_now){ .encoder = ++n_encoders, .phase = n_dispatches + 1 };
	for (uint32_t i = 0; i < p->n_waits; i++)
		if (fake_now.ordered < p->waits[i]->updated)
			fake_now.ordered = p->waits[i]->updated;
	pass_resident(p, 1);
	for (struct fake_command *c = p->first; c && !rc; c = c->next) {
		switch (c->kind) {
		case FAKE_BARRIER: fake_now.phase = n_dispatches + 1; break;
		case FAKE_FILL:
			memset(c->binding[0].memory->gpu + c->fill_offset, c->fill, c->fill_bytes);
			break;
		case FAKE_DISPATCH:
			fake_now.dispatch = ++n_dispatches;
			fake_now.kernel = c->kernel->name;
			fake_now.reported = false;
			rc = run_dispatch(c);
			FAKE_ADD(dispatches, 1);
			break;
		}
	}
	pass_resident(p, -1);
	if (!rc)
		for (uint32_t i = 0; i < p->n_updates; i++)
			p->updates[i]->updated = fake_now.encoder;
	fake_now = (struct fake_now){ 0 };
	pthread_mutex_unlock(&run_lock);
	return rc;
}
