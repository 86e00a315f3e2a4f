/*
 * hf_rows.c: converts rows: experts in separate tensors, heads whose halves are interleaved,
 * heads of values in another order,
 * transposed matrices, rows of two matrices that alternate, vectors to float32, MXFP4's blocks,
 * MLX's quantised groups.  MLX's groups of 32, 64 or 128
 * values are v = scale q + bias, with codes of 2 to 6 or 8 bits from the lowest bits on.  Q4_1 and Q8_M
 * are the same for 32 values, so codes are copied, those of 2 and 3 bits as 4, of 5 and 6 as 8; a scale that
 * float16 can't represent is rounded, which is logged once.
 */
#include "model/formats/folder.h"

#include "base/log.h"
#include "model/quantize/quantize.h"

#include <math.h>
#include <string.h>

/* ---- MLX's groups ------------------------------------------------------------------------ */

/* The nearest half, ties to even; what is too large becomes the largest. */
static uint16_t half_of(float f)
{
	uint16_t sign = signbit(f) ? 0x8000 : 0, h = sign | (isnan(f) ? 0x7e00 : 0x7bff);

	ig_quantize_row(IG_F16, &f, 1, &h, NULL); /* h stays if f is too large or NaN */
	return h;
}

static float float_of(uint32_t dtype, uint16_t h)
{
	float f;

	ig_dtype_to_f32(dtype, &h, &f, 1);
	return f;
}

/* Value i of MLX's scales or biases as a half. */
static uint16_t scale_at(const struct ig_checkpoint *g, const struct ig_st_tensor *t, int64_t i)
{
	uint16_t h;
	float f;

	if (t->type == IG_ST_F32) {
		memcpy(&f, t->data + 4 * i, sizeof f);
	} else {
		memcpy(&h, t->data + 2 * i, sizeof h);
		if (t->type == IG_ST_F16)
			return h;
		f = float_of(IG_BF16, h);
	}
	h = half_of(f);
	if (float_of(IG_F16, h) != f && !atomic_exchange(&g->folder->warned, true))
		ig_log_warn("%s: tensor \"%s\": float16 can't represent %g, which became %g; "
			    "logged once",
			    g->label, t->name, (double)f, (double)float_of(IG_F16, h));
	return h;
}

static int64_t last_dim(const struct ig_st_tensor *t) { return t->dims[t->n_dims - 1]; }

/* The codes of 4 bits of 32 values: in the file a byte has two neighbours, in GGUF's blocks values j
 * and j + 16. */
static void make_codes(const uint8_t *q, uint8_t *dst)
{
	for (int j = 0; j < 16; j += 2) {
		dst[j] = (uint8_t)((q[j / 2] & 15) | q[j / 2 + 8] << 4);
		dst[j + 1] = (uint8_t)(q[j / 2] >> 4 | (q[j / 2 + 8] & 0xf0));
	}
}

/* 32 codes of `bits` bits, which begin with the first byte, a byte each. */
static void unpack_codes(const uint8_t *q, uint32_t bits, uint8_t *codes)
{
	for (uint32_t i = 0; i < 32; i++) {
		const uint32_t at = i * bits, byte = at / 8, shift = at % 8;
		uint32_t v = q[byte];
		if (shift + bits > 8)
			v |= (uint32_t)q[byte + 1] << 8;
		codes[i] = (uint8_t)(v >> shift & ((1u << bits) - 1));
	}
}

/* Block b of 32 values of the source's row, as MXFP4, Q4_1 or Q8_M. */
static void make_block(const struct ig_checkpoint *g, const struct ig_hf_made *m,
		       const struct ig_hf_part *p, int64_t row, int64_t b, int64_t n_cols,
		       uint8_t *dst)
{
	const int64_t n_groups = last_dim(p->scales), group = n_cols / n_groups;
	const int64_t at = row * n_groups + b * 32 / group;

	if (m->source == IG_MXFP4) { /* scale and codes are the file's */
		*dst = p->scales->data[at];
		make_codes(p->weight->data + (row * n_cols + b * 32) / 2, dst + 1);
		return;
	}
	const uint16_t d = scale_at(g, p->scales, at), bias = scale_at(g, p->biases, at);
	const uint32_t bits = (uint32_t)(last_dim(p->weight) * 32 / n_cols);
	const uint8_t *q = p->weight->data + (row * n_cols + b * 32) * bits / 8;
	memcpy(dst, &d, 2);
	memcpy(dst + 2, &bias, 2);
	dst += 4;
	if (bits == 4) {
		make_codes(q, dst);
		return;
	}
	if (bits == 8) {
		memcpy(dst, q, 32);
		return;
	}
	uint8_t codes[32];
	unpack_codes(q, bits, codes);
	if (m->source == IG_Q8_M) {
		memcpy(dst, codes, sizeof codes);
		return;
	}
	for (int j = 0; j < 16; j++)
		dst[j] = (uint8_t)(codes[j] | codes[j + 16] << 4);
}

/* ---- rows ------------------------------------------------------------------------------- */

/* A row whose columns are reordered. */
static void make_columns(const struct ig_checkpoint_tensor *t, const struct ig_hf_made *m,
			 const uint8_t *src, uint8_t *dst)
{
	const uint64_t from = ig_dtype_row_bytes(m->source, 1),
		       to = ig_dtype_row_bytes(t->dtype, 1);

	for (int64_t i = 0; i < t->n_cols; i++) {
		const uint8_t *v = src + (uint64_t)ig_hf_in_groups(i, &m->cols) * from;
		if (t->dtype == m->source)
			memcpy(dst + (uint64_t)i * to, v, (size_t)to);
		else
			ig_dtype_to_f32(m->source, v, (float *)(void *)(dst + (uint64_t)i * to), 1);
	}
}

/* Convert row `row` of a piece. */
static void make_row(const struct ig_checkpoint *g, const struct ig_checkpoint_tensor *t,
		     const struct ig_hf_made *m, const struct ig_hf_part *p, int64_t row,
		     uint8_t *dst)
{
	const uint64_t row_bytes = ig_dtype_row_bytes(m->source, t->n_cols);
	const uint8_t *src = p->weight->data + (uint64_t)row * row_bytes;

	if (p->scales && t->dtype == m->source) {
		for (int64_t b = 0; b < t->n_cols / 32; b++)
			make_block(g, m, p, row, ig_hf_in_groups(32 * b, &m->cols) / 32, t->n_cols,
				   dst + (uint64_t)b * ig_dtype_row_bytes(m->source, 32));
	} else if (p->scales) {
		for (int64_t b = 0; b < t->n_cols / 32; b++) {
			uint8_t block[64];
			float v[32];
			make_block(g, m, p, row, ig_hf_in_groups(32 * b, &m->cols) / 32, t->n_cols,
				   block);
			ig_dtype_to_f32(m->source, block, v, 32);
			memcpy(dst + b * 128, v, sizeof v);
		}
	} else if (m->cols.n) {
		make_columns(t, m, src, dst);
	} else if (t->dtype == m->source) {
		memcpy(dst, src, (size_t)row_bytes);
	} else {
		ig_dtype_to_f32(m->source, src, (float *)(void *)dst, t->n_cols);
	}
}

/* Values as float32, from value `first` of the piece on. */
static void make_values(const struct ig_checkpoint_tensor *t, const struct ig_hf_made *m,
			int64_t first, float *dst)
{
	const uint64_t bytes = ig_dtype_row_bytes(m->source, 1);
	const uint8_t *src = m->pieces[0].weight->data + (uint64_t)first * bytes;

	for (int64_t i = 0; i < t->n_cols; i++) {
		const int64_t at = ig_hf_in_groups(
			ig_hf_in_pairs(i, m->head_rows) * m->step + m->skip, &m->rows);
		ig_dtype_to_f32(m->source, src + (uint64_t)at * bytes, &dst[i], 1);
		dst[i] += m->add;
		if (m->negative_exp)
			dst[i] = (float)-exp((double)dst[i]);
	}
}

/* Columns of the file become rows; one pass over the file's rows of each matrix. */
static void make_transposed(const struct ig_checkpoint_tensor *t, const struct ig_hf_made *m,
			    int64_t first, int64_t n, uint8_t *dst)
{
	const uint64_t bytes = ig_dtype_row_bytes(t->dtype, 1);
	const uint64_t row_bytes = (uint64_t)t->n_cols * bytes;
	const uint64_t file_row = (uint64_t)(m->piece_rows * m->step) * bytes;

	while (n > 0) {
		const struct ig_hf_part *p = &m->pieces[first / m->piece_rows];
		const int64_t r0 = first % m->piece_rows,
			      count = n < m->piece_rows - r0 ? n : m->piece_rows - r0;
		const uint8_t *src = p->weight->data + (uint64_t)p->first_row * file_row +
				     (uint64_t)(r0 * m->step + m->skip) * bytes;
		for (int64_t c = 0; c < t->n_cols; c++, src += file_row)
			for (int64_t r = 0; r < count; r++)
				memcpy(dst + (uint64_t)r * row_bytes + (uint64_t)c * bytes,
				       src + (uint64_t)(r * m->step) * bytes, (size_t)bytes);
		dst += (uint64_t)count * row_bytes;
		first += count;
		n -= count;
	}
}

void ig_hf_make_rows(const struct ig_checkpoint *g, uint32_t number, int64_t first, int64_t n,
		     void *buf)
{
	const struct ig_checkpoint_tensor *t = &g->tensors[number];
	const struct ig_hf_made *m = &g->folder->made[number];
	const uint64_t row_bytes = ig_dtype_row_bytes(t->dtype, t->n_cols);
	uint8_t *dst = buf;

	if (m->transposed) {
		make_transposed(t, m, first, n, dst);
		return;
	}
	if (t->n_dims == 1 && !m->pieces[0].scales) {
		make_values(t, m, 0, buf);
		return;
	}
	for (int64_t i = first; i < first + n; i++, dst += row_bytes) {
		const struct ig_hf_part *p = &m->pieces[i / m->piece_rows];
		const int64_t row = ig_hf_in_sections(
			ig_hf_in_groups(ig_hf_in_pairs(i % m->piece_rows, m->head_rows), &m->rows),
			&m->sections);
		if (t->n_dims == 2 && m->step > 1)
			make_values(t, m, i * t->n_cols * m->step, (float *)(void *)dst);
		else
			make_row(g, t, m, p, p->first_row + row * m->step + m->skip, dst);
	}
}
