/*
 * model.c: a tokenizer from SentencePiece's own file (tokenizer.model), a protocol buffers message:
 * pieces, trainer settings, normalizer.  Field numbers are those of sentencepiece_model.proto.  An
 * unsupported setting that would change ids or texts is an error with its name.
 */
#include "model/tokenizer/config_private.h"

#include "base/array.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 }; /* wire types */
enum { UNIGRAM = 1, BPE = 2 };				  /* of model_type */

struct field {
	uint32_t number, wire;
	uint64_t value; /* of VARINT and FIXED32 */
	const unsigned char *bytes;
	size_t len;
};

struct piece {
	const char *text;
	size_t len;
	double score;
	int32_t type;
};

struct reading {
	struct ig_builder *b;
	struct ig_error *err;
	const unsigned char *begin;
	struct piece *pieces;
	uint32_t n, cap;
	/* Of the file, or the format's default. */
	int64_t model_type, bos, eos;
	bool byte_fallback, suffix;
	bool add_space, trim, escape;
	const unsigned char *charsmap;
	size_t n_charsmap;
};

/* ---- protocol buffers ---------------------------------------------------------------- */

static bool read_varint(const unsigned char **p, const unsigned char *end, uint64_t *v)
{
	*v = 0;
	for (unsigned shift = 0; shift < 64 && *p < end; shift += 7) {
		unsigned char byte = *(*p)++;
		*v |= (uint64_t)(byte & 0x7f) << shift;
		if (byte < 0x80)
			return true;
	}
	return false;
}

static bool read_field(const unsigned char **p, const unsigned char *end, struct field *f)
{
	uint64_t key, len;

	*f = (struct field){ 0 };
	if (!read_varint(p, end, &key) || key >> 3 == 0 || key >> 3 > 536870911)
		return false;
	f->number = (uint32_t)(key >> 3);
	f->wire = key & 7;
	switch (f->wire) {
	case VARINT: return read_varint(p, end, &f->value);
	case BYTES:
		if (!read_varint(p, end, &len) || len > (uint64_t)(end - *p))
			return false;
		f->bytes = *p;
		f->len = (size_t)len;
		*p += len;
		return true;
	case FIXED64:
	case FIXED32:
		len = f->wire == FIXED64 ? 8 : 4;
		if (len > (uint64_t)(end - *p))
			return false;
		for (unsigned i = 0; i < len; i++)
			f->value |= (uint64_t)(*p)[i] << 8 * i;
		*p += len;
		return true;
	}
	return false;
}

static int walk(struct reading *r, const unsigned char *p, size_t len,
		int (*each)(struct reading *r, const struct field *f))
{
	const unsigned char *end = p + len;
	struct field f;
	int rc = 0;

	while (p < end && !rc) {
		const unsigned char *at = p;
		if (!read_field(&p, end, &f))
			return ig_fail(r->err, -EINVAL,
				       "tokenizer.model: byte %zu: not a field of a message",
				       (size_t)(at - r->begin));
		rc = each(r, &f);
	}
	return rc;
}

static int wrong_wire(struct reading *r, const char *what)
{
	return ig_fail(r->err, -EINVAL, "tokenizer.model: %s is of a wrong type", what);
}

/* ---- messages ---------------------------------------------------------------------------- */

static int take_piece(struct reading *r, const struct field *f)
{
	struct piece *x = &r->pieces[r->n - 1];
	uint32_t bits = (uint32_t)f->value;
	float score;

	switch (f->number) {
	case 1:
		if (f->wire != BYTES)
			return wrong_wire(r, "a piece");
		x->text = (const char *)f->bytes;
		x->len = f->len;
		return 0;
	case 2:
		memcpy(&score, &bits, sizeof score);
		if (f->wire != FIXED32 || !isfinite(score))
			return wrong_wire(r, "a piece's score");
		x->score = (double)score;
		return 0;
	case 3:
		if (f->wire != VARINT || f->value < IG_TYPE_NORMAL || f->value > IG_TYPE_MAX)
			return wrong_wire(r, "a piece's type");
		x->type = (int32_t)f->value;
	}
	return 0;
}

static int take_trainer(struct reading *r, const struct field *f)
{
	if ((f->number == 3 || f->number == 24 || f->number == 35 || f->number == 41 ||
	     f->number == 42) &&
	    f->wire != VARINT)
		return wrong_wire(r, "a field of trainer_spec");
	switch (f->number) {
	case 3: r->model_type = (int64_t)f->value; break;
	case 24: r->suffix = f->value != 0; break;
	case 35: r->byte_fallback = f->value != 0; break;
	case 41: r->bos = (int64_t)f->value; break;
	case 42: r->eos = (int64_t)f->value; break;
	}
	return 0;
}

static int take_normalizer(struct reading *r, const struct field *f)
{
	if (f->number >= 3 && f->number <= 5 && f->wire != VARINT)
		return wrong_wire(r, "a field of normalizer_spec");
	switch (f->number) {
	case 2:
		if (f->wire != BYTES)
			return wrong_wire(r, "precompiled_charsmap");
		r->charsmap = f->bytes;
		r->n_charsmap = f->len;
		break;
	case 3: r->add_space = f->value != 0; break;
	case 4: r->trim = f->value != 0; break;
	case 5: r->escape = f->value != 0; break;
	}
	return 0;
}

static int take_denormalizer(struct reading *r, const struct field *f)
{
	return f->number == 2 && f->wire == BYTES && f->len ?
		       ig_fail(r->err, -ENOTSUP, "tokenizer.model: a denormalizer_spec") :
		       0;
}

static int add_piece(struct reading *r, int32_t type)
{
	if (r->n == IG_MAX_VOCAB)
		return ig_fail(r->err, -EINVAL, "tokenizer.model has more than %u pieces",
			       IG_MAX_VOCAB);
	if (!ig_array_grow(r->pieces, &r->cap, r->n))
		return -ENOMEM;
	r->pieces[r->n++] = (struct piece){ .text = "", .type = type };
	return 0;
}

static int take_message(struct reading *r, const struct field *f)
{
	int rc;

	if (f->number > 5 || f->number == 4) /* 4: the trainer's own tests */
		return 0;
	if (f->wire != BYTES)
		return wrong_wire(r, "a message");
	switch (f->number) {
	case 1:
		return (rc = add_piece(r, IG_TYPE_NORMAL)) ? rc :
							     walk(r, f->bytes, f->len, take_piece);
	case 2: return walk(r, f->bytes, f->len, take_trainer);
	case 3: return walk(r, f->bytes, f->len, take_normalizer);
	}
	return walk(r, f->bytes, f->len, take_denormalizer);
}

/* ---- building ------------------------------------------------------------------------------ */

static int check(struct reading *r)
{
	if (r->model_type != UNIGRAM && r->model_type != BPE)
		return ig_fail(r->err, -ENOTSUP,
			       "tokenizer.model: model_type %" PRId64 "; Ingot supports 1 "
			       "(unigram) and 2 (BPE)",
			       r->model_type);
	if (r->suffix)
		return ig_fail(r->err, -ENOTSUP, "tokenizer.model: treat_whitespace_as_suffix");
	if (!r->escape)
		return ig_fail(r->err, -ENOTSUP, "tokenizer.model: escape_whitespaces is false");
	for (size_t i = 0; i < r->n; i++)
		if (r->pieces[i].type == IG_TYPE_BYTE && !r->byte_fallback)
			return ig_fail(r->err, -ENOTSUP,
				       "tokenizer.model: pieces of type byte without "
				       "byte_fallback");
	return 0;
}

/* Add the tokens of the other files as control or user-defined pieces. */
static int add_tokens(struct reading *r, const struct ig_model_config *c)
{
	struct ig_added_token *added;
	size_t n;
	int rc = ig_model_config_added(c, &added, &n, r->err);

	for (size_t i = 0; i < n && !rc; i++) {
		const struct ig_added_token *a = &added[i];
		if (a->id > (int64_t)r->n + (int64_t)n)
			rc = ig_fail(r->err, -EINVAL,
				     "the added token '%.40s' has the id %" PRId64 ", "
				     "tokenizer.model has %u pieces",
				     a->text, a->id, r->n);
		while (!rc && (int64_t)r->n <= a->id)
			rc = add_piece(r, IG_TYPE_UNUSED);
		if (rc)
			break;
		struct piece *x = &r->pieces[a->id];
		if (x->type == IG_TYPE_UNKNOWN || x->type == IG_TYPE_BYTE)
			continue;
		x->text = a->text;
		x->len = a->len;
		x->type = a->special ? IG_TYPE_CONTROL : IG_TYPE_USER;
	}
	free(added);
	while (!rc && r->n < r->b->pad_to && r->b->pad_to - r->n <= IG_MAX_HOLES)
		rc = add_piece(r, IG_TYPE_UNUSED);
	return rc;
}

static int build(struct reading *r)
{
	bool unigram = r->model_type == UNIGRAM;
	struct ig_spm_options options = {
		.unigram = unigram,
		.add_space = r->add_space,
		.trim = r->trim,
	};
	struct ig_tokenizer *t;
	uint64_t n_bytes = 0;
	size_t longest = 0;
	double *scores;
	int rc;

	for (size_t i = 0; i < r->n; i++) {
		n_bytes += r->pieces[i].len;
		longest = r->pieces[i].len > longest ? r->pieces[i].len : longest;
	}
	rc = ig_builder_begin(r->b, unigram ? IG_MODEL_UNIGRAM : IG_MODEL_SCORES, r->n, n_bytes,
			      longest);
	for (size_t i = 0; i < r->n && !rc; i++)
		rc = ig_builder_token(r->b, i, r->pieces[i].type, r->pieces[i].text,
				      r->pieces[i].len);
	if (rc)
		return rc;
	t = r->b->t;
	ig_builder_tokens_end(r->b);
	rc = ig_tokenizer_collect_specials(t);
	if (!rc && r->n_charsmap) {
		rc = ig_normalizer_create(&t->normalizer);
		if (!rc)
			rc = ig_normalizer_add_charsmap(t->normalizer, r->charsmap, r->n_charsmap,
							r->err);
	}
	if (rc)
		return rc;
	t->adds_space = r->add_space;
	t->trims = r->trim;
	t->add_bos = !unigram;
	options.unknown = r->b->unknown;
	if (r->bos >= 0 && r->bos < (int64_t)t->n_vocab)
		t->bos = (int32_t)r->bos;
	if (r->eos >= 0 && r->eos < (int64_t)t->n_vocab)
		ig_builder_end(r->b, (int32_t)r->eos);
	scores = malloc(r->n * sizeof *scores);
	if (!scores)
		return -ENOMEM;
	for (size_t i = 0; i < r->n; i++)
		scores[i] = r->pieces[i].score;
	return ig_spm_create(t, &options, scores, &t->spm);
}

int ig_tokenizer_read_spm(struct ig_builder *b, const char *data, size_t len,
			  const struct ig_model_config *c)
{
	struct reading r = { .b = b,
			     .err = b->err,
			     .begin = (const unsigned char *)data,
			     .model_type = UNIGRAM,
			     .bos = 1,
			     .eos = 2,
			     .add_space = true,
			     .trim = true,
			     .escape = true };
	int rc = walk(&r, r.begin, len, take_message);

	b->tokens = "tokenizer.model";
	if (!rc)
		rc = check(&r);
	if (!rc)
		rc = add_tokens(&r, c);
	if (!rc)
		rc = build(&r);
	free(r.pieces);
	return rc;
}
