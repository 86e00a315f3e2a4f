/* scheduler_case.c: see scheduler_case.h. */
#include "scheduler_case.h"

struct ig_config scheduler_config;
const char *const scheduler_one[1] = { "good" };
const char *const scheduler_two[2] = { "good", "good2" };
const char *const scheduler_grouped[1] = { "groups" };
const char *const scheduler_windowed[1] = { "window" };

int scheduler_setup(void **state)
{
	fake_reset();
	harness_config(&scheduler_config, scheduler_one, 1);
	return 0;
}

int scheduler_teardown(void **state)
{
	harness_abandon();
	harness_config_finish(&scheduler_config);
	return 0;
}

void scheduler_use(const char *const *models, size_t n)
{
	harness_config_finish(&scheduler_config);
	harness_config(&scheduler_config, models, n);
}

void scheduler_assert_answer(const struct client *c, const struct ask *a)
{
	char text[65536];
	int32_t n = expected(a, text, sizeof text);

	assert_string_equal(c->text, text);
	assert_int_equal(c->result.finish, IG_FINISH_LENGTH);
	assert_int_equal(c->result.n_output, n);
	assert_int_equal(c->result.n_prompt, a->n_prompt);
}
