/* fuzz_top.c: what a daemon may send to `ingot top`: events, one a line, after the window's size. */
#include <stdint.h>

#include "top_screen.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ig_top_data d = { 0 };
	struct ig_top_view v = { .data = &d,
				 .url = "http://x",
				 .trouble = "",
				 .message = "",
				 .screen = true,
				 .colours = true,
				 .unicode = true };
	struct ig_strbuf out = { 0 };
	struct ig_error err;

	if (size < 2)
		return 0;
	v.columns = data[0] + 1u;
	v.rows = data[1] + 1u;
	v.sort = data[1] % IG_TOP_N_SORTS;
	const char *p = (const char *)data + 2, *end = (const char *)data + size;
	while (p < end) {
		const char *stop = memchr(p, '\n', (size_t)(end - p));
		size_t n = (size_t)((stop ? stop : end) - p);
		ig_top_event(&d, p, n, &err);
		ig_top_tick(&d);
		ig_top_move(&v, 1);
		p += n + 1;
	}
	ig_top_draw(&v, &out);
	check_top(&v, ig_strbuf_text(&out));
	v.screen = false;
	ig_strbuf_clear(&out);
	ig_top_draw(&v, &out);
	check_top(&v, ig_strbuf_text(&out));
	ig_strbuf_finish(&out);
	ig_top_data_finish(&d);
	return 0;
}
