/* session.h: what the sessions of all WebSockets have in common. */
#pragma once

#include "daemon/protocol/api.h"

/* As the functions of api.h. */
struct ig_session_kind {
	void (*receive)(struct ig_session *s, char *text, size_t len);
	bool (*wants_input)(const struct ig_session *s);
	enum ig_fill (*fill)(struct ig_session *s, struct ig_strbuf *out);
	void (*cancel)(struct ig_session *s, const char *reason);
	void (*end)(struct ig_session *s);
	bool (*needs_key)(const struct ig_session *s); /* NULL: it does not */
};

struct ig_session { /* the first member of each */
	const struct ig_session_kind *kind;
};
