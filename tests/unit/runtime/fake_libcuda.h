/*
 * fake_libcuda.h: what a test sets and reads of the double of libcuda (fake_libcuda.c).
 *
 * The double is a shared object with the driver's names.  It keeps streams as queues that
 * run only when somebody waits, so that memory used again too early shows; it counts what
 * is alive, and any call can be made to fail.
 */
#pragma once

#include "runtime/cuda/libcuda.h"

#include <stdbool.h>

#define FAKE_MAX_GPUS 3
#define FAKE_MAX_RUNS 4096

/* A kernel as it ran: names are NAME_ARGBYTES_OPERANDS, so that the double knows how its
 * parameters are cut. */
struct fake_run {
	char name[64];
	unsigned grid[3], threads, shared;
	_Alignas(8) uint8_t args[256];
	CUdeviceptr address[18]; /* the step, then operands */
	CUtensorMap
		map[2]; /* of kernels whose names begin with `boxes`: their first two operands */
	unsigned cluster[3];
	unsigned n_after; /* nodes that it waits for */
	bool overlaps;	  /* it begins while that one runs */
};

struct fake_cuda {
	/* the machine */
	int n_gpus;
	int capability[FAKE_MAX_GPUS]; /* 90: 9.0 */
	int version;
	size_t memory_bytes;
	int kernel_threads; /* most threads of every kernel */
	bool reaches;	    /* each GPU the memory of all others */
	bool loses_writes;  /* fills with anything but zeros are lost */
	int clusters[3];    /* of 2, 4 and 8 threadgroups, at once */
	/* Calls of `fail` (a function's name) after the first `fail_after` return this; of
	 * "*", any function, only the next one does. */
	const char *fail;
	CUresult fail_with;
	int fail_after;
	bool refuse_overlaps; /* no graph in which a kernel overlaps is made ready */
	int n_not_ready;      /* queries that find an event not done yet */
	/* what the kernels do when they run */
	void (*kernel)(const struct fake_run *run);

	/* alive */
	int contexts, memory, pinned, streams, events, modules, graphs, execs;
	int n_launches; /* of functions that can fail */
	int n_failing;	/* calls of `fail` so far */
	int n_instantiated;
	int n_changed;	  /* grids of graphs that are ready */
	int n_refused;	  /* graphs */
	int n_children;	  /* graphs that became nodes */
	int n_enabled;	  /* accesses to another GPU's memory */
	int lost;	  /* a sticky error was given: everything fails with it */
	char misuse[160]; /* the first call that a real driver would not forgive */
	struct fake_run runs[FAKE_MAX_RUNS];
	int n_runs;
};
