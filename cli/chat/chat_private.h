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

struct chat {
	struct ig_endpoint e;
	struct ig_where where;
	struct ig_session session;
	struct ig_ask ask; /* what the options said */
	struct ig_conversation said;
	struct ig_history history;
	struct ig_line *line;
	json_t *words;	  /* "model NAME" for each that the daemon served when asked, for Tab */
	char *unanswered; /* a question that has no answer; for /retry */
	size_t n_unanswered;

	struct ig_strbuf answer; /* that is being given */
	bool interactive;	 /* a person sits there */
	bool screen;		 /* standard output is a terminal */
	bool colour, verbose;
	bool newline;	 /* the output is at the beginning of a line */
	bool thinking;	 /* what was printed last is a thought */
	char last[300];	 /* the last answer's summary */
	char model[160]; /* that gave it */
	uint64_t n_answers, n_input, n_cached, n_output;
	bool leaving;
	int status;
};

/* chat.c: set by SIGTERM and SIGHUP */
extern volatile sig_atomic_t chat_ended;

/* chat_turn.c */

/* A line for the person: on the terminal among the replies, else on standard error. */
__attribute__((format(printf, 2, 3))) void chat_tell(struct chat *c, const char *fmt, ...);
/* Of a session: it tries again in wait_ms. */
void chat_on_retry(void *ctx, const char *why, unsigned wait_ms);
/* Send text as the next turn and print the reply. */
void chat_say(struct chat *c, const char *text, size_t len);

/* chat_commands.c */

void chat_do_command(struct chat *c, const struct ig_chat_command *cmd);
/* Remember the names in the daemon's list of models, for completion. */
void chat_know_models(struct chat *c, const json_t *list);
