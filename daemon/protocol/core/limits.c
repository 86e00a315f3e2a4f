/*
 * limits.c: see limits.h.  Each key has an account: its running requests and two buckets.  A bucket
 * holds at most a minute's worth and fills evenly, so that no minute gets more than twice its
 * limit.  A request's output is charged at its end: the level may become negative, and the next
 * request waits until it is not.
 */
#include "daemon/protocol/core/limits.h"

#include <stdlib.h>

#define MINUTE_NS 60000000000.0
/* The most that a request is charged: beyond any context. */
#define MAX_TOKENS ((int64_t)1 << 40)
/* Idle accounts are dropped when there are so many accounts. */
#define KEEP_ACCOUNTS 64

struct bucket {
	double level;
	int64_t at_ns; /* time of the level */
	bool used;     /* false: it is full */
};

struct account {
	struct account *next;
	uint64_t identity; /* of the key; 0: of all requests without one */
	uint32_t n_running;
	struct bucket requests, tokens;
};

struct ig_limits {
	struct ig_key_limits defaults;
	struct account *accounts;
	size_t n_accounts;
};

static struct ig_key_limits defaults_of(const struct ig_key_limits *defaults)
{
	return defaults ? *defaults : (struct ig_key_limits){ 0 };
}

struct ig_limits *ig_limits_create(const struct ig_key_limits *defaults)
{
	struct ig_limits *l = calloc(1, sizeof *l);

	if (l)
		l->defaults = defaults_of(defaults);
	return l;
}

void ig_limits_destroy(struct ig_limits *l)
{
	if (!l)
		return;
	for (struct account *a = l->accounts, *next; a; a = next) {
		next = a->next;
		free(a);
	}
	free(l);
}

void ig_limits_set_defaults(struct ig_limits *l, const struct ig_key_limits *defaults)
{
	l->defaults = defaults_of(defaults);
}

/* 0: no limit. */
static uint32_t effective(uint32_t own, uint32_t by_default)
{
	uint32_t v = own ? own : by_default;

	return v == IG_LIMIT_NONE ? 0 : v;
}

/* ---- buckets ------------------------------------------------------------------------- */

/* Update the level. */
static void fill(struct bucket *b, uint32_t per_minute, int64_t now_ns)
{
	double cap = per_minute;

	if (!b->used)
		b->level = cap;
	else if (now_ns > b->at_ns)
		b->level += (double)(now_ns - b->at_ns) * cap / MINUTE_NS;
	if (b->level > cap)
		b->level = cap;
	if (!b->used || now_ns > b->at_ns)
		b->at_ns = now_ns;
	b->used = true;
}

/* Seconds until it holds amount; 0: it does now. */
static double wait_for(const struct bucket *b, uint32_t per_minute, double amount)
{
	if (amount > per_minute)
		amount = per_minute;
	/* Rounding errors are not a reason to wait. */
	return b->level >= amount - 1e-6 ? 0 : (amount - b->level) * 60 / per_minute;
}

/* ---- accounts -------------------------------------------------------------------------- */

static struct account *find(struct ig_limits *l, uint64_t identity)
{
	for (struct account *a = l->accounts; a; a = a->next)
		if (a->identity == identity)
			return a;
	return NULL;
}

static bool is_idle(const struct bucket *b, int64_t now_ns)
{
	/* After a minute a bucket is full, unless it was in debt. */
	return !b->used || (b->level >= 0 && (double)(now_ns - b->at_ns) >= MINUTE_NS);
}

/* Drop accounts that are in the state of a new one. */
static void drop_idle(struct ig_limits *l, int64_t now_ns)
{
	for (struct account **p = &l->accounts; *p;) {
		struct account *a = *p;
		if (a->n_running || !is_idle(&a->requests, now_ns) ||
		    !is_idle(&a->tokens, now_ns)) {
			p = &a->next;
			continue;
		}
		*p = a->next;
		free(a);
		l->n_accounts--;
	}
}

static struct account *find_or_make(struct ig_limits *l, uint64_t identity, int64_t now_ns)
{
	struct account *a = find(l, identity);

	if (a)
		return a;
	if (l->n_accounts >= KEEP_ACCOUNTS)
		drop_idle(l, now_ns);
	a = calloc(1, sizeof *a);
	if (!a)
		return NULL;
	a->identity = identity;
	a->next = l->accounts;
	l->accounts = a;
	l->n_accounts++;
	return a;
}

/* ---- requests ---------------------------------------------------------------------------- */

static int too_many(struct ig_api_error *e, const struct ig_principal *who, const char *what,
		    uint32_t limit, double wait_s)
{
	/* Rounded up to tenths, so that a retry then succeeds; at most a day. */
	uint64_t tenths = (uint64_t)((wait_s < 86400 ? wait_s : 86400) * 10) + 1;

	ig_api_fail(e, 429, "rate_limit_exceeded", NULL,
		    "Rate limit reached for %s%s: %u %s. Please try again in %llu.%llus.",
		    who->key[0] ? "the key " : "requests without a key", who->key, limit, what,
		    (unsigned long long)(tenths / 10), (unsigned long long)(tenths % 10));
	e->retry_after_s = (uint32_t)((tenths + 9) / 10);
	return -1;
}

/* The account of who, which may have one more concurrent request; NULL with *e. */
static struct account *enter(struct ig_limits *l, const struct ig_principal *who, int64_t now_ns,
			     struct ig_api_error *e)
{
	uint32_t concurrent = effective(who->limits.max_concurrent, l->defaults.max_concurrent);
	struct account *a = find_or_make(l, who->identity, now_ns);

	if (!a) {
		ig_fail_memory(e);
		return NULL;
	}
	/* It is not known when one of them ends; soon, probably. */
	if (concurrent && a->n_running >= concurrent) {
		too_many(e, who, "requests at once", concurrent, 0.9);
		return NULL;
	}
	return a;
}

int ig_limits_hold(struct ig_limits *l, const struct ig_principal *who, int64_t now_ns,
		   struct ig_api_error *e)
{
	struct account *a = enter(l, who, now_ns, e);

	if (!a)
		return -1;
	a->n_running++;
	return 0;
}

int ig_limits_admit(struct ig_limits *l, const struct ig_principal *who, int64_t n_tokens,
		    int64_t now_ns, struct ig_api_error *e)
{
	uint32_t requests =
		effective(who->limits.requests_per_minute, l->defaults.requests_per_minute);
	uint32_t tokens = effective(who->limits.tokens_per_minute, l->defaults.tokens_per_minute);
	double n = n_tokens < 0		 ? 0 :
		   n_tokens > MAX_TOKENS ? (double)MAX_TOKENS :
					   (double)n_tokens,
	       wait;

	struct account *a = enter(l, who, now_ns, e);
	if (!a)
		return -1;
	if (requests) {
		fill(&a->requests, requests, now_ns);
		wait = wait_for(&a->requests, requests, 1);
		if (wait > 0)
			return too_many(e, who, "requests a minute", requests, wait);
	}
	if (tokens) {
		fill(&a->tokens, tokens, now_ns);
		wait = wait_for(&a->tokens, tokens, n);
		if (wait > 0)
			return too_many(e, who, "tokens a minute", tokens, wait);
		a->tokens.level -= n;
	}
	if (requests)
		a->requests.level -= 1;
	a->n_running++;
	return 0;
}

void ig_limits_charge(struct ig_limits *l, const struct ig_principal *who, int64_t n_tokens,
		      int64_t now_ns)
{
	uint32_t tokens = effective(who->limits.tokens_per_minute, l->defaults.tokens_per_minute);
	struct account *a = find(l, who->identity);
	double n = n_tokens < -MAX_TOKENS ? -(double)MAX_TOKENS :
		   n_tokens > MAX_TOKENS  ? (double)MAX_TOKENS :
					    (double)n_tokens;

	if (!a || !tokens)
		return;
	fill(&a->tokens, tokens, now_ns);
	a->tokens.level -= n;
	if (a->tokens.level > tokens)
		a->tokens.level = tokens;
}

void ig_limits_release(struct ig_limits *l, const struct ig_principal *who)
{
	struct account *a = find(l, who->identity);

	if (a && a->n_running)
		a->n_running--;
}
