/*
 * fuzz_json.c: any bytes as JSON: read as jansson reads them, or refused as it does; what was
 * read is written and read back.
 */
#include "base/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct ig_json_limits limits = { .max_depth = 1000, .allow_nul = true };
	const size_t flags = JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES;
	struct ig_json_error why = { 0 };
	struct ig_strbuf b = { 0 };
	struct ig_json_writer w = { .out = &b, .spaced = size & 1 };
	json_t *v, *theirs, *back;
	int rc = ig_json_read((const char *)data, size, &limits, &v, &why);

	if (rc && memchr(data, 0, size)) /* jansson overlooks one behind a number */
		return 0;
	if (rc == -E2BIG)
		return 0;
	theirs = json_loadb((const char *)data, size, flags, NULL);
	if (!v != !theirs || !v != !!why.text[0] || why.byte > size)
		abort();
	if (!v)
		return 0;
	ig_json_put_value(&w, NULL, v);
	if (!json_equal(v, theirs) || ig_json_read(b.data, b.len, &limits, &back, &why) ||
	    !json_equal(v, back))
		abort();
	json_decref(v);
	json_decref(theirs);
	json_decref(back);
	ig_strbuf_finish(&b);
	return 0;
}
