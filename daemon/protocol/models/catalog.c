/*
 * catalog.c: the models as Codex's model catalog wants them.  It reads the list from the address in
 * model_catalog_url, refuses all of it for one entry that lacks a member, and takes from an entry the
 * size of the context, the base instructions and the kinds of tools.
 */
#include "daemon/protocol/models/catalog.h"

/* Instead of those that Codex has built in: 4,000 tokens at the beginning of every prompt. */
static const char instructions[] =
	"You are a coding agent. You work in the user's repository with the tools that you are given: "
	"read the code before you change it, make the smallest change that does what was asked, and "
	"run the tests or the program to see that it works. Change files with apply_patch where you "
	"have that tool. Do not stop before the task is done, and do not do more than it. At the end "
	"say in a few sentences what you changed and what you ran.";

static void entry(struct ig_json_writer *w, const struct ig_model_status *m, size_t place)
{
	static const struct {
		const char *effort, *description;
	} levels[] = {
		{ "none", "Without reasoning, where the model can do without." },
		{ "low", "Short reasoning." },
		{ "medium", "Reasoning of medium length." },
		{ "high", "Long reasoning." },
	};

	ig_json_putf(w,
		     "{'slug': %s, 'display_name': %s, 'description': %s, 'visibility': 'list', "
		     "'supported_in_api': true, 'priority': %zu, 'shell_type': 'default', "
		     "'support_verbosity': false, 'apply_patch_tool_type': 'freeform', "
		     "'truncation_policy': {'mode': 'bytes', 'limit': 10000}, "
		     "'supports_parallel_tool_calls': true, 'experimental_supported_tools': [], "
		     "'input_modalities': ['text'], 'base_instructions': %s",
		     m->name, m->name, "A model of this server.", place, instructions);
	ig_json_open_array(w, "supported_reasoning_levels");
	for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
		ig_json_putf(w, "{'effort': %s, 'description': %s}", levels[i].effort,
			     levels[i].description);
	ig_json_close_array(w);
	if (m->n_context)
		ig_json_putf(w, "'context_window': %.0f, 'max_context_window': %.0f",
			     (double)m->n_context, (double)m->n_context);
	ig_json_close_object(w);
}

void ig_catalog_write(struct ig_json_writer *w, const struct ig_model_status *list, size_t n)
{
	ig_json_open_array(w, "models");
	for (size_t i = 0; i < n; i++)
		if (!list[i].traits.embeds && !list[i].traits.ranks)
			entry(w, &list[i], i);
	ig_json_close_array(w);
}
