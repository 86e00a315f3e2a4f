/* session.c: see session.h. */
#include "daemon/protocol/core/session.h"

void ig_session_receive(struct ig_session *s, char *text, size_t len)
{
	s->kind->receive(s, text, len);
}

bool ig_session_wants_input(const struct ig_session *s) { return s->kind->wants_input(s); }

enum ig_fill ig_session_fill(struct ig_session *s, struct ig_strbuf *out)
{
	return s->kind->fill(s, out);
}

bool ig_session_needs_key(const struct ig_session *s)
{
	return s->kind->needs_key && s->kind->needs_key(s);
}

void ig_session_cancel(struct ig_session *s, const char *reason)
{
	if (s)
		s->kind->cancel(s, reason);
}

void ig_session_end(struct ig_session *s)
{
	if (s)
		s->kind->end(s);
}
