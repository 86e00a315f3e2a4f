/* traits.c: what an opened file shows about its model, for lists: its size, its quantization, what
 * its chat template supports. */
#include "daemon/engine/instance_private.h"

#include "model/formats/checkpoint.h"

#include <stdio.h>
#include <string.h>

/* The names of GGUF's general.file_type; NULL: one that is not in use any more. */
static const char *file_type_name(uint32_t type)
{
	static const char *const names[] = {
		"F32",	  "F16",    "Q4_0",    "Q4_1",	 NULL,	   NULL,      NULL,
		"Q8_0",	  "Q5_0",   "Q5_1",    "Q2_K",	 "Q3_K_S", "Q3_K_M",  "Q3_K_L",
		"Q4_K_S", "Q4_K_M", "Q5_K_S",  "Q5_K_M", "Q6_K",   "IQ2_XXS", "IQ2_XS",
		"Q2_K_S", "IQ3_XS", "IQ3_XXS", "IQ1_S",	 "IQ4_NL", "IQ3_S",   "IQ3_M",
		"IQ2_S",  "IQ2_M",  "IQ4_XS",  "IQ1_M",	 "BF16",
	};

	return type < sizeof names / sizeof names[0] ? names[type] : NULL;
}

/* The element type that most of the file's bytes have. */
static uint32_t main_type(const struct ig_checkpoint *file)
{
	uint64_t bytes[65] = { 0 }; /* the last: of IG_Q8_M, which is not GGUF's */
	uint32_t best = 0;

	for (uint64_t i = 0; i < ig_checkpoint_n_tensors(file); i++) {
		const struct ig_checkpoint_tensor *t = ig_checkpoint_tensor(file, i);
		bytes[t->dtype < 64 ? t->dtype : 64] += t->n_bytes;
	}
	for (uint32_t type = 0; type < 65; type++)
		if (bytes[type] > bytes[best])
			best = type;
	return best < 64 ? best : IG_Q8_M;
}

static void name_quantization(const struct ig_checkpoint *file, char *out, size_t cap)
{
	uint32_t type;
	const char *name = ig_checkpoint_u32(file, "general.file_type", &type, NULL) ?
				   NULL :
				   file_type_name(type);

	snprintf(out, cap, "%s", name ? name : ig_dtype_name(main_type(file)));
}

void ig_model_traits_of(const struct ig_model *m, struct ig_model_traits *out)
{
	const struct ig_file_id *id = &m->file_id;

	*out = (struct ig_model_traits){ .file_bytes = ig_checkpoint_file_bytes(m->file) };
	for (uint64_t i = 0; i < ig_checkpoint_n_tensors(m->file); i++) {
		const struct ig_checkpoint_tensor *t = ig_checkpoint_tensor(m->file, i);
		out->n_params += (uint64_t)t->n_rows * (uint64_t)t->n_cols;
	}
	name_quantization(m->file, out->quantization, sizeof out->quantization);
	snprintf(out->format, sizeof out->format, "%s",
		 strncmp(ig_checkpoint_format(m->file), "GGUF", 4) ? "safetensors" : "gguf");
	const uint64_t parts[] = { id->dev, id->ino, id->size, (uint64_t)id->mtime_ns, id->files };
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
		out->version = (out->version ^ parts[i]) * 0x9e3779b97f4a7c15ull;
	out->tools = m->shown.style.calls != IG_TOOL_CALLS_NONE;
	out->thinking = m->shown.style.reasoning;
	out->embeds = m->plan->info.result == IG_RESULT_EMBEDDING;
	out->ranks = m->plan->info.result == IG_RESULT_SCORE;
	out->n_dimensions = out->embeds ? m->n_logits : 0;
}
