/* kv_rates.c: FOLDER/rates: a line for each model, "NAME RESTORE COMPUTE", in nanoseconds a token. */
#include "store/kv_files_private.h"

#include "base/file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES 65536
#define MOST_NS 1e12

static void path_of(struct ig_strbuf *out, const char *folder)
{
	ig_strbuf_printf(out, "%s/rates", folder);
}

static bool parse(const char *line, struct ig_kv_name *model, struct ig_kv_rate *rate)
{
	char *end;

	if (!ig_kv_name_read(line, model))
		return false;
	line += 2 * IG_KV_NAME_BYTES;
	rate->restore_ns = strtod(line, &end);
	rate->compute_ns = strtod(end, &end);
	return *line == ' ' && (*end == '\n' || !*end) && rate->restore_ns >= 0 &&
	       rate->restore_ns < MOST_NS && rate->compute_ns >= 0 && rate->compute_ns < MOST_NS;
}

void kv_rates_load(struct kv_rates *r, const char *folder)
{
	struct ig_strbuf path = { 0 }, text = { 0 };
	struct ig_kv_name model;
	struct ig_kv_rate rate;

	path_of(&path, folder);
	if (ig_strbuf_ok(&path) && !ig_read_file(path.data, MAX_BYTES, &text, NULL) && text.data)
		for (const char *line = text.data; *line;
		     line += strcspn(line, "\n"), line += *line == '\n')
			if (parse(line, &model, &rate))
				kv_rates_set(r, &model, &rate);
	r->changed = false;
	ig_strbuf_finish(&path);
	ig_strbuf_finish(&text);
}

int kv_rates_save(const struct kv_rates *r, const char *folder, struct ig_error *err)
{
	struct ig_strbuf path = { 0 }, text = { 0 };
	int rc;

	path_of(&path, folder);
	for (uint32_t i = 0; i < r->n; i++) {
		char name[IG_KV_NAME_TEXT];
		ig_kv_name_write(&r->all[i].model, name);
		ig_strbuf_printf(&text, "%s %.0f %.0f\n", name, r->all[i].rate.restore_ns,
				 r->all[i].rate.compute_ns);
	}
	rc = ig_strbuf_ok(&path) && ig_strbuf_ok(&text) ?
		     ig_replace_file(path.data, text.data, text.len, err) :
		     ig_fail(err, -ENOMEM, "out of memory");
	ig_strbuf_finish(&path);
	ig_strbuf_finish(&text);
	return rc;
}

static uint32_t index_of(const struct kv_rates *r, const struct ig_kv_name *model)
{
	uint32_t i = 0;

	while (i < r->n && memcmp(&r->all[i].model, model, sizeof *model))
		i++;
	return i;
}

void kv_rates_get(const struct kv_rates *r, const struct ig_kv_name *model, struct ig_kv_rate *out)
{
	uint32_t i = index_of(r, model);

	*out = i < r->n ? r->all[i].rate : (struct ig_kv_rate){ 0 };
}

/* Whether a figure is far enough from what is known to be written again. */
static bool differs(double a, double b) { return fabs(a - b) > 0.2 * (a > b ? a : b); }

void kv_rates_set(struct kv_rates *r, const struct ig_kv_name *model, const struct ig_kv_rate *rate)
{
	uint32_t i = index_of(r, model);

	if (i == KV_MAX_RATES) { /* the one that is known for the longest goes */
		memmove(r->all, r->all + 1, (KV_MAX_RATES - 1) * sizeof r->all[0]);
		i = --r->n;
	}
	if (i == r->n) {
		r->n++;
		r->all[i].model = *model;
		r->all[i].rate = (struct ig_kv_rate){ 0 };
	}
	if (differs(r->all[i].rate.restore_ns, rate->restore_ns) ||
	    differs(r->all[i].rate.compute_ns, rate->compute_ns)) {
		r->all[i].rate = *rate;
		r->changed = true;
	}
}
