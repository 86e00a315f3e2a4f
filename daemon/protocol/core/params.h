/* params.h: what the parsers of the several kinds of request share. */
#pragma once

#include "daemon/protocol/core/errors.h"
#include "daemon/protocol/core/request.h"

/* One parameter by its name.  read gets a value that is not null. */
struct ig_param {
	const char *name;
	int (*read)(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e);
};

/* Read every member of obj by the table (ended by a NULL name); null is absent;
 * a name that the table lacks is refused. */
int ig_params_read(struct ig_request *r, const struct ig_param *table, json_t *obj,
		   struct ig_api_error *e);

/* A copy of a string value; refuses other types. */
int ig_read_string(char **out, const char *name, json_t *v, struct ig_api_error *e);
int ig_read_bool(bool *out, const char *name, json_t *v, struct ig_api_error *e);
int ig_read_int(int32_t *out, int32_t min, int32_t max, const char *name, json_t *v,
		struct ig_api_error *e);

/* A body that is one object, by a table (NULL: check does it all); check: what holds
 * between its members (NULL: nothing). */
int ig_request_read(const char *text, size_t len, const struct ig_param *table,
		    int (*check)(struct ig_request *r, json_t *root, struct ig_api_error *e),
		    struct ig_request *r, struct ig_api_error *e);

/* "param.name", cut when it is too long. */
void ig_member_name(char *out, size_t cap, const char *param, const char *name);

/* ---- messages (content.c) -------------------------------------------------------- */

/* The template's name for a role (developer is system); NULL: there is none such. */
const char *ig_message_role(const char *role);
/* Append a message; takes it over, NULL is out of memory. */
int ig_request_add(struct ig_request *r, json_t *message, struct ig_api_error *e);
/* Append the i-th element of a list, an object whose other members were looked at: its
 * role, and its content with parts of these types (an assistant's: of those). */
int ig_request_read_message(struct ig_request *r, const char *list, size_t i, json_t *m,
			    const char *const *types, const char *const *assistant_types,
			    struct ig_api_error *e);
/* The texts of a content: a string, or a list of parts whose type is one of types
 * (NULL-terminated).  *out is a new reference to a string. */
int ig_read_content(json_t **out, const char *param, json_t *v, const char *const *types,
		    struct ig_api_error *e);

/* An element of an assistant message's tool_calls; id NULL: none. */
json_t *ig_tool_call_object(const char *id, const char *name, const char *arguments);
/* The name of the call that had this id, the latest; borrowed.  NULL: there was none. */
json_t *ig_request_called(const struct ig_request *r, const char *id);

/* ---- parameters that several protocols have (params.c) ------------------------------ */

typedef int ig_param_fn(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e);
ig_param_fn ig_param_model, ig_param_temperature, ig_param_top_p, ig_param_top_k, ig_param_seed,
	ig_param_min_p, ig_param_frequency_penalty, ig_param_presence_penalty,
	ig_param_repetition_penalty, ig_param_logit_bias, ig_param_max_tokens, ig_param_stop,
	ig_param_stream, ig_param_store, ig_param_metadata, ig_param_parallel_tool_calls,
	ig_param_ignore_end, ig_param_template_vars;
/* stream_options is only for streams. */
int ig_check_stream_options(const struct ig_request *r, json_t *root, struct ig_api_error *e);
/* Accepted at values that change nothing. */
ig_param_fn ig_param_any_string, ig_param_false, ig_param_one, ig_param_empty_list, ig_param_auto;

/* ---- tools and forms (tools.c) -------------------------------------------------------- */

/* How a protocol spells a tool. */
enum ig_tool_spelling {
	IG_TOOLS_NESTED,       /* {"type": "function", "function": {"name", "parameters" …}} */
	IG_TOOLS_FLAT,	       /* {"type": "function", "name", "parameters" …} */
	IG_TOOLS_INPUT_SCHEMA, /* {"name", "description", "input_schema"} */
};
/* r->tools, in the nested spelling.  An empty list is none. */
int ig_read_tools(struct ig_request *r, const char *name, json_t *v, enum ig_tool_spelling how,
		  struct ig_api_error *e);
/* "auto", "none", "required" ("any"), or an object that names one. */
int ig_read_tool_choice(struct ig_request *r, const char *name, json_t *v,
			enum ig_tool_spelling how, struct ig_api_error *e);
/* After all parameters: a choice needs tools, a named one must be among them. */
int ig_check_tool_choice(struct ig_request *r, const char *name, struct ig_api_error *e);
/* {"type": "text" | "json_object" | "json_schema" | "regex"}; nested: the schema's name and
 * itself lie in a member json_schema (chat completions), else beside type (Responses). */
int ig_read_format(struct ig_request *r, const char *name, json_t *v, bool nested,
		   struct ig_api_error *e);
/* ignore_end is not for an answer that must have a form. */
int ig_check_ignore_end(const struct ig_request *r, struct ig_api_error *e);
/* Remember a value that comes back in the answer as it was sent. */
int ig_request_say(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e);
