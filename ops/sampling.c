/* sampling.c: see sampling.h. */
#include "ops/sampling.h"

uint64_t ig_sample_bits(uint64_t seed, uint64_t position)
{
	uint32_t c[4] = { (uint32_t)position, (uint32_t)(position >> 32), 0, 0 };
	uint32_t k[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };

	for (int round = 0; round < 10; round++) {
		uint64_t a = (uint64_t)0xd2511f53u * c[0], b = (uint64_t)0xcd9e8d57u * c[2];
		uint32_t n[4] = { (uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b,
				  (uint32_t)(a >> 32) ^ c[3] ^ k[1], (uint32_t)a };
		memcpy(c, n, sizeof c);
		k[0] += 0x9e3779b9u;
		k[1] += 0xbb67ae85u;
	}
	return (uint64_t)c[0] << 32 | c[1];
}
