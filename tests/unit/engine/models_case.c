/* models_case.c: see models_case.h. */
#include "models_case.h"

struct ig_config models_config;

void models_use(const char *const *models, size_t n)
{
	harness_config_finish(&models_config);
	harness_config(&models_config, models, n);
}

void models_set(char **field, const char *value)
{
	free(*field);
	*field = strdup(value);
}

void models_first_use(size_t i) { models_set(&models_config.models[i].load, "first_use"); }

int models_setup(void **state)
{
	static const char *const one[] = { "good" };

	fake_reset();
	harness_config(&models_config, one, 1);
	return 0;
}

int models_teardown(void **state)
{
	fake_gate_loads(false);
	fake.fail_any_at = 0;
	harness_abandon();
	harness_config_finish(&models_config);
	return 0;
}

atomic_int models_n_ready;

void models_on_ready(void *ctx) { atomic_fetch_add((atomic_int *)ctx, 1); }

struct ig_model_status models_status(struct ig_engine *e, const char *name)
{
	struct ig_model_status all[16];
	size_t n = ig_engine_models(e, all, 16);

	for (size_t i = 0; i < n && i < 16; i++)
		if (!strcmp(all[i].name, name))
			return all[i];
	fail_msg("there is no model %s", name);
	return all[0];
}

enum ig_model_state models_state(struct ig_engine *e, const char *name)
{
	return models_status(e, name).state;
}

int models_take(struct ig_engine *e, const char *name, const struct ig_engine_model **m,
		struct ig_error *err)
{
	*err = (struct ig_error){ 0 };
	return ig_engine_take_model(e, name, models_on_ready, &models_n_ready, m, err);
}

int models_await(struct ig_engine *e, const char *name, const struct ig_engine_model **m,
		 struct ig_error *err)
{
	int64_t until = ig_now_ns() + (int64_t)20 * 1000000000;
	atomic_int mine;
	int rc;

	for (;;) {
		atomic_init(&mine, 0);
		*err = (struct ig_error){ 0 };
		rc = ig_engine_take_model(e, name, models_on_ready, &mine, m, err);
		if (rc != -EINPROGRESS)
			return rc;
		while (!atomic_load(&mine)) {
			if (ig_now_ns() > until)
				fail_msg("%s is never ready", name);
			usleep(200);
		}
	}
}

void models_touch(struct ig_engine *e, const char *name)
{
	const struct ig_engine_model *m;
	struct ig_error err;

	if (models_await(e, name, &m, &err))
		fail_msg("%s: %s", name, err.text);
	ig_engine_release_model(m);
}

void models_assert_answer(const struct client *c, const struct ask *a)
{
	char text[65536];

	expected(a, text, sizeof text);
	assert_string_equal(c->text, text);
}

void models_assert_answers(struct ig_engine *e, const char *name, const char *kind)
{
	struct ask a = { .model = name, .kind = kind, .n_prompt = 20, .max_tokens = 12, .seed = 7 };
	struct client c;

	models_touch(e, name);
	client_ask(&c, e, &a);
	client_finish(&c);
	models_assert_answer(&c, &a);
}
