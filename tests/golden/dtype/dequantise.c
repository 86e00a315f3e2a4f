/*
 * dequantise.c: rows of one element type on standard input, each in the file's
 * format, to float32 on standard output, as the operations' references see them; dtypes.py
 * runs it.
 *
 *   dequantise TYPE VALUES: the type's number in GGUF, values in a row
 *   dequantise --types: the quantised types, a line each: number, name, bytes, values
 *   dequantise --quantise TYPE VALUES: the other way, rows of float32 to those of the type
 *
 * Each row goes through the tiles of the cpu kernels as well and must come back the same.
 */
#include "base/dtype.h"
#include "model/formats/checkpoint.h"
#include "model/quantize/quantize.h"
#include "ops/cpu/tile16.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int list_types(void)
{
	for (uint32_t t = 0; t < 64; t++) {
		const struct ig_quant_type *q = ig_quant_type(t);
		if (q)
			printf("%u %s %u %u\n", t, ig_dtype_name(t), q->bytes, q->values);
	}
	return 0;
}

/* As values: a zero may have either sign. */
static bool same(const float *a, const float *b, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		if (a[i] != b[i] && (a[i] == a[i] || b[i] == b[i]))
			return false;
	return true;
}

static int quantise(uint32_t dtype, int64_t n)
{
	uint64_t bytes = n <= 1 << 20 ? ig_dtype_row_bytes(dtype, n) : 0;
	float *row = malloc((size_t)n * sizeof *row);
	uint8_t *out = malloc(bytes ? bytes : 1);

	if (!bytes || !row || !out)
		return 2;
	while (fread(row, sizeof *row, (size_t)n, stdin) == (size_t)n)
		if (ig_quantize_row(dtype, row, n, out, NULL) ||
		    fwrite(out, bytes, 1, stdout) != 1) {
			fprintf(stderr, "dequantise: a row can't be %s\n", ig_dtype_name(dtype));
			return 1;
		}
	free(row);
	free(out);
	return fflush(stdout) ? 1 : 0;
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "--quantise") && strtoll(argv[3], NULL, 10) > 0)
		return quantise((uint32_t)strtoul(argv[2], NULL, 10), strtoll(argv[3], NULL, 10));
	if (argc == 2 && !strcmp(argv[1], "--types"))
		return list_types();
	uint32_t dtype = argc == 3 ? (uint32_t)strtoul(argv[1], NULL, 10) : IG_DTYPE_NONE;
	int64_t n = argc == 3 ? strtoll(argv[2], NULL, 10) : 0;
	uint64_t bytes = n <= 1 << 20 ? ig_dtype_row_bytes(dtype, n) : 0;
	uint64_t tile_bytes = bytes ? ig_tile16_tile_bytes(dtype, n) : 0;

	if (!bytes || !tile_bytes) {
		fprintf(stderr,
			"dequantise: --types, or a type and the number of a row's values\n");
		return 2;
	}
	uint8_t *row = malloc(bytes), *tile = aligned_alloc(64, tile_bytes);
	float *out = malloc((size_t)n * sizeof *out), *back = malloc((size_t)n * sizeof *back);
	if (!row || !tile || !out || !back)
		return 1;
	for (int64_t r = 0; fread(row, bytes, 1, stdin) == 1; r++) {
		ig_dtype_to_f32(dtype, row, out, n);
		ig_tile16_pack(dtype, row, 1, n, tile, 0, 1);
		ig_tile16_row_to_f32(dtype, tile, n, 0, back);
		if (!same(out, back, n)) {
			fprintf(stderr, "dequantise: row %lld is another one in a tile\n",
				(long long)r);
			return 1;
		}
		if (fwrite(out, sizeof *out, (size_t)n, stdout) != (size_t)n)
			return 1;
	}
	free(row);
	free(tile);
	free(out);
	free(back);
	return fflush(stdout) ? 1 : 0;
}
