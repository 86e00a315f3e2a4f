/* fuzz_request_head.c: the head of a request from any bytes: found at once and byte by byte it is the
 * same; its parts lie within it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/net/request_head.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static enum ig_head_rc search(const char *text, size_t n, size_t piece, size_t *scanned)
{
	enum ig_head_rc rc = IG_HEAD_MORE;

	*scanned = 0;
	for (size_t now = 0; now < n && rc == IG_HEAD_MORE;) {
		now = n - now < piece ? n : now + piece;
		rc = ig_head_find(text, now, 500, scanned);
	}
	return rc;
}

static void use(struct ig_head *h, const char *text, size_t n)
{
	char *path, *query;
	size_t count;

	if (h->method < text || h->target < h->method || h->version < h->target ||
	    h->fields < h->version || h->fields > text + n)
		abort();
	for (const char *p = h->fields; *p; p += strlen(p) + 1, p += strlen(p) + 1)
		if (p + strlen(p) >= text + n || !ig_head_field(h, p, &count) || !count)
			abort();
	ig_head_has_token(h, "connection", "close");
	ig_head_wants_html(h);
	const char *found = ig_head_find_token(h, "sec-websocket-protocol", "ingot-key.", &count);
	if (found && (!count || strlen(found) < count))
		abort();
	if (ig_head_target(h->target, &path, &query) && path[0] != '/')
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), out[20];
	size_t n = 0, k = 0;
	struct ig_head h;

	if (!text)
		return 0;
	memcpy(text, data, size);
	enum ig_head_rc rc = search(text, size, size ? size : 1, &n);
	if (search(text, size, 1, &k) != rc || (rc == IG_HEAD_WHOLE && k != n))
		abort();
	ig_head_peek(text, size, "x-request-id", out, sizeof out);
	if (rc != IG_HEAD_WHOLE)
		n = size;
	if (ig_head_parse(text, n, &h) == IG_HEAD_WHOLE)
		use(&h, text, n);
	free(text);
	return 0;
}
