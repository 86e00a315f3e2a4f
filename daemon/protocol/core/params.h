/* params.h: what the parsers of all kinds of request share. */
#pragma once

#include "daemon/protocol/core/errors.h"
#include "daemon/protocol/core/request.h"

typedef int ig_param_fn(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e);

/* What the value of a member must be, and what is stored of it at the offset `at` in the
 * target; `at` 0: the value is only checked. */
enum ig_param_kind {
	IG_PARAM_READ,	 /* whatever read accepts; the target is a struct ig_request */
	IG_PARAM_SKIP,	 /* anything; without effect, or read elsewhere */
	IG_PARAM_STRING, /* a copy: char *, freed with what was there before */
	IG_PARAM_BOOL,	 /* bool */
	IG_PARAM_NOT,	 /* bool: the opposite */
	IG_PARAM_INT,	 /* int32_t from min to max */
	IG_PARAM_NUMBER, /* double from min to max */
	IG_PARAM_ABOVE,	 /* double above min, and at most max */
	/* json_t *, borrowed: */
	IG_PARAM_TEXT,
	IG_PARAM_OBJECT,
	IG_PARAM_LIST,
	IG_PARAM_BOOLEAN,
	/* Nothing is stored; values lists what is accepted, as JSON text in a sentence: */
	IG_PARAM_ONLY,	/* another value is an unsupported parameter */
	IG_PARAM_NOTED, /* another value of the same type has no effect, and is noted */
	IG_PARAM_WORD,	/* another string is an invalid value */
};

/* One member of a JSON object by its name.  Null is as good as absent. */
struct ig_param {
	const char *name; /* NULL: all members of the table more; if that is NULL, too: the end */
	enum ig_param_kind kind;
	size_t at;
	double min, max;
	const char *values;
	ig_param_fn *read;
	bool required;
	bool repeated; /* the response shows the value as it was sent; only of a struct ig_request */
	const struct ig_param *more;
};
#define IG_AT(member) offsetof(struct ig_request, member)

/* Read every member of obj by the table; a name that the table lacks is ignored.  at: where
 * obj is, for errors; NULL: it is the body.  target: often r itself. */
int ig_params_read(struct ig_request *r, void *target, const struct ig_param *table, const char *at,
		   json_t *obj, struct ig_api_error *e);
/* Something that is not known here, by its name and value (NULL: the name says all), is left out:
 * 0, and r->ignored names it, once for all elements of a list.  Under refuse_unknown -1, an error
 * that lists what is accepted (NULL: nothing). */
int ig_request_ignore(struct ig_request *r, const char *name, const char *value,
		      const char *accepted, struct ig_api_error *e);

/* A copy of a string value; refuses other types. */
int ig_read_string(char **out, const char *name, json_t *v, struct ig_api_error *e);
/* A text, which may have U+0000: a new reference, in place of the one in *out. */
int ig_read_text(json_t **out, const char *name, json_t *v, struct ig_api_error *e);
int ig_read_int(int32_t *out, int32_t min, int32_t max, const char *name, json_t *v,
		struct ig_api_error *e);
/* Store a value that the response shows as it was sent. */
int ig_request_repeat(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e);
/* The member type of v, which must be an object; borrowed. */
int ig_read_type(const char **type, const char *at, json_t *v, struct ig_api_error *e);

/* One kind of body: an object that is read by a table, and check: what must hold between its
 * members.  params NULL: check reads it all; check NULL: nothing more must hold. */
struct ig_request_format {
	const struct ig_param *params;
	int (*check)(struct ig_request *r, json_t *root, struct ig_api_error *e);
};

/* "at.name", cut when it is too long; of a name that a client chose only what is printable. */
void ig_member_name(char *out, size_t cap, const char *at, const char *name);

/* ---- messages (content.c) -------------------------------------------------------- */

/* The template's name for a role (developer is system); NULL: there is none such. */
const char *ig_message_role(const char *role);
/* Append a message; takes it over, NULL is out of memory. */
int ig_request_add(struct ig_request *r, json_t *message, struct ig_api_error *e);
/* The types of a part that is text in most protocols: "text" alone. */
extern const char *const ig_text_types[];
bool ig_is_one_of(const char *s, const char *const *list); /* NULL-terminated */
/* The texts and refusals of a list of parts, concatenated; NULL without memory. */
json_t *ig_join_texts(const json_t *parts);
/* The texts of a content: a string, or a list of parts.  Parts whose type is none of types
 * (NULL-terminated) are ignored.  *out is a new reference to a string. */
int ig_read_content(struct ig_request *r, json_t **out, const char *at, json_t *v,
		    const char *const *types, struct ig_api_error *e);

/* An element of an assistant message's tool_calls, with arguments of len bytes; id NULL: none. */
json_t *ig_tool_call_object(const char *id, const char *name, const char *arguments, size_t len);
/* Append the result of a tool call; takes text over, NULL is out of memory.  -1 with *e when no
 * call before it has this id, the member at. */
int ig_request_add_result(struct ig_request *r, json_t *id, json_t *text, const char *at,
			  const char *what, struct ig_api_error *e);

/* ---- parameters of several protocols (params.c) ------------------------------------- */

/* model, and how tokens are sampled, but for a limit to their number. */
extern const struct ig_param ig_sampling_params[];
ig_param_fn ig_param_max_tokens, ig_param_stop, ig_param_metadata, ig_param_template_vars;
/* An effort of reasoning: a word. */
ig_param_fn ig_param_effort;
/* After all parameters: give an effort (NULL: none was asked for) to the template, which calls it
 * reasoning_effort; templates that can leave out reasoning call that enable_thinking.  What
 * chat_template_kwargs says counts. */
int ig_request_set_effort(struct ig_request *r, json_t *effort, struct ig_api_error *e);
/* priority and deadline. */
extern const struct ig_param ig_order_params[];
/* prompt_cache_normalize: of a conversation. */
extern const struct ig_param ig_normalize_params[];
/* prompt_cache_diagnostics and prompt_cache_options. */
extern const struct ig_param ig_cache_params[];
/* stream_options is only for streams. */
int ig_check_stream_options(const struct ig_request *r, json_t *root, struct ig_api_error *e);

/* ---- tools and response formats (tools.c) --------------------------------------------- */

/* How a protocol spells a tool. */
enum ig_tool_spelling {
	IG_TOOLS_NESTED,       /* {"type": "function", "function": {"name", "parameters" …}} */
	IG_TOOLS_FLAT,	       /* {"type": "function", "name", "parameters" …} */
	IG_TOOLS_INPUT_SCHEMA, /* {"name", "description", "input_schema"} */
};
/* r->tools, in the nested spelling.  An empty list is none. */
int ig_read_tools(struct ig_request *r, const char *name, json_t *v, enum ig_tool_spelling how,
		  struct ig_api_error *e);
/* Append one to r->tools; at: where it is, for errors. */
int ig_add_tool(struct ig_request *r, const char *at, json_t *v, enum ig_tool_spelling how,
		struct ig_api_error *e);
#define IG_MAX_TOOLS 512
#define IG_MAX_TOOL_NAME 128 /* characters */
/* The name of a tool in the nested spelling. */
const char *ig_tool_name(const json_t *tool);
/* "auto", "none", "required" ("any"), or an object that names one. */
int ig_read_tool_choice(struct ig_request *r, const char *name, json_t *v,
			enum ig_tool_spelling how, struct ig_api_error *e);
/* After all parameters: a choice needs tools, a named one must be among them. */
int ig_check_tool_choice(struct ig_request *r, const char *name, struct ig_api_error *e);
/* {"type": "text" | "json_object" | "json_schema" | "regex"}; in the nested spelling the
 * schema's name and itself are in a member json_schema, in the flat one beside type. */
ig_param_fn ig_param_format_nested, ig_param_format_flat;
/* Whether a call of one of the tools that the model sees must match a schema or a grammar. */
bool ig_has_strict_tool(const struct ig_request *r);
/* ignore_eos is an error where the response must have a format. */
int ig_check_ignore_end(const struct ig_request *r, struct ig_api_error *e);
