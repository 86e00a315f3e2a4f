/*
 * main.c: ingotd: options, start order, signals, stop order, nothing else.  This thread starts the
 * others and then waits on a pipe.  Signal handlers and events of the network write one byte into
 * it each; all work is done here.
 */
#include "base/clock.h"
#include "base/inherit.h"
#include "base/log.h"
#include "daemon/service.h"
#include "daemon/takeover.h"
#include "daemon/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	NEWS_TERM = 'T',
	NEWS_RELOAD = 'H',
	NEWS_DRAINED = 'D',
	NEWS_FAILED = 'F',
	NEWS_LOST = 'L',
	NEWS_TAKEOVER = 'U',
	NEWS_SUCCESSOR = 'S', /* is ready, or has ended */
	NEWS_TIMEOUT = 0
};

/* After the drain: requests are cancelled, the ledger is closed, memory is freed. */
#define STOP_MS 10000

static int news[2] = { -1, -1 };

static void tell(char what)
{
	int saved = errno;
	ssize_t n = write(news[1], &what, 1); /* full: enough bytes wait */
	(void)n;
	errno = saved;
}

static void on_signal(int sig)
{
	tell(sig == SIGHUP ? NEWS_RELOAD : sig == SIGUSR2 ? NEWS_TAKEOVER : NEWS_TERM);
}

static void on_net(void *ctx, enum ig_net_event ev)
{
	tell(ev == IG_NET_DRAINED ? NEWS_DRAINED : ev == IG_NET_RELOAD ? NEWS_RELOAD : NEWS_FAILED);
}

static void on_device_lost(void *ctx) { tell(NEWS_LOST); }

static int setup_signals(struct ig_error *err)
{
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_RESTART };

	if (pipe(news) < 0)
		return ig_fail(err, -errno, "can't make a pipe: %s", strerror(errno));
	for (int i = 0; i < 2; i++) {
		fcntl(news[i], F_SETFL, O_NONBLOCK);
		fcntl(news[i], F_SETFD, FD_CLOEXEC);
	}
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a file at its limit is a full disk */
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
	sigaction(SIGUSR2, &sa, NULL);
	return 0;
}

/* The next byte, or NEWS_TIMEOUT; timeout_ms negative: no timeout.  Meanwhile the supervisor gets its
 * signs of life.  successor: a descriptor of news, too; -1: none. */
static int next_news(struct ig_service *d, int64_t timeout_ms, int successor)
{
	struct pollfd p[2] = { { .fd = news[0], .events = POLLIN },
			       { .fd = successor, .events = POLLIN } };
	int64_t end = ig_now_ns() / 1000000 + timeout_ms;
	char what;

	for (;;) {
		int64_t left = timeout_ms < 0 ? -1 : end - ig_now_ns() / 1000000;
		int64_t due = ig_notify_due_ms(&d->notify);
		int64_t wait = due < 0 || (left >= 0 && left < due) ? left : due;

		if (timeout_ms >= 0 && left < 0)
			return NEWS_TIMEOUT;
		int rc = poll(p, 2, wait > INT32_MAX ? INT32_MAX : (int)wait);
		ig_notify_watchdog(&d->notify, ig_service_is_alive, d);
		if (rc == 0 && timeout_ms >= 0 && wait == left)
			return NEWS_TIMEOUT;
		if (rc > 0 && p[1].revents)
			return NEWS_SUCCESSOR;
		if (rc > 0 && read(news[0], &what, 1) == 1)
			return what;
	}
}

/* Until a signal, a failure, or a successor that serves. */
static int run(struct ig_service *d, struct ig_takeover *t, char *const argv[])
{
	for (;;) {
		int what = next_news(d, ig_service_watch_ms(d), t->fd);
		if (what == NEWS_RELOAD)
			ig_service_reload(d);
		else if (what == NEWS_TIMEOUT)
			ig_service_watch(d);
		else if (what == NEWS_TAKEOVER && strcmp(d->config->runtime.transport, "none") != 0)
			ig_log_warn(
				"over several machines ingotd can't hand over: it must be restarted");
		else if (what == NEWS_TAKEOVER)
			ig_takeover_start(t, argv, d->net);
		else if (what != NEWS_SUCCESSOR || ig_takeover_ready(t))
			return what;
	}
}

/* What was meant for the daemon is meant for the successor, too. */
static void pass_on(const struct ig_takeover *t, int what)
{
	if (what == NEWS_TERM)
		ig_takeover_signal(t, SIGTERM);
	else if (what == NEWS_RELOAD)
		ig_takeover_signal(t, SIGHUP);
	else if (what == NEWS_TAKEOVER)
		ig_takeover_signal(t, SIGUSR2);
}

/* Nothing is left here.  Signals that came too late for the loop above are in the pipe; later ones wait for
 * the guard. */
static int guard(struct ig_service *d, const struct ig_takeover *t, char *const argv[])
{
	sigset_t all;
	int what;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	while ((what = next_news(d, 0, -1)) != NEWS_TIMEOUT)
		pass_on(t, what);
	return ig_takeover_guard(t, argv);
}

/* For at most server.drain_timeout, until the last connection is closed. */
static void wait_drained(struct ig_service *d, const struct ig_takeover *t)
{
	int64_t end = ig_now_ns() / 1000000 + d->config->server.drain_timeout_ms, left;
	int what = NEWS_TIMEOUT;

	while (what != NEWS_DRAINED && what != NEWS_TERM && what != NEWS_FAILED &&
	       (left = end - ig_now_ns() / 1000000) > 0) {
		what = next_news(d, left, -1);
		pass_on(t, what);
	}
	if (what != NEWS_DRAINED)
		ig_log_warn("stopping with %u requests under way", ig_engine_n_active(d->engine));
}

/* The engine refuses requests and finishes those under way, until drain_timeout. */
static void drain(struct ig_service *d, const struct ig_takeover *t)
{
	uint32_t n = ig_engine_n_active(d->engine);

	ig_log_info("stopping: %u requests under way", n);
	ig_notify_send(&d->notify, "STOPPING=1");
	ig_notify_status(&d->notify, "Stopping, with %u requests under way", n);
	ig_notify_extend(&d->notify, (int64_t)d->config->server.drain_timeout_ms + STOP_MS);
	ig_engine_drain(d->engine);
	ig_net_drain(d->net);
	wait_drained(d, t);
}

/* A successor serves: finish what runs here. */
static void hand_over(struct ig_service *d, struct ig_takeover *t)
{
	char text[40];

	if (d->notify.fd >= 0) { /* systemd watches the successor, and signals it */
		snprintf(text, sizeof text, "MAINPID=%ld", (long)t->pid);
		ig_notify_send(&d->notify, text);
		t->pid = 0;
	}
	ig_net_hand_over(d->net);
	wait_drained(d, t);
}

/* Until a signal, or a successor has taken over and nothing runs; returns the exit status. */
static int serve(struct ig_service *d, struct ig_takeover *t, char *const argv[])
{
	char url[160];
	int what;

	ig_net_url(d->net, url, sizeof url);
	printf("ready %s\n", url);
	fflush(stdout);
	ig_notify_status(&d->notify, "Serving at %s", url);
	ig_notify_send(&d->notify, "READY=1");
	ig_inherit_end();
	what = run(d, t, argv);
	if (what == NEWS_SUCCESSOR) {
		hand_over(d, t);
		return 0;
	}
	ig_takeover_signal(t, SIGTERM); /* one that does not serve yet */
	if (what == NEWS_FAILED)
		ig_log_error("the network loop failed");
	if (what == NEWS_LOST)
		ig_log_error("ending with status 1, so that the supervisor restarts ingotd");
	if (what != NEWS_FAILED)
		drain(d, t);
	ig_takeover_cancel(t);
	return what == NEWS_FAILED || what == NEWS_LOST;
}

static void refuse(struct ig_service *d, const struct ig_error *err)
{
	fprintf(stderr, "ingotd: %s\n", err->text);
	ig_notify_status(&d->notify, "Not started: %s", err->text);
}

static int usage(FILE *f)
{
	fputs("usage: ingotd [--config FILE] [--check-config | --print-config | --takeover | --worker |\n"
	      "              --version | --help]\n"
	      "  --config FILE   the configuration; else $INGOT_CONFIG, ~/.config/ingot/ingot.yaml\n"
	      "                  or the installed one, the first that exists; else all defaults\n"
	      "  --check-config  read the configuration, report whether it is valid, exit\n"
	      "  --takeover      tell the running daemon to start its program anew and hand over to it\n"
	      "  --worker        compute layers of the daemon's models on another machine, until it ends\n"
	      "  --print-config  print every option with its default, exit\n",
	      f);
	return f == stdout ? 0 : 2;
}

static int check_config(struct ig_service *d)
{
	struct ig_error err = { 0 };
	int rc = ig_service_check(d, &err);

	if (rc < 0)
		fprintf(stderr, "ingotd: %s\n", err.text);
	else
		printf("%s: ok\n", d->config->file);
	ig_service_stop(d);
	return rc < 0;
}

static int work(struct ig_service *d)
{
	struct ig_error err = { 0 };
	int rc = ig_service_start_modules(d, &err);

	if (!rc)
		rc = ig_daemon_work(d->config, d->modules, &err);
	if (rc < 0)
		fprintf(stderr, "ingotd: worker: %s\n", err.text);
	ig_service_stop(d);
	return rc < 0;
}

/* With the options of the modules in the default folders. */
static int print_config(void)
{
	const struct ig_module *modules[IG_MAX_MODULES];
	struct ig_service d = { 0 };
	struct ig_error err = { 0 };
	int rc = ig_config_parse("", 0, "defaults", &d.config, &err);

	if (rc < 0)
		fprintf(stderr, "ingotd: %s\n", err.text);
	else
		rc = ig_service_check(&d, &err); /* refusals are logged */
	if (d.modules)
		rc = ig_config_write_reference(stdout, modules,
					       ig_modules_list(d.modules, modules));
	ig_service_stop(&d);
	return rc < 0 || fflush(stdout) ? 1 : 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "config", required_argument, NULL, 'c' },
		{ "check-config", no_argument, NULL, 'k' },
		{ "print-config", no_argument, NULL, 'p' },
		{ "takeover", no_argument, NULL, 't' },
		{ "worker", no_argument, NULL, 'w' },
		{ "guard", required_argument, NULL, 'g' }, /* ig_takeover_guard's */
		{ "version", no_argument, NULL, 'v' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	const char *path = NULL;
	struct ig_service d = { .notify.fd = -1 };
	struct ig_error err = { 0 };
	struct ig_takeover successor = { .fd = -1 };
	bool check = false, takeover = false, worker = false;
	int c;

	ig_inherit_begin();

	while ((c = getopt_long(argc, argv, "c:h", options, NULL)) != -1)
		switch (c) {
		case 'c': path = optarg; break;
		case 'k': check = true; break;
		case 't': takeover = true; break;
		case 'w': worker = true; break;
		case 'g': return ig_guard(optarg);
		case 'p': return print_config();
		case 'v': return printf("ingotd %s\n", IG_VERSION) < 0;
		case 'h': return usage(stdout);
		default: return 2; /* getopt has reported the error */
		}
	if (optind < argc) {
		fprintf(stderr, "ingotd: unexpected argument '%s'\n", argv[optind]);
		return 2;
	}
	if (ig_config_load_or_defaults(path, &d.config, &err) < 0) {
		fprintf(stderr, "ingotd: %s\n", err.text);
		return 1;
	}
	if (check)
		return check_config(&d);
	if (takeover) {
		int rc = ig_takeover_ask(d.config);
		ig_config_destroy(d.config);
		return rc;
	}
	if (worker)
		return work(&d);
	int status = 1;
	if (setup_signals(&err) < 0 || ig_notify_open(&d.notify, &err) < 0 ||
	    ig_service_start(&d, on_net, on_device_lost, &err) < 0)
		refuse(&d, &err);
	else
		status = serve(&d, &successor, argv);
	ig_service_stop(&d);
	if (successor.pid && !status)
		status = guard(&d, &successor, argv);
	ig_notify_close(&d.notify);
	return status;
}
