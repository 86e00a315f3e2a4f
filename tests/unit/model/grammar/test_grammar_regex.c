/*
 * test_grammar_regex.c: expressions against PCRE2, thousands of them made up over a small
 * alphabet, with texts made up over the same; and sets of characters.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/grammar/charset_private.h"
#include "model/grammar/regex_private.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static unsigned long long seed = 88172645463325252ull;

static unsigned draw(unsigned n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (unsigned)((seed >> 11) % n);
}

static bool reads(const struct ig_dfa *d, const char *s, size_t len)
{
	int64_t state = 0;

	for (size_t i = 0; i < len && state >= 0; i++)
		state = ig_dfa_step(d, (uint32_t)state, (unsigned char)s[i]);
	return state >= 0 && d->accepts[state];
}

static void make_regex(char *out, size_t size, unsigned depth)
{
	static const char *const atoms[] = {
		"a",	  "b",	  "c",	     "\xc3\xa9",      "\xf0\x9f\x98\x80",
		".",	  "[ab]", "[^a]",    "[a-c\xc3\xa9]", "\\d",
		"[^\\d]", "\\.",  "[\\]^-]", "\\x{e9}",	      "x",
		"",
	};
	static const char *const quantifiers[] = {
		"", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,3}", "{2,}", "{0,2}?",
	};
	unsigned n = 1 + draw(3);

	out[0] = 0;
	for (unsigned i = 0; i < n && strlen(out) + 40 < size; i++) {
		size_t len = strlen(out);
		if (draw(8) == 0 && len)
			strcat(out, "|");
		if (depth < 3 && draw(3) == 0) {
			strcat(out, draw(2) ? "(" : "(?:");
			len = strlen(out);
			make_regex(out + len, size - len - 8, depth + 1);
			strcat(out, ")");
			strcat(out, quantifiers[draw(13)]);
			continue;
		}
		const char *atom = atoms[draw(depth ? 15 : 16)];
		strcat(out, strcmp(atom, "\\x{e9}") ? atom : "\\u00e9");
		if (*atom)
			strcat(out, quantifiers[draw(13)]);
	}
}

static size_t make_text(char *out)
{
	static const char *const chars[] = {
		"a", "a", "b",	"b", "c", "x", "\xc3\xa9", "\xf0\x9f\x98\x80",
		"1", ".", "\n", "-", "]",
	};
	unsigned n = draw(8);

	out[0] = 0;
	for (unsigned i = 0; i < n; i++)
		strcat(out, chars[draw(sizeof chars / sizeof chars[0])]);
	return strlen(out);
}

/* search: anywhere; else the whole text.  Whether it was not too large. */
static bool compare(const char *regex, bool search, unsigned n_texts)
{
	struct ig_budget budget = { 2000000, 20000 };
	struct ig_error err = { 0 };
	struct ig_dfa d;
	int code, rc = ig_regex_to_dfa(regex, strlen(regex), search ? IG_REGEX_SEARCH : 0, &budget,
				       &d, &err);
	PCRE2_SIZE at;
	uint32_t options = PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_ALT_BSUX |
			   PCRE2_NO_AUTO_POSSESS |
			   (search ? 0 : PCRE2_ANCHORED | PCRE2_ENDANCHORED);
	pcre2_code *p = pcre2_compile((PCRE2_SPTR)regex, strlen(regex), options, &code, &at, NULL);
	pcre2_match_data *match;
	char text[128];

	if (rc == -E2BIG) {
		pcre2_code_free(p);
		return false;
	}
	if (rc || !p)
		fail_msg("%s: %s; PCRE2 says %d at %zu", regex, err.text, code, (size_t)at);
	match = pcre2_match_data_create_from_pattern(p, NULL);
	for (unsigned i = 0; i < n_texts; i++) {
		size_t len = make_text(text);
		bool want = pcre2_match(p, (PCRE2_SPTR)text, len, 0, 0, match, NULL) >= 0;
		/* . is ECMAScript's: not \r nor U+2028 either, which no text has. */
		if (want != reads(&d, text, len))
			fail_msg("%s %s \"%s\": PCRE2 says %d", regex, search ? "in" : "is", text,
				 want);
	}
	pcre2_match_data_free(match);
	pcre2_code_free(p);
	ig_dfa_finish(&d);
	return true;
}

static void made_up(void **state)
{
	char regex[256];
	int n_compared = 0;

	for (int i = 0; i < 1200; i++) {
		make_regex(regex, sizeof regex, 0);
		n_compared += compare(regex, false, 40);
		n_compared += compare(regex, true, 15);
	}
	assert_true(n_compared > 2000);
}

static void anchored(void **state)
{
	static const char *const list[] = {
		"^a",	 "a$",	     "^a$",	"^$",	       "^",	   "$",
		"^a|b$", "(^a|b)c",  "a(b$|c)", "(^|a)b(c|$)", "x^a",	   "a$b",
		"(^a)+", "^(a|b)*$", "a|^b|c$", "(?:^|,)a",    "^.{2,3}$", "(a|$)(b|$)",
	};

	for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
		assert_true(compare(list[i], true, 2000));
		assert_true(compare(list[i], false, 500));
	}
}

static void classes(void **state)
{
	static const struct {
		const char *regex, *yes, *no;
	} list[] = {
		{ "\\w", "aZ_0", "-\xc3\xa9 " },
		{ "\\W", "- .", "a_\xc3\xa9\xe6\x97\xa5" },
		{ "\\d", "059", "a\xd9\xa3" },
		{ "\\D", "a-", "5\xd9\xa3" },
		{ "\\s", " \t\n\xc2\xa0\xe3\x80\x80", "a\x1f" },
		{ "\\S", "a\xc3\xa9", " \x1f\xc2\xa0" },
		{ "[^\\S]", " \t", "a" },
		{ "[^\\W]", "a", "-" },
		{ "\\p{Lu}", "A\xc3\x84", "a1" },
		{ "\\p{L}", "a\xe6\x97\xa5", "1" },
		{ "\\P{L}", "1 ", "a" },
		{ "[\\p{Nd}x]", "5x\xd9\xa3", "y" },
		{ "[^\\p{L}]", "1", "a\xc3\xa9" },
		{ "\\cA", "\x01", "A" },
		{ "\\v", "\v", "v" },
		{ "[\\b]", "\b", "b" },
		{ "\\u{1F600}", "\xf0\x9f\x98\x80", "1" },
		{ "\\ud83d\\ude00", "\xf0\x9f\x98\x80", "1" },
		{ "[\\u0400-\\u04ff]", "\xd0\x96", "a" },
		{ ".", "a\xf0\x9f\x98\x80", "\n\r\xe2\x80\xa8" },
		{ "-", "-", "a" },
		{ "]", "]", "a" },
		{ "{", "{", "a" },
		{ "a{,2}", "", "a" },
		{ "\\/", "/", "\\" },
	};

	for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
		struct ig_budget budget = { IG_MAX_WORK, IG_DFA_MAX_STATES };
		struct ig_error err = { 0 };
		struct ig_dfa d;
		if (ig_regex_to_dfa(list[i].regex, strlen(list[i].regex), 0, &budget, &d, &err))
			fail_msg("%s: %s", list[i].regex, err.text);
		for (int no = 0; no < 2; no++) {
			for (const char *p = no ? list[i].no : list[i].yes; *p;) {
				size_t n = 1;
				while ((p[n] & 0xc0) == 0x80)
					n++;
				if (reads(&d, p, n) == no)
					fail_msg("%s %s %.*s", list[i].regex,
						 no ? "reads" : "does not read", (int)n, p);
				p += n;
			}
		}
		ig_dfa_finish(&d);
	}
}

/* Each character of a range is read, and nothing that is not UTF-8. */
static void whole_ranges(void **state)
{
	struct ig_budget budget = { IG_MAX_WORK, IG_DFA_MAX_STATES };

	for (int round = 0; round < 300; round++) {
		uint32_t first = 1 + draw(round % 3 ? 0x1000 : IG_CHAR_MAX);
		uint32_t last = first + draw(round % 2 ? 200 : 0x20000);
		struct ig_nfa a;
		struct ig_dfa d;
		if (last > IG_CHAR_MAX)
			last = IG_CHAR_MAX;
		ig_nfa_init(&a, &budget);
		uint32_t from = ig_nfa_node(&a), to = ig_nfa_node(&a);
		ig_nfa_chars(&a, from, to, first, last);
		assert_int_equal(ig_dfa_of(&a, from, to, &d), 0);
		for (int i = 0; i < 400; i++) {
			uint32_t c = i < 4   ? (uint32_t[]){ first, last, first - 1, last + 1 }[i] :
				     i < 200 ? first + draw(last - first + 1) :
					       1 + draw(IG_CHAR_MAX);
			char s[4];
			size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
			if (c > IG_CHAR_MAX || !c)
				continue;
			for (size_t k = n; k-- > 1;)
				s[k] = (char)(0x80 | (c >> 6 * (n - 1 - k) & 63));
			s[0] = (char)(n == 1 ? c :
				      n == 2 ? 0xc0 | c >> 6 :
				      n == 3 ? 0xe0 | c >> 12 :
					       0xf0 | c >> 18);
			assert_int_equal(reads(&d, s, n),
					 c >= first && c <= last && (c < 0xd800 || c > 0xdfff));
			if (n > 1) {
				assert_false(reads(&d, s, n - 1));
				s[1] = 'a';
				assert_false(reads(&d, s, n));
			}
		}
		ig_dfa_finish(&d);
		ig_nfa_finish(&a);
	}
}

static void too_large(void **state)
{
	static const char *const list[] = {
		"(a|b)*a(a|b){25}",
		"((a{1000}){1000}){1000}",
		"(.{500}){500}",
		"((\\p{L}{100}){100}){100}",
		"((((){100000}){100000}){100000}){100000}",
	};
	char many[70000];
	struct ig_budget budget;
	struct ig_dfa d;

	for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
		struct ig_error err = { 0 };
		budget = (struct ig_budget){ IG_MAX_WORK / 10, IG_DFA_MAX_STATES / 10 };
		int rc = ig_regex_to_dfa(list[i], strlen(list[i]), 0, &budget, &d, &err);
		if (rc != -E2BIG)
			fail_msg("%s: %d %s", list[i], rc, err.text);
	}
	memset(many, 'a', sizeof many);
	budget = (struct ig_budget){ IG_MAX_WORK, IG_DFA_MAX_STATES };
	assert_int_equal(ig_regex_to_dfa(many, sizeof many, 0, &budget, &d, NULL), -E2BIG);
	memset(many, '(', 1000);
	assert_int_equal(ig_regex_to_dfa(many, 1000, 0, &budget, &d, NULL), -EINVAL);
	assert_int_equal(ig_regex_to_dfa("a\xff", 2, 0, &budget, &d, NULL), -EINVAL);
	assert_int_equal(ig_regex_to_dfa("a\0b", 3, 0, &budget, &d, NULL), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(made_up),   cmocka_unit_test(anchored),
		cmocka_unit_test(classes),   cmocka_unit_test(whole_ranges),
		cmocka_unit_test(too_large),
	};

	return cmocka_run_group_tests_name("model/grammar_regex", tests, NULL, NULL);
}
