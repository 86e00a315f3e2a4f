/* fuzz_response.c: what a server may send to `ingot run`: events, one a line. */
#include <stdint.h>
#include <string.h>

#include "cli/net/response.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int on_text(void *ctx, const char *s, size_t len) { return 0; }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *p = (const char *)data, *end = p + size;
	struct ig_response a;
	struct ig_error err;
	char line[300];
	int64_t now = 1;

	ig_response_init(&a, on_text, NULL);
	while (p < end && !ig_response_ended(&a)) {
		const char *stop = memchr(p, '\n', (size_t)(end - p));
		size_t n = (size_t)((stop ? stop : end) - p);
		ig_response_event(&a, p, n, now += 1000000, &err);
		p += n + 1;
	}
	ig_response_summary(&a, line, sizeof line);
	return 0;
}
