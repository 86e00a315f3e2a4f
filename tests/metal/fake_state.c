/*
 * fake_state.c: reports, the machine that is played, and Apple's libdispatch.
 */
#include "tests/metal/fake_private.h"

#include <dispatch/dispatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_REPORTS 32
#define MAX_TEXT 800

#define PLAIN_MACHINE                                                                              \
	{                                                                                          \
		.family = 7,                                                                       \
		.architecture = "applegpu_g13g",                                                   \
		.macos = 15,                                                                       \
		.max_buffer_bytes = (uint64_t)1 << 36,                                             \
		.working_set_bytes = (uint64_t)1 << 36,                                            \
		.max_threads = 1024,                                                               \
	}
static const struct fake_machine plain = PLAIN_MACHINE;
struct fake_machine fake_machine = PLAIN_MACHINE;

/* For whole programs, whose tests can't write to fake_machine. */
__attribute__((constructor)) static void read_environment(void)
{
	const char *text = getenv("INGOT_FAKE_WORKING_SET");

	if (text)
		fake_machine.working_set_bytes = strtoull(text, NULL, 10);
	text = getenv("INGOT_FAKE_CHIP");
	if (text && !strcmp(text, "M5"))
		fake_play_m5();
}

void fake_play_m5(void)
{
	fake_machine.family = 10;
	fake_machine.architecture = "applegpu_g17s";
	fake_machine.macos = 26;
}
struct fake_counts fake_counts;

void fake_wire(int change)
{
	uint32_t n = FAKE_ADD(wired, change) + (uint32_t)change;

	if (getenv("INGOT_FAKE_WIRED"))
		fprintf(stderr, "the double: %u residency sets are wired\n", n);
}

/* Numbers that a test writes into the pipe INGOT_FAKE_PRESSURE come as events of memory pressure. */
static void *read_pressure(void *path)
{
	unsigned long events;

	for (;;) {
		FILE *f = fopen(path, "r"); /* waits for a writer */

		if (!f)
			return NULL;
		while (fscanf(f, "%lu", &events) == 1)
			fake_memory_pressure(events);
		fclose(f);
	}
}

static void start_reading_pressure(void)
{
	char *path = getenv("INGOT_FAKE_PRESSURE");
	pthread_t thread;

	if (path && !pthread_create(&thread, NULL, read_pressure, path))
		pthread_detach(thread);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char reports[MAX_REPORTS][MAX_TEXT];
static uint32_t n_reports, n_taken;

/* ---- reports ------------------------------------------------------------------------- */

void fake_report(const char *fmt, ...)
{
	char text[MAX_TEXT];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (!fake_machine.collect) {
		fprintf(stderr, "metal double: %s\n", text);
		abort();
	}
	pthread_mutex_lock(&lock);
	if (n_reports < MAX_REPORTS)
		memcpy(reports[n_reports++], text, sizeof text);
	pthread_mutex_unlock(&lock);
}

const char *fake_take_report(void)
{
	const char *text = NULL;

	pthread_mutex_lock(&lock);
	if (n_taken < n_reports)
		text = reports[n_taken++];
	pthread_mutex_unlock(&lock);
	return text;
}

bool fake_due(uint32_t *n)
{
	bool due;

	pthread_mutex_lock(&lock);
	due = *n && --*n == 0;
	pthread_mutex_unlock(&lock);
	return due;
}

void fake_reset(void)
{
	struct fake_counts *c = &fake_counts;

	pthread_mutex_lock(&lock);
	fake_machine = plain;
	fake_machine.collect = true;
	n_reports = n_taken = 0;
	c->committed = c->dispatches = c->barriers = c->binds = c->requests = 0;
	c->from_source = c->from_data = 0;
	pthread_mutex_unlock(&lock);
}

struct fake_counts fake_count(void)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return fake_counts;
}

/* What the Objective-C runtime and Foundation keep until the end is no leak of ours. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:libobjc.so\nleak:libgnustep-base.so\n";
}

/* ---- libdispatch ------------------------------------------------------------------------- */

/* A queue is a lock: what is sent to it runs on the sender's thread. */
struct fake_dispatch {
	enum { QUEUE, SOURCE, DATA } kind;
	struct fake_dispatch *queue;
	pthread_mutex_t lock;
	void *context;
	dispatch_function_t handler;
	bool runs;
	unsigned long mask, events;
	struct fake_dispatch *next; /* of sources */
	void *bytes;
	size_t n_bytes;
};

struct fake_dispatch_type {
	int unused;
};
const struct fake_dispatch_type fake_pressure_type;
static struct fake_dispatch *sources; /* under lock */

static struct fake_dispatch *make(int kind)
{
	struct fake_dispatch *o = calloc(1, sizeof *o);

	if (!o)
		return NULL;
	o->kind = kind;
	pthread_mutex_init(&o->lock, NULL);
	return o;
}

dispatch_queue_t dispatch_queue_create(const char *label, dispatch_queue_attr_t attr)
{
	return make(QUEUE);
}

dispatch_source_t dispatch_source_create(dispatch_source_type_t type, uintptr_t handle,
					 unsigned long mask, dispatch_queue_t queue)
{
	struct fake_dispatch *o = type == DISPATCH_SOURCE_TYPE_MEMORYPRESSURE ? make(SOURCE) : NULL;
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (!o)
		return NULL;
	pthread_once(&once, start_reading_pressure);
	o->queue = queue;
	o->mask = mask;
	pthread_mutex_lock(&lock);
	o->next = sources;
	sources = o;
	pthread_mutex_unlock(&lock);
	return o;
}

void dispatch_set_context(dispatch_object_t object, void *context) { object->context = context; }

void dispatch_source_set_event_handler_f(dispatch_source_t source, dispatch_function_t handler)
{
	source->handler = handler;
}

void dispatch_resume(dispatch_object_t object) { object->runs = true; }

void dispatch_source_cancel(dispatch_source_t source)
{
	pthread_mutex_lock(&lock);
	source->runs = false;
	for (struct fake_dispatch **p = &sources; *p; p = &(*p)->next) {
		if (*p == source) {
			*p = source->next;
			break;
		}
	}
	pthread_mutex_unlock(&lock);
}

unsigned long dispatch_source_get_data(dispatch_source_t source) { return source->events; }

void dispatch_sync_f(dispatch_queue_t queue, void *context, dispatch_function_t work)
{
	pthread_mutex_lock(&queue->lock);
	work(context);
	pthread_mutex_unlock(&queue->lock);
}

dispatch_data_t dispatch_data_create(const void *buffer, size_t size, dispatch_queue_t queue,
				     void *destructor)
{
	struct fake_dispatch *o = make(DATA);

	if (!o)
		return NULL;
	o->bytes = malloc(size ? size : 1);
	if (!o->bytes) {
		free(o);
		return NULL;
	}
	memcpy(o->bytes, buffer, size);
	o->n_bytes = size;
	return o;
}

void dispatch_release(dispatch_object_t object)
{
	if (object->kind == SOURCE && object->runs)
		fake_report("a dispatch source was released before it was cancelled");
	pthread_mutex_destroy(&object->lock);
	free(object->bytes);
	free(object);
}

void fake_memory_pressure(unsigned long events)
{
	pthread_mutex_lock(&lock);
	for (struct fake_dispatch *s = sources; s; s = s->next) {
		if (!s->runs || !(events & s->mask))
			continue;
		s->events = events & s->mask;
		dispatch_sync_f(s->queue, s->context, s->handler);
	}
	pthread_mutex_unlock(&lock);
}

const void *fake_data_bytes(dispatch_data_t data, size_t *n);
const void *fake_data_bytes(dispatch_data_t data, size_t *n)
{
	*n = data->n_bytes;
	return data->bytes;
}
