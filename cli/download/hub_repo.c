/* hub_repo.c: names of repositories, and the Hub's lists of files; see hub_repo.h. */
#include "cli/download/hub_repo.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "cli/term/text.h"

#define MAX_PAGES 100
#define MAX_FILES 50000
#define MAX_PATH 480
#define MAX_BYTES (UINT64_C(1) << 44)

/* ---- names ------------------------------------------------------------------------- */

/* OWNER or REPO: at most n bytes of its letters. */
static bool is_word(const char *s, size_t n)
{
	static const char ok[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

	return n && n <= 96 && s[0] != '.' && s[0] != '-' && strspn(s, ok) >= n;
}

bool ig_hub_is_repo(const char *text)
{
	const char *slash = strchr(text, '/');

	return slash && is_word(text, (size_t)(slash - text)) &&
	       is_word(slash + 1, strlen(slash + 1));
}

/* What follows one of the prefixes; NULL: it has none. */
static const char *after_prefix(const char *name)
{
	static const char *const prefixes[] = { "hf:", "hf.co/", "huggingface.co/",
						"https://hf.co/", "https://huggingface.co/" };

	for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
		if (!strncasecmp(name, prefixes[i], strlen(prefixes[i])))
			return name + strlen(prefixes[i]);
	return NULL;
}

bool ig_hub_is_ref(const char *name) { return after_prefix(name) || strchr(name, '/'); }

int ig_hub_ref_parse(const char *name, struct ig_hub_ref *out, struct ig_error *err)
{
	const char *at = after_prefix(name);
	size_t n;

	at = at ? at : name;
	n = strcspn(at, ":");
	if (n >= sizeof out->repo || strlen(at) - n > sizeof out->pick)
		return ig_fail(err, -EINVAL, "%.100s…: the name is too long", name);
	snprintf(out->repo, sizeof out->repo, "%.*s", (int)n, at);
	snprintf(out->pick, sizeof out->pick, "%s", at[n] ? at + n + 1 : "");
	if (!ig_hub_is_repo(out->repo))
		return ig_fail(err, -EINVAL,
			       "%.200s: expected OWNER/REPO, OWNER/REPO:QUANTISATION or "
			       "OWNER/REPO:FILE",
			       name);
	if (at[n] && !out->pick[0])
		return ig_fail(err, -EINVAL, "%.200s: nothing is named after the colon", name);
	return 0;
}

/* ---- the repository -------------------------------------------------------------------------- */

static void copy_plain(char *buf, size_t size, const char *s)
{
	struct ig_strbuf b = { 0 };

	if (s)
		ig_text_plain(&b, s, strlen(s), false);
	snprintf(buf, size, "%s", ig_strbuf_text(&b));
	/* not half a character at the end */
	size_t n = strlen(buf);
	while (n == size - 1 && n && ((unsigned char)buf[n - 1] & 0xc0) == 0x80)
		buf[--n] = 0;
	if (n && ((unsigned char)buf[n - 1] & 0xc0) == 0xc0)
		buf[n - 1] = 0;
	ig_strbuf_finish(&b);
}

static bool is_hex(const char *s, size_t n)
{
	return s && strlen(s) == n && strspn(s, "0123456789abcdefABCDEF") == n;
}

static void copy_hex(char *to, const char *s)
{
	for (; *s; s++)
		*to++ = *s >= 'A' && *s <= 'F' ? (char)(*s + 32) : *s;
	*to = 0;
}

static int read_json(const char *text, size_t len, const char *what, json_t **out,
		     struct ig_error *err)
{
	const struct ig_json_limits limits = { .max_depth = 32, .max_values = 4000000 };
	struct ig_json_error why;
	int rc = ig_json_read(text, len, &limits, out, &why);

	return rc ? ig_fail(err, rc, "%s: the reply is no JSON: %.150s", what, why.text) : 0;
}

/* The card's licence; one of several is the first, and "other" has a name of its own. */
static void take_license(const json_t *info, struct ig_hub_repo *out)
{
	const json_t *card = json_object_get(info, "cardData"),
		     *tags = json_object_get(info, "tags");
	const json_t *license = json_object_get(card, "license");
	const char *text = json_string_value(license), *name = ig_json_text(card, "license_name");

	if (!text)
		text = json_string_value(json_array_get(license, 0));
	for (size_t i = 0; !text && i < json_array_size(tags); i++) {
		const char *tag = json_string_value(json_array_get(tags, i));
		if (tag && !strncmp(tag, "license:", 8))
			text = tag + 8;
	}
	copy_plain(out->license, sizeof out->license,
		   text && name && !strcmp(text, "other") ? name : text);
}

int ig_hub_repo_parse_info(const char *text, size_t len, struct ig_hub_repo *out,
			   struct ig_error *err)
{
	json_t *v = NULL;
	int rc = read_json(text, len, "the repository", &v, err);
	const char *id = ig_json_text(v, "id"), *sha = ig_json_text(v, "sha");
	const json_t *gated = json_object_get(v, "gated");

	if (rc)
		return rc;
	if (!id || strlen(id) >= sizeof out->id || !ig_hub_is_repo(id)) {
		rc = ig_fail(err, -EPROTO, "the reply about the repository has no id");
	} else if (!is_hex(sha, 40) && !is_hex(sha, 64)) {
		rc = ig_fail(err, -EPROTO, "%.150s: the reply has no revision (sha)", id);
	} else {
		snprintf(out->id, sizeof out->id, "%s", id);
		copy_hex(out->commit, sha);
		out->gated = json_is_string(gated) || json_is_true(gated);
		copy_plain(out->arch, sizeof out->arch,
			   ig_json_text(json_object_get(v, "gguf"), "architecture"));
		take_license(v, out);
	}
	json_decref(v);
	return rc;
}

/* ---- its files ---------------------------------------------------------------------------------- */

/* Why a path can't be one of a file below a folder; NULL: it can. */
static const char *fault_of(const char *path)
{
	size_t n;

	if (!*path || strlen(path) > MAX_PATH)
		return "its length";
	if (*path == '/')
		return "it is absolute";
	for (const char *p = path; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f || *p == '\\')
			return "it has a control character or a backslash";
	for (const char *p = path;; p += n + 1) {
		n = strcspn(p, "/");
		if (!n || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
			return "it has an empty part, \".\" or \"..\"";
		if (n > 255)
			return "a part is too long";
		if (!p[n])
			return NULL;
	}
}

static int add_file(struct ig_hub_repo *out, const json_t *entry, struct ig_error *err)
{
	const json_t *lfs = json_object_get(entry, "lfs");
	const char *path = ig_json_text(entry, "path"), *oid = ig_json_text(entry, "oid"),
		   *sha256 = ig_json_text(lfs, "oid");
	const json_t *size = json_object_get(json_is_object(lfs) ? lfs : entry, "size");
	json_int_t n = json_is_integer(size) ? json_integer_value(size) : -1;
	const char *fault = path ? fault_of(path) : "it has none";
	char shown[200];

	copy_plain(shown, sizeof shown, path ? path : "");
	if (fault)
		return ig_fail(err, -EBADMSG, "the list of files has the path \"%s\": %s", shown,
			       fault);
	if (n < 0 || (uint64_t)n > MAX_BYTES)
		return ig_fail(err, -EBADMSG, "the list of files has no size for %s", shown);
	if (json_is_object(lfs) ? !is_hex(sha256, 64) : !is_hex(oid, 40))
		return ig_fail(err, -EBADMSG, "the list of files has no hash for %s", shown);
	if (out->n_files == MAX_FILES)
		return ig_fail(err, -E2BIG, "the repository has more than %d files", MAX_FILES);
	struct ig_hub_file *f = &out->files[out->n_files];
	*f = (struct ig_hub_file){ .path = strdup(path), .n_bytes = (uint64_t)n };
	if (!f->path)
		return ig_fail(err, -ENOMEM, "out of memory");
	copy_hex(json_is_object(lfs) ? f->sha256 : f->sha1, json_is_object(lfs) ? sha256 : oid);
	out->n_files++;
	return 0;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct ig_hub_file *)a)->path, ((const struct ig_hub_file *)b)->path);
}

int ig_hub_repo_parse_tree(const char *text, size_t len, struct ig_hub_repo *out,
			   struct ig_error *err)
{
	json_t *v = NULL;
	int rc = read_json(text, len, "the list of files", &v, err);
	size_t n = json_array_size(v);

	if (!rc && !json_is_array(v))
		rc = ig_fail(err, -EPROTO, "the list of files is not a list");
	if (!rc) {
		struct ig_hub_file *grown =
			realloc(out->files, (out->n_files + n + 1) * sizeof *grown);
		if (grown)
			out->files = grown;
		else
			rc = ig_fail(err, -ENOMEM, "out of memory");
	}
	for (size_t i = 0; !rc && i < n; i++) {
		const json_t *entry = json_array_get(v, i);
		const char *type = ig_json_text(entry, "type");
		if (type && !strcmp(type, "file"))
			rc = add_file(out, entry, err);
	}
	if (!rc)
		qsort(out->files, out->n_files, sizeof *out->files, by_path);
	for (size_t i = 1; !rc && i < out->n_files; i++)
		if (!strcmp(out->files[i - 1].path, out->files[i].path))
			rc = ig_fail(err, -EBADMSG, "the list of files has %.200s twice",
				     out->files[i].path);
	json_decref(v);
	return rc;
}

static int read_tree(const struct ig_hub *h, const char *repo, struct ig_hub_reply *r,
		     struct ig_hub_repo *out, struct ig_error *err)
{
	char first[300], url[IG_HUB_MAX_URL];
	int rc;

	snprintf(first, sizeof first, "/api/models/%s/tree/", repo);
	rc = ig_hub_url(h, url, sizeof url, err, first, out->commit,
			"?recursive=true&expand=false");
	for (unsigned i = 0; !rc; i++) {
		if (i == MAX_PAGES)
			return ig_fail(err, -E2BIG, "%s: the list of files has more than %d pages",
				       repo, MAX_PAGES);
		rc = ig_hub_ask(h, url, false, repo, r, err);
		if (!rc)
			rc = ig_hub_repo_parse_tree(ig_strbuf_text(&r->body), r->body.len, out,
						    err);
		if (rc || !r->next[0])
			return rc;
		snprintf(url, sizeof url, "%s", r->next);
	}
	return rc;
}

int ig_hub_repo_read(const struct ig_hub *h, const char *repo, struct ig_hub_repo *out,
		     struct ig_error *err)
{
	struct ig_hub_reply *r = calloc(1, sizeof *r);
	char url[IG_HUB_MAX_URL];
	int rc = r ? ig_hub_url(h, url, sizeof url, err, "/api/models/", repo, "") :
		     ig_fail(err, -ENOMEM, "out of memory");

	*out = (struct ig_hub_repo){ 0 };
	if (!rc)
		rc = ig_hub_ask(h, url, false, repo, r, err);
	if (!rc && r->location[0])
		rc = ig_fail(err, -EPROTO, "%s redirects to another host: %.200s", repo,
			     r->location);
	if (!rc)
		rc = ig_hub_repo_parse_info(ig_strbuf_text(&r->body), r->body.len, out, err);
	if (!rc)
		rc = read_tree(h, out->id, r, out, err);
	if (r)
		ig_hub_reply_finish(r);
	free(r);
	return rc;
}

void ig_hub_repo_finish(struct ig_hub_repo *r)
{
	for (size_t i = 0; i < r->n_files; i++)
		free(r->files[i].path);
	free(r->files);
	*r = (struct ig_hub_repo){ 0 };
}
