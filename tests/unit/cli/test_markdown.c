/* Markdown on a terminal: what is styled and how lines are broken; random texts in random pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../../fuzz/on_terminal.h"

/* The output with its styles as letters: {B bold}, {d dim}, i, u, s, and C, H, L for colours; a broken
 * line is / and its indentation. */
static void in_letters(const char *out, struct ig_strbuf *b)
{
	static const struct {
		const char *code, *letter;
	} styles[] = { { "1", "B" }, { "2", "d" },  { "3", "i" },  { "4", "u" },
		       { "9", "s" }, { "36", "C" }, { "35", "H" }, { "34", "L" } };
	bool open = false;

	while (*out) {
		if (!strncmp(out, "\r\n", 2)) {
			ig_strbuf_puts(b, "/");
			out += 2;
			continue;
		}
		if (*out != '\033') {
			ig_strbuf_add(b, out++, 1);
			continue;
		}
		size_t n = strcspn(out, "mC");
		if (out[n] == 'C') {
			ig_strbuf_printf(b, "%.*s:", (int)n - 2, out + 2);
		} else {
			ig_strbuf_puts(b, open ? "}" : "");
			open = false;
			for (size_t at = 2; at < n;) {
				size_t len = strcspn(out + at, ";m");
				for (size_t i = 0; i < sizeof styles / sizeof styles[0]; i++)
					if (strlen(styles[i].code) == len &&
					    !strncmp(styles[i].code, out + at, len)) {
						ig_strbuf_puts(b, open ? "" : "{");
						ig_strbuf_puts(b, styles[i].letter);
						open = true;
					}
				at += len + 1;
			}
			ig_strbuf_puts(b, open ? " " : "");
		}
		out += n + 1;
	}
}

static void assert_shown(const char *text, unsigned columns, const char *expected)
{
	static const unsigned char one[] = { 1 };
	struct ig_strbuf out = { 0 }, b = { 0 };

	check_on_terminal(text, strlen(text), columns, one, 1);
	show(text, strlen(text), columns, NULL, 0, &out);
	in_letters(ig_strbuf_text(&out), &b);
	assert_string_equal(ig_strbuf_text(&b), expected);
	ig_strbuf_finish(&out);
	ig_strbuf_finish(&b);
}

/* Those of the page's tests (tests/e2e/page/test_markdown.py), and others. */
static void test_inline(void **state)
{
	assert_shown("plain", 80, "plain");
	assert_shown("a *b* **c** ***d*** ~~e~~", 80,
		     "a {d *}{i b}{d *} {d **}{B c}{d **} {d ***}{Bi d}{d ***} {d ~~}{s e}{d ~~}");
	assert_shown("snake_case_name and 2 * 3 * 4", 80, "snake_case_name and 2 * 3 * 4");
	assert_shown("**open and `code with **`", 80, "**open and {d `}{C code with **}{d `}");
	assert_shown("``a ` b``", 80, "{d ``}{C a ` b}{d ``}");
	assert_shown("[x](javascript:alert(1))", 80, "[x](javascript:alert(1))");
	assert_shown("[x](data:text/html,y)", 80, "[x](data:text/html,y)");
	assert_shown("[*x*](https://a.b/c_(d))", 80, "{d [*}{iuL x}{d *](https://a.b/c_(d))}");
	assert_shown("see https://a.b/c?d=e.", 80, "see {uL https://a.b/c?d=e}.");
	assert_shown("![pic](https://a.b/c.png \"t\")", 80,
		     "{d ![}{uL pic}{d ](https://a.b/c.png \"t\")}");
	assert_shown("\\*no\\*", 80, "{d \\}*no{d \\}*");
	assert_shown("two **lines\nof it** x", 80, "two {d **}{B lines\nof it}{d **} x");
	assert_shown("**not\n\nover** a blank line", 80, "**not\n\nover** a blank line");
	assert_shown("`a **b**", 80, "`a {d **}{B b}{d **}");
	assert_shown("hat, http, https:/x", 80, "hat, http, https:/x");
}

static void test_blocks(void **state)
{
	assert_shown("# one\n## two ##\n#none", 80, "{d #}{BH  one}\n{d ##}{BH  two ##}\n#none");
	assert_shown("- a\n- b\n  - **c**\n- d", 80,
		     "{B -} a\n{B -} b\n  {B -} {d **}{B c}{d **}\n{B -} d");
	assert_shown("3. a\n10) b", 80, "{B 3.} a\n{B 10)} b");
	assert_shown("> a\n> > b", 80, "{d >} a\n{d >} {d >} b");
	assert_shown("> **a\n> b**", 80, "{d >} {d **}{B a\n}{d >} {B b}{d **}");
	assert_shown("a\n\n---\n\nb * * *", 80, "a\n\n{d ---}\n\nb * * *");
	assert_shown("```c\nint x; // *b*\n```\n*after*", 80,
		     "{d ```c}\n{C int x; // *b*}\n{d ```}\n{d *}{i after}{d *}");
	assert_shown("~~~\n```\n~~~~\nx", 80, "{d ~~~}\n{C ```}\n{d ~~~~}\nx");
	assert_shown("```not a fence``` *x*", 80, "{d ```}{C not a fence}{d ```} {d *}{i x}{d *}");
	assert_shown("- x\n\n  ```\n  a\n  ```\n- y", 80,
		     "{B -} x\n\n  {d ```}\n{C   a}\n{d   ```}\n{B -} y");
	assert_shown("> ```\n> a\nb", 80, "{d >} {d ```}\n{d > }{C a}\nb");
	assert_shown("|a|b|\n|-|:-:|\n|1|`x|y`|\nend", 80,
		     "{d |}{B a}{d |}{B b}{d |}\n{d |-|:-:|}\n{d |}1{d |`}{C x|y}{d `|}\nend");
	assert_shown("a | b\n--|--\n*1* | 2\n\nc", 80,
		     "a | b\n{d --|--}\n{d *}{i 1}{d *} {d |} 2\n\nc");
	assert_shown("|a|\nb", 80, "|a|\nb");
	assert_shown("|a|", 80, "|a|");
	assert_shown("-", 80, "{B -}");
	assert_shown("```\nnot closed", 80, "{d ```}\n{C not closed}");
}

static void test_lines(void **state)
{
	assert_shown("one two three four", 10, "one two /three /four");
	assert_shown("- one two three", 10, "{B -} one two /2:three");
	assert_shown("12. **one two** three", 12, "{B 12.} {d **}{B one /4:two}{d **} /4:three");
	assert_shown("> one two three", 10, "{d >} one two /2:three");
	assert_shown("## one two three", 10, "{d ##}{BH  one /3:two /3:three}");
	assert_shown("abcdefghijklmnopqrstuvwxyz", 10, "abcdefghi/jklmnopqr/stuvwxyz");
	assert_shown("x abcdefghijklmnopqrstuvwxyz", 10, "x /abcdefghi/jklmnopqr/stuvwxyz");
	assert_shown("```\nabcdefghijklmnopqrstuvwxyz abc\n```", 10,
		     "{d ```}\n{C abcdefghijklmnopqrstuvwxyz abc}\n{d ```}");
	assert_shown("漢字仮名交じり文。", 10, "漢字仮名/交じり/文。");
	/* a mark belongs to its letter, joined emoji to each other */
	assert_shown("abcdefghe\xcc\x81xyz", 10, "abcdefghe\xcc\x81/xyz");
	assert_shown("👩‍👩‍👧‍👦👩‍👩‍👧‍👦", 12,
		     "👩‍👩‍👧‍👦/👩‍👩‍👧‍👦");
	assert_shown("a\tb c\td", 12, "a\tb c/\td");
	assert_shown("a         b", 6, "a     /    b");
	assert_shown("no width", 0, "no width");
	assert_shown("a\033[31mb\r\nc\xc2\x9b", 80, "a [31mb \nc ");
	assert_shown("\xff\xc3(", 80, "\xef\xbf\xbd\xef\xbf\xbd(");
}

static void test_what_waits(void **state)
{
	struct ig_strbuf out = { 0 };
	struct ig_markdown m;

	ig_markdown_init(&m, &out, 80, false);
	ig_markdown_add(&m, "one two", 7);
	assert_string_equal(ig_strbuf_text(&out), "one two");
	ig_markdown_add(&m, " a *b", 5);
	assert_string_equal(ig_strbuf_text(&out), "one two a ");
	ig_markdown_add(&m, " c* ", 4);
	assert_string_equal(ig_strbuf_text(&out),
			    "one two a \033[2m*\033[0;3mb c\033[0;2m*\033[0m ");
	ig_strbuf_clear(&out);
	/* what is not closed for long is no mark */
	ig_markdown_add(&m, "*", 1);
	for (int i = 0; i < IG_MARKDOWN_HOLD; i++)
		ig_markdown_add(&m, "x ", 2);
	assert_true(out.len > IG_MARKDOWN_HOLD && !strchr(out.data, '\033'));
	ig_markdown_finish(&m);
	ig_strbuf_finish(&out);
}

static void test_no_colours(void **state)
{
	struct ig_strbuf out = { 0 };
	struct ig_markdown m;

	ig_markdown_init(&m, &out, 80, false);
	ig_markdown_add(&m, "# a\n`b`", 7);
	ig_markdown_end(&m);
	assert_string_equal(ig_strbuf_text(&out),
			    "\033[2m#\033[0;1m a\033[0m\n\033[2m`\033[0mb\033[2m`\033[0m");
	ig_markdown_finish(&m);
	ig_strbuf_finish(&out);
}

/* ---- random texts ----------------------------------------------------------------------- */

static uint32_t next(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*seed >> 33);
}

static void add_random(struct ig_strbuf *b, uint64_t *seed)
{
	static const char *const pieces[] = {
		"word ",       "**",	     "*",
		"_",	       "`",	     "``",
		"```",	       "\n",	     "\n\n",
		"- ",	       "1. ",	     "  ",
		"> ",	       "# ",	     "|",
		"|-|-|\n",     "[a",	     "](https://x",
		")",	       "~~",	     "---",
		"\\",	       "http://a.b", "\t",
		"漢字、",      "e\xcc\x81",  "🙂",
		"👩‍🚀", "a-b",	     "longerword",
		"\033[31m",    "\xff",	     "\xe6\xbc",
		"(",	       "![",	     " ",
		"x",	       "\r\n",	     "\xe2\x9d\xa4\xef\xb8\x8f",
	};

	for (unsigned n = next(seed) % 60; n; n--)
		ig_strbuf_puts(b, pieces[next(seed) % (sizeof pieces / sizeof pieces[0])]);
}

static void test_random(void **state)
{
	uint64_t seed = 1;

	for (unsigned i = 0; i < 10000; i++) {
		struct ig_strbuf b = { 0 };
		unsigned char splits[5];
		for (size_t k = 0; k < sizeof splits; k++)
			splits[k] = (unsigned char)(next(&seed) % 9);
		add_random(&b, &seed);
		check_on_terminal(ig_strbuf_text(&b), b.len, next(&seed) % 100, splits, 5);
		ig_strbuf_finish(&b);
	}
}

/* Texts that must not take long. */
static void test_hostile(void **state)
{
	static const char *const parts[] = { "*",	  "**a",    "[",	"[a](",	    "`",
					     "`a``b```c", "> ",	    "- ",	"|",	    "|-",
					     "_a",	  "1. a\n", "h",	"https://", "~~",
					     "\\",	  "\n",	    "\xcc\x81", "👩‍",  "a" };

	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
		struct ig_strbuf b = { 0 };
		while (b.len < 20000)
			ig_strbuf_puts(&b, parts[i]);
		check_on_terminal(b.data, b.len, 80, NULL, 0);
		ig_strbuf_finish(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_inline),	   cmocka_unit_test(test_blocks),
		cmocka_unit_test(test_lines),	   cmocka_unit_test(test_what_waits),
		cmocka_unit_test(test_no_colours), cmocka_unit_test(test_random),
		cmocka_unit_test(test_hostile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
