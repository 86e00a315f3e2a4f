/* top_data.c: what the daemon tells `ingot top`; see top.h. */
#include <errno.h>
#include <string.h>

#include "cli/top/top.h"

static void replace(json_t **at, json_t *value)
{
	json_decref(*at);
	*at = value;
}

void ig_top_data_finish(struct ig_top_data *d)
{
	replace(&d->status, NULL);
	replace(&d->requests, NULL);
	replace(&d->models, NULL);
	replace(&d->stats, NULL);
}

void ig_top_data_copy(struct ig_top_data *to, const struct ig_top_data *from)
{
	struct ig_top_data copy = *from;

	json_incref(copy.status);
	json_incref(copy.requests);
	json_incref(copy.models);
	json_incref(copy.stats);
	ig_top_data_finish(to);
	*to = copy;
}

static double number(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	return json_is_number(v) ? json_number_value(v) : NAN;
}

static const json_t *find(const json_t *list, const char *id)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *r = json_array_get(list, i);
		const char *other = ig_json_text(r, "id");
		if (other && !strcmp(other, id))
			return r;
	}
	return NULL;
}

/* Tokens a second since the last look, smoothed as the page does it. */
static double speed_of(const json_t *r, const json_t *before)
{
	double seconds = number(r, "age_s") - number(before, "age_s");
	double tokens = number(r, "output_tokens") - number(before, "output_tokens");
	double last = number(before, "tokens_per_second");
	const char *state = ig_json_text(r, "state");

	if (!(seconds > 0) || !isfinite(tokens))
		return NAN;
	double speed = tokens > 0 ? tokens / seconds : 0;
	if (speed == 0 && !(state && !strcmp(state, "decode")))
		return NAN;
	return isfinite(last) ? (speed + last) / 2 : speed;
}

static void measure(const json_t *requests, const json_t *old)
{
	const json_t *list = json_object_get(requests, "data");

	for (size_t i = 0; i < json_array_size(list); i++) {
		json_t *r = json_array_get(list, i);
		const char *id = ig_json_text(r, "id");
		const json_t *before = id ? find(json_object_get(old, "data"), id) : NULL;
		double speed = speed_of(r, before);
		if (json_is_object(r))
			json_object_set_new(r, "tokens_per_second",
					    isfinite(speed) ? json_real(speed) : json_null());
	}
}

int ig_top_event(struct ig_top_data *d, const char *text, size_t len, struct ig_error *err)
{
	struct ig_json_error why;
	json_t *root, *data;
	const char *type;
	int rc = ig_json_read(text, len, NULL, &root, &why);

	if (rc)
		return ig_fail(err, rc == -ENOMEM ? rc : -EBADMSG,
			       "the daemon sent what is not JSON: %.100s", why.text);
	type = ig_json_text(root, "type");
	data = json_object_get(root, "data");
	if (!type || !json_is_object(data)) {
		rc = ig_fail(err, -EBADMSG, "the daemon sent an event without a type or data");
	} else if (!strcmp(type, "status")) {
		replace(&d->status, json_incref(data));
	} else if (!strcmp(type, "models")) {
		replace(&d->models, json_incref(data));
	} else if (!strcmp(type, "requests")) {
		measure(data, json_object_get(d->requests, "data") ? d->requests : NULL);
		replace(&d->requests, json_incref(data));
	}
	json_decref(root);
	return rc;
}

double ig_top_speed(const struct ig_top_data *d)
{
	const json_t *list = json_object_get(d->requests, "data");
	double sum = 0;

	for (size_t i = 0; i < json_array_size(list); i++) {
		double speed = number(json_array_get(list, i), "tokens_per_second");
		sum += isfinite(speed) ? speed : 0;
	}
	return sum;
}

void ig_top_tick(struct ig_top_data *d)
{
	if (d->n_history == IG_TOP_HISTORY)
		memmove(d->history, d->history + 1, --d->n_history * sizeof *d->history);
	d->history[d->n_history++] = ig_top_speed(d);
}
