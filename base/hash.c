/* hash.c: the random key of hash.h. */
#include "base/hash.h"

#include "base/clock.h"
#include "base/random.h"

#include <unistd.h>

void ig_hash_key_init(struct ig_hash_key *key)
{
	if (ig_random_bytes(key->k, sizeof key->k) == 0)
		return;
	/* A kernel without random numbers: the clock and an address make a weak key, with which a
	 * hostile file can only be slow to open. */
	key->k[0] = (uint64_t)ig_now_ns() * 0x9e3779b97f4a7c15u;
	key->k[1] = (uint64_t)(uintptr_t)key * 0xd1342543de82ef95u ^ (uint64_t)getpid();
}
