/* doctor_findings.c: see doctor.h. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/json.h"
#include "cli/commands/doctor.h"
#include "cli/term/text.h"

void ig_findings_finish(struct ig_findings *f)
{
	for (size_t i = 0; i < f->n; i++) {
		free(f->list[i].what);
		free(f->list[i].text);
		free(f->list[i].todo);
	}
	free(f->list);
	*f = (struct ig_findings){ 0 };
}

static char *plain(const char *s)
{
	struct ig_strbuf b = { 0 };

	ig_text_plain(&b, s, strlen(s), false);
	char *p = ig_strbuf_steal(&b);
	ig_strbuf_finish(&b);
	return p;
}

void ig_findings_add(struct ig_findings *f, enum ig_finding_kind kind, const char *what,
		     const char *todo, const char *fmt, ...)
{
	struct ig_finding *n;
	char text[1024];
	va_list ap;

	if (f->failed || !ig_array_grow(f->list, &f->cap, f->n)) {
		f->failed = true;
		return;
	}
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	n = &f->list[f->n++];
	*n = (struct ig_finding){ kind, plain(what), plain(text), todo ? plain(todo) : NULL };
	f->failed = !n->what || !n->text || (todo && !n->todo);
}

size_t ig_findings_wrong(const struct ig_findings *f)
{
	size_t n = 0;

	for (size_t i = 0; i < f->n; i++)
		n += f->list[i].kind == IG_FINDING_WRONG;
	return n;
}

static const char *kind_name(enum ig_finding_kind kind)
{
	static const char *const names[] = { "ok", "note", "wrong" };

	return names[kind];
}

bool ig_findings_text(const struct ig_findings *f, struct ig_strbuf *out)
{
	size_t width = 0;

	for (size_t i = 0; i < f->n && !f->failed; i++)
		if (strlen(f->list[i].what) > width)
			width = strlen(f->list[i].what);
	if (width > 32)
		width = 32;
	for (size_t i = 0; i < f->n && !f->failed; i++) {
		const struct ig_finding *x = &f->list[i];
		ig_strbuf_printf(out, "%-6s %-*s  %s\n", kind_name(x->kind), (int)width, x->what,
				 x->text);
		if (x->todo)
			ig_strbuf_printf(out, "%-6s %-*s  -> %s\n", "", (int)width, "", x->todo);
	}
	size_t wrong = ig_findings_wrong(f);
	if (wrong)
		ig_strbuf_printf(out, "\n%zu thing%s wrong\n", wrong, wrong == 1 ? " is" : "s are");
	else
		ig_strbuf_puts(out, "\nnothing is wrong\n");
	return ig_strbuf_ok(out) && !f->failed;
}

bool ig_findings_json(const struct ig_findings *f, struct ig_strbuf *out)
{
	struct ig_json_writer w = { .out = out };

	ig_json_putf(&w, "{'wrong': %zu, 'checks': [", ig_findings_wrong(f));
	for (size_t i = 0; i < f->n && !f->failed; i++) {
		const struct ig_finding *x = &f->list[i];
		ig_json_putf(&w, "{'status': %s, 'check': %s, 'found': %s, 'todo': %s}",
			     kind_name(x->kind), x->what, x->text, x->todo);
	}
	ig_json_putf(&w, "]}");
	ig_strbuf_puts(out, "\n");
	return ig_strbuf_ok(out) && !f->failed;
}
