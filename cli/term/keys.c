/* keys.c: see keys.h. */
#include "cli/term/keys.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "cli/download/files.h"
#include "cli/term/screen.h"

#define ENTER "\033[?1049h\033[?25l" /* the other screen, without a cursor */
#define LEAVE "\033[0m\033[?25h\033[?1049l"

static volatile sig_atomic_t resized, stop, continued;
static struct termios before;
static bool opened;
static unsigned char typed[256];
static size_t n_typed;
static bool ended; /* standard input */

static void on_end(int sig)
{
	if (ig_interrupted < 100)
		ig_interrupted++;
}

static void on_change(int sig)
{
	if (sig == SIGWINCH)
		resized = 1;
	else if (sig == SIGTSTP)
		stop = 1;
	else
		continued = 1;
}

static void handle(int sig, void (*handler)(int))
{
	/* a write goes on after it; poll ends */
	struct sigaction sa = { .sa_handler = handler, .sa_flags = SA_RESTART };

	sigemptyset(&sa.sa_mask);
	sigaction(sig, &sa, NULL);
}

static void write_all(const char *s)
{
	for (size_t n = strlen(s); n;) {
		ssize_t k = write(STDOUT_FILENO, s, n);
		if (k < 0 && errno != EINTR)
			return;
		s += k > 0 ? k : 0;
		n -= k > 0 ? (size_t)k : 0;
	}
}

static void enter(void)
{
	struct termios t = before;

	t.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	t.c_cc[VMIN] = 1;
	t.c_cc[VTIME] = 0;
	tcsetattr(STDIN_FILENO, TCSADRAIN, &t);
	write_all(ENTER);
}

static void leave(void)
{
	write_all(LEAVE);
	tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
}

int ig_keys_open(struct ig_error *err)
{
	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
		return ig_fail(err, -ENOTTY, "standard %s is not a terminal",
			       isatty(STDOUT_FILENO) ? "input" : "output");
	if (!ig_screen_is_capable())
		return ig_fail(err, -ENOTTY,
			       "TERM is not set, or is dumb: the terminal cannot move "
			       "its cursor");
	if (tcgetattr(STDIN_FILENO, &before))
		return ig_fail(err, -errno, "the terminal: %s", strerror(errno));
	handle(SIGINT, on_end);
	handle(SIGTERM, on_end);
	handle(SIGHUP, on_end);
	handle(SIGQUIT, on_end);
	handle(SIGWINCH, on_change);
	handle(SIGTSTP, on_change);
	handle(SIGCONT, on_change);
	signal(SIGPIPE, SIG_IGN);
	opened = true;
	enter();
	return 0;
}

void ig_keys_close(void)
{
	if (opened)
		leave();
	opened = false;
}

/* Ctrl-Z: the shell gets its screen. */
static void stop_here(void)
{
	stop = 0;
	leave();
	raise(SIGSTOP);
	continued = 1;
}

bool ig_keys_wait(int fd, int timeout_ms)
{
	struct pollfd p[2] = { { .fd = ended ? -1 : STDIN_FILENO, .events = POLLIN },
			       { .fd = fd, .events = POLLIN } };
	bool changed;

	if (!ig_interrupted && !stop && n_typed < sizeof typed)
		poll(p, 2, timeout_ms);
	if (p[0].revents && n_typed < sizeof typed) {
		ssize_t n = read(STDIN_FILENO, typed + n_typed, sizeof typed - n_typed);
		n_typed += n > 0 ? (size_t)n : 0;
		/* the terminal is closed */
		ended = n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN);
		ig_interrupted |= ended;
	}
	if (stop)
		stop_here();
	if (continued)
		enter();
	changed = resized || continued;
	resized = continued = 0;
	return changed;
}

static int take(size_t n, int key)
{
	memmove(typed, typed + n, n_typed - n);
	n_typed -= n;
	return key;
}

int ig_keys_next(void)
{
	static const struct {
		const char *bytes;
		int key;
	} keys[] = {
		{ "[A", IG_KEY_UP },	     { "[B", IG_KEY_DOWN },    { "OA", IG_KEY_UP },
		{ "OB", IG_KEY_DOWN },	     { "[3~", IG_KEY_DELETE }, { "[5~", IG_KEY_PAGE_UP },
		{ "[6~", IG_KEY_PAGE_DOWN }, { "[H", IG_KEY_HOME },    { "[F", IG_KEY_END },
		{ "[1~", IG_KEY_HOME },	     { "[4~", IG_KEY_END },    { "OH", IG_KEY_HOME },
		{ "OF", IG_KEY_END },
	};
	size_t end = 2;

	if (!n_typed)
		return IG_KEY_NONE;
	if (typed[0] != 033)
		return take(1, typed[0]);
	if (n_typed == 1 || (typed[1] != '[' && typed[1] != 'O'))
		return take(1, IG_KEY_ESCAPE);
	while (end < n_typed && typed[1] == '[' && typed[end] < 0x40)
		end++;
	end = end < n_typed ? end + 1 : n_typed;
	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
		if (strlen(keys[i].bytes) == end - 1 && !memcmp(keys[i].bytes, typed + 1, end - 1))
			return take(end, keys[i].key);
	return take(end, IG_KEY_OTHER);
}
