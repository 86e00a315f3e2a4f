/*
 * main.c: ingotd: options, start order, signals, stop order, nothing else.
 *
 * This thread starts the others and then waits on a pipe.  A signal's handler and
 * the network's events write one byte into it each; all work is done here.
 */
#include "base/log.h"
#include "daemon/net/net.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"

enum { NEWS_TERM = 'T', NEWS_RELOAD = 'H', NEWS_DRAINED = 'D', NEWS_FAILED = 'F', NEWS_TIMEOUT = 0 };

struct daemon {
	struct ig_config *config;
	struct ig_ledger *ledger;
	struct ig_metrics *metrics;
	struct ig_engine *engine;
	struct ig_net *net;
};

static int news[2] = { -1, -1 };

static void tell(char what)
{
	int saved = errno;
	ssize_t n = write(news[1], &what, 1); /* full: enough is waiting */
	(void)n;
	errno = saved;
}

static void on_signal(int sig)
{
	tell(sig == SIGHUP ? NEWS_RELOAD : NEWS_TERM);
}

static void on_net(void *ctx, enum ig_net_event ev)
{
	tell(ev == IG_NET_DRAINED ? NEWS_DRAINED : NEWS_FAILED);
}

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
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
	return 0;
}

/* The next byte, or NEWS_TIMEOUT; timeout_ms negative: wait for ever. */
static int next_news(int64_t timeout_ms)
{
	struct pollfd p = { .fd = news[0], .events = POLLIN };
	char what;

	for (;;) {
		int rc = poll(&p, 1, timeout_ms > INT32_MAX ? INT32_MAX : (int)timeout_ms);
		if (rc == 0)
			return NEWS_TIMEOUT;
		if (rc > 0 && read(news[0], &what, 1) == 1)
			return what;
	}
}

/* launchd gives 256 descriptors: take what the connections need. */
static void raise_fd_limit(const struct ig_config *config)
{
	struct rlimit r;
	rlim_t want = ig_net_n_fds(config->server.max_connections);

	if (getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_cur >= want)
		return;
	r.rlim_cur = want < r.rlim_max ? want : r.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_cur < want)
		ig_log_warn("only %llu file descriptors; server.max_connections = %u wants %llu",
			    (unsigned long long)r.rlim_cur, config->server.max_connections,
			    (unsigned long long)want);
}

static int apply_log(const struct ig_config *config, struct ig_error *err)
{
	static const char *const names[] = { "error", "warn", "info", "debug" };
	const char *file = config->log.file && config->log.file[0] ? config->log.file : NULL;

	for (int i = 0; i < 4; i++)
		if (!strcmp(config->log.level, names[i]))
			ig_log_set_level(i);
	int rc = ig_log_set_file(file);
	return rc < 0 ? ig_fail(err, rc, "log.file %s: %s", file ? file : "", strerror(-rc)) : 0;
}

static void log_difference(void *ctx, const char *key, const char *was, const char *is,
			   bool reloadable)
{
	if (reloadable)
		ig_log_info("%s: %s -> %s", key, was, is);
	else
		ig_log_warn("%s: %s -> %s needs a restart", key, was, is);
}

static void reload(struct daemon *d)
{
	struct ig_config *config;
	struct ig_error err = { 0 };

	if (ig_config_load(d->config->file, &config, &err) < 0) {
		ig_log_error("reload: %s; the old configuration stays", err.text);
		apply_log(d->config, &err); /* a rotated file is reopened all the same */
		return;
	}
	if (apply_log(config, &err) < 0)
		ig_log_error("reload: %s", err.text);
	ig_log_info("reload: %s", config->file);
	ig_config_diff(d->config, config, log_difference, NULL);
	ig_engine_reload(d->engine, config);
	ig_net_reload(d->net, config);
	if (d->ledger)
		ig_ledger_set_retention(d->ledger, config->ledger.retention_days);
	ig_config_destroy(d->config);
	d->config = config;
}

static int start(struct daemon *d, struct ig_error *err)
{
	int rc = setup_signals(err);

	if (!rc)
		rc = apply_log(d->config, err);
	if (rc)
		return rc;
	raise_fd_limit(d->config);
	if (d->config->ledger.enabled) {
		struct ig_ledger_options o = { d->config->ledger.path, d->config->ledger.queue,
					       d->config->ledger.retention_days };
		rc = ig_ledger_open(&o, &d->ledger, err);
		if (rc)
			return rc;
	}
	d->metrics = ig_metrics_create();
	if (!d->metrics)
		return ig_fail(err, -ENOMEM, "out of memory");
	struct ig_engine_deps deps = { d->config, d->ledger, d->metrics };
	rc = ig_engine_create(&deps, &d->engine, err);
	if (rc)
		return rc;
	struct ig_net_deps net = { d->engine, d->metrics, d->config, on_net, NULL };
	return ig_net_create(&net, &d->net, err);
}

static void stop(struct daemon *d)
{
	if (d->net)
		ig_net_stop(d->net);
	ig_engine_destroy(d->engine);
	ig_net_destroy(d->net);
	ig_ledger_close(d->ledger);
	ig_metrics_destroy(d->metrics);
	ig_config_destroy(d->config);
}

/* Until a signal ends it.  The exit status. */
static int serve(struct daemon *d)
{
	char url[160];
	int what;

	ig_net_url(d->net, url, sizeof url);
	printf("ready %s\n", url);
	fflush(stdout);
	while ((what = next_news(-1)) == NEWS_RELOAD)
		reload(d);
	if (what == NEWS_FAILED) {
		ig_log_error("the network loop failed");
		return 1;
	}
	ig_log_info("stopping: %u requests under way", ig_engine_n_active(d->engine));
	ig_engine_drain(d->engine);
	ig_net_drain(d->net);
	int64_t end = ig_now_ns() / 1000000 + d->config->server.drain_timeout_ms, left;
	while ((left = end - ig_now_ns() / 1000000) > 0) {
		what = next_news(left);
		if (what == NEWS_DRAINED || what == NEWS_TERM || what == NEWS_FAILED)
			break;
	}
	if (what != NEWS_DRAINED)
		ig_log_warn("stopping with %u requests under way", ig_engine_n_active(d->engine));
	return 0;
}

static int usage(FILE *f)
{
	fputs("usage: ingotd [--config FILE] [--check-config | --print-config | --version | --help]\n"
	      "  --config FILE   the configuration; else $INGOT_CONFIG, ~/.config/ingot/ingot.yaml\n"
	      "                  and the installed one, the first that there is\n"
	      "  --check-config  read the configuration, say whether it is good, end\n"
	      "  --print-config  print every option with its default, end\n", f);
	return f == stdout ? 0 : 2;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "config", required_argument, NULL, 'c' },
		{ "check-config", no_argument, NULL, 'k' },
		{ "print-config", no_argument, NULL, 'p' },
		{ "version", no_argument, NULL, 'v' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	const char *path = NULL;
	struct daemon d = { 0 };
	struct ig_error err = { 0 };
	bool check = false;
	int c;

	while ((c = getopt_long(argc, argv, "c:h", options, NULL)) != -1)
		switch (c) {
		case 'c': path = optarg; break;
		case 'k': check = true; break;
		case 'p': return ig_config_write_reference(stdout) < 0 || fflush(stdout) ? 1 : 0;
		case 'v': return printf("ingotd %s\n", IG_VERSION) < 0;
		case 'h': return usage(stdout);
		default: return 2; /* getopt has said what was wrong */
		}
	if (optind < argc) {
		fprintf(stderr, "ingotd: unexpected argument '%s'\n", argv[optind]);
		return 2;
	}
	if (ig_config_load(path, &d.config, &err) < 0) {
		fprintf(stderr, "ingotd: %s\n", err.text);
		return 1;
	}
	if (check) {
		printf("%s: ok\n", d.config->file);
		ig_config_destroy(d.config);
		return 0;
	}
	int status = 1;
	if (start(&d, &err) < 0)
		fprintf(stderr, "ingotd: %s\n", err.text);
	else
		status = serve(&d);
	stop(&d);
	return status;
}
