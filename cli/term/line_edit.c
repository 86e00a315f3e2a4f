/*
 * line_edit.c: the editor of line.h, with libedit (NetBSD's; part of macOS).  The only file that
 * uses it.
 *
 * libedit reads characters through next_char, which handles Ctrl-C, changes of the window's size
 * and the idle connection while it waits.  Bytes are decoded as UTF-8 here and not by the C
 * library's locale; libedit needs a Unicode locale for the width of characters.
 *
 * Pastes: on request terminals send ESC [200~ and ESC [201~ around pasted text.  Between them the
 * end of a line does not end the message.
 */
#include "cli/term/line_private.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "base/utf8.h"
#include "cli/term/text.h"

struct line_editor {
	EditLine *el;
	History *history;
	const char *prompt;
	char bold[128]; /* the prompt with marks around its escape sequences */
	bool colour, pasting;
	int failed; /* the error of next_char: -errno */
	struct sigaction old_winch, old_cont;
};

static volatile sig_atomic_t resized, continued;

static void on_signal(int sig)
{
	if (sig == SIGWINCH)
		resized = 1;
	else
		continued = 1;
}

/* Set a UTF-8 locale, in which libedit knows the width of characters. */
static void choose_locale(void)
{
	static const char *const names[] = { "", "C.UTF-8", "UTF-8", "en_US.UTF-8" };

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (setlocale(LC_CTYPE, names[i]) && !strcmp(nl_langinfo(CODESET), "UTF-8"))
			return;
}

static struct ig_line *line_of(EditLine *el)
{
	void *p = NULL;

	el_get(el, EL_CLIENTDATA, &p);
	return p;
}

static char *show_prompt(EditLine *el)
{
	struct line_editor *e = line_of(el)->editor;

	if (!e->colour || !*e->prompt)
		return (char *)(uintptr_t)e->prompt;
	/* the sequence that ends bold must precede a character, or libedit delays it */
	size_t n = strlen(e->prompt) - 1;
	snprintf(e->bold, sizeof e->bold, "\1\033[1m\1%.*s\1\033[0m\1%s", n < 60 ? (int)n : 60,
		 e->prompt, e->prompt + n);
	return e->bold;
}

/* Read one character; each invalid part of UTF-8 becomes U+FFFD. */
static int decode(struct ig_line *l, int first, wchar_t *out)
{
	unsigned char bytes[4] = { (unsigned char)first };
	size_t n = 1;
	int len;

	while ((len = ig_utf8_check(bytes, n)) == 0) {
		int next = line_next_byte(l);
		if (next < 0)
			return next;
		bytes[n++] = (unsigned char)next;
	}
	if (len < 0 && n > 1)
		l->at--; /* the last may begin another character */
	*out = len > 0 ? (wchar_t)ig_utf8_char(bytes, len) : 0xfffd;
	return 1;
}

/* After Ctrl-Z and fg the terminal is in the shell's mode. */
static void on_wake(struct ig_line *l)
{
	EditLine *el = l->editor->el;

	if (continued) {
		continued = 0;
		el_set(el, EL_PREP_TERM, 0); /* otherwise libedit believes that it is prepared */
		el_set(el, EL_PREP_TERM, 1);
		el_set(el, EL_REFRESH);
	}
	if (resized) {
		resized = 0;
		el_resize(el);
		el_set(el, EL_REFRESH);
	}
}

static int next_char(EditLine *el, wchar_t *out)
{
	struct ig_line *l = line_of(el);
	int c = line_next_byte(l);

	if (c >= 0)
		c = decode(l, c, out);
	if (c == -1)
		return 0;
	if (c < 0) {
		l->editor->failed = c + 1;
		errno = -(c + 1);
		return -1;
	}
	return 1;
}

static unsigned char begin_paste(EditLine *el, int ch)
{
	line_of(el)->editor->pasting = true;
	return CC_NORM;
}

static unsigned char end_paste(EditLine *el, int ch)
{
	line_of(el)->editor->pasting = false;
	return CC_NORM;
}

/* Tab: insert the common prefix of all words that the line may become. */
static unsigned char complete(EditLine *el, int ch)
{
	struct ig_line *l = line_of(el);
	const LineInfo *info = el_line(el);
	size_t len = (size_t)(info->cursor - info->buffer), common = 0, n = 0;
	const char *word, *first = NULL;
	char rest[64];

	if (l->editor->pasting)
		return el_insertstr(el, "\t") ? CC_ERROR : CC_REFRESH;
	if (!l->o.word || !len || info->buffer[0] != '/' || info->cursor != info->lastchar)
		return CC_ERROR;
	for (size_t i = 0; (word = l->o.word(l->o.ctx, i)); i++) {
		if (strncmp(word, info->buffer + 1, len - 1))
			continue;
		const char *space = strchr(word, ' '); /* an argument is completed by a later Tab */
		if (space && (size_t)(space - word) >= len - 1)
			continue;
		if (!n++) {
			first = word;
			common = strlen(word);
		}
		while (strncmp(word, first, common))
			common--;
	}
	if (!n || (n > 1 && common == len - 1))
		return CC_ERROR;
	snprintf(rest, sizeof rest, "%.*s%s", (int)(common - (len - 1)), first + len - 1,
		 n == 1 ? " " : "");
	return el_insertstr(el, rest) ? CC_ERROR : CC_REFRESH;
}

static void bind_keys(EditLine *el)
{
	static const struct {
		const char *keys, *command;
	} binds[] = {
		{ "^R", "em-inc-search-prev" },	     { "^W", "ed-delete-prev-word" },
		{ "\\e[3~", "ed-delete-next-char" }, { "\\e[1~", "ed-move-to-beg" },
		{ "\\e[4~", "ed-move-to-end" },	     { "\\e[H", "ed-move-to-beg" },
		{ "\\e[F", "ed-move-to-end" },	     { "\\e[1;5C", "em-next-word" },
		{ "\\e[1;5D", "ed-prev-word" },	     { "\\e[200~", "ingot-begin-paste" },
		{ "\\e[201~", "ingot-end-paste" },   { "^I", "ingot-complete" },
	};

	/* el_set would leak copies of the names */
	el_wset(el, EL_ADDFN, L"ingot-begin-paste", L"a paste begins", begin_paste);
	el_wset(el, EL_ADDFN, L"ingot-end-paste", L"a paste ends", end_paste);
	el_wset(el, EL_ADDFN, L"ingot-complete", L"complete a command", complete);
	for (size_t i = 0; i < sizeof binds / sizeof binds[0]; i++)
		el_set(el, EL_BIND, binds[i].keys, binds[i].command, NULL);
}

int line_editor_open(struct ig_line *l, struct ig_error *err)
{
	struct sigaction sa = { .sa_handler = on_signal };
	struct line_editor *e = calloc(1, sizeof *e);
	HistEvent ev;

	if (!e)
		return ig_fail(err, -ENOMEM, "out of memory");
	choose_locale();
	e->prompt = "";
	e->colour = l->o.colour;
	e->history = history_init();
	e->el = e->history ? el_init("ingot", stdin, stdout, stderr) : NULL;
	if (!e->el) {
		if (e->history)
			history_end(e->history);
		free(e);
		return ig_fail(err, -ENOTTY, "the line editor does not start on this terminal");
	}
	l->editor = e;
	history(e->history, &ev, H_SETSIZE, IG_HISTORY_MAX_ENTRIES);
	el_set(e->el, EL_CLIENTDATA, l);
	el_set(e->el, EL_PROMPT_ESC, show_prompt, '\1');
	el_set(e->el, EL_EDITOR, "emacs");
	el_set(e->el, EL_HIST, history, e->history);
	el_wset(e->el, EL_GETCFN, next_char);
	bind_keys(e->el);
	(void)el_source(e->el, NULL); /* the user's .editrc, if there is one */
	for (size_t i = 0; l->o.history && i < l->o.history->n; i++)
		line_editor_remember(l, l->o.history->entries[i]);
	sigemptyset(&sa.sa_mask);
	sigaction(SIGWINCH, &sa, &e->old_winch);
	sigaction(SIGCONT, &sa, &e->old_cont);
	return 0;
}

void line_editor_remember(struct ig_line *l, const char *text)
{
	HistEvent ev;

	history(l->editor->history, &ev, H_ENTER, text);
}

static void add_utf8(struct ig_strbuf *b, wchar_t wc)
{
	char s[4];

	ig_strbuf_add(b, s, ig_utf8_put(s, (uint32_t)wc));
}

/* Switch the terminal's marks of pastes on or off. */
static void mark_pastes(bool on)
{
	const char *s = on ? "\033[?2004h" : "\033[?2004l";

	fputs(s, stdout);
	fflush(stdout);
}

int line_editor_read(struct ig_line *l, const char *prompt, struct ig_strbuf *text, bool *pasted,
		     struct ig_error *err)
{
	struct line_editor *e = l->editor;
	int n = 0;

	ig_strbuf_clear(text);
	e->prompt = prompt;
	e->failed = 0;
	if (!e->pasting)
		mark_pastes(true);
	continued = resized = 0;
	l->woken = on_wake;
	/* before the prompt: libedit does it after, and the terminal itself would edit the
	 * characters typed in between */
	el_set(e->el, EL_PREP_TERM, 1);
	const wchar_t *line = el_wgets(e->el, &n);
	l->woken = NULL;
	if (e->failed)
		e->pasting = false;
	if (!e->pasting)
		mark_pastes(false);
	if (e->failed == -EINTR)
		return ig_fail(err, -EINTR, "interrupted");
	if (e->failed)
		return ig_fail(err, e->failed, "the terminal: %s", strerror(-e->failed));
	if (!line || n <= 0)
		return 0;
	for (int i = 0; i < n; i++)
		if (!(i == n - 1 && line[i] == L'\n'))
			add_utf8(text, line[i]);
	*pasted = e->pasting;
	return ig_strbuf_ok(text) ? 1 : ig_fail(err, -ENOMEM, "out of memory");
}

void line_editor_close(struct ig_line *l)
{
	struct line_editor *e = l->editor;

	sigaction(SIGWINCH, &e->old_winch, NULL);
	sigaction(SIGCONT, &e->old_cont, NULL);
	el_end(e->el);
	history_end(e->history);
	free(e);
	l->editor = NULL;
}
