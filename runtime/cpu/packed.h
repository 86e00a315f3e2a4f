/*
 * packed.h: the copy of a program's packed weights in a file, which later loads map read-only instead of
 * packing: no weight is read from the model's file, no memory is zeroed, and the page cache holds one copy
 * for all restarts.
 *
 *   bytes  0  magic "INGOTPW1"
 *          8  uint64: bytes of the weights; uint64: bytes of a piece
 *         24  the name (struct ig_packed_file)
 *         40  uint64: 0, up to byte 64
 *         64  uint64 for each piece: its sum
 *          D  the weights as they are in memory; D is the first multiple of 64 KiB, so of any page
 *
 * all in the machine's order of bytes, which the name covers.  A file that is not exactly that, or of which a
 * piece has another sum, is a miss.  The sum finds damage; it is no protection from whoever may write there,
 * who is trusted as much as with the model's file.
 */
#pragma once

#include "runtime/cpu/pool.h"
#include "runtime/driver.h"

#include <stdint.h>

/* Of a file with so many bytes of weights. */
uint64_t ig_packed_file_bytes(uint64_t n_bytes);
/* The file's weights, mapped read-only (munmap with n_bytes) and verified by all threads of the pool, which
 * reads all of them; NULL with text: there is no such file (-ENOENT), or it is damaged (-EBADMSG), or
 * another error. */
void *ig_packed_map(const struct ig_packed_file *f, uint64_t n_bytes, struct ig_pool *pool,
		    struct ig_error *why);
/* Write the file, whole or not at all, and map it in place of the memory at `weights` (of ig_cpu_map), which
 * goes back to the system.  0, or -errno with text: the memory is as before. */
int ig_packed_write(const struct ig_packed_file *f, void *weights, uint64_t n_bytes,
		    struct ig_pool *pool, struct ig_error *why);
/* A sum of n bytes, a multiple of 64: eight sums over every eighth word, then one of these. */
uint64_t ig_packed_sum(const void *data, uint64_t n);
