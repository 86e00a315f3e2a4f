/* errors.h: errors as clients get them, and those that several files return. */
#pragma once

#include "base/json.h"

#include <stdint.h>

struct ig_gen_result;

struct ig_api_error {
	int status;	  /* HTTP's; 0: no error */
	const char *type; /* invalid_request_error, server_error … */
	const char *code; /* NULL: null */
	char param[160];  /* "": null */
	char message[640];
	uint32_t retry_after_s; /* 0: none */
};

/* All functions that return int return -1. */

/* The status determines the type. */
int ig_api_fail(struct ig_api_error *e, int status, const char *code, const char *param,
		const char *fmt, ...) __attribute__((format(printf, 5, 6)));

int ig_fail_value(struct ig_api_error *e, const char *param, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
const char *ig_json_type_name(const json_t *v); /* "a string", "null" … */
int ig_fail_type(struct ig_api_error *e, const char *param, const char *expected, const json_t *v);
/* accepted: the values that are accepted; NULL: none. */
int ig_fail_unsupported(struct ig_api_error *e, const char *param, const char *accepted);
int ig_fail_missing(struct ig_api_error *e, const char *param);
/* A client's text for a message: truncated, without control characters. */
void ig_printable(char *out, size_t cap, const char *name);

#define IG_OUT_OF_MEMORY "The server is out of memory."
int ig_fail_memory(struct ig_api_error *e);				   /* 500 */
int ig_fail_shutting_down(struct ig_api_error *e, uint32_t retry_after_s); /* 503 */
int ig_fail_overloaded(struct ig_api_error *e, uint32_t retry_after_s, const char *why);
/* Prep's queue is full (-EAGAIN), or there is no memory. */
int ig_fail_unread(struct ig_api_error *e, int rc, uint32_t retry_after_s);
/* By the engine's error when it did not return the model. */
int ig_fail_model(struct ig_api_error *e, int rc, const struct ig_error *err);

/* 504; why: "" or the engine's text. */
int ig_fail_deadline(struct ig_api_error *e, const char *why);

/* Its seconds, or by default those of every 429 and 503; 0: none. */
uint32_t ig_error_retry_after(const struct ig_api_error *e, uint32_t by_default);
/* For the ledger only: the request never ran. */
int ig_fail_cancelled(struct ig_api_error *e, const char *reason);
/* Of a generation that failed; status 0: it did not. */
void ig_result_error(const struct ig_gen_result *r, struct ig_api_error *e);

/* {"error":{message,type,param,code}} */
void ig_error_object(struct ig_strbuf *out, const struct ig_api_error *e);
/* The member "error" alone. */
void ig_error_member(struct ig_json_writer *w, const struct ig_api_error *e);
/* The member "message", made valid UTF-8: a client's text may be truncated within a character. */
void ig_error_message(struct ig_json_writer *w, const struct ig_api_error *e);
