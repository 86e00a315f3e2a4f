/* doctor_memory.c: what `ingot doctor` says of memory.budget and of what limits its default. */
#include "cli/commands/doctor.h"

#include "base/machine.h"
#include "cli/term/text.h"

#define WHAT "memory budget"

struct words {
	char budget[32], usual[32], device[32], machine[32];
};

/* The GPU shares the machine's memory: its limit leaves less than the machine's size does. */
static bool is_limited_by_gpu(const struct ig_memory_facts *m)
{
	return ig_default_budget(m->machine, m->device, true) <
	       ig_default_budget(m->machine, UINT64_MAX, true);
}

static void add_unified(struct ig_findings *f, const struct ig_memory_facts *m,
			const struct words *w, uint64_t usual)
{
	char wired[64] = "";

	if (m->wired_limit_mb > 0)
		snprintf(wired, sizeof wired, " (iogpu.wired_limit_mb is %lld)",
			 (long long)m->wired_limit_mb);
	if (m->budget > usual)
		ig_findings_add(
			f, IG_FINDING_NOTE, WHAT,
			"set memory.budget to 0, or lower: beyond its limit the GPU fails or the system "
			"swaps",
			"memory.budget is %s; %s leave the system its share, as the GPU's limit is "
			"%s%s and the machine has %s",
			w->budget, w->usual, w->device, wired, w->machine);
	else if (m->budget)
		ig_findings_add(f, IG_FINDING_OK, WHAT, NULL,
				"%s; the GPU's limit is %s%s, the machine has %s", w->budget,
				w->device, wired, w->machine);
	else if (is_limited_by_gpu(m) && m->wired_limit_mb > 0)
		ig_findings_add(
			f, IG_FINDING_NOTE, WHAT,
			"the system's own limit comes back with a restart, or with: sudo sysctl "
			"iogpu.wired_limit_mb=0",
			"%s by default: iogpu.wired_limit_mb is %lld, so the GPU's limit is %s; the "
			"machine has %s",
			w->usual, (long long)m->wired_limit_mb, w->device, w->machine);
	else if (is_limited_by_gpu(m))
		ig_findings_add(f, IG_FINDING_OK, WHAT, NULL,
				"%s by default: the GPU's limit is %s%s, the machine has %s",
				w->usual, w->device,
				m->wired_limit_mb < 0 ? "" : ", which iogpu.wired_limit_mb changes",
				w->machine);
	else
		ig_findings_add(f, IG_FINDING_OK, WHAT, NULL,
				"%s by default: the machine has %s, of which the system keeps its "
				"share; the GPU's limit is %s%s",
				w->usual, w->machine, w->device, wired);
}

void ig_findings_memory(struct ig_findings *f, const struct ig_memory_facts *m)
{
	uint64_t usual = ig_default_budget(m->machine, m->device, m->unified);
	struct words w;

	ig_text_bytes(w.budget, sizeof w.budget, m->budget);
	ig_text_bytes(w.usual, sizeof w.usual, usual);
	ig_text_bytes(w.device, sizeof w.device, m->device);
	ig_text_bytes(w.machine, sizeof w.machine, m->machine);
	if (m->unified)
		add_unified(f, m, &w, usual);
	else if (m->budget)
		ig_findings_add(f, IG_FINDING_OK, WHAT, NULL, "%s", w.budget);
	else
		ig_findings_add(f, IG_FINDING_OK, WHAT, NULL, "%s by default, %s", w.usual,
				m->device ? "the device's memory" :
					    "three quarters of the usable memory");
}
