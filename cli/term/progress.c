/* progress.c: see progress.h. */
#include "cli/term/progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/term/text.h"

static void show(struct ig_progress *p, int64_t now)
{
	char have[32], all[32], speed[32], left[32], bar[31];
	double seconds = (double)(now - p->start_ns) / 1e9;
	uint64_t came = p->done > p->start_done ? p->done - p->start_done : 0;
	double rate = seconds > 0.05 ? (double)came / seconds : 0;
	double part = p->total ? (double)p->done / (double)p->total : 1;

	if (part > 1)
		part = 1;
	ig_text_bytes(have, sizeof have, p->done);
	ig_text_bytes(all, sizeof all, p->total);
	ig_text_bytes(speed, sizeof speed, (uint64_t)rate);
	ig_text_seconds(left, sizeof left, rate > 0 ? (double)(p->total - p->done) / rate : -1);
	if (!p->tty) {
		fprintf(stderr, "  %3.0f %%  %s of %s, %s/s, %s left\n", part * 100, have, all,
			speed, left);
		return;
	}
	memset(bar, '.', sizeof bar - 1);
	memset(bar, '#', (size_t)(part * (sizeof bar - 1)));
	bar[sizeof bar - 1] = 0;
	fprintf(stderr, "\r  [%s] %3.0f %%  %s of %s, %s/s, %s left \033[K", bar, part * 100, have,
		all, speed, left);
}

void ig_progress_start(struct ig_progress *p, uint64_t total, uint64_t done)
{
	*p = (struct ig_progress){ .total = total, .done = done, .start_done = done, .on = true };
	p->start_ns = p->shown_ns = ig_now_ns();
	p->tty = isatty(STDERR_FILENO);
	p->shown_tenth = total ? (int)((double)done / (double)total * 10) : 0;
}

void ig_progress_update(struct ig_progress *p, uint64_t done)
{
	int64_t now = ig_now_ns();
	int tenth;

	if (!p->on || done > p->total)
		return;
	if (done < p->done) { /* restarted */
		p->start_done = done;
		p->start_ns = now;
		p->shown_tenth = 0;
	}
	p->done = done;
	tenth = p->total ? (int)((double)done / (double)p->total * 10) : 10;
	if (p->tty ? now - p->shown_ns < 100000000 && done != p->total : tenth <= p->shown_tenth)
		return;
	p->shown_tenth = tenth;
	p->shown_ns = now;
	show(p, now);
}

void ig_progress_stop(struct ig_progress *p)
{
	if (p->on && p->tty)
		fputc('\n', stderr);
	p->on = false;
}
