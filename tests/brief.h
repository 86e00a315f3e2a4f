/* brief.h: what takes minutes where a processor plays a GPU, and is the same code for other numbers. */
#ifndef IG_TESTS_BRIEF_H
#define IG_TESTS_BRIEF_H

#include <stdbool.h>
#include <stdlib.h>

/* Whether a test leaves out what ./check --long alone runs.  ./check sets INGOT_TEST_BRIEF; --long and a run by hand,
 * on a real GPU too, do all. */
static inline bool ig_brief(void)
{
	const char *brief = getenv("INGOT_TEST_BRIEF");

	return brief && *brief;
}

#endif
