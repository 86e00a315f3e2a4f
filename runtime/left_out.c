/*
 * left_out.c: what of a model's file no plan uses: parts that see or hear, blocks that predict tokens
 * further on, and tensors that the architecture does not name.  Whoever loads a model says so.
 */
#include "runtime/plan.h"
#include "model/formats/checkpoint.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const parts[IG_N_LEFT_OUT] = {
	[IG_LEFT_OUT_VISION] = "vision",
	[IG_LEFT_OUT_AUDIO] = "audio",
	[IG_LEFT_OUT_NEXT] = "the prediction of further tokens (MTP)",
};

/* Append to out, within its size. */
__attribute__((format(printf, 3, 4))) static void add(char *out, size_t size, const char *fmt, ...)
{
	const size_t len = strlen(out);
	va_list ap;

	va_start(ap, fmt);
	if (len < size)
		vsnprintf(out + len, size - len, fmt, ap);
	va_end(ap);
}

static bool is_used(const struct ig_plan *p, const struct ig_checkpoint_tensor *t)
{
	for (uint32_t i = 0; i < p->n_weights; i++)
		if (p->weights[i].tensor == t)
			return true;
	return false;
}

/* The blocks of the file without those that predict further tokens. */
static uint32_t count_layers(const struct ig_checkpoint *file)
{
	struct ig_error ignored = { 0 };
	uint32_t n_blocks = 0, n_next = 0;
	const char *arch;
	char key[96];
	size_t len;

	if (ig_checkpoint_str(file, "general.architecture", &arch, &len, &ignored))
		return 0;
	snprintf(key, sizeof key, "%.*s.block_count", (int)(len < 40 ? len : 40), arch);
	if (ig_checkpoint_u32(file, key, &n_blocks, &ignored))
		return 0;
	snprintf(key, sizeof key, "%.*s.nextn_predict_layers", (int)(len < 40 ? len : 40), arch);
	if (ig_checkpoint_u32(file, key, &n_next, &ignored))
		return n_blocks;
	return n_next < n_blocks ? n_blocks - n_next : 0;
}

void ig_plan_left_out(const struct ig_plan *p, char *out, size_t size)
{
	const uint32_t n_layers = count_layers(p->file);
	const struct ig_checkpoint_tensor *other = NULL;
	uint32_t n_other = 0, n[IG_N_LEFT_OUT];

	memcpy(n, ig_checkpoint_left_out(p->file), sizeof n);
	for (uint64_t i = 0; i < ig_checkpoint_n_tensors(p->file); i++) {
		const struct ig_checkpoint_tensor *t = ig_checkpoint_tensor(p->file, i);
		const int part = ig_left_out_part(t->name, n_layers);
		if (is_used(p, t))
			continue;
		if (part >= 0)
			n[part]++;
		else if (!n_other++)
			other = t;
	}
	*out = 0;
	for (uint32_t i = 0; i < IG_N_LEFT_OUT; i++)
		if (n[i])
			add(out, size, "%s%u tensor%s of %s", *out ? ", " : "", n[i],
			    n[i] == 1 ? "" : "s", parts[i]);
	if (n_other)
		add(out, size, "%s%u other%s (%.60s%s)", *out ? ", " : "", n_other,
		    n_other == 1 ? "" : "s", other->name, n_other > 1 ? " …" : "");
}
