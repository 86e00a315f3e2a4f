/*
 * fuzz_jinja.c: any bytes as a template, rendered within small bounds.  What comes out is
 * checked against who wrote it: a letter that only the client uses is the client's, and a
 * byte that is the client's was in what it sent (or is an escape of it).
 */
#include "model/jinja/jinja.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* U+10FFFD's last three bytes are in no template that is taken as it is: see below. */
#define MARK "\xf4\x8f\xbf\xbd"

static json_t *given;

static void make_given(void)
{
	given = json_loads("{\"role\": \"user\", \"content\": \"a " MARK "\\n<b> " MARK " 12\", "
			   "\"tool_calls\": [{\"function\": {\"name\": \"" MARK
			   "\", \"arguments\": "
			   "{\"x\": [1, 2.5, null, true, \"" MARK "\"]}}}]}",
			   0, NULL);
	json_t *list = json_pack("[O, {s:s, s:s}]", given, "role", "assistant", "content", "");
	if (!given || !list)
		abort();
	json_decref(given);
	given = list;
}

/* Whether a template could write the mark itself. */
static bool could_write_mark(const uint8_t *data, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (data[i] == 0xf4 || data[i] == '\\')
			return true;
	return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const roles[] = { "user", "assistant", NULL };
	const struct ig_jinja_limits limits = { .n_steps = 200000,
						.memory_bytes = 8 << 20,
						.output_bytes = 1 << 20 };
	struct ig_jinja_output out;
	struct ig_error err = { 0 };
	struct ig_jinja *j;
	int rc;

	if (!given)
		make_given();
	const struct ig_jinja_var vars[] = {
		{ "messages", given, false },
		{ "tools", given, false },
		{ "add_generation_prompt", json_true(), true },
	};
	const struct ig_jinja_input in = { .vars = vars,
					   .n_vars = 3,
					   .trusted_key = "role",
					   .trusted_words = roles,
					   .now_s = 1753791330 };
	rc = ig_jinja_compile((const char *)data, size, &limits, &j, &err);
	if (rc) {
		if (j || rc > 0 || !err.text[0] || err.code != rc)
			abort();
		return 0;
	}
	rc = ig_jinja_render(j, &in, &limits, &out, &err);
	if (rc) {
		if (out.text || out.client || rc > 0 || !err.text[0] || err.code != rc)
			abort();
	} else {
		if (out.text[out.len])
			abort();
		bool could = could_write_mark(data, size);
		for (size_t i = 0; i < out.len; i++)
			if (!could && (unsigned char)out.text[i] == 0xf4 &&
			    !(out.client && out.client[i]))
				abort();
		ig_jinja_output_finish(&out);
	}
	ig_jinja_destroy(j);
	return 0;
}
