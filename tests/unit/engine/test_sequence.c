/*
 * test_sequence.c: from ids to text: stop strings over the borders of tokens, what is
 * held back, small rings; and the checks of a request.
 */
#include "harness.h"

#include "base/lock.h"
#include "daemon/engine/logprobs.h"
#include "daemon/engine/registry_private.h"
#include "daemon/engine/sequence_private.h"

static struct ig_tokenizer *tokenizer;
static struct ig_models models;
static struct ig_model model;

static int setup(void **state)
{
	fake_reset();
	memset(&model, 0, sizeof model);
	assert_int_equal(ig_checkpoint_open("good", NULL, &model.file, NULL), 0);
	assert_int_equal(ig_tokenizer_open(model.file, &tokenizer, NULL), 0);
	model.name = strdup("good");
	model.max_kv_tokens = 300;
	model.shown = (struct ig_engine_model){
		.name = model.name, .instance = &model, .tokenizer = tokenizer, .n_context = 400
	};
	model.n_logits = FAKE_LOGITS;
	assert_int_equal(ig_lock_init(&models.lock, &models.wake), 0);
	model.home = &models;
	model.n_holds = 1;
	model.gives_logits = true;
	return 0;
}

static int teardown(void **state)
{
	assert_int_equal(model.n_holds, 1);
	pthread_cond_destroy(&models.wake);
	pthread_mutex_destroy(&models.lock);
	ig_tokenizer_close(tokenizer);
	ig_checkpoint_close(model.file);
	free(model.name);
	return 0;
}

static struct ig_gen_spec spec_of(const char *const *stops, size_t ring)
{
	static struct ig_origin origin = { .n_refs = 1 };
	static int32_t prompt[3];

	return (struct ig_gen_spec){ .origin = &origin,
				     .model = &model.shown,
				     .prompt = prompt,
				     .n_prompt = 3,
				     .sampling = { .top_p = 1, .stops = (char **)stops },
				     .n_top = -1,
				     .stream = ig_stream_create(ring, NULL, NULL) };
}

static void drop_spec(struct ig_gen_spec *spec)
{
	ig_stream_unref(spec->stream);
	ig_stream_unref(spec->stream);
}

static struct ig_seq *make(const char *const *stops, size_t ring, struct ig_stream **stream)
{
	struct ig_gen_spec spec = spec_of(stops, ring);
	struct ig_error err = { 0 };
	struct ig_seq *s;

	*stream = spec.stream;
	if (ig_seq_create(&spec, 0, false, &s, &err) < 0)
		fail_msg("%s", err.text);
	ig_seq_adopt(s, &spec);
	return s;
}

/* The same with a ring of so many logprobs. */
static struct ig_seq *make_noted(const char *const *stops, size_t ring, int32_t n_top,
				 uint32_t n_logprobs, struct ig_stream **stream)
{
	struct ig_gen_spec spec = spec_of(stops, ring);
	struct ig_error err = { 0 };
	struct ig_seq *s;

	*stream = spec.stream;
	spec.n_top = n_top;
	assert_int_equal(ig_stream_enable_logprobs(spec.stream, n_logprobs), 0);
	if (ig_seq_create(&spec, 0, false, &s, &err) < 0)
		fail_msg("%s", err.text);
	ig_seq_adopt(s, &spec);
	return s;
}

/* A token is sampled, as the scheduler takes it. */
static void draw(struct ig_seq *s, int32_t id)
{
	float logits[FAKE_LOGITS];

	if (s->n_top >= 0) {
		fake_logits(s->tokens, s->n_tokens, logits);
		assert_int_equal(ig_seq_add_logprob(s, id, logits), 0);
	}
	s->tokens[s->n_tokens++] = id;
}

/* Feed ids one by one, as the scheduler does, then the end; what came out in text.
 * Returns the number of ids shown. */
static int32_t run(const char *const *stops, const int32_t *ids, int32_t n, char *text, size_t cap,
		   enum ig_finish *finish)
{
	struct ig_stream *stream;
	struct ig_seq *s = make(stops, 4096, &stream);
	size_t len = 0;
	int32_t shown;

	for (int32_t i = 0; i < n && !s->text_done; i++) {
		s->tokens[s->n_tokens++] = ids[i];
		ig_seq_show(s);
		assert_int_equal(s->n_ready, 0);
		len += ig_stream_take(stream, text + len, cap - 1 - len);
	}
	if (s->result.finish == IG_FINISH_NONE)
		s->result.finish = IG_FINISH_LENGTH;
	ig_seq_show(s);
	assert_true(ig_seq_is_shown(s));
	len += ig_stream_take(stream, text + len, cap - 1 - len);
	text[len] = 0;
	*finish = s->result.finish;
	shown = ig_seq_n_output(s);
	ig_seq_destroy(s);
	ig_stream_unref(stream);
	return shown;
}

static void assert_stops(const char *const *stops, const int32_t *ids, int32_t n, const char *want,
			 enum ig_finish finish, int32_t n_output)
{
	char text[4096];
	enum ig_finish f;
	int32_t got = run(stops, ids, n, text, sizeof text, &f);

	assert_string_equal(text, want);
	assert_int_equal(f, finish);
	assert_int_equal(got, n_output);
}

static void test_stop_inside_and_across(void **state)
{
	const int32_t ids[] = { 14, 15, 16, 17 }; /* the |quick |brown |fox */

	assert_stops(NULL, ids, 4, "the quick brown fox", IG_FINISH_LENGTH, 4);
	assert_stops((const char *[]){ "uic", NULL }, ids, 4, "the q", IG_FINISH_STOP, 2);
	assert_stops((const char *[]){ "quick ", NULL }, ids, 4, "the ", IG_FINISH_STOP, 2);
	assert_stops((const char *[]){ "k b", NULL }, ids, 4, "the quic", IG_FINISH_STOP, 3);
	assert_stops((const char *[]){ " quick brown ", NULL }, ids, 4, "the", IG_FINISH_STOP, 3);
	assert_stops((const char *[]){ "t", NULL }, ids, 4, "", IG_FINISH_STOP, 1);
	assert_stops((const char *[]){ "fox", NULL }, ids, 4, "the quick brown ", IG_FINISH_STOP,
		     4);
	assert_stops((const char *[]){ "foxy", "x.", NULL }, ids, 4, "the quick brown fox",
		     IG_FINISH_LENGTH, 4);
	/* the one that is complete first, and of those that end together the longest */
	assert_stops((const char *[]){ "brown", "e q", "quick", NULL }, ids, 4, "th",
		     IG_FINISH_STOP, 2);
	assert_stops((const char *[]){ "ick", "quick", "k", NULL }, ids, 4, "the ", IG_FINISH_STOP,
		     2);
}

static void test_held_back(void **state)
{
	struct ig_stream *stream;
	struct ig_seq *s = make((const char *[]){ "abab!", NULL }, 4096, &stream);
	const int32_t ids[] = { 21, 3, 0, 1, 3, 2 }; /* d ab a b ab c */
	const char *const shown[] = { "d", "d", "d", "d", "dab", "dabababc" };
	char text[64];
	size_t len = 0;

	for (int i = 0; i < 6; i++) {
		s->tokens[s->n_tokens++] = ids[i];
		ig_seq_show(s);
		len += ig_stream_take(stream, text + len, sizeof text - 1 - len);
		text[len] = 0;
		assert_string_equal(text, shown[i]);
	}
	/* what is held back at the end is text like any other */
	s->tokens[s->n_tokens++] = 3;
	ig_seq_show(s);
	assert_int_equal(ig_stream_take(stream, text + len, sizeof text - len), 0);
	s->result.finish = IG_FINISH_STOP; /* an end token */
	ig_seq_show(s);
	assert_int_equal(ig_stream_take(stream, text + len, sizeof text - len), 2);
	assert_memory_equal(text + len, "ab", 2);
	assert_int_equal(ig_seq_n_output(s), 7);
	ig_seq_destroy(s);
	ig_stream_unref(stream);
}

/* The plain definition: the first place where any of them is complete, cut before the
 * longest that is complete there. */
static size_t naive_cut(const char *text, const char *const *stops, bool *found)
{
	for (size_t end = 1; end <= strlen(text); end++) {
		size_t best = 0;
		for (size_t k = 0; stops[k]; k++) {
			size_t n = strlen(stops[k]);
			if (n <= end && n > best && !memcmp(text + end - n, stops[k], n))
				best = n;
		}
		if (best) {
			*found = true;
			return end - best;
		}
	}
	*found = false;
	return strlen(text);
}

static void test_random_stops(void **state)
{
	unsigned rng = 12345;
	int n_found = 0, n_not = 0;

#define RND(n) (rng = rng * 1664525u + 1013904223u, (rng >> 16) % (n))
	for (int round = 0; round < 20000; round++) {
		char stop_text[3][8], whole[256] = "", got[256];
		const char *stops[4] = { 0 };
		int32_t ids[24];
		int32_t n = 1 + (int32_t)RND(20);
		enum ig_finish f;
		bool found;
		size_t cut;

		for (unsigned k = 0, m = 1 + RND(3); k < m; k++) {
			unsigned len = 1 + RND(7);
			for (unsigned i = 0; i < len; i++)
				stop_text[k][i] = "aabbc"[RND(5)];
			stop_text[k][len] = 0;
			stops[k] = stop_text[k];
		}
		for (int32_t i = 0; i < n; i++) {
			ids[i] = (int32_t)RND(12); /* a b c ab ba … */
			strcat(whole, fake_token_text(ids[i]));
		}
		cut = naive_cut(whole, stops, &found);
		run(stops, ids, n, got, sizeof got, &f);
		if (strlen(got) != cut || memcmp(got, whole, cut) ||
		    f != (found ? IG_FINISH_STOP : IG_FINISH_LENGTH))
			fail_msg("round %d: \"%s\" of \"%s\", expected %zu bytes", round, got,
				 whole, cut);
		found ? n_found++ : n_not++;
	}
#undef RND
	assert_true(n_found > 1000 && n_not > 1000);
}

static void test_small_ring(void **state)
{
	struct ig_stream *stream;
	struct ig_seq *s = make((const char *[]){ "ten", NULL }, 16, &stream);
	char text[128];
	size_t len = 0;

	s->tokens[s->n_tokens++] = 54; /* one two … ten: 49 bytes */
	s->tokens[s->n_tokens++] = 0;
	ig_seq_show(s);
	assert_true(s->n_ready > 0);
	assert_int_equal(s->n_shown, 4); /* the second token waits */
	for (int i = 0; i < 10; i++) {
		len += ig_stream_take(stream, text + len, sizeof text - len);
		ig_seq_show(s);
	}
	text[len] = 0;
	assert_string_equal(text, "one two three four five six seven eight nine ");
	assert_true(ig_seq_is_shown(s));
	assert_int_equal(s->result.finish, IG_FINISH_STOP);
	assert_int_equal(ig_seq_n_output(s), 1); /* the token past the stop does not count */
	ig_seq_destroy(s);

	/* pieces never cut a character */
	ig_stream_unref(stream);
	s = make(NULL, 16, &stream);
	for (int i = 0; i < 40; i++)
		s->tokens[s->n_tokens++] = 20 - i % 2; /* four bytes and three */
	s->result.finish = IG_FINISH_LENGTH;
	len = 0;
	for (int i = 0; i < 100 && !ig_seq_is_shown(s); i++) {
		ig_seq_show(s);
		size_t n = ig_stream_take(stream, text, sizeof text);
		assert_true(n == 0 || ((unsigned char)text[0] & 0xc0) != 0x80);
		len += n;
	}
	len += ig_stream_take(stream, text, sizeof text);
	assert_int_equal(len, 20 * 7);
	ig_seq_destroy(s);
	ig_stream_unref(stream);
}

static void test_dropped_text(void **state)
{
	struct ig_stream *stream;
	struct ig_seq *s = make(NULL, 16, &stream);

	s->tokens[s->n_tokens++] = 54;
	ig_seq_show(s);
	assert_false(ig_seq_is_shown(s));
	ig_seq_drop_text(s);
	assert_true(ig_seq_is_shown(s));
	ig_seq_show(s);
	assert_true(ig_seq_is_shown(s));
	ig_seq_destroy(s);
	ig_stream_unref(stream);
}

/* ---- log probabilities ----------------------------------------------------------------- */

static void assert_logprobs(const struct ig_token_logprob *logprob, const struct ig_seq *s,
			    int32_t token, int32_t n_top)
{
	struct ig_token_prob top[IG_MAX_TOP];
	float logits[FAKE_LOGITS], p;
	int32_t n;

	fake_logits(s->tokens, token, logits);
	p = ig_logprobs(logits, FAKE_LOGITS, FAKE_VOCAB, s->tokens[token], top, n_top, &n);
	assert_int_equal(logprob->id, s->tokens[token]);
	assert_int_equal(logprob->n_top, n_top);
	assert_memory_equal(&logprob->logprob, &p, sizeof p);
	assert_memory_equal(logprob->top, top, (size_t)n * sizeof *top);
}

/* Sample ids, take text and logprobs, compare their text_end with ends[n_ends]. */
static void assert_ends_by(enum ig_finish finish, const char *const *stops, const int32_t *ids,
			   int32_t n, const uint64_t *ends, size_t n_ends, const char *want,
			   int32_t stop_index)
{
	struct ig_token_logprob logprobs[64];
	struct ig_stream *stream;
	struct ig_seq *s = make_noted(stops, 4096, 3, 8, &stream);
	size_t n_logprobs = 0, len = 0;
	char text[256];

	for (int32_t i = 0; i < n && !s->text_done; i++) {
		draw(s, ids[i]);
		ig_seq_show(s);
		len += ig_stream_take(stream, text + len, sizeof text - 1 - len);
		n_logprobs +=
			ig_stream_take_logprobs(stream, logprobs + n_logprobs, 64 - n_logprobs);
		/* text and logprobs stay in step */
		assert_int_equal(len, n_logprobs ? logprobs[n_logprobs - 1].text_end : 0);
	}
	if (s->result.finish == IG_FINISH_NONE)
		s->result.finish = finish;
	ig_seq_show(s);
	assert_true(ig_seq_is_shown(s));
	len += ig_stream_take(stream, text + len, sizeof text - 1 - len);
	text[len] = 0;
	n_logprobs += ig_stream_take_logprobs(stream, logprobs + n_logprobs, 64 - n_logprobs);
	assert_string_equal(text, want);
	assert_int_equal(s->result.stop_index, stop_index);
	assert_int_equal(n_logprobs, n_ends);
	for (size_t i = 0; i < n_ends; i++) {
		assert_logprobs(&logprobs[i], s, s->n_prompt + (int32_t)i, 3);
		assert_int_equal(logprobs[i].text_end, ends[i]);
	}
	ig_seq_destroy(s);
	ig_stream_unref(stream);
}

#define assert_ends(...) assert_ends_by(IG_FINISH_LENGTH, __VA_ARGS__)
#define IDS(...) (const int32_t[]){ __VA_ARGS__ }, sizeof((int32_t[]){ __VA_ARGS__ }) / 4
#define ENDS(...) (const uint64_t[]){ __VA_ARGS__ }, sizeof((uint64_t[]){ __VA_ARGS__ }) / 8
#define STOPS(...)                                                                                 \
	(const char *[]) { __VA_ARGS__, NULL }

static void test_where_text_ends(void **state)
{
	assert_ends(NULL, IDS(14, 15, 0), ENDS(4, 10, 11), "the quick a", -1);
	/* a character of two tokens is the second's; one that is never whole the last's */
	assert_ends(NULL, IDS(0, 61, 62, 1), ENDS(1, 1, 4, 5),
		    "a\xe2\x82\xac"
		    "b",
		    -1);
	assert_ends(NULL, IDS(0, 61, 1), ENDS(1, 1, 5),
		    "a\xef\xbf\xbd"
		    "b",
		    -1);
	assert_ends_by(IG_FINISH_STOP, NULL, IDS(0, 61), ENDS(1, 4), "a\xef\xbf\xbd", -1);
	assert_ends_by(IG_FINISH_STOP, NULL, IDS(61, 60), ENDS(0, 3), "\xef\xbf\xbd", -1);
	/* a limit cuts before the character that it cuts; an end token does not take its bytes back */
	assert_ends(NULL, IDS(0, 61), ENDS(1, 1), "a", -1);
	assert_ends(NULL, IDS(61, 60), ENDS(0, 0), "", -1);
	assert_ends(NULL, IDS(0, 61, 1, 61), ENDS(1, 1, 5, 5),
		    "a\xef\xbf\xbd"
		    "b",
		    -1);
	assert_ends(NULL, IDS(60, 0, 60, 60), ENDS(0, 1, 1, 1), "a", -1); /* without text */
	/* held back, and no stop string after all; then with its end */
	assert_ends(STOPS("abab!"), IDS(21, 3, 0, 1, 3, 2), ENDS(1, 3, 4, 5, 7, 8), "dabababc", -1);
	assert_ends(STOPS("abab!"), IDS(21, 3, 60, 3), ENDS(1, 3, 3, 5), "dabab", -1);
	/* cut: in the middle of a token, at its start, over tokens */
	assert_ends(STOPS("uic"), IDS(14, 15, 16), ENDS(4, 5), "the q", 0);
	assert_ends(STOPS("x", "quick"), IDS(14, 15, 16), ENDS(4), "the ", 1);
	assert_ends(STOPS("x", " quick brown "), IDS(14, 15, 16), ENDS(3), "the", 1);
	assert_ends(STOPS("the"), IDS(14, 15, 16), NULL, 0, "", 0);
	assert_ends(STOPS("k", "ick", "ick"), IDS(14, 15), ENDS(4, 6), "the qu", 1);
	/* tokens without text before the cut are given, those behind it are not */
	assert_ends(STOPS("b"), IDS(0, 60, 0, 60, 1), ENDS(1, 1, 2, 2), "aa", 0);
	assert_ends(STOPS("bab"), IDS(0, 60, 1, 60, 0, 60, 1), ENDS(1, 1), "a", 0);
	assert_ends(STOPS("aba"), IDS(60, 0, 60, 4), ENDS(0), "", 0);
	assert_ends(STOPS("\xe2\x82\xac"), IDS(0, 61, 62), ENDS(1, 1), "a", 0);
}

/* Random texts, stops, rings and takes against the definition. */
static void test_random_logprobs(void **state)
{
	unsigned rng = 99;
	int n_cut = 0, n_stuck = 0;

#define RND(n) (rng = rng * 1664525u + 1013904223u, (rng >> 16) % (n))
	for (int round = 0; round < 6000; round++) {
		char stop_text[2][8], whole[600] = "", text[600];
		const char *stops[3] = { 0 };
		struct ig_token_logprob logprobs[40];
		struct ig_detokenizer d;
		struct ig_stream *stream;
		struct ig_seq *s;
		uint64_t ends[40], start = 0;
		int32_t n = 1 + (int32_t)RND(36), ids[40], n_top = (int32_t)RND(4), n_want = 0;
		size_t len = 0, n_logprobs = 0, cut;
		bool found = false;

		for (unsigned k = 0, m = RND(3); k < m; k++) {
			unsigned l = 1 + RND(7);
			for (unsigned i = 0; i < l; i++)
				stop_text[k][i] = "aabbc"[RND(5)];
			stop_text[k][l] = 0;
			stops[k] = stop_text[k];
		}
		ig_detokenizer_init(&d, tokenizer);
		for (int32_t i = 0; i < n; i++) {
			static const int32_t odd[] = { 54, 60, 61, 62, 18, 20 };
			ids[i] = RND(4) ? (int32_t)RND(12) : odd[RND(6)];
			len += ig_detokenizer_put(&d, ids[i], whole + len);
			ends[i] = len;
		}
		/* a limit cuts off a character's first bytes, an end token does not */
		enum ig_finish finish = RND(2) ? IG_FINISH_LENGTH : IG_FINISH_STOP;
		if (finish == IG_FINISH_STOP)
			len += ig_detokenizer_flush(&d, whole + len);
		ends[n - 1] = len;
		whole[len] = 0;
		cut = naive_cut(whole, stops, &found);
		for (; n_want < n && (start < cut || ends[n_want] <= cut); n_want++) {
			start = ends[n_want];
			ends[n_want] = ends[n_want] < cut ? ends[n_want] : cut;
		}

		unsigned ring = 16 + RND(60), logprob_ring = 1 + RND(8);
		s = make_noted(stops[0] ? stops : NULL, ring, n_top, logprob_ring, &stream);
		len = 0;
		for (int32_t i = 0, tries = 0; tries < 2000; tries++) {
			if (i < n && !s->stuck && !s->text_done)
				draw(s, ids[i++]);
			else if (i == n && s->result.finish == IG_FINISH_NONE)
				s->result.finish = finish;
			ig_seq_show(s);
			n_stuck += s->stuck;
			if (s->stuck && ig_seq_has_capacity(s))
				fail_msg("round %d: stuck with free space", round);
			if (RND(2))
				len += ig_stream_take(stream, text + len, 1 + RND(30));
			if (RND(2))
				n_logprobs += ig_stream_take_logprobs(stream, logprobs + n_logprobs,
								      RND(4));
			if (ig_seq_is_shown(s) && n_logprobs == (size_t)n_want && len == cut)
				break;
		}
		assert_true(ig_seq_is_shown(s));
		assert_int_equal(len, cut);
		assert_memory_equal(text, whole, cut);
		assert_int_equal(n_logprobs, n_want);
		for (int32_t i = 0; i < n_want; i++) {
			assert_logprobs(&logprobs[i], s, s->n_prompt + i, n_top);
			if (logprobs[i].text_end != ends[i])
				fail_msg("round %d: token %d ends at %d of \"%s\", expected %d",
					 round, i, (int)logprobs[i].text_end, whole, (int)ends[i]);
		}
		n_cut += found;
		ig_seq_destroy(s);
		ig_stream_unref(stream);
	}
#undef RND
	assert_true(n_cut > 1000 && n_stuck > 1000);
}

/* A full ring of logprobs stops the text too. */
static void test_full_ring_of_logprobs(void **state)
{
	struct ig_token_logprob logprobs[8];
	struct ig_stream *stream;
	struct ig_seq *s = make_noted(NULL, 4096, 0, 2, &stream);
	char text[64];

	for (int i = 0; i < 4; i++)
		draw(s, i % 2);
	ig_seq_show(s);
	assert_true(s->stuck);
	assert_false(ig_seq_has_capacity(s));
	assert_int_equal(ig_stream_take_logprobs(stream, logprobs, 8), 0);
	assert_int_equal(ig_stream_take(stream, text, sizeof text), 2);
	assert_false(ig_seq_has_capacity(s));
	assert_int_equal(ig_stream_take_logprobs(stream, logprobs, 8), 2);
	assert_true(ig_seq_has_capacity(s));
	ig_seq_show(s);
	assert_false(s->stuck);
	assert_int_equal(ig_stream_take(stream, text, sizeof text), 2);
	assert_int_equal(ig_stream_take_logprobs(stream, logprobs, 8), 2);
	/* what does not fit when the request is cancelled is dropped, logprobs too */
	for (int i = 0; i < 3; i++)
		draw(s, 0);
	ig_seq_show(s);
	assert_true(s->stuck && !ig_seq_is_shown(s));
	ig_seq_drop_text(s);
	assert_true(ig_seq_is_shown(s));
	ig_seq_show(s);
	assert_true(ig_seq_is_shown(s));
	ig_seq_destroy(s);
	ig_stream_unref(stream);
}

/* Notes that wait are bounded without a stop string, and by max_tokens with one. */
static void test_capacity_for_logprobs(void **state)
{
	float logits[FAKE_LOGITS] = { 0 };
	struct ig_stream *stream;
	struct ig_seq *s = make_noted(NULL, 4096, 2, 1, &stream);
	int n = 0;

	while (ig_seq_add_logprob(s, 0, logits) == 0) {
		s->tokens[s->n_tokens++] = 0;
		n++;
	}
	assert_int_equal(n, 16);
	ig_seq_destroy(s);
	ig_stream_unref(stream);
	s = make_noted(STOPS("ab"), 4096, 2, 1, &stream);
	draw(s, 0);
	for (n = 1; n < 397; n++) { /* 400 less the prompt; none has text */
		draw(s, FAKE_CONTROL);
		ig_seq_show(s);
		assert_false(s->stuck);
	}
	assert_int_equal(ig_seq_add_logprob(s, 0, logits), -ENOSPC);
	ig_seq_destroy(s);
	ig_stream_unref(stream);
}

/* ---- control tokens ---------------------------------------------------------------------- */

static void test_shown_and_end_tokens(void **state)
{
	struct ig_gen_spec spec = spec_of(STOPS("ll>b"), 256);
	struct ig_stream *stream = spec.stream;
	struct ig_error err;
	struct ig_seq *s;
	char text[64];

	spec.shown[0] = FAKE_CONTROL;
	spec.shown[1] = FAKE_END; /* no text all the same, as it is no end */
	spec.n_shown = 2;
	spec.sampling.ignore_end = true;
	assert_int_equal(ig_seq_create(&spec, 0, false, &s, &err), 0);
	ig_seq_adopt(s, &spec);
	memset(&spec, 0, sizeof spec); /* the ids were copied */
	draw(s, 0);
	draw(s, FAKE_CONTROL);
	draw(s, FAKE_END);
	draw(s, 0);
	ig_seq_show(s);
	assert_int_equal(ig_stream_take(stream, text, sizeof text), 8);
	assert_memory_equal(text, "a<call>a", 8);
	/* their text is text like any other: a stop string may lie in it */
	draw(s, FAKE_CONTROL);
	draw(s, FAKE_END);
	draw(s, 1);
	ig_seq_show(s);
	assert_int_equal(ig_stream_take(stream, text, sizeof text), 3);
	assert_memory_equal(text, "<ca", 3);
	assert_int_equal(s->result.finish, IG_FINISH_STOP);
	assert_int_equal(s->result.stop_index, 0);
	assert_int_equal(ig_seq_n_output(s), 7);
	ig_seq_destroy(s);
	ig_stream_unref(stream);
}

static void assert_refused(struct ig_gen_spec *spec, int code, const char *text)
{
	struct ig_error err = { 0 };
	struct ig_seq *s = NULL;

	assert_int_equal(ig_seq_create(spec, 0, false, &s, &err), code);
	assert_string_equal(err.text, text);
	assert_int_equal(err.code, code);
	assert_null(s);
}

static void test_refusals(void **state)
{
	const char *stops[20] = { 0 };
	struct ig_gen_spec spec = spec_of(NULL, 64), good = spec;
	char long_stop[IG_MAX_STOP_BYTES + 2];
	int32_t prompt[3] = { 0 };

	spec.n_prompt = 0;
	assert_refused(&spec, -EINVAL, "the prompt has no tokens");
	spec = good;
	spec.n_prompt = 9000;
	assert_refused(&spec, -E2BIG, "the prompt has 9000 tokens, the context of good is 400");
	spec.n_prompt = 400;
	assert_refused(&spec, -E2BIG,
		       "the prompt has 400 tokens, which fills the context of good, 400");
	spec.n_prompt = 301;
	assert_refused(&spec, -E2BIG,
		       "the prompt has 301 tokens, the cache holds 300 of good; "
		       "kvcache.arena sets its size");
	spec = good;
	spec.prompt = prompt;
	prompt[1] = FAKE_VOCAB;
	assert_refused(&spec, -EINVAL, "token 1 of the prompt is 64; good has 64 tokens");
	prompt[1] = -1;
	assert_refused(&spec, -EINVAL, "token 1 of the prompt is -1; good has 64 tokens");
	spec = good;
	spec.sampling.max_tokens = -1;
	assert_refused(&spec, -EINVAL, "max_tokens is -1; it must not be negative");
	spec = good;
	spec.sampling.temperature = 2.5;
	assert_refused(&spec, -EINVAL, "temperature is 2.5; it must be from 0 to 2");
	spec.sampling.temperature = -1;
	assert_refused(&spec, -EINVAL, "temperature is -1; it must be from 0 to 2");
	spec = good;
	spec.sampling.top_p = 0;
	assert_refused(&spec, -EINVAL, "top_p is 0; it must be from 0 to 1, but not 0");
	spec = good;
	spec.sampling.top_k = -3;
	assert_refused(&spec, -EINVAL, "top_k is -3; it must not be negative");
	spec = good;
	spec.stream = NULL;
	assert_refused(&spec, -EINVAL, "the request has no stream");
	spec = good;
	spec.n_top = -2;
	assert_refused(&spec, -EINVAL, "n_top is -2; it must be from -1 to 20");
	spec.n_top = 21;
	assert_refused(&spec, -EINVAL, "n_top is 21; it must be from -1 to 20");
	spec.n_top = 0;
	assert_refused(&spec, -EINVAL,
		       "log probabilities are requested, but the stream has no ring for them");
	assert_int_equal(ig_stream_enable_logprobs(spec.stream, 4), 0);
	model.gives_logits = false;
	assert_refused(&spec, -EINVAL,
		       "log probabilities of good are not available: memory.budget has "
		       "no space for them");
	model.gives_logits = true;
	spec = good;
	spec.n_shown = IG_MAX_SHOWN + 1;
	assert_refused(&spec, -EINVAL, "17 control tokens are to be shown; 16 are possible");
	spec.n_shown = 2;
	spec.shown[1] = FAKE_VOCAB;
	assert_refused(&spec, -EINVAL, "control token 64 is to be shown; good has tokens 0 to 63");
	spec.shown[1] = -1;
	assert_refused(&spec, -EINVAL, "control token -1 is to be shown; good has tokens 0 to 63");
	spec = good;
	spec.grammar = fake_grammar(&(struct fake_grammar){ 3, 2, true, false });
	spec.sampling.ignore_end = true;
	assert_refused(&spec, -EINVAL,
		       "ignore_end with a grammar, which defines where the output "
		       "ends");
	ig_grammar_unref(spec.grammar);
	assert_int_equal(fake.n_grammars, 0);
	drop_spec(&good);

	stops[0] = "x";
	stops[1] = "";
	spec = spec_of(stops, 64);
	assert_refused(&spec, -EINVAL, "stop string 2 has 0 bytes; 1 to 4096 are allowed");
	drop_spec(&spec);
	memset(long_stop, 'x', sizeof long_stop - 1);
	long_stop[sizeof long_stop - 1] = 0;
	stops[1] = long_stop;
	spec = spec_of(stops, 64);
	assert_refused(&spec, -EINVAL, "stop string 2 has 4097 bytes; 1 to 4096 are allowed");
	drop_spec(&spec);
	for (int i = 0; i < 17; i++)
		stops[i] = "x";
	spec = spec_of(stops, 64);
	assert_refused(&spec, -EINVAL, "more than 16 stop strings");
	drop_spec(&spec);
}

/* ---- the ledger ------------------------------------------------------------------------ */

static void test_priority_and_deadline(void **state)
{
	struct ig_gen_spec spec = spec_of(NULL, 64);
	struct ig_ledger_row row;
	struct ig_seq *s;

	spec.priority = -5;
	spec.deadline_ns = 77;
	assert_int_equal(ig_seq_create(&spec, 0, false, &s, NULL), 0);
	ig_seq_adopt(s, &spec);
	assert_int_equal(s->priority, -5);
	assert_int_equal(s->deadline_ns, 77);
	s->result.finish = IG_FINISH_ERROR;
	for (int i = 0; i < 2; i++) {
		ig_fail(&s->result.error, i ? -ETIME : -EIO, "it ended");
		ig_seq_row(s, 0, &row);
		assert_int_equal(row.priority, -5);
		assert_int_equal(row.status, i ? 504 : 500);
		assert_string_equal(row.finish, "error");
		assert_string_equal(row.error, "it ended");
	}
	ig_seq_destroy(s);
	ig_stream_unref(spec.stream);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stop_inside_and_across),
		cmocka_unit_test(test_held_back),
		cmocka_unit_test(test_random_stops),
		cmocka_unit_test(test_small_ring),
		cmocka_unit_test(test_dropped_text),
		cmocka_unit_test(test_where_text_ends),
		cmocka_unit_test(test_random_logprobs),
		cmocka_unit_test(test_full_ring_of_logprobs),
		cmocka_unit_test(test_capacity_for_logprobs),
		cmocka_unit_test(test_shown_and_end_tokens),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_priority_and_deadline),
	};
	return cmocka_run_group_tests_name("sequence", tests, setup, teardown);
}
