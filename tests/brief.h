/* brief.h: what takes minutes on two processors, and is the same code for other numbers. */
#ifndef IG_TESTS_BRIEF_H
#define IG_TESTS_BRIEF_H

#include <stdbool.h>
#include <stdlib.h>

/* Whether ./check sets this variable. */
static inline bool ig_check_sets(const char *variable)
{
	const char *value = getenv(variable);

	return value && *value;
}

/* Whether a test leaves out what ./check --long alone runs.  ./check sets INGOT_TEST_BRIEF; --long and a run by hand,
 * on a real GPU too, do all. */
static inline bool ig_brief(void) { return ig_check_sets("INGOT_TEST_BRIEF"); }

#endif
