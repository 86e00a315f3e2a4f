/*
 * adapter.c: see adapter.h.  Both formats are read into a list of pairs, A and B of one matrix, which
 * are checked against the base's tensor and converted to float32.  The rows of B are reordered where
 * the base's are (hf_rows.c).
 */
#include "model/formats/adapter.h"

#include "base/json.h"
#include "model/formats/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define CONFIG "adapter_config.json"
#define TENSORS "adapter_model.safetensors"

/* A matrix of the file: rows of float32, float16 or bfloat16. */
struct matrix {
	char name[96]; /* in the file, for errors */
	const uint8_t *data;
	uint32_t dtype;
	int64_t n_rows, n_cols;
};

struct pair {
	char weight[64];
	struct matrix a, b; /* data NULL: missing */
	float scale;
	int64_t head_rows; /* of B's rows: see in_pairs; 0: in order */
};

struct reading {
	const struct ig_checkpoint *base;
	const struct ig_arch *const *archs;
	char label[2 * IG_LABEL_BYTES]; /* of the file with tensors */
	struct pair *pairs;
	uint32_t n_pairs;
	struct ig_error *err;
};

__attribute__((format(printf, 4, 5))) static int bad(const struct reading *r, int code,
						     const char *tensor, const char *fmt, ...)
{
	char what[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	return ig_fail(r->err, code, "%s: tensor \"%s\" %s", r->label,
		       ig_show(tensor, strlen(tensor)).text, what);
}

/* The pair of this weight; there is space for one more. */
static struct pair *pair_of(struct reading *r, const char *weight)
{
	for (uint32_t i = 0; i < r->n_pairs; i++)
		if (!strcmp(r->pairs[i].weight, weight))
			return &r->pairs[i];
	struct pair *p = &r->pairs[r->n_pairs++];
	*p = (struct pair){ 0 };
	snprintf(p->weight, sizeof p->weight, "%s", weight);
	return p;
}

static int make_pairs(struct reading *r, uint64_t n)
{
	r->pairs = calloc(n + 1, sizeof *r->pairs);
	if (!r->pairs)
		return ig_fail(r->err, -ENOMEM, "%s: out of memory", r->label);
	return n ? 0 : ig_fail(r->err, -EINVAL, "%s: the adapter has no tensors", r->label);
}

/* ---- from pairs to parts ------------------------------------------------------------------- */

static int check_pair(const struct reading *r, const struct pair *p)
{
	const struct matrix *m = p->a.data ? &p->a : &p->b;
	const struct ig_checkpoint_tensor *t = ig_checkpoint_find_tensor(r->base, p->weight);

	if (!p->a.data || !p->b.data)
		return bad(r, -EINVAL, m->name, "has no lora_%s beside it", p->a.data ? "B" : "A");
	if (!t)
		return bad(r, -EINVAL, m->name, "is of %s, which the base model does not have",
			   p->weight);
	if (p->a.n_rows != p->b.n_cols)
		return bad(r, -EINVAL, p->b.name,
			   "has rank %" PRId64 ", its lora_A has rank %" PRId64, p->b.n_cols,
			   p->a.n_rows);
	if (p->a.n_rows < 1 || p->a.n_rows > IG_ADAPTER_MAX_RANK)
		return bad(r, -ENOTSUP, p->a.name, "has rank %" PRId64 "; 1 to %d are supported",
			   p->a.n_rows, IG_ADAPTER_MAX_RANK);
	if (t->n_dims != 2)
		return bad(r, -ENOTSUP, m->name, "is of %s, which is no matrix of one product",
			   p->weight);
	if (p->a.n_cols != t->n_cols)
		return bad(r, -EINVAL, p->a.name,
			   "takes %" PRId64 " values, %s of the base model %" PRId64, p->a.n_cols,
			   p->weight, t->n_cols);
	if (p->b.n_rows != t->n_rows)
		return bad(r, -EINVAL, p->b.name,
			   "gives %" PRId64 " values, %s of the base model %" PRId64, p->b.n_rows,
			   p->weight, t->n_rows);
	if (p->head_rows && t->n_rows % p->head_rows)
		return bad(r, -EINVAL, p->b.name, "is not of heads of %" PRId64, p->head_rows);
	return 0;
}

/* Row i of m as float; -EINVAL: a value is not finite. */
static int read_row(const struct reading *r, const struct matrix *m, int64_t i, float *out)
{
	const uint64_t bytes = ig_dtype_row_bytes(m->dtype, m->n_cols);
	const uint8_t *from = m->data + (uint64_t)i * bytes;
	float aligned[64];
	int64_t step = 64;

	/* a file's rows need not be aligned */
	for (int64_t at = 0; at < m->n_cols; at += step) {
		int64_t n = m->n_cols - at < step ? m->n_cols - at : step;
		uint64_t one = ig_dtype_row_bytes(m->dtype, 1);
		memcpy(aligned, from + (uint64_t)at * one, (size_t)((uint64_t)n * one));
		ig_dtype_to_f32(m->dtype, aligned, out + at, n);
		for (int64_t k = at; k < at + n; k++)
			if (!isfinite(out[k]))
				return bad(r, -EINVAL, m->name,
					   "has a value that is not finite, in row %" PRId64
					   ", column %" PRId64,
					   i, k);
	}
	return 0;
}

static int make_part(const struct reading *r, const struct pair *p, struct ig_adapter_part *out)
{
	const int64_t rank = p->a.n_rows, rows = p->b.n_rows, cols = p->a.n_cols;
	float row[IG_ADAPTER_MAX_RANK];
	int rc = 0;

	memcpy(out->weight, p->weight, sizeof out->weight);
	out->n_rows = rows;
	out->n_cols = cols;
	out->rank = rank;
	out->scale = p->scale;
	/* the file has as many values, so no product overflows */
	out->a = malloc((size_t)(rank * cols) * sizeof *out->a);
	out->b = malloc((size_t)(rank * rows) * sizeof *out->b);
	if (!out->a || !out->b)
		return ig_fail(r->err, -ENOMEM, "%s: out of memory for the adapter", r->label);
	for (int64_t i = 0; i < rank && !rc; i++)
		rc = read_row(r, &p->a, i, out->a + i * cols);
	for (int64_t o = 0; o < rows && !rc; o++) {
		rc = read_row(r, &p->b, ig_hf_in_pairs(o, p->head_rows), row);
		for (int64_t i = 0; i < rank; i++)
			out->b[i * rows + o] = row[i];
	}
	return rc;
}

static int by_weight(const void *a, const void *b)
{
	return strcmp(((const struct pair *)a)->weight, ((const struct pair *)b)->weight);
}

static int make_parts(const struct reading *r, struct ig_adapter **out)
{
	struct ig_adapter *a = calloc(1, sizeof *a);
	int rc = 0;

	if (a)
		a->parts = calloc(r->n_pairs + 1, sizeof *a->parts);
	if (!a || !a->parts) {
		free(a);
		return ig_fail(r->err, -ENOMEM, "%s: out of memory", r->label);
	}
	qsort(r->pairs, r->n_pairs, sizeof *r->pairs, by_weight);
	for (uint32_t i = 0; i < r->n_pairs && !rc; i++) {
		rc = check_pair(r, &r->pairs[i]);
		if (rc)
			break;
		struct ig_adapter_part *p = &a->parts[a->n_parts++];
		rc = make_part(r, &r->pairs[i], p);
		a->n_bytes += (uint64_t)(p->rank * (p->n_cols + p->n_rows)) * sizeof *p->a;
	}
	if (rc) {
		ig_adapter_close(a);
		return rc;
	}
	*out = a;
	return 0;
}

/* ---- GGUF ---------------------------------------------------------------------------------- */

static int check_word(const struct reading *r, const struct ig_checkpoint *g, const char *key,
		      const char *word, size_t word_len)
{
	const char *s;
	size_t len;
	int rc = ig_checkpoint_str(g, key, &s, &len, r->err);

	if (rc)
		return rc == -ENOENT ?
			       ig_fail(r->err, -EINVAL, "%s: not an adapter: key '%s' is missing",
				       r->label, key) :
			       rc;
	if (len != word_len || memcmp(s, word, len))
		return ig_fail(r->err, -EINVAL, "%s: key '%s' is \"%s\", expected \"%.*s\"",
			       r->label, key, ig_show(s, len).text, (int)word_len, word);
	return 0;
}

static int check_arch(const struct reading *r, const struct ig_checkpoint *g)
{
	const char *arch;
	size_t len;
	int rc;

	if ((rc = check_word(r, g, "general.type", "adapter", 7)) ||
	    (rc = check_word(r, g, "adapter.type", "lora", 4)) ||
	    (rc = ig_checkpoint_str(r->base, "general.architecture", &arch, &len, r->err)))
		return rc;
	return check_word(r, g, "general.architecture", arch, len);
}

static int take_gguf_tensor(struct reading *r, const struct ig_checkpoint_tensor *t, float alpha)
{
	size_t len = strlen(t->name);
	bool is_a = ig_ends_with(t->name, ".lora_a");
	char weight[64];

	if (!is_a && !ig_ends_with(t->name, ".lora_b"))
		return bad(r, -ENOTSUP, t->name, "is not NAME.lora_a or NAME.lora_b");
	if (t->dtype != IG_F32 && t->dtype != IG_F16 && t->dtype != IG_BF16)
		return bad(r, -ENOTSUP, t->name, "is of type %s; F32, F16 and BF16 are read",
			   ig_dtype_name(t->dtype));
	if (t->n_dims > 2)
		return bad(r, -ENOTSUP, t->name,
			   "has %u dimensions; adapters of experts are not supported", t->n_dims);
	snprintf(weight, sizeof weight, "%.*s", (int)(len - 7), t->name);
	struct pair *p = pair_of(r, weight);
	struct matrix *m = is_a ? &p->a : &p->b;
	*m = (struct matrix){
		.data = t->data, .dtype = t->dtype, .n_rows = t->n_rows, .n_cols = t->n_cols
	};
	snprintf(m->name, sizeof m->name, "%s", t->name);
	if (is_a)
		p->scale = alpha / (float)t->n_rows;
	return 0;
}

static int read_gguf(struct reading *r, const struct ig_checkpoint *g)
{
	float alpha;
	int rc;

	snprintf(r->label, sizeof r->label, "%s", ig_checkpoint_label(g));
	if ((rc = check_arch(r, g)) ||
	    (rc = ig_checkpoint_f32(g, "adapter.lora.alpha", &alpha, r->err)))
		return rc;
	if (!(alpha > 0) || alpha > 1e6f)
		return ig_fail(r->err, -EINVAL,
			       "%s: key 'adapter.lora.alpha' is %g, expected a number above 0 and "
			       "up to 1e+06",
			       r->label, (double)alpha);
	if ((rc = make_pairs(r, ig_checkpoint_n_tensors(g))))
		return rc;
	for (uint64_t i = 0; i < ig_checkpoint_n_tensors(g) && !rc; i++)
		rc = take_gguf_tensor(r, ig_checkpoint_tensor(g, i), alpha);
	return rc;
}

/* ---- PEFT ---------------------------------------------------------------------------------- */

struct peft {
	struct reading *r;
	const json_t *config;
	char label[2 * IG_LABEL_BYTES]; /* of the configuration */
	double rank, alpha;
	bool root_scale; /* rsLoRA */
	int64_t head_dim;
	struct ig_hf_config *names; /* [n_names]: for base models in GGUF several tables may fit */
	uint32_t n_names;
};

/* Keys that are read here, or that change only training; any other that is set is refused: a variant of
 * LoRA computes something else. */
static const char *const known_keys[] = {
	"peft_type",
	"r",
	"lora_alpha",
	"use_rslora",
	"rank_pattern",
	"alpha_pattern",
	"bias",
	"init_lora_weights",
	"auto_mapping",
	"base_model_name_or_path",
	"exclude_modules",
	"fan_in_fan_out",
	"inference_mode",
	"layers_pattern",
	"layers_to_transform",
	"lora_dropout",
	"megatron_core",
	"peft_version",
	"qalora_group_size",
	"revision",
	"target_modules",
	"task_type",
};

static bool is_known(const char *key)
{
	for (size_t i = 0; i < sizeof known_keys / sizeof *known_keys; i++)
		if (!strcmp(known_keys[i], key))
			return true;
	return false;
}

static bool is_off(const json_t *v)
{
	return !v || json_is_null(v) || json_is_false(v) ||
	       (json_is_array(v) && !json_array_size(v)) ||
	       (json_is_object(v) && !json_object_size(v));
}

static int check_word_in(const struct peft *p, const char *key, const char *const *words,
			 bool required)
{
	const json_t *v = json_object_get(p->config, key);
	const char *s = json_string_value(v);

	if (!s)
		return !required && !json_is_string(v) ?
			       0 :
			       ig_fail(p->r->err, -EINVAL, "%s: \"%s\" is missing, or not a text",
				       p->label, key);
	for (; *words; words++)
		if (!strcmp(s, *words))
			return 0;
	return ig_fail(p->r->err, -ENOTSUP, "%s: \"%s\" is \"%s\": not supported", p->label, key,
		       ig_show(s, strlen(s)).text);
}

static int read_number(const struct peft *p, const char *key, const json_t *v, double most,
		       double *out)
{
	*out = json_is_number(v) ? json_number_value(v) : 0;
	if (!(*out > 0) || *out > most)
		return ig_fail(p->r->err, -EINVAL,
			       "%s: \"%s\" is missing, or not a number above 0 and up to %g",
			       p->label, key, most);
	return 0;
}

static int check_pattern(const struct peft *p, const char *key)
{
	const json_t *v = json_object_get(p->config, key), *entry;
	const char *name;
	double number;
	int rc = 0;

	if (is_off(v))
		return 0;
	if (!json_is_object(v))
		return ig_fail(p->r->err, -EINVAL, "%s: \"%s\" is not an object", p->label, key);
	json_object_foreach((json_t *)(uintptr_t)v, name, entry)
	{
		if (strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				 "0123456789_.-") != strlen(name))
			return ig_fail(p->r->err, -ENOTSUP,
				       "%s: \"%s\": the expression \"%s\" is not supported; names "
				       "of modules are",
				       p->label, key, ig_show(name, strlen(name)).text);
		if ((rc = read_number(p, key, entry, 1e6, &number)))
			return rc;
	}
	return 0;
}

static int check_config(struct peft *p)
{
	static const char *const lora[] = { "LORA", NULL };
	static const char *const none[] = { "none", NULL };
	/* Others change the base model when training begins. */
	static const char *const inits[] = { "gaussian", "orthogonal", NULL };
	const json_t *scale, *v;
	const char *key;
	int rc;

	if (!json_is_object(p->config))
		return ig_fail(p->r->err, -EINVAL, "%s: not an object", p->label);
	if ((rc = check_word_in(p, "peft_type", lora, true)) ||
	    (rc = check_word_in(p, "bias", none, false)) ||
	    (rc = check_word_in(p, "init_lora_weights", inits, false)))
		return rc;
	json_object_foreach((json_t *)(uintptr_t)p->config, key, v)
	{
		if (!is_known(key) && !is_off(v))
			return ig_fail(p->r->err, -ENOTSUP, "%s: \"%s\" is not supported", p->label,
				       ig_show(key, strlen(key)).text);
	}
	if ((rc = read_number(p, "r", json_object_get(p->config, "r"), IG_ADAPTER_MAX_RANK,
			      &p->rank)) ||
	    (rc = read_number(p, "lora_alpha", json_object_get(p->config, "lora_alpha"), 1e6,
			      &p->alpha)) ||
	    (rc = check_pattern(p, "rank_pattern")) || (rc = check_pattern(p, "alpha_pattern")))
		return rc;
	scale = json_object_get(p->config, "use_rslora");
	if (!is_off(scale) && !json_is_true(scale))
		return ig_fail(p->r->err, -EINVAL, "%s: \"use_rslora\" is not true or false",
			       p->label);
	p->root_scale = json_is_true(scale);
	return 0;
}

/* The module's own number in a pattern, of which the first that fits counts, as in PEFT. */
static double number_of(const struct peft *p, const char *pattern, const char *module,
			double otherwise)
{
	const json_t *v = json_object_get(p->config, pattern), *entry;
	size_t len = strlen(module);
	const char *name;

	json_object_foreach((json_t *)(uintptr_t)v, name, entry)
	{
		size_t n = strlen(name);
		if (n <= len && !strcmp(module + len - n, name) &&
		    (n == len || module[len - n - 1] == '.'))
			return json_number_value(entry);
	}
	return otherwise;
}

static int find_name(const struct peft *p, const char *hf, struct ig_hf_place *place)
{
	int rc = -ENOTSUP;

	for (uint32_t i = 0; i < p->n_names && rc; i++)
		rc = ig_hf_name(&p->names[i], hf, false, p->r->label, place, p->r->err);
	return rc;
}

static uint32_t dtype_of(const struct ig_st_tensor *t)
{
	return t->type == IG_ST_F32  ? IG_F32 :
	       t->type == IG_ST_F16  ? IG_F16 :
	       t->type == IG_ST_BF16 ? IG_BF16 :
				       IG_DTYPE_NONE;
}

static int take_peft_tensor(struct peft *p, const struct ig_st_tensor *t)
{
	static const char prefix[] = "base_model.model.";
	struct reading *r = p->r;
	bool is_a = ig_ends_with(t->name, ".lora_A.weight");
	char module[IG_ST_MAX_NAME + 1], hf[IG_ST_MAX_NAME + 8];
	struct ig_hf_place place;
	double rank;
	int rc;

	if (strncmp(t->name, prefix, sizeof prefix - 1) ||
	    (!is_a && !ig_ends_with(t->name, ".lora_B.weight")))
		return bad(r, -ENOTSUP, t->name,
			   "is not base_model.model.NAME.lora_A.weight or lora_B.weight");
	if (dtype_of(t) == IG_DTYPE_NONE)
		return bad(r, -ENOTSUP, t->name, "is of type %s; F32, F16 and BF16 are read",
			   t->type_name);
	if (t->n_dims != 2 || t->dims[0] < 1 || t->dims[1] < 1)
		return bad(r, -EINVAL, t->name, "has %u dimensions, or no values; expected 2",
			   t->n_dims);
	snprintf(module, sizeof module, "%s", t->name + sizeof prefix - 1);
	module[strlen(module) - strlen(".lora_A.weight")] = 0;
	snprintf(hf, sizeof hf, "%s.weight", module);
	if ((rc = find_name(p, hf, &place)))
		return rc;
	if (!place.name[0] || place.flags & (IG_TENSOR_EXPERTS | IG_TENSOR_HEADS | IG_TENSOR_TWO))
		return bad(r, -ENOTSUP, t->name, "is of a part that adapters can't change");
	rank = number_of(p, "rank_pattern", module, p->rank);
	if ((double)t->dims[is_a ? 0 : 1] != rank)
		return bad(r, -EINVAL, t->name, "has rank %" PRId64 ", %s says %g",
			   t->dims[is_a ? 0 : 1], CONFIG, rank);
	struct pair *pair = pair_of(r, place.name);
	struct matrix *m = is_a ? &pair->a : &pair->b;
	if (m->data)
		return bad(r, -EINVAL, t->name, "and \"%s\" are of the same matrix", m->name);
	*m = (struct matrix){
		.data = t->data, .dtype = dtype_of(t), .n_rows = t->dims[0], .n_cols = t->dims[1]
	};
	snprintf(m->name, sizeof m->name, "%.95s", t->name);
	pair->head_rows = place.flags & IG_TENSOR_PAIRS ? p->head_dim : 0;
	pair->scale = (float)(number_of(p, "alpha_pattern", module, p->alpha) /
			      (p->root_scale ? sqrt(rank) : rank));
	return 0;
}

static uint32_t base_number(const struct reading *r, const char *arch, size_t len, const char *key)
{
	char name[128];
	uint32_t v = 0;

	snprintf(name, sizeof name, "%.*s.%s", (int)len, arch, key);
	ig_checkpoint_u32(r->base, name, &v, NULL);
	return v;
}

/* The tables of names that may fit the base model. */
static int find_tables(struct peft *p)
{
	const struct reading *r = p->r;
	const char *arch;
	size_t len;
	uint32_t heads, max = 0;
	int rc = ig_checkpoint_str(r->base, "general.architecture", &arch, &len, r->err);

	if (rc)
		return rc;
	for (const struct ig_arch *const *a = r->archs; a && *a; a++)
		for (const struct ig_arch_files *const *f = (*a)->files; f && *f; f++)
			max++;
	p->names = calloc(max + 1, sizeof *p->names);
	if (!p->names)
		return ig_fail(r->err, -ENOMEM, "%s: out of memory", r->label);
	heads = base_number(r, arch, len, "attention.head_count");
	p->head_dim = base_number(r, arch, len, "attention.key_length");
	if (!p->head_dim && heads)
		p->head_dim = base_number(r, arch, len, "embedding_length") / heads;
	for (const struct ig_arch *const *a = r->archs; a && *a; a++)
		for (const struct ig_arch_files *const *f = (*a)->files; f && *f; f++) {
			struct ig_hf_config *c = &p->names[p->n_names];
			const char *gguf = (*f)->gguf ? (*f)->gguf : (*a)->name;
			if (strlen(gguf) != len || memcmp(gguf, arch, len))
				continue;
			ig_hf_entry(&c->files, sizeof c->files, *f, 0, (*f)->struct_size);
			c->n_layers = base_number(r, arch, len, "block_count");
			c->n_experts = base_number(r, arch, len, "expert_count");
			p->n_names++;
		}
	return p->n_names ? 0 :
			    ig_fail(r->err, -ENOTSUP,
				    "%s: adapters in PEFT's format are not supported for the "
				    "architecture %.*s",
				    r->label, (int)len, arch);
}

static int read_peft(struct reading *r, const char *folder, const struct ig_checkpoint_file *config,
		     const struct ig_checkpoint_file *tensors, struct ig_st_file *header)
{
	struct peft p = { .r = r };
	json_t *root = NULL;
	int rc;

	snprintf(r->label, sizeof r->label, "%s/%s", folder, TENSORS);
	snprintf(p.label, sizeof p.label, "%s/%s", folder, CONFIG);
	rc = ig_json_read_file(p.label, config->data, config->len, &root, r->err);
	p.config = root;
	if (rc || (rc = check_config(&p)) || (rc = find_tables(&p)) ||
	    (rc = ig_st_read(tensors->data, tensors->len, r->label, header, r->err)) ||
	    (rc = make_pairs(r, header->n_tensors)))
		goto out;
	for (uint32_t i = 0; i < header->n_tensors && !rc; i++)
		rc = take_peft_tensor(&p, &header->tensors[i]);
out:
	free(p.names);
	json_decref(root);
	return rc;
}

/* ---- opening ------------------------------------------------------------------------------- */

static int finish(struct reading *r, int rc, struct ig_adapter **out)
{
	if (!rc)
		rc = make_parts(r, out);
	free(r->pairs);
	return rc;
}

static int open_pair(struct reading *r, const char *folder,
		     const struct ig_checkpoint_file files[2], struct ig_adapter **out)
{
	struct ig_st_file header = { 0 };
	int rc = finish(r, read_peft(r, folder, &files[0], &files[1], &header), out);

	ig_st_finish(&header);
	return rc;
}

static int open_folder(const char *path, const struct ig_checkpoint *base,
		       const struct ig_arch *const *archs, struct ig_adapter **out,
		       struct ig_error *err)
{
	const char *names[2] = { CONFIG, TENSORS };
	const size_t len = strlen(path), most = IG_LABEL_BYTES - 1;
	const char *end = len > most ? path + len - most : path; /* for errors */
	struct reading r = { .base = base, .archs = archs, .err = err };
	struct ig_checkpoint_file files[2] = { 0 };
	const uint8_t *maps[2] = { NULL, NULL };
	uint64_t sizes[2] = { 0, 0 };
	int rc = 0;

	for (int i = 0; i < 2 && !rc; i++) {
		char full[4096 + 64], label[IG_LABEL_BYTES + 64];
		snprintf(full, sizeof full, "%s/%s", path, names[i]);
		snprintf(label, sizeof label, "%s/%s", end, names[i]);
		rc = ig_map_file(AT_FDCWD, full, label, 1, "a part of an adapter", &maps[i],
				 &sizes[i], err);
		if (rc)
			maps[i] = NULL;
		files[i] = (struct ig_checkpoint_file){ names[i], maps[i], (size_t)sizes[i] };
	}
	if (!rc)
		rc = open_pair(&r, end, files, out);
	for (int i = 0; i < 2; i++)
		if (maps[i])
			munmap((void *)(uintptr_t)maps[i], (size_t)sizes[i]);
	return rc;
}

int ig_adapter_open(const char *path, const struct ig_checkpoint *base,
		    const struct ig_arch *const *archs, struct ig_adapter **out,
		    struct ig_error *err)
{
	struct reading r = { .base = base, .archs = archs, .err = err };
	struct ig_checkpoint *g;
	struct stat st;
	int rc;

	*out = NULL;
	if (!stat(path, &st) && S_ISDIR(st.st_mode))
		return open_folder(path, base, archs, out, err);
	if ((rc = ig_checkpoint_open_part(path, &g, err)))
		return rc;
	rc = finish(&r, read_gguf(&r, g), out);
	ig_checkpoint_close(g);
	return rc;
}

int ig_adapter_open_files(const struct ig_checkpoint_file *files, size_t n,
			  const struct ig_checkpoint *base, const struct ig_arch *const *archs,
			  struct ig_adapter **out, struct ig_error *err)
{
	struct reading r = { .base = base, .archs = archs, .err = err };
	struct ig_checkpoint *g;
	int rc;

	*out = NULL;
	if (n == 2)
		return open_pair(&r, "adapter", files, out);
	if ((rc = ig_checkpoint_open_memory(files[0].data, files[0].len, files[0].name, &g, err)))
		return rc;
	rc = finish(&r, read_gguf(&r, g), out);
	ig_checkpoint_close(g);
	return rc;
}

void ig_adapter_close(struct ig_adapter *a)
{
	if (!a)
		return;
	for (uint32_t i = 0; i < a->n_parts; i++) {
		free(a->parts[i].a);
		free(a->parts[i].b);
	}
	free(a->parts);
	free(a);
}
