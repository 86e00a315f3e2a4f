/* test_inherit.c: what a predecessor left is found by what it is, once; anything else is not taken. */
#include "base/inherit.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* As in a successor: 3 is the socket to the predecessor, whose end is *peer; then two that listen, and a
 * file.  (cmocka has none of these open.) */
static struct sockaddr_in leave(int *peer)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	socklen_t len = sizeof a;
	int pair[2], s[2], file;

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	for (int i = 0; i < 2; i++) {
		a.sin_port = 0;
		s[i] = socket(AF_INET, SOCK_STREAM, 0);
		assert_int_equal(bind(s[i], (struct sockaddr *)&a, sizeof a), 0);
		assert_int_equal(listen(s[i], 1), 0);
		assert_int_equal(getsockname(s[i], (struct sockaddr *)&a, &len), 0);
	}
	file = open("/dev/null", O_RDONLY);
	const int all[] = { pair[1], s[0], s[1], file };
	int high[4];
	*peer = fcntl(pair[0], F_DUPFD, 30);
	for (int i = 0; i < 4; i++)
		high[i] = fcntl(all[i], F_DUPFD, 20);
	for (int fd = 3; fd < 20; fd++)
		close(fd);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(dup2(high[i], 3 + i), 3 + i);
		close(high[i]);
	}
	setenv("INGOT_INHERITED", "4", 1);
	return a; /* of the second */
}

static void test_left(void **state)
{
	int peer;
	struct sockaddr_in second = leave(&peer), any = second, other = second;
	struct stat st;
	char byte = 1;

	ig_inherit_begin();
	assert_null(getenv("INGOT_INHERITED"));
	assert_true(fcntl(4, F_GETFD) & FD_CLOEXEC);
	other.sin_addr.s_addr = htonl(0x7f000002);
	assert_int_equal(ig_inherit_socket((struct sockaddr *)&other, sizeof other, false), -1);
	int copy = ig_inherit_socket((struct sockaddr *)&second, sizeof second, true);
	assert_true(copy > 6);
	close(copy);
	assert_int_equal(ig_inherit_socket((struct sockaddr *)&second, sizeof second, false), 5);
	assert_int_equal(ig_inherit_socket((struct sockaddr *)&second, sizeof second, false), -1);
	any.sin_port = 0;
	assert_int_equal(ig_inherit_socket((struct sockaddr *)&any, sizeof any, false), 4);
	assert_int_equal(ig_inherit_socket((struct sockaddr *)&any, sizeof any, false), -1);
	assert_int_equal(stat("/dev/null", &st), 0);
	assert_int_equal(ig_inherit_file(st.st_dev, st.st_ino + 1), -1);

	/* what nobody wants is closed, and the predecessor hears of it */
	ig_inherit_end();
	assert_int_equal(fcntl(6, F_GETFD), -1);
	assert_int_equal(read(peer, &byte, 1), 1);
	assert_true(ig_inherit_predecessor());
	close(peer);
	assert_false(ig_inherit_predecessor());
	assert_false(ig_inherit_predecessor());
	for (int fd = 3; fd < 6; fd++)
		close(fd);
}

/* A variable that anybody could have set. */
static void test_hostile(void **state)
{
	static const char *const texts[] = {
		"", "x", "-1", "0", "17", "4x", "99999999999999999999"
	};
	struct sockaddr_in a = { .sin_family = AF_INET };

	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		setenv("INGOT_INHERITED", texts[i], 1);
		ig_inherit_begin();
		assert_null(getenv("INGOT_INHERITED"));
		assert_int_equal(ig_inherit_socket((struct sockaddr *)&a, sizeof a, false), -1);
		ig_inherit_end();
		assert_false(ig_inherit_predecessor());
	}
	/* numbers of files that are not open */
	for (int fd = 3; fd < 20; fd++)
		close(fd);
	setenv("INGOT_INHERITED", "16", 1);
	ig_inherit_begin();
	ig_inherit_end();
	assert_false(ig_inherit_predecessor());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_left),
	};
	return cmocka_run_group_tests_name("inherited", tests, NULL, NULL);
}
