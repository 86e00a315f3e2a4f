/*
 * relay.c: a link with a delay, for bench/machines, on kernels without netem.  relay DELAY_US NAMESPACE...: opens the tun
 * device lan0 of each network namespace (made with `ip tuntap`), and takes a packet for address 10.77.0.I to the I-th of
 * them, I from 1, DELAY_US after it came.  Rates are those that tc gives the devices.  Says "ready", and ends with its
 * standard input.  Linux, as root.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define MOST_NAMESPACES 64
#define MOST_BYTES 65536
#define MOST_PACKETS 2048u /* on the way */

struct packet {
	int64_t due_ns;
	int to;
	size_t n_bytes;
	uint8_t data[MOST_BYTES];
};

static _Noreturn void fail(const char *what, const char *of)
{
	fprintf(stderr, "relay: %s %s: %s\n", what, of, strerror(errno));
	exit(1);
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int open_tun(const char *name)
{
	struct ifreq r = { .ifr_flags = IFF_TUN | IFF_NO_PI };
	char path[300];

	snprintf(path, sizeof path, "/run/netns/%.200s", name);
	const int ns = open(path, O_RDONLY | O_CLOEXEC);
	if (ns < 0 || setns(ns, CLONE_NEWNET))
		fail("namespace", name);
	close(ns);
	const int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	strcpy(r.ifr_name, "lan0");
	if (fd < 0 || ioctl(fd, TUNSETIFF, &r))
		fail("tun device of", name);
	return fd;
}

/* Which namespace a packet is for; -1: none. */
static int target(const struct packet *p, int n)
{
	const uint8_t *d = p->data;
	const int i =
		p->n_bytes >= 20 && d[0] >> 4 == 4 && d[16] == 10 && d[17] == 77 ? d[19] - 1 : -1;

	return i < n ? i : -1;
}

int main(int argc, char **argv)
{
	struct pollfd fds[MOST_NAMESPACES + 1];
	struct packet *ring = malloc(MOST_PACKETS * sizeof *ring);
	uint32_t first = 0, end = 0; /* modulo MOST_PACKETS */
	const int n = argc - 2;
	const int64_t delay_ns = argc > 1 ? atoll(argv[1]) * 1000 : 0;

	if (n < 2 || n > MOST_NAMESPACES || delay_ns < 0 || !ring) {
		fprintf(stderr, "relay DELAY_US NAMESPACE NAMESPACE...\n");
		return 1;
	}
	for (int i = 0; i < n; i++)
		fds[i] = (struct pollfd){ .fd = open_tun(argv[i + 2]), .events = POLLIN };
	fds[n] = (struct pollfd){ .fd = 0, .events = POLLIN };
	prctl(PR_SET_TIMERSLACK, 1);
	puts("ready");
	fflush(stdout);
	for (;;) {
		struct timespec wait = { .tv_sec = 3600 };
		if (first != end) {
			int64_t ns = ring[first % MOST_PACKETS].due_ns - now_ns();
			ns = ns < 0 ? 0 : ns;
			wait = (struct timespec){ ns / 1000000000, ns % 1000000000 };
		}
		if (ppoll(fds, (nfds_t)n + 1, &wait, NULL) < 0 && errno != EINTR)
			fail("waiting for", "packets");
		if (fds[n].revents)
			return 0;
		for (int i = 0; i < n; i++) {
			while (fds[i].revents & POLLIN && end - first < MOST_PACKETS) {
				struct packet *p = &ring[end % MOST_PACKETS];
				const ssize_t got = read(fds[i].fd, p->data, sizeof p->data);
				if (got <= 0)
					break;
				p->n_bytes = (size_t)got;
				p->to = target(p, n);
				p->due_ns = now_ns() + delay_ns;
				end += p->to >= 0;
			}
		}
		while (first != end && ring[first % MOST_PACKETS].due_ns <= now_ns()) {
			const struct packet *p = &ring[first++ % MOST_PACKETS];
			/* A full queue drops, as a switch does: TCP sends it again. */
			if (write(fds[p->to].fd, p->data, p->n_bytes) < 0 && errno != EAGAIN)
				fail("sending to", argv[p->to + 2]);
		}
	}
}
