/* config_value.c: one value of the configuration: from text to its field, back to text, and the
 * error message for invalid text.  Independent of YAML; the caller passes the text's origin. */
#include "store/config_private.h"

#include "base/json.h"
#include "base/utf8.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

struct suffix {
	const char *name;
	uint64_t factor;
};

static const struct suffix byte_suffixes[] = {
	{ "KiB", KIB }, { "MiB", MIB },	   { "GiB", GIB },
	{ "kB", 1000 }, { "MB", 1000000 }, { "GB", 1000000000 },
};

/* In milliseconds, ascending. */
static const struct suffix time_suffixes[] = {
	{ "ms", 1 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 }, { "d", 86400000 },
};

#define N_OF(a) (sizeof(a) / sizeof((a)[0]))

/* ---- fields ------------------------------------------------------------------- */

static void *field(const struct config_option *o, const void *base)
{
	return (char *)(uintptr_t)base + o->offset;
}

static uint64_t get_number(const struct config_option *o, const void *base)
{
	uint32_t small;
	uint64_t large;

	if (o->size == sizeof small) {
		memcpy(&small, field(o, base), sizeof small);
		return small;
	}
	memcpy(&large, field(o, base), sizeof large);
	return large;
}

static void set_number(const struct config_option *o, void *base, uint64_t v)
{
	uint32_t small = (uint32_t)v;

	if (o->size == sizeof small)
		memcpy(field(o, base), &small, sizeof small);
	else
		memcpy(field(o, base), &v, sizeof v);
}

static void free_list(char **list)
{
	for (size_t i = 0; list && list[i]; i++)
		free(list[i]);
	free(list);
}

void config_clear(const struct config_option *o, void *base)
{
	if (config_is_list(o)) {
		char ***p = field(o, base);
		free_list(*p);
		*p = NULL;
	} else if (o->type == CONFIG_TEXT || o->type == CONFIG_NAME || o->type == CONFIG_PATH ||
		   o->type == CONFIG_CHOICE) {
		char **p = field(o, base);
		free(*p);
		*p = NULL;
	}
}

bool config_equal(const struct config_option *o, const void *a, const void *b)
{
	if (config_is_list(o)) {
		char **x = *(char ***)field(o, a), **y = *(char ***)field(o, b);
		for (; *x && *y; x++, y++)
			if (strcmp(*x, *y))
				return false;
		return !*x && !*y;
	}
	switch (o->type) {
	case CONFIG_BOOL: return *(bool *)field(o, a) == *(bool *)field(o, b);
	case CONFIG_INT:
	case CONFIG_BYTES:
	case CONFIG_TIME:
	case CONFIG_MODE: return get_number(o, a) == get_number(o, b);
	default: return !strcmp(*(char **)field(o, a), *(char **)field(o, b));
	}
}

/* ---- to text -------------------------------------------------------------------- */

/* In the largest unit without a remainder. */
static void format_bytes(struct ig_strbuf *out, uint64_t v)
{
	struct suffix best = { "", 1 };

	for (size_t i = 0; v && i < N_OF(byte_suffixes); i++)
		if (v % byte_suffixes[i].factor == 0 && byte_suffixes[i].factor > best.factor)
			best = byte_suffixes[i];
	ig_strbuf_printf(out, "%llu%s", (unsigned long long)(v / best.factor), best.name);
}

static void format_time(struct ig_strbuf *out, uint64_t ms)
{
	size_t i = N_OF(time_suffixes) - 1;

	if (ms == 0) {
		ig_strbuf_puts(out, "0s");
		return;
	}
	while (ms % time_suffixes[i].factor)
		i--; /* stops at ms, whose factor is 1 */
	ig_strbuf_printf(out, "%llu%s", (unsigned long long)(ms / time_suffixes[i].factor),
			 time_suffixes[i].name);
}

static void format_number(const struct config_option *o, uint64_t v, struct ig_strbuf *out)
{
	if (o->type == CONFIG_BYTES)
		format_bytes(out, v);
	else if (o->type == CONFIG_TIME)
		format_time(out, v);
	else if (o->type == CONFIG_MODE)
		ig_strbuf_printf(out, "%04llo", (unsigned long long)v);
	else
		ig_strbuf_printf(out, "%llu", (unsigned long long)v);
}

void config_format(const struct config_option *o, const void *base, struct ig_strbuf *out)
{
	if (config_is_list(o)) {
		struct ig_json_writer w = { .out = out, .spaced = true };
		ig_json_open_array(&w, NULL);
		for (char **item = *(char ***)field(o, base); item && *item; item++)
			ig_json_put_text(&w, NULL, *item);
		ig_json_close_array(&w);
		return;
	}
	switch (o->type) {
	case CONFIG_BOOL: ig_strbuf_puts(out, *(bool *)field(o, base) ? "true" : "false"); break;
	case CONFIG_INT:
	case CONFIG_BYTES:
	case CONFIG_MODE: format_number(o, get_number(o, base), out); break;
	case CONFIG_TIME: format_number(o, get_number(o, base) * o->ms_per_unit, out); break;
	default: {
		const char *s = *(char **)field(o, base);
		ig_strbuf_puts(out, *s ? s : "\"\"");
	}
	}
}

void config_bounds(const struct config_option *o, struct ig_strbuf *out)
{
	switch (o->type) {
	case CONFIG_INT:
	case CONFIG_BYTES:
	case CONFIG_TIME:
	case CONFIG_MODE:
		format_number(o, o->min, out);
		ig_strbuf_puts(out, " to ");
		format_number(o, o->max, out);
		break;
	case CONFIG_CHOICE:
		for (size_t i = 0; o->choices[i]; i++)
			ig_strbuf_printf(out, "%s%s", i ? ", " : "", o->choices[i]);
		break;
	default: break;
	}
}

void config_expected(const struct config_option *o, struct ig_strbuf *out)
{
	switch (o->type) {
	case CONFIG_BOOL: ig_strbuf_puts(out, "true or false"); break;
	case CONFIG_INT:
		ig_strbuf_puts(out, "a whole number ");
		if (o->unit)
			ig_strbuf_printf(out, "of %s ", o->unit);
		ig_strbuf_puts(out, "from ");
		config_bounds(o, out);
		break;
	case CONFIG_BYTES:
		ig_strbuf_printf(out, "%s from ",
				 o->power_of_two ? "a power of two in bytes" : "a size in bytes");
		config_bounds(o, out);
		ig_strbuf_puts(out, " (with KiB, MiB, GiB, kB, MB or GB)");
		break;
	case CONFIG_TIME:
		ig_strbuf_puts(out, "a time from ");
		config_bounds(o, out);
		ig_strbuf_puts(out, " with its unit (ms, s, m, h or d)");
		break;
	case CONFIG_MODE:
		ig_strbuf_puts(out, "permissions in octal from ");
		config_bounds(o, out);
		break;
	case CONFIG_TEXT:
		ig_strbuf_printf(out, "%llu to %llu characters, none of them a control character",
				 (unsigned long long)o->min, (unsigned long long)o->max);
		break;
	case CONFIG_NAME:
		ig_strbuf_puts(out, o->unit && o->min ?
					    o->unit :
					    "a model's name: 1 to 128 of A-Z a-z 0-9 . _ : / -");
		break;
	case CONFIG_PATH: ig_strbuf_puts(out, "a path"); break;
	case CONFIG_CHOICE:
		ig_strbuf_puts(out, "one of ");
		config_bounds(o, out);
		break;
	case CONFIG_HOSTS:
		ig_strbuf_puts(out, "host names such as ingot.lan, without scheme or path");
		break;
	case CONFIG_ORIGINS:
		ig_strbuf_puts(out, "origins such as https://chat.example, without a path");
		break;
	case CONFIG_PATHS: ig_strbuf_puts(out, "paths of folders"); break;
	case CONFIG_DEVICES: ig_strbuf_puts(out, "numbers of devices from 0 to 255, or all"); break;
	case CONFIG_PATTERNS:
		ig_strbuf_puts(out, "names: 1 to 128 of A-Z a-z 0-9 . _ : / - = and * for any "
				    "characters");
		break;
	}
}

char *config_quote(const char *text, size_t len, char *buf)
{
	enum { KEEP = 64 };
	size_t n = ig_utf8_cut(text, len, KEEP), at = 0;

	buf[at++] = '"';
	for (size_t i = 0; i < n; i++) {
		unsigned char ch = (unsigned char)text[i];
		buf[at++] = ch < 0x20 || ch == 0x7f ? '?' : (char)ch;
	}
	memcpy(buf + at, n < len ? "...\"" : "\"", n < len ? 5 : 2);
	return buf;
}

static int fail_expected(const struct config_option *o, const char *who, const char *text,
			 size_t len, const char *hint, struct ig_error *err)
{
	struct ig_strbuf b = { 0 };
	char got[80];

	config_expected(o, &b);
	ig_fail(err, -EINVAL, "%s: expected %s, got %s%s", who, b.data ? b.data : "another value",
		config_quote(text, len, got), hint);
	ig_strbuf_finish(&b);
	return -EINVAL;
}

/* ---- from text ------------------------------------------------------------------- */

/* Read digits, without sign and without a leading zero (which YAML 1.1 reads as octal).  Returns
 * the number of digits, or 0. */
static size_t read_digits(const char *text, size_t len, uint64_t *out)
{
	size_t n = 0;
	uint64_t v = 0;

	while (n < len && text[n] >= '0' && text[n] <= '9') {
		if (__builtin_mul_overflow(v, (uint64_t)10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(text[n] - '0'), &v))
			return 0;
		n++;
	}
	if (n > 1 && text[0] == '0')
		return 0;
	*out = v;
	return n;
}

/* Read digits [spaces] suffix; *out is the product with the suffix's factor. */
static bool read_scaled(const char *text, size_t len, const struct suffix *suffixes,
			size_t n_suffixes, bool plain, uint64_t *out)
{
	uint64_t v;
	size_t n = read_digits(text, len, &v);

	if (n == 0)
		return false;
	if (n == len) {
		*out = v;
		return plain || v == 0;
	}
	while (n < len && text[n] == ' ')
		n++;
	for (size_t i = 0; i < n_suffixes; i++) {
		if (strlen(suffixes[i].name) == len - n &&
		    !memcmp(suffixes[i].name, text + n, len - n))
			return !__builtin_mul_overflow(v, suffixes[i].factor, out);
	}
	return false;
}

/* Octal digits, as chmod takes them. */
static bool read_mode(const char *text, size_t len, uint64_t *out)
{
	uint64_t v = 0;

	if (len < 1 || len > 4)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '7')
			return false;
		v = v * 8 + (uint64_t)(text[i] - '0');
	}
	*out = v;
	return true;
}

static bool is_one_of(const char *text, size_t len, const char *const *list)
{
	for (; *list; list++)
		if (strlen(*list) == len && !memcmp(*list, text, len))
			return true;
	return false;
}

static int store_bool(void *base, const struct config_option *o, const char *who, const char *text,
		      size_t len, struct ig_error *err)
{
	static const char *const yes[] = { "yes",  "Yes",  "YES", "on", "On", "ON",
					   "True", "TRUE", "y",	  "Y",	"1",  NULL };
	static const char *const no[] = { "no",	   "No",    "NO", "off", "Off", "OFF",
					  "False", "FALSE", "n",  "N",	 "0",	NULL };
	bool v = len == 4 && !memcmp(text, "true", 4);

	if (!v && !(len == 5 && !memcmp(text, "false", 5)))
		return fail_expected(o, who, text, len,
				     is_one_of(text, len, yes) ? "; write true" :
				     is_one_of(text, len, no)  ? "; write false" :
								 "",
				     err);
	memcpy(field(o, base), &v, sizeof v);
	return 0;
}

static int store_number(void *base, const struct config_option *o, const char *who,
			const char *text, size_t len, struct ig_error *err)
{
	uint64_t v = 0;
	bool ok;

	if (o->type == CONFIG_BYTES)
		ok = read_scaled(text, len, byte_suffixes, N_OF(byte_suffixes), true, &v);
	else if (o->type == CONFIG_TIME)
		ok = read_scaled(text, len, time_suffixes, N_OF(time_suffixes), false, &v);
	else if (o->type == CONFIG_MODE)
		ok = read_mode(text, len, &v);
	else
		ok = len > 0 && read_digits(text, len, &v) == len;
	if (!ok || v < o->min || v > o->max || (o->power_of_two && (v & (v - 1))))
		return fail_expected(o, who, text, len, "", err);
	if (o->type == CONFIG_TIME) {
		if (v % o->ms_per_unit)
			return fail_expected(o, who, text, len, "; it must be whole seconds", err);
		v /= o->ms_per_unit;
	}
	set_number(o, base, v);
	return 0;
}

static bool has_control(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
			return true;
	return false;
}

bool config_is_name(const char *text, size_t len, const char *more)
{
	for (size_t i = 0; i < len; i++) {
		char ch = text[i];
		if (!((ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') ||
		      (ch >= '0' && ch <= '9') ||
		      (ch && (strchr("._:/-", ch) || strchr(more, ch)))))
			return false;
	}
	return len <= 128;
}

char *config_home(void)
{
	const char *home = getenv("HOME");
	struct passwd pw, *found = NULL;
	char buf[4096];

	if (home && home[0] == '/')
		return strdup(home);
	if (getpwuid_r(geteuid(), &pw, buf, sizeof buf, &found) || !found || pw.pw_dir[0] != '/')
		return NULL;
	return strdup(pw.pw_dir);
}

static char *join(const char *dir, const char *rest)
{
	size_t n = strlen(dir);
	char *p;

	return asprintf(&p, "%s%s%s", dir, n && dir[n - 1] == '/' ? "" : "/", rest) < 0 ? NULL : p;
}

/* An absolute path, or NULL with err filled in; who begins the message. */
static char *resolve_path(const char *dir, const char *who, const char *path, struct ig_error *err)
{
	char *out, *home = NULL;

	if (path[0] == '/') {
		out = strdup(path);
	} else if (path[0] == '~' && (path[1] == '/' || !path[1])) {
		home = config_home();
		if (!home) {
			ig_fail(err, -EINVAL, "%s: HOME is not set, so ~ cannot be replaced", who);
			return NULL;
		}
		out = join(home, path[1] ? path + 2 : "");
		free(home);
	} else if (path[0] == '~') {
		char got[80];
		ig_fail(err, -EINVAL, "%s: only ~/ is allowed, got %s", who,
			config_quote(path, strlen(path), got));
		return NULL;
	} else {
		while (path[0] == '.' && path[1] == '/')
			path += 2;
		out = join(dir, path);
	}
	if (!out)
		ig_fail(err, -ENOMEM, "%s: out of memory", who);
	return out;
}

static bool is_device(const char *text, size_t len)
{
	uint64_t v = 0;

	return (len == 3 && !memcmp(text, "all", 3)) ||
	       (read_digits(text, len, &v) == len && v <= 255);
}

/* A string in its stored form, or NULL with err filled in. */
static char *make_string(const char *dir, const struct config_option *o, const char *who,
			 const char *text, size_t len, struct ig_error *err)
{
	bool ok = len >= o->min && len <= o->max && !has_control(text, len);
	char *s, *path;

	if (ok && o->type == CONFIG_CHOICE)
		ok = is_one_of(text, len, o->choices);
	else if (ok && o->type == CONFIG_NAME)
		ok = config_is_name(text, len, "");
	else if (ok && o->type == CONFIG_PATTERNS)
		ok = config_is_name(text, len, "*=");
	else if (ok && o->type == CONFIG_DEVICES)
		ok = is_device(text, len);
	else if (ok && o->type == CONFIG_HOSTS)
		ok = !memchr(text, '/', len) && !memchr(text, ' ', len);
	else if (ok && o->type == CONFIG_ORIGINS) {
		const char *sep = memmem(text, len, "://", 3);
		ok = sep && sep > text && sep + 3 < text + len && !memchr(text, ' ', len) &&
		     !memchr(sep + 3, '/', (size_t)(text + len - (sep + 3)));
	}
	if (!ok) {
		fail_expected(o, who, text, len, "", err);
		return NULL;
	}
	s = strndup(text, len);
	if (!s) {
		ig_fail(err, -ENOMEM, "%s: out of memory", who);
		return NULL;
	}
	if (len == 0 || (o->type != CONFIG_PATH && o->type != CONFIG_PATHS) ||
	    (o->choices && is_one_of(text, len, o->choices)))
		return s;
	path = resolve_path(dir, who, s, err);
	free(s);
	return path;
}

int config_store_list(const char *dir, void *base, const struct config_option *o, const char *who,
		      char *const *items, size_t n, struct ig_error *err)
{
	struct ig_error mine = { 0 };
	char **list;

	if (n > CONFIG_MAX_ITEMS)
		return ig_fail(err, -EINVAL, "%s: more than %d entries", who, CONFIG_MAX_ITEMS);
	list = calloc(n + 1, sizeof *list);
	if (!list)
		return ig_fail(err, -ENOMEM, "%s: out of memory", who);
	for (size_t i = 0; i < n; i++) {
		list[i] = make_string(dir, o, who, items[i], strlen(items[i]), &mine);
		if (!list[i]) {
			free_list(list);
			return ig_fail(err, mine.code, "%s", mine.text);
		}
	}
	config_clear(o, base);
	memcpy(field(o, base), &list, sizeof list);
	return 0;
}

/* "a, b" as a list, as in the environment. */
static int store_commas(const char *dir, void *base, const struct config_option *o, const char *who,
			const char *text, size_t len, struct ig_error *err)
{
	char *copy = strndup(text, len), *items[CONFIG_MAX_ITEMS + 1], *save = NULL;
	size_t n = 0;

	if (!copy)
		return ig_fail(err, -ENOMEM, "%s: out of memory", who);
	for (char *p = strtok_r(copy, ",", &save); p; p = strtok_r(NULL, ",", &save)) {
		p += strspn(p, " ");
		for (size_t end = strlen(p); end > 0 && p[end - 1] == ' '; end--)
			p[end - 1] = 0;
		if (*p && n <= CONFIG_MAX_ITEMS)
			items[n++] = p;
	}
	int rc = config_store_list(dir, base, o, who, items, n, err);
	free(copy);
	return rc;
}

int config_store(const char *dir, void *base, const struct config_option *o, const char *who,
		 const char *text, size_t len, struct ig_error *err)
{
	struct ig_error mine = { 0 };
	char *s;

	if (config_is_list(o))
		return store_commas(dir, base, o, who, text, len, err);
	switch (o->type) {
	case CONFIG_BOOL: return store_bool(base, o, who, text, len, err);
	case CONFIG_INT:
	case CONFIG_BYTES:
	case CONFIG_TIME:
	case CONFIG_MODE: return store_number(base, o, who, text, len, err);
	default: break;
	}
	s = make_string(dir, o, who, text, len, &mine);
	if (!s)
		return ig_fail(err, mine.code, "%s", mine.text);
	config_clear(o, base);
	memcpy(field(o, base), &s, sizeof s);
	return 0;
}
