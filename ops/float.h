/*
 * float.h: conversions between float32, float16 and bfloat16, bit-exact, and activation functions.
 * exp, silu and gelu can be vectorised by compilers.  Every instruction set gives the same bits,
 * because nothing here is fused or reassociated.
 */
#pragma once

#include <ingot/record.h>
#include <ingot/op.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

static inline float ig_f32_from_bits(uint32_t u)
{
	float f;
	memcpy(&f, &u, sizeof f);
	return f;
}

static inline uint32_t ig_bits_from_f32(float f)
{
	uint32_t u;
	memcpy(&u, &f, sizeof u);
	return u;
}

static inline float ig_f32_from_bf16(uint16_t h) { return ig_f32_from_bits((uint32_t)h << 16); }

/* To nearest, ties to even; NaN stays NaN. */
static inline uint16_t ig_bf16_from_f32(float f)
{
	uint32_t u = ig_bits_from_f32(f);
	if ((u & 0x7fffffffu) > 0x7f800000u)
		return (uint16_t)(u >> 16) | 0x40;
	return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

static inline float ig_f32_from_f16(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16;
	uint32_t mag = h & 0x7fff;
	/* Subnormals and normals alike: shift into place, then scale by 2^112. */
	float f = ig_f32_from_bits(mag << 13) * 0x1p112f;
	uint32_t u = mag >= 0x7c00 ? (mag << 13) | 0x7f800000u : ig_bits_from_f32(f);
	return ig_f32_from_bits(u | sign);
}

/* e^x within two units in the last place for |x| < 87; 0 below, infinity above.
 * x = n ln 2 + r in two steps (Cody and Waite), then a polynomial of degree 6. */
static inline float ig_expf(float x)
{
	float c = x > 88.7228f ? 88.7228f : x;
	c = c < -87.3365f ? -87.3365f : c;
	float n = c * 1.44269504088896341f + 12582912.0f; /* 1.5 * 2^23: rounds to nearest */
	uint32_t bits = ig_bits_from_f32(n);
	n -= 12582912.0f;
	float r = c - n * 0.693145751953125f;
	r -= n * 1.42860682030941723212e-6f;
	float p = 1.3981999507e-3f;
	p = p * r + 8.3334519073e-3f;
	p = p * r + 4.1665795894e-2f;
	p = p * r + 1.6666665459e-1f;
	p = p * r + 5.0000001201e-1f;
	p = p * r * r + r + 1.0f;
	/* 2^n in two factors, so that n = 128 and n = -126 are both in range. */
	int32_t i = (int32_t)(bits - 0x4b400000u);
	int32_t half = i >> 1;
	float y = p * ig_f32_from_bits((uint32_t)(half + 127) << 23) *
		  ig_f32_from_bits((uint32_t)(i - half + 127) << 23);
	y = x > 88.7228f ? INFINITY : y;
	y = x < -87.3365f ? 0.0f : y;
	return x != x ? x : y;
}

static inline float ig_siluf(float x) { return x / (1.0f + ig_expf(-x)); }

/* tanh(x) within 2e-7. */
static inline float ig_tanhf(float x)
{
	float e = ig_expf(-2.0f * fabsf(x));
	return copysignf((1.0f - e) / (1.0f + e), x);
}

/* The tanh approximation: x / (1 + e^(-2 u)), u = sqrt(2/pi) (x + 0.044715 x^3). */
static inline float ig_geluf(float x)
{
	float u = 0.797884560802865f * (x + 0.044715f * x * x * x);
	return x / (1.0f + ig_expf(-2.0f * u));
}

static inline float ig_relu2f(float x) { return x > 0 ? x * x : x != x ? x : 0; }

/* IG_ACT_CLAMPED of a gate and its up value.  NaN stays NaN. */
static inline float ig_clampedf(float g, float u, float limit)
{
	g = g > limit ? limit : g;
	u = u > limit ? limit : u;
	u = u < -limit ? -limit : u;
	return g / (1.0f + ig_expf(-1.702f * g)) * (u + 1.0f);
}

/* x times the normal distribution up to x.  Of |x| the tail is e^(-z^2) by a fit (Press et al.,
 * "Numerical Recipes", erfcc) with a relative error of 1.2e-7, z = |x| / sqrt(2). */
static inline float ig_gelu_erff(float x)
{
	float z = fabsf(x) * 0.70710678118654752f, t = 1.0f / (1.0f + 0.5f * z), p = 0.17087277f;
	p = p * t - 0.82215223f;
	p = p * t + 1.48851587f;
	p = p * t - 1.13520398f;
	p = p * t + 0.27886807f;
	p = p * t - 0.18628806f;
	p = p * t + 0.09678418f;
	p = p * t + 0.37409196f;
	p = p * t + 1.00002368f;
	p = p * t - 1.26551223f;
	float tail = 0.5f * t * ig_expf(p - z * z);
	return x * (x < 0.0f ? tail : 1.0f - tail);
}

static inline float ig_act(uint32_t act, float x)
{
	if (act == IG_ACT_RELU2)
		return ig_relu2f(x);
	return act == IG_ACT_SILU     ? ig_siluf(x) :
	       act == IG_ACT_GELU     ? ig_geluf(x) :
	       act == IG_ACT_GELU_ERF ? ig_gelu_erff(x) :
	       act == IG_ACT_TANH     ? ig_tanhf(x) :
					x;
}
