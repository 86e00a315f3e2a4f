/*
 * json.c: a client's bytes to a JSON object, within bounds.
 *
 * jansson's reader does not survive the end of memory: it may leave out a character of a
 * string, or run past the end of one.  Its allocations go through here: the first that
 * fails ends the reading, and what was allocated for it since is freed.
 */
#include "daemon/protocol/core/json.h"

#include "daemon/protocol/core/json_text.h"

#include <setjmp.h>
#include <stdlib.h>

#define MAX_JSON_DEPTH 64
/* A parsed value costs about a hundred bytes: this bounds what a body of brackets
 * and commas can make of itself. */
#define MAX_JSON_VALUES 200000

/* What a reader has allocated, on its thread. */
static _Thread_local struct {
	bool active;
	jmp_buf out;
	void **blocks; /* [n], NULL where one was freed again */
	size_t n, cap;
} reading;
static _Thread_local bool no_memory; /* since the last object was read */

static bool remember(void *p)
{
	if (reading.n == reading.cap) {
		size_t cap = reading.cap ? reading.cap * 2 : 256;
		void **blocks = realloc(reading.blocks, cap * sizeof *blocks);
		if (!blocks)
			return false;
		reading.blocks = blocks;
		reading.cap = cap;
	}
	reading.blocks[reading.n++] = p;
	return true;
}

static void *allocate(size_t n)
{
	void *p = malloc(n);

	if (p && reading.active && !remember(p)) {
		free(p);
		p = NULL;
	}
	if (p)
		return p;
	no_memory = true;
	if (reading.active)
		longjmp(reading.out, 1);
	return NULL;
}

static void release(void *p)
{
	/* Mostly one of the last: names and texts on their way into an object. */
	for (size_t i = reading.n; p && reading.active && i--;)
		if (reading.blocks[i] == p) {
			reading.blocks[i] = NULL;
			if (i + 1 == reading.n)
				reading.n--;
			break;
		}
	free(p);
}

/* Before there is any value: each is freed by what has allocated it. */
__attribute__((constructor)) static void use_allocator(void)
{
	json_set_alloc_funcs(allocate, release);
}

static json_t *read_text(const char *text, size_t len, json_error_t *je)
{
	json_t *volatile v = NULL;

	no_memory = false;
	reading.n = 0;
	reading.active = true;
	if (!setjmp(reading.out))
		v = json_loadb(text, len, JSON_REJECT_DUPLICATES, je);
	reading.active = false;
	for (size_t i = 0; no_memory && i < reading.n; i++)
		free(reading.blocks[i]);
	free(reading.blocks);
	reading.blocks = NULL;
	reading.n = reading.cap = 0;
	return v;
}

/* Depth and number of values, before anything is allocated for them. */
static int check_size(const char *text, size_t len, struct ig_api_error *e)
{
	size_t depth = 0, n_values = 1;
	bool in_string = false;

	for (size_t i = 0; i < len; i++) {
		char c = text[i];
		if (in_string) {
			if (c == '\\')
				i++;
			else if (c == '"')
				in_string = false;
			continue;
		}
		switch (c) {
		case '"':
			in_string = true;
			break;
		case '[':
		case '{':
			n_values++;
			if (++depth > MAX_JSON_DEPTH)
				return ig_api_fail(e, 400, "invalid_json", NULL,
						   "The JSON is nested more than %d deep.",
						   MAX_JSON_DEPTH);
			break;
		case ']':
		case '}':
			if (depth)
				depth--;
			break;
		case ',':
			n_values++;
			break;
		}
		if (n_values > MAX_JSON_VALUES)
			return ig_api_fail(e, 400, "invalid_json", NULL,
					   "The JSON has more than %d values.", MAX_JSON_VALUES);
	}
	return 0;
}

int ig_json_load_object(const char *text, size_t len, json_t **out, struct ig_api_error *e)
{
	json_error_t je;

	*out = NULL;
	if (check_size(text, len, e) < 0)
		return -1;
	json_t *v = read_text(text, len, &je);
	if (no_memory)
		return ig_fail_memory(e);
	if (!v)
		return ig_api_fail(e, 400, "invalid_json", NULL,
				   "The body is not valid JSON: line %d, column %d: %s.", je.line,
				   je.column, je.text);
	if (!json_is_object(v)) {
		ig_api_fail(e, 400, "invalid_json", NULL, "Expected a JSON object, got %s.",
			    ig_json_type_name(v));
		json_decref(v);
		return -1;
	}
	*out = v;
	return 0;
}

int ig_json_end(json_t *root, int rc, struct ig_api_error *e)
{
	json_decref(root);
	return no_memory ? ig_fail_memory(e) : rc;
}
