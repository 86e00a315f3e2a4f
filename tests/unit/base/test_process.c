/* test_process.c: what a program is started with: its files, signals, process group. */
#include "base/inherit.h"
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SHELL "/bin/sh"

/* Start s, with out as its standard output if to_pipe; its status, and all that it wrote there or on
 * our standard error. */
static int run(struct ig_process s, bool to_pipe, char *text, size_t cap)
{
	int fds[2], status, error = dup(2);
	size_t n = 0;
	ssize_t got;
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	assert_int_equal(fcntl(fds[0], F_SETFD, FD_CLOEXEC), 0);
	assert_int_equal(fcntl(fds[1], F_SETFD, FD_CLOEXEC), 0);
	if (to_pipe)
		s.out = fds[1];
	else
		dup2(fds[1], 2);
	int rc = ig_process_start(&s, &pid);
	dup2(error, 2);
	close(error);
	close(fds[1]);
	assert_int_equal(rc, 0);
	while ((got = read(fds[0], text + n, cap - 1 - n)) > 0)
		n += (size_t)got;
	text[n] = 0;
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return ig_process_status(status);
}

static void test_files(void **state)
{
	static const char *const argv[] = { SHELL, "-c", "cat; echo out; echo err >&2; exit 7",
					    NULL };
	char text[100];

	assert_int_equal(
		run((struct ig_process){ .argv = argv, .quiet = true }, true, text, sizeof text),
		7);
	assert_string_equal(text, "out\n");
	assert_int_equal(run((struct ig_process){ .argv = argv }, false, text, sizeof text), 7);
	assert_string_equal(text, "out\nerr\n");
	assert_int_equal(
		run((struct ig_process){ .argv = argv, .quiet = true }, false, text, sizeof text),
		7);
	assert_string_equal(text, "");
}

static void test_descriptors(void **state)
{
	static const char *const argv[] = { SHELL, "-c", "(echo there >&9) 2>/dev/null; echo end",
					    NULL };
	char text[100], leaked[20];
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	assert_int_equal(dup2(fds[1], 9), 9); /* a shell knows descriptors of one digit */
	for (int none = 0; none < 2; none++) {
		struct ig_process s = { .argv = argv, .no_descriptors = none };
		assert_int_equal(run(s, true, text, sizeof text), 0);
		assert_string_equal(text, "end\n");
		assert_int_equal(fcntl(fds[0], F_SETFL, O_NONBLOCK), 0);
		assert_int_equal(read(fds[0], leaked, sizeof leaked), none ? -1 : 6);
	}
	close(fds[0]);
	close(fds[1]);
	close(9);
}

/* Those to keep arrive as 3, 4, …, though some of these numbers are the sources of others. */
static void test_kept(void **state)
{
	static const char *const argv[] = {
		SHELL, "-c",
		"for i in 3 4 5 6 7 8 9; do (echo $i >&$i) 2>/dev/null; done; echo end", NULL
	};
	char text[100], got[20] = "";
	int fds[3][2], keep[3], many[IG_PROCESS_KEEP + 1] = { 0 };
	pid_t pid;

	for (int i = 0; i < 3; i++) {
		assert_int_equal(pipe(fds[i]), 0);
		assert_int_equal(fcntl(fds[i][0], F_SETFL, O_NONBLOCK), 0);
	}
	/* the third is 3 of ours, if that is free, and the first comes to lie there */
	keep[0] = fds[2][1];
	keep[1] = fds[1][1];
	keep[2] = fds[0][1];
	struct ig_process s = { .argv = argv, .no_descriptors = true, .keep = keep, .n_keep = 3 };
	assert_int_equal(run(s, true, text, sizeof text), 0);
	assert_string_equal(text, "end\n");
	for (int i = 0; i < 3; i++) {
		assert_int_equal(read(fds[2 - i][0], got, sizeof got), 2);
		assert_int_equal(got[0], '3' + i);
		assert_int_equal(read(fds[2 - i][0], got, sizeof got), -1);
	}
	for (int i = 0; i < 6; i++)
		close(fds[i / 2][i % 2]);
	s.keep = many;
	s.n_keep = IG_PROCESS_KEEP + 1;
	assert_int_equal(ig_process_start(&s, &pid), -E2BIG);
}

static void test_environment(void **state)
{
	static const char *const argv[] = { SHELL, "-c", "echo $A $HOME.", NULL };
	char *const env[] = { (char[]){ "A=b" }, NULL };
	char text[100];

	assert_int_equal(
		run((struct ig_process){ .argv = argv, .env = env }, true, text, sizeof text), 0);
	assert_string_equal(text, "b .\n");
}

/* What ig_inherit_start opens for a program that can't be run is closed again. */
static void test_successor(void **state)
{
	char *const argv[] = { (char[]){ "/nowhere/ingotd" }, NULL };
	int alive, before = dup(0), after;

	assert_int_equal(ig_inherit_start(argv, NULL, 0, &alive), -ENOENT);
	assert_int_equal(alive, -1);
	close(before);
	after = dup(0);
	assert_int_equal(after, before);
	close(after);
}

/* Ours ignores SIGUSR1 and SIGHUP and blocks SIGTERM. */
static void test_signals(void **state)
{
	static const char *const user[] = { SHELL, "-c", "kill -USR1 $$; echo lives", NULL },
				 *const term[] = { SHELL, "-c", "kill -TERM $$; echo lives", NULL };
	sigset_t set, old;
	char text[100];

	signal(SIGUSR1, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, &old);
	assert_int_equal(run((struct ig_process){ .argv = user }, true, text, sizeof text),
			 128 + SIGUSR1);
	assert_string_equal(text, "");
	assert_int_equal(
		run((struct ig_process){ .argv = user, .defaults = &set }, true, text, sizeof text),
		0);
	assert_string_equal(text, "lives\n");
	assert_int_equal(
		run((struct ig_process){ .argv = term, .defaults = &set }, true, text, sizeof text),
		128 + SIGTERM);
	sigprocmask(SIG_SETMASK, &old, NULL);
	signal(SIGUSR1, SIG_DFL);
}

static void test_group(void **state)
{
	static const char *const argv[] = { "sleep", "1000", NULL };

	for (int own = 0; own < 2; own++) {
		struct ig_process s = { .argv = argv, .in_path = true, .own_group = own };
		pid_t pid;
		int status;
		assert_int_equal(ig_process_start(&s, &pid), 0);
		assert_int_equal(getpgid(pid), own ? pid : getpgrp());
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(ig_process_status(status), 128 + SIGKILL);
	}
}

static void test_path(void **state)
{
	static const char *const sh[] = { "sh", "-c", "exit 3", NULL },
				 *const none[] = { "ingot-no-such-program", NULL },
				 *const folder[] = { "/", NULL };
	pid_t pid;
	char text[10];

	assert_int_equal(
		run((struct ig_process){ .argv = sh, .in_path = true }, true, text, sizeof text),
		3);
	assert_int_equal(ig_process_start(&(struct ig_process){ .argv = sh }, &pid), -ENOENT);
	assert_int_equal(
		ig_process_start(&(struct ig_process){ .argv = none, .in_path = true }, &pid),
		-ENOENT);
	assert_int_equal(ig_process_start(&(struct ig_process){ .argv = folder }, &pid), -EACCES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files),	cmocka_unit_test(test_descriptors),
		cmocka_unit_test(test_kept),	cmocka_unit_test(test_environment),
		cmocka_unit_test(test_signals), cmocka_unit_test(test_group),
		cmocka_unit_test(test_path),	cmocka_unit_test(test_successor),
	};
	return cmocka_run_group_tests_name("process", tests, NULL, NULL);
}
