/* chat_private.h: the state of `ingot chat`, for its files. */
#pragma once

#include <signal.h>

#include "base/json.h"
#include "base/strbuf.h"
#include "cli/chat/chat_input.h"
#include "cli/chat/conversation.h"
#include "cli/chat/history.h"
#include "cli/net/session.h"
#include "cli/term/line.h"
#include "cli/term/reply.h"

struct chat {
	struct ig_endpoint e;
	struct ig_where where;
	struct ig_session session;
	struct ig_cli_request request; /* from the options */
	struct ig_conversation conversation;
	struct ig_history history;
	struct ig_line *line;
	json_t *words;	  /* "model NAME" for each model last seen in the daemon's list; for Tab */
	char *unanswered; /* a message that has no reply; for /retry */
	size_t n_unanswered;

	struct ig_strbuf reply; /* the current reply */
	bool interactive;	/* standard input is a terminal */
	struct ig_reply view;	/* the current reply as it is shown */
	bool verbose;
	char last[300];	 /* the last reply's summary */
	char model[160]; /* of the last reply */
	uint64_t n_answers, n_input, n_cached, n_output;
	bool exiting;
	int status;
};

/* chat.c: set by SIGTERM and SIGHUP */
extern volatile sig_atomic_t chat_ended;

/* chat_turn.c */

/* Print a line for the person: on the terminal between the replies, else on standard error. */
__attribute__((format(printf, 2, 3))) void chat_print(struct chat *c, const char *fmt, ...);
/* For ig_session: it retries in wait_ms. */
void chat_on_retry(void *ctx, const char *why, unsigned wait_ms);
/* Send text as the next turn and print the reply. */
void chat_send(struct chat *c, const char *text, size_t len);

/* chat_commands.c */

void chat_do_command(struct chat *c, const struct ig_chat_command *cmd);
/* Store the names in the daemon's list of models, for completion. */
void chat_know_models(struct chat *c, const json_t *list);
