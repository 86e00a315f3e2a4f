/* quantize_private.h: what the quantisers of blocks of 32 and of 256 values share: halves, and the
 * search for a scale (and a minimum) of up to 32 values. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define IG_HALF_MAX 65504.0f
/* Half of the smallest half: smaller values become zero. */
#define IG_HALF_NOTHING 0x1p-25f

uint16_t ig_half_from(float f); /* to nearest, ties to even; too large: infinity */
float ig_half_to(uint16_t h);
float ig_half_clamped(float f); /* the nearest finite half, as a float */
void ig_put_half(uint8_t *p, float f);

/* The values of codes before scaling: the integers from lo to hi, or the values of a table. */
struct ig_grid {
	float lo, hi;
	float gap_lo, gap_hi; /* from lo and hi to their neighbours */
	const int8_t *table;  /* [16]; NULL: integers */
	uint8_t cell[512];    /* of a table: the code nearest to v at floor(2 v) + 256 */
};

/* The integers from -n to n - 1; the tables of IQ4_NL and IQ4_XS, and of MXFP4. */
void ig_grid_init_signed(struct ig_grid *g, int n);
void ig_grid_init_iq4(struct ig_grid *g);
void ig_grid_init_fp4(struct ig_grid *g);
/* The code of a value on the grid. */
static inline uint8_t ig_grid_code(const struct ig_grid *g, float q)
{
	return g->table ? g->cell[(int)(2 * q) + 256] : (uint8_t)(int)(q - g->lo);
}

/* n values, 16 or 32, with a common scale. */
struct ig_quant_group {
	const float *x, *w; /* values and the weights of their squared errors, [n] */
	int n;
	float q[32]; /* values on the grid, set by ig_quant_group_error and ig_affine_error */
};

/* The scale with the least weighted error; may be negative; 0 for zeros. */
float ig_quant_group_scale(struct ig_quant_group *p, const struct ig_grid *g);
/* The weighted squared error with this scale; sets q. */
float ig_quant_group_error(struct ig_quant_group *p, const struct ig_grid *g, float d);

/* The same for x = d q - m, q from 0 to top.  free_min: m may have any sign, else it is not
 * negative. */
void ig_affine_scale(struct ig_quant_group *p, float top, bool free_min, float *d, float *m);
float ig_affine_error(struct ig_quant_group *p, float top, float d, float m);

/* Pack codes in the file's format; see base/dtype.c. */
void ig_pack_nibbles(uint8_t *dst, const uint8_t *code, int n_values, int n);

/* One block of 256 values with their weights, of dtype (Q2_K to Q6_K, IQ4_XS). */
void ig_quantize_super(uint32_t dtype, const float *x, const float *w, uint8_t *dst);
