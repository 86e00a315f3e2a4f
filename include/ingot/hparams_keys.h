/*
 * hparams_keys.h: reading and checking one hyper-parameter or one list of them.  Tier 1 (module.h);
 * <ingot/hparams.h>, which has the same rules, includes it.
 */
#ifndef INGOT_HPARAMS_KEYS_H
#define INGOT_HPARAMS_KEYS_H

#include <errno.h>
#include <string.h>

#include <ingot/arch.h>

/* Where hyper-parameters are read from. */
struct ig_hparam_source {
	const struct ig_host *host;
	const struct ig_meta *meta;
	const char *arch; /* prefix of every key, up to its first dot */
	struct ig_error *err;
};

/* A key with the architecture's prefix. */
struct ig_hparam_key {
	char text[96];
};

/* Whether a layer has a tensor: 1, or 0; by a name of ig_layer_name. */
__attribute__((format(printf, 3, 0))) static inline uint32_t
ig_meta_layer_has(const struct ig_host *host, const struct ig_meta *meta, const char *name,
		  uint32_t layer)
{
	return host->meta_has_tensor(meta, ig_layer_name(name, layer).text) != 0;
}

static inline struct ig_hparam_key ig_hparam_key(const struct ig_hparam_source *s, const char *key)
{
	struct ig_hparam_key k;

	snprintf(k.text, sizeof k.text, "%s.%s", s->arch, key);
	return k;
}

/* A number in [min, max].  If the key is missing: *fallback, or -ENOENT if fallback is NULL. */
static inline int ig_hparam_u32(const struct ig_hparam_source *s, const char *key, uint32_t min,
				uint32_t max, const uint32_t *fallback, uint32_t *out)
{
	const struct ig_hparam_key k = ig_hparam_key(s, key);
	int rc = s->host->meta_u32(s->meta, k.text, out, s->err);

	if (rc == -ENOENT && fallback) {
		*out = *fallback;
		rc = 0;
	}
	if (rc)
		return rc;
	if (*out < min || *out > max)
		return ig_fail(s->err, -EINVAL, "%s is %u, not in %u … %u", k.text, *out, min, max);
	return 0;
}

static inline int ig_hparam_f32(const struct ig_hparam_source *s, const char *key, float min,
				float max, const float *fallback, float *out)
{
	const struct ig_hparam_key k = ig_hparam_key(s, key);
	int rc = s->host->meta_f32(s->meta, k.text, out, s->err);

	if (rc == -ENOENT && fallback) {
		*out = *fallback;
		rc = 0;
	}
	if (rc)
		return rc;
	if (!(*out >= min && *out <= max)) /* NaN too */
		return ig_fail(s->err, -EINVAL, "%s is %g, not in %g … %g", k.text, (double)*out,
			       (double)min, (double)max);
	return 0;
}

/* An array of one number per layer, or one boolean (0 or 1): out [n_layers].  It may also have those of
 * the blocks behind them that predict further tokens. */
static inline int ig_hparam_layers(const struct ig_hparam_source *s, const char *key,
				   uint32_t n_layers, uint32_t *out)
{
	const struct ig_hparam_key k = ig_hparam_key(s, key),
				   blocks = ig_hparam_key(s, "block_count");
	uint32_t n_blocks = n_layers;
	uint64_t n;
	int rc = s->host->meta_array_u32(s->meta, k.text, out, n_layers, &n, s->err);

	if (!rc && n > n_layers)
		rc = s->host->meta_u32(s->meta, blocks.text, &n_blocks, s->err);
	if (!rc && n != n_layers && n != n_blocks)
		return ig_fail(s->err, -EINVAL, "%s has %llu elements, the model %u layers", k.text,
			       (unsigned long long)n, n_layers);
	return rc;
}

/* One number for all layers, or an array of one per layer, each in [min, max]: out [n_layers]. */
static inline int ig_hparam_each_layer(const struct ig_hparam_source *s, const char *key,
				       uint32_t min, uint32_t max, uint32_t n_layers, uint32_t *out)
{
	uint32_t all = 0;
	int rc = ig_hparam_u32(s, key, min, max, NULL, &all);

	for (uint32_t i = 0; !rc && i < n_layers; i++)
		out[i] = all;
	if (rc != -EINVAL || all) /* a number out of range */
		return rc;
	rc = ig_hparam_layers(s, key, n_layers, out);
	for (uint32_t i = 0; !rc && i < n_layers; i++)
		if (out[i] < min || out[i] > max)
			rc = ig_fail(s->err, -EINVAL, "%s.%s is %u for layer %u, not in %u … %u",
				     s->arch, key, out[i], i, min, max);
	return rc;
}

/* Which layers have a sliding window: sliding [n_layers].  The pattern is a number n (each n-th layer
 * has none; 0: all have it) or a list of booleans; `every` where the file has no pattern.  Without a
 * window no layer has it. */
static inline int ig_hparam_sliding(const struct ig_hparam_source *s, uint32_t n_layers,
				    uint32_t every, uint32_t *window, uint32_t *sliding)
{
	const uint32_t no_window = 0;
	uint32_t period = every;
	int rc;

	memset(sliding, 0, n_layers * sizeof *sliding);
	rc = ig_hparam_u32(s, "attention.sliding_window", 0, 1u << 24, &no_window, window);
	if (rc || !*window)
		return rc;
	rc = ig_hparam_u32(s, "attention.sliding_window_pattern", 0, UINT32_MAX, &every, &period);
	for (uint32_t i = 0; !rc && i < n_layers; i++)
		sliding[i] = !period || (i + 1) % period;
	return rc != -EINVAL ?
		       rc :
		       ig_hparam_layers(s, "attention.sliding_window_pattern", n_layers, sliding);
}

/* A number that must be 0 or missing; otherwise the model with `what` is not supported. */
static inline int ig_hparam_refuse_u32(const struct ig_hparam_source *s, const char *key,
				       const char *what)
{
	const struct ig_hparam_key k = ig_hparam_key(s, key);
	uint32_t n;
	int rc = s->host->meta_u32(s->meta, k.text, &n, s->err);

	if (rc == -ENOENT)
		return 0;
	if (rc)
		return rc;
	return n ? ig_fail(s->err, -ENOTSUP, "%s is %u: %s with %s is not supported", k.text, n,
			   s->arch, what) :
		   0;
}

static inline int ig_hparam_refuse_f32(const struct ig_hparam_source *s, const char *key,
				       const char *what)
{
	const struct ig_hparam_key k = ig_hparam_key(s, key);
	float x;
	int rc = s->host->meta_f32(s->meta, k.text, &x, s->err);

	if (rc == -ENOENT)
		return 0;
	if (rc)
		return rc;
	return x != 0 ? ig_fail(s->err, -ENOTSUP, "%s is %g: %s with %s is not supported", k.text,
				(double)x, s->arch, what) :
			0;
}

/* A tensor that the file must not have. */
static inline int ig_hparam_refuse_tensor(const struct ig_hparam_source *s, const char *name,
					  const char *what)
{
	return s->host->meta_has_tensor(s->meta, name) ?
		       ig_fail(s->err, -ENOTSUP, "tensor %s: %s with %s is not supported", name,
			       s->arch, what) :
		       0;
}

#endif
