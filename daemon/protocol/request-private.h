/* request-private.h: what the parsers of the several kinds of request share. */
#ifndef INGOT_PROTOCOL_REQUEST_PRIVATE_H
#define INGOT_PROTOCOL_REQUEST_PRIVATE_H

#include "daemon/protocol/request.h"

#include <jansson.h>

/* One parameter by its name.  read gets a value that is not null. */
struct ig_param {
	const char *name;
	int (*read)(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e);
};

/* Text to one JSON object, with caps on depth, on the number of values and on
 * what JSON leaves open (duplicate keys, lone surrogates, NUL). */
int ig_json_load_object(const char *text, size_t len, json_t **out, struct ig_api_error *e);

/* Read every member of obj by the table (ended by a NULL name); null is absent;
 * a name that the table lacks is refused. */
int ig_params_read(struct ig_request *r, const struct ig_param *table, json_t *obj,
		   struct ig_api_error *e);

const char *ig_json_type_name(const json_t *v); /* "a string", "null" … */
int ig_fail_type(struct ig_api_error *e, const char *param, const char *expected, const json_t *v);
int ig_fail_value(struct ig_api_error *e, const char *param, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int ig_fail_unsupported(struct ig_api_error *e, const char *param, const char *accepted);
int ig_fail_missing(struct ig_api_error *e, const char *param);
int ig_fail_memory(struct ig_api_error *e);

/* A copy of a string value; refuses other types. */
int ig_read_string(char **out, const char *name, json_t *v, struct ig_api_error *e);
int ig_read_bool(bool *out, const char *name, json_t *v, struct ig_api_error *e);
int ig_read_number(double *out, double min, bool open_min, double max, const char *name,
		   json_t *v, struct ig_api_error *e);
int ig_read_int(int32_t *out, int32_t min, int32_t max, const char *name, json_t *v,
		struct ig_api_error *e);

/* Append a message; takes content over, also on failure. */
int ig_request_add_message(struct ig_request *r, const char *role, char *content, size_t len,
			   struct ig_api_error *e);
/* Append the i-th element of a list, an object whose other members were looked at: its
 * role, and its content with parts of these types (an assistant's: of those). */
int ig_request_read_message(struct ig_request *r, const char *list, size_t i, json_t *m,
			    const char *const *types, const char *const *assistant_types,
			    struct ig_api_error *e);
/* The texts of a content: a string, or a list of parts whose type is one of types
 * (NULL-terminated).  *out is malloc'd. */
int ig_read_content(char **out, size_t *len, const char *param, json_t *v,
		    const char *const *types, struct ig_api_error *e);

/* Readers that both tables use. */
typedef int ig_param_fn(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e);
ig_param_fn ig_param_model, ig_param_temperature, ig_param_top_p, ig_param_top_k, ig_param_seed,
	ig_param_min_p, ig_param_frequency_penalty, ig_param_presence_penalty,
	ig_param_repetition_penalty, ig_param_logit_bias, ig_param_max_tokens, ig_param_stop, ig_param_stream, ig_param_store, ig_param_metadata,
	ig_param_parallel_tool_calls, ig_param_tool_choice;
/* Accepted at values that change nothing. */
ig_param_fn ig_param_any_string, ig_param_false, ig_param_zero, ig_param_one, ig_param_empty_list,
	ig_param_auto, ig_param_null_only;

#endif
