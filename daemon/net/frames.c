/* frames.c: see frames.h. */
#include "daemon/net/frames.h"

#include <string.h>

static void unmask(struct ig_frames *f, char *p, size_t n)
{
	unsigned char keys[8];
	uint64_t wide, word;

	for (unsigned i = 0; i < 8; i++)
		keys[i] = f->key[(f->key_at + i) & 3];
	memcpy(&wide, keys, sizeof wide);
	f->key_at = (unsigned)(f->key_at + n) & 3;
	for (; n >= 8; n -= 8, p += 8) {
		memcpy(&word, p, sizeof word);
		word ^= wide;
		memcpy(p, &word, sizeof word);
	}
	for (size_t i = 0; i < n; i++)
		p[i] = (char)(p[i] ^ keys[i]);
}

static bool is_control(int opcode) { return opcode & 8; }

/* Bytes of the head, as far as it is known. */
static unsigned head_size(const struct ig_frames *f)
{
	if (f->n_head < 2)
		return 2;
	unsigned n = f->head[1] & 0x7f;
	return 6 + (n == 126 ? 2 : n == 127 ? 8 : 0);
}

/* The first two bytes; the rest of the head is as long as they say. */
static bool check_start(const struct ig_frames *f)
{
	int opcode = f->head[0] & 15;
	bool fin = f->head[0] & 0x80;

	if (f->head[0] & 0x70 || !(f->head[1] & 0x80))
		return false; /* no extension was agreed on, and a client masks */
	if (is_control(opcode))
		return opcode <= IG_WS_PONG && fin && (f->head[1] & 0x7f) <= IG_WS_MAX_CONTROL;
	return opcode <= IG_WS_BINARY && (opcode != 0) == !f->in_message;
}

static bool read_head(struct ig_frames *f)
{
	unsigned n = f->head[1] & 0x7f, width = n == 126 ? 2 : n == 127 ? 8 : 0;

	f->left = width ? 0 : n;
	for (unsigned i = 0; i < width; i++)
		f->left = f->left << 8 | f->head[2 + i];
	memcpy(f->key, f->head + 2 + width, sizeof f->key);
	f->key_at = 0;
	f->opcode = f->head[0] & 15;
	f->n_head = 0;
	f->n_control = 0;
	f->in_frame = true;
	if (!is_control(f->opcode)) {
		f->fin = f->head[0] & 0x80;
		if (f->opcode)
			f->binary = f->opcode == IG_WS_BINARY;
		f->in_message = true;
	}
	/* The shortest form that fits, and no sign. */
	return !width || (f->left >= (width == 2 ? 126u : 65536u) && !(f->left >> 63));
}

static enum ig_frames_rc end_frame(struct ig_frames *f)
{
	f->in_frame = false;
	if (is_control(f->opcode))
		return IG_FRAMES_CONTROL;
	if (!f->fin)
		return IG_FRAMES_MORE;
	f->in_message = false;
	return IG_FRAMES_END;
}

static enum ig_frames_rc feed_head(struct ig_frames *f, char **in, size_t *n)
{
	while (*n) {
		f->head[f->n_head++] = (unsigned char)*(*in)++;
		--*n;
		if (f->n_head == 2 && !check_start(f))
			return IG_FRAMES_BAD;
		if (f->n_head == head_size(f))
			return read_head(f) ? IG_FRAMES_BEGIN : IG_FRAMES_BAD;
	}
	return IG_FRAMES_MORE;
}

enum ig_frames_rc ig_frames_feed(struct ig_frames *f, char **in, size_t *n, char **data,
				 size_t *len)
{
	enum ig_frames_rc rc;

	for (;;) {
		if (!f->in_frame) {
			rc = feed_head(f, in, n);
			if (rc == IG_FRAMES_BEGIN && is_control(f->opcode))
				continue;
			return rc;
		}
		if (!f->left) {
			rc = end_frame(f);
			if (rc == IG_FRAMES_MORE)
				continue;
			return rc;
		}
		if (!*n)
			return IG_FRAMES_MORE;
		*data = *in;
		*len = f->left < *n ? (size_t)f->left : *n;
		unmask(f, *data, *len);
		*in += *len;
		*n -= *len;
		f->left -= *len;
		if (!is_control(f->opcode))
			return IG_FRAMES_DATA;
		memcpy(f->control + f->n_control, *data, *len);
		f->n_control += *len;
	}
}

size_t ig_frame_head(unsigned char out[IG_WS_MAX_HEAD], int opcode, size_t len)
{
	unsigned width = len < 126 ? 0 : len < 65536 ? 2 : 8;

	out[0] = (unsigned char)(0x80 | opcode);
	out[1] = (unsigned char)(!width ? len : width == 2 ? 126 : 127);
	for (unsigned i = 0; i < width; i++)
		out[2 + i] = (unsigned char)(len >> (8 * (width - 1 - i)));
	return 2 + width;
}

bool ig_ws_close_code(unsigned code)
{
	return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) ||
	       (code >= 3000 && code < 5000);
}
