/*
 * json_tokens.c: the tokens of a tokenizer.json: the entries of its vocabulary and its added tokens
 * by their ids, and which of them are searched for in a text as special tokens.
 */
#include "base/array.h"
#include "base/strbuf.h"
#include "model/tokenizer/json_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ADDED 65536

/* ---- tokens ----------------------------------------------------------------------------- */

static int add_entry(struct reading *r, const char *text, size_t len, int64_t id, double score)
{
	if (id < 0 || id >= IG_MAX_VOCAB || len > UINT32_MAX)
		return ig_fail(r->err, -EINVAL, "%s: the token '%.*s' has the id %" PRId64, r->name,
			       len < 40 ? (int)len : 40, text, id);
	if (!ig_array_grow(r->entries, &r->cap_entries, r->n_entries))
		return -ENOMEM;
	r->entries[r->n_entries++] = (struct entry){ text, (uint32_t)len, (int32_t)id, score };
	return 0;
}

int ig_json_tokens_take(void *ctx, struct ig_json_scan *s, const char *key, size_t len)
{
	int64_t id;
	int rc = ig_json_scan_integer(s, &id);

	return rc ? rc : add_entry(ctx, key, len, id, 0);
}

static int take_part_of_piece(void *ctx, struct ig_json_scan *s, uint64_t i)
{
	struct pair *p = ctx;

	p->n = i + 1;
	return i == 0 ? ig_json_scan_string(s, &p->text[0], &p->len[0]) :
	       i == 1 ? ig_json_scan_number(s, &p->score) :
			ig_json_scan_bad(s, "more than two values");
}

int ig_json_tokens_take_piece(void *ctx, struct ig_json_scan *s, uint64_t i)
{
	struct pair p = { .r = ctx };
	int rc = ig_json_scan_array(s, take_part_of_piece, &p);

	if (!rc && p.n != 2)
		rc = ig_json_scan_bad(s, "not a piece and its score");
	return rc ? rc : add_entry(ctx, p.text[0], p.len[0], (int64_t)i, p.score);
}

int ig_json_tokens_read_added(struct reading *r)
{
	static const struct {
		const char *name;
		uint8_t flag;
	} strips[] = { { "lstrip", IG_SPECIAL_LSTRIP }, { "rstrip", IG_SPECIAL_RSTRIP } };
	const json_t *one;
	size_t i;

	if (!r->added_json || json_is_null(r->added_json))
		return 0;
	if (!json_is_array(r->added_json) || json_array_size(r->added_json) > MAX_ADDED)
		return fail(r, -EINVAL, "added_tokens is not a list, or is too long");
	r->added = calloc(json_array_size(r->added_json) + 1, sizeof *r->added);
	if (!r->added)
		return -ENOMEM;
	json_array_foreach(r->added_json, i, one)
	{
		struct added *a = &r->added[r->n_added];
		const json_t *content = json_object_get(one, "content");
		const json_t *id = json_object_get(one, "id");
		json_int_t v = json_integer_value(id);

		if (!json_is_string(content) || !json_is_integer(id) || v < 0 ||
		    v >= IG_MAX_VOCAB || json_string_length(content) > UINT32_MAX)
			return ig_fail(r->err, -EINVAL,
				       "%s: added token %zu has no valid content or id", r->name,
				       i);
		if (json_is_true(json_object_get(one, "single_word")))
			return ig_fail(r->err, -ENOTSUP,
				       "%s: the added token '%.60s' is a single_word", r->name,
				       json_string_value(content));
		a->text.s = json_string_value(content);
		a->text.len = (uint32_t)json_string_length(content);
		a->id = (int32_t)v;
		a->special = json_is_true(json_object_get(one, "special")) ||
			     ig_is_turn_marker(a->text.s, a->text.len);
		a->normalized = json_is_true(json_object_get(one, "normalized"));
		for (size_t k = 0; k < 2; k++)
			if (json_is_true(json_object_get(one, strips[k].name)))
				a->flags |= strips[k].flag;
		r->n_added++;
	}
	return 0;
}

static int same_id_twice(struct reading *r, int32_t id)
{
	return ig_fail(r->err, -EINVAL, "%s: two tokens have the id %d", r->name, (int)id);
}

int ig_json_tokens_place(struct reading *r, bool pieces)
{
	bool fallback = flag(r, "byte_fallback");
	const char *unknown = json_string_value(json_object_get(r->options, "unk_token"));
	size_t n_unknown = unknown ? strlen(unknown) : 0, n = 0;

	for (size_t i = 0; i < r->n_entries; i++)
		n = (size_t)r->entries[i].id >= n ? (size_t)r->entries[i].id + 1 : n;
	for (size_t i = 0; i < r->n_added; i++)
		n = (size_t)r->added[i].id >= n ? (size_t)r->added[i].id + 1 : n;
	if (n == 0 || n - r->n_entries > IG_MAX_HOLES + r->n_added)
		return ig_fail(r->err, -EINVAL, "%s: %zu tokens with ids up to %zu", r->name,
			       r->n_entries, n);
	if (r->b->pad_to > n && r->b->pad_to - n <= IG_MAX_HOLES)
		n = (size_t)r->b->pad_to;
	r->texts = calloc(n, sizeof *r->texts);
	if (!r->texts)
		return -ENOMEM;
	r->n_ids = n;
	for (size_t i = 0; i < r->n_entries; i++) {
		const struct entry *e = &r->entries[i];
		struct text *x = &r->texts[e->id];
		if (x->type)
			return same_id_twice(r, e->id);
		*x = (struct text){ e->text, e->len, IG_TYPE_NORMAL };
		if (pieces && fallback && ig_byte_of_name(e->text, e->len) >= 0)
			x->type = IG_TYPE_BYTE;
		if (pieces &&
		    ((unknown && e->len == n_unknown && !memcmp(e->text, unknown, n_unknown)) ||
		     e->id == r->unknown_id))
			x->type = IG_TYPE_UNKNOWN;
	}
	for (size_t i = 0; i < r->n_added; i++) {
		struct added *a = &r->added[i];
		struct text *x = &r->texts[a->id];
		bool known = x->type && x->len == a->text.len && !memcmp(x->s, a->text.s, x->len);
		if (x->type && !known)
			return same_id_twice(r, a->id);
		if (known && x->type == IG_TYPE_UNKNOWN)
			continue;
		*x = a->text;
		x->type = a->special ? IG_TYPE_CONTROL : known ? IG_TYPE_USER_PIECE : IG_TYPE_ADDED;
	}
	return 0;
}

/* "##ing" continues a word; any other token begins one, which U+2581 marks. */
static int build_word(struct reading *r, size_t i)
{
	const struct text *x = &r->texts[i];
	const char *prefix =
		json_string_value(json_object_get(r->options, "continuing_subword_prefix"));
	size_t n = prefix ? strlen(prefix) : 0;
	char text[1024] = "\xe2\x96\x81";

	if (n && x->len >= n && !memcmp(x->s, prefix, n))
		return ig_builder_token(r->b, i, x->len > n ? IG_TYPE_NORMAL : IG_TYPE_UNUSED,
					x->s + n, x->len - n);
	if (x->len > sizeof text - 4)
		return ig_fail(r->err, -EINVAL, "%s: token %zu has %u bytes", r->name, i, x->len);
	memcpy(text + 3, x->s, x->len);
	return ig_builder_token(r->b, i, IG_TYPE_NORMAL, text, x->len + 3);
}

int ig_json_tokens_build(struct reading *r, enum ig_token_model model)
{
	uint64_t n_bytes = 0;
	size_t longest = 0;
	int rc;

	for (size_t i = 0; i < r->n_ids; i++) {
		n_bytes += r->texts[i].len + (r->words ? 3 : 0);
		longest = r->texts[i].len > longest ? r->texts[i].len : longest;
	}
	rc = ig_builder_begin(r->b, model, r->n_ids, n_bytes, longest);
	for (size_t i = 0; i < r->n_ids && !rc; i++) {
		const struct text *x = &r->texts[i];
		if (r->words && x->type == IG_TYPE_NORMAL)
			rc = build_word(r, i);
		else
			rc = ig_builder_token(r->b, i, x->type ? x->type : IG_TYPE_UNUSED,
					      x->s ? x->s : "", x->len);
	}
	if (rc)
		return rc;
	if (r->b->twice >= 0)
		return ig_fail(r->err, -EINVAL, "%s: the token '%.*s' is a duplicate", r->name,
			       r->texts[r->b->twice].len < 60 ? (int)r->texts[r->b->twice].len : 60,
			       r->texts[r->b->twice].s);
	ig_builder_tokens_end(r->b);
	return 0;
}

/* ---- special tokens ---------------------------------------------------------------------- */

/* The text that is searched for in a normalized text: the token's own text, normalized. */
static int pattern_of(struct reading *r, const struct added *a, struct ig_normal_work *w,
		      struct ig_strbuf *out)
{
	const struct ig_tokenizer *t = r->b->t;
	const char *s = a->text.s;
	size_t len = a->text.len;
	int rc = 0;

	if (a->normalized && !a->special && t->normalizer)
		rc = ig_normalizer_run(t->normalizer, t, s, len, w, &s, &len);
	if (!rc)
		ig_strbuf_add(out, s, len);
	return rc ? rc : ig_strbuf_ok(out) ? 0 : -ENOMEM;
}

int ig_json_tokens_set_specials(struct reading *r)
{
	struct ig_tokenizer *t = r->b->t;
	struct ig_normal_work w = { 0 };
	struct ig_strbuf patterns = { 0 };
	size_t *ends = calloc(r->n_added + 1, sizeof *ends);
	int rc = ends ? 0 : -ENOMEM;

	t->specials.list = calloc(r->n_added + 1, sizeof *t->specials.list);
	t->normal.list = calloc(r->n_added + 1, sizeof *t->normal.list);
	if (!t->specials.list || !t->normal.list)
		rc = -ENOMEM;
	for (size_t i = 0; i < r->n_added && !rc; i++) {
		rc = pattern_of(r, &r->added[i], &w, &patterns);
		ends[i] = patterns.len;
	}
	if (!rc && patterns.len) {
		t->patterns = ig_strbuf_steal(&patterns);
		rc = t->patterns ? 0 : -ENOMEM;
	}
	for (size_t i = 0; i < r->n_added && !rc; i++) {
		const struct added *a = &r->added[i];
		size_t from = i ? ends[i - 1] : 0;
		struct ig_special_set *set =
			a->normalized && !a->special ? &t->normal : &t->specials;
		if (ends[i] > from)
			set->list[set->n++] = (struct ig_special){
				t->patterns + from,
				(uint32_t)(ends[i] - from),
				a->id,
				a->flags,
			};
	}
	if (!rc) {
		ig_specials_sort(&t->specials, t->kinds);
		ig_specials_sort(&t->normal, t->kinds);
	}
	ig_normal_work_finish(&w);
	ig_strbuf_finish(&patterns);
	free(ends);
	return rc;
}
