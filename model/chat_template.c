/*
 * chat_template.c: ChatML, recognised in the model's own template.
 *
 * A template is a Jinja program.  It is read into its blocks, in a form that
 * doesn't depend on spacing, quotes or `a['b']` against `a.b`, and then compared
 * as a whole: only a template that is ChatML from its first block to its last is
 * taken, so nothing in it is ever passed over.  What may differ is the system
 * message that some put in when a conversation begins without one; its text is
 * taken from the template.  Branches for tools are left out: no tools are given
 * to a template here.
 *
 * Known shapes (M: one message, D: the default system message):
 *	for: M; generation prompt
 *	for: if first and not system: D; M; generation prompt     SmolLM2, Qwen2
 *	if first is system: it, else D; for: M; generation prompt   Qwen2.5
 */
#include "model/chat_template.h"

#include "base/strbuf.h"
#include "model/tokenizer-private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A string literal in a block's canonical text; both bytes are refused in templates. */
#define OPEN "\x01"
#define CLOSE "\x02"
#define LITERAL(s) OPEN s CLOSE

#define START "<|im_start|>"
#define END "<|im_end|>"
#define MESSAGE LITERAL(START) "+message.role+" LITERAL("\n") "+message.content+" LITERAL(END "\n")
#define MAX_TEMPLATE_BYTES (256 * 1024)
#define MAX_BLOCKS 4096
#define MAX_ROLE_BYTES 64
#define SHOWN_BYTES 80

enum block_kind { OUTPUT, STATEMENT };

struct block {
	enum block_kind kind;
	struct ig_strbuf text; /* canonical */
};

struct program {
	struct block *blocks;
	size_t n, cap;
};

struct ig_chat_template {
	const struct ig_tokenizer *tokenizer;
	char *system; /* put in when the first message is not a system one; NULL: none */
	bool three_roles; /* system, user, assistant and no other */
};

/* ---- reading the template ------------------------------------------------------- */

/* Positions of a reader in the template. */
struct source {
	const char *s;
	size_t len, pos;
};

static void program_finish(struct program *p)
{
	for (size_t i = 0; i < p->n; i++)
		ig_strbuf_finish(&p->blocks[i].text);
	free(p->blocks);
	*p = (struct program){ 0 };
}

/* Takes what is in text.  0, -ENOMEM, or -ENOTSUP for a template of too many blocks. */
static int add_block(struct program *p, enum block_kind kind, struct ig_strbuf *text)
{
	if (!ig_strbuf_ok(text))
		return -ENOMEM;
	if (p->n == MAX_BLOCKS)
		return -ENOTSUP;
	if (p->n == p->cap) {
		size_t cap = p->cap ? 2 * p->cap : 32;
		struct block *b = realloc(p->blocks, cap * sizeof *b);
		if (!b)
			return -ENOMEM;
		p->blocks = b;
		p->cap = cap;
	}
	p->blocks[p->n++] = (struct block){ kind, *text };
	ig_strbuf_init(text);
	return 0;
}

static bool is_space(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_word(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_';
}

static bool ends_with(const struct ig_strbuf *b, const char *s)
{
	size_t n = strlen(s);

	return b->len >= n && !memcmp(b->data + b->len - n, s, n);
}

static void cut(struct ig_strbuf *b, size_t n)
{
	b->len -= n;
	b->data[b->len] = 0;
}

/* Append an expression; literals that are added to each other become one. */
static void join(struct ig_strbuf *out, const char *text, size_t len)
{
	if (out->len && text[0] == OPEN[0] && ends_with(out, CLOSE "+")) {
		cut(out, 2);
		ig_strbuf_add(out, text + 1, len - 1);
	} else {
		ig_strbuf_add(out, text, len);
	}
}

/* A string literal, its quote is next.  False for escapes that no known template has. */
static bool read_literal(struct source *in, struct ig_strbuf *out)
{
	char quote = in->s[in->pos++];

	while (in->pos < in->len) {
		char c = in->s[in->pos++];
		if (c == quote)
			return true;
		if (c == '\\') {
			if (in->pos == in->len)
				return false;
			switch (in->s[in->pos++]) {
			case 'n': c = '\n'; break;
			case 't': c = '\t'; break;
			case 'r': c = '\r'; break;
			case '\\': c = '\\'; break;
			case '\'': c = '\''; break;
			case '"': c = '"'; break;
			default: return false;
			}
		}
		ig_strbuf_add(out, &c, 1);
	}
	return false;
}

/* ['name'] is written .name */
static void subscript_to_member(struct ig_strbuf *out)
{
	size_t i = out->len;

	if (!ends_with(out, CLOSE "]"))
		return;
	for (i -= 2; i > 0 && is_word(out->data[i - 1]); i--)
		;
	if (i < 2 || i == out->len - 2 || out->data[i - 1] != OPEN[0] || out->data[i - 2] != '[')
		return;
	out->data[i - 2] = '.';
	memmove(out->data + i - 1, out->data + i, out->len - 2 - i);
	cut(out, 3);
}

/* The inside of a block up to its end mark ("}}" or "%}"), without spaces but for
 * one between words.  False when it does not end or can't be read. */
static bool read_inside(struct source *in, const char *mark, struct ig_strbuf *out,
			bool *strip_after)
{
	bool space = false;

	*strip_after = false;
	while (in->pos < in->len) {
		char c = in->s[in->pos];
		size_t left = in->len - in->pos;
		if (left >= 3 && c == '-' && !memcmp(in->s + in->pos + 1, mark, 2)) {
			*strip_after = true;
			in->pos += 3;
			return true;
		}
		if (left >= 2 && !memcmp(in->s + in->pos, mark, 2)) {
			in->pos += 2;
			return true;
		}
		if (is_space(c)) {
			space = true;
			in->pos++;
			continue;
		}
		if (c == '\'' || c == '"') {
			struct ig_strbuf literal;
			ig_strbuf_init(&literal);
			ig_strbuf_puts(&literal, OPEN);
			bool ok = read_literal(in, &literal);
			ig_strbuf_puts(&literal, CLOSE);
			if (!ig_strbuf_ok(&literal))
				out->failed = true;
			else if (ok)
				join(out, literal.data, literal.len);
			ig_strbuf_finish(&literal);
			if (!ok || out->failed)
				return ok;
		} else {
			if (space && out->len && is_word(c) && is_word(out->data[out->len - 1]))
				ig_strbuf_puts(out, " ");
			ig_strbuf_add(out, &c, 1);
			in->pos++;
			if (c == ']' && ig_strbuf_ok(out))
				subscript_to_member(out);
		}
		space = false;
		if (out->failed)
			return true;
	}
	return false;
}

/* Text between blocks, as an output of one literal.  Jinja's trim_blocks and
 * lstrip_blocks are on, as transformers sets them: a statement swallows the
 * newline after it and the spaces before it on its line. */
static int add_text(struct program *p, const char *s, size_t len, bool strip_before,
		    bool after_statement, bool strip_after, bool before_statement, bool line_start)
{
	struct ig_strbuf text;
	int rc = 0;

	if (strip_before) {
		while (len && is_space(*s))
			s++, len--;
	} else if (after_statement && len && s[0] == '\n') {
		s++, len--;
		line_start = true;
	}
	if (strip_after) {
		while (len && is_space(s[len - 1]))
			len--;
	} else if (before_statement) {
		size_t n = len;
		while (n && (s[n - 1] == ' ' || s[n - 1] == '\t'))
			n--;
		if ((n && s[n - 1] == '\n') || (!n && line_start))
			len = n;
	}
	if (len) {
		ig_strbuf_init(&text);
		ig_strbuf_puts(&text, OPEN);
		ig_strbuf_add(&text, s, len);
		ig_strbuf_puts(&text, CLOSE);
		rc = add_block(p, OUTPUT, &text);
		ig_strbuf_finish(&text);
	}
	return rc;
}

/* The template as blocks.  0, -ENOMEM, or -ENOTSUP when it is not one that we read. */
static int read_program(const char *s, size_t len, struct program *p)
{
	struct source in = { s, len, 0 };
	bool strip = false, after_statement = false;
	int rc;

	if (len > MAX_TEMPLATE_BYTES || memchr(s, OPEN[0], len) || memchr(s, CLOSE[0], len) ||
	    memchr(s, 0, len))
		return -ENOTSUP;
	if (len && s[len - 1] == '\n') /* Jinja drops a last newline */
		in.len--;
	for (;;) {
		size_t start = in.pos;
		while (in.pos < in.len &&
		       !(s[in.pos] == '{' && in.pos + 1 < in.len &&
			 (s[in.pos + 1] == '{' || s[in.pos + 1] == '%' || s[in.pos + 1] == '#')))
			in.pos++;
		bool end = in.pos == in.len;
		char type = end ? 0 : s[in.pos + 1];
		bool strip_text = !end && in.pos + 2 < in.len && s[in.pos + 2] == '-';
		rc = add_text(p, s + start, in.pos - start, strip, after_statement, strip_text,
			      type == '%' || type == '#', start == 0);
		if (rc || end)
			return rc;
		if (type == '#') /* comments: no known template has one */
			return -ENOTSUP;
		in.pos += strip_text ? 3 : 2;

		struct ig_strbuf text;
		ig_strbuf_init(&text);
		bool ok = read_inside(&in, type == '%' ? "%}" : "}}", &text, &strip);
		after_statement = type == '%';
		rc = ok || text.failed ? add_block(p, type == '%' ? STATEMENT : OUTPUT, &text)
				       : -ENOTSUP;
		ig_strbuf_finish(&text);
		if (rc)
			return rc;
	}
}

/* ---- recognising it ------------------------------------------------------------- */

static bool is_statement(const struct program *p, size_t i, const char *text)
{
	return i < p->n && p->blocks[i].kind == STATEMENT && p->blocks[i].text.data &&
	       !strcmp(p->blocks[i].text.data, text);
}

static bool is_output(const struct program *p, size_t i, const char *text)
{
	return i < p->n && p->blocks[i].kind == OUTPUT && p->blocks[i].text.data &&
	       !strcmp(p->blocks[i].text.data, text);
}

static bool begins(const struct program *p, size_t i, const char *text)
{
	return i < p->n && p->blocks[i].kind == STATEMENT && p->blocks[i].text.data &&
	       !strncmp(p->blocks[i].text.data, text, strlen(text));
}

static bool is_one_of(const struct program *p, size_t i, const char *a, const char *b)
{
	return begins(p, i, a) || begins(p, i, b);
}

/* From block i, which is inside an if: the block where that if goes on or ends
 * ("else", "elif …", "endif"), or p->n.  A for may have an else of its own. */
static size_t branch_end(const struct program *p, size_t i)
{
	size_t depth = 0;

	for (; i < p->n; i++) {
		bool end = is_statement(p, i, "endif") || is_statement(p, i, "endfor");
		if (depth == 0 && (end || is_statement(p, i, "else") ||
				   is_one_of(p, i, "elif ", "elif(")))
			return is_statement(p, i, "endfor") ? p->n : i;
		if (is_one_of(p, i, "if ", "if(") || is_one_of(p, i, "for ", "for("))
			depth++;
		else if (end)
			depth--;
	}
	return i;
}

static void remove_blocks(struct program *p, size_t first, size_t last)
{
	for (size_t i = first; i < last; i++)
		ig_strbuf_finish(&p->blocks[i].text);
	memmove(p->blocks + first, p->blocks + last, (p->n - last) * sizeof *p->blocks);
	p->n -= last - first;
}

/* Take out what can't run or does nothing: branches for tools, a default for
 * add_generation_prompt.  Then join neighbouring outputs. */
static int simplify(struct program *p)
{
	for (size_t i = 0; i < p->n;) {
		if (is_statement(p, i, "if tools")) {
			size_t e = branch_end(p, i + 1);
			if (is_statement(p, e, "else")) {
				size_t end = branch_end(p, e + 1);
				if (!is_statement(p, end, "endif"))
					return -ENOTSUP;
				remove_blocks(p, end, end + 1);
			} else if (!is_statement(p, e, "endif")) {
				return -ENOTSUP;
			}
			remove_blocks(p, i, e + 1);
		} else if (is_statement(p, i, "if not add_generation_prompt is defined") &&
			   is_statement(p, i + 1, "set add_generation_prompt=false") &&
			   is_statement(p, i + 2, "endif")) {
			remove_blocks(p, i, i + 3);
		} else {
			i++;
		}
	}
	for (size_t i = 0; i + 1 < p->n;) {
		struct block *a = &p->blocks[i], *b = &p->blocks[i + 1];
		if (a->kind != OUTPUT || b->kind != OUTPUT) {
			i++;
			continue;
		}
		if (!a->text.len || !b->text.len)
			return -ENOTSUP; /* {{ }} */
		ig_strbuf_puts(&a->text, "+");
		join(&a->text, b->text.data, b->text.len);
		if (!ig_strbuf_ok(&a->text))
			return -ENOMEM;
		remove_blocks(p, i + 1, i + 2);
	}
	return 0;
}

/* A literal of one whole system message: its text into c->system. */
static int take_system(const struct program *p, size_t i, struct ig_chat_template *c)
{
	static const char head[] = OPEN START "system\n", tail[] = END "\n" CLOSE;
	const size_t n_head = sizeof head - 1, n_tail = sizeof tail - 1;

	if (i >= p->n || p->blocks[i].kind != OUTPUT)
		return -ENOTSUP;
	const struct ig_strbuf *b = &p->blocks[i].text;
	if (b->len < n_head + n_tail || memcmp(b->data, head, n_head) ||
	    memcmp(b->data + b->len - n_tail, tail, n_tail))
		return -ENOTSUP;
	c->system = strndup(b->data + n_head, b->len - n_head - n_tail);
	if (!c->system)
		return -ENOMEM;
	/* More markers, or an expression, in it: not one message after all. */
	return strstr(c->system, "<|") || strpbrk(c->system, OPEN CLOSE) ? -ENOTSUP : 0;
}

static int recognise(const struct program *p, struct ig_chat_template *c)
{
	size_t i = 0;
	int rc;

	if (is_statement(p, i, "if messages[0].role==" LITERAL("system"))) {
		if (!is_output(p, i + 1, LITERAL(START "system\n") "+messages[0].content+"
					 LITERAL(END "\n")) ||
		    !is_statement(p, i + 2, "else") || !is_statement(p, i + 4, "endif"))
			return -ENOTSUP;
		if ((rc = take_system(p, i + 3, c)))
			return rc;
		c->three_roles = true;
		i += 5;
	}
	if (!is_statement(p, i++, "for message in messages"))
		return -ENOTSUP;
	if (c->three_roles) {
		if (!is_statement(p, i, "if(message.role==" LITERAL("user") ")or(message.role=="
				  LITERAL("system") "and not loop.first)or(message.role=="
				  LITERAL("assistant") "and not message.tool_calls)") ||
		    !is_output(p, i + 1, MESSAGE))
			return -ENOTSUP;
		/* The other branches are for tools and their results. */
		for (i += 2; begins(p, i, "elif message.role=="); i = branch_end(p, i + 1))
			;
		if (!is_statement(p, i++, "endif"))
			return -ENOTSUP;
	} else {
		if (is_statement(p, i, "if loop.first and messages[0].role!=" LITERAL("system"))) {
			if (!is_statement(p, i + 2, "endif"))
				return -ENOTSUP;
			if ((rc = take_system(p, i + 1, c)))
				return rc;
			i += 3;
		}
		if (!is_output(p, i++, MESSAGE))
			return -ENOTSUP;
	}
	return is_statement(p, i, "endfor") && is_statement(p, i + 1, "if add_generation_prompt") &&
	       is_output(p, i + 2, LITERAL(START "assistant\n")) &&
	       is_statement(p, i + 3, "endif") && p->n == i + 4 ? 0 : -ENOTSUP;
}

/* ---- open and close ------------------------------------------------------------- */

void ig_chat_template_close(struct ig_chat_template *c)
{
	if (!c)
		return;
	free(c->system);
	free(c);
}

static void unknown(const char *s, size_t len, struct ig_error *err)
{
	char shown[SHOWN_BYTES + 1];
	size_t n = len < SHOWN_BYTES ? len : SHOWN_BYTES;

	for (size_t i = 0; i < n; i++)
		shown[i] = (unsigned char)s[i] < 0x20 || (unsigned char)s[i] >= 0x7f ? ' ' : s[i];
	shown[n] = 0;
	ig_fail(err, -ENOTSUP, "the model's chat template is not one that Ingot knows "
		"(ChatML); it is %zu bytes long and begins: %s", len, shown);
}

int ig_chat_template_open(const struct ig_gguf *g, const struct ig_tokenizer *t,
			  struct ig_chat_template **out, struct ig_error *err)
{
	struct ig_chat_template *c = NULL;
	struct program p = { 0 };
	const char *s;
	size_t len;
	int rc;

	*out = NULL;
	rc = ig_gguf_str(g, "tokenizer.chat_template", &s, &len, err);
	if (rc)
		return rc;
	rc = -ENOMEM;
	c = calloc(1, sizeof *c);
	if (!c || (rc = read_program(s, len, &p)) || (rc = simplify(&p)) ||
	    (rc = recognise(&p, c))) {
		if (rc == -ENOTSUP)
			unknown(s, len, err);
		else
			ig_fail(err, rc, "out of memory for the chat template");
		goto out;
	}
	if (ig_tokenizer_find_special(t, START) < 0 || ig_tokenizer_find_special(t, END) < 0) {
		rc = ig_fail(err, -ENOTSUP, "the model's chat template is ChatML, but %s or %s is "
			     "not a control token of its vocabulary", START, END);
		goto out;
	}
	c->tokenizer = t;
	*out = c;
	c = NULL;
out:
	program_finish(&p);
	ig_chat_template_close(c);
	return rc;
}

const char *ig_chat_template_name(const struct ig_chat_template *c)
{
	return "chatml";
}

/* ---- messages to ids or to text ------------------------------------------------- */

/* Where a conversation goes: ids, or text. */
struct sink {
	const struct ig_tokenizer *tokenizer;
	struct ig_ids *ids; /* NULL: text */
	size_t max_ids;
	struct ig_strbuf *text;
	struct ig_strbuf turn; /* scratch: one message's plain text */
};

static int emit(struct sink *k, const char *s, size_t len, bool markers)
{
	if (k->ids)
		return ig_tokenizer_encode(k->tokenizer, s, len, markers, k->max_ids, k->ids);
	ig_strbuf_add(k->text, s, len);
	return ig_strbuf_ok(k->text) ? 0 : -ENOMEM;
}

static int emit_markers(struct sink *k, const char *s)
{
	return emit(k, s, strlen(s), true);
}

/* Role and content are tokenised together, as plain text, since that is how they
 * stand between the template's control tokens. */
static int emit_message(struct sink *k, const char *role, const char *content, size_t len)
{
	int rc;

	ig_strbuf_clear(&k->turn);
	ig_strbuf_puts(&k->turn, role);
	ig_strbuf_puts(&k->turn, "\n");
	ig_strbuf_add(&k->turn, content, len);
	if (!ig_strbuf_ok(&k->turn))
		return -ENOMEM;
	if ((rc = emit_markers(k, START)) ||
	    (rc = emit(k, k->turn.data, k->turn.len, false)))
		return rc;
	return emit_markers(k, END "\n");
}

static int check_roles(const struct ig_chat_template *c, const struct ig_chat_message *m, size_t n,
		       struct ig_error *err)
{
	for (size_t i = 0; i < n; i++) {
		const char *role = m[i].role;
		size_t len = strnlen(role, MAX_ROLE_BYTES + 1);
		bool ok = len > 0 && len <= MAX_ROLE_BYTES;

		for (size_t k = 0; ok && k < len; k++)
			ok = is_word(role[k]) || role[k] == '-';
		if (!ok)
			return ig_fail(err, -EINVAL,
				       "message %zu: the role is not a word of letters, "
				       "digits, _ and -, at most %d",
				       i, MAX_ROLE_BYTES);
		if (c->three_roles && strcmp(role, "system") && strcmp(role, "user") &&
		    strcmp(role, "assistant"))
			return ig_fail(
				err, -EINVAL,
				"message %zu: the model's chat template has no "
				"place for the role '%s'; it takes system, user and assistant",
				i, role);
	}
	if (c->three_roles && n == 0)
		return ig_fail(err, -EINVAL, "the model's chat template needs a message");
	return 0;
}

static int emit_bos(struct sink *k)
{
	const struct ig_tokenizer *t = k->tokenizer;
	int32_t bos = ig_tokenizer_bos(t);
	size_t len;
	bool special;
	const char *s;

	if (!ig_tokenizer_add_bos(t))
		return 0;
	s = ig_tokenizer_token(t, bos, &len, &special);
	if (!s) /* the file names none */
		return 0;
	return k->ids ? ig_ids_add(k->ids, &bos, 1, k->max_ids) : emit(k, s, len, true);
}

static int walk(const struct ig_chat_template *c, struct sink *k, const struct ig_chat_message *m,
		size_t n, bool add_generation_prompt, struct ig_error *err)
{
	int rc = check_roles(c, m, n, err);

	if (rc)
		return rc;
	ig_strbuf_init(&k->turn);
	rc = emit_bos(k);
	if (!rc && n && c->system && strcmp(m[0].role, "system"))
		rc = emit_message(k, "system", c->system, strlen(c->system));
	for (size_t i = 0; i < n && !rc; i++)
		rc = emit_message(k, m[i].role, m[i].content, m[i].content_len);
	if (!rc && add_generation_prompt) {
		rc = emit_markers(k, START);
		if (!rc)
			rc = emit(k, "assistant\n", strlen("assistant\n"), false);
	}
	ig_strbuf_finish(&k->turn);
	if (rc == -E2BIG)
		ig_fail(err, rc, "the conversation has more than %zu tokens", k->max_ids);
	else if (rc)
		ig_fail(err, rc, "out of memory for the conversation");
	return rc;
}

int ig_chat_template_encode(const struct ig_chat_template *c, const struct ig_chat_message *m,
			    size_t n, bool add_generation_prompt, size_t max_ids,
			    struct ig_ids *out, struct ig_error *err)
{
	struct sink k = { .tokenizer = c->tokenizer, .ids = out, .max_ids = max_ids };
	size_t n_before = out->n;
	int rc = walk(c, &k, m, n, add_generation_prompt, err);

	if (rc)
		out->n = n_before;
	return rc;
}

int ig_chat_template_render(const struct ig_chat_template *c, const struct ig_chat_message *m,
			    size_t n, bool add_generation_prompt, char **out, struct ig_error *err)
{
	struct ig_strbuf text;
	struct sink k = { .tokenizer = c->tokenizer, .text = &text };
	int rc;

	*out = NULL;
	ig_strbuf_init(&text);
	rc = walk(c, &k, m, n, add_generation_prompt, err);
	if (!rc) {
		*out = ig_strbuf_steal(&text);
		if (!*out)
			rc = ig_fail(err, -ENOMEM, "out of memory for the conversation");
	}
	ig_strbuf_finish(&text);
	return rc;
}
