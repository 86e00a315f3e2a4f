/*
 * hash.h: the hash of tables with strings from model files.  The file's author chooses the strings,
 * so the hash has a random key for each process: strings that collide cannot be chosen, and filling
 * a table takes linear time.  No result depends on the key.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct ig_hash_key {
	uint64_t k[2];
};

void ig_hash_key_init(struct ig_hash_key *key);

/* The exclusive or of both halves of the 128-bit product: each bit of a and b affects all bits of
 * the result. */
static inline uint64_t ig_hash_mix(uint64_t a, uint64_t b)
{
	__extension__ unsigned __int128 p = (unsigned __int128)a * b;

	return (uint64_t)p ^ (uint64_t)(p >> 64);
}

static inline uint64_t ig_hash_load(const unsigned char *p, size_t n)
{
	uint64_t v = 0;

	memcpy(&v, p, n);
	return v;
}

/* FNV-1a (Fowler, Noll, Vo), which has no key: of bytes that nobody gains by choosing, and where the number is
 * kept or compared.  Begin with IG_FNV1A. */
#define IG_FNV1A 0xcbf29ce484222325u
static inline uint64_t ig_fnv1a(uint64_t h, const void *data, size_t n)
{
	const unsigned char *p = data;

	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 0x100000001b3u;
	return h;
}

static inline uint64_t ig_hash_u64(const struct ig_hash_key *key, uint64_t v)
{
	return ig_hash_mix(v ^ key->k[0], key->k[1] | 1);
}

static inline uint64_t ig_hash_bytes(const struct ig_hash_key *key, const void *data, size_t n)
{
	const unsigned char *p = data;
	uint64_t h = key->k[0] ^ n;

	/* The last word has the remaining bytes, padded with zeros; the length in h makes "a" and
	 * "a\0" differ. */
	for (; n > 8; p += 8, n -= 8)
		h = ig_hash_mix(h ^ ig_hash_load(p, 8), key->k[1] | 1);
	if (n == 8)
		h ^= ig_hash_load(p, 8);
	else if (n >= 4)
		h ^= ig_hash_load(p, 4) | ig_hash_load(p + n - 4, 4) << 32;
	else if (n > 0)
		h ^= (uint64_t)p[0] | (uint64_t)p[n / 2] << 8 | (uint64_t)p[n - 1] << 16;
	h = ig_hash_mix(h, key->k[1] | 1);
	return ig_hash_mix(h, key->k[0] | 1);
}
