/* load.c: see load.h.  Random numbers are SplitMix64's (Steele, Lea and Flood, 2014), which gives any
 * element of a sequence at once: word k of a prompt needs no word before it. */
#include "cli/bench/load.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/json.h"

/* Four letters each and common: one token in most vocabularies, and with single bytes as tokens
 * equally many. */
static const char words[][5] = {
	"time", "year", "life", "work", "hand", "part", "case", "week", "fact", "home", "room",
	"area", "word", "book", "side", "kind", "head", "line", "city", "name", "team", "idea",
	"body", "back", "face", "door", "game", "food", "land", "form", "plan", "road", "view",
	"town", "mind", "love", "cost", "type", "page", "role", "rate", "term", "wall", "bank",
	"rule", "film", "unit", "wife", "king", "list", "east", "west", "lake", "tree", "hill",
	"fire", "ship", "song", "milk", "snow", "wind", "rain", "gold", "iron",
};

enum { N_WORDS = sizeof words / sizeof words[0] };

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return x ^ (x >> 31);
}

/* Element i of the sequence that begins with this state. */
static uint64_t element(uint64_t state, uint64_t i)
{
	return mix(state + (i + 1) * 0x9e3779b97f4a7c15);
}

/* In (0, 1]. */
static double uniform(uint64_t seed, uint64_t i)
{
	return ((double)(element(seed, i) >> 11) + 1) / 9007199254740992.0;
}

const char *ig_bench_arrivals_name(enum ig_bench_arrivals a)
{
	static const char *const names[IG_N_BENCH_ARRIVALS] = { "poisson", "even", "bursts" };

	return a < IG_N_BENCH_ARRIVALS ? names[a] : NULL;
}

int ig_bench_load_make(enum ig_bench_arrivals a, double rate, size_t n, size_t n_burst,
		       uint32_t n_input, uint32_t n_output, uint64_t seed,
		       struct ig_bench_load *out, struct ig_error *err)
{
	size_t group = a == IG_BENCH_BURSTS ? n_burst : 1;
	double at = 0, sum = 0;

	*out = (struct ig_bench_load){ .seed = seed };
	out->requests = calloc(n, sizeof *out->requests);
	if (!out->requests)
		return ig_fail(err, -ENOMEM, "out of memory");
	out->n = n;
	for (size_t i = 0; i < n; i++) {
		if (i % group == 0) {
			at = sum;
			sum += a == IG_BENCH_EVEN ? 1 : -log(uniform(seed, i));
		}
		out->requests[i] = (struct ig_bench_request){
			.at_s = at, .n_input = n_input, .n_output = n_output, .words = i
		};
	}
	for (size_t i = 0; i < n; i++)
		out->requests[i].at_s *= sum > 0 ? (double)n / rate / sum : 0;
	return 0;
}

/* ---- traces -------------------------------------------------------------------------- */

/* A number of the line; false with text when it is missing (required), or not in [min, max]. */
static bool get_number(const json_t *line, const char *key, double min, double max, double *out,
		       struct ig_error *err)
{
	const json_t *v = json_object_get(line, key);
	double x = json_is_number(v) ? json_number_value(v) : NAN;

	if (x >= min && x <= max) {
		*out = x;
		return true;
	}
	ig_fail(err, -EINVAL, v ? "%s is not a number from %.0f to %.0f" : "%s is missing", key,
		min, max);
	return false;
}

static bool get_blocks(struct ig_bench_load *l, struct ig_bench_request *r, const json_t *ids,
		       size_t *cap, struct ig_error *err)
{
	size_t n = json_array_size(ids);

	if (ids && !json_is_array(ids)) {
		ig_fail(err, -EINVAL, "hash_ids is not a list");
		return false;
	}
	r->first_block = l->n_blocks;
	r->n_blocks = n;
	for (size_t i = 0; i < n; i++) {
		const json_t *id = json_array_get(ids, i);
		if (!json_is_integer(id)) {
			ig_fail(err, -EINVAL, "hash_ids[%zu] is not a whole number", i);
			return false;
		}
		if (!ig_array_grow(l->blocks, cap, l->n_blocks)) {
			ig_fail(err, -ENOMEM, "out of memory");
			return false;
		}
		l->blocks[l->n_blocks++] = (uint64_t)json_integer_value(id);
	}
	return true;
}

/* With a bit that no request's number has. */
static uint64_t name_hash(const char *s) { return ig_fnv1a(IG_FNV1A, s, strlen(s)) | 1ull << 63; }

static bool get_request(struct ig_bench_load *l, struct ig_bench_request *r, const json_t *line,
			size_t *cap_blocks, struct ig_error *err)
{
	const json_t *session = json_object_get(line, "session");
	double at_ms, n_input, n_output;

	if (!json_is_object(line)) {
		ig_fail(err, -EINVAL, "not an object");
		return false;
	}
	if (session && !json_is_string(session)) {
		ig_fail(err, -EINVAL, "session is not a string");
		return false;
	}
	if (!get_number(line, "timestamp", 0, 1e13, &at_ms, err) ||
	    !get_number(line, "input_length", 1, IG_BENCH_MAX_TOKENS, &n_input, err) ||
	    !get_number(line, "output_length", 1, IG_BENCH_MAX_TOKENS, &n_output, err))
		return false;
	/* requests of one session have prompts that continue each other */
	*r = (struct ig_bench_request){
		.at_s = at_ms / 1000,
		.n_input = (uint32_t)n_input,
		.n_output = (uint32_t)n_output,
		.words = session ? name_hash(json_string_value(session)) : l->n,
	};
	if (l->n && r->at_s < l->requests[l->n - 1].at_s) {
		ig_fail(err, -EINVAL, "timestamp is smaller than the line's before");
		return false;
	}
	return get_blocks(l, r, json_object_get(line, "hash_ids"), cap_blocks, err);
}

/* The first arrival is the run's start; rate > 0: so many requests a second on average. */
static void place(struct ig_bench_load *l, double rate)
{
	double first = l->requests[0].at_s, scale = 1;

	for (size_t i = 0; i < l->n; i++)
		l->requests[i].at_s -= first;
	double have = ig_bench_load_rate(l);
	if (rate > 0 && isfinite(have))
		scale = have / rate;
	for (size_t i = 0; i < l->n; i++)
		l->requests[i].at_s *= scale;
}

int ig_bench_load_read(const char *name, const char *text, size_t len, double rate,
		       size_t max_requests, uint64_t seed, struct ig_bench_load *out,
		       struct ig_error *err)
{
	size_t cap = 0, cap_blocks = 0, line_no = 0;
	size_t most = max_requests ? max_requests : IG_BENCH_MAX_REQUESTS;
	int rc = 0;

	*out = (struct ig_bench_load){ .seed = seed };
	for (const char *p = text, *end = text + len; !rc && p < end && out->n < most;) {
		const char *newline = memchr(p, '\n', (size_t)(end - p));
		size_t n = newline ? (size_t)(newline - p) : (size_t)(end - p);
		struct ig_json_error why;
		struct ig_error said = { 0 };
		json_t *line = NULL;

		line_no++;
		if (strspn(p, " \t\r") < n) {
			if (!ig_array_grow(out->requests, &cap, out->n))
				rc = ig_fail(err, -ENOMEM, "out of memory");
			else if (ig_json_read(p, n, NULL, &line, &why))
				rc = ig_fail(err, -EINVAL, "%.300s: line %zu: %s", name, line_no,
					     why.text);
			else if (!get_request(out, &out->requests[out->n], line, &cap_blocks,
					      &said))
				rc = ig_fail(err, said.code, "%.300s: line %zu: %s", name, line_no,
					     said.text);
			else
				out->n++;
			json_decref(line);
		}
		p += n + 1;
	}
	if (!rc && !out->n)
		rc = ig_fail(err, -EINVAL, "%.300s: has no request", name);
	if (rc)
		ig_bench_load_finish(out);
	else
		place(out, rate);
	return rc;
}

void ig_bench_load_finish(struct ig_bench_load *l)
{
	free(l->requests);
	free(l->blocks);
	*l = (struct ig_bench_load){ 0 };
}

double ig_bench_load_rate(const struct ig_bench_load *l)
{
	double span = l->n ? l->requests[l->n - 1].at_s - l->requests[0].at_s : 0;

	/* n arrivals have n - 1 gaps between them */
	return l->n > 1 && span > 0 ? (double)(l->n - 1) / span : INFINITY;
}

/* ---- prompts ------------------------------------------------------------------------- */

/* Sequences of words: each kind has its own, so that no prompt begins like another by chance. */
enum sequence { SEQUENCE_OWN = 1, SEQUENCE_SHARED, SEQUENCE_BLOCK, SEQUENCE_OTHER };

static uint64_t sequence(uint64_t seed, enum sequence kind, uint64_t id)
{
	return mix(mix(seed + (uint64_t)kind * 0x9e3779b97f4a7c15) ^ mix(id));
}

static void add_word(struct ig_strbuf *out, uint64_t state, uint64_t k)
{
	const char *w = words[element(state, k) % N_WORDS];

	ig_strbuf_puts(out, out->len ? " " : "");
	ig_strbuf_puts(out, w);
}

bool ig_bench_words(uint64_t seed, uint64_t id, size_t n, struct ig_strbuf *out)
{
	for (size_t k = 0; k < n; k++)
		add_word(out, sequence(seed, SEQUENCE_OTHER, id), k);
	return ig_strbuf_ok(out);
}

bool ig_bench_prompt(const struct ig_bench_load *l, const struct ig_bench_request *r,
		     const struct ig_bench_scale *scale, struct ig_strbuf *out)
{
	double wanted = round((r->n_input - scale->fixed) / scale->per_word);
	size_t n = wanted > 1 ? (size_t)wanted : 1;

	for (size_t k = 0; k < n; k++) {
		size_t token = (size_t)((double)k * scale->per_word + scale->fixed);
		size_t block = token / IG_BENCH_BLOCK;
		if (token < l->n_shared)
			add_word(out, sequence(l->seed, SEQUENCE_SHARED, 0), k);
		else if (block < r->n_blocks)
			add_word(out,
				 sequence(l->seed, SEQUENCE_BLOCK,
					  l->blocks[r->first_block + block]),
				 k);
		else
			add_word(out, sequence(l->seed, SEQUENCE_OWN, r->words), k);
	}
	return ig_strbuf_ok(out);
}
