/* hub_choice.c: which files of a repository are models, and which of them a word names; see
 * hub_repo.h.  Looks at names and sizes only. */
#include "cli/download/hub_repo.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/array.h"
#include "base/file_name.h"

#define MAX_CHOICES 500

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* ---- names of files ------------------------------------------------------------------------- */

/* GGUF files that are not a language model of their own. */
static bool is_companion(const char *base)
{
	static const char *const parts[] = { "mmproj",	"imatrix", "mtp-",
					     "eagle3-", "dflash-", "dspark-" };

	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
		if (strcasestr(base, parts[i]))
			return true;
	return false;
}

/* A part's number, the number of parts, and the length of what is before them in base; false: the
 * file is whole. */
static bool is_part(const char *base, unsigned *i, unsigned *n, size_t *len)
{
	return ig_split_name(base, i, n, len) && *i && *n && *i <= *n;
}

static bool is_quantisation(const char *s, size_t n)
{
	static const char *const whole[] = { "F16",  "BF16",  "F32",	  "FP16",
					     "FP32", "MXFP4", "MXFP4_MOE" };
	const char *p = s;

	for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++)
		if (strlen(whole[i]) == n && !strncasecmp(s, whole[i], n))
			return true;
	p += *p == 'i' || *p == 'I' || *p == 't' || *p == 'T';
	if ((size_t)(p - s) + 2 > n || (*p != 'q' && *p != 'Q') || p[1] < '1' || p[1] > '8')
		return false;
	return p + 2 == s + n || p[2] == '_';
}

/* The last word of text, between "-" and ".", that names a quantisation, with "UD-" if that is
 * before it. */
static bool find_quantisation(const char *text, size_t len, char *buf, size_t size)
{
	for (size_t end = len; end;) {
		size_t from = end;
		while (from && text[from - 1] != '-' && text[from - 1] != '.')
			from--;
		if (is_quantisation(text + from, end - from)) {
			if (from >= 3 && !strncasecmp(text + from - 3, "UD-", 3) &&
			    (from == 3 || text[from - 4] == '-' || text[from - 4] == '.'))
				from -= 3;
			snprintf(buf, size, "%.*s", (int)(end - from), text + from);
			return true;
		}
		end = from ? from - 1 : 0;
	}
	return false;
}

/* A file's quantisation, by its name or by that of its folder, or else its path; len: of the name
 * in base without the part's number and ".gguf". */
static void label_of(const char *path, size_t len, char *buf, size_t size)
{
	const char *base = base_of(path), *folder = base;

	if (find_quantisation(base, len, buf, size))
		return;
	while (folder > path && (folder == base || folder[-1] != '/'))
		folder--;
	if (base > path && find_quantisation(folder, (size_t)(base - 1 - folder), buf, size))
		return;
	snprintf(buf, size, "%s", path);
}

/* A model's name may have some characters only, and a file's name no more than they. */
static void name_of(const char *s, size_t len, char *buf, size_t size)
{
	static const char ok[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	size_t n = 0;

	for (size_t i = 0; i < len && n + 1 < size; i++)
		buf[n++] = strchr(ok, s[i]) && s[i] ? s[i] : '-';
	if (n && (buf[0] == '.' || buf[0] == '-'))
		buf[0] = '_';
	buf[n] = 0;
}

/* ---- choices ------------------------------------------------------------------------------------ */

static struct ig_hub_choice *add_choice(struct ig_hub_choices *c, size_t *cap)
{
	if (c->n == MAX_CHOICES || !ig_array_grow(c->list, cap, c->n))
		return NULL;
	c->list[c->n] = (struct ig_hub_choice){ .is_complete = true };
	return &c->list[c->n++];
}

static bool add_index(struct ig_hub_choice *c, const struct ig_hub_repo *r, size_t i)
{
	size_t *grown = realloc(c->files, (c->n_files + 1) * sizeof *grown);

	if (!grown)
		return false;
	c->files = grown;
	c->files[c->n_files++] = i;
	c->n_bytes += r->files[i].n_bytes;
	return true;
}

/* The parts of a split file stand one after another, for the list is sorted. */
static bool add_parts(const struct ig_hub_repo *r, size_t first, size_t len, unsigned n,
		      struct ig_hub_choice *c)
{
	const char *path = r->files[first].path;
	size_t head = (size_t)(base_of(path) - path) + len;

	for (size_t i = first; i < r->n_files && c->n_files < n; i++) {
		const char *p = r->files[i].path;
		char tail[40];
		snprintf(tail, sizeof tail, "-%05u-of-%05u.gguf", (unsigned)c->n_files + 1, n);
		if (strncmp(p, path, head) || strcasecmp(p + head, tail))
			break;
		if (!add_index(c, r, i))
			return false;
	}
	c->is_complete = c->n_files == n;
	return true;
}

static bool add_gguf(const struct ig_hub_repo *r, size_t i, struct ig_hub_choices *out, size_t *cap)
{
	const char *path = r->files[i].path, *base = base_of(path);
	size_t len = strlen(base) - strlen(".gguf");
	unsigned part = 1, n = 1;
	bool split = is_part(base, &part, &n, &len);
	struct ig_hub_choice *c;

	if (split && part > 1)
		return true; /* of the first part's choice */
	c = add_choice(out, cap);
	if (!c)
		return false;
	label_of(path, len, c->label, sizeof c->label);
	name_of(base, len, c->name, sizeof c->name);
	c->is_folder = split;
	snprintf(c->local, sizeof c->local, "%.190s%s", c->name, split ? "" : ".gguf");
	return split ? add_parts(r, i, len, n, c) : add_index(c, r, i);
}

/* What a folder of safetensors needs besides them. */
static bool is_of_folder(const char *path)
{
	static const char *const names[] = {
		"config.json",
		"generation_config.json",
		"tokenizer.json",
		"tokenizer_config.json",
		"tokenizer.model",
		"tekken.json",
		"special_tokens_map.json",
		"added_tokens.json",
		"vocab.json",
		"merges.txt",
		"chat_template.jinja",
		"chat_template.json",
		"model.safetensors.index.json",
	};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (!strcmp(path, names[i]))
			return true;
	return false;
}

static bool has(const struct ig_hub_repo *r, const char *path)
{
	for (size_t i = 0; i < r->n_files; i++)
		if (!strcmp(r->files[i].path, path))
			return true;
	return false;
}

static bool is_plain_name(const char *path)
{
	return !strchr(path, '/') && path[0] != '.' && path[0] != '-';
}

/* The weights: model*.safetensors, or else all but Mistral's copy of them. */
static bool is_weights(const struct ig_hub_repo *r, const char *path)
{
	bool named = false;

	if (!is_plain_name(path) || !ig_has_ending(path, ".safetensors"))
		return false;
	for (size_t i = 0; i < r->n_files && !named; i++)
		named = !strncmp(r->files[i].path, "model", 5) && is_plain_name(r->files[i].path) &&
			ig_has_ending(r->files[i].path, ".safetensors");
	return named ? !strncmp(path, "model", 5) : strncmp(path, "consolidated", 12) != 0;
}

static bool add_folder(const struct ig_hub_repo *r, struct ig_hub_choices *out, size_t *cap)
{
	struct ig_hub_choice *c = NULL;

	for (size_t i = 0; i < r->n_files && !c && has(r, "config.json"); i++)
		if (is_weights(r, r->files[i].path) && !(c = add_choice(out, cap)))
			return false;
	if (!c)
		return true;
	snprintf(c->label, sizeof c->label, "safetensors");
	name_of(base_of(r->id), strlen(base_of(r->id)), c->name, sizeof c->name);
	snprintf(c->local, sizeof c->local, "%s", c->name);
	c->is_folder = true;
	for (size_t i = 0; i < r->n_files; i++)
		if ((is_of_folder(r->files[i].path) || is_weights(r, r->files[i].path)) &&
		    !add_index(c, r, i))
			return false;
	return true;
}

static int by_size(const void *a, const void *b)
{
	const struct ig_hub_choice *x = a, *y = b;

	return x->n_bytes != y->n_bytes ? (x->n_bytes > y->n_bytes ? 1 : -1) :
					  strcmp(x->label, y->label);
}

int ig_hub_choices_of(const struct ig_hub_repo *r, struct ig_hub_choices *out, struct ig_error *err)
{
	size_t cap = 0;
	bool ok = true;

	*out = (struct ig_hub_choices){ 0 };
	for (size_t i = 0; i < r->n_files && ok && out->n < MAX_CHOICES - 1; i++) {
		const char *base = base_of(r->files[i].path);
		if (ig_has_ending(base, ".gguf") && base[0] != '.' && !is_companion(base))
			ok = add_gguf(r, i, out, &cap);
	}
	ok = ok && add_folder(r, out, &cap);
	if (!ok)
		return ig_fail(err, -ENOMEM, "out of memory");
	if (out->n)
		qsort(out->list, out->n, sizeof *out->list, by_size);
	return 0;
}

void ig_hub_choices_finish(struct ig_hub_choices *c)
{
	for (size_t i = 0; i < c->n; i++)
		free(c->list[i].files);
	free(c->list);
	*c = (struct ig_hub_choices){ 0 };
}

/* ---- by a word --------------------------------------------------------------------------------- */

enum fit { AS_FILE, AS_LABEL, AS_UD_LABEL, N_FITS };

static bool fits(const struct ig_hub_repo *r, const struct ig_hub_choice *c, const char *pick,
		 enum fit how)
{
	const char *path = r->files[c->files[0]].path;

	if (how == AS_LABEL)
		return !strcasecmp(c->label, pick);
	if (how == AS_UD_LABEL)
		return !strncasecmp(c->label, "UD-", 3) && !strcasecmp(c->label + 3, pick);
	return !strcmp(path, pick) || !strcmp(base_of(path), pick) || !strcmp(c->local, pick) ||
	       !strcmp(c->name, pick);
}

int ig_hub_pick(const struct ig_hub_repo *r, const struct ig_hub_choices *c, const char *pick,
		const struct ig_hub_choice **out, struct ig_error *err)
{
	for (enum fit how = AS_FILE; how < N_FITS; how++) {
		const struct ig_hub_choice *first = NULL;
		for (size_t i = 0; i < c->n; i++) {
			if (!fits(r, &c->list[i], pick, how))
				continue;
			/* some repositories have a file whole and in parts */
			if (first && how != AS_FILE && !first->is_folder && c->list[i].is_folder)
				continue;
			if (first && !(how != AS_FILE && first->is_folder && !c->list[i].is_folder))
				return ig_fail(err, -E2BIG,
					       "%.100s has several files for %.100s; name one: "
					       "%.180s or %.180s",
					       r->id, pick, r->files[first->files[0]].path,
					       r->files[c->list[i].files[0]].path);
			first = &c->list[i];
		}
		if (!first)
			continue;
		if (!first->is_complete)
			return ig_fail(err, -EBADMSG, "%.100s: parts of %.200s are missing", r->id,
				       r->files[first->files[0]].path);
		*out = first;
		return 0;
	}
	return ig_fail(err, -ENOENT, "%.100s has no %.100s", r->id, pick);
}
