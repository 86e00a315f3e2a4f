/*
 * convert.h: writes a checkpoint as a GGUF file with its matrices in another element type.  Keys
 * are copied, norms and biases are written in float32, and each matrix gets the type that the mix
 * selects.  Tensors in MXFP4 are copied, unless all matrices become plain floats.  Rows are read,
 * quantised and written in chunks, on several threads; the file does not depend on their number,
 * and memory, mapped pages too, not on the size of the model or of its largest tensor.
 */
#pragma once

#include "model/formats/checkpoint.h"
#include "model/quantize/imatrix.h"

#include <signal.h>

/* A choice of types: most matrices in one type, some in more precise ones. */
struct ig_mix {
	const char *name;   /* "Q4_K_M" */
	uint32_t file_type; /* general.file_type, GGUF's number */
	uint32_t dtype;	    /* of most matrices */
};

/* Ignores case; NULL if there is none with this name. */
const struct ig_mix *ig_mix_find(const char *name);
/* All of them; the last has no name. */
const struct ig_mix *ig_mixes(void);

/* Properties of the model that the choice of a tensor's type uses. */
struct ig_mix_model {
	uint32_t n_layers, n_experts; /* 0 experts: dense */
	uint32_t heads_per_kv;	      /* query heads for each KV head */
	bool has_output;	      /* false: token_embd is also the output head */
};
void ig_mix_model_init(struct ig_mix_model *m, const struct ig_checkpoint *in);
/* The type of a tensor in a mix, whose block size divides its rows. */
uint32_t ig_mix_choose(const struct ig_mix *mix, const struct ig_mix_model *m,
		       const struct ig_checkpoint_tensor *t);

struct ig_convert_options {
	const struct ig_mix *mix;
	const struct ig_imatrix *imatrix;  /* weights of the errors; may be NULL */
	bool replace;			   /* an existing file */
	uint32_t n_threads;		   /* 0: one for each available processor */
	const volatile sig_atomic_t *stop; /* not 0: stop with -EINTR; may be NULL */
	void (*progress)(void *ctx, uint64_t done,
			 uint64_t total); /* source's bytes; may be NULL */
	void *ctx;
};

struct ig_converted {	   /* a tensor */
	const char *name;  /* the checkpoint's */
	uint32_t from, to; /* enum ig_dtype */
	uint64_t bytes_before, bytes_after;
	uint64_t n_values;
	double squares, errors; /* sums over all values: value^2, (value - what was written)^2 */
	float worst;		/* largest difference */
	bool weighted;		/* by the importance matrix */
};

struct ig_convert_report {
	struct ig_converted *tensors;
	size_t n_tensors;
	uint64_t file_bytes;
	double seconds;
	bool no_tokenizer; /* the source has none, so the file has none */
};

/* Write `in` to the file at path.  0, or -errno with text (-EINVAL: the importance matrix is of
 * another model); then there is no file. */
int ig_convert(const struct ig_checkpoint *in, const char *path, const struct ig_convert_options *o,
	       struct ig_convert_report *report, struct ig_error *err);
void ig_convert_report_finish(struct ig_convert_report *r);
