/* normalize.c: see normalize.h. */
#include "daemon/protocol/core/normalize.h"

#include "daemon/protocol/core/reply.h"
#include "store/metrics.h"

#include <stdio.h>
#include <string.h>

static bool is_system(const json_t *m)
{
	const char *role = ig_json_text(m, "role");

	return role && !strcmp(role, "system") && json_is_string(json_object_get(m, "content"));
}

static int set_text(json_t *list, size_t i, const struct ig_strbuf *text)
{
	if (!text->len)
		return json_array_remove(list, i);
	json_t *copy = ig_json_copy(json_array_get(list, i));
	json_t *content = json_stringn_nocheck(text->data, text->len);
	bool ok = copy && content && !json_object_set(copy, "content", content) &&
		  !json_array_set(list, i, copy);

	json_decref(content);
	json_decref(copy);
	return ok ? 0 : -1;
}

/* Message i: 1 if it is removed. */
static int change(struct ig_prompt_pass *p, json_t *list, size_t i)
{
	const json_t *content = json_object_get(json_array_get(list, i), "content");
	struct ig_strbuf out = { 0 };
	int rc = ig_prompt_pass_text(p, json_string_value(content), json_string_length(content),
				     &out);

	if (rc > 0) {
		bool removed = !out.len;
		rc = set_text(list, i, &out) < 0 ? -1 : removed;
	}
	ig_strbuf_finish(&out);
	return rc;
}

int ig_normalize(struct ig_reply *r, json_t *list)
{
	const struct ig_principal *who = &r->origin->who;
	struct ig_prompt_pass p = { .rules = r->rules,
				    .model = r->prepared.model->name,
				    .client = who->key[0] ? who->key : r->origin->client };

	if (!r->rules || r->request.verbatim)
		return 0;
	for (size_t i = 0; i < json_array_size(list);) {
		int rc = is_system(json_array_get(list, i)) ? change(&p, list, i) : 0;
		if (rc < 0)
			return -1;
		i += rc ? 0 : 1;
	}
	r->applied = p.applied;
	return 0;
}

void ig_normalize_take(struct ig_reply *r)
{
	struct ig_origin *o = r->origin;
	size_t n = 0;

	for (size_t i = 0; i < IG_PROMPT_MAX_RULES; i++) {
		if (!(r->applied >> i & 1))
			continue;
		const char *name = ig_prompt_rules_get(r->rules, i)->name;
		ig_metrics_normalized(r->api->deps.metrics, name);
		if (n + strlen(name) + 3 <= sizeof o->normalized)
			n += (size_t)snprintf(o->normalized + n, sizeof o->normalized - n, "%s%s",
					      n ? ", " : "", name);
	}
	r->applied = 0;
}
