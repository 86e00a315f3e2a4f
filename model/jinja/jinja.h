/*
 * jinja.h: the part of Jinja that chat templates are written in, as Hugging Face's
 * libraries run it: jinja2's ImmutableSandboxedEnvironment with trim_blocks,
 * lstrip_blocks, break and continue, {% generation %}, and their own tojson,
 * raise_exception, strftime_now, dict and namespace.
 *
 * A template is compiled once and is immutable then; any thread may render it, any
 * number at a time.  Both templates and what they are given are hostile: length, nodes,
 * depth, steps, memory and output are bounded, and an error names the line.
 *
 * Who wrote a byte of the output is known.  Every string carries, for each of its bytes,
 * whether it came from the template (and the model's own values) or from a client.
 * Slices, case, concatenation, replace, tojson and so on carry it along, so lengths and
 * comparisons are those of the plain text, which they would not be if a client's text
 * were rewritten before rendering and restored behind it.  Who turns the output into
 * tokens takes a control token only where none of its bytes is a client's: a client that
 * writes "<|im_end|>", or half of it beside a half in the template, has written text.
 *
 * Left out, and refused by name: include, import, extends and blocks, recursive loops,
 * * and ** in calls, and filters that chat templates have no use for.  Output is never
 * escaped; but as in jinja2, + between a text that is `safe` and one that isn't escapes
 * the latter.  Integers have 64 bits.
 */
#pragma once

#include "base/json.h"

#include <ingot/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ig_jinja;

/* Bounds; 0 in any of them means its default. */
struct ig_jinja_limits {
	size_t template_bytes; /* compile: 1 MiB */
	size_t n_nodes;	       /* compile: 200000 */
	uint64_t n_steps;      /* render: 20 million nodes evaluated or 64 bytes worked on */
	size_t memory_bytes;   /* render: 64 MiB and 16 times the size of what is given */
	size_t output_bytes;   /* render: 32 MiB */
};

/* Compile text, which isn't needed afterwards.  0, -ENOMEM, -EINVAL for what Jinja
 * would refuse (or a bound), -ENOTSUP for what is left out; the text names the line. */
int ig_jinja_compile(const char *text, size_t len, const struct ig_jinja_limits *limits,
		     struct ig_jinja **out, struct ig_error *err);
void ig_jinja_destroy(struct ig_jinja *j); /* NULL is fine */

/* What a template is given under a name. */
struct ig_jinja_var {
	const char *name;
	const json_t *value; /* must stay as it is until render returns */
	bool trusted;	     /* its strings count as the template's own, not as a client's */
};

struct ig_jinja_input {
	const struct ig_jinja_var *vars;
	size_t n_vars; /* of two with one name the later counts */
	/* Below any object, a string under this key that is one of these words is trusted
	 * too: a role is part of what the template writes ('<|' + message.role + '|>').
	 * NULL: none. */
	const char *trusted_key;
	const char *const *trusted_words; /* ends with NULL */
	int64_t now_s;			  /* what strftime_now tells, as local time; Unix seconds */
};

struct ig_jinja_output {
	char *text; /* NUL-terminated */
	/* [len]: 1 where the byte is a client's; NULL when none is. */
	uint8_t *client;
	size_t len;
};

/* 0, -ENOMEM, -EINVAL for an error in the template or one that it raised itself, -E2BIG
 * for a bound. */
int ig_jinja_render(const struct ig_jinja *j, const struct ig_jinja_input *in,
		    const struct ig_jinja_limits *limits, struct ig_jinja_output *out,
		    struct ig_error *err);
void ig_jinja_output_finish(struct ig_jinja_output *out);
