/*
 * test_notify.c: what a supervisor's socket gets, by a path and by an abstract name; variables that are
 * wrong; signs of life, and that they are left out.
 */
#include "daemon/notify.h"

#include "base/log.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[64];

/* The supervisor's end; name as in NOTIFY_SOCKET. */
static int supervise(const char *name)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);

	assert_true(fd >= 0);
	snprintf(a.sun_path, sizeof a.sun_path, "%s", name);
	if (name[0] == '@')
		a.sun_path[0] = 0;
	else
		len++;
	assert_int_equal(bind(fd, (struct sockaddr *)&a, len), 0);
	assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
	return fd;
}

static void expect(int fd, const char *want)
{
	char text[1024];
	ssize_t n = recv(fd, text, sizeof text - 1, MSG_DONTWAIT);

	text[n > 0 ? n : 0] = 0;
	assert_string_equal(text, want);
}

static void expect_nothing(int fd)
{
	char c;

	assert_int_equal(recv(fd, &c, 1, MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
}

static int setup(void **state)
{
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
	snprintf(path, sizeof path, "/tmp/ingot-notify-%ld", (long)getpid());
	unlink(path);
	return 0;
}

static int teardown(void **state)
{
	unlink(path);
	return 0;
}

static bool yes(void *ctx) { return true; }

static bool no(void *ctx) { return false; }

static void talk(const char *name)
{
	struct ig_notify n;
	struct ig_error err = { 0 };
	int fd = supervise(name);
	char text[1024];

	assert_int_equal(ig_notify_open(&n, &err), 0);
	ig_notify_send(&n, "READY=1");
	expect(fd, "READY=1");
	ig_notify_status(&n, "Loading %s, %d of %d", "a", 1, 2);
	expect(fd, "STATUS=Loading a, 1 of 2");
	ig_notify_status(&n, "a path with\nREADY=1\x01 in it");
	expect(fd, "STATUS=a path with READY=1  in it");
	memset(text, 'x', sizeof text);
	text[sizeof text - 1] = 0;
	ig_notify_status(&n, "%s", text);
	assert_int_equal(recv(fd, text, sizeof text, MSG_DONTWAIT), 511);
	ig_notify_extend(&n, 90000);
	expect(fd, "EXTEND_TIMEOUT_USEC=90000000");
	ig_notify_reloading(&n);
	ssize_t len = recv(fd, text, sizeof text - 1, MSG_DONTWAIT);
	assert_true(len > 0);
	text[len] = 0;
	assert_int_equal(strncmp(text, "RELOADING=1\nMONOTONIC_USEC=", 27), 0);
	assert_true(atoll(text + 27) > 0);
	/* WATCHDOG_USEC is not set */
	assert_int_equal(ig_notify_due_ms(&n), -1);
	ig_notify_watchdog(&n, yes, NULL);
	expect_nothing(fd);
	ig_notify_close(&n);
	ig_notify_send(&n, "READY=1");
	expect_nothing(fd);
	close(fd);
}

static void test_path(void **state) { talk(path); }

static void test_abstract(void **state)
{
#ifdef __linux__
	char name[64];

	snprintf(name, sizeof name, "@ingot-notify-%ld", (long)getpid());
	talk(name);
	assert_int_equal(access(name, F_OK), -1); /* no file was made */
#endif
}

static void test_nobody_listens(void **state)
{
	char log[80], text[400];
	struct ig_notify n;
	struct ig_error err = { 0 };

	assert_int_equal(ig_notify_open(&n, &err), 0); /* without the variable */
	assert_int_equal(n.fd, -1);
	ig_notify_send(&n, "READY=1");
	ig_notify_close(&n);
	/* The socket is gone: that is logged once, not for each message. */
	close(supervise(path));
	snprintf(log, sizeof log, "%s.log", path);
	assert_int_equal(ig_log_set_file(log), 0);
	assert_int_equal(ig_notify_open(&n, &err), 0);
	ig_notify_send(&n, "READY=1");
	ig_notify_send(&n, "STOPPING=1");
	ig_notify_close(&n);
	ig_log_set_file(NULL);
	FILE *f = fopen(log, "r");
	assert_non_null(f);
	text[fread(text, 1, sizeof text - 1, f)] = 0;
	fclose(f);
	unlink(log);
	const char *first = strstr(text, "NOTIFY_SOCKET");
	assert_non_null(first);
	assert_null(strstr(first + 1, "NOTIFY_SOCKET"));
}

static void refuse(const char *name, const char *value, const char *want)
{
	struct ig_notify n;
	struct ig_error err = { 0 };

	setenv(name, value, 1);
	assert_true(ig_notify_open(&n, &err) < 0);
	if (!strstr(err.text, want))
		fail_msg("%s=%s: \"%s\" has no \"%s\"", name, value, err.text, want);
	ig_notify_close(&n);
}

static void test_wrong_variables(void **state)
{
	char text[300];
	int fd;

	refuse("NOTIFY_SOCKET", "relative", "NOTIFY_SOCKET is \"relative\"");
	refuse("NOTIFY_SOCKET", "vsock:2:1234", "vsock");
	refuse("NOTIFY_SOCKET", "@", "NOTIFY_SOCKET");
	memset(text, 'x', sizeof text - 1);
	text[0] = '/';
	text[sizeof text - 1] = 0;
	refuse("NOTIFY_SOCKET", text, "NOTIFY_SOCKET has 299 bytes, at most 1");
	fd = supervise(path);
	refuse("WATCHDOG_USEC", "0", "WATCHDOG_USEC is \"0\"");
	refuse("WATCHDOG_USEC", "5s", "WATCHDOG_USEC is \"5s\"");
	refuse("WATCHDOG_USEC", "-1", "WATCHDOG_USEC");
	refuse("WATCHDOG_USEC", "99999999999999999999", "WATCHDOG_USEC");
	setenv("WATCHDOG_USEC", "1000", 1);
	refuse("WATCHDOG_PID", "me", "WATCHDOG_PID is \"me\"");
	close(fd);
}

static void wait_due(const struct ig_notify *n)
{
	for (int64_t ms; (ms = ig_notify_due_ms(n)) > 0;)
		usleep((useconds_t)ms * 1000);
	assert_int_equal(ig_notify_due_ms(n), 0);
}

static void test_signs_of_life(void **state)
{
	struct ig_notify n;
	struct ig_error err = { 0 };
	int fd = supervise(path);
	char pid[24];

	/* half of it: not before */
	setenv("WATCHDOG_USEC", "600000000", 1);
	assert_int_equal(ig_notify_open(&n, &err), 0);
	int64_t ms = ig_notify_due_ms(&n);
	assert_true(ms > 240000 && ms <= 300000);
	ig_notify_watchdog(&n, yes, NULL);
	expect_nothing(fd);
	ig_notify_close(&n);
	setenv("WATCHDOG_USEC", "2000", 1);
	snprintf(pid, sizeof pid, "%ld", (long)getpid());
	setenv("WATCHDOG_PID", pid, 1);
	assert_int_equal(ig_notify_open(&n, &err), 0);
	for (int i = 0; i < 3; i++) {
		wait_due(&n);
		ig_notify_watchdog(&n, yes, NULL);
		expect(fd, "WATCHDOG=1");
		expect_nothing(fd);
	}
	wait_due(&n);
	ig_notify_watchdog(&n, no, NULL);
	expect_nothing(fd);
	wait_due(&n); /* asked again */
	ig_notify_watchdog(&n, yes, NULL);
	expect(fd, "WATCHDOG=1");
	ig_notify_close(&n);
	/* meant for another process, from which the variables were inherited */
	snprintf(pid, sizeof pid, "%ld", (long)getppid());
	setenv("WATCHDOG_PID", pid, 1);
	assert_int_equal(ig_notify_open(&n, &err), 0);
	assert_int_equal(ig_notify_due_ms(&n), -1);
	ig_notify_close(&n);
	close(fd);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_path),		T(test_abstract),
		T(test_nobody_listens), T(test_wrong_variables),
		T(test_signs_of_life),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
