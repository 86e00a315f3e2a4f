/* prompt_rules.c: see prompt_rules.h.  It owns the compiled expressions; whose texts they are applied
 * to is its callers' business. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "store/prompt_rules.h"

#include "base/log.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Steps of one search.  The built-in rules take a few for each byte. */
#define MATCH_LIMIT 200000
#define HEAP_LIMIT_KIB 4096
#define DEPTH_LIMIT 10000
#define MAX_GROUP 9

struct rule {
	struct ig_prompt_rule text;
	pcre2_code *code;
	atomic_bool told; /* the log says that it searched too long */
};

struct ig_prompt_rules {
	atomic_uint n_refs;
	size_t n;
	struct rule rules[IG_PROMPT_MAX_RULES];
};

/* ---- built in ------------------------------------------------------------------------ */

/* A day, in the ways of which "date", JavaScript, Python and people write it. */
#define DAY                                                                                        \
	"(?:\\d{4}-\\d\\d-\\d\\d|\\d{1,2}[/.]\\d{1,2}[/.]\\d{4}|"                                  \
	"[a-z]{3,9}\\.? \\d{1,2}(?:st|nd|rd|th)?,? \\d{4}|\\d{1,2}\\.? [a-z]{3,9},? \\d{4})"
#define CLOCK "\\d{1,2}:\\d\\d(?::\\d\\d(?:[.,]\\d{1,9})?)?(?: ?[ap]\\.?m\\b\\.?)?"
#define ZONE "(?: ?(?:(?:z|utc|gmt)\\b(?:[+-]\\d\\d?(?::?\\d\\d)?)?|[+-]\\d\\d:?\\d\\d))?"

static const struct {
	const char *name, *pattern, *replacement, *help;
} builtin[] = {
	{ "claude-code-header",
	  "^x-anthropic-billing-header:"
	  "(?:[ \\t]*[\\w.-]+=(?:[^;\\n]*;|[^;\\s]*(?=\\n|\\z)))+[ \\t]*\\n?",
	  "",
	  "the line x-anthropic-billing-header, with the hash cch=, which Claude Code puts first: it is "
	  "left out" },
	{ "dates",
	  "(?i)^([^\\n]{0,80}?(?<![a-z])(?:current|today|now)(?![a-z])[^\\n\\d]{0,40}?" DAY
	  ")(?:t|,? at |,? )" CLOCK ZONE,
	  "$1",
	  "the time of day after a date in a line that says current, today or now: the date stays" },
};
#define N_BUILTIN (sizeof builtin / sizeof builtin[0])

bool ig_prompt_rule_is_builtin(const char *name)
{
	for (size_t i = 0; i < N_BUILTIN; i++)
		if (!strcmp(builtin[i].name, name))
			return true;
	return false;
}

const char *ig_prompt_rule_name(size_t i) { return i < N_BUILTIN ? builtin[i].name : NULL; }

const char *ig_prompt_rule_help(size_t i) { return i < N_BUILTIN ? builtin[i].help : NULL; }

/* ---- create -------------------------------------------------------------------------- */

static void free_list(char **list)
{
	for (size_t i = 0; list && list[i]; i++)
		free(list[i]);
	free(list);
}

void ig_prompt_rule_finish(struct ig_prompt_rule *r)
{
	free(r->name);
	free(r->pattern);
	free(r->replacement);
	free_list(r->models);
	free_list(r->except_models);
	free_list(r->clients);
	*r = (struct ig_prompt_rule){ 0 };
}

static int no_memory(struct ig_error *err) { return ig_fail(err, -ENOMEM, "out of memory"); }

static int compile(struct rule *r, struct ig_error *err)
{
	const char *pattern = r->text.pattern;
	uint32_t nothing = 0;
	PCRE2_SIZE at;
	int code;

	r->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
				PCRE2_UTF | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code, &at,
				NULL);
	if (!r->code) {
		PCRE2_UCHAR text[128] = "";
		pcre2_get_error_message(code, text, sizeof text);
		if (code == PCRE2_ERROR_HEAP_FAILED || code == PCRE2_ERROR_NOMEMORY)
			return no_memory(err);
		return ig_fail(err, -EINVAL, "the pattern does not compile: %s, at byte %zu",
			       (const char *)text, (size_t)at);
	}
	pcre2_pattern_info(r->code, PCRE2_INFO_MATCHEMPTY, &nothing);
	return nothing ? ig_fail(err, -EINVAL, "the pattern matches the empty text") : 0;
}

/* Every $ is followed by another one or by a group that the pattern has. */
static int check_replacement(const struct rule *r, struct ig_error *err)
{
	uint32_t n_groups = 0;

	pcre2_pattern_info(r->code, PCRE2_INFO_CAPTURECOUNT, &n_groups);
	for (const char *p = strchr(r->text.replacement, '$'); p; p = strchr(p + 2, '$')) {
		if (p[1] == '$')
			continue;
		if (p[1] < '0' || p[1] > '9')
			return ig_fail(err, -EINVAL,
				       "in the replacement a group ($0 to $9) or $ must follow $");
		if ((uint32_t)(p[1] - '0') > n_groups)
			return ig_fail(err, -EINVAL,
				       "the replacement has $%c; the pattern has groups up to $%u",
				       p[1], n_groups);
	}
	return 0;
}

static void finish(struct rule *r)
{
	pcre2_code_free(r->code);
	ig_prompt_rule_finish(&r->text);
	r->code = NULL;
}

static void swap_list(char ***a, char ***b)
{
	char **t = *a;

	*a = *b;
	*b = t;
}

/* Where the built-in rule of this name holds. */
static int change_builtin(struct ig_prompt_rules *rules, struct ig_prompt_rule *r,
			  struct ig_error *err)
{
	struct ig_prompt_rule *own = NULL;

	for (size_t i = 0; i < rules->n; i++)
		if (!strcmp(rules->rules[i].text.name, r->name))
			own = &rules->rules[i].text;
	if (!own)
		return ig_fail(err, -EINVAL, "pattern is missing");
	if (r->replacement && r->replacement[0])
		return ig_fail(err, -EINVAL, "this rule is built in: its replacement is fixed");
	own->enabled = r->enabled;
	swap_list(&own->models, &r->models);
	swap_list(&own->except_models, &r->except_models);
	swap_list(&own->clients, &r->clients);
	return 0;
}

static int add(struct ig_prompt_rules *rules, struct ig_prompt_rule *r, struct ig_error *err)
{
	if (rules->n == IG_PROMPT_MAX_RULES)
		return ig_fail(err, -EINVAL, "more than %d rules, the %zu built-in ones included",
			       IG_PROMPT_MAX_RULES, N_BUILTIN);
	struct rule *to = &rules->rules[rules->n];
	*to = (struct rule){ .text = *r };
	*r = (struct ig_prompt_rule){ 0 };
	int rc = compile(to, err);
	if (!rc)
		rc = check_replacement(to, err);
	if (rc)
		finish(to);
	else
		rules->n++;
	return rc;
}

int ig_prompt_rules_add(struct ig_prompt_rules *rules, struct ig_prompt_rule *r,
			struct ig_error *err)
{
	int rc;

	if (!r->pattern)
		rc = change_builtin(rules, r, err);
	else if (ig_prompt_rule_is_builtin(r->name))
		rc = ig_fail(err, -EINVAL, "this rule is built in: give yours another name");
	else
		rc = add(rules, r, err);
	ig_prompt_rule_finish(r);
	return rc;
}

struct ig_prompt_rules *ig_prompt_rules_create(void)
{
	struct ig_prompt_rules *rules = calloc(1, sizeof *rules);

	if (!rules)
		return NULL;
	rules->n_refs = 1;
	for (size_t i = 0; i < N_BUILTIN; i++) {
		struct ig_prompt_rule r = { .name = strdup(builtin[i].name),
					    .pattern = strdup(builtin[i].pattern),
					    .replacement = strdup(builtin[i].replacement),
					    .enabled = true };
		struct ig_error err = { 0 };
		int rc = r.name && r.pattern && r.replacement ? add(rules, &r, &err) : -ENOMEM;
		ig_prompt_rule_finish(&r);
		if (rc) {
			ig_prompt_rules_unref(rules);
			return NULL;
		}
	}
	return rules;
}

struct ig_prompt_rules *ig_prompt_rules_ref(struct ig_prompt_rules *rules)
{
	if (rules)
		atomic_fetch_add(&rules->n_refs, 1);
	return rules;
}

void ig_prompt_rules_unref(struct ig_prompt_rules *rules)
{
	if (!rules || atomic_fetch_sub(&rules->n_refs, 1) > 1)
		return;
	for (size_t i = 0; i < rules->n; i++)
		finish(&rules->rules[i]);
	free(rules);
}

size_t ig_prompt_rules_n(const struct ig_prompt_rules *rules) { return rules->n; }

const struct ig_prompt_rule *ig_prompt_rules_get(const struct ig_prompt_rules *rules, size_t i)
{
	return &rules->rules[i].text;
}

/* ---- a prompt ------------------------------------------------------------------------ */

static bool is_listed(char *const *list, const char *name)
{
	for (; list && *list; list++)
		if (!fnmatch(*list, name, 0)) /* of its signs a name has only "*" */
			return true;
	return false;
}

static bool holds(const struct ig_prompt_rule *r, const struct ig_prompt_pass *p)
{
	return r->enabled && (!r->models || !r->models[0] || is_listed(r->models, p->model)) &&
	       !is_listed(r->except_models, p->model) &&
	       (!r->clients || !r->clients[0] || is_listed(r->clients, p->client));
}

struct search {
	pcre2_match_context *limits;
	pcre2_match_data *data;
};

static void search_finish(struct search *s)
{
	pcre2_match_data_free(s->data);
	pcre2_match_context_free(s->limits);
}

static int search_init(struct search *s)
{
	s->limits = pcre2_match_context_create(NULL);
	s->data = pcre2_match_data_create(MAX_GROUP + 1, NULL);
	if (!s->limits || !s->data) {
		search_finish(s);
		return -ENOMEM;
	}
	pcre2_set_match_limit(s->limits, MATCH_LIMIT);
	pcre2_set_heap_limit(s->limits, HEAP_LIMIT_KIB);
	pcre2_set_depth_limit(s->limits, DEPTH_LIMIT);
	return 0;
}

/* n_spans: of the groups that the match has set. */
static void put_replacement(struct ig_strbuf *out, const char *s, const char *text,
			    const PCRE2_SIZE *spans, int n_spans)
{
	for (; *s; s++) {
		int group = s[0] == '$' ? s[1] - '0' : -1;
		if (s[0] != '$') {
			ig_strbuf_add(out, s, 1);
			continue;
		}
		s++;
		if (*s == '$')
			ig_strbuf_puts(out, "$");
		else if (group < n_spans && spans[2 * group] != PCRE2_UNSET)
			ig_strbuf_add(out, text + spans[2 * group],
				      spans[2 * group + 1] - spans[2 * group]);
	}
}

/* The text with the rule's matches in its first n_seen bytes replaced: their number, or -1: it
 * searched too long. */
static int replace(const struct rule *r, struct search *s, const char *text, size_t len,
		   size_t n_seen, struct ig_strbuf *out)
{
	uint32_t flags = PCRE2_NOTEMPTY | (n_seen < len ? PCRE2_NOTEOL : 0);
	size_t at = 0;
	int n = 0;

	for (; n < IG_PROMPT_RULE_MATCHES; n++) {
		int n_spans =
			pcre2_match(r->code, (PCRE2_SPTR)text, n_seen, at,
				    at ? flags | PCRE2_NO_UTF_CHECK : flags, s->data, s->limits);
		const PCRE2_SIZE *spans = pcre2_get_ovector_pointer(s->data);
		if (n_spans == PCRE2_ERROR_NOMATCH)
			break;
		/* \K in a look-around can end a match before its start */
		if (n_spans < 0 || spans[0] < at || spans[1] <= spans[0])
			return -1;
		ig_strbuf_add(out, text + at, spans[0] - at);
		/* 0: the pattern has more groups than there is space for */
		put_replacement(out, r->text.replacement, text, spans,
				n_spans ? n_spans : MAX_GROUP + 1);
		at = spans[1];
	}
	ig_strbuf_add(out, text + at, len - at);
	return n;
}

static void abandon(struct ig_prompt_pass *p, size_t i)
{
	struct rule *r = &p->rules->rules[i];

	p->abandoned |= (uint64_t)1 << i;
	if (!atomic_exchange(&r->told, true))
		ig_log_warn("kvcache.normalize: the rule %s searched a text for too long, so that "
			    "text stays as it is; this is logged once",
			    r->text.name);
}

/* The bytes that the rules see; a character is seen as a whole. */
static size_t take_window(struct ig_prompt_pass *p, const char *text, size_t len)
{
	size_t left = IG_PROMPT_RULE_BYTES - p->n_bytes, n = len < left ? len : left;

	if (p->n_texts >= IG_PROMPT_RULE_TEXTS)
		return 0;
	p->n_texts++;
	p->n_bytes += n;
	while (n && n < len && ((unsigned char)text[n] & 0xc0) == 0x80)
		n--;
	return n;
}

int ig_prompt_pass_text(struct ig_prompt_pass *p, const char *text, size_t len,
			struct ig_strbuf *out)
{
	size_t n_seen = p->rules ? take_window(p, text, len) : 0;
	struct ig_strbuf now = { 0 };
	struct search s = { 0 };
	bool changed = false;

	if (!n_seen)
		return 0;
	if (search_init(&s) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < p->rules->n && n_seen; i++) {
		const struct rule *r = &p->rules->rules[i];
		if (p->abandoned >> i & 1 || !holds(&r->text, p))
			continue;
		ig_strbuf_clear(&now);
		int n = replace(r, &s, changed ? ig_strbuf_text(out) : text,
				changed ? out->len : len, n_seen, &now);
		if (n < 0)
			abandon(p, i);
		if (n <= 0)
			continue;
		/* what was not seen stays unseen */
		n_seen = now.len - ((changed ? out->len : len) - n_seen);
		struct ig_strbuf was = *out;
		*out = now;
		now = was;
		changed = true;
		p->applied |= (uint64_t)1 << i;
		if (!ig_strbuf_ok(out))
			break;
	}
	search_finish(&s);
	ig_strbuf_finish(&now);
	return !ig_strbuf_ok(out) ? -ENOMEM : changed;
}
