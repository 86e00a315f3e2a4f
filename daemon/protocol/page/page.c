/*
 * page.c: the page for browsers (page/), at / and /ui, and its files below /ui/.  They are public:
 * with keys the page asks for one and keeps it in its memory.  A browser may keep the files, but asks
 * each time whether they are still the same.
 */
#include "daemon/protocol/page/page.h"

#include "daemon/protocol/ollama/ollama.h"
#include "page/embedded.h"

#include <string.h>

/* Only what the daemon itself serves is loaded, asked and run, and no text becomes HTML. */
#define POLICY                                                                                     \
	"content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; "       \
	"img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "                \
	"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'\r\n"

static const char fields[] = "cache-control: no-cache\r\n"
			     "vary: accept\r\n"
			     "x-content-type-options: nosniff\r\n"
			     "referrer-policy: no-referrer\r\n"
			     "cross-origin-opener-policy: same-origin\r\n"
			     "cross-origin-resource-policy: same-origin\r\n" POLICY;

static const struct ig_page_file *find(const char *name)
{
	for (size_t i = 0; i < ig_n_page_files; i++)
		if (!strcmp(ig_page_files[i].name, name))
			return &ig_page_files[i];
	return NULL;
}

static void reply(struct ig_exchange *x, const struct ig_http_request *r,
		  const struct ig_page_file *f)
{
	bool same = r->if_none_match && strstr(r->if_none_match, f->etag);

	if (!same)
		ig_strbuf_add(&x->body, f->data, f->len);
	ig_exchange_reply(x, same ? 304 : 200);
	x->head.content_type = f->type;
	x->head.etag = f->etag;
	x->head.fields = fields;
}

void ig_page_get(struct ig_exchange *x, const struct ig_http_request *r)
{
	reply(x, r, find("index.html"));
}

void ig_page_root(struct ig_exchange *x, const struct ig_http_request *r)
{
	if (r->wants_html) {
		ig_page_get(x, r);
		return;
	}
	ig_ollama_root(x, r);
	x->head.fields = "vary: accept\r\n";
}

bool ig_page_below(struct ig_exchange *x, const struct ig_http_request *r, const char *name)
{
	const struct ig_page_file *f = find(name[0] ? name : "index.html");

	if (f && strcmp(r->method, "GET"))
		ig_exchange_wrong_method(x, r, "GET");
	else if (f)
		reply(x, r, f);
	return f != NULL;
}
