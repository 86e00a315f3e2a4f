/*
 * cache_report.c: see cache_report.h.  OpenAI's object has a type and, for what it has words for, a
 * reason; its member "ingot" has ours.
 */
#include "daemon/protocol/core/cache_report.h"

#include "daemon/protocol/core/reply.h"

/* Only an administrator learns what others have asked. */
static void put_own(const struct ig_gen_result *g, bool administrator, struct ig_json_writer *w)
{
	const struct ig_prefix_report *p = &g->report;
	enum ig_prefix_reason reason = administrator ? ig_prefix_full_reason(p) : p->reason;
	int32_t n_same = administrator && p->n_other_key ? p->n_other_key : p->n_same;
	bool compared = p->compared[0] && reason == p->reason;

	ig_json_putf(w,
		     "'ingot': {'reason': %s, 'prompt_tokens': %d, 'cached_tokens': %d, "
		     "'same_tokens': %.0f, 'compared_with': %s, 'same': %s, 'earlier': %s, "
		     "'now': %s}",
		     reason ? ig_prefix_reason_name(reason) : NULL, g->n_prompt, g->n_cached,
		     n_same < 0 ? NAN : (double)n_same, compared ? p->compared : NULL,
		     compared ? p->same : NULL, compared ? p->earlier : NULL,
		     compared ? p->now : NULL);
}

/* OpenAI's reason, where it has one: a type cache_miss. */
static const char *miss_of(enum ig_prefix_reason reason)
{
	return reason == IG_PREFIX_DIVERGED    ? "input_changed" :
	       reason == IG_PREFIX_OTHER_MODEL ? "model_changed" :
						 NULL;
}

static const char *type_of(const struct ig_prefix_report *p)
{
	if (p->not_found)
		return "comparison_response_not_found";
	if (p->reason == IG_PREFIX_FULL || p->reason == IG_PREFIX_EXTENDED)
		return "cache_hit";
	return miss_of(p->reason) ? "cache_miss" : "unavailable";
}

void ig_put_cache_report(const struct ig_reply *r, struct ig_json_writer *w)
{
	const struct ig_gen_result *g = r->n_choices ? &r->choices[0].result : NULL;

	if (!ig_wants_cache_report(&r->request))
		return;
	ig_json_open_object(w, "prompt_cache_diagnostics");
	if (!g || !g->report.reason) {
		ig_json_putf(w, "'type': 'unavailable'}");
		return;
	}
	const struct ig_prefix_report *p = &g->report;
	ig_json_putf(w, "'type': %s", type_of(p));
	if (!p->not_found && miss_of(p->reason))
		ig_json_putf(w,
			     "'reason': %s, 'cache_missed_tokens': %d, "
			     "'comparison_reusable_tokens': %d",
			     miss_of(p->reason), g->n_prompt - p->n_same, p->n_same);
	put_own(g, r->origin->who.role == IG_ROLE_ADMINISTRATOR, w);
	ig_json_close_object(w);
}
